"""The Korteweg-de Vries equation: solitons, and a symmetry of scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from pacefno.equations.base import Equation, convection, derivative
from pacefno.equations.trajectory import TrajectoryProblem
from pacefno.symmetry import Galilean, LiePoint

PAPER = {"fno": (0.0130, 0.0026), "fno-aug": (0.0053, 0.0012), "pace-1": (0.0047, 0.0001), "pace-20": (0.0061, 0.0009)}


class KdV(Equation):
    """``u_t + u u_x + u_xxx = 0``; on a domain of its own length, a solution scales as ``e^-2s u(e^s x, e^3s t)``."""

    name = "kdv"
    dim = 1
    channels = ("u",)
    group = Galilean(1, "scalar")
    point_group = "trivial"  # a reflection of x turns the sign of u_xxx, whatever u does
    channel_representation = "scalar"

    def linear(self, kappa: Tensor) -> Tensor:
        return -(derivative(kappa)[0] ** 3)

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        return convection(kappa, shape)


def kdv() -> TrajectoryProblem:
    """LPSDA's default set: 100 predicted frames span 40 time units, twice what the paper says of its own."""
    return _problem("kdv", "KdV", end_time=100.0, substeps=40, suffix="", paper={})


def kdv_easy() -> TrajectoryProblem:
    """LPSDA's easy set: 100 predicted frames span 20 time units, as in the paper's table."""
    return _problem("kdv_easy", "KdV, half as long", end_time=50.0, substeps=20, suffix="easy", paper=PAPER)


def _problem(
    name: str, title: str, *, end_time: float, substeps: int, suffix: str, paper: dict[str, tuple[float, float]]
) -> TrajectoryProblem:
    """LPSDA's strengths ``1, 1.0, 0.4, 0.1`` are: any window, shifts of +-1/2 period, velocities of +-0.4, scales of +-0.05."""
    return TrajectoryProblem(
        name=name,
        title=title,
        equation=KdV(),
        symmetry=LiePoint(scaling=True),
        length=128.0,
        end_time=end_time,
        solved=250,
        train_range=(0.5, 0.4, 0.05),
        ood_low=(0.0, 0.4, 0.05),  # no shift is out of distribution: the augmentation covers the circle
        ood_high=(0.5, 1.2, 0.15),
        file_name=("KdV", suffix),
        solver_points=384,  # the 2/3 rule keeps the 127 modes that 256 points show; without it finer grids can blow up
        substeps=substeps,
        paper=paper,
    )
