"""``pacefno study ablation``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from pacefno.console import numbers, say
from pacefno.studies.cells import Cell, StudyFile
from pacefno.studies.commands import default_results, wide_console
from pacefno.studies.report.collect import statistic
from pacefno.studies.report.figures import save
from pacefno.studies.report.figures.ablation import draw_ablation
from pacefno.studies.study.ablation.measure import ablation_file, is_done, measure, trained
from pacefno.studies.study.ablation.rows import AblationRow, rows_for
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
from pacefno.studies.study.session import study_session
from pacefno.studies.study.sources import Scope, names, scope_of
from pacefno.training.commands import DEFAULT_DATA
from pacefno.training.run import DEFAULT_RUNS


def ablation_command(
    problem: ProblemName,
    preset: Preset = "standard",
    rows: Annotated[str, typer.Option(help="Comma-separated rows; 'pacefno study ablation PROBLEM --list' names them.")] = "",
    seeds: Seeds = ALL_SEEDS,
    show: Annotated[bool, typer.Option("--list", help="Only list the rows and what each of them is.")] = False,
    data: Data = DEFAULT_DATA,
    runs: Runs = DEFAULT_RUNS,
    results: Results = None,
    figures: Figures = FIGURES,
) -> None:
    """What each part of the method earns: one row per part that is left out, frame that is used, and loss term.

    Rows that only change inference share the trainings of the tables; the others are trained here, with checkpoints. What is
    done is skipped and what was interrupted goes on when the command is given again. Nothing is clipped.

    Example: pacefno study ablation burgers1d --preset quick --seeds 42

    Example: pacefno study ablation burgers2d --rows full,one-shot,no-terminal,no-canonicalisation
    """
    with study_session():
        scope = scope_of(problem, preset, data, runs, results or default_results(preset))
        known = {row.name: row for row in rows_for(scope.problem)}
        chosen = [known[name] for name in names(rows, list(known), "--rows")]
        if show:
            wide_console().print(definitions(chosen))
            return
        file = study_ablation(scope, chosen, numbers(seeds, "--seeds"))
        cells = [cell for cell in file.read() if cell["preset"] == preset]
        save(draw_ablation(scope.problem, cells), figures)
        wide_console().print(ablation_table(scope, cells))
        typer.echo(f"{file.path} holds every row.", err=True)


def study_ablation(scope: Scope, rows: list[AblationRow], seeds: list[int]) -> StudyFile:
    """Train and score what is missing, seed by seed, so that a table with one seed is complete before the next begins."""
    file = ablation_file(scope)
    missing = [(seed, row) for seed in seeds for row in rows if not is_done(scope, file, row, seed)]
    if not missing:
        return file
    dataset = scope.dataset()
    for done, (seed, row) in enumerate(missing):
        run = trained(scope, row, seed, dataset)
        cell = measure(scope, row, seed, run, dataset)
        file.add(cell)
        say(
            f"{row.name} seed {seed}: ID {cell['id_error']:.4f}, OOD {cell['ood_error']:.4f}, "
            f"canonical {cell['ood_error_canonical']:.4f}; {done + 1} of {len(missing)} rows"
        )
    return file


def ablation_table(scope: Scope, cells: list[Cell]) -> Table:
    """The table of the paper with more rows, its numbers beside ours."""
    table = Table(title=f"{scope.problem.title}, preset {scope.preset}: ablation", title_justify="left")
    keys = {"OOD, canonical": "ood_error_canonical", "OOD": "ood_error", "ID": "id_error", "equivariance": "equivariance_error"}
    for title in ("row", *keys, "paper OOD", "paper ID", "seeds"):
        table.add_column(title, justify="left" if title == "row" else "right", no_wrap=True)
    groups: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell["place"]):
        groups.setdefault(cell["row"], []).append(cell)
    for group in groups.values():
        found = [statistic(group, key) for key in keys.values()]
        own, ood = group[0]["paper"] or (None, None)
        theirs = ["" if value is None else f"{value:.4g}" for value in (ood, own)]
        table.add_row(group[0]["title"], *("–" if one is None else str(one) for one in found), *theirs, str(len(group)))
    return table


def definitions(rows: list[AblationRow]) -> Table:
    """What each row is."""
    table = Table(title="Rows of the ablation", title_justify="left")
    for title in ("name", "training", "inference", "what it is"):
        table.add_column(title)
    for row in rows:
        loss = ", ".join(f"{name} {value:g}" for name, value in row.loss.items() if isinstance(value, float) and value)
        table.add_row(row.name, row.training, row.inference, f"{row.meaning}{f' Terms: L2, {loss}.' if loss else ''}")
    return table
