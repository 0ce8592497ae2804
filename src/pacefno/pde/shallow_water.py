"""Viscous shallow water in conservative variables on the torus."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pacefno.grid import from_spectrum, to_spectrum
from pacefno.groups import Galilean
from pacefno.pde.base import Equation, derivative, laplacian


class ShallowWater(Equation):
    """``h_t + div m = nu Lap h``, ``m_t + div(m m / h) + grad(g h^2 / 2) = nu Lap m``.

    With the same viscosity on height and momentum, ``(h, m + hV)`` moving with V is an exact
    symmetry; without it on either one the boost would leave a term behind.
    """

    name = "shallow_water"
    dim = 2
    channels = "h: scalar, mx my: momentum of h"
    point_group = "p4m"  # the whole square

    def __init__(self, nu: float, gravity: float) -> None:
        self.nu = nu
        self.gravity = gravity
        self.group = Galilean(2)

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
