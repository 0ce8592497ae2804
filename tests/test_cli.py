"""The command line as a newcomer meets it: help that answers, one-line errors, files in and out."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import pacefno
from pacefno.cli import app
from pacefno.data import open_dataset
from pacefno.lock import FolderLock
from pacefno.studies.results import ResultsError, merge_results, read_results

PROBLEM = "burgers1d_smooth"
RUNNER = CliRunner()


def call(*words: object, code: int = 0) -> str:
    """Run a command and return what it printed; the exit code must be the expected one and no traceback may show."""
    result = RUNNER.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a smoke dataset and a trained run, made by the commands themselves."""
    folder = tmp_path_factory.mktemp("home")
    call("data", "generate", PROBLEM, "--preset", "smoke", "--root", folder / "datasets", "--workers", 1)
    train = ("train", PROBLEM, "--preset", "smoke", "--data", folder / "datasets", "--out", folder / "run")
    assert "pacefno evaluate" in call(*train)
    return folder


@pytest.fixture
def field(home: Path) -> torch.Tensor:
    return open_dataset(home / "datasets" / PROBLEM / "smoke-seed42").load("test_ood", "ood").input


@pytest.mark.parametrize("command", ["data generate", "data show", "train", "evaluate", "predict", "bench", "report"])
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    text = call(*command.split(), "--help")
    assert "Example: pacefno" in text


def test_evaluate_prints_one_json_row(home: Path) -> None:
    row = json.loads(call("evaluate", home / "run", "--data", home / "datasets"))
    assert row["model"] == "pace" and row["equivariance_error"] < 1e-5
    oracle = json.loads(call("evaluate", home / "run", "--data", home / "datasets", "--model", "pace-oracle"))
    assert oracle["equivariance_error"] is None
    assert oracle["ood_error"] == pytest.approx(row["ood_error"], rel=0.05)


# --- predict --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5"])
def test_predict_reads_and_writes_every_kind_of_file(suffix: str, home: Path, field: torch.Tensor, tmp_path: Path) -> None:
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
    expected = pacefno.load(home / "run")(field).detach().numpy()
    if suffix == ".h5":
        with h5py.File(target) as file:
            assert set(file) == {"prediction", "frame", "confidence"}
            found = file["prediction"][()]
    else:
        loaded = np.load(target, allow_pickle=False)
        found = loaded if suffix == ".npy" else loaded["prediction"]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_predict_keeps_the_dtype_and_works_at_another_resolution(home: Path, tmp_path: Path) -> None:
    x = torch.arange(96) / 96
    np.save(tmp_path / "in.npy", torch.sin(2 * torch.pi * x).double().reshape(1, 1, -1).numpy())
    call("predict", home / "run", tmp_path / "in.npy", tmp_path / "out.npy")
    found = np.load(tmp_path / "out.npy")
    assert found.shape == (1, 1, 96) and found.dtype == np.float64


def bad_inputs() -> dict[str, tuple[dict[str, np.ndarray], str]]:
    good = np.sin(2 * np.pi * np.arange(64) / 64).reshape(1, 1, 64)
    missing = good.copy()
    missing[0, 0, 3] = np.nan
    return {
        "no batch axis": ({"input": good[0]}, "add a batch axis"),
        "two channels": ({"input": np.repeat(good, 2, axis=1)}, "give it 1 channel"),
        "NaN": ({"input": missing}, "grid point (3,)"),
        "whole numbers": ({"input": good.astype(np.int64)}, "expected real numbers"),
        "too coarse": ({"input": good[..., ::16]}, "need at least"),
        "end point twice": ({"input": good, "x": np.linspace(0, 1, 64)}, "listed twice"),
        "another domain": ({"input": good, "x": 2 * np.pi * np.arange(64) / 64}, "another length"),
        "another horizon": ({"input": good, "horizon": np.array(2.0)}, "horizon of 2"),
        "another name": ({"u": good}, "--name"),
    }


@pytest.mark.parametrize("case", sorted(bad_inputs()))
def test_predict_refuses_bad_input_in_one_line(case: str, home: Path, tmp_path: Path) -> None:
    arrays, message = bad_inputs()[case]
    np.savez(tmp_path / "in.npz", **arrays)
    result = RUNNER.invoke(app, ["predict", str(home / "run"), str(tmp_path / "in.npz"), str(tmp_path / "out.npz")])
    assert result.exit_code in (1, 2) and "Traceback" not in result.output
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "out.npz").exists()


def test_predict_never_unpickles_follows_links_or_expands_bombs(home: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert "error:" in call("predict", home / "run", tmp_path / "objects.npy", tmp_path / "o.npy", code=1)
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["input"] = np.zeros((1, 1, 64))
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["input"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "input")
    assert "link" in call("predict", home / "run", tmp_path / "link.h5", tmp_path / "o.npy", code=1)
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        file.create_dataset("input", shape=(10**6, 1, 4096), dtype="f4", chunks=(1, 1, 4096), compression="gzip")
    assert "bomb" in call("predict", home / "run", tmp_path / "bomb.h5", tmp_path / "o.npy", code=1)


def test_predict_names_a_missing_run_a_pickle_and_a_wrong_ending(home: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((1, 1, 64)))
    call("predict", tmp_path / "nowhere", tmp_path / "in.npy", tmp_path / "out.npy", code=1)
    torch.save({}, tmp_path / "model.pt")
    assert "pickle" in call("predict", tmp_path / "model.pt", tmp_path / "in.npy", tmp_path / "out.npy", code=1)
    assert "ends in" in call("predict", home / "run", tmp_path / "in.npy", tmp_path / "out.csv", code=1)


# --- train and bench ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "burgers3d"), "unknown problem 'burgers3d'"),
        (("train", PROBLEM, "--model", "unet"), "unknown model 'unet'"),
        (("train", PROBLEM, "--preset", "huge"), "unknown preset 'huge'"),
        (("train", PROBLEM, "--set", "schedule.epoch=1"), "unknown key"),
        (("train", PROBLEM, "--model", "pace-tta", "--preset", "smoke"), "uses the weights of 'pace'"),
        (("bench", PROBLEM, "--models", "fno,unet"), "unknown model 'unet'"),
        (("bench", PROBLEM, "--seeds", "one"), "whole numbers"),
    ],
)
def test_wrong_words_are_named_with_exit_code_2(words: tuple[str, ...], message: str, home: Path) -> None:
    assert message in call(*words, "--data", home / "datasets", code=2)


def test_a_finished_run_is_kept_and_one_in_use_is_left_alone(home: Path, tmp_path: Path) -> None:
    train = ("train", PROBLEM, "--preset", "smoke", "--data", home / "datasets", "--out")
    assert "add --resume" in call(*train, home / "run", code=1)
    assert "finished already" in call(*train, home / "run", "--resume")
    with FolderLock(tmp_path / "busy"):
        assert "in use" in call(*train, tmp_path / "busy", code=1)


def test_a_finished_run_with_other_settings_is_not_taken_for_this_one(home: Path, tmp_path: Path) -> None:
    train = ("train", PROBLEM, "--preset", "smoke", "--model", "fno", "--data", home / "datasets")
    out = tmp_path / "runs" / PROBLEM / "fno-smoke-seed42"
    call(*train, "--out", out, "--set", "schedule.epochs=1")
    assert "schedule.epochs was 1, now 4" in call(*train, "--out", out, "--resume", code=2)
    places = ("--data", home / "datasets", "--runs", tmp_path / "runs", "--results", tmp_path / "results")
    message = call("bench", PROBLEM, "--preset", "smoke", "--models", "fno", "--seeds", "42", *places, code=2)
    assert "other settings" in message and not (tmp_path / "results").exists()


def test_damaged_files_end_in_one_line(home: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", input=np.zeros((1, 1, 64)))
    content = (tmp_path / "good.npz").read_bytes()
    for name, damaged in (("cut.npz", content[: len(content) // 2]), ("flip.npz", content[:60] + b"XXXX" + content[64:])):
        (tmp_path / name).write_bytes(damaged)
        assert "error:" in call("predict", home / "run", tmp_path / name, tmp_path / "out.npz", code=1)
    np.savez(tmp_path / "axis.npz", input=np.zeros((1, 1, 64)), x=np.arange(32) / 32)
    assert "expected 64 points" in call("predict", home / "run", tmp_path / "axis.npz", tmp_path / "out.npz", code=2)
    np.savez(tmp_path / "two.npz", input=np.zeros((1, 1, 64)), horizon=np.ones(2))
    assert "expected one number" in call("predict", home / "run", tmp_path / "two.npz", tmp_path / "out.npz", code=1)
    np.save(tmp_path / "big-endian.npy", np.zeros((1, 1, 64), dtype=">f4"))
    call("predict", home / "run", tmp_path / "big-endian.npy", tmp_path / "out.npy")


def test_a_diverging_training_ends_with_exit_code_3(home: Path, tmp_path: Path) -> None:
    train = ("train", PROBLEM, "--preset", "smoke", "--model", "fno", "--data", home / "datasets", "--out", tmp_path / "run")
    assert "finite" in call(*train, "--set", "schedule.rate=1e30", "--set", "schedule.shape=constant", code=3)


def test_bench_skips_what_is_done_and_merges_what_is_new(home: Path, tmp_path: Path) -> None:
    places = ("--data", home / "datasets", "--runs", tmp_path / "runs", "--results", tmp_path / "results")
    first = call("bench", PROBLEM, "--preset", "smoke", "--models", "fno,pace-analytic", "--seeds", "42", *places)
    assert "1 of 1 trainings" in first
    stamp = (tmp_path / "results" / f"{PROBLEM}.json").read_bytes()
    again = call("bench", PROBLEM, "--preset", "smoke", "--models", "fno,pace-analytic", "--seeds", "42", *places)
    assert "trainings" not in again and (tmp_path / "results" / f"{PROBLEM}.json").read_bytes() == stamp
    call("bench", PROBLEM, "--preset", "smoke", "--models", "fno", "--seeds", "42,7", *places)
    rows = read_results(tmp_path / "results", PROBLEM)
    assert [(row["model"], row["seed"]) for row in rows] == [("fno", 7), ("fno", 42), ("pace-analytic", 42)]


def test_results_merge_by_preset_model_and_seed(tmp_path: Path) -> None:
    merge_results(tmp_path, "p", [{"preset": "a", "model": "m", "seed": 1, "x": 1}])
    merge_results(tmp_path, "p", [{"preset": "a", "model": "m", "seed": 1, "x": 2}, {"preset": "b", "model": "m", "seed": 1}])
    assert [row.get("x") for row in read_results(tmp_path, "p")] == [2, None]
    (tmp_path / "p.json").write_text("[]")
    with pytest.raises(ResultsError, match=r"p\.json"):
        read_results(tmp_path, "p")
