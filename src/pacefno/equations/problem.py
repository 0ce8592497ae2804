"""A benchmark problem: an equation with its initial states, horizon, grids and ranges (protocol of the paper's tables)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pacefno.equations.base import Equation
from pacefno.equations.integrator import solve
from pacefno.equations.random_fields import generator_for
from pacefno.symmetry import CanonicalSlice, Group

MAX_REDRAWS = 200


@dataclass(frozen=True)
class Problem:
    """Everything that distinguishes one benchmark from another; the rest of the package reads it from here.

    Frames are channels: an input has ``frames_in * len(equation.channels)`` of them. With a single input frame that is
    the initial state, and the target is the state one horizon later.
    """

    name: str
    title: str
    equation: Equation
    draw: Callable[[torch.Generator, tuple[int, ...]], Tensor]  # a raw initial state (C, *grid)
    slice: CanonicalSlice
    grid: tuple[int, ...]  # the OOD grid, on which everything is solved
    coarsening: int  # the ID grid takes every such point
    spacing: float  # time between frames
    step: float  # time step of the solver
    train_range: tuple[float, ...]  # |xi| of training perturbations
    ood_low: tuple[float, ...]  # |xi| of the OOD test set: a shell beyond the training range
    ood_high: tuple[float, ...]
    frames_in: int = 1
    frames_out: int = 1
    exact_group: bool = True  # False where the group is only nearly a symmetry: targets are then re-solved too
    precision: str = "float64"  # in which datasets are solved; float32 where that is well below the error of the step
    in_tables: bool = True  # False for a twin made for demos and tests
    per_channel: bool = False  # errors averaged over channels instead of pooled
    paper: dict[str, tuple[float, float]] = field(default_factory=dict)  # model -> (ID, OOD) errors it reports

    @property
    def group(self) -> Group:
        return self.equation.group

    @property
    def dim(self) -> int:
        return self.equation.dim

    @property
    def horizon(self) -> float:
        """The time by which the frame of the input is carried to that of the target."""
        return self.lead_time if self.frames_in == 1 else 0.0

    @property
    def lead_time(self) -> float:
        """How far ahead the last target frame lies of the last input frame."""
        return self.spacing * self.frames_out

    @property
    def in_channels(self) -> int:
        return self.frames_in * len(self.equation.channels)

    @property
    def out_channels(self) -> int:
        return self.frames_out * len(self.equation.channels)

    @property
    def id_grid(self) -> tuple[int, ...]:
        return tuple(n // self.coarsening for n in self.grid)

    def initial_state(self, seed: int, split: str, index: int, *, stationary: bool = False) -> tuple[Tensor, int]:
        """Sample ``index`` of a split on the canonical slice, ``(C, *grid)``, and how many draws were rejected.

        ``stationary`` skips the centring: the law is then translation invariant and carries no frame (the paper's 1-D setting).
        """
        for attempt in range(MAX_REDRAWS):
            state = self.draw(generator_for(seed, self.name, split, index, attempt), self.grid)[None]
            if stationary:
                return state[0], attempt
            if float(self.slice.quality(state)) >= self.slice.threshold:
                return self.to_slice(state)[0], attempt
        raise RuntimeError(f"{self.name}: {MAX_REDRAWS} draws in a row carry no frame; lower the slice threshold")

    def to_slice(self, state: Tensor) -> Tensor:
        """Pull states onto the slice; twice, because a rotation about the centre needs the centre first."""
        for _ in range(2):
            state = self.group.inverse(state, self.slice.coordinates(state))
        return state

    def solve(self, initial: Tensor, on_step: Callable[[], None] | None = None) -> tuple[Tensor, Tensor]:
        """Inputs and targets ``(B, frames * C, *grid)`` of a batch of initial states."""
        times = self.times
        states = solve(self.equation, initial, times, self.step, on_step)  # (B, frames, C, *grid)
        split = self.frames_in
        return states[:, :split].flatten(1, 2), states[:, split:].flatten(1, 2)

    @property
    def times(self) -> Sequence[float]:
        return [i * self.spacing for i in range(self.frames_in + self.frames_out)]

    @property
    def solver_steps(self) -> int:
        """How many steps one solve takes: what a progress bar counts."""
        per_frame = max(1, -(-round(self.spacing / self.step * 1e9) // 10**9))
        return per_frame * (self.frames_in + self.frames_out - 1)
