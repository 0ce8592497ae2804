"""A model on the test splits: the numbers of one table row, all by the same code path."""

from __future__ import annotations

import math
import platform
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pacefno.checkpoint import FINAL
from pacefno.data.samples import (
    Grid,
    Pairs,
    Samples,
    Source,
    Trajectories,
    TrajectorySamples,
    as_precise,
    in_batches,
)
from pacefno.errors import UsageError
from pacefno.fields import AXES, Box, Field
from pacefno.groups import Group
from pacefno.inference import (
    BATCH,
    Inference,
    predict,
    predict_batches,
    read_model,
    real_weight,
    restore,
)
from pacefno.metrics import (
    canonical_pair,
    equivariance_error,
    frame_error,
    nmse,
    relative_l2,
    relative_l2_channels,
    typical_speed,
)
from pacefno.pace import PACE, Prediction, UndeterminedFrameWarning
from pacefno.pde.initial import generator_for
from pacefno.registry import Spec
from pacefno.task import Rollout, Task
from pacefno.train.batches import ROLLOUT_BATCH, Batch, pairs_of, roll_out, windows
from pacefno.train.config import RunConfig, stored_config
from pacefno.train.defaults import frame_spec, in_steps
from pacefno.train.model import build_model
from pacefno.train.rows import Row, row_named

EQUIVARIANCE_SAMPLES = 20
EQUIVARIANCE_SNAPSHOTS = 20  # the first ones: later a chaotic flow amplifies round-off
EQUIVARIANCE_TRAJECTORIES = 64
Scores = dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """A run's model with what is known about it."""

    model: PACE
    config: RunConfig
    train_seconds: float
    finished: bool


def load_run(run: Path, frame: Spec | None = None) -> Trained:
    """The model of a run with its configuration; ``frame`` replaces the trained frame."""
    checkpoint, weights = read_model(run)
    config = stored_config(run, checkpoint.documents)
    seconds = float(checkpoint.documents["timing"]["seconds"])
    model = restore(run, checkpoint, weights, frame=frame)
    return Trained(model, config, seconds, (run / FINAL).exists() or run.name == FINAL)


def load_as(run: Path, rows: Mapping[str, Row], model: str) -> Trained:
    """The model of a row, from the run that trained it or whose weights it shares."""
    own, row = load_run(run), row_named(rows, model)
    trained = own.config.labels.get("model", "")
    if trained not in (model, row.trained_as):
        raise UsageError(
            f"{model!r} does not use the weights of {trained!r}, which is what {run} trained"
        )
    frame = frame_spec(row, own.config.task)
    if row.history not in (None, own.config.task.input.snapshots):
        return repeated(own, row.history, frame)
    # The same frame keeps its trained weights: a refined row differs in its inference alone.
    return own if frame == own.config.frame else load_run(run, frame)


def repeated(trained: Trained, snapshots: int, frame: Spec | None) -> Trained:
    """A run's operator of one snapshot repeated within one frame: so many are seen and predicted.

    ``frame`` must be one without weights: that of the run was trained on single snapshots.
    """
    task = trained.config.task.over(snapshots)
    changes = {"task": task, "operator": in_steps(trained.config.operator, task), "frame": frame}
    config = trained.config.model_copy(update=changes)
    model = build_model(config)
    step = model.operator.get_submodule("operator")
    step.load_state_dict(trained.model.operator.state_dict())
    model.to(real_weight(trained.model, torch.empty(0))).eval()
    return replace(trained, model=model, config=config)


def score(
    model: PACE,
    task: Task,
    source: Source,
    inference: Inference = "one-shot",
    *,
    ood: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
) -> Scores:
    """The measured part of a row, with the keys of ``results/*.json``.

    ``ood`` are the bounds of the elements that move test trajectories; pairs are stored moved.
    """
    if task.rollout is None:
        row = _score_pairs(model, task, source, inference)
    else:
        if ood is None:
            raise UsageError("score: trajectories are moved here, so say by how much (ood=...)")
        if inference != "one-shot":
            raise UsageError("score: rollouts find each frame at once, so inference is 'one-shot'")
        row = _score_rollouts(model, task, source, ood)
    row["parameters"] = sum(p.numel() for p in model.parameters())
    return row


def machine(model: nn.Module) -> Scores:
    """Where the numbers were made."""
    versions = {
        "pacefno": version("pacefno"),
        "torch": str(torch.__version__),  # with its build, which a package's version may leave out
        "numpy": version("numpy"),
        "python": platform.python_version(),
    }
    device = str(real_weight(model, torch.empty(0)).device)
    return {"device": device, "threads": torch.get_num_threads(), "versions": versions}


# --- pairs ----------------------------------------------------------------------------------------


def _score_pairs(model: PACE, task: Task, source: Source, inference: Inference) -> Scores:
    row: Scores = {}
    for key, grid in (("id_error", "id"), ("id_error_fine", "ood")):
        pairs = load_pairs(source, "test_id", grid)
        made = predict_batches(model, pairs.input, inference)
        row |= _errors(key, task, made.values, pairs.target)
    row |= _moved_errors(model, task, load_pairs(source, "test_ood", "ood"), inference)
    fine = load_pairs(source, "test_id", "ood").input[:EQUIVARIANCE_SAMPLES]
    fine = fine.to(real_weight(model, fine))
    row["equivariance_error"] = _equivariance(model, task, fine, inference)
    return row


def load_pairs(source: Source, split: str, grid: Any = "id") -> Pairs:
    """A split of pairs; an error for a source of trajectories."""
    pairs = source.load(split, grid)
    if not isinstance(pairs, Pairs):
        raise TypeError(f"expected pairs, {split} holds {type(pairs).__name__}")
    return pairs


def _moved_errors(model: PACE, task: Task, pairs: Pairs, inference: Inference) -> Scores:
    xi = pairs.elements
    started = time.perf_counter()
    made = predict_batches(model, pairs.input, inference, true=xi)
    seconds = time.perf_counter() - started
    row = _errors("ood_error", task, made.values, pairs.target)
    back = canonical_pair(task.group, task.output, xi, made.values, pairs.target)
    row |= _errors("ood_error_canonical", task, *back)
    if pairs.resolved is not None:
        row |= _errors("ood_error_resolved", task, made.values, pairs.resolved)
        row |= _errors("group_defect", task, pairs.target, pairs.resolved)
        if task.group.moves_in_time:  # a boost adds its own energy to what is divided by
            both = canonical_pair(task.group, task.output, xi, pairs.target, pairs.resolved)
            row |= _errors("group_defect_canonical", task, *both)
    row["frame_error"] = None
    if model.group.coordinates == task.group.coordinates and task.group.size:
        error = frame_error(task.group, made.frame.xi.double(), xi)
        names = task.group.coordinates
        row["frame_error"] = {name: float(error[:, i].mean()) for i, name in enumerate(names)}
    row["ood_seconds"] = round(seconds, 3)
    return row


def _equivariance(model: PACE, task: Task, field: Tensor, inference: Inference) -> float | None:
    if inference == "oracle":
        return None  # the true frame is not a function of the field

    def function(x: Tensor) -> Tensor:
        return predict(model, x, inference).values

    error = equivariance_error(function, task.group, field, input=task.input, output=task.output)
    return float(error.mean())


def _errors(key: str, task: Task, prediction: Tensor, target: Tensor) -> Scores:
    """The headline error, its spread over samples, and for several channels each one's."""
    return _summary(key, _measured(task, prediction, target))


def _measured(task: Task, prediction: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Errors of each sample, by what is added to the key of the headline error."""
    found = {"": relative_l2(prediction, target, per_channel=task.per_channel).double()}
    if target.shape[1] > 1:
        found["_pooled"] = relative_l2(prediction, target).double()
        found["_channels"] = relative_l2_channels(prediction, target).double()
    return found


def _summary(key: str, found: dict[str, Tensor]) -> Scores:
    """Means over samples, and the spread of the headline error."""
    row: Scores = {key: float(found[""].mean()), f"{key}_std": float(found[""].std())}
    if "_pooled" in found:
        row[f"{key}_pooled"] = float(found["_pooled"].mean())
        row[f"{key}_channels"] = found["_channels"].mean(dim=0).tolist()
    return row


# --- trajectories ---------------------------------------------------------------------------------


@torch.no_grad()
def _score_rollouts(
    model: PACE, task: Task, source: Source, ood: tuple[tuple[float, ...], tuple[float, ...]]
) -> Scores:
    """LPSDA's NMSE on the test trajectories as they are, and moved beyond the training range."""
    test = source.load("test")
    assert isinstance(test, Trajectories) and task.rollout is not None
    test = as_precise(test, real_weight(model, test.values).dtype)
    prediction, truth = roll_out(model, task, test)
    row = _nmse("nmse", nmse(prediction, truth))
    xi = ood_elements(task, ood, len(test))
    moved = moved_trajectories(task, test, xi)
    started = time.perf_counter()
    moved_prediction, moved_truth = roll_out(model, task, moved)
    row["ood_seconds"] = round(time.perf_counter() - started, 3)
    row |= _nmse("ood_nmse", nmse(moved_prediction, moved_truth))
    back = pulled_back(task, moved, xi, moved_prediction)
    row |= _nmse("ood_nmse_canonical", nmse(back, truth))
    first = EQUIVARIANCE_SNAPSHOTS * test.channels
    ours, followed = (part[:EQUIVARIANCE_TRAJECTORIES, :first] for part in (prediction, back))
    error = relative_l2(followed, ours)
    row["equivariance_error"] = float(error.double().mean())
    return row


def ood_elements(
    task: Task, ood: tuple[tuple[float, ...], tuple[float, ...]], count: int
) -> Tensor:
    """Elements beyond the training range; the same for every model."""
    return task.group.sample(*ood, count, generator_for("out of distribution", task.name))


def moved_trajectories(task: Task, trajectories: Trajectories, xi: Tensor) -> Trajectories:
    """Whole trajectories moved by one element each, from their first snapshot on."""
    type = task.input.at(range(trajectories.snapshots))
    field = task.group.act(Field(trajectories.values, type, trajectories.box), xi)
    return Trajectories(field.values, field.box, trajectories.channels)


def pulled_back(task: Task, moved: Trajectories, xi: Tensor, prediction: Tensor) -> Tensor:
    """Predictions of moved trajectories without the motion, which would flatter them."""
    assert task.rollout is not None
    type = task.input.at(range(task.rollout.first, moved.snapshots))
    return task.group.inverse(Field(prediction, type, moved.box), xi).values


def _nmse(key: str, errors: Tensor) -> Scores:
    """Errors ``(B, S)``: their sum over snapshots with its spread, their mean, and each one's."""
    total = errors.double().sum(dim=1)
    return {
        key: float(total.mean()),
        f"{key}_std": float(total.std()),
        f"{key}_frame": float(errors.double().mean()),
        f"{key}_frames": errors.double().mean(dim=0).tolist(),
    }


# --- samples of one's own -------------------------------------------------------------------------

EVALUATION_WINDOWS = 8  # of each test trajectory, evenly spaced
ROLLED_OUT = 50  # snapshots of a test trajectory that are predicted at most
SWEEP = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)  # shares of the largest shift and boost
LOOKED_AT = 256  # samples whose frames are looked at after a training
BEYOND = 3.0  # velocities out of distribution, in multiples of those in training


@dataclass(frozen=True)
class Moves:
    """How far test samples are moved: magnitudes from low to high, one per coordinate.

    Only elements that are exact on a periodic grid, a rotation becomes the nearest quarter turn,
    unless ``inexact``.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    seed: int = 0
    inexact: bool = False

    def elements(self, task: Task, count: int, generator: torch.Generator) -> Tensor:
        """One element per sample; ``generator`` gives every model the same ones."""
        xi = task.group.sample(self.low, self.high, count, generator)
        return xi if self.inexact else task.group.composable(xi)

    def by_kind(self, group: Group) -> dict[str, dict[int, float]]:
        """How far at most, by the kind of motion and the number of the coordinate."""
        found: dict[str, dict[int, float]] = {}
        for i, (name, period) in enumerate(zip(group.coordinates, group.periods, strict=True)):
            kind = "shift" if name in AXES else "turn" if math.isfinite(period) else "boost"
            found.setdefault(kind, {})[i] = self.high[i]
        return found

    def generator(self, task: Task) -> torch.Generator:
        return generator_for("out of distribution", task.name, self.seed)


def default_moves(task: Task, field: Field) -> Moves:
    """From the range of training to half a period; velocities to three times that range.

    Without a range of training from 0 on, and velocities up to that of the flow in ``field``.
    """
    group = task.group
    low = task.train_range or (0.0,) * group.size
    speed = typical_speed(field)
    high = [
        period / 2 if math.isfinite(period) else BEYOND * least or speed * ("velocity" in name)
        for name, least, period in zip(group.coordinates, low, group.periods, strict=True)
    ]
    return Moves(tuple(map(min, low, high)), tuple(high))


def own_batches(
    task: Task,
    source: Source,
    grid: Grid = "id",
    split: str | None = None,
    among: int | None = None,
) -> Iterator[Batch]:
    """A split of a source, the test one if not said, some samples at a time.

    Pairs, or windows of trajectories; with ``among`` of at most so many, evenly chosen.
    """
    if task.rollout is not None:
        whole = _trajectories(source.load(split or "test", grid))
        yield from windows(whole, task, EVALUATION_WINDOWS, among)
        return
    samples = source.load(split or "test_id", grid)
    for rows in in_batches(samples, BATCH, among=among):
        few = pairs_of(samples.select(rows))
        yield Batch(few.input, few.target, task.group.identity(len(few)), few.target)


def _trajectories(samples: Samples) -> TrajectorySamples:
    if not isinstance(samples, TrajectorySamples):
        raise UsageError("the task is about trajectories, the samples are pairs")
    return samples


@torch.no_grad()
def score_own(
    model: PACE,
    task: Task,
    source: Source,
    *,
    moves: Moves | None = None,
    inference: Inference = "one-shot",
) -> Scores:
    """Errors on held-out samples of one's own, at rest and moved; nothing is read all at once.

    ``id_error`` is that of the test samples as they are, ``ood_error`` that of the same samples
    moved, and ``ood_error_canonical`` the same without the motion, so that the norm of a boost does
    not flatter it: compare it with ``id_error`` (on a finer test grid ``id_error_fine``).
    ``equivariance_error`` is how far a prediction fails to follow its input. ``undetermined`` is
    the share of samples that do not determine a coordinate of their frame. Rollouts find each frame
    at once, so their errors are left out of a row that is ``inference`` refined.
    """
    if inference == "oracle":
        raise UsageError(
            "the true frame (pace-oracle) is known of generated samples only, which lie on the "
            "slice: score pace or pace-tta on your own data"
        )
    found: dict[str, list[Any]] = {}

    def note(key: str, value: Any) -> None:
        found.setdefault(key, []).append(value)

    weight = real_weight(model, torch.empty(0))
    fine = _grid(task, source, "ood") != _grid(task, source, "id")
    generator: torch.Generator | None = None
    grids: tuple[Grid, ...] = ("id", "ood") if fine else ("id",)
    for grid in grids:
        for batch in own_batches(task, source, grid):
            x, y = batch.input.to(weight), batch.target.to(weight)
            box = None if batch.box is None else batch.box.to(weight.device)
            made = _quietly(model, x, inference, box)
            note("id_error_fine" if grid == "ood" else "id_error", _measured(task, made.values, y))
            if fine and grid == "id":
                continue
            if moves is None:
                moves = default_moves(task, Field(x, task.input, box))
            generator = moves.generator(task) if generator is None else generator
            xi = moves.elements(task, len(x), generator).to(weight.device)
            moved = task.group.act(Field(x, task.input, box), xi)
            target = task.group.act(Field(y, task.output, box), xi)
            there = _quietly(model, moved.values, inference, moved.box)
            note("ood_error", _measured(task, there.values, target.values))
            back = task.group.inverse(Field(there.values, task.output, moved.box), xi).values
            note("ood_error_canonical", _measured(task, back, y))
            note("equivariance_error", relative_l2(back, made.values).double())
            note("undetermined", (made.frame.quality <= 0).double())
    assert moves is not None
    row: Scores = {}
    for key in ("id_error", "id_error_fine", "ood_error", "ood_error_canonical"):
        if key in found:
            parts = {name: torch.cat([p[name] for p in found[key]]) for name in found[key][0]}
            row |= _summary(key, parts)
    row["equivariance_error"] = float(torch.cat(found["equivariance_error"]).mean())
    share = torch.cat(found["undetermined"]).mean(dim=0).tolist()
    row["undetermined"] = dict(zip(model.group.coordinates, share, strict=True))
    row["samples"] = sum(len(part) for part in found["undetermined"])
    row["moved_by"] = {
        name: [low, high]
        for name, low, high in zip(task.group.coordinates, moves.low, moves.high, strict=True)
    }
    if task.rollout is not None and inference == "one-shot":
        row |= _own_rollouts(model, task, _trajectories(source.load("test")), moves)
    row["parameters"] = sum(p.numel() for p in model.parameters())
    return row


@torch.no_grad()
def sweep_own(
    model: PACE, task: Task, source: Source, moves: Moves
) -> dict[str, list[tuple[float, float]]]:
    """The error in the canonical frame against the size of a shift, a turn and a boost, each alone.

    Sizes are those of every coordinate of that kind, up to the largest of ``moves``; the share of
    it and the mean error, over a few test samples.
    """
    weight, found = real_weight(model, torch.empty(0)), dict[str, list[tuple[float, float]]]()
    batches = list(own_batches(task, source, among=BATCH))
    for name, part in moves.by_kind(task.group).items():
        mask = torch.zeros(task.group.size, dtype=torch.float64)
        mask[list(part)] = 1
        for share in SWEEP:
            errors, generator = [], moves.generator(task)
            for batch in batches:
                x, y = batch.input.to(weight), batch.target.to(weight)
                box = None if batch.box is None else batch.box.to(weight.device)
                far = share * torch.tensor(moves.high, dtype=torch.float64) * mask
                xi = task.group.sample(far.tolist(), far.tolist(), len(x), generator)
                xi = (xi if moves.inexact else task.group.composable(xi)).to(weight.device)
                moved = task.group.act(Field(x, task.input, box), xi)
                made = _quietly(model, moved.values, "one-shot", moved.box).values
                back = task.group.inverse(Field(made, task.output, moved.box), xi).values
                errors.append(relative_l2(back, y, per_channel=task.per_channel))
            found.setdefault(name, []).append((share, float(torch.cat(errors).double().mean())))
    return found


@torch.no_grad()
def undetermined(model: PACE, task: Task, source: Source, split: str) -> dict[str, float]:
    """The share of samples that do not determine a coordinate of their frame, where there are any.

    PACE does not follow such a sample along that coordinate.
    """
    found = []
    for batch in own_batches(task, source, split=split, among=LOOKED_AT):
        x = batch.input.to(real_weight(model, batch.input))
        box = None if batch.box is None else batch.box.to(x.device)
        found.append(model.frame_of(x, box).quality.cpu() <= 0)
    shares = torch.cat(found).double().mean(dim=0).tolist()
    return {
        name: share for name, share in zip(model.group.coordinates, shares, strict=True) if share
    }


def _grid(task: Task, source: Source, grid: Grid) -> tuple[int, ...]:
    return source.load("test" if task.rollout is not None else "test_id", grid).grid


def _quietly(model: PACE, x: Tensor, inference: Inference, box: Box | None) -> Prediction:
    """A prediction without warnings on frames: they are counted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndeterminedFrameWarning)
        return predict(model, x, inference, box=box)


def _own_rollouts(model: PACE, task: Task, samples: TrajectorySamples, moves: Moves) -> Scores:
    """Relative errors of long predictions by snapshot, at rest and moved (in the canonical frame).

    A sample whose prediction stops being finite counts as infinite from there on.
    """
    assert task.rollout is not None
    history, first = task.input.snapshots, task.rollout.first
    count = history + min(samples.snapshots - first, ROLLED_OUT)
    generator = moves.generator(task)
    rest, moved = [], []
    task = task.model_copy(update={"rollout": Rollout(first=history)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndeterminedFrameWarning)
        for rows in in_batches(samples, ROLLOUT_BATCH, count):
            few = samples.cut(rows, first - history, count)
            few = as_precise(few, real_weight(model, few.values).dtype)
            prediction, truth = roll_out(model, task, few)
            rest.append(by_snapshot(prediction, truth, few.channels, task.per_channel))
            xi = moves.elements(task, len(few), generator)
            away = moved_trajectories(task, few, xi)
            back = pulled_back(task, away, xi, roll_out(model, task, away)[0])
            moved.append(by_snapshot(back, truth, few.channels, task.per_channel))
    return {
        "rollout_error": torch.cat(rest).mean(dim=0).tolist(),
        "rollout_error_moved": torch.cat(moved).mean(dim=0).tolist(),
    }


def by_snapshot(
    prediction: Tensor, truth: Tensor, channels: int, per_channel: bool = False
) -> Tensor:
    """The relative error of each snapshot, ``(B, S)``, as a task measures it; never NaN."""
    shape = len(truth), -1, channels, *truth.shape[2:]
    each, wanted = (part.reshape(shape).flatten(0, 1) for part in (prediction, truth))
    error = relative_l2(each, wanted, per_channel=per_channel).double().reshape(len(truth), -1)
    return error.nan_to_num(nan=math.inf, posinf=math.inf)


def finite(row: Any, name: str = "") -> tuple[Any, list[str]]:
    """Results as strict JSON can hold them: None for what is not finite, and the names of those."""
    if isinstance(row, dict):
        parts = {k: finite(v, f"{name}.{k}" if name else str(k)) for k, v in row.items()}
        return {k: v for k, (v, _) in parts.items()}, [
            n for _, names in parts.values() for n in names
        ]
    if isinstance(row, list):
        items = [finite(item, name) for item in row]
        return [v for v, _ in items], sorted({n for _, names in items for n in names})
    if isinstance(row, float) and not math.isfinite(row):
        return None, [name]
    return row, []
