"""``pacefno export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacefno.cli._console import Display, plain_errors, say
from pacefno.cli._runs import (
    DATASETS,
    ArrayName,
    BenchmarkFolder,
    ModelFolder,
    OperatorClass,
    data_of_run,
)
from pacefno.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from pacefno.data.samples import Source
    from pacefno.pace import PACE
    from pacefno.task import Task

SAMPLES = 8  # real fields on which a program is compared with its model


def export_command(
    run: ModelFolder,
    format: Annotated[
        str, typer.Option(help="pt2 (torch.export: any batch and grid) or onnx (any batch).")
    ] = "pt2",
    output: Annotated[
        Path | None,
        typer.Option(help="The file to write.", show_default="model.FORMAT in the folder"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Fields such as the program will be given, (N, C, *grid) in a file of any format "
            "that inspect reads, or a task.toml; their grid is that of an .onnx program.",
            show_default="test samples of the run",
        ),
    ] = None,
    name: ArrayName = "input",
    details: Annotated[
        bool,
        typer.Option("--details", help="Also return canonical field and coordinates of the frame."),
    ] = False,
    mover: Annotated[
        bool,
        typer.Option(
            "--mover",
            help="Write the action of the model's group instead, (field, coordinates) -> moved "
            "field: mover-input.FORMAT, and mover-output.FORMAT at the time of the output.",
        ),
    ] = False,
    datasets: BenchmarkFolder = DATASETS,
    model: OperatorClass = None,
) -> None:
    """Export a model to a file that runs without this package, and as ONNX without torch.

    The program is compared with the model before the file is written, on real fields and on random
    ones like them, and the file says what it expects. A program holds no checks: NaN makes NaN, and
    a confidence of 0 means that the frame of a sample is not determined.

    Example: pacefno export runs/burgers2d/pace-quick-seed42 --format onnx
    """
    with plain_errors():
        if format not in ("pt2", "onnx"):
            raise UsageError(f"--format: expected pt2 or onnx, got {format!r}")
        import torch

        from pacefno.auditing.foreign import load_with
        from pacefno.exporting import Mover, export
        from pacefno.inference import real_weight

        trained = load_with(run, model)
        example = _example(run, trained, data, name, datasets)
        folder = run if run.is_dir() else run.parent
        example = example.to(real_weight(trained, example).dtype)
        jobs: list[tuple[Path, nn.Module, Tensor]]
        if not mover:
            jobs = [(output or folder / f"model.{format}", trained, example)]
        else:
            if output is not None:
                raise UsageError("--mover writes two files with names of their own: no --output")
            kinds = {"input": trained.input, "output": trained.output}
            with torch.no_grad():
                rows = {"input": example, "output": trained(example)}
            jobs = [
                (folder / f"mover-{kind}.{format}", Mover(trained.group, type).eval(), rows[kind])
                for kind, type in kinds.items()
            ]
        for path, program, fields in jobs:
            with Display(f"export to {path}"):
                made = export(program, path, fields, details=details)
            compared = made.document["agreement"]["fields"]
            say(f"{path} written: {made.error:.1e} from the model (relative, {compared} fields)")


def _example(run: Path, trained: PACE, data: Path | None, name: str, datasets: Path) -> Tensor:
    """Some real fields: of a file, of a task, or the test samples of a run."""
    from pacefno.data.arrays_file import read_fields
    from pacefno.data.own import check_same_task, open_task
    from pacefno.data.samples import evenly
    from pacefno.inference import check_matches, is_run
    from pacefno.train.batches import pairs_of
    from pacefno.train.evaluate import load_run

    if data is not None and data.suffix != ".toml":
        fields = read_fields(data, name)
        check_matches(trained, fields.values, fields.coordinates, fields.horizon, str(data))
        return fields.values[:SAMPLES]
    elsewhere = f"{run} predicts trajectories: say --data FILE with windows of snapshots"
    given: tuple[Task, Source]
    if data is not None:
        given = open_task(data)
    elif not is_run(run):
        raise UsageError(
            f"{run} is a saved model, which does not know its data: say --data FILE with fields "
            "such as it is given"
        )
    else:
        config = load_run(run).config
        if config.task.rollout is not None:  # said before a benchmark's data are made
            raise UsageError(elsewhere)
        labels = config.labels
        place = None if "task_document" in labels else datasets
        given = data_of_run(run, labels, place, todo="say --data FILE")
    if given[0].rollout is not None:
        raise UsageError(elsewhere)
    check_same_task(trained, given[0])
    found = given[1].load("test_id")
    return pairs_of(found.select(evenly(len(found), SAMPLES))).input
