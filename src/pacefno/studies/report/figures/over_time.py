"""Error frame by frame, against the moved solution and against the physics solved anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from pacefno.equations import Problem
from pacefno.studies.report.figures.style import (
    FAINT,
    Drawing,
    decimal_ticks,
    label,
    legend_below,
    line_look,
    model_handles,
    new_figure,
    tidy,
)

Rows = Sequence[Mapping[str, Any]]
PANELS = {
    "id_error_fine": "in distribution",
    "ood_error": "out of distribution,\nagainst the moved solution",
    "ood_error_resolved": "out of distribution,\nagainst the moved state solved anew",
}


def draw_over_frames(problem: Problem, models: Mapping[str, Rows]) -> Drawing:
    """One panel for each kind of target, one line for each model (mean over seeds), and the defect of the group itself."""
    figure = new_figure(10.5, 3.8)
    axes = figure.subplots(1, len(PANELS), sharey=True)
    for axis, (key, title) in zip(axes, PANELS.items(), strict=True):
        for model, rows in models.items():
            _line(axis, problem, rows, key, line_look(model))
        if key == "ood_error_resolved":
            own = next(iter(models.values()))
            _line(axis, problem, own, "group_defect", {"color": FAINT, "linestyle": ":", "label": "defect of the group"})
        axis.set_yscale("log")
        decimal_ticks(axis.yaxis)
        tidy(axis)
        label(axis, x="time after the last input", title=title)
    label(axes[0], y="relative L2 error")
    dotted = axes[-1].get_legend_handles_labels()[0][-1:]
    legend_below(figure, [*model_handles(list(models)), *dotted])
    caption = (
        "Error of every predicted frame, mean over samples and seeds. Right: a rotation is only nearly a symmetry of the "
        "torus; dotted is how far the moved solution itself is from the moved initial state solved anew."
    )
    return Drawing(f"{problem.name}-frames-error", caption, figure)


def _line(axis: Axes, problem: Problem, rows: Rows, key: str, look: dict[str, Any]) -> None:
    found = [row[f"{key}_channels"] for row in rows if row.get(f"{key}_channels")]
    if found:
        times = problem.spacing * np.arange(1, len(found[0]) + 1)
        axis.plot(times, np.mean(found, axis=0), **look)
