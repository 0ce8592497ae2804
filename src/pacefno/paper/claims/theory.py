"""Theorems and lemmas, each measured on trained models."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from pacefno.paper.claims.evidence import MEASURED, PROBLEMS, Claim, Evidence, Finding
from pacefno.paper.claims.method import code
from pacefno.paper.studies.base import Cell
from pacefno.paper.studies.capacity import fitted_errors, lemma_bound, widths_of
from pacefno.paper.studies.theory import BALANCED, balance


def over_runs(say: Callable[[Cell], tuple[bool, str] | None], evidence: Evidence) -> Finding:
    """A statement that the study of the theory checks on every run that it analysed.

    ``say`` tells whether it holds and how it was measured, or None where it was not. Done: it holds
    everywhere, and every problem has a run.
    """
    texts, held, seeds = dict[tuple[str, str], str](), True, set[int]()
    for problem, preset in ((p, s) for p in PROBLEMS for s in (*MEASURED, "quick")):
        for cell in evidence.at("theory", problem, preset):  # a theorem holds for every operator
            if (said := say(cell)) is None:
                continue
            held = held and said[0]
            model = cell["model"]  # the largest preset of each is shown, all count
            texts.setdefault((problem, model), f"{problem} `{model}` ({preset}): {said[1]}")
            seeds.add(cell["seed"])
    if not texts:
        return Finding("not", "not measured", "0")
    text, count = "\n".join(texts.values()), str(len(seeds))
    if not held:
        return Finding("partly", f"FAILS somewhere:\n{text}", count, "it fails on a run")
    measured = {problem for problem, _ in texts}
    if missing := [problem for problem in PROBLEMS if problem not in measured]:
        return Finding("partly", text, count, f"not measured on {', '.join(missing)}")
    return Finding("done", text, count)


def bound(cell: Cell) -> tuple[bool, str]:
    count, failed, operator = cell["samples"], cell["violations"], cell["operator"]
    tried, steep = len(operator["steepest"]), operator["violations_with_steepest"]
    text = (
        f"on {count - failed} of {count} samples, with the largest L on {tried - steep} of {tried}"
    )
    if printed := cell["violations_as_printed"]:
        text += f"; as the paper prints it, without K_C before epsilon, on {count - printed}"
    return failed == steep == 0, text


def isometry(cell: Cell) -> tuple[bool, str]:
    largest = max(cell["terms"]["action"])
    return math.isfinite(largest), f"K_C at most {largest:.3g}"


def lipschitz(cell: Cell) -> tuple[bool, str]:
    steepest = max(cell["operator"]["steepest"])
    return math.isfinite(steepest), f"L at most {steepest:.3g} at canonical inputs"


def pull_back(cell: Cell) -> tuple[bool, str] | None:
    if (flow := _flow(cell)) is None:
        return None
    steepest = max(flow["pull"])
    return math.isfinite(steepest), f"at most {steepest:.3g} of a field's norm per period"


def _flow(cell: Cell) -> Cell | None:
    """The gradient flow of a cell's frames; cells that are older than it have none."""
    found: Cell | None = (cell.get("refinement") or {}).get("flow")
    return found


def projection(cell: Cell) -> tuple[bool, str] | None:
    if not (mean := cell.get("projection")):
        return None
    text = f"gap {mean['gap']:.3g}, of the projection {mean['gap_projected']:.3g}, eta "
    return mean["holds"] and not mean["violations"], text + f"{mean['eta']:.2g}"


def decay(cell: Cell) -> tuple[bool, str] | None:
    if (flow := _flow(cell)) is None:
        return None
    held = flow["rises"] == 0 and flow["imbalance"] <= BALANCED
    return held, f"the energy rises {flow['rises']} times, {balance(flow)}"


def corollary(cell: Cell) -> tuple[bool, str] | None:
    if not (paths := cell.get("refinement")):
        return None
    checked, bad = (sum(p[key] for p in paths.values()) for key in ("checked", "violations"))
    alpha = min(min(path["alpha"]) for path in paths.values())
    return checked > 0 and bad == 0, f"{checked - bad} of {checked} points, alpha {alpha:.2g}"


def approximation(evidence: Evidence) -> Finding:
    """Errors on fitted samples: done where every wider network has a smaller one."""
    texts, falls, seeds = [], True, set[int]()
    for problem in PROBLEMS:
        if not (cells := widths_of(evidence.cells("capacity", problem))):
            continue
        errors = fitted_errors(cells)
        falls = falls and all(a > b for a, b in pairwise(errors.values()))
        seeds |= {cell["seed"] for cell in cells}
        shown = ", ".join(f"{error:.3g} ({width})" for width, error in errors.items())
        texts.append(f"{problem}, error on fitted samples (width): {shown}")
    if not texts:
        return Finding("not", "not measured", "0")
    if not falls:
        return Finding("partly", "\n".join(texts), str(len(seeds)), "a wider one fits worse")
    return Finding("done", "\n".join(texts), str(len(seeds)))


def covering(evidence: Evidence) -> Finding:
    """Covering numbers of a family: averaging never raises one, and the lemma's bound holds."""
    texts, held = [], True
    for problem in PROBLEMS:
        for cell in (c for c in evidence.cells("capacity", problem) if "radii" in c):
            plain, averaged = cell["plain"], cell["averaged"]
            allowed = [lemma_bound(cell, key) for key in ("plain", "averaged")]
            fewer = all(a <= p for a, p in zip(averaged["numbers"], plain["numbers"], strict=True))
            held = held and not cell["expanded"] and (fewer or cell["stretch"] > 1)
            held = held and plain["gap"] <= allowed[0] and averaged["gap"] <= allowed[1]
            shown = dict.fromkeys(len(cell["radii"]) * i // 12 for i in (1, 2, 5))
            counts = ", ".join(
                f"{averaged['numbers'][i]} instead of {plain['numbers'][i]} "
                f"(radius {cell['radii'][i]:.2g})"
                for i in shown
            )
            texts.append(
                f"{problem}, {cell['members']} FNOs: averaged over the group, {counts} of them are "
                "enough to have one within the radius of each\n"
                f"largest generalisation gap {plain['gap']:.3g}, averaged {averaged['gap']:.3g}; "
                f"the lemma allows {allowed[0]:.3g} and {allowed[1]:.3g}"
            )
    if not texts:
        return Finding("not", "not measured")
    return Finding("done" if held else "partly", "\n".join(texts), why="" if held else "it fails")


CAPACITY = "pacefno study capacity burgers1d --widths 4,8,16,32"
TAKE_APART = "pacefno study theory RUN"
CLAIMS = (
    Claim("Theorem 3.1, error decomposition", TAKE_APART, partial(over_runs, bound),
          "of each sample instead of suprema, with L along its own misalignment, and on some with "
          "the largest L at the canonical input; K_C stands before epsilon too: the paper's proof "
          "leaves it out, which is right for isometries, and a momentum boost is none"),
    Claim("Theorem 3.2, complexity reduction", TAKE_APART, partial(over_runs, projection),
          "average over 16 drawn elements; boosts are no compact group, so the average is "
          "equivariant only as far as they are sampled; where an action stretches (shallow water), "
          "so does eta"),
    Claim("Induced terminal element", "",
          partial(code, "groups.Group.act fields.FieldType.at", "tests/pde/test_equations.py"),
          "solving a moved state is moving the solution, for every equation and group"),
    Claim("Lemma, compactness and orbit saturation", "",
          partial(code, "groups.Group.sample", "tests/groups/test_groups.py"),
          "an assumption: OOD elements are drawn from closed and bounded ranges"),
    Claim("Lemma, isometry and Lipschitz action", TAKE_APART, partial(over_runs, isometry)),
    Claim("Lemma, Lipschitz continuity of the operator", TAKE_APART, partial(over_runs, lipschitz),
          "an assumption on a neighbourhood: measured at points, by power iteration"),
    Claim("Lemma, Lipschitz continuity of the inverse action", TAKE_APART,
          partial(over_runs, pull_back), "between frames up to 0.05 periods apart"),
    Claim("Lemma and corollary, quadratic growth", TAKE_APART, partial(over_runs, corollary),
          "around the minimum that is found"),
    Claim("Theorem, monotone energy decay", TAKE_APART, partial(over_runs, decay),
          "to a finite time, from frames up to 0.05 periods off"),
    Claim("Theorem, universal approximation", CAPACITY, approximation,
          "a statement of existence: what is measured is that errors on fitted samples fall with "
          "the width"),
    Claim("Lemma, covering numbers", CAPACITY, covering,
          "of a family of trained FNOs, where they can be counted, instead of the whole class; "
          "its samples are those that the FNOs were trained on (the lemma: a class chosen before); "
          "for so small a family the least bound is at radius 0"),
)  # fmt: skip
