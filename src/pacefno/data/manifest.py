"""``dataset.json``: the recipe of a finished dataset and the list of its files. It is written last."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pacefno.data.errors import DatasetError
from pacefno.data.recipe import FORMAT, SPLITS, Count, Recipe
from pacefno.data.schema import Shard, sample_bytes
from pacefno.durable import sha256_of, write_text_atomically

MANIFEST: Final = "dataset.json"
MANIFEST_LIMIT: Final = 4_000_000  # bytes
OVERHEAD: Final = 1_000_000  # bytes a shard may have beyond its samples: headers, coordinates, generators
ALTERED: Final = "it was altered or damaged; delete it and run 'pacefno data generate' again, which keeps the good files"


class Entry(BaseModel):
    """One shard as it lies on the disk."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    split: Annotated[str, Field(pattern=f"^({'|'.join(SPLITS)})$")]
    number: Annotated[int, Field(ge=0, le=999_999)]
    start: Annotated[int, Field(ge=0)]
    count: Count
    redraws: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=1)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @property
    def shard(self) -> Shard:
        return Shard(self.split, self.number, self.start, self.count)


class Manifest(BaseModel):
    """The recipe, and every file with its size and sum."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: int
    recipe: Recipe
    shards: Annotated[tuple[Entry, ...], Field(max_length=100_000)]

    def entries(self, split: str) -> list[Entry]:
        return [entry for entry in self.shards if entry.split == split]

    def redraws(self, split: str) -> int:
        """How many initial states of a split were drawn again; both test splits start from the same states."""
        return sum(entry.redraws for entry in self.entries(split))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    write_text_atomically(folder / MANIFEST, manifest.model_dump_json(indent=1) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a finished dataset; anything that pacefno would not have written is refused."""
    path = folder / MANIFEST
    raw = _read(path)
    _check_format(path, raw)
    try:
        manifest = Manifest.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DatasetError(path, f"{place or 'the text'}: {first['msg']} ({error.error_count()} faults): {ALTERED}") from None
    _check_shards(path, manifest)
    return manifest


def check_file(folder: Path, entry: Entry) -> Path:
    """Refuse a shard that is not the listed one: kind and size first, then its sum."""
    path = folder / entry.shard.name
    size = regular_size(path)
    if size is None:
        raise DatasetError(path, f"is missing: {_again(folder)}")
    if size != entry.bytes:
        raise DatasetError(path, f"has {size} bytes, expected {entry.bytes}, so it is truncated or altered: {_again(folder)}")
    if sha256_of(path) != entry.sha256:
        raise DatasetError(path, f"is altered, its sha256 is not the one in {MANIFEST}: {_again(folder)}")
    return path


def regular_size(path: Path) -> int | None:
    """The size of a file, or None where there is none; links, pipes and devices are refused: they lead anywhere."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        raise DatasetError(path, "is a link or no regular file: copy the real file here")
    return status.st_size


def _again(folder: Path) -> str:
    return f"run the 'pacefno data generate' that made {folder.name} again, it replaces bad files"


def _read(path: Path) -> bytes:
    size = regular_size(path)
    if size is None:
        raise DatasetError(path.parent, _unfinished(path.parent))
    if size > MANIFEST_LIMIT:
        raise DatasetError(path, f"has {size} bytes, expected at most {MANIFEST_LIMIT}: {ALTERED}")
    return path.read_bytes()


def _unfinished(folder: Path) -> str:
    if not folder.is_dir():
        return "there is no such folder: make a dataset with 'pacefno data generate', or check the path"
    if not any(folder.glob("*.h5")):
        return f"holds no dataset ({MANIFEST} is missing): give the folder that 'pacefno data generate' printed"
    preset, _, rest = folder.name.partition("-seed")
    seed, _, switch = rest.partition("-")
    command = f"pacefno data generate {folder.parent.name} --preset {preset} --seed {seed} --root {folder.parent.parent}"
    return (
        f"is not finished ({MANIFEST} is missing): run '{command}{' --stationary' if switch else ''}' to finish it, "
        "what is there is kept"
    )


def _check_format(path: Path, raw: bytes) -> None:
    """The format number before anything else: a newer file should be called newer, not wrong."""
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        raise DatasetError(path, f"is no JSON: {ALTERED}") from None
    got = content.get("format") if isinstance(content, dict) else None
    if got != FORMAT:
        raise DatasetError(path, f"has format {str(got)[:20]}, this version reads {FORMAT}: use the pacefno that wrote it")


def _check_shards(path: Path, manifest: Manifest) -> None:
    """Every split whole and in order, and no file larger than its samples need."""
    recipe = manifest.recipe
    if len(manifest.shards) != sum(len(manifest.entries(split)) for split in SPLITS):
        raise DatasetError(path, f"lists a split that does not exist: {ALTERED}")
    if recipe.id_grid != tuple(n // recipe.coarsening for n in recipe.ood_grid):
        raise DatasetError(path, f"the ID grid {recipe.id_grid} is no part of the OOD grid {recipe.ood_grid}: {ALTERED}")
    for split in SPLITS:
        expected = 0
        for number, entry in enumerate(manifest.entries(split)):
            if (entry.number, entry.start) != (number, expected):
                raise DatasetError(path, f"the files of {split} are not in order: {ALTERED}")
            if entry.bytes > entry.count * sample_bytes(recipe, split) + OVERHEAD:
                raise DatasetError(path, f"{entry.shard.name} is larger than its samples need: {ALTERED}")
            expected += entry.count
        if expected != recipe.samples(split):
            raise DatasetError(path, f"lists {expected} samples of {split}, expected {recipe.samples(split)}: {ALTERED}")
