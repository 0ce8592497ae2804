"""Results as data: ``results/PROBLEM.json``, one row a run. Tables are rendered from these files, never typed."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from pacefno.durable import make_folder, write_text_atomically

Row: TypeAlias = dict[str, Any]
KEY = ("preset", "model", "seed")


class ResultsError(ValueError):
    """A results file that cannot be read; the message names it."""


def results_path(folder: Path, problem: str) -> Path:
    return folder / f"{problem}.json"


def read_results(folder: Path, problem: str) -> list[Row]:
    """The rows of one problem; none if it has no file yet."""
    path = results_path(folder, problem)
    if not path.exists():
        return []
    try:
        document = json.loads(path.read_text())
        rows: list[Row] = list(document["rows"])
        for row in rows:
            key_of(row)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ResultsError(f"{path}: is no results file ({error!r}): delete it, or restore it from version control") from None
    return rows


def key_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def merge_results(folder: Path, problem: str, new: list[Row]) -> list[Row]:
    """Add rows to a problem's file; a row of the same preset, model and seed is replaced, everything else is kept."""
    make_folder(folder)
    with alone(folder):  # two machines or processes may add rows at the same time
        return _merge(folder, problem, new)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder of results while a file in it is rewritten; others wait."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _merge(folder: Path, problem: str, new: list[Row]) -> list[Row]:
    rows = {key_of(row): row for row in [*read_results(folder, problem), *new]}
    ordered = [rows[key] for key in sorted(rows)]
    write_text_atomically(results_path(folder, problem), json.dumps({"problem": problem, "rows": ordered}, indent=1) + "\n")
    return ordered
