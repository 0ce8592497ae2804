"""Averages over finite groups, and PACE around them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import pacefno
from pacefno.fields import Box, Field, FieldType
from pacefno.frames import (
    AnalyticFrame,
    CanonicalSlice,
    MomentSlice,
    PhaseSlice,
    StrongestWaveSlice,
)
from pacefno.grid import FieldError, points
from pacefno.groups import Euclidean, Galilean, Group, PointGroup, Product, Translation
from pacefno.metrics import equivariance_error
from pacefno.operators import FNO, Symmetrised
from pacefno.testing import assert_equivariant, random_field

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
WATER = "h: scalar, m: momentum of h"
# group, channels of a snapshot, grid
CASES = [
    (PointGroup("z2"), "u: speed", (16,)),
    (PointGroup("z2", centre=0.25), "u: velocity, c: scalar", (20,)),
    (PointGroup("sign-1d"), "scalar", (9,)),
    (PointGroup("p4m"), WATER, (10, 10)),
    (PointGroup("p4m"), "w: pseudoscalar", (9, 9)),
    (PointGroup("diagonal", centre=0.25), "u: speed", (8, 8)),
    (PointGroup("glide-y"), "u: velocity", (8, 7)),
    (PointGroup("diagonal-3d"), "u: speed", (6, 6, 6)),
    (PointGroup("cube"), "u: velocity", (6, 6, 6)),
]


def small(dim: int, count: int, **options: object) -> FNO:
    torch.manual_seed(0)
    sizes = {"width": 6, "modes": 3, "layers": 2, "head": 8, "positions": "grid"}
    return FNO(dim, count, count, **(sizes | options))  # type: ignore[arg-type]


def fields(channels: str, grid: tuple[int, ...], dtype: torch.dtype, batch: int = 3) -> Tensor:
    text = "c: scalar" if channels == "scalar" else channels
    return random_field(FieldType.parse(text, len(grid)), grid, batch=batch, dtype=dtype).values


# --- the average


@pytest.mark.parametrize(("group", "channels", "grid"), CASES, ids=lambda case: str(case))
def test_the_average_commutes_with_every_element(
    group: PointGroup, channels: str, grid: tuple[int, ...], dtype: torch.dtype
) -> None:
    field = fields(channels, grid, dtype)
    operator = small(len(grid), field.shape[1]).to(dtype).eval()
    model = Symmetrised(operator, group, channels).eval()
    type = {"channels": "c: scalar" if channels == "scalar" else channels}
    for index in range(0, group.order, 1 if group.order < 20 else 5):
        xi = torch.full((len(field), 1), float(index), dtype=torch.float64)
        assert_equivariant(model, group, field, xi=xi, tolerance=TOLERANCE[dtype], **type)
    last = torch.full((len(field), 1), group.order - 1.0, dtype=torch.float64)
    assert float(equivariance_error(operator, group, field, xi=last, **type).min()) > 1e-3


def test_the_average_is_that_of_its_terms(dtype: torch.dtype) -> None:
    group, field = PointGroup("p4m"), fields(WATER, (8, 8), dtype)
    operator = small(2, 3).to(dtype).eval()
    rho = group.representation_of(FieldType.parse(WATER, 2), 3)
    terms = [
        group.move(operator(group.move(field, g, rho)), group.inverses[g], rho)
        for g in range(group.order)
    ]
    made = Symmetrised(operator, group, WATER).eval()(field)
    assert torch.allclose(made, torch.stack(terms).mean(0), atol=1e-6)


def test_the_operator_is_called_once() -> None:
    sizes: list[int] = []

    class Counting(nn.Module):
        def forward(self, field: Tensor) -> Tensor:
            sizes.append(len(field))
            return field

    field = fields(WATER, (8, 8), torch.float64)
    for samples, expected in ((None, 24), (3, 9), (1, 3), (0, 3)):
        made = Symmetrised(Counting(), "p4m", WATER, samples=samples).train()(field)
        assert torch.allclose(made, field, atol=1e-12) and sizes.pop() == expected and not sizes


@pytest.mark.parametrize("samples", [1, 2, 3, 7])
def test_random_elements_average_to_the_whole_group(samples: int) -> None:
    """Over all draws, and over one where the batch is a multiple of the group."""
    group, field = PointGroup("p4m"), fields("w: pseudoscalar", (8, 8), torch.float64, batch=1)
    operator = small(2, 1).double()
    whole = Symmetrised(operator, group, "w: pseudoscalar").eval()(field)
    part = Symmetrised(operator, group, "w: pseudoscalar", samples=samples).train()
    torch.manual_seed(0)
    with torch.no_grad():
        drawn = part(field)
        assert float((drawn - whole).norm() / whole.norm()) > 1e-3
        repeated = part(field.expand(8, -1, -1, -1)).mean(dim=0, keepdim=True)
    assert torch.allclose(repeated, whole, atol=1e-12)


def test_draws_follow_the_generator_of_torch_and_evaluation_draws_nothing() -> None:
    field = fields("u: speed", (16,), torch.float32)
    model = Symmetrised(small(1, 1), "z2", "u: speed", samples=1)
    torch.manual_seed(3)
    first = [model(field) for _ in range(6)]
    torch.manual_seed(3)
    again = [model(field) for _ in range(6)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not torch.equal(first[0], other) for other in first[1:])
    whole = Symmetrised(small(1, 1), "z2", "u: speed")
    before = torch.get_rng_state()
    model.eval()(field)
    whole.train()(field)
    assert torch.equal(before, torch.get_rng_state())


def test_boxes_follow_an_exchange_of_axes() -> None:
    seen: list[Box] = []

    class Told(nn.Module):
        def forward(self, field: Tensor, box: Box) -> Tensor:
            seen.append(box)
            return field

    box = Box(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0.1, 0.2]))
    field = fields("u: speed", (8, 8), torch.float64, batch=2)
    Symmetrised(Told(), "diagonal", "u: speed").eval()(field, box=box)
    swapped = [[1.0, 2.0], [3.0, 4.0], [2.0, 1.0], [4.0, 3.0]]
    assert sorted(seen[0].lengths.tolist()) == sorted(2 * swapped)
    assert seen[0].step.tolist() == pytest.approx([0.1, 0.2] * 4)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="samples: expected None or 0 to 2.*got 3"):
        Symmetrised(small(1, 1), "z2", "u: speed", samples=3)
    with pytest.raises(ValueError, match="unknown point group 'z3'"):
        Symmetrised(small(1, 1), "z3", "u: speed")
    with pytest.raises(ValueError, match=r"does not keep the line along \(1, ..., 1\)"):
        Symmetrised(small(2, 1), "p4", "u: speed")


def test_a_model_with_a_finite_group_is_saved_and_loaded(tmp_path: Path) -> None:
    group = PointGroup.generated("odd", pacefno.groups.element(((-1,),), 0.5, -1))
    operator = Symmetrised(small(1, 1), group, "u: scalar", samples=1)
    model = pacefno.PACE(operator, Translation(1), channels="u: scalar").eval()
    pacefno.save(model, tmp_path / "saved")
    again = pacefno.load(tmp_path / "saved")
    field = fields("u: scalar", (16,), torch.float32)
    assert torch.equal(again(field), model(field))
    assert isinstance(again.operator, Symmetrised)
    assert again.operator.group.elements == group.elements


# --- inside PACE: which slices make the product exact


def wrapped(
    operator: nn.Module, group: Group, slice: CanonicalSlice, channels: str
) -> pacefno.PACE:
    types = {"channels": channels} | (
        {"horizon": 0.3, "lengths": 1.0} if group.moves_in_time else {}
    )
    return pacefno.PACE(operator, group, frame=AnalyticFrame(group, slice), **types).eval()


def product_error(
    motion: Group, point: PointGroup, slice: CanonicalSlice, channels: str, field: Tensor,
    positions: str | None = "grid",
) -> float:  # fmt: skip
    """The error over elements of the product, of motions and the point group about the centre."""
    operator = small(motion.dim, field.shape[1], positions=positions).to(field.dtype)
    model = wrapped(Symmetrised(operator, point, channels), motion, slice, channels)
    whole = Product(motion, PointGroup(point.which))
    worst = [
        float(equivariance_error(model, whole, field, seed=seed).max())
        for seed in range(min(point.order, 16))
    ]
    return max(worst)


EXACT_SLICES = [
    # A scalar in its first wave stays at phase 0 in a mirror; a speed changes sign, which is half a
    # period, unless mirrors are about a quarter of the box.
    ("u: scalar", Translation(1), PointGroup("z2"), (32,)),
    ("u: speed", Galilean(1), PointGroup("z2", centre=0.25), (32,)),
    ("u: speed", Galilean(2, diagonal=True), PointGroup("diagonal", centre=0.25), (16, 16)),
    ("h: scalar, u: velocity", Galilean(2), PointGroup("p4m"), (16, 16)),
    ("p: scalar, u: velocity", Galilean(3), PointGroup("cube"), (8, 8, 8)),
]


@pytest.mark.parametrize(("channels", "motion", "point", "grid"), EXACT_SLICES)
def test_phases_make_the_product_exact(
    channels: str, motion: Group, point: PointGroup, grid: tuple[int, ...], dtype: torch.dtype
) -> None:
    type = FieldType.parse(channels, motion.dim)
    field = random_field(type, grid, batch=3, top=2, dtype=dtype).values
    assert product_error(motion, point, PhaseSlice(motion), channels, field) < TOLERANCE[dtype]


def test_a_mirror_about_zero_moves_a_speed_off_its_slice_which_only_positions_tell(
    dtype: torch.dtype,
) -> None:
    motion, channels = Galilean(1), "u: speed"
    field = random_field(FieldType.parse(channels, 1), (32,), batch=3, top=2, dtype=dtype).values
    about_zero = (motion, PointGroup("z2"), PhaseSlice(motion), channels, field)
    assert product_error(*about_zero) > 1e-3
    assert product_error(*about_zero, positions=None) < TOLERANCE[dtype]


def test_the_highest_crest_of_a_wave_is_not_that_of_its_mirror_image(dtype: torch.dtype) -> None:
    """Exact where the longest wave is the strongest, and of a scalar; not of a speed, whose crests
    become troughs.
    """
    x = points((32,), dtype=dtype)[0]
    long = torch.cos(2 * torch.pi * x) + 0.2 * torch.sin(4 * torch.pi * x)
    short = 0.1 * torch.cos(2 * torch.pi * x) + torch.cos(4 * torch.pi * x - 1)
    exact = TOLERANCE[dtype]
    for values, kind, motion, centre, low, high in (
        (long, "scalar", Translation(1), 0.0, 0.0, exact),
        (long, "speed", Galilean(1), 0.25, 0.0, exact),
        (short, "speed", Galilean(1), 0.25, 1e-3, 10.0),
    ):
        point, slice = PointGroup("z2", centre=centre), StrongestWaveSlice(motion)
        found = product_error(motion, point, slice, f"u: {kind}", values.expand(8, 1, -1))
        assert low <= found < high, (kind, found)


def test_moments_keep_one_mirror(dtype: torch.dtype) -> None:
    """The impulse along +x survives the mirror of x alone, in which vorticity changes sign; half a
    turn is found by the frame.
    """
    motion, channels = Euclidean(), "w: pseudoscalar"
    x, y = points((32, 32), dtype=dtype)

    def blob(a: float, b: float, size: float) -> Tensor:
        return size * torch.exp(-(((x - a) ** 2 + (y - b) ** 2) / 0.003))

    field = (blob(0.45, 0.6, 1.0) + blob(0.55, 0.4, -0.9) + blob(0.6, 0.55, 0.3))[None, None]

    class Inside(nn.Module):
        """Its output keeps clear of the edges: what a rotation tears there no mirror mends."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = small(2, 1).to(dtype)

        def forward(self, field: Tensor) -> Tensor:
            return field * (1 + self.inner(field))

    operator = Symmetrised(Inside(), "mirror-x", channels)
    model = wrapped(operator, motion, MomentSlice(motion), channels)
    whole = Product(motion, PointGroup("p2m"))
    few = field.expand(4, -1, -1, -1)
    xi = torch.tensor([[2 / 32, -3 / 32, 0, g] for g in range(4)], dtype=torch.float64)
    # What lies in the corners of the box blurs the moments a little.
    allowed = 1e-5
    assert float(equivariance_error(model, whole, few, xi=xi).max()) < allowed
    plain = wrapped(Inside(), motion, MomentSlice(motion), channels)
    assert float(equivariance_error(plain, whole, few, xi=xi).max()) > 1e-4
    other = Symmetrised(Inside(), "mirror-y", channels)
    model = wrapped(other, motion, MomentSlice(motion), channels)
    assert float(equivariance_error(model, whole, few, xi=xi).max()) > 1e-4


def test_elements_of_a_product_are_reported_by_name() -> None:
    field = fields("u: speed", (16,), torch.float64)
    model = wrapped(small(1, 1).double(), Galilean(1), PhaseSlice(Galilean(1)), "u: speed")
    whole = Product(Galilean(1), PointGroup("z2"))
    with pytest.raises(AssertionError, match=r"(?s)not equivariant under product.*element 1"):
        assert_equivariant(model, whole, field, xi=torch.tensor([[0.1, 1.0, 0.2]] * 3).double())


def test_a_field_of_a_finite_group_keeps_its_type() -> None:
    type = FieldType.parse(WATER, 2, times=(0.0, 1.0), lengths=3.0)
    field = random_field(type, (8, 8), batch=4)
    moved = PointGroup("p4").act(field, torch.arange(4.0)[:, None])
    assert isinstance(moved, Field) and moved.type == type
    assert torch.equal(moved.values[0], field.values[0])


# --- as the group of a task, and of PACE


@pytest.mark.parametrize(
    "group",
    [
        PointGroup("p4m"),
        PointGroup.generated("glide", pacefno.groups.element(((1, 0), (0, -1)), (0.5, 0.25))),
        Product(Galilean(2), PointGroup("p4m")),
        Product(Euclidean(), PointGroup("p4")),
    ],
    ids=lambda group: "-".join(group.coordinates),
)
def test_a_task_names_a_finite_group_and_is_read_again(group: Group) -> None:
    type = FieldType.parse("u: velocity", 2)
    reach = tuple(1.0 if period == float("inf") else period / 2 for period in group.periods)
    task = pacefno.Task(input=type, output=type.at([0.5]), group=group, train_range=reach)
    again = pacefno.Task.model_validate(task.document())
    field = random_field(type, (8, 8), batch=5)
    xi = again.group.sample([0.0] * group.size, again.train_range, 5, torch.Generator())
    assert torch.equal(again.group.act(field, xi).values, group.act(field, xi).values)
    assert again.document() == task.document()


def test_pace_says_that_it_does_not_find_a_finite_element() -> None:
    group = Product(Galilean(1), PointGroup("z2"))
    model = pacefno.PACE(small(1, 1), group, channels="u: speed", horizon=0.3, lengths=1.0).eval()
    with pytest.warns(pacefno.UndeterminedFrameWarning, match="is not determined: element"):
        model(fields("u: speed", (16,), torch.float32))


def test_axes_that_are_exchanged_need_the_same_number_of_points() -> None:
    """What only one axis resolves stays where it is in a quarter turn: that is no average."""
    model = Symmetrised(nn.Conv2d(1, 1, 3, padding=1), "p4", channels="a: scalar").eval()
    with pytest.raises(FieldError, match=r"same number of points, got \(16, 12\): resample"):
        model(torch.randn(1, 1, 16, 12))
    halves = Symmetrised(nn.Conv2d(1, 1, 3, padding=1), "p2m", channels="a: scalar").eval()
    assert halves(torch.randn(1, 1, 16, 12)).shape == (1, 1, 16, 12)


def test_a_model_that_predicted_first_can_be_trained_afterwards() -> None:
    operator = torch.nn.Conv2d(2, 2, 3, padding=1)
    model = Symmetrised(operator, "p4", "u v: velocity")
    field = torch.randn(2, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        model.eval()(field)
    model.train()(field).sum().backward()
    assert operator.weight.grad is not None
