"""Everything that determines the content of a dataset, and nothing else: equal recipes give equal bytes."""

from __future__ import annotations

import hashlib
import math
from importlib.metadata import version
from typing import Annotated, Final

import h5py
import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field

from pacefno.data.presets import sizes_named
from pacefno.equations import Problem

FORMAT: Final = 1
SPLITS: Final = ("train", "validation", "test_id", "test_ood")

# Bounds that no dataset of ours reaches: a file that declares more is damaged or hostile.
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Points = Annotated[int, Field(ge=2, le=16_384)]
Frames = Annotated[int, Field(ge=1, le=1_000)]
Name = Annotated[str, Field(max_length=100)]
Grid = Annotated[tuple[Points, ...], Field(min_length=1, max_length=3)]
Names = Annotated[tuple[Name, ...], Field(max_length=100)]
Numbers = Annotated[tuple[float, ...], Field(max_length=100)]


class Recipe(BaseModel):
    """A problem at a preset with a seed, in numbers and names alone."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    problem: Name
    preset: Name
    seed: int
    stationary: bool
    train: Count
    validation: Count
    test: Count
    channels: Names
    frames_in: Frames
    frames_out: Frames
    solver_grid: Grid
    ood_grid: Grid  # the test splits are stored on this one
    id_grid: Grid  # train and validation on this one: every `coarsening`-th point of the OOD grid
    coarsening: Annotated[int, Field(ge=1, le=64)]
    parameters: dict[Name, float]
    spacing: float
    horizon: float
    solver_step: float
    solver_precision: Name
    coordinates: Names  # of the group, one per column of the stored generators
    train_range: Numbers
    ood_low: Numbers
    ood_high: Numbers
    resolved: bool  # whether the OOD targets were also solved for, because the group is only nearly a symmetry
    first_sample: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # of the initial states: tells one random law from another
    versions: dict[Name, Name]

    @property
    def dim(self) -> int:
        return len(self.ood_grid)

    @property
    def in_channels(self) -> int:
        return self.frames_in * len(self.channels)

    @property
    def out_channels(self) -> int:
        return self.frames_out * len(self.channels)

    @property
    def folder_name(self) -> str:
        return f"{self.preset}-seed{self.seed}{'-stationary' if self.stationary else ''}"

    @property
    def command(self) -> str:
        """What makes this dataset, as one types it."""
        switch = " --stationary" if self.stationary else ""
        return f"pacefno data generate {self.problem} --preset {self.preset} --seed {self.seed}{switch}"

    def samples(self, split: str) -> int:
        return {"train": self.train, "validation": self.validation}.get(split, self.test)

    def grid(self, split: str) -> tuple[int, ...]:
        """The grid on which a split is stored."""
        return self.id_grid if split in ("train", "validation") else self.ood_grid

    def sha256(self) -> str:
        """The name of this recipe, written into every shard made from it."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def differences(self, other: Recipe) -> list[str]:
        """Which settings differ, as text; versions of libraries are no setting."""
        mine, theirs = self.model_dump(exclude={"versions"}), other.model_dump(exclude={"versions"})
        return [f"{key} is {theirs[key]}, now {mine[key]}" for key in mine if mine[key] != theirs[key]]


def recipe_of(problem: Problem, preset: str, seed: int, *, stationary: bool) -> Recipe:
    """The recipe of a problem at a preset; refuses a preset that does not exist and a grid that cannot be thinned."""
    sizes = sizes_named(preset)
    stride = sizes.stride(problem)
    if any(n % (stride * problem.coarsening) for n in problem.grid):
        raise ValueError(f"{problem.name}: the grid {problem.grid} is no multiple of its coarsening {problem.coarsening}")
    return Recipe(
        problem=problem.name,
        preset=preset,
        seed=seed,
        stationary=stationary,
        train=sizes.train,
        validation=sizes.validation,
        test=sizes.test,
        channels=problem.equation.channels,
        frames_in=problem.frames_in,
        frames_out=problem.frames_out,
        solver_grid=problem.grid,
        ood_grid=tuple(n // stride for n in problem.grid),
        id_grid=tuple(n // (stride * problem.coarsening) for n in problem.grid),
        coarsening=problem.coarsening,
        parameters=problem.equation.parameters,
        spacing=problem.spacing,
        horizon=problem.horizon,
        solver_step=problem.step,
        solver_precision=problem.precision,
        coordinates=problem.group.coordinates,
        train_range=problem.train_range,
        ood_low=problem.ood_low,
        ood_high=problem.ood_high,
        resolved=not problem.exact_group,
        first_sample=_first_sample(problem, seed, stationary),
        versions=_versions(),
    )


def _first_sample(problem: Problem, seed: int, stationary: bool) -> str:
    """The sum of the first initial state to six decimals: round-off differs between machines, the law must not."""
    state, _ = problem.initial_state(seed, "train", 0, stationary=stationary)
    rounded = np.round(state.numpy(), 6) + 0.0  # zero has a sign, which is round-off too: -0.0 + 0.0 is 0.0
    return hashlib.sha256(rounded.tobytes()).hexdigest()


def _versions() -> dict[str, str]:
    return {
        "pacefno": version("pacefno"),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
    }


def points_of(grid: tuple[int, ...]) -> int:
    """How many points a grid has."""
    return math.prod(grid)
