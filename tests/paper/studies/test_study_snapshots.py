"""Several snapshots to several: every candidate is trained within its time, and only once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pacefno.data.samples import Grid, Pairs
from pacefno.paper.bench import Places, ResultsError
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.studies import snapshots
from pacefno.paper.studies.base import Scope, run_study
from pacefno.paper.studies.snapshots import CANDIDATES, candidate_config, measure

BENCHMARK = benchmark_named("navier_stokes")


@dataclass(frozen=True)
class Waves:
    """Snapshots of travelling waves on a small grid, instead of a solved dataset."""

    def load(self, split: str, grid: Grid = "id") -> Pairs:
        count = 16 if split == "train" else 8
        generator = torch.Generator().manual_seed(count)
        phase = torch.rand(count, 1, 1, 1, generator=generator)
        time = torch.arange(30).reshape(1, -1, 1, 1) / 30
        x, y = torch.meshgrid(torch.arange(16) / 16, torch.arange(16) / 16, indexing="ij")
        values = torch.cos(6.2832 * (x + phase - time)) + torch.sin(6.2832 * (y - phase))
        return Pairs(values[:, :10], values[:, 10:])


@pytest.mark.parametrize("name", list(CANDIDATES))
def test_every_candidate_is_trained_for_as_many_epochs_as_fit(name: str, tmp_path: Path) -> None:
    scope = Scope(BENCHMARK, "smoke", Places(tmp_path, tmp_path, tmp_path))
    row = measure(scope, name, 1e-9, 42, Waves())
    assert row["epochs"] == 1 and row["step_seconds"] > 0
    assert 0 < row["validation_error"] < 10


def test_candidates_differ_in_their_operator_alone() -> None:
    configs = [candidate_config(BENCHMARK, "standard", name, 42) for name in CANDIDATES]
    names = [config.operator["name"] for config in configs]
    assert names == ["fno", "recurrent", "space-time-fno"]
    assert configs[2].operator["width"] == 12 and configs[2].operator["time_modes"] == 8
    assert len({config.schedule for config in configs}) == 1


def test_a_candidate_that_is_there_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def pretend(scope: Any, name: str, *rest: Any) -> Any:
        calls.append(name)
        return {"step_seconds": 0.1, "epochs": 1, "seconds": 6.0, "validation_error": 0.5}

    monkeypatch.setattr(snapshots, "measure", pretend)
    monkeypatch.setattr(Scope, "dataset", None)

    def run(minutes: float) -> Any:
        places = Places(tmp_path, tmp_path, tmp_path)
        return run_study("snapshots", places, print, preset="smoke", minutes=minutes)

    outcome = run(0.1)
    assert run(0.1).tables == outcome.tables and calls == list(CANDIDATES)
    run(0.2)
    assert len(calls) == 6
    document = json.loads((tmp_path / "studies" / "snapshots-navier_stokes.json").read_text())
    assert document["problem"] == "navier_stokes" and len(document["cells"]) == 3
    outcome.path.write_text("[]")
    with pytest.raises(ResultsError, match="snapshots-navier_stokes"):
        run(0.1)
