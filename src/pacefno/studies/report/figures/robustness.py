"""Errors and confidences of models against noise, missing points and broken symmetry."""

from __future__ import annotations

import statistics
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pacefno.equations import Problem
from pacefno.studies.report.figures.style import (
    Drawing,
    Grid,
    decimal_ticks,
    label,
    legend_below,
    line_look,
    new_figure,
    style_of,
    tidy,
)

Cell = dict[str, Any]
NAMES = {
    "noise": "noise, share of the field's rms",
    "missing": "share of missing points",
    "forcing": "effect of the force, share of the field's rms",
}


def draw_robustness(problem: Problem, cells: list[Cell]) -> Drawing:
    """One column per kind of trouble: error above, confidence below."""
    kinds = [kind for kind in NAMES if any(cell["kind"] == kind for cell in cells)]
    models = list(dict.fromkeys(cell["model"] for cell in cells))
    figure = new_figure(1.0 + 3.6 * len(kinds), 6.0)
    axes: Grid = figure.subplots(2, len(kinds), squeeze=False, sharex="col", sharey="row", height_ratios=(3, 2))
    for column, kind in enumerate(kinds):
        own = [cell for cell in cells if cell["kind"] == kind]
        for model in models:
            _line(axes[0, column], own, model, "error")
            _line(axes[1, column], own, model, "confidence")
        axes[0, column].set_yscale("log")
        decimal_ticks(axes[0, column].yaxis)
        axes[1, column].set_ylim(0, 1.05)
        for axis in axes[:, column]:
            tidy(axis)
        label(axes[1, column], x=NAMES[kind])
    label(axes[0, 0], y="OOD error, canonical frame")
    label(axes[1, 0], y="confidence of the frame")
    legend_below(figure, [Line2D([], [], marker=style_of(m).marker, markersize=4, **line_look(m)) for m in models])
    caption = (
        f"{problem.title}: OOD error against noise on the input, against missing points (filled with the band-limited field "
        "that fits the rest), and against a weak force that breaks the symmetry; below, how sure the frames are of themselves."
    )
    return Drawing(f"{problem.name}-robustness", caption, figure)


def _line(axis: Axes, cells: list[Cell], model: str, key: str) -> None:
    """Means over the seeds; nothing where a model has no such number."""
    points = []
    for level in sorted({cell["level"] for cell in cells}):
        values = [cell[key] for cell in cells if cell["model"] == model and cell["level"] == level and cell[key] is not None]
        if values:
            points.append((level, statistics.fmean(values)))
    if points:
        axis.plot(*zip(*points, strict=True), marker=style_of(model).marker, markersize=4, **line_look(model))
