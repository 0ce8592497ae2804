"""From a problem to a folder of verified files; an interrupted run continues where it stopped."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

from pacefno.data.errors import DatasetError
from pacefno.data.manifest import MANIFEST, Entry, Manifest, check_file, read_manifest, regular_size, write_manifest
from pacefno.data.progress import Progress, Silent
from pacefno.data.recipe import FORMAT, Recipe, recipe_of
from pacefno.data.schema import Shard, sample_bytes, shards_of
from pacefno.data.shards import read_shard
from pacefno.data.workers import Job, run_job, run_jobs
from pacefno.durable import make_folder, remove, remove_stale_temporaries, sha256_of
from pacefno.equations import Problem
from pacefno.lock import FolderLock

RESERVE = 50_000_000  # bytes that must stay free: a full disk harms more than this program


def generate(
    problem: Problem,
    preset: str,
    seed: int = 42,
    root: Path = Path("datasets"),
    stationary: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Make the dataset ``root/<problem>/<preset>-seed<seed>[-stationary]`` and return that folder.

    The same arguments give the same bytes, whatever the number of workers (None: one per core). Valid files of an earlier,
    interrupted run are kept. A solution that fails raises :class:`SolverError` and nothing of it is stored.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"expected at least one worker, got {workers}")
    recipe = recipe_of(problem, preset, seed, stationary=stationary)
    folder = root / problem.name / recipe.folder_name
    try:
        with FolderLock(folder):
            remove_stale_temporaries(folder)
            _generate(folder, problem, recipe, workers or os.cpu_count() or 1, progress or Silent())
    except OSError as error:
        raise DatasetError(folder, f"cannot be written there ({error.strerror or error}): choose another --root") from error
    return folder


def _generate(folder: Path, problem: Problem, recipe: Recipe, workers: int, progress: Progress) -> None:
    if _is_finished(folder, recipe):
        return
    remove(folder / MANIFEST)  # without it nobody reads the folder while its files change
    jobs = jobs_of(recipe)
    missing = [job for job in jobs if not all(_is_valid(folder, recipe, shard) for shard in job)]
    check_space(folder, sum(shard.count * sample_bytes(recipe, shard.split) for job in missing for shard in job))
    total, to_do = (sum(job[0].count for job in part) for part in (jobs, missing))
    try:
        progress.start(f"{recipe.problem} {recipe.folder_name}", total, total - to_do)
        run_jobs(folder, partial(run_job, folder, problem, recipe), missing, workers, progress)
    finally:
        progress.stop()
    entries = tuple(_entry(folder, recipe, shard) for job in jobs for shard in job)
    write_manifest(folder, Manifest(format=FORMAT, recipe=recipe, shards=entries))


def jobs_of(recipe: Recipe) -> list[Job]:
    """What is solved together: each training and validation file, and each pair of test files."""
    alone = [(shard,) for split in ("train", "validation") for shard in shards_of(recipe, split)]
    return alone + list(zip(shards_of(recipe, "test_id"), shards_of(recipe, "test_ood"), strict=True))


def _is_finished(folder: Path, recipe: Recipe) -> bool:
    """Whether all is there already. A finished dataset with other settings is not ours to replace."""
    if not (folder / MANIFEST).exists():
        return False
    try:
        manifest = read_manifest(folder)
    except DatasetError:
        return False  # damaged: remade from the files, which are verified one by one
    differences = recipe.differences(manifest.recipe)
    if differences:
        raise DatasetError(
            folder,
            f"holds a finished dataset with other settings ({'; '.join(differences[:3])}): delete the folder to replace "
            "it, or choose another --root",
        )
    try:
        for entry in manifest.shards:
            check_file(folder, entry)
    except DatasetError:
        return False
    return True


def _is_valid(folder: Path, recipe: Recipe, shard: Shard) -> bool:
    path = folder / shard.name
    try:
        if regular_size(path) is None:
            return False
        read_shard(path, recipe, shard)
    except DatasetError:
        return False
    return True


def _entry(folder: Path, recipe: Recipe, shard: Shard) -> Entry:
    path = folder / shard.name
    _, redraws = read_shard(path, recipe, shard)
    return Entry(
        split=shard.split,
        number=shard.number,
        start=shard.start,
        count=shard.count,
        redraws=redraws,
        bytes=path.stat().st_size,
        sha256=sha256_of(path),
    )


def check_space(folder: Path, needed: int) -> None:
    """Refuse to begin what would fill the disk."""
    make_folder(folder)
    free = shutil.disk_usage(folder).free
    if needed + RESERVE > free:
        raise DatasetError(
            folder,
            f"the dataset needs {needed / 1e6:.0f} MB and {free / 1e6:.0f} MB are free: make room, choose another --root "
            "or a smaller --preset",
        )
