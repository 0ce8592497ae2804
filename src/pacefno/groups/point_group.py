"""Finite point groups of the grid, and how they act on the channels of a field.

A point group is a finite set of signed permutation matrices: the linear maps that carry the points
``i/n`` of a square torus onto each other. With a representation ``rho`` on the channels it acts by
``[g a](x) = rho(g) a(g^-1 x)``. The representation is physics: a momentum turns with the grid, the
scalar of Burgers' equation changes sign with the direction it runs in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import final

import torch
from torch import Tensor

from pacefno.errors import UsageError
from pacefno.fields import FieldType
from pacefno.registry import unknown

Matrix = tuple[tuple[int, ...], ...]


def multiply(a: Matrix, b: Matrix) -> Matrix:
    return tuple(
        tuple(
            sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)
        )
        for row in a
    )


def transpose(a: Matrix) -> Matrix:
    return tuple(zip(*a, strict=True))


# --- the groups -----------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class PointGroup:
    """A finite group of signed permutation matrices; further axes (time) are left alone."""

    name: str
    matrices: tuple[Matrix, ...]

    def __post_init__(self) -> None:
        _check_signed_permutations(self.name, self.matrices)
        if {multiply(a, b) for a, b in product(self.matrices, repeat=2)} != set(self.matrices):
            raise ValueError(
                f"{self.name}: a product of two elements is missing: build the group with "
                "PointGroup.generated"
            )

    @staticmethod
    def generated(name: str, *generators: Matrix) -> PointGroup:
        """All products of the generators, the identity first."""
        # Other matrices might never stop making new ones.
        _check_signed_permutations(name, generators)
        dim = len(generators[0])
        elements = [tuple(tuple(int(i == j) for j in range(dim)) for i in range(dim))]
        for element in elements:  # grows while it runs, until nothing new comes
            elements += [new for g in generators if (new := multiply(g, element)) not in elements]
        return PointGroup(name, tuple(elements))

    @property
    def _spec(self) -> str:
        """What a saved model stores of it: the name under which it is found again."""
        return self.name

    @property
    def size(self) -> int:
        return len(self.matrices)

    @property
    def dim(self) -> int:
        return len(self.matrices[0])

    @cached_property
    def inverses(self) -> list[int]:
        """The index of ``g^-1`` for every ``g``; the matrices are orthogonal."""
        return [self.matrices.index(transpose(g)) for g in self.matrices]

    @cached_property
    def quotients(self) -> list[list[int]]:
        """The index of ``g^-1 h`` in row ``g``, column ``h``."""
        return [
            [self.matrices.index(multiply(transpose(g), h)) for h in self.matrices]
            for g in self.matrices
        ]

    def moves(self, element: int) -> tuple[list[int], list[int]]:
        """``g`` as array operations: result axis ``i`` is old axis ``order[i]``; then the axes
        ``mirrored`` are reversed.
        """
        matrix = self.matrices[element]
        order = [[abs(entry) for entry in row].index(1) for row in matrix]
        return order, [i for i, row in enumerate(matrix) if sum(row) < 0]

    def act(self, field: Tensor, element: int, rho: Tensor) -> Tensor:
        """``[g a](x) = rho(g) a(g^-1 x)`` on ``(B, C, *grid)``: index ``i -> -i mod n``, exact for
        even and odd ``n``.
        """
        order, mirrored = self.moves(element)
        moved = field.permute(0, 1, *(2 + axis for axis in order), *range(2 + self.dim, field.ndim))
        axes = [2 + axis for axis in mirrored]
        moved = moved.flip(axes).roll([1] * len(axes), axes) if axes else moved
        with torch.autocast(field.device.type, enabled=False):
            return torch.einsum("ij,bj...->bi...", rho[element].to(field), moved)


def _check_signed_permutations(name: str, matrices: Sequence[Matrix]) -> None:
    for matrix in matrices:
        lines = [*matrix, *transpose(matrix)]
        if any(
            sorted(abs(entry) for entry in line) != [0] * (len(matrix) - 1) + [1] for line in lines
        ):
            raise ValueError(
                f"{name}: expected one entry 1 or -1 in each row and column, got {matrix}: no "
                "other matrix keeps a grid"
            )


QUARTER: Matrix = ((0, -1), (1, 0))  # (x, y) -> (-y, x), as groups._rotation.quarter_turn
HALF: Matrix = ((-1, 0), (0, -1))
SWAP: Matrix = ((0, 1), (1, 0))
REFLECTION: Matrix = ((-1, 0), (0, 1))
CYCLE: Matrix = ((0, 0, 1), (1, 0, 0), (0, 1, 0))
SWAP_XY: Matrix = ((0, 1, 0), (1, 0, 0), (0, 0, 1))
INVERSION: Matrix = ((-1, 0, 0), (0, -1, 0), (0, 0, -1))

POINT_GROUPS: dict[str, PointGroup] = {
    group.name: group
    for group in (
        PointGroup.generated("z1", ((1,),)),
        PointGroup.generated("p1", ((1, 0), (0, 1))),
        PointGroup.generated("z2", ((-1,),)),
        PointGroup.generated("p4", QUARTER),
        PointGroup.generated("p4m", QUARTER, REFLECTION),
        # What keeps the line along (1, 1): scalar Burgers in the plane.
        PointGroup.generated("diagonal", SWAP, HALF),
        PointGroup.generated("diagonal-3d", CYCLE, SWAP_XY, INVERSION),
    )
}


def point_group_named(name: str) -> PointGroup:
    """A point group by its name."""
    if name not in POINT_GROUPS:
        raise UsageError(unknown("point group", name, POINT_GROUPS))
    return POINT_GROUPS[name]


# --- the channels ---------------------------------------------------------------------------------


def representation(group: PointGroup, channels: str, count: int) -> Tensor:
    """How the elements act on channels, matrices ``(|G|, count, count)`` in float64.

    ``channels`` are the quantities of one snapshot as :func:`~pacefno.fields.parse_channels` reads
    them, or ``"scalar"`` for any number of scalars; ``count`` is a multiple of them: all snapshots.
    """
    if channels == "scalar":
        return torch.eye(count, dtype=torch.float64).repeat(group.size, 1, 1)
    type = FieldType.parse(channels, group.dim)
    matrices = torch.tensor(group.matrices, dtype=torch.float64)
    block = direct_sum([q.how.representation(matrices).round() for q in type.quantities])
    size = block.shape[1]
    if count % size:
        raise ValueError(
            f"channels: {channels!r} describes {size} channels, got {count}: expected a multiple"
        )
    check_representation(group, block)
    return direct_sum([block] * (count // size))


def check_representation(group: PointGroup, rho: Tensor) -> None:
    if rho.ndim != 3 or rho.shape[0] != group.size or rho.shape[1] != rho.shape[2]:
        raise ValueError(
            f"channels: expected ({group.size}, C, C), one matrix for each element, got "
            f"{tuple(rho.shape)}"
        )
    quotients = torch.tensor(group.quotients)
    products = rho[group.inverses][:, None] @ rho[None]
    if not torch.allclose(products, rho[quotients], atol=1e-9):
        raise ValueError(
            f"channels: the matrices do not multiply like the elements of {group.name}; keep the "
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
