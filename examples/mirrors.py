"""
Mirrors
=======

Burgers' equation does not know left from right: mirror a state and change its sign, and its
solution is mirrored too. A network has to be told. Two ways: average any operator over the mirror,
or give it weights that know the mirror.
"""

import math

import matplotlib.pyplot as plt
import torch

import pacefno

# %%
# Data
# ----
# Random states whose steep fronts all lean one way: mirrored ones look like nothing in training.

points, horizon = 64, 0.5
equation = pacefno.pde.Burgers(1, nu=0.01)
generator = torch.Generator().manual_seed(0)
turns = torch.arange(points, dtype=torch.float64) / points
phases = 0.15 * torch.rand(140, 3, 1, generator=generator, dtype=torch.float64)
waves = torch.arange(1, 4)[:, None]
states = (torch.sin(2 * math.pi * (waves * turns + phases)) / waves).sum(dim=1, keepdim=True)
states = 0.4 * states * (1 + 0.5 * torch.cos(2 * math.pi * turns))
pairs = pacefno.pde.solve(equation, states, [0.0, horizon], 0.01).float()
x, y = pairs[:, 0], pairs[:, 1]

# %%
# The mirror
# ----------
# A finite group acts by the kind of each channel. ``u`` is a velocity, so it changes sign in a
# mirror.

group = pacefno.PointGroup("z2")
now = pacefno.FieldType.parse("u: velocity", 1)
print("the point group of the equation:", equation.point_group)
xi = torch.ones(40, 1, dtype=torch.float64)  # the second element
x_test, y_test = x[100:], y[100:]
x_mirrored, y_mirrored = (group.act(pacefno.Field(f, now), xi).values for f in (x_test, y_test))

# %%
# Three operators
# ---------------
# ``Symmetrised(fno, "z2")`` averages over the group at test time and is exactly symmetric whatever
# the operator is; with ``samples=1`` a training calls the operator once per sample, as without it,
# and each sample is shown as it is or mirrored, by chance. ``GroupFNO`` has weights that know the
# group.

sizes = dict(dim=1, in_channels=1, out_channels=1, modes=12)
torch.manual_seed(0)
models = {
    "FNO": pacefno.FNO(**sizes, width=16),
    "FNO, averaged": pacefno.Symmetrised(
        pacefno.FNO(**sizes, width=16), "z2", channels="u: velocity", samples=1
    ),
    "GroupFNO": pacefno.GroupFNO(**sizes, width=12, group="z2", channels="u: velocity"),
}


def train(model, steps=200):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=8e-3, total_steps=steps)
    for step in range(steps):
        rows = torch.randint(100, (16,), generator=torch.Generator().manual_seed(step))
        loss = pacefno.metrics.relative_l2(model(x[rows]), y[rows]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.2), layout="constrained", sharey=True)
for panel, (name, model) in zip(axes, models.items(), strict=True):
    train(model)
    with torch.no_grad():
        found, found_mirrored = model(x_test), model(x_mirrored)
    error = pacefno.metrics.relative_l2(found, y_test).mean()
    mirrored = pacefno.metrics.relative_l2(found_mirrored, y_mirrored).mean()
    follows = pacefno.metrics.equivariance_error(
        model, group, x_test, channels="u: velocity", xi=xi
    ).mean()
    print(
        f"{name:14s} error {error:.3f}, mirrored {mirrored:.3f}; equivariance error {follows:.1e}"
    )
    panel.plot(turns, y_mirrored[0, 0], color="black", lw=4, alpha=0.3, label="truth, mirrored")
    panel.plot(turns, found_mirrored[0, 0], color="#0072B2", label="prediction")
    panel.set(title=f"{name}: {mirrored:.2f}", xlabel="x")
    panel.spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False)
plt.show()

# %%
# :doc:`/symmetries` has the groups, what each equation keeps, and what both ways earn and cost.
