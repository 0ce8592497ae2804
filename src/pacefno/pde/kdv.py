"""The Korteweg-de Vries equation: solitons, and a symmetry of scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from pacefno.groups import GalileanScaling
from pacefno.pde.base import Equation, convection, derivative


class KdV(Equation):
    """``u_t + u u_x + u_xxx = 0``; on a domain of its own length, a solution scales as ``e^-2s
    u(e^s x, e^3s t)``.
    """

    name = "kdv"
    dim = 1
    channels = "u: speed"
    group = GalileanScaling()
    point_group = "z1"  # a reflection of x turns the sign of u_xxx, whatever u does

    @property
    def parameters(self) -> dict[str, float]:
        return {}

    def linear(self, kappa: Tensor) -> Tensor:
        return -(derivative(kappa)[0] ** 3)

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        return convection(kappa, shape)
