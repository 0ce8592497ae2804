"""From the settings of a run to its model, and what is refused before it is trained."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from pacefno.errors import UsageError
from pacefno.groups import POINT_GROUPS, Group, Trivial, representation, symmetric_scale
from pacefno.inference import build_frame
from pacefno.operators import Standardised
from pacefno.pace import PACE
from pacefno.registry import build, refusals_named
from pacefno.train.batches import Place, Scale, TrainingData
from pacefno.train.config import RunConfig, innermost


def build_model(config: RunConfig, scales: tuple[Scale, Scale] | None = None) -> PACE:
    """The model of a run with fresh weights that depend on the seed alone.

    ``scales`` are the statistics of inputs and outputs with which it standardises.
    """
    task = config.task
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        named = {"part": "operator", **config.operator}
        with refusals_named(named):
            operator = build(named)
        if config.scaling != "none" and scales is not None:
            operator = Standardised(operator, *_admissible(config, scales))
        group: Group = task.group
        if config.frame is None:
            group = Trivial(task.dim)
            frame = build({"part": "frame", "name": "identity"}, group=group, type=task.input)
        else:
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
        with torch.device("meta"):
            planned = build({"part": "operator", **config.operator})
    except Exception:  # it looks at values, or is wrong: what is built next says so
        return
    needed = 4 * sum(p.numel() * p.element_size() for p in planned.parameters())
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if os.name == "posix" else 0
    if there and needed > there:
        raise UsageError(
            f"operator {config.operator['name']!r}: its weights, their gradients and the "
            f"optimiser's moments need {needed / 2**30:.0f} GB, this machine has "
            f"{there / 2**30:.0f} GB: choose a smaller operator.width or operator.modes"
        )


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
