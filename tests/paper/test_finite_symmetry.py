"""The finite symmetries that the symmetrised rows average over."""

from __future__ import annotations

import pytest
import torch

from pacefno.fields import Field
from pacefno.groups import POINT_GROUPS
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.presets import config_for
from pacefno.pde.initial import generator_for
from pacefno.registry import build

FIELDS = ["burgers1d", "burgers2d", "shallow_water", "navier_stokes", "navier_stokes_literal"]


@pytest.mark.parametrize("name", FIELDS)
def test_the_symmetries_of_a_row_keep_the_slice_up_to_half_periods(name: str) -> None:
    """What an operator without position channels cannot tell from the slice itself."""
    benchmark = benchmark_named(name)
    task, group = benchmark.task, POINT_GROUPS[benchmark.symmetry]
    law = benchmark.recipe.law
    grid = (48,) * task.dim
    draws = [law.draw(generator_for("slice", i), grid) for i in range(4)]
    type = task.input.at([0.0])
    moved = Field(torch.stack(draws).double(), type)
    field = task.group.inverse(moved, task.slice.coordinates(moved))
    still = task.slice.coordinates(field)
    for index in range(group.order):
        xi = torch.full((4, 1), float(index), dtype=torch.float64)
        found = task.slice.coordinates(group.act(field, xi))
        halves = found[:, : task.dim] * 2
        assert float((halves - halves.round()).abs().max()) < 1e-3 + 2 * float(still.abs().max())
        assert float(found[:, task.dim :].abs().max()) < 1e-3 + float(still.abs().max())


@pytest.mark.parametrize("name", FIELDS)
def test_a_symmetrised_row_is_equivariant_with_its_scales(name: str) -> None:
    benchmark = benchmark_named(name)
    config = config_for(benchmark, "fno-symmetrised", "smoke", 42)
    assert config.scaling == benchmark.symmetry == config.operator["group"]
    operator = build({"part": "operator", **config.operator})
    assert operator.group.which == benchmark.symmetry
    assert config_for(benchmark, "pace-symmetrised", "smoke", 42).operator == config.operator
