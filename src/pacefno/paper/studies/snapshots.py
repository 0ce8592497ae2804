"""Several snapshots to several: which FNO is most accurate for the same minutes of training?

Snapshots as channels, a network that predicts blocks of five in turn, and one over space and time,
each trained with a schedule that fits the time and scored on the validation samples.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from pacefno.data.samples import Source
from pacefno.paper import style
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.presets import config_for, operator_spec, preset_sections
from pacefno.paper.rows import row_named
from pacefno.paper.studies.base import Cell, Outcome, Scope, Table, choose
from pacefno.train.config import RunConfig, with_overrides
from pacefno.train.evaluate import load_pairs
from pacefno.train.loop import Callbacks, train
from pacefno.train.model import build_model
from pacefno.train.objective import PredictionAndFrame

CANDIDATES: dict[str, tuple[str, Cell]] = {  # its title, and sizes instead of the preset's
    "channels": ("snapshots as channels", {}),
    "recurrent": ("recurrent, blocks of 5", {"snapshots": "recurrent", "block": 5}),
    "space-time": (
        "space-time, width 12",
        {"snapshots": "space-time", "width": 12, "time_modes": 8},
    ),
}


def run(scope: Scope, operators: Sequence[str], minutes: float, seed: int) -> Outcome:
    """Train each candidate for about so many ``minutes``, unless its row is there already."""
    jobs = [
        (
            {"operator": CANDIDATES[name][0], "preset": scope.preset},
            partial(measure, scope, name, minutes, seed),
        )
        for name in choose(operators, list(CANDIDATES), "operator")
    ]
    file = scope.file("snapshots", "operator")
    cells = scope.measured(file, jobs, minutes=minutes, seed=seed)
    return Outcome(file.path, [errors_table(cells)], draw(scope.benchmark, cells))


def measure(
    scope: Scope, name: str, minutes: float, seed: int, source: Source | None = None
) -> Cell:
    """Train one candidate with as many epochs as fit into the time."""
    config = candidate_config(scope.benchmark, scope.preset, name, seed)
    data = source or scope.dataset
    pairs = load_pairs(data, "train")
    step = seconds_per_step(config, tuple(pairs.input.shape[2:]))
    epochs = max(1, round(60 * minutes / (len(pairs) // config.schedule.batch * step)))
    changes = [f"schedule.epochs={epochs}", "schedule.validate_every=1"]
    config = with_overrides(config, changes)
    with tempfile.TemporaryDirectory() as folder:
        callbacks = Callbacks(on_message=scope.say)
        progress = train(config, data, Path(folder) / "run", callbacks=callbacks)
    error = progress.best_error
    scope.say(f"{CANDIDATES[name][0]}: {epochs} epochs, validation error {error:.4f}")
    return {
        "step_seconds": round(step, 4),
        "epochs": epochs,
        "seconds": round(progress.seconds, 1),
        "validation_error": error,
    }


def candidate_config(benchmark: Benchmark, preset: str, name: str, seed: int) -> RunConfig:
    """The settings of the plain FNO of the tables with another operator."""
    config, row = config_for(benchmark, "fno", preset, seed), row_named(benchmark.rows, "fno")
    sizes = preset_sections(benchmark, row, "fno", preset)["operator"] | CANDIDATES[name][1]
    operator, scaling = operator_spec(benchmark, row, config.task, sizes)
    return config.model_copy(update={"operator": operator, "scaling": scaling})


def seconds_per_step(config: RunConfig, grid: tuple[int, ...]) -> float:
    """The best of three training steps on noise of the right shape."""
    module = PredictionAndFrame(build_model(config)).train()
    field = torch.randn(config.schedule.batch, config.task.input.size, *grid)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        module(field)[0].square().mean().backward()
        times.append(time.perf_counter() - began)
    return min(times)


def errors_table(rows: list[Cell]) -> Table:
    """One line for each candidate."""
    form = "{operator}|{step_seconds:.2f}|{epochs}|{seconds:.0f}|{validation_error:.4f}"
    lines = [form.format(**row).split("|") for row in rows]
    columns = ["operator", "a step, s", "epochs", "training, s", "validation error"]
    return Table("Several snapshots to several, in the same time", columns, lines)


def draw(benchmark: Benchmark, rows: list[Cell]) -> list[style.Drawing]:
    """The validation error of each candidate as a bar."""
    figure, ((axis,),) = style.panels(7.0, 0.45 * len(rows) + 1.2)
    names = [f"{row['operator']}; epochs: {row['epochs']}" for row in reversed(rows)]
    bars = axis.barh(names, [row["validation_error"] for row in reversed(rows)], color=style.BLUE)
    axis.bar_label(bars, fmt="%.3f", padding=3, fontsize=8.5, color=style.INK)
    axis.margins(x=0.1)
    style.finish(axis, "validation error (relative L2)")
    caption = (
        f"{benchmark.title}: operators that predict several snapshots from several, after about "
        "the same time of training."
    )
    return [style.Drawing(f"{benchmark.name}-snapshots", caption, figure)]
