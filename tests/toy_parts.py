"""Code outside the package that adds one of everything; tests/test_extending.py runs it.

It could be anybody's module: ``pacefno --import toy_parts bench toy-growth --preset smoke``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from pacefno.data import PairRecipe, Sizes
from pacefno.fields import Field, FieldType, Speed
from pacefno.frames import Estimate, Frame, StrongestWaveSlice
from pacefno.grid import from_spectrum, points, to_spectrum
from pacefno.groups import Galilean, Group, Translation, shift
from pacefno.paper.benchmarks import BENCHMARKS, Benchmark, make_task
from pacefno.paper.rows import FIELD_ROWS, Row
from pacefno.pde import Equation, Law
from pacefno.pde.base import convection, laplacian
from pacefno.pde.initial import gaussian_field, scale_to_rms
from pacefno.registry import register

# --- parts of a model -----------------------------------------------------------------------------


@register("kind", "doubled-speed")
class DoubledSpeed(Speed):
    """A number that is twice its own velocity."""

    def boost(self, value: Tensor, velocity: Tensor, density: Tensor | None) -> Tensor:
        return value + 2 * velocity[:, :, :1].to(value.dtype)

    def background(self, value: Tensor, density: Tensor | None) -> Tensor:
        return super().background(value, density) / 2


@register("group", "toy-along-x")
class AlongX(Group):
    """Translations along the first axis alone."""

    name = "toy-along-x"
    coordinates = ("x",)
    periods = (1.0,)
    spatial = 1
    needs_kinds = False

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def act(self, field: Field, xi: Tensor) -> Field:
        distance = functional.pad(self.check_element(field, xi), (0, self.dim - 1))
        return field.with_values(shift(field.values, distance))

    def inverse(self, field: Field, xi: Tensor) -> Field:
        return self.act(field, -xi)

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        return self.wrap(xi + eta)

    def inverse_element(self, xi: Tensor) -> Tensor:
        return self.wrap(-xi)


@register("frame", "toy-phase")
class PhaseFrame(Frame):
    """The phase of the first wave along x, and a place relative to it that is learned."""

    def __init__(self, group: Group, type: FieldType, *, start: float = 0.05) -> None:
        super().__init__()
        self.group = group
        self.offset = nn.Parameter(torch.tensor([start]))

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        values = field.values[:, 0].double()
        line = values.mean(dim=tuple(range(2, values.ndim))) if values.ndim > 2 else values
        wave = torch.fft.rfft(line, norm="forward")[:, 1:2]
        power = wave.real.square() + wave.imag.square()
        there = power > 1e-12 * line.square().mean(dim=1, keepdim=True)  # not only round-off
        angle = torch.atan2(torch.where(there, wave.imag, 0.0), torch.where(there, wave.real, 1.0))
        x = torch.where(there, self.offset.double() - angle / (2 * math.pi), 0.0)
        kinematic = self.group.kinematic(field)
        xi = self.group.wrap(torch.cat([x, kinematic], dim=1))
        return Estimate(xi, torch.cat([there.double(), torch.ones_like(kinematic)], dim=1))


@register("operator", "toy-unet")
class UNet(nn.Module):
    """A U-Net of one level with periodic convolutions."""

    def __init__(self, dim: int, in_channels: int, out_channels: int, width: int = 8) -> None:
        super().__init__()
        layer = {1: nn.Conv1d, 2: nn.Conv2d}[dim]
        self.pool = {1: functional.avg_pool1d, 2: functional.avg_pool2d}[dim]
        around = {"kernel_size": 3, "padding": 1, "padding_mode": "circular"}
        self.enter = layer(in_channels, width, **around)
        self.coarse = layer(width, width, **around)
        self.leave = layer(2 * width, out_channels, **around)

    def forward(self, field: Tensor) -> Tensor:
        fine = functional.gelu(self.enter(field))
        coarse = functional.gelu(self.coarse(self.pool(fine, 2)))
        again = functional.interpolate(coarse, size=fine.shape[2:], mode="nearest")
        out: Tensor = self.leave(torch.cat([fine, again], dim=1))
        return out


# --- equations ------------------------------------------------------------------------------------


class Growth(Equation):
    """Fisher's equation ``u_t = nu Lap u + r(y) u (1 - u)``: its mean grows.

    In two dimensions the rate depends on y, so only shifts along x are symmetries.
    """

    channels = "u: scalar"
    point_group = "z2"
    conserves = ()

    def __init__(self, dim: int) -> None:
        self.name = f"growth{dim}d"
        self.dim = dim
        self.group = Translation(1) if dim == 1 else AlongX(2)
        if dim == 2:
            self.point_group = "p1"

    @property
    def parameters(self) -> dict[str, float]:
        return {"nu": 1e-3}

    def linear(self, kappa: Tensor) -> Tensor:
        return 1e-3 * laplacian(kappa)

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        rate: float | Tensor = 1.0
        if self.dim == 2:
            y = points(shape, dtype=kappa.dtype, device=kappa.device)[1]
            rate = 1 + 0.5 * torch.cos(2 * math.pi * y)

        def terms(spectrum: Tensor) -> Tensor:
            u = from_spectrum(spectrum, shape)
            return to_spectrum(rate * u * (1 - u), self.dim)

        return terms


class DoubledBurgers(Equation):
    """Burgers' equation for ``w = 2 u``: ``w_t + (w^2)_x / 4 = nu w_xx``."""

    name = "doubled_burgers"
    dim = 1
    channels = "w: doubled-speed"
    group = Galilean(1)
    point_group = "z2"

    @property
    def parameters(self) -> dict[str, float]:
        return {"nu": 1e-2}

    def linear(self, kappa: Tensor) -> Tensor:
        return self.parameters["nu"] * laplacian(kappa)

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        burgers = convection(kappa, shape)
        return lambda spectrum: burgers(spectrum) / 2


def draw_population(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    field = gaussian_field(grid, generator, tau=5.0, gamma=3.0, cutoff=5)
    return 0.3 + scale_to_rms(field, 0.1)[None]


def draw_waves(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    return scale_to_rms(gaussian_field(grid, generator, tau=5.0, gamma=3.0, cutoff=5), 1.0)[None]


# --- benchmarks -----------------------------------------------------------------------------------

ROWS = FIELD_ROWS | {
    "unet": Row("U-Net", operator="toy-unet", positions=None),
    "pace-unet": Row("PACE around a U-Net", operator="toy-unet", frame="toy-phase", moved=True),
}


def benchmark(name: str, equation: Equation, law: Law, grid: tuple[int, ...]) -> Benchmark:
    group = equation.group
    reach = (0.1,) * group.size
    slice = StrongestWaveSlice(group)
    task = make_task(name, equation, group, slice, spacing=0.5, train_range=reach)
    recipe = PairRecipe(
        name,
        equation,
        law,
        task,
        grid=grid,
        coarsening=2,
        step=0.01,
        ood_low=reach,
        ood_high=(0.5,) * group.size,
        sizes={"smoke": Sizes(12, 4, 4), "quick": Sizes(24, 8, 8), "paper": Sizes(24, 8, 8)},
    )
    return Benchmark(name, f"Toy: {name}", recipe, {"width": 16}, {"epochs": 3}, ROWS)


POPULATION, WAVES = Law("toy population", draw_population), Law("toy waves", draw_waves)
for toy in (
    benchmark("toy-growth", Growth(1), POPULATION, (64,)),
    benchmark("toy-growth-2d", Growth(2), POPULATION, (32, 32)),
    benchmark("toy-doubled", DoubledBurgers(), WAVES, (64,)),
):
    BENCHMARKS[toy.name] = toy
