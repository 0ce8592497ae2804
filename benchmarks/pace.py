"""What PACE adds to the operator it wraps, as ratios, each with the bar it must stay under.

    python benchmarks/pace.py [--threads 2] [--rounds 9] [--clock cpu]

Everything that is compared takes turns within each round, so that a disturbance of the machine hits
all of it, and the best of the rounds counts. Refinement is measured twice: with the default frame,
which is consistent already and costs one more look, and with the free frame, which leaves something
to improve. On a machine that others use, count processor seconds of one thread (``--threads 1
--clock cpu``). Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from _timing import CLOCKS, HEADER, Clock, Row, Work, best_times
from pacefno.data.recipe import PairRecipe
from pacefno.data.samples import Pairs
from pacefno.fields import Field
from pacefno.inference import build_frame
from pacefno.metrics import random_elements
from pacefno.operators import FNO
from pacefno.pace import PACE
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.presets import config_for
from pacefno.pde import solve
from pacefno.train.batches import PairData, Place, canonicalise_once
from pacefno.train.config import RunConfig
from pacefno.train.model import build_model
from pacefno.train.objective import Loss, PredictionAndFrame

BATCH = 20
TRAINING_BARS = {"analytic": 1.05, "equivariant": 1.2}


@dataclass(frozen=True)
class Size:
    problem: str
    width: int
    modes: int
    inference: float = 1.2  # the bars
    refinement: float = 2.0
    latency: float | None = 1.3  # of one sample


SIZES = [
    Size("burgers1d", 64, 20, latency=None),
    Size("burgers2d", 32, 12),
    Size("shallow_water", 32, 12),
    Size("navier_stokes", 32, 12, inference=1.15, refinement=2.5, latency=None),
    Size("navier_stokes_literal", 32, 12, inference=1.3, refinement=2.5, latency=None),
]


def fields(recipe: PairRecipe, grid: tuple[int, ...]) -> Tensor:
    """Moved inputs of a benchmark on a grid, float32."""
    states = torch.stack([recipe.initial_state(0, "benchmark", i)[0] for i in range(BATCH)])
    given = recipe.task.input
    if given.snapshots > 1:
        times = [time * given.step for time in given.times]
        states = solve(recipe.equation, states.float(), times, recipe.step).flatten(1, 2)
    every = tuple(slice(None, None, n // m) for n, m in zip(recipe.grid, grid, strict=True))
    elements = random_elements(recipe.task.group, BATCH, 0)
    moved = recipe.task.group.act(Field(states, given), elements).values
    return moved[(slice(None), slice(None), *every)].float().contiguous()


def operator_for(recipe: PairRecipe, size: Size) -> FNO:
    given, predicted = recipe.task.input, recipe.task.output
    return FNO(given.dim, given.size, predicted.size, size.width, size.modes, positions="grid")


FRAMES = {
    "analytic": {"name": "analytic"},
    "equivariant": {"name": "equivariant"},
    "free": {"name": "equivariant", "aligned": False},
}


def pace_for(recipe: PairRecipe, size: Size, name: str) -> PACE:
    task = recipe.task
    turns = name == "free" and task.group.spatial > task.dim
    spec = {"name": "turning"} if turns else FRAMES[name]
    frame = build_frame(spec, task.group, task.slice, task.input)
    operator = operator_for(recipe, size)
    return PACE(operator, task.group, input=task.input, output=task.output, frame=frame)


def training_step(config: RunConfig, pairs: Pairs, epoch: int = -1) -> Work:
    """One update on a batch, as the training loop makes it: loss, derivatives, optimiser.

    The batch is one of the given epoch, on that epoch's grid.
    """
    data, model = PairData(config, pairs, pairs), build_model(config)
    canonicalise_once(data, model)
    module, loss = PredictionAndFrame(model).train(), Loss(config)
    batch = next(data.batches(epoch % config.schedule.epochs, Place(0, 1, torch.device("cpu"))))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        total, _ = loss(module, batch, 0)
        optimizer.zero_grad()
        torch.autograd.backward(total)
        optimizer.step()

    return step


def refined_prediction(model: PACE, field: Tensor) -> Tensor:
    return model.at(field, model.refine(field).xi)


def inference_rows(recipe: PairRecipe, size: Size, rounds: int, clock: Clock) -> Iterator[Row]:
    """One-shot predictions and refined ones, of a batch and of one sample."""
    bare = operator_for(recipe, size).eval()
    models = {frame: pace_for(recipe, size, frame).eval() for frame in FRAMES}
    grid = "x".join(map(str, recipe.grid))
    for count, bar in ((BATCH, size.inference), (1, size.latency)):
        field = fields(recipe, recipe.grid)[:count].contiguous()
        works: dict[str, Work] = {"bare": partial(bare, field)}
        works |= {frame: partial(model, field) for frame, model in models.items()}
        if count > 1:
            works |= {
                f"{frame} refined": partial(refined_prediction, model, field)
                for frame, model in models.items()
            }
        with torch.inference_mode():
            best = best_times(works, rounds if count > 1 else 10 * rounds, clock)
        for frame in ("analytic", "equivariant"):
            what = f"inference {count} x {grid}, {frame} frame / bare FNO"
            yield Row(size.problem, what, best["bare"], best[frame], bar)
        for frame in models if count > 1 else ():
            what = f"refinement {grid}, {frame} frame / one-shot"
            yield Row(size.problem, what, best[frame], best[f"{frame} refined"], size.refinement)


def training_rows(recipe: PairRecipe, size: Size, rounds: int, clock: Clock) -> Iterator[Row]:
    """Steps on the same samples: of the plain operator on moved ones, and of PACE around it."""
    benchmark, points = benchmark_named(size.problem), recipe.id_grid("standard")
    field = fields(recipe, points)
    target = field.roll(3, -1)[:, -1:].repeat(1, recipe.task.output.size, *[1] * recipe.task.dim)
    pairs = Pairs(field, target.contiguous())
    aug, pace = (config_for(benchmark, row, "standard", 0) for row in ("fno-aug", "pace"))
    # The analytic frame undoes what moves a sample, so a task with it is trained on samples as
    # they are: here they are moved already.
    schedule = pace.schedule.model_copy(update={"moved": False})
    analytic = pace.model_copy(update={"frame": {"name": "analytic"}, "schedule": schedule})
    configs = {"bare": aug, "analytic": analytic, "equivariant": pace}
    works = {
        name: training_step(config.model_copy(update={"operator": aug.operator}), pairs)
        for name, config in configs.items()
    }
    best = best_times(works, rounds, clock)
    grid = "x".join(map(str, points))
    for frame, bar in TRAINING_BARS.items():
        what = f"training {grid}, {frame} frame / FNO step"
        yield Row(size.problem, what, best["bare"], best[frame], bar)


def measure(rounds: int, clock: Clock, problems: list[str]) -> Iterator[Row]:
    """All comparisons of the given problems, or of all."""
    for size in [size for size in SIZES if not problems or size.problem in problems]:
        recipe = benchmark_named(size.problem).recipe
        assert isinstance(recipe, PairRecipe)
        yield from inference_rows(recipe, size, rounds, clock)
        yield from training_rows(recipe, size, rounds, clock)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--problems", default="", help="comma-separated; all if left out")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(
        f"batch {BATCH}, float32, {options.threads} threads, best of {options.rounds} interleaved "
        f"rounds, {options.clock} clock\n{HEADER}"
    )
    missed = 0
    wanted = [name for name in options.problems.split(",") if name]
    for row in measure(options.rounds, CLOCKS[options.clock], wanted):
        print(row.text, flush=True)
        missed += row.verdict == "MISSED"
    if missed:
        print(f"{missed} bars missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
