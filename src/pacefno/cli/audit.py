"""``pacefno audit``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacefno.cli._console import FAILED, Display, plain_errors, say
from pacefno.cli._runs import (
    DATASETS,
    NAMES,
    BenchmarkFolder,
    OperatorClass,
    benchmark_data,
    warn_if_changed,
)
from pacefno.errors import UsageError
from pacefno.paper import PRESETS

if TYPE_CHECKING:
    from pacefno.data.samples import Pairs
    from pacefno.task import Task


def audit_command(
    model: Annotated[
        str,
        typer.Argument(
            help="A run or saved model; module:attribute of your own (a module or a function of "
            "the field; a class, or a function without parameters, builds it); or a .pt2 program "
            "of torch.export. Left out with --write-inputs and --read-predictions.",
            show_default=False,
        ),
    ],
    task: Annotated[
        str | None,
        typer.Argument(
            help=f"A task.toml with a table \\[data], or a benchmark: {NAMES}.",
            show_default=False,
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="How many test samples to use.", min=1)] = 20,
    point_group: Annotated[
        str | None,
        typer.Option(
            help="Mirrors and quarter turns that the equation has: z2, p4, p4m, diagonal, ...; "
            "none leaves them out.",
            show_default="that of a benchmark's equation; none",
        ),
    ] = None,
    inexact: Annotated[
        bool,
        typer.Option(
            "--inexact",
            help="Also measure motions that are no symmetry of these fields, such as turning a "
            "field that fills its periodic box.",
        ),
    ] = False,
    steps: Annotated[
        int,
        typer.Option(
            help="Predictions in a row to audit, each the input of the next: needs a file "
            "of trajectories.",
            min=1,
        ),
    ] = 1,
    max_error: Annotated[
        float | None,
        typer.Option(
            help="End with exit code 1 if the worst relative error of the model as it is, over all "
            "motions and at rest, is larger (not the equivariance error, which is small for a "
            "model that is wrong everywhere alike).",
            min=0.0,
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write one page to open in a browser.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all numbers, the verdict included.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Samples that the model gets at once.", min=1)
    ] = None,
    write_inputs: Annotated[
        Path | None,
        typer.Option(help="Write the fields to predict into this folder, for any framework."),
    ] = None,
    read_predictions: Annotated[
        Path | None, typer.Option(help="Audit the predictions that were saved in this folder.")
    ] = None,
    preset: Annotated[
        str, typer.Option(help=f"Of a benchmark: which dataset, {', '.join(PRESETS)}.")
    ] = "quick",
    data: BenchmarkFolder = DATASETS,
    operator: OperatorClass = None,
) -> None:
    """Measure how wrong a model is when its input is shifted, boosted, turned or mirrored.

    Every symmetry of the task alone, from small to large, and all together; shifts by whole cells
    and by fractions of a cell apart. Beside it: the error at rest, the loss of moving fields there
    and back, and what wrapping with PACE, averaging over a point group, and both were measured to
    do. The table and a verdict go to standard output. Exit codes: 1 --max-error was exceeded or
    something failed, 2 wrong input.

    Examples: pacefno audit mymodule:net task.toml --html audit.html --max-error 0.1

    pacefno audit task.toml --write-inputs asked; (predict asked/inputs/N.npy into
    asked/predictions/N.npy); pacefno audit task.toml --read-predictions asked
    """
    exchange = write_inputs or read_predictions
    with plain_errors():
        if (task is None) == (exchange is None) or (write_inputs and read_predictions):
            raise UsageError(
                "say MODEL and TASK, or TASK alone with --write-inputs or --read-predictions"
            )
        if exchange and operator:
            raise UsageError("--model: the predictions come from elsewhere, so no model is loaded")
        if exchange and steps > 1:
            raise UsageError(
                "--steps: each prediction is the input of the next, so inputs cannot be written "
                "beforehand: name a MODEL, or audit one step"
            )
        if read_predictions and (point_group or inexact):
            raise UsageError(
                "--point-group and --inexact: say them with --write-inputs, which wrote what was "
                "predicted"
            )
        from pacefno.auditing import audit, foreign
        from pacefno.data.own import check_same_task
        from pacefno.files import write_text
        from pacefno.pace import PACE

        opened = None if exchange else foreign.open_model(model, operator)
        if read_predictions is not None:
            samples = int(foreign.read_manifest(read_predictions)["samples"])
        if task is not None:
            warn_if_changed(Path(model), Path(task))
        chosen, pairs, known = _samples(task or model, samples, steps, preset, data)
        wrapped = opened.model if opened and isinstance(opened.model, PACE) else None
        if wrapped is not None and wrapped.group.moves_in_time:  # by the time and the box it knows
            check_same_task(wrapped, chosen)
        named = point_group or known
        options: dict[str, Any] = {
            "point_group": None if named in (None, "none") else named,
            "inexact": inexact,
        }
        if write_inputs is not None:
            count = foreign.write_inputs(write_inputs, chosen, pairs.input, pairs.target, options)
            typer.echo(
                f"{count} arrays to predict: {write_inputs}/{foreign.INPUTS}/N.npy; save each "
                f"prediction as {write_inputs}/{foreign.PREDICTIONS}/N.npy, then give this command "
                f"with --read-predictions {write_inputs}"
            )
            return
        if opened is None:
            folder = read_predictions or Path()
            found = foreign.read_predictions(folder, chosen, pairs.input, pairs.target, str(folder))
        else:
            with Display(f"audit of {opened.name}") as display:
                found = audit(
                    opened.model,
                    chosen,
                    pairs.input,
                    pairs.target,
                    steps=steps,
                    batch=batch or opened.batch,
                    name=opened.name,
                    on_progress=display,
                    **options,
                )
        typer.echo(str(found))
        for path, text in (
            (html, found.html),
            (json_file, lambda: json.dumps(found.document(), indent=1) + "\n"),
        ):
            if path is not None:
                write_text(path, text())
                say(f"{path} written")
        if max_error is not None and not found.worst_error <= max_error:
            say(f"the worst error is {found.worst_error:.4g}, allowed {max_error:g}")
            raise typer.Exit(FAILED)


def _samples(
    text: str, count: int, steps: int, preset: str, root: Path
) -> tuple[Task, Pairs, str | None]:
    """The task, some of its test samples, and the point group of a benchmark's equation."""
    from pacefno.data.own import FileSource, open_task
    from pacefno.data.samples import Pairs, evenly
    from pacefno.data.store import DatasetError
    from pacefno.paper.benchmarks import BENCHMARKS

    if text in BENCHMARKS:
        benchmark = BENCHMARKS[text]
        if benchmark.task.rollout is not None or steps > 1:
            raise UsageError(
                f"{text}: a benchmark is audited by pairs of fields: choose one that has them, and "
                "one step; for several steps give the task.toml of a file of trajectories"
            )
        source: Any = benchmark_data(benchmark, preset, root)
        task, known = benchmark.task, benchmark.equation.point_group
    elif not Path(text).exists():
        names = ", ".join(BENCHMARKS)
        raise UsageError(f"{text}: expected a file task.toml, or a benchmark out of {names}")
    else:
        (task, source), known = open_task(Path(text)), None
        if steps > 1 and not source.settings.arrays:
            raise UsageError(f"{text}: --steps needs trajectories, this file has pairs: audit one")
        if task.rollout is not None or steps > 1:  # windows of them
            task = task.model_copy(update={"rollout": None})
            try:
                source = FileSource(task.later(steps), source.settings, Path(text).parent)
            except DatasetError as error:  # too short; without steps it was opened
                raise UsageError(f"--steps {steps}: {error}") from None
    found = source.load("test_id")
    pairs = found.select(evenly(len(found), count))  # windows that are neighbours are alike
    assert isinstance(pairs, Pairs)
    if len(pairs) < count:
        say(f"there are {len(pairs)} test samples, fewer than the {count} asked for")
    return task, pairs, known
