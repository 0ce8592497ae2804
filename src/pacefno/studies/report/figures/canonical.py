"""The path of a field through PACE: input, canonical input, canonical prediction, prediction, target."""

from __future__ import annotations

from matplotlib.figure import Figure
from torch import Tensor

from pacefno.data import Samples
from pacefno.equations import Problem
from pacefno.studies.report.figures.fields import Part, draw_deviation, draw_line, largest, last_frame, parts_of
from pacefno.studies.report.figures.style import BLUE, FAINT, INK, VERMILION, Drawing, Grid, label, new_figure
from pacefno.studies.report.trained import Prediction

ROWS = 3
TITLES = ("OOD input", "canonicalised", "operator's output", "prediction", "target")


def draw_canonical(problem: Problem, plain: Samples, moved: Samples, pace: Prediction) -> Drawing:
    """Three samples on their way; the frames that PACE found and the true ones stand beside them."""
    part = next(parts_of(problem))
    rows = min(ROWS, len(moved))
    fields = _stages(problem, part, moved, pace, rows)
    labels = [_frames(problem, moved, pace, row) for row in range(rows)]
    truths = _truths(part, plain, moved, rows)
    figure = _lines(fields, truths, labels) if problem.dim == 1 else _images(fields, labels)
    name = f" of {part.name}" if len(problem.equation.channels) > 1 else ""
    caption = (
        f"What PACE does to three OOD samples{name}: the input is pulled back to the canonical frame, the operator runs there, "
        "and its output is carried to the frame of the final time. On the left the frame that was found and, in brackets, "
        f"the true one.{' Grey: the truth.' if problem.dim == 1 else ' Fields are shown less their printed mean.'}"
        f"{last_frame(problem)}"
    )
    return Drawing(f"{problem.name}-canonical", caption, figure)


def _stages(problem: Problem, part: Part, moved: Samples, pace: Prediction, rows: int) -> list[list[Tensor]]:
    """The fields of each sample in the order of ``TITLES``."""
    group = problem.group
    xi_0 = pace.xi[:rows]
    canonical = group.inverse(moved.input[:rows], xi_0)
    output = group.inverse(pace.field[:rows], group.transport(xi_0, problem.horizon))
    inputs = (moved.input[:rows, part.input], canonical[:, part.input])
    outputs = (output[:, part.output], pace.field[:rows, part.output], moved.target[:rows, part.output])
    return [[stage[row] for stage in (*inputs, *outputs)] for row in range(rows)]


def _truths(part: Part, plain: Samples, moved: Samples, rows: int) -> list[list[Tensor]]:
    """What each stage should be: the sample before it was moved, and its target before and after."""
    inputs = (moved.input[:rows, part.input], plain.input[:rows, part.input])
    outputs = (plain.target[:rows, part.output], *[moved.target[:rows, part.output]] * 2)
    return [[stage[row] for stage in (*inputs, *outputs)] for row in range(rows)]


def _frames(problem: Problem, moved: Samples, pace: Prediction, row: int) -> str:
    """The found frame and the true one, modulo their periods."""
    assert moved.generators is not None
    found = problem.group.wrap(pace.xi[row : row + 1].double())[0]
    true = problem.group.wrap(moved.generators[row : row + 1])[0]
    rows = zip(problem.group.coordinates, found, true, strict=True)
    return "\n".join(f"{_short(name)} {a:+.3f} ({b:+.3f})" for name, a, b in rows)


def _short(name: str) -> str:
    return name.replace("velocity", "v")


def _lines(fields: list[list[Tensor]], truths: list[list[Tensor]], labels: list[str]) -> Figure:
    figure = new_figure(10.0, 1.75 * len(fields) + 0.5)
    axes: Grid = figure.subplots(len(fields), len(TITLES), squeeze=False, sharex=True, sharey="row")
    for row, stages in enumerate(fields):
        for column, (field, title) in enumerate(zip(stages, TITLES, strict=True)):
            axis = axes[row, column]
            axis.axhline(0, color=FAINT, linewidth=0.7, zorder=1)
            draw_line(axis, truths[row][column], {"color": FAINT, "linewidth": 4, "alpha": 0.5})
            draw_line(axis, field, {"color": BLUE if column < 2 else VERMILION, "linewidth": 1.4})
            if row == 0:
                label(axis, title=title)
        axes[row, 0].set_ylabel(labels[row], fontsize=8, color=INK, rotation=0, ha="right", va="center", labelpad=8)
    return figure


def _images(fields: list[list[Tensor]], labels: list[str]) -> Figure:
    figure = new_figure(10.6, 1.78 * len(fields) + 0.4)
    axes: Grid = figure.subplots(len(fields), len(TITLES), squeeze=False)
    for row, stages in enumerate(fields):
        before, after = (largest(stages[i] - stages[i].mean()) for i in (0, -1))  # inputs and outputs differ in size
        for column, (field, title) in enumerate(zip(stages, TITLES, strict=True)):
            draw_deviation(axes[row, column], field, before if column < 2 else after)
            if row == 0:
                label(axes[row, column], title=title)
        axes[row, 0].set_ylabel(labels[row], fontsize=8, color=INK, rotation=0, ha="right", va="center", labelpad=8)
    return figure
