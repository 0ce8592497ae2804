"""Symmetry groups and how they act on fields. A new one is one file and ``@register("group",
NAME)``.
"""

from __future__ import annotations

from pacefno.groups.base import Group
from pacefno.groups.euclidean import Euclidean
from pacefno.groups.galilean import Galilean, GalileanScaling
from pacefno.groups.point_group import (
    POINT_GROUPS,
    PointGroup,
    Product,
    element,
    representation,
    symmetric_scale,
)
from pacefno.groups.special_galilean import SpecialGalilean
from pacefno.groups.translation import Translation, Trivial, shift
from pacefno.registry import registered

GROUPS = registered("group")

__all__ = [
    "GROUPS",
    "POINT_GROUPS",
    "Euclidean",
    "Galilean",
    "GalileanScaling",
    "Group",
    "PointGroup",
    "Product",
    "SpecialGalilean",
    "Translation",
    "Trivial",
    "element",
    "representation",
    "shift",
    "symmetric_scale",
]
