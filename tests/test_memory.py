"""Freed memory is kept for the next tensor, unless the user has decided otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource, torch
from pacefno.memory import keep_freed_memory
kept = {call}
torch.ones(2**24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    torch.ones(2**24)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(call: str, **environment: str) -> tuple[str, int]:
    """What the call returned, and how many pages five tensors of 64 MB after it had to ask the system for."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    program = [sys.executable, "-c", COUNT_FAULTS.format(call=call)]
    kept, count = subprocess.run(program, env=clean | environment, check=True, capture_output=True, text=True).stdout.split()
    return kept, int(count)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an option of glibc")
def test_large_tensors_use_the_same_pages_again() -> None:
    (_, usual), (kept, fewer) = faults("None"), faults("keep_freed_memory()")
    assert kept == "True"
    assert fewer < usual / 5


def test_the_settings_of_the_user_are_left_alone() -> None:
    assert faults("keep_freed_memory()", MALLOC_TRIM_THRESHOLD_="100000")[0] == "False"
