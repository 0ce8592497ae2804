"""Our batched ETDRK4 stepper beside SciPy's implicit Radau (as LPSDA uses it), at the same accuracy
or a better one.

On 1-D Burgers both solve the same pseudospectral, dealiased system from the same states. For each
accuracy the cheapest setting of each that reaches it is reported, so the ratio compares equal
answers. On KdV and Kuramoto-Sivashinsky each makes whole trajectories of the benchmark: Radau
exactly as LPSDA calls it, ours as `pacefno data generate` does. Run: ``python
benchmarks/solvers.py``.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from pacefno.data.recipe import PairRecipe, TrajectoryRecipe
from pacefno.grid import band_limit
from pacefno.paper.benchmarks import benchmark_named
from pacefno.pde import solve
from pacefno.pde.integrator import dealias_mask

POINTS, HORIZON, BATCH, IMPLICIT_SAMPLES, REPEATS = 128, 0.5, 16, 2, 3
ACCURACIES = (1e-3, 1e-5, 1e-7)
STEPS = (32, 64, 128, 256, 512)
TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
RECIPE = benchmark_named("burgers1d_smooth").recipe
assert isinstance(RECIPE, PairRecipe)
NU = RECIPE.equation.parameters["nu"]
TRAJECTORY_BATCH, TRAJECTORY_SAMPLES, TRAJECTORY_REPEATS, LPSDA_TOLERANCE = 32, 2, 2, 1e-9


def states() -> Tensor:
    """Initial states of the benchmark, in the modes that this small grid keeps."""
    drawn = [RECIPE.initial_state(0, "benchmark", i)[0] for i in range(BATCH)]
    stride = RECIPE.grid[0] // POINTS
    return band_limit(torch.stack(drawn), 1, POINTS // 8)[..., ::stride]


def ours(initial: Tensor, steps: int) -> Tensor:
    return solve(RECIPE.equation, initial, [HORIZON], HORIZON / steps)[:, 0, 0]


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
        solve_ivp(
            terms,
            (0, HORIZON),
            u[0].numpy(),
            method="Radau",
            rtol=tolerance,
            atol=tolerance,
            t_eval=[HORIZON],
        ).y[:, -1]
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


def burgers() -> None:
    initial = states()
    few = initial[:IMPLICIT_SAMPLES]
    truth = ours(initial, 8192)
    our_errors = {float(steps): error(ours(initial, steps), truth) for steps in STEPS}
    radau_errors = {
        tolerance: error(radau(few, tolerance), truth[:IMPLICIT_SAMPLES])
        for tolerance in TOLERANCES
    }

    print(
        f"1-D Burgers, nu {NU}, {POINTS} points, time {HORIZON}; {BATCH} trajectories in a batch "
        "(ETDRK4), one by one (Radau)"
    )
    print(f"one thread, float64, best of {REPEATS}; errors against ETDRK4 with 8192 steps\n")
    ours_titles = f"{'accuracy':>9} {'ETDRK4 steps':>13} {'error':>8} {'ms each':>8}"
    titles = f"{ours_titles}   {'Radau tol':>9} {'error':>8} {'ms each':>9}"
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
            f"{tolerance:9.0e} {radau_errors[tolerance]:8.1e} {1e3 * slow:9.1f}   "
            f"{slow / fast:6.0f}x"
        )


# --- whole trajectories


def lpsda_terms(
    recipe: TrajectoryRecipe, length: float
) -> Callable[[float, np.ndarray], np.ndarray]:
    """``-u u_x`` and the linear terms on the points of the benchmark, nothing dealiased."""
    n = recipe.points
    kappa = 2 * math.pi * np.fft.rfftfreq(n, 1 / n) / length
    slope = 1j * np.where(np.arange(len(kappa)) == n / 2, 0, kappa)
    symbol = recipe.equation.linear(torch.from_numpy(kappa)[None]).numpy()

    def terms(_: float, u: np.ndarray) -> np.ndarray:
        spectrum = np.fft.rfft(u)
        return np.fft.irfft(symbol * spectrum, n=n) - u * np.fft.irfft(slope * spectrum, n=n)

    return terms


def radau_trajectories(recipe: TrajectoryRecipe, count: int) -> Tensor:
    """The first test trajectories, ``(count, frames, points)``, one by one; some are much easier
    than others.
    """
    on_points = dataclasses.replace(recipe, solver_points=recipe.points)
    solutions = []
    states, box = on_points.initial(0, "test", range(count))
    for state, length, step in zip(states, box.lengths[:, 0], box.step, strict=True):
        terms, times = lpsda_terms(recipe, float(length)), float(step) * np.arange(recipe.solved)
        solution = solve_ivp(
            terms,
            (0, times[-1]),
            state[0].numpy(),
            method="Radau",
            t_eval=times,
            rtol=LPSDA_TOLERANCE,
            atol=LPSDA_TOLERANCE,
        )
        solutions.append(torch.from_numpy(solution.y.T[-recipe.kept :]))
    return torch.stack(solutions)


def our_trajectories(recipe: TrajectoryRecipe, count: int) -> Tensor:
    return recipe.solve(*recipe.initial(0, "test", range(count)))


def timed(run: Callable[[], Tensor]) -> tuple[float, Tensor]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def compare_trajectories(recipe: TrajectoryRecipe) -> None:
    """The worst frame of all against twice the modes and half the steps; each of ours takes its
    turns with Radau.
    """
    fine = dataclasses.replace(
        recipe, solver_points=2 * recipe.solver_points, substeps=2 * recipe.substeps
    )
    truth = our_trajectories(fine, TRAJECTORY_SAMPLES).flatten(0, 1)
    settings = [dataclasses.replace(recipe, substeps=recipe.substeps // part) for part in (4, 2, 1)]
    fast, slow, errors = [math.inf] * len(settings), math.inf, [math.inf] * len(settings)
    for _ in range(TRAJECTORY_REPEATS):
        for i, setting in enumerate(settings):
            seconds, batch = timed(partial(our_trajectories, setting, TRAJECTORY_BATCH))
            fast[i] = min(fast[i], seconds / TRAJECTORY_BATCH)
            errors[i] = error(batch[:TRAJECTORY_SAMPLES].flatten(0, 1), truth)
        seconds, implicit = timed(partial(radau_trajectories, recipe, TRAJECTORY_SAMPLES))
        slow = min(slow, seconds / TRAJECTORY_SAMPLES)
    radau_error = error(implicit.flatten(0, 1), truth)
    for i, setting in enumerate(settings):
        print(
            f"{recipe.name:>21} {setting.substeps:9d} {errors[i]:8.1e} {1e3 * fast[i]:8.1f}   "
            f"{radau_error:8.1e} {1e3 * slow:8.0f}   {slow / fast[i]:6.0f}x",
            flush=True,
        )


def trajectories() -> None:
    print(
        f"\nWhole trajectories: {TRAJECTORY_BATCH} in a batch (ETDRK4), {TRAJECTORY_SAMPLES} one "
        "by one (Radau at 1e-9)"
    )
    print(
        f"one thread, float64, by turns, best of {TRAJECTORY_REPEATS}; errors of the worst frame "
        f"of {TRAJECTORY_SAMPLES}\n"
    )
    print(
        f"{'benchmark':>21} {'substeps':>9} {'error':>8} {'ms each':>8}   {'Radau':>8} "
        f"{'ms each':>8}   {'ratio':>7}"
    )
    for name in ("kdv", "kuramoto_sivashinsky"):
        recipe = benchmark_named(name).recipe
        assert isinstance(recipe, TrajectoryRecipe)
        compare_trajectories(recipe)


def main() -> None:
    torch.set_num_threads(1)
    burgers()
    trajectories()


if __name__ == "__main__":
    main()
