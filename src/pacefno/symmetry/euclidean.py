"""Rigid motions of the plane, SE(2), on the square torus: exact quarter turns, three spectral shears, a shift.

What is exact and what is not:

- ``inverse`` undoes ``act`` to round-off, and both preserve the L2 norm, because every factor is unitary;
- quarter turns are index arithmetic about the centre (1/2, 1/2) and form a group;
- generic angles do **not** form a group on the torus: ``R(a) R(b)`` and ``R(a + b)`` agree for fields supported well
  inside the inscribed disc, and differ by tens of percent for a periodic random field, whose content is torn at the seam.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from pacefno.grid import FieldError, band_limit, compute_dtype, resample, shift_phase
from pacefno.symmetry.base import Group

PIECE_ENTRIES = 2**19


def quarter_turn(field: Tensor) -> Tensor:
    """Rotate by 90 degrees about (1/2, 1/2): ``(x, y) -> (-y, x)`` modulo 1, which maps every grid onto itself.

    Index i goes to ``-i mod n``, for odd n too, so the centre does not depend on the grid. A grid that is not square
    turns into its transpose and is resampled back.
    """
    return resample(field.transpose(-2, -1).flip(-2).roll(1, -2), field.shape[-2:])


def resolved_by_both(field: Tensor) -> Tensor:
    """The content that each axis could hold, which a quarter turn can move; all of it on a square grid."""
    n, m = field.shape[-2:]
    return field if n == m else band_limit(field, 2, (min(n, m) - 1) // 2)


def half_turn(field: Tensor) -> Tensor:
    """Rotate by 180 degrees about the centre: ``x -> -x`` modulo 1 on both axes."""
    return field.flip(-2, -1).roll((1, 1), (-2, -1))


def turn(field: Tensor, quarters: Tensor) -> Tensor:
    """Rotate each sample by its own number of quarter turns, ``(B,)`` integers.

    An odd number leaves content that only one axis of the grid resolves where it is: like the rule for the Nyquist mode,
    this makes every turn unitary, so that its inverse is exact in both orders on grids that are not square too.
    """
    turned = torch.empty_like(field)
    for count in sorted(set(quarters.remainder(4).tolist())):  # only what a sample needs is computed
        chosen = (quarters.remainder(4) == count).nonzero()[:, 0]
        turned = turned.index_copy(0, chosen, _turned(field[chosen], count))
    return turned


def _turned(field: Tensor, count: int) -> Tensor:
    if count % 2 == 0:
        return half_turn(field) if count == 2 else field
    movable = resolved_by_both(field)
    turned = quarter_turn(movable)
    turned = half_turn(turned) if count == 3 else turned
    return turned if movable is field else turned + (field - movable)


def move_lines(field: Tensor, distance: Tensor, axis: int) -> Tensor:
    """Move each grid line along ``axis`` (0: x, 1: y) by its own ``distance``, ``(B, lines)`` or ``(B, 1)``; unitary."""
    moving = -2 if axis == 0 else -1
    n = field.shape[moving]
    phase = shift_phase(n, distance, half=True)[:, None]  # (B, 1, lines, modes)
    if axis == 0:
        phase = phase.transpose(-1, -2)
    return torch.fft.irfft(torch.fft.rfft(field, dim=moving) * phase, n=n, dim=moving)


def shear(field: Tensor, slope: Tensor, axis: int, extra: Tensor | None = None) -> Tensor:
    """Move content along ``axis`` by ``slope * (other coordinate - 1/2)``, one slope per sample, exactly invertible.

    ``extra`` moves all of it on by the same distance, at no cost: a shift along the axis of a shear commutes with it.
    """
    lines = field.shape[-1 if axis == 0 else -2]
    offset = torch.arange(lines, dtype=slope.dtype, device=slope.device) / lines - 0.5
    distance = slope[:, None] * offset
    return move_lines(field, distance if extra is None else distance + extra[:, None], axis)


def split_angle(theta: Tensor) -> tuple[Tensor, Tensor]:
    """An angle as whole quarter turns and a rest in [-pi/4, pi/4], through which gradients flow."""
    quarters = torch.round(theta.detach() / (math.pi / 2))
    return quarters.long().remainder(4), theta - quarters * (math.pi / 2)


def rotate(field: Tensor, theta: Tensor, x: Tensor | None = None) -> Tensor:
    """``R_theta = H_x(-tan(theta/2)) H_y(sin theta) H_x(-tan(theta/2))`` after the quarter turns (paper, appendix A).

    A shift by ``x`` along the first axis afterwards is free.
    """
    quarters, rest = split_angle(theta)
    alpha, beta = -torch.tan(rest / 2), torch.sin(rest)
    field = turn(field, quarters)
    return shear(shear(shear(field, alpha, 0), beta, 1), alpha, 0, x)


def unrotate(field: Tensor, theta: Tensor, x: Tensor | None = None) -> Tensor:
    """The exact inverse of :func:`rotate`: the same factors undone in reverse order."""
    quarters, rest = split_angle(theta)
    alpha, beta = -torch.tan(rest / 2), torch.sin(rest)
    field = shear(shear(shear(field, -alpha, 0, None if x is None else -x), -beta, 1), -alpha, 0)
    return turn(field, -quarters)


def rotation_matrix(theta: Tensor) -> Tensor:
    """``(B, 2, 2)`` matrices of counter-clockwise rotations."""
    c, s = torch.cos(theta), torch.sin(theta)
    return torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)


def turn_vector(vector: Tensor, theta: Tensor) -> Tensor:
    """``R_theta v``, ``(B, 2)``; a sum and no matrix product, which autocast would round to half precision."""
    return (rotation_matrix(theta) * vector[:, None, :]).sum(dim=-1)


def _pieces(field: Tensor, xi: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """A few samples at a time on a CPU: four transforms in a row are much faster while their field is in the cache."""
    field = field.to(compute_dtype(field.dtype))
    size = max(1, PIECE_ENTRIES // field[0].numel()) if field.device.type == "cpu" else len(field)
    return zip(torch.split(field, size), torch.split(xi, size), strict=True)


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
        return torch.cat([self._act(part, some) for part, some in _pieces(field, xi)]).to(field.dtype)

    def inverse(self, field: Tensor, xi: Tensor) -> Tensor:
        xi = self.check_element(field, xi)
        return torch.cat([self._inverse(part, some) for part, some in _pieces(field, xi)]).to(field.dtype)

    def _act(self, field: Tensor, xi: Tensor) -> Tensor:
        work = move_lines(rotate(field, xi[:, 2], xi[:, 0]), xi[:, 1:2], 1)
        return self._turn_vectors(work, xi[:, 2])

    def _inverse(self, field: Tensor, xi: Tensor) -> Tensor:
        work = self._turn_vectors(field, -xi[:, 2])
        return unrotate(move_lines(work, -xi[:, 1:2], 1), xi[:, 2], xi[:, 0])

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
