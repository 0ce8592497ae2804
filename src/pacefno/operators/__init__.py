"""Operators on periodic fields, ``(B, C, *grid) -> (B, C', *grid)`` at any resolution, by name.

A new one is one class and ``@register("operator", NAME)``.
"""

from __future__ import annotations

from pacefno.operators.adapters import Adapted
from pacefno.operators.fno import FNO
from pacefno.operators.group_fno import GroupFNO
from pacefno.operators.over_time import Conditioned, Recurrent, Residual, SpaceTimeFNO, SplitStep
from pacefno.operators.standardised import Standardised
from pacefno.operators.symmetrised import Symmetrised
from pacefno.registry import registered

OPERATORS = registered("operator")

__all__ = [
    "FNO",
    "OPERATORS",
    "Adapted",
    "Conditioned",
    "GroupFNO",
    "Recurrent",
    "Residual",
    "SpaceTimeFNO",
    "SplitStep",
    "Standardised",
    "Symmetrised",
]
