"""How every figure looks: one colour, line and marker per model, everywhere, in a palette for colour-blind readers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

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


# Models that agree are drawn on each other: those below are wide and those above thin or broken, so that all show.
STYLES: dict[str, Style] = {
    "fno": Style(VERMILION, "-", "o", 2.8),
    "fno-aug": Style(ORANGE, "-", "s", 2.0),
    "fno-nogrid": Style(PURPLE, "-", "^", 1.4),
    "fno-nogrid-centred": Style(PURPLE, "--", "v", 1.4),
    "gfno": Style(GREY, "-", "D", 2.0),
    "gfno-literal": Style(GREY, "--", "d", 1.4),
    "gfno-plain": Style(GREY, ":", "d", 1.4),
    "pace": Style(BLUE, "-", "o", 3.2),
    "pace-tta": Style(SKY, "--", "s", 2.0),
    "pace-oracle": Style(BLACK, ":", "*", 1.6),
    "pace-free": Style(GREEN, "--", "P", 1.4),
    "pace-cnn": Style(GREEN, "-", "X", 2.0),
    "pace-analytic": Style(BLACK, "-.", "h", 1.0),
    "pace-gfno": Style(GREY, "-.", "h", 2.0),
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


def tidy(axis: Axes) -> None:
    """Two spines, small grey ticks, a faint grid behind the data."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(FAINT)
    axis.tick_params(labelsize=8.5, color=FAINT, labelcolor=INK, which="both")
    axis.grid(True, color="#E4E7EB", linewidth=0.7)
    axis.set_axisbelow(True)


def decimal_ticks(axis: Axis) -> None:
    """A logarithmic axis in plain decimals; where it spans less than two decades, 2 and 5 have numbers too."""
    low, high = axis.get_view_interval()
    few = high < 100 * low
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if few and f"{value:e}"[0] in "25" else ""))


def label(axis: Axes, x: str = "", y: str = "", title: str = "") -> None:
    if x:
        axis.set_xlabel(x, fontsize=9.5, color=INK)
    if y:
        axis.set_ylabel(y, fontsize=9.5, color=INK)
    if title:
        axis.set_title(title, fontsize=10, color=INK, loc="left", fontweight="bold")


def legend_below(figure: Figure, handles: Sequence[Artist], columns: int = 3) -> None:
    """One legend for the whole figure: lines that lie on each other cannot be labelled where they end."""
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns, fontsize=8.5, frameon=False)


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
    drawing.figure.set_layout_engine("none")  # the places are found: finding them again takes longer than drawing
    FigureCanvasPdf(drawing.figure)
    with matplotlib.rc_context({"pdf.fonttype": 42}):  # text stays text
        drawing.figure.savefig(
            folder / f"{drawing.name}.pdf", format="pdf", metadata={"CreationDate": None, "Producer": None, "Creator": None}
        )
    return buffer.getvalue()
