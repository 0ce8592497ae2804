"""A training run from its configuration to a finished folder: data, model, loop, lock, signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from pacefno.durable import remove_stale_temporaries, write_text_atomically
from pacefno.lock import FolderLock
from pacefno.training.config import RunConfig, settings_since
from pacefno.training.kinds import kind_of
from pacefno.training.log import write_metric_log
from pacefno.training.loop import Hooks, Trainer
from pacefno.training.state import FINAL, PREFIX, Progress
from pacefno.training.store import CheckpointError, load_checkpoint
from pacefno.training.workload import Workload

DEFAULT_RUNS = Path("runs")


class RunExistsError(RuntimeError):
    """The folder already holds a training; the message says how to go on with it or start afresh."""


def run_folder(root: Path, config: RunConfig) -> Path:
    """``root/problem/model-preset-seedN``."""
    return root / config.problem / f"{config.model}-{config.preset}-seed{config.seed}"


def is_finished(run: Path) -> bool:
    """Whether the run holds a finished model that loads; a damaged one is made again from the last checkpoint."""
    try:
        load_checkpoint(run / FINAL)
    except CheckpointError:
        return False
    return True


def check_settings(run: Path, config: RunConfig) -> None:
    """Refuse a finished run that was trained with other settings than these: it is another model."""
    changed = settings_since(load_checkpoint(run / FINAL).documents["config"], config)
    if changed:
        raise ValueError(f"{run} was trained with other settings ({changed}): name another run folder, or delete this one")


def make_fabric(config: RunConfig) -> Fabric:
    """CPU or GPU; one process, or all those that torchrun started."""
    world, local = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    strategy = "ddp" if world > 1 else "auto"
    return Fabric(accelerator="auto", devices=local, num_nodes=world // local, strategy=strategy, precision=config.precision)


def be_deterministic() -> None:
    """The same bits from the same settings; without filling new memory first, which takes a twentieth of a step."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def train(
    config: RunConfig,
    data: Path,
    run: Path,
    *,
    resume: bool = False,
    hooks: Hooks | None = None,
    fabric: Fabric | None = None,
) -> Progress:
    """Train one row of a table into ``run``; with ``resume`` go on where it stopped (or begin, if there is nothing)."""
    check_trainable(config)
    hooks = hooks or Hooks()
    fabric = fabric or make_fabric(config)
    fabric.launch()
    be_deterministic()
    model, workload = kind_of(config.problem).start(config, data)
    with _locked(fabric, run), _stop_on_signals(hooks) as guarded:
        if not resume and (is_finished(run) or any(run.glob(f"{PREFIX}*"))):
            raise RunExistsError(f"{run} already holds a training: add --resume to go on with it, or name another folder")
        return _train(config, model, workload, run, guarded, fabric)


def check_trainable(config: RunConfig) -> None:
    trained = kind_of(config.problem).trained_as(config.model)
    if trained != config.model:
        raise ValueError(f"{config.model!r} has no training of its own: it uses the weights of {trained!r}; train that")


def _train(config: RunConfig, model: nn.Module, workload: Workload[Any], run: Path, hooks: Hooks, fabric: Fabric) -> Progress:
    trainer = Trainer(fabric, config, workload, model, run)
    trainer.resume(hooks.on_message)

    def on_epoch(progress: Progress) -> None:
        if fabric.is_global_zero:
            write_metric_log(run, progress.log)
        hooks.on_epoch(progress)

    if fabric.is_global_zero:
        write_text_atomically(run / "config.json", config.model_dump_json(indent=2) + "\n")
        write_metric_log(run, trainer.progress.log)
    return trainer.fit(Hooks(hooks.on_step, on_epoch, hooks.on_message, hooks.stop))


@contextmanager
def _locked(fabric: Fabric, run: Path) -> Iterator[None]:
    """One training per folder: the first process of a group holds the lock for all."""
    if not fabric.is_global_zero:
        yield
        return
    with FolderLock(run):
        remove_stale_temporaries(run)  # what a killed process left half written
        yield


@contextmanager
def _stop_on_signals(hooks: Hooks) -> Iterator[Hooks]:
    """Ctrl-C and SIGTERM finish the epoch and save it; a second Ctrl-C ends at once."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        hooks.on_message("stopping after this epoch; press Ctrl-C again to stop at once")

    def stop() -> bool:
        return bool(asked) or hooks.stop()

    previous = _install({signal.SIGINT: ask, signal.SIGTERM: ask})
    try:
        yield Hooks(hooks.on_step, hooks.on_epoch, hooks.on_message, stop)
    finally:
        _install(previous)


Handlers = dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None]


def _install(handlers: Handlers) -> Handlers:
    """Set signal handlers where this is allowed (the main thread only), and return the ones they replace."""
    try:
        return {number: signal.signal(number, handler) for number, handler in handlers.items()}
    except ValueError:
        return {}
