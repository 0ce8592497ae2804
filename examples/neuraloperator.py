"""
Wrap a neuraloperator FNO
=========================

An FNO of the `neuraloperator` package is trained on flows in one place and at rest. Then the same
flows arrive elsewhere, carried by a uniform wind. Wrapping it is one line and needs no training.
"""

import matplotlib.pyplot as plt
import torch
from neuralop.models import FNO

import pacefno

torch.manual_seed(0)

# %%
# Data
# ----
# Decaying turbulence: random velocity fields without a mean flow, solved for half a time unit in a
# box of length 1. Each is put where its strongest wave has phase zero, so that all samples lie "in
# one place".

equation = pacefno.pde.NavierStokesVelocity(nu=2e-3)
group, points, horizon = pacefno.Galilean(2), 32, 0.5
what = dict(channels="u v: velocity", horizon=horizon, lengths=1.0)

noise = torch.randn(260, 1, points, points, dtype=torch.float64)
spectrum = torch.fft.rfft2(noise)
k = pacefno.grid.wavenumbers((points, points)).norm(dim=0)
vorticity = torch.fft.irfft2(spectrum * torch.exp(-((k / 3) ** 2)) * (k > 0))
start = pacefno.grid.from_curl_and_divergence(torch.stack([vorticity, 0 * vorticity], 2))[:, 0]
start = 0.25 * start / start.std()

place = pacefno.PACE(torch.nn.Identity(), group, **what).eval()
start = place.canonicalize(start)
later = pacefno.pde.solve(equation, start, [0.0, horizon], 1e-2)[:, 1]
x, y = start.float(), later.float()
train, test = slice(0, 220), slice(220, 260)

# %%
# Train
# -----
# Nothing here knows of PACE: a plain loop around a plain FNO, which is told where each point lies
# (neuraloperator's default).

fno = FNO(n_modes=(12, 12), hidden_channels=12, n_layers=3, in_channels=2, out_channels=2)
steps, batch = 220, 16
optimizer = torch.optim.AdamW(fno.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=steps)
for _ in range(steps):
    rows = torch.randint(220, (batch,))
    loss = pacefno.metrics.relative_l2(fno(x[rows]), y[rows]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
fno.eval()

# %%
# Wrap
# ----

model = pacefno.PACE(fno, group, **what).eval()

# %%
# Move
# ----
# The test flows are shifted by half a box and carried by a wind of growing speed, and *solved
# anew* from there. The error is that of the flow without the wind, whose norm would flatter both.

winds = [0.0, 0.1, 0.2, 0.35, 0.5]
names = {"neuraloperator FNO": fno, "wrapped by PACE": model}
errors = {name: [] for name in names}
for wind in winds:
    xi = torch.tensor([[0.5, 0.3, wind, -wind]], dtype=torch.float64).expand(40, -1)
    moved = group.act(pacefno.Field(start[test], model.input), xi).values
    truth = pacefno.pde.solve(equation, moved, [0.0, horizon], 1e-2)[:, 1].float()
    still = truth.mean(dim=(2, 3), keepdim=True)
    with torch.no_grad():
        for name, one in names.items():
            found = one(moved.float())
            errors[name].append(
                float(pacefno.metrics.relative_l2(found - still, truth - still).mean())
            )

figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for (name, line), style in zip(errors.items(), ("o-", "s-"), strict=True):
    axes.semilogy(winds, line, style, label=name)
    print(f"{name:20s} shifted: {line[0]:.3f}   shifted, in a wind of 0.5: {line[-1]:.3f}")
with torch.no_grad():
    rest = float(pacefno.metrics.relative_l2(fno(x[test]), y[test]).mean())
axes.axhline(rest, color="grey", ls=":", label="FNO, where it was trained")
axes.set(xlabel="speed of the wind", ylabel="relative error of the flow")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The dotted line is what the FNO can do. Wrapped, it does that everywhere.
