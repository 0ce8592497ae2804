"""LieLAC: energies are low on the training data, the search finds what they say, and no true frame is ever used."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from pacefno.cli import app
from pacefno.data import Samples, open_dataset
from pacefno.equations import problem_named
from pacefno.frames import AdamRefiner, GaussNewton
from pacefno.frames.refine import energy_of
from pacefno.grid import coarsen
from pacefno.studies.bench import Places
from pacefno.studies.report.collect import collect
from pacefno.studies.study.lielac import command
from pacefno.studies.study.lielac.energy import GaussianEnergy, LowModes, all_free, fit
from pacefno.studies.study.lielac.finetune import canonical_pairs, finetune_config
from pacefno.studies.study.lielac.frame import EnergyFrame, search, start_grid
from pacefno.studies.study.lielac.rows import ROWS, search_report
from pacefno.studies.study.theory.growth import periods_between
from pacefno.symmetry import GROUPS
from pacefno.training.load import load_run
from pacefno.training.presets import config_for

PROBLEM = "burgers1d_smooth"
NEWTON = GaussNewton(steps=20)


def states(name: str, count: int, split: str = "train", stride: int = 8) -> Tensor:
    """Canonical states of a problem, thinned; a thinned field has another mean, so it is centred again."""
    problem = problem_named(name)
    rows = torch.stack([problem.initial_state(0, split, i)[0] for i in range(count)])
    return problem.to_slice(coarsen(rows, stride))


@pytest.mark.parametrize(("name", "stride"), [("burgers1d_smooth", 8), ("burgers2d", 2), ("shallow_water", 2)])
@pytest.mark.parametrize("kind", ["gaussian", "neighbours"])
def test_the_energy_is_lower_where_the_training_inputs_are(kind: Any, name: str, stride: int) -> None:
    problem = problem_named(name)
    energy = fit(problem, kind, states(name, 60, stride=stride))
    held_out = energy.features.coarse(states(name, 8, "test", stride))
    zero = problem.group.identity(8, dtype=torch.float64)
    far = problem.group.sample(problem.ood_high, problem.ood_high, 8, torch.Generator().manual_seed(0))
    at_home, away = (energy_of(energy.residual(held_out, xi)) for xi in (zero, far))
    assert float(at_home.median()) < float(away.median())
    assert int((at_home < away).sum()) >= 7


@pytest.mark.parametrize("free", [False, True], ids=["measured", "searched"])
def test_the_search_finds_the_frame_without_being_told(free: bool) -> None:
    problem = problem_named(PROBLEM)
    energy = fit(problem, "gaussian", states(PROBLEM, 200), free=free)
    true = problem.group.sample(problem.ood_low, problem.ood_high, 8, torch.Generator().manual_seed(3))
    moved = problem.group.act(states(PROBLEM, 8, "test"), true)
    found = search(energy, problem.group, moved, NEWTON)
    assert float(periods_between(problem.group, found.xi, true).max()) < 0.01
    assert float((found.xi - true)[:, 1].abs().max()) < 1e-3
    assert found.evaluations > 8 and bool((found.energy_after <= found.energy_before).all())
    one_start = NEWTON(energy, energy.features.coarse(moved), torch.cat([torch.zeros(8, 1), true[:, 1:]], dim=1).double())
    assert bool((found.energy_after <= one_start.energy_after + 1e-6).all())  # restarts may only help


def test_the_frame_of_least_energy_moves_with_the_field() -> None:
    problem = problem_named(PROBLEM)
    frame = EnergyFrame(problem.group, fit(problem, "gaussian", states(PROBLEM, 100)))
    field = states(PROBLEM, 4, "test")
    xi = problem.group.sample(problem.ood_low, problem.ood_high, 4, torch.Generator().manual_seed(1))
    before, after = frame(field), frame(problem.group.act(field, xi))
    expected = problem.group.compose(xi, before.xi)
    assert float(problem.group.difference(after.xi, expected).abs().max()) < 1e-4
    assert bool((before.confidence > 0.2).all()) and bool((before.confidence <= 1).all())
    strange = frame(5 * field.roll(1, 0) - 4 * field.flip(-1))
    assert float(strange.confidence.max()) < float(before.confidence.min())


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_every_group_is_searched_from_at_least_eight_starts(name: str) -> None:
    group = GROUPS[name]()
    if group.spatial == 0:
        return
    starts = start_grid(group)
    assert len(starts) >= 8 and starts.shape[1] == group.spatial
    assert len({tuple(row) for row in starts.tolist()}) == len(starts)
    free = all_free(group)
    assert free.spatial == group.size and group.spatial == GROUPS[name]().spatial  # the group itself is left alone


@pytest.mark.parametrize("grid", [(32,), (33,), (32, 32)])
def test_low_modes_keep_each_mode_once_and_all_its_energy(grid: tuple[int, ...]) -> None:
    problem = problem_named("burgers1d_smooth" if len(grid) == 1 else "burgers2d")
    features = LowModes(problem)
    side = 2 * (8 if len(grid) == 1 else 3) + 1
    assert 1 + 2 * int(features.complex.sum()) == side ** len(grid)
    assert int(features.mean.sum()) == 1


def test_a_search_that_misses_is_told_from_an_energy_that_is_wrong() -> None:
    problem = problem_named(PROBLEM)
    energy = fit(problem, "gaussian", states(PROBLEM, 100))
    true = problem.group.sample(problem.ood_low, problem.ood_high, 6, torch.Generator().manual_seed(5))
    field = problem.group.act(states(PROBLEM, 6, "test"), true)
    samples = Samples(field, field, true)
    assert search_report(ROWS[0], problem, energy, samples)["search_missed"] == 0
    idle = replace(ROWS[0], refiner=AdamRefiner(steps=0))  # stays on the grid of starts
    assert search_report(idle, problem, energy, samples)["search_missed"] > 0.5


def test_the_gaussian_is_finite_where_the_data_do_not_vary() -> None:
    problem = problem_named(PROBLEM)
    energy = fit(problem, "gaussian", states(PROBLEM, 5))  # fewer samples than features, and a mean that is always zero
    assert isinstance(energy, GaussianEnergy) and bool(torch.isfinite(energy.whitening).all())


# --- fine-tuning and the table --------------------------------------------------------------------------------------


def test_fine_tuning_is_short_slow_and_on_the_full_grid() -> None:
    config = config_for("burgers2d", "fno", "standard", 1)
    tuned = finetune_config(config)
    assert tuned.schedule.epochs == round(0.2 * config.schedule.epochs)
    assert tuned.schedule.rate == pytest.approx(0.1 * config.schedule.rate) and tuned.schedule.coarse == 0
    assert tuned.operator == config.operator


def test_pulled_back_pairs_belong_together(smoke_places: Places) -> None:
    problem = problem_named(PROBLEM)
    samples = open_dataset(smoke_places.data / PROBLEM / "smoke-seed42").load("train")
    frame = EnergyFrame(problem.group, fit(problem, "gaussian", samples.input))
    pairs = canonical_pairs(frame, problem, samples)
    xi = frame(samples.input).xi
    assert torch.allclose(problem.group.act(pairs.input, xi), samples.input, atol=1e-5)
    back = problem.group.act(pairs.target, problem.group.transport(xi, problem.horizon))
    assert torch.allclose(back, samples.target, atol=1e-5)


@pytest.fixture
def words(smoke_places: Places, tmp_path: Path) -> list[str]:
    shutil.copytree(_fno(smoke_places), tmp_path / "runs" / PROBLEM / "fno-smoke-seed42")  # fine-tuning writes beside it
    places = ["--data", smoke_places.data, "--runs", tmp_path / "runs", "--results", tmp_path]
    return ["study", "lielac", PROBLEM, "--preset", "smoke", "--seeds", "42", *map(str, places)]


def test_the_rows_join_the_table_and_are_made_once(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "runs" / PROBLEM / "fno-smoke-seed42"
    frozen = load_run(own).model.state_dict()
    result = CliRunner().invoke(app, [*words, "--rows", "lielac,lielac-ft,lielac-oracle"])
    assert result.exit_code == 0, result.output
    rows = {row["model"]: row for row in json.loads((tmp_path / f"{PROBLEM}.json").read_text())["rows"]}
    assert rows["lielac"]["energy_evaluations"] > 8 and rows["lielac"]["search_seconds"] > 0
    assert rows["lielac"]["ood_error_canonical"] == pytest.approx(rows["lielac-oracle"]["ood_error_canonical"], rel=0.05)
    assert rows["lielac-ft"]["ood_error"] != rows["lielac"]["ood_error"] and rows["lielac-oracle"]["equivariance_error"] is None
    assert all(torch.equal(tensor, frozen[name]) for name, tensor in load_run(own).model.state_dict().items())
    assert collect([tmp_path])[PROBLEM].line("lielac").title == "LieLAC, Gaussian energy"  # type: ignore[union-attr]
    monkeypatch.setattr(command, "measure", None)
    assert CliRunner().invoke(app, [*words, "--rows", "lielac,lielac-ft"]).exit_code == 0


def _fno(places: Places) -> Path:
    return places.runs / PROBLEM / "fno-smoke-seed42"


def test_unknown_rows_are_named(words: list[str]) -> None:
    result = CliRunner().invoke(app, [*words, "--rows", "lielac-vae"])
    assert result.exit_code == 2 and "unknown 'lielac-vae'" in result.output
