"""One example or more of every equation: states, box, steps and elements on which its laws hold.

The laws run over this table. An equation of ``pacefno.pde`` without an example fails a test.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pacefno.fields import Box, Field
from pacefno.grid import band_limit, points
from pacefno.pde import (
    Burgers,
    Equation,
    KdV,
    KuramotoSivashinsky,
    NavierStokes,
    NavierStokesVelocity,
    ShallowWater,
    solve,
)
from pacefno.pde.initial import compact_vorticity, gaussian_field, generator_for, scale_to_rms
from pacefno.pde.navier_stokes import flow_of

TWO_PI = 2 * math.pi
Draw = Callable[[torch.Generator, tuple[int, ...]], Tensor]


@dataclass(frozen=True)
class Example:
    """An equation, its random states, and elements that move them far."""

    equation: Equation
    draw: Draw
    step: float  # a time step that resolves it
    low: tuple[float, ...]  # |xi| of far elements
    high: tuple[float, ...]
    stepping: float = 0.2  # a time in which errors of the time stepper rise above round-off
    moving: float = 0.1  # a time in which moved solutions are compared
    allowed: float = 1e-8  # of their difference
    length: float | None = None  # of the box, where it is not 1

    def box(self, batch: int) -> Box | None:
        if self.length is None:
            return None
        one = torch.ones(batch, dtype=torch.float64)
        return Box(self.length * one[:, None], one)

    def states(self, n: int = 32, top: int = 4, batch: int = 2) -> Tensor:
        """Random states in their lowest modes on a small grid."""
        grid = (n,) * self.equation.dim if self.equation.dim < 3 else (16,) * 3
        draws = [self.draw(generator_for("small", i), grid) for i in range(batch)]
        return band_limit(torch.stack(draws), self.equation.dim, top)

    def field(self, values: Tensor, time: float = 0.0) -> Field:
        length = 1.0 if self.length is None else self.length
        type = self.equation.field_type((time,), lengths=length)
        return Field(values, type, self.box(len(values)))

    def last(self, initial: Tensor, time: float, steps: int) -> Tensor:
        """The solution at a time, by so many steps."""
        box = self.box(len(initial))
        return solve(self.equation, initial, [time], time / steps, box=box)[:, 0]

    def elements(self, batch: int) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        return self.equation.group.sample(self.low, self.high, batch, generator)


def draw_wave(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    return gaussian_field(grid, generator, sigma=25.0, tau=5.0, gamma=2.0, cutoff=341)[None]


def draw_plane_wave(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    return scale_to_rms(gaussian_field(grid, generator, tau=5.0, gamma=3.0, cutoff=21), 0.4)[None]


def draw_water(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    h, mx, my = (gaussian_field(grid, generator, tau=5.0, gamma=3.0, cutoff=21) for _ in range(3))
    return torch.stack([1 + scale_to_rms(h, 0.2), scale_to_rms(mx, 0.15), scale_to_rms(my, 0.15)])


def draw_compact(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    field = gaussian_field(grid, generator, tau=7.0, gamma=2.5, cutoff=21)
    return compact_vorticity(field, radius=0.14, rms=3.0)[None]


def draw_periodic(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    return scale_to_rms(gaussian_field(grid, generator, tau=7.0, gamma=2.5, cutoff=21), 1.3)[None]


def draw_flow(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    """The velocity of periodic vorticity, with a mean flow."""
    mean = torch.tensor([0.1, -0.05], dtype=torch.float64)
    return flow_of(draw_periodic(generator, grid)[0]) + mean[:, None, None]


def draw_long_waves(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    x, phase = points(grid), TWO_PI * torch.rand(3, dtype=torch.float64, generator=generator)
    waves = (a * torch.sin(TWO_PI * k * x + phase[k - 1]) for a, k in ((1, 1), (0.4, 2), (0.2, 3)))
    return sum(waves, torch.zeros_like(x))


QUARTER = math.pi / 4
EXAMPLES: dict[str, Example] = {
    "burgers1d": Example(Burgers(1, 5e-4), draw_wave, 4e-4, (0.1, 0.2), (0.5, 1.0)),
    "burgers1d_smooth": Example(Burgers(1, 1e-2), draw_wave, 2e-3, (0.1, 0.2), (0.5, 1.0)),
    "burgers2d": Example(Burgers(2, 5e-3), draw_plane_wave, 5e-3, (0.1, 0.1, 0.5), (0.5, 0.5, 1.5)),
    "burgers3d": Example(
        Burgers(3, 2.5e-2), draw_plane_wave, 1e-2, (0.1, 0.1, 0.1, 0.5), (0.5, 0.5, 0.5, 1.5)
    ),
    "shallow_water": Example(
        ShallowWater(2e-3, 1.0), draw_water, 2.5e-3, (0.15, 0.15, 0.2, 0.2), (0.5, 0.5, 1.0, 1.0)
    ),
    "navier_stokes": Example(
        NavierStokes(4e-4), draw_compact, 0.02, (0.05, 0.05, QUARTER), (0.25, 0.25, 2 * QUARTER)
    ),
    "navier_stokes_periodic": Example(
        NavierStokes(1e-3),
        draw_periodic,
        0.04,
        (0.05, 0.05, QUARTER),
        (0.25, 0.25, 2 * QUARTER),
        stepping=0.8,  # a slower flow
    ),
    "navier_stokes_velocity": Example(
        NavierStokesVelocity(1e-3),
        draw_flow,
        0.04,
        (0.05, 0.05, QUARTER, 0.05, 0.05),
        (0.25, 0.25, 2 * QUARTER, 0.25, 0.25),
        stepping=0.8,
    ),
    "kdv": Example(
        KdV(),
        draw_long_waves,
        0.01,
        (0.1, 0.4, 0.05),
        (0.5, 1.2, 0.15),
        stepping=0.8,
        moving=1.0,
        allowed=2e-8,
        length=26.0,
    ),
    "kuramoto_sivashinsky": Example(
        KuramotoSivashinsky(),
        draw_long_waves,
        0.01,
        (0.1, 0.4),
        (0.5, 1.2),
        stepping=0.4,
        moving=1.0,
        allowed=2e-8,
        length=26.0,
    ),
}


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())
