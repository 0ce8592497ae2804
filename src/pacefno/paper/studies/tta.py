"""Test-time adaptation: what refinement gains, with which optimiser, at what cost.

The paper's optimiser (Adam) over steps and rates, and Gauss-Newton over steps, on OOD test samples.
The frame of ``pace`` is consistent with itself from the start, so refinement has nothing to do
there; ``pace-cnn`` (the paper's estimator) and ``pace-free`` are the ones that can gain.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, final

import torch
from matplotlib.axes import Axes

from pacefno.data.samples import Pairs
from pacefno.frames import AdamRefiner, GaussNewton, Refinement
from pacefno.metrics import frame_distance
from pacefno.pace import PACE
from pacefno.paper import SEEDS, style
from pacefno.paper.bench import Places
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.studies._cells import (
    Cell,
    Outcome,
    Say,
    Table,
    grouped,
    mean_of,
    table_over_seeds,
)
from pacefno.paper.studies._runs import TrainedRow, batches, choose, errors_of, make_scope
from pacefno.task import Task

MODELS = ("pace", "pace-free", "pace-cnn")
STEPS, RATES = (1, 5, 20, 50), (0.005, 0.01, 0.05, 0.1)  # of Adam
NEWTON_STEPS = (1, 2, 4, 8)
WRONG_BASIN_PERIODS = 0.1  # a frame further from the true one lies in another basin


@final
@dataclass(frozen=True)
class Setting:
    """One refinement; without any steps it is the one-shot prediction."""

    refiner: Literal["none", "adam", "gauss-newton"]
    steps: int = 0
    rate: float = 0.0
    weight_decay: float = 0.0

    def make(self) -> AdamRefiner | GaussNewton:
        if self.refiner == "adam":
            return AdamRefiner(self.steps, self.rate, self.weight_decay)
        return GaussNewton(self.steps)

    @property
    def title(self) -> str:
        if self.refiner == "none":
            return "one-shot"
        return f"{self.refiner} {self.steps}" + (f" at {self.rate:g}" if self.rate else "")


# Steps, rate and weight decay of the paper's table of test-time adaptation settings.
PAPER = {
    "burgers1d": Setting("adam", 20, 0.05),
    "burgers1d_smooth": Setting("adam", 20, 0.05),
    "burgers2d": Setting("adam", 50, 0.01),
    "shallow_water": Setting("adam", 80, 0.05, 1e-4),
    "navier_stokes": Setting("adam", 5, 0.05),
    "navier_stokes_literal": Setting("adam", 5, 0.05),
}


def settings_for(benchmark: str) -> list[Setting]:
    """One-shot, Gauss-Newton, Adam over steps and rates, and the paper's own setting."""
    newton = [Setting("gauss-newton", steps) for steps in NEWTON_STEPS]
    adam = [Setting("adam", steps, rate) for rate in RATES for steps in STEPS]
    paper = [PAPER[benchmark]] if benchmark in PAPER and PAPER[benchmark] not in adam else []
    return [Setting("none"), *newton, *adam, *paper]


# --- the study ------------------------------------------------------------------------------------


def run(
    *,
    benchmark: str,
    models: Sequence[str] = (),
    seeds: Sequence[int] = SEEDS,
    preset: str = "standard",
    samples: int = 40,
    places: Places,
    say: Say,
) -> Outcome:
    """Refine the frames of ``samples`` OOD test samples with every setting, for finished runs."""
    scope = make_scope(benchmark, preset, places, say)
    jobs = [
        (row.identity | asdict(setting) | {"samples": samples}, (row, setting))
        for row in scope.trained_rows(choose(models, MODELS, "row"), seeds)
        for setting in settings_for(benchmark)
    ]

    def refine(row: TrainedRow, setting: Setting) -> Cell:
        return measure(row.trained.model, scope.task, scope.pairs("test_ood", samples), setting)

    file = scope.file("tta", "preset", "model", "seed", *asdict(Setting("none")))
    cells = file.fill(jobs, refine, say)
    cells = [cell for cell in cells if (cell["preset"], cell["samples"]) == (preset, samples)]
    tables = [errors_table(model, own) for model, own in grouped(cells, "model").items()]
    return Outcome(file.path, tables, draw(scope.benchmark, cells))


def measure(model: PACE, task: Task, pairs: Pairs, setting: Setting) -> Cell:
    """One setting; seconds are of refinement and prediction together, as a user waits for them."""
    predictions, frames = [], []
    refinements: list[Refinement] = []
    started = time.perf_counter()
    for rows in batches(len(pairs)):
        field = pairs.input[rows]
        if setting.refiner != "none":
            refinements.append(model.refine(field, setting.make()))
        with torch.no_grad():
            xi = refinements[-1].xi if refinements else model.frame_of(field).xi
            predictions.append(model.at(field, xi))
        frames.append(xi)
    seconds = time.perf_counter() - started
    apart = frame_distance(task.group, torch.cat(frames), pairs.elements)
    plain, canonical = errors_of(task, pairs, torch.cat(predictions))
    before = [one.energy_before for one in refinements]
    after = [one.energy_after for one in refinements]
    return {
        "ood_error": float(plain.mean()),
        "ood_error_std": float(plain.std()),
        "ood_error_canonical": float(canonical.mean()),
        "ood_error_canonical_std": float(canonical.std()),
        "energy_before": float(torch.cat(before).mean()) if before else None,
        "energy_after": float(torch.cat(after).mean()) if after else None,
        "evaluations": max((one.evaluations for one in refinements), default=0),
        "frame_error": float(apart.mean()),
        "astray": float((apart > WRONG_BASIN_PERIODS).double().mean()),
        "seconds": round(seconds, 3),
    }


def errors_table(model: str, cells: list[Cell]) -> Table:
    """One line for each setting of a row."""
    ordered = sorted(cells, key=lambda cell: cell["refiner"] != "none")
    groups = grouped(ordered, "refiner", "steps", "rate", "weight_decay")
    named = {Setting(*setting).title: own for setting, own in groups.items()}
    errors = {"OOD": "ood_error", "OOD, canonical": "ood_error_canonical"}
    means = {
        "energy after": "energy_after",
        "frame error": "frame_error",
        "wrong basin": "astray",
        "evaluations": "evaluations",
        "s": "seconds",
    }
    title = f"Test-time adaptation, OOD: {style.title_of(model)}"
    return table_over_seeds(title, named, errors, means)


# --- the figure -----------------------------------------------------------------------------------

COLOURS = (style.ORANGE, style.VERMILION, style.PURPLE, style.GREEN, style.FAINT)  # of rates
MARKERS = "s^DvP"
PANELS = (  # what is drawn over what
    ("steps", "ood_error_canonical", "OOD error, canonical frame"),
    ("seconds", "ood_error_canonical", ""),
    ("steps", "frame_error", "frame error, periods"),
)


def draw(benchmark: Benchmark, cells: list[Cell]) -> list[style.Drawing]:
    """One row of panels per model: error over steps, error over seconds, frame error over steps."""
    models = grouped(cells, "model")
    figure = style.new_figure(11.5, 2.9 * len(models) + 0.9)
    axes: style.Grid = figure.subplots(len(models), 3, squeeze=False)
    rates = sorted({cell["rate"] for cell in cells if cell["refiner"] == "adam"})
    for panels, (model, own) in zip(axes, models.items(), strict=True):
        refiners = grouped(own, "refiner", "rate")
        for axis, (x, y, name) in zip(panels, PANELS, strict=True):
            if one_shot := refiners.get(("none", 0.0)):
                look: style.Look = {"color": style.BLACK, "linestyle": "--", "linewidth": 1}
                axis.axhline(mean_of(one_shot, y), label="one-shot", **look)
            newton = refiners.get(("gauss-newton", 0.0), [])
            draw_line(axis, newton, x, y, "Gauss-Newton", color=style.BLUE, marker="o")
            for i, rate in enumerate(rates):
                look = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
                adam = refiners.get(("adam", rate), [])
                draw_line(axis, adam, x, y, f"Adam, rate {rate:g}", **look)
            axis.set_xscale("log")
            style.decimal_ticks(axis.xaxis)
            style.tidy(axis)
            style.label(axis, y=name)
        panels[2].set_yscale("log")
        style.decimal_ticks(panels[2].yaxis)
        style.label(panels[0], title=style.title_of(model))
    for axis, text in zip(
        axes[-1], ("steps", "seconds for the test samples", "steps"), strict=True
    ):
        style.label(axis, x=text)
    style.legend_below(figure, axes[0, 0].get_legend_handles_labels()[0])
    caption = (
        "Test-time adaptation: error against the number of steps and against the time it takes, "
        "and how far the refined frame is from the true one, for Adam at several rates (the "
        "paper's optimiser) and for Gauss-Newton. Bars: standard deviation over seeds. Dashed: the "
        "one-shot prediction."
    )
    return [style.Drawing(f"{benchmark.name}-tta", caption, figure)]


def draw_line(axis: Axes, cells: list[Cell], x: str, y: str, title: str, **look: Any) -> None:
    """Means over the seeds with their standard deviation, by the number of steps."""
    groups = grouped(sorted(cells, key=lambda cell: cell["steps"]), "steps").values()
    if groups:
        across = [statistics.fmean(cell[x] for cell in own) for own in groups]
        values = [[cell[y] for cell in own] for own in groups]
        means = [statistics.fmean(own) for own in values]
        spreads = [statistics.stdev(own) if len(own) > 1 else 0.0 for own in values]
        line: style.Look = {"markersize": 4.5, "linewidth": 1.4, "capsize": 2.5}
        axis.errorbar(across, means, yerr=spreads, label=title, **line, **look)
