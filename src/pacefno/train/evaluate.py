"""A model on the test splits: the numbers of one table row, all by the same code path."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pacefno.checkpoint import FINAL, CheckpointError
from pacefno.data.samples import Pairs, Source, Trajectories
from pacefno.errors import UsageError
from pacefno.fields import Field
from pacefno.inference import (
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
)
from pacefno.pace import PACE
from pacefno.pde.initial import generator_for
from pacefno.registry import Spec
from pacefno.task import Task
from pacefno.train.config import RunConfig
from pacefno.train.objective import as_precise, roll_out

EQUIVARIANCE_SAMPLES = 20
EQUIVARIANCE_TRAJECTORIES = 64
Row = dict[str, Any]


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
    try:
        config = RunConfig.model_validate(checkpoint.documents["config"])
        seconds = float(checkpoint.documents["timing"]["seconds"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            run, f"is not a run of this version of pacefno, or not a run at all ({error})"
        ) from error
    model = restore(run, checkpoint, weights, frame=frame)
    return Trained(model, config, seconds, (run / FINAL).exists() or run.name == FINAL)


def score(
    model: PACE,
    task: Task,
    source: Source,
    inference: Inference = "one-shot",
    *,
    ood: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
) -> Row:
    """The measured part of a row, with the keys of ``results/*.json``.

    ``ood`` are the bounds of the elements that move test trajectories; pairs are stored moved.
    """
    if task.rollout is None:
        row = _score_pairs(model, task, source, inference)
    else:
        if ood is None:
            raise UsageError("score: trajectories are moved here, so say by how much (ood=...)")
        row = _score_rollouts(model, task, source, ood)
    row["parameters"] = sum(p.numel() for p in model.parameters())
    return row


def machine(model: nn.Module) -> Row:
    """Where the numbers were made."""
    versions = {name: version(name) for name in ("pacefno", "torch", "numpy")}
    versions["python"] = platform.python_version()
    device = str(real_weight(model, torch.empty(0)).device)
    return {"device": device, "threads": torch.get_num_threads(), "versions": versions}


# --- pairs ----------------------------------------------------------------------------------------


def _score_pairs(model: PACE, task: Task, source: Source, inference: Inference) -> Row:
    row: Row = {}
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


def _moved_errors(model: PACE, task: Task, pairs: Pairs, inference: Inference) -> Row:
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


def _errors(key: str, task: Task, prediction: Tensor, target: Tensor) -> Row:
    """The headline error, its spread over samples, and for several channels each one's."""
    main = relative_l2(prediction, target, per_channel=task.per_channel).double()
    row: Row = {key: float(main.mean()), f"{key}_std": float(main.std())}
    if target.shape[1] > 1:
        row[f"{key}_pooled"] = float(relative_l2(prediction, target).double().mean())
        each = relative_l2_channels(prediction, target).double().mean(dim=0)
        row[f"{key}_channels"] = each.tolist()
    return row


# --- trajectories ---------------------------------------------------------------------------------


@torch.no_grad()
def _score_rollouts(
    model: PACE, task: Task, source: Source, ood: tuple[tuple[float, ...], tuple[float, ...]]
) -> Row:
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
    # The first twenty snapshots only: later a chaotic flow makes much of the last digit.
    few = slice(0, EQUIVARIANCE_TRAJECTORIES)
    error = relative_l2(back[few, :EQUIVARIANCE_SAMPLES], prediction[few, :EQUIVARIANCE_SAMPLES])
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
    assert field.box is not None
    return Trajectories(field.values, field.box, trajectories.channels)


def pulled_back(task: Task, moved: Trajectories, xi: Tensor, prediction: Tensor) -> Tensor:
    """Predictions of moved trajectories without the motion, which would flatter them."""
    assert task.rollout is not None
    type = task.input.at(range(task.rollout.first, moved.snapshots))
    return task.group.inverse(Field(prediction, type, moved.box), xi).values


def _nmse(key: str, errors: Tensor) -> Row:
    """Errors ``(B, S)``: their sum over snapshots with its spread, their mean, and each one's."""
    total = errors.double().sum(dim=1)
    return {
        key: float(total.mean()),
        f"{key}_std": float(total.std()),
        f"{key}_frame": float(errors.double().mean()),
        f"{key}_frames": errors.double().mean(dim=0).tolist(),
    }
