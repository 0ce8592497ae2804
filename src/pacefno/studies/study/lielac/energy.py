"""Energies that are low where the training inputs are, fitted on in-distribution inputs alone.

LieLAC asks for "closeness to the training distribution". Both energies here measure it on the low Fourier modes of the
pulled-back field: as a Gaussian (a Mahalanobis distance), or as a distance to the nearest training inputs.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from typing import Literal, final

import torch
from torch import Tensor

from pacefno.equations import Problem
from pacefno.frames.base import Energy
from pacefno.grid import resample, to_spectrum, wavenumbers
from pacefno.symmetry import Group

TOP = {1: 8, 2: 3}  # the largest wavenumber per axis that is looked at
POINTS = {1: 32, 2: 32}  # of the coarse grid; it holds these modes of a field however it is shifted
FLOOR = 1e-4  # of a mode's power: the training data have none at all in some directions (a phase that is zero by convention)
SHRINKAGE = 0.1  # of correlations, of which a few hundred samples tell little
NEIGHBOURS = 5


@final
class LowModes:
    """Real and imaginary parts of the low Fourier modes of a field's first frame, ``(B, features)``."""

    def __init__(self, problem: Problem) -> None:
        self.dim = problem.dim
        self.channels = len(problem.equation.channels)
        self.grid = tuple(min(POINTS[problem.dim], n) for n in problem.id_grid)
        k = wavenumbers(self.grid)
        low = (k.abs() <= TOP[problem.dim]).all(dim=0)
        # Of a mode and its complex conjugate one is enough; the mean is real.
        code = sum(k[axis] * 1000**axis for axis in range(problem.dim))
        assert isinstance(code, Tensor)
        self.complex = low & (code > 0)
        self.mean = low & (code == 0)

    def coarse(self, field: Tensor) -> Tensor:
        """What the features of a field and of all its motions are computed from."""
        return resample(field[:, : self.channels], self.grid)

    def __call__(self, coarse: Tensor) -> Tensor:
        spectrum = to_spectrum(coarse, self.dim)
        modes = spectrum[:, :, self.complex]
        parts = [spectrum[:, :, self.mean].real, modes.real, modes.imag]
        return torch.cat(parts, dim=2).flatten(1)

    def power(self, features: Tensor) -> Tensor:
        """The mean power of the mode that each feature belongs to, ``(features,)``: shared by its two parts."""
        squares = features.square().mean(dim=0).reshape(self.channels, -1)
        count = int(self.complex.sum())
        mean, real, imaginary = squares[:, :1], squares[:, 1 : 1 + count], squares[:, 1 + count :]
        both = (real + imaginary) / 2
        return torch.cat([mean, both, both], dim=1).flatten()


class InputEnergy(Energy):
    """An energy of the pulled-back input; ``free`` makes the velocities unknowns too instead of reading them off the field."""

    def __init__(self, problem: Problem, features: LowModes, *, free: bool = False) -> None:
        self.group = all_free(problem.group) if free else problem.group
        self.features = features

    def residual(self, field: Tensor, xi: Tensor) -> Tensor:
        return self.deviation(self.features(self.group.inverse(field, xi)))

    @abstractmethod
    def deviation(self, features: Tensor) -> Tensor:
        """Residuals ``(B, m)`` of features ``(B, F)``: the energy is half their square."""


@final
class GaussianEnergy(InputEnergy):
    """``E = 1/2 (f - mu)' Sigma^-1 (f - mu)``: the negative log-density of a Gaussian, up to a constant."""

    def __init__(self, problem: Problem, features: LowModes, seen: Tensor, *, free: bool = False) -> None:
        super().__init__(problem, features, free=free)
        values = seen.double()
        self.centre = values.mean(dim=0)
        power = features.power(values)
        covariance = torch.cov(values.T)
        variances = torch.diag(covariance.diagonal())
        floor = FLOOR * (power + FLOOR * power.mean())
        regular = (1 - SHRINKAGE) * covariance + SHRINKAGE * variances + torch.diag(floor)
        self.whitening = torch.linalg.inv(torch.linalg.cholesky(regular))  # (F, F)

    def deviation(self, features: Tensor) -> Tensor:
        return (features - self.centre.to(features.dtype)) @ self.whitening.T.to(features.dtype)


@final
class NeighbourEnergy(InputEnergy):
    """``E = 1/2 d^2`` with d^2 the mean squared distance to the nearest training inputs, each mode in units of its power."""

    def __init__(self, problem: Problem, features: LowModes, seen: Tensor, *, free: bool = False) -> None:
        super().__init__(problem, features, free=free)
        power = features.power(seen.double())
        self.scale = (power + FLOOR * power.mean()).rsqrt()
        self.seen = seen.double() * self.scale

    def deviation(self, features: Tensor) -> Tensor:
        scaled = features * self.scale.to(features.dtype)
        seen = self.seen.to(features.dtype)
        squares = scaled.square().sum(1, keepdim=True) - 2 * scaled @ seen.T + seen.square().sum(1)
        nearest = squares.topk(min(NEIGHBOURS, len(seen)), dim=1, largest=False).indices
        return (scaled[:, None] - seen[nearest]).flatten(1) / math.sqrt(nearest.shape[1])


ENERGIES: dict[str, type[GaussianEnergy] | type[NeighbourEnergy]] = {"gaussian": GaussianEnergy, "neighbours": NeighbourEnergy}


def fit(problem: Problem, kind: Literal["gaussian", "neighbours"], inputs: Tensor, *, free: bool = False) -> InputEnergy:
    """The energy of a kind, fitted on training inputs in their canonical frame."""
    features = LowModes(problem)
    return ENERGIES[kind](problem, features, features(features.coarse(inputs)), free=free)


def all_free(group: Group) -> Group:
    """The same group with every coordinate to be found by search, velocities included."""
    free = copy.copy(group)
    free.spatial = free.size
    return free
