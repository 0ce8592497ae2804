"""All ratios, compared with those that are committed: a guard against becoming slower unnoticed.

    python benchmarks/run.py [--threads 1] [--rounds 9] [--clock cpu] [--record] [--results FILE]

A ratio of two times in one run depends little on the machine; it fails when it is larger than the
committed one by more than the tolerance in ``benchmarks/ratios.json``. ``--record`` writes that
file anew: do so on a quiet machine, when a change is meant. What was measured, with the machine
it was measured on, goes to ``benchmarks/RESULTS.md``. Exits with 1 if a ratio became worse.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch

import operators
import pace
from _timing import CLOCKS, HEADER, Clock, Row, load, machine
from documents import markdown
from pacefno.paper.benchmarks import BENCHMARKS

HERE = Path(__file__).parent
RATIOS, RESULTS = HERE / "ratios.json", HERE / "RESULTS.md"
MEASURED = RATIOS  # what docs/speed.md shows
TOLERANCE = 1.15


def measure(rounds: int, clock: Clock, problems: list[str]) -> Iterator[Row]:
    if not problems:
        yield from operators.measure(rounds, clock)
    yield from pace.measure(rounds, clock, problems)


def verdict(row: Row, committed: dict[str, float], tolerance: float) -> str:
    """What is said of a row: new, worse than committed, above its bar, or ok."""
    if row.key not in committed:
        return "new"
    if row.ratio > tolerance * committed[row.key]:
        return "WORSE"
    return "above its bar" if row.verdict == "MISSED" else "ok"


def report(rows: list[Row], verdicts: list[str], how: str) -> str:
    """The results as a Markdown document."""
    lines = [
        "# Timings",
        "",
        "Written by `make bench`. Each row is a ratio of two times that took turns in one run; the "
        "best of all turns counts.",
        "A bar is what the ratio should stay under; `ratios.json` has the ratios that it is "
        "compared with.",
        "",
        f"- machine: {machine()}",
        f"- {how}",
        "",
        "| problem | comparison | base, ms | ms | ratio | bar | |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for row, word in zip(rows, verdicts, strict=True):
        bar = "" if row.bar is None else f"{row.bar:.2f}"
        times = f"{1e3 * row.base:.2f} | {1e3 * row.mine:.2f} | {row.ratio:.2f}"
        lines.append(f"| {row.problem} | {row.what} | {times} | {bar} | {word} |")
    return "\n".join(lines) + "\n"


def content(document: dict[str, Any]) -> str:
    """What PACE costs with an analytic and a learned frame, a line a problem (docs/speed.md)."""
    kinds = {
        r"training .*": "training",
        r"inference 20 x .*": "20 samples",
        r"inference 1 x .*": "one sample",
    }
    frames = {"analytic": "analytic", "equivariant": "learned"}
    rows = []
    for name, benchmark in BENCHMARKS.items():
        cells = []
        for kind, frame in product(kinds, frames):
            wanted = re.compile(rf"{name}: {kind}, {frame} frame / .*")
            found = [r for key, r in document["ratios"].items() if wanted.fullmatch(key)]
            cells.append(f"{found[0]:.2f}" if found else "–")
        if set(cells) != {"–"}:
            rows.append([benchmark.title, *cells])
    head = [f"{kinds[kind]}, {frames[frame]}" for kind, frame in product(kinds, frames)]
    return markdown(["problem", *head], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--problems", default="", help="comma-separated; all if left out")
    parser.add_argument("--record", action="store_true", help="commit to what is measured now")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    stored = json.loads(RATIOS.read_text()) if RATIOS.exists() else {}
    tolerance, committed = stored.get("tolerance", TOLERANCE), stored.get("ratios", {})
    problems = [name for name in options.problems.split(",") if name]
    rows: list[Row] = []
    began = load()
    print(HEADER)
    for row in measure(options.rounds, CLOCKS[options.clock], problems):
        print(row.text, flush=True)
        rows.append(row)
    if options.record:
        committed = committed | {row.key: round(row.ratio, 3) for row in rows}
        document = {"tolerance": tolerance, "ratios": committed}
        RATIOS.write_text(json.dumps(document, indent=1) + "\n")
    verdicts = [verdict(row, committed, tolerance) for row in rows]
    how = (
        f"{options.threads} thread{'s' * (options.threads > 1)}, {options.clock} clock, best of "
        f"{options.rounds} rounds; load of the machine {began:.1f} before, {load():.1f} after"
    )
    if not problems:
        options.results.write_text(report(rows, verdicts, how))
    worse = [row.key for row, word in zip(rows, verdicts, strict=True) if word == "WORSE"]
    for key in worse:
        print(f"slower than committed ({committed[key]:.2f}): {key}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
