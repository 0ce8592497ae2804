"""The one training loop (Algorithm 1): every model goes through it, on Lightning Fabric."""

from __future__ import annotations

import json
import math
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pacefno.checkpoint import (
    EPOCH,
    FINAL,
    is_whole,
    load_checkpoint,
    newest,
    pack_optimizer,
    prune,
    save_checkpoint,
    unpack_optimizer,
)
from pacefno.data.recipe import name_differences
from pacefno.data.samples import Source
from pacefno.errors import Failure, UsageError
from pacefno.files import lock_folder, remove_stale_temporaries, write_text
from pacefno.inference import describe_model, weights_of
from pacefno.pace import PACE, UndeterminedFrameWarning
from pacefno.pde.initial import generator_for
from pacefno.train.batches import Batch, Place, TrainingData, canonicalise_once, dtype_of, make_data
from pacefno.train.config import RunConfig, stored_config
from pacefno.train.model import build_model, check_memory, check_operator
from pacefno.train.objective import BALANCE_EVERY, Loss, PredictionAndFrame
from pacefno.train.schedule import average_memory, grid_stride, learning_rate

if TYPE_CHECKING:
    from lightning_fabric import Fabric

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
MAX_SKIPPED_IN_A_ROW = 5
CONFIG_FILE = "config.json"
LOG_FILE = "metrics.jsonl"
START_AGAIN = (
    "start again with a lower --set schedule.rate=... and another --out; "
    "the last good checkpoint is untouched"
)


class DivergenceError(Failure):
    """The loss stopped being a number. The last good checkpoint is untouched."""

    exit_code = 3


class StopRequest(Exception):
    """Someone asked the training to stop; it did, with a checkpoint."""


class RunExistsError(Failure):
    """The folder already holds a training; the message says how to go on or start afresh."""


@dataclass
class Progress:
    """The counters of a training; ``log`` has one record an epoch, without clock times."""

    epoch: int = 0  # epochs completed
    step: int = 0
    best_error: float = float("inf")
    best_epoch: int = 0
    h1_balance: float = 1.0
    balances: dict[str, float] = field(default_factory=dict)  # factors of gradient balancing
    skipped: int = 0  # steps left out because of a non-finite loss or gradient
    seconds: float = 0.0
    log: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Callbacks:
    """What the caller is told during a training, and how it asks for a stop."""

    on_step: Callable[[Progress, int], None] = lambda progress, steps_per_epoch: None
    on_epoch: Callable[[Progress], None] = lambda progress: None
    on_message: Callable[[str], None] = lambda text: None
    stop: Callable[[], bool] = lambda: False


# --- a run ----------------------------------------------------------------------------------------


@contextmanager
def deterministic() -> Iterator[None]:
    """The same bits from the same settings on the same machine, build and number of threads.

    New memory is not filled first, which would take a twentieth of a step. What the caller had
    chosen is restored.
    """
    memory: Any = torch.utils.deterministic
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
        memory.fill_uninitialized_memory = fill


@deterministic()
def train(
    config: RunConfig,
    source: Source,
    run: Path,
    *,
    resume: bool = False,
    callbacks: Callbacks | None = None,
    fabric: Fabric | None = None,
    initial: PACE | None = None,
) -> Progress:
    """Train a model into the folder ``run``; with ``resume`` go on where it stopped, or begin.

    Weights begin at random, or at ``initial``: fine-tuning of a model of the same shape.
    The folder then holds the best weights by validation error, the settings and the metric log, and
    is complete in itself: ``pacefno.load(run)`` needs nothing else. A ``fabric`` must have been
    launched.
    """
    callbacks = callbacks or Callbacks()
    if not resume:
        check_free(run)
    if fabric is None:
        fabric = make_fabric(config)
        fabric.launch()
    data = make_data(config, source)
    data.check()
    if initial is None:
        check_memory(config)  # before all samples are read for their statistics
    model = build_model(config, data.scales()) if initial is None else initial
    model = model.double() if dtype_of(config) == torch.float64 else model.float()
    check_operator(config, data, model)
    canonicalise_once(data, model)
    with _locked(fabric, run), _stop_on_signals(callbacks) as guarded, _memory_named(config):
        if not resume:
            check_free(run)  # again: another process may have begun meanwhile
        trainer = Trainer(fabric, config, data, model, run)
        trainer.resume(guarded.on_message)
        if fabric.is_global_zero:
            write_text(run / CONFIG_FILE, config.model_dump_json(indent=2) + "\n")
            write_log(run, trainer.progress.log)
        return trainer.fit(guarded)


def check_free(run: Path) -> None:
    """Refuse a folder that holds a training already."""
    if is_finished(run) or newest(run)[0] is not None:
        raise RunExistsError(
            f"{run} already holds a training: add --resume to go on with it, or name another folder"
        )


def is_finished(run: Path) -> bool:
    """Whether the run holds a finished model that loads; a damaged one is made again."""
    return is_whole(run / FINAL)


def check_settings(run: Path, config: RunConfig) -> None:
    """Refuse a finished run that was trained with other settings: it is another model."""
    stored = stored_config(run, load_checkpoint(run / FINAL).documents)
    if changed := settings_since(stored, config):
        raise UsageError(
            f"{run} was trained with other settings ({changed}): "
            "name another run folder, or delete this one"
        )


def settings_since(stored: RunConfig, config: RunConfig) -> str:
    """What differs between a stored configuration and this one, as text."""
    known, own = stored.model_dump(mode="json"), config.model_dump(mode="json")
    known["labels"] = own["labels"]  # names for people, not settings
    if not (known["data"] and own["data"]):  # of samples in memory, and of earlier versions
        known["data"] = own["data"]
    return name_differences(known, own)


def make_fabric(config: RunConfig) -> Fabric:
    """CPU or GPU; one process, or all those that torchrun started.

    Fabric's own double precision would round predictions to float32 before the loss sees them, so
    there model and samples are float64 and Fabric changes nothing.
    """
    from lightning_fabric import Fabric  # seconds, and only a training needs it

    world = int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return Fabric(
        accelerator="cuda" if torch.cuda.is_available() else "cpu",  # MPS has no float64
        devices=local,
        num_nodes=world // local,
        strategy="ddp" if world > 1 else "auto",
        precision="32-true" if config.precision == "64-true" else config.precision,
    )


def write_log(run: Path, records: list[dict[str, Any]]) -> None:
    """Rewrite the metric log, one JSON object an epoch: epochs that a kill undid disappear."""
    write_text(run / LOG_FILE, "".join(json.dumps(record) + "\n" for record in records))


def read_log(run: Path) -> list[dict[str, Any]]:
    """The metric log of a run; empty where there is none."""
    path = run / LOG_FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def _locked(fabric: Fabric, run: Path) -> Iterator[None]:
    """One training per folder: the first process of a group holds the lock for all."""
    if not fabric.is_global_zero:
        yield
        return
    with lock_folder(run):
        remove_stale_temporaries(run)  # what a killed process left half written
        yield


@contextmanager
def _memory_named(config: RunConfig) -> Iterator[None]:
    """Too little memory is something that a user can mend: say how."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and (
            "allocate memory" not in str(error)
        ):
            raise
        raise UsageError(
            f"a batch of {config.schedule.batch} does not fit into memory: choose a smaller "
            f"schedule.batch, operator.width or operator.modes ({str(error).splitlines()[0][:200]})"
        ) from error


@contextmanager
def _stop_on_signals(callbacks: Callbacks) -> Iterator[Callbacks]:
    """Ctrl-C and SIGTERM finish the epoch and save it; a second Ctrl-C ends at once."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        callbacks.on_message("stopping after this epoch; press Ctrl-C again to stop at once")

    def stop() -> bool:
        return bool(asked) or callbacks.stop()

    previous = _install({signal.SIGINT: ask, signal.SIGTERM: ask})
    try:
        yield Callbacks(callbacks.on_step, callbacks.on_epoch, callbacks.on_message, stop)
    finally:
        _install(previous)


Handlers = dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None]


def _install(handlers: Handlers) -> Handlers:
    """Set signal handlers where that is allowed (the main thread); return the ones replaced."""
    try:
        return {number: signal.signal(number, handler) for number, handler in handlers.items()}
    except ValueError:
        return {}


# --- the loop -------------------------------------------------------------------------------------


class Trainer:
    """One run: owns model, optimiser, loss and counters between :meth:`resume` and :meth:`fit`."""

    def __init__(
        self, fabric: Fabric, config: RunConfig, data: TrainingData, model: PACE, run: Path
    ) -> None:
        self.fabric = fabric
        self.config = config
        self.data = data
        self.model = model
        self.run = run
        self.loss = Loss(config)
        kind = OPTIMIZERS[config.schedule.optimizer]
        # One pass over all weights instead of ten over each; complex weights are not supported.
        fused = all(p.is_floating_point() for p in model.parameters())
        optimizer = kind(self._parameter_groups(), lr=config.schedule.rate, fused=fused or None)
        self.module, self.optimizer = fabric.setup(PredictionAndFrame(model), optimizer)
        self.progress = Progress()
        self.best: dict[str, Tensor] = weights_of(model)
        self.average: list[Tensor] = []  # of each parameter, where weights are averaged
        if config.schedule.average:
            self.average = [p.detach().clone() for p in model.parameters()]
        self._skipped_in_a_row = 0
        self._say: Callable[[str], None] = lambda text: None

    def _parameter_groups(self) -> list[dict[str, Any]]:
        """Weight decay for the operator, none for the estimator (paper, its table of losses)."""
        operator = [p for p in self.model.operator.parameters() if p.requires_grad]
        frame = [p for p in self.model.frame.parameters() if p.requires_grad]
        groups = [{"params": operator, "weight_decay": self.config.schedule.weight_decay}]
        return [*groups, {"params": frame, "weight_decay": 0.0}] if frame else groups

    def resume(self, on_message: Callable[[str], None]) -> None:
        """Go on from the newest good checkpoint; a broken newer one is named and passed over."""
        checkpoint, rejected = newest(self.run)
        for error in rejected:
            on_message(f"passing over a damaged checkpoint: {error}")
        if checkpoint is None:
            return
        documents = checkpoint.documents
        if changed := settings_since(stored_config(self.run, documents), self.config):
            raise UsageError(
                f"{self.run} was trained with other settings ({changed}): "
                "resume with the same ones, or name another run folder"
            )
        threads = documents["timing"]["threads"]
        if threads != torch.get_num_threads():
            on_message(
                f"this run used {threads} threads, now {torch.get_num_threads()}: "
                "the last bits of the result may differ"
            )
        self.model.load_state_dict(checkpoint.tensors["model"])
        self.optimizer.load_state_dict(
            unpack_optimizer(checkpoint.tensors["optimizer"], documents["optimizer"])
        )
        self.best = checkpoint.tensors["best"]
        for mine, (name, _) in zip(self.average, self.model.named_parameters(), strict=False):
            mine.copy_(checkpoint.tensors["average"][name])
        self.progress = Progress(
            **documents["progress"], log=documents["log"], seconds=documents["timing"]["seconds"]
        )
        self.loss.h1_balance = self.progress.h1_balance
        self.loss.balances |= self.progress.balances
        on_message(f"resuming after epoch {self.progress.epoch} of {self.config.schedule.epochs}")

    def fit(self, callbacks: Callbacks) -> Progress:
        """Train until the last epoch and write the finished model."""
        schedule = self.config.schedule
        self._check_schedule()
        steps = self.data.steps()
        self._say = callbacks.on_message
        while self.progress.epoch < schedule.epochs:
            started = time.perf_counter()
            with self._own_random_numbers():
                record = self._epoch(steps, callbacks)
            last = self.progress.epoch == schedule.epochs
            if last or self.progress.epoch % schedule.validate_every == 0:
                with self._averaged():
                    record["validation_error"] = self._validate()
                    self._keep_best(record["validation_error"])
            self.progress.log.append(record)
            self.progress.seconds += time.perf_counter() - started
            if self.fabric.is_global_zero:
                write_log(self.run, self.progress.log)
            callbacks.on_epoch(self.progress)
            stopping = self._any_process_wants(callbacks.stop())
            if last or stopping or self.progress.epoch % schedule.checkpoint_every == 0:
                self._save()
            if stopping and not last:
                raise StopRequest(f"stopped after epoch {self.progress.epoch}")
        if not self.progress.best_epoch:
            raise DivergenceError(
                f"no validation error was ever finite, so there is no model to keep; {START_AGAIN}"
            )
        self._save_final()
        return self.progress

    def _check_schedule(self) -> None:
        batch = self.config.schedule.batch
        if batch % self.fabric.world_size:
            raise UsageError(
                f"schedule.batch = {batch} cannot be shared equally by "
                f"{self.fabric.world_size} processes"
            )

    def _any_process_wants(self, wish: bool) -> bool:
        """All processes must stop at the same epoch, or they would wait for each other."""
        return bool(self.fabric.all_reduce(torch.tensor(float(wish)), reduce_op="max"))

    # --- one epoch

    @contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        """What a model draws in training depends on seed and epoch alone, so that a resumed run
        draws what an uninterrupted one would have drawn.
        """
        words = self.config.seed, self.progress.epoch, self.fabric.global_rank
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator_for("model", *words).initial_seed())
            yield

    def _epoch(self, steps: int, callbacks: Callbacks) -> dict[str, float]:
        schedule, epoch = self.config.schedule, self.progress.epoch
        self.module.train()
        totals: dict[str, float] = {}
        rate, used = 0.0, 0
        place = Place(self.fabric.global_rank, self.fabric.world_size, self.fabric.device)
        for batch in islice(self.data.batches(epoch, place), steps):
            rate = learning_rate(schedule, self.progress.step, steps)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            parts = self._step(batch)
            used += bool(parts)
            for name, value in parts.items():
                totals[name] = totals.get(name, 0.0) + value
            self.progress.step += 1
            callbacks.on_step(self.progress, steps)
        self.progress.epoch += 1
        if not used:
            raise DivergenceError(
                f"no step of epoch {self.progress.epoch} had a finite loss; {START_AGAIN}"
            )
        means = {name: value / used for name, value in totals.items()}
        stride = grid_stride(schedule, epoch)
        return {"epoch": self.progress.epoch, "grid_stride": stride, "rate": rate, **means}

    def _step(self, batch: Batch) -> dict[str, float]:
        """One update; the parts of the loss, averaged over processes, or nothing if left out."""
        total, parts = self.loss(self.module, batch, self.progress.epoch)
        local = {"loss": total.detach(), **{name: part.detach() for name, part in parts.items()}}
        if self.config.loss.balance and self.progress.step % BALANCE_EVERY == 0:
            local |= self.loss.ratios(parts, self.model.frame, self.progress.epoch)
        self.optimizer.zero_grad(set_to_none=True)
        self.fabric.backward(total)
        alone = self.fabric.world_size == 1
        shared: Any = local if alone else self.fabric.all_reduce(local, reduce_op="mean")
        values = {name: float(part) for name, part in shared.items()}
        if not self._usable(values["loss"]):
            return {}
        self.optimizer.step()
        self._average()
        self.loss.update(values)
        self.progress.h1_balance = self.loss.h1_balance
        if self.config.loss.balance:
            self.progress.balances = dict(self.loss.balances)
            values |= {f"balance_{name}": value for name, value in self.loss.balances.items()}
        return {name: value for name, value in values.items() if not name.startswith("ratio_")}

    @torch.no_grad()
    def _average(self) -> None:
        """Let the averaged weights follow an update, if weights are averaged."""
        if self.average:
            made = self.progress.step - self.progress.skipped
            forgotten = 1 - average_memory(self.config.schedule, made)
            torch._foreach_lerp_(self.average, list(self.model.parameters()), forgotten)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The model with the averaged weights, if there are any; then with its own again."""
        own = [p.detach().clone() for p in self.model.parameters()] if self.average else []
        self._set_parameters(self.average)
        try:
            yield
        finally:
            self._set_parameters(own)

    @torch.no_grad()
    def _set_parameters(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self.model.parameters(), values, strict=False):
            parameter.copy_(value)

    def _usable(self, loss: float) -> bool:
        """Whether this step may change the weights; all processes decide alike."""
        limit = self.config.schedule.clip or math.inf
        parameters = self.model.parameters()
        norm = nn.utils.clip_grad_norm_(parameters, limit, error_if_nonfinite=False)
        if math.isfinite(float(norm)) and math.isfinite(loss):
            self._skipped_in_a_row = 0
            return True
        self.progress.skipped += 1
        self._skipped_in_a_row += 1
        self._say(f"step {self.progress.step} left out: its loss or gradient is not finite")
        if self._skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            rate = self.optimizer.param_groups[0]["lr"]
            where = f"{MAX_SKIPPED_IN_A_ROW} steps in a row at epoch {self.progress.epoch + 1}"
            raise DivergenceError(
                f"the loss was not finite for {where} (rate {rate:.2g}); {START_AGAIN}"
            )
        return False

    # --- between epochs

    @torch.no_grad()
    def _validate(self) -> float:
        self.module.eval()
        with warnings.catch_warnings():  # what no frame is found for is counted after the training
            warnings.simplefilter("ignore", UndeterminedFrameWarning)
            return self.data.validate(self.module, self.fabric.device)

    def _keep_best(self, error: float) -> None:
        if error < self.progress.best_error:  # False for NaN, which must never become the best
            self.progress.best_error, self.progress.best_epoch = error, self.progress.epoch
            self.best = weights_of(self.model)

    def _save(self) -> None:
        """A checkpoint of the completed epochs; all but the last two are dropped."""
        if self.fabric.is_global_zero:
            packed, structure = pack_optimizer(self.optimizer.state_dict())
            counters = {k: v for k, v in vars(self.progress).items() if k not in ("log", "seconds")}
            names = [name for name, _ in self.model.named_parameters()]
            tensors = {"model": weights_of(self.model), "best": self.best, "optimizer": packed}
            if self.average:
                tensors["average"] = {
                    name: value.cpu() for name, value in zip(names, self.average, strict=True)
                }
            save_checkpoint(
                self.run / EPOCH.format(self.progress.epoch),
                tensors,
                self._documents()
                | {"optimizer": structure, "progress": counters, "log": self.progress.log},
            )
            prune(self.run)
        self.fabric.barrier()

    def _save_final(self) -> None:
        """The finished model: the best weights by validation, with all that rebuilds it."""
        if self.fabric.is_global_zero:
            summary = {
                "epochs": self.progress.epoch,
                "best_epoch": self.progress.best_epoch,
                "validation_error": self.progress.best_error,
                "skipped_steps": self.progress.skipped,
            }
            documents = self._documents() | {"summary": summary}
            save_checkpoint(self.run / FINAL, {"model": self.best}, documents)
        self.fabric.barrier()

    def _documents(self) -> dict[str, Any]:
        return {
            "model": describe_model(self.model),
            "config": self.config.model_dump(mode="json"),
            "timing": {"seconds": self.progress.seconds, "threads": torch.get_num_threads()},
        }
