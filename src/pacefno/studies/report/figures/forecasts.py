"""Trajectories: the error of every predicted frame, and one rollout beside the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from torch import Tensor

from pacefno.equations import TrajectoryProblem
from pacefno.studies.report.figures.style import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SIGNED,
    SKY,
    VERMILION,
    Drawing,
    Style,
    label,
    legend_below,
    new_figure,
    tidy,
)
from pacefno.training.forecasts import FORECASTS

Rows = Sequence[Mapping[str, Any]]
STYLES = {
    "fno": Style(VERMILION),
    "fno-g1": Style(PURPLE, "--"),
    "fno-aug": Style(ORANGE),
    "pace-20": Style(BLUE, width=2.4),
    "fno-aug-1": Style(GREEN, "--"),
    "pace-1": Style(SKY, width=2.4),
}
PANELS = {"nmse": "test trajectories", "ood_nmse_canonical": "moved beyond the augmentation,\nmeasured without the motion"}


def draw_frame_errors(problem: TrajectoryProblem, models: Mapping[str, Rows]) -> Drawing:
    """One line per model, mean over samples and seeds; the sum under a line is its NMSE."""
    figure = new_figure(9.5, 4.0)
    axes = figure.subplots(1, len(PANELS), sharey=True)
    for axis, (key, title) in zip(axes, PANELS.items(), strict=True):
        for model, rows in models.items():
            style = STYLES[model]
            values = np.mean([row[f"{key}_frames"] for row in rows], axis=0)
            times = problem.spacing * np.arange(1, len(values) + 1)
            axis.plot(
                times, values, color=style.colour, linestyle=style.line, linewidth=style.width, label=FORECASTS[model].title
            )
        axis.set_yscale("log")
        tidy(axis)
        label(axis, x="time after the last input", title=title)
    label(axes[0], y="relative squared error of a frame")
    legend_below(figure, axes[0].get_legend_handles_labels()[0])
    caption = (
        "Error of every predicted frame of a rollout, mean over samples and seeds. LPSDA's NMSE is the sum over the frames."
    )
    return Drawing(f"{problem.name}-frame-errors", caption, figure)


@final
@dataclass(frozen=True)
class Rollout:
    """What a model makes of one trajectory, ``(frames, n)``."""

    title: str
    prediction: Tensor


def draw_rollouts(
    problem: TrajectoryProblem, truth: Tensor, rollouts: Sequence[Rollout], length: float, spacing: float
) -> Drawing:
    """Space-time pictures of the truth and of every model, and of their errors on the same scale."""
    figure = new_figure(2.6 * (1 + len(rollouts)), 5.6)
    axes = figure.subplots(2, 1 + len(rollouts), sharex=True, sharey=True, squeeze=False)
    top = float(truth.abs().max())
    extent = (0.0, length, 0.0, spacing * len(truth))
    look = {"origin": "lower", "aspect": "auto", "extent": extent, "cmap": SIGNED, "vmin": -top, "vmax": top}
    image = axes[0, 0].imshow(truth.numpy(), **look)
    label(axes[0, 0], y="time", title="truth")
    axes[1, 0].set_axis_off()
    for column, rollout in enumerate(rollouts, start=1):
        error = rollout.prediction - truth
        axes[0, column].imshow(rollout.prediction.numpy(), **look)
        axes[1, column].imshow(error.numpy(), **look)
        label(axes[0, column], title=rollout.title.replace(" + ", "\n+ "))
        share = float(error.norm() / truth.norm())
        label(axes[1, column], x="x", title=f"error, {share:.3f} of the norm")
    figure.colorbar(image, ax=axes.ravel().tolist(), shrink=0.7, label="u")
    caption = (
        "One test trajectory, moved beyond the augmentation: the truth, what each model predicts from the 20 frames before, "
        "and the error on the same scale."
    )
    return Drawing(f"{problem.name}-rollouts", caption, figure)
