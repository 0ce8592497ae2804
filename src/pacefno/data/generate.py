"""From a recipe to a folder of files; an interrupted run continues where it stopped.

The samples are made in jobs, each of which stores its samples as files under ``parts/``. When all
parts of a split are there they are joined into its one file and removed. Every file is whole or
absent, so whatever ends the program, the next run finds parts that it can keep.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias, final

from pacefno.data.lpsda import TrajectoryDataset
from pacefno.data.recipe import PARTS, Document, Recipe, TrajectoryRecipe
from pacefno.data.store import DamagedError, DatasetError, PairDataset, verify, write_split
from pacefno.data.workers import run_jobs
from pacefno.errors import UsageError
from pacefno.files import lock_folder, remove, remove_stale_temporaries

Dataset: TypeAlias = PairDataset | TrajectoryDataset
Progress: TypeAlias = Callable[[int, int], None]  # samples that are there, and how many will be

ROOT = Path("datasets")
PARTS_FOLDER = "parts"
PART_BYTES = 2**26  # of the samples of a job, which are in memory twice
BATCH = 8  # jobs end with a full batch of the solver, so that no sample depends on their size
RESERVE_BYTES = 50_000_000  # that must stay free: a full disk harms more than this program


def folder_of(root: Path, recipe: Recipe, preset: str, seed: int, stationary: bool = False) -> Path:
    """Where the dataset of a recipe is kept."""
    return root / recipe.name / f"{preset}-seed{seed}{'-stationary' if stationary else ''}"


def is_generated(folder: Path, recipe: Recipe) -> bool:
    """Whether the files of all splits are there; none of them is opened."""
    dataset = _dataset(recipe, folder, {"samples": dict.fromkeys(PARTS, 0)})
    return all(dataset.file(split).is_file() for split in dataset.splits)


def open_dataset(
    recipe: Recipe,
    folder: Path,
    *,
    preset: str,
    seed: int,
    stationary: bool = False,
    verify: bool = True,
) -> Dataset:
    """A finished dataset of a recipe; one that was made with other settings is refused.

    Only settings are compared, so a dataset may come from another machine or from other versions
    of libraries. ``verify`` also reads every file once and compares its sum.
    """
    dataset = _dataset(recipe, folder, recipe.document(preset, seed, stationary=stationary))
    if not is_generated(folder, recipe):
        raise DatasetError(folder, explain_missing(folder))
    for split in dataset.splits:
        dataset.verify(split, values=verify)
    return dataset


def prepare(
    recipe: Recipe,
    preset: str,
    seed: int = 42,
    root: Path = ROOT,
    *,
    stationary: bool = False,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> Dataset:
    """The dataset of a recipe, made first if it is missing; see `generate`."""
    folder = folder_of(root, recipe, preset, seed, stationary)
    if not is_generated(folder, recipe):
        make = partial(generate, recipe, preset, seed, root, stationary=stationary, wait=True)
        make(workers=workers, on_progress=on_progress)
    return open_dataset(recipe, folder, preset=preset, seed=seed, stationary=stationary)


def generate(
    recipe: Recipe,
    preset: str,
    seed: int = 42,
    root: Path = ROOT,
    *,
    stationary: bool = False,
    workers: int | None = None,
    on_progress: Progress | None = None,
    wait: bool = False,
) -> Path:
    """Make the dataset ``root/NAME/PRESET-seedSEED[-stationary]`` and return that folder.

    The same arguments give the same bytes on the same machine, whatever the number of worker
    processes (None: one per core). What an interrupted run left is kept. A solution that fails
    raises `SolverError`. Where another process makes this dataset already, that is an error, or
    with ``wait`` it is waited for.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"workers: expected at least one process, got {workers}")
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        # A worker imports the script that started it. Were this not refused, it would wait for the
        # folder that its own parent holds, and the parent for it.
        raise UsageError(
            "a worker process ran the script that started it: put what the script does under "
            "if __name__ == '__main__', or use workers=1"
        )
    folder = folder_of(root, recipe, preset, seed, stationary)
    dataset = _dataset(recipe, folder, recipe.document(preset, seed, stationary=stationary))
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_folder(folder, wait=wait))
            for place in filter(Path.is_dir, (folder, folder / PARTS_FOLDER)):
                remove_stale_temporaries(place)
        except OSError as error:
            reason = f"cannot be written there ({error.strerror or error})"
            raise DatasetError(folder, f"{reason}: choose another --root") from error
        make = partial(_make, recipe, preset, seed, stationary)
        _generate(recipe, preset, dataset, make, workers or os.cpu_count() or 1, on_progress)
        remove(folder / PARTS_FOLDER)
    return folder


@final
@dataclass(frozen=True)
class _Job:
    """Some samples of a part: for each split that is not finished, a file and what it says."""

    part: str
    rows: range
    files: Mapping[str, tuple[Path, Document]]

    def is_done(self) -> bool:
        with suppress(DatasetError):
            for path, settings in self.files.values():
                verify(path, settings)
            return True
        return False


def _make(recipe: Recipe, preset: str, seed: int, stationary: bool, job: _Job) -> int:
    """Make and store the samples of a job; how many they are."""
    made = recipe.make(job.part, job.rows, preset, seed, stationary=stationary)
    for split, (path, settings) in job.files.items():
        write_split(path, [made[split]], len(job.rows), settings)
    return len(job.rows)


def _generate(
    recipe: Recipe,
    preset: str,
    dataset: Dataset,
    make: Callable[[_Job], int],
    workers: int,
    on_progress: Progress | None,
) -> None:
    jobs = [job for part in PARTS for job in _jobs(recipe, preset, dataset, part)]
    missing = [job for job in jobs if not job.is_done()]
    _check_space(recipe, preset, dataset.path, [*jobs, *missing])
    total = sum(recipe.sizes_of(preset).count(part) for part in PARTS)
    done = total - sum(len(job.rows) for job in missing)
    tell = on_progress or (lambda done, total: None)
    tell(done, total)
    try:
        with closing(run_jobs(make, missing, workers)) as results:
            for made in results:
                done += made
                tell(done, total)
    except BrokenProcessPool as error:
        reason = "a worker process ended early (killed, out of memory, or as it says above)"
        todo = "run the same command again to continue, with --workers 1 if memory is short"
        raise DatasetError(dataset.path, f"{reason}: {todo}") from error
    for split in dataset.splits:
        if own := [job for job in jobs if split in job.files]:
            files = [job.files[split][0] for job in own]
            dataset.join(split, files, sum(len(job.rows) for job in own))
            for file in files:
                remove(file)


def _jobs(recipe: Recipe, preset: str, dataset: Dataset, part: str) -> list[_Job]:
    """What has to be there for the unfinished splits of a part to be joined."""
    splits = [split for split in recipe.splits(part) if not _is_finished(dataset, split)]
    sample = sum(recipe.sample_bytes(split, preset) for split in recipe.splits(part))
    fitting = max(BATCH, PART_BYTES // sample // BATCH * BATCH)
    count, most = recipe.sizes_of(preset).count(part), min(recipe.part_samples, fitting)
    jobs = []
    for start in range(0, count if splits else 0, most):
        rows = range(start, min(start + most, count))
        files = {}
        for split in splits:
            path = dataset.path / PARTS_FOLDER / f"{split}-{start:06d}.h5"
            settings = {**dataset.document, "split": split, "rows": [rows.start, rows.stop]}
            files[split] = (path, settings)
        jobs.append(_Job(part, rows, files))
    return jobs


def _is_finished(dataset: Dataset, split: str) -> bool:
    """Whether a split is there and good; one of other settings is an error, never replaced."""
    try:
        if exists := dataset.file(split).exists():
            dataset.verify(split)
        return exists
    except DamagedError:
        return False


def _check_space(recipe: Recipe, preset: str, folder: Path, jobs: Sequence[_Job]) -> None:
    """Refuse to begin what would fill the disk."""
    sizes = (len(job.rows) * recipe.sample_bytes(s, preset) for job in jobs for s in job.files)
    needed, free = sum(sizes), shutil.disk_usage(folder).free
    if needed and needed + RESERVE_BYTES > free:
        reason = f"the dataset needs {needed / 1e6:.0f} MB and {free / 1e6:.0f} MB are free"
        todo = "make room, choose another --root or a smaller --preset"
        raise DatasetError(folder, f"{reason}: {todo}")


def explain_missing(folder: Path) -> str:
    """What to do about a folder that does not hold a finished dataset."""
    place = folder.resolve()
    if not place.is_dir():
        return "there is no such folder: check the path, or run 'pacefno data generate'"
    name = re.fullmatch(r"(.+)-seed(-?\d+)(-stationary)?", place.name)
    if not name or not (any(place.glob("*.h5")) or (place / PARTS_FOLDER).is_dir()):
        return "holds no dataset: give a folder that 'pacefno data generate' printed"
    command = f"pacefno data generate {place.parent.name} --preset {name[1]} --seed {name[2]}"
    switch = " --stationary" if name[3] else ""
    root = place.parent.parent
    return f"is not finished: run '{command} --root {root}{switch}', what is there is kept"


def _dataset(recipe: Recipe, folder: Path, document: Document) -> Dataset:
    if isinstance(recipe, TrajectoryRecipe):
        return TrajectoryDataset(folder, document, recipe)
    return PairDataset(folder, document)
