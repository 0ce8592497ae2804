"""What PACE adds to the operator it wraps, as ratios, each with the bar it must stay under.

    python benchmarks/pace.py [--threads 2] [--rounds 9] [--clock cpu]

Everything that is compared takes turns within each round, so that a disturbance of the machine hits all of it, and the
best of the rounds counts. Refinement is measured twice: with the default frame, which is consistent already and costs one
more look, and with the free frame, which leaves something to improve. On a machine that others use, count processor
seconds of one thread (``--threads 1 --clock cpu``). Exits with 1 if a bar is missed.
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

from pacefno.equations import PROBLEMS, Problem
from pacefno.equations.integrator import solve
from pacefno.frames import FRAMES
from pacefno.losses import Weights, objective
from pacefno.metrics import random_elements
from pacefno.operators import FNO
from pacefno.pace import PACE

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


def fields(problem: Problem, grid: tuple[int, ...]) -> Tensor:
    """Moved initial states of the problem on a grid, float32."""
    states = torch.stack([problem.initial_state(0, "benchmark", i)[0] for i in range(BATCH)])
    if problem.frames_in > 1:
        states = solve(problem.equation, states.float(), problem.times[: problem.frames_in], problem.step).flatten(1, 2)
    every = tuple(slice(None, None, n // m) for n, m in zip(problem.grid, grid, strict=True))
    moved = problem.group.act(states, random_elements(problem.group, BATCH, 0).to(states.dtype))
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


def operator_for(problem: Problem, size: Size) -> FNO:
    channels = problem.in_channels
    return FNO(problem.dim, channels, problem.out_channels, size.width, size.modes, positions="grid")


def pace_for(problem: Problem, size: Size, frame: str) -> PACE:
    estimator = FRAMES[frame](problem.group, problem.in_channels, problem.slice)
    return PACE(operator_for(problem, size), problem.group, estimator, problem.horizon)


def training_step(model: nn.Module, problem: Problem, field: Tensor) -> Work:
    """One update with relative L2; a PACE model also pays for its frame terms, as in the training loop."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    target = field.roll(3, -1)[:, -1:].repeat(1, problem.out_channels, *[1] * problem.dim)
    xi_0 = random_elements(problem.group, BATCH, 0).float()
    xi_T = problem.group.transport(xi_0, problem.horizon)
    weights = Weights(equivariance=0.1, anchor=0.1) if isinstance(model, PACE) else Weights()

    def step() -> None:
        estimated = model.frame.known(field, xi_0).xi if isinstance(model, PACE) else field.new_zeros(BATCH, 0)
        prediction = model.at(field, estimated) if isinstance(model, PACE) else model(field)
        loss, _ = objective(problem.group, prediction, target, estimated, xi_0, xi_T, weights)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()

    return step


def refined_prediction(model: PACE, field: Tensor) -> Tensor:
    return model.at(field, model.refine(field).xi)


def inference_rows(problem: Problem, size: Size, rounds: int, clock: Callable[[], float]) -> list[Row]:
    field = fields(problem, problem.grid)
    bare = operator_for(problem, size).eval()
    models = {frame: pace_for(problem, size, frame).eval() for frame in ("analytic", "equivariant", "equivariant-free")}
    works: dict[str, Work] = {"bare": lambda: bare(field)}
    works |= {frame: partial(model, field) for frame, model in models.items()}
    works |= {f"{frame} refined": partial(refined_prediction, model, field) for frame, model in models.items()}
    with torch.inference_mode():
        best = best_times(works, rounds, clock)
    grid = "x".join(map(str, problem.grid))
    rows = [
        Row(f"inference {grid}, {frame} frame / bare FNO", best["bare"], best[frame], size.inference)
        for frame in ("analytic", "equivariant")
    ]
    return rows + [
        Row(f"refinement {grid}, {frame} frame / one-shot", best[frame], best[f"{frame} refined"], size.refinement)
        for frame in models
    ]


def training_rows(problem: Problem, size: Size, rounds: int, clock: Callable[[], float]) -> list[Row]:
    field = fields(problem, problem.id_grid)
    works = {"bare": training_step(operator_for(problem, size), problem, field)}
    frames = ("analytic", "equivariant")
    works |= {frame: training_step(pace_for(problem, size, frame), problem, field) for frame in frames}
    best = best_times(works, rounds, clock)
    grid = "x".join(map(str, problem.id_grid))
    return [Row(f"training {grid}, {frame} frame / FNO step", best["bare"], best[frame], TRAINING_BAR) for frame in frames]


def print_row(problem: str, row: Row) -> None:
    verdict = "ok" if row.ratio <= row.bar else "MISSED"
    times = f"{1e3 * row.base:9.1f}{1e3 * row.mine:9.1f}"
    print(f"{problem:23s}{row.what:57s}{times}{row.ratio:8.2f}{row.bar:7.1f}  {verdict}", flush=True)


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
        f"batch {BATCH}, float32, {options.threads} threads, best of {options.rounds} interleaved rounds, {options.clock} clock"
    )
    print(f"{'problem':23s}{'comparison':57s}{'base ms':>9s}{'ms':>9s}{'ratio':>8s}{'bar':>7s}")
    missed = 0
    wanted = [name for name in options.problems.split(",") if name]
    for size in [size for size in SIZES if not wanted or size.problem in wanted]:
        problem = PROBLEMS[size.problem]
        for measure in (inference_rows, training_rows):
            for row in measure(problem, size, options.rounds, CLOCKS[options.clock]):
                print_row(size.problem, row)
                missed += row.ratio > row.bar
    if missed:
        print(f"{missed} bars missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
