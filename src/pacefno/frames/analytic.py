"""Frames that need no training: read off the field, or given from outside."""

from __future__ import annotations

import torch
from torch import Tensor

from pacefno.frames.base import Estimate, Frame, firm_part
from pacefno.frames.seams import SeamFrame
from pacefno.grid import compute_dtype
from pacefno.symmetry import CanonicalSlice, Group, QuarterSlice, default_slice


class AnalyticFrame(Frame):
    """The coordinates of the canonical slice: first-mode phases and mean velocity, or moments for rotations.

    Exactly equivariant, at any resolution. Singular where the first mode (or the impulse) vanishes; the confidence says so.
    """

    def __init__(self, group: Group, slice: CanonicalSlice | None = None) -> None:
        super().__init__()
        self.group = group
        self.slice = default_slice(group) if slice is None else slice

    def forward(self, field: Tensor) -> Estimate:
        field = field.to(compute_dtype(field.dtype))  # a mean in half precision would be a wrong velocity
        xi, quality = self.slice.read(field)
        return Estimate(xi, firm_part(quality))


def analytic_frame(group: Group, slice: CanonicalSlice | None = None) -> Frame:
    """The frame that needs no training: the slice's own coordinates, or the search that a torn periodic field takes."""
    return SeamFrame(group, slice) if isinstance(slice, QuarterSlice) else AnalyticFrame(group, slice)


class KinematicFrame(Frame):
    """The measured background velocity alone, no shift: what an operator without coordinates still lacks."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group

    def forward(self, field: Tensor) -> Estimate:
        velocity = self.group.kinematic(field.to(compute_dtype(field.dtype)))
        shift = velocity.new_zeros(len(field), self.group.spatial)
        return Estimate(torch.cat([shift, velocity], dim=1), velocity.new_ones(len(field)))


class IdentityFrame(Frame):
    """No frame at all: with the trivial group this makes a plain operator, on the same code path as PACE."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group

    def forward(self, field: Tensor) -> Estimate:
        xi = self.group.identity(len(field), dtype=compute_dtype(field.dtype), device=field.device)
        return Estimate(xi, xi.new_ones(len(field)))


class OracleFrame(Frame):
    """The true generator, for one batch: the floor under every other frame."""

    def __init__(self, group: Group, xi: Tensor) -> None:
        super().__init__()
        self.group = group
        self.register_buffer("xi", xi, persistent=False)

    def forward(self, field: Tensor) -> Estimate:
        xi = self.get_buffer("xi")
        return Estimate(xi, xi.new_ones(len(field)))
