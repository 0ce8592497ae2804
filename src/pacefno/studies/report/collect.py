"""From result files to what a table says: statistics over seeds, in the order of the registry."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

from pacefno.equations import BENCHMARKS, PROBLEMS, Problem
from pacefno.studies.results import ResultsError, Row, key_of, read_results, results_path
from pacefno.training.models import MODELS, ModelSpec

PREFERRED = ("paper", "standard", "quick", "smoke")  # without --preset, the first of these that has rows is shown
SMALL, TINY = 1e-2, 1e-3


@final
@dataclass(frozen=True)
class Statistic:
    """A number measured with several seeds: its mean, and the standard deviation if there is more than one."""

    mean: float
    std: float | None = None

    def __str__(self) -> str:
        return f"{self.mean_text} ± {self.std_text}" if self.std is not None else self.mean_text

    @property
    def mean_text(self) -> str:
        return self._form.format(self.mean)

    @property
    def std_text(self) -> str:
        return "" if self.std is None else self._form.format(self.std)

    @property
    def _form(self) -> str:
        """Four decimals, five for small numbers, powers of ten for tiny ones."""
        size = abs(self.mean)
        return "{:.1e}" if 0 < size < TINY else "{:.5f}" if 0 < size < SMALL else "{:.4f}"


def statistic(rows: Sequence[Row], key: str) -> Statistic | None:
    """Mean and standard deviation of a column over the seeds; None where nothing was measured."""
    values = [float(row[key]) for row in rows if row.get(key) is not None]
    if not values:
        return None
    if len(values) == 1 or not all(map(math.isfinite, values)):
        return Statistic(statistics.fmean(values))
    return Statistic(statistics.fmean(values), statistics.stdev(values))


@final
@dataclass(frozen=True)
class Line:
    """One model of a table with the rows of all its seeds."""

    model: str
    rows: tuple[Row, ...]
    paper: tuple[float, float] | None  # (ID, OOD) errors that the paper reports

    @property
    def title(self) -> str:
        """The registry's name of a model, or the one that came with the rows of another method."""
        return MODELS[self.model].title if self.model in MODELS else str(self.rows[0].get("title", self.model))

    @property
    def spec(self) -> ModelSpec | None:
        """None for a model of a later or earlier version, whose numbers can still be shown."""
        return MODELS.get(self.model)

    @property
    def seeds(self) -> list[int]:
        return [int(row["seed"]) for row in self.rows]

    def of(self, key: str) -> Statistic | None:
        return statistic(self.rows, key)

    def at(self, seeds: Sequence[int]) -> Line:
        """The same model with some of its seeds: two models are compared on those that both have."""
        return Line(self.model, tuple(row for row in self.rows if row["seed"] in seeds), self.paper)

    def mean(self, key: str) -> float:
        """The mean of a column, NaN where nothing was measured: comparisons with it are then all false."""
        found = self.of(key)
        return math.nan if found is None else found.mean


@final
@dataclass(frozen=True)
class Table:
    """Everything known about one problem at one preset."""

    problem: Problem
    preset: str
    lines: tuple[Line, ...]

    @property
    def rows(self) -> list[Row]:
        return [row for line in self.lines for row in line.rows]

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for line in self.lines for seed in line.seeds})

    def line(self, model: str) -> Line | None:
        return next((line for line in self.lines if line.model == model), None)

    @property
    def best(self) -> set[str]:
        """Models with the lowest OOD error, as far as its printed digits tell.

        The true frame does not compete, nor a model with fewer seeds than others: one seed may be a lucky one.
        """
        most = max((len(set(line.seeds)) for line in self.lines), default=0)
        means = {
            line.model: found
            for line in self.lines
            if (found := line.of("ood_error"))
            and math.isfinite(found.mean)
            and not sees_the_truth(line)
            and len(set(line.seeds)) == most
        }
        if not means:
            return set()
        lowest = min(means.values(), key=lambda found: found.mean)
        return {model for model, found in means.items() if found.mean_text == lowest.mean_text}


Tables: TypeAlias = dict[str, Table]


def sees_the_truth(line: Line) -> bool:
    """Whether a row is given the true frame: a floor, no competitor. Rows of other methods say so by their name."""
    return line.model.endswith("-oracle") if line.spec is None else line.spec.inference == "oracle"


def collect(folders: Sequence[Path], preset: str | None = None, *, required: bool = True) -> Tables:
    """The tables in some results folders; of two rows with the same preset, model and seed the last folder's is taken."""
    sources = [results_folder(folder) for folder in folders]
    tables = {}
    for name, problem in PROBLEMS.items():
        merged = {key_of(row): row for folder in sources for row in read_results(folder, name)}
        table = _table(problem, [merged[key] for key in sorted(merged)], preset)
        if table is not None:
            tables[name] = table
    if not tables and required:
        wanted = f" with preset {preset!r}" if preset else ""
        raise ResultsError(
            f"no results{wanted} in {', '.join(map(str, folders))}: expected PROBLEM.json there; "
            "make it with `pacefno bench PROBLEM`, or name the folder that holds it"
        )
    return tables


def results_folder(folder: Path) -> Path:
    """The folder itself, or its ``results`` if it is a folder of runs."""
    inner = folder / "results"
    own = any(results_path(folder, name).exists() for name in BENCHMARKS)
    return inner if not own and inner.is_dir() else folder


def _table(problem: Problem, rows: list[Row], preset: str | None) -> Table | None:
    present = {row["preset"] for row in rows}
    order = [preset] if preset else [*PREFERRED, *sorted(present)]
    chosen = next((name for name in order if name in present), None)
    if chosen is None:
        return None
    grouped: dict[str, list[Row]] = {name: [] for name in MODELS}
    for row in rows:
        if row["preset"] == chosen:
            grouped.setdefault(row["model"], []).append(row)
    lines = [Line(model, tuple(group), problem.paper.get(model)) for model, group in grouped.items() if group]
    return Table(problem, chosen, tuple(lines))
