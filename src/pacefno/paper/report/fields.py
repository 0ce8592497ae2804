"""Pictures of fields: samples of a dataset, predictions, what PACE does to a field, rollouts."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, final

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from pacefno.data.recipe import PairRecipe
from pacefno.data.samples import Pairs
from pacefno.data.store import PairDataset
from pacefno.fields import Field
from pacefno.grid import energy_spectrum, points
from pacefno.paper import style
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.report.runs import Outcome, typical_sample
from pacefno.paper.style import Drawing, Grid, Look
from pacefno.task import Task

SAMPLES = 3  # shown of a dataset, and on their way through PACE
MOMENTS = 5  # output snapshots that are shown of a prediction in time
IN_TIME = ("fno", "fno-aug", "pace", "pace-tta")  # rows that are shown in time
TRUTH: Look = {"color": style.FAINT, "linewidth": 3.6, "alpha": 0.55, "label": "the truth"}
HEAD: Look = {"fontsize": 9, "color": style.INK, "loc": "left"}
ROUND_OFF = 1e-16  # energy below which a float32 field holds nothing but noise


# --- panels ---------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Panel:
    """One field, ``(n,)`` or ``(nx, ny)``.

    Panels of the same ``scale`` have the same limits; without a scale a panel has its own. An
    image that is ``centred`` is shown less its mean, which is printed: a boost adds a constant
    that would drown the rest.
    """

    values: Tensor
    title: str = ""
    scale: str = ""  # what is shown: the name of an axis or a colour bar
    colour: str = style.BLUE
    truth: Tensor | None = None  # drawn in grey behind a line
    centred: bool = True

    @property
    def shown(self) -> Tensor:
        still = self.values.ndim == 1 or not self.centred
        return self.values if still else self.values - self.values.mean()


Panels = Sequence[Sequence[Panel | None]]


def draw_panels(
    rows: Panels, labels: Sequence[str] = (), heads: Sequence[str] = (), size: float = 1.9
) -> Figure:
    """Fields in rows and columns, as lines or as images with colour bars.

    ``labels`` stand beside the rows, ``heads`` above the columns; ``size`` is that of a panel, in
    inches.
    """
    panels = [panel for row in rows for panel in row if panel]
    lines, across = panels[0].values.ndim == 1, max(map(len, rows))
    scales = {p.scale: _limits([q for q in panels if q.scale == p.scale]) for p in panels}
    low = [lines and all(p is None or p.scale == "error" for p in row) for row in rows]
    heights = [0.5 if is_low else 1.0 for is_low in low]
    width = max(1.2 * size, 9.6 / across) if lines else size
    whole = width * across + 0.8, size * sum(heights) + 0.2 * len(rows) + 0.4
    figure, axes = style.panels(*whole, len(rows), across, height_ratios=heights, sharex=lines)
    images: dict[str, Any] = {}
    for row, beside in zip(rows, axes, strict=True):
        for j, axis in enumerate(beside):
            panel = row[j] if j < len(row) else None
            if panel is None:
                axis.set_visible(False)
                continue
            limits = scales[panel.scale] if panel.scale else _limits([panel])
            if lines:
                left = row[j - 1] if j else None
                _draw_line(axis, panel, limits, first=left is None or left.scale != panel.scale)
            else:
                images[panel.scale] = _draw_image(axis, panel, limits)
    for text, axis in zip(heads, axes[0], strict=False):
        axis.set_title(text, **HEAD)
    for text, beside in zip(labels, axes, strict=False):
        flat: Look = {"rotation": 0, "ha": "right", "va": "center"} if "\n" in text else {}
        beside[0].set_ylabel(text, fontsize=8, color=style.INK, labelpad=8, **flat)
    for column in axes.T if lines else ():
        lowest = [axis for axis in column if axis.get_visible()][-1]
        lowest.tick_params(labelbottom=True)
        style.label(lowest, x="x")
    if any(panel.truth is not None for panel in panels):
        model: Look = {"color": style.INK, "linewidth": 1.3, "label": "the model"}
        style.legend_below(figure, [TRUTH, model])
    if images:
        _draw_bars(figure, axes, rows, images)
    return figure


def _limits(panels: Sequence[Panel]) -> tuple[float, float]:
    """Limits of one scale: of images symmetric, and not set by a few extreme points."""
    fields = [panel.shown for panel in panels]
    if fields[0].ndim == 1:
        fields += [panel.truth for panel in panels if panel.truth is not None]
        low, high = min(float(f.min()) for f in fields), max(float(f.max()) for f in fields)
        margin = 0.06 * (high - low) or 1.0
        return low - margin, high + margin
    top = max(float(f.abs().flatten().quantile(0.998)) for f in fields) or 1.0
    return -top, top


def _draw_line(axis: Axes, panel: Panel, limits: tuple[float, float], *, first: bool) -> None:
    x = points(tuple(panel.values.shape))[0].numpy()
    axis.axhline(0, color=style.FAINT, linewidth=0.7, zorder=1)
    if panel.truth is not None:
        axis.plot(x, panel.truth.numpy(), **TRUTH)
    axis.plot(x, panel.values.numpy(), color=panel.colour, linewidth=1.3)
    axis.set_xlim(0, 1)
    axis.set_ylim(*limits)
    axis.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    style.finish(axis, y=panel.scale if first else "")
    axis.tick_params(labelbottom=False, labelleft=first)
    axis.set_title(panel.title, **HEAD)


def _draw_image(axis: Axes, panel: Panel, limits: tuple[float, float]) -> Any:
    look: Look = {"cmap": style.SIGNED, "interpolation": "nearest", "origin": "lower"}
    # x runs to the right and y up, as in the formulas
    image = axis.imshow(panel.shown.T.numpy(), extent=(0, 1, 0, 1), clim=limits, **look)
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set(color=style.FAINT, linewidth=0.6)
    axis.set_title(panel.title, **HEAD)
    mean = float(panel.values.mean())
    if panel.centred and abs(mean) > 0.05 * limits[1]:
        box: Look = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
        axis.text(0.03, 0.03, f"mean {mean:+.2f}", transform=axis.transAxes, fontsize=7.5, bbox=box)
    return image


def _draw_bars(figure: Figure, axes: Grid, rows: Panels, images: dict[str, Any]) -> None:
    """Colour bars beside rows if each row has one scale, else below columns of one scale."""
    by_row = [{p.scale for p in row if p and p.scale} for row in rows]
    if all(len(found) == 1 for found in by_row):
        parts = [(scale, axes[own].ravel()) for scale, own in _runs([min(one) for one in by_row])]
        place: Look = {"location": "right", "aspect": 18, "shrink": 0.9}
    else:
        top = [p.scale if p else "" for p in rows[0]]
        parts = [(scale, axes[:, own].ravel()) for scale, own in _runs(top)]
        place = {"location": "bottom", "aspect": 25, "shrink": 0.8}
    for scale, own in parts:
        bar = figure.colorbar(images[scale], ax=list(own), pad=0.015, **place)
        bar.ax.tick_params(labelsize=8, color=style.FAINT)
        bar.set_label(scale, fontsize=8.5, color=style.INK)
        bar.outline.set_visible(False)


def _runs(names: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Equal neighbours together, with their places."""
    numbered = groupby(enumerate(names), key=lambda pair: pair[1])
    return [(name, [i for i, _ in pairs]) for name, pairs in numbered]


# --- predictions ----------------------------------------------------------------------------------


def draw_predictions(benchmark: Benchmark, moved: Pairs, outcomes: list[Outcome]) -> list[Drawing]:
    """Every row's prediction of one sample with its error below; a figure per physical channel."""
    task, sample, drawings = benchmark.task, typical_sample(outcomes), []
    channels, models = task.output.channels, tuple(one.model for one in outcomes)
    for i, name in enumerate(channels):
        place = i - len(channels)  # in the last snapshot
        figure = draw_panels(_prediction_panels(name, moved, outcomes, sample, place))
        caption = (
            f"Predictions of {name} for one OOD sample, each with its error below. It is the one "
            f"of {len(moved)} samples on which PACE has its median error; relative errors stand "
            f"above the lower panels.{_how_shown(task)}"
        )
        title = f"{benchmark.name}-predictions" + f"-{name}" * (len(channels) > 1)
        drawings.append(Drawing(title, caption, figure, i > 0, models))
    return drawings


def _prediction_panels(
    name: str, moved: Pairs, outcomes: list[Outcome], sample: int, place: int
) -> Panels:
    truth = moved.target[sample, place]
    lines = truth.ndim == 1
    scale = name if lines else f"{name} − mean"
    given = Panel(moved.input[sample, place], "input")
    pairs = [] if lines else [(Panel(truth, "truth", scale), given)]
    for one in outcomes:
        field, colour = one.values[sample, place], style.style_of(one.model).colour
        title = textwrap.fill(style.title_of(one.model), 26)
        upper = Panel(field, title, scale, colour, truth if lines else None)
        error = f"error {float(one.error[sample]):.3g}"
        pairs.append((upper, Panel(field - truth, error, "error", colour, centred=False)))
    # Panels beside each other: the first number that wastes least.
    choices = (3, 4, 5) if lines else (5, 4)
    across = min(choices, key=lambda n: (-len(pairs) % n, choices.index(n)))
    bands = [pairs[i : i + across] for i in range(0, len(pairs), across)]
    return [[pair[k] for pair in band] for band in bands for k in (0, 1)]


def _how_shown(task: Task) -> str:
    """The end of a caption: what of a field is shown, and which snapshot where there are some."""
    before, after = task.input.snapshots, task.output.snapshots
    mean = "" if task.dim == 1 else " Fields are shown less their printed mean."
    last = f" The last of {before} input and {after} output snapshots is shown."
    return mean + last * (before + after > 2)


def draw_in_time(benchmark: Benchmark, moved: Pairs, outcomes: list[Outcome]) -> Drawing:
    """The last input and some output snapshots of one OOD sample: the truth and a few rows."""
    task, sample = benchmark.task, typical_sample(outcomes)
    chosen = [one for one in outcomes if one.model in IN_TIME]
    count, width = task.output.snapshots, len(task.output.channels)
    numbers = [round((i + 1) * count / MOMENTS) - 1 for i in range(MOMENTS)]
    after = [(task.output.times[n] - task.input.times[-1]) * task.output.step for n in numbers]
    heads = ["last input", *(f"t = {time:.3g}" for time in after)]
    look: Look = {"scale": task.output.channels[0], "centred": False}
    rows = []
    for values in (moved.target[sample], *(one.values[sample] for one in chosen)):
        shown = moved.input[sample, -width], *(values[n * width] for n in numbers)
        rows.append([Panel(field, **look) for field in shown])
    labels = ["truth", *(style.title_of(one.model).replace(" + ", "\n+ ") for one in chosen)]
    caption = (
        "One OOD sample in time: the last snapshot of the input, then the truth and the "
        "predictions of a few models."
    )
    figure = draw_panels(rows, labels, heads, size=1.6)
    return Drawing(f"{benchmark.name}-in-time", caption, figure)


def draw_canonicalisation(
    benchmark: Benchmark, plain: Pairs, moved: Pairs, pace: Outcome
) -> Drawing:
    """The path of samples through PACE, with the frames that it found and the true ones."""
    task, few = benchmark.task, slice(SAMPLES)
    group, xi, name = task.group, pace.xi[few], task.output.channels[0]
    first, last = -len(task.input.channels), -len(task.output.channels)
    pulled = group.inverse(Field(moved.input[few], task.input), xi).values
    output = group.inverse(Field(pace.values[few], task.output), xi).values
    given, target = moved.input[few, first], moved.target[few, last]
    lines = task.dim == 1
    before: Look = {"scale": name if lines else f"input {name}", "colour": style.BLUE}
    after: Look = {"scale": name if lines else f"output {name}", "colour": style.VERMILION}
    # The fields of each stage, what they should be, and how they are drawn.
    stages = {
        "OOD input": (given, given, before),
        "pulled back": (pulled[:, first], plain.input[few, first], before),
        "operator's output": (output[:, last], plain.target[few, last], after),
        "prediction": (pace.values[few, last], target, after),
        "target": (target, target, after),
    }
    rows = [
        [Panel(v[i], truth=t[i] if lines else None, **look) for v, t, look in stages.values()]
        for i in range(len(xi))
    ]
    names = [coordinate.replace("velocity", "v") for coordinate in group.coordinates]
    frames = zip(group.wrap(xi.double()), group.wrap(moved.elements[few]), strict=True)
    labels = [
        "\n".join(f"{c} {a:+.3f} ({b:+.3f})" for c, a, b in zip(names, found, true, strict=True))
        for found, true in frames
    ]
    shown = f" of {name}" if len(task.output.channels) > 1 else ""
    caption = (
        f"What PACE does to three OOD samples{shown}: the input is pulled back to the canonical "
        "frame, the operator runs there, and its output is carried to the frame of the final time. "
        "On the left the frame that was found and, in brackets, the true one."
        f"{_how_shown(task)}"
    )
    figure = draw_panels(rows, labels, list(stages), size=1.75)
    return Drawing(f"{benchmark.name}-canonical", caption, figure)


# --- orbits ---------------------------------------------------------------------------------------


def first_wave(field: Tensor) -> tuple[Tensor, Tensor]:
    """Radius and angle of the first Fourier coefficient of lines ``(..., n)``.

    A shift by s periods turns it by ``-2 pi s`` and a boost leaves it alone: in its plane an orbit
    is a circle, and a slice that fixes the phase of this wave is a ray.
    """
    wave = torch.fft.rfft(field.double())[..., 1] / field.shape[-1]
    return wave.abs(), wave.angle()


STAGES: dict[str, Look] = {  # of a sample on its way through PACE
    "OOD input": {"marker": "o", "color": style.BLUE},
    "pulled back to the slice": {"marker": "s", "color": style.BLUE},
    "operator's output": {"marker": "s", "color": style.VERMILION},
    "prediction": {"marker": "o", "color": style.VERMILION},
}
RING: Look = {"marker": "o", "markersize": 14, "markerfacecolor": "none", "color": style.BLACK}
ARROW: Look = {"arrowstyle": "-|>", "linewidth": 1.6, "shrinkA": 0, "shrinkB": 5}
ORBITS = 6  # that are drawn together


def draw_orbits(benchmark: Benchmark, plain: Pairs, moved: Pairs, pace: Outcome) -> Drawing:
    """Orbit, slice and quotient of lines: the paper's Figure 1 with real fields."""
    group, input, output = benchmark.task.group, benchmark.task.input, benchmark.task.output
    pulled = group.inverse(Field(moved.input, input), pace.xi).values
    operated = group.inverse(Field(pace.values, output), pace.xi).values
    stages = moved.input, pulled, operated, pace.values
    waves = [first_wave(values[:, -1]) for values in stages]  # of the last snapshot
    way_in = _turn(waves[0][1], waves[1][1])
    shown = int((way_in.abs() - 0.7 * math.pi).abs().argmin())  # a long way, but not all around
    places = [(float(angle[shown]), float(radius[shown])) for radius, angle in waves]
    figure, (axes,) = style.panels(9.6, 5.0, 1, 2, subplot_kw={"projection": "polar"})
    for start, end, colour in ((0, 1, style.BLUE), (2, 3, style.VERMILION)):
        _draw_orbit(axes[0], places[start][1], colour)
        turn = float(_turn(waves[start][1], waves[end][1])[shown])
        way = [places[start][0] + turn * i / 59 for i in range(60)]
        axes[0].plot(way, [places[start][1]] * 60, color=colour, linewidth=2.2)
        nearly = way[-6], places[start][1]
        axes[0].annotate("", places[end], nearly, arrowprops=ARROW | {"color": colour})
    axes[0].annotate("", places[2], places[1], arrowprops=ARROW | {"color": style.BLACK})
    for place, (name, mark) in zip(places, STAGES.items(), strict=True):
        axes[0].plot(*place, linestyle="none", markersize=8, label=name, zorder=5, **mark)
    radius, angle = first_wave(moved.target[shown, -1])
    axes[0].plot(float(angle), float(radius), linestyle="none", label="target", **RING)
    (radii, given), (_, found) = ((r[:ORBITS].tolist(), a.tolist()) for r, a in waves[:2])
    for radius, *angles in zip(radii, given, found, strict=False):
        _draw_orbit(axes[1], radius, style.FAINT)
        for angle, look in zip(angles, STAGES.values(), strict=False):
            axes[1].plot(angle, radius, markersize=6, **look)
    ray = float(first_wave(plain.input[:, -1])[1].median())
    for axis, longest in ((axes[0], places[0][1]), (axes[1], max(radii))):
        line: Look = {"color": style.GREEN, "linewidth": 1.6, "label": "slice", "zorder": 1}
        axis.plot([ray, ray], [0, 1.12 * longest], **line)
        axis.set(xticklabels=[], yticklabels=[])
        axis.grid(False)
        axis.spines["polar"].set_visible(False)
    style.label(axes[0], title="one sample: pull back, operate, push out")
    style.label(axes[1], title="some samples: one point of each orbit is on the slice")
    style.legend_below(figure, columns=3)
    caption = (
        f"Orbit, slice and quotient, in the plane of the first Fourier coefficient of "
        f"{input.channels[-1]}: a shift turns it, so that the orbit of a field is a circle, and "
        "the slice is a ray. Left: an OOD input goes along its orbit to the slice, the operator "
        "takes it to another orbit, and its output goes along that one to the target's frame. "
        "Right: inputs (dots) and the points of their orbits on the slice (squares), one for each."
    )
    return Drawing(f"{benchmark.name}-orbits", caption, figure)


def _turn(start: Tensor, end: Tensor) -> Tensor:
    """The shorter way from one angle to another."""
    return (end - start + math.pi) % (2 * math.pi) - math.pi


def _draw_orbit(axis: Axes, radius: float, colour: str) -> None:
    circle = [2 * math.pi * i / 200 for i in range(201)]
    axis.plot(circle, [radius] * len(circle), color=colour, linewidth=0.9, alpha=0.6)


def draw_rollouts(
    benchmark: Benchmark, truth: Tensor, rollouts: dict[str, Tensor], length: float, time: float
) -> Drawing:
    """Space-time pictures ``(S, n)`` of the truth and of every row, and of their errors."""
    look: Look = {"scale": benchmark.task.output.channels[0], "centred": False}
    upper: list[Panel | None] = [Panel(truth.T, "truth", **look)]
    lower: list[Panel | None] = [None]
    for model, values in rollouts.items():
        error = values - truth
        share = float(error.norm() / truth.norm())
        title = benchmark.rows[model].title.replace(" + ", "\n+ ")
        upper.append(Panel(values.T, title, **look))
        lower.append(Panel(error.T, f"error, {share:.3f} of the norm", **look))
    caption = (
        "One test trajectory, moved beyond the augmentation: the truth, what each model predicts "
        "from the snapshots before, and the error on the same scale. Space runs to the right over "
        f"a box of length {length:.3g}, time upwards over {time:.3g}."
    )
    return Drawing(f"{benchmark.name}-rollouts", caption, draw_panels([upper, lower], size=2.5))


# --- datasets -------------------------------------------------------------------------------------


def draw_samples(dataset: PairDataset, recipe: PairRecipe, path: Path) -> None:
    """Draw three samples, each above its copy that was moved out of distribution."""
    plain, moved = (dataset.load(split, "ood", SAMPLES) for split in ("test_id", "test_ood"))
    task, labels, heads = recipe.task, [], []
    rows: list[list[Panel]] = [[] for _ in range(2 * len(plain))]
    for word, type in (("input", task.input), ("output", task.output)):
        for k in sorted({0, type.snapshots - 1}):
            for c, name in enumerate(type.channels):
                heads.append(f"{word} {name}\nt = {type.times[k] * type.step:g}")
                look: Look = {"scale": name if task.dim == 1 else f"{word} {name}"}
                look |= {"colour": style.BLUE if word == "input" else style.VERMILION}
                for row, panels in enumerate(rows):
                    pairs = moved if row % 2 else plain
                    fields = pairs.input if word == "input" else pairs.target
                    panels.append(Panel(fields[row // 2, k * len(type.channels) + c], **look))
    for i, element in enumerate(moved.elements):
        by = [f"{c} {x:+.2f}" for c, x in zip(task.group.coordinates, element, strict=True)]
        labels += [f"sample {i}", "\n".join(["moved by", *by])]
    figure = draw_panels(rows, labels, heads, size=1.5)
    figure.suptitle(_headline(dataset, recipe), fontsize=11)
    style.save_picture(figure, path)


def draw_spectra(dataset: PairDataset, recipe: PairRecipe, path: Path) -> None:
    """Draw energy spectra of the first input and the last output, channel by channel."""
    task, pairs = recipe.task, dataset.load("test_id", "ood")
    names = task.output.channels
    width = max(5.0, 3.6 * len(names))
    figure, (axes,) = style.panels(width, 3.8, 1, len(names), sharey=True)
    end = task.output.times[-1] * task.output.step
    for i, (axis, name) in enumerate(zip(axes, names, strict=True)):
        parts = {
            "input, t = 0": (pairs.input[:, [i]], style.BLUE),
            f"output, t = {end:g}": (pairs.target[:, [i - len(names)]], style.VERMILION),
        }
        for text, (fields, colour) in parts.items():
            draw_spectrum(axis, fields, {"color": colour, "linewidth": 1.5, "label": text})
        finish_spectrum(axis, dataset.document["id_grid"][0], pairs.input.shape[2], title=name)
    style.label(axes[0], y="energy E(k)")
    style.legend_below(figure)
    text = f"{_headline(dataset, recipe)}\nenergy spectra, mean of {len(pairs)} samples"
    figure.suptitle(text, fontsize=10)
    style.save_picture(figure, path)


def draw_spectrum(axis: Axes, fields: Tensor, look: Look) -> None:
    """Energy over wavenumbers, the mean of samples and channels."""
    energy = energy_spectrum(fields.double()).mean(dim=0)[1:].clamp_min(ROUND_OFF)
    axis.loglog(range(1, 1 + len(energy)), energy, **look)


def finish_spectrum(axis: Axes, training_points: int, points: int, title: str = "") -> None:
    """Limits, names, and a line where the training grid ends."""
    look: Look = {"color": style.FAINT, "linewidth": 1, "linestyle": "--", "zorder": 1}
    axis.axvline(training_points / 2, label="end of the training grid", **look)
    axis.set_xlim(1, points // 2)
    style.finish(axis, "wavenumber k", title=title)


def _headline(dataset: PairDataset, recipe: PairRecipe) -> str:
    parameters = ", ".join(f"{k} = {v:g}" for k, v in recipe.equation.parameters.items())
    preset, seed = dataset.document["preset"], dataset.document["seed"]
    grid = " × ".join(map(str, dataset.document["ood_grid"]))
    return f"{recipe.name} ({parameters}), preset {preset}, seed {seed}, {grid} points"
