"""The learned frame, equivariant by construction (the default)."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from pacefno.frames.analytic import KinematicFrame, analytic_frame
from pacefno.frames.base import Energy, Estimate, Frame, SelfConsistency, check_something_to_find, firm_part
from pacefno.frames.readout import harmonics, retract, shares, standardise
from pacefno.frames.seams import SeamFrame
from pacefno.grid import check_field, compute_dtype, resample
from pacefno.symmetry import CanonicalSlice, Group

CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d}
KERNEL = 5
MANY = 4


class CircularConvolution(nn.Module):
    """A convolution on the torus: it commutes with every whole-cell shift. Computed in the precision of the field."""

    def __init__(self, dim: int, channels_in: int, channels_out: int, *, bias: bool = True) -> None:
        super().__init__()
        self.dim = dim
        scale = (channels_in * KERNEL**dim) ** -0.5
        self.weight = nn.Parameter(scale * torch.randn(channels_out, channels_in, *[KERNEL] * dim))
        self.bias = nn.Parameter(torch.zeros(channels_out)) if bias else None

    def forward(self, field: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(field.dtype)
        return CONVOLUTIONS[self.dim](wrap_around(field, self.dim, KERNEL // 2), self.weight.to(field.dtype), bias)


def wrap_around(field: Tensor, dim: int, margin: int) -> Tensor:
    """The field with a periodic margin on each grid axis; forward and backward take half the time of ``functional.pad``."""
    for axis in range(-dim, 0):
        last = field.narrow(axis, field.shape[axis] - margin, margin)
        field = torch.cat([last, field, field.narrow(axis, 0, margin)], dim=axis)
    return field


class DensityNetwork(nn.Module):
    """Circular convolutions that turn a field into ``maps`` densities; no coordinates, so they move with the field."""

    def __init__(self, dim: int, channels: int, width: int, depth: int, maps: int) -> None:
        super().__init__()
        sizes = [channels, *[width] * depth]
        self.hidden = nn.ModuleList(CircularConvolution(dim, a, b) for a, b in pairwise(sizes))
        self.last = CircularConvolution(dim, sizes[-1], maps, bias=False)  # a constant has no harmonic: a bias would be dead

    def forward(self, field: Tensor) -> Tensor:
        # Autocast would round the features, and rounding does not commute with a shift.
        with torch.autocast(field.device.type, enabled=False):
            for layer in self.hidden:
                field = functional.gelu(layer(field))
            density: Tensor = self.last(field)
            return density


class EquivariantFrame(Frame):
    """A density network read out by its first harmonics, on a coarse grid that costs little and fits every resolution.

    With ``aligned`` (the default) the field is first pulled back by the analytic frame. What is left does not depend on
    the group element, so the residual that the network finds on it cannot either, whatever the network; the product of
    the two elements is exactly equivariant. At the start the residual is the identity and training may move it.

    Without it the network alone finds the position. Its nonlinearities alias, so it is exact only for shifts by whole
    cells of the coarse grid.
    """

    def __init__(
        self,
        group: Group,
        channels: int,
        *,
        aligned: bool = True,
        slice: CanonicalSlice | None = None,
        width: int = 16,
        depth: int = 2,
        points: int | None = None,
    ) -> None:
        super().__init__()
        check_something_to_find(group, type(self).__name__)
        self.group = group
        self.channels = channels
        self.aligned = aligned
        self.start = analytic_frame(group, slice) if aligned else KinematicFrame(group)
        # Pulling a channel back costs as much as operating on it: of many frames the first and the last are enough.
        all_of_them = channels <= MANY or not aligned or group.vectors
        self.seen = list(range(channels)) if all_of_them else [0, channels - 1]
        self.points = points or (64 if group.dim == 1 else 32)
        self.network = DensityNetwork(group.dim, len(self.seen), width, depth, maps=group.spatial)
        if aligned:
            nn.init.zeros_(self.network.last.weight)

    def forward(self, field: Tensor) -> Estimate:
        check_field(field, channels=self.channels, dim=self.group.dim, finite=False)
        field = field.to(compute_dtype(field.dtype))
        return self._corrected(field, self.start(field))

    def known(self, field: Tensor, xi: Tensor) -> Estimate:
        return self._corrected(field, self.start.known(field, xi))

    def _corrected(self, field: Tensor, start: Estimate) -> Estimate:
        """The start times the residual that the network finds on what it pulls back."""
        # Pulled back on the full grid: a rotation does not commute with the resampling, though a shift does.
        pulled = self.group.inverse(field if len(self.seen) == self.channels else field[:, self.seen], start.xi)
        coarse = resample(pulled, [self.points] * self.group.dim)
        density = self.network(standardise(coarse))
        vectors = self._vectors(density)
        confidence = start.confidence if self.aligned else firm_part(shares(density, vectors).amin(dim=1))
        if self.aligned:
            vectors = vectors + vectors.new_tensor([1.0, 0.0])
        spatial = torch.where(confidence[:, None] > 0, retract(vectors, self.group), 0.0)
        residual = functional.pad(spatial, (0, self.group.size - self.group.spatial))
        return Estimate(self.group.compose(start.xi, residual), confidence)

    def energy(self) -> Energy:
        """The start's own, where that is more than consistency: a seam says more than any estimator."""
        return self.start.energy() if isinstance(self.start, SeamFrame) else SelfConsistency(self)

    def _vectors(self, density: Tensor) -> Tensor:
        """One vector in R^2 per spatial coordinate, ``(B, spatial, 2)``: M_phi."""
        parts = harmonics(density)  # (B, spatial, dim, 2)
        dim = self.group.dim
        positions = [parts[:, axis, axis] for axis in range(dim)]
        # An angle is the direction in which a density leans: the sine parts along x and y.
        directions = [parts[:, j, :2, 1] for j in range(dim, self.group.spatial)]
        return torch.stack(positions + directions, dim=1)
