"""What a frame is: a map from a field to the group element that carries the canonical slice to it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pacefno.symmetry import Group


class Estimate(NamedTuple):
    """The coordinates of a field's frame, and how firmly the field determines them (0: not at all, xi is the identity)."""

    xi: Tensor  # (B, size)
    confidence: Tensor  # (B,) in [0, 1]


class Frame(nn.Module, ABC):
    """The paper's estimator E_phi: field ``(B, C, *grid)`` -> xi_0. The frame is returned, never kept."""

    group: Group

    @abstractmethod
    def forward(self, field: Tensor) -> Estimate: ...

    def known(self, field: Tensor, xi: Tensor) -> Estimate:
        """The estimate where the element is known, as in training; a frame that searches need not search then."""
        return self(field)

    def energy(self) -> Energy:
        """What test-time adaptation lowers: by default the frame's own consistency, as in the paper."""
        return SelfConsistency(self)


class Energy(ABC):
    """Residuals of a candidate frame, ``(B, m)``; zero where the pulled-back field is canonical. ``J = |r|^2 / 2``."""

    group: Group
    spacing: float | None = None  # of difference quotients, where exact derivatives cost more than they are worth

    @abstractmethod
    def residual(self, field: Tensor, xi: Tensor) -> Tensor: ...


class SelfConsistency(Energy):
    """The paper's J_TTA: what the frame still finds on the field that was pulled back by it, ``P_S E_phi(C_xi^-1 a)``.

    ``r = 2 sin(pi e / period)``, so that ``|r|^2 / 2 = sum of 1 - cos(2 pi e / period)``: the wrapped (cosine) form, which
    is the squared form for small residuals.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.group = frame.group

    def residual(self, field: Tensor, xi: Tensor) -> Tensor:
        return wrapped(self.frame(self.group.inverse(field, xi)).xi, self.group)


def wrapped(xi: Tensor, group: Group) -> Tensor:
    """``2 sin(pi xi / period)`` of the spatial coordinates: a residual that knows no jump at a whole period."""
    left = xi[:, : group.spatial]
    return 2 * torch.sin(math.pi * left / left.new_tensor(group.periods[: group.spatial]))


def firm_part(quality: Tensor) -> Tensor:
    """A quality as a confidence: in [0, 1], and exactly 0 where round-off is all there is."""
    return torch.where(quality > torch.finfo(quality.dtype).eps, quality.clamp(max=1), 0.0)


def check_something_to_find(group: Group, name: str) -> None:
    """Refuse to build an estimator of nothing."""
    if group.spatial == 0:
        raise ValueError(f"{name}: the {group.name} group has no spatial coordinate to estimate: use IdentityFrame")
