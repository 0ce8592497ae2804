"""Arrays of a file as trajectories, read sample by sample, and what is refused about their values.

A file may be far larger than memory: a few samples are looked at when it is opened, the others are
read when they are asked for.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from pacefno.data._settings import DataSettings
from pacefno.data.formats import CHANNEL, SAMPLE, TIME, Array, Contents, Member, StoredArray
from pacefno.data.samples import evenly
from pacefno.data.store import DatasetError
from pacefno.errors import UsageError
from pacefno.fields import AXES
from pacefno.grid import FieldError, check_points

ALIKE = 1e-3  # relative; lengths and time steps are often written with few digits
LOOK_SAMPLES = 8  # samples that are looked at when a file is opened
LOOK_BYTES = 2**27  # of them in memory at once
# The squared jump across the boundary, over that between neighbours:
TORN = 25.0  # above this a field is not periodic
CLOSED = 1e-6  # below this the end point is listed twice


def short_name(name: str) -> str:
    """The last part of an array's name, as the name of a channel may be written."""
    return re.sub(r"[^\w-]", "_", name.rpartition("/")[2]) or "u"


def in_order_of(channels: Sequence[str], arrays: Sequence[str]) -> list[str]:
    """Arrays that are named as the channels are, in the order of these; others as they are.

    A file lists its arrays in an order of its own: components of a velocity would be exchanged.
    """
    found = {short_name(name).lower(): name for name in arrays}
    wanted = [name.lower() for name in channels]
    if sorted(found) == sorted(wanted) and len(found) == len(arrays):
        return [found[name] for name in wanted]
    check_order(channels, arrays)
    return list(arrays)


def check_order(channels: Sequence[str], arrays: Sequence[str]) -> None:
    """Refuse an array that has the name of another channel than the one at its place."""
    wanted = [name.lower() for name in channels]
    short = [short_name(name).lower() for name in arrays]
    if len(short) != len(wanted):  # an array holds several channels
        return
    if any(a != b and a in wanted for a, b in zip(short, wanted, strict=True)):
        raise UsageError(
            f"the arrays {', '.join(arrays)} stand in another order than the channels "
            f"{', '.join(channels)}: name the arrays in the order of the channels"
        )


@final
class Stack:
    """Arrays of a file as one of ``(sample, time, channel, *grid)``, read sample by sample."""

    def __init__(
        self, contents: Contents, names: Sequence[str], settings: DataSettings, dim: int
    ) -> None:
        self.path, self.dim, self.names, self.more = contents.path, dim, names, contents.more
        self.arrays = [contents.array(name).check() for name in names]
        self.roles = [settings.axes_of(name) for name in names]
        if "axes" not in settings.allow:
            self._check_axes()
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

    def _check_axes(self) -> None:
        """Refuse axes of space that are exchanged, where the file names its axes."""
        for array, roles in zip(self.arrays, self.roles, strict=True):
            said = [role for role in roles if role in AXES]
            stored = [role for role in array.axes if role in AXES]
            if stored and stored != said and len(array.axes) == len(roles):
                raise DatasetError(
                    self.path,
                    f"{array.name!r} has the axes {' '.join(array.axes)} in the file, and "
                    f'data.axes says "{" ".join(roles)}": correct data.axes (pacefno inspect FILE '
                    '--write other.toml writes a document for this file), or say allow = ["axes"] '
                    "in [data] if the file is wrong",
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
                f'{len(roles)} are named, "{" ".join(roles)}"{forgot}: name them all in data.axes '
                "(pacefno inspect FILE --write other.toml writes a document for another file)",
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


def handled(parts: Sequence[Stack]) -> list[str]:
    """Notes for the user on what is converted while it is read."""
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


# --- what coordinates say -------------------------------------------------------------------------


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
    if x[-1] < x[0]:
        raise DatasetError(
            contents.path, f"its axis {axis} runs backwards: flip it, coordinates and arrays alike"
        )
    period = float((x[-1] - x[0]) * points / (points + drop - 1))
    try:
        check_points(torch.from_numpy(x[:points]), length=period, name=axis)
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
        listed, others = contents.coordinate(axis), [n for n in stack.grid if n != points]
        if "axes" not in allow and listed is not None and len(listed) - stack.drop in others:
            raise DatasetError(
                contents.path,
                f"its coordinates {axis} are {len(listed)} points, and the axis {axis} of "
                f"data.axes has {points + stack.drop}: are the axes exchanged? Correct data.axes, "
                'or say allow = ["axes"] in [data] if the file is wrong',
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
    chosen = evenly(stack.samples, most).tolist()
    numbers = sorted({0, stack.snapshots - 1})
    found = torch.stack(
        [torch.from_numpy(stack.read(n, numbers, finite=False)) for n in chosen]
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
        tuple(chosen),
        found[:, 0],
        tuple(bad.tolist()),
        tuple(by_channel.amin(dim=1).tolist()),
        tuple(by_channel.amax(dim=1).tolist()),
        tuple(by_channel.std(dim=1, correction=0).tolist()),
        tuple(jumps),
        tuple(walls),
    )


def check_endpoint(contents: Contents, stack: Stack, settings: DataSettings) -> None:
    """Refuse to drop the last point of an axis where it is none that is listed twice."""
    if not settings.endpoint:
        return
    whole = Stack(contents, stack.names, settings.model_copy(update={"endpoint": False}), stack.dim)
    for axis, jump in zip(AXES, look(whole).jump, strict=False):
        if jump >= CLOSED:
            raise DatasetError(
                stack.path,
                f"along {axis} the last point does not repeat the first, and endpoint = true drops "
                "the last point of every axis: cut it off in the file where it is listed twice, "
                "and leave endpoint out",
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
