"""What a frame is: a map from a field to the group element that carries the canonical slice to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

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
