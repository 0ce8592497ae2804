"""A periodic grid on the unit torus: points, wavenumbers, transforms, resampling, and the gate for
fields.

Layout everywhere: ``(batch, channel, *grid)``, points ``i/n`` without the end point, so a grid axis
of ``n`` points covers ``[0, 1)``. Every spectral operation of the package goes through this file,
so that three rules hold everywhere:

- an inverse transform is always told its length (``irfft`` alone turns 65 points into 64);
- half-precision fields are transformed in float32 and returned in their own dtype, and autocast
  never gets in;
- the Nyquist mode of an even grid is never given a phase (see :func:`shift_phase`), so every
  shift is exactly invertible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import update_wrapper
from typing import Any, Generic, TypeVar, final

import torch
from torch import Tensor

from pacefno.errors import UsageError

HALF_PRECISION = (torch.float16, torch.bfloat16)


class FieldError(UsageError):
    """A field that cannot be used: the message says what was expected, what came, what to do."""


# --- the gate -------------------------------------------------------------------------------------


def check_field(
    field: Tensor,
    *,
    channels: int | None = None,
    dim: int | None = None,
    name: str = "field",
    finite: bool = True,
) -> None:
    """Refuse anything that is not a finite floating-point tensor ``(batch, channel, *grid)``; never
    broadcast.
    """
    if not isinstance(field, Tensor):
        raise FieldError(
            f"{name}: expected a torch.Tensor, got {type(field).__name__}: convert with "
            "torch.as_tensor"
        )
    if not field.is_floating_point():
        raise FieldError(
            f"{name}: expected a real floating dtype, got {field.dtype}: convert with field.float()"
        )
    got = tuple(field.shape)
    if field.ndim < 3 or (dim is not None and field.ndim != dim + 2):
        missing_batch = dim is not None and field.ndim == dim + 1
        remedy = (
            "add a batch axis with field[None], or a channel axis with field[:, None]"
            if missing_batch
            else "the layout is (batch, channel, *grid)"
        )
        raise FieldError(f"{name}: expected {_expected_shape(channels, dim)}, got {got}: {remedy}")
    if channels is not None and field.shape[1] != channels:
        raise FieldError(
            f"{name}: expected {_expected_shape(channels, dim)}, got {got}: "
            f"give it {channels} channels, not {field.shape[1]}"
        )
    if torch.compiler.is_compiling():
        return  # a graph cannot look at values; pacefno.export checks them before it
    if 0 in got:
        raise FieldError(
            f"{name}: expected {_expected_shape(channels, dim)}, got {got}: "
            "an axis is empty, leave such a batch out"
        )
    if finite:
        _check_finite(field, name)


def _expected_shape(channels: int | None, dim: int | None) -> str:
    grid = "*grid" if dim is None else ", ".join(["N", "M", "K"][:dim])
    return f"(B, {'C' if channels is None else channels}, {grid})"


def _check_finite(field: Tensor, name: str) -> None:
    if in_transform(field) or bool(torch.isfinite(field.sum())):
        return  # a sum is finite only if every term is, and takes a fifth of the time
    good = torch.isfinite(field)
    if bool(good.all()):
        return
    bad = (~good).nonzero()
    sample, channel, *point = bad[0].tolist()
    raise FieldError(
        f"{name}: {len(bad)} of {field.numel()} values are NaN or infinite, the first in sample "
        f"{sample}, "
        f"channel {channel}, grid point {tuple(point)}: one such value spoils a whole Fourier "
        "transform; repair the field"
    )


def check_points(coordinates: Tensor, *, length: float = 1.0, name: str = "coordinates") -> None:
    """Refuse an axis that is not ``x0 + i * length / n``: uneven spacing, or the end point listed
    twice.
    """
    n = coordinates.numel()
    if coordinates.ndim != 1 or n < 2:
        raise FieldError(
            f"{name}: expected one axis of at least 2 points, got shape "
            f"{tuple(coordinates.shape)}: pass one axis at a time"
        )
    x = coordinates.double()
    steps = x.diff()
    expected = length / n
    precision = torch.finfo(coordinates.dtype).eps if coordinates.is_floating_point() else 0.0
    slack = 1e-4 * expected + 2 * precision * float(
        x.abs().max()
    )  # evenly spaced points are rounded to their dtype
    span = float(
        x[-1] - x[0]
    )  # compared as a whole: step by step, a long axis hides the extra point
    if not bool((steps - span / (n - 1)).abs().max() <= slack):
        raise FieldError(
            f"{name}: the spacing varies from {steps.min():.6g} to {steps.max():.6g}: resample "
            "evenly first"
        )
    if abs(span - (length - expected)) <= 0.1 * expected:
        return
    if abs(span - length) <= 0.1 * expected:
        raise FieldError(
            f"{name}: {n} points with spacing {steps[0]:.6g} reach from {x[0]:.6g} to {x[-1]:.6g}: "
            "the end point of the "
            "period is listed twice; drop the last point (a periodic axis has spacing "
            f"{expected:.6g})"
        )
    raise FieldError(
        f"{name}: {n} points with spacing {steps[0]:.6g} cover a period of "
        f"{n * steps[0].item():.6g}, expected {length:g}: "
        "the field comes from a domain of another length; pass it as length"
    )


# --- points and wavenumbers -----------------------------------------------------------------------


def points(
    shape: Sequence[int], *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> Tensor:
    """Coordinates of every grid point, ``(dim, *grid)``."""
    axes = [torch.arange(n, dtype=dtype, device=device) / n for n in shape]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))


def frequencies(
    n: int,
    *,
    half: bool = False,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Integer wavenumbers of one axis in transform order; ``half`` for the axis that a real
    transform halves.
    """
    if half:
        return torch.arange(n // 2 + 1, dtype=dtype, device=device)
    positive = torch.arange((n + 1) // 2, dtype=dtype, device=device)
    return torch.cat([positive, torch.arange(-(n // 2), 0, dtype=dtype, device=device)])


def wavenumbers(
    shape: Sequence[int], *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> Tensor:
    """Integer wavenumbers of the half spectrum of a real field, ``(dim, *half_grid)``."""
    last = len(shape) - 1
    axes = [frequencies(n, half=i == last, dtype=dtype, device=device) for i, n in enumerate(shape)]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))


def spectral_weights(
    shape: Sequence[int], *, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> Tensor:
    """How often each mode of the half spectrum counts in the full one (1 or 2), for Parseval sums;
    ``(n_last//2+1,)``.
    """
    n = shape[-1]
    weights = torch.full((n // 2 + 1,), 2.0, dtype=dtype, device=device)
    weights[0] = 1.0
    if n % 2 == 0:
        weights[-1] = 1.0
    return weights


# --- transforms -----------------------------------------------------------------------------------


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which spectra of such a field are computed: float32 for half precision, else its
    own.
    """
    return torch.float32 if dtype in HALF_PRECISION else dtype


def grid_axes(dim: int) -> tuple[int, ...]:
    """The tensor axes of the grid in ``(batch, channel, *grid)``, counted from the end."""
    return tuple(range(-dim, 0))


def exact_mean(values: Tensor, dim: int | list[int], *, keepdim: bool = False) -> Tensor:
    """The mean in float64 of values in any precision."""
    if as_products():  # ONNX has no mean in another precision than that of the values
        return values.double().mean(dim=dim, keepdim=keepdim)
    return values.mean(dim=dim, keepdim=keepdim, dtype=torch.float64)


def to_spectrum(field: Tensor, dim: int) -> Tensor:
    """Half spectrum over the last ``dim`` axes, normalised so that coefficient 0 is the mean."""
    return torch.fft.rfftn(field.to(compute_dtype(field.dtype)), dim=grid_axes(dim), norm="forward")


def from_spectrum(spectrum: Tensor, shape: Sequence[int]) -> Tensor:
    """The real field of a half spectrum on a grid of the given shape."""
    return torch.fft.irfftn(spectrum, s=tuple(shape), dim=grid_axes(len(shape)), norm="forward")


def shift_phase(
    n: int, distance: Tensor, *, half: bool, dtype: torch.dtype | None = None
) -> Tensor:
    """Phases ``exp(-2 pi i k d)`` that move content by ``+d`` along one axis, ``(*d, modes)``.

    The products are reduced to one turn in the precision of ``distance`` and rounded to ``dtype``
    after that, so that a distance in float64 costs high wavenumbers no digits.

    The Nyquist mode keeps phase 1. A real field on an even grid cannot hold that mode at another
    phase, so any other choice makes a shift lossy; with this one every shift is unitary and ``-d``
    undoes ``+d`` to round-off.
    """
    return unit_phase(_shift_turns(n, -distance, half, dtype))


def _shift_turns(n: int, distance: Tensor, half: bool, dtype: torch.dtype | None) -> Tensor:
    """``k d``, reduced to one turn where it is rounded to another dtype; 0 for the Nyquist mode."""
    k = frequencies(n, half=half, dtype=distance.dtype, device=distance.device)
    turns = distance[..., None] * torch.where(2 * k.abs() == n, 0.0, k)
    if dtype is not None and dtype != turns.dtype:
        turns = (turns - turns.detach().round()).to(dtype)
    return turns


def unit_phase(turns: Tensor) -> Tensor:
    """``exp(2 pi i turns)``; a cosine and a sine take a seventh of the time of ``torch.polar``."""
    angle = 2 * math.pi * turns
    return torch.complex(angle.cos(), angle.sin())


def resample(field: Tensor, shape: Sequence[int]) -> Tensor:
    """The trigonometric interpolant of a field on another grid: modes are cut off or padded with
    zeros.

    It commutes with every shift of content that both grids resolve. A Nyquist mode on either side
    is dropped.

    >>> wave = torch.cos(2 * math.pi * torch.arange(8.0) / 8)[None, None]
    >>> resample(wave, [4]).round(decimals=4).abs()
    tensor([[[1., 0., 1., 0.]]])
    """
    shape = tuple(shape)
    dim = len(shape)
    old = tuple(field.shape[-dim:])
    work = compute_dtype(field.dtype)
    if as_products() or torch.compiler.is_compiling():
        for axis, (n_old, n_new) in enumerate(zip(old, shape, strict=True), start=-dim):
            if n_old is not n_new:  # two symbols may be equal, or not
                field = along(field, axis, between_grids(n_old, n_new, None, work, field.device))
        return field
    if old == shape:
        return field
    return from_spectrum(resize_spectrum(to_spectrum(field, dim), old, shape), shape).to(
        field.dtype
    )


def resize_spectrum(spectrum: Tensor, old: Sequence[int], new: Sequence[int]) -> Tensor:
    """The half spectrum (:func:`to_spectrum`) of a field on another grid, see :func:`resample`."""
    dim = len(old)
    for axis, (n_old, n_new) in enumerate(zip(old, new, strict=True)):
        spectrum = _resize_axis(spectrum, axis - dim, n_old, n_new, half=axis == dim - 1)
    return spectrum


def _resize_axis(spectrum: Tensor, axis: int, n_old: int, n_new: int, *, half: bool) -> Tensor:
    """Keep the modes ``|k| < min(n_old, n_new) / 2`` of one axis and pad with zeros to the new
    length.
    """
    if n_old == n_new:
        return spectrum
    top = (
        min(n_old, n_new) - 1
    ) // 2  # the highest wavenumber that is no Nyquist mode of either grid
    positive = spectrum.narrow(axis, 0, top + 1)
    negative = [] if half else [spectrum.narrow(axis, n_old - top, top)]
    length = n_new // 2 + 1 if half else n_new
    gap = list(spectrum.shape)
    gap[axis] = length - top - 1 - (0 if half else top)
    return torch.cat([positive, spectrum.new_zeros(gap), *negative], dim=axis)


def coarsen(field: Tensor, stride: int) -> Tensor:
    """Every ``stride``-th point of each grid axis; a periodic grid again where the stride divides
    it.
    """
    return field[(slice(None), slice(None), *[slice(None, None, stride)] * (field.ndim - 2))]


def band_limit(field: Tensor, dim: int, top: int | None = None) -> Tensor:
    """Remove every mode above ``top`` on each axis; by default just the Nyquist modes."""
    shape = tuple(field.shape[-dim:])
    limits = [top if top is not None else (n - 1) // 2 for n in shape]
    work = compute_dtype(field.dtype)
    if as_products():
        for axis, (n, limit) in enumerate(zip(shape, limits, strict=True), start=-dim):
            field = along(field, axis, between_grids(n, n, limit, work, field.device))
        return field
    k = wavenumbers(shape, device=field.device).abs()
    keep = torch.stack([k[i] <= limit for i, limit in enumerate(limits)]).all(dim=0)
    return from_spectrum(to_spectrum(field, dim) * keep, shape).to(field.dtype)


def energy_spectrum(field: Tensor) -> Tensor:
    """``E(k)``, the mean square of each channel in the shells ``round(|k|) = k``, averaged over
    samples; ``(C, K)``.

    Summed over k it is the mean square, up to the corners beyond the last full shell, which are
    left out.
    """
    shape = tuple(field.shape[2:])
    spectrum = to_spectrum(field, len(shape))
    weights = spectral_weights(shape, dtype=spectrum.real.dtype, device=field.device)
    power = (spectrum.abs().square() * weights).mean(dim=0).flatten(1)  # (C, modes)
    shell = (
        wavenumbers(shape, device=field.device).square().sum(dim=0).sqrt().round().long().flatten()
    )
    energy = power.new_zeros(field.shape[1], int(shell.max()) + 1).index_add_(1, shell, power)
    return energy[:, : min(shape) // 2 + 1]


# --- transforms as matrix products ---------------------------------------------------------------

# Set while a program is made for a runtime that has neither complex numbers nor fast transforms.
_AS_PRODUCTS = ContextVar("transforms as products", default=False)


@contextmanager
def transforms_as_products() -> Iterator[None]:
    """Shift, turn and resample by real matrix products of cosines and sines instead of fast Fourier
    transforms: the same to round-off, and no number is complex.
    """
    token = _AS_PRODUCTS.set(True)
    try:
        yield
    finally:
        _AS_PRODUCTS.reset(token)


def as_products() -> bool:
    """Whether :func:`transforms_as_products` is in force; never in ``torch.compile``."""
    return not torch.compiler.is_dynamo_compiling() and _AS_PRODUCTS.get()


Table = TypeVar("Table")  # a tensor or several
MOST_TABLES = 128


@final
class Kept(Generic[Table]):
    """A function of sizes, a dtype and a device that keeps what it makes; a decorator.

    A module-level store and not a buffer: a checkpoint must not depend on the resolutions a model
    has seen. Into a graph kept tables enter as constants; where a size is a symbol, or a graph is
    compiled, they are computed in it, and nothing of it is kept, nor what a transform of
    ``torch.func`` or a trace has wrapped and will not know again.
    """

    def __init__(self, make: Callable[..., Table]) -> None:
        self.make = make
        self.store: dict[tuple[Any, ...], Table] = {}
        update_wrapper(self, make)

    def __call__(self, *key: Any) -> Table:
        if torch.compiler.is_dynamo_compiling() or any(isinstance(p, torch.SymInt) for p in key):
            return self.make(*key)
        if key in self.store:
            return self.store[key]
        # Made inside inference_mode it could never be used for training afterwards, and it stays.
        with torch.inference_mode(False), torch.no_grad():
            made = self.make(*key)
        tables = made if isinstance(made, tuple) else (made,)
        if not torch.compiler.is_compiling() and all(map(_is_plain, tables)):
            if len(self.store) >= MOST_TABLES:
                self.store.clear()
            self.store[key] = made
        return made


def in_transform(values: Tensor) -> bool:
    """Whether a tensor is inside ``torch.func.grad``, ``vmap`` or the like, where no branch may
    depend on its values.
    """
    if torch.compiler.is_compiling():
        return False
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(values))


def _is_plain(table: Tensor) -> bool:
    return type(table) is Tensor and not in_transform(table)


def smaller(a: int, b: int) -> int:
    """The minimum of two sizes, of which one may be a symbol."""
    found: int = torch.sym_min(a, b)  # type: ignore[no-untyped-call]
    return found


def waves(n: int, top: int, like: Tensor) -> tuple[Tensor, ...]:
    """Cosines and sines of the wavenumbers 0 to ``top`` at the points of an axis, ``(n, top + 1)``,
    and how often each counts in a real line: once or twice.
    """
    return _waves(n, top, like.dtype, like.device)


@Kept
def _waves(n: int, top: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    # The integer product is reduced first, so that it costs no digits.
    j, k = torch.arange(n, device=device), torch.arange(top + 1, device=device)
    angle = (j[:, None] * k % n).double() * (2 * math.pi) / n
    counts = torch.where((k == 0) | (2 * k == n), 1.0, 2.0)
    return angle.cos().to(dtype), angle.sin().to(dtype), counts.to(dtype)


def along(values: Tensor, axis: int, matrix: Tensor) -> Tensor:
    """A matrix ``(n', n)`` times each line of ``n`` points along one axis; autocast stays out."""
    with torch.autocast(values.device.type, enabled=False):
        lines = values.movedim(axis, -1).to(matrix.dtype)
        return (lines @ matrix.T).movedim(-1, axis).to(values.dtype)


def move_axis(values: Tensor, distance: Tensor, axis: int) -> Tensor:
    """Move content by ``+distance`` along one axis, in real arithmetic; see :func:`shift_phase`.

    ``distance`` has as many axes as values has other ones, of the same size each or of size 1.
    """
    n = values.shape[axis]
    work = values.movedim(axis, -1).to(compute_dtype(values.dtype))
    angle = 2 * math.pi * _shift_turns(n, distance, half=True, dtype=work.dtype)
    c, s = angle.cos(), angle.sin()
    cos, sin, counts = waves(n, n // 2, work)  # (n, k)
    weight = counts / n
    with torch.autocast(values.device.type, enabled=False):
        a, b = (work @ cos) * weight, (work @ sin) * weight  # the line is the sum of a cos + b sin
        moved = (a * c - b * s) @ cos.T + (a * s + b * c) @ sin.T
    return moved.movedim(-1, axis).to(values.dtype)


@Kept
def between_grids(
    n_old: int, n_new: int, top: int | None, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The matrix ``(n_new, n_old)`` of :func:`resample` along one axis, or of a band limit.

    Both numbers may be symbols: equal ones give the identity, with the Nyquist mode.
    """
    least = smaller(n_old, n_new)
    top = least // 2 if top is None else min(top, n_old // 2)
    cos_old, sin_old, counts = _waves(n_old, top, torch.float64, device)
    cos_new, sin_new, _ = _waves(n_new, top, torch.float64, device)
    k = torch.arange(top + 1, device=device)
    same = torch.full_like(k, n_old) == n_new
    weight = torch.where((2 * k == least) & ~same, 0.0, counts) / n_old
    return ((cos_new * weight) @ cos_old.T + (sin_new * weight) @ sin_old.T).to(dtype)


# --- plane vectors --------------------------------------------------------------------------------


def curl_and_divergence(vectors: Tensor) -> Tensor:
    """``(d_x v - d_y u, d_x u + d_y v)`` of vectors ``(..., 2, n, m)`` on the unit torus.

    On an even grid the derivative of a Nyquist mode is not on the grid. The three modes that are
    thereby left without any are kept as they are, times the highest wavenumber, so nothing but the
    mean is lost, and :func:`from_curl_and_divergence` gives the rest back to round-off.
    """
    shape = vectors.shape[-2:]
    if as_products():
        u, v = vectors.unbind(dim=-3)
        return torch.stack([_slope_x(v) - _slope_y(u), _slope_x(u) + _slope_y(v)], dim=-3)
    u, v = to_spectrum(vectors, 2).unbind(dim=-3)
    x, y, _ = _slopes(shape, u)
    return from_spectrum(torch.stack([x * v - y * u, x * u + y * v], dim=-3), shape)


def from_curl_and_divergence(scalars: Tensor) -> Tensor:
    """The vectors ``(..., 2, n, m)`` without a mean that have this curl and this divergence."""
    shape = scalars.shape[-2:]
    if as_products():
        curl, divergence = _potential(scalars).unbind(dim=-3)
        u = _slope_x(divergence) - _slope_y(curl)
        return torch.stack([u, _slope_x(curl) + _slope_y(divergence)], dim=-3)
    curl, divergence = to_spectrum(scalars, 2).unbind(dim=-3)
    x, y, size = _slopes(shape, curl)
    found = torch.stack([x * divergence - y * curl, x * curl + y * divergence], dim=-3)
    return from_spectrum(found * size, shape)


def _slopes(shape: Sequence[int], like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The symbols of both derivatives, and ``1 / (d_x^2 + d_y^2)``, which is 0 for the mean."""
    k = wavenumbers(shape, dtype=like.real.dtype, device=like.device)
    slopes = resolved_slopes(k, shape)
    lost = (slopes == 0).all(dim=0) & (k != 0).any(dim=0)
    highest = lost.to(k.dtype) * (math.pi * max(shape))
    x = torch.complex(highest, 2 * math.pi * slopes[0])
    y = torch.complex(torch.zeros_like(highest), 2 * math.pi * slopes[1])
    square = x * x + y * y
    return x, y, torch.where(square == 0, 0.0, 1 / torch.where(square == 0, 1.0, square))


def resolved_slopes(k: Tensor, shape: Sequence[int]) -> Tensor:
    """Wavenumbers ``(dim, *half_grid)`` with 0 for a Nyquist mode, whose slope no grid shows."""
    limits = torch.tensor([n // 2 if n % 2 == 0 else n for n in shape], device=k.device)
    return torch.where(k.abs() == limits.reshape(-1, *[1] * (k.ndim - 1)), 0.0, k)


def _slope_x(field: Tensor) -> Tensor:
    """The first symbol of :func:`_slopes` in real arithmetic: the derivative along x, and the modes
    that have no derivative on the grid times the highest wavenumber.
    """
    kept = field - field.mean(dim=(-2, -1), keepdim=True)
    for axis in (-2, -1):
        kept = along(kept, axis, _unsloped(field.shape[axis], field.dtype, field.device))
    slope = along(field, -2, _derivative(field.shape[-2], field.dtype, field.device))
    return slope + math.pi * max(field.shape[-2:]) * kept


def _slope_y(field: Tensor) -> Tensor:
    return along(field, -1, _derivative(field.shape[-1], field.dtype, field.device))


@Kept
def _derivative(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The matrix ``(n, n)`` of the derivative along an axis; 0 for the Nyquist mode."""
    cos, sin, counts = _waves(n, (n - 1) // 2, torch.float64, device)
    slopes = 2 * math.pi / n * counts * torch.arange(len(counts), device=device)
    return ((cos * slopes) @ sin.T - (sin * slopes) @ cos.T).to(dtype)


@Kept
def _unsloped(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The matrix ``(n, n)`` that keeps the modes without a slope: the mean and the Nyquist mode."""
    sign = 1 - 2 * (torch.arange(n, dtype=torch.float64, device=device) % 2)
    return ((1 + (1 - n % 2) * sign[:, None] * sign) / n).to(dtype)


def _potential(field: Tensor) -> Tensor:
    """The field over the last result of :func:`_slopes`, mode by mode in a basis of real waves."""
    n, m = field.shape[-2:]
    bases = [_real_basis(size, field.dtype, field.device)[0] for size in (n, m)]
    for axis, basis in zip((-2, -1), bases, strict=True):
        field = along(field, axis, basis.T)
    field = field * _over_square(n, m, field.dtype, field.device)
    for axis, basis in zip((-2, -1), bases, strict=True):
        field = along(field, axis, basis)
    return field


@Kept
def _real_basis(n: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """An orthonormal basis of cosines and sines, ``(n, n)``, and the slope of each, ``(n,)``."""
    cos, sin, counts = _waves(n, n // 2, torch.float64, device)
    k = torch.arange(n // 2 + 1, dtype=torch.float64, device=device)
    sines = slice(1, (n - 1) // 2 + 1)
    basis = torch.cat([cos * (counts / n).sqrt(), sin[:, sines] * (2 / n) ** 0.5], dim=1)
    return basis.to(dtype), torch.cat([torch.where(2 * k == n, 0.0, k), k[sines]])


@Kept
def _over_square(n: int, m: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    x, y = (_real_basis(size, dtype, device)[1] for size in (n, m))
    square = -((2 * math.pi) ** 2) * (x.square()[:, None] + y.square())
    square = torch.where(square == 0, (math.pi * max(n, m)) ** 2, square)
    square[0, 0] = math.inf  # the mean has no potential
    return (1 / square).to(dtype)
