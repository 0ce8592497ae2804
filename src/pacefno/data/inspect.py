"""What a user's data file holds, printed as tables, and the document to train on it with.

Everything that the file itself does not say is marked: ``guessed``, with the reason, or asked for
by an entry ``"?"``, which :func:`~pacefno.data.own.open_task` refuses by name until it is filled.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from pacefno.data._arrays import (
    ALIKE,
    Look,
    Stack,
    box_length,
    check_box,
    check_endpoint,
    check_values,
    handled,
    in_order_of,
    look,
    short_name,
    time_step,
)
from pacefno.data._settings import BLANK, DataSettings, parse_axes, read_table
from pacefno.data.formats import CHANNEL, SAMPLE, TIME, Contents, StoredArray, open_file
from pacefno.data.own import time_blocks
from pacefno.data.store import DatasetError
from pacefno.errors import UsageError
from pacefno.fields import AXES, Field, FieldType, parse_channels
from pacefno.files import write_text
from pacefno.frames import default_slice
from pacefno.grid import FieldError, to_spectrum, wavenumbers
from pacefno.groups import Group
from pacefno.metrics import typical_speed
from pacefno.registry import build, lookup

MOST_CHANNELS = 6  # an axis with more is not taken for the channels
FEWEST_POINTS = 8  # an axis with fewer is not taken for space
CENTRED, ANYWHERE = 0.02, 0.15  # spread of positions in periods
SOLENOIDAL = 1e-2  # squared divergence over that with the axes exchanged
PAIRS = (("input", "target"), ("inputs", "targets"), ("x", "y"), ("a", "u"))
SAYS_NOTHING = ("tensor", "data", "values", "array", "fields", "input", "target", "x", "y", "a")
LAYOUTS = {  # by the number of axes, in the order in which they are tried
    2: ("sample x",),
    3: ("sample channel x", "sample x channel", "sample x y", "sample time x"),
    4: (
        "sample channel x y", "sample x y channel", "sample time channel x",
        "sample time x channel", "sample time x y", "sample x y time", "sample x y z",
    ),
    5: (
        "sample time channel x y", "sample time x y channel", "sample channel x y z",
        "sample x y z channel", "sample time x y z",
    ),
    6: ("sample time channel x y z", "sample time x y z channel"),
}  # fmt: skip
COMPONENTS = ("u v w", "vx vy vz", "ux uy uz", "u_x u_y u_z", "v_x v_y v_z", "velx vely velz",
              "velocity_x velocity_y velocity_z", "x_velocity y_velocity z_velocity")  # fmt: skip
VELOCITIES = ("velocity", "velocities", "vel", "u", "v")
DENSITIES = ("density", "rho", "h", "height")
VORTICITIES = ("vorticity", "omega", "vort")

ASKED = {
    "channels": 'the name and kind of each channel, e.g. "u v: velocity, p: scalar" (said to '
    "pacefno inspect with --channels, it also tells the group)",
    "lengths": "the lengths of the periodic box, in the units of the data",
    "step": "the time from one snapshot to the next (of pairs: from input to target), in the units "
    "in which velocities times times are lengths",
}


@final
@dataclass(frozen=True)
class Answers:
    """What the user says, so that it need not be guessed."""

    format: str = ""
    arrays: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    axes: str = ""
    channels: str = ""
    lengths: tuple[float, ...] = ()
    step: float | None = None
    group: str = ""
    history: int = 1
    future: int = 1
    endpoint: bool = False
    allow: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Fact:
    """An entry of the document and where it comes from."""

    value: Any
    source: Literal["file", "you", "guessed", "asked", ""]
    why: str = ""

    @property
    def comment(self) -> str:
        words = {"file": "from the file", "you": "as you said", "": ""}
        head = words.get(self.source, self.source)
        return ": ".join(part for part in (head, self.why) if part)


@final
@dataclass
class Findings:
    """What a file holds and what would be done with it; ``fault`` is why it cannot be used."""

    contents: Contents
    axes: dict[str, Fact]  # of the arrays that are used, by name
    parts: tuple[Stack, ...]
    seen: tuple[Look, ...]
    type: FieldType
    group: Group
    document: dict[str, dict[str, Fact]]  # by table; "" is the root
    notes: list[str] = field(default_factory=list)
    fault: str = ""

    @property
    def questions(self) -> list[str]:
        """The entries that only the user can fill in, and what is meant."""
        found = [(t, k, f) for t, facts in self.document.items() for k, f in facts.items()]
        return [f"{table}.{key}: {fact.why}" for table, key, fact in found if fact.value == BLANK]


# --- finding --------------------------------------------------------------------------------------


def inspect_file(path: Path, answers: Answers | None = None) -> Findings:
    """Look into a file; what cannot even be guessed is an error that says which option to give."""
    say = answers or Answers()
    contents = open_file(path, say.format)
    if recipe := _recipe(contents):
        return _generated(contents, recipe)
    inputs, targets, left_out = _choose(contents, say)
    contents = contents.beside(inputs[0])
    axes = {
        name: _axes(contents, contents.array(name), say, bool(targets), len(inputs))
        for name in (*inputs, *targets)
    }
    dim = sum(axis in AXES for axis in parse_axes(axes[inputs[0]].value))
    kinds, inputs = _channels(contents, inputs, axes, dim, say.channels)
    same = kinds
    if targets:
        same, targets = _channels(contents, targets, axes, dim, say.channels)
    settings = _settings(inputs, targets, axes, say)
    parts = tuple(Stack(contents, names, settings, dim) for names in (inputs, targets) if names)
    window = say.history + say.future
    if parts[0].samples < 3 and time_blocks(parts[0].snapshots, window, settings.split):
        settings = settings.model_copy(update={"split_by": "time"})
    text = "" if kinds.value == BLANK else kinds.value
    group = _group(text, dim, say.group)
    built = _build(group.value, dim)
    timeless = bool(text) and not built.moves_in_time  # neither lengths nor times matter to it
    turns = "angle" in built.coordinates  # these need a square box
    lengths = _lengths(contents, parts[0], say, timeless and not turns)
    step = _step(contents, parts[0], say, timeless, paired=bool(targets))
    type = FieldType.parse(text, dim, lengths=1.0 if lengths.value == BLANK else lengths.value)
    _check_group(built, type)
    seen = tuple(look(stack) for stack in parts)
    findings = Findings(contents, axes, parts, seen, type, built, {}, [*contents.notes, *left_out])
    findings.notes += handled(parts)
    findings.document = {
        "": _motion(built, type, seen[0]),
        "input": {
            "channels": kinds,
            "dim": Fact(dim, axes[inputs[0]].source),
            "times": Fact(list(range(say.history)), "guessed", "snapshots that go in"),
            "lengths": lengths,
            "step": step,
        },
        "output": _output(kinds, same, say, bool(targets)),
        "group": {"name": group, **({"dim": Fact(dim, "")} if _has_dim(group.value) else {})},
        "data": _data(settings, axes, contents, bool(left_out)),
        "ood": _ood(built, type, seen[0]),
    }
    findings.fault = _fault(findings, settings, lengths)
    return findings


def _recipe(contents: Contents) -> Mapping[str, Any]:
    """What a file of a generated dataset was made from; nothing for files of others."""
    try:
        found = json.loads(contents.attributes.get("recipe", "{}"))
    except (TypeError, ValueError):
        return {}
    needed = {"input", "output", "group", "slice", "ood_low", "ood_high"}
    return found if isinstance(found, dict) and needed <= set(found) else {}


def _generated(contents: Contents, recipe: Mapping[str, Any]) -> Findings:
    """A file of a dataset that was generated here: it says everything itself."""
    type = FieldType.from_document(recipe["input"])
    roles = Fact(" ".join((SAMPLE, CHANNEL, *AXES[: type.dim])), "file", "made by pacefno")
    axes = {"input": roles, "target": roles}
    settings = _settings(["input"], ["target"], axes, Answers())
    parts = tuple(Stack(contents, [name], settings, type.dim) for name in axes)
    group: Group = build({"part": "group", **recipe["group"]})
    seen = tuple(look(stack) for stack in parts)
    tables = {key: recipe[key] for key in ("input", "output", "group", "slice")}
    ood = {"low": recipe["ood_low"], "high": recipe["ood_high"]}
    document = {
        table: {key: Fact(value, "file") for key, value in entries.items()}
        for table, entries in (tables | {"ood": ood}).items()
    }
    document = {"": {}, **document, "data": _data(settings, axes, contents, False)}
    findings = Findings(contents, axes, parts, seen, type, group, document)
    findings.fault = _fault(findings, settings, document["input"]["lengths"])
    return findings


def _choose(contents: Contents, say: Answers) -> tuple[list[str], list[str], list[str]]:
    """The arrays of inputs and targets (none for trajectories), and words on those left out."""
    if say.arrays:
        return list(say.arrays), list(say.targets), []
    usable = [
        array
        for array in contents.arrays.values()
        if len(array.shape) >= 2 and max(array.shape) >= FEWEST_POINTS and not array.lists_points
    ]
    if not usable:
        held = ", ".join(f"{a.name} {a.shape}" for a in contents.arrays.values()) or "nothing"
        raise DatasetError(contents.path, f"holds {held}: expected an array of at least 2 axes")
    names = [array.name for array in usable]
    for first, second in PAIRS:
        if first in names and second in names and len(contents.arrays[first].shape) > 1:
            left = [name for name in names if name not in (first, second)]
            return [first], [second], [f"{name}: left out" for name in left]
    real = [array for array in usable if array.dtype.kind in "fiu"] or usable
    largest = max(real, key=lambda array: array.nbytes)

    def frame(array: StoredArray) -> tuple[int, ...]:  # its axes but for the channels
        if CHANNEL in array.axes:
            return tuple(
                n for n, role in zip(array.shape, array.axes, strict=True) if role != CHANNEL
            )
        return array.shape[:-1] if array.shape[-1] <= MOST_CHANNELS else array.shape

    for array in real:
        alike = (len(array.shape), array.shape[0]) == (len(largest.shape), largest.shape[0])
        if alike and frame(array) != frame(largest):
            raise DatasetError(
                contents.path,
                f"holds {array.name} {array.shape} and {largest.name} {largest.shape}: expected "
                "one resolution; name the arrays that belong together, --array A,B",
            )
    chosen = [array.name for array in real if frame(array) == frame(largest)]
    left = [f"{name}: left out, its shape is another" for name in names if name not in chosen]
    return chosen, [], left


def _axes(contents: Contents, array: StoredArray, say: Answers, paired: bool, count: int) -> Fact:
    """The roles of the axes of one of ``count`` arrays, and how they are known."""
    array.check()
    if say.axes:
        roles = parse_axes(say.axes)
        if len(roles) == len(array.shape) + 1 and CHANNEL in roles:
            roles = tuple(role for role in roles if role != CHANNEL)
        return Fact(" ".join(roles), "you")
    if array.axes:
        return Fact(" ".join(array.axes), "file", contents.layout)
    axes = [*AXES, *([] if paired else [TIME])]
    known = {axis: len(x) for axis in axes if (x := contents.coordinate(axis)) is not None}
    # One of several arrays, or one with the name of a scalar, has rather times than channels.
    word = short_name(array.name).lower()
    scalar = count > 1 or word not in (*SAYS_NOTHING, *VELOCITIES)
    layouts = [t for t in LAYOUTS.get(len(array.shape), ()) if _holds(t, array, say, count)]
    layouts.sort(
        key=lambda t: CHANNEL in t and (scalar or (word in VELOCITIES and not _vector(t, array)))
    )
    if TIME in known:  # one trajectory
        one = (text.removeprefix("sample ") for text in LAYOUTS.get(len(array.shape) + 1, ()))
        layouts += [text for text in one if TIME in text]
    for alike in (True, False):
        for text in layouts:
            if _fits(text, array.shape, known, alike=alike) and not (paired and TIME in text):
                space = [known[axis] for axis in AXES if axis in known]
                if known and set(known) >= set(text.split()) - {SAMPLE, CHANNEL}:
                    sure = len(set(space)) == len(space) or contents.layout.startswith("PDEBench")
                    why = "sizes as of its coordinates" + ("" if sure else "; x before y")
                    return Fact(text, "file" if sure else "guessed", why)
                return Fact(text, "guessed", f"from the sizes {array.shape}; if rows are y, swap")
    raise DatasetError(
        contents.path,
        f"the axes of {array.name!r} {array.shape} cannot be told"
        + (f" by coordinates of {known} points" if known else "")
        + ': say which is which, --axes "sample time x y channel"',
    )


def _fits(text: str, shape: tuple[int, ...], known: Mapping[str, int], *, alike: bool) -> bool:
    """Whether sizes are possible for these axes; ``alike`` asks for as many points along each."""
    sizes = dict(zip(text.split(), shape, strict=True))
    space = [sizes[axis] for axis in AXES if axis in sizes]
    for axis, points in known.items():
        if axis not in sizes or sizes[axis] not in (points, points - (axis == TIME)):
            return False
    return (
        min(space) >= FEWEST_POINTS
        and sizes.get(CHANNEL, 1) <= MOST_CHANNELS
        and (not alike or len(set(space)) == 1 or set(known) >= set(AXES[: len(space)]))
        and not (any(axis in known for axis in AXES) and set(sizes) & set(AXES) - set(known))
    )


def _channels(
    contents: Contents, names: list[str], axes: Mapping[str, Fact], dim: int, said: str
) -> tuple[Fact, list[str]]:
    """The channels of arrays with their kinds, and the arrays in the order of these."""
    if said:
        channels = [name for quantity in parse_channels(said, dim) for name in quantity.components]
        return Fact(said, "you"), in_order_of(channels, names)
    counts = {}
    for name in names:
        roles, shape = parse_axes(axes[name].value), contents.array(name).shape
        sizes = dict(zip(roles, shape, strict=len(roles) == len(shape)))
        counts[name] = sizes.get(CHANNEL, 1)
    if len(names) == 1 and counts[names[0]] > 1 and short_name(names[0]) in SAYS_NOTHING:
        return Fact(BLANK, "asked", ASKED["channels"]), names
    short = {short_name(name).lower(): name for name in names}
    quantities, order = [], []
    for words in COMPONENTS:
        parts = words.split()[:dim]
        if dim > 1 and all(part in short and counts[short[part]] == 1 for part in parts):
            order += [short[part] for part in parts]
            quantities.append(f"{' '.join(short_name(short[p]) for p in parts)}: velocity")
            break
    scalars = [short_name(name) for name in names if counts[name] == 1]
    for name in names:
        if name not in order:
            order.append(name)
            quantities.append(_quantity(short_name(name), counts[name], dim, scalars))
    if not all(quantities):
        return Fact(BLANK, "asked", ASKED["channels"]), names
    return Fact(", ".join(quantities), "guessed", "from the names of the arrays"), order


def _quantity(name: str, count: int, dim: int, scalars: Sequence[str]) -> str:
    """A quantity as :func:`parse_channels` reads it; empty if its kind cannot be guessed."""
    word = name.lower()
    if count == 1:
        if word in SAYS_NOTHING:
            return "u: scalar"
        if word in ("velocity", "vx") and dim == 1:
            return f"{name}: velocity"
        return f"{name}: {'pseudoscalar' if word in VORTICITIES and dim == 2 else 'scalar'}"
    if count != dim:
        return ""
    if word in VELOCITIES:
        return f"{name}: velocity"
    density = next((scalar for scalar in scalars if scalar.lower() in DENSITIES), "")
    if "momentum" in word and density:
        return f"{name}: momentum of {density}"
    return f"{name}: vector"


def _group(channels: str, dim: int, said: str) -> Fact:
    if said:
        return Fact(said, "you")
    if not channels:
        return Fact("translation", "guessed", "galilean if there is a velocity among the channels")
    found = parse_channels(channels, dim)
    if any(quantity.how.carries == "any direction" for quantity in found):
        return Fact("galilean", "guessed", "there is a velocity, so shifts and boosts")
    return Fact("translation", "guessed", "no channel is a velocity, so shifts alone")


def _has_dim(name: str) -> bool:
    return "dim" in inspect.signature(lookup("group", name).__init__).parameters


def _build(name: str, dim: int) -> Group:
    group: Group = build({"part": "group", "name": name} | ({"dim": dim} if _has_dim(name) else {}))
    return group


def _check_group(group: Group, type: FieldType) -> None:
    if not type.quantities and group.needs_kinds:
        raise UsageError(
            f"--group {group.name}: acts on channels by their kind: say --channels as well"
        )
    group.check_type(type)


def _channels_in(layout: str, array: StoredArray) -> tuple[int, int]:
    """How many channels an array of this layout has, and along how many axes it extends."""
    roles = layout.split()
    count = array.shape[roles.index(CHANNEL)] if CHANNEL in roles else 1
    return count, sum(role in AXES for role in roles)


def _vector(layout: str, array: StoredArray) -> bool:
    """Whether it has as many channels as a velocity has components."""
    count, dim = _channels_in(layout, array)
    return count == dim


def _holds(layout: str, array: StoredArray, say: Answers, arrays: int) -> bool:
    """Whether a layout leaves as many channels as were named for the only array."""
    count, dim = _channels_in(layout, array)
    if not say.channels or arrays > 1:
        return True
    try:
        named = parse_channels(say.channels, dim)
    except FieldError:  # said where the channels are read
        return True
    return count == sum(len(quantity.components) for quantity in named)


def _lengths(contents: Contents, stack: Stack, say: Answers, timeless: bool) -> Fact:
    dim = stack.dim
    if say.lengths:
        if len(say.lengths) not in (1, dim):
            raise UsageError(f"--lengths: expected {dim} numbers, got {list(say.lengths)}")
        return Fact([*(say.lengths if len(say.lengths) == dim else say.lengths * dim)], "you")
    found = [
        box_length(contents, axis, n, stack.drop) for axis, n in zip(AXES, stack.grid, strict=False)
    ]
    if None not in found:
        return Fact([float(f"{length:.7g}") for length in found if length], "file", "coordinates")
    if timeless:
        why = "there are no coordinates; for shifts it does not matter, for turns say what it is"
        return Fact([1.0] * dim, "guessed", why)
    return Fact(BLANK, "asked", ASKED["lengths"])


def _step(contents: Contents, stack: Stack, say: Answers, timeless: bool, *, paired: bool) -> Fact:
    found = None if paired else time_step(contents, stack.snapshots)
    if say.step is not None:
        if found is not None and abs(say.step - found) > ALIKE * found:
            raise UsageError(
                f"--step {say.step:g}: the times in the file are {found:g} apart: leave --step "
                "out; time_stride = n in [data] takes every n-th snapshot"
            )
        return Fact(say.step, "you")
    if found is not None:
        return Fact(float(f"{found:.7g}"), "file", "times")
    if timeless:
        return Fact(1.0, "guessed", "there are no times; shifts do not change with it")
    return Fact(BLANK, "asked", ASKED["step"])


def _settings(
    inputs: list[str], targets: list[str], axes: Mapping[str, Fact], say: Answers
) -> DataSettings:
    texts = {name: fact.value for name, fact in axes.items()}
    one = len(set(texts.values())) == 1
    entries = {
        "file": BLANK,
        "format": say.format,
        "arrays": [] if targets else inputs,
        "inputs": inputs if targets else [],
        "targets": targets,
        "axes": next(iter(texts.values())) if one else texts,
        "endpoint": say.endpoint,
        "allow": say.allow,
    }
    return read_table(DataSettings, "data", entries)


def _output(kinds: Fact, same: Fact, say: Answers, paired: bool) -> dict[str, Fact]:
    future = range(say.history, say.history + say.future)
    facts = {"times": Fact(list(future), "guessed", "snapshots that come out, counted in steps")}
    if paired and same.value != kinds.value:
        facts["channels"] = same
    return facts


def _data(
    settings: DataSettings, axes: Mapping[str, Fact], contents: Contents, some: bool
) -> dict[str, Fact]:
    first = next(iter(axes.values()))
    facts = {}
    if settings.format:
        facts["format"] = Fact(settings.format, "you")
    for key in ("arrays", "inputs", "targets"):
        if names := getattr(settings, key):
            why = "the others have other shapes" if some else ""
            facts[key] = Fact(list(names), "guessed" if some else "file", why)
    facts["axes"] = Fact(settings.axes, first.source, first.why)
    if settings.endpoint:
        facts["endpoint"] = Fact(True, "you", "the last point of each axis repeats the first")
    if settings.allow:
        facts["allow"] = Fact(list(settings.allow), "you")
    facts["split"] = Fact(list(settings.split), "guessed", "shares of train, validation and test")
    if settings.split_by == "time":
        why = "too few trajectories to share out: training first, test last, a window between them"
        facts["split_by"] = Fact("time", "guessed", why)
    else:
        facts["seed"] = Fact(settings.seed, "guessed", "another seed splits in another way")
    facts["precision"] = Fact(settings.precision, "guessed", "or float64")
    return facts


def _speed(type: FieldType, seen: Look) -> float:
    """How fast the flow in a file is, with two digits."""
    return float(f"{typical_speed(Field(seen.values, type.at([0]))):.2g}")


def _ranges(group: Group, shift: float, speed: float) -> list[float]:
    """A magnitude for each coordinate: shifts in periods, velocities; 0 for any other."""
    return [
        shift if name in AXES else speed if name.startswith("velocity") else 0.0
        for name in group.coordinates
    ]


def _motion(group: Group, type: FieldType, seen: Look) -> dict[str, Fact]:
    speed = _speed(type, seen)
    why = f"how far samples are moved in training, for {', '.join(group.coordinates)}"
    return {"train_range": Fact(_ranges(group, 0.15, speed / 2), "guessed", why)}


def _ood(group: Group, type: FieldType, seen: Look) -> dict[str, Fact]:
    speed = _speed(type, seen)
    why = "test samples are moved by so much at least and at most: beyond the training"
    return {
        "low": Fact(_ranges(group, 0.15, speed), "guessed", why),
        "high": Fact(_ranges(group, 0.5, 2 * speed), "guessed", "half a period is all there is"),
    }


def _fault(findings: Findings, settings: DataSettings, lengths: Fact) -> str:
    """Why the file cannot be used as it is; empty if it can."""
    stack = findings.parts[0]
    try:
        for part, seen in zip(findings.parts, findings.seen, strict=True):
            check_values(part, seen, settings.allow)
            check_endpoint(findings.contents, part, settings)
        known = [math.nan] * stack.dim if lengths.value == BLANK else lengths.value
        check_box(findings.contents, stack, known, settings.allow)
        if len(order := _swapped(findings)) > 0:
            raise DatasetError(
                stack.path,
                "its velocity has far less divergence if the first of its axes of space is y: say "
                f'--axes "{order}", or the axes as they are if it is not',
            )
        if stack.samples < 3 and settings.split_by == "trajectory":
            raise DatasetError(
                stack.path,
                f"holds {stack.samples} sample{'s' * (stack.samples > 1)}: training, validation "
                "and test need at least one each; give more, or say --axes with the sample axis",
            )
        if not settings.inputs and not stack.timed:
            raise DatasetError(
                stack.path,
                "has no time axis and no pairs: say --axes with the time axis, or name the arrays "
                "of inputs and targets, --array A --target B",
            )
    except DatasetError as error:
        return error.reason
    return ""


def _swapped(findings: Findings) -> str:
    """The axes with x and y exchanged, if they were guessed and a velocity says so; or nothing."""
    fact, type, seen = next(iter(findings.axes.values())), findings.type, findings.seen[0]
    moving = [q for q in type.quantities if q.kind == "velocity"]
    if type.dim != 2 or fact.source != "guessed" or not moving:
        return ""
    spectrum = to_spectrum(seen.values[:, type.place(moving[0])].double(), 2)
    k, m = wavenumbers(tuple(seen.values.shape[2:])) / torch.tensor(type.lengths)[:, None, None]
    u, v = spectrum[:, 0], spectrum[:, 1]
    as_read, other = ((a * u + b * v).abs().square().sum() for a, b in ((k, m), (m, k)))
    swap = {"x": "y", "y": "x"}
    text = " ".join(swap.get(role, role) for role in fact.value.split())
    return text if bool(other < SOLENOIDAL * as_read) else ""


# --- telling --------------------------------------------------------------------------------------


def show_findings(findings: Findings, console: Console) -> None:
    """Print what was found: arrays, channels, geometry, then what is missing."""
    console.print(_array_table(findings))
    console.print(_channel_table(findings))
    for line in (*_geometry(findings), *findings.notes):
        console.print(f"- {line}", markup=False, highlight=False, soft_wrap=True)
    for question in findings.questions:
        line = f"the file does not say {question}"
        console.print(f"- {line}", markup=False, highlight=False, soft_wrap=True)


def _array_table(findings: Findings) -> Table:
    contents = findings.contents
    title = escape(f"{contents.path}: {contents.layout}")
    table = Table("array", "shape", "type", "axes", "why", title=title, title_justify="left")
    for name, array in contents.arrays.items():
        fact = findings.axes.get(name, Fact("-", ""))
        shape = " x ".join(map(str, array.shape)) or "one number"
        table.add_row(*map(escape, (name, shape, str(array.dtype), fact.value, fact.comment)))
    return table


def _channel_table(findings: Findings) -> Table:
    seen = findings.seen[0]
    title = f"Channels, in {len(seen.samples)} samples"
    columns = ("channel", "kind", "least", "greatest", "deviation", "NaN")
    table = Table(*columns, title=title, title_justify="left")
    kinds = [(name, q.kind) for q in findings.type.quantities for name in q.components]
    for number, bad in enumerate(seen.bad):
        name, kind = kinds[number] if number < len(kinds) else (str(number), "?")
        numbers = (part[number] for part in (seen.least, seen.greatest, seen.std))
        table.add_row(name, kind, *(f"{value:.4g}" for value in numbers), str(bad))
    return table


def _geometry(findings: Findings) -> Iterable[str]:
    stack, seen = findings.parts[0], findings.seen[0]
    entries = findings.document["input"]
    over = f", {stack.snapshots} snapshots" if stack.timed else ""
    grid = " x ".join(map(str, stack.grid))
    samples, channels = f"{stack.samples} sample", f"{stack.channels} channel"
    samples, channels = samples + "s" * (stack.samples > 1), channels + "s" * (stack.channels > 1)
    line = f"{samples}{over}, {channels} "
    yield line + f"on {grid} points; looked at samples {', '.join(map(str, seen.samples))}"
    split = findings.document["data"].get("split_by")
    yield f"split by {split.value} ({split.comment})" if split else "split by trajectory"
    for key in ("lengths", "step"):
        yield f"{key} = {entries[key].value} ({entries[key].comment})"
    for axis, jump in zip(AXES, seen.jump, strict=False):
        yield (
            f"{axis}: the jump across the boundary is {math.sqrt(jump):.2g} times that between "
            "neighbours (about 1: periodic, 0: the end point is listed twice)"
        )
    yield from _positions(findings)


def _positions(findings: Findings) -> Iterable[str]:
    """Whether samples lie on the slice of the group or everywhere: the spread of their frames."""
    if any(any(seen.bad) for seen in findings.seen) or len(findings.seen[0].samples) < 3:
        return
    group, values = findings.group, findings.seen[0].values.double()
    xi, quality = default_slice(group).read(Field(values, findings.type))
    for i, name in enumerate(group.coordinates):
        if float(quality[:, i].median()) == 0:
            yield f"{name}: these fields do not determine it"
        elif math.isinf(group.periods[i]):
            mean, std = float(xi[:, i].mean()), float(xi[:, i].std())
            yield f"{name}: {mean:.3g} on average, spread {std:.2g}"
        else:
            spread = _circular_spread(xi[:, i] / group.periods[i])
            place = "in between" if spread > CENTRED else "centred on the slice"
            place = "everywhere" if spread > ANYWHERE else place
            yield f"{name}: samples lie {place} (spread {spread:.2g} of a period)"


def _circular_spread(turns: Tensor) -> float:
    """The deviation of positions on a circle, in turns: from the length R of their mean vector."""
    length = torch.exp(2j * math.pi * turns).mean().abs().clamp(1e-12, 1)
    return float((2 * length.log().abs()).sqrt() / (2 * math.pi))


# --- writing --------------------------------------------------------------------------------------


def write_task(findings: Findings, path: Path) -> None:
    """Write the document; a file that cannot be used is refused, and one that is there is kept."""
    if findings.fault:
        raise DatasetError(findings.contents.path, findings.fault)
    if path.exists():
        raise UsageError(f"{path} is there already: delete it, or choose another name")
    write_text(path, task_text(findings, path.parent))


def task_text(findings: Findings, folder: Path) -> str:
    """The document as commented TOML, with the path of the data as seen from a folder."""
    file = findings.contents.path
    lines = [
        f"# Written by pacefno inspect {file.name}. Check what is marked as guessed; an entry",
        f'# "{BLANK}" has to be filled in before the document can be used.',
        "",
        f"name = {_toml(re.sub(r'[^A-Za-z0-9_-]+', '-', file.stem).strip('-') or 'task')}",
    ]
    place = Fact(Path(os.path.relpath(file.absolute(), folder.absolute())).as_posix(), "")
    for table, facts in findings.document.items():
        lines += ["", f"[{table}]"] if table else []
        for key, fact in (({"file": place} if table == "data" else {}) | facts).items():
            comment = f"  # {fact.comment}" if fact.comment else ""
            lines.append(f"{key} = {_toml(fact.value)}{comment}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A plain value as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    write: Callable[[Any], str] = json.dumps if isinstance(value, bool | str) else repr
    return write(value)
