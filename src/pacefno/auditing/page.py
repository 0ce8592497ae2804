"""An audit as a table of text and as one page of HTML, both from its document."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, NamedTuple

from pacefno.auditing.motions import BOOST, FRACTION, POINT, TOGETHER, TURN, WHOLE

Document = dict[str, Any]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 340, 230, 46, 12, 12, 38  # of a chart, in pixels
APART = 34  # pixels between two numbers of an axis
MARKS = {"exact": "✓✓", "keeps": "✓", "loses": "~", "fails": "✗"}
UNITS = {
    WHOLE: "cells",
    FRACTION: "cells",
    BOOST: "velocity, in the units of the data",
    TURN: "degrees",
    TOGETHER: "of the farthest alone",
}
# What is drawn: name, entry of a row, class of its line.
SOME = ("averaged", "both")  # entries that few rows have
LINES = (("model", "error", "model"), ("with PACE", "wrapped", "pace"))


def number(value: float | None) -> str:
    """Three digits that count, one and a power of ten below a ten-thousandth."""
    if value is None or not math.isfinite(value):
        return "not finite"
    return format(value, ".0e" if 0 < value < 1e-4 else ".3g")


def columns(document: Document) -> list[tuple[str, str]]:
    """Titles and entries of a table; without averages where none was measured."""
    every = [
        ("error", "error"),
        ("equivariance error", "equivariance"),
        ("with PACE", "wrapped"),
        ("averaged", "averaged"),
        ("PACE + averaged", "both"),
        ("floor", "floor"),
    ]
    rows = (document["rest"], *document["rows"])
    return [(t, key) for t, key in every if key not in SOME or any(r[key] for r in rows)]


def _cell(row: Document, key: str) -> str:
    return "" if key in SOME and row[key] is None else number(row[key])


def table(document: Document) -> str:
    """One line per motion: the model as it is, within PACE, averaged, and the floor."""
    chosen = columns(document)
    lines = [["", *(title for title, _ in chosen), ""]]
    family = ""
    for row in (document["rest"], *document["rows"]):
        if row["family"] not in (family, row["label"]):
            lines.append([row["family"]])
        family = row["family"]
        values = [_cell(row, key) for _, key in chosen]
        lines.append([f"  {row['label']}", *values, row.get("level", "")])
    first = max(len(line[0]) for line in lines)
    widths = [max(8, len(title)) for title, _ in chosen]
    text = []
    for line in lines:
        cells = [cell.rjust(width) for cell, width in zip(line[1:-1], widths, strict=False)]
        text.append("  ".join([line[0].ljust(first), *cells, *line[1:][-1:]]).rstrip())
    notes = [f"not measured: {reason}" for reason in document["left_out"]]
    return "\n".join([*text, *notes])


# --- the page -------------------------------------------------------------------------------------


def page(document: Document) -> str:
    """One page that needs nothing else: the verdict, the curves, the table."""
    grid = " x ".join(map(str, document["grid"]))
    about = (
        f"{document['samples']} samples of {escape(document['task'])} on a grid of {grid}, "
        f"{document['precision']}"
        + (f", after {document['steps']} steps in a row" if document["steps"] > 1 else "")
    )
    said = "".join(
        f'<li class="{f["level"]}"><b>{MARKS.get(f["level"], "")}</b> {escape(f["text"])}</li>'
        for f in document["findings"]
    )
    left_out = "".join(f"<li>Not measured: {escape(text)}</li>" for text in document["left_out"])
    charts = "".join(chart(document, title, rows) for title, rows in panels(document))
    template = files("pacefno.auditing").joinpath("page.html").read_text("utf-8")
    return Template(template).substitute(
        title=escape(document["model"]),
        about=about,
        findings=said,
        left_out=left_out,
        charts=charts,
        table=_html_table(document),
    )


def panels(document: Document) -> list[tuple[str, list[Document]]]:
    """The rows of each chart: a coordinate alone, all together; a point group has no sizes."""
    found: dict[str, list[Document]] = {}
    for row in document["rows"]:
        if row["family"] != POINT:
            kind = row["family"].partition(" by ")[0]
            title = kind if kind == row["factor"] else f"{kind} {row['factor']}"
            found.setdefault(title, []).append(row)
    return [(title, rows) for title, rows in found.items() if len(rows) > 1]


def _html_table(document: Document) -> str:
    chosen = columns(document)
    head = "".join(f"<th>{title}</th>" for title, _ in chosen)
    body, family = "", ""
    for row in (document["rest"], *document["rows"]):
        if row["family"] not in (family, row["label"]):
            body += f'<tr><th colspan="{len(chosen) + 2}" class="family">{row["family"]}</th></tr>'
        family, level = row["family"], row.get("level", "")
        cells = "".join(f"<td>{_cell(row, key)}</td>" for _, key in chosen)
        mark = f'<td class="{level}">{MARKS.get(level, "")} {level}</td>'
        body += f"<tr><th>{escape(row['label'])}</th>{cells}{mark}</tr>"
    return f"<table><thead><tr><th></th>{head}<th></th></tr></thead><tbody>{body}</tbody></table>"


# --- charts ---------------------------------------------------------------------------------------


def chart(document: Document, title: str, rows: Sequence[Document]) -> str:
    """Error against size, both logarithmic: the model, the model within PACE, and its rest.

    Charts of one page have one scale of errors, so that they can be compared.
    """
    rest = document["rest"]["error"]
    shown = (document["rest"], *document["rows"])
    known = [value for row in shown for _, key, _ in LINES if (value := row[key])] or [1.0]
    sizes = [row["size"] for row in rows]
    x = Scale(min(sizes) / 1.25, max(sizes) * 1.25, LEFT, WIDTH - RIGHT)
    y = Scale(min(known) / 1.4, max(known) * 1.4, HEIGHT - BOTTOM, TOP)
    parts = [_axes(rows, x, y)]
    if rest:
        place = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(rest):.1f}" y2="{y(rest):.1f}"'
        parts.append(f'<line class="rest" {place}/>')
    for name, key, look in LINES:
        for family in dict.fromkeys(row["family"] for row in rows):
            kind = f"{look} between" if family == FRACTION else look
            own = [(x(row["size"]), y(row[key]), row) for row in rows if row["family"] == family]
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in own)
            parts.append(f'<polyline class="{kind}" points="{path}"/>')
            for a, b, row in own:
                hint = f"<title>{name}, {escape(row['label'])}: {number(row[key])}</title>"
                parts.append(
                    f'<circle class="{kind}" cx="{a:.1f}" cy="{b:.1f}" r="3.5">{hint}</circle>'
                )
    label = f'role="img" aria-label="{escape(title)}: error against size"'
    drawn = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" {label}>{"".join(parts)}</svg>'
    return f"<figure><figcaption>{escape(title)}</figcaption>{drawn}</figure>"


class Scale(NamedTuple):
    """A logarithmic axis: numbers from low to high, drawn from one pixel to another."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float | None) -> float:
        """Where a number stands; one that is not finite stands at the end."""
        share = 1.0 if value is None else math.log(max(value, self.low) / self.low)
        return self.start + (self.stop - self.start) * (
            share if value is None else share / math.log(self.high / self.low)
        )

    def ticks(self) -> list[float]:
        """Powers of ten and, where these are few, their doubles and halves."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
            found = [step * 10.0**n for n in decades for step in steps]
            found = [value for value in found if self.low <= value <= self.high]
            if len(found) >= 3:
                break
        return found


def _axes(rows: Sequence[Document], x: Scale, y: Scale) -> str:
    parts, bottom = [], HEIGHT - BOTTOM
    for value in y.ticks():
        at = f"{y(value):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{at}" dy="4" text-anchor="end">{value:.3g}</text>')
    last = -math.inf
    for size in sorted({row["size"] for row in rows}):
        if x(size) - last >= APART:
            last = x(size)
            text = f"{size:.0%}" if rows[0]["family"] == TOGETHER else f"{size:.3g}"
            parts.append(
                f'<text x="{last:.1f}" y="{bottom + 15}" text-anchor="middle">{text}</text>'
            )
    unit = UNITS.get(rows[0]["family"], "")
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{bottom + 31}" text-anchor="middle">{unit}</text>')
    return "".join(parts)
