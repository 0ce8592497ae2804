"""The OOD error of every model on every problem, beside the paper's."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pacefno.studies.report.collect import Line, Table, Tables
from pacefno.studies.report.figures.style import (
    INK,
    Drawing,
    Grid,
    Look,
    decimal_ticks,
    label,
    legend_below,
    new_figure,
    style_of,
    tidy,
)


def draw_overview(tables: Tables) -> Drawing:
    """One panel per problem, all on the same axes: a dot per model, a faint one per seed, a diamond for the paper."""
    lines = {line.model: line.title for table in tables.values() for line in table.lines}
    models = list(reversed(lines))  # the first model at the top
    figure = new_figure(2.7 + max(5.0, 1.75 * len(tables)), 0.3 * len(models) + 1.5)
    axes: Grid = figure.subplots(1, len(tables), squeeze=False, sharex=True, sharey=True)[0]
    for axis, table in zip(axes, tables.values(), strict=True):
        _panel(axis, table, models)
    axes[0].set_yticks(range(len(models)), [lines[model] for model in models])
    axes[0].set_ylim(-0.6, len(models) - 0.4)
    _two_decades(axes[0])
    for axis in axes:
        decimal_ticks(axis.xaxis)
        label(axis, x="OOD error")
    legend_below(figure, _handles())
    caption = (
        "OOD error of every model on a logarithmic scale: further left is better. Large dots are means over seeds, "
        "small ones single seeds, diamonds the paper's numbers."
    )
    return Drawing("overview", caption, figure)


def _panel(axis: Axes, table: Table, models: list[str]) -> None:
    for line in table.lines:
        _row(axis, models.index(line.model), line)
    axis.set_xscale("log")
    tidy(axis)
    axis.tick_params(axis="y", length=0)
    name = table.problem.title.replace(" (", "\n(").replace(", ", ",\n")
    axis.set_title(f"{name}\n{table.preset}", fontsize=9, color=INK, loc="left")


def _row(axis: Axes, height: int, line: Line) -> None:
    style = style_of(line.model)
    values = [float(row["ood_error"]) for row in line.rows if row.get("ood_error") is not None]
    values = [value for value in values if math.isfinite(value) and value > 0]
    if values:
        axis.plot(values, [height] * len(values), "o", color=style.colour, alpha=0.4, markersize=4, markeredgewidth=0, zorder=3)
        axis.plot(sum(values) / len(values), height, "o", color=style.colour, markersize=8, markeredgecolor="white", zorder=4)
    if line.paper:
        look: Look = {"markerfacecolor": "none", "markeredgecolor": INK, "markeredgewidth": 1.1, "markersize": 6.5}
        axis.plot(line.paper[1], height, marker="D", zorder=5, **look)


def _two_decades(axis: Axes) -> None:
    """At least so wide that two powers of ten have a number."""
    low, high = axis.get_xlim()
    if high < 100 * low:
        middle = math.sqrt(low * high)
        axis.set_xlim(middle / 10, middle * 10)


def _handles() -> list[Line2D]:
    empty: Look = {"linestyle": "none", "color": INK}
    return [
        Line2D([], [], marker="o", markersize=8, label="mean over seeds", **empty),
        Line2D([], [], marker="o", markersize=4, alpha=0.4, label="one seed", **empty),
        Line2D([], [], marker="D", markersize=6.5, markerfacecolor="none", label="the paper", **empty),
    ]
