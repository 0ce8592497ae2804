"""Panels that show one field, as a line or as an image, and which part of it is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

from matplotlib.axes import Axes
from torch import Tensor

from pacefno.equations import Problem
from pacefno.grid import points
from pacefno.studies.report.figures.style import FAINT, SIGNED, tidy


@final
@dataclass(frozen=True)
class Part:
    """One physical channel; of several frames the last one is shown."""

    name: str
    input: int  # its channel in the input
    output: int  # its channel in the target

    @property
    def suffix(self) -> str:
        return f"-{self.name}"


def parts_of(problem: Problem) -> Iterator[Part]:
    channels = problem.equation.channels
    for i, name in enumerate(channels):
        yield Part(name, problem.in_channels - len(channels) + i, problem.out_channels - len(channels) + i)


def last_frame(problem: Problem) -> str:
    """What to say about the frames in a caption; nothing where there is only one."""
    if problem.frames_in == 1 and problem.frames_out == 1:
        return ""
    return f" The last of {problem.frames_in} input and {problem.frames_out} output frames is shown."


def draw_line(axis: Axes, field: Tensor, look: dict[str, Any]) -> None:
    axis.plot(points(tuple(field.shape))[0].numpy(), field.numpy(), **look)
    axis.set_xlim(0, 1)
    axis.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    tidy(axis)


def draw_image(axis: Axes, field: Tensor, scale: float) -> Any:
    """A field in diverging colours from ``-scale`` to ``scale``; x runs right and y up."""
    look: dict[str, Any] = {"vmin": -scale, "vmax": scale, "cmap": SIGNED, "interpolation": "nearest"}
    image = axis.imshow(field.T.numpy(), origin="lower", extent=(0, 1, 0, 1), **look)
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_color(FAINT)
        spine.set_linewidth(0.6)
    return image


def draw_deviation(axis: Axes, field: Tensor, scale: float) -> Any:
    """The same for what a field has beside its mean, which is printed: a boost adds a constant that would drown the rest."""
    mean = float(field.mean())
    if abs(mean) > 0.05 * scale:
        box: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
        axis.text(0.03, 0.03, f"mean {mean:+.2f}", transform=axis.transAxes, fontsize=7.5, bbox=box)
    return draw_image(axis, field - mean, scale)


def largest(*fields: Tensor) -> float:
    """A symmetric colour limit that a few extreme points do not set."""
    return max(float(field.abs().flatten().quantile(0.998)) for field in fields) or 1.0
