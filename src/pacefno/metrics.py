"""How errors are measured. Every function returns one value per sample, so that means and spreads are the caller's choice."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pacefno.grid import FieldError, compute_dtype, energy_spectrum, spectral_weights, to_spectrum, wavenumbers
from pacefno.pace import PACE
from pacefno.symmetry import Group


def relative_l2(prediction: Tensor, target: Tensor, *, per_channel: bool = False, reference: Tensor | None = None) -> Tensor:
    """``|p - y| / |y|`` per sample, ``(B,)``: pooled over channels, or the mean over channels of their ratios.

    With a ``reference`` r it is ``|p - y| / |r|``: the scale of the field before a boost added its own energy to it.
    """
    _same_shape(prediction, target)
    start = 2 if per_channel else 1
    ratio = _ratio(_norm(prediction - target, start), _norm(target if reference is None else reference, start))
    return ratio.mean(dim=1) if per_channel else ratio


def relative_l2_channels(prediction: Tensor, target: Tensor) -> Tensor:
    """The same for each channel (or frame) on its own, ``(B, C)``."""
    _same_shape(prediction, target)
    return _ratio(_norm(prediction - target, 2), _norm(target, 2))


def relative_h1(prediction: Tensor, target: Tensor) -> Tensor:
    """``| |K| F(p - y) | / | |K| F(y) |``: the spectral H1 seminorm of the paper's loss, ``(B,)``."""
    _same_shape(prediction, target)
    return _ratio(_gradient_norm(prediction - target), _gradient_norm(target))


def _gradient_norm(field: Tensor) -> Tensor:
    shape = tuple(field.shape[2:])
    spectrum = to_spectrum(field, len(shape))
    k2 = wavenumbers(shape, dtype=spectrum.real.dtype, device=field.device).square().sum(dim=0)
    weights = spectral_weights(shape, dtype=k2.dtype, device=field.device) * k2
    energy = (spectrum.real.square() + spectrum.imag.square()) * weights
    return _sqrt(energy.flatten(1).sum(dim=1))


def error_spectrum(prediction: Tensor, target: Tensor) -> Tensor:
    """Mean square of the error in shells of integer wavenumber, mean over samples; ``(C, n//2 + 1)``."""
    _same_shape(prediction, target)
    return energy_spectrum(prediction - target)


def equivariance_error(
    model: Callable[[Tensor], Tensor],
    group: Group,
    field: Tensor,
    *,
    xi: Tensor | None = None,
    horizon: float | None = None,
    seed: int = 0,
) -> Tensor:
    """``|f(C_g a) - C_gT f(a)| / |C_gT f(a)|`` per sample: 0 for a model that follows its input's frame.

    Without ``xi`` the elements are random over the whole group (velocities up to 1). ``horizon`` is the time between
    input and output; a :class:`PACE` model knows its own, any other model must be told where the group has boosts.
    """
    if xi is None:
        xi = random_elements(group, len(field), seed).to(field.device, compute_dtype(field.dtype))
    if horizon is None:
        horizon = _horizon_of(model, group)
    with torch.no_grad():
        moved_first = model(group.act(field, xi))
        moved_last = group.act(model(field), group.transport(xi, horizon))
    return relative_l2(moved_first, moved_last)


def random_elements(group: Group, batch: int, seed: int) -> Tensor:
    """Elements from the whole group: every shift and angle equally likely, velocities in [-1, 1]."""
    high = [1.0 if math.isinf(period) else period / 2 for period in group.periods]
    return group.sample([0.0] * group.size, high, batch, torch.Generator().manual_seed(seed))


def frame_error(group: Group, estimated: Tensor, true: Tensor) -> Tensor:
    """Distance of each coordinate to the nearest image of the true one, ``(B, size)``."""
    return group.difference(estimated, true).abs()


def _horizon_of(model: Callable[[Tensor], Tensor], group: Group) -> float:
    if isinstance(model, PACE):
        return model.horizon
    if group.size == group.spatial:
        return 0.0  # rigid motions are conserved: the time does not matter
    raise ValueError(
        f"equivariance_error: the {group.name} group carries shifts through time, so say horizon=T, "
        "the time between the model's input and its output"
    )


def _same_shape(prediction: Tensor, target: Tensor) -> None:
    if prediction.shape != target.shape:
        raise FieldError(f"prediction {tuple(prediction.shape)} and target {tuple(target.shape)} differ: nothing is broadcast")


def _norm(field: Tensor, start: int) -> Tensor:
    return _sqrt(field.to(compute_dtype(field.dtype)).flatten(start).square().sum(dim=-1))


def _sqrt(value: Tensor) -> Tensor:
    """Square root with gradient 0 instead of infinity at 0: a perfect prediction must not stop a training. NaN stays NaN."""
    zero = value == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, value).sqrt())


def _ratio(error: Tensor, scale: Tensor) -> Tensor:
    """Error over scale; over the smallest norm where the target vanishes: huge but finite, so it cannot hide."""
    return error / scale.clamp_min(torch.finfo(scale.dtype).tiny ** 0.5)
