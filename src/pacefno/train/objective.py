"""What the loop trains on: batches, the loss of one, and the error by which weights are chosen.

Batches are derived from (seed, epoch) alone, so a resumed run draws what an uninterrupted one would
have drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from pacefno.data.samples import Pairs, Source, Trajectories, channel_statistics
from pacefno.errors import UsageError
from pacefno.fields import Box, Field
from pacefno.grid import coarsen
from pacefno.groups import POINT_GROUPS, Group, Trivial, representation, symmetric_scale
from pacefno.inference import build_frame, real_weight
from pacefno.losses import Weights, objective
from pacefno.metrics import nmse, random_elements, relative_l2
from pacefno.operators import Standardised
from pacefno.pace import PACE
from pacefno.pde.initial import generator_for
from pacefno.registry import Spec, build
from pacefno.task import Task
from pacefno.train.config import RunConfig
from pacefno.train.schedule import anchor_weight, grid_stride, h1_weight

VALIDATION_BATCH = 50
ROLLOUT_BATCH = 64  # trajectories that are predicted at once

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
            on_undetermined="ignore",  # benchmarks count what a frame cannot find as an error
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
        group, channels = POINT_GROUPS[config.scaling], config.task.input.text
        if config.operator.get("channels") == "scalar":
            channels = "scalar"
        first, second = (
            symmetric_scale(representation(group, channels, len(s[0])), *s) for s in scales
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
        """Updates in an epoch: whole batches only, the rest of a shuffled pass is left out."""
        schedule = self.config.schedule
        return schedule.passes * (self.samples // schedule.batch)

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

    def __init__(self, config: RunConfig, train: Pairs, validation: Pairs) -> None:
        self.config = config
        self.train, self.validation = train, validation
        self.samples, self.grid = len(train), tuple(train.input.shape[2:])
        self.canonical: CanonicalPairs | None = None  # see canonicalise_once

    def scales(self) -> tuple[Scale, Scale] | None:
        if self.config.scaling == "none":
            return None
        return channel_statistics(self.train.input), channel_statistics(self.train.target)

    def batches(self, epoch: int, place: Place) -> Iterator[Batch]:
        schedule, group = self.config.schedule, self.config.task.group
        stride = grid_stride(schedule, epoch)
        inputs, targets = coarsen(self.train.input, stride), coarsen(self.train.target, stride)
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
                x, y = (part[order[rows]].to(place.device) for part in (inputs, targets))
                xi = elements[rows].to(place.device)
                batch = self._moved(x, y, xi) if schedule.moved else self._still(x, y, xi)
                yield with_jitter(batch, None if jitter is None else jitter[own].to(place.device))

    def _moved(self, x: Tensor, y: Tensor, xi: Tensor) -> Batch:
        """Lines 2-3 of Algorithm 1: one element of space-time moves input and target."""
        task = self.config.task
        moved = [
            task.group.act(Field(values, type), xi).values
            for values, type in ((x, task.input), (y, task.output))
        ]
        return Batch(moved[0], moved[1], xi, unmoved=y)

    @staticmethod
    def _still(x: Tensor, y: Tensor, xi: Tensor) -> Batch:
        return Batch(x, y, torch.zeros_like(xi), unmoved=y)

    def validate(self, model: nn.Module, device: torch.device) -> float:
        """Mean relative error on the validation samples as they are, on the full training grid."""
        errors = []
        per_channel = self.config.task.per_channel
        for start in range(0, len(self.validation), VALIDATION_BATCH):
            few = self.validation.select(slice(start, start + VALIDATION_BATCH))
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
        """Moving a sample moves its frame alone, and what a boost adds to its target."""
        x, y, first = (part[chosen].to(device) for part in self.pulled(stride))
        xi = xi.to(device) if self.moved else torch.zeros_like(first)
        frame = self.task.group.compose(xi, first) if self.moved else first
        moved, unmoved = (in_place(self.task, y, element) for element in (frame, first))
        return Batch(x, moved, xi, unmoved=unmoved, frame=frame)


def in_place(task: Task, target: Tensor, xi: Tensor) -> Tensor:
    """A canonical target as large as the moved one (see ``Group.in_place``)."""
    field = task.group.in_place(Field(target, task.output), xi, pooled=True)
    assert field is not None
    return field.values


def canonicalise_once(data: TrainingData, model: PACE) -> None:
    """Pull training pairs back before the training where that gives the same losses.

    It does for a frame without weights that finds every sample, on a group whose elements compose
    exactly (or samples that are not moved) and keep the norms that the loss asks for.
    """
    config = data.config
    if not isinstance(data, PairData) or config.frame is None or config.schedule.jitter:
        return
    group, one = config.task.group, data.train.select(slice(0, 1))
    if config.loss.invariant or any(True for _ in model.frame.parameters()):
        return
    xi = random_elements(group, 1, 0)
    target = Field(one.target, config.task.output)
    if group.in_place(target, xi, pooled=is_pooled(config)) is None:
        return
    if config.schedule.moved and not torch.equal(group.composable(xi), xi):
        return
    with torch.no_grad():
        found = (model.frame_of(rows) for rows in torch.split(data.train.input, VALIDATION_BATCH))
        if all(bool((frame.quality > 0).all()) for frame in found):
            data.canonical = CanonicalPairs(config, data.train, model)


def is_pooled(config: RunConfig) -> bool:
    """Whether the loss asks for the L2 norm over all channels alone."""
    return config.loss.error == "squared" or not (config.loss.h1 or config.task.per_channel)


def with_jitter(batch: Batch, jitter: Tensor | None) -> Batch:
    """The batch with displaced frames."""
    if jitter is None:
        return batch
    return Batch(batch.input, batch.target, batch.xi, batch.unmoved, batch.box, jitter)


@final
class WindowData(TrainingData):
    """Windows of trajectories: the first snapshots are given, the rest is the target."""

    def __init__(self, config: RunConfig, train: Trajectories, validation: Trajectories) -> None:
        self.config = config
        self.train, self.validation = train, validation
        self.samples, self.grid = len(train), tuple(train.values.shape[2:])

    def scales(self) -> tuple[Scale, Scale] | None:
        if self.config.scaling == "none":
            return None
        mean, std = channel_statistics(self.train.values.flatten(0, 1)[:, None])
        task = self.config.task
        first, second = (
            (mean.repeat(type.size), std.repeat(type.size)) for type in (task.input, task.output)
        )
        return first, second

    def batches(self, epoch: int, place: Place) -> Iterator[Batch]:
        schedule = self.config.schedule
        stride = grid_stride(schedule, epoch)
        generator = generator_for("epoch", self.config.seed, epoch)
        for _ in range(schedule.passes):
            order = torch.randperm(self.samples, generator=generator)
            for start in range(0, self.samples - schedule.batch + 1, schedule.batch):
                batch = self._cut(order[start : start + schedule.batch], generator, stride)
                jitter = self.jitter(schedule.batch, generator)
                yield on_device(with_jitter(batch, jitter), place)

    def _cut(self, chosen: Tensor, generator: torch.Generator, stride: int) -> Batch:
        """Cut first and moved then: a boost that began earlier is a larger shift, and shifts are
        uniform on the circle."""
        task, schedule = self.config.task, self.config.schedule
        history, future = task.input.snapshots, task.output.snapshots
        trajectories = self.train.select(chosen)
        starts = window_starts(
            trajectories, history, future, generator, anywhere=schedule.windows == "anywhere"
        )
        window = trajectories.window(starts, history + future)
        whole = task.input.at(task.input.times + task.output.times)
        field = Field(coarsen(window.values, stride), whole, window.box)
        xi = task.group.identity(len(chosen))
        if schedule.moved:
            low = [0.0] * task.group.size
            xi = task.group.sample(low, task.train_range, len(chosen), generator)
            field = task.group.act(field, xi)
        split = task.input.size
        return Batch(field.values[:, :split], field.values[:, split:], xi, box=field.box)

    @torch.no_grad()
    def validate(self, model: nn.Module, device: torch.device) -> float:
        """The mean NMSE of rollouts, summed over their snapshots."""
        predictions, truth = roll_out(inner_model(model), self.config.task, self.validation)
        return float(nmse(predictions, truth).sum(dim=1).double().mean())


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
    )


def window_starts(
    trajectories: Trajectories,
    history: int,
    future: int,
    generator: torch.Generator,
    *,
    anywhere: bool,
) -> Tensor:
    """Where windows begin, ``(N,)``: anywhere, or only where a test block would (LPSDA)."""
    first, step = (0, 1) if anywhere else (history, history)
    choices = torch.tensor(range(first, trajectories.snapshots - history - future + 1, step))
    if not len(choices):
        raise UsageError(
            f"no window of {history} + {future} snapshots that begins at {first} or later fits "
            "into "
            f"{trajectories.snapshots} snapshots"
        )
    return choices[torch.randint(len(choices), (len(trajectories),), generator=generator)]


@torch.no_grad()
def roll_out(model: PACE, task: Task, trajectories: Trajectories) -> tuple[Tensor, Tensor]:
    """Predictions of all snapshots from ``task.rollout.first`` on, and the truth, on the CPU."""
    if task.rollout is None:
        raise UsageError("this task has no rollout: it predicts pairs")
    weight = real_weight(model, trajectories.values)
    history, first = task.input.snapshots, task.rollout.first
    ahead = trajectories.snapshots - first
    steps = -(-ahead // task.output.snapshots)
    found = []
    for start in range(0, len(trajectories), ROLLOUT_BATCH):
        few = trajectories.select(slice(start, start + ROLLOUT_BATCH)).to(weight.device)
        seen = few.window(first - history, history)
        made = model.rollout(seen.values.to(weight.dtype), steps, box=seen.box).flatten(1, 2)
        found.append(made[:, : ahead * few.channels].cpu())
    return torch.cat(found), trajectories.window(first, ahead).values


def make_data(config: RunConfig, source: Source) -> TrainingData:
    """The training and validation samples of a source, in the form that the task needs."""
    train, validation = source.load("train"), source.load("validation")
    dtype, rolled = dtype_of(config), config.task.rollout is not None
    if isinstance(train, Trajectories) and isinstance(validation, Trajectories) and rolled:
        return WindowData(config, as_precise(train, dtype), as_precise(validation, dtype))
    if not (isinstance(train, Pairs) and isinstance(validation, Pairs)) or rolled:
        wanted, got = "trajectories" if rolled else "pairs", type(train).__name__
        raise UsageError(f"the task {config.task.name!r} is about {wanted}, the samples are {got}")
    first, second = (
        Pairs(pairs.input.to(dtype), pairs.target.to(dtype)) for pairs in (train, validation)
    )
    return PairData(config, first, second)


def dtype_of(config: RunConfig) -> torch.dtype:
    """The precision of weights and samples; "bf16-mixed" lowers it inside the operator alone."""
    return torch.float64 if config.precision == "64-true" else torch.float32


def as_precise(trajectories: Trajectories, dtype: torch.dtype) -> Trajectories:
    """The values in another precision; boxes stay as precise as they were stored."""
    return Trajectories(trajectories.values.to(dtype), trajectories.box, trajectories.channels)


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
        if not self.training:
            return self.model(field, box=box)
        if target is not None:
            return self._beside(field, target, hint, box, jitter, frame, pooled)
        if jitter is None:
            made = self.model.predict(field, box=box, hint=hint)
            return made.values, made.frame.xi
        # The operator then sees the canonical field moved by ``jitter``, and what it predicts is
        # pushed out all the same: it learns a neighbourhood of the slice, not the slice alone.
        group = self.model.group
        xi = self.model.frame_of(field, box).xi
        displaced = group.compose(xi, group.inverse_element(jitter.to(xi)))
        return self.model.at(field, displaced, box=box), xi

    def _beside(
        self,
        field: Tensor,
        target: Tensor,
        hint: Tensor | None,
        box: Box | None,
        jitter: Tensor | None,
        frame: Tensor | None,
        pooled: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        model, group = self.model, self.model.group
        if frame is not None:
            predicted = Field(model.operator(field).to(target.dtype), model.output)
            moved = group.in_place(predicted, frame, pooled=pooled)
            assert moved is not None
            return moved.values, target, frame
        xi = model.frame(Field(field, model.input, box), hint).xi
        at = xi if jitter is None else group.compose(xi, group.inverse_element(jitter.to(xi)))
        return *model.beside(field, target, at, box=box, pooled=pooled), xi


def inner_model(module: nn.Module) -> PACE:
    """The model within what trains it: a rollout calls it many times and needs no gradient."""
    for inner in module.modules():
        if isinstance(inner, PACE):
            return inner
    raise TypeError(f"expected a PACE model, got {type(module).__name__}")


class Loss:
    """The loss of a batch; it owns the moving average behind the "ema" schedule of the H1 term."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.h1_balance = 1.0

    def __call__(
        self, module: nn.Module, batch: Batch, epoch: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The total and its parts, means over the batch."""
        given, target = (batch.input, batch.xi, batch.box, batch.jitter), batch.target
        if self.config.frame is None or self.config.loss.invariant:
            prediction, xi = module(*given)
        else:
            pooled = is_pooled(self.config)
            prediction, target, xi = module(*given, target, batch.frame, pooled)
        if self.config.loss.error == "squared":
            squares = (prediction - target).square().flatten(1).sum(dim=1).mean()
            return squares, {"l2": squares}
        task = self.config.task
        return objective(
            task.group,
            task.output,
            prediction,
            target,
            None if self.config.frame is None else xi,
            batch.xi,
            self._weights(epoch),
            self._reference(batch),
        )

    def update(self, values: dict[str, float]) -> None:
        """Note the parts of a step that was taken."""
        loss = self.config.loss
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
            equivariance=loss.equivariance,
            anchor=anchor_weight(loss, epoch),
            invariant=loss.invariant,
            per_channel=self.config.task.per_channel,
        )
