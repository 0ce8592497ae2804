"""How figures and numbers look: a colour, line and marker per row, safe for the colour-blind."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
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

from pacefno.errors import UsageError
from pacefno.files import replacing
from pacefno.paper.rows import FIELD_ROWS, TRAJECTORY_ROWS

Grid: TypeAlias = Any  # a numpy array of axes
Look: TypeAlias = dict[str, Any]  # keyword arguments of matplotlib
# Okabe & Ito; their yellow is left out, it cannot be read on white
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#7A7A7A"
SIGNED = "RdBu_r"  # colour map of fields with both signs
INK, FAINT, SHADE = "#24292F", "#8A9099", "#E9F1F7"
DPI = 160  # of PNG files
PICTURES = (".png", ".pdf", ".svg")
TITLES = {name: row.title for name, row in (TRAJECTORY_ROWS | FIELD_ROWS).items()}


# --- numbers --------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Statistic:
    """A mean over seeds, and the standard deviation if there is more than one seed."""

    mean: float
    std: float | None = None

    def __str__(self) -> str:
        return self.mean_text if self.std is None else f"{self.mean_text} ± {self.std_text}"

    @property
    def mean_text(self) -> str:
        return self._form.format(self.mean)

    @property
    def std_text(self) -> str:
        return "" if self.std is None else self._form.format(self.std)

    @property
    def _form(self) -> str:
        """Four decimals, five below 0.01, powers of ten below 0.001."""
        size = abs(self.mean)
        return "{:.1e}" if 0 < size < 1e-3 else "{:.5f}" if 0 < size < 1e-2 else "{:.4f}"


def statistic(rows: Iterable[Mapping[str, Any]], key: str) -> Statistic | None:
    """Mean and sample deviation of one entry of some rows; None where nothing was measured."""
    values = [float(row[key]) for row in rows if row.get(key) is not None]
    if not values:
        return None
    if len(values) == 1 or not all(map(math.isfinite, values)):
        return Statistic(statistics.fmean(values))
    return Statistic(statistics.fmean(values), statistics.stdev(values))


# --- rows -----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Style:
    """Colour, line and marker of a row."""

    colour: str
    line: str = "-"
    marker: str = "o"
    width: float = 1.6


# Rows that agree lie on each other: lower ones are wide, upper ones thin or broken, so all show.
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
    "pace-products": Style(BLUE, "--", "^", 1.4),
    "fno-products-long": Style(ORANGE, "-.", "^", 1.4),
    "pace-products-long": Style(BLUE, ":", "^", 1.4),
    "pace-free": Style(GREEN, "--", "P", 1.4),
    "pace-cnn": Style(GREEN, "-", "X", 2.0),
    "pace-cnn-tta": Style(GREEN, ":", "x", 1.4),
    "pace-analytic": Style(BLACK, "-.", "h", 1.0),
    "pace-gfno": Style(GREY, "-.", "h", 2.0),
    "gfno-short": Style(VERMILION, ":", "d", 1.4),
    "pace-gfno-short": Style(VERMILION, "-.", "h", 1.4),
    "fno-symmetrised": Style(ORANGE, "--", "D", 1.4),
    "pace-symmetrised": Style(SKY, "-.", "D", 2.0),
    "fno-symmetrised-long": Style(ORANGE, ":", "D", 1.4),
    "pace-symmetrised-long": Style(SKY, ":", "D", 2.0),
    "fno-g1": Style(PURPLE, "--"),
    "fno-aug-1": Style(GREEN, "--"),
    "pace-1": Style(SKY, width=2.4),
    "fno-1-split": Style(VERMILION, ":", width=2.4),
    "pace-20-split": Style(BLUE, "-.", width=2.4),
    "pace-20-1-split": Style(SKY, "-.", width=2.4),
    "fno-aug-1-split": Style(GREEN, ":", width=2.4),
    "pace-1-split": Style(BLACK, "-.", width=2.4),
    "pace-1-split-mirror": Style(ORANGE, "-.", width=2.4),
    "pace-20": Style(BLUE, width=2.4),
}


def style_of(model: str) -> Style:
    """The style of a row; grey for one without a style of its own."""
    return STYLES.get(model, Style(GREY, "-.", "p"))


def title_of(model: str) -> str:
    """The title of a row (of a pair benchmark first); an unknown row keeps its name."""
    return TITLES.get(model, model)


def line_look(model: str, title: str | None = None, *, marker: bool = False) -> Look:
    """Keyword arguments of ``Axes.plot`` for the line of a row."""
    style = style_of(model)
    look: Look = {"color": style.colour, "linestyle": style.line, "linewidth": style.width}
    look |= {"label": title_of(model) if title is None else title}
    return look | ({"marker": style.marker, "markersize": 4} if marker else {})


# --- figures --------------------------------------------------------------------------------------


def panels(
    width: float, height: float, rows: int = 1, columns: int = 1, **how: Any
) -> tuple[Figure, Grid]:
    """A new figure, and its axes as an array ``(rows, columns)``."""
    figure = new_figure(width, height)
    return figure, figure.subplots(rows, columns, squeeze=False, **how)


def finish(axis: Axes, x: str = "", y: str = "", title: str = "", *, log: str = "") -> None:
    """Make a panel tidy and name it; ``log`` says which axes are logarithmic, such as "xy"."""
    for name in log:
        axis.set(**{f"{name}scale": "log"})
        decimal_ticks(getattr(axis, f"{name}axis"))
    tidy(axis)
    label(axis, x, y, title)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, sizes in inches; no global setting is changed (notebooks keep theirs)."""
    return Figure(figsize=(width, height), layout="constrained")


def tidy(axis: Axes) -> None:
    """Two spines, small grey ticks, a faint grid behind the data."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(FAINT)
    axis.tick_params(labelsize=8.5, color=FAINT, labelcolor=INK, which="both")
    axis.grid(True, color="#E4E7EB", linewidth=0.7)
    axis.set_axisbelow(True)


def decimal_ticks(axis: Axis) -> None:
    """A logarithmic axis in plain decimals; the less it spans, the more minor ticks are numbered.

    Two decades or more: powers of ten alone. Less: 2 and 5 too. Below a factor of 6: every tick.
    """

    def minor(value: float, _: object) -> str:
        low, high = sorted(axis.get_view_interval())
        wanted = "" if high >= 100 * low else "25" if high >= 6 * low else "123456789"
        return f"{value:.4g}" if f"{value:e}"[0] in wanted else ""

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(FuncFormatter(minor))


def label(axis: Axes, x: str = "", y: str = "", title: str = "") -> None:
    """Names of the axes and a bold title at the left; what is empty stays as it is."""
    if x:
        axis.set_xlabel(x, fontsize=9.5, color=INK)
    if y:
        axis.set_ylabel(y, fontsize=9.5, color=INK)
    if title:
        axis.set_title(title, fontsize=10, color=INK, loc="left", fontweight="bold")


def legend_below(
    figure: Figure, handles: Iterable[Artist | Look] | None = None, columns: int = 3
) -> None:
    """One legend for the whole figure: lines on each other cannot be labelled where they end.

    Entries are artists or the looks of lines. Without any: every label of every panel, once.
    """
    if handles is None:
        found = [h for axis in figure.axes for h in axis.get_legend_handles_labels()[0]]
        handles = list({handle.get_label(): handle for handle in reversed(found)}.values())[::-1]
    artists = [Line2D([], [], **one) if isinstance(one, dict) else one for one in handles]
    place: Look = {"loc": "outside lower center", "ncols": columns}
    figure.legend(handles=artists, fontsize=8.5, frameon=False, **place)


def draw_means(
    axis: Axes, rows: Iterable[Mapping[str, Any]], by: str, x: str, y: str, look: Look
) -> None:
    """Means over the seeds of rows that agree in ``by``; bars of deviation with a ``capsize``.

    Nothing is drawn where nothing was measured.
    """
    known = sorted((row for row in rows if row.get(y) is not None), key=lambda row: row[by])
    groups = [list(own) for _, own in groupby(known, key=lambda row: row[by])]
    across, up = ([statistic(own, key) for own in groups] for key in (x, y))
    ends = [value.mean for value in across if value], [value.mean for value in up if value]
    if groups and "capsize" in look:
        axis.errorbar(*ends, yerr=[value.std or 0.0 for value in up if value], **look)
    elif groups:
        axis.plot(*ends, **look)


# Dot charts: a large dot for a mean, small ones for its seeds, a diamond for the paper's number.
DOT: Look = {"linestyle": "none", "marker": "o", "markersize": 8}
SMALL_DOT: Look = DOT | {"markersize": 4, "alpha": 0.4}
DIAMOND: Look = DOT | {"marker": "D", "markersize": 6.5, "markerfacecolor": "none", "color": INK}
DOT_LEGEND: list[Look] = [
    DOT | {"color": INK, "label": "mean over seeds"},
    SMALL_DOT | {"color": INK, "label": "one seed"},
    DIAMOND | {"label": "the paper"},
]


def draw_dots(
    axis: Axes, height: float, values: Iterable[float], colour: str, paper: float | None = None
) -> None:
    """One line of a dot chart; values that a logarithm does not have are left out."""
    known = [value for value in values if math.isfinite(value) and value > 0]
    if known:
        small: Look = SMALL_DOT | {"color": colour, "markeredgewidth": 0, "zorder": 3}
        axis.plot(known, [height] * len(known), **small)
        large: Look = DOT | {"color": colour, "markeredgecolor": "white", "zorder": 4}
        axis.plot(statistics.fmean(known), height, **large)
    if paper is not None:
        axis.plot(paper, height, zorder=5, **DIAMOND)


# --- files ----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Drawing:
    """A figure, the name of its files and its caption.

    ``folded``: closed on the page at first; ``models``: the rows that it compares on samples.
    """

    name: str
    caption: str
    figure: Figure
    folded: bool = False
    models: tuple[str, ...] = ()


def save(drawing: Drawing, folder: Path) -> bytes:
    """Write PNG and PDF and return the PNG. No dates inside: equal numbers give equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    png = png_of(drawing.figure)
    (folder / f"{drawing.name}.png").write_bytes(png)
    drawing.figure.set_layout_engine("none")  # the layout is found, and costs more than drawing
    FigureCanvasPdf(drawing.figure)
    undated = {"CreationDate": None, "Producer": None, "Creator": None}
    with matplotlib.rc_context({"pdf.fonttype": 42}):  # text stays text
        drawing.figure.savefig(folder / f"{drawing.name}.pdf", format="pdf", metadata=undated)
    return png


def png_of(figure: Figure) -> bytes:
    """A figure as a PNG file."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, dpi=DPI, format="png", metadata={"Software": None})
    return buffer.getvalue()


def save_picture(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, PDF or SVG, by its ending."""
    if path.suffix not in PICTURES:
        raise UsageError(f"{path}: expected a name that ends in {', '.join(PICTURES)}")
    FigureCanvasAgg(figure)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=DPI, format=path.suffix[1:])
