"""Rotations and shifts of fields on the square torus: exact quarter turns, three spectral shears, a shift.

Each factor is unitary and undone by its adjoint, so a motion can be undone to round-off. The factors are written one by
one first; :class:`Motion` runs them all in as few transforms as it can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fft import fft, fft2, ifft, ifft2

from pacefno.grid import band_limit, resample, shift_phase

PIECE_ENTRIES = 2**19  # of a field, moved at once on a CPU: two megabytes in float32, which the caches of two cores hold
ALIKE = 64.0  # norms of channels within this factor are of the same size


def quarter_turn(field: Tensor, *, back: bool = False) -> Tensor:
    """Rotate by 90 degrees about (1/2, 1/2), ``(x, y) -> (-y, x)`` modulo 1, or back: both map every grid onto itself.

    Index i goes to ``-i mod n``, for odd n too, so the centre does not depend on the grid. A grid that is not square
    turns into its transpose and is resampled back.
    """
    turned = _mirrored(field).transpose(-2, -1) if back else _mirrored(field.transpose(-2, -1).contiguous())
    return resample(turned, field.shape[-2:])


def _mirrored(field: Tensor) -> Tensor:
    """``i -> -i mod n`` along x: lines change places, which is much faster than points within a line."""
    n = field.shape[-2]
    return field.index_select(-2, torch.arange(n, device=field.device).neg() % n)


def resolved_by_both(field: Tensor) -> Tensor:
    """The content that each axis could hold, which a quarter turn can move; all of it on a square grid."""
    n, m = field.shape[-2:]
    return field if n == m else band_limit(field, 2, (min(n, m) - 1) // 2)


def half_turn(field: Tensor) -> Tensor:
    """Rotate by 180 degrees about the centre: ``x -> -x`` modulo 1 on both axes."""
    return _mirrored(field).flip(-1).roll(1, -1)


def turn(field: Tensor, count: int) -> Tensor:
    """Rotate by a number of quarter turns.

    An odd number leaves content that only one axis of the grid resolves where it is: like the rule for the Nyquist mode,
    this makes every turn unitary, so that its inverse is exact in both orders on grids that are not square too.
    """
    count %= 4
    if count % 2 == 0:
        return half_turn(field) if count == 2 else field
    movable = resolved_by_both(field)
    turned = quarter_turn(movable, back=count == 3)
    return turned if movable is field else turned + (field - movable)


def turn_each(field: Tensor, quarters: Tensor) -> Tensor:
    """Each sample by its own number of quarter turns, ``(B,)``."""
    return torch.stack([turn(sample, count) for sample, count in zip(field, quarters.tolist(), strict=True)])


def move_lines(field: Tensor, distance: Tensor, axis: int) -> Tensor:
    """Move each grid line along ``axis`` (0: x, 1: y) by its own ``distance``, ``(B, lines)`` or ``(B, 1)``; unitary."""
    moving = axis - 2
    n = field.shape[moving]
    phase = shift_phase(n, distance, half=True)[:, None]  # (B, 1, lines, modes)
    spectrum = torch.fft.rfft(field, dim=moving) * (phase.transpose(-1, -2) if axis == 0 else phase)
    moved: Tensor = torch.fft.irfft(spectrum, n=n, dim=moving)
    return moved


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


Rows = slice | list[int]
Step = Callable[[Rows, Tensor, int], Tensor]


class Motion(NamedTuple):
    """Three shears and a shift of each sample, each of them a phase.

    ``T_y T_x R_theta`` with ``R_theta = H_x(-tan(theta/2)) H_y(sin theta) H_x(-tan(theta/2))`` (paper, appendix A). A move
    along x is a phase in ``(k_x, y)``, one along y in ``(x, k_y)``, and the shift along x belongs to the last shear. From
    one of these spaces to the other leads a transform of one axis and an inverse one of the other. A transform of both
    axes does the same in half the time, but mirrors x (``F = n F^-1 M``); its inverse, on the way back, mirrors x again.
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
        first, middle = line_phase(n, slide, 0), line_phase(m, _mirrored(lift[..., None])[..., 0], 1)
        return cls(first, middle, first * line_phase(n, shift[:, :1], 0), line_phase(m, shift[:, 1:], 1))

    def rows(self, some: Rows) -> Motion:
        return Motion(*(phase[some] for phase in self))

    def after_turns(self, values: Tensor, quarters: int) -> Tensor:
        """The moves in order, after quarter turns."""
        lines = enter(values, quarters) * self.first
        lines = ifft2(fft2(lines) * self.middle) * self.last
        return ifft2(fft(lines, dim=-1) * self.rise)

    def before_turns(self, values: Tensor, quarters: int) -> Tensor:
        """The moves in reverse order, then quarter turns back. The opposite moves in this order undo a motion exactly."""
        lines = ifft(fft2(values) * self.rise, dim=-1) * self.last
        lines = ifft2(fft2(lines) * self.middle) * self.first
        return leave(lines, quarters)


def move(field: Tensor, xi: Tensor) -> Tensor:
    """Each sample ``(C, n, m)`` turned by its angle, then shifted; ``xi`` is ``(B, 3)``."""
    quarters, rest = split_angle(xi[:, 2])
    motion = Motion.of(xi[:, :2], rest, field.shape[-2:])

    def step(some: Rows, values: Tensor, count: int) -> Tensor:
        return motion.rows(some).after_turns(values, count)

    if is_square(field):
        return each(field, quarters, step)
    return each(turn_each(field, quarters), torch.zeros_like(quarters), step)


def undo(field: Tensor, xi: Tensor) -> Tensor:
    """What :func:`move` did to each sample undone, to round-off."""
    quarters, rest = split_angle(xi[:, 2])
    opposite = Motion.of(-xi[:, :2], -rest, field.shape[-2:])

    def step(some: Rows, values: Tensor, count: int) -> Tensor:
        return opposite.rows(some).before_turns(values, count)

    if is_square(field):
        return each(field, quarters, step)
    return turn_each(each(field, torch.zeros_like(quarters), step), -quarters)


def is_square(field: Tensor) -> bool:
    return field.shape[-2] == field.shape[-1]


def each(field: Tensor, quarters: Tensor, step: Step) -> Tensor:
    """Take a step with samples that turn alike together, on a CPU with as many as the caches hold."""
    scale = unlike_scales(field)
    field = field if scale is None else field / scale
    longest = max(1, PIECE_ENTRIES // field[0].numel()) if field.device.type == "cpu" else len(field)
    half = (field.shape[1] + 1) // 2
    moved = torch.empty_like(field)
    for count, some in pieces(quarters.tolist(), longest):
        values = step(some, paired(field[some]), count)
        moved[some, :half], moved[some, half:] = values.real, values.imag[:, : field.shape[1] // 2]
    return moved if scale is None else moved * scale


def pieces(labels: list[int], longest: int) -> Iterator[tuple[int, Rows]]:
    """Each label with places where it stands, at most so many at a time; places in a row as a slice, which copies nothing."""
    for label in sorted(set(labels)):
        places = [place for place, other in enumerate(labels) if other == label]
        for i in range(0, len(places), longest):
            some = places[i : i + longest]
            in_a_row = some[-1] - some[0] == len(some) - 1
            yield label, slice(some[0], some[-1] + 1) if in_a_row else some


def line_phase(n: int, distance: Tensor, axis: int) -> Tensor:
    """What moves lines of ``n`` points along ``axis`` by ``distance``, ``(B, lines)``, in the whole spectrum along them."""
    phase = shift_phase(n, distance, half=False)[:, None]  # (B, 1, lines, modes)
    return phase.transpose(-1, -2).contiguous() if axis == 0 else phase


def enter(values: Tensor, count: int) -> Tensor:
    """Quarter turns and the transform along x, ``F_x Q^count``, of a square grid: from ``(x, y)`` to ``(k_x, y)``.

    A quarter turn is a transposition and a mirror, and a mirror is a transform of the other sign: ``F M = n F^-1``.
    """
    if count == 0:
        return ifft(fft2(values), dim=-1)
    if count == 2:
        return ifft(ifft2(values, norm="forward"), dim=-1)
    if count == 1:
        return ifft(values.transpose(-2, -1), dim=-2, norm="forward").contiguous()
    return fft(_mirrored(values).transpose(-2, -1), dim=-2).contiguous()


def leave(lines: Tensor, count: int) -> Tensor:
    """What undoes :func:`enter`."""
    if count == 0:
        return ifft2(fft(lines, dim=-1))
    if count == 2:
        return fft2(fft(lines, dim=-1), norm="forward")
    if count == 1:
        return fft(lines, dim=-2, norm="forward").transpose(-2, -1)
    return _mirrored(ifft(lines, dim=-2).transpose(-2, -1))


def paired(field: Tensor) -> Tensor:
    """Two real channels as one complex one: a motion is real, so it moves both parts alike, in half the time."""
    half = (field.shape[1] + 1) // 2
    first, second = field[:, :half], field[:, half:]
    if first.shape != second.shape:
        second = torch.cat([second, torch.zeros_like(field[:, :1])], dim=1)
    return torch.complex(first, second)


def unlike_scales(field: Tensor) -> Tensor | None:
    """Powers of two near the norms of the channels, ``(B, C, 1, 1)``, or None if all channels of a sample are alike.

    The rounding of a large channel (a pressure) would drown a small one (a velocity) that is paired with it.
    """
    norm = torch.linalg.vector_norm(field.detach().flatten(2), dim=2)[..., None, None]
    if not bool((norm * ALIKE < norm.amax(dim=1, keepdim=True)).any()):
        return None
    exponent = norm.log2().round()
    smallest = torch.where(exponent.isfinite(), exponent, math.inf).amin(dim=1, keepdim=True)
    exponent = torch.where(exponent.isfinite(), exponent, smallest)  # a channel of zeros is as small as the smallest
    return torch.where(exponent.isfinite(), exponent, 0.0).exp2()
