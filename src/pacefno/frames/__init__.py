"""Frames: field -> xi. A new one is one file and one line in ``FRAMES``; the frame tests run over that registry."""

from __future__ import annotations

from collections.abc import Callable

from pacefno.frames.analytic import AnalyticFrame, IdentityFrame, KinematicFrame, OracleFrame
from pacefno.frames.base import Estimate, Frame
from pacefno.frames.cnn import CNNFrame
from pacefno.frames.equivariant import EquivariantFrame
from pacefno.frames.refine import AdamRefiner, GaussNewton, Refinement, Refiner, SelfConsistency
from pacefno.symmetry import CanonicalSlice, Group

# How to build a frame from the group, the number of input channels and the canonical slice of the data.
FRAMES: dict[str, Callable[[Group, int, CanonicalSlice], Frame]] = {
    "identity": lambda group, channels, slice: IdentityFrame(group),
    "kinematic": lambda group, channels, slice: KinematicFrame(group),
    "analytic": lambda group, channels, slice: AnalyticFrame(group, slice),
    "equivariant": lambda group, channels, slice: EquivariantFrame(group, channels, slice=slice),
    "equivariant-free": lambda group, channels, slice: EquivariantFrame(group, channels, aligned=False),
    "cnn": lambda group, channels, slice: CNNFrame(group, channels, slice=slice),
}

__all__ = [
    "FRAMES",
    "AdamRefiner",
    "AnalyticFrame",
    "CNNFrame",
    "EquivariantFrame",
    "Estimate",
    "Frame",
    "GaussNewton",
    "IdentityFrame",
    "KinematicFrame",
    "OracleFrame",
    "Refinement",
    "Refiner",
    "SelfConsistency",
]
