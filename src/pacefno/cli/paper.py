"""``pacefno bench``, ``study`` and ``report``."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacefno.cli._console import (
    INTERRUPTED,
    App,
    Display,
    plain_errors,
    say,
    split_names,
    split_numbers,
    wide_console,
)
from pacefno.cli._runs import DATASETS, DataFolder, PresetName, import_operators
from pacefno.paper import BENCHMARK_NAMES, PRESETS, SEEDS
from pacefno.paper.rows import FIELD_ROWS, TRAJECTORY_ROWS, listed
from pacefno.paper.studies import STUDIES, Option, Study

if TYPE_CHECKING:
    from pacefno.paper.bench import Job, Places

SECONDS_BETWEEN_LOOKS = 2.0  # at the logs of trainings in other processes

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
    return Path("results") if preset in ("standard", "long", "paper") else runs / "results"


def bench_command(
    context: typer.Context,
    benchmark: Annotated[
        str,
        typer.Argument(
            help=f"One of {', '.join(BENCHMARK_NAMES)}; or all: the paper's four field "
            "problems, Navier-Stokes in both variants.",
            show_default=False,
        ),
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
    seeds: Annotated[
        str,
        typer.Option(
            help="Comma-separated seeds.",
            show_default=f"{','.join(map(str, SEEDS))}; {SEEDS[0]} for rows that need no spread",
        ),
    ] = "",
    processes: Annotated[
        int,
        typer.Option(
            "--jobs",
            min=1,
            help="Models to train in parallel, on one thread each: on a few cores that is "
            "faster than one model on all of them.",
        ),
    ] = 1,
    data: DataFolder = DATASETS,
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
        from pacefno.paper.bench import Places, missing_rows, plan
        from pacefno.paper.benchmarks import BENCHMARKS, benchmark_named
        from pacefno.paper.report.tables import terminal_table
        from pacefno.train.loop import StopRequest

        tables = [b.name for b in BENCHMARKS.values() if b.in_tables and b.task.rollout is None]
        names = tables if benchmark == "all" else [benchmark_named(benchmark).name]
        places = Places(data, runs, results or default_results(preset, runs))
        chosen = split_numbers(seeds, "--seeds", int) if seeds else None
        jobs = plan(names, preset, split_names(models), chosen)
        todo = [job for job in jobs if missing_rows(job, places)]
        modules = context.parent.params.get("modules") if context.parent else None
        try:
            with Display("") as display:
                if min(processes, len(todo)) > 1:
                    train_side_by_side(todo, places, processes, modules or [], display)
                else:
                    train_in_turn(todo, places, display)
        except (StopRequest, KeyboardInterrupt):
            say("stopped: give the same command again to go on")
            raise typer.Exit(INTERRUPTED) from None
        for name in names:
            wide_console().print(terminal_table(name, places.results, preset))


def train_in_turn(todo: Sequence[Job], places: Places, display: Display) -> None:
    """Train and score one job after another, on all threads."""
    from pacefno.paper.bench import headline, prepare_data, run_job
    from pacefno.paper.benchmarks import benchmark_named
    from pacefno.paper.presets import config_for

    for number, job in enumerate(todo, 1):
        chosen = benchmark_named(job.benchmark)
        display.title = f"data of {job.benchmark}"
        source = prepare_data(chosen, job.preset, places.data, on_progress=display)
        display.title = f"{number} of {len(todo)}: {job.title}"
        config = config_for(chosen, job.trained, job.preset, job.seed)
        for row in run_job(job, places, display.callbacks(config.schedule.epochs), source):
            display.message(f"{job.title}: {row['model']}: {headline(row)}")


def train_side_by_side(
    todo: Sequence[Job], places: Places, processes: int, modules: Sequence[str], display: Display
) -> None:
    """Train and score several jobs at a time; the bar counts the epochs in the logs of the runs."""
    from pacefno.paper.bench import epochs_done, headline, prepare_data, run_side_by_side
    from pacefno.paper.benchmarks import benchmark_named

    for name in dict.fromkeys(job.benchmark for job in todo):
        display.title = f"data of {name}"
        prepare_data(benchmark_named(name), todo[0].preset, places.data, on_progress=display)
    display.title = f"{len(todo)} trainings, {min(processes, len(todo))} at a time"
    display(*epochs_done(todo, places))
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(SECONDS_BETWEEN_LOOKS):
            display(*epochs_done(todo, places))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        with closing(run_side_by_side(todo, places, processes, modules)) as running:
            for job, rows in running:
                for row in rows:
                    display.message(f"{job.title}: {row['model']}: {headline(row)}")
    finally:
        ended.set()
        watcher.join()


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
            help=f"Which rows: {', '.join(PRESETS)}.",
            show_default="standard, else paper, else what there is",
        ),
    ] = None,
    runs: RunsFolder = Path("runs"),
    data: Annotated[
        Path,
        typer.Option(
            help="Folder under which datasets are kept; without them figures of fields are left "
            "out."
        ),
    ] = DATASETS,
    update: Annotated[
        bool, typer.Option("--update", help="Only rewrite the tables in the named documents.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Only say whether the named documents are up to date."),
    ] = False,
    status: Annotated[
        bool,
        typer.Option("--status", help="Only print what is there of each claim of the paper."),
    ] = False,
    gallery: Annotated[
        Path | None,
        typer.Option(help="Only draw the paper's figures, small, into this folder."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Of runs with an operator of your own: the module:Class that they were trained "
            "with. May be repeated.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make the report: an HTML page that works offline, tables, figures as PNG and PDF.

    The tables need the result files alone; figures of fields also need the runs and datasets that
    'bench' left, and are left out with a note where these are missing. Figures of studies come from
    FOLDER/studies. In a Markdown document the lines between <!-- table:BENCHMARK --> and
    <!-- /table --> are rendered from the results, so numbers there are never typed.

    Of a folder of runs on data of your own: every model scored on the held-out samples, and its
    error against the size of a shift and of a boost.

    Example: pacefno report results --runs runs --output report

    Example: pacefno report runs/turbulence --output report
    """
    with plain_errors():
        from pacefno.cli.own import own_runs, report_own
        from pacefno.errors import UsageError

        if own := own_runs(paths or []):
            import_operators(model)
            report_own(own, output)
            return
        given = paths or [Path("results")]
        documents = [path for path in given if path.suffix == ".md"]
        folders = [path for path in given if path.suffix != ".md"] or [Path("results")]
        if status:
            from pacefno.paper.report.tables import terminal_claims

            for grid in terminal_claims(folders):
                wide_console().print(grid)
            return
        if gallery is not None:
            from pacefno.paper.report.write import write_gallery

            made = write_gallery(folders, gallery, runs=runs, data=data, preset=preset, say=say)
            typer.echo(f"{gallery}: {', '.join(made) or 'nothing could be drawn'}")
            return
        if (update or check) != bool(documents):
            raise UsageError("name Markdown documents together with --update or --check")
        if update or check:
            from pacefno.paper.report.documents import stale_documents

            changed = stale_documents(documents, folders, preset, write=update)
            for path, regions in changed.items():
                typer.echo(f"{path}: {', '.join(regions)}{'' if update else ' out of date'}")
            if check and changed:
                raise typer.Exit(1)
            return
        from pacefno.paper.report.write import write_report

        page = write_report(folders, output, runs=runs, data=data, preset=preset, say=say)
        typer.echo(f"{page} written: open it in a browser")


# --- studies --------------------------------------------------------------------------------------

study_app = App(
    name="study",
    help="Studies: what each part contributes, and what limits a run.",
    no_args_is_help=True,
)
FIGURES = Annotated[Path, typer.Option(help="Folder of the figures, as PNG and PDF.")]
FOLDERS: dict[str, tuple[Any, Path | None]] = {
    "figures": (FIGURES, Path("report/figures")),
    "data": (DataFolder, DATASETS),
    "runs": (RunsFolder, Path("runs")),
    "results": (ResultsFolder, None),
}


def study_command(name: str, study: Study) -> Callable[..., None]:
    """The command of a study: its settings are the options, and folders those of its files."""

    def command(**given: Any) -> None:
        with plain_errors():
            folders = {key: given.pop(key, default) for key, (_, default) in FOLDERS.items()}
            for key, setting in study.settings.items():
                if isinstance(setting.default, tuple):
                    numbers = bool(setting.default) and isinstance(setting.default[0], int)
                    text = given[key]
                    given[key] = (
                        split_numbers(text, f"--{key}", int) if numbers else split_names(text)
                    )
            run_and_tell(name, given, **folders)

    unused = {"figures"} if not study.figure else {"runs"} if "run" in study.settings else set()
    options = {key: annotated(key, setting) for key, setting in study.settings.items()}
    options |= {key: option for key, option in FOLDERS.items() if key not in unused}
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(key, kind, default=default, annotation=annotation)
        for key, (annotation, default) in options.items()
    ]
    vars(command).update(__signature__=inspect.Signature(parameters))
    command.__annotations__ = {key: annotation for key, (annotation, _) in options.items()}
    command.__doc__ = f"{study.question}\n\nExample: pacefno study {name} {study.example}"
    return command


def annotated(name: str, setting: Option) -> tuple[Any, Any]:
    """The type of a setting on the command line, with its help, and its default there."""
    default, shown = setting.default, setting.shown
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    elif default == "":
        shown = False
    how: dict[str, Any] = {"help": setting.help, "show_default": shown}
    if setting.positional:
        return Annotated[setting.positional, typer.Argument(**how)], default
    names = [f"--{name}"] if isinstance(default, bool) else []  # else there were a --no-NAME too
    return Annotated[type(default), typer.Option(*names, min=setting.least, **how)], default


def run_and_tell(
    name: str, settings: dict[str, Any], figures: Path, data: Path, runs: Path, results: Path | None
) -> None:
    """Run a study, print its tables, save its figures."""
    from rich.table import Table

    from pacefno.paper.bench import Places
    from pacefno.paper.studies.base import run_study
    from pacefno.paper.style import save
    from pacefno.train.evaluate import load_run

    labels = settings if "preset" in settings else load_run(settings["run"]).config.labels
    preset = labels.get("preset", "standard")
    places = Places(data, runs, results or default_results(preset, runs))
    with Display(name) as display:

        def show(title: str, done: int, total: int, note: str) -> None:
            display.title = title
            display(done, total, note)

        outcome = run_study(name, places, display.message, show, **settings)
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
    if outcome.path:
        say(f"{outcome.path} holds every number")


for _name in STUDIES:
    study_app.command(_name)(study_command(_name, STUDIES[_name]))
