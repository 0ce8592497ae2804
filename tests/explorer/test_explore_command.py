"""``pacefno explore``: from runs to a page, and one sentence where that cannot be."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import socket
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from pacefno.cli import app
from pacefno.cli.explore import gather
from pacefno.explorer import bundle, runtime

MODELS = Path(__file__).parents[2] / "docs" / "models"
PROBLEMS = sorted(path.name for path in MODELS.iterdir() if path.is_dir() and path.name[0] != "_")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime and programs that take no time; those of the real ones are tested in a browser."""
    files = {runtime.SCRIPT: b"script", runtime.WASM: b"wasm"}
    (tmp_path / "package").mkdir()
    for name, data in files.items():
        (tmp_path / "package" / name).write_bytes(data)
    sums = {name: hashlib.sha512(data).hexdigest() for name, data in files.items()}
    monkeypatch.setattr(runtime, "SUMS", sums)
    monkeypatch.setattr(bundle, "_program", lambda model, example: b"program")
    return tmp_path / "package"


def explore(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["explore", *map(str, words)])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


def test_the_page_of_the_committed_models(package: Path, tmp_path: Path) -> None:
    runs = [MODELS / name / model for name in PROBLEMS for model in ("pace", "fno-aug", "fno")]
    said = explore(*runs, "--output", tmp_path / "page.html", "--runtime", package)
    assert "page.html written" in said
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    found = re.search(r'id="bundle">(.*?)</script>', page)
    assert found is not None
    about = {problem["id"]: problem for problem in json.loads(found[1])["problems"]}
    assert set(about) == {"burgers1d", "burgers2d", "navier_stokes", "shallow_water"}
    for problem in about.values():
        assert [m["id"] for m in problem["models"]] == ["fno", "fno-aug", "pace"]
        assert [m["framed"] for m in problem["models"]] == [False, False, True]
        assert problem["mirror"] and problem["samples"] == 3
        assert all(c["range"] > 0 for c in problem["coordinates"])
    assert str(MODELS) not in page


def test_the_committed_models_are_what_they_say() -> None:
    """PACE is the FNO, wrapped: at rest it predicts the same, and its error stays when moved."""
    stored = json.loads((MODELS / "models.json").read_text())
    for name in PROBLEMS:
        (problem,) = gather([MODELS / name / m for m in ("fno", "pace")], None, 3, None)
        plain, wrapped = (one.model for one in problem.models)
        with torch.no_grad():
            apart = (plain(problem.input) - wrapped(problem.input)).norm()
            assert float(apart / plain(problem.input).norm()) < 2e-3
        rows = stored[name]
        assert rows["pace"]["ood_error_canonical"] < 1.05 * rows["pace"]["id_error"]
        assert rows["fno"]["ood_error_canonical"] > 3 * rows["fno"]["id_error"]
    size = sum(file.stat().st_size for file in MODELS.rglob("*") if file.is_file())
    assert size <= 5e6


def test_two_runs_of_one_model_are_told_apart(package: Path, tmp_path: Path) -> None:
    twin = tmp_path / "burgers1d" / "again"
    shutil.copytree(MODELS / "burgers1d" / "fno", twin)
    (problem,) = gather([MODELS / "burgers1d" / "fno", twin], None, 1, None)
    assert [one.title for one in problem.models] == ["FNO (fno)", "FNO (again)"]
    assert len({one.id for one in problem.models}) == 2


def test_samples_come_from_the_data_of_a_benchmark(smoke_datasets: Path, tmp_path: Path) -> None:
    words = ["train", "burgers1d_smooth", "--preset", "smoke", "--set", "schedule.epochs=1"]
    words += ["--data", str(smoke_datasets), "--out", str(tmp_path / "run")]
    assert CliRunner().invoke(app, words).exit_code == 0
    (problem,) = gather([tmp_path / "run"], smoke_datasets, 2, None)
    assert problem.input.shape[:2] == (2, 1) and problem.mirror == "z2"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("no run", "expected the folder of a run"),
        ("nothing there", "no such folder"),
        ("torn samples", "expected a safetensors file with the arrays input and target"),
        ("other samples", "expected a safetensors file with the arrays input and target"),
        ("other grid", "modes"),
        ("busy port", "cannot be used"),
        ("output below a file", "cannot be written"),
        ("no runtime", "there is no such folder or archive"),
        ("no runs", "Missing argument"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    fault: str, message: str, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "home" / "fno"
    shutil.copytree(MODELS / "burgers1d", tmp_path / "home")
    samples = tmp_path / "home" / "samples.safetensors"
    words: list[object] = [run, "--runtime", package, "--no-open"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        if fault == "no run":
            words[0] = package
        elif fault == "nothing there":
            words[0] = tmp_path / "nowhere"
        elif fault == "torn samples":
            samples.write_bytes(samples.read_bytes()[:100])
        elif fault == "other samples":
            save_file({"fields": torch.zeros(1)}, samples)
        elif fault == "other grid":
            few = {name: values[..., :16] for name, values in load_file(samples).items()}
            save_file({name: values.contiguous() for name, values in few.items()}, samples)
        elif fault == "busy port":
            words += ["--port", taken.getsockname()[1]]
            monkeypatch.setattr(bundle, "build_page", None)  # it is said before any work
        elif fault == "output below a file":
            words += ["--output", samples / "page.html"]
            monkeypatch.setattr(bundle, "build_page", None)
        elif fault == "no runtime":
            words[2] = tmp_path / "nowhere"
        elif fault == "no runs":
            words = []
        # As of every command: 1 where something cannot be read, 2 where the words are wrong.
        reading = (words and words[0] != run) or fault == "output below a file"
        assert message in explore(*words, code=1 if reading else 2)
