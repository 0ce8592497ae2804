"""The energy of test-time adaptation over two frame coordinates: contours, minima, basins and descent paths."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pacefno.equations import Problem
from pacefno.studies.report.figures.style import (
    BLACK,
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Drawing,
    Grid,
    Look,
    label,
    legend_below,
    new_figure,
    title_of,
)

Cell = dict[str, Any]
SHADES = "cividis_r"  # the same lightness order for every kind of sight
BASINS = (BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY)
NAMES = {"x": "shift along x", "y": "shift along y", "angle": "angle", "velocity": "velocity"}


def draw_landscape(problem: Problem, cells: list[Cell]) -> Drawing:
    """One panel per model on a common scale of energy."""
    highest = max(value for cell in cells for row in cell["energy"] for value in row)
    figure = new_figure(1.2 + 4.3 * len(cells), 5.2)
    axes: Grid = figure.subplots(1, len(cells), squeeze=False, sharey=True)[0]
    for axis, cell in zip(axes, cells, strict=True):
        shades = _energies(axis, cell, highest)
        _starts(axis, cell)
        _paths(axis, cell)
        _marks(axis, cell)
        label(axis, x=_name(cell["coordinates"][0]), title=title_of(cell["model"]))
    label(axes[0], y=_name(cells[0]["coordinates"][1]))
    figure.colorbar(shades, ax=list(axes), shrink=0.8, label="energy J")
    legend_below(figure, _handles(), columns=3)
    first = cells[0]
    caption = (
        f"{problem.title}, OOD sample {first['sample']}: the energy of test-time adaptation over two coordinates of its frame. "
        "Small dots are starts of descents, coloured by the minimum that they reach; grey ones end elsewhere."
    )
    return Drawing(f"{problem.name}-landscape-{'-'.join(first['coordinates'])}", caption, figure)


def _energies(axis: Axes, cell: Cell, highest: float) -> Any:
    values = np.array(cell["energy"])
    (left, low), (right, high) = cell["low"], cell["high"]
    lines = [a + (b - a) * (np.arange(n) + 0.5) / n for a, b, n in zip((left, low), (right, high), values.shape, strict=True)]
    axis.set_xlim(left, right)
    axis.set_ylim(low, high)
    axis.tick_params(labelsize=8.5, color=FAINT, labelcolor=INK)
    shades = axis.contourf(*lines, values.T, levels=np.linspace(0, highest, 25), cmap=SHADES)
    axis.contour(*lines, values.T, levels=np.linspace(0, highest, 13)[1:], colors="white", linewidths=0.4, alpha=0.6)
    return shades


def _starts(axis: Axes, cell: Cell) -> None:
    for (x, y), basin in zip(cell["starts"], cell["labels"], strict=True):
        colour = FAINT if basin < 0 else BASINS[basin % len(BASINS)]
        axis.plot(x, y, "o", color=colour, markersize=3.6, markeredgecolor="white", markeredgewidth=0.4, zorder=3)


def _paths(axis: Axes, cell: Cell) -> None:
    looks: dict[str, Look] = {
        "adam": {"color": VERMILION, "linestyle": "-", "linewidth": 1.1},
        "gauss-newton": {"color": BLACK, "linestyle": "-", "linewidth": 1.1},
        "from the estimate": {"color": BLACK, "linestyle": "--", "linewidth": 1.6},
    }
    spans = [high - low for low, high in zip(cell["low"], cell["high"], strict=True)]
    for name, look in looks.items():
        for places in cell["paths"][name]["places"]:
            axis.plot(*_unbroken(places, spans), zorder=4, **look)


def _unbroken(places: list[list[float]], spans: list[float]) -> tuple[list[float], list[float]]:
    """A path as lines, interrupted where it leaves the picture on one side and comes back on the other."""
    points = [places[0]]
    for before, after in pairwise(places):
        if any(abs(b - a) > span / 2 for a, b, span in zip(before, after, spans, strict=True)):
            points.append([float("nan"), float("nan")])
        points.append(after)
    return [x for x, _ in points], [y for _, y in points]


def _marks(axis: Axes, cell: Cell) -> None:
    for number, one in enumerate(cell["minima"]):
        look: Look = {"color": BASINS[number % len(BASINS)], "markeredgecolor": "white", "markeredgewidth": 1.0}
        axis.plot(*one["place"], marker="o", markersize=9, linestyle="none", zorder=5, **look)
    axis.plot(*cell["estimate"], marker="s", markersize=7, color="white", markeredgecolor=BLACK, linestyle="none", zorder=6)
    axis.plot(*cell["true"], marker="*", markersize=14, color="white", markeredgecolor=BLACK, linestyle="none", zorder=7)


def _handles() -> list[Line2D]:
    mark: Look = {"linestyle": "none", "markeredgecolor": BLACK, "color": "white"}
    return [
        Line2D([], [], marker="*", markersize=13, label="true frame", **mark),
        Line2D([], [], marker="s", markersize=7, label="estimate", **mark),
        Line2D([], [], marker="o", markersize=8, linestyle="none", color=BLUE, label="minimum"),
        Line2D([], [], color=BLACK, linewidth=1.1, label="Gauss-Newton"),
        Line2D([], [], color=BLACK, linewidth=1.6, linestyle="--", label="Gauss-Newton from the estimate"),
        Line2D([], [], color=VERMILION, linewidth=1.1, label="Adam, the paper's rate"),
    ]


def _name(coordinate: str) -> str:
    return NAMES.get(coordinate, coordinate.replace("_", " along "))
