"""Rigid motions of the plane, SE(2), on the square torus: exact quarter turns, three spectral shears, a shift.

What is exact and what is not:

- ``inverse`` undoes ``act`` to round-off, and both preserve the L2 norm, because every factor is unitary;
- quarter turns are index arithmetic about the centre (1/2, 1/2) and form a group;
- generic angles do **not** form a group on the torus: ``R(a) R(b)`` and ``R(a + b)`` agree for fields supported well
  inside the inscribed disc, and differ by tens of percent for a periodic random field, whose content is torn at the seam.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacefno.grid import FieldError, compute_dtype
from pacefno.symmetry.base import Group
from pacefno.symmetry.motion import move


def rotation_matrix(theta: Tensor) -> Tensor:
    """``(B, 2, 2)`` matrices of counter-clockwise rotations."""
    c, s = torch.cos(theta), torch.sin(theta)
    return torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)


def turn_vector(vector: Tensor, theta: Tensor) -> Tensor:
    """``R_theta v``, ``(B, 2)``; a sum and no matrix product, which autocast would round to half precision."""
    return (rotation_matrix(theta) * vector[:, None, :]).sum(dim=-1)


class Euclidean(Group):
    """Rotate about the centre by ``angle``, then translate by ``(x, y)``.

    ``vectors`` lists pairs of channels that are components of a vector and turn with the frame, e.g. ``((0, 1),)`` for a
    velocity field; all other channels are scalars (vorticity, pressure).
    """

    name = "euclidean"
    dim = 2
    coordinates = ("x", "y", "angle")
    periods = (1.0, 1.0, 2 * math.pi)
    spatial = 3

    def __init__(self, vectors: tuple[tuple[int, int], ...] = ()) -> None:
        self.vectors = vectors

    def act(self, field: Tensor, xi: Tensor) -> Tensor:
        xi = self.check_element(field, xi)
        work = move(field.to(compute_dtype(field.dtype)), xi)
        return self._turn_vectors(work, xi[:, 2]).to(field.dtype)

    def inverse(self, field: Tensor, xi: Tensor) -> Tensor:
        xi = self.check_element(field, xi)
        work = self._turn_vectors(field.to(compute_dtype(field.dtype)), -xi[:, 2])
        return move(work, xi, back=True).to(field.dtype)

    def _turn_vectors(self, field: Tensor, theta: Tensor) -> Tensor:
        if not self.vectors:
            return field
        if max(max(pair) for pair in self.vectors) >= field.shape[1]:
            raise FieldError(f"euclidean: vector channels {self.vectors} do not exist in {field.shape[1]} channels")
        channels = list(field.unbind(1))
        matrix = rotation_matrix(theta).to(field.dtype)[..., None, None]  # (B, 2, 2, 1, 1)
        for i, j in self.vectors:
            a, b = channels[i], channels[j]
            channels[i] = matrix[:, 0, 0] * a + matrix[:, 0, 1] * b
            channels[j] = matrix[:, 1, 0] * a + matrix[:, 1, 1] * b
        return torch.stack(channels, dim=1)

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        """The product of SE(2), ``(R, t)(S, s) = (R S, t + R s)``; on the torus the action follows it only approximately."""
        carried = turn_vector(eta[:, :2], xi[:, 2])
        return self.wrap(torch.cat([xi[:, :2] + carried, xi[:, 2:] + eta[:, 2:]], dim=1))

    def inverse_element(self, xi: Tensor) -> Tensor:
        """``(R, t)^-1 = (R^-1, -R^-1 t)``; not wrapped, because a whole period turned by R is no whole period."""
        return torch.cat([-turn_vector(xi[:, :2], -xi[:, 2]), -xi[:, 2:]], dim=1)
