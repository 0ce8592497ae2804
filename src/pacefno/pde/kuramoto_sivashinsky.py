"""The Kuramoto-Sivashinsky equation: waves that grow, steepen and never settle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from pacefno.groups import Galilean
from pacefno.pde.base import Equation, convection, laplacian


class KuramotoSivashinsky(Equation):
    """``u_t + u u_x + u_xx + u_xxxx = 0``: long waves grow, short ones decay, and there is no
    symmetry of scale.
    """

    name = "kuramoto_sivashinsky"
    dim = 1
    channels = "u: speed"
    group = Galilean(1)
    point_group = "z2"
    # Short waves are damped as k^4: aliasing stays below the error of a step, the 2/3 rule would
    # waste a third
    cut = 2

    @property
    def parameters(self) -> dict[str, float]:
        return {}

    def linear(self, kappa: Tensor) -> Tensor:
        k2 = laplacian(kappa)
        return -k2 - k2**2

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        return convection(kappa, shape)
