"""Memory of the process: freed blocks that are kept for the next tensor."""

from __future__ import annotations

import ctypes
import os
import sys

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # the names of glibc's malloc.h
OWN_CHOICE = (
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "GLIBC_TUNABLES",
)


def keep_freed_memory() -> bool:
    """Keep freed blocks for the next tensor; whether that was possible (glibc only).

    The C library of Linux gives every freed block beyond 32 MB back to the system, and the next
    tensor of that size pays for all its pages again: up to a third of a training step of a large
    operator. It is set for a whole process, so only programs and worker processes call this. A
    setting of the user's own is left alone.
    """
    if sys.platform != "linux" or any(name in os.environ for name in OWN_CHOICE):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(mallopt(MMAP_MAX, 0)) and bool(mallopt(TRIM_THRESHOLD, 2**31 - 1))
