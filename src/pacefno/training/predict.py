"""A trained model on a file of fields."""

from __future__ import annotations

from pathlib import Path

import torch

from pacefno.data.fields import Fields, check_suffix, read_fields, write_fields
from pacefno.equations import Problem
from pacefno.grid import FieldError, check_field, check_points
from pacefno.symmetry.translation import AXES
from pacefno.training.evaluate import BATCH, predict_row
from pacefno.training.load import load_run
from pacefno.training.models import model_named


def predict_file(run: Path, source: Path, target: Path, *, model: str | None = None, name: str = "input") -> int:
    """Predict every field of ``source`` and write prediction, frame and confidence to ``target``; the number of samples."""
    check_suffix(target)
    trained = load_run(run, model)
    spec = model_named(model or trained.config.model)
    if spec.inference == "oracle":
        raise ValueError(f"{model!r} needs the true frames, which a file of fields does not have: choose another model")
    fields = read_fields(source, name)
    _check(fields, trained.problem, source)
    dtype = next(trained.model.parameters()).dtype
    predictions, frames, confidences = [], [], []
    for batch in torch.split(fields.values, BATCH):
        prediction, xi = predict_row(trained.model, spec, batch.to(dtype), None)
        predictions.append(prediction.to(batch.dtype))
        frames.append(xi)
        confidences.append(trained.model.frame_of(batch.to(dtype)).confidence.detach())
    write_fields(
        target, {"prediction": torch.cat(predictions), "frame": torch.cat(frames), "confidence": torch.cat(confidences)}
    )
    return len(fields.values)


def _check(fields: Fields, problem: Problem, source: Path) -> None:
    """The gate for fields of unknown origin: shape, finiteness, an even periodic axis of length 1, the right horizon."""
    check_field(fields.values, channels=problem.in_channels, dim=problem.dim, name=str(source))
    for axis, n in zip(AXES, fields.values.shape[2:], strict=False):
        if axis not in fields.coordinates:
            continue
        coordinates = fields.coordinates[axis]
        if tuple(coordinates.shape) != (n,):
            raise FieldError(f"{source}: axis {axis}: expected {n} points like the field, got {tuple(coordinates.shape)}")
        check_points(coordinates, name=f"{source}: axis {axis}")
    expected = problem.lead_time
    if fields.horizon is not None and abs(fields.horizon - expected) > 1e-6 * expected:
        raise FieldError(
            f"{source}: made for a horizon of {fields.horizon:g}, the model predicts {expected:g} ahead: "
            "use a model that was trained for that horizon"
        )
