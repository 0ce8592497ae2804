"""Frames, over the registry: what every frame promises, and what only some keep."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from group_examples import TAU, Example, example, of_the_package
from pacefno.errors import UsageError
from pacefno.fields import Box, Field, FieldType
from pacefno.frames import (
    FRAMES,
    AnalyticFrame,
    CNNFrame,
    EquivariantFrame,
    Estimate,
    Frame,
    IdentityFrame,
    KinematicFrame,
    PartialFrame,
    PhaseSlice,
    QuarterSlice,
    SeamFrame,
    TurningFrame,
)
from pacefno.frames.learned import (
    CircularConvolution,
    DensityNetwork,
    harmonics,
    retract,
    shares,
    standardise,
    wrap_around,
)
from pacefno.grid import FieldError, band_limit, points, resample
from pacefno.groups import (
    Euclidean,
    Galilean,
    GalileanScaling,
    Group,
    PointGroup,
    Product,
    SpecialGalilean,
    Translation,
    Trivial,
)
from pacefno.metrics import random_elements
from pacefno.testing import frame_defect, frame_laws, largest

CASES: dict[str, Example] = {
    "translation-1d": example(Translation(1), "a: scalar"),
    "translation-2d": example(Translation(2), "a: scalar", (2.0, 1.0)),
    "galilean-1d": example(Galilean(1), "u: speed"),
    "galilean-1d-snapshots": example(Galilean(1), "u: velocity", 22.0, (0.0, 1.0, 4.0), 0.3),
    "galilean-2d": example(Galilean(2), "u: velocity, p: scalar", TAU),
    "galilean-2d-later": example(Galilean(2), "u: velocity", (2.0, 1.5), (0.7,)),
    "galilean-2d-momentum": example(Galilean(2), "h: scalar, m: momentum of h"),
    "galilean-2d-diagonal": example(Galilean(2, diagonal=True), "u: speed"),
    "galilean-scaling": example(GalileanScaling(), "u: speed", 30.0, (0.0, 1.0), 0.2),
    "galilean-scaling-later": example(GalileanScaling(), "u: speed", 30.0, (2.0, 3.0), 0.2),
    "euclidean": example(Euclidean(), "w: pseudoscalar"),
    "special-galilean": example(SpecialGalilean(), "u v: velocity, c: scalar", 2.0, (0.4,)),
}
BUILDERS: dict[str, Callable[[Group, FieldType], Frame]] = {
    "identity": lambda group, type: IdentityFrame(group),
    "kinematic": lambda group, type: KinematicFrame(group),
    "analytic": lambda group, type: AnalyticFrame(group),
    "equivariant": lambda group, type: EquivariantFrame(group, type),
    "equivariant-free": lambda group, type: EquivariantFrame(group, type, aligned=False),
    "cnn": lambda group, type: CNNFrame(group, type),
    "cnn-numbers": lambda group, type: CNNFrame(group, type, retracted=False),
    "partial": lambda group, type: PartialFrame(group, AnalyticFrame(group), group.size - 1),
}
ELSEWHERE = {"seam", "turning"}  # of rotated periodic fields: test_rotated_periodic.py
TURNED = ["euclidean", "special-galilean"]
EXACT_CASES = [name for name in CASES if name not in TURNED]
ESTIMATED = ["analytic", "equivariant", "equivariant-free", "cnn"]  # those that find a position
LEARNED = ["equivariant", "equivariant-free", "cnn", "cnn-numbers"]
SHAPES: dict[int, list[tuple[int, ...]]] = {1: [(64,), (101,)], 2: [(32, 32), (25, 36)]}
# each frame with each case, on even and odd grids by turns
ALL = [
    (name, case, SHAPES[CASES[case].type.dim][(i + j) % 2])
    for i, name in enumerate(BUILDERS)
    for j, case in enumerate(CASES)
]
over_all = pytest.mark.parametrize(("name", "case", "shape"), ALL)
over_cases = pytest.mark.parametrize("case", list(CASES))
# one of each kind of group, for what does not depend on more
FEW = [
    "translation-1d",
    "galilean-1d-snapshots",
    "galilean-2d",
    "galilean-2d-momentum",
    "euclidean",
]
over_few = pytest.mark.parametrize("case", FEW)


def fields_for(
    chosen: Example,
    shape: tuple[int, ...],
    dtype: torch.dtype = torch.float64,
    batch: int = 4,
    top: int = 4,
) -> Field:
    """Smooth random fields with a mean; a density is positive, and for rotations all is compact."""
    type, dim = chosen.type, chosen.type.dim
    generator = torch.Generator().manual_seed(11)
    small = [2 * top + 1] * dim
    values = resample(
        torch.randn(batch, type.size, *small, dtype=torch.float64, generator=generator), shape
    )
    if "angle" in chosen.group.coordinates:
        r = (points(shape) - 0.5).square().sum(dim=0).sqrt()
        values = values * torch.exp(-((r / 0.12) ** 2))
    else:
        values = values + 0.3
    if chosen.has_momentum:  # the mean of m/h is exact only where the grid resolves 1/h
        values[:, 0] = 1 + 0.02 * values[:, 0]
    return Field(values.to(dtype), type)


def perturb(frame: Frame) -> Frame:
    """Move every weight, also those that start at zero."""
    with torch.no_grad():
        for parameter in frame.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return frame


def build(
    name: str, chosen: Example, dtype: torch.dtype = torch.float64, *, perturbed: bool = True
) -> Frame:
    torch.manual_seed(0)
    frame = BUILDERS[name](chosen.group, chosen.type).to(dtype)
    return perturb(frame) if perturbed else frame


def test_every_registered_frame_is_built_here_or_elsewhere() -> None:
    assert set(of_the_package(FRAMES)) - ELSEWHERE <= set(BUILDERS)


# --- every frame


@over_all
def test_a_frame_has_one_row_per_sample_in_float64(
    name: str, case: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    chosen = CASES[case]
    group = chosen.group
    found = build(name, chosen, dtype)(fields_for(chosen, shape, dtype))
    assert found.xi.shape == found.quality.shape == (4, group.size)
    assert found.confidence.shape == (4,) and found.xi.dtype == torch.float64
    assert bool(((found.quality >= 0) & (found.quality <= 1)).all())
    assert torch.equal(found.confidence, found.quality.amin(dim=1))
    if name != "cnn-numbers" and chosen.type.times[0] == 0:  # plain numbers, or carried to time 0
        periods = torch.tensor(group.periods[: group.spatial])
        assert bool((found.xi[:, : group.spatial].abs() <= periods / 2 + 1e-6).all())


@over_all
def test_the_frame_of_a_sample_does_not_depend_on_its_batch_mates(
    name: str, case: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    chosen = CASES[case]
    frame, field = build(name, chosen, dtype), fields_for(chosen, shape, dtype)
    whole = frame(field)
    alone = [frame(field.with_values(field.values[i : i + 1])) for i in range(len(field))]
    apart = chosen.group.difference(torch.cat([e.xi for e in alone]), whole.xi)
    assert largest(apart) < 10 * tolerance
    quality = torch.cat([e.quality for e in alone])
    assert torch.allclose(quality, whole.quality, atol=10 * tolerance)


@pytest.mark.parametrize(
    ("name", "case", "shape"),
    [(n, c, s) for n, c, s in ALL if n not in ("identity", "partial") and c.startswith("galilean")],
)
def test_the_kinematic_part_is_the_mean_velocity(
    name: str, case: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    chosen = CASES[case]
    field = fields_for(chosen, shape, dtype)
    spatial = chosen.group.spatial
    velocity = build(name, chosen, dtype)(field).xi[:, spatial:].detach()
    exact = field.to(torch.float64)
    carrier = next(q for q in field.type.quantities if q.how.carries != "no")
    value, density = exact.of(carrier), exact.density_of(carrier)
    value = value if density is None else value / density
    mean = value.flatten(3).mean(dim=(1, 3))  # over snapshots and points
    if case.startswith("galilean-scaling"):
        assert largest(velocity[:, 1]) == 0  # no box of its own: nominal
        velocity = velocity[:, :1]
    assert largest(velocity - mean) < tolerance
    assert float(mean.abs().min()) > 1e-3


def fields_without_a_frame(chosen: Example, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zero, a constant, a pure second harmonic along every axis, and the same beside a mean."""
    wave = torch.cos(4 * math.pi * points(shape)).sum(dim=0)
    rows = torch.stack([torch.zeros(shape), torch.full(shape, 0.7), wave, wave + 0.7])
    values = rows.double()[:, None].expand(-1, chosen.type.size, *shape).clone()
    if chosen.has_momentum:
        values[:, 0] = 2 + 0.5 * values[:, 0]
    return values.to(dtype)


@pytest.mark.parametrize("name", [*ESTIMATED, "analytic-phase"])
@over_cases
def test_a_field_without_a_frame_gets_the_identity_and_no_confidence(
    name: str, case: str, dtype: torch.dtype
) -> None:
    """By waves of any length a second harmonic is placed on one of its crests, without quality."""
    chosen = CASES[case]
    group, spatial = chosen.group, chosen.group.spatial
    if chosen.type.times[0] != 0:
        return  # the coordinates are those of time 0, where the measured velocity carried it
    for shape in [(64,), (48,)] if group.dim == 1 else [(32, 32), (24, 36)]:
        values = fields_without_a_frame(chosen, shape, dtype).requires_grad_()
        if name == "analytic-phase":
            frame: Frame = AnalyticFrame(group, PhaseSlice(group))
        else:
            frame = build(name, chosen, dtype)
        found = frame(Field(values, chosen.type))
        placed = name in ("analytic", "equivariant") and not isinstance(group, Euclidean)
        rows = found.xi[:2] if placed else found.xi
        assert torch.count_nonzero(rows[:, :spatial]) == 0
        assert torch.count_nonzero(found.quality[:, :spatial]) == 0
        assert torch.count_nonzero(found.confidence) == 0
        assert bool(torch.isfinite(found.xi).all())
        total = found.xi.sum() + found.confidence.sum()
        slopes = torch.autograd.grad(total, [values, *frame.parameters()], allow_unused=True)
        assert all(bool(torch.isfinite(slope).all()) for slope in slopes if slope is not None)


@pytest.mark.parametrize("name", ESTIMATED)
@over_few
def test_a_field_with_a_frame_has_confidence_and_finite_gradients(
    name: str, case: str, dtype: torch.dtype
) -> None:
    chosen = CASES[case]
    field = fields_for(chosen, SHAPES[chosen.type.dim][0], dtype)
    values = field.values.requires_grad_()
    frame = build(name, chosen, dtype)
    found = frame(field.with_values(values))
    assert float(found.confidence.detach().min()) > 1e-5
    assert largest(found.xi[:, : chosen.group.spatial]) > 1e-3
    slopes = torch.autograd.grad(found.xi.sum(), [values, *frame.parameters()])
    assert all(bool(torch.isfinite(slope).all()) for slope in slopes)


def test_the_confidence_of_a_pure_wave_is_one_and_never_more(dtype: torch.dtype) -> None:
    phases = torch.linspace(0, 1, 300, dtype=dtype)[:, None]
    wave = torch.cos(2 * math.pi * (points((64,), dtype=dtype) - phases))[:, None]
    chosen = CASES["translation-1d"]
    for name in ("analytic", "equivariant"):
        confidence = build(name, chosen, dtype)(Field(wave, chosen.type)).confidence
        assert float(confidence.max()) <= 1 and float(confidence.min()) > 1 - 1e-5


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", list(BUILDERS))
@over_few
def test_a_half_precision_field_gets_the_frame_of_its_single_precision_twin(
    name: str, case: str, half: torch.dtype
) -> None:
    chosen = CASES[case]
    frame = build(name, chosen, torch.float32)
    rounded = fields_for(chosen, SHAPES[chosen.type.dim][0]).to(half)
    found, twin = frame(rounded), frame(rounded.to(torch.float32))
    assert found.xi.dtype == torch.float64
    assert torch.equal(found.xi, twin.xi) and torch.equal(found.quality, twin.quality)


@pytest.mark.parametrize("name", [name for name in BUILDERS if name != "partial"])
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_positions_do_not_depend_on_the_unit_of_the_field(
    name: str, scale: float, dtype: torch.dtype
) -> None:
    chosen = CASES["translation-1d"]
    frame, field = build(name, chosen, dtype), fields_for(chosen, (64,), dtype)
    here = frame(field.with_values(field.values - 0.3))
    there = frame(field.with_values((field.values - 0.3) * scale))
    assert torch.allclose(here.xi, there.xi, atol=1e-4)
    assert torch.allclose(here.quality, there.quality, atol=1e-4)


@pytest.mark.parametrize("name", LEARNED)
def test_learned_frames_refuse_an_empty_group(name: str) -> None:
    with pytest.raises(ValueError, match="IdentityFrame"):
        BUILDERS[name](Trivial(1), CASES["translation-1d"].type)


@pytest.mark.parametrize("name", LEARNED)
def test_learned_frames_ask_for_the_channels_where_they_are_not_named(name: str) -> None:
    with pytest.raises(FieldError, match="say channels="):
        BUILDERS[name](Translation(1), FieldType.parse("", 1))


def test_the_trivial_group_gets_a_frame_without_coordinates() -> None:
    field = Field(torch.randn(3, 1, 8, 8), FieldType.parse("a: scalar", 2))
    for name in ("identity", "kinematic", "analytic"):
        found = BUILDERS[name](Trivial(2), field.type)(field)
        assert found.xi.shape == found.quality.shape == (3, 0)
        assert torch.equal(found.confidence, torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("name", list(BUILDERS))
def test_a_hint_is_ignored_by_frames_that_do_not_search(name: str) -> None:
    chosen = CASES["galilean-1d"]
    frame, field = build(name, chosen), fields_for(chosen, (64,))
    hint = random_elements(chosen.group, 4, 3)
    assert torch.equal(frame(field, hint).xi, frame(field).xi)


# --- equivariance


@pytest.mark.parametrize("name", ["analytic", "equivariant"])
@pytest.mark.parametrize("case", EXACT_CASES)
@pytest.mark.parametrize("perturbed", [False, True], ids=["untrained", "perturbed"])
def test_analytic_and_aligned_frames_follow_every_motion(
    name: str, case: str, perturbed: bool, dtype: torch.dtype
) -> None:
    chosen = CASES[case]
    frame = build(name, chosen, dtype, perturbed=perturbed)
    field = fields_for(chosen, SHAPES[chosen.type.dim][int(perturbed)], dtype)
    xi = 3 * random_elements(chosen.group, 4, 1)  # far around the torus, velocities up to 3
    if isinstance(chosen.group, GalileanScaling):
        xi[:, 2] /= 3
    frame_laws(frame, chosen.group, chosen.type, field.values, xi=xi)


@pytest.mark.parametrize(
    "chosen",
    [
        example(Translation(3), "a: scalar"),
        example(Galilean(3), "u: velocity", (1.0, 2.0, 0.5), (0.0, 0.4)),
        example(Galilean(3), "c: scalar, u: velocity", 2.0, (0.3,)),
        example(Galilean(3, diagonal=True), "u: speed", 1.5),
    ],
    ids=["translation", "velocity", "beside a scalar", "speed"],
)
def test_frames_follow_in_three_dimensions(chosen: Example, dtype: torch.dtype) -> None:
    field = fields_for(chosen, (12, 13, 10), dtype, batch=2, top=3)
    torch.manual_seed(0)
    for frame in (
        AnalyticFrame(chosen.group),
        perturb(EquivariantFrame(chosen.group, chosen.type, width=4, points=8).to(dtype)),
    ):
        frame_laws(frame, chosen.group, chosen.type, field.values)


def test_frames_follow_trajectories_in_boxes_of_their_own(dtype: torch.dtype) -> None:
    chosen = CASES["galilean-scaling"]
    group = chosen.group
    values = fields_for(chosen, (64,), dtype, batch=4).values
    rows = torch.linspace(0.8, 1.2, 4, dtype=torch.float64)
    field = Field(values, chosen.type, Box(30 * rows[:, None], 0.2 * rows.flip(0)))
    xi = random_elements(group, 4, 1)
    bound = 1e-5 if dtype == torch.float32 else 1e-10
    for name in ("analytic", "equivariant"):
        frame = build(name, chosen, dtype)
        assert frame_defect(frame, group, field, xi) < bound
        assert largest(frame(field).xi[:, 2]) > 0.01  # the step is not the nominal one


class HalfFrame(AnalyticFrame):
    """Finds half of every shift."""

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        found = super().forward(field)
        return Estimate(found.xi / 2, found.quality)


class SureFrame(AnalyticFrame):
    """Right, and always sure of itself."""

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        found = super().forward(field)
        return Estimate(found.xi, torch.ones_like(found.quality))


class SpoiledFrame(AnalyticFrame):
    """Right, and not a number where there is nothing to find."""

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        found = super().forward(field)
        return Estimate(torch.where(found.quality > 0, found.xi, math.nan), found.quality)


class SharpFrame(AnalyticFrame):
    """Right, with a gradient that is not finite where there is nothing to find."""

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        found = super().forward(field)
        spread = (field.values - field.values[..., :1]).square().sum().sqrt()
        return Estimate(found.xi + 0 * spread, found.quality)


class SingleFrame(AnalyticFrame):
    """Coordinates in the precision of the field."""

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        found = super().forward(field)
        return Estimate(found.xi.to(field.values.dtype), found.quality)


@pytest.mark.parametrize(
    ("frame", "law"),
    [
        (HalfFrame(Translation(1)), "equivariance: off by"),
        (SureFrame(Translation(1)), "constant field: nothing is determined"),
        (SpoiledFrame(Translation(1)), "constant field: the coordinates are not finite"),
        (SharpFrame(Translation(1)), "constant field: the gradients are not finite"),
        (SingleFrame(Translation(1)), "the first in float64: got .* torch.float32"),
        (IdentityFrame(Translation(1)), "equivariance: off by"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Frame) else None,
)
def test_frame_laws_name_the_law_that_is_broken(frame: Frame, law: str) -> None:
    chosen = CASES["translation-1d"]
    field = fields_for(chosen, (64,), torch.float32)
    frame_laws(AnalyticFrame(chosen.group), chosen.group, chosen.type, field.values)
    with pytest.raises(AssertionError, match=law):
        frame_laws(frame, chosen.group, chosen.type, field.values)


def test_frame_laws_refuse_a_field_that_does_not_determine_its_frame() -> None:
    chosen = CASES["galilean-2d"]
    y = points((32, 32))[1]
    shear = torch.stack([torch.sin(TAU * y), torch.zeros_like(y), torch.zeros_like(y)])[None]
    with pytest.raises(AssertionError, match="does not determine x: take another"):
        frame_laws(AnalyticFrame(chosen.group), chosen.group, chosen.type, shear)


def test_the_laws_fail_for_an_encoder_that_sees_positions() -> None:
    chosen = CASES["translation-1d"]
    field, xi = fields_for(chosen, (64,)), random_elements(chosen.group, 4, 1)
    assert frame_defect(HalfFrame(chosen.group), chosen.group, field, xi) > 0.05
    assert frame_defect(build("cnn", chosen), chosen.group, field, xi) > 0.05


def test_the_free_frame_is_exact_for_whole_coarse_cells_and_only_close_between_them(
    dtype: torch.dtype,
) -> None:
    chosen = CASES["translation-1d"]
    frame = build("equivariant-free", chosen, dtype)
    assert isinstance(frame, EquivariantFrame)
    field = fields_for(chosen, (256,), dtype, top=12)
    cells = torch.tensor([[1.0], [5.0], [-17.0], [33.0]], dtype=torch.float64)
    whole = frame_defect(frame, chosen.group, field, cells / frame.points)
    between = frame_defect(frame, chosen.group, field, (cells + 0.5) / frame.points)
    assert whole < (5e-6 if dtype == torch.float32 else 1e-12)
    assert 1e-4 < between < 0.05


def test_the_free_frame_in_two_dimensions_is_exact_for_whole_coarse_cells(
    dtype: torch.dtype,
) -> None:
    chosen = CASES["galilean-2d-diagonal"]
    frame = build("equivariant-free", chosen, dtype)
    assert isinstance(frame, EquivariantFrame)
    field = fields_for(chosen, (64, 64), dtype, top=10)
    cells = [[1.0, 3.0, 0.0], [5.0, -2.0, 8.0], [-7.0, 0.0, -8.0], [0.0, 15.0, 16.0]]
    xi = torch.tensor(cells, dtype=torch.float64) / frame.points
    bound = 5e-6 if dtype == torch.float32 else 1e-12
    assert frame_defect(frame, chosen.group, field, xi) < bound


@pytest.mark.parametrize("case", TURNED)
def test_the_moment_frame_follows_rigid_motions_of_a_compact_field(
    case: str, dtype: torch.dtype
) -> None:
    chosen = CASES[case]
    field = fields_for(chosen, (64, 64), dtype, top=3)
    xi = random_elements(chosen.group, 4, 3)
    for name in ("analytic", "equivariant"):
        frame = build(name, chosen, dtype)
        frame_laws(frame, chosen.group, chosen.type, field.values, xi=xi, tolerance=2e-5)


@pytest.mark.parametrize("name", ["analytic", "equivariant", "equivariant-free"])
@pytest.mark.parametrize("case", FEW[:-1])
def test_the_frame_of_a_field_does_not_depend_on_its_resolution(name: str, case: str) -> None:
    chosen = CASES[case]
    frame = build(name, chosen)
    grids = [(40,), (96,), (200,)] if chosen.type.dim == 1 else [(24, 24), (40, 40), (72, 54)]
    field = fields_for(chosen, grids[0], top=3)
    if chosen.has_momentum:
        height = 1 + 0.01 * (field.values[:, :1] - 1)
        field = field.with_values(torch.cat([height, field.values[:, 1:]], dim=1))
    expected = frame(field).xi
    for shape in grids[1:]:
        finer = frame(field.with_values(resample(field.values, shape))).xi
        assert largest(chosen.group.difference(finer, expected)) < 1e-9


def test_the_aligned_frame_starts_as_the_analytic_one_and_moves_when_trained() -> None:
    chosen = CASES["galilean-1d"]
    field = fields_for(chosen, (64,))
    start = build("analytic", chosen)(field).xi
    untrained = build("equivariant", chosen, perturbed=False)(field).xi
    assert torch.allclose(untrained, start, atol=1e-14)
    assert largest(build("equivariant", chosen)(field).xi - start) > 1e-3


def test_analytic_and_aligned_frames_share_their_quality() -> None:
    chosen = CASES["translation-2d"]
    field = fields_for(chosen, (32, 32))
    qualities = [build(name, chosen)(field).quality for name in ("equivariant", "analytic")]
    assert torch.equal(*qualities)


def test_a_float64_field_is_framed_exactly_by_float32_weights() -> None:
    chosen = CASES["translation-1d"]
    frame = build("equivariant", chosen, torch.float32)
    field, xi = fields_for(chosen, (64,)), random_elements(chosen.group, 4, 1)
    assert frame_defect(frame, chosen.group, field, xi) < 1e-12


def test_autocast_does_not_reach_a_frame() -> None:
    for case, name in itertools.product(("translation-1d", "galilean-2d"), BUILDERS):
        chosen = CASES[case]
        frame = build(name, chosen, torch.float32)
        field = fields_for(chosen, SHAPES[chosen.type.dim][0], torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = frame(field)
        assert torch.allclose(found.xi, frame(field).xi, atol=1e-6)
        assert found.xi.dtype == torch.float64


# --- parts of a frame


def test_a_partial_frame_leaves_the_rest_of_the_group_alone() -> None:
    chosen = CASES["galilean-2d"]
    field = fields_for(chosen, (32, 32))
    whole = AnalyticFrame(chosen.group)(field)
    for keep in range(5):
        found = PartialFrame(chosen.group, AnalyticFrame(chosen.group), keep)(field)
        assert torch.equal(found.xi[:, :keep], whole.xi[:, :keep])
        assert largest(found.xi[:, keep:]) == 0 and bool((found.quality[:, keep:] == 1).all())
        assert torch.equal(found.quality[:, :keep], whole.quality[:, :keep])


def test_numbers_without_a_retraction_are_not_wrapped_and_always_sure() -> None:
    chosen = CASES["translation-1d"]
    frame = build("cnn-numbers", chosen, torch.float32)
    assert isinstance(frame, CNNFrame)
    with torch.no_grad():
        frame.out.bias.add_(5)
    found = frame(fields_for(chosen, (64,), torch.float32))
    assert float(found.xi.detach().min()) > 1
    assert torch.equal(found.quality, torch.ones_like(found.quality))


# --- learning


@pytest.mark.parametrize("name", LEARNED)
@over_few
def test_every_parameter_of_a_learned_frame_gets_a_gradient(name: str, case: str) -> None:
    chosen, spatial = CASES[case], CASES[case].group.spatial
    # perturbed, the many inputs of a dense layer would drive its units where they have no slope
    frame = build(name, chosen, perturbed=not name.startswith("cnn"))
    generator = torch.Generator().manual_seed(2)
    weights = torch.randn(4, spatial, dtype=torch.float64, generator=generator)
    xi = frame(fields_for(chosen, SHAPES[chosen.type.dim][0])).xi
    (xi[:, :spatial] * weights).sum().backward()
    for key, p in frame.named_parameters():
        assert p.grad is not None, key
        by_output = p.grad.reshape(len(p), -1).abs().amax(dim=1)
        assert float(by_output.min()) > 1e-12, key  # every feature map is used


def test_the_untrained_aligned_frame_gets_its_first_gradient_in_the_last_layer() -> None:
    chosen = CASES["translation-1d"]
    frame = build("equivariant", chosen, perturbed=False)
    frame(fields_for(chosen, (64,))).xi.sum().backward()
    touched = [
        k for k, p in frame.named_parameters() if p.grad is not None and largest(p.grad) > 1e-12
    ]
    assert touched == ["network.last.weight"]


@pytest.mark.parametrize(("dim", "points"), [(1, 64), (1, 9), (2, 32), (3, 8)])
def test_harmonics_of_densities_are_found_without_the_densities(
    dim: int, points: int, dtype: torch.dtype
) -> None:
    """A convolution multiplies each mode by that of its kernel; so do the derivatives say."""
    generator = torch.Generator().manual_seed(0)
    network = DensityNetwork(dim, 2, 5, 2, maps=3).to(dtype)
    field = torch.randn(3, 2, *[points] * dim, generator=generator, dtype=torch.float64).to(dtype)
    rounding = {torch.float32: 2e-6, torch.float64: 1e-14}[dtype]
    ways = []
    for found in (harmonics(network(field)), network.harmonics(field)):
        slopes = torch.autograd.grad(found.square().sum(), list(network.parameters()))
        ways.append([found, torch.cat([slope.flatten() for slope in slopes])])
    for made, direct in zip(*ways, strict=True):
        assert direct.dtype == made.dtype
        assert largest(direct - made) < 10 * rounding * largest(made)


def test_gradients_of_the_coordinates_pass_gradcheck() -> None:
    chosen = CASES["galilean-1d"]
    for name in ("analytic", "equivariant", "equivariant-free"):
        frame = build(name, chosen)
        values = fields_for(chosen, (12,), batch=2).values.requires_grad_()

        def coordinates(values: Tensor, frame: Frame = frame) -> Tensor:
            xi: Tensor = frame(Field(values, chosen.type)).xi
            return xi

        assert torch.autograd.gradcheck(coordinates, (values,))


@pytest.mark.parametrize("name", ["equivariant", "equivariant-free", "cnn"])
def test_a_learned_frame_can_learn_a_canonical_position_of_its_own(name: str) -> None:
    """The crest of the first mode is where it starts; the target is the same point moved by 0.1."""
    chosen = CASES["translation-1d"]
    group = chosen.group
    frame = build(name, chosen, torch.float32, perturbed=False)
    field = fields_for(chosen, (64,), torch.float32, batch=16)
    start = AnalyticFrame(group, PhaseSlice(group))
    canonical = group.inverse(field, start(field).xi)
    if name == "equivariant":
        torch.manual_seed(0)
        frame = EquivariantFrame(group, chosen.type, slice=PhaseSlice(group))
    optimizer = torch.optim.Adam(frame.parameters(), lr=5e-3)
    errors = []
    for step in range(80):
        xi = 0.2 * random_elements(group, 16, step)
        error = group.difference(frame(group.act(canonical, xi)).xi, xi + 0.1)
        optimizer.zero_grad()
        error.square().mean().backward()
        optimizer.step()
        errors.append(float(error.detach().abs().mean()))
    assert errors[0] > 0.08 and errors[-1] < 0.03


# --- the readout


def test_standardised_channels_have_no_mean_and_unit_rms(
    dtype: torch.dtype, tolerance: float
) -> None:
    noise = torch.randn(
        2, 3, 16, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    flat = standardise(3 + 5 * band_limit(noise, 2).to(dtype)).flatten(2)
    assert largest(flat.mean(dim=2)) < tolerance
    ones = torch.ones(2, 3, dtype=dtype)
    assert torch.allclose(flat.square().mean(dim=2), ones, atol=10 * tolerance)


def test_a_constant_becomes_zero_and_so_does_its_rounding(dtype: torch.dtype) -> None:
    noise = torch.randn(1, 1, 64, dtype=dtype, generator=torch.Generator().manual_seed(0))
    noise = noise * torch.finfo(dtype).eps
    for field in (torch.zeros_like(noise), torch.full_like(noise, 0.1), 1 + noise):
        assert largest(standardise(field)) < 1e-2


def test_the_retraction_is_the_angle_in_units_of_the_period(dtype: torch.dtype) -> None:
    turns = torch.tensor([[0.1, -0.3, 0.25]], dtype=dtype)
    angle = 2 * math.pi * turns
    vectors = 7 * torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1)
    expected = turns * torch.tensor([1.0, 1.0, 2 * math.pi], dtype=dtype)
    assert torch.allclose(retract(vectors, Euclidean()), expected, atol=1e-6)
    nowhere = torch.zeros(1, 1, 2, dtype=dtype, requires_grad=True)
    angle = retract(nowhere, Translation(1))
    angle.sum().backward()
    assert angle.item() == 0
    assert nowhere.grad is not None and torch.equal(nowhere.grad, torch.zeros_like(nowhere))


def test_the_share_of_a_pure_wave_is_one_and_of_a_constant_zero(
    dtype: torch.dtype, tolerance: float
) -> None:
    x = points((32,), dtype=dtype)[0]
    wave, third = torch.cos(2 * math.pi * x), torch.cos(6 * math.pi * x)
    density = torch.stack([wave + 1, torch.ones_like(x), wave + third])
    vectors = torch.tensor([[0.5, 0.0], [0.0, 0.0], [0.5, 0.0]], dtype=dtype)
    expected = torch.tensor([[1.0, 0.0, 0.5]], dtype=dtype)
    assert torch.allclose(shares(density[None], vectors[None]), expected, atol=tolerance)


def test_the_angle_of_a_density_is_the_direction_in_which_it_leans(dtype: torch.dtype) -> None:
    frame = EquivariantFrame(Euclidean(), CASES["euclidean"].type)
    angles = torch.linspace(-3, 3, 7, dtype=dtype)
    x, y = points((32, 32), dtype=dtype) - 0.5
    blob = torch.exp(-(x**2 + y**2) / 0.01)
    leaning = blob * (1 + x * angles.cos()[:, None, None] + y * angles.sin()[:, None, None])
    vectors = frame._vectors(harmonics(leaning[:, None].expand(-1, 3, -1, -1)))
    turned = retract(vectors, Euclidean())[:, 2] - angles
    spread = torch.remainder(turned - turned[0] + 1, 2 * math.pi) - 1
    assert largest(spread) < 1e-4  # the same constant for all


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_circular_convolution_is_the_one_of_torch_and_commutes_with_rolls(
    dim: int, dtype: torch.dtype
) -> None:
    shape, cells, axes = (9, 12, 7)[:dim], [2, -3, 1][:dim], list(range(2, 2 + dim))
    generator = torch.Generator().manual_seed(0)
    field = torch.randn(2, 3, *shape, dtype=dtype, generator=generator)
    padded = nn.functional.pad(field, [2] * (2 * dim), mode="circular")
    assert torch.equal(wrap_around(field, dim, 2), padded)
    layer = CircularConvolution(dim, 3, 4).to(dtype)
    rolled = layer(field).roll(cells, axes)
    assert torch.allclose(layer(field.roll(cells, axes)), rolled, atol=1e-5)
    assert CircularConvolution(dim, 3, 4, bias=False).bias is None


def test_the_literal_encoder_follows_only_what_it_saw() -> None:
    """Untrained it has no reason to be equivariant; it is here as the paper's comparison."""
    chosen = CASES["translation-2d"]
    frame = build("cnn", chosen, torch.float32, perturbed=False)
    field = fields_for(chosen, (32, 32), torch.float32)
    assert frame_defect(frame, chosen.group, field, random_elements(chosen.group, 4, 0)) > 0.02


def test_of_many_snapshots_a_frame_sees_the_first_and_the_last() -> None:
    """Of few it sees all; a snapshot of a vector is seen with all its components."""
    group, times = Euclidean(), tuple(range(6))
    scalars = FieldType.parse("w: pseudoscalar", 2, times=times)
    vectors = FieldType.parse("u: velocity", 2, times=times)
    few = FieldType.parse("w: pseudoscalar", 2, times=times[:4])
    assert EquivariantFrame(group, scalars).seen == [0, 5]
    assert EquivariantFrame(group, few).seen == [0, 1, 2, 3]
    frame = EquivariantFrame(group, vectors)
    assert frame.seen == [0, 5] and frame.network.hidden[0].weight.shape[1] == 4
    field = torch.randn(2, 12, 16, 16, generator=torch.Generator().manual_seed(0))
    assert bool(frame(Field(field, vectors)).xi.isfinite().all())


def test_the_slice_decides_how_a_frame_of_rotations_is_found() -> None:
    assert isinstance(QuarterSlice(Euclidean()).frame(), SeamFrame)


def test_an_encoder_reads_its_first_snapshot_whenever_that_is() -> None:
    """A field and the same field boosted, both seen at time 2, have one canonical field."""
    group, type = Galilean(1), FieldType.parse("u: velocity", 1, times=(2.0,))
    values = torch.randn(1, 1, 64, generator=torch.Generator().manual_seed(0)).double()
    for options in ({}, {"retracted": False}):
        torch.manual_seed(0)
        frame = CNNFrame(group, type, **options).double()  # type: ignore[arg-type]
        with torch.no_grad():
            seen = [Field(values + v, type) for v in (0.0, 0.3)]
            still, moving = (group.inverse(field, frame(field).xi).values for field in seen)
        assert largest(still - moving) < 1e-9


def test_elements_of_finite_groups_and_missing_angles_are_refused_by_learned_frames() -> None:
    group, type = Product(Translation(2), PointGroup("p4")), FieldType.parse("a: scalar", 2)
    for frame in (CNNFrame, EquivariantFrame, TurningFrame):
        with pytest.raises(UsageError, match="no frame finds the element of a finite group"):
            frame(group, type)
    with pytest.raises(UsageError, match="TurningFrame finds a place in the plane and an angle"):
        TurningFrame(Translation(2), type)
