"""Neural operators that keep their accuracy when the input is translated, boosted or rotated."""

from __future__ import annotations

from importlib.metadata import version

from pacefno import metrics
from pacefno.grid import FieldError
from pacefno.operators import FNO
from pacefno.pace import PACE
from pacefno.symmetry import Euclidean, Galilean, Translation, Trivial
from pacefno.training.load import load

__version__ = version("pacefno")

__all__ = ["FNO", "PACE", "Euclidean", "FieldError", "Galilean", "Translation", "Trivial", "load", "metrics"]
