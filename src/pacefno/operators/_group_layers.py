"""Layers that commute with a point group: the turned spectral kernels, the shared pointwise maps,
into and out of features.

Features are regular representations: ``|G|`` copies of ``width`` channels, on which an element acts
by ``[g v]_h(x) = v_{g^-1 h}(g^-1 x)``. A linear map commutes with that exactly when its kernel
depends on one element only, ``K_{h h'}(k) = K_{h^-1 h'}(h^-1 k)``, so a layer holds ``|G|`` kernels
instead of ``|G|^2`` and turns them into place.

Layout: grid first as in :mod:`pacefno.operators.spectral`; channel ``(h, c)`` stands at ``h * width
+ c``.
"""

from __future__ import annotations

import math
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pacefno.grid import compute_dtype
from pacefno.groups.point_group import PointGroup, invariants
from pacefno.operators.spectral import band_shape, from_modes, to_modes

EPSILON = 1e-5  # under the root of a variance, so that constant features stay finite


def uniform(fan_in: int, *shape: int) -> nn.Parameter:
    """Kaiming-uniform weights, ``|w| <= 1 / sqrt(fan_in)``, as in G-FNO."""
    return nn.Parameter(torch.empty(*shape).uniform_(-1, 1) / math.sqrt(fan_in))


# --- the spectral layer ---------------------------------------------------------------------------


def kernel_table(modes: tuple[int, ...], group: PointGroup) -> Tensor:
    """Where ``K_{h^-1 h'}(h^-1 k)`` stands among the ``|G| prod(2 m_i - 1)`` own coefficients,
    ``(*band, h', h)``.
    """
    dim, half = len(modes), modes[-1]
    own = torch.arange(group.order * math.prod(2 * m - 1 for m in modes)).reshape(
        group.order, *(2 * m - 1 for m in modes)
    )
    turned = []
    for h in range(group.order):
        order, mirrored = group.moves(h)
        axes = [1 + axis for axis in (*order, *range(group.dim, dim))]
        kernel = (
            own.permute(0, *axes).flip([1 + axis for axis in mirrored]).narrow(dim, half - 1, half)
        )
        turned.append(
            kernel[group.quotients[h]].permute(*reversed(range(1, dim + 1)), 0)
        )  # (*band, h')
    return torch.stack(turned, dim=-1)


def turned_kernels(hartley: Tensor, table: Tensor) -> Tensor:
    """All kernels ``K_{h h'}(k) = K_{h^-1 h'}(h^-1 k)`` on the half band, ``(*band, |G| w, |G|, 2,
    w)``: a row is an input ``(h', w')``, a column an output ``h`` with real and imaginary part.

    ``hartley`` ``(|G|, *modes, w, w)`` are real numbers ``p(k)`` on the full band ``|k_i| < m_i``,
    with ``Re K(k) = (p(k) + p(-k)) / 2`` and ``Im K(k) = (p(-k) - p(k)) / 2``: every p belongs to
    one kernel that is real in space.
    """
    width, size = hartley.shape[-1], hartley.shape[0]
    half = hartley / 2
    mirrored = half.flip(list(range(1, hartley.ndim - 2)))
    own = torch.stack([half + mirrored, mirrored - half], dim=-2)  # (|G|, *modes, w', 2, w)
    # One pass brings every line (2, w) to its place, and one brings its derivative back.
    lines = width * table[..., None, :] + torch.arange(width, device=table.device)[:, None]
    kernels = own.reshape(-1, 2 * width).index_select(0, lines.flatten())
    return kernels.reshape(*table.shape[:-2], size * width, size, 2, width)


def mix_group_channels(z: Tensor, kernels: Tensor) -> Tensor:
    """:func:`mix_channels` for kernels ``(*band, |G| w, |G|, 2, w)``, whose real and imaginary
    parts stand beside each other for each element.
    """
    count, _, batch, channels = z.shape
    *_, size, _, width = kernels.shape
    products = z.reshape(count, 2 * batch, channels) @ kernels.reshape(count, channels, -1)
    by_real, by_imaginary = products.reshape(count, 2, batch, size, 2, width).unbind(4)
    re, im = by_imaginary.unbind(1)
    return (by_real + torch.stack([-im, re], dim=1)).flatten(-2)  # i (re + i im) = -im + i re


@final
class GroupSpectral(nn.Module):
    """``v -> M norm K norm v + b``: the spectral layer of G-FNO and the pointwise map that follows
    it.

    ``K`` has ``w^2 |G| prod(2 m_i - 1)`` real weights. ``M`` and the second norm (over space and
    group) act on the kept coefficients and not on the grid: the same numbers from far fewer of
    them. The norm removes the mean of the features, which then survives only in the skip path of
    the block.
    """

    table: Tensor
    multiplicity: Tensor

    def __init__(self, width: int, modes: tuple[int, ...], group: PointGroup, norm: bool) -> None:
        super().__init__()
        self.modes, self.group, self.norm = modes, group, norm
        self.weight = uniform(
            group.order * width, group.order, *(2 * m - 1 for m in modes), width, width
        )
        self.pointwise = GroupLinear(width, width, group)
        lead, *rest = band_shape(modes)
        self.constant = math.prod(rest) // 2  # where wavenumber 0 stands in the flattened band
        multiplicity = torch.full((lead, 2 * math.prod(rest)), 2.0)
        multiplicity[0] = (
            1  # wavenumber 0 of the halved axis has no mirror image outside the half band
        )
        self.register_buffer("multiplicity", multiplicity.reshape(1, -1), persistent=False)
        self.register_buffer("table", kernel_table(modes, group), persistent=False)

    def forward(self, v: Tensor) -> Tensor:
        dtype = compute_dtype(v.dtype)
        with torch.autocast(v.device.type, enabled=False):
            work = self._near_zero(v.to(dtype)) if self.norm else v.to(dtype)
            z = to_modes(work, self.modes)
            z = self._normalised(z, work) if self.norm else z
            z = mix_group_channels(z, turned_kernels(self.weight.to(dtype), self.table))
            z = self._normalised(z, None) if self.norm else z
            matrix, bias = self.pointwise.matrices()
            z = F.linear(z, matrix.to(dtype))
            z[self.constant, 0] += bias.to(dtype)  # a constant field is wavenumber 0
            return from_modes(z, self.modes, v.shape[:-2]).to(v.dtype)

    def _near_zero(self, v: Tensor) -> Tensor:
        """The features less a constant of their size, which the norm removes anyway.

        A transform rounds relative to the largest value. Where a mean is a hundred times the
        variation about it, that would cost the normalised features two of their seven digits.
        """
        first = v[(0,) * len(self.modes)].detach()  # (B, |G| w), at one point
        constant = (
            first.reshape(first.shape[0], self.group.order, -1)
            .mean(dim=1)
            .repeat(1, self.group.order)
        )
        return v - constant

    def _normalised(self, z: Tensor, v: Tensor | None) -> Tensor:
        """Coefficients without mean, over the standard deviation of ``v``, whose they are; None: of
        the band alone.
        """
        centred = z.reshape(*z.shape[:-1], self.group.order, -1).clone()  # (M, 2, B, |G|, w)
        mean = centred[self.constant, 0].mean(dim=1, keepdim=True)  # (B, 1, w)
        centred[self.constant, 0] -= mean
        variance = self._variance_of_band(centred) if v is None else self._variance_on_grid(v, mean)
        return (centred * (variance + EPSILON).rsqrt()).flatten(-2)

    def _variance_of_band(self, centred: Tensor) -> Tensor:
        """Parseval: the sum of squares of all wavenumbers, ``(B, 1, w)``."""
        power = self.multiplicity.to(centred.dtype) @ centred.square().reshape(
            self.multiplicity.numel(), -1
        )
        return power.reshape(centred.shape[2:]).mean(dim=1, keepdim=True)

    def _variance_on_grid(self, v: Tensor, mean: Tensor) -> Tensor:
        """``E (v - c)^2 - (E v - c)^2`` for the constant ``c = E v``: no digits are lost, and
        derivatives skip the mean.
        """
        c = mean.detach()
        squares = (v.reshape(-1, *mean.shape[:1], self.group.order, mean.shape[-1]) - c).square()
        power = (squares.new_ones(1, squares.shape[0]) / squares.shape[0]) @ squares.flatten(
            1
        )  # a product: faster than a mean
        return power.reshape(squares.shape[1:]).mean(dim=1, keepdim=True) - (mean - c).square()


# --- the pointwise maps ---------------------------------------------------------------------------


@final
class GroupLinear(nn.Module):
    """``v_h -> sum_h' W_{h^-1 h'} v_h' + b`` at every point: ``|G| w_in w_out + w_out`` weights."""

    quotients: Tensor

    def __init__(self, inputs: int, outputs: int, group: PointGroup) -> None:
        super().__init__()
        self.size = group.order
        fan_in = group.order * inputs
        self.weight = uniform(fan_in, group.order, outputs, inputs)
        self.bias = uniform(fan_in, outputs)
        self.register_buffer("quotients", torch.tensor(group.quotients), persistent=False)

    def matrices(self) -> tuple[Tensor, Tensor]:
        """The whole map ``(|G| w_out, |G| w_in)`` and its bias."""
        shared = self.weight.index_select(0, self.quotients.flatten())  # (h h', out, in)
        by_element = shared.reshape(self.size, self.size, *shared.shape[1:])
        return by_element.transpose(1, 2).flatten(2).flatten(0, 1), self.bias.repeat(self.size)

    def forward(self, v: Tensor) -> Tensor:
        return F.linear(v, *self.matrices())


@final
class Lifting(nn.Module):
    """``a -> v_h = W rho(h^-1) a + b``: every copy sees the field as its element would turn it
    back.
    """

    pulled_back: Tensor

    def __init__(self, rho: Tensor, width: int, group: PointGroup) -> None:
        super().__init__()
        channels = rho.shape[1]
        self.weight = uniform(channels, width, channels)
        self.bias = uniform(channels, width)
        self.register_buffer(
            "pulled_back", rho[group.inverses].to(self.weight.dtype), persistent=False
        )

    def forward(self, field: Tensor) -> Tensor:
        matrices = self.weight @ self.pulled_back
        return F.linear(field, matrices.flatten(0, 1), self.bias.repeat(len(matrices)))


@final
class Projection(nn.Module):
    """``v -> sum_h rho(h) W v_h + b``, with ``b`` among the channel vectors that every element
    keeps.
    """

    rho: Tensor
    basis: Tensor

    def __init__(self, inputs: int, rho: Tensor) -> None:
        super().__init__()
        fan_in = rho.shape[0] * inputs
        basis = invariants(rho)
        self.weight = uniform(fan_in, rho.shape[1], inputs)
        self.bias = uniform(fan_in, basis.shape[1]) if basis.shape[1] else None
        self.register_buffer("rho", rho.to(self.weight.dtype), persistent=False)
        self.register_buffer("basis", basis.to(self.weight.dtype), persistent=False)

    def matrices(self) -> tuple[Tensor, Tensor | None]:
        """The whole map ``(C', |G| w)`` and its bias, if the channels have one."""
        matrix = (self.rho @ self.weight).transpose(0, 1).flatten(1)
        return matrix, None if self.bias is None else self.basis @ self.bias

    def forward(self, v: Tensor) -> Tensor:
        return F.linear(v, *self.matrices())
