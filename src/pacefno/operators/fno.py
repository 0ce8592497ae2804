"""The Fourier neural operator in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pacefno.grid import FieldError, check_field, points
from pacefno.operators.spectral import band_shape, check_resolution, spectral_convolution
from pacefno.registry import register

# The projection widens every point to `head` channels. On a CPU that is the largest tensor of the
# network: beyond 32 MB the allocator returns it to the system after each step and pays for every
# page again, and GELU runs out of cache. In pieces of 2 MB (float32) a training step on 64 x 64
# points takes a quarter less time; on small grids the same.
HEAD_ENTRIES = 2**19


@final
class FourierLayer(nn.Module):
    """``v -> W v + b + K v`` on grid-first fields, with real weights ``(*band, C_in, 2, C_out)``
    for ``K``.
    """

    def __init__(self, channels: int, modes: tuple[int, ...]) -> None:
        super().__init__()
        self.modes = modes
        self.pointwise = nn.Linear(channels, channels)
        scale = 1 / (channels * channels)
        self.weight = nn.Parameter(scale * torch.rand(*band_shape(modes), channels, 2, channels))

    def forward(self, v: Tensor) -> Tensor:
        return spectral_convolution(v, self.weight, self.modes, base=self.pointwise(v))


@register("operator", "fno")
@final
class FNO(nn.Module):
    """Fourier neural operator, ``(B, C, *grid) -> (B, C', *grid)`` on any grid that holds its
    modes.

    ``v_0 = P u``, ``v_{l+1} = gelu(W_l v_l + b_l + K_l v_l)`` without the activation after the last
    layer, then ``Q_2 gelu(Q_1 v_L)``; the backbone of every experiment in the paper. ``modes``
    counts wavenumbers from zero: each axis keeps ``|k| <= modes - 1``.

    Many equations have nonlinear parts that are products, which gelu learns slowly. With
    ``activation="products"`` it acts on half of the channels of a layer only; the others are
    products of pairs of channels, and one of each pair as it is. With ``activation="polynomial"``
    these take the place of every gelu.

    ``positions=None`` commutes with every shift by whole cells; ``positions="grid"`` appends the
    coordinates ``i/n`` as channels, as the paper does, and gives that up.
    """

    def __init__(
        self,
        dim: int,
        in_channels: int,
        out_channels: int,
        width: int,
        modes: int | Sequence[int],
        layers: int = 4,
        positions: Literal["grid"] | None = None,
        head: int = 128,
        activation: Literal["gelu", "products", "polynomial"] = "gelu",
    ) -> None:
        super().__init__()
        check_sizes(dim, in_channels, out_channels, width, layers, head)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation: expected {', '.join(ACTIVATIONS)}, got {activation!r}")
        if activation != "gelu" and (width % 4 or head % 4):
            raise ValueError(f"width, head: products need multiples of 4, got {width} and {head}")
        if positions not in (None, "grid"):
            raise ValueError(f"positions: expected None or 'grid', got {positions!r}")
        self.dim = dim
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.modes = modes_per_axis(modes, dim)
        self.positions = positions
        self.activate, self.activate_head = ACTIVATIONS[activation]
        self.lifting = nn.Linear(in_channels + (dim if positions == "grid" else 0), width)
        self.layers = nn.ModuleList(FourierLayer(width, self.modes) for _ in range(layers))
        self.widen = nn.Linear(width, head)
        self.project = nn.Linear(head, out_channels)

    def forward(self, field: Tensor) -> Tensor:
        weight = self.lifting.weight
        check_input(field, self.in_channels, self.modes, weight, training=self.training)
        v = self.lifting(to_grid_first(self._with_positions(field)))
        for i, layer in enumerate(self.layers):
            v = layer(self.activate(v) if i else v)
        widen = self.widen.weight, self.widen.bias
        project = self.project.weight, self.project.bias
        made = project_points(v, widen, project, self.activate_head)
        return from_grid_first(made).to(field.dtype)

    def _with_positions(self, field: Tensor) -> Tensor:
        if self.positions is None:
            return field
        coordinates = points(field.shape[2:], dtype=field.dtype, device=field.device)
        return torch.cat([field, coordinates.expand(field.shape[0], *coordinates.shape)], dim=1)


def products(v: Tensor) -> Tensor:
    """``(gelu(a), b c, b)`` of channels ``(a, b, c)``: half, a quarter and a quarter of them."""
    a, others = v.chunk(2, dim=-1)
    return torch.cat([F.gelu(a), pairs(others)], dim=-1)


def pairs(v: Tensor) -> Tensor:
    """``(b c, b)`` of channels ``(b, c)``, each half of them."""
    b, c = v.chunk(2, dim=-1)
    return torch.cat([b * c, b], dim=-1)


Pointwise = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, tuple[Pointwise, Pointwise]] = {  # of the layers, and of the head
    "gelu": (F.gelu, F.gelu),
    "products": (products, F.gelu),
    "polynomial": (pairs, pairs),
}
Affine = tuple[Tensor, Tensor | None]  # matrix and bias


def project_points(
    v: Tensor, widen: Affine, project: Affine, activate: Pointwise = F.gelu
) -> Tensor:
    """``Q_2 gelu(Q_1 v)`` at every point, piece by piece on a CPU (see ``HEAD_ENTRIES``)."""
    if torch.compiler.is_compiling():  # pieces would fix the number of points in the graph
        return F.linear(activate(F.linear(v, *widen)), *project)
    rows = v.reshape(-1, v.shape[-1])
    step = max(1, HEAD_ENTRIES // len(widen[0])) if v.device.type == "cpu" else len(rows)
    pieces = [
        F.linear(activate(F.linear(piece, *widen)), *project) for piece in torch.split(rows, step)
    ]
    return torch.cat(pieces).reshape(*v.shape[:-1], len(project[0]))


def check_input(
    field: Tensor, channels: int, modes: tuple[int, ...], weight: Tensor, *, training: bool
) -> None:
    """Refuse a field of another shape or precision, or a grid that cannot hold the modes."""
    # Training would pay for the search for NaN at every step; a wrapper or an evaluation looks
    # once.
    check_field(field, channels=channels, dim=len(modes), finite=not training)
    check_precision(field, weight)
    check_resolution(field.shape[2:], modes)


def to_grid_first(field: Tensor) -> Tensor:
    """``(B, C, n_1, ..., n_d) -> (n_d, ..., n_1, B, C)``, the layout in which a transform is one
    matrix product.
    """
    return field.permute(*range(field.ndim - 1, 1, -1), 0, 1).contiguous()


def from_grid_first(v: Tensor) -> Tensor:
    return v.permute(-2, -1, *range(v.ndim - 3, -1, -1)).contiguous()


def check_precision(field: Tensor, weight: Tensor) -> None:
    """Refuse to mix precisions: a silent cast would lose digits or time."""
    if field.dtype != weight.dtype:
        raise FieldError(
            f"field: expected {weight.dtype} like the operator's weights, got {field.dtype}: "
            "convert the field with field.to(dtype) or the operator with operator.to(dtype)"
        )


def modes_per_axis(modes: int | Sequence[int], dim: int) -> tuple[int, ...]:
    per_axis = (modes,) * dim if isinstance(modes, int) else tuple(modes)
    if len(per_axis) != dim or any(m < 1 for m in per_axis):
        raise ValueError(
            f"modes: expected a positive integer or {dim} of them, one for each axis, got {modes!r}"
        )
    return per_axis


def check_sizes(
    dim: int, in_channels: int, out_channels: int, width: int, layers: int, head: int
) -> None:
    if dim not in (1, 2, 3):
        raise ValueError(f"dim: expected 1, 2 or 3, got {dim}")
    sizes = {
        "in_channels": in_channels,
        "out_channels": out_channels,
        "width": width,
        "layers": layers,
        "head": head,
    }
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}: expected a positive integer, got {size}")
