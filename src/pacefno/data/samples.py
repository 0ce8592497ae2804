"""What training and evaluation are given: pairs of fields, or whole trajectories.

They may be in memory (`Pairs`, `Trajectories`) or be read when asked for (`Samples`): whoever works
on a split of any size asks for some rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, final, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from pacefno.errors import UsageError
from pacefno.fields import Box
from pacefno.grid import FieldError, check_field
from pacefno.registry import unknown

Grid = Literal[
    "id", "ood"
]  # the grid of the training samples, or the finer one of the test samples


@final
@dataclass(frozen=True)
class Pairs:
    """Inputs and targets ``(N, S * C, *grid)``; samples that were moved also say how."""

    input: Tensor
    target: Tensor
    xi: Tensor | None = None  # (N, size): the elements that moved them; for scores, not for models
    resolved: Tensor | None = None  # the target solved from the moved input

    def __post_init__(self) -> None:
        for name in ("input", "target", "xi", "resolved"):
            part = getattr(self, name)
            if part is None and name in ("xi", "resolved"):
                continue
            if not isinstance(part, Tensor):
                got = type(part).__name__
                raise FieldError(f"pairs: {name}: expected a torch.Tensor, got {got}: convert it")
            if len(part) != len(self.input) or len(part) == 0:
                raise FieldError(
                    f"pairs: {name}: expected as many samples as inputs ({len(self.input)}, at "
                    f"least 1), got {len(part)}"
                )

    def __len__(self) -> int:
        return len(self.input)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.input.shape[2:])

    def to(self, target: torch.dtype | torch.device) -> Pairs:
        """The same fields in another precision or on another device; elements stay as they are."""
        resolved = None if self.resolved is None else self.resolved.to(target)
        return Pairs(self.input.to(target), self.target.to(target), self.xi, resolved)

    def select(self, rows: slice | Tensor) -> Pairs:
        """Some of the samples."""
        parts = (self.input, self.target, self.xi, self.resolved)
        return Pairs(*(None if part is None else part[rows] for part in parts))  # type: ignore[arg-type]

    @property
    def elements(self) -> Tensor:
        """The elements that moved these samples; an error for samples as they were solved."""
        if self.xi is None:
            raise UsageError("these samples were not moved: expected those of test_ood")
        return self.xi


@final
@dataclass(frozen=True)
class Trajectories:
    """Solutions in time: values ``(N, S * C, *grid)``, snapshot by snapshot.

    ``box`` is the geometry of each sample where they differ; None where all have the task's.
    """

    values: Tensor
    box: Box | None = None
    channels: int = 1  # of one snapshot

    def __post_init__(self) -> None:
        check_field(self.values, name="trajectories", finite=False)
        dim = self.values.ndim - 2
        if self.box is not None:
            shapes = tuple(self.box.lengths.shape), tuple(self.box.step.shape)
            if shapes != ((len(self.values), dim), (len(self.values),)):
                raise FieldError(
                    f"trajectories: expected lengths and steps of {len(self.values)} samples in "
                    f"{dim} dimensions, got {shapes}"
                )
        if self.values.shape[1] % self.channels:
            raise FieldError(
                f"trajectories: {self.values.shape[1]} channels are not whole snapshots of "
                f"{self.channels}"
            )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.values.shape[2:])

    @property
    def snapshots(self) -> int:
        """How many snapshots each trajectory has."""
        return self.values.shape[1] // self.channels

    def select(self, rows: slice | Tensor) -> Trajectories:
        """Some of the trajectories."""
        box = None if self.box is None else self.box.select(rows)
        return Trajectories(self.values[rows], box, self.channels)

    def cut(self, rows: slice | Tensor, start: int | Tensor, count: int) -> Trajectories:
        """``count`` snapshots of some trajectories, from number ``start`` on."""
        return self.select(rows).window(start, count)

    def window(self, start: int | Tensor, count: int) -> Trajectories:
        """``count`` snapshots from number ``start`` on: one number, or one per trajectory."""
        first = torch.as_tensor(start, device=self.values.device).expand(len(self))
        check_window(int(first.min()), int(first.max()), count, self.snapshots)
        rows = torch.arange(len(self), device=self.values.device)[:, None]
        numbers = first[:, None] + torch.arange(count, device=self.values.device)
        by_snapshot = self.values.reshape(
            len(self), self.snapshots, self.channels, *self.values.shape[2:]
        )
        return Trajectories(by_snapshot[rows, numbers].flatten(1, 2), self.box, self.channels)

    def to(self, target: torch.dtype | torch.device) -> Trajectories:
        """The same in another precision or on another device."""
        box = None if self.box is None else self.box.to(target)
        return Trajectories(self.values.to(target), box, self.channels)


def check_window(first: int, last: int, count: int, there: int) -> None:
    """Refuse windows of ``count`` snapshots that do not lie within those that there are.

    They begin at numbers from ``first`` to ``last``.
    """
    if first < 0 or last + count > there or count < 1:
        begin = str(first) if first == last else f"{first} to {last}"
        raise FieldError(
            f"trajectories: {count} snapshots from number {begin} on do not lie within the {there} "
            "there are"
        )


# --- splits of any size ---------------------------------------------------------------------------


class Samples(Protocol):
    """A split that is read when it is asked for; `Pairs` and `Trajectories` are in memory."""

    @property
    def grid(self) -> tuple[int, ...]:
        """The points along each axis."""
        ...

    def __len__(self) -> int: ...

    def select(self, rows: slice | Tensor) -> Pairs | Trajectories:
        """Some of the samples; no others are read."""
        ...


@runtime_checkable
class TrajectorySamples(Samples, Protocol):
    """A split of trajectories, of which single windows can be read."""

    @property
    def snapshots(self) -> int:
        """How many snapshots each trajectory has."""
        ...

    def cut(self, rows: slice | Tensor, start: int | Tensor, count: int) -> Trajectories:
        """``count`` snapshots of some trajectories from number ``start`` on: one, or one each."""
        ...


class Source(Protocol):
    """Where samples come from: a generated dataset, or a file of the user's."""

    def load(self, split: str, grid: Grid = "id") -> Samples:
        """A split: ``train``, ``validation``, ``test`` (of generated pairs ``test_id`` and
        ``test_ood``)."""
        ...


SPLITS = ("train", "validation", "test")


@final
class ArraySource:
    """Arrays of one's own as a source of samples, split at random into three.

    ``ArraySource(input, target)`` are pairs ``(N, C, *grid)``, with several snapshots one after the
    other among the channels; ``ArraySource(values)`` are trajectories ``(N, T, C, *grid)``. Numpy
    arrays are taken as well, and memory-mapped ones are read when needed. A sample, and so a whole
    trajectory, is in one split only. ``shares`` are those of training, validation and test.
    """

    def __init__(
        self,
        values: Any,
        target: Any = None,
        *,
        shares: Sequence[float] = (0.8, 0.1, 0.1),
        seed: int = 0,
    ) -> None:
        for array in (values, target):
            _check_array(array)
        if target is not None and min(values.ndim, target.ndim) < 3:
            raise FieldError(
                f"pairs: expected (sample, channel, *grid), got {tuple(values.shape)} and "
                f"{tuple(target.shape)}: one channel is values[:, None]"
            )
        if target is None and values.ndim < 4:
            raise FieldError(
                f"trajectories: expected (sample, time, channel, *grid), got {tuple(values.shape)}"
                ": pairs need a target as well"
            )
        if target is not None and len(target) != len(values):
            raise FieldError(
                f"pairs: expected as many targets as inputs, {len(values)}, got {len(target)}"
            )
        if target is not None and tuple(target.shape[2:]) != tuple(values.shape[2:]):
            raise FieldError(
                f"pairs: expected inputs and targets on one grid, got {tuple(values.shape[2:])} "
                f"and {tuple(target.shape[2:])}: resample one of them"
            )
        self.values, self.target = values, target
        self.rows = split_rows(len(values), shares, seed)

    def load(self, split: str, grid: Grid = "id") -> Samples:
        """The samples of a split; they have one grid. Of pairs, "test_id" is the test split too."""
        if self.target is not None and split == "test_id":
            split = "test"
        if split not in self.rows:
            raise UsageError(unknown("split", split, self.rows))
        rows = self.rows[split]
        if self.target is None:
            return _ArrayTrajectories(self.values, rows)
        return _ArrayPairs(self.values, self.target, rows)


def split_rows(count: int, shares: Sequence[float], seed: int) -> dict[str, Tensor]:
    """The numbers of the samples of each split: a random choice, none of them empty, in order."""
    if len(shares) != 3 or min(shares) <= 0:
        raise UsageError(f"shares: expected three positive numbers, {SPLITS}, got {shares!r}")
    if count < 3:
        raise UsageError(f"expected at least 3 samples, one for each split, got {count}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    second, third = (max(1, round(count * share / sum(shares))) for share in shares[1:])
    third = min(third, count - 2)
    second = min(second, count - 1 - third)
    parts = order.tensor_split([count - second - third, count - third])
    return {name: part.sort().values for name, part in zip(SPLITS, parts, strict=True)}


def _check_array(array: Any) -> None:
    """Refuse values that would be dropped or made up without a word."""
    kind = getattr(array, "dtype", None)
    if isinstance(array, np.ma.MaskedArray):
        raise FieldError(
            "samples: expected plain values, got a masked array: fill it, np.ma.filled(array, "
            "value), or leave such samples out"
        )
    if getattr(kind, "is_complex", False) or getattr(kind, "kind", "") == "c":
        raise FieldError(
            f"samples: expected real numbers, got {kind}: store real and imaginary part as two "
            "channels"
        )


def _taken(array: Any, *places: Tensor) -> Tensor:
    """What lies at some places of a tensor or of a numpy array, as numbers that torch can train
    on.
    """
    if isinstance(array, Tensor):
        found = array[places]
    else:
        part = np.asarray(array[tuple(place.numpy() for place in places)])
        found = torch.as_tensor(part.astype(part.dtype.newbyteorder("="), copy=False))
    return found if found.is_floating_point() else found.float()


@final
@dataclass(frozen=True)
class _ArrayPairs:
    input: Any
    target: Any
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.input.shape[2:])

    def select(self, rows: slice | Tensor) -> Pairs:
        return Pairs(_taken(self.input, self.rows[rows]), _taken(self.target, self.rows[rows]))


@final
@dataclass(frozen=True)
class _ArrayTrajectories:
    values: Any  # (N, T, C, *grid)
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.values.shape[3:])

    @property
    def snapshots(self) -> int:
        return int(self.values.shape[1])

    def select(self, rows: slice | Tensor) -> Trajectories:
        channels = int(self.values.shape[2])
        return Trajectories(_taken(self.values, self.rows[rows]).flatten(1, 2), None, channels)

    def cut(self, rows: slice | Tensor, start: int | Tensor, count: int) -> Trajectories:
        chosen = self.rows[rows]
        first = torch.as_tensor(start).expand(len(chosen))
        check_window(int(first.min()), int(first.max()), count, self.snapshots)
        values = _taken(self.values, chosen[:, None], first[:, None] + torch.arange(count))
        return Trajectories(values.flatten(1, 2), None, int(self.values.shape[2]))


# --- reading a split piece by piece ---------------------------------------------------------------


def as_precise(trajectories: Trajectories, dtype: torch.dtype) -> Trajectories:
    """The values in another precision; boxes stay as precise as they were stored."""
    return Trajectories(trajectories.values.to(dtype), trajectories.box, trajectories.channels)


def precise(samples: Samples, dtype: torch.dtype) -> Samples:
    """The samples in another precision: converted now where in memory, else when they are read."""
    if isinstance(samples, Pairs):
        return samples.to(dtype)
    if isinstance(samples, Trajectories):
        return as_precise(samples, dtype)
    long = isinstance(samples, TrajectorySamples)
    return _PreciseTrajectories(samples, dtype) if long else _Precise(samples, dtype)


@dataclass(frozen=True)
class _Precise:
    samples: Any
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def grid(self) -> tuple[int, ...]:
        grid: tuple[int, ...] = self.samples.grid
        return grid

    def select(self, rows: slice | Tensor) -> Pairs | Trajectories:
        found = precise(self.samples.select(rows), self.dtype)
        assert isinstance(found, Pairs | Trajectories)
        return found


@final
class _PreciseTrajectories(_Precise):
    @property
    def snapshots(self) -> int:
        return int(self.samples.snapshots)

    def cut(self, rows: slice | Tensor, start: int | Tensor, count: int) -> Trajectories:
        return as_precise(self.samples.cut(rows, start, count), self.dtype)


NUMBERS_AT_ONCE = 2**22  # of a field, so that what a model makes of them fits into memory


def evenly(count: int, most: int | None) -> Tensor:
    """At most so many of the numbers below ``count``, evenly spread, in order."""
    if most is None or most >= count:
        return torch.arange(count)
    return torch.linspace(0, count - 1, most, dtype=torch.float64).round().long()


def in_batches(
    samples: Samples, most: int, snapshots: int | None = None, among: int | None = None
) -> Iterator[slice | Tensor]:
    """Rows to ask for one after the other: ``most`` at a time, fewer where samples are large.

    Of trajectories ``snapshots`` are asked for, all of them if nothing is said. With ``among`` at
    most so many samples in all, evenly chosen.
    """
    if isinstance(samples, TrajectorySamples):
        count = samples.snapshots if snapshots is None else snapshots
        numbers = samples.cut(slice(0, 1), 0, 1).values.numel() * count
    else:
        first = samples.select(slice(0, 1))
        numbers = (first.input if isinstance(first, Pairs) else first.values).numel()
    few = max(1, min(most, NUMBERS_AT_ONCE // numbers))
    if among is not None and among < len(samples):
        return iter(torch.split(evenly(len(samples), among), few))
    return (slice(start, start + few) for start in range(0, len(samples), few))


def channel_statistics(
    fields: Tensor | Callable[[], Iterable[Tensor]],
) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of ``(N, C, *grid)`` over samples and grid, each ``(C,)``.

    Fields that do not fit into memory are given as a function, called twice, that reads them sample
    by sample, ``(C, *grid)``. Sums run in float64. A channel that does not vary gets 1, so that
    dividing by it is harmless.
    """
    if isinstance(fields, Tensor):
        check_field(fields, name="fields to standardise")
        kept = fields
        return channel_statistics(lambda: kept)
    count, total = 0, torch.zeros(1, dtype=torch.float64)
    dtype = torch.float32
    for number, sample in enumerate(fields()):
        check_field(sample[None], name=f"training sample {number}")
        total = total.to(sample.device) + sample.double().flatten(1).sum(dim=1)
        count, dtype = count + sample[0].numel(), sample.dtype
    mean = total / count
    squares = torch.zeros_like(mean)
    for sample in fields():
        squares += (sample.double().flatten(1) - mean[:, None]).square().sum(dim=1)
    std = (squares / count).sqrt()
    noise = torch.finfo(dtype).eps * (mean.abs() + torch.finfo(torch.float32).tiny)
    std = torch.where(std > noise, std, torch.ones_like(std))
    return mean.to(dtype), std.to(dtype)
