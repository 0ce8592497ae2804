"""The error decomposition: it holds on every sample, each of its parts is needed, and its constants are the right ones."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from pacefno.cli import app
from pacefno.data import open_dataset
from pacefno.equations import problem_named
from pacefno.frames import AdamRefiner, AnalyticFrame, Estimate, Frame, GaussNewton
from pacefno.grid import resample
from pacefno.pace import PACE
from pacefno.studies.bench import Places
from pacefno.studies.study.theory.growth import measure_growth, refinement_path
from pacefno.studies.study.theory.lipschitz import random_gain, spectral_norm
from pacefno.studies.study.theory.measure import Effort, measure
from pacefno.studies.study.theory.terms import Terms, action_norm, decompose, violations
from pacefno.studies.study.theory.verdict import notes, verdict
from pacefno.symmetry import GROUPS, Galilean, Group
from pacefno.training.load import load_run
from pacefno.training.models import model_named

PROBLEM = "burgers1d_smooth"
SMALL = Effort(samples=8, derivatives=3, growth=3, iterations=6, probes=8)


class Biased(Frame):
    """The analytic frame, off by a constant shift: an error that no refinement of its own can find."""

    def __init__(self, group: Group, by: float) -> None:
        super().__init__()
        self.group, self.by = group, by

    def forward(self, field: Tensor) -> Estimate:
        estimate = AnalyticFrame(self.group)(field)
        shift = torch.zeros_like(estimate.xi)
        shift[:, 0] = self.by
        return Estimate(self.group.wrap(estimate.xi + shift), estimate.confidence)


class Wavy(nn.Module):
    """An operator that depends on position, so that a wrong frame matters."""

    def forward(self, field: Tensor) -> Tensor:
        n = field.shape[-1]
        x = torch.arange(n, dtype=field.dtype) / n
        return torch.tanh(field) * (1 + 0.5 * torch.cos(2 * math.pi * x))


def moved_samples(group: Group, dtype: torch.dtype, n: int, batch: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Fields moved by known elements, with targets that are no operator's answer."""
    generator = torch.Generator().manual_seed(3)
    channels = 1 + group.dim if group.size > group.spatial + 1 else 1
    shape = [batch, channels, *[9] * group.dim]
    field, target = (resample(torch.randn(shape, dtype=torch.float64, generator=generator), [n] * group.dim) for _ in range(2))
    if channels > 1:
        field[:, 0], target[:, 0] = 3 + 0.1 * field[:, 0], 3 + 0.1 * target[:, 0]
    field = group.inverse(field, AnalyticFrame(group)(field).xi)
    true = group.sample([0.0] * group.size, [0.4] * group.size, batch, generator)
    return group.act(field, true).to(dtype), target.to(dtype), true.to(dtype)


def terms_of(by: float, dtype: torch.dtype, n: int) -> Terms:
    problem = problem_named(PROBLEM)
    model = PACE(Wavy(), problem.group, Biased(problem.group, by), problem.horizon)
    field, target, true = moved_samples(problem.group, dtype, n)
    return decompose(model, problem, field, target, true, model.frame(field).xi)


# --- the bound ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [48, 49])
@pytest.mark.parametrize("by", [0.0, 0.01, 0.2])
def test_the_bound_holds_and_the_sharper_one_is_no_weaker(by: float, n: int, dtype: torch.dtype, tolerance: float) -> None:
    terms = terms_of(by, dtype, n)
    slack = 50 * tolerance * float(terms.bound.max())
    assert bool((terms.actual <= terms.sharper_bound + slack).all())
    assert bool((terms.sharper_bound <= terms.bound + slack).all())  # scalar boosts are isometries
    assert bool((terms.actual > 0.3 * terms.sharper_bound).any())  # it is no empty statement


def test_no_term_of_the_bound_can_be_left_out() -> None:
    terms = terms_of(0.2, torch.float64, 48)
    exact = terms_of(0.0, torch.float64, 48)
    assert violations(terms.actual, terms.bound) == 0
    assert violations(exact.actual, exact.from_input + exact.terminal_alignment) == len(exact.actual)  # without epsilon
    near = Terms(*terms)._replace(actual=terms.bound)  # where the triangle is flat, each side is needed
    for part in (terms.from_canonical, terms.from_input, terms.terminal_alignment):
        assert violations(near.actual, terms.bound - part) == len(part)


def test_nan_counts_as_a_violation() -> None:
    assert violations(torch.tensor([1.0, math.nan]), torch.tensor([2.0, 2.0])) == 1


def test_an_operator_that_commutes_with_shifts_hides_a_wrong_frame() -> None:
    problem = problem_named(PROBLEM)
    field, target, true = moved_samples(problem.group, torch.float64, 48)
    model = PACE(nn.Tanh(), problem.group, Biased(problem.group, 0.2), problem.horizon)
    terms = decompose(model, problem, field, target, true, model.frame(field).xi)
    assert float(terms.misalignment.max()) < 1e-2 * float(terms.input_alignment.min())  # tanh aliases a little
    assert bool((terms.bound > 1.5 * terms.actual).all())


# --- its constants --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(GROUPS) - {"galilean-2d-momentum"}))
def test_rigid_motions_and_scalar_boosts_stretch_nothing(name: str, dtype: torch.dtype, tolerance: float) -> None:
    group = GROUPS[name]()
    xi = group.sample([0.0] * group.size, [0.7] * group.size, 5, torch.Generator().manual_seed(1)).to(dtype)
    assert float((action_norm(group, xi, 1) - 1).abs().max()) < 10 * tolerance


def test_a_momentum_boost_stretches_by_what_its_matrix_says(dtype: torch.dtype, tolerance: float) -> None:
    group = Galilean(2, "momentum")
    xi = group.sample([0.0] * 4, [0.5, 0.5, 1.0, 1.0], 7, torch.Generator().manual_seed(2)).to(dtype)
    speed = xi[:, 2:].norm(dim=1)
    expected = speed / 2 + (1 + speed.square() / 4).sqrt()  # the largest singular value of [[1, 0], [V, 1]]
    assert torch.allclose(action_norm(group, xi, 3), expected, rtol=100 * tolerance)


def test_the_printed_bound_fails_for_momentum_boosts_and_ours_does_not() -> None:
    problem = problem_named("shallow_water")
    field, _, true = moved_samples(problem.group, torch.float64, 16)
    true[:, 2:] += 2.0
    canonical = problem.group.inverse(field, true)
    wrong_height = canonical.clone()
    wrong_height[:, 0] += 0.3
    target = problem.group.act(canonical, problem.group.transport(true, problem.horizon))

    class WrongHeight(nn.Module):
        def forward(self, field: Tensor) -> Tensor:
            return wrong_height

    model = PACE(WrongHeight(), problem.group, None, problem.horizon)
    terms = decompose(model, problem, field, target, true, true)
    assert violations(terms.actual, terms.bound) == 0
    assert violations(terms.actual, terms.bound_as_printed) == len(terms.actual)


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
    assert bool((spectral_norm(operator, field, iterations=1) < 0.99 * exact).all())  # one iteration is not enough


# --- refinement -----------------------------------------------------------------------------------------------------


def test_quadratic_growth_of_the_analytic_frame_is_two_pi_squared() -> None:
    problem = problem_named(PROBLEM)
    model = PACE(Wavy(), problem.group, AnalyticFrame(problem.group), problem.horizon)
    field, target, true = moved_samples(problem.group, torch.float64, 48)
    growth = measure_growth(model, problem, field, target, true, GaussNewton(), (0, 1, 2, 4), radius=0.02)
    assert torch.allclose(growth.alpha, torch.full_like(growth.alpha, 2 * math.pi**2), rtol=0.01)
    assert bool(growth.settled.all()) and float(growth.path.energy[0].min()) > 1e-4
    assert bool((growth.path.energy.diff(dim=0) <= 0).all()) and float(growth.path.energy[-1].max()) < 1e-20
    assert violations(growth.error, growth.bound) == 0
    too_steep = growth.at_minimum + growth.slope * (growth.path.energy / (100 * growth.alpha)).sqrt()
    assert violations(growth.error, too_steep) > 0  # a wrong constant is found out


@pytest.mark.parametrize("refiner", [GaussNewton(), AdamRefiner()], ids=["gauss-newton", "adam"])
def test_energy_never_rises_along_a_path_of_a_learned_frame(refiner: GaussNewton | AdamRefiner, smoke_places: Places) -> None:
    model = load_run(smoke_places.runs / PROBLEM / "pace-cnn-smoke-seed42").model
    field = open_dataset(smoke_places.data / PROBLEM / "smoke-seed42").load("test_ood", "ood").input
    with torch.no_grad():
        start = model.frame(field).xi
    path = refinement_path(refiner, model.frame.energy(), field, start, (0, 1, 2, 4, 8))
    assert bool((path.energy.diff(dim=0) <= 0).all())
    assert float(path.energy[-1].mean()) < 0.5 * float(path.energy[0].mean())


# --- a trained run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["pace", "pace-tta", "pace-oracle", "pace-cnn", "fno", "pace-analytic"])
def test_every_trained_row_obeys_the_bound(row: str, smoke_places: Places) -> None:
    trained_as = model_named(row).trained_as or row
    trained = load_run(smoke_places.runs / PROBLEM / f"{trained_as}-smoke-seed42", row)
    dataset = open_dataset(smoke_places.data / PROBLEM / "smoke-seed42")
    cell = measure(trained.model, model_named(row), trained.problem, dataset, SMALL)
    assert cell["violations"] == 0 and cell["violations_sharper"] == 0 and cell["samples"] == 8
    assert sum(cell["shares"].values()) == pytest.approx(1)
    assert (cell["refinement"] is None) == (row == "fno")
    assert (cell["commutation"] is None) == (row == "pace-oracle")
    if row in ("pace", "pace-analytic", "pace-tta"):
        assert cell["commutation"]["max"] < 1e-10
    canonical, terms = cell["terms"]["canonical"], cell["terms"]
    shortened = [bound - part for bound, part in zip(cell["sharper_bound"], terms["with_true_frame"], strict=True)]
    if row != "fno":
        assert any(a > b for a, b in zip(terms["actual"], shortened, strict=True))  # without the operator's error it fails
        assert max(terms["action"]) == pytest.approx(1) and min(canonical) > 0
    assert json.loads(json.dumps(cell)) == cell and all(notes(cell))
    expected = "frame would lower" if row != "fno" else "Misalignment makes up"
    assert expected in verdict(cell)


def test_the_command_prints_the_verdict_and_keeps_one_cell_a_seed(smoke_places: Places, tmp_path: Path) -> None:
    run = smoke_places.runs / PROBLEM / "pace-smoke-seed42"
    words = ["study", "theory", str(run), "--samples", "4", "--derivatives", "2", "--growth", "2"]
    words += ["--data", str(smoke_places.data), "--results", str(tmp_path), "--figures", str(tmp_path / "figures")]
    for _ in range(2):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "The bound holds on 4 of 4 samples" in text and "The operator's own error makes up" in text
    document = json.loads((tmp_path / "studies" / f"theory-{PROBLEM}-pace.json").read_text())
    assert [cell["seed"] for cell in document["cells"]] == [42]
    assert (tmp_path / "figures" / f"{PROBLEM}-theory-pace.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "figures" / f"{PROBLEM}-theory-pace.pdf").read_bytes().startswith(b"%PDF")


def test_a_missing_run_is_named_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["study", "theory", str(tmp_path / "nowhere")])
    assert result.exit_code == 1 and "nowhere" in result.output and "Traceback" not in result.output
