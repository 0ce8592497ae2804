"""Frames of rotated periodic fields: what the seams tell, what the slice adds, and what a learned frame keeps."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from pacefno.frames import FRAMES, Estimate, GaussNewton, SeamFrame, Smoothness, TurningFrame, analytic_frame
from pacefno.frames.refine import energy_of, least_squares
from pacefno.grid import FieldError, from_spectrum, wavenumbers
from pacefno.metrics import random_elements, relative_l2
from pacefno.symmetry import Euclidean, MomentSlice, QuarterSlice
from pacefno.symmetry.moments import enstrophy_drift
from pacefno.symmetry.motion import shear
from pacefno.symmetry.seams import STEEPEST, find_seam, gap_with_jump, undo_last_shear
from pacefno.symmetry.translation import shift

GROUP = Euclidean()
SLICE = QuarterSlice(GROUP)


def waves(n: int, count: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Smooth periodic vorticity, two frames of it, ``(count, 2, n, n)``; the later one is smoother."""
    generator = torch.Generator().manual_seed(seed)
    k2 = wavenumbers((n, n), dtype=torch.float64).square().sum(dim=0)
    low = 17  # draw the same numbers whatever the grid
    noise = torch.zeros(count, 1, *k2.shape, dtype=torch.complex128)
    draw = torch.randn(2, count, 1, 9, 9, dtype=torch.float64, generator=generator)
    noise[..., :9, :9] = torch.complex(draw[0], draw[1])
    back = torch.randn(2, count, 1, 8, 9, dtype=torch.float64, generator=generator)
    noise[..., n - 8 :, :9] = torch.complex(back[0], back[1])
    assert n >= low
    frames = [
        from_spectrum(noise * k2.clamp(min=1).pow(-0.5) * torch.exp(-0.5 * k2 * t) * (k2 > 0), (n, n)) for t in (0.15, 0.4)
    ]
    field = torch.cat(frames, dim=1)
    return (field / field.std(dim=(2, 3), keepdim=True)).to(dtype)


def on_slice(n: int, count: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    raw = waves(n, 6 * count, dtype, seed)
    raw = raw[SLICE.quality(raw) > SLICE.threshold]
    assert len(raw) >= count
    return GROUP.inverse(raw, SLICE.coordinates(raw))[:count]


def off_by(frame: Estimate, moved: Tensor, field: Tensor) -> Tensor:
    return relative_l2(GROUP.inverse(moved, frame.xi.to(moved.dtype)), field)


# --- the slice


@pytest.mark.parametrize("n", [32, 33])
def test_the_slice_tells_every_shift_and_quarter_turn(n: int, dtype: torch.dtype) -> None:
    field = on_slice(n, 8, dtype)
    xi = random_elements(GROUP, 8, 3).to(dtype)
    xi[:, 2] = torch.arange(8, dtype=dtype) % 4 * (math.pi / 2)
    found = SLICE.coordinates(GROUP.act(field, xi))
    assert float(GROUP.difference(found, xi).abs().max()) < (1e-5 if dtype == torch.float32 else 1e-12)


def test_the_drift_turns_with_the_field_and_ignores_where_it_is(dtype: torch.dtype) -> None:
    field = waves(32, 6, dtype)
    xi = random_elements(GROUP, 6, 1).to(dtype)
    xi[:, 2] = math.pi / 2
    (before, bound), (after, _) = enstrophy_drift(field[:, 0]), enstrophy_drift(GROUP.act(field, xi)[:, 0])
    turned = torch.stack([-before[:, 1], before[:, 0]], dim=1)
    assert torch.allclose(after, turned, atol=1e-5 if dtype == torch.float32 else 1e-12)
    assert not torch.allclose(after, before, atol=1e-2)
    assert bool((before.norm(dim=1) <= bound).all())


def test_a_field_without_a_drift_has_no_quality() -> None:
    x = torch.arange(32, dtype=torch.float64) / 32
    symmetric = torch.cos(2 * math.pi * x)[:, None] + torch.cos(2 * math.pi * x)[None]
    assert float(SLICE.quality(symmetric[None, None])) < 1e-6


# --- one seam


@pytest.mark.parametrize("slope", [-0.4, -0.1, 0.05, 0.3])
def test_one_seam_is_found_to_a_fraction_of_a_cell(slope: float, dtype: torch.dtype) -> None:
    field = waves(64, 4, dtype)[:, 1:]
    y = torch.tensor([0.1, -0.31, 0.47, 0.02], dtype=dtype)
    torn = shift(shear(field, y.new_full((4,), slope), 0), torch.stack([torch.zeros_like(y), y], dim=1))
    found = find_seam(torn[:, 0], 0, STEEPEST, 10.0)
    distance = torch.remainder(found[:, 0] - y + 0.5, 1) - 0.5
    assert float(distance.abs().max()) < 1 / 64
    assert float((found[:, 1] - slope).abs().max()) < 0.025
    straight = undo_last_shear(torn[:, 0], y, y.new_full((4,), slope))
    assert torch.allclose(straight, field[:, 0], atol=1e-4)


def test_a_known_jump_finds_its_gap_between_columns() -> None:
    field = waves(64, 4, torch.float64)[:, 1:]
    x = torch.tensor([0.1, -0.31, 0.47, 0.02], dtype=torch.float64)
    jump = torch.tensor([0.3, -0.3, 0.6, -0.1], dtype=torch.float64)
    torn = shift(shear(field, jump, 1), torch.stack([x, torch.zeros_like(x)], dim=1))
    distance = torch.remainder(gap_with_jump(torn[:, 0], 1, jump) - x + 0.5, 1) - 0.5
    assert float(distance.abs().max()) < 1 / 64
    wrong = torch.remainder(gap_with_jump(torn[:, 0], 1, -jump) - x + 0.5, 1) - 0.5
    assert float(wrong.abs().max()) > 1 / 64


# --- the whole frame


@pytest.mark.parametrize("n", [48, 64])
def test_the_frame_of_a_rotated_periodic_field_is_found_on_the_whole_group(n: int, dtype: torch.dtype) -> None:
    field = on_slice(n, 24, dtype)
    xi = random_elements(GROUP, 24, 5).to(dtype)
    moved = GROUP.act(field, xi)
    off = off_by(SeamFrame(GROUP, SLICE)(moved), moved, field)
    assert float(off.median()) < 5e-4
    assert int((off > 0.1).sum()) <= 1
    untouched = off_by(Estimate(GROUP.identity(24, dtype=dtype), off), moved, field)
    assert float(untouched.median()) > 0.5  # what there was to find


def test_a_field_that_was_only_shifted_is_found_exactly(dtype: torch.dtype) -> None:
    field = on_slice(48, 8, dtype)
    xi = random_elements(GROUP, 8, 2).to(dtype)
    xi[:, 2] = 0
    moved = GROUP.act(field, xi)
    assert float(off_by(SeamFrame(GROUP, SLICE)(moved), moved, field).max()) < 1e-3


@pytest.mark.parametrize("angle", [0.005, 0.015, -0.019, 0.03, math.pi / 2 + 0.015])
def test_a_small_rotation_is_found_as_well_as_a_large_one(angle: float, dtype: torch.dtype) -> None:
    """Too small for its seams to show: there the phases are the start, and one step is not enough."""
    field = on_slice(64, 12, dtype)
    xi = random_elements(GROUP, 12, 4).to(dtype)
    xi[:, 2] = angle
    moved = GROUP.act(field, xi)
    assert float(off_by(SeamFrame(GROUP, SLICE)(moved), moved, field).median()) < 5e-4


def test_the_smoothness_of_vectors_is_refused() -> None:
    with pytest.raises(FieldError, match="scalar channels"):
        Smoothness(Euclidean(vectors=((0, 1),)))


def test_refinement_by_smoothness_reaches_the_floor_and_never_goes_up(dtype: torch.dtype) -> None:
    field = on_slice(64, 12, dtype)
    xi = random_elements(GROUP, 12, 7).to(dtype)
    moved = GROUP.act(field, xi)
    start = GROUP.wrap(xi + 0.004 * torch.randn(12, 3, dtype=dtype, generator=torch.Generator().manual_seed(0)))
    refined = GaussNewton(steps=6)(Smoothness(GROUP), moved, start)
    assert bool((refined.energy_after <= refined.energy_before).all())
    before, after = off_by(Estimate(start, xi), moved, field), off_by(Estimate(refined.xi, xi), moved, field)
    assert float(after.median()) < 0.02 * float(before.median())


def test_refinement_stops_where_its_steps_are_round_off_though_the_energy_is_not() -> None:
    field = on_slice(64, 12, torch.float32)
    xi = random_elements(GROUP, 12, 7).float()
    moved = GROUP.act(field, xi)
    few, many = (GaussNewton(steps=steps)(Smoothness(GROUP), moved, xi) for steps in (6, 40))
    assert few.evaluations == many.evaluations < 1 + 6 * 4
    assert float(many.energy_after.min()) > GaussNewton(steps=0)(Smoothness(GROUP), moved, xi).energy_before.min() / 2


def test_an_energy_without_fine_waves_is_the_rest_of_the_whole_one(dtype: torch.dtype) -> None:
    torn = GROUP.inverse(on_slice(48, 4, dtype), random_elements(GROUP, 4, 3).to(dtype))[:, -1]
    whole, all_waves = (Smoothness(GROUP, finest=finest).roughness(torn) for finest in (None, 24))
    assert torch.equal(whole, all_waves)
    squares = [Smoothness(GROUP, finest=finest).roughness(torn).square().sum(dim=1) for finest in (8, 16, 23, None)]
    assert all(bool((fewer < more).all()) for fewer, more in pairwise(squares))
    energies = [Smoothness(GROUP, finest=finest).roughness(waves(48, 4, dtype)[:, 0]) for finest in (8, None)]
    assert torch.allclose(energies[0].square().sum(dim=1), energies[1].square().sum(dim=1), rtol=1e-4)


def test_the_confidence_tells_a_frame_that_was_found_from_one_that_was_not() -> None:
    field = on_slice(48, 8, torch.float64)
    moved = GROUP.act(field, random_elements(GROUP, 8, 5))
    noise = torch.randn(8, 2, 48, 48, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    frame = SeamFrame(GROUP, SLICE)
    assert float(frame(moved).confidence.median()) > 20 * float(frame(noise).confidence.max())


def test_a_constant_field_has_a_finite_frame_without_confidence() -> None:
    for name in ("analytic", "equivariant", "equivariant-free"):
        estimate = FRAMES[name](GROUP, 2, SLICE)(torch.full((2, 2, 32, 32), 3.0))
        assert bool(torch.isfinite(estimate.xi).all())
        assert float(estimate.confidence.max().detach()) == 0


def test_the_kind_of_slice_decides_how_the_frame_is_found() -> None:
    assert isinstance(analytic_frame(GROUP, SLICE), SeamFrame)
    assert not isinstance(analytic_frame(GROUP, MomentSlice(GROUP)), SeamFrame)


def test_a_known_element_is_not_searched_for_and_any_other_frame_ignores_it(dtype: torch.dtype) -> None:
    field = on_slice(32, 3, dtype)
    xi = random_elements(GROUP, 3, 4).to(dtype)
    moved = GROUP.act(field, xi)
    for name in ("analytic", "equivariant"):  # the residual of an untrained network is the identity
        known = FRAMES[name](GROUP, 2, SLICE).to(dtype).known(moved, xi)
        assert float(GROUP.difference(known.xi, xi).abs().max().detach()) < 1e-6
    torch.manual_seed(0)
    free = FRAMES["equivariant-free"](GROUP, 2, SLICE).to(dtype)
    assert torch.equal(free.known(moved, xi).xi, free(moved).xi)


# --- the learned frame


def test_the_turning_frame_follows_shifts_by_cells_and_quarter_turns(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    frame = TurningFrame(GROUP, 2, SLICE).to(dtype)
    field = waves(64, 4, dtype)
    xi = torch.tensor([[2, -5, 0], [7, 3, 1], [-9, 0, 2], [4, 4, 3]], dtype=dtype)
    xi = xi * torch.tensor([1 / 32, 1 / 32, math.pi / 2], dtype=dtype)
    here, there = frame(field).xi.detach(), frame(GROUP.act(field, xi)).xi.detach()
    gap = GROUP.difference(there, GROUP.compose(xi.to(dtype), here))
    assert float(gap.abs().max()) < (2e-3 if dtype == torch.float32 else 1e-9)
    assert float(GROUP.difference(there, here).abs().max()) > 0.1  # it does move


# --- least squares


def test_differences_fit_as_well_as_derivatives(dtype: torch.dtype) -> None:
    data = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.1, 0.0]], dtype=dtype)
    t = torch.tensor([0.0, 1.0, 2.0], dtype=dtype)

    def residual(x: Tensor) -> Tensor:
        return x[:, :1] + x[:, 1:] * t - data

    for spacing in (None, 1e-3):
        x, before, after, evaluations = least_squares(residual, torch.zeros(2, 2, dtype=dtype), 5, spacing=spacing)
        assert bool((after <= before).all()) and evaluations <= 1 + 5 * 3
        assert torch.allclose(x[0], torch.tensor([1.0, 1.0], dtype=dtype), atol=1e-3)
        assert float(energy_of(residual(x))[0]) < 1e-5


def test_no_step_is_longer_than_allowed() -> None:
    x, *_ = least_squares(lambda z: z - 5, torch.zeros(1, 1, dtype=torch.float64), 3, longest=0.5)
    assert float(x) == pytest.approx(1.5)
