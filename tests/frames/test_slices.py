"""The canonical slices and the moments behind them.

They read a motion off a field, and know when they cannot.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from group_examples import EXAMPLES, TAU, Example
from pacefno.fields import Field, FieldType
from pacefno.frames import (
    SLICES,
    CanonicalSlice,
    MomentSlice,
    PhaseSlice,
    QuarterSlice,
    StrongestWaveSlice,
    default_slice,
)
from pacefno.frames._moments import (
    centroid,
    concentration,
    direction,
    first_modes,
    impulse,
    phase_position,
    phase_share,
)
from pacefno.frames.analytic import (
    BESIDE,
    curl,
    highest_crest,
    standardised_quantities,
    vorticity_of,
)
from pacefno.grid import (
    FieldError,
    band_limit,
    from_curl_and_divergence,
    from_spectrum,
    points,
    to_spectrum,
    wavenumbers,
)
from pacefno.groups import Euclidean, Galilean, Group, Translation
from pacefno.testing import largest, random_field

GRIDS: dict[int, list[tuple[int, ...]]] = {
    1: [(32,), (33,), (64,)],
    2: [(32, 32), (33, 33), (32, 27)],
    3: [(12, 13, 14)],
}
PHASED = [n for n, e in EXAMPLES.items() if e.group.spatial and "angle" not in e.group.coordinates]
PHASE_CASES = [(name, grid) for name in PHASED for grid in GRIDS[EXAMPLES[name].group.dim]]
COMPACT_GRIDS = [(64, 64), (65, 65), (64, 80)]
SCALAR = {dim: FieldType.parse("a: scalar", dim) for dim in (1, 2, 3)}
SPEED = {dim: FieldType.parse("u: speed", dim) for dim in (1, 2)}
VORTICITY = FieldType.parse("w: pseudoscalar", 2)
VELOCITY = FieldType.parse("u: velocity", 2)


def periodic(
    type: FieldType, grid: tuple[int, ...], dtype: torch.dtype = torch.float64, batch: int = 6
) -> Field:
    """Random low modes with a clear first one; a density is positive."""
    white = random_field(type, grid, batch=batch, seed=1)
    low = band_limit(white.values, type.dim, 2)
    spread = low.flatten(2).std(dim=2).reshape(*low.shape[:2], *[1] * type.dim)
    mean = low.flatten(2).mean(dim=2).reshape(spread.shape)
    first = torch.cos(2 * math.pi * (points(grid) - 0.2)).sum(dim=0)
    values = 0.5 * (low - mean) / spread + first + 0.1 * mean
    densities = {quantity.of for quantity in type.quantities}
    names = type.channels or ("a", "b")
    for channel in range(values.shape[1]):
        if names[channel % len(names)] in densities:
            # the mean of m / h is exact only where the grid resolves 1 / h
            values[:, channel] = 1 + 0.03 * values[:, channel]
    return Field(values.to(dtype), type)


def compact(grid: tuple[int, ...], dtype: torch.dtype = torch.float64, batch: int = 8) -> Field:
    """Lopsided vortex pairs well inside the square, none of them symmetric."""
    x, y = points(grid) - 0.5
    skew = torch.linspace(0.5, 2.0, batch, dtype=torch.float64)[:, None, None]
    envelope = torch.exp(-(x**2 + y**2) / (2 * 0.05**2))
    pair = envelope * (x - 0.3 * y) * (1 + skew * (3 * x + 2 * y))
    return Field((pair / 0.05)[:, None].to(dtype), VORTICITY)


def flow_of(stream: Tensor) -> Tensor:
    """The divergence-free velocity ``(psi_y, -psi_x)`` of ``(B, n, m)``, ``(B, 2, n, m)``."""
    k = wavenumbers(stream.shape[1:])
    spectrum = 2j * math.pi * to_spectrum(stream[:, None], 2) * k
    return from_spectrum(torch.stack([spectrum[:, 1], -spectrum[:, 0]], dim=1), stream.shape[1:])


def on_slice(chosen: CanonicalSlice, field: Field) -> Field:
    for _ in range(3):
        field = chosen.group.inverse(field, chosen.coordinates(field))
    return field


def anywhere(group: Group, batch: int) -> Tensor:
    high = [1.5 if math.isinf(period) else 0.75 * period for period in group.periods]
    return group.sample([0.0] * group.size, high, batch, torch.Generator().manual_seed(2))


def slice_law(chosen: CanonicalSlice, field: Field) -> float:
    """``coordinates(act(u, xi)) = xi`` modulo the period, for u on the slice and any xi."""
    u, xi = on_slice(chosen, field), anywhere(chosen.group, len(field))
    return largest(chosen.group.difference(chosen.coordinates(chosen.group.act(u, xi)), xi))


# --- the law


@pytest.mark.parametrize(("name", "grid"), PHASE_CASES)
@pytest.mark.parametrize("cls", [PhaseSlice, StrongestWaveSlice])
def test_the_slices_of_waves_read_off_any_motion(
    cls: type[CanonicalSlice],
    name: str,
    grid: tuple[int, ...],
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    chosen = EXAMPLES[name]
    assert slice_law(cls(chosen.group), periodic(chosen.type, grid, dtype)) < tolerance


@pytest.mark.parametrize("name", PHASED)
def test_the_strongest_wave_of_a_random_field_reads_off_any_motion(
    name: str, dtype: torch.dtype
) -> None:
    """No first mode is put in: some samples are read by longer waves than others."""
    chosen: Example = EXAMPLES[name]
    grid = (24, 20, 18)[: chosen.group.dim]
    field = random_field(chosen.type, grid, batch=20, top=6, dtype=dtype, seed=4)
    read = StrongestWaveSlice(chosen.group)
    xi, quality = read.read(field)
    assert bool((quality > 0).all())
    g = anywhere(chosen.group, len(field))
    moved = read.coordinates(chosen.group.act(field, g))
    off = chosen.group.difference(moved, chosen.group.compose(g, xi))
    if chosen.has_momentum:  # sampled elsewhere, 1/h has another mean: positions alone
        off = off[:, : chosen.group.spatial]
    assert largest(off) < (1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("grid", COMPACT_GRIDS)
def test_the_moment_slice_reads_off_any_rigid_motion_of_a_compact_field(
    grid: tuple[int, ...], dtype: torch.dtype
) -> None:
    bound = 1e-8 if dtype == torch.float64 else 2e-4
    assert slice_law(MomentSlice(Euclidean()), compact(grid, dtype)) < bound


def test_the_moment_slice_reads_a_velocity_by_its_vorticity(dtype: torch.dtype) -> None:
    """As it reads the vorticity itself, and through quarter turns, which leave a flow whole."""
    group, pairs = Euclidean(), compact((64, 64)).values
    radius = (points((64, 64)) - 0.5).square().sum(dim=0)
    window = torch.exp(-radius / 0.005)  # a flow on the torus has no circulation
    pairs = pairs - window * (pairs.mean(dim=(2, 3), keepdim=True) / window.mean())
    vortices = Field(pairs.to(dtype), VORTICITY)
    spectrum = to_spectrum(pairs, 2)
    k2 = wavenumbers((64, 64)).square().sum(dim=0)
    stream = from_spectrum(torch.where(k2 > 0, spectrum / k2.clamp_min(1), 0), (64, 64))
    field = Field(flow_of(stream[:, 0]).to(dtype), VELOCITY)
    chosen = MomentSlice(group)
    bound = 1e-8 if dtype == torch.float64 else 2e-4
    expected = chosen.coordinates(vortices)
    assert largest(group.difference(chosen.coordinates(field), expected)) < bound
    xi = group.composable(anywhere(group, len(field)))
    off = group.difference(chosen.coordinates(group.act(field, xi)), group.compose(xi, expected))
    assert largest(off) < bound


def test_the_phase_slice_sees_the_translation_of_a_rigid_motion_and_leaves_the_angle() -> None:
    group = Euclidean()
    chosen = PhaseSlice(group)
    u = on_slice(chosen, periodic(SCALAR[2], (32, 32)))
    xi = anywhere(group, len(u)) * torch.tensor([1.0, 1.0, 0.0])
    assert largest(group.difference(chosen.coordinates(group.act(u, xi)), xi)) < 1e-12
    assert bool((chosen.read(u)[1][:, 2] == 0).all())


@given(st.floats(-2, 2), st.floats(-3, 3))
def test_the_phase_slice_is_exact_for_any_shift_and_boost(delta: float, velocity: float) -> None:
    group = Galilean(1)
    chosen = PhaseSlice(group)
    u = on_slice(chosen, periodic(SPEED[1], (33,), batch=1))
    xi = torch.tensor([[delta, velocity]], dtype=torch.float64)
    assert largest(group.difference(chosen.coordinates(group.act(u, xi)), xi)) < 1e-12


def test_the_chosen_channel_is_the_one_that_is_read() -> None:
    x = points((32,))[0]
    waves = [torch.cos(2 * math.pi * (x - place)) for place in (0.1, 0.3)]
    field = Field(torch.stack(waves)[None], FieldType.parse("a: scalar, b: scalar", 1))
    read = [float(PhaseSlice(Translation(1), i).coordinates(field)) for i in (0, 1)]
    assert read == pytest.approx([0.1, 0.3])


# --- and that its test can fail


def seen_by(field: Field, chosen: StrongestWaveSlice) -> tuple[Tensor, Tensor, Tensor]:
    """What the slice looks at: values, their squares, and the weights of the channels."""
    values = standardised_quantities(field, chosen.group)
    squares = values.square().sum(dim=1, keepdim=True)
    return values, squares, chosen._weights(field, values.shape[1])


class Mirrored(PhaseSlice):
    def read_spatial(self, field: Field) -> tuple[Tensor, Tensor]:
        position, quality = super().read_spatial(field)
        return -position, quality


class Highest(PhaseSlice):
    """The highest grid point: moves with the field, but only by whole cells."""

    def read_spatial(self, field: Field) -> tuple[Tensor, Tensor]:
        values = field.values[:, 0]
        place = (values.argmax(dim=-1) / values.shape[-1]).to(values.dtype)[:, None]
        return place, torch.ones_like(place)


class Circular(MomentSlice):
    """A circular mean for the centre: equivariant under translations, not under rotations."""

    def read_spatial(self, field: Field) -> tuple[Tensor, Tensor]:
        values = field.values[:, 0]
        centre = phase_position(values.square())
        vector = impulse(values, centre)
        angle = direction(vector[:, 0], vector[:, 1])[:, None]
        xi = torch.cat([centre - 0.5, angle], dim=1)
        return xi, torch.ones_like(xi)


class SingleCrest(StrongestWaveSlice):
    """Takes the first crest of a wave for the position, whichever is higher."""

    def read_spatial(self, field: Field) -> tuple[Tensor, Tensor]:
        found = self._strongest(*seen_by(field, self), 0)
        return found[0][:, None], found[2][:, None]


def half_period(dtype: torch.dtype = torch.float64) -> Field:
    """A wave of number 2 with a weak longer one, in several mixtures."""
    x = points((48,))[0]
    rows = [
        torch.cos(4 * math.pi * x) + weak * torch.cos(2 * math.pi * (x - place))
        for weak in (0.3, 0.05, 0.005)
        for place in (0.0, 0.2, 0.6)
    ]
    return Field(torch.stack(rows)[:, None].to(dtype), SCALAR[1])


def test_the_slice_law_fails_for_slices_that_do_not_follow() -> None:
    group = Translation(1)
    assert slice_law(Mirrored(group), periodic(SCALAR[1], (32,))) > 1e-1
    assert slice_law(Highest(group), periodic(SCALAR[1], (32,))) > 1e-3
    assert slice_law(Circular(Euclidean()), compact((64, 64))) > 1e-5
    assert slice_law(SingleCrest(group), half_period()) > 1e-1


# --- fields that carry no frame

FRAMELESS = ["zero", "constant", "negative", "large", "second harmonic", "rounded constant"]
HARMONIC = "second harmonic"


def frameless(kind: str, grid: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    constants = {"zero": 0.0, "constant": 1.3, "negative": -0.7, "large": 100.0}
    wave = torch.cos(4 * math.pi * (points(grid) - 0.07)).sum(dim=0)
    if kind in constants:
        wave = torch.full(grid, constants[kind], dtype=torch.float64)
    field = wave.to(dtype)[None, None]
    if kind == "rounded constant":  # what a shift makes of a constant
        noise = torch.randn(grid, generator=torch.Generator().manual_seed(0)).to(dtype)
        field = (1.3 + torch.finfo(dtype).eps * noise)[None, None].to(dtype)
    return field


@pytest.mark.parametrize("kind", FRAMELESS)
@pytest.mark.parametrize("grid", [(15,), (16,), (1024,), (32, 32), (33, 20)])
@pytest.mark.parametrize("cls", [PhaseSlice, StrongestWaveSlice])
def test_a_field_without_a_wave_gets_the_identity_without_confidence(
    cls: type[CanonicalSlice], kind: str, grid: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Half a period on, a second harmonic alone is itself: its position is one of several."""
    group = Galilean(len(grid), diagonal=True)
    values = frameless(kind, grid, dtype).requires_grad_()
    field = Field(values, SPEED[len(grid)])
    chosen = cls(group)
    xi, quality = chosen.read(field), chosen.quality(field)
    several = cls is StrongestWaveSlice and kind == HARMONIC
    if not several:
        assert torch.count_nonzero(xi[0][:, : group.spatial]) == 0
    mean = values.detach().double().mean()
    torch.testing.assert_close(xi[0][0, -1], mean, atol=1e-6, rtol=1e-5)
    assert 0 <= quality.item() <= torch.finfo(dtype).eps < chosen.threshold
    (xi[0].sum() + quality.sum()).backward()
    assert values.grad is not None and bool(torch.isfinite(values.grad).all())


@pytest.mark.parametrize("kind", FRAMELESS)
@pytest.mark.parametrize("grid", [(32, 32), (33, 20)])
def test_a_field_without_a_centre_gets_the_identity_without_confidence(
    kind: str, grid: tuple[int, ...], dtype: torch.dtype
) -> None:
    values = frameless(kind, grid, dtype).requires_grad_()
    chosen, field = MomentSlice(Euclidean()), Field(values, VORTICITY)
    xi, quality = chosen.coordinates(field), chosen.quality(field)
    assert torch.count_nonzero(xi) == 0 and quality.item() == 0
    (xi.sum() + quality.sum()).backward()
    assert values.grad is not None and bool(torch.isfinite(values.grad).all())


def test_stripes_along_one_axis_and_a_round_vortex_carry_no_rigid_frame() -> None:
    x, y = points((64, 64)) - 0.5
    stripe = torch.exp(-(x**2) / 0.005).expand(64, 64)
    vortex = torch.exp(-(x**2 + y**2) / 0.005)
    field = Field(torch.stack([stripe, vortex])[:, None], VORTICITY)
    quality = MomentSlice(Euclidean()).quality(field)
    assert float(quality[0]) == 0 and float(quality[1]) < 1e-12


def test_a_field_that_fills_its_box_carries_no_rigid_frame() -> None:
    """It has an impulse about some centre, but a rotation would tear it."""
    field = random_field(VORTICITY, (32, 32), batch=8, top=4)
    xi, quality = MomentSlice(Euclidean()).read(field)
    assert largest(quality) == 0 and largest(xi) == 0


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e15])
def test_faint_and_strong_fields_stay_finite_with_finite_gradients(
    scale: float, dtype: torch.dtype
) -> None:
    for chosen, field in [
        (PhaseSlice(Galilean(2, diagonal=True)), periodic(SPEED[2], (16, 16), dtype)),
        (StrongestWaveSlice(Galilean(2, diagonal=True)), periodic(SPEED[2], (16, 16), dtype)),
        (MomentSlice(Euclidean()), compact((32, 32), dtype)),
    ]:
        values = (scale * field.values).requires_grad_()
        xi, quality = chosen.read(field.with_values(values))
        xi.sum().backward()
        assert bool(torch.isfinite(xi).all()) and bool(torch.isfinite(quality).all())
        assert values.grad is not None and bool(torch.isfinite(values.grad).all())


# --- the strongest wave: fields that the first mode of one channel does not place


def placed(chosen: StrongestWaveSlice, field: Field) -> float:
    """How far the positions of a moved field are from the moved positions."""
    group = chosen.group
    g = anywhere(group, len(field))
    expected = group.compose(g, chosen.coordinates(field))
    return largest(group.difference(chosen.coordinates(group.act(field, g)), expected))


def follows(chosen: StrongestWaveSlice, field: Field) -> bool:
    bound = 1e-5 if field.values.dtype == torch.float32 else 1e-12
    return placed(chosen, field) < bound


@pytest.mark.parametrize("grid", [(32, 32), (33, 40)])
def test_a_divergence_free_velocity_has_a_position_that_its_first_channel_does_not_tell(
    grid: tuple[int, int], dtype: torch.dtype
) -> None:
    stream = random_field(SCALAR[2], grid, batch=8, top=5).values[:, 0]
    field = Field(flow_of(stream).to(dtype), VELOCITY)
    along_x = phase_share(field.values[:, 0])[:, 0]
    assert float(along_x.max()) < 1e-6  # the mode (1, 0) of u_x is not there
    chosen = StrongestWaveSlice(Translation(2))
    assert float(chosen.quality(field).min()) > 1e-4
    assert follows(chosen, field)
    assert float(PhaseSlice(Translation(2)).quality(field).max()) < 1e-6


def test_a_field_of_period_one_half_is_placed_by_a_weak_longer_wave(dtype: torch.dtype) -> None:
    chosen, field = StrongestWaveSlice(Translation(1)), half_period(dtype)
    assert float(chosen.quality(field).min()) > 0.9
    assert follows(chosen, field)


def test_a_forced_flow_is_placed_by_the_wave_of_its_forcing(dtype: torch.dtype) -> None:
    """Kolmogorov flow, forced at wavenumber 4 in y, with weak waves of all lengths on it."""
    y = points((32, 36))[1]
    weak = flow_of(random_field(SCALAR[2], (32, 36), batch=6, top=6).values[:, 0])
    forced = torch.stack([torch.sin(8 * math.pi * y), torch.zeros_like(y)])
    field = Field((forced + 0.02 * weak / weak.std()).to(dtype), VELOCITY)
    chosen = StrongestWaveSlice(Galilean(2))
    position, number, _ = (part[:1] for part in chosen._strongest(*seen_by(field, chosen), 1))
    assert float(number) == 4 and float(position.abs()) <= 0.125
    assert follows(chosen, field)


def test_the_shear_flow_is_placed_across_its_axis_and_not_along_it(dtype: torch.dtype) -> None:
    x, y = points((24, 32))
    profile = torch.sin(2 * math.pi * y) + 0.3 * torch.cos(4 * math.pi * y)
    along_x = torch.stack([profile, torch.zeros_like(x)])
    along_y = torch.stack([torch.zeros_like(x), torch.cos(2 * math.pi * (x - 0.1))])
    field = Field(torch.stack([along_x, along_y]).to(dtype), VELOCITY)
    chosen = StrongestWaveSlice(Galilean(2))
    xi, quality = chosen.read(field)
    assert (quality[:, :2] > 0).tolist() == [[False, True], [True, False]]
    assert float(xi[0, 0]) == 0 and float(xi[1, 1]) == 0
    assert float(xi[1, 0]) == pytest.approx(0.1, abs=1e-6)
    g = anywhere(Galilean(2), 2)
    moved = chosen.coordinates(Galilean(2).act(field, g))
    off = Galilean(2).difference(moved, Galilean(2).compose(g, xi))
    assert largest(torch.stack([off[0, 1], off[1, 0]])) < 1e-5
    assert float(moved[0, 0]) == 0 and float(moved[1, 1]) == 0


def test_products_of_waves_are_placed_by_their_squares_where_they_do_not_repeat() -> None:
    x, y = 2 * math.pi * points((32, 32))
    plain = torch.sin(x) * torch.sin(y)
    chosen = StrongestWaveSlice(Translation(2))
    # moved by half a period along both axes the plain product is itself, the other is not
    field = Field(
        torch.stack([plain, plain + 0.2 * torch.cos(x) * torch.cos(2 * y)])[:, None], SCALAR[2]
    )
    quality = chosen.quality(field)
    assert float(quality[0]) == 0 and float(quality[1]) > 0.1
    assert follows(chosen, field.with_values(field.values[1:]))


def test_a_field_that_repeats_itself_is_placed_on_one_of_its_crests(dtype: torch.dtype) -> None:
    """No quality, yet the canonical field does not depend on the motion."""
    x = points((48,), dtype=dtype)[0]
    rows = [torch.cos(2 * math.pi * k * x) + 0.4 * torch.sin(4 * math.pi * k * x) for k in (2, 3)]
    field = Field(torch.stack(rows)[:, None], SCALAR[1])
    group = Translation(1)
    chosen = StrongestWaveSlice(group)
    assert largest(chosen.quality(field)) == 0
    g = anywhere(group, 2)
    moved = group.act(field, g)
    canonical = [group.inverse(u, chosen.coordinates(u)).values for u in (field, moved)]
    assert largest(canonical[0] - canonical[1]) < (1e-5 if dtype == torch.float32 else 1e-12)


def test_a_flow_with_opposite_components_is_placed(dtype: torch.dtype) -> None:
    """``u_y = -u_x``: a plain sum of the channels would have no crest at all."""
    x, y = points((36, 36))
    wave = torch.cos(4 * math.pi * x) + 0.2 * torch.cos(2 * math.pi * (x - 0.3))
    wave = wave + torch.cos(4 * math.pi * y) + 0.2 * torch.cos(2 * math.pi * (y - 0.1))
    field = Field(torch.stack([wave, -wave])[None].to(dtype), VELOCITY)
    chosen = StrongestWaveSlice(Translation(2))
    assert float(chosen.quality(field)) > 0.1
    assert follows(chosen, field)


def test_equally_strong_channels_do_not_leave_the_choice_to_rounding() -> None:
    """The ABC flow: along each axis two components have waves of one size."""
    x, y, z = 2 * math.pi * points((16, 17, 18))
    flow = [
        torch.sin(z) + torch.cos(y),
        torch.sin(x) + torch.cos(z),
        torch.sin(y) + torch.cos(x),
    ]
    field = Field(torch.stack(flow)[None].float(), FieldType.parse("u: velocity", 3))
    chosen = StrongestWaveSlice(Galilean(3))
    group = chosen.group
    for seed in range(20):
        g = group.sample([0.0] * 6, [0.5] * 6, 1, torch.Generator().manual_seed(seed))
        expected = group.compose(g, chosen.coordinates(field))
        off = group.difference(chosen.coordinates(group.act(field, g)), expected)
        assert largest(off) < 1e-5


def test_crests_are_compared_between_grid_points() -> None:
    """Of three crests the highest, by how much it leads, and no lead where there is one crest."""
    x = points((16,))[0]
    place = 0.0371
    field = torch.cos(6 * math.pi * (x - place)) + 0.1 * torch.cos(
        2 * math.pi * (x - place - 1 / 3)
    )
    start = torch.tensor([[place]], dtype=torch.float64)
    number = torch.full_like(start, 3.0)
    found, lead = highest_crest(field[None], [0], start, number, longest=8)
    assert float(found) == pytest.approx(place + 1 / 3, abs=1e-12)
    beside = 0.5 * math.cos(2 * math.pi * BESIDE), 0.5 * math.cos(2 * math.pi * (BESIDE - 1 / 3))
    assert float(lead) == pytest.approx(0.15 + 0.1 * (beside[0] - beside[1]), abs=1e-12)
    found, lead = highest_crest(field[None], [0], start, torch.ones_like(start), longest=8)
    assert float(found) == pytest.approx(place, abs=1e-12) and math.isinf(float(lead))


def test_quantities_are_standardised_together_and_rounding_is_not_taken_for_a_wave(
    dtype: torch.dtype,
) -> None:
    type = FieldType.parse("p: scalar, u: velocity", 2)
    field = periodic(type, (16, 15), dtype)
    values = field.values.clone()
    values[:, 0] = 1e5 + 300 * values[:, 0]  # a pressure in pascals
    values[:, 2] *= 0.01
    found = standardised_quantities(field.with_values(values), Translation(2))
    assert largest(found.flatten(2).mean(dim=2)) < 1e-3
    rms = found.flatten(2).square().mean(dim=2)
    assert torch.allclose(rms[:, 0], torch.ones_like(rms[:, 0]), rtol=0.05)
    assert torch.allclose(rms[:, 1] + rms[:, 2], torch.ones_like(rms[:, 0]), rtol=1e-3)
    assert float(rms[:, 2].max()) < 1e-3  # components share one scale
    noise = torch.randn(16, 15, dtype=dtype, generator=torch.Generator().manual_seed(0))
    values[:, 0] = 1e5 * (1 + torch.finfo(dtype).eps * noise)
    assert largest(standardised_quantities(field.with_values(values), Translation(2))[:, 0]) < 1e-2


# --- confidence, precision, gate


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_every_group_has_a_slice_that_returns_its_coordinates(name: str) -> None:
    chosen = EXAMPLES[name]
    found = default_slice(chosen.group)
    field = periodic(chosen.type, GRIDS[chosen.group.dim][0])
    quality = found.quality(field)
    assert found.coordinates(field).shape == (len(field), chosen.group.size)
    assert quality.shape == (len(field),)
    assert bool(((quality >= 0) & (quality <= 1)).all())
    assert type(found) in SLICES.values()


def test_rotations_are_placed_by_moments_and_all_else_by_waves() -> None:
    assert isinstance(default_slice(Euclidean()), MomentSlice)
    for group in (Translation(3), Galilean(2), Galilean(2, diagonal=True)):
        assert isinstance(default_slice(group), StrongestWaveSlice)


def test_the_confidence_does_not_depend_on_where_the_field_is() -> None:
    for chosen, field in [
        (PhaseSlice(Translation(2)), periodic(SCALAR[2], (32, 27))),
        (StrongestWaveSlice(Translation(2)), periodic(SCALAR[2], (32, 27))),
        (MomentSlice(Euclidean()), compact((64, 64))),
    ]:
        moved = chosen.group.act(field, anywhere(chosen.group, len(field)))
        assert bool((chosen.quality(field) > chosen.threshold).all())
        torch.testing.assert_close(chosen.quality(moved), chosen.quality(field), atol=2e-3, rtol=0)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_fields_get_the_coordinates_of_their_single_precision_twins(
    half: torch.dtype,
) -> None:
    for chosen, field in [
        (PhaseSlice(Galilean(2, diagonal=True)), periodic(SPEED[2], (32, 27))),
        (StrongestWaveSlice(Galilean(2, diagonal=True)), periodic(SPEED[2], (32, 27))),
        (MomentSlice(Euclidean()), compact((64, 64))),
    ]:
        rounded = field.to(half)
        xi = chosen.coordinates(rounded)
        assert xi.dtype == torch.float64
        twin = chosen.coordinates(rounded.to(torch.float32))
        torch.testing.assert_close(xi, twin, atol=8 * torch.finfo(half).eps, rtol=0)


def test_a_field_of_another_dimension_is_refused() -> None:
    for chosen in (
        PhaseSlice(Translation(2)),
        StrongestWaveSlice(Translation(2)),
        MomentSlice(Euclidean()),
        QuarterSlice(Euclidean()),
    ):
        with pytest.raises(FieldError, match="acts in 2 dimensions, the field has 1"):
            chosen.coordinates(periodic(SCALAR[1], (16,)))


def test_gradients_of_the_coordinates_pass_gradcheck() -> None:
    group = Galilean(2, diagonal=True)
    values = periodic(SPEED[2], (5, 6), batch=2).values.requires_grad_()
    for cls in (PhaseSlice, StrongestWaveSlice):

        def read(values: Tensor, cls: type[PhaseSlice | StrongestWaveSlice] = cls) -> Tensor:
            return cls(group).coordinates(Field(values, SPEED[2]))

        assert torch.autograd.gradcheck(read, (values,))
    vortices = (compact((12, 12), batch=1).values + 1e-3).requires_grad_()

    def moment(values: Tensor) -> Tensor:
        return MomentSlice(Euclidean()).coordinates(Field(values, VORTICITY))

    assert torch.autograd.gradcheck(moment, (vortices,), atol=1e-4)


# --- moments with known values


def test_the_first_modes_are_those_of_the_transform(dtype: torch.dtype, tolerance: float) -> None:
    field = torch.randn(3, 12, 15, generator=torch.Generator().manual_seed(0)).to(dtype)
    full = torch.fft.fftn(field.double(), dim=(1, 2), norm="forward")
    expected = torch.stack([full[:, 1, 0], full[:, 0, 1]], dim=1)
    found = torch.complex(*first_modes(field))
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


def test_crest_and_share_of_a_known_wave(dtype: torch.dtype) -> None:
    x = points((40,), dtype=dtype)[0]
    wave = 5 + 3 * torch.cos(2 * math.pi * (x - 0.3)) + 4 * torch.cos(6 * math.pi * x)
    assert float(phase_position(wave[None])) == pytest.approx(0.3, abs=1e-6)
    assert float(phase_share(wave[None])) == pytest.approx(9 / 25, abs=1e-5)


def test_centre_impulse_and_angle_of_a_known_vortex_pair() -> None:
    x, y = points((64, 64))

    def vortex(a: float, b: float) -> Tensor:
        return torch.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * 0.03**2))

    strength = 2 * math.pi * 0.03**2
    pair = (vortex(0.6, 0.5) - vortex(0.5, 0.4))[None]
    centre = centroid(pair.square()).remainder(1.0)
    expected = torch.tensor([[0.55, 0.45]], dtype=torch.float64)
    torch.testing.assert_close(centre, expected, atol=1e-8, rtol=0)
    vector = impulse(pair, centre)
    expected = torch.full((1, 2), 0.1 * strength, dtype=torch.float64)
    torch.testing.assert_close(vector, expected, atol=1e-10, rtol=0)
    angle = direction(vector[:, 0], vector[:, 1])
    assert float(angle) == pytest.approx(math.pi / 4, abs=1e-8)
    assert 0.5 < float(concentration(pair.square())) < 1


def test_the_centre_is_found_across_the_seam() -> None:
    place = torch.tensor([0.98, 0.03])[:, None, None]
    x, y = torch.remainder(points((64, 64)) - place + 0.5, 1.0) - 0.5
    found = centroid(torch.exp(-(x**2 + y**2) / 0.01)[None])
    error = torch.remainder(found - torch.tensor([[0.98, 0.03]]) + 0.5, 1.0) - 0.5
    assert largest(error) < 1e-6


@pytest.mark.parametrize("grid", [(32, 32), (33, 40)])
def test_the_curl_of_a_flow_is_minus_the_laplacian_of_its_stream_function(
    grid: tuple[int, int],
) -> None:
    x, y = points(grid)
    stream = torch.sin(TAU * x) * torch.cos(2 * TAU * y)
    field = Field(flow_of(stream[None]), VELOCITY)
    expected = TAU * TAU * 5 * stream  # -Lap psi, lengths in units of the box
    assert largest(curl(field, VELOCITY.quantities[0]) - expected) < 1e-10


def test_a_field_is_oriented_by_its_vorticity_then_its_curl_then_its_first_channel() -> None:
    values = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)).double()
    both = Field(values, FieldType.parse("u: velocity, w: pseudoscalar", 2))
    assert torch.equal(vorticity_of(both), values[:, 2])
    flow = Field(values, FieldType.parse("p: scalar, u: velocity", 2))
    assert torch.equal(vorticity_of(flow), curl(flow, flow.type.quantities[1]))
    scalar = Field(values, FieldType.parse("a: scalar, b: scalar, c: scalar", 2))
    assert torch.equal(vorticity_of(scalar), values[:, 0])


def test_a_phase_is_read_off_the_first_snapshot_whichever_channel_is_named(
    dtype: torch.dtype, tolerance: float
) -> None:
    """Counted from the end, the last channel is that of one snapshot, not of the last one."""
    group = Galilean(1)
    type = FieldType.parse("u: velocity, p: scalar", 1, times=(0, 1), lengths=2.0)
    field = random_field(type, (32,), dtype=dtype)
    last, named = (PhaseSlice(group, channel).coordinates(field) for channel in (-1, 1))
    assert torch.equal(last, named)
    xi = torch.tensor([[0.2, 0.7]], dtype=torch.float64).expand(len(field), -1)
    moved = PhaseSlice(group, -1).coordinates(group.act(field, xi))
    assert largest(group.difference(moved, group.compose(xi, last))) < 10 * tolerance


def vortices(places: list[tuple[float, float]], n: int, dtype: torch.dtype) -> Field:
    """The velocity of equal vortices: by the box's mean, on vorticity of the opposite sign."""
    grid = points((n, n))
    vorticity = torch.zeros(n, n, dtype=torch.float64)
    for place in places:
        centre = torch.tensor(place, dtype=torch.float64).reshape(2, 1, 1)
        vorticity += torch.exp(-((grid - centre) ** 2).sum(dim=0) / 0.0025)
    flow = torch.stack([vorticity - vorticity.mean(), torch.zeros_like(vorticity)])
    return Field(from_curl_and_divergence(flow[None]).to(dtype), VELOCITY)


@pytest.mark.parametrize("offset", [0.0, 0.0041, 0.137])
@pytest.mark.parametrize("pair", [False, True])
def test_vortices_with_circulation_have_a_place_and_no_angle(
    pair: bool, offset: float, dtype: torch.dtype, tolerance: float
) -> None:
    """A round one has none, and two equal ones have two that fit equally well."""
    middle = 0.5 + offset
    places = [(middle + s * 0.08, middle + s * 0.03) for s in (1, -1)] if pair else [(middle,) * 2]
    found = MomentSlice(Euclidean()).read(vortices(places, 64, dtype))
    assert largest(found.xi[:, :2] - offset) < 100 * tolerance
    assert bool((found.quality[:, 2] == 0).all() and (found.quality[:, :2] > 0.5).all())


def test_a_background_moves_no_vortex(dtype: torch.dtype, tolerance: float) -> None:
    """Unequal vortices have an angle; the vorticity as a channel has one too, whatever lies under
    it."""
    flow = vortices([(0.55, 0.52), (0.55, 0.52), (0.42, 0.47)], 64, dtype)
    still = Field(curl(flow, flow.type.quantities[0])[:, None], FieldType.parse("w: scalar", 2))
    found = MomentSlice(Euclidean()).read(still)
    assert bool((found.quality > 0).all())
    for background in (0.0, 3.0, -40.0):
        other = MomentSlice(Euclidean()).read(still.with_values(still.values + background))
        assert largest(other.xi - found.xi) < 2e4 * tolerance


@pytest.mark.parametrize(("numbers", "sizes"), [((1, 4), (1.0, 2.0)), ((1, 2), (1.0, 2**0.5))])
def test_equally_strong_waves_are_not_told_apart_by_rounding(
    numbers: tuple[int, int], sizes: tuple[float, float], dtype: torch.dtype, tolerance: float
) -> None:
    """Their powers, weighted by wavenumber, tie; the longer one is taken wherever the field is."""
    group = Translation(1)
    (x,) = points((64,))
    wave = sum(a * torch.sin(TAU * k * x) for a, k in zip(sizes, numbers, strict=True))
    field = Field(wave.expand(40, 1, -1).to(dtype), FieldType.parse("a: scalar", 1))
    xi = torch.linspace(0, 0.5, 40, dtype=torch.float64)[:, None]
    at_rest = StrongestWaveSlice(group).read(field).xi
    found = StrongestWaveSlice(group).read(group.act(field, xi)).xi
    assert largest(group.difference(found, group.compose(xi, at_rest))) < 100 * tolerance
