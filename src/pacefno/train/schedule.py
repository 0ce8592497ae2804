"""What changes during training, as pure functions of the step or the epoch: nothing here needs to
be saved.
"""

from __future__ import annotations

import math

from pacefno.train.config import LossSettings, ScheduleSettings

START_DIVISOR = 25.0  # the one-cycle rate starts this much below its peak


def learning_rate(schedule: ScheduleSettings, step: int, steps_per_epoch: int) -> float:
    """The rate of one optimiser step, counted from 0."""
    total = schedule.epochs * steps_per_epoch
    if schedule.shape == "constant":
        return schedule.rate
    if schedule.shape == "step":
        return schedule.rate * schedule.step_factor ** (
            step // steps_per_epoch // schedule.step_every
        )
    rise = schedule.warmup * total
    if step < rise:
        share = step / rise
        return schedule.rate * (share + (1 - share) / START_DIVISOR)
    share = (step - rise) / max(1.0, total - rise)
    return schedule.rate * 0.5 * (1 + math.cos(math.pi * share))


def average_memory(schedule: ScheduleSettings, updates: int) -> float:
    """The share of the averaged weights that stays in an update; ``updates`` were made before it.

    An average of few updates remembers less than ``schedule.average`` says: it shall forget how the
    weights began.
    """
    return min(schedule.average, (1 + updates) / (10 + updates))


def grid_stride(schedule: ScheduleSettings, epoch: int) -> int:
    """The curriculum: every how many points of the ID grid this epoch trains on."""
    return schedule.coarse_stride if epoch < round(schedule.coarse * schedule.epochs) else 1


def anchor_weight(loss: LossSettings, epoch: int) -> float:
    """``lambda_anc(e) = a d^e + floor`` (paper, table of losses)."""
    if loss.anchor == 0:
        return 0.0
    return loss.anchor * loss.anchor_decay**epoch + loss.anchor_floor


def h1_weight(loss: LossSettings, epoch: int, epochs: int, balance: float) -> float:
    """The weight of the H1 term; ``balance`` is the moving average of L2/H1 that the "ema" schedule
    multiplies by.
    """
    if loss.h1_schedule == "ema":
        return loss.h1 * balance
    if loss.h1_schedule == "ramp":
        return loss.h1 * min(1.0, epoch / max(1.0, loss.h1_ramp * epochs))
    return loss.h1
