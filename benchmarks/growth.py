"""How time and memory grow with the problem: fitted exponents, a table and a plot.

    python benchmarks/growth.py [--small] [--output results/growth.json] [--figure growth.png]

One quantity is varied at a time: grid, modes, width, batch, samples, and the group (by the number
of transformations of a point group, and by the coordinates of a continuous one). Each measurement
is a process of its own, so that its peak memory is its own; what a process needs before the first
step (the libraries) is subtracted. Times are processor seconds of one thread, the best of some
rounds; freed memory is kept for the next tensor, as in ``pacefno train``. The exponent is the slope
of a straight line through the logarithms of the upper half of the points, where fixed costs count
least: 1 is linear. An FNO of neuraloperator stands beside ours where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.ticker import NullLocator
from torch import Tensor, nn

import pacefno
from _timing import machine
from documents import markdown
from pacefno.memory import keep_freed_memory
from pacefno.operators import GroupFNO
from pacefno.paper import style


@dataclass(frozen=True)
class Case:
    """What is run: a model of some sizes on fields of some shape."""

    what: str = "training"  # or "inference", "epoch"
    model: str = "fno"  # or "pace", "group", "peer"
    dim: int = 2
    points: int = 64
    width: int = 32
    modes: int = 12
    batch: int = 8
    samples: int = 8
    group: str = "galilean"


# quantity -> (where it is varied, its values, how large that is, values for a trial)
Sweep = tuple[str, Case, list[Any], list[Any]]
ORDER = {"p1": 1, "p4": 4, "p4m": 8}
COORDINATES = {"translation": 2, "euclidean": 3, "galilean": 4}


def sweeps() -> dict[str, Sweep]:
    """Every quantity that is varied, around one case."""
    case, one = Case(), Case(dim=1, points=1024, width=64, modes=20)
    found: dict[str, Sweep] = {}
    for model in ("fno", "pace", "peer"):
        for what in ("training", "inference"):
            base = replace(case, model=model, what=what, batch=1)
            line = replace(one, model=model, what=what)
            title = f"{model}, {what}"
            grids = ([64, 128, 256, 512, 1024], [32, 64])
            found[f"{title}, points per axis in 2-D"] = ("points", base, *grids)
            lines = ([1024, 2048, 4096, 8192, 16384], [256, 512])
            found[f"{title}, points in 1-D"] = ("points", line, *lines)
    for model in ("fno", "pace", "peer"):
        base = replace(case, model=model)
        found[f"{model}, training, width"] = ("width", base, [16, 32, 64, 128], [8, 16])
        found[f"{model}, training, modes"] = ("modes", base, [4, 8, 16, 32], [4, 8])
        found[f"{model}, training, batch"] = ("batch", base, [4, 8, 16, 32, 64], [2, 4])
    epoch = replace(case, what="epoch", points=32, width=16, modes=8)
    found["fno, an epoch, samples"] = ("samples", epoch, [64, 128, 256, 512], [16, 32])
    group = replace(case, model="group", width=8)
    found["group FNO, training, transformations"] = ("group", group, list(ORDER), ["p1", "p4"])
    free = replace(case, model="pace", what="inference", batch=8)
    found["pace, inference, coordinates"] = (
        "group", free, list(COORDINATES), ["translation", "galilean"],
    )  # fmt: skip
    return found


def size_of(value: Any) -> float:
    """A value as a number: groups by how many transformations or coordinates they have."""
    return float({**ORDER, **COORDINATES}.get(value, value))


# --- one measurement ------------------------------------------------------------------------------


def build(case: Case) -> nn.Module:
    """The model of a case; inputs and outputs are a velocity, or in one dimension a speed."""
    channels = case.dim
    if case.model == "group":
        kinds = "u: velocity"
        sizes = case.dim, channels, channels, case.width, case.modes
        return GroupFNO(*sizes, group=case.group, channels=kinds, norm=True)
    if case.model == "peer":
        from neuralop.models import FNO

        peer: nn.Module = FNO(
            n_modes=(2 * case.modes,) * case.dim,
            in_channels=channels,
            out_channels=channels,
            hidden_channels=case.width,
        )
        return peer
    operator = pacefno.FNO(case.dim, channels, channels, case.width, case.modes, positions="grid")
    if case.model == "fno":
        return operator
    groups: dict[str, Callable[[], pacefno.groups.Group]] = {
        "translation": lambda: pacefno.Translation(case.dim),
        "galilean": lambda: pacefno.Galilean(case.dim),
        "euclidean": pacefno.Euclidean,
    }
    group = groups[case.group]()
    return pacefno.PACE(
        operator, group, channels="u: velocity", horizon=0.5, lengths=1.0, on_undetermined="ignore"
    )


def work_of(case: Case) -> Callable[[], object]:
    """What is timed: a training step, a prediction, or an epoch of steps."""
    torch.manual_seed(0)
    count = case.samples if case.what == "epoch" else case.batch
    field = torch.randn(count, case.dim, *(case.points,) * case.dim)
    model = build(case)
    if case.what == "inference":
        model.eval()

        def predict() -> Tensor:
            with torch.inference_mode():
                found: Tensor = model(field)
                return found

        return predict
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def train() -> None:
        for rows in torch.split(field, case.batch):
            optimizer.zero_grad()
            torch.autograd.backward((model(rows) - rows).square().mean())
            optimizer.step()

    return train


def measure_here(case: Case, rounds: int) -> dict[str, float]:
    """Best processor seconds and the peak of memory in bytes, in this process."""
    torch.set_num_threads(1)
    before = peak_memory()
    work = work_of(case)
    best = math.inf
    for _ in range(rounds + 1):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return {"seconds": best, "bytes": peak_memory() - before}


def peak_memory() -> float:
    """The largest resident size of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def measure(case: Case, rounds: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--rounds", str(rounds)]
    command += ["--one", json.dumps(asdict(case))]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"{case}: {made.stderr[-2000:]}")
    found: dict[str, float] = json.loads(made.stdout.splitlines()[-1])
    return found


# --- fits -----------------------------------------------------------------------------------------


def exponent(sizes: list[float], values: list[float]) -> float:
    """The slope of ``log value`` against ``log size`` over the upper half of the points."""
    upper = slice((len(sizes) - 1) // 2, None)
    x = torch.tensor(sizes[upper], dtype=torch.float64).log()
    y = torch.tensor(values[upper], dtype=torch.float64).clamp_min(1.0e-9).log()
    x = x - x.mean()
    return float((x * (y - y.mean())).sum() / x.square().sum())


LOOKS = {
    "fno": {"color": style.VERMILION, "marker": "o", "label": "FNO"},
    "pace": {"color": style.BLUE, "marker": "s", "label": "PACE around it"},
    "peer": {"color": style.GREY, "marker": "D", "label": "neuraloperator's FNO"},
}
DRAWN = ("points in 1-D", "points per axis in 2-D", "width", "batch")  # of a training


def draw(rows: dict[str, Any], path: Path) -> None:
    """Seconds and memory of a training step against size, a column for each quantity."""
    figure, panels = style.panels(3.1 * len(DRAWN), 5.2, 2, len(DRAWN), sharex="col")
    parts = ("seconds", 1.0, "processor seconds of a step"), ("bytes", 1e6, "peak memory, MB")
    for column, quantity in enumerate(DRAWN):
        for line, (key, scale, name) in enumerate(parts):
            axis = panels[line, column]
            for model, look in LOOKS.items():
                if row := rows.get(f"{model}, training, {quantity}"):
                    values = [value / scale for value in row[key]]
                    axis.plot(row["sizes"], values, markersize=4, **look)
            style.finish(axis, quantity if line else "", "" if column else name, log="xy")
            sizes = rows[f"fno, training, {quantity}"]["sizes"]
            axis.set_xticks(sizes, [f"{size:g}" for size in sizes])
            axis.xaxis.set_minor_locator(NullLocator())
    style.legend_below(figure)
    style.save_picture(figure, path)


def content(document: dict[str, Any]) -> str:
    """Exponents of time and memory, with the values at the largest size (docs/speed.md)."""
    rows = []
    for name, row in document["rows"].items():
        sizes = f"{row['sizes'][0]:g} to {row['sizes'][-1]:g}"
        slopes = [f"{row['exponents'][part]:.2f}" for part in ("seconds", "bytes")]
        last = [f"{row['seconds'][-1]:.2f}", f"{row['bytes'][-1] / 1e6:.0f}"]
        rows.append([name.replace("peer", "neuraloperator"), sizes, *slopes, *last])
    head = ["what is varied", "sizes", "time ~ size^", "memory ~ size^"]
    head += ["processor seconds at the largest", "MB at the largest"]
    return f"{markdown(head, rows)}\n{document['machine']}; one thread.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--small", action="store_true", help="two small values each, as a trial")
    parser.add_argument("--only", default="", help="part of the names of the sweeps")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("results/growth.json"))
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--redraw", action="store_true", help="measure nothing, draw what is there")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        keep_freed_memory()
        print(json.dumps(measure_here(Case(**json.loads(options.one)), options.rounds)))
        return
    if options.redraw:
        draw(json.loads(options.output.read_text())["rows"], options.figure)
        return
    peer = importlib.util.find_spec("neuralop") is not None
    rows: dict[str, Any] = {}
    print(f"{'what is varied':52s}{'sizes':>28s}{'time':>8s}{'memory':>8s}   (exponents)")
    for name, (key, base, values, few) in sweeps().items():
        if options.only not in name or (base.model == "peer" and not peer):
            continue
        chosen = few if options.small else values
        cases = [replace(base, **{key: value}) for value in chosen]
        found = [measure(case, options.rounds) for case in cases]
        sizes = [size_of(value) for value in chosen]
        row: dict[str, Any] = {"sizes": sizes}
        row |= {part: [one[part] for one in found] for part in ("seconds", "bytes")}
        row["exponents"] = {part: exponent(sizes, row[part]) for part in ("seconds", "bytes")}
        rows[name] = row
        slopes = "".join(f"{row['exponents'][part]:8.2f}" for part in ("seconds", "bytes"))
        print(f"{name:52s}{' '.join(f'{size:g}' for size in sizes):>28s}{slopes}", flush=True)
        document = {"study": "growth", "machine": machine(), "small": options.small, "rows": rows}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    if options.figure:
        draw(rows, options.figure)


if __name__ == "__main__":
    main()
