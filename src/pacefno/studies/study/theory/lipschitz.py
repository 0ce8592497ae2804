"""How strongly an operator can answer to a change of its input, near one input: estimates of L_theta."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pacefno.studies.study.theory.terms import norm

Operator = Callable[[Tensor], Tensor]


def spectral_norm(operator: Operator, field: Tensor, iterations: int = 20, seed: int = 0) -> Tensor:
    """``|DG(a)|_2`` of each sample by power iteration on ``DG' DG``, ``(B,)``: from below, and converging.

    The largest answer to an infinitesimal change. It is no Lipschitz constant of a neighbourhood: the operator may be
    steeper a little further on.
    """
    direction = unit(_random_like(field, seed))
    gain = torch.zeros(len(field), dtype=field.dtype)
    for _ in range(iterations):
        answer = forward_derivative(operator, field, direction)
        gain = torch.maximum(gain, norm(answer))  # every iterate is a lower bound
        direction = unit(backward_derivative(operator, field, answer))
    return gain


def random_gain(operator: Operator, field: Tensor, directions: int = 8, seed: int = 0) -> Tensor:
    """The largest ``|DG(a) v|`` over random unit directions, ``(B,)``: what a change without a plan does."""
    gains = [norm(forward_derivative(operator, field, unit(_random_like(field, seed + i)))) for i in range(directions)]
    return torch.stack(gains).amax(dim=0)


@torch.no_grad()
def forward_derivative(operator: Operator, field: Tensor, direction: Tensor) -> Tensor:
    """``DG(a) v`` by forward mode."""
    answer: Tensor = torch.func.jvp(operator, (field,), (direction,))[1]
    return answer


def backward_derivative(operator: Operator, field: Tensor, answer: Tensor) -> Tensor:
    """``DG(a)' w`` by reverse mode."""
    with torch.enable_grad():
        leaf = field.detach().clone().requires_grad_()
        return torch.autograd.grad(operator(leaf), leaf, answer)[0]


def unit(field: Tensor) -> Tensor:
    size = norm(field).clamp_min(torch.finfo(field.dtype).tiny)
    return field / size.reshape(-1, *[1] * (field.ndim - 1))


def _random_like(field: Tensor, seed: int) -> Tensor:
    return torch.randn(field.shape, dtype=field.dtype, generator=torch.Generator().manual_seed(seed))
