"""Open a dataset: the manifest, the sums of its files and their structure are checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import torch
from torch import Tensor

from pacefno.data.errors import DatasetError
from pacefno.data.manifest import Manifest, check_file, read_manifest
from pacefno.data.recipe import SPLITS, Recipe
from pacefno.data.shards import open_shard, read_shard
from pacefno.grid import coarsen


@final
@dataclass(frozen=True)
class Samples:
    """Fields ``(N, C, *grid)`` in float32; the last two exist only for ``test_ood``."""

    input: Tensor
    target: Tensor
    generators: Tensor | None = None  # (N, size) float64: what moved the samples; for scores, never for a model
    resolved: Tensor | None = None  # the target solved from the moved state, where the group is only nearly a symmetry

    def __len__(self) -> int:
        return len(self.input)


@final
@dataclass(frozen=True)
class Dataset:
    """A finished dataset on the disk."""

    path: Path
    manifest: Manifest

    @property
    def recipe(self) -> Recipe:
        return self.manifest.recipe

    def load(self, split: str, grid: Literal["id", "ood"] = "id") -> Samples:
        """A whole split on the ID grid, or (test splits only) on the OOD grid."""
        self._check_request(split, grid)
        recipe = self.recipe
        stride = recipe.coarsening if split.startswith("test") and grid == "id" else 1
        parts: dict[str, list[Tensor]] = {"input": [], "target": [], "generators": [], "target_resolved": []}
        for entry in self.manifest.entries(split):
            shard = entry.shard
            arrays, _ = read_shard(self.path / shard.name, recipe, shard)
            for name in parts.keys() & arrays.keys():
                values = torch.from_numpy(arrays[name])
                values = values if name == "generators" else coarsen(values, stride)
                parts[name].append(values.contiguous())
        joined = {name: torch.cat(values) if values else None for name, values in parts.items()}
        inputs, targets = joined["input"], joined["target"]
        assert inputs is not None and targets is not None  # the manifest has at least one sample per split
        return Samples(inputs, targets, joined["generators"], joined["target_resolved"])

    def _check_request(self, split: str, grid: str) -> None:
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}: expected one of {', '.join(SPLITS)}")
        if grid not in ("id", "ood"):
            raise ValueError(f"unknown grid {grid!r}: expected 'id' or 'ood'")
        if grid == "ood" and not split.startswith("test"):
            raise ValueError(f"{split} is stored on the ID grid {self.recipe.id_grid} only: ask for grid='id'")


def open_dataset(path: Path | str, *, verify: bool = True) -> Dataset:
    """A finished dataset; ``verify`` checks size, sum and structure of every file, once, before anything is used.

    Without it the structure is still checked whenever a file is read.
    """
    folder = Path(path)
    try:
        manifest = read_manifest(folder)
        if verify:
            for entry in manifest.shards:
                with open_shard(check_file(folder, entry), manifest.recipe, entry.shard):
                    pass
    except OSError as error:
        raise DatasetError(folder, f"cannot be read ({error.strerror or error}): check the path and its rights") from error
    return Dataset(folder, manifest)
