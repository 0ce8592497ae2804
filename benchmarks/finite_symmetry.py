"""What a finite symmetry earns at equal time: plain, random element, averages, and GFNO.

    python benchmarks/finite_symmetry.py burgers1d [--ways plain,average] [--budgets 1,2]

Smaller than the benchmarks, so that many trainings fit into an hour of one core: the equations,
laws, slices and operators (at half their width) of the benchmarks, on coarse grids, with samples
that are solved when the script starts.
Every way is trained several times, each with a schedule of its own length (a budget of 1 is as many
epochs as ``EPOCHS`` says), and the best validation error is kept with the processor time of the
training: one thread, because time on the wall would count whatever else the machine does. Test
samples are not looked at: what is chosen here is then measured by ``pacefno bench``. Results are
added to results/finite_symmetry.json; ``--figure`` draws them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from pacefno.data.samples import Pairs
from pacefno.fields import Field
from pacefno.files import write_text
from pacefno.grid import coarsen
from pacefno.paper.benchmarks import Benchmark, benchmark_named
from pacefno.paper.presets import config_for
from pacefno.pde import solve
from pacefno.pde.initial import generator_for
from pacefno.train.config import RunConfig, make_config
from pacefno.train.loop import train

RESULTS = Path("results/finite_symmetry.json")
SAMPLES = {"train": 300, "validation": 100}
GRIDS = {1: 512, 2: 64}  # on which samples are solved; every second point is kept
EPOCHS = {1: 60, 2: 24}
# How an FNO without coordinates meets the group.
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"row": "fno-nogrid"},
    "average at test": {"samples": 0},
    "random element": {"samples": 1},
    "two random elements": {"samples": 2},
    "average": {"samples": None},
    "gfno": {"row": "gfno"},
}


class Solved:
    """Samples of a benchmark on a small grid, on its slice, in memory."""

    def __init__(self, benchmark: Benchmark) -> None:
        self.splits = {split: self._pairs(benchmark, split) for split in SAMPLES}

    @staticmethod
    def _pairs(benchmark: Benchmark, split: str) -> Pairs:
        task, recipe = benchmark.task, benchmark.recipe
        grid = (GRIDS[task.dim],) * task.dim
        states = []
        while len(states) < SAMPLES[split]:
            raw = recipe.law.draw(generator_for("small", split, len(states)), grid)[None]
            field = Field(raw.double(), task.input.at([0.0]))
            xi = task.slice.coordinates(field)
            states.append(task.group.inverse(field, xi).values)
        initial = torch.cat(states)
        times = [t * task.output.step for t in (*task.input.times, *task.output.times)]
        made = solve(benchmark.equation, initial, times, 2 * recipe.step).flatten(1, 2)
        thin, history = coarsen(made, 2).float(), task.input.size
        return Pairs(thin[:, :history], thin[:, history:])

    def load(self, split: str, grid: str = "id") -> Pairs:
        return self.splits[split]


def settings(benchmark: Benchmark, way: str, budget: float, seed: int) -> RunConfig:
    """The settings of one training: those of the row, for so many times its epochs."""
    chosen = WAYS[way]
    row = chosen.get("row", "fno-symmetrised")
    document = config_for(benchmark, row, "quick", seed).model_dump(mode="json")
    if "samples" in chosen:
        document["operator"]["samples"] = chosen["samples"]
    epochs = max(1, round(budget * EPOCHS[benchmark.task.dim]))
    document["schedule"] |= {"epochs": epochs, "coarse": 0.0, "validate_every": 2}
    return make_config(document)


def measure(name: str, source: Solved, way: str, budget: float, seed: int) -> dict[str, Any]:
    """One training: its processor seconds and its best validation error."""
    benchmark = benchmark_named(name)
    config = settings(benchmark, way, budget, seed)
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        progress = train(config, source, Path(folder) / "run")
        seconds = time.process_time() - started
    return {
        "problem": name,
        "way": way,
        "budget": budget,
        "seed": seed,
        "epochs": config.schedule.epochs,
        "group": config.scaling,
        "seconds": round(seconds, 1),
        "validation_error": progress.best_error,
    }


def stored() -> list[dict[str, Any]]:
    return list(json.loads(RESULTS.read_text())["rows"]) if RESULTS.exists() else []


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("problem", "way", "budget", "seed"))


def draw(path: Path) -> None:
    """Error against processor seconds, one panel for each problem."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    rows = stored()
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    size = (4 * len(problems), 3.4)
    figure, panels = pyplot.subplots(1, len(problems), figsize=size, squeeze=False)
    for panel, problem in zip(panels[0], problems, strict=True):
        for number, way in enumerate(WAYS):
            own = sorted(
                (row["seconds"], row["validation_error"])
                for row in rows
                if row["problem"] == problem and row["way"] == way
            )
            if own:
                panel.loglog(*zip(*own, strict=True), marker="o", color=f"C{number}", label=way)
            else:
                panel.plot([], [], marker="o", color=f"C{number}", label=way)
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter(ScalarFormatter())
            axis.set_minor_formatter(NullFormatter() if axis is panel.xaxis else ScalarFormatter())
        panel.set_xticks([20, 30, 40, 60, 90])
        panel.set_title(problem)
        panel.set_xlabel("processor seconds of training")
    panels[0][0].set_ylabel("validation error")
    panels[0][-1].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("problems", nargs="*")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--budgets", default="1")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.problems:
        source = Solved(benchmark_named(name))
        for way in options.ways.split(","):
            for budget in map(float, options.budgets.split(",")):
                wanted = (name, way, budget, options.seed)
                if wanted in map(key, stored()):
                    continue
                row = measure(name, source, way, budget, options.seed)
                rows = {key(old): old for old in [*stored(), row]}
                document = {"rows": [rows[k] for k in sorted(rows)]}
                write_text(RESULTS, json.dumps(document, indent=1) + "\n")
                print(f"{way:22s}{row['seconds']:8.1f} s {row['validation_error']:.5f}", flush=True)
    if options.figure:
        draw(options.figure)


if __name__ == "__main__":
    main()
