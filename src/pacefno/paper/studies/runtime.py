"""Seconds of an epoch and of one pass over the OOD test samples: the paper's two columns of times.

Models take turns, and the best of several turns counts, so that other work on the machine hurts
none of them alone. Times do not depend on what weights have learned, so nothing is trained first.
Every epoch is on the full training grid, and test samples come in the paper's batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache

import torch

from pacefno.inference import predict
from pacefno.paper.presets import config_for, data_preset, trained_as
from pacefno.paper.rows import row_named
from pacefno.paper.studies.base import Cell, Outcome, Scope, Table, choose
from pacefno.train.loop import OPTIMIZERS
from pacefno.train.objective import Loss, Place, PredictionAndFrame, build_model, make_data

# Seconds of an epoch and of one OOD pass in the paper's tables, on its GPU.
PAPER: dict[str, dict[str, tuple[float, float]]] = {
    "burgers1d": {
        "fno": (0.4212, 0.3943), "fno-aug": (0.7698, 1.2826), "pace-cnn": (0.4560, 0.5287),
        "pace-cnn-tta": (0.4560, 5.4611), "gfno": (1.0365, 1.0148),
    },
    "burgers2d": {
        "fno": (0.6524, 0.1244), "fno-aug": (0.7559, 0.1045), "pace-cnn": (1.5770, 0.1399),
        "pace-cnn-tta": (1.5770, 4.4345), "gfno": (4.8613, 0.7462),
    },
    "shallow_water": {
        "fno": (0.7024, 0.1501), "fno-aug": (0.8502, 0.1503), "pace-cnn": (2.6139, 0.2952),
        "pace-cnn-tta": (2.6139, 8.1388), "gfno": (6.7509, 0.7161),
    },
    "navier_stokes": {
        "fno": (10.6448, 1.8308), "fno-aug": (10.7371, 1.9761), "pace-cnn": (16.5571, 3.3728),
        "pace-cnn-tta": (16.5571, 10.0376), "gfno": (55.9359, 9.2956),
    },
}  # fmt: skip
MODELS = ("fno", "fno-aug", "pace-cnn", "pace-cnn-tta", "gfno", "pace", "pace-tta")
EVALUATION_BATCH = {1: 1, 2: 10, 3: 10}  # the paper's, by dimension
COLUMNS = ("epoch_seconds", "ood_seconds")


def run(scope: Scope, models: Sequence[str], turns: int) -> Outcome:
    """Time what is missing; rows are timed together, so a new one is timed beside the FNO again."""
    names = choose(models, MODELS, "row")
    names = names if "fno" in names else ["fno", *names]
    timed = cache(lambda: time_all(scope, names, turns))
    asked = {"turns": turns, "threads": torch.get_num_threads(), "beside": ",".join(names)}
    file = scope.file("runtime", "preset", "model", "seed")
    what: Cell = {"preset": scope.preset, "seed": 42}

    def seconds_of(name: str) -> Callable[[], Cell]:
        return lambda: timed()[name]

    jobs = [(what | {"model": name}, seconds_of(name)) for name in names]
    return Outcome(file.path, [times_table(scope, scope.measured(file, jobs, **asked))], [])


def time_all(scope: Scope, names: Sequence[str], turns: int) -> dict[str, Cell]:
    """The best of several turns of each row, turn by turn."""
    scope.say(f"timing {', '.join(names)}")
    works = {name: work_of(scope, name) for name in names}
    best = {name: [float("inf")] * 2 for name in names}
    for _ in range(turns + 1):  # the first warms up caches, and cannot be the best
        for name, (parts, _) in works.items():
            for i, part in enumerate(parts):
                began = time.perf_counter()
                part()
                best[name][i] = min(best[name][i], time.perf_counter() - began)
    return {
        name: {key: b * n for key, b, n in zip(COLUMNS, best[name], counts, strict=True)}
        for name, (_, counts) in works.items()
    }


def work_of(
    scope: Scope, name: str
) -> tuple[tuple[Callable[[], object], Callable[[], object]], tuple[int, float]]:
    """One update and the prediction of one batch, and how many of them make an epoch and a pass."""
    benchmark, task = scope.benchmark, scope.task
    config = config_for(benchmark, trained_as(benchmark, name), scope.preset, 42)
    schedule = config.schedule.model_copy(update={"coarse": 0.0})
    config = config.model_copy(update={"schedule": schedule})
    data = make_data(config, scope.dataset)
    model = build_model(config, data.scales())
    module, loss = PredictionAndFrame(model), Loss(config)
    optimizer = OPTIMIZERS[schedule.optimizer](model.parameters(), lr=schedule.rate)
    batch = next(data.batches(0, Place(0, 1, torch.device("cpu"))))
    moved = scope.pairs("test_ood", EVALUATION_BATCH[task.dim])
    inference = benchmark.way(row_named(benchmark.rows, name).inference)

    def update() -> None:
        module.train()
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss(module, batch, 0)[0])
        optimizer.step()

    def evaluate() -> None:
        predict(model.eval(), moved.input, inference, true=moved.elements)

    tests = benchmark.recipe.sizes_of(data_preset(scope.preset)).test
    return (update, evaluate), (data.steps(), tests / len(moved))


def times_table(scope: Scope, cells: list[Cell]) -> Table:
    """Seconds, and multiples of the FNO's with the paper's in brackets."""
    paper, lines = PAPER.get(scope.benchmark.name, {}), []
    first = next(cell for cell in cells if cell["model"] == "fno")
    for cell in sorted(cells, key=lambda cell: MODELS.index(cell["model"])):
        line = [cell["model"]]
        for i, key in enumerate(COLUMNS):
            there = paper.get(cell["model"])
            times = f" ({there[i] / paper['fno'][i]:.2f})" if there else ""
            line += [f"{cell[key]:.3g}", f"{cell[key] / first[key]:.2f}{times}"]
        lines.append(line)
    columns = ["row", "s/epoch", "times fno (paper)", "OOD pass, s", "times fno (paper)"]
    threads = f"{cells[0]['threads']} threads, best of {cells[0]['turns']} turns"
    return Table(f"{scope.benchmark.title}: times, {threads}", columns, lines)
