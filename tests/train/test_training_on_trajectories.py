"""Trajectories in the same loop: windows, moved windows, displaced frames, long predictions."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import pacefno
from pacefno.checkpoint import FINAL
from pacefno.data.samples import Trajectories, as_precise
from pacefno.errors import UsageError
from pacefno.fields import Box, Field
from pacefno.metrics import nmse, relative_l2
from pacefno.pace import PACE
from pacefno.paper.bench import score_row
from pacefno.paper.benchmarks import BENCHMARKS, benchmark_named
from pacefno.paper.presets import config_for
from pacefno.paper.rows import TRAJECTORY_ROWS
from pacefno.train.batches import Batch, Place, WindowData, canonicalise_once, roll_out
from pacefno.train.evaluate import (
    Trained,
    load_run,
    moved_trajectories,
    ood_elements,
    pulled_back,
    repeated,
    score,
)
from pacefno.train.loop import Callbacks, StopRequest, train
from pacefno.train.model import build_model
from pacefno.train.objective import Loss, PredictionAndFrame, long_waves
from training_examples import InMemory, contents, settings, wave_source, waves

CPU = torch.device("cpu")
over_benchmarks = pytest.mark.parametrize(
    "name", [b.name for b in BENCHMARKS.values() if b.task.rollout]
)


def built(name: str, model: str, dtype: torch.dtype) -> PACE:
    """The model of a row with fresh weights."""
    return build_model(settings(model, benchmark=name)).to(dtype).eval()


def elements(name: str, count: int) -> Tensor:
    benchmark = benchmark_named(name)
    return ood_elements(benchmark.task, benchmark.ood, count)


# --- frames and rollouts --------------------------------------------------------------------------


@over_benchmarks
@pytest.mark.parametrize("model", ["pace-20", "pace-1"])
def test_the_frame_of_a_moved_window_is_moved_with_it(
    name: str, model: str, dtype: torch.dtype, tolerance: float
) -> None:
    pace, task = built(name, model, dtype), settings(model, benchmark=name).task
    window = as_precise(waves(name, 6, task.input.snapshots), dtype)
    xi = elements(name, 6)
    moved = moved_trajectories(task, window, xi)
    before, after = (pace.frame_of(part.values, part.box).xi for part in (window, moved))
    expected = task.group.compose(xi, before)
    assert float(task.group.difference(after, expected).abs().max()) < 10 * tolerance
    apart = task.group.difference(before, expected).abs().max()
    assert float(apart) > 0.01, "a frame that stands still would pass"


@over_benchmarks
def test_a_canonical_window_stands_still_at_the_nominal_step(name: str) -> None:
    pace, task = built(name, "pace-20", torch.float64), settings("pace-20", benchmark=name).task
    window = moved_trajectories(task, waves(name, 5, 20), elements(name, 5))
    canonical = pace.canonicalize(window.values, window.box)
    assert float(canonical.mean(dim=2).abs().max()) < 1e-12


WITHOUT_FRAME = {"pace-20": "fno-aug", "pace-1": "fno-aug-1", "pace-20-split": "fno-1-split"}


@over_benchmarks
@pytest.mark.parametrize("model", list(WITHOUT_FRAME))
def test_pace_follows_its_input_through_a_whole_rollout(
    name: str, model: str, dtype: torch.dtype
) -> None:
    test, xi = as_precise(waves(name, 3, 46), dtype), elements(name, 3)

    def defect(row: str) -> float:
        pace, task = built(name, row, dtype), settings(row, benchmark=name).task
        moved = moved_trajectories(task, test, xi)
        plain, _ = roll_out(pace, task, test)
        there, _ = roll_out(pace, task, moved)
        return float((pulled_back(task, moved, xi, there) - plain).norm() / plain.norm())

    assert defect(model) < (1e-10 if dtype == torch.float64 else 1e-3)
    assert defect(WITHOUT_FRAME[model]) > 0.05, "a plain one does not"


@over_benchmarks
def test_an_operator_of_one_snapshot_can_be_repeated_within_a_frame_of_twenty(
    name: str, dtype: torch.dtype, tolerance: float
) -> None:
    """Without a frame the rollout stays what it was; with one it follows its input."""
    config = settings("fno-1-split", benchmark=name)
    one = Trained(built(name, "fno-1-split", dtype), config, 1.0, True)
    test, xi = as_precise(waves(name, 3, 66), dtype), elements(name, 3)
    plain, _ = roll_out(one.model, config.task, test)
    twenty = repeated(one, 20, None)
    assert (twenty.config.task.input.snapshots, twenty.model.output.snapshots) == (20, 20)
    found, _ = roll_out(twenty.model, twenty.config.task, test)
    assert float((found - plain).norm() / plain.norm()) < tolerance
    wrapped = repeated(one, 20, {"name": "analytic"})
    task = wrapped.config.task
    moved = moved_trajectories(task, test, xi)
    still, _ = roll_out(wrapped.model, task, test)
    there, _ = roll_out(wrapped.model, task, moved)
    apart = (pulled_back(task, moved, xi, there) - still).norm() / still.norm()
    assert float(apart) < (1e-10 if dtype == torch.float64 else 1e-3)


def test_a_row_averaged_over_the_reflection_follows_it_through_a_rollout() -> None:
    """``u(x) -> -u(-x)`` is a symmetry of Kuramoto-Sivashinsky, and of no frame."""
    name, task = "kuramoto_sivashinsky", settings("pace-1", benchmark="kuramoto_sivashinsky").task
    test = waves(name, 3, 44)
    mirrored = Trajectories(-test.values.flip(-1).roll(1, dims=-1), test.box)

    def defect(row: str) -> float:
        pace = built(name, row, torch.float64)
        plain, _ = roll_out(pace, task, test)
        there, _ = roll_out(pace, task, mirrored)
        return float((-there.flip(-1).roll(1, dims=-1) - plain).norm() / plain.norm())

    assert defect("pace-1-split-mirror") < 1e-10
    assert defect("pace-1-split") > 1e-4, "without the average it does not"
    assert "pace-1-split-mirror" not in benchmark_named("kdv_easy").rows


class Count(nn.Module):
    """The last of the snapshots it sees, plus one: a rollout of it counts its own steps."""

    def __init__(self, future: int) -> None:
        super().__init__()
        self.future = future
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, field: Tensor, box: Box) -> Tensor:
        return field[:, -1:].repeat(1, self.future, 1) + self.weight


def counting(history: int, future: int) -> tuple[PACE, object]:
    task = settings("fno", benchmark="kdv").task.over(history, future)
    model = PACE(
        Count(future), pacefno.Trivial(1), input=task.input, output=task.output,
        on_undetermined="ignore",
    )  # fmt: skip
    return model.eval(), task


@pytest.mark.parametrize(("history", "future", "steps"), [(20, 20, 5), (1, 1, 100), (4, 3, 34)])
def test_a_rollout_passes_over_twenty_snapshots_and_sees_those_before_the_fortieth(
    history: int, future: int, steps: int
) -> None:
    values = torch.arange(140.0)[None, :, None].expand(2, 140, 8).contiguous()
    test = Trajectories(values, Box(torch.full((2, 1), 128.0), torch.full((2,), 0.4)))
    model, task = counting(history, future)
    prediction, truth = roll_out(model, task, test)  # type: ignore[arg-type]
    assert prediction.shape == truth.shape == (2, 100, 8)
    assert float(truth[0, 0, 0]) == 40 and float(truth[0, -1, 0]) == 139
    assert float(prediction[0, 0, 0]) == 40  # one after the last snapshot that was seen
    assert float(prediction[0, -1, 0]) == 39 + steps  # each step adds one


def test_weights_are_chosen_by_rollouts_of_as_many_trajectories_as_asked_for() -> None:
    model = built("kdv_easy", "pace-1", torch.float32)
    samples = as_precise(waves("kdv_easy", 9, 50), torch.float32)

    def error(*changes: str, rows: slice = slice(None)) -> float:
        config = settings("pace-1", *changes, benchmark="kdv_easy")
        return WindowData(config, samples, samples.select(rows)).validate(model, CPU)

    assert error("schedule.validation_samples=3") == pytest.approx(error(rows=slice(0, 9, 4)))
    assert error("schedule.validation_samples=3") != pytest.approx(error(), rel=1e-3)
    assert error("schedule.validation_samples=20") == error()


class Explode(nn.Module):
    """Finite for small inputs only."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((), 1e15))

    def forward(self, field: Tensor, box: Box) -> Tensor:
        return (field[:, -1:] + 1) * self.weight


def test_a_rollout_that_leaves_the_finite_numbers_scores_infinity(tmp_path: Path) -> None:
    task = settings("pace-1", benchmark="kdv").task
    types = {"input": task.input, "output": task.output}
    model = PACE(Explode(), pacefno.Trivial(1), on_undetermined="ignore", **types).eval()
    test = as_precise(waves("kdv", 2, 50), torch.float32)
    prediction, truth = roll_out(model, task, test)
    assert torch.isfinite(prediction[:, :2]).all() and torch.isinf(prediction[:, 3:]).all()
    assert torch.isinf(nmse(prediction, truth).sum())
    row = score(model, task, InMemory({"test": test}), ood=benchmark_named("kdv").ood)
    assert row["nmse"] == math.inf and row["ood_nmse"] == math.inf


@over_benchmarks
def test_a_boost_lowers_the_nmse_but_not_the_canonical_one(name: str) -> None:
    task = settings("pace-20", benchmark=name).task
    source = InMemory({"test": waves(name, 8, 140)})
    model = built(name, "pace-20", torch.float32)
    row = score(model, task, source, ood=benchmark_named(name).ood)
    assert row["ood_nmse"] < 0.9 * row["nmse"]
    assert row["ood_nmse_canonical"] == pytest.approx(row["nmse"], rel=1e-2)
    assert row["nmse"] == pytest.approx(100 * row["nmse_frame"]) and len(row["nmse_frames"]) == 100
    assert row["nmse"] == pytest.approx(sum(row["nmse_frames"]))


def test_trajectories_are_scored_only_with_bounds_of_their_motion() -> None:
    model, task = built("kdv", "fno", torch.float32), settings("fno", benchmark="kdv").task
    with pytest.raises(UsageError, match="ood="):
        score(model, task, InMemory({"test": waves("kdv", 2, 140)}))
    with pytest.raises(UsageError, match="rollouts find each frame at once"):
        score(model, task, InMemory({"test": waves("kdv", 2, 140)}), "oracle", ood=((), ()))


# --- batches --------------------------------------------------------------------------------------


def window_data(model: str, *changes: str, benchmark: str = "kdv_easy") -> WindowData:
    config = settings(model, "seed=7", *changes, benchmark=benchmark)
    return WindowData(config, waves(benchmark, 20, 140), waves(benchmark, 4, 140))


def drawn(model: str, epoch: int, *changes: str, rank: int = 0, world: int = 1) -> list[Batch]:
    return list(window_data(model, *changes).batches(epoch, Place(rank, world, CPU)))


def test_windows_depend_on_seed_and_epoch_alone() -> None:
    one, again, later = drawn("fno-aug", 3), drawn("fno-aug", 3), drawn("fno-aug", 4)
    assert all(torch.equal(a.input, b.input) for a, b in zip(one, again, strict=True))
    assert not torch.equal(one[0].input, later[0].input)
    assert len(drawn("fno", 0, "schedule.passes=3")) == 6
    assert window_data("fno", "schedule.passes=3").steps() == 6


def test_targets_before_they_were_moved_are_there_in_boxes_of_their_own_too() -> None:
    moved, still = (
        drawn("fno-aug", 0, f"schedule.moved={moved}", "loss.relative_to=unmoved")[0]
        for moved in ("true", "false")
    )
    assert moved.unmoved is not None and moved.box is not None
    assert torch.equal(moved.unmoved, still.target) and not torch.equal(moved.target, still.target)


def test_two_processes_share_each_batch_of_windows() -> None:
    """A batch of trajectories is cut and moved whole, and then shared: here bits are equal."""
    halves = [drawn("fno-aug", 0, rank=rank, world=2) for rank in (0, 1)]
    for whole, first, second in zip(drawn("fno-aug", 0), *halves, strict=True):
        for part in ("input", "target", "xi"):
            both = torch.cat([getattr(first, part), getattr(second, part)])
            assert torch.equal(getattr(whole, part), both)
        assert whole.box is not None and first.box is not None and second.box is not None
        assert torch.equal(whole.box.step, torch.cat([first.box.step, second.box.step]))


def test_a_target_follows_its_input_in_time() -> None:
    """Of a wave that moves by one cell per snapshot, windows are rolled copies of each other."""
    base = torch.randn(20, 1, 64, generator=torch.Generator().manual_seed(0)).double()
    values = torch.cat([base.roll(i, dims=2) for i in range(140)], dim=1)
    box = Box(torch.full((20, 1), 128.0).double(), torch.full((20,), 0.2).double())
    trajectories = Trajectories(values, box)
    data = WindowData(settings("fno-g1", benchmark="kdv_easy"), trajectories, trajectories)
    for batch in data.batches(0, Place(0, 1, CPU)):
        torch.testing.assert_close(batch.target, batch.input.roll(20, dims=2))


def test_windows_begin_where_a_test_block_would_unless_they_may_begin_anywhere() -> None:
    values = torch.arange(140.0)[None, :, None].expand(20, 140, 8).contiguous()
    box = Box(torch.full((20, 1), 128.0).double(), torch.full((20,), 0.2).double())
    counted = Trajectories(values, box)

    def starts(model: str) -> set[int]:
        data = WindowData(settings(model, benchmark="kdv_easy"), counted, counted)
        batches = [b for epoch in range(20) for b in data.batches(epoch, Place(0, 1, CPU))]
        return {int(start) for batch in batches for start in batch.input[:, 0, 0]}

    assert starts("fno") == {20, 40, 60, 80, 100}
    assert len(starts("fno-g1")) > 50 and max(starts("fno-g1")) <= 100


def test_trajectories_that_hold_no_window_are_refused() -> None:
    short = waves("kdv_easy", 8, 30)
    data = WindowData(settings("fno", benchmark="kdv_easy"), short, short)
    with pytest.raises(UsageError, match=r"no window of 20 \+ 20 snapshots .* 30 snapshots"):
        list(data.batches(0, Place(0, 1, CPU)))


def test_only_augmented_windows_are_boosted_and_rescaled() -> None:
    plain, moved = drawn("fno-g1", 0)[0], drawn("fno-aug", 0)[0]
    assert not plain.xi.any() and moved.xi.any()
    assert float(plain.input.mean(dim=2).abs().max()) < 1e-12
    assert 0.05 < float(moved.input.mean(dim=2).abs().max()) < 0.5
    assert moved.box is not None
    nominal = settings("fno", benchmark="kdv_easy").task.input.lengths[0]
    assert float((moved.box.lengths / nominal).log().abs().max()) < math.log(1.1) + 0.051


def test_jitter_is_drawn_for_models_with_a_frame_alone() -> None:
    """Half of the augmentation's strength, the same after a resume, shared like the windows."""
    one, again, later = (drawn("pace-20", epoch)[0].jitter for epoch in (3, 3, 4))
    assert one is not None and again is not None and later is not None
    assert torch.equal(one, again) and not torch.equal(one, later)
    assert 0.05 < float(one[:, 1].abs().max()) <= 0.2
    halves = [drawn("pace-20", 3, rank=rank, world=2)[0].jitter for rank in (0, 1)]
    assert torch.equal(torch.cat([half for half in halves if half is not None]), one)
    assert drawn("fno-aug", 3)[0].jitter is None
    assert drawn("pace-20", 3, "schedule.jitter=0")[0].jitter is None


def test_the_presets_that_fit_two_cores_displace_the_frames_of_models_that_have_one() -> None:
    def jitters(preset: str) -> dict[str, float]:
        kdv = benchmark_named("kdv")
        return {n: config_for(kdv, n, preset, 1).schedule.jitter for n in kdv.rows}

    assert {n for n, jitter in jitters("standard").items() if jitter} == {"pace-20", "pace-1"}
    assert not any(jitters("paper").values())


@over_benchmarks
def test_rows_with_an_exact_linear_part_differ_in_frame_and_moved_samples_alone(name: str) -> None:
    benchmark = benchmark_named(name)
    for preset in ("standard", "long"):
        rows = ("pace-1-split", "fno-aug-1-split")
        pace, plain = (config_for(benchmark, row, preset, 1) for row in rows)
        assert pace.frame is not None and plain.frame is None
        assert pace.operator == plain.operator and pace.loss == plain.loss
        assert pace.schedule.model_copy(update={"moved": True}) == plain.schedule
        assert pace.schedule.average > 0 and pace.loss.long_waves > 0

    def updates(row: str, preset: str) -> int:
        data = waves(benchmark, 512, 2, points=8)
        return (found := config_for(benchmark, row, preset, 1)).schedule.epochs * WindowData(
            found, data, data
        ).steps()

    assert updates("pace-1-split", "long") == updates("pace-1", "long") == 179_200
    assert updates("pace-1-split", "standard") == 2 * updates("pace-1", "standard") == 16_000


def test_a_displaced_frame_shows_a_moved_window_and_keeps_the_answer_in_place() -> None:
    """An operator that is exact gives the same answer in every frame; a frame that was displaced
    on one side only would not."""
    seen: list[Tensor] = []

    class Still(nn.Module):
        """The solution of u_t = 0, in the frame of the flow: it commutes with shifts and scales."""

        def forward(self, field: Tensor, box: Box) -> Tensor:
            seen.append(field)
            return field

    task = settings("pace-1", benchmark="kdv").task
    frame = task.slice.frame()
    model = PACE(Still(), task.group, input=task.input, output=task.output, frame=frame)
    both = PredictionAndFrame(model).train()
    window = waves("kdv", 4, 1)
    jitter = torch.tensor([[0.1, 0.0, 0.02]] * 4, dtype=torch.float64)
    plain, xi = both(window.values, None, window.box)
    displaced, again = both(window.values, None, window.box, jitter)
    torch.testing.assert_close(displaced, plain, atol=1e-10, rtol=0)
    assert torch.equal(xi, again)  # the loss sees the frame that was found
    assert float((seen[0] - seen[1]).abs().max()) > 0.1, "it saw the same"


# --- the loss -------------------------------------------------------------------------------------


class Displaced(nn.Module):
    """Predicts a given target plus a tenth."""

    def __init__(self, target: Tensor) -> None:
        super().__init__()
        self.target = target

    def forward(self, *_: object) -> tuple[Tensor, Tensor]:
        return self.target + 0.1, torch.zeros(len(self.target), 3)


def test_the_loss_is_relative_to_the_wave_and_not_to_the_boost() -> None:
    """Adding a constant to prediction and target changes nothing."""
    batch = drawn("fno-g1", 0)[0]

    def value(add: float, *changes: str) -> float:
        moved = Batch(batch.input + add, batch.target + add, batch.xi, box=batch.box)
        loss = Loss(settings("fno-g1", *changes, benchmark="kdv_easy"))
        return float(loss(Displaced(moved.target), moved, 0)[0])

    assert value(0.0) == pytest.approx(value(5.0), rel=1e-10)
    assert value(0.0, "loss.relative_to=moved") > 2 * value(5.0, "loss.relative_to=moved")
    assert value(5.0, "loss.error=squared") == pytest.approx(20 * 256 * 0.01)


def test_in_a_root_mean_square_the_hardest_samples_count_most() -> None:
    batch = drawn("fno-g1", 0)[0]
    target = batch.target / torch.arange(1, len(batch.target) + 1)[:, None, None]
    wave = target - target.mean(dim=2, keepdim=True)
    each = (0.1 * torch.ones_like(target)).flatten(1).norm(dim=1) / wave.flatten(1).norm(dim=1)

    def value(error: str) -> float:
        loss = Loss(settings("fno-g1", f"loss.error={error}", benchmark="kdv_easy"))
        given = Batch(batch.input, target, batch.xi, box=batch.box)
        return float(loss(Displaced(target), given, 0)[0])

    assert value("relative") == pytest.approx(float(each.mean()))
    assert value("root-mean-square") == pytest.approx(float(each.square().mean().sqrt()))
    assert value("root-mean-square") > 1.1 * value("relative")


def test_short_waves_count_less_where_long_ones_are_wanted(dtype: torch.dtype) -> None:
    x = 2 * math.pi * torch.arange(64, dtype=dtype) / 64
    wave = {n: torch.cos(n * x)[None, None] for n in (1, 4, 8)}
    found = long_waves(wave[1] + wave[4] + wave[8], 1, 4.0)
    expected = wave[1] / (1 + 1 / 16) + wave[4] / 2 + wave[8] / 5
    atol = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)
    flat = torch.ones(1, 1, 6, 5, dtype=dtype)
    torch.testing.assert_close(long_waves(flat, 2, 1.0), flat)

    class Given(nn.Module):
        def forward(self, *_: object) -> tuple[Tensor, Tensor]:
            return self.made, torch.zeros(1, 3)

    def value(error: Tensor, *changes: str) -> float:
        loss, module = Loss(settings("fno-g1", *changes, benchmark="kdv_easy")), Given()
        module.made = wave[1] + error
        zero = torch.zeros(1, 3, dtype=dtype)
        return float(loss(module, Batch(wave[1], wave[1], zero), 0)[0])

    for error in ("relative", "root-mean-square"):
        changes = ("loss.long_waves=4", f"loss.error={error}")
        assert value(0.1 * wave[8]) == pytest.approx(0.1, rel=1e-5)
        smaller = 0.1 / 5 * (1 + 1 / 16)
        assert value(0.1 * wave[8], *changes) == pytest.approx(smaller, rel=1e-5)
        assert value(0.1 * wave[1], *changes) == pytest.approx(0.1, rel=1e-5)
    with pytest.raises(UsageError, match=r"loss\.long_waves changes what a relative error is"):
        settings("fno-g1", "loss.long_waves=4", "loss.error=squared", benchmark="kdv_easy")


# --- pulled back once -----------------------------------------------------------------------------


def losses_of(data: WindowData, dtype: torch.dtype, *, once: bool) -> list[tuple[float, Tensor]]:
    """The loss of each batch and its derivatives, windows pulled back before or in the step."""
    config = data.config
    model = build_model(config).to(dtype).train()
    if once:
        canonicalise_once(data, model)
        assert data.canonical is not None
    found, loss, module = [], Loss(config), PredictionAndFrame(model).train()
    for batch in data.batches(0, Place(0, 1, CPU)):
        assert (batch.frame is not None) == once
        total, _ = loss(module, batch, 0)
        slopes = torch.autograd.grad(total, list(model.parameters()))
        found.append((float(total.detach()), torch.cat([slope.flatten() for slope in slopes])))
    return found


@over_benchmarks
@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("loss.error=squared", "loss.long_waves=0"),
        ("loss.error=root-mean-square", "loss.long_waves=3"),
        ("schedule.coarse=1", "schedule.coarse_stride=2"),
    ],
)
def test_windows_pulled_back_once_give_the_same_losses_and_derivatives(
    name: str, changes: tuple[str, ...], dtype: torch.dtype
) -> None:
    config = settings("pace-1-split", *changes, benchmark=name)
    ways = []
    for once in (False, True):
        train_split, other = (as_precise(waves(name, n, 24, points=64), dtype) for n in (16, 4))
        ways.append(losses_of(WindowData(config, train_split, other), dtype, once=once))
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-11}[dtype]
    assert len(ways[0]) == 2
    for (plain, slopes), (early, others) in zip(*ways, strict=True):
        assert early == pytest.approx(plain, rel=tolerance)
        assert float((others - slopes).norm() / slopes.norm()) < 20 * tolerance


@pytest.mark.parametrize(
    "why", ["moved", "jitter", "in a row", "no frame", "too many", "undetermined"]
)
def test_windows_are_not_pulled_back_once_where_it_would_not_be_the_same(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = "fno-aug-1-split" if why == "no frame" else "pace-1-split"
    changes = {"moved": ("schedule.moved=true",), "jitter": ("schedule.jitter=0.1",)}
    changes["in a row"] = ("schedule.unroll=2",)
    config = settings(row, *changes.get(why, ()), benchmark="kdv_easy")
    samples = waves("kdv_easy", 16, 6, points=64)
    if why == "undetermined":
        samples.values[3, 2] = 1.0  # one snapshot of one trajectory has no crest
    if why == "too many":
        monkeypatch.setattr("pacefno.train.batches.MOST_PULLED_BACK", 1000)
    data = WindowData(config, samples, samples)
    canonicalise_once(data, build_model(config).double())
    assert data.canonical is None
    assert next(data.batches(0, Place(0, 1, CPU))).frame is None


# --- several steps in a row -----------------------------------------------------------------------


@pytest.mark.parametrize("model", ["pace-1", "pace-20", "fno-aug-1", "pace-1-split"])
def test_the_loss_of_steps_in_a_row_is_the_mean_error_of_a_rollout(
    model: str, dtype: torch.dtype, tolerance: float
) -> None:
    name = "kdv_easy"
    changes = ("schedule.unroll=3", "loss.long_waves=0", "loss.relative_to=moved")
    changes += ("schedule.jitter=0",) * (not model.startswith("fno"))
    config = settings(model, *changes, benchmark=name)
    samples = as_precise(waves(name, 16, 90, points=64), dtype)
    pace = build_model(config).to(dtype)
    data = WindowData(config, samples, samples)
    canonicalise_once(data, pace)
    batch = next(data.batches(0, Place(0, 1, CPU)))
    history = config.task.output.snapshots
    assert batch.target.shape[1] == 3 * history
    total, parts = Loss(config)(PredictionAndFrame(pace), batch, 0)
    made = pace.rollout(batch.input, 3, box=batch.box)
    errors = [
        relative_l2(made[:, step], batch.target[:, step * history : (step + 1) * history])
        for step in range(3)
    ]
    expected = torch.stack(errors).mean()
    assert total.item() == pytest.approx(expected.item(), rel=100 * tolerance)
    assert parts["l2"].item() == pytest.approx(total.item())
    assert len({round(float(error.mean()), 6) for error in errors}) == 3, "they are three errors"
    if dtype == torch.float64:  # gradients go back through all three
        weights = [w for w in pace.operator.parameters() if not w.is_complex()]
        slopes = torch.autograd.grad(total, weights)
        weight, slope = max(zip(weights, slopes, strict=True), key=lambda both: both[1].norm())
        way = slope / slope.norm()
        assert float(slope.norm()) > 1e-4, "a weight that matters"
        with torch.no_grad():
            values = []
            for step in (1e-5, -2e-5):
                weight += step * way
                values.append(float(Loss(config)(PredictionAndFrame(pace), batch, 0)[0]))
        found = (values[0] - values[1]) / 2e-5
        assert found == pytest.approx(float((slope * way).sum()), rel=1e-5)


def test_windows_of_several_steps_are_moved_as_one() -> None:
    """The third block of a boosted window has been carried on for as long as it is late."""
    name, changes = "kdv_easy", ("schedule.unroll=3",)
    config = settings("fno-aug", *changes, benchmark=name)
    samples = waves(name, 16, 140, points=64)
    data = WindowData(config, samples, samples)
    batch = next(data.batches(0, Place(0, 1, CPU)))
    task = config.task
    later = Field(batch.target[:, 40:], task.input.at(range(60, 80)), batch.box)
    back = task.group.inverse(later, batch.xi).values
    one = Field(batch.input, task.input, batch.box)
    start = task.group.inverse(one, batch.xi).values
    whole = samples.values.double()
    for sample in range(len(back)):
        gaps = (whole[:, :, None] - start[sample, :1]).abs().amax(dim=3)[..., 0]
        row, begin = divmod(int(gaps.argmin()), whole.shape[1])
        torch.testing.assert_close(back[sample], whole[row, begin + 60 : begin + 80])


def test_a_training_on_steps_in_a_row_lowers_the_error(tmp_path: Path) -> None:
    changes = ("schedule.epochs=8", "schedule.passes=4", "schedule.unroll=2")
    config = settings("pace-1", *changes, benchmark="kdv_easy")
    progress = train(config, wave_source("kdv_easy", points=64), tmp_path / "run")
    assert progress.log[-1]["l2"] < 0.5 * progress.log[0]["l2"]


# --- the loop -------------------------------------------------------------------------------------


def test_a_resumed_training_on_trajectories_is_the_uninterrupted_one(tmp_path: Path) -> None:
    changes = ("schedule.average=0.9",)
    source, config = wave_source("kdv_easy"), settings("pace-1", *changes, benchmark="kdv_easy")
    train(config, source, tmp_path / "whole")
    with pytest.raises(StopRequest):
        train(config, source, tmp_path / "parts", callbacks=Callbacks(stop=lambda: True))
    assert not (tmp_path / "parts" / FINAL).exists()
    train(config, source, tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_training_on_trajectories_lowers_the_error(tmp_path: Path) -> None:
    changes = ("schedule.epochs=12", "schedule.passes=4")
    config = settings("pace-20", *changes, benchmark="kdv_easy")
    progress = train(config, wave_source("kdv_easy", points=64), tmp_path / "run")
    assert progress.log[-1]["l2"] < 0.3 * progress.log[0]["l2"]
    assert load_run(tmp_path / "run").finished


@pytest.mark.parametrize("model", list(TRAJECTORY_ROWS))
def test_every_row_of_trajectories_trains_and_is_scored(model: str, tmp_path: Path) -> None:
    name = "kuramoto_sivashinsky"
    source = wave_source(name, points=64)
    train(settings(model, "schedule.epochs=1", benchmark=name), source, tmp_path / "run")
    row = score_row(tmp_path / "run", benchmark_named(name), model, source)
    assert row["model"] == model and row["nmse"] > 0
    follows = row["equivariance_error"] < 1e-3
    assert follows == model.startswith("pace")


def test_double_precision_trains_on_trajectories_and_loads(tmp_path: Path) -> None:
    name = "kuramoto_sivashinsky"
    source = wave_source(name, points=64)
    config = settings("pace-20", "precision=64-true", "schedule.epochs=1", benchmark=name)
    train(config, source, tmp_path / "run")
    assert {p.dtype for p in pacefno.load(tmp_path / "run").parameters()} == {torch.float64}
    row = score_row(tmp_path / "run", benchmark_named(name), "pace-20", source)
    assert row["equivariance_error"] < 1e-9
