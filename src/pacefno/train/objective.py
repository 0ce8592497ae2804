"""What the loop trains on: batches, the loss of one, and the error by which weights are chosen.

Batches are derived from (seed, epoch) alone, so a resumed run draws what an uninterrupted one would
have drawn.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, final

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
from pacefno.grid import coarsen, from_spectrum, to_spectrum, wavenumbers
from pacefno.groups import POINT_GROUPS, Group, Trivial, representation, symmetric_scale
from pacefno.groups.galilean import boosted
from pacefno.inference import build_frame, real_weight
from pacefno.losses import Weights, objective
from pacefno.metrics import nmse, random_elements, relative_l2
from pacefno.operators import Standardised
from pacefno.pace import PACE
from pacefno.pde.initial import generator_for
from pacefno.registry import Spec, build
from pacefno.task import Task
from pacefno.train.config import RunConfig, innermost
from pacefno.train.schedule import anchor_weight, grid_stride, h1_weight

VALIDATION_BATCH = 50
VALIDATION_WINDOWS = 8  # of each trajectory, evenly spaced
ROLLOUT_BATCH = 64  # trajectories that are predicted at once
STATISTICS_SAMPLES = 512  # of those in a file, evenly chosen, that tell mean and deviation
STATISTICS_SNAPSHOTS = 16  # of each of these, where they are trajectories
STATISTICS_NUMBERS = 2**27  # read for it, where samples are large
LEAST_STATISTICS = 16  # samples, however large
MOST_PULLED_BACK = 2**27  # numbers: windows of trajectories that are pulled back once and kept

Scale = tuple[Tensor, Tensor]  # mean and standard deviation per channel


# --- the model ------------------------------------------------------------------------------------


def build_model(config: RunConfig, scales: tuple[Scale, Scale] | None = None) -> PACE:
    """The model of a run with fresh weights that depend on the seed alone.

    ``scales`` are the statistics of inputs and outputs with which it standardises.
    """
    task = config.task
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        with _chosen("operator", config.operator):
            operator = build({"part": "operator", **config.operator})
        if config.scaling != "none" and scales is not None:
            operator = Standardised(operator, *_admissible(config, scales))
        group: Group = task.group
        if config.frame is None:
            group = Trivial(task.dim)
            frame = build({"part": "frame", "name": "identity"}, group=group, type=task.input)
        else:
            with _chosen("frame", config.frame):
                frame = build_frame(config.frame, group, task.slice, task.input)
        return PACE(
            operator,
            group,
            input=task.input,
            output=task.output,
            frame=frame,
            on_undetermined=config.on_undetermined,
        )


@torch.no_grad()
def check_operator(config: RunConfig, data: TrainingData, model: PACE) -> None:
    """Refuse an operator of the user's that fails on a sample, or does not return its output."""
    name = innermost(config.operator)["name"]
    if ":" not in name:
        return
    own = model.operator.operator if isinstance(model.operator, Standardised) else model.operator
    few = next(iter(data.batches(0, Place(0, 1, torch.device("cpu")))))
    x, box = few.input[:1], None if few.box is None else few.box.select(slice(0, 1))
    wanted = (1, config.task.output.size, *x.shape[2:])
    was, given = own.training, f"{name}, given an input of shape {tuple(x.shape)},"
    try:
        with torch.random.fork_rng(devices=[]):
            made = own.eval()(x) if box is None else own.eval()(x, box=box)
    except Exception as error:  # whatever a module of the user's raises
        raise UsageError(f"{given} failed with {type(error).__name__}: {error}") from error
    finally:
        own.train(was)
    if not isinstance(made, Tensor) or tuple(made.shape) != wanted:
        shape = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
        raise UsageError(f"{given} returned {shape}: expected an output of shape {wanted}")


def check_memory(config: RunConfig) -> None:
    """Refuse an operator whose weights the machine cannot hold, before it tries to.

    In training each weight comes with its gradient and the optimiser's two moments.
    """
    try:
        with torch.device("meta"), _chosen("operator", config.operator):
            planned = build({"part": "operator", **config.operator})
    except (RuntimeError, NotImplementedError):  # it looks at values, so it cannot be planned
        return
    needed = 4 * sum(p.numel() * p.element_size() for p in planned.parameters())
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if os.name == "posix" else 0
    if there and needed > there:
        raise UsageError(
            f"operator {config.operator['name']!r}: its weights, their gradients and the "
            f"optimiser's moments need {needed / 2**30:.0f} GB, this machine has "
            f"{there / 2**30:.0f} GB: choose a smaller operator.width or operator.modes"
        )


@contextmanager
def _chosen(part: str, spec: Spec) -> Iterator[None]:
    """Sizes that a part refuses were chosen by the user: its error is one that they can mend."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{part} {spec['name']!r}: {error}") from error


def _admissible(config: RunConfig, scales: tuple[Scale, Scale]) -> tuple[Scale, Scale]:
    """The scales in the form that the configuration asks for."""
    if config.scaling == "uniform":  # outputs may become inputs: one scale for both
        mean, std = (part.mean() for part in scales[0])
        first, second = ((mean.repeat(len(s[0])), std.repeat(len(s[0]))) for s in scales)
        return first, second
    if config.scaling in POINT_GROUPS:
        # Constants must respect the symmetry: no mean for what changes sign, one scale for a
        # vector.
        group, texts = (
            POINT_GROUPS[config.scaling],
            (config.task.input.text, config.task.output.text),
        )
        if config.operator.get("channels") == "scalar":
            texts = ("scalar", "scalar")
        first, second = (
            symmetric_scale(representation(group, channels, len(s[0])), *s)
            for channels, s in zip(texts, scales, strict=True)
        )
        return first, second
    return scales


# --- batches --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """Samples, their targets, and the elements that moved both."""

    input: Tensor
    target: Tensor
    xi: Tensor  # (B, size); zero for samples as they are
    unmoved: Tensor | None = None  # the target before it was moved
    box: Box | None = None
    jitter: Tensor | None = None  # elements by which the frames are displaced
    frame: Tensor | None = None  # given where both are pulled back by it already


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

    @abstractmethod
    def scales(self) -> tuple[Scale, Scale] | None:
        """Statistics of the training inputs and targets; None where they are not standardised."""

    @abstractmethod
    def batches(self, epoch: int, place: Place) -> Iterator[Batch]:
        """The batches of one epoch, on the grid of that epoch."""

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
        self.canonical: CanonicalPairs | None = None  # see canonicalise_once

    def scales(self) -> tuple[Scale, Scale] | None:
        if self.config.scaling == "none":
            return None
        if isinstance(self.train, Pairs) and not removes_flow(self.config):
            return channel_statistics(self.train.input), channel_statistics(self.train.target)
        mean, std = channel_statistics(self._some)
        size = self.config.task.input.size
        return (mean[:size], std[:size]), (mean[size:], std[size:])

    def _some(self) -> Iterator[Tensor]:
        """Training samples for statistics, target after input ``(C + C', *grid)``, one by one."""
        first = pairs_of(self.train.select(slice(0, 1)))
        few_of_file = few_samples(self.samples, first.input.numel() + first.target.numel())
        in_memory = iter(torch.arange(self.samples)[:, None])
        for row in in_memory if isinstance(self.train, Pairs) else few_of_file:
            few = pairs_of(self.train.select(row))
            yield torch.cat(as_the_operator_sees(self.config, few.input, few.target), dim=1)[0]

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
                    yield self.canonical.batch(order[rows], elements[rows], stride, place.device)
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
class CanonicalPairs:
    """Training pairs pulled back by a frame that has nothing to learn: once, not at every step."""

    def __init__(self, config: RunConfig, train: Pairs, model: PACE) -> None:
        self.task, self.moved = config.task, config.schedule.moved
        self.train, self.model = train, model
        self._pulled: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    @torch.no_grad()
    def pulled(self, stride: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, targets and their frames on a grid, kept for the next epoch."""
        if stride not in self._pulled:
            group, task, rows = self.task.group, self.task, []
            for start in range(0, len(self.train), VALIDATION_BATCH):
                few = self.train.select(slice(start, start + VALIDATION_BATCH))
                x, y = coarsen(few.input, stride), coarsen(few.target, stride)
                hint = group.identity(len(x), device=x.device)  # they have not been moved
                xi = self.model.frame(Field(x, task.input), hint).xi
                both = ((x, task.input), (y, task.output))
                back = [group.inverse(Field(values, type), xi).values for values, type in both]
                rows.append((*back, xi))
            x, y, xi = (torch.cat(part) for part in zip(*rows, strict=True))
            self._pulled = {stride: (x, y, xi)}
        return self._pulled[stride]

    def batch(self, chosen: Tensor, xi: Tensor, stride: int, device: torch.device) -> Batch:
        """Some pulled-back samples.

        Moving a sample by xi makes its frame ``xi * frame``: its pulled-back input stays as it is,
        and of its target only what a boost adds changes.
        """
        x, y, first = (part[chosen].to(device) for part in self.pulled(stride))
        xi = xi.to(device) if self.moved else torch.zeros_like(first)
        frame = self.task.group.compose(xi, first) if self.moved else first
        moved, unmoved = (in_place(self.task, y, element) for element in (frame, first))
        return Batch(x, moved, xi, unmoved=unmoved, frame=frame)


@final
class CanonicalWindows:
    """Every window of the training trajectories pulled back by a frame that has nothing to learn.

    Used where samples are not moved in training (``schedule.moved`` is false).
    """

    def __init__(self, config: RunConfig, train: Trajectories, model: PACE) -> None:
        self.task, self.train, self.model = config.task, train, model
        self._pulled: dict[int, tuple[Tensor, Tensor, Box | None]] = {}

    @torch.no_grad()
    def pulled(self, stride: int) -> tuple[Tensor, Tensor, Box | None]:
        """Windows that begin at each snapshot, ``(starts * N, ...)``, frames and boxes, kept."""
        if stride not in self._pulled:
            group, task = self.task.group, self.task
            whole = task.input.at(task.input.times + task.output.times)
            values, frames, boxes = [], [], []
            for start in range(self.train.snapshots - whole.snapshots + 1):
                few = self.train.window(start, whole.snapshots)
                field = Field(coarsen(few.values, stride), whole, few.box)
                seen = Field(field.values[:, : task.input.size], task.input, few.box)
                xi = self.model.frame(seen, group.identity(len(few))).xi
                back = group.inverse(field, xi)
                values.append(back.values)
                frames.append(xi)
                boxes += [] if back.box is None else [back.box]
            box = Box(*map(torch.cat, zip(*boxes, strict=True))) if boxes else None
            self._pulled = {stride: (torch.cat(values), torch.cat(frames), box)}
        return self._pulled[stride]

    def batch(self, chosen: Tensor, starts: Tensor, stride: int) -> Batch:
        """Windows of some trajectories, one of each, that begin at the given snapshots."""
        values, frames, boxes = self.pulled(stride)
        rows = starts * len(self.train) + chosen
        box = None if boxes is None else boxes.select(rows)
        x, y = values[rows].tensor_split([self.task.input.size], dim=1)
        frame = frames[rows]
        target = in_place(self.task, y, frame, box)
        unmoved = target if self.train.box is None else None
        return Batch(x, target, self.task.group.identity(len(x)), unmoved, box, frame=frame)


def in_place(task: Task, target: Tensor, xi: Tensor, box: Box | None = None) -> Tensor:
    """A canonical target as large as the moved one (see ``Group.in_place``)."""
    field = task.group.in_place(Field(target, task.output, box), xi, pooled=True)
    assert field is not None
    return field.values


def canonicalise_once(data: TrainingData, model: PACE) -> None:
    """Pull training samples back before the training where that gives the same losses.

    It does for a frame without weights that finds every sample, on a group whose elements compose
    exactly (or samples that are not moved) and keep the norms that the loss asks for. Windows of
    trajectories must be few enough to be kept, and not moved.
    """
    config = data.config
    if config.frame is None or config.schedule.jitter or config.loss.invariant:
        return
    if any(True for _ in model.frame.parameters()):
        return
    if isinstance(data, PairData) and isinstance(data.train, Pairs):  # in memory
        _canonicalise_pairs(data, data.train, model)
    elif isinstance(data, WindowData) and isinstance(data.train, Trajectories):
        _canonicalise_windows(data, data.train, model)


def _canonicalise_pairs(data: PairData, train: Pairs, model: PACE) -> None:
    config = data.config
    group, target = config.task.group, train.target[:1]
    xi = random_elements(group, 1, 0)
    if group.in_place(Field(target, config.task.output), xi, pooled=is_pooled(config)) is None:
        return
    if config.schedule.moved and not torch.equal(group.composable(xi), xi):
        return
    if _finds_every_sample(model, train.input, None):
        data.canonical = CanonicalPairs(config, train, model)


def _canonicalise_windows(data: WindowData, train: Trajectories, model: PACE) -> None:
    config, task = data.config, data.config.task
    if config.schedule.unroll > 1:  # later windows are predictions, whose frames are found anew
        return
    count = task.input.snapshots + task.output.snapshots
    starts = train.snapshots - count + 1
    few = starts >= 1 and train.values[:, :1].numel() * starts * count <= MOST_PULLED_BACK
    if config.schedule.moved or not few:
        return
    later = train.window(count - task.output.snapshots, task.output.snapshots)
    one = later.select(slice(0, 1))
    target, xi = Field(one.values, task.output, one.box), random_elements(task.group, 1, 0)
    if task.group.in_place(target, xi, pooled=is_pooled(config)) is None:
        return
    each = (train.window(start, task.input.snapshots) for start in range(starts))
    if all(_finds_every_sample(model, few.values, few.box) for few in each):
        data.canonical = CanonicalWindows(config, train, model)


@torch.no_grad()
def _finds_every_sample(model: PACE, fields: Tensor, box: Box | None) -> bool:
    """Whether the frame of each field is determined."""
    for start in range(0, len(fields), VALIDATION_BATCH):
        rows = slice(start, start + VALIDATION_BATCH)
        frame = model.frame_of(fields[rows], None if box is None else box.select(rows))
        if not bool((frame.quality > 0).all()):
            return False
    return True


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
        self.canonical: CanonicalWindows | None = None  # see canonicalise_once

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
                yield without_flow(self.config, Field(few.values, type, few.box)).values[0]

    def batches(self, epoch: int, place: Place) -> Iterator[Batch]:
        schedule = self.config.schedule
        stride = grid_stride(schedule, epoch)
        generator = generator_for("epoch", self.config.seed, epoch)
        for _ in range(schedule.passes):
            order = torch.randperm(self.samples, generator=generator)
            for start in range(0, self.samples - schedule.batch + 1, schedule.batch):
                batch = self._cut(order[start : start + schedule.batch], generator, stride)
                jitter = self.jitter(schedule.batch, generator)
                yield on_device(replace(batch, jitter=jitter), place)

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
            return self.canonical.batch(chosen, starts, stride)
        # From one predicted block of snapshots to the next.
        ahead = task.output.snapshots * (task.output.times[0] - task.input.times[-1])
        blocks = range(schedule.unroll)
        later = tuple(time + block * ahead for block in blocks for time in task.output.times)
        whole = task.input.at(task.input.times + later)
        window = self.train.cut(chosen, starts, whole.snapshots)
        field = Field(coarsen(window.values, stride), whole, window.box)
        xi = task.group.identity(len(chosen))
        split = task.input.size
        # Trajectories in boxes of their own are LPSDA's: their errors are relative to what varies.
        unmoved = field.values[:, split:] if field.box is None else None
        if schedule.moved:
            low = [0.0] * task.group.size
            xi = task.group.sample(low, task.train_range, len(chosen), generator)
            field = task.group.act(field, xi)
        return Batch(field.values[:, :split], field.values[:, split:], xi, unmoved, field.box)

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


def removes_flow(config: RunConfig) -> bool:
    """Whether the operator of a run sees fields without their mean flow.

    A frame takes it out, unless it keeps the first coordinates of the group alone ("partial").
    """
    group = config.task.group
    if config.frame is None or not group.moves_in_time:
        return False
    return bool(config.frame.get("keep", group.size) > group.spatial)


def without_flow(config: RunConfig, field: Field, of: Field | None = None) -> Field:
    """A field without the mean flow that the frame of a run takes out of it, or out of ``of``."""
    if not removes_flow(config):
        return field
    group = config.task.group
    flow = group.kinematic(field if of is None else of)[:, : group.dim].expand(-1, group.dim)
    return boosted(field, -flow)


def as_the_operator_sees(config: RunConfig, input: Tensor, target: Tensor) -> list[Tensor]:
    """Input and target without the mean flow of the input, if the frame of a run removes it."""
    x, y = Field(input, config.task.input), Field(target, config.task.output)
    return [without_flow(config, part, of=x).values for part in (x, y)]


def few_samples(count: int, numbers: int) -> Iterator[Tensor]:
    """Rows of samples of so many numbers that are read for statistics, one by one."""
    most = min(STATISTICS_SAMPLES, max(LEAST_STATISTICS, STATISTICS_NUMBERS // numbers))
    return iter(torch.split(evenly(count, most), 1))


def on_device(batch: Batch, place: Place) -> Batch:
    """The part of a batch that belongs to this process, where it works."""
    own = place.share(len(batch.input))

    def part(tensor: Tensor) -> Tensor:
        return tensor[own].to(place.device)

    return Batch(
        part(batch.input),
        part(batch.target),
        part(batch.xi),
        None if batch.unmoved is None else part(batch.unmoved),
        None if batch.box is None else batch.box.select(own).to(place.device),
        None if batch.jitter is None else part(batch.jitter),
        None if batch.frame is None else part(batch.frame),
    )


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

    A few trajectories at a time, at most ``most`` snapshots of each, and with ``among`` of so many
    trajectories, evenly chosen; :func:`roll_out` is all of them together.
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


# --- the loss -------------------------------------------------------------------------------------


class PredictionAndFrame(nn.Module):
    """A model whose forward also returns the frame it used: all that a loss needs, in one pass."""

    def __init__(self, model: PACE) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        field: Tensor,
        hint: Tensor | None = None,
        box: Box | None = None,
        jitter: Tensor | None = None,
        target: Tensor | None = None,
        frame: Tensor | None = None,
        pooled: bool = False,
    ) -> Any:
        """Prediction and frame; in evaluation mode the prediction alone.

        With a ``target`` they are prediction, target and frame, the first two moved alike to where
        the loss costs least (:meth:`PACE.beside`). With a ``frame`` field and target are pulled
        back by it already.
        """
        model, group = self.model, self.model.group
        if not self.training:
            return model(field, box=box)
        if frame is not None:
            assert target is not None
            made = model.operator(field) if box is None else model.operator(field, box=box)
            predicted = Field(made.to(target.dtype), model.output, box)
            moved = group.in_place(predicted, frame, pooled=pooled)
            assert moved is not None
            return moved.values, target, frame
        xi = model.frame(Field(field, model.input, box), hint).xi
        # With ``jitter`` the operator sees the canonical field moved by it, and what it predicts is
        # pushed out all the same: it learns a neighbourhood of the slice, not the slice alone.
        at = xi if jitter is None else group.compose(xi, group.inverse_element(jitter.to(xi)))
        if target is None:
            return model.at(field, at, box=box), xi
        return *model.beside(field, target, at, box=box, pooled=pooled), xi


def inner_model(module: nn.Module) -> PACE:
    """The model within what trains it: a rollout calls it many times and needs no gradient."""
    for inner in module.modules():
        if isinstance(inner, PACE):
            return inner
    raise TypeError(f"expected a PACE model, got {type(module).__name__}")


def long_waves(values: Tensor, dim: int, top: float) -> Tensor:
    """A field whose waves of n periods in the box are smaller by ``1 / (1 + (n / top)^2)``."""
    grid = tuple(values.shape[2:])
    periods = wavenumbers(grid, device=values.device).square().sum(dim=0)
    factor = (1 / (1 + periods / top**2)).to(values.dtype)
    return from_spectrum(to_spectrum(values, dim) * factor, grid)


BALANCED = ("equivariance", "anchor")  # the terms that know the frame alone
BALANCE_EVERY = 10  # steps: measuring costs another pass back through the operator
MOST_BALANCE = 100.0  # the gradient of a term that is learned vanishes, its weight must not explode


class Loss:
    """The loss of a batch; it owns the moving averages that set weights: of the "ema" schedule of
    the H1 term, and of gradient balancing.
    """

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.h1_balance = 1.0
        self.balances = dict.fromkeys(BALANCED, 1.0)

    def __call__(
        self, module: nn.Module, batch: Batch, epoch: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The total and its parts, means over the batch."""
        if self.config.schedule.unroll > 1:
            return self._in_a_row(module, batch, epoch)
        given, target = (batch.input, batch.xi, batch.box, batch.jitter), batch.target
        if self.config.frame is None or self.config.loss.invariant:
            prediction, xi = module(*given)
        else:
            pooled = is_pooled(self.config)
            prediction, target, xi = module(*given, target, batch.frame, pooled)
        return self._of(prediction, target, xi, batch, epoch)

    def _in_a_row(
        self, module: nn.Module, batch: Batch, epoch: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean over predictions of which each is the input of the next.

        Gradients go back through all of them, so an error that the next step would amplify costs
        more than one that it damps.
        """
        size, window, found = self.config.task.output.size, batch.input, []
        hint: Tensor | None = batch.xi  # what moved the sample; of a prediction it is not known
        for start in range(0, batch.target.shape[1], size):
            block = slice(start, start + size)
            target = batch.target[:, block]
            unmoved = None if batch.unmoved is None else batch.unmoved[:, block]
            prediction, xi = module(window, hint, batch.box, batch.jitter)
            now = replace(batch, input=window, target=target, unmoved=unmoved)
            found.append(self._of(prediction, target, xi, now, epoch))
            hint, window = None, torch.cat([window, prediction], dim=1)[:, -window.shape[1] :]
        totals, parts = zip(*found, strict=True)
        means = {name: torch.stack([part[name] for part in parts]).mean() for name in parts[0]}
        return torch.stack(totals).mean(), means

    def _of(
        self, prediction: Tensor, target: Tensor, xi: Tensor, batch: Batch, epoch: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The total and its parts of one prediction, made with the frame ``xi``."""
        if self.config.loss.error == "squared":
            squares = (prediction - target).square().flatten(1).sum(dim=1).mean()
            return squares, {"l2": squares}
        task = self.config.task
        reference = self._reference(batch)
        if top := self.config.loss.long_waves:
            reference = target if reference is None else reference
            prediction, target, reference = (
                long_waves(part, task.dim, top) for part in (prediction, target, reference)
            )
        if self.config.loss.error == "root-mean-square":
            each = relative_l2(
                prediction, target, per_channel=task.per_channel, reference=reference
            )
            root = each.square().mean().sqrt()
            return root, {"l2": root}
        return objective(
            task.group,
            task.output,
            prediction,
            target,
            None if self.config.frame is None else xi,
            batch.xi,
            self._weights(epoch),
            reference,
        )

    def ratios(self, parts: dict[str, Tensor], frame: nn.Module, epoch: int) -> dict[str, Tensor]:
        """The factor by which each frame term would have the wished share of the gradient.

        Gradients are those on the weights of the frame, on which both the error and the frame terms
        depend.
        """
        own, weights = [p for p in frame.parameters() if p.requires_grad], self._weights(epoch)
        if not own:
            raise UsageError("loss.balance needs a frame with weights, and this one has none")

        def steepness(part: Tensor) -> Tensor:
            slopes = torch.autograd.grad(part, own, retain_graph=True, allow_unused=True)
            return torch.stack([s.norm() for s in slopes if s is not None]).norm()

        error = parts["l2"] + sum(
            getattr(weights, name) * parts[name] for name in ("h1", "invariant") if name in parts
        )
        wished = self.config.loss.balance * steepness(error)
        plain = {"equivariance": self.config.loss.equivariance}
        plain["anchor"] = anchor_weight(self.config.loss, epoch)
        tiny = torch.finfo(wished.dtype).tiny
        return {
            f"ratio_{name}": (
                wished / (plain[name] * steepness(parts[name])).clamp_min(tiny)
            ).clamp(1 / MOST_BALANCE, MOST_BALANCE)
            for name in BALANCED
            if name in parts
        }

    def update(self, values: dict[str, float]) -> None:
        """Note the parts of a step that was taken, and the ratios if they were measured."""
        loss = self.config.loss
        for name in BALANCED:
            if f"ratio_{name}" in values:
                kept, new = loss.balance_memory * self.balances[name], values[f"ratio_{name}"]
                self.balances[name] = kept + (1 - loss.balance_memory) * new
        if loss.h1_schedule == "ema" and values.get("h1", 0.0) > 0:
            ratio = values["l2"] / values["h1"]
            self.h1_balance = loss.h1_memory * self.h1_balance + (1 - loss.h1_memory) * ratio

    def _reference(self, batch: Batch) -> Tensor | None:
        """The field whose norm the error is divided by; None for the target itself."""
        if self.config.loss.relative_to == "moved":
            return None
        if self.config.loss.relative_to == "unmoved" and batch.unmoved is not None:
            return batch.unmoved
        axes = tuple(range(2, batch.target.ndim))
        return batch.target - batch.target.mean(dim=axes, keepdim=True)

    def _weights(self, epoch: int) -> Weights:
        loss = self.config.loss
        return Weights(
            h1=h1_weight(loss, epoch, self.config.schedule.epochs, self.h1_balance),
            equivariance=loss.equivariance * self.balances["equivariance"],
            anchor=anchor_weight(loss, epoch) * self.balances["anchor"],
            invariant=loss.invariant,
            per_channel=self.config.task.per_channel,
        )
