"""What studies share: cells that are measured once, finished runs, tables of means over seeds.

A cell is a plain dictionary in ``results/studies/STUDY-BENCHMARK.json``: what identifies it, the
weights that it was measured with, and the measured values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, final

import torch
from torch import Tensor

from pacefno.data import PairDataset, Pairs, Source
from pacefno.data.samples import Grid
from pacefno.errors import UsageError
from pacefno.fields import Field, FieldType
from pacefno.frames import AdamRefiner, Energy, Frame, GaussNewton
from pacefno.inference import BATCH, Inference
from pacefno.metrics import canonical_error, relative_l2
from pacefno.pace import PACE
from pacefno.paper import DATA_SEED
from pacefno.paper.bench import (
    Places,
    Result,
    ResultsFile,
    Say,
    load_row,
    prepare_data,
    run_folder,
    weights_digest,
)
from pacefno.paper.benchmarks import Benchmark, benchmark_named, field_benchmarks
from pacefno.paper.presets import config_for, trained_as
from pacefno.paper.rows import row_named
from pacefno.paper.studies import STUDIES, study_module
from pacefno.paper.style import Drawing, statistic
from pacefno.registry import unknown
from pacefno.task import Task
from pacefno.train.config import RunConfig
from pacefno.train.evaluate import Trained, load_run
from pacefno.train.loop import Callbacks, Progress, check_settings, is_finished, train

Cell: TypeAlias = Result
Job: TypeAlias = tuple[Cell, Callable[[], Cell]]  # what identifies a cell, and its measurement
Refiner: TypeAlias = GaussNewton | AdamRefiner
Show: TypeAlias = Callable[[str, int, int, str], None]  # what is done, how much, of how much, note

FOLDER = "studies"  # below a folder of results
DIGITS = 7  # of a stored number: what float32 holds
ERRORS = {  # titles of columns, with the entries of a cell that they show
    "OOD, canonical": "ood_error_canonical",
    "OOD": "ood_error",
    "ID": "id_error",
    "equivariance": "equivariance_error",
}


def hide(title: str, done: int, total: int, note: str) -> None:
    """Show nothing of how much is done."""


# --- cells ----------------------------------------------------------------------------------------


def study_file(
    folder: Path, study: str, benchmark: str, *key: str, detail: str = ""
) -> ResultsFile:
    """The cells of a study of a benchmark; ``detail`` is a part with a file of its own."""
    path = folder / f"{'-'.join(filter(None, (study, benchmark, detail)))}.json"
    return ResultsFile(path, key, {"study": study, "problem": benchmark}, "cells")


def read_cells(path: Path) -> list[Cell]:
    """The cells of a study file; none if there is no such file."""
    return ResultsFile(path, (), {}, "cells").read()


def fill(file: ResultsFile, jobs: Iterable[Job], show: Show = hide) -> list[Cell]:
    """Measure what is missing, each cell stored before the next is begun; all cells.

    A cell is missing if it is not there, or was measured with other weights or settings.
    """
    known = {file.key_of(cell): cell for cell in file.read()}
    missing = []
    for identity, measure in jobs:
        found = known.get(file.key_of(identity), {})
        if found | rounded(identity) != found:
            missing.append((identity, measure))
    for done, (identity, measure) in enumerate(missing):
        show(file.path.stem, done, len(missing), "")
        cell = identity | measure()
        file.add([rounded(cell) if file.entry == "cells" else cell])  # rows of tables keep all
    if missing:
        show(file.path.stem, len(missing), len(missing), "")
    return file.read()


def rounded(value: Any) -> Any:
    """Plain data with floats of seven digits, in files that people can read."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def grouped(cells: Iterable[Cell], *keys: str) -> dict[Any, list[Cell]]:
    """Cells by the value of an entry (of several: by a tuple), in the order of appearance."""
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        values = tuple(cell[key] for key in keys)
        groups.setdefault(values if len(keys) > 1 else values[0], []).append(cell)
    return groups


# --- what a study tells at its end ----------------------------------------------------------------


class Table(NamedTuple):
    """A table to print: its title, the titles of its columns, and rows of text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @classmethod
    def over_seeds(
        cls,
        title: str,
        groups: Mapping[str, list[Cell]],
        means: Mapping[str, str],
        errors: Mapping[str, str] = ERRORS,
    ) -> Table:
        """One line for each group: errors with their spread over seeds, the rest as means.

        ``errors`` and ``means`` are titles of columns with the entries of a cell that they show.
        """
        lines = []
        for name, own in groups.items():
            spreads = [str(statistic(own, key) or "–") for key in errors.values()]
            rest = [statistic(own, key) for key in means.values()]
            texts = ["" if value is None else f"{value.mean:.4g}" for value in rest]
            lines.append([name, *spreads, *texts, str(len(own))])
        return cls(title, ["row", *errors, *means, "seeds"], lines)


class Outcome(NamedTuple):
    """What a study returns: the file that holds every number, and what to print and to save."""

    path: Path | None
    tables: list[Table]
    drawings: list[Drawing]
    sentences: Sequence[str] = ()


# --- what a study works on ------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Scope:
    """The benchmark, the preset and the places of a study, and who is told of its progress.

    ``say`` is given lines of text, ``show`` how much of some work is done.
    """

    benchmark: Benchmark
    preset: str
    places: Places
    say: Say = lambda text: None
    show: Show = hide
    data_seed: int = DATA_SEED
    _read: dict[tuple[Any, ...], Pairs] = field(default_factory=dict)

    @property
    def task(self) -> Task:
        return self.benchmark.task

    @cached_property
    def dataset(self) -> PairDataset:
        """The dataset of the tables; made first where it is missing."""

        def on_progress(done: int, total: int) -> None:
            self.show(f"data of {self.benchmark.name}", done, total, "")

        what = (self.benchmark, self.preset, self.places.data, self.data_seed)
        found = prepare_data(*what, on_progress)
        assert isinstance(found, PairDataset)
        return found

    def pairs(self, split: str, count: int | None = None, grid: Grid = "ood") -> Pairs:
        """A split, or its first samples; read once."""
        if (split, count, grid) not in self._read:
            self._read[split, count, grid] = self.dataset.load(split, grid, count)
        return self._read[split, count, grid]

    def errors(self, pairs: Pairs, prediction: Tensor) -> tuple[Tensor, Tensor]:
        """Relative errors of moved samples as they are, and with the motion removed; ``(B,)``."""
        group, type, each = self.task.group, self.task.output, self.task.per_channel
        plain = relative_l2(prediction, pairs.target, per_channel=each)
        moved = pairs.elements, prediction, pairs.target
        return plain.double(), canonical_error(group, type, *moved, per_channel=each).double()

    def file(self, study: str, *key: str, detail: str = "") -> ResultsFile:
        """Where the cells of a study are kept."""
        folder = self.places.results / FOLDER
        return study_file(folder, study, self.benchmark.name, *key, detail=detail)

    def measured(self, file: ResultsFile, jobs: Iterable[Job], **asked: Any) -> list[Cell]:
        """The cells of this preset with the entries ``asked``; missing ones are measured first."""
        cells = fill(file, [(identity | asked, measure) for identity, measure in jobs], self.show)
        wanted = rounded({"preset": self.preset} | asked)
        return [cell for cell in cells if cell | wanted == cell]

    def identity(self, run: Path, seed: int, **what: Any) -> Cell:
        """What tells a cell about a run from others; other weights make it anew."""
        return {"preset": self.preset, **what, "seed": seed, "weights": weights_digest(run)}

    def run_folder(self, name: str, seed: int) -> Path:
        """The folder of a training."""
        return run_folder(self.places.runs, self.benchmark.name, name, self.preset, seed)

    def trained_rows(
        self, names: Sequence[str], seeds: Sequence[int], allowed: Sequence[str]
    ) -> list[TrainedRow]:
        """Rows whose training is finished, seed by seed; those left out are named."""
        rows, found, missing = choose(names, allowed, "row"), [], []
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

        def on_epoch(now: Progress) -> None:
            best = f"best validation error {now.best_error:.4f}"
            self.show(run.name, now.epoch, config.schedule.epochs, best)

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
        row = row_named(self.scope.benchmark.rows, self.name)
        return self.scope.benchmark.way(row.inference)

    @cached_property
    def identity(self) -> Cell:
        """What tells the cells of this row from others."""
        return self.scope.identity(self.run, self.seed, model=self.name)

    @cached_property
    def trained(self) -> Trained:
        """The model with what is known about its training, read once."""
        return load_row(self.run, self.scope.benchmark, self.name)


def run_study(name: str, places: Places, say: Say, show: Show = hide, **given: Any) -> Outcome:
    """Measure what a study has not measured yet; settings that are not given are the usual ones.

    A study is about a benchmark at a preset, or about one finished run of a benchmark.
    """
    settings = {key: one.default for key, one in STUDIES[name].settings.items()} | given
    if "run" in settings:
        scope = scope_of_run(settings["run"], places, say)
    else:
        scope = make_scope(settings.pop("benchmark"), settings.pop("preset"), places, say)
    outcome: Outcome = study_module(name).run(replace(scope, show=show), **settings)
    return outcome


def study_drawings(folders: Sequence[Path], benchmark: Benchmark, preset: str) -> list[Drawing]:
    """The figures of every study of a benchmark, from its files in folders of results.

    Of the same study in two folders the last is taken.
    """
    drawings: list[Drawing] = []
    for name in (name for name, study in STUDIES.items() if study.figure):
        cells = study_cells(name, folders, benchmark, preset)
        drawings += study_module(name).draw(benchmark, cells) if cells else []
    return drawings


def study_cells(
    study: str, folders: Sequence[Path], benchmark: Benchmark, preset: str
) -> list[Cell]:
    """The cells of a study of a benchmark at a preset, from the last folder that has any."""
    stem, cells = f"{study}-{benchmark.name}", list[Cell]()
    for folder in folders:
        paths = [folder / FOLDER / f"{stem}.json"]  # or one file for each row, STEM-ROW.json
        paths += sorted((folder / FOLDER).glob(f"{stem}-*.json"))
        found = [cell for path in paths for cell in read_cells(path)]
        cells = [cell for cell in found if cell.get("preset") == preset] or cells
    return cells


def make_scope(benchmark: str, preset: str, places: Places, say: Say) -> Scope:
    """The scope of a study; benchmarks of trajectories are refused, studies work on pairs."""
    choose([benchmark], [known.name for known in field_benchmarks()], "benchmark of a study")
    return Scope(benchmark_named(benchmark), preset, places, say)


def scope_of_run(run: Path, places: Places, say: Say) -> Scope:
    """The scope of a study of one run, which must be finished and have been made by a benchmark."""
    loaded = load_run(run)
    if not loaded.finished:
        raise UsageError(f"{run} is not finished: go on with pacefno train ... --resume first")
    labels = loaded.config.labels
    if not {"problem", "model", "preset"} <= labels.keys():
        reason = "the study needs the moved test samples of one"
        raise UsageError(f"{run} is not the run of a benchmark: {reason}")
    return make_scope(labels["problem"], labels["preset"], places, say)


def choose(names: Sequence[str], allowed: Sequence[str], what: str) -> list[str]:
    """The names if they are all allowed; without any, all that are."""
    for name in names:
        if name not in allowed:
            raise UsageError(unknown(what, name, allowed))
    return list(names or allowed)


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


class RefinementPath(NamedTuple):
    """Frames ``(S, B, size)`` and energies ``(S, B)`` after each number of steps."""

    steps: tuple[int, ...]
    xi: Tensor
    energy: Tensor


def refinement_path(
    refiner: Refiner, energy: Energy, start: Field, xi: Tensor, *steps: int
) -> RefinementPath:
    """What a refiner returns when stopped after so many steps: one path, as it is deterministic."""
    found = [replace(refiner, steps=count)(energy, start, xi) for count in steps]
    frames, energies = [one.xi for one in found], [one.energy_after for one in found]
    return RefinementPath(steps, torch.stack(frames), torch.stack(energies))
