"""Test-time adaptation as a study: resumed is uninterrupted, more steps never cost energy, nothing is done twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from pacefno.cli import app
from pacefno.equations import PROBLEMS, problem_named
from pacefno.studies.bench import Places
from pacefno.studies.cells import StudyFile
from pacefno.studies.report.figures.tta import draw_tta
from pacefno.studies.results import ResultsError
from pacefno.studies.study.sources import Scope, find_sources
from pacefno.studies.study.tta import command
from pacefno.studies.study.tta.command import study_tta, tta_table
from pacefno.studies.study.tta.measure import measure
from pacefno.studies.study.tta.settings import PAPER, Setting, settings_for

PROBLEM = "burgers1d_smooth"
FEW = [
    Setting("none"),
    Setting("gauss-newton", 1),
    Setting("gauss-newton", 3),
    Setting("adam", 2, 0.05),
    Setting("adam", 6, 0.05),
]


@pytest.fixture
def scope(smoke_places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scope:
    monkeypatch.setattr(command, "settings_for", lambda problem: FEW)
    return Scope(problem_named(PROBLEM), "smoke", smoke_places.data, smoke_places.runs, tmp_path)


def cells_of(scope: Scope, *rows: str) -> list[dict[str, Any]]:
    """The finished study without the clock."""
    file = study_tta(scope, find_sources(scope, rows, [42]), 8)
    return [{name: value for name, value in cell.items() if name != "seconds"} for cell in file.read()]


def test_a_resumed_study_is_the_uninterrupted_one(scope: Scope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Setting] = []

    def stopping(model: Any, problem: Any, samples: Any, setting: Setting) -> Any:
        calls.append(setting)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure(model, problem, samples, setting)

    monkeypatch.setattr(command, "measure", stopping)
    with pytest.raises(KeyboardInterrupt):
        cells_of(scope, "pace-cnn")
    resumed = cells_of(scope, "pace-cnn")
    assert len(calls) == len(FEW) + 1  # two before, the interrupted one twice, and the rest
    whole = cells_of(replace(scope, results=tmp_path / "other"), "pace-cnn")
    assert resumed == whole and len(whole) == len(FEW)
    cells_of(scope, "pace-cnn")
    assert len(calls) == 2 * len(FEW) + 1  # done is done


def test_cells_of_other_weights_or_other_samples_are_made_anew(scope: Scope) -> None:
    cells_of(scope, "pace-cnn")
    path = scope.folder / f"tta-{PROBLEM}.json"
    good = path.read_text()
    document = json.loads(good)
    document["cells"][0]["weights"] = "0" * 16
    document["cells"][1]["samples"] = 3
    for cell in document["cells"][:2]:
        cell["ood_error"] = 123.0
    path.write_text(json.dumps(document))
    assert all(cell["ood_error"] < 10 for cell in cells_of(scope, "pace-cnn"))


def test_a_damaged_study_file_is_named(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"cells": [{"seed": 1}]}'):
        (tmp_path / "s-p.json").write_text(text)
        with pytest.raises(ResultsError, match=r"s-p\.json"):
            StudyFile(tmp_path, "s", "p", ("seed", "model")).read()


def test_more_steps_never_cost_energy(scope: Scope) -> None:
    cells = {(cell["refiner"], cell["steps"]): cell for cell in cells_of(scope, "pace-cnn")}
    one, three = cells["gauss-newton", 1], cells["gauss-newton", 3]
    assert three["energy_after"] <= one["energy_after"] <= one["energy_before"]
    assert cells["adam", 6]["energy_after"] <= cells["adam", 2]["energy_after"] <= cells["adam", 2]["energy_before"]
    assert three["energy_after"] < 0.5 * one["energy_before"] and three["evaluations"] <= 1 + 3 * 2
    assert cells["adam", 6]["evaluations"] == 7
    assert cells["none", 0]["energy_after"] is None and cells["none", 0]["evaluations"] == 0


def test_a_frame_that_is_exact_is_left_alone(scope: Scope) -> None:
    cells = {(cell["refiner"], cell["steps"]): cell for cell in cells_of(scope, "pace")}
    newton, one_shot = cells["gauss-newton", 3], cells["none", 0]
    assert newton["evaluations"] == 1 and newton["ood_error"] == one_shot["ood_error"]
    assert newton["astray"] == 0 and newton["frame_error"] < 0.05


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_the_papers_setting_is_among_those_that_are_tried(name: str) -> None:
    settings = settings_for(name)
    assert name not in PAPER or PAPER[name] in settings
    assert len(set(settings)) == len(settings) and settings[0] == Setting("none")


def test_the_figure_and_the_table_have_every_setting(scope: Scope) -> None:
    study_tta(scope, find_sources(scope, ["pace", "pace-cnn"], [42]), 8)
    cells = StudyFile(scope.folder, "tta", PROBLEM, ()).read()
    more = [{**cell, "seed": 7, "ood_error_canonical": 1.1 * cell["ood_error_canonical"]} for cell in cells]
    assert tta_table("pace-cnn", [*cells, *more]).row_count == len(FEW)
    figure = draw_tta(problem_named(PROBLEM), [*cells, *more]).figure
    assert len(figure.axes) == 6


def test_missing_trainings_are_named_with_the_command_that_makes_them(scope: Scope, smoke_places: Places) -> None:
    heard: list[str] = []
    found = find_sources(scope, ["pace", "pace-free"], [42, 7], heard.append)
    assert [(source.row, source.seed) for source in found] == [("pace", 42)]
    assert "pace-free seed 42" in heard[0] and "pacefno bench" in heard[0]
    words = ["study", "tta", PROBLEM, "--preset", "smoke", "--seeds", "7", "--runs", str(smoke_places.runs)]
    result = CliRunner().invoke(app, [*words, "--results", str(scope.results)])
    assert result.exit_code == 2 and "no finished training" in result.output and "pacefno bench" in result.output


def test_the_command_draws_and_prints(scope: Scope, smoke_places: Places, tmp_path: Path) -> None:
    words = ["study", "tta", PROBLEM, "--preset", "smoke", "--models", "pace-cnn", "--seeds", "42", "--samples", "4"]
    places = ["--data", smoke_places.data, "--runs", smoke_places.runs, "--results", tmp_path, "--figures", tmp_path / "f"]
    result = CliRunner().invoke(app, [*words, *map(str, places)])
    assert result.exit_code == 0, result.output
    assert "gauss-newton 3" in result.output
    assert (tmp_path / "f" / f"{PROBLEM}-tta.png").exists() and (tmp_path / "f" / f"{PROBLEM}-tta.pdf").exists()
    assert torch.is_grad_enabled()
