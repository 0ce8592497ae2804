"""Burgers' equation for a scalar on the torus, in one, two or three dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pacefno.grid import band_limit, from_spectrum, to_spectrum, wavenumbers
from pacefno.groups import Galilean, shift
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

    def exact(self, initial: Tensor, times: Sequence[float]) -> Tensor | None:
        """In one dimension by :func:`cole_hopf`, where the grid resolves its weights."""
        n = initial.shape[-1]
        if self.dim != 1 or self.nu <= 0 or not bool(torch.isfinite(initial).all()):
            return None
        state = band_limit(initial.double(), 1, (n - 1) // 3)[:, 0]  # what the solver keeps too
        if any(t > 0 and not _resolved(state, self.nu, t) for t in times):
            return None
        at = [torch.stack([cole_hopf(u, self.nu, t) for u in state]) if t else state for t in times]
        return torch.stack(at, dim=1)[:, :, None].to(initial.dtype)


# --- the solution in closed form ------------------------------------------------------------------

NEGLIGIBLE = 13.0  # sqrt(nu t) beyond the farthest origin of a characteristic weigh less than 1e-17
LARGEST_EXPONENT = 20.0  # by which the weights of a point may differ from those of its block
LONGEST_BLOCK = 32


def cole_hopf(initial: Tensor, nu: float, time: float) -> Tensor:
    """The solution of ``u_t + u u_x = nu u_xx`` from a state ``(n,)`` in float64, to round-off.

    ``u(x, t)`` is the mean of ``(x - y) / t`` over y with the positive weights
    ``exp(-(x - y)^2 / (4 nu t) - U(y) / (2 nu))``, ``U' = u(y, 0)`` (Cole, Hopf): nothing cancels,
    so steep fronts are as exact as smooth fields. A mean velocity is taken off first. The weights
    are computed for the middle z of a block of points. At ``x = z + d`` they differ by
    ``exp(d (y - z) / (2 nu t))``, the same for every block: the sums are one matrix product.
    """
    n = len(initial)
    drift = initial.mean()
    state = initial - drift
    k = wavenumbers((n,), device=initial.device)[0]
    rate = torch.where(k > 0, 2j * math.pi * k, 1.0)
    potential = from_spectrum(torch.where(k > 0, to_spectrum(state, 1) / rate, 0.0), (n,))

    reach = float(state.abs().max()) * time + NEGLIGIBLE * math.sqrt(nu * time)
    most = math.ceil(reach * n)
    half = int(LARGEST_EXPONENT * 2 * nu * time * n / reach)
    block = max(1, min(2 * half + 1, LONGEST_BLOCK))
    middle, count = block // 2, -(-n // block)
    to_y = torch.arange(-most, most + 1, dtype=torch.float64, device=initial.device) / n  # y - z
    to_x = (torch.arange(block, dtype=torch.float64, device=initial.device) - middle) / n  # x - z

    index = torch.arange(middle - most, middle + most + count * block, device=initial.device) % n
    around = potential[index].unfold(0, 2 * most + 1, block)[:count]  # U(y), (blocks, y)
    weights = torch.softmax(-to_y.square() / (4 * nu * time) - around / (2 * nu), dim=1)
    change = torch.exp(to_y[:, None] * to_x / (2 * nu * time))  # (y, x)
    total, moment = (weights @ torch.cat([change, to_y[:, None] * change], dim=1)).chunk(2, dim=1)
    u = ((to_x - moment / total) / time).flatten()[:n]
    return shift(u[None, None], (drift * time).reshape(1, 1))[0, 0] + drift


def _resolved(states: Tensor, nu: float, time: float) -> bool:
    """Whether two grid points lie within the width of every peak of the weights: their sums over
    grid points are then as good as integrals.
    """
    n = states.shape[-1]
    rate = 2j * math.pi * wavenumbers((n,), device=states.device)[0]
    slope = from_spectrum(to_spectrum(states, 1) * rate, (n,)).max().clamp_min(0.0)
    width = (2 * nu * time / (1 + time * slope)).sqrt()
    return float(width) * n >= 2
