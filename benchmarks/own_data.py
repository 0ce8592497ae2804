"""Use the package as someone with a file would: inspect, train, score, audit, roll out, predict.

Decaying two-dimensional turbulence as velocity (u, v) in a box of length 2 pi, a snapshot every 0.1
time units, made by the solver in foreign_operators.py, which is not ours, in six formats.
Everything after the files is a command of ``pacefno``, run in a process of its own: models are
trained on one format, and each format is inspected and predicted from. Each step is done once: an
interrupted call goes on where it was, and the time it prints at the end is that of all steps.

    python benchmarks/own_data.py --output results/own_data.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from foreign_operators import LENGTH, POINTS, initial_vorticity, solve, velocity

STEP = 0.1
X = np.arange(POINTS) * LENGTH / POINTS
CHANNELS = ("--channels", "u v: velocity")


# --- files ----------------------------------------------------------------------------------------


def turbulence(count: int, snapshots: int, seed: int) -> np.ndarray:
    """Velocities ``(N, T, 2, x, y)`` of flows at rest on the whole, in float32."""
    w, still = initial_vorticity(count, np.random.default_rng(seed)), np.zeros((count, 2))
    found = [velocity(w, still)]
    for _ in range(snapshots - 1):
        w = solve(w, still, STEP, 10)
        found.append(velocity(w, still))
    return np.stack(found, axis=1).astype(np.float32)


def times(values: np.ndarray, more: int = 0) -> np.ndarray:
    return np.arange(values.shape[1] + more) * STEP


def npz(path: Path, values: np.ndarray) -> None:
    np.savez(path, velocity=values, t=times(values), x=X, y=X)


def pdebench(path: Path, values: np.ndarray) -> None:
    """One array per variable, and one time more than snapshots."""
    with h5py.File(path, "w") as file:
        file["Vx"], file["Vy"] = values[:, :, 0], values[:, :, 1]
        file["x-coordinate"], file["y-coordinate"] = X, X
        file["t-coordinate"] = times(values, 1)


def the_well(path: Path, values: np.ndarray) -> None:
    """Fields by their order, with dimensions and boundary conditions."""
    with h5py.File(path, "w") as file:
        file.attrs["dataset_name"], file.attrs["grid_type"] = "turbulence", "cartesian"
        file.attrs["n_spatial_dims"], file.attrs["n_trajectories"] = 2, len(values)
        file.create_group("dimensions").attrs["spatial_dims"] = ["x", "y"]
        for name, points in (("time", times(values)), ("x", X), ("y", X)):
            file[f"dimensions/{name}"] = points
        for name in "xy":
            condition = file.create_group(f"boundary_conditions/{name}_periodic")
            condition.attrs["associated_dims"], condition.attrs["bc_type"] = [name], "PERIODIC"
        file.create_group("t0_fields")
        file["t1_fields/velocity"] = np.moveaxis(values, 2, -1)
        attributes = file["t1_fields/velocity"].attrs
        attributes["sample_varying"] = attributes["time_varying"] = True
        attributes["dim_varying"] = [True, True]


def pt(path: Path, values: np.ndarray) -> None:
    """Pairs x and y, as neuraloperator keeps them: from each snapshot to the next."""
    x, y = (torch.from_numpy(part).flatten(0, 1) for part in (values[:, :-1], values[:, 1:]))
    torch.save({"x": x.clone(), "y": y.clone()}, path)


def netcdf(path: Path, values: np.ndarray) -> None:
    import xarray

    dims, where = ("sample", "time", "x", "y"), {"time": times(values), "x": X, "y": X}
    fields = {name: (dims, values[:, :, c]) for c, name in enumerate("uv")}
    dataset = xarray.Dataset(fields, coords=where)
    if path.suffix == ".zarr":
        dataset.to_zarr(path, mode="w", consolidated=False)
    else:
        dataset.to_netcdf(path)


# How each is written, the name of its file, and what has to be said of it.
FORMATS: dict[str, tuple[Callable[[Path, np.ndarray], None], str, tuple[str, ...]]] = {
    "numpy": (npz, "turbulence.npz", CHANNELS),
    "PDEBench": (pdebench, "pdebench.hdf5", CHANNELS),
    "The Well": (the_well, "well.hdf5", CHANNELS),
    "neuraloperator": (pt, "pairs.pt", (*CHANNELS, "--lengths", str(LENGTH), "--step", str(STEP))),
    "NetCDF": (netcdf, "turbulence.nc", CHANNELS),
    "Zarr": (netcdf, "turbulence.zarr", CHANNELS),
}
TRAINED_ON = "PDEBench"


# --- steps ----------------------------------------------------------------------------------------


class Work:
    """A folder in which each step is done once, and how long each took."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "seconds.json"
        folder.mkdir(parents=True, exist_ok=True)
        self.seconds: dict[str, float] = {}
        if self.log.exists():
            self.seconds = json.loads(self.log.read_text())

    def do(self, name: str, step: Callable[[], object]) -> None:
        """A step that was not finished before; an interrupted one adds to its time."""
        done = f"{name}, done"
        if done in self.seconds:
            return
        began = time.monotonic()
        try:
            step()
            self.seconds[done] = 0.0
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began
            self.log.write_text(json.dumps(self.seconds, indent=1) + "\n")

    def pacefno(self, *words: object, keep: str = "") -> None:
        """A command; what it prints is shown, and kept in a file if that is named."""
        command = [sys.executable, "-m", "pacefno.cli", *map(str, words)]

        def step() -> None:
            print("$ pacefno", *words, flush=True)
            done = subprocess.run(
                command, cwd=self.folder, stdout=subprocess.PIPE, text=True, check=True
            )
            print(done.stdout, flush=True)
            if keep:
                (self.folder / keep).write_text(done.stdout)

        self.do(" ".join(map(str, words)), step)

    def read(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def through(work: Work, model: str, preset: str, snapshots: int) -> dict[str, Any]:
    """One model from training to predictions."""
    run, task = f"runs/{model}", f"{TRAINED_ON}.toml"
    work.pacefno("train", task, "--model", model, "--preset", preset, "--out", run, "--resume")
    work.pacefno("evaluate", run, keep=f"{model}-scores.json")
    files = ("--json", f"{model}-audit.json", "--html", f"{model}-audit.html")
    work.pacefno("audit", run, task, "--samples", 8, "--point-group", "p4m", *files)
    files = ("--output", f"{model}.json", "--picture", f"{model}.png", "--film", f"{model}.gif")
    work.pacefno("rollout", run, task, "--steps", snapshots - 1, *files)
    row = work.read(f"{model}-scores.json") | {"rollout": work.read(f"{model}.json")}
    audit = work.read(f"{model}-audit.json")
    row["audit"] = {key: audit[key] for key in ("verdict", "worst_error", "rest")}
    row["predicted"] = {}
    for name in FORMATS:
        out = f"{model} {name}.npz"
        work.pacefno("predict", run, f"{name}.toml", out)
        with np.load(work.folder / out) as found:
            off, whole = (
                np.sqrt((part.astype(float) ** 2).sum(axis=(1, 2, 3)))
                for part in (found["prediction"] - found["target"], found["target"])
            )
        row["predicted"][name] = float((off / whole).mean())
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/own_data"), help="to work in")
    parser.add_argument("--samples", type=int, default=40, help="trajectories")
    parser.add_argument("--snapshots", type=int, default=21, help="of each")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--models", default="fno,fno-aug,pace")
    parser.add_argument("--output", type=Path, help="write the numbers here as JSON")
    options = parser.parse_args()
    work = Work(options.folder)

    def write_files() -> None:
        values = turbulence(options.samples, options.snapshots, seed=1)
        for write, file, _ in FORMATS.values():
            write(work.folder / file, values)

    work.do("write the files", write_files)
    for name, (_, file, said) in FORMATS.items():
        work.pacefno("inspect", file, *said, "--write", f"{name}.toml")
    rows = [
        through(work, model, options.preset, options.snapshots)
        for model in options.models.split(",")
    ]
    work.pacefno("report", "runs", "--output", "report")
    for row in rows:
        moved = row["ood_error_canonical"] / row["id_error"] - 1
        print(f"{row['model']}: error {row['id_error']:.4f}, {moved:+.2%} when moved")
    print(f"{work.total:.0f} s in all")
    if options.output:
        keys = ("samples", "snapshots", "preset")
        settings = {key: getattr(options, key) for key in keys}
        settings |= {"step": STEP, "points": POINTS, "trained_on": TRAINED_ON}
        seconds = {name: round(value, 1) for name, value in work.seconds.items() if value}
        document = {"study": "own_data", "settings": settings, "rows": rows}
        document |= {"seconds": seconds, "total_seconds": round(work.total, 1)}
        options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
