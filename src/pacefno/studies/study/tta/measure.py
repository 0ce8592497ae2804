"""One refinement of one model on the OOD test set: errors, energies, and what they cost."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from pacefno.data import Samples
from pacefno.equations import Problem
from pacefno.frames import Refinement
from pacefno.metrics import relative_l2
from pacefno.pace import PACE
from pacefno.studies.cells import Cell
from pacefno.studies.study.samples import batches
from pacefno.studies.study.theory.growth import periods_between
from pacefno.studies.study.tta.settings import Setting

ASTRAY = 0.1  # periods: a frame further from the true one lies in another basin


def measure(model: PACE, problem: Problem, samples: Samples, setting: Setting) -> Cell:
    """The cell of one setting; seconds are of refinement and prediction together, as a user waits for them."""
    predictions, frames, refinements = [], [], []
    started = time.perf_counter()
    for rows in batches(samples):
        refined = None if setting.refiner == "none" else model.refine(rows.input, setting.make())
        with torch.no_grad():
            xi = model.frame_of(rows.input).xi if refined is None else refined.xi
            predictions.append(model.at(rows.input, xi))
        frames.append(xi)
        refinements += [] if refined is None else [refined]
    seconds = time.perf_counter() - started
    assert samples.generators is not None
    apart = periods_between(problem.group, torch.cat(frames).double(), samples.generators)
    return {
        **errors(problem, torch.cat(predictions), samples),
        **_energies(refinements),
        "frame_error": float(apart.mean()),
        "astray": float((apart > ASTRAY).double().mean()),
        "seconds": round(seconds, 3),
    }


def _energies(refinements: list[Refinement]) -> Cell:
    """Mean energy before and after, and how often it was computed; a one-shot prediction computes none."""
    if not refinements:
        return {"energy_before": None, "energy_after": None, "evaluations": 0}
    return {
        "energy_before": float(torch.cat([one.energy_before for one in refinements]).mean()),
        "energy_after": float(torch.cat([one.energy_after for one in refinements]).mean()),
        "evaluations": max(one.evaluations for one in refinements),
    }


def errors(problem: Problem, prediction: Tensor, samples: Samples) -> Cell:
    """OOD error as it is, and after the true motion is removed; means with standard deviations over the samples."""
    assert samples.generators is not None
    terminal = problem.group.transport(samples.generators, problem.horizon)
    plain = relative_l2(prediction, samples.target, per_channel=problem.per_channel).double()
    back = problem.group.inverse(prediction, terminal), problem.group.inverse(samples.target, terminal)
    canonical = relative_l2(*back, per_channel=problem.per_channel).double()
    return {
        "ood_error": float(plain.mean()),
        "ood_error_std": float(plain.std()),
        "ood_error_canonical": float(canonical.mean()),
        "ood_error_canonical_std": float(canonical.std()),
    }
