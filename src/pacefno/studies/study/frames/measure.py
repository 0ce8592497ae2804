"""Frame errors of one model over random elements of the whole group, before and after refinement."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from pacefno.equations import Problem
from pacefno.metrics import frame_error, random_elements, relative_l2
from pacefno.pace import PACE
from pacefno.studies.cells import Cell
from pacefno.studies.study.session import tracked
from pacefno.training.evaluate import BATCH

ASTRAY = 0.1  # a pulled-back field that far from the truth is in a wrong basin
QUANTILES = (0.5, 0.9, 0.99)


@torch.no_grad()
def measure(title: str, model: PACE, problem: Problem, fields: Tensor, count: int, seed: int) -> Cell:
    """``count`` canonical fields, each moved by an element drawn from the whole group, not only from the test shell."""
    group = problem.group
    elements = random_elements(group, count, seed).to(fields.dtype)
    found: dict[str, list[Tensor]] = {name: [] for name in ("one_shot", "refined", "off_one_shot", "off_refined", "confidence")}
    seconds = {"one_shot": 0.0, "refined": 0.0}
    for start in tracked(title, range(0, count, BATCH), -(-count // BATCH)):
        xi = elements[start : start + BATCH]
        rows = torch.arange(start, start + len(xi)) % len(fields)
        canonical = fields[rows]
        moved = group.act(canonical, xi)
        began = time.perf_counter()
        estimate = model.frame_of(moved)
        seconds["one_shot"] += time.perf_counter() - began
        refined = model.refine(moved).xi  # finds its own start: its time includes the one-shot estimate
        seconds["refined"] += time.perf_counter() - began
        found["confidence"].append(estimate.confidence)
        for name, frame in (("one_shot", estimate.xi), ("refined", refined)):
            found[name].append(frame_error(group, frame.double(), xi.double()))
            found[f"off_{name}"].append(relative_l2(group.inverse(moved, frame.to(moved.dtype)), canonical))
    return {name: _summary(problem, torch.cat(found[name]), torch.cat(found[f"off_{name}"])) for name in seconds} | {
        "seconds": {name: value / count for name, value in seconds.items()},
        "confidence": {
            "found": _median(torch.cat(found["confidence"]), torch.cat(found["off_one_shot"]) <= ASTRAY),
            "astray": _median(torch.cat(found["confidence"]), torch.cat(found["off_one_shot"]) > ASTRAY),
        },
        "off": {name: torch.cat(found[f"off_{name}"]).double().tolist() for name in seconds},
    }


def _summary(problem: Problem, errors: Tensor, off: Tensor) -> Cell:
    """Quantiles of each coordinate's error and of the distance of the pulled-back field, and the share that went astray."""
    at = torch.tensor(QUANTILES, dtype=torch.float64)
    coordinates = {name: torch.quantile(errors[:, i].double(), at).tolist() for i, name in enumerate(problem.group.coordinates)}
    return {
        "frame_error": coordinates,
        "field_error": torch.quantile(off.double(), at).tolist(),
        "astray": float((off > ASTRAY).double().mean()),
    }


def _median(values: Tensor, chosen: Tensor) -> float | None:
    return float(values[chosen].median()) if bool(chosen.any()) else None
