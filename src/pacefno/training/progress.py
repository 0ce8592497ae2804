"""How far a training is: a bar with the time left on a terminal, plain lines in a log file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pacefno.console import is_first_process, say
from pacefno.training.config import RunConfig
from pacefno.training.loop import Hooks
from pacefno.training.state import Progress as TrainingProgress

LINES = 20  # about so many lines for a whole training in a log file


@contextmanager
def training_progress(config: RunConfig) -> Iterator[Hooks]:
    """Hooks that show a training's progress in the way that suits the console."""
    console = Console(stderr=True)
    title = f"{config.problem} {config.model} seed {config.seed}"
    if not console.is_terminal or not is_first_process():
        yield Hooks(on_epoch=_lines(title, config.schedule.epochs), on_message=say)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("gone,"),
        TimeRemainingColumn(),
        TextColumn("left, {task.fields[note]}"),
    )
    with Progress(*columns, console=console, speed_estimate_period=120) as bar:
        task = bar.add_task(title, total=None, note="")

        def on_step(progress: TrainingProgress, steps_per_epoch: int) -> None:
            bar.update(task, total=config.schedule.epochs * steps_per_epoch, completed=progress.step)

        def on_epoch(progress: TrainingProgress) -> None:
            bar.update(task, note=f"epoch {progress.epoch}, {_note(progress)}")

        yield Hooks(on_step=on_step, on_epoch=on_epoch, on_message=lambda text: bar.console.print(text, highlight=False))


def _note(progress: TrainingProgress) -> str:
    loss = progress.log[-1]["loss"]
    best = f", best validation {progress.best_error:.4f}" if progress.best_epoch else ""
    return f"loss {loss:.4f}{best}"


def _lines(title: str, epochs: int) -> Callable[[TrainingProgress], None]:
    """A line now and then: the first epoch, the last, and a few between."""
    every = max(1, epochs // LINES)
    began = time.monotonic()
    first: list[int] = []

    def on_epoch(progress: TrainingProgress) -> None:
        first.append(progress.epoch)
        if progress.epoch % every and progress.epoch not in (1, epochs):
            return
        per_epoch = (time.monotonic() - began) / (progress.epoch - first[0] + 1)
        left = per_epoch * (epochs - progress.epoch)
        say(f"{title}: epoch {progress.epoch} of {epochs}, {_note(progress)}, about {left:.0f} s left")

    return on_epoch
