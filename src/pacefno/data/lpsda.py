"""LPSDA's own files, so that theirs can be read here and ours there: one HDF5 file per split.

A file holds one group, named like its mode, with ``pde_<snapshots>-<points>`` of shape
``(N, snapshots, points)``, ``x`` ``(N, points)``, ``t`` ``(N, snapshots)``, ``dx`` and ``dt``
``(N,)``. Ours also say at the root what they were made from, which LPSDA ignores.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import h5py
import numpy as np
import torch

from pacefno.data.formats import plain_values
from pacefno.data.recipe import LPSDA_MODES, Arrays, Document, TrajectoryRecipe
from pacefno.data.samples import Grid, Trajectories
from pacefno.data.store import (
    DamagedError,
    DatasetError,
    checksum,
    opened,
    read_arrays,
    read_document,
    verify,
    write_split,
)
from pacefno.errors import UsageError
from pacefno.fields import Box
from pacefno.registry import unknown

VALUES = re.compile(r"pde_([1-9]\d*)-([1-9]\d*)")
ALIKE = 1e-6  # relative; coordinates are sums of rounded steps


def file_name(equation: str, mode: str, samples: int, suffix: str = "") -> str:
    """The name that LPSDA gives a file: only that of the training split says how many samples."""
    count = [str(samples)] if mode == "train" else []
    return "_".join([equation, mode, *count, *([suffix] if suffix else [])]) + ".h5"


def write_lpsda(
    path: Path, mode: str, trajectories: Trajectories, first: int, document: Document | None = None
) -> None:
    """Write trajectories, of which the first snapshot is number ``first`` since time 0."""
    assert trajectories.box is not None, "the layout stores a box of each trajectory"
    values, box = trajectories.values.double().numpy(), trajectories.box.to(torch.float64)
    arrays = {"values": values, "length": box.lengths[:, 0].numpy(), "step": box.step.numpy()}
    write_split(path, [_columns(arrays, first)], len(values), document, mode)


def _columns(arrays: Arrays, first: int) -> Arrays:
    """The arrays of a recipe as LPSDA has them."""
    values, step = arrays["values"], arrays["step"]
    _, snapshots, points = values.shape
    cell = arrays["length"] / points
    return {
        f"pde_{snapshots}-{points}": values,
        "x": cell[:, None] * np.arange(points),
        "dx": cell,
        "t": step[:, None] * (first + np.arange(snapshots)),
        "dt": step,
    }


def read_lpsda(path: Path, mode: str) -> Trajectories:
    """All trajectories of a file in float64; shapes, coordinates, values and sum are checked."""
    with opened(path) as file:
        name = _values_name(path, file, mode)
        wanted = (name, "x", "dx", "t", "dt")
        if missing := sorted(set(wanted) - set(file[mode])):
            reason = f"the group {mode!r} has no {', '.join(missing)}"
            raise DatasetError(path, f"{reason}: expected {', '.join(wanted)}")
        arrays: Arrays = {key: plain_values(path, file[mode], key) for key in wanted}
        stored_sum = file.attrs.get("checksum")
    _check_shapes(path, arrays, name)
    if stored_sum is not None and stored_sum != checksum(arrays):
        raise DamagedError(path, "its values do not match its own checksum: make or copy it again")
    _check_values(path, arrays)
    values, cell, step = (
        torch.from_numpy(arrays[key].astype(np.float64, copy=False)) for key in (name, "dx", "dt")
    )
    return Trajectories(values, Box((cell * values.shape[2])[:, None], step))


def _values_name(path: Path, file: h5py.File, mode: str) -> str:
    """The name of the one array of solutions in the group of a mode."""
    if mode not in list(file):
        reason = f"expected a group {mode!r}, got {sorted(file)}"
        raise DatasetError(path, f"{reason}: is it the file of another split?")
    link = file.get(mode, getlink=True)
    if not isinstance(link, h5py.HardLink) or file.get(mode, getclass=True) is not h5py.Group:
        raise DatasetError(path, f"{mode!r} is a link or no group: expected a group of arrays")
    names = [name for name in file[mode] if VALUES.fullmatch(name)]
    if len(names) != 1:
        reason = (
            f"expected one array pde_<snapshots>-<points> in {mode!r}, got {sorted(file[mode])}"
        )
        raise DatasetError(path, f"{reason}: keep one resolution per file")
    return names[0]


def _check_shapes(path: Path, arrays: Arrays, name: str) -> None:
    snapshots, points = (int(number) for number in name.removeprefix("pde_").split("-"))
    count = len(arrays[name]) if arrays[name].ndim else 0
    expected: dict[str, tuple[int, ...]] = {
        name: (count, snapshots, points),
        "x": (count, points),
        "t": (count, snapshots),
        "dx": (count,),
        "dt": (count,),
    }
    for key, shape in expected.items():
        array = arrays[key]
        if array.shape != shape or array.dtype.kind != "f" or 0 in shape:
            wanted = f"{('N', *shape[1:])} of floats".replace("'", "")
            got = f"{array.shape} {array.dtype}"
            raise DatasetError(path, f"{key!r}: expected {wanted}, the same N for all, got {got}")


def _check_values(path: Path, arrays: Arrays) -> None:
    def first_of(bad: Any, text: str) -> None:
        if bad.any():
            raise DatasetError(path, f"trajectory {int(bad.argmax())} {text}: solve it again")

    for key in ("dx", "dt"):
        first_of(~(arrays[key] > 0), f"was never solved, its {key!r} is not positive")
    for key, array in arrays.items():
        bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
        first_of(bad, f"(of {int(bad.sum())}) holds NaN or infinity in {key!r}")
    for key, step in (("x", "dx"), ("t", "dt")):
        slack = ALIKE * (np.abs(arrays[step]) + np.abs(arrays[key]).max(axis=1))
        steps = np.diff(arrays[key], axis=1) - arrays[step][:, None]
        uneven = np.abs(steps).max(axis=1, initial=0) > slack
        first_of(uneven, f"has steps of {key!r} that are not its {step!r}")


@final
@dataclass(frozen=True)
class TrajectoryDataset:
    """A folder of LPSDA's files, ours or theirs, one per split."""

    path: Path
    document: Document
    recipe: TrajectoryRecipe
    splits = tuple(LPSDA_MODES)

    @property
    def recipe_name(self) -> str:
        return self.recipe.name

    def file(self, split: str) -> Path:
        """The file of a split, however many samples it has; if there is none, where it will be."""
        if split not in self.splits:
            raise UsageError(unknown("split", split, self.splits))
        (equation, suffix), mode = self.recipe.file_name, LPSDA_MODES[split]
        pattern = rf"{equation}_{mode}(_\d+)?{'_' + suffix if suffix else ''}\.h5"
        found = sorted(p for p in self.path.glob("*.h5") if re.fullmatch(pattern, p.name))
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise DatasetError(self.path, f"expected one file for {split}, got {names}: keep one")
        samples = self.document["samples"][split]
        return found[0] if found else self.path / file_name(equation, mode, samples, suffix)

    def join(self, split: str, parts: Sequence[Path], rows: int) -> None:
        """Write the file of a split from those of its parts."""
        first = self.recipe.solved - self.recipe.kept
        pieces = (_columns(read_arrays(part), first) for part in parts)
        settings = {**self.document, "split": split}
        write_split(self.file(split), pieces, rows, settings, LPSDA_MODES[split])

    def verify(self, split: str, *, values: bool = True) -> None:
        """Refuse a split of ours that was made with other settings, or a faulty one of anybody."""
        path = self.file(split)
        ours = read_document(path) is not None
        if ours:
            verify(path, {**self.document, "split": split}, values=False)
        try:
            if values:
                self.load(split)
        except DatasetError as error:
            raise (DamagedError(path, error.reason) if ours else error) from None

    def load(self, split: str, grid: Grid = "id", count: int | None = None) -> Trajectories:
        """A split, or its first trajectories, in float64; there is one grid only."""
        if grid != "id":
            raise UsageError(f"trajectories are stored on one grid: expected 'id', got {grid!r}")
        path = self.file(split)
        found = read_lpsda(path, LPSDA_MODES[split])
        wanted, got = (self.recipe.kept, self.recipe.points), tuple(found.values.shape[1:])
        if got != wanted:
            raise DatasetError(path, f"expected {wanted} snapshots and points, got {got}")
        return found if count is None else found.select(slice(count))
