"""What an audit found: the numbers, and what they say in sentences, by stated thresholds.

The numbers of a motion ``g``, each a mean over the samples:

- ``error``: of ``f(C_g a)`` against the moved target, both without the motion again
  (:func:`~pacefno.metrics.canonical_error`), because a boost adds energy that would flatter it. So
  it can be compared with the error at rest;
- ``equivariance``: ``|f(C_g a) - C_g f(a)|``, relative as in
  :func:`~pacefno.metrics.equivariance_error`: it needs no target, and 0 does not mean right;
- ``floor``: what the motion itself costs, the best that anything can do: the loss of moving input
  or target there and back, and for a turn the difference of two half turns from the whole;
- ``wrapped``: the error of the same model within PACE; ``averaged``: that of its average over a
  point group, ``mean_g g^-1 f(g a)``; ``both``: of PACE around that average. The last two are
  measured for the largest motion along each coordinate, and None elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

from pacefno.auditing.motions import BOOST, EVERYTHING, FRACTION, POINT, TOGETHER, TURN, WHOLE
from pacefno.auditing.page import number, page, table

KEPT = 1.05  # an error of so many times that at rest counts as kept
LOST = 2.0  # and of more than so many as failed (or half way from there to 1, where that is less)
USELESS = 0.95  # at rest; predicting 0 has an error of 1
# Equivariance errors below these are rounding, in a network of any depth.
ROUNDING = {"float64": 1e-9, "float32": 1e-4}
COARSE = 2e-2  # the same for any other precision
AT_EDGES = 3.0  # times as much of the equivariance error there as of the field: it comes from them
SHORTEST = 0.9  # of the equivariance error in the shortest wave: it is nothing else
STRIDES = (2, 3, 4, 8, 16)
LEVELS = ("exact", "keeps", "loses", "fails")  # from good to bad
PHRASES = {
    WHOLE: "shifts{along} by whole cells",
    FRACTION: "shifts{along} by fractions of a cell",
    BOOST: "boosts{along}",
    TURN: "turns",
    TOGETHER: "all motions together",
    POINT: "mirrors and turns",
    EVERYTHING: "all motions, mirrored or turned as well",
}


@final
@dataclass(frozen=True)
class Row:
    """What was measured for one motion; means over the samples, None where it makes no sense."""

    family: str
    factor: str
    size: float
    label: str
    error: float
    equivariance: float
    floor: float
    wrapped: float
    wrapped_equivariance: float
    undetermined: int  # samples whose frame PACE could not find
    averaged: float | None = None
    both: float | None = None  # PACE around the average
    at_edges: float | None = None  # odds of the equivariance error there, over those of the field
    shortest: float | None = None  # its share in the shortest wave that an even grid holds


@final
@dataclass(frozen=True)
class Audit:
    """The numbers of an audit; ``print`` it for a table, ``verdict`` says it in words."""

    model: str
    task: str
    samples: int
    steps: int  # predictions in a row
    grid: tuple[int, ...]
    precision: str
    rest: Row
    rows: tuple[Row, ...]
    left_out: tuple[str, ...]  # what was not measured, and why
    undetermined: tuple[str, ...]  # coordinates that some frame does not determine
    ignores_input: bool
    point_group: str | None

    @property
    def worst_error(self) -> float:
        """The largest error of the model as it is, at rest or moved."""
        return max(row.error for row in (self.rest, *self.rows))

    @property
    def worst_equivariance(self) -> float:
        """The largest equivariance error of the model as it is."""
        return max(row.equivariance for row in self.rows)

    @property
    def verdict(self) -> str:
        """What the numbers say, in sentences."""
        return " ".join(finding.text for finding in findings(self))

    def document(self) -> dict[str, Any]:
        """Plain data that JSON can hold; what is not finite is None."""
        said = [{"level": f.level, "about": f.about, "text": f.text} for f in findings(self)]
        worst = {"worst_error": self.worst_error, "worst_equivariance": self.worst_equivariance}
        found: dict[str, Any] = _finite({"verdict": self.verdict, **worst, **asdict(self)})
        for row, entry in zip(self.rows, found["rows"], strict=True):
            entry["level"] = level_of(self, row)
        return found | {"findings": said}

    def html(self) -> str:
        """One page that needs nothing else: verdict, curves, table."""
        return page(self.document())

    def __str__(self) -> str:
        return f"{table(self.document())}\n\n{self.verdict}"


# --- in words -------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """One sentence, what it is about, and a level, or "rest", "cause", "remedy", "note"."""

    level: str
    about: str
    text: str


def findings(audit: Audit) -> list[Finding]:
    """The sentences of a verdict: at rest, each family of motions, causes, remedies."""
    rest = number(audit.rest.error)
    if audit.ignores_input:
        text = f"It predicts the same whatever the input (error {rest}): mend that first."
        return [Finding("fails", "rest", text)]
    if not math.isfinite(audit.rest.error):
        text = "Its predictions at rest are NaN or infinite: mend that first."
        return [Finding("fails", "rest", text)]
    useless = ", no better than predicting nothing" if audit.rest.error >= USELESS else ""
    after = f" after {audit.steps} steps" if audit.steps > 1 else ""
    text = f"At rest the error is {rest}{after} ({audit.samples} samples){useless}."
    judged = [one for family in PHRASES for one in _judge(audit, family)]
    found = [Finding("rest", "rest", text)]
    for level in ("exact", "keeps"):  # one sentence for all
        if alike := [one for one in judged if one[0] == level]:
            about = _listed([about for _, about, _ in alike])
            rows = [row for _, _, own in alike for row in own]
            found.append(Finding(level, about, _sentence(audit, level, about, rows)))
    for level, about, rows in judged:
        if level in ("loses", "fails"):
            found.append(Finding(level, about, _sentence(audit, level, about, rows)))
    return [*found, *_cause(audit), *_remedies(audit)]


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def level_of(audit: Audit, row: Row) -> str:
    """How well a model takes a motion: exact (it follows), or its error keeps, loses or fails."""
    rest, rounding = audit.rest.error, ROUNDING.get(audit.precision, COARSE)
    if not math.isfinite(row.error):
        return "fails"
    if row.equivariance <= rounding:
        return "exact"
    kept = KEPT * rest + row.floor + rounding
    if row.error <= kept:
        return "keeps"
    return "loses" if row.error <= max(kept, min(LOST * rest, (rest + 1) / 2)) else "fails"


def _worst(audit: Audit, rows: Sequence[Row]) -> str:
    return max((level_of(audit, row) for row in rows), key=LEVELS.index)


def _judge(audit: Audit, family: str) -> list[tuple[str, str, list[Row]]]:
    """The axes of a family that fare alike: how, which they are in words, and their rows."""
    rows = [row for row in audit.rows if row.family == family]
    by_level: dict[str, list[str]] = {}
    for factor in dict.fromkeys(row.factor for row in rows):
        level = _worst(audit, [row for row in rows if row.factor == factor])
        by_level.setdefault(level, []).append(factor)
    found = []
    for level, alike in by_level.items():
        axes = " and ".join(factor.removeprefix("velocity_") for factor in alike)
        about = PHRASES[family].format(along=f" along {axes}" if len(by_level) > 1 else "")
        found.append((level, about, [row for row in rows if row.factor in alike]))
    return found


def _sentence(audit: Audit, level: str, about: str, rows: Sequence[Row]) -> str:
    worst, rest = max(rows, key=lambda row: row.error), number(audit.rest.error)
    if level == "exact":
        return f"It follows {about} exactly."
    if level == "keeps":
        off = number(max(row.equivariance for row in rows))
        return (
            f"It keeps its accuracy for {about} ({number(worst.error)} against {rest} at rest), "
            f"without following them exactly (equivariance error {off})."
        )
    if level == "loses":
        return (
            f"It loses accuracy for {about} (up to {number(worst.error)} at {worst.label}, "
            f"against {rest})."
        )
    failed = [row for row in rows if level_of(audit, row) == "fails"]
    if worst.family in (POINT, EVERYTHING):
        which = f", {len(failed)} of {len(rows)} of them" if len(failed) < len(rows) else ""
        return f"It fails for {about}{which} ({number(worst.error)} at {worst.label})."
    first = min(row.size for row in failed)
    below = [row.size for row in rows if row.size < first]
    size = max(below) if below else first
    shown = f"{size:.0%}" if worst.family == TOGETHER else f"{size:g}"
    bound = f" above {shown}" if below else f", from the smallest tried ({shown}) on"
    return f"It fails for {about}{bound} ({number(worst.error)} at {worst.label})."


def _cause(audit: Audit) -> list[Finding]:
    """What shifts by whole cells tell of the inside of a model."""
    rows = [row for row in audit.rows if row.family == WHOLE]
    off = [row for row in rows if level_of(audit, row) != "exact"]
    exact = {row.size for row in rows if row not in off}
    other = {row.size for row in off}
    if not other:
        between = [row for row in audit.rows if row.family == FRACTION]
        if not rows or not between or _worst(audit, between) in ("exact", "keeps"):
            return []
        text = "Whole cells but not fractions: what it sees is finer than its grid resolves."
    elif all((row.shortest or 0.0) >= SHORTEST for row in off):
        text = (
            "What differs by whole cells is the shortest wave that an even grid holds, and that "
            "alone: no shift by part of a cell moves it, so PACE leaves it where it is."
        )
    elif stride := next((s for s in STRIDES if _strides(s, exact, other)), None):
        text = f"Only shifts by multiples of {stride} cells are exact: it strides or pools."
    else:
        if min(row.at_edges or 0.0 for row in rows if row.size == max(other)) >= AT_EDGES:
            text = "What differs lies at the edges of the box: it pads them and does not wrap."
        else:
            text = "What differs lies everywhere in the box: it knows where it is (positions)."
    return [Finding("cause", "shifts", text)]


def _strides(stride: int, exact: set[float], other: set[float]) -> bool:
    return (
        bool(exact)
        and all(size % stride == 0 for size in exact)
        and all(size % stride for size in other)
    )


def _remedies(audit: Audit) -> list[Finding]:
    """What wrapping and averaging were measured to do."""
    found = []
    moved = [row for row in audit.rows if row.family not in (POINT, EVERYTHING)]
    if moved:
        found.append(Finding("remedy", "PACE", _about_pace(audit, moved)))
    if most := max((row.undetermined for row in (audit.rest, *moved)), default=0):
        text = (
            f"The frame of up to {most} of {audit.samples} samples is not determined "
            f"({', '.join(audit.undetermined)}): PACE does not follow those."
        )
        found.append(Finding("note", "PACE", text))
    mirrored = [row for row in audit.rows if row.family == POINT]
    averages = [row.averaged for row in mirrored if row.averaged is not None]
    if averages and _worst(audit, mirrored) != "exact":
        worst = number(max(averages))
        text = f"Averaging over {audit.point_group} gives {worst} for mirrors and turns."
        found.append(Finding("remedy", "averaging", text))
    measured = [row for row in (audit.rest, *audit.rows) if row.both is not None]
    if measured:
        last = max(measured, key=lambda row: row.both or 0.0)
        text = (
            f"PACE around the average over {audit.point_group} gives {number(last.both)} at worst "
            f"({last.label}), of the largest motions along each axis, mirrored or not."
        )
        found.append(Finding("remedy", "both", text))
    return found


def _about_pace(audit: Audit, rows: Sequence[Row]) -> str:
    worst = max(rows, key=lambda row: row.wrapped)
    now, rest, wrapped_rest = worst.wrapped, audit.rest.error, audit.rest.wrapped
    after = number(now)
    if now <= KEPT * rest + worst.floor + ROUNDING.get(audit.precision, COARSE):
        if _worst(audit, rows) in ("exact", "keeps"):
            return f"There is nothing for PACE to mend ({after} with it)."
        return f"Wrapping with PACE restores {after} everywhere."
    if now <= KEPT * wrapped_rest + worst.floor:
        return (
            f"Wrapping with PACE gives {after} everywhere, at rest too, where it was "
            f"{number(rest)}: the canonical fields are unlike those of its training; train it "
            "within PACE."
        )
    before = number(max(row.error for row in rows))
    return f"Wrapping with PACE takes the worst from {before} to {after} (at {worst.label})."


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
