"""How errors are measured: against numbers worked out by hand, and never by broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from group_examples import EXAMPLES
from pacefno.errors import UsageError
from pacefno.fields import Box, Field, FieldType
from pacefno.grid import FieldError, energy_spectrum, points
from pacefno.groups import Euclidean, Galilean, GalileanScaling, Translation, Trivial, shift
from pacefno.metrics import (
    canonical_error,
    canonical_pair,
    equivariance_error,
    frame_distance,
    frame_error,
    nmse,
    random_elements,
    relative_h1,
    relative_l2,
    relative_l2_channels,
)
from pacefno.pace import PACE
from pacefno.testing import assert_equivariant

SHAPES = [(16,), (17,), (12, 16), (9, 14)]
PRESSURE = 1e5  # beside velocities of order one
over_shapes = pytest.mark.parametrize("shape", SHAPES)


def noise(shape: tuple[int, ...], dtype: torch.dtype, channels: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(
        4, channels, *shape, dtype=dtype, generator=torch.Generator().manual_seed(seed)
    )


# --- equivariance of models that were told too little, and in boxes of their own


def test_boosts_of_a_model_without_them_need_a_time_and_a_box() -> None:
    class Damp(nn.Module):
        def forward(self, field: Tensor) -> Tensor:
            mean = field.mean(dim=(2, 3), keepdim=True)
            return mean + 0.9 * (field - mean)

    model = PACE(Damp(), Translation(2), channels="u: velocity").eval()
    field = noise((8, 8), torch.float64, 2)
    with pytest.raises(UsageError, match="the galilean group has boosts"):
        equivariance_error(model, Galilean(2), field)
    what = {"horizon": 0.5, "lengths": 6.2832}
    assert float(equivariance_error(model, Galilean(2), field, **what).min()) > 0.1
    assert float(equivariance_error(model, Translation(2), field).max()) < 1e-12


def test_a_group_that_changes_boxes_tells_the_model_so() -> None:
    """A rescaled sample lies in another box, and a model that is not told it cannot follow."""

    class Stretch(nn.Module):
        def forward(self, field: Tensor, box: Box | None = None) -> Tensor:
            length = field.new_tensor([1.0]) if box is None else box.lengths[:, 0].to(field)
            return field * (1 + length[:, None, None] ** 2 * field)  # L^2 u is invariant

    group = GalileanScaling()
    now = FieldType.parse("u: speed", 1, lengths=2.0, step=0.5)
    model = PACE(Stretch(), group, input=now, output=now.at([1])).eval()
    field = noise((32,), torch.float64, 1)
    box = Box(torch.full((4, 1), 2.0).double(), torch.full((4,), 0.5).double())
    xi = random_elements(group, 4, 0)
    assert float(xi[:, 2].abs().min()) > 0.01
    assert float(equivariance_error(model, group, field, xi=xi, box=box).max()) < 1e-12
    assert_equivariant(model, group, field, xi=xi, box=box, tolerance=1e-12)


# --- relative errors


@over_shapes
def test_the_pooled_error_is_the_ratio_of_norms_of_each_sample(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    y, p = noise(shape, dtype), noise(shape, dtype, seed=1)
    expected = [float((p[i] - y[i]).double().norm() / y[i].double().norm()) for i in range(4)]
    assert torch.allclose(
        relative_l2(p, y).double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-5
    )
    assert torch.equal(relative_l2(y, y), torch.zeros(4, dtype=dtype))
    assert torch.allclose(relative_l2(torch.zeros_like(y), y), torch.ones(4, dtype=dtype))


@over_shapes
def test_the_error_per_channel_is_the_mean_of_the_channels_and_sees_what_pooling_hides(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    y = noise(shape, dtype)
    y[:, 0] *= 1000
    p = y.clone()
    p[:, 1:] = 0  # the small channels are all wrong
    assert torch.allclose(
        relative_l2_channels(p, y), torch.tensor([0.0, 1.0, 1.0], dtype=dtype).expand(4, 3)
    )
    assert torch.allclose(relative_l2(p, y, per_channel=True), torch.full((4,), 2 / 3, dtype=dtype))
    assert float(relative_l2(p, y).max()) < 0.01


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e12])
def test_relative_errors_do_not_depend_on_the_unit(scale: float, dtype: torch.dtype) -> None:
    y, p = noise((16,), dtype), noise((16,), dtype, seed=1)
    for error in (relative_l2, relative_l2_channels, relative_h1):
        assert torch.allclose(error(scale * p, scale * y), error(p, y), rtol=1e-4)


def test_an_error_against_nothing_is_huge_but_finite_and_no_error_is_zero(
    dtype: torch.dtype,
) -> None:
    zero, p = torch.zeros(4, 3, 16, dtype=dtype), noise((16,), dtype)
    for error in (relative_l2, relative_l2_channels, relative_h1):
        assert float(error(p, zero).min()) > 1e12
        assert bool(torch.isfinite(error(p, zero)).all())
        assert float(error(zero, zero).abs().max()) == 0


def test_slopes_are_measured_in_the_lengths_of_the_box(dtype: torch.dtype) -> None:
    """A wave along the longer side has less slope: by the ratio of the sides."""
    x = torch.arange(16, dtype=dtype) / 16
    wave = torch.sin(2 * math.pi * x)
    along_x, along_y = wave[:, None].expand(16, 16)[None, None], wave.expand(16, 16)[None, None]
    target, prediction = along_x.clone(), along_x + along_y
    exact = 1e-6 if dtype == torch.float32 else 1e-12
    boxes = ((None, 1.0), ((3.0, 3.0), 1.0), ((2 * math.pi, 1.1), 2 * math.pi / 1.1))
    for lengths, expected in boxes:
        assert float(relative_h1(prediction, target, lengths)) == pytest.approx(expected, rel=exact)
    sides = torch.tensor([[1.1, 1.1], [2 * math.pi, 1.1]], dtype=torch.float64)  # of each sample
    found = relative_h1(*(part.expand(2, -1, -1, -1) for part in (prediction, target)), sides)
    assert found.tolist() == pytest.approx([1.0, 2 * math.pi / 1.1], rel=exact)


def test_a_perfect_prediction_has_a_finite_gradient(dtype: torch.dtype) -> None:
    y = noise((16,), dtype)
    for error in (relative_l2, relative_l2_channels, relative_h1):
        p = y.clone().requires_grad_()
        error(p, y).sum().backward()
        assert p.grad is not None and torch.equal(p.grad, torch.zeros_like(p))


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_fields_are_measured_in_single_precision(half: torch.dtype) -> None:
    y, p = (
        300 * noise((64,), torch.float32),
        300 * noise((64,), torch.float32, seed=1),
    )  # squares overflow float16
    for error in (relative_l2, relative_l2_channels, relative_h1):
        assert error(p.to(half), y.to(half)).dtype == torch.float32
        assert torch.allclose(error(p.to(half), y.to(half)), error(p, y), rtol=0.02)


def test_nothing_is_broadcast() -> None:
    y = noise((16,), torch.float32)
    for error in (relative_l2, relative_l2_channels, relative_h1, nmse):
        for other in (y[:1], y[:, :1], y[..., :1]):
            with pytest.raises(FieldError, match="nothing is broadcast"):
                error(other, y)


@over_shapes
def test_the_h1_error_is_that_of_the_analytic_derivative(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """``y = sin 2 pi x``, ``p = y + 0.1 sin 6 pi x``: gradients 2 pi and 0.6 pi, ratio 0.3.

    In L2 it is 0.1.
    """
    x = 2 * math.pi * points(shape, dtype=dtype)
    y, e = torch.sin(x[0]), 0.1 * torch.sin(3 * x[0])
    y, p = y.expand(1, 1, *shape), (y + e).expand(1, 1, *shape)
    assert relative_h1(p, y).item() == pytest.approx(0.3, rel=1e-4)
    assert relative_l2(p, y).item() == pytest.approx(0.1, rel=1e-4)
    if len(shape) == 2:  # along a diagonal |K| is the length of the vector: 2 sqrt 2 against 1
        diagonal = y + 0.1 * torch.sin(2 * x[0] + 2 * x[1])
        assert relative_h1(diagonal, y).item() == pytest.approx(0.1 * 2 * math.sqrt(2), rel=1e-4)
    assert relative_h1(p + 5, y).item() == pytest.approx(
        0.3, rel=1e-3
    )  # a seminorm: constants do not count


# --- spectra


@pytest.mark.parametrize("shape", [(16,), (17,), (33,)])
def test_the_spectrum_sums_to_the_mean_square(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    field = noise(shape, dtype)
    spectrum = energy_spectrum(field).mean(dim=0)
    assert spectrum.shape == (shape[0] // 2 + 1,)
    assert torch.allclose(spectrum.sum(), field.square().mean(), rtol=1e-5)


@pytest.mark.parametrize("shape", [(16, 16), (13, 15), (12, 20)])
def test_the_spectrum_of_a_resolved_field_sums_to_the_mean_square_in_two_dimensions(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = 2 * math.pi * points(shape, dtype=dtype)
    field = (2 + torch.cos(x[0]) + torch.sin(3 * x[1] + 4 * x[0]) + 0.5 * torch.cos(2 * x[1]))[
        None, None
    ]
    expected = torch.tensor([4, 0.5, 0.125, 0, 0, 0.5], dtype=dtype)  # shell 5 holds (4, 3)
    assert torch.allclose(energy_spectrum(field)[0, :6], expected, atol=1e-5)
    assert torch.allclose(energy_spectrum(field).sum(), field.square().mean(), rtol=1e-5)


# --- equivariance


class Squares(nn.Module):
    """Commutes with every shift by whole cells, and with no boost."""

    def forward(self, field: Tensor) -> Tensor:
        return field + 0.2 * field.square()


class Placed(nn.Module):
    """Multiplies by the position: as far from equivariant as can be."""

    def forward(self, field: Tensor) -> Tensor:
        return field * points(field.shape[2:], dtype=field.dtype).sum(dim=0)


def smooth(dim: int, dtype: torch.dtype) -> Tensor:
    x = 2 * math.pi * points([24] * dim, dtype=dtype)
    return (torch.cos(x[0]) + 0.5 * torch.sin(2 * x[-1] + 1) + torch.cos(x[-1] - 2)).expand(
        3, 1, *[24] * dim
    )


@pytest.mark.parametrize("dim", [1, 2])
def test_the_equivariance_error_is_zero_for_a_model_that_follows_and_large_for_one_that_does_not(
    dim: int, dtype: torch.dtype
) -> None:
    group, field = Translation(dim), smooth(dim, dtype)
    assert float(equivariance_error(Squares(), group, field).max()) < (
        1e-6 if dtype == torch.float32 else 1e-14
    )
    assert float(equivariance_error(Placed(), group, field).min()) > 0.1
    assert float(equivariance_error(Placed(), Trivial(dim), field).max()) == 0


def drifting(length: float = 1.0) -> Callable[[Tensor], Tensor]:
    """The exact flow of ``u_t + <u> u_x = 0`` over the time 0.7: a shift by mean times T / L."""

    def flow(u: Tensor) -> Tensor:
        mean = u.flatten(1).mean(dim=1, keepdim=True, dtype=torch.float64)
        return shift(u, 0.7 * mean / length)

    return flow


@pytest.mark.parametrize("length", [1.0, 2 * math.pi, 0.3])
def test_a_solution_operator_with_a_drift_is_equivariant_only_with_its_own_horizon_and_box(
    length: float, dtype: torch.dtype
) -> None:
    group, field, flow = Galilean(1), smooth(1, dtype) + 0.2, drifting(length)

    def error(horizon: float, lengths: float = length) -> float:
        options = {"channels": "u: speed", "horizon": horizon, "lengths": lengths}
        return float(equivariance_error(flow, group, field, **options).max())

    assert error(0.7) < (2e-6 if dtype == torch.float32 else 1e-14)
    assert error(0.0) > 0.1 / length
    assert error(-0.7) > 0.1 / length  # the sign in the paper's appendix
    assert error(0.7, 1.5 * length) > 0.03 / length


def test_a_foreign_model_must_say_its_channels_and_horizon_where_there_are_boosts() -> None:
    field = smooth(1, torch.float32)
    with pytest.raises(ValueError, match="say what they are: channels="):
        equivariance_error(Squares(), Galilean(1), field)
    with pytest.raises(ValueError, match="say horizon=T"):
        equivariance_error(Squares(), Galilean(1), field, channels="u: speed")
    equivariance_error(Squares(), Translation(1), field)
    plane = smooth(2, torch.float32)
    equivariance_error(Squares(), Euclidean(), plane, channels="w: pseudoscalar")


def test_pace_knows_its_own_types_and_may_be_measured_with_others() -> None:
    field, group = smooth(1, torch.float32), Galilean(1)
    model = PACE(Squares(), group, channels="u: speed", horizon=0.4, lengths=2.0).eval()
    assert float(equivariance_error(model, group, field).max()) < 1e-5
    assert float(equivariance_error(model, group, field, horizon=0.4).max()) < 1e-5
    assert float(equivariance_error(model, group, field, horizon=0.0).max()) > 0.01
    assert float(equivariance_error(model, group, field, lengths=1.0).max()) > 0.01
    whole = {"channels": "u: speed", "horizon": 0.4, "lengths": 2.0}
    assert float(equivariance_error(model, group, field, **whole).max()) < 1e-5


def test_a_horizon_for_several_snapshots_is_refused() -> None:
    type = FieldType.parse("u: speed", 1)
    model = PACE(nn.Identity(), Galilean(1), input=type.at([0, 1]), output=type.at([2, 3]))
    field = smooth(1, torch.float32).expand(-1, 2, -1)
    assert float(equivariance_error(model.eval(), Galilean(1), field).max()) < 1e-5
    with pytest.raises(ValueError, match="several snapshots: say input= and output="):
        equivariance_error(model, Galilean(1), field, horizon=1.0)


def test_a_boost_that_cancels_a_prediction_does_not_make_its_rounding_look_large() -> None:
    """A prediction of 1 and a boost by -1: what is left is as small as one likes."""
    field, group = smooth(1, torch.float32), Galilean(1)

    class Unit(nn.Module):
        def forward(self, u: Tensor) -> Tensor:
            return u.mean(dim=2, keepdim=True) + 1 + 0 * u

    xi = torch.tensor([[0.0, -1.0]], dtype=torch.float64).expand(3, 2)
    options = {"channels": "u: speed", "horizon": 0.0, "xi": xi}
    assert float(equivariance_error(Unit(), group, field, **options).max()) < 1e-6
    assert float(equivariance_error(Squares(), group, field, **options).min()) > 0.1


def test_the_elements_can_be_given_and_are_otherwise_the_same_for_the_same_seed() -> None:
    group, field = Translation(1), smooth(1, torch.float64)
    assert float(equivariance_error(Placed(), group, field, xi=torch.zeros(3, 1)).max()) < 1e-14
    first, again = (equivariance_error(Placed(), group, field, seed=3) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, equivariance_error(Placed(), group, field, seed=4))


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_a_half_precision_field_is_moved_by_single_precision_elements(half: torch.dtype) -> None:
    boosts = {"channels": "u: speed", "horizon": 0.0}
    error = equivariance_error(Squares(), Galilean(1), smooth(1, half), **boosts)
    assert error.dtype == torch.float32 and bool(torch.isfinite(error).all())
    shifted = equivariance_error(Squares(), Translation(1), smooth(1, half))
    assert float(shifted.max()) < 4 * torch.finfo(half).eps


def test_no_gradient_is_kept() -> None:
    model = nn.Conv1d(1, 1, 1)
    assert not equivariance_error(model, Translation(1), smooth(1, torch.float32)).requires_grad


# --- frames


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_frame_errors_are_taken_to_the_nearest_image(name: str) -> None:
    group = EXAMPLES[name].group
    true = random_elements(group, 7, 0)
    periods = torch.tensor(
        [0.0 if math.isinf(p) else p for p in group.periods], dtype=torch.float64
    )
    turned = frame_error(group, true + 3 * periods + 0.01, true)
    assert turned.shape == (7, group.size)
    assert torch.allclose(turned, torch.full_like(turned, 0.01), atol=1e-9)
    wrapped = frame_error(group, true - 0.99 * periods, true)
    assert torch.allclose(wrapped, (0.01 * periods).expand(7, group.size), atol=1e-9)


def test_a_wrong_velocity_is_not_wrapped_away() -> None:
    error = frame_error(Galilean(1), torch.tensor([[0.0, 2.0]]), torch.tensor([[0.0, 0.0]]))
    assert error.tolist() == [[0.0, 2.0]]


def test_random_elements_fill_the_whole_group() -> None:
    group = Euclidean()
    xi = random_elements(group, 2000, 0)
    top = xi.abs().amax(dim=0)
    assert torch.allclose(top, torch.tensor([0.5, 0.5, math.pi], dtype=torch.float64), rtol=0.01)
    assert float(xi.mean(dim=0).abs().max()) < 0.1


def test_a_prediction_that_is_no_number_has_no_small_error(dtype: torch.dtype) -> None:
    target = torch.ones(2, 1, 8, dtype=dtype)
    broken = target.clone()
    broken[1, 0, 3] = math.nan
    error = relative_l2(broken, target)
    assert float(error[0]) == 0 and bool(torch.isnan(error[1]))


# --- in the canonical frame


def test_a_boost_does_not_change_the_error_in_the_canonical_frame(dtype: torch.dtype) -> None:
    """It adds its own energy to the target, so the plain relative error looks better."""
    group, type = Galilean(1), FieldType.parse("u: speed", 1, times=(0.6,), lengths=2.0)
    target = smooth(1, dtype)
    prediction = target + 0.1 * torch.sin(6 * math.pi * points((24,), dtype=dtype)[0])
    xi = torch.tensor([[0.3, 2.0], [-0.1, -5.0], [0.0, 0.5]], dtype=torch.float64)
    moved = [group.act(Field(values, type), xi).values for values in (prediction, target)]
    at_rest = relative_l2(prediction, target)
    error = canonical_error(group, type, xi, *moved)
    assert torch.allclose(error, at_rest, rtol=1e-4)
    assert bool((relative_l2(*moved) < 0.9 * at_rest).all())
    back = canonical_pair(group, type, xi, *moved)
    assert torch.allclose(back[1], target, atol=1e-5)
    each = canonical_error(group, type, xi, *moved, per_channel=True)
    assert torch.allclose(each, error)


def test_the_squared_error_of_a_forecast_is_that_of_each_snapshot(dtype: torch.dtype) -> None:
    target = noise((16,), dtype)
    prediction = target.clone()
    prediction[:, 1] = 0
    prediction[2, 2] = math.nan
    prediction[3, 2] = math.inf
    error = nmse(prediction, target)
    assert error.shape == (4, 3)
    assert torch.allclose(error[:, 1], torch.ones(4, dtype=dtype))
    assert error[:, 0].tolist() == [0] * 4 and error[:2, 2].tolist() == [0, 0]
    assert bool(torch.isinf(error[2:, 2]).all())


def test_the_error_may_be_divided_by_the_norm_of_another_field(dtype: torch.dtype) -> None:
    y, p = noise((16,), dtype), noise((16,), dtype, seed=1)
    assert torch.allclose(relative_l2(p, y, reference=y / 4), 4 * relative_l2(p, y))


def test_the_distance_of_frames_counts_periods_of_shifts_and_angles_alike() -> None:
    group = Euclidean()  # x and y in periods, an angle in radians
    true = torch.tensor([[0.49, 0.0, math.pi], [0.0, 0.0, 0.0]], dtype=torch.float64)
    found = torch.tensor([[-0.48, 0.04, -math.pi], [0.0, 0.0, math.pi]], dtype=torch.float64)
    distance = frame_distance(group, found, true)
    assert distance.tolist() == pytest.approx([math.hypot(0.03, 0.04), 0.5])
    boosted = torch.tensor([[0.1, 0.9]], dtype=torch.float64)  # a velocity is not a distance
    assert float(frame_distance(Galilean(1), boosted, boosted * 0)) == pytest.approx(0.1)


class KnowsPlaces(nn.Module):
    """Weighs the first channels by where they are; the last one it leaves alone."""

    def forward(self, field: Tensor) -> Tensor:
        place = points(tuple(field.shape[2:]))[0].to(field)
        return torch.cat([field[:, :-1] * place, field[:, -1:]], dim=1)


@pytest.mark.parametrize("channels", [None, "u v: vector, p: scalar"])
def test_a_large_channel_hides_no_small_one(channels: str | None) -> None:
    field = noise((16, 16), torch.float32)
    field[:, -1] += PRESSURE
    options = {"channels": channels}
    model, group = KnowsPlaces(), Translation(2)
    pooled = equivariance_error(model, group, field, **options)
    worst = equivariance_error(model, group, field, worst_quantity=True, **options)
    assert pooled.max() < 1e-4 and worst.min() > 1e-3  # relative to the rounding of the pressure
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_equivariant(model, group, field, tolerance=1e-4, **options)
    alone = equivariance_error(KnowsPlaces(), group, noise((16, 16), torch.float32), **options)
    assert alone.min() > 0.1


def test_the_worst_quantity_of_one_quantity_is_the_whole() -> None:
    field, model = noise((16, 16), torch.float64, channels=1), nn.Conv2d(1, 1, 3, padding=1)
    both = (
        equivariance_error(model.double(), Translation(2), field, **options)
        for options in ({}, {"worst_quantity": True})
    )
    assert torch.allclose(*both, rtol=1e-12)
