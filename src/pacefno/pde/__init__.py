"""Physics and time integration: one file per equation. No network is known here."""

from __future__ import annotations

from pacefno.pde.base import Equation, SolverError
from pacefno.pde.burgers import Burgers
from pacefno.pde.initial import Law
from pacefno.pde.integrator import solve
from pacefno.pde.kdv import KdV
from pacefno.pde.kuramoto_sivashinsky import KuramotoSivashinsky
from pacefno.pde.navier_stokes import NavierStokes, NavierStokesVelocity
from pacefno.pde.shallow_water import ShallowWater

__all__ = [
    "Burgers",
    "Equation",
    "KdV",
    "KuramotoSivashinsky",
    "Law",
    "NavierStokes",
    "NavierStokesVelocity",
    "ShallowWater",
    "SolverError",
    "solve",
]
