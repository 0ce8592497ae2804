"""The laws of a group action, over the table of examples: a group is tested once it is in it.

Each law is a function that measures by how much it is broken, so the same function is shown to fail
on a group that was broken on purpose.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from group_examples import EXAMPLES as MOTIONS
from group_examples import FINITE, GRIDS, Example, example, of_the_package
from pacefno.fields import KINDS, Box, Field, FieldType
from pacefno.grid import FieldError, from_spectrum, points, to_spectrum, wavenumbers
from pacefno.groups import (
    GROUPS,
    Euclidean,
    Galilean,
    GalileanScaling,
    Group,
    PointGroup,
    Translation,
    Trivial,
    shift,
)
from pacefno.groups._rotation import half_turn, quarter_turn
from pacefno.groups.galilean import rescaled
from pacefno.testing import (
    apart,
    associative_law,
    batch_law,
    composition_law,
    far_elements,
    group_laws,
    identity_law,
    inverse_element_law,
    inverse_law,
    kinematic_law,
    largest,
    random_field,
    tangent_law,
    unitary_law,
)

EXAMPLES = MOTIONS | FINITE
CASES = [(name, grid) for name, chosen in EXAMPLES.items() for grid in chosen.grids]
BOOSTED = [case for case in CASES if isinstance(EXAMPLES[case[0]].group, Galilean)]
over_cases = pytest.mark.parametrize(("name", "grid"), CASES)
over_names = pytest.mark.parametrize("name", list(EXAMPLES))


def elements(group: Group, batch: int = 5, seed: int = 5) -> Tensor:
    """Random elements that reach beyond half a period."""
    return far_elements(group, batch, seed)


# --- the table


def test_every_registered_group_and_kind_of_channel_has_an_example() -> None:
    shown = {type(chosen.group) for chosen in EXAMPLES.values()}
    assert [name for name in of_the_package(GROUPS) if GROUPS[name] not in shown] == []
    kinds = {q.kind for chosen in EXAMPLES.values() for q in chosen.type.quantities}
    assert [kind for kind in of_the_package(KINDS) if kind not in kinds] == []


def test_the_examples_cover_all_dimensions_times_and_boxes() -> None:
    types = [chosen.type for chosen in EXAMPLES.values() if chosen.group.moves_in_time]
    assert {type.dim for type in types} == {1, 2, 3}
    assert {type.snapshots > 1 for type in types} == {True, False}
    assert any(type.times[0] != 0 for type in types) and any(type.step != 1 for type in types)
    assert any(len(set(type.lengths)) > 1 for type in types)


# --- the laws hold


@over_cases
def test_every_group_keeps_the_laws(name: str, grid: tuple[int, ...], dtype: torch.dtype) -> None:
    chosen = EXAMPLES[name]
    group_laws(chosen.group, chosen.type, grid, dtype)


@over_names
def test_an_element_times_its_inverse_is_the_identity(name: str) -> None:
    group = EXAMPLES[name].group
    assert inverse_element_law(group, elements(group, batch=50)) < 1e-12


@over_names
def test_the_product_is_associative(name: str) -> None:
    group = EXAMPLES[name].group
    assert associative_law(group, *(0.1 * elements(group, 50, seed) for seed in (1, 2, 3))) < 1e-12


def gained_energy(field: Field, velocity: Tensor) -> Tensor:
    """What a boost adds to the mean square of each channel, ``(B, S, C)``, by kind.

    ``2 v <u> + v^2`` for a velocity or speed, ``2 v <h m> + v^2 <h^2>`` for a momentum.
    """
    parts = []
    for quantity in field.type.quantities:
        value = field.of(quantity).flatten(3)
        density = field.density_of(quantity)
        weight = torch.ones_like(value) if density is None else density.flatten(3).expand_as(value)
        if quantity.kind not in ("velocity", "speed", "momentum"):
            parts.append(torch.zeros_like(value[..., 0]))
            continue
        v = velocity[:, None, : value.shape[2]].to(value.dtype)
        parts.append(2 * v * (weight * value).mean(3) + v**2 * weight.square().mean(3))
    return torch.cat(parts, dim=2)


def energy_law(group: Galilean, field: Field, xi: Tensor) -> float:
    """A boost adds the energy that is known."""
    moved = group.act(field, xi)
    energies = [part.by_snapshot.square().flatten(3).mean(3) for part in (moved, field)]
    return largest(energies[0] - energies[1] - gained_energy(field, group.split(xi)[1]))


@pytest.mark.parametrize(("name", "grid"), BOOSTED)
def test_boosts_add_exactly_the_known_energy(
    name: str, grid: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    chosen = EXAMPLES[name]
    assert isinstance(chosen.group, Galilean)
    field = chosen.field(grid, dtype)
    assert energy_law(chosen.group, field, elements(chosen.group)) < 2 * tolerance


@over_names
@pytest.mark.parametrize("odd", [False, True], ids=["even", "odd"])
def test_gradients_in_field_and_coordinates_pass_gradcheck(name: str, odd: bool) -> None:
    group, type = EXAMPLES[name].group, EXAMPLES[name].type
    grid = ((5, 5, 3) if odd else (6, 4, 4))[: group.dim]
    values = random_field(type, grid, batch=2).values.requires_grad_()
    xi = elements(group, batch=2).requires_grad_(group.size > 0)
    for move in (group.act, group.inverse):

        def moved(values: Tensor, xi: Tensor, move=move) -> Tensor:  # type: ignore[no-untyped-def]
            result: Tensor = move(Field(values, type), xi).values
            return result

        assert torch.autograd.gradcheck(moved, (values, xi), fast_mode=True)


@over_names
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single_and_returned_as_it_came(
    name: str, half: torch.dtype
) -> None:
    chosen = EXAMPLES[name]
    field = chosen.field(chosen.grids[-1]).to(half)
    # of values of order one: rescaling multiplies them by up to e^2
    xi = elements(chosen.group) * (0.3 if isinstance(chosen.group, GalileanScaling) else 1)
    bound = 8 * torch.finfo(half).eps * float(1 + field.values.abs().max())
    for move in (chosen.group.act, chosen.group.inverse):
        moved = move(field, xi).values
        assert moved.dtype == half
        assert largest(moved.float() - move(field.to(torch.float32), xi).values) < bound


@over_names
def test_autocast_reaches_neither_fields_nor_coordinates(name: str) -> None:
    chosen = EXAMPLES[name]
    group, field = chosen.group, chosen.field(chosen.grids[0], torch.float32)
    xi, eta = elements(group), elements(group, seed=6)

    def everything() -> list[Tensor]:
        return [
            group.act(field, xi).values,
            group.inverse(field, xi).values,
            group.compose(xi, eta),
            group.inverse_element(xi),
            group.transport(xi, 0.3),
            group.kinematic(field),
        ]

    plain = everything()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = everything()
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


# --- each law fails on a group that breaks it


class Displaced(Translation):
    def act(self, field: Field, xi: Tensor) -> Field:
        return super().act(field, xi + 0.01)


class Repeated(Translation):
    inverse = Translation.act


class TurnedNyquist(Translation):
    """Every mode shifted, the Nyquist mode too, which a real field cannot hold."""

    def act(self, field: Field, xi: Tensor) -> Field:
        k = wavenumbers(field.grid, dtype=xi.dtype)
        phase = torch.exp(-2j * math.pi * torch.tensordot(xi, k, 1))[:, None]
        spectrum = to_spectrum(field.values, self.dim) * phase
        return field.with_values(from_spectrum(spectrum, field.grid))

    def inverse(self, field: Field, xi: Tensor) -> Field:
        return self.act(field, -xi)


class ByInverseElement(Euclidean):
    """Rotating back by the opposite angle: right in the plane, wrong on the torus."""

    def inverse(self, field: Field, xi: Tensor) -> Field:
        return self.act(field, self.inverse_element(xi))


class Resampled(Euclidean):
    """Quarter turns of a grid that is not square by resampling alone: one axis loses content."""

    def act(self, field: Field, xi: Tensor) -> Field:
        return field.with_values(shift(quarter_turn(field.values), xi[:, :2]))

    def inverse(self, field: Field, xi: Tensor) -> Field:
        back = shift(field.values, -xi[:, :2])
        return field.with_values(half_turn(quarter_turn(back)))


class Backwards(Translation):
    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        return self.wrap(xi - eta)


class WrappedInverse(Euclidean):
    def inverse_element(self, xi: Tensor) -> Tensor:
        return self.wrap(super().inverse_element(xi))


class Damped(Translation):
    def act(self, field: Field, xi: Tensor) -> Field:
        return field.with_values(0.999 * shift(field.values, xi))


class FirstOnly(Translation):
    def act(self, field: Field, xi: Tensor) -> Field:
        return super().act(field, xi[:1].expand_as(xi))


class Detached(Translation):
    def act(self, field: Field, xi: Tensor) -> Field:
        return super().act(field, xi.detach())


class DoubleBoost(Galilean):
    def act(self, field: Field, xi: Tensor) -> Field:
        return super().act(field, torch.cat([xi[:, : self.dim], 2 * xi[:, self.dim :]], dim=1))


class CommutingScale(GalileanScaling):
    """Composes as if a velocity did not change with the scale."""

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        return self.wrap(xi + eta)


class Infinite(Translation):
    """Right values, but a derivative that is not finite: the root of zero in between."""

    def act(self, field: Field, xi: Tensor) -> Field:
        return super().act(field, xi + 0 * (xi - xi).sqrt())


class Single(Translation):
    def identity(self, batch: int, *, device: torch.device | str = "cpu") -> Tensor:
        return super().identity(batch, device=device).float()


SCALARS = "a: scalar, b: scalar"


def broken(group: Group, grid: tuple[int, ...], top: int = 6) -> tuple[Group, Field, Tensor]:
    type = FieldType.parse(SCALARS, group.dim)
    return group, random_field(type, grid, batch=5, top=top, seed=3), elements(group)


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
    group, u, xi = broken(Damped(2), (24, 24))
    assert unitary_law(group, u, u.with_values(u.values.flip(1)), xi) > 1e-4


def test_the_batch_law_fails_when_one_element_serves_all() -> None:
    assert batch_law(*broken(FirstOnly(1), (33,))) > 1e-1


def test_the_derivative_laws_fail_for_a_detached_coordinate() -> None:
    group, u, xi = broken(Detached(1), (16,), top=2)
    assert tangent_law(group, u, xi, elements(group, seed=9)) > 1e-1

    def moved(values: Tensor, xi: Tensor) -> Tensor:
        return group.act(u.with_values(values), xi).values

    inputs = (u.values, xi.requires_grad_())
    assert not torch.autograd.gradcheck(moved, inputs, raise_exception=False)


def test_the_energy_and_kinematic_laws_fail_for_a_boost_of_another_size() -> None:
    u = random_field(FieldType.parse("u: velocity", 1), (32,), batch=5, top=6)
    assert energy_law(DoubleBoost(1), u, elements(Galilean(1))) > 1e-1
    assert kinematic_law(DoubleBoost(1), u, elements(Galilean(1))) > 1e-1


@pytest.mark.parametrize(
    ("group", "grid", "law"),
    [
        (Displaced(1), (32,), "identity: off by"),
        (Repeated(1), (32,), "inverse: off by"),
        (TurnedNyquist(2), (16, 16), "inverse of all modes: off by"),
        (ByInverseElement(), (24, 24), "inverse: off by"),
        (Backwards(2), (24, 30), "composition: off by"),
        (WrappedInverse(), (24, 24), "inverse element: off by"),
        (Damped(2), (24, 24), "unitarity: off by"),
        (FirstOnly(1), (33,), "batch: off by"),
        (Detached(1), (16,), "derivatives: off by"),
        (DoubleBoost(1), (32,), "kinematic: off by"),
        (CommutingScale(), (32,), "composition: off by"),
        (Infinite(1), (32,), "gradients: not finite"),
        (Single(1), (32,), "float64 coordinates: identity returns torch.float32"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Group) else None,
)
def test_group_laws_name_the_law_that_is_broken(
    group: Group, grid: tuple[int, ...], law: str
) -> None:
    channels = "u: velocity" if group.moves_in_time else SCALARS
    with pytest.raises(AssertionError, match=law):
        group_laws(group, FieldType.parse(channels, group.dim), grid)


# --- translations and boosts: direction and transport


@pytest.mark.parametrize(
    "name", [n for n, e in EXAMPLES.items() if not isinstance(e.group, Trivial | PointGroup)]
)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_positive_translation_moves_content_forwards(name: str, axis: int) -> None:
    group, type = EXAMPLES[name].group, EXAMPLES[name].type
    if axis >= group.dim:
        return
    grid = (48, 40, 6)[: group.dim]

    def crest(at: float) -> Tensor:
        profile = torch.exp(3 * torch.cos(2 * math.pi * (points(grid)[axis] - at)))
        return profile.expand(1, type.size if type.quantities else 2, *grid)

    xi = group.identity(1)
    xi[0, axis] = 0.27
    assert largest(group.act(Field(crest(0.3), type), xi).values - crest(0.57)) < 1e-6


def constants(type: FieldType, *values: float) -> Field:
    shape = (1, len(values), *[1] * type.dim)
    return Field(torch.tensor(values).reshape(shape).expand(1, -1, *[4] * type.dim), type)


@pytest.mark.parametrize(
    ("group", "channels", "before", "velocity", "after"),
    [
        (Galilean(1), "u: velocity", (1.0,), (0.5,), (1.5,)),
        (Galilean(1), "u: speed", (1.0,), (0.5,), (1.5,)),
        (Galilean(2), "u: velocity, p: scalar", (1.0, 2.0, 3.0), (0.5, -1.0), (1.5, 1.0, 3.0)),
        (Galilean(2), "h: scalar, m: momentum of h", (2, 1, 3.0), (0.5, -1.0), (2, 2, 1.0)),
        (Galilean(2), "w: pseudoscalar, u: velocity", (7, 1, 2.0), (1.0, 2.0), (7, 2, 4.0)),
        (Galilean(2), "e: vector, u: velocity", (5, 6, 1, 2.0), (1.0, 2.0), (5, 6, 2, 4.0)),
        (Galilean(2, diagonal=True), "u: speed, c: scalar", (1.0, 2.0), (0.5,), (1.5, 2.0)),
        (Galilean(2, diagonal=True), "u: velocity", (1.0, 2.0), (0.5,), (1.5, 2.5)),
        (Galilean(3), "u: velocity", (1.0, 2.0, 3.0), (1.0, 0.0, -1.0), (2.0, 2.0, 2.0)),
    ],
)
def test_boosts_do_what_their_channels_need(
    group: Galilean,
    channels: str,
    before: tuple[float, ...],
    velocity: tuple[float, ...],
    after: tuple[float, ...],
) -> None:
    type = FieldType.parse(channels, group.dim)
    xi = torch.tensor([[0.0] * group.dim + list(velocity)])
    moved = group.act(constants(type, *before), xi).values
    torch.testing.assert_close(moved, constants(type, *after).values)


def test_the_background_velocity_is_the_mean_of_u_or_of_m_over_h() -> None:
    h = torch.tensor([1.0, 2.0, 4.0, 1.0]).expand(4, 4)
    field = torch.stack([h, torch.ones(4, 4), -2 * h])[None]
    water = Field(field, FieldType.parse("h: scalar, m: momentum of h", 2))
    expected = torch.tensor([[2.75 / 4, -2.0]], dtype=torch.float64)
    torch.testing.assert_close(Galilean(2).kinematic(water), expected)
    speed = Field(h[None, None], FieldType.parse("u: speed", 2))
    mean = torch.tensor([[2.0]], dtype=torch.float64)
    torch.testing.assert_close(Galilean(2, diagonal=True).kinematic(speed), mean)
    velocity = Field(field, FieldType.parse("c: scalar, u: velocity", 2))
    means = torch.tensor([[1.0, -4.0]], dtype=torch.float64)
    torch.testing.assert_close(Galilean(2).kinematic(velocity), means)


def test_a_boost_becomes_a_shift_over_time() -> None:
    xi = torch.tensor([[0.1, 0.2, 0.3], [0.4, -0.3, -0.5]], dtype=torch.float64)
    expected = torch.tensor([[0.25, 0.35, 0.3], [0.15, 0.45, -0.5]], dtype=torch.float64)
    torch.testing.assert_close(Galilean(2, diagonal=True).transport(xi, 0.5), expected)
    plane = torch.tensor([[0.1, 0.2, 0.3, -0.4]], dtype=torch.float64)
    expected = torch.tensor([[0.25, 0.0, 0.3, -0.4]], dtype=torch.float64)
    torch.testing.assert_close(Galilean(2).transport(plane, 0.5), expected)
    box = torch.tensor([[2.0, 4.0]])
    expected = torch.tensor([[0.25, 0.1, 0.3, -0.4]], dtype=torch.float64)
    torch.testing.assert_close(Galilean(2).transport(plane, 1.0, box), expected)


def test_each_sample_may_have_its_own_horizon() -> None:
    xi = torch.tensor([[0.0, 0.0, 0.1], [0.0, 0.0, 0.2]])
    expected = torch.tensor([[0.1, 0.1, 0.1], [0.4, 0.4, 0.2]])
    for horizon in (torch.tensor([1.0, 2.0]), torch.tensor([[1.0], [2.0]])):
        torch.testing.assert_close(Galilean(2, diagonal=True).transport(xi, horizon), expected)


@over_names
def test_without_boosts_the_frame_stays_and_transport_adds_up_over_time(name: str) -> None:
    group = EXAMPLES[name].group
    xi = group.wrap(elements(group))
    if not group.moves_in_time:
        assert torch.equal(group.transport(xi, 3.0), xi)
    twice = group.transport(group.transport(xi, 0.4), 0.5)
    assert largest(group.difference(twice, group.transport(xi, 0.9))) < 1e-14


@over_names
def test_an_element_acts_on_a_later_snapshot_as_its_terminal_frame_does_at_time_0(
    name: str, dtype: torch.dtype, tolerance: float
) -> None:
    """The paper's ``Gamma_B``: each snapshot of an acted field, read as if it were the first."""
    chosen = EXAMPLES[name]
    group, field, xi = chosen.group, chosen.field(chosen.grids[-1], dtype), elements(chosen.group)
    moved = group.act(field, xi)
    for number, time in enumerate(field.times[0].tolist()):
        one = field.at([number])
        now = Field(one.values, one.type.at([0.0]))
        alone = group.act(now, group.transport(xi, time, field.lengths)).values
        assert largest(moved.at([number]).values - alone) < tolerance


class Standing(Galilean):
    """A boost that never becomes a shift: all snapshots move alike."""

    def act(self, field: Field, xi: Tensor) -> Field:
        now = Field(field.values, field.type.at([0.0] * field.type.snapshots))
        return field.with_values(super().act(now, xi).values)


@pytest.mark.parametrize("group", [Galilean(1), Standing(1)], ids=["galilean", "standing"])
def test_several_snapshots_under_a_boost_are_each_carried_by_their_own_time(
    group: Galilean, dtype: torch.dtype
) -> None:
    """A box of length 3, snapshots at 0, 0.5 and 2: a wave at rest is seen to move by v t / L."""
    x = points((48,), dtype=dtype)[0]
    times, length, v = (0.0, 0.5, 2.0), 3.0, 0.6

    def crests(at: list[float]) -> Tensor:
        rows = [torch.exp(torch.cos(2 * math.pi * (x - place))) for place in at]
        return torch.stack(rows)[None]

    type = FieldType.parse("u: speed", 1, times=times, lengths=length)
    moved = group.act(Field(crests([0.1] * 3), type), torch.tensor([[0.0, v]])).values - v
    expected = crests([0.1 + v * t / length for t in times])
    wrong = largest(moved - expected) > 0.1
    assert wrong if isinstance(group, Standing) else largest(moved - expected) < 1e-5


@pytest.mark.parametrize("name", [name for name, _ in BOOSTED[::3]])
def test_at_rest_a_boost_leaves_nothing_but_constants(
    name: str, dtype: torch.dtype, tolerance: float
) -> None:
    """A momentum changes by density times velocity, which is no constant and must be undone."""
    chosen = EXAMPLES[name]
    group, field = chosen.group, chosen.field((24, 20, 18)[: chosen.group.dim], dtype)
    xi = elements(group)
    xi[:, : group.spatial] = 0
    now = Field(field.values, field.type.at([0.0] * field.type.snapshots))
    rest = [group.at_rest(part).values for part in (now, group.act(now, xi))]
    change = (rest[1] - rest[0]).flatten(2)
    assert largest(change - change.mean(dim=2, keepdim=True)) < tolerance


# --- the Lie point symmetries of KdV: every sample in a box of its own

ROWS = torch.linspace(0.8, 1.2, 4, dtype=torch.float64)
TRAJECTORY = FieldType.parse("u: speed", 1, times=range(7), lengths=40.0, step=0.3)


def trajectories(n: int, dtype: torch.dtype = torch.float64) -> Field:
    """Four of seven snapshots, each in a box and with a time step of its own."""
    values = random_field(TRAJECTORY, (n,), batch=4, top=8, dtype=dtype, seed=2).values
    return Field(values, TRAJECTORY, Box(40 * ROWS[:, None], 0.3 * ROWS.flip(0)))


def moderate(group: Group, seed: int) -> Tensor:
    high = [0.5, 1.5, 0.3][: group.size]
    generator = torch.Generator().manual_seed(seed)
    return group.sample([0.0] * group.size, high, 4, generator)


@pytest.mark.parametrize("n", [64, 65])
@pytest.mark.parametrize("group", [GalileanScaling(), Galilean(1)], ids=["scaling", "boosts"])
def test_the_symmetries_of_trajectories_are_a_group(
    n: int, group: Group, dtype: torch.dtype, tolerance: float
) -> None:
    u, xi, eta = trajectories(n, dtype), moderate(group, 1), moderate(group, 2)
    assert identity_law(group, u) < tolerance and apart(group.act(u, xi), u) > 0.1
    assert inverse_law(group, u, xi) < 10 * tolerance
    both = group.act(group.act(u, eta), xi)
    assert apart(both, group.act(u, group.compose(xi, eta))) < 10 * tolerance
    assert inverse_element_law(group, xi) < 1e-12
    assert kinematic_law(group, u, xi) < 10 * tolerance
    assert batch_law(group, u, xi) < tolerance


def test_the_laws_of_trajectories_fail_for_a_scale_that_commutes_with_boosts() -> None:
    group, u = CommutingScale(), trajectories(64)
    assert composition_law(group, u, moderate(group, 1), moderate(group, 2)) > 0.05


def later_window(field: Field, first: int, count: int) -> Field:
    """``count`` snapshots from ``first`` on, counted from their own beginning."""
    part = field.at(range(first, first + count))
    return Field(part.values, part.type.at(range(count)), part.box)


@pytest.mark.parametrize("group", [GalileanScaling(), Galilean(1)], ids=["scaling", "boosts"])
def test_a_window_of_a_moved_trajectory_is_the_window_moved_by_its_terminal_frame(
    group: Group, dtype: torch.dtype, tolerance: float
) -> None:
    u, xi = trajectories(64, dtype), moderate(group, 1)
    assert u.box is not None
    for start in (0, 1, 3):
        terminal = group.transport(xi, start * u.box.step, u.lengths)
        late = group.act(later_window(u, start, 3), terminal)
        moved = later_window(group.act(u, xi), start, 3)
        assert apart(moved, late) < 10 * tolerance
    standing = group.act(later_window(u, 3, 3), xi)
    assert apart(later_window(group.act(u, xi), 3, 3), standing) > 0.05


def test_elements_may_be_learned() -> None:
    group, u = GalileanScaling(), trajectories(64)
    xi = moderate(group, 1).requires_grad_()
    moved = group.act(u, xi)
    assert moved.box is not None
    (moved.values.square().sum() + moved.values[:, :, 0].sum() + moved.box.lengths.sum()).backward()
    assert xi.grad is not None and bool((xi.grad.abs() > 0).all())


def lpsda(u: Field, distance: float, velocity: float, scale: float) -> Field:
    """LPSDA's formulas in its signs: ``u - eps`` drifts by ``-eps t``, ``e^2eps u`` shrinks x."""
    rows = []
    for snapshots, length, times in zip(u.values, u.lengths[:, 0], u.times, strict=True):
        n = snapshots.shape[1]
        k = torch.arange(n // 2 + 1, dtype=torch.float64)
        k[-1] = 0 if n % 2 == 0 else k[-1]
        for periods in (torch.full_like(times, distance), -velocity * times / length):
            phase = torch.exp(-2j * math.pi * k * periods[:, None])
            snapshots = torch.fft.irfft(phase * torch.fft.rfft(snapshots), n=n)
        rows.append((snapshots - velocity) * math.exp(2 * scale))
    assert u.box is not None
    box = Box(u.box.lengths * math.exp(-scale), u.box.step * math.exp(-3 * scale))
    return Field(torch.stack(rows), u.type, box)


@pytest.mark.parametrize("n", [64, 65])
def test_an_element_is_g2_then_g3_then_g4_of_lpsda_with_the_signs_of_the_last_two_turned(
    n: int,
) -> None:
    u, group = trajectories(n), GalileanScaling()
    xi = torch.tensor([0.3, -0.35, 0.04], dtype=torch.float64).expand(4, 3)
    assert apart(group.act(u, xi), lpsda(u, 0.3, 0.35, -0.04)) < 1e-12
    assert apart(group.act(u, xi), lpsda(u, 0.3, -0.35, -0.04)) > 0.1
    one_by_one = u
    for column in range(3):
        one_by_one = group.act(one_by_one, xi * torch.eye(3, dtype=torch.float64)[column])
    assert apart(group.act(u, xi), one_by_one) < 1e-12


def test_a_rescaling_pulled_back_has_the_nominal_time_step() -> None:
    group, u = GalileanScaling(), trajectories(32)
    scale = group.kinematic(u)[:, 1]
    pulled = rescaled(u, -scale)
    assert pulled.box is not None and u.box is not None
    torch.testing.assert_close(pulled.box.step, torch.full_like(pulled.box.step, 0.3))
    assert float((u.box.step - 0.3).abs().max()) > 0.01


# --- coordinates


@over_names
def test_the_description_of_a_group_is_consistent(name: str) -> None:
    chosen = EXAMPLES[name]
    group = chosen.group
    assert group.size == len(group.coordinates) == len(group.periods)
    assert len(set(group.coordinates)) == group.size
    assert 0 <= group.spatial <= group.size and name.startswith(group.name)
    assert all(math.isinf(period) for period in group.periods[group.spatial :])
    assert GROUPS[group.name] is type(group)
    assert group.identity(3).shape == (3, group.size)
    kinematic = group.kinematic(chosen.field(chosen.grids[0]))
    assert kinematic.shape == (5, group.size - group.spatial)


@pytest.mark.parametrize(
    "group",
    [Translation(1), Translation(3), Galilean(2), Euclidean(), GalileanScaling()],
    ids=lambda group: f"{group.name}-{group.dim}d",
)
@given(data=st.data())
def test_coordinates_wrap_and_compare_modulo_their_period(
    group: Group, data: st.DataObject
) -> None:
    draw = data.draw(st.lists(st.floats(-20, 20), min_size=group.size, max_size=group.size))
    turns = data.draw(st.lists(st.integers(-5, 5), min_size=group.size, max_size=group.size))
    finite = [0.0 if math.isinf(period) else period for period in group.periods]
    periods = torch.tensor(finite, dtype=torch.float64)
    xi = torch.tensor([draw], dtype=torch.float64)
    wrapped = group.wrap(xi)
    periodic = periods > 0
    assert bool((wrapped.abs()[:, periodic] <= periods[periodic] / 2 + 1e-12).all())
    assert torch.equal(wrapped[:, ~periodic], xi[:, ~periodic])
    images = xi + torch.tensor([turns]) * periods
    assert largest(group.difference(images, xi)) < 1e-12


def test_the_difference_of_neighbours_across_the_seam_is_small() -> None:
    a, b = torch.tensor([[0.49, -0.49, 3.1]]), torch.tensor([[-0.49, 0.49, -3.1]])
    expected = torch.tensor([[-0.02, 0.02, 6.2 - 2 * math.pi]])
    torch.testing.assert_close(Euclidean().difference(a, b), expected)


@over_names
def test_samples_fill_the_shell_with_fair_signs(name: str) -> None:
    group = EXAMPLES[name].group
    low = [0.1 + 0.1 * i for i in range(group.size)]
    high = [0.5 + 0.2 * i for i in range(group.size)]
    xi = group.sample(low, high, 4000, torch.Generator().manual_seed(0))
    assert xi.shape == (4000, group.size) and xi.dtype == torch.float64
    assert torch.equal(xi, group.sample(low, high, 4000, torch.Generator().manual_seed(0)))
    for column, name, a, b in zip(xi.unbind(1), group.coordinates, low, high, strict=True):
        if name == "element":  # a whole number: see the test of point groups
            continue
        size = column.abs()
        assert a <= float(size.min()) < a + 0.01 * (b - a)
        assert b - 0.01 * (b - a) < float(size.max()) <= b
        assert abs(float(size.mean()) - (a + b) / 2) < 0.03 * (b - a)
        assert abs(float((column > 0).double().mean()) - 0.5) < 0.05
        independent = float(((size - size.mean()) * column.sign()).mean())  # of sign and size
        assert abs(independent) < 0.03 * (b - a)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([0.2], [0.1]),
        ([-0.1], [0.1]),
        ([0.1], [math.nan]),
        ([math.nan], [0.1]),
        ([0.1], [math.inf]),
    ],
)
def test_bad_bounds_are_refused(low: list[float], high: list[float]) -> None:
    with pytest.raises(ValueError, match="0 <= low <= high"):
        Translation(1).sample(low, high, 2, torch.Generator())


def test_the_wrong_number_of_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected 2 bounds \('x', 'y'\), got 1 and 2"):
        Translation(2).sample([0.1], [0.2, 0.2], 2, torch.Generator())


# --- refusals


@over_names
def test_coordinates_of_another_shape_are_refused(name: str) -> None:
    chosen = EXAMPLES[name]
    group, u = chosen.group, chosen.field(chosen.grids[0])
    for shape in [(1, group.size), (5, group.size + 1), (group.size,), (5, group.size, 1)]:
        for move in (group.act, group.inverse):
            with pytest.raises(FieldError, match="one row per sample"):
                move(u, torch.zeros(shape))


def test_a_wrong_number_of_coordinates_is_named() -> None:
    expected = r"expected coordinates \('x', 'velocity'\) of shape \(4, 2\), got \(4, 3\)"
    with pytest.raises(FieldError, match=expected):
        Galilean(1).act(trajectories(64), moderate(GalileanScaling(), 1))


@over_names
def test_fields_of_another_dimension_are_refused_instead_of_broadcast(name: str) -> None:
    group = EXAMPLES[name].group
    for dim in (1, 2, 3):
        if dim == group.dim:
            continue
        field = random_field(FieldType.parse("u: velocity", dim), GRIDS[dim][0], batch=2)
        with pytest.raises(
            FieldError, match=f"acts in {group.dim} dimensions, the field has {dim}"
        ):
            group.act(field, torch.zeros(2, group.size))


@pytest.mark.parametrize(
    ("group", "channels", "lengths", "sentence"),
    [
        (Galilean(2), "u: speed", 1.0, r"'u' is a speed along .* use Galilean\(2, diagonal=True\)"),
        (Galilean(3), "u: speed, v: velocity", 1.0, r"'u' is a speed along \(1, ..., 1\)"),
        (Galilean(1), "", 1.0, "acts on channels by their kind, and these are not named"),
        (GalileanScaling(), "u: speed, c: scalar", 1.0, "only velocities and speeds are known to"),
        (Euclidean(), "u: speed", 1.0, r"a speed along \(1, 1\), a direction that a rotation"),
        (Euclidean(), "w: scalar", (1.0, 2.0), r"needs a square box, got lengths \(1.0, 2.0\)"),
    ],
)
def test_what_a_group_cannot_act_on_is_refused_in_a_sentence(
    group: Group, channels: str, lengths: float | tuple[float, ...], sentence: str
) -> None:
    type = FieldType.parse(channels, group.dim, lengths=lengths)
    for check in (group.check_type, group.check_action):
        with pytest.raises(FieldError, match=sentence):
            check(type)
    with pytest.raises(FieldError, match=sentence):
        group.act(random_field(type, GRIDS[group.dim][0]), group.identity(4))


@pytest.mark.parametrize("channels", ["a: scalar", "w: pseudoscalar, e: vector"])
def test_a_field_without_a_velocity_can_be_carried_but_not_measured(
    channels: str, dtype: torch.dtype, tolerance: float
) -> None:
    group = Galilean(2)
    type = FieldType.parse(channels, 2, lengths=(2.0, 3.0), times=(0.5,))
    field = random_field(type, (24, 20), top=5, dtype=dtype)
    for look in (lambda: group.check_type(type), lambda: group.kinematic(field)):
        with pytest.raises(FieldError, match=r"a velocity|tells velocities.* or use Translation"):
            look()
    xi = elements(group, batch=4)
    drift = xi[:, :2] + 0.5 * xi[:, 2:] / torch.tensor([2.0, 3.0])
    assert largest(group.act(field, xi).values - shift(field.values, drift)) < tolerance


def test_an_example_that_makes_no_sense_cannot_enter_the_table() -> None:
    with pytest.raises(FieldError):
        example(Galilean(2), "u: speed")
    assert isinstance(example(Galilean(1), "u: speed"), Example)
