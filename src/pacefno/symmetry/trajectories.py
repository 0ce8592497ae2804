"""Solutions in time, each on a domain of its own length and with a spacing of its own between the frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from pacefno.grid import FieldError


@final
@dataclass(frozen=True)
class Trajectories:
    """``u`` of shape ``(B, frames, n)`` on the points ``i length / n``; ``length`` and ``spacing`` in time are ``(B,)``.

    Frames stand where a field has its channels, so ``u`` can be given to everything that takes ``(B, C, n)``.
    """

    u: Tensor
    length: Tensor
    spacing: Tensor

    def __post_init__(self) -> None:
        shape = tuple(self.u.shape)
        if len(shape) != 3 or 0 in shape or not self.u.is_floating_point():
            raise FieldError(f"trajectories: expected real values (B, frames, n), got {shape} {self.u.dtype}")
        for name, values in (("length", self.length), ("spacing", self.spacing)):
            if tuple(values.shape) != shape[:1]:
                raise FieldError(f"trajectories: expected {name} of shape {shape[:1]}, got {tuple(values.shape)}: one for each")

    def __len__(self) -> int:
        return len(self.u)

    @property
    def frames(self) -> int:
        return self.u.shape[1]

    @property
    def cell(self) -> Tensor:
        """The distance of two points, ``(B,)``: LPSDA's dx."""
        return self.length / self.u.shape[2]

    def horizon(self, frames: float | Tensor) -> Tensor:
        """The time that so many frames take, in units in which every domain has length 1, ``(B,)``."""
        return frames * self.spacing / self.length

    def select(self, index: slice | Tensor) -> Trajectories:
        """Some of the trajectories."""
        return Trajectories(self.u[index], self.length[index], self.spacing[index])

    def window(self, start: int | Tensor, frames: int) -> Trajectories:
        """Time translation (g1): ``frames`` frames from ``start`` on, which is one number or one per trajectory, ``(B,)``."""
        first = torch.as_tensor(start, device=self.u.device).expand(len(self))
        if int(first.min()) < 0 or int(first.max()) + frames > self.frames or frames < 1:
            raise FieldError(f"trajectories: {frames} frames from {start} on do not lie within the {self.frames} there are")
        rows = torch.arange(len(self), device=self.u.device)[:, None]
        return Trajectories(
            self.u[rows, first[:, None] + torch.arange(frames, device=self.u.device)], self.length, self.spacing
        )

    def to(self, target: torch.dtype | torch.device) -> Trajectories:
        """The same in another precision or on another device."""
        return Trajectories(self.u.to(target), self.length.to(target), self.spacing.to(target))

    @staticmethod
    def joined(parts: Sequence[Trajectories]) -> Trajectories:
        """All trajectories of several, in order."""
        return Trajectories(
            torch.cat([part.u for part in parts]),
            torch.cat([part.length for part in parts]),
            torch.cat([part.spacing for part in parts]),
        )


def window_starts(
    trajectories: Trajectories, history: int, future: int, generator: torch.Generator, *, translate: bool
) -> Tensor:
    """Where LPSDA lets a training window begin, ``(B,)``: with g1 anywhere, else only where its test rollout begins a block."""
    first, step = (0, 1) if translate else (history, history)
    choices = torch.tensor(range(first, trajectories.frames - history - future + 1, step))
    if not len(choices):
        raise FieldError(
            f"trajectories: no window of {history} + {future} frames that begins at {first} or later "
            f"fits into {trajectories.frames} frames"
        )
    return choices[torch.randint(len(choices), (len(trajectories),), generator=generator)]
