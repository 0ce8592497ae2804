"""Operators that predict several frames from several: by one network over space and time, or by one that is fed its own output.

The third way, frames as channels of a plain FNO, needs no class. Which one is worth its time is measured in
``benchmarks/frames_to_frames.py``.
"""

from __future__ import annotations

from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pacefno.operators.fno import FNO

TIME_PADDING = 6  # time is not periodic: zeros keep the last frame from leaking into the first


@final
class SpaceTimeFNO(nn.Module):
    """A three-dimensional FNO over (x, y, t): every output time sees all input frames and its own time (the paper's choice)."""

    def __init__(
        self,
        frames_in: int,
        frames_out: int,
        width: int,
        modes: int,
        time_modes: int,
        *,
        layers: int = 4,
        positions: Literal["grid"] | None = None,
        head: int = 128,
    ) -> None:
        super().__init__()
        self.frames_out = frames_out
        sizes = (modes, modes, time_modes)
        self.network = FNO(3, frames_in + 1, 1, width, sizes, layers=layers, positions=positions, head=head)

    def forward(self, field: Tensor) -> Tensor:
        times = torch.arange(self.frames_out, dtype=field.dtype, device=field.device) / self.frames_out
        repeated = field[..., None].expand(*field.shape, self.frames_out)  # (B, frames_in, n, m, frames_out)
        clock = times.expand(len(field), 1, *field.shape[2:], -1)
        padded = F.pad(torch.cat([repeated, clock], dim=1), (0, TIME_PADDING))
        frames: Tensor = self.network(padded)[:, 0, ..., : self.frames_out]
        return frames.movedim(-1, 1).contiguous()


@final
class Rollout(nn.Module):
    """A network that predicts the next few frames from the last ones, applied to its own predictions until all are there."""

    def __init__(self, step: nn.Module, frames_out: int) -> None:
        super().__init__()
        self.step = step
        self.frames_out = frames_out

    def forward(self, field: Tensor) -> Tensor:
        window, found = field, list[Tensor]()
        while sum(part.shape[1] for part in found) < self.frames_out:
            following = self.step(window)
            found.append(following)
            window = torch.cat([window, following], dim=1)[:, -field.shape[1] :]
        return torch.cat(found, dim=1)[:, : self.frames_out]
