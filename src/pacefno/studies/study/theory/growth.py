"""Refinement in theory: energy along its path, quadratic growth about the minimum, and the corollary's bound.

    J(xi) >= alpha dist(xi, Xi*)^2        |u(xi) - u| <= epsilon + K alpha^-1/2 J(xi)^1/2

Distances are measured in periods, so that shifts and angles count alike. The paper takes epsilon at the true frame and
so assumes that a self-consistent frame is one; here it is the error at the minimum that was found, whatever it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, final

import torch
from torch import Tensor

from pacefno.equations import Problem
from pacefno.frames import AdamRefiner, GaussNewton
from pacefno.frames.base import Energy
from pacefno.frames.refine import energy_of
from pacefno.pace import PACE
from pacefno.studies.study.theory.terms import canonical_pair, norm
from pacefno.symmetry import Group

SETTLED = 1e-8  # an energy that counts as zero: residuals of 1e-4 of a radian


class Path(NamedTuple):
    """Frames ``(S, B, size)`` and energies ``(S, B)`` after each number of steps."""

    steps: tuple[int, ...]
    xi: Tensor
    energy: Tensor


@final
@dataclass(frozen=True)
class Growth:
    """What was measured about each sample, ``(B,)``, and along its path, ``(S, B)``."""

    alpha: Tensor  # the largest alpha that quadratic growth allows on the probes
    slope: Tensor  # K: change of the prediction over distance of the frame, the largest on the probes
    at_minimum: Tensor  # the error with the frame of least energy
    settled: Tensor  # whether that energy is zero: the corollary assumes it
    path: Path
    distance: Tensor  # of the path from the minimum
    error: Tensor  # of the prediction along the path

    @property
    def bound(self) -> Tensor:
        """The corollary's right side along the path."""
        return self.at_minimum + self.slope * (self.path.energy / self.alpha).sqrt()


def refinement_path(
    refiner: GaussNewton | AdamRefiner, energy: Energy, field: Tensor, xi: Tensor, steps: tuple[int, ...]
) -> Path:
    """The frames that a refiner returns when stopped after so many steps; it is deterministic, so they are one path."""
    found = [replace(refiner, steps=count)(energy, field, xi) for count in steps]
    return Path(steps, torch.stack([one.xi for one in found]), torch.stack([one.energy_after for one in found]))


def measure_growth(
    model: PACE,
    problem: Problem,
    field: Tensor,
    target: Tensor,
    true: Tensor,
    refiner: GaussNewton | AdamRefiner,
    steps: tuple[int, ...],
    *,
    radius: float = 0.05,
    probes: int = 32,
    seed: int = 0,
) -> Growth:
    """Probe the energy within ``radius`` periods of its minimum, and refine from a frame displaced by that much.

    Displaced, because a frame that is self-consistent from the start has no path at all.
    """
    energy = model.frame.energy()
    with torch.no_grad():
        estimate = model.frame(field).xi
    best = GaussNewton(steps=30)(energy, field, estimate)
    scale = norm(canonical_pair(problem, field, target, true)[1])
    generator = torch.Generator().manual_seed(seed)
    at_best = _predict(model, field, best.xi)
    ratios, slopes = [], []
    for _ in range(probes):
        probe = displaced(model.group, best.xi, radius, generator)
        distance = periods_between(model.group, probe, best.xi)
        value = energy_of(energy.residual(field, probe)).detach()
        ratios.append(value / distance.square())
        slopes.append(norm(_predict(model, field, probe) - at_best) / scale / distance)
    start = displaced(model.group, estimate, radius, generator, at_least=0.5)
    path = refinement_path(refiner, energy, field, start, steps)
    return Growth(
        alpha=torch.stack(ratios).amin(dim=0),
        slope=torch.stack(slopes).amax(dim=0),
        at_minimum=norm(at_best - target) / scale,
        settled=best.energy_after < SETTLED,
        path=path,
        distance=torch.stack([periods_between(model.group, xi, best.xi) for xi in path.xi]),
        error=torch.stack([norm(_predict(model, field, xi) - target) / scale for xi in path.xi]),
    )


def displaced(group: Group, xi: Tensor, radius: float, generator: torch.Generator, *, at_least: float = 0.0) -> Tensor:
    """A frame in a random direction from each, between ``at_least * radius`` and ``radius`` periods away."""
    direction = torch.randn(len(xi), group.spatial, dtype=torch.float64, generator=generator)
    share = at_least + (1 - at_least) * torch.rand(len(xi), 1, dtype=torch.float64, generator=generator)
    step = radius * share * direction / direction.norm(dim=1, keepdim=True)
    moved = xi.clone()
    moved[:, : group.spatial] += (step * _periods(group, step)).to(xi.dtype)
    return group.wrap(moved)


def periods_between(group: Group, xi: Tensor, eta: Tensor) -> Tensor:
    """The distance of two frames to the nearest image, over the spatial coordinates, in periods; ``(B,)``."""
    difference = group.difference(xi, eta)[:, : group.spatial]
    return (difference / _periods(group, difference)).norm(dim=1)


def _periods(group: Group, like: Tensor) -> Tensor:
    return like.new_tensor(group.periods[: group.spatial])


@torch.no_grad()
def _predict(model: PACE, field: Tensor, xi: Tensor) -> Tensor:
    return model.at(field, xi)
