"""Frames: field -> xi. A new one is one file and one line in ``FRAMES``; the frame tests run over that registry."""

from __future__ import annotations

from collections.abc import Callable

from pacefno.frames.analytic import AnalyticFrame, IdentityFrame, KinematicFrame, OracleFrame, analytic_frame
from pacefno.frames.base import Energy, Estimate, Frame, SelfConsistency
from pacefno.frames.cnn import CNNFrame
from pacefno.frames.equivariant import EquivariantFrame
from pacefno.frames.refine import AdamRefiner, GaussNewton, Refinement, Refiner
from pacefno.frames.seams import SeamFrame
from pacefno.frames.smoothness import Smoothness
from pacefno.frames.turning import TurningFrame
from pacefno.symmetry import CanonicalSlice, Euclidean, Group


def free_frame(group: Group, channels: int, slice: CanonicalSlice) -> Frame:
    """The learned frame without an analytic start; rotations need a network of their own."""
    if isinstance(group, Euclidean):
        return TurningFrame(group, channels, slice)
    return EquivariantFrame(group, channels, aligned=False)


# How to build a frame from the group, the number of input channels and the canonical slice of the data.
FRAMES: dict[str, Callable[[Group, int, CanonicalSlice], Frame]] = {
    "identity": lambda group, channels, slice: IdentityFrame(group),
    "kinematic": lambda group, channels, slice: KinematicFrame(group),
    "analytic": lambda group, channels, slice: analytic_frame(group, slice),
    "equivariant": lambda group, channels, slice: EquivariantFrame(group, channels, slice=slice),
    "equivariant-free": lambda group, channels, slice: free_frame(group, channels, slice),
    "cnn": lambda group, channels, slice: CNNFrame(group, channels, slice=slice),
}

__all__ = [
    "FRAMES",
    "AdamRefiner",
    "AnalyticFrame",
    "CNNFrame",
    "Energy",
    "EquivariantFrame",
    "Estimate",
    "Frame",
    "GaussNewton",
    "IdentityFrame",
    "KinematicFrame",
    "OracleFrame",
    "Refinement",
    "Refiner",
    "SeamFrame",
    "SelfConsistency",
    "Smoothness",
    "TurningFrame",
    "analytic_frame",
]
