"""Everything a training needs to go on: weights, optimiser, counters; to a checkpoint and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pacefno.training.config import RunConfig
from pacefno.training.store import (
    Checkpoint,
    CheckpointError,
    flatten_state,
    latest,
    load_checkpoint,
    prune,
    save_checkpoint,
    unflatten_state,
)

PREFIX = "epoch-"
FINAL = "final"


@dataclass
class Progress:
    """The counters of a training. ``log`` is the metric log so far, one record an epoch, free of clock times."""

    epoch: int = 0  # epochs completed
    step: int = 0
    best_error: float = float("inf")
    best_epoch: int = 0
    h1_balance: float = 1.0
    skipped: int = 0  # steps left out because of a non-finite loss or gradient
    seconds: float = 0.0
    log: list[dict[str, Any]] = field(default_factory=list)


def save_state(
    run: Path,
    config: RunConfig,
    model: nn.Module,
    best: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
    progress: Progress,
) -> None:
    """Commit a checkpoint for the completed epochs and drop all but the last two."""
    optimizer_tensors, optimizer_document = flatten_state(optimizer.state_dict())
    counters = {k: v for k, v in vars(progress).items() if k not in ("log", "seconds")}
    save_checkpoint(
        run / f"{PREFIX}{progress.epoch:06d}",
        {"model": _weights(model), "best": best, "optimizer": optimizer_tensors},
        {
            "config": config.model_dump(),
            "optimizer_structure": optimizer_document,
            "progress": counters,
            "log": progress.log,
            "timing": {"seconds": progress.seconds, "threads": torch.get_num_threads()},
        },
    )
    prune(run, PREFIX)


def restore_state(
    checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Tensor], Progress]:
    """Fill model and optimiser in place; the best weights and the counters come back."""
    model.load_state_dict(checkpoint.tensors["model"])
    structure = checkpoint.documents["optimizer_structure"]
    optimizer.load_state_dict(unflatten_state(checkpoint.tensors["optimizer"], structure))
    progress = Progress(
        **checkpoint.documents["progress"],
        log=checkpoint.documents["log"],
        seconds=checkpoint.documents["timing"]["seconds"],
    )
    return checkpoint.tensors["best"], progress


def save_final(run: Path, config: RunConfig, best: dict[str, Tensor], progress: Progress) -> None:
    """The finished model: the best weights by validation, with the configuration that rebuilds it."""
    summary = {
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "validation_error": progress.best_error,
        "skipped_steps": progress.skipped,
    }
    timing = {"seconds": progress.seconds, "threads": torch.get_num_threads()}
    save_checkpoint(run / FINAL, {"model": best}, {"config": config.model_dump(), "summary": summary, "timing": timing})


def newest(run: Path) -> tuple[Checkpoint | None, list[CheckpointError]]:
    """The last good training checkpoint of a run, and the newer ones that had to be passed over."""
    found = latest(run, PREFIX)
    return (load_checkpoint(found.path) if found.path else None), list(found.rejected)


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
