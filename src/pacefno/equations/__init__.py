"""The physics. A new problem is one file and one line in ``PROBLEMS``; the law tests run over that registry.

Benchmarks of whole trajectories (the protocol of LPSDA) stand in a registry of their own, ``TRAJECTORY_PROBLEMS``.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from pacefno.equations.base import Equation, SolverError
from pacefno.equations.burgers import burgers1d, burgers2d
from pacefno.equations.integrator import solve
from pacefno.equations.kdv import kdv, kdv_easy
from pacefno.equations.kuramoto_sivashinsky import kuramoto_sivashinsky
from pacefno.equations.navier_stokes import navier_stokes, navier_stokes_literal
from pacefno.equations.problem import Problem
from pacefno.equations.shallow_water import shallow_water
from pacefno.equations.trajectory import TrajectoryProblem

_ALL = [
    burgers1d("burgers1d", "1-D Burgers", nu=5e-4, step=4e-4),
    burgers1d("burgers1d_smooth", "1-D Burgers, smooth twin", nu=1e-2, step=2e-3, in_tables=False),
    burgers2d(),
    shallow_water(),
    navier_stokes(),
    navier_stokes_literal(),
]
PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in _ALL}
TRAJECTORY_PROBLEMS: dict[str, TrajectoryProblem] = {
    problem.name: problem for problem in (kdv(), kdv_easy(), kuramoto_sivashinsky())
}

# A view of both, so that what is registered later is in it; it lists the first map last.
BENCHMARKS: Mapping[str, Problem | TrajectoryProblem] = ChainMap[str, Any](TRAJECTORY_PROBLEMS, PROBLEMS)


def problem_named(name: str) -> Problem:
    """The registered problem, or an error that lists what there is."""
    if name not in PROBLEMS:
        raise ValueError(f"unknown problem {name!r}: expected one of {', '.join(PROBLEMS)}")
    return PROBLEMS[name]


def benchmark_named(name: str) -> Problem | TrajectoryProblem:
    """The benchmark of either kind, or an error that lists them all."""
    if name not in BENCHMARKS:
        raise ValueError(f"unknown problem {name!r}: expected one of {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]


__all__ = [
    "BENCHMARKS",
    "PROBLEMS",
    "TRAJECTORY_PROBLEMS",
    "Equation",
    "Problem",
    "SolverError",
    "TrajectoryProblem",
    "benchmark_named",
    "problem_named",
    "solve",
]
