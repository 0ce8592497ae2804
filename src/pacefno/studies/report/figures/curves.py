"""Lines over something: training over epochs, errors over the size of the motion, energy over wavenumbers."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from torch import Tensor

from pacefno.equations import Problem
from pacefno.grid import energy_spectrum
from pacefno.studies.report.figures.style import (
    FAINT,
    INK,
    Drawing,
    Grid,
    decimal_ticks,
    label,
    legend_below,
    line_look,
    model_handles,
    new_figure,
    style_of,
    tidy,
)
from pacefno.studies.report.sweep import training_share
from pacefno.studies.report.trained import Prediction

SHADE = "#E9F1F7"
DEEPEST = 1e-11  # energy, relative to the largest, below which float32 holds nothing but noise
Records = list[dict[str, Any]]


# --- training -------------------------------------------------------------------------------------------------------


def draw_training(problem: Problem, logs: dict[str, list[Records]]) -> Drawing:
    """Training and validation error per epoch; one line per seed, epochs on the coarse grid shaded."""
    figure = new_figure(9.0, 3.8)
    left, right = figure.subplots(1, 2, sharey=True)
    coarse = max((_coarse_epochs(log) for seeds in logs.values() for log in seeds), default=0)
    for axis, key, title in ((left, "l2", "training"), (right, "validation_error", "validation")):
        if coarse:
            axis.axvspan(0, coarse + 0.5, color=SHADE, zorder=0)
        for model, seeds in logs.items():
            for log in seeds:
                known = [(record["epoch"], record[key]) for record in log if record.get(key) is not None]
                look = line_look(model) | {"alpha": 0.85, "linewidth": 0.8 * style_of(model).width}
                axis.plot(*zip(*known, strict=True), **look) if known else None
        axis.set_yscale("log")
        decimal_ticks(axis.yaxis)
        axis.set_xlim(left=0)
        tidy(axis)
        label(axis, x="epoch", title=title)
    label(left, y="relative L2 error")
    shade = [Patch(color=SHADE, label="epochs on the coarse grid")] if coarse else []
    legend_below(figure, [*model_handles(list(logs)), *shade])
    caption = "Training and validation error (validation: samples in the canonical frame, on the full training grid)"
    return Drawing(f"{problem.name}-training", f"{caption}; one line per seed.", figure)


def _coarse_epochs(log: Records) -> int:
    return max((int(record["epoch"]) for record in log if record.get("grid_stride", 1) > 1), default=0)


# --- error against the size of the motion ---------------------------------------------------------------------------


def draw_sweep(problem: Problem, sweeps: dict[str, tuple[Tensor, Tensor]]) -> Drawing:
    """Mean error of samples moved by a growing share of the largest OOD motion."""
    figure = new_figure(9.0, 5.0)
    axis = figure.subplots()
    every, some = training_share(problem)
    axis.axvspan(0, every, color=SHADE, zorder=0)
    if some > every:
        axis.axvspan(every, some, color=SHADE, alpha=0.5, zorder=0)
    for model, (fractions, errors) in sweeps.items():
        style = style_of(model)
        axis.plot(fractions, errors.mean(dim=1), marker=style.marker, markersize=4, **line_look(model))
    axis.set_yscale("log")
    decimal_ticks(axis.yaxis)
    axis.set_xlim(0, 1)
    tidy(axis)
    far = ", ".join(f"{name} {value:.3g}" for name, value in zip(problem.group.coordinates, problem.ood_high, strict=True))
    label(axis, x=f"size of the motion (1: {far})", y="relative L2 error, canonical frame")
    inside = [Patch(color=SHADE, label="inside the training range")]
    legend_below(figure, [*_with_markers(list(sweeps)), *inside])
    caption = (
        "Error against the size of the motion, measured after the motion is removed from prediction and target. Shaded: the "
        "range that models with augmentation saw in training"
        + (" (lighter: only some of the coordinates are still in it)." if some > every else ".")
    )
    return Drawing(f"{problem.name}-sweep", caption, figure)


def _with_markers(models: list[str]) -> list[Line2D]:
    return [Line2D([], [], marker=style_of(model).marker, markersize=4, **line_look(model)) for model in models]


# --- spectra --------------------------------------------------------------------------------------------------------


def draw_spectra(problem: Problem, target: Tensor, found: list[Prediction]) -> Drawing:
    """Energy of the target and of every model's error, per physical channel."""
    channels = problem.equation.channels
    figure = new_figure(9.0 if len(channels) < 3 else 10.5, 5.0)
    axes: Grid = figure.subplots(1, len(channels), squeeze=False, sharey=True)[0]
    for i, (axis, channel) in enumerate(zip(axes, channels, strict=True)):
        own = slice(i, None, len(channels))  # every frame of this channel
        _spectrum(axis, target[:, own], {"color": FAINT, "linewidth": 5, "alpha": 0.5})
        for one in found:
            _spectrum(axis, (one.field - target)[:, own], line_look(one.name))
        _nyquist(axis, target.shape[2] // (2 * problem.coarsening))
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlim(1, target.shape[2] // 2)
        tidy(axis)
        label(axis, x="wavenumber k", title=channel if len(channels) > 1 else "")
    low, high = axes[0].get_ylim()
    axes[0].set_ylim(bottom=max(low, DEEPEST * high))
    label(axes[0], y="energy")
    handles = [Line2D([], [], color=FAINT, linewidth=5, alpha=0.5, label="target"), *model_handles([one.name for one in found])]
    legend_below(figure, handles)
    caption = f"Energy spectrum of the OOD target and of each model's error, mean of {len(target)} samples."
    return Drawing(f"{problem.name}-spectra", caption, figure)


def _spectrum(axis: Axes, field: Tensor, look: dict[str, Any]) -> None:
    energy = energy_spectrum(field).mean(dim=0)
    axis.plot(range(1, len(energy)), energy[1:], **look)


def _nyquist(axis: Axes, k: int) -> None:
    axis.axvline(k, color=FAINT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    place: dict[str, Any] = {"transform": axis.get_xaxis_transform(), "ha": "right", "va": "top", "rotation": 90}
    box: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1}
    axis.text(k, 0.98, "end of the training grid", fontsize=7.5, color=INK, bbox=box, **place)
