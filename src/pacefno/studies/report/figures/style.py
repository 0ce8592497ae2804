"""How every figure looks: one colour, line and marker per model, everywhere, in a palette for colour-blind readers."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pacefno.training.models import MODELS

Grid: TypeAlias = Any  # a numpy array of axes
Look: TypeAlias = dict[str, Any]
# Okabe & Ito; their yellow is left out, it cannot be read on white
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#7A7A7A"
SIGNED = "RdBu_r"
INK, FAINT = "#24292F", "#8A9099"
DPI = 160


@final
@dataclass(frozen=True)
class Style:
    colour: str
    line: str = "-"
    marker: str = "o"
    width: float = 1.6


STYLES: dict[str, Style] = {
    "fno": Style(VERMILION, "-", "o"),
    "fno-aug": Style(ORANGE, "-", "s"),
    "fno-nogrid": Style(PURPLE, "-", "^"),
    "fno-nogrid-centred": Style(PURPLE, "--", "v"),
    "gfno": Style(SKY, "-", "D"),
    "gfno-literal": Style(SKY, "--", "d"),
    "pace": Style(BLUE, "-", "o", 2.4),
    "pace-tta": Style(BLUE, "--", "s", 1.4),
    "pace-oracle": Style(BLACK, ":", "*", 1.8),
    "pace-free": Style(GREEN, "--", "P"),
    "pace-cnn": Style(GREEN, "-", "X"),
    "pace-analytic": Style(BLACK, "-.", "h", 1.2),
}


def style_of(model: str) -> Style:
    return STYLES.get(model, Style(GREY, "-.", "p"))


def title_of(model: str) -> str:
    return MODELS[model].title if model in MODELS else model


def line_look(model: str) -> Look:
    style = style_of(model)
    return {"color": style.colour, "linestyle": style.line, "linewidth": style.width, "label": title_of(model)}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in the house style; nothing global is changed, so a notebook keeps its own."""
    return Figure(figsize=(width, height), layout="constrained")


def tidy(axis: Axes, *, grid: str | None = "both") -> None:
    """Two spines, small grey ticks, a faint grid behind the data."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(FAINT)
    axis.tick_params(labelsize=8.5, color=FAINT, labelcolor=INK, which="both")
    if grid:
        axis.grid(True, axis=grid, color="#E4E7EB", linewidth=0.7)
        axis.set_axisbelow(True)


def label(axis: Axes, x: str = "", y: str = "", title: str = "") -> None:
    if x:
        axis.set_xlabel(x, fontsize=9.5, color=INK)
    if y:
        axis.set_ylabel(y, fontsize=9.5, color=INK)
    if title:
        axis.set_title(title, fontsize=10, color=INK, loc="left", fontweight="semibold")


def legend_below(figure: Figure, handles: list[Line2D], columns: int = 3) -> None:
    """One legend for the whole figure: lines that lie on each other cannot be labelled where they end."""
    legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8.5, frameon=False)
    legend.set_in_layout(True)


def model_handles(models: list[str]) -> list[Line2D]:
    return [Line2D([], [], **line_look(model)) for model in models]


@final
@dataclass(frozen=True)
class Drawing:
    """A figure with the name of its files and what stands below it; ``folded`` ones are closed on the page at first."""

    name: str
    caption: str
    figure: Figure
    folded: bool = False


def save(drawing: Drawing, folder: Path) -> bytes:
    """Write PNG and PDF and return the PNG. No dates inside: the same numbers give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    FigureCanvasAgg(drawing.figure)
    drawing.figure.savefig(buffer, dpi=DPI, format="png", metadata={"Software": None})
    (folder / f"{drawing.name}.png").write_bytes(buffer.getvalue())
    FigureCanvasPdf(drawing.figure)
    with matplotlib.rc_context({"pdf.fonttype": 42}):  # text stays text
        drawing.figure.savefig(
            folder / f"{drawing.name}.pdf", format="pdf", metadata={"CreationDate": None, "Producer": None, "Creator": None}
        )
    return buffer.getvalue()
