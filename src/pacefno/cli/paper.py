"""``pacefno bench``, ``study`` and ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pacefno.cli._console import (
    INTERRUPTED,
    Display,
    plain_errors,
    say,
    split_names,
    split_numbers,
    wide_console,
)
from pacefno.cli.library import DataFolder, PresetName
from pacefno.paper import BENCHMARK_NAMES, PRESETS, SEEDS
from pacefno.paper.rows import FIELD_ROWS, TRAJECTORY_ROWS, listed

RunsFolder = Annotated[Path, typer.Option(help="Folder under which runs are kept.")]
ResultsFolder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the result files.",
        show_default="results, or runs/results for small presets",
    ),
]


def default_results(preset: str, runs: Path) -> Path:
    """Only presets that mean something are kept beside the code."""
    return Path("results") if preset in ("standard", "paper") else runs / "results"


def bench_command(
    benchmark: Annotated[
        str,
        typer.Argument(help=f"all, or one of {', '.join(BENCHMARK_NAMES)}.", show_default=False),
    ],
    preset: PresetName = "standard",
    models: Annotated[
        str,
        typer.Option(
            help=f"Comma-separated rows: {', '.join(listed(FIELD_ROWS))}; "
            f"of trajectories: {', '.join(TRAJECTORY_ROWS)}.",
            show_default="all",
        ),
    ] = "",
    seeds: Annotated[str, typer.Option(help="Comma-separated seeds.")] = ",".join(map(str, SEEDS)),
    data: DataFolder = Path("datasets"),
    runs: RunsFolder = Path("runs"),
    results: ResultsFolder = None,
) -> None:
    """Make the table of a benchmark: generate the data, train every model, score every row.

    What is done is skipped and what was interrupted goes on, so the same command can be given again
    at any time, and the work can be split over machines by --models or --seeds: the rows merge in
    RESULTS/BENCHMARK.json.

    Example: pacefno bench burgers1d --preset quick --models fno,fno-aug,pace --seeds 42
    """
    with plain_errors():
        from pacefno.paper.bench import Places, headline, missing_rows, plan, prepare_data, run_job
        from pacefno.paper.benchmarks import BENCHMARKS, benchmark_named
        from pacefno.paper.presets import config_for
        from pacefno.paper.report.tables import terminal_table
        from pacefno.train.loop import StopRequest

        tables = [b.name for b in BENCHMARKS.values() if b.in_tables and b.task.rollout is None]
        names = tables if benchmark == "all" else [benchmark_named(benchmark).name]
        places = Places(data, runs, results or default_results(preset, runs))
        jobs = plan(names, preset, split_names(models), split_numbers(seeds, "--seeds"))
        todo = [job for job in jobs if missing_rows(job, places)]
        with Display("") as display:
            for number, job in enumerate(todo, 1):
                chosen = benchmark_named(job.benchmark)
                display.title = f"data of {job.benchmark}"
                source = prepare_data(chosen, preset, data, on_progress=display)
                display.title = f"{number} of {len(todo)}: {job.title}"
                config = config_for(chosen, job.trained, job.preset, job.seed)
                callbacks = display.callbacks(config.schedule.epochs)
                try:
                    for row in run_job(job, places, callbacks, source):
                        display.message(f"{job.title}: {row['model']}: {headline(row)}")
                except StopRequest:
                    say("stopped: give the same command again to go on")
                    raise typer.Exit(INTERRUPTED) from None
        for name in names:
            wide_console().print(terminal_table(name, places.results, preset))


def report_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders with BENCHMARK.json files, as 'bench' makes them; "
            "with --update or --check also Markdown documents.",
            metavar="FOLDER",
            show_default="results",
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("report"),
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Which rows: {', '.join(PRESETS)}.", show_default="the largest that there is"
        ),
    ] = None,
    runs: RunsFolder = Path("runs"),
    data: DataFolder = Path("datasets"),
    update: Annotated[
        bool, typer.Option("--update", help="Only rewrite the tables in the named documents.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Only say whether the named documents are up to date."),
    ] = False,
) -> None:
    """Make the report: an HTML page that works offline, tables, figures as PNG and PDF.

    The tables need the result files alone; figures of fields also need the runs and datasets that
    'bench' left, and are left out with a note where these are missing. Figures of studies come from
    FOLDER/studies. In a Markdown document the lines between <!-- table:BENCHMARK --> and
    <!-- /table --> are rendered from the results, so numbers there are never typed.

    Example: pacefno report results --runs runs --output report
    """
    with plain_errors():
        from pacefno.errors import UsageError

        given = paths or [Path("results")]
        documents = [path for path in given if path.suffix == ".md"]
        folders = [path for path in given if path.suffix != ".md"] or [Path("results")]
        if (update or check) != bool(documents):
            raise UsageError("name Markdown documents together with --update or --check")
        if update or check:
            from pacefno.paper.report.documents import stale_documents, update_documents

            work = update_documents if update else stale_documents
            changed = work(documents, folders, preset)
            for path, regions in changed.items():
                typer.echo(f"{path}: {', '.join(regions)}{'' if update else ' out of date'}")
            if check and changed:
                raise typer.Exit(1)
            return
        from pacefno.paper.report.write import write_report

        page = write_report(folders, output, runs=runs, data=data, preset=preset, say=say)
        typer.echo(f"{page} written: open it in a browser")


# --- studies --------------------------------------------------------------------------------------

study_app = typer.Typer(
    name="study",
    help="Studies: which part earns what, and what limits a run.",
    no_args_is_help=True,
)
Name = Annotated[
    str, typer.Argument(help=f"Which benchmark: {', '.join(BENCHMARK_NAMES)}.", show_default=False)
]
Models = Annotated[
    str, typer.Option(help="Comma-separated rows.", show_default="those of the study")
]
Seeds = Annotated[str, typer.Option(help="Comma-separated seeds; missing runs are named.")]
FigureFolder = Annotated[Path, typer.Option(help="Folder of the figures, as PNG and PDF.")]
ALL_SEEDS = ",".join(map(str, SEEDS))
FIGURES = Path("report/figures")
DATA, RUNS = Path("datasets"), Path("runs")


def run_study(
    name: str,
    figures: Path,
    data: Path,
    runs: Path,
    results: Path | None,
    preset: str,
    settings: dict[str, Any],
) -> None:
    """Run a study, print its tables, save its figures."""
    from rich.table import Table

    from pacefno.paper.bench import Places
    from pacefno.paper.studies import study_module
    from pacefno.paper.style import save

    places = Places(data, runs, results or default_results(preset, runs))
    outcome = study_module(name).run(places=places, say=say, **settings)
    for found in outcome.tables:
        table = Table(*found.columns, title=found.title, title_justify="left")
        for row in found.rows:
            table.add_row(*row)
        wide_console().print(table)
        if found.note:
            typer.echo(found.note)
    for drawing in outcome.drawings:
        save(drawing, figures)
        say(f"{figures / drawing.name}.png written")
    for sentence in outcome.sentences:
        typer.echo(sentence)
    say(f"{outcome.path} holds every number")


@study_app.command("ablation")
def ablation_command(
    benchmark: Name,
    rows: Annotated[str, typer.Option(help="Comma-separated rows.", show_default="all")] = "",
    seeds: Seeds = ALL_SEEDS,
    preset: PresetName = "standard",
    define: Annotated[bool, typer.Option("--define", help="Only say what the rows are.")] = False,
    figures: FigureFolder = FIGURES,
    data: DataFolder = DATA,
    runs: RunsFolder = RUNS,
    results: ResultsFolder = None,
) -> None:
    """What does each part of the method earn? Trains and scores a model without it.

    Example: pacefno study ablation burgers2d --preset quick --seeds 42
    """
    with plain_errors():
        if define:
            from rich.table import Table

            from pacefno.paper.studies.ablation import definitions

            found = definitions(benchmark, split_names(rows))
            table = Table(*found.columns, title=found.title, title_justify="left")
            for row in found.rows:
                table.add_row(*row)
            wide_console().print(table)
            return
        settings: dict[str, Any] = {
            "benchmark": benchmark,
            "rows": split_names(rows),
            "preset": preset,
        }
        settings["seeds"] = split_numbers(seeds, "--seeds")
        run_study("ablation", figures, data, runs, results, preset, settings)


@study_app.command("tta")
def tta_command(
    benchmark: Name,
    models: Models = "",
    seeds: Seeds = ALL_SEEDS,
    preset: PresetName = "standard",
    samples: Annotated[int, typer.Option(help="Test samples to refine.", min=2)] = 40,
    figures: FigureFolder = FIGURES,
    data: DataFolder = DATA,
    runs: RunsFolder = RUNS,
    results: ResultsFolder = None,
) -> None:
    """What does test-time adaptation gain, and at what cost? Adam's rates and steps, Gauss-Newton.

    Example: pacefno study tta shallow_water --models pace-cnn
    """
    with plain_errors():
        settings: dict[str, Any] = {
            "benchmark": benchmark,
            "models": split_names(models),
            "preset": preset,
        }
        settings |= {"seeds": split_numbers(seeds, "--seeds"), "samples": samples}
        run_study("tta", figures, data, runs, results, preset, settings)


@study_app.command("landscape")
def landscape_command(
    benchmark: Name,
    models: Models = "",
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 42,
    preset: PresetName = "standard",
    sample: Annotated[int, typer.Option(help="Number of the test sample.", min=0)] = 0,
    coordinates: Annotated[
        str,
        typer.Option(help="Two coordinates of the group, e.g. x,angle.", show_default="the first"),
    ] = "",
    points: Annotated[int, typer.Option(help="Energies along each axis.", min=8)] = 48,
    starts: Annotated[int, typer.Option(help="Descents along each axis.", min=3)] = 12,
    figures: FigureFolder = FIGURES,
    data: DataFolder = DATA,
    runs: RunsFolder = RUNS,
    results: ResultsFolder = None,
) -> None:
    """What does the energy of test-time adaptation look like, and where do descents end?

    Example: pacefno study landscape navier_stokes --coordinates x,angle
    """
    with plain_errors():
        settings: dict[str, Any] = {"benchmark": benchmark, "seed": seed, "preset": preset}
        settings |= {"sample": sample, "points": points, "starts": starts}
        settings["coordinates"] = split_names(coordinates)
        if models:
            settings["models"] = split_names(models)
        run_study("landscape", figures, data, runs, results, preset, settings)


@study_app.command("theory")
def theory_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)],
    model: Annotated[
        str | None, typer.Option(help="Another row with the same weights, e.g. pace-tta.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Test samples to take apart.", min=2)] = 200,
    derivatives: Annotated[
        int, typer.Option(help="Samples on which derivatives of the operator are measured.", min=1)
    ] = 12,
    growth: Annotated[int, typer.Option(help="Samples on which the energy is probed.", min=1)] = 12,
    data_seed: Annotated[int, typer.Option(help="Seed of the dataset.")] = 42,
    figures: FigureFolder = FIGURES,
    data: DataFolder = DATA,
    results: ResultsFolder = None,
) -> None:
    """What limits the error of a run, and so what to improve? The terms of the paper's bound.

    Example: pacefno study theory runs/burgers1d/pace-quick-seed42
    """
    with plain_errors():
        from pacefno.train.evaluate import load_run

        preset = load_run(run).config.labels.get("preset", "standard")
        settings = {"run": run, "model": model, "samples": samples, "derivatives": derivatives}
        settings |= {"growth": growth, "data_seed": data_seed}
        run_study("theory", figures, data, RUNS, results, preset, settings)


@study_app.command("lielac")
def lielac_command(
    benchmark: Name,
    rows: Annotated[str, typer.Option(help="Comma-separated rows.", show_default="all")] = "",
    seeds: Seeds = ALL_SEEDS,
    preset: PresetName = "standard",
    data: DataFolder = DATA,
    runs: RunsFolder = RUNS,
    results: ResultsFolder = None,
) -> None:
    """Does a frame of least energy (LieLAC) do as well? Its rows join the benchmark's table.

    Example: pacefno study lielac burgers1d --seeds 42
    """
    with plain_errors():
        settings: dict[str, Any] = {
            "benchmark": benchmark,
            "rows": split_names(rows),
            "preset": preset,
        }
        settings["seeds"] = split_numbers(seeds, "--seeds")
        run_study("lielac", FIGURES, data, runs, results, preset, settings)


@study_app.command("robustness")
def robustness_command(
    benchmark: Name,
    models: Models = "",
    seeds: Seeds = ALL_SEEDS,
    preset: PresetName = "standard",
    kinds: Annotated[
        str, typer.Option(help="Of noise, missing, forcing.", show_default="all that apply")
    ] = "",
    samples: Annotated[int, typer.Option(help="Test samples.", min=2)] = 20,
    figures: FigureFolder = FIGURES,
    data: DataFolder = DATA,
    runs: RunsFolder = RUNS,
    results: ResultsFolder = None,
) -> None:
    """What do noise, missing points and a broken symmetry cost?

    Example: pacefno study robustness burgers2d --kinds noise,missing
    """
    with plain_errors():
        settings: dict[str, Any] = {"benchmark": benchmark, "preset": preset, "samples": samples}
        settings |= {"seeds": split_numbers(seeds, "--seeds"), "kinds": split_names(kinds)}
        if models:
            settings["models"] = split_names(models)
        run_study("robustness", figures, data, runs, results, preset, settings)


@study_app.command("frames")
def frames_command(
    benchmark: Name,
    models: Models = "",
    seeds: Seeds = ALL_SEEDS,
    preset: PresetName = "standard",
    elements: Annotated[int, typer.Option(help="Random elements of the group.", min=20)] = 1000,
    figures: FigureFolder = FIGURES,
    data: DataFolder = DATA,
    runs: RunsFolder = RUNS,
    results: ResultsFolder = None,
) -> None:
    """How well are frames found over the whole group, and how often is one far off?

    Example: pacefno study frames navier_stokes_literal --models pace --seeds 42
    """
    with plain_errors():
        settings: dict[str, Any] = {
            "benchmark": benchmark,
            "models": split_names(models),
            "preset": preset,
        }
        settings |= {"seeds": split_numbers(seeds, "--seeds"), "elements": elements}
        run_study("frames", figures, data, runs, results, preset, settings)


@study_app.command("snapshots")
def snapshots_command(
    benchmark: Name = "navier_stokes",
    operators: Annotated[
        str, typer.Option(help="Of channels, recurrent, space-time.", show_default="all")
    ] = "",
    minutes: Annotated[float, typer.Option(help="Of training, each operator.")] = 2.0,
    seed: Annotated[int, typer.Option(help="Seed of the weights.")] = 42,
    preset: PresetName = "standard",
    data: DataFolder = DATA,
    runs: RunsFolder = RUNS,
    results: ResultsFolder = None,
) -> None:
    """Which operator predicts several snapshots from several best, in the same time?

    Example: pacefno study snapshots navier_stokes --minutes 2
    """
    with plain_errors():
        settings: dict[str, Any] = {
            "benchmark": benchmark,
            "operators": split_names(operators),
            "seed": seed,
        }
        settings |= {"minutes": minutes, "preset": preset}
        run_study("snapshots", FIGURES, data, runs, results, preset, settings)
