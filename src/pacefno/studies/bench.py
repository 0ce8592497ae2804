"""The tables: data, training and evaluation of every row, in an order in which an interruption costs little."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pacefno.studies.results import Row, merge_results, read_results
from pacefno.training.commands import prepare_data
from pacefno.training.kinds import kind_of
from pacefno.training.loop import Hooks
from pacefno.training.presets import config_for
from pacefno.training.run import check_settings, is_finished, run_folder, train

SEEDS = (42, 1234, 3407)
DATA_SEED = 42


@dataclass(frozen=True)
class Task:
    """One training and the rows that it serves."""

    problem: str
    preset: str
    seed: int
    trained: str
    rows: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.problem} {self.trained} seed {self.seed}"


@dataclass(frozen=True)
class Places:
    data: Path
    runs: Path
    results: Path


def plan(problems: list[str], preset: str, models: list[str], seeds: list[int]) -> list[Task]:
    """All trainings, seed by seed, so that a table with one seed is complete before the next seed begins.

    Without names: all models of each problem.
    """
    return [task for problem in problems for task in _plan(problem, preset, models or list(kind_of(problem).models), seeds)]


def _plan(problem: str, preset: str, models: list[str], seeds: list[int]) -> list[Task]:
    kind = kind_of(problem)
    groups: dict[str, list[str]] = {}
    for name in models:
        groups.setdefault(kind.trained_as(name), []).append(name)
    return [
        Task(problem, preset, seed, trained, tuple(rows))
        for seed in seeds
        for trained, rows in groups.items()
        if seed == SEEDS[0] or not kind.one_seed(trained)
    ]


def missing_rows(task: Task, places: Places) -> list[str]:
    """The rows of a task that have no result yet."""
    done = {(row["preset"], row["model"], row["seed"]) for row in read_results(places.results, task.problem)}
    return [name for name in task.rows if (task.preset, name, task.seed) not in done]


def run_task(task: Task, places: Places, hooks: Hooks) -> Iterator[Row]:
    """Train (or go on, or skip) and evaluate every missing row; each is stored before the next begins."""
    config = config_for(task.problem, task.trained, task.preset, task.seed)
    folder = run_folder(places.runs, config)
    data = prepare_data(config, places.data, DATA_SEED)
    if not is_finished(folder):
        train(config, data, folder, resume=True, hooks=hooks)
    check_settings(folder, config)
    for name in missing_rows(task, places):
        row = kind_of(task.problem).score(folder, data, name)
        row["command"] = f"pacefno bench {task.problem} --preset {task.preset} --models {name} --seeds {task.seed}"
        merge_results(places.results, task.problem, [row])
        yield row
