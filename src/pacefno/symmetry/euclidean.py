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

PIECE_ENTRIES = 2**18  # a megabyte in float32: with its spectrum it fits the caches of two cores


def quarter_turn(field: Tensor, *, back: bool = False) -> Tensor:
    """Rotate by 90 degrees about (1/2, 1/2), ``(x, y) -> (-y, x)`` modulo 1, or back: both map every grid onto itself.

    Index i goes to ``-i mod n``, for odd n too, so the centre does not depend on the grid. A grid that is not square
    turns into its transpose and is resampled back.
    """
    return resample(_mirrored(field.transpose(-2, -1), -1 if back else -2), field.shape[-2:])


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
    turned = quarter_turn(movable, back=count == 3)
    return turned if movable is field else turned + (field - movable)


def line_phase(n: int, distance: Tensor, axis: int) -> Tensor:
    """What moves each grid line of ``n`` points along ``axis`` (0: x, 1: y) by its own ``distance``, ``(B, lines)``."""
    phase = shift_phase(n, distance, half=True)[:, None]  # (B, 1, lines, modes)
    return phase.transpose(-1, -2) if axis == 0 else phase


def move_by_phase(field: Tensor, phase: Tensor, axis: int, *, mirrored: bool = False) -> Tensor:
    """Lines along ``axis``, or their mirror images, moved by their phases; unitary."""
    moving = -2 if axis == 0 else -1
    spectrum = torch.fft.rfft(field, dim=moving)
    spectrum = spectrum.conj() if mirrored else spectrum  # i -> -i of a real line
    moved: Tensor = torch.fft.irfft(spectrum * phase, n=field.shape[moving], dim=moving)
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


class Move(NamedTuple):
    """Lines along an axis, mirrored first if so wished, each moved by its phase."""

    axis: int
    phase: Tensor  # (B, 1, *half spectra of the lines)
    mirrored: bool = False

    def apply(self, field: Tensor) -> Tensor:
        return move_by_phase(field, self.phase, self.axis, mirrored=self.mirrored)

    def undo(self, field: Tensor) -> Tensor:
        """Back, and mirrored then, which is the same as mirrored first and moved the same way."""
        return move_by_phase(field, self.phase if self.mirrored else self.phase.conj(), self.axis, mirrored=self.mirrored)

    def rows(self, some: slice) -> Move:
        return self._replace(phase=self.phase[some])


class Motion(NamedTuple):
    """A rigid motion of each sample: quarter turns, then four moves of lines.

    ``T_y T_x R_theta`` with ``R_theta = H_x(-tan(theta/2)) H_y(sin theta) H_x(-tan(theta/2))`` after the quarter turns
    (paper, appendix A). The shift along x costs nothing: it commutes with the last shear.
    """

    quarters: Tensor
    moves: tuple[Move, ...]

    @classmethod
    def of(cls, xi: Tensor, grid: tuple[int, int]) -> Motion:
        n, m = grid
        quarters, rest = split_angle(xi[:, 2])
        slide, rise = shear_distance(m, -torch.tan(rest / 2)), shear_distance(n, torch.sin(rest))
        along_x = [Move(0, line_phase(n, distance, 0)) for distance in (slide, slide + xi[:, :1])]
        along_y = [Move(1, line_phase(m, distance, 1)) for distance in (rise, xi[:, 1:2])]
        return cls(quarters, (along_x[0], along_y[0], along_x[1], along_y[1]))

    def rows(self, some: slice) -> Motion:
        return Motion(self.quarters[some], tuple(move.rows(some) for move in self.moves))

    def apply(self, field: Tensor) -> Tensor:
        quarters = self._quarters_of_all(field)
        field = turn(field, self.quarters) if quarters is None else _transposed_if_odd(field, quarters)
        for move in self._moves(quarters):
            field = move.apply(field)
        return field

    def undo(self, field: Tensor) -> Tensor:
        """The same factors undone in reverse order: exact."""
        quarters = self._quarters_of_all(field)
        for move in reversed(self._moves(quarters)):
            field = move.undo(field)
        return turn(field, -self.quarters) if quarters is None else _transposed_if_odd(field, quarters)

    def _quarters_of_all(self, field: Tensor) -> int | None:
        """The quarter turns that all samples share, on a grid that can be transposed."""
        counts = set((self.quarters % 4).tolist())
        return counts.pop() if len(counts) == 1 and field.shape[-2] == field.shape[-1] else None

    def _moves(self, quarters: int | None) -> tuple[Move, ...]:
        """The moves, with the mirrors that a quarter turn is made of beside its transposition: in a spectrum they are free.

        A mirror of y before the first move, which is along x, is one after it with the lines of its phases mirrored.
        """
        if not quarters:
            return self.moves
        along_x, along_y = quarters in (1, 2), quarters in (2, 3)
        first, second, *rest = self.moves
        phase = _mirrored(first.phase, -1) if along_y else first.phase
        return (Move(0, phase, along_x), second._replace(mirrored=along_y), *rest)


def _transposed_if_odd(field: Tensor, quarters: int) -> Tensor:
    return field.transpose(-2, -1) if quarters % 2 else field


def in_pieces(step: Callable[[Motion, Tensor], Tensor], motion: Motion, field: Tensor) -> Tensor:
    """Some channels or some samples at a time on a CPU: four transforms in a row are much faster on what is in the cache."""
    if field.device.type != "cpu":
        return step(motion, field)
    channels = max(1, PIECE_ENTRIES // field[0, 0].numel())
    size = max(1, PIECE_ENTRIES // field[0].numel())
    pieces = []
    for start in range(0, len(field), size):
        some = slice(start, start + size)
        rows = motion.rows(some)
        pieces += [step(rows, piece).flatten(0, 1) for piece in torch.split(field[some], channels, dim=1)]
    return torch.cat(pieces).reshape(field.shape)  # a piece has all the channels or is of one sample: they are in order


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
