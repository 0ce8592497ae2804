"""Test-time adaptation: it may only help, it touches no weight, and it finds a known answer."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from group_examples import EXAMPLES, Example, example
from pacefno.fields import Field, FieldType
from pacefno.frames import (
    AdamRefiner,
    AnalyticFrame,
    Energy,
    EquivariantFrame,
    Estimate,
    Frame,
    GaussNewton,
    IdentityFrame,
    Refiner,
    SelfConsistency,
)
from pacefno.frames.refine import energy_of
from pacefno.grid import points, resample
from pacefno.groups import Euclidean, Galilean, Group, Translation, Trivial
from pacefno.metrics import random_elements
from pacefno.pace import PACE
from pacefno.testing import largest

REFINERS: list[Refiner] = [
    GaussNewton(),
    GaussNewton(steps=8, damping=1.0),
    AdamRefiner(steps=10),
    AdamRefiner(weight_decay=0.1),
]
CASES: dict[str, Example] = {
    "translation-1d": example(Translation(1), "a: scalar"),
    "translation-2d": example(Translation(2), "a: scalar"),
    "galilean-1d": example(Galilean(1), "u: speed"),
    "galilean-1d-snapshots": example(Galilean(1), "u: speed", 3.0, (0.0, 0.5, 1.0)),
    "galilean-2d": example(Galilean(2), "u: velocity", (2.0, 3.0)),
    "galilean-2d-diagonal": example(Galilean(2, diagonal=True), "u: speed"),
    "galilean-2d-momentum": example(Galilean(2), "h: scalar, m: momentum of h"),
}
over_cases = pytest.mark.parametrize("case", list(CASES))
over_refiners = pytest.mark.parametrize(
    "refiner", REFINERS, ids=lambda refiner: f"{type(refiner).__name__}-{refiner.steps}"
)


class TimidFrame(Frame):
    """Finds only 70 % of each shift: the true shift is the only frame consistent with it."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group
        self.share = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        found = AnalyticFrame(self.group)(field)
        spatial = self.group.spatial
        shrunk = self.share * found.xi[:, :spatial]
        return Estimate(torch.cat([shrunk, found.xi[:, spatial:]], dim=1), found.quality)


class WildEnergy(Energy):
    """An energy without any structure: random waves, and optionally NaN in places."""

    def __init__(self, group: Group, seed: int, spoiled: float = 0.0) -> None:
        self.group = group
        self.spoiled = spoiled
        generator = torch.Generator().manual_seed(seed)
        self.rates = 20 * torch.randn(group.spatial, 3, dtype=torch.float64, generator=generator)
        self.phases = 6 * torch.rand(3, dtype=torch.float64, generator=generator)

    def residual(self, field: Field, xi: Tensor) -> Tensor:
        waves = torch.sin(xi[:, : self.group.spatial].double() @ self.rates + self.phases)
        hole = torch.sin(37 * xi[:, :1].double()) > 1 - 2 * self.spoiled
        return torch.where(hole, torch.nan, 1.5 + waves).to(xi.dtype)


PLANE = CASES["galilean-2d-diagonal"]


def nothing(batch: int = 16) -> Field:
    return Field(torch.zeros(batch, 1, 4, 4, dtype=torch.float64), PLANE.type)


def waves(chosen: Example, dtype: torch.dtype, batch: int = 6, n: int = 24) -> Field:
    """Fields on the slice, with a strong first mode."""
    type, group = chosen.type, chosen.group
    generator = torch.Generator().manual_seed(4)
    small = torch.randn(batch, type.size, *[7] * type.dim, dtype=torch.float64, generator=generator)
    values = 0.2 * resample(small, [n] * type.dim)
    values = values + torch.cos(2 * math.pi * points([n] * type.dim)).sum(dim=0)
    if chosen.has_momentum:
        values[:, 0] = 1 + 0.1 * values[:, 0]
    field = Field(values, type)
    return group.inverse(field, AnalyticFrame(group)(field).xi).to(dtype)


def moved(chosen: Example, dtype: torch.dtype, size: float = 0.3) -> tuple[Field, Tensor]:
    group = chosen.group
    generator = torch.Generator().manual_seed(8)
    xi = group.sample([0.0] * group.size, [size] * group.size, 6, generator)
    return group.act(waves(chosen, dtype), xi), xi


def model_of(chosen: Example, frame: Frame, operator: nn.Module | None = None) -> PACE:
    operator = nn.Identity() if operator is None else operator
    return PACE(operator, chosen.group, input=chosen.type, output=chosen.type, frame=frame)


# --- it may only help


@given(
    seed=st.integers(0, 10_000),
    spoiled=st.sampled_from([0.0, 0.2, 0.5]),
    which=st.integers(0, len(REFINERS) - 1),
)
def test_no_sample_ever_ends_at_a_higher_energy_than_it_began(
    seed: int, spoiled: float, which: int
) -> None:
    energy = WildEnergy(PLANE.group, seed, spoiled)
    xi, field = random_elements(PLANE.group, 16, seed), nothing()
    start = energy_of(energy.residual(field, xi))
    usable = torch.isfinite(start)
    result = REFINERS[which](energy, field, xi)
    end = energy_of(energy.residual(field, result.xi))
    assert torch.equal(result.energy_before[usable], start[usable])
    assert bool((result.energy_after[usable] <= start[usable]).all())
    assert torch.equal(end[usable], result.energy_after[usable])  # the frame returned has it
    assert torch.equal(result.xi[:, 2:], xi[:, 2:])  # velocities are measured, never refined
    assert largest(result.xi[:, :2]) <= 0.5


def careless_descent(energy: Energy, field: Field, xi: Tensor) -> Tensor:
    """Plain gradient steps that keep the last frame, not the best: what the law must catch."""
    for _ in range(5):
        xi = xi.detach().requires_grad_()
        total = energy_of(energy.residual(field, xi)).sum()
        xi = xi - 0.05 * torch.autograd.grad(total, xi)[0]
    return xi.detach()


def test_a_descent_that_keeps_its_last_frame_does_end_higher() -> None:
    energy, xi = WildEnergy(PLANE.group, 3), random_elements(PLANE.group, 16, 3)
    before = energy_of(energy.residual(nothing(), xi))
    after = energy_of(energy.residual(nothing(), careless_descent(energy, nothing(), xi)))
    assert bool((after > before).any())


# --- it finds what there is to find


@over_cases
def test_gauss_newton_finds_the_true_shift_from_a_timid_frame(
    case: str, dtype: torch.dtype
) -> None:
    chosen = CASES[case]
    group, spatial = chosen.group, chosen.group.spatial
    field, xi = moved(chosen, dtype)
    model = model_of(chosen, TimidFrame(group))
    before = group.difference(model.frame_of(field.values).xi, xi)[:, :spatial]
    result = model.refine(field.values)
    after = group.difference(result.xi, xi)[:, :spatial]
    assert largest(before) > 0.05
    assert largest(after) < (1e-5 if dtype == torch.float32 else 1e-8)
    assert result.evaluations <= 1 + 4 * (spatial + 1)
    assert bool((result.energy_after <= result.energy_before).all())


def test_gauss_newton_needs_a_few_steps_where_adam_needs_tens() -> None:
    chosen = CASES["galilean-1d"]
    group = chosen.group
    field, xi = moved(chosen, torch.float64)
    energy = SelfConsistency(TimidFrame(group))
    start = energy.frame(field).xi.detach()

    def error(refiner: Refiner) -> float:
        return largest(group.difference(refiner(energy, field, start).xi, xi))

    assert error(GaussNewton(steps=3)) < 1e-6
    assert error(AdamRefiner(steps=3)) > 1e-2
    assert error(AdamRefiner(steps=80, rate=0.01)) < 5e-3
    assert error(GaussNewton(steps=3)) < 1e-3 * error(AdamRefiner(steps=20))


@pytest.mark.parametrize("distance", [0.01, 0.2, 0.4])
def test_a_start_far_from_the_slice_is_brought_back_to_it(
    distance: float, dtype: torch.dtype
) -> None:
    chosen = CASES["translation-2d"]
    group = chosen.group
    field, _ = moved(chosen, dtype)
    frame = AnalyticFrame(group)
    exact = frame(field).xi
    start = group.wrap(exact + distance)
    result = GaussNewton(steps=10)(SelfConsistency(frame), field, start)
    bound = 5e-6 if dtype == torch.float32 else 1e-9
    assert largest(group.difference(result.xi, exact)) < bound


def test_a_perturbed_rigid_motion_of_a_compact_field_is_recovered() -> None:
    group = Euclidean()
    x, y = points((64, 64)) - 0.5
    blob = torch.exp(-(x**2 + y**2) / 0.005)
    values = torch.stack([x * blob, (x + 0.3 * y) * blob])[:, None]
    field = Field(values, FieldType.parse("w: pseudoscalar", 2))
    field = group.act(field, random_elements(group, 2, 1))
    frame = AnalyticFrame(group)
    exact = frame(field).xi
    off = torch.tensor([[0.03, -0.02, 0.2], [-0.01, 0.04, -0.3]], dtype=torch.float64)
    result = GaussNewton(steps=8)(SelfConsistency(frame), field, exact + off)
    assert largest(group.difference(result.xi, exact)) < 1e-5


@over_cases
@pytest.mark.parametrize("aligned", [False, True], ids=["analytic", "aligned"])
def test_an_exactly_equivariant_frame_is_consistent_and_costs_one_look(
    case: str, aligned: bool, dtype: torch.dtype
) -> None:
    chosen = CASES[case]
    group = chosen.group
    field, _ = moved(chosen, dtype)
    torch.manual_seed(0)
    frame: Frame = (
        EquivariantFrame(group, chosen.type).to(dtype) if aligned else AnalyticFrame(group)
    )
    with torch.no_grad():
        for parameter in frame.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model = model_of(chosen, frame)
    result = model.refine(field.values)
    assert result.evaluations == 1
    assert torch.equal(result.xi, model.frame_of(field.values).xi)
    assert float(result.energy_before.max()) < (1e-9 if dtype == torch.float32 else 1e-24)


def test_a_tolerance_of_ones_own_stops_earlier() -> None:
    chosen = CASES["translation-1d"]
    field, _ = moved(chosen, torch.float64)
    energy = SelfConsistency(TimidFrame(chosen.group))
    start = energy.frame(field).xi.detach()
    rough = GaussNewton(tolerance=1e-2)(energy, field, start)
    fine = GaussNewton()(energy, field, start)
    assert rough.evaluations < fine.evaluations
    assert 1e-12 < float(rough.energy_after.max()) <= 1e-2
    assert GaussNewton(tolerance=10.0)(energy, field, start).evaluations == 1


# --- the energy


class Told(Frame):
    """Says what it was told is left."""

    def __init__(self, group: Group, left: Tensor) -> None:
        super().__init__()
        self.group, self.left = group, left

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        return Estimate(self.left, torch.ones_like(self.left))


@pytest.mark.parametrize("name", ["translation-1d", "galilean-2d", "euclidean", "translation-3d"])
def test_the_energy_is_the_cosine_form_and_the_paper_squares_for_small_residuals(
    name: str,
) -> None:
    chosen = EXAMPLES[name]
    group = chosen.group
    left = random_elements(group, 5, 2)
    periods = torch.tensor(group.periods[: group.spatial], dtype=torch.float64)
    field, xi = chosen.field((8,) * group.dim), group.identity(5)
    value = energy_of(SelfConsistency(Told(group, left)).residual(field, xi))
    angles = 2 * math.pi * left[:, : group.spatial] / periods
    expected = (1 - torch.cos(angles)).sum(dim=1)
    assert torch.allclose(value, expected, rtol=1e-12, atol=1e-14)
    small = energy_of(SelfConsistency(Told(group, 1e-4 * left)).residual(field, xi))
    assert torch.allclose(small, (1e-4 * angles).square().sum(dim=1) / 2, rtol=1e-6)
    assert not torch.allclose(value, angles.square().sum(dim=1) / 2, rtol=0.05)


# --- what it leaves alone


@over_refiners
@pytest.mark.parametrize("mode", ["plain", "no_grad", "inference_mode"])
def test_weights_and_their_gradients_are_untouched_in_every_mode(
    refiner: Refiner, mode: str
) -> None:
    chosen = CASES["galilean-1d"]
    field, xi = moved(chosen, torch.float32)
    model = model_of(chosen, TimidFrame(chosen.group), nn.Conv1d(1, 1, 1))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modes = {"plain": torch.enable_grad, "no_grad": torch.no_grad}
    with modes.get(mode, torch.inference_mode)():
        result = model.refine(field.values.clone(), refiner)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not result.xi.requires_grad and not result.energy_after.requires_grad
    assert float(result.energy_after.max()) < 0.5 * float(result.energy_before.max())
    assert largest(chosen.group.difference(result.xi, xi)[:, 1]) < 1e-6


@over_refiners
def test_the_trivial_group_has_nothing_to_refine(refiner: Refiner) -> None:
    model = PACE(nn.Identity(), Trivial(1), frame=IdentityFrame(Trivial(1)))
    result = model.refine(torch.randn(3, 1, 16), refiner)
    assert result.xi.shape == (3, 0)
    assert result.evaluations == 0
    assert torch.count_nonzero(result.energy_after) == 0


def test_more_steps_of_adam_never_give_a_worse_frame() -> None:
    """The best frame on the way counts: with a large rate the last one is often worse."""
    energy, xi = WildEnergy(PLANE.group, 5), random_elements(PLANE.group, 16, 5)
    after = torch.stack(
        [AdamRefiner(steps=n, rate=0.1)(energy, nothing(), xi).energy_after for n in range(12)]
    )
    assert bool((after.diff(dim=0) <= 0).all())
    assert bool((after.diff(dim=0) == 0).any()) and bool((after[-1] < after[0]).all())


@pytest.mark.parametrize("refiner", [*REFINERS, GaussNewton(tolerance=1e-2)], ids=repr)
def test_a_batch_is_a_loop_over_its_samples(refiner: Refiner) -> None:
    chosen = CASES["galilean-1d"]
    group = chosen.group
    values = moved(chosen, torch.float64)[0].values[:3]
    slightly = group.act(waves(chosen, torch.float64), group.identity(6) + 0.05).values
    values[:1] = slightly[:1]  # a sample that is finished earlier than the others
    model = model_of(chosen, TimidFrame(group))
    whole = model.refine(values, refiner)
    alone = [model.refine(values[i : i + 1], refiner) for i in range(len(values))]
    assert torch.allclose(torch.cat([r.xi for r in alone]), whole.xi, atol=1e-10)
    energies = torch.cat([r.energy_after for r in alone])
    assert torch.allclose(energies, whole.energy_after, atol=1e-10)


@over_refiners
def test_a_field_without_a_frame_among_others_stays_put_and_harms_nobody(
    refiner: Refiner, dtype: torch.dtype
) -> None:
    chosen = CASES["galilean-1d"]
    values = moved(chosen, dtype)[0].values
    spoiled = values.clone()
    spoiled[2] = 0.5
    model = model_of(chosen, TimidFrame(chosen.group))
    result, clean = model.refine(spoiled, refiner), model.refine(values, refiner)
    rest = [0, 1, 3, 4, 5]
    assert float(result.xi[2, 0]) == 0 and float(result.energy_after[2]) == 0
    assert torch.allclose(result.xi[rest], clean.xi[rest], atol=1e-6)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_a_half_precision_field_is_refined_in_single_precision(half: torch.dtype) -> None:
    chosen = CASES["galilean-1d"]
    values = moved(chosen, torch.float32)[0].values.to(half)
    model = model_of(chosen, TimidFrame(chosen.group))
    result, twin = model.refine(values), model.refine(values.float())
    assert result.xi.dtype == torch.float64
    assert torch.allclose(result.xi, twin.xi, atol=1e-6)
