"""Rotations and shifts of fields on the square torus: exact quarter turns, three spectral shears, a
shift.

Each factor is unitary and undone by its adjoint, so a motion can be undone to round-off. The
factors are written one by one first; :class:`Motion` runs them all in as few transforms as it can.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fft import fft, fft2, ifft, ifft2
from torch.nn import functional

from pacefno.grid import as_products, band_limit, move_axis, resample, shift_phase

PIECE_ENTRIES = (
    2**18
)  # of a field, moved at once on a CPU: a megabyte in float32, which the caches of two cores hold
ALIKE = 64.0  # norms of channels within this factor are of the same size


def quarter_turn(field: Tensor, *, back: bool = False) -> Tensor:
    """Rotate by 90 degrees about (1/2, 1/2), ``(x, y) -> (-y, x)`` modulo 1, or back: both map
    every grid onto itself.

    Index i goes to ``-i mod n``, for odd n too, so the centre does not depend on the grid. A grid
    that is not square turns into its transpose and is resampled back.
    """
    turned = (
        _mirrored(field).transpose(-2, -1)
        if back
        else _mirrored(field.transpose(-2, -1).contiguous())
    )
    return resample(turned, field.shape[-2:])


def _mirrored(field: Tensor) -> Tensor:
    """``i -> -i mod n`` along x: lines change places, which is much faster than points within a
    line.
    """
    n = field.shape[-2]
    return field.index_select(-2, torch.arange(n, device=field.device).neg() % n)


def resolved_by_both(field: Tensor) -> Tensor:
    """The content that each axis could hold, which a quarter turn can move; all of it on a square
    grid.
    """
    n, m = field.shape[-2:]
    return field if n == m else band_limit(field, 2, (min(n, m) - 1) // 2)


def half_turn(field: Tensor) -> Tensor:
    """Rotate by 180 degrees about the centre: ``x -> -x`` modulo 1 on both axes."""
    return _mirrored(field).flip(-1).roll(1, -1)


def turn(field: Tensor, count: int) -> Tensor:
    """Rotate by a number of quarter turns.

    An odd number leaves content that only one axis of the grid resolves where it is: like the rule
    for the Nyquist mode, this makes every turn unitary, so that its inverse is exact in both orders
    on grids that are not square too.
    """
    count %= 4
    if count % 2 == 0:
        return half_turn(field) if count == 2 else field
    movable = resolved_by_both(field)
    turned = quarter_turn(movable, back=count == 3)
    return turned if movable is field else turned + (field - movable)


def turn_each(field: Tensor, quarters: Tensor) -> Tensor:
    """Rotate each sample by its own number of quarter turns, ``(B,)``."""
    return torch.stack(
        [turn(sample, count) for sample, count in zip(field, quarters.tolist(), strict=True)]
    )


def move_lines(field: Tensor, distance: Tensor, axis: int) -> Tensor:
    """Move each grid line along ``axis`` (0: x, 1: y) by its own ``distance``, ``(B, lines)`` or
    ``(B, 1)``; unitary.
    """
    moving = axis - 2
    if as_products():
        return move_axis(field, distance[:, None], moving)
    n = field.shape[moving]
    phase = shift_phase(n, distance, half=True)[:, None]  # (B, 1, lines, modes)
    spectrum = torch.fft.rfft(field, dim=moving) * (phase.transpose(-1, -2) if axis == 0 else phase)
    moved: Tensor = torch.fft.irfft(spectrum, n=n, dim=moving)
    return moved


def shear_distance(lines: int, slope: Tensor) -> Tensor:
    """``slope * (coordinate of the line - 1/2)``, ``(B, lines)``, one slope per sample."""
    return slope[:, None] * (
        torch.arange(lines, dtype=slope.dtype, device=slope.device) / lines - 0.5
    )


def shear(field: Tensor, slope: Tensor, axis: int) -> Tensor:
    """Move content along ``axis`` by ``slope * (other coordinate - 1/2)``, exactly invertible."""
    return move_lines(field, shear_distance(field.shape[-1 if axis == 0 else -2], slope), axis)


def split_angle(theta: Tensor) -> tuple[Tensor, Tensor]:
    """An angle as whole quarter turns and a rest in [-pi/4, pi/4], through which gradients flow."""
    quarters = torch.round(theta.detach() / (math.pi / 2))
    return quarters.long().remainder(4), theta - quarters * (math.pi / 2)


class Motion(NamedTuple):
    """Three shears and a shift of each sample, each of them a phase.

    ``T_y T_x R_theta`` with ``R_theta = H_x(-tan(theta/2)) H_y(sin theta) H_x(-tan(theta/2))``
    (paper, appendix A). A move along x is a phase in ``(k_x, y)``, one along y in ``(x, k_y)``, and
    the shift along x belongs to the last shear. From one of these spaces to the other leads a
    transform of one axis and an inverse one of the other. A transform of both axes does the same in
    half the time, but mirrors x (``F = n F^-1 M``); its inverse, on the way back, mirrors x again.
    So the middle shear has the phases of mirrored lines.
    """

    first: Tensor  # H_x: (B, 1, k_x, y)
    middle: Tensor  # H_y: (B, 1, -x, k_y)
    last: Tensor  # T_x H_x: (B, 1, k_x, y)
    rise: Tensor  # T_y: (B, 1, 1, k_y)

    @classmethod
    def of(cls, shift: Tensor, theta: Tensor, grid: Sequence[int]) -> Motion:
        n, m = grid
        slide, lift = shear_distance(m, -torch.tan(theta / 2)), shear_distance(n, torch.sin(theta))
        first, middle = line_phase(n, slide, 0), line_phase(m, lift.flip(1).roll(1, 1), 1)
        return cls(
            first, middle, first * line_phase(n, shift[:, :1], 0), line_phase(m, shift[:, 1:], 1)
        )

    def rows(self, start: int, end: int) -> Motion:
        return Motion(*(phase[start:end] for phase in self))

    def after_turns(self, values: Tensor, quarters: int) -> Tensor:
        """The moves in order, after quarter turns."""
        lines = to_lines(values, quarters) * self.first
        lines = ifft2(fft2(lines) * self.middle) * self.last
        return ifft2(fft(lines, dim=-1) * self.rise)

    def before_turns(self, values: Tensor, quarters: int) -> Tensor:
        """The moves in reverse order, then quarter turns back. The opposite moves in this order
        undo a motion exactly.
        """
        lines = ifft(fft2(values) * self.rise, dim=-1) * self.last
        lines = ifft2(fft2(lines) * self.middle) * self.first
        return from_lines(lines, quarters)


def move(field: Tensor, xi: Tensor, *, back: bool = False) -> Tensor:
    """Turn each sample ``(C, n, m)`` by its angle, then shift it, ``xi`` being ``(B, 3)``; or undo
    exactly this.
    """
    shift = xi[:, :2]
    quarters, rest = split_angle(xi[:, 2])
    if as_products() or torch.compiler.is_compiling():
        return _move_one_by_one(field, shift, rest, quarters, back)
    if field.shape[-2] == field.shape[-1]:
        return _move(field, shift, rest, quarters, back)
    none = torch.zeros_like(quarters)
    if back:
        return turn_each(_move(field, shift, rest, none, back), -quarters)
    return _move(turn_each(field, quarters), shift, rest, none, back)


def _move_one_by_one(
    field: Tensor, shift: Tensor, rest: Tensor, quarters: Tensor, back: bool
) -> Tensor:
    """The factors of :class:`Motion` one by one, all four turns made and one chosen: for a graph,
    which cannot branch on values.
    """
    slopes = -torch.tan(rest / 2), torch.sin(rest)
    along_x = shear_distance(field.shape[-1], slopes[0])
    along_y = shear_distance(field.shape[-2], slopes[1])
    steps = [(along_x, 0), (along_y, 1), (along_x + shift[:, :1], 0), (shift[:, 1:], 1)]
    if back:
        for distance, axis in reversed(steps):
            field = move_lines(field, -distance, axis)
        return _turn_chosen(field, -quarters)
    field = _turn_chosen(field, quarters)
    for distance, axis in steps:
        field = move_lines(field, distance, axis)
    return field


def _turn_chosen(field: Tensor, quarters: Tensor) -> Tensor:
    """:func:`turn_each` without a branch."""
    count = quarters.remainder(4).reshape(-1, 1, 1, 1)
    odd = torch.where(count == 1, turn(field, 1), turn(field, 3))
    even = torch.where(count == 2, half_turn(field), field)
    return torch.where(count % 2 == 1, odd, even)


def _move(field: Tensor, shift: Tensor, rest: Tensor, quarters: Tensor, back: bool) -> Tensor:
    """Samples that turn alike go together, on a CPU as many as the caches hold; those that fill
    them alone stay in order.
    """
    counts = quarters.tolist()
    longest = (
        max(1, PIECE_ENTRIES // field[0].numel()) if field.device.type == "cpu" else len(field)
    )
    if longest > 1 and counts != sorted(counts):
        order = quarters.argsort()
        return _move(field[order], shift[order], rest[order], quarters[order], back)[
            order.argsort()
        ]
    sign, step = (-1, Motion.before_turns) if back else (1, Motion.after_turns)
    motion = Motion.of(sign * shift, sign * rest, field.shape[-2:])
    runs = runs_of(counts, longest)
    pieces = zip(torch.split(field, [end - start for _, start, end in runs]), runs, strict=True)
    pair = alike(field)
    moved = (
        step(motion.rows(start, end), to_complex(piece, pair), count)
        for piece, (count, start, end) in pieces
    )
    if torch.is_grad_enabled() and (
        field.requires_grad or shift.requires_grad or rest.requires_grad
    ):
        return torch.cat([to_real(values, field.shape[1]) for values in moved])
    return written(moved, torch.empty_like(field, memory_format=torch.contiguous_format))


def written(pieces: Iterable[Tensor], into: Tensor) -> Tensor:
    """The real channels of some samples after the other: a pass less over memory than to join them,
    but no way back for derivatives, which would copy the whole for each piece.
    """
    start = 0
    for values in pieces:
        rows, half = slice(start, start + len(values)), values.shape[1]
        into[rows, :half] = values.real
        into[rows, half:] = values.imag[:, : into.shape[1] - half]
        start = rows.stop
    return into


def runs_of(counts: list[int], longest: int) -> list[tuple[int, int, int]]:
    """Stretches of one count, as count, start and end, none of them longer than ``longest``."""
    runs, start = [], 0
    for count, run in groupby(counts):
        end = start + len(list(run))
        runs += [(count, at, min(at + longest, end)) for at in range(start, end, longest)]
        start = end
    return runs


def line_phase(n: int, distance: Tensor, axis: int) -> Tensor:
    """What moves lines of ``n`` points along ``axis`` by ``distance``, ``(B, lines)``, in the whole
    spectrum along them.
    """
    phase = shift_phase(n, distance, half=False)[:, None]  # (B, 1, lines, modes)
    return phase.transpose(-1, -2).contiguous() if axis == 0 else phase


def to_lines(values: Tensor, count: int) -> Tensor:
    """Quarter turns and the transform along x, ``F_x Q^count``, of a square grid: from ``(x, y)``
    to ``(k_x, y)``.

    A quarter turn is a transposition and a mirror, and a mirror is a transform of the other sign:
    ``F M = n F^-1``.
    """
    if count == 0:
        return ifft(fft2(values), dim=-1)
    if count == 2:
        return ifft(ifft2(values, norm="forward"), dim=-1)
    if count == 1:
        return ifft(values.transpose(-2, -1), dim=-2, norm="forward").contiguous()
    return fft(_mirrored(values).transpose(-2, -1), dim=-2).contiguous()


def from_lines(lines: Tensor, count: int) -> Tensor:
    """What undoes :func:`to_lines`."""
    if count == 0:
        return ifft2(fft(lines, dim=-1))
    if count == 2:
        return fft2(fft(lines, dim=-1), norm="forward")
    if count == 1:
        return fft(lines, dim=-2, norm="forward").transpose(-2, -1)
    return _mirrored(ifft(lines, dim=-2).transpose(-2, -1))


def alike(field: Tensor) -> bool:
    """Whether the channels of each sample are of one size, so that the rounding of none drowns
    another it is paired with.

    A pressure and a velocity are not, nor a channel of zeros or one that is not finite. The same
    can happen to gradients that differ more than the fields do; they are not looked at.
    """
    norm = torch.linalg.vector_norm(field.detach().flatten(2), dim=2)
    low, high = norm.amin(dim=1), norm.amax(dim=1)
    return bool(((low * ALIKE >= high) & (low > 0) & high.isfinite()).all())


def to_complex(field: Tensor, pair: bool) -> Tensor:
    """Two real channels as one complex one, if so wished: a motion is real, so it moves both parts
    alike, in half the time.
    """
    half = (field.shape[1] + 1) // 2 if pair else field.shape[1]
    first, second = field[:, :half], field[:, half:]
    missing = half - second.shape[1]
    return torch.complex(
        first, functional.pad(second, (0, 0, 0, 0, 0, missing)) if missing else second
    )


def to_real(values: Tensor, channels: int) -> Tensor:
    """The real channels again, of which there were so many."""
    return torch.cat([values.real, values.imag[:, : channels - values.shape[1]]], dim=1)
