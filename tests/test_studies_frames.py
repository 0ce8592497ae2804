"""Frames over the whole group as a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pacefno.cli import app
from pacefno.equations import problem_named
from pacefno.studies.bench import Places
from pacefno.studies.study.frames import command
from pacefno.studies.study.frames.command import frames_table, study_frames
from pacefno.studies.study.sources import Scope, find_sources

PROBLEM = "burgers1d_smooth"


@pytest.fixture
def scope(smoke_places: Places, tmp_path: Path) -> Scope:
    return Scope(problem_named(PROBLEM), "smoke", smoke_places.data, smoke_places.runs, tmp_path)


def cell_of(scope: Scope, row: str) -> dict[str, Any]:
    study_frames(scope, find_sources(scope, [row], [42]), 60)
    file = study_frames(scope, find_sources(scope, [row], [42]), 60)
    return next(cell for cell in file.read() if cell["model"] == row)


def test_an_exact_frame_never_goes_astray_and_a_learned_one_does_outside_its_range(scope: Scope) -> None:
    exact, learned = cell_of(scope, "pace"), cell_of(scope, "pace-cnn")
    assert exact["one_shot"]["astray"] == 0
    assert exact["one_shot"]["field_error"][-1] < 0.02  # the residual that seconds of training leave, whatever the element
    assert learned["one_shot"]["astray"] > 0.1  # trained on small shifts for seconds, asked for all of them
    assert len(exact["off"]["one_shot"]) == 60


def test_what_was_measured_is_not_measured_again(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cell_of(scope, "pace")

    def never(*arguments: Any) -> Any:
        raise AssertionError("measured twice")

    monkeypatch.setattr(command, "measure", never)
    assert cell_of(scope, "pace") == first


def test_the_command_prints_one_line_before_and_one_after_refinement(smoke_places: Places, tmp_path: Path) -> None:
    places = ["--data", str(smoke_places.data), "--runs", str(smoke_places.runs), "--results", str(tmp_path)]
    options = ["--preset", "smoke", "--models", "pace", "--seeds", "42", "--elements", "20", "--figures", str(tmp_path)]
    result = CliRunner().invoke(app, ["study", "frames", PROBLEM, *options, *places])
    assert result.exit_code == 0, result.output
    assert "one-shot" in result.output and "refined" in result.output
    assert (tmp_path / f"{PROBLEM}-frames.png").stat().st_size > 5000


def test_the_table_has_every_coordinate_of_the_group(scope: Scope) -> None:
    table = frames_table([cell_of(scope, "pace")])
    titles = [str(column.header) for column in table.columns]
    assert all(name in titles for name in problem_named(PROBLEM).group.coordinates)
    assert table.row_count == 2
