"""The paper's estimator read literally: an ordinary encoder, R^2k, a retraction. For comparison."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from pacefno.frames.base import Estimate, Frame, check_something_to_find, firm_part
from pacefno.frames.equivariant import CircularConvolution
from pacefno.frames.readout import retract, standardise
from pacefno.grid import check_field, compute_dtype, resample
from pacefno.symmetry import CanonicalSlice, Group, default_slice


class CNNFrame(Frame):
    """Convolutions with pooling, then a dense layer that sees absolute positions.

    It learns the shifts it was trained on and has no reason to be right beyond them: that is the comparison's point.
    """

    def __init__(
        self,
        group: Group,
        channels: int,
        *,
        slice: CanonicalSlice | None = None,
        width: int = 24,
        stages: int = 3,
        points: int | None = None,
    ) -> None:
        super().__init__()
        check_something_to_find(group, type(self).__name__)
        self.group = group
        self.channels = channels
        self.slice = default_slice(group) if slice is None else slice
        self.points = points or (64 if group.dim == 1 else 32)
        sizes = [channels, *[width] * stages]
        self.layers = nn.ModuleList(CircularConvolution(group.dim, a, b) for a, b in pairwise(sizes))
        cells = (self.points // 2**stages) ** group.dim
        self.hidden = nn.Linear(width * cells, 128)
        self.out = nn.Linear(128, 2 * group.spatial)

    def forward(self, field: Tensor) -> Estimate:
        check_field(field, channels=self.channels, dim=self.group.dim, finite=False)
        field = field.to(compute_dtype(field.dtype))
        vectors = self._vectors(field)
        strength = vectors.norm(dim=-1).amin(dim=1)
        # An encoder that sees positions answers always; a field off every slice must not be believed.
        carries = firm_part(self.slice.quality(field)) > 0
        spatial = torch.where(carries[:, None], retract(vectors, self.group), 0.0)
        xi = torch.cat([spatial, self.group.kinematic(field)], dim=1)
        return Estimate(xi, torch.where(carries, strength / (1 + strength), 0.0))

    def _vectors(self, field: Tensor) -> Tensor:
        """M_phi: ``(B, spatial, 2)``."""
        features = standardise(resample(field, [self.points] * self.group.dim))
        pool = functional.avg_pool1d if self.group.dim == 1 else functional.avg_pool2d
        with torch.autocast(field.device.type, enabled=False):
            for layer in self.layers:
                features = pool(functional.gelu(layer(features)), 2)
            code = functional.gelu(self.hidden(features.flatten(1).to(self.hidden.weight.dtype)))
            return self.out(code).reshape(len(field), -1, 2).to(field.dtype)
