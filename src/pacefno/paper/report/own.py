"""The report on runs with data of one's own: a table of models, and errors against shift and boost.

Every run is scored on the held-out samples of the task that it was trained on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from pacefno.errors import UsageError
from pacefno.files import write_text
from pacefno.paper.report.page import Picture, fill_template
from pacefno.paper.style import (
    Drawing,
    finish,
    legend_below,
    line_look,
    panels,
    save,
    statistic,
    title_of,
)
from pacefno.task import Task

PAGE = "index.html"
COLUMNS = {
    "id_error": "at rest",
    "ood_error": "moved",
    "ood_error_canonical": "moved, in its own frame",
    "equivariance_error": "equivariance error",
    "parameters": "parameters",
    "train_seconds": "seconds of training",
}


@final
@dataclass(frozen=True)
class Scored:
    """A run with its errors, and those against the size of each kind of motion."""

    row: dict[str, Any]
    sweep: dict[str, list[tuple[float, float]]]
    largest: dict[str, str]  # what a share of 1 means, by the kind of motion


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """One line per model and preset, in the order of their errors when moved; seeds together."""
    lines = []
    for (model, preset), title in titles(rows).items():
        own = [row for row in rows if (row["model"], row["preset"]) == (model, preset)]
        found = {key: statistic(own, key) for key in COLUMNS}
        order = found["ood_error_canonical"]
        lost = {key for key in COLUMNS if any(key in row and row[key] is None for row in own)}
        if "ood_error_canonical" in lost:
            order = None
        cells = [
            "not finite" if key in lost else "" if one is None else str(one)
            for key, one in found.items()
        ]
        cells[-2] = f"{own[0]['parameters']:,}"
        cells[-1] = f"{float(own[0]['train_seconds']):.0f}"
        lines.append((float("inf") if order is None else order.mean, [title, *cells]))
    return [cells for _, cells in sorted(lines, key=lambda line: line[0])]


def titles(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """Titles by model and preset, which is named where a model has several."""
    trainings = dict.fromkeys((row["model"], row["preset"]) for row in rows)
    presets = Counter(model for model, _ in trainings)
    return {
        (model, preset): title_of(model) + (f", preset {preset}" if presets[model] > 1 else "")
        for model, preset in trainings
    }


def draw_sweeps(task: Task, scored: Sequence[Scored], name: str) -> Drawing | None:
    """The error of every model against the size of each kind of motion; None without a motion."""
    kinds = list(dict.fromkeys(kind for one in scored for kind in one.sweep))
    if not kinds:
        return None
    known = titles([one.row for one in scored])
    first = {model: (model, preset) for model, preset in reversed(known)}.values()
    # One scale for all panels: what looks flat is flat.
    figure, (axes,) = panels(4.2 * len(kinds), 3.6, 1, len(kinds), sharey=True)
    for i, (axis, kind) in enumerate(zip(axes, kinds, strict=True)):
        for one in scored:
            key = one.row["model"], one.row["preset"]
            look = line_look(key[0], known[key], marker=True)
            if key not in first:
                look["linestyle"] = ":"
            points = one.sweep.get(kind, [])
            xs, ys = [x for x, _ in points], [y for _, y in points]
            axis.plot(xs, ys, **look)
        share = f"{kind}, as a share of {scored[0].largest[kind]}"
        finish(axis, share, "relative error in its own frame" if i == 0 else "", log="y")
    legend_below(figure)
    caption = (
        f"{task.name}: error on held-out samples against how far they were moved, measured without "
        "the motion itself, whose norm would flatter it."
    )
    return Drawing(f"{name}-sweep", caption, figure)


def file_names(names: Sequence[str]) -> list[str]:
    """One name for each task: several may be called alike, after files in different formats."""
    found: list[str] = []
    for name in names:
        number = names[: len(found)].count(name) + 1
        found.append(name if number == 1 else f"{name}-{number}")
    return found


def write_own_report(
    tasks: Sequence[tuple[Task, Sequence[Scored]]], output: Path, say: Callable[[str], None]
) -> Path:
    """A page that works offline, with figures and the numbers as JSON beside it."""
    if not tasks:
        raise UsageError("report: no runs on data of your own were found")
    sections = []
    for (task, scored), name in zip(
        tasks, file_names([task.name for task, _ in tasks]), strict=True
    ):
        rows = [one.row for one in scored]
        write_text(output / f"{name}.json", json.dumps({"rows": rows}, indent=1) + "\n")
        picture = None
        if drawing := draw_sweeps(task, scored, name):
            picture = Picture(drawing, save(drawing, output / "figures"))
            say(f"{output / 'figures' / drawing.name}.png written")
        sections.append((task, table(rows), picture))
    page = fill_template("own.html", sections=sections, columns=COLUMNS)
    write_text(output / PAGE, page)
    return output / PAGE
