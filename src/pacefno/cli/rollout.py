"""``pacefno rollout``."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacefno.cli._console import Display, plain_errors, say, split_names, wide_console
from pacefno.cli._runs import OperatorClass, RunFolder, load_own, warn_if_changed
from pacefno.errors import UsageError

if TYPE_CHECKING:
    from pacefno.data.own import FileSource
    from pacefno.task import Task
    from pacefno.train.rollout import Forecast

MOST_LINES = 12  # of the printed table
SPLITS = ("train", "validation", "test", "all")


def rollout_command(
    run: RunFolder,
    file: Annotated[
        Path,
        typer.Argument(
            help="Where predictions begin: a task.toml, or a data file with the arrays of the "
            "run's task.",
            show_default=False,
        ),
    ],
    steps: Annotated[int, typer.Option(help="Predictions in a row.", min=1)] = 20,
    output: Annotated[
        Path | None,
        typer.Option(help="Write predictions and errors: .h5, .npz; or the errors alone: .json."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw truth, prediction and error: .png, .pdf, .svg.")
    ] = None,
    film: Annotated[
        Path | None, typer.Option(help="Film truth and prediction: .gif, or .mp4 with ffmpeg.")
    ] = None,
    samples: Annotated[int, typer.Option(help="How many samples, evenly chosen.", min=1)] = 4,
    split: Annotated[
        str, typer.Option(help=f"Which: {', '.join(SPLITS)}.", show_default="test; all of a file")
    ] = "",
    channel: Annotated[
        str, typer.Option(help="Which channel is drawn.", show_default="the first")
    ] = "",
    conserve: Annotated[
        str,
        typer.Option(
            help="Channels whose mean is kept, such as momentum, or all: u,v.", metavar="NAMES"
        ),
    ] = "",
    model: OperatorClass = None,
) -> None:
    """Predict many steps in a row, each prediction the input of the next.

    The error is that relative to the truth, for as long as the file has one, beside the error of
    the guess that nothing changes. Of each sample its first snapshots are given.

    Example: pacefno rollout runs/turbulence/pace-quick-seed42 task.toml --steps 20 --film flow.gif
    """
    with plain_errors():
        from pacefno.data.arrays_file import check_suffix
        from pacefno.data.own import check_same_task
        from pacefno.train.rollout import forecast, read_start

        if output is not None and output.suffix != ".json":
            check_suffix(output, (".h5", ".hdf5", ".npz", ".json"))
        if film is not None:
            from pacefno.paper.report.rollout import check_film

            check_film(film)
        if split and split not in SPLITS:
            raise UsageError(f"--split: expected one of {', '.join(SPLITS)}, got {split!r}")
        trained, _ = load_own(run, model)
        task, source = _open(run, file, trained.config.labels)
        check_same_task(trained.config.task, task)
        chosen = split or ("test" if file.suffix == ".toml" else "all")
        ahead = steps * task.output.snapshots
        start = read_start(source, task, None if chosen == "all" else chosen, samples, ahead)
        kept: bool | list[str] = conserve == "all" or split_names(conserve)
        with Display(f"{len(start.window)} samples") as display:
            made = forecast(
                trained.model, task, start, steps,
                conserve=kept, on_step=lambda done: display(done, steps),
            )  # fmt: skip
            _print(made)
            if output is not None:
                _write(made, output)
            title = f"{trained.config.labels.get('model', '')}: {task.name}"
            if picture is not None:
                from pacefno.paper.report.rollout import draw_rollout
                from pacefno.paper.style import save_picture

                save_picture(draw_rollout(made, task, channel, title=title), picture)
                typer.echo(f"{picture} written")
            if film is not None:
                from pacefno.paper.report.rollout import write_film

                display.title = film.name
                write_film(made, task, film, channel, on_frame=lambda i, n: display(i + 1, n))
                typer.echo(f"{film} written")


def _open(run: Path, file: Path, labels: dict[str, str]) -> tuple[Task, FileSource]:
    """The samples of a task.toml, or of a file with the arrays of the run's own."""
    from pacefno.data.own import open_document, open_task

    if file.suffix == ".toml":
        warn_if_changed(run, file)
        return open_task(file)
    if "task_document" not in labels:
        raise UsageError(
            f"{file}: this run was not trained on a file of yours, so the arrays are not known: "
            "give a task.toml (pacefno inspect writes one)"
        )
    document = tomllib.loads(labels["task_document"])
    own = {"file": file.name, "format": "", "validation_file": "", "test_file": ""}
    document["data"] = document["data"] | own
    return open_document(document, file.parent, whole=True)


def _print(made: Forecast) -> None:
    from rich.table import Table

    from pacefno.data.samples import evenly

    known, count = made.error.shape[1], len(made.times)
    if not known:
        typer.echo(f"{count} snapshots predicted; the file has no truth for them")
        return
    table = Table("time", "relative error", "worst sample", "if nothing changed")
    for i in evenly(known, MOST_LINES).tolist():
        each = made.error[:, i]
        numbers = (each.mean(), each.max(), made.still[:, i].mean())
        table.add_row(f"{float(made.times[i]):.4g}", *(f"{float(n):.4g}" for n in numbers))
    wide_console().print(table)
    if known < count:
        say(f"the file has truth for {known} of {count} snapshots")
    if lost := made.document()["lost"]:
        say(f"warning: {lost} of {len(made.prediction)} predictions stopped being finite")


def _write(made: Forecast, path: Path) -> None:
    from pacefno.data.arrays_file import write_fields
    from pacefno.train.evaluate import finite

    if path.suffix == ".json":
        from pacefno.files import write_text

        write_text(path, json.dumps(finite(made.document())[0], indent=1, allow_nan=False) + "\n")
    else:
        write_fields(path, made.arrays())
    typer.echo(f"{path} written")
