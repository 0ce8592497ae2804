"""From a task and a row to the settings of a run: parts, sizes and a schedule that fit the samples.

The parts of a row are the same on a benchmark and on one's own files. Sizes and schedules here are
those for samples of which nothing is known but their dimension, grid and number.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from pacefno.data.own import FileSource
from pacefno.data.samples import Samples, Source, TrajectorySamples
from pacefno.errors import UsageError
from pacefno.inference import load
from pacefno.pace import PACE
from pacefno.pde.initial import generator_for
from pacefno.registry import import_named, lookup, register, registered, unknown
from pacefno.task import Task
from pacefno.train.config import RunConfig, make_config, with_overrides
from pacefno.train.loop import Callbacks, train
from pacefno.train.rows import FIELD_ROWS, GROUP_FNOS, Row, row_named, trainable

Spec = dict[str, Any]


# --- the parts of a row ---------------------------------------------------------------------------


def operator_spec(
    row: Row,
    task: Task,
    sizes: Mapping[str, Any],
    point_group: str | None,
    symmetry: str | None = None,
    variation: float | None = None,
) -> tuple[Spec, str]:
    """The operator of a row as a specification, and how its inputs are standardised.

    ``point_group`` is that of a group FNO, ``symmetry`` the one over which a symmetrised operator
    is averaged: the elements that keep the slice. ``variation`` is how much the boxes of
    trajectories differ, of which the operator is then told; None where all samples have one box.
    """
    if row.operator in GROUP_FNOS:
        return _group_fno(row, task, sizes, point_group)
    if row.split and task.input.snapshots > 1:
        step, scaling = operator_spec(row, task.over(1), sizes, point_group, symmetry, variation)
        return in_steps(step, task), scaling
    channels = {"in_channels": task.input.size, "out_channels": task.output.size}
    given = channels | {"dim": task.dim, "positions": row.positions}
    given |= {key: sizes[key] for key in ("width", "modes", "layers", "head")}
    given |= {key: sizes[key] for key in ("activation",) if key in sizes}
    if variation is not None:
        if row.split:
            given |= _split_channels(task, sizes)
        told = _told_its_box(row, task, given, variation)
        spec = _split(told, task, sizes) if row.split else _residual(told, task, sizes)
        averaged = row.operator == "symmetrised"
        return _symmetrised(spec, task, symmetry) if averaged else spec, "none"
    if row.operator == "symmetrised":
        spec = _symmetrised(_named("fno", given), task, symmetry)
        return spec, spec["group"]
    how = sizes.get("snapshots", "channels")
    if row.operator == "fno" and how == "space-time":
        return _named("space-time-fno", given | _times(task, sizes)), "channels"
    if row.operator == "fno" and how == "recurrent":
        inner = _named("fno", given | {"out_channels": sizes.get("block", 5)})
        out = task.output.snapshots
        return {"name": "recurrent", "operator": inner, "snapshots_out": out}, "uniform"
    return _residual(_named(row.operator, given), task, sizes), "channels"


def in_steps(operator: Spec, task: Task) -> Spec:
    """The operator of one snapshot repeated until the output of a task is there."""
    seen, made = task.over(1).input.size, task.output.size
    spec = {"part": "operator", "name": "recurrent", "operator": operator}
    return spec | {"snapshots_out": made, "snapshots_in": seen}


def _symmetrised(operator: Spec, task: Task, symmetry: str | None) -> Spec:
    """The operator averaged over the finite symmetries that keep the slice."""
    if symmetry is None:
        raise UsageError(
            "a symmetrised model averages over the finite symmetries of an equation, and those "
            "of your data are not known: build pacefno.Symmetrised with the right group "
            "yourself and train it as --model module:Class"
        )
    # A random element for each sample in training: the most for the time of a plain FNO
    # (docs/symmetries.md).
    average = {"group": symmetry, "samples": 1} | _kinds(task)
    return {"part": "operator", "name": "symmetrised", "operator": operator} | average


def _kinds(task: Task) -> Spec:
    """What an operator that knows a finite group is told about channels."""
    alike = task.input.text == task.output.text
    return {"channels": task.input.text} | ({} if alike else {"output": task.output.text})


def _times(task: Task, sizes: Mapping[str, Any]) -> Spec:
    """What an operator over space and time is given beside the sizes of any other."""
    times = {"snapshots_in": task.input.snapshots, "snapshots_out": task.output.snapshots}
    return times | {"time_modes": sizes["time_modes"]}


def _named(name: str, given: dict[str, Any]) -> Spec:
    """A specification with those of the given settings that the operator takes."""
    wanted = inspect.signature(lookup("operator", name).__init__).parameters
    taken = {key: value for key, value in given.items() if key in wanted}
    return {"part": "operator", "name": name, **taken}


def _told_its_box(row: Row, task: Task, given: dict[str, Any], variation: float) -> Spec:
    """An operator that is told the box of each sample."""
    box = task.dim + 1  # lengths and step, as channels
    network = "fno" if row.operator == "symmetrised" else row.operator
    return {
        "part": "operator",
        "name": "conditioned",
        "operator": _named(network, given | {"in_channels": given["in_channels"] + box}),
        "lengths": list(task.input.lengths),
        "step": task.input.step,
        "variation": variation,
    }


def _split_channels(task: Task, sizes: Mapping[str, Any]) -> dict[str, int]:
    """Those of an operator inside a split step: fields and slopes in, rates or fluxes out."""
    nodes, fluxes = sizes.get("nodes", 1), task.dim if sizes.get("flux", False) else 1
    seen, made = task.input.size * (1 + task.dim) * nodes, task.output.size * fluxes * nodes
    return {"in_channels": seen, "out_channels": made}


SPLIT_SETTINGS = ("points", "flux", "nodes", "keeps_norm")  # of a split step, beside its box


def _split(operator: Spec, task: Task, sizes: Mapping[str, Any]) -> Spec:
    """The operator as the nonlinear part of a step whose linear part is exact."""
    box = {"lengths": list(task.input.lengths), "step": task.input.step}
    given = {key: sizes[key] for key in SPLIT_SETTINGS if key in sizes}
    spec = {"part": "operator", "name": "split-step", "operator": operator}
    return spec | {"linear": sizes["linear"]} | box | given


def _residual(operator: Spec, task: Task, sizes: Mapping[str, Any]) -> Spec:
    """The operator itself, or one that predicts the change if so wished."""
    if not sizes.get("residual", False):
        return operator
    channels = len(task.input.channels)
    return {"part": "operator", "name": "residual", "operator": operator, "channels": channels}


def _group_fno(
    row: Row, task: Task, sizes: Mapping[str, Any], point_group: str | None
) -> tuple[Spec, str]:
    assumed = GROUP_FNOS[row.operator]
    # Turns without mirrors, as in G-FNO: at equal parameters eight elements would take twice the
    # time.
    if point_group is None or (assumed and task.dim not in assumed["groups"]):
        raise UsageError(
            f"{row.operator}: no finite symmetry is assumed in {task.dim} dimensions: train a "
            "pacefno.GroupFNO with the group of your equation as --model module:Class"
        )
    group = assumed["groups"][task.dim] if assumed else {"p4m": "p4"}.get(point_group, point_group)
    width = sizes["width"] if assumed else sizes["group_width"]
    if sizes.get("snapshots") == "space-time":  # without features that are normalised, as in G-FNO
        given = {"width": width, "modes": sizes["modes"], "layers": sizes["layers"]}
        given |= _times(task, sizes) | {"group": group}
        return _named("space-time-fno", given), group
    spec = {
        "part": "operator",
        "name": "group-fno",
        "dim": task.dim,
        "in_channels": task.input.size,
        "out_channels": task.output.size,
        "width": width,
        "modes": sizes["modes"],
        "group": group,
        **({"channels": "scalar"} if assumed else _kinds(task)),
        "layers": sizes["layers"],
        "norm": bool(assumed.get("norm", False)),  # it deletes means, which the others need
    }
    return spec, group


def frame_spec(row: Row, task: Task) -> Spec | None:
    """The frame of a row as a specification; None for a plain operator."""
    turns = "angle" in task.group.coordinates
    special: dict[str, Spec] = {
        "free": {"name": "turning"} if turns else {"name": "equivariant", "aligned": False},
        "regression": {"name": "cnn", "retracted": False},
        "translations": _shifts_alone("equivariant", task),
        "cnn-translations": _shifts_alone("cnn", task),
    }
    return None if row.frame is None else special.get(row.frame, {"name": row.frame})


def _shifts_alone(name: str, task: Task) -> Spec:
    return {"name": "partial", "inner": {"part": "frame", "name": name}, "keep": task.dim}


# --- samples of one's own -------------------------------------------------------------------------

OWN_PRESETS = ("smoke", "quick", "standard")
WIDTHS = {1: 64, 2: 32, 3: 16}  # at `standard`, by dimension; `quick` has half
MODES = {1: 24, 2: 16, 3: 8}  # at most, where the grid holds so many
STEPS = {"smoke": (8, 8, 8), "quick": (1500, 800, 200), "standard": (10000, 5000, 1500)}  # by dim
EPOCHS = {"smoke": 2, "quick": 20, "standard": 50}  # into which the steps are divided
BATCH = {"smoke": 4, "quick": 16, "standard": 16}
VALIDATION_SAMPLES = 256  # of many; weights are chosen after every epoch
NUMBERS_PER_BATCH = 2**18  # of a field; larger samples make smaller batches
# What a group FNO assumes of an equation that is not known: the mirror of a line, quarter turns of
# the plane. The turns of space are too many to be a good guess.
POINT_GROUPS_ASSUMED = {1: "z2", 2: "p4"}
ROUND_OFF = 1e-9  # by which a coordinate may differ from an exact one
PLAIN = "fno"  # the row of an operator of one's own: no frame, not moved
# Rows that say nothing of the operator itself, so that any other can stand in its place.
AROUND_ANY = [
    name
    for name in trainable()
    if (row := FIELD_ROWS[name]).operator == FIELD_ROWS[PLAIN].operator
    and row.positions == FIELD_ROWS[PLAIN].positions
    and not row.settings
]


def own_settings(
    task: Task,
    source: Source,
    model: str = "pace",
    preset: str = "quick",
    seed: int = 42,
    labels: Mapping[str, str] | None = None,
) -> RunConfig:
    """The settings with which a model is trained on samples of one's own.

    Args:
        task: what is predicted from what.
        source: the samples; their number and grid decide over sizes and schedule.
        model: the name of a row (fno, fno-aug, pace, gfno, ...), ``module:Class`` for an operator
            of one's own, or ``row:module:Class`` for a row around it.
        preset: smoke, quick or standard: how long and how large.
        labels: what tables and commands shall know about the run.
    """
    if preset not in OWN_PRESETS:
        raise UsageError(unknown("preset", preset, OWN_PRESETS))
    row, samples = own_row(model), source.load("train")
    if row.moved and row.frame is None and not task.train_range:
        raise UsageError(
            f"{model!r} trains on moved samples, and the task does not say how far they may be "
            f"moved: add train_range, one magnitude for each of {task.group.coordinates}"
        )
    sizes = own_sizes(task, samples.grid, preset)
    point_group = POINT_GROUPS_ASSUMED.get(task.dim)
    operator, scaling = operator_spec(row, task, sizes, point_group)
    schedule = own_schedule(task, samples, preset)
    schedule["moved"] = row.moved and bool(task.train_range)
    schedule |= row.share_of(schedule["epochs"], schedule["batch"])
    # A grid that cannot be halved, or not with these modes, is used whole in all epochs.
    if row.coarse and all(n % 2 == 0 and n // 2 >= 2 * sizes["modes"] - 1 for n in samples.grid):
        schedule |= {"coarse": row.coarse, "coarse_stride": 2}
    config = make_config(
        {
            "labels": {"model": model, "preset": preset, **(labels or {})},
            "data": source.settings.document() if isinstance(source, FileSource) else {},
            "seed": seed,
            "task": task,
            "operator": operator,
            "scaling": scaling,
            "frame": frame_spec(row, task),
            "schedule": schedule,
            "precision": "64-true" if wants_double(source) else "32-true",
            "on_undetermined": "warn",
        }
    )
    return with_overrides(config, row.settings) if row.settings else config


def wants_double(source: Source) -> bool:
    """Whether a task.toml asks for double precision; arrays often have it for no reason."""
    return isinstance(source, FileSource) and source.settings.precision == "float64"


def check_exact(config: RunConfig) -> None:
    """Refuse to train on motions that are no symmetry of a periodic field, such as rotations."""
    group, most = config.task.group, config.task.train_range
    if not config.schedule.moved:
        return
    xi = group.sample([0.0] * group.size, most, 8, generator_for("train_range"))
    apart = (group.composable(xi) - xi).abs().amax(dim=0) > ROUND_OFF
    names = [name for name, far in zip(group.coordinates, apart.tolist(), strict=True) if far]
    if names:
        raise UsageError(
            f"train_range moves training samples along {', '.join(names)}, which is not exact: it "
            "tears a periodic field; set it to 0 there, leave out train_range, or say --inexact "
            "(inexact=True) for fields that vanish towards the boundary"
        )


def own_sizes(task: Task, grid: tuple[int, ...], preset: str) -> dict[str, Any]:
    """Sizes of an operator for a dimension and a grid, which must hold its modes."""
    shrink = {"smoke": 4, "quick": 2, "standard": 1}[preset]
    width = WIDTHS[task.dim] // shrink
    modes = max(1, min(MODES[task.dim] // (4 if preset == "smoke" else 1), (min(grid) + 1) // 2))
    alike = task.input.channels == task.output.channels
    sizes = {"width": width, "group_width": max(2, width // 2), "modes": modes}
    return sizes | {"layers": 4, "head": 4 * width, "residual": alike}


def own_schedule(task: Task, samples: Samples, preset: str) -> dict[str, Any]:
    """About as many steps whatever the number of samples; large samples make small batches."""
    numbers = task.input.size
    for points in samples.grid:
        numbers *= points
    batch = max(1, min(BATCH[preset], len(samples), NUMBERS_PER_BATCH // numbers))
    epochs, per_pass = EPOCHS[preset], len(samples) // batch
    steps = -(-STEPS[preset][task.dim - 1] // epochs)  # of an epoch
    schedule: dict[str, Any] = {"epochs": epochs, "batch": batch, "most_steps": steps}
    schedule |= {"passes": -(-steps // per_pass), "validation_samples": VALIDATION_SAMPLES}
    schedule |= {"rate": 4e-3, "optimizer": "adamw", "weight_decay": 1e-4, "checkpoint_every": 1}
    if isinstance(samples, TrajectorySamples):
        schedule["validation"] = "windows"
    return schedule


def own_row(model: str) -> Row:
    """The row of a model: one of ours by its name, or one around an operator of the user's."""
    name, colon, rest = model.partition(":")
    if not colon:
        row = row_named(FIELD_ROWS, name)
        if row.trained_as:
            raise UsageError(
                f"{model!r} has no training of its own: it uses the weights of "
                f"{row.trained_as!r}; train that"
            )
        return row
    if name in FIELD_ROWS and ":" in rest:
        row = row_named(FIELD_ROWS, name)
        if name not in AROUND_ANY:
            raise UsageError(
                f"{model!r}: {name} cannot be put around an operator of your own, because it "
                f"{'has no training of its own' if row.trained_as else 'says which operator it is'}"
                f": {', '.join(AROUND_ANY)} can"
            )
        return _around(row, import_operator(rest))
    return _around(FIELD_ROWS[PLAIN], import_operator(model))


def _around(row: Row, operator: str) -> Row:
    return replace(row, operator=operator, title=f"{row.title}: {operator}")


def own_operator(model: str | None) -> str:
    """The ``module:attribute`` in what ``--model`` says, alone or after a row: ``pace:mine:Net``.

    Empty where it names a row of ours or nothing.
    """
    row, _, rest = (model or "").partition(":")
    return rest if row in FIELD_ROWS else model or ""


def import_operator(name: str) -> str:
    """Import ``module:Class`` and register it under that name, under which a run stores it.

    Only what the user named is ever imported: a stored run is not asked.
    """
    if name in registered("operator"):
        return name
    if not all(name.partition(":")):
        raise UsageError(
            f"unknown model {name!r}: expected one of {', '.join(trainable())}, or module:Class "
            "with a module here or on the path"
        )
    found = import_named(name)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise UsageError(f"{name}: expected a class of torch.nn.Module, got {found!r}")
    known = registered("operator")
    for other, cls in known.items():
        if cls is found:
            return other
    register("operator", name)(found)
    return name


def fit(
    task: Task,
    source: Source,
    folder: str | Path,
    *,
    model: str = "pace",
    preset: str = "quick",
    seed: int = 42,
    changes: tuple[str, ...] = (),
    inexact: bool = False,
    resume: bool = False,
    callbacks: Callbacks | None = None,
) -> PACE:
    """Train a model on samples of one's own into a folder, and load it from there.

    ``changes`` are settings as ``--set`` takes them: ``("schedule.epochs=50",)``. ``inexact``
    allows rotations in training, which tear a field that does not vanish towards the boundary. See
    :func:`own_settings` for the rest.
    """
    config = with_overrides(own_settings(task, source, model, preset, seed), changes)
    if not inexact:
        check_exact(config)
    train(config, source, Path(folder), resume=resume, callbacks=callbacks)
    return load(folder)
