"""Generated samples on the disk: one HDF5 file per split, which is whole or absent.

A file holds arrays as a recipe made them. Its root says what they were made from (``recipe``), with
which libraries (``versions``, never compared), and the sum of all arrays (``checksum``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import h5py
import numpy as np
import torch
from torch import Tensor

from pacefno.data.recipe import Arrays, Document, name_differences
from pacefno.data.samples import Grid, Pairs
from pacefno.errors import UsageError
from pacefno.files import PathError, replacing
from pacefno.grid import coarsen
from pacefno.registry import unknown

FORMAT = 1
LIBRARY = ("v110", "v110")  # one file format for every HDF5 version: equal content, equal bytes
BLOCK_BYTES = 2**25  # of an array in memory at a time while a file is checked or thinned out
REMAKE = "delete it and make it again with 'pacefno data generate', or copy it again"


class DatasetError(PathError):
    """A file or folder of samples that cannot be used; ``reason`` says why and what to do."""


class DamagedError(DatasetError):
    """A file that was cut off or altered since it was written: make it again."""


def write_split(
    path: Path, pieces: Iterable[Arrays], rows: int, document: Document | None, group: str = "/"
) -> None:
    """Write arrays of ``rows`` rows, given in pieces of which one is held at a time; no NaN."""
    try:
        with replacing(path) as temporary, h5py.File(temporary, "w", libver=LIBRARY) as file:
            home, digests, done = file.require_group(group), {}, 0
            for piece in pieces:
                for name, values in piece.items():
                    if values.dtype.kind == "f" and not np.isfinite(values).all():
                        raise DatasetError(path, f"{name!r} holds NaN or infinity: solve it again")
                    shape = (rows, *values.shape[1:])
                    if name not in digests:  # a time of creation would make equal bytes unequal
                        home.create_dataset(name, shape, values.dtype, track_times=False)
                        digests[name] = _digest(name, shape, values[:0])
                    home[name][done : done + len(values)] = values
                    digests[name].update(np.ascontiguousarray(values).data)
                done += len(values)
            assert done == rows, f"{path}: expected {rows} rows in all pieces, got {done}"
            versions = {name: version(name) for name in ("pacefno", "torch", "numpy", "h5py")}
            file.attrs["format"], file.attrs["checksum"] = FORMAT, _sum(digests)
            file.attrs["versions"] = json.dumps(versions)
            if document is not None:
                file.attrs["recipe"] = json.dumps(document)
    except (OSError, RuntimeError) as error:  # h5py reports a full disk as either
        raise DatasetError(path, f"could not be written ({error}): make room, try again") from error


def checksum(arrays: Arrays) -> str:
    """The sum of named arrays with their shapes and types, as `write_split` stores it."""
    return _sum({name: _digest(name, array.shape, array) for name, array in arrays.items()})


def _digest(name: str, shape: tuple[int, ...], values: np.ndarray[Any, Any]) -> hashlib._Hash:
    digest = hashlib.sha256(f"{name} {shape} {values.dtype.str}\n".encode())
    digest.update(np.ascontiguousarray(values).data)
    return digest


def _sum(digests: Mapping[str, hashlib._Hash]) -> str:
    text = "\n".join(digests[name].hexdigest() for name in sorted(digests))
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """A file to read from; whatever HDF5 finds wrong with it meanwhile is a `DamagedError`."""
    if not path.is_file():
        raise DatasetError(path, "is missing: run 'pacefno data generate' again, or check the path")
    try:
        with h5py.File(path, "r", locking=False) as file:  # some network folders cannot lock
            yield file
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise DamagedError(path, f"is truncated, altered or no HDF5 ({error}): {REMAKE}") from error


def read_document(path: Path) -> Document | None:
    """What a file says that it was made from; None if it says nothing, as files of others do."""
    with opened(path) as file:
        found, text = file.attrs.get("format", FORMAT), file.attrs.get("recipe")
        if found != FORMAT:
            todo = "use the pacefno that wrote it"
            raise DatasetError(path, f"has format {found}, this version reads {FORMAT}: {todo}")
        return None if text is None else dict(json.loads(text))


def verify(path: Path, document: Document, *, values: bool = True) -> None:
    """Refuse a file of other settings or, if its values are to be read, one that was altered."""
    if changed := name_differences(read_document(path) or {}, document):
        todo = "delete the folder to replace it, it is made anew, or choose another --root"
        raise DatasetError(path, f"was made with other settings ({changed}): {todo}")
    for _ in read_blocks(path) if values else ():
        pass  # at the end the sum is compared


def read_arrays(path: Path, names: Sequence[str] = (), rows: slice = slice(None)) -> Arrays:
    """All arrays of a file, or those named, whole or some rows; their sum is not compared."""
    with opened(path) as file:
        return {name: _dataset(path, file, name)[rows] for name in names or sorted(file)}


def read_blocks(path: Path, count: int | None = None) -> Iterator[tuple[str, int, slice, Any]]:
    """All arrays, or their first ``count`` rows, in blocks: name, rows in all, which rows, values.

    After the last block of whole arrays their sum is compared, so use nothing before the end.
    """
    digests = {}
    with opened(path) as file:
        for name in sorted(file):
            dataset = _dataset(path, file, name)
            digests[name] = _digest(name, dataset.shape, dataset[:0])
            total = len(dataset) if count is None else min(count, len(dataset))
            step = max(1, BLOCK_BYTES * len(dataset) // max(1, dataset.nbytes))
            for start in range(0, total, step):
                rows = slice(start, min(start + step, total))
                block = dataset[rows]
                digests[name].update(block.data)
                yield name, total, rows, block
        if count is None and file.attrs.get("checksum") != _sum(digests):
            raise DamagedError(path, f"its values do not match its own checksum: {REMAKE}")


def _dataset(path: Path, file: h5py.File, name: str) -> h5py.Dataset:
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset) or dataset.id.get_storage_size() != dataset.nbytes:
        raise DamagedError(path, f"the array {name!r} is missing or not stored in full: {REMAKE}")
    return dataset


@final
@dataclass(frozen=True)
class PairDataset:
    """A folder of pairs, one file per split; ``document`` says what they are to be made from."""

    path: Path
    document: Document
    splits = ("train", "validation", "test_id", "test_ood")

    @property
    def recipe_name(self) -> str:
        return str(self.document["name"])

    def file(self, split: str) -> Path:
        """Where a split is stored."""
        if split not in self.splits:
            raise UsageError(unknown("split", split, self.splits))
        return self.path / f"{split}.h5"

    def join(self, split: str, parts: Sequence[Path], rows: int) -> None:
        """Write the file of a split from those of its parts."""
        pieces = map(read_arrays, parts)
        write_split(self.file(split), pieces, rows, {**self.document, "split": split})

    def verify(self, split: str, *, values: bool = True) -> None:
        """Refuse a split of other settings or, if its values are to be read, an altered one."""
        verify(self.file(split), {**self.document, "split": split}, values=values)

    def load(self, split: str, grid: Grid = "id", count: int | None = None) -> Pairs:
        """A split, or its first samples, on the ID grid or (test splits only) on the OOD grid.

        Fields are float32, elements float64. The sum of a split is compared when all is read.
        """
        tests = split.startswith("test")
        if grid not in ("id", "ood"):
            raise UsageError(unknown("grid", grid, ("id", "ood")))
        if grid == "ood" and not tests:
            raise UsageError(f"{split} is stored on the ID grid only: ask for grid='id'")
        self.verify(split, values=False)
        stride = self.document["coarsening"] if tests and grid == "id" else 1
        found: dict[str, Tensor] = {}
        for name, total, rows, block in read_blocks(self.file(split), count):
            values = torch.from_numpy(block)
            values = coarsen(values, stride) if values.ndim > 2 else values
            if name not in found:
                found[name] = values.new_empty(total, *values.shape[1:])
            found[name][rows] = values
        return Pairs(found["input"], found["target"], found.get("xi"), found.get("resolved"))
