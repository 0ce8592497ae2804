"""
Refine
======

The default frames of PACE are exactly consistent: move a field, and its frame moves with it. A
frame that is learned by an ordinary encoder is not, above all outside its training range.
``refine`` improves such a frame for each sample at test time, all weights frozen.
"""

import math

import matplotlib.pyplot as plt
import torch

import pacefno

torch.manual_seed(0)

# %%
# An encoder
# ----------
# A small convolutional network is trained to read the shift of random waves, for shifts up to 0.1.

points, group = 128, pacefno.Translation(1)
now = pacefno.FieldType.parse("u: scalar", 1)
turns = torch.arange(points) / points
waves = torch.arange(1, 4)[:, None]


def states(count, seed):
    """Waves on the slice: the longest one has phase zero."""
    random = torch.rand(count, 3, 1, generator=torch.Generator().manual_seed(seed))
    phases = random * (waves > 1)
    return (torch.cos(2 * math.pi * (waves * turns + phases)) / waves).sum(dim=1, keepdim=True)


frame = pacefno.frames.CNNFrame(group, now)
optimizer = torch.optim.Adam(frame.parameters(), lr=3e-3)
for step in range(150):
    xi = group.sample([0.0], [0.1], 32, torch.Generator().manual_seed(step))
    moved = group.act(pacefno.Field(states(32, step), now), xi)
    loss = group.difference(frame(moved).xi, xi).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %%
# Far away
# --------
# Now shifts from 0 to half a period. The refined frame is the one whose pulled-back field the
# encoder takes for unmoved, found by a few Gauss-Newton steps from its own estimate.

operator = torch.nn.Identity()
model = pacefno.PACE(operator, group, channels="u: scalar", frame=frame.eval()).eval()
xi = torch.linspace(0, 0.5, 64, dtype=torch.float64)[:, None]
moved = group.act(pacefno.Field(states(64, 1000), now), xi).values

estimate = model.frame_of(moved).xi.detach()
refined = model.refine(moved)
before = group.difference(estimate, xi).abs()[:, 0]
after = group.difference(refined.xi, xi).abs()[:, 0]
for name, part in (("within 0.1", xi[:, 0] <= 0.1), ("beyond", xi[:, 0] > 0.1)):
    found = f"{before[part].mean():.4f}, refined {after[part].mean():.4f}"
    print(f"{name:11s} error of the shift: {found}")
print(f"energy: {refined.energy_before.mean():.1e}, refined {refined.energy_after.mean():.1e}")
assert bool((refined.energy_after <= refined.energy_before).all())

figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.axvspan(0, 0.1, color="#E9F1F7", label="training range")
axes.semilogy(xi[:, 0], before.clamp(1e-6), "o", ms=4, color="#D55E00", label="encoder")
axes.semilogy(xi[:, 0], after.clamp(1e-6), "s", ms=4, color="#0072B2", label="refined")
axes.set(xlabel="true shift", ylabel="error of the frame")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Refinement makes a frame consistent with the encoder; it cannot make the encoder right. An
# analytic frame needs none of it; here the one whose slice the samples lie on:

exact = pacefno.PACE(
    operator, group, channels="u: scalar", frame=pacefno.frames.PhaseSlice(group).frame()
)
error = group.difference(exact.eval().frame_of(moved).xi, xi).abs().max()
print(f"read off the slice, the shift is right to {error:.1e}")
