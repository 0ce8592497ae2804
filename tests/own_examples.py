"""A small file of one's own: running waves as a velocity, and the document to train on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

SAMPLES, SNAPSHOTS, POINTS, LENGTH, STEP = 12, 7, 16, 2.0, 0.1
Array = npt.NDArray[np.float32]

DOCUMENT = """
name = "waves"
train_range = [0.1, 0.1, 0.1, 0.1]
{rollout}

[input]
channels = "u v: velocity"
dim = 2
times = {times}
lengths = [2.0, 2.0]
step = 0.1

[output]
times = {later}

[group]
name = "galilean"
dim = 2

[data]
file = "waves.npz"
arrays = ["velocity"]
axes = "sample time channel x y"
split = [0.6, 0.2, 0.2]

[ood]
low = [0.1, 0.1, 0.2, 0.2]
high = [0.5, 0.5, 0.6, 0.6]
"""


def waves(samples: int = SAMPLES, seed: int = 0) -> Array:
    """Velocities ``(N, T, 2, x, y)`` without a mean, of a few waves that run."""
    rng = np.random.default_rng(seed)
    x = 2 * np.pi * np.arange(POINTS) / POINTS
    values = np.zeros((samples, SNAPSHOTS, 2, POINTS, POINTS))
    time = STEP * np.arange(SNAPSHOTS)[:, None, None, None]
    for k, m in ((1, 0), (0, 1), (1, 1), (2, -1), (3, 1)):
        a, phase = rng.normal(size=(2, samples, 1, 2, 1, 1))
        values += a * np.sin(k * x[:, None] + m * x + phase + (k + m) * time)
    return values.astype(np.float32)


def write_own(
    folder: Path,
    values: Array | None = None,
    *,
    history: int = 1,
    future: int = 1,
    rollout: bool = False,
) -> Path:
    """The file and its document, whose path is returned."""
    np.savez(folder / "waves.npz", velocity=waves() if values is None else values)
    text = DOCUMENT.format(
        rollout=f"rollout = {{ first = {history} }}" if rollout else "",
        times=list(range(history)),
        later=list(range(history, history + future)),
    )
    path = folder / "task.toml"
    path.write_text(text)
    return path
