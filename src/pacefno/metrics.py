"""How errors are measured. Every function returns one value per sample, so that means and spreads
are the caller's choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pacefno.fields import Box, Field, FieldType
from pacefno.grid import FieldError, compute_dtype, spectral_weights, to_spectrum, wavenumbers
from pacefno.groups import Group
from pacefno.pace import PACE, check_units, field_types


def relative_l2(
    prediction: Tensor,
    target: Tensor,
    *,
    per_channel: bool = False,
    reference: Tensor | None = None,
) -> Tensor:
    """``|p - y| / |y|`` per sample, ``(B,)``: pooled over channels, or the mean over channels of
    their ratios.

    With a ``reference`` r it is ``|p - y| / |r|``: the scale of the field before a boost added its
    own energy to it.

    >>> target = torch.ones(2, 1, 8)
    >>> relative_l2(1.25 * target, target)
    tensor([0.2500, 0.2500])
    """
    _same_shape(prediction, target)
    start = 2 if per_channel else 1
    ratio = _ratio(
        _norm(prediction - target, start), _norm(target if reference is None else reference, start)
    )
    return ratio.mean(dim=1) if per_channel else ratio


def relative_l2_channels(prediction: Tensor, target: Tensor) -> Tensor:
    """``|p - y| / |y|`` of each channel (or snapshot) on its own, ``(B, C)``."""
    _same_shape(prediction, target)
    return _ratio(_norm(prediction - target, 2), _norm(target, 2))


def relative_h1(
    prediction: Tensor, target: Tensor, lengths: Sequence[float] | Tensor | None = None
) -> Tensor:
    """``| |K| F(p - y) | / | |K| F(y) |``: the H1 seminorm of the paper's loss, ``(B,)``.

    ``lengths`` are those of the box, or ``(B, dim)`` of one for each sample; by default all alike.
    """
    _same_shape(prediction, target)
    return _ratio(_gradient_norm(prediction - target, lengths), _gradient_norm(target, lengths))


def _gradient_norm(field: Tensor, lengths: Sequence[float] | Tensor | None) -> Tensor:
    shape = tuple(field.shape[2:])
    spectrum = to_spectrum(field, len(shape))
    k = wavenumbers(shape, dtype=spectrum.real.dtype, device=field.device)[None]
    if lengths is not None:
        sides = torch.as_tensor(lengths, dtype=k.dtype, device=k.device)
        k = k / sides.reshape(-1, len(shape), *[1] * len(shape))
    k2 = k.square().sum(dim=1, keepdim=True)  # (B or 1, 1, *half_grid)
    weights = spectral_weights(shape, dtype=k2.dtype, device=field.device) * k2
    energy = (spectrum.real.square() + spectrum.imag.square()) * weights
    return _sqrt(energy.flatten(1).sum(dim=1))


def equivariance_error(
    model: Callable[[Tensor], Tensor],
    group: Group,
    field: Tensor,
    *,
    channels: str | None = None,
    horizon: float | None = None,
    lengths: float | Sequence[float] | None = None,
    input: FieldType | None = None,
    output: FieldType | None = None,
    xi: Tensor | None = None,
    seed: int = 0,
    box: Box | None = None,
    worst_quantity: bool = False,
) -> Tensor:
    """``|f(C_g a) - C_g f(a)|`` per sample, relative: 0 for a model that follows its input.

    Relative to ``|f(a)|`` or ``|C_g f(a)|``, whichever is larger. They differ under a boost, which
    may all but cancel the mean of a prediction; rounding is relative to what is added up, not to
    what is left of it.

    Norms are pooled over all channels, so a large pressure hides a small velocity. With
    ``worst_quantity`` it is the largest of the quantities' own errors: of vectors as a whole, of
    single channels where none is named. What is lost in the rounding of the others is measured
    against that.

    The types of the fields are said as for :class:`PACE`, which knows its own where nothing is
    said. Without ``xi`` the elements are random over the whole group (velocities up to 1). With the
    ``box`` of each sample, and under a group that changes boxes, the model is called as
    ``model(field, box=box)``. It says nothing about the physics: a model with the wrong horizon or
    box is just as equivariant.
    """
    if isinstance(model, PACE) and channels is None and input is None and output is None:
        given, predicted = _types_of(model, group, horizon, lengths)
    else:
        given, predicted = field_types(group, channels, horizon, lengths, input, output)
    if xi is None:
        xi = random_elements(group, len(field), seed).to(field.device)
    with torch.no_grad():
        moved = group.act(Field(field, given, box), xi)
        moved_first = _called(model, moved.values, moved.box)
        unmoved = _called(model, field, box)
        moved_last = group.act(Field(unmoved, predicted, box), xi).values
    _same_shape(moved_first, moved_last)
    pooled = torch.maximum(_norm(unmoved, 1), _norm(moved_last, 1))
    if not worst_quantity:
        return _ratio(_norm(moved_first - moved_last, 1), pooled)
    floor = torch.finfo(compute_dtype(field.dtype)).eps ** 0.5 * pooled
    made = (Field(part, predicted, box).parts for part in (moved_first, moved_last, unmoved))
    errors = []
    for first, last, still in zip(*made, strict=True):
        scale = torch.stack([_norm(still, 1), _norm(last, 1), floor]).amax(dim=0)
        errors.append(_ratio(_norm(first - last, 1), scale))
    return torch.stack(errors).amax(dim=0)


def _called(model: Callable[..., Tensor], field: Tensor, box: Box | None) -> Tensor:
    return model(field) if box is None else model(field, box=box)


def _types_of(
    model: PACE, group: Group, horizon: float | None, lengths: float | Sequence[float] | None
) -> tuple[FieldType, FieldType]:
    """The types that a model knows, with another horizon or box where one is said.

    A model whose own group has no boosts was not asked for them, and has assumed both.
    """
    given, predicted = model.input, model.output
    assumed = predicted.times == given.times and set(given.lengths) == {1.0}
    if assumed and not model.group.moves_in_time:
        check_units(group, horizon, lengths)
    if lengths is not None:
        box = FieldType.parse("", given.dim, lengths=lengths).lengths
        given, predicted = replace(given, lengths=box), replace(predicted, lengths=box)
    if horizon is not None:
        if predicted.snapshots > 1:
            raise ValueError("the model predicts several snapshots: say input= and output= instead")
        predicted = predicted.at([given.times[-1] + horizon / predicted.step])
    return given, predicted


def random_elements(group: Group, batch: int, seed: int) -> Tensor:
    """Elements of the whole group: shifts and angles equally likely, velocities in [-1, 1]."""
    high = [1.0 if math.isinf(period) else period / 2 for period in group.periods]
    generator = torch.Generator().manual_seed(seed)
    return group.sample([0.0] * group.size, high, batch, generator)


def canonical_pair(
    group: Group,
    output: FieldType,
    xi: Tensor,
    prediction: Tensor,
    target: Tensor,
    box: Box | None = None,
) -> tuple[Tensor, Tensor]:
    """Prediction and target without the motion ``xi`` of the sample, as seen in its own frame.

    ``box`` is that of each moved sample, where samples differ.
    """
    both = (prediction, target)
    back = [group.inverse(Field(values, output, box), xi).values for values in both]
    return back[0], back[1]


def canonical_error(
    group: Group,
    output: FieldType,
    xi: Tensor,
    prediction: Tensor,
    target: Tensor,
    *,
    per_channel: bool = False,
    box: Box | None = None,
) -> Tensor:
    """The relative error after the true motion ``xi`` is removed from prediction and target.

    A boost adds its own energy to a field and so makes the plain relative error look better than it
    is; this one can be compared with the error at rest, ``(B,)``.
    """
    back = canonical_pair(group, output, xi, prediction, target, box)
    return relative_l2(*back, per_channel=per_channel)


def frame_error(group: Group, estimated: Tensor, true: Tensor) -> Tensor:
    """Distance of each coordinate to the nearest image of the true one, ``(B, size)``."""
    return group.difference(estimated, true).abs()


def frame_distance(group: Group, estimated: Tensor, true: Tensor) -> Tensor:
    """Distance over the spatial coordinates, each in its periods: shifts and angles count alike.

    Measured to the nearest image of the true frame, ``(B,)``.
    """
    spatial = slice(group.spatial)
    apart = group.difference(estimated, true)[:, spatial]
    return (apart / apart.new_tensor(group.periods[spatial])).norm(dim=1)


def nmse(prediction: Tensor, target: Tensor) -> Tensor:
    """LPSDA's normalised squared error of each snapshot, ``(B, S)``; its NMSE is their sum.

    Infinite where the prediction is not finite.
    """
    squared = relative_l2_channels(prediction, target).square()
    return squared.nan_to_num(nan=math.inf, posinf=math.inf)


def _same_shape(prediction: Tensor, target: Tensor) -> None:
    if prediction.shape != target.shape:
        raise FieldError(
            f"prediction {tuple(prediction.shape)} and target {tuple(target.shape)} differ: "
            "nothing is broadcast"
        )


def _norm(field: Tensor, start: int) -> Tensor:
    return _sqrt(field.to(compute_dtype(field.dtype)).flatten(start).square().sum(dim=-1))


def _sqrt(value: Tensor) -> Tensor:
    """Square root with gradient 0 instead of infinity at 0: a perfect prediction must not stop a
    training. NaN stays NaN.
    """
    zero = value == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, value).sqrt())


def _ratio(error: Tensor, scale: Tensor) -> Tensor:
    """Error over scale; over the smallest norm where the target vanishes: huge but finite, so it
    cannot hide.
    """
    return error / scale.clamp_min(torch.finfo(scale.dtype).tiny ** 0.5)


def typical_speed(field: Field) -> float:
    """The root mean square of a field's velocity without its mean, in the units of the data.

    1 where it has no velocity, or one that is everywhere the same.
    """
    carrier = field.type.carrier
    if carrier is None:
        return 1.0
    value, density = field.of(carrier), field.density_of(carrier)
    speed = (value if density is None else value / density).double().flatten(3)
    found = float((speed - speed.mean(dim=3, keepdim=True)).square().mean().sqrt())
    return found if 0 < found < math.inf else 1.0
