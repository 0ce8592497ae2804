"""The command line as a newcomer meets it: help that answers, one-line errors, files in and out."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import pacefno
from pacefno.checkpoint import FINAL
from pacefno.cli import _console, app
from pacefno.data import open_dataset, write_lpsda
from pacefno.data.lpsda import file_name
from pacefno.data.recipe import LPSDA_MODES
from pacefno.data.samples import Trajectories
from pacefno.files import lock_folder
from pacefno.paper import BENCHMARK_NAMES
from pacefno.paper.bench import results_file
from pacefno.paper.benchmarks import BENCHMARKS, benchmark_named
from pacefno.train.loop import Callbacks, train
from training_examples import SMOOTH, settings, wave_source

RUNNER = CliRunner()
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
COMMANDS = [
    "data generate",
    "data show",
    "train",
    "evaluate",
    "predict",
    "explore",
    "bench",
    "report",
]


def call(*words: object, code: int = 0) -> str:
    """What a command printed, in one line; the exit code is as expected and no traceback shows."""
    result = RUNNER.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


def run(code: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.fixture(scope="module")
def home(smoke_datasets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that the command itself trained; datasets are in ``datasets``."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "datasets").symlink_to(smoke_datasets)
    words = ("train", SMOOTH, "--preset", "smoke", "--data", folder / "datasets")
    assert "pacefno evaluate" in call(*words, "--out", folder / "run")
    return folder


@pytest.fixture
def field(home: Path) -> torch.Tensor:
    dataset = open_dataset(
        benchmark_named(SMOOTH).recipe,
        home / "datasets" / SMOOTH / "smoke-seed42",
        preset="smoke",
        seed=42,
    )
    return dataset.load("test_ood", "ood").input  # type: ignore[union-attr]


# --- help -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    text = call(*command.split(), "--help")
    assert "Example: pacefno" in text
    assert call(*command.split(), "-h") == text


def test_help_fills_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    shown = RUNNER.invoke(app, ["train", "--help"]).output.splitlines()
    begun = next(i for i, line in enumerate(shown) if "The run folder then" in line)
    paragraph = shown[begun : shown.index(next(x for x in shown[begun:] if not x.strip()), begun)]
    assert len(paragraph) > 3 and min(len(line.rstrip()) for line in paragraph[:-1]) > 65


HELP = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "matplotlib", "numpy", "h5py", "lightning_fabric"):
            raise ImportError(f"{name} is not needed for help")

sys.meta_path.insert(0, Refuse())
from typer.testing import CliRunner
from pacefno.cli import app

def visit(command, words):
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from visit(inner, [*words, name])

import typer
found = list(visit(typer.main.get_command(app), []))
for words in found:
    for option in ("--help", "-h"):
        result = CliRunner().invoke(app, [*words, option])
        assert result.exit_code == 0 and "Usage" in result.output, (words, result.output)
assert CliRunner().invoke(app, ["--version"]).exit_code == 0
print(len(found))
"""


def test_every_help_answers_without_torch_or_matplotlib() -> None:
    answered = run(HELP)
    assert answered.returncode == 0, answered.stderr
    assert int(answered.stdout) >= 10


def test_without_words_the_commands_are_listed() -> None:
    result = RUNNER.invoke(app, [])
    assert all(word.split()[0] in result.output for word in COMMANDS)


def test_the_version_is_that_of_the_package() -> None:
    assert call("--version") == f"pacefno {version('pacefno')}"


def test_the_names_that_help_lists_are_those_of_the_registry() -> None:
    assert list(BENCHMARKS) == list(BENCHMARK_NAMES)
    for words in (("train",), ("data", "generate"), ("bench",)):
        text = call(*words, "--help")
        assert all(name in text for name in BENCHMARK_NAMES)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "burgers1"), "unknown benchmark 'burgers1'. Did you mean 'burgers1d'?"),
        (("train", "kvd"), "unknown benchmark 'kvd'. Did you mean 'kdv'?"),
        (("train", SMOOTH, "--model", "pac"), "unknown model 'pac'. Did you mean 'pace'?"),
        (("train", "kdv", "--model", "pace"), "unknown model 'pace'. Did you mean 'pace-"),
        (("train", SMOOTH, "--preset", "smok"), "unknown preset 'smok'. Did you mean 'smoke'?"),
        (("train", SMOOTH, "--set", "schedule.epoch=1"), "Did you mean 'schedule.epochs'?"),
        (("train", SMOOTH, "--set", "schedule.rate=0"), "schedule.rate: Input should be greater"),
        (("train", SMOOTH, "--set", "operator.width=-1"), "width: expected a positive integer"),
        (("train", SMOOTH, "--model", "pace-tta"), "it uses the weights of 'pace'; train that"),
        (("bench", "kvd"), "unknown benchmark 'kvd'"),
        (("bench", SMOOTH, "--models", "fno,unet"), "unknown model 'unet'"),
        (("bench", "kdv", "--models", "gfno"), "unknown model 'gfno'"),
        (("bench", SMOOTH, "--seeds", "one"), "expected whole numbers separated by commas"),
        (("bench", SMOOTH, "--preset", "large"), "unknown preset 'large'"),
    ],
)
def test_wrong_words_are_answered_with_the_nearest_and_exit_code_2(
    words: tuple[str, ...], message: str, home: Path
) -> None:
    if "--preset" not in words:
        words = (*words, "--preset", "smoke")
    text = call(*words, "--data", home / "datasets", code=2)
    assert message in text and text.count("error:") == 1


@pytest.mark.parametrize("words", [("train", "--stop"), ("trian",), ("train",), ("data",)])
def test_wrong_options_and_commands_have_exit_code_2(words: tuple[str, ...]) -> None:
    assert RUNNER.invoke(app, list(words)).exit_code == 2


def test_a_bug_shows_its_traceback(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("pacefno.auditing.foreign.load", broken)
    result = RUNNER.invoke(app, ["predict", str(home / "run"), "in.npy", "out.npy"])
    assert isinstance(result.exception, RuntimeError) and "error:" not in result.output


def test_a_missing_module_of_ours_is_a_bug(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pacefno.inference", None)
    result = RUNNER.invoke(app, ["predict", str(home / "run"), "in.npy", "out.npy"])
    assert isinstance(result.exception, ModuleNotFoundError) and "error:" not in result.output


def test_ctrl_c_ends_with_exit_code_130(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pacefno.auditing.foreign.load", interrupted)
    text = call("predict", home / "run", "in.npy", "out.npy", code=130)
    assert "give the same command again" in text


def test_a_training_that_is_asked_to_stop_says_how_to_go_on(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(display: _console.Display, epochs: int) -> Callbacks:
        return Callbacks(on_message=display.message, stop=lambda: True)

    monkeypatch.setattr(_console.Display, "callbacks", stopping)
    words = ("train", SMOOTH, "--preset", "smoke", "--data", home / "datasets")
    words += ("--out", tmp_path / "run")
    text = call(*words, code=130)
    assert "stopped after epoch 1: go on with the same command and --resume" in text
    monkeypatch.undo()
    assert "resuming after epoch 1" in call(*words, "--resume")


def test_debug_shows_all_errors(home: Path) -> None:
    try:
        result = RUNNER.invoke(app, ["--debug", "train", "kvd"])
        assert isinstance(result.exception, ValueError) and "error:" not in result.output
    finally:
        _console.debug = False
    call("train", "kvd", code=2)


BLOCKED = """
import json, sys

class Missing:
    package = ""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

missing = Missing()
sys.meta_path.insert(0, missing)
from typer.testing import CliRunner
from pacefno.cli import app
for missing.package, words in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, words)
    print(json.dumps([result.exit_code, result.output]))
"""


def test_a_missing_extra_is_named_with_its_installation(tmp_path: Path) -> None:
    results = Path(__file__).parents[2] / "results"
    cases = {
        "h5py": (["data", "generate", SMOOTH], "train"),
        "safetensors": (["predict", "run", "in.npy", "out.npy"], "train"),
        "lightning_fabric": (["train", SMOOTH], "train"),
        "filelock": (
            ["data", "generate", SMOOTH, "--preset", "smoke", "--root", str(tmp_path)],
            "train",
        ),
        "matplotlib": (["report", str(results), "--output", str(tmp_path)], "paper"),
    }
    given = json.dumps([(package, words) for package, (words, _) in cases.items()])
    done = run(BLOCKED, given)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for (package, (_, extra)), (code, text) in zip(cases.items(), answers, strict=True):
        assert (code, text.count("\n")) == (1, 1), text
        assert f"{package} is not installed: pip install 'pacefno[{extra}]'" in text


def test_without_its_parser_the_command_line_says_what_it_needs() -> None:
    done = run("import sys; sys.modules['typer'] = None; from pacefno.cli import main")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "pip install 'pacefno[train]'" in done.stderr


def test_the_extras_that_are_named_bring_what_they_are_named_for() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    for extra, packages in _console.EXTRAS.items():
        brought = {re.split(r"[<>=\[]", text)[0].replace("-", "_") for text in extras[extra]}
        assert set(packages) <= brought


def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    text = call("--import", "no_such_module", "train", SMOOTH, code=2)
    assert "--import no_such_module: there is no such module" in text


# --- train ----------------------------------------------------------------------------------------


def test_a_finished_run_is_kept_and_one_in_use_is_left_alone(home: Path, tmp_path: Path) -> None:
    words = ("train", SMOOTH, "--preset", "smoke", "--data", home / "datasets", "--out")
    assert "add --resume" in call(*words, home / "run", code=1)
    assert "finished already" in call(*words, home / "run", "--resume")
    with lock_folder(tmp_path / "busy"):
        assert "in use" in call(*words, tmp_path / "busy", code=1)


def test_a_finished_run_with_other_settings_is_not_taken_for_this_one(
    home: Path, tmp_path: Path
) -> None:
    words = ("train", SMOOTH, "--preset", "smoke", "--model", "fno", "--data", home / "datasets")
    out = tmp_path / "runs" / SMOOTH / "fno-smoke-seed42"
    call(*words, "--out", out, "--set", "schedule.epochs=1")
    assert "schedule.epochs was 1, now 4" in call(*words, "--out", out, "--resume", code=2)
    places = ("--data", home / "datasets", "--runs", tmp_path / "runs")
    rows = ("--preset", "smoke", "--models", "fno", "--seeds", "42")
    text = call("bench", SMOOTH, *rows, *places, "--results", tmp_path / "results", code=2)
    assert "other settings" in text and not (tmp_path / "results").exists()


def test_a_diverging_training_ends_with_exit_code_3(home: Path, tmp_path: Path) -> None:
    words = ("train", SMOOTH, "--preset", "smoke", "--model", "fno", "--data", home / "datasets")
    diverge = ("--set", "schedule.rate=1e30", "--set", "schedule.shape=constant")
    assert "finite" in call(*words, "--out", tmp_path / "run", *diverge, code=3)


def test_the_progress_of_a_command_is_lines_in_a_log(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", SMOOTH, "--preset", "smoke", "--data", home / "datasets", "--out")
    result = RUNNER.invoke(app, [str(word) for word in (*words, tmp_path / "quiet")])
    lines = result.stderr.splitlines()
    assert [line for line in lines if line.startswith("quiet: 100%")] and len(lines) < 8
    assert not re.search(r"[\x1b\r]", result.stderr), "a log is no terminal"
    assert all(lines), "an empty line"
    monkeypatch.setattr(_console, "SECONDS_BETWEEN_LINES", 0.0)
    result = RUNNER.invoke(app, [str(word) for word in (*words, tmp_path / "busy")])
    shown = [line for line in result.stderr.splitlines() if line.startswith("busy:")]
    assert len(shown) == 12 and shown[0] == "busy: 8%"  # nothing to tell the time left by yet
    assert re.fullmatch(r"busy: 17%, about \d+ s left", shown[1])
    errors = r"training error 0\.\d{4}, validation 0\.\d{4}"
    assert re.fullmatch(rf"busy: 100%, {errors}", shown[-1])


# --- evaluate -------------------------------------------------------------------------------------


def test_evaluate_prints_one_json_row(home: Path) -> None:
    words = ("evaluate", home / "run", "--data", home / "datasets")
    result = RUNNER.invoke(app, [str(word) for word in words])
    row = json.loads(result.stdout)
    assert row["model"] == "pace" and row["equivariance_error"] < 1e-5
    again = RUNNER.invoke(app, [str(word) for word in (*words, "--model", "pace-oracle")])
    oracle = json.loads(again.stdout)
    assert oracle["equivariance_error"] is None
    assert oracle["ood_error"] == pytest.approx(row["ood_error"], rel=0.05)
    assert "does not use the weights" in call(*words, "--model", "fno", code=2)


def test_evaluate_says_why_a_folder_cannot_be_scored(home: Path, tmp_path: Path) -> None:
    assert "there is no such folder" in call("evaluate", tmp_path / "nowhere", code=1)
    model = pacefno.load(home / "run")
    pacefno.save(model, tmp_path / "saved")
    assert "not a run" in call("evaluate", tmp_path / "saved", code=1)


def test_a_run_without_labels_is_not_scored_as_a_row(home: Path, tmp_path: Path) -> None:
    config = settings("fno", "schedule.epochs=1").model_copy(update={"labels": {}})
    source = open_dataset(
        benchmark_named(SMOOTH).recipe,
        home / "datasets" / SMOOTH / "smoke-seed42",
        preset="smoke",
        seed=42,
    )
    train(config, source, tmp_path / "run")
    text = call("evaluate", tmp_path / "run", "--data", home / "datasets", code=2)
    assert "does not say on which benchmark" in text


# --- predict --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5"])
def test_predict_reads_and_writes_every_kind_of_file(
    suffix: str, home: Path, field: torch.Tensor, tmp_path: Path
) -> None:
    source, target = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    if suffix == ".npy":
        np.save(source, field.numpy())
    elif suffix == ".npz":
        np.savez(source, input=field.numpy(), x=np.arange(256) / 256, horizon=1.0)
    else:
        with h5py.File(source, "w") as file:
            file["input"] = field.numpy()
            file.attrs["horizon"] = 1.0
    assert f"{len(field)} predictions" in call("predict", home / "run", source, target)
    with torch.no_grad():
        expected = pacefno.load(home / "run")(field).numpy()
    if suffix == ".h5":
        with h5py.File(target) as file:
            assert set(file) == {"prediction", "frame", "confidence"}
            found = file["prediction"][()]
    else:
        loaded = np.load(target, allow_pickle=False)
        found = loaded if suffix == ".npy" else loaded["prediction"]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_predict_takes_the_files_of_a_dataset(home: Path, tmp_path: Path) -> None:
    path = home / "datasets" / SMOOTH / "smoke-seed42" / "test_id.h5"
    call("predict", home / "run", path, tmp_path / "out.h5")
    with h5py.File(path) as file:
        field, target = (torch.from_numpy(file[name][()]) for name in ("input", "target"))
    with h5py.File(tmp_path / "out.h5") as file:
        found = torch.from_numpy(file["prediction"][()])
    assert found.shape == target.shape
    with torch.no_grad():
        torch.testing.assert_close(found, pacefno.load(home / "run")(field), atol=1e-6, rtol=0)
    call("predict", home / "run", path, tmp_path / "other.npy", "--name", "target", "--refine")


def test_predict_keeps_the_dtype_and_works_at_another_resolution(
    home: Path, tmp_path: Path
) -> None:
    x = torch.arange(96) / 96
    np.save(tmp_path / "in.npy", torch.sin(2 * torch.pi * x).double().reshape(1, 1, -1).numpy())
    call("predict", home / "run", tmp_path / "in.npy", tmp_path / "out.npy")
    found = np.load(tmp_path / "out.npy")
    assert found.shape == (1, 1, 96) and found.dtype == np.float64


def test_predict_takes_windows_of_trajectories_in_the_nominal_box(tmp_path: Path) -> None:
    config = settings("pace-20", "schedule.epochs=1", benchmark="kdv")
    train(config, wave_source("kdv", points=64), tmp_path / "run")
    window = np.random.default_rng(0).normal(size=(2, 20, 64)).astype(np.float32)
    np.save(tmp_path / "in.npy", window)
    call("predict", tmp_path / "run", tmp_path / "in.npy", tmp_path / "out.npy")
    assert np.load(tmp_path / "out.npy").shape == (2, 20, 64)


def bad_inputs() -> dict[str, tuple[dict[str, np.ndarray], str]]:
    good = np.sin(2 * np.pi * np.arange(64) / 64).reshape(1, 1, 64)
    missing = good.copy()
    missing[0, 0, 3] = np.nan
    return {
        "no batch axis": ({"input": good[0]}, "add a batch axis"),
        "two channels": ({"input": np.repeat(good, 2, axis=1)}, "give it 1 channel"),
        "NaN": ({"input": missing}, "grid point (3,)"),
        "no samples": ({"input": good[:0]}, "error:"),
        "whole numbers": ({"input": good.astype(np.int64)}, "expected float16, float32 or float64"),
        "too coarse": ({"input": good[..., ::16]}, "need at least"),
        "end point twice": ({"input": good, "x": np.linspace(0, 1, 64)}, "listed twice"),
        "another domain": ({"input": good, "x": 2 * np.pi * np.arange(64) / 64}, "another length"),
        "axis too short": ({"input": good, "x": np.arange(32) / 32}, "expected 64 points"),
        "another horizon": ({"input": good, "horizon": np.array(2.0)}, "horizon of 2"),
        "two horizons": ({"input": good, "horizon": np.ones(2)}, "expected one number"),
        "another name": ({"u": good}, "--name"),
    }


@pytest.mark.parametrize("case", sorted(bad_inputs()))
def test_predict_refuses_bad_input_in_one_line(case: str, home: Path, tmp_path: Path) -> None:
    arrays, message = bad_inputs()[case]
    np.savez(tmp_path / "in.npz", **arrays)
    words = ["predict", str(home / "run"), str(tmp_path / "in.npz"), str(tmp_path / "out.npz")]
    result = RUNNER.invoke(app, words)
    assert result.exit_code in (1, 2) and "Traceback" not in result.output, result.exception
    assert message in " ".join(result.output.split())
    assert len(result.output.strip().splitlines()) == 1
    assert not (tmp_path / "out.npz").exists()


def test_damaged_and_hostile_files_end_in_one_line(home: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", input=np.zeros((1, 1, 64)))
    content = (tmp_path / "good.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    (tmp_path / "flip.npz").write_bytes(content[:60] + b"XXXX" + content[64:])
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["input"] = np.zeros((1, 1, 64))
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["input"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "input")
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        options = {"dtype": "f4", "chunks": (1, 1, 4096), "compression": "gzip"}
        file.create_dataset("input", shape=(10**6, 1, 4096), **options)
    for name, word in (
        ("cut.npz", "error:"), ("flip.npz", "error:"), ("objects.npy", "error:"),
        ("link.h5", "link"), ("bomb.h5", "bomb"),
    ):  # fmt: skip
        text = call("predict", home / "run", tmp_path / name, tmp_path / "out.npz", code=1)
        assert word in text
    np.save(tmp_path / "big-endian.npy", np.zeros((1, 1, 64), dtype=">f4"))
    call("predict", home / "run", tmp_path / "big-endian.npy", tmp_path / "out.npy")


def test_predict_names_a_missing_run_a_pickle_and_a_wrong_ending(
    home: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "in.npy", np.zeros((1, 1, 64)))
    words = (tmp_path / "in.npy", tmp_path / "out.npy")
    assert "no such folder" in call("predict", tmp_path / "nowhere", *words, code=1)
    torch.save({}, tmp_path / "model.pt")
    assert "pickle" in call("predict", tmp_path / "model.pt", *words, code=1)
    text = call("predict", home / "run", tmp_path / "in.npy", tmp_path / "out.csv", code=1)
    assert "expected an ending out of" in text
    assert "no such file" in call("predict", home / "run", tmp_path / "x.npy", words[1], code=1)


# --- data and bench -------------------------------------------------------------------------------


def test_a_dataset_is_shown(home: Path, tmp_path: Path) -> None:
    folder = home / "datasets" / SMOOTH / "smoke-seed42"
    assert "test_ood" in call("data", "show", folder)
    call("data", "show", tmp_path, code=1)
    again = call("data", "generate", SMOOTH, "--preset", "smoke", "--root", home / "datasets")
    assert "is complete" in again


def test_a_preset_that_shares_its_samples_makes_those(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = []

    def generate(recipe: object, preset: str, *others: object, **options: object) -> Path:
        made.append(preset)
        return tmp_path / preset

    monkeypatch.setattr("pacefno.data.generate", generate)
    text = call("data", "generate", SMOOTH, "--preset", "long", "--root", tmp_path)
    assert made == ["standard"] and "the preset long trains on the samples of standard" in text


def test_bench_skips_what_is_done_and_merges_what_is_new(home: Path, tmp_path: Path) -> None:
    places = ("--data", home / "datasets", "--runs", tmp_path / "runs")
    places += ("--results", tmp_path / "results", "--preset", "smoke")
    both = ("--models", "fno,pace-analytic", "--seeds", "42")
    assert "1 of 1: burgers1d_smooth fno seed 42" in call("bench", SMOOTH, *both, *places)
    stored = tmp_path / "results" / f"{SMOOTH}.json"
    stamp = stored.read_bytes()
    again = call("bench", SMOOTH, *both, *places)
    assert "1 of 1" not in again and "FNO wrapped after training" in again
    assert stored.read_bytes() == stamp
    call("bench", SMOOTH, "--models", "fno", "--seeds", "42,7", *places)
    rows = results_file(tmp_path / "results", SMOOTH).read()
    found = [(row["model"], row["seed"]) for row in rows]
    assert found == [("fno", 7), ("fno", 42), ("pace-analytic", 42)]


@pytest.fixture(scope="module")
def forecasts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of datasets with files as LPSDA's, of waves: nothing has to be solved."""
    folder = tmp_path_factory.mktemp("datasets")
    name = "kuramoto_sivashinsky"
    for split, trajectories in wave_source(name).splits.items():
        mode = LPSDA_MODES[split]
        path = folder / name / "smoke-seed42" / file_name("KS", mode, 16)
        assert isinstance(trajectories, Trajectories)
        write_lpsda(path, mode, trajectories, first=0)
    return folder


def test_bench_makes_the_table_of_trajectories_too(forecasts: Path, tmp_path: Path) -> None:
    name = "kuramoto_sivashinsky"
    places = ("--data", forecasts, "--runs", tmp_path / "runs", "--results", tmp_path / "results")
    words = ("bench", name, "--preset", "smoke", "--models", "fno,pace-20", "--seeds", "42")
    text = call(*words, *places)
    assert "PACE, 20 snapshots" in text and "0.0003 ± 0.0001" in text  # the paper's beside ours
    rows = {row["model"]: row for row in results_file(tmp_path / "results", name).read()}
    assert set(rows) == {"fno", "pace-20"}
    assert rows["pace-20"]["equivariance_error"] < 1e-3 and rows["pace-20"]["finished"]
    run_of = tmp_path / "runs" / name / "pace-20-smoke-seed42"
    result = RUNNER.invoke(app, ["evaluate", str(run_of), "--data", str(forecasts)])
    assert json.loads(result.stdout)["nmse"] == pytest.approx(rows["pace-20"]["nmse"])


def test_data_of_other_settings_are_refused(forecasts: Path, tmp_path: Path) -> None:
    name = "kuramoto_sivashinsky"
    folder = tmp_path / name / "smoke-seed42"
    for split, trajectories in wave_source(name).splits.items():
        assert isinstance(trajectories, Trajectories)
        path = folder / file_name("KS", LPSDA_MODES[split], 16)
        other = {"recipe": "another one"}
        write_lpsda(path, LPSDA_MODES[split], trajectories, first=0, document=other)
    words = ("train", name, "--model", "fno", "--preset", "smoke", "--data", tmp_path)
    assert "was made with other settings" in call(*words, "--out", tmp_path / "run", code=1)
    assert not (tmp_path / "run" / FINAL).exists()


# --- memory ---------------------------------------------------------------------------------------

COUNT_FAULTS = """
import resource, torch
from pacefno.memory import keep_freed_memory
kept = {call}
for _ in range(30):  # the first few find their places
    torch.ones(2**24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    torch.ones(2**24)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(call: str, **environment: str) -> tuple[str, int]:
    """What the call returned, and how many pages five tensors of 64 MB then had to ask for."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    program = [sys.executable, "-c", COUNT_FAULTS.format(call=call)]
    done = subprocess.run(
        program, env=clean | environment, check=True, capture_output=True, text=True
    )
    kept, count = done.stdout.split()
    return kept, int(count)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an option of glibc")
def test_large_tensors_use_the_same_pages_again() -> None:
    (_, usual), (kept, fewer) = faults("None"), faults("keep_freed_memory()")
    assert kept == "True"
    assert fewer < usual / 5


def test_the_memory_settings_of_the_user_are_left_alone() -> None:
    code = "from pacefno.memory import keep_freed_memory; print(keep_freed_memory())"
    assert run(code, MALLOC_TRIM_THRESHOLD_="100000").stdout.strip() == "False"
