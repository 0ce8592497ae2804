"""Pictures of a dataset: samples beside their OOD twins, and energy spectra."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from pacefno.data.read import Dataset, Samples
from pacefno.data.recipe import Recipe
from pacefno.grid import energy_spectrum, points

Grid: TypeAlias = Any  # a numpy array of axes
BLUE, ORANGE = "#0072B2", "#D55E00"  # distinguishable by colour-blind readers (Okabe & Ito)
SIGNED, POSITIVE = "RdBu_r", "viridis"
ROWS = 3
STYLE = {"fontsize": 9}
ROUND_OFF = 1e-16  # energy below which a float32 field holds nothing but noise


@dataclass(frozen=True)
class Column:
    """What one column of pictures shows: a channel of a part of the samples."""

    part: str  # "input" or "target"
    channel: int
    title: str


def columns_of(recipe: Recipe) -> list[Column]:
    """Every channel of the first and last frame of input and target."""
    columns = []
    for part, frames, before in (("input", recipe.frames_in, 0), ("target", recipe.frames_out, recipe.frames_in)):
        for frame in sorted({0, frames - 1}):
            for i, name in enumerate(recipe.channels):
                time = (before + frame) * recipe.spacing
                word = "input" if part == "input" else "output"
                columns.append(Column(part, frame * len(recipe.channels) + i, f"{word} {name}, t = {time:g}"))
    return columns


def draw_samples(dataset: Dataset, path: Path) -> None:
    """Three samples, and the same three moved out of distribution, as a picture."""
    recipe = dataset.recipe
    plain, moved = dataset.load("test_id", "ood"), dataset.load("test_ood", "ood")
    figure = _draw_lines(recipe, plain, moved) if recipe.dim == 1 else _draw_images(recipe, plain, moved)
    _save(figure, path)


def draw_spectra(dataset: Dataset, path: Path) -> None:
    """Energy spectra of the first input and the last output frame, channel by channel."""
    recipe = dataset.recipe
    samples = dataset.load("test_id", "ood")
    width = len(recipe.channels)
    figure = Figure(figsize=(max(5.0, 3.6 * width), 3.6), layout="constrained")
    axes = figure.subplots(1, width, squeeze=False, sharey=True)[0]
    end = (recipe.frames_in + recipe.frames_out - 1) * recipe.spacing
    for i, (axis, name) in enumerate(zip(axes, recipe.channels, strict=True)):
        _spectrum(axis, samples.input[:, [i]], "input, t = 0", BLUE)
        _spectrum(axis, samples.target[:, [recipe.out_channels - width + i]], f"output, t = {end:g}", ORANGE)
        _mark_nyquist(axis, recipe.id_grid[0] / 2)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("wavenumber k", **STYLE)
        _tidy(axis)
    axes[0].set_ylabel("energy E(k)", **STYLE)
    axes[0].legend(fontsize=8, frameon=False, loc="lower left")
    figure.suptitle(f"{recipe.problem}: energy spectra, mean of {len(samples)} samples", fontsize=11)
    _save(figure, path)


def _spectrum(axis: Axes, fields: Tensor, label: str, colour: str) -> None:
    values = energy_spectrum(fields.double())[0, 1:].clamp_min(ROUND_OFF)
    axis.loglog(range(1, 1 + len(values)), values.numpy(), color=colour, label=label, linewidth=1.5)


def _mark_nyquist(axis: Axes, k: float) -> None:
    axis.axvline(k, color="0.6", linewidth=0.8, linestyle="--")
    place: dict[str, Any] = {"transform": axis.get_xaxis_transform(), "ha": "right", "va": "top"}
    axis.text(k, 0.99, "end of ID grid ", fontsize=8, color="0.4", **place)


# --- one dimension: lines -------------------------------------------------------------------------------------------


def _draw_lines(recipe: Recipe, plain: Samples, moved: Samples) -> Figure:
    columns = columns_of(recipe)
    rows, half = min(ROWS, len(plain)), len(columns)
    figure = Figure(figsize=(3.0 * 2 * half, 1.9 * rows + 0.6), layout="constrained")
    axes: Grid = figure.subplots(rows, 2 * half, squeeze=False, sharex=True, sharey="row")
    for row in range(rows):
        for i, column in enumerate(columns):
            _line(axes[row, i], recipe, _field(plain, column, row), column)
            _line(axes[row, half + i], recipe, _field(moved, column, row), column)
        axes[row, 0].set_ylabel(f"sample {row}\n{recipe.channels[0]}", **STYLE)
        place: dict[str, Any] = {"transform": axes[row, half].transAxes, "ha": "center", "va": "bottom"}
        axes[row, half].text(0.5, 1.02, _moved_by(recipe, moved, row), fontsize=8, color="0.35", **place)
    for i, column in enumerate(columns):
        axes[0, i].set_title(column.title, fontsize=10, pad=16)
        axes[0, half + i].set_title(f"OOD {column.title}", fontsize=10, pad=16)
    for axis in axes[-1]:
        axis.set_xlabel("x", **STYLE)
    figure.suptitle(_headline(recipe), fontsize=11)
    return figure


def _line(axis: Axes, recipe: Recipe, field: Tensor, column: Column) -> None:
    colour = BLUE if column.part == "input" else ORANGE
    axis.plot(points(recipe.ood_grid)[0].numpy(), field.numpy(), color=colour, linewidth=1.3)
    axis.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    axis.set_xlim(0, 1)
    _tidy(axis)


# --- two dimensions: images -----------------------------------------------------------------------------------------


def _draw_images(recipe: Recipe, plain: Samples, moved: Samples) -> Figure:
    """Twins side by side if a sample is two pictures wide, below each other if it is wider."""
    columns, rows = columns_of(recipe), min(ROWS, len(plain))
    half = len(columns)
    beside = half <= 2
    shape = (rows, 2 * half) if beside else (2 * rows, half)
    figure = Figure(figsize=(1.8 * shape[1] + 1.0, 1.8 * shape[0] + 1.2), layout="constrained")
    axes: Grid = figure.subplots(*shape, squeeze=False)
    # the axes of a sample and of its twin, (rows, columns) each
    own, twin = (axes[:, :half], axes[:, half:]) if beside else (axes[0::2], axes[1::2])
    for i, column in enumerate(columns):
        fields = [_field(samples, column, row) for samples in (plain, moved) for row in range(rows)]
        image = _images([*own[:, i], *twin[:, i]], fields)
        for stack in [own[:, i], twin[:, i]] if beside else [axes[:, i]]:
            bar = figure.colorbar(image, ax=list(stack), location="bottom", shrink=0.85, aspect=25, pad=0.01)
            bar.ax.tick_params(labelsize=8)
        own[0, i].set_title(column.title.replace(", ", "\n"), fontsize=10)
        if beside:
            twin[0, i].set_title(f"OOD {column.title}".replace(", ", "\n"), fontsize=10)
    for row in range(rows):
        own[row, 0].set_ylabel(f"sample {row}", **STYLE)
        twin[row, 0].set_ylabel(f"OOD, {_moved_by(recipe, moved, row)}".replace(", ", "\n"), fontsize=8)
    figure.suptitle(_headline(recipe), fontsize=11)
    return figure


def _images(axes: list[Axes], fields: list[Tensor]) -> Any:
    """Fields on one colour scale. Signed ones show the deviation from their own mean, which is printed: a boost adds a
    constant that would drown everything else."""
    signed = min(float(field.min()) for field in fields) < 0
    shown = [field - field.mean() for field in fields] if signed else fields
    top = max(float(field.abs().max()) for field in shown)
    bottom = -top if signed else min(float(field.min()) for field in shown)
    scale: dict[str, Any] = {"vmin": bottom, "vmax": top, "cmap": SIGNED if signed else POSITIVE, "interpolation": "nearest"}
    for axis, field, values in zip(axes, fields, shown, strict=True):
        # x runs to the right and y up, as in the formulas
        image = axis.imshow(values.T.numpy(), origin="lower", extent=(0, 1, 0, 1), **scale)
        axis.set_xticks([])
        axis.set_yticks([])
        if signed and abs(float(field.mean())) > 0.05 * top:
            box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1.5}
            axis.text(0.03, 0.03, f"mean {field.mean():+.2f}", transform=axis.transAxes, fontsize=7, bbox=box)
    return image


# --- parts ----------------------------------------------------------------------------------------------------------


def _field(samples: Samples, column: Column, row: int) -> Tensor:
    return (samples.input if column.part == "input" else samples.target)[row, column.channel]


def _moved_by(recipe: Recipe, moved: Samples, row: int) -> str:
    assert moved.generators is not None
    return ", ".join(f"{name} {value:+.2f}" for name, value in zip(recipe.coordinates, moved.generators[row], strict=True))


def _headline(recipe: Recipe) -> str:
    grid = " x ".join(map(str, recipe.ood_grid))
    parameters = ", ".join(f"{name} = {value:g}" for name, value in recipe.parameters.items())
    return f"{recipe.problem} ({parameters}), preset {recipe.preset}, seed {recipe.seed}, {grid} points"


def _tidy(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)


def _save(figure: Figure, path: Path) -> None:
    FigureCanvasAgg(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, format="png")
