"""Which settings a preset means for each problem. ``paper`` is the paper's table to the letter; the rest fits two cores."""

from __future__ import annotations

from typing import Any

from pacefno.equations import TRAJECTORY_PROBLEMS, problem_named
from pacefno.symmetry import Euclidean
from pacefno.training.config import ConfigError, RunConfig
from pacefno.training.forecast_presets import forecast_config
from pacefno.training.models import model_named

Sections = dict[str, dict[str, Any]]

# Operator sizes of the paper's table of hyperparameters.
OPERATORS: dict[str, dict[str, Any]] = {
    "burgers1d": {"modes": 20, "width": 64, "group_width": 45},
    "burgers1d_smooth": {"modes": 20, "width": 64, "group_width": 45},
    "burgers2d": {"modes": 12, "width": 32},
    "shallow_water": {"modes": 16, "width": 32},
    "navier_stokes": {"modes": 12, "width": 32},
    "navier_stokes_literal": {"modes": 12, "width": 32},
}

ONE_DIMENSION = {"epochs": 50, "batch": 20, "rate": 4e-3, "coarse": 0.8, "coarse_stride": 4, "validate_every": 5}
TWO_DIMENSIONS = {"epochs": 24, "batch": 20, "rate": 4e-3, "coarse": 0.875, "coarse_stride": 2, "validate_every": 2}
# Vorticity has waves that half the grid cannot hold, and an estimator must see the seams: no coarse epochs.
ROTATIONS = TWO_DIMENSIONS | {"epochs": 16, "coarse": 0.0}
SCHEDULES = {
    name: ONE_DIMENSION
    if problem_named(name).dim == 1
    else ROTATIONS
    if isinstance(problem_named(name).group, Euclidean)
    else TWO_DIMENSIONS
    for name in OPERATORS
}
STANDARD: dict[str, Sections] = {
    name: {"operator": operator, "schedule": SCHEDULES[name]} for name, operator in OPERATORS.items()
}

QUICK_EPOCHS = {1: 80, 2: 20}  # half the samples and half the width of `standard`, so an epoch is quick
QUICK: dict[str, Sections] = {
    name: {
        "operator": operator | {"width": operator["width"] // 2, "group_width": operator.get("group_width", 16) // 2},
        "schedule": SCHEDULES[name] | {"epochs": QUICK_EPOCHS[problem_named(name).dim]},
    }
    for name, operator in OPERATORS.items()
}

SMOKE: dict[str, Sections] = {
    name: {
        "operator": {"modes": 4, "width": 8, "group_width": 4, "head": 16, "layers": 2},
        "schedule": {"epochs": 4, "batch": 8, "coarse": 0.5, "coarse_stride": 2, "checkpoint_every": 1},
    }
    for name in OPERATORS
}

_STEP = {"shape": "step", "rate": 1e-3, "weight_decay": 1e-4, "batch": 20, "epochs": 500, "coarse": 0.0}
_MOVED = {"relative_to": "moved"}
PAPER: dict[str, Sections] = {
    "burgers1d": {
        "schedule": _STEP | {"step_every": 50, "step_factor": 0.5},
        "loss": _MOVED | {"h1": 1.0, "h1_schedule": "ema", "equivariance": 10.0},
    },
    "burgers2d": {
        "schedule": _STEP | {"step_every": 100, "step_factor": 0.5},
        "loss": _MOVED | {"h1": 5.0, "equivariance": 1.0, "anchor": 5.0},
    },
    "shallow_water": {
        "schedule": _STEP | {"step_every": 100, "step_factor": 0.2},
        "loss": _MOVED | {"h1": 1.0, "h1_schedule": "ramp", "equivariance": 10.0, "anchor": 5.0, "invariant": 0.5},
    },
    "navier_stokes": {
        "schedule": _STEP | {"step_every": 100, "step_factor": 0.5, "rate": 2.5e-3, "batch": 10, "epochs": 100},
        "loss": _MOVED | {"h1": 5.0, "equivariance": 1.0, "anchor": 20.0, "anchor_decay": 0.85, "anchor_floor": 0.1},
        "operator": {"modes": 10, "width": 20, "group_width": 10, "frames": "space-time", "time_modes": 10},
    },
}
PAPER["burgers1d_smooth"] = PAPER["burgers1d"]
PAPER["navier_stokes_literal"] = PAPER["navier_stokes"]
for _name, _operator in OPERATORS.items():
    PAPER[_name] = {"operator": _operator} | PAPER[_name]

PRESETS: dict[str, dict[str, Sections]] = {"smoke": SMOKE, "quick": QUICK, "standard": STANDARD, "paper": PAPER}


def config_for(problem: str, model: str, preset: str, seed: int) -> RunConfig:
    """The settings of one table row. In the paper's preset only PACE has the extra loss terms, as there."""
    if problem in TRAJECTORY_PROBLEMS:
        return forecast_config(problem, model, preset, seed)
    problem_named(problem)
    spec = model_named(model)
    if preset not in PRESETS:
        raise ConfigError(f"unknown preset {preset!r}: expected one of {', '.join(PRESETS)}")
    if problem not in PRESETS[preset]:
        raise ConfigError(f"no {preset} settings for {problem!r}: expected one of {', '.join(PRESETS[preset])}")
    sections = dict(PRESETS[preset][problem])
    if spec.frame is None and preset == "paper":
        sections["loss"] = _MOVED
    if preset == "paper" and problem == "shallow_water" and not spec.perturb:
        sections["schedule"] = sections["schedule"] | {"weight_decay": 1e-3}  # the paper's footnote for FNO and GFNO
    return RunConfig.model_validate({"problem": problem, "model": model, "preset": preset, "seed": seed, **sections})


def trained_row(model: str) -> str:
    """The row whose training gives this row its weights."""
    return model_named(model).trained_as or model
