"""Datasets: ``generate`` makes one, ``open_dataset`` reads it; in between lie verified, sharded HDF5 files."""

from __future__ import annotations

from pacefno.data.errors import DatasetError
from pacefno.data.generate import generate
from pacefno.data.normalise import channel_statistics
from pacefno.data.presets import SIZES, Sizes, sizes_named
from pacefno.data.read import Dataset, Samples, open_dataset

__all__ = [
    "SIZES",
    "Dataset",
    "DatasetError",
    "Samples",
    "Sizes",
    "channel_statistics",
    "generate",
    "open_dataset",
    "sizes_named",
]
