"""An equation with its symmetry broken a little: a weak steady force that knows where it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pacefno.data import Dataset, Samples
from pacefno.equations import Equation, Problem, SolverError
from pacefno.grid import coarsen, points, to_spectrum

HALVINGS = 4  # of the solver's step, at most


class Forced(Equation):
    """``u_t = L u + N(u) + s sqrt(2) sin(2 pi x)`` in the last channel: neither shifts nor rotations commute with it."""

    def __init__(self, inner: Equation, strength: float) -> None:
        self.inner = inner
        self.strength = strength
        self.name = f"{inner.name}, forced"
        self.dim = inner.dim
        self.channels = inner.channels
        self.group = inner.group
        self.point_group = "trivial"
        self.channel_representation = inner.channel_representation
        self.cut = inner.cut

    @property
    def parameters(self) -> dict[str, float]:
        return {**self.inner.parameters, "forcing": self.strength}

    def linear(self, kappa: Tensor) -> Tensor:
        return self.inner.linear(kappa)

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        inner = self.inner.nonlinear(kappa, shape)
        wave = math.sqrt(2) * torch.sin(2 * math.pi * points(shape, dtype=kappa.dtype, device=kappa.device)[0])
        force = torch.zeros(1, len(self.channels), *shape, dtype=kappa.dtype, device=kappa.device)
        force[0, -1] = self.strength * wave
        spectrum_of_force = to_spectrum(force, self.dim)

        def terms(spectrum: Tensor) -> Tensor:
            return inner(spectrum) + spectrum_of_force

        return terms

    def invalid(self, field: Tensor) -> Tensor:
        return self.inner.invalid(field)


def forced_samples(problem: Problem, dataset: Dataset, moved: Samples, level: float) -> Samples:
    """The moved test samples, solved again with a force that alone would change the last channel by ``level`` times its rms.

    That is its effect over the whole time, from the initial state to the last target. The inputs of several frames feel it too.
    """
    recipe = dataset.recipe
    assert moved.generators is not None
    states = torch.stack([problem.initial_state(recipe.seed, "test", i)[0] for i in range(len(moved))])
    duration = problem.times[-1]
    last = states[:, -1].flatten(1)
    size = float((last - last.mean(dim=1, keepdim=True)).square().mean().sqrt())
    forced = replace(problem, equation=Forced(problem.equation, level * size / duration))
    initial = problem.group.act(states, moved.generators).to(getattr(torch, problem.precision))
    inputs, targets = _solve(forced, initial)
    stride = recipe.solver_grid[0] // recipe.ood_grid[0]
    return Samples(coarsen(inputs, stride).float(), coarsen(targets, stride).float(), moved.generators)


def _solve(problem: Problem, initial: Tensor) -> tuple[Tensor, Tensor]:
    """Solve with the problem's step, or with a half of it as often as needed: a boost carries content faster over the grid."""
    for _ in range(HALVINGS):
        try:
            return problem.solve(initial)
        except SolverError:
            problem = replace(problem, step=problem.step / 2)
    return problem.solve(initial)
