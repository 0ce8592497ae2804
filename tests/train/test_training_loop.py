"""Training: every row learns in one loop, which resumes, survives kills and runs on two processes.

Bit equality is promised for the same machine, build and number of threads only. Wherever batches
are cut differently, as by two processes, results agree to rounding, and the tests say to which.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import pacefno
from pacefno.checkpoint import EPOCH, FINAL, CheckpointError, load_checkpoint
from pacefno.data.samples import Pairs, Source, channel_statistics
from pacefno.errors import UsageError
from pacefno.fields import Field
from pacefno.files import FolderInUseError, lock_folder
from pacefno.metrics import relative_l2
from pacefno.paper.bench import score_row
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.rows import FIELD_ROWS
from pacefno.train.batches import Batch, PairData, Place, make_data
from pacefno.train.config import LossSettings, RunConfig, ScheduleSettings, with_overrides
from pacefno.train.evaluate import load_run, score
from pacefno.train.loop import (
    Callbacks,
    DivergenceError,
    RunExistsError,
    StopRequest,
    Trainer,
    check_settings,
    make_fabric,
    read_log,
    train,
)
from pacefno.train.model import build_model
from pacefno.train.objective import MOST_BALANCE, Loss, PredictionAndFrame
from pacefno.train.schedule import anchor_weight, grid_stride, h1_weight, learning_rate
from training_examples import SMOOTH, InMemory, contents, settings

TRAINED = [name for name, row in FIELD_ROWS.items() if row.trained_as is None]
CPU = torch.device("cpu")


def after(epochs: int, run: Path) -> Callbacks:
    """A wish to stop after so many epochs."""
    return Callbacks(stop=lambda: len(read_log(run)) >= epochs)


# --- every row ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(
    smoke_source: Source, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Trains a row the first time that it is asked for, and returns its folder."""
    root = tmp_path_factory.mktemp("runs")

    def run_of(model: str) -> Path:
        if not (root / model).exists():
            changes = ("schedule.epochs=8", "schedule.rate=0.01")
            train(settings(model, *changes), smoke_source, root / model)
        return root / model

    return run_of


@pytest.mark.parametrize("model", TRAINED)
def test_every_row_trains_and_its_loss_falls(model: str, trained: Callable[[str], Path]) -> None:
    run = trained(model)
    log = read_log(run)
    assert log[-1]["l2"] < 0.9 * log[0]["l2"]
    assert load_checkpoint(run / FINAL).documents["summary"]["skipped_steps"] == 0


@pytest.mark.parametrize("model", list(FIELD_ROWS))
def test_every_row_is_scored_by_the_same_code(
    model: str, trained: Callable[[str], Path], smoke_source: Source
) -> None:
    run = trained(FIELD_ROWS[model].trained_as or model)
    row = score_row(run, benchmark_named(SMOOTH), model, smoke_source)
    keys = "problem model seed preset id_error id_error_fine ood_error ood_error_canonical "
    keys += "equivariance_error frame_error parameters train_seconds ood_seconds finished "
    keys += "device threads versions"
    assert set(keys.split()) <= set(row)
    assert json.loads(json.dumps(row)) == row
    assert row["model"] == model and 0 < row["id_error"] < 5 and 0 < row["ood_error"] < 5
    if model in ("pace", "pace-tta", "pace-analytic", "pace-gfno"):
        assert row["equivariance_error"] < 1e-5
        assert row["ood_error_canonical"] == pytest.approx(row["id_error_fine"], rel=1e-3)
    if model in ("fno", "fno-aug", "pace-regression"):
        assert row["equivariance_error"] > 1e-2
    if model == "pace-oracle":
        assert row["equivariance_error"] is None
        assert max(row["frame_error"].values()) < 1e-9


def test_a_row_of_other_weights_is_refused(
    trained: Callable[[str], Path], smoke_source: Source
) -> None:
    with pytest.raises(UsageError, match="'pace-tta' does not use the weights of 'fno'"):
        score_row(trained("fno"), benchmark_named(SMOOTH), "pace-tta", smoke_source)


def test_a_run_of_another_benchmark_is_refused(
    trained: Callable[[str], Path], smoke_source: Source
) -> None:
    with pytest.raises(UsageError, match="trained on 'burgers1d_smooth', this is 'burgers1d'"):
        score_row(trained("fno"), benchmark_named("burgers1d"), "fno", smoke_source)


def test_a_run_may_be_scored_on_any_source_of_its_task(
    trained: Callable[[str], Path], smoke_source: Source
) -> None:
    """Training and evaluation know tasks and samples: neither asks what the samples are called."""
    pairs = {s: smoke_source.load(s) for s in ("train", "validation", "test_id", "test_ood")}
    run = load_run(trained("pace"))
    row = score(run.model, run.config.task, InMemory(pairs))
    assert row["id_error"] == pytest.approx(row["id_error_fine"], rel=1e-6)
    assert row["ood_error_canonical"] == pytest.approx(row["id_error"], rel=1e-3)


# --- what a run is --------------------------------------------------------------------------------


def test_the_curriculum_trains_on_coarse_grids_first(smoke_source: Source, tmp_path: Path) -> None:
    progress = train(settings("fno", "schedule.epochs=4"), smoke_source, tmp_path / "run")
    assert [record["grid_stride"] for record in progress.log] == [2, 2, 1, 1]


def test_the_best_weights_by_validation_are_kept_not_the_last(
    smoke_source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter([0.9, 0.5, math.nan, 0.7])
    monkeypatch.setattr(PairData, "validate", lambda *_: next(errors))
    run = tmp_path / "run"
    progress = train(settings("fno"), smoke_source, run)
    assert (progress.best_epoch, progress.best_error) == (2, 0.5)
    final, last = load_checkpoint(run / FINAL), load_checkpoint(run / "epoch-000004.safetensors")
    assert final.documents["summary"]["best_epoch"] == 2
    assert final.documents["summary"]["validation_error"] == 0.5
    for name, tensor in final.tensors["model"].items():
        assert torch.equal(tensor, last.tensors["best"][name])
    assert any(
        not torch.equal(t, last.tensors["model"][n]) for n, t in final.tensors["model"].items()
    )


def test_averaged_weights_are_validated_and_kept_and_training_goes_on_without_them(
    smoke_source: Source, tmp_path: Path
) -> None:
    changes = ("schedule.epochs=2", "schedule.checkpoint_every=1", "schedule.shape=constant")
    plain, averaged = (settings("fno", *changes, *more) for more in ((), ("schedule.average=0.5",)))
    after_each: list[dict[str, torch.Tensor]] = []
    step = Trainer._average

    def recording(trainer: Trainer) -> None:
        step(trainer)
        after_each.append({n: p.detach().clone() for n, p in trainer.model.named_parameters()})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_average", recording)
        train(averaged, smoke_source, tmp_path / "averaged")
    train(plain, smoke_source, tmp_path / "plain")
    last = [load_checkpoint(tmp_path / run / EPOCH.format(2)) for run in ("plain", "averaged")]
    assert "average" not in last[0].tensors
    for name, weight in last[0].tensors["model"].items():
        assert torch.equal(weight, last[1].tensors["model"][name])  # the same steps were taken
    data = make_data(averaged, smoke_source)
    begun = dict(build_model(averaged, data.scales()).named_parameters())
    expected = {name: weight.detach().clone() for name, weight in begun.items()}
    for number, weights in enumerate(after_each):
        memory = min(0.5, (1 + number) / (10 + number))
        expected = {n: memory * e + (1 - memory) * weights[n] for n, e in expected.items()}
    for name, weight in expected.items():
        torch.testing.assert_close(last[1].tensors["average"][name], weight)
    kept = pacefno.load(tmp_path / "averaged")
    best = min(read_log(tmp_path / "averaged"), key=lambda record: record["validation_error"])
    error = data.validate(kept.eval(), CPU)
    assert error == pytest.approx(best["validation_error"], rel=1e-5)
    if best["epoch"] == 2:
        found = dict(kept.named_parameters())
        assert all(torch.equal(found[n], e) for n, e in last[1].tensors["average"].items())


def test_the_validation_error_is_that_of_the_model_that_is_kept(
    smoke_source: Source, tmp_path: Path
) -> None:
    progress = train(settings("pace"), smoke_source, tmp_path / "run")
    validation = smoke_source.load("validation")
    assert isinstance(validation, Pairs)
    with torch.no_grad():
        made = pacefno.load(tmp_path / "run")(validation.input)
    found = float(relative_l2(made, validation.target).double().mean())
    assert found == pytest.approx(progress.best_error, rel=1e-5)


def test_a_training_without_a_finite_validation_error_keeps_no_model(
    smoke_source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PairData, "validate", lambda *_: math.nan)
    with pytest.raises(DivergenceError, match="no validation error was ever finite"):
        train(settings("fno"), smoke_source, tmp_path / "run")
    assert not (tmp_path / "run" / FINAL).exists()


def test_the_metric_log_is_one_json_object_a_line(smoke_source: Source, tmp_path: Path) -> None:
    train(settings("fno"), smoke_source, tmp_path / "run")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3, 4]


def test_all_losses_of_the_paper_are_finite_and_logged(
    smoke_source: Source, tmp_path: Path
) -> None:
    changes = ["loss.h1=1", "loss.h1_schedule=ema", "loss.anchor=5", "loss.equivariance=10"]
    changes += ["loss.invariant=0.5", "schedule.epochs=2"]
    progress = train(settings("pace-cnn", *changes), smoke_source, tmp_path / "run")
    last = progress.log[-1]
    terms = {"h1": 1.0, "anchor": 5.0, "equivariance": 10.0, "invariant": 0.5}
    assert {"l2", *terms} <= set(last)
    assert all(0 < last[name] < 100 for name in terms)
    assert progress.h1_balance != 1.0


def test_balanced_terms_pull_at_the_frame_as_strongly_as_the_error(smoke_source: Source) -> None:
    changes = ["loss.balance=2", "loss.equivariance=1e-3", "loss.anchor=1e-2"]
    config = settings("pace-cnn", *changes, "loss.balance_memory=0")
    data = make_data(config, smoke_source)
    model = build_model(config, data.scales())
    batch = next(data.batches(0, Place(0, 1, CPU)))
    module, loss = PredictionAndFrame(model).train(), Loss(config)
    total, parts = loss(module, batch, 0)
    ratios = {name: float(r) for name, r in loss.ratios(parts, model.frame, 0).items()}
    assert set(ratios) == {"ratio_equivariance", "ratio_anchor"}
    loss.update(ratios)
    weighted, parts = loss(module, batch, 0)
    weights, own = loss._weights(0), list(model.frame.parameters())

    def pull(part: torch.Tensor) -> float:
        slopes = torch.autograd.grad(part, own, retain_graph=True, allow_unused=True)
        return float(torch.stack([s.norm() for s in slopes if s is not None]).norm())

    for name in ("equivariance", "anchor"):
        share = pull(getattr(weights, name) * parts[name]) / pull(parts["l2"])
        assert share == pytest.approx(2, rel=1e-3)
    assert float(weighted.detach()) != float(total.detach())
    strong = Loss(settings("pace-cnn", "loss.balance=2", "loss.equivariance=1e6"))
    ratio = float(strong.ratios(parts, model.frame, 0)["ratio_equivariance"])
    assert ratio == pytest.approx(1 / MOST_BALANCE)  # never further: the frame must go on learning


def test_a_frame_without_weights_cannot_be_balanced(smoke_source: Source, tmp_path: Path) -> None:
    config = settings("pace", "loss.balance=1").model_copy(update={"frame": {"name": "analytic"}})
    with pytest.raises(UsageError, match="a frame with weights, and this one has none"):
        train(config, smoke_source, tmp_path / "run")


@pytest.mark.parametrize("model", ["fno", "pace"])
def test_a_run_in_double_precision_trains_and_loads_in_double_precision(
    model: str, smoke_source: Source, tmp_path: Path
) -> None:
    changes = ("precision=64-true", "schedule.epochs=1")
    train(settings(model, *changes), smoke_source, tmp_path / "run")
    loaded = pacefno.load(tmp_path / "run")
    assert {p.dtype for p in loaded.parameters()} == {torch.float64}
    row = score_row(tmp_path / "run", benchmark_named(SMOOTH), model, smoke_source)
    assert row["equivariance_error"] > 1e-2 if model == "fno" else row["equivariance_error"] < 1e-12


def test_the_loss_of_a_run_in_double_precision_has_its_digits(
    smoke_source: Source, tmp_path: Path
) -> None:
    """One step on all samples: its loss is that of the fresh model, computed here."""
    changes = ("precision=64-true", "schedule.epochs=1", "schedule.batch=24", "schedule.coarse=0")
    config = settings("fno", *changes)
    log = train(config, smoke_source, tmp_path / "run").log
    pairs = smoke_source.load("train")
    assert isinstance(pairs, Pairs)
    x, y = pairs.input.double(), pairs.target.double()
    model = build_model(config, (channel_statistics(x), channel_statistics(y))).double()
    with torch.no_grad():
        expected = float(relative_l2(model(x), y).mean())
    assert log[0]["l2"] == pytest.approx(expected, rel=1e-12)


def test_mixed_precision_trains_close_to_full_precision(
    smoke_source: Source, tmp_path: Path
) -> None:
    """A bfloat16 has three digits; the frame and the transforms keep seven."""
    rough = train(settings("pace", "precision=bf16-mixed"), smoke_source, tmp_path / "rough")
    fine = train(settings("pace"), smoke_source, tmp_path / "fine")
    assert rough.log[-1]["l2"] == pytest.approx(fine.log[-1]["l2"], rel=0.02)
    assert {p.dtype for p in pacefno.load(tmp_path / "rough").parameters()} == {torch.float32}


def test_fine_tuning_begins_at_the_given_weights(smoke_source: Source, tmp_path: Path) -> None:
    first = train(settings("fno", "schedule.epochs=8"), smoke_source, tmp_path / "first")
    again = settings("fno", "schedule.epochs=1", "schedule.rate=1e-9", "schedule.coarse=0")
    start = pacefno.load(tmp_path / "first")
    second = train(again, smoke_source, tmp_path / "second", initial=start)
    assert second.best_error == pytest.approx(first.best_error, rel=1e-4)


# --- resume, kill, divergence ---------------------------------------------------------------------


@pytest.mark.parametrize("model", ["fno", "pace", "fno-symmetrised"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    model: str, smoke_source: Source, tmp_path: Path
) -> None:
    balanced = ("loss.balance=1",) if model == "pace" else ()
    config = settings(model, "loss.h1=1", "loss.h1_schedule=ema", *balanced)
    train(config, smoke_source, tmp_path / "whole")
    parts = tmp_path / "parts"
    with pytest.raises(StopRequest, match="epoch 2"):
        train(config, smoke_source, parts, callbacks=after(2, parts))
    assert not (parts / FINAL).exists()
    train(config, smoke_source, parts, resume=True)
    assert contents(parts) == contents(tmp_path / "whole")
    whole, resumed = (load_checkpoint(run / FINAL) for run in (tmp_path / "whole", parts))
    assert all(
        torch.equal(whole.tensors["model"][n], t) for n, t in resumed.tensors["model"].items()
    )


def test_the_same_seed_gives_the_same_weights_and_another_seed_does_not(
    smoke_source: Source, tmp_path: Path
) -> None:
    config = settings("fno", "schedule.epochs=1")
    other = with_overrides(config, ["seed=7"])
    for name, chosen in (("a", config), ("b", config), ("c", other)):
        train(chosen, smoke_source, tmp_path / name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert contents(tmp_path / "a")["tensors"] != contents(tmp_path / "c")["tensors"]


@pytest.mark.slow
def test_a_killed_run_continues_and_equals_an_uninterrupted_one(
    smoke_source: Source, smoke_datasets: Path, tmp_path: Path
) -> None:
    run = tmp_path / "killed"
    command = [sys.executable, "-m", "pacefno.cli", "train", SMOOTH, "--model", "fno"]
    command += ["--preset", "smoke", "--resume", "--out", str(run), "--data", str(smoke_datasets)]
    command += ["--set", "schedule.epochs=24"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    deadline = time.monotonic() + 60
    while not list(run.glob("epoch-00000[2-9].*")) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (run / FINAL).exists(), "the run ended before it could be killed"
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "resuming after epoch" in finished.stderr
    train(settings("fno", "schedule.epochs=24"), smoke_source, tmp_path / "whole")
    assert contents(run) == contents(tmp_path / "whole")


def test_a_signal_finishes_the_epoch_and_saves_it(smoke_source: Source, tmp_path: Path) -> None:
    messages: list[str] = []

    def on_epoch(progress: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    callbacks = Callbacks(on_epoch=on_epoch, on_message=messages.append)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(StopRequest, match="epoch 1"):
        train(settings("fno"), smoke_source, tmp_path / "run", callbacks=callbacks)
    assert "stopping after this epoch" in messages[0]
    assert (tmp_path / "run" / "epoch-000001.safetensors").exists()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_diverging_run_stops_with_its_last_good_checkpoint_untouched(
    smoke_source: Source, tmp_path: Path
) -> None:
    config = settings("fno", "schedule.shape=constant", "schedule.rate=1e30")
    run, messages = tmp_path / "run", list[str]()
    with pytest.raises(DivergenceError, match=r"schedule\.rate.*last good checkpoint is untouched"):
        train(config, smoke_source, run, callbacks=Callbacks(on_message=messages.append))
    assert any("left out" in text for text in messages), "no early warning"
    assert not (run / FINAL).exists()
    for checkpoint in run.glob("epoch-*"):
        weights = load_checkpoint(checkpoint).tensors["model"].values()
        assert all(torch.isfinite(tensor).all() for tensor in weights)


def test_a_damaged_newest_checkpoint_is_passed_over(smoke_source: Source, tmp_path: Path) -> None:
    config, run = settings("fno"), tmp_path / "run"
    with pytest.raises(StopRequest):
        train(config, smoke_source, run, callbacks=after(3, run))
    newest = sorted(run.glob("epoch-*"))[-1]
    newest.write_bytes(newest.read_bytes()[:100])
    messages: list[str] = []
    train(config, smoke_source, run, resume=True, callbacks=Callbacks(on_message=messages.append))
    assert any("damaged" in text and newest.name in text for text in messages)
    assert any("resuming after epoch 2" in text for text in messages)
    train(config, smoke_source, tmp_path / "whole")
    assert contents(run) == contents(tmp_path / "whole")


def test_a_run_folder_is_never_overwritten_or_shared(smoke_source: Source, tmp_path: Path) -> None:
    config, run = settings("fno", "schedule.epochs=1"), tmp_path / "run"
    train(config, smoke_source, run)
    before = (run / FINAL).read_bytes()
    with pytest.raises(RunExistsError, match="--resume"):
        train(config, smoke_source, run)
    assert (run / FINAL).read_bytes() == before
    busy = tmp_path / "other"
    with lock_folder(busy), pytest.raises(FolderInUseError, match=str(os.getpid())):
        train(config, smoke_source, busy)


def test_settings_that_differ_are_named(smoke_source: Source, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(settings("fno", "schedule.epochs=1"), smoke_source, run)
    other = settings("fno", "schedule.epochs=1", "schedule.batch=4", "operator.width=4")
    named = r"operator\.width was 8, now 4; schedule\.batch was 8, now 4"
    with pytest.raises(UsageError, match=named):
        train(other, smoke_source, run, resume=True)
    with pytest.raises(UsageError, match=named):
        check_settings(run, other)
    check_settings(run, settings("fno", "schedule.epochs=1"))
    labelled = settings("fno", "schedule.epochs=1").model_copy(update={"labels": {"model": "x"}})
    check_settings(run, labelled)  # labels are names for people


def test_a_run_of_the_old_layout_is_neither_resumed_nor_overwritten(
    smoke_source: Source, tmp_path: Path
) -> None:
    (tmp_path / "run" / "final").mkdir(parents=True)
    (tmp_path / "run" / "final" / "manifest.json").write_text("{}")
    for resume in (False, True):
        with pytest.raises(CheckpointError, match="older pacefno in another layout"):
            train(settings("fno"), smoke_source, tmp_path / "run", resume=resume)


@pytest.mark.parametrize(("model", "decays"), [("fno", [0.3]), ("pace-cnn", [0.3, 0.0])])
def test_the_estimator_has_the_rate_of_the_operator_and_no_weight_decay(
    model: str, decays: list[float], smoke_source: Source, tmp_path: Path
) -> None:
    config = settings(model, "schedule.weight_decay=0.3")
    data = make_data(config, smoke_source)
    trainer = Trainer(make_fabric(config), config, data, build_model(config), tmp_path)
    groups = trainer.optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == decays
    assert {group["lr"] for group in groups} == {config.schedule.rate}
    assert all(group["params"] for group in groups)


def test_the_number_of_threads_that_changed_is_said(
    smoke_source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run goes on with another number of threads, and the user knows what that may cost."""
    run, messages = tmp_path / "run", list[str]()
    with pytest.raises(StopRequest):
        train(settings("fno"), smoke_source, run, callbacks=after(1, run))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    train(
        settings("fno"),
        smoke_source,
        run,
        resume=True,
        callbacks=Callbacks(on_message=messages.append),
    )
    assert any("used 1 threads, now 7" in text for text in messages)


# --- two processes --------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_take_the_same_steps_as_one(smoke_source: Source, tmp_path: Path) -> None:
    """They also begin without data: the first of them makes it while the other waits."""
    changes = ["precision=64-true", "schedule.epochs=2", "loss.h1=1", "loss.h1_schedule=ema"]
    train(settings("pace", *changes), smoke_source, tmp_path / "one")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    command += ["-m", "pacefno.cli", "train", SMOOTH, "--model", "pace", "--preset", "smoke"]
    command += ["--out", str(tmp_path / "two"), "--data", str(tmp_path / "datasets")]
    command += [word for change in changes for word in ("--set", change)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.count("is finished") == 1, "one process speaks for all"
    one, two = (
        load_checkpoint(tmp_path / name / FINAL).tensors["model"] for name in ("one", "two")
    )
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-9, atol=1e-12)
    for first, second in zip(read_log(tmp_path / "one"), read_log(tmp_path / "two"), strict=True):
        assert first == pytest.approx(second, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("schedule.coarse_stride=3", r"coarse_stride = 3 does not divide the grid \(128,\)"),
        ("schedule.coarse_stride=32", r"leaves \(4,\) points of \(128,\), and 4 modes need 7"),
        ("schedule.batch=100", "more than the 24 training samples"),
    ],
)
def test_a_schedule_that_does_not_fit_the_data_is_refused(
    change: str, message: str, smoke_source: Source, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        train(settings("fno", change), smoke_source, tmp_path / "run")


def test_the_largest_batch_is_all_samples(smoke_source: Source, tmp_path: Path) -> None:
    config = settings("fno", "schedule.batch=24", "schedule.epochs=1")
    assert train(config, smoke_source, tmp_path / "run").step == 1


# --- batches --------------------------------------------------------------------------------------


def epoch_of(*, epoch: int = 0, rank: int = 0, world: int = 1, seed: int = 1) -> list[Batch]:
    """The batches of an epoch: 4 of 12 random samples each, in float64."""
    changes = (f"seed={seed}", "schedule.batch=4", "schedule.coarse=0")
    x = torch.randn(12, 1, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pairs = Pairs(x, 2 * x)
    return list(
        PairData(settings("pace", *changes), pairs, pairs).batches(epoch, Place(rank, world, CPU))
    )


def test_batches_depend_on_seed_and_epoch_alone() -> None:
    assert torch.equal(epoch_of()[0].input, epoch_of()[0].input)
    assert not torch.equal(epoch_of()[0].input, epoch_of(epoch=1)[0].input)
    assert not torch.equal(epoch_of()[0].input, epoch_of(seed=2)[0].input)


def test_the_processes_of_a_group_share_each_batch() -> None:
    """The same samples moved by the same elements. Values agree to rounding: a library may add up
    a transform of two samples in another order than one of four."""
    for whole, left, right in zip(
        epoch_of(), epoch_of(world=2), epoch_of(rank=1, world=2), strict=True
    ):
        assert torch.equal(whole.xi, torch.cat([left.xi, right.xi]))  # drawn, not computed
        for part in ("input", "target", "unmoved"):
            both = torch.cat([getattr(left, part), getattr(right, part)])
            torch.testing.assert_close(getattr(whole, part), both, rtol=0, atol=1e-12)


def test_samples_move_within_the_training_range_and_targets_move_with_them() -> None:
    task = settings().task
    reach = torch.tensor(task.train_range)
    for batch in epoch_of():
        assert (batch.xi.abs() <= reach).all() and bool((batch.xi.abs() > 0.1 * reach).any())
        assert batch.unmoved is not None
        moved = task.group.act(Field(batch.unmoved, task.output), batch.xi).values
        torch.testing.assert_close(batch.target, moved)
        later = task.group.transport(batch.xi, task.horizon)  # what it does at the final time
        at_once = task.group.act(Field(batch.unmoved, task.input), later).values
        torch.testing.assert_close(batch.target, at_once, rtol=0, atol=1e-12)


def test_samples_that_are_not_moved_are_those_of_the_data() -> None:
    pairs = Pairs(torch.randn(8, 1, 32), torch.randn(8, 1, 32))
    data = PairData(settings("fno", "schedule.coarse=0"), pairs, pairs)
    (batch,) = data.batches(0, Place(0, 1, CPU))
    assert not batch.xi.any()
    both = [tensor.flatten(1).sum(dim=1).sort().values for tensor in (batch.input, pairs.input)]
    assert torch.equal(*both)


def test_fresh_weights_depend_on_the_seed_alone() -> None:
    config = settings("pace-cnn")
    torch.manual_seed(1)
    first = build_model(config).state_dict()
    torch.manual_seed(2)
    second = build_model(config).state_dict()
    third = build_model(with_overrides(config, ["seed=4"])).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], third[name]) for name in first)


# --- schedules ------------------------------------------------------------------------------------


def test_the_one_cycle_rate_rises_to_its_peak_and_ends_at_zero() -> None:
    schedule = ScheduleSettings(epochs=10, rate=1.0, warmup=0.2)
    rates = [learning_rate(schedule, step, 10) for step in range(100)]
    assert max(rates) == pytest.approx(1.0) and rates.index(max(rates)) == 20
    assert rates[0] == pytest.approx(0.04) and rates[-1] < 1e-3


def test_the_papers_schedules() -> None:
    step = ScheduleSettings(epochs=200, rate=1e-3, shape="step", step_every=50, step_factor=0.5)
    rates = [learning_rate(step, epoch * 7, 7) for epoch in (0, 49, 50, 150)]
    assert rates == [1e-3, 1e-3, 5e-4, 1.25e-4]
    anchored = LossSettings(anchor=20, anchor_decay=0.85, anchor_floor=0.1)
    assert anchor_weight(anchored, 3) == pytest.approx(20 * 0.85**3 + 0.1)
    ramp = LossSettings(h1=2, h1_schedule="ramp", h1_ramp=0.2)
    assert [h1_weight(ramp, epoch, 100, 1.0) for epoch in (0, 10, 20, 99)] == [0, 1, 2, 2]
    assert h1_weight(LossSettings(h1=2, h1_schedule="ema"), 5, 100, 0.25) == 0.5
    curriculum = ScheduleSettings(epochs=10, coarse=0.8, coarse_stride=4)
    assert [grid_stride(curriculum, epoch) for epoch in (0, 7, 8, 9)] == [4, 4, 1, 1]


def test_gradients_are_clipped_where_that_is_asked_for(
    smoke_source: Source, tmp_path: Path
) -> None:
    """Gradients far below the 1e-8 in Adam's denominator leave the weights where they were."""

    def moved(name: str, *changes: str) -> float:
        config = settings("fno", "schedule.epochs=1", "schedule.weight_decay=0", *changes)
        train(config, smoke_source, tmp_path / name)
        fresh, weights = build_model(config), load_checkpoint(tmp_path / name / FINAL).tensors
        own = fresh.operator.state_dict()
        prefix = "operator.operator."  # inside the one that standardises
        return max(float((weights["model"][prefix + n] - t).abs().max()) for n, t in own.items())

    assert moved("tight", "schedule.clip=1e-12") < 1e-6
    assert moved("loose") > 1e-3


def config_kept(run: Path) -> RunConfig:
    return RunConfig.model_validate_json((run / "config.json").read_text())


def test_a_run_folder_says_how_it_was_trained(smoke_source: Source, tmp_path: Path) -> None:
    config = settings("fno", "schedule.epochs=1")
    train(config, smoke_source, tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.json", "metrics.jsonl", FINAL, "epoch-000001.safetensors"} <= names
    assert config_kept(tmp_path / "run").model_dump() == config.model_dump()
