"""What a study works on: a benchmark at a preset, its finished runs, and samples of its dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from pacefno.checkpoint import FINAL
from pacefno.data import PairDataset, Pairs, Source
from pacefno.data.samples import Grid
from pacefno.errors import UsageError
from pacefno.fields import Field, FieldType
from pacefno.files import sha256_of
from pacefno.frames import AdamRefiner, Energy, Frame, GaussNewton
from pacefno.inference import BATCH, Inference
from pacefno.metrics import canonical_error, relative_l2
from pacefno.pace import PACE
from pacefno.paper.bench import DATA_SEED, Places, load_row, prepare_data, run_folder
from pacefno.paper.benchmarks import Benchmark, benchmark_named, field_benchmarks
from pacefno.paper.presets import config_for, trained_as
from pacefno.paper.rows import row_named
from pacefno.paper.studies._cells import FOLDER, Cell, Say, StudyFile, throttled
from pacefno.registry import unknown
from pacefno.task import Task
from pacefno.train.config import RunConfig
from pacefno.train.evaluate import Trained
from pacefno.train.loop import Callbacks, Progress, check_settings, is_finished, train


@final
@dataclass(frozen=True)
class Scope:
    """The benchmark, the preset and the places of a study, and who is told of its progress."""

    benchmark: Benchmark
    preset: str
    places: Places
    say: Say = lambda text: None
    data_seed: int = DATA_SEED
    _read: dict[tuple[Any, ...], Pairs] = field(default_factory=dict)

    @property
    def task(self) -> Task:
        return self.benchmark.task

    @cached_property
    def dataset(self) -> PairDataset:
        """The dataset of the tables; made first where it is missing."""
        tell = throttled(self.say)

        def on_progress(done: int, total: int) -> None:
            tell(f"dataset: {done} of {total} samples")

        what = (self.benchmark, self.preset, self.places.data, self.data_seed)
        found = prepare_data(*what, on_progress)
        assert isinstance(found, PairDataset)
        return found

    def pairs(self, split: str, count: int | None = None, grid: Grid = "ood") -> Pairs:
        """A split, or its first samples; read once."""
        if (split, count, grid) not in self._read:
            self._read[split, count, grid] = self.dataset.load(split, grid, count)
        return self._read[split, count, grid]

    def file(self, study: str, *key: str, detail: str = "") -> StudyFile:
        """Where the cells of a study are kept."""
        return StudyFile(self.places.results / FOLDER, study, self.benchmark.name, key, detail)

    def run_folder(self, name: str, seed: int) -> Path:
        """The folder of a training."""
        return run_folder(self.places.runs, self.benchmark.name, name, self.preset, seed)

    def trained_rows(self, rows: Sequence[str], seeds: Sequence[int]) -> list[TrainedRow]:
        """The rows whose training is finished, seed by seed; those left out are named."""
        found, missing = [], []
        for seed in seeds:
            for row in rows:
                training = trained_as(self.benchmark, row)
                run = self.run_folder(training, seed)
                if is_finished(run):
                    check_settings(run, config_for(self.benchmark, training, self.preset, seed))
                    found.append(TrainedRow(self, row, seed, run))
                else:
                    missing.append(f"{row} seed {seed}")
        words = f"{self.benchmark.name} --preset {self.preset} --models {','.join(rows)}"
        trains = f"`pacefno bench {words} --seeds {','.join(map(str, seeds))}` trains them"
        if not found:
            where = self.places.runs
            raise UsageError(f"{where} holds no finished training of {', '.join(rows)}: {trains}")
        if missing:
            self.say(f"left out, not trained yet: {', '.join(missing)}; {trains}")
        return found

    def train(
        self,
        config: RunConfig,
        run: Path,
        source: Source | None = None,
        initial: PACE | None = None,
    ) -> None:
        """Train a run, go on with it, or leave it if it is finished with these settings."""
        tell = throttled(self.say)

        def on_epoch(now: Progress) -> None:
            best = f"best validation error {now.best_error:.4f}"
            tell(f"{run.name}: epoch {now.epoch} of {config.schedule.epochs}, {best}")

        if not is_finished(run):
            callbacks = Callbacks(on_epoch=on_epoch, on_message=self.say)
            data = source or self.dataset
            train(config, data, run, resume=True, callbacks=callbacks, initial=initial)
        check_settings(run, config)


@final
@dataclass(frozen=True)
class TrainedRow:
    """A row of the tables with the finished run that it takes its weights from."""

    scope: Scope
    name: str
    seed: int
    run: Path

    @property
    def inference(self) -> Inference:
        return row_named(self.scope.benchmark.rows, self.name).inference

    @cached_property
    def identity(self) -> Cell:
        """What tells the cells of this row from others; other weights make a cell anew."""
        labels = {"preset": self.scope.preset, "model": self.name, "seed": self.seed}
        return labels | {"weights": weights_name(self.run)}

    @cached_property
    def trained(self) -> Trained:
        """The model with what is known about its training, read once."""
        return load_row(self.run, self.scope.benchmark, self.name)


def make_scope(benchmark: str, preset: str, places: Places, say: Say) -> Scope:
    """The scope of a study; benchmarks of trajectories are refused, studies work on pairs."""
    choose([benchmark], [known.name for known in field_benchmarks()], "benchmark of a study")
    return Scope(benchmark_named(benchmark), preset, places, say)


def choose(names: Sequence[str], allowed: Sequence[str], what: str) -> list[str]:
    """The names if they are all allowed; without any, all that are."""
    for name in names:
        if name not in allowed:
            raise UsageError(unknown(what, name, allowed))
    return list(names or allowed)


def weights_name(run: Path) -> str:
    """A short name of a run's weights."""
    return sha256_of(run / FINAL)[:16]


def batches(count: int) -> list[slice]:
    """Which samples are computed together."""
    return [slice(start, start + BATCH) for start in range(0, count, BATCH)]


def with_frame(model: PACE, task: Task, frame: Frame, output: FieldType | None = None) -> PACE:
    """The operator of a model in another frame."""
    return PACE(
        model.operator,
        task.group,
        input=task.input,
        output=output or task.output,
        frame=frame,
        on_undetermined="ignore",
    ).eval()


def errors_of(task: Task, pairs: Pairs, prediction: Tensor) -> tuple[Tensor, Tensor]:
    """Relative errors of moved samples as they are, and with the motion removed; ``(B,)``."""
    group, each = task.group, task.per_channel
    plain = relative_l2(prediction, pairs.target, per_channel=each)
    canonical = canonical_error(
        group, task.output, pairs.elements, prediction, pairs.target, per_channel=each
    )
    return plain.double(), canonical.double()


class RefinementPath(NamedTuple):
    """Frames ``(S, B, size)`` and energies ``(S, B)`` after each number of steps."""

    steps: tuple[int, ...]
    xi: Tensor
    energy: Tensor


def refinement_path(
    refiner: GaussNewton | AdamRefiner, energy: Energy, start: Field, xi: Tensor, *steps: int
) -> RefinementPath:
    """What a refiner returns when stopped after so many steps: one path, as it is deterministic."""
    found = [replace(refiner, steps=count)(energy, start, xi) for count in steps]
    frames, energies = [one.xi for one in found], [one.energy_after for one in found]
    return RefinementPath(steps, torch.stack(frames), torch.stack(energies))
