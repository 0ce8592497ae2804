"""Where a field is and which way it points: the functionals behind canonical slices.

Each is equivariant by construction: if the field moves, the value moves with it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from pacefno.grid import (
    Kept,
    as_products,
    compute_dtype,
    exact_mean,
    from_spectrum,
    to_spectrum,
    wavenumbers,
)


class Modes(NamedTuple):
    """Complex coefficients as two real tensors: complex numbers leave no graph but torch's own."""

    real: Tensor
    imag: Tensor

    @property
    def power(self) -> Tensor:
        """The squares of their absolute values."""
        return self.real.square() + self.imag.square()


def first_modes(field: Tensor) -> Modes:
    """Coefficients of wavenumber one along each axis of ``(B, *grid)``, ``(B, dim)`` in float64."""
    dim = field.ndim - 1
    work = field.to(compute_dtype(field.dtype))
    parts = zip(*(_first_mode(work, axis) for axis in range(1, dim + 1)), strict=True)
    return Modes(*(torch.stack(part, dim=-1) for part in parts))


def _first_mode(field: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    others = [a for a in range(1, field.ndim) if a != axis]
    line = exact_mean(field, others) if others else field.double()  # (B, n)
    # Else the rounding of a large mean would be read as a mode.
    line = line - line.mean(dim=-1, keepdim=True)
    cos, sin = circle(line.shape[-1], line.device)
    return (line * cos).mean(-1), -(line * sin).mean(-1)


@Kept
def circle(n: int, device: torch.device) -> tuple[Tensor, ...]:
    """Cosine and sine of ``2 pi i / n`` in float64."""
    angle = 2 * math.pi * torch.arange(n, dtype=torch.float64, device=device) / n
    return angle.cos(), angle.sin()


def phase_position(field: Tensor) -> Tensor:
    """The crest of the first mode along each axis, ``(B, dim)`` in periods: the phase frame of
    ``(B, *grid)``.

    A shift by ``tau`` multiplies the coefficient by ``exp(-2 pi i tau)``. Where the coefficient
    vanishes the position is 0.
    """
    return crest(first_modes(field))


def crest(modes: Modes) -> Tensor:
    """Where the waves of these coefficients are highest, in periods."""
    return -direction(modes.real, modes.imag) / (2 * math.pi)


def direction(x: Tensor, y: Tensor) -> Tensor:
    """The angle of the vector ``(x, y)``; 0 with zero slope where its square underflows and atan2
    has no finite one.
    """
    defined = x * x + y * y > torch.finfo(x.dtype).tiny
    y, x = torch.where(defined, y, 0.0), torch.where(defined, x, 1.0)
    if x.dtype != torch.float64 or not as_products():
        return torch.atan2(y, x)
    # ONNX runtimes know no arc tangent in float64: one Newton step from that in float32.
    size = (x * x + y * y).sqrt()
    x, y = x / size, y / size
    start = torch.atan2(y.float(), x.float()).double()
    return start + (y * start.cos() - x * start.sin())


def phase_share(field: Tensor, rounded: Tensor | None = None, modes: Modes | None = None) -> Tensor:
    """The share of the variance that the first mode along each axis carries, ``(B, dim)`` in [0,
    1]: a confidence.

    The floor is the geometric mean of signal and round-off, so that the rounding of a constant has
    no confidence. ``rounded`` are the values that were rounded, where the field is what is left of
    them, ``modes`` its first modes where they are known.
    """
    modes = first_modes(field) if modes is None else modes
    work = field.to(compute_dtype(field.dtype)).flatten(1)
    variance = work.var(dim=1, unbiased=False)
    size = work if rounded is None else rounded.to(work.dtype).flatten(1)
    floor = torch.finfo(work.dtype).eps * (size**2).mean(dim=1) + torch.finfo(work.dtype).tiny
    power = modes.power.to(work.dtype)
    return 2 * power / (variance + floor)[:, None]


def centroid(density: Tensor) -> Tensor:
    """Centre of a non-negative density ``(B, n, m)`` that is compact on the torus, ``(B, 2)``.

    The phase of the first mode finds the blob; plain first moments about that point then make the
    answer equivariant under rotations too, which a circular mean is not.
    """
    start = phase_position(density).to(density.dtype)  # (B, 2)
    mass = density.mean(dim=(1, 2)).clamp_min(torch.finfo(density.dtype).tiny)
    return start + _first_moment(density, start) / mass[:, None]


def concentration(density: Tensor) -> Tensor:
    """``|first mode| / mean`` along the worst axis, ``(B,)`` in [0, 1]: 1 for a point, 0 where
    there is no centre.
    """
    mass = density.flatten(1).mean(dim=1).clamp_min(torch.finfo(density.dtype).tiny)
    return first_modes(density).power.amin(dim=1).sqrt().to(mass.dtype) / mass


def impulse(vorticity: Tensor, centre: Tensor) -> Tensor:
    """``I = integral of omega (x - c)``, ``(B, 2)``: a vector that turns with the field and,
    without net circulation, does not depend on the origin; in the plane it is conserved by the flow
    (the hydrodynamic impulse).
    """
    return _first_moment(vorticity, centre)


def impulse_bound(vorticity: Tensor, centre: Tensor) -> Tensor:
    """``integral of |omega| |x - c|``, ``(B,)``: the largest impulse that this much vorticity could
    have had there.
    """
    x, y = (_offset(n, centre[:, axis]) for axis, n in enumerate(vorticity.shape[1:]))
    squared = x.square()[:, :, None] + y.square()[:, None, :]
    radius = squared.clamp_min(
        torch.finfo(squared.dtype).tiny
    ).sqrt()  # the root has no derivative at the centre itself
    return (radius * vorticity.abs()).mean(dim=(1, 2))


def _first_moment(field: Tensor, centre: Tensor) -> Tensor:
    """``mean of f (x - c)``, ``(B, 2)``, from the means along each axis."""
    x, y = (_offset(n, centre[:, axis]) for axis, n in enumerate(field.shape[1:]))
    return torch.stack(
        [(field.mean(dim=2) * x).mean(dim=1), (field.mean(dim=1) * y).mean(dim=1)], dim=1
    )


def _offset(n: int, centre: Tensor) -> Tensor:
    """``x - c`` to the nearest image at the points of one axis, ``(B, n)``."""
    points = torch.arange(n, dtype=centre.dtype, device=centre.device) / n
    return torch.remainder(points - centre[:, None] + 0.5, 1.0) - 0.5


def enstrophy_drift(vorticity: Tensor) -> tuple[Tensor, Tensor]:
    """``mean of omega^2 u``, ``(B, 2)``: the velocity at which the flow carries enstrophy, over
    ``(B, n, m)``, and its bound.

    A vector that turns with the field and does not depend on where it is: on a periodic field,
    which has no impulse, it tells the four quarter turns apart. The bound, ``mean of omega^2 |u|``,
    is the drift if all enstrophy went one way.
    """
    velocity = _velocity(vorticity)  # (B, 2, n, m)
    enstrophy = vorticity.square()
    speed = velocity.square().sum(dim=1).sqrt()  # a tenth of the time of norm(dim=1)
    return (enstrophy[:, None] * velocity).mean(dim=(2, 3)), (enstrophy * speed).mean(dim=(1, 2))


def _velocity(vorticity: Tensor) -> Tensor:
    """``u = (psi_y, -psi_x)`` with ``Lap psi = -omega``, without its mean; ``(B, 2, n, m)``."""
    shape = tuple(vorticity.shape[1:])
    spectrum = to_spectrum(vorticity[:, None], 2)
    k = wavenumbers(shape, dtype=spectrum.real.dtype, device=vorticity.device)
    stream = spectrum / (2 * math.pi * k.square().sum(dim=0).clamp_min(1.0))
    return from_spectrum(torch.cat([1j * k[1] * stream, -1j * k[0] * stream], dim=1), shape)


def share_outside_disc(density: Tensor, centre: Tensor) -> Tensor:
    """How much of a density ``(B, n, m)`` lies further than half a box from a point, ``(B,)``."""
    total = density.flatten(1).sum(dim=1).clamp_min(torch.finfo(density.dtype).tiny)
    return (density * _outside_disc(density, centre)).flatten(1).sum(dim=1) / total


def without_background(vorticity: Tensor) -> Tensor:
    """A blob ``(B, n, m)`` less the mean of what lies further than half a box from it.

    The moments of a constant depend on where the grid lies, and so would those of the blob on it.
    """
    varies = vorticity - vorticity.mean(dim=(1, 2), keepdim=True)
    around = _outside_disc(vorticity, phase_position(varies.square()).to(vorticity.dtype))
    count = around.flatten(1).sum(dim=1).clamp_min(1)
    background = (vorticity * around).flatten(1).sum(dim=1) / count
    return vorticity - background[:, None, None]


def _outside_disc(field: Tensor, centre: Tensor) -> Tensor:
    """The points of ``(B, n, m)`` that are further than half a box from a point ``(B, 2)``."""
    x, y = (_offset(n, centre[:, axis]) for axis, n in enumerate(field.shape[1:]))
    return x.square()[:, :, None] + y.square()[:, None, :] > 0.25
