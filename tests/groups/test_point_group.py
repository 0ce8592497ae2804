"""Finite groups of the grid, and how they act on channels."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from pacefno.grid import FieldError
from pacefno.groups import POINT_GROUPS, PointGroup, representation, symmetric_scale
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
    ("diagonal-3d", "u: speed, e: vector", 4, (5, 5, 5)),
]


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


# --- groups


def test_the_cases_cover_every_point_group_but_the_trivial_ones() -> None:
    assert {name for name, *_ in CASES} == {
        n for n, group in POINT_GROUPS.items() if group.size > 1
    }


@pytest.mark.parametrize(
    ("name", "order"),
    [("z1", 1), ("p1", 1), ("z2", 2), ("p4", 4), ("p4m", 8), ("diagonal", 4), ("diagonal-3d", 12)],
)
def test_groups_have_their_order_and_start_with_the_identity(name: str, order: int) -> None:
    group = POINT_GROUPS[name]
    assert group.size == order
    assert group.moves(0) == (list(range(group.dim)), [])
    for g in range(order):
        assert group.quotients[g][g] == 0 and group.quotients[g][0] == group.inverses[g]


@pytest.mark.parametrize("shape", [(6, 6), (7, 7)])
def test_turns_agree_with_those_of_the_euclidean_group(shape: tuple[int, int]) -> None:
    group, field = POINT_GROUPS["p4"], random(2, 1, *shape)
    rho = representation(group, "scalar", 1)
    quarter = group.matrices.index(((0, -1), (1, 0)))
    half = group.matrices.index(((-1, 0), (0, -1)))
    assert torch.equal(group.act(field, quarter, rho), quarter_turn(field))
    assert torch.equal(group.act(field, half, rho), half_turn(field))


@pytest.mark.parametrize(("name", "channels", "count", "grid"), CASES)
def test_acting_twice_is_acting_with_the_product(
    name: str, channels: str, count: int, grid: tuple[int, ...], dtype: torch.dtype
) -> None:
    group, field = POINT_GROUPS[name], random(1, count, *grid, dtype=dtype)
    rho = representation(group, channels, count)
    for g, h in product(range(group.size), repeat=2):
        both = group.matrices.index(multiply(group.matrices[g], group.matrices[h]))
        twice = group.act(group.act(field, h, rho), g, rho)
        assert torch.equal(twice, group.act(field, both, rho))


def test_components_that_are_left_behind_are_found() -> None:
    """Acting twice with a representation of another group is not acting with the product."""
    group, field = POINT_GROUPS["p4"], random(1, 2, 6, 6)
    rho = representation(group, "u: vector", 2).roll(1, 0)
    quarter = group.matrices.index(((0, -1), (1, 0)))
    half = group.matrices.index(((-1, 0), (0, -1)))
    twice = group.act(group.act(field, quarter, rho), quarter, rho)
    assert not torch.allclose(twice, group.act(field, half, rho), atol=0.1)


def test_autocast_does_not_round_what_an_element_moves() -> None:
    group, field = POINT_GROUPS["p4"], random(1, 2, 6, 6, dtype=torch.float32)
    rho = representation(group, "u: vector", 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = group.act(field, 1, rho)
    assert torch.equal(cast, group.act(field, 1, rho))


def test_what_is_no_group_of_the_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="no other matrix keeps a grid"):
        PointGroup.generated("shear", ((1, 1), (0, 1)))
    with pytest.raises(ValueError, match="a product of two elements is missing"):
        PointGroup("part", (((1, 0), (0, 1)), ((0, -1), (1, 0))))


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
