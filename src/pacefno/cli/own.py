"""``pacefno inspect``, and the report on runs with data of one's own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacefno.cli._console import (
    Display,
    plain_errors,
    say,
    split_names,
    split_numbers,
    wide_console,
)
from pacefno.cli._runs import load_own, open_own, own_moves, score_loaded
from pacefno.errors import Failure, UsageError

if TYPE_CHECKING:
    from pacefno.paper.report.own import Scored
    from pacefno.task import Task


def inspect_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="A file of yours: .npy, .npz, .h5, .pt, .nc or .zarr; or a folder, or a pattern "
            "in quotes, of several with one layout.",
            metavar="FILE",
            show_default=False,
        ),
    ],
    write: Annotated[
        Path | None, typer.Option(help="Write a commented task.toml.", metavar="TASK.TOML")
    ] = None,
    array: Annotated[
        str, typer.Option(help="The arrays to use, in the order of the channels: A,B.")
    ] = "",
    target: Annotated[
        str, typer.Option(help="The arrays of targets, if --array names those of inputs.")
    ] = "",
    axes: Annotated[str, typer.Option(help='Which axis is which: "sample time x y channel".')] = "",
    channels: Annotated[
        str, typer.Option(help='Names and kinds: "u v: velocity, p: scalar".')
    ] = "",
    lengths: Annotated[
        str, typer.Option(help="Lengths of the periodic box, in the units of the data: 6.28,6.28.")
    ] = "",
    step: Annotated[
        float | None, typer.Option(help="Time between snapshots, or from input to target.")
    ] = None,
    group: Annotated[str, typer.Option(help="translation, galilean, euclidean, ...")] = "",
    history: Annotated[int, typer.Option(min=1, help="Number of input snapshots.")] = 1,
    future: Annotated[int, typer.Option(min=1, help="Number of output snapshots.")] = 1,
    endpoint: Annotated[
        bool, typer.Option("--endpoint", help="The end point of the period is listed: drop it.")
    ] = False,
    allow: Annotated[
        str, typer.Option(help="Faults to accept: non-periodic, constant, axes.")
    ] = "",
    format: Annotated[
        str, typer.Option(help="Format of the file.", show_default="by its ending")
    ] = "",
) -> None:
    """Show what a file holds, and write a task.toml for training on it.

    Shapes, axes, box, time step, ranges, whether it looks periodic and whether samples lie centred
    or everywhere. Whatever the file does not say is marked as guessed in the document, with the
    reason, or asked for by an entry "?" that has to be filled in.

    Example: pacefno inspect turbulence.h5 --write task.toml
    """
    with plain_errors():
        from pacefno.data.inspect import Answers, inspect_file, show_findings, write_task
        from pacefno.data.store import DatasetError

        if len(files) > 1:
            raise UsageError(
                f"{files[0]} and {len(files) - 1} more files: give their folder, or the pattern in "
                "quotes, so that task.toml can name them all"
            )
        file = files[0]
        answers = Answers(
            format=format,
            arrays=tuple(split_names(array)),
            targets=tuple(split_names(target)),
            axes=axes,
            channels=channels,
            lengths=tuple(split_numbers(lengths, "--lengths", float)) if lengths else (),
            step=step,
            group=group,
            history=history,
            future=future,
            endpoint=endpoint,
            allow=tuple(split_names(allow)),
        )
        findings = inspect_file(file, answers)
        show_findings(findings, wide_console())
        if findings.fault:
            raise DatasetError(file, findings.fault)
        if write is not None:
            write_task(findings, write)
            more = '; fill in what is "?"' if findings.questions else ""
            typer.echo(f"written: {write}{more}")


# --- the report on runs with one's own data -------------------------------------------------------


def report_own(runs: list[Path], output: Path) -> None:
    """Score runs on data of one's own, print their table and write the page."""
    from rich.table import Table

    from pacefno.paper.report.own import COLUMNS, table, write_own_report

    tasks = _score_all(runs)
    page = write_own_report(tasks, output, say)
    for task, scored in tasks:
        shown = Table("model", *COLUMNS.values(), title=task.name, title_justify="left")
        for line in table([one.row for one in scored]):
            shown.add_row(*line)
        wide_console().print(shown)
    typer.echo(f"{page} written: open it in a browser")


def own_runs(folders: list[Path]) -> list[Path]:
    """The finished runs on data of one's own in some folders: these, or those within."""
    from pacefno.checkpoint import FINAL

    found = []
    for folder in folders:
        for path in sorted(folder.rglob(FINAL)) if folder.is_dir() else []:
            settings = path.parent / "config.json"
            labels = json.loads(settings.read_text())["labels"] if settings.is_file() else {}
            if "task_document" in labels:
                found.append(path.parent)
    return found


UNITS = {"shift": "periods", "turn": "radians", "boost": "in velocity"}


def _score_all(runs: list[Path]) -> list[tuple[Task, list[Scored]]]:
    """Every run scored, by task."""
    from pacefno.paper.report.own import Scored
    from pacefno.train.evaluate import finite, sweep_own

    tasks: dict[str, tuple[Task, list[Scored]]] = {}
    with Display("scores") as display:
        for number, run in enumerate(runs, 1):
            try:
                trained, of = load_own(run, None)
                task, source = open_own(run, trained.config.labels, None)
                moves = own_moves(task, source)
                row, lost = finite(score_loaded(trained, of, source, moves))
                sweep = sweep_own(trained.model, task, source, moves)
            except (UsageError, Failure) as error:  # an operator of one's own, data that are gone
                say(f"warning: {run} is left out: {error}")
                continue
            if lost:
                say(f"warning: {run}: not finite: {', '.join(lost)}")
            largest = {
                kind: _in_words(sizes.values(), UNITS[kind])
                for kind, sizes in moves.by_kind(task.group).items()
            }
            scored = Scored(row, sweep, largest)
            tasks.setdefault(task.model_dump_json(), (task, []))[1].append(scored)
            display(number, len(runs), run.name)
    if not tasks:
        raise UsageError("report: none of these runs could be loaded, for the reasons above")
    return list(tasks.values())


def _in_words(sizes: Iterable[float], unit: str) -> str:
    values = dict.fromkeys(f"{size:.3g}" for size in sizes)
    return f"{', '.join(values)} {unit}"
