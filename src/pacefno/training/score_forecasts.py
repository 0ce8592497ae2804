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
from pacefno.training.forecasts import lpsda_rollout, nmse
from pacefno.training.load import load_forecaster

BATCH = 64
EQUIVARIANCE_SAMPLES = 64


def evaluate_forecaster(run: Path, data: Path) -> dict[str, Any]:
    """One row of results: LPSDA's NMSE in and out of distribution, and the mean per frame beside it."""
    trained = load_forecaster(run)
    config, problem = trained.config, trained.problem
    row: dict[str, Any] = {"problem": problem.name, "model": config.model, "seed": config.seed, "preset": config.preset}
    row |= score(trained.model, problem, read_split(problem, data, "test").to(torch.float32))
    row["parameters"] = sum(p.numel() for p in trained.model.parameters())
    row["train_seconds"] = round(trained.train_seconds, 1)
    row["finished"] = trained.finished
    return row | machine(trained.model)


@torch.no_grad()
def score(model: Forecaster, problem: TrajectoryProblem, test: Trajectories) -> dict[str, Any]:
    """Errors on the test split as it is, and moved beyond the range of the augmentation."""
    row: dict[str, Any] = {}
    prediction, truth, _ = rollouts(model, problem, test)
    row |= _errors("nmse", nmse(prediction, truth))
    xi = out_of_distribution(problem, len(test))
    moved = problem.symmetry.act(test, xi)
    moved_prediction, moved_truth, seconds = rollouts(model, problem, moved)
    row |= _errors("ood_nmse", nmse(moved_prediction, moved_truth))
    row |= _errors("ood_nmse_canonical", nmse(pulled_back(problem, test, xi, moved_prediction), truth))
    row["equivariance_error"] = _equivariance(problem, test, xi, prediction, moved_prediction)
    row["ood_seconds"] = round(seconds, 3)
    return row


def rollouts(model: Forecaster, problem: TrajectoryProblem, test: Trajectories) -> tuple[Tensor, Tensor, float]:
    """Predictions and truths of all trajectories, and the seconds of the pass."""
    device = next(model.parameters()).device
    started = time.perf_counter()
    parts = [
        lpsda_rollout(problem, model, test.select(slice(start, start + BATCH)).to(device))
        for start in range(0, len(test), BATCH)
    ]
    seconds = time.perf_counter() - started
    return torch.cat([part[0].cpu() for part in parts]), torch.cat([part[1].cpu() for part in parts]), seconds


def out_of_distribution(problem: TrajectoryProblem, count: int) -> Tensor:
    """Elements beyond what the augmentation draws; the same for every model."""
    generator = generator_for("out of distribution", problem.name)
    return problem.symmetry.sample(problem.ood_low, problem.ood_high, count, generator).float()


def pulled_back(problem: TrajectoryProblem, test: Trajectories, xi: Tensor, prediction: Tensor) -> Tensor:
    """Predictions of moved trajectories without the motion, so that the energy of a boost does not flatter them."""
    start = 2 * problem.history
    late = problem.symmetry.transport(xi, test.horizon(start))
    moved = problem.symmetry.act(test, xi)
    return problem.symmetry.inverse(Trajectories(prediction, moved.length, moved.spacing), late).u


def _equivariance(problem: TrajectoryProblem, test: Trajectories, xi: Tensor, plain: Tensor, moved: Tensor) -> float:
    """How far the first predicted frames of moved trajectories are from the moved predictions, relative L2.

    The first block only: later a chaotic flow makes much of the last digit.
    """
    few, block = slice(0, EQUIVARIANCE_SAMPLES), slice(0, problem.history)
    back = pulled_back(problem, test.select(few), xi[few], moved[few])[:, block]
    reference = plain[few, block]
    return float(((back - reference).flatten(1).norm(dim=1) / reference.flatten(1).norm(dim=1)).double().mean())


def _errors(key: str, errors: Tensor) -> dict[str, Any]:
    """``errors`` ``(B, frames)``: the sum over the frames with its spread over samples, their mean, and each frame's."""
    total = errors.double().sum(dim=1)
    return {
        key: float(total.mean()),
        f"{key}_std": float(total.std()),
        f"{key}_median": float(total.median()),
        f"{key}_frame": float(errors.double().mean()),
        f"{key}_frames": errors.double().mean(dim=0).tolist(),
    }
