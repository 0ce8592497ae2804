"""Solutions of KdV and Kuramoto-Sivashinsky commute with their groups, each in its own box.

The laws of the groups themselves are in ``tests/groups``.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pacefno.data import Trajectories
from pacefno.fields import Box, Field
from pacefno.grid import points
from pacefno.groups import Galilean, GalileanScaling, Group
from pacefno.pde import Equation, KdV, KuramotoSivashinsky, solve

BOX = Box(torch.tensor([[22.0], [30.0], [26.0]]).double(), torch.tensor([0.2, 0.3, 0.25]).double())
SNAPSHOTS, SUBSTEPS = 5, 48
TYPE = KdV().field_type(range(SNAPSHOTS), lengths=26.0, step=0.25)
over_points = pytest.mark.parametrize("n", [64, 65])


def smooth_states(n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Three states of a few long waves, ``(3, 1, n)``."""
    angle = 2 * math.pi * points((n,))
    rows = [
        torch.sin(angle) - 0.4 * torch.cos(2 * angle + k) + 0.2 * torch.sin(3 * angle)
        for k in range(3)
    ]
    return torch.stack(rows).to(dtype)


def solved(equation: Equation, first: Tensor, box: Box) -> Field:
    """The snapshots of the solutions from these states on."""
    times = [float(number) for number in range(SNAPSHOTS)]
    return Field(solve(equation, first, times, 1 / SUBSTEPS, box=box)[:, :, 0], TYPE, box)


def solving_law(
    group: Group, equation: Equation, xi: Tensor, n: int = 64, dtype: torch.dtype = torch.float64
) -> float:
    """How far a moved solution is from the solution of the moved state, relative."""
    moved = group.act(solved(equation, smooth_states(n, dtype), BOX.to(dtype)), xi)
    assert moved.box is not None
    again = solved(equation, moved.values[:, :1], moved.box)
    return float((moved.values - again.values).norm() / again.values.norm())


CASES = {
    "g2": [[0.3, 0.0, 0.0], [-0.45, 0.0, 0.0], [0.01, 0.0, 0.0]],
    "g3": [[0.0, 0.5, 0.0], [0.0, -0.8, 0.0], [0.0, 0.4, 0.0]],
    "g4": [[0.0, 0.0, 0.1], [0.0, 0.0, -0.2], [0.0, 0.0, 0.05]],
    "all": [[0.3, 0.5, 0.1], [-0.45, -0.8, -0.2], [0.1, 0.4, 0.05]],
}


def elements(name: str, size: int = 3) -> Tensor:
    """LPSDA's g2 (shift), g3 (boost), g4 (change of scale), or all of them."""
    return torch.tensor(CASES[name], dtype=torch.float64)[:, :size]


ELEMENTS = [pytest.param(KdV(), GalileanScaling(), name, id=f"kdv-{name}") for name in CASES]
ELEMENTS += [
    pytest.param(KuramotoSivashinsky(), Galilean(1), name, id=f"ks-{name}")
    for name in ("g2", "g3", "all")
]


@over_points
@pytest.mark.parametrize(("equation", "group", "name"), ELEMENTS)
def test_solving_a_moved_state_is_moving_its_solution(
    equation: Equation, group: Group, name: str, n: int, dtype: torch.dtype
) -> None:
    error = solving_law(group, equation, elements(name, group.size), n, dtype)
    assert error < (2e-8 if dtype == torch.float64 else 2e-4)


class BackwardDrift(GalileanScaling):
    """Broken: a boost carries its content the wrong way."""

    def act(self, field: Field, xi: Tensor) -> Field:
        moved = super().act(field, xi * xi.new_tensor([1.0, -1.0, 1.0]))
        change = 2 * xi[:, 1] * torch.exp(-2 * xi[:, 2])
        return moved.with_values(moved.values + change[:, None, None])


class CreepingShift(GalileanScaling):
    """Broken: every snapshot is shifted a little further."""

    def act(self, field: Field, xi: Tensor) -> Field:
        right = super().act
        rows = [right(field.at([j]), xi * (1 + 0.1 * j)).values for j in range(SNAPSHOTS)]
        return field.with_values(torch.cat(rows, dim=1))


class StaleClock(GalileanScaling):
    """Broken: a rescaling leaves the time between snapshots as it was."""

    def act(self, field: Field, xi: Tensor) -> Field:
        moved = super().act(field, xi)
        assert moved.box is not None and field.box is not None
        return replace(moved, box=moved.box._replace(step=field.box.step))


class GrowingScale(GalileanScaling):
    """Broken: a wider box has larger values instead of smaller ones."""

    def act(self, field: Field, xi: Tensor) -> Field:
        moved = super().act(field, xi)
        return moved.with_values(moved.values * torch.exp(4 * xi[:, 2])[:, None, None])


@pytest.mark.parametrize(
    ("broken", "name"),
    [(CreepingShift, "g2"), (BackwardDrift, "g3"), (StaleClock, "g4"), (GrowingScale, "g4")],
)
def test_the_solving_law_fails_for_a_broken_action(broken: type[Group], name: str) -> None:
    assert solving_law(broken(), KdV(), elements(name)) > 1e-2


def test_kuramoto_sivashinsky_has_no_scaling() -> None:
    assert solving_law(GalileanScaling(), KuramotoSivashinsky(), elements("g4")) > 1e-2


@pytest.mark.parametrize("group", [GalileanScaling(), Galilean(1)], ids=["scaling", "boosts"])
def test_windows_of_moved_trajectories_are_moved_windows(
    group: Group, dtype: torch.dtype, tolerance: float
) -> None:
    """Each trajectory has a window of its own, which sees the element as transported there."""
    field = solved(KdV(), smooth_states(64, dtype), BOX.to(dtype))
    xi, start = elements("all", group.size), torch.tensor([0, 1, 2])

    def window(values: Tensor, box: Box | None) -> Trajectories:
        assert box is not None
        return Trajectories(values, box).window(start, 3)

    moved = group.act(field, xi)
    early = window(field.values, field.box)
    terminal = group.transport(xi, start * BOX.step, BOX.lengths)
    short = Field(early.values, TYPE.at(range(3)), early.box)
    late, direct = group.act(short, terminal), window(moved.values, moved.box)
    assert late.box is not None
    assert float((late.values - direct.values).abs().max()) < 10 * tolerance
    assert torch.allclose(late.box.lengths, direct.box.lengths)
    standing = group.act(short, xi).values
    assert float((standing - direct.values).abs().max()) > 0.05
