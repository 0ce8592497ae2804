"""What the terms say: a table, and one sentence about what limits the error and so what to improve."""

from __future__ import annotations

import statistics

from rich.table import Table

from pacefno.studies.cells import Cell

MOSTLY = 0.5  # a share from which on one thing is the cause
LOOSE = 2.0  # times the error: from here on the bound's terms say little about it


def verdict(cell: Cell) -> str:
    """What limits the error and so what to improve, what a perfect frame would gain, and whether the bound misleads."""
    terms = cell["terms"]
    error, floor, wrong = (_mean(terms[name]) for name in ("actual", "with_true_frame", "misalignment"))
    share = wrong / (wrong + floor) if wrong + floor > 0 else 0.0
    if share > MOSTLY:
        worst = max(("input", "terminal"), key=lambda name: cell["shares"][name])
        text = f"Misalignment makes up {share:.0%}, more of it by the {worst} frame: improve the frame (another estimator, "
        text += "refinement, the right group); the operator is not what fails"
    else:
        text = f"The operator's own error makes up {1 - share:.0%}: {_advice(cell)}"
    gain = max(0.0, 1 - floor / error) if error > 0 else 0.0
    return f"{text}; a perfect frame would lower the error by {gain:.1%}.{_looseness(cell, wrong)}"


def _looseness(cell: Cell, wrong: float) -> str:
    """A word of warning where the theorem's own terms point elsewhere."""
    ratio = _mean(cell["bound"]) / _mean(cell["terms"]["actual"])
    if ratio < LOOSE:
        return ""
    alignment = (cell["shares"]["input"] + cell["shares"]["terminal"]) * _mean(cell["bound"])
    return (
        f" The theorem's bound is {ratio:.1f} times the error: its alignment terms add up to {alignment:.3g} but together they "
        f"change the prediction by {wrong:.3g} only, for the operator nearly commutes with what the frame is wrong by."
    )


def _advice(cell: Cell) -> str:
    risks = cell["generalisation"]
    seen = risks["train"] / risks["test"]
    if seen < 1 - MOSTLY:
        return f"improve the operator with more training samples, on those it knows its error is only {seen:.0%} as large"
    return f"improve the operator (longer training, more width or modes), on known samples its error is {seen:.0%} as large"


def terms_table(cell: Cell, title: str) -> Table:
    """The terms over the samples, in units of the canonical target's norm."""
    table = Table(title=title, title_justify="left")
    for name, justify in (("in units of |u_c|", "left"), ("mean", "right"), ("median", "right"), ("largest", "right")):
        table.add_column(name, justify="left" if justify == "left" else "right", no_wrap=True)
    terms = cell["terms"]
    rows = [
        ("actual error", terms["actual"]),
        ("sharper bound", cell["sharper_bound"]),
        ("  error with the true frame", terms["with_true_frame"]),
        ("  misalignment, in and out", terms["misalignment"]),
        ("the theorem's bound", cell["bound"]),
        ("  canonical error ε", terms["canonical"]),
        ("  input alignment ε_geo,0", terms["input_alignment"]),
        ("  terminal alignment ε_geo,T", terms["terminal_alignment"]),
        ("  K_C of the action", terms["action"]),
        ("  L along the perturbation", terms["sensitivity"]),
        ("  L, steepest direction", cell["operator"]["steepest"]),
        ("  L, random directions", cell["operator"]["random"]),
    ]
    for name, values in rows:
        table.add_row(name, *(f"{value:.3g}" for value in (_mean(values), statistics.median(values), max(values))))
    return table


def notes(cell: Cell) -> list[str]:
    """The rest in sentences, violations first: a bound that fails must not be overlooked."""
    count, operator, supremum = cell["samples"], cell["operator"], cell["supremum"]
    tried = len(operator["steepest"])
    lines = [
        f"The bound holds on {count - cell['violations']} of {count} samples, the sharper one on "
        f"{count - cell['violations_sharper']}, the one printed in the paper on {count - cell['violations_as_printed']}; "
        f"with the steepest direction at a_c for L on {tried - operator['violations_with_steepest']} of {tried}.",
        f"With suprema, as in the theorem: largest error {supremum['error']:.3g}, bound {supremum['bound']:.3g}.",
    ]
    if cell.get("commutation"):
        eta = cell["commutation"]
        lines.append(f"Commutation residual over the whole group: mean {eta['mean']:.2g}, largest {eta['max']:.2g} (relative).")
    risk = cell["generalisation"]
    lines.append(f"Generalisation gap: {risk['test']:.4f} held out - {risk['train']:.4f} training = {risk['gap']:.4f}.")
    if "symmetry_defect" in cell:
        lines.append(f"The group is a symmetry of the solver only up to {cell['symmetry_defect']:.2%}.")
    return [*lines, *_refinement(cell.get("refinement"))]


def _refinement(found: Cell | None) -> list[str]:
    if found is None:
        return ["No frame to refine."]
    lines = []
    for name, path in found.items():
        alpha = path["alpha"]
        lines.append(
            f"Refinement ({name}) from displaced frames: energy {path['energy'][0]:.2g} -> {path['energy'][-1]:.2g} in "
            f"{path['steps'][-1]} steps, rises {path['rises']}; quadratic growth alpha {min(alpha):.3g} (least) "
            f"{statistics.median(alpha):.3g} (median); the corollary holds at {path['checked'] - path['violations']} "
            f"of {path['checked']} points."
        )
    return lines


def _mean(values: list[float]) -> float:
    return statistics.fmean(values)
