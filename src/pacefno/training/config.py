"""The typed configuration of a run. Frozen, bounded, and an unknown key is an error."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class ConfigError(ValueError):
    """A setting that does not exist or cannot be used; the message names it and what was expected."""


IDENTITY = ("problem", "model", "preset")  # what a run is; everything else can be set


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class OperatorSettings(Settings):
    width: int = Field(32, ge=1, le=1024)
    group_width: int = Field(16, ge=1, le=1024)  # of a group FNO with as many parameters
    modes: int = Field(12, ge=1, le=512)
    layers: int = Field(4, ge=1, le=64)
    head: int = Field(128, ge=1, le=4096)
    # How an FNO makes many frames of many: as channels, from its own output, or as a third axis of its grid.
    frames: Literal["channels", "rollout", "space-time"] = "channels"
    block: int = Field(5, ge=1, le=1000)  # frames that one step of a rollout predicts
    time_modes: int = Field(10, ge=1, le=512)  # of the third axis
    residual: bool = False  # of a forecast: predict the change since the last frame


class LossSettings(Settings):
    """Weights of the paper's terms beside the relative L2 error, with their schedules."""

    # A boost adds its energy to the target: divided by that norm, the samples boosted most would count least.
    relative_to: Literal["unmoved", "moved"] = "unmoved"
    error: Literal["relative", "squared"] = "relative"  # of a forecast: relative L2, or LPSDA's sum of squares
    h1: float = Field(0.0, ge=0)
    h1_schedule: Literal["constant", "ema", "ramp"] = "constant"
    h1_memory: float = Field(0.9, ge=0, lt=1)  # of the moving average that sets the weight to L2/H1 ("ema")
    h1_ramp: float = Field(0.2, gt=0, le=1)  # share of the epochs over which the weight rises from 0 ("ramp")
    equivariance: float = Field(1.0, ge=0)
    anchor: float = Field(0.0, ge=0)
    anchor_decay: float = Field(1.0, gt=0, le=1)  # factor per epoch
    anchor_floor: float = Field(0.0, ge=0)
    invariant: float = Field(0.0, ge=0)


class ScheduleSettings(Settings):
    """Epochs, batches and the learning rate; ``coarse`` is the curriculum over resolutions."""

    epochs: int = Field(100, ge=1)
    batch: int = Field(20, ge=1)
    rate: float = Field(2e-3, gt=0)
    weight_decay: float = Field(1e-4, ge=0)
    optimizer: Literal["adam", "adamw"] = "adam"  # the decay as a gradient, or apart from it
    jitter: float = Field(0.0, ge=0, le=1)  # of a forecaster's frame in training, as a share of the augmentation's strength
    passes: int = Field(1, ge=1)  # over the samples in an epoch; a trajectory has many windows
    shape: Literal["onecycle", "step", "constant"] = "onecycle"
    warmup: float = Field(0.2, ge=0, lt=1)  # share of the steps ("onecycle")
    step_every: int = Field(50, ge=1)  # epochs ("step")
    step_factor: float = Field(0.5, gt=0, le=1)
    clip: float = Field(0.0, ge=0)  # largest gradient norm; 0: none
    coarse: float = Field(0.0, ge=0, le=1)  # share of the epochs on a coarse grid
    coarse_stride: int = Field(4, ge=1)  # every such point of the ID grid
    validate_every: int = Field(1, ge=1)
    checkpoint_every: int = Field(5, ge=1)


class RunConfig(Settings):
    problem: str
    model: str
    preset: str
    seed: int = 42
    operator: OperatorSettings = OperatorSettings()
    loss: LossSettings = LossSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    precision: Literal["32-true", "64-true", "bf16-mixed"] = "32-true"


def with_overrides(config: RunConfig, assignments: list[str]) -> RunConfig:
    """The configuration with ``--set section.key=value`` applied; the type of the setting says how a value is read."""
    document = config.model_dump()
    for assignment in assignments:
        _assign(document, assignment)
    try:
        return RunConfig.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"--set {place}: {first['msg']} (got {first.get('input')!r})") from None


def _assign(document: dict[str, Any], assignment: str) -> None:
    path, equals, text = assignment.partition("=")
    if not equals:
        raise ConfigError(f"--set {assignment}: expected key=value, for example schedule.epochs=50")
    *parents, key = path.strip().split(".")
    if path.strip() in IDENTITY:
        raise ConfigError(f"--set {path}: choose it as an argument of the command, not with --set")
    place = document
    for parent in parents:
        if not isinstance(place.get(parent), dict):
            raise ConfigError(f"--set {path}: there is no section {parent!r}; expected one of {_keys(document)}")
        place = place[parent]
    if key not in place or isinstance(place[key], dict):
        raise ConfigError(f"--set {path}: unknown key; expected one of {_keys(document)}")
    place[key] = text.strip()


def settings_since(stored: dict[str, Any], config: RunConfig) -> str:
    """What differs between a stored configuration and this one; a setting that came later was at its default then."""
    return changed_settings(RunConfig.model_validate(stored).model_dump(), config.model_dump())


def changed_settings(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> str:
    """What differs between two dumped configurations, as text; empty if nothing does."""
    rows = []
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            inner = changed_settings(a, b, f"{prefix}{key}.")
            rows += [inner] if inner else []
        elif a != b:
            rows.append(f"{prefix}{key} was {a!r}, now {b!r}")
    return "; ".join(rows)


def _keys(document: dict[str, Any], prefix: str = "") -> str:
    names = []
    for key, value in document.items():
        names.append(_keys(value, f"{prefix}{key}.") if isinstance(value, dict) else f"{prefix}{key}")
    return ", ".join(names)
