"""What a tensor of numbers means: kinds of channels, times of snapshots, lengths of the box.

A field is a tensor ``(B, S * C, *grid)``: ``S`` snapshots of ``C`` channels, snapshot by snapshot.
Grid axes stand in the order x, y, z, and so do the components of a vector: the first component
points along the first grid axis. A :class:`FieldType` says what the channels are and where in
space-time the snapshots lie; a :class:`Field` is values with their type. Groups act on fields, by
the kind of each channel, and that is all they need to know.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, final

import torch
from torch import Tensor

from pacefno.grid import FieldError, check_field, exact_mean
from pacefno.registry import lookup, register, registered

AXES = ("x", "y", "z")

# --- kinds ----------------------------------------------------------------------------------------


class Kind:
    """How the values of a quantity change when the frame of reference does.

    A new kind is one class: how many components it has, how they turn under an orthogonal matrix,
    and what a boost adds to them. The defaults are those of a scalar.
    """

    vector: bool = False  # one component per axis, or a single one
    needs_density: bool = False  # "momentum of h" names the quantity that it is the flux of
    # Whether it tells the velocity of its frame, along any axis or along (1, ..., 1) only.
    carries: Literal["no", "any direction", "the diagonal"] = "no"

    def components(self, dim: int) -> int:
        """How many channels the quantity takes in ``dim`` dimensions."""
        return dim if self.vector else 1

    def representation(self, matrix: Tensor) -> Tensor:
        """How the components turn under orthogonal matrices ``(..., d, d)``: ``(..., n, n)``."""
        return matrix if self.vector else torch.ones_like(matrix[..., :1, :1])

    def boost(self, value: Tensor, velocity: Tensor, density: Tensor | None) -> Tensor:
        """The values ``(B, S, n, *grid)`` seen from a frame that moves with ``-velocity``.

        ``velocity`` is ``(B, 1, d, *1)`` and broadcasts with the values of a vector.
        """
        return value

    def background(self, value: Tensor, density: Tensor | None) -> Tensor:
        """The velocity of the frame, ``(B, n)`` in float64: it changes by v under ``boost(., v)``.

        Summed in float64 whatever the field: an error of it moves the whole prediction.
        """
        raise FieldError(f"{type(self).__name__} does not tell the velocity of its frame")

    def tells(self, value: Tensor, density: Tensor | None) -> Tensor:
        """Whether the values of each sample do tell that velocity, ``(B,)``."""
        return torch.ones(value.shape[0], dtype=torch.bool, device=value.device)


@register("kind", "scalar")
class Scalar(Kind):
    """A number at each point that no motion changes: height, density, temperature, pressure."""


@register("kind", "pseudoscalar")
class Pseudoscalar(Kind):
    """A number that changes sign in a mirror: the vorticity of a plane flow."""

    def representation(self, matrix: Tensor) -> Tensor:
        determinant: Tensor = torch.linalg.det(matrix)
        return determinant[..., None, None]


@register("kind", "vector")
class Vector(Kind):
    """One component per axis, which turn with the frame and which a boost leaves alone."""

    vector = True


@register("kind", "velocity")
class Velocity(Kind):
    """A vector to which a boost adds its own velocity: ``u -> u + v``."""

    vector = True
    carries = "any direction"

    def boost(self, value: Tensor, velocity: Tensor, density: Tensor | None) -> Tensor:
        return value + velocity.to(value.dtype)

    def background(self, value: Tensor, density: Tensor | None) -> Tensor:
        return exact_mean(value.transpose(1, 2).flatten(2), 2)


@register("kind", "momentum")
class Momentum(Kind):
    """A vector that a boost changes by density times velocity: ``m -> m + h v``.

    The background velocity is the mean of ``m / h``. That quotient is not band-limited, so its mean
    over the points follows a shift by part of a cell only as well as the grid resolves ``1 / h``.
    A density that is not positive everywhere, such as the anomaly of a height, tells no velocity:
    it is then 0, and :meth:`tells` says so.
    """

    vector = True
    needs_density = True
    carries = "any direction"

    def boost(self, value: Tensor, velocity: Tensor, density: Tensor | None) -> Tensor:
        assert density is not None
        return value + density * velocity.to(value.dtype)

    def background(self, value: Tensor, density: Tensor | None) -> Tensor:
        assert density is not None
        told = self.tells(value, density)
        safe = torch.where(told.reshape(-1, *[1] * (density.ndim - 1)), density, 1.0)
        mean = exact_mean((value / safe).transpose(1, 2).flatten(2), 2)
        return torch.where(told[:, None], mean, 0.0)

    def tells(self, value: Tensor, density: Tensor | None) -> Tensor:
        assert density is not None
        return (density > 0).flatten(1).all(dim=1)


@register("kind", "speed")
class Speed(Kind):
    """A number that is its own velocity along ``(1, ..., 1)``: the ``u`` of Burgers' equation.

    Under a matrix that keeps that line it changes sign with the direction of the line.
    """

    carries = "the diagonal"

    def representation(self, matrix: Tensor) -> Tensor:
        image = matrix.sum(dim=-1)
        if not bool(torch.allclose(image, image[..., :1].expand_as(image))):
            raise FieldError(
                "speed: this matrix does not keep the line along (1, ..., 1), along which a speed "
                "runs: use a group that does (z2, diagonal), or another kind"
            )
        return image[..., :1, None]

    def boost(self, value: Tensor, velocity: Tensor, density: Tensor | None) -> Tensor:
        return value + velocity[:, :, :1].to(value.dtype)

    def background(self, value: Tensor, density: Tensor | None) -> Tensor:
        return exact_mean(value.flatten(1), 1, keepdim=True)


KINDS = registered("kind")


# --- types ----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Quantity:
    """A named physical quantity: its kind, the names of its components, and of which density."""

    name: str
    kind: str
    components: tuple[str, ...]
    of: str | None = None

    @property
    def written(self) -> str:
        """Its name as :func:`parse_channels` reads it: once, or that of each component."""
        by_axis = tuple(f"{self.name}_{axis}" for axis in AXES[: len(self.components)])
        return self.name if self.components == by_axis else " ".join(self.components)

    @property
    def how(self) -> Kind:
        """The rules by which it changes."""
        kind: type[Kind] = lookup("kind", self.kind)
        if kind not in _RULES:
            _RULES[kind] = kind()
        return _RULES[kind]


# A kind has no state, and building a registered part takes as long as a small transform.
_RULES: dict[type[Kind], Kind] = {}


QUANTITY = re.compile(r"\s*([^\s:,]+(?:\s+[^\s:,]+)*)\s*:\s*([\w-]+)(?:\s+of\s+(\S+))?\s*")
EXAMPLE = '"u: velocity, p: scalar", or with the names of components "u v: velocity, p: scalar"'


def parse_channels(text: str, dim: int) -> tuple[Quantity, ...]:
    """The quantities of a text such as ``"h: scalar, m: momentum of h"``, in the order of channels.

    A vector takes one channel per axis; ``"u v: velocity"`` names them one by one.

    >>> [quantity.components for quantity in parse_channels("h: scalar, m: momentum of h", dim=2)]
    [('h',), ('m_x', 'm_y')]
    """
    found: list[Quantity] = []
    for entry in text.split(","):
        match = QUANTITY.fullmatch(entry)
        if not match:
            raise FieldError(f"channels: cannot read {entry.strip()!r}: expected {EXAMPLE}")
        names, kind, of = match[1].split(), match[2], match[3]
        found.append(_quantity(names, kind, of, dim))
    _check_quantities(found)
    return tuple(found)


def _quantity(names: list[str], kind: str, of: str | None, dim: int) -> Quantity:
    rules: Kind = lookup("kind", kind)()
    count = rules.components(dim)
    if len(names) == 1 and count > 1:
        names = [f"{names[0]}_{axis}" for axis in AXES[:dim]]
        name = names[0].removesuffix("_x")
    else:
        name = " ".join(names)
    if len(names) != count:
        raise FieldError(
            f"channels: {name!r} is a {kind} and has {count} component{'s' * (count > 1)} in {dim} "
            f"dimension{'s' * (dim > 1)}, got {len(names)} names: name it once, or each component"
        )
    return Quantity(name, kind, tuple(names), of)


def _check_quantities(quantities: Sequence[Quantity]) -> None:
    names = [name for quantity in quantities for name in quantity.components]
    if twice := {name for name in names if names.count(name) > 1}:
        raise FieldError(f"channels: {sorted(twice)} named twice: give every channel its own name")
    scalars = [quantity.name for quantity in quantities if quantity.kind == "scalar"]
    for quantity in quantities:
        if quantity.how.needs_density and quantity.of not in scalars:
            raise FieldError(
                f"channels: {quantity.name!r} is a {quantity.kind}, so say of which density: "
                f'"{quantity.name}: {quantity.kind} of NAME" with NAME one of {scalars or "(none)"}'
            )
        if quantity.of is not None and not quantity.how.needs_density:
            raise FieldError(f"channels: {quantity.name!r}: a {quantity.kind} is not 'of' anything")


@final
@dataclass(frozen=True)
class FieldType:
    """Channels, times and box of a field.

    ``times`` are those of the snapshots, counted in units of ``step``; the first input snapshot
    usually lies at 0. ``lengths`` and ``step`` are in the units of the data, as velocities are:
    a velocity of 1 crosses a box of length 2 in the time 2. Without quantities nothing is known of
    the channels, and any number of them will do: enough for translations.
    """

    quantities: tuple[Quantity, ...]
    dim: int
    times: tuple[float, ...] = (0.0,)
    lengths: tuple[float, ...] = ()
    step: float = 1.0

    def __post_init__(self) -> None:
        lengths = self.lengths or (1.0,) * self.dim
        object.__setattr__(self, "lengths", tuple(float(length) for length in lengths))
        object.__setattr__(self, "times", tuple(float(time) for time in self.times))
        if self.dim not in (1, 2, 3):
            raise FieldError(f"field type: expected 1, 2 or 3 dimensions, got {self.dim}")
        if len(self.lengths) != self.dim or not all(0 < n < math.inf for n in self.lengths):
            raise FieldError(
                f"lengths: expected {self.dim} positive numbers, one per axis, got {self.lengths}"
            )
        if not self.times or not all(map(math.isfinite, self.times)) or not self.step > 0:
            raise FieldError(f"times: expected finite times and a positive step, got {self}")

    @staticmethod
    def parse(
        channels: str,
        dim: int,
        *,
        times: Sequence[float] = (0.0,),
        lengths: float | Sequence[float] = 1.0,
        step: float = 1.0,
    ) -> FieldType:
        """The type of a text such as ``"u: velocity, p: scalar"``; see :func:`parse_channels`.

        An empty text stands for channels of which nothing is known.
        """
        given = torch.as_tensor(lengths, dtype=torch.float64)
        box = tuple(given.tolist()) if given.ndim else (given.item(),) * dim
        quantities = parse_channels(channels, dim) if channels else ()
        return FieldType(quantities, dim, tuple(times), box, step)

    @cached_property
    def channels(self) -> tuple[str, ...]:
        """The names of the channels of one snapshot."""
        return tuple(name for quantity in self.quantities for name in quantity.components)

    @property
    def snapshots(self) -> int:
        return len(self.times)

    @property
    def carrier(self) -> Quantity | None:
        """The first quantity that tells the velocity of a frame, or None."""
        return next((q for q in self.quantities if q.how.carries != "no"), None)

    @property
    def size(self) -> int:
        """How many channels a tensor of this type has: snapshots times channels of one."""
        if not self.quantities:
            raise FieldError("the channels of this field type are not named: say channels=...")
        return self.snapshots * len(self.channels)

    @property
    def text(self) -> str:
        """The channels as :func:`parse_channels` reads them."""
        parts = []
        for quantity in self.quantities:
            of = f" of {quantity.of}" if quantity.of else ""
            parts.append(f"{quantity.written}: {quantity.kind}{of}")
        return ", ".join(parts)

    @property
    def vectors(self) -> bool:
        """Whether any quantity has components that turn into each other."""
        return any(quantity.how.vector for quantity in self.quantities)

    def place(self, quantity: Quantity) -> slice:
        """Where the components of a quantity stand among the channels of a snapshot."""
        start = self.channels.index(quantity.components[0])
        return slice(start, start + len(quantity.components))

    def named(self, name: str) -> Quantity:
        """The quantity of a name."""
        for quantity in self.quantities:
            if quantity.name == name:
                return quantity
        raise FieldError(f"there is no quantity {name!r} among {[q.name for q in self.quantities]}")

    def at(self, times: Sequence[float]) -> FieldType:
        """The same channels and box at other times, counted in steps."""
        return replace(self, times=tuple(times))

    def document(self) -> dict[str, Any]:
        """Plain data that JSON and TOML can hold; :meth:`from_document` reads it."""
        return {
            "channels": self.text,
            "dim": self.dim,
            "times": list(self.times),
            "lengths": list(self.lengths),
            "step": self.step,
        }

    @staticmethod
    def from_document(document: dict[str, Any]) -> FieldType:
        """The type that a document describes; an unknown or missing entry is an error."""
        known = {"channels", "dim", "times", "lengths", "step"}
        if extra := set(document) - known:
            raise FieldError(
                f"field type: unknown entries {sorted(extra)}: expected {sorted(known)}"
            )
        if missing := {"channels", "dim"} - set(document):
            raise FieldError(
                f"field type: {sorted(missing)} missing: say {EXAMPLE} and the dimension"
            )
        return FieldType.parse(
            document["channels"],
            document["dim"],
            times=document.get("times", (0.0,)),
            lengths=document.get("lengths", 1.0),
            step=document.get("step", 1.0),
        )


def check_one_box(input: FieldType, output: FieldType) -> None:
    """Refuse input and output in different boxes, or whose times count different steps.

    A snapshot at time 0 whose type says no step counts none.
    """
    counted = (input.times, input.step) != ((0.0,), 1.0)
    if input.lengths != output.lengths or (counted and input.step != output.step):
        raise FieldError(
            f"input and output lie in one box and count the same steps: got lengths "
            f"{input.lengths}, step {input.step} and lengths {output.lengths}, step {output.step}; "
            "output=input.at([...]) has those of the input"
        )


def check_next_input(input: FieldType, output: FieldType) -> None:
    """Refuse a rollout whose predictions, joined to the window, are no input of the same type."""
    if input.quantities != output.quantities:
        raise FieldError(
            f"rollout: the output {output.text!r} cannot be the next input {input.text!r}: both "
            "need the same channels"
        )
    window = (*input.times, *output.times)[-input.snapshots :]
    if len({round(later - time, 9) for later, time in zip(window, input.times, strict=True)}) > 1:
        raise FieldError(
            f"rollout: after a prediction the window holds the snapshots {window}, which are no "
            f"later copy of {input.times}: predict the snapshots that come next"
        )


# --- fields ---------------------------------------------------------------------------------------


class Box(NamedTuple):
    """The geometry of each sample where they differ: lengths ``(B, dim)``, time step ``(B,)``."""

    lengths: Tensor
    step: Tensor

    def select(self, rows: slice | Tensor) -> Box:
        """The boxes of some samples."""
        return Box(self.lengths[rows], self.step[rows])

    def to(self, target: torch.device | torch.dtype) -> Box:
        """The same on another device or in another precision."""
        return Box(self.lengths.to(target), self.step.to(target))


@final
@dataclass(frozen=True)
class Field:
    """Values ``(B, S * C, *grid)`` with their type, and a box per sample where they differ."""

    values: Tensor
    type: FieldType
    box: Box | None = None

    def __post_init__(self) -> None:
        channels = self.type.size if self.type.quantities else None
        check_field(self.values, channels=channels, dim=self.type.dim, finite=False)
        if self.box is not None and not torch.compiler.is_compiling():
            self._check_box(self.box)

    def _check_box(self, box: Box) -> None:
        batch, dim = self.values.shape[0], self.type.dim
        shapes = tuple(box.lengths.shape), tuple(box.step.shape)
        if shapes != ((batch, dim), (batch,)):
            raise FieldError(
                f"box: expected lengths ({batch}, {dim}) and steps ({batch},), one row for each "
                f"sample, got {shapes[0]} and {shapes[1]}"
            )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def batch(self) -> int:
        """How many samples there are; unlike ``len``, it may be a symbol while a graph is made."""
        return self.values.shape[0]

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.values.shape[2:])

    @property
    def by_snapshot(self) -> Tensor:
        """The values as ``(B, S, C, *grid)``."""
        shape = self.values.shape
        return self.values.reshape(shape[0], self.type.snapshots, -1, *shape[2:])

    @property
    def lengths(self) -> Tensor:
        """The lengths of the box, ``(1 or B, dim)`` in float64."""
        if self.box is not None:
            return self.box.lengths.double()
        return torch.tensor([self.type.lengths], dtype=torch.float64, device=self.values.device)

    @property
    def times(self) -> Tensor:
        """The times of the snapshots, ``(1 or B, S)`` in float64 and in the units of the data."""
        counts = torch.tensor([self.type.times], dtype=torch.float64, device=self.values.device)
        return counts * (self.type.step if self.box is None else self.box.step.double()[:, None])

    def of(self, quantity: Quantity) -> Tensor:
        """The components of one quantity, ``(B, S, n, *grid)``."""
        return self.by_snapshot[:, :, self.type.place(quantity)]

    @property
    def parts(self) -> list[Tensor]:
        """Each quantity, ``(B, S, n, *grid)``; each channel where none is named."""
        known = [self.of(quantity) for quantity in self.type.quantities]
        return known or list(torch.split(self.by_snapshot, 1, dim=2))

    def density_of(self, quantity: Quantity) -> Tensor | None:
        """The density that a momentum belongs to, ``(B, S, 1, *grid)``; None for other kinds."""
        return None if quantity.of is None else self.of(self.type.named(quantity.of))

    def at(self, snapshots: Sequence[int]) -> Field:
        """Some of the snapshots, by number."""
        chosen = [range(self.type.snapshots)[i] for i in snapshots]
        if chosen == list(range(self.type.snapshots)):
            return self
        values = self.by_snapshot[:, chosen].flatten(1, 2)
        return Field(values, self.type.at([self.type.times[i] for i in chosen]), self.box)

    def with_values(self, values: Tensor) -> Field:
        """Other values of the same type in the same box."""
        return Field(values, self.type, self.box)

    def to(self, target: torch.dtype | torch.device) -> Field:
        """The same values in another precision, or values and box on another device."""
        box = self.box
        if box is not None and not isinstance(target, torch.dtype):
            box = box.to(target)
        return Field(self.values.to(target), self.type, box)
