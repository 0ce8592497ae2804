"""The figures of a report, as :class:`Drawing` values: nothing is written here."""

from __future__ import annotations

from pacefno.studies.report.figures.canonical import draw_canonical
from pacefno.studies.report.figures.curves import draw_spectra, draw_sweep, draw_training
from pacefno.studies.report.figures.overview import draw_overview
from pacefno.studies.report.figures.predictions import draw_predictions
from pacefno.studies.report.figures.style import Drawing, save

__all__ = [
    "Drawing",
    "draw_canonical",
    "draw_overview",
    "draw_predictions",
    "draw_spectra",
    "draw_sweep",
    "draw_training",
    "save",
]
