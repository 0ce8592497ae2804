"""Rotations and shifts of fields on the square torus: exact quarter turns, three spectral shears, a
shift.

Each factor is unitary and undone by its adjoint, so a motion can be undone to round-off. The
factors are written one by one first; :func:`move` runs them on a few samples at a time, and
:class:`Moved` knows the derivative of all of them together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fft import fft, ifft
from torch.nn import functional

from pacefno.grid import (
    as_products,
    band_limit,
    frequencies,
    in_transform,
    move_axis,
    resample,
    shift_phase,
    unit_phase,
)

# Of a field, moved at once on a CPU: half a megabyte in float32, which the cache of a core holds.
PIECE_ENTRIES = 2**17
PHASES = 16  # of neighbouring modes, made from one another; a power of two
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


def moves_of(shift: Tensor, theta: Tensor, grid: Sequence[int]) -> list[Tensor]:
    """``T_y T_x R_theta`` with ``R_theta = H_x(-tan(theta/2)) H_y(sin theta) H_x(-tan(theta/2))``
    (paper, appendix A), as four moves of grid lines along x, y, x and y: the distance of each
    line, ``(B, lines)`` or ``(B, 1)``.

    The shift along x belongs to the last shear.
    """
    n, m = grid
    along_x, along_y = shear_distance(m, -torch.tan(theta / 2)), shear_distance(n, torch.sin(theta))
    return [along_x, along_y, along_x + shift[:, :1], shift[:, 1:]]


def axes_of(back: bool) -> tuple[int, ...]:
    """The tensor axes of the moves of :func:`moves_of`, or of the opposite ones in reverse."""
    return (-1, -2, -1, -2) if back else (-2, -1, -2, -1)


def move(field: Tensor, xi: Tensor, *, back: bool = False) -> Tensor:
    """Turn each sample ``(C, n, m)`` by its angle, then shift it, ``xi`` being ``(B, 3)``; or undo
    exactly this.
    """
    graph = as_products() or torch.compiler.is_compiling()
    xi = xi.to(field.dtype) if graph else xi.double()
    quarters, rest = split_angle(xi[:, 2])
    moves = moves_of(xi[:, :2], rest, field.shape[-2:])
    moves = [-distance for distance in reversed(moves)] if back else moves
    if graph:
        return _move_one_by_one(field, moves, quarters, back)
    if field.shape[-2] == field.shape[-1]:
        return _move(field, moves, quarters, back)
    none = torch.zeros_like(quarters)
    if back:
        return turn_each(_move(field, moves, none, back), -quarters)
    return _move(turn_each(field, quarters), moves, none, back)


def _move_one_by_one(field: Tensor, moves: list[Tensor], quarters: Tensor, back: bool) -> Tensor:
    """The factors one by one, all four turns made and one chosen: for a graph, which cannot branch
    on values.
    """
    field = field if back else _turn_chosen(field, quarters)
    for distance, axis in zip(moves, axes_of(back), strict=True):
        field = move_lines(field, distance, axis + 2)
    return _turn_chosen(field, -quarters) if back else field


def _turn_chosen(field: Tensor, quarters: Tensor) -> Tensor:
    """:func:`turn_each` without a branch."""
    count = quarters.remainder(4).reshape(-1, 1, 1, 1)
    odd = torch.where(count == 1, turn(field, 1), turn(field, 3))
    even = torch.where(count == 2, half_turn(field), field)
    return torch.where(count % 2 == 1, odd, even)


def _move(field: Tensor, moves: list[Tensor], quarters: Tensor, back: bool) -> Tensor:
    """The moves with what is known of their derivatives, where some are asked for."""
    counts, parts = quarters.tolist(), (field, *moves)
    followed = any(  # by derivatives that the written-down ones do not know
        in_transform(part) or forward_ad.unpack_dual(part).tangent is not None  # type: ignore[no-untyped-call]
        for part in parts
    )
    wanted = torch.is_grad_enabled() and any(part.requires_grad for part in parts)
    if wanted and not followed:
        moved: Tensor = Moved.apply(field, counts, back, *moves)[0]  # type: ignore[no-untyped-call]
        return moved
    phases = phases_of(field, moves, back)
    if wanted or followed:
        return moved_in_order(field, phases, counts, back)
    return in_pieces(field, phases, counts, back)


def moved_in_order(field: Tensor, phases: list[Tensor], counts: list[int], back: bool) -> Tensor:
    """:func:`in_pieces` through which derivatives of any kind and order find their way."""
    pair, made = alike(field), []
    for row, count in enumerate(counts):
        rows = slice(row, row + 1)
        values = to_complex(field[rows], pair)
        for step in range(len(phases)):
            spectrum = line_spectra(values, step, count, back) * phases[step][rows]
            values = to_values(spectrum, step, count, back)
        made.append(to_real(values, field.shape[1]))
    return torch.cat(made)


def in_pieces(
    field: Tensor,
    phases: list[Tensor],
    counts: list[int],
    back: bool,
    kept: list[Tensor] | None = None,
) -> Tensor:
    """The moves in order after quarter turns, or ``back``: the moves, then quarter turns undone.

    With ``kept`` the spectrum after each phase is added to it, piece by piece.
    """
    pair, into = alike(field), torch.empty_like(field, memory_format=torch.contiguous_format)
    for count, rows in pieces_of(field, counts):
        values = to_complex(field[rows], pair)
        for step in range(len(phases)):
            spectrum = line_spectra(values, step, count, back).mul_(phases[step][rows])
            if kept is not None:
                kept.append(spectrum)
            values = to_values(spectrum, step, count, back)
        write(values, into, rows)
    return into


class Moved(torch.autograd.Function):
    """:func:`in_pieces` with its derivative: the opposite moves in reverse, of a gradient.

    A move by d is ``z -> F^-1 p F z`` along its axis, with ``p = exp(-2 pi i k d)``. Its adjoint
    has the conjugate phase, and its derivative by the distance of a line is

        ``<g, dz'/dd> = sum_k Re(conj(G) (-2 pi i k) Z') / n = sum_k 2 pi k Im(conj(G) Z') / n``

    with the spectra G of the gradient and Z' of the moved values. The gradient is moved as its
    conjugate, whose spectrum is ``conj(G)`` if the two transforms change places.
    """

    @staticmethod
    def forward(field: Tensor, counts: list[int], back: bool, *moves: Tensor) -> Any:
        phases = phases_of(field, moves, back)
        kept: list[Tensor] = []
        return in_pieces(field, phases, counts, back, kept), *phases, *kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        field, ctx.counts, ctx.back, *moves = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(field, *moves, *output[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        if gradients[0] is None:
            return (None,) * len(ctx.needs_input_grad)
        field, *rest = ctx.saved_tensors
        moves, phases, kept = rest[:4], rest[4:8], rest[8:]
        if torch.is_grad_enabled():  # a derivative of the derivative is asked for
            # Views, because one distance was made from another, and each is meant for itself.
            views = [part.view_as(part) for part in (field, *moves)]
            made = moved_in_order(
                views[0], phases_of(field, views[1:], ctx.back), ctx.counts, ctx.back
            )
            wanted = [part for part in views if part.requires_grad]
            found = iter(torch.autograd.grad(made, wanted, gradients[0], create_graph=True))
            by_field, *by_moves = (next(found) if part.requires_grad else None for part in views)
            return by_field, None, None, *by_moves
        whole = torch.empty_like(field) if ctx.needs_input_grad[0] else None
        slopes = pulled_back(gradients[0], phases, ctx.counts, ctx.back, kept, whole)
        by_moves = [
            slope.sum_to_size(distance.shape) for slope, distance in zip(slopes, moves, strict=True)
        ]
        return whole, None, None, *by_moves


def pulled_back(
    gradient: Tensor,
    phases: list[Tensor],
    counts: list[int],
    back: bool,
    kept: Sequence[Tensor],
    whole: Tensor | None,
) -> list[Tensor]:
    """What a gradient of moved values says of the distance of each line, ``(B, lines)`` for each
    move, and of the field, written into ``whole`` if that is asked for.

    ``kept`` are the spectra of :func:`in_pieces`.
    """
    last, axes = len(phases) - 1, axes_of(back)
    sizes = [(len(gradient), gradient.shape[-3 - axis]) for axis in axes]
    slopes = [gradient.new_empty(size, dtype=torch.float64) for size in sizes]
    weights = [slope_weights(gradient.shape[axis], gradient.device) for axis in axes]
    spectra = iter(kept)
    for count, rows in pieces_of(gradient, counts):
        mine = [next(spectra) for _ in axes]
        values = to_complex(gradient[rows], mine[0].shape[1] < gradient.shape[1]).conj_physical_()
        for step in range(last, -1, -1):
            spectrum = line_spectra(values, last - step, count, not back, conjugate=True)
            product = (spectrum * mine[step]).sum(dim=1).imag.double()  # summed over channels
            slopes[step][rows] = product.movedim(axes[step], -1) @ weights[step]
            if step or whole is not None:
                spectrum = spectrum.mul_(phases[step][rows])
                values = to_values(spectrum, last - step, count, not back, conjugate=True)
        if whole is not None:
            write(values.conj_physical_(), whole, rows)
    return slopes


def pieces_of(field: Tensor, counts: list[int]) -> Iterator[tuple[int, slice | Tensor]]:
    """Samples with one number of quarter turns each, on a CPU no more than the caches hold."""
    most = len(field)
    if field.device.type == "cpu":
        most = max(1, PIECE_ENTRIES // field[0].numel())
    for count in sorted(set(counts)):
        rows = [row for row, other in enumerate(counts) if other == count]
        for start in range(0, len(rows), most):
            few = rows[start : start + most]
            if few[-1] - few[0] == len(few) - 1:
                yield count, slice(few[0], few[-1] + 1)
            else:
                yield count, torch.tensor(few, device=field.device)


def phases_of(field: Tensor, moves: Sequence[Tensor], back: bool) -> list[Tensor]:
    """What moves lines in their spectra, ``(B, 1, k_x, y)`` or ``(B, 1, x, k_y)``, over the number
    of modes: so inverse transforms need not be scaled.
    """
    n, m = field.shape[-2:]
    along_x, along_y, further_x, shift_y = reversed(moves) if back else moves
    first = line_phase(n, along_x, field.dtype, 1 / n)  # (B, y, k_x)
    last = first * line_phase(n, (further_x - along_x)[:, :1], field.dtype)
    middle, rise = (line_phase(m, part, field.dtype, 1 / m) for part in (along_y, shift_y))
    phases = [first.mT, middle, last.mT, rise]
    return [phase[:, None] for phase in (reversed(phases) if back else phases)]


def line_phase(n: int, distance: Tensor, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    """``scale exp(-2 pi i k d)`` for all modes of ``n`` points, ``(B, lines) -> (B, lines, n)``.

    The Nyquist mode stays where it is (see :func:`~pacefno.grid.shift_phase`). With ``k = q s + r``
    each phase is a product of two from short tables: the cosines and sines of all modes would take
    as long as a transform.
    """
    s = math.gcd(n // 2, PHASES) if n % 2 == 0 else 1
    k = frequencies(n, dtype=distance.dtype, device=distance.device)[::s]  # q s, in their order
    r = torch.arange(s, dtype=distance.dtype, device=distance.device)
    turns = (-distance[..., None] * part for part in (k, r))
    coarse, fine = (unit_phase((t - t.detach().round()).to(dtype)) for t in turns)
    phase = ((scale * coarse)[..., None] * fine[..., None, :]).flatten(-2)
    if n % 2 == 0:
        phase[..., n // 2] = scale
    return phase


def slope_weights(n: int, device: torch.device) -> Tensor:
    """``2 pi k`` of each mode; 0 for the Nyquist mode, which does not move."""
    k = frequencies(n, device=device)
    return 2 * math.pi * torch.where(2 * k.abs() == n, 0.0, k)


# A transform along x leaves its result with x as the axis that is contiguous in memory, and so
# stand the phases of moves along x.


def line_spectra(
    values: Tensor, step: int, count: int, back: bool, *, conjugate: bool = False
) -> Tensor:
    """The transform along the axis of a move, before the first one of quarter turns.

    ``F_x Q^count`` goes from ``(x, y)`` to ``(k_x, y)``. A quarter turn is a transposition and a
    mirror, and a mirror is a transform of the other sign: ``F M = n F^-1``. So ``Q^0 .. Q^3`` are
    ``1, M_x T, M_x M_y, M_y T``. The ``conjugate`` transform has the other sign throughout.
    """
    axis = axes_of(back)[step]
    if back or step:
        return transform(values, axis, conjugate)
    turned = values.transpose(-2, -1) if count % 2 else values
    lines = transform(turned, axis, conjugate != (count in (1, 2)))
    return _mirrored(lines.transpose(-2, -1)).transpose(-2, -1) if count in (2, 3) else lines


def to_values(
    spectrum: Tensor, step: int, count: int, back: bool, *, conjugate: bool = False
) -> Tensor:
    """Undoes :func:`line_spectra`, up to a factor n; quarter turns go back after the last."""
    axis = axes_of(back)[step]
    if not back or step < 3:
        return transform(spectrum, axis, not conjugate)
    if count in (2, 3):
        spectrum = _mirrored(spectrum.transpose(-2, -1)).transpose(-2, -1)
    turned = transform(spectrum, axis, conjugate == (count in (1, 2)))
    return turned.transpose(-2, -1) if count % 2 else turned


def transform(values: Tensor, axis: int, inverse: bool) -> Tensor:
    """The Fourier transform along an axis or its inverse, neither of them scaled."""
    return ifft(values, dim=axis, norm="forward") if inverse else fft(values, dim=axis)


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


def write(values: Tensor, into: Tensor, rows: slice | Tensor) -> None:
    """The real channels again, written where they belong: a pass less than to join them."""
    half = values.shape[1]
    into[rows, :half] = values.real
    into[rows, half:] = values.imag[:, : into.shape[1] - half]
