"""The training objective, term by term, against the matrices of the paper written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from group_examples import EXAMPLES
from pacefno.fields import Field, FieldType
from pacefno.groups import Galilean, Group, Translation, Trivial
from pacefno.losses import Weights, anchor_loss, equivariance_loss, objective
from pacefno.metrics import random_elements, relative_h1, relative_l2

NAMES = [name for name, chosen in EXAMPLES.items() if chosen.group.spatial]
over_names = pytest.mark.parametrize("name", NAMES)
ALL = Weights(0.1, 0.2, 0.3, 0.4)
LATER = FieldType.parse("u: speed", 1, times=(1.0,))


def rotation(angle: float) -> Tensor:
    return torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]],
        dtype=torch.float64,
    )


def frobenius(group: Group, estimated: Tensor, true: Tensor) -> Tensor:
    """``|M(xi^) - M(xi)|_F^2`` with M one 2x2 rotation per spatial coordinate, entry by entry."""
    values = []
    for row, other in zip(estimated.tolist(), true.tolist(), strict=True):
        value = 0.0
        for j in range(group.spatial):
            turn = 2 * math.pi / group.periods[j]
            value += float((rotation(turn * row[j]) - rotation(turn * other[j])).square().sum())
        values.append(value)
    return torch.tensor(values, dtype=torch.float64)


@over_names
def test_the_equivariance_loss_is_the_frobenius_distance_of_rotation_matrices(
    name: str, dtype: torch.dtype
) -> None:
    group = EXAMPLES[name].group
    a, b = random_elements(group, 9, 0).to(dtype), random_elements(group, 9, 1).to(dtype)
    loss = equivariance_loss(group, a, b)
    assert torch.allclose(
        loss.double(), frobenius(group, a.double(), b.double()), rtol=1e-4, atol=1e-5
    )
    assert float(loss.max()) > 1  # nothing is compared with zero here


@over_names
def test_the_equivariance_loss_of_a_small_deviation_is_not_lost_in_rounding(
    name: str, dtype: torch.dtype
) -> None:
    group = EXAMPLES[name].group
    a = group.identity(3).to(dtype)
    b = a.clone()
    b[:, 0] = 1e-5 * group.periods[0]
    expected = 2 * (2 * math.pi * 1e-5) ** 2  # 4 (1 - cos d) = 2 d^2
    assert torch.allclose(
        equivariance_loss(group, a, b), torch.full((3,), expected, dtype=dtype), rtol=1e-4
    )


@over_names
def test_both_frame_losses_wrap_and_ignore_velocities(name: str, dtype: torch.dtype) -> None:
    group = EXAMPLES[name].group
    true = random_elements(group, 9, 0).to(dtype)
    estimated = true.clone()
    estimated[:, : group.spatial] += 2 * torch.tensor(group.periods[: group.spatial], dtype=dtype)
    estimated[:, group.spatial :] += 5
    for loss in (equivariance_loss, anchor_loss):
        assert float(loss(group, estimated, true).max()) < (
            1e-9 if dtype == torch.float32 else 1e-20
        )


def test_the_anchor_takes_the_short_way_round(dtype: torch.dtype) -> None:
    group = Translation(2)
    a, b = torch.tensor([[0.45, 0.1]], dtype=dtype), torch.tensor([[-0.45, 0.3]], dtype=dtype)
    assert anchor_loss(group, a, b).item() == pytest.approx(0.1**2 + 0.2**2, rel=1e-5)
    a.requires_grad_()
    anchor_loss(group, a, b).sum().backward()
    assert a.grad is not None
    assert torch.allclose(
        a.grad, torch.tensor([[-0.2, -0.4]], dtype=dtype), atol=1e-6
    )  # towards b, across the seam


def sample(dtype: torch.dtype) -> tuple[Group, Tensor, Tensor, Tensor, Tensor]:
    """Predictions and targets of a speed at time 1, with estimated and true elements."""
    group = Galilean(1)
    generator = torch.Generator().manual_seed(0)
    prediction, target = torch.randn(2, 5, 1, 17, dtype=dtype, generator=generator)
    estimated, true = random_elements(group, 5, 0), random_elements(group, 5, 1)
    return group, prediction, target, estimated, true


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a.double(), b.double())


def test_the_total_is_the_weighted_sum_of_its_parts(dtype: torch.dtype) -> None:
    group, p, y, estimated, true = sample(dtype)
    total, parts = objective(group, LATER, p, y, estimated, true, ALL)
    assert set(parts) == {"l2", "h1", "equivariance", "anchor", "invariant"}
    assert close(parts["l2"], relative_l2(p, y).mean())
    assert close(parts["h1"], relative_h1(p, y).mean())
    assert close(parts["equivariance"], equivariance_loss(group, estimated, true).mean())
    assert close(parts["anchor"], anchor_loss(group, estimated, true).mean())
    back = [group.inverse(Field(values, LATER), true).values[:, :1] for values in (p, y)]
    assert close(parts["invariant"], relative_l2(*back).mean())
    weights = {"l2": 1, "h1": 0.1, "equivariance": 0.2, "anchor": 0.3, "invariant": 0.4}
    assert close(total, sum(weights[key] * value for key, value in parts.items()))


def test_the_invariant_term_is_pulled_back_at_the_time_of_the_output() -> None:
    """A boost leaves the field at time 1 elsewhere than at time 0: the terminal frame."""
    group, p, y, estimated, true = sample(torch.float64)
    values = []
    for type in (LATER, LATER.at([0.0])):
        values.append(objective(group, type, p, y, estimated, true, ALL)[1]["invariant"])
    now = Field(p, LATER.at([0.0])), Field(y, LATER.at([0.0]))
    terminal = group.transport(true, 1.0)
    back = [group.inverse(field, terminal).values for field in now]
    assert close(values[0], relative_l2(*back).mean())


@pytest.mark.parametrize("term", ["h1", "equivariance", "anchor", "invariant"])
def test_a_term_of_weight_zero_is_not_computed(term: str) -> None:
    group, p, y, estimated, true = sample(torch.float64)
    weights = {"h1": 0.1, "equivariance": 0.2, "anchor": 0.3, "invariant": 0.4} | {term: 0.0}
    total, parts = objective(group, LATER, p, y, estimated, true, Weights(**weights))
    assert term not in parts and len(parts) == 4
    rest = sum(weights[key] * value for key, value in parts.items() if key != "l2")
    assert close(total, parts["l2"] + rest)


def test_without_weights_nothing_is_asked_of_the_frame() -> None:
    group, p, y, estimated, true = sample(torch.float64)
    unusable = torch.full_like(estimated, torch.nan)
    total, parts = objective(group, LATER, p, y, unusable, true, Weights())
    assert set(parts) == {"l2"} and torch.equal(total, relative_l2(p, y).mean())


def test_a_model_without_a_frame_pays_no_frame_terms() -> None:
    group, p, y, _, true = sample(torch.float64)
    _, parts = objective(group, LATER, p, y, None, true, ALL)
    assert set(parts) == {"l2", "h1", "invariant"}  # the last needs the true element alone
    trivial = torch.zeros(5, 0)
    _, parts = objective(Trivial(1), LATER, p, y, trivial, trivial, ALL)
    assert set(parts) == {"l2", "h1", "invariant"}


def test_the_error_per_channel_is_used_when_asked_for() -> None:
    group, type = Galilean(2), FieldType.parse("h: scalar, m: momentum of h", 2)
    generator = torch.Generator().manual_seed(0)
    p, y = torch.randn(2, 4, 3, 8, 8, dtype=torch.float64, generator=generator)
    y[:, 0] *= 100
    xi = group.identity(4)
    pooled, _ = objective(group, type, p, y, xi, xi, Weights())
    apart, _ = objective(group, type, p, y, xi, xi, Weights(per_channel=True))
    assert close(apart, relative_l2(p, y, per_channel=True).mean())
    assert not close(apart, pooled)


def test_the_gradient_of_a_perfect_prediction_is_zero_and_finite(dtype: torch.dtype) -> None:
    group, _, y, _, true = sample(dtype)
    p, estimated = y.clone().requires_grad_(), true.clone().requires_grad_()
    total, _ = objective(group, LATER, p, y, estimated, true, ALL)
    total.backward()
    assert total.item() == 0
    assert p.grad is not None and estimated.grad is not None
    assert torch.count_nonzero(p.grad) == 0 and torch.count_nonzero(estimated.grad) == 0


def test_the_gradients_of_the_objective_pass_gradcheck() -> None:
    group, p, y, estimated, true = sample(torch.float64)

    def total(prediction: Tensor, frame: Tensor) -> Tensor:
        return objective(group, LATER, prediction, y, frame, true, ALL)[0]

    assert torch.autograd.gradcheck(total, (p.requires_grad_(), estimated.requires_grad_()))


def test_the_error_can_be_measured_on_the_scale_of_the_target_before_it_was_moved(
    dtype: torch.dtype,
) -> None:
    group, p, y, estimated, true = sample(dtype)
    unmoved = y / 3

    def loss(reference: Tensor | None) -> Tensor:
        return objective(group, LATER, p, y, estimated, true, Weights(), reference)[0]

    assert close(loss(None), relative_l2(p, y).mean())
    assert close(loss(unmoved), 3 * loss(None))
