"""What a finite symmetry earns at equal time: plain, random element, averages, and GFNO.

    python benchmarks/finite_symmetry.py burgers1d [--ways plain,average] [--budgets 1,2]
    python benchmarks/finite_symmetry.py --figure docs/figures/finite-symmetry.png

Smaller than the benchmarks, so that many trainings fit into an hour of one core: the equations,
laws, slices and operators (at half their width) of the benchmarks, with 300 training samples.
Burgers and shallow water are solved on a coarse grid when the script starts; Navier-Stokes needs
its own grid, so there the first samples of the dataset of ``standard`` are taken.
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

from documents import markdown
from pacefno.data import prepare
from pacefno.data.samples import Pairs, Source
from pacefno.fields import Field
from pacefno.files import write_text
from pacefno.grid import coarsen
from pacefno.paper.benchmarks import Benchmark, benchmark_named
from pacefno.paper.presets import config_for
from pacefno.paper.style import STYLES, finish, legend_below, panels
from pacefno.pde import solve
from pacefno.pde.initial import generator_for
from pacefno.train.config import RunConfig, make_config
from pacefno.train.loop import train

RESULTS = Path("results/finite_symmetry.json")
SAMPLES = {"train": 300, "validation": 100}
GRIDS = {1: 512, 2: 64}  # on which samples are solved; every second point is kept
STORED = ("navier_stokes", "navier_stokes_literal")  # half their grid could not hold the vorticity
EPOCHS = {1: 60, 2: 24}
# How an FNO without position channels meets the group, and as which row it is drawn.
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"row": "fno-nogrid", "drawn": "fno"},
    "average at test": {"samples": 0, "drawn": "fno-aug"},
    "random element": {"samples": 1, "drawn": "pace"},
    "two random elements": {"samples": 2, "drawn": "pace-free"},
    "average": {"samples": None, "drawn": "pace-tta"},
    "gfno": {"row": "gfno", "drawn": "gfno"},
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


class Few:
    """The first samples of a dataset, which is generated if it is missing."""

    def __init__(self, benchmark: Benchmark, data: Path) -> None:
        self.whole = prepare(benchmark.recipe, "standard", root=data)

    def load(self, split: str, grid: str = "id") -> Pairs:
        found = self.whole.load(split, grid).select(slice(0, SAMPLES[split]))
        assert isinstance(found, Pairs)
        return found


def source_of(benchmark: Benchmark, data: Path) -> Source:
    return Few(benchmark, data) if benchmark.name in STORED else Solved(benchmark)


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


def measure(name: str, source: Source, way: str, budget: float, seed: int) -> dict[str, Any]:
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
    rows = stored()
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    columns = 2 if len(problems) == 4 else min(3, len(problems))
    lines = -(-len(problems) // columns)
    figure, axes = panels(3.6 * columns, 2.9 * lines + 0.6, lines, columns)
    for axis in axes.flat[len(problems) :]:
        axis.set_visible(False)
    for axis, problem in zip(axes.flat, problems, strict=False):
        for way, chosen in WAYS.items():
            points = sorted(
                (row["seconds"], row["validation_error"])
                for row in rows
                if row["problem"] == problem and row["way"] == way
            )
            if points:
                look = STYLES[chosen["drawn"]]
                drawn = {"color": look.colour, "marker": look.marker, "linewidth": 1.6}
                axis.plot(*zip(*points, strict=True), label=way, **drawn)
        title = benchmark_named(problem).title
        finish(axis, "processor seconds of training", "validation error", title, log="xy")
    legend_below(figure, columns=len(WAYS))
    figure.savefig(path, dpi=150)


def content(document: dict[str, Any]) -> str:
    """All results by problem and time; the last column divides by the plain FNO's (docs)."""
    rows = document["rows"]
    plain = {r["problem"]: r for r in rows if r["way"] == "plain" and r["budget"] == 1}
    cells = []
    for row in sorted(rows, key=lambda row: (list(plain).index(row["problem"]), row["seconds"])):
        base = plain[row["problem"]]
        ratios = [row[entry] / base[entry] for entry in ("seconds", "validation_error")]
        own = [benchmark_named(row["problem"]).title, row["way"], str(row["epochs"])]
        own += [f"{row['seconds']:.0f}", f"{row['validation_error']:.4f}"]
        cells.append([*own, "{:.1f}, {:.2f}".format(*ratios)])
    head = ["problem", "way", "epochs", "processor seconds", "validation error"]
    return markdown([*head, "time, error / plain"], cells, left=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("problems", nargs="*")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--budgets", default="1")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--data", type=Path, default=Path("datasets"))
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.problems:
        source = source_of(benchmark_named(name), options.data)
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
