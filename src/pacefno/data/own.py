"""Somebody's own file as a source of samples: ``task.toml`` says what is in it and how it is used.

The document holds the entries of a :class:`~pacefno.task.Task`, a table ``[data]`` and, for test
samples that are moved, a table ``[ood]``. Samples are read when they are asked for, so a file may
be far larger than memory. Splits are made by trajectory: no trajectory is ever in two of them. One
long trajectory is split in time: no snapshot is in two of them, and a window's length lies between.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, final

import numpy as np
import torch
from pydantic import Field as Entry
from pydantic import ValidationError, model_validator
from torch import Tensor

from pacefno.data.formats import (
    CHANNEL,
    ROLES,
    SAMPLE,
    TIME,
    Array,
    Contents,
    Member,
    StoredArray,
    files_of,
    open_file,
)
from pacefno.data.samples import Grid, Pairs, Trajectories
from pacefno.data.store import DatasetError
from pacefno.errors import UsageError
from pacefno.fields import AXES, Field
from pacefno.grid import FieldError, check_points, coarsen
from pacefno.pde.initial import generator_for
from pacefno.registry import unknown
from pacefno.task import Settings, Task, TaskError, first_fault, make_task, read_toml

BLANK = "?"  # stands in a document for what only its owner knows
ALIKE = 1e-3  # relative; lengths and time steps are often written with few digits
LOOK_SAMPLES = 8  # samples that are looked at when a file is opened
LOOK_BYTES = 2**27  # of them in memory at once
TORN = 25.0  # squared jump across the boundary over that between neighbours: not periodic
CLOSED = 1e-6  # the same: the end point is listed twice

T = TypeVar("T", Pairs, Trajectories)
Magnitudes = tuple[Annotated[float, Entry(ge=0)], ...]


# --- the document ---------------------------------------------------------------------------------


class DataSettings(Settings):
    """Which arrays of a file are the channels, what their axes are, and how samples are cut.

    ``arrays`` hold trajectories: the channels of the input type in their order, from one array
    with a channel axis or from several. Windows of snapshots are cut from them, as the times of the
    task's input and output say. ``inputs`` and ``targets`` hold pairs instead.
    """

    file: str  # as seen from the document; a folder or a pattern of files with one layout
    validation_file: str = ""  # where the samples of validation and test lie in files of their own
    test_file: str = ""
    format: str = ""  # by the ending of the file, if not said
    arrays: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    axes: str | dict[str, str]  # "sample time x y channel", or by the name of the array
    endpoint: bool = False  # the file lists the end point of the period as well: it is dropped
    time_stride: int = Entry(1, ge=1)  # stored snapshots from one snapshot of the task to the next
    samples: int | None = Entry(None, ge=3)  # use the first so many only
    windows: int | None = Entry(None, ge=1)  # from each trajectory; all that fit, if not said
    coarsening: int = Entry(1, ge=1)  # the training grid takes every such point
    split: tuple[float, float, float] = (0.8, 0.1, 0.1)  # train, validation, test
    split_by: Literal["trajectory", "time"] = "trajectory"  # time: of one or two long ones
    seed: int = 0  # of the split
    precision: Literal["float32", "float64"] = "float32"
    allow: tuple[Literal["non-periodic", "constant"], ...] = ()  # faults that are meant

    @model_validator(mode="after")
    def _fits(self) -> DataSettings:
        if bool(self.arrays) == bool(self.inputs) or bool(self.inputs) != bool(self.targets):
            raise UsageError("name either arrays (trajectories), or inputs and targets (pairs)")
        if self.file in (self.validation_file, self.test_file):
            raise UsageError(
                "name another file than data.file, or none: splits never share samples"
            )
        if self.split_by == "time" and (self.inputs or self.validation_file or self.test_file):
            raise UsageError(
                'split_by: "time" cuts trajectories of one file: name arrays, and no other files'
            )
        if min(self.split) < 0 or not math.isclose(sum(self.split), 1, abs_tol=1e-6):
            raise UsageError(
                f"split: expected shares of train, validation and test with sum 1, got {self.split}"
            )
        return self

    def axes_of(self, array: str) -> tuple[str, ...]:
        """The roles of an array's axes."""
        text = self.axes if isinstance(self.axes, str) else self.axes.get(array)
        if text is None:
            raise UsageError(f"data.axes: nothing is said of {array!r}: add an entry for it")
        return parse_axes(text)


def parse_axes(text: str) -> tuple[str, ...]:
    """The roles of a text such as ``"sample time x y channel"``."""
    roles = tuple(text.replace(",", " ").split())
    for role in roles:
        if role not in ROLES:
            raise UsageError(f"data.axes: {unknown('axis', role, ROLES)}")
    if len(set(roles)) != len(roles) or "x" not in roles:
        raise UsageError(f"data.axes: expected each axis once and at least x, got {text!r}")
    return roles


class OodSettings(Settings):
    """How far test samples are moved: the magnitude of each coordinate lies from low to high."""

    low: Magnitudes
    high: Magnitudes
    seed: int = 0
    inexact: bool = False  # accept what is not exact on a periodic grid, as a rotation


def open_task(path: Path) -> tuple[Task, FileSource]:
    """The task of a document and the samples of its file; a fault is one sentence."""
    document = read_document(path)
    try:
        return open_document(document, path.parent)
    except UsageError as error:
        raise TaskError(f"{path}: {error}") from None


def read_document(path: Path) -> dict[str, Any]:
    """The entries of a TOML file; one that was left to be filled in is refused by its name."""
    document = read_toml(path)
    for name in _blanks(document):
        todo = "fill it in; the comment beside it says what is meant"
        raise TaskError(f'{path}: {name} is still "{BLANK}", nobody else can know it: {todo}')
    return document


def _blanks(value: Any, name: str = "") -> Iterator[str]:
    """The entries that were left to be filled in, by their path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _blanks(item, f"{name}.{key}" if name else key)
    elif value == BLANK or (isinstance(value, list) and BLANK in value):
        yield name


def open_document(
    document: Mapping[str, Any], folder: Path, *, whole: bool = False
) -> tuple[Task, FileSource]:
    """The task and the samples of a document; what ``output`` does not say is as in ``input``."""
    entries = dict(document)
    data, ood = (entries.pop(key, None) for key in ("data", "ood"))
    if data is None:
        raise UsageError("there is no table [data]: say which file holds the samples")
    if isinstance(entries.get("input"), dict) and isinstance(entries.get("output", {}), dict):
        entries["output"] = {**entries["input"], **entries.get("output", {})}
    task = make_task(entries)
    settings = read_table(DataSettings, "data", data)
    moved = None if ood is None else read_table(OodSettings, "ood", ood)
    return task, FileSource(task, settings, folder, moved, whole=whole)


S = TypeVar("S", bound=Settings)


def read_table(model: type[S], name: str, entries: Any) -> S:
    """A table of the document; a fault is one sentence that names the entry."""
    try:
        return model.model_validate(entries)
    except ValidationError as error:
        raise UsageError(f"{name}: {first_fault(error, model)}") from None


# --- arrays as trajectories -----------------------------------------------------------------------


@final
class Stack:
    """Arrays of a file as one of ``(sample, time, channel, *grid)``, read sample by sample."""

    def __init__(
        self, contents: Contents, names: Sequence[str], settings: DataSettings, dim: int
    ) -> None:
        self.path, self.dim, self.names, self.more = contents.path, dim, names, contents.more
        self.arrays = [contents.array(name).check() for name in names]
        self.roles = [settings.axes_of(name) for name in names]
        self.dtype: Any = np.dtype(settings.precision)
        self.drop = int(settings.endpoint)  # points at the end of each axis
        sizes = [
            self._sizes(array.name, array.shape, roles)
            for array, roles in zip(self.arrays, self.roles, strict=True)
        ]
        for array, size in zip(self.arrays[1:], sizes[1:], strict=True):
            for role in (SAMPLE, TIME, *AXES[:dim]):
                if size.get(role) != sizes[0].get(role):
                    raise DatasetError(
                        self.path,
                        f"{array.name!r} has {size.get(role)} points along {role}, "
                        f"{self.arrays[0].name!r} has {sizes[0].get(role)}: expected one "
                        "resolution for all channels; resample, or leave one out",
                    )
        counts = [sizes[0].get(SAMPLE, 1), *(self._count(member, sizes) for member in self.more)]
        self.ends = list(accumulate(counts))  # after the last sample of each file
        self.samples = self.ends[-1]
        self.snapshots: int = sizes[0].get(TIME, 1)
        self.timed = TIME in sizes[0]
        self.channels = sum(size.get(CHANNEL, 1) for size in sizes)
        self.grid = tuple(sizes[0][axis] - self.drop for axis in AXES[:dim])
        if min(self.grid) < 4 or self.samples == 0 or self.snapshots == 0:
            raise DatasetError(
                self.path,
                f"{self.arrays[0].name!r} {self.arrays[0].shape} read as "
                f"{' '.join(self.roles[0])} leaves a grid {self.grid}: correct the axes",
            )

    def _count(self, member: Member, sizes: Sequence[Mapping[str, int]]) -> int:
        """How many samples a further file has, all else being as in the first."""
        for name, roles, wanted in zip(self.names, self.roles, sizes, strict=True):
            own = self._sizes(name, member.shapes[name], roles)
            if any(own[role] != wanted[role] for role in roles if role != SAMPLE):
                raise DatasetError(
                    member.path,
                    f"{name!r} is {member.shapes[name]}, read as {' '.join(roles)}, and in the "
                    f"first file {self.arrays[self.names.index(name)].shape}: expected files that "
                    "differ in the number of samples alone; cut or resample it, or name a pattern",
                )
        return own.get(SAMPLE, 1)

    def _sizes(self, name: str, shape: tuple[int, ...], roles: tuple[str, ...]) -> dict[str, int]:
        space = [axis for axis in AXES if axis in roles]
        if len(roles) != len(shape):
            forgot = "" if TIME in roles else " (is the time axis forgotten?)"
            raise DatasetError(
                self.path,
                f"{name!r} has {len(shape)} axes, {shape}, and "
                f'{len(roles)} are named, "{" ".join(roles)}"{forgot}: name them all in data.axes',
            )
        if space != list(AXES[: self.dim]):
            raise DatasetError(
                self.path,
                f"{name!r} has the axes {' '.join(space)}, the task {self.dim} dimensions: "
                "correct data.axes or input.dim",
            )
        return dict(zip(roles, shape, strict=True))

    @property
    def sample_bytes(self) -> int:
        """Bytes of one snapshot of one sample as it is handed out."""
        return self.channels * math.prod(self.grid) * self.dtype.itemsize

    def read(self, sample: int, numbers: Sequence[int], *, finite: bool = True) -> Array:
        """Some snapshots of a sample by their number, ``(S, C, *grid)``; NaN is refused."""
        file = bisect_right(self.ends, sample)
        arrays, own = self.arrays, sample
        if file:
            opened, own = self.more[file - 1].open(), sample - self.ends[file - 1]
            arrays = [opened.array(name).check() for name in self.names]
        parts = [
            self._part(array, roles, own, numbers)
            for array, roles in zip(arrays, self.roles, strict=True)
        ]
        with np.errstate(over="ignore"):  # what becomes infinite is refused below
            values = np.concatenate(parts, axis=1).astype(self.dtype, copy=False)
        if finite and not np.isfinite(values).all():
            number, channel, *point = np.argwhere(~np.isfinite(values))[0].tolist()
            raise DatasetError(
                self.path,
                f"sample {sample} holds {int((~np.isfinite(values)).sum())} values that are NaN or "
                f"infinite in {self.dtype}, the first in snapshot {numbers[number]}, channel "
                f"{channel}, point {tuple(point)}: repair the file or leave the sample out",
            )
        return values

    def windows(self, wanted: Sequence[tuple[int, Sequence[int]]]) -> Array:
        """Snapshots ``(N, S, C, *grid)`` by sample and numbers; nothing is read twice."""
        by_sample: dict[int, list[int]] = {}
        for place, (sample, _) in enumerate(wanted):
            by_sample.setdefault(sample, []).append(place)
        found: list[Array] = [np.empty(0)] * len(wanted)
        for sample in sorted(by_sample):  # in the order of the file
            places = by_sample[sample]
            numbers = sorted({number for place in places for number in wanted[place][1]})
            block = self.read(sample, numbers)
            for place in places:
                found[place] = block[np.searchsorted(numbers, wanted[place][1])]
        return np.stack(found)

    def _part(
        self, array: StoredArray, roles: tuple[str, ...], sample: int, numbers: Sequence[int]
    ) -> Array:
        """Snapshots of one array as ``(S, C, *grid)``."""
        first, last = min(numbers), max(numbers)
        steps = {b - a for a, b in pairwise(numbers)}
        even = len(steps) <= 1 and min(steps, default=1) > 0
        if not even and last - first > 2 * len(numbers):  # far apart: not all that lies between
            return np.concatenate([self._part(array, roles, sample, [n]) for n in numbers])
        stride = min(steps, default=1) if even else 1
        pick: dict[str, int | slice] = {
            SAMPLE: sample,
            TIME: slice(first, last + 1, stride),
            CHANNEL: slice(None),
        }
        pick |= {axis: slice(0, n) for axis, n in zip(AXES, self.grid, strict=False)}
        values = array.values(tuple(pick[role] for role in roles))
        left = [role for role in roles if role != SAMPLE]
        order = [role for role in (TIME, CHANNEL, *AXES) if role in left]
        values = values.transpose([left.index(role) for role in order])
        for place, role in enumerate((TIME, CHANNEL)):
            if role not in order:
                values = np.expand_dims(values, place)
        return values if even else values[[number - first for number in numbers]]


# --- what is read lazily --------------------------------------------------------------------------


class Lazy(ABC, Generic[T]):
    """Samples that stay in their file until they are selected."""

    @property
    @abstractmethod
    def grid(self) -> tuple[int, ...]:
        """The points along each axis."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all samples, once they are read."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, rows: Sequence[int]) -> T:
        """Samples by their numbers."""

    def select(self, rows: slice | Tensor) -> T:
        """Read just these samples from the file."""
        return self.read(torch.arange(len(self))[rows].tolist())

    def iterate(self, batch: int) -> Iterator[T]:
        """All samples in their order, some at a time."""
        for start in range(0, len(self), batch):
            yield self.select(slice(start, start + batch))


@final
@dataclass(frozen=True)
class FilePairs(Lazy[Pairs]):
    """Pairs in a file: a row is a trajectory and the snapshot at which its window starts."""

    task: Task
    parts: tuple[Stack, Stack]  # of inputs and targets; the same for windows
    trajectories: tuple[int, ...]
    starts: tuple[int, ...]  # of the windows of each trajectory
    offsets: tuple[tuple[int, ...], tuple[int, ...]]  # of the snapshots from the start
    chosen: tuple[int, ...]  # which of the stored channels are those of the target
    stride: int = 1
    xi: Tensor | None = None  # (N, size): the elements by which samples are moved

    def __len__(self) -> int:
        return len(self.trajectories) * len(self.starts)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(-(-n // self.stride) for n in self.parts[0].grid)

    @property
    def nbytes(self) -> int:
        channels = self.task.input.size + self.task.output.size
        return len(self) * channels * math.prod(self.grid) * self.parts[0].dtype.itemsize

    def origin(self, row: int) -> tuple[int, int]:
        """The trajectory of a sample in the file, and the snapshot at which its window starts."""
        trajectory, start = divmod(row, len(self.starts))
        return self.trajectories[trajectory], self.starts[start]

    def read(self, rows: Sequence[int]) -> Pairs:
        if not rows:
            raise FieldError("pairs: no rows were selected: expected at least one")
        origins = [self.origin(row) for row in rows]
        inputs, targets = (
            [(sample, [start + offset for offset in part]) for sample, start in origins]
            for part in self.offsets
        )
        if self.parts[0] is self.parts[1]:  # one look at each trajectory serves both
            both = [(sample, [*a, *b]) for (sample, a), (_, b) in zip(inputs, targets, strict=True)]
            values = self.parts[0].windows(both)
            first, second = values[:, : len(self.offsets[0])], values[:, len(self.offsets[0]) :]
        else:
            first, second = self.parts[0].windows(inputs), self.parts[1].windows(targets)
        fields = [torch.from_numpy(v).flatten(1, 2) for v in (first, second[:, :, self.chosen])]
        xi = None if self.xi is None else self.xi[list(rows)]
        if xi is not None:
            types = (self.task.input, self.task.output)
            fields = [
                self.task.group.act(Field(values.double(), type), xi).values.to(values.dtype)
                for values, type in zip(fields, types, strict=True)
            ]
        return Pairs(coarsen(fields[0], self.stride), coarsen(fields[1], self.stride), xi)


@final
@dataclass(frozen=True)
class FileTrajectories(Lazy[Trajectories]):
    """Whole trajectories in a file."""

    task: Task
    stack: Stack
    trajectories: tuple[int, ...]
    numbers: tuple[int, ...]  # of the stored snapshots that are used
    stride: int = 1

    def __len__(self) -> int:
        return len(self.trajectories)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(-(-n // self.stride) for n in self.stack.grid)

    @property
    def nbytes(self) -> int:
        size = self.channels * math.prod(self.grid) * self.stack.dtype.itemsize
        return len(self) * self.snapshots * size

    @property
    def channels(self) -> int:
        return self.stack.channels

    @property
    def snapshots(self) -> int:
        return len(self.numbers)

    def read(self, rows: Sequence[int]) -> Trajectories:
        return self.cut(torch.tensor(rows, dtype=torch.long), 0, self.snapshots)

    def cut(self, rows: slice | Tensor, start: int | Tensor, count: int) -> Trajectories:
        """Read ``count`` snapshots of some trajectories, from number ``start`` on; no others."""
        chosen = torch.arange(len(self))[rows].tolist()
        if not chosen:
            raise FieldError("trajectories: no rows were selected: expected at least one")
        starts = torch.as_tensor(start).expand(len(chosen)).tolist()
        if min(starts) < 0 or max(starts) + count > self.snapshots or count < 1:
            raise FieldError(
                f"trajectories: {count} snapshots from {start} on do not lie within the "
                f"{self.snapshots} there are"
            )
        found = [
            self.stack.read(self.trajectories[row], self.numbers[first : first + count])
            for row, first in zip(chosen, starts, strict=True)
        ]
        values = coarsen(torch.from_numpy(np.stack(found)).flatten(1, 2), self.stride)
        return Trajectories(values, None, self.channels)


# --- the source -----------------------------------------------------------------------------------

SHARES = {"train": 0, "validation": 1, "test": 2, "test_id": 2, "test_ood": 2}


@final
class OneFile:
    """A file of a source: its arrays, checked against the task, and the windows in them."""

    def __init__(self, task: Task, settings: DataSettings, path: Path, whole: bool = False) -> None:
        self.task, self.settings, self.path, self.whole = task, settings, path, whole
        self.contents = open_file(path, settings.format)
        names = (settings.arrays or settings.inputs, settings.arrays or settings.targets)
        stacks = [Stack(self.contents, part, settings, task.dim) for part in names]
        self.parts = (stacks[0], stacks[0] if settings.arrays else stacks[1])
        self._check_channels()
        self._check_times()
        for stack in dict.fromkeys(self.parts):
            check_values(stack, look(stack), settings.allow)
        check_box(self.contents, self.parts[0], task.input.lengths, settings.allow)

    @property
    def samples(self) -> int:
        """How many samples of the file are used."""
        there = self.parts[0].samples
        return there if self.settings.samples is None else min(there, self.settings.samples)

    @cached_property
    def offsets(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The stored snapshots of input and output, counted from the start of a window."""
        if not self.settings.arrays:
            first, second = (tuple(range(stack.snapshots)) for stack in self.parts)
            return first, second
        stride = self.settings.time_stride
        first, second = (
            tuple(round(time) * stride for time in type.times)
            for type in (self.task.input, self.task.output)
        )
        return first, second

    @cached_property
    def window(self) -> int:
        """Stored snapshots from the first of a window to its last."""
        return 1 + max(max(part) for part in self.offsets)

    def starts(self, block: range) -> tuple[int, ...]:
        """Where windows within some snapshots start; evenly spread if fewer are wanted."""
        if not self.settings.arrays:
            return (0,)
        first, last = block.start, block.stop - self.window
        wanted = self.settings.windows
        if wanted is None or wanted > last - first:
            return tuple(range(first, last + 1))
        return tuple(first + round((last - first) * i / max(1, wanted - 1)) for i in range(wanted))

    @cached_property
    def chosen(self) -> tuple[int, ...]:
        """Which stored channels are those of the target."""
        output = self.task.output.channels
        if not self.settings.arrays:
            return tuple(range(self.parts[1].channels))
        return tuple(self.task.input.channels.index(name) for name in output)

    def _check_channels(self) -> None:
        types = (("input", self.task.input), ("output", self.task.output))
        for stack, (name, type) in zip(self.parts, types, strict=True):
            if self.settings.arrays and name == "output":
                if strange := set(type.channels) - set(self.task.input.channels):
                    raise UsageError(f"output.channels: {sorted(strange)} are not in the input")
                continue
            if not self.settings.arrays and (stack.snapshots, stack.channels) == (1, type.size):
                continue  # all snapshots stand one after the other among the channels
            if stack.channels != len(type.channels):
                raise DatasetError(
                    self.path,
                    f"its arrays have {stack.channels} channels, {name}.channels names "
                    f"{len(type.channels)}, {type.text!r}: name each channel, and say which axis "
                    "is the channel in data.axes",
                )
            if not self.settings.arrays and stack.snapshots != type.snapshots:
                raise DatasetError(
                    self.path,
                    f"its {name} has {stack.snapshots} snapshots, {name}.times names "
                    f"{type.snapshots}: name the time of each snapshot",
                )
        first, second = self.parts
        if first.samples != second.samples or first.grid != second.grid:
            raise DatasetError(
                self.path,
                f"inputs are {first.samples} samples on {first.grid} points, targets "
                f"{second.samples} on {second.grid}: expected as many of both on one resolution",
            )
        if any(n % self.settings.coarsening for n in first.grid):
            raise UsageError(
                f"data.coarsening: {self.settings.coarsening} does not divide {first.grid}"
            )

    def _check_times(self) -> None:
        if not self.settings.arrays:
            return
        task, stack = self.task, self.parts[0]
        times = (*task.input.times, *task.output.times)
        if task.input.step != task.output.step or any(t < 0 or t % 1 for t in times):
            raise UsageError("times: windows need whole numbers of one and the same step")
        if not stack.timed and not self.whole:
            raise DatasetError(
                self.path,
                f'"{" ".join(stack.roles[0])}" has no time axis, and the task goes from snapshots '
                f"{task.input.times} to {task.output.times}: name the time axis in data.axes, or "
                "name inputs and targets",
            )
        needed = 1 + max(self.offsets[0]) if self.whole else self.window
        if needed > stack.snapshots:
            raise DatasetError(
                self.path,
                f"has {stack.snapshots} snapshots, a window of the task needs {needed}: shorten "
                "input.times and output.times, or data.time_stride",
            )
        if (stored := time_step(self.contents, stack.snapshots)) is not None:
            step = stored * self.settings.time_stride
            if abs(step - task.input.step) > ALIKE * step:
                raise DatasetError(
                    self.path,
                    f"its snapshots are {step:.6g} apart in time (every "
                    f"{self.settings.time_stride}), the task says step = {task.input.step:g}: "
                    "correct input.step or data.time_stride",
                )


@final
class FileSource:
    """The samples of somebody's own file; see :func:`open_task`.

    ``notes`` are words for the user on what was converted on the way. A ``whole`` file is not
    split, and need not have what comes after the input: predictions start from it.
    """

    def __init__(
        self,
        task: Task,
        settings: DataSettings,
        folder: Path,
        ood: OodSettings | None = None,
        *,
        whole: bool = False,
    ) -> None:
        self.task, self.settings, self.ood, self.whole = task, settings, ood, whole
        self.path = folder / settings.file
        names = (settings.file, settings.validation_file, settings.test_file)
        named = [{one.resolve() for one in files_of(folder / name)} for name in names if name]
        if any(a & b for a, b in combinations(named, 2)):
            raise UsageError(
                "data: file, validation_file and test_file name one file twice: name others, or "
                "none; splits never share samples"
            )
        paths = [folder / (name or settings.file) for name in names]
        opened = {path: OneFile(task, settings, path, whole) for path in dict.fromkeys(paths)}
        self.files = tuple(opened[path] for path in paths)  # of training, validation and test
        self.notes = handled([stack for file in opened.values() for stack in file.parts])
        if not all(self.rows) or not self.blocks:
            count = self.files[0].samples
            raise DatasetError(
                self.path,
                f"holds {count} sample{'s' * (count > 1)}, and each of training, validation and "
                f"test needs at least one of its own, by data.split = {settings.split}: give more, "
                "or name the sample axis in data.axes",
            )

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits there are."""
        if self.task.rollout:
            return ("train", "validation", "test")
        return ("train", "validation", "test_id", *["test_ood"] * (self.ood is not None))

    @cached_property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """The trajectories of the training, validation and test split; each is in one of them.

        A split with a file of its own has all of that.
        """
        first, shares = self.files[0], self.settings.split
        if self.settings.split_by == "time" or self.whole:
            return (tuple(range(first.samples)),) * 3
        shared = [number for number in (1, 2) if self.files[number] is first]
        whole = shares[0] + sum(shares[number] for number in shared)
        generator = generator_for("split", self.settings.seed)
        left = torch.randperm(first.samples, generator=generator).tolist()
        rows = [tuple(range(file.samples)) for file in self.files]
        for number in reversed(shared):
            size = max(1, round(first.samples * shares[number] / max(whole, 1e-9)))
            left, rows[number] = left[: max(0, len(left) - size)], tuple(left[-size:])
        return (tuple(left), *rows[1:])

    @cached_property
    def blocks(self) -> tuple[range, ...]:
        """The stored snapshots of the training, validation and test split."""
        first = self.files[0]
        if self.settings.split_by == "trajectory" or self.whole:
            return tuple(range(file.parts[0].snapshots) for file in self.files)
        count, window = first.parts[0].snapshots, first.window
        if (found := time_blocks(count, window, self.settings.split)) is None:
            raise DatasetError(
                self.path,
                f"has {count} snapshots, and in time each of training, validation and test needs a "
                f"window of {window}, with as many between them: give more, or a smaller window",
            )
        return found

    def load(self, split: str, grid: Grid = "id") -> FilePairs | FileTrajectories:
        """A split, on the training grid (every ``coarsening``-th point) or on that of the file."""
        tests = ("test",) if self.task.rollout else ("test_id", "test_ood")
        if split not in ("train", "validation", *tests):
            raise UsageError(unknown("split", split, self.splits))
        if self.task.rollout:
            return self.trajectories(split, grid)
        share = SHARES[split]
        file, starts = self.files[share], self.files[share].starts(self.blocks[share])
        pairs = FilePairs(
            self.task, file.parts, self.rows[share], starts, file.offsets, file.chosen,
            self._stride(grid),
        )  # fmt: skip
        return replace(pairs, xi=self._elements(len(pairs))) if split == "test_ood" else pairs

    def trajectories(self, split: str | None, grid: Grid = "id") -> FileTrajectories:
        """Whole trajectories of ``train``, ``validation`` or ``test``; None for all of the file."""
        if split is not None and split not in SHARES:
            raise UsageError(unknown("split", split, ("train", "validation", "test")))
        if not self.settings.arrays:
            raise UsageError(f"{self.path} holds pairs, no trajectories: expected data.arrays")
        share = SHARES[split or "test"]
        stack, rows, block = self.files[share].parts[0], self.rows[share], self.blocks[share]
        if split is None:
            rows, block = tuple(range(stack.samples)), range(stack.snapshots)
        numbers = tuple(block[:: self.settings.time_stride])
        return FileTrajectories(self.task, stack, rows, numbers, self._stride(grid))

    def _stride(self, grid: Grid) -> int:
        if grid not in ("id", "ood"):
            raise UsageError(unknown("grid", grid, ("id", "ood")))
        return self.settings.coarsening if grid == "id" else 1

    def _elements(self, count: int) -> Tensor:
        """One element for each test sample, always the same; what is not exact is refused."""
        if self.ood is None:
            todo = "say in [ood] how far to move them, low and high for each coordinate"
            raise UsageError(f"test_ood: the document has no table [ood]: {todo}")
        group, size = self.task.group, self.task.group.size
        if len(self.ood.low) != size or len(self.ood.high) != size:
            raise UsageError(f"ood: expected low and high for each of {group.coordinates}")
        generator = generator_for("ood", self.ood.seed)
        try:
            xi = group.sample(self.ood.low, self.ood.high, count, generator)
        except ValueError as error:
            raise UsageError(f"ood: {error}") from None
        if not self.ood.inexact and not torch.allclose(group.composable(xi), xi):
            raise UsageError(
                f"ood: such elements of the {group.name} group are not exact on a periodic grid: "
                "moved samples would not be solutions (a rotation tears a periodic field at the "
                "boundary of the box); move by exact ones only, or say inexact = true for fields "
                "that vanish towards the boundary"
            )
        return xi


def time_blocks(
    snapshots: int, window: int, shares: Sequence[float]
) -> tuple[range, range, range] | None:
    """Snapshots for training, validation and test, in this order in time; None if too few.

    As many as a window has lie unused between two blocks, so that no window of one is near another.
    """
    usable = snapshots - 2 * window
    later = [max(window, round(usable * share)) for share in shares[1:]]
    first = usable - sum(later)
    if first < window:
        return None
    second, third = first + window, first + 2 * window + later[0]
    return range(first), range(second, second + later[0]), range(third, snapshots)


def handled(parts: Sequence[Stack]) -> list[str]:
    """Words on what is converted while it is read."""
    notes = []
    for stack in dict.fromkeys(parts):
        for array, roles in zip(stack.arrays, stack.roles, strict=True):
            if array.dtype.kind in "iu":
                notes.append(f"{array.name}: {array.dtype} numbers, read as {stack.dtype}")
            if not array.dtype.isnative:
                notes.append(f"{array.name}: in the other byte order, turned while it is read")
            if roles[-1] == CHANNEL:
                notes.append(f"{array.name}: channels last, moved to the front while it is read")
        if stack.more:
            notes.append(f"{len(stack.more) + 1} files, with {stack.samples} samples in all")
        if stack.drop:
            notes.append("the end point of the period is listed twice: the last points are dropped")
    return list(dict.fromkeys(notes))


def time_step(contents: Contents, snapshots: int) -> float | None:
    """The time between stored snapshots, where the file says; uneven ones are refused.

    PDEBench lists one time more than there are snapshots.
    """
    times = contents.coordinate(TIME)
    if times is None or len(times) not in (snapshots, snapshots + 1) or snapshots < 2:
        return None
    steps = np.diff(times[:snapshots])
    step = float(steps.mean())
    if not step > 0 or np.abs(steps - step).max() > 1e-2 * step:
        raise DatasetError(
            contents.path,
            f"its times are not evenly spaced ({steps.min():.6g} to {steps.max():.6g}): "
            "interpolate to even steps, or leave the odd snapshots out",
        )
    return step


def box_length(contents: Contents, axis: str, points: int, drop: int = 0) -> float | None:
    """The period of an axis of ``points`` points, where the file has coordinates of it."""
    x = contents.coordinate(axis)
    if x is None or len(x) != points + drop:
        return None
    period = float((x[-1] - x[0]) * points / (points + drop - 1))
    try:
        check_points(torch.from_numpy(x[:points]), length=abs(period), name=axis)
    except FieldError as error:
        raise DatasetError(contents.path, str(error)) from None
    return period


def check_box(
    contents: Contents, stack: Stack, lengths: Sequence[float], allow: Sequence[str] = ()
) -> None:
    """Refuse coordinates that contradict the lengths of the task, and walls."""
    for axis, points, length in zip(AXES, stack.grid, lengths, strict=False):
        if not contents.periodic.get(axis, True) and "non-periodic" not in allow:
            raise DatasetError(
                contents.path,
                f"its boundary conditions say that it is not periodic along {axis}: cut out a "
                'periodic part, or say allow = ["non-periodic"] in [data]',
            )
        period = box_length(contents, axis, points, stack.drop)
        if period is not None and abs(period - length) > ALIKE * length:
            raise DatasetError(
                contents.path,
                f"its coordinates {axis} cover a period of {period:.6g} without the end point, the "
                f"task says {length:g}: correct input.lengths, all in the units of the file",
            )


# --- a look at the values -------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Look:
    """What some samples of a file are like; by channel, or by axis."""

    samples: tuple[int, ...]  # which were looked at
    values: Tensor  # (N, C, *grid): their first snapshots
    bad: tuple[int, ...]  # values that are NaN or infinite; as 0 in all that follows
    least: tuple[float, ...]
    greatest: tuple[float, ...]
    std: tuple[float, ...]
    jump: tuple[float, ...]  # squared, across the boundary over that between neighbours
    walls: tuple[bool, ...]  # the values at the end of an axis are all the same


def look(stack: Stack) -> Look:
    """Look at some samples, evenly chosen; first and last snapshots, in little memory."""
    most = max(1, min(LOOK_SAMPLES, LOOK_BYTES // (4 * stack.sample_bytes)))
    chosen = np.linspace(0, stack.samples - 1, min(most, stack.samples)).round().astype(int)
    numbers = sorted({0, stack.snapshots - 1})
    found = torch.stack(
        [torch.from_numpy(stack.read(int(n), numbers, finite=False)) for n in chosen]
    )  # (N, S, C, *grid)
    bad = (~found.isfinite()).transpose(0, 2).flatten(1).sum(dim=1)
    found = found.nan_to_num(0.0, 0.0, 0.0)
    values = found.double()
    by_channel = values.transpose(0, 2).flatten(1)
    jumps, walls = [], []
    for axis in range(3, values.ndim):
        lines = values.movedim(axis, -1)
        inside = lines.diff(dim=-1).square().mean()
        ends = (lines[..., 0] - lines[..., -1]).square().mean()
        jumps.append(float(ends / inside.clamp_min(1e-300)) if bool(inside > 0) else 1.0)
        spread = lines[..., -1].transpose(0, 2).flatten(1).std(dim=1)
        walls.append(bool((spread <= 1e-6 * by_channel.std(dim=1)).all()))
    return Look(
        tuple(chosen.tolist()),
        found[:, 0],
        tuple(bad.tolist()),
        tuple(by_channel.amin(dim=1).tolist()),
        tuple(by_channel.amax(dim=1).tolist()),
        tuple(by_channel.std(dim=1, correction=0).tolist()),
        tuple(jumps),
        tuple(walls),
    )


def check_values(stack: Stack, seen: Look, allow: Sequence[str] = ()) -> None:
    """Refuse values that no periodic field has; ``allow`` names the faults that are meant."""
    many = f"in the {len(seen.samples)} samples looked at"
    if any(seen.bad):
        where = ", ".join(f"{n} in channel {c}" for c, n in enumerate(seen.bad) if n)
        todo = "one spoils a whole Fourier transform; repair the file"
        raise DatasetError(stack.path, f"holds NaN or infinity, {where} {many}: {todo}")
    for axis, jump, wall in zip(AXES, seen.jump, seen.walls, strict=False):
        if jump < CLOSED and not wall:
            raise DatasetError(
                stack.path,
                f"along {axis} the last point repeats the first: the end point of the period is "
                "listed twice; say endpoint = true in [data], and it is dropped",
            )
        if jump > TORN and "non-periodic" not in allow:
            raise DatasetError(
                stack.path,
                f"does not look periodic along {axis}: the jump across the boundary is "
                f"{math.sqrt(jump):.0f} times that between neighbours {many}; cut out a periodic "
                'part, or say allow = ["non-periodic"] in [data] if it is one',
            )
    for channel, std in enumerate(seen.std):
        size = max(abs(seen.least[channel]), abs(seen.greatest[channel]))
        if std <= 1e-7 * size and "constant" not in allow:
            raise DatasetError(
                stack.path,
                f"channel {channel} is {seen.least[channel]:g} everywhere {many}: is the file "
                "unfinished? Leave the channel out, or say "
                'allow = ["constant"] in [data] if it is meant',
            )
