"""
Rotations
=========

A cluster of vortices has a place and a direction, and both can be read off it. PACE uses them to
follow any turn, also around a network that was never meant to.
"""

import math

import matplotlib.pyplot as plt
import torch

import pacefno

torch.manual_seed(0)

# %%
# A turning field
# ---------------
# Compact vorticity without net circulation, as on every torus, and a network that sees positions
# and pads with zeros.

points = 64
axis = torch.arange(points, dtype=torch.float64) / points
x, y = torch.meshgrid(axis, axis, indexing="ij")
field = torch.zeros(points, points, dtype=torch.float64)
for strength, a, b, width in (
    (1.0, 0.52, 0.59, 0.05),
    (-1.32, 0.52, 0.42, 0.05),
    (0.5, 0.38, 0.5, 0.04),
):
    field += strength * torch.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * width**2))
field = field[None, None].float()


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = torch.nn.Conv2d(3, 16, 5, padding=2)
        self.leave = torch.nn.Conv2d(16, 1, 5, padding=2)

    def forward(self, values):
        here = torch.stack([x, y]).to(values).expand(len(values), -1, -1, -1)
        inside = self.leave(torch.tanh(self.enter(torch.cat([values, here], dim=1))))
        return values * inside  # what it predicts stays where the vortices are


network, group = Network().eval(), pacefno.Euclidean()
model = pacefno.PACE(network, group, channels="w: pseudoscalar").eval()

# %%
# Turn it
# -------
# Around the whole circle: does turning the input turn the prediction?

angles = torch.linspace(-math.pi, math.pi, 25, dtype=torch.float64)
xi = torch.stack([0.1 * torch.ones(25), -0.05 * torch.ones(25), angles], dim=1).double()
fields = field.expand(25, -1, -1, -1)
what = dict(channels="w: pseudoscalar", xi=xi)
bare = pacefno.metrics.equivariance_error(network, group, fields, **what)
wrapped = pacefno.metrics.equivariance_error(model, group, fields, xi=xi)
print(f"worst over the circle: bare {bare.max():.2f}, wrapped {wrapped.max():.1e}")

turned = group.act(pacefno.Field(fields, model.input), xi).values
start = float(model.frame_of(field).xi[0, 2])
read = model.frame_of(turned).xi[:, 2]
wrong = group.difference(model.frame_of(turned).xi, group.compose(xi, model.frame_of(fields).xi))
print(f"angles read off the fields are right to {wrong[:, 2].abs().max():.1e} radians")

# %%
figure, axes = plt.subplots(
    1, 4, figsize=(10, 2.9), layout="constrained", width_ratios=(1, 1, 1, 1.6)
)
for panel, number in zip(axes, (12, 16, 21), strict=False):
    panel.imshow(turned[number, 0].T, origin="lower", cmap="RdBu_r", vmin=-1.3, vmax=1.3)
    panel.set(xticks=[], yticks=[], title=f"{math.degrees(angles[number]):.0f} degrees")
degrees = angles * 180 / math.pi
axes[3].semilogy(degrees, bare.clamp(1e-9), "o-", ms=3, color="#D55E00", label="network")
axes[3].semilogy(degrees, wrapped.clamp(1e-9), "s-", ms=3, color="#0072B2", label="wrapped by PACE")
axes[3].set(xlabel="angle", title="equivariance error", xticks=[-180, -90, 0, 90, 180])
axes[3].legend(frameon=False)
axes[3].spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# A field that fills its box has no such angle, because the torus cannot be turned; PACE then warns
# and says which coordinate is missing. :doc:`/method` says what is exact and what is not.
