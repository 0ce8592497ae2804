"""How far the generator is: a bar on a terminal, plain lines in a log file, or nothing."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


class Progress(ABC):
    """Told what happens; ``with`` makes sure that a terminal is left as it was."""

    @abstractmethod
    def start(self, title: str, total: int, done: int) -> None:
        """``done`` of ``total`` samples are there already."""

    @abstractmethod
    def advance(self, samples: int) -> None:
        """So many more samples are solved."""

    @abstractmethod
    def stored(self, name: str) -> None:
        """A file has been written and verified."""

    def stop(self) -> None:  # noqa: B027  (most have nothing to tidy up)
        """No more will happen, whether or not everything is there."""


class Silent(Progress):
    def start(self, title: str, total: int, done: int) -> None:
        pass

    def advance(self, samples: int) -> None:
        pass

    def stored(self, name: str) -> None:
        pass


class Bar(Progress):
    """A bar with the time left."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("samples,"),
            TimeElapsedColumn(),
            TextColumn("gone,"),
            TimeRemainingColumn(),
            TextColumn("left"),
        )
        self._bar = RichProgress(*columns, console=console, speed_estimate_period=120)
        self._task = TaskID(0)

    def start(self, title: str, total: int, done: int) -> None:
        self._bar.start()
        self._task = self._bar.add_task(title, total=total - done)  # only new samples, or the estimate would be wrong

    def advance(self, samples: int) -> None:
        self._bar.advance(self._task, samples)

    def stored(self, name: str) -> None:
        pass

    def stop(self) -> None:
        self._bar.stop()


class Lines(Progress):
    """One line per finished file."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = self._done = self._before = 0
        self._began = 0.0

    def start(self, title: str, total: int, done: int) -> None:
        self._total, self._done, self._before = total, done, done
        self._began = time.monotonic()
        self._say(f"{title}: {done} of {total} samples are there")

    def advance(self, samples: int) -> None:
        self._done += samples

    def stored(self, name: str) -> None:
        per_sample = (time.monotonic() - self._began) / max(1, self._done - self._before)
        left = per_sample * (self._total - self._done)
        self._say(f"{name} stored, {self._done} of {self._total} samples, about {left:.0f} s left")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)


def console_progress(console: Console) -> Progress:
    """What suits the console."""
    return Bar(console) if console.is_terminal else Lines(console)
