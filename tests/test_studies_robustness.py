"""Robustness: noise has the size it says, missing points come back, a force breaks the symmetry and nothing else."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from pacefno.cli import app
from pacefno.data import open_dataset
from pacefno.equations import Equation, Problem, SolverError, problem_named, solve
from pacefno.grid import resample
from pacefno.metrics import relative_l2
from pacefno.studies.bench import Places
from pacefno.studies.report.figures.robustness import draw_robustness
from pacefno.studies.report.trained import few_samples
from pacefno.studies.study.robustness import command, forced
from pacefno.studies.study.robustness.command import pooled_rank, robustness_table, study_robustness
from pacefno.studies.study.robustness.corrupt import add_noise, band_of, conjugate_gradients, fill, known_points
from pacefno.studies.study.robustness.forced import Forced, forced_samples
from pacefno.studies.study.robustness.measure import LEVELS, Corruption, rank_correlation
from pacefno.studies.study.sources import Scope, find_sources

PROBLEM = "burgers1d_smooth"


def smooth(grid: tuple[int, ...], dtype: torch.dtype, channels: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    small = torch.randn(3, channels, *[7] * len(grid), dtype=torch.float64, generator=generator)
    return (2 + resample(small, grid)).to(dtype)


# --- noise ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(4096,), (64, 65)])
def test_noise_has_the_size_it_says_in_every_channel(grid: tuple[int, ...], dtype: torch.dtype) -> None:
    field = smooth(grid, dtype) * torch.tensor([1.0, 10.0], dtype=dtype).reshape(1, 2, *[1] * len(grid))
    noise = (add_noise(field, 0.1) - field).flatten(2)
    deviation = (field.flatten(2) - field.flatten(2).mean(dim=2, keepdim=True)).square().mean(dim=2).sqrt()
    assert torch.allclose(noise.square().mean(dim=2).sqrt(), 0.1 * deviation, rtol=0.05)
    assert torch.equal(add_noise(field, 0.1), add_noise(field, 0.1)) and torch.equal(add_noise(field, 0.0), field)
    assert torch.equal(add_noise(field[:1], 0.1), add_noise(field, 0.1)[:1])  # a sample's noise is its own


# --- missing points -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.3, 0.6])
@pytest.mark.parametrize("grid", [(96,), (97,), (24, 30)])
def test_a_smooth_field_is_recovered_from_some_of_its_points(grid: tuple[int, ...], share: float, dtype: torch.dtype) -> None:
    field = smooth(grid, dtype)
    known = known_points(field, share)
    assert abs(float(known.double().mean()) - (1 - share)) < 0.1
    spoiled = torch.where(known, field, torch.full_like(field, 1e6))  # what is missing must not matter
    filled = fill(spoiled, known, iterations=400)
    assert torch.equal(torch.where(known, filled, 0.0), torch.where(known, field, 0.0))
    assert float(relative_l2(filled, field).max()) < 2e-3
    mean = torch.where(known, field, field.mean())
    assert float(relative_l2(mean, field).min()) > 0.05  # filling with the mean does not do it


def test_the_band_is_what_the_known_points_can_determine() -> None:
    known = torch.ones(1, 1, 100, dtype=torch.bool)
    assert band_of(known, 1) == 24
    assert (2 * band_of(known[:, :, :40].repeat(1, 1, 1), 1) + 1) <= 20
    assert band_of(torch.zeros(1, 1, 16, 16, dtype=torch.bool), 2) == 1


def test_conjugate_gradients_solve_and_then_rest() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(12, 12, dtype=torch.float64, generator=generator)
    matrix = root @ root.T + torch.eye(12, dtype=torch.float64)
    right = torch.randn(2, 1, 12, dtype=torch.float64, generator=generator)
    right[1] = 0

    def apply(u: Tensor) -> Tensor:
        return u @ matrix

    found = conjugate_gradients(apply, right, 200)  # far more than needed: what is solved must stay so
    assert torch.allclose(apply(found), right, atol=1e-6) and torch.equal(found[1], torch.zeros_like(found[1]))


# --- broken symmetry ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["burgers1d_smooth", "shallow_water", "navier_stokes"])
def test_a_force_alone_adds_itself_over_time(name: str) -> None:
    """From rest, for a short time, the last channel grows by strength times time times the wave."""
    equation = problem_named(name).equation
    grid = [16] * equation.dim
    state = torch.zeros(1, len(equation.channels), *grid, dtype=torch.float64)
    state[:, 0] = 1.0 if len(equation.channels) > 1 else 0.0  # water has a height
    moved = solve(Forced(equation, 0.5), state, [0.01], 0.01)[:, 0] - state
    x = torch.arange(16, dtype=torch.float64).reshape(16, *[1] * (equation.dim - 1)) / 16
    expected = 0.01 * 0.5 * math.sqrt(2) * torch.sin(2 * math.pi * x).expand(*grid)
    assert torch.allclose(moved[0, -1], expected, atol=2e-4 * 0.5) and float(moved[0, -1].abs().max()) > 6e-3


def forced_defect(equation: Equation, field: Tensor) -> float:
    """How far solving a shifted state is from shifting the solution, relative."""
    shifted = solve(equation, field.roll(8, -1), [0.2], 0.002)[:, 0]
    return float(relative_l2(shifted, solve(equation, field, [0.2], 0.002)[:, 0].roll(8, -1)).max())


def test_the_force_breaks_the_symmetry_and_without_it_nothing_does() -> None:
    equation = problem_named(PROBLEM).equation
    field = smooth((64,), torch.float64, 1)
    assert forced_defect(Forced(equation, 0.0), field) < 1e-10
    assert forced_defect(Forced(equation, 1.0), field) > 1e-2


def test_without_force_the_stored_targets_come_back(smoke_places: Places) -> None:
    problem = problem_named(PROBLEM)
    dataset = open_dataset(smoke_places.data / PROBLEM / "smoke-seed42")
    moved = few_samples(dataset, "test_ood", 2)
    same = forced_samples(problem, dataset, moved, 0.0)
    assert float(relative_l2(same.input, moved.input).max()) < 1e-6
    assert float(relative_l2(same.target, moved.target).max()) < 1e-4
    assert float(relative_l2(forced_samples(problem, dataset, moved, 0.3).target, moved.target).min()) > 1e-2


def test_a_step_that_is_too_long_is_halved() -> None:
    tried: list[float] = []
    problem = problem_named(PROBLEM)

    class Fussy(Problem):
        def solve(self, initial: Tensor, on_step: Any = None) -> tuple[Tensor, Tensor]:
            tried.append(self.step)
            if self.step > 0.0006:
                raise SolverError("too long")
            return initial, initial

    fussy = Fussy(**{name: getattr(problem, name) for name in problem.__dataclass_fields__})
    forced._solve(fussy, torch.zeros(1, 1, 8))
    assert tried == [0.002, 0.001, 0.0005]
    with pytest.raises(SolverError):
        forced._solve(replace(fussy, step=1.0), torch.zeros(1, 1, 8))


# --- confidence -----------------------------------------------------------------------------------------------------


def test_rank_correlation_sees_order_only() -> None:
    a = torch.tensor([0.1, 0.5, 0.2, 0.9])
    assert rank_correlation(a, a.exp()) == pytest.approx(1) and rank_correlation(a, -(a**3)) == pytest.approx(-1)
    assert rank_correlation(a, torch.ones(4)) is None
    tied = rank_correlation(torch.tensor([1.0, 1.0, 2.0]), torch.tensor([1.0, 2.0, 3.0]))
    assert tied == pytest.approx(math.sqrt(3) / 2)


# --- the study ------------------------------------------------------------------------------------------------------


def test_the_study_measures_each_cell_once_and_draws_them(
    smoke_places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = Scope(problem_named(PROBLEM), "smoke", smoke_places.data, smoke_places.runs, tmp_path)
    monkeypatch.setitem(LEVELS, "noise", (0.0, 1.0))
    monkeypatch.setitem(LEVELS, "missing", (0.0, 0.9))
    sources = find_sources(scope, ["fno", "pace", "pace-oracle"], [42])
    cells = study_robustness(scope, sources, ["noise", "missing"], 6).read()
    assert len(cells) == 3 * 4
    by_key = {(cell["model"], cell["kind"], cell["level"]): cell for cell in cells}
    clean, noisy = by_key["pace", "noise", 0.0], by_key["pace", "noise", 1.0]
    assert noisy["frame_error"] > 2 * clean["frame_error"] and noisy["confidence"] < clean["confidence"]
    assert clean["error"] == pytest.approx(by_key["pace", "missing", 0.0]["error"])
    assert by_key["fno", "noise", 0.0]["confidence"] is None and by_key["pace-oracle", "noise", 0.0]["confidence"] is None
    monkeypatch.setattr(command, "measure", None)  # a second time nothing is left to measure
    study_robustness(scope, sources, ["noise", "missing"], 6)
    table = robustness_table("noise", [cell for cell in cells if cell["kind"] == "noise"])
    assert table.row_count == 3 and pooled_rank([by_key["fno", "noise", 0.0]]) == ""
    assert len(draw_robustness(scope.problem, cells).figure.axes) == 4


def test_the_command_runs_and_names_unknown_kinds(smoke_places: Places, tmp_path: Path) -> None:
    words = ["study", "robustness", PROBLEM, "--preset", "smoke", "--models", "pace", "--seeds", "42", "--samples", "2"]
    places = ["--data", smoke_places.data, "--runs", smoke_places.runs, "--results", tmp_path, "--figures", tmp_path / "f"]
    result = CliRunner().invoke(app, [*words, "--kinds", "missing", *map(str, places)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "f" / f"{PROBLEM}-robustness.png").exists()
    result = CliRunner().invoke(app, [*words, "--kinds", "rain", *map(str, places)])
    assert result.exit_code == 2 and "unknown 'rain'" in result.output


def test_every_kind_has_a_clean_level_to_compare_with() -> None:
    assert all(levels[0] == 0 and list(levels) == sorted(levels) for levels in LEVELS.values())
    assert Corruption("noise", 0.1) == Corruption("noise", 0.1)
