"""Where a rotation tore a periodic field, and by how much: enough to find the rotation again.

A shear ``H_x(a)`` about the centre moves the line ``y`` of a torus by ``a (y - 1/2)``. Across ``y = 0 = 1`` neighbouring
lines are then ``a`` apart: a straight seam. A rotation by three shears, moved by ``t``, shows the seam of its last shear
along ``y = t_y`` with the jump ``-tan(theta/2)``; with that shear undone, the seam of the middle one lies along
``x = t_x`` with the jump ``sin(theta)``. Both are found by comparing neighbouring lines, without any search over fields.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacefno.grid import frequencies, unit_phase
from pacefno.symmetry.motion import move_lines, shear

STEEPEST = math.tan(math.pi / 8)  # the first and last shear of a rotation by 45 degrees
STEEPEST_MIDDLE = math.sin(math.pi / 4)
LINE_MODES = 3  # the long waves along a line: a seam that is not parallel to the lines hardly shows in them
NEIGHBOUR_MODES = 8
JUMPS = 41  # how finely jumps are searched before they are fitted
OFFSETS = (-0.75, -0.25, 0.25, 0.75)  # in cells, around the gap between the two lines


def high_pass(k_squared: Tensor, cutoff: float, order: int = 1) -> Tensor:
    """``(k^2 / (k^2 + k0^2))^order``: the weight of roughness at the scale ``1/k0``."""
    return (k_squared / (k_squared + cutoff**2)) ** order


def line_modes(field: Tensor, axis: int, count: int) -> Tensor:
    """Modes 1..count along ``axis`` of every line of ``(B, n, m)``, complex ``(B, count, lines)``."""
    spectrum = torch.fft.rfft(field, dim=axis - 2, norm="forward")
    if axis == 1:
        spectrum = spectrum.transpose(-1, -2)
    return spectrum[:, 1 : count + 1]


def gap_gain(modes: Tensor, jumps: Tensor) -> Tensor:
    """How much better each line continues the one before if it jumped, ``(B, jumps, lines)``.

    ``|w_{j+1} - w_j|^2 - |w_{j+1} - w_j(. + s)|^2``, up to a factor of two, from the cross spectrum of neighbours.
    """
    cross = modes.conj() * modes.roll(-1, dims=-1)  # (B, K, lines)
    k = torch.arange(1, modes.shape[1] + 1, dtype=jumps.dtype, device=jumps.device)
    return torch.einsum("sk,bkm->bsm", unit_phase(-jumps[:, None] * k) - 1, cross).real


def seam_residual(modes: Tensor, position: Tensor, jump: Tensor, cutoff: float, order: int = 1) -> Tensor:
    """What is rough across the lines once the seam at ``position`` ``(B,)`` has been moved to 0 and its shear undone.

    ``modes`` are those of :func:`line_modes`, transformed across the lines too; ``jump`` is ``(B, S)`` or ``(1, S)``. The
    result, ``(B, S, K, lines)``, is relative to the norm of the modes: zero where the seam has gone.
    """
    lines = modes.shape[-1]
    across = frequencies(lines, dtype=position.dtype, device=position.device)
    k = torch.arange(1, modes.shape[1] + 1, dtype=position.dtype, device=position.device)
    offset = torch.arange(lines, dtype=position.dtype, device=position.device) / lines - 0.5
    shifted = torch.fft.ifft(modes * unit_phase(position[:, None] * across)[:, None], dim=-1)  # (B, K, lines)
    straight = shifted[:, None] * unit_phase(jump[..., None, None] * k[:, None] * offset)
    norm = torch.view_as_real(modes).square().sum(dim=(1, 2, 3)).sqrt().clamp_min(torch.finfo(position.dtype).tiny)
    return torch.fft.fft(straight, dim=-1) * high_pass(across.square(), cutoff, order) / norm[:, None, None, None]


def find_seam(field: Tensor, axis: int, steepest: float, cutoff: float) -> Tensor:
    """Position and jump of the straight seam between lines along ``axis`` of ``(B, n, m)``, ``(B, 2)``, to half a cell."""
    jumps = torch.linspace(-steepest, steepest, JUMPS, dtype=field.dtype, device=field.device)
    lines = field.shape[1 if axis == 1 else 2]
    gap = gap_gain(line_modes(field, axis, NEIGHBOUR_MODES), jumps).amax(dim=1).argmax(dim=1)
    modes = torch.fft.fft(line_modes(field, axis, LINE_MODES), dim=-1)
    places = [(gap + 0.5 + offset) / lines for offset in OFFSETS]
    residuals = [torch.view_as_real(seam_residual(modes, y, jumps[None], cutoff)) for y in places]
    energy = [residual.square().sum(dim=(2, 3, 4)) for residual in residuals]
    lowest = torch.stack(energy, dim=1).flatten(1).argmin(dim=1)  # over offsets and jumps
    position = torch.stack(places, dim=1).gather(1, lowest[:, None] // JUMPS)
    return torch.cat([position, jumps[lowest % JUMPS][:, None]], dim=1)


def gap_with_jump(field: Tensor, axis: int, jump: Tensor) -> Tensor:
    """Position of the gap between lines along ``axis`` that a known jump, one per sample, explains best, ``(B,)``."""
    modes = line_modes(field, axis, NEIGHBOUR_MODES)
    cross = modes.conj() * modes.roll(-1, dims=-1)
    k = torch.arange(1, modes.shape[1] + 1, dtype=jump.dtype, device=jump.device)
    gain = (cross * (unit_phase(-jump[:, None] * k) - 1)[..., None]).real.sum(dim=1)  # (B, lines)
    return (gain.argmax(dim=1) + 0.5) / gain.shape[-1]


def undo_last_shear(field: Tensor, y: Tensor, slope: Tensor) -> Tensor:
    """The field ``(B, n, m)`` before the last shear of its rotation, but for a shift along x: its seam at ``y`` is gone."""
    return shear(move_lines(field[:, None], -y[:, None], 1), -slope, 0)[:, 0]
