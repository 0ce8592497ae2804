"""J_TTA of one sample over two frame coordinates, the basins of its minima, and descent paths (paper, its landscape figure)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from pacefno.data import Samples
from pacefno.equations import Problem
from pacefno.frames import AdamRefiner, GaussNewton
from pacefno.frames.base import Energy
from pacefno.frames.refine import energy_of
from pacefno.metrics import relative_l2
from pacefno.pace import PACE
from pacefno.studies.cells import Cell
from pacefno.studies.study.theory.growth import Path, periods_between, refinement_path
from pacefno.symmetry import Group

CHUNK = 64  # frames whose energy is computed at once
SAME = 0.02  # periods: end points closer than this are one minimum
RARE = 0.02  # of the starts
NEWTON = GaussNewton(steps=20)
NEWTON_STEPS = (0, 1, 2, 3, 4, 6, 8)
ADAM_STEPS = (0, 1, 2, 3, 5, 8, 12, 20, 35, 50)


@final
@dataclass(frozen=True)
class Cut:
    """Two coordinates of a group over a period each (a velocity over its OOD range), by their place in xi."""

    group: Group
    first: int
    second: int
    low: tuple[float, float]
    high: tuple[float, float]

    def grid(self, base: Tensor, points: int) -> Tensor:
        """Frames ``(points^2, size)`` on the cut through ``base`` ``(size,)``, the first coordinate slowest."""
        lines = [
            low + (high - low) * (torch.arange(points, dtype=torch.float64) + 0.5) / points
            for low, high in zip(self.low, self.high, strict=True)
        ]
        a, b = torch.meshgrid(*lines, indexing="ij")
        xi = base.double().expand(points**2, -1).clone()
        xi[:, self.first], xi[:, self.second] = a.flatten(), b.flatten()
        return xi.to(base.dtype)

    def place(self, xi: Tensor) -> list[list[float]]:
        """Where frames ``(..., size)`` lie on the cut: pairs of numbers."""
        rows = self.group.wrap(xi.double()).reshape(-1, self.group.size)
        return [[float(row[self.first]), float(row[self.second])] for row in rows]


def cut_through(problem: Problem, coordinates: tuple[str, str] | None) -> Cut:
    """The cut along two named coordinates; by default the first two of the group."""
    group = problem.group
    chosen = coordinates or (group.coordinates[0], group.coordinates[min(1, group.size - 1)])
    for name in chosen:
        if name not in group.coordinates:
            raise ValueError(f"--coordinates: unknown {name!r}, expected two of {', '.join(group.coordinates)}")
    if chosen[0] == chosen[1]:
        raise ValueError(f"--coordinates: expected two different ones of {', '.join(group.coordinates)}, got {chosen[0]} twice")
    places = [group.coordinates.index(name) for name in chosen]
    half = [problem.ood_high[i] if math.isinf(group.periods[i]) else group.periods[i] / 2 for i in places]
    return Cut(group, places[0], places[1], (-half[0], -half[1]), (half[0], half[1]))


def measure(model: PACE, problem: Problem, cut: Cut, sample: Samples, adam: AdamRefiner, *, points: int, starts: int) -> Cell:
    """Everything about the landscape of one sample: energies, minima with the share of starts that reach each, paths."""
    energy = model.frame.energy()
    field, true = sample.input, sample.generators
    assert true is not None
    with torch.no_grad():
        estimate = model.frame_of(field).xi
    grid = cut.grid(estimate[0], points)
    begin = cut.grid(estimate[0], starts)
    ends, values = descend(energy, field, begin)
    minima, labels = basins(model.group, ends, values)
    chosen = begin[_spread(starts)]
    return {
        "coordinates": [cut.group.coordinates[cut.first], cut.group.coordinates[cut.second]],
        "low": list(cut.low),
        "high": list(cut.high),
        "energy": energies(energy, field, grid).reshape(points, points).tolist(),
        "true": cut.place(true)[0],
        "estimate": cut.place(estimate)[0],
        "estimate_energy": float(energies(energy, field, estimate)[0]),
        "starts": cut.place(begin),
        "labels": labels.tolist(),
        "minima": [_minimum(model, problem, cut, sample, ends[i], values[i], labels, n) for n, i in enumerate(minima)],
        "paths": {
            "gauss-newton": _path(cut, refinement_path(NEWTON, energy, _repeat(field, chosen), chosen, NEWTON_STEPS)),
            "adam": _path(cut, refinement_path(adam, energy, _repeat(field, chosen), chosen, ADAM_STEPS)),
            "from the estimate": _path(cut, refinement_path(NEWTON, energy, field, estimate, NEWTON_STEPS)),
        },
    }


@torch.no_grad()
def energies(energy: Energy, field: Tensor, xi: Tensor) -> Tensor:
    """The energy of one sample ``(1, C, *grid)`` at many frames, ``(len(xi),)``."""
    return torch.cat([energy_of(energy.residual(_repeat(field, part), part)) for part in torch.split(xi, CHUNK)])


def descend(energy: Energy, field: Tensor, xi: Tensor) -> tuple[Tensor, Tensor]:
    """Where Gauss-Newton ends from each start, and the energy there."""
    found = [NEWTON(energy, _repeat(field, part), part) for part in torch.split(xi, CHUNK)]
    return torch.cat([one.xi for one in found]), torch.cat([one.energy_after for one in found])


def basins(group: Group, ends: Tensor, values: Tensor) -> tuple[list[int], Tensor]:
    """The end points that are minima, deepest first, and for each start the one that it reached (-1: none of them).

    End points that lie together are one minimum. One that few starts share was not reached but stopped at; the deepest
    counts always.
    """
    labels = torch.full((len(ends),), -1)
    minima: list[int] = []
    open_ = torch.isfinite(values)
    for i in values.argsort().tolist():
        if not open_[i]:
            continue
        near = open_ & (periods_between(group, ends, ends[i].expand_as(ends)) < SAME)
        open_ &= ~near
        if not minima or int(near.sum()) >= max(2, RARE * len(ends)):
            labels[near] = len(minima)
            minima.append(i)
    return minima, labels


def _minimum(
    model: PACE, problem: Problem, cut: Cut, sample: Samples, xi: Tensor, value: Tensor, labels: Tensor, number: int
) -> Cell:
    """One minimum: where it is, how many starts reach it, how far the true frame is, and the error with it."""
    assert sample.generators is not None
    with torch.no_grad():
        prediction = model.at(sample.input, xi[None])
    terminal = problem.group.transport(sample.generators, problem.horizon)
    back = problem.group.inverse(prediction, terminal), problem.group.inverse(sample.target, terminal)
    return {
        "place": cut.place(xi)[0],
        "xi": xi.tolist(),
        "energy": float(value),
        "share": float((labels == number).double().mean()),
        "from_true": float(periods_between(problem.group, xi[None].double(), sample.generators)[0]),
        "error": float(relative_l2(*back, per_channel=problem.per_channel)[0]),
    }


def _path(cut: Cut, path: Path) -> Cell:
    """Places ``(paths, steps, 2)`` and energies ``(paths, steps)``."""
    paths = path.xi.transpose(0, 1)
    return {"places": [cut.place(one) for one in paths], "energy": path.energy.T.tolist(), "steps": list(path.steps)}


def _spread(starts: int) -> Tensor:
    """A few starts, two on each side of the middle, of a square of them."""
    line = torch.tensor([starts // 6, starts // 2, (5 * starts) // 6])
    return (line[:, None] * starts + line[None, :]).flatten()


def _repeat(field: Tensor, xi: Tensor) -> Tensor:
    return field.expand(len(xi), *field.shape[1:])
