"""Frames that need no training: canonical slices, read off the field, and the frames they give."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional

from pacefno.errors import UsageError
from pacefno.fields import AXES, Field, Quantity
from pacefno.frames._moments import (
    Modes,
    centroid,
    concentration,
    crest,
    direction,
    first_modes,
    impulse,
    impulse_bound,
    phase_share,
    share_outside_disc,
    without_background,
)
from pacefno.frames.base import Energy, Estimate, Frame, clip_quality, with_measured
from pacefno.grid import (
    compute_dtype,
    curl_and_divergence,
    exact_mean,
    in_transform,
    smaller,
    waves,
)
from pacefno.groups import Group
from pacefno.groups.galilean import tells_velocity
from pacefno.registry import register

# --- slices ---------------------------------------------------------------------------------------


class CanonicalSlice(ABC):
    """Which representative of each orbit counts as unmoved: ``coordinates(act(u, xi)) = xi`` on it.

    A stationary random field has no position of its own, so "shifted" means nothing until a slice
    is stated. Data in the canonical frame lie on it, and its coordinates can be read off any field.
    """

    group: Group
    threshold: float  # below this quality a field is too close to one without a frame

    @abstractmethod
    def read_spatial(self, field: Field) -> tuple[Tensor, Tensor]:
        """Spatial coordinates ``(B, spatial)`` of the first snapshot, and the quality of each."""

    def read(self, field: Field) -> Estimate:
        """The element that carries the slice to this field, ``(B, size)``, and its quality."""
        self.group.check_type(field.type)
        # Squares of half precision overflow, and a mean in it would be a wrong velocity.
        field = field.to(compute_dtype(field.values.dtype))
        return with_measured(self.group, field, *self.read_spatial(field))

    def coordinates(self, field: Field) -> Tensor:
        """The element that carries the slice to this field, ``(B, size)``."""
        return self.read(field)[0]

    def quality(self, field: Field) -> Tensor:
        """How firmly the field determines all coordinates, ``(B,)`` in [0, 1]."""
        quality = self.read(field)[1]
        return quality.amin(dim=1) if quality.shape[1] else quality.new_ones(field.batch)

    def frame(self) -> Frame:
        """The frame that needs no training: the coordinates of this slice."""
        return AnalyticFrame(self.group, self)

    def energy(self) -> Energy | None:
        """An energy that says more than a frame's own consistency, if the slice has one."""
        return None


def shift_axes(group: Group) -> list[int]:
    """The grid axes along which the spatial coordinates of a group are shifts, in their order."""
    return [AXES.index(name) for name in group.coordinates[: group.spatial] if name in AXES]


def with_unseen(group: Group, positions: Tensor, quality: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of :func:`shift_axes` as all spatial coordinates; others are 0 with quality 0."""
    unseen = positions.new_zeros(positions.shape[0], group.spatial - positions.shape[1])
    return torch.cat([positions, unseen], dim=1), torch.cat([quality, unseen.to(quality)], dim=1)


@register("slice", "phase")
class PhaseSlice(CanonicalSlice):
    """Zero phase of the first Fourier mode of one channel along each axis; no mean velocity.

    The choice for data of which one knows that this mode is there: it varies smoothly with the
    field. A channel without it along an axis does not determine the position there.
    """

    threshold = 0.01

    def __init__(self, group: Group, channel: int = 0) -> None:
        self.group = group
        self.channel = channel

    def read_spatial(self, field: Field) -> tuple[Tensor, Tensor]:
        axes, still = shift_axes(self.group), self.group.at_rest(field)
        # Of the first snapshot: a later one may be somewhere else by then.
        values, own = (part.by_snapshot[:, 0, self.channel] for part in (still, field))
        modes = first_modes(values)
        quality = phase_share(values, own, modes)[:, axes]
        determined = quality > torch.finfo(quality.dtype).eps
        position = torch.where(determined, crest(modes)[:, axes], 0.0)
        return with_unseen(self.group, position, quality)


@register("slice", "strongest-wave")
class StrongestWaveSlice(CanonicalSlice):
    """Zero phase of the strongest long wave of the field along each axis; no mean velocity.

    The default for translations and boosts: it finds a position on nearly any field. Along each
    axis on its own, the wave is that of the channel and wavenumber (up to ``waves``) with the
    largest share of the variance, long waves preferred. A wave of number k has k crests; the one
    where the field, all its long waves together, is highest is the position. Where no channel has
    such a wave, as in ``sin(x) sin(y)``, the squares of the values do; where these have none
    either, as along a shear flow, the position does not exist and is reported as undetermined.

    A field that repeats itself within the box, such as a wave of number 2 alone, is as high on
    several crests. One of them is its position, with quality 0: a model whose output does not
    repeat itself in the same way cannot follow such a field.
    """

    threshold = 0.01
    negligible = 1e-6  # a share of the variance that is not taken for a wave
    # Weights of waves in the choice. Channels of a symmetric flow may be equally strong, and
    # rounding would choose without a preference; a momentum is only known as well as its frame.
    next_channel = 0.99
    of_momentum = 0.01
    tie = 1e-3  # weighted powers that differ by less than this share are equal

    def __init__(self, group: Group, waves: int = 8) -> None:
        self.group = group
        self.waves = waves

    def read_spatial(self, field: Field) -> tuple[Tensor, Tensor]:
        axes = shift_axes(self.group)
        if not axes:
            nowhere = field.values.new_zeros(field.batch, 0)
            return with_unseen(self.group, nowhere, nowhere)
        first = field.at([0])
        values = standardised_quantities(first, self.group)  # (B, C, *grid)
        weights = self._weights(first, values.shape[1])
        density = values.square().sum(dim=1, keepdim=True)
        density = density - density.flatten(1).mean(dim=1).reshape(-1, *[1] * (density.ndim - 1))
        spread = density.flatten(1).square().mean(dim=1)
        density = density / spread.clamp_min(1e-3).sqrt().reshape(-1, *[1] * (density.ndim - 1))
        found = [self._strongest(values, density, weights, axis) for axis in axes]
        position, number, quality = (torch.stack(part, dim=1) for part in zip(*found, strict=True))
        blind = torch.compiler.is_compiling() or in_transform(values)
        if blind or bool((number > 1).any()):
            position, lead = highest_crest(mixed(values), axes, position, number, self.waves)
            alone = lead > torch.finfo(values.dtype).eps ** 0.5
            quality = torch.where(alone, quality, 0.0)
        return with_unseen(self.group, position, quality.to(values.dtype))

    def _weights(self, field: Field, channels: int) -> Tensor:
        """How much the waves of each channel count in the choice, ``(C, 1)``."""
        momenta = [
            quantity.how.needs_density
            for quantity in field.type.quantities
            for _ in quantity.components
        ] or [False] * channels
        weights = [
            self.next_channel**rank * (self.of_momentum if momentum else 1.0)
            for rank, momentum in enumerate(momenta)
        ]
        return torch.tensor(weights, dtype=torch.float64, device=field.values.device)[:, None]

    def _strongest(
        self, values: Tensor, density: Tensor, weights: Tensor, axis: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Position of a crest, wavenumber and share of variance along one axis, each ``(B,)``."""
        linear = self._waves(values, weights, axis)
        square = self._waves(density, weights[:1], axis)
        wave = torch.where(linear[2] > self.negligible, torch.stack(linear), torch.stack(square))
        position, number, share = wave.unbind(dim=0)
        determined = share > self.negligible
        return (
            torch.where(determined, position, 0.0),
            torch.where(determined, number, 1.0),
            torch.where(determined, share, 0.0),
        )

    def _waves(self, values: Tensor, weights: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
        others = [a for a in range(2, values.ndim) if a != axis + 2]
        lines = exact_mean(values, others) if others else values.double()
        most = -smaller(-1, -smaller(self.waves, (lines.shape[-1] - 1) // 2))  # at least 1
        cos, sin = (
            part[:, 1:] / lines.shape[-1] for part in waves(lines.shape[-1], most, lines)[:2]
        )
        modes = Modes(lines @ cos, -(lines @ sin))  # (B, C, K)
        share = 2 * modes.power
        number = torch.arange(1, most + 1, dtype=share.dtype, device=share.device)
        weighted = share / number * weights
        weighted = weighted.flatten(1)
        # Of equally strong waves the first: rounding would choose another one after a move.
        level = weighted.amax(dim=1, keepdim=True) * (1 - self.tie)
        best = (weighted >= level).to(weighted.dtype).argmax(dim=1, keepdim=True)
        chosen = Modes(*(part.flatten(1).gather(1, best)[:, 0] for part in modes))
        count = (best[:, 0] % most + 1).to(share.dtype)
        turns = crest(chosen)
        return turns / count, count, share.flatten(1).gather(1, best)[:, 0]


def standardised_quantities(field: Field, group: Group) -> Tensor:
    """Each quantity at rest, without its means and at unit root mean square, ``(B, C, *grid)``.

    The components of a vector share one scale. A quantity whose variation is lost in the rounding
    of its mean becomes nearly zero: the floor is the geometric mean of signal and round-off.
    """
    parts = []
    rest = group.at_rest(field)
    for moved, measured in zip(rest.parts, field.parts, strict=True):
        value, rounded = moved[:, 0], measured[:, 0]  # (B, n, *grid)
        flat = value.flatten(2)
        centred = flat - flat.mean(dim=2, keepdim=True)
        power = centred.square().mean(dim=2).sum(dim=1)
        size = rounded.flatten(2).square().mean(dim=2).sum(dim=1)
        floor = torch.finfo(flat.dtype).eps * size
        scale = (power + floor + torch.finfo(flat.dtype).tiny).sqrt()
        parts.append((centred / scale[:, None, None]).reshape(value.shape))
    return torch.cat(parts, dim=1)


def mixed(values: Tensor) -> Tensor:
    """One field ``(B, *grid)`` of all channels; a plain sum would lose a flow with ``u = -v``."""
    rank = torch.arange(values.shape[1], dtype=values.dtype, device=values.device)
    return (values * (1 + 0.37 * rank).reshape(-1, *[1] * (values.ndim - 2))).sum(dim=1)


BESIDE = 0.0618  # of a period, along each axis


def sum_of_waves(lines: Tensor, place: Tensor, top: int) -> Tensor:
    """The long waves ``|k| <= top`` along axis 1 of ``(B, n, ...)`` at places ``(B, p)``, and half
    of what is beside them: ``(B, ..., p)``. Waves of both signs add up to a real number.
    """
    n = lines.shape[1]
    cos, sin, counts = waves(n, top, lines)  # (n, k)
    weight = counts / n
    turns = place[..., None] * torch.arange(top + 1, dtype=place.dtype, device=place.device)
    beside = turns + BESIDE * torch.arange(top + 1, dtype=place.dtype, device=place.device)
    a = (2 * math.pi * turns).cos() + 0.5 * (2 * math.pi * beside).cos()
    b = (2 * math.pi * turns).sin() + 0.5 * (2 * math.pi * beside).sin()
    rest = lines.reshape(lines.shape[0], n, -1)
    made = (a * weight) @ (cos.T @ rest) + (b * weight) @ (sin.T @ rest)  # (B, p, rest)
    return made.movedim(1, -1).reshape(lines.shape[0], *lines.shape[2:], place.shape[1])


def highest_crest(
    values: Tensor, axes: list[int], position: Tensor, number: Tensor, longest: int
) -> tuple[Tensor, Tensor]:
    """Which of the crests ``position + i / number`` is where ``values`` ``(B, *grid)`` is highest.

    The value there is that of the long waves alone, up to ``longest``, summed term by term: exact
    between grid points too, so the choice does not depend on where the grid lies. The values beside
    it, ``BESIDE`` of a period on, count half: the crests of ``sin(x) sin(y)`` with other waves on
    it may be equally high although the field does not repeat itself. Returns the crest and by how
    much it is higher than the best one elsewhere along each axis, both ``(B, axes)``.
    """
    dim = values.ndim - 1
    height = values.double()
    index = torch.arange(longest, dtype=torch.float64, device=values.device)
    grids: list[Tensor] = []
    for axis in range(dim):
        n = values.shape[axis + 1]
        top = smaller(longest, (n - 1) // 2)
        if axis in axes:
            j = axes.index(axis)
            place = position[:, j, None] + index / number[:, j, None]  # (B, waves)
            # A crest beyond the last is the first one again.
            place = torch.where(index < number[:, j, None], place, position[:, j, None])
        else:
            place = height.new_zeros(values.shape[0], 1)
        height = sum_of_waves(height, place, top)  # the axes in turn come to place 1
        grids.append(place)
    best = height.flatten(1).argmax(dim=1)
    chosen: list[Tensor] = []
    for place in reversed(grids):
        chosen.insert(0, (best % place.shape[1])[:, None])
        best = best // place.shape[1]
    moved = torch.cat([grids[axis].gather(1, chosen[axis]) for axis in axes], dim=1)
    lead: list[Tensor] = []
    for j, axis in enumerate(axes):
        count = number[:, j, None]
        others = [a for a in range(1, dim + 1) if a != axis + 1]
        along = height.amax(dim=others) if others else height  # (B, places along the axis)
        here = torch.where(chosen[axis] < count, chosen[axis], 0)
        same = (index == here) | (index >= count)
        lead.append(along.amax(dim=1) - along.masked_fill(same, -math.inf).amax(dim=1))
    return torch.remainder(moved + 0.5, 1.0) - 0.5, torch.stack(lead, dim=1)


@register("slice", "moment")
class MomentSlice(CanonicalSlice):
    """Compact vorticity with its enstrophy centroid at the centre and its impulse along +x.

    The default for rotations. A velocity field is read by its vorticity, without its mean flow. A
    field that fills its box has no centre, and a rotation would tear it: then nothing is
    determined. A round vortex has a centre but no angle. In a periodic box a vortex with
    circulation lies on vorticity of the opposite sign, the same everywhere: it is taken out first.
    """

    threshold = 0.1
    outside = (
        0.05  # the share of the enstrophy beyond the inscribed disc at which a field fills its box
    )

    def __init__(self, group: Group) -> None:
        self.group = group

    def read_spatial(self, field: Field) -> tuple[Tensor, Tensor]:
        vorticity = without_background(vorticity_of(self.group.at_rest(field.at([0]))))
        density = vorticity.square()
        centre = centroid(density)
        vector = impulse(vorticity, centre)
        compact, share = self._qualities(vorticity, density, centre, vector)
        place = torch.remainder(centre, 1.0) - 0.5
        angle = direction(vector[:, 0], vector[:, 1])
        quality = torch.stack([compact, compact, compact * share], dim=1)
        xi = torch.cat([place, angle[:, None]], dim=1)
        xi = torch.where(quality > torch.finfo(quality.dtype).eps, xi, 0.0)
        return with_unseen(self.group, xi, quality)

    def _qualities(
        self, vorticity: Tensor, density: Tensor, centre: Tensor, vector: Tensor
    ) -> tuple[Tensor, Tensor]:
        """How compact a field is, and its impulse as a share of the largest possible, ``(B,)``."""
        bound = impulse_bound(vorticity, centre)
        least, tiny = torch.finfo(bound.dtype).eps ** 0.5, torch.finfo(bound.dtype).tiny
        nowhere = (concentration(density) <= least) | (bound == 0)
        compact = (1 - share_outside_disc(density, centre) / self.outside).clamp_min(0)
        share = vector.norm(dim=1) / bound.clamp_min(tiny)
        round = nowhere | (share <= least)
        return torch.where(nowhere, 0.0, compact), torch.where(round, 0.0, share)


def vorticity_of(field: Field) -> Tensor:
    """The scalar by which a plane field is oriented, ``(B, n, m)``: of the first snapshot.

    Its vorticity where it has one as a channel, else the curl of its first vector, else its first
    channel.
    """
    first = field.at([0])
    pseudoscalars = [q for q in field.type.quantities if q.kind == "pseudoscalar"]
    vectors = [q for q in field.type.quantities if q.how.vector]
    if not pseudoscalars and vectors:
        return curl(first, vectors[0])
    chosen = pseudoscalars[0] if pseudoscalars else field.type.quantities[0]
    values = first.of(chosen)[:, 0, 0]
    return values.to(compute_dtype(values.dtype))


def curl(field: Field, quantity: Quantity) -> Tensor:
    """``d_x v - d_y u`` of a plane vector on the unit torus, first snapshot, ``(B, n, m)``."""
    return curl_and_divergence(field.of(quantity)[:, 0])[:, 0]


def default_slice(group: Group) -> CanonicalSlice:
    """The slice that goes with a group where nothing else is said.

    It knows shifts, coordinates called x, y, z, and an angle; others need a slice of their own. No
    slice finds the element of a finite group: it stays 0, undetermined.
    """
    spatial = group.coordinates[: group.spatial]
    if others := [name for name in spatial if name not in (*AXES, "angle", "element")]:
        raise UsageError(
            f"no default slice reads the coordinate {others[0]!r} of the {group.name} group: write "
            "a CanonicalSlice for it and pass it as slice= to a Task, or PACE(..., "
            "frame=slice.frame())"
        )
    return MomentSlice(group) if "angle" in spatial else StrongestWaveSlice(group)


# --- frames ---------------------------------------------------------------------------------------


@register("frame", "analytic")
class AnalyticFrame(Frame):
    """The coordinates of a canonical slice: exactly equivariant, at any resolution, untrained.

    Without a slice it is that of the group (:func:`default_slice`).
    """

    def __init__(self, group: Group, slice: CanonicalSlice | None = None) -> None:
        super().__init__()
        self.group = group
        self.slice = default_slice(group) if slice is None else slice

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        found = self.slice.read(field)
        return Estimate(found.xi, clip_quality(found.quality))


@register("frame", "kinematic")
class KinematicFrame(Frame):
    """The measured velocity alone: what an operator without position channels still lacks."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        field = field.to(compute_dtype(field.values.dtype))
        velocity = self.group.kinematic(field)
        xi = functional.pad(velocity, (self.group.spatial, 0))
        told = tells_velocity(field).to(xi)[:, None].expand(velocity.shape)
        return Estimate(xi, functional.pad(told, (self.group.spatial, 0), value=1.0))


@register("frame", "identity")
class IdentityFrame(Frame):
    """No frame at all: with the trivial group this makes a plain operator, in PACE's code path."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        xi = self.group.identity(field.batch, device=field.values.device)
        return Estimate(xi, torch.ones_like(xi))

    @property
    def removes_flow(self) -> bool:
        return False
