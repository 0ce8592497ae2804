"""Seconds per epoch of training and per pass over the OOD test set, for the rows of every table,
those of the paper's ablation included.

    python benchmarks/runtime.py [--problems burgers1d,...] [--rounds 5] [--results FOLDER]
    python benchmarks/runtime.py --preset paper --models pace-cnn  # at its sizes

The rows of a problem take turns and the best of their turns counts; a training that was made beside
other work says nothing of this. An epoch is as many updates as the preset has, an average over its
coarse and fine epochs. A pass predicts as many samples as the OOD test set holds, on its grid, in
the batches of the paper (one sample in 1-D, ten in 2-D). Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from _timing import CLOCKS, Clock, Work, best_times, load, machine
from pace import fields, training_step
from pacefno.data.recipe import PairRecipe
from pacefno.data.samples import Pairs
from pacefno.inference import predict
from pacefno.metrics import random_elements
from pacefno.paper.bench import runtime_file
from pacefno.paper.benchmarks import Benchmark, benchmark_named
from pacefno.paper.presets import config_for, trained_as
from pacefno.paper.studies.ablation import PAPERS
from pacefno.train.config import RunConfig
from pacefno.train.model import build_model
from pacefno.train.rows import listed
from pacefno.train.schedule import grid_stride

PROBLEMS = ("burgers1d", "burgers2d", "shallow_water", "navier_stokes", "navier_stokes_literal")
PAPER_BATCH = {1: 1, 2: 10}
ABLATION = {row.name: row for row in PAPERS}
SEED = 42


class Measured(NamedTuple):
    """Rows of which benchmark at which preset, and how often each is timed by which clock."""

    benchmark: Benchmark
    preset: str
    rounds: int
    clock: Clock

    @property
    def recipe(self) -> PairRecipe:
        recipe = self.benchmark.recipe
        assert isinstance(recipe, PairRecipe)
        return recipe

    def training(self, name: str) -> str:
        """The row whose training a row has its weights from."""
        part = ABLATION.get(name)
        return part.training if part else trained_as(self.benchmark, name)

    def config(self, name: str) -> RunConfig:
        """The settings of a row, its own frame included."""
        part = ABLATION.get(name)
        return config_for(self.benchmark, part.model if part else name, self.preset, SEED)

    def predictor(self, name: str, true: Tensor) -> Callable[[Tensor], object]:
        """How a row predicts, untrained: the time does not depend on weights."""
        model, part = build_model(self.config(name)), ABLATION.get(name)
        if part is not None:
            model, inference = part.change(model, self.recipe.task), part.inference
        else:
            inference = self.benchmark.rows[name].inference
        way = self.benchmark.way(inference)
        return lambda field: predict(model.eval(), field, way, true=true)


def measure(what: Measured, models: list[str]) -> list[dict[str, Any]]:
    """Both times of some rows of a benchmark, or of all that are listed and the ablation's."""
    benchmark = what.benchmark
    names = models or [*listed(benchmark.rows), *ABLATION]
    trained = list(dict.fromkeys(what.training(name) for name in names))
    epochs, passes = epoch_seconds(what, trained), pass_seconds(what, names)
    return [
        {
            "problem": benchmark.name,
            "preset": what.preset,
            "model": name,
            "epochs": what.config(name).schedule.epochs,
            "epoch_seconds": round(epochs[what.training(name)], 4),
            "pass_seconds": round(passes[name], 4),
            "batch": PAPER_BATCH[what.recipe.task.dim],
        }
        for name in names
    ]


def epoch_seconds(what: Measured, names: list[str]) -> dict[str, float]:
    """Updates of an epoch times the seconds of one, coarse and fine in the schedule's shares."""
    recipe = what.recipe
    samples = recipe.sizes_of(what.preset).count("train")
    pairs = pairs_on(recipe, recipe.id_grid(what.preset))
    works: dict[tuple[str, int], Work] = {}
    for name in names:
        config = what.config(name)
        for epoch in {0, config.schedule.epochs - 1}:
            works[name, grid_stride(config.schedule, epoch)] = training_step(config, pairs, epoch)
    best = best_times(works, what.rounds, what.clock)
    seconds = {}
    for name in names:
        schedule = what.config(name).schedule
        strides = [grid_stride(schedule, epoch) for epoch in range(schedule.epochs)]
        updates = schedule.updates(samples)
        seconds[name] = updates * sum(best[name, stride] for stride in strides) / len(strides)
    return seconds


def pass_seconds(what: Measured, names: list[str]) -> dict[str, float]:
    """Batches of the OOD test set times the seconds of one."""
    recipe = what.recipe
    count = PAPER_BATCH[recipe.task.dim]
    field = fields(recipe, recipe.ood_grid(what.preset))[:count].contiguous()
    true = random_elements(recipe.task.group, count, 0)
    works: dict[str, Work] = {}
    for name in names:
        works[name] = partial(what.predictor(name, true), field)
    with torch.no_grad():
        best = best_times(works, what.rounds, what.clock)
    batches = -(-recipe.sizes_of(what.preset).count("test") // count)
    return {name: batches * seconds for name, seconds in best.items()}


def pairs_on(recipe: PairRecipe, grid: tuple[int, ...]) -> Pairs:
    """Moved inputs and something of the right shape to fit: the time does not depend on what."""
    field = fields(recipe, grid)
    shape = (1, recipe.task.output.size, *[1] * recipe.task.dim)
    target: Tensor = field.roll(3, -1)[:, -1:].repeat(shape)
    return Pairs(field, target.contiguous())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--problems", default=",".join(PROBLEMS), help="comma-separated")
    parser.add_argument("--preset", default="standard")
    parser.add_argument("--models", default="", help="comma-separated; all by default")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--results", type=Path, default=Path("results"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    models = [name for name in options.models.split(",") if name]
    for problem in options.problems.split(","):
        about = {"machine": machine(), "threads": options.threads, "busy": round(load(), 1)}
        benchmark, clock = benchmark_named(problem), CLOCKS[options.clock]
        what = Measured(benchmark, options.preset, options.rounds, clock)
        rows = [row | about for row in measure(what, models)]
        for row in rows:
            times = f"{row['epoch_seconds']:10.2f} s an epoch{row['pass_seconds']:10.2f} s a pass"
            print(f"{problem:23s}{row['model']:22s}{times}", flush=True)
        runtime_file(options.results).add(rows)


if __name__ == "__main__":
    main()
