"""The models of the tables on trajectories, as data, and what they are trained on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from pacefno.equations import TrajectoryProblem
from pacefno.equations.random_fields import generator_for
from pacefno.forecast import Conditions, Forecaster
from pacefno.frames.windows import WindowFrame
from pacefno.metrics import relative_l2, relative_l2_channels
from pacefno.operators import FNO
from pacefno.symmetry import Trajectories
from pacefno.symmetry.trajectories import window_starts
from pacefno.training.batches import batches_per_epoch, share
from pacefno.training.config import OperatorSettings, RunConfig
from pacefno.training.state import Progress
from pacefno.training.workload import Place, Workload, check_batch

TOGETHER = 64  # trajectories that are rolled out in one batch


@dataclass(frozen=True)
class ForecastSpec:
    """What one row of a table on trajectories is. No model has a channel of coordinates, as at LPSDA."""

    title: str
    history: int = 20  # frames that it sees, and predicts at once
    anywhere: bool = True  # g1: windows may begin at any frame, not only where a test block does
    augment: bool = False  # g2, g3 and g4 (where the equation has it) drawn anew for every window
    canonical: bool = False  # PACE: every window is pulled back to the structured frame
    one_seed: bool = False  # a row whose spread is of no interest


FORECASTS: dict[str, ForecastSpec] = {
    "fno": ForecastSpec("FNO, 20 frames", anywhere=False),
    "fno-g1": ForecastSpec("FNO, 20 frames + time windows", one_seed=True),
    "fno-aug": ForecastSpec("FNO, 20 frames + augmentation", augment=True),
    "pace-20": ForecastSpec("PACE, 20 frames", canonical=True),
    "fno-aug-1": ForecastSpec("FNO, 1 frame + augmentation", history=1, augment=True, one_seed=True),
    "pace-1": ForecastSpec("PACE, 1 frame", history=1, canonical=True),
}


def forecast_named(name: str) -> ForecastSpec:
    if name not in FORECASTS:
        raise ValueError(f"unknown model {name!r} of trajectories: expected one of {', '.join(FORECASTS)}")
    return FORECASTS[name]


def build_forecaster(problem: TrajectoryProblem, spec: ForecastSpec, settings: OperatorSettings, seed: int) -> Forecaster:
    """A model with fresh weights that depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        channels = spec.history + 2  # the frames, dx and dt
        operator = FNO(1, channels, spec.history, settings.width, settings.modes, layers=settings.layers, head=settings.head)
    return Forecaster(
        operator,
        Conditions(problem.length, problem.spacing, problem.variation),
        spec.history,
        spec.history,
        frame=WindowFrame(problem.symmetry, problem.spacing) if spec.canonical else None,
        residual=settings.residual,
    )


def nmse(prediction: Tensor, target: Tensor) -> Tensor:
    """LPSDA's normalised squared error of each frame, ``(B, frames)``; its NMSE is the *sum* over the frames, no mean.

    Infinite where the prediction is not finite.
    """
    return relative_l2_channels(prediction, target).square().nan_to_num(nan=math.inf, posinf=math.inf)


def lpsda_rollout(problem: TrajectoryProblem, model: Forecaster, trajectories: Trajectories) -> tuple[Tensor, Tensor]:
    """LPSDA's rollout: 20 frames are passed over, 20 are seen, the rest is predicted; prediction and truth."""
    seen = trajectories.window(problem.history, problem.history)
    frames = trajectories.frames - 2 * problem.history
    return model.rollout(seen, frames), trajectories.u[:, 2 * problem.history :]


def rollouts(problem: TrajectoryProblem, model: Forecaster, trajectories: Trajectories) -> tuple[Tensor, Tensor]:
    """The same for any number of trajectories, some at a time on the device of the model; both parts on the CPU."""
    device = next(model.parameters()).device
    pairs = [
        lpsda_rollout(problem, model, trajectories.select(slice(start, start + TOGETHER)).to(device))
        for start in range(0, len(trajectories), TOGETHER)
    ]
    return torch.cat([prediction.cpu() for prediction, _ in pairs]), torch.cat([truth.cpu() for _, truth in pairs])


@dataclass(frozen=True)
class Windows:
    """A training batch: the windows, and by how much the frame of each is displaced."""

    trajectories: Trajectories
    jitter: Tensor | None


@final
class WindowWorkload(Workload[Windows]):
    """Windows of trajectories: the first ``history`` frames are given, the rest is the target."""

    def __init__(
        self,
        config: RunConfig,
        problem: TrajectoryProblem,
        spec: ForecastSpec,
        train: Trajectories,
        validation: Trajectories,
    ) -> None:
        self.config = config
        self.problem = problem
        self.spec = spec
        self.train = train
        self.validation = validation

    def module(self, model: nn.Module) -> nn.Module:
        return model

    def parameter_groups(self, model: nn.Module) -> list[dict[str, object]]:
        return [{"params": list(model.parameters()), "weight_decay": self.config.schedule.weight_decay}]

    def steps(self) -> int:
        return self.config.schedule.passes * batches_per_epoch(len(self.train), self.config.schedule.batch)

    def check(self) -> None:
        check_batch(self.config.schedule, len(self.train))
        if self.config.precision == "bf16-mixed":
            raise ValueError("precision: bf16-mixed would round the lengths of domains to three digits: use 32-true or 64-true")

    def batches(self, epoch: int, place: Place) -> Iterator[Windows]:
        generator = generator_for("epoch", self.config.seed, epoch)
        size = self.config.schedule.batch
        for _ in range(self.config.schedule.passes):
            order = torch.randperm(len(self.train), generator=generator)
            for start in range(0, len(order) - size + 1, size):
                batch = self._windows(order[start : start + size], generator)
                jitter = self._jitter(size, generator)
                own = share(size, place.rank, place.world)
                part = batch.select(own).to(place.device)
                yield Windows(part, None if jitter is None else jitter[own].to(part.u))

    def _windows(self, chosen: Tensor, generator: torch.Generator) -> Trajectories:
        """Cut first and moved then: a boost that began earlier is a larger shift, and shifts are uniform on the circle."""
        length = self.spec.history
        trajectories = self.train.select(chosen)
        starts = window_starts(trajectories, length, length, generator, translate=self.spec.anywhere)
        windows = trajectories.window(starts, 2 * length)
        return self.problem.augment(windows, generator) if self.spec.augment else windows

    def loss(self, module: nn.Module, batch: Windows, progress: Progress) -> tuple[Tensor, dict[str, Tensor]]:
        windows = batch.trajectories
        seen, target = windows.u[:, : self.spec.history], windows.u[:, self.spec.history :]
        prediction = module(seen, windows.length, windows.spacing, batch.jitter)
        if self.config.loss.error == "squared":
            error = (prediction - target).square().sum(dim=(1, 2))
        else:  # without the energy of a boost, as for fields
            error = relative_l2(prediction, target, reference=target - target.mean(dim=2, keepdim=True))
        return error.mean(), {"l2": error.mean()}

    def _jitter(self, count: int, generator: torch.Generator) -> Tensor | None:
        """A small element for each window of a canonical model."""
        part = self.config.schedule.jitter
        if not (part and self.spec.canonical):
            return None
        symmetry, strength = self.problem.symmetry, [part * value for value in self.problem.train_range]
        return symmetry.sample([0.0] * symmetry.size, strength, count, generator)

    def validate(self, module: nn.Module, device: torch.device) -> float:
        """The mean NMSE of rollouts."""
        model = unwrapped(module)
        validation = self.validation.to(next(model.parameters()).dtype)
        return float(nmse(*rollouts(self.problem, model, validation)).sum(dim=1).double().mean())


def unwrapped(module: nn.Module) -> Forecaster:
    """The model within what Fabric made of it: a rollout calls it many times and needs no gradient."""
    for inner in module.modules():
        if isinstance(inner, Forecaster):
            return inner
    raise TypeError(f"expected a Forecaster, got {type(module).__name__}")
