"""Samples of one's own: read a few at a time, trained on, scored; in Python and by command."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import pacefno
from own_examples import POINTS, SNAPSHOTS, waves, write_own
from pacefno.checkpoint import FINAL, load_checkpoint
from pacefno.cli import app
from pacefno.data.own import open_task
from pacefno.data.samples import (
    ArraySource,
    Grid,
    Pairs,
    Samples,
    Trajectories,
    channel_statistics,
    evenly,
    in_batches,
    split_rows,
)
from pacefno.errors import UsageError
from pacefno.fields import Field
from pacefno.grid import FieldError
from pacefno.metrics import relative_l2
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.presets import config_for
from pacefno.task import Task
from pacefno.train.batches import Place, make_data, rollouts, windows
from pacefno.train.config import with_overrides
from pacefno.train.defaults import own_settings
from pacefno.train.evaluate import Moves, by_snapshot, default_moves, finite, load_run, score_own
from pacefno.train.loop import settings_since, train
from pacefno.train.model import build_model, check_memory
from pacefno.train.rows import FIELD_ROWS, trainable
from training_examples import InMemory

RUNNER = CliRunner()
CPU = Place(0, 1, torch.device("cpu"))
FAST = ("--preset", "smoke")


def call(*words: object, code: int = 0) -> str:
    """What a command printed; the exit code is as expected and no traceback shows."""
    result = RUNNER.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output


def printed_json(text: str) -> dict[str, object]:
    """The JSON in what a command printed, read strictly."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    found: dict[str, object] = json.loads(
        text[text.index("{") : text.rindex("}") + 1], parse_constant=refuse
    )
    return found


@dataclass
class Watched:
    """Samples that note what was asked of them."""

    samples: Samples
    asked: list[list[int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def grid(self) -> tuple[int, ...]:
        return self.samples.grid

    def select(self, rows: slice | Tensor) -> Pairs | Trajectories:
        self.asked.append(torch.arange(len(self))[rows].tolist())
        return self.samples.select(rows)


@dataclass
class WatchedSource:
    source: ArraySource
    splits: dict[str, Watched] = field(default_factory=dict)

    def load(self, split: str, grid: Grid = "id") -> Samples:
        return self.splits.setdefault(split, Watched(self.source.load(split, grid)))


def pairs_source(count: int = 40) -> ArraySource:
    values = torch.from_numpy(waves(count)[:, :, 0])  # a scalar, (N, T, x, y)
    return ArraySource(values[:, :1], values[:, 1:2])


TASK = Task(
    name="waves",
    input=pacefno.FieldType.parse("h: scalar", 2),
    output=pacefno.FieldType.parse("h: scalar", 2, times=[1.0]),
    group=pacefno.Translation(2),
    train_range=(0.2, 0.2),
)


# --- samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rolled", [False, True])
def test_a_model_with_a_frame_is_standardised_as_if_its_samples_had_no_mean_flow(
    rolled: bool,
) -> None:
    """Its operator never sees the flow: constants that contain it would scale the rest away."""
    generator = torch.Generator().manual_seed(0)
    still = torch.randn(20, 4, 1, 16, generator=generator)
    still -= still.mean(dim=3, keepdim=True)
    moving = still + 30 * torch.randn(20, 1, 1, 1, generator=generator)
    type = pacefno.FieldType.parse("u: velocity", 1)
    rollout = {"rollout": {"first": 1}} if rolled else {}
    task = Task(input=type, output=type.at([1]), group=pacefno.Galilean(1), **rollout)

    def scales(values: Tensor, model: str) -> list[Tensor]:
        source = ArraySource(values) if rolled else ArraySource(values[:, 0], values[:, 1])
        found = make_data(own_settings(task, source, model, "smoke"), source).scales()
        assert found is not None
        return [part for scale in found for part in scale]

    for ours, plain in zip(scales(moving, "pace"), scales(still, "pace"), strict=True):
        assert torch.allclose(ours, plain, atol=1e-4)
    for model in ("fno", "pace-translations"):
        assert float(scales(moving, model)[1].min()) > 10, "this operator sees the flow"
    source = ArraySource(moving) if rolled else ArraySource(moving[:, 0], moving[:, 1])
    config = own_settings(task, source, "pace", "smoke")
    identity = config.model_copy(update={"frame": {"name": "identity"}})
    assert make_data(config, source).removes_flow and not make_data(identity, source).removes_flow


def test_pairs_on_two_grids_are_refused() -> None:
    with pytest.raises(FieldError, match=r"on one grid, got \(16,\) and \(8,\)"):
        ArraySource(torch.zeros(4, 1, 16), torch.zeros(4, 1, 8))


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.ma.masked_greater(np.zeros((4, 1, 16)), 1), "got a masked array: fill it"),
        (np.zeros((4, 1, 16), complex), "expected real numbers, got complex128"),
        (torch.zeros(4, 1, 16, dtype=torch.complex64), "expected real numbers, got torch.complex"),
        (np.zeros((4, 16)), r"expected \(sample, channel, \*grid\), got \(4, 16\)"),
    ],
)
def test_arrays_that_would_lose_something_are_refused(array: Any, says: str) -> None:
    with pytest.raises(FieldError, match=says):
        ArraySource(array, array)


def test_arrays_of_another_byte_order_are_read() -> None:
    values = np.random.default_rng(0).normal(size=(4, 1, 16))
    source, other = (ArraySource(v, v) for v in (values, values.astype(">f8")))
    both = (one.load("train").select(slice(None)).input for one in (source, other))
    assert torch.equal(*both)


def test_splits_share_no_sample_and_none_is_empty() -> None:
    for count in (3, 4, 10, 41):
        rows = split_rows(count, (0.8, 0.1, 0.1), seed=1)
        assert min(map(len, rows.values())) > 0
        assert sorted(torch.cat(list(rows.values())).tolist()) == list(range(count))
    with pytest.raises(UsageError, match="at least 3 samples"):
        split_rows(2, (0.8, 0.1, 0.1), seed=1)
    with pytest.raises(UsageError, match="three positive"):
        split_rows(9, (1.0, 0.0, 0.0), seed=1)


def test_arrays_of_numpy_and_torch_give_the_same_samples(tmp_path: Path) -> None:
    values = waves()
    np.save(tmp_path / "waves.npy", values)
    mapped = np.load(tmp_path / "waves.npy", mmap_mode="r")
    for split in ("train", "validation", "test"):
        a, b = (
            ArraySource(v).load(split).select(slice(None)) for v in (torch.tensor(values), mapped)
        )
        assert isinstance(a, Trajectories) and isinstance(b, Trajectories)
        assert torch.equal(a.values, b.values) and a.channels == 2
        assert a.snapshots == SNAPSHOTS and a.grid == (POINTS, POINTS)
        start = torch.arange(len(a)) % (SNAPSHOTS - 1)
        cut = ArraySource(mapped).load(split).cut(slice(None), start, 2)  # type: ignore[union-attr]
        assert torch.equal(cut.values, a.window(start, 2).values) and cut.channels == 2
    with pytest.raises(UsageError, match="unknown split 'tests'"):
        ArraySource(values).load("tests")
    with pytest.raises(pacefno.FieldError, match="pairs need a target"):
        ArraySource(values[:, 0, 0])
    with pytest.raises(pacefno.FieldError, match="as many targets as inputs"):
        ArraySource(values[:, 0], values[:-1, 1])


def test_large_samples_are_asked_for_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pacefno.data.samples.NUMBERS_AT_ONCE", 5 * POINTS**2)
    samples = pairs_source().load("train")
    sizes = [len(samples.select(rows)) for rows in in_batches(samples, 50)]
    assert max(sizes) == 5 and sum(sizes) == len(samples)
    few = torch.cat(
        [rows for rows in in_batches(samples, 3, among=7) if not isinstance(rows, slice)]
    )
    assert few.tolist() == evenly(len(samples), 7).tolist() and few[-1] == len(samples) - 1
    whole = ArraySource(torch.from_numpy(waves())).load("train")
    one = [len(whole.select(rows)) for rows in in_batches(whole, 50)]
    assert set(one) == {1}, "a trajectory of many snapshots counts by all of them"


def test_statistics_of_a_stream_are_those_of_the_whole(dtype: torch.dtype) -> None:
    fields = 3 + 2 * torch.randn(9, 2, 8, 8, dtype=dtype)
    streamed = channel_statistics(lambda: iter(fields))
    assert all(torch.equal(a, b) for a, b in zip(streamed, channel_statistics(fields), strict=True))
    fields[4, 1, 2, 3] = math.nan
    with pytest.raises(pacefno.FieldError, match="training sample 4: 1 of .* NaN"):
        channel_statistics(lambda: iter(fields))


# --- training -------------------------------------------------------------------------------------


def test_training_reads_training_samples_a_batch_at_a_time(tmp_path: Path) -> None:
    source = WatchedSource(pairs_source())
    config = with_overrides(own_settings(TASK, source, "fno", "smoke"), ["schedule.batch=4"])
    source.splits.clear()
    train(config, source, tmp_path)
    assert set(source.splits) == {"train", "validation"}, "test samples are left alone"
    assert max(map(len, source.splits["train"].asked)) == 4
    scale = load_checkpoint(tmp_path / FINAL).tensors["model"]["operator.in_mean"]
    whole = source.source.load("train").select(slice(None))
    assert isinstance(whole, Pairs)
    torch.testing.assert_close(scale, channel_statistics(whole.input)[0])


@pytest.mark.parametrize("model", ["fno-aug", "pace"])
def test_samples_that_are_read_train_as_samples_in_memory_do(model: str) -> None:
    lazy = pairs_source()
    parts = {split: lazy.load(split).select(slice(None)) for split in ("train", "validation")}
    config = own_settings(TASK, lazy, model, "smoke")
    first, second = make_data(config, lazy), make_data(config, InMemory(parts))
    for a, b in zip(first.batches(3, CPU), second.batches(3, CPU), strict=True):
        assert torch.equal(a.input, b.input) and torch.equal(a.target, b.target)
    pace = build_model(config, first.scales())
    other = build_model(config, second.scales()).state_dict()
    for name, weight in pace.state_dict().items():
        torch.testing.assert_close(weight, other[name])
    one, two = (data.validate(pace.eval(), torch.device("cpu")) for data in (first, second))
    assert one == pytest.approx(two, rel=1e-6)


def test_windows_of_trajectories_are_cut_where_asked(tmp_path: Path) -> None:
    task, source = open_task(write_own(tmp_path, history=2, rollout=True))
    config = own_settings(task, source, "fno", "smoke")
    assert config.schedule.validation == "windows"
    samples = source.load("test")
    whole = samples.select(slice(None))
    assert isinstance(whole, Trajectories)
    for number, batch in enumerate(windows(samples, task, each=3)):  # type: ignore[arg-type]
        start = [0, 2, 4][number]
        seen = whole.window(start, 3).values
        assert torch.equal(torch.cat([batch.input, batch.target], dim=1), seen)
    data = make_data(config, source)
    batch = next(data.batches(0, CPU))
    assert batch.box is None and batch.unmoved is not None
    assert batch.input.shape[1:] == (4, POINTS, POINTS)
    assert math.isfinite(data.validate(build_model(config, data.scales()), torch.device("cpu")))


def test_rollouts_in_pieces_are_those_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, source = open_task(write_own(tmp_path, rollout=True))
    model = build_model(own_settings(task, source, "pace", "smoke")).eval()
    samples = source.load("train")
    whole = [torch.cat(part) for part in zip(*rollouts(model, task, samples), strict=True)]  # type: ignore[arg-type]
    monkeypatch.setattr("pacefno.data.samples.NUMBERS_AT_ONCE", 1)
    pieces = list(rollouts(model, task, samples, most=3))  # type: ignore[arg-type]
    assert len(pieces) == len(samples)
    for made, all_of_it in zip(zip(*pieces, strict=True), whole, strict=True):
        torch.testing.assert_close(torch.cat(made), all_of_it[:, :6], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model", ["fno", "fno-aug", "pace"])
def test_trajectories_of_ones_own_are_trained_on_steps_in_a_row(model: str, tmp_path: Path) -> None:
    document = write_own(tmp_path, history=2, rollout=True)
    run, words = tmp_path / "run", ("--set", "schedule.unroll=2")
    call("train", document, *FAST, "--model", model, *words, "--out", run)
    trained = load_run(run)
    assert trained.finished and trained.config.schedule.unroll == 2
    data = make_data(trained.config, open_task(document)[1])
    batch = next(data.batches(0, CPU))
    assert batch.target.shape[1] == 2 * trained.config.task.output.size


SYMMETRISED = [name for name in trainable() if FIELD_ROWS[name].operator == "symmetrised"]


@pytest.mark.parametrize("model", sorted(set(trainable()) - set(SYMMETRISED)))
def test_every_row_has_settings_for_any_grid(model: str) -> None:
    for grid in ((9, 7), (64, 33)):
        values = torch.randn(6, 1, *grid)
        source = ArraySource(values, values.clone())
        config = own_settings(TASK, source, model, "quick")
        data = make_data(config, source)
        batch = next(data.batches(0, CPU))
        prediction = build_model(config, data.scales()).eval()(batch.input)
        assert prediction.shape == batch.target.shape
    with pytest.raises(UsageError, match="unknown preset 'paper'"):
        own_settings(TASK, source, model, "paper")


@pytest.mark.parametrize(
    "row", ["gfno", "fno-symmetrised", "pace-tta", "pace-products", "fno-nogrid"]
)
def test_a_row_with_an_operator_or_weights_of_its_own_goes_around_no_other(row: str) -> None:
    values = torch.randn(6, 1, 16, 16)
    with pytest.raises(UsageError, match="says which operator|no training of its own") as refused:
        own_settings(TASK, ArraySource(values, values.clone()), f"{row}:torch.nn:Identity", "quick")
    assert str(refused.value).endswith(": fno, fno-aug, pace, pace-free, pace-cnn can")


@pytest.mark.parametrize("model", SYMMETRISED)
def test_the_finite_symmetries_of_unknown_data_are_not_guessed(model: str) -> None:
    values = torch.randn(6, 1, 16, 16)
    with pytest.raises(UsageError, match="those of your data are not known"):
        own_settings(TASK, ArraySource(values, values.clone()), model, "quick")


def test_defaults_take_about_the_same_steps_for_few_and_many_samples() -> None:
    for count in (5, 40, 4000):
        values = torch.zeros(count, 1, 8, 8)
        source = ArraySource(values, values)
        config = own_settings(TASK, source, "fno", "quick")
        steps = make_data(config, source).steps() * config.schedule.epochs
        assert 780 <= steps <= 820


def test_a_row_that_is_moved_needs_to_know_how_far() -> None:
    still = TASK.model_copy(update={"train_range": ()})
    with pytest.raises(UsageError, match="add train_range"):
        own_settings(still, pairs_source(), "fno-aug")
    assert not own_settings(still, pairs_source(), "pace").schedule.moved
    with pytest.raises(UsageError, match="uses the weights of 'pace'"):
        own_settings(TASK, pairs_source(), "pace-tta")


def test_a_model_is_trained_on_arrays_in_three_lines(tmp_path: Path) -> None:
    values = waves()
    task = Task(
        input=pacefno.FieldType.parse("u v: velocity", 2, lengths=2.0, step=0.1),
        output=pacefno.FieldType.parse("u v: velocity", 2, lengths=2.0, step=0.1, times=[1]),
        group=pacefno.Galilean(2),
        rollout={"first": 1},  # type: ignore[arg-type]
    )
    model = pacefno.fit(task, pacefno.ArraySource(values), tmp_path, preset="smoke")
    field = torch.from_numpy(values[:2, 0])
    assert model(field).shape == field.shape
    error = pacefno.metrics.equivariance_error(model, pacefno.Galilean(2), field)
    assert float(error.max()) < 1e-5


def test_an_operator_that_no_machine_holds_is_refused() -> None:
    huge = with_overrides(own_settings(TASK, pairs_source(), "fno"), ["operator.width=200000"])
    with pytest.raises(
        UsageError, match=r"need \d+ GB, this machine has .* smaller operator.width"
    ):
        check_memory(huge)


class UsesNumpy(nn.Module):
    """An operator that cannot be built without memory, for a look at its size."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.from_numpy(np.array(torch.ones(2).tolist())))
        self.steps = int(torch.linspace(0, 1, 3).numpy().size)

    def forward(self, field: Tensor) -> Tensor:
        return field * self.scale.mean()


def test_an_operator_whose_size_cannot_be_foreseen_is_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with torch.device("meta"), pytest.raises((RuntimeError, TypeError)):
        UsesNumpy()  # there are no values to look at
    monkeypatch.setitem(pacefno.registry._CLASSES["operator"], "uses-numpy", UsesNumpy)
    config = own_settings(TASK, pairs_source(), "fno")
    check_memory(config.model_copy(update={"operator": {"name": "uses-numpy"}}))


def test_a_group_without_anything_to_find_is_refused_in_a_sentence(tmp_path: Path) -> None:
    still = Task(input=TASK.input, output=TASK.output, group=pacefno.groups.Trivial(2))
    with pytest.raises(UsageError, match="frame 'equivariant': .* use IdentityFrame"):
        pacefno.fit(still, pairs_source(), tmp_path / "run", preset="smoke")


# --- scores ---------------------------------------------------------------------------------------


def test_results_that_are_not_finite_become_null_and_are_named() -> None:
    row = {"a": 1.0, "b": math.nan, "c": {"d": [1.0, math.inf]}, "e": None, "f": "text"}
    clean, lost = finite(row)
    assert clean == {"a": 1.0, "b": None, "c": {"d": [1.0, None]}, "e": None, "f": "text"}
    assert lost == ["b", "c.d"]
    json.dumps(clean, allow_nan=False)


def test_errors_by_snapshot_pool_channels_and_count_what_is_lost_as_infinite() -> None:
    truth = torch.randn(2, 6, 8, 8)
    made = truth.clone()
    made[0, 2:4] *= 1.1
    made[1, 4:] = math.nan
    error = by_snapshot(made, truth, 2)
    assert error[0].tolist() == pytest.approx([0.0, 0.1, 0.0], abs=1e-6)
    assert error[1].tolist() == [0.0, 0.0, math.inf]


def test_moves_reach_from_the_range_of_training_to_what_there_is() -> None:
    field = Field(torch.randn(4, len(TASK.input.channels), *(16,) * TASK.dim), TASK.input)
    moves = default_moves(TASK, field)
    assert moves.low == (0.2, 0.2) and moves.high == (0.5, 0.5)
    turning = Task(
        input=pacefno.FieldType.parse("w: pseudoscalar", 2),
        output=pacefno.FieldType.parse("w: pseudoscalar", 2, times=[1.0]),
        group=pacefno.Euclidean(),
    )
    vorticity = Field(torch.randn(4, 1, 16, 16), turning.input)
    xi = default_moves(turning, vorticity).elements(turning, 50, torch.Generator().manual_seed(0))
    quarters = xi[:, 2] / (math.pi / 2)
    assert torch.allclose(quarters, quarters.round()), "other angles tear a periodic field"
    free = Moves((0.0,) * 3, (0.5, 0.5, 3.0), inexact=True)
    angles = free.elements(turning, 50, torch.Generator().manual_seed(0))[:, 2] / (math.pi / 2)
    assert not torch.allclose(angles, angles.round())


@pytest.mark.parametrize("rollout", [False, True])
def test_scores_tell_a_model_that_follows_from_one_that_does_not(
    rollout: bool, tmp_path: Path
) -> None:
    task, source = open_task(write_own(tmp_path, rollout=rollout))
    ood = source.ood
    assert ood is not None
    moves = Moves(ood.low, ood.high)
    rows = {}
    for name in ("fno", "pace"):
        config = own_settings(task, source, name, "smoke")
        model = build_model(config, make_data(config, source).scales()).eval()
        rows[name] = score_own(model, task, source, moves=moves)
    pace, fno = rows["pace"], rows["fno"]
    assert pace["ood_error_canonical"] == pytest.approx(pace["id_error"], rel=1e-3)
    assert pace["equivariance_error"] < 1e-5 and fno["equivariance_error"] > 0.05
    assert pace["undetermined"] == dict.fromkeys(task.group.coordinates, 0.0)
    assert fno["undetermined"] == {}
    if rollout:
        assert pace["rollout_error_moved"] == pytest.approx(pace["rollout_error"], rel=1e-2)
        assert len(pace["rollout_error"]) == SNAPSHOTS - 1
        refined = score_own(model, task, source, moves=moves, inference="refined")
        assert not any(key.startswith("rollout") for key in refined), "rollouts are not refined"


def test_the_error_at_rest_is_the_mean_over_the_test_samples(tmp_path: Path) -> None:
    task, source = open_task(write_own(tmp_path))
    config = own_settings(task, source, "fno", "smoke")
    model = build_model(config, make_data(config, source).scales()).eval()
    whole = source.load("test_id").select(slice(None))
    assert isinstance(whole, Pairs)
    expected = relative_l2(model(whole.input), whole.target).mean()
    row = score_own(model, task, source)
    assert row["id_error"] == pytest.approx(float(expected.detach()), rel=1e-5)
    assert row["samples"] == len(whole)


# --- commands -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file, its document, and a run that the command trained on it."""
    folder = tmp_path_factory.mktemp("own")
    task = write_own(folder)
    text = call("train", task, *FAST, "--out", folder / "run")
    assert f"pacefno evaluate {folder / 'run'}" in " ".join(text.split())
    return folder


def test_a_run_is_scored_where_it_was_trained_and_elsewhere(home: Path, tmp_path: Path) -> None:
    row = printed_json(call("evaluate", home / "run"))
    assert (row["problem"], row["model"], row["preset"]) == ("waves", "pace", "smoke")
    assert row["ood_error_canonical"] == pytest.approx(row["id_error"], rel=1e-3)
    other = write_own(tmp_path, waves(seed=5))
    elsewhere = printed_json(call("evaluate", home / "run", "--data", other))
    assert elsewhere["id_error"] != row["id_error"]
    write_own(tmp_path, history=2)
    text = call("evaluate", home / "run", "--data", other, code=2)
    assert "was trained for input" in text


def test_a_run_whose_document_was_edited_says_so(home: Path) -> None:
    document = home / "task.toml"
    text = document.read_text()
    try:
        document.write_text(text + "\n# another thought\n")
        assert "was changed since" in call("evaluate", home / "run")
        assert "was changed since" in call("audit", home / "run", document, "--samples", 2)
        assert "was changed since" in call("rollout", home / "run", document, "--steps", 1)
        assert "was changed since" in call("predict", home / "run", document, home / "made.npz")
    finally:
        document.write_text(text)
    assert "was changed since" not in call("evaluate", home / "run")


def test_another_split_of_the_same_file_says_so(home: Path) -> None:
    other = home / "other.toml"
    text = (home / "task.toml").read_text()
    other.write_text(text)
    assert "in another way" not in call("evaluate", home / "run", "--data", other)
    other.write_text(text.replace("[data]\n", "[data]\nseed = 5\n", 1))
    said = " ".join(call("evaluate", home / "run", "--data", other).split())
    assert "in another way than" in said and "(seed): samples of the training may be among" in said


def test_a_report_leaves_out_what_cannot_be_scored(home: Path, tmp_path: Path) -> None:
    document = home / "task.toml"
    text = document.read_text()
    try:
        document.write_text(text.replace("times = [1]", "times = [2]"))
        said = call("report", home / "run", "--output", tmp_path, code=2)
    finally:
        document.write_text(text)
    said = " ".join(said.split())
    assert "run is left out: the model was trained for output" in said
    assert "none of these runs could be loaded" in said


def test_samples_are_boosted_by_the_speed_of_their_flow_and_not_by_their_pressure() -> None:
    type = pacefno.FieldType.parse("u v: velocity, p: scalar", 2)
    task = Task(input=type, output=type.at([1]), group=pacefno.Galilean(2))
    x = torch.arange(16) / 16 * 2 * math.pi
    u = torch.sin(x)[None, :].expand(16, 16)
    field = torch.stack([7 + u, u.T, 1e5 + 1e3 * u])[None]
    moves = default_moves(task, Field(field, type))
    assert moves.high == pytest.approx((0.5, 0.5, 0.5**0.5, 0.5**0.5), rel=1e-4)


def test_shifts_turns_and_boosts_are_swept_apart_and_nothing_without_a_motion() -> None:
    from pacefno.paper.report.own import Scored, draw_sweeps

    group = pacefno.SpecialGalilean()
    moves = Moves((0.0,) * group.size, tuple(range(1, 1 + group.size)))
    kinds = moves.by_kind(group)
    assert {kind: sorted(sizes) for kind, sizes in kinds.items()} == {
        "shift": [0, 1],
        "turn": [2],
        "boost": [3, 4],
    }
    still = Task(input=TASK.input, output=TASK.output, group=pacefno.groups.Trivial(2))
    assert draw_sweeps(still, [Scored({"model": "fno"}, {}, {})], "still") is None
    points, far = {"shift": [(0.0, 0.1), (1.0, 0.2)]}, {"shift": "0.5 periods"}
    rows = [{"model": "fno", "preset": preset} for preset in ("quick", "standard")]
    drawing = draw_sweeps(still, [Scored(row, points, far) for row in rows], "two")
    assert drawing is not None
    lines = drawing.figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["FNO, preset quick", "FNO, preset standard"]
    assert lines[0].get_linestyle() != lines[1].get_linestyle()


def test_training_leaves_the_mode_of_torch_as_it_was(tmp_path: Path) -> None:
    before = torch.are_deterministic_algorithms_enabled()
    pacefno.fit(TASK, pairs_source(), tmp_path / "run", model="fno", preset="smoke")
    assert torch.are_deterministic_algorithms_enabled() == before


def test_a_run_knows_its_task_when_the_document_is_gone(home: Path) -> None:
    row = printed_json(call("evaluate", home / "run"))
    task = home / "task.toml"
    text = task.read_text()
    task.unlink()
    try:
        assert printed_json(call("evaluate", home / "run"))["id_error"] == row["id_error"]
    finally:
        task.write_text(text)


def test_a_finished_run_is_not_trained_again(home: Path) -> None:
    words = ("train", home / "task.toml", *FAST, "--out", home / "run")
    assert "add --resume" in call(*words, code=1)
    assert "is finished already" in call(*words, "--resume")
    assert "other settings" in call(*words, "--resume", "--set", "schedule.rate=0.1", code=2)
    document = home / "task.toml"
    text = document.read_text()
    try:  # another split: what it was trained on would be among the test samples
        document.write_text(text.replace("[data]", "[data]\nseed = 977"))
        assert "other settings (data.seed was 0, now 977)" in call(*words, "--resume", code=2)
        document.write_text(text.replace("[data]", "[data]\nsplit_by = 'trajectory'"))
        assert "is finished already" in call(*words, "--resume"), "it is what is so anyway"
    finally:
        document.write_text(text)


def test_trainings_on_two_datasets_are_told_apart() -> None:
    benchmark = benchmark_named("burgers1d")
    one, same, other = (config_for(benchmark, "fno", "smoke", 42, seed) for seed in (42, 42, 7))
    assert settings_since(one, same) == ""
    assert "data.seed was 42, now 7" in settings_since(one, other)
    unknown = one.model_copy(update={"data": {}})  # of an earlier version
    assert settings_since(unknown, other) == ""


def test_predictions_of_test_samples_come_with_their_targets(home: Path, tmp_path: Path) -> None:
    call("predict", home / "run", home / "task.toml", tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz") as found:
        error = relative_l2(*(torch.from_numpy(found[n]) for n in ("prediction", "target"))).mean()
    row = printed_json(call("evaluate", home / "run"))
    assert float(error) == pytest.approx(row["id_error"], rel=1e-4)


def test_a_size_or_name_that_cannot_be_is_one_line(home: Path, tmp_path: Path) -> None:
    words = ("train", home / "task.toml", *FAST, "--out", tmp_path / "run")
    assert "smaller operator.width" in call(*words, "--set", "operator.width=300000", code=2)
    assert "unknown model 'paces'" in call(*words, "--model", "paces", code=2)
    assert "there is no module 'nowhere'" in call(*words, "--model", "nowhere:Net", code=2)
    assert "cannot be read" in call("train", tmp_path / "task.toml", code=2)
    words = ("train", home / "task.toml", "--data", tmp_path)
    assert "--data and --data-seed are for benchmarks" in call(*words, code=2)
    assert not (tmp_path / "run").exists()


def test_fields_without_a_place_are_counted_and_said(tmp_path: Path) -> None:
    values = waves()
    values[:] = values[:, :, :, :1]  # the same at every x
    task = write_own(tmp_path, values)
    text = call("train", task, *FAST, "--out", tmp_path / "run")
    assert "100.0% of the validation samples do not determine x:" in " ".join(text.split())
    row = printed_json(call("evaluate", tmp_path / "run"))
    assert row["undetermined"] == {"x": 1.0, "y": 0.0, "velocity_x": 0.0, "velocity_y": 0.0}


def test_rotations_of_periodic_samples_are_refused_without_a_word(tmp_path: Path) -> None:
    task = write_own(tmp_path)
    text = task.read_text().replace('"galilean"\ndim = 2', '"euclidean"')
    text = text[: text.index("[ood]")]
    words = ("train", task, *FAST, "--out", tmp_path / "run", "--model", "fno-aug")
    for angle in (0.5, 1.5708, 3.14159):  # a range ends at an exact turn and holds all below it
        reach = f"train_range = [0.1, 0.1, {angle}]"
        task.write_text(text.replace("train_range = [0.1, 0.1, 0.1, 0.1]", reach))
        assert "along angle, which is not exact" in call(*words, code=2)
    with pytest.raises(UsageError, match="along angle, which is not exact"):
        pacefno.fit(*open_task(task), tmp_path / "fitted", model="fno-aug", preset="smoke")
    call(*words, "--inexact")


def test_what_is_known_of_generated_samples_alone_is_refused_for_others(home: Path) -> None:
    """A file's samples lie anywhere: how they were moved is not their frame."""
    words = ("evaluate", home / "run")
    assert "the true frame (pace-oracle) is known" in call(*words, "--model", "pace-oracle", code=2)
    assert "--data-seed is for benchmarks" in call(*words, "--data-seed", "1", code=2)


def test_arrays_are_scored_like_files() -> None:
    source = pairs_source()
    config = own_settings(TASK, source, "pace", "smoke")
    model = build_model(config, make_data(config, source).scales()).eval()
    row = score_own(model, TASK, source)
    assert row["samples"] == len(source.load("test")) == len(source.load("test_id"))
    assert row["ood_error_canonical"] == pytest.approx(row["id_error"], rel=1e-3)


def test_a_group_fno_is_told_the_kinds_of_both_sides_and_assumes_nothing_in_space() -> None:
    scalars = pacefno.FieldType.parse("a: scalar, b: scalar", 2)
    velocity = pacefno.FieldType.parse("u: velocity", 2, times=[1.0])
    task = Task(name="drive", input=scalars, output=velocity, group=pacefno.Translation(2))
    values = torch.from_numpy(waves(20)[:, 0])
    source = ArraySource(values, values + torch.tensor([1.0, 2.0])[:, None, None])
    config = own_settings(task, source, "gfno", "smoke")
    assert config.operator["output"] == "u: velocity"
    model = build_model(config, make_data(config, source).scales()).double().eval()
    turns, few = pacefno.PointGroup("p4"), values[:4].double()
    pacefno.testing.assert_equivariant(
        model, turns, few, input=scalars, output=velocity, tolerance=1e-10
    )
    cube = pacefno.FieldType.parse("u: velocity", 3)
    task = Task(name="cube", input=cube, output=cube.at([1.0]), group=pacefno.Galilean(3))
    boxes = torch.zeros(10, 3, 8, 8, 8)
    for model_name in ("gfno", "gfno-literal", "gfno-plain"):
        with pytest.raises(UsageError, match="no finite symmetry is assumed in 3 dimensions"):
            own_settings(task, ArraySource(boxes, boxes), model_name, "smoke")


def test_test_samples_are_not_turned_without_a_word(tmp_path: Path) -> None:
    task = write_own(tmp_path)
    text = task.read_text().replace('"galilean"\ndim = 2', '"euclidean"')
    text = text.replace("train_range = [0.1, 0.1, 0.1, 0.1]", "")
    text = text.replace("low = [0.1, 0.1, 0.2, 0.2]", "low = [0.1, 0.1, 0.0]")
    task.write_text(text.replace("high = [0.5, 0.5, 0.6, 0.6]", "high = [0.5, 0.5, 1.0]"))
    words = ("train", task, *FAST, "--out", tmp_path / "run", "--model", "fno")
    assert "not exact on a periodic grid" in call(*words, code=2)
    task.write_text(task.read_text() + "inexact = true\n")
    call(*words)
    call("evaluate", tmp_path / "run")


# --- files larger than memory ---------------------------------------------------------------------

LARGE = """
name = "large"
train_range = [0.1, 0.1, 0.1, 0.1]
[input]
channels = "u v: velocity"
dim = 2
lengths = 1.0
step = 1.0
times = [0]
[output]
times = [1]
[group]
name = "galilean"
dim = 2
[data]
file = "large.npy"
arrays = ["values"]
axes = "sample time channel x y"
allow = ["constant"]
"""
TRAIN_LARGE = """
import pathlib, sys
from pacefno.cli import app
try:
    app(sys.argv[1:])
finally:  # the peak of this program: what getrusage says includes the process that started it
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    peak = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    print("peak", int(peak) * 1024, file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
@pytest.mark.parametrize("rollout", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_file_larger_than_memory_is_trained_on(rollout: bool, tmp_path: Path) -> None:
    """4 GB of holes; the program itself and its batches need less than 1 GB."""
    shape = (256, 256, 2, 90, 90)
    size = 4 * math.prod(shape)
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with open(tmp_path / "large.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + size)
    more = "rollout = { first = 1 }\n" if rollout else ""
    (tmp_path / "task.toml").write_text(more + LARGE)
    words = ["train", str(tmp_path / "task.toml"), *FAST, "--out", str(tmp_path / "run")]
    words += ["--set", "loss.error=squared"]  # a relative error of nothing means nothing
    done = subprocess.run(
        [sys.executable, "-c", TRAIN_LARGE, *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    peak = int(done.stderr.split("peak")[1])
    assert size > 4e9 and peak < 1e9


OPERATOR = """
import torch

class Net(torch.nn.Module):
    def __init__(self, in_channels, out_channels, width=4):
        super().__init__()
        self.first = torch.nn.Conv2d(in_channels, width, 3, padding=1)
        self.gain = torch.nn.Parameter(torch.ones(width, 1, 1, dtype=torch.cfloat))  # complex
        self.last = torch.nn.Conv2d(width, out_channels, 3, padding=1)

    def forward(self, field):
        return self.last(torch.tanh(self.first(field)) * self.gain.real)

NOT_A_CLASS = 3
"""


WRONG = """
import torch

class Narrow(torch.nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.layer = torch.nn.Conv2d(in_channels, 1, 1)

    def forward(self, field):
        return self.layer(field)

class Wide(Narrow):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels + 3, out_channels)
"""


def test_an_operator_that_does_not_fit_is_refused_before_a_folder_is_made(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "operators_that_do_not_fit.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    words = ("train", home / "task.toml", *FAST, "--out", tmp_path / "run", "--model")
    for name, says in (("Narrow", "expected an output of shape"), ("Wide", "RuntimeError: ")):
        for around in ("", "pace:"):
            text = call(*words, f"{around}operators_that_do_not_fit:{name}", code=2)
            text = " ".join(text.split())
            assert says in text and f":{name}, given an input of shape (1, 2, " in text
    assert not (tmp_path / "run").exists()


def test_a_document_in_double_precision_is_trained_in_it(tmp_path: Path) -> None:
    path = write_own(tmp_path)
    path.write_text(path.read_text().replace("[data]", '[data]\nprecision = "float64"'))
    call("train", path, *FAST, "--out", tmp_path / "run", "--model", "fno")
    model = pacefno.load(tmp_path / "run")
    assert {p.dtype for p in model.parameters() if p.is_floating_point()} == {torch.float64}


def test_tasks_of_one_name_do_not_overwrite_each_other_in_a_report() -> None:
    from pacefno.paper.report.own import file_names

    assert file_names(["flow", "waves", "flow", "flow"]) == ["flow", "waves", "flow-2", "flow-3"]


@pytest.mark.parametrize("around", ["", "pace:"])
def test_an_operator_of_the_users_own_is_trained_and_loaded_again(
    around: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"operator_of_my_own_{len(around)}"
    (tmp_path / f"{module}.py").write_text(OPERATOR)
    monkeypatch.chdir(tmp_path)
    name, run = f"{module}:Net", tmp_path / "run"
    words = ("train", home / "task.toml", *FAST, "--out", run)
    call(*words, "--model", f"{around}{name}", "--set", "operator.width=6")
    row = printed_json(call("evaluate", run, "--model", name))
    assert row["model"] == f"{around}{name}"
    follows = row["equivariance_error"]
    assert isinstance(follows, float) and (follows < 1e-5) == bool(around)
    call("report", run, "--output", tmp_path / "report", "--model", f"{around}{name}")
    assert (tmp_path / "report" / "waves.json").exists()
    monkeypatch.delitem(pacefno.registry._CLASSES["operator"], name)
    text = call("report", run, "--output", tmp_path / "none", code=2)
    assert "left out" in text and "none of these runs could be loaded" in " ".join(text.split())
    assert f"say --model {name}" in " ".join(call("evaluate", run, code=2).split())
    net: nn.Module = importlib.import_module(module).Net(2, 2, width=6)
    loaded = pacefno.load(run, operator=net)
    field = torch.from_numpy(waves()[:2, 0])
    assert torch.isfinite(loaded(field)).all()
    assert any(part is net for part in loaded.modules())
    text = call(*words, "--resume", "--model", f"{module}:NOT_A_CLASS", code=2)
    assert "expected a class" in text
