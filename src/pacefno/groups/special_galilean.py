"""Shifts, rotations and boosts of the plane as one group, ``T^2 x SO(2) x Gal``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacefno.fields import Field, FieldType
from pacefno.groups.base import Group
from pacefno.groups.euclidean import (
    Euclidean,
    check_square,
    check_turnable,
    rigidly_moved,
    turn_vector,
)
from pacefno.groups.galilean import Galilean, boosted, check_carrier
from pacefno.registry import register

PLACE = [0, 1, 3, 4]  # the columns of a shift and a boost; column 2 is the angle


@register("group", "special-galilean")
class SpecialGalilean(Group):
    """Turn about the centre of the box, then shift by ``delta``, then boost by ``v``.

    ``[C_g a](x, t) = v + R a(R^-1 (x - delta - v t), t)``, with ``x`` from the centre and ``v +``
    as the kind of each channel says. The boost is that of the frame outside, so it turns with a
    rotation that follows it: ``(R, delta, v) (S, epsilon, w) = (R S, delta + R epsilon, v + R w)``,
    and over time it becomes a shift, ``delta_T = delta + v T / L``, while the angle stays.

    On the torus shifts, boosts and quarter turns are exact on any field. Other angles compose where
    vorticity, divergence and scalars keep clear of the boundary of the box
    (:mod:`pacefno.groups.euclidean`). Quarter turns act last, after the rest of an angle, so the
    product of one of them with any element acts exactly as both do, on any field: PACE follows
    shifts, boosts and quarter turns whatever it wraps.
    """

    name = "special-galilean"
    dim = 2
    coordinates = ("x", "y", "angle", "velocity_x", "velocity_y")
    periods = (1.0, 1.0, 2 * math.pi, math.inf, math.inf)
    spatial = 3

    def __init__(self) -> None:
        self.rigid = Euclidean()
        self.straight = Galilean(2)

    def act(self, field: Field, xi: Tensor) -> Field:
        xi = self._checked(field, xi)
        return self.straight.act(self._turned(field, xi[:, 2]), xi[:, PLACE])

    def inverse(self, field: Field, xi: Tensor) -> Field:
        xi = self._checked(field, xi)
        return self._turned(self.straight.inverse(field, xi[:, PLACE]), xi[:, 2], back=True)

    def _turned(self, field: Field, angle: Tensor, *, back: bool = False) -> Field:
        """By undoing the opposite angle: quarter turns, which come first there, come last here."""
        opposite = torch.nn.functional.pad(-angle[:, None], (2, 0))
        return rigidly_moved(field, self.rigid.wrap(opposite), back=not back)

    def _checked(self, field: Field, xi: Tensor) -> Tensor:
        check_square(self, field)
        return self.check_element(field, xi)

    def kinematic(self, field: Field) -> Tensor:
        """The mean flow, of the first quantity that carries a velocity."""
        return self.straight.kinematic(field)

    def at_rest(self, field: Field) -> Field:
        """The field without its mean flow: place and angle are read off what is left."""
        return boosted(field, -self.kinematic(field))

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        rigid = self.rigid.compose(xi[:, :3], eta[:, :3])
        return torch.cat([rigid, xi[:, 3:] + turn_vector(eta[:, 3:], xi[:, 2])], dim=1)

    def composable(self, xi: Tensor) -> Tensor:
        """Quarter turns with any shift and boost; other angles compose on compact fields only."""
        return torch.cat([self.rigid.composable(xi[:, :3]), xi[:, 3:]], dim=1)

    def is_unitary(self, type: FieldType) -> bool:
        return self.rigid.is_unitary(type)

    def inverse_element(self, xi: Tensor) -> Tensor:
        """``(R^-1, -R^-1 delta, -R^-1 v)``; not wrapped: a period turned by R is not a period."""
        rigid = self.rigid.inverse_element(xi[:, :3])
        return torch.cat([rigid, -turn_vector(xi[:, 3:], -xi[:, 2])], dim=1)

    def transport(self, xi: Tensor, time: float | Tensor, lengths: float | Tensor = 1.0) -> Tensor:
        """``delta_T = delta + v T / L``; angle and boost stay."""
        moved = self.straight.transport(xi[:, PLACE], time, lengths)
        return torch.cat([moved[:, :2], xi[:, 2:]], dim=1)

    def check_type(self, type: FieldType) -> None:
        super().check_type(type)
        check_carrier(self, type, "a velocity or a momentum", "Euclidean")

    def check_action(self, type: FieldType) -> None:
        super().check_action(type)
        check_turnable(self, type)
