"""The tables on trajectories: NMSE of rollouts, beside the paper's numbers, for the terminal, Markdown and LaTeX."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

from rich.table import Table as Grid

from pacefno.equations import TRAJECTORY_PROBLEMS, TrajectoryProblem
from pacefno.studies.report.collect import PREFERRED, Statistic, results_folder, statistic
from pacefno.studies.report.grids import latex_grid, markdown_grid
from pacefno.studies.results import Row, key_of, read_results
from pacefno.training.forecasts import FORECASTS


@final
@dataclass(frozen=True)
class ForecastTable:
    """Everything known about one benchmark of trajectories at one preset."""

    problem: TrajectoryProblem
    preset: str
    rows: tuple[Row, ...]

    @property
    def models(self) -> list[str]:
        return [name for name in FORECASTS if self.of(name)]

    def of(self, model: str) -> list[Row]:
        return [row for row in self.rows if row["model"] == model]

    def value(self, model: str, key: str) -> Statistic | None:
        return statistic(self.of(model), key)

    @property
    def seeds(self) -> list[int]:
        return sorted({int(row["seed"]) for row in self.rows})


COLUMNS = {
    "NMSE": "nmse",
    "per frame": "nmse_frame",
    "OOD NMSE": "ood_nmse",
    "OOD, canonical": "ood_nmse_canonical",
    "equivariance": "equivariance_error",
}


ForecastTables: TypeAlias = dict[str, ForecastTable]


def collect_forecasts(folders: Sequence[Path], preset: str | None = None) -> ForecastTables:
    """The tables in some results folders; a benchmark without rows is left out."""
    tables = {}
    for name, problem in TRAJECTORY_PROBLEMS.items():
        merged = {key_of(row): row for folder in map(results_folder, folders) for row in read_results(folder, name)}
        rows = [merged[key] for key in sorted(merged)]
        present = {row["preset"] for row in rows}
        order = [preset] if preset else [*PREFERRED, *sorted(present)]
        chosen = next((one for one in order if one in present), None)
        if chosen is not None:
            tables[name] = ForecastTable(problem, chosen, tuple(row for row in rows if row["preset"] == chosen))
    return tables


def caption(table: ForecastTable) -> str:
    seeds = ", ".join(map(str, table.seeds))
    over = f"mean ± standard deviation over the seeds {seeds}" if len(table.seeds) > 1 else f"seed {seeds}"
    return (
        f"{table.problem.title}, preset {table.preset}: LPSDA's NMSE of rollouts over 100 frames, a sum over the frames "
        f"(per frame: its mean), {over}. OOD: {moved_how(table.problem)}; canonical: measured without that motion."
    )


def moved_how(problem: TrajectoryProblem) -> str:
    return f"shifted, and boosted{' and rescaled' if problem.symmetry.scaling else ''} beyond the augmentation"


def cells(table: ForecastTable) -> tuple[list[str], list[list[str]]]:
    """Head and rows as plain text; a dash where nothing was measured."""
    head = ["model", *COLUMNS, "paper NMSE", "parameters", "training, s", "seeds"]
    body = []
    for model in table.models:
        rows = table.of(model)
        numbers = [_text(table.value(model, key)) for key in COLUMNS.values()]
        paper = table.problem.paper.get(model)
        seconds = statistic(rows, "train_seconds")
        body.append(
            [
                FORECASTS[model].title,
                *numbers,
                "" if paper is None else f"{paper[0]:.4f} ± {paper[1]:.4f}",
                f"{rows[0]['parameters']:,}",
                "–" if seconds is None else f"{seconds.mean:.0f}",
                str(len(rows)),
            ]
        )
    return head, body


def forecast_findings(table: ForecastTable) -> list[str]:
    """What the numbers say of PACE and of augmentation."""
    sentences = []
    for pace, plain in (("pace-20", "fno-aug"), ("pace-1", "fno-aug-1")):
        sentences += _comparison(table, pace, plain)
    return sentences


def _comparison(table: ForecastTable, pace: str, plain: str) -> list[str]:
    mine, other = table.of(pace), table.of(plain)
    seeds = {row["seed"] for row in mine} & {row["seed"] for row in other}
    if not seeds:
        return []
    means = {
        (name, key): statistics.fmean(row[key] for row in rows if row["seed"] in seeds)
        for name, rows in ((pace, mine), (plain, other))
        for key in ("nmse", "ood_nmse_canonical")
    }
    inside = means[pace, "nmse"] / means[plain, "nmse"]
    outside = means[plain, "ood_nmse_canonical"] / means[pace, "ood_nmse_canonical"]
    sizes = sorted({row["parameters"] for row in [*mine, *other]})
    size = "" if len(sizes) == 1 else f" ({mine[0]['parameters']:,} parameters against {other[0]['parameters']:,})"
    beyond = f"{outside:.3g} times lower" if outside >= 1 else f"{1 / outside:.3g} times higher"
    return [
        f"{FORECASTS[pace].title}, against {FORECASTS[plain].title}{size}: {inside:.2f} times its NMSE on the test set; "
        f"out of distribution {beyond}, measured without the motion."
    ]


def _text(value: Statistic | None) -> str:
    return "–" if value is None else str(value)


def forecast_terminal_table(table: ForecastTable) -> Grid:
    grid = Grid(title=caption(table), title_justify="left")
    head, body = cells(table)
    for i, title in enumerate(head):
        grid.add_column(title, justify="right" if i else "left", no_wrap=True)
    for row in body:
        grid.add_row(*row)
    return grid


def forecast_markdown(table: ForecastTable) -> str:
    return f"{markdown_grid(*cells(table))}\n\n{caption(table)}\n"


def forecast_latex(table: ForecastTable) -> str:
    return latex_grid(*cells(table), caption=caption(table), label=table.problem.name)
