"""``pacefno data``, ``train``, ``evaluate`` and ``predict``."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from pacefno.cli._console import (
    INTERRUPTED,
    Display,
    plain_errors,
    say,
    wide_console,
)
from pacefno.errors import UsageError
from pacefno.paper import BENCHMARK_NAMES, PRESETS
from pacefno.paper.rows import FIELD_ROWS, TRAJECTORY_ROWS, listed

NAMES = ", ".join(BENCHMARK_NAMES)
TRAINABLE = ", ".join(name for name in listed(FIELD_ROWS) if not FIELD_ROWS[name].trained_as)
BenchmarkName = Annotated[
    str, typer.Argument(help=f"Which benchmark: {NAMES}.", show_default=False)
]
PresetName = Annotated[str, typer.Option(help=f"How long and how large: {', '.join(PRESETS)}.")]
DataFolder = Annotated[
    Path, typer.Option(help="Folder under which datasets are kept; a missing one is generated.")
]
DataSeed = Annotated[int, typer.Option(help="Seed of the dataset.")]
RunFolder = Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)]


def import_modules(names: list[str]) -> None:
    """Import modules of the user's, which register what they have."""
    if names:
        sys.path.insert(0, os.getcwd())
    with plain_errors():
        for name in names:
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                raise UsageError(f"--import {name}: there is no such module here or on the path")
            importlib.import_module(name)


data_app = typer.Typer(name="data", help="Make datasets and look at them.", no_args_is_help=True)


@data_app.command("generate")
def generate_command(
    benchmark: BenchmarkName,
    preset: PresetName = "quick",
    seed: Annotated[int, typer.Option(help="Another seed gives other samples.")] = 42,
    root: Annotated[Path, typer.Option(help="Folder under which datasets are kept.")] = Path(
        "datasets"
    ),
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

        recipe = benchmark_named(benchmark).recipe
        with Display(f"{benchmark} {preset}") as display:
            folder = generate(
                recipe,
                preset,
                seed,
                root,
                stationary=stationary,
                workers=workers,
                on_progress=display,
            )
        typer.echo(f"{folder} is complete. Look at it with: pacefno data show {folder}")


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
            from pacefno.errors import UsageError
            from pacefno.paper.report.fields import draw_samples, draw_spectra

            if not (isinstance(dataset, PairDataset) and isinstance(recipe, PairRecipe)):
                raise UsageError(f"{folder} holds trajectories: leave out --output and --spectra")
            for target, draw in ((output, draw_samples), (spectra, draw_spectra)):
                if target is not None:
                    draw(dataset, recipe, target)
                    typer.echo(f"{target} written")


def train_command(
    benchmark: BenchmarkName,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"What to train: {TRAINABLE}; on trajectories {', '.join(TRAJECTORY_ROWS)}.",
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
    data: DataFolder = Path("datasets"),
    data_seed: DataSeed = 42,
) -> None:
    """Train a model on a benchmark, with checkpoints from which an interrupted run goes on.

    The run folder then holds the best weights by validation error, the settings (config.json) and
    one line of metrics per epoch (metrics.jsonl). It is complete in itself: pacefno.load(RUN) needs
    nothing else. Ctrl-C finishes the epoch and saves it. Exit codes: 2 wrong input, 1 something
    failed, 3 the training diverged, 130 interrupted.

    Example: pacefno train burgers1d --model pace --preset quick
    """
    with plain_errors():
        from pacefno.paper.bench import prepare_data, run_folder
        from pacefno.paper.benchmarks import benchmark_named
        from pacefno.paper.presets import config_for, trained_as
        from pacefno.train.config import with_overrides
        from pacefno.train.loop import (
            StopRequest,
            check_settings,
            is_finished,
            make_fabric,
            train,
        )

        chosen = benchmark_named(benchmark)
        name = model or chosen.default_row
        if (other := trained_as(chosen, name)) != name:
            raise UsageError(
                f"{name!r} has no training of its own: it uses the weights of {other!r}; train that"
            )
        config = with_overrides(config_for(chosen, name, preset, seed), assignments or [])
        folder = out or run_folder(Path("runs"), benchmark, name, preset, config.seed)
        if resume and is_finished(folder):
            check_settings(folder, config)
            say(f"{folder} is finished already: pacefno evaluate {folder}")
            return
        fabric = make_fabric(config)
        fabric.launch()
        with Display(f"data of {benchmark}") as display:
            with fabric.rank_zero_first():  # the first process of a group makes the data
                source = prepare_data(chosen, preset, data, data_seed, display)
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
        if fabric.is_global_zero:
            typer.echo(f"{folder} is finished. Score it with: pacefno evaluate {folder}")


def evaluate_command(
    run: RunFolder,
    model: Annotated[
        str | None,
        typer.Option(help="Score another row with the same weights: pace-tta, pace-oracle, ..."),
    ] = None,
    data: DataFolder = Path("datasets"),
    data_seed: DataSeed = 42,
) -> None:
    """Score a trained model in and out of distribution and print the result as JSON.

    id_error: held-out samples in the canonical frame, on the training grid; id_error_fine: on the
    finer grid. ood_error: the same samples moved beyond the training range, on the finer grid;
    ood_error_canonical: measured after removing the true motion, so that the norm of a boost does
    not flatter it. Of trajectories: nmse and ood_nmse, sums over 100 predicted snapshots of their
    relative squared errors.

    Example: pacefno evaluate runs/burgers1d/pace-quick-seed42
    """
    with plain_errors():
        from pacefno.paper.bench import prepare_data, score_row
        from pacefno.paper.benchmarks import benchmark_named
        from pacefno.train.evaluate import load_run

        labels = load_run(run).config.labels
        if missing := {"problem", "preset", "model"} - set(labels):
            raise UsageError(
                f"{run} does not say on which benchmark it was trained: its labels have no "
                f"{', '.join(sorted(missing))}; score it with pacefno.train.evaluate.score"
            )
        benchmark = benchmark_named(labels["problem"])
        with Display(f"data of {benchmark.name}") as display:
            source = prepare_data(benchmark, labels["preset"], data, data_seed, display)
        result = score_row(run, benchmark, model or labels["model"], source)
        typer.echo(json.dumps(result, indent=2))


def predict_command(
    run: Annotated[
        Path, typer.Argument(help="The folder of a run or of a saved model.", show_default=False)
    ],
    source: Annotated[
        Path,
        typer.Argument(
            help="Fields (N, C, *grid): .h5, .npy or .npz.", metavar="INPUT", show_default=False
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
    name: Annotated[str, typer.Option(help="Name of the array in an .h5 or .npz file.")] = "input",
) -> None:
    """Apply a trained model to fields of your own, at any resolution that holds its modes.

    The grid is periodic without the end point: point i of n lies at i L / n. An .h5 or .npz file
    may carry the axes (x, y, z) and a horizon; they are checked against the model's. The output
    holds prediction, frame (the estimated coordinates) and confidence; an .npy file has room for
    the prediction only. A file of a dataset serves as input: datasets/.../test_id.h5

    Example: pacefno predict runs/burgers1d/pace-quick-seed42 fields.npy predictions.npz
    """
    with plain_errors():
        from pacefno.data.arrays_file import check_suffix, read_fields, write_fields
        from pacefno.inference import check_matches, load, predict_batches

        check_suffix(target)
        model = load(run)
        fields = read_fields(source, name)
        check_matches(model, fields.values, fields.coordinates, fields.horizon, str(source))
        made = predict_batches(model, fields.values, "refined" if refine else "one-shot")
        arrays = {
            "prediction": made.values.to(fields.values.dtype),
            "frame": made.frame.xi,
            "confidence": made.frame.confidence,
        }
        write_fields(target, arrays)
        typer.echo(f"{len(made.values)} predictions written to {target}")
