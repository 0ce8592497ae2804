"""The settings of a training: frozen, bounded, complete. An unknown or useless one is an error."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from pacefno.checkpoint import CheckpointError
from pacefno.errors import UsageError
from pacefno.groups import POINT_GROUPS
from pacefno.registry import lookup, unknown
from pacefno.task import Settings, Task, check_named, first_fault


class ConfigError(UsageError):
    """A setting that does not exist or cannot be used; the message says what was expected."""


class LossSettings(Settings):
    """Weights of the paper's terms beside the error of the prediction, with their schedules."""

    # |p - y| / |r| of each sample: its mean, or the root of its mean square, in which the samples
    # that are hardest count most; or LPSDA's sum of squares |p - y|^2.
    error: Literal["relative", "root-mean-square", "squared"] = "relative"
    # What the error is relative to. A boost adds its own energy to a target: divided by that norm,
    # the samples boosted most would count least. "centred" is the target without its mean.
    relative_to: Literal["unmoved", "moved", "centred"] = "unmoved"
    # Waves of n periods in the box count 1 / (1 + (n / this)^2) in the error: in a long prediction
    # the errors of long waves add up, those of short ones do not. 0: all alike.
    long_waves: float = Field(0.0, ge=0)
    h1: float = Field(0.0, ge=0)
    h1_schedule: Literal["constant", "ema", "ramp"] = "constant"
    h1_memory: float = Field(0.9, ge=0, lt=1)  # of the average that sets the weight ("ema")
    h1_ramp: float = Field(0.2, gt=0, le=1)  # share of the epochs over which it rises ("ramp")
    # How far the frame may differ from the element that moved a sample: only for data that lie on
    # the slice, as generated ones do. Anywhere else it would teach the frame the wrong thing.
    equivariance: float = Field(0.0, ge=0)
    anchor: float = Field(0.0, ge=0)
    anchor_decay: float = Field(1.0, gt=0, le=1)  # factor per epoch
    anchor_floor: float = Field(0.0, ge=0)
    invariant: float = Field(0.0, ge=0)
    # Gradient balancing (GradNorm's idea): the weights of the two frame terms are multiplied so
    # that each of their gradients on the frame is this many times that of the error; 0: constant.
    balance: float = Field(0.0, ge=0)
    balance_memory: float = Field(0.9, ge=0, lt=1)  # of the averages that set the factors


class ScheduleSettings(Settings):
    """Epochs, batches, the learning rate, and what the samples of an epoch are."""

    epochs: int = Field(100, ge=1)
    passes: int = Field(1, ge=1)  # over the samples in an epoch; a trajectory has many windows
    most_steps: int | None = Field(None, ge=1)  # in an epoch, where the samples are many
    batch: int = Field(20, ge=1)
    rate: float = Field(2e-3, gt=0)
    weight_decay: float = Field(1e-4, ge=0)
    optimizer: Literal["adam", "adamw"] = "adam"  # the decay inside the gradient, or apart from it
    shape: Literal["onecycle", "step", "constant"] = "onecycle"
    warmup: float = Field(0.2, ge=0, lt=1)  # share of the steps ("onecycle")
    step_every: int = Field(50, ge=1)  # epochs ("step")
    step_factor: float = Field(0.5, gt=0, le=1)
    clip: float = Field(0.0, ge=0)  # largest gradient norm; 0: none
    # Weights are averaged over about the last 1 / (1 - average) updates, and the average is what is
    # validated and kept; 0: the weights as they are.
    average: float = Field(0.0, ge=0, lt=1)
    coarse: float = Field(0.0, ge=0, le=1)  # share of the epochs on a coarse grid
    coarse_stride: int = Field(4, ge=1)  # every such point of the training grid
    moved: bool = False  # train on samples moved within the task's range (Algorithm 1, lines 2-3)
    jitter: float = Field(0.0, ge=0, le=1)  # displaces frames in training, as a share of that range
    windows: Literal["anywhere", "blocks"] = "anywhere"  # where a window of a trajectory may begin
    # Steps that are trained in a row on trajectories: each prediction is the input of the next.
    unroll: int = Field(1, ge=1)
    # By what weights are chosen on trajectories: long predictions, or single windows.
    validation: Literal["rollout", "windows"] = "rollout"
    validation_samples: int | None = Field(None, ge=1)  # at most, evenly chosen
    validate_every: int = Field(1, ge=1)
    checkpoint_every: int = Field(5, ge=1)

    def updates(self, samples: int) -> int:
        """Updates in an epoch: whole batches only, the rest of a shuffled pass is left out."""
        updates = self.passes * (samples // self.batch)
        return updates if self.most_steps is None else min(updates, self.most_steps)


class RunConfig(Settings):
    """Everything that a run is: the task, the model and how it is trained.

    ``operator`` and ``frame`` are specifications of registered parts, ``{"name": ..., settings}``;
    without a frame the model is the plain operator. ``scaling`` says how inputs and outputs are
    standardised: each channel by itself ("channels"), all alike ("uniform"), not at all ("none"),
    or in the way that commutes with a point group (its name). ``data`` is what determines the
    samples, so that a training never goes on with others; empty where nobody can tell. ``labels``
    are for people and tables.
    """

    labels: dict[str, str] = Field(default_factory=dict)
    data: dict[str, Any] = Field(default_factory=dict)
    seed: int = 42
    task: Task
    operator: dict[str, Any]
    scaling: str = "channels"
    frame: dict[str, Any] | None = None
    loss: LossSettings = LossSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    precision: Literal["32-true", "64-true", "bf16-mixed"] = "32-true"
    # What the trained model does with a field that does not determine its frame. Benchmarks ignore
    # it: such a sample keeps its large error in the mean.
    on_undetermined: Literal["warn", "raise", "ignore"] = "ignore"

    @model_validator(mode="after")
    def _consistent(self) -> RunConfig:
        check_part("operator", self.operator)
        if self.frame is not None:
            check_part("frame", self.frame)
        if self.scaling not in ("channels", "uniform", "none", *POINT_GROUPS):
            raise UsageError(
                unknown("scaling", self.scaling, ["channels", "uniform", "none", *POINT_GROUPS])
            )
        schedule, loss = self.schedule, self.loss
        if schedule.jitter and self.frame is None:
            raise UsageError(
                "schedule.jitter displaces frames, and this model has none: leave it out"
            )
        if schedule.jitter and not self.task.train_range:
            raise UsageError("schedule.jitter is a share of the task's train_range, which has none")
        if schedule.windows != "anywhere" and self.task.rollout is None:
            raise UsageError("schedule.windows is for trajectories, and this task has pairs")
        if schedule.unroll > 1 and self.task.rollout is None:
            raise UsageError("schedule.unroll is for trajectories, and this task has pairs")
        if schedule.unroll > 1 and self.frame is not None and (loss.equivariance or loss.anchor):
            raise UsageError(
                "schedule.unroll: from the second step on the input is a prediction, whose true "
                "frame is not known: set loss.equivariance and loss.anchor, which need it, to 0"
            )
        if schedule.moved and not self.task.train_range:
            raise UsageError("schedule.moved needs a train_range in the task: how far to move")
        beside = ["h1", "invariant"] + ["equivariance", "anchor"] * (self.frame is not None)
        used = [f"loss.{name}" for name in beside if getattr(loss, name)]
        if loss.error != "relative" and used:
            raise UsageError(
                f"{', '.join(used)}: these terms belong to a relative error; set them to 0 with "
                f"loss.error = {loss.error}"
            )
        if loss.long_waves and (loss.error == "squared" or loss.h1 or loss.invariant):
            raise UsageError(
                "loss.long_waves changes what a relative error is: leave it out with loss.error = "
                "squared, loss.h1 and loss.invariant"
            )
        if loss.balance and (self.frame is None or not (loss.equivariance or loss.anchor)):
            raise UsageError(
                "loss.balance weighs loss.equivariance and loss.anchor of a learned frame: this "
                "run has none of them, so leave it out"
            )
        if self.precision == "bf16-mixed" and self.task.rollout is not None:
            raise UsageError(
                "precision: bf16-mixed would round the lengths of boxes to three digits: "
                "use 32-true or 64-true"
            )
        return self


def check_part(part: str, spec: dict[str, Any]) -> None:
    """Refuse a specification with an unknown name or a setting that its class does not take."""
    try:
        check_named(part, spec)
    except UsageError as error:
        raise UsageError(f"{part}: {error}") from None
    known = list(_parameters(part, spec))
    for key, value in spec.items():
        if key not in ("part", "name", *known):
            raise UsageError(unknown(f"setting of {part} {spec['name']!r}", key, known))
        if isinstance(value, dict) and "name" in value:
            check_part(value.get("part", "operator"), value)


def _parameters(part: str, spec: dict[str, Any]) -> dict[str, inspect.Parameter]:
    """What the class of a part can be given, by name."""
    taken = inspect.signature(lookup(part, spec["name"]).__init__).parameters
    return {name: parameter for name, parameter in taken.items() if name != "self"}


def make_config(document: dict[str, Any], what: str = "settings") -> RunConfig:
    """The configuration of a document; a fault is one sentence that names the entry."""
    try:
        return RunConfig.model_validate(document)
    except ValidationError as error:
        raise ConfigError(f"{what}: {first_fault(error, RunConfig)}") from None


def stored_config(run: Path, documents: Mapping[str, Any]) -> RunConfig:
    """The configuration in a run's checkpoint; settings that came later have their defaults."""
    try:
        return make_config(documents["config"], "its settings")
    except (KeyError, ConfigError) as error:
        why = f"has no {error}" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(
            run,
            f"is not a run of this version of pacefno, or not a run at all ({why}): "
            "name another folder, or delete this one",
        ) from None


# --- changes from the command line ----------------------------------------------------------------


def with_overrides(config: RunConfig, assignments: Sequence[str]) -> RunConfig:
    """The configuration with ``--set section.key=value`` applied."""
    document = config.model_dump(mode="json")
    for assignment in assignments:
        _assign(document, assignment)
    changed = make_config(document, "--set")
    for assignment in assignments:
        _check_of_use(config, changed, assignment.partition("=")[0].strip())
    return changed


# Settings, what they need in order to do anything, and what to call that. Presets are not asked:
# they set a weight for all rows, whether a row has the term or not.
NEEDS: tuple[tuple[str, Callable[[RunConfig], object], str], ...] = (
    ("loss.equivariance loss.anchor", lambda c: c.frame, "a model with a frame, such as pace"),
    ("loss.anchor_decay loss.anchor_floor", lambda c: c.loss.anchor, "loss.anchor"),
    ("loss.h1_schedule", lambda c: c.loss.h1, "loss.h1"),
    ("loss.h1_memory", lambda c: c.loss.h1_schedule == "ema", "loss.h1_schedule=ema"),
    ("loss.h1_ramp", lambda c: c.loss.h1_schedule == "ramp", "loss.h1_schedule=ramp"),
    ("loss.balance_memory", lambda c: c.loss.balance, "loss.balance"),
    ("loss.relative_to", lambda c: c.loss.error != "squared", "another loss.error than squared"),
    ("schedule.validation", lambda c: c.task.rollout, "a task with [rollout]"),
    ("schedule.step_every schedule.step_factor", lambda c: c.schedule.shape == "step",
     "schedule.shape=step"),
    ("schedule.warmup", lambda c: c.schedule.shape == "onecycle", "schedule.shape=onecycle"),
    ("schedule.coarse_stride", lambda c: c.schedule.coarse, "schedule.coarse"),
)  # fmt: skip


def _check_of_use(old: RunConfig, new: RunConfig, key: str) -> None:
    """Refuse a changed setting that has no effect in this configuration; 0 is always allowed."""
    for keys, is_met, what in NEEDS:
        if key in keys.split() and not is_met(new):
            section, _, name = key.partition(".")
            before, after = (getattr(getattr(config, section), name) for config in (old, new))
            if after and after != before:
                raise ConfigError(f"--set: {key} does nothing here: it needs {what}")


def settable(document: dict[str, Any]) -> list[str]:
    """All keys that ``--set`` can change, ``section.key`` or ``key``."""
    sections = {name: document[name] for name in ("loss", "schedule")}
    keys = [f"{section}.{key}" for section, values in sections.items() for key in values]
    parts = {"operator": innermost(document["operator"]), "frame": document["frame"]}
    for part, spec in parts.items():
        known = _parameters(part, spec) if spec else ()
        keys += [f"{part}.{key}" for key in known if key not in _GIVEN]
    return ["seed", "precision", *keys]


# What a part is given by the task and by the row, and what is no plain value.
_GIVEN = ("dim", "in_channels", "out_channels", "group", "type", "slice", "inner", "channels")


def innermost(spec: dict[str, Any]) -> dict[str, Any]:
    """The operator inside the ones that wrap it: the one whose sizes people mean."""
    inner = spec.get("operator")
    return innermost(inner) if isinstance(inner, dict) else spec


def _assign(document: dict[str, Any], assignment: str) -> None:
    path, equals, text = assignment.partition("=")
    path, text = path.strip(), text.strip()
    if not equals:
        raise ConfigError(f"--set {assignment}: expected key=value, for example schedule.epochs=50")
    keys = settable(document)
    if path not in keys:
        if tails := [key for key in keys if key.rpartition(".")[2] == path]:
            raise ConfigError(f"--set {path}: say {' or '.join(tails)}")
        raise ConfigError(f"--set: {unknown('setting', path, keys)}")
    section, _, key = path.rpartition(".")
    place = document[section] if section else document
    place = innermost(place) if section == "operator" else place
    value = _value(text)
    if section in ("operator", "frame"):  # the settings of parts have no schema of their own
        _check_alike(path, place.get(key, _parameters(section, place)[key].default), value)
    place[key] = value


def _check_alike(path: str, old: Any, new: Any) -> None:
    """Refuse a value of another kind than the one that it replaces."""
    for kind, wanted, accepted in (
        (bool, "true or false", bool),
        (int, "a whole number", int | list),
        (float, "a number", int | float),
        (str, "a word", str | None),
    ):
        if isinstance(old, kind):
            fits = isinstance(new, accepted) and (kind is bool or not isinstance(new, bool))
            if not fits:
                raise ConfigError(f"--set: {path}: expected {wanted}, got {new!r}")
            return


def _value(text: str) -> Any:
    """Numbers, true, false, null and lists as JSON; anything else is text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
