"""Test-time adaptation: error over steps for every rate, and error over seconds."""

from __future__ import annotations

import statistics
from typing import Any

from matplotlib.axes import Axes

from pacefno.equations import Problem
from pacefno.studies.report.figures.style import (
    BLACK,
    BLUE,
    FAINT,
    GREEN,
    ORANGE,
    PURPLE,
    VERMILION,
    Drawing,
    Grid,
    Look,
    decimal_ticks,
    label,
    legend_below,
    new_figure,
    tidy,
    title_of,
)

Cell = dict[str, Any]
RATE_LOOKS = ((ORANGE, "s"), (VERMILION, "^"), (PURPLE, "D"), (GREEN, "v"), (FAINT, "P"))
ERROR = "ood_error_canonical"


def draw_tta(problem: Problem, cells: list[Cell]) -> Drawing:
    """One row of panels per model: error over steps, error over seconds, distance from the true frame over steps."""
    models = list(dict.fromkeys(cell["model"] for cell in cells))
    figure = new_figure(11.5, 2.9 * len(models) + 0.9)
    axes: Grid = figure.subplots(len(models), 3, squeeze=False)
    rates = sorted({cell["rate"] for cell in cells if cell["refiner"] == "adam"})
    for row, model in enumerate(models):
        own = [cell for cell in cells if cell["model"] == model]
        _panel(axes[row, 0], own, rates, "steps", ERROR)
        _panel(axes[row, 1], own, rates, "seconds", ERROR)
        _panel(axes[row, 2], own, rates, "steps", "frame_error")
        axes[row, 2].set_yscale("log")
        decimal_ticks(axes[row, 2].yaxis)
        label(axes[row, 0], y="OOD error, canonical frame", title=title_of(model))
        label(axes[row, 2], y="frame error, periods")
    for axis, text in zip(axes[-1], ("steps", "seconds for the test samples", "steps"), strict=True):
        label(axis, x=text)
    legend_below(figure, axes[0, 0].get_legend_handles_labels()[0])
    caption = (
        "Test-time adaptation: error against the number of steps and against the time it takes, and how far the refined frame "
        "is from the true one, for Adam at several rates (the paper's optimiser) and for Gauss-Newton. Bars: standard "
        "deviation over seeds. Dashed: the one-shot prediction."
    )
    return Drawing(f"{problem.name}-tta", caption, figure)


def _panel(axis: Axes, cells: list[Cell], rates: list[float], x: str, y: str) -> None:
    one_shot = [cell[y] for cell in cells if cell["refiner"] == "none"]
    if one_shot:
        axis.axhline(statistics.fmean(one_shot), color=BLACK, linestyle="--", linewidth=1, label="one-shot")
    _line(axis, [cell for cell in cells if cell["refiner"] == "gauss-newton"], (x, y), (BLUE, "o"), "Gauss-Newton")
    for i, rate in enumerate(rates):
        own = [cell for cell in cells if cell["refiner"] == "adam" and cell["rate"] == rate]
        _line(axis, own, (x, y), RATE_LOOKS[i % len(RATE_LOOKS)], f"Adam, rate {rate:g}")
    axis.set_xscale("log")
    decimal_ticks(axis.xaxis)
    tidy(axis)


def _line(axis: Axes, cells: list[Cell], keys: tuple[str, str], look: tuple[str, str], title: str) -> None:
    """Means over the seeds with their deviation."""
    x, y = keys
    points = []
    for steps in sorted({cell["steps"] for cell in cells}):
        own = [cell for cell in cells if cell["steps"] == steps]
        values = [cell[y] for cell in own]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        points.append((statistics.fmean(cell[x] for cell in own), statistics.fmean(values), spread))
    if points:
        across, means, spreads = zip(*points, strict=True)
        line: Look = {"color": look[0], "marker": look[1], "markersize": 4.5, "linewidth": 1.4, "capsize": 2.5}
        axis.errorbar(across, means, yerr=spreads, label=title, **line)
