"""``pacefno data``, ``train``, ``evaluate`` and ``predict``."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacefno.cli import _console
from pacefno.cli._console import INTERRUPTED, App, Display, plain_errors, say, wide_console
from pacefno.cli._runs import (
    DATASETS,
    NAMES,
    ArrayName,
    BenchmarkName,
    DataFolder,
    DataSeed,
    ModelFolder,
    OperatorClass,
    PresetName,
    RunFolder,
    data_of_run,
    run_labels,
    score_own_run,
    warn_if_changed,
)
from pacefno.errors import UsageError
from pacefno.paper.rows import TRAJECTORY_ROWS
from pacefno.train.rows import trainable

if TYPE_CHECKING:
    from torch import Tensor

    from pacefno.data.samples import Source
    from pacefno.pace import PACE
    from pacefno.train.config import RunConfig


def import_modules(names: list[str]) -> None:
    """Import modules of the user's, which register what they have; hints then repeat the option."""
    _console.program = " ".join(["pacefno", *(f"--import {name}" for name in names)])
    if names:
        sys.path.insert(0, os.getcwd())
    with plain_errors():
        for name in names:
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                raise UsageError(f"--import {name}: there is no such module here or on the path")
            importlib.import_module(name)


data_app = App(name="data", help="Make datasets and look at them.", no_args_is_help=True)


@data_app.command("generate")
def generate_command(
    benchmark: BenchmarkName,
    preset: PresetName = "quick",
    seed: Annotated[int, typer.Option(help="Another seed gives other samples.")] = 42,
    root: Annotated[Path, typer.Option(help="Folder under which datasets are kept.")] = DATASETS,
    workers: Annotated[
        int | None, typer.Option(help="Processes to use.", show_default="one per core", min=1)
    ] = None,
    stationary: Annotated[
        bool,
        typer.Option("--stationary", help="Do not centre the samples: they then have no position."),
    ] = False,
) -> None:
    """Solve an equation for many random initial states and store the solutions.

    Writes ROOT/BENCHMARK/PRESET-seedSEED with one file per split: train and validation on the
    coarse grid, test_id on the fine one, and test_ood, the same test samples moved further than
    anything in training. For kdv, kdv_easy and kuramoto_sivashinsky it writes whole trajectories in
    the layout of LPSDA. Interrupted? Give the same command again and it continues.

    Example: pacefno data generate burgers1d --preset smoke
    """
    with plain_errors():
        from pacefno.data import generate
        from pacefno.paper.benchmarks import benchmark_named
        from pacefno.paper.presets import data_preset

        recipe, made = benchmark_named(benchmark).recipe, data_preset(preset)
        if made != preset:
            say(f"the preset {preset} trains on the samples of {made}")
        with Display(f"{benchmark} {made}") as display:
            folder = generate(
                recipe,
                made,
                seed,
                root,
                stationary=stationary,
                workers=workers,
                on_progress=display,
            )
        typer.echo(f"{folder} is complete. Look at it with: {_console.program} data show {folder}")


@data_app.command("show")
def show_command(
    folder: Annotated[Path, typer.Argument(help="The folder of a dataset.", show_default=False)],
    output: Annotated[Path | None, typer.Option(help="Also draw three samples (PNG, PDF).")] = None,
    spectra: Annotated[Path | None, typer.Option(help="Also draw energy spectra.")] = None,
) -> None:
    """Check every file of a dataset and print its shapes, ranges and alignment.

    Example: pacefno data show datasets/burgers1d/smoke-seed42 --output samples.png
    """
    with plain_errors():
        from pacefno.data.show import open_folder, show
        from pacefno.paper.benchmarks import BENCHMARKS

        recipes = {name: benchmark.recipe for name, benchmark in BENCHMARKS.items()}
        recipe, dataset = open_folder(folder, recipes)
        show(dataset, recipe, wide_console())
        if output or spectra:
            from pacefno.data import PairDataset
            from pacefno.data.recipe import PairRecipe
            from pacefno.paper.report.fields import draw_samples, draw_spectra

            if not (isinstance(dataset, PairDataset) and isinstance(recipe, PairRecipe)):
                raise UsageError(f"{folder} holds trajectories: leave out --output and --spectra")
            for target, draw in ((output, draw_samples), (spectra, draw_spectra)):
                if target is not None:
                    draw(dataset, recipe, target)
                    typer.echo(f"{target} written")


def train_command(
    data_or_benchmark: Annotated[
        str,
        typer.Argument(
            help=f"The task.toml of your own data, or a benchmark: {NAMES}.",
            metavar="TASK.TOML|BENCHMARK",
            show_default=False,
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help=f"What to train: {', '.join(trainable())}; on KdV and its like "
            f"{', '.join(trainable(TRAJECTORY_ROWS))}; on your own data also module:Class, an "
            "operator of your own, and pace:module:Class, PACE around it.",
            show_default="pace, or pace-20",
        ),
    ] = None,
    preset: PresetName = "quick",
    seed: Annotated[
        int, typer.Option(help="Seed of the weights and of the order of samples.")
    ] = 42,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run, or begin.")
    ] = False,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change one setting, e.g. --set schedule.epochs=50. May be repeated.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of this run.", show_default="runs/BENCHMARK/MODEL-PRESET-seedSEED"
        ),
    ] = None,
    data: DataFolder = DATASETS,
    data_seed: DataSeed = 42,
    inexact: Annotated[
        bool,
        typer.Option(
            "--inexact", help="Own data: also train on rotations, which tear a periodic field."
        ),
    ] = False,
) -> None:
    """Train a model on your own data or on a benchmark; --resume goes on with an interrupted run.

    The run folder then holds the best weights by validation error, the settings (config.json) and
    one line of metrics per epoch (metrics.jsonl). It is complete in itself: pacefno.load(RUN) needs
    nothing else. Ctrl-C finishes the epoch and saves it. Exit codes: 2 wrong input, 1 something
    failed, 3 the training diverged, 130 interrupted.

    Example: pacefno train task.toml --model pace --preset quick

    Example: pacefno train burgers1d --model pace --preset quick
    """
    with plain_errors():
        from pacefno.train.defaults import check_exact
        from pacefno.train.evaluate import load_run, undetermined
        from pacefno.train.loop import StopRequest, check_settings, is_finished, make_fabric, train

        own = data_or_benchmark.endswith(".toml")
        asked = (data_or_benchmark, model, preset, seed, assignments or [], out)
        if own:
            if (data, data_seed) != (DATASETS, 42):
                raise UsageError(
                    "--data and --data-seed are for benchmarks: a task document names its own file"
                )
            config, open_source, folder = _plan_own(*asked)
        else:
            config, open_source, folder = _plan_benchmark(*asked, data, data_seed)
        if own and not inexact:
            check_exact(config)
        if resume and is_finished(folder):
            check_settings(folder, config)
            say(f"{folder} is finished already: {_console.program} evaluate {folder}")
            return
        fabric = make_fabric(config)
        fabric.launch()
        with Display(f"data of {config.task.name}") as display:
            with fabric.rank_zero_first():  # the first process of a group makes the data
                source = open_source(display)
            display.title = folder.name
            callbacks = display.callbacks(config.schedule.epochs)
            try:
                progress = train(
                    config, source, folder, resume=resume, callbacks=callbacks, fabric=fabric
                )
            except StopRequest as error:
                say(f"{error}: go on with the same command and --resume")
                raise typer.Exit(INTERRUPTED) from None
        say(
            f"validation error {progress.best_error:.4f} (epoch {progress.best_epoch}), "
            f"{progress.seconds:.0f} s of training"
        )
        if own and fabric.is_global_zero:
            trained = load_run(folder)
            for name, share in undetermined(
                trained.model, config.task, source, "validation"
            ).items():
                say(
                    f"{share:.1%} of the validation samples do not determine {name}: PACE does not "
                    "follow them along it"
                )
        if fabric.is_global_zero:
            typer.echo(f"{folder} is finished. Score it with: {_console.program} evaluate {folder}")


Plan = tuple["RunConfig", Callable[[Display], "Source"], Path]


def _plan_benchmark(
    name: str,
    model: str | None,
    preset: str,
    seed: int,
    assignments: list[str],
    out: Path | None,
    data: Path,
    data_seed: int,
) -> Plan:
    """The settings of a training on a benchmark, how its data are made, and its folder."""
    from pacefno.paper.bench import prepare_data, run_folder
    from pacefno.paper.benchmarks import benchmark_named
    from pacefno.paper.presets import config_for, trained_as
    from pacefno.train.config import with_overrides

    chosen = benchmark_named(name)
    row = model or chosen.default_row
    if (other := trained_as(chosen, row)) != row:
        raise UsageError(
            f"{row!r} has no training of its own: it uses the weights of {other!r}; train that"
        )
    if (preset, row) == ("paper", "pace"):
        say("the frame of 'pace' is ours; the paper's own estimator is --model pace-cnn")
    config = with_overrides(config_for(chosen, row, preset, seed, data_seed), assignments)
    folder = out or run_folder(Path("runs"), name, row, preset, config.seed)
    return config, lambda show: prepare_data(chosen, preset, data, data_seed, show), folder


def _plan_own(
    name: str,
    model: str | None,
    preset: str,
    seed: int,
    assignments: list[str],
    out: Path | None,
) -> Plan:
    """The settings of a training on one's own data, its samples, and its folder."""
    from pacefno.data.own import open_task
    from pacefno.paper.bench import run_folder
    from pacefno.train.config import with_overrides
    from pacefno.train.defaults import own_settings

    path, chosen = Path(name), model or "pace"
    task, source = open_task(path)
    for text in source.notes:
        say(text)
    named = chosen.replace(":", "-")
    folder = out or run_folder(Path("runs"), task.name, named, preset, seed)
    labels = {
        "task_file": str(path.resolve()),
        "task_file_from_run": os.path.relpath(path.resolve(), folder.resolve()),
        "task_document": path.read_text(),
    }
    config = own_settings(task, source, chosen, preset, seed, labels)
    if "group" in config.operator:
        say(
            f"{chosen} assumes that the equation has the symmetry {config.operator['group']}: "
            "for another one train a pacefno.GroupFNO of your own as --model module:Class"
        )
    config = with_overrides(config, assignments)
    if not out and config.seed != seed:
        folder = run_folder(Path("runs"), task.name, named, preset, config.seed)
    return config, lambda show: source, folder


def evaluate_command(
    run: RunFolder,
    model: Annotated[
        str | None,
        typer.Option(
            help="Score another row with the same weights: pace-tta, pace-oracle, ...; or say "
            "again the module:Class that the run was trained with."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Own data: another task.toml than the run's. Benchmarks: the folder of datasets.",
            show_default="the run's, or datasets",
        ),
    ] = None,
    data_seed: DataSeed = 42,
) -> None:
    """Score a trained model in and out of distribution and print the result as JSON.

    id_error: held-out samples as they are, on the training grid; id_error_fine: on the finer grid.
    ood_error: the same samples moved beyond the training range; ood_error_canonical: measured after
    removing the true motion, so that the norm of a boost does not flatter it. Of the trajectories
    of KdV and its like: nmse and ood_nmse, sums over 100 predicted snapshots of their relative
    squared errors. A number that is not finite is null.

    Example: pacefno evaluate runs/turbulence/pace-quick-seed42
    """
    with plain_errors():
        from pacefno.train.evaluate import finite

        labels = run_labels(run, model)
        if "task_document" in labels:
            if data_seed != 42:
                raise UsageError(
                    "--data-seed is for benchmarks: a task document says how its samples are split"
                )
            result = score_own_run(run, model, data)
        else:
            result = _score_benchmark(run, labels, model, data, data_seed)
        result, lost = finite(result)
        typer.echo(json.dumps(result, indent=2, allow_nan=False))
        if lost:
            say(f"warning: not finite, so null: {', '.join(lost)}")


def _score_benchmark(
    run: Path, labels: dict[str, str], model: str | None, data: Path | None, data_seed: int
) -> dict[str, Any]:
    from pacefno.paper.bench import score_row
    from pacefno.paper.benchmarks import benchmark_named
    from pacefno.train.evaluate import load_run

    load_run(run)  # says what is wrong with a folder that is no run
    todo = "score it with pacefno.train.evaluate.score"
    _, source = data_of_run(run, labels, data, data_seed, todo)
    return score_row(run, benchmark_named(labels["problem"]), model or labels["model"], source)


def predict_command(
    run: ModelFolder,
    source: Annotated[
        Path,
        typer.Argument(
            help="Fields (N, C, *grid) in a file of any format that inspect reads, or a task.toml: "
            "its test samples.",
            metavar="INPUT",
            show_default=False,
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            help="Where to write: .h5, .npy or .npz.", metavar="OUTPUT", show_default=False
        ),
    ],
    refine: Annotated[
        bool, typer.Option("--refine", help="Refine each frame before predicting (slower).")
    ] = False,
    name: ArrayName = "input",
    model: OperatorClass = None,
) -> None:
    """Apply a trained model to fields of your own, at any resolution that holds its modes.

    The grid is periodic without the end point: point i of n lies at i L / n. An .h5 or .npz file
    may carry the axes (x, y, z) and a horizon; they are checked against the model's. The output
    holds prediction, frame (the estimated coordinates) and confidence; an .npy file has room for
    the prediction only. A file of a dataset serves as input: datasets/.../test_id.h5

    Example: pacefno predict runs/burgers1d/pace-quick-seed42 fields.npy predictions.npz
    """
    with plain_errors():
        from pacefno.auditing.foreign import load_with
        from pacefno.data.arrays_file import check_suffix, read_fields, write_fields
        from pacefno.inference import check_matches, predict_batches

        check_suffix(target)
        trained = load_with(run, model)
        arrays: dict[str, Tensor] = {}
        if source.suffix == ".toml":
            warn_if_changed(run, source)
            given, arrays["target"] = _test_samples(trained, source)
        else:
            fields = read_fields(source, name)
            given = fields.values
            check_matches(trained, given, fields.coordinates, fields.horizon, str(source))
        made = predict_batches(trained, given, "refined" if refine else "one-shot")
        predicted = {
            "prediction": made.values.to(given.dtype),
            "frame": made.frame.xi,
            "confidence": made.frame.confidence,
        }
        write_fields(target, predicted | arrays)
        typer.echo(f"{len(made.values)} predictions written to {target}")


def _test_samples(model: PACE, path: Path) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the test samples of a task.toml, for a model of the same task."""
    import torch

    from pacefno.data.own import check_same_task, open_task
    from pacefno.train.evaluate import own_batches

    task, source = open_task(path)
    check_same_task(model, task)
    batches = list(own_batches(task, source))
    return torch.cat([b.input for b in batches]), torch.cat([b.target for b in batches])
