"""The rows of the paper's tables and of its ablation, and what its text says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from pacefno.paper import SEEDS
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.claims.evidence import (
    MEASURED,
    PROBLEMS,
    Claim,
    Evidence,
    Finding,
    Word,
    beside,
    four_decimals,
    seeds_of,
    too_few,
)
from pacefno.paper.claims.settings import OWN, settings_of_standard, sizes, updates
from pacefno.paper.studies.ablation import PAPER as ABLATION
from pacefno.paper.studies.ablation import PAPER_SPREAD, PAPERS
from pacefno.paper.style import Statistic, statistic

NO_DIFFERENCE = 0.02  # errors that differ by less than this share are the same

# --- what the paper's rows are called, and what differs in ours -----------------------------------

TITLES = {
    "fno": "FNO", "fno-aug": "FNO+Aug", "pace-cnn": "PACE-FNO (one-shot)",
    "pace-cnn-tta": "PACE-FNO + TTA", "gfno": "GFNO",
}  # fmt: skip
LONG = "pace-products-long"
NOTES = {
    LONG: f"`{LONG}` has an analytic frame, more updates and products of channels",
    "pace-analytic": "`pace-analytic` is the plain FNO with an analytic frame",
    "gfno": "as many weights as the FNO (paper: its width); a channel that changes its sign or "
    "turns under a symmetry does so here (paper: scalars, as it seems)",
    "pace-cnn": "the encoder is our reading of one sentence",
    "pace-cnn-tta": "the best frame on the way is kept; the residual is wrapped (1 - cos) on every "
    "problem; except on shallow water its three trainings are others than those of the one-shot "
    "row (paper: the same), the ablation has both of the same",
}
ROLLED = {  # what the paper calls the rows of trajectories
    "fno": "FNO (AR), 20 snapshots", "fno-aug": "FNO (AR), 20 snapshots, augmented",
    "pace-1": "PACE-FNO (AR), 1 snapshot", "pace-20": "PACE-FNO (AR), 20 snapshots",
}  # fmt: skip
SPLIT = {  # with an exact linear part
    "fno": ("fno-1-split",), "fno-aug": ("fno-aug-1-split",), "pace-1": ("pace-1-split",),
    "pace-20": ("pace-20-split", "pace-20-1-split"),
}  # fmt: skip


def in_paper(model: str) -> str:
    """The row of the paper's table of trajectories that a row of ours stands beside."""
    return next((kind for kind, ours in SPLIT.items() if model in ours), model)


UNDERTRAINED = ("shallow_water", "navier_stokes", "navier_stokes_literal")  # at `standard`


# --- verdicts -------------------------------------------------------------------------------------


class Score(NamedTuple):
    """The errors of one model at one preset, and whether they meet the limit of their line."""

    model: str
    preset: str
    errors: tuple[Statistic, Statistic]
    met: bool
    seeds: int


def table_row(benchmark: str, models: Sequence[str], evidence: Evidence) -> Finding:
    """A row of pairs: done with three seeds whose errors meet a limit, in one of our ways.

    With a frame: neither error above the paper's. Without one: fails where the paper's fails, an
    OOD error above that of PACE.
    """
    problem, scores = benchmark_named(benchmark), list[Score]()
    paper = problem.paper[models[0]]
    for model, preset in product(models, MEASURED):
        rows = evidence.rows(benchmark, model, preset)
        own, moved = (statistic(rows, key) for key in ("id_error", "ood_error"))
        if own is None or moved is None:
            continue
        if problem.rows[model].frame is None:
            best = statistic(evidence.rows(benchmark, "pace", preset), "ood_error")
            met = best is not None and moved.mean > best.mean
        else:
            met = own.mean <= paper[0] and moved.mean <= paper[1]
        scores.append(Score(model, preset, (own, moved), met, seeds_of(rows)))
    if not scores:
        return Finding("not", "not measured", "0")
    texts = []
    for score in scores:
        name = f"`{score.preset}`"  # quoted: one is called as the paper is
        name = name if len(models) == 1 else f"{score.model}, {name}"
        both = zip(("ID", "OOD"), score.errors, paper, strict=True)
        texts.append(f"{name}: " + ", ".join(beside(*part) for part in both))
    seeds = "\n".join(str(score.seeds) for score in scores)
    if any(score.met and score.seeds >= len(SEEDS) for score in scores):
        return Finding("done", "\n".join(texts), seeds)
    why = _not_met(benchmark, scores, paper, evidence)
    return Finding("partly", "\n".join(texts), seeds, why)


def _not_met(
    benchmark: str, scores: Sequence[Score], paper: tuple[float, float], evidence: Evidence
) -> str:
    """Why a row of pairs is only partly done, with the measurements that explain its error."""
    near = max((s for s in scores if s.met), key=lambda s: s.seeds, default=None)
    if near is not None:
        return f"`{near.model}` at `{near.preset}` is good enough, but with {too_few(near.seeds)}"
    first = scores[0]
    if benchmark_named(benchmark).rows[first.model].frame is None:
        known = evidence.rows(benchmark, "pace", first.preset)
        return f"its OOD error is {'not above' if known else 'to be compared with'} that of `pace`"
    pairs = zip(("ID", "OOD"), first.errors, paper, strict=True)
    above = [name for name, ours, theirs in pairs if ours.mean > theirs]
    why = f"{' and '.join(above)} error of `{first.model}` above the paper's"
    analytic = statistic(evidence.rows(benchmark, "pace-analytic", first.preset), "id_error")
    if analytic and first.errors[0].mean > 1.2 * analytic.mean:
        why += f"; with an analytic frame instead of the encoder {beside('ID', analytic, paper[0])}"
    if long := statistic(evidence.rows(benchmark, "fno", "long"), "id_error"):
        why += f"; an FNO with the paper's updates has an ID error of {long} (`long`)"
    return why


def factor(benchmark: str, models: Sequence[str], evidence: Evidence) -> Finding:
    """How many times the OOD error of augmentation is above that of PACE, in the text's words.

    Done: with three seeds as many times as in the paper.
    """
    paper = benchmark_named(benchmark).paper
    theirs = paper["fno-aug"][1] / paper["pace-cnn"][1]
    texts, seeds, done = [], [], False
    for model, preset in product(models, MEASURED):
        rows = [evidence.rows(benchmark, name, preset) for name in ("fno-aug", model)]
        augmented, ours = (statistic(own, "ood_error") for own in rows)
        if augmented is None or ours is None:
            continue
        times = augmented.mean / ours.mean
        name = f"`{preset}`" if len(models) == 1 else f"{model}, `{preset}`"
        texts.append(f"{name}: {augmented} / {ours}, {times:.3g} times (paper {theirs:.3g} times)")
        seeds.append(min(map(seeds_of, rows)))
        done = done or (times >= theirs and seeds[-1] >= len(SEEDS))
    if not texts:
        return Finding("not", "not measured", "0")
    text, counts = "\n".join(texts), "\n".join(map(str, seeds))
    if done:
        return Finding("done", text, counts)
    few = max(seeds) < len(SEEDS)
    return Finding("partly", text, counts, too_few(max(seeds)) if few else "less than the paper's")


def rollout_row(benchmark: str, models: Sequence[str], evidence: Evidence) -> Finding:
    """A row of trajectories: done at the paper's NMSE with three seeds, partly up to twice that."""
    problem = benchmark_named(benchmark)
    paper, _ = problem.paper[models[0]]
    texts, seeds, reasons, done = [], [], [], False
    for model, preset in product(models, MEASURED):
        rows = evidence.rows(benchmark, model, preset)
        if (value := statistic(rows, "nmse")) is None:
            continue
        texts.append(f"{model}, `{preset}`: {beside('NMSE', value, paper)}")
        seeds.append(str(count := seeds_of(rows)))
        if value.mean <= paper:
            done = done or count >= len(SEEDS)
            minutes = max(row["train_seconds"] for row in rows) / 60
            reasons.append(
                f"`{model}` at `{preset}` is good enough, but with {too_few(count)} (one takes "
                f"{minutes:.0f} minutes)"
            )
        elif value.mean <= 2 * paper:
            within = value.std is not None and value.mean - value.std <= paper
            reason = "above the paper's" + (
                " by less than the spread of its seeds" if within else ""
            )
            trained = problem.rows[model].trained_as
            if trained and problem.rows[trained].frame is None:
                reason += f"; `{trained}`, whose weights it has, was trained without a frame"
            reasons.append(f"`{model}` at `{preset}`: {reason}")
    word: Word = "done" if done else "partly" if reasons else "not"
    why = "; ".join(reasons) if word == "partly" else ""
    return Finding(word, "\n".join(texts) or "not measured", "\n".join(seeds) or "0", why)


def ablation_row(benchmark: str, row: str, evidence: Evidence) -> Finding:
    """A row of the ablation: measured with three seeds, and whether it moves the error as there."""
    own, full = (evidence.cells("ablation", benchmark, row=name) for name in (row, "paper-full"))
    error, whole = statistic(own, "ood_error"), statistic(full, "ood_error")
    theirs, baseline = (ABLATION[benchmark].get(name) for name in (row, "paper-full"))
    if error is None:
        return Finding("not", "not measured", "0")
    text = f"OOD {error}" + (f" (paper {four_decimals(theirs[1])})" if theirs else "")
    if whole and theirs and baseline and row != "paper-full":
        ours, paper = error.mean / whole.mean, theirs[1] / baseline[1]
        alike = (ours > 1) == (paper > 1) or max(abs(ours - 1), abs(paper - 1)) < NO_DIFFERENCE
        spread = max(PAPER_SPREAD[benchmark][name] for name in (row, "paper-full"))
        if alike:
            same = "as in the paper"
        elif abs(theirs[1] - baseline[1]) < spread:
            same = "the paper's seeds differ by more"
        else:
            same = "the paper says otherwise"
        text += f"; {ours:.3g} times the whole method's, in the paper {paper:.3g}: {same}"
    if (seeds := seeds_of(own)) < len(SEEDS):
        return Finding("partly", text, str(seeds), too_few(seeds))
    return Finding("done", text, str(seeds))


# --- the claims -----------------------------------------------------------------------------------


def of_text() -> Iterator[Claim]:
    for problem in (*PROBLEMS, "navier_stokes_literal"):
        models: tuple[str, ...] = ("pace-cnn",)
        if problem.startswith("navier_stokes"):
            models += ("pace-analytic",)
        what = f"{benchmark_named(problem).title}: FNO+Aug's OOD error over that of one-shot PACE"
        command = f"pacefno bench {problem} --models fno-aug,{','.join(models)}"
        yield Claim(what, command, partial(factor, problem, models), OWN)


def of_tables() -> Iterator[Claim]:
    for problem in (*PROBLEMS, "navier_stokes_literal"):
        for model, title in TITLES.items():
            models: tuple[str, ...] = (model,)
            if model == "pace-cnn" and problem in UNDERTRAINED:
                models = (model, "pace-analytic", LONG)
            notes = [OWN, *(NOTES[name] for name in models if name in NOTES)]
            notes.append(settings_of_standard(problem))
            what = f"{benchmark_named(problem).title}: {title}"
            command = f"pacefno bench {problem} --models {','.join(models)}"
            yield Claim(what, command, partial(table_row, problem, models), "\n".join(notes))
    for problem in ("kdv_easy", "kuramoto_sivashinsky"):
        for model in benchmark_named(problem).paper:
            models = (model, *SPLIT[model])
            what = f"{benchmark_named(problem).title}: {ROLLED[model]}"
            command = f"pacefno bench {problem} --models {','.join(models)}"
            yield Claim(
                what, command, partial(rollout_row, problem, models), _budget(problem, models)
            )


def _budget(problem: str, models: Sequence[str]) -> str:
    """How much less than in the paper models of trajectories are trained, and what they know."""
    benchmark, count = benchmark_named(problem), partial(updates, problem)
    ours = " and ".join(dict.fromkeys(f"{count(model, 'standard'):,}" for model in models))
    note = f"`standard` has {ours} updates, LPSDA's code {count(models[0], 'paper'):,}"
    small, large = (_network(problem, models[0], preset) for preset in ("standard", "paper"))
    note += f"\n{models[0]} at `standard`: {small} (paper: {large})"
    for split in (model for model in models if benchmark.rows[model].split):
        network = _network(problem, split, "standard")
        note += f"\n`{split}` ({network}) knows the linear part of the equation"
        if benchmark.split["operator"]["keeps_norm"]:
            note += ", and that the norm is kept"
        if benchmark.rows[models[0]].history != 1:
            note += ", and makes steps of one snapshot"
        if trained := benchmark.rows[split].trained_as:
            note += f" with the weights of `{trained}`, all twenty in one frame"
    return note


def _network(problem: str, model: str, preset: str) -> str:
    modes, width, layers, _ = sizes(problem, model, preset)
    return f"{modes} modes, width {width}, {layers} layers"


def of_ablation() -> Iterator[Claim]:
    for problem in PROBLEMS:
        for row in PAPERS:
            note = "" if row.name in ABLATION[problem] else "not in the paper's table"
            if (problem, row.name) == ("shallow_water", "paper-no-full-lie"):
                note = "the paper's is numerically unstable (2.1e4 ± 2.3e4), ours is not"
            what = f"{benchmark_named(problem).title}: {row.title.partition(': ')[2]}"
            command = f"pacefno study ablation {problem} --rows {row.name}"
            yield Claim(what, command, partial(ablation_row, problem, row.name), note)
