"""The canonical slices and the moments behind them: they read a motion off a field, and know when they cannot."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pacefno.grid import FieldError, band_limit, points
from pacefno.symmetry import (
    GROUPS,
    CanonicalSlice,
    Euclidean,
    Galilean,
    Group,
    MomentSlice,
    PhaseSlice,
    Translation,
    default_slice,
)
from pacefno.symmetry.galilean import MomentumBoost
from pacefno.symmetry.moments import centroid, concentration, first_modes, impulse, impulse_angle, phase_position, phase_share

GRIDS: dict[int, list[tuple[int, ...]]] = {1: [(32,), (33,), (64,)], 2: [(32, 32), (33, 33), (32, 27)]}
PHASED = [name for name, make in GROUPS.items() if isinstance(default_slice(make()), PhaseSlice)]
PHASE_CASES = [(name, shape) for name in PHASED for shape in GRIDS[GROUPS[name]().dim]]
COMPACT_GRIDS = [(64, 64), (65, 65), (64, 80)]


def has_momentum(group: Group) -> bool:
    return isinstance(group, Galilean) and isinstance(group.boost, MomentumBoost)


def periodic(group: Group, shape: tuple[int, ...], dtype: torch.dtype, batch: int = 6) -> Tensor:
    """Random low modes with a clear first one."""
    white = torch.randn(batch, 1 + group.dim if has_momentum(group) else 1, *shape, generator=torch.Generator().manual_seed(1))
    field = band_limit(white.double(), group.dim, 2)
    first = torch.cos(2 * math.pi * (points(shape) - 0.2)).sum(dim=0)
    field = 0.5 * field / field.std() + first
    if has_momentum(group):
        field[:, 0] = 1 + 0.03 * field[:, 0]
    return field.to(dtype)


def compact(shape: tuple[int, ...], dtype: torch.dtype = torch.float64, batch: int = 8) -> Tensor:
    """Lopsided vortex pairs well inside the square, none of them symmetric."""
    x, y = points(shape) - 0.5
    skew = torch.linspace(0.5, 2.0, batch, dtype=torch.float64)[:, None, None]
    pair = torch.exp(-(x**2 + y**2) / (2 * 0.05**2)) * (x - 0.3 * y) * (1 + skew * (3 * x + 2 * y))
    return (pair / 0.05)[:, None].to(dtype)


def on_slice(chosen: CanonicalSlice, group: Group, field: Tensor) -> Tensor:
    for _ in range(3):
        field = group.inverse(field, chosen.coordinates(field))
    return field


def anywhere(group: Group, dtype: torch.dtype, batch: int) -> Tensor:
    high = [1.5 if math.isinf(period) else 0.75 * period for period in group.periods]
    return group.sample([0.0] * group.size, high, batch, torch.Generator().manual_seed(2)).to(dtype)


def slice_law(chosen: CanonicalSlice, group: Group, field: Tensor) -> float:
    """``coordinates(act(u, xi)) = xi`` modulo the period, for u on the slice and any xi."""
    u, xi = on_slice(chosen, group, field), anywhere(group, field.dtype, len(field))
    error = group.difference(chosen.coordinates(group.act(u, xi)), xi)
    return float(error.abs().max()) if error.numel() else 0.0


# --- the law


@pytest.mark.parametrize(("name", "shape"), PHASE_CASES)
def test_the_phase_slice_reads_off_any_motion(name: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    group = GROUPS[name]()
    assert slice_law(PhaseSlice(group), group, periodic(group, shape, dtype)) < tolerance


@pytest.mark.parametrize("shape", COMPACT_GRIDS)
def test_the_moment_slice_reads_off_any_rigid_motion_of_a_compact_field(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    group = Euclidean()
    assert slice_law(MomentSlice(group), group, compact(shape, dtype)) < (1e-8 if dtype == torch.float64 else 2e-4)


def test_the_phase_slice_sees_the_translation_of_a_rigid_motion_and_leaves_the_angle() -> None:
    group, chosen = Euclidean(), PhaseSlice(Euclidean())
    u = on_slice(chosen, group, periodic(group, (32, 32), torch.float64))
    xi = anywhere(group, torch.float64, len(u)) * torch.tensor([1.0, 1.0, 0.0])
    assert float(group.difference(chosen.coordinates(group.act(u, xi)), xi).abs().max()) < 1e-12


@given(st.floats(-2, 2), st.floats(-3, 3))
def test_the_phase_slice_is_exact_for_any_shift_and_boost(delta: float, velocity: float) -> None:
    group, chosen = Galilean(1), PhaseSlice(Galilean(1))
    u = on_slice(chosen, group, periodic(group, (33,), torch.float64, batch=1))
    xi = torch.tensor([[delta, velocity]], dtype=torch.float64)
    assert float(group.difference(chosen.coordinates(group.act(u, xi)), xi).abs().max()) < 1e-12


def test_the_chosen_channel_is_the_one_that_is_read() -> None:
    group = Translation(1)
    x = points((32,))[0]
    field = torch.stack([torch.cos(2 * math.pi * (x - 0.1)), torch.cos(2 * math.pi * (x - 0.3))])[None]
    assert [float(PhaseSlice(group, channel).coordinates(field)) for channel in (0, 1)] == pytest.approx([0.1, 0.3])


# --- and that its test can fail


class Mirrored(PhaseSlice):
    def coordinates(self, field: Tensor) -> Tensor:
        return -super().coordinates(field)


class Highest(PhaseSlice):
    """The highest grid point: moves with the field, but only by whole cells."""

    def coordinates(self, field: Tensor) -> Tensor:
        return (field[:, 0].argmax(dim=-1) / field.shape[-1]).to(field.dtype)[:, None]


class Circular(MomentSlice):
    """A circular mean for the centre: equivariant under translations, not under rotations."""

    def coordinates(self, field: Tensor) -> Tensor:
        centre = phase_position(field[:, 0].square())
        return torch.cat([centre - 0.5, impulse_angle(field[:, 0], centre)[:, None]], dim=1)


def test_the_slice_law_fails_for_a_mirrored_a_gridded_and_a_circular_slice() -> None:
    group = Translation(1)
    assert slice_law(Mirrored(group), group, periodic(group, (32,), torch.float64)) > 1e-1
    assert slice_law(Highest(group), group, periodic(group, (32,), torch.float64)) > 1e-3
    assert slice_law(Circular(Euclidean()), Euclidean(), compact((64, 64))) > 1e-5


# --- fields that carry no frame

FRAMELESS = ["zero", "constant", "negative", "large", "second harmonic", "rounded constant"]


def frameless(kind: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    constants = {"zero": 0.0, "constant": 1.3, "negative": -0.7, "large": 100.0}
    wave = torch.cos(4 * math.pi * (points(shape) - 0.07)).sum(dim=0)
    if kind in constants:
        wave = torch.full(shape, constants[kind], dtype=torch.float64)
    field = wave.to(dtype)[None, None]
    if kind == "rounded constant":  # what a shift makes of a constant
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
        field = (1.3 + torch.finfo(dtype).eps * noise)[None, None].to(dtype)
    return field


@pytest.mark.parametrize("kind", FRAMELESS)
@pytest.mark.parametrize("shape", [(15,), (16,), (1024,), (32, 32), (33, 20)])
def test_a_field_without_a_first_mode_gets_the_identity_without_confidence(
    kind: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    group = Galilean(len(shape))
    chosen, field = PhaseSlice(group), frameless(kind, shape, dtype).requires_grad_()
    xi = chosen.coordinates(field)
    assert torch.count_nonzero(xi[:, : group.spatial]) == 0
    torch.testing.assert_close(xi[0, -1], field.detach().mean(), atol=1e-6, rtol=1e-5)
    assert 0 <= chosen.quality(field).item() <= torch.finfo(dtype).eps < chosen.threshold
    (xi.sum() + chosen.quality(field).sum()).backward()
    assert field.grad is not None and bool(torch.isfinite(field.grad).all())


@pytest.mark.parametrize("kind", FRAMELESS)
@pytest.mark.parametrize("shape", [(32, 32), (33, 20)])
def test_a_field_without_a_centre_gets_the_identity_without_confidence(
    kind: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    chosen, field = MomentSlice(Euclidean()), frameless(kind, shape, dtype).requires_grad_()
    xi = chosen.coordinates(field)
    assert torch.count_nonzero(xi) == 0 and chosen.quality(field).item() == 0
    (xi.sum() + chosen.quality(field).sum()).backward()
    assert field.grad is not None and bool(torch.isfinite(field.grad).all())


def test_stripes_along_one_axis_and_a_round_vortex_carry_no_rigid_frame() -> None:
    x, y = points((64, 64)) - 0.5
    stripe = torch.exp(-(x**2) / 0.005).expand(64, 64)
    vortex = torch.exp(-(x**2 + y**2) / 0.005)
    chosen = MomentSlice(Euclidean())
    quality = chosen.quality(torch.stack([stripe, vortex])[:, None])
    assert float(quality[0]) == 0 and float(quality[1]) < 1e-12


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e15])
def test_faint_and_strong_fields_stay_finite_with_finite_gradients(scale: float, dtype: torch.dtype) -> None:
    for chosen, field in [
        (PhaseSlice(Galilean(2)), periodic(Galilean(2), (16, 16), dtype)),
        (MomentSlice(Euclidean()), compact((32, 32), dtype)),
    ]:
        field = (scale * field).requires_grad_()
        xi = chosen.coordinates(field)
        xi.sum().backward()
        assert bool(torch.isfinite(xi).all()) and bool(torch.isfinite(chosen.quality(field)).all())
        assert field.grad is not None and bool(torch.isfinite(field.grad).all())


# --- confidence, precision, gate


@pytest.mark.parametrize("name", list(GROUPS))
def test_every_group_has_a_slice_that_returns_its_coordinates(name: str) -> None:
    group = GROUPS[name]()
    chosen, field = default_slice(group), periodic(group, GRIDS[group.dim][0], torch.float64)
    assert chosen.coordinates(field).shape == (len(field), group.size) and chosen.quality(field).shape == (len(field),)
    assert bool(((chosen.quality(field) >= 0) & (chosen.quality(field) <= 1)).all())


def test_the_confidence_does_not_depend_on_where_the_field_is() -> None:
    for chosen, group, field in [
        (PhaseSlice(Translation(2)), Translation(2), periodic(Translation(2), (32, 27), torch.float64)),
        (MomentSlice(Euclidean()), Euclidean(), compact((64, 64))),
    ]:
        moved = group.act(field, anywhere(group, torch.float64, len(field)))
        assert bool((chosen.quality(field) > chosen.threshold).all())
        torch.testing.assert_close(chosen.quality(moved), chosen.quality(field), atol=2e-3, rtol=0)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_fields_get_single_precision_coordinates(half: torch.dtype) -> None:
    for chosen, field in [
        (PhaseSlice(Galilean(2)), periodic(Galilean(2), (32, 27), half)),
        (MomentSlice(Euclidean()), compact((64, 64), half)),
    ]:
        xi = chosen.coordinates(field)
        assert xi.dtype == torch.float32
        torch.testing.assert_close(xi, chosen.coordinates(field.float()), atol=8 * torch.finfo(half).eps, rtol=0)


def test_a_field_of_another_dimension_is_refused() -> None:
    for chosen in (PhaseSlice(Translation(2)), MomentSlice(Euclidean())):
        with pytest.raises(FieldError, match=r"\(B, C, N, M\)"):
            chosen.coordinates(torch.zeros(2, 1, 16))


def test_gradients_of_the_coordinates_pass_gradcheck() -> None:
    field = periodic(Galilean(2), (5, 6), torch.float64, batch=2).requires_grad_()
    assert torch.autograd.gradcheck(PhaseSlice(Galilean(2)).coordinates, (field,))
    vortices = (compact((12, 12), batch=1) + 1e-3).requires_grad_()
    assert torch.autograd.gradcheck(MomentSlice(Euclidean()).coordinates, (vortices,), atol=1e-4)


# --- moments with known values


def test_the_first_modes_are_those_of_the_transform(dtype: torch.dtype, tolerance: float) -> None:
    field = torch.randn(3, 12, 15, generator=torch.Generator().manual_seed(0)).to(dtype)
    full = torch.fft.fftn(field, dim=(1, 2), norm="forward")
    torch.testing.assert_close(first_modes(field), torch.stack([full[:, 1, 0], full[:, 0, 1]], dim=1), atol=tolerance, rtol=0)


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
    torch.testing.assert_close(centre, torch.tensor([[0.55, 0.45]], dtype=torch.float64), atol=1e-8, rtol=0)
    torch.testing.assert_close(
        impulse(pair, centre), torch.full((1, 2), 0.1 * strength, dtype=torch.float64), atol=1e-10, rtol=0
    )
    assert float(impulse_angle(pair, centre)) == pytest.approx(math.pi / 4, abs=1e-8)
    assert 0.5 < float(concentration(pair.square())) < 1


def test_the_centre_is_found_across_the_seam() -> None:
    x, y = torch.remainder(points((64, 64)) - torch.tensor([0.98, 0.03])[:, None, None] + 0.5, 1.0) - 0.5
    found = centroid(torch.exp(-(x**2 + y**2) / 0.01)[None])
    error = torch.remainder(found - torch.tensor([[0.98, 0.03]]) + 0.5, 1.0) - 0.5
    assert float(error.abs().max()) < 1e-6
