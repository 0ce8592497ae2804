"""Models with one known fault each, and samples whose truth is known."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from pacefno.fields import Field, FieldType
from pacefno.groups import Galilean, Group, Translation
from pacefno.task import Task
from pacefno.testing import random_field

GRID = (32, 32)
HORIZON = 0.5
# Symmetric in both axes and under their exchange; its sum is 1, so that a mean stays.
KERNEL = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]], dtype=torch.float64) / 16


def make_task(group: Group, channels: str) -> Task:
    type = FieldType.parse(channels, group.dim, lengths=2.0)
    return Task(name="smoothing", input=type, output=type.at([HORIZON]), group=group)


def scalar_task() -> Task:
    return make_task(Translation(2), "p: scalar")


def flow_task() -> Task:
    return make_task(Galilean(2), "u v: velocity")


def smooth(field: Tensor, kernel: Tensor = KERNEL, mode: str = "circular") -> Tensor:
    """Each channel with a 3 x 3 kernel, across the edges of the box or padded."""
    weight = kernel.to(field).expand(field.shape[1], 1, 3, 3)
    padded = functional.pad(field, (1, 1, 1, 1), mode=mode)
    return functional.conv2d(padded, weight, groups=field.shape[1])


def samples(
    task: Task, count: int = 6, dtype: torch.dtype = torch.float32, off: float = 0.05
) -> tuple[Tensor, Tensor]:
    """Fields at rest and what becomes of them: smoothed, and a little that nobody predicts."""
    field = random_field(task.input, GRID, batch=count, top=5, dtype=torch.float64).values
    field = field * blob(0.12)
    field = field - field.mean(dim=(2, 3), keepdim=True)
    truth = smooth(field)
    noise = torch.randn(truth.shape, dtype=torch.float64, generator=torch.manual_seed(1))
    noise = noise - noise.mean(dim=(2, 3), keepdim=True)
    truth = truth + off * noise * truth.norm() / noise.norm()
    return field.to(dtype), truth.to(dtype)


def blob(width: float, like: Tensor = KERNEL) -> Tensor:
    """A round hump in the middle of the box."""
    x = torch.arange(GRID[0], dtype=like.dtype) / GRID[0] - 0.5
    hump = torch.exp(-((x / width) ** 2) / 2)
    return hump[:, None] * hump


def equivariant(field: Tensor) -> Tensor:
    return smooth(field)


def zero_padded(field: Tensor) -> Tensor:
    return smooth(field, mode="constant")


def strided(field: Tensor) -> Tensor:
    return functional.interpolate(functional.avg_pool2d(field, 2), scale_factor=2)


def with_positions(field: Tensor) -> Tensor:
    """Right in the middle of the box, where all samples are, and lost elsewhere."""
    x = torch.arange(GRID[0], dtype=field.dtype) / GRID[0] - 0.5
    gain = 0.6 + 0.4 * torch.sigmoid((0.3 - x.abs()) / 0.03)
    return smooth(field) * gain[:, None] * gain


def one_sided(field: Tensor) -> Tensor:
    """Follows every shift, and pulls everything along x."""
    lopsided = torch.tensor([[0.0, 0, 0], [0.45, 0.55, 0], [0, 0, 0]]).T
    return smooth(smooth(field), lopsided)


def constant(field: Tensor) -> Tensor:
    return torch.zeros_like(field)


class Smoothing(nn.Module):
    """The equivariant one with a weight, so that it can be moved, saved and exported."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(KERNEL.float())

    def forward(self, field: Tensor) -> Tensor:
        return smooth(field, self.kernel)


def solve_flow(field: Tensor) -> Tensor:
    """The truth of the flow task in any frame: smoothed and carried along by its own mean."""
    task = flow_task()
    typed = Field(field, task.input)
    xi = torch.cat([torch.zeros(len(field), 2).double(), task.group.kinematic(typed)], dim=1)
    still = task.group.inverse(typed, xi).values
    return task.group.act(Field(smooth(still), task.output), xi).values
