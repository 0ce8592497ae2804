"""PACE: whatever it wraps becomes equivariant, at any resolution, in both precisions, trained or not."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from functools import lru_cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from pacefno.equations import PROBLEMS, solve
from pacefno.equations.random_fields import compact_vorticity, gaussian_field, scale_to_rms
from pacefno.frames import FRAMES, AnalyticFrame, IdentityFrame, OracleFrame
from pacefno.grid import FieldError, points, resample
from pacefno.metrics import equivariance_error, random_elements, relative_l2
from pacefno.operators import FNO
from pacefno.pace import PACE
from pacefno.symmetry import GROUPS, Euclidean, Galilean, Group, Translation, Trivial, default_slice

EXACT_GROUPS = ["translation-1d", "translation-2d", "galilean-1d", "galilean-2d", "galilean-2d-momentum"]
EXACT_FRAMES = ["analytic", "equivariant"]
GRIDS = {1: [(128,), (511,)], 2: [(32, 32), (64, 48)]}
BOUND = {torch.float32: 1e-5, torch.float64: 1e-10}


def channels_of(group: Group) -> int:
    return 1 + group.dim if group.size > group.spatial + 1 else 1


def smooth_fields(group: Group, shape: tuple[int, ...], dtype: torch.dtype, batch: int = 6) -> Tensor:
    """Band-limited random fields like those of the benchmarks; the height is 1 with waves of rms 0.15."""
    generator = torch.Generator().manual_seed(21)
    count = batch * channels_of(group)
    rows = [scale_to_rms(gaussian_field(shape, generator, tau=5.0, gamma=3.0, cutoff=8), 0.4) for _ in range(count)]
    field = torch.stack(rows).reshape(batch, channels_of(group), *shape)
    if channels_of(group) > 1:
        field = torch.cat([1 + 0.15 / 0.4 * field[:, :1], 0.25 * field[:, 1:]], dim=1)
    return field.to(dtype)


@lru_cache(maxsize=1)
def fronts() -> Tensor:
    """Steep solutions of 1-D Burgers at time 1 on 2048 points, ``(4, 1, 2048)``."""
    problem = PROBLEMS["burgers1d"]
    initial = torch.stack([problem.initial_state(0, "fronts", i)[0] for i in range(4)])
    return solve(problem.equation, initial, [0.0, 1.0], 2e-3)[:, 1]


def perturb(model: nn.Module, size: float = 0.3) -> None:
    """Move every weight by a share of its spread, and those that start at zero (or alone) by that much itself."""
    with torch.no_grad():
        for weight in model.parameters():
            spread = float(weight.std()) if weight.numel() > 1 else 0.0
            weight.add_(size * (spread or 1.0) * torch.randn_like(weight))


def wrapped_fno(group: Group, frame: str, dtype: torch.dtype, *, perturbed: bool, horizon: float = 1.0) -> PACE:
    torch.manual_seed(5)
    channels = channels_of(group)
    operator = FNO(group.dim, channels, channels, 12, 6, positions="grid")
    model = PACE(operator, group, FRAMES[frame](group, channels, default_slice(group)), horizon).to(dtype).eval()
    if perturbed:
        perturb(model)
    return model


class Bend(nn.Module):
    """Depends on the position, keeps every front as steep and every compact field as compact as it was."""

    def forward(self, field: Tensor) -> Tensor:
        return field * (1 + points(field.shape[2:], dtype=field.dtype)[0]) + field.square()


# --- the promise


@pytest.mark.parametrize("group_name", EXACT_GROUPS)
@pytest.mark.parametrize("frame", EXACT_FRAMES)
@pytest.mark.parametrize("perturbed", [False, True], ids=["untrained", "perturbed"])
def test_the_whole_model_is_equivariant_at_every_resolution(
    group_name: str, frame: str, perturbed: bool, dtype: torch.dtype
) -> None:
    group = GROUPS[group_name]()
    model = wrapped_fno(group, frame, dtype, perturbed=perturbed)
    for shape, seed in itertools.product(GRIDS[group.dim], range(2)):
        field = smooth_fields(group, shape, dtype)
        assert float(equivariance_error(model, group, field, seed=seed).max()) <= BOUND[dtype]
        assert float(equivariance_error(model.operator, group, field, horizon=1.0).min()) > 1e-4  # and bare it is not


@pytest.mark.parametrize("frame", EXACT_FRAMES)
@pytest.mark.parametrize("perturbed", [False, True], ids=["untrained", "perturbed"])
@pytest.mark.parametrize("n", [1024, 2048])
def test_steep_fronts_are_followed_too(frame: str, perturbed: bool, n: int, dtype: torch.dtype) -> None:
    group = Galilean(1)
    field = fronts()[..., :: 2048 // n].to(dtype)
    model = wrapped_fno(group, frame, dtype, perturbed=perturbed)
    for seed in range(3):
        assert float(equivariance_error(model, group, field, seed=seed).max()) <= BOUND[dtype]


@pytest.mark.parametrize("frame", EXACT_FRAMES)
def test_an_operator_that_keeps_the_front_is_equivariant(frame: str, dtype: torch.dtype) -> None:
    """A front that comes out as steep as it went in shows every error of the frame; an untrained FNO smooths it."""
    group = Galilean(1)
    model = PACE(Bend(), group, FRAMES[frame](group, 1, default_slice(group)), 1.0).to(dtype).eval()
    perturb(model)
    for n, seed in itertools.product((1024, 2048), range(3)):
        field = fronts()[..., :: 2048 // n].to(dtype)
        assert float(fronts().diff().abs().max()) * 2048 > 30  # steep indeed
        assert float(equivariance_error(model, group, field, seed=seed).max()) <= BOUND[dtype]


@given(
    shift=st.floats(-40, 40),
    velocity=st.sampled_from([0.0, 1e-3, 0.7, -12.0, 300.0, -1e4]),
    double=st.booleans(),
    frame=st.sampled_from(EXACT_FRAMES),
)
def test_shifts_and_boosts_may_have_any_size(shift: float, velocity: float, double: bool, frame: str) -> None:
    group, dtype = Galilean(1), torch.float64 if double else torch.float32
    model = wrapped_fno(group, frame, dtype, perturbed=True)
    field = smooth_fields(group, (128,), dtype, batch=3)
    xi = torch.tensor([[shift, velocity]], dtype=dtype).expand(3, 2)
    assert float(equivariance_error(model, group, field, xi=xi).max()) <= BOUND[dtype]


@pytest.mark.parametrize("n", [64, 128])
def test_shallow_water_states_of_the_benchmark_are_followed(n: int, dtype: torch.dtype) -> None:
    problem = PROBLEMS["shallow_water"]
    field = torch.stack([problem.initial_state(0, "test", i)[0] for i in range(3)])
    field = field[..., :: 128 // n, :: 128 // n].to(dtype)
    model = wrapped_fno(problem.group, "equivariant", dtype, perturbed=True, horizon=problem.horizon)
    assert float(equivariance_error(model, problem.group, field).max()) <= BOUND[dtype]


def compact_fields(n: int, dtype: torch.dtype) -> Tensor:
    """Compact vorticity without circulation, off the centre of the slice."""
    generator = torch.Generator().manual_seed(2)
    raw = [gaussian_field((n, n), generator, tau=7.0, gamma=2.5, cutoff=10) for _ in range(4)]
    return torch.stack([compact_vorticity(field, 0.12, 1.0) for field in raw])[:, None].to(dtype)


def test_rigid_motions_of_compact_fields_are_followed_closely(dtype: torch.dtype) -> None:
    """As long as the prediction is compact too: what an operator puts at the seams is torn there."""
    group = Euclidean()
    model = PACE(Bend(), group).eval()
    errors = {n: float(equivariance_error(model, group, compact_fields(n, dtype)).max()) for n in (64, 128)}
    assert float(equivariance_error(Bend(), group, compact_fields(64, dtype)).min()) > 0.02
    assert 1e-5 < errors[64] < 1e-3
    assert errors[128] < (1e-5 if dtype == torch.float32 else 1e-8)


def test_rigid_motions_of_periodic_fields_are_not_followed_because_they_are_no_symmetry() -> None:
    """The seams of a rotated periodic field: the other half of the statement above."""
    group = Euclidean()
    field = smooth_fields(Translation(2), (64, 64), torch.float64)
    assert float(equivariance_error(PACE(Bend(), group).eval(), group, field).max()) > 0.1


class WrongSign(Galilean):
    """The terminal frame with the sign of the paper's appendix: what the law must catch."""

    def transport(self, xi: Tensor, horizon: float | Tensor) -> Tensor:
        return super().transport(xi, -torch.as_tensor(horizon))


def test_the_law_fails_for_a_wrong_terminal_frame_and_for_a_frame_that_does_not_follow() -> None:
    group, field = Galilean(1), smooth_fields(Galilean(1), (128,), torch.float64)
    wrong = PACE(nn.Identity(), WrongSign(1), AnalyticFrame(group), 1.0)
    assert float(equivariance_error(wrong, group, field).max()) > 0.05
    model = wrapped_fno(group, "cnn", torch.float64, perturbed=True)
    assert float(equivariance_error(model, group, field).max()) > 1e-3


# --- what it wraps


class UNet(nn.Module):
    """A small circular U-Net that is told where it is."""

    def __init__(self, dim: int, width: int = 8) -> None:
        super().__init__()
        convolution = {1: nn.Conv1d, 2: nn.Conv2d}[dim]

        def layer(a: int, b: int, stride: int = 1) -> nn.Module:
            return convolution(a, b, 3, stride=stride, padding=1, padding_mode="circular")

        self.enter, self.down, self.deep, self.leave = (
            layer(1 + dim, width),
            layer(width, 2 * width, 2),
            layer(2 * width, 2 * width),
            layer(3 * width, 1),
        )

    def forward(self, field: Tensor) -> Tensor:
        where = points(field.shape[2:], dtype=field.dtype).expand(len(field), -1, *field.shape[2:])
        top = torch.relu(self.enter(torch.cat([field, where], dim=1)))
        low = torch.relu(self.deep(torch.relu(self.down(top))))
        back = nn.functional.interpolate(low, size=field.shape[2:], mode="nearest")
        out: Tensor = self.leave(torch.cat([top, back], dim=1))
        return out


def neuraloperator(dim: int) -> nn.Module:
    models = pytest.importorskip("neuralop.models")
    network: nn.Module = models.FNO(n_modes=(8,) * dim, in_channels=1, out_channels=1, hidden_channels=8, n_layers=2)
    return network


OPERATORS: dict[str, Callable[[int], nn.Module]] = {
    "fno": lambda dim: FNO(dim, 1, 1, 8, 5, positions="grid"),
    "unet": UNet,
    "neuraloperator": neuraloperator,
}


@pytest.mark.parametrize("name", list(OPERATORS))
@pytest.mark.parametrize("group_name", ["translation-1d", "translation-2d", "galilean-1d", "galilean-2d"])
def test_any_operator_becomes_equivariant_by_wrapping_it(name: str, group_name: str) -> None:
    group = GROUPS[group_name]()
    torch.manual_seed(1)
    operator = OPERATORS[name](group.dim).eval()
    perturb(operator)
    field = smooth_fields(group, (64, 64)[: group.dim], torch.float32)
    before = equivariance_error(operator, group, field, horizon=0.5)
    after = equivariance_error(PACE(operator, group, horizon=0.5).eval(), group, field)
    assert float(before.mean()) > 2e-4
    assert float(after.max()) <= 1e-5
    assert float(after.max()) < 0.01 * float(before.mean())


def burgers_pairs(count: int) -> tuple[Tensor, Tensor]:
    """Canonical states of a smooth Burgers problem and their solutions at time 0.5, 64 points, float32."""
    generator = torch.Generator().manual_seed(7)
    raw = [gaussian_field((64,), generator, tau=5.0, gamma=3.0, cutoff=6) for _ in range(count)]
    initial = torch.stack([scale_to_rms(field, 0.5) for field in raw])[:, None]
    group = Galilean(1)
    initial = group.inverse(initial, AnalyticFrame(group)(initial).xi)
    states = solve(PROBLEMS["burgers1d_smooth"].equation, initial, [0.0, 0.5], 5e-3)
    return states[:, 0].float(), states[:, 1].float()


def test_a_trained_operator_keeps_its_error_out_of_distribution_once_wrapped() -> None:
    torch.manual_seed(0)
    x, y = burgers_pairs(72)
    operator = FNO(1, 1, 1, 16, 8, layers=3, positions="grid", head=32)
    optimizer = torch.optim.Adam(operator.parameters(), lr=4e-3)
    for _ in range(150):
        loss = relative_l2(operator(x[:64]), y[:64]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    operator.eval()
    group, x, y = Galilean(1), x[64:], y[64:]
    xi = group.sample([0.2, 0.4], [0.5, 1.0], len(x), torch.Generator().manual_seed(3)).float()
    moved, target = group.act(x, xi), group.act(y, group.transport(xi, 0.5))
    wrapped = PACE(operator, group, horizon=0.5).eval()
    with torch.no_grad():
        plain_id, plain_ood = relative_l2(operator(x), y).mean(), relative_l2(operator(moved), target).mean()
        terminal = group.transport(xi, 0.5)
        back = relative_l2(group.inverse(wrapped(moved), terminal), group.inverse(target, terminal)).mean()
        assert float(plain_id) < 0.15
        assert float(plain_ood) > 4 * float(plain_id)
        assert float(back) == pytest.approx(float(plain_id), rel=1e-3)
        assert torch.allclose(wrapped(x), operator(x), atol=1e-5)  # on the slice nothing changes


# --- the parts


@pytest.mark.parametrize("group_name", EXACT_GROUPS)
def test_the_canonical_field_does_not_depend_on_the_motion_and_lies_on_the_slice(group_name: str, dtype: torch.dtype) -> None:
    group = GROUPS[group_name]()
    model = PACE(nn.Identity(), group)
    field = smooth_fields(group, GRIDS[group.dim][0], dtype)
    canonical = model.canonicalize(field)
    moved = model.canonicalize(group.act(field, random_elements(group, len(field), 0).to(dtype)))
    bound = 2e-5 if dtype == torch.float32 else 1e-9
    assert float((canonical - moved).abs().max()) < bound
    assert float(group.difference(model.frame_of(canonical).xi, torch.zeros(1, group.size, dtype=dtype)).abs().max()) < bound
    assert float((canonical - field).abs().max()) > 0.05


def test_the_frame_is_a_return_value_and_never_state() -> None:
    model = wrapped_fno(Galilean(1), "equivariant", torch.float32, perturbed=True)
    before = set(vars(model)), set(vars(model.frame)), set(model.state_dict())
    model(smooth_fields(Galilean(1), (128,), torch.float32))
    assert before == (set(vars(model)), set(vars(model.frame)), set(model.state_dict()))
    copy.deepcopy(model)


def test_the_estimate_belongs_to_the_forward_pass(dtype: torch.dtype) -> None:
    group = Galilean(2)
    model, field = wrapped_fno(group, "equivariant", dtype, perturbed=True), smooth_fields(group, (32, 32), dtype)
    estimate = model.frame_of(field)
    assert torch.equal(model(field), model.at(field, estimate.xi))
    assert bool((estimate.confidence > 0).all())
    by_hand = model.operator(group.inverse(field, estimate.xi))
    assert torch.equal(model(field), group.act(by_hand, group.transport(estimate.xi, 1.0)))


def test_the_oracle_undoes_the_true_motion(dtype: torch.dtype, tolerance: float) -> None:
    group = Galilean(1)
    field, xi = smooth_fields(group, (128,), dtype), random_elements(group, 6, 0).to(dtype)
    model = wrapped_fno(group, "analytic", dtype, perturbed=True)
    told = PACE(model.operator, group, OracleFrame(group, xi), 1.0).eval()
    expected = group.act(model.operator(field), group.transport(xi, 1.0))
    assert float((told(group.act(field, xi)) - expected).detach().abs().max()) < 10 * tolerance
    assert float((model.at(group.act(field, xi), xi) - expected).detach().abs().max()) < 10 * tolerance


def test_the_trivial_group_is_the_operator_itself() -> None:
    operator = FNO(1, 1, 1, 8, 5, positions="grid").eval()
    field = smooth_fields(Translation(1), (64,), torch.float32)
    for model in (PACE(operator, Trivial(1)), PACE(operator, Trivial(1), IdentityFrame(Trivial(1)), 3.0)):
        assert torch.equal(model.eval()(field), operator(field))


def test_a_prediction_does_not_depend_on_batch_mates(dtype: torch.dtype, tolerance: float) -> None:
    group = Galilean(2)
    model, field = wrapped_fno(group, "equivariant", dtype, perturbed=True), smooth_fields(group, (32, 32), dtype)
    alone = torch.cat([model(field[i : i + 1]) for i in range(len(field))])
    assert float((alone - model(field)).detach().abs().max()) < 10 * tolerance


def test_the_prediction_on_a_finer_grid_is_the_same_function() -> None:
    group = Galilean(1)
    torch.manual_seed(0)
    model = PACE(nn.Identity(), group, FRAMES["equivariant"](group, 1, default_slice(group)), 0.3).double()
    perturb(model)
    field = smooth_fields(group, (64,), torch.float64)
    assert torch.allclose(resample(model(field), (160,)), model(resample(field, (160,))), atol=1e-10)


def test_more_output_than_input_channels_are_pushed_out_together() -> None:
    group = Translation(2)
    model = PACE(FNO(2, 2, 5, 8, 4, positions="grid"), group).eval()
    field = torch.cat([smooth_fields(group, (24, 24), torch.float32)] * 2, dim=1)
    assert model(field).shape == (6, 5, 24, 24)
    assert float(equivariance_error(model, group, field).max()) <= 1e-5


# --- precision


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_in_is_half_precision_out_with_a_single_precision_operator(half: torch.dtype) -> None:
    group = Galilean(1)
    model, field = wrapped_fno(group, "equivariant", torch.float32, perturbed=True), smooth_fields(group, (64,), torch.float32)
    out = model(field.to(half))
    assert out.dtype == model.canonicalize(field.to(half)).dtype == half
    assert torch.allclose(out.float(), model(field.to(half).float()), atol=4 * torch.finfo(half).eps)


def test_a_half_precision_operator_gets_the_fields_it_can_take() -> None:
    group = Galilean(1)
    operator = nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular").bfloat16()
    model = PACE(operator, group, horizon=0.5).eval()
    out = model(smooth_fields(group, (64,), torch.bfloat16))
    assert out.dtype == torch.bfloat16 and bool(torch.isfinite(out).all())


def test_an_operator_under_autocast_does_not_round_the_frame_or_the_boost() -> None:
    group = Galilean(1)

    class Unit(nn.Module):
        """What an autocast network hands back: half precision."""

        def forward(self, field: Tensor) -> Tensor:
            return torch.ones_like(field, dtype=torch.bfloat16)

    field = smooth_fields(group, (64,), torch.float32) + 0.123456
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = PACE(Unit(), group, horizon=0.5).eval()(field)
    assert out.dtype == torch.float32
    assert torch.allclose(out, 1 + field.mean(dim=2, keepdim=True).expand_as(out), atol=1e-5)


# --- gradients and bad input


def test_gradients_flow_through_the_frame_the_operator_and_the_field() -> None:
    group = Galilean(1)
    model = wrapped_fno(group, "equivariant", torch.float64, perturbed=True).train()
    field = smooth_fields(group, (64,), torch.float64).requires_grad_()
    relative_l2(model(field), torch.ones_like(field)).mean().backward()
    assert field.grad is not None and bool(torch.isfinite(field.grad).all())
    dead = [key for key, p in model.named_parameters() if p.grad is None or float(p.grad.abs().max()) == 0]
    assert not dead


def test_a_field_without_a_frame_is_predicted_with_the_identity_and_finite_gradients(dtype: torch.dtype) -> None:
    group = Galilean(1)
    model = wrapped_fno(group, "equivariant", dtype, perturbed=True)
    field = torch.stack([torch.zeros(64), torch.full((64,), 0.3), torch.cos(4 * math.pi * points((64,))[0])])[:, None].to(dtype)
    field.requires_grad_()
    out = model(field)
    velocity = field.mean(dim=2, keepdim=True)
    moved = group.act(model.operator(field - velocity), torch.cat([velocity[:, 0], velocity[:, 0]], dim=1))
    assert torch.allclose(out, moved, atol=1e-5)
    out.sum().backward()
    assert field.grad is not None and bool(torch.isfinite(field.grad).all())
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)


def test_bad_input_is_refused_with_the_remedy() -> None:
    model = wrapped_fno(Galilean(1), "analytic", torch.float32, perturbed=False)
    good = smooth_fields(Galilean(1), (64,), torch.float32)
    for call in (model, model.frame_of, model.canonicalize, model.refine):
        with pytest.raises(FieldError, match="add a batch axis"):
            call(good[0])
        with pytest.raises(FieldError, match="got \\(6, 1, 64, 1\\)"):
            call(good[..., None])
        with pytest.raises(FieldError, match="an axis is empty"):
            call(good[:0])
        with pytest.raises(FieldError, match="floating dtype"):
            call(good.long())
        bad = good.clone()
        bad[2, 0, 7] = torch.nan
        with pytest.raises(FieldError, match=r"sample 2, channel 0, grid point \(7,\)"):
            call(bad)
    with pytest.raises(FieldError, match="channels, not 2"):
        model(torch.cat([good, good], dim=1))
    with pytest.raises(FieldError, match="one row per sample"):
        model.at(good, torch.zeros(6, 1))
    with pytest.raises(FieldError, match="momentum boost: expected channels"):
        PACE(nn.Identity(), Galilean(2, "momentum"))(torch.zeros(1, 1, 8, 8))
    model.train()
    assert bool(torch.isnan(model(bad)[2]).all())  # in training the loss watches for it
