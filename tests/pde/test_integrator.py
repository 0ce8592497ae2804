"""The time stepper: order of accuracy, boxes of one's own, precision, and what it refuses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from equation_examples import EXAMPLES, TWO_PI, Example, relative
from scipy.integrate import solve_ivp
from torch import Tensor

from pacefno.fields import Box
from pacefno.grid import FieldError, points, resample, to_spectrum, wavenumbers
from pacefno.pde import (
    Burgers,
    Equation,
    KdV,
    KuramotoSivashinsky,
    NavierStokes,
    ShallowWater,
    SolverError,
    integrator,
    solve,
)
from pacefno.pde.integrator import ETDRK4, dealias_mask, etdrk4

over_equations = pytest.mark.parametrize("name", list(EXAMPLES))
over_boxed = pytest.mark.parametrize(
    "equation", [KdV(), KuramotoSivashinsky()], ids=lambda equation: str(equation.name)
)
BOX = Box(torch.tensor([[22.0], [30.0], [26.0]]).double(), torch.tensor([0.2, 0.3, 0.25]).double())


def smooth_states(n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Three states of a few long waves, ``(3, 1, n)``."""
    angle = TWO_PI * points((n,))
    rows = [
        torch.sin(angle) - 0.4 * torch.cos(2 * angle + k) + 0.2 * torch.sin(3 * angle)
        for k in range(3)
    ]
    return torch.stack(rows).to(dtype)


def solved(equation: Equation, first: Tensor, box: Box, snapshots: int, substeps: int) -> Tensor:
    """All snapshots from the given states on, ``(B, snapshots, n)``."""
    times = [float(number) for number in range(snapshots)]
    return solve(equation, first, times, 1 / substeps, box=box)[:, :, 0]


# --- order of accuracy ----------------------------------------------------------------------------


def orders(example: Example, truth: Tensor) -> list[float]:
    """Observed orders between 16, 32 and 64 steps."""
    initial, time = example.states(), example.stepping
    errors = [relative(example.last(initial, time, steps), truth) for steps in (16, 32, 64)]
    return [math.log2(a / b) for a, b in itertools.pairwise(errors)]


@over_equations
def test_the_time_stepper_is_of_fourth_order(name: str) -> None:
    example = EXAMPLES[name]
    truth = example.last(example.states(), example.stepping, 512)
    assert all(abs(order - 4) < 0.2 for order in orders(example, truth))


def exponential_euler(symbol: Tensor, step: float) -> ETDRK4:
    """A broken scheme: the weight of all stages given to the first, so it is of first order."""
    scheme = etdrk4(symbol, step)
    zero = torch.zeros_like(scheme.first)
    total = scheme.first + 2 * scheme.middle + scheme.last
    return replace(scheme, first=total, middle=zero, last=zero)


def swapped(symbol: Tensor, step: float) -> ETDRK4:
    """A subtly broken one: two weights exchanged, still consistent for stiff modes."""
    scheme = etdrk4(symbol, step)
    return replace(scheme, first=scheme.last, last=scheme.first)


@pytest.mark.parametrize("scheme", [exponential_euler, swapped])
def test_the_order_test_fails_for_a_broken_scheme(
    scheme: Callable[[Tensor, float], ETDRK4], monkeypatch: pytest.MonkeyPatch
) -> None:
    example = EXAMPLES["burgers1d_smooth"]
    truth = example.last(example.states(), example.stepping, 512)
    monkeypatch.setattr(integrator, "etdrk4", scheme)
    assert all(abs(order - 4) > 0.2 for order in orders(example, truth))


@over_boxed
def test_it_stays_of_fourth_order_with_a_step_per_sample(equation: Equation) -> None:
    truth = solved(equation, smooth_states(48), BOX, 3, 128)[:, -1]
    errors = [
        relative(solved(equation, smooth_states(48), BOX, 3, substeps)[:, -1], truth)
        for substeps in (4, 8, 16)
    ]
    assert all(abs(math.log2(a / b) - 4) < 0.6 for a, b in itertools.pairwise(errors))


@pytest.mark.parametrize("z", [0.0, -1e-9, -1e-4, -0.03, -1.0, -20.0, -3e3, 2j, -1 + 5j])
def test_the_coefficients_are_the_phi_functions_without_cancellation(z: complex) -> None:
    """By Taylor series near zero and by their formulas away from it."""
    step = 0.5
    dtype = torch.complex128 if isinstance(z, complex) else torch.float64
    symbol = torch.tensor([z / step], dtype=dtype)
    if abs(z) <= 1:
        phi1, phi2, phi3 = (sum(z**j / math.factorial(j + m) for j in range(25)) for m in (1, 2, 3))
    else:
        e = torch.exp(torch.tensor(z, dtype=torch.complex128)).item()
        phi1 = (e - 1) / z
        phi2 = (phi1 - 1) / z
        phi3 = (phi2 - 0.5) / z
    scheme = etdrk4(symbol, step)
    # The two middle stages share their weight.
    expected = [phi1 - 3 * phi2 + 4 * phi3, 2 * (2 * phi2 - 4 * phi3), 4 * phi3 - phi2]
    found = [scheme.first, 2 * scheme.middle, scheme.last]
    for value, target in zip(found, expected, strict=True):
        assert abs(complex(value.item()) - step * target) < 1e-14


# --- a reference that shares no code --------------------------------------------------------------


def right_hand_side(equation: Equation, n: int, length: float) -> Callable[..., Any]:
    """LPSDA's: pseudospectral, ``-u u_x`` not dealiased."""
    k = TWO_PI * np.fft.rfftfreq(n, 1 / n) / length
    symbol = equation.linear(torch.from_numpy(k)[None]).numpy()

    def terms(_: float, u: Any) -> Any:
        spectrum = np.fft.rfft(u)
        return np.fft.irfft(symbol * spectrum, n) - u * np.fft.irfft(1j * k * spectrum, n)

    return terms


@over_boxed
def test_the_solver_agrees_with_radau_at_one_in_a_billion(equation: Equation) -> None:
    n, length, time = 64, 30.0, 1.0
    first = smooth_states(n)[:1]
    terms, options = right_hand_side(equation, n, length), {"rtol": 1e-9, "atol": 1e-9}
    radau = solve_ivp(
        terms, (0, time), first[0, 0].numpy(), method="Radau", t_eval=[time], **options
    ).y[:, -1]
    fine = resample(first, (128,))
    box = Box(torch.tensor([[length]]).double(), torch.ones(1).double())
    found, coarse = (
        solve(equation, fine, [time], step, box=box)[0, 0, 0, ::2] for step in (0.01, 0.25)
    )
    assert relative(found, torch.from_numpy(radau)) < 2e-7
    assert relative(coarse, torch.from_numpy(radau)) > 1e-6  # a poor solution is told apart


# --- aliasing -------------------------------------------------------------------------------------


def test_no_content_appears_above_the_two_thirds_cut() -> None:
    for shape in [(30, 32), (33, 24)]:
        generator = torch.Generator().manual_seed(0)
        white = torch.randn(1, 1, *shape, generator=generator, dtype=torch.float64)
        states = to_spectrum(solve(Burgers(2, 1e-2), 0.1 * white, [0.0, 0.1], 0.01), 2)
        k = wavenumbers(shape).abs()
        high = (k[0] >= shape[0] / 3) | (k[1] >= shape[1] / 3)
        assert float(states[..., high].abs().max()) < 1e-15
        assert torch.equal(dealias_mask(shape), ~high)


def test_the_masks_keep_what_they_say() -> None:
    assert dealias_mask((12,)).tolist() == [True] * 4 + [False] * 3
    assert dealias_mask((12,), cut=2).tolist() == [True] * 6 + [False]  # all but the Nyquist mode
    assert dealias_mask((13,), cut=2).tolist() == [True] * 7


# --- batches, times and boxes ---------------------------------------------------------------------


def test_a_batch_is_a_loop_and_times_are_reached_exactly() -> None:
    example = EXAMPLES["shallow_water"]
    initial, times = example.states(batch=3), [0.0, 0.03, 0.03, 0.1]
    states = solve(example.equation, initial, times, 0.007)
    assert states.shape == (3, 4, 3, 32, 32)
    torch.testing.assert_close(states[:, 0], initial, atol=1e-14, rtol=0)
    assert torch.equal(states[:, 1], states[:, 2])
    for i in range(3):
        alone = solve(example.equation, initial[i : i + 1], times, 0.007)[0]
        torch.testing.assert_close(alone, states[i], atol=1e-13, rtol=0)
    assert relative(states[:, 3], example.last(initial, 0.1, 200)) < 1e-5


@over_boxed
def test_a_sample_has_its_own_box_whichever_others_are_solved_with_it(equation: Equation) -> None:
    together = solved(equation, smooth_states(48), BOX, 3, 8)
    for i in range(3):
        rows = slice(i, i + 1)
        alone = solved(equation, smooth_states(48)[rows], BOX.select(rows), 3, 8)
        torch.testing.assert_close(alone[0], together[i], atol=1e-12, rtol=0)
    reverse = BOX.select(torch.tensor([2, 1, 0]))
    others = solved(equation, smooth_states(48), reverse, 3, 8)
    assert relative(others[0], together[0]) > 1e-3
    assert relative(others[1], together[1]) < 1e-12


@pytest.mark.parametrize("name", ["burgers1d", "burgers2d", "shallow_water", "navier_stokes"])
def test_a_box_of_length_and_step_1_changes_nothing(
    name: str, dtype: torch.dtype, tolerance: float
) -> None:
    example = EXAMPLES[name]
    state = example.states(24, batch=2).to(dtype)
    plain = solve(example.equation, state, [0.05, 0.1], 0.01)
    ones = torch.ones(2, example.equation.dim, dtype=dtype), torch.ones(2, dtype=dtype)
    unit = solve(example.equation, state, [0.05, 0.1], 0.01, box=Box(*ones))
    assert relative(unit, plain) < tolerance
    wide = solve(example.equation, state, [0.05, 0.1], 0.01, box=Box(2 * ones[0], ones[1]))
    slow = solve(example.equation, state, [0.05, 0.1], 0.01, box=Box(ones[0], 2 * ones[1]))
    assert relative(wide, plain) > 1e-3 and relative(slow, plain) > 1e-3


# The equation in the other units, and by how much each channel is multiplied.
UNITS: dict[str, tuple[Equation, list[float]]] = {
    "burgers1d": (Burgers(1, 5e-4 * 4), [0.5]),
    "burgers2d": (Burgers(2, 5e-3 * 4), [0.5]),
    "shallow_water": (ShallowWater(2e-3 * 4, 0.25), [1.0, 0.5, 0.5]),
    "navier_stokes": (NavierStokes(4e-4 * 4), [1 / 16]),
}


@pytest.mark.parametrize("name", list(UNITS))
def test_a_solution_in_another_box_is_the_same_in_other_units(name: str) -> None:
    """Lengths by 8, times by 16: speeds are halved, viscosities (length^2 / time) four times."""
    example, (equation, weights) = EXAMPLES[name], UNITS[name]
    state, scale = example.states(24, top=3), torch.tensor(weights, dtype=torch.float64)
    scale = scale.reshape(-1, *[1] * equation.dim)
    ones = torch.ones(len(state), equation.dim, dtype=torch.float64)
    plain = example.last(state, 0.1, 20)
    box = Box(8 * ones, 16 * ones[:, 0])
    found = solve(equation, state * scale, [0.1], 0.1 / 20, box=box)[:, 0]
    assert relative(found / scale, plain) < 1e-12


def test_a_box_has_a_length_for_each_axis() -> None:
    """A wave along x does not see how long the box is along y, one along y does."""
    equation = EXAMPLES["burgers2d"].equation
    x, y = points((24, 20))
    long = Box(torch.tensor([[1.0, 3.0]]).double(), torch.ones(1).double())
    for coordinate, same in ((x, True), (y, False)):
        state = torch.sin(TWO_PI * coordinate)[None, None]
        plain = solve(equation, state, [0.1], 0.01)
        found = solve(equation, state, [0.1], 0.01, box=long)
        assert (relative(found, plain) < 1e-12) == same


# --- precision ------------------------------------------------------------------------------------


@over_equations
def test_single_precision_agrees_with_double(name: str) -> None:
    example = EXAMPLES[name]
    initial = example.states()
    single = example.last(initial.float(), 0.2, 100)
    assert single.dtype == torch.float32
    assert 1e-9 < relative(single.double(), example.last(initial, 0.2, 100)) < 1e-4


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_solved_in_single_and_returned_as_it_came(half: torch.dtype) -> None:
    example = replace(EXAMPLES["burgers1d_smooth"], equation=Burgers(1, 1e-2))
    initial = example.states(n=256).to(half)
    found = example.last(initial, 0.1, 50)
    assert found.dtype == half
    single = example.last(initial.float(), 0.1, 50)
    assert relative(found.float(), single) < 4 * torch.finfo(half).eps


# --- what is refused ------------------------------------------------------------------------------


def test_too_large_a_step_is_an_error_that_names_sample_time_and_step() -> None:
    noise = torch.randn(1, 64, generator=torch.Generator().manual_seed(0))
    initial = torch.stack([torch.zeros(1, 64), 50 * noise])
    expected = r"burgers1d: sample 1 .* time 2 \(1 of 2 samples; step size 0\.5\): reduce the step"
    with pytest.raises(SolverError, match=expected):
        solve(Burgers(1, 1e-4), initial, [2.0], 0.5)


def test_a_sample_that_explodes_among_others_is_named() -> None:
    first = smooth_states(32) * torch.tensor([1.0, 1e6, 1.0]).reshape(3, 1, 1)
    with pytest.raises(SolverError, match="sample 1"):
        solve(KdV(), first, [4.0], 0.5, box=BOX)


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


@pytest.mark.parametrize(
    "bad", [torch.ones(2), torch.tensor([1.0, 0.0, 1.0]), torch.tensor([1.0, math.nan, 1.0])]
)
def test_a_box_that_cannot_be_is_refused(bad: Tensor) -> None:
    for box in (Box(bad[:, None], torch.ones(3)), Box(torch.ones(3, 1), bad)):
        with pytest.raises(ValueError, match=r"solve: expected positive (lengths|step) of shape"):
            solve(KdV(), smooth_states(32), [1.0], 0.5, box=box)


class Misshapen(Burgers):
    """Broken: a symbol for two channels that do not exist."""

    def linear(self, kappa: Tensor) -> Tensor:
        return super().linear(kappa).expand(2, -1)


class Widened(Burgers):
    """Broken: its nonlinear terms have a channel too many, which would broadcast."""

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        terms = super().nonlinear(kappa, shape)
        return lambda spectrum: terms(spectrum[:, :1]).repeat(1, 2, 1)


def test_terms_of_another_shape_are_refused_instead_of_broadcast() -> None:
    with pytest.raises(ValueError, match=r"burgers1d\.nonlinear: expected terms of the shape"):
        solve(Widened(1, 1e-2), torch.zeros(3, 1, 16), [0.1], 0.01)


def test_a_symbol_of_another_shape_is_refused_instead_of_broadcast() -> None:
    with pytest.raises(ValueError, match=r"burgers1d\.linear: expected a symbol of shape \(9,\)"):
        solve(Misshapen(1, 1e-2), torch.zeros(1, 1, 16), [0.1], 0.01)
