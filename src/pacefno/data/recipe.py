"""How the samples of a dataset are made: draw, centre, solve, move, take every k-th point.

A recipe knows the physics and the random law; files and processes are ``generate.py``'s business.
Sample ``index`` of a split depends on the seed, the split and the index alone: not on how many
others there are, on the grid that is stored, or on the number of processes.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pacefno.errors import UsageError
from pacefno.fields import Box, Field
from pacefno.grid import coarsen, points, resample
from pacefno.pde import Equation, Law, SolverError, solve
from pacefno.pde.initial import generator_for
from pacefno.registry import unknown
from pacefno.task import Task

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Document: TypeAlias = Mapping[str, Any]  # plain data that JSON can hold

MAX_REDRAWS = 200  # draws in a row without a frame after which a law is called unusable
SMALL_GRID_POINTS = 4096  # up to so many points, more samples fit into the cache at once


@dataclass(frozen=True)
class Sizes:
    """Samples per split; ``thin`` caps the points per axis of the training grid, by dimension."""

    train: int
    validation: int
    test: int
    thin: Mapping[int, int] | None = None

    def count(self, part: str) -> int:
        """The samples of ``train``, ``validation`` or ``test``."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[part]


PAIR_SIZES: dict[str, Sizes] = {
    "smoke": Sizes(train=24, validation=8, test=8, thin={1: 128, 2: 32, 3: 16}),
    "quick": Sizes(train=500, validation=50, test=100),
    "standard": Sizes(train=1000, validation=100, test=200),
    "paper": Sizes(train=1000, validation=100, test=200),
}
TRAJECTORY_SIZES: dict[str, Sizes] = {  # LPSDA's splits have 512 trajectories each
    "smoke": Sizes(train=16, validation=8, test=8),
    "quick": Sizes(train=128, validation=32, test=64),
    "standard": Sizes(train=512, validation=512, test=512),
    "paper": Sizes(train=512, validation=512, test=512),
}
PARTS = ("train", "validation", "test")  # what is drawn; a part may be stored as several splits
LPSDA_MODES = {"train": "train", "validation": "valid", "test": "test"}  # what LPSDA calls them


class Recipe(ABC):
    """What the generator needs to know: parts, the splits they are stored as, and their values."""

    name: str
    equation: Equation
    task: Task
    sizes: Mapping[str, Sizes]
    part_samples: int  # samples made by one job: what an interruption loses per process

    @abstractmethod
    def splits(self, part: str) -> tuple[str, ...]:
        """The splits that are stored from one part: of ``test``, ``test_id`` and ``test_ood``."""

    @abstractmethod
    def make(
        self, part: str, indices: range, preset: str, seed: int, *, stationary: bool
    ) -> dict[str, Arrays]:
        """The values of some samples for each split of a part; ``SolverError`` if one fails."""

    @abstractmethod
    def document(self, preset: str, seed: int, *, stationary: bool) -> dict[str, Any]:
        """All that determines the values, as plain data: equal documents mean equal datasets.

        Nothing in it is computed from samples, so it is the same on every machine.
        """

    @abstractmethod
    def sample_bytes(self, split: str, preset: str) -> int:
        """Bytes of one stored sample."""

    def sizes_of(self, preset: str) -> Sizes:
        if preset not in self.sizes:
            raise UsageError(unknown("preset", preset, self.sizes))
        return self.sizes[preset]


def name_differences(old: Document, new: Document, most: int = 3) -> str:
    """Which entries of two documents differ and how, as text for people; empty if none do."""
    was, now = _flat(old), _flat(json.loads(json.dumps(new)))  # as a file gives it back
    changed = [key for key in now | was if was.get(key) != now.get(key)]
    texts = [f"{key} was {was.get(key)}, now {now.get(key)}" for key in changed[:most]]
    return "; ".join(texts + [f"{len(changed) - most} more"] * (len(changed) > most))


def _flat(document: Document, before: str = "") -> dict[str, Any]:
    """Nested entries by their path: ``{"samples": {"train": 8}}`` is ``{"samples.train": 8}``."""
    entries: dict[str, Any] = {}
    for key, value in document.items():
        nested = isinstance(value, Mapping) and value
        entries |= _flat(value, f"{before}{key}.") if nested else {f"{before}{key}": value}
    return entries


# --- pairs ----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class PairRecipe(Recipe):
    """Pairs of input and target: some snapshots of a solution, and those that follow.

    The splits ``train`` and ``validation`` are stored on the training grid (ID), both test splits
    on the finer one (OOD): ``test_id`` as solved, ``test_ood`` moved by elements ``xi`` of the
    group beyond the training range. Where the group is only nearly a symmetry (``resolve``), the
    target is also solved from the moved state (``resolved``).
    """

    name: str
    equation: Equation
    law: Law
    task: Task
    grid: tuple[int, ...]  # the OOD grid, on which everything is solved
    coarsening: int  # the ID grid takes every such point
    step: float  # time step of the solver
    ood_low: tuple[float, ...]  # |xi| of the OOD test set: a shell beyond the training range
    ood_high: tuple[float, ...]
    resolve: bool = False
    precision: str = "float64"  # of the solver; float32 where that is far below the error of a step
    sizes: Mapping[str, Sizes] = field(default_factory=lambda: PAIR_SIZES)
    part_samples: int = 48

    def __post_init__(self) -> None:
        if any(n % self.coarsening for n in self.grid):
            raise UsageError(f"{self.name}: {self.coarsening} does not divide the grid {self.grid}")
        for type in (self.task.input, self.task.output):
            if any(length != 1 for length in type.lengths):
                raise UsageError(
                    f"{self.name}: pairs are solved in a box of length 1, got {type.lengths}: "
                    "state the equation in such units"
                )

    def splits(self, part: str) -> tuple[str, ...]:
        return ("test_id", "test_ood") if part == "test" else (part,)

    def ood_grid(self, preset: str) -> tuple[int, ...]:
        """The grid on which the test splits are stored."""
        return tuple(n // self._stride(preset) for n in self.grid)

    def id_grid(self, preset: str) -> tuple[int, ...]:
        """The grid on which the training and validation splits are stored."""
        return tuple(n // (self._stride(preset) * self.coarsening) for n in self.grid)

    def _stride(self, preset: str) -> int:
        """Every how many solver points one is stored: the smallest that makes the ID grid fit."""
        thin = self.sizes_of(preset).thin
        most = math.inf if thin is None else thin[self.equation.dim]
        for stride in range(1, min(self.grid) // (2 * self.coarsening) + 1):
            divides = all(n % (stride * self.coarsening) == 0 for n in self.grid)
            if divides and max(self.grid) // (self.coarsening * stride) <= most:
                return stride
        return 1  # a grid without a suitable divisor is stored whole

    # --- one sample

    def initial_state(
        self, seed: int, part: str, index: int, *, stationary: bool = False
    ) -> tuple[Tensor, int]:
        """A state on the canonical slice, ``(C, *grid)``, and how many draws were rejected.

        ``stationary`` skips the centring: the law then has no frame (the paper's 1-D setting).
        """
        for attempt in range(MAX_REDRAWS):
            generator = generator_for(seed, self.name, part, index, attempt)
            state = self.law.draw(generator, self.grid)[None]
            if stationary:
                return state[0], attempt
            field = Field(state, self.equation.field_type())
            if float(self.task.slice.quality(field)) >= self.task.slice.threshold:
                return self.to_slice(field).values[0], attempt
        raise SolverError(
            f"{self.name}: {part} sample {index}: {MAX_REDRAWS} draws in a row carry no frame: "
            "change the law or the slice"
        )

    def to_slice(self, field: Field) -> Field:
        """Pull states back; twice, because a rotation about the centre needs the centre first."""
        for _ in range(2):
            field = self.task.group.inverse(field, self.task.slice.coordinates(field))
        return field

    def solve(self, initial: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets ``(B, S * C, *grid)`` of initial states."""
        first, second = self.task.input, self.task.output
        times = [t * first.step for t in first.times] + [t * second.step for t in second.times]
        states = self.equation.exact(initial, times)  # (B, S, C, *grid)
        if states is None:
            states = solve(self.equation, initial, times, self.step)
        return states[:, : first.snapshots].flatten(1, 2), states[:, first.snapshots :].flatten(
            1, 2
        )

    # --- many

    def make(
        self, part: str, indices: range, preset: str, seed: int, *, stationary: bool
    ) -> dict[str, Arrays]:
        pieces: dict[str, list[Arrays]] = {split: [] for split in self.splits(part)}
        size = 8 if math.prod(self.grid) <= SMALL_GRID_POINTS else 4
        for start in range(indices.start, indices.stop, size):
            # A batch is always full, even past the end: the last bits of a solution depend on how
            # many are solved together, and no sample may depend on how many others a preset has.
            batch, kept = range(start, start + size), min(size, indices.stop - start)
            drawn = [self.initial_state(seed, part, i, stationary=stationary) for i in batch]
            fields = self._solved(torch.stack([state for state, _ in drawn]), part, batch)
            redraws = torch.tensor([count for _, count in drawn])
            for split in pieces:
                moved = self._moved(fields, batch, seed) if split == "test_ood" else fields
                values = {k: v[:kept] for k, v in (moved | {"redraws": redraws}).items()}
                pieces[split].append(self._stored(values, split, preset))
        return {
            split: {name: np.concatenate([piece[name] for piece in found]) for name in found[0]}
            for split, found in pieces.items()
        }

    def _solved(self, states: Tensor, part: str, batch: range) -> dict[str, Tensor]:
        dtype = getattr(torch, self.precision)
        try:
            inputs, targets = self.solve(states.to(dtype))
        except SolverError as error:
            raise SolverError(self._blame(states, part, batch)) from error
        return {"input": inputs.double(), "target": targets.double()}

    def _blame(self, states: Tensor, part: str, batch: range) -> str:
        """Which sample of a failed batch it was: the solver knows only its place in the batch."""
        bad = []
        for index, state in zip(batch, states, strict=True):
            try:
                self.solve(state[None])
            except SolverError:
                bad.append(index)
        return (
            f"{self.name}: {part} sample {', '.join(map(str, bad or batch))} has no valid solution "
            f"with step size {self.step:g}: nothing of its part was stored; reduce the step or "
            "soften the initial states"
        )

    def _moved(self, fields: dict[str, Tensor], batch: range, seed: int) -> dict[str, Tensor]:
        """The OOD twins ``C_g a`` and ``C_g u`` for a g outside the training range."""
        group = self.task.group
        rows = [
            group.sample(self.ood_low, self.ood_high, 1, generator_for(seed, self.name, "ood", i))
            for i in batch
        ]
        xi = torch.cat(rows)
        moved = {
            "input": group.act(Field(fields["input"], self.task.input), xi).values,
            "target": group.act(Field(fields["target"], self.task.output), xi).values,
            "xi": xi,
        }
        if self.resolve:
            initial = moved["input"][:, : len(self.task.input.channels)]
            moved["resolved"] = self._solved(initial, "moved test", batch)["target"]
        return moved

    def _stored(self, values: dict[str, Tensor], split: str, preset: str) -> Arrays:
        """What is kept of a batch: every k-th point in float32, elements and counts as they are."""
        stride = self._stride(preset) * (1 if split.startswith("test") else self.coarsening)
        return {
            name: tensor.numpy()
            if name in ("xi", "redraws")
            else coarsen(tensor, stride).numpy().astype(np.float32)
            for name, tensor in values.items()
        }

    def sample_bytes(self, split: str, preset: str) -> int:
        channels = self.task.input.size + self.task.output.size
        channels += self.task.output.size if split == "test_ood" and self.resolve else 0
        grid = self.ood_grid(preset) if split.startswith("test") else self.id_grid(preset)
        return channels * math.prod(grid) * 4

    def document(self, preset: str, seed: int, *, stationary: bool) -> dict[str, Any]:
        sizes = self.sizes_of(preset)
        task = self.task.document()
        return {
            "recipe": "pairs",
            "name": self.name,
            "preset": preset,
            "seed": seed,
            "stationary": stationary,
            "samples": {part: sizes.count(part) for part in PARTS},
            "equation": self.equation.name,
            "parameters": self.equation.parameters,
            "law": self.law.text,
            "input": task["input"],
            "output": task["output"],
            "group": task["group"],
            "slice": task["slice"],
            "solver_grid": list(self.grid),
            "ood_grid": list(self.ood_grid(preset)),
            "id_grid": list(self.id_grid(preset)),
            "coarsening": self.coarsening,
            "solver_step": self.step,
            "solver_precision": self.precision,
            "ood_low": list(self.ood_low),
            "ood_high": list(self.ood_high),
            "resolve": self.resolve,
        }


# --- trajectories ---------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class TrajectoryRecipe(Recipe):
    """Whole trajectories, each with a box length and a time step of its own (LPSDA's protocol).

    Both are uniform within ``variation`` of the nominal ones, and a trajectory starts from
    ``u_0(x) = sum_i A_i sin(2 pi l_i x / L + phi_i)``. It is solved for ``solved`` snapshots, of
    which the last ``kept`` are stored.
    """

    name: str
    equation: Equation
    task: Task  # the nominal length and step are those of its input type
    solved: int  # snapshots from time 0 to the end, both included
    ood_low: tuple[float, ...]  # |xi| of the moved test set: beyond the training range
    ood_high: tuple[float, ...]
    file_name: tuple[str, str]  # of its files at LPSDA: the equation and a suffix
    solver_points: int
    substeps: int  # steps of the solver between two snapshots
    kept: int = 140
    points: int = 256
    variation: float = 0.1
    waves: int = 10
    wavenumbers: tuple[int, ...] = (1, 2)
    sizes: Mapping[str, Sizes] = field(default_factory=lambda: TRAJECTORY_SIZES)
    part_samples: int = 32

    @property
    def length(self) -> float:
        """The nominal length of the box."""
        return self.task.input.lengths[0]

    def splits(self, part: str) -> tuple[str, ...]:
        return (part,)

    def initial(self, seed: int, part: str, indices: Sequence[int]) -> tuple[Tensor, Box]:
        """States ``(B, 1, solver_points)`` and their boxes; each depends on its own key alone."""
        drawn = [self._draw(generator_for(seed, self.name, LPSDA_MODES[part], i)) for i in indices]
        states, lengths, steps = (torch.stack(column) for column in zip(*drawn, strict=True))
        return states, Box(lengths[:, None], steps)

    def _draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        uniform = torch.rand(2, dtype=torch.float64, generator=generator)
        scales = 1 + self.variation * (2 * uniform - 1)
        amplitude, phase, choice = torch.rand(
            3, self.waves, 1, dtype=torch.float64, generator=generator
        )
        numbers = torch.tensor(self.wavenumbers, dtype=torch.float64)
        wavenumber = numbers[(choice * len(self.wavenumbers)).long()]
        x = points((self.solver_points,))
        angle = 2 * math.pi * (wavenumber * x + phase)  # (waves, solver_points)
        state = ((amplitude - 0.5) * torch.sin(angle)).sum(dim=0, keepdim=True)
        return state, self.length * scales[0], self.task.input.step * scales[1]

    def solve(self, initial: Tensor, box: Box) -> Tensor:
        """The stored snapshots of the solutions from these states, ``(B, kept, points)``."""
        times = [float(number) for number in range(self.solved - self.kept, self.solved)]
        states = solve(self.equation, initial, times, 1 / self.substeps, box=box)
        return resample(states[:, :, 0], (self.points,))

    def make(
        self, part: str, indices: range, preset: str, seed: int, *, stationary: bool
    ) -> dict[str, Arrays]:
        if stationary:
            raise UsageError(f"stationary: the trajectories of {self.name} are never centred")
        states, box = self.initial(seed, part, indices)
        try:
            values = self.solve(states, box)
        except SolverError as error:
            where = f"{part} samples {indices.start} to {indices.stop - 1}"
            raise SolverError(f"{self.name}: {where}: {error}") from error
        arrays = {"values": values, "length": box.lengths[:, 0], "step": box.step}
        return {part: {name: tensor.numpy() for name, tensor in arrays.items()}}

    def sample_bytes(self, split: str, preset: str) -> int:
        return 8 * self.kept * self.points

    def document(self, preset: str, seed: int, *, stationary: bool) -> dict[str, Any]:
        if stationary:
            raise UsageError(f"stationary: the trajectories of {self.name} are never centred")
        sizes = self.sizes_of(preset)
        return {
            "recipe": "trajectories",
            "name": self.name,
            "preset": preset,
            "seed": seed,
            "samples": {part: sizes.count(part) for part in PARTS},
            "equation": self.equation.name,
            "parameters": self.equation.parameters,
            "length": self.length,
            "step": self.task.input.step,
            "variation": self.variation,
            "waves": self.waves,
            "wavenumbers": list(self.wavenumbers),
            "snapshots": [self.kept, self.solved],
            "points": [self.points, self.solver_points],
            "substeps": self.substeps,
            "cut": self.equation.cut,
        }
