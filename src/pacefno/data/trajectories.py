"""Datasets of whole trajectories in LPSDA's layout: solved in parts, which survive an interruption, then joined."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from pacefno.data.errors import DatasetError
from pacefno.data.generate import check_space
from pacefno.data.lpsda import MODES, file_name, read_lpsda, read_recipe, write_lpsda
from pacefno.data.presets import TRAJECTORY_SIZES, Sizes, sizes_named
from pacefno.data.progress import Progress, Silent
from pacefno.data.schema import Shard
from pacefno.data.workers import Job, run_jobs
from pacefno.durable import remove, remove_stale_temporaries
from pacefno.equations import SolverError, TrajectoryProblem
from pacefno.lock import FolderLock
from pacefno.symmetry import Trajectories

FORMAT: Final = 1
PARTS: Final = "parts"
PART_SAMPLES: Final = 32  # solved together, and what an interruption loses per worker


def generate_trajectories(
    problem: TrajectoryProblem,
    preset: str,
    seed: int = 42,
    root: Path = Path("datasets"),
    workers: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Make ``root/<problem>/<preset>-seed<seed>`` with one file per split in LPSDA's layout, and return that folder.

    The same arguments give the same bytes, whatever the number of workers (None: one per core). Valid files and parts of an
    interrupted run are kept. A solution that fails raises :class:`SolverError` and nothing of its part is stored.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"expected at least one worker, got {workers}")
    sizes = sizes_named(preset, TRAJECTORY_SIZES)
    folder = trajectory_folder(root, problem.name, preset, seed)
    try:
        with FolderLock(folder):
            for place in filter(Path.is_dir, (folder, folder / PARTS)):
                remove_stale_temporaries(place)
            _generate(folder, problem, seed, sizes, workers or os.cpu_count() or 1, progress or Silent())
            remove(folder / PARTS)
    except OSError as error:
        raise DatasetError(folder, f"cannot be written there ({error.strerror or error}): choose another --root") from error
    return folder


def trajectory_folder(root: Path, problem: str, preset: str, seed: int) -> Path:
    """Where a dataset of trajectories is kept."""
    return root / problem / f"{preset}-seed{seed}"


def read_split(problem: TrajectoryProblem, folder: Path, mode: str) -> Trajectories:
    """A split of a folder of ours or of LPSDA's, whatever the number of its samples."""
    if mode not in MODES:
        raise ValueError(f"unknown split {mode!r}: expected one of {', '.join(MODES)}")
    equation, suffix = problem.file_name
    found = find_files(problem, folder, mode)
    if len(found) != 1:
        wanted, got = file_name(equation, mode, 512, suffix), [path.name for path in found] or "none"
        remedy = "keep one" if found else f"run 'pacefno data generate {problem.name}'"
        raise DatasetError(folder, f"expected one file like {wanted}, got {got}: {remedy}")
    trajectories = read_lpsda(found[0], mode)
    if tuple(trajectories.u.shape[1:]) != (problem.frames, problem.points):
        raise DatasetError(
            found[0], f"expected {problem.frames} frames of {problem.points} points, got {tuple(trajectories.u.shape[1:])}"
        )
    return trajectories


def find_files(problem: TrajectoryProblem, folder: Path, mode: str) -> list[Path]:
    """The files of a split in a folder, whatever the number of their samples."""
    equation, suffix = problem.file_name
    pattern = re.compile(rf"{equation}_{mode}(_\d+)?{'_' + suffix if suffix else ''}\.h5")
    return sorted(path for path in folder.glob("*.h5") if pattern.fullmatch(path.name))


def check_recipes(problem: TrajectoryProblem, folder: Path, seed: int) -> None:
    """Refuse files of ours that were made when the problem meant something else; LPSDA's carry no recipe."""
    for mode in MODES:
        for path in find_files(problem, folder, mode):
            if read_recipe(path) not in (None, "", recipe_of(problem, seed, mode)):
                raise DatasetError(path, "was made with other settings: delete its folder, it is made anew")


def _generate(folder: Path, problem: TrajectoryProblem, seed: int, sizes: Sizes, workers: int, progress: Progress) -> None:
    counts = dict(zip(MODES, (sizes.train, sizes.validation, sizes.test), strict=True))
    unfinished = [mode for mode in MODES if not _is_finished(_path(folder, problem, mode, counts[mode]), problem, seed, mode)]
    parts = [part for mode in unfinished for part in _parts(mode, counts[mode])]
    missing = [part for part in parts if not _is_valid(folder, problem, seed, part)]
    check_space(folder, 2 * 8 * problem.frames * problem.points * sum(counts[mode] for mode in unfinished))
    total, to_do = sum(counts.values()), sum(part.count for part in missing)
    try:
        progress.start(f"{problem.name} {folder.name}", total, total - to_do)
        run_jobs(folder, partial(make_part, folder, problem, seed), [(part,) for part in missing], workers, progress)
    finally:
        progress.stop()
    for mode in unfinished:
        pieces = [read_lpsda(folder / PARTS / part.name, mode) for part in _parts(mode, counts[mode])]
        path, whole = _path(folder, problem, mode, counts[mode]), Trajectories.joined(pieces)
        _write(path, problem, seed, mode, whole)


def make_part(folder: Path, problem: TrajectoryProblem, seed: int, job: Job, advance: Callable[[int], None]) -> list[str]:
    """Solve the samples of one part and store them."""
    (part,) = job
    indices = range(part.start, part.start + part.count)
    try:
        trajectories = problem.solve(*problem.initial(seed, part.split, indices))
    except SolverError as error:
        raise SolverError(f"{part.split} samples {indices.start} to {indices.stop - 1}: {error}") from error
    _write(folder / PARTS / part.name, problem, seed, part.split, trajectories)
    advance(part.count)
    return [part.name]


def recipe_of(problem: TrajectoryProblem, seed: int, mode: str) -> str:
    """Everything that determines the samples of a split, as a text that people can read."""
    settings = {
        "format": FORMAT,
        "problem": problem.name,
        "seed": seed,
        "split": mode,
        "length": problem.length,
        "end_time": problem.end_time,
        "variation": problem.variation,
        "waves": problem.waves,
        "wavenumbers": problem.wavenumbers,
        "frames": [problem.frames, problem.solved],
        "points": [problem.points, problem.solver_points],
        "substeps": problem.substeps,
        "cut": problem.equation.cut,
    }
    return json.dumps(settings)


def _write(path: Path, problem: TrajectoryProblem, seed: int, mode: str, trajectories: Trajectories) -> None:
    first = problem.solved - problem.frames
    write_lpsda(path, mode, trajectories, first_frame=first, recipe=recipe_of(problem, seed, mode))


def _path(folder: Path, problem: TrajectoryProblem, mode: str, count: int) -> Path:
    equation, suffix = problem.file_name
    return folder / file_name(equation, mode, count, suffix)


def _parts(mode: str, count: int) -> Iterator[Shard]:
    for number, start in enumerate(range(0, count, PART_SAMPLES)):
        yield Shard(mode, number, start, min(PART_SAMPLES, count - start))


def _is_finished(path: Path, problem: TrajectoryProblem, seed: int, mode: str) -> bool:
    """Whether the file of a split is there. One with other settings, or of others, is not ours to replace."""
    if not path.exists():
        return False
    try:
        recipe = read_recipe(path)
        read_lpsda(path, mode)
    except DatasetError:
        return False  # damaged: made again
    if recipe != recipe_of(problem, seed, mode):
        raise DatasetError(path, "was made with other settings: delete it to replace it, or choose another --root")
    return True


def _is_valid(folder: Path, problem: TrajectoryProblem, seed: int, part: Shard) -> bool:
    path = folder / PARTS / part.name
    try:
        return read_recipe(path) == recipe_of(problem, seed, part.split) and len(read_lpsda(path, part.split)) == part.count
    except DatasetError:
        return False
