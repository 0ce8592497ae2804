"""Forecasts of trajectories: structured frames, rollouts, LPSDA's error, training on the common loop, and the table."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from pacefno.cli import app
from pacefno.data.lpsda import MODES, file_name, write_lpsda
from pacefno.equations import TRAJECTORY_PROBLEMS, TrajectoryProblem
from pacefno.forecast import Conditions, Forecaster
from pacefno.frames.windows import WindowFrame
from pacefno.symmetry import Trajectories
from pacefno.training.config import with_overrides
from pacefno.training.forecasts import FORECASTS, Windows, WindowWorkload, build_forecaster, lpsda_rollout, nmse
from pacefno.training.load import load, load_forecaster
from pacefno.training.loop import Hooks, StopRequest
from pacefno.training.presets import config_for
from pacefno.training.run import train
from pacefno.training.score_forecasts import evaluate_forecaster, out_of_distribution, pulled_back, score
from pacefno.training.store import CheckpointError, load_checkpoint
from pacefno.training.workload import Place

over_problems = pytest.mark.parametrize("name", list(TRAJECTORY_PROBLEMS))
CPU = torch.device("cpu")


def waves(
    problem: TrajectoryProblem, count: int, frames: int, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Trajectories:
    """Travelling waves on domains of their own: no solutions, but everything a model needs to see."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(4, count, dtype=torch.float64, generator=generator)
    length, spacing = problem.length * (0.9 + 0.2 * draw[0]), problem.spacing * (0.9 + 0.2 * draw[1])
    x = torch.arange(problem.points, dtype=torch.float64) / problem.points
    time = torch.arange(frames, dtype=torch.float64)[None, :, None] * spacing[:, None, None]
    angle = 2 * math.pi * (x - time / length[:, None, None] - draw[2][:, None, None])
    u = torch.sin(angle) + 0.5 * torch.cos(2 * angle + draw[3][:, None, None]) + 0.2 * torch.sin(5 * angle)
    return Trajectories(u, length, spacing).to(dtype)


def elements(problem: TrajectoryProblem, count: int, dtype: torch.dtype) -> Tensor:
    return out_of_distribution(problem, count).to(dtype)


def forecaster(problem: TrajectoryProblem, model: str, dtype: torch.dtype) -> Forecaster:
    settings = config_for(problem.name, model, "smoke", 1).operator
    return build_forecaster(problem, FORECASTS[model], settings, seed=1).to(dtype).eval()


# --- the frame ------------------------------------------------------------------------------------------------------


@over_problems
def test_the_frame_of_a_moved_window_is_moved_with_it(name: str, dtype: torch.dtype, tolerance: float) -> None:
    problem = TRAJECTORY_PROBLEMS[name]
    frame, window = WindowFrame(problem.symmetry, problem.spacing), waves(problem, 6, 4, dtype=dtype)
    xi = elements(problem, 6, dtype)
    expected = problem.symmetry.compose(xi, frame(window))
    found = frame(problem.symmetry.act(window, xi))
    assert float(problem.symmetry.difference(found, expected).abs().max()) < 10 * tolerance
    assert float(problem.symmetry.difference(frame(window), expected).abs().max()) > 0.01  # a frame that stood still is seen


@over_problems
def test_a_pulled_back_window_stands_still_at_the_nominal_spacing(name: str) -> None:
    problem = TRAJECTORY_PROBLEMS[name]
    frame, window = WindowFrame(problem.symmetry, problem.spacing), waves(problem, 5, 4)
    canonical = problem.symmetry.inverse(
        problem.symmetry.act(window, elements(problem, 5, torch.float64)),
        frame(problem.symmetry.act(window, elements(problem, 5, torch.float64))),
    )
    assert float(frame(canonical).abs().max()) < 1e-12
    assert float(canonical.u.mean(dim=2).abs().max()) < 1e-12
    if problem.symmetry.scaling:
        torch.testing.assert_close(canonical.spacing, torch.full_like(canonical.spacing, problem.spacing))


# --- the model ------------------------------------------------------------------------------------------------------


@over_problems
@pytest.mark.parametrize("model", ["pace-20", "pace-1"])
def test_pace_follows_its_input_through_a_whole_rollout(name: str, model: str, dtype: torch.dtype) -> None:
    problem = TRAJECTORY_PROBLEMS[name]
    test = waves(problem, 3, 46, dtype=dtype)
    xi = elements(problem, 3, dtype)
    moved = problem.symmetry.act(test, xi)

    def defect(model_name: str) -> float:
        pace = forecaster(problem, model_name, dtype)
        plain, _ = lpsda_rollout(problem, pace, test)
        there, _ = lpsda_rollout(problem, pace, moved)
        return float((pulled_back(problem, moved, xi, there) - plain).norm() / plain.norm())

    with torch.no_grad():
        assert defect(model) < (1e-10 if dtype == torch.float64 else 1e-3)
        assert defect("fno-aug" if model == "pace-20" else "fno-aug-1") > 0.05  # a plain operator does not


def test_a_displaced_frame_shows_the_operator_a_moved_window_and_keeps_the_answer_in_place() -> None:
    """An exact operator gives the same answer in every frame; a frame that is displaced without being pushed out would not."""
    problem = TRAJECTORY_PROBLEMS["kdv"]
    seen: list[Tensor] = []

    class Still(nn.Module):
        """The solution of u_t = 0 in the canonical frame: it commutes with shifts and scales, but a boost moves it."""

        def forward(self, channels: Tensor) -> Tensor:
            seen.append(channels)
            return channels[:, :1]

    conditions = Conditions(problem.length, problem.spacing, problem.variation)
    model = Forecaster(Still(), conditions, 1, 1, frame=WindowFrame(problem.symmetry, problem.spacing))
    window = waves(problem, 4, 1)
    jitter = torch.tensor([[0.1, 0.0, 0.02]] * 4, dtype=torch.float64)
    plain = model(window.u, window.length, window.spacing)
    displaced = model(window.u, window.length, window.spacing, jitter)
    torch.testing.assert_close(displaced, plain, atol=1e-10, rtol=0)
    assert float((seen[0] - seen[1]).abs().max()) > 0.1  # but it saw something else


def test_jitter_is_drawn_for_canonical_models_alone() -> None:
    """Half of the augmentation's strength, the same after a resume, shared by processes like the windows."""
    one, again, later = (batches("pace-20", epoch, "schedule.jitter=0.5")[0].jitter for epoch in (3, 3, 4))
    assert one is not None and again is not None and later is not None
    assert torch.equal(one, again) and not torch.equal(one, later)
    assert 0.05 < float(one[:, 1].abs().max()) <= 0.2
    halves = [batches("pace-20", 3, "schedule.jitter=0.5", rank=rank, world=2)[0].jitter for rank in (0, 1)]
    assert torch.equal(torch.cat([half for half in halves if half is not None]), one)
    assert batches("fno-aug", 3, "schedule.jitter=0.5")[0].jitter is None
    assert batches("pace-20", 3, "schedule.jitter=0")[0].jitter is None


def test_the_presets_that_fit_two_cores_displace_the_frames_of_canonical_models() -> None:
    jitters = {name: config_for("kdv", name, "standard", 1).schedule.jitter for name in FORECASTS}
    assert {name for name, jitter in jitters.items() if jitter > 0} == {"pace-20", "pace-1"}
    assert all(config_for("kdv", name, "paper", 1).schedule.jitter == 0 for name in FORECASTS)


class Count(nn.Module):
    """The last of the frames it sees, plus one: a rollout of it counts its own steps."""

    def __init__(self, history: int, future: int) -> None:
        super().__init__()
        self.history, self.future = history, future

    def forward(self, channels: Tensor) -> Tensor:
        return channels[:, self.history - 1 : self.history].repeat(1, self.future, 1) + 1


@pytest.mark.parametrize(("history", "future", "frames", "steps"), [(20, 20, 100, 5), (1, 1, 7, 7), (4, 3, 7, 3)])
def test_a_rollout_feeds_predictions_back_and_stops_at_the_last_frame(
    history: int, future: int, frames: int, steps: int
) -> None:
    model = Forecaster(Count(history, future), Conditions(1.0, 1.0, 0.1), history, future)
    window = Trajectories(torch.zeros(2, 20, 8), torch.ones(2), torch.ones(2))
    found = model.rollout(window, frames)
    assert found.shape == (2, frames, 8)
    assert float(found[0, 0, 0]) == 1 and float(found[0, -1, 0]) == steps


class Explode(nn.Module):
    """Finite for small inputs only."""

    def forward(self, channels: Tensor) -> Tensor:
        return (channels[:, :1] + 1) * 1e15


def test_a_rollout_that_leaves_the_finite_numbers_scores_infinity() -> None:
    model = Forecaster(Explode(), Conditions(1.0, 1.0, 0.1), 1, 1)
    window = Trajectories(torch.zeros(2, 1, 8), torch.ones(2), torch.ones(2))
    found = model.rollout(window, 6)
    assert torch.isfinite(found[:, :2]).all() and torch.isinf(found[:, 3:]).all()
    assert torch.isinf(nmse(found, torch.ones_like(found)).sum())
    assert torch.isinf(nmse(torch.full((1, 1, 4), math.nan), torch.ones(1, 1, 4))).all()


def test_residual_models_predict_the_change_since_the_last_frame() -> None:
    zero = nn.Module()
    zero.forward = lambda channels: torch.zeros_like(channels[:, :2])  # type: ignore[method-assign,assignment]
    model = Forecaster(zero, Conditions(1.0, 1.0, 0.1), 2, 2, residual=True)
    u = torch.randn(3, 2, 8)
    found = model(u, torch.ones(3), torch.ones(3))
    assert torch.equal(found, u[:, -1:].expand(3, 2, 8))


def test_conditions_are_zero_at_the_nominal_sizes_and_one_at_the_usual_extremes() -> None:
    window = Trajectories(
        torch.zeros(2, 1, 4), torch.tensor([128.0, 128 * math.exp(0.1)]), torch.tensor([0.4, 0.4 * math.exp(-0.1)])
    )
    channels = Conditions(128.0, 0.4, 0.1)(window)
    torch.testing.assert_close(channels[:, :, 0], torch.tensor([[0.0, 0.0], [1.0, -1.0]]), atol=1e-5, rtol=0)


# --- LPSDA's error and rollout --------------------------------------------------------------------------------------


def test_nmse_is_normalised_frame_by_frame_and_summed() -> None:
    truth = torch.tensor([[[1.0, 1.0], [2.0, 2.0], [10.0, 10.0]]])
    prediction = truth + torch.tensor([[[0.1, 0.1], [0.2, 0.2], [0.0, 10.0]]])
    torch.testing.assert_close(nmse(prediction, truth), torch.tensor([[0.01, 0.01, 0.5]]))
    assert float(nmse(prediction, truth).sum()) == pytest.approx(0.52)


def test_the_test_rollout_passes_over_twenty_frames_and_sees_twenty() -> None:
    problem = TRAJECTORY_PROBLEMS["kdv"]
    u = torch.arange(140.0)[None, :, None].expand(2, 140, problem.points).contiguous()
    test = Trajectories(u, torch.full((2,), 128.0), torch.full((2,), 0.4))
    model = Forecaster(Count(20, 20), Conditions(128.0, 0.4, 0.1), 20, 20)
    prediction, truth = lpsda_rollout(problem, model, test)
    assert prediction.shape == truth.shape == (2, 100, problem.points)
    assert float(truth[0, 0, 0]) == 40 and float(truth[0, -1, 0]) == 139
    assert float(prediction[0, 0, 0]) == 40  # one after frame 39, the last one seen


def test_a_boost_lowers_the_nmse_but_not_the_canonical_one() -> None:
    problem = TRAJECTORY_PROBLEMS["kuramoto_sivashinsky"]
    row = score(forecaster(problem, "pace-20", torch.float32), problem, waves(problem, 8, 140, dtype=torch.float32))
    assert row["ood_nmse"] < 0.9 * row["nmse"]
    assert row["ood_nmse_canonical"] == pytest.approx(row["nmse"], rel=1e-2)
    assert row["nmse"] == pytest.approx(100 * row["nmse_frame"]) and len(row["nmse_frames"]) == 100


# --- training -------------------------------------------------------------------------------------------------------


def workload(model: str, *changes: str, problem: str = "kdv_easy") -> WindowWorkload:
    benchmark = TRAJECTORY_PROBLEMS[problem]
    config = with_overrides(config_for(problem, model, "smoke", 7), list(changes))
    return WindowWorkload(config, benchmark, FORECASTS[model], waves(benchmark, 20, 140), waves(benchmark, 4, 140))


def batches(model: str, epoch: int, *changes: str, rank: int = 0, world: int = 1) -> list[Windows]:
    return list(workload(model, *changes).batches(epoch, Place(rank, world, CPU)))


def drawn(model: str, epoch: int, *changes: str, rank: int = 0, world: int = 1) -> list[Trajectories]:
    return [batch.trajectories for batch in batches(model, epoch, *changes, rank=rank, world=world)]


def test_batches_depend_on_seed_and_epoch_alone() -> None:
    one, again, later = drawn("fno-aug", 3), drawn("fno-aug", 3), drawn("fno-aug", 4)
    assert all(torch.equal(a.u, b.u) for a, b in zip(one, again, strict=True))
    assert not torch.equal(one[0].u, later[0].u)
    assert len(drawn("fno", 0, "schedule.passes=3")) == 6 == workload("fno", "schedule.passes=3").steps()


def test_two_processes_share_each_batch() -> None:
    whole = drawn("fno-aug", 0)
    halves = [drawn("fno-aug", 0, rank=rank, world=2) for rank in (0, 1)]
    for batch, first, second in zip(whole, *halves, strict=True):
        assert torch.equal(batch.u, torch.cat([first.u, second.u]))


def test_only_augmented_windows_are_boosted_and_rescaled() -> None:
    plain, moved = drawn("fno-g1", 0)[0], drawn("fno-aug", 0)[0]
    assert float(plain.u.mean(dim=2).abs().max()) < 1e-12
    assert 0.05 < float(moved.u.mean(dim=2).abs().max()) < 0.5
    nominal = TRAJECTORY_PROBLEMS["kdv_easy"].length
    assert float((moved.length / nominal).log().abs().max()) < math.log(1.1) + 0.051


def test_the_loss_is_relative_to_the_wave_and_not_to_the_boost() -> None:
    """Adding a constant to prediction and target changes nothing."""
    task = workload("fno-g1")
    batch = drawn("fno-g1", 0)[0]
    boosted = Trajectories(batch.u + 5, batch.length, batch.spacing)

    def off_by_a_tenth(u: Tensor, length: Tensor, spacing: Tensor, jitter: Tensor | None) -> Tensor:
        return target + 0.1

    losses = []
    for part in (batch, boosted):
        target = part.u[:, 20:]
        losses.append(float(task.loss(off_by_a_tenth, Windows(part, None), None)[0]))  # type: ignore[arg-type]
    assert losses[0] == pytest.approx(losses[1])
    squared = workload("fno-g1", "loss.error=squared")
    target = batch.u[:, 20:]
    assert float(squared.loss(off_by_a_tenth, Windows(batch, None), None)[0]) == pytest.approx(20 * 256 * 0.01)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of datasets with files as LPSDA's, of waves: nothing has to be solved."""
    folder = tmp_path_factory.mktemp("datasets")
    for problem in (TRAJECTORY_PROBLEMS["kdv_easy"], TRAJECTORY_PROBLEMS["kuramoto_sivashinsky"]):
        equation, suffix = problem.file_name
        for seed, mode in enumerate(MODES):
            path = folder / problem.name / "smoke-seed42" / file_name(equation, mode, 16, suffix)
            write_lpsda(path, mode, waves(problem, 16 if mode == "train" else 8, 140, seed))
    return folder


def test_a_resumed_training_is_the_uninterrupted_one(root: Path, tmp_path: Path) -> None:
    data = root / "kdv_easy" / "smoke-seed42"
    config = config_for("kdv_easy", "pace-1", "smoke", 3)
    train(config, data, tmp_path / "whole")
    with pytest.raises(StopRequest):
        train(config, data, tmp_path / "parts", hooks=Hooks(stop=lambda: True))
    with pytest.raises(CheckpointError):
        load_checkpoint(tmp_path / "parts" / "final")
    train(config, data, tmp_path / "parts", resume=True)
    whole, parts = (load_checkpoint(tmp_path / name / "final").tensors["model"] for name in ("whole", "parts"))
    assert all(torch.equal(whole[key], parts[key]) for key in whole)


def test_training_lowers_the_error(root: Path, tmp_path: Path) -> None:
    config = with_overrides(config_for("kdv_easy", "pace-20", "smoke", 3), ["schedule.epochs=12", "schedule.passes=4"])
    progress = train(config, root / "kdv_easy" / "smoke-seed42", tmp_path / "run")
    assert progress.log[-1]["l2"] < 0.3 * progress.log[0]["l2"]
    assert load_forecaster(tmp_path / "run").finished


def test_double_precision_trains_and_loads(root: Path, tmp_path: Path) -> None:
    changes = ["precision=64-true", "schedule.epochs=1"]
    config = with_overrides(config_for("kuramoto_sivashinsky", "pace-20", "smoke", 3), changes)
    train(config, root / "kuramoto_sivashinsky" / "smoke-seed42", tmp_path / "run")
    assert {p.dtype for p in load_forecaster(tmp_path / "run").model.parameters()} == {torch.float64}
    row = evaluate_forecaster(tmp_path / "run", root / "kuramoto_sivashinsky" / "smoke-seed42")
    assert row["equivariance_error"] < 1e-9
    with pytest.raises(ValueError, match="bf16-mixed would round"):
        train(with_overrides(config, ["precision=bf16-mixed"]), root / "kuramoto_sivashinsky" / "smoke-seed42", tmp_path / "b")


# --- the commands ---------------------------------------------------------------------------------------------------


def test_bench_trains_scores_and_prints_the_table(root: Path, tmp_path: Path) -> None:
    places = ["--data", str(root), "--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    command = ["bench", "kuramoto_sivashinsky", "--preset", "smoke", "--models", "fno,pace-20", "--seeds", "42", *places]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "PACE, 20 frames" in result.output and "0.0003 ± 0.0001" in result.output  # the paper's beside ours
    rows = json.loads((tmp_path / "results" / "kuramoto_sivashinsky.json").read_text())["rows"]
    assert {row["model"] for row in rows} == {"fno", "pace-20"}
    pace = next(row for row in rows if row["model"] == "pace-20")
    assert pace["equivariance_error"] < 1e-3 and pace["finished"]
    scored = CliRunner().invoke(
        app, ["evaluate", str(tmp_path / "runs/kuramoto_sivashinsky/pace-20-smoke-seed42"), "--data", str(root)]
    )
    assert scored.exit_code == 0 and json.loads(scored.stdout)["nmse"] == pytest.approx(pace["nmse"])
    document = tmp_path / "page.md"
    document.write_text("<!-- table:kuramoto_sivashinsky -->\n\n<!-- /table -->\n")
    updated = CliRunner().invoke(app, ["report", str(tmp_path / "results"), str(document), "--update"])
    assert updated.exit_code == 0 and "PACE, 20 frames" in document.read_text()
    report = ["report", str(tmp_path / "results"), "--output", str(tmp_path / "report"), *places[:4]]
    reported = CliRunner().invoke(app, report)
    assert reported.exit_code == 0, reported.output
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Kuramoto-Sivashinsky" in page and page.count("<figure") == 2
    assert (tmp_path / "report" / "tables" / "kuramoto_sivashinsky.tex").read_text().count("PACE") == 1


def test_data_of_other_settings_and_rows_of_other_weights_are_refused(root: Path, tmp_path: Path) -> None:
    problem = TRAJECTORY_PROBLEMS["kdv_easy"]
    data = tmp_path / "kdv_easy" / "smoke-seed42"
    for mode in MODES:
        write_lpsda(data / file_name("KdV", mode, 8, "easy"), mode, waves(problem, 8, 140), recipe="another recipe")
    refused = CliRunner().invoke(app, ["train", "kdv_easy", "--model", "fno", "--preset", "smoke", "--data", str(tmp_path)])
    assert refused.exit_code == 1 and "was made with other settings" in refused.output
    run, data = tmp_path / "run", root / "kdv_easy" / "smoke-seed42"
    train(with_overrides(config_for("kdv_easy", "fno", "smoke", 1), ["schedule.epochs=1"]), data, run)
    other = CliRunner().invoke(app, ["evaluate", str(run), "--model", "pace-20", "--data", str(root)])
    assert other.exit_code == 2 and "whose weights no other row uses" in other.output
    with pytest.raises(ValueError, match="holds a forecaster"):
        load(run)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["bench", "kdv", "--models", "gfno"], "unknown model 'gfno' of trajectories: expected one of fno"),
        (["bench", "kvd"], "unknown problem 'kvd'"),
        (["train", "kdv", "--model", "pace"], "unknown model 'pace' of trajectories"),
        (["train", "kdv", "--model", "pace-1", "--preset", "large"], "unknown preset 'large'"),
    ],
)
def test_wrong_names_are_answered_with_the_right_ones(command: list[str], message: str) -> None:
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert message in result.output


def test_the_paper_preset_has_the_sizes_and_the_schedule_of_lpsda() -> None:
    """512 trajectories, batches of 16, 280 passes an epoch, 20 epochs; 21,341,844 real weights."""
    config = config_for("kdv", "fno", "paper", 42)
    assert 512 // config.schedule.batch * config.schedule.passes * config.schedule.epochs == 179_200
    model = build_forecaster(TRAJECTORY_PROBLEMS["kdv"], FORECASTS["fno"], config.operator, 0)
    assert sum(p.numel() for p in model.parameters()) == 21_341_844
    schedule = config.schedule
    assert (schedule.optimizer, schedule.rate, schedule.weight_decay, schedule.shape) == ("adamw", 4e-5, 1e-2, "step")
    assert (schedule.step_every, schedule.step_factor, config.loss.error) == (5, 0.4, "squared")
    assert config_for("kuramoto_sivashinsky", "pace-20", "paper", 42).operator.width == 64
    assert config_for("kdv_easy", "pace-20", "paper", 42).operator.width == 256
