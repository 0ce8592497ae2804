"""Two-dimensional incompressible Navier-Stokes in vorticity form on the torus."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pacefno.equations.base import Equation, derivative, laplacian
from pacefno.equations.problem import Problem
from pacefno.equations.random_fields import compact_vorticity, gaussian_field, scale_to_rms
from pacefno.grid import from_spectrum, to_spectrum
from pacefno.symmetry import Euclidean, MomentSlice, QuarterSlice


class NavierStokes(Equation):
    """``w_t + u . grad w = nu Lap w``, ``u = (psi_y, -psi_x)``, ``Lap psi = -w``.

    Rigid motions: quarter turns and translations commute with the flow exactly; other angles only for vorticity that
    stays away from its periodic images (see ``docs/problems.md`` for the measured defect).
    """

    name = "navier_stokes"
    dim = 2
    channels = ("vorticity",)
    point_group = "p4"
    channel_representation = "pseudoscalar"

    def __init__(self, nu: float) -> None:
        self.nu = nu
        self.group = Euclidean()

    @property
    def parameters(self) -> dict[str, float]:
        return {"nu": self.nu}

    def linear(self, kappa: Tensor) -> Tensor:
        return self.nu * laplacian(kappa)

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """``u . grad w = (d_xx - d_yy)(uv) + d_xy(vv - uu)``: two transforms each way instead of five."""
        kx, ky = kappa
        dx, dy = derivative(kappa)
        inverse_laplacian = 1 / (-laplacian(kappa)).clamp_min(1.0)  # the mean of psi is free: only derivatives are used
        to_velocity = torch.stack([dy, -dx]) * inverse_laplacian  # (2, *half_grid)
        products = torch.stack([kx * kx - ky * ky, kx * ky]).to(to_velocity.dtype)

        def terms(spectrum: Tensor) -> Tensor:
            u, v = from_spectrum(to_velocity * spectrum, shape).unbind(dim=1)
            stress = to_spectrum(torch.stack([u * v, v * v - u * u], dim=1), 2)
            return (products * stress).sum(dim=1, keepdim=True)

        return terms


PAPER = {
    "fno": (0.0377, 0.6422),
    "fno-aug": (0.0266, 0.2840),
    "pace": (0.0129, 0.2766),
    "pace-tta": (0.0129, 0.2593),
    "gfno": (0.0459, 0.4091),
}


def _draw_compact(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    field = gaussian_field(grid, generator, tau=7.0, gamma=2.5, cutoff=21)
    return compact_vorticity(field, radius=0.14, rms=3.0)[None]


def _draw_periodic(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    return scale_to_rms(gaussian_field(grid, generator, tau=7.0, gamma=2.5, cutoff=21), 1.3)[None]


def _problem(name: str, title: str, nu: float, spacing: float, step: float, compact: bool) -> Problem:
    equation = NavierStokes(nu)
    return Problem(
        name=name,
        title=title,
        equation=equation,
        draw=_draw_compact if compact else _draw_periodic,
        slice=MomentSlice(equation.group) if compact else QuarterSlice(equation.group),
        grid=(128, 128),
        coarsening=2,
        spacing=spacing,
        step=step,
        train_range=(0.05, 0.05, math.pi / 4),
        ood_low=(0.05, 0.05, math.pi / 4),
        ood_high=(0.25, 0.25, math.pi / 2),
        frames_in=10,
        frames_out=20,
        exact_group=False,
        precision="float64" if compact else "float32",
        paper=PAPER,
    )


def navier_stokes() -> Problem:
    """Vorticity confined to a disc without net circulation, so that any rotation is nearly a symmetry."""
    return _problem("navier_stokes", "2-D Navier-Stokes (compact)", 4e-4, 0.1, 0.02, compact=True)


def navier_stokes_literal() -> Problem:
    """The paper's construction: a periodic random field, whole trajectories rotated although the torus is not."""
    return _problem("navier_stokes_literal", "2-D Navier-Stokes (literal)", 1e-3, 1.0, 0.04, compact=False)
