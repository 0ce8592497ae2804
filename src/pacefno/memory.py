"""What the process does with memory it has freed.

The C library of Linux gives every freed block beyond 32 MB back to the system, and the next tensor of that size pays for all
its pages again. A large operator on a CPU spends up to a third of a training step on that.
"""

from __future__ import annotations

import ctypes
import os

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # the names of glibc's malloc.h
OWN_CHOICE = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Keep freed blocks for the next tensor; whether that was possible (glibc only, and not against the user's own choice).

    For a whole process, so a program calls it and a library does not.
    """
    if any(name in os.environ for name in OWN_CHOICE):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(mallopt(MMAP_MAX, 0)) and bool(mallopt(TRIM_THRESHOLD, 2**31 - 1))
