"""Spectral convolution with truncated discrete Fourier transforms written as thin real matrix
products.

``(K v)(x) = sum_k R_k v_hat(k) exp(2 pi i k x)`` over a band of low wavenumbers (the kernel
integral of the FNO paper). An FFT computes every wavenumber and then throws most of them away. With
20 of 513 kept, multiplying by an ``n x 2m`` matrix of cosines and sines is cheaper, and neither
parameters nor activations are ever complex.

Layout: *grid first*, ``(n_d, ..., n_1, B, C)``. The last axis of the field stands first because it
is the one halved, as in ``rfftn``; every transform is then one matrix product on a view, without a
single copy.

Band: ``0 .. m-1`` on the halved axis and ``-(m-1) .. m-1`` on the others. The classic FNO keeps
``-m .. m-1`` there: it holds ``-m`` without its mirror image, so the layer prefers a direction.
Ours is symmetric under reflections.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pacefno.grid import FieldError, Kept, compute_dtype

# --- the band -------------------------------------------------------------------------------------


def band_shape(modes: Sequence[int]) -> tuple[int, ...]:
    """How many wavenumbers are kept on each axis, in grid-first order: ``(m_d, 2 m_{d-1} - 1, ...,
    2 m_1 - 1)``.
    """
    *full, half = modes
    return (half, *(2 * m - 1 for m in reversed(full)))


def check_resolution(grid: Sequence[int], modes: Sequence[int]) -> None:
    """Refuse a grid that cannot hold the band: wavenumber ``m - 1`` needs ``2 m - 1`` points."""
    needed = tuple(2 * m - 1 for m in modes)
    if any(n < least for n, least in zip(grid, needed, strict=True)):
        raise FieldError(
            f"grid: modes {tuple(modes)} need at least {needed} points, got {tuple(grid)}: "
            "resample the field to a finer grid (pacefno.grid.resample) or build the operator with "
            "fewer modes"
        )


# --- the matrices ---------------------------------------------------------------------------------


def _angles(n: int, wavenumbers: Tensor) -> Tensor:
    """``2 pi k j / n`` with the integer product reduced first, so that large ``k j`` cost no
    digits.
    """
    turns = torch.outer(wavenumbers, torch.arange(n)) % n
    return turns.double() * (2 * math.pi) / n  # n may be a symbol, a quotient of it may not


def _half_pair(n: int, m: int) -> tuple[Tensor, Tensor]:
    """Real field to (re, im) of wavenumbers ``0 .. m-1``, and back; negative wavenumbers enter as a
    factor 2.
    """
    angle = _angles(n, torch.arange(m))
    rows = torch.stack([angle.cos(), -angle.sin()], dim=1).reshape(2 * m, n)
    twice = torch.full((m, 1), 2.0, dtype=torch.float64)
    twice[0] = 1.0
    return rows / n, (rows * twice.repeat_interleave(2, dim=0)).T


def _full_pair(n: int, m: int) -> tuple[Tensor, Tensor]:
    """Complex line as stacked (re, im) to (re, im) of wavenumbers ``-(m-1) .. m-1``, and back."""
    angle = _angles(n, torch.arange(1 - m, m))
    cos, sin = angle.cos(), angle.sin()
    real, imaginary = torch.stack([cos, sin], dim=1), torch.stack([-sin, cos], dim=1)
    rows = torch.stack([real, imaginary], dim=1).reshape(
        2 * (2 * m - 1), 2 * n
    )  # (k, re/im) x (re/im, x)
    return rows / n, rows.T


@Kept
def dft_pair(
    n: int, m: int, half: bool, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, ...]:
    """The forward-normalised transform of one axis and its inverse, computed in float64."""
    forward, backward = _half_pair(n, m) if half else _full_pair(n, m)
    return forward.to(device, dtype).contiguous(), backward.to(device, dtype).contiguous()


# --- the convolution ------------------------------------------------------------------------------


def to_modes(v: Tensor, modes: Sequence[int]) -> Tensor:
    """The kept Fourier coefficients of a grid-first field, ``(n_d, ..., n_1, B, C) -> (M, 2, B,
    C)``.
    """
    *grid, batch, channels = v.shape
    forward, _ = dft_pair(grid[0], modes[-1], True, v.dtype, v.device)
    z = forward @ v.reshape(grid[0], -1)
    lead = modes[-1]
    for n, m in zip(grid[1:], reversed(modes[:-1]), strict=True):
        forward, _ = dft_pair(n, m, False, v.dtype, v.device)
        z = forward @ z.reshape(lead, 2 * n, -1)  # (lead, 2 n, rest) -> (lead, 2 (2m-1), rest)
        lead *= 2 * m - 1
    return z.reshape(lead, 2, batch, channels)


def mix_channels(z: Tensor, weight: Tensor) -> Tensor:
    """The complex products ``R_k z_k`` in real arithmetic, ``(M, 2, B, C) x (*band, C, 2, C') ->
    (M, 2, B, C')``.

    One batched product of (re, im) rows with (Re R | Im R) columns gives all four real products.
    Forward plus backward it is faster than four or three separate products in two dimensions, and
    level with four in one.
    """
    count, _, batch, channels = z.shape
    products = z.reshape(count, 2 * batch, channels) @ weight.reshape(count, channels, -1)
    by_real, by_imaginary = products.reshape(count, 2, batch, 2, -1).unbind(3)
    re, im = by_imaginary.unbind(1)
    return by_real + torch.stack([-im, re], dim=1)  # i (re + i im) = -im + i re


def from_modes(
    z: Tensor, modes: Sequence[int], grid: Sequence[int], base: Tensor | None = None
) -> Tensor:
    """The grid-first field with coefficients ``(M, 2, B, C)``, added to ``base`` in the last
    product.
    """
    lead, batch_and_channels = z.shape[0], z.shape[2:]
    for n, m in zip(reversed(grid[1:]), modes[:-1], strict=True):
        lead //= 2 * m - 1
        _, backward = dft_pair(n, m, False, z.dtype, z.device)
        z = backward @ z.reshape(lead, 2 * (2 * m - 1), -1)
    _, backward = dft_pair(grid[0], modes[-1], True, z.dtype, z.device)
    z = z.reshape(2 * lead, -1)
    field = backward @ z if base is None else torch.addmm(base.reshape(grid[0], -1), backward, z)
    return field.reshape(*grid, *batch_and_channels)


def spectral_convolution(v: Tensor, weight: Tensor, modes: Sequence[int], base: Tensor) -> Tensor:
    """``base + K v`` for grid-first ``v``: transform, multiply by ``R_k``, transform back (FNO,
    kernel integral).

    Half-precision fields are transformed in float32 and returned in their own dtype; autocast never
    gets in.
    """
    dtype = compute_dtype(v.dtype)
    with torch.autocast(v.device.type, enabled=False):
        z = mix_channels(to_modes(v.to(dtype), modes), weight.to(dtype))
        return from_modes(z, modes, v.shape[:-2], base.to(dtype)).to(v.dtype)
