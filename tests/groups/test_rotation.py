"""Rotations of the torus: what is a law, what is nearly one, and by how much it fails."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pacefno.fields import Field, FieldType, Kind, Vector
from pacefno.grid import FieldError, from_spectrum, points, to_spectrum, wavenumbers
from pacefno.groups import Euclidean, _rotation, shift
from pacefno.groups._rotation import half_turn, quarter_turn, shear, turn_each
from pacefno.testing import composition_law, far_elements, inverse_law, largest, random_field

GROUP = Euclidean()
TURN = math.pi / 2


def scalars(values: Tensor) -> Field:
    """Values whose channels are all scalars, which a rotation only moves."""
    names = ", ".join(f"c{i}: scalar" for i in range(values.shape[1]))
    return Field(values, FieldType.parse(names, 2))


def act(values: Tensor, xi: Tensor) -> Tensor:
    return GROUP.act(scalars(values), xi).values


def inverse(values: Tensor, xi: Tensor) -> Tensor:
    return GROUP.inverse(scalars(values), xi).values


def white(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def waves(n: int, dtype: torch.dtype = torch.float64, batch: int = 5) -> Field:
    type = FieldType.parse("a: scalar, b: scalar", 2)
    return random_field(type, (n, n), batch=batch, top=6, dtype=dtype, seed=3)


def bump(shape: tuple[int, ...], centre: tuple[float, float], width: float = 0.05) -> Tensor:
    x, y = points(shape)
    return torch.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * width**2))[None, None]


# --- composition


@pytest.mark.parametrize("n", [24, 25])
def test_quarter_turns_with_translations_compose_exactly_on_square_grids(
    n: int, dtype: torch.dtype, tolerance: float
) -> None:
    xi, eta = far_elements(GROUP, 16, 5), far_elements(GROUP, 16, 6)
    quarters = torch.cartesian_prod(torch.arange(4), torch.arange(4)).double() * TURN
    xi[:, 2], eta[:, 2] = quarters[:, 0], quarters[:, 1]
    assert composition_law(GROUP, waves(n, dtype, batch=16), xi, eta) < tolerance


@pytest.mark.parametrize("shape", [(64, 64), (65, 65), (64, 80)])
def test_rigid_motions_of_a_compact_bump_compose(shape: tuple[int, ...]) -> None:
    values = bump(shape, (0.55, 0.47)) - 0.5 * bump(shape, (0.46, 0.55), 0.04)
    u = scalars(values.expand(20, -1, -1, -1))
    scale = torch.tensor([0.2, 0.2, 1.3])
    xi, eta = (far_elements(GROUP, 20, seed) * scale for seed in (1, 2))
    assert composition_law(GROUP, u, xi, eta) < 1e-8  # measured: 1e-11 or less
    back = GROUP.act(GROUP.act(u, xi), GROUP.inverse_element(xi))
    assert largest(back.values - u.values) < 1e-7


@pytest.mark.parametrize("n", [32, 33, 64])
def test_generic_rotations_of_a_periodic_field_do_not_compose(n: int) -> None:
    """Not a group on the torus: pinned from both sides, so that nobody believes otherwise.

    Measured 0.52 to 0.76.
    """
    u = waves(n)
    angle = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand(len(u), 3)
    assert 0.4 < composition_law(GROUP, u, 0.5 * angle, 0.7 * angle) < 0.9


def test_the_group_says_which_of_its_elements_compose() -> None:
    xi = far_elements(GROUP, 20)
    near = GROUP.composable(xi)
    assert torch.equal(near[:, :2], xi[:, :2])
    assert largest(torch.remainder(near[:, 2] / TURN + 0.5, 1) - 0.5) < 1e-12
    assert largest(near[:, 2] - xi[:, 2]) <= TURN / 2 + 1e-12


# --- direction


@pytest.mark.parametrize("shape", [(64, 64), (65, 65), (64, 80)])
@pytest.mark.parametrize("degrees", [90, -90, 180, 270, 30, -44, 45, 46, 100, -170])
def test_a_positive_angle_turns_counter_clockwise_about_the_centre(
    shape: tuple[int, ...], degrees: float
) -> None:
    theta = math.radians(degrees)
    # (0.7, 0.5) goes to (0.5, 0.7) at 90 degrees
    moved = (0.5 + 0.2 * math.cos(theta), 0.5 + 0.2 * math.sin(theta))
    xi = torch.tensor([[0.0, 0.0, theta]], dtype=torch.float64)
    assert largest(act(bump(shape, (0.7, 0.5)), xi) - bump(shape, moved)) < 1e-5


def test_a_quarter_turn_is_index_arithmetic() -> None:
    field = torch.zeros(1, 1, 10, 10)
    field[0, 0, 7, 5] = 1  # the point (0.7, 0.5)
    assert quarter_turn(field).nonzero()[0, 2:].tolist() == [5, 7]
    noise = white(4, 2, 9, 9, dtype=torch.float32)
    half = half_turn(noise)
    four = quarter_turn(quarter_turn(quarter_turn(quarter_turn(noise))))
    assert torch.equal(four, noise) and torch.equal(quarter_turn(quarter_turn(noise)), half)
    turned = [noise[0], quarter_turn(noise)[1], half[2], quarter_turn(half)[3]]
    assert torch.equal(turn_each(noise, torch.arange(4)), torch.stack(turned))


def test_rotation_then_translation_in_this_order() -> None:
    xi = torch.tensor([[0.1, 0.05, TURN]], dtype=torch.float64)
    moved = act(bump((64, 64), (0.7, 0.5)), xi)
    assert largest(moved - bump((64, 64), (0.6, 0.75))) < 1e-5


# --- how it is computed


@pytest.mark.parametrize("shape", [(16, 16), (15, 15), (12, 16)])
@pytest.mark.parametrize("entries", [2**18, 2**11, 1])  # all samples at once, a few, one by one
def test_a_motion_does_not_depend_on_how_it_is_cut_into_pieces(
    shape: tuple[int, int], entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = white(8, 3, *shape)
    xi = torch.rand(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 0.5
    quarters = torch.tensor([0, 0, 0, 1, 3, 1, 0, 2])
    xi[:, 2] = 0.2 + quarters.double() * TURN
    turned = turn_each(field, quarters)
    rest = torch.full((8, 1), 0.2, dtype=torch.float64)
    plain = act(turned, torch.cat([xi[:, :2], rest], dim=1))
    monkeypatch.setattr(_rotation, "PIECE_ENTRIES", entries)
    assert torch.allclose(act(field, xi), plain, atol=1e-12)
    assert torch.allclose(inverse(plain, xi), field, atol=1e-12)


@pytest.mark.parametrize("shape", [(16, 16), (15, 15), (12, 16), (16, 11)])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_a_motion_is_quarter_turns_then_three_shears_then_a_shift(
    shape: tuple[int, int], channels: int
) -> None:
    """The paper's product, factor by factor, of a field that no symmetry helps."""
    field = white(8, channels, *shape)
    place = torch.rand(8, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rest = torch.linspace(-0.7, 0.7, 8, dtype=torch.float64)
    quarters = torch.tensor([0, 1, 2, 3, 3, 2, 1, 0])
    moved = turn_each(field, quarters)
    slope = -torch.tan(rest / 2)
    for size, axis in ((slope, 0), (torch.sin(rest), 1), (slope, 0)):
        moved = shear(moved, size, axis)
    xi = torch.cat([place, (rest + quarters.double() * TURN)[:, None]], dim=1)
    assert torch.allclose(act(field, xi), shift(moved, place), atol=1e-12)
    assert torch.allclose(inverse(shift(moved, place), xi), field, atol=1e-12)


@pytest.mark.parametrize(
    "sizes",
    [(1e5, 1.0), (1e5, 0.0), (1e20, 1.0), (1.0, 1e-25), (1e5, 1.0, 1e-4, 0.0), (30.0, 1.0)],
)
def test_a_large_channel_does_not_drown_a_small_one(sizes: tuple[float, ...]) -> None:
    """Channels of one size are moved in pairs.

    A pressure in pascals must not cost a velocity its digits, nor its gradient.
    """
    size = torch.tensor(sizes)
    field = size[:, None, None] * white(6, len(sizes), 16, 16, dtype=torch.float32)
    xi = far_elements(GROUP, 6, 5)
    alike = max(sizes) < 64 * min(sizes)
    for step, back in ((act, inverse), (inverse, act)):
        moved = step(field.requires_grad_(), xi)
        # unitary: the derivative is the way back
        gradient = torch.autograd.grad(moved, field, moved.detach())[0]
        for result, wanted in ((moved, step), (gradient, back)):
            start = field if wanted is step else moved
            alone = torch.cat([wanted(channel, xi) for channel in start.split(1, dim=1)], dim=1)
            tolerance = 4e-6 * (size.amax() if alike else size)
            assert ((result - alone).abs().amax(dim=(0, 2, 3)) <= tolerance).all()


def test_what_is_not_finite_stays_in_its_channel_and_sample() -> None:
    field = torch.ones(3, 2, 8, 8)
    field[1, 0, 2, 3] = math.nan
    lost = act(field, far_elements(GROUP, 3, 5)).isnan().flatten(2).any(dim=2)
    assert lost.tolist() == [[False, False], [True, False], [False, False]]


def test_gradients_flow_through_pairs_and_every_quarter_turn() -> None:
    field = white(5, 3, 4, 4).requires_grad_()
    xi = far_elements(GROUP, 5, 5)
    xi[:, 2] = 0.3 + TURN * torch.tensor([2.0, 1.0, 0.0, 3.0, 1.0], dtype=torch.float64)
    for step in (act, inverse):
        assert torch.autograd.gradcheck(step, (field, xi.requires_grad_()), fast_mode=True)


@pytest.mark.parametrize("shape", [(16, 16), (15, 15), (12, 16)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_the_derivative_of_a_motion_is_that_of_its_factors(
    shape: tuple[int, int], channels: int, dtype: torch.dtype
) -> None:
    """By the field and by the element, against derivatives through every transform and phase."""
    field = white(6, channels, *shape, dtype=dtype).requires_grad_()
    xi = far_elements(GROUP, 6, 5)
    xi[:, 2] = 0.3 + TURN * torch.tensor([2.0, 1.0, 0.0, 3.0, 1.0, 0.0], dtype=torch.float64)
    weight = white(6, channels, *shape, dtype=dtype).roll(1, 0)
    rounding = {torch.float32: 1e-6, torch.float64: 1e-14}[dtype]
    for step in (act, inverse):
        once = torch.autograd.grad((step(field, xi.requires_grad_()) * weight).sum(), (field, xi))
        # With a graph of its own, a derivative goes through all factors.
        slow = torch.autograd.grad((step(field, xi) * weight).sum(), (field, xi), create_graph=True)
        for mine, other in zip(once, slow, strict=True):
            assert not mine.requires_grad and other.requires_grad
            assert largest(mine - other) <= 20 * rounding * largest(other)


def test_second_derivatives_of_a_motion_are_right() -> None:
    field = white(4, 2, 4, 4).requires_grad_()
    xi = far_elements(GROUP, 4, 5)
    xi[:, 2] = 0.3 + TURN * torch.arange(4, dtype=torch.float64)
    for step in (act, inverse):
        assert torch.autograd.gradgradcheck(step, (field, xi.requires_grad_()), fast_mode=True)


@given(st.floats(-10, 10))
def test_a_rotation_depends_on_the_angle_modulo_a_full_turn(theta: float) -> None:
    if abs(math.remainder(theta - math.pi / 4, TURN)) < 1e-3:
        return  # here the rest changes sign, and with it the order in which a field is torn
    type = FieldType.parse("a: scalar, b: scalar", 2)
    u = random_field(type, (12, 12), batch=1, top=3, seed=3)
    angles = (theta, theta + 2 * math.pi)
    once, again = (torch.tensor([[0.0, 0.0, a]], dtype=torch.float64) for a in angles)
    assert largest(GROUP.act(u, once).values - GROUP.act(u, again).values) < 1e-10


def test_shifts_and_turns_far_around_the_torus_cost_no_digits(
    dtype: torch.dtype, tolerance: float
) -> None:
    field, xi = waves(32, dtype), far_elements(GROUP, 5)
    far = xi + torch.tensor([40.0, -37.0, 22 * math.pi], dtype=torch.float64)
    for move in (GROUP.act, GROUP.inverse):
        assert largest(move(field, xi).values - move(field, far).values) < tolerance


# --- vectors


@pytest.mark.parametrize("kind", ["vector", "velocity"])
@pytest.mark.parametrize("degrees", [90, 180, 37, -120])
def test_vector_channels_turn_with_the_field(degrees: float, kind: str) -> None:
    """The gradient of a moved scalar is the moved gradient."""
    shape = (64, 64)
    xi = torch.tensor([[0.08, -0.11, math.radians(degrees)]], dtype=torch.float64)

    def with_gradient(u: Tensor) -> Tensor:
        slope = from_spectrum(to_spectrum(u, 2) * (2j * math.pi * wavenumbers(shape)), shape)
        return torch.cat([u, slope], dim=1)

    u, type = bump(shape, (0.55, 0.47)), FieldType.parse(f"c: scalar, g: {kind}", 2)
    moved = GROUP.act(Field(with_gradient(u), type), xi).values
    assert largest(moved - with_gradient(act(u, xi))) < 1e-7
    left_behind = act(with_gradient(u), xi)  # as three scalars: components do not turn
    assert largest(left_behind - with_gradient(act(u, xi))) > 1
    mixed = random_field(type, (20, 21), top=6)
    assert inverse_law(GROUP, mixed, far_elements(GROUP, 4)) < 1e-12


def test_the_x_direction_turns_into_the_y_direction(dtype: torch.dtype) -> None:
    field = torch.tensor([1.0, 0.0], dtype=dtype).reshape(1, 2, 1, 1).expand(1, 2, 8, 8)
    typed = Field(field, FieldType.parse("u: velocity", 2))
    turned = GROUP.act(typed, torch.tensor([[0.0, 0.0, TURN]])).values
    torch.testing.assert_close(turned[0, :, 0, 0], torch.tensor([0.0, 1.0], dtype=dtype))


def test_vorticity_and_scalars_keep_their_sign_under_rotations() -> None:
    xi = torch.tensor([[0.0, 0.0, TURN]])
    for kind in ("scalar", "pseudoscalar"):
        field = Field(torch.ones(1, 1, 8, 8), FieldType.parse(f"w: {kind}", 2))
        assert largest(GROUP.act(field, xi).values - 1) < 1e-6


@pytest.mark.parametrize("kind", ["c: scalar", "u: vector"])
def test_every_transform_of_torch_func_passes_a_rotation(kind: str) -> None:
    """Derivatives of fields and angles, forwards, backwards and of each other."""
    type = FieldType.parse(kind, 2)
    values = random_field(type, (7, 7), batch=1).values
    xi = torch.tensor([[0.1, -0.2, 0.4]], dtype=torch.float64)

    def moved(values: Tensor, xi: Tensor) -> Tensor:
        return GROUP.act(Field(values, type), xi).values

    def energy(values: Tensor, xi: Tensor) -> Tensor:
        return (moved(values, xi) ** 3).sum()

    for argument in (0, 1):
        backwards = torch.func.jacrev(moved, argument)(values, xi)
        forwards = torch.func.jacfwd(moved, argument)(values, xi)
        plain = torch.autograd.functional.jacobian(moved, (values, xi))[argument]
        assert largest(backwards - plain) < 1e-11 and largest(forwards - plain) < 1e-11
    push = torch.ones_like(xi)
    _, twice = torch.func.jvp(torch.func.grad(energy, 1), (values, xi), (0 * values, push))
    hessian = torch.autograd.functional.hessian(lambda xi: energy(values, xi), xi)
    assert largest(twice - hessian.sum(dim=(2, 3))) < 1e-8 * largest(hessian)


class Nematic(Kind):
    """Two components that turn twice as fast as a vector."""

    vector = True

    def representation(self, matrix: Tensor) -> Tensor:
        return matrix @ matrix


def test_a_kind_that_turns_in_its_own_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vector, "representation", Nematic.representation)
    with pytest.raises(FieldError, match="'u' is a vector, and rotations by any angle are known"):
        GROUP.check_type(FieldType.parse("u: vector", 2))
