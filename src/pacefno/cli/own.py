"""``pacefno inspect``: what is in a file of one's own, and the document to train on it with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pacefno.cli._console import plain_errors, split_names, wide_console
from pacefno.errors import UsageError


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
    history: Annotated[int, typer.Option(min=1, help="Snapshots that go in.")] = 1,
    future: Annotated[int, typer.Option(min=1, help="Snapshots that come out.")] = 1,
    endpoint: Annotated[
        bool, typer.Option("--endpoint", help="The end point of the period is listed: drop it.")
    ] = False,
    allow: Annotated[str, typer.Option(help="Faults that are meant: non-periodic, constant.")] = "",
    format: Annotated[
        str, typer.Option(help="Format of the file.", show_default="by its ending")
    ] = "",
) -> None:
    """Say what a file holds, and write the task.toml with which a model is trained on it.

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
            lengths=_numbers(lengths),
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


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in split_names(text))
    except ValueError:
        raise UsageError(f"--lengths: expected numbers separated by commas, got {text!r}") from None
