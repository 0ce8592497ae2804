"""Train what a row needs, change what it changes, and score it by the code path of the tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from pacefno.data import Dataset
from pacefno.studies.cells import Cell, StudyFile
from pacefno.studies.study.ablation.rows import PAPER, AblationRow, rows_for
from pacefno.studies.study.sources import Scope, weights_of
from pacefno.training.config import RunConfig
from pacefno.training.evaluate import score
from pacefno.training.load import load_run
from pacefno.training.loop import Hooks
from pacefno.training.progress import training_progress
from pacefno.training.run import check_settings, is_finished, train

KEY = ("preset", "row", "seed")
Watch = Callable[[RunConfig], AbstractContextManager[Hooks]]


def ablation_file(scope: Scope) -> StudyFile:
    return StudyFile(scope.folder, "ablation", scope.problem.name, KEY)


def training_folder(scope: Scope, row: AblationRow, seed: int) -> Path:
    return scope.runs / scope.problem.name / f"{row.training}-{scope.preset}-seed{seed}"


def is_done(scope: Scope, file: StudyFile, row: AblationRow, seed: int) -> bool:
    """Whether the row was scored with the weights that its training has now."""
    run = training_folder(scope, row, seed)
    return is_finished(run) and file.has(identity(scope, row, seed, run))


def identity(scope: Scope, row: AblationRow, seed: int, run: Path) -> Cell:
    return {"preset": scope.preset, "row": row.name, "seed": seed, "weights": weights_of(run)}


def trained(scope: Scope, row: AblationRow, seed: int, dataset: Dataset, watch: Watch = training_progress) -> Path:
    """The folder of the row's finished training; trained first, or further, where it is not finished."""
    config = row.config(scope.problem.name, scope.preset, seed)
    run = training_folder(scope, row, seed)
    if not is_finished(run):
        with watch(config) as hooks:
            train(config, dataset.path, run, resume=True, hooks=hooks)
    check_settings(run, config)
    return run


def measure(scope: Scope, row: AblationRow, seed: int, run: Path, dataset: Dataset) -> Cell:
    """The cell of one row and seed."""
    loaded = load_run(run)
    model = row.change(loaded.model, loaded.problem).eval()
    scored = score(model, row.spec, loaded.problem, dataset)
    place = [one.name for one in rows_for(scope.problem)].index(row.name)
    what = {"title": row.title, "place": place, "model": row.model, "inference": row.inference}
    paper = PAPER.get(scope.problem.name, {}).get(row.name)
    times = {"train_seconds": round(loaded.train_seconds, 1)}
    return identity(scope, row, seed, run) | what | scored | times | {"paper": None if paper is None else list(paper)}
