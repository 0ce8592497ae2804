"""Other people's files, opened lazily: shapes and attributes first, values when they are asked for.

A format is one small class and one line in the registry, ``@register("format", NAME)``. It turns a
file into :class:`Contents`: arrays by name, with the roles of their axes where the file says them.
A folder or a pattern of several files with one layout is opened as one. These files come from
strangers. Nothing in them is unpickled but plain tensors, no link out of them
is followed, and no array is read that declares far more than the file holds.
"""

from __future__ import annotations

import glob
import json
import math
import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, final

import h5py
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pacefno.data.store import DatasetError
from pacefno.errors import UsageError, require
from pacefno.fields import AXES
from pacefno.registry import build, register, registered

Array: TypeAlias = npt.NDArray[Any]
Index: TypeAlias = tuple[int | slice, ...]

SAMPLE, TIME, CHANNEL = "sample", "time", "channel"
ROLES = (SAMPLE, TIME, CHANNEL, *AXES)
WORDS = {  # what others call the axes
    SAMPLE: "sample samples n batch trajectory trajectories traj realization realisation ensemble "
    "member run simulation case",
    TIME: "time times t step snapshot",
    CHANNEL: "channel channels c component field variable",
    "x": "x lon longitude",
    "y": "y lat latitude",
    "z": "z lev level",
}
ROLE_OF = {word: role for role, words in WORDS.items() for word in words.split()}
COUNTERS = ("step", "snapshot")  # count snapshots, or steps of a solver: no times
COORDINATES = ("{}", "{}-coordinate", "{}_coordinate")
MAX_EXPANSION = 100  # declared over stored bytes; compressed fields stay far below
MAX_COORDINATES = 10**7  # points of an axis; more would be no axis
CHUNK_CACHE_BYTES = 2**25  # of an HDF5 array that is stored in chunks
MAX_DEPTH = 4  # of groups within groups that are looked into
MAX_OPEN = 4  # files of a folder that stay open


@final
@dataclass(frozen=True)
class StoredArray:
    """An array in a file: all that is known before a value of it is read."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fetch: Callable[[Index], Any]  # the values at an index of whole numbers and slices
    stored: int | None = None  # bytes in the file, where it says
    axes: tuple[str, ...] = ()  # the role of each axis, where the file says it

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def lists_points(self) -> bool:
        """Whether it lists points of an axis: one row, or one per sample, that only increases."""
        small = len(self.shape) in (1, 2) and math.prod(self.shape) <= MAX_COORDINATES
        if not small or 0 in self.shape or self.dtype.kind not in "fiu":
            return False
        return len(self.shape) == 1 or bool((np.diff(self.values()) > 0).all())

    def check(self, kinds: str = "fiu") -> StoredArray:
        """Refuse what is not made of real numbers, or declares far more than the file holds."""
        check_real(self.path, self.name, self.dtype, kinds)
        if self.stored is not None:
            _check_expansion(self.path, self.name, self.nbytes, self.stored)
        return self

    def values(self, index: Index = ()) -> Array:
        """The values at an index of whole numbers and slices, in the byte order of this machine."""
        self.check()
        with _readable(self.path):
            found = np.asarray(self.fetch(index))
        return found.astype(found.dtype.newbyteorder("="), copy=False)


class Member(NamedTuple):
    """A further file of the same layout, whose samples follow; opened when they are read."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]  # of its arrays
    open: Callable[[], Contents]


@final
@dataclass(frozen=True)
class Contents:
    """What a file holds, or the first of several; values stay in it until they are read."""

    path: Path
    layout: str  # how the file is organised, in words
    arrays: Mapping[str, StoredArray]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    periodic: Mapping[str, bool] = field(default_factory=dict)  # by axis, where the file says it
    notes: tuple[str, ...] = ()  # what was left out or handled, for people
    nameless: bool = False  # the format has one array without a name
    more: tuple[Member, ...] = ()
    group: tuple[str, ...] = ()  # of the arrays that are read, whose coordinates count

    def beside(self, name: str) -> Contents:
        """The same, with the coordinates that are nearest to an array."""
        return replace(self, group=tuple(name.split("/")[:-1]))

    def array(self, name: str) -> StoredArray:
        """An array by its name."""
        if name not in self.arrays:
            raise DatasetError(
                self.path,
                f"holds {sorted(self.arrays)}, no {name!r}: name one of these in a document "
                "(pacefno inspect FILE --write other.toml)",
            )
        return self.arrays[name]

    def coordinate(self, axis: str) -> Array | None:
        """The points of an axis (x, y, z, time) in float64; None where the file has none.

        They may stand once per sample if all samples have the same. Of several the nearest to the
        arrays that are read counts, then that with the usual name.
        """
        words = [word for word in WORDS[axis].split() if word not in COUNTERS]
        names = [end.format(word) for word in words for end in COORDINATES]

        def rank(array: StoredArray) -> tuple[int, int, int]:
            *group, name = array.name.split("/")
            pairs = zip(group, self.group, strict=False)
            shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
            return -shared, len(group), names.index(name.lower())

        fit = [a for a in self.arrays.values() if a.name.split("/")[-1].lower() in names]
        fit = sorted((array for array in fit if array.lists_points), key=rank)
        found = [self._points(array) for array in fit if rank(array) == rank(fit[0])]
        if any(not _as_spaced(found[0], other) for other in found[1:]):
            several = " and ".join(repr(array.name) for array in fit[: len(found)])
            reason = f"has several coordinates {axis}, {several}, which differ"
            raise DatasetError(self.path, f"{reason}: keep one file for each box")
        return found[0] if found else None

    def _points(self, array: StoredArray) -> Array:
        """The points that an array lists, once or for each sample."""
        points = array.values().astype(np.float64)
        rows = points.reshape(-1, points.shape[-1])
        if not all(_as_spaced(rows[0], row) for row in rows[1:]):
            reason = f"{array.name!r} differs from sample to sample, and a task has one box"
            todo = "bring all to one box and one time step, or keep a file for each"
            raise DatasetError(self.path, f"{reason}: {todo}")
        return np.asarray(rows[0])


def _as_spaced(first: Array, other: Array) -> bool:
    """Whether points lie as far apart as others do, to a thousandth of all of them."""
    if first.shape != other.shape:
        return False
    return bool(np.abs(np.diff(other) - np.diff(first)).max(initial=0) <= 1e-3 * np.ptp(first))


class FileFormat(ABC):
    """How one kind of file is opened; register it, ``@register("format", NAME)``."""

    suffixes: tuple[str, ...]

    @abstractmethod
    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether a path, of which these are the first bytes, is of this kind whatever its name."""

    @abstractmethod
    def open(self, path: Path) -> Contents:
        """What the file holds, without reading values."""


def files_of(path: Path) -> list[Path]:
    """The file of a path, or the files of a folder or of a pattern such as ``runs/*.h5``."""
    if not path.exists() and glob.has_magic(str(path)):
        found = sorted(map(Path, glob.glob(str(path))))
        if not found:
            raise DatasetError(path, "no file fits this pattern: check it")
        return found
    if not path.is_dir() or path.suffix in Zarr.suffixes or Zarr().recognises(path, b""):
        return [path]
    endings = {ending for name in FORMATS for ending in _format(name).suffixes}
    found = sorted(one for one in path.iterdir() if one.suffix.lower() in endings)
    if len(kinds := sorted({one.suffix.lower() for one in found})) != 1:
        what = f"is a folder with files {', '.join(kinds)}" if kinds else "is a folder without data"
        todo = f"name those that belong together, in quotes: '{path.name}/*.h5'"
        raise DatasetError(path, f"{what}: {todo}")
    return found


def open_file(path: Path, name: str = "") -> Contents:
    """Open a file in the format of this name, or in the one that its ending and its bytes show.

    Several files, a folder or a pattern, are one: the samples of one follow those of another.
    """
    paths = files_of(path)
    first = _open_one(paths[0], name)
    if len(paths) == 1:
        return first
    more = [_member(first, _open_one(other, name), name) for other in paths[1:]]
    layout = f"{len(paths)} files of one layout, {first.layout}"
    return replace(first, path=path, layout=layout, more=tuple(more))


def _member(first: Contents, other: Contents, name: str) -> Member:
    """A further file, if it has the arrays and the coordinates of the first."""
    arrays = {key: (len(a.shape), a.dtype.kind) for key, a in other.arrays.items()}
    if {key: (len(a.shape), a.dtype.kind) for key, a in first.arrays.items()} != arrays:
        held = f"holds {sorted(arrays)}, and {first.path.name} {sorted(first.arrays)}"
        raise DatasetError(other.path, f"{held}: expected one layout; name a pattern that fits it")
    for key, array in other.arrays.items():
        mine, theirs = (" ".join(one.axes) for one in (first.arrays[key], array))
        if mine != theirs:
            reason = f"{key!r} has the axes {theirs}, in {first.path.name} {mine}"
            raise DatasetError(other.path, f"{reason}: bring all to one order")
    for axis in (*AXES, TIME):
        points, others = (c.coordinate(axis) for c in (first, other))
        if points is None or others is None:
            continue
        if len(points) != len(others) or not np.allclose(np.diff(points), np.diff(others), 1e-3, 0):
            reason = f"its coordinates {axis} are not spaced as in {first.path.name}"
            raise DatasetError(other.path, f"{reason}: bring all to one box and one step")
    shapes = {key: array.shape for key, array in other.arrays.items()}
    return Member(other.path, shapes, partial(_open_again, other.path, name))


@lru_cache(maxsize=MAX_OPEN)
def _open_again(path: Path, name: str) -> Contents:
    return _open_one(path, name)


def _format(name: str) -> FileFormat:
    found: FileFormat = build({"part": "format", "name": name})
    return found


def _open_one(path: Path, name: str) -> Contents:
    if not path.exists():
        raise DatasetError(path, "there is no such file: check the path")
    known = {n: _format(n) for n in FORMATS}
    by_ending = [n for n, kind in known.items() if path.suffix.lower() in kind.suffixes]
    chosen = name or (by_ending[0] if by_ending else "")
    kind = _format(chosen) if chosen else None
    head = b"" if path.is_dir() else _head(path)
    if kind is None or not kind.recognises(path, head):
        found = [n for n, other in known.items() if other.recognises(path, head)]
        if found:
            suffix = known[found[0]].suffixes[0]
            what = f"looks like {found[0]} inside, not {chosen}" if chosen else f"is {found[0]}"
            todo = f"name it {path.stem}{suffix}, or say format = {found[0]!r}"
            raise DatasetError(path, f"{what}: {todo}")
        if kind is None:
            endings = ", ".join(s for other in known.values() for s in other.suffixes)
            raise DatasetError(path, f"expected a file with an ending out of {endings}")
        what = path.suffix or chosen
        raise DatasetError(path, f"is truncated or no {what} file: write or copy it again")
    with _readable(path):
        return kind.open(path)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(16)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Whatever a library finds wrong with a file is one sentence.

    Damaged bytes make libraries raise errors of any kind; ``--debug`` shows which one it was.
    """
    try:
        yield
    except (DatasetError, UsageError, ModuleNotFoundError):
        raise
    except Exception as error:
        reason = f"is truncated or no {path.suffix} file ({error})"
        raise DatasetError(path, f"{reason}: write or copy it again") from error


def check_real(path: Path, name: str, dtype: np.dtype[Any], kinds: str = "fiu") -> None:
    """Refuse numbers that are no real ones; the sentence says what to do with them."""
    if dtype.kind in kinds and dtype.itemsize <= 8:
        return
    wanted = "float16, float32 or float64" if kinds == "f" else "real numbers"
    todo = {
        "c": "store real and imaginary part as two channels",
        "O": "Python objects are never opened; store plain numbers",
    }.get(dtype.kind, "convert it")
    raise DatasetError(path, f"{name!r}: expected {wanted}, got {dtype}: {todo}")


def _check_expansion(path: Path, key: str, declared: int, stored: int) -> None:
    if declared > MAX_EXPANSION * (stored + 1024):
        reason = f"{key!r} declares {declared} bytes and stores {stored}"
        raise DatasetError(path, f"{reason}: refused as a decompression bomb; store plain values")


# --- numpy ----------------------------------------------------------------------------------------


def _npy_header(path: Path, name: str, stream: Any, size: int) -> tuple[Any, bool, Any, int]:
    """Shape, whether in Fortran's order, type and place of the values; ``size`` bytes in all."""
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise DatasetError(path, f"{name!r} has columns of a table: store plain numbers")
    shape, fortran, dtype = readers[version](stream)
    start = stream.tell()
    declared = math.prod(shape) * dtype.itemsize
    if declared != size - start and not dtype.hasobject:
        reason = f"{name!r} declares {declared} bytes and the file holds {size - start}"
        raise DatasetError(path, f"is truncated or no {path.suffix} file: {reason}; copy it again")
    return shape, fortran, dtype, start


def _mapped(path: Path, header: tuple[Any, bool, Any, int], offset: int = 0) -> Array:
    """An array in its file. Mapped anew for every read: a map keeps in memory what was touched."""
    shape, fortran, dtype, start = header
    if 0 in shape:
        return np.empty(shape, dtype)
    order: Any = "F" if fortran else "C"
    return np.memmap(str(path), dtype, "r", offset + start, shape, order)


@register("format", "npy")
class Npy(FileFormat):
    """One numpy array, mapped into memory."""

    suffixes = (".npy",)

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(b"\x93NUMPY")

    def open(self, path: Path) -> Contents:
        with path.open("rb") as file:
            header = _npy_header(path, "values", file, path.stat().st_size)
        shape, _, dtype, _ = header
        array = StoredArray(path, "values", shape, dtype, lambda i: _mapped(path, header)[i])
        return Contents(path, "one array", {"values": array}, nameless=True)


@register("format", "npz")
class Npz(FileFormat):
    """Arrays by name. What is stored plain is mapped into memory, the rest read once when used."""

    suffixes = (".npz",)

    def recognises(self, path: Path, head: bytes) -> bool:
        names = _members(path) if head.startswith(b"PK") else []
        return any(name.endswith(".npy") for name in names)

    def open(self, path: Path) -> Contents:
        arrays = {}
        with zipfile.ZipFile(path) as file:
            for member in file.infolist():
                _check_expansion(path, member.filename, member.file_size, member.compress_size)
                if member.filename.endswith(".npy"):
                    name = member.filename.removesuffix(".npy")
                    arrays[name] = self._array(path, file, member, name)
        return Contents(path, "arrays by name", arrays)

    def _array(
        self, path: Path, file: zipfile.ZipFile, member: zipfile.ZipInfo, name: str
    ) -> StoredArray:
        with file.open(member) as stream:
            header = _npy_header(path, name, stream, member.file_size)
        plain = member.compress_type == zipfile.ZIP_STORED
        start = _place_of(path, member) if plain else 0
        whole: list[Array] = []  # a compressed array, once it was read

        def fetch(index: Index) -> Any:
            if plain:
                return _mapped(path, header, start)[index]
            if not whole:
                with np.load(path, allow_pickle=False) as opened:
                    whole.append(opened[name])
            return whole[0][index]

        return StoredArray(path, name, header[0], header[2], fetch)


def _members(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as file:
            return file.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return []


def _place_of(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin: after its header, whose length its last fields say."""
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)
        lengths = file.read(4)
    name, extra = (int.from_bytes(part, "little") for part in (lengths[:2], lengths[2:]))
    return member.header_offset + 30 + name + extra


# --- torch ----------------------------------------------------------------------------------------


@register("format", "pt")
class Tensors(FileFormat):
    """A tensor or a dict of tensors, as neuraloperator stores pairs x and y; nothing else is built.

    The tensors stay in the file until they are read.
    """

    suffixes = (".pt", ".pth")

    def recognises(self, path: Path, head: bytes) -> bool:
        names = _members(path) if head.startswith(b"PK") else []
        return any(name.endswith("/data.pkl") for name in names)

    def open(self, path: Path) -> Contents:
        try:
            found = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        except Exception as error:
            if type(error).__name__ == "UnpicklingError":
                todo = "save a dict of tensors, torch.save({'x': x, 'y': y}, path)"
                reason = "holds Python objects other than tensors, which are never opened"
                raise DatasetError(path, f"{reason}: {todo}") from error
            raise
        tensors = found if isinstance(found, dict) else {"values": found}
        for name, tensor in tensors.items():
            if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
                reason = f"{name!r}: expected a dense tensor, got {type(tensor).__name__}"
                raise DatasetError(path, f"{reason}: save a dict of tensors by name")
        arrays = {str(name): self._array(path, str(name), t) for name, t in tensors.items()}
        return Contents(path, "tensors by name", arrays, nameless=tensors is not found)

    def _array(self, path: Path, name: str, tensor: Tensor) -> StoredArray:
        if tensor.dtype == torch.bfloat16:
            raise DatasetError(path, f"{name!r}: numpy has no bfloat16: save it as float32")
        tensor = tensor.detach()
        dtype = tensor[(0,) * tensor.ndim].numpy().dtype if tensor.numel() else np.dtype("f4")
        stored = tensor.untyped_storage().nbytes()
        return StoredArray(
            path, name, tuple(tensor.shape), dtype, lambda i: tensor[i].numpy(), stored
        )


# --- HDF5 -----------------------------------------------------------------------------------------


def plain_values(path: Path, file: h5py.Group, key: str) -> Array:
    """An array whose values lie in this very file; a link could show any file of the machine."""
    array = _hdf5_array(path, file, key, key).check("fiubSOV")
    values: Array = array.fetch(())
    return values


def _check_link(path: Path, group: h5py.Group, key: str, name: str) -> Any:
    """The class behind a name, which may not be a link: even to ask what that is would open it."""
    if not isinstance(group.get(key, getlink=True), h5py.HardLink):
        raise DatasetError(path, f"{name!r} is a link: expected an array, stored in this very file")
    return group.get(key, getclass=True)


def _hdf5_array(path: Path, group: h5py.Group, key: str, name: str) -> StoredArray:
    if _check_link(path, group, key, name) is not h5py.Dataset:
        raise DatasetError(path, f"{name!r} is a link or a group: expected an array, stored here")
    dataset = group[key]
    plist = dataset.id.get_create_plist()
    if plist.get_external_count() or plist.get_layout() == h5py.h5d.VIRTUAL:
        reason = f"{name!r} keeps its values in other files, which are never opened"
        raise DatasetError(path, f"{reason}: store them in this one")
    stored = dataset.id.get_storage_size()
    shape = dataset.shape if dataset.shape is not None else (0,)
    axes = _axes_of_scales(dataset)
    return StoredArray(path, name, shape, dataset.dtype, lambda i: dataset[i], stored, axes)


def _axes_of_scales(dataset: h5py.Dataset) -> tuple[str, ...]:
    """The roles of axes that have a label or a dimension scale; nothing if one of them tells none.

    A scale is known by its name, as the variable of a NetCDF dimension is.
    """
    try:
        words = [
            dim.label or (dim[0].name.split("/")[-1] if len(dim) else "") for dim in dataset.dims
        ]
    except (KeyError, ValueError, RuntimeError):  # a scale that is gone tells nothing
        return ()
    return _roles_of(words)


def _roles_of(words: Sequence[str]) -> tuple[str, ...]:
    """What others call the axes as roles; nothing if one is not known, or two are the same."""
    roles = tuple(ROLE_OF.get(word.lower(), "") for word in words)
    return roles if all(roles) and len(set(roles)) == len(roles) else ()


@register("format", "hdf5")
class Hdf5(FileFormat):
    """HDF5: arrays and groups of arrays, PDEBench's layouts, The Well's, and our own."""

    suffixes = (".h5", ".hdf5", ".hdf")

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(b"\x89HDF\r\n\x1a\n")

    def open(self, path: Path) -> Contents:
        # Some network folders cannot lock; windows that overlap read the same chunks again.
        file = h5py.File(path, "r", locking=False, rdcc_nbytes=CHUNK_CACHE_BYTES)
        names = list(file)
        if names and all(name.isdigit() for name in names):
            return _one_group_per_sample(path, file, sorted(names))
        arrays = dict(_walk(path, file))
        attributes = {key: _plain(value) for key, value in file.attrs.items()}
        contents = Contents(path, "arrays by name", arrays, attributes)
        if _group(file, "dimensions") and _group(file, "t0_fields") is not None:
            return _the_well(contents, file)
        if "tensor" in arrays or any(name.endswith("-coordinate") for name in arrays):
            return replace(contents, layout="PDEBench, one array for all samples")
        return contents


def _group(file: h5py.File, name: str) -> h5py.Group | None:
    """A group by its name; None if there is none. Links have been refused before."""
    found = file.get(name)
    return found if isinstance(found, h5py.Group) else None


def _plain(value: Any) -> Any:
    """An attribute as plain data."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _walk(
    path: Path, group: h5py.Group, before: str = "", depth: int = 0
) -> Iterator[tuple[str, StoredArray]]:
    for key in group:
        name = before + key
        if _check_link(path, group, key, name) is h5py.Dataset:
            yield name, _hdf5_array(path, group, key, name)
        elif depth < MAX_DEPTH and isinstance(group[key], h5py.Group):
            yield from _walk(path, group[key], f"{name}/", depth + 1)


def _one_group_per_sample(path: Path, file: h5py.File, names: list[str]) -> Contents:
    """PDEBench's reaction and shallow-water sets: groups 0000, 0001, ... with data and a grid."""
    first = file[names[0]]
    found = dict(_walk(path, first))
    if "data" not in found:
        raise DatasetError(
            path,
            f"has one group for each sample, and the group {names[0]!r} holds {sorted(found)}: "
            "only an array 'data' in each is read; write it under that name, or one file for each "
            "sample and name their folder",
        )
    space = tuple(axis for axis in AXES if f"grid/{axis}" in found)
    known = (SAMPLE, TIME, *space, CHANNEL)
    grid = {key: array.values() for key, array in found.items() if key.startswith("grid/")}
    samples = []
    for name in names:
        _check_link(path, file, name, name)
        walked = _walk(path, file[name], f"{name}/")
        own = {key.removeprefix(f"{name}/"): array for key, array in walked}
        if "data" not in own:
            raise DatasetError(path, f"{name}/data is missing: write it, or leave the group out")
        one = own["data"].check()
        if (one.shape, one.dtype) != (found["data"].shape, found["data"].dtype):
            reason = f"{name}/data is {one.shape}, {names[0]}/data is {found['data'].shape}"
            raise DatasetError(path, f"{reason}: keep one resolution per file")
        for key, points in grid.items():
            if key not in own or not _as_spaced(points, own[key].values()):
                reason = f"{name}/{key} is not spaced as {names[0]}/{key}, and a task has one box"
                raise DatasetError(path, f"{reason}: keep a file for each box and time step")
        samples.append(one)
    shape = (len(names), *found["data"].shape)

    def fetch(index: Index) -> Any:
        index = (*index, *[slice(None)] * (len(shape) - len(index)))
        if isinstance(index[0], slice):
            rows = range(len(names))[index[0]]
            return np.stack([samples[row].fetch(index[1:]) for row in rows])
        return samples[index[0]].fetch(index[1:])

    axes = known if len(known) == len(shape) and space else ()
    data = StoredArray(path, "data", shape, found["data"].dtype, fetch, axes=axes)
    axes_of_all = {name: found[name] for name in grid}
    return Contents(path, "PDEBench, one group for each sample", {"data": data} | axes_of_all)


def _the_well(contents: Contents, file: h5py.File) -> Contents:
    """The Well: fields of tensor order 0 and 1 with their axes, and what the boundaries are."""
    path, attributes = contents.path, contents.attributes
    if (grid := str(attributes.get("grid_type", "cartesian"))) != "cartesian":
        reason = f"its grid is {grid}, and only periodic cartesian grids are understood"
        raise DatasetError(path, f"{reason}: interpolate it to one")
    dims = [str(_plain(name)) for name in file["dimensions"].attrs.get("spatial_dims", ())]
    arrays, notes = dict(contents.arrays), []
    for group, order in (("t0_fields", 0), ("t1_fields", 1), ("t2_fields", 2)):
        for key in _group(file, group) or ():
            name, attrs = f"{group}/{key}", file[group][key].attrs
            varies = [bool(attrs.get(f"{what}_varying", False)) for what in (SAMPLE, TIME)]
            whole = all(varies) and all(attrs.get("dim_varying", [True]))
            if order == 2 or not whole:
                why = "a matrix" if order == 2 else "the same in all samples, times or along axes"
                notes.append(f"{name} is {why}: left out")
                del arrays[name]
                continue
            axes = (SAMPLE, TIME, *(ROLE_OF.get(d, d) for d in dims), *[CHANNEL] * order)
            arrays[name] = replace(arrays[name], axes=axes)
    periodic = dict.fromkeys(dims, False)
    for condition in (_group(file, "boundary_conditions") or {}).values():
        kind = str(_plain(condition.attrs.get("bc_type", ""))).lower()
        for axis in condition.attrs.get("associated_dims", ()):
            periodic[str(_plain(axis))] = kind == "periodic"
    return replace(
        contents, layout="The Well", arrays=arrays, periodic=periodic, notes=tuple(notes)
    )


# --- xarray ---------------------------------------------------------------------------------------


def _by_xarray(path: Path, dataset: Any, layout: str, stored: int) -> Contents:
    """The variables of a dataset; ``stored`` bytes in all."""
    arrays = {}
    for name, variable in dataset.variables.items():
        known = _roles_of([str(dim) for dim in variable.dims])

        def fetch(index: Index, variable: Any = variable) -> Any:
            return variable[index].values

        key = str(name)
        arrays[key] = StoredArray(path, key, variable.shape, variable.dtype, fetch, stored, known)
    attributes = {str(key): _plain(value) for key, value in dataset.attrs.items()}
    return Contents(path, layout, arrays, attributes)


@register("format", "netcdf")
class NetCdf(FileFormat):
    """NetCDF 3 and 4, through xarray; the names of dimensions tell the axes."""

    suffixes = (".nc", ".nc4", ".cdf")

    def recognises(self, path: Path, head: bytes) -> bool:
        inside = head.startswith(b"\x89HDF\r\n\x1a\n") and path.suffix.lower() in self.suffixes
        return inside or head[:3] == b"CDF"

    def open(self, path: Path) -> Contents:
        xarray, _ = (require(name, "io", "NetCDF") for name in ("xarray", "netCDF4"))
        classic, size = not _head(path).startswith(b"\x89HDF"), path.stat().st_size
        if not classic:  # a link may hide
            with h5py.File(path, "r", locking=False) as file:
                for _ in _walk(path, file):
                    pass
        dataset = xarray.open_dataset(path, engine="netcdf4", decode_times=False, cache=False)
        whole = sum(v.size * v.encoding["dtype"].itemsize for v in dataset.variables.values())
        if classic and whole > size:  # what is missing would be read as 0
            reason = f"declares {whole} bytes and holds {size}"
            raise DatasetError(path, f"is truncated or no .nc file: {reason}; copy it again")
        return _by_xarray(path, dataset, "NetCDF", size)


@register("format", "zarr")
class Zarr(FileFormat):
    """A Zarr folder, through xarray; the names of dimensions tell the axes."""

    suffixes = (".zarr",)

    def recognises(self, path: Path, head: bytes) -> bool:
        return any((path / name).is_file() for name in (".zgroup", "zarr.json", ".zmetadata"))

    def open(self, path: Path) -> Contents:
        xarray, _ = (require(name, "io", "Zarr") for name in ("xarray", "zarr"))
        stored = 0
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                if (place := Path(folder, name)).is_symlink():
                    reason = f"{place.relative_to(path)} is a link, which is never followed"
                    raise DatasetError(path, f"{reason}: copy what it leads to")
                stored += place.stat().st_size
                if name in (".zarray", ".zmetadata", "zarr.json") and _has_pickle(place):
                    reason = "holds pickled objects, which are never opened"
                    raise DatasetError(path, f"{reason}: store plain numbers")
        try:
            dataset = xarray.open_zarr(path, chunks=None, decode_times=False, consolidated=False)
        except KeyError as error:
            reason = f"does not name the dimensions of its arrays ({error})"
            raise DatasetError(path, f"{reason}: write it with xarray's to_zarr") from error
        ordered = dataset[sorted(dataset.variables)]  # a folder has no order of its own
        return _by_xarray(path, ordered, "Zarr", stored)


def _has_pickle(place: Path) -> bool:
    """Whether the description of an array names a codec that unpickles."""

    def found(value: Any) -> bool:
        if isinstance(value, dict):
            codec = str(value.get("id", value.get("name", "")))
            return "pickle" in codec.lower() or any(map(found, value.values()))
        return isinstance(value, list) and any(map(found, value))

    return found(json.loads(place.read_text()))


FORMATS = registered("format")
