"""Use the package as someone with a file would: inspect, train, evaluate, roll out, predict.

Decaying two-dimensional turbulence as velocity (u, v) in a box of length 2 pi, a snapshot every 0.1
time units, made by the solver in foreign_operators.py, which is not ours. Everything after the file
is a command of ``pacefno``, run in a process of its own.

    python benchmarks/own_data.py --output results/own_data.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from foreign_operators import LENGTH, POINTS, initial_vorticity, solve, velocity

STEP = 0.1


def turbulence(count: int, snapshots: int, seed: int) -> np.ndarray:
    """Velocities ``(N, T, 2, x, y)`` of flows at rest on the whole, in float32."""
    w, still = initial_vorticity(count, np.random.default_rng(seed)), np.zeros((count, 2))
    found = [velocity(w, still)]
    for _ in range(snapshots - 1):
        w = solve(w, still, STEP, 10)
        found.append(velocity(w, still))
    return np.stack(found, axis=1).astype(np.float32)


def write(path: Path, values: np.ndarray) -> None:
    """One array and its coordinates, in .npz or HDF5."""
    x = np.arange(POINTS) * LENGTH / POINTS
    arrays = {"velocity": values, "t": np.arange(values.shape[1]) * STEP, "x": x, "y": x}
    if path.suffix == ".npz":
        np.savez(path, **arrays)
        return
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def pacefno(*words: object, folder: Path) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "pacefno.cli", *map(str, words)]
    print("$ pacefno", *words, flush=True)
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout, flush=True)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/own_data"), help="to work in")
    parser.add_argument("--samples", type=int, default=40, help="trajectories")
    parser.add_argument("--snapshots", type=int, default=21, help="of each")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--models", default="fno,fno-aug,pace")
    parser.add_argument("--format", default="h5", choices=("h5", "npz"))
    parser.add_argument("--output", type=Path, help="write the numbers here as JSON")
    options = parser.parse_args()
    folder, data = options.folder, f"turbulence.{options.format}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / data).exists():
        write(folder / data, turbulence(options.samples, options.snapshots, seed=1))
    words = ("--channels", "u v: velocity", "--write", "task.toml")
    pacefno("inspect", data, *words, folder=folder)
    rows: list[dict[str, Any]] = []
    for model in options.models.split(","):
        run = f"runs/{model}"
        words = ("--model", model, "--preset", options.preset, "--out", run, "--resume")
        pacefno("train", "task.toml", *words, folder=folder)  # the row tells how long it took
        row = json.loads(pacefno("evaluate", run, folder=folder))
        more = ("--steps", options.snapshots - 1, "--output", f"{model}.json")
        more += ("--picture", f"{model}.png", "--film", f"{model}.gif")
        pacefno("rollout", run, "task.toml", *more, folder=folder)
        row["rollout"] = json.loads((folder / f"{model}.json").read_text())
        pacefno("predict", run, "task.toml", f"{model}.npz", folder=folder)
        rows.append(row)
        print(f"{model}: {row['ood_error_canonical'] / row['id_error'] - 1:+.3%} when moved")
    pacefno("report", "runs", "--output", "report", folder=folder)
    if options.output:
        settings = {"samples": options.samples, "snapshots": options.snapshots, "step": STEP}
        settings |= {"preset": options.preset, "points": POINTS, "format": options.format}
        if options.output.exists():  # models of an earlier call stay
            done = {row["model"] for row in rows}
            before = json.loads(options.output.read_text())["rows"]
            rows = [row for row in before if row["model"] not in done] + rows
        document = {"study": "own_data", "settings": settings, "rows": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
