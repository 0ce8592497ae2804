"""The one exception for everything that can be wrong with a dataset on the disk."""

from __future__ import annotations

from pacefno.durable import PathError


class DatasetError(PathError):
    """``path`` is the file or folder at fault, ``reason`` says what is wrong with it and what to do."""
