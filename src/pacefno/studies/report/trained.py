"""The trained models behind a table, and a few test samples with what every model makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from pacefno.data import Dataset, DatasetError, Samples, open_dataset
from pacefno.data.shards import read_shard
from pacefno.equations import Problem
from pacefno.metrics import relative_l2
from pacefno.pace import PACE
from pacefno.studies.bench import DATA_SEED
from pacefno.studies.report.collect import Line, Table
from pacefno.training.commands import dataset_folder
from pacefno.training.evaluate import predict_split
from pacefno.training.load import load_run
from pacefno.training.models import ModelSpec, model_named
from pacefno.training.presets import PRESETS, config_for, trained_row
from pacefno.training.run import run_folder
from pacefno.training.store import CheckpointError

FEW = 20  # samples behind the figures


@final
@dataclass(frozen=True)
class TrainedRow:
    """One model of a table with its weights."""

    name: str
    run: Path
    model: PACE
    spec: ModelSpec


@final
@dataclass(frozen=True)
class Trained:
    """What a folder of runs and a folder of datasets hold for one table."""

    problem: Problem
    seed: int
    dataset: Dataset
    runs: dict[str, Path]  # model -> finished run with its weights

    def rows(self) -> Iterator[TrainedRow]:
        """One model after another: all of them at once need not fit into memory."""
        for name, run in self.runs.items():
            yield TrainedRow(name, run, load_run(run, name).model, model_named(name))

    @cached_property
    def plain(self) -> Samples:
        """Test samples in the canonical frame, on the OOD grid."""
        return few_samples(self.dataset, "test_id")

    @cached_property
    def moved(self) -> Samples:
        """The same samples, moved."""
        return few_samples(self.dataset, "test_ood")


@final
@dataclass(frozen=True)
class Prediction:
    """What one model makes of the moved samples: fields, frames of their inputs, and the error of each."""

    name: str
    field: Tensor
    xi: Tensor
    error: Tensor


def find_trained(table: Table, runs: Path, data: Path) -> Trained | str:
    """The trained models of a table, or why there are none and the command that makes them."""
    problem, preset = table.problem, table.preset
    make = f"`pacefno bench {problem.name} --preset {preset}`"
    found = {seed: _finished(table, runs, seed) for seed in table.seeds}
    seed = max(found, key=lambda seed: (len(found[seed]), -table.seeds.index(seed)))
    if not found[seed]:
        return f"no trained models in {runs}: {make} trains them"
    try:
        dataset = open_dataset(dataset_folder(data, problem.name, preset, DATA_SEED), verify=False)
    except DatasetError as error:
        return f"there is no dataset to use ({error}): `pacefno data generate {problem.name} --preset {preset}` makes it"
    return Trained(problem, seed, dataset, found[seed])


def _finished(table: Table, runs: Path, seed: int) -> dict[str, Path]:
    folders = {}
    for line in table.lines:
        folder = training_of(table, line, seed, runs)
        if folder is not None and _is_usable(folder, line.model):
            folders[line.model] = folder
    return folders


def training_of(table: Table, line: Line, seed: int, runs: Path) -> Path | None:
    """The folder of the training behind a row; None for a row or preset that this version does not know."""
    if line.spec is None or seed not in line.seeds or table.preset not in PRESETS:
        return None
    return run_folder(runs, config_for(table.problem.name, trained_row(line.model), table.preset, seed))


def _is_usable(run: Path, model: str) -> bool:
    """Whether this version can load a finished training: one of an older version may be of another shape."""
    try:
        return load_run(run, model).finished
    except CheckpointError:
        return False


def few_samples(dataset: Dataset, split: str, count: int = FEW) -> Samples:
    """The first samples of a test split on the OOD grid, without reading the rest of it."""
    parts: dict[str, list[Tensor]] = {}
    read = 0
    for entry in dataset.manifest.entries(split):
        arrays, _ = read_shard(dataset.path / entry.shard.name, dataset.recipe, entry.shard)
        for name, values in arrays.items():
            parts.setdefault(name, []).append(torch.from_numpy(values[: count - read]))
        read += len(arrays["input"])
        if read >= count:
            break
    joined = {name: torch.cat(values) for name, values in parts.items()}
    return Samples(joined["input"], joined["target"], joined.get("generators"), joined.get("target_resolved"))


def predictions(trained: Trained) -> list[Prediction]:
    """Every model on the moved samples, by the code path of the tables."""
    found = []
    for row in trained.rows():
        field, xi, _ = predict_split(row.model, row.spec, trained.moved)
        error = relative_l2(field, trained.moved.target, per_channel=trained.problem.per_channel)
        found.append(Prediction(row.name, field, xi, error))
    return found


def typical_sample(found: list[Prediction]) -> int:
    """The sample on which PACE (else the last model) has its median error: neither its best nor its worst."""
    chosen = next((one for one in found if one.name == "pace"), found[-1])
    return int(chosen.error.argsort()[len(chosen.error) // 2])
