"""Which refinements are tried: the paper's optimiser over steps and rates, and Gauss-Newton over steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from pacefno.frames import AdamRefiner, GaussNewton

STEPS = (1, 5, 20, 50)
RATES = (0.005, 0.01, 0.05, 0.1)
NEWTON_STEPS = (1, 2, 4, 8)


@final
@dataclass(frozen=True)
class Setting:
    """One refinement; no steps at all is the one-shot prediction."""

    refiner: Literal["none", "adam", "gauss-newton"]
    steps: int = 0
    rate: float = 0.0
    weight_decay: float = 0.0

    def make(self) -> AdamRefiner | GaussNewton:
        if self.refiner == "adam":
            return AdamRefiner(self.steps, self.rate, self.weight_decay)
        return GaussNewton(self.steps)

    @property
    def title(self) -> str:
        if self.refiner == "none":
            return "one-shot"
        return f"{self.refiner} {self.steps}" + (f" at {self.rate:g}" if self.refiner == "adam" else "")


# Steps, rate and weight decay of the paper's table of test-time adaptation settings.
PAPER: dict[str, Setting] = {
    "burgers1d": Setting("adam", 20, 0.05),
    "burgers1d_smooth": Setting("adam", 20, 0.05),
    "burgers2d": Setting("adam", 50, 0.01),
    "shallow_water": Setting("adam", 80, 0.05, 1e-4),
    "navier_stokes": Setting("adam", 5, 0.05),
    "navier_stokes_literal": Setting("adam", 5, 0.05),
}


def settings_for(problem: str) -> list[Setting]:
    """One-shot, Gauss-Newton, Adam over steps and rates, and the paper's own setting."""
    grid = [Setting("adam", steps, rate) for rate in RATES for steps in STEPS]
    newton = [Setting("gauss-newton", steps) for steps in NEWTON_STEPS]
    paper = [PAPER[problem]] if problem in PAPER and PAPER[problem] not in grid else []
    return [Setting("none"), *newton, *grid, *paper]
