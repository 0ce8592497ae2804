"""Results as data: ``results/PROBLEM.json``, one row a run. Tables are rendered from these files, never typed."""

from __future__ import annotations

import json
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
        rows = document["rows"]
        assert isinstance(rows, list) and all(set(KEY) <= set(row) for row in rows)
    except (json.JSONDecodeError, KeyError, TypeError, AssertionError) as error:
        raise ResultsError(f"{path}: is no results file ({error}): delete it, or restore it from version control") from None
    return rows


def key_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def merge_results(folder: Path, problem: str, new: list[Row]) -> list[Row]:
    """Add rows to a problem's file; a row of the same preset, model and seed is replaced, everything else is kept."""
    rows = {key_of(row): row for row in [*read_results(folder, problem), *new]}
    ordered = [rows[key] for key in sorted(rows)]
    make_folder(folder)
    write_text_atomically(results_path(folder, problem), json.dumps({"problem": problem, "rows": ordered}, indent=1) + "\n")
    return ordered
