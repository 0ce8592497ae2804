"""Fine-tuning of the frozen operator on inputs in the frame of least energy, through the one training loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from pacefno.data import Dataset, Samples
from pacefno.durable import write_text_atomically
from pacefno.equations import Problem
from pacefno.frames import Frame
from pacefno.lock import FolderLock
from pacefno.training.config import RunConfig
from pacefno.training.evaluate import BATCH
from pacefno.training.load import load_run
from pacefno.training.loop import Hooks, Trainer
from pacefno.training.run import be_deterministic, make_fabric
from pacefno.training.workload import FieldWorkload

SHARE = 0.2  # of the epochs of the training itself
SLOWER = 0.1  # times its learning rate


def finetune_config(config: RunConfig) -> RunConfig:
    """A short, slow training on the full grid that goes on from finished weights."""
    schedule = config.schedule
    changes = {"epochs": max(1, round(SHARE * schedule.epochs)), "rate": SLOWER * schedule.rate, "coarse": 0.0}
    return config.model_copy(update={"schedule": schedule.model_copy(update=changes)})


def finetune(source: Path, run: Path, frame: Frame, problem: Problem, dataset: Dataset, hooks: Hooks) -> None:
    """Go on training the plain operator in ``source`` on pulled-back pairs, into ``run``; an interrupted one goes on."""
    loaded = load_run(source)
    config = finetune_config(loaded.config)
    fabric = make_fabric(config)
    fabric.launch()
    be_deterministic()
    train, validation = (canonical_pairs(frame, problem, dataset.load(split)) for split in ("train", "validation"))
    with FolderLock(run):
        workload = FieldWorkload(config, problem, False, train, validation)
        trainer = Trainer(fabric, config, workload, loaded.model.train(), run)
        trainer.resume(hooks.on_message)
        write_text_atomically(run / "config.json", config.model_dump_json(indent=2) + "\n")
        trainer.fit(hooks)


def canonical_pairs(frame: Frame, problem: Problem, samples: Samples) -> Samples:
    """Inputs pulled back to the frame of least energy, and targets to where that frame is at the final time."""
    group = problem.group

    def pulled(rows: slice) -> tuple[Tensor, Tensor]:
        xi = frame(samples.input[rows]).xi
        terminal = group.transport(xi, problem.horizon)
        return group.inverse(samples.input[rows], xi), group.inverse(samples.target[rows], terminal)

    parts = _over(len(samples), pulled)
    return Samples(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))


def _over(count: int, work: Callable[[slice], tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    return [work(slice(start, start + BATCH)) for start in range(0, count, BATCH)]
