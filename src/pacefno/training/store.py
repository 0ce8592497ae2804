"""Checkpoints on the disk: a folder of safetensors and JSON files that is either whole and unaltered, or refused.

``manifest.json`` is written last and lists every other file, so a folder is a checkpoint exactly when its manifest
verifies. Nothing here unpickles: opening a checkpoint of unknown origin runs no code. One process writes at a time
(:class:`pacefno.lock.FolderLock`); readers need no lock.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import torch
from safetensors.torch import load, save
from torch import Tensor

from pacefno.durable import discard, fsync_dir, make_folder, remove, temporary_sibling, write_file
from pacefno.training.flatten import flatten_state, unflatten_state
from pacefno.training.manifest import (
    DAMAGED,
    MANIFEST,
    PICKLED,
    CheckpointError,
    check_file,
    is_file_name,
    is_pickled,
    manifest_of,
    verified_files,
)

__all__ = ["Checkpoint", "CheckpointError", "Latest", "flatten_state", "latest"]
__all__ += ["load_checkpoint", "prune", "save_checkpoint", "unflatten_state"]

Json: TypeAlias = Any  # None, bool, int, float, str, and lists and str-keyed dicts of them
COMPLEX128: Final = "|complex128"  # safetensors lacks this dtype: stored as pairs of float64 under a marked name


@final
@dataclass(frozen=True)
class Checkpoint:
    """What was saved: groups of named tensors (now on the CPU) and JSON documents."""

    tensors: dict[str, dict[str, Tensor]]
    documents: dict[str, Json]


@final
@dataclass(frozen=True)
class Latest:
    """The newest checkpoint that loads, and the newer ones that were passed over because they do not, newest first."""

    path: Path | None
    rejected: tuple[CheckpointError, ...]


# --- writing --------------------------------------------------------------------------------------------------------


def save_checkpoint(folder: Path, tensors: Mapping[str, Mapping[str, Tensor]], documents: Mapping[str, Json]) -> None:
    """Write a checkpoint so that a kill or power cut at any moment leaves the old one or the new one, never neither.

    ``tensors["model"]`` becomes ``model.safetensors``, ``documents["state"]`` becomes ``state.json``.
    """
    files = {f"{key}.safetensors": _tensor_file(folder, key, group) for key, group in tensors.items()}
    files |= {f"{key}.json": _document_file(folder, key, document) for key, document in documents.items()}
    for name, content in files.items():
        check_file(folder, name, content)
    try:
        _refuse_place(folder)
        make_folder(folder.parent)
        _write(folder, files)
    except OSError as error:
        raise CheckpointError(folder, _not_written(folder, files, error)) from error


def _tensor_file(folder: Path, key: str, group: Mapping[str, Tensor]) -> bytes:
    try:
        return save(dict(_storable(name, tensor) for name, tensor in group.items()))
    except Exception as error:  # safetensors raises five types for tensors that it cannot store
        raise CheckpointError(folder / f"{key}.safetensors", f"cannot be stored ({_described(error)})") from error


def _storable(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    """A plain copy: safetensors refuses views of one memory and would overlook a conjugation still to be carried out."""
    if name == "__metadata__" or name.endswith(COMPLEX128):
        raise ValueError(f"the name {name!r} is reserved by the file format: rename the tensor")
    plain = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return (name + COMPLEX128, torch.view_as_real(plain)) if plain.dtype == torch.complex128 else (name, plain)


def _document_file(folder: Path, key: str, document: Json) -> bytes:
    try:
        return json.dumps(document, indent=1).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(folder / f"{key}.json", f"cannot be stored as JSON ({_described(error)})") from error


def _refuse_place(folder: Path) -> None:
    """Never replace, and so delete, something that is not a checkpoint."""
    if folder.name in ("", "..") or is_pickled(folder.name):
        raise CheckpointError(folder, "is no name for a checkpoint folder: choose one like epoch-0001")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise CheckpointError(folder, "exists and is no folder: delete it or choose another name")
    names = os.listdir(folder) if folder.exists() else []
    if MANIFEST not in names and not all(is_file_name(name) for name in names):
        raise CheckpointError(folder, "exists and is no checkpoint: delete it or choose another name")


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    temporary = temporary_sibling(folder)
    remove(temporary)
    try:
        temporary.mkdir()
        for name, content in files.items():
            write_file(temporary / name, content)
        write_file(temporary / MANIFEST, manifest_of(files))
        fsync_dir(temporary)
        _move_in(temporary, folder)
    finally:
        remove(temporary)


def _move_in(temporary: Path, folder: Path) -> None:
    """Give a finished folder its name; a kill between the two renames leaves the old one where loading looks for it."""
    previous = _previous(folder)
    if folder.exists():
        discard(previous)
        os.rename(folder, previous)
        fsync_dir(folder.parent)
    os.rename(temporary, folder)
    fsync_dir(folder.parent)
    discard(previous)


def _previous(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.previous")


def _not_written(folder: Path, files: Mapping[str, bytes], error: OSError) -> str:
    needed = sum(len(content) for content in files.values())
    existing = next(parent for parent in folder.absolute().parents if os.path.exists(parent))
    free = shutil.disk_usage(existing).free
    return (
        f"could not be written ({error.strerror}): {needed} bytes needed, {free} bytes free on the disk (a quota may "
        "allow less); the last good checkpoint is untouched; make room or choose another folder"
    )


# --- reading --------------------------------------------------------------------------------------------------------


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint after every file has proved whole and unaltered; all else is a :class:`CheckpointError`."""
    try:
        place = _place_of(folder)
        files = verified_files(place)
    except (OSError, MemoryError) as error:
        raise CheckpointError(folder, f"cannot be read ({_described(error)}): check the disk and its permissions") from error
    tensors: dict[str, dict[str, Tensor]] = {}
    documents: dict[str, Json] = {}
    for name, content in files.items():
        stem, _, kind = name.rpartition(".")
        try:
            if kind == "json":
                documents[stem] = json.loads(content)
            else:
                tensors[stem] = dict(_restored(*item) for item in load(content).items())
        except Exception as error:  # the parsers raise many types for bytes that they do not understand
            raise CheckpointError(place / name, f"has no valid content ({_described(error)}): {DAMAGED}") from error
    return Checkpoint(tensors, documents)


def _place_of(folder: Path) -> Path:
    """Where a checkpoint lies: under its own name, or beside it if a kill interrupted its replacement."""
    if is_pickled(folder.name) or folder.is_file():
        raise CheckpointError(folder, f"expected a checkpoint folder: pickled files ({', '.join(PICKLED)}) are never opened")
    place = _previous(folder) if folder.name and not os.path.lexists(folder) else folder
    if place.is_symlink():
        raise CheckpointError(folder, "is a symbolic link: name the folder that it points to")
    if not place.is_dir():
        raise CheckpointError(folder, "there is no checkpoint folder of this name: check the path")
    return place


def _restored(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    return (name.removesuffix(COMPLEX128), torch.view_as_complex(tensor)) if name.endswith(COMPLEX128) else (name, tensor)


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


# --- a run's checkpoints --------------------------------------------------------------------------------------------


def latest(run_folder: Path, prefix: str = "epoch-") -> Latest:
    """The newest ``<prefix><number>`` that loads; a broken one is passed over and reported."""
    rejected: list[CheckpointError] = []
    for folder in _newest_first(run_folder, prefix):
        fault = _fault_of(folder)
        if fault is None:
            return Latest(folder, tuple(rejected))
        rejected.append(fault)
    return Latest(None, tuple(rejected))


def prune(run_folder: Path, prefix: str = "epoch-", keep: int = 2) -> list[Path]:
    """Delete, and return, all that is older than the newest ``keep`` checkpoints that load; so these always remain."""
    if keep < 1:
        raise ValueError(f"keep: expected at least 1, got {keep}: the last good checkpoint is never deleted")
    good = 0
    old: list[Path] = []
    for folder in _newest_first(run_folder, prefix):
        if good == keep:
            old.append(folder)
        else:
            good += _fault_of(folder) is None
    for folder in old:
        discard(folder)
        discard(_previous(folder))
    return old


def _fault_of(folder: Path) -> CheckpointError | None:
    try:
        load_checkpoint(folder)
    except CheckpointError as error:
        return error
    return None


def _newest_first(run_folder: Path, prefix: str) -> list[Path]:
    """Numbered folders by falling number; one that only lies aside (see :func:`_move_in`) counts under its own name."""
    pattern = re.compile(re.escape(prefix) + r"([0-9]+)(\.previous)?")
    names = os.listdir(run_folder) if run_folder.is_dir() else []
    numbered = {name.removesuffix(".previous"): int(match[1]) for name in names if (match := pattern.fullmatch(name))}
    return [run_folder / name for name in sorted(numbered, key=lambda name: (numbered[name], name), reverse=True)]
