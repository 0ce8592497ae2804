"""``pacefno study tta``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from pacefno.console import numbers
from pacefno.studies.cells import Cell, StudyFile
from pacefno.studies.commands import default_results, wide_console
from pacefno.studies.report.collect import statistic
from pacefno.studies.report.figures import save
from pacefno.studies.report.figures.style import title_of
from pacefno.studies.report.figures.tta import draw_tta
from pacefno.studies.report.trained import few_samples
from pacefno.studies.study.options import (
    ALL_SEEDS,
    FIGURES,
    Data,
    Figures,
    Preset,
    ProblemName,
    Results,
    Runs,
    Seeds,
)
from pacefno.studies.study.session import study_session, tracked
from pacefno.studies.study.sources import Scope, Source, find_sources, names, scope_of
from pacefno.studies.study.tta.measure import measure
from pacefno.studies.study.tta.settings import Setting, settings_for
from pacefno.training.commands import DEFAULT_DATA
from pacefno.training.run import DEFAULT_RUNS

MODELS = ("pace", "pace-free", "pace-cnn")
KEY = ("preset", "model", "seed", "refiner", "steps", "rate", "weight_decay")


def tta_command(
    problem: ProblemName,
    preset: Preset = "standard",
    models: Annotated[str, typer.Option(help=f"Comma-separated rows: {', '.join(MODELS)}.", show_default="all")] = "",
    seeds: Seeds = ALL_SEEDS,
    samples: Annotated[int, typer.Option(help="OOD test samples to refine.", min=2)] = 40,
    data: Data = DEFAULT_DATA,
    runs: Runs = DEFAULT_RUNS,
    results: Results = None,
    figures: Figures = FIGURES,
) -> None:
    """OOD error over step counts and rates of test-time adaptation, with its cost: Adam as in the paper, and Gauss-Newton.

    Works on finished trainings. The frame of 'pace' is self-consistent from the start, so refinement has nothing to do
    there; 'pace-cnn' (the paper's estimator) and 'pace-free' are the ones that can gain. What is done is skipped, so an
    interrupted study goes on when the command is given again.

    Example: pacefno study tta burgers2d --preset quick --models pace-cnn --seeds 42
    """
    with study_session():
        scope = scope_of(problem, preset, data, runs, results or default_results(preset))
        sources = find_sources(scope, names(models, MODELS, "--models"), numbers(seeds, "--seeds"))
        file = study_tta(scope, sources, samples)
        cells = [cell for cell in file.read() if (cell["preset"], cell["samples"]) == (preset, samples)]
        save(draw_tta(scope.problem, cells), figures)
        for model in dict.fromkeys(cell["model"] for cell in cells):
            wide_console().print(tta_table(model, cells))
        typer.echo(f"{file.path} holds every cell.", err=True)


def study_tta(scope: Scope, sources: list[Source], count: int) -> StudyFile:
    """Measure every setting that is missing, cell by cell."""
    file = StudyFile(scope.folder, "tta", scope.problem.name, KEY)
    settings = settings_for(scope.problem.name)
    open_ = {source: [one for one in settings if not file.has(_identity(scope, source, one, count))] for source in sources}
    if not any(open_.values()):
        return file
    moved = few_samples(scope.dataset(), "test_ood", count)
    for source, missing in open_.items():
        model = source.load().model if missing else None
        for setting in tracked(f"{source.row} seed {source.seed}", missing, len(missing)):
            assert model is not None
            file.add(_identity(scope, source, setting, count) | measure(model, scope.problem, moved, setting))
    return file


def _identity(scope: Scope, source: Source, setting: Setting, count: int) -> Cell:
    """What a cell is of: its key, the weights and the number of samples."""
    what = {"refiner": setting.refiner, "steps": setting.steps, "rate": setting.rate, "weight_decay": setting.weight_decay}
    who = {"preset": scope.preset, "model": source.row, "seed": source.seed}
    return who | what | {"weights": source.weights, "samples": count}


def tta_table(model: str, cells: list[Cell]) -> Table:
    """One line a setting of one model: errors with their deviation over the seeds, the rest as means."""
    table = Table(title=f"Test-time adaptation, OOD: {title_of(model)}", title_justify="left")
    means = ("energy_after", "frame_error", "astray", "evaluations", "seconds")
    for title in ("refinement", "OOD", "OOD, canonical", "energy after", "frame error", "astray", "evaluations", "s", "seeds"):
        table.add_column(title, justify="left" if title == "refinement" else "right", no_wrap=True)
    groups: dict[Setting, list[Cell]] = {}
    for cell in sorted((cell for cell in cells if cell["model"] == model), key=lambda cell: cell["refiner"] != "none"):
        setting = Setting(cell["refiner"], cell["steps"], cell["rate"], cell["weight_decay"])
        groups.setdefault(setting, []).append(cell)
    for setting, group in groups.items():
        errors = [statistic(group, key) for key in ("ood_error", "ood_error_canonical")]
        rest = [statistic(group, key) for key in means]
        texts = ["" if one is None else f"{one.mean:.3g}" for one in rest]
        table.add_row(setting.title, *("" if one is None else str(one) for one in errors), *texts, str(len(group)))
    return table
