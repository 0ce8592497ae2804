"""The training objective (paper, appendix A, "Detailed losses"): L_PDE + lambda_1 L_equiv + lambda_2 L_anchor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pacefno.metrics import relative_h1, relative_l2
from pacefno.symmetry import Group


def equivariance_loss(group: Group, estimated: Tensor, true: Tensor) -> Tensor:
    """``|M(xi^) - M(xi)|_F^2`` with one 2x2 rotation per spatial coordinate: ``4 (1 - cos(2 pi delta / period))``, ``(B,)``.

    Computed as ``8 sin^2(pi delta / period)``, which does not lose small deviations to the rounding of the 1.
    """
    delta = (estimated - true)[:, : group.spatial]
    periods = delta.new_tensor(group.periods[: group.spatial])
    return (8 * torch.sin(math.pi * delta / periods).square()).sum(dim=1)


def anchor_loss(group: Group, estimated: Tensor, true: Tensor) -> Tensor:
    """``|xi^ - xi|^2`` over the spatial coordinates, to the nearest image, ``(B,)``."""
    return group.difference(estimated, true)[:, : group.spatial].square().sum(dim=1)


@dataclass(frozen=True)
class Weights:
    """The weights of the terms at one moment of training; schedules are the loop's business."""

    h1: float = 0.0
    equivariance: float = 0.0
    anchor: float = 0.0
    invariant: float = 0.0  # relative L2 of the first channel in the canonical frame (the paper's height term)
    per_channel: bool = False
    relative_to: Literal["unmoved", "moved"] = "moved"  # the target that the error is divided by the norm of


def objective(
    group: Group,
    prediction: Tensor,
    target: Tensor,
    estimated: Tensor,
    true: Tensor,
    true_terminal: Tensor,
    weights: Weights,
    unmoved: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The total loss and its parts (means over the batch); a term of weight zero is not computed.

    ``group`` moved the samples by ``true`` and their targets by ``true_terminal``. A model without a frame (trivial group)
    estimates nothing: its ``estimated`` has no coordinates, and the frame terms are left out. ``unmoved`` is the target
    before it was moved; without it the error is divided by the norm of ``target``.
    """
    reference = unmoved if weights.relative_to == "unmoved" else None
    error = relative_l2(prediction, target, per_channel=weights.per_channel, reference=reference)
    parts = {"l2": error.mean()}
    total = parts["l2"]
    if weights.h1:
        parts["h1"] = relative_h1(prediction, target).mean()
        total = total + weights.h1 * parts["h1"]
    framed = estimated.shape[1] == group.size and group.spatial > 0
    if weights.equivariance and framed:
        parts["equivariance"] = equivariance_loss(group, estimated, true).mean()
        total = total + weights.equivariance * parts["equivariance"]
    if weights.anchor and framed:
        parts["anchor"] = anchor_loss(group, estimated, true).mean()
        total = total + weights.anchor * parts["anchor"]
    if weights.invariant and framed:
        parts["invariant"] = _invariant(group, prediction, target, true_terminal)
        total = total + weights.invariant * parts["invariant"]
    return total, parts


def _invariant(group: Group, prediction: Tensor, target: Tensor, xi_T: Tensor) -> Tensor:
    first_p = group.inverse(prediction, xi_T)[:, :1]
    first_y = group.inverse(target, xi_T)[:, :1]
    return relative_l2(first_p, first_y).mean()
