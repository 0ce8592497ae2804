"""The models of every table, as data. All of them are PACE with some operator, group and frame: one code path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from pacefno.equations import Problem
from pacefno.frames import FRAMES
from pacefno.operators import (
    FNO,
    POINT_GROUPS,
    GroupFNO,
    Rollout,
    SpaceTimeFNO,
    Standardised,
    representation,
    symmetric_scale,
)
from pacefno.pace import PACE
from pacefno.symmetry import Trivial
from pacefno.training.ablated import ABLATED_FRAMES
from pacefno.training.config import OperatorSettings

Scale = tuple[Tensor, Tensor]  # mean and standard deviation per channel
# The groups that a GFNO on scalar channels assumes by dimension, whatever the equation; a plain one assumes none.
ASSUMED_GROUPS = {"gfno-literal": {1: "z2", 2: "p4"}, "gfno-plain": {1: "z1", 2: "p1"}}


@dataclass(frozen=True)
class ModelSpec:
    """What one row of a table is: how it is trained, and how its prediction is made."""

    title: str
    operator: Literal["fno", "gfno", "gfno-literal", "gfno-plain"] = "fno"
    positions: Literal["grid"] | None = "grid"
    frame: str | None = None  # None: the trivial group, a plain operator
    perturb: bool = False  # trained on moved samples (Algorithm 1, lines 2-3)
    inference: Literal["one-shot", "refined", "oracle"] = "one-shot"
    trained_as: str | None = None  # shares the weights of that row's training
    one_seed: bool = False  # a row whose spread is of no interest


MODELS: dict[str, ModelSpec] = {
    "fno": ModelSpec("FNO"),
    "fno-aug": ModelSpec("FNO + augmentation", perturb=True),
    "fno-nogrid": ModelSpec("FNO without coordinates", positions=None),
    "fno-nogrid-centred": ModelSpec(
        "FNO without coordinates, mean removed", positions=None, frame="kinematic", trained_as="fno-nogrid"
    ),
    "gfno": ModelSpec("GFNO, right representation", operator="gfno", positions=None),
    "gfno-literal": ModelSpec("GFNO, scalar channels, same width", operator="gfno-literal", positions=None, one_seed=True),
    "gfno-plain": ModelSpec("GFNO's layers without a group", operator="gfno-plain", positions=None, one_seed=True),
    "pace": ModelSpec("PACE, one-shot", frame="equivariant", perturb=True),
    "pace-tta": ModelSpec("PACE, refined", frame="equivariant", perturb=True, inference="refined", trained_as="pace"),
    "pace-oracle": ModelSpec("PACE, true frame", frame="equivariant", perturb=True, inference="oracle", trained_as="pace"),
    "pace-free": ModelSpec("PACE, learned frame without alignment", frame="equivariant-free", perturb=True, one_seed=True),
    "pace-cnn": ModelSpec("PACE, the paper's estimator", frame="cnn", perturb=True),
    "pace-analytic": ModelSpec("FNO wrapped after training", frame="analytic", trained_as="fno"),
    "pace-gfno": ModelSpec("GFNO wrapped after training", operator="gfno", positions=None, frame="analytic", trained_as="gfno"),
}

# Trained for ablations only, so in no table of models.
ABLATIONS: dict[str, ModelSpec] = {
    "pace-regression": ModelSpec("PACE, shifts as plain numbers", frame="regression", perturb=True),
    "pace-translations": ModelSpec("PACE, translations only", frame="translations", perturb=True),
}


def model_named(name: str) -> ModelSpec:
    if name not in MODELS and name not in ABLATIONS:
        raise ValueError(f"unknown model {name!r}: expected one of {', '.join(MODELS)}")
    return MODELS[name] if name in MODELS else ABLATIONS[name]


def build_model(
    problem: Problem, spec: ModelSpec, settings: OperatorSettings, scales: tuple[Scale, Scale] | None, seed: int
) -> PACE:
    """The model of one row with fresh weights that depend on the seed alone; ``scales`` are replaced when weights load."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if scales is None:
            scales = _unit_scale(problem.in_channels), _unit_scale(problem.out_channels)
        scaled = _operator(problem, spec, settings, scales)
        if spec.frame is None:
            trivial = Trivial(problem.dim)
            return PACE(scaled, trivial, FRAMES["identity"](trivial, problem.in_channels, problem.slice), problem.horizon)
        frame = (FRAMES | ABLATED_FRAMES)[spec.frame](problem.group, problem.in_channels, problem.slice)
        return PACE(scaled, problem.group, frame, problem.horizon)


def _operator(problem: Problem, spec: ModelSpec, settings: OperatorSettings, scales: tuple[Scale, Scale]) -> nn.Module:
    sizes = (problem.dim, problem.in_channels, problem.out_channels)
    if spec.operator == "fno":
        return _fno(problem, spec, settings, scales)
    assumed = ASSUMED_GROUPS.get(spec.operator)
    group = POINT_GROUPS[assumed[problem.dim] if assumed else problem.equation.point_group]
    channels = "scalar" if assumed else problem.equation.channel_representation
    width = settings.width if assumed else settings.group_width
    norm = spec.operator == "gfno-literal"  # it deletes means, which the others need
    gfno = GroupFNO(*sizes, width, settings.modes, group, channels, channels, layers=settings.layers, norm=norm)
    # Constants must respect the symmetry too: no mean for what changes sign, one scale for the parts of a vector.
    into, out = (
        symmetric_scale(representation(group, channels, n), *scale) for n, scale in zip(sizes[1:], scales, strict=True)
    )
    return Standardised(gfno, into, out)


def _fno(problem: Problem, spec: ModelSpec, settings: OperatorSettings, scales: tuple[Scale, Scale]) -> nn.Module:
    into, out = problem.in_channels, problem.out_channels
    if settings.frames == "space-time":
        time = SpaceTimeFNO(
            into,
            out,
            settings.width,
            settings.modes,
            settings.time_modes,
            layers=settings.layers,
            positions=spec.positions,
            head=settings.head,
        )
        return Standardised(time, *scales)
    rolled = settings.frames == "rollout"
    channels = (problem.dim, into, settings.block if rolled else out)
    fno = FNO(*channels, settings.width, settings.modes, layers=settings.layers, positions=spec.positions, head=settings.head)
    if not rolled:
        return Standardised(fno, *scales)
    # Outputs become inputs: one scale for all frames, so that both sides of a step have the same.
    mean, std = (part.mean() for part in scales[0])
    same = [(mean.repeat(n), std.repeat(n)) for n in (into, settings.block)]
    return Rollout(Standardised(fno, *same), out)


def _unit_scale(channels: int) -> Scale:
    return torch.zeros(channels), torch.ones(channels)
