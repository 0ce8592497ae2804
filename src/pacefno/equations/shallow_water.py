"""Viscous shallow water in conservative variables on the torus."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pacefno.equations.base import Equation, derivative, laplacian
from pacefno.equations.problem import Problem
from pacefno.equations.random_fields import gaussian_field, scale_to_rms
from pacefno.grid import from_spectrum, to_spectrum
from pacefno.symmetry import Galilean, PhaseSlice


class ShallowWater(Equation):
    """``h_t + div m = nu Lap h``, ``m_t + div(m m / h) + grad(g h^2 / 2) = nu Lap m``.

    With the same viscosity on height and momentum, ``(h, m + hV)`` moving with V is an exact symmetry; without it on
    either one the boost would leave a term behind.
    """

    name = "shallow_water"
    dim = 2
    channels = ("h", "mx", "my")
    point_group = "p4"
    channel_representation = "scalar+vector"

    def __init__(self, nu: float, gravity: float) -> None:
        self.nu = nu
        self.gravity = gravity
        self.group = Galilean(2, "momentum")

    @property
    def parameters(self) -> dict[str, float]:
        return {"nu": self.nu, "gravity": self.gravity}

    def linear(self, kappa: Tensor) -> Tensor:
        return self.nu * laplacian(kappa)

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        minus_dx, minus_dy = -derivative(kappa)

        def terms(spectrum: Tensor) -> Tensor:
            h, mx, my = from_spectrum(spectrum, shape).unbind(dim=1)
            pressure = 0.5 * self.gravity * h * h
            ux, uy = mx / h, my / h
            flux = torch.stack([mx * ux + pressure, mx * uy, my * uy + pressure], dim=1)
            xx, xy, yy = to_spectrum(flux, 2).unbind(dim=1)
            x_fluxes = torch.stack([spectrum[:, 1], xx, xy], dim=1)
            y_fluxes = torch.stack([spectrum[:, 2], xy, yy], dim=1)
            return torch.addcmul(minus_dx * x_fluxes, minus_dy, y_fluxes)

        return terms

    def invalid(self, field: Tensor) -> Tensor:
        """Not finite, or dry somewhere."""
        return super().invalid(field) | (field[:, 0].flatten(1).amin(dim=1) <= 0)


def _draw(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    """A random surface of height 1 with random momenta."""
    h, mx, my = (gaussian_field(grid, generator, tau=5.0, gamma=3.0, cutoff=21) for _ in range(3))
    return torch.stack([1 + scale_to_rms(h, 0.2), scale_to_rms(mx, 0.15), scale_to_rms(my, 0.15)])


def shallow_water() -> Problem:
    equation = ShallowWater(nu=2e-3, gravity=1.0)
    return Problem(
        name="shallow_water",
        title="2-D shallow water",
        equation=equation,
        draw=_draw,
        slice=PhaseSlice(equation.group),
        grid=(128, 128),
        coarsening=2,
        spacing=0.5,
        step=2.5e-3,
        train_range=(0.15, 0.15, 0.2, 0.2),
        ood_low=(0.15, 0.15, 0.2, 0.2),
        ood_high=(0.5, 0.5, 1.0, 1.0),
        precision="float32",
        per_channel=True,
        paper={
            "fno": (0.0827, 0.7260),
            "fno-aug": (0.0769, 0.5136),
            "pace": (0.0491, 0.1069),
            "pace-tta": (0.0491, 0.1071),
            "gfno": (0.0307, 0.7593),
        },
    )
