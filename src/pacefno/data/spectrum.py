"""How the energy of fields is spread over wavenumbers."""

from __future__ import annotations

import torch
from torch import Tensor

from pacefno.grid import check_field, spectral_weights, to_spectrum, wavenumbers


def energy_spectrum(fields: Tensor) -> tuple[Tensor, Tensor]:
    """``E(k) = 1/2 sum over k - 1/2 <= |k'| < k + 1/2 of |u_k'|^2``, averaged over samples: ``(K,)`` and ``(C, K)``.

    Summed over k it is half the mean square of each channel, up to the corners beyond the largest full shell, which are
    left out. Computed in float64.
    """
    check_field(fields, name="fields of a spectrum")
    shape = tuple(fields.shape[2:])
    top = min(shape) // 2
    shell = wavenumbers(shape).square().sum(dim=0).sqrt().round().long().flatten()  # (modes,)
    inside = shell <= top
    weights = spectral_weights(shape, dtype=torch.float64).expand(*shape[:-1], shape[-1] // 2 + 1).flatten()
    energy = torch.zeros(fields.shape[1], top + 1, dtype=torch.float64)
    for sample in fields:
        power = to_spectrum(sample.double(), len(shape)).abs().square().flatten(1) * weights  # (C, modes)
        energy.index_add_(1, shell[inside], 0.5 * power[:, inside].cpu())
    return torch.arange(top + 1, dtype=torch.float64), energy / len(fields)
