"""What tests of training share: small settings, samples in memory, and trajectories of waves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from pacefno.checkpoint import load_checkpoint
from pacefno.data.samples import Grid, Pairs, Trajectories
from pacefno.fields import Box
from pacefno.paper.benchmarks import Benchmark, benchmark_named
from pacefno.paper.presets import config_for
from pacefno.train.config import RunConfig, with_overrides

SMOOTH = "burgers1d_smooth"


@dataclass(frozen=True)
class InMemory:
    """A source of samples that are in memory already; pairs have one grid here."""

    splits: Mapping[str, Pairs | Trajectories]

    def load(self, split: str, grid: Grid = "id") -> Pairs | Trajectories:
        return self.splits[split]


def settings(model: str = "pace", *changes: str, benchmark: str = SMOOTH) -> RunConfig:
    """The settings of a row at `smoke`, with some of them changed."""
    return with_overrides(config_for(benchmark_named(benchmark), model, "smoke", 42), list(changes))


def waves(
    benchmark: str | Benchmark, count: int, snapshots: int, seed: int = 0, points: int = 256
) -> Trajectories:
    """Travelling waves in boxes of their own: no solutions, but all that a model needs to see."""
    chosen = benchmark_named(benchmark) if isinstance(benchmark, str) else benchmark
    nominal = chosen.task.input
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(4, count, dtype=torch.float64, generator=generator)
    length, step = nominal.lengths[0] * (0.9 + 0.2 * draw[0]), nominal.step * (0.9 + 0.2 * draw[1])
    x = torch.arange(points, dtype=torch.float64) / points
    time = torch.arange(snapshots, dtype=torch.float64)[None, :, None] * step[:, None, None]
    angle = 2 * math.pi * (x - time / length[:, None, None] - draw[2][:, None, None])
    u = torch.sin(angle) + 0.5 * torch.cos(2 * angle + draw[3][:, None, None])
    return Trajectories(u + 0.2 * torch.sin(5 * angle), Box(length[:, None], step))


def wave_source(benchmark: str | Benchmark, points: int = 256) -> InMemory:
    """Splits of waves, as many as `smoke` has trajectories."""
    sizes = {"train": 16, "validation": 8, "test": 8}
    return InMemory(
        {
            split: waves(benchmark, count, 140, seed, points)
            for seed, (split, count) in enumerate(sizes.items())
        }
    )


def contents(run: Path) -> dict[str, object]:
    """All that must not depend on interruptions: weights, optimiser, counters, metric log."""
    loaded = load_checkpoint(sorted(run.glob("epoch-*"))[-1])
    documents = {name: value for name, value in loaded.documents.items() if name != "timing"}
    tensors = {
        f"{group}/{name}": tensor.numpy().tobytes()
        for group, members in loaded.tensors.items()
        for name, tensor in members.items()
    }
    return {"tensors": tensors, "documents": documents, "log": (run / "metrics.jsonl").read_bytes()}
