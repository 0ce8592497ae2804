"""The training objective (paper, appendix A, "Detailed losses"): L_PDE + lambda_1 L_equiv +
lambda_2 L_anchor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pacefno.fields import Box, FieldType
from pacefno.groups import Group
from pacefno.metrics import canonical_pair, relative_h1, relative_l2


def equivariance_loss(group: Group, estimated: Tensor, true: Tensor) -> Tensor:
    """``|M(xi^) - M(xi)|_F^2`` with one 2x2 rotation per spatial coordinate: ``4 (1 - cos(2 pi
    delta / period))``, ``(B,)``.

    Computed as ``8 sin^2(pi delta / period)``, which does not lose small deviations to the rounding
    of the 1.
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
    invariant: float = (
        0.0  # relative L2 of the first channel in the canonical frame (the paper's height term)
    )
    per_channel: bool = False


def objective(
    group: Group,
    output: FieldType,
    prediction: Tensor,
    target: Tensor,
    estimated: Tensor | None,
    true: Tensor,
    weights: Weights,
    reference: Tensor | None = None,
    box: Box | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The total loss and its parts (means over the batch); a term of weight zero is not computed.

    ``true`` are the elements of ``group`` that moved the samples, ``estimated`` the frames that the
    model found, or None for a model without a frame: the frame terms are then left out. The error
    is divided by the norm of ``reference``, such as the target before it was moved, or of the
    target. Slopes are those in the box of ``output``, or in a ``box`` for each sample.
    """
    error = relative_l2(prediction, target, per_channel=weights.per_channel, reference=reference)
    parts = {"l2": error.mean()}
    total = parts["l2"]
    if weights.h1:
        lengths = output.lengths if box is None else box.lengths
        parts["h1"] = relative_h1(prediction, target, lengths).mean()
        total = total + weights.h1 * parts["h1"]
    if weights.invariant:
        first_p, first_y = (
            part[:, :1] for part in canonical_pair(group, output, true, prediction, target)
        )
        parts["invariant"] = relative_l2(first_p, first_y).mean()
        total = total + weights.invariant * parts["invariant"]
    if estimated is None or group.spatial == 0:
        return total, parts
    if weights.equivariance:
        parts["equivariance"] = equivariance_loss(group, estimated, true).mean()
        total = total + weights.equivariance * parts["equivariance"]
    if weights.anchor:
        parts["anchor"] = anchor_loss(group, estimated, true).mean()
        total = total + weights.anchor * parts["anchor"]
    return total, parts
