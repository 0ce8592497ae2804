"""``pacefno study frames``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from pacefno.console import numbers
from pacefno.studies.cells import Cell, StudyFile
from pacefno.studies.commands import default_results, wide_console
from pacefno.studies.report.figures import save
from pacefno.studies.report.figures.frames import draw_frames
from pacefno.studies.report.figures.style import title_of
from pacefno.studies.study.frames.measure import QUANTILES, measure
from pacefno.studies.study.options import ALL_SEEDS, FIGURES, Data, Figures, Preset, ProblemName, Results, Runs, Seeds
from pacefno.studies.study.session import study_session
from pacefno.studies.study.sources import Scope, Source, find_sources, names, scope_of
from pacefno.training.commands import DEFAULT_DATA
from pacefno.training.run import DEFAULT_RUNS

MODELS = ("pace", "pace-analytic", "pace-free", "pace-cnn")
KEY = ("preset", "model", "seed", "elements")


def frames_command(
    problem: ProblemName,
    preset: Preset = "standard",
    models: Annotated[str, typer.Option(help=f"Comma-separated rows: {', '.join(MODELS)}.", show_default="all")] = "",
    seeds: Seeds = ALL_SEEDS,
    elements: Annotated[int, typer.Option(help="How many random elements of the whole group.", min=20)] = 1000,
    data: Data = DEFAULT_DATA,
    runs: Runs = DEFAULT_RUNS,
    results: Results = None,
    figures: Figures = FIGURES,
) -> None:
    """How well the frame is found over the whole group, not only in the test shell, before and after refinement.

    Canonical test fields are moved by random elements: every shift, every angle, velocities up to 1. A frame has gone
    astray when the field it pulls back is more than 10 % off. Works on finished trainings; what is done is skipped.

    Example: pacefno study frames navier_stokes_literal --models pace --seeds 42
    """
    with study_session():
        scope = scope_of(problem, preset, data, runs, results or default_results(preset))
        sources = find_sources(scope, names(models, MODELS, "--models"), numbers(seeds, "--seeds"))
        file = study_frames(scope, sources, elements)
        cells = [cell for cell in file.read() if cell["preset"] == preset and cell["elements"] == elements]
        save(draw_frames(scope.problem, cells), figures)
        wide_console().print(frames_table(cells))
        typer.echo(f"{file.path} holds every cell.", err=True)


def study_frames(scope: Scope, sources: list[Source], elements: int) -> StudyFile:
    """Measure every model that is missing."""
    file = StudyFile(scope.folder, "frames", scope.problem.name, KEY)
    missing = [source for source in sources if not file.has(_identity(scope, source, elements))]
    if not missing:
        return file
    fields = scope.dataset().load("test_id", "ood").input
    for source in missing:
        title = f"{source.row} seed {source.seed}"
        found = measure(title, source.load().model, scope.problem, fields, elements, source.seed)
        file.add(_identity(scope, source, elements) | found)
    return file


def _identity(scope: Scope, source: Source, elements: int) -> Cell:
    who = {"preset": scope.preset, "model": source.row, "seed": source.seed}
    return who | {"weights": source.weights, "elements": elements}


def frames_table(cells: list[Cell]) -> Table:
    """One line for each model and seed, once one-shot and once refined."""
    table = Table(title="Frames over the whole group", title_justify="left")
    coordinates = list(cells[0]["one_shot"]["frame_error"])
    shares = ", ".join(f"{100 * q:g} %" for q in QUANTILES)
    for title in ("model", "seed", "frame", *coordinates, "pulled-back field off", "astray", "ms a sample"):
        table.add_column(title, justify="left" if title in ("model", "frame") else "right", no_wrap=True)
    table.caption = f"Errors: quantiles {shares}."
    for cell in cells:
        for name in ("one_shot", "refined"):
            part = cell[name]
            errors = [_quantiles(part["frame_error"][one]) for one in coordinates]
            table.add_row(
                title_of(cell["model"]),
                str(cell["seed"]),
                name.replace("_", "-"),
                *errors,
                _quantiles(part["field_error"]),
                f"{100 * part['astray']:.1f} %",
                f"{1000 * cell['seconds'][name]:.1f}",
            )
    return table


def _quantiles(values: list[float]) -> str:
    return " ".join(f"{value:.0e}" for value in values)
