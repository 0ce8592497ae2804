"""The two kinds of benchmark, pairs of fields and trajectories: what a training and a table need to know of either."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from rich.console import Console
from torch import nn

from pacefno.data import DatasetError, channel_statistics, generate, open_dataset
from pacefno.data.lpsda import MODES
from pacefno.data.manifest import read_manifest
from pacefno.data.progress import console_progress
from pacefno.data.recipe import recipe_of
from pacefno.data.trajectories import check_recipes, find_files, generate_trajectories, read_split, trajectory_folder
from pacefno.equations import PROBLEMS, TRAJECTORY_PROBLEMS, benchmark_named, problem_named
from pacefno.training.config import RunConfig
from pacefno.training.evaluate import evaluate
from pacefno.training.forecasts import FORECASTS, ForecastSpec, WindowWorkload, build_forecaster, forecast_named
from pacefno.training.load import PRECISIONS, config_of
from pacefno.training.models import MODELS, ModelSpec, build_model, model_named
from pacefno.training.presets import trained_row
from pacefno.training.score_forecasts import evaluate_forecaster
from pacefno.training.workload import FieldWorkload, Workload

Row = dict[str, Any]


class Kind(ABC):
    """Data, models and scores of one kind of benchmark."""

    models: Mapping[str, ModelSpec | ForecastSpec]
    usual: str  # what is trained where nothing else is said

    @abstractmethod
    def trained_as(self, model: str) -> str:
        """The row whose training gives this row its weights; an error for a name that is none."""

    @abstractmethod
    def one_seed(self, model: str) -> bool:
        """Whether the spread of a row is of no interest."""

    @abstractmethod
    def folder(self, root: Path, problem: str, preset: str, seed: int) -> Path:
        """Where ``pacefno data generate`` puts the dataset."""

    @abstractmethod
    def is_generated(self, folder: Path, problem: str) -> bool: ...

    @abstractmethod
    def generate(self, problem: str, preset: str, seed: int, root: Path) -> None: ...

    @abstractmethod
    def check_data(self, folder: Path, problem: str, preset: str, seed: int) -> None:
        """Refuse a dataset that was made when the problem meant something else."""

    @abstractmethod
    def start(self, config: RunConfig, data: Path) -> tuple[nn.Module, Workload[Any]]:
        """A fresh model and what it is to be trained on."""

    @abstractmethod
    def score(self, run: Path, data: Path, model: str) -> Row:
        """The measured numbers of a row."""

    @abstractmethod
    def headline(self, row: Row) -> str:
        """A row in a few words."""


@final
class Fields(Kind):
    models = MODELS
    usual = "pace"

    def trained_as(self, model: str) -> str:
        return trained_row(model)

    def one_seed(self, model: str) -> bool:
        return model_named(model).one_seed

    def folder(self, root: Path, problem: str, preset: str, seed: int) -> Path:
        return root / problem / recipe_of(problem_named(problem), preset, seed, stationary=False).folder_name

    def is_generated(self, folder: Path, problem: str) -> bool:
        return (folder / "dataset.json").exists()

    def generate(self, problem: str, preset: str, seed: int, root: Path) -> None:
        generate(problem_named(problem), preset, seed, root, progress=console_progress(Console(stderr=True)))

    def check_data(self, folder: Path, problem: str, preset: str, seed: int) -> None:
        now = recipe_of(problem_named(problem), preset, seed, stationary=False)
        differences = now.differences(read_manifest(folder).recipe)
        if differences:
            what = "; ".join(differences[:3])
            raise DatasetError(folder, f"was made with other settings ({what}): delete it, it is made anew")

    def start(self, config: RunConfig, data: Path) -> tuple[nn.Module, Workload[Any]]:
        problem, spec, dataset = problem_named(config.problem), model_named(config.model), open_dataset(data)
        if dataset.recipe.problem != config.problem:
            raise ValueError(
                f"the dataset holds {dataset.recipe.problem!r}, the run is for {config.problem!r}: name the right dataset"
            )
        train, validation = dataset.load("train"), dataset.load("validation")
        scales = channel_statistics(train.input), channel_statistics(train.target)
        model = build_model(problem, spec, config.operator, scales, config.seed)
        return model, FieldWorkload(config, problem, spec.perturb, train, validation)

    def score(self, run: Path, data: Path, model: str) -> Row:
        return evaluate(run, open_dataset(data, verify=False), model)

    def headline(self, row: Row) -> str:
        return f"ID {row['id_error']:.4f}, OOD {row['ood_error']:.4f}"


@final
class Forecasts(Kind):
    models = FORECASTS
    usual = "pace-20"

    def trained_as(self, model: str) -> str:
        forecast_named(model)
        return model

    def one_seed(self, model: str) -> bool:
        return forecast_named(model).one_seed

    def folder(self, root: Path, problem: str, preset: str, seed: int) -> Path:
        return trajectory_folder(root, problem, preset, seed)

    def is_generated(self, folder: Path, problem: str) -> bool:
        return all(find_files(TRAJECTORY_PROBLEMS[problem], folder, mode) for mode in MODES)

    def generate(self, problem: str, preset: str, seed: int, root: Path) -> None:
        generate_trajectories(TRAJECTORY_PROBLEMS[problem], preset, seed, root, progress=console_progress(Console(stderr=True)))

    def check_data(self, folder: Path, problem: str, preset: str, seed: int) -> None:
        check_recipes(TRAJECTORY_PROBLEMS[problem], folder, seed)

    def start(self, config: RunConfig, data: Path) -> tuple[nn.Module, Workload[Any]]:
        problem, spec = TRAJECTORY_PROBLEMS[config.problem], forecast_named(config.model)
        dtype = PRECISIONS[config.precision]
        train, validation = (read_split(problem, data, mode).to(dtype) for mode in ("train", "valid"))
        return build_forecaster(problem, spec, config.operator, config.seed), WindowWorkload(
            config, problem, spec, train, validation
        )

    def score(self, run: Path, data: Path, model: str) -> Row:
        own = config_of(run).model
        if model != own:
            raise ValueError(f"{run} trained {own!r}, whose weights no other row uses: leave --model out, or name another run")
        return evaluate_forecaster(run, data)

    def headline(self, row: Row) -> str:
        return f"NMSE {row['nmse']:.4f}, OOD {row['ood_nmse']:.4f}"


FIELDS, FORECAST_KIND = Fields(), Forecasts()


def kind_of(problem: str) -> Kind:
    """The kind of a benchmark, or an error that lists all benchmarks."""
    benchmark_named(problem)
    return FIELDS if problem in PROBLEMS else FORECAST_KIND
