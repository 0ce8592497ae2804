"""Sources of samples: datasets that are generated here, and other people's files.

`prepare` makes the dataset of a recipe where it is missing and opens it; `generate` and
`open_dataset` are its two halves. Importing this package needs h5py.
"""

from __future__ import annotations

from pacefno.data._settings import DataSettings
from pacefno.data.arrays_file import StoredFields, read_fields, write_fields
from pacefno.data.formats import FORMATS, Contents, FileFormat, StoredArray, open_file
from pacefno.data.generate import folder_of, generate, is_generated, open_dataset, prepare
from pacefno.data.lpsda import TrajectoryDataset, read_lpsda, write_lpsda
from pacefno.data.own import FileSource, open_task
from pacefno.data.recipe import PairRecipe, Recipe, Sizes, TrajectoryRecipe
from pacefno.data.samples import Pairs, Source, Trajectories, channel_statistics
from pacefno.data.store import DatasetError, PairDataset

__all__ = [
    "FORMATS",
    "Contents",
    "DataSettings",
    "DatasetError",
    "FileFormat",
    "FileSource",
    "PairDataset",
    "PairRecipe",
    "Pairs",
    "Recipe",
    "Sizes",
    "Source",
    "StoredArray",
    "StoredFields",
    "Trajectories",
    "TrajectoryDataset",
    "TrajectoryRecipe",
    "channel_statistics",
    "folder_of",
    "generate",
    "is_generated",
    "open_dataset",
    "open_file",
    "open_task",
    "prepare",
    "read_fields",
    "read_lpsda",
    "write_fields",
    "write_lpsda",
]
