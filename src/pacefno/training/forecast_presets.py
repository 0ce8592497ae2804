"""What a preset means for trajectories. ``paper`` has LPSDA's sizes, schedule, optimiser and loss; the rest fits two cores.

Where ``paper`` still differs from LPSDA's code: no GELU after the last layer, dx and dt enter as logarithms, and the best
weights are chosen by NMSE instead of the summed squares of a rollout.
"""

from __future__ import annotations

from typing import Any

from pacefno.training.config import ConfigError, RunConfig
from pacefno.training.forecasts import forecast_named

Sections = dict[str, dict[str, Any]]

STANDARD: Sections = {
    "operator": {"modes": 32, "width": 64, "layers": 4, "residual": True},
    "schedule": {
        "epochs": 10,
        "passes": 25,
        "batch": 16,
        "rate": 2e-3,
        "optimizer": "adamw",  # with a decay of 1e-4 inside the gradient errors were two to three times as large
        "weight_decay": 1e-2,
        "validate_every": 1,
        "checkpoint_every": 1,
    },
}
JITTER = 0.5  # without it PACE fits the slice alone, and overfits where the augmentation of its rival is a cure for that
QUICK: Sections = STANDARD | {"operator": STANDARD["operator"] | {"width": 32}}
SMOKE: Sections = {
    "operator": {"modes": 8, "width": 8, "head": 16, "layers": 2, "residual": True},
    "schedule": {"epochs": 4, "passes": 1, "batch": 8, "checkpoint_every": 1},
}
# The rate is the 1e-4 of LPSDA's code after the milestone at 0, which fires when the schedule is made.
PAPER: Sections = {
    "operator": {"modes": 32, "width": 256, "layers": 5},
    "loss": {"error": "squared"},
    "schedule": {
        "epochs": 20,
        "passes": 280,
        "batch": 16,
        "shape": "step",
        "rate": 4e-5,
        "step_every": 5,
        "step_factor": 0.4,
        "optimizer": "adamw",
        "weight_decay": 1e-2,
    },
}
COMPACT = {"modes": 20, "width": 64, "layers": 4}  # the paper's own PACE on one frame, and on twenty of Kuramoto-Sivashinsky
PAPER_COMPACT = {
    ("kdv", "pace-1"),
    ("kdv_easy", "pace-1"),
    ("kuramoto_sivashinsky", "pace-1"),
    ("kuramoto_sivashinsky", "pace-20"),
}
FORECAST_PRESETS: dict[str, Sections] = {"smoke": SMOKE, "quick": QUICK, "standard": STANDARD, "paper": PAPER}


def forecast_config(problem: str, model: str, preset: str, seed: int) -> RunConfig:
    """The settings of one row: the same for every model, but for the paper's own sizes and the jitter of PACE's frame."""
    spec = forecast_named(model)
    if preset not in FORECAST_PRESETS:
        raise ConfigError(f"unknown preset {preset!r}: expected one of {', '.join(FORECAST_PRESETS)}")
    sections = dict(FORECAST_PRESETS[preset])
    if preset == "paper" and (problem, model) in PAPER_COMPACT:
        sections["operator"] = sections["operator"] | COMPACT
    if preset != "paper" and spec.canonical:
        sections["schedule"] = sections["schedule"] | {"jitter": JITTER}
    return RunConfig.model_validate({"problem": problem, "model": model, "preset": preset, "seed": seed, **sections})
