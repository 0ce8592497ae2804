"""How every study runs: expected errors in one line, Ctrl-C loses one cell at most, progress with the time left."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from pacefno.console import DIVERGED, INTERRUPTED, failure, plain_errors, say
from pacefno.training.commands import FAILURES
from pacefno.training.loop import DivergenceError, StopRequest

T = TypeVar("T")
LINE_EVERY = 30.0  # seconds between lines in a log file


@contextmanager
def study_session() -> Iterator[None]:
    """The exit codes of ``train`` and ``bench``: 2 wrong input, 1 something failed, 3 diverged, 130 interrupted."""
    with plain_errors(*FAILURES):
        try:
            yield
        except DivergenceError as error:
            raise failure(error, DIVERGED) from None
        except (StopRequest, KeyboardInterrupt):
            say("stopped: give the same command again to go on")
            raise typer.Exit(INTERRUPTED) from None


def tracked(title: str, items: Iterable[T], total: int) -> Iterator[T]:
    """The items one by one, with a bar on a terminal and a line now and then in a log file."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
        )
        with Progress(*columns, console=console) as bar:
            yield from bar.track(items, total=total, description=title)
        return
    began = last = time.monotonic()
    for done, item in enumerate(items):
        if done and time.monotonic() - last > LINE_EVERY:
            last = time.monotonic()
            say(f"{title}: {done} of {total}, about {(last - began) / done * (total - done):.0f} s left")
        yield item
