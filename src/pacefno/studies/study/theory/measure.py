"""A trained run through the theory: everything that ``pacefno study theory`` prints, as one cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from pacefno.data import Dataset, Samples
from pacefno.equations import Problem
from pacefno.frames import AdamRefiner, GaussNewton, IdentityFrame, KinematicFrame
from pacefno.metrics import equivariance_error, relative_l2
from pacefno.pace import PACE
from pacefno.studies.cells import Cell
from pacefno.studies.report.trained import few_samples
from pacefno.studies.study.samples import batches, double, first
from pacefno.studies.study.theory.growth import Growth, measure_growth
from pacefno.studies.study.theory.lipschitz import random_gain, spectral_norm
from pacefno.studies.study.theory.terms import Terms, canonical_pair, decompose, norm, violations
from pacefno.training.evaluate import BATCH, predict_row
from pacefno.training.models import ModelSpec

NEWTON_STEPS = tuple(range(9))
ADAM_STEPS = (0, 1, 2, 5, 10, 20, 50)


@final
@dataclass(frozen=True)
class Effort:
    """On how many samples each part is measured: norms of derivatives and probes of the energy cost most."""

    samples: int = 200
    derivatives: int = 12
    growth: int = 12
    iterations: int = 20
    probes: int = 32
    radius: float = 0.05  # periods


def measure(model: PACE, spec: ModelSpec, problem: Problem, dataset: Dataset, effort: Effort) -> Cell:
    """All terms of one model, computed in float64."""
    model = model.double()
    moved = double(few_samples(dataset, "test_ood", effort.samples))
    parts = [_terms(model, spec, problem, rows) for rows in batches(moved)]
    terms = Terms(*(torch.cat(columns) for columns in zip(*parts, strict=True)))
    cell = {"samples": len(moved), "terms": {name: values.tolist() for name, values in terms._asdict().items()}}
    cell |= _bounds(terms)
    cell["operator"] = _derivatives(model, problem, first(moved, effort.derivatives), terms, effort)
    cell |= _commutation(model, spec, problem, dataset)
    cell |= _generalisation(model, spec, problem, dataset, effort.samples)
    if moved.resolved is not None:
        cell["symmetry_defect"] = float((norm(moved.target - moved.resolved) / norm(moved.resolved)).mean())
    cell["refinement"] = _refinement(model, problem, first(moved, effort.growth), effort)
    return cell


def _terms(model: PACE, spec: ModelSpec, problem: Problem, rows: Samples) -> Terms:
    assert rows.generators is not None
    xi = predict_row(model, spec, rows.input, rows.generators)[1] if model.group.size else None
    estimated = problem.group.identity(len(rows), dtype=rows.input.dtype) if xi is None else xi.to(rows.input.dtype)
    return decompose(model, problem, rows.input, rows.target, rows.generators, estimated)


def _bounds(terms: Terms) -> Cell:
    """The bound beside the error, per sample and in the paper's form with suprema."""
    largest = {name: float(values.max()) for name, values in terms._asdict().items()}
    m_0 = largest["action"] * largest["sensitivity"]
    supremum = largest["action"] * largest["canonical"] + m_0 * largest["input_alignment"] + largest["terminal_alignment"]
    return {
        "bound": terms.bound.tolist(),
        "violations": violations(terms.actual, terms.bound),
        "sharper_bound": terms.sharper_bound.tolist(),
        "violations_sharper": violations(terms.actual, terms.sharper_bound),
        "violations_as_printed": violations(terms.actual, terms.bound_as_printed),
        "supremum": {"error": largest["actual"], "bound": supremum},
        "shares": shares(terms),
    }


def shares(terms: Terms) -> dict[str, float]:
    """How much of the bound each term makes up, summed over the samples."""
    parts = {"canonical": terms.from_canonical, "input": terms.from_input, "terminal": terms.terminal_alignment}
    total = float(terms.bound.sum())
    return {name: float(part.sum()) / total for name, part in parts.items()}


def _derivatives(model: PACE, problem: Problem, samples: Samples, terms: Terms, effort: Effort) -> Cell:
    """Local Lipschitz estimates at the canonical inputs, beside the ratio along the actual perturbation."""
    assert samples.generators is not None
    a_c = canonical_pair(problem, samples.input, samples.target, samples.generators)[0]
    steepest = spectral_norm(model.operator, a_c, effort.iterations)
    few = Terms(*(values[: len(a_c)] for values in terms))
    return {
        "steepest": steepest.tolist(),
        "random": random_gain(model.operator, a_c).tolist(),
        "bound_with_steepest": few.bound_with(steepest).tolist(),
        "violations_with_steepest": violations(few.actual, few.bound_with(steepest)),
    }


def _commutation(model: PACE, spec: ModelSpec, problem: Problem, dataset: Dataset) -> Cell:
    """The commutation residual eta_G over the whole group, relative; the true frame is no function of the field."""
    if spec.inference == "oracle":
        return {"commutation": None}
    field = few_samples(dataset, "test_id", BATCH).input.double()

    def function(x: Tensor) -> Tensor:
        return predict_row(model, spec, x, None)[0]

    eta = equivariance_error(function, problem.group, field, horizon=problem.horizon)
    return {"commutation": {"mean": float(eta.mean()), "max": float(eta.max())}}


def _generalisation(model: PACE, spec: ModelSpec, problem: Problem, dataset: Dataset, count: int) -> Cell:
    """``Gen_N = R - R_N``: the error on held-out less that on training samples, both canonical and on the ID grid."""
    held_out = first(double(dataset.load("test_id", "id")), count)
    seen = first(double(dataset.load("train")), count)
    test, train = (_risk(model, spec, problem, samples) for samples in (held_out, seen))
    return {"generalisation": {"train": train, "test": test, "gap": test - train}}


def _risk(model: PACE, spec: ModelSpec, problem: Problem, samples: Samples) -> float:
    errors = [
        relative_l2(predict_row(model, spec, rows.input, None)[0], rows.target, per_channel=problem.per_channel)
        for rows in batches(samples)
    ]
    return float(torch.cat(errors).mean())


# --- refinement -----------------------------------------------------------------------------------------------------


def _refinement(model: PACE, problem: Problem, samples: Samples, effort: Effort) -> Cell | None:
    """Energy along the path of either refiner, and the corollary; None for a model without a frame to refine."""
    if model.group.spatial == 0 or isinstance(model.frame, (IdentityFrame, KinematicFrame)):
        return None
    ways: dict[str, tuple[GaussNewton | AdamRefiner, tuple[int, ...]]] = {
        "gauss-newton": (GaussNewton(), NEWTON_STEPS),
        "adam": (AdamRefiner(), ADAM_STEPS),
    }
    true = samples.generators
    assert true is not None
    found: Cell = {}
    for name, (refiner, steps) in ways.items():
        growth = measure_growth(
            model, problem, samples.input, samples.target, true, refiner, steps, radius=effort.radius, probes=effort.probes
        )
        found[name] = _path(growth)
    return found


def _path(growth: Growth) -> Cell:
    """One refiner's part; the corollary is checked where it speaks: on samples whose least energy is zero."""
    settled = growth.settled
    return {
        "steps": list(growth.path.steps),
        "energy": growth.path.energy.mean(dim=1).tolist(),
        "distance": growth.distance.mean(dim=1).tolist(),
        "error": growth.error.mean(dim=1).tolist(),
        "bound": growth.bound[:, settled].mean(dim=1).tolist() if bool(settled.any()) else None,
        "alpha": growth.alpha.tolist(),
        "slope": growth.slope.tolist(),
        "at_minimum": growth.at_minimum.tolist(),
        "settled": int(settled.sum()),
        "rises": int((growth.path.energy.diff(dim=0) > 0).sum()),
        "violations": violations(growth.error[:, settled], growth.bound[:, settled]),
        "checked": int(settled.sum()) * len(growth.path.steps),
    }
