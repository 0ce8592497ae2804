"""One writer per folder, be it a training or a generator: a lock file that says who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Final, final

from pacefno.durable import make_folder, process_is_alive

LOCK_NAME: Final = "run.lock"
UNREADABLE_FOR: Final = 60.0  # seconds; a lock without a holder is younger than that only while it is being written


class FolderInUseError(RuntimeError):
    """Another process works in this folder; the message names it and says what to do."""


@final
class FolderLock:
    """Hold a folder for this process: ``with FolderLock(folder): ...``.

    The file is created with ``O_EXCL``, so exactly one of several starters gets it. A lock whose process is dead on
    this machine is taken over; one from another machine never is, because from here nobody can tell.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK_NAME
        self._text: str | None = None

    def __enter__(self) -> FolderLock:
        make_folder(self.path.parent)
        if self._text is not None:
            raise FolderInUseError(f"{self.path} is already held by this very FolderLock: enter it once")
        if not self._create() and not (self._remove_if_stale() and self._create()):
            raise FolderInUseError(self._refusal())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A forked worker that unwinds through here has another process number and so leaves its parent's lock alone.
        if self._text == _identity() and _read(self.path) == self._text:
            self.path.unlink(missing_ok=True)
        self._text = None

    def _create(self) -> bool:
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        text = _identity()
        try:
            os.write(descriptor, text.encode())
            os.fsync(descriptor)
        except OSError:
            self.path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        self._text = text
        return True

    def _remove_if_stale(self) -> bool:
        """Delete a dead process's lock, and say whether creating may be tried again."""
        try:
            descriptor = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            return True  # released in the meantime
        except PermissionError:
            return False  # somebody else's
        try:
            # One rescuer at a time: the second would delete the new lock of the first. (Some network folders cannot.)
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not self._is_still(descriptor):
                return True  # another rescuer was faster; creating decides
            if not _is_stale(os.read(descriptor, 4096).decode(errors="replace"), os.fstat(descriptor).st_mtime):
                return False
            self.path.unlink(missing_ok=True)
            return True
        finally:
            os.close(descriptor)

    def _is_still(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _refusal(self) -> str:
        folder = self.path.parent
        holder = _parse(_read(self.path) or "")
        if holder is None:
            return f"{folder} is being locked by another process ({self.path} has no holder yet): try again in a minute"
        pid, host, _ = holder
        if host == socket.gethostname():
            return f"{folder} is in use by process {pid} on this machine: wait for it, stop it, or choose another folder"
        return (
            f"{folder} is in use by process {pid} on {host}, and nobody can tell from here whether it still runs: "
            f"if it does not, delete {self.path}; otherwise choose another folder"
        )


def _is_stale(text: str, written: float) -> bool:
    holder = _parse(text)
    if holder is None:
        return time.time() - written > UNREADABLE_FOR
    pid, host, born = holder
    if host != socket.gethostname():
        return False
    return not process_is_alive(pid) or _birth(pid) not in (born, "")  # "": the system does not tell, so keep away


def _identity() -> str:
    pid = os.getpid()
    return json.dumps({"pid": pid, "host": socket.gethostname(), "born": _birth(pid)})


def _parse(text: str) -> tuple[int, str, str] | None:
    try:
        content = json.loads(text)
        return int(content["pid"]), str(content["host"]), str(content["born"])
    except (ValueError, KeyError, TypeError):
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return None


def _birth(pid: int) -> str:
    """When a process began, where the system says so (Linux), else empty.

    A restarted container gives the same number to the same program: without this a killed run would block itself.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # The second field is the program's name in parentheses and may itself hold spaces and parentheses.
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if after_name[0] in "ZX":
            return "dead"  # killed, and its parent has not collected it yet: it still has a number, but holds nothing
        return f"{boot}/{after_name[19]}"  # field 22 of the line: start time in ticks since boot
    except (OSError, IndexError):
        return ""
