"""Code outside the package adds one of everything, and all of it runs: tests/toy_parts.py.

An equation that does not conserve its mean, a kind of channel, a group, an operator and a frame go
from data to training, scores, predictions, files and a row of a table, through the functions that
the command line calls, and once through the command line itself.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

import pacefno
from pacefno import registry
from pacefno.data import prepare
from pacefno.data.samples import Pairs, Source
from pacefno.data.show import open_folder, show
from pacefno.errors import UsageError
from pacefno.inference import predict_batches
from pacefno.paper import benchmarks
from pacefno.paper.bench import Places, Result, plan, results_file, run_folder, run_job, score_row
from pacefno.paper.presets import config_for
from pacefno.paper.report.tables import terminal_table
from pacefno.registry import spec_of
from pacefno.testing import assert_equivariant, frame_laws, group_laws, random_field
from pacefno.train.config import ConfigError
from pacefno.train.loop import Callbacks

TOY = Path(__file__).with_name("toy_parts.py")
NAMES = ("toy-growth", "toy-growth-2d", "toy-doubled")


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """The toys are there for the tests of this file, and gone afterwards."""
    parts = {part: dict(classes) for part, classes in registry._CLASSES.items()}
    problems = dict(benchmarks.BENCHMARKS)
    spec = importlib.util.spec_from_file_location("toy_parts", TOY)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield
    for part, classes in registry._CLASSES.items():
        classes.clear()
        classes.update(parts[part])
    benchmarks.BENCHMARKS.clear()
    benchmarks.BENCHMARKS.update(problems)


@pytest.fixture(scope="module")
def places(registered: None, tmp_path_factory: pytest.TempPathFactory) -> Places:
    root = tmp_path_factory.mktemp("toys")
    return Places(root / "datasets", root / "runs", root / "results")


def source_of(name: str, places: Places) -> Source:
    recipe = benchmarks.benchmark_named(name).recipe
    return prepare(recipe, "smoke", 42, places.data, workers=1)


def made(name: str, places: Places, *models: str) -> list[Result]:
    """The results of some rows, made as ``pacefno bench`` makes them."""
    source = source_of(name, places)
    for job in plan([name], "smoke", list(models), [42]):
        list(run_job(job, places, Callbacks(), source))
    return [row for row in results_file(places.results, name).read() if row["model"] in models]


def test_the_toys_keep_the_laws() -> None:
    for name in NAMES:
        task = benchmarks.benchmark_named(name).task
        group_laws(task.group, task.input)
        spec = {"part": "frame", "name": "toy-phase"}
        frame = registry.build(spec, group=task.group, type=task.input)
        grid = (24,) * task.dim
        field = random_field(task.input, grid, batch=3, top=3, dtype=torch.float64, seed=0).values
        frame_laws(frame, task.group, task.input, field)


def test_the_mean_of_the_toy_equation_is_not_conserved(places: Places) -> None:
    pairs = source_of("toy-growth", places).load("train")
    assert isinstance(pairs, Pairs)
    grown = pairs.target.mean(dim=(1, 2)) - pairs.input.mean(dim=(1, 2))
    assert float(grown.min()) > 0.05


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model", ["fno", "unet", "pace", "pace-unet", "pace-cnn", "pace-free"])
def test_a_toy_goes_from_data_to_a_row_of_a_table(name: str, model: str, places: Places) -> None:
    (row,) = made(name, places, model)
    assert row["model"] == model and 0 < row["id_error"] < 5 and row["finished"]
    if model in ("pace", "pace-unet"):
        assert row["equivariance_error"] < 1e-5
        assert row["ood_error_canonical"] == pytest.approx(row["id_error_fine"], rel=1e-3)
        assert set(row["frame_error"]) == set(
            benchmarks.benchmark_named(name).task.group.coordinates
        )
    if model == "fno":
        assert row["equivariance_error"] > 1e-4
    text = table_text(name, places)
    assert benchmarks.benchmark_named(name).rows[model].title in text


def table_text(name: str, places: Places) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(terminal_table(name, places.results, "smoke"))
    return console.export_text()


@pytest.mark.parametrize("name", NAMES)
def test_the_group_fno_and_rows_that_share_weights_work_on_toys(name: str, places: Places) -> None:
    rows = made(name, places, "fno", "pace-analytic", "gfno", "gfno-plain", "pace-gfno")
    errors = {row["model"]: row["equivariance_error"] for row in rows}
    assert errors["pace-analytic"] < 1e-5 and errors["pace-gfno"] < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_toys_predicts_and_is_saved_again(
    name: str, places: Places, tmp_path: Path
) -> None:
    made(name, places, "pace-unet")
    run = run_folder(places.runs, name, "pace-unet", "smoke", 42)
    model = pacefno.load(run)
    assert spec_of(model.frame)["name"] == "toy-phase"
    assert model.frame.offset.item() != pytest.approx(0.05, abs=1e-9), "the frame did not learn"
    pairs = source_of(name, places).load("test_ood", "ood")
    assert isinstance(pairs, Pairs)
    once = predict_batches(model, pairs.input)
    pacefno.save(model, tmp_path / "again")
    again = predict_batches(pacefno.load(tmp_path / "again"), pairs.input)
    assert torch.equal(once.values, again.values)
    refined = predict_batches(model, pairs.input, "refined")
    assert bool(refined.values.isfinite().all())
    assert_equivariant(model, model.group, pairs.input)


def test_a_dataset_of_toys_can_be_looked_at(places: Places) -> None:
    source_of("toy-doubled", places)
    recipes = {name: benchmark.recipe for name, benchmark in benchmarks.BENCHMARKS.items()}
    recipe, dataset = open_folder(places.data / "toy-doubled" / "smoke-seed42", recipes)
    console = Console(width=200, record=True, file=io.StringIO())
    show(dataset, recipe, console)
    assert "velocity" in console.export_text()


# --- presets --------------------------------------------------------------------------------------


def test_presets_work_for_a_benchmark_without_settings_of_a_paper() -> None:
    toy = benchmarks.benchmark_named("toy-growth")
    for model in toy.rows:
        specs = [config_for(toy, model, p, 42).operator for p in ("quick", "standard")]
        widths = [spec.get("operator", spec)["width"] for spec in specs]
        assert 0 < widths[0] <= widths[1]
    assert config_for(toy, "unet", "standard", 42).schedule.epochs == 3
    with pytest.raises(ConfigError, match="toy-growth is not in the paper"):
        config_for(toy, "pace", "paper", 42)


def test_a_preset_for_which_a_recipe_has_no_sizes_is_named(places: Places) -> None:
    toy = benchmarks.benchmark_named("toy-growth")
    with pytest.raises(UsageError, match="unknown preset 'standard'. Expected one of smoke, quick"):
        prepare(toy.recipe, "standard", 42, places.data)


def test_a_run_of_a_benchmark_that_is_gone_is_still_scored_by_its_own_name(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = made("toy-growth", places, "fno")
    toy, source = benchmarks.benchmark_named("toy-growth"), source_of("toy-growth", places)
    monkeypatch.setattr(benchmarks, "BENCHMARKS", {})
    run = run_folder(places.runs, "toy-growth", "fno", "smoke", 42)
    again = score_row(run, toy, "fno", source)
    assert again["ood_error"] == row["ood_error"]


# --- the command line -----------------------------------------------------------------------------


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "pacefno.cli", "--import", "toymodule", *words]
    environment = os.environ | {"COLUMNS": "200"}
    return subprocess.run(
        program, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_told_so_and_does_not_hang(tmp_path: Path) -> None:
    """Worker processes import the script that started them."""
    (tmp_path / "script.py").write_text(
        "from pacefno.data import prepare\n"
        "from pacefno.paper.benchmarks import benchmark_named\n"
        "prepare(benchmark_named('burgers1d_smooth').recipe, 'smoke', workers=2)\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1 and "if __name__ == '__main__'" in done.stderr


@pytest.mark.slow
def test_the_command_line_makes_a_table_of_toys(tmp_path: Path) -> None:
    """Worker processes make the data and train, so they have to find the module too."""
    shutil.copy(TOY, tmp_path / "toymodule.py")
    words = ["bench", "toy-growth", "--preset", "smoke", "--models", "fno,pace-unet"]
    table = command(tmp_path, *words, "--seeds", "42", "--jobs", "2")
    assert table.returncode == 0, table.stderr
    assert "2 trainings, 2 at a time" in table.stderr
    assert "PACE around a U-Net" in table.stdout
    rows = json.loads((tmp_path / "runs" / "results" / "toy-growth.json").read_text())["rows"]
    assert {row["model"] for row in rows} == {"fno", "pace-unet"}
    run = "runs/toy-growth/pace-unet-smoke-seed42"
    data = "datasets/toy-growth/smoke-seed42/test_id.h5"
    trained = command(tmp_path, "train", "toy-growth", "--model", "unet", "--preset", "smoke")
    assert "Score it with: pacefno --import toymodule evaluate runs/toy-growth/" in trained.stdout
    predicted = command(tmp_path, "predict", run, data, "out.npz")
    assert predicted.returncode == 0, predicted.stderr
    without = [sys.executable, "-m", "pacefno.cli", "predict", run, data, "out.npz"]
    refused = subprocess.run(without, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "--import MODULE" in refused.stderr
