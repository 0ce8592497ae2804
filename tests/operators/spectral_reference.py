"""The spectral convolution by FFTs and complex numbers, which the fast one is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def spectral_convolution_fft(v: Tensor, weight: Tensor, modes: Sequence[int]) -> Tensor:
    """``K v`` of a grid-first field: transform, multiply the band by weights, transform back."""
    grid, dim = v.shape[:-2], len(modes)
    # rfftn halves the axis named last: the first of the grid-first layout
    axes = tuple(reversed(range(dim)))
    lines = [torch.arange(modes[-1])]
    for n, m in zip(grid[1:], reversed(modes[:-1]), strict=True):
        lines.append(torch.arange(1 - m, m) % n)
    band = torch.meshgrid(*lines, indexing="ij")
    spectrum = torch.fft.rfftn(v, dim=axes, norm="forward")
    real, imaginary = weight.unbind(-2)
    mixed = torch.einsum("...bi,...io->...bo", spectrum[band], torch.complex(real, imaginary))
    out = spectrum.new_zeros(*spectrum.shape[:-1], weight.shape[-1]).index_put(band, mixed)
    field: Tensor = torch.fft.irfftn(out, s=tuple(reversed(grid)), dim=axes, norm="forward")
    return field
