"""KdV and Kuramoto-Sivashinsky on domains of their own lengths, and their symmetries, by theory and by direct solving."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from pacefno.equations import PROBLEMS, TRAJECTORY_PROBLEMS, Equation, SolverError, TrajectoryProblem, benchmark_named, solve
from pacefno.equations.integrator import dealias_mask
from pacefno.equations.kdv import KdV
from pacefno.equations.kuramoto_sivashinsky import KuramotoSivashinsky
from pacefno.grid import FieldError, points, resample, to_spectrum
from pacefno.symmetry import LiePoint, Trajectories, window_starts

TWO_PI = 2 * math.pi
LENGTHS = torch.tensor([22.0, 30.0, 26.0], dtype=torch.float64)
SPACINGS = torch.tensor([0.2, 0.3, 0.25], dtype=torch.float64)
over_equations = pytest.mark.parametrize("equation", [KdV(), KuramotoSivashinsky()], ids=lambda e: e.name)
over_problems = pytest.mark.parametrize("name", list(TRAJECTORY_PROBLEMS))
over_points = pytest.mark.parametrize("n", [64, 65])


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


def smooth_states(n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Three states of a few long waves, ``(3, n)``."""
    x = points((n,))[0]
    rows = [torch.sin(TWO_PI * x) - 0.4 * torch.cos(2 * TWO_PI * x + k) + 0.2 * torch.sin(3 * TWO_PI * x) for k in range(3)]
    return torch.stack(rows).to(dtype)


def solved(
    equation: Equation, first: Tensor, length: Tensor, spacing: Tensor, frames: int = 5, substeps: int = 48
) -> Trajectories:
    """All frames from the given states on."""
    times = [float(j) for j in range(frames)]
    states = solve(equation, first[:, None], times, 1 / substeps, length=length, time_unit=spacing)
    return Trajectories(states[:, :, 0], length, spacing)


def short(name: str, frames: int = 6, solved_frames: int = 12) -> TrajectoryProblem:
    """A benchmark problem with its own spacing, but few frames."""
    problem = TRAJECTORY_PROBLEMS[name]
    end_time = problem.spacing * (solved_frames - 1)
    return dataclasses.replace(problem, end_time=end_time, solved=solved_frames, frames=frames)


# --- the solver


def soliton(x: Tensor, time: Tensor, speed: Tensor) -> Tensor:
    """``3 c sech^2(sqrt(c)/2 (x - c t))``, exact on the line."""
    return 3 * speed / torch.cosh(speed.sqrt() / 2 * (x - speed * time)) ** 2


def test_kdv_moves_solitons_at_their_own_speed_on_domains_of_their_own_length(dtype: torch.dtype) -> None:
    length, unit = torch.tensor([50.0, 60.0], dtype=dtype), torch.tensor([2.0, 1.0], dtype=dtype)
    speed = torch.tensor([[0.8], [1.0]], dtype=dtype)
    x = (points((160,), dtype=dtype) - 0.5) * length[:, None]
    got = solve(KdV(), soliton(x, torch.zeros(2, 1, dtype=dtype), speed)[:, None], [2.0], 0.01, length=length, time_unit=unit)
    exact = soliton(x, 2 * unit[:, None], speed)
    assert got.dtype == dtype
    assert relative(got[:, 0, 0], exact) < (1e-6 if dtype == torch.float64 else 3e-5)
    assert relative(soliton(x, torch.zeros(2, 1, dtype=dtype), speed), exact) > 0.5  # standing still is seen


def test_kuramoto_sivashinsky_grows_and_damps_small_waves_at_their_rates() -> None:
    """``exp((kappa^2 - kappa^4) t)`` for each mode, while the waves are too small to meet."""
    length, unit = torch.tensor([20.0, 40.0], dtype=torch.float64), torch.tensor([1.0, 2.0], dtype=torch.float64)
    first = 1e-9 * smooth_states(48)[:2]
    got = solve(KuramotoSivashinsky(), first[:, None], [1.5], 0.1, length=length, time_unit=unit)[:, 0, 0]
    kappa = TWO_PI * torch.arange(4) / length[:, None]
    expected = to_spectrum(first, 1)[:, :4] * torch.exp((kappa**2 - kappa**4) * 1.5 * unit[:, None])
    assert relative(to_spectrum(got, 1)[:, :4], expected) < 1e-7
    assert relative(to_spectrum(first, 1)[:, :4], expected) > 0.1


@over_equations
def test_the_time_stepper_stays_of_fourth_order_with_a_step_per_trajectory(equation: Equation) -> None:
    truth = solved(equation, smooth_states(48), LENGTHS, SPACINGS, 3, 128).u[:, -1]
    errors = [relative(solved(equation, smooth_states(48), LENGTHS, SPACINGS, 3, m).u[:, -1], truth) for m in (4, 8, 16)]
    assert all(abs(math.log2(a / b) - 4) < 0.6 for a, b in itertools.pairwise(errors))


@over_equations
def test_a_trajectory_does_not_depend_on_those_solved_with_it(equation: Equation) -> None:
    together = solved(equation, smooth_states(48), LENGTHS, SPACINGS, 3, 8).u
    for i in range(3):
        alone = solved(equation, smooth_states(48)[i : i + 1], LENGTHS[i : i + 1], SPACINGS[i : i + 1], 3, 8).u
        assert torch.equal(alone[0], together[i])
    swapped = solved(equation, smooth_states(48), LENGTHS.flip(0), SPACINGS.flip(0), 3, 8).u
    assert relative(swapped[0], together[0]) > 1e-3  # each one has its own length and step


@pytest.mark.parametrize("name", ["burgers1d", "burgers2d"])
def test_a_unit_length_and_a_unit_of_time_change_nothing(name: str, dtype: torch.dtype, tolerance: float) -> None:
    equation = PROBLEMS[name].equation
    grid = (24,) * equation.dim
    state = torch.stack([smooth_states(24)[i].expand(grid) for i in range(2)])[:, None].to(dtype)
    plain = solve(equation, state, [0.05, 0.1], 0.01)
    one = torch.ones(2, dtype=dtype)
    assert relative(solve(equation, state, [0.05, 0.1], 0.01, length=one, time_unit=one), plain) < tolerance
    assert relative(solve(equation, state, [0.05, 0.1], 0.01, length=2 * one, time_unit=one), plain) > 1e-3


@pytest.mark.parametrize("bad", [torch.ones(2), torch.tensor([1.0, 0.0, 1.0]), torch.tensor([1.0, math.nan, 1.0])])
def test_a_length_or_unit_that_cannot_be_is_refused(bad: Tensor) -> None:
    for argument in ("length", "time_unit"):
        with pytest.raises(ValueError, match="expected one positive"):
            solve(KdV(), smooth_states(32)[:, None], [1.0], 0.5, **{argument: bad})


def test_a_solution_that_explodes_is_named() -> None:
    with pytest.raises(SolverError, match="sample 1"):
        first = smooth_states(32) * torch.tensor([[1.0], [1e6], [1.0]])
        solve(KdV(), first[:, None], [4.0], 0.5, length=LENGTHS, time_unit=SPACINGS)


def test_the_masks_keep_what_they_say() -> None:
    assert dealias_mask((12,)).tolist() == [True] * 4 + [False] * 3
    assert dealias_mask((12,), cut=2).tolist() == [True] * 6 + [False]  # all but the Nyquist mode
    assert dealias_mask((13,), cut=2).tolist() == [True] * 7


def right_hand_side(equation: Equation, n: int, length: float):
    """LPSDA's: pseudospectral, ``-u u_x`` not dealiased."""
    k = TWO_PI * np.fft.rfftfreq(n, 1 / n) / length
    symbol = equation.linear(torch.from_numpy(k)[None]).numpy()

    def terms(_: float, u: np.ndarray) -> np.ndarray:
        spectrum = np.fft.rfft(u)
        return np.fft.irfft(symbol * spectrum, n) - u * np.fft.irfft(1j * k * spectrum, n)

    return terms


@over_equations
def test_the_solver_agrees_with_radau_at_one_in_a_billion(equation: Equation) -> None:
    n, length, time = 64, 30.0, 1.0
    first = smooth_states(n)[0]
    terms = right_hand_side(equation, n, length)
    radau = solve_ivp(terms, (0, time), first.numpy(), method="Radau", rtol=1e-9, atol=1e-9, t_eval=[time]).y[:, -1]
    fine = resample(first[None, None], (128,))
    got = solve(equation, fine, [time], 0.01, length=torch.tensor([length], dtype=torch.float64))[0, 0, 0, ::2]
    assert relative(got, torch.from_numpy(radau)) < 2e-7
    coarse = solve(equation, fine, [time], 0.25, length=torch.tensor([length], dtype=torch.float64))[0, 0, 0, ::2]
    assert relative(coarse, torch.from_numpy(radau)) > 1e-6  # a poor solution is told apart


@over_problems
def test_the_settings_of_a_benchmark_are_converged_in_space_and_time(name: str) -> None:
    """For a few frames from a state as steep as they become; for whole trajectories see docs/lpsda.md."""
    problem = short(name, frames=3, solved_frames=5)
    fine = dataclasses.replace(problem, solver_points=768, substeps=2 * problem.substeps)
    rough = dataclasses.replace(problem, substeps=problem.substeps // 8)
    got, truth, poor = (steep_solution(p) for p in (problem, fine, rough))
    assert 1e-12 < relative(got, truth) < 1e-6
    assert relative(poor, truth) > 100 * relative(got, truth)


def steep_solution(problem: TrajectoryProblem) -> Tensor:
    """From drawn waves with a high and narrow one in their midst."""
    state, length, spacing = problem.initial(0, "test", range(2))
    x = (points((problem.solver_points,)) - 0.5) * length[:, None, None]
    steep = soliton(x, torch.zeros(()), torch.tensor(1.4, dtype=torch.float64))
    return problem.solve(state + steep, length, spacing).u


def test_kdv_conserves_mass_and_energy() -> None:
    u = solved(KdV(), smooth_states(96) + 0.3, LENGTHS, SPACINGS, 6, 48).u
    for quantity in (u.mean(dim=2), u.square().mean(dim=2)):
        assert float((quantity - quantity[:, :1]).abs().max()) < 1e-7
    assert float((u[:, -1] - u[:, 0]).abs().max()) > 0.1  # while the waves do move


# --- the random law and the registry


@over_problems
def test_a_sample_depends_on_its_key_alone(name: str) -> None:
    problem = TRAJECTORY_PROBLEMS[name]
    state, length, spacing = problem.initial(3, "train", [0, 7, 2])
    alone = problem.initial(3, "train", [7])
    assert torch.equal(state[1], alone[0][0]) and torch.equal(length[1], alone[1][0]) and torch.equal(spacing[1], alone[2][0])
    for other in (problem.initial(4, "train", [7]), problem.initial(3, "valid", [7]), problem.initial(3, "train", [8])):
        assert relative(other[0], alone[0]) > 0.1


@over_problems
def test_samples_follow_the_law_of_the_protocol(name: str) -> None:
    problem = TRAJECTORY_PROBLEMS[name]
    states, lengths, spacings = problem.initial(0, "train", range(300))
    for values, nominal in ((lengths, problem.length), (spacings, problem.end_time / (problem.solved - 1))):
        assert bool((values >= 0.9 * nominal).all() and (values <= 1.1 * nominal).all())
        assert abs(float(values.mean() / nominal) - 1) < 0.015 and abs(float(values.std() / nominal) - 0.2 / 12**0.5) < 0.005
    power = to_spectrum(states, 1).abs().square()[:, 0].mean(dim=0)
    assert float(power[1:3].sum() / power.sum()) > 1 - 1e-12
    assert float(power[1] / power[2]) == pytest.approx(1, abs=0.25)
    assert float(states.square().mean()) == pytest.approx(10 / 12 / 2, rel=0.1)  # ten waves, amplitudes of variance 1/12


def test_the_registry_states_the_protocol() -> None:
    kdv, easy, ks = (TRAJECTORY_PROBLEMS[name] for name in ("kdv", "kdv_easy", "kuramoto_sivashinsky"))
    assert (kdv.length, kdv.solved, ks.length, ks.solved) == (128, 250, 64, 500)
    assert all((p.frames, p.points, p.waves, p.wavenumbers) == (140, 256, 10, (1, 2)) for p in TRAJECTORY_PROBLEMS.values())
    assert [round(100 * p.spacing, 1) for p in (kdv, easy, ks)] == [40.2, 20.1, 20.0]
    assert easy.paper["pace-20"][0] == 0.0061 and ks.paper["pace-20"][0] == 0.0003 and not kdv.paper
    assert benchmark_named("kdv") is kdv and benchmark_named("burgers1d") is PROBLEMS["burgers1d"]
    with pytest.raises(ValueError, match=r"unknown problem 'kdw'.*burgers1d.*kdv_easy"):
        benchmark_named("kdw")


def test_only_the_last_frames_are_kept() -> None:
    few, all_frames = short("kdv_easy", 3, 5), short("kdv_easy", 5, 5)
    kept, full = (p.solve(*p.initial(0, "test", range(2))) for p in (few, all_frames))
    assert tuple(kept.u.shape) == (2, 3, 256)
    assert relative(kept.u, full.u[:, -3:]) < 1e-12


# --- the symmetries: laws of the group


def random_trajectories(n: int, dtype: torch.dtype = torch.float64, frames: int = 7) -> Trajectories:
    generator = torch.Generator().manual_seed(2)
    modes = torch.randn(4, frames, 9, dtype=torch.complex128, generator=generator)
    u = torch.fft.irfft(torch.cat([modes, modes.new_zeros(4, frames, n // 2 - 8)], dim=2), n=n, norm="forward") / 9
    rows = torch.linspace(0.8, 1.2, 4, dtype=torch.float64)
    return Trajectories(u.to(dtype), (40 * rows).to(dtype), (0.3 * rows.flip(0)).to(dtype))


def elements(group: LiePoint, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    high = [0.5, 1.5, 0.3][: group.size]
    return group.sample([0.0] * group.size, high, 4, torch.Generator().manual_seed(seed)).to(dtype)


def distance(a: Trajectories, b: Trajectories) -> float:
    """The largest difference of values (against order one), lengths and spacings."""
    return max(
        float((a.u - b.u).abs().max()),
        float((a.length / b.length - 1).abs().max()),
        float((a.spacing / b.spacing - 1).abs().max()),
    )


def inverse_law(group: LiePoint, u: Trajectories, xi: Tensor) -> float:
    return max(distance(group.inverse(group.act(u, xi), xi), u), distance(group.act(group.inverse(u, xi), xi), u))


def composition_law(group: LiePoint, u: Trajectories, xi: Tensor, eta: Tensor) -> float:
    return distance(group.act(group.act(u, eta), xi), group.act(u, group.compose(xi, eta)))


def window_law(group: LiePoint, u: Trajectories, xi: Tensor) -> float:
    start = torch.tensor([0, 1, 3, 2])
    late = group.act(u.window(start, 3), group.transport(xi, u.horizon(start)))
    return distance(group.act(u, xi).window(start, 3), late)


class CommutingScale(LiePoint):
    """Broken: composes as if a velocity did not change with the scale."""

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        return self.wrap(xi + eta)

    def inverse_element(self, xi: Tensor) -> Tensor:
        return -xi


class StandingBoost(LiePoint):
    """Broken: a boost never becomes a shift."""

    def transport(self, xi: Tensor, horizon: float | Tensor) -> Tensor:
        return xi


@over_points
@pytest.mark.parametrize("scaling", [True, False])
def test_the_symmetries_are_a_group(n: int, scaling: bool, dtype: torch.dtype, tolerance: float) -> None:
    group, u = LiePoint(scaling=scaling), random_trajectories(n, dtype)
    xi, eta = elements(group, 1, dtype), elements(group, 2, dtype)
    e = group.identity(4, dtype=dtype)
    assert distance(group.act(u, e), u) < tolerance and distance(group.act(u, xi), u) > 0.1
    assert inverse_law(group, u, xi) < 10 * tolerance
    assert composition_law(group, u, xi, eta) < 10 * tolerance
    assert window_law(group, u, xi) < 10 * tolerance
    assert float(group.difference(group.compose(xi, group.inverse_element(xi)), e).abs().max()) < tolerance
    assert float(group.difference(group.compose(group.inverse_element(xi), xi), e).abs().max()) < tolerance


def test_the_group_laws_fail_for_broken_groups() -> None:
    u, broken = random_trajectories(64), CommutingScale(scaling=True)
    assert inverse_law(broken, u, elements(broken, 1)) > 0.05
    assert composition_law(broken, u, elements(broken, 1), elements(broken, 2)) > 0.05
    assert window_law(StandingBoost(scaling=True), u, elements(broken, 1)) > 0.05


def test_elements_may_be_learned() -> None:
    group, u = LiePoint(scaling=True), random_trajectories(64)
    xi = elements(group, 1).requires_grad_()
    moved = group.act(u, xi)
    (moved.u.square().sum() + moved.u[:, :, 0].sum() + moved.length.sum()).backward()
    assert xi.grad is not None and bool((xi.grad.abs() > 0).all())


def test_a_wrong_number_of_coordinates_is_refused() -> None:
    with pytest.raises(FieldError, match=r"expected coordinates \('x', 'velocity'\) of shape \(4, 2\), got \(4, 3\)"):
        LiePoint(scaling=False).act(random_trajectories(64), elements(LiePoint(scaling=True), 1))


# --- the symmetries: solving the moved state is moving the solution


def solving_law(group: LiePoint, equation: Equation, xi: Tensor, n: int = 64, dtype: torch.dtype = torch.float64) -> float:
    """How far the moved solution is from the solution of the moved state, relative; on the moved domain and times."""
    u = solved(equation, smooth_states(n, dtype), LENGTHS.to(dtype), SPACINGS.to(dtype))
    moved = group.act(u, xi.to(dtype))
    again = solved(equation, moved.u[:, 0], moved.length, moved.spacing)
    return relative(moved.u, again.u)


CASES = {
    "g2": torch.tensor([[0.3, 0.0, 0.0], [-0.45, 0.0, 0.0], [0.01, 0.0, 0.0]]),
    "g3": torch.tensor([[0.0, 0.5, 0.0], [0.0, -0.8, 0.0], [0.0, 0.4, 0.0]]),
    "g4": torch.tensor([[0.0, 0.0, 0.1], [0.0, 0.0, -0.2], [0.0, 0.0, 0.05]]),
    "all": torch.tensor([[0.3, 0.5, 0.1], [-0.45, -0.8, -0.2], [0.1, 0.4, 0.05]]),
}
ELEMENTS = [pytest.param(KdV(), xi.double(), id=f"kdv-{name}") for name, xi in CASES.items()]
ELEMENTS += [pytest.param(KuramotoSivashinsky(), CASES[name].double()[:, :2], id=f"ks-{name}") for name in ("g2", "g3")]


@over_points
@pytest.mark.parametrize(("equation", "xi"), ELEMENTS)
def test_solving_a_moved_state_is_moving_its_solution(equation: Equation, xi: Tensor, n: int, dtype: torch.dtype) -> None:
    error = solving_law(LiePoint(scaling=xi.shape[1] == 3), equation, xi, n, dtype)
    assert error < (2e-8 if dtype == torch.float64 else 2e-4)


class BackwardDrift(LiePoint):
    """Broken: a boost carries its content the wrong way."""

    def act(self, trajectories: Trajectories, xi: Tensor) -> Trajectories:
        moved = super().act(trajectories, xi * xi.new_tensor([1.0, -1.0, 1.0])[: self.size])
        scale = xi[:, 2] if self.scaling else torch.zeros_like(xi[:, 0])
        return dataclasses.replace(moved, u=moved.u + (2 * xi[:, 1] * torch.exp(-2 * scale))[:, None, None])


class CreepingShift(LiePoint):
    """Broken: every frame is shifted a little further."""

    def act(self, trajectories: Trajectories, xi: Tensor) -> Trajectories:
        right = super().act
        frames = [right(trajectories.window(j, 1), xi * (1 + 0.1 * j)).u for j in range(trajectories.frames)]
        return dataclasses.replace(trajectories, u=torch.cat(frames, dim=1))


class StaleClock(LiePoint):
    """Broken: a rescaling leaves the time between frames as it was."""

    def act(self, trajectories: Trajectories, xi: Tensor) -> Trajectories:
        return dataclasses.replace(super().act(trajectories, xi), spacing=trajectories.spacing)


class GrowingScale(LiePoint):
    """Broken: a wider domain has larger values instead of smaller ones."""

    def act(self, trajectories: Trajectories, xi: Tensor) -> Trajectories:
        moved = super().act(trajectories, xi)
        return dataclasses.replace(moved, u=moved.u * torch.exp(4 * xi[:, 2])[:, None, None])


@pytest.mark.parametrize(
    ("broken", "name"), [(CreepingShift, "g2"), (BackwardDrift, "g3"), (StaleClock, "g4"), (GrowingScale, "g4")]
)
def test_the_solving_law_fails_for_a_broken_action(broken: type[LiePoint], name: str) -> None:
    assert solving_law(broken(scaling=True), KdV(), CASES[name].double()) > 1e-2


def test_kuramoto_sivashinsky_has_no_scaling() -> None:
    assert solving_law(LiePoint(scaling=True), KuramotoSivashinsky(), CASES["g4"].double()) > 1e-2


# --- as LPSDA applies them


def lpsda(u: Trajectories, shift: float, velocity: float, scale: float) -> Trajectories:
    """Its formulas in its own signs: ``u - eps`` drifts by ``-eps t``, and ``e^2eps u`` lies at ``e^-eps x``."""
    rows = []
    for frames, length, spacing in zip(u.u, u.length, u.spacing, strict=True):
        n = frames.shape[1]
        k = torch.arange(n // 2 + 1, dtype=torch.float64)
        k[-1] = 0 if n % 2 == 0 else k[-1]
        time = spacing * torch.arange(frames.shape[0])
        for periods in (torch.full_like(time, shift), -velocity * time / length):
            phase = torch.exp(-2j * math.pi * k * periods[:, None])
            frames = torch.fft.irfft(phase * torch.fft.rfft(frames), n=n)
        rows.append((frames - velocity) * math.exp(2 * scale))
    return Trajectories(torch.stack(rows), u.length * math.exp(-scale), u.spacing * math.exp(-3 * scale))


@over_points
def test_an_element_is_g2_then_g3_then_g4_of_lpsda_with_the_signs_of_the_last_two_turned(n: int) -> None:
    u, group = random_trajectories(n), LiePoint(scaling=True)
    xi = torch.tensor([0.3, -0.35, 0.04], dtype=torch.float64).expand(4, 3)
    assert distance(group.act(u, xi), lpsda(u, 0.3, 0.35, -0.04)) < 1e-12
    assert distance(group.act(u, xi), lpsda(u, 0.3, -0.35, -0.04)) > 0.1
    one_by_one = u
    for column in range(3):
        one_by_one = group.act(one_by_one, xi * torch.eye(3, dtype=torch.float64)[column])
    assert distance(group.act(u, xi), one_by_one) < 1e-12


@over_problems
def test_augmentation_draws_from_the_halved_ranges(name: str) -> None:
    problem = TRAJECTORY_PROBLEMS[name]
    n, batch = 16, 400
    flat = Trajectories(torch.ones(batch, 2, n), torch.full((batch,), problem.length), torch.full((batch,), problem.spacing))
    moved = problem.augment(flat, torch.Generator().manual_seed(0))
    scale = (moved.length / flat.length).log()
    velocity = moved.u[:, 0, 0] * torch.exp(2 * scale) - 1
    for values, half in ((velocity, 0.4), (scale, 0.05 if problem.symmetry.scaling else 0.0)):
        assert float(values.abs().max()) <= half + 1e-5
        assert float(values.std()) == pytest.approx(half / 3**0.5, rel=0.1, abs=1e-6)
    wave = dataclasses.replace(flat, u=torch.sin(TWO_PI * points((n,), dtype=torch.float32)).expand(batch, 2, n))
    turned = problem.augment(wave, torch.Generator().manual_seed(0)).u[:, 0]
    phase = torch.fft.rfft(turned)[:, 1].angle()
    assert float(phase.cos().mean().abs()) < 0.15 and float(phase.sin().mean().abs()) < 0.15  # the whole circle
    again = problem.augment(flat, torch.Generator().manual_seed(0))
    assert torch.equal(again.u, moved.u)


def test_windows_may_begin_anywhere_or_only_where_a_test_block_begins() -> None:
    u = Trajectories(torch.arange(140.0).expand(500, 140)[:, :, None].expand(-1, -1, 4), torch.ones(500), torch.ones(500))
    generator = torch.Generator().manual_seed(0)
    anywhere = window_starts(u, 20, 20, generator, translate=True)
    blocks = window_starts(u, 20, 20, generator, translate=False)
    assert int(anywhere.min()) == 0 and int(anywhere.max()) == 100 and len(anywhere.unique()) > 95
    assert blocks.unique().tolist() == [20, 40, 60, 80, 100]
    window = u.window(anywhere, 40)
    assert torch.equal(window.u[:, 0, 0], anywhere.float()) and torch.equal(window.u[:, -1, 0], anywhere.float() + 39)
    with pytest.raises(FieldError, match="140 frames"):
        window_starts(u, 130, 20, generator, translate=True)


# --- the container


def test_a_container_knows_its_cells_and_horizons() -> None:
    u = random_trajectories(64)
    assert torch.allclose(u.cell * 64, u.length) and len(u) == 4 and u.frames == 7
    assert torch.allclose(u.horizon(3), 3 * u.spacing / u.length)
    assert distance(Trajectories.joined([u.select(slice(0, 1)), u.select(torch.tensor([1, 2, 3]))]), u) == 0
    assert u.to(torch.float32).length.dtype == torch.float32


@pytest.mark.parametrize("start", [-1, 5, torch.tensor([0, 0, 0, 5])])
def test_a_window_outside_is_refused(start: int | Tensor) -> None:
    with pytest.raises(FieldError, match="do not lie within the 7"):
        random_trajectories(64).window(start, 3)


def test_a_container_refuses_other_shapes() -> None:
    with pytest.raises(FieldError, match="expected real values"):
        Trajectories(torch.zeros(3, 8), torch.ones(3), torch.ones(3))
    with pytest.raises(FieldError, match="expected spacing of shape"):
        Trajectories(torch.zeros(3, 2, 8), torch.ones(3), torch.ones(1))
