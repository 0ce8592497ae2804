"""Make the small models of the explorer and the gallery: four problems, three models each.

    python docs/models/train.py [PROBLEM ...]

Writes ``docs/models/PROBLEM/MODEL``, run folders that ``pacefno.load`` reads, and beside them
``samples.safetensors``, a few held-out samples on the training grid. ``fno`` and ``fno-aug`` are
trained; ``pace`` is the very ``fno``, wrapped, so that on an unmoved field both predict the same.
Equations, laws of initial states and ranges are those of the benchmarks; networks are smaller, and
Navier-Stokes goes from one snapshot to one (the benchmark from ten to twenty), so that all of it
takes minutes and stays below 5 MB. The tables of docs/results.md come from the benchmarks.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from pacefno.checkpoint import FINAL, save_checkpoint
from pacefno.data import prepare
from pacefno.data.recipe import Sizes
from pacefno.files import write_bytes, write_text
from pacefno.inference import describe_model, read_model, restore, weights_of
from pacefno.paper.benchmarks import Benchmark, benchmark_named, make_task
from pacefno.paper.presets import config_for
from pacefno.train.config import RunConfig, with_overrides
from pacefno.train.evaluate import load_run, score
from pacefno.train.loop import CONFIG_FILE, LOG_FILE, train

HERE = Path(__file__).parent
TRAINED, WRAPPED = ("fno", "fno-aug"), "pace"
SAMPLES = 3  # of the test set, kept for the explorer
SEED = 42
PRESET = "small"
SIZES = {1: Sizes(train=1500, validation=40, test=40), 2: Sizes(train=600, validation=40, test=40)}
NETWORK = {"layers": 3, "head": 48}
SCHEDULE = ("epochs", "coarse", "coarse_stride")
PROBLEMS: dict[str, dict[str, Any]] = {  # the longest first, for two processes
    "shallow_water": {"width": 12, "modes": 8, "epochs": 60, "coarse": 0.7},
    "navier_stokes": {"width": 12, "modes": 8, "epochs": 24, "coarse": 0.8},
    "burgers2d": {"width": 12, "modes": 8, "epochs": 24},
    "burgers1d": {"width": 20, "modes": 20, "epochs": 40, "coarse_stride": 2},
}


def problem(name: str) -> Benchmark:
    """A benchmark with fewer samples; Navier-Stokes from one snapshot to one a second later."""
    benchmark = benchmark_named(name)
    recipe = replace(benchmark.recipe, sizes={PRESET: SIZES[benchmark.task.dim]})
    if name == "burgers1d":
        recipe = replace(recipe, coarsening=4)  # 512 points
    else:  # solved on the training grid: within 0.3 % of 128 x 128 points, in a fifth of the time
        recipe = replace(recipe, grid=(64, 64), coarsening=1, step=2 * recipe.step)
    if name == "navier_stokes":
        old = benchmark.task
        task = make_task(
            name, recipe.equation, old.group, old.slice, spacing=1.0, train_range=old.train_range
        )
        recipe = replace(recipe, task=task, resolve=False, step=0.02)
    return replace(benchmark, recipe=recipe)


def make(name: str, out: Path, data: Path) -> dict[str, Any]:
    """The samples and models of a problem; errors in and out of distribution by model."""
    torch.set_num_threads(1)
    benchmark, started = problem(name), time.perf_counter()
    source = prepare(benchmark.recipe, PRESET, SEED, data, workers=1)
    few = source.load("test_id", "id", SAMPLES)
    (out / name).mkdir(parents=True, exist_ok=True)
    arrays = {"input": few.input.contiguous(), "target": few.target.contiguous()}
    write_bytes(out / name / "samples.safetensors", save(arrays))
    print(f"{name}: data {time.perf_counter() - started:.0f} s", flush=True)
    result = {}
    changes = [
        f"{'schedule' if key in SCHEDULE else 'operator'}.{key}={value}"
        for key, value in (NETWORK | PROBLEMS[name]).items()
    ]
    for model in (*TRAINED, WRAPPED):
        run, plain = out / name / model, out / name / TRAINED[0]
        shutil.rmtree(run, ignore_errors=True)
        row = "pace-analytic" if model == WRAPPED else model
        config = with_overrides(config_for(benchmark, row, "quick", SEED), changes)
        if model == WRAPPED:
            wrap(plain, run, config)
        else:
            train(config, source, run)
            for file in (*run.glob("epoch*"), run / "run.lock", run / LOG_FILE):
                file.unlink(missing_ok=True)
        trained = load_run(run)
        scored = score(trained.model, config.task, source)
        kept = ("id_error", "ood_error", "ood_error_canonical", "parameters")
        result[model] = {key: scored[key] for key in kept}
        result[model]["seconds"] = round(trained.train_seconds, 1)
        print(name, model, json.dumps(result[model]), flush=True)
    return result


def wrap(plain: Path, run: Path, config: RunConfig) -> None:
    """A run that holds a trained FNO within PACE, with the frame that is read off a field."""
    checkpoint, weights = read_model(plain)
    model = restore(plain, checkpoint, weights, frame=config.frame)
    labels = config.labels | {"model": WRAPPED, "title": "PACE: the same FNO, wrapped"}
    config = config.model_copy(update={"labels": labels})
    write_text(run / CONFIG_FILE, config.model_dump_json(indent=2) + "\n")
    documents = {"model": describe_model(model), "config": config.model_dump(mode="json")}
    documents["timing"] = {"seconds": 0.0, "threads": 1}
    save_checkpoint(run / FINAL, {"model": weights_of(model)}, documents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS), metavar="PROBLEM")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--data", type=Path, default=Path("datasets"))
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(chosen.workers, mp_context=spawn) as pool:
        jobs = {n: pool.submit(make, n, chosen.out, chosen.data) for n in chosen.problems}
        table = {name: job.result() for name, job in jobs.items()}
    file = chosen.out / "models.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    write_text(file, json.dumps(known | table, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
