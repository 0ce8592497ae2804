"""Studies as data: ``results/studies/NAME.json``, a list of cells, each of which is computed once.

A cell is a plain dictionary: its key, the weights that it was measured with, the measured values.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, final

from pacefno.files import lock_folder, make_folder, write_text
from pacefno.paper.bench import ResultsError

if TYPE_CHECKING:
    from pacefno.paper.style import Drawing

Cell: TypeAlias = dict[str, Any]
Say: TypeAlias = Callable[[str], None]  # is told about progress, a line at a time
Job: TypeAlias = tuple[Cell, tuple[Any, ...]]  # what identifies a cell, and what to measure

FOLDER = "studies"  # below a folder of results
DIGITS = 7  # of a stored number: what float32 holds
SECONDS_BETWEEN_LINES = 30.0  # of progress
ERRORS = {  # titles of columns, with the entries of a cell that they show
    "OOD, canonical": "ood_error_canonical",
    "OOD": "ood_error",
    "ID": "id_error",
    "equivariance": "equivariance_error",
}


@final
@dataclass(frozen=True)
class StudyFile:
    """The cells of one study of one benchmark.

    ``key`` names the entries that tell one cell from another. ``detail`` is a part of the study
    that has a file of its own, such as a row.
    """

    folder: Path
    study: str
    benchmark: str
    key: tuple[str, ...]
    detail: str = ""

    @property
    def path(self) -> Path:
        parts = (self.study, self.benchmark, self.detail)
        return self.folder / f"{'-'.join(part for part in parts if part)}.json"

    def key_of(self, cell: Cell) -> tuple[Any, ...]:
        """The entries that tell this cell from others."""
        try:
            return tuple(cell[name] for name in self.key)
        except (KeyError, TypeError) as error:
            raise unreadable(self.path, error) from None

    def read(self) -> dict[tuple[Any, ...], Cell]:
        """The cells so far by their keys; none if there is no file yet."""
        return {self.key_of(cell): cell for cell in read_cells(self.path)}

    def add(self, cell: Cell) -> None:
        """Store a cell; one with the same key is replaced, everything else is kept."""
        make_folder(self.folder)
        with lock_folder(self.folder, wait=True):  # two processes may share a study
            cells = self.read() | {self.key_of(cell): rounded(cell)}
            ordered = [cells[key] for key in sorted(cells)]
            document = {"study": self.study, "problem": self.benchmark, "cells": ordered}
            write_text(self.path, json.dumps(document, indent=1) + "\n")

    def fill(
        self, jobs: Iterable[Job], measure: Callable[..., Cell], say: Say = lambda text: None
    ) -> list[Cell]:
        """Measure what is missing, each cell stored before the next is begun; all cells.

        A cell is missing if it is not there, or was measured with other weights or settings.
        """
        known = self.read()
        missing = []
        for identity, things in jobs:
            found = known.get(self.key_of(identity), {})
            if found | rounded(identity) != found:
                missing.append((identity, things))
        began, tell = time.monotonic(), throttled(say)
        for done, (identity, things) in enumerate(missing, start=1):
            self.add(identity | measure(*things))
            left = (time.monotonic() - began) / done * (len(missing) - done)
            tell(f"{self.study}: {done} of {len(missing)}, about {left:.0f} s left")
        return list(self.read().values())


def read_cells(path: Path) -> list[Cell]:
    """The cells of a study file; none if there is no such file."""
    if not path.exists():
        return []
    try:
        return list(json.loads(path.read_text())["cells"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: Exception) -> ResultsError:
    """The error about a file that does not hold a study."""
    advice = "delete it, or restore it from version control"
    return ResultsError(f"{path}: is not a study file ({error!r}): {advice}")


def rounded(value: Any) -> Any:
    """Plain data with floats of seven digits, in files that people can read."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def throttled(say: Say) -> Say:
    """Says a line only if the one before is long enough ago."""
    last = [time.monotonic()]

    def pass_on(text: str) -> None:
        if time.monotonic() - last[0] > SECONDS_BETWEEN_LINES:
            last[0] = time.monotonic()
            say(text)

    return pass_on


# --- what a study tells at its end ----------------------------------------------------------------


class Table(NamedTuple):
    """A table to print: its title, the titles of its columns, and rows of text."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


class Outcome(NamedTuple):
    """What a study returns: the file that holds every number, and what to print and to save."""

    path: Path
    tables: list[Table]
    drawings: list[Drawing]
    sentences: tuple[str, ...] = ()


def grouped(cells: Iterable[Cell], *keys: str) -> dict[Any, list[Cell]]:
    """Cells by the value of an entry (of several: by a tuple), in the order of appearance."""
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        values = tuple(cell[key] for key in keys)
        groups.setdefault(values if len(keys) > 1 else values[0], []).append(cell)
    return groups


def mean_of(cells: Iterable[Cell], key: str) -> float | None:
    """The mean of an entry over cells, usually of several seeds; None where it was not measured."""
    values = [float(cell[key]) for cell in cells if cell.get(key) is not None]
    return statistics.fmean(values) if values else None


def error_text(cells: Iterable[Cell], key: str) -> str:
    """A mean with its standard deviation over seeds, ``0.0264 ± 0.0003``; empty without values."""
    values = [float(cell[key]) for cell in cells if cell.get(key) is not None]
    if not values:
        return ""
    mean = statistics.fmean(values)
    form = ".1e" if 0 < abs(mean) < 1e-3 else ".5f" if 0 < abs(mean) < 1e-2 else ".4f"
    several = len(values) > 1 and all(map(math.isfinite, values))
    return f"{mean:{form}}" + (f" ± {statistics.stdev(values):{form}}" if several else "")


def table_over_seeds(
    title: str,
    groups: Mapping[str, list[Cell]],
    errors: Mapping[str, str],
    means: Mapping[str, str],
) -> Table:
    """One line for each group: errors with their spread over seeds, the rest as means.

    ``errors`` and ``means`` are the titles of columns with the entries of a cell that they show.
    """
    lines = []
    for name, own in groups.items():
        spreads = [error_text(own, key) or "–" for key in errors.values()]
        rest = [mean_of(own, key) for key in means.values()]
        texts = ["" if value is None else f"{value:.4g}" for value in rest]
        lines.append([name, *spreads, *texts, str(len(own))])
    return Table(title, ["row", *errors, *means, "seeds"], lines)
