"""Burgers' equation for a scalar on the torus, in one, two or three dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from pacefno.groups import Galilean
from pacefno.pde.base import Equation, convection, laplacian


class Burgers(Equation):
    """``u_t + 1/2 sum_j d_j (u^2) = nu Laplacian(u)``: the scalar is carried along (1, ..., 1) with
    its own value.

    Symmetry: translations, and boosts ``u + c`` that move the solution by ``(cT, ..., cT)``.
    """

    channels = "u: speed"

    def __init__(self, dim: int, nu: float) -> None:
        self.name = f"burgers{dim}d"
        self.dim = dim
        self.nu = nu
        self.group = Galilean(dim, diagonal=True)
        # What keeps the line along (1, ..., 1), along which u changes sign.
        self.point_group = {1: "z2", 2: "diagonal", 3: "diagonal-3d"}[dim]

    @property
    def parameters(self) -> dict[str, float]:
        return {"nu": self.nu}

    def linear(self, kappa: Tensor) -> Tensor:
        return self.nu * laplacian(kappa)

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        return convection(kappa, shape)
