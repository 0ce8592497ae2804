"""The one training loop (Algorithm 1): every row of every table goes through it, on Lightning Fabric."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from pacefno.training.config import RunConfig, settings_since
from pacefno.training.schedule import learning_rate
from pacefno.training.state import Progress, copy_weights, newest, restore_state, save_final, save_state
from pacefno.training.workload import Place, Workload

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
MAX_SKIPPED_IN_A_ROW = 5
START_AGAIN = "start again with a lower --set schedule.rate=... and another --out; the last good checkpoint is untouched"


class DivergenceError(RuntimeError):
    """The loss stopped being a number. The last good checkpoint is untouched."""


class StopRequest(Exception):
    """Someone asked the training to stop; it did, with a checkpoint."""


@dataclass(frozen=True)
class Hooks:
    """What the outside wants to hear, and how it asks for a stop."""

    on_step: Callable[[Progress, int], None] = lambda progress, steps_per_epoch: None
    on_epoch: Callable[[Progress], None] = lambda progress: None
    on_message: Callable[[str], None] = lambda text: None
    stop: Callable[[], bool] = lambda: False


class Trainer:
    """One run: owns model, optimiser and counters between :meth:`resume` and :meth:`fit`."""

    def __init__(self, fabric: Fabric, config: RunConfig, workload: Workload[Any], model: nn.Module, run: Path) -> None:
        self.fabric = fabric
        self.config = config
        self.workload = workload
        self.model = model
        self.run = run
        schedule = config.schedule
        optimizer = OPTIMIZERS[schedule.optimizer](workload.parameter_groups(model), lr=schedule.rate)
        self.module, self.optimizer = fabric.setup(workload.module(model), optimizer)
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

    def fit(self, hooks: Hooks) -> Progress:
        schedule = self.config.schedule
        self._check_schedule()
        steps = self.workload.steps()
        self._say = hooks.on_message
        while self.progress.epoch < schedule.epochs:
            started = time.perf_counter()
            record = self._epoch(steps, hooks)
            last = self.progress.epoch == schedule.epochs
            if last or self.progress.epoch % schedule.validate_every == 0:
                record["validation_error"] = self._validate()
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

    def _check_schedule(self) -> None:
        self.workload.check()
        batch = self.config.schedule.batch
        if batch % self.fabric.world_size:
            raise ValueError(f"schedule.batch = {batch} cannot be shared equally by {self.fabric.world_size} processes")

    def _agree(self, wish: bool) -> bool:
        """Whether any process of the group wants it: all must stop at the same epoch, or they would wait for each other."""
        return bool(self.fabric.all_reduce(torch.tensor(float(wish)), reduce_op="max"))

    # --- one epoch

    def _epoch(self, steps: int, hooks: Hooks) -> dict[str, float]:
        config, epoch = self.config, self.progress.epoch
        self.module.train()
        totals: dict[str, float] = {}
        rate, used = 0.0, 0
        place = Place(self.fabric.global_rank, self.fabric.world_size, self.fabric.device)
        for batch in self.workload.batches(epoch, place):
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
        return {"epoch": self.progress.epoch, **self.workload.facts(epoch), "rate": rate, **means}

    def _step(self, batch: object) -> dict[str, float]:
        """One update; the parts of the loss, meaned over the processes, or nothing if the step had to be left out."""
        total, parts = self.workload.loss(self.module, batch, self.progress)
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
    def _validate(self) -> float:
        self.module.eval()
        return self.workload.validate(self.module, self.fabric.device)

    def _keep_best(self, error: float) -> None:
        if error < self.progress.best_error:  # False for NaN, which must never become the best
            self.progress.best_error, self.progress.best_epoch = error, self.progress.epoch
            self.best = copy_weights(self.model)

    def _save(self) -> None:
        if self.fabric.is_global_zero:
            save_state(self.run, self.config, self.model, self.best, self.optimizer, self.progress)
        self.fabric.barrier()
