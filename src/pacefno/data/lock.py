"""One generator per dataset folder: a lock that the system itself releases when its holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pacefno.data.errors import DatasetError
from pacefno.durable import make_folder

LOCK_NAME = "generate.lock"


@contextmanager
def generating(folder: Path) -> Iterator[None]:
    """Hold a dataset folder for this process, or say that another one does; a killed holder leaves nothing to clean up."""
    make_folder(folder)
    path = folder / LOCK_NAME
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _locked(descriptor, path):
            reason = "another 'pacefno data generate' is at work in this folder: wait for it, or choose another --root"
            raise DatasetError(folder, reason)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _locked(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The last holder may have deleted the file after we opened it: then we hold a name that nobody else can see.
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False
