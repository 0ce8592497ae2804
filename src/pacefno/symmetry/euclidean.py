"""Rigid motions of the plane, SE(2), on the square torus: exact quarter turns, three spectral shears, a shift.

What is exact and what is not:

- ``inverse`` undoes ``act`` to round-off, and both preserve the L2 norm, because every factor is unitary;
- quarter turns are index arithmetic about the centre (1/2, 1/2) and form a group;
- generic angles do **not** form a group on the torus: ``R(a) R(b)`` and ``R(a + b)`` agree for fields supported well
  inside the inscribed disc, and differ by tens of percent for a periodic random field, whose content is torn at the seam.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pacefno.grid import FieldError, band_limit, compute_dtype, resample, shift_phase
from pacefno.symmetry.base import Group

PIECE_ENTRIES = 2**18


def quarter_turn(field: Tensor) -> Tensor:
    """Rotate by 90 degrees about (1/2, 1/2): ``(x, y) -> (-y, x)`` modulo 1, which maps every grid onto itself.

    Index i goes to ``-i mod n``, for odd n too, so the centre does not depend on the grid. A grid that is not square
    turns into its transpose and is resampled back.
    """
    return resample(_mirrored(field.transpose(-2, -1), -2), field.shape[-2:])


def _mirrored(field: Tensor, axis: int) -> Tensor:
    """``i -> -i mod n`` along an axis, in one pass over the field."""
    n = field.shape[axis]
    return field.index_select(axis, torch.arange(n, device=field.device).neg() % n)


def resolved_by_both(field: Tensor) -> Tensor:
    """The content that each axis could hold, which a quarter turn can move; all of it on a square grid."""
    n, m = field.shape[-2:]
    return field if n == m else band_limit(field, 2, (min(n, m) - 1) // 2)


def half_turn(field: Tensor) -> Tensor:
    """Rotate by 180 degrees about the centre: ``x -> -x`` modulo 1 on both axes."""
    return _mirrored(_mirrored(field, -2), -1)


def turn(field: Tensor, quarters: Tensor) -> Tensor:
    """Rotate each sample by its own number of quarter turns, ``(B,)`` integers.

    An odd number leaves content that only one axis of the grid resolves where it is: like the rule for the Nyquist mode,
    this makes every turn unitary, so that its inverse is exact in both orders on grids that are not square too.
    """
    counts = sorted(set((quarters % 4).tolist()))
    if len(counts) == 1:
        return _turned(field, counts[0])
    turned = torch.empty_like(field)
    for count in counts:  # only what a sample needs is computed
        chosen = (quarters % 4 == count).nonzero()[:, 0]
        turned = turned.index_copy(0, chosen, _turned(field[chosen], count))
    return turned


def _turned(field: Tensor, count: int) -> Tensor:
    if count % 2 == 0:
        return half_turn(field) if count == 2 else field
    movable = resolved_by_both(field)
    turned = quarter_turn(movable)
    turned = half_turn(turned) if count == 3 else turned
    return turned if movable is field else turned + (field - movable)


def line_phase(n: int, distance: Tensor, axis: int) -> Tensor:
    """What moves each grid line of ``n`` points along ``axis`` (0: x, 1: y) by its own ``distance``, ``(B, lines)``."""
    phase = shift_phase(n, distance, half=True)[:, None]  # (B, 1, lines, modes)
    return phase.transpose(-1, -2) if axis == 0 else phase


def move_by_phase(field: Tensor, phase: Tensor, axis: int) -> Tensor:
    """Lines along ``axis`` moved by their phases; unitary."""
    moving = -2 if axis == 0 else -1
    moved: Tensor = torch.fft.irfft(torch.fft.rfft(field, dim=moving) * phase, n=field.shape[moving], dim=moving)
    return moved


def move_lines(field: Tensor, distance: Tensor, axis: int) -> Tensor:
    """Move each grid line along ``axis`` by its own ``distance``, ``(B, lines)`` or ``(B, 1)``."""
    return move_by_phase(field, line_phase(field.shape[-2 if axis == 0 else -1], distance, axis), axis)


def shear_distance(lines: int, slope: Tensor) -> Tensor:
    """``slope * (coordinate of the line - 1/2)``, ``(B, lines)``, one slope per sample."""
    return slope[:, None] * (torch.arange(lines, dtype=slope.dtype, device=slope.device) / lines - 0.5)


def shear(field: Tensor, slope: Tensor, axis: int) -> Tensor:
    """Move content along ``axis`` by ``slope * (other coordinate - 1/2)``, exactly invertible."""
    return move_lines(field, shear_distance(field.shape[-1 if axis == 0 else -2], slope), axis)


def split_angle(theta: Tensor) -> tuple[Tensor, Tensor]:
    """An angle as whole quarter turns and a rest in [-pi/4, pi/4], through which gradients flow."""
    quarters = torch.round(theta.detach() / (math.pi / 2))
    return quarters.long().remainder(4), theta - quarters * (math.pi / 2)


class Motion(NamedTuple):
    """A rigid motion of each sample: quarter turns, then four moves of lines, each an axis and its phases.

    ``T_y T_x R_theta`` with ``R_theta = H_x(-tan(theta/2)) H_y(sin theta) H_x(-tan(theta/2))`` after the quarter turns
    (paper, appendix A). The shift along x costs nothing: it commutes with the last shear.
    """

    quarters: Tensor
    moves: tuple[tuple[int, Tensor], ...]

    @classmethod
    def of(cls, xi: Tensor, grid: tuple[int, int]) -> Motion:
        n, m = grid
        quarters, rest = split_angle(xi[:, 2])
        slide, rise = shear_distance(m, -torch.tan(rest / 2)), shear_distance(n, torch.sin(rest))
        first, last = line_phase(n, slide, 0), line_phase(n, slide + xi[:, :1], 0)
        return cls(quarters, ((0, first), (1, line_phase(m, rise, 1)), (0, last), (1, line_phase(m, xi[:, 1:2], 1))))

    def rows(self, some: slice) -> Motion:
        return Motion(self.quarters[some], tuple((axis, phase[some]) for axis, phase in self.moves))

    def apply(self, field: Tensor) -> Tensor:
        field = turn(field, self.quarters)
        for axis, phase in self.moves:
            field = move_by_phase(field, phase, axis)
        return field

    def undo(self, field: Tensor) -> Tensor:
        """The same factors undone in reverse order: exact."""
        for axis, phase in reversed(self.moves):
            field = move_by_phase(field, phase.conj(), axis)
        return turn(field, -self.quarters)


def in_pieces(step: Callable[[Motion, Tensor], Tensor], motion: Motion, field: Tensor) -> Tensor:
    """A sample or a few at a time on a CPU: four transforms in a row are much faster while their field is in the cache."""
    size = max(1, PIECE_ENTRIES // field[0].numel()) if field.device.type == "cpu" else len(field)
    some = [slice(start, start + size) for start in range(0, len(field), size)]
    return torch.cat([step(motion.rows(rows), field[rows]) for rows in some])


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
        work = in_pieces(Motion.apply, self._motion(field, xi), field.to(compute_dtype(field.dtype)))
        return self._turn_vectors(work, xi[:, 2]).to(field.dtype)

    def inverse(self, field: Tensor, xi: Tensor) -> Tensor:
        xi = self.check_element(field, xi)
        work = self._turn_vectors(field.to(compute_dtype(field.dtype)), -xi[:, 2])
        return in_pieces(Motion.undo, self._motion(field, xi), work).to(field.dtype)

    def _motion(self, field: Tensor, xi: Tensor) -> Motion:
        return Motion.of(xi, (field.shape[-2], field.shape[-1]))

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
