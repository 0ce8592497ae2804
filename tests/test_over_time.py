"""Operators from many frames to many."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pacefno.equations import problem_named
from pacefno.operators import FNO, Rollout, SpaceTimeFNO
from pacefno.training.config import with_overrides
from pacefno.training.models import build_model, model_named
from pacefno.training.presets import config_for


class NextNumber(nn.Module):
    """Predicts that every frame is one more than the last one of the window."""

    def forward(self, window: Tensor) -> Tensor:
        return window[:, -1:] + torch.arange(1, 4, dtype=window.dtype).reshape(1, 3, 1, 1)


def test_a_rollout_goes_on_from_its_own_frames(dtype: torch.dtype) -> None:
    window = torch.arange(4, dtype=dtype).reshape(1, 4, 1, 1).expand(2, 4, 3, 5)
    found = Rollout(NextNumber(), 8)(window)
    assert found.shape == (2, 8, 3, 5)
    assert torch.equal(found[1, :, 2, 3], torch.arange(4, 12, dtype=dtype))


def test_a_rollout_sees_a_window_of_constant_length() -> None:
    seen = []

    class Recording(nn.Module):
        def forward(self, window: Tensor) -> Tensor:
            seen.append(window.shape[1])
            return window[:, -2:]

    Rollout(Recording(), 7)(torch.zeros(1, 5, 4, 4))
    assert seen == [5, 5, 5, 5]


@pytest.mark.parametrize("grid", [(16, 16), (17, 20)])
def test_a_space_time_network_gives_every_frame_its_own_time(grid: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    network = SpaceTimeFNO(3, 6, width=4, modes=3, time_modes=4, layers=2).to(dtype)
    found = network(torch.ones(2, 3, *grid, dtype=dtype))
    assert found.shape == (2, 6, *grid)
    assert float(found.std(dim=1).min().detach()) > 1e-6  # a constant input, yet the frames differ: they know their time


def test_a_space_time_network_without_coordinates_commutes_with_shifts_by_cells(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    network = SpaceTimeFNO(3, 6, width=4, modes=3, time_modes=4, layers=2).to(dtype)
    field = torch.randn(2, 3, 16, 16, dtype=dtype)
    moved_first, moved_last = network(field.roll((3, -5), (2, 3))), network(field).roll((3, -5), (2, 3))
    assert torch.allclose(moved_first, moved_last, atol=1e-5 if dtype == torch.float32 else 1e-12)
    assert not torch.allclose(moved_first, network(field), atol=1e-3)


@pytest.mark.parametrize("frames", ["channels", "rollout", "space-time"])
@pytest.mark.parametrize("model", ["fno", "fno-nogrid", "pace"])
def test_every_way_of_making_frames_can_be_trained(frames: str, model: str) -> None:
    problem = problem_named("navier_stokes")
    config = with_overrides(config_for("navier_stokes", model, "smoke", 42), [f"operator.frames={frames}"])
    built = build_model(problem, model_named(model), config.operator, None, 0)
    field = problem.initial_state(0, "train", 0)[0][None, :, ::4, ::4].float().repeat(2, 10, 1, 1)
    prediction = built(field)
    assert prediction.shape == (2, 20, 32, 32)
    prediction.square().mean().backward()
    grads = [p.grad for p in built.operator.parameters()]
    assert all(g is not None and bool(torch.isfinite(g).all()) for g in grads)


def test_the_paper_preset_uses_a_space_time_network() -> None:
    config = config_for("navier_stokes", "fno", "paper", 42)
    built = build_model(problem_named("navier_stokes"), model_named("fno"), config.operator, None, 0)
    assert any(isinstance(part, SpaceTimeFNO) for part in built.modules())
    assert next(part for part in built.modules() if isinstance(part, FNO)).dim == 3
