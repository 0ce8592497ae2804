"""Errors as lines and dots: over the size of the motion, over time, wavenumbers and epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from pacefno.data.recipe import PairRecipe
from pacefno.paper import style
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.report.collect import Line, Table, Tables
from pacefno.paper.report.fields import draw_spectrum, finish_spectrum
from pacefno.paper.report.runs import FRACTIONS, Outcome
from pacefno.paper.style import Drawing, Look

MESSAGE = ("fno", "fno-aug", "pace")  # the rows of the small sweep: all that a first look needs
DEEPEST = 1e-11  # energy, relative to the largest, below which float32 holds nothing but noise
TARGET: Look = {"color": style.FAINT, "linewidth": 5, "alpha": 0.5, "label": "target"}
# What is drawn over time: the key of a result, and the title of its panel.
PAIR_PANELS = {
    "id_error_fine_channels": "in distribution",
    "ood_error_channels": "out of distribution,\nagainst the moved solution",
    "ood_error_resolved_channels": "out of distribution,\nagainst the moved state solved anew",
}
ROLLOUT_PANELS = {
    "nmse_frames": "test trajectories",
    "ood_nmse_canonical_frames": "moved beyond the augmentation,\nmeasured without the motion",
}
DEFECT = "group_defect_channels"
KEYS = ("l2", "validation_error")  # of a training log


def draw_overview(tables: Tables) -> Drawing:
    """The OOD error of every row on every benchmark of pairs: one panel each, on common axes."""
    of_pairs = [table for table in tables.values() if not table.of_rollouts]
    titles = {line.model: line.title for table in of_pairs for line in table.lines}
    models = list(reversed(titles))  # the first row at the top
    size = 2.7 + max(5.0, 1.75 * len(of_pairs)), 0.3 * len(models) + 1.5
    figure, (axes,) = style.panels(*size, 1, len(of_pairs), sharex=True, sharey=True)
    for axis, table in zip(axes, of_pairs, strict=True):
        for line in table.lines:
            errors = [float(r["ood_error"]) for r in line.results if r.get("ood_error") is not None]
            paper = line.paper[1] if line.paper else None
            colour = style.style_of(line.model).colour
            style.draw_dots(axis, models.index(line.model), errors, colour, paper)
        style.finish(axis, "OOD error", log="x")
        axis.tick_params(axis="y", length=0)
        name = table.benchmark.title.replace(" (", "\n(").replace(", ", ",\n")
        axis.set_title(f"{name}\n{table.preset}", fontsize=9, color=style.INK, loc="left")
    axes[0].set_yticks(range(len(models)), [titles[model] for model in models])
    axes[0].set_ylim(-0.6, len(models) - 0.4)
    style.legend_below(figure, style.DOT_LEGEND)
    caption = (
        "OOD error of every model on a logarithmic scale: further left is better. Large dots are "
        "means over seeds, small ones single seeds, diamonds the paper's numbers."
    )
    return Drawing("overview", caption, figure)


def draw_sweeps(benchmark: Benchmark, outcomes: list[Outcome]) -> list[Drawing]:
    """Error against the size of the motion: the three rows of the message, and all rows."""
    few = [one for one in outcomes if one.model in MESSAGE]
    drawings = [draw_sweep(benchmark, few, "sweep")] if few else []
    if len(outcomes) > len(few):
        drawings.append(draw_sweep(benchmark, outcomes, "sweep-all", folded=bool(few)))
    return drawings


def draw_sweep(
    benchmark: Benchmark, outcomes: list[Outcome], name: str, *, folded: bool = False
) -> Drawing:
    """Mean errors of samples moved by a growing share of the largest OOD motion."""
    figure, ((axis,),) = style.panels(9.0, 5.0)
    (_, high), reach = benchmark.ood, benchmark.task.train_range
    shares = [inside / far for inside, far in zip(reach, high, strict=True)]
    shade: Look = {"color": style.SHADE, "zorder": 0}
    for one in outcomes:
        axis.plot(FRACTIONS, one.growth, **style.line_look(one.model, marker=True))
    axis.axvspan(0, min(shares), label="inside the training range", **shade)
    axis.axvspan(min(shares), max(shares), alpha=0.5, **shade)
    coordinates = zip(benchmark.task.group.coordinates, high, strict=True)
    far = ", ".join(f"{coordinate} {value:.3g}" for coordinate, value in coordinates)
    axis.set_xlim(0, 1)
    x, y = f"size of the motion (1: {far})", "relative L2 error, motion removed"
    style.finish(axis, x, y, log="y")
    style.legend_below(figure)
    some = " (lighter: only some of the coordinates are still in it)" * (max(shares) > min(shares))
    caption = (
        "Error against the size of the motion, measured after the motion is removed from "
        "prediction and target. Shaded: the range that models with augmentation saw in "
        f"training{some}."
    )
    return Drawing(f"{benchmark.name}-{name}", caption, figure, folded)


def draw_over_time(table: Table) -> Drawing | None:
    """The error of every predicted snapshot, a line per row; None where there is only one."""
    panels = ROLLOUT_PANELS if table.of_rollouts else PAIR_PANELS
    shown = [key for key in panels if any(result.get(key) for result in table.results)]
    if not shown or table.benchmark.task.output.snapshots == 1:
        return None
    size = 3.4 * len(shown) + 0.8, 3.6 + 0.08 * len(table.lines)
    figure, (axes,) = style.panels(*size, 1, len(shown), sharey=True)
    step = table.benchmark.task.output.step
    for axis, key in zip(axes, shown, strict=True):
        for line in (line for line in table.lines if line.row):
            _draw_over_time(axis, line, key, step, style.line_look(line.model, line.title))
        if "resolved" in key:
            look: Look = {"color": style.FAINT, "linestyle": ":", "label": "defect of the group"}
            _draw_over_time(axis, table.lines[0], DEFECT, step, look)
        style.finish(axis, "time after the last input", title=panels[key], log="y")
    kind = "squared" if table.of_rollouts else "L2"
    style.label(axes[0], y=f"relative {kind} error of a snapshot")
    style.legend_below(figure)
    more = (
        "LPSDA's NMSE is the sum over the snapshots."
        if table.of_rollouts
        else "Right: a rotation is only nearly a symmetry of the periodic box; dotted is how far "
        "the moved solution itself is from the moved initial state solved anew."
    )
    caption = f"Error of every predicted snapshot, mean over samples and seeds. {more}"
    return Drawing(f"{table.benchmark.name}-over-time", caption, figure)


def _draw_over_time(axis: Axes, line: Line, key: str, step: float, look: Look) -> None:
    """The mean over seeds of an error per snapshot; nothing where it was not measured."""
    if found := [result[key] for result in line.results if result.get(key)]:
        errors = np.mean(found, axis=0)
        axis.plot(step * np.arange(1, len(errors) + 1), errors, **look)


def draw_error_spectra(benchmark: Benchmark, target: Tensor, outcomes: list[Outcome]) -> Drawing:
    """Energy of the target and of every row's error over wavenumbers, per physical channel."""
    names = benchmark.task.output.channels
    width = 9.0 if len(names) < 3 else 10.5
    figure, (axes,) = style.panels(width, 5.0, 1, len(names), sharey=True)
    recipe = benchmark.recipe
    assert isinstance(recipe, PairRecipe)
    for i, (axis, name) in enumerate(zip(axes, names, strict=True)):
        own = slice(i, None, len(names))  # every snapshot of this channel
        draw_spectrum(axis, target[:, own], TARGET)
        for one in outcomes:
            draw_spectrum(axis, (one.values - target)[:, own], style.line_look(one.model))
        size = target.shape[2]
        finish_spectrum(axis, size // recipe.coarsening, size, name if len(names) > 1 else "")
    low, high = axes[0].get_ylim()
    axes[0].set_ylim(bottom=max(low, DEEPEST * high))
    style.label(axes[0], y="energy of the error (grey: of the target)")
    style.legend_below(figure)
    what = "Energy spectrum of the OOD target and of each model's error"
    caption = f"{what}, mean of {len(target)} samples."
    return Drawing(f"{benchmark.name}-spectra", caption, figure)


def draw_training(benchmark: Benchmark, logs: dict[str, list[list[dict[str, Any]]]]) -> Drawing:
    """Training and validation error per epoch; one line per seed, coarse epochs shaded."""
    figure, (axes,) = style.panels(9.0, 3.8, 1, 2, sharey=True)
    records = [record for seeds in logs.values() for log in seeds for record in log]
    coarse = max((r["epoch"] for r in records if r.get("grid_stride", 1) > 1), default=0)
    for axis, key, title in zip(axes, KEYS, ("training", "validation"), strict=True):
        for model, seeds in logs.items():
            look = style.line_look(model, benchmark.rows[model].title) | {"alpha": 0.85}
            for log in seeds:
                known = [(r["epoch"], r[key]) for r in log if r.get(key) is not None]
                axis.plot([e for e, _ in known], [error for _, error in known], **look)
        if coarse:
            shade: Look = {"color": style.SHADE, "zorder": 0, "label": "epochs on the coarse grid"}
            axis.axvspan(0, coarse + 0.5, **shade)
        axis.set_xlim(left=0)
        style.finish(axis, "epoch", title=title, log="y")
    style.label(axes[0], y="relative L2 error")
    style.legend_below(figure)
    caption = (
        "Training and validation error (validation: samples in the canonical frame, on the full "
        "training grid); one line per seed."
    )
    return Drawing(f"{benchmark.name}-training", caption, figure)
