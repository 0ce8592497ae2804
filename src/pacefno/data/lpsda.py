"""LPSDA's own files, so that theirs can be read here and ours there: one HDF5 file per split.

A file holds one group, named like its mode, with ``pde_<frames>-<points>`` ``(N, frames, points)``, ``x`` ``(N, points)``,
``t`` ``(N, frames)``, ``dx`` and ``dt`` ``(N,)``. Ours also say at the root what they were made from; LPSDA ignores that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import h5py
import numpy as np
import torch

from pacefno.data.errors import DatasetError
from pacefno.data.fields import plain_values
from pacefno.data.manifest import regular_size
from pacefno.data.shards import LIBRARY, Arrays, checksum
from pacefno.durable import fsync_dir, fsync_file, make_folder, remove, temporary_sibling
from pacefno.symmetry import Trajectories

MODES: Final = ("train", "valid", "test")
VALUES: Final = re.compile(r"pde_([1-9]\d*)-([1-9]\d*)")
ALIKE: Final = 1e-6  # relative; coordinates are sums of rounded steps


def file_name(equation: str, mode: str, samples: int, suffix: str = "") -> str:
    """The name that LPSDA gives a file: only that of the training split says how many samples it has."""
    count = [str(samples)] if mode == "train" else []
    return "_".join([equation, mode, *count, *([suffix] if suffix else [])]) + ".h5"


# --- writing --------------------------------------------------------------------------------------------------------


def write_lpsda(path: Path, mode: str, trajectories: Trajectories, *, first_frame: int = 0, recipe: str = "") -> None:
    """Write under a temporary name, read it back, force it to the disk, and only then give the file its name.

    ``first_frame`` is the number of the first stored frame since time 0, ``recipe`` a text that says what made the values.
    """
    arrays = _arrays(trajectories, first_frame)
    temporary = temporary_sibling(path)
    remove(temporary)
    try:
        make_folder(path.parent)
        with h5py.File(temporary, "w", libver=LIBRARY) as file:
            group = file.create_group(mode)
            for name, array in arrays.items():
                group.create_dataset(name, data=array, track_times=False)  # a time would make equal data unequal bytes
            file.attrs["recipe"] = recipe
            file.attrs["checksum"] = checksum(arrays)
        read_lpsda(temporary, mode)
        fsync_file(temporary)
        os.replace(temporary, path)
        fsync_dir(path.parent)
    except (OSError, RuntimeError) as error:  # h5py reports a full disk as either
        raise DatasetError(path, f"could not be written ({error}): check the folder and the free space") from error
    finally:
        remove(temporary)


def _arrays(trajectories: Trajectories, first_frame: int) -> Arrays:
    trajectories = trajectories.to(torch.float64)
    _, frames, n = trajectories.u.shape
    cell, spacing = trajectories.cell, trajectories.spacing
    return {
        f"pde_{frames}-{n}": trajectories.u.numpy(),
        "x": (cell[:, None] * torch.arange(n)).numpy(),
        "dx": cell.numpy(),
        "t": (spacing[:, None] * (first_frame + torch.arange(frames))).numpy(),
        "dt": spacing.numpy(),
    }


# --- reading --------------------------------------------------------------------------------------------------------


def read_lpsda(path: Path, mode: str) -> Trajectories:
    """All trajectories of a file, in float64; shapes, coordinates and values are checked, and the sum where there is one."""
    with _open(path) as file:
        name = _values_name(path, file, mode)
        group = file[mode]
        missing = sorted({"x", "t", "dx", "dt"} - set(group))
        if missing:
            raise DatasetError(path, f"the group {mode!r} has no {', '.join(missing)}: expected pde_*, x, t, dx and dt")
        arrays: Arrays = {key: plain_values(path, group, key) for key in (name, "x", "dx", "t", "dt")}
        stored_sum = file.attrs.get("checksum")
    _check_shapes(path, arrays, name)
    if isinstance(stored_sum, str) and checksum(arrays) != stored_sum:
        raise DatasetError(path, "its values do not match its own checksum: delete it and make or copy it again")
    _check_values(path, arrays, name)
    u = torch.from_numpy(arrays[name].astype(np.float64, copy=False))
    cell, spacing = (torch.from_numpy(arrays[key].astype(np.float64, copy=False)) for key in ("dx", "dt"))
    return Trajectories(u, cell * u.shape[2], spacing)


def read_recipe(path: Path) -> str | None:
    """What a file says it was made from; None for a file of others."""
    with _open(path) as file:
        text = file.attrs.get("recipe")
    return text if isinstance(text, str) else None


@contextmanager
def _open(path: Path) -> Iterator[h5py.File]:
    if regular_size(path) is None:
        raise DatasetError(path, "no such file")
    try:
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise DatasetError(path, f"is truncated or no HDF5 file ({error}): make or copy it again") from error


def _values_name(path: Path, file: h5py.File, mode: str) -> str:
    """The name of the one array of solutions in the group of the mode."""
    if mode not in file:
        raise DatasetError(path, f"expected a group {mode!r}, got {sorted(file)}: is it the file of another split?")
    if not isinstance(file.get(mode, getlink=True), h5py.HardLink) or file.get(mode, getclass=True) is not h5py.Group:
        raise DatasetError(path, f"{mode!r} is a link or no group: expected a group of arrays")
    names = [name for name in file[mode] if VALUES.fullmatch(name)]
    if len(names) != 1:
        raise DatasetError(path, f"expected one array pde_<frames>-<points> in {mode!r}, got {sorted(file[mode])}")
    return names[0]


def _check_shapes(path: Path, arrays: Arrays, name: str) -> None:
    frames, points = (int(number) for number in name.removeprefix("pde_").split("-"))
    count = len(arrays[name]) if arrays[name].ndim else 0
    expected = {name: (count, frames, points), "x": (count, points), "t": (count, frames), "dx": (count,), "dt": (count,)}
    for key, shape in expected.items():
        array = arrays[key]
        if array.shape != shape or array.dtype.kind != "f" or 0 in shape:
            wanted = f"{('N', *shape[1:])} of floats".replace("'", "")
            raise DatasetError(path, f"{key!r}: expected {wanted}, N the same for all, got {array.shape} {array.dtype}")


def _check_values(path: Path, arrays: Arrays, name: str) -> None:
    for step in ("dx", "dt"):
        unset = ~(arrays[step] > 0)
        if unset.any():
            which = int(unset.argmax())
            raise DatasetError(path, f"trajectory {which} has {step} {arrays[step][which]}: was it never solved? leave it out")
    for key, array in arrays.items():
        bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
        if bad.any():
            where = f"{int(bad.sum())} trajectories, the first is {int(bad.argmax())}"
            raise DatasetError(path, f"{key!r} holds NaN or infinity in {where}: solve them again")
    for key, step in (("x", "dx"), ("t", "dt")):
        slack = ALIKE * (np.abs(arrays[step]) + np.abs(arrays[key]).max(axis=1))
        uneven = np.abs(np.diff(arrays[key], axis=1) - arrays[step][:, None]).max(axis=1, initial=0) > slack
        if uneven.any():
            raise DatasetError(path, f"trajectory {int(uneven.argmax())}: the steps of {key!r} are not its {step!r}")
