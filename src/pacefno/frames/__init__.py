"""Frames: field -> xi. A new one is one class and ``@register("frame", NAME)``."""

from __future__ import annotations

from pacefno.frames.analytic import (
    AnalyticFrame,
    CanonicalSlice,
    IdentityFrame,
    KinematicFrame,
    MomentSlice,
    PhaseSlice,
    StrongestWaveSlice,
    default_slice,
)
from pacefno.frames.base import Energy, Estimate, Frame, SelfConsistency
from pacefno.frames.cnn import CNNFrame, PartialFrame
from pacefno.frames.learned import EquivariantFrame, TurningFrame
from pacefno.frames.refine import AdamRefiner, GaussNewton, Refinement, Refiner
from pacefno.frames.rotated_periodic import QuarterSlice, SeamFrame, Smoothness
from pacefno.registry import registered

FRAMES = registered("frame")
SLICES = registered("slice")

__all__ = [
    "FRAMES",
    "SLICES",
    "AdamRefiner",
    "AnalyticFrame",
    "CNNFrame",
    "CanonicalSlice",
    "Energy",
    "EquivariantFrame",
    "Estimate",
    "Frame",
    "GaussNewton",
    "IdentityFrame",
    "KinematicFrame",
    "MomentSlice",
    "PartialFrame",
    "PhaseSlice",
    "QuarterSlice",
    "Refinement",
    "Refiner",
    "SeamFrame",
    "SelfConsistency",
    "Smoothness",
    "StrongestWaveSlice",
    "TurningFrame",
    "default_slice",
]
