"""A trained forecaster on the test trajectories: the numbers of one table row, all by the same code path."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pacefno.data.trajectories import read_split
from pacefno.equations import TrajectoryProblem
from pacefno.equations.random_fields import generator_for
from pacefno.forecast import Forecaster
from pacefno.symmetry import Trajectories
from pacefno.training.evaluate import machine
from pacefno.training.forecasts import nmse, rollouts
from pacefno.training.load import PRECISIONS, load_forecaster

EQUIVARIANCE_SAMPLES = 64


def evaluate_forecaster(run: Path, data: Path) -> dict[str, Any]:
    """One row of results: LPSDA's NMSE in and out of distribution, and the mean per frame beside it."""
    trained = load_forecaster(run)
    config, problem = trained.config, trained.problem
    row: dict[str, Any] = {"problem": problem.name, "model": config.model, "seed": config.seed, "preset": config.preset}
    row |= score(trained.model, problem, read_split(problem, data, "test").to(PRECISIONS[config.precision]))
    row["parameters"] = sum(p.numel() for p in trained.model.parameters())
    row["train_seconds"] = round(trained.train_seconds, 1)
    row["finished"] = trained.finished
    return row | machine(trained.model)


@torch.no_grad()
def score(model: Forecaster, problem: TrajectoryProblem, test: Trajectories) -> dict[str, Any]:
    """Errors on the test split as it is, and moved beyond the range of the augmentation."""
    row: dict[str, Any] = {}
    prediction, truth = rollouts(problem, model, test)
    row |= _errors("nmse", nmse(prediction, truth))
    xi = out_of_distribution(problem, len(test)).to(test.u.dtype)
    moved = problem.symmetry.act(test, xi)
    started = time.perf_counter()
    moved_prediction, moved_truth = rollouts(problem, model, moved)
    row["ood_seconds"] = round(time.perf_counter() - started, 3)
    row |= _errors("ood_nmse", nmse(moved_prediction, moved_truth))
    row |= _errors("ood_nmse_canonical", nmse(pulled_back(problem, moved, xi, moved_prediction), truth))
    row["equivariance_error"] = _equivariance(problem, moved, xi, prediction, moved_prediction)
    return row


def out_of_distribution(problem: TrajectoryProblem, count: int) -> Tensor:
    """Elements beyond what the augmentation draws; the same for every model."""
    generator = generator_for("out of distribution", problem.name)
    return problem.symmetry.sample(problem.ood_low, problem.ood_high, count, generator)


def pulled_back(problem: TrajectoryProblem, moved: Trajectories, xi: Tensor, prediction: Tensor) -> Tensor:
    """Predictions of moved trajectories without the motion, so that the energy of a boost does not flatter them."""
    still = problem.symmetry.inverse(moved.window(0, 1), xi)  # one frame is enough: for the length and the spacing
    late = problem.symmetry.transport(xi, still.horizon(2 * problem.history))
    return problem.symmetry.inverse(Trajectories(prediction, moved.length, moved.spacing), late).u


def _equivariance(problem: TrajectoryProblem, moved: Trajectories, xi: Tensor, plain: Tensor, there: Tensor) -> float:
    """How far the first predicted frames of moved trajectories are from the moved predictions, relative L2.

    The first block only: later a chaotic flow makes much of the last digit.
    """
    few, block = slice(0, EQUIVARIANCE_SAMPLES), slice(0, problem.history)
    back = pulled_back(problem, moved.select(few), xi[few], there[few])[:, block]
    reference = plain[few, block]
    return float(((back - reference).flatten(1).norm(dim=1) / reference.flatten(1).norm(dim=1)).double().mean())


def _errors(key: str, errors: Tensor) -> dict[str, Any]:
    """``errors`` ``(B, frames)``: the sum over the frames with its spread over samples, their mean, and each frame's."""
    total = errors.double().sum(dim=1)
    return {
        key: float(total.mean()),
        f"{key}_std": float(total.std()),
        f"{key}_frame": float(errors.double().mean()),
        f"{key}_frames": errors.double().mean(dim=0).tolist(),
    }
