"""Our batched ETDRK4 stepper beside SciPy's implicit Radau (as LPSDA uses it) on 1-D Burgers, at the same accuracy.

Both solve the same pseudospectral, dealiased system from the same states. For each accuracy the cheapest setting of each
that reaches it is reported, so the ratio compares equal answers. Run: ``python benchmarks/solvers.py``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from pacefno.equations import PROBLEMS, solve
from pacefno.equations.integrator import dealias_mask
from pacefno.grid import band_limit

POINTS, HORIZON, BATCH, IMPLICIT_SAMPLES, REPEATS = 128, 0.5, 16, 2, 3
ACCURACIES = (1e-3, 1e-5, 1e-7)
STEPS = (32, 64, 128, 256, 512)
TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
PROBLEM = PROBLEMS["burgers1d_smooth"]
NU = PROBLEM.equation.parameters["nu"]


def states() -> Tensor:
    """Initial states of the benchmark, in the modes that this small grid keeps."""
    problem_states = [PROBLEM.initial_state(0, "benchmark", i)[0] for i in range(BATCH)]
    stride = PROBLEM.grid[0] // POINTS
    return band_limit(torch.stack(problem_states), 1, POINTS // 8)[..., ::stride]


def ours(initial: Tensor, steps: int) -> Tensor:
    return solve(PROBLEM.equation, initial, [HORIZON], HORIZON / steps)[:, 0, 0]


def right_hand_side() -> Callable[[float, np.ndarray], np.ndarray]:
    """``-1/2 d_x(u^2) + nu d_xx u`` with the same 2/3 rule."""
    kappa = 2 * math.pi * np.fft.rfftfreq(POINTS, 1 / POINTS)
    mask = dealias_mask((POINTS,)).numpy()

    def terms(_: float, u: np.ndarray) -> np.ndarray:
        square = -0.5j * kappa * mask * np.fft.rfft(u * u)
        return np.fft.irfft(square - NU * kappa**2 * np.fft.rfft(u), n=POINTS)

    return terms


def radau(initial: Tensor, tolerance: float) -> Tensor:
    """One trajectory at a time: an implicit method has no batch."""
    terms = right_hand_side()
    finals = [
        solve_ivp(terms, (0, HORIZON), u[0].numpy(), method="Radau", rtol=tolerance, atol=tolerance, t_eval=[HORIZON]).y[:, -1]
        for u in initial
    ]
    return torch.from_numpy(np.stack(finals))


def seconds_each(run: Callable[[], Tensor], trajectories: int, repeats: int) -> float:
    """The best of several runs, per trajectory."""
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best / trajectories


def error(got: Tensor, truth: Tensor) -> float:
    """The worst relative L2 error of the batch."""
    return float(((got - truth).norm(dim=1) / truth.norm(dim=1)).max())


def cheapest(errors: dict[float, float], accuracy: float) -> float | None:
    """The first setting, from cheap to dear, that is accurate enough."""
    return next((setting for setting, value in errors.items() if value <= accuracy), None)


def main() -> None:
    torch.set_num_threads(1)
    initial = states()
    few = initial[:IMPLICIT_SAMPLES]
    truth = ours(initial, 8192)
    our_errors = {float(steps): error(ours(initial, steps), truth) for steps in STEPS}
    radau_errors = {tolerance: error(radau(few, tolerance), truth[:IMPLICIT_SAMPLES]) for tolerance in TOLERANCES}

    print(
        f"1-D Burgers, nu {NU}, {POINTS} points, time {HORIZON}; {BATCH} trajectories in a batch (ETDRK4), one by one (Radau)"
    )
    print(f"one thread, float64, best of {REPEATS}; errors against ETDRK4 with 8192 steps\n")
    titles = f"{'accuracy':>9} {'ETDRK4 steps':>13} {'error':>8} {'ms each':>8}   {'Radau tol':>9} {'error':>8} {'ms each':>9}"
    print(f"{titles}   {'ratio':>7}")
    for accuracy in ACCURACIES:
        steps, tolerance = cheapest(our_errors, accuracy), cheapest(radau_errors, accuracy)
        if steps is None or tolerance is None:
            print(f"{accuracy:9.0e}   not reached by {'ETDRK4' if steps is None else 'Radau'}")
            continue
        fast = seconds_each(partial(ours, initial, int(steps)), BATCH, REPEATS)
        slow = seconds_each(partial(radau, few, tolerance), IMPLICIT_SAMPLES, REPEATS)
        print(
            f"{accuracy:9.0e} {int(steps):13d} {our_errors[steps]:8.1e} {1e3 * fast:8.3f}   "
            f"{tolerance:9.0e} {radau_errors[tolerance]:8.1e} {1e3 * slow:9.1f}   {slow / fast:6.0f}x"
        )


if __name__ == "__main__":
    main()
