"""What a study works on: finished trainings, the rows that use their weights, and a few samples of their dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from pacefno.console import say
from pacefno.data import Dataset, open_dataset
from pacefno.durable import sha256_of
from pacefno.equations import Problem, problem_named
from pacefno.studies.bench import DATA_SEED
from pacefno.studies.cells import FOLDER
from pacefno.training.commands import prepare_data
from pacefno.training.load import Trained as LoadedRun
from pacefno.training.load import load_run
from pacefno.training.models import ModelSpec, model_named
from pacefno.training.presets import config_for, trained_row
from pacefno.training.run import check_settings, is_finished, run_folder
from pacefno.training.state import FINAL


@final
@dataclass(frozen=True)
class Source:
    """A row with the finished training that it takes its weights from."""

    row: str
    seed: int
    run: Path

    @property
    def spec(self) -> ModelSpec:
        return model_named(self.row)

    @property
    def weights(self) -> str:
        return weights_of(self.run)

    def load(self) -> LoadedRun:
        return load_run(self.run, self.row)


@final
@dataclass(frozen=True)
class Scope:
    """The problem, the preset and the places of a study."""

    problem: Problem
    preset: str
    data: Path
    runs: Path
    results: Path

    @property
    def folder(self) -> Path:
        return self.results / FOLDER

    def dataset(self) -> Dataset:
        """The dataset of the tables; generated where it is missing."""
        config = config_for(self.problem.name, "fno", self.preset, DATA_SEED)
        return open_dataset(prepare_data(config, self.data, DATA_SEED), verify=False)


def weights_of(run: Path) -> str:
    """The name of a run's weights: other weights make a study's cell anew."""
    return sha256_of(run / FINAL / "manifest.json")[:16]


def find_sources(scope: Scope, rows: Sequence[str], seeds: Sequence[int], note: Callable[[str], None] = say) -> list[Source]:
    """The rows that have a finished training, seed by seed; a missing one is named with the command that makes it."""
    found, missing = [], []
    for seed in seeds:
        for row in rows:
            config = config_for(scope.problem.name, trained_row(row), scope.preset, seed)
            run = run_folder(scope.runs, config)
            if is_finished(run):
                check_settings(run, config)
                found.append(Source(row, seed, run))
            else:
                missing.append(f"{row} seed {seed}")
    make = f"`pacefno bench {scope.problem.name} --preset {scope.preset} --models {','.join(rows)}`"
    if not found:
        raise ValueError(f"{scope.runs} holds no finished training of {', '.join(rows)}: {make} trains them")
    if missing:
        note(f"left out, not trained yet: {', '.join(missing)} ({make})")
    return found


def names(text: str, allowed: Sequence[str], option: str) -> list[str]:
    """A comma-separated option; an unknown name is an error that lists what there is."""
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    for name in chosen:
        if name not in allowed:
            raise ValueError(f"{option}: unknown {name!r}, expected some of {', '.join(allowed)}")
    return chosen or list(allowed)


def scope_of(problem: str, preset: str, data: Path, runs: Path, results: Path) -> Scope:
    return Scope(problem_named(problem), preset, data, runs, results)
