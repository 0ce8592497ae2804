"""What a tensor means: kinds of channels, times of snapshots, lengths of the box."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pacefno.fields import KINDS, Box, Field, FieldType, Kind, Quantity, parse_channels
from pacefno.grid import FieldError
from pacefno.groups.euclidean import rotation_matrix
from pacefno.registry import lookup

WATER = "h: scalar, m: momentum of h"


def numbered(type: FieldType, grid: tuple[int, ...] = (), batch: int = 2) -> Field:
    """Every value tells its channel: sample 0 holds 0, 1, 2, ..., sample 1 the same plus 100."""
    grid = grid or (4, 5, 6)[: type.dim]
    channels = torch.arange(type.size, dtype=torch.float64) + 100 * torch.arange(batch)[:, None]
    return Field(channels.reshape(batch, -1, *[1] * type.dim).expand(-1, -1, *grid), type)


# --- channels


@pytest.mark.parametrize(
    ("text", "dim", "channels"),
    [
        ("u: velocity", 1, ("u",)),
        ("u: velocity, p: scalar", 2, ("u_x", "u_y", "p")),
        ("u v: velocity, p: scalar", 2, ("u", "v", "p")),
        ("u v w: velocity", 3, ("u", "v", "w")),
        (WATER, 2, ("h", "m_x", "m_y")),
        ("  w :pseudoscalar ,c:  scalar ", 2, ("w", "c")),
        ("u: speed", 3, ("u",)),
    ],
)
def test_channels_are_read_in_order_with_one_per_component(
    text: str, dim: int, channels: tuple[str, ...]
) -> None:
    type = FieldType.parse(text, dim)
    assert type.channels == channels and type.size == len(channels)
    assert FieldType.parse(type.text, dim) == type  # what is written is read again


def test_a_vector_is_named_by_its_first_word_and_a_list_by_all_of_them() -> None:
    assert [q.name for q in parse_channels("u: velocity, p: scalar", 2)] == ["u", "p"]
    assert [q.name for q in parse_channels("u v: velocity", 2)] == ["u v"]
    assert parse_channels(WATER, 2)[1] == Quantity("m", "momentum", ("m_x", "m_y"), "h")


@pytest.mark.parametrize(
    ("text", "dim", "sentence"),
    [
        ("velocity", 2, "cannot read 'velocity': expected \"u: velocity, p: scalar\""),
        ("u: velocity,", 2, "cannot read ''"),
        ("u: velocty", 2, "unknown kind 'velocty'. Did you mean 'velocity'"),
        ("u v w: velocity", 2, "'u v w' is a velocity and has 2 components in 2 dimensions, got 3"),
        ("u v: scalar", 2, "'u v' is a scalar and has 1 component in 2 dimensions, got 2 names"),
        ("u: scalar, u: scalar", 1, r"\['u'\] named twice"),
        ("u: velocity, u_x: scalar", 2, r"\['u_x'\] named twice"),
        ("m: momentum", 2, "'m' is a momentum, so say of which density: \"m: momentum of NAME\""),
        ("m: momentum of h", 2, r"with NAME one of \(none\)"),
        ("u: velocity, m: momentum of u", 2, "of which density"),
        ("u: velocity, m: momentum of u", 1, "of which density"),
        ("h: scalar, u: velocity of h", 2, "'u': a velocity is not 'of' anything"),
    ],
)
def test_channels_that_make_no_sense_are_refused_in_a_sentence(
    text: str, dim: int, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        FieldType.parse(text, dim)


# --- types


def test_a_type_knows_snapshots_lengths_and_step() -> None:
    type = FieldType.parse("u: velocity", 2, times=(0, 1, 5), lengths=(2, 3), step=0.1)
    assert type.snapshots == 3 and type.size == 6 and type.lengths == (2.0, 3.0)
    assert type.at([7]).times == (7.0,) and type.at([7]).step == 0.1
    assert FieldType.parse("u: velocity", 2, lengths=2).lengths == (2.0, 2.0)
    assert FieldType.parse("u: velocity", 3).lengths == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lengths": (1.0,)}, r"lengths: expected 2 positive numbers, one per axis, got \(1.0,\)"),
        ({"lengths": (1.0, 0.0)}, "lengths: expected 2 positive numbers"),
        ({"lengths": (1.0, math.inf)}, "lengths: expected 2 positive numbers"),
        ({"times": ()}, "times: expected finite times"),
        ({"times": (0.0, math.nan)}, "times: expected finite times"),
        ({"step": 0.0}, "a positive step"),
        ({"dim": 4}, "expected 1, 2 or 3 dimensions, got 4"),
    ],
)
def test_impossible_boxes_and_times_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(FieldError, match=sentence):
        FieldType.parse(**({"channels": "p: scalar", "dim": 2} | options))


def test_a_type_is_stored_as_a_document_and_read_again() -> None:
    type = FieldType.parse(WATER, 2, times=(0, 0.5), lengths=(2, 3), step=0.1)
    assert FieldType.from_document(type.document()) == type
    assert FieldType.from_document({"channels": "u: speed", "dim": 1}).lengths == (1.0,)
    with pytest.raises(FieldError, match=r"unknown entries \['length'\]"):
        FieldType.from_document(type.document() | {"length": 1.0})
    with pytest.raises(FieldError, match=r"\['dim'\] missing"):
        FieldType.from_document({"channels": "u: speed"})


def test_channels_of_which_nothing_is_known_may_be_any_number() -> None:
    type = FieldType.parse("", 1)
    assert type.channels == () and type.text == "" and not type.vectors
    assert Field(torch.zeros(2, 7, 8), type).by_snapshot.shape == (2, 1, 7, 8)
    with pytest.raises(FieldError, match="say channels="):
        _ = type.size


def test_places_and_names_of_quantities() -> None:
    type = FieldType.parse("p: scalar, u: velocity, c: scalar", 2)
    assert [type.place(q) for q in type.quantities] == [slice(0, 1), slice(1, 3), slice(3, 4)]
    assert type.named("c").components == ("c",) and type.vectors
    assert not FieldType.parse("w: pseudoscalar", 2).vectors
    with pytest.raises(FieldError, match="there is no quantity 'q' among"):
        type.named("q")


# --- fields


def test_a_field_splits_into_snapshots_and_quantities() -> None:
    type = FieldType.parse("p: scalar, u: velocity", 2, times=(0, 1))
    field = numbered(type)
    assert field.by_snapshot[0, :, :, 0, 0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert field.of(type.named("u"))[1, :, :, 0, 0].tolist() == [[101, 102], [104, 105]]
    assert field.grid == (4, 5) and len(field) == 2


def test_some_snapshots_keep_their_times_and_box() -> None:
    type = FieldType.parse("p: scalar, c: scalar", 1, times=(0, 1, 4), step=0.5)
    box = Box(torch.tensor([[2.0], [3.0]]), torch.tensor([0.5, 0.7]))
    field = Field(numbered(type).values, type, box)
    last = field.at([-1])
    assert last.type.times == (4.0,) and last.values[0, :, 0].tolist() == [4, 5]
    assert last.box is box and torch.allclose(last.times, torch.tensor([[2.0], [2.8]]).double())
    assert field.at([0, 1, 2]) is field
    assert field.at([2, 0]).values[0, :, 0].tolist() == [4, 5, 0, 1]


def test_times_and_lengths_are_in_float64_and_the_box_of_a_sample_comes_first(
    dtype: torch.dtype,
) -> None:
    type = FieldType.parse("p: scalar", 2, times=(0, 2), lengths=(2.0, 3.0), step=0.25)
    values = torch.zeros(2, 2, 4, 4, dtype=dtype)
    plain = Field(values, type)
    assert plain.times.tolist() == [[0, 0.5]] and plain.lengths.tolist() == [[2, 3]]
    box = Box(torch.tensor([[1.0, 4.0], [5.0, 6.0]], dtype=dtype), torch.tensor([0.5, 1.0]))
    boxed = Field(values, type, box)
    assert boxed.times.tolist() == [[0, 1], [0, 2]] and boxed.lengths.tolist() == [[1, 4], [5, 6]]
    assert {t.dtype for t in (plain.times, plain.lengths, boxed.times, boxed.lengths)} == {
        torch.float64
    }
    assert boxed.with_values(values + 1).box is box
    assert boxed.to(torch.float16).values.dtype == torch.float16
    assert box.select(slice(1, 2)).step.tolist() == [1.0]
    assert box.to(torch.float64).step.dtype == torch.float64


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((2, 1, 8, 8), "give it 4 channels, not 1"),
        ((2, 2, 8, 8), "give it 4 channels, not 2"),
        ((4, 8, 8), "add a batch axis"),
        ((2, 4, 8), r"expected \(B, 4, N, M\)"),
        ((2, 4, 8, 8, 8), r"expected \(B, 4, N, M\)"),
    ],
)
def test_values_that_do_not_fit_their_type_are_refused(
    shape: tuple[int, ...], sentence: str
) -> None:
    """Two snapshots of a plane velocity: a vector with one component is one of them."""
    with pytest.raises(FieldError, match=sentence):
        Field(torch.zeros(shape), FieldType.parse("u: velocity", 2, times=(0, 1)))


# --- kinds


def kind(name: str) -> Kind:
    rules: Kind = lookup("kind", name)()
    return rules


def test_every_kind_is_a_representation_of_the_matrices_that_it_can_turn_under() -> None:
    """``rho(A B) = rho(A) rho(B)`` for orthogonal matrices, mirrors among them."""
    a, b = rotation_matrix(torch.tensor([0.3, -1.2], dtype=torch.float64)).unbind()
    mirror = torch.tensor([[-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    for name in KINDS:
        rho = kind(name).representation
        line = kind(name).carries == "the diagonal"  # what keeps the line along (1, 1)
        pairs = [(swap, -swap), (-swap, -swap)] if line else [(a, b), (a, mirror), (mirror, mirror)]
        for left, right in pairs:
            torch.testing.assert_close(rho(left @ right), rho(left) @ rho(right))


def test_mirrors_change_the_sign_of_vorticity_and_of_one_component() -> None:
    mirror = torch.tensor([[-1.0, 0.0], [0.0, 1.0]])
    assert kind("scalar").representation(mirror).tolist() == [[1]]
    assert kind("pseudoscalar").representation(mirror).tolist() == [[-1]]
    assert torch.equal(kind("velocity").representation(mirror), mirror)
    with pytest.raises(FieldError, match="does not keep the line along"):
        kind("speed").representation(mirror)


@pytest.mark.parametrize("name", list(KINDS))
def test_a_boost_changes_the_background_by_its_velocity(
    name: str, dtype: torch.dtype, tolerance: float
) -> None:
    rules, generator = kind(name), torch.Generator().manual_seed(0)
    n = rules.components(2)
    value = torch.randn(3, 2, n, 6, 7, dtype=dtype, generator=generator)
    density = 2 + 0.1 * torch.randn(3, 2, 1, 6, 7, dtype=dtype, generator=generator)
    velocity = torch.tensor([[0.5, 0.5], [-1.0, -1.0], [0.2, 0.2]], dtype=torch.float64)
    moved = rules.boost(value, velocity.reshape(3, 1, 2, 1, 1), density)
    assert moved.dtype == dtype and moved.shape == value.shape
    if rules.carries == "no":
        assert torch.equal(moved, value)
        with pytest.raises(FieldError, match="does not tell the velocity of its frame"):
            rules.background(value, density)
        return
    before, after = rules.background(value, density), rules.background(moved, density)
    assert before.dtype == torch.float64 and before.shape == (3, n)
    assert float((after - before - velocity[:, :n]).abs().max()) < tolerance


def single_mean(value: Tensor) -> Tensor:
    """A mean whose partial sums are rounded to float32: what must not be used."""
    total = torch.zeros(value.shape[0], value.shape[2])
    for point in value.flatten(3)[:, 0].unbind(dim=-1):
        total = total + point
    return total.double() / value[0, 0, 0].numel()


def test_the_background_of_a_long_field_keeps_its_digits() -> None:
    generator = torch.Generator().manual_seed(0)
    value = 3 + 0.1 * torch.randn(2, 1, 1, 20000, generator=generator)
    exact = value.double().flatten(1).mean(dim=1, keepdim=True)
    for name in ("velocity", "speed"):
        assert float((kind(name).background(value, None) - exact).abs().max()) < 1e-12
    assert float((single_mean(value) - exact).abs().max()) > 1e-6


def test_a_field_goes_to_another_device_with_its_box_and_keeps_the_precision_of_that() -> None:
    box = Box(torch.tensor([[2.0]], dtype=torch.float64), torch.tensor([0.1], dtype=torch.float64))
    field = Field(torch.zeros(1, 1, 8, dtype=torch.float64), FieldType.parse("a: scalar", 1), box)
    there = field.to(torch.device("meta"))
    assert there.box is not None and {there.values.device.type, there.box.step.device.type} == {
        "meta"
    }
    single = field.to(torch.float32)
    assert single.values.dtype == torch.float32
    assert single.box is not None and single.box.lengths.dtype == torch.float64


@pytest.mark.parametrize(
    "lengths, step", [((2,), (2,)), ((2, 1), (2,)), ((3, 2), (3,)), ((2, 2), ())]
)
def test_a_box_has_one_row_for_each_sample(lengths: tuple[int, ...], step: tuple[int, ...]) -> None:
    type, values = FieldType.parse("h: scalar", 2), torch.zeros(2, 1, 8, 8)
    with pytest.raises(FieldError, match=r"box: expected lengths \(2, 2\) and steps \(2,\)"):
        Field(values, type, Box(torch.ones(lengths), torch.ones(step)))
    assert len(Field(values, type, Box(torch.ones(2, 2), torch.ones(2)))) == 2
