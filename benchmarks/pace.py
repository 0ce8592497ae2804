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
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from pacefno.data.recipe import PairRecipe
from pacefno.fields import Field
from pacefno.inference import build_frame
from pacefno.losses import Weights, objective
from pacefno.metrics import random_elements
from pacefno.operators import FNO
from pacefno.pace import PACE
from pacefno.paper.benchmarks import benchmark_named
from pacefno.pde import solve

BATCH = 20
TRAINING_BAR = 1.3
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
Work = Callable[[], object]


@dataclass(frozen=True)
class Size:
    problem: str
    width: int
    modes: int
    inference: float = 1.2  # the bars
    refinement: float = 2.0


@dataclass(frozen=True)
class Row:
    what: str
    base: float  # seconds
    mine: float
    bar: float

    @property
    def ratio(self) -> float:
        return self.mine / self.base


SIZES = [
    Size("burgers1d", 64, 20),
    Size("burgers2d", 32, 12),
    Size("shallow_water", 32, 12),
    Size("navier_stokes", 32, 12, inference=1.3, refinement=2.5),
    Size("navier_stokes_literal", 32, 12, inference=1.3, refinement=2.5),
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


def best_times(works: dict[str, Work], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """The best seconds of each, in turns, after two rounds that are not counted."""
    best = dict.fromkeys(works, float("inf"))
    for turn in range(rounds + 2):
        for name, work in works.items():
            start = clock()
            work()
            spent = clock() - start
            if turn >= 2:
                best[name] = min(best[name], spent)
    return best


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


def training_step(model: nn.Module, recipe: PairRecipe, field: Tensor) -> Work:
    """One update with relative L2; PACE also pays for its frame terms, as in the training loop."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    task = recipe.task
    target = field.roll(3, -1)[:, -1:].repeat(1, task.output.size, *[1] * task.dim)
    xi = random_elements(task.group, BATCH, 0)
    weights = Weights(equivariance=0.1, anchor=0.1) if isinstance(model, PACE) else Weights()

    def step() -> None:
        estimated = None
        if isinstance(model, PACE):
            prediction, frame = model.predict(field, hint=xi)
            estimated = frame.xi
        else:
            prediction = model(field)
        loss, _ = objective(task.group, task.output, prediction, target, estimated, xi, weights)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()

    return step


def refined_prediction(model: PACE, field: Tensor) -> Tensor:
    return model.at(field, model.refine(field).xi)


def inference_rows(
    recipe: PairRecipe, size: Size, rounds: int, clock: Callable[[], float]
) -> list[Row]:
    field = fields(recipe, recipe.grid)
    bare = operator_for(recipe, size).eval()
    models = {frame: pace_for(recipe, size, frame).eval() for frame in FRAMES}
    works: dict[str, Work] = {"bare": lambda: bare(field)}
    works |= {frame: partial(model, field) for frame, model in models.items()}
    works |= {
        f"{frame} refined": partial(refined_prediction, model, field)
        for frame, model in models.items()
    }
    with torch.inference_mode():
        best = best_times(works, rounds, clock)
    grid = "x".join(map(str, recipe.grid))
    rows = [
        Row(
            f"inference {grid}, {frame} frame / bare FNO", best["bare"], best[frame], size.inference
        )
        for frame in ("analytic", "equivariant")
    ]
    return rows + [
        Row(
            f"refinement {grid}, {frame} frame / one-shot",
            best[frame],
            best[f"{frame} refined"],
            size.refinement,
        )
        for frame in models
    ]


def training_rows(
    recipe: PairRecipe, size: Size, rounds: int, clock: Callable[[], float]
) -> list[Row]:
    points = recipe.id_grid("standard")
    field = fields(recipe, points)
    works = {"bare": training_step(operator_for(recipe, size), recipe, field)}
    frames = ("analytic", "equivariant")
    works |= {
        frame: training_step(pace_for(recipe, size, frame), recipe, field) for frame in frames
    }
    best = best_times(works, rounds, clock)
    grid = "x".join(map(str, points))
    return [
        Row(f"training {grid}, {frame} frame / FNO step", best["bare"], best[frame], TRAINING_BAR)
        for frame in frames
    ]


def print_row(problem: str, row: Row) -> None:
    verdict = "ok" if row.ratio <= row.bar else "MISSED"
    times = f"{1e3 * row.base:9.1f}{1e3 * row.mine:9.1f}"
    print(
        f"{problem:23s}{row.what:57s}{times}{row.ratio:8.2f}{row.bar:7.1f}  {verdict}", flush=True
    )


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
        f"rounds, {options.clock} clock"
    )
    print(f"{'problem':23s}{'comparison':57s}{'base ms':>9s}{'ms':>9s}{'ratio':>8s}{'bar':>7s}")
    missed = 0
    wanted = [name for name in options.problems.split(",") if name]
    for size in [size for size in SIZES if not wanted or size.problem in wanted]:
        recipe = benchmark_named(size.problem).recipe
        assert isinstance(recipe, PairRecipe)
        for measure in (inference_rows, training_rows):
            for row in measure(recipe, size, options.rounds, CLOCKS[options.clock]):
                print_row(size.problem, row)
                missed += row.ratio > row.bar
    if missed:
        print(f"{missed} bars missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
