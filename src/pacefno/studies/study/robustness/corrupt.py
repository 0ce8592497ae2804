"""Inputs as instruments give them: noisy, or with points missing that are filled in."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pacefno.equations.random_fields import generator_for
from pacefno.grid import band_limit

SEED = "robustness"
ROOM = 0.5  # unknown modes per known point: a fit with as many unknowns as data would follow the noise
ITERATIONS = 60
SOLVED = 1e-16  # share of the square of the residual


def add_noise(field: Tensor, level: float) -> Tensor:
    """White noise of ``level`` times the rms of each channel's variation, sample by sample and always the same."""
    flat = field.flatten(2)
    size = (flat - flat.mean(dim=2, keepdim=True)).square().mean(dim=2).sqrt()
    noise = torch.stack(
        [
            torch.randn(field.shape[1:], generator=generator_for(SEED, "noise", i), dtype=torch.float64)
            for i in range(len(field))
        ]
    )
    return field + level * size.reshape(*size.shape, *[1] * (field.ndim - 2)) * noise.to(field.dtype)


def known_points(field: Tensor, share: float) -> Tensor:
    """Which points remain when a random ``share`` of them is missing, ``(B, 1, *grid)``: one mask for all channels."""
    grid = tuple(field.shape[2:])
    rows = [torch.rand(grid, generator=generator_for(SEED, "mask", i), dtype=torch.float64) for i in range(len(field))]
    return (torch.stack(rows) >= share)[:, None]


def fill(field: Tensor, known: Tensor, iterations: int = ITERATIONS) -> Tensor:
    """The missing points from the smooth field that fits the known ones best: ``min |M (u - a)|`` over band-limited u.

    Conjugate gradients on ``P M P u = P M a``, with P the projection on modes up to a band that the known points can
    determine and M the mask; what is known stays as it is.
    """
    dim = field.ndim - 2
    top = band_of(known, dim)
    mask, values = known.double(), field.double()
    mean = (values * mask).flatten(2).sum(dim=2) / mask.flatten(2).sum(dim=2).clamp_min(1)
    centre = mean.reshape(*mean.shape, *[1] * dim)

    def normal(u: Tensor) -> Tensor:
        return band_limit(mask * u, dim, top)

    fitted = conjugate_gradients(normal, normal(values - centre), iterations)
    return torch.where(known, field, (centre + fitted).to(field.dtype))


def band_of(known: Tensor, dim: int) -> int:
    """The largest wavenumber per axis of which ``ROOM`` times the known points can determine all modes."""
    count = float(known.flatten(1).sum(dim=1).min())
    most = (min(known.shape[2:]) - 1) // 2
    return max(1, min(most, int(((ROOM * count) ** (1 / dim) - 1) / 2)))


def conjugate_gradients(normal: Callable[[Tensor], Tensor], right: Tensor, iterations: int) -> Tensor:
    """Solve ``A u = b`` for a symmetric ``A >= 0``, each sample and channel on its own."""
    u = torch.zeros_like(right)
    residual = direction = right
    power = first = _dot(residual, residual)
    for _ in range(iterations):
        open_ = power > SOLVED * first  # what is solved rests: round-off would drive it away again
        image = normal(direction)
        step = torch.where(open_, power / _dot(direction, image), 0.0)
        u = u + step * direction
        residual = residual - step * image
        new = _dot(residual, residual)
        direction = residual + torch.where(open_, new / power, 0.0) * direction
        power = new
    return u


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).flatten(2).sum(dim=2).reshape(*a.shape[:2], *[1] * (a.ndim - 2))
