"""The report in a folder: the page, the tables as Markdown and LaTeX, the figures as PNG and PDF."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pacefno.durable import make_folder, write_text_atomically
from pacefno.studies.report.collect import Table, Tables
from pacefno.studies.report.figures import (
    Drawing,
    draw_canonical,
    draw_overview,
    draw_predictions,
    draw_spectra,
    draw_sweep,
    draw_training,
    save,
)
from pacefno.studies.report.figures.film import draw_film
from pacefno.studies.report.figures.over_time import draw_over_frames
from pacefno.studies.report.forecast_section import ForecastSection, draw_forecasts
from pacefno.studies.report.forecasts import ForecastTables, forecast_latex, forecast_markdown
from pacefno.studies.report.page import Picture, Section, render_page
from pacefno.studies.report.studies import study_drawings
from pacefno.studies.report.sweep import cached_sweep
from pacefno.studies.report.tables import latex_table, markdown_table
from pacefno.studies.report.trained import Trained, find_trained, predictions, training_of
from pacefno.training.log import read_metric_log
from pacefno.training.models import MODELS

PAGE = "report.html"
Say = Callable[[str], None]


def write_report(
    tables: Tables,
    output: Path,
    runs: Path,
    data: Path,
    say: Say = lambda text: None,
    studies: Sequence[Path] = (),
    forecasts: ForecastTables | None = None,
) -> Path:
    """Write everything and return the path of the page. Figures of fields need ``runs`` and ``data``; else a note says so.

    ``studies`` are folders of results whose studies are shown too, ``forecasts`` the tables on trajectories.
    """
    write_tables(tables, output / "tables", forecasts or {})
    overview = _picture(draw_overview(tables), output / "figures") if tables else None
    sections = []
    for table in tables.values():
        drawings, notes = draw_all(table, runs, data, say)
        drawings += study_drawings(studies, table.problem, table.preset)
        sections.append(Section(table, [_picture(drawing, output / "figures") for drawing in drawings], notes))
    rolled = []
    for forecast in (forecasts or {}).values():
        drawings, notes = draw_forecasts(forecast, runs, data, say)
        rolled.append(ForecastSection(forecast, [_picture(drawing, output / "figures") for drawing in drawings], notes))
    page = output / PAGE
    write_text_atomically(page, render_page(sections, overview, rolled))
    return page


def write_tables(tables: Tables, folder: Path, forecasts: ForecastTables) -> None:
    make_folder(folder)
    for name, forecast in forecasts.items():
        write_text_atomically(folder / f"{name}.md", forecast_markdown(forecast))
        write_text_atomically(folder / f"{name}.tex", forecast_latex(forecast))
    for name, table in tables.items():
        write_text_atomically(folder / f"{name}.md", markdown_table(table))
        write_text_atomically(folder / f"{name}.tex", latex_table(table))


def draw_all(table: Table, runs: Path, data: Path, say: Say) -> tuple[list[Drawing], list[str]]:
    """The figures of one problem that can be made, and what is missing for the rest."""
    drawings, notes = [], []
    trained = find_trained(table, runs, data)
    if isinstance(trained, str):
        notes.append(f"Figures of predictions, frames, sweeps and spectra are left out: {trained}.")
    else:
        missing = [line.title for line in table.lines if line.model not in trained.runs]
        if missing:
            notes.append(
                f"Not in the figures, because {runs} has no finished training of them that can be loaded: {', '.join(missing)}."
            )
        drawings += draw_trained(trained, say)
    if table.problem.frames_out > 1:
        drawings.append(draw_over_frames(table.problem, {line.model: line.rows for line in table.lines if line.spec}))
    logs = training_logs(table, runs)
    if logs:
        drawings.append(draw_training(table.problem, logs))
    return drawings, notes


def draw_trained(trained: Trained, say: Say) -> list[Drawing]:
    """Everything that is computed from the models themselves."""
    problem = trained.problem
    say(f"{problem.title}: predictions of {len(trained.runs)} models")
    found = predictions(trained)
    drawings = draw_predictions(problem, trained.moved, found)
    if problem.frames_out > 1:
        drawings.append(draw_film(problem, trained.moved, found))
    pace = next((one for one in found if one.name == "pace"), None)
    if pace is not None:
        drawings.append(draw_canonical(problem, trained.plain, trained.moved, pace))
    sweeps = {}
    for row in trained.rows():
        say(f"{problem.title}: error against the size of the motion, {row.name}")
        sweeps[row.name] = cached_sweep(row, trained)
    return [*drawings, draw_sweep(problem, sweeps), draw_spectra(problem, trained.moved.target, found)]


def training_logs(table: Table, runs: Path) -> dict[str, list[list[dict[str, object]]]]:
    """The metric logs of every training behind a table, by model."""
    logs: dict[str, list[list[dict[str, object]]]] = {}
    for line in table.lines:
        if line.spec is None or line.spec.trained_as is not None:
            continue  # its curve is that of the row whose weights it uses
        for seed in line.seeds:
            folder = training_of(table, line, seed, runs)
            log = [] if folder is None else read_metric_log(folder)
            if log:
                logs.setdefault(line.model, []).append(log)
    return {name: logs[name] for name in MODELS if name in logs}


def _picture(drawing: Drawing, folder: Path) -> Picture:
    return Picture(drawing.name, drawing.caption, save(drawing, folder), drawing.folded)
