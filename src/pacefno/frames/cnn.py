"""The paper's estimator read literally: an ordinary encoder, R^2k, a retraction. For comparison."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from pacefno.frames.base import Estimate, Frame
from pacefno.frames.equivariant import CircularConvolution
from pacefno.frames.readout import retract, standardise
from pacefno.grid import check_field, compute_dtype, resample
from pacefno.symmetry import Group


class CNNFrame(Frame):
    """Convolutions with pooling, then a dense layer that sees absolute positions.

    It learns the shifts it was trained on and has no reason to be right beyond them: that is the comparison's point.
    """

    def __init__(self, group: Group, channels: int, *, width: int = 24, stages: int = 3, points: int | None = None) -> None:
        super().__init__()
        self.group = group
        self.channels = channels
        self.points = points or (64 if group.dim == 1 else 32)
        sizes = [channels, *[width] * stages]
        self.layers = nn.ModuleList(CircularConvolution(group.dim, a, b) for a, b in pairwise(sizes))
        cells = (self.points // 2**stages) ** group.dim
        self.hidden = nn.Linear(width * cells, 128)
        self.out = nn.Linear(128, 2 * group.spatial)

    def forward(self, field: Tensor) -> Estimate:
        check_field(field, channels=self.channels, dim=self.group.dim, finite=False)
        field = field.to(compute_dtype(field.dtype))
        vectors = self.vectors(field)
        strength = vectors.norm(dim=-1).amin(dim=1)
        confidence = (strength / (1 + strength)).to(field.dtype)
        present = (field - field.flatten(2).mean(dim=2).reshape(*field.shape[:2], *[1] * self.group.dim)).flatten(1).abs()
        empty = present.amax(dim=1) <= torch.finfo(field.dtype).eps * field.flatten(1).abs().amax(dim=1)
        spatial = torch.where(empty[:, None], 0.0, retract(vectors, self.group)).to(field.dtype)
        xi = torch.cat([spatial, self.group.kinematic(field).to(field.dtype)], dim=1)
        return Estimate(xi, torch.where(empty, 0.0, confidence))

    def vectors(self, field: Tensor) -> Tensor:
        """M_phi: ``(B, spatial, 2)``."""
        features = standardise(resample(field, [self.points] * self.group.dim)).to(self.out.weight.dtype)
        pool = functional.avg_pool1d if self.group.dim == 1 else functional.avg_pool2d
        for layer in self.layers:
            features = pool(functional.gelu(layer(features)), 2)
        return self.out(functional.gelu(self.hidden(features.flatten(1)))).reshape(len(field), -1, 2)
