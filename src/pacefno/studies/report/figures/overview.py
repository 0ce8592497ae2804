"""The OOD error of every model on every problem, beside the paper's."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter

from pacefno.studies.report.collect import Line, Table, Tables
from pacefno.studies.report.figures.style import FAINT, INK, Drawing, Grid, label, legend_below, new_figure, style_of, tidy

COLUMNS = 2


def draw_overview(tables: Tables) -> Drawing:
    """One panel per problem: a dot per model at its mean, a faint one per seed, a diamond for the paper."""
    columns = min(COLUMNS, len(tables))
    bands = -(-len(tables) // columns)
    most = max(len(table.lines) for table in tables.values())
    figure = new_figure(7.4 if columns == 1 else 10.0, bands * (0.27 * most + 0.9) + 0.4)
    axes: Grid = figure.subplots(bands, columns, squeeze=False).flatten()
    for axis, table in zip(axes, tables.values(), strict=False):
        _panel(axis, table)
    for axis in axes[len(tables) :]:
        axis.set_visible(False)
    legend_below(figure, _handles(), columns=3)
    caption = (
        "OOD error of every model on a logarithmic scale: lower (further left) is better. Large dots are means over seeds, "
        "small ones single seeds, diamonds the paper's numbers."
    )
    return Drawing("overview", caption, figure)


def _panel(axis: Axes, table: Table) -> None:
    for height, line in enumerate(reversed(table.lines)):
        _row(axis, height, line)
    axis.set_xscale("log")
    axis.set_ylim(-0.7, len(table.lines) - 0.3)
    axis.set_yticks(range(len(table.lines)), [line.title for line in reversed(table.lines)])
    tidy(axis)
    axis.tick_params(axis="y", length=0)
    _spread_ticks(axis)
    label(axis, x="OOD relative L2 error", title=f"{table.problem.title} ({table.preset})")


def _row(axis: Axes, height: int, line: Line) -> None:
    style = style_of(line.model)
    values = [float(row["ood_error"]) for row in line.rows if row.get("ood_error") is not None]
    values = [value for value in values if math.isfinite(value) and value > 0]
    if line.paper:
        axis.plot(line.paper[1], height, marker="D", color="white", markeredgecolor=INK, markersize=6, zorder=2)
    if values:
        axis.plot(values, [height] * len(values), "o", color=style.colour, alpha=0.4, markersize=4, markeredgewidth=0, zorder=3)
        axis.plot(sum(values) / len(values), height, "o", color=style.colour, markersize=7.5, markeredgecolor="white", zorder=4)


def _spread_ticks(axis: Axes) -> None:
    """At least one decade wide, with numbers between the powers of ten if there is only one or two of them."""
    low, high = axis.get_xlim()
    if high / low < 10:
        middle = math.sqrt(low * high)
        axis.set_xlim(middle / 10**0.5, middle * 10**0.5)
    axis.xaxis.set_major_formatter(LogFormatter())
    axis.xaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1.6, 0.6)))
    axis.tick_params(axis="x", which="minor", labelsize=7.5, labelcolor=FAINT)


def _handles() -> list[Line2D]:
    empty = {"linestyle": "none", "color": INK}
    return [
        Line2D([], [], marker="o", markersize=7.5, label="mean over seeds", **empty),
        Line2D([], [], marker="o", markersize=4, alpha=0.4, label="one seed", **empty),
        Line2D([], [], marker="D", markersize=6, markerfacecolor="white", label="the paper", **empty),
    ]
