"""The one training loop (Algorithm 1): every row of every table goes through it, on Lightning Fabric."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from pacefno.data import Samples
from pacefno.equations import Problem
from pacefno.grid import coarsen
from pacefno.losses import Weights, objective
from pacefno.metrics import relative_l2
from pacefno.pace import PACE
from pacefno.training.batches import Batch, batches_per_epoch, epoch_batches
from pacefno.training.config import RunConfig, settings_since
from pacefno.training.schedule import anchor_weight, grid_stride, h1_weight, learning_rate
from pacefno.training.state import Progress, copy_weights, newest, restore_state, save_final, save_state

MAX_SKIPPED_IN_A_ROW = 5
START_AGAIN = "start again with a lower --set schedule.rate=... and another --out; the last good checkpoint is untouched"


class DivergenceError(RuntimeError):
    """The loss stopped being a number. The last good checkpoint is untouched."""


class StopRequest(Exception):
    """Someone asked the training to stop; it did, with a checkpoint."""


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


@dataclass(frozen=True)
class Hooks:
    """What the outside wants to hear, and how it asks for a stop."""

    on_step: Callable[[Progress, int], None] = lambda progress, steps_per_epoch: None
    on_epoch: Callable[[Progress], None] = lambda progress: None
    on_message: Callable[[str], None] = lambda text: None
    stop: Callable[[], bool] = lambda: False


class Trainer:
    """One run: owns model, optimiser and counters between :meth:`resume` and :meth:`fit`."""

    def __init__(self, fabric: Fabric, config: RunConfig, problem: Problem, model: PACE, moved: bool, run: Path) -> None:
        self.fabric = fabric
        self.config = config
        self.problem = problem
        self.model = model
        self.moved = moved
        self.run = run
        schedule = config.schedule
        optimizer = torch.optim.Adam(_parameter_groups(model, schedule.weight_decay), lr=schedule.rate)
        self.module, self.optimizer = fabric.setup(PredictionAndFrame(model), optimizer)
        self.progress = Progress()
        self.best: dict[str, Tensor] = copy_weights(model)
        self._skipped_in_a_row = 0
        self._say: Callable[[str], None] = lambda text: None

    def resume(self, on_message: Callable[[str], None]) -> None:
        """Go on from the newest good checkpoint; a broken newer one is named and passed over."""
        checkpoint, rejected = newest(self.run)
        for error in rejected:
            on_message(f"passing over a damaged checkpoint: {error}")
        if checkpoint is None:
            return
        changed = settings_since(checkpoint.documents["config"], self.config)
        if changed:
            raise ValueError(
                f"{self.run} was trained with other settings ({changed}): resume with the same ones, or name another run folder"
            )
        threads = checkpoint.documents["timing"]["threads"]
        if threads != torch.get_num_threads():
            on_message(
                f"this run used {threads} threads, now {torch.get_num_threads()}: the last bits of the result may differ"
            )
        self.best, self.progress = restore_state(checkpoint, self.model, self.optimizer)
        on_message(f"resuming after epoch {self.progress.epoch} of {self.config.schedule.epochs}")

    def fit(self, train: Samples, validation: Samples, hooks: Hooks) -> Progress:
        schedule = self.config.schedule
        steps = batches_per_epoch(len(train.input), schedule.batch)
        self._check_schedule(train, steps)
        self._say = hooks.on_message
        while self.progress.epoch < schedule.epochs:
            started = time.perf_counter()
            record = self._epoch(train, steps, hooks)
            last = self.progress.epoch == schedule.epochs
            if last or self.progress.epoch % schedule.validate_every == 0:
                record["validation_error"] = self._validate(validation)
                self._keep_best(record["validation_error"])
            self.progress.log.append(record)
            self.progress.seconds += time.perf_counter() - started
            hooks.on_epoch(self.progress)
            stopping = self._agree(hooks.stop())
            if last or stopping or self.progress.epoch % schedule.checkpoint_every == 0:
                self._save()
            if stopping and not last:
                raise StopRequest(f"stopped after epoch {self.progress.epoch}")
        if not self.progress.best_epoch:
            raise DivergenceError(f"no validation error was ever finite, so there is no model to keep; {START_AGAIN}")
        if self.fabric.is_global_zero:
            save_final(self.run, self.config, self.best, self.progress)
        self.fabric.barrier()
        return self.progress

    def _check_schedule(self, train: Samples, steps: int) -> None:
        schedule, grid = self.config.schedule, tuple(train.input.shape[2:])
        if steps == 0:
            raise ValueError(f"schedule.batch = {schedule.batch} is more than the {len(train.input)} training samples")
        if schedule.batch % self.fabric.world_size:
            raise ValueError(
                f"schedule.batch = {schedule.batch} cannot be shared equally by {self.fabric.world_size} processes"
            )
        if schedule.coarse and any(n % schedule.coarse_stride for n in grid):
            raise ValueError(
                f"schedule.coarse_stride = {schedule.coarse_stride} does not divide the grid {grid}: it would tear it"
            )

    def _agree(self, wish: bool) -> bool:
        """Whether any process of the group wants it: all must stop at the same epoch, or they would wait for each other."""
        return bool(self.fabric.all_reduce(torch.tensor(float(wish)), reduce_op="max"))

    # --- one epoch

    def _epoch(self, train: Samples, steps: int, hooks: Hooks) -> dict[str, float]:
        config, epoch = self.config, self.progress.epoch
        stride = grid_stride(config.schedule, epoch)
        inputs, targets = coarsen(train.input, stride), coarsen(train.target, stride)
        self.module.train()
        totals: dict[str, float] = {}
        rate, used = 0.0, 0
        batches = epoch_batches(
            self.problem,
            inputs,
            targets,
            seed=config.seed,
            epoch=epoch,
            size=config.schedule.batch,
            moved=self.moved,
            rank=self.fabric.global_rank,
            world=self.fabric.world_size,
            device=self.fabric.device,
        )
        for batch in batches:
            rate = learning_rate(config.schedule, self.progress.step, steps)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            parts = self._step(batch)
            used += bool(parts)
            for name, value in parts.items():
                totals[name] = totals.get(name, 0.0) + value
            self.progress.step += 1
            hooks.on_step(self.progress, steps)
        self.progress.epoch += 1
        if not used:
            raise DivergenceError(f"no step of epoch {self.progress.epoch} had a finite loss; {START_AGAIN}")
        means = {name: value / used for name, value in totals.items()}
        return {"epoch": self.progress.epoch, "grid_stride": stride, "rate": rate, **means}

    def _step(self, batch: Batch) -> dict[str, float]:
        """One update; the parts of the loss, meaned over the processes, or nothing if the step had to be left out."""
        prediction, xi_0 = self.module(batch.input, batch.xi_0)
        total, parts = objective(
            self.problem.group, prediction, batch.target, xi_0, batch.xi_0, batch.xi_T, self._weights(), batch.unmoved
        )
        local = {"loss": total.detach(), **{name: part.detach() for name, part in parts.items()}}
        self.optimizer.zero_grad(set_to_none=True)
        self.fabric.backward(total)
        shared = local if self.fabric.world_size == 1 else self.fabric.all_reduce(local, reduce_op="mean")
        values = {name: float(part) for name, part in shared.items()}  # type: ignore[union-attr]
        if not self._usable(values["loss"]):
            return {}
        self.optimizer.step()
        self._balance(values)
        return values

    def _weights(self) -> Weights:
        loss, schedule = self.config.loss, self.config.schedule
        epoch = self.progress.epoch
        return Weights(
            h1=h1_weight(loss, epoch, schedule.epochs, self.progress.h1_balance),
            equivariance=loss.equivariance,
            anchor=anchor_weight(loss, epoch),
            invariant=loss.invariant,
            per_channel=self.problem.per_channel,
            relative_to=loss.relative_to,
        )

    def _balance(self, values: dict[str, float]) -> None:
        """The moving average of L2/H1 behind the "ema" schedule."""
        loss = self.config.loss
        if loss.h1_schedule == "ema" and values.get("h1", 0.0) > 0:
            ratio = values["l2"] / values["h1"]
            self.progress.h1_balance = loss.h1_memory * self.progress.h1_balance + (1 - loss.h1_memory) * ratio

    def _usable(self, loss: float) -> bool:
        """Whether this step may change the weights; every process decides alike, because the gradient is shared."""
        limit = self.config.schedule.clip or math.inf
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit, error_if_nonfinite=False)
        if math.isfinite(float(norm)) and math.isfinite(loss):
            self._skipped_in_a_row = 0
            return True
        self.progress.skipped += 1
        self._skipped_in_a_row += 1
        self._say(f"step {self.progress.step} left out: its loss or gradient is not finite")
        if self._skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            rate = self.optimizer.param_groups[0]["lr"]
            where = f"{MAX_SKIPPED_IN_A_ROW} steps in a row at epoch {self.progress.epoch + 1} (rate {rate:.2g})"
            raise DivergenceError(f"the loss was not finite for {where}; {START_AGAIN}")
        return False

    # --- between epochs

    @torch.no_grad()
    def _validate(self, validation: Samples) -> float:
        """Mean relative error on the canonical validation samples at the full ID grid."""
        self.module.eval()
        errors = []
        for x, y in zip(torch.split(validation.input, 50), torch.split(validation.target, 50), strict=True):
            prediction, _ = self.module(x.to(self.fabric.device))
            errors.append(relative_l2(prediction, y.to(self.fabric.device), per_channel=self.problem.per_channel))
        return float(torch.cat(errors).double().mean())

    def _keep_best(self, error: float) -> None:
        if error < self.progress.best_error:  # False for NaN, which must never become the best
            self.progress.best_error, self.progress.best_epoch = error, self.progress.epoch
            self.best = copy_weights(self.model)

    def _save(self) -> None:
        if self.fabric.is_global_zero:
            save_state(self.run, self.config, self.model, self.best, self.optimizer, self.progress)
        self.fabric.barrier()


def _parameter_groups(model: PACE, decay: float) -> list[dict[str, object]]:
    """Weight decay for the operator; none for the estimator (paper, caption of its loss table)."""
    frame = [p for p in model.frame.parameters() if p.requires_grad]
    groups: list[dict[str, object]] = [{"params": list(model.operator.parameters()), "weight_decay": decay}]
    return [*groups, {"params": frame, "weight_decay": 0.0}] if frame else groups
