"""Save a model, load it, and apply it to files. Nothing is ever unpickled.

A model is stored as one safetensors file: its weights, and a document that says which operator,
group and frame it is made of and what its fields are. So a folder is complete in itself: a run of
``pacefno train`` is loaded in the same way as a model that was wrapped by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from pacefno.checkpoint import (
    FINAL,
    Checkpoint,
    CheckpointError,
    check_layout,
    load_checkpoint,
    newest,
    save_checkpoint,
)
from pacefno.errors import UsageError
from pacefno.fields import AXES, Box, FieldType
from pacefno.frames import AdamRefiner, CanonicalSlice, Frame, GaussNewton, Refiner, default_slice
from pacefno.grid import FieldError, check_field, check_points
from pacefno.groups import Group
from pacefno.pace import PACE, Prediction
from pacefno.registry import (
    FOREIGN,
    Spec,
    build,
    describe,
    foreign_parts,
    lookup,
    refusals_named,
    unknown,
)
from pacefno.task import make_task

# "refined" is by Gauss-Newton, "adam" by the paper's optimiser; a refiner has settings of its own.
Inference: TypeAlias = Literal["one-shot", "refined", "adam", "oracle"] | Refiner
BATCH = 20  # samples that are predicted at once


# --- what a model is made of ----------------------------------------------------------------------


def describe_model(model: PACE) -> dict[str, Any]:
    """Everything but the weights, as plain data."""
    return {
        "operator": describe(model.operator),
        "group": describe(model.group),
        "frame": describe(model.frame),
        "input": model.input.document(),
        "output": model.output.document(),
        "on_undetermined": model.on_undetermined,
    }


def rebuild(document: dict[str, Any], operator: nn.Module | None = None) -> PACE:
    """The model that a document describes, with fresh weights.

    ``operator`` stands in for one that cannot be rebuilt from its description.
    """
    group = build(document["group"])
    given = FieldType.from_document(document["input"])
    # The operator first: weights are drawn in this order.
    inner = build(document["operator"]) if operator is None else operator
    return PACE(
        inner,
        group,
        input=given,
        output=FieldType.from_document(document["output"]),
        frame=build(document["frame"], group=group, type=given),
        on_undetermined=document["on_undetermined"],
    )


def _users_own(spec: Any) -> str:
    """The name of a class outside the package in a specification; empty if all are known parts.

    ``pacefno train --model module:Class`` stores such a class under that name.
    """
    if not isinstance(spec, dict):
        return ""
    name = str(spec.get(FOREIGN, spec.get("name", "")))
    return name if FOREIGN in spec or ":" in name else _users_own(spec.get(_inside(spec)))


def _inside(spec: Mapping[str, Any]) -> str:
    """Under which name a part of ours keeps the module that it wraps."""
    return "module" if "module" in spec else "operator"


def _filled_in(spec: Any, operator: nn.Module) -> Any:
    """A specification with a module in the place of the user's own."""
    if FOREIGN in spec or ":" in spec["name"]:
        return operator
    return spec | {_inside(spec): _filled_in(spec[_inside(spec)], operator)}


def _is_inner(spec: Any, operator: nn.Module, weights: Mapping[str, Tensor]) -> bool:
    """Whether a module stands for the user's own part inside ours, and not for all of them.

    The names of the weights tell; where there are none, the class does.
    """
    own = _users_own(spec)
    if not own or own == spec.get(FOREIGN):
        return False
    names = {name.removeprefix("operator.") for name in weights if name.startswith("operator.")}
    if not names:
        return type(operator).__qualname__ in (own, own.rpartition(":")[2])
    return set(operator.state_dict()) != names


# --- save and load --------------------------------------------------------------------------------


def save(model: PACE, folder: str | Path) -> None:
    """Write a model into a folder, from which :func:`load` brings it back.

    Group, frame and operator are stored by their registered names. An operator that is not
    registered (a module of your own) is stored by its weights alone; hand it over when loading.
    """
    if not isinstance(model, PACE):
        raise UsageError(
            f"save: expected a PACE model, got {type(model).__name__}: wrap a plain operator in "
            "PACE(operator, pacefno.groups.Trivial(dim)), or save its state_dict"
        )
    document = describe_model(model)
    if strangers := foreign_parts(document["group"]) + foreign_parts(document["frame"]):
        raise UsageError(
            f"{strangers[0]} is not registered, so the model could not be rebuilt: decorate its "
            "class with @pacefno.registry.register(part, name)"
        )
    save_checkpoint(Path(folder) / FINAL, {"model": weights_of(model)}, {"model": document})


def load(
    folder: str | Path, *, operator: nn.Module | None = None, frame: Spec | None = None
) -> PACE:
    """The model of a folder that :func:`save` or ``pacefno train`` wrote, in evaluation mode.

    Args:
        folder: the folder, or one checkpoint file in it. Of an unfinished run the best weights so
            far are taken.
        operator: a module into which the operator's weights are loaded; needed where the saved one
            is not registered, as after ``pacefno train --model module:Class``.
        frame: another frame than the trained one, by its specification: ``{"name": "analytic"}``.
    """
    stored, weights = read_model(Path(folder), operator)
    return restore(Path(folder), stored, weights, operator, frame)


def read_model(
    folder: Path, operator: nn.Module | None = None
) -> tuple[Checkpoint, dict[str, Tensor]]:
    """The stored documents of a model and its best weights; one clear error for anything else."""
    checkpoint, key = _find(folder)
    document = checkpoint.documents.get("model")
    if document is None or key not in checkpoint.tensors:
        raise CheckpointError(
            folder, "holds no model: expected the folder of a run or a saved model"
        )
    parts = [document["group"], document["frame"]]
    parts += [document["operator"]] if operator is None else []
    if text := _unknown_part(parts):
        if own := _users_own(document["operator"]):
            raise UsageError(
                f"{folder}: its operator is {own}, a class of your own, and nothing is imported "
                f"that you did not name: say --model {own}, or pacefno.load(folder, "
                "operator=module)"
            )
        raise UsageError(
            f"{folder}: {text} A part of your own is known here after its module was imported: "
            "import the module that registers it (pacefno --import MODULE)."
        )
    return checkpoint, checkpoint.tensors[key]


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a training: a model that was saved by hand has no settings."""
    return "config" in _find(folder)[0].documents


def _unknown_part(spec: Any) -> str:
    """What is not registered in this process, of all parts of a specification; empty if nothing."""
    if isinstance(spec, dict) and "part" in spec:
        try:
            lookup(spec["part"], spec["name"])
        except UsageError as error:
            return str(error)
    inside = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ()
    return next((text for item in inside if (text := _unknown_part(item))), "")


def restore(
    folder: Path,
    stored: Checkpoint,
    weights: dict[str, Tensor],
    operator: nn.Module | None = None,
    frame: Spec | None = None,
) -> PACE:
    """The model that was stored, with these weights; those of a replaced frame are left out."""
    document = stored.documents["model"]
    if operator is None and (foreign := foreign_parts(document["operator"])):
        raise UsageError(
            f"{folder}: its operator is a {foreign[0]}, which is not registered: build it and "
            "pass it as load(folder, operator=module), or say --model module:attribute"
        )
    if frame is not None:
        document = described_with_frame(stored, frame)
    if operator is not None and _is_inner(document["operator"], operator, weights):
        filled = _filled_in(document["operator"], operator)
        document, operator = document | {"operator": filled}, filled if filled is operator else None
    model = rebuild(document, operator)
    _match_precision(model, weights)
    own = model.state_dict()
    usable = {n: t for n, t in weights.items() if n in own or not n.startswith("frame.")}
    if frame is not None and (untrained := [n for n in own if n not in usable]):
        raise UsageError(
            f"{folder}: the frame {frame['name']!r} has weights that were not trained there "
            f"({untrained[0]}, ...): choose a frame without weights, such as 'analytic'"
        )
    try:
        model.load_state_dict(usable)
    except RuntimeError as error:
        raise CheckpointError(folder, f"its weights do not fit its description: {error}") from error
    return model.eval()


def _match_precision(model: PACE, weights: dict[str, Tensor]) -> None:
    """Each tensor in the precision it was stored in, constants that are not stored like the first.

    ``Module.to`` would not do: it turns complex weights into real ones.
    """
    usual = next((tensor.dtype for tensor in weights.values() if tensor.is_floating_point()), None)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if name in weights:
            tensor.data = tensor.data.to(weights[name].dtype)
        elif usual is not None and tensor.is_floating_point():
            tensor.data = tensor.data.to(usual)


def described_with_frame(stored: Checkpoint, frame: Spec) -> dict[str, Any]:
    """The description of a stored model with another frame, on the same slice.

    A run knows group and slice from its task, also where a plain operator was trained: it is then
    wrapped here.
    """
    document, config = stored.documents["model"], stored.documents.get("config")
    if config is not None:
        task = make_task(config["task"])
        group, slice = task.group, task.slice
    else:
        group, own = build(document["group"]), document["frame"].get("slice")
        slice = default_slice(group) if own is None else build(own, group=group)
    found = build_frame(frame, group, slice, FieldType.from_document(document["input"]))
    return document | {"group": describe(group), "frame": describe(found)}


def build_frame(spec: Spec, group: Group, slice: CanonicalSlice, type: FieldType) -> Frame:
    """The frame of a specification on a slice; "analytic" is the one that the slice gives."""
    if spec["name"] == "analytic" and "slice" not in spec:
        return slice.frame()
    context = {} if "slice" in spec else {"slice": slice}
    named = {"part": "frame", **spec}
    with refusals_named(named):
        found: Frame = build(named, group=group, type=type, **context)
    return found


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of all parameters and buffers on the CPU.

    Some modules (neuraloperator's) put other things into their state, which cannot be weights.
    """
    state = model.state_dict().items()
    return {name: t.detach().cpu().clone() for name, t in state if isinstance(t, Tensor)}


def real_weight(model: nn.Module, otherwise: Tensor) -> Tensor:
    """A weight that tells where a model is and how precise; another tensor if it has none."""
    return next((p for p in model.parameters() if p.is_floating_point()), otherwise)


def _find(folder: Path) -> tuple[Checkpoint, str]:
    """The finished model, or the best weights of the newest checkpoint, or one named file."""
    home = folder if folder.is_dir() else folder.parent
    if (home / "manifest.json").exists():  # of the first layout, in which each was a folder
        check_layout(home.parent)
    if not folder.is_dir() and (folder.is_file() or folder.suffix):
        checkpoint = load_checkpoint(folder)
        return checkpoint, "best" if "best" in checkpoint.tensors else "model"
    check_layout(folder)
    if (folder / FINAL).exists():
        return load_checkpoint(folder / FINAL), "model"
    found, rejected = newest(folder) if folder.is_dir() else (None, [])
    if found is not None:
        return found, "best"
    if rejected:
        raise rejected[0]
    what = "holds no model" if folder.is_dir() else "there is no such folder"
    raise CheckpointError(folder, f"{what}: expected the folder of a run or a saved model")


# --- predictions ----------------------------------------------------------------------------------


@torch.no_grad()
def predict(
    model: PACE,
    field: Tensor,
    inference: Inference = "one-shot",
    *,
    true: Tensor | None = None,
    box: Box | None = None,
) -> Prediction:
    """A prediction with its frame: estimated at once, refined, or the true one ("oracle").

    Without ``true`` the oracle's frame is the identity: samples in the canonical frame.
    """
    if inference == "one-shot":
        return model.predict(field, box=box)
    found = model.frame_of(field, box)
    if inference != "oracle":
        known: dict[str, Refiner] = {"refined": GaussNewton(), "adam": AdamRefiner()}
        if isinstance(inference, str) and inference not in known:
            raise UsageError(unknown("inference", inference, ["one-shot", "oracle", *known]))
        refiner = known[inference] if isinstance(inference, str) else inference
        xi = model.refine(field, refiner, box, found).xi
    else:
        identity = model.group.identity(len(field), device=field.device)
        xi = identity if true is None else true.to(identity)
    return Prediction(model.at(field, xi, box=box), found._replace(xi=xi))


def predict_batches(
    model: PACE, fields: Tensor, inference: Inference = "one-shot", *, true: Tensor | None = None
) -> Prediction:
    """Predictions for any number of samples, on the CPU; made some at a time where the model is,
    in the precision of its weights.
    """
    weight = real_weight(model, fields.cpu())
    values, frames, qualities = [], [], []
    for start in range(0, len(fields), BATCH):
        rows = slice(start, start + BATCH)
        known = None if true is None else true[rows].to(weight.device)
        made = predict(model, fields[rows].to(weight), inference, true=known)
        values.append(made.values.cpu())
        frames.append(made.frame.xi.cpu())
        qualities.append(made.frame.quality.cpu())
    estimate = type(made.frame)(torch.cat(frames), torch.cat(qualities))
    return Prediction(torch.cat(values), estimate)


def check_matches(
    model: PACE, values: Tensor, coordinates: dict[str, Tensor], horizon: float | None, name: str
) -> None:
    """Refuse fields of unknown origin that do not fit: shape, finiteness, axes, horizon."""
    channels = model.input.size if model.input.quantities else None
    check_field(values, channels=channels, dim=model.input.dim, name=name)
    for axis, n, length in zip(AXES, values.shape[2:], model.input.lengths, strict=False):
        if axis in coordinates:
            if tuple(coordinates[axis].shape) != (n,):
                raise FieldError(
                    f"{name}: axis {axis}: expected {n} points like the field, "
                    f"got {tuple(coordinates[axis].shape)}"
                )
            check_points(coordinates[axis], length=length, name=f"{name}: axis {axis}")
    given, predicted = model.input, model.output
    ahead = predicted.times[-1] * predicted.step - given.times[-1] * given.step
    if horizon is not None and abs(horizon - ahead) > 1e-6 * abs(ahead):
        raise FieldError(
            f"{name}: made for a horizon of {horizon:g}, the model predicts {ahead:g} ahead: use a "
            "model that was trained for that horizon"
        )
