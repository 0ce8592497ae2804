"""What a finite symmetry earns at equal time: plain, random element, averages, and GFNO.

    python benchmarks/finite_symmetry.py burgers1d [--ways plain,random] [--budgets 1,2]

Every way is trained several times, each with a schedule of its own length, and the best validation
error is kept with the processor time of the training (one thread; time on the wall would count
whatever else the machine does). Test samples are not looked at: what is chosen here is then
measured by ``pacefno bench``. Results are added to results/finite_symmetry.json; ``--figure``
draws them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from pacefno.files import write_text
from pacefno.paper.bench import prepare_data
from pacefno.paper.benchmarks import Benchmark, benchmark_named
from pacefno.paper.presets import config_for
from pacefno.train.config import RunConfig, make_config
from pacefno.train.loop import train

RESULTS = Path("results/finite_symmetry.json")
# How an FNO without coordinates meets the group. A budget of 1 has as many epochs as the preset.
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"row": "fno-nogrid"},
    "average at test": {"samples": 0},
    "random element": {"samples": 1},
    "two random elements": {"samples": 2},
    "average": {"samples": None},
    "gfno": {"row": "gfno"},
}


def settings(benchmark: Benchmark, way: str, preset: str, budget: float, seed: int) -> RunConfig:
    """The settings of one training: those of the row, for so many times its epochs."""
    chosen = WAYS[way]
    row = chosen.get("row", "fno-symmetrised")
    document = config_for(benchmark, row, preset, seed).model_dump(mode="json")
    if "samples" in chosen:
        document["operator"]["samples"] = chosen["samples"]
    schedule = document["schedule"]
    schedule["epochs"] = max(1, round(budget * schedule["epochs"]))
    schedule["validate_every"] = min(schedule["validate_every"], schedule["epochs"])
    return make_config(document)


def measure(name: str, way: str, preset: str, budget: float, seed: int, data: Path) -> dict:
    """One training: its processor seconds and its best validation error."""
    benchmark = benchmark_named(name)
    source = prepare_data(benchmark, preset, data)
    config = settings(benchmark, way, preset, budget, seed)
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        progress = train(config, source, Path(folder) / "run")
        seconds = time.process_time() - started
    return {
        "problem": name,
        "preset": preset,
        "way": way,
        "budget": budget,
        "seed": seed,
        "epochs": config.schedule.epochs,
        "group": benchmark.symmetry if way != "gfno" else config.operator["group"],
        "seconds": round(seconds, 1),
        "validation_error": progress.best_error,
    }


def stored() -> list[dict[str, Any]]:
    return list(json.loads(RESULTS.read_text())["rows"]) if RESULTS.exists() else []


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("problem", "preset", "way", "budget", "seed"))


def draw(path: Path) -> None:
    """Error against processor seconds, one panel for each problem."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = stored()
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    size = (4 * len(problems), 3.4)
    figure, panels = pyplot.subplots(1, len(problems), figsize=size, squeeze=False)
    for panel, problem in zip(panels[0], problems, strict=True):
        for way in WAYS:
            own = sorted(
                (row["seconds"], row["validation_error"])
                for row in rows
                if row["problem"] == problem and row["way"] == way
            )
            if own:
                panel.loglog(*zip(*own, strict=True), marker="o", label=way)
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
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--data", type=Path, default=Path("datasets"))
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.problems:
        for way in options.ways.split(","):
            for budget in map(float, options.budgets.split(",")):
                wanted = (name, options.preset, way, budget, options.seed)
                if wanted in map(key, stored()):
                    continue
                row = measure(name, way, options.preset, budget, options.seed, options.data)
                rows = {key(old): old for old in [*stored(), row]}
                document = {"rows": [rows[k] for k in sorted(rows)]}
                write_text(RESULTS, json.dumps(document, indent=1) + "\n")
                print(f"{way:22s}{row['seconds']:8.1f} s {row['validation_error']:.5f}", flush=True)
    if options.figure:
        draw(options.figure)


if __name__ == "__main__":
    main()
