"""Rigid motions of the plane, SE(2), on the square torus: quarter turns, three shears, a shift.

What is exact and what is not:

- ``inverse`` undoes ``act`` to round-off, and both keep the L2 norm: every factor is unitary;
- quarter turns are index arithmetic about the centre (1/2, 1/2) and form a group;
- other angles do **not** form a group on the torus. ``R(a) R(b)`` and ``R(a + b)`` agree for
  fields supported well inside the inscribed disc, and differ by tens of percent for a periodic
  random field, which a rotation tears along the boundary of the box.

The velocity of a vortex reaches further than its vorticity: it falls off as a power of the distance
and never keeps clear of the boundary. So a vector is turned by its curl and its divergence, two
scalars that are compact where the flow is, and by its mean, and is put together again from the
three (:func:`~pacefno.grid.from_curl_and_divergence`). On the flow of compact vortices ``R(a)
R(b)`` and ``R(a + b)`` then agree to round-off, where turning component by component leaves several
percent, and a flow without divergence stays one. The price is unitarity: other angles than quarter
turns keep the inner products of scalars, not those of vectors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacefno.fields import Field, FieldType
from pacefno.grid import (
    FieldError,
    compute_dtype,
    curl_and_divergence,
    from_curl_and_divergence,
)
from pacefno.groups._rotation import move
from pacefno.groups.base import Group
from pacefno.registry import register

# Waves of number 4 have a curl of their own size then: channels are moved in pairs, and of two
# sizes the larger one's rounding would be seen in the smaller.
CURL_UNIT = 8 * math.pi


def rotation_matrix(theta: Tensor) -> Tensor:
    """Matrices ``(B, 2, 2)`` of counter-clockwise rotations."""
    c, s = torch.cos(theta), torch.sin(theta)
    return torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)


def turn_vector(vector: Tensor, theta: Tensor) -> Tensor:
    """``R_theta v``, ``(B, 2)``; a sum, because autocast would round a matrix product."""
    return (rotation_matrix(theta) * vector[:, None, :]).sum(dim=-1)


def rigidly_moved(field: Field, xi: Tensor, *, back: bool = False) -> Field:
    """All snapshots turned about the centre of the box, then shifted, by rows ``(x, y, angle)``; or
    exactly this undone. Vectors turn with the field.
    """
    dtype = field.values.dtype
    field = field.to(compute_dtype(dtype))
    if not field.type.vectors:
        return field.with_values(move(field.values, xi, back=back)).to(dtype)
    parts: list[Tensor] = []
    means: list[Tensor] = []
    for quantity in field.type.quantities:
        value = field.of(quantity)
        if quantity.how.vector:
            means.append(value.mean(dim=(-2, -1)))  # (B, S, 2)
            value = curl_and_divergence(value - means[-1][..., None, None]) / CURL_UNIT
        parts.append(value)
    moved = field.with_values(move(torch.cat(parts, dim=2).flatten(1, 2), xi, back=back))
    matrix = rotation_matrix(-xi[:, 2] if back else xi[:, 2]).to(field.values.dtype)
    parts = []
    for quantity in field.type.quantities:
        value = moved.of(quantity)
        if quantity.how.vector:
            rho = quantity.how.representation(matrix)[:, None]
            # A sum, because autocast would round a matrix product.
            mean = (rho * means.pop(0)[:, :, None]).sum(dim=-1)
            value = CURL_UNIT * from_curl_and_divergence(value) + mean[..., None, None]
        parts.append(value)
    return moved.with_values(torch.cat(parts, dim=2).flatten(1, 2)).to(dtype)


def check_turnable(group: Group, type: FieldType) -> None:
    """Refuse a type of field that a rotation cannot turn; the message names the group."""
    if type.lengths[0] != type.lengths[1]:
        raise FieldError(
            f"{group.name}: a rotation needs a square box, got lengths {type.lengths}: "
            "use Translation or Galilean"
        )
    if bound := [q.name for q in type.quantities if q.how.carries == "the diagonal"]:
        raise FieldError(
            f"{group.name}: {bound[0]!r} is a speed along (1, 1), a direction that a rotation "
            "turns: its equation does not have this symmetry"
        )
    if torch.compiler.is_compiling():
        return  # a graph cannot look at values; what wraps a model has checked its types
    sixth = rotation_matrix(torch.tensor([math.pi / 6], dtype=torch.float64))
    for quantity in type.quantities:
        rho = quantity.how.representation(sixth)
        alone = torch.eye(len(quantity.components), dtype=rho.dtype)[None]
        known = sixth if quantity.how.vector else alone
        if rho.shape != known.shape or not bool((rho - known).abs().amax() < 1e-9):
            raise FieldError(
                f"{group.name}: {quantity.name!r} is a {quantity.kind}, and rotations by any angle "
                "are known for scalars and vectors alone: average over quarter turns with "
                "Symmetrised, which follows its representation"
            )


def check_square(group: Group, field: Field) -> None:
    """Refuse boxes of samples that a rotation cannot turn; that of a type is checked before."""
    if field.box is None or torch.compiler.is_compiling():
        return
    if not bool((field.lengths == field.lengths[:, :1]).all()):
        raise FieldError(
            f"{group.name}: a rotation needs square boxes, got lengths {field.lengths.tolist()}: "
            "use Translation or Galilean"
        )


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
        return self._moved(field, xi, back=False)

    def inverse(self, field: Field, xi: Tensor) -> Field:
        return self._moved(field, xi, back=True)

    def _moved(self, field: Field, xi: Tensor, *, back: bool) -> Field:
        """Whole periods are taken off first: rounded to float32, forty of them cost two digits."""
        check_square(self, field)
        return rigidly_moved(field, self.wrap(self.check_element(field, xi)), back=back)

    def in_place(self, field: Field, xi: Tensor, *, pooled: bool = False) -> Field | None:
        """Shears are unitary, but keep the gradient of a field nearly; vectors are no isometry."""
        return field if pooled and self.is_unitary(field.type) else None

    def is_unitary(self, type: FieldType) -> bool:
        return not type.vectors

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
        check_turnable(self, type)
