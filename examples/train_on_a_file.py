"""
Train on a file
===============

From a NetCDF file to a trained and scored model that follows its input. On the command line these
are four commands: ``pacefno inspect flow.nc --write task.toml``, ``pacefno train task.toml --model
pace``, the same with ``--model fno``, and ``pacefno evaluate RUN``.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
import xarray as xr

import pacefno
from pacefno.data import open_task
from pacefno.data.inspect import Answers, inspect_file, write_task

folder = Path(tempfile.mkdtemp())

# %%
# The file
# --------
# Burgers' equation from 300 random states, solved exactly by the formula of Cole and Hopf. Any
# other file with a sample axis and periodic axes of space will do.

n, nu, later, rng = 128, 0.01, 0.3, np.random.default_rng(0)
x = np.arange(n) / n
k = 2 * np.pi * np.fft.rfftfreq(n, 1 / n)


def burgers(potential, time):
    spectrum = np.fft.rfft(np.exp(potential)) * np.exp(-nu * k**2 * time)
    return -2 * nu * np.fft.irfft(1j * k * spectrum, n) / np.fft.irfft(spectrum, n)


waves, samples = np.arange(1, 5)[:, None], 300
size = rng.normal(size=(samples, 4, 1)) / waves**2
size[:, 0] = 1.5 + 0.3 * size[:, 0]  # the longest wave leads and has one phase: one place
angles = 2 * np.pi * (waves * x + rng.random((samples, 4, 1)) * (waves > 1))
potentials = 4 * (size * np.sin(angles)).sum(axis=1)
u = np.array([[burgers(p, 0.0), burgers(p, later)] for p in potentials])
coordinates = {"time": [0.0, later], "x": x}
flow = xr.DataArray(u, dims=("sample", "time", "x"), coords=coordinates, name="u")
flow.to_netcdf(folder / "flow.nc")

# %%
# What is in it?
# --------------
# ``inspect`` looks, says what it found, and writes a document in which every guess is marked. That
# u is a velocity, which a boost adds to, is something only we can know.

findings = inspect_file(folder / "flow.nc", Answers(channels="u: velocity"))
write_task(findings, folder / "task.toml")
print((folder / "task.toml").read_text())

# %%
# Train
# -----
# PACE, and the same operator without it. The presets are ``smoke`` (seconds), ``quick`` (minutes)
# and ``standard``; any setting can be changed, and here the smallest preset gets more steps.

task, source = open_task(folder / "task.toml")
longer = {"batch": 16, "epochs": 5, "passes": 3, "most_steps": 45}
changes = ("operator.modes=16", *(f"schedule.{name}={value}" for name, value in longer.items()))
models = {
    name: pacefno.fit(task, source, folder / name, model=name, preset="smoke", changes=changes)
    for name in ("fno", "pace")
}

# %%
# Score
# -----
# Test samples as they are, and moved as ``[ood]`` says: input and target by the same element. A
# boost adds to the norm that errors are divided by, so the motion is removed before the two are
# compared.

rest, moved = (source.load(split).select(slice(None)) for split in ("test_id", "test_ood"))
for name, model in models.items():
    with torch.no_grad():
        at_rest = pacefno.metrics.relative_l2(model(rest.input), rest.target).mean()
        found = model(moved.input)
    far = pacefno.metrics.canonical_error(
        task.group, task.output, moved.elements, found, moved.target
    ).mean()
    print(f"{name:5s} as they are: {at_rest:.4f}   moved: {far:.4f}")

# %%
# Look
# ----

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
for panel, samples, title in zip(axes, (rest, moved), ("as in the file", "moved"), strict=True):
    panel.plot(x, samples.input[0, 0], color="grey", ls=":", label="input")
    panel.plot(x, samples.target[0, 0], color="black", lw=4, alpha=0.3, label="truth")
    for (name, model), colour in zip(models.items(), ("#D55E00", "#0072B2"), strict=True):
        with torch.no_grad():
            panel.plot(x, model(samples.input[:1])[0, 0], color=colour, label=name)
    panel.set(xlabel="x", title=title)
    panel.spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False)
plt.show()
