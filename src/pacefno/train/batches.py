"""Batches: what the loop trains on, and the error by which weights are chosen.

Batches are derived from (seed, epoch) alone, so a resumed run draws what an uninterrupted one would
have drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import final

import torch
from torch import Tensor, nn

from pacefno.data.samples import (
    Pairs,
    Samples,
    Source,
    Trajectories,
    TrajectorySamples,
    channel_statistics,
    evenly,
    in_batches,
    precise,
)
from pacefno.errors import UsageError
from pacefno.fields import Box, Field
from pacefno.grid import coarsen
from pacefno.groups.galilean import boosted
from pacefno.inference import build_frame, real_weight
from pacefno.metrics import nmse, random_elements, relative_l2
from pacefno.pace import PACE
from pacefno.pde.initial import generator_for
from pacefno.task import Task
from pacefno.train.config import RunConfig, innermost
from pacefno.train.schedule import grid_stride

VALIDATION_BATCH = 50
VALIDATION_WINDOWS = 8  # of each trajectory, evenly spaced
ROLLOUT_BATCH = 64  # trajectories that are predicted at once
STATISTICS_SAMPLES = 512  # of those in a file, evenly chosen, that tell mean and deviation
STATISTICS_SNAPSHOTS = 16  # of each of these, where they are trajectories
STATISTICS_NUMBERS = 2**27  # read for it, where samples are large
LEAST_STATISTICS = 16  # samples, however large
MOST_PULLED_BACK = 2**27  # numbers: windows of trajectories that are pulled back once and kept

Scale = tuple[Tensor, Tensor]  # mean and standard deviation per channel


@dataclass(frozen=True)
class Batch:
    """Samples, their targets, and the elements that moved both."""

    input: Tensor
    target: Tensor
    xi: Tensor  # (B, size); zero for samples as they are
    unmoved: Tensor | None = None  # the target before it was moved; None where it was not
    box: Box | None = None
    jitter: Tensor | None = None  # elements by which the frames are displaced
    frame: Tensor | None = None  # given where both are pulled back by it already

    def select(self, rows: slice | Tensor, device: torch.device) -> Batch:
        """Some rows of a batch, on a device."""

        def part(tensor: Tensor) -> Tensor:
            return tensor[rows].to(device)

        return Batch(
            part(self.input),
            part(self.target),
            part(self.xi),
            None if self.unmoved is None else part(self.unmoved),
            None if self.box is None else self.box.select(rows).to(device),
            None if self.jitter is None else part(self.jitter),
            None if self.frame is None else part(self.frame),
        )


@dataclass(frozen=True)
class Place:
    """Which part of a shared batch this process works on, and where."""

    rank: int
    world: int
    device: torch.device

    def share(self, size: int) -> slice:
        """The rows of a batch that belong to this process."""
        return slice(self.rank * size // self.world, (self.rank + 1) * size // self.world)


class TrainingData(ABC):
    """The samples of a run: how a batch is cut from them, and how a model is validated on them."""

    config: RunConfig
    samples: int
    grid: tuple[int, ...]
    canonical: PulledBack | None = None  # see canonicalise_once

    @abstractmethod
    def scales(self) -> tuple[Scale, Scale] | None:
        """Statistics of the training inputs and targets; None where they are not standardised."""

    @abstractmethod
    def batches(self, epoch: int, place: Place) -> Iterator[Batch]:
        """The batches of one epoch, on the grid of that epoch."""

    @abstractmethod
    def unmoved(self) -> Callable[[], Iterator[Batch]] | None:
        """All training samples as they are; None if they are not in memory, or too many."""

    @abstractmethod
    def validate(self, model: nn.Module, device: torch.device) -> float:
        """The mean error on the validation samples."""

    def steps(self) -> int:
        """Updates in an epoch."""
        return self.config.schedule.updates(self.samples)

    def check(self) -> None:
        """Refuse a schedule that these samples do not allow."""
        schedule = self.config.schedule
        if schedule.batch > self.samples:
            raise UsageError(
                f"schedule.batch = {schedule.batch} is more than the {self.samples} training "
                "samples"
            )
        if schedule.coarse and any(n % schedule.coarse_stride for n in self.grid):
            raise UsageError(
                f"schedule.coarse_stride = {schedule.coarse_stride} does not divide the grid "
                f"{self.grid}: the coarse field would not be periodic"
            )
        modes = innermost(self.config.operator).get("modes")
        needed = 2 * modes - 1 if isinstance(modes, int) else 0
        few = tuple(n // schedule.coarse_stride for n in self.grid)
        if schedule.coarse and min(few) < needed <= min(self.grid):
            raise UsageError(
                f"schedule.coarse_stride = {schedule.coarse_stride} leaves {few} points of "
                f"{self.grid}, and {modes} modes need {needed} along each axis: set a smaller "
                "stride, fewer operator.modes, or schedule.coarse = 0"
            )

    @cached_property
    def removes_flow(self) -> bool:
        """Whether the operator sees fields without their mean flow, because the frame takes it."""
        task, spec = self.config.task, self.config.frame
        if spec is None:
            return False
        with torch.random.fork_rng(devices=[]):  # what is drawn for its weights is not used
            return build_frame(spec, task.group, task.slice, task.input).removes_flow

    def without_flow(self, field: Field, of: Field | None = None) -> Field:
        """A field without the mean flow that the frame takes out of it, or out of ``of``."""
        if not self.removes_flow:
            return field
        group = self.config.task.group
        flow = group.kinematic(field if of is None else of)[:, : group.dim].expand(-1, group.dim)
        return boosted(field, -flow)

    def jitter(self, count: int, generator: torch.Generator) -> Tensor | None:
        """A small element for each sample, if frames are displaced."""
        part, task = self.config.schedule.jitter, self.config.task
        if not part:
            return None
        strength = [part * value for value in task.train_range]
        return task.group.sample([0.0] * task.group.size, strength, count, generator)


@final
class PairData(TrainingData):
    """Pairs of input and target (Algorithm 1); moved samples are moved anew in every epoch."""

    def __init__(self, config: RunConfig, train: Samples, validation: Samples) -> None:
        self.config = config
        self.train, self.validation = train, validation
        self.samples, self.grid = len(train), train.grid

    def scales(self) -> tuple[Scale, Scale] | None:
        if self.config.scaling == "none":
            return None
        if isinstance(self.train, Pairs) and not self.removes_flow:
            return channel_statistics(self.train.input), channel_statistics(self.train.target)
        mean, std = channel_statistics(self._some)
        size = self.config.task.input.size
        return (mean[:size], std[:size]), (mean[size:], std[size:])

    def _some(self) -> Iterator[Tensor]:
        """Training samples for statistics, target after input ``(C + C', *grid)``, one by one."""
        task, first = self.config.task, pairs_of(self.train.select(slice(0, 1)))
        few_of_file = few_samples(self.samples, first.input.numel() + first.target.numel())
        in_memory = iter(torch.arange(self.samples)[:, None])
        for row in in_memory if isinstance(self.train, Pairs) else few_of_file:
            few = pairs_of(self.train.select(row))
            x, y = Field(few.input, task.input), Field(few.target, task.output)
            seen = [self.without_flow(part, of=x).values for part in (x, y)]
            yield torch.cat(seen, dim=1)[0]

    def batches(self, epoch: int, place: Place) -> Iterator[Batch]:
        schedule, group = self.config.schedule, self.config.task.group
        stride = grid_stride(schedule, epoch)
        generator = generator_for("epoch", self.config.seed, epoch)
        low, high = [0.0] * group.size, self.config.task.train_range or [0.0] * group.size
        for _ in range(schedule.passes):
            order = torch.randperm(self.samples, generator=generator)
            elements = group.sample(low, high, self.samples, generator)
            for start in range(0, self.samples - schedule.batch + 1, schedule.batch):
                own = place.share(schedule.batch)
                rows = slice(start + own.start, start + own.stop)
                jitter = self.jitter(schedule.batch, generator)
                if self.canonical is not None:
                    whole = slice(None)
                    batch = self.canonical.batch(order[rows], elements[rows], stride)
                    yield batch.select(whole, place.device)
                    continue
                few = pairs_of(self.train.select(order[rows])).to(place.device)
                x, y = coarsen(few.input, stride), coarsen(few.target, stride)
                xi = elements[rows].to(place.device)
                still = Batch(x, y, torch.zeros_like(xi), unmoved=y)
                batch = self._moved(x, y, xi) if schedule.moved else still
                yield replace(
                    batch, jitter=None if jitter is None else jitter[own].to(place.device)
                )

    def _moved(self, x: Tensor, y: Tensor, xi: Tensor) -> Batch:
        """Lines 2-3 of Algorithm 1: one element of space-time moves input and target."""
        task = self.config.task
        moved = [
            task.group.act(Field(values, type), xi).values
            for values, type in ((x, task.input), (y, task.output))
        ]
        return Batch(moved[0], moved[1], xi, unmoved=y)

    def unmoved(self) -> Callable[[], Iterator[Batch]] | None:
        train, group = self.train, self.config.task.group

        def batches() -> Iterator[Batch]:
            for rows in in_batches(train, VALIDATION_BATCH):
                few = pairs_of(train.select(rows))
                yield Batch(few.input, few.target, group.identity(len(few)), few.target)

        return batches if isinstance(train, Pairs) else None  # in memory

    @torch.no_grad()
    def validate(self, model: nn.Module, device: torch.device) -> float:
        """Mean relative error on the validation samples as they are, on the full training grid."""
        errors = []
        per_channel = self.config.task.per_channel
        among = self.config.schedule.validation_samples
        for rows in in_batches(self.validation, VALIDATION_BATCH, among=among):
            few = pairs_of(self.validation.select(rows))
            prediction = model(few.input.to(device))
            errors.append(relative_l2(prediction, few.target.to(device), per_channel=per_channel))
        return float(torch.cat(errors).double().mean())


@final
class PulledBack:
    """Training samples pulled back by a frame that has nothing to learn: once, not at every step.

    ``samples`` yields all of them as they are; rows are counted in that order.
    """

    def __init__(
        self, config: RunConfig, samples: Callable[[], Iterator[Batch]], model: PACE
    ) -> None:
        self.task, self.moved = config.task, config.schedule.moved
        self.samples, self.model = samples, model
        self._kept: dict[int, tuple[Field, Field, Tensor]] = {}

    @torch.no_grad()
    def on_grid(self, stride: int) -> tuple[Field, Field, Tensor]:
        """Inputs, targets and their frames on the grid of an epoch, kept for the next one."""
        if stride not in self._kept:
            found = [self._pull_back(few, stride) for few in self.samples()]
            inputs, targets, frames = zip(*found, strict=True)
            self._kept = {stride: (joined(inputs), joined(targets), torch.cat(frames))}
        return self._kept[stride]

    def _pull_back(self, few: Batch, stride: int) -> tuple[Field, Field, Tensor]:
        x = Field(coarsen(few.input, stride), self.task.input, few.box)
        y = Field(coarsen(few.target, stride), self.task.output, few.box)
        group, hint = self.task.group, few.xi  # the identity: they have not been moved
        xi = self.model.frame(x, hint).xi
        return group.inverse(x, xi), group.inverse(y, xi), xi

    def batch(self, rows: Tensor, xi: Tensor | None, stride: int) -> Batch:
        """Some pulled-back samples, as if each had been moved by its xi.

        Moving a sample by xi makes its frame ``xi * frame``: its pulled-back input stays as it is,
        and of its target only what a boost adds changes.
        """
        inputs, targets, frames = self.on_grid(stride)
        x, y, first, box = inputs.values[rows], targets.values[rows], frames[rows], None
        if inputs.box is not None:
            box = inputs.box.select(rows)
        still = in_place(self.task, y, first, box)
        if xi is None or not self.moved:
            return Batch(x, still, torch.zeros_like(first), still, box, frame=first)
        frame = self.task.group.compose(xi, first)
        return Batch(x, in_place(self.task, y, frame, box), xi, still, box, frame=frame)


def joined(fields: Sequence[Field]) -> Field:
    """Fields of one type behind each other."""
    boxes = [field.box for field in fields if field.box is not None]
    box = Box(*map(torch.cat, zip(*boxes, strict=True))) if boxes else None
    return Field(torch.cat([field.values for field in fields]), fields[0].type, box)


def in_place(task: Task, target: Tensor, xi: Tensor, box: Box | None = None) -> Tensor:
    """A canonical target as large as the moved one (see ``Group.in_place``)."""
    field = task.group.in_place(Field(target, task.output, box), xi, pooled=True)
    assert field is not None
    return field.values


@torch.no_grad()
def canonicalise_once(data: TrainingData, model: PACE) -> None:
    """Pull training samples back before the training where that gives the same losses.

    It does for a frame without weights that finds every sample, on a group whose elements compose
    exactly (or samples that are not moved) and keep the norms that the loss asks for.
    """
    config, group = data.config, data.config.task.group
    if config.frame is None or config.schedule.jitter or config.loss.invariant:
        return
    samples = data.unmoved()
    if samples is None or any(True for _ in model.frame.parameters()):
        return
    one, xi = next(samples()).select(slice(0, 1), torch.device("cpu")), random_elements(group, 1, 0)
    target = Field(one.target, config.task.output, one.box)
    if group.in_place(target, xi, pooled=is_pooled(config)) is None:
        return
    if config.schedule.moved and not torch.equal(group.composable(xi), xi):
        return
    if all(bool((model.frame_of(few.input, few.box).quality > 0).all()) for few in samples()):
        data.canonical = PulledBack(config, samples, model)


def is_pooled(config: RunConfig) -> bool:
    """Whether the loss asks for the L2 norm over all channels alone."""
    return config.loss.error == "squared" or not (config.loss.h1 or config.task.per_channel)


@final
class WindowData(TrainingData):
    """Windows of trajectories: the first snapshots are given, the rest is the target."""

    def __init__(
        self, config: RunConfig, train: TrajectorySamples, validation: TrajectorySamples
    ) -> None:
        self.config = config
        self.train, self.validation = train, validation
        self.samples, self.grid = len(train), train.grid

    def scales(self) -> tuple[Scale, Scale] | None:
        """The statistics of each channel over all snapshots, the same for each of them."""
        if self.config.scaling == "none":
            return None
        mean, std = channel_statistics(self._snapshots)
        task = self.config.task
        first, second = (
            (mean.repeat(type.snapshots), std.repeat(type.snapshots))
            for type in (task.input, task.output)
        )
        return first, second

    def _snapshots(self) -> Iterator[Tensor]:
        """Training snapshots ``(C, *grid)`` for statistics, one read at a time."""
        starts = evenly(self.train.snapshots, STATISTICS_SNAPSHOTS).tolist()
        numbers = len(starts) * self.train.cut(slice(0, 1), 0, 1).values.numel()
        type = self.config.task.input.at([0.0])
        for row in few_samples(self.samples, numbers):
            for start in starts:
                few = self.train.cut(row, start, 1)
                yield self.without_flow(Field(few.values, type, few.box)).values[0]

    def batches(self, epoch: int, place: Place) -> Iterator[Batch]:
        schedule = self.config.schedule
        stride = grid_stride(schedule, epoch)
        generator = generator_for("epoch", self.config.seed, epoch)
        for _ in range(schedule.passes):
            order = torch.randperm(self.samples, generator=generator)
            for start in range(0, self.samples - schedule.batch + 1, schedule.batch):
                batch = self._cut(order[start : start + schedule.batch], generator, stride)
                jitter = self.jitter(schedule.batch, generator)
                own = place.share(len(batch.input))
                yield replace(batch, jitter=jitter).select(own, place.device)

    def _cut(self, chosen: Tensor, generator: torch.Generator, stride: int) -> Batch:
        """Cut first and moved then: a boost that began earlier is a larger shift, and shifts are
        uniform on the circle."""
        task, schedule = self.config.task, self.config.schedule
        history, future = task.input.snapshots, task.output.snapshots * schedule.unroll
        starts = window_starts(
            len(chosen),
            self.train.snapshots,
            history,
            future,
            generator,
            anywhere=schedule.windows == "anywhere",
        )
        if self.canonical is not None:
            return self.canonical.batch(starts * self.samples + chosen, None, stride)
        # From one predicted block of snapshots to the next.
        ahead = task.output.snapshots * (task.output.times[0] - task.input.times[-1])
        blocks = range(schedule.unroll)
        later = tuple(time + block * ahead for block in blocks for time in task.output.times)
        whole = task.input.at(task.input.times + later)
        window = self.train.cut(chosen, starts, whole.snapshots)
        field = Field(coarsen(window.values, stride), whole, window.box)
        xi = task.group.identity(len(chosen))
        split = task.input.size
        unmoved = field.values[:, split:]
        if schedule.moved:
            low = [0.0] * task.group.size
            xi = task.group.sample(low, task.train_range, len(chosen), generator)
            field = task.group.act(field, xi)
        return Batch(field.values[:, :split], field.values[:, split:], xi, unmoved, field.box)

    def unmoved(self) -> Callable[[], Iterator[Batch]] | None:
        """Windows from each snapshot on, first those of all trajectories that begin at the first.

        None too where windows are moved, or predictions are inputs, whose frames are found anew.
        """
        train, task, schedule = self.train, self.config.task, self.config.schedule
        if not isinstance(train, Trajectories) or schedule.moved or schedule.unroll > 1:
            return None
        count = task.input.snapshots + task.output.snapshots
        starts = train.snapshots - count + 1
        few = train.values[:, 0].numel() * starts * count <= MOST_PULLED_BACK
        return partial(windows, train, task, starts) if starts >= 1 and few else None

    @torch.no_grad()
    def validate(self, model: nn.Module, device: torch.device) -> float:
        """The mean error on the validation trajectories: of rollouts, or of single windows.

        Of rollouts it is the NMSE, summed over their snapshots; of windows the relative error.
        """
        found, task = inner_model(model), self.config.task
        among = self.config.schedule.validation_samples
        if self.config.schedule.validation == "rollout":
            made = rollouts(found, task, self.validation, among=among)
            errors = [nmse(*both).sum(dim=1) for both in made]
            return float(torch.cat(errors).double().mean())
        errors = []
        for few in windows(self.validation, task, VALIDATION_WINDOWS, among):
            x, y = few.input.to(device), few.target.to(device)
            box = None if few.box is None else few.box.to(device)
            errors.append(relative_l2(found(x, box=box), y, per_channel=task.per_channel))
        return float(torch.cat(errors).double().mean())


def inner_model(module: nn.Module) -> PACE:
    """The model within what trains it: a rollout calls it many times and needs no gradient."""
    for inner in module.modules():
        if isinstance(inner, PACE):
            return inner
    raise TypeError(f"expected a PACE model, got {type(module).__name__}")


def few_samples(count: int, numbers: int) -> Iterator[Tensor]:
    """The samples that are read for statistics, one at a time; fewer if each has many numbers."""
    most = min(STATISTICS_SAMPLES, max(LEAST_STATISTICS, STATISTICS_NUMBERS // numbers))
    return iter(torch.split(evenly(count, most), 1))


def window_starts(
    count: int,
    snapshots: int,
    history: int,
    future: int,
    generator: torch.Generator,
    *,
    anywhere: bool,
) -> Tensor:
    """Where windows begin, ``(count,)``: anywhere, or only where a test block would (LPSDA)."""
    first, step = (0, 1) if anywhere else (history, history)
    choices = torch.tensor(range(first, snapshots - history - future + 1, step))
    if not len(choices):
        raise UsageError(
            f"no window of {history} + {future} snapshots that begins at {first} or later fits "
            f"into {snapshots} snapshots"
        )
    return choices[torch.randint(len(choices), (count,), generator=generator)]


def windows(
    samples: TrajectorySamples, task: Task, each: int, among: int | None = None
) -> Iterator[Batch]:
    """Windows of trajectories as they are, at most ``each`` of one trajectory, evenly spaced.

    With ``among`` of at most so many trajectories.
    """
    split, count = task.input.size, task.input.snapshots + task.output.snapshots
    last = samples.snapshots - count
    if last < 0:
        raise UsageError(
            f"a window of {task.input.snapshots} + {task.output.snapshots} snapshots does not fit "
            f"into {samples.snapshots} snapshots"
        )
    for start in evenly(last + 1, each).tolist():
        for rows in in_batches(samples, VALIDATION_BATCH, count, among):
            few = samples.cut(rows, start, count)
            x, y = few.values.tensor_split([split], dim=1)
            yield Batch(x, y, task.group.identity(len(x)), y, few.box)


@torch.no_grad()
def rollouts(
    model: PACE,
    task: Task,
    trajectories: TrajectorySamples,
    most: int | None = None,
    among: int | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Predictions of all snapshots from ``task.rollout.first`` on, and the truth, on the CPU.

    A few trajectories at a time, at most ``most`` snapshots of each; ``among`` limits their number,
    evenly chosen. :func:`roll_out` is all of them together.
    """
    if task.rollout is None:
        raise UsageError("this task has no rollout: it predicts pairs")
    history, first = task.input.snapshots, task.rollout.first
    ahead = trajectories.snapshots - first
    ahead = ahead if most is None else min(ahead, most)
    steps = -(-ahead // task.output.snapshots)
    for rows in in_batches(trajectories, ROLLOUT_BATCH, history + ahead, among):
        few = trajectories.cut(rows, first - history, history + ahead)
        weight = real_weight(model, few.values)
        seen = few.to(weight.device).window(0, history)
        made = model.rollout(seen.values.to(weight.dtype), steps, box=seen.box).flatten(1, 2)
        truth = few.window(history, ahead).values
        yield made[:, : ahead * few.channels].cpu(), truth.to(weight.dtype)


def roll_out(model: PACE, task: Task, trajectories: TrajectorySamples) -> tuple[Tensor, Tensor]:
    """Predictions of all snapshots from ``task.rollout.first`` on, and the truth, on the CPU."""
    found = list(rollouts(model, task, trajectories))
    return torch.cat([made for made, _ in found]), torch.cat([truth for _, truth in found])


def make_data(config: RunConfig, source: Source) -> TrainingData:
    """The training and validation samples of a source, in the form that the task needs."""
    dtype, rolled = dtype_of(config), config.task.rollout is not None
    train, validation = (precise(source.load(split), dtype) for split in ("train", "validation"))
    if rolled and isinstance(train, TrajectorySamples):
        assert isinstance(validation, TrajectorySamples)
        return WindowData(config, train, validation)
    if rolled or isinstance(train, TrajectorySamples):
        wanted, got = ("trajectories", "pairs") if rolled else ("pairs", "trajectories")
        raise UsageError(f"the task {config.task.name!r} is about {wanted}, the samples are {got}")
    return PairData(config, train, validation)


def pairs_of(samples: Pairs | Trajectories) -> Pairs:
    """Samples that were asked for as pairs; an error for trajectories."""
    if isinstance(samples, Trajectories):
        raise UsageError("the task is about pairs, the samples are trajectories")
    return samples


def dtype_of(config: RunConfig) -> torch.dtype:
    """The precision of weights and samples; "bf16-mixed" lowers it inside the operator alone."""
    return torch.float64 if config.precision == "64-true" else torch.float32
