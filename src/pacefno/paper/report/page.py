"""The report as one HTML file that needs nothing else: figures and style are inside."""

from __future__ import annotations

import base64
import re
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pacefno.data.recipe import TrajectoryRecipe
from pacefno.paper.differences import grids, physics
from pacefno.paper.report.collect import Table
from pacefno.paper.report.tables import (
    SUMMARY_ROWS,
    Cell,
    caption,
    cells_of,
    columns_of,
    split_power,
)
from pacefno.paper.style import DPI, Drawing

READABLE = 76  # pixels of the page for an inch of figure: narrower screens scroll instead


class Picture(NamedTuple):
    """A figure on the page."""

    drawing: Drawing
    png: bytes

    @property
    def source(self) -> str:
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, from the header: the page does not jump while it loads."""
        return int.from_bytes(self.png[16:20], "big"), int.from_bytes(self.png[20:24], "big")

    @property
    def readable(self) -> int:
        """The width on the page below which its letters become too small."""
        return self.size[0] * READABLE // DPI


class Section(NamedTuple):
    """One benchmark on the page."""

    table: Table
    pictures: list[Picture]
    notes: list[str]  # what is not there, and how to make it


def facts_of(table: Table) -> dict[str, str]:
    """What a benchmark is, for a reader of this section alone."""
    benchmark, recipe, task = table.benchmark, table.benchmark.recipe, table.benchmark.task
    names, (low, high) = task.group.coordinates, benchmark.ood
    inside = zip(names, task.train_range, strict=True)
    outside = zip(names, low, high, strict=True)
    facts = {
        "equation": f"{type(benchmark.equation).__name__}, {physics(benchmark)}",
        "symmetry": f"{task.group.name.capitalize()} group: {', '.join(names)}",
        "seen in training": ", ".join(f"{name} ±{most:.3g}" for name, most in inside),
        "tested out of distribution": ", ".join(f"{n} {a:.3g} to {b:.3g}" for n, a, b in outside),
    }
    if not isinstance(recipe, TrajectoryRecipe):
        return facts | {"grid, training → test": grids(benchmark, table.preset)}
    assert task.rollout is not None
    count = recipe.kept - task.rollout.first
    span = f"{count * task.input.step:.0f} time units"
    box = f"a box of length {recipe.length:g}, within {recipe.variation:.0%}"
    return facts | {"rollout": f"{count} snapshots of {recipe.points} points, {span}, in {box}"}


def headline_of(table: Table) -> list[str]:
    """A benchmark at a glance: what is measured, PACE's error, its rivals' and the paper's.

    In the words of the README's table. Rollouts, which that table does not have, are measured
    without the motion, which would flatter them.
    """
    name, key = "error on moved inputs", "ood_error"
    if table.of_rollouts:
        name, key = "error (NMSE) of rollouts from moved inputs", "ood_nmse_canonical"
    rows, model = table.benchmark.rows, table.benchmark.default_row
    means = {e.model: found.mean_text for e in table.lines if (found := e.of(key))}

    def called(row: str) -> str:
        return rows[row].title if table.of_rollouts else SUMMARY_ROWS.get(row, rows[row].title)

    rivals = [f"{called(m)}: {means[m]}" for m in ("fno-aug", "fno") if m in means]
    paper = table.benchmark.paper.get(model)
    if paper and not table.of_rollouts:
        rivals.append(f"the paper's: {paper[1]:.4f}")
    return [means.get(model, "–"), f"{called(model)}: {name}", *rivals]


def render_page(sections: list[Section], overview: Picture | None) -> str:
    """The whole page; the same results give the same text."""
    results = [result for section in sections for result in section.table.results]
    versions = {f"{name} {v}" for r in results for name, v in r.get("versions", {}).items()}
    meanings = {c.title: c.meaning for s in sections for c in columns_of(s.table) if c.meaning}
    parts = {"overview": overview, "meanings": meanings, "versions": sorted(versions)}
    return fill_template("template.html", sections=sections, **parts)


def fill_template(name: str, **parts: Any) -> str:
    """A template of this folder with its parts; text in them is escaped."""
    loader = PackageLoader("pacefno.paper.report", ".")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters |= {"cell": cell_markup, "code": code_markup}
    functions = (caption, cells_of, columns_of, facts_of, headline_of)
    environment.globals |= {function.__name__: function for function in functions}
    return environment.get_template(name).render(**parts)


def cell_markup(cell: Cell) -> Markup:
    """A mean with its deviation in lighter print; the best in bold."""
    if cell.value is None:
        return escape(cell.text)
    form = "{}·10<sup>{}</sup>"
    mean, std = (
        Markup(split_power(text, form).replace("-", "−"))
        for text in (cell.value.mean_text, cell.value.std_text)
    )
    text = mean + Markup(' <span class="spread">± {}</span>').format(std) if std else mean
    return Markup("<strong>{}</strong>").format(text) if cell.bold else text


def code_markup(text: str) -> Markup:
    """Commands between backticks in the type of commands."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
