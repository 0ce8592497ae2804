"""Random initial states; a draw depends on its seed alone, never on the grid or the batch."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from pacefno.grid import from_spectrum, points, resample, wavenumbers


def generator_for(*key: int | str) -> torch.Generator:
    """A generator seeded by its key, e.g. (seed, split, index): the same key gives the same draws,
    on any machine.
    """
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@final
@dataclass(frozen=True)
class Law:
    """A random law of initial states: a text that tells it from others, and one draw of it.

    The text is stored with a dataset, so change it whenever the draws change. ``draw`` takes a
    generator and a grid and returns a state ``(C, *grid)`` in float64.
    """

    text: str
    draw: Callable[[torch.Generator, tuple[int, ...]], Tensor]


def gaussian_field(
    shape: Sequence[int],
    generator: torch.Generator,
    *,
    tau: float,
    gamma: float,
    sigma: float = 1.0,
    cutoff: int,
) -> Tensor:
    """A zero-mean draw of ``N(0, sigma^2 (-Lap + tau^2)^-gamma)`` on the unit torus, modes ``|k| <=
    cutoff`` per axis.
    """
    small = (2 * cutoff + 1,) * len(shape)
    white = torch.randn(small, dtype=torch.float64, generator=generator)
    spectrum = torch.fft.rfftn(white, norm="ortho")
    kappa2 = (2 * math.pi) ** 2 * (wavenumbers(small) ** 2).sum(dim=0)
    spectrum = spectrum * sigma * (kappa2 + tau**2) ** (-gamma / 2)
    spectrum[(0,) * len(shape)] = 0
    return resample(from_spectrum(spectrum, small), shape)


def scale_to_rms(field: Tensor, rms: float) -> Tensor:
    """The field times the constant that gives it this root mean square."""
    return field * (rms / field.square().mean().sqrt())


def compact_vorticity(field: Tensor, radius: float, rms: float) -> Tensor:
    """A vorticity field confined to ``exp(-(r/radius)^4)`` about the centre, without net
    circulation.

    ``rms`` is taken over the window, so that the strength of the flow does not depend on the
    radius.
    """
    r = (points(field.shape) - 0.5).square().sum(dim=0).sqrt()
    window = torch.exp(-((r / radius) ** 4))
    inside = field * window
    inside = inside - window * (inside.sum() / window.sum())
    level = (inside.square().sum() / window.square().sum()).sqrt()
    return inside * (rms / level)
