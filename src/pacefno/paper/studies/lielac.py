"""LieLAC (Shumaylov et al., ICLR 2025): the frame of least energy around a frozen operator.

The energy is low where the training inputs are and is fitted on them alone; the frame that lowers
it is searched for at inference. The operator is the plain FNO of the tables, frozen or fine-tuned,
the group action and the terminal frame are PACE's, and no setting was chosen on a test set. The
rows join the table of the benchmark in ``results/BENCHMARK.json``.
"""

from __future__ import annotations

import copy
import itertools
import math
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, final

import torch
from torch import Tensor

from pacefno.data.samples import Grid, Pairs, Source
from pacefno.fields import Field, FieldType
from pacefno.frames import AdamRefiner, Energy, Estimate, Frame, GaussNewton, Refinement
from pacefno.frames.refine import energy_of
from pacefno.grid import compute_dtype, resample, to_spectrum, wavenumbers
from pacefno.groups import Group
from pacefno.paper.bench import Result, results_file
from pacefno.paper.studies.base import (
    Outcome,
    Refiner,
    Scope,
    Table,
    TrainedRow,
    batches,
    choose,
    grouped,
    with_frame,
)
from pacefno.task import Task
from pacefno.train.config import RunConfig
from pacefno.train.evaluate import load_pairs, load_run, machine, score

TOP_WAVENUMBER = {1: 8, 2: 3}  # the largest one per axis that is looked at, by dimension
COARSE_POINTS = 32  # per axis of the grid that holds these modes of a field however it is shifted
POWER_FLOOR = 1e-4  # of a mode: data on a slice have none at all in some directions
SHRINKAGE = 0.1  # of correlations, of which a few hundred samples tell little
NEIGHBOURS = 5
STARTS = {1: 8, 2: 4, 3: 4}  # per coordinate, by how many there are: 8, 16 and 64 restarts
NEWTON, ADAM = GaussNewton(steps=20), AdamRefiner(steps=50, rate=0.05)
EPOCH_SHARE, RATE_SHARE = 0.2, 0.1  # of the training, for fine-tuning
COMPARED = ("fno", "pace-analytic", "pace", "pace-tta")  # rows that are printed beside


# --- energies -------------------------------------------------------------------------------------


@final
class LowModes:
    """Real and imaginary parts of the first snapshot's low Fourier modes, ``(B, features)``."""

    def __init__(self, type: FieldType, grid: Sequence[int]) -> None:
        self.type = type.at(type.times[:1])
        self.grid = tuple(min(COARSE_POINTS, n) for n in grid)
        k = wavenumbers(self.grid)
        low = (k.abs() <= TOP_WAVENUMBER[type.dim]).all(dim=0)
        # Of a mode and its complex conjugate one is enough; the mean is real.
        code = sum((k[axis] * 1000**axis for axis in range(type.dim)), torch.zeros(()))
        self.complex, self.mean = low & (code > 0), low & (code == 0)

    def coarse(self, field: Field) -> Field:
        """What the features of a field and of all its motions are computed from."""
        return Field(resample(field.at([0]).values, self.grid), self.type, field.box)

    def __call__(self, coarse: Field) -> Tensor:
        spectrum = to_spectrum(coarse.values, self.type.dim)
        modes = spectrum[:, :, self.complex]
        parts = [spectrum[:, :, self.mean].real, modes.real, modes.imag]
        return torch.cat(parts, dim=2).flatten(1)

    def power(self, features: Tensor) -> Tensor:
        """The mean power of each feature's mode, ``(features,)``: shared by its two parts."""
        squares = features.square().mean(dim=0).reshape(self.type.size, -1)
        half = squares.shape[1] // 2
        mean, both = squares[:, :1], (squares[:, 1 : 1 + half] + squares[:, 1 + half :]) / 2
        return torch.cat([mean, both, both], dim=1).flatten()


class InputEnergy(Energy):
    """An energy of the pulled-back input; ``free`` makes velocities unknowns of the search too."""

    def __init__(self, group: Group, features: LowModes, *, free: bool) -> None:
        self.group = copy.copy(group)
        self.group.spatial = group.size if free else group.spatial
        self.features = features

    def residual(self, field: Field, xi: Tensor) -> Tensor:
        return self.deviation(self.features(self.group.inverse(field, xi)))

    @abstractmethod
    def deviation(self, features: Tensor) -> Tensor:
        """Residuals ``(B, m)`` of features ``(B, F)``: the energy is half their square."""


@final
class GaussianEnergy(InputEnergy):
    """``E = 1/2 (f - mu)' Sigma^-1 (f - mu)``: the negative log-density, up to a constant."""

    def __init__(self, group: Group, features: LowModes, seen: Tensor, *, free: bool) -> None:
        super().__init__(group, features, free=free)
        self.centre, power, covariance = seen.mean(dim=0), features.power(seen), torch.cov(seen.T)
        variances = torch.diag(covariance.diagonal())
        floor = torch.diag(POWER_FLOOR * (power + POWER_FLOOR * power.mean()))
        regular = (1 - SHRINKAGE) * covariance + SHRINKAGE * variances + floor
        self.whitening = torch.linalg.inv(torch.linalg.cholesky(regular))  # (F, F)

    def deviation(self, features: Tensor) -> Tensor:
        return (features - self.centre.to(features)) @ self.whitening.T.to(features)


@final
class NeighbourEnergy(InputEnergy):
    """``E = 1/2 d^2`` with the mean squared distance to the nearest inputs, each mode scaled."""

    def __init__(self, group: Group, features: LowModes, seen: Tensor, *, free: bool) -> None:
        super().__init__(group, features, free=free)
        power = features.power(seen)
        self.scale = (power + POWER_FLOOR * power.mean()).rsqrt()
        self.seen = seen * self.scale

    def deviation(self, features: Tensor) -> Tensor:
        scaled, seen = features * self.scale.to(features), self.seen.to(features)
        squares = scaled.square().sum(1, keepdim=True) - 2 * scaled @ seen.T + seen.square().sum(1)
        nearest = squares.topk(min(NEIGHBOURS, len(seen)), dim=1, largest=False).indices
        return (scaled[:, None] - seen[nearest]).flatten(1) / math.sqrt(nearest.shape[1])


ENERGIES = {"gaussian": GaussianEnergy, "neighbours": NeighbourEnergy}


def fit(task: Task, kind: str, inputs: Tensor, *, free: bool = False) -> InputEnergy:
    """The energy of a kind, fitted on training inputs in their canonical frame."""
    features = LowModes(task.input, inputs.shape[2:])
    seen = features(features.coarse(Field(inputs, task.input))).double()
    return ENERGIES[kind](task.group, features, seen, free=free)


# --- the search -----------------------------------------------------------------------------------


class EnergyFrame(Frame):
    """``g^(a) in argmin_g E(g^-1 a)``; its quality says how ordinary the canonical field looks."""

    def __init__(self, group: Group, energy: InputEnergy, refiner: Refiner = NEWTON) -> None:
        super().__init__()
        self.group, self.inputs, self.refiner = group, energy, refiner

    @torch.no_grad()
    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        field = field.to(compute_dtype(field.values.dtype))
        found = search(self.inputs, self.group, field, self.refiner)
        features = self.inputs.features
        degrees = features.type.size * (1 + 2 * int(features.complex.sum()))
        usual = degrees / 2  # the energy of a field from the training distribution
        quality = usual / (usual + found.energy_after)
        return Estimate(found.xi, quality[:, None].expand(-1, self.group.size))


def search(energy: InputEnergy, group: Group, field: Field, refiner: Refiner) -> Refinement:
    """Refine from a grid of starts and keep the lowest energy; evaluations count per sample.

    Velocities start at what the field says, or at zero where they are unknowns of the search.
    """
    coarse = energy.features.coarse(field)
    starts = start_grid(group).to(coarse.values.device)  # (S, spatial)
    velocity = group.kinematic(coarse) * (0 if energy.group.spatial == group.size else 1)
    count, batch = len(starts), len(field)
    xi = torch.cat([starts.repeat_interleave(batch, dim=0), velocity.repeat(count, 1)], dim=1)
    repeated = coarse.values.repeat(count, *[1] * (coarse.values.ndim - 1))
    found = refiner(energy, coarse.with_values(repeated), xi)  # (S * B)
    after = found.energy_after.reshape(count, batch)
    best = torch.where(torch.isfinite(after), after, math.inf).argmin(dim=0)
    rows = best * batch + torch.arange(batch, device=best.device)
    before, after = found.energy_before[rows], found.energy_after[rows]
    return Refinement(group.wrap(found.xi[rows]), before, after, count * found.evaluations)


def start_grid(group: Group) -> Tensor:
    """Starts ``(restarts, spatial)`` on an even grid over the periodic coordinates."""
    count = STARTS[group.spatial]
    periods = group.periods[: group.spatial]
    lines = [[period * (i / count - 0.5) for i in range(count)] for period in periods]
    return torch.tensor(list(itertools.product(*lines)), dtype=torch.float64)


# --- rows -----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class LieLACRow:
    """One row: which energy, what is searched for, whether the operator was fine-tuned."""

    name: str
    title: str
    energy: Literal["gaussian", "neighbours"] = "gaussian"
    free: bool = False  # velocities are searched for too; else they are read off the field
    refiner: Refiner = NEWTON
    finetuned: bool = False
    oracle: bool = False  # the true frame instead of a search: the least error that is possible


ROWS = (
    LieLACRow("lielac", "LieLAC, Gaussian energy"),
    LieLACRow("lielac-adam", "LieLAC, Gaussian energy, Adam", refiner=ADAM),
    LieLACRow("lielac-free", "LieLAC, velocity searched too", free=True),
    LieLACRow("lielac-neighbours", "LieLAC, nearest neighbours", energy="neighbours"),
    LieLACRow("lielac-ft", "LieLAC, Gaussian energy, fine-tuned", finetuned=True),
    LieLACRow("lielac-oracle", "frozen FNO in the true frame", oracle=True),
)
NAMES = [row.name for row in ROWS]


def run(scope: Scope, rows: Sequence[str], seeds: Sequence[int]) -> Outcome:
    """Score every row that is missing, seed by seed; each is stored before the next begins."""
    chosen = [row for row in ROWS if row.name in choose(rows, NAMES, "row")]
    jobs = [
        (trained.identity | {"model": row.name}, partial(score_row, scope, trained, row))
        for trained in scope.trained_rows(["fno"], seeds, ["fno"])
        for row in chosen
    ]
    file = results_file(scope.places.results, scope.benchmark.name)
    return Outcome(file.path, [errors_table(scope, scope.measured(file, jobs))], [])


def score_row(scope: Scope, trained: TrainedRow, row: LieLACRow) -> Result:
    """One row of results, and what the search cost and missed."""
    task, own = scope.task, trained.trained
    energy = fit(task, row.energy, scope.pairs("train", grid="id").input, free=row.free)
    frame: Frame = EnergyFrame(task.group, energy, row.refiner)
    seconds, finished = own.train_seconds, own.finished
    if row.finetuned:
        run, config = scope.run_folder(row.name, trained.seed), finetune_config(own.config)
        own_data, start = CanonicalSource(scope.dataset, frame, task), copy.deepcopy(own.model)
        scope.train(config, run, own_data, start)  # a copy: training changes it
        own = load_run(run)
        seconds, finished = seconds + own.train_seconds, own.finished
    model = with_frame(own.model, task, task.slice.frame() if row.oracle else frame)
    words = f"{scope.benchmark.name} --preset {scope.preset} --rows {row.name}"
    result: Result = {"problem": scope.benchmark.name, "title": row.title}
    result |= score(model, task, scope.dataset, "oracle" if row.oracle else "one-shot")
    if not row.oracle:
        result |= search_report(task, energy, row.refiner, scope.pairs("test_ood"))
    errors = f"ID {result['id_error']:.4f}, OOD {result['ood_error']:.4f}"
    scope.say(f"{row.name} seed {trained.seed}: {errors}")
    result |= {"train_seconds": round(seconds, 1), "finished": finished} | machine(model)
    return result | {"command": f"pacefno study lielac {words} --seeds {trained.seed}"}


def search_report(
    task: Task, energy: InputEnergy, refiner: Refiner, moved: Pairs
) -> dict[str, Any]:
    """Evaluations of the energy for each sample, seconds, and how often the search missed.

    It missed where the true frame has a lower energy. Where it has not and the frame is wrong all
    the same, the energy is at fault.
    """
    evaluations, missed, seconds = 0, 0, 0.0
    for rows in batches(len(moved)):
        field = Field(moved.input[rows], task.input)
        started = time.perf_counter()
        found = search(energy, task.group, field, refiner)
        seconds += time.perf_counter() - started
        evaluations = max(evaluations, found.evaluations)
        with torch.no_grad():
            residual = energy.residual(energy.features.coarse(field), moved.elements[rows])
        missed += int((energy_of(residual) < 0.999 * found.energy_after).sum())
    costs = {"energy_evaluations": evaluations, "search_seconds": round(seconds, 3)}
    return costs | {"search_missed": missed / len(moved)}


# --- fine-tuning ----------------------------------------------------------------------------------


def finetune_config(config: RunConfig) -> RunConfig:
    """A short, slow training on the full grid that goes on from finished weights."""
    schedule = config.schedule
    epochs = max(1, round(EPOCH_SHARE * schedule.epochs))
    changes = {"epochs": epochs, "rate": RATE_SHARE * schedule.rate, "coarse": 0.0}
    return config.model_copy(update={"schedule": schedule.model_copy(update=changes)})


@final
@dataclass(frozen=True)
class CanonicalSource:
    """The samples of a source, inputs and targets pulled back by the frame of each input."""

    source: Source
    frame: Frame
    task: Task

    def load(self, split: str, grid: Grid = "id") -> Pairs:
        pairs = load_pairs(self.source, split, grid)
        parts = [self.pull_back(pairs.select(rows)) for rows in batches(len(pairs))]
        return Pairs(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))

    def pull_back(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        field, group = Field(pairs.input, self.task.input), self.task.group
        xi = self.frame(field).xi
        target = group.inverse(Field(pairs.target, self.task.output), xi)
        return group.inverse(field, xi).values, target.values


def errors_table(scope: Scope, rows: list[Result]) -> Table:
    """The rows beside those that they should be compared with: accuracy, evaluations, seconds."""
    known = grouped(rows, "model")
    shown = [known[name] for name in (*COMPARED, *NAMES) if name in known]
    groups = {str(own[0].get("title", own[0]["model"])): own for own in shown}
    costs = {
        "evaluations": "energy_evaluations",
        "pass, s": "ood_seconds",
        "training, s": "train_seconds",
        "missed": "search_missed",
    }
    title = f"{scope.benchmark.title}, preset {scope.preset}: LieLAC"
    return Table.over_seeds(title, groups, costs)
