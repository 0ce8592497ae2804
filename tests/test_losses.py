"""The training objective, term by term, against the matrices of the paper written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pacefno.losses import Weights, anchor_loss, equivariance_loss, objective
from pacefno.metrics import random_elements, relative_h1, relative_l2
from pacefno.symmetry import GROUPS, Galilean, Group, Translation, Trivial

NAMES = [name for name, make in GROUPS.items() if make().spatial]
over_names = pytest.mark.parametrize("name", NAMES)


def rotation(angle: float) -> Tensor:
    return torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64)


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
def test_the_equivariance_loss_is_the_frobenius_distance_of_rotation_matrices(name: str, dtype: torch.dtype) -> None:
    group = GROUPS[name]()
    a, b = random_elements(group, 9, 0).to(dtype), random_elements(group, 9, 1).to(dtype)
    loss = equivariance_loss(group, a, b)
    assert torch.allclose(loss.double(), frobenius(group, a.double(), b.double()), rtol=1e-4, atol=1e-5)
    assert float(loss.max()) > 1  # nothing is compared with zero here


@over_names
def test_the_equivariance_loss_of_a_small_deviation_is_not_lost_in_rounding(name: str, dtype: torch.dtype) -> None:
    group = GROUPS[name]()
    a = group.identity(3, dtype=dtype)
    b = a.clone()
    b[:, 0] = 1e-5 * group.periods[0]
    expected = 2 * (2 * math.pi * 1e-5) ** 2  # 4 (1 - cos d) = 2 d^2
    assert torch.allclose(equivariance_loss(group, a, b), torch.full((3,), expected, dtype=dtype), rtol=1e-4)


@over_names
def test_both_frame_losses_wrap_and_ignore_velocities(name: str, dtype: torch.dtype) -> None:
    group = GROUPS[name]()
    true = random_elements(group, 9, 0).to(dtype)
    estimated = true.clone()
    estimated[:, : group.spatial] += 2 * torch.tensor(group.periods[: group.spatial], dtype=dtype)
    estimated[:, group.spatial :] += 5
    for loss in (equivariance_loss, anchor_loss):
        assert float(loss(group, estimated, true).max()) < (1e-9 if dtype == torch.float32 else 1e-20)


def test_the_anchor_takes_the_short_way_round(dtype: torch.dtype) -> None:
    group = Translation(2)
    a, b = torch.tensor([[0.45, 0.1]], dtype=dtype), torch.tensor([[-0.45, 0.3]], dtype=dtype)
    assert anchor_loss(group, a, b).item() == pytest.approx(0.1**2 + 0.2**2, rel=1e-5)
    a.requires_grad_()
    anchor_loss(group, a, b).sum().backward()
    assert a.grad is not None
    assert torch.allclose(a.grad, torch.tensor([[-0.2, -0.4]], dtype=dtype), atol=1e-6)  # towards b, across the seam


def sample(dtype: torch.dtype) -> tuple[Group, Tensor, Tensor, Tensor, Tensor, Tensor]:
    group = Galilean(1)
    generator = torch.Generator().manual_seed(0)
    prediction, target = torch.randn(2, 5, 1, 17, dtype=dtype, generator=generator)
    estimated, true = random_elements(group, 5, 0).to(dtype), random_elements(group, 5, 1).to(dtype)
    return group, prediction, target, estimated, true, group.transport(true, 1.0)


def test_the_total_is_the_weighted_sum_of_its_parts(dtype: torch.dtype) -> None:
    group, p, y, estimated, true, terminal = sample(dtype)
    total, parts = objective(group, p, y, estimated, true, terminal, Weights(0.1, 0.2, 0.3, 0.4))
    assert set(parts) == {"l2", "h1", "equivariance", "anchor", "invariant"}
    assert torch.allclose(parts["l2"], relative_l2(p, y).mean())
    assert torch.allclose(parts["h1"], relative_h1(p, y).mean())
    assert torch.allclose(parts["equivariance"], equivariance_loss(group, estimated, true).mean())
    assert torch.allclose(parts["anchor"], anchor_loss(group, estimated, true).mean())
    canonical = relative_l2(group.inverse(p, terminal)[:, :1], group.inverse(y, terminal)[:, :1]).mean()
    assert torch.allclose(parts["invariant"], canonical)
    expected = parts["l2"] + 0.1 * parts["h1"] + 0.2 * parts["equivariance"] + 0.3 * parts["anchor"] + 0.4 * parts["invariant"]
    assert torch.allclose(total, expected)


@pytest.mark.parametrize("term", ["h1", "equivariance", "anchor", "invariant"])
def test_a_term_of_weight_zero_is_not_computed(term: str) -> None:
    group, p, y, estimated, true, terminal = sample(torch.float64)
    weights = {"h1": 0.1, "equivariance": 0.2, "anchor": 0.3, "invariant": 0.4} | {term: 0.0}
    total, parts = objective(group, p, y, estimated, true, terminal, Weights(**weights))
    assert term not in parts and len(parts) == 4
    expected = parts["l2"] + sum(weights[key] * value for key, value in parts.items() if key != "l2")
    assert torch.allclose(total, expected)


def test_without_weights_nothing_is_asked_of_the_frame() -> None:
    group, p, y, estimated, true, terminal = sample(torch.float64)
    unusable = torch.full_like(estimated, torch.nan)
    total, parts = objective(group, p, y, unusable, true, terminal, Weights())
    assert set(parts) == {"l2"} and torch.equal(total, relative_l2(p, y).mean())


def test_a_model_without_a_frame_pays_no_frame_terms() -> None:
    group, p, y, _, true, terminal = sample(torch.float64)
    _, parts = objective(group, p, y, torch.zeros(5, 0), true, terminal, Weights(0.1, 0.2, 0.3, 0.4))
    assert set(parts) == {"l2", "h1"}
    trivial = torch.zeros(5, 0)
    _, parts = objective(Trivial(1), p, y, trivial, trivial, trivial, Weights(0.1, 0.2, 0.3, 0.4))
    assert set(parts) == {"l2", "h1"}


def test_the_error_per_channel_is_used_when_asked_for() -> None:
    group = Galilean(2, "momentum")
    p, y = torch.randn(2, 4, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y[:, 0] *= 100
    xi = group.identity(4, dtype=torch.float64)
    pooled, _ = objective(group, p, y, xi, xi, xi, Weights())
    apart, _ = objective(group, p, y, xi, xi, xi, Weights(per_channel=True))
    assert torch.allclose(apart, relative_l2(p, y, per_channel=True).mean())
    assert not torch.allclose(apart, pooled)


def test_the_gradient_of_a_perfect_prediction_is_zero_and_finite(dtype: torch.dtype) -> None:
    group, _, y, _, true, terminal = sample(dtype)
    p, estimated = y.clone().requires_grad_(), true.clone().requires_grad_()
    total, _ = objective(group, p, y, estimated, true, terminal, Weights(0.1, 0.2, 0.3, 0.4))
    total.backward()
    assert total.item() == 0
    assert p.grad is not None and estimated.grad is not None
    assert float(p.grad.abs().max()) == 0 and float(estimated.grad.abs().max()) == 0


def test_the_gradients_of_the_objective_pass_gradcheck() -> None:
    group, p, y, estimated, true, terminal = sample(torch.float64)
    weights = Weights(0.1, 0.2, 0.3, 0.4)
    assert torch.autograd.gradcheck(
        lambda a, b: objective(group, a, y, b, true, terminal, weights)[0], (p.requires_grad_(), estimated.requires_grad_())
    )


def test_the_error_can_be_measured_on_the_scale_of_the_target_before_it_was_moved(dtype: torch.dtype) -> None:
    group, p, y, estimated, true, terminal = sample(dtype)
    unmoved = y / 3
    boosted, _ = objective(group, p, y, estimated, true, terminal, Weights(relative_to="moved"), unmoved)
    scaled, _ = objective(group, p, y, estimated, true, terminal, Weights(relative_to="unmoved"), unmoved)
    assert torch.allclose(boosted, relative_l2(p, y).mean())
    assert torch.allclose(scaled, 3 * boosted)
    alone, _ = objective(group, p, y, estimated, true, terminal, Weights(relative_to="unmoved"))
    assert torch.allclose(alone, boosted)  # nothing else is known to measure by
