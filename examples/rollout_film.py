"""
A rollout film
==============

An operator predicts a short step; a rollout feeds its predictions back to it. In a moving frame, a
plain operator is lost after a few steps. This page trains one, wraps it, and films both.
"""

import math

import matplotlib.pyplot as plt
import torch
from matplotlib.animation import FuncAnimation

import pacefno

# %%
# Data
# ----
# Trajectories of Burgers' equation at rest, 21 snapshots each; every step of every trajectory is a
# training pair.

points, step, samples = 64, 0.05, 48
equation = pacefno.pde.Burgers(1, nu=0.01)
generator = torch.Generator().manual_seed(0)
turns = torch.arange(points, dtype=torch.float64) / points
waves = torch.arange(1, 4)[:, None]
phases = torch.rand(samples, 3, 1, generator=generator, dtype=torch.float64)
states = (torch.sin(2 * math.pi * (waves * turns + phases)) / waves).sum(dim=1, keepdim=True)
times = [step * i for i in range(41)]
films = pacefno.pde.solve(equation, 0.35 * states, times, 0.01).float()  # (sample, time, 1, x)
x, y = films[:, :20].flatten(0, 1), films[:, 1:21].flatten(0, 1)

# %%
# Train
# -----
# The operator learns the change in a step, as time steppers do.


class Step(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.change = pacefno.FNO(dim=1, in_channels=1, out_channels=1, width=20, modes=16)

    def forward(self, field):
        return field + step * self.change(field)


torch.manual_seed(0)
operator, count = Step(), 300
optimizer = torch.optim.Adam(operator.parameters(), lr=4e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=8e-3, total_steps=count)
for number in range(count):
    rows = torch.randint(40 * 20, (32,), generator=torch.Generator().manual_seed(number))
    loss = pacefno.metrics.relative_l2(operator(x[rows]) - x[rows], y[rows] - x[rows]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()

what = dict(channels="u: speed", horizon=step, lengths=1.0)
model = pacefno.PACE(operator.eval(), pacefno.Galilean(1), **what).eval()
plain = pacefno.PACE(operator, pacefno.Trivial(1), **what).eval()  # nothing is pulled back

# %%
# Roll out
# --------
# Trajectories that were not in training, boosted by 0.5: in two time units they cross the box
# once. The truth is solved from the boosted states; ``conserve`` keeps the mean that Burgers'
# equation keeps.

boosted = (films[40:, 0] + 0.5).double()
truth = pacefno.pde.solve(equation, boosted, times, 0.01).float()[:, 1:]
start = boosted.float()
rollouts = {
    "the operator alone": plain.rollout(start, 40, conserve=True),
    "PACE": model.rollout(start, 40, conserve=True),
}
level = 0.5  # the boost, which would flatter relative errors
errors = {
    name: pacefno.metrics.relative_l2((film - level).flatten(0, 1), (truth - level).flatten(0, 1))
    .reshape(truth.shape[:2])
    .mean(dim=0)
    for name, film in rollouts.items()
}
for name, error in errors.items():
    print(
        f"{name:20s} error after 1 step {error[0]:.3f}, 10 steps {error[9]:.3f}, 40 {error[-1]:.3f}"
    )

# %%
# The film
# --------

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained", dpi=80)
left.set(xlim=(0, 1), ylim=(-0.2, 1.3), xlabel="x", title="u")
lines = [left.plot([], [], color="black", lw=4, alpha=0.3, label="truth")[0]]
right.set(xlim=(0, 2), ylim=(1e-3, 5), yscale="log", xlabel="time", title="relative error")
curves = []
for name, colour in zip(rollouts, ("#D55E00", "#0072B2"), strict=True):
    lines.append(left.plot([], [], color=colour, label=name)[0])
    curves.append(right.plot([], [], color=colour)[0])
left.legend(frameon=False, loc="upper right", fontsize=8)


def draw(number):
    for line, film in zip(lines, [truth, *rollouts.values()], strict=True):
        line.set_data(turns, film[0, number, 0])
    for curve, error in zip(curves, errors.values(), strict=True):
        curve.set_data(times[1 : number + 2], error[: number + 1])
    return [*lines, *curves]


film = FuncAnimation(figure, draw, frames=40, interval=90)
plt.show()

# %%
# On the command line: ``pacefno rollout RUN task.toml --steps 40 --film flow.gif``.
