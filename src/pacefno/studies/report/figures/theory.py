"""The error decomposition of a run: what the bound is made of, sample by sample, with the actual error in it."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from pacefno.equations import Problem
from pacefno.studies.report.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    SKY,
    VERMILION,
    Drawing,
    Grid,
    label,
    legend_below,
    new_figure,
    tidy,
    title_of,
)

Cell = dict[str, Any]
LEAST = 1e-16  # energies below are drawn there: a logarithm has no zero


def draw_theory(problem: Problem, cell: Cell) -> Drawing:
    """The bound of every sample as a stack of its terms; energy along refinement; error and the bound that energy gives."""
    refinement = cell.get("refinement")
    figure = new_figure(11.0 if refinement else 6.0, 4.2)
    axes: Grid = figure.subplots(1, 3 if refinement else 1, squeeze=False)[0]
    _stack(axes[0], cell)
    text = ""
    if refinement:
        _paths(axes[1], axes[2], refinement)
        text = " Middle and right: refinement from displaced frames, its energy, and the error below the bound that it gives."
    legend_below(figure, [handle for axis in axes for handle in axis.get_legend_handles_labels()[0]], columns=4)
    name = f"{problem.name}-theory-{cell['model']}"
    caption = (
        f"{problem.title}, {title_of(cell['model'])}. The error of each OOD sample below its bound, which is the sum of the "
        "operator's canonical error and of what misalignment of input and output adds, in units of the canonical target; the "
        f"line is the sharper bound, which sees both misalignments together.{text}"
    )
    return Drawing(name, caption, figure)


def _stack(axis: Axes, cell: Cell) -> None:
    terms = cell["terms"]
    order = sorted(range(cell["samples"]), key=lambda i: cell["bound"][i])
    columns = zip(terms["canonical"], terms["sensitivity"], terms["input_alignment"], terms["action"], strict=True)
    parts = [(k * c, k * s * a) for c, s, a, k in columns]
    canonical = [parts[i][0] for i in order]
    inputs = [parts[i][1] for i in order]
    terminal = [terms["terminal_alignment"][i] for i in order]
    names = ("canonical error", "from input alignment", "terminal alignment")
    axis.stackplot(range(len(order)), canonical, inputs, terminal, labels=names, colors=(SKY, ORANGE, GREEN), alpha=0.85)
    axis.plot([cell["sharper_bound"][i] for i in order], "-", color=BLACK, linewidth=0.9, label="sharper bound")
    axis.plot([terms["actual"][i] for i in order], ".", color=BLACK, markersize=3.5, label="actual error")
    axis.set_xlim(0, max(1, len(order) - 1))
    axis.set_ylim(bottom=0)
    tidy(axis)
    label(axis, x="OOD samples, by their bound", y="error / norm of the canonical target")


def _paths(energies: Axes, errors: Axes, refinement: Cell) -> None:
    looks = {"gauss-newton": ("Gauss-Newton", BLUE, "o"), "adam": ("Adam", VERMILION, "s")}
    for name, (title, colour, marker) in looks.items():
        path = refinement[name]
        steps = path["steps"]
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4}
        energies.plot(steps, [max(value, LEAST) for value in path["energy"]], linestyle="-", label=title, **look)
        errors.plot(steps, path["error"], linestyle="-", **look)
        if path["bound"]:
            errors.plot(steps, path["bound"], linestyle="--", color=colour, label=f"bound, {title}")
    energies.set_yscale("log")
    for axis, y in ((energies, "energy, mean over samples"), (errors, "error, mean over samples")):
        axis.set_xscale("symlog", linthresh=1)
        axis.set_xlim(left=0)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        tidy(axis)
        label(axis, x="steps of refinement", y=y)
    errors.set_ylim(bottom=0)
