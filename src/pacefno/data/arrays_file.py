"""Fields from anywhere, for ``pacefno predict``: any format of files in, arrays by name out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import h5py
import numpy as np
import torch
from torch import Tensor

from pacefno.data.formats import (
    CHANNEL,
    FORMATS,
    SAMPLE,
    TIME,
    Array,
    Contents,
    Hdf5,
    check_real,
    open_file,
)
from pacefno.data.store import DatasetError
from pacefno.fields import AXES
from pacefno.files import replacing

WRITTEN = (".h5", ".hdf5", ".npy", ".npz")


@final
@dataclass(frozen=True)
class StoredFields:
    """Values ``(N, C, *grid)`` as stored, the axes that came with them, and their horizon."""

    values: Tensor
    coordinates: dict[str, Tensor]  # by the name of the axis, float64
    horizon: float | None


def check_suffix(path: Path, suffixes: tuple[str, ...] = WRITTEN) -> None:
    """Refuse a kind of file that cannot be written, before any work is done."""
    if path.suffix not in suffixes:
        reason = f"expected an ending out of {', '.join(suffixes)}, got {path.suffix or 'none'!r}"
        raise DatasetError(path, f"{reason}: give it one")


def read_fields(path: Path, name: str = "input") -> StoredFields:
    """The array ``name`` of a file (of an .npy file its only one), in the precision it has.

    A file may also hold the points of the axes ``x``, ``y``, ``z`` and the number ``horizon``.
    """
    check_suffix(path, tuple(suffix for kind in FORMATS.values() for suffix in kind.suffixes))
    contents = open_file(path)
    if contents.nameless:
        name = next(iter(contents.arrays))
    elif name not in contents.arrays:
        present = sorted(contents.arrays)
        raise DatasetError(path, f"holds {present}, no {name!r}: name the array (--name)")
    array = contents.arrays[name].check("f")
    values = _in_order(array.values(), array.axes)
    known = {key.lower(): one for key, one in contents.arrays.items() if len(one.shape) == 1}
    axes = {axis: known[axis].check().values() for axis in AXES if axis in known and axis != name}
    return StoredFields(
        torch.from_numpy(np.array(values)),  # a copy: the file may change, or be written to
        {axis: torch.from_numpy(array.astype(np.float64)) for axis, array in axes.items()},
        _horizon(contents),
    )


def _in_order(values: Array, roles: tuple[str, ...]) -> Array:
    """Values whose axes a file names as ``(sample, channel, *grid)``, snapshots after another."""
    order = [roles.index(role) for role in (SAMPLE, TIME, CHANNEL, *AXES) if role in roles]
    values = values.transpose(order) if roles else values
    if {TIME, CHANNEL} <= set(roles):
        start = int(SAMPLE in roles)
        values = values.reshape(*values.shape[:start], -1, *values.shape[start + 2 :])
    return values


def write_fields(path: Path, arrays: dict[str, Tensor]) -> None:
    """Write arrays by name; an .npy file holds the first only. The file is whole or absent."""
    check_suffix(path)
    values: dict[str, Array] = {name: tensor.cpu().numpy() for name, tensor in arrays.items()}
    try:
        with replacing(path) as temporary:
            if path.suffix in Hdf5.suffixes:
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


def _horizon(contents: Contents) -> float | None:
    stored = contents.arrays.get("horizon")
    found: Any = contents.attributes.get("horizon") if stored is None else stored.values()
    if found is None:
        return None
    array = np.asarray(found)
    check_real(contents.path, "horizon", array.dtype)
    if array.size != 1:
        reason = f"'horizon': expected one number, got shape {array.shape}"
        raise DatasetError(contents.path, f"{reason}: give one")
    return float(array.reshape(()))
