"""A user's own file as a source of samples: ``task.toml`` says what it holds and how it is used.

The document holds the entries of a :class:`~pacefno.task.Task`, a table ``[data]`` and, for test
samples that are moved, a table ``[ood]``. Samples are read when they are asked for, so a file may
be far larger than memory. Splits are made by trajectory: no trajectory is ever in two of them. One
long trajectory is split in time: no snapshot is in two of them, and a window's length lies between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from pacefno.data._arrays import (
    ALIKE,
    Stack,
    check_box,
    check_endpoint,
    check_order,
    check_values,
    handled,
    look,
    time_step,
)
from pacefno.data._settings import BLANK, DataSettings, OodSettings, read_table
from pacefno.data.formats import files_of, open_file
from pacefno.data.samples import Grid, Pairs, Trajectories, check_window, evenly
from pacefno.data.store import DatasetError
from pacefno.errors import UsageError
from pacefno.fields import Field
from pacefno.grid import FieldError, coarsen
from pacefno.pace import PACE
from pacefno.pde.initial import generator_for
from pacefno.registry import unknown
from pacefno.task import Task, TaskError, make_task, read_toml


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
        raise TaskError(f'{path}: {name} is still "{BLANK}", and the file does not say it: {todo}')
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
    """The task and the samples of a document."""
    entries = dict(document)
    data, ood = (entries.pop(key, None) for key in ("data", "ood"))
    if data is None:
        raise UsageError("there is no table [data]: say which file holds the samples")
    task = make_task(entries)
    settings = read_table(DataSettings, "data", data)
    _check_units(task, entries["input"], settings)
    moved = None if ood is None else read_table(OodSettings, "ood", ood)
    source = FileSource(task, settings, folder, moved, whole=whole)
    if moved is not None:
        check_motions(task, moved)
    return task, source


def _check_units(task: Task, given: Mapping[str, Any], settings: DataSettings) -> None:
    """Refuse to assume a box of length 1 and a step of 1 where a boost moves samples by them."""
    needed = ["lengths"] + ["step"] * bool(settings.arrays)
    if task.group.moves_in_time and (missing := [name for name in needed if name not in given]):
        raise UsageError(
            f"input.{missing[0]} is missing: the {task.group.name} group has boosts, which move a "
            "field by velocity times time over length; say lengths, the period of the box, and "
            "step, the time between two snapshots of the task (time_stride stored ones), in the "
            "units of the data"
        )


def check_same_task(trained: Task | PACE, given: Task) -> None:
    """Refuse data whose fields are others than those that a model was trained on.

    Lengths and steps may differ by what is lost in writing them with few digits.
    """
    for name in ("input", "output"):
        ours, theirs = getattr(trained, name), getattr(given, name)
        numbers = zip((*ours.lengths, ours.step), (*theirs.lengths, theirs.step), strict=False)
        alike = all(abs(a - b) <= ALIKE * abs(a) for a, b in numbers)
        if not alike or replace(ours, lengths=theirs.lengths, step=theirs.step) != theirs:
            raise UsageError(
                f"the model was trained for {name} {ours.document()}, this task says "
                f"{theirs.document()}: expected data of the same kind; if only the names of "
                f"channels differ, say {ours.text!r} in the task"
            )


# --- samples that stay in their file until they are selected --------------------------------------


@final
@dataclass(frozen=True)
class FilePairs:
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

    def origin(self, row: int) -> tuple[int, int]:
        """The trajectory of a sample in the file, and the snapshot at which its window starts."""
        trajectory, start = divmod(row, len(self.starts))
        return self.trajectories[trajectory], self.starts[start]

    def select(self, rows: slice | Tensor) -> Pairs:
        """Read just these samples from the file."""
        numbers = torch.arange(len(self))[rows]
        if not len(numbers):
            raise FieldError("pairs: no rows were selected: expected at least one")
        origins = [self.origin(row) for row in numbers.tolist()]
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
        xi = None if self.xi is None else self.xi[numbers]
        if xi is not None:
            types = (self.task.input, self.task.output)
            fields = [
                self.task.group.act(Field(values.double(), type), xi).values.to(values.dtype)
                for values, type in zip(fields, types, strict=True)
            ]
        return Pairs(coarsen(fields[0], self.stride), coarsen(fields[1], self.stride), xi)


@final
@dataclass(frozen=True)
class FileTrajectories:
    """Whole trajectories in a file."""

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
    def channels(self) -> int:
        return self.stack.channels

    @property
    def snapshots(self) -> int:
        return len(self.numbers)

    def select(self, rows: slice | Tensor) -> Trajectories:
        """Read just these trajectories from the file."""
        return self.cut(rows, 0, self.snapshots)

    def cut(self, rows: slice | Tensor, start: int | Tensor, count: int) -> Trajectories:
        """Read ``count`` snapshots of some trajectories, from number ``start`` on; no others."""
        chosen = torch.arange(len(self))[rows].tolist()
        if not chosen:
            raise FieldError("trajectories: no rows were selected: expected at least one")
        starts = torch.as_tensor(start).expand(len(chosen)).tolist()
        check_window(min(starts), max(starts), count, self.snapshots)
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
        first = (settings.arrays or settings.inputs)[0]
        self.contents = open_file(path, settings.format).beside(first)
        names = (settings.arrays or settings.inputs, settings.arrays or settings.targets)
        stacks = [Stack(self.contents, part, settings, task.dim) for part in names]
        self.parts = (stacks[0], stacks[0] if settings.arrays else stacks[1])
        self._check_channels()
        self._check_times()
        for stack in dict.fromkeys(self.parts):
            check_values(stack, look(stack), settings.allow)
            check_endpoint(self.contents, stack, settings)
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
        starts = evenly(last - first + 1, self.settings.windows)
        return tuple(first + start for start in starts.tolist())

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
            check_order(type.channels, stack.names)
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
    """The samples of a user's own file; see :func:`open_task`.

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
            self.check_one_file()
            rows = tuple(sorted({row for part in self.rows for row in part}))
            block = range(stack.snapshots)
        numbers = tuple(block[:: self.settings.time_stride])
        return FileTrajectories(stack, rows, numbers, self._stride(grid))

    def check_one_file(self) -> None:
        """Refuse to take all samples together where validation or test have files of their own."""
        if any(file.parts[0] is not self.files[0].parts[0] for file in self.files):
            raise UsageError(
                f"{self.path}: validation or test samples have a file of their own: choose one of "
                "train, validation, test"
            )

    def _stride(self, grid: Grid) -> int:
        if grid not in ("id", "ood"):
            raise UsageError(unknown("grid", grid, ("id", "ood")))
        return self.settings.coarsening if grid == "id" else 1

    def _elements(self, count: int) -> Tensor:
        """One element for each test sample, always the same."""
        if self.ood is None:
            todo = "say in [ood] how far to move them, low and high for each coordinate"
            raise UsageError(f"test_ood: the document has no table [ood]: {todo}")
        generator = generator_for("ood", self.ood.seed)
        return self.task.group.sample(self.ood.low, self.ood.high, count, generator)


def check_motions(task: Task, ood: OodSettings) -> None:
    """Refuse ranges that are no motions of the task's group, or not exact on a periodic grid."""
    group = task.group
    if len(ood.low) != group.size or len(ood.high) != group.size:
        raise UsageError(f"ood: expected low and high for each of {group.coordinates}")
    try:
        xi = group.sample(ood.low, ood.high, 8, generator_for("ood", ood.seed))
    except ValueError as error:
        raise UsageError(f"ood: {error}") from None
    if not ood.inexact and not torch.allclose(group.composable(xi), xi):
        raise UsageError(
            f"ood: such elements of the {group.name} group are not exact on a periodic grid: moved "
            "samples would not be solutions (a rotation tears a periodic field at the boundary of "
            "the box); move by exact ones only, or say inexact = true for fields that vanish "
            "towards the boundary"
        )


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
