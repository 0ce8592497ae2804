"""What each part of the method earns: one line per row of the ablation, the paper's numbers beside ours."""

from __future__ import annotations

import math
import statistics
from typing import Any

from matplotlib.lines import Line2D

from pacefno.equations import Problem
from pacefno.studies.report.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    VERMILION,
    Drawing,
    Look,
    decimal_ticks,
    label,
    legend_below,
    new_figure,
    tidy,
)

Cell = dict[str, Any]
KINDS = {"frame": GREEN, "loss": PURPLE, "cnn-loss": PURPLE, "no-": VERMILION, "spatial": ORANGE, "kinematic": ORANGE}


def draw_ablation(problem: Problem, cells: list[Cell]) -> Drawing:
    """OOD errors on a logarithmic scale: large dots are means over seeds, small ones single seeds, diamonds the paper."""
    rows = list(dict.fromkeys(cell["row"] for cell in sorted(cells, key=lambda cell: cell["place"])))
    figure = new_figure(8.5, 0.3 * len(rows) + 1.4)
    axis = figure.subplots()
    titles = []
    for height, name in enumerate(reversed(rows)):
        own = [cell for cell in cells if cell["row"] == name]
        titles.append(own[0]["title"])
        values = [value for cell in own if math.isfinite(value := float(cell["ood_error"])) and value > 0]
        if values:
            colour = _colour(name)
            axis.plot(values, [height] * len(values), "o", color=colour, alpha=0.4, markersize=4, markeredgewidth=0)
            axis.plot(statistics.fmean(values), height, "o", color=colour, markersize=8, markeredgecolor="white")
        if own[0]["paper"]:
            look: Look = {"markerfacecolor": "none", "markeredgecolor": INK, "markeredgewidth": 1.1, "markersize": 6.5}
            axis.plot(own[0]["paper"][1], height, marker="D", **look)
    axis.set_yticks(range(len(titles)), titles)
    axis.set_ylim(-0.6, len(titles) - 0.4)
    axis.set_xscale("log")
    decimal_ticks(axis.xaxis)
    tidy(axis)
    label(axis, x="OOD error (relative L2)")
    legend_below(figure, _handles())
    caption = f"{problem.title}: OOD error with a part left out, another frame, or other loss terms. Further left is better."
    return Drawing(f"{problem.name}-ablation", caption, figure)


def _colour(name: str) -> str:
    return next((colour for start, colour in KINDS.items() if name.startswith(start)), BLUE)


def _handles() -> list[Line2D]:
    empty: Look = {"linestyle": "none", "marker": "o", "markersize": 8}
    names = {"the method": BLUE, "a part left out": VERMILION, "one part only": ORANGE, "frames": GREEN, "loss terms": PURPLE}
    handles = [Line2D([], [], color=colour, label=name, **empty) for name, colour in names.items()]
    diamond: Look = {"linestyle": "none", "marker": "D", "markersize": 6.5, "markerfacecolor": "none", "color": BLACK}
    return [*handles, Line2D([], [], label="the paper", **diamond)]
