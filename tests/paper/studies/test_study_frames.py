"""Frames over the whole group: how often one lands in a wrong basin."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pacefno.paper.bench import Places
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.studies import frames
from pacefno.paper.studies.base import run_study
from pacefno.paper.style import save

BENCHMARK = "burgers1d_smooth"


@pytest.fixture
def places(smoke_places: Places, tmp_path: Path) -> Places:
    return replace(smoke_places, results=tmp_path)


def run(places: Places, row: str) -> Any:
    how: dict[str, Any] = {"benchmark": BENCHMARK, "preset": "smoke", "elements": 60}
    return run_study("frames", places, print, models=[row], seeds=[42], **how)


def cell_of(places: Places, row: str) -> dict[str, Any]:
    cells = json.loads(run(places, row).path.read_text())["cells"]
    found: dict[str, Any] = next(cell for cell in cells if cell["model"] == row)
    return found


def test_an_exact_frame_is_right_everywhere_and_a_learned_one_within_its_range(
    places: Places,
) -> None:
    exact, learned = cell_of(places, "pace"), cell_of(places, "pace-cnn")
    assert exact["one_shot"]["astray"] == 0
    # The residual that seconds of training leave, whatever the element.
    assert exact["one_shot"]["field_error"][-1] < 0.02
    assert learned["one_shot"]["astray"] > 0.1  # trained on small shifts, asked for all of them
    assert len(exact["off"]["one_shot"]) == 60


def test_what_was_measured_is_not_measured_again(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cell_of(places, "pace")

    def never(*arguments: Any) -> Any:
        raise AssertionError("measured twice")

    monkeypatch.setattr(frames, "measure", never)
    assert cell_of(places, "pace") == first


def test_the_table_has_every_coordinate_and_the_figure_a_file(
    places: Places, tmp_path: Path
) -> None:
    outcome = run(places, "pace")
    [table] = outcome.tables
    assert all(name in table.columns for name in benchmark_named(BENCHMARK).task.group.coordinates)
    assert [row[2] for row in table.rows] == ["one-shot", "refined"]
    assert outcome.path.name == f"frames-{BENCHMARK}.json"
    [drawing] = outcome.drawings
    save(drawing, tmp_path)
    assert (tmp_path / f"{BENCHMARK}-frames.png").stat().st_size > 5000
