"""Interleaved timing: everything that is compared takes turns, and the best of its turns counts.

On a machine that others use, count processor seconds of one thread (``--threads 1 --clock cpu``):
waiting is then not counted, though caches and memory are still shared.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
Clock = Callable[[], float]
Work = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """Two times in one run; the ratio is what is quoted, and must stay under the bar."""

    problem: str
    what: str
    base: float  # seconds
    mine: float
    bar: float | None = None

    @property
    def ratio(self) -> float:
        return self.mine / self.base

    @property
    def key(self) -> str:
        return f"{self.problem}: {self.what}"

    @property
    def text(self) -> str:
        bar = "" if self.bar is None else f"{self.bar:6.2f}  {self.verdict}"
        times = f"{1e3 * self.base:10.2f}{1e3 * self.mine:10.2f}{self.ratio:8.2f}"
        return f"{self.problem:23s}{self.what:52s}{times}{bar}"

    @property
    def verdict(self) -> str:
        return "ok" if self.bar is None or self.ratio <= self.bar else "MISSED"


HEADER = f"{'problem':23s}{'comparison':52s}{'base ms':>10s}{'ms':>10s}{'ratio':>8s}{'bar':>6s}"


def best_times(works: dict[str, Work], rounds: int, clock: Clock) -> dict[str, float]:
    """The best seconds of each, in turns, after two rounds that are not counted."""
    best = dict.fromkeys(works, float("inf"))
    for turn in range(rounds + 2):
        for name, work in works.items():
            start = clock()
            work()
            spent = clock() - start
            if turn >= 2:
                best[name] = min(best[name], spent)
    return best


def machine() -> str:
    """The processor, its cores, and the versions that matter."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        name = found[0].split(":", 1)[1].strip() if found else name
    capability = torch.backends.cpu.get_cpu_capability()
    versions = f"Python {platform.python_version()}, torch {torch.__version__} ({capability})"
    return f"{name}, {os.cpu_count()} cores, {platform.system()}, {versions}"


def load() -> float:
    """How many processes wanted to run in the last minute, ours included; 0 where unknown."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0
