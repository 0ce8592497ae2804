"""Rigid motions of the plane, SE(2), on the square torus: quarter turns, three shears, a shift.

What is exact and what is not:

- ``inverse`` undoes ``act`` to round-off, and both keep the L2 norm: every factor is unitary;
- quarter turns are index arithmetic about the centre (1/2, 1/2) and form a group;
- other angles do **not** form a group on the torus. ``R(a) R(b)`` and ``R(a + b)`` agree for
  fields supported well inside the inscribed disc, and differ by tens of percent for a periodic
  random field, which a rotation tears along the boundary of the box.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacefno.fields import Field, FieldType
from pacefno.grid import FieldError, compute_dtype
from pacefno.groups._rotation import move
from pacefno.groups.base import Group
from pacefno.registry import register


def rotation_matrix(theta: Tensor) -> Tensor:
    """Matrices ``(B, 2, 2)`` of counter-clockwise rotations."""
    c, s = torch.cos(theta), torch.sin(theta)
    return torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)


def turn_vector(vector: Tensor, theta: Tensor) -> Tensor:
    """``R_theta v``, ``(B, 2)``; a sum, because autocast would round a matrix product."""
    return (rotation_matrix(theta) * vector[:, None, :]).sum(dim=-1)


@register("group", "euclidean")
class Euclidean(Group):
    """Rotate about the centre of the box by ``angle``, then translate by ``(x, y)``.

    Vectors, velocities and momenta turn with the field; scalars and vorticity only move.
    """

    name = "euclidean"
    dim = 2
    coordinates = ("x", "y", "angle")
    periods = (1.0, 1.0, 2 * math.pi)
    spatial = 3

    def __init__(self) -> None:
        pass

    def act(self, field: Field, xi: Tensor) -> Field:
        xi = self._in_precision_of(field, xi)
        work = move(field.values.to(compute_dtype(field.values.dtype)), xi)
        return self._turn_vectors(field.with_values(work), xi[:, 2]).to(field.values.dtype)

    def inverse(self, field: Field, xi: Tensor) -> Field:
        xi = self._in_precision_of(field, xi)
        work = self._turn_vectors(field.to(compute_dtype(field.values.dtype)), -xi[:, 2])
        return field.with_values(move(work.values, xi, back=True).to(field.values.dtype))

    def in_place(self, field: Field, xi: Tensor, *, pooled: bool = False) -> Field | None:
        """Shears are unitary, but keep the gradient of a field nearly; vectors turn as a whole."""
        return field if pooled else None

    def _in_precision_of(self, field: Field, xi: Tensor) -> Tensor:
        """Shears have a phase for every line and mode: in float64 they would take twice as long.

        Whole periods are taken off first: rounded to float32, forty of them cost two digits.
        """
        return self.wrap(self.check_element(field, xi)).to(compute_dtype(field.values.dtype))

    @staticmethod
    def _turn_vectors(field: Field, theta: Tensor) -> Field:
        if not field.type.vectors:
            return field
        matrix = rotation_matrix(theta)
        parts = []
        for quantity in field.type.quantities:
            value = field.of(quantity)
            if quantity.how.vector:
                rho = quantity.how.representation(matrix).to(value.dtype)
                columns = rho[:, None, :, :, None, None].unbind(dim=3)  # each (B, 1, n, 1, 1)
                # A sum, because autocast would round a matrix product.
                value = sum(
                    (column * value[:, :, j, None] for j, column in enumerate(columns)),
                    start=torch.zeros_like(value),
                )
            parts.append(value)
        return field.with_values(torch.cat(parts, dim=2).flatten(1, 2))

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        """``(R, t)(S, s) = (R S, t + R s)``; on the torus the action follows it only nearly."""
        carried = turn_vector(eta[:, :2], xi[:, 2])
        return self.wrap(torch.cat([xi[:, :2] + carried, xi[:, 2:] + eta[:, 2:]], dim=1))

    def composable(self, xi: Tensor) -> Tensor:
        """Quarter turns with any shift; other angles compose on compact fields only."""
        turns = torch.round(xi[:, 2:] / (math.pi / 2)) * (math.pi / 2)
        return torch.cat([xi[:, :2], turns], dim=1)

    def inverse_element(self, xi: Tensor) -> Tensor:
        """``(R, t)^-1 = (R^-1, -R^-1 t)``; not wrapped: a period turned by R is not a period."""
        return torch.cat([-turn_vector(xi[:, :2], -xi[:, 2]), -xi[:, 2:]], dim=1)

    def check_action(self, type: FieldType) -> None:
        super().check_action(type)
        if type.lengths[0] != type.lengths[1]:
            raise FieldError(
                f"{self.name}: a rotation needs a square box, got lengths {type.lengths}: "
                "use Translation or Galilean"
            )
        if bound := [q.name for q in type.quantities if q.how.carries == "the diagonal"]:
            raise FieldError(
                f"{self.name}: {bound[0]!r} is a speed along (1, 1), a direction that a rotation "
                "turns: its equation does not have this symmetry"
            )
