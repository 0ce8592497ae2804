"""The error decomposition: it holds on every sample, and each of its parts is needed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from group_examples import EXAMPLES
from pacefno.checkpoint import CheckpointError
from pacefno.data.samples import Pairs
from pacefno.fields import Field, FieldType
from pacefno.frames import AdamRefiner, Estimate, Frame, GaussNewton
from pacefno.grid import resample
from pacefno.groups import Galilean, Translation
from pacefno.pace import PACE
from pacefno.paper.bench import Places, load_row
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.rows import FIELD_ROWS
from pacefno.paper.studies import theory
from pacefno.paper.studies.base import make_scope, refinement_path, run_study
from pacefno.paper.studies.theory import (
    BALANCED,
    Effort,
    GradientFlow,
    Terms,
    action_norm,
    count_violations,
    decompose,
    gradient_flow,
    measure,
    measure_growth,
    measure_projection,
    notes,
    project,
    random_gain,
    spectral_norm,
    verdict,
)
from pacefno.paper.style import save
from pacefno.task import Task

BENCHMARK = benchmark_named("burgers1d_smooth")
TASK = BENCHMARK.task
SMALL = Effort(samples=8, derivatives=3, growth=3, elements=4, iterations=6, probes=8)


class Biased(Frame):
    """The analytic frame, off by a constant shift: an error that no refinement of its own finds."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.group, self.by = TASK.group, by

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        xi = TASK.slice.coordinates(field)
        shift = torch.zeros_like(xi)
        shift[:, 0] = self.by
        return Estimate(self.group.wrap(xi + shift), torch.ones_like(xi))


class Wavy(nn.Module):
    """An operator that depends on position, so that a wrong frame matters."""

    def forward(self, field: Tensor) -> Tensor:
        n = field.shape[-1]
        x = torch.arange(n, dtype=field.dtype) / n
        return torch.tanh(field) * (1 + 0.5 * torch.cos(2 * math.pi * x))


def moved_samples(task: Task, dtype: torch.dtype, n: int, batch: int = 6) -> Pairs:
    """Fields moved by known elements, with targets that are no operator's answer."""
    generator = torch.Generator().manual_seed(3)
    group = task.group
    shape = [batch, task.input.size, *[9] * group.dim]
    field, target = (
        resample(torch.randn(shape, dtype=torch.float64, generator=generator), [n] * group.dim)
        for _ in range(2)
    )
    if task.input.size > 1:
        field[:, 0], target[:, 0] = 3 + 0.1 * field[:, 0], 3 + 0.1 * target[:, 0]
    typed = Field(field, task.input)
    typed = group.inverse(typed, task.slice.coordinates(typed))
    true = group.sample([0.0] * group.size, [0.4] * group.size, batch, generator)
    return Pairs(group.act(typed, true).values.to(dtype), target.to(dtype), true)


def wrapped(operator: nn.Module, frame: Frame, task: Task = TASK) -> PACE:
    return PACE(operator, task.group, input=task.input, output=task.output, frame=frame)


def terms_of(by: float, dtype: torch.dtype, n: int) -> Terms:
    model, pairs = wrapped(Wavy(), Biased(by)), moved_samples(TASK, dtype, n)
    return decompose(model, TASK, pairs, model.frame_of(pairs.input).xi)


# --- the bound ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [48, 49])
@pytest.mark.parametrize("by", [0.0, 0.01, 0.2])
def test_the_bound_holds_and_the_sharper_one_is_no_weaker(
    by: float, n: int, dtype: torch.dtype, tolerance: float
) -> None:
    terms = terms_of(by, dtype, n)
    slack = 50 * tolerance * float(terms.bound.max())
    assert bool((terms.actual <= terms.sharper_bound + slack).all())
    assert bool((terms.sharper_bound <= terms.bound + slack).all())  # scalar boosts are isometries
    assert bool((terms.actual > 0.3 * terms.sharper_bound).any())  # the statement is not empty


def test_no_term_of_the_bound_can_be_left_out() -> None:
    terms = terms_of(0.2, torch.float64, 48)
    exact = terms_of(0.0, torch.float64, 48)
    assert count_violations(terms.actual, terms.bound) == 0
    without_epsilon = exact.from_input + exact.terminal_alignment
    assert count_violations(exact.actual, without_epsilon) == len(exact.actual)
    # Where the triangle is flat, each side is needed.
    for part in (terms.from_canonical, terms.from_input, terms.terminal_alignment):
        assert count_violations(terms.bound, terms.bound - part) == len(part)


def test_nan_counts_as_a_violation() -> None:
    assert count_violations(torch.tensor([1.0, math.nan]), torch.tensor([2.0, 2.0])) == 1


def test_an_operator_that_commutes_with_shifts_hides_a_wrong_frame() -> None:
    pairs, model = moved_samples(TASK, torch.float64, 48), wrapped(nn.Tanh(), Biased(0.2))
    terms = decompose(model, TASK, pairs, model.frame_of(pairs.input).xi)
    # tanh aliases a little
    assert float(terms.misalignment.max()) < 1e-2 * float(terms.input_alignment.min())
    assert bool((terms.bound > 1.5 * terms.actual).all())


# --- its constants --------------------------------------------------------------------------------

ISOMETRIES = [
    name
    for name, example in EXAMPLES.items()
    if not example.has_momentum
    and example.type.quantities
    and example.group.is_unitary(example.type)
    and "scale" not in example.group.coordinates
]


@pytest.mark.parametrize("name", ISOMETRIES)
def test_rigid_motions_and_scalar_boosts_stretch_nothing(name: str, tolerance: float) -> None:
    group, type = EXAMPLES[name].group, EXAMPLES[name].type.at([0.5])
    size = group.size
    xi = group.sample([0.0] * size, [0.7] * size, 3, torch.Generator().manual_seed(1))
    assert float((action_norm(group, type, xi) - 1).abs().max()) < 10 * tolerance


def test_a_momentum_boost_stretches_by_what_its_matrix_says(tolerance: float) -> None:
    group, type = Galilean(2), FieldType.parse("h: scalar, m: momentum of h", 2)
    generator = torch.Generator().manual_seed(2)
    xi = group.sample([0.0] * 4, [0.5, 0.5, 1.0, 1.0], 7, generator)
    speed = xi[:, 2:].norm(dim=1)
    # The largest singular value of [[1, 0], [V, 1]].
    expected = speed / 2 + (1 + speed.square() / 4).sqrt()
    assert torch.allclose(action_norm(group, type, xi), expected, rtol=100 * tolerance)


def test_the_printed_bound_fails_for_momentum_boosts_and_ours_does_not() -> None:
    task = benchmark_named("shallow_water").task
    drawn = moved_samples(task, torch.float64, 16)
    true = drawn.elements.clone()
    true[:, 2:] += 2.0
    canonical = task.group.inverse(Field(drawn.input, task.input), true).values
    wrong_height = canonical.clone()
    wrong_height[:, 0] += 0.3
    target = task.group.act(Field(canonical, task.output), true).values

    class WrongHeight(nn.Module):
        def forward(self, field: Tensor) -> Tensor:
            return wrong_height

    model = wrapped(WrongHeight(), task.slice.frame(), task)
    terms = decompose(model, task, Pairs(drawn.input, target, true), true)
    assert count_violations(terms.actual, terms.bound) == 0
    assert count_violations(terms.actual, terms.bound_as_printed) == len(terms.actual)


def test_power_iteration_finds_the_largest_singular_value(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(5)
    matrix = torch.randn(20, 20, dtype=dtype, generator=generator)

    def operator(field: Tensor) -> Tensor:
        return (field.flatten(1) @ matrix.T).reshape(field.shape)

    field = torch.randn(3, 1, 20, dtype=dtype, generator=generator)
    exact = float(torch.linalg.matrix_norm(matrix, ord=2))
    found = spectral_norm(operator, field, iterations=200)
    assert torch.allclose(found, torch.full_like(found, exact), rtol=1e-3)
    assert bool((random_gain(operator, field) < found).all())
    # One iteration is not enough.
    assert bool((spectral_norm(operator, field, iterations=1) < 0.99 * exact).all())


# --- refinement -----------------------------------------------------------------------------------


def test_quadratic_growth_of_the_analytic_frame_is_two_pi_squared() -> None:
    model, pairs = wrapped(Wavy(), TASK.slice.frame()), moved_samples(TASK, torch.float64, 48)
    growth = measure_growth(model, TASK, pairs, GaussNewton(), (0, 1, 2, 4), radius=0.02)
    assert torch.allclose(growth.alpha, torch.full_like(growth.alpha, 2 * math.pi**2), rtol=0.01)
    energy = growth.energy
    assert bool(growth.settled.all()) and float(energy[0].min()) > 1e-4
    assert bool((energy.diff(dim=0) <= 0).all()) and float(energy[-1].max()) < 1e-20
    assert count_violations(growth.error, growth.bound) == 0
    too_steep = growth.at_minimum + growth.slope * (energy / (100 * growth.alpha)).sqrt()
    assert count_violations(growth.error, too_steep) > 0  # a wrong constant is found out


def test_the_gradient_flow_loses_the_energy_that_it_dissipates() -> None:
    """Of the analytic frame J = 1 - cos(2 pi d), whose flow is known in closed form."""
    model, pairs = wrapped(Wavy(), TASK.slice.frame()), moved_samples(TASK, torch.float64, 48)
    steps = tuple(range(0, 81, 4))
    growth = measure_growth(model, TASK, pairs, GradientFlow(), steps, radius=0.2)
    flow = growth.flow
    assert flow is not None
    time = torch.tensor(steps, dtype=torch.float64)[:, None] * GradientFlow().time_step
    start = growth.distance[0]
    exact = torch.atan(torch.tan(math.pi * start) * torch.exp(-4 * math.pi**2 * time)) / math.pi
    # A step of a quarter is off by 0.25^5 / 5! of what is left, eighty of them by 7e-4.
    assert torch.allclose(growth.distance, exact, rtol=1e-3, atol=0)
    assert torch.allclose(growth.energy, 1 - torch.cos(2 * math.pi * exact), rtol=1e-3, atol=1e-12)
    assert float(flow.imbalance.abs().max()) < 1e-4
    assert float(flow.gradient[-1].max()) < 1e-6 * float(flow.gradient[0].max())
    cell = growth.cell()
    assert cell["rises"] == 0 and cell["imbalance"] < BALANCED


def test_a_flow_with_steps_that_are_too_long_is_found_out() -> None:
    model, pairs = wrapped(Wavy(), TASK.slice.frame()), moved_samples(TASK, torch.float64, 48)
    hasty = GradientFlow(time_step=200 * GradientFlow().time_step)  # even in its smallest parts
    cell = measure_growth(model, TASK, pairs, hasty, (0, 1, 2, 3, 4), radius=0.2).cell()
    assert cell["rises"] > 0 and cell["imbalance"] > BALANCED


def test_steps_of_a_flow_are_divided_where_the_energy_is_steep() -> None:
    model, pairs = wrapped(Wavy(), TASK.slice.frame()), moved_samples(TASK, torch.float64, 48)
    field, start = Field(pairs.input, TASK.input), model.frame_of(pairs.input).xi
    start = TASK.group.wrap(start + torch.tensor([0.15, 0.0], dtype=torch.float64))
    nominal, steps = GradientFlow().time_step, (0, 4, 8)
    flow = gradient_flow(model.frame.energy(), field, start, steps, 4 * nominal)
    fine = gradient_flow(model.frame.energy(), field, start, (0, 16, 32), nominal)
    assert float(flow.imbalance.abs().max()) <= BALANCED
    assert torch.allclose(flow.energy, fine.energy, rtol=1e-2, atol=1e-9)


@pytest.mark.parametrize("refiner", [GaussNewton(), AdamRefiner()], ids=["gauss-newton", "adam"])
def test_energy_never_rises_along_a_path_of_a_learned_frame(
    refiner: GaussNewton | AdamRefiner, smoke_places: Places
) -> None:
    scope = make_scope(BENCHMARK.name, "smoke", smoke_places, print)
    [row] = scope.trained_rows(["pace-cnn"], [42], ["pace-cnn"])
    field = Field(scope.pairs("test_ood").input, TASK.input)
    with torch.no_grad():
        start = row.trained.model.frame_of(field.values).xi
    energy = row.trained.model.frame.energy()
    path = refinement_path(refiner, energy, field, start, 0, 1, 2, 4, 8)
    assert bool((path.energy.diff(dim=0) <= 0).all())
    assert float(path.energy[-1].mean()) < 0.5 * float(path.energy[0].mean())


# --- the projection -------------------------------------------------------------------------------


class Placed(nn.Module):
    """An operator that depends on position: what it adds is not moved with the field."""

    def forward(self, field: Tensor) -> Tensor:
        x = torch.arange(field.shape[-1], dtype=field.dtype) / field.shape[-1]
        return field.tanh() + 0.3 * torch.sin(2 * math.pi * x)


def test_an_average_over_a_group_commutes_with_it_and_is_no_further_than_eta() -> None:
    group, type = Translation(1), FieldType.parse("u: scalar", 1)
    shifts = torch.arange(8, dtype=torch.float64)[:, None] / 8  # a group: all of it is averaged
    task = TASK.model_copy(update={"group": group, "input": type, "output": type})
    field = moved_samples(TASK, torch.float64, 48).input
    pairs = Pairs(field, field.sin(), torch.zeros(len(field), 1))
    found = project(Placed(), task, pairs, shifts, unit=1.0)
    assert float(found.eta.min()) > 0.1 and bool((found.apart <= found.eta + 1e-12).all())
    assert torch.allclose(found.error, (Placed()(field) - field.sin()).flatten(1).norm(dim=1))
    # The part that stays in place averages out: what is left commutes with every shift.
    assert torch.allclose(found.projected, (field.tanh() - field.sin()).flatten(1).norm(dim=1))
    commuting = project(torch.tanh, task, pairs, shifts, unit=1.0)
    assert float(commuting.eta.max()) < 1e-12 and float(commuting.apart.max()) < 1e-12


@pytest.mark.parametrize("row", ["fno", "pace", "pace-cnn"])
def test_the_gap_exceeds_that_of_the_projection_by_two_eta_at_most(
    row: str, smoke_places: Places
) -> None:
    scope = make_scope(BENCHMARK.name, "smoke", smoke_places, print)
    model = load_row(scope.run_folder(row, 42), BENCHMARK, row).model.double()
    cell = measure_projection(lambda x: model(x).detach(), scope, SMALL)
    assert cell["holds"] and cell["violations"] == 0 and cell["stretch"] == pytest.approx(1)
    assert cell["samples"] == 16 and cell["elements"] == SMALL.elements
    assert abs(cell["error"] - cell["error_projected"]) <= cell["eta"] + 1e-12
    assert (cell["eta"] < 1e-10) == (row == "pace")  # it commutes, so it is its own projection
    if row == "pace":
        assert cell["gap"] == pytest.approx(cell["gap_projected"])


# --- a trained run --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row", ["pace", "pace-tta", "pace-oracle", "pace-cnn", "fno", "pace-analytic"]
)
def test_every_trained_row_obeys_the_bound(row: str, smoke_places: Places) -> None:
    scope = make_scope(BENCHMARK.name, "smoke", smoke_places, print)
    run = scope.run_folder(FIELD_ROWS[row].trained_as or row, 42)
    model = load_row(run, BENCHMARK, row).model
    cell = measure(model, FIELD_ROWS[row].inference, scope, SMALL)
    assert cell["violations"] == 0 and cell["violations_sharper"] == 0 and cell["samples"] == 8
    assert sum(cell["shares"].values()) == pytest.approx(1)
    assert (cell["refinement"] is None) == (row == "fno")
    assert (cell["commutation"] is None) == (row == "pace-oracle")
    if row in ("pace", "pace-analytic", "pace-tta"):
        assert cell["commutation"]["max"] < 1e-10
    terms = cell["terms"]
    if row != "fno":  # without the operator's error the sharper bound fails
        pairs = zip(cell["sharper_bound"], terms["with_true_frame"], strict=True)
        shortened = [bound - part for bound, part in pairs]
        assert any(a > b for a, b in zip(terms["actual"], shortened, strict=True))
        assert max(terms["action"]) == pytest.approx(1) and min(terms["canonical"]) > 0
    assert json.loads(json.dumps(cell)) == cell and all(notes(cell))
    expected = "The operator's own error" if row != "fno" else "Misalignment makes up"
    assert expected in verdict(cell) and "perfect frame would lower" in verdict(cell)


def test_the_study_says_what_limits_a_run_and_keeps_one_cell_a_seed(
    smoke_places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = replace(smoke_places, results=tmp_path)
    run = smoke_places.runs / BENCHMARK.name / "pace-smoke-seed42"
    how = {"samples": 4, "derivatives": 2, "growth": 2, "elements": 3}
    outcome = run_study("theory", places, print, run=run, **how)
    monkeypatch.setattr(theory, "measure", None)  # a second time nothing is left to measure
    again = run_study("theory", places, print, run=run, **how)
    assert again.sentences == outcome.sentences
    assert "The bound holds on 4 of 4 samples" in outcome.sentences[0]
    assert "The operator's own error makes up" in outcome.sentences[-1]
    document = json.loads((tmp_path / "studies" / f"theory-{BENCHMARK.name}-pace.json").read_text())
    assert [cell["seed"] for cell in document["cells"]] == [42]
    [drawing] = outcome.drawings
    save(drawing, tmp_path)
    name = f"{BENCHMARK.name}-theory-pace"
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_a_missing_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere"):
        run_study("theory", Places(), print, run=tmp_path / "nowhere")
