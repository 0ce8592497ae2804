"""The canonical slice: which representative of each orbit counts as unmoved, and how far from it a field is.

A stationary random field has no position of its own, so "shifted" means nothing until a slice is stated. In-distribution
data lie on it, and the analytic frame reads its coordinates off any field, without training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from pacefno.grid import check_field, compute_dtype
from pacefno.symmetry.base import Group
from pacefno.symmetry.euclidean import Euclidean
from pacefno.symmetry.moments import (
    centroid,
    concentration,
    impulse,
    impulse_angle,
    impulse_bound,
    phase_position,
    phase_share,
)


class CanonicalSlice(ABC):
    """A section of the orbits: ``coordinates(act(u, xi)) = xi`` for every ``u`` on the slice."""

    threshold: float  # a draw whose quality is below is singular here: rejected by generators

    @abstractmethod
    def coordinates(self, field: Tensor) -> Tensor:
        """The element that carries the slice to this field ``(B, C, *grid)``; ``(B, size)``."""

    @abstractmethod
    def quality(self, field: Tensor) -> Tensor:
        """How firmly the field determines them, ``(B,)`` in [0, 1]; 0 where it carries no frame."""


class PhaseSlice(CanonicalSlice):
    """Zero phase of the first Fourier mode of one channel along each axis, and no background velocity."""

    threshold = 0.01

    def __init__(self, group: Group, channel: int = 0) -> None:
        self.group = group
        self.channel = channel

    def coordinates(self, field: Tensor) -> Tensor:
        check_field(field, dim=self.group.dim, finite=False)
        position = phase_position(field[:, self.channel])  # (B, dim)
        firm = self.quality(field)[:, None] > torch.finfo(position.dtype).eps
        position = torch.where(firm, position, torch.zeros_like(position))[:, : self.group.spatial]
        unseen = position.new_zeros(len(field), self.group.spatial - position.shape[1])  # an angle has no phase
        return torch.cat([position, unseen, self.group.kinematic(field).to(position.dtype)], dim=1)

    def quality(self, field: Tensor) -> Tensor:
        return phase_share(field[:, self.channel]).amin(dim=1)


class MomentSlice(CanonicalSlice):
    """Compact vorticity with its enstrophy centroid at the centre and its impulse along +x (first channel = first frame)."""

    threshold = 0.1

    def __init__(self, group: Group) -> None:
        self.group = group

    def coordinates(self, field: Tensor) -> Tensor:
        check_field(field, dim=2, finite=False)
        vorticity = self._vorticity(field)
        centre = centroid(vorticity.square())
        angle = impulse_angle(vorticity, centre)
        firm = self.quality(field) > torch.finfo(vorticity.dtype).eps
        xi = torch.cat([centre - 0.5, angle[:, None]], dim=1)
        return self.group.wrap(torch.where(firm[:, None], xi, torch.zeros_like(xi)))

    def quality(self, field: Tensor) -> Tensor:
        vorticity = self._vorticity(field)
        density = vorticity.square()
        centre = centroid(density)
        bound = impulse_bound(vorticity, centre)
        strength = impulse(vorticity, centre).norm(dim=1)
        spread = concentration(density) <= torch.finfo(density.dtype).eps ** 0.5  # no centre, so no impulse about it
        return torch.where(spread | (bound == 0), 0.0, strength / bound.clamp_min(torch.finfo(bound.dtype).tiny))

    @staticmethod
    def _vorticity(field: Tensor) -> Tensor:
        return field[:, 0].to(compute_dtype(field.dtype))


def default_slice(group: Group) -> CanonicalSlice:
    """The slice that goes with a group where nothing else is said."""
    return MomentSlice(group) if isinstance(group, Euclidean) else PhaseSlice(group)
