"""From feature maps to coordinates: the paper's ``M_phi: A -> R^2k`` and its retraction (appendix A)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacefno.symmetry import Group
from pacefno.symmetry.moments import direction, first_modes


def standardise(field: Tensor) -> Tensor:
    """Each channel of each sample without its mean and at unit rms: what a frame may depend on (the paper's S_v and more).

    Invariant under shifts, rotations and changes of unit. A constant channel becomes zero, and so does one whose
    variation is lost in the rounding of its mean: the floor is the geometric mean of signal and round-off.
    """
    flat = field.flatten(2)
    centred = flat - flat.mean(dim=2, keepdim=True)
    power = centred.square().mean(dim=2, keepdim=True)
    power = power + torch.finfo(field.dtype).eps * flat.square().mean(dim=2, keepdim=True)
    present = power > 0  # the root has no derivative at 0
    return (centred / torch.where(present, power, 1.0).sqrt()).reshape(field.shape)


def harmonics(features: Tensor) -> Tensor:
    """First Fourier coefficients of each feature map along each axis, ``(B, K, dim, 2)`` as (cos, sin) parts.

    Moving the features by tau turns the pair of that axis by ``2 pi tau``: the pair is a position, up to retraction.
    """
    batch, maps = features.shape[:2]
    modes = first_modes(features.flatten(0, 1)).reshape(batch, maps, -1)  # complex (B, K, dim)
    return torch.stack([modes.real, -modes.imag], dim=-1)


def retract(vectors: Tensor, group: Group) -> Tensor:
    """``Ret: R^2k -> g_S``: the angle of each vector ``(B, spatial, 2)``, scaled to the coordinate's period."""
    turns = direction(vectors[..., 0], vectors[..., 1]) / (2 * math.pi)
    periods = turns.new_tensor(group.periods[: group.spatial])
    return turns * periods


def shares(density: Tensor, vectors: Tensor) -> Tensor:
    """The share of each density's variance that its vector ``(B, K, 2)`` stands for, ``(B, K)`` in [0, 1]: a confidence."""
    flat = density.flatten(2)
    floor = torch.finfo(flat.dtype).eps * flat.square().mean(dim=2) + torch.finfo(flat.dtype).tiny
    return 2 * vectors.square().sum(dim=-1) / (flat.var(dim=2, unbiased=False) + floor)
