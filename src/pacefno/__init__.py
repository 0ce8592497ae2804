"""Neural operators that keep their accuracy when the input is translated, boosted or rotated.

The public names are those in ``__all__``; they are imported when first used, so ``import pacefno``
costs no more than its parts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import version

    from pacefno import frames, grid, groups, metrics, pde, registry, testing
    from pacefno.auditing import Audit, audit, wrap
    from pacefno.data.samples import ArraySource
    from pacefno.exporting import Mover, export, open_exported
    from pacefno.fields import Box, Field, FieldType
    from pacefno.grid import FieldError
    from pacefno.groups import (
        Euclidean,
        Galilean,
        GalileanScaling,
        PointGroup,
        SpecialGalilean,
        Translation,
        Trivial,
    )
    from pacefno.inference import load, save
    from pacefno.operators import FNO, Adapted, GroupFNO, Symmetrised
    from pacefno.pace import PACE, UndeterminedFrameWarning
    from pacefno.task import Task
    from pacefno.train.defaults import fit

    __version__ = version("pacefno")

_MODULES = ("frames", "grid", "groups", "metrics", "pde", "registry", "testing")
_NAMES = {
    "Adapted": "operators",
    "ArraySource": "data.samples",
    "Audit": "auditing",
    "Box": "fields",
    "Euclidean": "groups",
    "FNO": "operators",
    "Field": "fields",
    "FieldError": "grid",
    "FieldType": "fields",
    "Galilean": "groups",
    "GalileanScaling": "groups",
    "GroupFNO": "operators",
    "Mover": "exporting",
    "PACE": "pace",
    "PointGroup": "groups",
    "SpecialGalilean": "groups",
    "Symmetrised": "operators",
    "Task": "task",
    "Translation": "groups",
    "Trivial": "groups",
    "UndeterminedFrameWarning": "pace",
    "audit": "auditing",
    "export": "exporting",
    "fit": "train.defaults",
    "load": "inference",
    "open_exported": "exporting",
    "save": "inference",
    "wrap": "auditing",
}

__all__ = [
    "FNO",
    "PACE",
    "Adapted",
    "ArraySource",
    "Audit",
    "Box",
    "Euclidean",
    "Field",
    "FieldError",
    "FieldType",
    "Galilean",
    "GalileanScaling",
    "GroupFNO",
    "Mover",
    "PointGroup",
    "SpecialGalilean",
    "Symmetrised",
    "Task",
    "Translation",
    "Trivial",
    "UndeterminedFrameWarning",
    "__version__",
    "audit",
    "export",
    "fit",
    "frames",
    "grid",
    "groups",
    "load",
    "metrics",
    "open_exported",
    "pde",
    "registry",
    "save",
    "testing",
    "wrap",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"pacefno.{_NAMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"pacefno.{name}")
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("pacefno")
    raise AttributeError(f"module 'pacefno' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
