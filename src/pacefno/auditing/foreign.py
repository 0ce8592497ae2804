"""Models of other people: found by a text, or known by nothing but their predictions."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from pacefno.auditing.measure import Model, audit
from pacefno.auditing.result import Audit
from pacefno.errors import UsageError
from pacefno.exporting import Program, load_pt2, open_exported
from pacefno.files import make_folder, replacing, write_text
from pacefno.grid import FieldError
from pacefno.inference import is_run, load
from pacefno.pace import PACE
from pacefno.registry import import_named
from pacefno.task import Task
from pacefno.train.defaults import import_operator, own_operator

FORMS = (
    "the folder of a run or of a saved model, module:attribute, a program FILE.pt2 of "
    "torch.export, or FILE.onnx of pacefno.export"
)
ALIKE = 1e-3  # relative: inputs that differ by more were written for something else
MANIFEST, INPUTS, PREDICTIONS = "manifest.json", "inputs", "predictions"


class Opened(NamedTuple):
    """A model, what to call it, and its batch where it takes no other."""

    model: Model
    name: str
    batch: int | None = None


# --- by a text ------------------------------------------------------------------------------------


def open_model(text: str, operator: str | None = None) -> Opened:
    """The model that a text names; code is run only where ``module:attribute`` asks for it.

    ``operator`` names the user's own operator inside a saved model or a run, ``module:attribute``.
    """
    path = Path(text)
    if operator is not None and (not path.exists() or path.suffix in (".pt2", ".onnx")):
        raise UsageError(
            f"--model {operator}: only for the folder of a run or of a saved model, not for {text}"
        )
    if path.suffix == ".pt2":
        return open_program(path)
    if path.suffix == ".onnx":
        return Opened(open_exported(path), text)
    if path.suffix in (".pt", ".pth", ".pkl", ".ckpt"):
        raise UsageError(
            f"{text}: pickled files are never opened; expected {FORMS}: build the model in a "
            "module of your own that loads its weights, or torch.export it"
        )
    if not path.exists() and re.fullmatch(r"[\w.]+:[\w.]+", text):
        return Opened(import_model(text), text)
    if not path.exists():
        raise UsageError(f"{text}: there is no such model: expected {FORMS}")
    return Opened(load_with(path, operator), text)


def load_with(folder: Path, operator: str | None) -> PACE:
    """The model of a folder; ``operator`` names the user's own operator in it.

    A run builds it anew from its class and settings; a saved model is handed the module itself.
    """
    if operator is None:
        return load(folder)
    own = own_operator(operator)
    if ":" not in own:
        raise UsageError(f"--model {operator}: expected module:attribute, the operator in {folder}")
    if is_run(folder):
        import_operator(own)
        return load(folder)
    module = import_model(own)
    if not isinstance(module, nn.Module):
        raise UsageError(f"{own}: expected a torch.nn.Module, or what builds one, got {module!r}")
    return load(folder, operator=module)


def import_model(text: str) -> Model:
    """``module:attribute``: a module or a function of the field as it is; a class, or a function
    without parameters, is called to build it.
    """
    found = import_named(text)
    if inspect.isclass(found):
        needed = [
            p.name
            for p in inspect.signature(found).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        if needed:
            raise UsageError(
                f"{text}: the class needs {', '.join(needed)}: name an instance of it, or a "
                "function of the field"
            )
        found = found()
    elif inspect.isfunction(found) and not inspect.signature(found).parameters:
        found = found()
    if not callable(found):
        raise UsageError(f"{text}: expected a module or a function, got {type(found).__name__}")
    model: Model = found.eval() if isinstance(found, nn.Module) else found
    return model


def open_program(path: Path) -> Opened:
    """A program of ``torch.export.save``, if there is nothing in it that would be unpickled."""
    try:
        content = path.read_bytes()  # what is checked is what is loaded
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file: expected {FORMS}") from None
    program, document = load_pt2(path, content)
    if document is not None:  # one of ours, which knows what it expects
        return Opened(Program(path, content), str(path))
    batch = None
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs:
            size = node.meta["val"].shape[0]
            batch = size if isinstance(size, int) else None
    return Opened(program.module(), str(path), batch)


# --- by its predictions ---------------------------------------------------------------------------


def write_inputs(
    folder: Path, task: Task, input: Tensor, target: Tensor, options: dict[str, Any]
) -> int:
    """Write every field that an audit wants predicted, and a manifest; how many they are.

    An audit never looks at a prediction before it asks for the next, so what it asks is known
    beforehand: it is run on a model that keeps its inputs and answers 0.
    """
    if any((folder / PREDICTIONS).glob("*")):
        raise UsageError(
            f"{folder} holds predictions already: read them with --read-predictions, or choose "
            "another folder"
        )
    make_folder(folder / INPUTS)
    make_folder(folder / PREDICTIONS)
    recorder = _Recorder(folder, target)
    audit(recorder, task, input, target, batch=len(input), on_progress=recorder.note, **options)
    document = {
        "format": 1,
        "what": f"predict each {INPUTS}/N.npy (B, C, *grid) and save it as {PREDICTIONS}/N.npy",
        "task": task.document(),
        "samples": len(input),
        "options": options,
        "files": recorder.files,
    }
    write_text(folder / MANIFEST, json.dumps(document, indent=1) + "\n")
    return len(recorder.files)


def read_manifest(folder: Path) -> dict[str, Any]:
    """What was written into a folder; an error for a folder that was not finished."""
    try:
        document: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        if document["format"] != 1:
            raise ValueError(f"format {document['format']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{folder} holds no manifest of an audit ({error}): write one with --write-inputs"
        ) from None
    return document


def read_predictions(folder: Path, task: Task, input: Tensor, target: Tensor, name: str) -> Audit:
    """The audit of whatever predicted the inputs of a folder."""
    document = read_manifest(folder)
    wanted = [entry["prediction"] for entry in document["files"]]
    missing = [name for name in wanted if not (folder / name).exists()]
    if missing:
        raise UsageError(
            f"{folder}: {len(missing)} of {len(wanted)} predictions are missing, the "
            f"first is {missing[0]}: save one (B, C, *grid) array for each input"
        )
    replay = _Replay(folder, document["files"])
    return audit(replay, task, input, target, batch=len(input), name=name, **document["options"])


@final
class _Recorder:
    """A model that stores what it is given."""

    def __init__(self, folder: Path, target: Tensor) -> None:
        self.folder, self.target = folder, target
        self.files: list[dict[str, Any]] = []
        self.motion, self.asked = "at rest", 0

    def note(self, done: int, total: int, motion: str) -> None:
        self.motion, self.asked = motion, 0

    def __call__(self, values: Tensor) -> Tensor:
        name = f"{len(self.files):03d}.npy"
        with replacing(self.folder / INPUTS / name) as temporary, open(temporary, "wb") as file:
            np.save(file, values.numpy(), allow_pickle=False)
        within = ("", ", as PACE sees it", ", mirrored or turned for the average")
        self.files.append(
            {
                "input": f"{INPUTS}/{name}",
                "prediction": f"{PREDICTIONS}/{name}",
                "shape": [len(values), *self.target.shape[1:]],
                "what": self.motion + within[min(2, self.asked)],
            }
        )
        self.asked += 1
        return self.target.new_zeros(len(values), *self.target.shape[1:])


@final
class _Replay:
    """A model that answers from files, in the order in which they were written."""

    def __init__(self, folder: Path, files: list[dict[str, Any]]) -> None:
        self.folder = folder
        self.files: Iterator[dict[str, Any]] = iter(files)

    def __call__(self, values: Tensor) -> Tensor:
        entry = next(self.files, None)
        if entry is None:
            raise UsageError(f"{self.folder} was written for another task or version: {_REWRITE}")
        asked = self._read(entry["input"])
        if asked.shape != values.shape or float((asked - values).norm()) > ALIKE * float(
            values.norm()
        ):
            raise UsageError(
                f"{self.folder}: {entry['input']} is not what this task and these samples ask for: "
                f"{_REWRITE}"
            )
        found = self._read(entry["prediction"])
        if list(found.shape) != entry["shape"]:
            raise FieldError(
                f"{self.folder / entry['prediction']}: expected an array {tuple(entry['shape'])}, "
                f"got {tuple(found.shape)}: samples, channels, then the grid"
            )
        return found.to(values.dtype)

    def _read(self, name: str) -> Tensor:
        try:
            array = np.load(self.folder / name, allow_pickle=False)
            return torch.from_numpy(np.ascontiguousarray(array))
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(
                f"{self.folder / name}: is no .npy file of numbers ({error}): save it with "
                "numpy.save"
            ) from None


_REWRITE = "write the inputs again with --write-inputs and predict those"
