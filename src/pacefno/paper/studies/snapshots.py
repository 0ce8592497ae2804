"""Several snapshots to several: which FNO is most accurate for the same minutes of training?

Snapshots as channels, a network that predicts blocks of five in turn, and one over space and time,
each trained with a schedule that fits the time and scored on the validation samples. Results are
kept as ``frames_to_frames.json``.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from pacefno.data.samples import Source
from pacefno.files import write_text
from pacefno.paper import style
from pacefno.paper.bench import Places
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.presets import config_for, operator_spec, preset_sections
from pacefno.paper.rows import row_named
from pacefno.paper.studies._cells import FOLDER, Cell, Outcome, Say, Table, unreadable
from pacefno.paper.studies._runs import Scope, choose, make_scope
from pacefno.train.config import RunConfig, with_overrides
from pacefno.train.evaluate import load_pairs
from pacefno.train.loop import Callbacks, train
from pacefno.train.objective import PredictionAndFrame, build_model

FILE = "frames_to_frames.json"
CANDIDATES: dict[str, tuple[str, Cell]] = {  # its title, and sizes instead of the preset's
    "channels": ("snapshots as channels", {}),
    "recurrent": ("recurrent, blocks of 5", {"snapshots": "recurrent", "block": 5}),
    "space-time": (
        "space-time, width 12",
        {"snapshots": "space-time", "width": 12, "time_modes": 8},
    ),
}
FORMER_TITLES = {  # in files of earlier versions
    "frames as channels": "snapshots as channels",
    "rollout, blocks of 5": "recurrent, blocks of 5",
}


def run(
    *,
    benchmark: str = "navier_stokes",
    operators: Sequence[str] = (),
    preset: str = "standard",
    minutes: float = 2.0,
    seed: int = 42,
    places: Places,
    say: Say,
) -> Outcome:
    """Train each candidate for about so many ``minutes``, unless its row is there already."""
    scope = make_scope(benchmark, preset, places, say)
    path = places.results / FOLDER / FILE
    for name in choose(operators, list(CANDIDATES), "operator"):
        title = CANDIDATES[name][0]
        identity = {"operator": title, "preset": preset, "minutes": minutes, "seed": seed}
        rows = read_rows(path, benchmark)
        if any(row | identity == row for row in rows):
            continue
        found = identity | measure(scope, name, scope.dataset, minutes, seed)
        say(f"{title}: {found['epochs']} epochs, validation error {found['validation_error']:.4f}")
        kept = [row for row in rows if row["operator"] != title]
        document = {"problem": benchmark, "rows": [*kept, found]}
        write_text(path, json.dumps(document, indent=1) + "\n")
    rows = read_rows(path, benchmark)
    return Outcome(path, [errors_table(rows)], draw(scope.benchmark, rows))


def read_rows(path: Path, benchmark: str) -> list[Cell]:
    """What was measured on a benchmark; nothing if the file is missing or about another one."""
    if not path.exists():
        return []
    try:
        document = json.loads(path.read_text())
        rows = document["rows"] if document["problem"] == benchmark else []
        return [
            row | {"operator": FORMER_TITLES.get(row["operator"], row["operator"])} for row in rows
        ]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise unreadable(path, error) from None


def measure(scope: Scope, name: str, source: Source, minutes: float, seed: int) -> Cell:
    """Train one candidate with as many epochs as fit into the time."""
    config = candidate_config(scope.benchmark, scope.preset, name, seed)
    pairs = load_pairs(source, "train")
    step = seconds_per_step(config, tuple(pairs.input.shape[2:]))
    epochs = max(1, round(60 * minutes / (len(pairs) // config.schedule.batch * step)))
    changes = [f"schedule.epochs={epochs}", "schedule.validate_every=1"]
    config = with_overrides(config, changes)
    with tempfile.TemporaryDirectory() as folder:
        callbacks = Callbacks(on_message=scope.say)
        progress = train(config, source, Path(folder) / "run", callbacks=callbacks)
    return {
        "step_seconds": round(step, 4),
        "epochs": epochs,
        "seconds": round(progress.seconds, 1),
        "validation_error": progress.best_error,
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
    lines = [
        [
            row["operator"],
            f"{row['step_seconds']:.2f}",
            str(row["epochs"]),
            f"{row['seconds']:.0f}",
            f"{row['validation_error']:.4f}",
        ]
        for row in rows
    ]
    columns = ["operator", "a step, s", "epochs", "training, s", "validation error"]
    return Table("Several snapshots to several, in the same time", columns, lines)


def draw(benchmark: Benchmark, rows: list[Cell]) -> list[style.Drawing]:
    """The validation error of each candidate as a bar."""
    figure = style.new_figure(7.0, 0.45 * len(rows) + 1.2)
    axis = figure.subplots()
    names = [f"{row['operator']}; epochs: {row['epochs']}" for row in reversed(rows)]
    bars = axis.barh(names, [row["validation_error"] for row in reversed(rows)], color=style.BLUE)
    axis.bar_label(bars, fmt="%.3f", padding=3, fontsize=8.5, color=style.INK)
    axis.margins(x=0.1)
    style.tidy(axis)
    style.label(axis, x="validation error (relative L2)")
    caption = (
        f"{benchmark.title}: operators that predict several snapshots from several, after about "
        "the same time of training."
    )
    return [style.Drawing(f"{benchmark.name}-snapshots", caption, figure)]
