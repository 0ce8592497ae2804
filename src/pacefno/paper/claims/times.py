"""Seconds of an epoch and of a pass over the OOD samples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.claims.evidence import PROBLEMS, Claim, Evidence, Finding
from pacefno.paper.claims.settings import settings_of_standard
from pacefno.paper.studies.ablation import PAPER as ABLATION

CORES = "two cores instead of a GPU; the paper's evaluation batches"
# Seconds of an epoch and of one OOD pass in the paper's tables, on its GPU.
TIMES: dict[str, dict[str, tuple[float, float]]] = {
    "burgers1d": {
        "fno": (0.4212, 0.3943), "fno-aug": (0.7698, 1.2826), "pace-cnn": (0.4560, 0.5287),
        "pace-cnn-tta": (0.4560, 5.4611), "gfno": (1.0365, 1.0148),
    },
    "burgers2d": {
        "fno": (0.6524, 0.1244), "fno-aug": (0.7559, 0.1045), "pace-cnn": (1.5770, 0.1399),
        "pace-cnn-tta": (1.5770, 4.4345), "gfno": (4.8613, 0.7462),
    },
    "shallow_water": {
        "fno": (0.7024, 0.1501), "fno-aug": (0.8502, 0.1503), "pace-cnn": (2.6139, 0.2952),
        "pace-cnn-tta": (2.6139, 8.1388), "gfno": (6.7509, 0.7161),
    },
    "navier_stokes": {
        "fno": (10.6448, 1.8308), "fno-aug": (10.7371, 1.9761), "pace-cnn": (16.5571, 3.3728),
        "pace-cnn-tta": (16.5571, 10.0376), "gfno": (55.9359, 9.2956),
    },
}  # fmt: skip


def times(benchmark: str, column: int, evidence: Evidence) -> Finding:
    """A column of seconds as multiples of the FNO's, which compare better than processors do."""
    key, known = ("epoch_seconds", "pass_seconds")[column], dict[str, float]()
    for row in evidence.timed(benchmark, "standard"):
        if row["model"] in TIMES[benchmark]:
            known[row["model"]] = row[key]
    if "fno" not in known:
        return Finding("not", "not measured on a quiet machine")
    paper = {model: both[column] for model, both in TIMES[benchmark].items()}
    texts = [
        f"{model} {seconds / known['fno']:.2g} ({paper[model] / paper['fno']:.2g})"
        for model, seconds in known.items()
        if model != "fno"
    ]
    text = f"fno {known['fno']:.3g} s (paper {paper['fno']:.3g} s); times fno (paper): "
    text += ", ".join(texts)
    for row in evidence.timed(benchmark, "paper"):
        if row["model"] in paper:
            theirs = f"(paper {paper[row['model']]:.3g} s)"
            text += f"\n{row['model']} with the settings of `paper`: {row[key]:.3g} s {theirs}"
    if missing := [model for model in paper if model not in known]:
        return Finding("partly", text, why=f"not timed: {', '.join(missing)}")
    return Finding("done", text)


def ablation_times(benchmark: str, evidence: Evidence) -> Finding:
    """The seconds in the paper's table of the ablation, as multiples of the whole method's."""
    timed = {row["model"]: row for row in evidence.timed(benchmark, "standard")}
    if not (whole := timed.get("paper-full")):
        return Finding("not", "not measured on a quiet machine")
    texts, missing = [], set[str]()
    for what, key, column in (("an epoch", "epoch_seconds", 2), ("a pass", "pass_seconds", 3)):
        paper = {name: row[column] for name, row in ABLATION[benchmark].items() if row[column]}
        base, shares = paper.pop("paper-full"), []
        for name, seconds in paper.items():
            if name not in timed:
                missing.add(name)
            elif base and seconds:
                ours = timed[name][key] / whole[key]
                shares.append(f"{name.removeprefix('paper-')} {ours:.2g} ({seconds / base:.2g})")
        text = f"{what}: paper-full {whole[key]:.3g} s (paper {base:.3g} s); times that (paper): "
        texts.append(text + (", ".join(shares) or "none"))
    if missing:
        why = f"not timed: {', '.join(sorted(missing))}"
        return Finding("partly", "\n".join(texts), why=why)
    return Finding("done", "\n".join(texts))


def claims() -> Iterator[Claim]:
    for problem in PROBLEMS:
        name, command = (
            benchmark_named(problem).title,
            f"python benchmarks/runtime.py --problems {problem}",
        )
        notes = "\n".join([CORES, settings_of_standard(problem)])
        for column, title in enumerate(("Train (s/ep.)", "OOD Inf. (s)")):
            yield Claim(f"{name}: {title}", command, partial(times, problem, column), notes)
        yield Claim(
            f"{name}: seconds of the ablation", command, partial(ablation_times, problem), notes
        )
