"""A trained row on the test splits: the numbers of one table row, all by the same code path."""

from __future__ import annotations

import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pacefno.data import Dataset, Samples
from pacefno.equations import Problem
from pacefno.metrics import equivariance_error, frame_error, relative_l2, relative_l2_channels
from pacefno.pace import PACE
from pacefno.training.load import load_run
from pacefno.training.models import ModelSpec, model_named

BATCH = 20
EQUIVARIANCE_SAMPLES = 20


@torch.no_grad()
def predict_row(model: PACE, spec: ModelSpec, field: Tensor, true: Tensor | None) -> tuple[Tensor, Tensor]:
    """Prediction and input frame as this row makes them: one-shot, refined, or with the true frame (zero for ID data)."""
    if spec.inference == "oracle":
        xi = model.group.identity(len(field), dtype=field.dtype) if true is None else true.to(field.dtype)
    elif spec.inference == "refined":
        xi = model.refine(field).xi
    else:
        xi = model.frame_of(field).xi
    return model.at(field, xi), xi


def predict_split(model: PACE, spec: ModelSpec, samples: Samples) -> tuple[Tensor, Tensor, float]:
    """All predictions and frames of a split, and the seconds of the pass."""
    device = next(model.parameters()).device
    predictions, frames = [], []
    started = time.perf_counter()
    for start in range(0, len(samples.input), BATCH):
        rows = slice(start, start + BATCH)
        true = None if samples.generators is None else samples.generators[rows].to(device)
        prediction, xi = predict_row(model, spec, samples.input[rows].to(device), true)
        predictions.append(prediction.cpu())
        frames.append(xi.cpu())
    seconds = time.perf_counter() - started
    return torch.cat(predictions), torch.cat(frames), seconds


def evaluate(run: Path, dataset: Dataset, model: str | None = None) -> dict[str, Any]:
    """One row of results, with the keys of ``results/*.json``."""
    trained = load_run(run, model)
    config, problem = trained.config, trained.problem
    if dataset.recipe.problem != problem.name:
        raise ValueError(
            f"{run} was trained on {problem.name!r}, the dataset holds {dataset.recipe.problem!r}: name the right one"
        )
    name = model or config.model
    spec = model_named(name)
    row: dict[str, Any] = {"problem": problem.name, "model": name, "seed": config.seed, "preset": config.preset}
    row |= score(trained.model, spec, problem, dataset)
    row["train_seconds"] = round(trained.train_seconds, 1)
    row["finished"] = trained.finished
    return row | machine(trained.model)


def score(model: PACE, spec: ModelSpec, problem: Problem, dataset: Dataset) -> dict[str, Any]:
    """The measured part of a row; the model need not be one of the registry (an ablation, another method's frame)."""
    row = _id_errors(model, spec, problem, dataset)
    row |= _ood_errors(model, spec, problem, dataset.load("test_ood", "ood"))
    row |= _equivariance(model, spec, problem, dataset)
    row["parameters"] = sum(p.numel() for p in model.parameters())
    return row


def _id_errors(model: PACE, spec: ModelSpec, problem: Problem, dataset: Dataset) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, samples in (("id_error", dataset.load("test_id", "id")), ("id_error_fine", dataset.load("test_id", "ood"))):
        prediction, _, _ = predict_split(model, spec, samples)
        row |= _errors(key, problem, prediction, samples.target)
    return row


def _ood_errors(model: PACE, spec: ModelSpec, problem: Problem, samples: Samples) -> dict[str, Any]:
    prediction, frames, seconds = predict_split(model, spec, samples)
    generators = samples.generators
    assert generators is not None
    row = _errors("ood_error", problem, prediction, samples.target)
    terminal = problem.group.transport(generators, problem.horizon)
    back = problem.group.inverse(prediction, terminal), problem.group.inverse(samples.target, terminal)
    row |= _errors("ood_error_canonical", problem, *back)
    if samples.resolved is not None:
        row |= _errors("ood_error_resolved", problem, prediction, samples.resolved)
        row |= _errors("group_defect", problem, samples.target, samples.resolved)
    row["frame_error"] = None
    if model.group is problem.group:
        error = frame_error(problem.group, frames.double(), generators)
        row["frame_error"] = {name: float(error[:, i].mean()) for i, name in enumerate(problem.group.coordinates)}
    row["ood_seconds"] = round(seconds, 3)
    return row


def _equivariance(model: PACE, spec: ModelSpec, problem: Problem, dataset: Dataset) -> dict[str, Any]:
    field = dataset.load("test_id", "ood").input[:EQUIVARIANCE_SAMPLES]

    def function(x: Tensor) -> Tensor:
        return predict_row(model, spec, x, None)[0]

    if spec.inference == "oracle":
        return {"equivariance_error": None}  # the true frame is not a function of the field
    error = equivariance_error(function, problem.group, field, horizon=problem.horizon)
    return {"equivariance_error": float(error.mean())}


def _errors(key: str, problem: Problem, prediction: Tensor, target: Tensor) -> dict[str, Any]:
    """The headline error of a problem, its spread over samples, and for several channels each one's and the pooled value."""
    main = relative_l2(prediction, target, per_channel=problem.per_channel).double()
    row: dict[str, Any] = {key: float(main.mean()), f"{key}_std": float(main.std())}
    if target.shape[1] > 1:
        row[f"{key}_pooled"] = float(relative_l2(prediction, target).double().mean())
        row[f"{key}_channels"] = relative_l2_channels(prediction, target).double().mean(dim=0).tolist()
    return row


def machine(model: nn.Module) -> dict[str, Any]:
    """Where the numbers were made."""
    versions = {name: version(name) for name in ("pacefno", "torch", "numpy")} | {"python": platform.python_version()}
    return {"device": str(next(model.parameters()).device), "threads": torch.get_num_threads(), "versions": versions}
