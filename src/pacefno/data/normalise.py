"""Mean and standard deviation per channel, for the training code to standardise with."""

from __future__ import annotations

import torch
from torch import Tensor

from pacefno.grid import check_field


def channel_statistics(fields: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over samples and grid of ``(N, C, *grid)``, each ``(C,)`` in the dtype of the fields.

    Sums run in float64, sample by sample. A channel that does not vary gets 1, so that dividing by it is harmless.
    """
    check_field(fields, name="fields to standardise")
    count = fields.shape[0] * fields[0, 0].numel()
    total = torch.zeros(fields.shape[1], dtype=torch.float64, device=fields.device)
    for sample in fields:
        total += sample.double().flatten(1).sum(dim=1)
    mean = total / count
    squares = torch.zeros_like(mean)
    for sample in fields:
        squares += (sample.double().flatten(1) - mean[:, None]).square().sum(dim=1)
    std = (squares / count).sqrt()
    noise = torch.finfo(fields.dtype).eps * (mean.abs() + torch.finfo(torch.float32).tiny)
    std = torch.where(std > noise, std, torch.ones_like(std))
    return mean.to(fields.dtype), std.to(fields.dtype)
