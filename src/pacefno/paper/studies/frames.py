"""How well frames are found over the whole group, and how often one is at a wrong minimum.

Canonical test fields are moved by random elements: every shift, every angle, velocities up to 1,
not only the shell of the OOD test set. Measured before and after refinement. Results are kept as
``frames-BENCHMARK.json``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from pacefno.fields import Field
from pacefno.metrics import frame_error, random_elements, relative_l2
from pacefno.paper import style
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.studies.base import Cell, Outcome, Scope, Table, TrainedRow, batches, grouped

MODELS = ("pace", "pace-analytic", "pace-free", "pace-cnn")
WRONG_BASIN_ERROR = 0.1  # relative: a pulled-back field further off lies in another basin
QUANTILES = (0.5, 0.9, 0.99)
WAYS = {"one_shot": (style.ORANGE, "one-shot"), "refined": (style.BLUE, "refined")}


def run(scope: Scope, models: Sequence[str], seeds: Sequence[int], elements: int) -> Outcome:
    """Find the frames of fields moved by ``elements`` random elements, for finished runs."""
    rows = scope.trained_rows(models, seeds, MODELS)
    jobs = [(row.identity, partial(measure, row, elements)) for row in rows]
    file = scope.file("frames", "preset", "model", "seed", "elements")
    cells = scope.measured(file, jobs, elements=elements)
    return Outcome(file.path, [errors_table(cells)], draw(scope.benchmark, cells))


@torch.no_grad()
def measure(row: TrainedRow, count: int) -> Cell:
    """``count`` canonical fields, each moved by an element drawn from the whole group."""
    model, task, fields = row.trained.model, row.scope.task, row.scope.pairs("test_id").input
    row.scope.say(f"{row.name} seed {row.seed}: frames of {count} moved fields")
    group = task.group
    elements, numbers = random_elements(group, count, row.seed), torch.arange(count)
    apart: dict[str, list[Tensor]] = {way: [] for way in WAYS}  # of the frames, by coordinate
    off: dict[str, list[Tensor]] = {way: [] for way in WAYS}  # of the pulled-back fields
    seconds, confidences = dict.fromkeys(WAYS, 0.0), []
    for rows in batches(count):
        xi, canonical = elements[rows], fields[numbers[rows] % len(fields)]
        moved = group.act(Field(canonical, task.input), xi)
        began = time.perf_counter()
        estimate = model.frame_of(moved.values)
        seconds["one_shot"] += time.perf_counter() - began
        refined = model.refine(moved.values, start=estimate).xi
        seconds["refined"] += time.perf_counter() - began  # the estimate's included
        confidences.append(estimate.confidence)
        for way, frame in (("one_shot", estimate.xi), ("refined", refined)):
            apart[way].append(frame_error(group, frame, xi))
            off[way].append(relative_l2(group.inverse(moved, frame).values, canonical).double())
    cell: Cell = {}
    for way in WAYS:
        columns, distance = torch.cat(apart[way]).unbind(dim=1), torch.cat(off[way])
        named = zip(group.coordinates, columns, strict=True)
        cell[way] = {
            "frame_error": {name: quantiles(column) for name, column in named},
            "field_error": quantiles(distance),
            "astray": float((distance > WRONG_BASIN_ERROR).double().mean()),
        }
    confidence, wrong = torch.cat(confidences), torch.cat(off["one_shot"]) > WRONG_BASIN_ERROR
    parts = {"found": confidence[~wrong], "astray": confidence[wrong]}
    return cell | {
        "seconds": {way: value / count for way, value in seconds.items()},
        "confidence": {k: float(v.median()) if len(v) else None for k, v in parts.items()},
        "off": {way: torch.cat(values).tolist() for way, values in off.items()},
    }


def quantiles(values: Tensor) -> list[float]:
    """The median and two high quantiles."""
    at = torch.tensor(QUANTILES, dtype=torch.float64)
    return list(torch.quantile(values.double(), at).tolist())


def errors_table(cells: list[Cell]) -> Table:
    """One line for each row and seed, once one-shot and once refined."""
    coordinates = list(cells[0]["one_shot"]["frame_error"])
    lines = []
    for cell in cells:
        for way, (_, title) in WAYS.items():
            part = cell[way]
            errors = [*(part["frame_error"][name] for name in coordinates), part["field_error"]]
            texts = [" ".join(f"{value:.0e}" for value in values) for values in errors]
            share, time_each = f"{100 * part['astray']:.1f} %", 1000 * cell["seconds"][way]
            name = style.title_of(cell["model"])
            lines.append([name, str(cell["seed"]), title, *texts, share, f"{time_each:.1f}"])
    rest = ["pulled-back field off", "wrong basin", "ms a sample"]
    note = f"Errors: quantiles {', '.join(f'{100 * q:g} %' for q in QUANTILES)}."
    columns = ["row", "seed", "frame", *coordinates, *rest]
    return Table("Frames over the whole group", columns, lines, note)


# --- the figure -----------------------------------------------------------------------------------

BINS = np.logspace(-7, 0.5, 46)


def draw(benchmark: Benchmark, cells: list[Cell]) -> list[style.Drawing]:
    """One panel a row, all seeds together: how far the pulled-back field is from the truth."""
    models = grouped(cells, "model")
    figure, (axes,) = style.panels(3.6 * len(models) + 0.6, 3.4, 1, len(models), sharey=True)
    for axis, (model, own) in zip(axes, models.items(), strict=True):
        for way, (colour, title) in WAYS.items():
            off = np.concatenate([np.asarray(cell["off"][way]) for cell in own])
            bars: style.Look = {"x": off.clip(BINS[0], BINS[-1]), "bins": BINS, "color": colour}
            axis.hist(histtype="stepfilled", alpha=0.45, label=title, **bars)
            axis.hist(histtype="step", **bars)
        look: style.Look = {"color": "0.4", "linestyle": "--", "linewidth": 1}
        axis.axvline(WRONG_BASIN_ERROR, label="wrong basin beyond", **look)
        axis.set_xscale("log")
        style.finish(axis, "distance of the pulled-back field", title=style.title_of(model))
    style.label(axes[0], y="samples")
    style.legend_below(figure, axes[0].get_legend_handles_labels()[0])
    caption = (
        "How far the pulled-back field is from the canonical one (relative L2) when canonical test "
        "fields are moved by random elements of the whole group: with the one-shot frame and after "
        "refinement. Beyond the dashed line the frame lies in a wrong basin."
    )
    return [style.Drawing(f"{benchmark.name}-frames", caption, figure)]
