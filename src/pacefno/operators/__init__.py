"""Operators on periodic fields, ``(B, C, *grid) -> (B, C', *grid)`` at any resolution, by name."""

from __future__ import annotations

from torch import nn

from pacefno.operators.fno import FNO, FourierLayer
from pacefno.operators.group_fno import GroupFNO
from pacefno.operators.over_time import Rollout, SpaceTimeFNO
from pacefno.operators.representations import POINT_GROUPS, PointGroup, representation, symmetric_scale
from pacefno.operators.spectral import spectral_convolution, spectral_convolution_fft
from pacefno.operators.standardised import Standardised

OPERATORS: dict[str, type[nn.Module]] = {"fno": FNO}

__all__ = [
    "FNO",
    "OPERATORS",
    "POINT_GROUPS",
    "FourierLayer",
    "GroupFNO",
    "PointGroup",
    "Rollout",
    "SpaceTimeFNO",
    "Standardised",
    "representation",
    "spectral_convolution",
    "spectral_convolution_fft",
    "symmetric_scale",
]
