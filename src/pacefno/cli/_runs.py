"""What commands share about runs: their options, what a run says of itself, and its data."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacefno.cli._console import Display, say
from pacefno.errors import UsageError
from pacefno.paper import BENCHMARK_NAMES, PRESETS

if TYPE_CHECKING:
    from pacefno.data.own import FileSource
    from pacefno.data.samples import Source
    from pacefno.paper.benchmarks import Benchmark
    from pacefno.task import Task
    from pacefno.train.evaluate import Moves, Trained
    from pacefno.train.rows import Row

NAMES = ", ".join(BENCHMARK_NAMES)
DATASETS = Path("datasets")
BenchmarkName = Annotated[
    str, typer.Argument(help=f"Which benchmark: {NAMES}.", show_default=False)
]
PresetName = Annotated[str, typer.Option(help=f"How long and how large: {', '.join(PRESETS)}.")]
DataFolder = Annotated[
    Path, typer.Option(help="Folder under which datasets are kept; a missing one is generated.")
]
DataSeed = Annotated[int, typer.Option(help="Seed of the dataset.")]
RunFolder = Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)]
ModelFolder = Annotated[
    Path, typer.Argument(help="The folder of a run or of a saved model.", show_default=False)
]
OperatorClass = Annotated[
    str | None, typer.Option(help="The module:Class that the run was trained with.")
]
ArrayName = Annotated[str, typer.Option(help="Name of the array in the file.")]
BenchmarkFolder = Annotated[Path, typer.Option(help="Of a benchmark: where datasets are kept.")]


def run_labels(run: Path, model: str | None) -> dict[str, str]:
    """What a run says about itself; a class of the user's is imported if they named it."""
    from pacefno.checkpoint import CheckpointError
    from pacefno.inference import read_model
    from pacefno.train.defaults import import_operator
    from pacefno.train.rows import FIELD_ROWS

    if model and ":" in model:
        name, _, rest = model.partition(":")
        import_operator(rest if name in FIELD_ROWS else model)
    checkpoint, _ = read_model(run)
    if "config" not in checkpoint.documents:
        raise CheckpointError(run, "is a saved model and not a run: it does not say what it learnt")
    labels = checkpoint.documents["config"].get("labels", {})
    return {str(key): str(value) for key, value in labels.items()}


def load_own(run: Path, model: str | None) -> tuple[Trained, Row | None]:
    """A run on one's own data as it was trained, or as another row with the same weights."""
    from pacefno.train.defaults import frame_spec
    from pacefno.train.evaluate import load_run
    from pacefno.train.rows import FIELD_ROWS, row_named

    run_labels(run, model)
    own = load_run(run)
    trained = own.config.labels["model"]
    if model is None or ":" in model or model == trained:
        return own, FIELD_ROWS.get(trained)
    row = row_named(FIELD_ROWS, model)
    if row.trained_as != trained:
        raise UsageError(
            f"{model!r} does not use the weights of {trained!r}, which is what {run} trained"
        )
    frame = frame_spec(row, own.config.task)
    return (own if frame == own.config.frame else load_run(run, frame)), row


# --- data -----------------------------------------------------------------------------------------


def benchmark_data(
    benchmark: Benchmark, preset: str, root: Path = DATASETS, seed: int = 42
) -> Source:
    """The dataset of a benchmark, made first where it is missing, with a bar that shows it."""
    from pacefno.paper.bench import prepare_data

    with Display(f"data of {benchmark.name}") as display:
        return prepare_data(benchmark, preset, root, seed, display)


def data_of_run(
    run: Path, labels: dict[str, str], data: Path | None = None, seed: int = 42, todo: str = ""
) -> tuple[Task, Source]:
    """The task and the samples that a run was trained on.

    ``data`` is where they are now: of one's own data another task.toml, of a benchmark the folder
    of datasets. ``todo`` is what to do about a run that does not say what it was trained on.
    """
    from pacefno.paper.benchmarks import benchmark_named

    if "task_document" in labels:
        return open_own(run, labels, data)
    if missing := {"problem", "preset", "model"} - set(labels):
        raise UsageError(
            f"{run} does not say on which benchmark it was trained: its labels have no "
            f"{', '.join(sorted(missing))}; {todo}"
        )
    benchmark = benchmark_named(labels["problem"])
    return benchmark.task, benchmark_data(benchmark, labels["preset"], data or DATASETS, seed)


def open_own(run: Path, labels: dict[str, str], data: Path | None) -> tuple[Task, FileSource]:
    """The samples that a run was trained on, where they are now, or those of another task.toml."""
    from pacefno.data.own import open_document, open_task

    if data is not None:
        return open_task(data)
    stored = Path(labels["task_file"]), run / labels["task_file_from_run"]
    for path in stored:
        if path.is_file():
            return open_task(path)
    for path in stored:  # the document is in the run as well: the data may still be there
        if path.parent.is_dir():
            return open_document(tomllib.loads(labels["task_document"]), path.parent)
    raise UsageError(
        f"{run} was trained on {stored[0]}, which is not there any more: say where with "
        "--data task.toml"
    )


def own_moves(source: FileSource) -> Moves | None:
    """How far the document of a source says that test samples are moved; None if it does not."""
    from pacefno.train.evaluate import Moves

    ood = source.ood
    return None if ood is None else Moves(ood.low, ood.high, ood.seed, ood.inexact)


def score_own_run(run: Path, model: str | None, data: Path | None) -> dict[str, Any]:
    """The errors of a run on held-out samples of the user's own."""
    from pacefno.data.own import check_same_task
    from pacefno.train.evaluate import machine, score_own

    trained, row = load_own(run, model)
    config, (task, source) = trained.config, open_own(run, trained.config.labels, data)
    check_same_task(config.task, task)
    moves = own_moves(source)
    if moves is None and task.group.size:
        say("the task has no table [ood]: samples are moved by up to half a period, and boosted")
    labels = config.labels
    result: dict[str, Any] = {
        "problem": task.name,
        "model": model if model and ":" not in model else labels["model"],
        "seed": config.seed,
        "preset": labels["preset"],
    }
    inference = row.inference if row is not None else "one-shot"
    result |= score_own(trained.model, task, source, moves=moves, inference=inference)
    result["train_seconds"] = round(trained.train_seconds, 1)
    result["finished"] = trained.finished
    return result | machine(trained.model)
