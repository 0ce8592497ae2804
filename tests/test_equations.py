"""The solver against theory: order of accuracy, exact solutions, conservation, and its symmetries by direct solving."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pacefno.equations import PROBLEMS, Equation, Problem, SolverError, integrator, problem_named, solve
from pacefno.equations.base import angular_wavenumbers
from pacefno.equations.burgers import Burgers
from pacefno.equations.integrator import ETDRK4, dealias_mask, etdrk4
from pacefno.equations.navier_stokes import NavierStokes
from pacefno.equations.random_fields import compact_vorticity, gaussian_field, generator_for, scale_to_rms
from pacefno.equations.shallow_water import ShallowWater
from pacefno.grid import FieldError, band_limit, from_spectrum, points, spectral_weights, to_spectrum, wavenumbers

TWO_PI = 2 * math.pi
over_problems = pytest.mark.parametrize("name", list(PROBLEMS))
over_exact = pytest.mark.parametrize("name", [name for name, problem in PROBLEMS.items() if problem.exact_group])
STEPPING = {"navier_stokes_literal": 0.8}  # a slower flow needs a longer time before its errors rise above round-off


def small_states(problem: Problem, n: int = 32, top: int = 4, batch: int = 2) -> Tensor:
    """The problem's own random states in their lowest modes on a small grid."""
    draws = [problem.draw(generator_for("small", i), (n,) * problem.dim) for i in range(batch)]
    return band_limit(torch.stack(draws), problem.dim, top)


def last(equation: Equation, initial: Tensor, time: float, steps: int) -> Tensor:
    return solve(equation, initial, [time], time / steps)[:, 0]


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


# --- order of accuracy


def rates(equation: Equation, initial: Tensor, time: float) -> list[float]:
    """Observed orders between 16, 32 and 64 steps, against 512."""
    truth = last(equation, initial, time, 512)
    errors = [relative(last(equation, initial, time, steps), truth) for steps in (16, 32, 64)]
    return [math.log2(a / b) for a, b in itertools.pairwise(errors)]


@over_problems
def test_the_time_stepper_is_of_fourth_order(name: str) -> None:
    problem = PROBLEMS[name]
    for rate in rates(problem.equation, small_states(problem), STEPPING.get(name, 0.2)):
        assert abs(rate - 4) < 0.2


def exponential_euler(symbol: Tensor, step: float) -> ETDRK4:
    """A broken scheme: the weight of the first stage is that of all stages, so only first order is left."""
    scheme = etdrk4(symbol, step)
    zero = torch.zeros_like(scheme.first)
    total = scheme.first + 2 * scheme.middle + scheme.last
    return dataclasses.replace(scheme, first=total, middle=zero, last=zero)


def swapped(symbol: Tensor, step: float) -> ETDRK4:
    """A subtly broken one: two weights exchanged, still consistent for stiff modes."""
    scheme = etdrk4(symbol, step)
    return dataclasses.replace(scheme, first=scheme.last, last=scheme.first)


@pytest.mark.parametrize("scheme", [exponential_euler, swapped])
def test_the_order_test_fails_for_a_broken_scheme(
    scheme: Callable[[Tensor, float], ETDRK4], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = PROBLEMS["burgers1d_smooth"]
    truth = last(problem.equation, small_states(problem), 0.2, 512)
    monkeypatch.setattr(integrator, "etdrk4", scheme)
    errors = [relative(last(problem.equation, small_states(problem), 0.2, steps), truth) for steps in (16, 32, 64)]
    assert all(abs(math.log2(a / b) - 4) > 0.2 for a, b in itertools.pairwise(errors))


@pytest.mark.parametrize("z", [0.0, -1e-9, -1e-4, -0.03, -1.0, -20.0, -3e3, 2j, -1 + 5j])
def test_the_coefficients_are_the_phi_functions_without_cancellation(z: complex) -> None:
    """By Taylor series near zero and by their formulas away from it."""
    step = 0.5
    symbol = torch.tensor([z / step], dtype=torch.complex128 if isinstance(z, complex) else torch.float64)
    if abs(z) <= 1:
        phi1, phi2, phi3 = (sum(z**j / math.factorial(j + m) for j in range(25)) for m in (1, 2, 3))
    else:
        e = torch.exp(torch.tensor(z, dtype=torch.complex128)).item()
        phi1 = (e - 1) / z
        phi2 = (phi1 - 1) / z
        phi3 = (phi2 - 0.5) / z
    scheme = etdrk4(symbol, step)
    expected = [phi1 - 3 * phi2 + 4 * phi3, 2 * phi2 - 4 * phi3, 4 * phi3 - phi2]
    got = [scheme.first, 2 * scheme.middle, scheme.last]
    expected[1] *= 2  # the two middle stages share their weight
    for value, target in zip(got, expected, strict=True):
        assert abs(complex(value.item()) - step * target) < 1e-14


# --- exact solutions


def cole_hopf(s: Tensor, time: float, nu: float) -> Tensor:
    """``u = -2 nu psi_s / psi`` with ``psi = 2 + exp(-4 pi^2 nu t) cos(2 pi s)``, which solves the heat equation."""
    decay = math.exp(-TWO_PI * TWO_PI * nu * time)
    return 2 * nu * TWO_PI * decay * torch.sin(TWO_PI * s) / (2 + decay * torch.cos(TWO_PI * s))


@pytest.mark.parametrize("n", [64, 63])
def test_burgers_follows_cole_hopf(n: int, dtype: torch.dtype) -> None:
    nu, x = 0.05, points((n,), dtype=dtype)
    got = last(Burgers(1, nu), cole_hopf(x, 0.0, nu)[None], 0.5, 100)[0]
    exact = cole_hopf(x, 0.5, nu)
    assert got.dtype == dtype and relative(got, exact) < (1e-9 if dtype == torch.float64 else 1e-5)
    heat_only = cole_hopf(x, 0.0, nu) * math.exp(-TWO_PI * TWO_PI * nu * 0.5)
    assert relative(heat_only, exact) > 0.05  # the nonlinear term is seen


@pytest.mark.parametrize("shape", [(48, 48), (51, 48), (45, 51)])
def test_two_dimensional_burgers_follows_cole_hopf_along_the_diagonal(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """``u(x, y, t) = U(x + y, 2t)``: along (1, 1) derivatives and the Laplacian both double."""
    nu = 0.05
    x, y = points(shape, dtype=dtype)
    got = last(Burgers(2, nu), cole_hopf(x + y, 0.0, nu)[None, None], 0.2, 80)[0, 0]
    assert relative(got, cole_hopf(x + y, 0.4, nu)) < (1e-7 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("shape", [(32, 32), (33, 27)])
def test_taylor_green_vortices_only_decay(shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    x, y = points(shape, dtype=dtype)
    vorticity = (torch.sin(TWO_PI * x) * torch.sin(TWO_PI * y))[None, None]
    got = last(NavierStokes(0.01), vorticity, 1.0, 20)
    assert relative(got, vorticity * math.exp(-2 * TWO_PI**2 * 0.01)) < tolerance


@pytest.mark.parametrize("shape", [(32, 32), (33, 27)])
def test_the_navier_stokes_term_is_the_advection_of_vorticity(
    shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    """``-(u . grad) w`` with ``Lap psi = -w``, ``u = (psi_y, -psi_x)``, by separate derivatives of a random field."""
    white = torch.randn(3, 1, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w = to_spectrum(band_limit(white, 2, 6), 2)
    kx, ky = TWO_PI * wavenumbers(shape)
    k2 = (kx**2 + ky**2).clamp_min(1.0)
    psi = w / k2
    psi[..., 0, 0] = 0
    ux, uy, wx, wy = (from_spectrum(1j * a, shape) for a in (ky * psi, -kx * psi, kx * w, ky * w))
    direct = to_spectrum(-(ux * wx + uy * wy), 2)
    kappa = angular_wavenumbers(shape, dtype, "cpu")
    got = NavierStokes(1.0).nonlinear(kappa, shape)(w.to(torch.complex64 if dtype == torch.float32 else torch.complex128))
    assert relative(got, direct) < tolerance and float(direct.abs().max()) > 1e-3


def gravity_wave_error(amplitude: float) -> float:
    """A wave along (1, 2) on water of depth 1.3: ``omega = sqrt(gH) |kappa|``, damped by ``nu |kappa|^2``; absolute error."""
    shape, depth, g, nu, time = (32, 30), 1.3, 2.0, 5e-3, 0.3
    x, y = points(shape)
    length = math.sqrt(5.0)
    speed = math.sqrt(g * depth)

    def wave(t: float) -> Tensor:
        decay = math.exp(-nu * (TWO_PI * length) ** 2 * t)
        crest = amplitude * decay * torch.cos(TWO_PI * (x + 2 * y) - speed * TWO_PI * length * t)
        return torch.stack([depth + crest, speed * crest / length, 2 * speed * crest / length])[None]

    return float((last(ShallowWater(nu, g), wave(0.0), time, 100) - wave(time)).abs().max())


def test_small_gravity_waves_follow_the_damped_dispersion_relation() -> None:
    errors = [gravity_wave_error(a) for a in (4e-4, 2e-4, 1e-4)]
    assert errors[-1] < 1e-3 * 1e-4
    for a, b in itertools.pairwise(errors):
        assert abs(math.log2(a / b) - 2) < 0.1  # what is left is the nonlinearity, of second order in the amplitude


def test_still_water_and_uniform_flow_stay_as_they_are(dtype: torch.dtype, tolerance: float) -> None:
    still = torch.tensor([1.2, 0.3, -0.2], dtype=dtype).reshape(1, 3, 1, 1).expand(1, 3, 16, 18)
    assert float((last(ShallowWater(1e-3, 1.0), still, 0.5, 20) - still).abs().max()) < tolerance


# --- conservation


@over_problems
def test_means_are_conserved(name: str, dtype: torch.dtype, tolerance: float) -> None:
    """Mean u (Burgers), mass and momentum (shallow water), mean vorticity: all written in conservation form."""
    problem = PROBLEMS[name]
    initial = small_states(problem).to(dtype) + 0.05
    final = last(problem.equation, initial, 0.2, 100)
    assert float((final.flatten(2).mean(2) - initial.flatten(2).mean(2)).abs().max()) < tolerance
    assert relative(final, initial) > 0.01


def invariants(vorticity: Tensor) -> tuple[Tensor, Tensor]:
    """Energy and enstrophy, ``(B,)`` each."""
    shape = tuple(vorticity.shape[2:])
    power = to_spectrum(vorticity, 2).abs() ** 2 * spectral_weights(shape, dtype=vorticity.dtype)
    k2 = (TWO_PI * wavenumbers(shape)).square().sum(dim=0).clamp_min(1.0)
    return 0.5 * (power / k2).flatten(1).sum(1), 0.5 * power.flatten(1).sum(1)


def inviscid_drift(steps: int) -> float:
    initial = small_states(PROBLEMS["navier_stokes_literal"])
    final = last(NavierStokes(0.0), initial, 1.0, steps)
    assert relative(final, initial) > 0.3  # it moved a lot
    pairs = zip(invariants(final), invariants(initial), strict=True)
    return max(float((a / b - 1).abs().max()) for a, b in pairs)


def test_energy_and_enstrophy_drift_with_the_time_step_alone_without_viscosity() -> None:
    coarse, fine = inviscid_drift(32), inviscid_drift(64)
    assert fine < 1e-6 and coarse / fine > 12  # the drift belongs to the stepper: it vanishes at fourth order or faster


def test_viscosity_removes_energy_at_the_known_rate() -> None:
    """``dE/dt = -2 nu Z`` over a short time."""
    initial, nu, time = small_states(PROBLEMS["navier_stokes_literal"]), 1e-2, 1e-3
    energy, enstrophy = invariants(initial)
    loss = energy - invariants(last(NavierStokes(nu), initial, time, 4))[0]
    torch.testing.assert_close(loss, 2 * nu * enstrophy * time, rtol=0.02, atol=0)


def test_no_content_appears_above_the_two_thirds_cut() -> None:
    for shape in [(30, 32), (33, 24)]:
        white = torch.randn(1, 1, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        states = to_spectrum(solve(Burgers(2, 1e-2), 0.1 * white, [0.0, 0.1], 0.01), 2)
        k = wavenumbers(shape).abs()
        high = (k[0] >= shape[0] / 3) | (k[1] >= shape[1] / 3)
        assert float(states[..., high].abs().max()) < 1e-15 and torch.equal(dealias_mask(shape), ~high)


# --- symmetry by direct solving


def symmetry_defect(problem: Problem, initial: Tensor, xi: Tensor, time: float, steps: int, transport: float = 1.0) -> float:
    """``S_T(g u) - (Gamma_T g) S_T(u)``, relative; ``transport`` scales the time in the terminal frame."""
    moved = last(problem.equation, problem.group.act(initial, xi), time, steps)
    carried = problem.group.act(last(problem.equation, initial, time, steps), problem.group.transport(xi, transport * time))
    return relative(moved, carried)


def far_elements(problem: Problem, batch: int) -> Tensor:
    return problem.group.sample(problem.ood_low, problem.ood_high, batch, torch.Generator().manual_seed(1))


@over_exact
def test_solving_a_moved_state_is_moving_the_solution(name: str) -> None:
    problem = PROBLEMS[name]
    initial, xi, time = small_states(problem, n=48, top=3), far_elements(problem, 2), 0.1
    assert symmetry_defect(problem, initial, xi, time, 240) < 1e-8
    assert symmetry_defect(problem, initial, xi * (torch.arange(problem.group.size) < problem.dim), time, 120) < 1e-8
    boost = xi * (torch.arange(problem.group.size) >= problem.dim)
    assert symmetry_defect(problem, initial, boost, time, 240) < 1e-8


@over_exact
@pytest.mark.parametrize("transport", [-1.0, 0.0, 0.5], ids=["opposite sign", "no transport", "half the time"])
def test_a_wrong_terminal_frame_fails_by_a_lot(name: str, transport: float) -> None:
    """The opposite sign is what the text of the paper's appendix says; the table is right."""
    problem = PROBLEMS[name]
    assert symmetry_defect(problem, small_states(problem, n=48, top=3), far_elements(problem, 2), 0.1, 50, transport) > 0.01


def test_viscosity_on_the_momentum_alone_would_break_the_boost() -> None:
    class MomentumOnly(ShallowWater):
        def linear(self, kappa: Tensor) -> Tensor:
            return super().linear(kappa) * torch.tensor([0.0, 1.0, 1.0], dtype=kappa.dtype)[:, None, None]

    problem = dataclasses.replace(PROBLEMS["shallow_water"], equation=MomentumOnly(0.02, 1.0))
    assert symmetry_defect(problem, small_states(problem, top=3), far_elements(problem, 2), 0.1, 100) > 1e-4


@pytest.mark.slow
@over_exact
def test_the_symmetry_holds_at_the_size_of_the_benchmark(name: str) -> None:
    """At the published grid and horizon; half the published step, which is chosen for states without a boost."""
    problem = PROBLEMS[name]
    initial = torch.stack([problem.initial_state(5, "check", i)[0] for i in range(2)])
    steps = round(2 * problem.horizon / problem.step)
    assert symmetry_defect(problem, initial, far_elements(problem, 2), problem.horizon, steps) < 5e-5


@pytest.mark.parametrize("name", ["navier_stokes", "navier_stokes_literal"])
def test_translations_and_quarter_turns_commute_with_the_flow(name: str) -> None:
    problem = PROBLEMS[name]
    initial = small_states(problem, top=8, batch=4)
    xi = far_elements(problem, 4)
    xi[:, 2] = torch.arange(4, dtype=torch.float64) * math.pi / 2
    assert symmetry_defect(problem, initial, xi, 0.3, 30) < 1e-10


def test_a_generic_rotation_of_a_periodic_field_does_not_commute_with_the_flow() -> None:
    problem = PROBLEMS["navier_stokes_literal"]
    xi = torch.tensor([[0.0, 0.0, 0.6]], dtype=torch.float64).expand(4, 3)
    assert 0.05 < symmetry_defect(problem, small_states(problem, n=48, batch=4), xi, 2.0, 60) < 1


@pytest.mark.slow
def test_rigid_motions_nearly_commute_with_compact_flows_that_are_truly_nonlinear() -> None:
    """The published defect, at the last frame: at most 2 %, while frame 10 says little about frame 30."""
    problem = PROBLEMS["navier_stokes"]
    initial = torch.stack([problem.initial_state(5, "check", i)[0] for i in range(3)])
    xi = far_elements(problem, 3)
    early, late = problem.solve(initial)
    _, moved = problem.solve(problem.group.act(initial, xi))
    carried = problem.group.act(late, xi)

    def at_the_end(a: Tensor, b: Tensor) -> float:
        return float(((a - b)[:, -1].flatten(1).norm(dim=1) / b[:, -1].flatten(1).norm(dim=1)).mean())

    assert 1e-3 < at_the_end(moved, carried) < 0.02
    assert at_the_end(early[:, -1:], late[:, -1:]) > 0.8


# --- precision and errors


@over_problems
def test_single_precision_agrees_with_double(name: str) -> None:
    problem = PROBLEMS[name]
    initial = small_states(problem)
    single = last(problem.equation, initial.float(), 0.2, 100)
    assert single.dtype == torch.float32
    assert 1e-9 < relative(single.double(), last(problem.equation, initial, 0.2, 100)) < 1e-4


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_states_are_solved_in_single_and_returned_as_they_came(half: torch.dtype) -> None:
    initial = small_states(PROBLEMS["burgers1d_smooth"], n=256).to(half)
    got = last(Burgers(1, 1e-2), initial, 0.1, 50)
    assert got.dtype == half
    assert relative(got.float(), last(Burgers(1, 1e-2), initial.float(), 0.1, 50)) < 4 * torch.finfo(half).eps


def test_a_batch_is_a_loop_and_times_are_reached_exactly() -> None:
    problem = PROBLEMS["shallow_water"]
    initial = small_states(problem, batch=3)
    times = [0.0, 0.03, 0.03, 0.1]
    states = solve(problem.equation, initial, times, 0.007)
    assert states.shape == (3, 4, 3, 32, 32)
    torch.testing.assert_close(states[:, 0], initial, atol=1e-14, rtol=0)
    assert torch.equal(states[:, 1], states[:, 2])
    for i in range(3):
        torch.testing.assert_close(solve(problem.equation, initial[i : i + 1], times, 0.007)[0], states[i], atol=1e-13, rtol=0)
    assert relative(states[:, 3], last(problem.equation, initial, 0.1, 200)) < 1e-5


def test_too_large_a_step_is_an_error_that_names_sample_time_and_step() -> None:
    initial = torch.stack([torch.zeros(1, 64), 50 * torch.randn(1, 64, generator=torch.Generator().manual_seed(0))])
    with pytest.raises(SolverError, match=r"burgers1d: sample 1 .* time 2 \(1 of 2 samples; step size 0\.5\): reduce the step"):
        solve(Burgers(1, 1e-4), initial, [2.0], 0.5)


@pytest.mark.parametrize("times", [[0.1], [0.0, 0.1]])
def test_water_without_height_is_an_error_before_the_first_step(times: list[float]) -> None:
    state = torch.ones(3, 3, 16, 16)
    state[2, 0] = 1 + 1.5 * torch.cos(TWO_PI * points((16, 16), dtype=torch.float32)[0])
    with pytest.raises(SolverError, match=r"shallow_water: sample 2 .* time 0 \(1 of 3 samples; step size 0\.01\)"):
        solve(ShallowWater(1e-3, 1.0), state, times, 0.01)


def test_a_state_that_is_not_finite_is_an_error() -> None:
    state = torch.zeros(2, 1, 16)
    state[1, 0, 3] = math.nan
    with pytest.raises(SolverError, match="sample 1"):
        solve(Burgers(1, 1e-2), state, [0.1], 0.01)


@pytest.mark.parametrize("step", [0.0, -0.01, math.nan, math.inf])
def test_a_step_that_is_none_is_refused(step: float) -> None:
    with pytest.raises(ValueError, match="positive step size"):
        solve(Burgers(1, 1e-2), torch.zeros(1, 1, 16), [0.1], step)


@pytest.mark.parametrize("times", [[], [0.2, 0.1], [-0.1], [0.1, math.nan]])
def test_times_that_do_not_increase_are_refused(times: list[float]) -> None:
    with pytest.raises(ValueError, match="increasing times"):
        solve(Burgers(1, 1e-2), torch.zeros(1, 1, 16), times, 0.01)


@pytest.mark.parametrize("shape", [(1, 16, 16), (1, 2, 16, 16), (1, 1, 16), (1, 1, 16, 16, 16)])
def test_a_state_of_another_shape_is_refused_instead_of_broadcast(shape: tuple[int, ...]) -> None:
    with pytest.raises(FieldError, match=r"navier_stokes: expected \(B, 1, N, M\)"):
        solve(NavierStokes(1e-3), torch.zeros(shape), [0.1], 0.01)


def test_an_unknown_problem_is_named_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"unknown problem 'burgers3d': expected one of burgers1d, "):
        problem_named("burgers3d")
    assert problem_named("burgers2d") is PROBLEMS["burgers2d"]


# --- initial states


@over_problems
def test_a_sample_depends_on_its_key_alone(name: str) -> None:
    problem = PROBLEMS[name]
    state, redrawn = problem.initial_state(42, "train", 3)
    torch.randn(7)  # the global generator is not used
    problem.initial_state(42, "train", 2)
    again, _ = problem.initial_state(42, "train", 3)
    assert torch.equal(state, again) and redrawn >= 0
    assert state.shape == (len(problem.equation.channels), *problem.grid) and state.dtype == torch.float64
    for other in [(43, "train", 3), (42, "test", 3), (42, "train", 4)]:
        assert relative(problem.initial_state(*other)[0], state) > 0.01


@over_problems
def test_initial_states_lie_on_the_slice_and_carry_a_frame(name: str) -> None:
    problem = PROBLEMS[name]
    states = torch.stack([problem.initial_state(1, "train", i)[0] for i in range(3)])
    assert float(problem.slice.coordinates(states).abs().max()) < 1e-12
    assert bool((problem.slice.quality(states) >= 0.9 * problem.slice.threshold).all())
    stationary = torch.stack([problem.initial_state(1, "train", i, stationary=True)[0] for i in range(3)])
    assert float(problem.slice.coordinates(stationary).abs().max()) > 1e-3


@over_problems
def test_initial_states_are_resolved_by_the_id_grid(name: str) -> None:
    """Nothing above a third of the ID grid, so that every k-th point loses nothing; a window leaves a trace."""
    problem = PROBLEMS[name]
    state = problem.initial_state(1, "train", 0)[0]
    power = to_spectrum(state, problem.dim).abs() ** 2
    k = wavenumbers(problem.grid).abs().amax(dim=0)
    compact = name == "navier_stokes"
    assert float(power[..., k > problem.id_grid[0] / 3].sum() / power.sum()) < (1e-3 if compact else 1e-28)
    assert float(power[..., k >= problem.id_grid[0] / 2].sum() / power.sum()) < (1e-6 if compact else 1e-28)


def test_a_problem_whose_draws_carry_no_frame_says_so() -> None:
    flat = dataclasses.replace(PROBLEMS["burgers1d"], draw=lambda generator, grid: torch.ones(1, *grid, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="draws in a row carry no frame"):
        flat.initial_state(0, "train", 0)


@over_problems
def test_the_description_of_a_problem_is_consistent(name: str) -> None:
    problem = PROBLEMS[name]
    group = problem.group
    assert problem.name == name and len(problem.grid) == problem.dim == group.dim
    assert len(problem.train_range) == len(problem.ood_low) == len(problem.ood_high) == group.size
    shell = zip(problem.train_range, problem.ood_low, problem.ood_high, strict=True)
    assert all(0 <= seen <= low < high for seen, low, high in shell)  # the OOD shell lies outside the training range
    assert all(n == m * problem.coarsening for n, m in zip(problem.grid, problem.id_grid, strict=True))
    assert problem.times[0] == 0 and len(problem.times) == problem.frames_in + problem.frames_out
    assert all(math.isfinite(value) for value in problem.equation.parameters.values())


@over_problems
def test_a_solve_returns_frames_as_channels_and_takes_as_many_steps_as_promised(name: str) -> None:
    problem = dataclasses.replace(PROBLEMS[name], grid=(16,) * PROBLEMS[name].dim)
    initial, steps = 0.1 * small_states(problem, n=16, top=2), []
    if "h" in problem.equation.channels:
        initial[:, 0] = 1
    inputs, targets = problem.solve(initial, lambda: steps.append(1))
    assert inputs.shape == (2, problem.in_channels, *problem.grid) and targets.shape == (2, problem.out_channels, *problem.grid)
    assert len(steps) == problem.solver_steps
    torch.testing.assert_close(inputs[:, : initial.shape[1]], initial, atol=1e-14, rtol=0)
    assert problem.frames_in > 1 or problem.horizon == problem.times[-1]


# --- random fields


def test_a_draw_does_not_depend_on_the_grid() -> None:
    coarse, fine = (gaussian_field((n, n), generator_for("key"), tau=5.0, gamma=3.0, cutoff=10) for n in (32, 96))
    torch.testing.assert_close(fine[::3, ::3], coarse, atol=1e-14, rtol=0)
    assert abs(float(fine.mean())) < 1e-16


@pytest.mark.parametrize("dim", [1, 2])
def test_the_spectrum_of_a_gaussian_field_is_the_stated_one(dim: int) -> None:
    sigma, tau, gamma, shape = 3.0, 4.0, 2.0, (9,) * dim
    fields = torch.stack(
        [gaussian_field(shape, generator_for(i), tau=tau, gamma=gamma, sigma=sigma, cutoff=4) for i in range(3000)]
    )
    power = (to_spectrum(fields, dim).abs() ** 2).mean(dim=0)
    k2 = TWO_PI**2 * wavenumbers(shape).square().sum(dim=0)
    expected = sigma**2 * (k2 + tau**2) ** -gamma
    expected[(0,) * dim] = 0
    torch.testing.assert_close(power, expected, rtol=0.15, atol=1e-20)


def test_scaling_and_windowing_give_the_stated_strength() -> None:
    field = gaussian_field((64, 64), generator_for("x"), tau=7.0, gamma=2.5, cutoff=15)
    assert float(scale_to_rms(field, 0.4).square().mean().sqrt()) == pytest.approx(0.4)
    vortex = compact_vorticity(field, radius=0.14, rms=3.0)
    assert abs(float(vortex.mean())) < 1e-15
    r = (points((64, 64)) - 0.5).square().sum(dim=0).sqrt()
    assert float(vortex[r > 0.35].abs().max()) < 1e-12
    window = torch.exp(-((r / 0.14) ** 4))
    assert float(vortex.square().sum() / window.square().sum()) == pytest.approx(9.0)
