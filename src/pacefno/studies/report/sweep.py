"""Error against the size of the motion, inside and outside the training range."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pacefno.data import Samples
from pacefno.durable import sha256_of, write_text_atomically
from pacefno.equations import Problem
from pacefno.metrics import relative_l2
from pacefno.pace import PACE
from pacefno.studies.report.trained import Trained, TrainedRow
from pacefno.training.evaluate import predict_split
from pacefno.training.models import ModelSpec
from pacefno.training.state import FINAL

FRACTIONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
DIRECTIONS_SEED = 0
FORMAT = 1  # of the cache; raise it when the meaning of a sweep changes


def shift_sweep(model: PACE, spec: ModelSpec, problem: Problem, samples: Samples) -> tuple[Tensor, Tensor]:
    """Fractions ``s`` of the largest OOD motion, ``(S,)``, and the errors of samples moved that far, ``(S, N)``.

    Every sample has its own signs; element ``s`` moves it by ``s * (+-ood_high)``. Errors are measured in the canonical
    frame: a boost enlarges the norm of the target, which would make the error look smaller the further one goes.
    """
    group = problem.group
    generator = torch.Generator().manual_seed(DIRECTIONS_SEED)
    farthest = group.sample(problem.ood_high, problem.ood_high, len(samples), generator)
    errors = []
    for fraction in FRACTIONS:
        xi_0 = fraction * farthest
        xi_T = group.transport(xi_0, problem.horizon)
        moved = Samples(group.act(samples.input, xi_0), group.act(samples.target, xi_T), xi_0)
        prediction, _, _ = predict_split(model, spec, moved)
        back = group.inverse(prediction, xi_T), group.inverse(moved.target, xi_T)
        errors.append(relative_l2(*back, per_channel=problem.per_channel).double())
    return torch.tensor(FRACTIONS, dtype=torch.float64), torch.stack(errors)


def training_share(problem: Problem) -> tuple[float, float]:
    """The fractions up to which all, and at least one, of the coordinates lie in the training range."""
    shares = [inside / far for inside, far in zip(problem.train_range, problem.ood_high, strict=True)]
    return min(shares), max(shares)


def cached_sweep(row: TrainedRow, trained: Trained) -> tuple[Tensor, Tensor]:
    """The sweep of a row, computed once and kept beside its run; other weights or other data make it anew."""
    path = row.run / f"shift_sweep-{row.name}.json"
    key = {
        "format": FORMAT,
        "weights": sha256_of(row.run / FINAL / "manifest.json"),
        "data": trained.dataset.recipe.sha256(),
        "samples": len(trained.plain),
        "fractions": list(FRACTIONS),
    }
    known = _read(path, key)
    if known is not None:
        return torch.tensor(FRACTIONS, dtype=torch.float64), known
    fractions, errors = shift_sweep(row.model, row.spec, trained.problem, trained.plain)
    with contextlib.suppress(OSError):  # a folder that cannot be written costs time at the next report, no more
        write_text_atomically(path, json.dumps({"key": key, "errors": errors.tolist()}) + "\n")
    return fractions, errors


def _read(path: Path, key: dict[str, Any]) -> Tensor | None:
    """The errors in a cache file of the same key; None if it is missing, damaged, or of something else."""
    try:
        document = json.loads(path.read_text())
        errors = torch.tensor(document["errors"], dtype=torch.float64)
        return errors if document["key"] == key and errors.shape == (len(FRACTIONS), key["samples"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
