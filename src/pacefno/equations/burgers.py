"""Burgers' equation for a scalar on the torus, in one or two dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pacefno.equations.base import Equation, convection, laplacian
from pacefno.equations.problem import Problem
from pacefno.equations.random_fields import gaussian_field, scale_to_rms
from pacefno.symmetry import Galilean, PhaseSlice


class Burgers(Equation):
    """``u_t + 1/2 sum_j d_j (u^2) = nu Laplacian(u)``: the scalar is carried along (1, ..., 1) with its own value.

    Symmetry: translations, and boosts ``u + c`` that move the solution by ``(cT, ..., cT)``.
    """

    channels = ("u",)
    channel_representation = "sign"  # u -> -u under reflections of the direction (1, ..., 1)

    def __init__(self, dim: int, nu: float) -> None:
        self.name = f"burgers{dim}d"
        self.dim = dim
        self.nu = nu
        self.group = Galilean(dim, "scalar")
        self.point_group = "z2" if dim == 1 else "diagonal"

    @property
    def parameters(self) -> dict[str, float]:
        return {"nu": self.nu}

    def linear(self, kappa: Tensor) -> Tensor:
        return self.nu * laplacian(kappa)

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        return convection(kappa, shape)


def _draw_1d(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    """``N(0, 625 (-Lap + 25)^-2)``: rms 0.6, a front or two by time 1."""
    return gaussian_field(grid, generator, sigma=25.0, tau=5.0, gamma=2.0, cutoff=341)[None]


def _draw_2d(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    """``N(0, (-Lap + 25)^-3)`` scaled to rms 0.4."""
    return scale_to_rms(gaussian_field(grid, generator, tau=5.0, gamma=3.0, cutoff=21), 0.4)[None]


PAPER_1D = {
    "fno": (0.0662, 1.0352),
    "fno-aug": (0.0293, 0.3222),
    "pace": (0.0623, 0.0267),
    "pace-tta": (0.0623, 0.0259),
    "gfno": (0.1406, 1.0244),
}


def burgers1d(name: str, title: str, nu: float, step: float, in_tables: bool = True) -> Problem:
    equation = Burgers(1, nu)
    return Problem(
        name=name,
        title=title,
        equation=equation,
        draw=_draw_1d,
        slice=PhaseSlice(equation.group),
        grid=(2048,),
        coarsening=2,
        spacing=1.0,
        step=step,
        in_tables=in_tables,
        train_range=(0.1, 0.2),
        ood_low=(0.1, 0.2),
        ood_high=(0.5, 1.0),
        paper=PAPER_1D if in_tables else {},
    )


def burgers2d() -> Problem:
    equation = Burgers(2, 5e-3)
    return Problem(
        name="burgers2d",
        title="2-D Burgers",
        equation=equation,
        draw=_draw_2d,
        slice=PhaseSlice(equation.group),
        grid=(128, 128),
        coarsening=2,
        spacing=1.0,
        step=5e-3,
        train_range=(0.1, 0.1, 0.5),
        ood_low=(0.1, 0.1, 0.5),
        ood_high=(0.5, 0.5, 1.5),
        paper={
            "fno": (0.0274, 0.6137),
            "fno-aug": (0.0261, 0.2035),
            "pace": (0.0393, 0.0755),
            "pace-tta": (0.0393, 0.0640),
            "gfno": (0.0967, 1.0131),
        },
    )
