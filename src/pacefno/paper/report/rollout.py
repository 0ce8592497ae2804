"""Pictures and films of long predictions: truth, prediction, error, and the error against time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.animation import FFMpegWriter, FuncAnimation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

from pacefno.data.samples import evenly
from pacefno.errors import UsageError
from pacefno.files import PathError
from pacefno.paper.style import BLUE, GREY, INK, SIGNED, label, new_figure, tidy
from pacefno.task import Task
from pacefno.train.rollout import Forecast

COLUMNS = 5  # times that are shown
FRAMES_PER_SECOND = 10
FILM_DPI = 100
FILMS = (".gif", ".mp4")


def draw_rollout(made: Forecast, task: Task, channel: str = "", title: str = "") -> Figure:
    """Truth, prediction and error of the first sample at a few times, above the error of all.

    One-dimensional fields are shown over space and time; of three-dimensional ones the middle plane
    is.
    """
    number, name = _channel(task, channel)
    seen, truth = made.prediction[0, :, number], made.truth[0, :, number]
    rows = [("truth", truth), ("prediction", seen), ("error", seen[: len(truth)] - truth)]
    rows = [(what, values) for what, values in rows if len(values)]
    centre, reach = _range(torch.cat([truth.flatten(), seen.flatten()]))
    spread = _range((seen[: len(truth)] - truth).flatten())[1] if len(truth) else 1.0
    numbers = evenly(len(truth) or len(seen), 1 if task.dim == 1 else COLUMNS).tolist()
    columns, curve = len(numbers), bool(len(truth))
    figure = new_figure(2.1 * max(columns, 3), 2.0 * len(rows) + (2.2 if curve else 0))
    shape = figure.add_gridspec(
        len(rows) + curve, columns, height_ratios=[2] * len(rows) + [2.2] * curve
    )
    for i, (what, values) in enumerate(rows):
        middle, size = (0.0, spread) if what == "error" else (centre, reach)
        axes: list[Axes] = []
        for j, at in enumerate(numbers):
            axis = figure.add_subplot(shape[i, j])
            image = _draw(axis, values, at, made.times, task, middle, size)
            if i == 0 and task.dim > 1:
                label(axis, title=f"t = {float(made.times[at]):.4g}")
            if j == 0:
                label(axis, y=what if task.dim > 1 else f"{what}\nx")
            axes.append(axis)
        bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.01)
        bar.ax.tick_params(labelsize=7.5)
        bar.set_label("error" if what == "error" else name, fontsize=8.5, color=INK)
    if curve:
        draw_error(figure.add_subplot(shape[-1, :]), made)
    figure.suptitle(title, fontsize=10, color=INK, fontweight="bold")
    return figure


def draw_error(axis: Axes, made: Forecast) -> None:
    """The relative error of each sample against time, their mean, and that of standing still."""
    times = made.times[: made.error.shape[1]]
    for each in made.error:
        axis.plot(times, each, color=BLUE, linewidth=0.8, alpha=0.35)
    axis.plot(times, made.error.mean(dim=0), color=BLUE, linewidth=2.2, label="prediction, mean")
    axis.plot(times, made.still.mean(dim=0), color=GREY, linestyle="--", label="if nothing changed")
    tidy(axis)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8.5, frameon=False, loc="upper left")
    label(axis, x="time since the last given snapshot", y="relative error")


def _channel(task: Task, name: str) -> tuple[int, str]:
    names = task.input.channels
    if name and name not in names:
        raise UsageError(f"--channel: there is no {name!r} among {', '.join(names)}")
    return (names.index(name), name) if name else (0, names[0])


def _range(values: Tensor) -> tuple[float, float]:
    """The middle and the reach of finite values; around 0 where they have both signs."""
    known = values[torch.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    middle = 0.0 if low < 0 < high else (low + high) / 2
    return middle, max(high - middle, middle - low) or 1.0


def _plane(values: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """A snapshot as an image, y upwards; of a three-dimensional one the plane in the middle."""
    flat = values if values.ndim == 2 else values[..., values.shape[-1] // 2]
    return np.ma.masked_invalid(flat.double().numpy().T)


def _draw(
    axis: Axes, values: Tensor, at: int, times: Tensor, task: Task, middle: float, reach: float
) -> AxesImage:
    lengths = task.input.lengths
    if task.dim == 1:
        known = np.ma.masked_invalid(values.double().numpy().T)  # x against time
        extent = (0.0, float(times[len(values) - 1]), 0.0, lengths[0])
        image = axis.imshow(known, extent=extent, origin="lower", aspect="auto", cmap=SIGNED)
        label(axis, x="time")
    else:
        extent = (0.0, lengths[0], 0.0, lengths[1])
        image = axis.imshow(_plane(values[at]), extent=extent, origin="lower", cmap=SIGNED)
        axis.set_xticks([])
        axis.set_yticks([])
    image.set_clim(middle - reach, middle + reach)
    axis.tick_params(labelsize=7.5)
    return image


# --- films ----------------------------------------------------------------------------------------


def check_film(path: Path) -> None:
    """Refuse a kind of film that cannot be written here, before any work is done."""
    if path.suffix not in FILMS:
        raise UsageError(f"--film: expected a name that ends in .gif or .mp4, got {path.name!r}")
    if path.suffix == ".mp4" and not FFMpegWriter.isAvailable():
        raise UsageError("--film: an .mp4 needs the program ffmpeg, which is not here: say .gif")


def write_film(
    made: Forecast,
    task: Task,
    path: Path,
    channel: str = "",
    on_frame: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Truth beside prediction of the first sample, from the last snapshot that was given."""
    check_film(path)
    number, name = _channel(task, channel)
    first = made.start[0, number][None]
    films = [("prediction", torch.cat([first, made.prediction[0, :, number]]))]
    if made.truth.shape[1]:
        films.insert(0, ("truth", torch.cat([first, made.truth[0, :, number]])))
    middle, reach = _range(torch.cat([values.flatten() for _, values in films]))
    figure = new_figure(3.2 * len(films) + 0.5, 3.6 if task.dim > 1 else 2.8)
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(1, len(films), i + 1) for i in range(len(films))]
    shown: list[Any] = []
    for axis, (what, values) in zip(axes, films, strict=True):
        if task.dim == 1:
            points = torch.arange(values.shape[1]) * task.input.lengths[0] / values.shape[1]
            shown.append(axis.plot(points, values[0], color=BLUE)[0])
            axis.set_ylim(middle - 1.05 * reach, middle + 1.05 * reach)
            tidy(axis)
        else:
            shown.append(_draw(axis, values, 0, made.times, task, middle, reach))
        label(axis, title=f"{name}, {what}")
    clock = figure.suptitle("t = 0", fontsize=10, color=INK)
    total = len(films[-1][1])

    def show(frame: int) -> list[object]:
        for art, (_, values) in zip(shown, films, strict=True):
            if frame < len(values):
                one = values[frame]
                art.set_ydata(one) if task.dim == 1 else art.set_data(_plane(one))
        known = frame < len(films[0][1])
        when = 0.0 if frame == 0 else float(made.times[frame - 1])
        clock.set_text(f"t = {when:.4g}" + ("" if known else ", the truth ends before"))
        return [clock]

    writer = (PillowWriter if path.suffix == ".gif" else FFMpegWriter)(fps=FRAMES_PER_SECOND)
    film = FuncAnimation(figure, show, frames=total, blit=False)  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        film.save(str(path), writer=writer, dpi=FILM_DPI, progress_callback=on_frame)
    except (subprocess.CalledProcessError, BrokenPipeError):  # it may lack a codec
        path.unlink(missing_ok=True)
        raise PathError(path, "ffmpeg could not write it: say .gif") from None
