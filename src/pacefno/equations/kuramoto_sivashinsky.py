"""The Kuramoto-Sivashinsky equation: waves that grow, steepen and never settle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from pacefno.equations.base import Equation, convection, laplacian
from pacefno.equations.trajectory import TrajectoryProblem
from pacefno.symmetry import Galilean, LiePoint

PAPER = {"fno": (0.0010, 0.0002), "fno-aug": (0.0009, 0.0001), "pace-1": (0.0008, 0.0002), "pace-20": (0.0003, 0.0001)}


class KuramotoSivashinsky(Equation):
    """``u_t + u u_x + u_xx + u_xxxx = 0``: long waves grow, short ones decay, and there is no symmetry of scale."""

    name = "kuramoto_sivashinsky"
    dim = 1
    channels = ("u",)
    group = Galilean(1, "scalar")
    point_group = "z2"
    channel_representation = "sign"  # u -> -u under x -> -x
    cut = 2  # short waves are damped as k^4: aliasing stays below the error of a step, the 2/3 rule would waste a third

    def linear(self, kappa: Tensor) -> Tensor:
        k2 = laplacian(kappa)
        return -k2 - k2**2

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        return convection(kappa, shape)


def kuramoto_sivashinsky() -> TrajectoryProblem:
    """LPSDA's strengths ``1, 1.0, 0.4`` are: any window, shifts of +-1/2 period, velocities of +-0.4."""
    return TrajectoryProblem(
        name="kuramoto_sivashinsky",
        title="Kuramoto-Sivashinsky",
        equation=KuramotoSivashinsky(),
        symmetry=LiePoint(scaling=False),
        length=64.0,
        end_time=100.0,
        solved=500,
        train_range=(0.5, 0.4),
        ood_low=(0.0, 0.4),
        ood_high=(0.5, 1.2),
        file_name=("KS", ""),
        solver_points=160,  # 79 modes, the last of them at 1e-10 of the first
        substeps=80,
        paper=PAPER,
    )
