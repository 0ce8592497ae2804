"""PACE: any operator on a periodic grid, made equivariant by canonicalisation (paper, Eq. 1)."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from pacefno.errors import UsageError
from pacefno.fields import Box, Field, FieldType, check_next_input, check_one_box
from pacefno.frames import (
    CanonicalSlice,
    Estimate,
    Frame,
    GaussNewton,
    Refinement,
    Refiner,
    default_slice,
)
from pacefno.grid import FieldError, check_field, compute_dtype, in_transform
from pacefno.groups import Group

Undetermined = Literal["warn", "raise", "ignore"]
INSIDE = ("pacefno", "torch")  # packages whose lines are not those of whoever calls a model


class Prediction(NamedTuple):
    """A prediction with the frame that it was made in."""

    values: Tensor  # (B, C', *grid)
    frame: Estimate


class UndeterminedFrameWarning(UserWarning):
    """A field does not determine a coordinate of its frame, so PACE cannot follow it there."""


class PACE(nn.Module):
    """Estimate the frame, pull the field back, operate, push the prediction out at its own time.

    ``u_pred = C_xi_T G_theta C_xi_0^-1 (a)`` with ``xi_0 = E_phi(a)`` and ``xi_T = Gamma_B(xi_0;
    T)`` (paper, Eq. 1 and Algorithm 1). An element acts on space-time, so both are one element
    ``xi`` acting on the times of the input and on the times of the output.

    Args:
        operator: any module on ``(B, C, *grid)``, trained or not.
        group: the symmetry that the wrapped operator shall have.
        channels: what the channels are, e.g. ``"u: velocity, p: scalar"`` (a vector takes one
            channel per axis, in the order of the grid axes x, y, z). Needed by every group whose
            action depends on it, that is by all but translations.
        horizon: the time between input and output, in the units of the data. Needed by groups with
            boosts.
        lengths: the period of the box along each axis, in the units of the data: one number, or one
            per axis. Needed by groups with boosts, which move a field by ``v T / L`` periods.
        frame: how the frame is found; by default read off the field, without training.
        on_undetermined: what to do when a field does not determine its frame: warn once, raise, or
            ignore it. The coordinate is then 0, and the operator sees the field unmoved; where the
            field repeats itself within the box, it is one of those that fit equally well.
        input, output: the types of the fields in full, instead of channels, horizon and lengths:
            several snapshots, or other channels out than in.

    >>> import pacefno
    >>> _ = torch.manual_seed(0)
    >>> operator = torch.nn.Conv1d(1, 1, 5, padding=2)  # pads with zeros: it knows the edges
    >>> group = pacefno.Galilean(1)
    >>> model = PACE(operator, group, channels="u: velocity", horizon=0.5, lengths=1.0).eval()
    >>> field = torch.randn(4, 1, 64)
    >>> moved = field.roll(16, dims=-1) + 2.0  # by a quarter of the box, at a speed of 2
    >>> shift, speed = (model.frame_of(moved).xi - model.frame_of(field).xi)[0].tolist()
    >>> round(shift % 1, 4), round(speed, 4)
    (0.25, 2.0)
    >>> later = model(field).roll(16, dims=-1) + 2.0  # 2.0 * 0.5: once around, and back
    >>> torch.allclose(model(moved), later, atol=1e-5)
    True
    """

    def __init__(
        self,
        operator: nn.Module,
        group: Group,
        *,
        channels: str | None = None,
        horizon: float | None = None,
        lengths: float | Sequence[float] | None = None,
        frame: Frame | None = None,
        on_undetermined: Undetermined = "warn",
        input: FieldType | None = None,
        output: FieldType | None = None,
    ) -> None:
        super().__init__()
        if on_undetermined not in ("warn", "raise", "ignore"):
            raise UsageError(
                f"on_undetermined: expected 'warn', 'raise' or 'ignore', got {on_undetermined!r}"
            )
        if isinstance(frame, CanonicalSlice):
            raise UsageError(
                f"frame: a {type(frame).__name__} says what is canonical, the frame that finds it "
                "is frame=slice.frame()"
            )
        if not isinstance(operator, nn.Module):
            raise UsageError(
                f"operator: expected a torch.nn.Module, got {_said(operator)}: write a small "
                "module whose forward calls it"
            )
        if not isinstance(group, Group):
            raise UsageError(
                f"group: expected a group such as pacefno.Translation(2), got {_said(group)}"
            )
        self.operator = operator
        self.group = group
        self.input, self.output = field_types(group, channels, horizon, lengths, input, output)
        self.frame = default_slice(group).frame() if frame is None else _checked(frame, group)
        self.on_undetermined = on_undetermined
        self._warned: set[str] = set()

    def forward(self, field: Tensor, *args: Any, box: Box | None = None, **kwargs: Any) -> Tensor:
        """The prediction for ``(B, C, *grid)``, in the dtype and on the grid of the field.

        Further arguments are handed to the operator. ``box`` is the geometry of each sample where
        samples differ; the operator is then given the box of the canonical field as ``box``.
        """
        return self.predict(field, *args, box=box, **kwargs).values

    def predict(
        self,
        field: Tensor,
        *args: Any,
        box: Box | None = None,
        hint: Tensor | None = None,
        **kwargs: Any,
    ) -> Prediction:
        """The prediction together with the estimated frame.

        ``hint`` is the true element where it is known, as in training; only a frame that has to
        search for it looks at it.
        """
        typed = self._typed(field, box)
        found: Estimate = self.frame(typed, hint)
        self._check_determined(found)
        return Prediction(self._at(typed, found.xi, args, kwargs), found)

    def at(
        self, field: Tensor, xi: Tensor, *args: Any, box: Box | None = None, **kwargs: Any
    ) -> Tensor:
        """The prediction with a given frame: the true one, a refined one, or another estimate."""
        return self._at(self._typed(field, box), xi, args, kwargs)

    def beside(
        self,
        field: Tensor,
        target: Tensor,
        xi: Tensor,
        *args: Any,
        box: Box | None = None,
        pooled: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor]:
        """Prediction and target, for a loss that measures the difference of the two.

        Norms are those of :meth:`at` and the target, but where the group allows it (see
        ``Group.in_place``) the target is pulled back instead of the prediction pushed out, so that
        no derivative has to pass through the action on its way to the operator.
        """
        typed, dtype = self._typed(field, box), field.dtype
        predicted = self._operate(typed, xi, args, kwargs)
        mine = self.group.in_place(predicted, xi, pooled=pooled)
        if mine is None:
            return self.group.act(predicted, xi).values.to(dtype), target
        work = target.to(compute_dtype(dtype))
        back = self.group.inverse(Field(work, self.output, box), xi)
        theirs = self.group.in_place(back, xi, pooled=pooled)
        assert theirs is not None
        return mine.values.to(dtype), theirs.values.to(dtype)

    def frame_of(self, field: Tensor, box: Box | None = None) -> Estimate:
        """The estimated coordinates of each sample, and how firmly each is determined."""
        found: Estimate = self.frame(self._typed(field, box))
        return found

    def canonicalize(self, field: Tensor, box: Box | None = None) -> Tensor:
        """The field pulled back to the canonical frame: what the operator sees."""
        typed, dtype = self._typed(field, box), field.dtype
        xi = self.frame(typed).xi
        return self.group.inverse(typed.to(compute_dtype(dtype)), xi).values.to(dtype)

    def refine(
        self,
        field: Tensor,
        refiner: Refiner | None = None,
        box: Box | None = None,
        start: Estimate | None = None,
    ) -> Refinement:
        """A frame of lower energy than the estimate's (test-time adaptation); weights stay frozen.

        Predict with it by ``model.at(field, model.refine(field).xi)``. Who has the estimate already
        hands it over as ``start``.
        """
        refiner = GaussNewton() if refiner is None else refiner
        typed = self._typed(field, box)
        if start is None:
            with torch.no_grad():
                start = self.frame(typed)
        self._check_determined(start)
        return refiner(self.frame.energy(), typed.to(compute_dtype(field.dtype)), start.xi)

    @torch.no_grad()
    def rollout(
        self,
        field: Tensor,
        steps: int,
        *args: Any,
        box: Box | None = None,
        conserve: bool | str | Sequence[str] = False,
        on_step: Callable[[int], None] | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """``steps`` predictions in a row, each the input of the next: ``(B, steps, C', *grid)``.

        With several input snapshots each prediction joins the window and the oldest ones leave it.
        ``conserve`` keeps the spatial means of the last input snapshot, of all channels or of those
        named: an operator that loses a little momentum in every step otherwise slows a flow down.
        A sample that stops being finite is infinite from there on, and the others go on.
        ``on_step`` is told how many steps are done.
        """
        check_next_input(self.input, self.output)
        check_field(field, dim=self.input.dim, finite=False)
        if steps < 1:
            raise UsageError(f"rollout: expected at least one step, got {steps}")
        channels = field.shape[1] // self.input.snapshots
        kept = self._conserved(conserve, channels)
        window = field
        means = field[:, -channels:].flatten(2).mean(dim=2)  # of the last snapshot, (B, C)
        lost = torch.zeros(len(field), dtype=torch.bool, device=field.device)
        found: list[Tensor] = []
        ones = [1] * (field.ndim - 1)
        for step in range(1, steps + 1):
            block = self(window, *args, box=box, **kwargs)
            if block.shape[1:] != (channels * self.output.snapshots, *field.shape[2:]):
                raise FieldError(
                    f"rollout: the prediction {tuple(block.shape)} is no next input: expected "
                    f"{channels * self.output.snapshots} channels on the grid of "
                    f"{tuple(field.shape)}"
                )
            if kept:
                block = self._with_means(block, means, kept)
            lost = lost | ~torch.isfinite(block).flatten(1).all(dim=1)
            gone = lost.reshape(-1, *ones)
            found.append(block.masked_fill(gone, math.inf))
            window = torch.cat([window, block], dim=1)[:, -field.shape[1] :]
            window = torch.where(gone, field, window)  # any field that has a frame
            if on_step is not None:
                on_step(step)
        return torch.stack(found, dim=1)

    # --- the steps of the method

    def _at(
        self, field: Field, xi: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tensor:
        predicted = self._operate(field, xi, args, kwargs)
        return self.group.act(predicted, xi).values.to(field.values.dtype)

    def _operate(
        self, field: Field, xi: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Field:
        """Pull back and operate: the prediction in the canonical frame."""
        dtype = field.values.dtype
        canonical = self.group.inverse(field.to(compute_dtype(dtype)), xi)
        if field.box is not None:
            kwargs = kwargs | {"box": canonical.box}
        u_c = self.operator(canonical.values.to(self._operator_dtype(dtype)), *args, **kwargs)
        if not isinstance(u_c, Tensor):
            raise UsageError(
                f"the operator returned a {type(u_c).__name__}, expected one tensor: say which "
                "part of it with pacefno.operators.Adapted(operator, outputs=[...])"
            )
        channels = self.output.size if self.output.quantities else None
        check_field(
            u_c, channels=channels, dim=self.output.dim, finite=False, name="what the operator made"
        )
        return Field(u_c.to(compute_dtype(dtype)), self.output, canonical.box)

    def _operator_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Half precision for an operator with such weights, else that of everything around it."""
        weight = next(self.operator.parameters(), None)
        return dtype if weight is not None and weight.dtype == dtype else compute_dtype(dtype)

    def _typed(self, values: Tensor, box: Box | None) -> Field:
        # Finding a NaN costs a pass over the field; in training the loss watches for it.
        check_field(values, dim=self.input.dim, finite=not self.training)
        return Field(values, self.input, box)

    def _check_determined(self, found: Estimate) -> None:
        if self.training or self.on_undetermined == "ignore" or torch.compiler.is_compiling():
            return
        if in_transform(found.quality):
            return
        missing = ~(found.quality > 0).all(dim=0)  # a quality that is not a number is none
        if not bool(missing.any()):
            return
        names = [n for n, no in zip(self.group.coordinates, missing.tolist(), strict=True) if no]
        count = int((~(found.quality > 0).all(dim=1)).sum())
        text = (
            f"the frame of {count} of {len(found.xi)} samples is not determined: "
            f"{', '.join(names)}. "
            "PACE does not follow such fields along them (a shear flow has no place along its "
            "axis, a pattern that repeats itself has several, a momentum whose density is not "
            "positive everywhere tells no velocity): look at "
            "model.frame_of(field).quality, "
            "choose another slice or frame, or silence this with on_undetermined='ignore'"
        )
        if self.on_undetermined == "raise":
            raise FieldError(text)
        if not set(names) <= self._warned:
            self._warned.update(names)
            warnings.warn(text, UndeterminedFrameWarning, stacklevel=_level_of_caller())

    # --- rollouts

    def _conserved(self, conserve: bool | str | Sequence[str], channels: int) -> list[int]:
        """The numbers of the channels of a snapshot whose means are kept."""
        names = self.input.channels
        if isinstance(conserve, bool):
            return list(range(channels)) if conserve else []
        conserve = [conserve] if isinstance(conserve, str) else conserve
        wanted = [name for name in conserve if name not in names]
        if wanted:
            raise FieldError(f"conserve: there is no channel {wanted[0]!r} among {names}")
        return [names.index(name) for name in conserve]

    @staticmethod
    def _with_means(block: Tensor, means: Tensor, kept: list[int]) -> Tensor:
        shape = len(block), -1, means.shape[1], *block.shape[2:]
        each = block.reshape(shape)  # (B, S, C, *grid)
        change = means[:, None] - each.flatten(3).mean(dim=3)  # (B, S, C)
        mask = torch.zeros_like(means[0])
        mask[kept] = 1
        change = (change * mask).reshape(*change.shape, *[1] * (each.ndim - 3))
        return (each + change).flatten(1, 2)


def _said(given: object) -> str:
    """What was given where something else is wanted: a class without its brackets, or a thing."""
    if isinstance(given, type):
        return f"the class {given.__name__} itself"
    return f"{given!r}" if isinstance(given, str) else f"a {type(given).__name__}"


def _checked(frame: Frame, group: Group) -> Frame:
    """Refuse what is no frame, and a frame whose coordinates are not those of the group."""
    if not isinstance(frame, Frame):
        raise UsageError(
            f"frame: expected a frame such as slice.frame(), got {_said(frame)}: leave it out for "
            "the default one"
        )
    if frame.group.coordinates != group.coordinates:
        raise UsageError(
            f"frame: it finds {', '.join(frame.group.coordinates)} of the {frame.group.name} "
            f"group, but the {group.name} group has {', '.join(group.coordinates)}"
        )
    return frame


def _level_of_caller() -> int:
    """How far up the line stands that called a model, so that a warning can point to it."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in INSIDE:
        level, frame = level + 1, frame.f_back
    return level


def check_units(
    group: Group, horizon: float | None, lengths: float | Sequence[float] | None
) -> None:
    """Refuse to assume a time and a box for a group with boosts."""
    if group.moves_in_time and (horizon is None or (horizon and lengths is None)):
        raise UsageError(
            f"the {group.name} group has boosts, which move a field between input and output: "
            "say horizon=T, the time between them, in the units of your data, and lengths=L, "
            "the period of the box in the same units"
        )


def field_types(
    group: Group,
    channels: str | None,
    horizon: float | None,
    lengths: float | Sequence[float] | None = None,
    input: FieldType | None = None,
    output: FieldType | None = None,
) -> tuple[FieldType, FieldType]:
    """The types of input and output that these words mean; a clear error where one is missing."""
    if input is not None or output is not None:
        words = (channels, horizon, lengths)
        if input is None or output is None or any(word is not None for word in words):
            raise UsageError(
                "give input= and output= together, or channels=, horizon= and lengths="
            )
        check_one_box(input, output)
        given = replace(input, step=output.step), output  # a snapshot at time 0 counts no steps
    else:
        if channels is None and group.needs_kinds:
            raise UsageError(
                f"the {group.name} group acts on channels by their kind, so say what they are: "
                'channels="u: velocity, p: scalar" (kinds: scalar, pseudoscalar, vector, velocity, '
                "momentum, speed)"
            )
        check_units(group, horizon, lengths)
        first = FieldType.parse(
            channels or "", group.dim, lengths=1.0 if lengths is None else lengths
        )
        given = first, first.at([0.0 if horizon is None else horizon])
    group.check_type(given[0])
    group.check_action(given[1])
    return given
