"""Forecasts of trajectories, frame by frame or in blocks: an operator of windows, plain or within PACE's frame."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from pacefno.frames.windows import WindowFrame
from pacefno.symmetry import Trajectories


@final
class Conditions(nn.Module):
    """Cell and spacing of each window as two constant channels: logarithms, 0 where nominal and +-1 at the usual extremes.

    LPSDA appends the numbers themselves; in this form they are the same information at the scale of a network's inputs.
    """

    def __init__(self, length: float, spacing: float, variation: float) -> None:
        super().__init__()
        self.length = length
        self.spacing = spacing
        self.unit = variation

    def forward(self, window: Trajectories) -> Tensor:
        ratios = torch.stack([window.length / self.length, window.spacing / self.spacing], dim=1)
        channels = (torch.log(ratios) / self.unit).to(window.u.dtype)
        return channels[:, :, None].expand(-1, -1, window.u.shape[2])


@final
class Forecaster(nn.Module):
    """The frames after a window: ``C_exp(xi_T) G C_exp(xi_0)^-1`` with a structured frame, or ``G`` itself without one.

    ``operator`` maps ``history`` frames and two channels of conditions to the next ``future`` frames. With ``residual`` it
    predicts how they differ from the last one it has seen.
    """

    def __init__(
        self,
        operator: nn.Module,
        conditions: Conditions,
        history: int,
        future: int,
        *,
        frame: WindowFrame | None = None,
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.operator = operator
        self.conditions = conditions
        self.history = history
        self.future = future
        self.frame = frame
        self.residual = residual

    def forward(self, u: Tensor, length: Tensor, spacing: Tensor, jitter: Tensor | None = None) -> Tensor:
        """``(B, history, n) -> (B, future, n)``; lengths and spacings in physical units, ``(B,)``.

        In training ``jitter`` may displace the frame: the operator then sees the canonical window moved by that element, and
        what it predicts is pushed out all the same. So it learns a neighbourhood of the slice instead of the slice alone.
        """
        window = Trajectories(u, length, spacing)
        if self.frame is None:
            return self._operate(window)
        symmetry = self.frame.symmetry
        xi_0 = self.frame(window)
        if jitter is not None:
            xi_0 = symmetry.compose(xi_0, symmetry.inverse_element(jitter))
        canonical = symmetry.inverse(window, xi_0)
        later = Trajectories(self._operate(canonical), canonical.length, canonical.spacing)
        xi_T = symmetry.transport(xi_0, canonical.horizon(self.history))
        return symmetry.act(later, xi_T).u

    def _operate(self, window: Trajectories) -> Tensor:
        change: Tensor = self.operator(torch.cat([window.u, self.conditions(window)], dim=1))
        return change + window.u[:, -1:] if self.residual else change

    def rollout(self, window: Trajectories, frames: int) -> Tensor:
        """The next ``frames`` frames, ``(B, frames, n)``: predictions become the window of the next step.

        A rollout that leaves the finite numbers is infinite from there on: the worst of scores, and no reason to stop.
        """
        seen, found = window.u[:, -self.history :], []
        lost = torch.zeros(len(window), dtype=torch.bool, device=window.u.device)
        for _ in range(-(-frames // self.future)):
            block = self(seen, window.length, window.spacing)
            lost = lost | ~torch.isfinite(block).flatten(1).all(dim=1)
            found.append(block.masked_fill(lost[:, None, None], math.inf))
            seen = torch.cat([seen, block], dim=1)[:, -self.history :].masked_fill(lost[:, None, None], 0.0)
        return torch.cat(found, dim=1)[:, :frames]
