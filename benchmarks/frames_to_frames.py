"""Ten frames to twenty: which FNO is most accurate for the same minutes of training?

Frames as channels, a rollout of blocks of five, and a network over space and time, each trained on the same problem with a
one-cycle schedule that fits the budget, and scored on the validation samples. ``python benchmarks/frames_to_frames.py``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch

from pacefno.data import open_dataset
from pacefno.equations import problem_named
from pacefno.training.config import RunConfig, with_overrides
from pacefno.training.models import build_model, model_named
from pacefno.training.presets import config_for
from pacefno.training.run import train
from pacefno.training.workload import PredictionAndFrame

CANDIDATES = {
    "frames as channels": [],
    "rollout, blocks of 5": ["operator.frames=rollout"],
    "space-time, width 12": ["operator.frames=space-time", "operator.width=12", "operator.time_modes=8"],
}


def seconds_a_step(config: RunConfig) -> float:
    """The better of three training steps on noise of the right shape."""
    problem = problem_named(config.problem)
    module = PredictionAndFrame(build_model(problem, model_named(config.model), config.operator, None, 0)).train()
    field = torch.randn(config.schedule.batch, problem.in_channels, *problem.id_grid)
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        module(field)[0].square().mean().backward()
        best = min(best, time.perf_counter() - began)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problem", default="navier_stokes")
    parser.add_argument("--minutes", type=float, default=2.0, help="of training, for each candidate")
    parser.add_argument("--data", type=Path, default=Path("datasets"))
    parser.add_argument("--results", type=Path, default=Path("results/studies/frames_to_frames.json"))
    options = parser.parse_args()
    data = options.data / options.problem / "standard-seed42"
    samples = open_dataset(data, verify=False).recipe.train
    rows = []
    for title, changes in CANDIDATES.items():
        config = with_overrides(config_for(options.problem, "fno", "standard", 42), changes)
        step = seconds_a_step(config)
        steps = samples // config.schedule.batch
        epochs = max(1, round(60 * options.minutes / (steps * step)))
        config = with_overrides(config, [f"schedule.epochs={epochs}", "schedule.validate_every=1"])
        with tempfile.TemporaryDirectory() as folder:
            progress = train(config, data, Path(folder) / "run")
        rows.append(
            {
                "operator": title,
                "step_seconds": round(step, 4),
                "epochs": epochs,
                "seconds": round(progress.seconds, 1),
                "validation_error": progress.best_error,
            }
        )
        cost = f"{1000 * step:7.0f} ms a step, {epochs:3d} epochs, {progress.seconds:6.0f} s"
        print(f"{title:24s} {cost}: {progress.best_error:.4f}")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps({"problem": options.problem, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
