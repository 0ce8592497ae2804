"""What all commands share: errors as one line, progress, memory."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from pacefno.errors import Failure, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from pacefno.train.loop import Callbacks, Progress

Number = TypeVar("Number", int, float)
Function = TypeVar("Function", bound=Callable[..., Any])
FAILED, INTERRUPTED = 1, 130
SECONDS_BETWEEN_LINES = 30.0  # of progress in a log file
debug = False  # set by `pacefno --debug`
program = "pacefno"  # what hints begin with: with the modules of `pacefno --import`, if any


class App(typer.Typer):
    """Commands whose help fills the terminal; their docstrings are broken at 100 columns."""

    def command(self, name: str | None = None, **how: Any) -> Callable[[Function], Function]:
        def add(function: Function) -> Function:
            paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
            text = "\n\n".join(" ".join(part.split()) for part in paragraphs)
            return typer.Typer.command(self, name, help=text, **how)(function)

        return add


@contextmanager
def plain_errors() -> Iterator[None]:
    """End with one line and an exit code for errors that the user can mend.

    Everything else is a bug of ours and is shown with its traceback. ``--debug`` shows all of it.
    """
    if debug:
        yield
        return
    try:
        yield
    except (UsageError, Failure) as error:
        raise fail(error, error.exit_code) from None
    except OSError as error:
        raise fail(error, FAILED) from None
    except ModuleNotFoundError as error:
        if not (text := _missing(error)):
            raise
        raise fail(Exception(text), FAILED) from None
    except KeyboardInterrupt:
        say("interrupted: give the same command again to go on")
        raise typer.Exit(INTERRUPTED) from None


EXTRAS = {
    "train": ("numpy", "h5py", "safetensors", "pydantic", "lightning_fabric", "filelock"),
    "paper": ("matplotlib", "jinja2"),
    "io": ("xarray", "netCDF4", "zarr"),
}


def _missing(error: ModuleNotFoundError) -> str:
    """Which extra brings a missing package; empty if none does, so that it is a bug."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in EXTRAS.items():
        if package in packages:
            return f"{package} is not installed: pip install 'pacefno[{extra}]'"
    return ""


def fail(error: Exception, code: int) -> typer.Exit:
    """Print an error as one line; raise what comes back."""
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(code)


def is_first_process() -> bool:
    """Whether this process speaks for all those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    """A line for people, on the error stream, once for a group of processes."""
    if is_first_process():
        typer.echo(text, err=True)


def split_names(text: str) -> list[str]:
    """A comma-separated option as a list; empty for an empty text."""
    return [part.strip() for part in text.split(",") if part.strip()]


def split_numbers(text: str, option: str, kind: type[Number]) -> list[Number]:
    """A comma-separated option of numbers, whole ones if their kind is ``int``."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise UsageError(f"{option}: expected {what} separated by commas, got {text!r}") from None


def wide_console() -> Console:
    """Standard output; in a file or a pipe, wide enough for a table."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=160)


class Display:
    """The one progress display: a bar with the time left on a terminal, lines in a log file.

    ``with Display("title") as display: display(done, total, "note")``. A bar belongs to a title;
    another title begins another bar. A log has a line when a title begins, at its end, and every
    half a minute between.
    """

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self.console = Console(stderr=True)
        self.title = title
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("gone,"),
            TimeRemainingColumn(),
            TextColumn("left {task.fields[note]}"),
        )
        self._bars = Bars(*columns, console=self.console, speed_estimate_period=120)
        self._live = self.console.is_terminal and is_first_process()
        self._tasks: dict[str, Any] = {}
        self._began: dict[str, tuple[float, int]] = {}
        self._last_line = 0.0

    def __enter__(self) -> Display:
        if self._live:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:  # otherwise it would print an empty line
            self._bars.stop()

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """So much of the work under the current title is done."""
        now, begins = time.monotonic(), self.title not in self._began
        began, before = self._began.setdefault(self.title, (now, done))
        if self._live:
            if self.title not in self._tasks:
                task = self._bars.add_task(self.title, total=total - before, note=note)
                self._tasks[self.title] = task
            self._bars.update(self._tasks[self.title], completed=done - before, note=note)
        elif begins or done >= total or now - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = now
            left = (now - began) / max(1, done - before) * (total - done)
            rest = f", about {left:.0f} s left" if before < done < total else ""
            say(f"{self.title}: {done / max(1, total):.0%}{rest}{f', {note}' if note else ''}")

    def message(self, text: str) -> None:
        """A line beside the bars."""
        if self._live:
            self._bars.console.print(text, highlight=False, soft_wrap=True)
        else:
            say(text)

    def callbacks(self, epochs: int) -> Callbacks:
        """What a training tells this display."""
        from pacefno.train.loop import Callbacks

        def on_step(progress: Progress, steps: int) -> None:
            notes = [f"training error {progress.log[-1]['l2']:.4f}"] if progress.log else []
            judged = [one for one in progress.log if "validation_error" in one]
            notes += [f"validation {one['validation_error']:.4f}" for one in judged[-1:]]
            self(progress.step, steps * epochs, ", ".join(notes))

        return Callbacks(on_step=on_step, on_message=self.message)
