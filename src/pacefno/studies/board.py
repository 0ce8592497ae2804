"""The live view of a benchmark: one table of trainings with progress, results and time left; plain lines in a log file."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from pacefno.console import say
from pacefno.studies.bench import Task
from pacefno.studies.results import Row
from pacefno.training.kinds import kind_of
from pacefno.training.loop import Hooks
from pacefno.training.presets import config_for
from pacefno.training.state import Progress

LINE_EVERY = 30.0  # seconds between lines in a log file


class Board:
    """Shows the state of every task; ``with`` leaves the terminal as it was."""

    def __init__(self, tasks: list[Task], missing: dict[Task, int]) -> None:
        self._console = Console(stderr=True)
        self._state = {task: "waiting" if missing[task] else "done before" for task in tasks}
        self._score: dict[Task, str] = {task: "" for task in tasks}
        self._began = time.monotonic()
        self._todo = sum(1 for task in tasks if missing[task])
        self._finished = 0
        self._last_line = 0.0
        self._live = Live(self._table(), console=self._console, refresh_per_second=2) if self._console.is_terminal else None

    def __enter__(self) -> Board:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def hooks(self, task: Task) -> Hooks:
        """What a training of this task reports to the board."""
        times: list[float] = []

        def on_step(progress: Progress, steps_per_epoch: int) -> None:
            times.append(time.monotonic())
            share = progress.step / (steps_per_epoch * self._epochs(task))
            per_step = (times[-1] - times[0]) / max(1, len(times) - 1)
            left = per_step * (steps_per_epoch * self._epochs(task) - progress.step)
            loss = f", error {progress.log[-1]['l2']:.4f}" if progress.log else ""
            self._set(task, f"{share:4.0%}, {left:4.0f} s left{loss}")

        return Hooks(on_step=on_step, on_message=say)

    def scored(self, task: Task, row: Row) -> None:
        self._score[task] = f"{row['model']}: {kind_of(task.problem).headline(row)}"
        self._set(task, "scored")
        if not self._live:
            say(f"{task.title}: {self._score[task]}")

    def done(self, task: Task) -> None:
        self._finished += 1
        self._set(task, "done")
        if not self._live:
            say(f"{task.title}: done, {self._finished} of {self._todo} trainings{self._left()}")

    def _epochs(self, task: Task) -> int:
        return config_for(task.problem, task.trained, task.preset, task.seed).schedule.epochs

    def _left(self) -> str:
        if not self._finished:
            return ""
        seconds = (time.monotonic() - self._began) / self._finished * (self._todo - self._finished)
        return f", about {seconds / 60:.0f} minutes left"

    def _set(self, task: Task, text: str) -> None:
        self._state[task] = text
        if self._live:
            self._live.update(self._table())
        elif time.monotonic() - self._last_line > LINE_EVERY:
            self._last_line = time.monotonic()
            say(f"{task.title}: {text}")

    def _table(self) -> Table:
        table = Table(title=f"{self._finished} of {self._todo} trainings done{self._left()}", title_justify="left")
        for name in ("training", "state", "last row"):
            table.add_column(name)
        for task, state in self._state.items():
            table.add_row(task.title, state, self._score[task])
        return table
