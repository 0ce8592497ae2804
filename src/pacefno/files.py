"""Files that survive a kill, a power cut and a full disk, and a lock for folders.

Every file is first written whole under a temporary name beside its final one, forced to the disk
and only then renamed, which is atomic. Readers therefore see the whole old or the whole new file.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pacefno.errors import Failure

LOCK_NAME: Final = "run.lock"
_TEMPORARY: Final = re.compile(r".+\.tmp-(\d{1,9})")  # the number is the writing process's
# Answers of systems that cannot fsync a folder: network shares (the first two), Windows (the last).
_NO_FOLDER_FSYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


class PathError(Failure):
    """Something on the disk cannot be used: ``path``; ``reason`` says why and what to do."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class FolderInUseError(PathError):
    """Another process works in this folder."""


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's content as hexadecimal text."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(document: Any) -> str:
    """A short name for plain data: the same for equal data, on every machine."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents so that a power cut cannot undo it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _fsync_folder(folder.parent)


def remove(path: Path) -> None:
    """Delete a file, a link or a folder with all it holds, if it is there and can be deleted."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written, before minutes of work are done for it."""
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        make_folder(path.parent)
        temporary.touch()
        if path.is_dir():
            raise IsADirectoryError(None, "is a folder", str(path))
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
        raise PathError(path, f"cannot be written ({reason}): name another file") from None
    finally:
        remove(temporary)


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically by this text in UTF-8; missing folders are created."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file atomically by these bytes; missing folders are created."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write a file to; on leaving, that file atomically becomes ``path``.

    An exception in the body deletes the temporary file and leaves ``path`` as it was. The caller
    must have closed the file when the body ends. Missing folders are created.
    """
    make_folder(path.parent)
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    remove(temporary)
    try:
        yield temporary
        with open(temporary, "rb+") as file:  # writable, because Windows cannot fsync otherwise
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        remove(temporary)
    _fsync_folder(path.parent)


def remove_stale_temporaries(folder: Path) -> list[Path]:
    """Delete the temporary files that killed processes left in a folder, and return their paths.

    Call it while holding the folder's lock: of other machines' processes nobody can tell whether
    they still run, and neither can Windows of its own.
    """
    found = [(path, _TEMPORARY.fullmatch(path.name)) for path in sorted(folder.iterdir())]
    stale = [path for path, match in found if match and not _may_be_running(int(match[1]))]
    for path in stale:
        remove(path)
    return stale


@contextmanager
def lock_folder(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a folder for this process: ``with lock_folder(folder): ...``; it is created if missing.

    If somebody holds it already, wait until it is free (``wait``) or raise `FolderInUseError`. The
    system itself drops the lock when its holder dies, however it dies. The file ``run.lock``
    stays behind; only a process that has it open and locked holds the folder.
    """
    from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout  # no part of the core

    make_folder(folder)
    path = folder / LOCK_NAME
    lock: BaseFileLock = FileLock(path)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except (Timeout, RuntimeError) as error:  # RuntimeError: this thread would wait for itself
        todo = "wait for it, stop it, or choose another folder"
        raise FolderInUseError(folder, f"is in use by {_holder_of(path)}: {todo}") from error
    try:
        if not isinstance(lock, SoftFileLock):  # whose file, where flock is missing, is its state
            _write_holder(path)
        yield
    finally:
        lock.release()


def _write_holder(path: Path) -> None:
    with suppress(OSError), open(path, "rb+") as file:  # only a message depends on it
        file.seek(1)  # Windows lets nobody else read the locked byte, which is the first
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        file.truncate()


def _holder_of(path: Path) -> str:
    text = ""
    with suppress(OSError), open(path, "rb") as file:
        file.seek(1)
        text = file.read(300).decode(errors="replace").strip()
    return text if text.startswith("process ") else "another process"


def _fsync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk, where the system can: renames are then final."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FSYNC:
            raise


def _may_be_running(pid: int) -> bool:
    if os.name == "nt":  # where os.kill cannot ask without harm
        return pid == os.getpid()
    try:
        os.kill(pid, 0)  # delivers nothing, only asks
    except OSError as error:
        return error.errno == errno.EPERM  # it runs and belongs to somebody else
    return True
