"""Jobs in several processes, none of which outlives the process that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import TypeVar

import torch

from pacefno.memory import keep_freed_memory

Job = TypeVar("Job")
Result = TypeVar("Result")


def run_jobs(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: int
) -> Generator[Result]:
    """Call a function for every job and yield its results as they come; one failure ends all.

    One worker, or one job, is done in this process. Several are sent to others, so the function and
    the jobs must be importable there. Each has one torch thread: with other numbers of threads sums
    run in another order, and the same job would not give the same bytes. ``BrokenProcessPool`` is
    raised if a worker dies. Close the generator to end the workers early.
    """
    if workers == 1 or len(jobs) <= 1:
        with _one_thread():
            yield from map(function, jobs)
        return
    context = multiprocessing.get_context("spawn")  # a forked copy of a threaded torch may hang
    ended, alive = context.Pipe(duplex=False)  # workers end as soon as `alive` is closed
    pool = ProcessPoolExecutor(min(workers, len(jobs)), context, _start_worker, (ended,))
    try:
        for future in as_completed([pool.submit(function, job) for job in jobs]):
            yield future.result()
        pool.shutdown()
    finally:
        alive.close()
        pool.shutdown(cancel_futures=True)
        ended.close()


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _start_worker(ended: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first decides
    torch.set_num_threads(1)
    keep_freed_memory()  # a quarter of the time of the shallow-water solver
    threading.Thread(target=_end_with, args=(ended,), daemon=True).start()


def _end_with(ended: Connection) -> None:
    """Wait until the process that started this one closes its end of the pipe or dies; then die."""
    with suppress(OSError):
        ended.poll(None)
    os._exit(1)
