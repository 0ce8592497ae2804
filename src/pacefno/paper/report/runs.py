"""The trained models behind a table, and what each makes of a few test samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from pacefno.checkpoint import FINAL, CheckpointError
from pacefno.data.samples import Pairs
from pacefno.fields import Field
from pacefno.inference import Inference, predict_batches
from pacefno.metrics import canonical_error, relative_l2
from pacefno.pace import PACE
from pacefno.paper import PRESETS
from pacefno.paper.bench import load_row, run_folder
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.presets import trained_as
from pacefno.paper.report.collect import Line, Table
from pacefno.train.evaluate import Trained
from pacefno.train.loop import read_log

FEW_SAMPLES = 20  # behind the figures
FRACTIONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the OOD range
DIRECTIONS_SEED = 0


@final
@dataclass(frozen=True)
class Outcome:
    """What one row makes of moved samples: predictions, frames, errors, and how errors grow."""

    model: str
    values: Tensor
    xi: Tensor
    error: Tensor  # (N,)
    growth: Tensor  # (S,): the mean error at each of FRACTIONS


def run_of(table: Table, line: Line, runs: Path, seed: int) -> Path | None:
    """The folder of the run behind a line; None for a row or a preset that is not known here."""
    if line.row is None or seed not in line.seeds or table.preset not in PRESETS:
        return None
    trained = trained_as(table.benchmark, line.model)
    return run_folder(runs, table.benchmark.name, trained, table.preset, seed)


def finished_runs(table: Table, runs: Path) -> dict[str, Path]:
    """The finished runs of the seed that has most of them, by row."""

    def of_seed(seed: int) -> dict[str, Path]:
        found = {line.model: run_of(table, line, runs, seed) for line in table.lines}
        return {model: run for model, run in found.items() if run and (run / FINAL).exists()}

    return max(map(of_seed, table.seeds), key=len)


def load_models(benchmark: Benchmark, runs: dict[str, Path]) -> Iterator[tuple[str, Trained]]:
    """One model after another; one that cannot be loaded, of an older version, is left out."""
    for name, run in runs.items():
        try:
            yield name, load_row(run, benchmark, name)
        except CheckpointError:
            continue


def apply_model(
    benchmark: Benchmark, name: str, model: PACE, plain: Pairs, moved: Pairs
) -> Outcome:
    """The predictions of a row by the code path of the tables, and its errors."""
    inference = benchmark.way(benchmark.rows[name].inference)
    made = predict_batches(model, moved.input, inference, true=moved.elements)
    error = relative_l2(made.values, moved.target, per_channel=benchmark.task.per_channel)
    growth = sweep_errors(model, benchmark, plain, inference).mean(dim=1)
    return Outcome(name, made.values, made.frame.xi, error, growth)


def sweep_errors(
    model: PACE, benchmark: Benchmark, pairs: Pairs, inference: Inference = "one-shot"
) -> Tensor:
    """The errors ``(S, N)`` of samples moved by growing fractions of the largest OOD motion.

    Each sample has signs of its own: at fraction s it is moved by ``s * (+-ood_high)``. Errors are
    measured without the motion, since a boost enlarges the norm that an error is divided by.
    """
    task, (_, high) = benchmark.task, benchmark.ood
    generator = torch.Generator().manual_seed(DIRECTIONS_SEED)
    farthest = task.group.sample(high, high, len(pairs), generator)
    errors = []
    for fraction in FRACTIONS:
        xi = fraction * farthest
        moved, target = (
            task.group.act(Field(values, type), xi).values
            for values, type in ((pairs.input, task.input), (pairs.target, task.output))
        )
        made = predict_batches(model, moved, inference, true=xi).values
        parts = task.group, task.output, xi, made, target
        errors.append(canonical_error(*parts, per_channel=task.per_channel).double())
    return torch.stack(errors)


def typical_sample(outcomes: list[Outcome]) -> int:
    """The sample on which PACE (else the last row) has its median error: not its best or worst."""
    chosen = next((one for one in outcomes if one.model == "pace"), outcomes[-1])
    return int(chosen.error.argsort()[len(chosen.error) // 2])


def training_logs(table: Table, runs: Path) -> dict[str, list[list[dict[str, Any]]]]:
    """The metric logs of all seeds by row; a row that shares another's weights has none."""
    logs: dict[str, list[list[dict[str, Any]]]] = {}
    for line in table.lines:
        if line.row is not None and line.row.trained_as is None:
            folders = [run_of(table, line, runs, seed) for seed in line.seeds]
            found = [log for folder in folders if folder and (log := read_log(folder))]
            logs |= {line.model: found} if found else {}
    return logs
