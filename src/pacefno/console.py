"""What every command does alike: expected errors end in one plain line and an exit code, never in a traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    except (OSError, *failures) as error:
        raise failure(error, FAILED) from None


def failure(error: Exception, code: int) -> typer.Exit:
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(code)


Speak = Callable[[str], None]


def say(text: str) -> None:
    """A line for people, on the error stream, so that results can be piped."""
    typer.echo(text, err=True)
