"""Frames of rotated periodic fields: what the seams tell, what the slice adds, what is learned."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from pacefno.fields import Field, FieldType
from pacefno.frames import (
    EquivariantFrame,
    Estimate,
    Frame,
    GaussNewton,
    MomentSlice,
    QuarterSlice,
    SeamFrame,
    Smoothness,
    TurningFrame,
)
from pacefno.frames._moments import enstrophy_drift
from pacefno.frames.refine import energy_of, least_squares
from pacefno.frames.rotated_periodic import STEEPEST, find_seam, gap_with_jump, undo_last_shear
from pacefno.grid import FieldError, from_spectrum, wavenumbers
from pacefno.groups import Euclidean, shift
from pacefno.groups._rotation import shear
from pacefno.metrics import random_elements, relative_l2
from pacefno.testing import frame_laws, largest

GROUP = Euclidean()
SLICE = QuarterSlice(GROUP)
TYPE = FieldType.parse("w: pseudoscalar", 2, times=(0, 1))
ONE = FieldType.parse("w: pseudoscalar", 2)


def waves(n: int, count: int, dtype: torch.dtype, seed: int = 0) -> Field:
    """Smooth periodic vorticity, two snapshots ``(count, 2, n, n)``; the later one is smoother."""
    assert n >= 17  # the same numbers are drawn whatever the grid
    generator = torch.Generator().manual_seed(seed)
    k2 = wavenumbers((n, n), dtype=torch.float64).square().sum(dim=0)
    noise = torch.zeros(count, 1, *k2.shape, dtype=torch.complex128)
    draw = torch.randn(2, count, 1, 9, 9, dtype=torch.float64, generator=generator)
    noise[..., :9, :9] = torch.complex(draw[0], draw[1])
    back = torch.randn(2, count, 1, 8, 9, dtype=torch.float64, generator=generator)
    noise[..., n - 8 :, :9] = torch.complex(back[0], back[1])
    snapshots = []
    for time in (0.15, 0.4):
        decay = k2.clamp(min=1).pow(-0.5) * torch.exp(-0.5 * k2 * time) * (k2 > 0)
        snapshots.append(from_spectrum(noise * decay, (n, n)))
    values = torch.cat(snapshots, dim=1)
    return Field((values / values.std(dim=(2, 3), keepdim=True)).to(dtype), TYPE)


def on_slice(n: int, count: int, dtype: torch.dtype, seed: int = 0) -> Field:
    raw = waves(n, 6 * count, dtype, seed)
    good = raw.with_values(raw.values[SLICE.quality(raw) > SLICE.threshold])
    assert len(good) >= count
    canonical = GROUP.inverse(good, SLICE.coordinates(good))
    return canonical.with_values(canonical.values[:count])


def off_by(xi: Tensor, moved: Field, field: Field) -> Tensor:
    return relative_l2(GROUP.inverse(moved, xi).values, field.values)


def search(moved: Field) -> Tensor:
    xi: Tensor = SeamFrame(GROUP, SLICE)(moved).xi
    return xi


# --- the slice


@pytest.mark.parametrize("n", [32, 33])
def test_the_slice_tells_every_shift_and_quarter_turn(n: int, dtype: torch.dtype) -> None:
    field = on_slice(n, 8, dtype)
    xi = random_elements(GROUP, 8, 3)
    xi[:, 2] = torch.arange(8).double() % 4 * (math.pi / 2)
    found = SLICE.coordinates(GROUP.act(field, xi))
    assert largest(GROUP.difference(found, xi)) < (1e-5 if dtype == torch.float32 else 1e-12)


def test_the_drift_turns_with_the_field_and_ignores_where_it_is(dtype: torch.dtype) -> None:
    field = waves(32, 6, dtype)
    xi = random_elements(GROUP, 6, 1)
    xi[:, 2] = math.pi / 2
    before, bound = enstrophy_drift(field.values[:, 0])
    after, _ = enstrophy_drift(GROUP.act(field, xi).values[:, 0])
    turned = torch.stack([-before[:, 1], before[:, 0]], dim=1)
    assert torch.allclose(after, turned, atol=1e-5 if dtype == torch.float32 else 1e-12)
    assert not torch.allclose(after, before, atol=1e-2)
    assert bool((before.norm(dim=1) <= bound).all())


def test_a_field_without_a_drift_has_no_quality() -> None:
    x = torch.arange(32, dtype=torch.float64) / 32
    symmetric = torch.cos(2 * math.pi * x)[:, None] + torch.cos(2 * math.pi * x)[None]
    assert float(SLICE.quality(Field(symmetric[None, None], ONE))) < 1e-6


# --- one seam

PLACES = [0.1, -0.31, 0.47, 0.02]


@pytest.mark.parametrize("slope", [-0.4, -0.1, 0.05, 0.3])
def test_one_seam_is_found_to_a_fraction_of_a_cell(slope: float, dtype: torch.dtype) -> None:
    field = waves(64, 4, dtype).values[:, 1:]
    y = torch.tensor(PLACES, dtype=dtype)
    slopes = torch.full_like(y, slope)
    torn = shift(shear(field, slopes, 0), torch.stack([torch.zeros_like(y), y], dim=1))
    found = find_seam(torn[:, 0], 0, STEEPEST, 10.0)
    distance = torch.remainder(found[:, 0] - y + 0.5, 1) - 0.5
    assert largest(distance) < 1 / 64
    assert largest(found[:, 1] - slope) < 0.025
    straight = undo_last_shear(torn[:, 0], y, slopes)
    assert torch.allclose(straight, field[:, 0], atol=1e-4)


def test_a_known_jump_finds_its_gap_between_columns() -> None:
    field = waves(64, 4, torch.float64).values[:, 1:]
    x = torch.tensor(PLACES, dtype=torch.float64)
    jump = torch.tensor([0.3, -0.3, 0.6, -0.1], dtype=torch.float64)
    torn = shift(shear(field, jump, 1), torch.stack([x, torch.zeros_like(x)], dim=1))
    distance = torch.remainder(gap_with_jump(torn[:, 0], 1, jump) - x + 0.5, 1) - 0.5
    assert largest(distance) < 1 / 64
    wrong = torch.remainder(gap_with_jump(torn[:, 0], 1, -jump) - x + 0.5, 1) - 0.5
    assert largest(wrong) > 1 / 64


# --- the whole frame


@pytest.mark.parametrize("n", [48, 64])
def test_the_frame_of_a_rotated_periodic_field_is_found_on_the_whole_group(
    n: int, dtype: torch.dtype
) -> None:
    field, xi = on_slice(n, 24, dtype), random_elements(GROUP, 24, 5)
    moved = GROUP.act(field, xi)
    off = off_by(search(moved), moved, field)
    assert float(off.median()) < 5e-4
    assert int((off > 0.1).sum()) <= 1
    untouched = off_by(GROUP.identity(24), moved, field)
    assert float(untouched.median()) > 0.5  # what there was to find


def test_a_field_that_was_only_shifted_is_found_exactly(dtype: torch.dtype) -> None:
    field, xi = on_slice(48, 8, dtype), random_elements(GROUP, 8, 2)
    xi[:, 2] = 0
    moved = GROUP.act(field, xi)
    assert float(off_by(search(moved), moved, field).max()) < 1e-3


@pytest.mark.parametrize("angle", [0.005, 0.015, -0.019, 0.03, math.pi / 2 + 0.015])
def test_a_small_rotation_is_found_as_well_as_a_large_one(angle: float, dtype: torch.dtype) -> None:
    """Too small for its seams to show: there the phases start, and one step is not enough."""
    field, xi = on_slice(64, 12, dtype), random_elements(GROUP, 12, 4)
    xi[:, 2] = angle
    moved = GROUP.act(field, xi)
    assert float(off_by(search(moved), moved, field).median()) < 5e-4


@pytest.mark.parametrize("channels", ["u: velocity", "w: pseudoscalar, c: scalar"])
def test_seams_of_vectors_or_several_quantities_are_refused(channels: str) -> None:
    type = FieldType.parse(channels, 2)
    field = Field(torch.zeros(1, type.size, 32, 32), type)
    for looked_at in (
        lambda: Smoothness(GROUP).residual(field, GROUP.identity(1)),
        lambda: SeamFrame(GROUP, SLICE)(field),
    ):
        with pytest.raises(FieldError, match="snapshots of one scalar"):
            looked_at()


def test_refinement_by_smoothness_reaches_the_floor_and_never_goes_up(dtype: torch.dtype) -> None:
    field, xi = on_slice(64, 12, dtype), random_elements(GROUP, 12, 7)
    moved = GROUP.act(field, xi)
    noise = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=dtype)
    start = GROUP.wrap(xi + 0.004 * noise)
    refined = GaussNewton(steps=6)(Smoothness(GROUP), moved, start)
    assert bool((refined.energy_after <= refined.energy_before).all())
    before, after = off_by(start, moved, field), off_by(refined.xi, moved, field)
    assert float(after.median()) < 0.02 * float(before.median())


def test_refinement_stops_where_its_steps_are_round_off_though_the_energy_is_not() -> None:
    field, xi = on_slice(64, 12, torch.float32), random_elements(GROUP, 12, 7)
    moved = GROUP.act(field, xi)
    energy = Smoothness(GROUP)
    few, many = (GaussNewton(steps=steps)(energy, moved, xi) for steps in (6, 40))
    assert few.evaluations == many.evaluations < 1 + 6 * 4
    floor = GaussNewton(steps=0)(energy, moved, xi).energy_before.min()
    assert float(many.energy_after.min()) > floor / 2


def test_an_energy_without_fine_waves_is_the_rest_of_the_whole_one(dtype: torch.dtype) -> None:
    torn = GROUP.inverse(on_slice(48, 4, dtype), random_elements(GROUP, 4, 3)).values[:, -1]
    whole, all_waves = (Smoothness(GROUP, finest=top).roughness(torn) for top in (None, 24))
    assert torch.equal(whole, all_waves)

    def rough(values: Tensor, finest: int | None) -> Tensor:
        return Smoothness(GROUP, finest=finest).roughness(values).square().sum(dim=1)

    squares = [rough(torn, finest) for finest in (8, 16, 23, None)]
    assert all(bool((fewer < more).all()) for fewer, more in pairwise(squares))
    smooth = waves(48, 4, dtype).values[:, 0]
    assert torch.allclose(rough(smooth, 8), rough(smooth, None), rtol=1e-4)


def test_the_confidence_tells_a_frame_that_was_found_from_one_that_was_not() -> None:
    field = on_slice(48, 8, torch.float64)
    moved = GROUP.act(field, random_elements(GROUP, 8, 5))
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(8, 2, 48, 48, dtype=torch.float64, generator=generator)
    frame = SeamFrame(GROUP, SLICE)
    found, lost = frame(moved).confidence, frame(field.with_values(noise)).confidence
    assert float(found.median()) > 20 * float(lost.max())


def frames(type: FieldType) -> list[Frame]:
    torch.manual_seed(0)
    return [
        SLICE.frame(),
        EquivariantFrame(GROUP, type, slice=SLICE),
        EquivariantFrame(GROUP, type, slice=SLICE, aligned=False),
        TurningFrame(GROUP, type, SLICE),
    ]


def test_a_constant_field_has_a_finite_frame_without_confidence() -> None:
    for frame in frames(TYPE):
        found = frame(Field(torch.full((2, 2, 32, 32), 3.0), TYPE))
        assert bool(torch.isfinite(found.xi).all())
        assert float(found.confidence.max().detach()) == 0


def test_the_kind_of_slice_decides_how_the_frame_is_found() -> None:
    assert isinstance(SLICE.frame(), SeamFrame)
    assert not isinstance(MomentSlice(GROUP).frame(), SeamFrame)
    assert isinstance(EquivariantFrame(GROUP, TYPE, slice=SLICE).start, SeamFrame)


def test_the_energy_is_that_of_seams_where_the_frame_starts_from_them() -> None:
    searching, aligned, free, turning = frames(TYPE)
    assert all(isinstance(frame.energy(), Smoothness) for frame in (searching, aligned, turning))
    assert not isinstance(free.energy(), Smoothness)
    assert not isinstance(TurningFrame(GROUP, TYPE).energy(), Smoothness)


def test_a_known_element_is_not_searched_for_and_any_other_frame_ignores_it(
    dtype: torch.dtype,
) -> None:
    field, xi = on_slice(32, 3, dtype), random_elements(GROUP, 3, 4)
    moved = GROUP.act(field, xi)
    searching, aligned, free, turning = (frame.to(dtype) for frame in frames(TYPE))
    for frame in (searching, aligned):  # the residual of an untrained network is the identity
        known: Estimate = frame(moved, xi)
        assert largest(GROUP.difference(known.xi, xi)) < 1e-6
    for frame in (free, turning):
        assert torch.equal(frame(moved, xi).xi, frame(moved).xi)


# --- the learned frame


def test_the_turning_frame_follows_shifts_by_cells_and_quarter_turns(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    frame = TurningFrame(GROUP, TYPE, SLICE).to(dtype)
    field = waves(64, 4, dtype)
    cells = torch.tensor([[2, -5, 0], [7, 3, 1], [-9, 0, 2], [4, 4, 3]], dtype=torch.float64)
    xi = cells * torch.tensor([1 / 32, 1 / 32, math.pi / 2], dtype=torch.float64)
    bound = 2e-3 if dtype == torch.float32 else 1e-9
    frame_laws(frame, GROUP, TYPE, field.values, xi=xi, tolerance=bound)
    moved = frame(GROUP.act(field, xi)).xi
    assert largest(GROUP.difference(moved, frame(field).xi)) > 0.1  # it does move


def test_the_turning_frame_says_that_a_round_field_has_no_angle(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    frame, rows = TurningFrame(GROUP, TYPE, SLICE).to(dtype), torch.arange(64, dtype=dtype) / 64
    bump = torch.exp(3 * torch.cos(2 * math.pi * (rows - 0.25)))
    round_ = (bump[:, None] * bump).expand(1, 2, 64, 64).contiguous()
    for values, angle_found in ((round_, False), (waves(64, 1, dtype).values, True)):
        quality = frame(Field(values, TYPE)).quality[0].detach()
        assert float(quality[:2].min()) > 0 and bool(quality[2] > 0) == angle_found


def test_the_turning_frame_does_not_follow_shifts_by_part_of_a_cell_exactly() -> None:
    torch.manual_seed(0)
    frame = TurningFrame(GROUP, TYPE, SLICE).double()
    field = waves(64, 4, torch.float64)
    xi = torch.tensor([0.4 / 32, 0.3 / 32, 0.3], dtype=torch.float64).expand(4, 3)
    with pytest.raises(AssertionError, match="equivariance: off by"):
        frame_laws(frame, GROUP, TYPE, field.values, xi=xi, tolerance=1e-9)


# --- least squares


def test_differences_fit_as_well_as_derivatives(dtype: torch.dtype) -> None:
    data = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.1, 0.0]], dtype=dtype)
    t = torch.tensor([0.0, 1.0, 2.0], dtype=dtype)

    def residual(x: Tensor) -> Tensor:
        return x[:, :1] + x[:, 1:] * t - data

    for spacing in (None, 1e-3):
        start = torch.zeros(2, 2, dtype=dtype)
        x, before, after, evaluations = least_squares(residual, start, 5, spacing=spacing)
        assert bool((after <= before).all()) and evaluations <= 1 + 5 * 3
        assert torch.allclose(x[0], torch.tensor([1.0, 1.0], dtype=dtype), atol=1e-3)
        assert float(energy_of(residual(x))[0]) < 1e-5


def test_no_step_is_longer_than_allowed() -> None:
    start = torch.zeros(1, 1, dtype=torch.float64)
    x, *_ = least_squares(lambda z: z - 5, start, 3, longest=0.5)
    assert float(x) == pytest.approx(1.5)
