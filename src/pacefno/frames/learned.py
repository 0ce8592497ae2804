"""Learned frames that are equivariant by construction: a density network and its harmonics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from pacefno.errors import UsageError
from pacefno.fields import AXES, Field, FieldType
from pacefno.frames._moments import direction, first_modes, phase_position, phase_share
from pacefno.frames.analytic import CanonicalSlice, KinematicFrame, default_slice, shift_axes
from pacefno.frames.base import (
    Energy,
    Estimate,
    Frame,
    SelfConsistency,
    check_something_to_find,
    clip_quality,
    with_measured,
    wrapped_residual,
)
from pacefno.grid import Kept, compute_dtype, curl_and_divergence, resample
from pacefno.groups import Group
from pacefno.groups._rotation import half_turn, quarter_turn
from pacefno.registry import register

CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
COARSE_POINTS = {1: 64, 2: 32, 3: 16}  # per axis of the grid that a network reads, by dimension
KERNEL_POINTS = 5
FEW_SNAPSHOTS = 4  # a frame reads all of so many; of more the first and the last


# --- networks -------------------------------------------------------------------------------------


class CircularConvolution(nn.Module):
    """A convolution on the torus, in the precision of the field; shifts by whole cells commute."""

    def __init__(self, dim: int, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.dim = dim
        scale = (inputs * KERNEL_POINTS**dim) ** -0.5
        self.weight = nn.Parameter(scale * torch.randn(outputs, inputs, *[KERNEL_POINTS] * dim))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, field: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(field.dtype)
        padded = wrap_around(field, self.dim, KERNEL_POINTS // 2)
        return CONVOLUTIONS[self.dim](padded, self.weight.to(field.dtype), bias)


def wrap_around(field: Tensor, dim: int, margin: int) -> Tensor:
    """The field with a periodic margin on each axis, in half the time of ``functional.pad``."""
    for axis in range(-dim, 0):
        last = field.narrow(axis, field.shape[axis] - margin, margin)
        field = torch.cat([last, field, field.narrow(axis, 0, margin)], dim=axis)
    return field


class DensityNetwork(nn.Module):
    """Circular convolutions from a field to densities that move with it; they see no positions."""

    def __init__(self, dim: int, channels: int, width: int, depth: int, maps: int) -> None:
        super().__init__()
        sizes = [channels, *[width] * depth]
        self.hidden = nn.ModuleList(CircularConvolution(dim, a, b) for a, b in pairwise(sizes))
        # A constant has no harmonic, so a bias in the last layer would never be trained.
        self.last = CircularConvolution(dim, sizes[-1], maps, bias=False)

    def forward(self, field: Tensor) -> Tensor:
        with torch.autocast(field.device.type, enabled=False):
            density: Tensor = self.last(self._features(field))
            return density

    def harmonics(self, field: Tensor) -> Tensor:
        """:func:`harmonics` of the densities, without the densities: a convolution multiplies each
        mode by that of its kernel.

        ``(c - i s)(a + i b)`` is ``(c a + s b) - i (s a - c b)``, summed over features.
        """
        features = self._features(field)
        c, s = harmonics(features)[:, None].unbind(dim=-1)  # (B, 1, features, dim)
        a, b = kernel_modes(self.last.weight, features.shape[2:]).unbind(dim=-1)
        return torch.stack([(c * a + s * b).sum(dim=2), (s * a - c * b).sum(dim=2)], dim=-1)

    def _features(self, field: Tensor) -> Tensor:
        # Autocast would round the features, and rounding does not commute with a shift.
        with torch.autocast(field.device.type, enabled=False):
            for layer in self.hidden:
                field = functional.gelu(layer(field))
            return field


# --- from features to coordinates: the paper's M_phi: A -> R^2k and its retraction (appendix A) ---


def standardise(field: Tensor) -> Tensor:
    """Each channel of each sample without its mean and at unit root mean square.

    Invariant under shifts, rotations and changes of unit. A constant channel becomes zero, and so
    does one whose variation is lost in the rounding of its mean: the floor is the geometric mean of
    signal and round-off.
    """
    flat = field.flatten(2)
    centred = flat - flat.mean(dim=2, keepdim=True)
    power = centred.square().mean(dim=2, keepdim=True)
    power = power + torch.finfo(field.dtype).eps * flat.square().mean(dim=2, keepdim=True)
    present = power > 0  # the root has no derivative at 0
    return (centred / torch.where(present, power, 1.0).sqrt()).reshape(field.shape)


def harmonics(features: Tensor) -> Tensor:
    """First Fourier coefficients of each map along each axis, ``(B, K, dim, 2)`` as (cos, sin).

    Moving the features by tau turns the pair of that axis by ``2 pi tau``: up to retraction the
    pair is a position.
    """
    batch, maps = features.shape[:2]
    modes = first_modes(features.flatten(0, 1))  # (B K, dim)
    return torch.stack([modes.real, -modes.imag], dim=-1).reshape(batch, maps, -1, 2)


def kernel_modes(weight: Tensor, grid: Sequence[int]) -> Tensor:
    """What :class:`CircularConvolution` multiplies the first mode along each axis of a grid by:
    ``sum_j w_j exp(2 pi i j / n)`` over the offsets j, ``(maps, features, dim, 2)`` as (cos, sin).
    """
    parts = []
    for axis, n in enumerate(grid, start=2):
        others = [a for a in range(2, weight.ndim) if a != axis]
        line = weight.double().sum(dim=others) if others else weight.double()
        parts.append((line[..., None] * kernel_wave(n, weight.device)).sum(dim=-2))
    return torch.stack(parts, dim=2)


@Kept
def kernel_wave(n: int, device: torch.device) -> Tensor:
    """Cosine and sine of ``2 pi j / n`` at the offsets of a kernel, ``(KERNEL_POINTS, 2)``."""
    j = torch.arange(KERNEL_POINTS, dtype=torch.float64, device=device) - KERNEL_POINTS // 2
    angle = 2 * math.pi * j / n
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def retract(vectors: Tensor, group: Group) -> Tensor:
    """``Ret: R^2k -> g_S``: the angle of each vector ``(B, spatial, 2)``, as a coordinate."""
    turns = direction(vectors[..., 0], vectors[..., 1]) / (2 * math.pi)
    return turns * turns.new_tensor(group.periods[: group.spatial])


def shares(density: Tensor, vectors: Tensor) -> Tensor:
    """The share of each density's variance that its vector ``(B, K, 2)`` stands for, ``(B, K)``."""
    flat = density.flatten(2)
    eps, tiny = torch.finfo(flat.dtype).eps, torch.finfo(flat.dtype).tiny
    floor = eps * flat.square().mean(dim=2) + tiny
    power = vectors.square().sum(dim=-1).to(flat.dtype)
    return 2 * power / (flat.var(dim=2, unbiased=False) + floor)


# --- frames ---------------------------------------------------------------------------------------


@register("frame", "equivariant")
class EquivariantFrame(Frame):
    """A density network read out by its first harmonics, on a coarse grid that fits every
    resolution.

    With ``aligned`` (the default) the field is first pulled back by the analytic frame. What is
    left does not depend on the group element, so the residual that the network finds on it cannot
    either, whatever the network; the product of the two elements is exactly equivariant. At the
    start the residual is the identity and training may move it.

    Without it the network alone finds the position. Its nonlinearities alias, so it is exact only
    for shifts by whole cells of the coarse grid.
    """

    def __init__(
        self,
        group: Group,
        type: FieldType,
        *,
        aligned: bool = True,
        slice: CanonicalSlice | None = None,
        width: int = 16,
        depth: int = 2,
        points: int | None = None,
    ) -> None:
        super().__init__()
        check_something_to_find(group, "EquivariantFrame")
        if unknown := set(group.coordinates[: group.spatial]) - {*AXES, "angle"}:
            raise UsageError(
                f"EquivariantFrame finds shifts along axes and angles, not {sorted(unknown)}: use "
                "the analytic frame with a slice of your own"
            )
        self.group = group
        self.aligned = aligned
        if aligned:
            self.start = (default_slice(group) if slice is None else slice).frame()
        else:
            self.start = KinematicFrame(group)
        # Pulling a snapshot back costs as much as operating on it: the ends of many are enough.
        self.seen = list(range(type.snapshots))
        if aligned and type.snapshots > FEW_SNAPSHOTS:
            self.seen = [0, type.snapshots - 1]
        self.points = points or COARSE_POINTS[group.dim]
        channels = len(self.seen) * (type.size // type.snapshots)
        self.network = DensityNetwork(group.dim, channels, width, depth, maps=group.spatial)
        if aligned:
            nn.init.zeros_(self.network.last.weight)

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        field = field.to(compute_dtype(field.values.dtype))
        start = self.start(field, hint)
        coarse = standardise(self._coarse(field.at(self.seen), start.xi))
        spatial = self.group.spatial
        if self.aligned:
            quality = start.quality
            vectors = self._vectors(self.network.harmonics(coarse))
            vectors = vectors + vectors.new_tensor([1.0, 0.0])
        else:
            density = self.network(coarse)
            vectors = self._vectors(harmonics(density))
            found = clip_quality(shares(density, vectors))
            quality = torch.cat([found, start.quality[:, spatial:].to(found)], dim=1)
        determined = quality[:, :spatial].amin(dim=1, keepdim=True) > 0
        left = torch.where(determined, retract(vectors, self.group), 0.0)
        residual = functional.pad(left, (0, self.group.size - spatial))
        return Estimate(self.group.compose(start.xi, residual), quality)

    def _coarse(self, field: Field, xi: Tensor) -> Tensor:
        """The field pulled back, on the grid that the network reads.

        A shift and a boost commute with resampling, and cost less after it; a rotation does not.
        """
        grid = [self.points] * self.group.dim
        if "angle" in self.group.coordinates:
            return resample(self.group.inverse(field, xi).values, grid)
        return self.group.inverse(field.with_values(resample(field.values, grid)), xi).values

    def energy(self) -> Energy:
        """That of the start where it says more than consistency does: a seam does."""
        own = self.start.energy()
        return SelfConsistency(self) if isinstance(own, SelfConsistency) else own

    def _vectors(self, parts: Tensor) -> Tensor:
        """One vector in R^2 per spatial coordinate, ``(B, spatial, 2)``: M_phi.

        ``parts`` are the harmonics of the densities, ``(B, spatial, dim, 2)``.
        """
        axes = shift_axes(self.group)
        positions = [parts[:, j, axis] for j, axis in enumerate(axes)]
        # An angle is the direction in which a density leans: the sine parts along x and y.
        directions = [parts[:, j, :2, 1] for j in range(len(axes), self.group.spatial)]
        return torch.stack(positions + directions, dim=1)


TURNING_MAPS = 3  # one density for the position, two whose flux is the direction


@register("frame", "turning")
class TurningFrame(Frame):
    """A learned frame of rigid motions, equivariant to shifts and quarter turns by construction.

    The network sees the field in its four quarter turns; what it makes of them is turned back and
    averaged. The crest of one averaged density is the position, the flux ``mean(d grad e)`` of two
    others the direction. Both turn with the field, so trained on angles within 45 degrees of one
    orientation the frame holds on the whole circle, and trained near one place it holds on the
    whole torus. It reads all snapshots, on a coarse grid, and needs no analytic start. Vectors are
    read by their curl and divergence, and a boost is measured, not learned.
    """

    def __init__(
        self,
        group: Group,
        type: FieldType,
        slice: CanonicalSlice | None = None,
        width: int = 16,
        depth: int = 3,
        points: int = 32,
    ) -> None:
        super().__init__()
        check_something_to_find(group, "TurningFrame")
        if group.coordinates[: group.spatial] != ("x", "y", "angle"):
            raise UsageError(
                f"TurningFrame finds a place in the plane and an angle, got the {group.name} group "
                f"of {group.coordinates}: use EquivariantFrame"
            )
        self.group = group
        self.slice = default_slice(group) if slice is None else slice
        self.points = points
        self.network = DensityNetwork(2, type.size, width, depth, maps=TURNING_MAPS)

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        return self.read(self.coarse(field))

    def coarse(self, field: Field) -> Field:
        """The field on the grid that the network reads."""
        values = field.values.to(compute_dtype(field.values.dtype))
        return field.with_values(resample(values, [self.points] * 2))

    def read(self, coarse: Field) -> Estimate:
        """The frame of a field on the coarse grid."""
        maps = self._maps(standardise(scalars_of(self.group.at_rest(coarse))))
        position = phase_position(maps[:, 0])
        slopes = [_slope(maps[:, 2], axis) for axis in (0, 1)]
        flux = torch.stack([(maps[:, 1] * slope).mean(dim=(1, 2)) for slope in slopes], dim=1)
        angle = direction(flux[:, 0], flux[:, 1])
        placed = clip_quality(phase_share(maps[:, 0]).amin(dim=1, keepdim=True))
        turned = placed * _share_of_direction(maps[:, 1], slopes, flux)[:, None].to(placed)
        quality = torch.cat([placed.expand(-1, 2), turned], dim=1)
        found = torch.cat([position, angle[:, None].double()], dim=1)
        spatial = torch.where(quality > 0, found, 0.0)
        made = with_measured(self.group, coarse, spatial, quality)
        return Estimate(self.group.wrap(made.xi), made.quality)

    def energy(self) -> Energy:
        """The slice's own where it has one, else the paper's consistency, on the coarse grid."""
        return self.slice.energy() or CoarseConsistency(self)

    def _maps(self, coarse: Tensor) -> Tensor:
        """``1/4 sum_q Q^q N(Q^-q a)``: maps that turn with the field, ``(B, 3, n, n)``."""
        turned = [coarse, quarter_turn(coarse)]
        turned += [half_turn(part) for part in turned]  # by 0, 90, 180 and 270 degrees
        zero, quarter, half, three = self.network(torch.cat(turned)).unflatten(0, (4, -1))
        back = quarter_turn(half_turn(quarter)) + half_turn(half) + quarter_turn(three)
        return (zero + back) / 4


class CoarseConsistency(Energy):
    """The paper's J_TTA on the grid that the frame reads: a sixteenth of the work.

    A rotation and a change of grid commute for fields that keep clear of the boundary of the box.
    """

    spacing = 1e-3

    def __init__(self, frame: TurningFrame) -> None:
        self.frame = frame
        self.group = frame.group

    def residual(self, field: Field, xi: Tensor) -> Tensor:
        pulled = self.group.inverse(self.frame.coarse(field), xi)
        return wrapped_residual(self.frame.read(pulled).xi, self.group)


def scalars_of(field: Field) -> Tensor:
    """The channels with each vector as its curl, and curl plus divergence, which do not turn.

    A divergence by itself may be all rounding, which would be blown up when it is standardised.
    """
    if not field.type.vectors:
        return field.values
    parts = []
    for quantity in field.type.quantities:
        value = field.of(quantity)
        if quantity.how.vector:
            curl, divergence = curl_and_divergence(value).unbind(dim=2)
            value = torch.stack([curl, curl + divergence], dim=2)
        parts.append(value)
    return torch.cat(parts, dim=2).flatten(1, 2)


@torch.no_grad()
def _share_of_direction(weight: Tensor, slopes: Sequence[Tensor], flux: Tensor) -> Tensor:
    """How much slopes point one way, ``(B,)``: the flux over its largest possible value.

    0 where that is round-off: the slopes of a round field cancel, so that it has no direction.
    """
    steepness = torch.stack(list(slopes)).norm(dim=0)
    most = (weight.abs() * steepness).mean(dim=(1, 2))
    share = flux.norm(dim=1) / most.clamp_min(torch.finfo(most.dtype).tiny)
    points = share > torch.finfo(most.dtype).eps ** 0.5
    return torch.where(points, share.clamp(max=1), 0.0)


def _slope(density: Tensor, axis: int) -> Tensor:
    """Central difference of ``(B, n, n)`` along an axis."""
    return density.roll(-1, dims=axis + 1) - density.roll(1, dims=axis + 1)
