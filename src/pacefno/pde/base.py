"""What an equation is: a linear part, a nonlinear part, its channels and the group it commutes
with.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pacefno.errors import Failure
from pacefno.fields import FieldType
from pacefno.grid import from_spectrum, to_spectrum, wavenumbers
from pacefno.groups import Group


class SolverError(Failure):
    """A solution that must not be used: the message names sample, time and step size."""


class Equation(ABC):
    """``u_t = L u + N(u)`` on a periodic box, for half spectra ``(B, C, *half_grid)``.

    An equation is its channels, its linear part, its nonlinear part and the symmetries that it has.
    Spectra are normalised so that the coefficient at index 0 is the mean.
    """

    name: str
    dim: int
    channels: str  # what they are, e.g. "h: scalar, m: momentum of h" (see pacefno.fields)
    group: Group  # the continuous symmetries that it has
    point_group: str  # the finite symmetries of the box that it has, a name of POINT_GROUPS
    conserves: tuple[str, ...] | None = None  # channels whose mean is constant; None: all of them
    cut: int = (
        3  # modes below n/cut are computed: 3 is the 2/3 rule, 2 drops the Nyquist mode alone
    )

    def field_type(
        self,
        times: Sequence[float] = (0.0,),
        *,
        lengths: float | Sequence[float] = 1.0,
        step: float = 1.0,
    ) -> FieldType:
        """The type of snapshots of its solutions."""
        return FieldType.parse(self.channels, self.dim, times=times, lengths=lengths, step=step)

    @property
    @abstractmethod
    def parameters(self) -> dict[str, float]:
        """The physical constants by name; ``{}`` if there are none.

        They are stored with a dataset and tell it from one of the same equation with other
        constants, so name every number that can change.
        """

    @abstractmethod
    def linear(self, kappa: Tensor) -> Tensor:
        """The symbol of L for angular wavenumbers ``kappa = 2 pi k / L``.

        ``kappa`` is ``(dim, *half_grid)``, or ``(dim, B, 1, *half_grid)`` where samples have boxes
        of their own. The symbol is ``(*half_grid)``, one for all channels, or ``(C, *half_grid)``.
        """

    @abstractmethod
    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """The map from the spectrum of u to that of N(u), not yet dealiased; multipliers are
        prepared once.
        """

    def exact(self, initial: Tensor, times: Sequence[float]) -> Tensor | None:
        """The states at these times, ``(B, len(times), C, *grid)``, where a formula gives them to
        round-off in the box of length 1; None where there is none, and they have to be solved for.
        """
        return None

    def invalid(self, field: Tensor) -> Tensor:
        """Which samples are not states of this equation, ``(B,)``: by default those not finite."""
        return ~torch.isfinite(field).flatten(1).all(dim=1)


def angular_wavenumbers(
    shape: Sequence[int], dtype: torch.dtype, device: torch.device | str
) -> Tensor:
    """``kappa = 2 pi k``, ``(dim, *half_grid)``; odd derivatives of a Nyquist mode never occur, it
    is dealiased away.
    """
    return 2 * math.pi * wavenumbers(shape, dtype=dtype, device=device)


def derivative(kappa: Tensor) -> Tensor:
    """The symbol of the gradient, ``i kappa``, complex ``(dim, *half_grid)``."""
    return torch.complex(torch.zeros_like(kappa), kappa)


def laplacian(kappa: Tensor) -> Tensor:
    """The symbol of the Laplacian, ``-|kappa|^2``."""
    return -(kappa**2).sum(dim=0)


def as_channels(*symbols: Tensor, dim: int) -> Tensor:
    """Symbols side by side as channels, ``(n, *half_grid)``, with boxes ``(B, n, *half_grid)``."""
    return torch.cat([s[None] if s.ndim == dim else s for s in symbols], dim=-dim - 1)


def convection(kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """``-1/2 sum_j d_j (u^2)``: a scalar carried along (1, ..., 1) with its own value."""
    minus_half_divergence = -0.5 * derivative(kappa).sum(dim=0)

    def terms(spectrum: Tensor) -> Tensor:
        u = from_spectrum(spectrum, shape)
        return minus_half_divergence * to_spectrum(u * u, len(shape))

    return terms
