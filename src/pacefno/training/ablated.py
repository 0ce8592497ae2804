"""Frames with a part taken out, for ablations that must be trained so (``pacefno study ablation``)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from pacefno.frames import EquivariantFrame, Estimate, Frame
from pacefno.frames.equivariant import CircularConvolution
from pacefno.frames.readout import standardise
from pacefno.grid import check_field, compute_dtype, resample
from pacefno.symmetry import CanonicalSlice, Group


class PartialFrame(Frame):
    """Another frame's first ``keep`` coordinates; the rest of the group is left alone (identity)."""

    def __init__(self, inner: Frame, keep: int) -> None:
        super().__init__()
        self.group = inner.group
        self.inner = inner
        self.keep = keep

    def forward(self, field: Tensor) -> Estimate:
        found = self.inner(field)
        kept = functional.pad(found.xi[:, : self.keep], (0, self.group.size - self.keep))
        return Estimate(kept, found.confidence)


class RegressionFrame(Frame):
    """The paper's encoder without the structure of its output: k plain numbers are the coordinates, no ``R^2k``, no retraction.

    A coordinate is then no longer a point on a circle: the regression must tear the torus somewhere. It has no measure of
    how sure it is, so its confidence is one.
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
        self.out = nn.Linear(128, group.spatial)

    def forward(self, field: Tensor) -> Estimate:
        check_field(field, channels=self.channels, dim=self.group.dim, finite=False)
        field = field.to(compute_dtype(field.dtype))
        xi = torch.cat([self._coordinates(field), self.group.kinematic(field)], dim=1)
        return Estimate(xi, xi.new_ones(len(field)))

    def _coordinates(self, field: Tensor) -> Tensor:
        features = standardise(resample(field, [self.points] * self.group.dim))
        pool = functional.avg_pool1d if self.group.dim == 1 else functional.avg_pool2d
        with torch.autocast(field.device.type, enabled=False):
            for layer in self.layers:
                features = pool(functional.gelu(layer(features)), 2)
            code = functional.gelu(self.hidden(features.flatten(1).to(self.hidden.weight.dtype)))
            numbers: Tensor = self.out(code)
        return numbers.to(field.dtype)


ABLATED_FRAMES: dict[str, Callable[[Group, int, CanonicalSlice], Frame]] = {
    "regression": lambda group, channels, slice: RegressionFrame(group, channels),
    "translations": lambda group, channels, slice: PartialFrame(EquivariantFrame(group, channels, slice=slice), group.dim),
}
