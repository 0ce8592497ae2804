"""Predictions of every model side by side with the truth, and their errors."""

from __future__ import annotations

import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pacefno.data import Samples
from pacefno.equations import Problem
from pacefno.studies.report.figures.fields import Part, draw_deviation, draw_image, draw_line, largest, last_frame, parts_of
from pacefno.studies.report.figures.style import (
    FAINT,
    INK,
    Drawing,
    Grid,
    label,
    legend_below,
    new_figure,
    style_of,
    title_of,
)
from pacefno.studies.report.trained import Prediction, typical_sample

ACROSS_1D, ACROSS_2D = (3, 4), (5, 4)  # panels beside each other, the first number that wastes least is taken
TRUTH = {"color": FAINT, "linewidth": 3.6, "alpha": 0.55}


def draw_predictions(problem: Problem, moved: Samples, found: list[Prediction]) -> list[Drawing]:
    """One figure per physical channel; on the page all but the first are folded."""
    sample = typical_sample(found)
    drawings = []
    for i, part in enumerate(parts_of(problem)):
        figure = _lines(part, moved, found, sample) if problem.dim == 1 else _images(part, moved, found, sample)
        several = len(problem.equation.channels) > 1
        name = f"{problem.name}-predictions{part.suffix if several else ''}"
        drawings.append(Drawing(name, _caption(problem, part, several, len(moved)), figure, folded=i > 0))
    return drawings


def _caption(problem: Problem, part: Part, several: bool, count: int) -> str:
    shown = f"Predictions of {part.name}" if several else "Predictions"
    if problem.dim == 1:
        text = f"{shown} for one OOD sample over the truth (grey), with the error below, all on one scale."
    else:
        text = f"{shown} for one OOD sample beside the truth, each with its error below; fields less their printed mean."
    return (
        f"{text} It is the one of {count} samples on which PACE has its median error; its relative error stands above each "
        f"panel.{last_frame(problem)}"
    )


# --- one dimension --------------------------------------------------------------------------------------------------


def _lines(part: Part, moved: Samples, found: list[Prediction], sample: int) -> Figure:
    """Every model: its prediction over the truth, and below it the error."""
    truth = moved.target[sample, part.output]
    bands, across = _layout(len(found), ACROSS_1D)
    figure = new_figure(10.0, 2.35 * bands + 0.5)
    ratios = [2.2, 1.0] * bands
    axes: Grid = figure.subplots(2 * bands, across, squeeze=False, sharex=True, height_ratios=ratios)
    errors = [one.field[sample, part.output] - truth for one in found]
    limit = 1.08 * max(float(error.abs().max()) for error in errors)
    shown = [truth, *(one.field[sample, part.output] for one in found)]
    low, high = min(float(field.min()) for field in shown), max(float(field.max()) for field in shown)
    margin = 0.06 * (high - low)
    for i, (one, error) in enumerate(zip(found, errors, strict=True)):
        band, column = divmod(i, across)
        top, bottom = axes[2 * band, column], axes[2 * band + 1, column]
        colour = style_of(one.name).colour
        draw_line(top, truth, TRUTH)
        draw_line(top, one.field[sample, part.output], {"color": colour, "linewidth": 1.3})
        top.set_ylim(low - margin, high + margin)
        _name(top, one, 120 // across)
        _error(bottom, one, sample)
        draw_line(bottom, error, {"color": colour, "linewidth": 1.0})
        bottom.fill_between(bottom.lines[-1].get_xdata(), 0, error.numpy(), color=colour, alpha=0.2, linewidth=0)
        bottom.set_ylim(-limit, limit)
        bottom.tick_params(labelbottom=i + across >= len(found))  # the lowest panel of each column
        if column:
            top.tick_params(labelleft=False)
            bottom.tick_params(labelleft=False)
        else:
            label(top, y=part.name)
    _hide_rest(axes, len(found), bands, across)
    legend_below(figure, [Line2D([], [], label="truth", **TRUTH), Line2D([], [], color=INK, linewidth=1.3, label="model")])  # type: ignore[arg-type]
    return figure


# --- two dimensions -------------------------------------------------------------------------------------------------


def _images(part: Part, moved: Samples, found: list[Prediction], sample: int) -> Figure:
    """First the truth with the input below it, then every model's prediction with its error below."""
    truth = moved.target[sample, part.output]
    fields = [truth, *(one.field[sample, part.output] for one in found)]
    bands, across = _layout(len(fields), ACROSS_2D)
    figure = new_figure(1.95 * across + 0.9, bands * 4.3 + 0.1)
    axes: Grid = figure.subplots(2 * bands, across, squeeze=False)
    scale, error_scale = largest(truth - truth.mean()), largest(*(field - truth for field in fields[1:]))
    for i, field in enumerate(fields):
        band, column = divmod(i, across)
        top, bottom = axes[2 * band, column], axes[2 * band + 1, column]
        image = draw_deviation(top, field, scale)
        if i == 0:
            source = moved.input[sample, part.input]
            draw_deviation(bottom, source, largest(source - source.mean()))
            top.set_title("Truth", fontsize=9, color=INK, loc="left", fontweight="bold")
            bottom.set_title("input", fontsize=8.5, color=INK, loc="left")
        else:
            error_image = draw_image(bottom, field - truth, error_scale)
            _name(top, found[i - 1], 24)
            _error(bottom, found[i - 1], sample)
    _hide_rest(axes, len(fields), bands, across)
    _bars(figure, axes, image, error_image, part)
    return figure


def _bars(figure: Figure, axes: Grid, image: object, error_image: object, part: Part) -> None:
    """One colour bar per row: fields and errors have different scales."""
    for row in range(len(axes)):
        shown, text = (image, f"{part.name} − mean") if row % 2 == 0 else (error_image, "error")
        bar = figure.colorbar(shown, ax=list(axes[row]), shrink=0.9, aspect=18, pad=0.01)  # type: ignore[arg-type]
        bar.ax.tick_params(labelsize=8, color=FAINT)
        bar.set_label(text, fontsize=8.5, color=INK)
        bar.outline.set_visible(False)


# --- both -----------------------------------------------------------------------------------------------------------


def _layout(count: int, choices: tuple[int, ...]) -> tuple[int, int]:
    """Bands and panels beside each other, with the fewest left empty."""
    across = min(choices, key=lambda n: (-count % n, choices.index(n)))
    return -(-count // across), min(across, count)


def _name(axis: Axes, one: Prediction, width: int) -> None:
    axis.set_title(textwrap.fill(title_of(one.name), width), fontsize=9, color=INK, loc="left", fontweight="bold")


def _error(axis: Axes, one: Prediction, sample: int) -> None:
    axis.set_title(f"error {float(one.error[sample]):.3g}", fontsize=8.5, color=INK, loc="left")


def _hide_rest(axes: Grid, used: int, bands: int, across: int) -> None:
    for i in range(used, bands * across):
        band, column = divmod(i, across)
        axes[2 * band, column].set_visible(False)
        axes[2 * band + 1, column].set_visible(False)
