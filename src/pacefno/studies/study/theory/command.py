"""``pacefno study theory``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pacefno.data import open_dataset
from pacefno.studies.cells import FOLDER, StudyFile
from pacefno.studies.commands import default_results, wide_console
from pacefno.studies.report.figures import save
from pacefno.studies.report.figures.theory import draw_theory
from pacefno.studies.study.options import FIGURES, Data, Figures, Results
from pacefno.studies.study.session import study_session
from pacefno.studies.study.sources import weights_of
from pacefno.studies.study.theory.measure import Effort, measure
from pacefno.studies.study.theory.verdict import notes, terms_table, verdict
from pacefno.training.commands import DEFAULT_DATA, dataset_folder
from pacefno.training.kinds import FIELDS
from pacefno.training.load import load_run
from pacefno.training.models import model_named


def theory_command(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.", show_default=False)],
    model: Annotated[str | None, typer.Option(help="Another row with the same weights, e.g. pace-tta, pace-analytic.")] = None,
    samples: Annotated[int, typer.Option(help="OOD test samples to take apart.", min=2)] = Effort.samples,
    derivatives: Annotated[int, typer.Option(help="Samples on which derivatives of the operator are measured.", min=1)] = 12,
    growth: Annotated[int, typer.Option(help="Samples on which the energy is probed.", min=1)] = 12,
    data: Data = DEFAULT_DATA,
    data_seed: Annotated[int, typer.Option(help="Seed of the dataset.")] = 42,
    results: Results = None,
    figures: Figures = FIGURES,
) -> None:
    """Take the error of a run apart: which term of the paper's theorem limits it, and so what to improve.

    Prints the canonical, input and terminal alignment errors, the constants K_C and L, the bound beside the actual error
    and on how many samples it holds; the commutation residual, the generalisation gap, and the energy along refinement
    with the corollary's bound. All of it is computed in float64. docs/studies.md defines every number.

    Example: pacefno study theory runs/burgers1d/pace-quick-seed42
    """
    with study_session():
        trained = load_run(run, model)
        if not trained.finished:
            raise ValueError(f"{run} is not finished: go on with pacefno train ... --resume, or name a finished run")
        config, problem = trained.config, trained.problem
        name = model or config.model
        folder = dataset_folder(data, config.problem, config.preset, data_seed)
        dataset = open_dataset(folder, verify=False)
        FIELDS.check_data(folder, config.problem, config.preset, data_seed)
        effort = Effort(samples=samples, derivatives=derivatives, growth=growth)
        console = wide_console()
        cell = {"preset": config.preset, "model": name, "seed": config.seed, "weights": weights_of(run)}
        cell |= measure(trained.model, model_named(name), problem, dataset, effort)
        file = StudyFile(
            (results or default_results(config.preset)) / FOLDER, "theory", problem.name, ("preset", "seed"), detail=name
        )
        file.add(cell)
        save(draw_theory(problem, cell), figures)
        title = f"{problem.title}, {model_named(name).title}, preset {config.preset}, seed {config.seed}"
        console.print(terms_table(cell, title))
        for line in notes(cell):
            console.print(line, highlight=False)
        console.print(f"[bold]{verdict(cell)}[/bold]", highlight=False)
        typer.echo(f"{file.path} holds every number.", err=True)
