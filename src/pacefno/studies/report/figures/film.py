"""A moved sample in time: the truth and what some models predict, frame beside frame."""

from __future__ import annotations

from collections.abc import Sequence

from pacefno.data import Samples
from pacefno.equations import Problem
from pacefno.studies.report.figures.fields import draw_image, largest
from pacefno.studies.report.figures.style import INK, Drawing, Grid, label, new_figure, title_of
from pacefno.studies.report.trained import Prediction, typical_sample

SHOWN = ("fno", "fno-aug", "pace", "pace-tta")
MOMENTS = 5


def draw_film(problem: Problem, moved: Samples, found: Sequence[Prediction]) -> Drawing:
    """The last input and some output frames of one OOD sample; a row for the truth and one for each of a few models."""
    chosen = [one for one in found if one.name in SHOWN]
    sample = typical_sample(list(found))
    frames = [round((i + 1) * problem.frames_out / MOMENTS) - 1 for i in range(MOMENTS)]
    rows = [("truth", moved.target[sample]), *((title_of(one.name), one.field[sample]) for one in chosen)]
    figure = new_figure(1.75 * (MOMENTS + 1), 1.6 * len(rows) + 0.4)
    axes: Grid = figure.subplots(len(rows), MOMENTS + 1, squeeze=False)
    scale = largest(moved.target[sample])
    for row, (title, fields) in enumerate(rows):
        draw_image(axes[row, 0], moved.input[sample, -1], scale)
        for column, frame in enumerate(frames, start=1):
            image = draw_image(axes[row, column], fields[frame], scale)
            if row == 0:
                label(axes[row, column], title=f"t = {problem.spacing * (frame + 1):.3g}")
        axes[row, 0].set_ylabel(title.replace(" + ", "\n+ "), fontsize=9, color=INK)
    label(axes[0, 0], title="last input")
    figure.colorbar(image, ax=axes.ravel().tolist(), shrink=0.6, label=problem.equation.channels[0])
    caption = "One OOD sample in time: the last frame of the input, then the truth and the predictions of a few models."
    return Drawing(f"{problem.name}-film", caption, figure)
