"""How much memory a file of 20 GB needs: inspect, train and roll out, each in a process of its own.

The file has a smooth strip in each snapshot and holes elsewhere, which take no room where the file
system knows holes. It is removed at the end.

    python benchmarks/large_file.py --folder /tmp/large --output results/large_file.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SNAPSHOTS, POINTS, ROWS = 20, 256, 4
SPOKEN = ("--axes", "sample time channel x y", "--channels", "u v: velocity",
          "--lengths", "6.2832,6.2832", "--step", "0.1", "--write", "task.toml")  # fmt: skip
COMMANDS = {
    "inspect": ("inspect", "large.npy", *SPOKEN),
    "train": ("train", "task.toml", "--model", "pace", "--preset", "smoke", "--out", "run"),
    "rollout": ("rollout", "run", "task.toml", "--steps", "3"),
}
RUN = """
import json, resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(json.dumps([code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))
"""


def write(path: Path, size: float) -> None:
    """Velocities ``(N, T, 2, x, y)`` in float32, of so many bytes."""
    samples = int(size // (SNAPSHOTS * 2 * POINTS**2 * 4)) + 1
    shape = (samples, SNAPSHOTS, 2, POINTS, POINTS)
    values = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    x, rng = np.linspace(0, 2 * np.pi, POINTS, endpoint=False), np.random.default_rng(0)
    time = np.arange(SNAPSHOTS)[:, None, None, None]
    for sample in values:
        row = ROWS * rng.integers(2, POINTS // ROWS - 2)
        strip = np.array([0.5, 1.0, 1.0, 0.5])[:, None] * np.cos(x - 0.1 * time)
        sample[:, :, row : row + ROWS] = rng.normal(size=(2, 1, 1)) * strip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/large_file"), help="to work in")
    parser.add_argument("--gigabytes", type=float, default=20.0, help="of the file")
    parser.add_argument("--output", type=Path, help="write the numbers here as JSON")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "large.npy"
    write(path, options.gigabytes * 1e9)
    rows = {}
    for name, words in COMMANDS.items():
        command = [sys.executable, "-c", RUN, sys.executable, "-m", "pacefno.cli", *words]
        print("$ pacefno", *words, flush=True)
        began = time.monotonic()
        done = subprocess.run(command, cwd=options.folder, stdout=subprocess.PIPE, text=True)
        code, kilobytes = json.loads(done.stdout.splitlines()[-1])
        if code:
            raise SystemExit(done.stdout)
        peak = kilobytes * (1 if sys.platform == "darwin" else 1024) / 1e9
        rows[name] = {"peak_gigabytes": peak, "seconds": time.monotonic() - began}
        print(f"{name}: {peak:.2f} GB at most", flush=True)
    document = {"study": "large_file", "file_gigabytes": path.stat().st_size / 1e9, "rows": rows}
    path.unlink()
    if options.output:
        options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
