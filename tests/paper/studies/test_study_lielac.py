"""LieLAC: energies are low on the training data, and the search never sees a true frame."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from group_examples import EXAMPLES
from pacefno.data.recipe import PairRecipe
from pacefno.data.samples import Pairs
from pacefno.errors import UsageError
from pacefno.fields import Field
from pacefno.frames import AdamRefiner
from pacefno.frames.refine import energy_of
from pacefno.grid import coarsen
from pacefno.metrics import frame_distance
from pacefno.paper.bench import Places
from pacefno.paper.benchmarks import benchmark_named
from pacefno.paper.presets import config_for
from pacefno.paper.studies import lielac
from pacefno.paper.studies.base import make_scope, run_study
from pacefno.paper.studies.lielac import (
    NEWTON,
    CanonicalSource,
    EnergyFrame,
    GaussianEnergy,
    InputEnergy,
    LowModes,
    finetune_config,
    fit,
    search,
    search_report,
    start_grid,
)
from pacefno.train.evaluate import load_run

BENCHMARK = benchmark_named("burgers1d_smooth")
TASK = BENCHMARK.task


def states(name: str, count: int, part: str = "train", stride: int = 8) -> Tensor:
    """Canonical states of a benchmark, thinned; that changes their mean, so they are centred."""
    benchmark = benchmark_named(name)
    recipe = benchmark.recipe
    assert isinstance(recipe, PairRecipe)
    rows = torch.stack([recipe.initial_state(0, part, i)[0] for i in range(count)])
    return recipe.to_slice(Field(coarsen(rows, stride), benchmark.task.input)).values


def moved(fields: Tensor, seed: int) -> tuple[Field, Tensor]:
    """Fields moved beyond the training range, and by what."""
    xi = TASK.group.sample(*BENCHMARK.ood, len(fields), torch.Generator().manual_seed(seed))
    return TASK.group.act(Field(fields, TASK.input), xi), xi


@pytest.mark.parametrize(
    ("name", "stride"), [("burgers1d_smooth", 8), ("burgers2d", 2), ("shallow_water", 2)]
)
@pytest.mark.parametrize("kind", ["gaussian", "neighbours"])
def test_the_energy_is_lower_where_the_training_inputs_are(
    kind: str, name: str, stride: int
) -> None:
    benchmark = benchmark_named(name)
    task, high = benchmark.task, benchmark.ood[1]
    energy = fit(task, kind, states(name, 60, stride=stride))
    held_out = energy.features.coarse(Field(states(name, 8, "test", stride), task.input))
    far = task.group.sample(high, high, 8, torch.Generator().manual_seed(0))
    at_home, away = (
        energy_of(energy.residual(held_out, xi)) for xi in (task.group.identity(8), far)
    )
    assert float(at_home.median()) < float(away.median())
    assert int((at_home < away).sum()) >= 7


@pytest.mark.parametrize("free", [False, True], ids=["measured", "searched"])
def test_the_search_finds_the_frame_without_being_told(free: bool) -> None:
    energy = fit(TASK, "gaussian", states(BENCHMARK.name, 200), free=free)
    field, true = moved(states(BENCHMARK.name, 8, "test"), 3)
    found = search(energy, TASK.group, field, NEWTON)
    assert float(frame_distance(TASK.group, found.xi, true).max()) < 0.01
    assert float((found.xi - true)[:, 1].abs().max()) < 1e-3
    assert found.evaluations > 8 and bool((found.energy_after <= found.energy_before).all())
    start = torch.cat([torch.zeros(8, 1), true[:, 1:]], dim=1)
    one_start = NEWTON(energy, energy.features.coarse(field), start)
    # Restarts may only help.
    assert bool((found.energy_after <= one_start.energy_after + 1e-6).all())


def test_the_frame_of_least_energy_moves_with_the_field() -> None:
    energy = fit(TASK, "gaussian", states(BENCHMARK.name, 100))
    frame = EnergyFrame(TASK.group, energy)
    field = Field(states(BENCHMARK.name, 4, "test"), TASK.input)
    after_motion, xi = moved(field.values, 1)
    before, after = frame(field), frame(after_motion)
    expected = TASK.group.compose(xi, before.xi)
    assert float(TASK.group.difference(after.xi, expected).abs().max()) < 1e-4
    assert bool((before.confidence > 0.2).all()) and bool((before.confidence <= 1).all())
    strange = field.with_values(5 * field.values.roll(1, 0) - 4 * field.values.flip(-1))
    assert float(frame(strange).confidence.max()) < float(before.confidence.min())


@pytest.mark.parametrize("name", [name for name, one in EXAMPLES.items() if one.group.spatial])
def test_every_group_is_searched_from_at_least_eight_starts(name: str) -> None:
    group = EXAMPLES[name].group
    starts, spatial = start_grid(group), group.spatial
    assert len(starts) >= 8 and starts.shape[1] == spatial
    assert len({tuple(row) for row in starts.tolist()}) == len(starts)

    class Flat(InputEnergy):
        def deviation(self, features: Tensor) -> Tensor:
            return features

    features = LowModes(TASK.input, [32])
    assert Flat(group, features, free=True).group.spatial == group.size
    assert group.spatial == spatial  # the group itself is left alone


@pytest.mark.parametrize("grid", [(32,), (33,), (32, 32)])
def test_low_modes_keep_each_mode_once(grid: tuple[int, ...]) -> None:
    benchmark = BENCHMARK if len(grid) == 1 else benchmark_named("burgers2d")
    features = LowModes(benchmark.task.input, grid)
    side = 2 * (8 if len(grid) == 1 else 3) + 1
    assert 1 + 2 * int(features.complex.sum()) == side ** len(grid)
    assert int(features.mean.sum()) == 1


def test_a_search_that_misses_is_told_from_an_energy_that_is_wrong() -> None:
    energy = fit(TASK, "gaussian", states(BENCHMARK.name, 100))
    field, true = moved(states(BENCHMARK.name, 6, "test"), 5)
    pairs = Pairs(field.values, field.values, true)
    assert search_report(TASK, energy, NEWTON, pairs)["search_missed"] == 0
    idle = AdamRefiner(steps=0)  # stays on the grid of starts
    assert search_report(TASK, energy, idle, pairs)["search_missed"] > 0.5


def test_the_gaussian_is_finite_where_the_data_do_not_vary() -> None:
    # Fewer samples than features, and a mean that is always zero.
    energy = fit(TASK, "gaussian", states(BENCHMARK.name, 5))
    assert isinstance(energy, GaussianEnergy) and bool(torch.isfinite(energy.whitening).all())


# --- fine-tuning and the table --------------------------------------------------------------------


def test_fine_tuning_is_short_slow_and_on_the_full_grid() -> None:
    config = config_for(benchmark_named("burgers2d"), "fno", "standard", 1)
    tuned = finetune_config(config)
    assert tuned.schedule.epochs == round(0.2 * config.schedule.epochs)
    assert tuned.schedule.rate == pytest.approx(0.1 * config.schedule.rate)
    assert tuned.schedule.coarse == 0 and tuned.operator == config.operator


def test_pulled_back_pairs_belong_together(smoke_places: Places) -> None:
    scope = make_scope(BENCHMARK.name, "smoke", smoke_places, print)
    pairs = scope.pairs("train", grid="id")
    frame = EnergyFrame(TASK.group, fit(TASK, "gaussian", pairs.input))
    back = CanonicalSource(scope.dataset, frame, TASK).load("train")
    xi = frame(Field(pairs.input, TASK.input)).xi
    again = TASK.group.act(Field(back.input, TASK.input), xi).values
    assert torch.allclose(again, pairs.input, atol=1e-5)
    again = TASK.group.act(Field(back.target, TASK.output), xi).values
    assert torch.allclose(again, pairs.target, atol=1e-5)


@pytest.fixture
def places(smoke_places: Places, tmp_path: Path) -> Places:
    """Runs of their own: fine-tuning writes beside the plain operator."""
    name = f"{BENCHMARK.name}/fno-smoke-seed42"
    shutil.copytree(smoke_places.runs / name, tmp_path / "runs" / name)
    return replace(smoke_places, runs=tmp_path / "runs", results=tmp_path)


def run(places: Places, *rows: str) -> Any:
    how: dict[str, Any] = {"benchmark": BENCHMARK.name, "preset": "smoke", "seeds": [42]}
    return run_study("lielac", places, print, rows=rows, **how)


def test_the_rows_join_the_table_and_are_made_once(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = places.runs / BENCHMARK.name / "fno-smoke-seed42"
    frozen = load_run(own).model.state_dict()
    outcome = run(places, "lielac", "lielac-ft", "lielac-oracle")
    rows = {row["model"]: row for row in json.loads(outcome.path.read_text())["rows"]}
    assert rows["lielac"]["energy_evaluations"] > 8 and rows["lielac"]["search_seconds"] > 0
    error = rows["lielac-oracle"]["ood_error_canonical"]
    assert rows["lielac"]["ood_error_canonical"] == pytest.approx(error, rel=0.05)
    assert rows["lielac-ft"]["ood_error"] != rows["lielac"]["ood_error"]
    assert rows["lielac-oracle"]["equivariance_error"] is None
    after = load_run(own).model.state_dict()
    assert all(torch.equal(tensor, frozen[name]) for name, tensor in after.items())
    tuned = load_run(places.runs / BENCHMARK.name / "lielac-ft-smoke-seed42").model.state_dict()
    for name, tensor in frozen.items():  # fine-tuning begins at the weights of the operator
        assert float((tuned[name] - tensor).norm()) <= 0.2 * float(tensor.norm())
    assert any(not torch.equal(tuned[name], tensor) for name, tensor in frozen.items())
    alone = run(replace(places, results=places.results / "alone"), "lielac-oracle")
    [oracle] = json.loads(alone.path.read_text())["rows"]  # whether or not another row was tuned
    assert oracle["ood_error"] == pytest.approx(rows["lielac-oracle"]["ood_error"], rel=1e-5)
    assert rows["lielac"]["title"] == "LieLAC, Gaussian energy"
    assert rows["lielac"]["command"].startswith("pacefno study lielac burgers1d_smooth --preset")
    assert [row[0] for row in outcome.tables[0].rows] == [row["title"] for row in rows.values()]
    monkeypatch.setattr(lielac, "score_row", pytest.fail)
    assert run(places, "lielac", "lielac-ft").tables == outcome.tables


def test_unknown_rows_are_named(places: Places) -> None:
    with pytest.raises(UsageError, match="unknown row 'lielac-vae'"):
        run(places, "lielac-vae")
