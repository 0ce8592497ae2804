"""Laws of every equation: exact solutions, what is conserved, and its symmetries, by solving."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from equation_examples import EXAMPLES, TWO_PI, Example, draw_wave, relative
from torch import Tensor

from pacefno import pde
from pacefno.fields import Box
from pacefno.grid import (
    band_limit,
    curl_and_divergence,
    from_spectrum,
    points,
    spectral_weights,
    to_spectrum,
    wavenumbers,
)
from pacefno.groups import (
    POINT_GROUPS,
    Galilean,
    GalileanScaling,
    PointGroup,
    element,
    representation,
    shift,
)
from pacefno.pde import (
    Burgers,
    Equation,
    KdV,
    KuramotoSivashinsky,
    NavierStokes,
    NavierStokesVelocity,
    ShallowWater,
    SolverError,
    solve,
)
from pacefno.pde.base import angular_wavenumbers
from pacefno.pde.initial import compact_vorticity, gaussian_field, generator_for, scale_to_rms
from pacefno.pde.navier_stokes import flow_of

over_equations = pytest.mark.parametrize("name", list(EXAMPLES))
over_exact = pytest.mark.parametrize(
    "name",
    [
        name
        for name, example in EXAMPLES.items()
        if isinstance(example.equation.group, Galilean | GalileanScaling)
    ],
)


def last(equation: Equation, initial: Tensor, time: float, steps: int) -> Tensor:
    return solve(equation, initial, [time], time / steps)[:, 0]


# --- descriptions ---------------------------------------------------------------------------------


def test_every_equation_has_an_example() -> None:
    exported = [getattr(pde, name) for name in pde.__all__]
    equations = {one for one in exported if isinstance(one, type) and issubclass(one, Equation)} - {
        Equation
    }
    assert equations == {type(example.equation) for example in EXAMPLES.values()}


@over_equations
def test_the_description_of_an_equation_is_consistent(name: str) -> None:
    equation = EXAMPLES[name].equation
    type = equation.field_type()
    equation.group.check_type(type)
    group = POINT_GROUPS[equation.point_group]
    assert equation.dim == equation.group.dim == group.dim
    assert representation(group, type.text, type.size).shape == (group.order, type.size, type.size)
    assert equation.conserves is None or set(equation.conserves) <= set(type.channels)
    assert all(math.isfinite(value) for value in equation.parameters.values())
    later = equation.field_type((1.0, 2.0), lengths=3.0, step=0.5)
    assert later.snapshots == 2 and later.lengths == (3.0,) * equation.dim and later.step == 0.5


# --- exact solutions ------------------------------------------------------------------------------


def cole_hopf(s: Tensor, time: float, nu: float) -> Tensor:
    """``-2 nu psi_s / psi`` with a ``psi = 2 + exp(-4 pi^2 nu t) cos(2 pi s)`` that is heat."""
    decay = math.exp(-TWO_PI * TWO_PI * nu * time)
    return 2 * nu * TWO_PI * decay * torch.sin(TWO_PI * s) / (2 + decay * torch.cos(TWO_PI * s))


@pytest.mark.parametrize("n", [64, 63])
def test_burgers_follows_cole_hopf(n: int, dtype: torch.dtype) -> None:
    nu, x = 0.05, points((n,), dtype=dtype)
    found = last(Burgers(1, nu), cole_hopf(x, 0.0, nu)[None], 0.5, 100)[0]
    exact = cole_hopf(x, 0.5, nu)
    assert found.dtype == dtype
    assert relative(found, exact) < (1e-9 if dtype == torch.float64 else 1e-5)
    heat_only = cole_hopf(x, 0.0, nu) * math.exp(-TWO_PI * TWO_PI * nu * 0.5)
    assert relative(heat_only, exact) > 0.05  # the nonlinear term is seen


@pytest.mark.parametrize("n", [256, 255])
@pytest.mark.parametrize("time", [0.05, 0.5, 2.0])
def test_the_closed_form_is_the_solution_from_any_state_with_any_mean(n: int, time: float) -> None:
    """Against the known solution of one state, and the time stepper from others in motion."""
    nu, x = 0.05, points((n,))
    known = Burgers(1, nu).exact(cole_hopf(x, 0.0, nu)[None], [0.0, time])
    assert known is not None and known.shape == (1, 2, 1, n)
    assert relative(known[0, :, 0], torch.stack([cole_hopf(x[0], t, nu) for t in (0, time)])) < 1e-9
    equation, angle = Burgers(1, 0.02), TWO_PI * x[None]
    states = torch.cat([torch.sin(angle) + 0.3 * torch.cos(3 * angle + 1), 0 * angle + 0.2]) + 1.5
    found = equation.exact(states, [time])
    assert found is not None
    assert relative(found, solve(equation, states, [time], 5e-4)) < 1e-8
    single = equation.exact(states.float(), [time])
    assert single is not None and single.dtype == torch.float32
    assert relative(single.double(), found) < 1e-6


def test_there_is_no_closed_form_where_the_grid_is_too_coarse_or_there_are_two_axes() -> None:
    state = torch.sin(TWO_PI * points((256,)))[None]
    assert Burgers(1, 0.05).exact(state, [1.0]) is not None
    assert Burgers(1, 0.05).exact(state, [1e-5]) is None  # weights narrower than the grid
    assert Burgers(1, 1e-5).exact(state, [0.1]) is None
    assert Burgers(1, 0.05).exact(state / 0, [1.0]) is None
    assert Burgers(2, 0.05).exact(state[..., None].expand(-1, -1, -1, 16), [1.0]) is None


@pytest.mark.parametrize("shape", [(48, 48), (51, 48), (45, 51)])
def test_two_dimensional_burgers_follows_cole_hopf_along_the_diagonal(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """``u(x, y, t) = U(x + y, 2t)``: along (1, 1) derivatives and the Laplacian both double."""
    nu = 0.05
    x, y = points(shape, dtype=dtype)
    found = last(Burgers(2, nu), cole_hopf(x + y, 0.0, nu)[None, None], 0.2, 80)[0, 0]
    exact = cole_hopf(x + y, 0.4, nu)
    assert relative(found, exact) < (1e-7 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("shape", [(32, 32), (33, 27)])
def test_taylor_green_vortices_only_decay(
    shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    x, y = points(shape, dtype=dtype)
    vorticity = (torch.sin(TWO_PI * x) * torch.sin(TWO_PI * y))[None, None]
    found = last(NavierStokes(0.01), vorticity, 1.0, 20)
    assert relative(found, vorticity * math.exp(-2 * TWO_PI**2 * 0.01)) < tolerance


@pytest.mark.parametrize("shape", [(32, 32), (33, 27)])
def test_the_navier_stokes_term_is_the_advection_of_vorticity(
    shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    """``-(u . grad) w`` with ``Lap psi = -w``, ``u = (psi_y, -psi_x)``, by separate derivatives."""
    generator = torch.Generator().manual_seed(0)
    white = torch.randn(3, 1, *shape, generator=generator, dtype=torch.float64)
    w = to_spectrum(band_limit(white, 2, 6), 2)
    kx, ky = TWO_PI * wavenumbers(shape)
    psi = w / (kx**2 + ky**2).clamp_min(1.0)
    psi[..., 0, 0] = 0
    ux, uy, wx, wy = (from_spectrum(1j * a, shape) for a in (ky * psi, -kx * psi, kx * w, ky * w))
    direct = to_spectrum(-(ux * wx + uy * wy), 2)
    kappa = angular_wavenumbers(shape, dtype, "cpu")
    spectrum = w.to(torch.complex64 if dtype == torch.float32 else torch.complex128)
    found = NavierStokes(1.0).nonlinear(kappa, shape)(spectrum)
    assert relative(found, direct) < tolerance and float(direct.abs().max()) > 1e-3


@pytest.mark.parametrize("shape", [(32, 32), (33, 27)])
def test_the_flow_and_its_vorticity_are_solutions_of_one_another(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """The curl of the solved velocity is the solved vorticity, and a mean flow carries both."""
    white = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    vorticity = 10 * band_limit(white, 2, 4)
    vorticity = (vorticity - vorticity.mean(dim=(1, 2), keepdim=True)).to(dtype)
    flow, time = flow_of(vorticity), 0.5
    mean = torch.tensor([0.3, -0.2], dtype=dtype)
    carried = last(NavierStokesVelocity(0.01), flow + mean[:, None, None], time, 100)
    found = curl_and_divergence(carried)
    expected = last(NavierStokes(0.01), vorticity[:, None], time, 100)
    drifted = shift(expected, (mean.double() * time).expand(2, 2))
    bound = 1e-6 if dtype == torch.float64 else 1e-4
    assert relative(found[:, :1], drifted) < bound
    assert float(found[:, 1].abs().max()) < bound * float(found[:, 0].abs().max())
    assert relative(vorticity[:, None], expected) > 0.1


def gravity_wave_error(amplitude: float) -> float:
    """A wave along (1, 2) on water of depth 1.3, absolute error.

    ``omega = sqrt(gH) |kappa|``, damped by ``nu |kappa|^2``.
    """
    shape, depth, g, nu, time = (32, 30), 1.3, 2.0, 5e-3, 0.3
    x, y = points(shape)
    length, speed = math.sqrt(5.0), math.sqrt(g * depth)

    def wave(t: float) -> Tensor:
        decay = math.exp(-nu * (TWO_PI * length) ** 2 * t)
        angle = TWO_PI * (x + 2 * y) - speed * TWO_PI * length * t
        crest = amplitude * decay * torch.cos(angle)
        momenta = speed * crest / length, 2 * speed * crest / length
        return torch.stack([depth + crest, *momenta])[None]

    found = last(ShallowWater(nu, g), wave(0.0), time, 100)
    return float((found - wave(time)).abs().max())


def test_small_gravity_waves_follow_the_damped_dispersion_relation() -> None:
    errors = [gravity_wave_error(a) for a in (4e-4, 2e-4, 1e-4)]
    assert errors[-1] < 1e-3 * 1e-4
    for a, b in itertools.pairwise(errors):  # what is left is nonlinear: second order in amplitude
        assert abs(math.log2(a / b) - 2) < 0.1


def test_still_water_and_uniform_flow_stay_as_they_are(
    dtype: torch.dtype, tolerance: float
) -> None:
    still = torch.tensor([1.2, 0.3, -0.2], dtype=dtype).reshape(1, 3, 1, 1).expand(1, 3, 16, 18)
    found = last(ShallowWater(1e-3, 1.0), still, 0.5, 20)
    assert float((found - still).abs().max()) < tolerance


def soliton(x: Tensor, time: Tensor, speed: Tensor) -> Tensor:
    """``3 c sech^2(sqrt(c)/2 (x - c t))``, exact on the line."""
    return 3 * speed / torch.cosh(speed.sqrt() / 2 * (x - speed * time)) ** 2


def test_kdv_moves_solitons_at_their_own_speed_in_boxes_of_their_own(dtype: torch.dtype) -> None:
    length = torch.tensor([50.0, 60.0], dtype=dtype)
    unit = torch.tensor([2.0, 1.0], dtype=dtype)
    speed = torch.tensor([[0.8], [1.0]], dtype=dtype)
    x = (points((160,), dtype=dtype) - 0.5) * length[:, None]
    first = soliton(x, torch.zeros(2, 1, dtype=dtype), speed)
    found = solve(KdV(), first[:, None], [2.0], 0.01, box=Box(length[:, None], unit))
    exact = soliton(x, 2 * unit[:, None], speed)
    assert found.dtype == dtype
    assert relative(found[:, 0, 0], exact) < (1e-6 if dtype == torch.float64 else 3e-5)
    assert relative(first, exact) > 0.5  # standing still is seen


def test_kuramoto_sivashinsky_grows_and_damps_small_waves_at_their_rates() -> None:
    """``exp((kappa^2 - kappa^4) t)`` for each mode, while the waves are too small to meet."""
    length = torch.tensor([20.0, 40.0], dtype=torch.float64)
    unit = torch.tensor([1.0, 2.0], dtype=torch.float64)
    first = 1e-9 * EXAMPLES["kuramoto_sivashinsky"].states(48)
    box = Box(length[:, None], unit)
    found = solve(KuramotoSivashinsky(), first, [1.5], 0.1, box=box)[:, 0, 0]
    kappa = TWO_PI * torch.arange(4) / length[:, None]
    before = to_spectrum(first[:, 0], 1)[:, :4]
    expected = before * torch.exp((kappa**2 - kappa**4) * 1.5 * unit[:, None])
    assert relative(to_spectrum(found, 1)[:, :4], expected) < 1e-7
    assert relative(before, expected) > 0.1


# --- conservation ---------------------------------------------------------------------------------


def drift_of_means(example: Example, dtype: torch.dtype) -> float:
    """By how much the means of the conserved channels change, at most."""
    initial = example.states().to(dtype) + 0.05
    final = example.last(initial, 0.2, 100)
    assert relative(final, initial) > 0.01  # while the fields do change
    channels = example.equation.field_type().channels
    conserved = example.equation.conserves
    kept = [i for i, name in enumerate(channels) if conserved is None or name in conserved]
    change = final.flatten(2).mean(2) - initial.flatten(2).mean(2)
    return max((float(change[:, i].abs().max()) for i in kept), default=0.0)


@over_equations
def test_means_are_conserved(name: str, dtype: torch.dtype, tolerance: float) -> None:
    """Mean u, mass and momentum, mean vorticity: all are written in conservation form."""
    assert drift_of_means(EXAMPLES[name], dtype) < tolerance


class Damped(Burgers):
    """Loses its mean, and says so."""

    conserves = ()

    def linear(self, kappa: Tensor) -> Tensor:
        return super().linear(kappa) - 0.5


class Leaky(Damped):
    """Broken: loses its mean and claims to conserve it."""

    conserves = ("u",)


def test_an_equation_may_declare_what_it_does_not_conserve_and_is_found_out_otherwise() -> None:
    example = EXAMPLES["burgers1d_smooth"]
    assert drift_of_means(replace(example, equation=Damped(1, 1e-2)), torch.float64) == 0
    assert drift_of_means(replace(example, equation=Leaky(1, 1e-2)), torch.float64) > 1e-3


def invariants(vorticity: Tensor) -> tuple[Tensor, Tensor]:
    """Energy and enstrophy, ``(B,)`` each."""
    shape = tuple(vorticity.shape[2:])
    weights = spectral_weights(shape, dtype=vorticity.dtype)
    power = to_spectrum(vorticity, 2).abs() ** 2 * weights
    k2 = (TWO_PI * wavenumbers(shape)).square().sum(dim=0).clamp_min(1.0)
    return 0.5 * (power / k2).flatten(1).sum(1), 0.5 * power.flatten(1).sum(1)


def inviscid_drift(steps: int) -> float:
    initial = EXAMPLES["navier_stokes_periodic"].states()
    final = last(NavierStokes(0.0), initial, 1.0, steps)
    assert relative(final, initial) > 0.3  # it moved a lot
    both = zip(invariants(final), invariants(initial), strict=True)
    return max(float((a / b - 1).abs().max()) for a, b in both)


def test_energy_and_enstrophy_drift_with_the_time_step_alone_without_viscosity() -> None:
    """The drift belongs to the time stepper: it vanishes at fourth order or faster."""
    coarse, fine = inviscid_drift(32), inviscid_drift(64)
    assert fine < 1e-6 and coarse / fine > 12


def test_viscosity_removes_energy_at_the_known_rate() -> None:
    """``dE/dt = -2 nu Z`` over a short time."""
    initial, nu, time = EXAMPLES["navier_stokes_periodic"].states(), 1e-2, 1e-3
    energy, enstrophy = invariants(initial)
    loss = energy - invariants(last(NavierStokes(nu), initial, time, 4))[0]
    torch.testing.assert_close(loss, 2 * nu * enstrophy * time, rtol=0.02, atol=0)


def test_kdv_conserves_mass_and_energy() -> None:
    initial = EXAMPLES["kdv"].states(96, batch=3) + 0.3
    box = Box(
        torch.tensor([[22.0], [30.0], [26.0]]).double(), torch.tensor([0.2, 0.3, 0.25]).double()
    )
    u = solve(KdV(), initial, [float(i) for i in range(6)], 1 / 48, box=box)[:, :, 0]
    for quantity in (u.mean(dim=2), u.square().mean(dim=2)):
        assert float((quantity - quantity[:, :1]).abs().max()) < 1e-7
    assert float((u[:, -1] - u[:, 0]).abs().max()) > 0.1  # while the waves do move


# --- continuous symmetries, by solving ------------------------------------------------------------


def symmetry_defect(
    example: Example, initial: Tensor, xi: Tensor, time: float, steps: int, factor: float = 1.0
) -> float:
    """``S_T(g u) - g S_T(u)``, relative; ``factor`` gives the solution another time than it has."""
    group, equation = example.equation.group, example.equation
    moved = group.act(example.field(initial), xi)
    solved = solve(equation, moved.values, [time], time / steps, box=moved.box)[:, 0]
    final = example.last(initial, time, steps)
    return relative(solved, group.act(example.field(final, factor * time), xi).values)


@over_exact
def test_solving_a_moved_state_is_moving_the_solution(name: str) -> None:
    example = EXAMPLES[name]
    initial, xi, time = example.states(n=48, top=3), example.elements(2), example.moving
    spatial = torch.arange(xi.shape[1]) < example.equation.group.spatial
    assert symmetry_defect(example, initial, xi, time, 240) < example.allowed
    assert symmetry_defect(example, initial, xi * spatial, time, 120) < example.allowed
    assert symmetry_defect(example, initial, xi * ~spatial, time, 240) < example.allowed


@over_exact
@pytest.mark.parametrize("factor", [-1.0, 0.0, 0.5], ids=["other sign", "no time", "half of it"])
def test_a_wrong_terminal_frame_fails_by_a_lot(name: str, factor: float) -> None:
    """The other sign is what the text of the paper's appendix says; its table is right."""
    example = EXAMPLES[name]
    initial, xi = example.states(n=48, top=3), example.elements(2)
    assert symmetry_defect(example, initial, xi, example.moving, 50, factor) > 0.01


def test_viscosity_on_the_momentum_alone_would_break_the_boost() -> None:
    class MomentumOnly(ShallowWater):
        def linear(self, kappa: Tensor) -> Tensor:
            viscous = torch.tensor([0.0, 1.0, 1.0], dtype=kappa.dtype)[:, None, None]
            return super().linear(kappa) * viscous

    example = replace(EXAMPLES["shallow_water"], equation=MomentumOnly(0.02, 1.0))
    assert symmetry_defect(example, example.states(top=3), example.elements(2), 0.1, 100) > 1e-4


@pytest.mark.parametrize(
    "name", ["navier_stokes", "navier_stokes_periodic", "navier_stokes_velocity"]
)
def test_shifts_quarter_turns_and_boosts_commute_with_the_flow(name: str) -> None:
    example = EXAMPLES[name]
    initial, xi = example.states(top=8, batch=4), example.elements(4)
    xi[:, 2] = torch.arange(4, dtype=torch.float64) * math.pi / 2
    steps = 240 if example.equation.group.moves_in_time else 30  # a boost is not exact in steps
    assert symmetry_defect(example, initial, xi, 0.3, steps) < 1e-10


def test_a_generic_rotation_of_a_periodic_field_does_not_commute_with_the_flow() -> None:
    example = EXAMPLES["navier_stokes_periodic"]
    xi = torch.tensor([[0.0, 0.0, 0.6]], dtype=torch.float64).expand(4, 3)
    assert 0.05 < symmetry_defect(example, example.states(n=48, batch=4), xi, 2.0, 60) < 1


# --- finite symmetries, by solving ----------------------------------------------------------------

HOLOHEDRY = {1: "z2", 2: "p4m", 3: "cube"}  # all that carry a grid of a square box onto itself


def point_group_defect(example: Example, group: PointGroup, channels: str, odd: bool) -> Tensor:
    """The difference for each element, relative to how much the state changes; 1 where the solver
    refuses the moved state.
    """
    n = (48 if example.equation.dim == 1 else 16) + odd
    raw = example.draw(torch.Generator().manual_seed(0), (n,) * example.equation.dim)[None]
    rho = representation(group, channels, raw.shape[1])

    def final(state: Tensor) -> Tensor:
        return example.last(state, 8 * example.step, 8)

    made = final(raw)
    change, found = (made - raw).norm(), []
    for g in range(group.order):
        try:
            moved = final(group.move(raw, g, rho)) - group.move(made, g, rho)
            found.append(float(moved.norm() / change))
        except SolverError:
            found.append(1.0)
    return torch.tensor(found)


@pytest.mark.parametrize("odd", [False, True], ids=["even", "odd"])
@over_equations
def test_the_solver_commutes_with_the_point_group_of_its_equation(name: str, odd: bool) -> None:
    equation = EXAMPLES[name].equation
    group = POINT_GROUPS[equation.point_group]
    assert float(point_group_defect(EXAMPLES[name], group, equation.channels, odd).max()) < 1e-10


@over_equations
def test_the_point_group_of_an_equation_is_all_that_it_has(name: str) -> None:
    """Of all maps of the square box, with and without a change of sign, it has just these."""
    equation = EXAMPLES[name].equation
    own = POINT_GROUPS[equation.point_group]
    names = [channel.how for channel in equation.field_type().quantities]
    speeds = any(how.carries == "the diagonal" for how in names)
    # A speed has no sign of its own under maps that leave its line: try both.
    channels = "u: scalar" if speeds else equation.channels
    everything = POINT_GROUPS[HOLOHEDRY[equation.dim]]
    signs = element(everything.matrices[0], sign=-1)
    whole = PointGroup.generated("all", *everything.elements, signs)
    kept = point_group_defect(EXAMPLES[name], whole, channels, False) < 1e-10
    found = {
        (g.matrix, g.sign) for g, yes in zip(whole.elements, kept.tolist(), strict=True) if yes
    }
    rho = representation(own, "u: speed", 1).flatten().tolist() if speeds else [1.0] * own.order
    assert found == {(m, int(sign)) for m, sign in zip(own.matrices, rho, strict=True)}


class KolmogorovFlow(NavierStokes):
    """Stirred by ``cos(2 pi y)``, which only a mirror of x with half a period along y keeps."""

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        inner = super().nonlinear(kappa, shape)
        force = to_spectrum(torch.cos(2 * math.pi * points(shape)[1])[None, None], 2)
        return lambda spectrum: inner(spectrum) + force


def test_a_stirred_flow_has_a_glide_and_neither_its_mirror_nor_its_shift() -> None:
    example = replace(EXAMPLES["navier_stokes"], equation=KolmogorovFlow(1e-2))
    mirror = ((-1, 0), (0, 1))
    for moved, low, high in (((0, 0.5), 0.0, 1e-10), (0.0, 1e-3, 10.0), ((0, 0.25), 1e-3, 10.0)):
        group = PointGroup.generated("glide", element(mirror, moved))
        defect = float(point_group_defect(example, group, "w: pseudoscalar", False).max())
        assert low <= defect < high


@pytest.mark.parametrize(
    ("name", "group", "channels"),
    [
        ("burgers1d", "z2", "u: scalar"),
        ("burgers2d", "p4", "u: scalar"),
        ("burgers2d", "diagonal", "u: scalar"),
        ("shallow_water", "p4", "h: scalar, mx: scalar, my: scalar"),
        ("navier_stokes", "p4m", "vorticity: scalar"),
        ("kdv", "z2", "u: speed"),
        ("kdv", "z2", "u: scalar"),
        ("kuramoto_sivashinsky", "z2", "u: scalar"),
    ],
)
def test_the_solver_does_not_commute_with_a_false_symmetry(
    name: str, group: str, channels: str
) -> None:
    defect = point_group_defect(EXAMPLES[name], POINT_GROUPS[group], channels, False)
    assert float(defect.max()) > 1e-2


# --- states ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [[0.1], [0.0, 0.1]])
def test_water_without_height_is_an_error_before_the_first_step(times: list[float]) -> None:
    state = torch.ones(3, 3, 16, 16)
    state[2, 0] = 1 + 1.5 * torch.cos(TWO_PI * points((16, 16), dtype=torch.float32)[0])
    expected = r"shallow_water: sample 2 .* time 0 \(1 of 3 samples; step size 0\.01\)"
    with pytest.raises(SolverError, match=expected):
        solve(ShallowWater(1e-3, 1.0), state, times, 0.01)


def test_a_draw_does_not_depend_on_the_grid() -> None:
    coarse, fine = (
        gaussian_field((n, n), generator_for("key"), tau=5.0, gamma=3.0, cutoff=10)
        for n in (32, 96)
    )
    torch.testing.assert_close(fine[::3, ::3], coarse, atol=1e-14, rtol=0)
    assert abs(float(fine.mean())) < 1e-16


def test_a_generator_depends_on_its_key_alone() -> None:
    draws = [
        draw_wave(generator_for(*key), (32,)) for key in ((1, "a", 2), (1, "a", 2), (1, "a", 3))
    ]
    assert torch.equal(draws[0], draws[1]) and relative(draws[2], draws[0]) > 0.1


@pytest.mark.parametrize("dim", [1, 2])
def test_the_spectrum_of_a_gaussian_field_is_the_stated_one(dim: int) -> None:
    sigma, tau, gamma, shape = 3.0, 4.0, 2.0, (9,) * dim
    options = {"tau": tau, "gamma": gamma, "sigma": sigma}
    draws = [gaussian_field(shape, generator_for(i), cutoff=4, **options) for i in range(3000)]
    power = (to_spectrum(torch.stack(draws), dim).abs() ** 2).mean(dim=0)
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
