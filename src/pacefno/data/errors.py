"""The one exception for everything that can be wrong with a dataset on the disk."""

from __future__ import annotations

from pathlib import Path


class DatasetError(Exception):
    """``path`` is the file or folder at fault, ``reason`` says what is wrong with it and what to do."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"
