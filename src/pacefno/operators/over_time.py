"""Operators between several snapshots, and what the operators of trajectories need to know.

The simplest way from several snapshots to several needs no class: they are the channels of an FNO.
Which way is worth its time is measured by ``pacefno study snapshots``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pacefno.fields import Box
from pacefno.grid import check_field, wavenumbers
from pacefno.operators.fno import FNO
from pacefno.operators.group_fno import GroupFNO
from pacefno.registry import register

TIME_PADDING = 6  # zeros after the last time: time is not periodic
TURNS = ("p1", "p4")  # point groups of the plane without mirrors


@register("operator", "space-time-fno")
@final
class SpaceTimeFNO(nn.Module):
    """A three-dimensional FNO over (x, y, t), the paper's choice for Navier-Stokes.

    Every output time sees all input snapshots and its own time. With a ``group`` of turns of the
    plane it is a group FNO that leaves time alone (G-FNO's space-time form). Turns leave the
    values of scalars and of vorticity as they are, so these are the channels that it is for.
    """

    def __init__(
        self,
        snapshots_in: int,
        snapshots_out: int,
        width: int,
        modes: int,
        time_modes: int,
        layers: int = 4,
        positions: Literal["grid"] | None = None,
        head: int = 128,
        group: str | None = None,
    ) -> None:
        super().__init__()
        self.snapshots_out = snapshots_out
        sizes = (modes, modes, time_modes)
        inputs = snapshots_in + 1
        if group is None:
            self.network: nn.Module = FNO(
                3, inputs, 1, width, sizes, layers, positions=positions, head=head
            )
            return
        if group not in TURNS or positions is not None:
            raise ValueError(
                f"group: expected one of {', '.join(TURNS)} and no positions, got {group!r} and "
                f"positions={positions!r}"
            )
        self.network = GroupFNO(3, inputs, 1, width, sizes, group, layers=layers, norm=False)

    def forward(self, field: Tensor) -> Tensor:
        count = self.snapshots_out
        times = torch.arange(count, dtype=field.dtype, device=field.device) / count
        repeated = field[..., None].expand(*field.shape, count)  # (B, in, n, m, out)
        clock = times.expand(field.shape[0], 1, *field.shape[2:], -1)
        padded = F.pad(torch.cat([repeated, clock], dim=1), (0, TIME_PADDING))
        snapshots: Tensor = self.network(padded)[:, 0, ..., :count]
        return snapshots.movedim(-1, 1).contiguous()


@register("operator", "recurrent")
@final
class Recurrent(nn.Module):
    """A network that predicts the next few snapshots, fed its own output until all are there."""

    def __init__(self, operator: nn.Module, snapshots_out: int) -> None:
        super().__init__()
        self.operator = operator
        self.snapshots_out = snapshots_out

    def forward(self, field: Tensor) -> Tensor:
        window, found = field, list[Tensor]()
        while sum(part.shape[1] for part in found) < self.snapshots_out:
            following = self.operator(window)
            found.append(following)
            window = torch.cat([window, following], dim=1)[:, -field.shape[1] :]
        return torch.cat(found, dim=1)[:, : self.snapshots_out]


@register("operator", "residual")
@final
class Residual(nn.Module):
    """The change since the last input snapshot: ``u_last + G(a)`` for every output snapshot."""

    def __init__(self, operator: nn.Module, channels: int = 1) -> None:
        super().__init__()
        self.operator = operator
        self.channels = channels  # of one snapshot

    def forward(self, field: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        change = self.operator(field, *args, **kwargs)
        last = field[:, -self.channels :]
        return change + last.repeat(1, change.shape[1] // self.channels, *[1] * (field.ndim - 2))


@register("operator", "conditioned")
@final
class Conditioned(nn.Module):
    """An operator that is told the box of each sample, as constant channels after the field's.

    They are logarithms of lengths and time step over their nominal values, divided by
    ``variation``: 0 where nominal and +-1 at the usual extremes. (LPSDA appends the numbers
    themselves.) Without a box all samples have the nominal one.
    """

    def __init__(
        self, operator: nn.Module, lengths: list[float], step: float, variation: float
    ) -> None:
        super().__init__()
        self.operator = operator
        self.nominal = [*lengths, step]
        self.variation = variation

    def forward(self, field: Tensor, box: Box | None = None) -> Tensor:
        if box is None:
            ratios = field.new_zeros(field.shape[0], len(self.nominal))
        else:
            own = torch.cat([box.lengths, box.step[:, None]], dim=1).double()
            ratios = torch.log(own / own.new_tensor(self.nominal)) / self.variation
        channels = ratios.to(field.dtype).reshape(*ratios.shape, *[1] * (field.ndim - 2))
        told = channels.expand(-1, -1, *field.shape[2:])
        predicted: Tensor = self.operator(torch.cat([field, told], dim=1))
        return predicted


@register("operator", "split-step")
@final
class SplitStep(nn.Module):
    """One step of ``u_t = L u + N(u)``: half a step of L, a learnt step of the rest, half a step.

    The linear part ``L = sum_p c_p sum_axes d^p/dx^p`` is solved exactly for the box and the time
    step of each sample (Strang splitting), so that the network learns only what is nonlinear. It is
    given the field and its slopes, and predicts a change whose mean is taken out: equations whose
    nonlinear part is a divergence conserve it.

    Args:
        operator: from ``C * (1 + dim)`` channels, the field and its slope along each axis, to C.
        linear: pairs ``(p, c_p)``: ``[(3, -1.0)]`` for ``u_t = -u_xxx``.
        lengths, step: box and time step of samples that do not bring their own.
    """

    def __init__(
        self,
        operator: nn.Module,
        linear: Sequence[Sequence[float]],
        lengths: Sequence[float],
        step: float,
    ) -> None:
        super().__init__()
        self.operator = operator
        self.linear = [(int(power), float(factor)) for power, factor in linear]
        self.lengths = list(lengths)
        self.step = step

    def forward(self, field: Tensor, box: Box | None = None) -> Tensor:
        grid = tuple(field.shape[2:])
        check_field(field, dim=len(self.lengths), finite=False)
        ik = 1j * self._wavenumbers(field, box)  # (B or 1, dim, *half_grid)
        powers = ((factor * ik**power).sum(dim=1) for power, factor in self.linear)
        rate = sum(powers, torch.zeros_like(ik[:, 0]))
        step = field.new_tensor([self.step]).double() if box is None else box.step.double()
        dtype = torch.complex64 if field.dtype == torch.float32 else torch.complex128
        half = torch.exp(rate * step.reshape(-1, *[1] * len(grid)) / 2).to(dtype)[:, None]
        axes = tuple(range(2, field.ndim))
        v_hat = torch.fft.rfftn(field, dim=axes) * half  # (B, C, *half_grid)
        slopes = (v_hat[:, :, None] * ik.to(dtype)[:, None]).flatten(1, 2)
        seen = torch.fft.irfftn(torch.cat([v_hat, slopes], dim=1), s=grid, dim=axes)
        change = self.operator(seen) if box is None else self.operator(seen, box=box)
        change = change - change.mean(dim=axes, keepdim=True)
        moved = (v_hat + torch.fft.rfftn(change, dim=axes)) * half
        return torch.fft.irfftn(moved, s=grid, dim=axes)

    def _wavenumbers(self, field: Tensor, box: Box | None) -> Tensor:
        """``2 pi k / L`` of each sample in float64, ``(B or 1, dim, *half_grid)``."""
        numbers = wavenumbers(field.shape[2:], device=field.device)
        lengths = field.new_tensor([self.lengths]) if box is None else box.lengths
        ones = [1] * len(self.lengths)
        return 2 * math.pi * numbers / lengths.double().reshape(*lengths.shape, *ones)
