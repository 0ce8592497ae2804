"""Training batches, derived statelessly from (seed, epoch): a resumed run draws what an uninterrupted one would have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pacefno.equations import Problem
from pacefno.equations.random_fields import generator_for


@dataclass(frozen=True)
class Batch:
    """Moved samples ``x+ = C_exp(D0) x``, ``y+ = C_exp(DT) y`` and the generators that moved them."""

    input: Tensor
    target: Tensor
    xi_0: Tensor
    xi_T: Tensor
    unmoved: Tensor  # y itself: the scale on which its error is measured


def perturb(problem: Problem, x: Tensor, y: Tensor, xi_0: Tensor) -> Batch:
    """Lines 2-3 of Algorithm 1: the same element moves the input, and its terminal image the target."""
    xi_T = problem.group.transport(xi_0, problem.horizon)
    return Batch(problem.group.act(x, xi_0), problem.group.act(y, xi_T), xi_0, xi_T, y)


def epoch_batches(
    problem: Problem,
    inputs: Tensor,
    targets: Tensor,
    *,
    seed: int,
    epoch: int,
    size: int,
    moved: bool,
    rank: int = 0,
    world: int = 1,
    device: torch.device | str = "cpu",
) -> Iterator[Batch]:
    """One pass over the samples in random order. Processes share each batch: rank r takes its r-th part of it."""
    generator = generator_for("epoch", seed, epoch)
    order = torch.randperm(len(inputs), generator=generator)
    low, high = [0.0] * problem.group.size, problem.train_range
    elements = problem.group.sample(low, high, len(inputs), generator).to(inputs.dtype)
    for start in range(0, len(order) - size + 1, size):
        own = share(size, rank, world)
        rows = slice(start + own.start, start + own.stop)
        chosen = order[rows]
        x, y = inputs[chosen].to(device), targets[chosen].to(device)
        xi_0 = elements[rows].to(device)
        if moved:
            yield perturb(problem, x, y, xi_0)
        else:
            yield Batch(x, y, torch.zeros_like(xi_0), torch.zeros_like(xi_0), y)


def share(size: int, rank: int, world: int) -> slice:
    """The part of a batch that one of several processes works on."""
    return slice(rank * size // world, (rank + 1) * size // world)


def batches_per_epoch(samples: int, size: int) -> int:
    """Whole batches only: the rest of a shuffled epoch waits for the next one."""
    return samples // size
