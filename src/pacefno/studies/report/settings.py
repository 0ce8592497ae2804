"""Where our settings differ from the paper's, read from the code that sets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from pacefno.data.presets import SIZES
from pacefno.equations import Problem
from pacefno.studies.report.collect import Table
from pacefno.training.config import LossSettings, RunConfig, ScheduleSettings
from pacefno.training.presets import PRESETS, config_for, trained_row

PAPER_DEVICE = "one GPU (RTX 4080)"


@final
@dataclass(frozen=True)
class Setting:
    name: str
    paper: str
    ours: str


def differences(table: Table) -> list[Setting]:
    """Every setting that is not the paper's; what the paper does not state is listed as such."""
    problem, preset = table.problem, table.preset
    rows = [Setting("equation and horizon", "values not stated", physics(problem))]
    if preset in SIZES:
        rows += _data(problem, preset)
    if preset in PRESETS and problem.name in PRESETS["paper"]:
        model = _reference_model(table)
        rows += _training(config_for(problem.name, model, "paper", 42), config_for(problem.name, model, preset, 42))
    rows.append(Setting("device", PAPER_DEVICE, devices(table)))
    return [row for row in rows if row.paper != row.ours]


def physics(problem: Problem) -> str:
    values = ", ".join(f"{name} = {value:g}" for name, value in problem.equation.parameters.items())
    return f"{values}, T = {problem.spacing * problem.frames_out:g}"


def grids(problem: Problem, preset: str) -> str:
    """``ID grid → OOD grid`` as a preset stores them."""
    stride = SIZES[preset].stride(problem) if preset in SIZES else 1
    return f"{_by(problem.id_grid, stride)} → {_by(problem.grid, stride)}"


def devices(table: Table) -> str:
    found = {(str(row.get("device", "?")), int(row.get("threads", 0))) for row in table.rows}
    return " and ".join(f"{device}, {threads} thread{'s' if threads != 1 else ''}" for device, threads in sorted(found))


def _reference_model(table: Table) -> str:
    """PACE if it is there: only it has the paper's extra losses."""
    known = [line.model for line in table.lines if line.spec is not None]
    return trained_row("pace" if "pace" in known or not known else known[0])


def _data(problem: Problem, preset: str) -> list[Setting]:
    paper, ours = SIZES["paper"], SIZES[preset]
    return [
        Setting("samples, training / test", f"{paper.train} / {paper.test}", f"{ours.train} / {ours.test}"),
        Setting("grid, ID → OOD", grids(problem, "paper"), grids(problem, preset)),
    ]


def _training(paper: RunConfig, ours: RunConfig) -> list[Setting]:
    def operator(config: RunConfig) -> str:
        return f"{config.operator.modes} modes, width {config.operator.width}, {config.operator.layers} layers"

    return [
        Setting("operator", operator(paper), operator(ours)),
        Setting("epochs", _epochs(paper.schedule), _epochs(ours.schedule)),
        Setting("batch", str(paper.schedule.batch), str(ours.schedule.batch)),
        Setting("learning rate", rate_text(paper.schedule), rate_text(ours.schedule)),
        Setting("PACE losses beside L2", _losses(paper.loss), _losses(ours.loss)),
    ]


def _epochs(schedule: ScheduleSettings) -> str:
    coarse = round(schedule.coarse * schedule.epochs)
    if not coarse:
        return str(schedule.epochs)
    return f"{schedule.epochs}, of which {coarse} on every {_ordinal(schedule.coarse_stride)} point"


def _ordinal(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def rate_text(schedule: ScheduleSettings) -> str:
    if schedule.shape == "step":
        return f"{schedule.rate:g}, times {schedule.step_factor:g} every {schedule.step_every} epochs"
    return f"{schedule.rate:g}, {'one cycle' if schedule.shape == 'onecycle' else schedule.shape}"


def _losses(loss: LossSettings) -> str:
    weights = {"H1": loss.h1, "equivariance": loss.equivariance, "anchor": loss.anchor, "invariant": loss.invariant}
    return ", ".join(f"{weight:g} {name}" for name, weight in weights.items() if weight) or "none"


def _by(grid: tuple[int, ...], stride: int) -> str:
    return " × ".join(str(n // stride) for n in grid)
