"""What the numbers of a table say, in sentences computed from them: also where a simple baseline is as good as PACE."""

from __future__ import annotations

import math

from pacefno.studies.report.collect import Line, Statistic, Table

SIMPLE_FRAMES = (None, "kinematic", "analytic")  # nothing about the frame is learned
SAME = 1.05  # a ratio of errors that one seed cannot tell from 1
UNTRAINED = 0.5  # an ID error from which on a model has hardly learned anything
INFLATED = 0.9  # OOD below this share of the ID error on the same grid: the norm of the boost flatters it


def findings(table: Table) -> list[str]:
    """The sentences of one table, most important first; none where PACE was not run."""
    pace = table.line("pace")
    if pace is None or not math.isfinite(pace.mean("ood_error")):
        return _twin(table)
    parts = [_untrained(pace), _headline(table, pace), *ties(table), _canonical(pace), _norm(table, pace), _oracle(table, pace)]
    parts.append(_resolved(table, pace))
    return [
        text
        for text in [
            *parts,
            *_estimators(table, pace),
            *_point_groups(table, pace),
            _calibration(table),
            *_twin(table),
            _unfinished(table),
        ]
        if text
    ]


def ties(table: Table) -> list[str]:
    """One sentence for every simple baseline that PACE does not beat, by more than the seeds scatter."""
    pace = table.line("pace")
    if pace is None:
        return []
    simple = [line for line in table.lines if line.spec is not None and line.spec.frame in SIMPLE_FRAMES]
    return [text for line in simple if (text := _tie(pace, line))]


def _tie(pace: Line, line: Line) -> str:
    seeds = sorted(set(pace.seeds) & set(line.seeds))
    own, other = (one.at(seeds).of("ood_error") for one in (pace, line))
    if own is None or other is None:
        return ""
    where = "" if seeds == pace.seeds else f" (seed {', '.join(map(str, seeds))})"
    if is_tie(own, other):
        return f"{line.title} matches {pace.title} out of distribution{where}: {other} against {own}, {_why_tie(own, other)}."
    if other.mean < own.mean:
        return f"{line.title} is better than {pace.title} out of distribution{where}: {other} against {own}."
    return ""


def _ratio(one: Line, other: Line | None) -> float:
    """OOD error of one model over that of another, for the seeds that both have; NaN if there are none."""
    if other is None:
        return math.nan
    seeds = sorted(set(one.seeds) & set(other.seeds))
    return one.at(seeds).mean("ood_error") / other.at(seeds).mean("ood_error")


def is_tie(a: Statistic, b: Statistic) -> bool:
    """Whether two means differ by no more than their joint standard deviation; with one seed, by no more than 5 %."""
    low, high = sorted((a.mean, b.mean))
    return high - low <= joint_spread(a, b) or high <= SAME * low


def joint_spread(a: Statistic, b: Statistic) -> float:
    return math.hypot(a.std or 0.0, b.std or 0.0)


def _why_tie(a: Statistic, b: Statistic) -> str:
    if abs(a.mean - b.mean) <= joint_spread(a, b):
        return "a difference within the scatter of the seeds"
    return f"a difference of {abs(b.mean / a.mean - 1):.0%}"


def _headline(table: Table, pace: Line) -> str:
    """PACE against FNO with and without augmentation, and against the paper's PACE."""
    own = pace.mean("ood_error")
    parts = [
        f"{against(line.mean('ood_error'), own)} {line.title} ({line.of('ood_error')})"
        for name in ("fno-aug", "fno")
        if (line := table.line(name)) and math.isfinite(line.mean("ood_error"))
    ]
    text = f"{pace.title} has an OOD error of {pace.of('ood_error')}"
    text += f": {' and '.join(parts)}." if parts else "."
    if pace.paper and table.problem.in_tables:
        text += f" The paper reports {pace.paper[1]:.4f}, so ours is {_times(own / pace.paper[1])}."
    return text


def against(other: float, own: float) -> str:
    ratio = other / own
    if 1 / SAME <= ratio <= SAME:
        return "about equal to"
    return f"{_number(ratio)} times below" if ratio > 1 else f"{_number(1 / ratio)} times above"


def _times(ratio: float) -> str:
    if 1 / SAME <= ratio <= SAME:
        return "about the same"
    if 0.5 <= ratio <= 2:
        return f"{abs(1 - ratio):.0%} {'lower' if ratio < 1 else 'higher'}"
    return f"{_number(1 / ratio)} times lower" if ratio < 1 else f"{_number(ratio)} times higher"


def _number(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"


def _untrained(pace: Line) -> str:
    error = pace.mean("id_error")
    if not error > UNTRAINED:
        return ""
    return (
        f"At this preset nothing has been learned yet ({pace.title} has an ID error of {error:.2f}): "
        "the numbers show that the program runs, not how good a model is."
    )


def _canonical(pace: Line) -> str:
    ratio = pace.mean("ood_error_canonical") / pace.mean("id_error_fine")
    if not math.isfinite(ratio):
        return ""
    verdict = "moving the input costs nothing" if ratio <= 1.01 else f"moving the input costs {ratio - 1:.0%}"
    return f"In the canonical frame, {pace.title}'s OOD error is {ratio:.3f} times its ID error on the same grid: {verdict}."


def _norm(table: Table, pace: Line) -> str:
    ood, fine = pace.mean("ood_error"), pace.mean("id_error_fine")
    group = table.problem.group
    if group.size == group.spatial or not ood < INFLATED * fine:
        return ""
    return (
        f"The OOD error ({pace.of('ood_error')}) lies below the ID error on the same grid ({pace.of('id_error_fine')}) "
        "because a boost enlarges the field that the error is divided by: compare models in that column, "
        "and OOD with ID in the canonical one."
    )


def _oracle(table: Table, pace: Line) -> str:
    ratio = _ratio(pace, table.line("pace-oracle"))
    if not math.isfinite(ratio):
        return ""
    gain = "nothing" if ratio <= 1.005 else f"{1 - 1 / ratio:.0%}"
    return (
        f"The OOD error with the estimated frame is {ratio:.3f} times that with the true one: a better frame could gain {gain}."
    )


def _resolved(table: Table, pace: Line) -> str:
    """Against the physics: what the group's own defect leaves to be expected."""
    own, defect = pace.of("ood_error_resolved"), pace.of("group_defect")
    if own is None or defect is None:
        return ""
    oracle = table.line("pace-oracle")
    floor = "" if oracle is None or (best := oracle.of("ood_error_resolved")) is None else f", with the true frame {best}"
    return (
        f"Scored against the moved initial state solved anew the error is {own}{floor}; the moved solution itself is "
        f"{defect} away from that, because the group is only nearly a symmetry here."
    )


ESTIMATORS = {
    "pace-cnn": "An ordinary convolutional estimator, as the paper describes it,",
    "pace-free": "A learned frame that is equivariant by construction, without the analytic start,",
}


def _estimators(table: Table, pace: Line) -> list[str]:
    """How far other frames are from PACE's own."""
    found = []
    for model, what in ESTIMATORS.items():
        line = table.line(model)
        if line is not None and math.isfinite(ratio := _ratio(line, pace)):
            found.append(f"{what} gives {line.of('ood_error')}: {_times(ratio)}.")
    return found


def _point_groups(table: Table, pace: Line) -> list[str]:
    """What commuting with the point group of the grid gains at rest, and what it leaves of the error when moved."""
    found = []
    for model in ("gfno", "gfno-literal", "gfno-plain"):
        line, plain = table.line(model), table.line("fno-nogrid")
        if line is not None and math.isfinite(ratio := _ratio(line, pace)):
            beside = "" if plain is None else f" ({plain.title}: {plain.of('id_error')})"
            text = f"{line.title}: an ID error of {line.of('id_error')}{beside} and an OOD error of {line.of('ood_error')}"
            found.append(f"{text}, {_number(ratio)} times that of {pace.title}.")
    return found


def _calibration(table: Table) -> str:
    """Whether our data are as hard as the paper's, judged by the plain FNO."""
    fno = table.line("fno")
    if fno is None or fno.paper is None or not table.problem.in_tables or not math.isfinite(fno.mean("id_error")):
        return ""
    ratio = fno.mean("id_error") / fno.paper[0]
    text = f"Plain FNO's ID error is {_number(ratio)} times the paper's ({fno.of('id_error')} against {fno.paper[0]:.4f})"
    return f"{text}: the two columns are comparable." if 0.5 <= ratio <= 2 else f"{text}: compare ratios, not values."


def _twin(table: Table) -> list[str]:
    if table.problem.in_tables or not any(line.paper for line in table.lines):
        return []
    return ["This is an easier twin for demos and tests; the paper's numbers beside it belong to the full problem."]


def _unfinished(table: Table) -> str:
    names = sorted({line.title for line in table.lines for row in line.rows if row.get("finished") is False})
    return f"From unfinished trainings: {', '.join(names)}." if names else ""
