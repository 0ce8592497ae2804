"""A model on corrupted inputs: its error, the error of its frame, and what its confidence knew of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from pacefno.data import Dataset, Samples
from pacefno.equations import Problem
from pacefno.metrics import relative_l2
from pacefno.pace import PACE
from pacefno.studies.cells import Cell
from pacefno.studies.study.robustness.corrupt import add_noise, fill, known_points
from pacefno.studies.study.robustness.forced import forced_samples
from pacefno.studies.study.theory.growth import periods_between
from pacefno.training.evaluate import BATCH, predict_split
from pacefno.training.models import ModelSpec

LEVELS: dict[str, tuple[float, ...]] = {
    "noise": (0.0, 0.01, 0.03, 0.1, 0.3),
    "missing": (0.0, 0.5, 0.9, 0.97, 0.99),
    "forcing": (0.0, 0.01, 0.03, 0.1, 0.3),
}


@final
@dataclass(frozen=True)
class Corruption:
    """One kind of trouble at one level: rms of the noise, share of missing points, effect of the force."""

    kind: str
    level: float

    def apply(self, problem: Problem, dataset: Dataset, moved: Samples) -> Samples:
        """The samples as the model gets them; only a force changes the targets too."""
        if self.kind == "forcing":
            return forced_samples(problem, dataset, moved, self.level)
        if self.kind == "noise":
            return Samples(add_noise(moved.input, self.level), moved.target, moved.generators)
        return Samples(fill(moved.input, known_points(moved.input, self.level)), moved.target, moved.generators)


def corruptions(kinds: list[str]) -> list[Corruption]:
    return [Corruption(kind, level) for kind in kinds for level in LEVELS[kind]]


def measure(model: PACE, spec: ModelSpec, problem: Problem, samples: Samples) -> Cell:
    """Errors in the canonical frame (a force has no other effect on the norm), frames and confidences, sample by sample."""
    prediction, frames, _ = predict_split(model, spec, samples)
    assert samples.generators is not None
    terminal = problem.group.transport(samples.generators, problem.horizon)
    back = problem.group.inverse(prediction, terminal), problem.group.inverse(samples.target, terminal)
    error = relative_l2(*back, per_channel=problem.per_channel).double()
    cell: Cell = {
        "error": float(error.mean()),
        "error_std": float(error.std()),
        "errors": error.tolist(),
        "ood_error": float(relative_l2(prediction, samples.target, per_channel=problem.per_channel).double().mean()),
        "frame_error": None,
        "confidence": None,
        "confidences": None,
        "rank": None,
    }
    if model.group.size == 0 or spec.inference == "oracle":
        return cell  # no frame of its own
    confidence = _confidence(model, samples.input)
    apart = periods_between(problem.group, frames.double(), samples.generators)
    knows = {
        "confidence": float(confidence.mean()),
        "confidences": confidence.tolist(),
        "rank": rank_correlation(confidence, error),
    }
    return cell | knows | {"frame_error": float(apart.mean())}


@torch.no_grad()
def _confidence(model: PACE, field: Tensor) -> Tensor:
    return torch.cat([model.frame_of(rows).confidence for rows in torch.split(field, BATCH)]).double()


def rank_correlation(a: Tensor, b: Tensor) -> float | None:
    """Spearman's rho, from -1 to 1; None where one of them does not vary. Good confidences have a negative one with errors."""
    ranks = [_ranks(values) for values in (a.double(), b.double())]
    centred = [values - values.mean() for values in ranks]
    size = float(centred[0].norm() * centred[1].norm())
    return float((centred[0] * centred[1]).sum()) / size if size > 0 else None


def _ranks(values: Tensor) -> Tensor:
    """Places in increasing order; equal values share the mean of their places."""
    below = (values[None, :] < values[:, None]).sum(dim=1)
    equal = (values[None, :] == values[:, None]).sum(dim=1)
    return below.double() + (equal.double() - 1) / 2
