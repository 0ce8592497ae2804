"""Ablations: each row takes out what it says, no more; trainings are shared, stops cost little."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pacefno.data.recipe import PairRecipe
from pacefno.data.samples import Pairs
from pacefno.errors import UsageError
from pacefno.fields import Field
from pacefno.frames import AdamRefiner, CNNFrame, PartialFrame
from pacefno.metrics import relative_l2
from pacefno.pace import PACE
from pacefno.paper.bench import Places
from pacefno.paper.benchmarks import benchmark_named, field_benchmarks
from pacefno.paper.presets import config_for
from pacefno.paper.rows import FIELD_ROWS
from pacefno.paper.studies import ablation
from pacefno.paper.studies.ablation import (
    PAPER,
    PAPERS,
    errors_table,
    kinematic_only,
    measure,
    rows_for,
    spatial_only,
    with_analytic_frame,
    without_frame,
    without_terminal,
)
from pacefno.paper.studies.base import make_scope, run_study
from pacefno.train.model import build_model

BENCHMARK = benchmark_named("burgers1d_smooth")
TASK = BENCHMARK.task
INFERENCE = [
    "one-shot",
    "no-canonicalisation",
    "spatial-only",
    "kinematic-only",
    "no-terminal",
    "frame-analytic",
]


class Solver(nn.Module):
    """The exact solution operator as a network: whatever error is left belongs to the frame."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, field: Tensor) -> Tensor:
        assert isinstance(BENCHMARK.recipe, PairRecipe)
        return BENCHMARK.recipe.solve(field)[1]


class Pinned(nn.Module):
    """The exact operator in the canonical frame only: a moved field gets the answer of another."""

    def __init__(self, answers: tuple[Tensor, Tensor]) -> None:
        super().__init__()
        self.inputs, self.targets = answers
        self.unused = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, field: Tensor) -> Tensor:
        near = torch.cdist(field.flatten(1), self.inputs.flatten(1)).argmin(dim=1)
        off = (field - self.inputs[near]).flatten(1).norm(dim=1).reshape(-1, 1, 1)
        return self.targets[near] + off


def wrapped(operator: nn.Module) -> PACE:
    model = PACE(
        operator, TASK.group, input=TASK.input, output=TASK.output, frame=TASK.slice.frame()
    )
    return model.eval()


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    """Exact pairs, moved and boosted."""
    recipe = BENCHMARK.recipe
    assert isinstance(recipe, PairRecipe)
    states = torch.stack([recipe.initial_state(1, "test", i)[0] for i in range(3)])[..., ::16]
    on_slice = recipe.to_slice(Field(states, TASK.input))  # a thinned field has another first mode
    inputs, targets = recipe.solve(on_slice.values)
    inputs = recipe.to_slice(Field(inputs, TASK.input)).values
    xi = TASK.group.sample(*BENCHMARK.ood, 3, torch.Generator().manual_seed(0))
    moved = TASK.group.act(Field(inputs, TASK.input), xi).values
    return Pairs(moved, TASK.group.act(Field(targets, TASK.output), xi).values, xi)


def errors_of(model: PACE, pairs: Pairs) -> Tensor:
    with torch.no_grad():
        return relative_l2(model(pairs.input), pairs.target)


def test_without_the_terminal_frame_a_perfect_operator_fails_on_boosted_data(pairs: Pairs) -> None:
    whole = wrapped(Solver())
    assert float(errors_of(whole, pairs).max()) < 1e-6
    assert float(errors_of(without_terminal(whole, TASK), pairs).min()) > 1e-2
    assert without_terminal(whole, TASK).output.times == (0.0,) and whole.output.times == (1.0,)


def test_each_row_removes_its_part_and_leaves_the_rest(pairs: Pairs) -> None:
    whole = wrapped(nn.Tanh())
    true = whole.frame_of(pairs.input).xi
    zero = torch.zeros_like(true)

    def frame(model: PACE) -> Tensor:
        return model.frame_of(pairs.input).xi

    assert torch.equal(frame(without_frame(whole, TASK)), zero)
    shifts = torch.cat([true[:, :1], zero[:, 1:]], dim=1)
    assert torch.equal(frame(spatial_only(whole, TASK)), shifts)
    velocities = torch.cat([zero[:, :1], true[:, 1:]], dim=1)
    assert torch.equal(frame(kinematic_only(whole, TASK)), velocities)
    assert torch.equal(frame(with_analytic_frame(whole, TASK)), true)


def test_an_operator_that_knows_the_canonical_frame_only_needs_every_part(pairs: Pairs) -> None:
    a_c = TASK.group.inverse(Field(pairs.input, TASK.input), pairs.elements).values
    u_c = TASK.group.inverse(Field(pairs.target, TASK.output), pairs.elements).values
    whole = wrapped(Pinned((a_c, u_c)))
    assert float(errors_of(whole, pairs).max()) < 1e-5
    for change in (without_frame, spatial_only, kinematic_only, without_terminal):
        assert float(errors_of(change(whole, TASK), pairs).min()) > 0.05


@pytest.mark.parametrize("name", [benchmark.name for benchmark in field_benchmarks()])
def test_every_benchmark_has_rows_with_names_of_their_own(name: str) -> None:
    benchmark = benchmark_named(name)
    rows = rows_for(benchmark)
    names = [row.name for row in rows]
    assert len(set(names)) == len(names) and len({row.title for row in rows}) == len(rows)
    group = benchmark.task.group
    assert ("no-terminal" in names) == (group.size > group.spatial)
    assert set(PAPER.get(name, {})) <= set(names)
    for row in rows:
        config = row.config(benchmark, "smoke", 1)
        assert (config == config_for(benchmark, row.model, "smoke", 1)) == (not row.loss)
    trainings = {row.training for row in rows}
    own = {"pace-regression", "pace-translations", "pace-cnn-translations"}
    assert {"pace", "pace-cnn"} | own <= trainings
    assert [row.name for row in rows[:5]] == [row.name for row in PAPERS]


def test_loss_rows_leave_out_one_term_each() -> None:
    benchmark = benchmark_named("shallow_water")
    rows = {row.name: row for row in rows_for(benchmark)}
    paper = rows["loss-paper"].config(benchmark, "smoke", 1).loss
    assert (paper.h1, paper.equivariance, paper.anchor, paper.invariant) == (1.0, 10.0, 5.0, 0.5)
    for term in ("h1", "equivariance", "anchor", "invariant"):
        loss = rows[f"loss-no-{term}"].config(benchmark, "smoke", 1).loss
        values = loss.model_dump().items()
        changed = {name for name, value in values if value != getattr(paper, name)}
        assert changed == {term} and getattr(loss, term) == 0
    alone = rows["loss-l2"].config(benchmark, "smoke", 1).loss
    assert alone.h1 == alone.equivariance == alone.anchor == alone.invariant == 0


@pytest.mark.parametrize("name", ["burgers1d", "burgers2d", "shallow_water", "navier_stokes"])
def test_models_of_ablations_are_built_and_give_frames(name: str) -> None:
    benchmark = benchmark_named(name)
    task = benchmark.task
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2, task.input.size, *[32] * task.dim, generator=generator)
    field = 1 + 0.1 * noise
    rows = [row for row, spec in FIELD_ROWS.items() if not spec.listed]
    assert set(rows) == {"pace-regression", "pace-translations", "pace-cnn-translations"}
    for row in rows:
        model = build_model(config_for(benchmark, row, "smoke", 1)).eval()
        xi = model.frame_of(field).xi
        assert xi.shape == (2, task.group.size) and bool(torch.isfinite(xi).all())
        if isinstance(model.frame, PartialFrame):
            assert torch.equal(xi[:, task.dim :], torch.zeros_like(xi[:, task.dim :]))
            refined = model.refine(field, AdamRefiner(steps=2)).xi
            assert torch.equal(refined[:, task.dim :], xi[:, task.dim :])  # stays left out
        else:
            assert isinstance(model.frame, CNNFrame) and not model.frame.retracted
            velocity = task.group.kinematic(Field(field, task.input))
            assert torch.allclose(xi[:, task.group.spatial :], velocity)


# --- the study ------------------------------------------------------------------------------------


@pytest.fixture
def places(smoke_places: Places, tmp_path: Path) -> Places:
    return replace(smoke_places, results=tmp_path)


def run(places: Places, rows: list[str]) -> Any:
    how: dict[str, Any] = {"benchmark": BENCHMARK.name, "rows": rows, "seeds": [42]}
    return run_study("ablation", places, print, preset="smoke", **how)


def test_an_interrupted_ablation_goes_on_to_the_same_table(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def stopping(scope: Any, row: Any, *rest: Any) -> Any:
        calls.append(row.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure(scope, row, *rest)

    monkeypatch.setattr(ablation, "measure", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(places, INFERENCE)
    outcome = run(places, INFERENCE)
    cells = json.loads(outcome.path.read_text())["cells"]
    assert len(cells) == len(INFERENCE) and len(calls) == len(INFERENCE) + 1
    errors = {cell["row"]: cell["ood_error_canonical"] for cell in cells}
    assert errors["no-terminal"] > errors["one-shot"]
    assert errors["spatial-only"] > 2 * errors["one-shot"]
    assert errors["frame-analytic"] == pytest.approx(errors["one-shot"], rel=0.01)
    assert errors["no-canonicalisation"] > 2 * errors["one-shot"]
    run(places, INFERENCE)
    assert len(calls) == len(INFERENCE) + 1  # done is done
    assert len(outcome.tables[0].rows) == len(INFERENCE)
    [drawing] = outcome.drawings
    labels = [text.get_text() for text in drawing.figure.axes[0].get_yticklabels()]
    assert labels[-1] == "PACE, one-shot"


def test_rows_of_one_training_share_it_and_another_loss_has_its_own(
    places: Places, tmp_path: Path
) -> None:
    own = replace(places, runs=tmp_path / "runs")
    outcome = run(own, ["one-shot", "no-terminal", "loss-l2"])
    runs = tmp_path / "runs" / BENCHMARK.name
    names = ["pace-loss-l2-smoke-seed42", "pace-smoke-seed42"]
    assert sorted(path.name for path in runs.iterdir()) == names
    config = json.loads((runs / names[0] / "config.json").read_text())
    assert config["loss"]["equivariance"] == 0 and config["labels"]["model"] == "pace"
    cells = json.loads(outcome.path.read_text())["cells"]
    assert {cell["row"] for cell in cells} == {"one-shot", "no-terminal", "loss-l2"}


def test_the_table_has_the_papers_numbers_and_times_and_ignores_rows_that_are_gone() -> None:
    measured = {"ood_error": 0.02, "id_error": 0.03, "ood_error_canonical": 0.03}
    measured |= {"epoch_seconds": 1.5, "ood_seconds": 2.0, "weights": "", "preset": "standard"}
    names = ("gone", "one-shot", "paper-full")
    cells = [measured | {"row": name, "seed": seed} for name in names for seed in (42, 1234)]
    table = errors_table(benchmark_named("burgers1d"), cells)
    first = dict(zip(table.columns, table.rows[0], strict=True))
    assert [row[0] for row in table.rows] == ["the paper's: PACE + TTA", "PACE, one-shot"]
    assert first["paper OOD"] == "0.026" and first["paper s/epoch"] == "0.4864"
    assert first["s/epoch"] == "1.5" and first["paper OOD pass, s"] == "5.959"
    assert first["seeds"] == "2" and table.rows[1][table.columns.index("paper OOD")] == ""


def test_a_row_is_scored_by_the_code_of_the_tables(places: Places, smoke_places: Places) -> None:
    row = next(row for row in rows_for(BENCHMARK) if row.name == "one-shot")
    scope = make_scope(BENCHMARK.name, "smoke", places, print)
    cell = measure(scope, row, scope.run_folder("pace", 42))
    table = json.loads((smoke_places.results / f"{BENCHMARK.name}.json").read_text())["rows"]
    [pace] = [one for one in table if one["model"] == "pace"]
    for key in ("id_error", "id_error_fine", "ood_error", "ood_error_canonical", "parameters"):
        assert cell[key] == pytest.approx(pace[key])


def test_rows_are_listed_with_their_meaning_and_others_are_refused(places: Places) -> None:
    how: dict[str, Any] = {"rows": ["no-terminal"], "define": True}
    outcome = run_study("ablation", places, print, benchmark=BENCHMARK.name, **how)
    [table] = outcome.tables
    assert outcome.path is None and outcome.drawings == []
    assert len(table.rows) == 1 and "Gamma_B = identity" in table.rows[0][-1]
    with pytest.raises(UsageError, match="unknown row 'no-brain'"):
        run(places, ["no-brain"])
    with pytest.raises(UsageError, match="unknown benchmark of a study 'kdv'"):
        run_study("ablation", places, print, benchmark="kdv", define=True)
