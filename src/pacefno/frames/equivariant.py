"""The learned frame, equivariant by construction (the default)."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from pacefno.frames.base import Estimate, Frame
from pacefno.frames.readout import harmonics, retract, standardise
from pacefno.grid import check_field, compute_dtype, resample
from pacefno.symmetry import CanonicalSlice, Group, default_slice

CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d}
KERNEL = 5


class CircularConvolution(nn.Module):
    """A convolution on the torus: it commutes with every whole-cell shift."""

    def __init__(self, dim: int, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.dim = dim
        scale = (channels_in * KERNEL**dim) ** -0.5
        self.weight = nn.Parameter(scale * torch.randn(channels_out, channels_in, *[KERNEL] * dim))
        self.bias = nn.Parameter(torch.zeros(channels_out))

    def forward(self, field: Tensor) -> Tensor:
        padded = functional.pad(field, [KERNEL // 2] * (2 * self.dim), mode="circular")
        return CONVOLUTIONS[self.dim](padded, self.weight, self.bias)


class DensityNetwork(nn.Module):
    """Circular convolutions that turn a field into ``maps`` densities; no coordinates, so they move with the field."""

    def __init__(self, dim: int, channels: int, width: int, depth: int, maps: int) -> None:
        super().__init__()
        sizes = [channels, *[width] * depth, maps]
        self.layers = nn.ModuleList(CircularConvolution(dim, a, b) for a, b in pairwise(sizes))

    def forward(self, field: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            field = functional.gelu(layer(field))
        return last(field)


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
        self.group = group
        self.channels = channels
        self.aligned = aligned
        self.slice = default_slice(group) if slice is None else slice
        self.points = points or (64 if group.dim == 1 else 32)
        self.network = DensityNetwork(group.dim, channels, width, depth, maps=group.spatial)
        if aligned:
            nn.init.zeros_(self.network.layers[-1].weight)  # type: ignore[arg-type]

    def forward(self, field: Tensor) -> Estimate:
        check_field(field, channels=self.channels, dim=self.group.dim, finite=False)
        field = field.to(compute_dtype(field.dtype))
        start = self._start(field)
        canonical = self.group.inverse(field, start)
        vectors = self.vectors(canonical)
        strength = vectors.norm(dim=-1).amin(dim=1)  # (B,)
        if self.aligned:
            vectors = vectors + vectors.new_tensor([1.0, 0.0])
            confidence = self.slice.quality(field).clamp(0, 1)
        else:
            confidence = (strength / (1 + strength)).to(field.dtype)
        firm = (confidence > torch.finfo(field.dtype).eps)[:, None]
        spatial = retract(vectors, self.group)
        residual = functional.pad(torch.where(firm, spatial, 0.0), (0, self.group.size - self.group.spatial))
        return Estimate(self.group.compose(start, residual.to(start.dtype)), confidence)

    def vectors(self, canonical: Tensor) -> Tensor:
        """One vector in R^2 per spatial coordinate, ``(B, spatial, 2)``: M_phi."""
        coarse = resample(canonical, [min(self.points, n) for n in canonical.shape[2:]])
        density = self.network(standardise(coarse).to(self.network_dtype))
        parts = harmonics(density)  # (B, spatial, dim, 2)
        dim = self.group.dim
        positions = [parts[:, axis, axis] for axis in range(dim)]
        # An angle is the direction in which a density leans: the sine parts along x and y.
        directions = [parts[:, j, :2, 1] for j in range(dim, self.group.spatial)]
        return torch.stack(positions + directions, dim=1)

    @property
    def network_dtype(self) -> torch.dtype:
        return next(self.network.parameters()).dtype

    def _start(self, field: Tensor) -> Tensor:
        if self.aligned:
            return self.slice.coordinates(field)
        velocity = self.group.kinematic(field)
        return torch.cat([velocity.new_zeros(len(field), self.group.spatial), velocity], dim=1)
