"""Fields from anywhere, for ``pacefno predict``: .h5, .npy and .npz files in, the same kinds out."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pacefno.data.errors import DatasetError
from pacefno.durable import remove, temporary_sibling
from pacefno.symmetry.translation import AXES

SUFFIXES = (".h5", ".hdf5", ".npy", ".npz")
NAME = "input"
MAX_EXPANSION = 100  # declared over stored bytes; compression of real fields stays far below


@dataclass(frozen=True)
class Fields:
    """Values ``(N, C, *grid)`` as stored, the coordinates that came with them, and the horizon they are meant for."""

    values: Tensor
    coordinates: dict[str, Tensor]
    horizon: float | None


def read_fields(path: Path, name: str = NAME) -> Fields:
    """The array ``name`` of a file (of an .npy file: its only one). HDF5 and .npz may carry axes x, y, z and ``horizon``."""
    check_suffix(path)
    if not path.is_file():
        raise DatasetError(path, "no such file")
    try:
        arrays = _read_hdf5(path, name) if path.suffix in (".h5", ".hdf5") else _read_numpy(path, name)
    except (OSError, ValueError, RuntimeError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError(path, f"is truncated or not a {path.suffix} file ({error})") from error
    values = arrays.pop(name)
    if values.dtype.kind != "f" or values.dtype.itemsize > 8:
        raise DatasetError(path, f"{name!r}: expected real numbers (float16, float32, float64), got dtype {values.dtype}")
    coordinates = {axis: torch.from_numpy(arrays[axis].astype(np.float64)) for axis in AXES if axis in arrays}
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    return Fields(torch.from_numpy(values), coordinates, _horizon(path, arrays))


def _horizon(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> float | None:
    if "horizon" not in arrays:
        return None
    if arrays["horizon"].size != 1 or arrays["horizon"].dtype.kind not in "fi":
        raise DatasetError(path, f"'horizon': expected one number, got {arrays['horizon'].shape} {arrays['horizon'].dtype}")
    return float(arrays["horizon"].reshape(()))


def write_fields(path: Path, arrays: dict[str, Tensor]) -> None:
    """Write under a temporary name, then rename: a file of that name is always whole. An .npy file holds the first array."""
    check_suffix(path)
    values: dict[str, npt.NDArray[Any]] = {name: tensor.cpu().numpy() for name, tensor in arrays.items()}
    temporary = temporary_sibling(path)
    try:
        if path.suffix in (".h5", ".hdf5"):
            with h5py.File(temporary, "w") as file:
                for name, array in values.items():
                    file.create_dataset(name, data=array, track_times=False)
        else:
            with temporary.open("wb") as stream:
                if path.suffix == ".npy":
                    np.save(stream, next(iter(values.values())), allow_pickle=False)
                else:
                    np.savez(stream, **values)  # type: ignore[arg-type]
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        raise DatasetError(path, f"could not be written ({error}): check the folder and the free space") from error
    finally:
        remove(temporary)


def check_suffix(path: Path) -> None:
    """Refuse a file kind before any work is done for it."""
    if path.suffix not in SUFFIXES:
        raise DatasetError(path, f"expected a name that ends in {', '.join(SUFFIXES)}, got {path.suffix or 'no ending'!r}")


def _read_numpy(path: Path, name: str) -> dict[str, npt.NDArray[Any]]:
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return {name: loaded}
    with loaded:
        _require(path, name, list(loaded))
        for member in loaded.zip.infolist():
            if member.file_size > MAX_EXPANSION * (member.compress_size + 1024):
                raise DatasetError(path, f"{member.filename!r} is refused as a decompression bomb")
        return {key: loaded[key] for key in loaded if key in (name, "horizon", *AXES)}


def _read_hdf5(path: Path, name: str) -> dict[str, npt.NDArray[Any]]:
    with h5py.File(path, "r", locking=False) as file:
        _require(path, name, list(file))
        arrays = {key: plain_values(path, file, key) for key in (name, "horizon", *AXES) if key in file}
        if "horizon" in file.attrs:
            arrays["horizon"] = np.asarray(file.attrs["horizon"])
    return arrays


def _require(path: Path, name: str, present: list[str]) -> None:
    if name not in present:
        raise DatasetError(path, f"holds {sorted(present)}, but no {name!r}: name the array with --name")


def plain_values(path: Path, file: h5py.File, key: str) -> npt.NDArray[Any]:
    """A dataset whose values lie in this very file; links and virtual datasets could show any file of the machine."""
    if not isinstance(file.get(key, getlink=True), h5py.HardLink) or file.get(key, getclass=True) is not h5py.Dataset:
        raise DatasetError(path, f"{key!r} is a link or a group, expected a plain dataset")
    dataset = file[key]
    plist = dataset.id.get_create_plist()
    if plist.get_external_count() or plist.get_layout() == h5py.h5d.VIRTUAL:
        raise DatasetError(path, f"{key!r} keeps its values in other files, which are never opened")
    declared, stored = dataset.size * dataset.dtype.itemsize, dataset.id.get_storage_size()
    if declared > MAX_EXPANSION * (stored + 1024):
        raise DatasetError(path, f"{key!r} declares {declared} bytes and stores {stored}: refused as a decompression bomb")
    values: npt.NDArray[Any] = dataset[()]
    return values
