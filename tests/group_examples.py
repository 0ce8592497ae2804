"""One example or more of every group: what it acts on, in which box, at which times.

The laws run over this table, so it says on what they are known to hold. A registered group or kind
of channel without an example fails a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from pacefno.fields import Field, FieldType
from pacefno.groups import (
    Euclidean,
    Galilean,
    GalileanScaling,
    Group,
    PointGroup,
    Product,
    Translation,
    Trivial,
    element,
)
from pacefno.testing import long_waves, random_field

TAU = 6.283185307179586


def of_the_package(classes: Mapping[str, type]) -> list[str]:
    """The names that the package registers itself, whatever a test adds to them."""
    return [name for name, cls in classes.items() if cls.__module__.startswith("pacefno.")]


GRIDS: dict[int, list[tuple[int, ...]]] = {
    1: [(32,), (33,)],
    2: [(24, 24), (25, 25), (24, 30), (27, 20), (20, 21)],
    3: [(8, 9, 10)],
}


@dataclass(frozen=True)
class Example:
    """A group and a type of field that it acts on."""

    group: Group
    type: FieldType

    @property
    def grids(self) -> list[tuple[int, ...]]:
        """All grids of its dimension; for several snapshots an odd and a non-square one will do."""
        every = GRIDS[self.group.dim]
        return every if self.type.snapshots == 1 else every[1:3] or every

    @property
    def has_momentum(self) -> bool:
        return any(quantity.how.needs_density for quantity in self.type.quantities)

    def field(
        self, grid: tuple[int, ...], dtype: torch.dtype = torch.float64, *, batch: int = 5
    ) -> Field:
        """Random long waves."""
        return random_field(self.type, grid, batch=batch, top=long_waves(grid), dtype=dtype, seed=3)


def example(
    group: Group,
    channels: str,
    lengths: float | tuple[float, ...] = 1.0,
    times: tuple[float, ...] = (0.0,),
    step: float = 1.0,
) -> Example:
    type = FieldType.parse(channels, group.dim, times=times, lengths=lengths, step=step)
    group.check_type(type)
    return Example(group, type)


EXAMPLES: dict[str, Example] = {
    "trivial-1d": example(Trivial(1), "u: scalar"),
    "trivial-2d": example(Trivial(2), "u: velocity, p: scalar", (2.0, 3.0), (0.0, 1.0)),
    "translation-1d": example(Translation(1), "a: scalar, b: pseudoscalar"),
    "translation-2d": example(Translation(2), "u: velocity, c: scalar", (TAU, 1.0)),
    "translation-2d-unnamed": example(Translation(2), ""),
    "translation-3d": example(Translation(3), "e: vector, c: scalar", times=(0.0, 0.5)),
    "galilean-1d": example(Galilean(1), "u: velocity"),
    "galilean-1d-speed": example(Galilean(1), "u: speed, c: scalar", 3.0),
    "galilean-1d-snapshots": example(Galilean(1), "u: speed", 22.0, (0.0, 1.0, 2.0, 5.0), 0.3),
    "galilean-2d": example(Galilean(2), "u: velocity, p: scalar", TAU),
    "galilean-2d-later": example(
        Galilean(2), "w: pseudoscalar, u v: velocity, b: vector", (2.0, 0.7), (0.6,)
    ),
    "galilean-2d-snapshots": example(
        Galilean(2), "u: velocity, c: scalar", (2.0, 3.5), (-0.4, 0.0, 1.3), 0.5
    ),
    "galilean-2d-momentum": example(Galilean(2), "h: scalar, m: momentum of h"),
    "galilean-2d-momentum-snapshots": example(
        Galilean(2), "h: scalar, m: momentum of h, c: scalar", (1.5, 2.0), (0.0, 0.5)
    ),
    "galilean-2d-diagonal": example(Galilean(2, diagonal=True), "u: speed"),
    "galilean-2d-diagonal-beside": example(
        Galilean(2, diagonal=True), "c: scalar, u: speed", (2.0, 0.5), (0.0, 0.25)
    ),
    "galilean-3d": example(Galilean(3), "u: velocity, q: scalar", (1.0, 2.0, 0.5), (0.7,)),
    "galilean-scaling": example(GalileanScaling(), "u: speed", 30.0, (0.0, 1.0, 2.0), 0.2),
    "galilean-scaling-velocity": example(GalileanScaling(), "u: velocity"),
    "galilean-scaling-later": example(GalileanScaling(), "u: speed", 30.0, (2.0, 3.0), 0.2),
    "euclidean": example(Euclidean(), "w: pseudoscalar, c: scalar"),
    "euclidean-velocity": example(Euclidean(), "u: velocity, p: scalar", TAU),
    "euclidean-momentum-snapshots": example(
        Euclidean(), "h: scalar, m: momentum of h, e: vector", 2.0, (0.0, 1.0)
    ),
}

# Finite groups and their products with motions: no frame finds an element of them.
FINITE: dict[str, Example] = {
    "point-z2": example(PointGroup("z2"), "u: speed, c: scalar", 3.0, (0.0, 1.0)),
    "point-z2-quarter": example(PointGroup("z2", centre=0.25), "u: velocity"),
    "point-mirrors": example(PointGroup("p2m"), "u: velocity, w: pseudoscalar", (2.0, 1.0)),
    "point-square": example(PointGroup("p4m"), "w: pseudoscalar, u: velocity", TAU),
    "point-square-snapshots": example(PointGroup("p4"), "h: scalar, m: momentum of h", 1.0, (0, 1)),
    "point-diagonal": example(PointGroup("diagonal", centre=0.25), "u: speed, e: vector"),
    "point-glide": example(PointGroup("glide-y"), "w: pseudoscalar", (2.0, 1.0)),
    "point-third": example(
        PointGroup.generated("third", element(((1, 0), (0, 1)), (1 / 3, 0), -1)), "c: scalar"
    ),
    "point-sign": example(PointGroup("sign-1d"), "c: scalar"),
    "point-cube": example(PointGroup("cube"), "w: pseudoscalar, u: velocity"),
    "point-diagonal-3d": example(PointGroup("diagonal-3d"), "u: speed"),
    "product-1d": example(Product(Galilean(1), PointGroup("z2")), "u: speed", 3.0, (0.5,)),
    "product-scaling": example(
        Product(GalileanScaling(), PointGroup("z2")), "u: speed", 30.0, (0.0, 1.0), 0.2
    ),
    "product-momentum": example(
        Product(Galilean(2), PointGroup("p4m")), "h: scalar, m: momentum of h", 2.0, (0.0, 0.7)
    ),
    "product-diagonal": example(
        Product(Galilean(2, diagonal=True), PointGroup("diagonal", centre=0.25)), "u: speed"
    ),
    "product-rigid": example(Product(Euclidean(), PointGroup("p4m")), "w: pseudoscalar"),
    "product-3d": example(
        Product(Galilean(3), PointGroup("cube")), "u: velocity, p: scalar", 2.0, (0.3,)
    ),
}
