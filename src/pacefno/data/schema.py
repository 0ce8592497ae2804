"""What a shard looks like inside, as a table: the writer fills it, the reader refuses anything else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from pacefno.data.recipe import Recipe, points_of
from pacefno.symmetry.translation import AXES

Layout: TypeAlias = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]

SHARD_SAMPLES: Final = 48  # a kill loses at most this many samples per worker
SHARD_BYTES: Final = 64 * 2**20  # and a shard fits into memory several times over
SMALL_GRID: Final = 4096  # points

FIELD: Final = np.dtype("<f4")
COORDINATE: Final = np.dtype("<f8")
TEXT: Final = np.dtype("S64")

ATTRIBUTES: Final = {
    "format": np.dtype("<i8"),
    "recipe": TEXT,  # sha256 of the recipe that it was made from
    "split": TEXT,
    "start": np.dtype("<i8"),  # index of its first sample in the split
    "count": np.dtype("<i8"),
    "redraws": np.dtype("<i8"),  # initial states that were rejected for carrying no frame
    "checksum": TEXT,  # sha256 of all datasets
    "complete": np.dtype("bool"),  # written last
}


@dataclass(frozen=True)
class Shard:
    """One file of a split: samples ``start`` to ``start + count``."""

    split: str
    number: int
    start: int
    count: int

    @property
    def name(self) -> str:
        return f"{self.split}-{self.number:03d}.h5"


def shards_of(recipe: Recipe, split: str) -> Iterator[Shard]:
    """The files of a split, in order; both test splits are cut at the same samples."""
    total, size = recipe.samples(split), shard_samples(recipe, split)
    for number, start in enumerate(range(0, total, size)):
        yield Shard(split, number, start, min(size, total - start))


def shard_samples(recipe: Recipe, split: str) -> int:
    """How many samples a shard holds: whole batches, within the limits on samples and memory."""
    widest = "test_ood" if split.startswith("test") else split
    fit = min(SHARD_SAMPLES, SHARD_BYTES // sample_bytes(recipe, widest))
    batch = batch_size(recipe)
    return max(batch, fit // batch * batch)


def batch_size(recipe: Recipe) -> int:
    """How many samples are solved together. Small grids gain from company, large ones no longer fit into the cache."""
    return 8 if points_of(recipe.solver_grid) <= SMALL_GRID else 4


def sample_bytes(recipe: Recipe, split: str) -> int:
    """Bytes of one stored sample."""
    channels = recipe.in_channels + recipe.out_channels
    if split == "test_ood" and recipe.resolved:
        channels += recipe.out_channels
    return channels * points_of(recipe.grid(split)) * FIELD.itemsize


def layout(recipe: Recipe, shard: Shard) -> Layout:
    """Name, shape and dtype of every dataset in a shard."""
    grid = recipe.grid(shard.split)
    table: Layout = {
        "input": ((shard.count, recipe.in_channels, *grid), FIELD),
        "target": ((shard.count, recipe.out_channels, *grid), FIELD),
    }
    if shard.split == "test_ood":
        table["generators"] = ((shard.count, len(recipe.coordinates)), COORDINATE)
        if recipe.resolved:
            table["target_resolved"] = ((shard.count, recipe.out_channels, *grid), FIELD)
    return table | {axis: ((n,), COORDINATE) for axis, n in zip(AXES, grid, strict=False)}
