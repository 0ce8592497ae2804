"""What an equation is: a linear part, a nonlinear part, its channels and the group it commutes with."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pacefno.grid import from_spectrum, to_spectrum, wavenumbers
from pacefno.symmetry import Group


class SolverError(RuntimeError):
    """A solution that must not be used: the message names the sample, the time and the step size."""


class Equation(ABC):
    """``u_t = L u + N(u)`` on the unit torus, written for half spectra ``(B, C, *half_grid)`` with mean at index 0."""

    name: str
    dim: int
    channels: tuple[str, ...]
    group: Group
    point_group: str  # the finite symmetries of the square (or the line) that it has, by name: see operators/representations.py
    channel_representation: str  # how its channels change under them
    cut: int = 3  # modes below n/cut are computed: 3 is the 2/3 rule, 2 leaves out the Nyquist mode alone

    @property
    def parameters(self) -> dict[str, float]:
        """The physical constants, by name, as they are stored with a dataset; none unless an equation says so."""
        return {}

    @abstractmethod
    def linear(self, kappa: Tensor) -> Tensor:
        """The symbol of L for angular wavenumbers ``kappa = 2 pi k`` of shape ``(dim, *half_grid)``.

        On domains of other lengths they are ``2 pi k / length``, ``(dim, B, 1, *half_grid)``.
        """

    @abstractmethod
    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """The map from the spectrum of u to that of N(u), not yet dealiased; multipliers are prepared once."""

    def invalid(self, field: Tensor) -> Tensor:
        """Which samples are no states of this equation, ``(B,)``; not finite is invalid everywhere."""
        return ~torch.isfinite(field).flatten(1).all(dim=1)


def angular_wavenumbers(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """``kappa = 2 pi k``, ``(dim, *half_grid)``; odd derivatives of a Nyquist mode never occur, it is dealiased away."""
    return 2 * math.pi * wavenumbers(shape, dtype=dtype, device=device)


def derivative(kappa: Tensor) -> Tensor:
    """The symbol of the gradient, ``i kappa``, complex ``(dim, *half_grid)``."""
    return torch.complex(torch.zeros_like(kappa), kappa)


def laplacian(kappa: Tensor) -> Tensor:
    """The symbol of the Laplacian, ``-|kappa|^2``."""
    return -(kappa**2).sum(dim=0)


def convection(kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """``-1/2 sum_j d_j (u^2)``: a scalar carried along (1, ..., 1) with its own value."""
    minus_half_divergence = -0.5 * derivative(kappa).sum(dim=0)

    def terms(spectrum: Tensor) -> Tensor:
        u = from_spectrum(spectrum, shape)
        return minus_half_divergence * to_spectrum(u * u, len(shape))

    return terms
