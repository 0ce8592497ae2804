"""Laws that models, groups and frames must keep, as checks for a test: ours, and yours.

Three of them raise ``AssertionError`` and say what was measured and where to look:

- :func:`assert_equivariant`: a model follows its input, ``f(C_g a) = C_g f(a)``;
- :func:`group_laws`: what calls itself a group acts like one;
- :func:`frame_laws`: a frame moves with the field, and says so where there is nothing to find.

The other functions each measure by how much one law is broken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from pacefno.fields import Box, Field, FieldType
from pacefno.frames import Frame
from pacefno.grid import band_limit, compute_dtype
from pacefno.groups import Group
from pacefno.metrics import equivariance_error, random_elements
from pacefno.pace import PACE

EXACT = {torch.float32: 2e-5, torch.float64: 1e-12}  # what rounding may cost an exact law
FRAME = {torch.float32: 1e-5, torch.float64: 1e-10}  # in any coordinate of a frame
ALIASED = 1e-6  # of the mean of a momentum over its density, which no grid resolves exactly
GRIDS = {1: (33,), 2: (24, 30), 3: (8, 9, 10)}
BATCH = 4
LONG_WAVES = 6  # the largest wavenumber of a random field where a law needs a resolved one


def _broken_law(law: str, measured: float, allowed: float, says: str) -> str:
    """A law that does not hold: by how much it is broken, and what it says."""
    return f"{law}: off by {measured:.3g}, allowed {allowed:.3g}: {says}"


# --- models ---------------------------------------------------------------------------------------


def assert_equivariant(
    model: Callable[[Tensor], Tensor],
    group: Group,
    field: Tensor,
    *,
    channels: str | None = None,
    horizon: float | None = None,
    lengths: float | Sequence[float] | None = None,
    input: FieldType | None = None,
    output: FieldType | None = None,
    xi: Tensor | None = None,
    seed: int = 0,
    box: Box | None = None,
    tolerance: float = 1e-5,
) -> None:
    """Fail unless ``f(C_g a) = C_g f(a)`` to a relative ``tolerance`` for every sample of a field.

    Measured by :func:`pacefno.metrics.equivariance_error`, which explains the arguments, for each
    quantity: a velocity beside a pressure that is a million times as large counts as much. The
    message names the worst sample with its element, and the coordinates that are to blame.
    """

    def error(elements: Tensor) -> Tensor:
        return equivariance_error(
            model,
            group,
            field,
            channels=channels,
            horizon=horizon,
            lengths=lengths,
            input=input,
            output=output,
            xi=elements,
            box=box,
            worst_quantity=True,
        )

    elements = random_elements(group, len(field), seed) if xi is None else xi
    elements = elements.to(field.device)
    found = error(elements)
    if bool((found <= tolerance).all()):  # False for NaN
        return
    worst = int(found.nan_to_num(nan=math.inf).argmax())
    lines = [
        f"not equivariant under {group.name}: the relative error |f(C_g a) - C_g f(a)| is "
        f"{float(found[worst]):.3g}, allowed {tolerance:.3g}",
        f"  worst is sample {worst} of {len(field)}, moved by {_named(group, elements[worst])}",
    ]
    alone = {
        name: float(error(_only(elements, column)).max())
        for column, name in enumerate(group.coordinates)
    }
    lines += [f"  {name} alone: {value:.3g}" for name, value in alone.items()]
    wrong = [name for name, value in alone.items() if not value <= tolerance]
    lines += [f"  look at: {hint}" for hint in _hints(model, group, field, wrong)]
    raise AssertionError("\n".join(lines))


def _named(group: Group, row: Tensor) -> str:
    pairs = zip(group.coordinates, row.tolist(), strict=True)
    return ", ".join(f"{name} {value:.3g}" for name, value in pairs) or "nothing"


def _only(xi: Tensor, column: int) -> Tensor:
    kept = torch.zeros_like(xi)
    kept[:, column] = xi[:, column]
    return kept


def _hints(
    model: Callable[[Tensor], Tensor], group: Group, field: Tensor, wrong: list[str]
) -> Iterable[str]:
    spatial = group.coordinates[: group.spatial]
    if not isinstance(model, PACE):
        yield "whether the model sees positions, pads with zeros or strides (pacefno.audit tells)"
        yield (
            "pacefno.Symmetrised, which averages any model over a point group"
            if "element" in wrong
            else "pacefno.PACE, which makes any model follow"
        )
    else:
        missing = (~(model.frame_of(field).quality > 0).all(dim=0)).tolist()
        coordinates = model.group.coordinates  # those of the group may be more: a product's
        names = [name for name, lost in zip(coordinates, missing, strict=True) if lost]
        if names:
            yield f"the field, which does not determine {', '.join(names)} (model.frame_of(field))"
        if any(name in spatial for name in wrong):
            yield "the frame: is it equivariant itself? check it with pacefno.testing.frame_laws"
    if any(name not in spatial for name in wrong):
        yield "horizon, lengths and the kinds of the channels: a boost moves the output by v T / L"
    if "angle" in wrong:
        yield "whether field and output keep clear of the edges: a periodic field cannot be turned"


# --- random fields and elements -------------------------------------------------------------------


def random_field(
    type: FieldType,
    grid: Sequence[int],
    *,
    batch: int = BATCH,
    top: int | None = None,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Field:
    """Fields of order one with random waves up to ``top``, of all wavenumbers without it.

    A density (what a momentum is "of") is positive. A type without named channels gets two.
    """
    names = type.channels or ("a", "b")
    count = type.snapshots * len(names)
    generator = torch.Generator().manual_seed(seed)
    white = torch.randn(batch, count, *grid, dtype=torch.float64, generator=generator)
    values = white if top is None else band_limit(white, type.dim, top)
    densities = {quantity.of for quantity in type.quantities}
    for channel in range(count):
        if names[channel % len(names)] in densities:
            values[:, channel] = 2 + 0.2 * values[:, channel]
    return Field(values.to(dtype), type)


def long_waves(grid: Sequence[int]) -> int:
    """The largest wavenumber that every axis of a grid resolves well, at most ``LONG_WAVES``."""
    return min(LONG_WAVES, (min(grid) - 1) // 2)


def far_elements(group: Group, batch: int, seed: int = 0) -> Tensor:
    """Random elements that reach beyond half a period; velocities and scales up to 1.5."""
    high = [1.5 if math.isinf(period) else 0.75 * period for period in group.periods]
    generator = torch.Generator().manual_seed(seed)
    return group.sample([0.0] * group.size, high, batch, generator)


def largest(difference: Tensor) -> float:
    """The largest absolute value; NaN counts as infinite, and of nothing it is 0."""
    if not difference.numel():
        return 0.0
    return float(difference.detach().abs().nan_to_num(nan=math.inf).max())


# --- the laws of a group, one by one --------------------------------------------------------------


def identity_law(group: Group, field: Field) -> float:
    """The identity does nothing, neither acting nor undone."""
    e = group.identity(len(field), device=field.values.device)
    moved = (group.act(field, e).values, group.inverse(field, e).values)
    return max(largest(values - field.values) for values in moved)


def inverse_law(group: Group, field: Field, xi: Tensor) -> float:
    """``inverse`` undoes ``act``, and ``act`` undoes ``inverse``: values and boxes."""
    there = group.inverse(group.act(field, xi), xi)
    back = group.act(group.inverse(field, xi), xi)
    return max(apart(there, field), apart(back, field))


def composition_law(group: Group, field: Field, xi: Tensor, eta: Tensor) -> float:
    """``act(act(a, eta), xi) = act(a, compose(xi, eta))``, relative to the norm of the field."""
    twice = group.act(group.act(field, eta), xi)
    once = group.act(field, group.compose(xi, eta))
    return max(
        float((twice.values - once.values).norm() / field.values.norm()), boxes_apart(twice, once)
    )


def inverse_action_law(group: Group, field: Field, xi: Tensor) -> float:
    """The inverse element acts as the inverse."""
    return apart(group.act(field, group.inverse_element(xi)), group.inverse(field, xi))


def inverse_element_law(group: Group, xi: Tensor) -> float:
    """An element times its inverse is the identity, in both orders."""
    e = group.identity(len(xi), device=xi.device)
    inverse = group.inverse_element(xi)
    both = (group.compose(inverse, xi), group.compose(xi, inverse))
    return max(largest(group.difference(product, e)) for product in both)


def associative_law(group: Group, a: Tensor, b: Tensor, c: Tensor) -> float:
    """``(a b) c = a (b c)``."""
    left = group.compose(group.compose(a, b), c)
    return largest(group.difference(left, group.compose(a, group.compose(b, c))))


def unitary_law(group: Group, field: Field, other: Field, xi: Tensor) -> float:
    """Spatial coordinates keep inner products, here of two fields; boosts are left out."""
    xi = torch.cat([xi[:, : group.spatial], torch.zeros_like(xi[:, group.spatial :])], dim=1)
    moved, moved_other = group.act(field, xi).values, group.act(other, xi).values

    def product(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).flatten(1).mean(dim=1)

    energy = product(moved, moved) - product(field.values, field.values)
    inner = product(moved, moved_other) - product(field.values, other.values)
    return max(largest(energy), largest(inner))


def batch_law(group: Group, field: Field, xi: Tensor) -> float:
    """A batch is a loop over its samples, each moved by its own element."""
    error = 0.0
    for move in (group.act, group.inverse):
        whole = move(field, xi).values
        for i in range(len(field)):
            row = slice(i, i + 1)
            box = None if field.box is None else field.box.select(row)
            alone = move(Field(field.values[row], field.type, box), xi[row]).values
            error = max(error, largest(alone - whole[row]))
    return error


def kinematic_law(group: Group, field: Field, xi: Tensor) -> float:
    """What is measured on a moved field is what composition says of the measured and the moved."""
    spatial = xi.new_zeros(len(xi), group.spatial)
    own = torch.cat([spatial, group.kinematic(field)], dim=1)
    expected = group.compose(xi, own)[:, group.spatial :]
    return largest(group.kinematic(group.act(field, xi)) - expected)


def tangent_law(group: Group, field: Field, xi: Tensor, direction: Tensor) -> float:
    """Forward derivatives in the coordinates against central differences, relative."""
    h, error = 1e-6, 0.0
    for move in (group.act, group.inverse):

        def values(x: Tensor, move: Callable[[Field, Tensor], Field] = move) -> Tensor:
            return move(field, x).values

        tangent = torch.func.jvp(values, (xi,), (direction,))[1]
        numeric = (values(xi + h * direction) - values(xi - h * direction)) / (2 * h)
        error = max(error, largest(tangent - numeric) / (1 + largest(numeric)))
    return error


def gradients_are_finite(group: Group, field: Field, xi: Tensor) -> bool:
    """Whether gradients in field and coordinates exist and are finite."""
    values = field.values.detach().clone().requires_grad_()
    xi = xi.detach().clone().requires_grad_()
    moved = group.act(field.with_values(values), xi).values
    back = group.inverse(field.with_values(values), xi).values
    total = (moved.square().sum() + back.square().sum()).double()
    gradients = torch.autograd.grad(total, [values, xi], allow_unused=True)
    return all(part is None or bool(torch.isfinite(part).all()) for part in gradients)


def apart(a: Field, b: Field) -> float:
    """The largest difference of two fields, in values or boxes."""
    return max(largest(a.values - b.values), boxes_apart(a, b))


def boxes_apart(a: Field, b: Field) -> float:
    """The largest relative difference of the lengths and times of two fields."""
    size = b.times.abs().clamp_min(torch.finfo(torch.float64).tiny)
    return max(largest(a.lengths / b.lengths - 1), largest((a.times - b.times) / size))


# --- and all of them ------------------------------------------------------------------------------


def group_laws(
    group: Group,
    type: FieldType,
    grid: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    tolerance: float | None = None,
) -> None:
    """Fail unless a group acts on fields of a type as a group does.

    Checked are the identity, the inverse in both orders, inverse elements, composition (of the
    elements for which it is exact, :meth:`~pacefno.groups.Group.composable`), associativity, that
    spatial coordinates keep inner products, that a batch is a loop over its samples, what is
    measured of a boost, derivatives, and that coordinates come in float64 whatever the field. The
    tolerance is that of rounding in ``dtype``.
    """
    allowed = EXACT[compute_dtype(dtype)] if tolerance is None else tolerance
    grid = GRIDS[type.dim] if grid is None else tuple(grid)
    top = long_waves(grid)
    smooth = random_field(type, grid, top=top, dtype=dtype, seed=seed)
    other = random_field(type, grid, top=top, dtype=dtype, seed=seed + 1)
    white = random_field(type, grid, dtype=dtype, seed=seed)
    long = random_field(type, grid, top=min(2, top), dtype=dtype, seed=seed)
    exact = random_field(type, grid, top=min(3, top), seed=seed)
    xi, eta, zeta = (far_elements(group, BATCH, seed + i) for i in range(3))
    plain_xi, plain_eta = group.composable(xi), group.composable(eta)
    densities = any(q.how.needs_density for q in type.quantities)
    rounding = EXACT[torch.float64]  # of coordinates, whatever the field
    tolerances = {"inverse element": rounding, "associativity": rounding, "derivatives": 1e-7}
    if densities:
        tolerances["kinematic"] = max(allowed, ALIASED)
    laws = {
        "identity": (identity_law(group, smooth), "act(a, identity) is a"),
        "inverse": (inverse_law(group, smooth, xi), "inverse undoes act, and back"),
        "inverse of all modes": (
            inverse_law(group, white, xi),
            "the same for white noise: does a Nyquist mode get a phase?",
        ),
        "composition": (
            composition_law(group, smooth, plain_xi, plain_eta),
            "act(act(a, eta), xi) is act(a, compose(xi, eta)); see Group.composable",
        ),
        "inverse element": (
            inverse_element_law(group, xi),
            "compose(xi, inverse_element(xi)) is the identity",
        ),
        "action of the inverse element": (
            inverse_action_law(group, smooth, plain_xi),
            "act(a, inverse_element(xi)) is inverse(a, xi); see Group.composable",
        ),
        "associativity": (
            associative_law(group, 0.1 * xi, 0.1 * eta, 0.1 * zeta),
            "(xi eta) zeta is xi (eta zeta)",
        ),
        "unitarity": (
            unitary_law(group, smooth, other, xi if group.is_unitary(type) else plain_xi),
            "spatial coordinates keep inner products; see Group.is_unitary",
        ),
        "batch": (
            batch_law(group, smooth, xi),
            "each sample is moved by its own element, whatever its batch mates",
        ),
        "kinematic": (
            kinematic_law(group, long, plain_xi if densities else xi),  # a mean of m / h is torn
            "kinematic(act(a, xi)) is the kinematic part of compose(xi, frame of a)",
        ),
        "derivatives": (
            tangent_law(group, exact, xi, eta),
            "derivatives in xi agree with differences: is xi detached somewhere?",
        ),
    }
    broken = [
        _broken_law(name, off, tolerances.get(name, allowed), says)
        for name, (off, says) in laws.items()
        if not off <= tolerances.get(name, allowed)
    ]
    if not gradients_are_finite(group, smooth, xi):
        broken.append("gradients: not finite in the field or in the coordinates")
    broken += _not_in_float64(group, smooth, xi.float())
    _report(f"{group.name} on {type.text or 'any channels'!r}, grid {grid}, {dtype}", broken)


def _not_in_float64(group: Group, field: Field, xi: Tensor) -> list[str]:
    """What does not come in float64, or changes the precision of a field given a coarser xi."""
    bad = [
        f"float64 coordinates: {name} returns {value.dtype}"
        for name, value in {
            "identity": group.identity(1),
            "sample": far_elements(group, 1),
            "kinematic": group.kinematic(field),
        }.items()
        if value.dtype != torch.float64
    ]
    if group.act(field, xi).values.dtype != field.values.dtype:
        bad.append("precision: act changes the dtype of the field")
    return bad


# --- frames ---------------------------------------------------------------------------------------


def frame_defect(frame: Frame, group: Group, field: Field, xi: Tensor) -> float:
    """``|E(C_g a) - g E(a)|``: the largest coordinate, to the nearest image."""
    with torch.no_grad():
        moved = frame(group.act(field, xi)).xi
        expected = group.compose(xi.double(), frame(field).xi)
    return largest(group.difference(moved, expected))


def frame_laws(
    frame: Frame,
    group: Group,
    type: FieldType,
    field: Tensor,
    *,
    xi: Tensor | None = None,
    seed: int = 0,
    tolerance: float | None = None,
) -> None:
    """Fail unless a frame moves with a field, and knows where there is nothing to find.

    The estimate of the moved field must be the moved estimate, ``E(C_g a) = g E(a)``, for a field
    that determines its frame. On constant fields it must be finite, with gradients, and the quality
    of every spatial coordinate must be 0.
    """
    allowed = FRAME[compute_dtype(field.dtype)] if tolerance is None else tolerance
    typed = Field(field, type)
    found = frame(typed)
    xi = (random_elements(group, len(field), seed) if xi is None else xi).to(field.device)
    shape, wanted = tuple(found.xi.shape), (len(field), group.size)
    if shape != wanted or tuple(found.quality.shape) != wanted or found.xi.dtype != torch.float64:
        raise AssertionError(
            f"a frame of {group.name} returns coordinates and quality of shape {wanted}, the first "
            f"in float64: got {shape} and {tuple(found.quality.shape)}, {found.xi.dtype}"
        )
    broken: list[str] = []
    lost = (~(found.quality > 0).all(dim=0)).tolist()
    if any(lost):
        names = [name for name, no in zip(group.coordinates, lost, strict=True) if no]
        broken.append(f"quality: this field does not determine {', '.join(names)}: take another")
    defect = frame_defect(frame, group, typed, xi)
    if not defect <= allowed:
        broken.append(_broken_law("equivariance", defect, allowed, "E(C_g a) is g E(a)"))
    broken += _laws_of_constants(frame, group, typed)
    _report(
        f"{frame.__class__.__name__} of {group.name} on {type.text or 'any channels'!r}", broken
    )


def _laws_of_constants(frame: Frame, group: Group, field: Field) -> list[str]:
    means = field.values.detach().flatten(2).mean(dim=2)
    constant = means.reshape(*means.shape, *[1] * field.type.dim).expand_as(field.values).clone()
    constant.requires_grad_()
    found = frame(field.with_values(constant))
    broken: list[str] = []
    if not bool(torch.isfinite(found.xi).all()):
        broken.append("constant field: the coordinates are not finite")
    if bool((found.quality[:, : group.spatial] != 0).any()):
        broken.append("constant field: nothing is determined, yet the quality is not 0")
    total = found.xi.sum() + found.quality.double().sum()
    if total.requires_grad:
        slopes = torch.autograd.grad(total, constant, allow_unused=True)[0]
        if slopes is not None and not bool(torch.isfinite(slopes).all()):
            broken.append("constant field: the gradients are not finite")
    return broken


def _report(what: str, broken: list[str]) -> None:
    if broken:
        raise AssertionError("\n  ".join([f"{what} breaks {len(broken)} laws:", *broken]))
