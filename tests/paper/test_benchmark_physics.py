"""The benchmarks as physics: their initial states, their resolution, and their symmetries."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pacefno.data import PairRecipe, TrajectoryRecipe
from pacefno.fields import Field
from pacefno.frames import MomentSlice
from pacefno.grid import points, to_spectrum, wavenumbers
from pacefno.groups import Galilean
from pacefno.paper.benchmarks import BENCHMARKS
from pacefno.pde import solve

PAIRS: dict[str, PairRecipe] = {}
TRAJECTORIES: dict[str, TrajectoryRecipe] = {}
for _name, _benchmark in BENCHMARKS.items():
    if isinstance(_benchmark.recipe, PairRecipe):
        PAIRS[_name] = _benchmark.recipe
    else:
        TRAJECTORIES[_name] = _benchmark.recipe
over_pairs = pytest.mark.parametrize("name", list(PAIRS))
over_trajectories = pytest.mark.parametrize("name", list(TRAJECTORIES))
over_exact = pytest.mark.parametrize(
    "name", [name for name, recipe in PAIRS.items() if isinstance(recipe.task.group, Galilean)]
)


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


def states(recipe: PairRecipe, count: int, *, stationary: bool = False) -> Tensor:
    drawn = [recipe.initial_state(5, "check", i, stationary=stationary)[0] for i in range(count)]
    return torch.stack(drawn)


def far_elements(recipe: PairRecipe, batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return recipe.task.group.sample(recipe.ood_low, recipe.ood_high, batch, generator)


# --- descriptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_the_description_of_a_benchmark_is_consistent(name: str) -> None:
    recipe = BENCHMARKS[name].recipe
    task = recipe.task
    assert BENCHMARKS[name].name == recipe.name == task.name == name
    assert task.input.channels == task.output.channels == recipe.equation.field_type().channels
    assert len(task.train_range) == len(recipe.ood_low) == len(recipe.ood_high) == task.group.size
    shell = list(zip(task.train_range, recipe.ood_low, recipe.ood_high, strict=True))
    assert all(0 <= low < high for _, low, high in shell)
    # Moved test samples lie beyond the training range, but for shifts all around the circle.
    compared = shell if name in PAIRS else shell[task.group.spatial :]
    assert all(0 <= seen <= low < high for seen, low, high in compared)
    assert task.input.times[0] == 0 and task.output.times[0] == task.input.snapshots


@over_trajectories
def test_trajectories_follow_the_protocol_of_lpsda(name: str) -> None:
    recipe = TRAJECTORIES[name]
    assert (recipe.kept, recipe.points, recipe.waves, recipe.wavenumbers) == (140, 256, 10, (1, 2))
    length, solved, hundredths = {
        "kdv": (128, 250, 40.2),
        "kdv_easy": (128, 250, 20.1),
        "kuramoto_sivashinsky": (64, 500, 20.0),
    }[name]
    assert (recipe.length, recipe.solved) == (length, solved)
    assert round(100 * recipe.task.input.step, 1) == hundredths


# --- initial states -------------------------------------------------------------------------------


@over_pairs
def test_initial_states_lie_on_the_slice_and_carry_a_frame(name: str) -> None:
    recipe = PAIRS[name]
    slice, type = recipe.task.slice, recipe.equation.field_type()
    drawn = Field(states(recipe, 3), type)
    assert float(slice.coordinates(drawn).abs().max()) < 1e-12
    assert bool((slice.quality(drawn) >= 0.9 * slice.threshold).all())
    stationary = Field(states(recipe, 3, stationary=True), type)
    assert float(slice.coordinates(stationary).abs().max()) > 1e-3


@over_pairs
def test_initial_states_are_resolved_by_the_training_grid(name: str) -> None:
    """Nothing above a third of it, so every k-th point loses nothing; a window leaves a trace."""
    recipe, compact = PAIRS[name], isinstance(PAIRS[name].task.slice, MomentSlice)
    n = recipe.id_grid("standard")[0]
    power = to_spectrum(recipe.initial_state(1, "train", 0)[0], recipe.equation.dim).abs() ** 2
    k = wavenumbers(recipe.grid).abs().amax(dim=0)
    assert float(power[..., k > n / 3].sum() / power.sum()) < (1e-3 if compact else 1e-28)
    assert float(power[..., k >= n / 2].sum() / power.sum()) < (1e-6 if compact else 1e-28)


# --- symmetries and resolution, by solving --------------------------------------------------------


@pytest.mark.slow
@over_exact
def test_the_symmetry_holds_at_the_size_of_the_benchmark(name: str) -> None:
    """On its grid, to its horizon; by half its step, which is meant for states without a boost."""
    recipe = PAIRS[name]
    group, task, initial = recipe.task.group, recipe.task, states(recipe, 2)
    xi, step = far_elements(recipe, 2), recipe.step / 2
    time = task.output.times[-1] * task.output.step

    def final(state: Tensor) -> Tensor:
        return solve(recipe.equation, state, [time], step)[:, 0]

    moved = final(group.act(Field(initial, task.input), xi).values)
    carried = group.act(Field(final(initial), task.output), xi).values
    assert relative(moved, carried) < 5e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["burgers1d", "burgers1d_smooth"])
def test_the_closed_form_gives_what_the_solver_gives_to_the_rounding_of_what_is_stored(
    name: str,
) -> None:
    recipe = PAIRS[name]
    initial = states(recipe, 2)
    stepped = solve(recipe.equation, initial, [0.0, 1.0], recipe.step)[:, 1]
    assert relative(recipe.solve(initial)[1], stepped) < torch.finfo(torch.float32).eps


@pytest.mark.slow
def test_rigid_motions_nearly_commute_with_compact_flows_that_are_truly_nonlinear() -> None:
    """The published defect of the last snapshot: at most 2 %, while number 10 says little of 30."""
    recipe = PAIRS["navier_stokes"]
    defect, change = rigid_defect(recipe)
    assert 1e-3 < defect < 0.02 and change > 0.8


@pytest.mark.slow
def test_shifts_turns_and_boosts_nearly_commute_with_the_flow_of_compact_vortices() -> None:
    """Solved in the moved frame: at most 1 % of a flow that has become another one."""
    defect, change = rigid_defect(PAIRS["navier_stokes_velocity"])
    assert 1e-3 < defect < 0.01 and change > 0.5


def rigid_defect(recipe: PairRecipe) -> tuple[float, float]:
    """``S(g u) - g S(u)`` of the last snapshot, in the frame of u, and how much that changed."""
    group, task, type = recipe.task.group, recipe.task, recipe.equation.field_type()
    initial, xi = states(recipe, 3), far_elements(recipe, 3)
    early, late = recipe.solve(initial)
    _, moved = recipe.solve(group.act(Field(initial, type), xi).values)
    back = group.inverse(Field(moved, task.output), xi).values
    count = type.size

    def at_the_end(a: Tensor, b: Tensor) -> float:
        a, b = (fields[:, -count:].flatten(1) for fields in (a, b))
        return float(((a - b).norm(dim=1) / b.norm(dim=1)).mean())

    return at_the_end(back, late), at_the_end(early, late)


@over_trajectories
def test_the_settings_of_trajectories_are_converged_in_space_and_time(name: str) -> None:
    """For a few snapshots of a state as steep as they become; docs/lpsda.md has the whole ones."""
    recipe = replace(TRAJECTORIES[name], kept=3, solved=5)
    fine = replace(recipe, solver_points=768, substeps=2 * recipe.substeps)
    rough = replace(recipe, substeps=recipe.substeps // 8)
    found, truth, poor = (steep_solution(one) for one in (recipe, fine, rough))
    assert 1e-12 < relative(found, truth) < 1e-6
    assert relative(poor, truth) > 100 * relative(found, truth)


def steep_solution(recipe: TrajectoryRecipe) -> Tensor:
    """From drawn waves with a high and narrow one (a soliton of KdV) in their midst."""
    state, box = recipe.initial(0, "test", range(2))
    x = (points((recipe.solver_points,)) - 0.5) * box.lengths[:, :, None]
    speed = 1.4
    steep = 3 * speed / torch.cosh(math.sqrt(speed) / 2 * x) ** 2
    return recipe.solve(state + steep, box)
