"""The list of a checkpoint's files with their sizes and sums, and the proof that a folder holds exactly these files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from pacefno.durable import PathError

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
MANIFEST_LIMIT: Final = 1_000_000  # bytes
DOCUMENT_LIMIT: Final = 64_000_000  # bytes of one JSON file
FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.(safetensors|json)")
PICKLED: Final = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin", ".joblib")
DAMAGED: Final = "do not use this checkpoint, resume from an older one of the same run"

Entry: TypeAlias = dict[str, Any]  # {"bytes": int, "sha256": hexadecimal text}


class CheckpointError(PathError):
    """Anything wrong with a checkpoint: ``path`` is the file at fault, ``reason`` says what is wrong and what to do."""


def manifest_of(files: Mapping[str, bytes]) -> bytes:
    """The manifest of these files; there is one way to write it, so that on reading even a changed blank shows."""
    entries = {name: _entry_of(files[name]) for name in sorted(files)}
    return json.dumps({"format": FORMAT, "files": entries}, indent=1).encode()


def check_file(folder: Path, name: str, content: bytes) -> None:
    """Refuse to write what :func:`verified_files` would refuse to read."""
    path = folder / name
    if not is_file_name(name):
        raise CheckpointError(path, "is no name for a file of a checkpoint: use letters, digits, '-', '_' and '.'")
    if path.suffix == ".json" and len(content) > DOCUMENT_LIMIT:
        raise CheckpointError(path, f"has {len(content)} bytes, more than {DOCUMENT_LIMIT}: store large data as tensors")


def is_file_name(name: str) -> bool:
    """Whether a name is plain (so it cannot point outside its folder) and of a kind that holds no code."""
    return FILE_NAME.fullmatch(name) is not None and name != MANIFEST


def verified_files(folder: Path) -> dict[str, bytes]:
    """Read every file of a finished folder: sizes first, then sums; anything missing, extra or altered is refused."""
    path = folder / MANIFEST
    raw = _read(path, MANIFEST_LIMIT)
    entries = _entries(path, raw)
    for name in sorted(set(os.listdir(folder)) - {MANIFEST, *entries}):
        never = "pickled files are never opened" if is_pickled(name) else "nobody vouches for it"
        raise CheckpointError(folder / name, f"is not listed in {MANIFEST} and {never}: remove it")
    files = {name: _verified(folder / name, entry) for name, entry in entries.items()}
    if manifest_of(files) != raw:
        raise CheckpointError(path, f"is not written the way pacefno writes it, so it was altered: {DAMAGED}")
    return files


def is_pickled(name: str) -> bool:
    """Whether a name is one that pickled files bear: opening such a file runs whatever code its author put there."""
    return name.lower().endswith(PICKLED)


def _entry_of(content: bytes) -> Entry:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _entries(path: Path, raw: bytes) -> dict[str, Entry]:
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(path, f"is truncated or altered (it is no JSON): {DAMAGED}") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise CheckpointError(path, f"is no list of files: {DAMAGED}")
    if manifest.get("format") != FORMAT:
        got = str(manifest.get("format"))[:20]
        raise CheckpointError(path, f"has format {got}, this version reads {FORMAT}: use the pacefno that wrote it")
    for name, entry in manifest["files"].items():
        _check_entry(path, name, entry)
    return dict(manifest["files"])


def _check_entry(path: Path, name: str, entry: object) -> None:
    if not is_file_name(name):
        raise CheckpointError(path, f"lists {name[:100]!r}, expected plain .safetensors and .json names: {DAMAGED}")
    if not isinstance(entry, dict) or type(entry.get("bytes")) is not int:
        raise CheckpointError(path, f"gives no size for {name}: {DAMAGED}")
    if name.endswith(".json") and entry["bytes"] > DOCUMENT_LIMIT:
        raise CheckpointError(path, f"lists {name} with more than {DOCUMENT_LIMIT} bytes: {DAMAGED}")


def _verified(path: Path, entry: Entry) -> bytes:
    content = _read(path, entry["bytes"])
    if len(content) != entry["bytes"]:
        raise CheckpointError(path, f"is truncated: expected {entry['bytes']} bytes, got {len(content)}: {DAMAGED}")
    if _entry_of(content) != entry:
        raise CheckpointError(path, f"is altered, its sha256 is not the one in {MANIFEST}: {DAMAGED}")
    return content


def _read(path: Path, limit: int) -> bytes:
    if not os.path.lexists(path):
        raise CheckpointError(path, f"is missing, so this is no finished checkpoint: {DAMAGED}")
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):  # a link leads anywhere, a pipe or device never ends
        raise CheckpointError(path, "is a link or no regular file: copy the real file here")
    if status.st_size > limit:
        raise CheckpointError(path, f"is too long: expected at most {limit} bytes, got {status.st_size}: {DAMAGED}")
    return path.read_bytes()
