"""The paper's estimator read literally: an ordinary encoder, R^2k, a retraction. For comparison."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from pacefno.fields import Field, FieldType
from pacefno.frames.analytic import CanonicalSlice, default_slice
from pacefno.frames.base import (
    Energy,
    Estimate,
    Frame,
    SelfConsistency,
    check_something_to_find,
    clip_quality,
    with_measured,
)
from pacefno.frames.learned import COARSE_POINTS, CircularConvolution, retract, standardise
from pacefno.grid import compute_dtype, resample
from pacefno.groups import Group
from pacefno.registry import register

POOLS = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


@register("frame", "cnn")
class CNNFrame(Frame):
    """Convolutions with pooling, then a dense layer that sees absolute positions.

    It learns the shifts that it was trained on and has no reason to be right beyond them.

    With ``retracted=False`` the structure of its output is taken away: k plain numbers are the
    coordinates, without ``R^2k`` and retraction. A coordinate is then no longer a point on a
    circle, so the regression must tear the torus somewhere; it has no measure of how sure it is.
    """

    def __init__(
        self,
        group: Group,
        type: FieldType,
        *,
        slice: CanonicalSlice | None = None,
        retracted: bool = True,
        width: int = 24,
        stages: int = 3,
        points: int | None = None,
    ) -> None:
        super().__init__()
        check_something_to_find(group, "CNNFrame")
        self.group = group
        self.slice = default_slice(group) if slice is None else slice
        self.retracted = retracted
        self.points = points or COARSE_POINTS[group.dim]
        sizes = [type.size, *[width] * stages]
        self.layers = nn.ModuleList(
            CircularConvolution(group.dim, a, b) for a, b in pairwise(sizes)
        )
        cells = (self.points // 2**stages) ** group.dim
        self.hidden = nn.Linear(width * cells, 128)
        self.out = nn.Linear(128, (2 if retracted else 1) * group.spatial)

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        field = field.to(compute_dtype(field.values.dtype))
        code = self._encode(field.values)
        if not self.retracted:
            return with_measured(self.group, field, code, torch.ones_like(code))
        vectors = code.reshape(field.batch, -1, 2)  # M_phi
        # An encoder that sees positions always answers; a field without a frame must not be
        # believed.
        carries = clip_quality(self.slice.quality(field))[:, None] > 0
        spatial = torch.where(carries, retract(vectors, self.group), 0.0)
        strength = vectors.norm(dim=-1)
        found = torch.where(carries, strength / (1 + strength), 0.0)
        return with_measured(self.group, field, spatial, found)

    def _encode(self, values: Tensor) -> Tensor:
        features = standardise(resample(values, [self.points] * self.group.dim))
        pool = POOLS[self.group.dim]
        with torch.autocast(values.device.type, enabled=False):
            for layer in self.layers:
                features = pool(functional.gelu(layer(features)), 2)
            flat = features.flatten(1).to(self.hidden.weight.dtype)
            code: Tensor = self.out(functional.gelu(self.hidden(flat)))
        return code.to(values.dtype)


@register("frame", "partial")
class PartialFrame(Frame):
    """Another frame's first ``keep`` coordinates; the rest of the group is the identity."""

    def __init__(self, group: Group, inner: Frame, keep: int) -> None:
        super().__init__()
        self.group = group
        self.inner = inner
        self.keep = keep

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        found = self.inner(field, hint)
        unasked = torch.arange(self.group.size, device=found.quality.device) >= self.keep
        return Estimate(self.kept(found.xi), found.quality.masked_fill(unasked, 1.0))

    @property
    def removes_flow(self) -> bool:
        return self.keep > self.group.spatial and self.inner.removes_flow

    def kept(self, xi: Tensor) -> Tensor:
        return functional.pad(xi[:, : self.keep], (0, self.group.size - self.keep))

    def energy(self) -> Energy:
        return PartialConsistency(self)


class PartialConsistency(SelfConsistency):
    """The paper's J_TTA of a partial frame: refinement must not find what the frame leaves out."""

    frame: PartialFrame

    def residual(self, field: Field, xi: Tensor) -> Tensor:
        return super().residual(field, self.frame.kept(xi))
