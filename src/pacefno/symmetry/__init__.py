"""The symmetry groups. A new one is one file and one line in ``GROUPS``; the law tests run over that registry."""

from __future__ import annotations

from collections.abc import Callable

from pacefno.symmetry.base import Coordinates, Group
from pacefno.symmetry.euclidean import Euclidean
from pacefno.symmetry.galilean import Galilean
from pacefno.symmetry.lie_point import LiePoint
from pacefno.symmetry.slices import CanonicalSlice, MomentSlice, PhaseSlice, QuarterSlice, default_slice
from pacefno.symmetry.trajectories import Trajectories, window_starts
from pacefno.symmetry.translation import Translation
from pacefno.symmetry.trivial import Trivial

GROUPS: dict[str, Callable[[], Group]] = {
    "trivial-1d": lambda: Trivial(1),
    "trivial-2d": lambda: Trivial(2),
    "translation-1d": lambda: Translation(1),
    "translation-2d": lambda: Translation(2),
    "galilean-1d": lambda: Galilean(1, "scalar"),
    "galilean-2d": lambda: Galilean(2, "scalar"),
    "galilean-2d-momentum": lambda: Galilean(2, "momentum"),
    "euclidean-2d": Euclidean,
}

__all__ = [
    "GROUPS",
    "CanonicalSlice",
    "Coordinates",
    "Euclidean",
    "Galilean",
    "Group",
    "LiePoint",
    "MomentSlice",
    "PhaseSlice",
    "QuarterSlice",
    "Trajectories",
    "Translation",
    "Trivial",
    "default_slice",
    "window_starts",
]
