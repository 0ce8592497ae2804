"""From result files to tables: the rows of each benchmark at one preset, all seeds together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

from pacefno.paper.bench import Result, ResultsError, results_file, runtime_file
from pacefno.paper.benchmarks import BENCHMARKS, Benchmark
from pacefno.paper.differences import Setting, differences
from pacefno.paper.rows import Row
from pacefno.paper.style import Statistic, statistic

# The first that has rows is shown; the longer ones, which train for an hour and more, are for
# single rows beside a whole table of `standard`.
PREFERRED = ("standard", "paper", "long", "quick", "smoke")


@final
@dataclass(frozen=True)
class Line:
    """One line of a table: the results of all seeds of one row."""

    model: str
    results: tuple[Result, ...]
    row: Row | None = None  # None for a row that this version does not know
    paper: tuple[float, float] | None = None  # (ID, OOD) errors, or (NMSE, its deviation)

    @property
    def title(self) -> str:
        """The row's title, or the one that came with the results of another method."""
        return self.row.title if self.row else str(self.results[0].get("title", self.model))

    @property
    def seeds(self) -> list[int]:
        return [int(result["seed"]) for result in self.results]

    @property
    def sees_the_truth(self) -> bool:
        """Whether it is given the true frame; other methods say so by their name."""
        return self.row.inference == "oracle" if self.row else self.model.endswith("-oracle")

    def of(self, key: str) -> Statistic | None:
        """Mean and deviation of a measured number."""
        return statistic(self.results, key)


@final
@dataclass(frozen=True)
class Table:
    """Everything that is known about one benchmark at one preset."""

    benchmark: Benchmark
    preset: str
    lines: tuple[Line, ...]

    @property
    def of_rollouts(self) -> bool:
        """Whether whole trajectories are predicted; else pairs of input and target."""
        return self.benchmark.task.rollout is not None

    @property
    def results(self) -> list[Result]:
        return [result for line in self.lines for result in line.results]

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for line in self.lines for seed in line.seeds})

    @property
    def differences(self) -> list[Setting]:
        """Where the settings of this table are not the paper's."""
        return differences(self.benchmark, self.preset, self.results)

    @property
    def commands(self) -> list[str]:
        """The commands that made the results."""
        return sorted({str(r["command"]) for r in self.results if r.get("command")})

    def line(self, model: str) -> Line | None:
        return next((line for line in self.lines if line.model == model), None)

    @property
    def best(self) -> set[str]:
        """The rows of pairs with the lowest OOD error, as far as its printed digits tell.

        The true frame does not compete, nor a row with fewer seeds than others have: one seed may
        be a lucky one.
        """
        most = max((len(set(line.seeds)) for line in self.lines), default=0)
        errors = {
            line.model: error
            for line in self.lines
            if (error := line.of("ood_error")) is not None
            and math.isfinite(error.mean)
            and not line.sees_the_truth
            and len(set(line.seeds)) == most
        }
        lowest = min(errors.values(), key=lambda error: error.mean, default=None)
        if lowest is None:
            return set()
        return {m for m, error in errors.items() if error.mean_text == lowest.mean_text}


Tables: TypeAlias = dict[str, Table]


def collect(folders: Sequence[Path], preset: str | None = None) -> Tables:
    """The tables in some results folders; one without results is left out.

    Of two results of the same preset, row and seed the last folder's counts. Without ``preset``
    each benchmark shows the first of :data:`PREFERRED` that it has.
    """
    sources = [results_folder(folder) for folder in folders]
    clocks = [runtime_file(folder) for folder in sources]
    times = {clock.key_of(row): row for clock in clocks for row in clock.read()}
    tables = {}
    for name, benchmark in BENCHMARKS.items():
        files = [results_file(folder, name) for folder in sources]
        merged = {file.key_of(result): result for file in files for result in file.read()}
        results = [merged[key] for key in sorted(merged)]
        timed = [times.get((name, one["preset"], one["model"]), {}) | one for one in results]
        table = make_table(benchmark, timed, preset)
        if table is not None:
            tables[name] = table
    if not tables:
        wanted = f" with preset {preset!r}" if preset else ""
        raise ResultsError(
            f"no results{wanted} in {', '.join(map(str, folders))}: expected BENCHMARK.json there; "
            "make it with `pacefno bench BENCHMARK`, or name the folder that holds it"
        )
    return tables


def make_table(benchmark: Benchmark, results: list[Result], preset: str | None) -> Table | None:
    """The results of one preset, in the order of the benchmark's rows; None if there are none."""
    present = {result["preset"] for result in results}
    order = [preset] if preset else [*PREFERRED, *sorted(present)]
    chosen = next((name for name in order if name in present), None)
    if chosen is None:
        return None
    groups: dict[str, list[Result]] = {name: [] for name in benchmark.rows}
    for result in results:
        if result["preset"] == chosen:
            groups.setdefault(result["model"], []).append(result)
    rows, paper = benchmark.rows, benchmark.paper
    lines = [
        Line(m, tuple(found), rows.get(m), paper.get(m)) for m, found in groups.items() if found
    ]
    return Table(benchmark, chosen, tuple(lines))


def results_folder(folder: Path) -> Path:
    """The folder itself, or its ``results`` if it is a folder of runs."""
    inner = folder / "results"
    own = any((folder / f"{name}.json").exists() for name in BENCHMARKS)
    return inner if not own and inner.is_dir() else folder
