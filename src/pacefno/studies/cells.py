"""Studies as data: ``results/studies/NAME.json``, a list of cells. A cell that is there is not computed again.

A cell is a plain dictionary: what it is of (the key), the weights it was measured with, and the measured values.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

from pacefno.durable import make_folder, write_text_atomically
from pacefno.studies.results import ResultsError, alone

Cell: TypeAlias = dict[str, Any]
FOLDER = "studies"  # below a folder of results
DIGITS = 7


@final
@dataclass(frozen=True)
class StudyFile:
    """The cells of one study of one problem; ``key`` names the entries that tell one cell from another."""

    folder: Path
    study: str
    problem: str
    key: tuple[str, ...]
    detail: str = ""  # a part of the study that has a file of its own, e.g. a model

    @property
    def path(self) -> Path:
        parts = [self.study, self.problem, self.detail]
        return self.folder / f"{'-'.join(part for part in parts if part)}.json"

    def read(self) -> list[Cell]:
        """The cells so far; none if there is no file yet."""
        cells = read_cells(self.path)
        for cell in cells:
            self._of(cell)
        return cells

    def has(self, wanted: Cell) -> bool:
        """Whether a cell with this key was measured with these weights (and these settings, where a cell names them)."""
        found = next((cell for cell in self.read() if self._of(cell) == self._of(wanted)), None)
        return found is not None and all(found.get(name) == compact(value) for name, value in wanted.items())

    def add(self, cell: Cell) -> None:
        """Store a cell before the next one is begun; one with the same key is replaced, everything else is kept."""
        make_folder(self.folder)
        with alone(self.folder):  # two processes may share a study
            cells = {self._of(old): old for old in self.read()} | {self._of(cell): compact(cell)}
            document = {"study": self.study, "problem": self.problem, "cells": [cells[key] for key in sorted(cells)]}
            write_text_atomically(self.path, json.dumps(document, indent=1) + "\n")

    def _of(self, cell: Cell) -> tuple[Any, ...]:
        try:
            return tuple(cell[name] for name in self.key)
        except (KeyError, TypeError) as error:
            raise _unreadable(self.path, error) from None


def read_cells(path: Path) -> list[Cell]:
    """The cells of a study file; none if it is not there."""
    if not path.exists():
        return []
    try:
        cells: list[Cell] = list(json.loads(path.read_text())["cells"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from None
    return cells


def compact(value: Any) -> Any:
    """The same with floats rounded to seven digits: what float32 holds, in files that people can read."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: compact(inner) for name, inner in value.items()}
    return [compact(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _unreadable(path: Path, error: Exception) -> ResultsError:
    return ResultsError(f"{path}: is no study file ({error!r}): delete it, or restore it from version control")
