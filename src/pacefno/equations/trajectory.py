"""A benchmark of whole trajectories under the protocol of LPSDA (Brandstetter, Welling, Worrall, ICML 2022)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from pacefno.equations.base import Equation
from pacefno.equations.integrator import solve
from pacefno.equations.random_fields import generator_for
from pacefno.grid import points, resample
from pacefno.symmetry import LiePoint, Trajectories


@final
@dataclass(frozen=True)
class TrajectoryProblem:
    """Everything that distinguishes one such benchmark from another.

    A sample has a domain and a duration of its own, uniform within ``variation`` of the nominal ones, and starts from
    ``u_0(x) = sum_i A_i sin(2 pi l_i x / L + phi_i)``. It is solved for ``solved`` frames, the last ``frames`` are kept.
    """

    name: str
    title: str
    equation: Equation
    symmetry: LiePoint
    length: float  # nominal
    end_time: float  # nominal
    solved: int  # frames from time 0 to the end, both included
    train_range: tuple[float, ...]  # |xi| of the augmentation, in the coordinates of the symmetry
    ood_low: tuple[float, ...]  # and of the moved test set: beyond the augmentation
    ood_high: tuple[float, ...]
    file_name: tuple[str, str]  # of its files at LPSDA: the equation and a suffix
    solver_points: int  # the grid on which it is solved
    substeps: int  # steps of the solver between two frames
    frames: int = 140
    points: int = 256
    variation: float = 0.1
    waves: int = 10
    wavenumbers: tuple[int, ...] = (1, 2)
    history: int = 20  # frames that a model sees, and predicts at once, in LPSDA's own setting
    paper: dict[str, tuple[float, float]] = field(default_factory=dict)  # model -> NMSE over 100 frames and its deviation

    @property
    def spacing(self) -> float:
        """The nominal time between two frames."""
        return self.end_time / (self.solved - 1)

    def initial(self, seed: int, split: str, indices: Iterable[int]) -> tuple[Tensor, Tensor, Tensor]:
        """States ``(B, 1, solver_points)``, lengths ``(B,)`` and spacings ``(B,)``; each depends on its own key alone."""
        draws = [self._draw(generator_for(seed, self.name, split, index)) for index in indices]
        states, lengths, spacings = zip(*draws, strict=True)
        return torch.stack(states), torch.stack(lengths), torch.stack(spacings)

    def _draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        scales = 1 + self.variation * (2 * torch.rand(2, dtype=torch.float64, generator=generator) - 1)
        amplitude, phase, choice = torch.rand(3, self.waves, 1, dtype=torch.float64, generator=generator)
        wavenumber = torch.tensor(self.wavenumbers, dtype=torch.float64)[(choice * len(self.wavenumbers)).long()]
        angle = 2 * math.pi * (wavenumber * points((self.solver_points,)) + phase)  # (waves, solver_points)
        state = ((amplitude - 0.5) * torch.sin(angle)).sum(dim=0, keepdim=True)
        return state, self.length * scales[0], self.spacing * scales[1]

    def solve(self, initial: Tensor, length: Tensor, spacing: Tensor) -> Trajectories:
        """The last frames of the solutions from these states, on the points of the benchmark."""
        times = [float(frame) for frame in range(self.solved - self.frames, self.solved)]
        states = solve(self.equation, initial, times, 1 / self.substeps, length=length, time_unit=spacing)
        return Trajectories(resample(states[:, :, 0], (self.points,)), length, spacing)

    def augment(self, trajectories: Trajectories, generator: torch.Generator) -> Trajectories:
        """A fresh draw of g2, g3 and g4 for each trajectory, in this order, within the training range."""
        xi = self.symmetry.sample([0.0] * self.symmetry.size, self.train_range, len(trajectories), generator)
        return self.symmetry.act(trajectories, xi.to(trajectories.u.device))
