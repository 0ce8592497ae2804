"""Shifts, rotations and boosts as one group: what is exact on the torus, and what it refuses."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pacefno.fields import Box, Field, FieldType
from pacefno.frames import (
    AnalyticFrame,
    EquivariantFrame,
    Frame,
    GaussNewton,
    MomentSlice,
    SelfConsistency,
    TurningFrame,
)
from pacefno.grid import (
    FieldError,
    curl_and_divergence,
    from_curl_and_divergence,
    points,
    resample,
)
from pacefno.groups import Euclidean, Galilean, Group, SpecialGalilean
from pacefno.groups._rotation import move
from pacefno.groups.euclidean import rotation_matrix
from pacefno.inference import load, save
from pacefno.metrics import equivariance_error, random_elements
from pacefno.operators import FNO
from pacefno.pace import PACE, UndeterminedFrameWarning
from pacefno.testing import assert_equivariant, composition_law, frame_laws, largest, random_field

GROUP = SpecialGalilean()
FLOW = FieldType.parse("u v: velocity", 2)
BESIDE = FieldType.parse("c: scalar, u v: velocity, w: pseudoscalar", 2, lengths=2.0)
BOUND = {torch.float32: 1e-5, torch.float64: 1e-10}
GRIDS = [(96, 96), (97, 97)]


def vortices(grid: tuple[int, int], batch: int = 4) -> Tensor:
    """Vortices of several signs well inside the box, without circulation, ``(B, n, m)``."""
    generator = torch.Generator().manual_seed(3)
    places = 0.5 + 0.12 * (torch.rand(batch, 3, 2, generator=generator).double() - 0.5)
    strength = 1 + torch.rand(batch, 3, generator=generator).double()
    strength = torch.cat([strength[:, :2], -strength[:, :2].sum(dim=1, keepdim=True)], dim=1)
    x = points(grid)[None, None] - places[..., None, None]  # (B, 3, 2, n, m)
    blobs = torch.exp(-x.square().sum(dim=2) / (2 * 0.04**2))
    found: Tensor = (strength[..., None, None] * blobs).sum(dim=1)
    return 10 * found


def flow(grid: tuple[int, int], dtype: torch.dtype, mean: float = 0.2) -> Tensor:
    """Their velocity with a mean flow, ``(B, 2, n, m)``: it reaches all over the box."""
    still = torch.zeros_like(vortices(grid))
    velocity = from_curl_and_divergence(torch.stack([vortices(grid), still], dim=1))
    return (velocity + mean * torch.tensor([1.0, -0.5])[:, None, None]).to(dtype)


def beside(grid: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """A compact scalar, the flow and its vorticity."""
    scalar = vortices(grid).flip(0)[:, None].to(dtype)
    return torch.cat([scalar, flow(grid, dtype), vortices(grid)[:, None].to(dtype)], dim=1)


def by_components(field: Field, angle: Tensor) -> Field:
    """Each component turned as if it were a scalar, then both mixed: right for compact vectors."""
    turned = move(field.values, torch.nn.functional.pad(angle[:, None], (2, 0)))
    return field.with_values(torch.einsum("bij,bj...->bi...", rotation_matrix(angle), turned))


def turn(angle: Tensor) -> Tensor:
    return torch.nn.functional.pad(angle[:, None], (2, 2))


ANGLES = torch.tensor([0.3, -0.7, 1.2, 2.5], dtype=torch.float64)


# --- the action


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("type", "make"), [(FLOW, flow), (BESIDE, beside)], ids=["flow", "beside"])
def test_every_motion_of_compact_vortices_composes(
    grid: tuple[int, int],
    type: FieldType,
    make: Callable[[tuple[int, int], torch.dtype], Tensor],
    dtype: torch.dtype,
) -> None:
    """Any shift, angle and boost, at any time, though the velocity itself fills the box."""
    xi, eta = random_elements(GROUP, 4, 1), random_elements(GROUP, 4, 2)
    eta[:, :2] *= 0.2  # turned by the second motion they must still keep clear of the boundary
    for time in (0.0, 0.05):
        field = Field(make(grid, dtype), type.at([time]))
        assert composition_law(GROUP, field, xi, eta) < BOUND[dtype]


def test_turning_component_by_component_would_tear_a_flow() -> None:
    field = Field(flow((96, 96), torch.float64, mean=0.0), FLOW)
    twice = by_components(by_components(field, ANGLES), ANGLES)
    once = by_components(field, 2 * ANGLES)
    assert float((twice.values - once.values).norm() / field.values.norm()) > 0.02
    torn = curl_and_divergence(by_components(field, ANGLES).values)
    whole = curl_and_divergence(GROUP.act(field, turn(ANGLES)).values)
    assert largest(whole[:, 1]) < 1e-11 * largest(whole[:, 0])
    assert largest(torn[:, 1]) > 1e-2 * largest(whole[:, 0])


def test_a_compact_vector_turns_as_its_components_do(dtype: torch.dtype) -> None:
    x = points((96, 96)) - 0.5
    window = torch.exp(-x.square().sum(dim=0) / (2 * 0.04**2))
    values = torch.stack([window * (1 + 3 * x[0]), window * (x[1] - 0.3)]).expand(4, -1, -1, -1)
    field = Field(values.to(dtype), FLOW)
    expected = by_components(field, ANGLES.to(dtype))
    assert largest(GROUP.act(field, turn(ANGLES)).values - expected.values) < BOUND[dtype]


def test_a_boost_turns_with_a_rotation_that_follows_it_and_not_with_one_before() -> None:
    boost = torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    quarter = torch.tensor([[0.0, 0.0, math.pi / 2, 0.0, 0.0]], dtype=torch.float64)
    after = torch.tensor([[0.0, 0.0, math.pi / 2, 0.0, 1.0]], dtype=torch.float64)
    before = torch.tensor([[0.0, 0.0, math.pi / 2, 1.0, 0.0]], dtype=torch.float64)
    assert largest(GROUP.compose(quarter, boost) - after) < 1e-15
    assert largest(GROUP.compose(boost, quarter) - before) < 1e-15
    drift = torch.tensor([[0.0, 0.125, 0.0, 0.0, 0.0]], dtype=torch.float64)
    assert largest(GROUP.transport(after, 0.25, 2.0) - after - drift) < 1e-15


def test_without_a_boost_it_is_euclidean_and_without_an_angle_galilean(
    dtype: torch.dtype, tolerance: float
) -> None:
    """On any field, but for what quarter turns do to the rest of an angle: on compact ones."""
    rough = random_field(FLOW.at([0.3]), (24, 24), dtype=dtype)
    xi = random_elements(GROUP, 4, 1)
    straight = xi * torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0])
    expected = Galilean(2).act(rough, straight[:, [0, 1, 3, 4]]).values
    assert largest(GROUP.act(rough, straight).values - expected) < tolerance
    field = Field(flow((96, 96), dtype), FLOW.at([0.3]))
    rigid = xi * torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])
    expected = Euclidean().act(field, rigid[:, :3]).values
    assert largest(GROUP.act(field, rigid).values - expected) < 10 * tolerance


@pytest.mark.parametrize("grid", [(24, 24), (25, 25)])
def test_a_quarter_turn_after_any_element_composes_on_any_field(
    grid: tuple[int, int], dtype: torch.dtype
) -> None:
    """White noise included; the other way round a field must be compact."""
    field = random_field(FLOW.at([0.4]), grid, dtype=dtype)
    xi, eta = random_elements(GROUP, 4, 1), random_elements(GROUP, 4, 2)
    assert composition_law(GROUP, field, GROUP.composable(xi), eta) < BOUND[dtype]
    assert composition_law(GROUP, field, eta, GROUP.composable(xi)) > 1e-2


@pytest.mark.parametrize("shape", [(8, 8), (9, 9), (10, 7), (9, 12)])
def test_curl_and_divergence_lose_nothing_but_the_mean(
    shape: tuple[int, int], dtype: torch.dtype, tolerance: float
) -> None:
    """White noise with all its Nyquist modes."""
    field = random_field(FLOW, shape, dtype=dtype).values
    centred = field - field.mean(dim=(2, 3), keepdim=True)
    scalars = curl_and_divergence(field)
    assert largest(from_curl_and_divergence(scalars) - centred) < tolerance
    assert largest(scalars.mean(dim=(2, 3))) < 100 * tolerance


def test_the_curl_and_divergence_of_a_known_field() -> None:
    x, y = 2 * math.pi * points((32, 27))
    vectors = torch.stack([torch.sin(y) + torch.cos(x), torch.sin(2 * x)])
    curl, divergence = curl_and_divergence(vectors)
    tau = 2 * math.pi
    assert largest(curl - tau * (2 * torch.cos(2 * x) - torch.cos(y))) < 1e-12
    assert largest(divergence + tau * torch.sin(x)) < 1e-12


# --- frames


def frames(dtype: torch.dtype, type: FieldType) -> dict[str, Frame]:
    torch.manual_seed(0)
    learned = EquivariantFrame(GROUP, type)
    with torch.no_grad():
        for parameter in learned.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return {"analytic": AnalyticFrame(GROUP), "equivariant": learned.to(dtype)}


@pytest.mark.parametrize("name", ["analytic", "equivariant"])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("type", "make"), [(FLOW, flow), (BESIDE, beside)], ids=["flow", "beside"])
@pytest.mark.parametrize("time", [0.0, 0.3])
def test_frames_follow_shifts_turns_and_boosts_at_once(
    name: str,
    grid: tuple[int, int],
    type: FieldType,
    make: Callable[[tuple[int, int], torch.dtype], Tensor],
    time: float,
    dtype: torch.dtype,
) -> None:
    type = type.at([time])
    frame_laws(frames(dtype, type)[name], GROUP, type, make(grid, dtype), seed=4)


def test_the_frame_of_a_flow_is_its_mean_its_centre_and_the_direction_of_its_impulse() -> None:
    values = flow((96, 96), torch.float64, mean=0.0)
    rest = GROUP.inverse(Field(values, FLOW), MomentSlice(GROUP).coordinates(Field(values, FLOW)))
    xi = torch.tensor([[0.2, -0.4, 2.0, 0.7, -0.3]], dtype=torch.float64).expand(4, -1)
    moved = GROUP.act(rest, xi)
    assert largest(MomentSlice(GROUP).coordinates(moved) - xi) < 1e-9
    assert largest(moved.values.mean(dim=(2, 3)) - xi[:, 3:]) < 1e-12


def test_the_turning_frame_reads_a_flow_through_cells_quarter_turns_and_boosts(
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(0)
    frame = TurningFrame(GROUP, FLOW).to(dtype)
    field = Field(resample(flow((96, 96), torch.float64), (32, 32)).to(dtype), FLOW)
    cells = torch.tensor([[1, 3], [5, -2], [-7, 0], [0, 15]], dtype=torch.float64) / 32
    angles = torch.tensor([[0.0], [1.0], [2.0], [3.0]], dtype=torch.float64) * math.pi / 2
    xi = torch.cat([cells, angles, torch.ones(4, 2)], dim=1)
    moved, still = frame(GROUP.act(field, xi)).xi, frame(field).xi
    bound = 2e-3 if dtype == torch.float32 else 1e-9  # untrained, its densities are faint
    assert largest(GROUP.difference(moved, GROUP.compose(xi, still))) < bound
    assert bool((frame(field).quality > 0).all())


# --- PACE


class BentVorticity(nn.Module):
    """A flow from a flow that depends on the place and keeps its vorticity compact."""

    def forward(self, velocity: Tensor) -> Tensor:
        curl = curl_and_divergence(velocity)[:, 0]
        x, y = points(velocity.shape[2:], dtype=velocity.dtype)
        bent = curl * (1 + x + 0.3 * y) + 0.02 * curl.square()
        made = from_curl_and_divergence(torch.stack([bent, 0.1 * bent], dim=1))
        return made + velocity.mean(dim=(2, 3), keepdim=True)


def wrapped(operator: nn.Module, frame: Frame | None = None) -> PACE:
    said = {"channels": "u v: velocity", "horizon": 0.5, "lengths": 1.0}
    return PACE(operator, GROUP, **said, frame=frame).eval()


@pytest.mark.parametrize("name", ["analytic", "equivariant"])
def test_pace_follows_every_shift_turn_and_boost_while_vorticity_stays_compact(
    name: str, dtype: torch.dtype
) -> None:
    model = wrapped(BentVorticity(), frames(dtype, FLOW)[name])
    for grid in GRIDS:
        for seed in range(2):
            field = flow(grid, dtype)
            assert_equivariant(model, GROUP, field, seed=seed, tolerance=BOUND[dtype])
    bare = equivariance_error(BentVorticity(), GROUP, field, input=FLOW, output=FLOW.at([0.5]))
    assert float(bare.min()) > 1e-2


@pytest.mark.parametrize("name", ["analytic", "equivariant"])
@pytest.mark.parametrize("perturbed", [False, True], ids=["untrained", "perturbed"])
def test_pace_follows_shifts_quarter_turns_and_boosts_whatever_it_wraps(
    name: str, perturbed: bool, dtype: torch.dtype
) -> None:
    """What an untrained FNO predicts fills the box: then other angles are no symmetry."""
    torch.manual_seed(1)
    operator = FNO(2, 2, 2, 8, 6, positions="grid").to(dtype)
    if perturbed:
        with torch.no_grad():
            for weight in operator.parameters():
                weight.add_(0.3 * weight.std().nan_to_num(1.0) * torch.randn_like(weight))
    model = wrapped(operator, frames(dtype, FLOW)[name])
    for grid in GRIDS:
        field = flow(grid, dtype)
        xi = GROUP.composable(random_elements(GROUP, 4, grid[0]))
        assert_equivariant(model, GROUP, field, xi=xi, tolerance=BOUND[dtype])
    assert float(equivariance_error(model, GROUP, field, seed=1).max()) > 1e-6


def test_a_frame_that_is_off_is_refined_with_its_boost_kept() -> None:
    frame = AnalyticFrame(GROUP)
    field = Field(flow((64, 64), torch.float64), FLOW)
    exact = frame(field).xi
    off = torch.tensor([[0.03, -0.02, 0.2, 0.0, 0.0]], dtype=torch.float64)
    result = GaussNewton(steps=8)(SelfConsistency(frame), field, exact + off)
    assert largest(GROUP.difference(result.xi, exact)) < 1e-6
    assert torch.equal(result.xi[:, 3:], exact[:, 3:])


def test_a_wrapped_operator_is_saved_and_loaded_with_its_group(tmp_path: Path) -> None:
    model = wrapped(FNO(2, 2, 2, 4, 4))
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, PACE) and isinstance(again.group, SpecialGalilean)
    field = flow((32, 32), torch.float32)
    assert torch.allclose(again(field), model(field), atol=1e-6)


def round_vortex(grid: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """A shielded vortex off the centre, the same from all sides."""
    x = points(grid) - torch.tensor([0.46, 0.53])[:, None, None]
    radius = x.square().sum(dim=0) / 0.04**2
    curl = (1 - radius / 2) * torch.exp(-radius / 2)
    still = torch.zeros_like(curl)
    return from_curl_and_divergence(torch.stack([curl, still]))[None].to(dtype)


@pytest.mark.parametrize("grid", [(64, 64), (65, 65)])
def test_a_round_vortex_has_a_place_and_a_speed_but_no_angle(
    grid: tuple[int, int], dtype: torch.dtype
) -> None:
    model = wrapped(nn.Identity())
    values = round_vortex(grid, dtype) + 0.5
    found = model.frame_of(values)
    assert (found.quality[0] > 0).tolist() == [True, True, False, True, True]
    expected = torch.tensor([-0.04, 0.03, 0.0, 0.5, 0.5], dtype=torch.float64)
    assert largest(found.xi[0] - expected) < 1e-5
    with pytest.warns(UndeterminedFrameWarning, match=r"is not determined: angle\. "):
        model(values)
    model.on_undetermined = "raise"
    with pytest.raises(FieldError, match=r"is not determined: angle\. "):
        model(values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrapped(nn.Identity())(flow(grid, dtype))


# --- refusals


@pytest.mark.parametrize(
    ("channels", "lengths", "sentence"),
    [
        ("u v: velocity", (1.0, 2.0), r"a rotation needs a square box, got lengths \(1.0, 2.0\)"),
        ("w: pseudoscalar", 1.0, "a boost needs a channel that tells velocities"),
        ("u v: vector", 1.0, "name a velocity or a momentum in channels=, or use Euclidean"),
        ("u: speed", 1.0, r"a speed along \(1, 1\), a direction that a rotation turns"),
        ("", 1.0, "acts on channels by their kind, and these are not named"),
    ],
)
def test_what_it_cannot_be_used_on_is_refused_in_a_sentence(
    channels: str, lengths: float | tuple[float, ...], sentence: str
) -> None:
    type = FieldType.parse(channels, 2, lengths=lengths)
    with pytest.raises(FieldError, match=sentence):
        GROUP.check_type(type)
    with pytest.raises(FieldError, match=sentence):
        PACE(nn.Identity(), GROUP, input=type, output=type)


def test_a_sample_in_a_box_that_is_not_square_is_refused() -> None:
    lengths = torch.tensor([[1.0, 1.0], [1.0, 1.5]])
    field = Field(torch.zeros(2, 2, 8, 8), FLOW, Box(lengths, torch.ones(2)))
    for group in (GROUP, Euclidean()):
        with pytest.raises(FieldError, match="a rotation needs square boxes, got lengths"):
            group.act(field, group.identity(2))


def test_a_vorticity_may_come_out_where_a_velocity_went_in(dtype: torch.dtype) -> None:
    class Curl(nn.Module):
        def forward(self, velocity: Tensor) -> Tensor:
            return curl_and_divergence(velocity)[:, :1]

    output = FieldType.parse("w: pseudoscalar", 2, times=(0.5,))
    model = PACE(Curl(), GROUP, input=FLOW, output=output).eval()
    assert_equivariant(model, GROUP, flow((96, 96), dtype), tolerance=BOUND[dtype])


class CommutingBoost(SpecialGalilean):
    """Composes as if a rotation left a boost alone."""

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        rigid = self.rigid.compose(xi[:, :3], eta[:, :3])
        return torch.cat([rigid, xi[:, 3:] + eta[:, 3:]], dim=1)


def test_the_composition_law_fails_for_a_boost_that_does_not_turn() -> None:
    group: Group = CommutingBoost()
    field = Field(flow((48, 48), torch.float64), FLOW)
    xi, eta = random_elements(group, 4, 1), random_elements(group, 4, 2)
    assert composition_law(group, field, group.composable(xi), group.composable(eta)) > 0.1
