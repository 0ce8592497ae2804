"""The report on runs with data of one's own: a table of models, and errors against shift and boost.

Every run is scored on the held-out samples of the task that it was trained on.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from pacefno.errors import UsageError
from pacefno.files import write_text
from pacefno.paper.style import (
    Drawing,
    decimal_ticks,
    label,
    legend_below,
    line_look,
    new_figure,
    save,
    statistic,
    style_of,
    tidy,
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
    """A run with its errors, and those against the size of a shift and of a boost."""

    row: dict[str, Any]
    sweep: dict[str, list[tuple[float, float]]]
    largest: dict[str, str]  # what a share of 1 means, by the kind of motion


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """One line per model, in the order of their errors when moved; seeds together."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    lines = []
    for model in models:
        own = [row for row in rows if row["model"] == model]
        found = {key: statistic(own, key) for key in COLUMNS}
        order = found["ood_error_canonical"]
        cells = ["" if one is None else str(one) for one in found.values()]
        cells[-2] = f"{own[0]['parameters']:,}"
        cells[-1] = f"{float(own[0]['train_seconds']):.0f}"
        lines.append((float("inf") if order is None else order.mean, [title_of(model), *cells]))
    return [cells for _, cells in sorted(lines, key=lambda line: line[0])]


def draw_sweeps(task: Task, scored: Sequence[Scored]) -> Drawing:
    """The error of every model against the size of a shift and of a boost."""
    kinds = list(dict.fromkeys(kind for one in scored for kind in one.sweep))
    figure = new_figure(4.2 * len(kinds), 3.6)
    first = None  # one scale for all panels: what looks flat is flat
    for i, kind in enumerate(kinds):
        axis = figure.add_subplot(1, len(kinds), i + 1, sharey=first)
        first = first or axis
        for one in scored:
            model = one.row["model"]
            points = one.sweep.get(kind, [])
            look = line_look(model) | {"marker": style_of(model).marker, "markersize": 4}
            axis.plot([x for x, _ in points], [y for _, y in points], **look)
        tidy(axis)
        axis.set_yscale("log")
        decimal_ticks(axis.yaxis)
        label(axis, x=f"{kind}, as a share of {scored[0].largest[kind]}")
        label(axis, y="relative error in its own frame" if i == 0 else "")
    legend_below(figure)
    caption = (
        f"{task.name}: error on held-out samples against how far they were moved, measured without "
        "the motion itself, whose norm would flatter it."
    )
    return Drawing(f"{task.name}-sweep", caption, figure)


def write_own_report(
    tasks: Sequence[tuple[Task, Sequence[Scored]]], output: Path, say: Callable[[str], None]
) -> Path:
    """A page that works offline, with figures and the numbers as JSON beside it."""
    if not tasks:
        raise UsageError("report: no runs on data of your own were found")
    parts = []
    for task, scored in tasks:
        rows = [one.row for one in scored]
        write_text(output / f"{task.name}.json", json.dumps({"rows": rows}, indent=1) + "\n")
        drawing = draw_sweeps(task, scored)
        png = base64.b64encode(save(drawing, output / "figures")).decode()
        parts.append(_section(task, table(rows), drawing, png))
        say(f"{output / 'figures' / drawing.name}.png written")
    write_text(output / PAGE, _PAGE.format(body="\n".join(parts)))
    return output / PAGE


def _section(task: Task, lines: Sequence[Sequence[str]], drawing: Drawing, png: str) -> str:
    def cells(tag: str, words: Sequence[str]) -> str:
        return "".join(f"<{tag}>{html.escape(word)}</{tag}>" for word in words)

    head = f"<tr>{cells('th', ['model', *COLUMNS.values()])}</tr>"
    body = "".join(f"<tr>{cells('td', line)}</tr>" for line in lines)
    fields = f"{task.input.text}; {task.group.name} group; box {list(task.input.lengths)}"
    return (
        f"<h2>{html.escape(task.name)}</h2><p>{html.escape(fields)}</p><table>{head}{body}</table>"
        f'<figure><img alt="{html.escape(drawing.caption)}" src="data:image/png;base64,{png}">'
        f"<figcaption>{html.escape(drawing.caption)}</figcaption></figure>"
    )


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>pacefno: own data</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em;
  color: #24292f }}
table {{ border-collapse: collapse }} th, td {{ padding: .3em .7em; text-align: right;
  border-bottom: 1px solid #d8dee4; font-variant-numeric: tabular-nums }}
th:first-child, td:first-child {{ text-align: left }} img {{ max-width: 100% }}
figure {{ margin: 1.5em 0 }} figcaption {{ color: #57606a }}
</style><h1>Models on your own data</h1>
<p>Relative errors on held-out samples: as they are, and moved by shifts and boosts. A model that
follows its input has the same error in its own frame wherever the input is and however fast.</p>
{body}
</html>
"""
