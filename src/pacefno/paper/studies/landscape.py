"""The energy of test-time adaptation over two coordinates of a frame: minima, basins and paths.

Shows where the true frame lies, which minima there are, from how many starts on a grid Gauss-Newton
reaches each, and the paths of Gauss-Newton and of Adam at the paper's rate (the paper's landscape
figure).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, final

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from pacefno.data.samples import Pairs
from pacefno.errors import UsageError
from pacefno.fields import Field
from pacefno.frames import AdamRefiner, GaussNewton
from pacefno.frames.refine import energy_of
from pacefno.groups import Group
from pacefno.metrics import frame_distance
from pacefno.pace import PACE
from pacefno.paper import style
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.studies.base import (
    Cell,
    Outcome,
    Refiner,
    Scope,
    Table,
    TrainedRow,
    choose,
    grouped,
    refinement_path,
)

MODELS = ("pace", "pace-free", "pace-cnn", "pace-analytic")
DEFAULT_MODELS = ("pace", "pace-cnn")
FRAMES_AT_ONCE = 64  # whose energy is computed together
ONE_MINIMUM_PERIODS = 0.02  # end points closer than this are one minimum
LEAST_SHARE = 0.02  # of the starts, that a minimum must attract to count as one
NEWTON = GaussNewton(steps=20)
NEWTON_STEPS = (0, 1, 2, 3, 4, 6, 8)
ADAM_STEPS = (0, 1, 2, 3, 5, 8, 12, 20, 35, 50)


@final
@dataclass(frozen=True)
class Cut:
    """Two coordinates of a group, each over a period (a velocity over its OOD range).

    ``first`` and ``second`` are their places in xi; they run from ``-high`` to ``high``.
    """

    group: Group
    first: int
    second: int
    high: tuple[float, float]

    @property
    def names(self) -> list[str]:
        return [self.group.coordinates[self.first], self.group.coordinates[self.second]]

    def grid(self, base: Tensor, points: int) -> Tensor:
        """Frames ``(points^2, size)`` on the cut through ``base`` ``(size,)``, row by row."""
        centres = (torch.arange(points, dtype=torch.float64) + 0.5) / points
        a, b = torch.meshgrid(*((2 * centres - 1) * high for high in self.high), indexing="ij")
        xi = base.expand(points**2, -1).clone()
        xi[:, self.first], xi[:, self.second] = a.flatten(), b.flatten()
        return xi

    def place(self, xi: Tensor) -> list[list[float]]:
        """Where frames ``(B, size)`` lie on the cut: pairs of numbers."""
        found: list[list[float]] = self.group.wrap(xi)[:, [self.first, self.second]].tolist()
        return found


def cut_through(benchmark: Benchmark, coordinates: Sequence[str] = ()) -> Cut:
    """The cut along two named coordinates; by default the first two of the group."""
    group = benchmark.task.group
    names = choose(coordinates or group.coordinates[:2], group.coordinates, "coordinate")
    if len(set(names)) != 2 or len(names) != 2:
        known = ", ".join(group.coordinates)
        raise UsageError(f"coordinates: expected two different ones of {known}, got {names}")
    first, second = (group.coordinates.index(name) for name in names)
    ends = [
        beyond if math.isinf(period) else period / 2
        for period, beyond in zip(group.periods, benchmark.ood[1], strict=True)
    ]
    return Cut(group, first, second, (ends[first], ends[second]))


# --- the study ------------------------------------------------------------------------------------


def run(
    scope: Scope,
    models: Sequence[str],
    seed: int,
    sample: int,
    coordinates: Sequence[str],
    points: int,
    starts: int,
) -> Outcome:
    """The landscape of one OOD test sample: ``points`` energies and ``starts`` descents an axis."""
    cut = cut_through(scope.benchmark, coordinates)

    def explore(row: TrainedRow) -> Cell:
        found = scope.pairs("test_ood", sample + 1)
        if len(found) <= sample:
            raise UsageError(f"sample: the test split has {len(found)} samples, got {sample}")
        one = found.select(slice(sample, sample + 1))
        return measure(row.trained.model, scope, cut, one, points, starts)

    rows = scope.trained_rows(models or DEFAULT_MODELS, [seed], MODELS)
    jobs = [(row.identity, partial(explore, row)) for row in rows]
    asked: Cell = {"seed": seed, "sample": sample, "cut": ",".join(cut.names)}
    asked |= {"points": points, "grid_of_starts": starts}
    file = scope.file("landscape", "preset", "model", "seed", "sample", "cut")
    names = [row.name for row in rows]
    cells = [one for one in scope.measured(file, jobs, **asked) if one["model"] in names]
    return Outcome(file.path, [minima_table(cells)], draw(scope.benchmark, cells))


def measure(model: PACE, scope: Scope, cut: Cut, sample: Pairs, points: int, starts: int) -> Cell:
    """Energies over the cut, minima with the share of starts that reach each, and paths."""
    adam = AdamRefiner(rate=scope.benchmark.adaptation.rate)
    energy = model.frame.energy()
    estimate = model.frame_of(sample.input).xi.detach()

    def repeated(xi: Tensor) -> Field:
        """The sample, once for each frame."""
        return Field(sample.input.expand(len(xi), *sample.input.shape[1:]), model.input)

    @torch.no_grad()
    def energies(xi: Tensor) -> Tensor:
        parts = torch.split(xi, FRAMES_AT_ONCE)
        return torch.cat([energy_of(energy.residual(repeated(part), part)) for part in parts])

    def path(refiner: Refiner, xi: Tensor, *steps: int) -> Cell:
        """Places ``(paths, steps, 2)`` and energies ``(paths, steps)``."""
        found = refinement_path(refiner, energy, repeated(xi), xi, *steps)
        places = [cut.place(one) for one in found.xi.transpose(0, 1)]
        return {"places": places, "energy": found.energy.T.tolist(), "steps": list(steps)}

    begin = cut.grid(estimate[0], starts)
    found = [NEWTON(energy, repeated(part), part) for part in torch.split(begin, FRAMES_AT_ONCE)]
    ends = torch.cat([one.xi for one in found])
    values = torch.cat([one.energy_after for one in found])
    numbers, labels = basins(model.group, ends, values)
    minima = []
    for label, end in enumerate(numbers):
        xi = ends[[end]]
        with torch.no_grad():
            error = scope.errors(sample, model.at(sample.input, xi))[1]
        distance = frame_distance(model.group, xi, sample.elements)
        share = float((labels == label).double().mean())
        minimum = {"place": cut.place(xi)[0], "xi": xi[0].tolist(), "energy": float(values[end])}
        minima.append(
            minimum | {"share": share, "from_true": float(distance[0]), "error": float(error[0])}
        )
    line = torch.tensor([starts // 6, starts // 2, (5 * starts) // 6])
    few = begin[(line[:, None] * starts + line[None, :]).flatten()]  # nine, spread over the cut
    return {
        "adam_rate": adam.rate,
        "coordinates": cut.names,
        "low": [-high for high in cut.high],
        "high": list(cut.high),
        "energy": energies(cut.grid(estimate[0], points)).reshape(points, -1).tolist(),
        "true": cut.place(sample.elements)[0],
        "estimate": cut.place(estimate)[0],
        "estimate_energy": float(energies(estimate)[0]),
        "starts": cut.place(begin),
        "labels": labels.tolist(),
        "minima": minima,
        "paths": {
            "gauss-newton": path(NEWTON, few, *NEWTON_STEPS),
            "adam": path(adam, few, *ADAM_STEPS),
            "from the estimate": path(NEWTON, estimate, *NEWTON_STEPS),
        },
    }


def basins(group: Group, ends: Tensor, values: Tensor) -> tuple[list[int], Tensor]:
    """The end points that are minima, deepest first, and which of them each start reached (or -1).

    End points that lie together are one minimum. Where few starts end they did not reach a minimum
    but stopped on the way; the deepest end point counts always.
    """
    labels = torch.full((len(ends),), -1)
    minima: list[int] = []
    unassigned = torch.isfinite(values)
    for i in values.argsort().tolist():
        if not unassigned[i]:
            continue
        apart = frame_distance(group, ends, ends[i].expand_as(ends))
        near = unassigned & (apart < ONE_MINIMUM_PERIODS)
        unassigned &= ~near
        if not minima or int(near.sum()) >= max(2, LEAST_SHARE * len(ends)):
            labels[near] = len(minima)
            minima.append(i)
    return minima, labels


def minima_table(cells: list[Cell]) -> Table:
    """The minima of each row: which share of starts reaches it, and how good a frame it is."""
    lines = []
    for cell in cells:
        title = style.title_of(cell["model"])
        for one in cell["minima"]:
            place = [f"{value:+.4f}" for value in one["place"]]
            rest = [f"{one['energy']:.1e}", f"{one['share']:.1%}"]
            errors = [f"{one[key]:.4f}" for key in ("from_true", "error")]
            lines.append([title, *place, *rest, *errors])
        elsewhere = sum(label < 0 for label in cell["labels"]) / len(cell["labels"])
        lines.append([title, "", "", "elsewhere", f"{elsewhere:.1%}", "", ""])
    columns = ["energy", "share of starts", "from the true frame", "error"]
    title = f"Minima of J_TTA, sample {cells[0]['sample']}"
    return Table(title, ["row", *cells[0]["coordinates"], *columns], lines)


# --- the figure -----------------------------------------------------------------------------------

SHADES = "cividis_r"  # ordered by lightness, for every kind of sight
BASINS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.VERMILION, style.SKY)
NAMES = {"x": "shift along x", "y": "shift along y"}
MARKS: dict[str, style.Look] = {
    "true frame": {"marker": "*", "markersize": 14, "color": "white", "markeredgecolor": "black"},
    "estimate": {"marker": "s", "markersize": 7, "color": "white", "markeredgecolor": "black"},
    "minimum": {"marker": "o", "markersize": 9, "color": style.BLUE, "markeredgecolor": "white"},
    "start, coloured by its minimum": {"marker": "o", "markersize": 3.6, "color": style.BLUE},
    "start that ends elsewhere": {"marker": "o", "markersize": 3.6, "color": style.FAINT},
}
PATHS: dict[str, style.Look] = {
    "adam": {"color": style.VERMILION, "linewidth": 1.1, "label": "Adam, the paper's rate"},
    "gauss-newton": {"color": style.BLACK, "linewidth": 1.1, "label": "Gauss-Newton"},
    "from the estimate": {
        "color": style.BLACK, "linewidth": 1.6, "linestyle": "--",
        "label": "Gauss-Newton from the estimate",
    },
}  # fmt: skip


def draw(benchmark: Benchmark, cells: list[Cell]) -> list[style.Drawing]:
    """One figure for each cut, all rows in it; of several samples or seeds the last is shown."""
    groups = grouped(cells, "cut", "sample", "seed").values()
    drawings = [draw_cut(benchmark, own) for own in groups]
    return list({drawing.name: drawing for drawing in drawings}.values())


def draw_cut(benchmark: Benchmark, cells: list[Cell]) -> style.Drawing:
    """One panel per row on a common scale of energy."""
    highest = max(value for cell in cells for row in cell["energy"] for value in row)
    figure, (axes,) = style.panels(1.2 + 4.3 * len(cells), 5.2, 1, len(cells), sharey=True)
    x, y = (NAMES.get(name, name.replace("_", " along ")) for name in cells[0]["coordinates"])
    for axis, cell in zip(axes, cells, strict=True):
        values, ends = np.array(cell["energy"]), list(zip(cell["low"], cell["high"], strict=True))
        lines = [
            low + (high - low) * (np.arange(n) + 0.5) / n
            for (low, high), n in zip(ends, values.shape, strict=True)
        ]
        levels = np.linspace(0, highest, 25)
        shades = axis.contourf(*lines, values.T, levels=levels, cmap=SHADES)
        thin: style.Look = {"colors": "white", "linewidths": 0.4, "alpha": 0.6}
        axis.contour(*lines, values.T, levels=levels[2::2], **thin)
        draw_descents(axis, cell)
        axis.set(xlim=ends[0], ylim=ends[1])
        axis.tick_params(labelsize=8.5, color=style.FAINT, labelcolor=style.INK)
        style.label(axis, x=x, title=style.title_of(cell["model"]))
    style.label(axes[0], y=y)
    figure.colorbar(shades, ax=list(axes), shrink=0.8, label="energy J")
    marks = [look | {"linestyle": "none", "label": name} for name, look in MARKS.items()]
    style.legend_below(figure, [*marks, *PATHS.values()], columns=2 if len(cells) == 1 else 4)
    caption = (
        f"{benchmark.title}, OOD sample {cells[0]['sample']}: the energy of test-time adaptation "
        "over two coordinates of its frame. Small dots are starts of descents, coloured by the "
        "minimum that they reach; grey ones end elsewhere."
    )
    name = f"{benchmark.name}-landscape-{'-'.join(cells[0]['coordinates'])}"
    return style.Drawing(name, caption, figure, models=tuple(cell["model"] for cell in cells))


def draw_descents(axis: Axes, cell: Cell) -> None:
    """Starts and minima in the colours of their basins, the paths, the estimate and the truth."""

    def mark(place: list[float], name: str, height: int, **look: Any) -> None:
        axis.plot(*place, linestyle="none", zorder=height, **MARKS[name] | look)

    white: style.Look = {"markeredgecolor": "white", "markeredgewidth": 0.4}
    for place, basin in zip(cell["starts"], cell["labels"], strict=True):
        colour = style.FAINT if basin < 0 else BASINS[basin % len(BASINS)]
        mark(place, "start, coloured by its minimum", 3, color=colour, **white)
    for number, one in enumerate(cell["minima"]):
        mark(one["place"], "minimum", 5, color=BASINS[number % len(BASINS)])
    mark(cell["estimate"], "estimate", 6)
    mark(cell["true"], "true frame", 7)
    spans = np.array(cell["high"]) - np.array(cell["low"])
    for name, look in PATHS.items():
        for places in cell["paths"][name]["places"]:
            points = [places[0]]
            for before, after in pairwise(places):
                if np.any(np.abs(np.subtract(after, before)) > spans / 2):
                    points.append([math.nan, math.nan])  # out on one side, in on the other
                points.append(after)
            axis.plot(*np.array(points).T, zorder=4, **look)
