"""A Fourier neural operator that commutes with a finite point group (G-FNO, written from its
mathematics).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pacefno.grid import points
from pacefno.groups.point_group import PointGroup, direct_sum, point_group_named, representation
from pacefno.operators._group_layers import GroupLinear, GroupSpectral, Lifting, Projection
from pacefno.operators.fno import (
    check_input,
    check_sizes,
    from_grid_first,
    modes_per_axis,
    project_points,
    to_grid_first,
)
from pacefno.registry import register


@final
class GroupBlock(nn.Module):
    """``v -> A v + M_2 gelu(M_1 K v)``: the skip path, and the spectral layer with a small network
    on top of it.
    """

    def __init__(self, width: int, modes: tuple[int, ...], group: PointGroup, norm: bool) -> None:
        super().__init__()
        self.spectral = GroupSpectral(width, modes, group, norm)
        self.outer = GroupLinear(width, width, group)
        self.skip = GroupLinear(width, width, group)

    def forward(self, v: Tensor) -> Tensor:
        outer, outer_bias = self.outer.matrices()
        skip, skip_bias = self.skip.matrices()
        rows = F.gelu(self.spectral(v)).flatten(0, -2)
        base = F.linear(v.flatten(0, -2), skip, skip_bias + outer_bias)
        return torch.addmm(base, rows, outer.T).reshape(v.shape)


@register("operator", "group-fno")
@final
class GroupFNO(nn.Module):
    """``f(g a) = g f(a)`` for every ``g`` of a point group, at any resolution that holds its modes.

    ``channels`` says what the channels of one snapshot are, as ``FieldType`` reads it, e.g. ``"h:
    scalar, m: momentum of h"``; input and output are snapshots of them, unless ``output`` says what
    those of the output are. ``"scalar"`` stands for any number of scalars. With ``dim`` above that
    of the group the last axes are left alone: time in a space-time operator.
    ``positions="symmetric"`` appends the squared distance to the centre, and the coordinates of the
    axes left alone; the operator then commutes with the group but not with shifts. ``norm`` is what
    G-FNO does in two dimensions and not in three; it hides mean and amplitude, on which a transport
    equation depends.
    """

    def __init__(
        self,
        dim: int,
        in_channels: int,
        out_channels: int,
        width: int,
        modes: int | Sequence[int],
        group: PointGroup | str,
        channels: str = "scalar",
        layers: int = 4,
        positions: Literal["symmetric"] | None = None,
        norm: bool = False,
        output: str | None = None,
    ) -> None:
        super().__init__()
        check_sizes(dim, in_channels, out_channels, width, layers, head=4 * width)
        if positions not in (None, "symmetric"):
            raise ValueError(f"positions: expected None or 'symmetric', got {positions!r}")
        group = point_group_named(group) if isinstance(group, str) else group
        self.dim, self.in_channels, self.out_channels = dim, in_channels, out_channels
        self.group, self.positions = group, positions
        self.modes = modes_per_axis(modes, dim)
        _check_band(self.modes, group)
        rho = representation(group, channels, in_channels)
        extra = 0 if positions is None else 1 + dim - group.dim
        if extra:
            _check_centre(group)
            # Where a point lies does not change its sign with the field, whatever the element.
            still = torch.eye(extra, dtype=rho.dtype).expand(group.order, -1, -1)
            rho = direct_sum([rho, still])
        self.lifting = Lifting(rho, width, group)
        self.layers = nn.ModuleList(
            GroupBlock(width, self.modes, group, norm) for _ in range(layers)
        )
        self.widen = GroupLinear(width, 4 * width, group)
        self.project = Projection(
            4 * width, representation(group, output or channels, out_channels)
        )

    def forward(self, field: Tensor) -> Tensor:
        weight = self.lifting.weight
        check_input(field, self.in_channels, self.modes, weight, training=self.training)
        v = self.lifting(to_grid_first(self._with_positions(field)))
        for i, layer in enumerate(self.layers):
            v = layer(F.gelu(v) if i else v)
        heads = self.widen.matrices(), self.project.matrices()
        return from_grid_first(project_points(v, *heads)).to(field.dtype)

    def _with_positions(self, field: Tensor) -> Tensor:
        if self.positions is None:
            return field
        coordinates = points(field.shape[2:], dtype=field.dtype, device=field.device)
        radius = (coordinates[: self.group.dim] - 0.5).square().sum(dim=0, keepdim=True)
        extra = torch.cat([radius, coordinates[self.group.dim :]])
        return torch.cat([field, extra.expand(field.shape[0], *extra.shape)], dim=1)


def _check_centre(group: PointGroup) -> None:
    if not all(element.keeps_centre for element in group.elements):
        raise ValueError(
            f"positions: 'symmetric' is the distance from the centre of the box, which "
            f"{group.which} does not keep: leave positions out"
        )


def _check_band(modes: tuple[int, ...], group: PointGroup) -> None:
    if len(modes) < group.dim:
        raise ValueError(
            f"group: {group.which} acts on {group.dim} axes, got a field of {len(modes)}: choose "
            "another group"
        )
    for element in range(group.order):
        axes, _ = group.moves(element)
        if any(modes[i] != modes[axis] for i, axis in enumerate(axes)):
            raise ValueError(
                f"modes: {group.which} exchanges axes, so they need the same number of modes, got "
                f"{modes}"
            )
