"""What commands share about runs: their options, what a run says of itself, and its data."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
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
    str | None,
    typer.Option(
        "--model",
        help="An operator of your own: the module:Class that the run was trained with; of a saved "
        "model module:attribute, a module or a function without parameters that builds it.",
        show_default=False,
    ),
]
ArrayName = Annotated[str, typer.Option(help="Name of the array in the file.")]
BenchmarkFolder = Annotated[Path, typer.Option(help="Of a benchmark: where datasets are kept.")]


def import_operators(models: Iterable[str] | None) -> None:
    """Import the classes of the user's that ``--model`` named, alone or as ``row:module:Class``."""
    from pacefno.train.defaults import import_operator, own_operator

    for model in models or ():
        import_operator(own_operator(model))


def run_labels(run: Path, model: str | None) -> dict[str, str]:
    """What a run says about itself; a class of the user's is imported if they named it."""
    from pacefno.checkpoint import CheckpointError
    from pacefno.inference import read_model

    if model is not None and ":" in model:
        import_operators([model])
    checkpoint, _ = read_model(run)
    if "config" not in checkpoint.documents:
        raise CheckpointError(run, "is a saved model and not a run: it does not say what it learnt")
    labels = checkpoint.documents["config"].get("labels", {})
    return {str(key): str(value) for key, value in labels.items()}


def load_own(run: Path, model: str | None) -> tuple[Trained, Row | None]:
    """A run on one's own data as it was trained, or as another row with the same weights."""
    from pacefno.train.evaluate import load_as, load_run
    from pacefno.train.rows import FIELD_ROWS

    trained = run_labels(run, model)["model"]
    if model is None or ":" in model:
        return load_run(run), FIELD_ROWS.get(trained)
    return load_as(run, FIELD_ROWS, model), FIELD_ROWS[model]


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


SPLIT = ("split", "seed", "split_by", "samples", "validation_file", "test_file")  # in [data]


def warn_if_changed(run: Path, document: Path) -> None:
    """Say so if a run was trained on this task.toml when another text was in it, or on another
    split of the same file.
    """
    settings = run / "config.json"
    if not settings.is_file() or not document.is_file():
        return
    labels = json.loads(settings.read_text()).get("labels", {})
    if "task_document" not in labels:
        return
    own = Path(labels["task_file"]), run / labels["task_file_from_run"]
    same = document.resolve() in [path.resolve() for path in own]
    if same and document.read_text() != labels["task_document"]:
        say(
            f"warning: {document} was changed since {run} was trained: if its split is another "
            "now, samples of the training may be among those of the test"
        )
    if same or document.suffix != ".toml":
        return
    trained, given = (
        tomllib.loads(text).get("data", {})
        for text in (labels["task_document"], document.read_text())
    )
    places = ((own[0], trained), (own[1], trained), (document, given))
    *files, file = ((place.parent / str(table.get("file"))).resolve() for place, table in places)
    other = [key for key in SPLIT if trained.get(key) != given.get(key)]
    if file in files and other:
        say(
            f"warning: {document} splits {file.name} in another way than {run} was trained with "
            f"({', '.join(other)}): samples of the training may be among those of the test"
        )


def open_own(run: Path, labels: dict[str, str], data: Path | None) -> tuple[Task, FileSource]:
    """The samples that a run was trained on, where they are now, or those of another task.toml."""
    from pacefno.data.own import open_document, open_task

    if data is not None:
        warn_if_changed(run, data)
        return open_task(data)
    stored = Path(labels["task_file"]), run / labels["task_file_from_run"]
    for path in stored:
        if path.is_file():
            warn_if_changed(run, path)
            return open_task(path)
    for path in stored:  # the document is in the run as well: the data may still be there
        if path.parent.is_dir():
            return open_document(tomllib.loads(labels["task_document"]), path.parent)
    raise UsageError(
        f"{run} was trained on {stored[0]}, which is not there any more: say where with "
        "--data task.toml"
    )


def own_moves(task: Task, source: FileSource) -> Moves:
    """How far test samples are moved: as their document says, or as far as is usual."""
    from pacefno.fields import Field
    from pacefno.train.evaluate import Moves, default_moves, own_batches

    if (ood := source.ood) is not None:
        return Moves(ood.low, ood.high, ood.seed, ood.inexact)
    if task.group.size:
        say("the task has no table [ood]: samples are moved by up to half a period, and boosted")
    few = next(own_batches(task, source))
    return default_moves(task, Field(few.input, task.input, few.box))


def score_own_run(run: Path, model: str | None, data: Path | None) -> dict[str, Any]:
    """The errors of a run on held-out samples of the user's own."""
    trained, row = load_own(run, model)
    task, source = open_own(run, trained.config.labels, data)
    return score_loaded(trained, row, source, own_moves(task, source), model)


def score_loaded(
    trained: Trained, row: Row | None, source: FileSource, moves: Moves, model: str | None = None
) -> dict[str, Any]:
    """The errors of a model on the test samples of a file, at rest and moved."""
    from pacefno.data.own import check_same_task
    from pacefno.train.evaluate import machine, score_own

    config, labels, task = trained.config, trained.config.labels, source.task
    check_same_task(config.task, task)
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
