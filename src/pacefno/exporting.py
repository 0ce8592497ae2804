"""Models as programs that run without this package: ``torch.export`` (.pt2) and ONNX (.onnx).

A program holds arithmetic and no checks: it cannot refuse a field with NaN or of another box, nor
warn of a frame that is not determined. So :func:`export` compares a program with its model before
it writes the file and stores in the file what the program expects; :func:`open_exported` checks
that before it runs one. Whoever runs a program in another language reads it there.
"""

from __future__ import annotations

import io
import json
import logging
import math
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from pacefno.errors import UsageError, require
from pacefno.fields import Box, Field, FieldType
from pacefno.files import PathError, check_writable, write_bytes
from pacefno.grid import FieldError, check_field, resample, transforms_as_products
from pacefno.groups import Group
from pacefno.metrics import random_elements
from pacefno.pace import PACE, UndeterminedFrameWarning
from pacefno.registry import describe

DOCUMENT = "pacefno.json"  # the name under which a file says what it expects
# Relative: how far a program may be from its model. Rounding is a hundredth of it.
AGREEMENT = {"float32": 1e-4, "float64": 1e-9}
EXPECTS = (
    "finite values (one NaN makes the whole sample NaN)",
    "a periodic box without the end point: point i of n lies at i/n of a period",
    "channels, lengths, times and units of 'input', which the program takes as given",
)
# All that a program of numbers and operations is stored as; anything else might be unpickled.
HARMLESS = re.compile(
    r"[^/]+/(data/weights/(weight_\d+|model_weights_config\.json)"
    r"|data/constants/(tensor_\d+|model_constants_config\.json)"
    r"|models/model\.json|data/sample_inputs/model\.pt|extra/[\w.-]+"
    r"|archive_format|archive_version|\.data/version|byteorder|\.data/serialization_id)"
)
Run = Callable[[Mapping[str, Tensor]], list[Tensor]]


# --- what is exported -----------------------------------------------------------------------------


@final
class Predictor(nn.Module):
    """A model with tensors in and out: a field, and the boxes of samples where they differ.

    A PACE also returns its confidence, 0 where a field does not determine its frame, and with
    ``details`` the canonical field and the coordinates of the frame.
    """

    def __init__(self, model: nn.Module, details: bool = False) -> None:
        super().__init__()
        self.model = model
        self.details = details

    def forward(
        self, field: Tensor, lengths: Tensor | None = None, step: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        box = None if lengths is None or step is None else Box(lengths, step)
        if not isinstance(self.model, PACE):
            return (self.model(field) if box is None else self.model(field, box=box),)
        values, frame = self.model.predict(field, box=box)
        if self.model.group.size == 0:
            return (values,)
        if not self.details:
            return values, frame.confidence
        canonical = self.model.group.inverse(Field(field, self.model.input, box), frame.xi)
        return values, frame.confidence, canonical.values, frame.xi

    @property
    def outputs(self) -> list[str]:
        """The names of what it returns."""
        framed = isinstance(self.model, PACE) and self.model.group.size > 0
        names = ["prediction", "confidence", "canonical", "coordinates"]
        return names[: (4 if self.details else 2) if framed else 1]


@final
class Mover(nn.Module):
    """The action of a group as a program: ``(field, coordinates) -> moved field``.

    With the type of a model's input it moves inputs. With that of its output, which lies at the
    final time, it does what the same element has become by then: a boost by ``v`` has also shifted
    the field by ``v T / L``.
    """

    outputs = ("moved",)

    def __init__(self, group: Group, type: FieldType) -> None:
        super().__init__()
        group.check_action(type)
        self.group, self.field_type = group, type

    def forward(self, field: Tensor, coordinates: Tensor) -> tuple[Tensor]:
        return (self.group.act(Field(field, self.field_type), coordinates).values,)


# --- export ---------------------------------------------------------------------------------------


class Exported(NamedTuple):
    """The file, what it says of itself, and the largest relative difference from the model."""

    path: Path
    document: dict[str, Any]
    error: float


@torch.no_grad()
def export(
    model: nn.Module,
    path: str | Path,
    example: Tensor,
    *,
    box: Box | None = None,
    details: bool = False,
) -> Exported:
    """Write a model as a program that needs neither this package nor, as .onnx, torch.

    Args:
        model: a :class:`~pacefno.pace.PACE`, an operator on ``(B, C, *grid)`` or a :class:`Mover`.
        path: ends in ``.pt2`` (``torch.export``: any batch, any grid) or ``.onnx`` (any batch, the
            grid of the example, float32).
        example: fields such as the program will be given, ``(B, C, *grid)``. It is compared with
            the model on them, and on random ones like them.
        box: the boxes of the example, where samples differ in them: the program then takes
            ``lengths`` and ``step`` too.
        details: a PACE also returns the canonical field and the coordinates of the frame.
    """
    path = Path(path)
    _check_request(model, path, example)
    wrapped = model if isinstance(model, Mover) else Predictor(model, details).eval()
    inputs = _inputs_of(model, example, box)
    make = _made_onnx if path.suffix == ".onnx" else _made_pt2
    with _quiet():
        wrapped(**inputs)  # what the model refuses it refuses here, in numbers and not in symbols
        pack, program = make(wrapped, inputs)
        document = _document(model, wrapped, inputs, program)
        error, fields = _compare(wrapped, Program(path, pack(document)), inputs)
        document["agreement"] = {"relative_error": error, "fields": fields}
        write_bytes(path, pack(document))
    return Exported(path, document, error)


def _check_request(model: nn.Module, path: Path, example: Tensor) -> None:
    if path.suffix not in (".pt2", ".onnx"):
        raise UsageError(f"{path}: expected a name that ends in .pt2 or .onnx")
    if model.training:
        raise UsageError(
            "export: the model is in training mode, in which some parts act otherwise: call "
            "model.eval() first"
        )
    check_field(example, name="example")
    if _name_of(example.dtype) not in AGREEMENT or (
        path.suffix == ".onnx" and example.dtype != torch.float32
    ):
        raise UsageError(
            f"{path.name}: expected an example in float32 (or float64 for .pt2), got "
            f"{_name_of(example.dtype)}: convert both, model.float() and example.float(), or train "
            "in float32"
        )
    if path.suffix == ".onnx":
        for name in ("onnx", "onnxscript", "onnxruntime"):
            require(name, "export", ".onnx")
    check_writable(path)


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _inputs_of(model: nn.Module, example: Tensor, box: Box | None) -> dict[str, Tensor]:
    """What the program is given, by name: at least two samples, so that one is not the rule."""
    batch = max(2, len(example))
    rows = torch.arange(batch) % len(example)
    inputs = {"field": example[rows].contiguous()}
    if isinstance(model, Mover):
        inputs["coordinates"] = random_elements(model.group, batch, 0).to(example.device)
    if box is not None:
        inputs |= {"lengths": box.lengths[rows], "step": box.step[rows]}
    return inputs


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporters of torch print their progress and warn of what is theirs."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


Wrapped = Predictor | Mover
Pack = Callable[[dict[str, Any]], bytes]  # the file that says this of itself


def _trace(
    wrapped: Wrapped, inputs: dict[str, Tensor], any_grid: bool
) -> torch.export.ExportedProgram:
    """The graph of a model, for any batch."""
    some = torch.export.Dim.DYNAMIC
    free = {name: {0: some} for name in inputs}
    if any_grid:
        free["field"] |= {axis: some for axis in range(2, inputs["field"].ndim)}
    try:
        program = torch.export.export(wrapped, (), dict(inputs), dynamic_shapes=free, strict=False)
    except UsageError:
        raise
    except Exception as error:
        reason = " ".join(str(error).strip().splitlines()[:1])
        raise UsageError(
            "this model cannot be exported: a part of it decides by the values of a field, which "
            f"a graph cannot ({reason[:200]}): choose another frame or operator"
        ) from error
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # lines of source, with the paths of this machine
    return program


def _made_pt2(
    wrapped: Wrapped, inputs: dict[str, Tensor]
) -> tuple[Pack, torch.export.ExportedProgram]:
    program = _trace(wrapped, inputs, any_grid=True)

    def pack(document: dict[str, Any]) -> bytes:
        buffer = io.BytesIO()
        torch.export.save(program, buffer, extra_files={DOCUMENT: json.dumps(document)})
        return buffer.getvalue()

    return pack, program


def _made_onnx(
    wrapped: Wrapped, inputs: dict[str, Tensor]
) -> tuple[Pack, torch.export.ExportedProgram]:
    with transforms_as_products():
        wrapped(**inputs)  # its tables are kept and enter the graph as constants
        program = _trace(wrapped, inputs, any_grid=False)
    made = torch.onnx.export(
        program,
        dynamo=True,
        verbose=False,
        input_names=list(inputs),
        output_names=list(wrapped.outputs),
    )
    assert made is not None
    unknown = sorted({n.op_type for n in made.model_proto.graph.node} & {"DFT", "STFT", "Loop"})
    if unknown:
        raise UsageError(
            "this model cannot be exported as .onnx: a part of it needs the operator "
            f"{unknown[0]}, which runtimes compute wrongly or not at all: export it as .pt2"
        )

    def pack(document: dict[str, Any]) -> bytes:
        model = made.model_proto
        for node in model.graph.node:
            del node.metadata_props[:]
        entry = model.metadata_props.add()
        entry.key, entry.value = DOCUMENT, json.dumps(document)
        content: bytes = model.SerializeToString()
        return content

    return pack, program


# --- what a program expects -----------------------------------------------------------------------


def _document(
    model: nn.Module,
    wrapped: Wrapped,
    inputs: dict[str, Tensor],
    program: torch.export.ExportedProgram,
) -> dict[str, Any]:
    """What a program expects and returns, as plain data."""
    values = {node.name: node.meta["val"] for node in program.graph.nodes if "val" in node.meta}
    signature = program.graph_signature
    sizes = _sizes(program)
    axes = ["batch", "channel", *"xyz"]
    into = {
        name: _described(values[node], axes if name == "field" else axes[:1], sizes)
        for name, node in zip(inputs, signature.user_inputs, strict=True)
    }
    out = zip(wrapped.outputs, signature.user_outputs, strict=True)
    document: dict[str, Any] = {
        "format": 1,
        "pacefno": version("pacefno"),
        "program": "mover" if isinstance(model, Mover) else "model",
        "inputs": into,
        "outputs": {name: _described(values[node], axes, sizes) for name, node in out},
        "expects": list(EXPECTS),
    }
    if isinstance(model, Mover):
        document |= {"input": model.field_type.document()}
        document |= _described_group(model.group)
    if isinstance(model, PACE):
        document |= {"input": model.input.document(), "output": model.output.document()}
        document |= _described_group(model.group) | {"frame": describe(model.frame)}
        document["on_undetermined"] = model.on_undetermined
    return document


def _described_group(group: Group) -> dict[str, Any]:
    periods = [None if math.isinf(period) else period for period in group.periods]
    coordinates = [*group.coordinates]
    return {"group": describe(group), "coordinates": coordinates, "periods": periods}


def _sizes(program: torch.export.ExportedProgram) -> dict[str, int]:
    """The least size of each axis that may be of any, by its symbol."""
    return {str(symbol): int(r.lower) for symbol, r in program.range_constraints.items()}


def _described(value: Tensor, axes: list[str], sizes: dict[str, int]) -> dict[str, Any]:
    """Precision and shape of a tensor: numbers, or the name of an axis and its least size."""
    shape: list[Any] = []
    for axis, size in zip(axes, value.shape, strict=False):
        free = not isinstance(size, int)
        least = 1 if axis == "batch" else sizes.get(str(size), 1)
        shape.append({"axis": axis, "at_least": least} if free else size)
    shape += [int(size) for size in value.shape[len(axes) :]]
    return {"dtype": _name_of(value.dtype), "shape": shape}


# --- programs -------------------------------------------------------------------------------------


@final
class Program:
    """An exported program with its checks: what a graph cannot refuse is refused before it."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path = path
        self.document, self._run = (
            _read_onnx(path, content) if path.suffix == ".onnx" else _read_pt2(path, content)
        )

    def __call__(self, field: Tensor, **others: Tensor) -> Tensor:
        """The prediction for ``(B, C, *grid)``, or the moved field."""
        return next(iter(self.run(field, **others).values()))

    def run(self, field: Tensor, **others: Tensor) -> dict[str, Tensor]:
        """All outputs by name; ``others`` are further inputs: coordinates, lengths, step."""
        given = {"field": field, **others}
        if set(given) != set(self.document["inputs"]):
            raise UsageError(
                f"{self.path}: expected the inputs {list(self.document['inputs'])}, got "
                f"{list(given)}"
            )
        for name, value in given.items():
            self._check(name, value, field.shape[0])
        found = self._run({name: given[name] for name in self.document["inputs"]})
        outputs = dict(zip(self.document["outputs"], found, strict=True))
        self._check_determined(outputs.get("confidence"))
        return outputs

    def _check(self, name: str, value: Tensor, batch: int) -> None:
        wanted = self.document["inputs"][name]
        shape = wanted["shape"]
        if name == "field":
            check_field(value, channels=shape[1], dim=len(shape) - 2, name=f"{self.path}: field")
        if _name_of(value.dtype) != wanted["dtype"]:
            raise FieldError(
                f"{self.path}: {name}: expected {wanted['dtype']}, got {_name_of(value.dtype)}: "
                f"convert it with .to(torch.{wanted['dtype']})"
            )
        fits = value.ndim == len(shape) and value.shape[0] == batch
        for size, want in zip(value.shape[1:], shape[1:], strict=False):
            fits &= size == want if isinstance(want, int) else size >= want["at_least"]
        if not fits:
            sizes = [s if isinstance(s, int) else f"{s['axis']} >= {s['at_least']}" for s in shape]
            raise FieldError(
                f"{self.path}: {name}: expected the shape ({', '.join(map(str, sizes))}), got "
                f"{tuple(value.shape)}: resample the field, or export the model for that grid"
            )

    def _check_determined(self, confidence: Tensor | None) -> None:
        rule = self.document.get("on_undetermined")
        if confidence is None or rule == "ignore" or not bool((confidence <= 0).any()):
            return
        text = (
            f"{self.path}: the frame of {int((confidence <= 0).sum())} of {len(confidence)} "
            "samples is not determined, so the program does not follow their motion"
        )
        if rule == "raise":
            raise FieldError(text)
        warnings.warn(text, UndeterminedFrameWarning, stacklevel=4)


def open_exported(path: str | Path) -> Program:
    """A file that :func:`export` wrote, as a function of the field, with its checks."""
    path = Path(path)
    try:
        return Program(path, path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None


def _read_onnx(path: Path, content: bytes) -> tuple[dict[str, Any], Run]:
    runtime = require("onnxruntime", "export", ".onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        found = session.get_modelmeta().custom_metadata_map.get(DOCUMENT)
    except Exception as error:
        raise PathError(path, f"is no ONNX program that onnxruntime runs ({error})") from None

    def run(inputs: Mapping[str, Tensor]) -> list[Tensor]:
        made = session.run(None, {name: t.cpu().numpy() for name, t in inputs.items()})
        return [torch.from_numpy(part) for part in made]

    return _parsed(path, found), run


def _read_pt2(path: Path, content: bytes) -> tuple[dict[str, Any], Run]:
    program, found = load_pt2(path, content)
    module = program.module()

    def run(inputs: Mapping[str, Tensor]) -> list[Tensor]:
        with torch.no_grad():
            return list(module(**inputs))

    return _parsed(path, found), run


def _parsed(path: Path, text: str | None) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(text or "")
        if document["format"] != 1:
            raise ValueError(document["format"])
    except (ValueError, KeyError, TypeError):
        raise PathError(
            path, "does not say what it expects: it was not written by pacefno.export"
        ) from None
    return document


def load_pt2(path: Path, content: bytes) -> tuple[torch.export.ExportedProgram, str | None]:
    """A program of ``torch.export.save`` and our document in it, if nothing has to be unpickled."""
    extra = {DOCUMENT: ""}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = archive.namelist()
            odd = [n for n in names if not HARMLESS.fullmatch(n) or names.count(n) > 1]
            if odd:
                raise UsageError(f"{path}: holds {odd[0]!r}, which is no plain tensor: {_RESAVE}")
            for name in names:
                part = archive.read(name)
                if name.endswith("_config.json"):
                    for key, entry in json.loads(part)["config"].items():
                        if entry["use_pickle"]:
                            raise UsageError(f"{path}: {key} is pickled: {_RESAVE}")
                elif name.endswith(".pt"):
                    torch.load(io.BytesIO(part), weights_only=True)  # or it would be unpickled
        program = torch.export.load(io.BytesIO(content), extra_files=extra)
    except UsageError:
        raise
    except Exception as error:  # whatever zip files, JSON and torch find wrong with it
        raise PathError(path, f"is no program of torch.export.save ({error}): {_RESAVE}") from None
    return program, extra[DOCUMENT] or None


_RESAVE = "save it again with torch.export.save from weights that are dense tensors"


# --- agreement ------------------------------------------------------------------------------------


def _compare(wrapped: Wrapped, program: Program, inputs: dict[str, Tensor]) -> tuple[float, int]:
    """The largest relative difference between program and model, and on how many fields.

    On the example, whole and one sample alone; on random fields like it; where the program takes
    any grid, on a finer one too.
    """
    one = {name: value[:1] for name, value in inputs.items()}
    trials = [inputs, one, _random_like(inputs)]
    grid = program.document["inputs"]["field"]["shape"][2:]
    if not all(isinstance(size, int) for size in grid):
        field = inputs["field"]
        finer = resample(field, [size + size // 2 for size in field.shape[2:]])
        trials.append(inputs | {"field": finer})
    limit, worst = AGREEMENT[_name_of(inputs["field"].dtype)], 0.0
    for trial in trials:
        expected = wrapped(**trial)
        for name, found in program.run(**trial).items():
            wanted = expected[list(wrapped.outputs).index(name)]
            error = _difference(name, found, wanted, wrapped)
            if not error <= limit:
                raise UsageError(
                    f"{program.path}: not written: its {name} is {error:.2g} (relative) from the "
                    f"model's, allowed {limit:g}: fields whose frame is not determined are "
                    "followed to another place; give an example with determined ones"
                )
            worst = max(worst, error)
    return worst, sum(trial["field"].shape[0] for trial in trials)


def _difference(name: str, found: Tensor, wanted: Tensor, wrapped: Wrapped) -> float:
    """Relative to each sample's norm; of coordinates and qualities the largest difference."""
    found, wanted = found.double(), wanted.double().cpu()
    if name == "coordinates":
        assert isinstance(wrapped, Predictor) and isinstance(wrapped.model, PACE)
        return float(wrapped.model.group.difference(found, wanted).abs().max())
    if name == "confidence":
        return float((found - wanted).abs().max())
    gap = (found - wanted).flatten(1).norm(dim=1)
    return float((gap / wanted.flatten(1).norm(dim=1).clamp_min(1e-30)).max())


def _random_like(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Inputs with other fields: mixtures of those given, and long waves of their size."""
    field = inputs["field"]
    draw = torch.Generator().manual_seed(1)
    batch, channels, *grid = field.shape
    noise = torch.randn(batch, channels, *[min(8, n) for n in grid], generator=draw)
    smooth = resample(noise.to(field), grid)
    axes = tuple(range(2, field.ndim))
    spread = field.std(dim=axes, keepdim=True)
    mixed = 0.7 * field + 0.3 * field.flip(0)
    return inputs | {"field": mixed + 0.2 * spread * smooth}
