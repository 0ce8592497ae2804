"""Robustness: noise has the size it says, missing points come back, a force breaks the symmetry."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pacefno.data.recipe import PairRecipe
from pacefno.errors import UsageError
from pacefno.grid import resample
from pacefno.metrics import relative_l2
from pacefno.paper.bench import Places
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.studies import robustness
from pacefno.paper.studies.base import make_scope, run_study
from pacefno.paper.studies.robustness import (
    LEVELS,
    Forced,
    add_noise,
    band_of,
    conjugate_gradients,
    fill,
    forced_pairs,
    known_points,
    pooled_rank,
    rank_correlation,
    solve_carefully,
)
from pacefno.pde import Equation, SolverError, solve

BENCHMARK = "burgers1d_smooth"


def smooth(grid: tuple[int, ...], dtype: torch.dtype, channels: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    shape = (3, channels, *[7] * len(grid))
    small = torch.randn(shape, dtype=torch.float64, generator=generator)
    return (2 + resample(small, grid)).to(dtype)


# --- noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(4096,), (64, 65)])
def test_noise_has_the_size_it_says_in_every_channel(
    grid: tuple[int, ...], dtype: torch.dtype
) -> None:
    scale = torch.tensor([1.0, 10.0], dtype=dtype).reshape(1, 2, *[1] * len(grid))
    field = smooth(grid, dtype) * scale
    noise = (add_noise(field, 0.1) - field).flatten(2)
    flat = field.flatten(2)
    deviation = (flat - flat.mean(dim=2, keepdim=True)).square().mean(dim=2).sqrt()
    assert torch.allclose(noise.square().mean(dim=2).sqrt(), 0.1 * deviation, rtol=0.05)
    assert torch.equal(add_noise(field, 0.1), add_noise(field, 0.1))
    assert torch.equal(add_noise(field, 0.0), field)
    # A sample's noise is its own.
    assert torch.allclose(add_noise(field[:1], 0.1), add_noise(field, 0.1)[:1], rtol=1e-6)


# --- missing points -------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.3, 0.6])
@pytest.mark.parametrize("grid", [(96,), (97,), (24, 30)])
def test_a_smooth_field_is_recovered_from_some_of_its_points(
    grid: tuple[int, ...], share: float, dtype: torch.dtype
) -> None:
    field = smooth(grid, dtype)
    known = known_points(field, share)
    assert abs(float(known.double().mean()) - (1 - share)) < 0.1
    spoiled = torch.where(known, field, torch.full_like(field, 1e6))  # it must not matter
    filled = fill(spoiled, known, iterations=400)
    assert torch.equal(torch.where(known, filled, 0.0), torch.where(known, field, 0.0))
    assert float(relative_l2(filled, field).max()) < 2e-3
    mean = torch.where(known, field, field.mean())
    assert float(relative_l2(mean, field).min()) > 0.05  # filling with the mean does not do it


def test_the_band_is_what_the_known_points_can_determine() -> None:
    known = torch.ones(1, 1, 100, dtype=torch.bool)
    assert band_of(known) == 24
    assert (2 * band_of(known[:, :, :40]) + 1) <= 20
    assert band_of(torch.zeros(1, 1, 16, 16, dtype=torch.bool)) == 1


def test_conjugate_gradients_solve_and_then_rest() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(12, 12, dtype=torch.float64, generator=generator)
    matrix = root @ root.T + torch.eye(12, dtype=torch.float64)
    right = torch.randn(2, 1, 12, dtype=torch.float64, generator=generator)
    right[1] = 0

    def apply(u: Tensor) -> Tensor:
        return u @ matrix

    found = conjugate_gradients(apply, right, 200)  # far more than needed: solved must stay so
    assert torch.allclose(apply(found), right, atol=1e-6)
    assert torch.equal(found[1], torch.zeros_like(found[1]))


# --- broken symmetry ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["burgers1d_smooth", "shallow_water", "navier_stokes"])
def test_a_force_alone_adds_itself_over_time(name: str) -> None:
    """From rest, for a short time, the last channel grows by strength times time times the wave."""
    equation = benchmark_named(name).equation
    grid, channels = [16] * equation.dim, equation.field_type().size
    state = torch.zeros(1, channels, *grid, dtype=torch.float64)
    state[:, 0] = 1.0 if channels > 1 else 0.0  # water has a height
    moved = solve(Forced(equation, 0.5), state, [0.01], 0.01)[:, 0] - state
    x = torch.arange(16, dtype=torch.float64).reshape(16, *[1] * (equation.dim - 1)) / 16
    expected = 0.01 * 0.5 * math.sqrt(2) * torch.sin(2 * math.pi * x).expand(*grid)
    assert torch.allclose(moved[0, -1], expected, atol=2e-4 * 0.5)
    assert float(moved[0, -1].abs().max()) > 6e-3


def forced_defect(equation: Equation, field: Tensor) -> float:
    """How far solving a shifted state is from shifting the solution, relative."""
    shifted = solve(equation, field.roll(8, -1), [0.2], 0.002)[:, 0]
    unmoved = solve(equation, field, [0.2], 0.002)[:, 0]
    return float(relative_l2(shifted, unmoved.roll(8, -1)).max())


def test_the_force_breaks_the_symmetry_and_without_it_nothing_does() -> None:
    equation = benchmark_named(BENCHMARK).equation
    field = smooth((64,), torch.float64, 1)
    assert forced_defect(Forced(equation, 0.0), field) < 1e-10
    assert forced_defect(Forced(equation, 1.0), field) > 1e-2


def test_without_force_the_stored_targets_come_back(smoke_places: Places) -> None:
    scope = make_scope(BENCHMARK, "smoke", smoke_places, print)
    moved = scope.pairs("test_ood", 2)
    same = forced_pairs(scope, moved, 0.0)
    assert float(relative_l2(same.input, moved.input).max()) < 1e-6
    assert float(relative_l2(same.target, moved.target).max()) < 1e-4
    forced = forced_pairs(scope, moved, 0.3)
    assert float(relative_l2(forced.target, moved.target).min()) > 1e-2


def test_a_step_that_is_too_long_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []
    recipe = benchmark_named(BENCHMARK).recipe
    assert isinstance(recipe, PairRecipe)

    def solve_short(self: PairRecipe, initial: Tensor) -> tuple[Tensor, Tensor]:
        tried.append(self.step)
        if self.step > 0.0006:
            raise SolverError("too long")
        return initial, initial

    monkeypatch.setattr(PairRecipe, "solve", solve_short)
    solve_carefully(recipe, torch.zeros(1, 1, 8))
    assert tried == [0.002, 0.001, 0.0005]
    with pytest.raises(SolverError):
        solve_carefully(replace(recipe, step=1.0), torch.zeros(1, 1, 8))


# --- confidence -----------------------------------------------------------------------------------


def test_rank_correlation_sees_order_only() -> None:
    a = torch.tensor([0.1, 0.5, 0.2, 0.9])
    assert rank_correlation(a, a.exp()) == pytest.approx(1)
    assert rank_correlation(a, -(a**3)) == pytest.approx(-1)
    assert rank_correlation(a, torch.ones(4)) is None
    tied = rank_correlation(torch.tensor([1.0, 1.0, 2.0]), torch.tensor([1.0, 2.0, 3.0]))
    assert tied == pytest.approx(math.sqrt(3) / 2)


# --- the study ------------------------------------------------------------------------------------


def run(places: Places, models: list[str], kinds: list[str], samples: int = 6) -> Any:
    how: dict[str, Any] = {"benchmark": BENCHMARK, "preset": "smoke", "seeds": [42]}
    how |= {"models": models, "kinds": kinds, "samples": samples}
    return run_study("robustness", places, print, **how)


def test_the_study_measures_each_cell_once_and_draws_them(
    smoke_places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = replace(smoke_places, results=tmp_path)
    monkeypatch.setitem(LEVELS, "noise", (0.0, 1.0))
    monkeypatch.setitem(LEVELS, "missing", (0.0, 0.9))
    models = ["fno", "pace", "pace-oracle"]
    outcome = run(places, models, ["noise", "missing"])
    cells = json.loads(outcome.path.read_text())["cells"]
    assert len(cells) == 3 * 4
    by_key = {(cell["model"], cell["kind"], cell["level"]): cell for cell in cells}
    clean, noisy = by_key["pace", "noise", 0.0], by_key["pace", "noise", 1.0]
    assert noisy["frame_error"] > 2 * clean["frame_error"]
    assert noisy["confidence"] < clean["confidence"]
    assert clean["error"] == pytest.approx(by_key["pace", "missing", 0.0]["error"])
    assert by_key["fno", "noise", 0.0]["confidence"] is None
    assert by_key["pace-oracle", "noise", 0.0]["confidence"] is None
    monkeypatch.setattr(robustness, "measure", pytest.fail)  # nothing is left to measure
    run(places, models, ["noise", "missing"])
    assert [len(table.rows) for table in outcome.tables] == [3, 3]
    assert pooled_rank([by_key["fno", "noise", 0.0]]) == ""
    assert len(outcome.drawings[0].figure.axes) == 4


def test_forced_samples_are_a_kind_of_trouble_and_unknown_kinds_are_named(
    smoke_places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = replace(smoke_places, results=tmp_path)
    monkeypatch.setitem(LEVELS, "forcing", (0.0, 0.3))
    outcome = run(places, ["pace"], ["forcing"], samples=2)
    assert outcome.tables[0].title == "OOD error, canonical frame, against forcing"
    clean, forced = (cell["errors"] for cell in json.loads(outcome.path.read_text())["cells"])
    print(clean, forced)
    assert all(abs(a - b) > 1e-5 for a, b in zip(clean, forced, strict=True))
    with pytest.raises(UsageError, match="unknown kind of disturbance 'rain'"):
        run(places, ["pace"], ["rain"])


def test_every_kind_has_a_clean_level_to_compare_with() -> None:
    assert all(levels[0] == 0 and list(levels) == sorted(levels) for levels in LEVELS.values())
