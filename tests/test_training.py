"""Training: the loop learns, resumes bit for bit, survives kills, refuses bad settings, and runs on two processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from pacefno.data import generate, open_dataset
from pacefno.equations import problem_named
from pacefno.grid import coarsen
from pacefno.lock import FolderInUseError, FolderLock
from pacefno.training.batches import Batch, epoch_batches
from pacefno.training.config import ConfigError, LossSettings, ScheduleSettings, with_overrides
from pacefno.training.evaluate import evaluate
from pacefno.training.load import load, load_run
from pacefno.training.loop import DivergenceError, Hooks, StopRequest
from pacefno.training.models import MODELS, build_model
from pacefno.training.presets import PRESETS, config_for
from pacefno.training.run import RunExistsError, train
from pacefno.training.schedule import anchor_weight, grid_stride, h1_weight, learning_rate
from pacefno.training.store import CheckpointError, load_checkpoint

PROBLEM = "burgers1d_smooth"


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(problem_named(PROBLEM), "smoke", 42, tmp_path_factory.mktemp("datasets"), workers=1)


def settings(model: str = "pace", *changes: str):  # type: ignore[no-untyped-def]
    return with_overrides(config_for(PROBLEM, model, "smoke", 42), list(changes))


def contents(run: Path) -> dict[str, object]:
    """Everything that must not depend on interruptions: weights, optimiser, counters, metric log."""
    newest = sorted(run.glob("epoch-*"))[-1]
    loaded = load_checkpoint(newest)
    documents = {k: v for k, v in loaded.documents.items() if k != "timing"}
    tensors = {f"{group}/{k}": v.numpy().tobytes() for group, values in loaded.tensors.items() for k, v in values.items()}
    return {"tensors": tensors, "documents": documents, "log": (run / "metrics.jsonl").read_bytes()}


# --- the loop -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [name for name, spec in MODELS.items() if spec.trained_as is None])
def test_every_row_trains_and_its_loss_falls(model: str, data: Path, tmp_path: Path) -> None:
    progress = train(settings(model, "schedule.epochs=8", "schedule.rate=0.01"), data, tmp_path / "run")
    assert progress.log[-1]["l2"] < 0.9 * progress.log[0]["l2"]
    assert progress.skipped == 0


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_row_is_evaluated_by_the_same_code(model: str, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained = MODELS[model].trained_as or model
    train(settings(trained, "schedule.epochs=2"), data, run)
    row = evaluate(run, open_dataset(data), model)
    keys = "problem model seed preset id_error id_error_fine ood_error ood_error_canonical equivariance_error frame_error"
    keys += " parameters train_seconds ood_seconds device threads versions"
    assert set(keys.split()) <= set(row)
    assert row["model"] == model and 0 < row["id_error"] < 5 and 0 < row["ood_error"] < 5
    exact = model in ("pace", "pace-tta", "pace-analytic", "pace-gfno")
    if exact:
        assert row["equivariance_error"] < 1e-5
        assert row["ood_error_canonical"] == pytest.approx(row["id_error_fine"], rel=1e-3)
    if model in ("fno", "fno-aug"):
        assert row["equivariance_error"] > 1e-2


def test_the_curriculum_trains_on_coarse_grids_first(data: Path, tmp_path: Path) -> None:
    progress = train(settings("fno", "schedule.epochs=4"), data, tmp_path / "run")
    assert [record["grid_stride"] for record in progress.log] == [2, 2, 1, 1]


def test_the_best_weights_by_validation_are_kept_not_the_last(data: Path, tmp_path: Path) -> None:
    config = settings("fno", "schedule.epochs=6", "schedule.rate=0.3", "schedule.shape=constant")
    progress = train(config, data, tmp_path / "run")
    errors = [record["validation_error"] for record in progress.log]
    assert progress.best_error == min(errors) and progress.best_epoch == 1 + errors.index(min(errors))
    summary = load_checkpoint(tmp_path / "run" / "final").documents["summary"]
    assert summary["validation_error"] == min(errors)


def test_double_precision_runs_through_the_same_loop(data: Path, tmp_path: Path) -> None:
    progress = train(settings("pace", "precision=64-true", "schedule.epochs=1"), data, tmp_path / "run")
    assert progress.log[0]["l2"] > 0


def test_all_losses_of_the_paper_are_finite_and_logged(data: Path, tmp_path: Path) -> None:
    changes = ["loss.h1=1", "loss.h1_schedule=ema", "loss.anchor=5", "loss.equivariance=10", "loss.invariant=0.5"]
    progress = train(settings("pace-cnn", *changes, "schedule.epochs=2"), data, tmp_path / "run")
    assert {"l2", "h1", "equivariance", "anchor", "invariant"} <= set(progress.log[-1])
    assert progress.h1_balance != 1.0


# --- resume, kill, divergence ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["fno", "pace"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(model: str, data: Path, tmp_path: Path) -> None:
    config = settings(model, "loss.h1=1", "loss.h1_schedule=ema")
    train(config, data, tmp_path / "whole")
    stop_after_two = Hooks(stop=lambda: (tmp_path / "parts" / "metrics.jsonl").read_text().count("\n") >= 2)
    with pytest.raises(StopRequest):
        train(config, data, tmp_path / "parts", hooks=stop_after_two)
    train(config, data, tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_the_same_seed_gives_the_same_weights_and_another_seed_does_not(data: Path, tmp_path: Path) -> None:
    config = settings("fno", "schedule.epochs=1")
    for name, chosen in (("a", config), ("b", config), ("c", with_overrides(config, ["seed=7"]))):
        train(chosen, data, tmp_path / name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert contents(tmp_path / "a") != contents(tmp_path / "c")


@pytest.mark.slow
def test_a_killed_run_continues_and_equals_an_uninterrupted_one(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pacefno.cli", "train", PROBLEM, "--model", "fno", "--preset", "smoke", "--resume"]
    command += ["--out", str(tmp_path / "killed"), "--data", str(data.parent.parent), "--set", "schedule.epochs=8"]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # as in this process: bits are promised for equal thread counts only
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=one_thread)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "killed").glob("epoch-00000[2-7]")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "final").exists(), "the run ended before it could be killed"
    finished = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)
    assert finished.returncode == 0, finished.stderr
    assert "resuming after epoch" in finished.stderr
    train(settings("fno", "schedule.epochs=8"), data, tmp_path / "whole")
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_a_diverging_run_stops_with_its_last_good_checkpoint_untouched(data: Path, tmp_path: Path) -> None:
    config = settings("fno", "schedule.epochs=4", "schedule.shape=constant")
    run = tmp_path / "run"
    messages: list[str] = []
    with pytest.raises(DivergenceError, match=r"schedule\.rate.*last good checkpoint is untouched"):
        train(with_overrides(config, ["schedule.rate=1e30"]), data, run, hooks=Hooks(on_message=messages.append))
    assert any("left out" in text for text in messages), "no early warning"
    for checkpoint in run.glob("epoch-*"):
        assert all(torch.isfinite(t).all() for t in load_checkpoint(checkpoint).tensors["model"].values())


def test_a_damaged_newest_checkpoint_is_passed_over(data: Path, tmp_path: Path) -> None:
    config, run = settings("fno"), tmp_path / "run"
    with pytest.raises(StopRequest):
        train(config, data, run, hooks=Hooks(stop=lambda: (run / "metrics.jsonl").read_text().count("\n") >= 3))
    newest = sorted(run.glob("epoch-*"))[-1] / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:100])
    messages: list[str] = []
    train(config, data, run, resume=True, hooks=Hooks(on_message=messages.append))
    assert any("damaged" in text and "model.safetensors" in text for text in messages)
    assert any("resuming after epoch 2" in text for text in messages)


def test_a_run_folder_is_never_overwritten_or_shared(data: Path, tmp_path: Path) -> None:
    config, run = settings("fno", "schedule.epochs=1"), tmp_path / "run"
    train(config, data, run)
    with pytest.raises(RunExistsError, match="--resume"):
        train(config, data, run)
    with FolderLock(tmp_path / "other"), pytest.raises(FolderInUseError, match=str(os.getpid())):
        train(config, data, tmp_path / "other")


def test_resuming_with_other_settings_names_the_difference(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(settings("fno", "schedule.epochs=1"), data, run)
    with pytest.raises(ValueError, match=r"schedule\.batch was 8, now 4"):
        train(settings("fno", "schedule.epochs=1", "schedule.batch=4"), data, run, resume=True)


# --- loading --------------------------------------------------------------------------------------------------------


def test_a_loaded_model_predicts_what_the_trained_one_did(data: Path, tmp_path: Path) -> None:
    train(settings("pace"), data, tmp_path / "run")
    field = open_dataset(data).load("test_id").input
    first, second = load(tmp_path / "run"), load(tmp_path / "run" / "final")
    assert torch.equal(first(field), second(field))
    assert not first.training
    oracle = load(tmp_path / "run", "pace-oracle")
    assert torch.equal(oracle.at(field, oracle.frame_of(field).xi), first(field))


def test_an_unfinished_run_loads_its_best_weights_so_far(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(StopRequest):
        train(settings("fno"), data, run, hooks=Hooks(stop=lambda: True))
    assert not load_run(run).finished


def test_loading_says_what_is_wrong(data: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        load(tmp_path / "nothing")
    pickled = tmp_path / "model.pt"
    torch.save({"a": torch.zeros(1)}, pickled)
    with pytest.raises(CheckpointError, match="pickle"):
        load(pickled)
    train(settings("fno", "schedule.epochs=1"), data, tmp_path / "run")
    with pytest.raises(ValueError, match="does not use the weights"):
        load(tmp_path / "run", "pace-tta")


def test_a_checkpoint_of_another_problem_is_refused(data: Path, tmp_path: Path) -> None:
    train(settings("fno", "schedule.epochs=1"), data, tmp_path / "run")
    other = generate(problem_named("burgers1d"), "smoke", 42, tmp_path / "datasets", workers=1)
    with pytest.raises(ValueError, match=r"trained on 'burgers1d_smooth'.*'burgers1d'"):
        evaluate(tmp_path / "run", open_dataset(other))
    with pytest.raises(ValueError, match="the run is for"):
        train(settings("fno"), other, tmp_path / "run2")


# --- two processes --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_take_the_same_steps_as_one(data: Path, tmp_path: Path) -> None:
    changes = ["precision=64-true", "schedule.epochs=2", "loss.h1=1", "loss.h1_schedule=ema"]
    train(settings("pace", *changes), data, tmp_path / "one")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "pacefno.cli"]
    command += ["train", PROBLEM, "--model", "pace", "--preset", "smoke", "--out", str(tmp_path / "two")]
    command += ["--data", str(data.parent.parent), *(word for change in changes for word in ("--set", change))]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    one, two = (load_checkpoint(tmp_path / name / "final").tensors["model"] for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [("schedule.coarse_stride=3", "does not divide the grid"), ("schedule.batch=100", "more than the 24 training samples")],
)
def test_a_schedule_that_does_not_fit_the_data_is_refused(change: str, message: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        train(settings("fno", change), data, tmp_path / "run")


def test_a_double_precision_run_is_loaded_in_double_precision(data: Path, tmp_path: Path) -> None:
    train(settings("pace", "precision=64-true", "schedule.epochs=1"), data, tmp_path / "run")
    assert {p.dtype for p in load(tmp_path / "run").parameters()} == {torch.float64}


# --- batches, schedules, settings -----------------------------------------------------------------------------------


def _epoch(**changes: int) -> list[Batch]:
    problem = problem_named(PROBLEM)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 1, 32, generator=generator)
    options = {"seed": 1, "epoch": 0, "size": 4, "rank": 0, "world": 1} | changes
    return list(epoch_batches(problem, x, 2 * x, moved=True, **options))  # type: ignore[arg-type]


def test_batches_depend_on_seed_and_epoch_alone() -> None:
    assert torch.equal(_epoch()[0].input, _epoch()[0].input)
    assert not torch.equal(_epoch()[0].input, _epoch(epoch=1)[0].input)
    assert not torch.equal(_epoch()[0].input, _epoch(seed=2)[0].input)


def test_the_processes_of_a_group_share_each_batch() -> None:
    whole, left, right = _epoch()[1], _epoch(rank=0, world=2)[1], _epoch(rank=1, world=2)[1]
    assert torch.equal(whole.input, torch.cat([left.input, right.input]))
    assert torch.equal(whole.xi_0, torch.cat([left.xi_0, right.xi_0]))


def test_perturbations_stay_in_the_training_range_and_move_target_with_input() -> None:
    problem = problem_named(PROBLEM)
    for batch in _epoch():
        assert (batch.xi_0.abs() <= torch.tensor(problem.train_range)).all()
        torch.testing.assert_close(batch.xi_T, problem.group.transport(batch.xi_0, problem.horizon))


def test_coarsening_takes_every_kth_point() -> None:
    field = torch.arange(24.0).reshape(1, 1, 4, 6)
    assert coarsen(field, 2).shape == (1, 1, 2, 3)
    assert torch.equal(coarsen(field, 2)[0, 0], field[0, 0, ::2, ::2])


def test_the_one_cycle_rate_rises_to_its_peak_and_ends_at_zero() -> None:
    schedule = ScheduleSettings(epochs=10, rate=1.0, warmup=0.2)
    rates = [learning_rate(schedule, step, 10) for step in range(100)]
    assert max(rates) == pytest.approx(1.0) and rates.index(max(rates)) == 20
    assert rates[0] == pytest.approx(0.04) and rates[-1] < 1e-3


def test_the_papers_schedules() -> None:
    step = ScheduleSettings(epochs=200, rate=1e-3, shape="step", step_every=50, step_factor=0.5)
    assert [learning_rate(step, epoch * 7, 7) for epoch in (0, 49, 50, 150)] == [1e-3, 1e-3, 5e-4, 1.25e-4]
    anchored = LossSettings(anchor=20, anchor_decay=0.85, anchor_floor=0.1)
    assert anchor_weight(anchored, 3) == pytest.approx(20 * 0.85**3 + 0.1)
    ramp = LossSettings(h1=2, h1_schedule="ramp", h1_ramp=0.2)
    assert [h1_weight(ramp, epoch, 100, 1.0) for epoch in (0, 10, 20, 99)] == [0, 1, 2, 2]
    assert h1_weight(LossSettings(h1=2, h1_schedule="ema"), 5, 100, 0.25) == 0.5
    curriculum = ScheduleSettings(epochs=10, coarse=0.8, coarse_stride=4)
    assert [grid_stride(curriculum, epoch) for epoch in (0, 7, 8, 9)] == [4, 4, 1, 1]


def test_every_preset_of_every_problem_and_row_is_valid() -> None:
    for preset, problems in PRESETS.items():
        for problem in problems:
            for model in MODELS:
                config = config_for(problem, model, preset, 42)
                grid = min(problem_named(problem).id_grid) // (config.schedule.coarse_stride if config.schedule.coarse else 1)
                if preset != "smoke":
                    assert grid >= 2 * config.operator.modes - 1


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("schedule.epoch=3", r"unknown key.*schedule\.epochs"),
        ("epochs=3", "unknown key"),
        ("nothing.epochs=3", "no section"),
        ("schedule.epochs", "key=value"),
        ("schedule.epochs=many", "valid integer"),
        ("schedule.rate=-1", "greater than 0"),
        ("operator.modes=100000", "less than or equal"),
        ("precision=8", "32-true"),
        ("model=pace", "argument of the command"),
        ("schedule.rate=inf", "finite"),
    ],
)
def test_a_wrong_setting_is_named(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings("fno", assignment)


def test_fresh_weights_depend_on_the_seed_alone() -> None:
    problem, spec = problem_named(PROBLEM), MODELS["pace"]
    operator = settings().operator
    torch.manual_seed(1)
    first = build_model(problem, spec, operator, None, 3).state_dict()
    torch.manual_seed(2)
    second = build_model(problem, spec, operator, None, 3).state_dict()
    third = build_model(problem, spec, operator, None, 4).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], third[name]) for name in first)


def test_the_metric_log_is_one_json_object_a_line(data: Path, tmp_path: Path) -> None:
    train(settings("fno"), data, tmp_path / "run")
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [1, 2, 3, 4]


def test_a_checkpoint_of_the_first_format_still_loads_and_predicts_the_same() -> None:
    """Kept as it was written: if this fails, people's checkpoints fail. Convert old ones instead of changing the fixture."""
    fixtures = Path(__file__).parent / "fixtures"
    with np.load(fixtures / "checkpoint-format-1.npz", allow_pickle=False) as kept:
        field, expected = torch.from_numpy(kept["input"]), torch.from_numpy(kept["prediction"])
    torch.testing.assert_close(load(fixtures / "checkpoint-format-1")(field), expected, rtol=1e-4, atol=1e-6)
