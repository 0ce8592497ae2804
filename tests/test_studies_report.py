"""Studies in the report and on the command line: every figure has its file, every command explains itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pacefno.cli import app
from pacefno.equations import problem_named
from pacefno.studies.bench import Places
from pacefno.studies.cells import StudyFile, compact
from pacefno.studies.report.studies import study_drawings

PROBLEM = "burgers1d_smooth"
RUNNER = CliRunner()


def call(*words: object) -> str:
    result = RUNNER.invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize("study", ["ablation", "tta", "landscape", "theory", "lielac", "robustness"])
def test_every_study_explains_itself_with_an_example(study: str) -> None:
    assert f"Example: pacefno study {study}" in call("study", study, "--help")
    assert study in call("study", "--help")


def test_the_report_has_the_figures_of_the_studies(smoke_places: Places, tmp_path: Path) -> None:
    where = ("--data", smoke_places.data, "--results", tmp_path / "results", "--figures", tmp_path / "figures")
    runs = ("--preset", "smoke", "--runs", smoke_places.runs)
    few = ("--samples", 2)
    call("study", "ablation", PROBLEM, *runs, *where, "--seeds", 42, "--rows", "one-shot,no-terminal")
    call("study", "robustness", PROBLEM, *runs, *where, *few, "--seeds", 42, "--models", "pace", "--kinds", "noise")
    call("study", "theory", smoke_places.runs / PROBLEM / "pace-smoke-seed42", *where, *few, "--growth", 1, "--derivatives", 1)
    (tmp_path / "results" / f"{PROBLEM}.json").write_bytes((smoke_places.results / f"{PROBLEM}.json").read_bytes())
    names = [drawing.name for drawing in study_drawings([tmp_path / "results"], problem_named(PROBLEM), "smoke")]
    assert names == [f"{PROBLEM}-ablation", f"{PROBLEM}-robustness", f"{PROBLEM}-theory-pace"]
    assert study_drawings([tmp_path / "results"], problem_named(PROBLEM), "quick") == []
    call("report", tmp_path / "results", "--output", tmp_path / "report", "--runs", tmp_path / "no")
    for name in names:
        fresh = tmp_path / "figures" / f"{name}.png"
        assert (tmp_path / "report" / "figures" / f"{name}.png").read_bytes() == fresh.read_bytes()
    assert (tmp_path / "report" / "report.html").read_text().count("<img ") == 1 + len(names)


def test_numbers_in_study_files_are_short_and_cells_replace_each_other(tmp_path: Path) -> None:
    file = StudyFile(tmp_path, "s", "p", ("seed",), detail="d")
    file.add({"seed": 2, "value": 0.12345678901, "inner": {"values": [1 / 3, None]}})
    file.add({"seed": 1, "value": 1.0})
    file.add({"seed": 2, "value": 7.0})
    assert [cell["seed"] for cell in file.read()] == [1, 2] and file.read()[1]["value"] == 7.0
    assert file.path.name == "s-p-d.json" and file.has({"seed": 2, "value": 7.0}) and not file.has({"seed": 2, "value": 8.0})
    assert compact({"a": (0.12345678901, 3)}) == {"a": [0.1234568, 3]}
