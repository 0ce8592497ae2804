"""``pacefno study robustness``."""

from __future__ import annotations

from typing import Annotated

import torch
import typer
from rich.table import Table

from pacefno.console import numbers
from pacefno.studies.cells import Cell, StudyFile
from pacefno.studies.commands import default_results, wide_console
from pacefno.studies.report.collect import statistic
from pacefno.studies.report.figures import save
from pacefno.studies.report.figures.robustness import draw_robustness
from pacefno.studies.report.figures.style import title_of
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
from pacefno.studies.study.robustness.measure import LEVELS, Corruption, corruptions, measure, rank_correlation
from pacefno.studies.study.session import study_session, tracked
from pacefno.studies.study.sources import Scope, Source, find_sources, names, scope_of
from pacefno.training.commands import DEFAULT_DATA
from pacefno.training.models import MODELS
from pacefno.training.run import DEFAULT_RUNS

DEFAULT_MODELS = "fno,fno-aug,fno-nogrid-centred,pace,pace-tta,pace-cnn,pace-oracle,pace-analytic"
KEY = ("preset", "model", "seed", "kind", "level")


def robustness_command(
    problem: ProblemName,
    preset: Preset = "standard",
    models: Annotated[str, typer.Option(help=f"Comma-separated rows: {', '.join(MODELS)}.")] = DEFAULT_MODELS,
    seeds: Seeds = ALL_SEEDS,
    kinds: Annotated[
        str, typer.Option(help=f"Comma-separated kinds of trouble: {', '.join(LEVELS)}.", show_default="all")
    ] = "",
    samples: Annotated[int, typer.Option(help="OOD test samples.", min=2)] = 20,
    data: Data = DEFAULT_DATA,
    runs: Runs = DEFAULT_RUNS,
    results: Results = None,
    figures: Figures = FIGURES,
) -> None:
    """OOD error against noise on the input, missing points, and a force that breaks the symmetry; the confidence beside it.

    noise: white, its rms relative to that of the field. missing: a share of points at random, filled with the band-limited
    field that fits the rest best. forcing: the samples are solved again with a weak steady force that depends on position.
    Works on finished trainings; what is done is skipped.

    Example: pacefno study robustness burgers1d --preset quick --models fno-aug,pace --seeds 42
    """
    with study_session():
        scope = scope_of(problem, preset, data, runs, results or default_results(preset))
        sources = find_sources(scope, names(models, list(MODELS), "--models"), numbers(seeds, "--seeds"))
        file = study_robustness(scope, sources, names(kinds, list(LEVELS), "--kinds"), samples)
        cells = [cell for cell in file.read() if (cell["preset"], cell["samples"]) == (preset, samples)]
        save(draw_robustness(scope.problem, cells), figures)
        for kind in dict.fromkeys(cell["kind"] for cell in cells):
            wide_console().print(robustness_table(kind, [cell for cell in cells if cell["kind"] == kind]))
        typer.echo(f"{file.path} holds every cell.", err=True)


def study_robustness(scope: Scope, sources: list[Source], kinds: list[str], count: int) -> StudyFile:
    """Level by level: the corrupted samples are made once for all models."""
    file = StudyFile(scope.folder, "robustness", scope.problem.name, KEY)
    open_ = {
        trouble: [source for source in sources if not file.has(_identity(scope, source, trouble, count))]
        for trouble in corruptions(kinds)
    }
    todo = {trouble: missing for trouble, missing in open_.items() if missing}
    if not todo:
        return file
    dataset = scope.dataset()
    moved = few_samples(dataset, "test_ood", count)
    for trouble, missing in tracked("robustness", todo.items(), len(todo)):
        corrupted = trouble.apply(scope.problem, dataset, moved)
        for source in missing:
            cell = measure(source.load().model, source.spec, scope.problem, corrupted)
            file.add(_identity(scope, source, trouble, count) | cell)
    return file


def _identity(scope: Scope, source: Source, trouble: Corruption, count: int) -> Cell:
    who = {"preset": scope.preset, "model": source.row, "seed": source.seed}
    return who | {"kind": trouble.kind, "level": trouble.level, "weights": source.weights, "samples": count}


def robustness_table(kind: str, cells: list[Cell]) -> Table:
    """Errors over levels; last, how well confidence orders the errors of all levels together (-1 is best)."""
    levels = sorted({cell["level"] for cell in cells})
    table = Table(title=f"OOD error, canonical frame, against {kind}", title_justify="left")
    for title in ("model", *(f"{level:g}" for level in levels), "confidence, first to last", "rank correlation"):
        table.add_column(title, justify="left" if title == "model" else "right", no_wrap=True)
    for model in dict.fromkeys(cell["model"] for cell in cells):
        own = [cell for cell in cells if cell["model"] == model]
        found = [statistic([cell for cell in own if cell["level"] == level], "error") for level in levels]
        ends = [statistic([cell for cell in own if cell["level"] == level], "confidence") for level in (levels[0], levels[-1])]
        sure = "" if None in ends else f"{ends[0]} to {ends[1]}"
        rank = pooled_rank(own)
        table.add_row(title_of(model), *("" if one is None else str(one) for one in found), sure, rank)
    return table


def pooled_rank(cells: list[Cell]) -> str:
    """The rank correlation of confidence and error over all samples and levels of a model."""
    known = [cell for cell in cells if cell["confidences"] is not None]
    if not known:
        return ""
    confidence = torch.tensor([value for cell in known for value in cell["confidences"]])
    error = torch.tensor([value for cell in known for value in cell["errors"]])
    rank = rank_correlation(confidence, error)
    return "" if rank is None else f"{rank:+.2f}"
