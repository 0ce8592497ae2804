"""Long predictions from samples of one's own, and their error against time where truth exists."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import Tensor

from pacefno.data.own import FileSource
from pacefno.data.samples import SPLITS, Pairs, Trajectories, evenly
from pacefno.inference import real_weight
from pacefno.pace import PACE, UndeterminedFrameWarning
from pacefno.task import Task
from pacefno.train.batches import pairs_of
from pacefno.train.evaluate import by_snapshot


@final
@dataclass(frozen=True)
class Forecast:
    """Predicted snapshots ``(N, S, C, *grid)`` with their times, and the truth of the first ones.

    ``start`` is the last snapshot that was given, ``(N, C, *grid)``. Errors are relative, ``(N,
    S')``; ``still`` is that of the guess that nothing changes any more.
    """

    start: Tensor
    times: Tensor  # (S,) since the last snapshot that was given, in the units of the data
    prediction: Tensor
    truth: Tensor  # (N, S', C, *grid) with S' from 0 to S
    error: Tensor
    still: Tensor

    def arrays(self) -> dict[str, Tensor]:
        """The arrays to store, by name."""
        found = {"prediction": self.prediction, "start": self.start, "time": self.times}
        if self.truth.shape[1]:
            found |= {"truth": self.truth, "error": self.error, "error_if_still": self.still}
        return found

    def document(self) -> dict[str, Any]:
        """Mean errors against time as plain data; one lost sample makes a mean infinite."""
        known = self.error.shape[1]
        return {
            "samples": len(self.prediction),
            "times": self.times.tolist(),
            "error": self.error.mean(dim=0).tolist(),
            "error_if_still": self.still.mean(dim=0).tolist(),
            "snapshots_with_truth": known,
            "lost": int((~torch.isfinite(self.prediction)).flatten(1).any(dim=1).sum()),
        }


@dataclass(frozen=True)
class Start:
    """What a prediction begins from, ``(N, m * C, *grid)``, and what follows in the file."""

    window: Tensor
    truth: Tensor  # (N, S' * C, *grid), snapshots as far apart as those of the task


def _some_pairs(source: FileSource, splits: Sequence[str], samples: int) -> Pairs:
    """Some pairs of these splits, evenly chosen among all of theirs."""
    parts = [source.load("test_id" if split == "test" else split) for split in splits]
    found, first = list[Pairs](), 0
    chosen = evenly(sum(len(part) for part in parts), samples)
    for part in parts:
        rows = chosen[(chosen >= first) & (chosen < first + len(part))] - first
        found += [pairs_of(part.select(rows))] if len(rows) else []
        first += len(part)
    return Pairs(torch.cat([p.input for p in found]), torch.cat([p.target for p in found]))


def read_start(
    source: FileSource, task: Task, split: str | None, samples: int, snapshots: int
) -> Start:
    """The first snapshots of some samples of a file, and what follows them.

    Of a split, or of the whole file; evenly chosen. ``snapshots`` is how many are predicted.
    """
    apart, history = round(task.spacing), task.input.snapshots
    if not source.settings.arrays:  # pairs: the truth is the target
        few = _some_pairs(source, SPLITS if split is None else (split,), samples)
        return Start(few.input, few.target)
    found = source.trajectories(split)
    count = min(found.snapshots, 1 + (history - 1 + snapshots) * apart)
    read: Trajectories = found.cut(evenly(len(found), samples), 0, count)
    values = read.values.reshape(len(read), count, read.channels, *read.grid)[:, ::apart]
    return Start(values[:, :history].flatten(1, 2), values[:, history:].flatten(1, 2))


def forecast(
    model: PACE,
    task: Task,
    start: Start,
    steps: int,
    *,
    conserve: bool | Sequence[str] = False,
    on_step: Callable[[int], None] | None = None,
) -> Forecast:
    """``steps`` predictions in a row, each of as many snapshots as the task's output has."""
    channels, weight = len(task.input.channels), real_weight(model, start.window)
    window = start.window.to(weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndeterminedFrameWarning)  # once per step is too often
        made = model.rollout(window, steps, conserve=conserve, on_step=on_step)
    flat = made.flatten(1, 2).cpu()  # (N, steps * n * C, *grid)
    count = flat.shape[1] // channels
    known = min(count, start.truth.shape[1] // channels)
    truth = start.truth[:, : known * channels].to(flat)
    last = start.window[:, -channels:].to(flat)
    empty = flat.new_zeros(len(flat), 0, dtype=torch.float64)
    measured = partial(by_snapshot, truth=truth, channels=channels, per_channel=task.per_channel)
    error = measured(flat[:, : known * channels]) if known else empty
    guess = last.repeat(1, known, *[1] * task.dim)
    still = measured(guess) if known else empty
    step = task.spacing * task.output.step
    shape = len(flat), -1, channels, *flat.shape[2:]
    times = step * torch.arange(1, count + 1, dtype=torch.float64)
    return Forecast(last, times, flat.reshape(shape), truth.reshape(shape), error, still)
