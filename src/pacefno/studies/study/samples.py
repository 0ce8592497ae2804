"""Parts of a split: the first few, batch by batch, in double precision."""

from __future__ import annotations

from collections.abc import Iterator

from pacefno.data import Samples
from pacefno.training.evaluate import BATCH


def rows_of(samples: Samples, rows: slice) -> Samples:
    """Some samples with everything that belongs to them."""
    generators = None if samples.generators is None else samples.generators[rows]
    resolved = None if samples.resolved is None else samples.resolved[rows]
    return Samples(samples.input[rows], samples.target[rows], generators, resolved)


def first(samples: Samples, count: int) -> Samples:
    return rows_of(samples, slice(count))


def batches(samples: Samples) -> Iterator[Samples]:
    """The split in the batches of every evaluation."""
    for start in range(0, len(samples), BATCH):
        yield rows_of(samples, slice(start, start + BATCH))


def double(samples: Samples) -> Samples:
    resolved = None if samples.resolved is None else samples.resolved.double()
    return Samples(samples.input.double(), samples.target.double(), samples.generators, resolved)
