"""Test-time adaptation: what refinement gains, with which optimiser, at what cost.

The paper's optimiser (Adam) over steps and rates, and Gauss-Newton over steps, on OOD test samples.
The frame of ``pace`` is consistent with itself from the start, so refinement has nothing to do
there; ``pace-cnn`` (the paper's estimator) and ``pace-free`` are the ones that can gain.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from functools import partial
from typing import Literal, final

import torch

from pacefno.frames import AdamRefiner, GaussNewton, Refinement
from pacefno.metrics import frame_distance
from pacefno.paper import style
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.studies.base import Cell, Outcome, Scope, Table, TrainedRow, batches, grouped

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


def papers(benchmark: Benchmark) -> Setting:
    """Steps, rate and weight decay of the paper's table of test-time adaptation settings."""
    return Setting("adam", **asdict(benchmark.adaptation))


def settings_for(benchmark: Benchmark) -> list[Setting]:
    """One-shot, Gauss-Newton, Adam over steps and rates, and the paper's own setting."""
    newton = [Setting("gauss-newton", steps) for steps in NEWTON_STEPS]
    adam = [Setting("adam", steps, rate) for rate in RATES for steps in STEPS]
    return list(dict.fromkeys([Setting("none"), *newton, *adam, papers(benchmark)]))


# --- the study ------------------------------------------------------------------------------------


def run(scope: Scope, models: Sequence[str], seeds: Sequence[int], samples: int) -> Outcome:
    """Refine the frames of ``samples`` OOD test samples with every setting, for finished runs."""
    jobs = [
        (row.identity | asdict(setting), partial(measure, row, samples, setting))
        for row in scope.trained_rows(models, seeds, MODELS)
        for setting in settings_for(scope.benchmark)
    ]
    file = scope.file("tta", "preset", "model", "seed", *asdict(Setting("none")))
    cells = scope.measured(file, jobs, samples=samples)
    of_model = grouped(cells, "model").items()
    tables = [errors_table(model, own) for model, own in of_model]
    sentences = [gain(scope.benchmark, model, own) for model, own in of_model]
    return Outcome(file.path, tables, draw(scope.benchmark, cells), sentences)


def measure(row: TrainedRow, samples: int, setting: Setting) -> Cell:
    """One setting; seconds are of refinement and prediction together, as a user waits for them."""
    model, scope = row.trained.model, row.scope
    pairs = scope.pairs("test_ood", samples)
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
    apart = frame_distance(scope.task.group, torch.cat(frames), pairs.elements)
    plain, canonical = scope.errors(pairs, torch.cat(predictions))
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


def gain(benchmark: Benchmark, model: str, cells: list[Cell]) -> str:
    """What the paper's setting does to the error, and the range over all settings of Adam."""
    by_setting = grouped(cells, "refiner", "steps", "rate", "weight_decay")
    paper = papers(benchmark)
    key, keys = "ood_error_canonical", (("none", 0, 0.0, 0.0), astuple(paper))
    before, after = (style.statistic(by_setting.get(one, []), key) for one in keys)
    if before is None or after is None:
        return f"{model}: the one-shot prediction and the paper's setting are not both measured."
    way = f"Adam as in the paper ({paper.steps} steps at {paper.rate:g})"
    tried = [value for s, own in by_setting.items() if s[0] == "adam"
             if (value := style.statistic(own, key))]  # fmt: skip
    low, high = (end(value.mean for value in tried) for end in (min, max))
    change, seeds = 100 * (after.mean / before.mean - 1), len({cell["seed"] for cell in cells})
    verb = "raises" if change > 0 else "lowers"
    moved = f"by {abs(change):.2g} %, from {before} to {after}"
    did = f"{verb} the OOD error in the canonical frame {moved}"
    if abs(change) < 0.01:
        did = f"leaves the OOD error in the canonical frame at {before}"
    return (
        f"{model}, {seeds} seed{'s' * (seeds > 1)}: {way} {did}; over all steps and rates of Adam "
        f"it lies between {low:.4g} and {high:.4g}."
    )


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
    return Table.over_seeds(title, named, means, errors)


# --- the figure -----------------------------------------------------------------------------------

COLOURS = (  # of Gauss-Newton, then of rates
    style.BLUE, style.ORANGE, style.VERMILION, style.PURPLE, style.GREEN, style.FAINT,
)  # fmt: skip
MARKERS = "os^DvP"
PANELS = (  # what is drawn over what, and their names
    ("steps", "ood_error_canonical", "steps", "OOD error, canonical frame"),
    ("seconds", "ood_error_canonical", "seconds for the test samples", ""),
    ("steps", "frame_error", "steps", "frame error, periods"),
)


def draw(benchmark: Benchmark, cells: list[Cell]) -> list[style.Drawing]:
    """One row of panels per model: error over steps, error over seconds, frame error over steps."""
    models = grouped(cells, "model")
    figure, axes = style.panels(11.5, 2.9 * len(models) + 0.9, len(models), 3)
    rates = sorted({cell["rate"] for cell in cells if cell["refiner"] == "adam"})
    for panels, (model, own) in zip(axes, models.items(), strict=True):
        refiners = grouped(own, "refiner", "rate")
        for axis, (x, y, across, up) in zip(panels, PANELS, strict=True):
            if one_shot := style.statistic(refiners.get(("none", 0.0), []), y):
                look: style.Look = {"color": style.BLACK, "linestyle": "--", "linewidth": 1}
                axis.axhline(one_shot.mean, label="one-shot", **look)
            for i, way in enumerate([("gauss-newton", 0.0), *(("adam", rate) for rate in rates)]):
                name = f"Adam, rate {way[1]:g}" if way[1] else "Gauss-Newton"
                look = {"color": COLOURS[i % 6], "marker": MARKERS[i % 6], "label": name}
                look |= {"markersize": 4.5, "linewidth": 1.4, "capsize": 2.5}
                style.draw_means(axis, refiners.get(way, []), "steps", x, y, look)
            bottom = panels[0] is axes[-1, 0]
            style.finish(axis, across * bottom, up, log="xy" if axis is panels[2] else "x")
        style.label(panels[0], title=style.title_of(model))
    style.legend_below(figure, axes[0, 0].get_legend_handles_labels()[0])
    caption = (
        "Test-time adaptation: error against the number of steps and against the time it takes, "
        "and how far the refined frame is from the true one, for Adam at several rates (the "
        "paper's optimiser) and for Gauss-Newton. Bars: standard deviation over seeds. Dashed: the "
        "one-shot prediction."
    )
    return [style.Drawing(f"{benchmark.name}-tta", caption, figure, models=tuple(models))]
