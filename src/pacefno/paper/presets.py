"""From a row, a benchmark and a preset to the settings of a run.

``smoke`` takes seconds and is for tests, ``quick`` minutes, ``standard`` is behind the committed
tables and fits two cores. ``long`` is ``standard`` with as many updates as the paper makes, on the
same data: at most about an hour a model on two cores (trajectories: two). ``paper`` has the paper's
table of hyperparameters, on its hardware; docs/paper.md lists what is a guess of ours in it.
"""

from __future__ import annotations

from typing import Any

from pacefno.files import digest_of
from pacefno.paper import DATA_SEED, PRESETS
from pacefno.paper.benchmarks import Benchmark, Sections
from pacefno.paper.rows import Row, row_named
from pacefno.registry import unknown
from pacefno.task import Task
from pacefno.train import defaults
from pacefno.train.config import (
    ConfigError,
    RunConfig,
    ScheduleSettings,
    make_config,
    with_overrides,
)
from pacefno.train.defaults import frame_spec

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
# Frames are displaced in training by up to half of train_range. Without that the operator sees one
# field of each orbit and overfits, while an augmented FNO sees many.
TRAJECTORY_JITTER = 0.5
# What a row that carries the exact linear part is made of, at any size.
SPLIT_STRUCTURE = ("linear", "activation", *defaults.SPLIT_SETTINGS)


def config_for(
    benchmark: Benchmark, model: str, preset: str, seed: int, data_seed: int = DATA_SEED
) -> RunConfig:
    """The settings of one training: the same for every row, but for what the row is."""
    row = row_named(benchmark.rows, model)
    if preset not in PRESETS:
        raise ConfigError(unknown("preset", preset, PRESETS))
    if not has_preset(row, preset):
        raise ConfigError(
            f"{model!r} trains with settings of its own ({', '.join(row.settings)}), so it has no "
            "preset 'paper': choose 'standard' or 'long'"
        )
    sections = preset_sections(benchmark, row, model, preset)
    task = benchmark.task if row.history is None else benchmark.task.over(row.history)
    operator, scaling = operator_spec(benchmark, row, task, sections["operator"])
    schedule = sections["schedule"] | {"moved": row.moved, "windows": row.windows}
    usual = ScheduleSettings(**schedule)
    schedule |= row.share_of(usual.epochs, usual.batch)
    schedule |= {"coarse": row.coarse} if row.coarse else {}
    labels = {"problem": benchmark.name, "model": model, "preset": preset}
    config = make_config(
        {
            "labels": labels,
            "data": {"seed": data_seed, "digest": data_digest(benchmark, preset, data_seed)},
            "seed": seed,
            "task": task,
            "operator": operator,
            "scaling": scaling,
            "frame": frame_spec(row, task),
            "loss": sections["loss"],
            "schedule": schedule,
        }
    )
    return with_overrides(config, row.settings) if row.settings else config


def has_preset(row: Row, preset: str) -> bool:
    """Whether a row can be trained in a preset: one with settings of its own is not the paper's."""
    return preset != "paper" or not row.settings


def data_preset(preset: str) -> str:
    """The preset whose dataset a training uses."""
    return "standard" if preset == "long" else preset


def data_digest(benchmark: Benchmark, preset: str, seed: int = DATA_SEED) -> str:
    """Short for all that determines a dataset: equal digests mean equal samples.

    Empty for a preset in which the benchmark has none.
    """
    made, recipe = data_preset(preset), benchmark.recipe
    if made not in recipe.sizes:
        return ""
    return digest_of(recipe.document(made, seed, stationary=False))


def trained_as(benchmark: Benchmark, model: str) -> str:
    """The row whose training gives this row its weights."""
    return row_named(benchmark.rows, model).trained_as or model


def preset_sections(benchmark: Benchmark, row: Row, model: str, preset: str) -> Sections:
    """Operator sizes, loss and schedule of a preset."""
    trajectories = benchmark.task.rollout is not None
    operator, schedule = OPERATOR | benchmark.operator, dict(benchmark.schedule)
    loss: dict[str, Any] = {"relative_to": "centred"} if trajectories else {"equivariance": 1.0}
    if row.split:
        operator |= benchmark.split["operator"]
        schedule |= benchmark.split["schedule"]
        loss |= benchmark.split["loss"]
    if preset == "smoke":
        smoke = SMOKE_TRAJECTORIES if trajectories else SMOKE_FIELDS
        operator, schedule = OPERATOR | smoke["operator"], dict(smoke["schedule"])
    elif preset == "quick":
        operator["width"] //= 2
        operator["group_width"] //= 2
        if not trajectories:
            schedule["epochs"] = QUICK_EPOCHS[benchmark.task.dim]
    elif preset == "long":
        # Nothing is tuned: the paper's number of updates, in the batches and shape of `standard`.
        paper = _paper_settings(benchmark)["schedule"]
        schedule["epochs"] = paper["epochs"] * schedule["batch"] // paper["batch"]
        schedule |= {"passes": paper["passes"]} if "passes" in paper else {}
    elif preset == "paper":
        return _paper_sections(benchmark, row, model, operator)
    if trajectories and row.frame is not None and not row.split:
        schedule["jitter"] = TRAJECTORY_JITTER
    return {"operator": operator, "loss": loss, "schedule": schedule}


def _paper_sections(
    benchmark: Benchmark, row: Row, model: str, operator: dict[str, Any]
) -> Sections:
    """In the paper only PACE has the extra loss terms."""
    own = _paper_settings(benchmark)
    schedule = dict(own["schedule"])
    operator = operator | own.get("operator", {}) | own.get("compact", {}).get(model, {})
    if benchmark.task.rollout is not None:
        loss: dict[str, Any] = {"relative_to": "centred"} | own["loss"]
    else:
        loss = {"relative_to": "moved"} | (own["loss"] if row.frame is not None else {})
        if not row.moved:
            schedule |= own.get("plain_schedule", {})
    return {"operator": operator, "loss": loss, "schedule": schedule}


def _paper_settings(benchmark: Benchmark) -> Sections:
    if not benchmark.paper_preset:
        raise ConfigError(f"{benchmark.name} is not in the paper, so it has no paper settings")
    return benchmark.paper_preset


def operator_spec(
    benchmark: Benchmark, row: Row, task: Task, sizes: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """The operator of a row as a specification, and how its inputs are standardised."""
    boxes_differ = task.rollout is not None
    variation = getattr(benchmark.recipe, "variation", 0.1) if boxes_differ else None
    if row.split:
        sizes = sizes | {key: benchmark.split["operator"][key] for key in SPLIT_STRUCTURE}
    return defaults.operator_spec(
        row, task, sizes, benchmark.equation.point_group, benchmark.symmetry, variation
    )
