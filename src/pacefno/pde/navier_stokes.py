"""Two-dimensional incompressible Navier-Stokes on the torus, for vorticity and for velocity."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pacefno.grid import from_curl_and_divergence, from_spectrum, to_spectrum
from pacefno.groups import Euclidean, SpecialGalilean
from pacefno.pde.base import Equation, as_channels, derivative, laplacian


class _Incompressible(Equation):
    """What both forms share: friction, and the advection of vorticity as a curl of stresses.

    ``curl div(u u) = (d_xx - d_yy)(uv) + d_xy(vv - uu)``: two products instead of four.
    """

    dim = 2
    point_group = "p4m"  # the whole square

    def __init__(self, nu: float) -> None:
        self.nu = nu

    @property
    def parameters(self) -> dict[str, float]:
        return {"nu": self.nu}

    def linear(self, kappa: Tensor) -> Tensor:
        return self.nu * laplacian(kappa)

    @staticmethod
    def to_velocity(kappa: Tensor) -> Tensor:
        """What makes the spectrum of a velocity from that of a vorticity, by channel."""
        dx, dy = derivative(kappa)
        k2 = -laplacian(kappa)
        inverse_laplacian = 1 / torch.where(k2 > 0, k2, 1.0)  # the mean of psi is free
        return as_channels(dy * inverse_laplacian, -dx * inverse_laplacian, dim=2)

    @staticmethod
    def advection(kappa: Tensor) -> Callable[[Tensor], Tensor]:
        """The change of vorticity by a flow ``(B, 2, *grid)``, as a spectrum with one channel."""
        kx, ky = kappa
        products = as_channels(kx * kx - ky * ky, kx * ky, dim=2)

        def change(flow: Tensor) -> Tensor:
            u, v = flow.unbind(dim=1)
            stress = to_spectrum(torch.stack([u * v, v * v - u * u], dim=1), 2)
            return (products * stress).sum(dim=1, keepdim=True)

        return change


class NavierStokes(_Incompressible):
    """``w_t + div(u w) = nu Lap w``, ``u = (psi_y, -psi_x)``, ``Lap psi = -w``.

    Rigid motions: quarter turns and translations commute with the flow exactly; other angles only
    for vorticity that stays away from its periodic images (see ``docs/problems.md`` for the
    measured defect).
    """

    name = "navier_stokes"
    channels = "vorticity: pseudoscalar"

    def __init__(self, nu: float) -> None:
        super().__init__(nu)
        self.group = Euclidean()

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        to_velocity, advection = self.to_velocity(kappa), self.advection(kappa)
        return lambda spectrum: advection(from_spectrum(to_velocity * spectrum, shape))


class NavierStokesVelocity(_Incompressible):
    """``u_t + div(u u) + grad p = nu Lap u``, ``div u = 0``: the flow itself, mean flow included.

    Symmetry: shifts and boosts; quarter turns exactly, other angles where the vorticity stays away
    from its periodic images (see ``docs/problems.md`` for the measured defect).
    """

    name = "navier_stokes_velocity"
    channels = "u v: velocity"

    def __init__(self, nu: float) -> None:
        super().__init__(nu)
        self.group = SpecialGalilean()

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """``-div(u u)`` without its gradient part, which pressure takes up."""
        to_velocity, advection = self.to_velocity(kappa), self.advection(kappa)
        return lambda spectrum: to_velocity * advection(from_spectrum(spectrum, shape))


def flow_of(vorticity: Tensor) -> Tensor:
    """The velocity ``(..., 2, n, m)`` of a vorticity ``(..., n, m)``, without a mean flow."""
    return from_curl_and_divergence(torch.stack([vorticity, torch.zeros_like(vorticity)], dim=-3))
