"""What somebody does with the core alone, torch and nothing else: run by ``make wheel``."""

import torch

import pacefno

operator = pacefno.FNO(dim=2, in_channels=3, out_channels=3, width=8, modes=4, positions="grid")
group = pacefno.Galilean(2)
model = pacefno.PACE(
    operator, group, channels="u v: velocity, p: scalar", horizon=0.5, lengths=6.28
)
field = torch.randn(2, 3, 32, 32)
model.eval()
pacefno.testing.assert_equivariant(model, group, field)
print(
    "wrapped: equivariant to", float(pacefno.metrics.equivariance_error(model, group, field).max())
)
