"""The values of a shard: draw, centre, solve, move, and take every k-th point; moved in float64 and stored in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pacefno.data.recipe import Recipe
from pacefno.data.schema import COORDINATE, FIELD, Shard, batch_size, layout
from pacefno.data.shards import Arrays
from pacefno.equations import Problem, SolverError
from pacefno.equations.random_fields import generator_for
from pacefno.grid import coarsen, points
from pacefno.symmetry.translation import AXES


@dataclass(frozen=True)
class Made:
    """The content of one file, before it is written."""

    shard: Shard
    arrays: Arrays
    redraws: int


def make(problem: Problem, recipe: Recipe, shards: Sequence[Shard], advance: Callable[[int], None]) -> list[Made]:
    """Solve the samples of one file, or of a pair of ID and OOD files that start from the same states."""
    first = shards[0]
    arrays = {shard.split: _empty(recipe, shard) for shard in shards}
    redraws, size = 0, batch_size(recipe)
    for start in range(first.start, first.start + first.count, size):
        # A batch is always full, even past the end: the last bits of a solution depend on how many are solved
        # together, and so no sample depends on how many others a preset has.
        indices = range(start, start + size)
        states, rejected = _initial_states(problem, recipe, _key(first), indices)
        fields = _solve(problem, states, _key(first), indices)
        kept = min(size, first.start + first.count - start)
        redraws += sum(rejected[:kept])
        for shard in shards:
            moved = _move(problem, recipe, fields, indices) if shard.split == "test_ood" else fields
            _store(arrays[shard.split], moved, recipe, shard, start - first.start, kept)
        advance(kept)
    return [Made(shard, arrays[shard.split], redraws) for shard in shards]


def _key(shard: Shard) -> str:
    """The name under which initial states are drawn: both test splits share theirs."""
    return "test" if shard.split.startswith("test") else shard.split


def _initial_states(problem: Problem, recipe: Recipe, split: str, indices: range) -> tuple[Tensor, list[int]]:
    states, rejected = [], []
    for index in indices:
        try:
            state, redraws = problem.initial_state(recipe.seed, split, index, stationary=recipe.stationary)
        except RuntimeError as error:
            raise SolverError(f"{problem.name}: {split} sample {index}: {error}") from error
        states.append(state)
        rejected.append(redraws)
    return torch.stack(states), rejected


def _solve(problem: Problem, states: Tensor, split: str, indices: range) -> dict[str, Tensor]:
    try:
        inputs, targets = problem.solve(states.to(getattr(torch, problem.precision)))
    except SolverError as error:
        raise SolverError(_blame(problem, states, split, indices)) from error
    return {"input": inputs.double(), "target": targets.double()}


def _blame(problem: Problem, states: Tensor, split: str, indices: range) -> str:
    """Which sample of a failed batch it was: the solver knows only its place in the batch."""
    bad = []
    for index, state in zip(indices, states, strict=True):
        try:
            problem.solve(state[None])
        except SolverError:
            bad.append(index)
    return (
        f"{problem.name}: {split} sample {', '.join(map(str, bad or indices))} has no valid solution with step size "
        f"{problem.step:g}: nothing of its shard was stored; reduce the step of the problem or soften its initial states"
    )


def _move(problem: Problem, recipe: Recipe, fields: dict[str, Tensor], indices: range) -> dict[str, Tensor]:
    """The OOD twins: ``C_g a`` and ``C_(Gamma_B g) u`` for a g outside the training range."""
    group = problem.group
    rows = [
        group.sample(recipe.ood_low, recipe.ood_high, 1, generator_for(recipe.seed, problem.name, "ood", index))
        for index in indices
    ]
    xi = torch.cat(rows)
    moved = {
        "input": group.act(fields["input"], xi),
        "target": group.act(fields["target"], group.transport(xi, problem.horizon)),
        "generators": xi,
    }
    if recipe.resolved:
        initial = moved["input"][:, : len(problem.equation.channels)]
        moved["target_resolved"] = _solve(problem, initial, "moved test", indices)["target"]
    return moved


def _empty(recipe: Recipe, shard: Shard) -> Arrays:
    """Room for the fields, and the coordinates of their grid."""
    arrays = {name: np.empty(shape, dtype) for name, (shape, dtype) in layout(recipe, shard).items()}
    for axis, n in zip(AXES, recipe.grid(shard.split), strict=False):
        arrays[axis][:] = points((n,)).numpy()[0]
    return arrays


def _store(arrays: Arrays, fields: dict[str, Tensor], recipe: Recipe, shard: Shard, row: int, count: int) -> None:
    stride = recipe.solver_grid[0] // recipe.grid(shard.split)[0]
    for name, values in fields.items():
        kept = values[:count]
        if name != "generators":
            kept = coarsen(kept, stride)
        arrays[name][row : row + count] = kept.numpy().astype(COORDINATE if name == "generators" else FIELD)
