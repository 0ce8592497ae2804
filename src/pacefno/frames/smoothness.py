"""The energy of a torn field: a wrong rotation of a periodic field leaves seams, and seams are rough."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacefno.frames.base import Energy
from pacefno.grid import FieldError, spectral_weights, wavenumbers
from pacefno.symmetry import Group
from pacefno.symmetry.moments import phase_position
from pacefno.symmetry.seams import high_pass


def low_rows(spectrum: Tensor, finest: int) -> Tensor:
    """The rows of wavenumbers up to ``finest``: in transform order they stand first and, the negative ones, last."""
    if 2 * finest + 1 >= spectrum.shape[-2]:
        return spectrum
    return torch.cat([spectrum[..., : finest + 1, :], spectrum[..., -finest:, :]], dim=-2)


class Smoothness(Energy):
    """Roughness of the pulled-back field, for periodic fields whose wrong rotation shows seams, and its phases.

    ``r = (k^2 / (k^2 + k0^2))^order F(C_xi^-1 a)(k)`` relative to the norm of the field: the share of its energy at scales
    finer than ``1/k0``. The higher the order, the less the field's own waves pull the minimum away from the true frame,
    and the nearer one has to start. A translation leaves all that alone where there is no seam, so the first-mode
    phases, which are zero on the slice, are residuals too. The last channel is the smoothest frame and shows seams best;
    the first one has the phases. Both are scalars: of a vector one would have to pull back more than these.
    """

    def __init__(
        self,
        group: Group,
        cutoff: float = 24.0,
        *,
        order: int = 2,
        phase_weight: float = 0.02,
        finest: int | None = None,
    ) -> None:
        if group.vectors:
            raise FieldError("the smoothness of a pulled-back field is that of scalar channels: this group turns vectors")
        self.group = group
        self.cutoff = cutoff
        self.order = order
        self.phase_weight = phase_weight
        self.finest = finest  # the largest wavenumber along an axis that counts: without the rest, one may start further off

    def residual(self, field: Tensor, xi: Tensor) -> Tensor:
        first, last = self.group.inverse(field[:, [0, -1]], xi).unbind(1)
        phases = 2 * torch.sin(math.pi * phase_position(first))
        return torch.cat([self.roughness(last), self.phase_weight * phases], dim=1)

    def roughness(self, pulled: Tensor) -> Tensor:
        """The residuals of a pulled-back ``(B, n, m)`` alone, ``(B, r)``; the sum of their squares is a share of its energy."""
        n, m = pulled.shape[1:]
        finest = self.finest or max(n, m)
        lines = torch.fft.rfft(pulled, dim=-1, norm="forward")[..., : finest + 1]
        spectrum = low_rows(torch.fft.fft(lines, dim=-2, norm="forward"), finest)
        weights = low_rows(self._weights(n, m, pulled)[..., : finest + 1], finest)
        norm = pulled.square().mean(dim=(1, 2)).clamp_min(torch.finfo(pulled.dtype).tiny).sqrt()
        return torch.view_as_real(spectrum * (weights / norm[:, None, None])).flatten(1)

    def _weights(self, n: int, m: int, like: Tensor) -> Tensor:
        """``(k^2 / (k^2 + k0^2))^order`` on the half spectrum, and how often each mode counts."""
        k_squared = wavenumbers((n, m), dtype=like.dtype, device=like.device).square().sum(dim=0)
        counts = spectral_weights((n, m), dtype=like.dtype, device=like.device)
        return high_pass(k_squared, self.cutoff, self.order) * counts.sqrt()
