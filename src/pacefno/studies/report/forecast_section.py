"""A benchmark of trajectories on the page of the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import torch

from pacefno.data import DatasetError
from pacefno.data.presets import TRAJECTORY_SIZES
from pacefno.data.trajectories import read_split
from pacefno.studies.bench import DATA_SEED
from pacefno.studies.report.columns import Cell
from pacefno.studies.report.figures import Drawing
from pacefno.studies.report.figures.forecasts import Rollout, draw_frame_errors, draw_rollouts
from pacefno.studies.report.forecasts import ForecastTable, caption, cells, forecast_findings
from pacefno.studies.report.page import Picture
from pacefno.studies.report.settings import Setting, rate_text
from pacefno.training.config import RunConfig
from pacefno.training.forecasts import FORECASTS, lpsda_rollout
from pacefno.training.kinds import FORECAST_KIND
from pacefno.training.load import load_forecaster
from pacefno.training.presets import config_for
from pacefno.training.run import run_folder
from pacefno.training.score_forecasts import out_of_distribution
from pacefno.training.store import CheckpointError

SHOWN = ("fno-aug", "pace-20", "pace-1")
Say = Callable[[str], None]


@final
@dataclass(frozen=True)
class Heading:
    title: str
    meaning: str = ""
    kind: str = "error"


@final
@dataclass(frozen=True)
class ForecastSection:
    """What the template asks of a section, for trajectories."""

    table: ForecastTable
    pictures: list[Picture]
    notes: list[str] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        return self.table.problem.name.replace("_", "-")

    @property
    def caption(self) -> str:
        return caption(self.table)

    @property
    def findings(self) -> list[str]:
        return forecast_findings(self.table)

    @property
    def settings(self) -> list[Setting]:
        ours, paper = (config_for(self.table.problem.name, "fno-aug", preset, 0) for preset in (self.table.preset, "paper"))
        described = zip(_settings(paper), _settings(ours), strict=True)
        return [Setting(name, theirs, own) for (name, theirs), (_, own) in described if theirs != own]

    @property
    def columns(self) -> list[Heading]:
        head, _ = cells(self.table)
        return [Heading(title, kind="name" if i == 0 else "error") for i, title in enumerate(head)]

    @property
    def rows(self) -> list[tuple[str, list[Cell]]]:
        _, body = cells(self.table)
        return [(model, [Cell(text) for text in row]) for model, row in zip(self.table.models, body, strict=True)]

    @property
    def facts(self) -> list[tuple[str, str]]:
        problem = self.table.problem
        ranges = list(zip(problem.symmetry.coordinates, problem.train_range, problem.ood_low, problem.ood_high, strict=True))
        return [
            ("equation", f"{type(problem.equation).__name__} on domains of length {problem.length:g}, within 10 %"),
            ("augmentation", ", ".join(f"{name} ±{inside:g}" for name, inside, _, _ in ranges)),
            ("tested out of distribution", ", ".join(f"{name} {low:g} to {high:g}" for name, _, low, high in ranges)),
            ("rollout", f"100 frames of {problem.points} points, {100 * problem.spacing:.0f} time units"),
        ]

    @property
    def commands(self) -> list[str]:
        return sorted({str(row["command"]) for row in self.table.rows if row.get("command")})


def _settings(config: RunConfig) -> list[tuple[str, str]]:
    """What a training on trajectories is, in words."""
    operator, schedule = config.operator, config.schedule
    samples = TRAJECTORY_SIZES[config.preset].train
    return [
        ("trajectories", str(samples)),
        ("operator", f"{operator.modes} modes, width {operator.width}, {operator.layers} layers"),
        ("predicts", "the change since the last frame" if operator.residual else "the frames"),
        ("updates", f"{schedule.epochs * schedule.passes * (samples // schedule.batch):,} of {schedule.batch} windows"),
        ("learning rate", rate_text(schedule)),
        ("optimiser", f"{schedule.optimizer}, weight decay {schedule.weight_decay:g}"),
        ("loss", f"{config.loss.error} error"),
    ]


def draw_forecasts(table: ForecastTable, runs: Path, data: Path, say: Say) -> tuple[list[Drawing], list[str]]:
    """The figures that can be made, and what is missing for the rest."""
    problem = table.problem
    drawings = [draw_frame_errors(problem, {model: table.of(model) for model in table.models})]
    folder = FORECAST_KIND.folder(data, problem.name, table.preset, DATA_SEED)
    try:
        test = read_split(problem, folder, "test").to(torch.float32).select(slice(0, 1))
    except DatasetError as error:
        return drawings, [f"The picture of a rollout is left out: {error}."]
    say(f"{problem.title}: a rollout of each model")
    moved = problem.symmetry.act(test, out_of_distribution(problem, 1).float())
    rollouts, missing, truth = [], [], moved.u[0, 2 * problem.history :]
    for model in (name for name in SHOWN if name in table.models):
        run = run_folder(runs, config_for(problem.name, model, table.preset, table.seeds[0]))
        try:
            forecaster = load_forecaster(run).model
        except CheckpointError:
            missing.append(FORECASTS[model].title)
            continue
        with torch.no_grad():
            rollouts.append(Rollout(FORECASTS[model].title, lpsda_rollout(problem, forecaster, moved)[0][0]))
    if not rollouts:
        return drawings, [f"The picture of a rollout is left out: no trained models in {runs}."]
    notes = (
        [f"Not in the picture of a rollout, because {runs} has no training of them: {', '.join(missing)}."] if missing else []
    )
    return [*drawings, draw_rollouts(problem, truth, rollouts, float(moved.length[0]), float(moved.spacing[0]))], notes
