"""What a frame is: a map from a field to the element that carries the canonical slice to it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pacefno.errors import UsageError
from pacefno.fields import Field
from pacefno.groups import Group
from pacefno.groups.galilean import tells_velocity


class Estimate(NamedTuple):
    """The coordinates of a field's frame, and how firmly the field determines each of them.

    A quality of 0 means that the field does not determine a coordinate. It is then 0, or, where
    several fit equally well because the field repeats itself within the box, one of them.
    """

    xi: Tensor  # (B, size), float64
    quality: Tensor  # (B, size) in [0, 1]

    @property
    def confidence(self) -> Tensor:
        """The lowest quality of each sample, ``(B,)``; 1 where there is nothing to determine."""
        return (
            self.quality.amin(dim=1)
            if self.quality.shape[1]
            else self.xi.new_ones(self.xi.shape[0])
        )


class Frame(nn.Module, ABC):
    """The paper's estimator E_phi: field -> xi_0. The frame is a return value, never state."""

    group: Group

    @abstractmethod
    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        """The frame of each sample.

        ``hint`` is the element that moved the samples, known in training only. A frame that has to
        search may begin there; all others ignore it.
        """

    def energy(self) -> Energy:
        """What test-time adaptation lowers: by default the frame's own consistency, as in the
        paper.
        """
        return SelfConsistency(self)

    @property
    def removes_flow(self) -> bool:
        """Whether a field that is pulled back has lost its mean flow."""
        return self.group.moves_in_time


class Energy(ABC):
    """Residuals ``(B, m)`` of a candidate frame; zero where the pulled-back field is canonical.

    The energy is ``J = |r|^2 / 2``.
    """

    group: Group
    spacing: float | None = None  # of difference quotients, where exact derivatives cost too much

    @abstractmethod
    def residual(self, field: Field, xi: Tensor) -> Tensor: ...


class SelfConsistency(Energy):
    """The paper's J_TTA: what the frame still finds on the field that it pulled back.

    ``r = 2 sin(pi e / period)`` with ``e = P_S E_phi(C_xi^-1 a)``, so that ``|r|^2 / 2`` is the sum
    of ``1 - cos(2 pi e / period)``: the wrapped (cosine) form, the squared one for small residuals.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.group = frame.group

    def residual(self, field: Field, xi: Tensor) -> Tensor:
        return wrapped_residual(self.frame(self.group.inverse(field, xi)).xi, self.group)


def wrapped_residual(xi: Tensor, group: Group) -> Tensor:
    """``2 sin(pi xi / period)`` of the spatial coordinates: it does not jump at a whole period."""
    left = xi[:, : group.spatial]
    return 2 * torch.sin(math.pi * left / left.new_tensor(group.periods[: group.spatial]))


def clip_quality(quality: Tensor) -> Tensor:
    """A quality in [0, 1] that is exactly 0 where round-off is all there is."""
    return torch.where(quality > torch.finfo(quality.dtype).eps, quality.clamp(max=1), 0.0)


def with_measured(group: Group, field: Field, spatial: Tensor, quality: Tensor) -> Estimate:
    """Spatial coordinates of the first snapshot, joined with the measured ones and taken to time 0.

    Those that are measured have quality 1, or 0 where the field does not tell its velocity.
    """
    kinematic = group.kinematic(field)
    xi = torch.cat([spatial.double(), kinematic], dim=1)
    if field.type.times[0] != 0:
        xi = group.from_first_snapshot(field, xi)
    told = tells_velocity(field).to(quality)[:, None].expand(kinematic.shape)
    return Estimate(xi, torch.cat([quality, told], dim=1))


def check_something_to_find(group: Group, name: str) -> None:
    """Refuse to build an estimator for a group whose spatial coordinates nothing can estimate."""
    if group.spatial == 0:
        raise ValueError(
            f"{name}: the {group.name} group has no spatial coordinate to estimate: "
            "use IdentityFrame"
        )
    if "element" in group.coordinates:
        raise UsageError(
            f"{name}: no frame finds the element of a finite group ({group.name}): wrap with the "
            "motions alone, around pacefno.Symmetrised or a pacefno.GroupFNO"
        )
