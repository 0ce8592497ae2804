"""Finite groups of the grid, and how they act on channels."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from pacefno.fields import FieldType
from pacefno.grid import FieldError
from pacefno.groups import (
    POINT_GROUPS,
    Euclidean,
    Galilean,
    PointGroup,
    Product,
    element,
    representation,
    symmetric_scale,
)
from pacefno.groups._rotation import half_turn, quarter_turn
from pacefno.groups.point_group import check_representation, direct_sum, invariants, multiply

# group, channels of one snapshot, how many channels, grid: even and odd; p4 on three axes leaves
# the last one, time, alone
CASES = [
    ("z2", "u: speed", 1, (16,)),
    ("z2", "scalar", 2, (17,)),
    ("p4", "scalar", 2, (10, 10)),
    ("p4", "h: scalar, m: momentum of h", 3, (9, 9)),
    ("p4", "u: vector", 4, (10, 10)),
    ("p4m", "p: scalar, u: velocity", 3, (9, 9)),
    ("p4m", "w: pseudoscalar", 2, (10, 10)),
    ("diagonal", "u: speed", 1, (10, 10)),
    ("diagonal", "u: speed, e: vector", 3, (9, 9)),
    ("p4", "u: velocity", 2, (7, 7, 6)),
    ("p4m", "w: pseudoscalar", 1, (8, 8, 5)),
    ("p2", "u: velocity", 2, (6, 9)),
    ("mirror-x", "u: velocity, w: pseudoscalar", 3, (6, 9)),
    ("mirror-y", "w: pseudoscalar", 2, (7, 4)),
    ("glide-y", "u: velocity, w: pseudoscalar", 3, (6, 9)),
    ("p2m", "w: pseudoscalar", 1, (6, 9)),
    ("turns", "w: pseudoscalar, u: vector", 4, (4, 4, 4)),
    ("cube", "u: velocity, w: pseudoscalar", 4, (5, 5, 5)),
    ("diagonal-3d", "u: speed", 2, (4, 4, 4)),
    ("sign-1d", "u: scalar", 1, (8,)),
    ("sign-2d", "scalar", 2, (6, 7)),
    ("sign-3d", "u: velocity", 3, (4, 5, 6)),
]


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


# --- groups


def test_the_cases_cover_every_point_group_but_the_trivial_ones() -> None:
    assert {name for name, *_ in CASES} == {
        n for n, group in POINT_GROUPS.items() if group.order > 1
    }


@pytest.mark.parametrize(
    ("name", "order"),
    [
        *[("z1", 1), ("p1", 1), ("one", 1), ("z2", 2), ("p4", 4), ("p4m", 8), ("diagonal", 4)],
        *[("turns", 24), ("cube", 48), ("diagonal-3d", 12), ("glide-y", 2), ("sign-2d", 2)],
    ],
)
def test_groups_have_their_order_and_start_with_the_identity(name: str, order: int) -> None:
    group = POINT_GROUPS[name]
    assert group.order == order
    assert group.moves(0) == (list(range(group.dim)), [])
    for g in range(order):
        assert group.quotients[g][g] == 0 and group.quotients[g][0] == group.inverses[g]


@pytest.mark.parametrize("shape", [(6, 6), (7, 7)])
def test_turns_agree_with_those_of_the_euclidean_group(shape: tuple[int, int]) -> None:
    group, field = POINT_GROUPS["p4"], random(2, 1, *shape)
    rho = representation(group, "scalar", 1)
    quarter = group.matrices.index(((0, -1), (1, 0)))
    half = group.matrices.index(((-1, 0), (0, -1)))
    assert torch.equal(group.move(field, quarter, rho), quarter_turn(field))
    assert torch.equal(group.move(field, half, rho), half_turn(field))


@pytest.mark.parametrize(("name", "channels", "count", "grid"), CASES)
def test_acting_twice_is_acting_with_the_product(
    name: str, channels: str, count: int, grid: tuple[int, ...], dtype: torch.dtype
) -> None:
    group, field = POINT_GROUPS[name], random(1, count, *grid, dtype=dtype)
    rho = representation(group, channels, count)
    for g, h in product(range(group.order), repeat=2):
        both = group.products[g][h]
        assert group.matrices[both] == multiply(group.matrices[g], group.matrices[h])
        twice = group.move(group.move(field, h, rho), g, rho)
        assert torch.equal(twice, group.move(field, both, rho))


def test_components_that_are_left_behind_are_found() -> None:
    """Acting twice with a representation of another group is not acting with the product."""
    group, field = POINT_GROUPS["p4"], random(1, 2, 6, 6)
    rho = representation(group, "u: vector", 2).roll(1, 0)
    quarter = group.matrices.index(((0, -1), (1, 0)))
    half = group.matrices.index(((-1, 0), (0, -1)))
    twice = group.move(group.move(field, quarter, rho), quarter, rho)
    assert not torch.allclose(twice, group.move(field, half, rho), atol=0.1)


def test_autocast_does_not_round_what_an_element_moves() -> None:
    group, field = POINT_GROUPS["p4"], random(1, 2, 6, 6, dtype=torch.float32)
    rho = representation(group, "u: vector", 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = group.move(field, 1, rho)
    assert torch.equal(cast, group.move(field, 1, rho))


def test_what_is_no_group_of_the_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="no other matrix keeps a grid"):
        PointGroup.generated("shear", ((1, 1), (0, 1)))
    with pytest.raises(ValueError, match="not a group that begins with its identity"):
        PointGroup("part", [(((1, 0), (0, 1)),), (((0, -1), (1, 0)),)])
    with pytest.raises(ValueError, match="unknown point group 'p5'. Expected one of z1"):
        PointGroup("p5")
    with pytest.raises(ValueError, match="sign: expected 1 or -1, got 2"):
        element(((1,),), sign=2)
    with pytest.raises(ValueError, match=r"expected a number of periods or 1 of them, got \(0, 0"):
        element(((1,),), shift=(0, 0))


# --- channels


def test_representations_are_what_physics_says() -> None:
    z2, p4, p4m, diagonal = (POINT_GROUPS[name] for name in ("z2", "p4", "p4m", "diagonal"))
    assert representation(z2, "u: speed", 1).flatten().tolist() == [1, -1]
    signs = representation(diagonal, "u: speed", 1).flatten().tolist()
    assert dict(zip(diagonal.matrices, signs, strict=True)) == {
        ((1, 0), (0, 1)): 1,
        ((0, 1), (1, 0)): 1,
        ((-1, 0), (0, -1)): -1,
        ((0, -1), (-1, 0)): -1,
    }
    spins = representation(p4, "w: pseudoscalar", 2)  # no mirror: nothing changes sign
    assert torch.equal(spins, representation(p4, "scalar", 2))
    mirror = p4m.matrices.index(((-1, 0), (0, 1)))
    assert representation(p4m, "w: pseudoscalar", 1)[mirror].item() == -1
    quarter = p4.matrices.index(((0, -1), (1, 0)))
    expected = torch.tensor([[1, 0, 0], [0, 0, -1], [0, 1, 0]]).double()  # mx -> my, my -> -mx
    water = "h: scalar, m: momentum of h"
    assert torch.equal(representation(p4, water, 3)[quarter], expected)
    two_snapshots = representation(p4, water, 6)[quarter]
    assert torch.equal(two_snapshots, torch.block_diag(expected, expected))


def test_the_invariants_are_the_channel_vectors_that_every_element_keeps() -> None:
    exchange = torch.tensor([[[1, 0], [0, 1]], [[0, 1], [1, 0]]], dtype=torch.float64)
    check_representation(POINT_GROUPS["z2"], exchange)
    assert torch.equal(invariants(exchange), torch.tensor([[0.5], [0.5]], dtype=torch.float64))
    water = representation(POINT_GROUPS["p4"], "h: scalar, m: momentum of h", 3)
    assert torch.equal(invariants(water), torch.tensor([[1.0], [0], [0]], dtype=torch.float64))
    assert invariants(representation(POINT_GROUPS["z2"], "u: speed", 1)).shape == (1, 0)


def test_a_symmetric_scale_gives_a_vector_no_mean_and_one_deviation() -> None:
    rho = representation(POINT_GROUPS["p4"], "h: scalar, m: momentum of h", 3)
    mean, std = torch.tensor([1.0, 0.1, -0.2]).double(), torch.tensor([0.2, 0.3, 0.4]).double()
    middle, deviation = symmetric_scale(rho, mean, std)
    assert middle.tolist() == [1, 0, 0]
    assert deviation.tolist() == pytest.approx([0.2, 0.125**0.5, 0.125**0.5])


def test_a_direct_sum_stands_along_the_diagonal() -> None:
    parts = [torch.full((2, 1, 1), 3.0), torch.ones(2, 2, 2)]
    expected = torch.tensor([[3.0, 0, 0], [0, 1, 1], [0, 1, 1]])
    assert torch.equal(direct_sum(parts), expected.expand(2, 3, 3))


@pytest.mark.parametrize(
    ("matrices", "message"),
    [
        (
            torch.ones(3, 1, 1),
            r"expected \(4, C, C\), one matrix for each element, got \(3, 1, 1\)",
        ),
        (torch.full((4, 1, 1), 2.0), "do not multiply like the elements of p4"),
    ],
)
def test_matrices_that_are_no_representation_are_refused(matrices: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_representation(POINT_GROUPS["p4"], matrices)


def test_channels_that_do_not_fit_are_refused() -> None:
    p4 = POINT_GROUPS["p4"]
    with pytest.raises(FieldError, match=r"does not keep the line along \(1, ..., 1\)"):
        representation(p4, "u: speed", 1)
    with pytest.raises(
        ValueError, match="'u: vector' describes 2 channels, got 3: expected a mult"
    ):
        representation(p4, "u: vector", 3)
    with pytest.raises(ValueError, match="unknown kind 'tensor'"):
        representation(p4, "s: tensor", 1)


# --- as a group


def test_random_elements_are_equally_likely() -> None:
    group = PointGroup("p4m")
    drawn = group.sample([0.0], [4.0], 4000, torch.Generator().manual_seed(0))
    assert drawn.shape == (4000, 1) and drawn.dtype == torch.float64
    counts = drawn[:, 0].long().bincount(minlength=8)
    assert len(counts) == 8 and int(counts.min()) > 420 and int(counts.max()) < 580
    assert group.sample([0.0], [0.0], 3, torch.Generator()).tolist() == [[0.0]] * 3


def test_a_centre_is_what_turns_and_mirrors_keep() -> None:
    x = torch.arange(16, dtype=torch.float64) / 16
    field = torch.cos(2 * torch.pi * x)[None, None]
    rho = representation(POINT_GROUPS["z2"], "u: speed", 1)
    about_zero = PointGroup("z2").move(field, 1, rho)
    about_quarter = PointGroup("z2", centre=0.25).move(field, 1, rho)
    assert torch.allclose(about_zero, -field) and torch.allclose(about_quarter, field)
    glide = PointGroup.generated("glide", element(((1, 0), (0, -1)), (1 / 3, 0)))
    assert glide.order == 6  # three thirds and a mirror, which only twice is none


def test_a_product_carries_motions_along() -> None:
    group = Product(Galilean(2), PointGroup("p4m"))
    quarter = group.point.matrices.index(((0, -1), (1, 0)))
    turn, move = (torch.zeros(1, 5, dtype=torch.float64) for _ in range(2))
    turn[0, 2], move[0] = quarter, torch.tensor([0.125, 0, 0, 0, 2.0])
    assert group.compose(turn, move).tolist() == [[0.0, 0.125, quarter, -2.0, 0.0]]
    assert group.compose(move, turn).tolist() == [[0.125, 0.0, quarter, 0.0, 2.0]]


def test_products_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="acts in 1 and in 2 dimensions"):
        Product(Galilean(1), PointGroup("p4"))
    with pytest.raises(ValueError, match="a change of sign does not turn a boost into another"):
        Product(Galilean(1), PointGroup("sign-1d"))
    with pytest.raises(ValueError, match="must keep the centre of the box"):
        Product(Euclidean(), PointGroup("p4", centre=0.25))
    with pytest.raises(ValueError, match=r"does not keep the line along \(1, ..., 1\)"):
        Product(Galilean(2, diagonal=True), PointGroup("p4"))


def test_an_exchange_of_axes_needs_a_square_box() -> None:
    type = FieldType.parse("c: scalar", 2, lengths=(1.0, 2.0))
    PointGroup("p2m").check_action(type)
    with pytest.raises(FieldError, match=r"p4: exchanges axes.* got \(1.0, 2.0\)"):
        PointGroup("p4").check_action(type)


def test_a_group_of_another_dimension_names_those_that_fit() -> None:
    with pytest.raises(
        FieldError, match="acts in 2 dimensions, the field has 3: choose one of .*cube"
    ):
        PointGroup("p4m").check_action(FieldType.parse("h: scalar", 3))
