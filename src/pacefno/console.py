"""What every command does alike: expected errors end in one plain line and an exit code, never in a traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer

BAD_INPUT, FAILED, DIVERGED, INTERRUPTED = 2, 1, 3, 130


@contextmanager
def plain_errors(*failures: type[Exception]) -> Iterator[None]:
    """ValueError means that the user's input is wrong; ``failures`` (and OSError) that the work could not be done."""
    try:
        yield
    except ValueError as error:
        raise failure(error, BAD_INPUT) from None
    except Exception as error:
        if isinstance(error, (OSError, *failures)):
            raise failure(error, FAILED) from None
        raise


def failure(error: Exception, code: int) -> typer.Exit:
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(code)


def is_first_process() -> bool:
    """Whether this process speaks for all those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    """A line for people, on the error stream, so that results can be piped; once for a group of processes."""
    if is_first_process():
        typer.echo(text, err=True)


def numbers(text: str, option: str) -> list[int]:
    """A comma-separated option of whole numbers."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option}: expected whole numbers separated by commas, got {text!r}") from None
