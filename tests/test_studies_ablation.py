"""Ablations: each row takes out what it says, no more; trainings are shared, and an interrupted study goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from pacefno.cli import app
from pacefno.data import Samples, open_dataset
from pacefno.equations import PROBLEMS, Problem, problem_named
from pacefno.frames import AnalyticFrame
from pacefno.metrics import relative_l2
from pacefno.pace import PACE
from pacefno.studies.bench import Places
from pacefno.studies.report.figures.ablation import draw_ablation
from pacefno.studies.study.ablation import command
from pacefno.studies.study.ablation import measure as measuring
from pacefno.studies.study.ablation.command import ablation_table, study_ablation
from pacefno.studies.study.ablation.measure import ablation_file, measure
from pacefno.studies.study.ablation.rows import (
    PAPER,
    kinematic_only,
    rows_for,
    spatial_only,
    with_analytic_frame,
    without_frame,
    without_terminal,
)
from pacefno.studies.study.sources import Scope
from pacefno.training.ablated import PartialFrame, RegressionFrame
from pacefno.training.models import ABLATIONS, MODELS, build_model
from pacefno.training.presets import config_for

PROBLEM = "burgers1d_smooth"
INFERENCE = ["one-shot", "no-canonicalisation", "spatial-only", "kinematic-only", "no-terminal", "frame-analytic"]


class Solver(nn.Module):
    """The exact solution operator as a network: whatever error is left belongs to the frame."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem
        self.unused = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, field: Tensor) -> Tensor:
        return self.problem.solve(field)[1]


class Pinned(nn.Module):
    """The exact operator in the canonical frame only: a field that is moved or boosted gets the answer of another one."""

    def __init__(self, answers: tuple[Tensor, Tensor]) -> None:
        super().__init__()
        self.inputs, self.targets = answers
        self.unused = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, field: Tensor) -> Tensor:
        near = torch.cdist(field.flatten(1), self.inputs.flatten(1)).argmin(dim=1)
        off = (field - self.inputs[near]).flatten(1).norm(dim=1).reshape(-1, 1, 1)
        return self.targets[near] + off


@pytest.fixture(scope="module")
def pairs() -> Samples:
    """Exact pairs, moved and boosted."""
    problem = problem_named(PROBLEM)
    states = torch.stack([problem.initial_state(1, "test", i)[0] for i in range(3)])[..., ::16]
    inputs, targets = problem.solve(problem.to_slice(states))  # a thinned field has another first mode
    inputs = problem.to_slice(inputs)
    xi = problem.group.sample(problem.ood_low, problem.ood_high, 3, torch.Generator().manual_seed(0))
    terminal = problem.group.transport(xi, problem.horizon)
    return Samples(problem.group.act(inputs, xi), problem.group.act(targets, terminal), xi)


def errors_of(model: PACE, samples: Samples) -> Tensor:
    with torch.no_grad():
        return relative_l2(model(samples.input), samples.target)


def test_without_the_terminal_frame_a_perfect_operator_fails_on_boosted_data(pairs: Samples) -> None:
    problem = problem_named(PROBLEM)
    whole = PACE(Solver(problem), problem.group, AnalyticFrame(problem.group), problem.horizon).eval()
    assert float(errors_of(whole, pairs).max()) < 1e-6
    assert float(errors_of(without_terminal(whole, problem), pairs).min()) > 1e-2
    assert without_terminal(whole, problem).horizon == 0 and whole.horizon == 1


def test_each_row_removes_its_part_and_leaves_the_rest(pairs: Samples) -> None:
    problem = problem_named(PROBLEM)
    group = problem.group
    whole = PACE(nn.Tanh(), group, AnalyticFrame(group), problem.horizon)
    true = whole.frame_of(pairs.input).xi
    zero = torch.zeros_like(true)
    assert torch.equal(without_frame(whole, problem).frame_of(pairs.input).xi, zero)
    assert torch.equal(spatial_only(whole, problem).frame_of(pairs.input).xi, torch.cat([true[:, :1], zero[:, 1:]], dim=1))
    assert torch.equal(kinematic_only(whole, problem).frame_of(pairs.input).xi, torch.cat([zero[:, :1], true[:, 1:]], dim=1))
    assert torch.equal(with_analytic_frame(whole, problem).frame_of(pairs.input).xi, true)


def test_an_operator_that_knows_the_canonical_frame_only_needs_every_part(pairs: Samples) -> None:
    problem = problem_named(PROBLEM)
    assert pairs.generators is not None
    terminal = problem.group.transport(pairs.generators, problem.horizon)
    answers = problem.group.inverse(pairs.input, pairs.generators), problem.group.inverse(pairs.target, terminal)
    whole = PACE(Pinned(answers), problem.group, AnalyticFrame(problem.group), problem.horizon).eval()
    full = float(errors_of(whole, pairs).max())
    assert full < 1e-5
    for change in (without_frame, spatial_only, kinematic_only, without_terminal):
        assert float(errors_of(change(whole, problem), pairs).min()) > 0.05


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_every_problem_has_rows_with_names_of_their_own(name: str) -> None:
    problem = problem_named(name)
    rows = rows_for(problem)
    names = [row.name for row in rows]
    assert len(set(names)) == len(names) and len({row.title for row in rows}) == len(rows)
    assert all(row.meaning.endswith(".") for row in rows)
    assert ("no-terminal" in names) == (problem.group.size > problem.group.spatial)
    assert set(PAPER.get(name, {})) <= set(names)
    trainings = {row.training for row in rows}
    for row in rows:
        config = row.config(name, "smoke", 1)
        assert (config == config_for(name, row.model, "smoke", 1)) == (not row.loss)
    assert {"pace", "pace-cnn", "pace-regression", "pace-translations"} <= trainings


def test_loss_rows_leave_out_one_term_each() -> None:
    rows = {row.name: row for row in rows_for(problem_named("shallow_water"))}
    paper = rows["loss-paper"].config("shallow_water", "smoke", 1).loss
    assert (paper.h1, paper.equivariance, paper.anchor, paper.invariant) == (1.0, 10.0, 5.0, 0.5)
    for term in ("h1", "equivariance", "anchor", "invariant"):
        loss = rows[f"loss-no-{term}"].config("shallow_water", "smoke", 1).loss
        changed = {name for name, value in loss.model_dump().items() if value != getattr(paper, name)}
        assert changed == {term} and getattr(loss, term) == 0
    alone = rows["loss-l2"].config("shallow_water", "smoke", 1).loss
    assert alone.h1 == alone.equivariance == alone.anchor == alone.invariant == 0


@pytest.mark.parametrize("name", ["burgers1d", "burgers2d", "shallow_water", "navier_stokes"])
def test_ablated_models_are_built_and_give_frames(name: str) -> None:
    problem = problem_named(name)
    grid = [32] * problem.dim
    field = 1 + 0.1 * torch.randn(2, problem.in_channels, *grid, generator=torch.Generator().manual_seed(0))
    for row, spec in ABLATIONS.items():
        model = build_model(problem, spec, config_for(name, row, "smoke", 1).operator, None, 1).eval()
        xi = model.frame_of(field).xi
        assert xi.shape == (2, problem.group.size) and bool(torch.isfinite(xi).all())
        if isinstance(model.frame, PartialFrame):
            assert torch.equal(xi[:, problem.dim :], torch.zeros_like(xi[:, problem.dim :]))
        else:
            assert isinstance(model.frame, RegressionFrame)
            assert torch.allclose(xi[:, problem.group.spatial :], problem.group.kinematic(field))
    assert not ABLATIONS.keys() & MODELS.keys()


# --- the study ------------------------------------------------------------------------------------------------------


@pytest.fixture
def scope(smoke_places: Places, tmp_path: Path) -> Scope:
    return Scope(problem_named(PROBLEM), "smoke", smoke_places.data, smoke_places.runs, tmp_path)


def test_an_interrupted_ablation_goes_on_to_the_same_table(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for row in rows_for(scope.problem) if row.name in INFERENCE]
    calls: list[str] = []

    def stopping(scope: Any, row: Any, *rest: Any) -> Any:
        calls.append(row.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure(scope, row, *rest)

    monkeypatch.setattr(command, "measure", stopping)
    with pytest.raises(KeyboardInterrupt):
        study_ablation(scope, rows, [42])
    cells = study_ablation(scope, rows, [42]).read()
    assert len(cells) == len(rows) and len(calls) == len(rows) + 1
    errors = {cell["row"]: cell["ood_error_canonical"] for cell in cells}
    assert errors["no-terminal"] > errors["one-shot"] and errors["spatial-only"] > 2 * errors["one-shot"]
    assert errors["frame-analytic"] == pytest.approx(errors["one-shot"], rel=0.01)
    assert errors["no-canonicalisation"] > 2 * errors["one-shot"]
    study_ablation(scope, rows, [42])
    assert len(calls) == len(rows) + 1  # done is done
    assert ablation_table(scope, cells).row_count == len(rows)
    figure = draw_ablation(scope.problem, cells).figure
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()][-1] == "PACE, one-shot"


def test_rows_of_one_training_share_it_and_another_loss_has_its_own(scope: Scope, tmp_path: Path) -> None:
    own = Scope(scope.problem, "smoke", scope.data, tmp_path / "runs", tmp_path)
    rows = [row for row in rows_for(own.problem) if row.name in ("one-shot", "no-terminal", "loss-l2")]
    study_ablation(own, rows, [42])
    assert sorted(path.name for path in (own.runs / PROBLEM).iterdir()) == ["pace-loss-l2-smoke-seed42", "pace-smoke-seed42"]
    config = json.loads((own.runs / PROBLEM / "pace-loss-l2-smoke-seed42" / "config.json").read_text())
    assert config["loss"]["equivariance"] == 0 and config["model"] == "pace"
    assert {cell["row"] for cell in ablation_file(own).read()} == {"one-shot", "no-terminal", "loss-l2"}


def test_a_row_is_scored_by_the_code_of_the_tables(scope: Scope, smoke_places: Places) -> None:
    row = next(row for row in rows_for(scope.problem) if row.name == "one-shot")
    dataset = open_dataset(smoke_places.data / PROBLEM / "smoke-seed42")
    cell = measuring.measure(scope, row, 42, smoke_places.runs / PROBLEM / "pace-smoke-seed42", dataset)
    table = json.loads((smoke_places.results / f"{PROBLEM}.json").read_text())["rows"]
    [pace] = [one for one in table if one["model"] == "pace"]
    for key in ("id_error", "id_error_fine", "ood_error", "ood_error_canonical", "parameters"):
        assert cell[key] == pytest.approx(pace[key])


def test_the_command_lists_its_rows_and_refuses_others() -> None:
    result = CliRunner().invoke(app, ["study", "ablation", PROBLEM, "--list", "--rows", "no-terminal"])
    assert result.exit_code == 0 and "Gamma_B = identity" in " ".join(result.output.split())
    result = CliRunner().invoke(app, ["study", "ablation", PROBLEM, "--rows", "no-brain"])
    assert result.exit_code == 2 and "unknown 'no-brain'" in result.output
