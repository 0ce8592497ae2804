"""The values of samples: where they lie, how they were moved, and on what they depend."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_recipes import (
    BURGERS,
    KDV,
    PAIR_RECIPES,
    TINY,
    VORTICES,
    WATER,
    draw_wave,
    opened_tiny,
    task_of,
)
from torch import Tensor

from pacefno.data import PairDataset, PairRecipe, Pairs, Sizes, generate, open_dataset
from pacefno.data.recipe import PAIR_SIZES, PARTS, TRAJECTORY_SIZES, name_differences
from pacefno.data.samples import Trajectories, channel_statistics
from pacefno.data.show import element_errors
from pacefno.fields import Box, Field
from pacefno.grid import FieldError, coarsen, to_spectrum
from pacefno.pde import Burgers, Law, SolverError

each_pair_recipe = pytest.mark.parametrize("name", list(PAIR_RECIPES))


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, PairDataset]:
    """One finished dataset per kind of group."""
    root, found = tmp_path_factory.mktemp("kept"), {}
    for name, recipe in PAIR_RECIPES.items():
        dataset = opened_tiny(recipe, generate(recipe, "tiny", root=root, workers=1))
        assert isinstance(dataset, PairDataset)
        found[name] = dataset
    return found


def relative(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm())


def loaded(recipe: PairRecipe, root: Path, **options: bool) -> PairDataset:
    folder = generate(recipe, "tiny", root=root, workers=1, **options)
    dataset = open_dataset(recipe, folder, preset="tiny", seed=42, **options)
    assert isinstance(dataset, PairDataset)
    return dataset


# --- where samples lie ----------------------------------------------------------------------------


@each_pair_recipe
def test_test_samples_lie_on_the_slice_and_moved_ones_where_their_elements_say(
    name: str, datasets: Mapping[str, PairDataset]
) -> None:
    recipe, dataset = PAIR_RECIPES[name], datasets[name]
    assert float(element_errors(recipe, dataset.load("test_id", "ood")).max()) < 1e-6
    assert float(element_errors(recipe, dataset.load("test_ood", "ood")).max()) < 1e-6
    others = replace(dataset.load("test_ood", "ood"), xi=dataset.load("test_ood").elements.flip(0))
    assert float(element_errors(recipe, others).max()) > 0.05  # elements of others do not fit


def twin_error(recipe: PairRecipe, plain: Pairs, moved: Pairs, later: bool = True) -> float:
    """How far moved samples are from what their elements make of the plain ones, relative."""
    task, xi = recipe.task, moved.elements
    output = task.output if later else task.output.at([0.0] * task.output.snapshots)
    inputs = task.group.act(Field(plain.input.double(), task.input), xi).values
    targets = task.group.act(Field(plain.target.double(), output), xi).values
    return max(relative(moved.input, inputs), relative(moved.target, targets))


@each_pair_recipe
def test_ood_samples_are_the_moved_test_samples_and_lie_in_the_shell(
    name: str, datasets: Mapping[str, PairDataset]
) -> None:
    recipe, dataset = PAIR_RECIPES[name], datasets[name]
    plain, moved = dataset.load("test_id", "ood"), dataset.load("test_ood", "ood")
    assert twin_error(recipe, plain, moved) < 1e-6
    if recipe.task.group.moves_in_time:
        assert twin_error(recipe, plain, moved, later=False) > 0.02  # Gamma_B would be missed
    size = moved.elements.abs()
    assert bool((size >= torch.tensor(recipe.ood_low)).all())
    assert bool((size <= torch.tensor(recipe.ood_high)).all())
    assert len(size.unique(dim=0)) == len(size)


def test_where_the_group_is_not_exact_the_moved_state_is_solved_too(
    datasets: Mapping[str, PairDataset],
) -> None:
    moved = datasets[VORTICES.name].load("test_ood", "ood")
    assert moved.resolved is not None
    _, solved = VORTICES.solve(moved.input[:, :1].double())
    assert relative(moved.resolved, solved) < 1e-4
    assert 1e-6 < relative(moved.target, moved.resolved) < 0.2
    assert datasets[WATER.name].load("test_ood").resolved is None


def test_the_stationary_switch_leaves_phases_where_they_fall(tmp_path: Path) -> None:
    dataset = loaded(BURGERS, tmp_path, stationary=True)
    assert dataset.path.name == "tiny-seed42-stationary"
    assert float(element_errors(BURGERS, dataset.load("test_id", "ood"))[0]) > 0.2
    assert dataset.document["stationary"]


@each_pair_recipe
def test_a_target_is_the_solution_from_its_input(
    name: str, datasets: Mapping[str, PairDataset]
) -> None:
    recipe = PAIR_RECIPES[name]
    pairs = datasets[name].load("test_id", "ood", count=3)
    channels = len(recipe.task.input.channels)
    inputs, targets = recipe.solve(pairs.input[:, :channels].double())
    assert relative(pairs.input, inputs) < 1e-4 and relative(pairs.target, targets) < 1e-4
    assert relative(pairs.input[:, -channels:], targets[:, -channels:]) > 0.05  # much happens


@each_pair_recipe
def test_single_precision_of_the_solver_is_far_below_what_is_stored(name: str) -> None:
    recipes = [replace(PAIR_RECIPES[name], precision=f"float{bits}") for bits in (32, 64)]
    both = [recipe.make("test", range(2), "tiny", 1, stationary=False) for recipe in recipes]
    for split in ("test_id", "test_ood"):
        single, double = (torch.from_numpy(made[split]["target"]) for made in both)
        assert single.dtype == double.dtype == torch.float32
        assert relative(single, double) < 2e-5
        if split == "test_ood":
            assert both[0][split]["xi"].dtype == np.float64


# --- on what samples depend -----------------------------------------------------------------------


@each_pair_recipe
def test_an_initial_state_depends_on_its_key_alone(name: str) -> None:
    recipe = PAIR_RECIPES[name]
    state, redrawn = recipe.initial_state(42, "train", 3)
    torch.randn(7)  # the global generator is not used
    recipe.initial_state(42, "train", 2)
    again, _ = recipe.initial_state(42, "train", 3)
    assert torch.equal(state, again) and redrawn >= 0
    assert state.shape == (recipe.task.input.size // recipe.task.input.snapshots, *recipe.grid)
    assert state.dtype == torch.float64
    for other in [(43, "train", 3), (42, "test", 3), (42, "train", 4)]:
        assert relative(recipe.initial_state(*other)[0], state) > 0.01


@each_pair_recipe
def test_initial_states_lie_on_the_slice_and_carry_a_frame(name: str) -> None:
    recipe = PAIR_RECIPES[name]
    slice, type = recipe.task.slice, recipe.equation.field_type()
    drawn = torch.stack([recipe.initial_state(1, "train", i)[0] for i in range(3)])
    assert float(slice.coordinates(Field(drawn, type)).abs().max()) < 1e-12
    assert bool((slice.quality(Field(drawn, type)) >= 0.9 * slice.threshold).all())
    free = [recipe.initial_state(1, "train", i, stationary=True)[0] for i in range(3)]
    assert float(slice.coordinates(Field(torch.stack(free), type)).abs().max()) > 1e-3


def test_neither_the_size_of_parts_nor_the_preset_changes_a_sample(tmp_path: Path) -> None:
    """Batches are full whatever is asked for, so this holds to the last bit."""
    fewer = replace(BURGERS, part_samples=48, sizes={"tiny": Sizes(13, 3, 12)})
    ours, theirs = loaded(BURGERS, tmp_path / "a"), loaded(fewer, tmp_path / "b")
    for split in ("train", "validation", "test_ood"):
        all_of_them, some = ours.load(split), theirs.load(split)
        assert torch.equal(all_of_them.input[: len(some)], some.input)
        assert torch.equal(all_of_them.target[: len(some)], some.target)


def test_thinned_presets_take_every_kth_point_of_the_same_solutions(tmp_path: Path) -> None:
    thin = replace(BURGERS, sizes={"tiny": replace(TINY["tiny"], thin={1: 16})})
    ours, theirs = loaded(BURGERS, tmp_path / "a"), loaded(thin, tmp_path / "b")
    assert theirs.document["ood_grid"] == [32] and theirs.document["id_grid"] == [16]
    for split in ("train", "test_id"):
        assert torch.equal(theirs.load(split).input, coarsen(ours.load(split).input, 4))
    fine = ours.load("test_ood", "ood").target
    assert torch.equal(theirs.load("test_ood", "ood").target, coarsen(fine, 4))


def test_a_law_without_a_frame_is_called_unusable() -> None:
    def flat(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
        return torch.ones(1, *grid, dtype=torch.float64)

    with pytest.raises(SolverError, match="train sample 5: 200 draws in a row carry no frame"):
        replace(BURGERS, law=Law("flat", flat)).initial_state(0, "train", 5)


# --- settings -------------------------------------------------------------------------------------


def test_presets_have_the_sizes_and_grids_of_the_protocol() -> None:
    counts = {"smoke": (24, 8, 8), "quick": (500, 50, 100), "standard": (1000, 100, 200)}
    for preset, expected in counts.items():
        assert tuple(map(PAIR_SIZES[preset].count, PARTS)) == expected
    assert PAIR_SIZES["paper"] == PAIR_SIZES["standard"]
    assert tuple(map(TRAJECTORY_SIZES["paper"].count, PARTS)) == (512, 512, 512)
    one, two = (
        replace(recipe, grid=grid, sizes=PAIR_SIZES)
        for recipe, grid in ((BURGERS, (2048,)), (WATER, (128, 128)))
    )
    assert one.id_grid("smoke") == (128,) and one.ood_grid("smoke") == (256,)
    assert two.id_grid("smoke") == (32, 32) and two.ood_grid("smoke") == (64, 64)
    assert one.id_grid("paper") == (1024,) and two.ood_grid("paper") == (128, 128)


def test_a_document_is_plain_data_in_which_every_setting_counts() -> None:
    document = BURGERS.document("tiny", 42, stationary=False)
    assert json.loads(json.dumps(document)) == document
    assert name_differences(document, document) == ""
    others = {
        "solver_step": replace(BURGERS, step=0.02),
        "solver_grid": replace(BURGERS, grid=(256,)),
        "coarsening": replace(BURGERS, coarsening=4),
        "law": replace(BURGERS, law=Law("other", draw_wave)),
        "parameters.nu": replace(BURGERS, equation=Burgers(1, 2e-2)),
        "output.step": replace(BURGERS, task=task_of(Burgers(1, 1e-2), 0.6)),
        "ood_high": replace(BURGERS, ood_high=(0.4, 1.0)),
        "resolve": replace(BURGERS, resolve=True),
        "solver_precision": replace(BURGERS, precision="float32"),
        "name": replace(BURGERS, name="other"),
    }
    for entry, other in others.items():
        changed = name_differences(document, other.document("tiny", 42, stationary=False), 9)
        assert f"{entry} was " in changed
    assert "seed was 42, now 1" in name_differences(document, {**document, "seed": 1})


def test_a_document_of_trajectories_counts_every_setting() -> None:
    document = KDV.document("tiny", 42, stationary=False)
    assert json.loads(json.dumps(document)) == document
    others = {
        "substeps": replace(KDV, substeps=3),
        "variation": replace(KDV, variation=0.2),
        "waves": replace(KDV, waves=3),
        "wavenumbers": replace(KDV, wavenumbers=(1, 2, 3)),
        "snapshots": replace(KDV, kept=4),
        "points": replace(KDV, points=12),
        "samples.train": replace(KDV, sizes={"tiny": Sizes(17, 8, 8)}),
    }
    for entry, other in others.items():
        changed = name_differences(document, other.document("tiny", 42, stationary=False))
        assert f"{entry} was " in changed


@each_pair_recipe
def test_the_bytes_of_a_sample_are_those_on_the_disk(
    name: str, datasets: Mapping[str, PairDataset]
) -> None:
    recipe, dataset = PAIR_RECIPES[name], datasets[name]
    for part in PARTS:
        for split in recipe.splits(part):
            expected = recipe.sample_bytes(split, "tiny") * recipe.sizes["tiny"].count(part)
            assert expected <= dataset.file(split).stat().st_size < expected + 20_000


def test_a_grid_or_a_box_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"3 does not divide the grid \(128,\)"):
        replace(BURGERS, coarsening=3)
    type = BURGERS.equation.field_type(lengths=2.0)
    task = BURGERS.task.model_copy(update={"input": type})
    with pytest.raises(ValueError, match=r"solved in a box of length 1, got \(2\.0,\)"):
        replace(BURGERS, task=task)


# --- trajectories ---------------------------------------------------------------------------------


def test_a_trajectory_depends_on_its_key_alone() -> None:
    state, box = KDV.initial(3, "train", [0, 7, 2])
    alone, own = KDV.initial(3, "train", [7])
    assert torch.equal(state[1], alone[0])
    assert torch.equal(box.lengths[1], own.lengths[0]) and torch.equal(box.step[1], own.step[0])
    for other in ((4, "train", [7]), (3, "validation", [7]), (3, "train", [8])):
        assert relative(KDV.initial(*other)[0], alone) > 0.1


def test_trajectories_follow_the_law_of_the_protocol() -> None:
    states, box = KDV.initial(0, "train", range(300))
    for values, nominal in ((box.lengths[:, 0], 128.0), (box.step, 0.2)):
        assert bool((values >= 0.9 * nominal).all() and (values <= 1.1 * nominal).all())
        assert abs(float(values.mean() / nominal) - 1) < 0.015
        assert abs(float(values.std() / nominal) - 0.2 / math.sqrt(12)) < 0.005
    power = to_spectrum(states, 1).abs().square()[:, 0].mean(dim=0)
    assert float(power[1:3].sum() / power.sum()) > 1 - 1e-12
    assert float(power[1] / power[2]) == pytest.approx(1, abs=0.25)
    # Ten waves with amplitudes of variance 1/12.
    assert float(states.square().mean()) == pytest.approx(10 / 12 / 2, rel=0.1)


def test_only_the_last_snapshots_are_kept() -> None:
    states, box = KDV.initial(0, "test", range(2))
    kept, full = replace(KDV, kept=3).solve(states, box), replace(KDV, kept=8).solve(states, box)
    assert tuple(kept.shape) == (2, 3, 24) and relative(kept, full[:, -3:]) < 1e-12


# --- containers -----------------------------------------------------------------------------------


def numbered(channels: int = 1) -> Trajectories:
    """Four trajectories of seven snapshots, whose values are the numbers of their channels."""
    values = torch.arange(7.0 * channels).expand(4, -1)[..., None].expand(-1, -1, 8)
    return Trajectories(values, Box(torch.ones(4, 1), torch.ones(4)), channels)


@pytest.mark.parametrize("channels", [1, 2])
def test_a_window_takes_snapshots_from_a_number_of_its_own(channels: int) -> None:
    start = torch.tensor([0, 1, 3, 4])
    window = numbered(channels).window(start, 3)
    assert window.snapshots == 3 and window.values.shape == (4, 3 * channels, 8)
    assert torch.equal(window.values[:, 0, 0], channels * start.float())
    assert torch.equal(window.values[:, -1, 0], channels * (start.float() + 3) - 1)
    assert torch.equal(numbered().window(2, 1).values[:, 0, 0], torch.full((4,), 2.0))


@pytest.mark.parametrize("start", [-1, 5, torch.tensor([0, 0, 0, 5])])
def test_a_window_outside_is_refused(start: int | Tensor) -> None:
    with pytest.raises(FieldError, match="do not lie within the 7"):
        numbered().window(start, 3)


def test_trajectories_of_other_shapes_are_refused() -> None:
    box = Box(torch.ones(3, 1), torch.ones(3))
    with pytest.raises(FieldError, match="trajectories: expected"):
        Trajectories(torch.zeros(3, 8), box)
    with pytest.raises(FieldError, match="lengths and steps of 3 samples in 1 dimensions"):
        Trajectories(torch.zeros(3, 2, 8), box._replace(step=torch.ones(1)))
    with pytest.raises(FieldError, match="5 channels are not whole snapshots of 2"):
        Trajectories(torch.zeros(3, 5, 8), box, channels=2)


def test_containers_select_and_convert() -> None:
    some = numbered().select(torch.tensor([2, 0]))
    assert len(some) == 2 and some.box.lengths.shape == (2, 1)
    assert some.to(torch.float64).box.step.dtype == torch.float64
    pairs = Pairs(torch.zeros(4, 1, 8), torch.ones(4, 1, 8), xi=torch.arange(4.0)[:, None])
    chosen = pairs.select(slice(1, 3))
    assert len(chosen) == 2 and chosen.elements.flatten().tolist() == [1.0, 2.0]
    assert chosen.resolved is None


@pytest.mark.parametrize("grid", [(16,), (9, 7)])
def test_channel_statistics_are_those_of_each_channel(
    dtype: torch.dtype, grid: tuple[int, ...]
) -> None:
    fields = torch.randn(5, 3, *grid, dtype=dtype, generator=torch.Generator().manual_seed(1))
    fields[:, 1] = fields[:, 1] * 0.01 + 100
    fields[:, 2] = 1 / 3
    mean, std = channel_statistics(fields)
    assert mean.dtype == std.dtype == dtype and mean.shape == std.shape == (3,)
    by_channel = fields.double().transpose(0, 1).flatten(1)
    assert torch.allclose(mean.double(), by_channel.mean(1), rtol=1e-6, atol=1e-7)
    assert torch.allclose(std.double()[:2], by_channel.std(1, unbiased=False)[:2], rtol=1e-4)
    assert std[2] == 1  # a constant channel is not divided by its round-off
