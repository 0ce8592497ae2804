"""One shard on the disk: written so that it is whole or absent, and opened only if it is exactly what it should be.

HDF5 lets a file point at other files, at itself, or declare a terabyte in a kilobyte, and h5py follows all of it. So the
structure is compared with :mod:`pacefno.data.schema` before a single value is read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import h5py
import numpy as np
import numpy.typing as npt
import torch

from pacefno.data.errors import DatasetError
from pacefno.data.recipe import FORMAT, Recipe
from pacefno.data.schema import ATTRIBUTES, FIELD, Layout, Shard, layout
from pacefno.durable import fsync_dir, fsync_file, remove, temporary_sibling
from pacefno.grid import FieldError, check_field, check_points
from pacefno.symmetry.translation import AXES

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
LIBRARY: Final = ("v110", "v110")  # one file format for every version of the library: same content, same bytes
REMAKE: Final = "delete it and run 'pacefno data generate' again, which makes it anew"


# --- writing --------------------------------------------------------------------------------------------------------


def write_shard(folder: Path, recipe: Recipe, shard: Shard, arrays: Arrays, redraws: int) -> None:
    """Write, close, reopen, verify, mark complete, force to the disk, and only then give the file its name."""
    path = folder / shard.name
    temporary = temporary_sibling(path)
    remove(temporary)
    try:
        _write(temporary, recipe, shard, arrays, redraws)
        read_shard(temporary, recipe, shard, complete=False)
        with h5py.File(temporary, "r+", libver=LIBRARY) as file:
            file.attrs.create("complete", True, dtype=ATTRIBUTES["complete"])
        fsync_file(temporary)
        os.replace(temporary, path)
        fsync_dir(folder)
    except (OSError, RuntimeError) as error:  # h5py reports a full disk as either
        free = shutil.disk_usage(folder).free
        needed = sum(array.nbytes for array in arrays.values())
        reason = f"could not be written, it needs {needed} bytes and {free} are free ({error}): make room and run it again"
        raise DatasetError(path, reason) from error
    finally:
        remove(temporary)


def _write(path: Path, recipe: Recipe, shard: Shard, arrays: Arrays, redraws: int) -> None:
    values: dict[str, object] = {
        "format": FORMAT,
        "recipe": recipe.sha256().encode(),
        "split": shard.split.encode(),
        "start": shard.start,
        "count": shard.count,
        "redraws": redraws,
        "checksum": checksum(arrays).encode(),
    }
    with h5py.File(path, "w", libver=LIBRARY) as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, track_times=False)  # a time would make equal data unequal bytes
        for name, value in values.items():
            file.attrs.create(name, value, dtype=ATTRIBUTES[name])


def checksum(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """The sha256 of named arrays with their shapes and dtypes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.shape} {array.dtype.str}\n".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()


# --- reading --------------------------------------------------------------------------------------------------------


def read_shard(path: Path, recipe: Recipe, shard: Shard, *, complete: bool = True) -> tuple[Arrays, int]:
    """All arrays of a shard and its count of redraws; structure first, then values, checksum, coordinates and finiteness."""
    with open_shard(path, recipe, shard, complete=complete) as (file, attributes):
        try:
            arrays: Arrays = {name: file[name][()] for name in layout(recipe, shard)}
        except (OSError, RuntimeError, ValueError) as error:
            raise DatasetError(path, f"cannot be read ({error}): {REMAKE}") from error
    if checksum(arrays).encode() != attributes["checksum"]:
        raise DatasetError(path, f"its values do not match its own checksum: {REMAKE}")
    _check_values(path, arrays)
    return arrays, int(attributes["redraws"])


@contextmanager
def open_shard(
    path: Path, recipe: Recipe, shard: Shard, *, complete: bool = True
) -> Iterator[tuple[h5py.File, dict[str, Any]]]:
    """An open shard whose structure is the expected one, and its attributes; no value of a dataset has been read."""
    try:
        file = h5py.File(path, "r", locking=False)  # shards never change, and some network folders cannot lock
    except (OSError, RuntimeError, ValueError) as error:
        raise DatasetError(path, f"is truncated or no HDF5 file ({error}): {REMAKE}") from error
    with file:
        try:
            _check_objects(path, file, layout(recipe, shard))
            attributes = _attributes(path, file, complete)
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
            raise DatasetError(path, f"has damaged headers ({error}): {REMAKE}") from error
        _check_attributes(path, attributes, recipe, shard)
        yield file, attributes


def _check_objects(path: Path, file: h5py.File, table: Layout) -> None:
    names = set(file)
    for name in sorted(names):
        if not isinstance(file.get(name, getlink=True), h5py.HardLink):
            raise DatasetError(path, f"{name[:50]!r} is a link to elsewhere, which is never followed: {REMAKE}")
    if names != set(table):
        raise DatasetError(path, f"expected the objects {sorted(table)}, got {sorted(names)}: {REMAKE}")
    for name, (shape, dtype) in table.items():
        if file.get(name, getclass=True) is not h5py.Dataset:
            raise DatasetError(path, f"{name!r} is no dataset: {REMAKE}")
        _check_dataset(path, file[name], shape, dtype)


def _check_dataset(path: Path, dataset: h5py.Dataset, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    name = dataset.name.lstrip("/")
    plist = dataset.id.get_create_plist()
    if plist.get_external_count():
        raise DatasetError(path, f"{name!r} keeps its values in another file, which is never opened: {REMAKE}")
    if plist.get_layout() == h5py.h5d.VIRTUAL:
        raise DatasetError(path, f"{name!r} is a virtual dataset made of other files, which are never opened: {REMAKE}")
    if plist.get_nfilters() or plist.get_layout() != h5py.h5d.CONTIGUOUS:
        raise DatasetError(path, f"{name!r} is compressed or chunked, expected plain values: {REMAKE}")
    if dataset.shape != shape or dataset.dtype != dtype:
        got = f"{dataset.shape} {dataset.dtype.str}"
        raise DatasetError(path, f"{name!r}: expected {shape} {dtype.str}, got {got}: {REMAKE}")
    stored, expected = dataset.id.get_storage_size(), int(np.prod(shape)) * dtype.itemsize
    if stored != expected:
        raise DatasetError(path, f"{name!r} declares {expected} bytes and stores {stored}: {REMAKE}")
    if len(dataset.attrs):
        raise DatasetError(path, f"{name!r} carries attributes, expected none: {REMAKE}")


def _attributes(path: Path, file: h5py.File, complete: bool) -> dict[str, Any]:
    expected = set(ATTRIBUTES) - (set() if complete else {"complete"})
    names = set(file.attrs)
    if complete and "complete" not in names:
        raise DatasetError(path, f"was never finished (no 'complete' mark): {REMAKE}")
    if names != expected:
        raise DatasetError(path, f"expected the attributes {sorted(expected)}, got {sorted(names)}: {REMAKE}")
    for name in expected:
        attribute = file.attrs.get_id(name)
        if attribute.shape != () or attribute.dtype != ATTRIBUTES[name]:
            got = f"{attribute.shape} {attribute.dtype}"
            raise DatasetError(path, f"attribute {name!r}: expected one {ATTRIBUTES[name]}, got {got}: {REMAKE}")
    return {name: file.attrs[name] for name in expected}


def _check_attributes(path: Path, got: Mapping[str, Any], recipe: Recipe, shard: Shard) -> None:
    if got["format"] != FORMAT:
        raise DatasetError(path, f"has format {got['format']}, this version reads {FORMAT}: use the pacefno that wrote it")
    if not got.get("complete", True):
        raise DatasetError(path, f"was never finished ('complete' is false): {REMAKE}")
    if got["recipe"] != recipe.sha256().encode():
        raise DatasetError(path, f"was made with other settings or library versions than this dataset: {REMAKE}")
    if (got["split"], got["start"], got["count"]) != (shard.split.encode(), shard.start, shard.count):
        raise DatasetError(path, f"holds other samples than its name says: {REMAKE}")


def _check_values(path: Path, arrays: Arrays) -> None:
    """Finite fields on an evenly spaced periodic grid."""
    try:
        for name, array in arrays.items():
            values = torch.from_numpy(array)
            if name in AXES:
                check_points(values, name=f"coordinates {name}")
            elif array.dtype == FIELD:
                check_field(values, name=name)
            elif not np.isfinite(array).all():
                raise FieldError(f"{name}: holds values that are not finite")
    except FieldError as error:
        raise DatasetError(path, f"{error}: {REMAKE}") from error
