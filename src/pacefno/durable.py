"""Files that survive a kill, a power cut and a full disk; datasets and checkpoints are both written through here.

The rule everywhere: write into a temporary sibling (same file system, so a rename is atomic), force it to the disk,
rename it to its real name, force the rename to the disk. Readers never look at temporary siblings.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
from pathlib import Path

TEMPORARY = re.compile(r".+\.tmp-(\d+)")


class PathError(Exception):
    """Something on the disk cannot be used: ``path`` is what is at fault, ``reason`` says what is wrong and what to do."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def sha256_of(path: Path) -> str:
    """The sha256 of a file as hexadecimal text, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fsync_file(path: Path) -> None:
    """Force a closed file's content to the disk; a write alone may wait in memory for half a minute."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_dir(folder: Path) -> None:
    """Force the names in a folder to the disk: without it a power cut can undo a rename that already happened."""
    try:
        fsync_file(folder)
    except OSError as error:
        # Some network and shared folders cannot do this at all; refusing to save there would help nobody.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def write_file(path: Path, content: bytes) -> None:
    """Write a new file and force it to the disk; refuses to overwrite."""
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_text_atomically(path: Path, text: str) -> None:
    """Replace a text file so that every reader, at every moment, sees the whole old text or the whole new one."""
    temporary = temporary_sibling(path)
    remove(temporary)
    try:
        write_file(temporary, text.encode())
        os.replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise
    fsync_dir(path.parent)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, each of them on the disk before the next is used."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    fsync_dir(folder.parent)


def remove(path: Path) -> None:
    """Delete a file, a link or a whole folder; it is no error if it is not there or cannot be deleted."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        path.unlink()


def discard(folder: Path) -> None:
    """Delete a folder that has a real name: it loses the name first, so a kill never leaves half of it to be read."""
    temporary = temporary_sibling(folder)
    remove(temporary)
    with contextlib.suppress(OSError):  # not there, or not ours to delete
        os.rename(folder, temporary)
    remove(temporary)


def temporary_sibling(path: Path) -> Path:
    """The name under which this process prepares ``path``: beside it, with the process number in it."""
    return path.with_name(f"{path.name}.tmp-{os.getpid()}")


def remove_stale_temporaries(folder: Path) -> list[Path]:
    """Delete what killed processes left unfinished in a folder, and return what was deleted.

    Only processes of this machine can be seen to be dead: call it while holding the lock of the folder.
    """
    removed = []
    for path in sorted(folder.iterdir()):
        match = TEMPORARY.fullmatch(path.name)
        if match and not process_is_alive(int(match[1])):
            remove(path)
            removed.append(path)
    return removed


def process_is_alive(pid: int) -> bool:
    """Whether a process with this number exists on this machine."""
    try:
        os.kill(pid, 0)  # signal 0 delivers nothing, it only asks
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # it exists and belongs to somebody else
    return True
