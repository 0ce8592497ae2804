"""Test-time adaptation: it may only help, it touches no weight, and it finds a known answer in a few steps."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from pacefno.frames import (
    AdamRefiner,
    AnalyticFrame,
    EquivariantFrame,
    Estimate,
    Frame,
    GaussNewton,
    IdentityFrame,
    Refiner,
    SelfConsistency,
)
from pacefno.frames.base import Energy
from pacefno.frames.refine import energy_of
from pacefno.grid import points, resample
from pacefno.metrics import random_elements
from pacefno.pace import PACE
from pacefno.symmetry import GROUPS, Euclidean, Galilean, Group, Translation, Trivial

REFINERS: list[Refiner] = [
    GaussNewton(),
    GaussNewton(steps=8, damping=1.0),
    AdamRefiner(steps=10),
    AdamRefiner(weight_decay=0.1),
]
EXACT_GROUPS = ["translation-1d", "translation-2d", "galilean-1d", "galilean-2d", "galilean-2d-momentum"]
over_refiners = pytest.mark.parametrize("refiner", REFINERS, ids=lambda r: f"{type(r).__name__}-{r.steps}")


class TimidFrame(Frame):
    """Finds only 70 % of each shift: not equivariant, and the true shift is the only frame consistent with it."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group
        self.share = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def forward(self, field: Tensor) -> Estimate:
        estimate = AnalyticFrame(self.group)(field)
        shrunk = self.share.to(field.dtype) * estimate.xi[:, : self.group.spatial]
        return Estimate(torch.cat([shrunk, estimate.xi[:, self.group.spatial :]], dim=1), estimate.confidence)


class WildEnergy(Energy):
    """An energy without any structure: waves of random frequency, and optionally NaN or infinity in places."""

    def __init__(self, group: Group, seed: int, spoiled: float = 0.0) -> None:
        self.group = group
        self.spoiled = spoiled
        generator = torch.Generator().manual_seed(seed)
        self.rates = 20 * torch.randn(group.spatial, 3, dtype=torch.float64, generator=generator)
        self.phases = 6 * torch.rand(3, dtype=torch.float64, generator=generator)

    def residual(self, field: Tensor, xi: Tensor) -> Tensor:
        waves = torch.sin(xi[:, : self.group.spatial].double() @ self.rates + self.phases)
        hole = torch.sin(37 * xi[:, :1].double()) > 1 - 2 * self.spoiled
        return torch.where(hole, torch.nan, 1.5 + waves).to(xi.dtype)


def waves(group: Group, dtype: torch.dtype, batch: int = 6, n: int = 48) -> Tensor:
    """Fields on the slice, with a strong first mode."""
    generator = torch.Generator().manual_seed(4)
    channels = 1 + group.dim if group.size > group.spatial + 1 else 1
    field = 0.2 * resample(
        torch.randn(batch, channels, *[7] * group.dim, dtype=torch.float64, generator=generator), [n] * group.dim
    )
    field = field + torch.cos(2 * math.pi * points([n] * group.dim)).sum(dim=0)
    if channels > 1:
        field[:, 0] = 1 + 0.1 * field[:, 0]
    return group.inverse(field, AnalyticFrame(group)(field).xi).to(dtype)


def moved(group: Group, dtype: torch.dtype, size: float = 0.3) -> tuple[Tensor, Tensor]:
    xi = group.sample([0.0] * group.size, [size] * group.size, 6, torch.Generator().manual_seed(8)).to(dtype)
    return group.act(waves(group, dtype), xi), xi


# --- it may only help


@given(seed=st.integers(0, 10_000), spoiled=st.sampled_from([0.0, 0.2, 0.5]), which=st.integers(0, len(REFINERS) - 1))
def test_no_sample_ever_ends_at_a_higher_energy_than_it_began(seed: int, spoiled: float, which: int) -> None:
    group = Galilean(2)
    energy = WildEnergy(group, seed, spoiled)
    xi = random_elements(group, 16, seed)
    field = torch.zeros(16, 1, 4, 4, dtype=torch.float64)
    start = energy_of(energy.residual(field, xi))
    usable = torch.isfinite(start)
    result = REFINERS[which](energy, field, xi)
    end = energy_of(energy.residual(field, result.xi))
    assert torch.equal(result.energy_before[usable], start[usable])
    assert bool((result.energy_after[usable] <= start[usable]).all())
    assert torch.equal(end[usable], result.energy_after[usable])  # the frame that is returned has it
    assert torch.equal(result.xi[:, 2:], xi[:, 2:])  # velocities are measured, never refined
    assert float(result.xi[:, :2].abs().max()) <= 0.5


def careless_descent(energy: Energy, field: Tensor, xi: Tensor) -> Tensor:
    """Plain gradient steps that keep the last frame instead of the best: what the law must catch."""
    for _ in range(5):
        xi = xi.detach().requires_grad_()
        xi = xi - 0.05 * torch.autograd.grad(energy_of(energy.residual(field, xi)).sum(), xi)[0]
    return xi.detach()


def test_a_descent_that_keeps_its_last_frame_does_end_higher() -> None:
    group = Galilean(2)
    energy, xi, field = WildEnergy(group, 3), random_elements(group, 16, 3), torch.zeros(16, 1, 4, 4)
    before = energy_of(energy.residual(field, xi))
    assert bool((energy_of(energy.residual(field, careless_descent(energy, field, xi))) > before).any())


# --- it finds what there is to find


@pytest.mark.parametrize("name", EXACT_GROUPS)
def test_gauss_newton_finds_the_true_shift_from_a_timid_frame(name: str, dtype: torch.dtype) -> None:
    group = GROUPS[name]()
    field, xi = moved(group, dtype)
    model = PACE(nn.Identity(), group, TimidFrame(group))
    before = group.difference(model.frame_of(field).xi, xi)[:, : group.spatial].detach().abs()
    result = model.refine(field)
    after = group.difference(result.xi, xi)[:, : group.spatial].abs()
    assert float(before.max()) > 0.05
    assert float(after.max()) < (1e-5 if dtype == torch.float32 else 1e-8)
    assert result.evaluations <= 1 + 4 * (group.spatial + 1)
    assert bool((result.energy_after <= result.energy_before).all())


def test_gauss_newton_needs_a_few_steps_where_adam_needs_tens() -> None:
    group = Galilean(1)
    field, xi = moved(group, torch.float64)
    energy = SelfConsistency(TimidFrame(group))
    start = energy.frame(field).xi.detach()

    def error(refiner: Refiner) -> float:
        return float(group.difference(refiner(energy, field, start).xi, xi).abs().max())

    assert error(GaussNewton(steps=3)) < 1e-6
    assert error(AdamRefiner(steps=3)) > 1e-2
    assert error(AdamRefiner(steps=80, rate=0.01)) < 5e-3
    assert error(GaussNewton(steps=3)) < 1e-3 * error(AdamRefiner(steps=20))


@pytest.mark.parametrize("distance", [0.01, 0.2, 0.4])
def test_a_start_far_from_the_slice_is_brought_back_to_it(distance: float, dtype: torch.dtype) -> None:
    group = Translation(2)
    field, _ = moved(group, dtype)
    exact = AnalyticFrame(group)(field).xi
    result = GaussNewton(steps=10)(SelfConsistency(AnalyticFrame(group)), field, group.wrap(exact + distance))
    assert float(group.difference(result.xi, exact).abs().max()) < (5e-6 if dtype == torch.float32 else 1e-9)


def test_a_perturbed_rigid_motion_of_a_compact_field_is_recovered() -> None:
    group = Euclidean()
    x, y = points((64, 64)) - 0.5
    blob = torch.exp(-(x**2 + y**2) / 0.005)
    field = group.act(torch.stack([x * blob, (x + 0.3 * y) * blob])[:, None], random_elements(group, 2, 1))
    exact = AnalyticFrame(group)(field).xi
    start = exact + torch.tensor([[0.03, -0.02, 0.2], [-0.01, 0.04, -0.3]], dtype=torch.float64)
    result = GaussNewton(steps=8)(SelfConsistency(AnalyticFrame(group)), field, start)
    assert float(group.difference(result.xi, exact).abs().max()) < 1e-5


@pytest.mark.parametrize("name", EXACT_GROUPS)
@pytest.mark.parametrize("aligned", [False, True], ids=["analytic", "aligned"])
def test_an_exactly_equivariant_frame_is_consistent_and_costs_one_look(name: str, aligned: bool, dtype: torch.dtype) -> None:
    group = GROUPS[name]()
    field, _ = moved(group, dtype)
    torch.manual_seed(0)
    frame: Frame = EquivariantFrame(group, field.shape[1]).to(dtype) if aligned else AnalyticFrame(group)
    with torch.no_grad():
        for parameter in frame.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model = PACE(nn.Identity(), group, frame)
    result = model.refine(field)
    assert result.evaluations == 1
    assert torch.equal(result.xi, model.frame_of(field).xi)
    assert float(result.energy_before.max()) < (1e-9 if dtype == torch.float32 else 1e-24)


def test_a_tolerance_of_ones_own_stops_earlier() -> None:
    group = Translation(1)
    field, _ = moved(group, torch.float64)
    energy = SelfConsistency(TimidFrame(group))
    start = energy.frame(field).xi.detach()
    rough, fine = GaussNewton(tolerance=1e-2)(energy, field, start), GaussNewton()(energy, field, start)
    assert rough.evaluations < fine.evaluations
    assert 1e-12 < float(rough.energy_after.max()) <= 1e-2
    assert GaussNewton(tolerance=10.0)(energy, field, start).evaluations == 1


# --- the energy


@pytest.mark.parametrize("name", ["translation-1d", "galilean-2d", "euclidean-2d"])
def test_the_energy_is_the_cosine_form_and_the_paper_squares_for_small_residuals(name: str) -> None:
    group = GROUPS[name]()

    class Told(Frame):
        def __init__(self, left: Tensor) -> None:
            super().__init__()
            self.group, self.left = group, left

        def forward(self, field: Tensor) -> Estimate:
            return Estimate(self.left, torch.ones(len(field)))

    left = random_elements(group, 9, 2)
    periods = torch.tensor(group.periods[: group.spatial], dtype=torch.float64)
    field = torch.randn(9, 1, *[8] * group.dim, dtype=torch.float64)
    xi = group.identity(9, dtype=torch.float64)
    value = energy_of(SelfConsistency(Told(left)).residual(field, xi))
    angles = 2 * math.pi * left[:, : group.spatial] / periods
    assert torch.allclose(value, (1 - torch.cos(angles)).sum(dim=1), rtol=1e-12, atol=1e-14)
    small = energy_of(SelfConsistency(Told(1e-4 * left)).residual(field, xi))
    assert torch.allclose(small, (1e-4 * angles).square().sum(dim=1) / 2, rtol=1e-6)
    assert not torch.allclose(value, angles.square().sum(dim=1) / 2, rtol=0.05)


# --- what it leaves alone


@over_refiners
@pytest.mark.parametrize("mode", ["plain", "no_grad", "inference_mode"])
def test_weights_and_their_gradients_are_untouched_in_every_mode(refiner: Refiner, mode: str) -> None:
    group = Galilean(1)
    field, xi = moved(group, torch.float32)
    model = PACE(nn.Conv1d(1, 1, 1), group, TimidFrame(group))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with {"plain": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}[mode]():
        result = model.refine(field.clone(), refiner)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not result.xi.requires_grad and not result.energy_after.requires_grad
    assert float(result.energy_after.max()) < 0.5 * float(result.energy_before.max())
    assert float(group.difference(result.xi, xi)[:, 1].abs().max()) < 1e-6


@over_refiners
def test_the_trivial_group_has_nothing_to_refine(refiner: Refiner) -> None:
    model = PACE(nn.Identity(), Trivial(1), IdentityFrame(Trivial(1)))
    result = model.refine(torch.randn(3, 1, 16), refiner)
    assert result.xi.shape == (3, 0)
    assert result.evaluations == 0
    assert torch.equal(result.energy_after, torch.zeros(3))


def test_more_steps_of_adam_never_give_a_worse_frame() -> None:
    """The best frame on the way counts, not the last: with a large rate the last one is often worse."""
    group = Galilean(2)
    energy, xi, field = WildEnergy(group, 5), random_elements(group, 16, 5), torch.zeros(16, 1, 4, 4, dtype=torch.float64)
    after = torch.stack([AdamRefiner(steps=n, rate=0.1)(energy, field, xi).energy_after for n in range(12)])
    assert bool((after.diff(dim=0) <= 0).all())
    assert bool((after.diff(dim=0) == 0).any()) and bool((after[-1] < after[0]).all())


@pytest.mark.parametrize("refiner", [*REFINERS, GaussNewton(tolerance=1e-2)], ids=repr)
def test_a_batch_is_a_loop_over_its_samples(refiner: Refiner) -> None:
    group = Galilean(2)
    field, _ = moved(group, torch.float64)
    slightly = group.identity(6, dtype=torch.float64) + 0.05
    field[:2] = group.act(waves(group, torch.float64), slightly)[:2]  # samples that are finished earlier than the others
    model = PACE(nn.Identity(), group, TimidFrame(group))
    whole = model.refine(field, refiner)
    alone = [model.refine(field[i : i + 1], refiner) for i in range(len(field))]
    assert torch.allclose(torch.cat([r.xi for r in alone]), whole.xi, atol=1e-10)
    assert torch.allclose(torch.cat([r.energy_after for r in alone]), whole.energy_after, atol=1e-10)


@over_refiners
def test_a_field_without_a_frame_among_others_stays_put_and_harms_nobody(refiner: Refiner, dtype: torch.dtype) -> None:
    group = Galilean(1)
    field, _ = moved(group, dtype)
    spoiled = field.clone()
    spoiled[2] = 0.5
    model = PACE(nn.Identity(), group, TimidFrame(group))
    result, clean = model.refine(spoiled, refiner), model.refine(field, refiner)
    rest = [0, 1, 3, 4, 5]
    assert float(result.xi[2, 0]) == 0 and float(result.energy_after[2]) == 0
    assert torch.allclose(result.xi[rest], clean.xi[rest], atol=1e-6)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_a_half_precision_field_is_refined_in_single_precision(half: torch.dtype) -> None:
    group = Galilean(1)
    field, _ = moved(group, torch.float32)
    model = PACE(nn.Identity(), group, TimidFrame(group))
    result, twin = model.refine(field.to(half)), model.refine(field.to(half).float())
    assert result.xi.dtype == torch.float32
    assert torch.allclose(result.xi, twin.xi, atol=1e-6)
