"""``pacefno explore``: drag the input of trained models in the browser."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacefno.cli._console import Display, plain_errors, say
from pacefno.cli._runs import data_of_run, import_operators
from pacefno.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from pacefno.explorer import Model, Problem
    from pacefno.train.evaluate import Trained

SAMPLES_FILE = "samples.safetensors"


def explore_command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs. Those of one task are compared with each other.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(help="Only write the page; open nothing.", metavar="PAGE.HTML"),
    ] = None,
    samples: Annotated[int, typer.Option(help="How many test samples to take along.", min=1)] = 3,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Own data: another task.toml than the run's. Benchmarks: the folder of datasets.",
            show_default=f"{SAMPLES_FILE} beside the runs; else the run's data, or datasets",
        ),
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option(
            help="Finite symmetries of the equation, for the mirror button: z2, p4m, diagonal, ...",
            show_default="those of a benchmark's equation; no mirror",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="module:Class of an operator of yours that a run was trained with; imported "
            "because you name it. May be repeated.",
            metavar="MODULE:CLASS",
            show_default=False,
        ),
    ] = None,
    runtime: Annotated[
        Path | None,
        typer.Option(
            help="onnxruntime-web as a folder or an archive, where npm cannot fetch it.",
            show_default="fetched with npm once",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1.", min=0, max=65535, show_default="a free one")
    ] = 0,
    browse: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
) -> None:
    """Drag, boost, turn and mirror the input of trained models, and watch which of them follow.

    Builds one page in which the models themselves run, and opens it in the browser. With --output
    the page is one file to keep or to hand on: it works offline, without a server.

    Example: pacefno explore runs/burgers2d/fno-quick-seed42 runs/burgers2d/pace-quick-seed42
    """
    with plain_errors():
        from pacefno.explorer.bundle import build_page
        from pacefno.explorer.runtime import find_runtime
        from pacefno.explorer.serve import PageServer
        from pacefno.files import check_writable, write_text

        import_operators(model)
        found = find_runtime(runtime)

        def build() -> str:
            problems = gather(runs, data, samples, mirror)
            with Display("programs") as display:
                return build_page(problems, found, display)

        if output is not None:
            check_writable(output)
            page = build()
            write_text(output, page)
            typer.echo(f"{output} written ({len(page) / 1e6:.1f} MB): open it in a browser")
            return
        with PageServer(port) as server:  # before the work: a busy port is said at once
            server.show(build())
            typer.echo(f"{server.url} shows it until Ctrl-C")
            if browse:
                webbrowser.open(server.url)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                say("stopped")


def gather(runs: list[Path], data: Path | None, samples: int, mirror: str | None) -> list[Problem]:
    """The runs by task, each with samples of it, in the order in which they were named."""
    from pacefno.explorer import Model, Problem
    from pacefno.train.evaluate import load_run

    if data is not None and len({run.parent for run in runs}) > 1 and data.suffix == ".toml":
        raise UsageError("--data task.toml is for runs of one task: explore the others apart")
    groups: dict[str, list[tuple[Path, Trained]]] = {}
    for run in runs:
        trained = load_run(run)
        said = trained.config.task.document()
        key = json.dumps({name: said[name] for name in ("name", "input", "output", "group")})
        groups.setdefault(key, []).append((run, trained))
    problems: list[Problem] = []
    for number, members in enumerate(groups.values()):
        members.sort(key=_place)
        run, first = members[0]
        task, labels = first.config.task, first.config.labels
        title, reach, symmetry = _known(labels, task.name)
        given_names = [one.config.labels.get("model", "model") for _, one in members]
        models: list[Model] = []
        for (path, one), name in zip(members, given_names, strict=True):
            alone = given_names.count(name) == 1
            called = one.config.labels.get("title") or _title(name)
            called = called if alone else f"{called} ({path.name})"
            models.append(Model(name if alone else f"{name}-{len(models)}", called, one.model))
        given, wanted = take_samples(run, first, data, samples)
        problems.append(
            Problem(
                f"{task.name}-{number}" if any(p.id == task.name for p in problems) else task.name,
                title, task, models, given, wanted, mirror or symmetry, reach,
            )
        )  # fmt: skip
    return problems


def _place(member: tuple[Path, Trained]) -> tuple[bool, int]:
    """Plain models first, in the order of the tables."""
    from pacefno.train.rows import FIELD_ROWS

    name, known = member[1].config.labels.get("model", ""), list(FIELD_ROWS)
    place = known.index(name) if name in known else len(known)
    return member[1].model.group.size > 0, place


def _title(name: str) -> str:
    """What a stranger calls a model."""
    from pacefno.train.rows import FIELD_ROWS

    return FIELD_ROWS[name].title.removesuffix(", one-shot") if name in FIELD_ROWS else name


def _known(labels: dict[str, str], name: str) -> tuple[str, tuple[float, ...] | None, str | None]:
    """Title, farthest motions and finite symmetries of a benchmark; own data have their name."""
    from pacefno.paper.benchmarks import BENCHMARKS

    if "task_document" in labels or labels.get("problem") not in BENCHMARKS:
        return name, None, None
    benchmark = BENCHMARKS[labels["problem"]]
    return benchmark.title, benchmark.ood[1], benchmark.equation.point_group


def take_samples(
    run: Path, trained: Trained, data: Path | None, count: int
) -> tuple[Tensor, Tensor]:
    """A few held-out samples: from the file beside the run, or from the data that it came from."""
    import torch

    from pacefno.data.own import check_same_task
    from pacefno.train.evaluate import own_batches

    config, kept = trained.config, run.resolve().parent / SAMPLES_FILE
    if data is None and kept.is_file():
        return read_samples(kept, count)
    todo = f"put {SAMPLES_FILE} with 'input' and 'target' beside it"
    task, source = data_of_run(run, config.labels, data, todo=todo)
    if "task_document" in config.labels:  # of a benchmark it cannot have been changed
        check_same_task(config.task, task)
    batches = list(own_batches(config.task, source, among=count))
    if any(batch.box is not None for batch in batches):
        raise UsageError(
            f"{run}: its samples have boxes of their own, which the explorer cannot show: use "
            "pacefno audit or pacefno rollout"
        )
    return torch.cat([b.input for b in batches]), torch.cat([b.target for b in batches])


def read_samples(path: Path, count: int) -> tuple[Tensor, Tensor]:
    """The arrays ``input`` and ``target`` of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        arrays = load_file(path)
        return arrays["input"][:count].float(), arrays["target"][:count].float()
    except (SafetensorError, OSError, KeyError) as error:
        raise UsageError(
            f"{path}: expected a safetensors file with the arrays input and target ({error})"
        ) from None
