"""A neuraloperator FNO, audited and wrapped as it comes; skipped where it is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from audited_models import flow_task, samples

import pacefno
from pacefno.auditing.motions import WHOLE

models = pytest.importorskip("neuralop.models", reason="pip install 'pacefno[peers]'")


def make(positions: str | None) -> torch.nn.Module:
    torch.manual_seed(0)
    size = {"n_modes": (8, 8), "hidden_channels": 8, "in_channels": 2, "out_channels": 2}
    net: torch.nn.Module = models.FNO(**size, n_layers=2, positional_embedding=positions)
    return net


def audited(net: torch.nn.Module) -> pacefno.Audit:
    task = flow_task()
    field, _ = samples(task, count=3)
    with torch.no_grad():
        target = net(10 * field) + 0.01 * field  # as if it had learned just this, at rest
    return pacefno.audit(net, task, 10 * field, target)


def test_its_coordinate_channels_are_found_and_without_them_it_follows_whole_cells() -> None:
    with_grid, without = audited(make("grid")), audited(make(None))
    assert "it knows where it is (positions)" in with_grid.verdict
    assert "It follows shifts by whole cells" in without.verdict
    assert max(row.equivariance for row in without.rows if row.family == WHOLE) < 1e-5
    for found in (with_grid, without):
        moved = [row for row in found.rows if row.family != WHOLE]
        assert max(row.wrapped_equivariance for row in moved) < 1e-4


def test_it_is_wrapped_saved_and_loaded(tmp_path: Path) -> None:
    task = flow_task()
    field, _ = samples(task, count=2)
    model = pacefno.wrap(make("grid"), task)
    pacefno.testing.assert_equivariant(model, task.group, field, tolerance=1e-4)
    pacefno.save(model, tmp_path)
    again = pacefno.load(tmp_path, operator=make("grid"))
    assert torch.allclose(again(field), model(field), atol=1e-6)
