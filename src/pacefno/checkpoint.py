"""Checkpoints of a training: one safetensors file each, that is whole and unaltered or refused.

The file holds named tensors, and JSON documents in its metadata. The first metadata entry is the
sha256 of all other bytes of the file. Nothing here unpickles: opening a checkpoint of unknown
origin runs no code. One process writes a run folder at a time (`pacefno.files.lock_folder`);
readers need no lock. Other programs can read the file as any safetensors file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load, save
from torch import Tensor

from pacefno.files import PathError, remove, replacing

EPOCH: Final = "epoch-{:06d}.safetensors"  # in a run folder, after this many completed epochs
FINAL: Final = "model.safetensors"  # in a run folder, the finished model
FORMAT: Final = 2  # format 1 was a folder of files
HEADER_LIMIT: Final = 50_000_000  # bytes: names, shapes and all documents; safetensors allows 1e8

_EPOCH_NAME: Final = re.compile(r"epoch-(\d{6,})\.safetensors")
_BEGINNING: Final = b'{"__metadata__":{"sha256":"'  # of the header, which follows 8 bytes of length
_SUM: Final = slice(8 + len(_BEGINNING), 8 + len(_BEGINNING) + 64)  # where the sha256 is written
_DOCUMENT: Final = "document/"  # precedes the name of a document in the metadata
_PLAIN: Final = (type(None), bool, int, float, str)  # what JSON stores as it is
_DAMAGED: Final = "do not use this checkpoint, resume from an older one of the same run"


class CheckpointError(PathError):
    """A checkpoint cannot be written, read or trusted; ``reason`` says why and what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """What was saved: groups of named tensors, on the CPU, and JSON documents by name."""

    tensors: dict[str, dict[str, Tensor]]
    documents: dict[str, Any]


def save_checkpoint(
    path: Path, tensors: Mapping[str, Mapping[str, Tensor]], documents: Mapping[str, Any]
) -> None:
    """Write groups of named tensors and JSON documents to one ``.safetensors`` file.

    Whatever interrupts it leaves the file that was there before, or the new one. Equal content
    gives equal bytes. Raises `CheckpointError` for what cannot be stored and if the disk is full.
    """
    _check_name(path)
    try:
        head, data = _encode(tensors, documents)
    except Exception as error:  # safetensors and json raise many types for what they cannot store
        raise CheckpointError(path, f"cannot be stored ({_describe(error)})") from error
    if len(head) > HEADER_LIMIT:
        reason = f"the documents need {len(head)} bytes, more than {HEADER_LIMIT}"
        raise CheckpointError(path, f"{reason}: store large data as tensors")
    try:
        with replacing(path) as temporary, open(temporary, "xb") as file:
            file.write(head)
            file.write(data)
    except OSError as error:
        existing = next(folder for folder in path.absolute().parents if os.path.exists(folder))
        needed, free = len(head) + len(data), shutil.disk_usage(existing).free
        raise CheckpointError(
            path,
            f"could not be written ({error.strerror or error}): {needed} bytes needed, "
            f"{free} bytes free on the disk (a quota may allow less); "
            "the last good checkpoint is untouched; make room or choose another folder",
        ) from error


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint after every byte of its file has proved unaltered.

    Raises `CheckpointError` for everything else: damage, links, pipes, pickles, other formats.
    """
    _check_name(path)
    try:
        if not os.path.lexists(path):
            check_layout(path.parent)
            raise CheckpointError(path, "there is no such checkpoint: check the path")
        if not stat.S_ISREG(path.lstat().st_mode):  # links lead anywhere, a pipe never ends
            raise CheckpointError(path, "is a link or no regular file: name the real file")
        return _decode(path)
    except CheckpointError:
        raise
    except (OSError, MemoryError) as error:
        todo = "check the disk, the memory and the permissions"
        raise CheckpointError(path, f"cannot be read ({_describe(error)}): {todo}") from error
    except Exception as error:  # parsers raise many types for bytes that they do not understand
        reason = f"is truncated, altered or no checkpoint ({_describe(error)}): {_DAMAGED}"
        raise CheckpointError(path, reason) from error


def newest(run: Path) -> tuple[Checkpoint | None, list[CheckpointError]]:
    """Load the newest good ``epoch-NNNNNN.safetensors`` of a run folder; None if there is none.

    Also returns why each newer one was passed over, newest first.
    """
    check_layout(run)
    rejected: list[CheckpointError] = []
    for path in _list_epochs(run):
        try:
            return load_checkpoint(path), rejected
        except CheckpointError as error:
            rejected.append(error)
    return None, rejected


def prune(run: Path, keep: int = 2) -> None:
    """Delete epochs older than the newest ``keep`` good ones; call it just after saving the newest.

    That newest one counts as good unseen, unless it alone would be kept; the others are read to
    know. So at least one checkpoint that has been read to its end always remains.
    """
    if keep < 1:
        raise ValueError(f"keep: expected at least 1, got {keep}: the last is never deleted")
    epochs = _list_epochs(run)
    if len(epochs) <= keep:
        return
    good = 0
    for i, path in enumerate(epochs):
        if good == keep:
            remove(path)
        elif (i == 0 and keep > 1) or is_whole(path):
            good += 1


def check_layout(run: Path) -> None:
    """Raise `CheckpointError` if a run folder holds checkpoints as older versions laid them out."""
    for old in [*run.glob("final/manifest.json"), *run.glob("epoch-*/manifest.json")]:
        reason = f"was written by an older pacefno in another layout (the folder {old.parent.name})"
        raise CheckpointError(run, f"{reason}: train it again, or read it with that version")


def pack_optimizer(state_dict: object) -> tuple[dict[str, Tensor], Any]:
    """Split the state of an optimizer into its tensors and a JSON document that places them.

    JSON has neither int keys nor tuples, so containers carry their kind: ``{0: (1, 2)}`` becomes
    ``{"dict": [[0, {"tuple": [1, 2]}]]}``. Raises TypeError for what would come back different.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, _pack(state_dict, "state", tensors)


def unpack_optimizer(tensors: Mapping[str, Tensor], document: Any) -> Any:
    """Rebuild the state that `pack_optimizer` split, for ``optimizer.load_state_dict``."""
    try:
        return _unpack(document, tensors)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"does not fit its tensors ({_describe(error)}): {_DAMAGED}"
        raise CheckpointError(Path("optimizer"), reason) from error


def _encode(
    tensors: Mapping[str, Mapping[str, Tensor]], documents: Mapping[str, Any]
) -> tuple[bytes, memoryview]:
    """Return the beginning of the file up to the end of the header, and the tensors' bytes."""
    flat: dict[str, Tensor] = {}
    is_complex = []  # stored as pairs of reals, because safetensors lacks some complex types
    for group, members in tensors.items():
        if "/" in group:
            raise ValueError(f"expected group names without '/', got {group!r}: rename the group")
        for name, tensor in members.items():
            # A copy: safetensors refuses shared memory and overlooks a pending conjugation.
            plain = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            if plain.is_complex():
                is_complex.append(f"{group}/{name}")
                plain = torch.view_as_real(plain)
            flat[f"{group}/{name}"] = plain
    content = memoryview(save(flat))
    start = 8 + int.from_bytes(content[:8], "little")
    metadata = {"sha256": "0" * 64, "format": str(FORMAT), "groups": json.dumps(list(tensors))}
    metadata["complex"] = json.dumps(is_complex)
    metadata |= {_DOCUMENT + name: json.dumps(value) for name, value in documents.items()}
    header = {"__metadata__": metadata} | json.loads(bytes(content[8:start]))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8 bytes
    head = len(text).to_bytes(8, "little") + text
    sealed = head[: _SUM.start] + _sum_of(head, content[start:]) + head[_SUM.stop :]
    return sealed, content[start:]


def _decode(path: Path) -> Checkpoint:
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > HEADER_LIMIT:
            raise ValueError(f"a header of {length} bytes, more than {HEADER_LIMIT}")
        header = json.loads(file.read(length))
        metadata = header.pop("__metadata__")
        if metadata["format"] != str(FORMAT):
            reason = f"has format {metadata['format'][:20]}, this version reads {FORMAT}"
            raise CheckpointError(path, f"{reason}: use the pacefno that wrote it")
        expected = 8 + length + max((e["data_offsets"][1] for e in header.values()), default=0)
        size = os.fstat(file.fileno()).st_size
        if size != expected:  # known before the whole file is in memory
            raise ValueError(f"expected {expected} bytes, got {size}")
        file.seek(0)
        content = file.read(size)
    if _sum_of(content) != metadata["sha256"].encode():
        raise ValueError("the sha256 in it is not that of its content")
    names = [name for name in metadata if name.startswith(_DOCUMENT)]
    documents = {name.removeprefix(_DOCUMENT): json.loads(metadata[name]) for name in names}
    tensors: dict[str, dict[str, Tensor]] = {key: {} for key in json.loads(metadata["groups"])}
    is_complex = set(json.loads(metadata["complex"]))
    for full, tensor in load(content).items():
        group, _, name = full.partition("/")
        tensors[group][name] = torch.view_as_complex(tensor) if full in is_complex else tensor
    return Checkpoint(tensors, documents)


def _sum_of(head: bytes, data: memoryview | bytes = b"") -> bytes:
    """Return the sha256, as hexadecimal text, of a file's bytes without those that hold it."""
    view = memoryview(head)
    digest = hashlib.sha256(view[: _SUM.start])
    digest.update(view[_SUM.stop :])
    digest.update(data)
    return digest.hexdigest().encode()


def _check_name(path: Path) -> None:
    if path.suffix != ".safetensors":
        never = "pickled files (.pt, .pth, .pkl, .ckpt, ...) are never opened"
        raise CheckpointError(path, f"expected a name that ends in .safetensors: {never}")


def is_whole(path: Path) -> bool:
    """Whether a checkpoint is there and whole."""
    try:
        load_checkpoint(path)
    except CheckpointError:
        return False
    return True


def _list_epochs(run: Path) -> list[Path]:
    """Return the paths of a run's epochs, newest first."""
    names = os.listdir(run) if run.is_dir() else []
    numbers = {name: int(match[1]) for name in names if (match := _EPOCH_NAME.fullmatch(name))}
    return [run / name for name in sorted(numbers, key=numbers.__getitem__, reverse=True)]


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


def _pack(node: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(node, Tensor):
        name = f"{len(tensors)}:{place}"  # numbered, because 0 and "0" are two keys of equal text
        tensors[name] = node
        return {"tensor": name}
    if type(node) is dict:  # other kinds of dict would come back as this one
        if wrong := [key for key in node if type(key) not in (int, str)]:
            raise TypeError(f"{place}: expected int or str keys, got {wrong[0]!r}: convert it")
        return {"dict": [[key, _pack(node[key], f"{place}.{key}", tensors)] for key in node]}
    if type(node) in (list, tuple):
        items = [_pack(item, f"{place}.{i}", tensors) for i, item in enumerate(node)]
        return {type(node).__name__: items}
    if isinstance(node, _PLAIN):
        return node
    expected = "expected tensors, numbers, text, None, and dicts, lists or tuples of them"
    raise TypeError(f"{place}: {expected}, got {type(node).__name__}: convert it before saving")


def _unpack(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(node, _PLAIN):
        return node
    ((kind, content),) = node.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _unpack(value, tensors) for key, value in content}
    return {"list": list, "tuple": tuple}[kind](_unpack(item, tensors) for item in content)
