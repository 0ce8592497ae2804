"""Solutions that are known exactly, to compare models and conventions with."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacefno.grid import from_spectrum, points, to_spectrum, wavenumbers


def burgers(initial: Tensor, nu: float, time: float) -> Tensor:
    """``u_t + u u_x = nu u_xx`` on the unit circle, from ``(B, n)`` without mean (Cole-Hopf).

    ``u(x, t)`` is the mean of ``(x - y) / t`` over y with the positive weights
    ``exp(-(x - y)^2 / (4 nu t) - U(y) / (2 nu))``, ``U' = u(y, 0)``: no digits cancel, so the
    steepest fronts are as exact as smooth fields.
    """
    n = initial.shape[-1]
    k = wavenumbers((n,))[0]
    rate = torch.where(k > 0, 2j * math.pi * k, 1.0)
    spectrum = torch.where(k > 0, to_spectrum(initial[:, None], 1) / rate, 0.0)
    potential = from_spectrum(spectrum, (n,))[:, 0]  # (B, n), periodic
    x = points((n,))[0]
    reach = torch.arange(-n, n + 1, dtype=torch.float64) / n  # y - x, a period either way
    index = (torch.arange(n)[:, None] + torch.arange(-n, n + 1)) % n
    assert len(x) == len(index)
    rows = []
    for row in potential:
        exponent = -(reach.square()) / (4 * nu * time) - row[index] / (2 * nu)
        weight = torch.softmax(exponent, dim=1)
        rows.append(-(weight * reach).sum(dim=1) / time)
    return torch.stack(rows)


def places(grid: tuple[int, ...], lengths: tuple[float, ...]) -> Tensor:
    """The grid points of a box in the units of the data, ``(dim, *grid)``."""
    box = torch.tensor(lengths, dtype=torch.float64).reshape(-1, *[1] * len(grid))
    return points(grid) * box


def taylor_green(
    grid: tuple[int, int],
    lengths: tuple[float, float],
    velocity: tuple[float, float],
    time: float,
    nu: float = 0.05,
) -> Tensor:
    """Velocity and pressure of decaying vortices carried by a uniform flow, ``(3, *grid)``.

    ``psi = cos(k_x x) cos(k_y y)`` in a box that need not be square: its vorticity is a multiple of
    it, so it only decays, with the rate ``nu (k_x^2 + k_y^2)``; seen from a frame in motion it
    drifts as well. Off the axes by (0.3, 1.1).
    """
    k_x, k_y = 2 * math.pi / lengths[0], 2 * math.pi / lengths[1]
    x, y = places(grid, lengths)
    x, y = k_x * (x - velocity[0] * time - 0.3), k_y * (y - velocity[1] * time - 1.1)
    decay = math.exp(-nu * (k_x**2 + k_y**2) * time)
    u = velocity[0] - decay * k_y * torch.cos(x) * torch.sin(y)
    v = velocity[1] + decay * k_x * torch.sin(x) * torch.cos(y)
    p = -(decay**2) / 4 * (k_y**2 * torch.cos(2 * x) + k_x**2 * torch.cos(2 * y))
    return torch.stack([u, v, p])
