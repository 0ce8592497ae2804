"""
Drag a field
============

The whole claim in one curve: three small models of 2-D Burgers, one of them trained on slightly
moved fields, predict the same field as it is dragged away and set in motion.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from safetensors.torch import load_file

import pacefno

# %%
# Models and a sample
# -------------------
# They lie in the repository, trained by ``make models``; a folder is all that ``load`` needs.

folder = Path("docs/models/burgers2d")
folder = folder if folder.exists() else ".." / folder
models = {name: pacefno.load(folder / name) for name in ("fno", "fno-aug", "pace")}
samples = load_file(folder / "samples.safetensors")
field, target = samples["input"][:1], samples["target"][:1]
pace = models["pace"]
group = pace.group
print(
    pace.input.text,
    "|",
    ", ".join(group.coordinates),
    "| horizon",
    pace.output.times[0] * pace.output.step,
)

# %%
# Drag
# ----
# ``xi`` moves the input now and the target at the final time: an exact solution at every place of
# the path.

count = 25
path = torch.linspace(0, 1, count, dtype=torch.float64)[:, None] * torch.tensor([[0.45, 0.3, 1.2]])
errors = {name: [] for name in models}
for xi in path[:, None]:
    moved = group.act(pacefno.Field(field, pace.input), xi).values
    truth = group.act(pacefno.Field(target, pace.output), xi).values
    for name, model in models.items():
        with torch.no_grad():
            found = model(moved)
        error = pacefno.metrics.canonical_error(group, pace.output, xi, found, truth)
        errors[name].append(float(error))

# %%
# The training range ends at a shift of 0.1 and a boost of 0.5. The error is measured without the
# motion, whose norm would flatter all three.

figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
axes.axvspan(0, 0.1 / 0.45, color="#E9F1F7", label="training range")
titles = {"fno": "FNO", "fno-aug": "FNO + augmentation", "pace": "PACE"}
for (name, line), colour in zip(errors.items(), ("#D55E00", "#E69F00", "#0072B2"), strict=True):
    axes.semilogy(torch.linspace(0, 1, count), line, "o-", ms=3, color=colour, label=titles[name])
    print(f"{titles[name]:20s} unmoved {line[0]:.3f}   at the end of the path {line[-1]:.3f}")
axes.set(
    xlabel="along the path (1: shifted by 0.45 and 0.3, boosted by 1.2)", ylabel="relative error"
)
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
plt.show()
