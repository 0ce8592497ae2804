"""From a row, a benchmark and a preset to the settings of a run.

``smoke`` takes seconds and is for tests, ``quick`` minutes, ``standard`` is behind the committed
tables and fits two cores. ``paper`` has the paper's table of hyperparameters, on its hardware.
"""

from __future__ import annotations

import inspect
from typing import Any

from pacefno.paper import PRESETS
from pacefno.paper.benchmarks import Benchmark, Sections
from pacefno.paper.rows import GROUP_FNOS, Row, row_named
from pacefno.registry import lookup, unknown
from pacefno.task import Task
from pacefno.train.config import ConfigError, RunConfig, make_config

OPERATOR = {"modes": 12, "width": 32, "group_width": 16, "layers": 4, "head": 128}
QUICK_EPOCHS = {1: 80, 2: 20, 3: 10}  # half the samples and width of `standard`: quick epochs
SMOKE_SCHEDULE = {"epochs": 4, "batch": 8, "checkpoint_every": 1}
SMOKE_FIELDS: Sections = {
    "operator": {"modes": 4, "width": 8, "group_width": 4, "head": 16, "layers": 2},
    "schedule": SMOKE_SCHEDULE | {"coarse": 0.5, "coarse_stride": 2},
}
SMOKE_TRAJECTORIES: Sections = {
    "operator": {"modes": 8, "width": 8, "head": 16, "layers": 2, "residual": True},
    "schedule": SMOKE_SCHEDULE,
}
# Without it PACE fits the slice alone, and overfits where its rival's augmentation is a cure.
TRAJECTORY_JITTER = 0.5


def config_for(benchmark: Benchmark, model: str, preset: str, seed: int) -> RunConfig:
    """The settings of one training: the same for every row, but for what the row is."""
    row = row_named(benchmark.rows, model)
    if preset not in PRESETS:
        raise ConfigError(unknown("preset", preset, PRESETS))
    sections = preset_sections(benchmark, row, model, preset)
    task = benchmark.task if row.history is None else benchmark.task.over(row.history)
    operator, scaling = operator_spec(benchmark, row, task, sections["operator"])
    schedule = sections["schedule"] | {"moved": row.moved, "windows": row.windows}
    labels = {"problem": benchmark.name, "model": model, "preset": preset}
    return make_config(
        {
            "labels": labels,
            "seed": seed,
            "task": task,
            "operator": operator,
            "scaling": scaling,
            "frame": frame_spec(row, task),
            "loss": sections["loss"],
            "schedule": schedule,
        }
    )


def trained_as(benchmark: Benchmark, model: str) -> str:
    """The row whose training gives this row its weights."""
    return row_named(benchmark.rows, model).trained_as or model


def preset_sections(benchmark: Benchmark, row: Row, model: str, preset: str) -> Sections:
    """Operator sizes, loss and schedule of a preset."""
    trajectories = benchmark.task.rollout is not None
    operator, schedule = OPERATOR | benchmark.operator, dict(benchmark.schedule)
    loss: dict[str, Any] = {"relative_to": "centred"} if trajectories else {"equivariance": 1.0}
    if preset == "smoke":
        smoke = SMOKE_TRAJECTORIES if trajectories else SMOKE_FIELDS
        operator, schedule = OPERATOR | smoke["operator"], dict(smoke["schedule"])
    elif preset == "quick":
        operator["width"] //= 2
        operator["group_width"] //= 2
        if not trajectories:
            schedule["epochs"] = QUICK_EPOCHS[benchmark.task.dim]
    elif preset == "paper":
        return _paper_sections(benchmark, row, model, operator)
    if trajectories and row.frame is not None:
        schedule["jitter"] = TRAJECTORY_JITTER
    return {"operator": operator, "loss": loss, "schedule": schedule}


def _paper_sections(
    benchmark: Benchmark, row: Row, model: str, operator: dict[str, Any]
) -> Sections:
    """In the paper only PACE has the extra loss terms."""
    own = benchmark.paper_preset
    if not own:
        raise ConfigError(f"{benchmark.name} is not in the paper, so it has no paper settings")
    schedule = dict(own["schedule"])
    operator = operator | own.get("operator", {}) | own.get("compact", {}).get(model, {})
    if benchmark.task.rollout is not None:
        loss: dict[str, Any] = {"relative_to": "centred"} | own["loss"]
    else:
        loss = {"relative_to": "moved"} | (own["loss"] if row.frame is not None else {})
        if not row.moved:
            schedule |= own.get("plain_schedule", {})
    return {"operator": operator, "loss": loss, "schedule": schedule}


# --- parts ----------------------------------------------------------------------------------------


def operator_spec(
    benchmark: Benchmark, row: Row, task: Task, sizes: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """The operator of a row as a specification, and how its inputs are standardised."""
    if row.operator in GROUP_FNOS:
        return _group_fno(benchmark, row, task, sizes)
    channels = {"in_channels": task.input.size, "out_channels": task.output.size}
    given = channels | {"dim": task.dim, "positions": row.positions}
    given |= {key: sizes[key] for key in ("width", "modes", "layers", "head")}
    if task.rollout is not None:
        return _forecaster(benchmark, row, task, sizes, given), "none"
    if row.operator == "symmetrised":
        # A random element for each sample in training: the most for the time of a plain FNO
        # (docs/symmetries.md).
        average = {"group": benchmark.symmetry, "channels": task.input.text, "samples": 1}
        spec = {"part": "operator", "name": "symmetrised", "operator": _named("fno", given)}
        return spec | average, benchmark.symmetry
    how = sizes.get("snapshots", "channels")
    if row.operator == "fno" and how == "space-time":
        return _named("space-time-fno", given | _space_time(task, sizes)), "channels"
    if row.operator == "fno" and how == "recurrent":
        inner = _named("fno", given | {"out_channels": sizes.get("block", 5)})
        out = task.output.snapshots
        return {"name": "recurrent", "operator": inner, "snapshots_out": out}, "uniform"
    return _named(row.operator, given), "channels"


def _space_time(task: Task, sizes: dict[str, Any]) -> dict[str, Any]:
    return {
        "snapshots_in": task.input.snapshots,
        "snapshots_out": task.output.snapshots,
        "time_modes": sizes["time_modes"],
    }


def _named(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """A specification with those of the given settings that the operator takes."""
    wanted = inspect.signature(lookup("operator", name).__init__).parameters
    taken = {key: value for key, value in given.items() if key in wanted}
    return {"part": "operator", "name": name, **taken}


def _forecaster(
    benchmark: Benchmark, row: Row, task: Task, sizes: dict[str, Any], given: dict[str, Any]
) -> dict[str, Any]:
    """An operator that is told the box of each sample, and predicts the change if so wished."""
    box = task.dim + 1  # lengths and step, as channels
    inner = _named(row.operator, given | {"in_channels": task.input.size + box})
    told = {
        "part": "operator",
        "name": "conditioned",
        "operator": inner,
        "lengths": list(task.input.lengths),
        "step": task.input.step,
        "variation": getattr(benchmark.recipe, "variation", 0.1),
    }
    if not sizes.get("residual", False):
        return told
    channels = len(task.input.channels)
    return {"part": "operator", "name": "residual", "operator": told, "channels": channels}


def _group_fno(
    benchmark: Benchmark, row: Row, task: Task, sizes: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    assumed = GROUP_FNOS[row.operator]
    own = benchmark.equation.point_group
    # Turns without mirrors, as in G-FNO: at equal parameters eight elements would take twice the
    # time.
    group = assumed["groups"][task.dim] if assumed else {"p4m": "p4"}.get(own, own)
    spec = {
        "part": "operator",
        "name": "group-fno",
        "dim": task.dim,
        "in_channels": task.input.size,
        "out_channels": task.output.size,
        "width": sizes["width"] if assumed else sizes["group_width"],
        "modes": sizes["modes"],
        "group": group,
        "channels": "scalar" if assumed else task.input.text,
        "layers": sizes["layers"],
        "norm": bool(assumed.get("norm", False)),  # it deletes means, which the others need
    }
    return spec, group


def frame_spec(row: Row, task: Task) -> dict[str, Any] | None:
    """The frame of a row as a specification; None for a plain operator."""
    turns = task.group.spatial > task.dim
    special: dict[str, dict[str, Any]] = {
        "free": {"name": "turning"} if turns else {"name": "equivariant", "aligned": False},
        "regression": {"name": "cnn", "retracted": False},
        "translations": {
            "name": "partial",
            "inner": {"part": "frame", "name": "equivariant"},
            "keep": task.dim,
        },
    }
    return None if row.frame is None else special.get(row.frame, {"name": row.frame})
