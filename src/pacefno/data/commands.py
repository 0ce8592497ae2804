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
from pacefno.data.show_trajectories import holds_trajectories, show_trajectories
from pacefno.data.trajectories import generate_trajectories
from pacefno.equations import BENCHMARKS, Problem, SolverError, benchmark_named
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
    problem: Annotated[str, typer.Argument(help=f"Which equation: {', '.join(BENCHMARKS)}.", show_default=False)],
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
    For kdv, kdv_easy and kuramoto_sivashinsky it writes whole trajectories
    instead, one file per split in the layout of LPSDA.

    An interrupted run loses little: give the same command again and it continues.

    Example: pacefno data generate burgers1d --preset smoke
    """
    with plain_errors(DatasetError, SolverError, FolderInUseError):
        chosen, progress = benchmark_named(problem), console_progress(Console(stderr=True))
        if isinstance(chosen, Problem):
            folder = generate(chosen, preset, seed, root, stationary, workers, progress)
            typer.echo(f"{folder} is complete. Look at it with: pacefno data show {folder} --output samples.png")
        elif stationary:
            raise ValueError(f"--stationary: the trajectories of {problem} are never centred: leave it out")
        else:
            folder = generate_trajectories(chosen, preset, seed, root, workers, progress)
            typer.echo(f"{folder} is complete. Look at it with: pacefno data show {folder}")


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
        if holds_trajectories(path):
            if output or spectra:
                raise ValueError(
                    f"{path} holds trajectories, and pictures are drawn of fields only: leave out --output, --spectra"
                )
            show_trajectories(path, Console())
            return
        dataset = open_dataset(path)
        show(dataset, Console())
        for target, draw in ((output, draw_samples), (spectra, draw_spectra)):
            if target is not None:
                draw(dataset, target)
                typer.echo(f"{target} written")
