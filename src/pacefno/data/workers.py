"""Shards in several processes. One thread each: on these grids two single-threaded solvers beat one with two threads."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeAlias

import torch

from pacefno.data.errors import DatasetError
from pacefno.data.progress import Progress
from pacefno.data.recipe import Recipe
from pacefno.data.samples import make
from pacefno.data.schema import Shard
from pacefno.data.shards import write_shard
from pacefno.equations import Problem, SolverError

Job: TypeAlias = tuple[Shard, ...]  # files that are made from the same solutions
Task: TypeAlias = Callable[[Job, Callable[[int], None]], list[str]]  # makes a job, reports solved samples, names its files
Events: TypeAlias = Any  # multiprocessing.Queue of (kind, value): "solved" n, "stored" name, "failed" exception


def run_jobs(folder: Path, task: Task, jobs: Sequence[Job], workers: int, progress: Progress) -> None:
    """Make and write all jobs; the first failure ends everything, and what is already stored stays.

    The task is sent to other processes, so it must be a function that can be found by its name, or a ``partial`` of one.
    """
    if workers == 1 or len(jobs) <= 1:
        with _one_thread():
            for job in jobs:
                for name in task(job, progress.advance):
                    progress.stored(name)
    else:
        _run_in_processes(folder, task, jobs, min(workers, len(jobs)), progress)


def run_job(folder: Path, problem: Problem, recipe: Recipe, job: Job, advance: Callable[[int], None]) -> list[str]:
    """Solve one job, write its files, and return their names."""
    made = make(problem, recipe, job, advance)
    for one in made:
        write_shard(folder, recipe, one.shard, one.arrays, one.redraws)
    return [one.shard.name for one in made]


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """With another number of threads sums may run in another order: the same bytes need the same number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_in_processes(folder: Path, task: Task, jobs: Sequence[Job], workers: int, progress: Progress) -> None:
    context = multiprocessing.get_context("spawn")  # a forked copy of a threaded torch may hang
    todo, events = context.Queue(), context.Queue()
    for job in [*jobs, *[None] * workers]:
        todo.put(job)
    processes: list[BaseProcess] = [
        context.Process(target=_work, args=(task, todo, events), daemon=True) for _ in range(workers)
    ]
    try:
        for process in processes:
            process.start()
        _listen(folder, processes, events, progress)
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()  # a half-written shard has a temporary name, the next run removes it
        for process in processes:
            if process.pid is not None:
                process.join()
        todo.cancel_join_thread()


def _listen(folder: Path, processes: Sequence[BaseProcess], events: Events, progress: Progress) -> None:
    """Pass on what the workers report until all have finished."""
    while True:
        finished = all(process.exitcode is not None for process in processes)
        try:
            kind, value = events.get(timeout=0.0 if finished else 0.2)
        except queue.Empty:
            _check_alive(folder, processes)
            if finished:
                return
            continue
        if kind == "failed":
            raise value
        if kind == "solved":
            progress.advance(value)
        else:
            progress.stored(value)


def _check_alive(folder: Path, processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        if process.exitcode:
            how = f"signal {-process.exitcode}" if process.exitcode < 0 else f"exit code {process.exitcode}"
            raise DatasetError(
                folder,
                f"a worker process ended with {how} (killed, or out of memory?): run the same command again to "
                "continue, with --workers 1 if memory is short",
            )


def _work(task: Task, todo: Any, events: Events) -> None:
    """A worker: take jobs until there are none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the parent decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    for job in iter(todo.get, None):
        try:
            for name in task(job, lambda samples: events.put(("solved", samples))):
                events.put(("stored", name))
        except (SolverError, DatasetError) as error:
            events.put(("failed", error))
            return


def _die_with_parent() -> None:
    """A killed parent cannot end its workers, and they would wait for it for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
