"""The laws of a group action, over the registry: a group is tested the moment it is registered.

Each law is a function that measures by how much it is violated, so the same function is shown to fail on a group that
was broken on purpose.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pacefno.grid import FieldError, band_limit, from_spectrum, points, to_spectrum, wavenumbers
from pacefno.symmetry import GROUPS, Euclidean, Galilean, Group, Translation, Trivial, motion
from pacefno.symmetry.galilean import MomentumBoost
from pacefno.symmetry.motion import half_turn, quarter_turn, shear, turn_each
from pacefno.symmetry.translation import shift

GRIDS: dict[int, list[tuple[int, ...]]] = {
    1: [(32,), (33,)],
    2: [(24, 24), (25, 25), (24, 30), (27, 20), (20, 21)],
    3: [(8, 9, 10)],
}
CASES = [(name, shape) for name, make in GROUPS.items() for shape in GRIDS[make().dim]]
EXACT = [(name, shape) for name, shape in CASES if not isinstance(GROUPS[name](), Euclidean)]
TURN = math.pi / 2
over_groups = pytest.mark.parametrize(("name", "shape"), CASES)
over_names = pytest.mark.parametrize("name", list(GROUPS))


def has_momentum(group: Group) -> bool:
    return isinstance(group, Galilean) and isinstance(group.boost, MomentumBoost)


def field_for(group: Group, shape: tuple[int, ...], dtype: torch.dtype = torch.float64, top: int = 6, batch: int = 5) -> Tensor:
    """Random band-limited fields of order one; with momenta, the height stays positive."""
    generator = torch.Generator().manual_seed(3)
    channels = 1 + group.dim if has_momentum(group) else 2
    white = torch.randn(batch, channels, *shape, dtype=torch.float64, generator=generator)
    field = band_limit(white, group.dim, top)
    if has_momentum(group):
        field[:, 0] = 2 + 0.2 * field[:, 0]
    return field.to(dtype)


def elements(group: Group, dtype: torch.dtype = torch.float64, batch: int = 5, seed: int = 5, size: float = 0.75) -> Tensor:
    """Random elements that reach beyond half a period."""
    high = [1.5 if math.isinf(period) else size * period for period in group.periods]
    return group.sample([0.0] * group.size, high, batch, torch.Generator().manual_seed(seed)).to(dtype)


def worst(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max()) if a.numel() else 0.0


# --- the laws


def identity_law(group: Group, u: Tensor) -> float:
    e = group.identity(len(u), dtype=u.dtype)
    return max(worst(group.act(u, e), u), worst(group.inverse(u, e), u))


def inverse_law(group: Group, u: Tensor, xi: Tensor) -> float:
    return max(worst(group.inverse(group.act(u, xi), xi), u), worst(group.act(group.inverse(u, xi), xi), u))


def composition_law(group: Group, u: Tensor, xi: Tensor, eta: Tensor) -> float:
    """Relative, so that it can be read as a percentage where it is no law."""
    difference = group.act(group.act(u, eta), xi) - group.act(u, group.compose(xi, eta))
    return float(difference.norm() / u.norm())


def inverse_element_law(group: Group, xi: Tensor) -> float:
    e = group.identity(len(xi), dtype=xi.dtype)
    left, right = group.compose(group.inverse_element(xi), xi), group.compose(xi, group.inverse_element(xi))
    return max(worst(group.difference(left, e), e), worst(group.difference(right, e), e))


def unitary_law(group: Group, u: Tensor, xi: Tensor) -> float:
    """Spatial coordinates preserve the inner product; boosts are set to zero."""
    xi = torch.cat([xi[:, : group.spatial], torch.zeros_like(xi[:, group.spatial :])], dim=1)
    moved, other = group.act(u, xi), group.act(u.flip(1), xi)
    energy = worst(moved.square().flatten(1).mean(1), u.square().flatten(1).mean(1))
    return max(energy, worst((moved * other).flatten(1).mean(1), (u * u.flip(1)).flatten(1).mean(1)))


def batch_law(group: Group, u: Tensor, xi: Tensor) -> float:
    loop = [(group.act(u[i : i + 1], xi[i : i + 1]), group.inverse(u[i : i + 1], xi[i : i + 1])) for i in range(len(u))]
    there, back = (torch.cat(list(parts)) for parts in zip(*loop, strict=True))
    return max(worst(group.act(u, xi), there), worst(group.inverse(u, xi), back))


def tangent_law(group: Group, u: Tensor, xi: Tensor) -> float:
    """Forward-mode derivatives in the coordinates against central differences."""
    direction, h = elements(group, seed=9), 1e-6
    error = 0.0
    for move in (group.act, group.inverse):
        _, tangent = torch.func.jvp(lambda x, move=move: move(u, x), (xi,), (direction,))
        numeric = (move(u, xi + h * direction) - move(u, xi - h * direction)) / (2 * h)
        error = max(error, worst(tangent, numeric) / float(1 + numeric.abs().max()))
    return error


def energy_law(group: Group, u: Tensor, xi: Tensor) -> float:
    """A boost adds the energy that is known: ``2 c <u> + c^2``, or ``2 V <h m> + V^2 <h^2>`` with momenta."""
    assert isinstance(group, Galilean)
    _, v = group.split(xi)
    gained = group.act(u, xi).square().flatten(2).mean(2) - u.square().flatten(2).mean(2)
    if has_momentum(group):
        h, m = u[:, :1].flatten(2), u[:, 1:].flatten(2)
        known = torch.cat([torch.zeros_like(v[:, :1]), 2 * v * (h * m).mean(2) + v**2 * (h * h).mean(2)], dim=1)
    else:
        known = 2 * v * u.flatten(2).mean(2) + v**2
    return worst(gained, known)


# --- the laws hold


@over_groups
def test_the_identity_does_nothing(name: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    group = GROUPS[name]()
    assert identity_law(group, field_for(group, shape, dtype)) < tolerance


@over_groups
def test_the_inverse_undoes_the_action_and_the_action_the_inverse(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    group = GROUPS[name]()
    assert inverse_law(group, field_for(group, shape, dtype), elements(group, dtype)) < tolerance
    white = field_for(group, shape, dtype, top=max(shape))  # every mode, Nyquist too
    assert inverse_law(group, white, elements(group, dtype)) < tolerance


@pytest.mark.parametrize(("name", "shape"), EXACT)
def test_actions_compose_like_their_elements(name: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    group = GROUPS[name]()
    xi, eta = elements(group, dtype), elements(group, dtype, seed=6)
    assert composition_law(group, field_for(group, shape, dtype), xi, eta) < tolerance


@pytest.mark.parametrize(("name", "shape"), EXACT)
def test_the_inverse_element_acts_as_the_inverse(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    group = GROUPS[name]()
    u, xi = field_for(group, shape, dtype), elements(group, dtype)
    assert worst(group.act(u, group.inverse_element(xi)), group.inverse(u, xi)) < tolerance


@over_names
def test_an_element_times_its_inverse_is_the_identity(name: str, dtype: torch.dtype, tolerance: float) -> None:
    group = GROUPS[name]()
    assert inverse_element_law(group, elements(group, dtype, batch=50)) < tolerance


@over_names
def test_the_product_is_associative(name: str, dtype: torch.dtype, tolerance: float) -> None:
    group = GROUPS[name]()
    a, b, c = (elements(group, dtype, seed=seed, size=0.1) for seed in (1, 2, 3))
    left, right = group.compose(group.compose(a, b), c), group.compose(a, group.compose(b, c))
    assert worst(group.difference(left, right), torch.zeros_like(a)) < tolerance


@over_groups
def test_spatial_actions_are_unitary(name: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    group = GROUPS[name]()
    assert unitary_law(group, field_for(group, shape, dtype), elements(group, dtype)) < tolerance


@pytest.mark.parametrize(("name", "shape"), [case for case in CASES if isinstance(GROUPS[case[0]](), Galilean)])
def test_boosts_add_exactly_the_known_energy(name: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    group = GROUPS[name]()
    assert energy_law(group, field_for(group, shape, dtype), elements(group, dtype)) < 2 * tolerance


@over_groups
def test_a_batch_is_a_loop_over_its_samples(name: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    group = GROUPS[name]()
    assert batch_law(group, field_for(group, shape, dtype), elements(group, dtype)) < tolerance


@over_groups
def test_kinematic_coordinates_change_by_the_boost(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    group = GROUPS[name]()
    u, xi = field_for(group, shape, dtype, top=2), elements(group, dtype)
    gained = group.kinematic(group.act(u, xi)) - group.kinematic(u)
    # m / h is sampled at other points after a shift: equal up to the aliasing of 1/h
    assert worst(gained, xi[:, group.spatial :]) < (max(tolerance, 1e-6) if has_momentum(group) else tolerance)


@over_groups
def test_forward_derivatives_in_the_coordinates_are_right(name: str, shape: tuple[int, ...]) -> None:
    group = GROUPS[name]()
    assert tangent_law(group, field_for(group, shape, top=3), elements(group)) < 1e-7


@over_names
@pytest.mark.parametrize("odd", [False, True], ids=["even", "odd"])
def test_gradients_in_field_and_coordinates_pass_gradcheck(name: str, odd: bool) -> None:
    group = GROUPS[name]()
    shape = ((5, 5) if odd else (6, 4))[: group.dim]
    u = field_for(group, shape, top=9, batch=2)[:, : 3 if has_momentum(group) else 1].requires_grad_()
    xi = elements(group, batch=2).requires_grad_(group.size > 0)
    assert torch.autograd.gradcheck(group.act, (u, xi))
    assert torch.autograd.gradcheck(group.inverse, (u, xi))


@over_names
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single_and_returned_as_it_came(name: str, half: torch.dtype) -> None:
    group = GROUPS[name]()
    shape = GRIDS[group.dim][-1]
    u, xi = field_for(group, shape).to(half), elements(group)
    eps = torch.finfo(half).eps
    for move in (group.act, group.inverse):
        assert move(u, xi).dtype == half
        assert worst(move(u, xi).float(), move(u.float(), xi)) < 8 * eps * float(1 + u.abs().max())


@over_names
def test_autocast_reaches_neither_fields_nor_coordinates(name: str) -> None:
    group = GROUPS[name]()
    u, xi, eta = (
        field_for(group, GRIDS[group.dim][0], torch.float32),
        elements(group, torch.float32),
        elements(group, torch.float32),
    )
    plain = [
        group.act(u, xi),
        group.inverse(u, xi),
        group.compose(xi, eta),
        group.inverse_element(xi),
        group.transport(xi, 0.3),
    ]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = [
            group.act(u, xi),
            group.inverse(u, xi),
            group.compose(xi, eta),
            group.inverse_element(xi),
            group.transport(xi, 0.3),
        ]
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


# --- each law fails on a group that breaks it


class Displaced(Translation):
    def act(self, field: Tensor, xi: Tensor) -> Tensor:
        return shift(field, xi + 0.01)


class Repeated(Translation):
    inverse = Translation.act


class TurnedNyquist(Translation):
    """Every mode shifted, the Nyquist mode too, which a real field cannot hold."""

    def act(self, field: Tensor, xi: Tensor) -> Tensor:
        k = wavenumbers(field.shape[2:], dtype=xi.dtype)
        phase = torch.exp(-2j * math.pi * torch.tensordot(xi, k, 1))[:, None]
        return from_spectrum(to_spectrum(field, self.dim) * phase, field.shape[2:])

    def inverse(self, field: Tensor, xi: Tensor) -> Tensor:
        return self.act(field, -xi)


class ByInverseElement(Euclidean):
    """Rotating back by the opposite angle: right in the plane, wrong on the torus."""

    def inverse(self, field: Tensor, xi: Tensor) -> Tensor:
        return self.act(field, self.inverse_element(xi))


class Resampled(Euclidean):
    """Quarter turns of a grid that is not square by resampling alone: it loses what one axis cannot hold."""

    def act(self, field: Tensor, xi: Tensor) -> Tensor:
        return shift(quarter_turn(field), xi[:, :2])

    def inverse(self, field: Tensor, xi: Tensor) -> Tensor:
        return half_turn(quarter_turn(shift(field, -xi[:, :2])))


class Backwards(Translation):
    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        return self.wrap(xi - eta)


class WrappedInverse(Euclidean):
    def inverse_element(self, xi: Tensor) -> Tensor:
        return self.wrap(super().inverse_element(xi))


class Damped(Translation):
    def act(self, field: Tensor, xi: Tensor) -> Tensor:
        return 0.999 * shift(field, xi)


class FirstOnly(Translation):
    def act(self, field: Tensor, xi: Tensor) -> Tensor:
        return shift(field, xi[:1].expand_as(xi))


class Detached(Translation):
    def act(self, field: Tensor, xi: Tensor) -> Tensor:
        return shift(field, xi.detach())


class DoubleBoost(Galilean):
    def act(self, field: Tensor, xi: Tensor) -> Tensor:
        return super().act(field, torch.cat([xi[:, : self.dim], 2 * xi[:, self.dim :]], dim=1))


def broken(group: Group, shape: tuple[int, ...], top: int = 6) -> tuple[Group, Tensor, Tensor]:
    return group, field_for(group, shape, top=top), elements(group)


def test_the_identity_law_fails_for_an_action_that_displaces() -> None:
    assert identity_law(*broken(Displaced(1), (32,))[:2]) > 1e-2


def test_the_inverse_law_fails_for_every_wrong_inverse() -> None:
    assert inverse_law(*broken(Repeated(1), (32,))) > 1e-1
    assert inverse_law(*broken(TurnedNyquist(2), (16, 16), top=16)) > 1e-2
    assert inverse_law(*broken(ByInverseElement(), (24, 24))) > 1e-1
    assert inverse_law(*broken(Resampled(), (24, 30), top=30)) > 1e-1


def test_the_composition_law_fails_for_a_wrong_product() -> None:
    group, u, xi = broken(Backwards(2), (24, 30))
    assert composition_law(group, u, xi, elements(group, seed=6)) > 1e-1


def test_the_inverse_element_law_fails_when_a_turned_translation_is_wrapped() -> None:
    assert inverse_element_law(WrappedInverse(), elements(Euclidean(), batch=50)) > 1e-1


def test_the_unitary_law_fails_for_a_lossy_action() -> None:
    assert unitary_law(*broken(Damped(2), (24, 24))) > 1e-4


def test_the_batch_law_fails_when_one_element_serves_all() -> None:
    assert batch_law(*broken(FirstOnly(1), (33,))) > 1e-1


def test_the_derivative_laws_fail_for_a_detached_coordinate() -> None:
    group, u, xi = broken(Detached(1), (16,), top=2)
    assert tangent_law(group, u, xi) > 1e-1
    assert not torch.autograd.gradcheck(group.act, (u, xi.requires_grad_()), raise_exception=False)


def test_the_energy_law_fails_for_a_boost_of_another_size() -> None:
    assert energy_law(*broken(DoubleBoost(1), (32,))) > 1e-1


# --- rotations: what is a law, what is nearly one, and by how much it fails


def bump(shape: tuple[int, ...], centre: tuple[float, float], width: float = 0.05) -> Tensor:
    x, y = points(shape)
    return torch.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * width**2))[None, None]


@pytest.mark.parametrize("n", [24, 25])
def test_quarter_turns_with_translations_compose_exactly_on_square_grids(n: int, dtype: torch.dtype, tolerance: float) -> None:
    group = Euclidean()
    xi, eta = elements(group, dtype, batch=16), elements(group, dtype, batch=16, seed=6)
    quarters = torch.cartesian_prod(torch.arange(4), torch.arange(4)).to(dtype) * TURN
    xi[:, 2], eta[:, 2] = quarters[:, 0], quarters[:, 1]
    assert composition_law(group, field_for(group, (n, n), dtype, batch=16), xi, eta) < tolerance


@pytest.mark.parametrize("shape", [(64, 64), (65, 65), (64, 80)])
def test_rigid_motions_of_a_compact_bump_compose(shape: tuple[int, ...]) -> None:
    group = Euclidean()
    u = (bump(shape, (0.55, 0.47)) - 0.5 * bump(shape, (0.46, 0.55), 0.04)).expand(20, -1, -1, -1)
    scale = torch.tensor([0.2, 0.2, 1.3])
    xi, eta = (elements(group, batch=20, seed=seed) * scale for seed in (1, 2))
    assert composition_law(group, u, xi, eta) < 1e-8  # measured: 1e-11 or less
    assert worst(group.act(group.act(u, xi), group.inverse_element(xi)), u) < 1e-7


@pytest.mark.parametrize("n", [32, 33, 64])
def test_generic_rotations_of_a_periodic_field_do_not_compose(n: int) -> None:
    """Not a group on the torus: pinned from both sides, so that nobody believes otherwise (measured 0.52 to 0.76)."""
    group = Euclidean()
    u = field_for(group, (n, n))
    angle = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand(len(u), 3)
    assert 0.4 < composition_law(group, u, 0.5 * angle, 0.7 * angle) < 0.9


@pytest.mark.parametrize("shape", [(64, 64), (65, 65), (64, 80)])
@pytest.mark.parametrize("degrees", [90, -90, 180, 270, 30, -44, 45, 46, 100, -170])
def test_a_positive_angle_turns_counter_clockwise_about_the_centre(shape: tuple[int, ...], degrees: float) -> None:
    theta = math.radians(degrees)
    moved = (0.5 + 0.2 * math.cos(theta), 0.5 + 0.2 * math.sin(theta))  # (0.7, 0.5) goes to (0.5, 0.7) at 90 degrees
    xi = torch.tensor([[0.0, 0.0, theta]], dtype=torch.float64)
    assert worst(Euclidean().act(bump(shape, (0.7, 0.5)), xi), bump(shape, moved)) < 1e-5


def test_a_quarter_turn_is_index_arithmetic() -> None:
    field = torch.zeros(1, 1, 10, 10)
    field[0, 0, 7, 5] = 1  # the point (0.7, 0.5)
    assert quarter_turn(field).nonzero()[0, 2:].tolist() == [5, 7]
    white = torch.randn(4, 2, 9, 9, generator=torch.Generator().manual_seed(0))
    four = quarter_turn(quarter_turn(quarter_turn(quarter_turn(white))))
    assert torch.equal(four, white) and torch.equal(quarter_turn(quarter_turn(white)), half_turn(white))
    turned = torch.stack([white[0], quarter_turn(white)[1], half_turn(white)[2], quarter_turn(half_turn(white))[3]])
    assert torch.equal(turn_each(white, torch.arange(4)), turned)


def test_rotation_then_translation_in_this_order() -> None:
    xi = torch.tensor([[0.1, 0.05, TURN]], dtype=torch.float64)
    assert worst(Euclidean().act(bump((64, 64), (0.7, 0.5)), xi), bump((64, 64), (0.6, 0.75))) < 1e-5


@pytest.mark.parametrize("shape", [(16, 16), (15, 15), (12, 16)])
@pytest.mark.parametrize("entries", [2**18, 2**11, 1])  # all samples at once, a few, one by one
def test_a_motion_does_not_depend_on_how_it_is_cut_into_pieces(
    shape: tuple[int, int], entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Euclidean()
    field = torch.randn(8, 3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    xi = torch.rand(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 0.5
    quarters = torch.tensor([0, 0, 0, 1, 3, 1, 0, 2])
    xi[:, 2] = 0.2 + quarters.double() * TURN
    turned = turn_each(field, quarters)
    plain = group.act(turned, torch.cat([xi[:, :2], torch.full((8, 1), 0.2, dtype=torch.float64)], dim=1))
    monkeypatch.setattr(motion, "PIECE_ENTRIES", entries)
    assert torch.allclose(group.act(field, xi), plain, atol=1e-12)
    assert torch.allclose(group.inverse(plain, xi), field, atol=1e-12)


@pytest.mark.parametrize("shape", [(16, 16), (15, 15), (12, 16), (16, 11)])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_a_motion_is_quarter_turns_then_three_shears_then_a_shift(shape: tuple[int, int], channels: int) -> None:
    """The paper's product, factor by factor, of a field that no symmetry helps."""
    field = torch.randn(8, channels, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    place = torch.rand(8, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rest = torch.linspace(-0.7, 0.7, 8, dtype=torch.float64)
    quarters = torch.tensor([0, 1, 2, 3, 3, 2, 1, 0])
    moved = turn_each(field, quarters)
    for slope, axis in ((-torch.tan(rest / 2), 0), (torch.sin(rest), 1), (-torch.tan(rest / 2), 0)):
        moved = shear(moved, slope, axis)
    xi = torch.cat([place, (rest + quarters.double() * TURN)[:, None]], dim=1)
    assert torch.allclose(Euclidean().act(field, xi), shift(moved, place), atol=1e-12)
    assert torch.allclose(Euclidean().inverse(shift(moved, place), xi), field, atol=1e-12)


@pytest.mark.parametrize("sizes", [(1e5, 1.0), (1e5, 0.0), (1e20, 1.0), (1.0, 1e-25), (1e5, 1.0, 1e-4, 0.0), (30.0, 1.0)])
def test_a_large_channel_does_not_drown_a_small_one(sizes: tuple[float, ...]) -> None:
    """Channels of one size are moved in pairs; a pressure in pascals must not cost a velocity its digits, nor its gradient."""
    group = Euclidean()
    size = torch.tensor(sizes)
    field = size[:, None, None] * torch.randn(6, len(sizes), 16, 16, generator=torch.Generator().manual_seed(0))
    xi = elements(group, torch.float32, batch=6)
    alike = max(sizes) < 64 * min(sizes)
    for step, back in ((group.act, group.inverse), (group.inverse, group.act)):
        moved = step(field.requires_grad_(), xi)
        gradient = torch.autograd.grad(moved, field, moved.detach())[0]  # unitary: the derivative is the way back
        for result, wanted in ((moved, step), (gradient, back)):
            start = field if wanted is step else moved
            alone = torch.cat([wanted(channel, xi) for channel in start.split(1, dim=1)], dim=1)
            tolerance = 4e-6 * (size.amax() if alike else size)
            assert ((result - alone).abs().amax(dim=(0, 2, 3)) <= tolerance).all()


def test_what_is_not_finite_stays_in_its_channel_and_sample() -> None:
    group = Euclidean()
    field = torch.ones(3, 2, 8, 8)
    field[1, 0, 2, 3] = math.nan
    moved = group.act(field, elements(group, torch.float32, batch=3))
    assert moved.isnan().flatten(2).any(dim=2).tolist() == [[False, False], [True, False], [False, False]]


def test_gradients_flow_through_pairs_and_every_quarter_turn() -> None:
    group = Euclidean()
    field = torch.randn(5, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    xi = elements(group, batch=5)
    xi[:, 2] = 0.3 + TURN * torch.tensor([2.0, 1.0, 0.0, 3.0, 1.0], dtype=torch.float64)
    for step in (group.act, group.inverse):
        assert torch.autograd.gradcheck(step, (field, xi.requires_grad_()), fast_mode=True)


@given(st.floats(-10, 10))
def test_a_rotation_depends_on_the_angle_modulo_a_full_turn(theta: float) -> None:
    if abs(math.remainder(theta - math.pi / 4, TURN)) < 1e-3:
        return  # here the rest of the angle changes sign, and with it the order in which a periodic field is torn
    group, u = Euclidean(), field_for(Euclidean(), (12, 12), top=3, batch=1)
    angle, full = (torch.tensor([[0.0, 0.0, value]], dtype=torch.float64) for value in (theta, theta + 2 * math.pi))
    assert worst(group.act(u, angle), group.act(u, full)) < 1e-10


@pytest.mark.parametrize("degrees", [90, 180, 37, -120])
def test_vector_channels_turn_with_the_field(degrees: float) -> None:
    """The gradient of a moved scalar is the moved gradient."""
    scalar, vector = Euclidean(), Euclidean(vectors=((1, 2),))
    shape = (64, 64)
    xi = torch.tensor([[0.08, -0.11, math.radians(degrees)]], dtype=torch.float64)

    def with_gradient(u: Tensor) -> Tensor:
        slope = from_spectrum(to_spectrum(u, 2) * (2j * math.pi * wavenumbers(shape)), shape)
        return torch.cat([u, slope], dim=1)

    u = bump(shape, (0.55, 0.47))
    assert worst(vector.act(with_gradient(u), xi), with_gradient(scalar.act(u, xi))) < 1e-7
    assert worst(scalar.act(with_gradient(u), xi), with_gradient(scalar.act(u, xi))) > 1  # components left behind
    mixed = field_for(scalar, (20, 21)).repeat(1, 2, 1, 1)[:, :3]
    assert inverse_law(vector, mixed, elements(vector)) < 1e-12


def test_the_x_direction_turns_into_the_y_direction() -> None:
    field = torch.tensor([1.0, 0.0]).reshape(1, 2, 1, 1).expand(1, 2, 8, 8)
    turned = Euclidean(vectors=((0, 1),)).act(field, torch.tensor([[0.0, 0.0, TURN]]))
    torch.testing.assert_close(turned[0, :, 0, 0], torch.tensor([0.0, 1.0]))


def test_vector_channels_that_do_not_exist_are_named() -> None:
    with pytest.raises(FieldError, match=r"\(\(0, 1\),\) do not exist in 1 channels"):
        Euclidean(vectors=((0, 1),)).act(torch.zeros(1, 1, 8, 8), torch.zeros(1, 3))


# --- translations and boosts: direction and transport


@pytest.mark.parametrize("name", [name for name, make in GROUPS.items() if not isinstance(make(), Trivial)])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_positive_translation_moves_content_forwards(name: str, axis: int) -> None:
    group = GROUPS[name]()
    if axis >= group.dim:
        return
    shape = (48, 40)[: group.dim]

    def crest(at: float) -> Tensor:
        profile = torch.exp(3 * torch.cos(2 * math.pi * (points(shape)[axis] - at)))
        return torch.stack([profile] * (1 + group.dim if has_momentum(group) else 1))[None]

    xi = group.identity(1, dtype=torch.float64)
    xi[0, axis] = 0.27
    assert worst(group.act(crest(0.3), xi), crest(0.57)) < 1e-6


def test_boosts_do_what_their_channels_need() -> None:
    u = torch.ones(1, 1, 4)
    assert torch.equal(Galilean(1).act(u, torch.tensor([[0.0, 0.5]])), u + 0.5)
    h = torch.tensor([2.0, 1.0, 3.0]).reshape(1, 3, 1, 1).expand(1, 3, 4, 4)
    boosted = Galilean(2, "momentum").act(h, torch.tensor([[0.0, 0.0, 0.5, -1.0]]))
    torch.testing.assert_close(boosted[0, :, 0, 0], torch.tensor([2.0, 2.0, 1.0]))


def test_the_background_velocity_is_the_mean_of_u_or_of_m_over_h() -> None:
    h = torch.tensor([1.0, 2.0, 4.0, 1.0]).expand(4, 4)
    field = torch.stack([h, torch.ones(4, 4), -2 * h])[None]
    torch.testing.assert_close(Galilean(2, "momentum").kinematic(field), torch.tensor([[2.75 / 4, -2.0]]))
    torch.testing.assert_close(Galilean(2).kinematic(h[None, None]), torch.tensor([[2.0]]))


def test_a_boost_becomes_a_shift_over_time(dtype: torch.dtype) -> None:
    xi = torch.tensor([[0.1, 0.2, 0.3], [0.4, -0.3, -0.5]], dtype=dtype)
    expected = torch.tensor([[0.25, 0.35, 0.3], [0.15, 0.45, -0.5]], dtype=dtype)
    torch.testing.assert_close(Galilean(2).transport(xi, 0.5), expected)
    momentum = torch.tensor([[0.1, 0.2, 0.3, -0.4]], dtype=dtype)
    expected = torch.tensor([[0.25, 0.0, 0.3, -0.4]], dtype=dtype)
    torch.testing.assert_close(Galilean(2, "momentum").transport(momentum, 0.5), expected)


def test_each_sample_may_have_its_own_horizon() -> None:
    xi = torch.tensor([[0.0, 0.0, 0.1], [0.0, 0.0, 0.2]])
    expected = torch.tensor([[0.1, 0.1, 0.1], [0.4, 0.4, 0.2]])
    for horizon in (torch.tensor([1.0, 2.0]), torch.tensor([[1.0], [2.0]])):
        torch.testing.assert_close(Galilean(2).transport(xi, horizon), expected)


@over_names
def test_without_boosts_the_frame_stays_and_transport_adds_up_over_time(name: str) -> None:
    group = GROUPS[name]()
    xi = group.wrap(elements(group))
    if group.size == group.spatial:
        assert torch.equal(group.transport(xi, 3.0), xi)
    twice = group.transport(group.transport(xi, 0.4), 0.5)
    assert worst(group.difference(twice, group.transport(xi, 0.9)), torch.zeros_like(xi)) < 1e-14


# --- coordinates


@over_names
def test_the_description_of_a_group_is_consistent(name: str) -> None:
    group = GROUPS[name]()
    assert group.size == len(group.coordinates) == len(group.periods) == len(set(group.coordinates))
    assert 0 <= group.spatial <= group.size and name.startswith(group.name)
    assert all(math.isinf(period) for period in group.periods[group.spatial :])
    assert group.identity(3).shape == (3, group.size) and group.kinematic(field_for(group, GRIDS[group.dim][0])).shape[0] == 5


@pytest.mark.parametrize("name", [name for name, make in GROUPS.items() if make().size])
@given(data=st.data())
def test_coordinates_wrap_and_compare_modulo_their_period(name: str, data: st.DataObject) -> None:
    group = GROUPS[name]()
    draw = data.draw(st.lists(st.floats(-20, 20), min_size=group.size, max_size=group.size))
    turns = data.draw(st.lists(st.integers(-5, 5), min_size=group.size, max_size=group.size))
    periods = torch.tensor([0.0 if math.isinf(p) else p for p in group.periods], dtype=torch.float64)
    xi = torch.tensor([draw], dtype=torch.float64)
    wrapped = group.wrap(xi)
    periodic = periods > 0
    assert bool((wrapped.abs()[:, periodic] <= periods[periodic] / 2 + 1e-12).all())
    assert torch.equal(wrapped[:, ~periodic], xi[:, ~periodic])
    images = xi + torch.tensor([turns]) * periods
    assert worst(group.difference(images, xi), torch.zeros_like(xi)) < 1e-12


def test_the_difference_of_neighbours_across_the_seam_is_small() -> None:
    difference = Euclidean().difference(torch.tensor([[0.49, -0.49, 3.1]]), torch.tensor([[-0.49, 0.49, -3.1]]))
    torch.testing.assert_close(difference, torch.tensor([[-0.02, 0.02, 6.2 - 2 * math.pi]]))


@over_names
def test_samples_fill_the_shell_with_fair_signs(name: str) -> None:
    group = GROUPS[name]()
    low, high = [0.1 + 0.1 * i for i in range(group.size)], [0.5 + 0.2 * i for i in range(group.size)]
    xi = group.sample(low, high, 4000, torch.Generator().manual_seed(0))
    assert xi.shape == (4000, group.size) and xi.dtype == torch.float64
    assert torch.equal(xi, group.sample(low, high, 4000, torch.Generator().manual_seed(0)))
    for column, a, b in zip(xi.unbind(1), low, high, strict=True):
        size = column.abs()
        assert a <= float(size.min()) < a + 0.01 * (b - a) and b - 0.01 * (b - a) < float(size.max()) <= b
        assert abs(float(size.mean()) - (a + b) / 2) < 0.03 * (b - a)
        assert abs(float((column > 0).double().mean()) - 0.5) < 0.05
        assert abs(float(((size - size.mean()) * column.sign()).mean())) < 0.03 * (b - a)  # sign and size are independent


@pytest.mark.parametrize(
    ("low", "high"),
    [([0.2], [0.1]), ([-0.1], [0.1]), ([0.1], [math.nan]), ([math.nan], [0.1]), ([0.1], [math.inf])],
)
def test_bad_bounds_are_refused(low: list[float], high: list[float]) -> None:
    with pytest.raises(ValueError, match="0 <= low <= high"):
        Translation(1).sample(low, high, 2, torch.Generator())


def test_the_wrong_number_of_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected 2 bounds \('x', 'y'\), got 1 and 2"):
        Translation(2).sample([0.1], [0.2, 0.2], 2, torch.Generator())


@over_names
def test_coordinates_of_another_shape_are_refused(name: str) -> None:
    group = GROUPS[name]()
    u = field_for(group, GRIDS[group.dim][0])
    for shape in [(1, group.size), (5, group.size + 1), (group.size,), (5, group.size, 1)]:
        for move in (group.act, group.inverse):
            with pytest.raises(FieldError, match="one row per sample"):
                move(u, torch.zeros(shape))


@over_names
def test_fields_of_another_dimension_are_refused_instead_of_broadcast(name: str) -> None:
    group = GROUPS[name]()
    for shape in [(1, 3, 8), (1, 3, 8, 8), (1, 3, 8, 8, 8), (3, 8, 8)]:
        if len(shape) != group.dim + 2:
            with pytest.raises(FieldError, match=r"expected \(B, C"):
                group.act(torch.zeros(shape), torch.zeros(shape[0], group.size))


def test_wrong_momentum_channels_and_unknown_boosts_are_named() -> None:
    with pytest.raises(FieldError, match=r"\(h, mx, my\), got 1 channels"):
        Galilean(2, "momentum").act(torch.ones(1, 1, 8, 8), torch.zeros(1, 4))
    with pytest.raises(ValueError, match=r"\['momentum', 'scalar'\], got 'vector'"):
        Galilean(2, "vector")
