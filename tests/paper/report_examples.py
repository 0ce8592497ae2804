"""Result rows as ``pacefno bench`` would write them, for the tests of the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pacefno.paper.bench import merge_results
from pacefno.paper.report.collect import Table, collect


def result(model: str, seed: int, ood: float, **others: object) -> dict[str, Any]:
    """One result of 2-D Burgers."""
    return {
        "problem": "burgers2d",
        "model": model,
        "seed": seed,
        "preset": "standard",
        "id_error": 0.02,
        "id_error_fine": 0.02,
        "ood_error": ood,
        "ood_error_canonical": ood,
        "equivariance_error": 1e-7,
        "parameters": 1234,
        "train_seconds": 61.2,
        "ood_seconds": 0.5,
        "device": "cpu",
        "threads": 2,
        "versions": {"pacefno": "0.1.0"},
        "command": f"pacefno bench burgers2d --models {model} --seeds {seed}",
        **others,
    }


def rollout(model: str, seed: int, nmse: float) -> dict[str, Any]:
    """One result of KdV."""
    row = result(model, seed, 0.0)
    for key in ("id_error", "id_error_fine", "ood_error", "ood_error_canonical"):
        del row[key]
    keys = ("nmse", "ood_nmse", "ood_nmse_canonical")
    parts = {f"{key}_frame": nmse / 4 for key in keys} | {
        f"{key}_frames": [nmse / 4] * 4 for key in keys
    }
    return row | {"problem": "kdv_easy"} | dict.fromkeys(keys, nmse) | parts


def several(model: str, *errors: float, **others: object) -> list[dict[str, Any]]:
    """Results of the usual seeds."""
    return [
        result(model, seed, e, **others) for seed, e in zip((42, 1234, 3407), errors, strict=True)
    ]


RESULTS = [
    *several("fno", 0.60, 0.62, 0.64),
    *several("fno-aug", 0.20, 0.21, 0.22),
    *several("fno-nogrid-centred", 0.0200, 0.0212, 0.0203),
    *several("pace", 0.0201, 0.0205, 0.0203),
    result("pace-oracle", 42, 0.0100, equivariance_error=None),
]
ROLLOUTS = [rollout("fno-aug", 42, 0.4), rollout("pace-20", 42, 0.2), rollout("pace-20", 1234, 0.3)]


def write_results(folder: Path) -> Path:
    """A folder of results with a benchmark of pairs and one of trajectories."""
    merge_results(folder, "burgers2d", RESULTS)
    merge_results(folder, "kdv_easy", ROLLOUTS)
    return folder


def table_of(folder: Path, *rows: dict[str, Any], benchmark: str = "burgers2d") -> Table:
    """The table of some results."""
    merge_results(folder, benchmark, list(rows))
    return collect([folder])[benchmark]
