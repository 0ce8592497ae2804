"""``pacefno train``, ``evaluate`` and ``predict``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pacefno.console import DIVERGED, INTERRUPTED, failure, is_first_process, plain_errors, say
from pacefno.data import DatasetError
from pacefno.equations import BENCHMARKS, SolverError
from pacefno.lock import FolderInUseError
from pacefno.training.config import RunConfig, with_overrides
from pacefno.training.forecasts import FORECASTS
from pacefno.training.kinds import kind_of
from pacefno.training.load import config_of
from pacefno.training.loop import DivergenceError, StopRequest
from pacefno.training.models import MODELS
from pacefno.training.predict import predict_file
from pacefno.training.presets import PRESETS, config_for
from pacefno.training.progress import training_progress
from pacefno.training.run import DEFAULT_RUNS, RunExistsError, check_settings, check_trainable, is_finished, run_folder, train
from pacefno.training.store import CheckpointError

DEFAULT_DATA = Path("datasets")
FAILURES = (DatasetError, SolverError, CheckpointError, FolderInUseError, RunExistsError)
TRAINABLE = [name for name, spec in MODELS.items() if spec.trained_as is None]
Problem = Annotated[str, typer.Argument(help=f"Which equation: {', '.join(BENCHMARKS)}.", show_default=False)]


def dataset_folder(root: Path, problem: str, preset: str, seed: int) -> Path:
    """Where ``pacefno data generate`` puts the dataset of these names."""
    return kind_of(problem).folder(root, problem, preset, seed)


def prepare_data(config: RunConfig, root: Path, data_seed: int) -> Path:
    """The dataset of a run; made first (or finished) where it is missing."""
    kind = kind_of(config.problem)
    folder = dataset_folder(root, config.problem, config.preset, data_seed)
    while not is_first_process() and not kind.is_generated(folder, config.problem):
        time.sleep(1)  # the first process of a group makes it
    if not kind.is_generated(folder, config.problem):
        say(f"{folder} does not exist yet: generating it")
        kind.generate(config.problem, config.preset, data_seed, root)
    kind.check_data(folder, config.problem, config.preset, data_seed)
    return folder


def train_command(
    problem: Problem,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"What to train: {', '.join(TRAINABLE)}; on trajectories {', '.join(FORECASTS)}.",
            show_default="pace, or pace-20",
        ),
    ] = None,
    preset: Annotated[str, typer.Option(help=f"How long and how large: {', '.join(PRESETS)}.")] = "quick",
    seed: Annotated[int, typer.Option(help="Seed of the weights and of the order of samples.")] = 42,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run (or begin, if there is none).")
    ] = False,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one setting, e.g. --set schedule.epochs=50. May be repeated.", metavar="KEY=VALUE"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of this run.", show_default="runs/PROBLEM/MODEL-PRESET-seedSEED")
    ] = None,
    data: Annotated[
        Path, typer.Option(help="Folder under which datasets are kept; a missing one is generated.")
    ] = DEFAULT_DATA,
    data_seed: Annotated[int, typer.Option(help="Seed of the dataset.")] = 42,
) -> None:
    """Train a model on an equation, with checkpoints from which an interrupted run goes on.

    The run folder then holds the best weights by validation error (final/), the settings (config.json) and one line
    of metrics per epoch (metrics.jsonl). Ctrl-C finishes the epoch and saves it. Exit codes: 2 wrong input, 1 something
    failed, 3 the training diverged, 130 interrupted.

    Example: pacefno train burgers1d --model pace --preset quick
    """
    with plain_errors(*FAILURES):
        chosen = model or kind_of(problem).usual
        config = with_overrides(config_for(problem, chosen, preset, seed), assignments or [])
        folder = out or run_folder(DEFAULT_RUNS, config)
        check_trainable(config)
        if resume and is_finished(folder):
            check_settings(folder, config)
            say(f"{folder} is finished already: pacefno evaluate {folder}")
            return
        dataset = prepare_data(config, data, data_seed)
        with training_progress(config) as hooks:
            try:
                progress = train(config, dataset, folder, resume=resume, hooks=hooks)
            except DivergenceError as error:
                raise failure(error, DIVERGED) from None
            except (StopRequest, KeyboardInterrupt) as error:
                say(f"{error or 'interrupted'}: go on with the same command and --resume")
                raise typer.Exit(INTERRUPTED) from None
        say(f"validation error {progress.best_error:.4f} (epoch {progress.best_epoch}), {progress.seconds:.0f} s of training")
        typer.echo(f"{folder} is finished. Score it with: pacefno evaluate {folder}")


def evaluate_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)],
    model: Annotated[
        str | None, typer.Option(help="Score another row with the same weights, e.g. pace-tta, pace-oracle, pace-analytic.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder under which datasets are kept.")] = DEFAULT_DATA,
    data_seed: Annotated[int, typer.Option(help="Seed of the dataset.")] = 42,
) -> None:
    """Score a trained model in and out of distribution and print the result as JSON.

    id_error: held-out samples in the canonical frame, on the training grid; id_error_fine: on the finer grid.
    ood_error: the same samples moved beyond the training range, on the finer grid; ood_error_canonical: measured after
    removing the true frame, so that the norm of a boost does not flatter it. Of trajectories: nmse and ood_nmse, the sums
    over 100 predicted frames of their relative squared errors.

    Example: pacefno evaluate runs/burgers1d/pace-quick-seed42
    """
    with plain_errors(*FAILURES):
        config = config_of(run)
        kind = kind_of(config.problem)
        folder = dataset_folder(data, config.problem, config.preset, data_seed)
        kind.check_data(folder, config.problem, config.preset, data_seed)
        typer.echo(json.dumps(kind.score(run, folder, model or config.model), indent=2))


def predict_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)],
    source: Annotated[
        Path, typer.Argument(help="Fields (N, C, *grid): .h5, .npy or .npz.", metavar="INPUT", show_default=False)
    ],
    target: Annotated[Path, typer.Argument(help="Where to write: .h5, .npy or .npz.", metavar="OUTPUT", show_default=False)],
    model: Annotated[str | None, typer.Option(help="Predict as another row with the same weights, e.g. pace-tta.")] = None,
    name: Annotated[str, typer.Option(help="Name of the array in an .h5 or .npz file.")] = "input",
) -> None:
    """Apply a trained model to fields of your own, at any resolution that holds its modes.

    The grid is periodic without the end point: point i of n lies at i/n. An .h5 or .npz file may carry the axes (x, y)
    and a horizon; they are checked. The output holds prediction, frame (the estimated coordinates) and confidence; an
    .npy file has room for the prediction only.

    Example: pacefno predict runs/burgers1d/pace-quick-seed42 fields.npy predictions.npz
    """
    with plain_errors(*FAILURES):
        with Console(stderr=True).status("predicting"):
            count = predict_file(run, source, target, model=model, name=name)
        typer.echo(f"{count} predictions written to {target}")
