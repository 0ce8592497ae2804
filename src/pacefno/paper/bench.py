"""The work behind a table: data, training and scores, in an order in which a stop costs little."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, final

from pacefno.checkpoint import FINAL
from pacefno.data import prepare
from pacefno.data.samples import Source
from pacefno.data.workers import run_jobs
from pacefno.errors import UsageError
from pacefno.files import lock_folder, make_folder, sha256_of, write_text
from pacefno.paper import DATA_SEED, SEEDS
from pacefno.paper.benchmarks import Benchmark, benchmark_named
from pacefno.paper.presets import config_for, data_digest, data_preset, has_preset, trained_as
from pacefno.paper.rows import listed, row_named
from pacefno.train.evaluate import Trained, load_as, machine, score
from pacefno.train.loop import Callbacks, check_settings, is_finished, read_log, train

Say: TypeAlias = Callable[[str], None]  # is told about progress, a line at a time
Result: TypeAlias = dict[str, Any]  # one row of results/*.json, or one cell of a study
KEY = ("preset", "model", "seed")


# --- results as data ------------------------------------------------------------------------------


class ResultsError(UsageError):
    """A results file that cannot be read; the message names it."""


@final
@dataclass(frozen=True)
class ResultsFile:
    """A JSON file with a list of results that several processes may add to at the same time.

    ``key`` names the entries that tell one result from another, ``entry`` the list in the document,
    and ``head`` is what the document says besides.
    """

    path: Path
    key: tuple[str, ...]
    head: dict[str, str]
    entry: str = "rows"

    def key_of(self, result: Result) -> tuple[Any, ...]:
        """What tells this result from others."""
        return tuple(result[name] for name in self.key)

    def read(self) -> list[Result]:
        """The results so far; none if there is no file yet."""
        if not self.path.exists():
            return []
        try:
            found: list[Result] = list(json.loads(self.path.read_text())[self.entry])
            for one in found:
                self.key_of(one)
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ResultsError(
                f"{self.path}: is not a results file ({error!r}): delete it, or restore it from "
                "version control"
            ) from None
        return found

    def add(self, new: Iterable[Result]) -> list[Result]:
        """Store results; one with the same key is replaced, everything else is kept."""
        make_folder(self.path.parent)
        with lock_folder(self.path.parent, wait=True):
            merged = {self.key_of(one): one for one in [*self.read(), *new]}
            ordered = [merged[key] for key in sorted(merged)]
            write_text(self.path, json.dumps(self.head | {self.entry: ordered}, indent=1) + "\n")
        return ordered


def results_file(folder: Path, benchmark: str) -> ResultsFile:
    """``folder/BENCHMARK.json``: the rows of a benchmark's table."""
    return ResultsFile(folder / f"{benchmark}.json", KEY, {"problem": benchmark})


def runtime_file(folder: Path) -> ResultsFile:
    """``folder/runtime.json``: seconds of an epoch and of an OOD pass, measured on a quiet machine
    (``benchmarks/runtime.py``); those of a training in a table may have been spent waiting.
    """
    return ResultsFile(
        folder / "runtime.json", ("problem", "preset", "model"), {"study": "runtime"}
    )


def merge_results(folder: Path, benchmark: str, new: list[Result]) -> list[Result]:
    """Add rows to a benchmark's table; one of the same preset, model and seed is replaced."""
    return results_file(folder, benchmark).add(new)


# --- the plan -------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Job:
    """One training and the rows that it serves."""

    benchmark: str
    preset: str
    seed: int
    trained: str
    rows: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.benchmark} {self.trained} seed {self.seed}"


@final
@dataclass(frozen=True)
class Places:
    """Where datasets, runs and results are kept."""

    data: Path = Path("datasets")
    runs: Path = Path("runs")
    results: Path = Path("results")


def plan(
    benchmarks: list[str], preset: str, models: list[str], seeds: list[int] | None = None
) -> list[Job]:
    """All trainings, seed by seed: a table with one seed is complete before the next begins.

    Without ``models``: all listed rows of each benchmark that have this preset. Without ``seeds``:
    the paper's, of which rows whose spread is of no interest are trained with the first.
    """
    jobs: list[Job] = []
    for name in benchmarks:
        benchmark = benchmark_named(name)
        groups: dict[str, list[str]] = {}
        usual = [n for n in listed(benchmark.rows) if has_preset(benchmark.rows[n], preset)]
        for model in models or usual:
            groups.setdefault(trained_as(benchmark, model), []).append(model)
        for seed in seeds or SEEDS:
            for trained, rows in groups.items():
                if seeds or seed == SEEDS[0] or not row_named(benchmark.rows, trained).one_seed:
                    jobs.append(Job(name, preset, seed, trained, tuple(rows)))
    return jobs


def missing_rows(job: Job, places: Places) -> list[str]:
    """The rows of a job that have no result yet; rows of another dataset are an error.

    Rows of a job share weights: where one was measured with those of the run that is there, rows
    with other weights are missing too.
    """
    file = results_file(places.results, job.benchmark)
    rows, digest = file.read(), data_digest(benchmark_named(job.benchmark), job.preset)
    for row in rows:
        if row["preset"] == job.preset and row.get("dataset", digest) != digest:
            raise ResultsError(
                f"{file.path}: {row['model']} seed {row['seed']} was measured on another dataset "
                f"of {job.benchmark} than is made now: move {places.results} and {places.runs} "
                "away, or name others with --results and --runs"
            )
    done = {file.key_of(row): row.get("weights") for row in rows}
    keys = {name: (job.preset, name, job.seed) for name in job.rows}
    run = run_folder(places.runs, job.benchmark, job.trained, job.preset, job.seed)
    own = weights_digest(run) if is_finished(run) else None
    if own and own in (done.get(key) for key in keys.values()):
        return [name for name, key in keys.items() if done.get(key) != own]
    return [name for name, key in keys.items() if key not in done]


# --- the work -------------------------------------------------------------------------------------


def run_folder(root: Path, benchmark: str, model: str, preset: str, seed: int) -> Path:
    """``root/benchmark/model-preset-seedN``."""
    return root / benchmark / f"{model}-{preset}-seed{seed}"


def prepare_data(
    benchmark: Benchmark,
    preset: str,
    root: Path,
    seed: int = DATA_SEED,
    on_progress: Callable[[int, int], None] | None = None,
) -> Source:
    """The dataset of a benchmark; made first, or finished, where it is missing."""
    return prepare(benchmark.recipe, data_preset(preset), seed, root, on_progress=on_progress)


def run_job(
    job: Job, places: Places, callbacks: Callbacks, source: Source | None = None
) -> Iterator[Result]:
    """Train (or go on, or skip) and score every missing row; each is stored before the next.

    After a training all rows of the job are scored, because results that exist already were
    measured with other weights.
    """
    benchmark = benchmark_named(job.benchmark)
    config = config_for(benchmark, job.trained, job.preset, job.seed)
    folder = run_folder(places.runs, job.benchmark, job.trained, job.preset, job.seed)
    data, rows = source or prepare_data(benchmark, job.preset, places.data), list(job.rows)
    if is_finished(folder):
        rows = missing_rows(job, places)
    else:
        train(config, data, folder, resume=True, callbacks=callbacks)
    check_settings(folder, config)
    for name in rows:
        row = score_row(folder, benchmark, name, data)
        row["dataset"] = data_digest(benchmark, job.preset)
        row["command"] = (
            f"pacefno bench {job.benchmark} --preset {job.preset} --models {name} --seeds "
            f"{job.seed}"
        )
        merge_results(places.results, job.benchmark, [row])
        yield row


def run_side_by_side(
    jobs: Sequence[Job], places: Places, processes: int, modules: Sequence[str] = ()
) -> Generator[tuple[Job, list[Result]]]:
    """:func:`run_job` in several processes of one thread each; a job is yielded when it ends.

    On the sizes of a laptop two trainings beside each other take little longer than one on two
    threads. The datasets must be there. ``modules`` are imported first, for parts and benchmarks
    from outside the package. Close the generator to end the processes; trainings then go on from
    their last checkpoint.
    """
    return run_jobs(partial(_run_alone, places, tuple(modules)), jobs, processes)


def _run_alone(places: Places, modules: tuple[str, ...], job: Job) -> tuple[Job, list[Result]]:
    for name in modules:
        importlib.import_module(name)
    return job, list(run_job(job, places, Callbacks()))


def epochs_done(jobs: Sequence[Job], places: Places) -> tuple[int, int]:
    """Epochs that the trainings of some jobs have behind them, and all that they take together."""
    done = total = 0
    for job in jobs:
        config = config_for(benchmark_named(job.benchmark), job.trained, job.preset, job.seed)
        run = run_folder(places.runs, job.benchmark, job.trained, job.preset, job.seed)
        done, total = done + len(read_log(run)), total + config.schedule.epochs
    return done, total


def load_row(run: Path, benchmark: Benchmark, model: str) -> Trained:
    """The model of a benchmark's row, from the run that trained it or whose weights it shares."""
    own = load_as(run, benchmark.rows, model)
    if (problem := own.config.labels.get("problem", "")) != benchmark.name:
        raise UsageError(f"{run} was trained on {problem!r}, this is {benchmark.name!r}")
    return own


def score_row(run: Path, benchmark: Benchmark, model: str, source: Source) -> Result:
    """One row of results from a run: its own, or another row that shares its weights."""
    own, row = load_row(run, benchmark, model), row_named(benchmark.rows, model)
    config = own.config
    labels = {"problem": benchmark.name, "model": model, "seed": config.seed}
    result: Result = labels | {"preset": config.labels.get("preset", "")}
    way = benchmark.way(row.inference)
    result |= score(own.model, config.task, source, way, ood=benchmark.ood)
    result["train_seconds"] = round(own.train_seconds, 1)
    result["finished"] = own.finished
    return result | machine(own.model) | {"weights": weights_digest(run)}


def weights_digest(run: Path) -> str:
    """A short name for the weights of a finished run: another training has another one."""
    return sha256_of(run / FINAL)[:16]


def headline(row: Result) -> str:
    """A result in a few words."""
    if "nmse" in row:
        return f"NMSE {row['nmse']:.4f}, OOD {row['ood_nmse']:.4f}"
    return f"ID {row['id_error']:.4f}, OOD {row['ood_error']:.4f}"
