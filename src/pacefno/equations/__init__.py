"""The physics. A new problem is one file and one line in ``PROBLEMS``; the law tests run over that registry."""

from __future__ import annotations

from pacefno.equations.base import Equation, SolverError
from pacefno.equations.burgers import burgers1d, burgers2d
from pacefno.equations.integrator import solve
from pacefno.equations.navier_stokes import navier_stokes, navier_stokes_literal
from pacefno.equations.problem import Problem
from pacefno.equations.shallow_water import shallow_water

_ALL = [
    burgers1d("burgers1d", "1-D Burgers", nu=5e-4, step=4e-4),
    burgers1d("burgers1d_smooth", "1-D Burgers, smooth twin", nu=1e-2, step=2e-3, in_tables=False),
    burgers2d(),
    shallow_water(),
    navier_stokes(),
    navier_stokes_literal(),
]
PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in _ALL}


def problem_named(name: str) -> Problem:
    """The registered problem, or an error that lists what there is."""
    if name not in PROBLEMS:
        raise ValueError(f"unknown problem {name!r}: expected one of {', '.join(PROBLEMS)}")
    return PROBLEMS[name]


__all__ = ["PROBLEMS", "Equation", "Problem", "SolverError", "problem_named", "solve"]
