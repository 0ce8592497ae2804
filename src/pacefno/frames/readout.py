"""From feature maps to coordinates: the paper's ``M_phi: A -> R^2k`` and its retraction (appendix A)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacefno.symmetry import Group
from pacefno.symmetry.moments import first_modes


def standardise(field: Tensor) -> Tensor:
    """Each channel of each sample without its mean and at unit rms: what a frame may depend on (the paper's S_v and more).

    Invariant under shifts and rotations. A constant channel becomes zero.
    """
    flat = field.flatten(2)
    centred = flat - flat.mean(dim=2, keepdim=True)
    rms = centred.square().mean(dim=2, keepdim=True).sqrt()
    floor = torch.finfo(field.dtype).eps * (1 + flat.abs().amax(dim=2, keepdim=True))
    return (centred / (rms + floor)).reshape(field.shape)


def harmonics(features: Tensor) -> Tensor:
    """First Fourier coefficients of each feature map along each axis, ``(B, K, dim, 2)`` as (cos, sin) parts.

    Moving the features by tau turns the pair of that axis by ``2 pi tau``: the pair is a position, up to retraction.
    """
    batch, maps = features.shape[:2]
    modes = first_modes(features.flatten(0, 1)).reshape(batch, maps, -1)  # complex (B, K, dim)
    return torch.stack([modes.real, -modes.imag], dim=-1)


def retract(vectors: Tensor, group: Group) -> Tensor:
    """``Ret: R^2k -> g_S``: the angle of each vector ``(B, spatial, 2)``, scaled to the coordinate's period."""
    turns = torch.atan2(vectors[..., 1], vectors[..., 0]) / (2 * math.pi)
    periods = turns.new_tensor(group.periods[: group.spatial])
    return turns * periods
