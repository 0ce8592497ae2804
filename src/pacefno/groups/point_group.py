"""Finite symmetries of the box: mirrors, quarter turns, glides, signs; and products with others.

An element is a signed permutation matrix ``A``, which carries the points ``i/n`` of a square torus
onto each other, a shift ``s`` in periods and a sign: ``[g a](x) = sign rho(A) a(A^-1 (x - s))``.
The representation ``rho`` on the channels is physics: a momentum turns with the grid, the scalar of
Burgers' equation changes sign with the direction it runs in, a vorticity in a mirror.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from pacefno.errors import UsageError
from pacefno.fields import AXES, Box, Field, FieldType
from pacefno.grid import FieldError, band_limit, resample
from pacefno.groups.base import Group
from pacefno.groups.translation import shift
from pacefno.registry import register, unknown

Matrix = tuple[tuple[int, ...], ...]
FINEST = 1000  # shifts are fractions of a period with a denominator up to this


class Element(NamedTuple):
    """``x -> A x + s`` (modulo 1), and a sign that multiplies all channels."""

    matrix: Matrix
    shift: tuple[Fraction, ...]
    sign: int

    def times(self, other: Element) -> Element:
        """The element that acts as ``other`` first."""
        return Element(
            multiply(self.matrix, other.matrix),
            plus(apply(self.matrix, other.shift), self.shift),
            self.sign * other.sign,
        )

    def about(self, centre: Sequence[Fraction]) -> Element:
        """The same matrix and sign about another point: ``x -> c + A (x - c) + s``."""
        back = apply(self.matrix, [-c for c in centre])
        return self._replace(shift=plus(self.shift, plus(tuple(centre), back)))

    @property
    def keeps_centre(self) -> bool:
        """Whether the centre of the box stays where it is."""
        middle = (Fraction(1, 2),) * len(self.matrix)
        return plus(apply(self.matrix, middle), self.shift) == middle


def multiply(a: Matrix, b: Matrix) -> Matrix:
    return tuple(
        tuple(
            sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)
        )
        for row in a
    )


def apply(a: Matrix, vector: Sequence[Fraction]) -> tuple[Fraction, ...]:
    return tuple(sum((x * y for x, y in zip(r, vector, strict=True)), Fraction(0)) for r in a)


def plus(s: Sequence[Fraction], t: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The sum of two shifts, in ``[0, 1)``."""
    return tuple((a + b) % 1 for a, b in zip(s, t, strict=True))


def element(
    matrix: Sequence[Sequence[int]], shift: float | Sequence[float] = 0.0, sign: int = 1
) -> Element:
    """An element of a point group: ``element(((1, 0), (0, -1)), shift=(0.5, 0))`` is a glide."""
    rows = tuple(tuple(int(entry) for entry in row) for row in matrix)
    for line in (*rows, *zip(*rows, strict=True)):
        if sorted(abs(entry) for entry in line) != [0] * (len(rows) - 1) + [1]:
            raise UsageError(
                f"expected one entry 1 or -1 in each row and column, got {rows}: no other matrix "
                "keeps a grid"
            )
    if sign not in (1, -1):
        raise UsageError(f"sign: expected 1 or -1, got {sign}")
    return Element(rows, fractions(shift, len(rows)), int(sign))


def fractions(shift: float | Sequence[float], dim: int) -> tuple[Fraction, ...]:
    """A point or a shift in periods, one number or one per axis, as exact fractions."""
    each = [shift] * dim if isinstance(shift, int | float | Fraction) else list(shift)
    if len(each) != dim:
        raise UsageError(f"expected a number of periods or {dim} of them, got {shift!r}")
    return tuple(Fraction(s).limit_denominator(FINEST) % 1 for s in each)


# --- the groups -----------------------------------------------------------------------------------


@register("group", "point")
@final
class PointGroup(Group):
    """A finite group of the torus, by name or by its elements; its one coordinate counts them.

    ``PointGroup("p4m")`` has one of the names in ``POINT_GROUPS``. ``centre`` is the point that its
    turns and mirrors keep, in periods: 0, and so the centre of the box as well, unless it is said.
    Groups of one's own come from :meth:`generated`. Every law is exact where the grid has as many
    points along axes that are exchanged. Elsewhere an exchange leaves alone what only one of the
    axes resolves.

    A frame of a finite group would have to jump; average over it (``Symmetrised``), or build it
    into the weights (``GroupFNO``).
    """

    name = "point"
    coordinates = ("element",)
    spatial = 1

    def __init__(
        self,
        which: str,
        elements: Sequence[Any] = (),
        centre: float | Sequence[float] = 0.0,
    ) -> None:
        if not elements and which not in GENERATORS:
            raise UsageError(unknown("point group", which, GENERATORS))
        given = [element(*item) for item in elements] or list(_products(GENERATORS[which]))
        self.which, self.dim = which, len(given[0].matrix)
        middle = fractions(centre, self.dim)
        self.elements = tuple(item.about(middle) for item in given)
        self.periods = (float(len(given)),)
        self._index = {item: i for i, item in enumerate(self.elements)}
        self._rho: dict[tuple[str, int], Tensor] = {}
        if elements and not self._is_closed():
            raise UsageError(
                f"{which}: the elements are not a group that begins with its identity: build it "
                "with PointGroup.generated"
            )

    def __repr__(self) -> str:
        return f"PointGroup({self.which!r})"

    def _is_closed(self) -> bool:
        first = self.elements[0]
        pairs = product(self.elements, repeat=2)
        if len({len(item.matrix) for item in self.elements}) > 1:
            return False
        return first.times(first) == first and all(a.times(b) in self._index for a, b in pairs)

    @staticmethod
    def generated(
        which: str, *generators: Element | Matrix, centre: float | Sequence[float] = 0.0
    ) -> PointGroup:
        """All products of the generators, the identity first."""
        given = [g if isinstance(g, Element) else element(g) for g in generators]
        plain = [(g.matrix, [float(s) for s in g.shift], g.sign) for g in _products(given)]
        return PointGroup(which, plain, centre)

    # --- as a finite group

    @property
    def order(self) -> int:
        """How many elements it has."""
        return len(self.elements)

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return tuple(item.matrix for item in self.elements)

    @cached_property
    def products(self) -> list[list[int]]:
        """The index of ``g h`` in row ``g``, column ``h``."""
        return [[self._index[g.times(h)] for h in self.elements] for g in self.elements]

    @cached_property
    def inverses(self) -> list[int]:
        """The index of ``g^-1`` for every ``g``."""
        return [row.index(0) for row in self.products]

    @property
    def quotients(self) -> list[list[int]]:
        """The index of ``g^-1 h`` in row ``g``, column ``h``."""
        return [self.products[inverse] for inverse in self.inverses]

    def moves(self, index: int) -> tuple[list[int], list[int]]:
        """``A`` as array operations: result axis ``i`` is old axis ``axes[i]``; then the axes
        ``mirrored`` are reversed.
        """
        matrix = self.elements[index].matrix
        axes = [[abs(entry) for entry in row].index(1) for row in matrix]
        return axes, [i for i, row in enumerate(matrix) if sum(row) < 0]

    @property
    def exchanges(self) -> bool:
        """Whether an element exchanges axes."""
        return any(self.moves(g)[0] != list(range(self.dim)) for g in range(self.order))

    def move(self, values: Tensor, index: int, rho: Tensor) -> Tensor:
        """One element on ``(B, C, *grid)``, further axes (time) left alone: grid index ``i -> -i
        mod n``, exact for even and odd ``n``.
        """
        axes, mirrored = self.moves(index)
        grid = values.shape[2 : 2 + self.dim]
        if any(grid[axis] != n for axis, n in zip(axes, grid, strict=True)):
            return self._move_between_axes(values, index, rho)
        order = (0, 1, *(2 + axis for axis in axes), *range(2 + self.dim, values.ndim))
        moved = values.permute(order) if axes != list(range(self.dim)) else values
        cells = [n * s if s else 0 for n, s in zip(grid, self.elements[index].shift, strict=True)]
        whole = all(c.denominator == 1 for c in cells)
        rolled = [(i in mirrored) + (int(c) if whole else 0) for i, c in enumerate(cells)]
        moved = moved.flip([2 + axis for axis in mirrored]) if mirrored else moved
        if any(rolled):
            moved = moved.roll(rolled, list(range(2, 2 + self.dim)))
        if not whole:
            by = [float(s) for s in self.elements[index].shift]
            distance = torch.tensor([by], dtype=torch.float64, device=values.device)
            moved = shift(moved, distance.expand(len(values), -1))
        return _multiplied(rho[index], moved)

    def _move_between_axes(self, values: Tensor, index: int, rho: Tensor) -> Tensor:
        grid = values.shape[2:]
        if len(grid) != self.dim:
            raise FieldError(
                f"{self.which}: exchanges axes of {tuple(grid)} points: give them the same number"
            )
        movable = band_limit(values, self.dim, (min(grid) - 1) // 2)
        square = resample(movable, (max(grid),) * self.dim)
        return resample(self.move(square, index, rho), grid) + (values - movable)

    # --- as a group that acts on fields

    def act(self, field: Field, xi: Tensor) -> Field:
        return self._moved(field, self.indices(self.check_element(field, xi)))

    def inverse(self, field: Field, xi: Tensor) -> Field:
        found = self.indices(self.check_element(field, xi))
        return self._moved(field, [self.inverses[index] for index in found])

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        pairs = zip(self.indices(xi), self.indices(eta), strict=True)
        return self._coordinates([self.products[g][h] for g, h in pairs], xi)

    def inverse_element(self, xi: Tensor) -> Tensor:
        return self._coordinates([self.inverses[g] for g in self.indices(xi)], xi)

    def indices(self, xi: Tensor) -> list[int]:
        """Which element each row means: the nearest whole number, modulo their number."""
        found: list[int] = self.wrap(xi.detach())[:, 0].long().tolist()
        return found

    def wrap(self, xi: Tensor) -> Tensor:
        return torch.remainder(torch.round(xi), self.order)

    def composable(self, xi: Tensor) -> Tensor:
        return self.wrap(xi)

    def sample(
        self, low: Sequence[float], high: Sequence[float], batch: int, generator: torch.Generator
    ) -> Tensor:
        """Random elements; with bounds 0 and ``order / 2`` each is equally likely."""
        return self.wrap(super().sample(low, high, batch, generator))

    @staticmethod
    def _coordinates(indices: list[int], like: Tensor) -> Tensor:
        return torch.tensor(indices, dtype=torch.float64, device=like.device)[:, None]

    def _moved(self, field: Field, indices: list[int]) -> Field:
        rho = self.representation_of(field.type, field.values.shape[1])
        rows = [[i for i, g in enumerate(indices) if g == chosen] for chosen in set(indices)]
        parts = [self.move(field.values[r], indices[r[0]], rho) for r in rows]
        back = torch.tensor([i for r in rows for i in r], device=field.values.device).argsort()
        return Field(torch.cat(parts)[back], field.type, self._moved_box(field.box, indices))

    def _moved_box(self, box: Box | None, indices: list[int]) -> Box | None:
        """An exchange of axes exchanges the lengths of a box."""
        if box is None or not self.exchanges:
            return box
        order = torch.tensor([self.moves(g)[0] for g in indices], device=box.lengths.device)
        return Box(box.lengths.gather(1, order), box.step)

    def representation_of(self, type: FieldType, count: int) -> Tensor:
        """How the elements act on all channels of a type, ``(order, count, count)``."""
        key = type.text, count
        if key not in self._rho:
            with torch.inference_mode(False):  # else it could not be used in training afterwards
                self._rho[key] = representation(self, *key)
        return self._rho[key]

    def check_action(self, type: FieldType) -> None:
        if type.dim != self.dim:
            fit = [name for name, group in POINT_GROUPS.items() if group.dim == type.dim]
            raise FieldError(
                f"{self.which}: acts in {self.dim} dimensions, the field has {type.dim}: choose "
                f"one of {', '.join(fit)}"
            )
        if self.exchanges and len(set(type.lengths)) > 1:
            raise FieldError(
                f"{self.which}: exchanges axes, so it needs a box of equal lengths, got "
                f"{type.lengths}: use a group of mirrors"
            )
        self.representation_of(type, type.size)


def _products(generators: Sequence[Element]) -> Iterator[Element]:
    """All products of the generators, the identity first."""
    one = generators[0]
    while one.times(generators[0]) != generators[0]:  # a power of it is the identity
        one = one.times(generators[0])
    found = [one]
    for item in found:  # grows while it runs, until nothing new comes
        found += [new for g in generators if (new := g.times(item)) not in found]
    yield from found


def _multiplied(matrix: Tensor, values: Tensor) -> Tensor:
    """A matrix times the channels of every point, in their own precision under autocast too."""
    if not torch.compiler.is_compiling():  # a graph cannot look at values
        if bool((matrix == torch.eye(len(matrix), dtype=matrix.dtype)).all()):
            return values
        if len(matrix) == 1:
            return values * float(matrix)
    with torch.autocast(values.device.type, enabled=False):
        return torch.einsum("ij,bj...->bi...", matrix.to(values), values)


IDENTITIES: tuple[Matrix, ...] = (((1,),), ((1, 0), (0, 1)), ((1, 0, 0), (0, 1, 0), (0, 0, 1)))
MIRROR: Matrix = ((-1,),)
QUARTER: Matrix = ((0, -1), (1, 0))  # (x, y) -> (-y, x), as groups._rotation.quarter_turn
HALF: Matrix = ((-1, 0), (0, -1))
SWAP: Matrix = ((0, 1), (1, 0))
MIRROR_X: Matrix = ((-1, 0), (0, 1))
MIRROR_Y: Matrix = ((1, 0), (0, -1))
QUARTER_ABOUT_Z: Matrix = ((0, -1, 0), (1, 0, 0), (0, 0, 1))
CYCLE: Matrix = ((0, 0, 1), (1, 0, 0), (0, 1, 0))
SWAP_XY: Matrix = ((0, 1, 0), (1, 0, 0), (0, 0, 1))
INVERSION: Matrix = ((-1, 0, 0), (0, -1, 0), (0, 0, -1))

GENERATORS: dict[str, list[Element]] = {
    "z1": [element(IDENTITIES[0])],
    "z2": [element(MIRROR)],  # the mirror of a line
    "p1": [element(IDENTITIES[1])],
    "p2": [element(HALF)],
    "mirror-x": [element(MIRROR_X)],
    "mirror-y": [element(MIRROR_Y)],
    "glide-y": [element(MIRROR_Y, shift=(0.5, 0))],  # a mirror with a shift along its axis
    "p2m": [element(MIRROR_X), element(MIRROR_Y)],
    "p4": [element(QUARTER)],
    "p4m": [element(QUARTER), element(MIRROR_X)],  # the square
    "diagonal": [element(SWAP), element(HALF)],  # what keeps the line along (1, 1): a plane speed
    "one": [element(IDENTITIES[2])],
    "turns": [element(QUARTER_ABOUT_Z), element(CYCLE)],  # the 24 rotations of the cube
    "cube": [element(QUARTER_ABOUT_Z), element(CYCLE), element(INVERSION)],
    "diagonal-3d": [element(CYCLE), element(SWAP_XY), element(INVERSION)],  # a speed in space
    **{f"sign-{i + 1}d": [element(one, sign=-1)] for i, one in enumerate(IDENTITIES)},  # u -> -u
}


POINT_GROUPS: dict[str, PointGroup] = {name: PointGroup(name) for name in GENERATORS}


def point_group_named(name: str) -> PointGroup:
    """A point group by its name."""
    if name not in POINT_GROUPS:
        raise UsageError(unknown("point group", name, POINT_GROUPS))
    return POINT_GROUPS[name]


# --- together with motions ------------------------------------------------------------------------


@register("group", "product")
@final
class Product(Group):
    """A finite group together with the motions that it turns into each other: first the element,
    then the motion.

    ``Product(Galilean(2), PointGroup("p4m"))`` is the symmetry of shallow water. An element carries
    a shift or a velocity along, ``g T_d g^-1 = T_(A d)``, so the product is not direct. An operator
    that has it is PACE around one that has the finite part.
    """

    name = "product"

    def __init__(self, motion: Group, point: PointGroup) -> None:
        if not isinstance(motion, Group) or not isinstance(point, PointGroup):
            raise UsageError(
                f"product: expected a group as motion and a PointGroup as point, got {motion!r} "
                f"and {point!r}"
            )
        self.motion, self.point = motion, point
        self._title = f"{motion.name} with {point.which}"
        self.dim = motion.dim
        own, at = motion.coordinates, motion.spatial
        self.coordinates = (*own[:at], "element", *own[at:])
        self.periods = (*motion.periods[:at], *point.periods, *motion.periods[at:])
        self.spatial = at + 1
        if point.dim != motion.dim:
            raise UsageError(f"{self._title}: acts in {motion.dim} and in {point.dim} dimensions")
        self._carried = torch.stack([self._conjugation(g) for g in point.elements])

    def _conjugation(self, element: Element) -> Tensor:
        """What ``g . g^-1`` does to the coordinates of a motion, a matrix."""
        names, matrix = self.motion.coordinates, torch.tensor(element.matrix, dtype=torch.float64)
        if "angle" in names and not element.keeps_centre:
            raise UsageError(f"{self._title}: its elements must keep the centre of the box")
        if self.motion.moves_in_time and element.sign < 0:
            raise UsageError(f"{self._title}: a change of sign does not turn a boost into another")
        known = {"angle": torch.linalg.det(matrix), "scale": torch.ones(())}
        if "velocity" in names:  # along (1, ..., 1), or along the only axis
            known["velocity"] = (
                FieldType.parse("u: speed", self.dim).quantities[0].how.representation(matrix)
            )
        carried = torch.zeros(len(names), len(names), dtype=torch.float64)
        for i, name in enumerate(names):
            if name in known:
                carried[i, i] = known[name].item()
                continue
            kind, axis = name[:-1], name[-1]
            if axis not in AXES or kind not in ("", "velocity_"):
                raise UsageError(
                    f"{self._title}: how an element carries the coordinate {name!r} along is not "
                    "known"
                )
            for j, other in enumerate(AXES[: self.dim]):
                carried[i, names.index(kind + other)] = matrix[AXES.index(axis), j]
        return carried

    def split(self, xi: Tensor) -> tuple[Tensor, Tensor]:
        """``xi`` as the coordinates of the motion and that of the element."""
        at = self.motion.spatial
        return torch.cat([xi[:, :at], xi[:, at + 1 :]], dim=1), xi[:, at : at + 1]

    def join(self, motion: Tensor, element: Tensor) -> Tensor:
        at = self.motion.spatial
        return torch.cat([motion[:, :at], element.to(motion), motion[:, at:]], dim=1)

    def _carry(self, element: Tensor, motion: Tensor) -> Tensor:
        matrices = self._carried.to(motion.device)[self.point.indices(element)]
        return (matrices * motion[:, None, :]).sum(dim=-1)

    def act(self, field: Field, xi: Tensor) -> Field:
        motion, element = self.split(self.check_element(field, xi))
        return self.motion.act(self.point.act(field, element), motion)

    def inverse(self, field: Field, xi: Tensor) -> Field:
        motion, element = self.split(self.check_element(field, xi))
        return self.point.inverse(self.motion.inverse(field, motion), element)

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        (motion, element), (other, second) = self.split(xi), self.split(eta)
        both = self.motion.compose(motion, self._carry(element, other))
        return self.join(both, self.point.compose(element, second))

    def inverse_element(self, xi: Tensor) -> Tensor:
        motion, element = self.split(xi)
        back = self.point.inverse_element(element)
        return self.join(self._carry(back, self.motion.inverse_element(motion)), back)

    def composable(self, xi: Tensor) -> Tensor:
        motion, element = self.split(xi)
        return self.join(self.motion.composable(motion), self.point.wrap(element))

    def wrap(self, xi: Tensor) -> Tensor:
        motion, element = self.split(xi)
        return self.join(self.motion.wrap(motion), self.point.wrap(element))

    def sample(
        self, low: Sequence[float], high: Sequence[float], batch: int, generator: torch.Generator
    ) -> Tensor:
        """Random elements; their number is equally likely with bounds 0 and ``order / 2``."""
        motion, element = self.split(super().sample(low, high, batch, generator))
        return self.join(motion, self.point.wrap(element))

    def transport(self, xi: Tensor, time: float | Tensor, lengths: float | Tensor = 1.0) -> Tensor:
        motion, element = self.split(xi)
        return self.join(self.motion.transport(motion, time, lengths), element)

    def from_first_snapshot(self, field: Field, xi: Tensor) -> Tensor:
        motion, element = self.split(xi)
        return self.join(self.motion.from_first_snapshot(field, motion), element)

    def kinematic(self, field: Field) -> Tensor:
        return self.motion.kinematic(field)

    def at_rest(self, field: Field) -> Field:
        return self.motion.at_rest(field)

    def is_unitary(self, type: FieldType) -> bool:
        return self.motion.is_unitary(type)

    def check_type(self, type: FieldType) -> None:
        super().check_type(type)
        self.motion.check_type(type)

    def check_action(self, type: FieldType) -> None:
        self.motion.check_action(type)
        self.point.check_action(type)


# --- the channels ---------------------------------------------------------------------------------


def representation(group: PointGroup, channels: str, count: int) -> Tensor:
    """How the elements act on channels, matrices ``(|G|, count, count)`` in float64.

    ``channels`` are the quantities of one snapshot as :func:`~pacefno.fields.parse_channels` reads
    them, or ``"scalar"`` for any number of scalars; ``count`` is a multiple of them: all snapshots.
    """
    signs = torch.tensor([float(g.sign) for g in group.elements], dtype=torch.float64)
    if channels == "scalar":
        return torch.eye(count, dtype=torch.float64) * signs[:, None, None]
    type = FieldType.parse(channels, group.dim)
    matrices = torch.tensor(group.matrices, dtype=torch.float64)
    block = direct_sum([q.how.representation(matrices).round() for q in type.quantities])
    block = block * signs[:, None, None]
    size = block.shape[1]
    if count % size:
        raise ValueError(
            f"channels: {channels!r} describes {size} channels, got {count}: expected a multiple"
        )
    check_representation(group, block)
    return direct_sum([block] * (count // size))


def check_representation(group: PointGroup, rho: Tensor) -> None:
    if rho.ndim != 3 or rho.shape[0] != group.order or rho.shape[1] != rho.shape[2]:
        raise ValueError(
            f"channels: expected ({group.order}, C, C), one matrix for each element, got "
            f"{tuple(rho.shape)}"
        )
    quotients = torch.tensor(group.quotients)
    products = rho[group.inverses][:, None] @ rho[None]
    if not torch.allclose(products, rho[quotients], atol=1e-9):
        raise ValueError(
            f"channels: the matrices do not multiply like the elements of {group.which}; keep the "
            "order of its matrices"
        )


def direct_sum(blocks: Sequence[Tensor]) -> Tensor:
    """Block-diagonal matrices of representations of the same group."""
    size = sum(block.shape[1] for block in blocks)
    rho = blocks[0].new_zeros(blocks[0].shape[0], size, size)
    start = 0
    for block in blocks:
        stop = start + block.shape[1]
        rho[:, start:stop, start:stop] = block
        start = stop
    return rho


def invariants(rho: Tensor) -> Tensor:
    """A basis ``(C, r)`` of the channel vectors that every element keeps: where a bias may point.

    Columns of the group average, and no singular vectors, whose sign would depend on the linear
    algebra library.
    """
    average = rho.mean(dim=0)
    chosen: list[int] = []
    for column in range(average.shape[1]):
        candidate = [*chosen, column]
        if int(torch.linalg.matrix_rank(average[:, candidate])) == len(candidate):
            chosen = candidate
    return average[:, chosen]


def symmetric_scale(rho: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and deviation per channel that every element keeps, so that standardising commutes
    with the group.

    Averaged over the group: a component of a vector or a signed scalar has mean 0, both components
    of a vector one deviation.
    """
    rho = rho.to(mean)
    return rho.mean(dim=0) @ mean, (rho.square().mean(dim=0) @ std.square()).sqrt()
