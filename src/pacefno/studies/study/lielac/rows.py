"""The LieLAC family of table rows: which energy, what is searched for, and whether the operator was fine-tuned."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import nn

from pacefno.data import Dataset, Samples
from pacefno.equations import Problem
from pacefno.frames import AdamRefiner, AnalyticFrame, GaussNewton
from pacefno.frames.refine import energy_of
from pacefno.pace import PACE
from pacefno.studies.study.lielac.energy import InputEnergy, fit
from pacefno.studies.study.lielac.frame import ADAM, NEWTON, EnergyFrame, search
from pacefno.studies.study.samples import batches
from pacefno.training.evaluate import score
from pacefno.training.models import ModelSpec


@final
@dataclass(frozen=True)
class LieLACRow:
    """One row: the operator is the plain FNO of the tables, frozen or fine-tuned."""

    name: str
    title: str
    energy: Literal["gaussian", "neighbours"] = "gaussian"
    free: bool = False  # velocities are searched for too; else they are read off the field, as in PACE
    refiner: GaussNewton | AdamRefiner = NEWTON
    finetuned: bool = False
    oracle: bool = False  # the true frame instead of a search: the floor

    @property
    def spec(self) -> ModelSpec:
        return ModelSpec(self.title, frame="lielac", inference="oracle" if self.oracle else "one-shot")


ROWS = (
    LieLACRow("lielac", "LieLAC, Gaussian energy"),
    LieLACRow("lielac-adam", "LieLAC, Gaussian energy, Adam", refiner=ADAM),
    LieLACRow("lielac-free", "LieLAC, velocity searched too", free=True),
    LieLACRow("lielac-neighbours", "LieLAC, nearest neighbours", energy="neighbours"),
    LieLACRow("lielac-ft", "LieLAC, Gaussian energy, fine-tuned", finetuned=True),
    LieLACRow("lielac-oracle", "frozen FNO in the true frame", oracle=True),
)


def energy_for(row: LieLACRow, problem: Problem, dataset: Dataset) -> InputEnergy:
    """Fitted on the training inputs and nothing else."""
    return fit(problem, row.energy, dataset.load("train").input, free=row.free)


def lielac_model(row: LieLACRow, problem: Problem, operator: nn.Module, energy: InputEnergy) -> PACE:
    """The operator in the frame of least energy, with the same group action and terminal frame as PACE."""
    frame = AnalyticFrame(problem.group, problem.slice) if row.oracle else EnergyFrame(problem.group, energy, row.refiner)
    return PACE(operator, problem.group, frame, problem.horizon).eval()


def measure(row: LieLACRow, problem: Problem, operator: nn.Module, energy: InputEnergy, dataset: Dataset) -> dict[str, Any]:
    """The numbers of every table row, and what the search cost and missed."""
    model = lielac_model(row, problem, operator, energy)
    found = score(model, row.spec, problem, dataset)
    if row.oracle:
        return found
    return found | search_report(row, problem, energy, dataset.load("test_ood", "ood"))


def search_report(row: LieLACRow, problem: Problem, energy: InputEnergy, moved: Samples) -> dict[str, Any]:
    """Evaluations of the energy for each sample, seconds, and on how many samples the true frame has a lower energy.

    Where it has, the search failed; where it has not and the frame is wrong all the same, the energy did.
    """
    evaluations, missed, seconds = 0, 0, 0.0
    for rows in batches(moved):
        assert rows.generators is not None
        started = time.perf_counter()
        found = search(energy, problem.group, rows.input, row.refiner)
        seconds += time.perf_counter() - started
        evaluations = max(evaluations, found.evaluations)
        coarse = energy.features.coarse(rows.input)
        with torch.no_grad():
            at_truth = energy_of(energy.residual(coarse, rows.generators.to(coarse.dtype)))
        missed += int((at_truth < 0.999 * found.energy_after).sum())
    return {"energy_evaluations": evaluations, "search_seconds": round(seconds, 3), "search_missed": missed / len(moved)}
