"""The frame of least energy: a search from many starts, as LieLAC makes it at inference."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from pacefno.frames import AdamRefiner, Estimate, Frame, GaussNewton, Refinement
from pacefno.grid import compute_dtype
from pacefno.studies.study.lielac.energy import InputEnergy
from pacefno.symmetry import Group

STARTS = {1: 8, 2: 4, 3: 4}  # per periodic coordinate, by how many of them there are: 8, 16 and 64 restarts
NEWTON, ADAM = GaussNewton(steps=20), AdamRefiner(steps=50, rate=0.05)


class EnergyFrame(Frame):
    """``g^(a) in argmin_g E(g^-1 a)``: LieLAC's canonicaliser. Its confidence says how ordinary the canonical field looks."""

    def __init__(self, group: Group, energy: InputEnergy, refiner: GaussNewton | AdamRefiner = NEWTON) -> None:
        super().__init__()
        self.group = group
        self.inputs = energy
        self.refiner = refiner

    @torch.no_grad()
    def forward(self, field: Tensor) -> Estimate:
        found = search(self.inputs, self.group, field.to(compute_dtype(field.dtype)), self.refiner)
        expected = self._degrees() / 2  # of the energy of a field from the training distribution
        return Estimate(found.xi, expected / (expected + found.energy_after))

    def _degrees(self) -> float:
        features = self.inputs.features
        return float(features.channels * (1 + 2 * int(features.complex.sum())))


def search(energy: InputEnergy, group: Group, field: Tensor, refiner: GaussNewton | AdamRefiner) -> Refinement:
    """Refine from a grid of starts over the periodic coordinates and keep the lowest energy; evaluations count per sample.

    Velocities start at what the field says, or at zero where they are unknowns of the search.
    """
    coarse = energy.features.coarse(field)
    starts = start_grid(group).to(coarse)  # (S, spatial)
    measured = group.kinematic(coarse)
    velocity = torch.zeros_like(measured) if energy.group.spatial == group.size else measured
    count, batch = len(starts), len(field)
    xi = torch.cat([starts.repeat_interleave(batch, dim=0), velocity.repeat(count, 1)], dim=1)  # (S * B, size)
    found = refiner(energy, coarse.repeat(count, *[1] * (coarse.ndim - 1)), xi)
    after = found.energy_after.reshape(count, batch)
    best = torch.where(torch.isfinite(after), after, math.inf).argmin(dim=0)  # what is not finite never wins
    rows = best * batch + torch.arange(batch, device=best.device)
    return Refinement(
        group.wrap(found.xi[rows]), found.energy_before[rows], found.energy_after[rows], count * found.evaluations
    )


def start_grid(group: Group) -> Tensor:
    """Starts ``(restarts, spatial)`` on an even grid over the periodic coordinates."""
    count = STARTS[group.spatial]
    lines = [[period * (i / count - 0.5) for i in range(count)] for period in group.periods[: group.spatial]]
    assert all(math.isfinite(value) for line in lines for value in line)
    return torch.tensor(list(itertools.product(*lines)), dtype=torch.float64)
