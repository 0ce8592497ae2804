"""Frames, over the registry: what every frame promises, and what only some keep."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from pacefno.frames import FRAMES, AnalyticFrame, CNNFrame, EquivariantFrame, Estimate, Frame, OracleFrame
from pacefno.frames.equivariant import CircularConvolution, wrap_around
from pacefno.frames.readout import retract, shares, standardise
from pacefno.grid import FieldError, band_limit, points, resample
from pacefno.metrics import random_elements
from pacefno.symmetry import GROUPS, Euclidean, Galilean, Group, Translation, Trivial, default_slice

GROUP_NAMES = [name for name, make in GROUPS.items() if make().spatial]
EXACT_GROUPS = [name for name in GROUP_NAMES if not name.startswith("euclidean")]
ESTIMATED = [name for name in FRAMES if name not in ("identity", "kinematic")]  # those that find a position
LEARNED = ["equivariant", "equivariant-free", "cnn"]
SHAPES = {1: [(64,), (101,)], 2: [(32, 32), (25, 36)]}
ALL = [(f, g, s) for f, g in itertools.product(FRAMES, GROUP_NAMES) for s in SHAPES[GROUPS[g]().dim]]
over_all = pytest.mark.parametrize(("name", "group_name", "shape"), ALL)
over_groups = pytest.mark.parametrize("group_name", GROUP_NAMES)


def channels_of(group: Group) -> int:
    return 1 + group.dim if group.size > group.spatial + 1 else 1


def fields_for(
    group: Group, shape: tuple[int, ...], dtype: torch.dtype = torch.float64, batch: int = 4, top: int = 4
) -> Tensor:
    """Smooth random fields with a mean; the height is positive, and for rotations the field is compact."""
    generator = torch.Generator().manual_seed(11)
    small = torch.randn(batch, channels_of(group), *[2 * top + 1] * group.dim, dtype=torch.float64, generator=generator)
    field = resample(small, shape)
    if isinstance(group, Euclidean):
        r = (points(shape) - 0.5).square().sum(dim=0).sqrt()
        field = field * torch.exp(-((r / 0.12) ** 2))
    else:
        field = field + 0.3
    if field.shape[1] > 1:
        field[:, 0] = 1 + 0.02 * field[:, 0]  # the mean of m/h is exact only where the grid resolves 1/h
    return field.to(dtype)


def build(name: str, group: Group, dtype: torch.dtype = torch.float64, *, perturbed: bool = True, seed: int = 0) -> Frame:
    """A frame of the registry; ``perturbed`` moves every weight, also those that start at zero."""
    torch.manual_seed(seed)
    frame = FRAMES[name](group, channels_of(group), default_slice(group)).to(dtype)
    if perturbed:
        with torch.no_grad():
            for parameter in frame.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return frame


def equivariance_defect(frame: Frame, field: Tensor, xi: Tensor) -> float:
    """``|E(C_g a) - g E(a)|``, the largest coordinate, to the nearest image."""
    group = frame.group
    moved, expected = frame(group.act(field, xi)).xi, group.compose(xi, frame(field).xi)
    return float(group.difference(moved, expected).detach().abs().max())


# --- every frame


@over_all
def test_a_frame_has_one_row_per_sample_in_the_precision_of_the_field(
    name: str, group_name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    group = GROUPS[group_name]()
    estimate = build(name, group, dtype)(fields_for(group, shape, dtype))
    assert estimate.xi.shape == (4, group.size)
    assert estimate.confidence.shape == (4,)
    assert estimate.xi.dtype == estimate.confidence.dtype == dtype
    assert bool(((estimate.confidence >= 0) & (estimate.confidence <= 1)).all())
    spatial, periods = estimate.xi[:, : group.spatial], torch.tensor(group.periods[: group.spatial])
    assert bool((spatial.abs() <= periods / 2 + 1e-6).all())


@over_all
def test_the_frame_of_a_sample_does_not_depend_on_its_batch_mates(
    name: str, group_name: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    group = GROUPS[group_name]()
    frame, field = build(name, group, dtype), fields_for(group, shape, dtype)
    whole = frame(field)
    alone = [frame(field[i : i + 1]) for i in range(len(field))]
    apart = group.difference(torch.cat([e.xi for e in alone]), whole.xi).detach()
    assert float(apart.abs().max()) < 10 * tolerance
    assert torch.allclose(torch.cat([e.confidence for e in alone]), whole.confidence, atol=10 * tolerance)


@pytest.mark.parametrize(
    ("name", "group_name", "shape"), [case for case in ALL if case[0] != "identity" and case[1].startswith("galilean")]
)
def test_the_kinematic_part_is_the_mean_velocity(
    name: str, group_name: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    group = GROUPS[group_name]()
    field = fields_for(group, shape, dtype)
    velocity = build(name, group, dtype)(field).xi[:, group.spatial :].detach()
    exact = field.double()
    mean = exact.flatten(2).mean(2) if field.shape[1] == 1 else (exact[:, 1:] / exact[:, :1]).flatten(2).mean(2)
    assert float((velocity - mean).abs().max()) < tolerance
    assert float(mean.abs().min()) > 1e-3


def fields_without_a_frame(group: Group, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zero, a constant, a pure second harmonic along every axis, and the same beside a large mean."""
    wave = torch.cos(4 * math.pi * points(shape)).sum(dim=0)
    rows = torch.stack([torch.zeros(shape), torch.full(shape, 0.7), wave, wave + 0.7]).to(torch.float64)
    rows = rows[:, None].expand(-1, channels_of(group), *shape).clone()
    if rows.shape[1] > 1:
        rows[:, 0] = 2 + 0.5 * rows[:, 0]
    return rows.to(dtype)


@pytest.mark.parametrize("name", ESTIMATED)
@over_groups
def test_a_field_without_a_frame_gets_the_identity_and_no_confidence(name: str, group_name: str, dtype: torch.dtype) -> None:
    group = GROUPS[group_name]()
    for shape in [(64,), (48,)] if group.dim == 1 else [(32, 32), (24, 36)]:
        field = fields_without_a_frame(group, shape, dtype).requires_grad_()
        frame = build(name, group, dtype)
        estimate = frame(field)
        assert torch.equal(estimate.xi[:, : group.spatial], torch.zeros(4, group.spatial, dtype=dtype))
        assert torch.equal(estimate.confidence, torch.zeros(4, dtype=dtype))
        assert bool(torch.isfinite(estimate.xi).all())
        sources = [field, *frame.parameters()]
        gradients = torch.autograd.grad(estimate.xi.sum() + estimate.confidence.sum(), sources, allow_unused=True)
        assert all(bool(torch.isfinite(g).all()) for g in gradients if g is not None)


@pytest.mark.parametrize("name", ESTIMATED)
@over_groups
def test_a_field_with_a_frame_has_confidence_and_finite_gradients(name: str, group_name: str, dtype: torch.dtype) -> None:
    group = GROUPS[group_name]()
    field = fields_for(group, SHAPES[group.dim][0], dtype).requires_grad_()
    frame = build(name, group, dtype)
    estimate = frame(field)
    assert float(estimate.confidence.detach().min()) > 1e-5
    assert float(estimate.xi[:, : group.spatial].detach().abs().max()) > 1e-3
    gradients = torch.autograd.grad(estimate.xi.sum(), [field, *frame.parameters()])
    assert all(bool(torch.isfinite(g).all()) for g in gradients)


def test_the_confidence_of_a_pure_wave_is_one_and_never_more(dtype: torch.dtype) -> None:
    phases = torch.linspace(0, 1, 300, dtype=dtype)[:, None]
    wave = torch.cos(2 * math.pi * (points((64,), dtype=dtype) - phases))[:, None]
    for name in ("analytic", "equivariant"):
        confidence = build(name, Translation(1), dtype)(wave).confidence
        assert float(confidence.max()) <= 1 and float(confidence.min()) > 1 - 1e-5


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", list(FRAMES))
@over_groups
def test_a_half_precision_field_gets_the_frame_of_its_single_precision_twin(
    name: str, group_name: str, half: torch.dtype
) -> None:
    group = GROUPS[group_name]()
    frame = build(name, group, torch.float32)
    rounded = fields_for(group, SHAPES[group.dim][0]).to(half)
    estimate, twin = frame(rounded), frame(rounded.float())
    assert estimate.xi.dtype == estimate.confidence.dtype == torch.float32
    assert torch.equal(estimate.xi, twin.xi) and torch.equal(estimate.confidence, twin.confidence)


@pytest.mark.parametrize("name", list(FRAMES))
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_positions_do_not_depend_on_the_unit_of_the_field(name: str, scale: float, dtype: torch.dtype) -> None:
    group = Translation(1)
    frame, field = build(name, group, dtype), fields_for(group, (64,), dtype) - 0.3
    here, there = frame(field), frame(field * scale)
    assert torch.allclose(here.xi, there.xi, atol=1e-4)
    assert torch.allclose(here.confidence, there.confidence, atol=1e-4)


@pytest.mark.parametrize("name", LEARNED)
def test_learned_frames_refuse_wrong_channels_missing_batch_and_an_empty_group(name: str) -> None:
    frame = build(name, Translation(1), torch.float32)
    with pytest.raises(FieldError, match="give it 1 channels, not 2"):
        frame(torch.zeros(3, 2, 64))
    with pytest.raises(FieldError, match="batch axis"):
        frame(torch.zeros(1, 64))
    with pytest.raises(ValueError, match="IdentityFrame"):
        FRAMES[name](Trivial(1), 1, default_slice(Trivial(1)))


def test_the_trivial_group_gets_a_frame_without_coordinates() -> None:
    for name in ("identity", "kinematic", "analytic"):
        estimate = FRAMES[name](Trivial(2), 1, default_slice(Trivial(2)))(torch.randn(3, 1, 8, 8))
        assert estimate.xi.shape == (3, 0)


# --- equivariance


@pytest.mark.parametrize("name", ["analytic", "equivariant"])
@pytest.mark.parametrize("group_name", EXACT_GROUPS)
@pytest.mark.parametrize("perturbed", [False, True], ids=["untrained", "perturbed"])
def test_analytic_and_aligned_frames_follow_every_motion(
    name: str, group_name: str, perturbed: bool, dtype: torch.dtype
) -> None:
    group = GROUPS[group_name]()
    frame = build(name, group, dtype, perturbed=perturbed)
    bound = 1e-5 if dtype == torch.float32 else 1e-10
    for shape in SHAPES[group.dim]:
        field = fields_for(group, shape, dtype, batch=8)
        xi = 3 * random_elements(group, 8, 1).to(dtype)  # far around the torus, velocities up to 3
        assert equivariance_defect(frame, field, xi) < bound


class BrokenFrame(AnalyticFrame):
    """Finds half of every shift."""

    def forward(self, field: Tensor) -> Estimate:
        estimate = super().forward(field)
        return Estimate(estimate.xi / 2, estimate.confidence)


def test_the_defect_sees_a_broken_frame_and_an_encoder_with_positions() -> None:
    group = Translation(1)
    field, xi = fields_for(group, (64,)), random_elements(group, 4, 1)
    assert equivariance_defect(BrokenFrame(group), field, xi) > 0.05
    assert equivariance_defect(build("cnn", group), field, xi) > 0.05


def test_the_free_frame_is_exact_for_whole_coarse_cells_and_only_close_between_them(dtype: torch.dtype) -> None:
    group = Translation(1)
    frame = build("equivariant-free", group, dtype)
    assert isinstance(frame, EquivariantFrame)
    field = fields_for(group, (256,), dtype, top=12)
    cells = torch.tensor([[1.0], [5.0], [-17.0], [33.0]], dtype=dtype)
    whole = equivariance_defect(frame, field, cells / frame.points)
    between = equivariance_defect(frame, field, (cells + 0.5) / frame.points)
    assert whole < (5e-6 if dtype == torch.float32 else 1e-12)
    assert 1e-4 < between < 0.05


def test_the_free_frame_in_two_dimensions_is_exact_for_whole_coarse_cells(dtype: torch.dtype) -> None:
    group = Galilean(2)
    frame = build("equivariant-free", group, dtype)
    assert isinstance(frame, EquivariantFrame)
    field = fields_for(group, (64, 64), dtype, top=10)
    xi = torch.tensor([[1.0, 3.0, 0.0], [5.0, -2.0, 8.0], [-7.0, 0.0, -8.0], [0.0, 15.0, 16.0]], dtype=dtype) / frame.points
    assert equivariance_defect(frame, field, xi) < (5e-6 if dtype == torch.float32 else 1e-12)


def test_the_moment_frame_follows_rigid_motions_of_a_compact_field(dtype: torch.dtype) -> None:
    group = Euclidean()
    field = fields_for(group, (64, 64), dtype, top=3)
    xi = random_elements(group, 4, 3).to(dtype)
    for name in ("analytic", "equivariant"):
        assert equivariance_defect(build(name, group, dtype), field, xi) < 2e-5


@pytest.mark.parametrize("name", ["analytic", "equivariant", "equivariant-free"])
@pytest.mark.parametrize("group_name", EXACT_GROUPS)
def test_the_frame_of_a_field_does_not_depend_on_its_resolution(name: str, group_name: str) -> None:
    group = GROUPS[group_name]()
    frame = build(name, group)
    coarse, fine, finer = [(40,), (96,), (200,)] if group.dim == 1 else [(24, 24), (40, 40), (72, 54)]
    field = fields_for(group, coarse, top=3)
    if field.shape[1] > 1:
        field = torch.cat([torch.ones_like(field[:, :1]) + 0.01 * (field[:, :1] - 1), field[:, 1:]], dim=1)
    expected = frame(field).xi.detach()
    for shape in (fine, finer):
        assert float(group.difference(frame(resample(field, shape)).xi.detach(), expected).abs().max()) < 1e-9


def test_the_aligned_frame_starts_as_the_analytic_one_and_moves_when_trained() -> None:
    group = Galilean(1)
    field = fields_for(group, (64,))
    start = build("analytic", group)(field).xi
    assert torch.allclose(build("equivariant", group, perturbed=False)(field).xi, start, atol=1e-14)
    assert float((build("equivariant", group)(field).xi - start).detach().abs().max()) > 1e-3


def test_analytic_and_aligned_frames_share_their_confidence() -> None:
    group = Translation(2)
    field = fields_for(group, (32, 32))
    assert torch.equal(build("equivariant", group)(field).confidence, build("analytic", group)(field).confidence)


def test_a_float64_field_is_framed_exactly_by_float32_weights() -> None:
    group = Translation(1)
    frame = build("equivariant", group, torch.float32)
    assert equivariance_defect(frame, fields_for(group, (64,)), random_elements(group, 4, 1)) < 1e-12


def test_autocast_does_not_reach_a_frame() -> None:
    for group, name in itertools.product((Translation(1), Translation(2)), LEARNED):
        frame, field = build(name, group, torch.float32), fields_for(group, SHAPES[group.dim][0], torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            estimate = frame(field)
        assert torch.allclose(estimate.xi, frame(field).xi, atol=1e-6)
        assert estimate.xi.dtype == torch.float32


# --- learning


@pytest.mark.parametrize("name", LEARNED)
@over_groups
def test_every_parameter_of_a_learned_frame_gets_a_gradient(name: str, group_name: str) -> None:
    group = GROUPS[group_name]()
    frame = build(name, group)
    weights = torch.randn(4, group.spatial, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (frame(fields_for(group, SHAPES[group.dim][0])).xi[:, : group.spatial] * weights).sum().backward()
    for key, p in frame.named_parameters():
        assert p.grad is not None, key
        by_output = p.grad.reshape(len(p), -1).abs().amax(dim=1)
        assert float(by_output.min()) > 1e-12, key  # every feature map is used


def test_the_untrained_aligned_frame_gets_its_first_gradient_in_the_last_layer() -> None:
    frame = build("equivariant", Translation(1), perturbed=False)
    frame(fields_for(Translation(1), (64,))).xi.sum().backward()
    touched = [key for key, p in frame.named_parameters() if p.grad is not None and float(p.grad.abs().max()) > 1e-12]
    assert touched == ["network.last.weight"]


def test_gradients_of_the_coordinates_pass_gradcheck() -> None:
    for name in ("analytic", "equivariant", "equivariant-free"):
        frame = build(name, Galilean(1))
        field = fields_for(Galilean(1), (12,), batch=2).requires_grad_()
        assert torch.autograd.gradcheck(lambda x, frame=frame: frame(x).xi, (field,))


@pytest.mark.parametrize("name", LEARNED)
def test_a_learned_frame_can_learn_a_canonical_position_of_its_own(name: str) -> None:
    """The crest of the first mode is where it starts; the target is the same point moved by 0.1."""
    group = Translation(1)
    torch.manual_seed(0)
    frame = FRAMES[name](group, 1, default_slice(group))
    canonical = fields_for(group, (64,), torch.float32, batch=16)
    canonical = group.inverse(canonical, AnalyticFrame(group)(canonical).xi)
    optimizer = torch.optim.Adam(frame.parameters(), lr=5e-3)
    errors = []
    for step in range(80):
        xi = 0.2 * random_elements(group, 16, step).float()
        error = group.difference(frame(group.act(canonical, xi)).xi, xi + 0.1)
        optimizer.zero_grad()
        error.square().mean().backward()
        optimizer.step()
        errors.append(float(error.detach().abs().mean()))
    assert errors[0] > 0.08 and errors[-1] < 0.03


# --- the oracle and the readout


def test_the_oracle_returns_what_it_was_told_with_full_confidence_and_stores_no_weights() -> None:
    group = Galilean(1)
    xi = random_elements(group, 3, 0)
    frame = OracleFrame(group, xi)
    estimate = frame(torch.randn(3, 1, 16))
    assert torch.equal(estimate.xi, xi) and torch.equal(estimate.confidence, torch.ones(3, dtype=torch.float64))
    assert not frame.state_dict()


def test_standardised_channels_have_no_mean_and_unit_rms(dtype: torch.dtype, tolerance: float) -> None:
    field = 3 + 5 * band_limit(torch.randn(2, 3, 16, 12, dtype=torch.float64), 2).to(dtype)
    flat = standardise(field).flatten(2)
    assert float(flat.mean(dim=2).abs().max()) < tolerance
    assert torch.allclose(flat.square().mean(dim=2), torch.ones(2, 3, dtype=dtype), atol=10 * tolerance)


def test_a_constant_becomes_zero_and_so_does_its_rounding(dtype: torch.dtype) -> None:
    noise = torch.randn(1, 1, 64, dtype=dtype, generator=torch.Generator().manual_seed(0)) * torch.finfo(dtype).eps
    for field in (torch.zeros_like(noise), torch.full_like(noise, 0.1), 1 + noise):
        assert float(standardise(field).abs().max()) < 1e-2


def test_the_retraction_is_the_angle_in_units_of_the_period(dtype: torch.dtype) -> None:
    turns = torch.tensor([[0.1, -0.3, 0.25]], dtype=dtype)
    vectors = 7 * torch.stack([torch.cos(2 * math.pi * turns), torch.sin(2 * math.pi * turns)], dim=-1)
    expected = turns * torch.tensor([1.0, 1.0, 2 * math.pi], dtype=dtype)
    assert torch.allclose(retract(vectors, Euclidean()), expected, atol=1e-6)
    nowhere = torch.zeros(1, 1, 2, dtype=dtype, requires_grad=True)
    angle = retract(nowhere, Translation(1))
    angle.sum().backward()
    assert angle.item() == 0 and nowhere.grad is not None and torch.equal(nowhere.grad, torch.zeros_like(nowhere))


def test_the_share_of_a_pure_wave_is_one_and_of_a_constant_zero(dtype: torch.dtype, tolerance: float) -> None:
    x = points((32,), dtype=dtype)[0]
    density = torch.stack(
        [torch.cos(2 * math.pi * x) + 1, torch.ones_like(x), torch.cos(2 * math.pi * x) + torch.cos(6 * math.pi * x)]
    )
    vectors = torch.tensor([[0.5, 0.0], [0.0, 0.0], [0.5, 0.0]], dtype=dtype)
    expected = torch.tensor([[1.0, 0.0, 0.5]], dtype=dtype)
    assert torch.allclose(shares(density[None], vectors[None]), expected, atol=tolerance)


def test_the_angle_of_a_density_is_the_direction_in_which_it_leans(dtype: torch.dtype) -> None:
    frame = EquivariantFrame(Euclidean(), 1)
    angles = torch.linspace(-3, 3, 7, dtype=dtype)
    x, y = points((32, 32), dtype=dtype) - 0.5
    blob = torch.exp(-(x**2 + y**2) / 0.01)
    leaning = blob * (1 + x * angles.cos()[:, None, None] + y * angles.sin()[:, None, None])
    vectors = frame._vectors(leaning[:, None].expand(-1, 3, -1, -1))
    turned = retract(vectors, Euclidean())[:, 2] - angles
    spread = torch.remainder(turned - turned[0] + 1, 2 * math.pi) - 1
    assert float(spread.abs().max()) < 1e-4  # the same constant for all


@pytest.mark.parametrize("dim", [1, 2])
def test_the_circular_convolution_is_the_one_of_torch_and_commutes_with_rolls(dim: int, dtype: torch.dtype) -> None:
    shape = (9, 12)[:dim]
    field = torch.randn(2, 3, *shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    assert torch.equal(wrap_around(field, dim, 2), nn.functional.pad(field, [2] * (2 * dim), mode="circular"))
    layer = CircularConvolution(dim, 3, 4).to(dtype)
    rolled = layer(field).roll([2, -3][:dim], list(range(2, 2 + dim)))
    assert torch.allclose(layer(field.roll([2, -3][:dim], list(range(2, 2 + dim)))), rolled, atol=1e-5)
    with torch.no_grad():
        assert CircularConvolution(dim, 3, 4, bias=False).bias is None


def test_the_literal_encoder_follows_only_what_it_saw() -> None:
    """Untrained it has no reason to be equivariant; it is here as the paper's comparison."""
    group = Translation(2)
    frame = build("cnn", group, torch.float32, perturbed=False)
    assert isinstance(frame, CNNFrame)
    assert equivariance_defect(frame, fields_for(group, (32, 32), torch.float32), random_elements(group, 4, 0).float()) > 0.02


def test_a_frame_of_many_channels_moves_the_parts_of_a_vector_together() -> None:
    """Of many scalar frames the first and the last are enough; of a vector field all channels turn with each other."""
    group = Euclidean(vectors=((0, 1), (2, 3), (4, 5)))
    field = torch.randn(2, 6, 16, 16, generator=torch.Generator().manual_seed(0))
    frame = EquivariantFrame(group, 6)
    assert frame.seen == list(range(6)) and EquivariantFrame(Euclidean(), 6).seen == [0, 5]
    assert bool(frame(field).xi.isfinite().all())
