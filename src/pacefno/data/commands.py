"""``pacefno data generate`` and ``pacefno data show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pacefno.console import plain_errors
from pacefno.data.errors import DatasetError
from pacefno.data.generate import generate
from pacefno.data.presets import SIZES
from pacefno.data.progress import console_progress
from pacefno.data.read import open_dataset
from pacefno.data.show import draw_samples, draw_spectra, show
from pacefno.equations import PROBLEMS, SolverError, problem_named
from pacefno.lock import FolderInUseError

data_app = typer.Typer(
    name="data",
    help="Make datasets and look at them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@data_app.command("generate")
def generate_command(
    problem: Annotated[str, typer.Argument(help=f"Which equation: {', '.join(PROBLEMS)}.", show_default=False)],
    preset: Annotated[str, typer.Option(help=f"How many samples, how fine: {', '.join(SIZES)}.")] = "quick",
    seed: Annotated[int, typer.Option(help="Other seeds give other samples; the same seed gives the same bytes.")] = 42,
    root: Annotated[Path, typer.Option(help="Folder under which datasets are kept.")] = Path("datasets"),
    workers: Annotated[int | None, typer.Option(help="Processes to use.", show_default="one per core", min=1)] = None,
    stationary: Annotated[
        bool, typer.Option("--stationary", help="Do not centre the samples: they then have no position of their own.")
    ] = False,
) -> None:
    """Solve an equation for many random initial states and store the solutions.

    Writes ROOT/PROBLEM/PRESET-seedSEED with four splits: train and validation
    on the coarse grid, test_id on the fine one, and test_ood: the same test
    samples, translated, boosted or rotated further than anything in training.

    An interrupted run loses little: give the same command again and it continues.

    Example: pacefno data generate burgers1d --preset smoke
    """
    with plain_errors(DatasetError, SolverError, FolderInUseError):
        chosen = problem_named(problem)
        folder = generate(chosen, preset, seed, root, stationary, workers, console_progress(Console(stderr=True)))
        typer.echo(f"{folder} is complete. Look at it with: pacefno data show {folder} --output samples.png")


@data_app.command("show")
def show_command(
    path: Annotated[Path, typer.Argument(help="The folder of a dataset, as 'generate' printed it.", show_default=False)],
    output: Annotated[Path | None, typer.Option(help="Also draw three samples and their moved twins (PNG).")] = None,
    spectra: Annotated[Path | None, typer.Option(help="Also draw energy spectra of inputs and outputs (PNG).")] = None,
) -> None:
    """Check every file of a dataset and print its shapes, ranges and alignment.

    Example: pacefno data show datasets/burgers1d/smoke-seed42 --output samples.png
    """
    with plain_errors(DatasetError, SolverError, FolderInUseError):
        dataset = open_dataset(path)
        show(dataset, Console())
        for target, draw in ((output, draw_samples), (spectra, draw_spectra)):
            if target is not None:
                draw(dataset, target)
                typer.echo(f"{target} written")
