"""The report as one HTML file that needs nothing else: figures and style are inside."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pacefno.studies.report.collect import Table
from pacefno.studies.report.columns import COLUMNS, Cell, Column, columns_of
from pacefno.studies.report.figures.style import DPI
from pacefno.studies.report.findings import UNTRAINED, against, findings
from pacefno.studies.report.settings import Setting, differences, grids, physics
from pacefno.studies.report.tables import caption, cells_of, power_of_ten

PACKAGE = "pacefno.studies.report"
READABLE = 76  # pixels of the page for an inch of figure, at least


@final
@dataclass(frozen=True)
class Picture:
    """A figure on the page."""

    name: str
    caption: str
    png: bytes
    folded: bool = False

    @property
    def source(self) -> str:
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, from the header of the PNG, so that the page does not jump while it loads."""
        return int.from_bytes(self.png[16:20], "big"), int.from_bytes(self.png[20:24], "big")

    @property
    def readable(self) -> int:
        """The width on the page below which its letters become too small: narrower screens scroll."""
        return self.size[0] * READABLE // DPI


@final
@dataclass(frozen=True)
class Tile:
    """One problem in a glance."""

    anchor: str
    title: str
    value: str
    text: str
    paper: str


@final
@dataclass(frozen=True)
class Section:
    """One problem on the page."""

    table: Table
    pictures: list[Picture]
    notes: list[str] = field(default_factory=list)  # what is not there, and how to make it

    @property
    def anchor(self) -> str:
        return self.table.problem.name.replace("_", "-")

    @property
    def caption(self) -> str:
        return f"{caption(self.table)} The lowest OOD error is bold."

    @property
    def findings(self) -> list[str]:
        return findings(self.table)

    @property
    def settings(self) -> list[Setting]:
        return differences(self.table)

    @property
    def columns(self) -> list[Column]:
        return columns_of(self.table)

    @property
    def rows(self) -> list[tuple[str, list[Cell]]]:
        return list(zip([line.model for line in self.table.lines], cells_of(self.table), strict=True))

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What the problem is, for somebody who reads this section alone."""
        problem = self.table.problem
        ranges = zip(problem.group.coordinates, problem.train_range, problem.ood_low, problem.ood_high, strict=True)
        moves = [(name, f"±{inside:.3g}", f"{low:.3g} to {high:.3g}") for name, inside, low, high in ranges]
        return [
            ("equation", f"{type(problem.equation).__name__}, {physics(problem)}"),
            ("symmetry", f"{problem.group.name.capitalize()} group: {', '.join(problem.group.coordinates)}"),
            ("seen in training", ", ".join(f"{name} {inside}" for name, inside, _ in moves)),
            ("tested out of distribution", ", ".join(f"{name} {outside}" for name, _, outside in moves)),
            ("grid, ID → OOD", grids(problem, self.table.preset)),
        ]

    @property
    def commands(self) -> list[str]:
        return sorted({str(row["command"]) for row in self.table.rows if row.get("command")})

    @property
    def tile(self) -> Tile:
        problem = self.table.problem
        paper = problem.paper.get("pace")
        reported = f"paper: {paper[1]:.4f}" if paper and problem.in_tables else ""
        pace = self.table.line("pace")
        found = None if pace is None else pace.of("ood_error")
        if pace is None or found is None:
            return Tile(self.anchor, problem.title, "–", "PACE was not run", reported)
        if pace.mean("id_error") > UNTRAINED:
            return Tile(self.anchor, problem.title, str(found.mean_text), "hardly trained at this preset", reported)
        other = self.table.line("fno-aug") or self.table.line("fno")
        text = "" if other is None else f"{against(other.mean('ood_error'), found.mean)} {other.title}"
        return Tile(self.anchor, problem.title, found.mean_text, "" if "nan" in text else text, reported)


def render_page(sections: list[Section], overview: Picture | None, forecasts: Sequence[object] = ()) -> str:
    """The whole page; the same results give the same text. ``forecasts`` are sections on trajectories."""
    environment = Environment(
        loader=PackageLoader(PACKAGE, "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["cell"] = cell_markup
    environment.filters["code"] = code_markup
    template = environment.get_template("template.html")
    return template.render(
        sections=sections, overview=overview, forecasts=forecasts, columns=COLUMNS, versions=_versions(sections)
    )


def cell_markup(cell: Cell) -> Markup:
    """A mean with its spread in lighter print."""
    if cell.value is None:
        return escape(cell.text)
    mean = _number(cell.value.mean_text)
    if cell.value.std is not None and math.isfinite(cell.value.std):
        mean += Markup(' <span class="spread">± {}</span>').format(_number(cell.value.std_text))
    return Markup("<strong>{}</strong>").format(mean) if cell.bold else mean


def code_markup(text: str) -> Markup:
    """Commands between backticks in the type of commands."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _number(text: str) -> Markup:
    return Markup(power_of_ten(str(escape(text)), lambda digits, power: f"{digits}·10<sup>{power}</sup>".replace("-", "−")))


def _versions(sections: list[Section]) -> str:
    found = {
        f"{name} {number}"
        for section in sections
        for row in section.table.rows
        for name, number in row.get("versions", {}).items()
    }
    return ", ".join(sorted(found))
