"""Latency of one sample: a model as it is, compiled, and as exported programs; as ratios.

    python benchmarks/export.py [--threads 1] [--rounds 9] [--json results/export.json]

A PACE (Galilean group, default frame) around an FNO (width 32, 12 modes) on 128 x 128 points, and
the FNO alone. All take turns within a round and the best of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

import pacefno
from _timing import CLOCKS, HEADER, Row, Work, best_times, machine
from documents import markdown


def content(document: dict[str, Any]) -> str:
    """Milliseconds of one sample in every form, and what PACE costs in each (docs/speed.md)."""
    times = document["milliseconds"]
    rows = [
        [form, f"{times['fno'][form]:.1f}", f"{pace:.1f}", f"{pace / times['fno'][form]:.2f}"]
        for form, pace in times["pace"].items()
    ]
    how = f"{document['grid']} x {document['grid']} points, {document['threads']} thread, "
    how += f"{document['clock']} clock, {document['machine']}."
    return f"{markdown(['form', 'FNO, ms', 'PACE, ms', 'PACE / FNO'], rows)}\n{how}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--grid", type=int, default=128)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    operator = pacefno.FNO(2, 3, 3, width=32, modes=12, positions="grid").eval()
    what = {"channels": "u v: velocity, p: scalar", "horizon": 0.5, "lengths": 6.2832}
    model = pacefno.PACE(operator, pacefno.Galilean(2), **what).eval()
    coarse = torch.randn(2, 3, 16, 16)
    field = pacefno.grid.resample(coarse, (options.grid,) * 2)
    rows, errors, times = [], {}, {}
    print(HEADER)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for name, each in {"fno": operator, "pace": model}.items():
            works: dict[str, Work] = {"eager": lambda each=each: each(field[:1])}
            if not options.no_compile:
                compiled = torch.compile(each, fullgraph=True)
                works["compiled"] = lambda compiled=compiled: compiled(field[:1])
            for suffix in ("pt2", "onnx"):
                path = Path(folder) / f"{name}.{suffix}"
                errors[f"{name}.{suffix}"] = pacefno.export(each, path, field).error
                program = pacefno.open_exported(path)
                works[suffix] = lambda program=program: program(field[:1])
            best = best_times(works, options.rounds, CLOCKS[options.clock])
            times[name] = {form: round(1e3 * seconds, 2) for form, seconds in best.items()}
            for work, seconds in best.items():
                if work != "eager":
                    size = f"{name}, {options.grid} x {options.grid}"
                    rows.append(Row(size, f"{work} / eager, one sample", best["eager"], seconds))
                    print(rows[-1].text)
    if options.json is not None:
        how = {"threads": options.threads, "clock": options.clock, "grid": options.grid}
        document = {"study": "export", "machine": machine(), **how}
        document |= {"milliseconds": times, "relative_error": errors}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
