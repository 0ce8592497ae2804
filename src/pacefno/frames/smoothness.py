"""The energy of a torn field: a wrong rotation of a periodic field leaves seams, and seams are rough."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacefno.frames.base import Energy
from pacefno.grid import resample, spectral_weights, to_spectrum, wavenumbers
from pacefno.symmetry import Group
from pacefno.symmetry.moments import phase_position
from pacefno.symmetry.seams import high_pass

PHASE_POINTS = 32


def at_most(field: Tensor, points: int) -> Tensor:
    """The field on a grid of at most so many points a side."""
    return resample(field, [min(n, points) for n in field.shape[2:]])


class Smoothness(Energy):
    """Roughness of the pulled-back field, for periodic fields whose wrong rotation shows seams, and its phases.

    ``r = (k^2 / (k^2 + k0^2))^order F(C_xi^-1 a)(k)`` relative to the norm of the field: the share of its energy at scales
    finer than ``1/k0``. The higher the order, the less the field's own waves pull the minimum away from the true frame,
    and the nearer one has to start. A translation leaves all that alone where there is no seam, so the first-mode
    phases, which are zero on the slice, are residuals too. The last channel is the smoothest frame and shows seams best;
    the first one has the phases, for which a coarse grid is enough.
    """

    def __init__(self, group: Group, cutoff: float = 24.0, *, order: int = 2, phase_weight: float = 0.02) -> None:
        self.group = group
        self.cutoff = cutoff
        self.order = order
        self.phase_weight = phase_weight

    def residual(self, field: Tensor, xi: Tensor) -> Tensor:
        first = at_most(field[:, :1], PHASE_POINTS)
        phases = 2 * torch.sin(math.pi * phase_position(self.group.inverse(first, xi)[:, 0]))
        return torch.cat([self.roughness(field, xi), self.phase_weight * phases], dim=1)

    def roughness(self, field: Tensor, xi: Tensor) -> Tensor:
        """The residuals of smoothness alone, ``(B, m)``; the sum of their squares is a share of the energy."""
        pulled = self.group.inverse(field[:, -1:], xi)
        shape = tuple(pulled.shape[2:])
        spectrum = to_spectrum(pulled, 2)
        k_squared = wavenumbers(shape, dtype=pulled.dtype, device=pulled.device).square().sum(dim=0)
        weights = spectral_weights(shape, dtype=pulled.dtype, device=pulled.device).sqrt()
        norm = (spectrum * weights).abs().square().sum(dim=(1, 2, 3)).sqrt().clamp_min(torch.finfo(pulled.dtype).tiny)
        rough = spectrum * weights * high_pass(k_squared, self.cutoff, self.order) / norm[:, None, None, None]
        return torch.view_as_real(rough).flatten(1)
