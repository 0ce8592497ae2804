"""What the claims are judged by: results, studies, seconds and figures, and what a verdict is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, final

from pacefno.paper import SEEDS
from pacefno.paper.bench import Result, results_file, runtime_file
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.studies.base import Cell, study_cells
from pacefno.paper.style import Statistic

Word: TypeAlias = Literal["done", "partly", "not"]
MEASURED = ("paper", "long", "standard")  # presets that count
PROBLEMS = ("burgers1d", "burgers2d", "shallow_water", "navier_stokes")
GALLERY = Path("docs/figures/paper")  # beside the folder of results
MANIFEST = "figures.json"


class Finding(NamedTuple):
    """What is there of a claim; the result has a line for each model or run that it speaks of.

    ``why`` says what is missing where the word is partly.
    """

    word: Word
    result: str
    seeds: str = ""
    why: str = ""


@final
@dataclass(frozen=True)
class Evidence:
    """What folders of results hold, and the project around the first of them."""

    folders: tuple[Path, ...]
    _read: dict[tuple[str, ...], list[Result]] = field(default_factory=dict, compare=False)

    @property
    def root(self) -> Path:
        return self.folders[0].resolve().parent

    def rows(self, benchmark: str, model: str, preset: str) -> list[Result]:
        """The results of one row, a seed each; the last folder's count."""
        if (benchmark,) not in self._read:
            files = [results_file(folder, benchmark) for folder in self.folders]
            merged = {file.key_of(row): row for file in files for row in file.read()}
            self._read[benchmark,] = list(merged.values())
        wanted = (preset, model)
        return [r for r in self._read[benchmark,] if (r["preset"], r["model"]) == wanted]

    def at(self, study: str, benchmark: str, preset: str) -> list[Cell]:
        """The cells of a study at a preset."""
        if (key := (study, benchmark, preset)) not in self._read:
            self._read[key] = study_cells(study, self.folders, benchmark_named(benchmark), preset)
        return self._read[key]

    def cells(self, study: str, benchmark: str, **wanted: Any) -> list[Cell]:
        """The cells of a study at the largest preset that has any."""
        for preset in MEASURED:
            found = self.at(study, benchmark, preset)
            if found := [cell for cell in found if cell | wanted == cell]:
                return found
        return []

    def timed(self, benchmark: str, preset: str) -> list[Result]:
        """Seconds of the rows of a benchmark, as ``benchmarks/runtime.py`` measured them."""
        rows = [row for folder in self.folders for row in runtime_file(folder).read()]
        return [row for row in rows if (row["problem"], row["preset"]) == (benchmark, preset)]

    @cached_property
    def gallery(self) -> dict[str, Cell]:
        """Which figures were drawn, and from which preset."""
        path = self.root / GALLERY / MANIFEST
        found: dict[str, Cell] = json.loads(path.read_text()) if path.exists() else {}
        return {name: one for name, one in found.items() if (path.parent / one["file"]).exists()}


Judge: TypeAlias = Callable[[Evidence], Finding]


class Claim(NamedTuple):
    """One row of the page; ``differs`` has a line for each difference from the paper."""

    what: str
    command: str
    judge: Judge
    differs: str = ""


def seeds_of(rows: Sequence[Cell]) -> int:
    return len({row["seed"] for row in rows})


def four_decimals(error: float) -> str:
    """As the paper prints errors; one that exploded as a power of ten."""
    return f"{error:.4f}" if error < 10 else f"{error:.3g}"


def too_few(seeds: int) -> str:
    return f"{seeds} of {len(SEEDS)} seeds"


def beside(name: str, ours: Statistic, paper: float) -> str:
    """An error, the paper's, and by how much ours is larger if it is."""
    times = ours.mean / paper
    more = f", {times:.0f} times" if times >= 10 else f", {times:.2g} times" if times > 1 else ""
    return f"{name} {ours} (paper {paper:.4f}{more})"
