"""Cells of studies: stored once, rounded, never lost; every committed file is read and drawn."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pacefno.paper.bench import Places, ResultsError
from pacefno.paper.benchmarks import benchmark_named, field_benchmarks
from pacefno.paper.studies import STUDIES, study_module
from pacefno.paper.studies.base import (
    Job,
    Table,
    fill,
    read_cells,
    rounded,
    run_study,
    study_drawings,
    study_file,
)
from pacefno.paper.studies.snapshots import draw as draw_snapshots
from pacefno.paper.style import save

RESULTS = Path(__file__).parents[3] / "results"


def test_numbers_are_short_and_cells_replace_each_other(tmp_path: Path) -> None:
    file = study_file(tmp_path, "s", "p", "seed", detail="d")
    file.add([{"seed": 2, "value": 0.12345678901, "inner": {"values": [1 / 3, None]}}])
    file.add([{"seed": 1, "value": 1.0}])
    file.add([{"seed": 2, "value": 7.0}])
    assert [(cell["seed"], cell["value"]) for cell in file.read()] == [(1, 1.0), (2, 7.0)]
    assert file.path.name == "s-p-d.json"
    assert rounded({"a": (0.12345678901, 3)}) == {"a": [0.1234568, 3]}


def test_only_missing_cells_are_measured_and_each_is_stored_before_the_next(tmp_path: Path) -> None:
    file = study_file(tmp_path, "s", "p", "seed")
    calls: list[int] = []

    def measure(number: int) -> dict[str, Any]:
        calls.append(number)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {"value": number / 3}

    jobs: list[Job] = [
        ({"seed": seed, "weights": "w", "rate": 1 / 3}, partial(measure, seed))
        for seed in (3, 1, 2)
    ]
    with pytest.raises(KeyboardInterrupt):
        fill(file, jobs)
    assert [cell["seed"] for cell in file.read()] == [1, 3]
    cells = fill(file, jobs)
    assert len(cells) == 3 and calls == [3, 1, 2, 2] and cells[0]["value"] == 0.3333333
    fill(file, [(identity | {"weights": "other"}, again) for identity, again in jobs[:1]])
    assert calls == [3, 1, 2, 2, 3]


def test_a_damaged_study_file_is_named(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"cells": [{"seed": 1}]}'):
        (tmp_path / "s-p.json").write_text(text)
        with pytest.raises(ResultsError, match=r"s-p\.json"):
            study_file(tmp_path, "s", "p", "seed", "model").read()


def test_a_mean_is_shown_with_its_spread_over_seeds() -> None:
    def texts(*values: float | None) -> Any:
        groups = {"row": [{"e": value} for value in values]}
        return Table.over_seeds("", groups, {"m": "e"}, {"e": "e"}).rows[0][1:]

    assert texts(0.02, 0.04) == ["0.0300 ± 0.0141", "0.03", "2"]
    assert texts(2e-7) == ["2.0e-07", "2e-07", "1"] and texts(None) == ["–", "", "1"]
    assert texts(float("inf"), 1.0)[0] == "inf"


@pytest.mark.parametrize("name", [benchmark.name for benchmark in field_benchmarks()])
def test_every_committed_study_is_drawn(name: str) -> None:
    drawings = study_drawings([RESULTS], benchmark_named(name), "standard")
    drawn = {drawing.name for drawing in drawings}
    wanted = set()
    for path in (RESULTS / "studies").glob("*.json"):
        study, _, rest = path.stem.partition("-")
        benchmark, _, row = rest.partition("-")
        presets = {cell.get("preset") for cell in read_cells(path)}  # of snapshots: none
        if benchmark == name and "standard" in presets:
            kinds = {"theory": f"theory-{row}", "landscape": "landscape"}
            wanted.add(f"{name}-{kinds.get(study, study)}")
    for one in wanted:
        assert any(drawing.startswith(one) for drawing in drawn), one
    assert len(drawn) == len(drawings) == len(wanted)
    assert study_drawings([RESULTS], benchmark_named(name), "smoke") == []


def test_fresh_studies_are_found_by_the_report(smoke_places: Places, tmp_path: Path) -> None:
    places, name = replace(smoke_places, results=tmp_path), "burgers1d_smooth"
    one: dict[str, Any] = {"benchmark": name, "preset": "smoke", "seeds": [42]}
    run_study("ablation", places, print, rows=["one-shot", "no-terminal"], **one)
    run_study("robustness", places, print, models=["pace"], kinds=["noise"], samples=2, **one)
    run = places.runs / name / "pace-smoke-seed42"
    few = {"samples": 2, "growth": 1, "derivatives": 1}
    fresh = run_study("theory", places, print, run=run, **few)
    drawings = study_drawings([tmp_path], benchmark_named(name), "smoke")
    names = [f"{name}-ablation", f"{name}-robustness", f"{name}-theory-pace"]
    assert [drawing.name for drawing in drawings] == names
    assert study_drawings([tmp_path], benchmark_named(name), "quick") == []
    again = save(drawings[-1], tmp_path / "again")
    assert save(fresh.drawings[0], tmp_path / "fresh") == again


def test_every_committed_file_belongs_to_a_study() -> None:
    known = {name for name, study in STUDIES.items() if study.figure}
    for path in (RESULTS / "studies").glob("*.json"):
        assert path.stem.partition("-")[0] in known and read_cells(path)
    cells = read_cells(RESULTS / "studies" / "snapshots-navier_stokes.json")
    [drawing] = draw_snapshots(benchmark_named("navier_stokes"), cells)
    labels = [text.get_text() for text in drawing.figure.axes[0].get_yticklabels()]
    assert len(labels) == 3 and not any("frames" in label for label in labels)


def test_of_two_folders_the_last_one_counts(tmp_path: Path) -> None:
    name = "ablation-burgers2d.json"
    document = json.loads((RESULTS / "studies" / name).read_text())
    document["cells"] = document["cells"][:2]
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / name).write_text(json.dumps(document))
    benchmark = benchmark_named("burgers2d")
    rows = {
        len(study_drawings(folders, benchmark, "standard")[0].figure.axes[0].get_yticklabels())
        for folders in ([RESULTS, tmp_path], [tmp_path])
    }
    assert rows == {2}


def test_the_list_of_studies_needs_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys; from pacefno.paper.studies import STUDIES; "
        "assert not {'torch', 'matplotlib'} & set(sys.modules), 'imported'; print(len(STUDIES))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(STUDIES) == 9


@pytest.mark.parametrize("name", list(STUDIES))
def test_every_study_can_be_run_and_says_what_it_asks(name: str) -> None:
    study, module = STUDIES[name], study_module(name)
    assert callable(module.run) and "?" in study.question and module.__doc__
    wanted = {"benchmark", "preset"} if "run" not in study.settings else set()
    parameters = set(inspect.signature(module.run).parameters)
    assert parameters == {"scope", *study.settings} - wanted


def test_the_axis_of_frame_errors_has_numbers_however_little_it_spans() -> None:
    """Less than a decade on a logarithmic axis has no power of ten to be labelled."""
    drawings = study_drawings([RESULTS], benchmark_named("navier_stokes"), "standard")
    [figure] = [one.figure for one in drawings if one.name == "navier_stokes-tta"]
    axis = figure.axes[2].yaxis
    low, high = sorted(axis.get_view_interval())
    texts = [
        axis.get_minor_formatter()(value)
        for value in axis.get_minorticklocs()
        if low < value < high
    ]
    assert high / low < 10 and len([text for text in texts if text]) >= 2


def test_starts_of_descents_are_not_called_minima() -> None:
    drawings = study_drawings([RESULTS], benchmark_named("burgers2d"), "standard")
    [figure] = [one.figure for one in drawings if "landscape" in one.name]
    handles = {handle.get_label(): handle for handle in figure.legends[0].legend_handles}
    small, large = handles["start, coloured by its minimum"], handles["minimum"]
    assert small.get_markersize() < large.get_markersize() / 2
