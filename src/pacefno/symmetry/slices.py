"""The canonical slice: which representative of each orbit counts as unmoved, and how far from it a field is.

A stationary random field has no position of its own, so "shifted" means nothing until a slice is stated. In-distribution
data lie on it, and the analytic frame reads its coordinates off any field, without training.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from pacefno.grid import check_field, compute_dtype
from pacefno.symmetry.base import Group
from pacefno.symmetry.euclidean import Euclidean
from pacefno.symmetry.moments import (
    centroid,
    concentration,
    direction,
    enstrophy_drift,
    impulse,
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

    def read(self, field: Tensor) -> tuple[Tensor, Tensor]:
        """Both at once, for slices that can share the work."""
        return self.coordinates(field), self.quality(field)


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
        return self.read(field)[0]

    def quality(self, field: Tensor) -> Tensor:
        return self.read(field)[1]

    def read(self, field: Tensor) -> tuple[Tensor, Tensor]:
        check_field(field, dim=2, finite=False)
        vorticity = self._vorticity(field)
        density = vorticity.square()
        centre = centroid(density)
        vector = impulse(vorticity, centre)
        quality = self._share(vorticity, density, centre, vector)
        xi = torch.cat([centre - 0.5, direction(vector[:, 0], vector[:, 1])[:, None]], dim=1)
        firm = quality > torch.finfo(vorticity.dtype).eps
        return self.group.wrap(torch.where(firm[:, None], xi, torch.zeros_like(xi))), quality

    @staticmethod
    def _share(vorticity: Tensor, density: Tensor, centre: Tensor, vector: Tensor) -> Tensor:
        """The impulse as a share of the largest one possible; none where the field is spread out and has no centre."""
        bound = impulse_bound(vorticity, centre)
        spread = concentration(density) <= torch.finfo(density.dtype).eps ** 0.5
        tiny = torch.finfo(bound.dtype).tiny
        return torch.where(spread | (bound == 0), 0.0, vector.norm(dim=1) / bound.clamp_min(tiny))

    @staticmethod
    def _vorticity(field: Tensor) -> Tensor:
        return field[:, 0].to(compute_dtype(field.dtype))


class QuarterSlice(CanonicalSlice):
    """A periodic, untorn field with the phases of :class:`PhaseSlice` whose enstrophy drifts towards +x, within 45 degrees.

    It tells shifts and quarter turns, the rigid motions under which a torus stays whole. Other angles tear a periodic
    field, and finding those is a search (``SeamFrame``); on the slice there is nothing torn.
    """

    threshold = 0.02

    def __init__(self, group: Group) -> None:
        self.group = group
        self.phases = PhaseSlice(group)

    def coordinates(self, field: Tensor) -> Tensor:
        return self.read(field)[0]

    def quality(self, field: Tensor) -> Tensor:
        """That of the phases, or less where the drift is weak or points between two quarter turns."""
        return self.read(field)[1]

    def read(self, field: Tensor) -> tuple[Tensor, Tensor]:
        drift, bound = enstrophy_drift(self._vorticity(field))
        angle = direction(drift[:, 0], drift[:, 1])
        position, phases = self.phases.read(field)
        xi = torch.cat([position[:, :2], (torch.round(angle / (math.pi / 2)) * (math.pi / 2))[:, None]], dim=1)
        strength = drift.norm(dim=1) / bound.clamp_min(torch.finfo(bound.dtype).tiny)
        margin = torch.cos(2 * angle).abs()  # 0 halfway between two quarter turns
        scale = self.threshold / self.phases.threshold  # one threshold for both
        return xi, torch.minimum(scale * phases, strength.clamp(max=1) * margin).clamp(max=1)

    def _vorticity(self, field: Tensor) -> Tensor:
        return field[:, self.phases.channel].to(compute_dtype(field.dtype))


def default_slice(group: Group) -> CanonicalSlice:
    """The slice that goes with a group where nothing else is said."""
    return MomentSlice(group) if isinstance(group, Euclidean) else PhaseSlice(group)
