"""``pacefno bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pacefno.console import DIVERGED, INTERRUPTED, failure, numbers, plain_errors, say
from pacefno.equations import BENCHMARKS, PROBLEMS, TRAJECTORY_PROBLEMS, benchmark_named
from pacefno.studies.bench import DATA_SEED, SEEDS, Places, missing_rows, plan, run_task
from pacefno.studies.board import Board
from pacefno.studies.report.collect import collect
from pacefno.studies.report.forecasts import collect_forecasts, forecast_terminal_table
from pacefno.studies.report.tables import terminal_table
from pacefno.training.commands import DEFAULT_DATA, FAILURES, prepare_data
from pacefno.training.forecasts import FORECASTS
from pacefno.training.kinds import kind_of
from pacefno.training.loop import DivergenceError, StopRequest
from pacefno.training.models import MODELS
from pacefno.training.presets import PRESETS, config_for
from pacefno.training.run import DEFAULT_RUNS

COMMITTED = Path("results")
TABLES = [name for name, problem in PROBLEMS.items() if problem.in_tables]


def default_results(preset: str) -> Path:
    """Only presets that mean something are kept beside the code."""
    return COMMITTED if preset in ("standard", "paper") else DEFAULT_RUNS / "results"


def bench_command(
    problem: Annotated[str, typer.Argument(help=f"all, or one of {', '.join(BENCHMARKS)}.", show_default=False)],
    preset: Annotated[str, typer.Option(help=f"How long and how large: {', '.join(PRESETS)}.")] = "standard",
    models: Annotated[
        str,
        typer.Option(
            help=f"Comma-separated rows: {', '.join(MODELS)}; of trajectories: {', '.join(FORECASTS)}.", show_default="all"
        ),
    ] = "",
    seeds: Annotated[str, typer.Option(help="Comma-separated seeds.")] = ",".join(map(str, SEEDS)),
    resume: Annotated[bool, typer.Option("--resume", help="Accepted for clarity: finished work is always kept.")] = False,
    data: Annotated[Path, typer.Option(help="Folder under which datasets are kept.")] = DEFAULT_DATA,
    runs: Annotated[Path, typer.Option(help="Folder under which trainings are kept.")] = DEFAULT_RUNS,
    results: Annotated[
        Path | None, typer.Option(help="Folder of the result files.", show_default="results, or runs/results for small presets")
    ] = None,
) -> None:
    """Make the table of a problem: generate the data, train every model, score every row.

    What is done is skipped and what was interrupted goes on, so the same command can be given again at any time, and the
    work can be split over machines by --models or --seeds: the rows merge in RESULTS/PROBLEM.json.

    Example: pacefno bench burgers1d --preset quick --models fno,fno-aug,pace --seeds 42
    """
    with plain_errors(*FAILURES):
        problems = TABLES if problem == "all" else [benchmark_named(problem).name]
        chosen = [name.strip() for name in models.split(",")] if models else []
        places = Places(data, runs, results or default_results(preset))
        tasks = plan(problems, preset, chosen, numbers(seeds, "--seeds"))
        for name in {task.problem: None for task in tasks if missing_rows(task, places)}:
            first = chosen[0] if chosen else next(iter(kind_of(name).models))
            prepare_data(config_for(name, first, preset, DATA_SEED), data, DATA_SEED)  # before the board takes the terminal
        with Board(tasks, {task: len(missing_rows(task, places)) for task in tasks}) as board:
            for task in tasks:
                if not missing_rows(task, places):
                    continue
                try:
                    for row in run_task(task, places, board.hooks(task)):
                        board.scored(task, row)
                except DivergenceError as error:
                    raise failure(error, DIVERGED) from None
                except (StopRequest, KeyboardInterrupt):
                    say("stopped: give the same command again to go on")
                    raise typer.Exit(INTERRUPTED) from None
                board.done(task)
        for name in problems:
            wide_console().print(_table(name, places.results, preset))


def _table(problem: str, results: Path, preset: str) -> Table:
    if problem in TRAJECTORY_PROBLEMS:
        return forecast_terminal_table(collect_forecasts([results], preset)[problem])
    return terminal_table(collect([results], preset)[problem])


def wide_console() -> Console:
    """Standard output; in a file or a pipe, wide enough for a table."""
    console = Console()
    return console if console.is_terminal else Console(width=160)
