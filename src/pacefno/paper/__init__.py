"""The paper's experiments on top of the library: benchmarks, rows, studies, claims, report.

The library never imports this room. The names below are here so that ``--help`` can list them
without importing torch; a test compares them with the registries.
"""

from __future__ import annotations

BENCHMARK_NAMES = (
    "burgers1d",
    "burgers1d_smooth",
    "burgers2d",
    "burgers3d",
    "shallow_water",
    "navier_stokes",
    "navier_stokes_literal",
    "navier_stokes_velocity",
    "navier_stokes_velocity_10to20",
    "kdv",
    "kdv_easy",
    "kuramoto_sivashinsky",
)
PRESETS = ("smoke", "quick", "standard", "long", "paper")
SEEDS = (42, 1234, 3407)
DATA_SEED = 42  # of the datasets, whatever the seed of a training
