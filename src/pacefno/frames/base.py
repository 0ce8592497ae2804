"""What a frame is: a map from a field to the group element that carries the canonical slice to it."""

from __future__ import annotations

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


def firm_part(quality: Tensor) -> Tensor:
    """A quality as a confidence: in [0, 1], and exactly 0 where round-off is all there is."""
    return torch.where(quality > torch.finfo(quality.dtype).eps, quality.clamp(max=1), 0.0)


def check_something_to_find(group: Group, name: str) -> None:
    """Refuse to build an estimator of nothing."""
    if group.spatial == 0:
        raise ValueError(f"{name}: the {group.name} group has no spatial coordinate to estimate: use IdentityFrame")
