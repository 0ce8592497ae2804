"""Frame errors over the whole group: histograms before and after refinement."""

from __future__ import annotations

from typing import Any

import numpy as np

from pacefno.equations import Problem
from pacefno.studies.report.figures.style import (
    BLUE,
    ORANGE,
    Drawing,
    Grid,
    label,
    legend_below,
    new_figure,
    tidy,
    title_of,
)

Cell = dict[str, Any]
BINS = np.logspace(-7, 0.5, 46)
LOOKS = {"one_shot": (ORANGE, "one-shot"), "refined": (BLUE, "refined")}


def draw_frames(problem: Problem, cells: list[Cell]) -> Drawing:
    """One panel a model, all seeds together: how far the pulled-back field is from the truth."""
    models = list(dict.fromkeys(cell["model"] for cell in cells))
    figure = new_figure(3.6 * len(models) + 0.6, 3.4)
    axes: Grid = figure.subplots(1, len(models), squeeze=False, sharey=True)
    for axis, model in zip(axes[0], models, strict=True):
        for name, (color, title) in LOOKS.items():
            off = np.concatenate([np.asarray(cell["off"][name]) for cell in cells if cell["model"] == model])
            off = off.clip(BINS[0], BINS[-1])
            axis.hist(off, bins=BINS, histtype="stepfilled", alpha=0.45, color=color, label=title)
            axis.hist(off, bins=BINS, histtype="step", color=color)
        axis.axvline(0.1, color="0.4", linestyle="--", linewidth=1, label="astray beyond")
        axis.set_xscale("log")
        label(axis, x="distance of the pulled-back field", title=title_of(model))
        tidy(axis)
    label(axes[0, 0], y="samples")
    legend_below(figure, axes[0, 0].get_legend_handles_labels()[0])
    caption = (
        "How far the pulled-back field is from the canonical one (relative L2) when canonical test fields are moved by random "
        "elements of the whole group: with the one-shot frame and after refinement. Beyond the dashed line the frame has "
        "gone astray."
    )
    return Drawing(f"{problem.name}-frames", caption, figure)
