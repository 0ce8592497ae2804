"""What the loop trains on. The loop knows steps, checkpoints and rates; a workload knows samples, losses and errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, final

import torch
from torch import Tensor, nn

from pacefno.data import Samples
from pacefno.equations import Problem
from pacefno.grid import coarsen
from pacefno.losses import Weights, objective
from pacefno.metrics import relative_l2
from pacefno.pace import PACE
from pacefno.training.batches import Batch, batches_per_epoch, epoch_batches
from pacefno.training.config import RunConfig, ScheduleSettings
from pacefno.training.schedule import anchor_weight, grid_stride, h1_weight
from pacefno.training.state import Progress

B = TypeVar("B")


@dataclass(frozen=True)
class Place:
    """Which part of a shared batch this process works on, and where."""

    rank: int
    world: int
    device: torch.device


class Workload(ABC, Generic[B]):
    """Batches that depend on (seed, epoch) alone, the loss of one, and the error by which the best weights are chosen."""

    config: RunConfig

    @abstractmethod
    def module(self, model: nn.Module) -> nn.Module:
        """What the loop calls (and spreads over processes): the model with a forward that serves the loss."""

    @abstractmethod
    def parameter_groups(self, model: nn.Module) -> list[dict[str, object]]:
        """For the optimiser: which weights decay."""

    @abstractmethod
    def steps(self) -> int:
        """Updates in an epoch."""

    @abstractmethod
    def check(self) -> None:
        """Refuse a schedule that these samples do not allow."""

    @abstractmethod
    def batches(self, epoch: int, place: Place) -> Iterator[B]: ...

    @abstractmethod
    def loss(self, module: nn.Module, batch: B, progress: Progress) -> tuple[Tensor, dict[str, Tensor]]:
        """The total and its parts, means over the batch."""

    @abstractmethod
    def validate(self, module: nn.Module, device: torch.device) -> float:
        """The mean error on the validation samples."""

    def facts(self, epoch: int) -> dict[str, float]:
        """What the metric log says of an epoch beside its losses."""
        return {}


def check_batch(schedule: ScheduleSettings, samples: int) -> None:
    if schedule.batch > samples:
        raise ValueError(f"schedule.batch = {schedule.batch} is more than the {samples} training samples")


class PredictionAndFrame(nn.Module):
    """A model whose forward also returns the frame it used: what the losses need, in one pass (and through DDP).

    In training ``known`` is the element that moved the samples; only a frame that would search for it looks at it.
    """

    def __init__(self, model: PACE) -> None:
        super().__init__()
        self.model = model

    def forward(self, field: Tensor, known: Tensor | None = None) -> tuple[Tensor, Tensor]:
        frame = self.model.frame
        xi_0 = (frame(field) if known is None else frame.known(field, known)).xi
        return self.model.at(field, xi_0), xi_0


@final
class FieldWorkload(Workload[Batch]):
    """Pairs of a field and its image under the flow (Algorithm 1); ``moved`` samples are drawn anew in every epoch."""

    def __init__(self, config: RunConfig, problem: Problem, moved: bool, train: Samples, validation: Samples) -> None:
        self.config = config
        self.problem = problem
        self.moved = moved
        self.train = train
        self.validation = validation

    def module(self, model: nn.Module) -> nn.Module:
        assert isinstance(model, PACE)
        return PredictionAndFrame(model)

    def parameter_groups(self, model: nn.Module) -> list[dict[str, object]]:
        """Weight decay for the operator; none for the estimator (paper, caption of its loss table)."""
        assert isinstance(model, PACE)
        frame = [p for p in model.frame.parameters() if p.requires_grad]
        decay = self.config.schedule.weight_decay
        groups: list[dict[str, object]] = [{"params": list(model.operator.parameters()), "weight_decay": decay}]
        return [*groups, {"params": frame, "weight_decay": 0.0}] if frame else groups

    def steps(self) -> int:
        return batches_per_epoch(len(self.train.input), self.config.schedule.batch)

    def check(self) -> None:
        schedule, grid = self.config.schedule, tuple(self.train.input.shape[2:])
        check_batch(schedule, len(self.train.input))
        if schedule.coarse and any(n % schedule.coarse_stride for n in grid):
            raise ValueError(
                f"schedule.coarse_stride = {schedule.coarse_stride} does not divide the grid {grid}: it would tear it"
            )

    def facts(self, epoch: int) -> dict[str, float]:
        return {"grid_stride": grid_stride(self.config.schedule, epoch)}

    def batches(self, epoch: int, place: Place) -> Iterator[Batch]:
        stride = grid_stride(self.config.schedule, epoch)
        return epoch_batches(
            self.problem,
            coarsen(self.train.input, stride),
            coarsen(self.train.target, stride),
            seed=self.config.seed,
            epoch=epoch,
            size=self.config.schedule.batch,
            moved=self.moved,
            rank=place.rank,
            world=place.world,
            device=place.device,
        )

    def loss(self, module: nn.Module, batch: Batch, progress: Progress) -> tuple[Tensor, dict[str, Tensor]]:
        prediction, xi_0 = module(batch.input, batch.xi_0)
        weights = self._weights(progress)
        group = self.problem.group
        return objective(group, prediction, batch.target, xi_0, batch.xi_0, batch.xi_T, weights, batch.unmoved)

    def _weights(self, progress: Progress) -> Weights:
        loss, epoch = self.config.loss, progress.epoch
        return Weights(
            h1=h1_weight(loss, epoch, self.config.schedule.epochs, progress.h1_balance),
            equivariance=loss.equivariance,
            anchor=anchor_weight(loss, epoch),
            invariant=loss.invariant,
            per_channel=self.problem.per_channel,
            relative_to=loss.relative_to,
        )

    def validate(self, module: nn.Module, device: torch.device) -> float:
        """Mean relative error on the canonical validation samples at the full ID grid."""
        errors = []
        for x, y in zip(torch.split(self.validation.input, 50), torch.split(self.validation.target, 50), strict=True):
            prediction, _ = module(x.to(device))
            errors.append(relative_l2(prediction, y.to(device), per_channel=self.problem.per_channel))
        return float(torch.cat(errors).double().mean())
