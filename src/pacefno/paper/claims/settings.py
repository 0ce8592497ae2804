"""Hyperparameters: whether the preset ``paper`` has the paper's, and whether it was trained."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from pacefno.data.recipe import TRAJECTORY_SIZES
from pacefno.paper import SEEDS
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.claims.evidence import (
    PROBLEMS,
    Claim,
    Evidence,
    Finding,
    seeds_of,
    too_few,
)
from pacefno.paper.differences import changed, grids
from pacefno.paper.presets import config_for
from pacefno.paper.studies.base import grouped
from pacefno.paper.studies.tta import gain
from pacefno.paper.style import statistic
from pacefno.train.config import RunConfig, innermost

OWN = "viscosity, horizon, random law and OOD ranges are ours, the paper gives none"
OVER_TIME = "snapshots are channels (paper: an operator over space and time)"

# The paper's table of hyperparameters and the ranges of its training perturbations. Its footnote on
# shallow water is `plain_decay`, the weight decay of FNO and GFNO.
COMMON = {
    "optimizer": "adam", "shape": "step", "samples": (1000, 200), "weight_decay": 1e-4,
    "plain_decay": 1e-4, "batch": 20, "epochs": 500, "rate": 1e-3, "step_every": 100,
    "step_factor": 0.5, "grids": "64 × 64 → 128 × 128", "width": 32,
}  # fmt: skip
CORE: dict[str, dict[str, Any]] = {
    "burgers1d": COMMON
    | {"train_range": (0.1, 0.2), "grids": "1024 → 2048", "modes": 20, "width": 64}
    | {"step_every": 50},
    "burgers2d": COMMON | {"train_range": (0.1, 0.1, 0.5), "modes": 12},
    "shallow_water": COMMON
    | {"train_range": (0.15, 0.15, 0.2, 0.2), "modes": 16}
    | {"plain_decay": 1e-3, "step_factor": 0.2},
    "navier_stokes": COMMON
    | {"train_range": (0.05, 0.05, math.pi / 4), "modes": 10, "width": 20}
    | {"batch": 10, "epochs": 100, "rate": 2.5e-3},
}
# Its table of losses, and of steps, rate and weight decay at test time.
LOSSES: dict[str, dict[str, Any]] = {
    "burgers1d": {"h1_schedule": "ema", "h1_memory": 0.9, "equivariance": 10.0},
    "burgers2d": {"h1": 5.0, "equivariance": 1.0, "anchor": 5.0},
    "shallow_water": {"equivariance": 10.0, "anchor": 5.0, "invariant": 0.5},
    "navier_stokes": {
        "h1": 5.0, "equivariance": 1.0, "anchor": 20.0, "anchor_decay": 0.85, "anchor_floor": 0.1,
    },
}  # fmt: skip
ADAPTATION = {
    "burgers1d": (20, 0.05, 0.0), "burgers2d": (50, 0.01, 0.0),
    "shallow_water": (80, 0.05, 1e-4), "navier_stokes": (5, 0.05, 0.0),
}  # fmt: skip


def core(benchmark: str, evidence: Evidence) -> Finding:
    """The paper's hyperparameters against those of the preset, and whether it was ever run."""
    problem = benchmark_named(benchmark)
    config, sizes = config_for(problem, "pace-cnn", "paper", 42), problem.recipe.sizes_of("paper")
    plain = config_for(problem, "fno", "paper", 42)
    ours = config.schedule.model_dump() | config.operator
    ours |= {"samples": (sizes.train, sizes.test), "grids": grids(problem, "paper")}
    ours |= {"plain_decay": plain.schedule.weight_decay, "train_range": config.task.train_range}
    return compared(CORE[benchmark], ours, benchmark, evidence)


# Modes, width, layers and snapshots of its two tables of trajectories.
LARGE, COMPACT = (32, 256, 5, 20), (20, 64, 4)
ARCHITECTURES = {
    "kdv_easy": {"fno": LARGE, "fno-aug": LARGE, "pace-1": (*COMPACT, 1), "pace-20": LARGE},
    "kuramoto_sivashinsky": {
        "fno": LARGE, "fno-aug": LARGE, "pace-1": (*COMPACT, 1), "pace-20": (*COMPACT, 20),
    },
}  # fmt: skip


def sizes(benchmark: str, model: str, preset: str) -> tuple[int, ...]:
    """Modes, width, layers of the network of a row, and the snapshots that it is given."""
    config = config_for(benchmark_named(benchmark), model, preset, SEEDS[0])
    inner = innermost(config.operator)
    return inner["modes"], inner["width"], inner["layers"], config.task.input.snapshots


def architectures(benchmark: str, evidence: Evidence) -> Finding:
    """The sizes of the networks for trajectories, and whether they were trained."""
    paper = ARCHITECTURES[benchmark]
    wrong = [model for model, theirs in paper.items() if sizes(benchmark, model, "paper") != theirs]
    if wrong:
        return Finding("not", f"not the paper's: {', '.join(wrong)}", "0")
    seeds = min(seeds_of(evidence.rows(benchmark, model, "paper")) for model in paper)
    text = f"modes, width, layers and snapshots of {len(paper)} models as in the paper"
    if seeds >= len(SEEDS):
        return Finding("done", text, str(seeds))
    why = f"trained with {too_few(seeds)}"
    if seconds := statistic(evidence.rows(benchmark, "fno", "standard"), "train_seconds"):
        few, many = (updates(benchmark, "fno", preset) for preset in ("standard", "paper"))
        (_, width, *_), wide = sizes(benchmark, "fno", "standard"), paper["fno"][1]
        took = seconds.mean / 60
        why += f": the {few:,} updates of `fno` at `standard` took {took:.1f} minutes, so {many:,} "
        why += f"take {took * many / few:.0f}, and a width of {wide} instead of {width} has "
        why += f"{(wide / width) ** 2:.0f} times the products"
    return Finding("partly", text, str(seeds), why)


def updates(benchmark: str, model: str, preset: str) -> int:
    """Of a whole training on trajectories."""
    schedule = config_for(benchmark_named(benchmark), model, preset, SEEDS[0]).schedule
    return schedule.epochs * schedule.updates(TRAJECTORY_SIZES[preset].train)


def losses(benchmark: str, evidence: Evidence) -> Finding:
    """The paper's loss weights against those of the preset, and whether it was ever run."""
    config: RunConfig = config_for(benchmark_named(benchmark), "pace-cnn", "paper", 42)
    return compared(LOSSES[benchmark], config.loss.model_dump(), benchmark, evidence)


def compared(
    paper: dict[str, Any], ours: dict[str, Any], benchmark: str, evidence: Evidence
) -> Finding:
    wrong = [f"{key} is {ours.get(key)}, not {v}" for key, v in paper.items() if ours.get(key) != v]
    seeds = seeds_of(evidence.rows(benchmark, "pace-cnn", "paper"))
    text = "; ".join(wrong) or f"all {len(paper)} settings as in the paper"
    if wrong or seeds >= len(SEEDS):
        return Finding("not" if wrong else "done", text, str(seeds))
    why = f"trained with {too_few(seeds)}"
    for row in evidence.timed(benchmark, "paper"):
        if row["model"] == "pace-cnn":
            epochs, seconds = row["epochs"], row["epoch_seconds"]
            hours = epochs * seconds / 3600
            why += f": one takes {hours:.2g} hours ({epochs} epochs of {seconds:.3g} s, "
            why += f"{row['threads']} threads)"
    return Finding("partly", text, str(seeds), why)


def adaptation(benchmark: str, evidence: Evidence) -> Finding:
    """The optimiser at test time, and the row that uses it."""
    ours = tuple(asdict(benchmark_named(benchmark).adaptation).values())
    if ours != ADAPTATION[benchmark]:
        return Finding("not", f"{ours} instead of the paper's {ADAPTATION[benchmark]}")
    rows = evidence.rows(benchmark, "pace-cnn-tta", "standard")
    text, seeds = f"row `pace-cnn-tta`: {len(rows)} results", seeds_of(rows)
    if seeds < len(SEEDS):
        return Finding("partly", text, str(seeds), too_few(seeds))
    return Finding("done", text, str(seeds))


def sensitivity(benchmark: str, evidence: Evidence) -> Finding:
    """The gain of adaptation over steps and rates, with the paper's estimator."""
    problem, cells = benchmark_named(benchmark), evidence.cells("tta", benchmark)
    models = grouped(cells, "model")
    text = "\n".join(gain(problem, model, own) for model, own in models.items())
    seeds = seeds_of(models.get("pace-cnn", []))
    if 0 < seeds < len(SEEDS):
        return Finding("partly", text, str(seeds), too_few(seeds))
    text += "" if seeds else "\nNot measured with the paper's estimator."
    return Finding("done" if seeds else "not", text.strip(), str(seeds))


def settings_of_standard(problem: str) -> str:
    """What of ``standard`` is not as in the paper, as one note; with the sizes of the network."""
    settings = changed(benchmark_named(problem), "standard")
    texts = [f"{one.name}: {one.ours} (paper: {one.paper})" for one in settings]
    over = f"; {OVER_TIME}" if problem.startswith("navier_stokes") else ""
    return f"`standard`, {benchmark_named(problem).title}: {'; '.join(texts)}{over}"


def claims() -> Iterator[Claim]:
    for problem in PROBLEMS:
        title = benchmark_named(problem).title
        train = f"pacefno bench {problem} --preset paper --models pace-cnn"
        yield Claim(f"{title}: core hyperparameters", train, partial(core, problem))
        note = {
            "burgers1d": "H1 weight and the law of its average are guesses",
            "shallow_water": "H1 weight 1, its ramp and equal channel weights are guesses",
        }.get(problem, "")
        yield Claim(f"{title}: PACE losses", train, partial(losses, problem), note)
        command = f"pacefno bench {problem} --models pace-cnn-tta"
        yield Claim(f"{title}: TTA steps and rate", command, partial(adaptation, problem))
        command, what = f"pacefno study tta {problem} --models pace-cnn", "TTA over steps and rates"
        theirs = {
            "navier_stokes": "the paper finds the error stable over steps and rates",
            "shallow_water": "the paper finds the error nearly flat",
        }.get(problem, "not in the paper")
        notes = f"40 of 200 test samples\n{theirs}"
        yield Claim(f"{title}: {what}", command, partial(sensitivity, problem), notes)
    for problem in ("kdv_easy", "kuramoto_sivashinsky"):
        what = f"{benchmark_named(problem).title}: architectures"
        command = f"pacefno bench {problem} --preset paper"
        yield Claim(what, command, partial(architectures, problem), "frames are analytic")
