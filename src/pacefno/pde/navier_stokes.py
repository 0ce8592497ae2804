"""Two-dimensional incompressible Navier-Stokes on the torus, for vorticity and for velocity."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pacefno.grid import from_curl_and_divergence, from_spectrum, to_spectrum
from pacefno.groups import Euclidean, SpecialGalilean
from pacefno.pde.base import Equation, as_channels, derivative, laplacian


class NavierStokes(Equation):
    """``w_t + u . grad w = nu Lap w``, ``u = (psi_y, -psi_x)``, ``Lap psi = -w``.

    Rigid motions: quarter turns and translations commute with the flow exactly; other angles only
    for vorticity that stays away from its periodic images (see ``docs/problems.md`` for the
    measured defect).
    """

    name = "navier_stokes"
    dim = 2
    channels = "vorticity: pseudoscalar"
    point_group = "p4m"  # the whole square

    def __init__(self, nu: float) -> None:
        self.nu = nu
        self.group = Euclidean()

    @property
    def parameters(self) -> dict[str, float]:
        return {"nu": self.nu}

    def linear(self, kappa: Tensor) -> Tensor:
        return self.nu * laplacian(kappa)

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """``u . grad w = (d_xx - d_yy)(uv) + d_xy(vv - uu)``: two transforms each way instead of
        five.
        """
        kx, ky = kappa
        dx, dy = derivative(kappa)
        k2 = -laplacian(kappa)
        inverse_laplacian = 1 / torch.where(k2 > 0, k2, 1.0)  # the mean of psi is free
        to_velocity = as_channels(dy * inverse_laplacian, -dx * inverse_laplacian, dim=2)
        products = as_channels(kx * kx - ky * ky, kx * ky, dim=2).to(to_velocity.dtype)

        def terms(spectrum: Tensor) -> Tensor:
            u, v = from_spectrum(to_velocity * spectrum, shape).unbind(dim=1)
            stress = to_spectrum(torch.stack([u * v, v * v - u * u], dim=1), 2)
            return (products * stress).sum(dim=1, keepdim=True)

        return terms


class NavierStokesVelocity(Equation):
    """``u_t + div(u u) + grad p = nu Lap u``, ``div u = 0``: the flow itself, mean flow included.

    Symmetry: shifts and boosts; quarter turns exactly, other angles where the vorticity stays away
    from its periodic images (see ``docs/problems.md`` for the measured defect).
    """

    name = "navier_stokes_velocity"
    dim = 2
    channels = "u v: velocity"
    point_group = "p4m"  # the whole square

    def __init__(self, nu: float) -> None:
        self.nu = nu
        self.group = SpecialGalilean()

    @property
    def parameters(self) -> dict[str, float]:
        return {"nu": self.nu}

    def linear(self, kappa: Tensor) -> Tensor:
        return self.nu * laplacian(kappa)

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """``-div(u u)`` without its gradient part. Only ``uv`` and ``vv - uu`` have a curl."""
        kx, ky = kappa
        dx, dy = derivative(kappa)
        k2 = -laplacian(kappa)
        inverse_laplacian = 1 / torch.where(k2 > 0, k2, 1.0)
        products = as_channels(kx * kx - ky * ky, kx * ky, dim=2)
        to_velocity = as_channels(dy * inverse_laplacian, -dx * inverse_laplacian, dim=2)

        def terms(spectrum: Tensor) -> Tensor:
            u, v = from_spectrum(spectrum, shape).unbind(dim=1)
            stress = to_spectrum(torch.stack([u * v, v * v - u * u], dim=1), 2)
            return to_velocity * (products * stress).sum(dim=1, keepdim=True)

        return terms


def flow_of(vorticity: Tensor) -> Tensor:
    """The velocity ``(..., 2, n, m)`` of a vorticity ``(..., n, m)``, without a mean flow."""
    return from_curl_and_divergence(torch.stack([vorticity, torch.zeros_like(vorticity)], dim=-3))
