"""Fields from anywhere, for ``pacefno predict``: .h5, .npy and .npz files in, the same kinds out.

These files come from strangers. Nothing in them is unpickled, no link out of them is followed, and
no array is read that declares far more than the file holds.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final
from zipfile import BadZipFile

import h5py
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pacefno.data.store import DatasetError
from pacefno.fields import AXES
from pacefno.files import replacing

Array: TypeAlias = npt.NDArray[Any]

HDF5 = (".h5", ".hdf5")
SUFFIXES = (*HDF5, ".npy", ".npz")
MAX_EXPANSION = 100  # declared over stored bytes; compressed fields stay far below
UNREADABLE = (OSError, ValueError, RuntimeError, EOFError, MemoryError, BadZipFile, zlib.error)


@final
@dataclass(frozen=True)
class StoredFields:
    """Values ``(N, C, *grid)`` as stored, the axes that came with them, and their horizon."""

    values: Tensor
    coordinates: dict[str, Tensor]  # by the name of the axis, float64
    horizon: float | None


def check_suffix(path: Path) -> None:
    """Refuse a kind of file that can be neither read nor written, before any work is done."""
    if path.suffix not in SUFFIXES:
        reason = f"expected an ending out of {', '.join(SUFFIXES)}, got {path.suffix or 'none'!r}"
        raise DatasetError(path, f"{reason}: give it one")


def read_fields(path: Path, name: str = "input") -> StoredFields:
    """The array ``name`` of a file (of an .npy file its only one), in the precision it has.

    HDF5 and .npz files may also hold the axes ``x``, ``y``, ``z`` and the number ``horizon``.
    """
    check_suffix(path)
    if not path.is_file():
        raise DatasetError(path, "there is no such file: check the path")
    try:
        arrays = _read_hdf5(path, name) if path.suffix in HDF5 else _read_numpy(path, name)
    except UNREADABLE as error:
        reason = f"is truncated or no {path.suffix} file ({error})"
        raise DatasetError(path, f"{reason}: write or copy it again") from error
    values = _check_real(path, name, arrays[name], "f")
    axes = {axis: _check_real(path, axis, arrays[axis]) for axis in AXES if axis in arrays}
    return StoredFields(
        torch.from_numpy(values.astype(values.dtype.newbyteorder("="), copy=False)),
        {axis: torch.from_numpy(array.astype(np.float64)) for axis, array in axes.items()},
        _horizon(path, arrays),
    )


def write_fields(path: Path, arrays: dict[str, Tensor]) -> None:
    """Write arrays by name; an .npy file holds the first only. The file is whole or absent."""
    check_suffix(path)
    values: dict[str, Array] = {name: tensor.cpu().numpy() for name, tensor in arrays.items()}
    try:
        with replacing(path) as temporary:
            if path.suffix in HDF5:
                with h5py.File(temporary, "w") as file:
                    for name, array in values.items():
                        file.create_dataset(name, data=array, track_times=False)
                return
            with temporary.open("wb") as stream:
                if path.suffix == ".npy":
                    np.save(stream, next(iter(values.values())), allow_pickle=False)
                else:
                    np.savez(stream, **values)  # type: ignore[arg-type]
    except (OSError, RuntimeError) as error:  # h5py reports a full disk as either
        todo = "check the folder and the free space"
        raise DatasetError(path, f"could not be written ({error}): {todo}") from error


def plain_values(path: Path, file: h5py.Group, key: str) -> Array:
    """An array whose values lie in this very file; a link could show any file of the machine."""
    link = file.get(key, getlink=True)  # first of all: even to ask what it leads to would open it
    if not isinstance(link, h5py.HardLink) or file.get(key, getclass=True) is not h5py.Dataset:
        raise DatasetError(path, f"{key!r} is a link or a group: expected an array, stored here")
    dataset = file[key]
    plist = dataset.id.get_create_plist()
    if plist.get_external_count() or plist.get_layout() == h5py.h5d.VIRTUAL:
        reason = f"{key!r} keeps its values in other files, which are never opened"
        raise DatasetError(path, f"{reason}: store them in this one")
    declared, stored = dataset.size * dataset.dtype.itemsize, dataset.id.get_storage_size()
    _check_expansion(path, key, declared, stored)
    values: Array = dataset[()]
    return values


def _read_hdf5(path: Path, name: str) -> dict[str, Array]:
    with h5py.File(path, "r", locking=False) as file:
        names = list(file)
        _require(path, name, names)
        wanted = [key for key in (name, "horizon", *AXES) if key in names]
        arrays = {key: plain_values(path, file, key) for key in wanted}
        if "horizon" in file.attrs:
            arrays["horizon"] = np.asarray(file.attrs["horizon"])
    return arrays


def _read_numpy(path: Path, name: str) -> dict[str, Array]:
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return {name: loaded}
    with loaded:
        _require(path, name, list(loaded))
        for member in loaded.zip.infolist():
            _check_expansion(path, member.filename, member.file_size, member.compress_size)
        return {key: loaded[key] for key in loaded if key in (name, "horizon", *AXES)}


def _require(path: Path, name: str, present: list[str]) -> None:
    if name not in present:
        raise DatasetError(path, f"holds {sorted(present)}, no {name!r}: name the array (--name)")


def _check_expansion(path: Path, key: str, declared: int, stored: int) -> None:
    if declared > MAX_EXPANSION * (stored + 1024):
        reason = f"{key!r} declares {declared} bytes and stores {stored}"
        raise DatasetError(path, f"{reason}: refused as a decompression bomb; store plain values")


def _check_real(path: Path, name: str, array: Array, kinds: str = "fiu") -> Array:
    if array.dtype.kind not in kinds or array.dtype.itemsize > 8:
        wanted = "float16, float32 or float64" if kinds == "f" else "real numbers"
        raise DatasetError(path, f"{name!r}: expected {wanted}, got {array.dtype}: convert it")
    return array


def _horizon(path: Path, arrays: dict[str, Array]) -> float | None:
    if "horizon" not in arrays:
        return None
    found = _check_real(path, "horizon", arrays["horizon"])
    if found.size != 1:
        raise DatasetError(path, f"'horizon': expected one number, got shape {found.shape}")
    return float(found.reshape(()))
