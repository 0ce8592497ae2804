"""Test-time adaptation as a study: a resumed one is the whole one, more steps never cost energy."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pacefno.errors import UsageError
from pacefno.frames import AdamRefiner
from pacefno.metrics import relative_l2
from pacefno.paper.bench import Places, load_row, prepare_data, score_row
from pacefno.paper.benchmarks import benchmark_named, field_benchmarks
from pacefno.paper.studies import tta
from pacefno.paper.studies.base import make_scope, run_study
from pacefno.paper.studies.tta import Setting, errors_table, gain, measure, papers, settings_for
from pacefno.train.evaluate import load_pairs, load_run

BENCHMARK = "burgers1d_smooth"
FEW = [
    Setting("none"),
    Setting("gauss-newton", 1),
    Setting("gauss-newton", 3),
    Setting("adam", 2, 0.05),
    Setting("adam", 6, 0.05),
]


@pytest.fixture
def places(smoke_places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setattr(tta, "settings_for", lambda benchmark: FEW)
    return replace(smoke_places, results=tmp_path)


def run(places: Places, *rows: str, seeds: tuple[int, ...] = (42,), say: Any = print) -> Any:
    how: dict[str, Any] = {"benchmark": BENCHMARK, "preset": "smoke", "samples": 8}
    return run_study("tta", places, say, models=rows, seeds=seeds, **how)


def cells_of(places: Places, *rows: str) -> list[dict[str, Any]]:
    """The finished study without the clock."""
    cells = json.loads(run(places, *rows).path.read_text())["cells"]
    return [{name: value for name, value in cell.items() if name != "seconds"} for cell in cells]


def by_setting(cells: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(cell["refiner"], cell["steps"]): cell for cell in cells}


def test_a_resumed_study_is_the_uninterrupted_one(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Setting] = []

    def stopping(row: Any, samples: int, setting: Setting) -> Any:
        calls.append(setting)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure(row, samples, setting)

    monkeypatch.setattr(tta, "measure", stopping)
    with pytest.raises(KeyboardInterrupt):
        cells_of(places, "pace-cnn")
    resumed = cells_of(places, "pace-cnn")
    assert len(calls) == len(FEW) + 1  # two before, the interrupted one twice, and the rest
    whole = cells_of(replace(places, results=tmp_path / "other"), "pace-cnn")
    assert resumed == whole and len(whole) == len(FEW)
    cells_of(places, "pace-cnn")
    assert len(calls) == 2 * len(FEW) + 1  # done is done


def test_cells_of_other_weights_or_other_samples_are_made_anew(places: Places) -> None:
    cells_of(places, "pace-cnn")
    path = places.results / "studies" / f"tta-{BENCHMARK}.json"
    document = json.loads(path.read_text())
    document["cells"][0]["weights"] = "0" * 16
    document["cells"][1]["samples"] = 3
    for cell in document["cells"][:2]:
        cell["ood_error"] = 123.0
    path.write_text(json.dumps(document))
    assert all(cell["ood_error"] < 10 for cell in cells_of(places, "pace-cnn"))


def test_more_steps_never_cost_energy(places: Places) -> None:
    cells = by_setting(cells_of(places, "pace-cnn"))
    one, three = cells["gauss-newton", 1], cells["gauss-newton", 3]
    assert three["energy_after"] <= one["energy_after"] <= one["energy_before"]
    two, six = cells["adam", 2], cells["adam", 6]
    assert six["energy_after"] <= two["energy_after"] <= two["energy_before"]
    assert three["energy_after"] < 0.5 * one["energy_before"] and three["evaluations"] <= 1 + 3 * 2
    assert six["evaluations"] == 7
    assert cells["none", 0]["energy_after"] is None and cells["none", 0]["evaluations"] == 0


def test_a_frame_that_is_exact_is_left_alone(places: Places) -> None:
    cells = by_setting(cells_of(places, "pace"))
    newton, one_shot = cells["gauss-newton", 3], cells["none", 0]
    assert newton["evaluations"] == 1 and newton["ood_error"] == one_shot["ood_error"]
    assert newton["astray"] == 0 and newton["frame_error"] < 0.05


@pytest.mark.parametrize("name", [benchmark.name for benchmark in field_benchmarks()])
def test_the_papers_setting_is_among_those_that_are_tried(name: str) -> None:
    settings = settings_for(benchmark_named(name))
    assert papers(benchmark_named(name)) in settings
    assert len(set(settings)) == len(settings) and settings[0] == Setting("none")


@pytest.mark.parametrize(
    ("name", "steps", "rate", "decay"),
    [
        ("burgers1d", 20, 0.05, 0.0),
        ("burgers2d", 50, 0.01, 0.0),
        ("shallow_water", 80, 0.05, 1e-4),
        ("navier_stokes", 5, 0.05, 0.0),
        ("navier_stokes_literal", 5, 0.05, 0.0),
    ],
)
def test_the_papers_row_is_refined_as_the_paper_says(
    name: str, steps: int, rate: float, decay: float
) -> None:
    benchmark = benchmark_named(name)
    row = benchmark.rows["pace-cnn-tta"]
    assert row.trained_as == "pace-cnn" and row.frame == benchmark.rows["pace-cnn"].frame
    assert benchmark.way(row.inference) == AdamRefiner(steps, rate, decay)


def test_the_papers_row_is_the_papers_estimator_refined_by_adam(places: Places) -> None:
    benchmark = benchmark_named(BENCHMARK)
    run_of_cnn = places.runs / BENCHMARK / "pace-cnn-smoke-seed42"
    source = prepare_data(benchmark, "smoke", places.data)
    one_shot, refined = (
        score_row(run_of_cnn, benchmark, name, source) for name in ("pace-cnn", "pace-cnn-tta")
    )
    cell = by_setting(cells_of(places, "pace-cnn"))
    model, pairs = load_run(run_of_cnn).model, load_pairs(source, "test_ood", "ood")
    xi = model.refine(pairs.input, AdamRefiner(20, 0.05)).xi
    with torch.no_grad():
        error = relative_l2(model.at(pairs.input, xi), pairs.target).mean()
    assert refined["ood_error"] == pytest.approx(float(error), rel=1e-4)
    assert one_shot["ood_error"] == pytest.approx(cell["none", 0]["ood_error"], rel=1e-4)
    assert refined["ood_error"] != one_shot["ood_error"]


def test_the_sentence_says_whether_adaptation_raised_the_error() -> None:
    benchmark = benchmark_named("navier_stokes")
    none = asdict(Setting("none")) | {"seed": 1, "ood_error_canonical": 0.10}
    adam = asdict(papers(benchmark)) | {"seed": 1, "ood_error_canonical": 0.11}
    said = gain(benchmark, "pace-cnn", [none, adam])
    assert "raises" in said and "10 %" in said and "5 steps at 0.05" in said
    assert "lowers" in gain(benchmark, "pace-cnn", [none, adam | {"ood_error_canonical": 0.09}])
    assert "not both measured" in gain(benchmark, "pace-cnn", [none])


def test_the_figure_and_the_table_have_every_setting(places: Places) -> None:
    outcome = run(places, "pace", "pace-cnn")
    assert [len(table.rows) for table in outcome.tables] == [len(FEW), len(FEW)]
    cells = json.loads(outcome.path.read_text())["cells"]
    more = [
        {**cell, "seed": 7, "ood_error_canonical": 1.1 * cell["ood_error_canonical"]}
        for cell in cells
    ]
    own = [cell for cell in [*cells, *more] if cell["model"] == "pace-cnn"]
    table = errors_table("pace-cnn", own)
    assert len(table.rows) == len(FEW) and {row[-1] for row in table.rows} == {"2"}
    assert table.rows[0][0] == "one-shot" and all("±" in row[2] for row in table.rows)
    [drawing] = tta.draw(benchmark_named(BENCHMARK), [*cells, *more])
    assert len(drawing.figure.axes) == 6 and torch.is_grad_enabled()


def test_missing_trainings_are_named_with_the_command_that_makes_them(places: Places) -> None:
    heard: list[str] = []
    scope = make_scope(BENCHMARK, "smoke", places, heard.append)
    found = scope.trained_rows(["pace", "pace-free"], [42, 7], tta.MODELS)
    assert [(row.name, row.seed) for row in found] == [("pace", 42)]
    assert "pace-free seed 42" in heard[0] and "pacefno bench" in heard[0]
    with pytest.raises(UsageError, match=r"no finished training.*pacefno bench"):
        run(places, seeds=(7,))
    with pytest.raises(UsageError, match="unknown row 'fno'"):
        run(places, "fno")


def test_a_refined_row_keeps_the_trained_weights_of_its_frame(places: Places) -> None:
    run_of_pace = places.runs / BENCHMARK / "pace-smoke-seed42"
    trained = load_run(run_of_pace).model.state_dict()
    refined = load_row(run_of_pace, benchmark_named(BENCHMARK), "pace-tta").model.state_dict()
    assert any(name.startswith("frame.") for name in trained)
    assert trained.keys() == refined.keys()
    assert all(torch.equal(trained[name], refined[name]) for name in trained)
