"""Operators between several snapshots, and what the operators of trajectories need to know.

The simplest way from several snapshots to several needs no class: they are the channels of an FNO.
Which way is worth its time is measured by ``pacefno study snapshots``.
"""

from __future__ import annotations

from typing import Any, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pacefno.fields import Box
from pacefno.operators.fno import FNO
from pacefno.registry import register

TIME_PADDING = 6  # zeros after the last time: time is not periodic


@register("operator", "space-time-fno")
@final
class SpaceTimeFNO(nn.Module):
    """A three-dimensional FNO over (x, y, t), the paper's choice for Navier-Stokes.

    Every output time sees all input snapshots and its own time.
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
    ) -> None:
        super().__init__()
        self.snapshots_out = snapshots_out
        sizes = (modes, modes, time_modes)
        inputs = snapshots_in + 1
        self.network = FNO(3, inputs, 1, width, sizes, layers, positions=positions, head=head)

    def forward(self, field: Tensor) -> Tensor:
        count = self.snapshots_out
        times = torch.arange(count, dtype=field.dtype, device=field.device) / count
        repeated = field[..., None].expand(*field.shape, count)  # (B, in, n, m, out)
        clock = times.expand(len(field), 1, *field.shape[2:], -1)
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
            ratios = field.new_zeros(len(field), len(self.nominal))
        else:
            own = torch.cat([box.lengths, box.step[:, None]], dim=1).double()
            ratios = torch.log(own / own.new_tensor(self.nominal)) / self.variation
        channels = ratios.to(field.dtype).reshape(*ratios.shape, *[1] * (field.ndim - 2))
        told = channels.expand(-1, -1, *field.shape[2:])
        predicted: Tensor = self.operator(torch.cat([field, told], dim=1))
        return predicted
