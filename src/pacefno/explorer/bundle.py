"""From models and samples to one HTML file: programs, samples and words, all in one page."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from pacefno.errors import UsageError
from pacefno.explorer.runtime import VERSION, Runtime
from pacefno.exporting import Mover, export
from pacefno.fields import AXES, Field, FieldType
from pacefno.grid import check_field
from pacefno.groups import PointGroup
from pacefno.pace import PACE
from pacefno.task import Task
from pacefno.train.evaluate import default_moves

MOST_POINTS = 256 * 256  # of a grid: a larger one would take a browser seconds for each frame
HUE_OF_PACE = 2  # of the page's six
ARROWS = {"x": "→", "y": "↑"}
Document = dict[str, Any]


@final
@dataclass(frozen=True)
class Model:
    """A trained model and what a reader shall call it."""

    id: str
    title: str
    model: PACE


@final
@dataclass(frozen=True)
class Problem:
    """Models for one task, held-out samples of it ``(N, C, *grid)``, and how far they are moved.

    ``mirror`` names the finite symmetries of the equation, of which one mirror is offered.
    ``reach`` is the largest magnitude of each coordinate of the group; by default half a period,
    and velocities three times those of training.
    """

    id: str
    title: str
    task: Task
    models: Sequence[Model]
    input: Tensor
    target: Tensor
    mirror: str | None = None
    reach: Sequence[float] | None = None


def build_page(
    problems: Sequence[Problem],
    runtime: Runtime,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> str:
    """The whole page as text; ``on_progress`` is told how many of all programs are made."""
    for problem in problems:
        check_problem(problem)
    total = sum(2 + len(problem.models) for problem in problems)
    blobs: dict[str, bytes] = {}
    described = []
    on_progress(0, total)
    done = itertools.count(1)
    for problem in problems:
        described.append(_described(problem, blobs, lambda: on_progress(next(done), total)))
    bundle = {"version": version("pacefno"), "runtime": VERSION, "problems": described}
    here = files("pacefno.explorer")
    parts = [
        ("application/json", "bundle", json.dumps(bundle, allow_nan=False).replace("<", "\\u003c")),
        ("text/plain", "worker", here.joinpath("worker.js").read_text("utf-8")),
        *(("text/plain", name, _packed(data)) for name, data in blobs.items()),
        ("text/plain", "runtime-script", _packed(runtime.script)),
        ("text/plain", "runtime-wasm", _packed(runtime.wasm)),
        ("text/javascript", "page", here.joinpath("page.js").read_text("utf-8")),
    ]
    scripts = [f'<script type="{kind}" id="{name}">{text}</script>' for kind, name, text in parts]
    template = here.joinpath("page.html").read_text("utf-8")
    return template.replace("<!--BUNDLE-->", "\n".join(scripts))


def _packed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()


def _described(
    problem: Problem, blobs: dict[str, bytes], on_program: Callable[[], None]
) -> Document:
    """What the page has to know of a problem; its programs and samples go among the blobs."""
    task = problem.task

    def stored(data: bytes) -> str:
        for name, known in blobs.items():
            if known is data:
                return name
        blobs[name := f"blob-{len(blobs)}"] = data
        return name

    models: list[Document] = []
    others = (hue for hue in itertools.count() if hue != HUE_OF_PACE)
    programs = {"move-input": _program(Mover(task.group, task.input).eval(), problem.input)}
    on_program()
    same = not task.group.moves_in_time and task.input == task.output.at(task.input.times)
    programs["move-output"] = (
        programs["move-input"]
        if same
        else _program(Mover(task.group, task.output).eval(), problem.target)
    )
    on_program()
    for one in problem.models:
        framed = one.model.group.size > 0
        first = framed and not any(m["framed"] for m in models)
        hue = HUE_OF_PACE if first else next(others)
        models.append({"id": one.id, "title": one.title, "hue": hue, "framed": framed})
        programs[one.id] = _program(one.model, problem.input)
        on_program()
    return {
        "id": problem.id,
        "title": problem.title,
        "grid": list(problem.input.shape[2:]),
        "samples": len(problem.input),
        "input_size": problem.input.shape[1],
        "output_size": problem.target.shape[1],
        "input_channels": _channels(task.input, problem.input),
        "output_channels": _channels(task.output, problem.target),
        "per_channel": task.per_channel,
        "horizon_text": f"{task.horizon:g} time unit{'s' * (task.horizon != 1)}",
        "note": "No model has seen these samples in training.",
        "coordinates": _coordinates(problem),
        "carried": _carried(task),
        "mirror": _mirror(problem),
        "models": models,
        "blobs": {
            "input": stored(_floats(problem.input)),
            "target": stored(_floats(problem.target)),
            "programs": {name: stored(data) for name, data in programs.items()},
        },
    }


def _program(model: nn.Module, example: Tensor) -> bytes:
    """An ONNX program for the grid of the samples; see :func:`pacefno.exporting.export`."""
    with tempfile.TemporaryDirectory() as folder:
        return export(model, Path(folder) / "one.onnx", example, details=True).path.read_bytes()


def _floats(values: Tensor) -> bytes:
    return values.detach().cpu().numpy().astype("<f4").tobytes()


def check_problem(problem: Problem) -> None:
    """Refuse what the page cannot show, in one sentence."""
    title, task, grid = problem.title, problem.task, tuple(problem.input.shape[2:])
    if not problem.models:
        raise UsageError(f"{title}: expected at least one model, got none: name a run")
    if task.dim > 2:
        raise UsageError(
            f"{title}: the explorer draws lines and pictures, and this task has {task.dim} "
            "dimensions: use pacefno audit"
        )
    if problem.target.shape[2:] != problem.input.shape[2:]:
        raise UsageError(
            f"{title}: input and target have different grids, {grid} and "
            f"{tuple(problem.target.shape[2:])}: give samples on one grid"
        )
    if math.prod(grid) > MOST_POINTS:
        raise UsageError(
            f"{title}: a grid of {grid} is too large to follow a drag in a browser (at most "
            f"{MOST_POINTS} points): say coarsening in the task document, or use pacefno audit"
        )
    for name, values in (("input", problem.input), ("target", problem.target)):
        check_field(values, name=f"{title}: {name}")
    for one in problem.models:
        for name, ours, theirs, values in (
            ("input", task.input, one.model.input, problem.input),
            ("output", task.output, one.model.output, problem.target),
        ):
            if ours != theirs or values.shape[1] != ours.size:
                raise UsageError(
                    f"{title}: {one.title} has {name} {theirs.document()}, the samples have "
                    f"{values.shape[1]} channels of {ours.document()}: explore models of one task "
                    "together"
                )
        with torch.no_grad():
            one.model(problem.input[:1])  # says what is wrong where the grid is too coarse for it


def _channels(type: FieldType, values: Tensor) -> list[Document]:
    """The channels of a snapshot by name, and whether their values have both signs."""
    count = len(type.channels)
    found = []
    for number, name in enumerate(type.channels):
        own = values[:, number::count]
        found.append({"name": name, "label": name, "signed": bool(own.min() < 0 < own.max())})
    return found


def _coordinates(problem: Problem) -> list[Document]:
    """What can be moved and how far, in words for sliders."""
    task, group = problem.task, problem.task.group
    reach = problem.reach or default_moves(task, Field(problem.input, task.input)).high
    ranges = task.train_range or (0.0,) * group.size
    found = []
    for name, period, far, known in zip(
        group.coordinates, group.periods, reach, ranges, strict=True
    ):
        axis = name[-1] if name.startswith("velocity_") else name
        arrow = ARROWS.get(axis, "→" if task.dim == 1 else "↗")
        kind = "shift" if name in AXES else "velocity" if math.isinf(period) else "angle"
        label = {"shift": f"shift {arrow}", "velocity": f"Boost {arrow}", "angle": "Turn"}[kind]
        found.append(
            {
                "name": name,
                "kind": kind,
                "label": label,
                "arrow": arrow,
                "period": None if math.isinf(period) else period,
                "range": known,
                "reach": math.pi if kind == "angle" else far,
            }
        )
    return found


def _carried(task: Task) -> list[Document]:
    """Which channels a boost adds to others, as it adds density times velocity to a momentum.

    Read off constant fields, which no shift changes: a boost by ``v`` adds ``factor v`` times
    channel ``from`` to channel ``to``.
    """
    group, size = task.group, task.output.size
    unit = torch.eye(size, dtype=torch.float64).reshape(size, size, *[1] * task.dim)
    fields = torch.cat([torch.zeros_like(unit[:1]), unit]).repeat(1, 1, *[2] * task.dim)
    found = []
    for column in range(group.spatial, group.size):
        xi = group.identity(len(fields))
        xi[:, column] = 1
        moved = group.act(Field(fields, task.output), xi).values.flatten(2)[..., 0]
        change = moved[1:] - moved[:1] - torch.eye(size, dtype=torch.float64)  # (from, to)
        for source, target in (change.abs() > 1e-9).nonzero().tolist():
            factor = float(change[source, target])
            entry = {"coordinate": column, "from": source, "to": target, "factor": factor}
            found.append(entry)
    return found


def _mirror(problem: Problem) -> Document | None:
    """A mirror of the equation as array operations: exchanged axes, reversed axes, channels."""
    if problem.mirror is None:
        return None
    group, task = PointGroup(problem.mirror), problem.task
    for exchanging in (False, True):
        for index, matrix in enumerate(group.matrices):
            axes, reversed = group.moves(index)
            plain = axes == list(range(group.dim))
            if round(float(torch.linalg.det(torch.tensor(matrix, dtype=torch.float64)))) == -1 and (
                plain != exchanging
            ):
                return {
                    "element": index,
                    "axes": axes,
                    "mirrored": reversed,
                    "input": group.representation_of(task.input, task.input.size)[index].tolist(),
                    "output": group.representation_of(task.output, task.output.size)[
                        index
                    ].tolist(),
                }
    return None
