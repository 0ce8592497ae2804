"""Exponential time differencing, fourth order (Cox & Matthews; coefficients by contour integrals,
Kassam & Trefethen).

The stiff linear part is solved exactly, so the step is limited by the flow and not by the
viscosity.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pacefno.fields import Box
from pacefno.grid import check_field, compute_dtype, from_spectrum, to_spectrum, wavenumbers
from pacefno.pde.base import Equation, SolverError, angular_wavenumbers

CONTOUR_POINTS = 32


@dataclass(frozen=True)
class ETDRK4:
    """The scheme as data: per mode, the exponentials of a full and a half step and four weights."""

    full: Tensor
    half: Tensor
    stage: Tensor
    first: Tensor
    middle: Tensor
    last: Tensor

    def step(self, u: Tensor, nonlinear: Callable[[Tensor], Tensor]) -> Tensor:
        n_u = nonlinear(u)
        half_u = self.half * u
        a = torch.addcmul(half_u, self.stage, n_u)
        n_a = nonlinear(a)
        b = torch.addcmul(half_u, self.stage, n_a)
        n_b = nonlinear(b)
        c = torch.addcmul(self.half * a, self.stage, 2 * n_b - n_u)
        n_c = nonlinear(c)
        u = torch.addcmul(self.full * u, self.first, n_u)
        return u.addcmul_(self.middle, n_a.add_(n_b)).addcmul_(self.last, n_c)

    def dealiased(self, mask: Tensor, dtype: torch.dtype) -> ETDRK4:
        """The same scheme with aliased modes of N(u) weighted by zero, stored in the dtype of the
        spectra it multiplies.
        """
        return ETDRK4(
            full=self.full.to(dtype),
            half=self.half.to(dtype),
            stage=(self.stage * mask).to(dtype),
            first=(self.first * mask).to(dtype),
            middle=(self.middle * mask).to(dtype),
            last=(self.last * mask).to(dtype),
        )


def etdrk4(symbol: Tensor, step: float | Tensor) -> ETDRK4:
    """Coefficients for ``u_t = L u + N(u)`` with the diagonal symbol L, computed in float64 and
    cast back.

    Each is an entire function of z = L h whose formula cancels near 0: it is averaged over a unit
    circle around z. The step h is a number, or a tensor that broadcasts with the symbol: one step
    per trajectory.
    """
    z = symbol.to(torch.complex128) * step
    h = step[..., None] if isinstance(step, Tensor) else step  # beside the axis of the circle
    angles = (
        2
        * math.pi
        * (torch.arange(CONTOUR_POINTS, dtype=torch.float64, device=z.device) + 0.5)
        / CONTOUR_POINTS
    )
    r = z[..., None] + torch.polar(torch.ones_like(angles), angles)
    e = torch.exp(r)

    def mean(values: Tensor) -> Tensor:
        average = values.mean(dim=-1)
        return (average if symbol.is_complex() else average.real).to(symbol.dtype)

    return ETDRK4(
        full=torch.exp(z if symbol.is_complex() else z.real).to(symbol.dtype),
        half=torch.exp(z / 2 if symbol.is_complex() else z.real / 2).to(symbol.dtype),
        stage=mean(h * (torch.exp(r / 2) - 1) / r),
        first=mean(h * (-4 - r + e * (4 - 3 * r + r**2)) / r**3),
        middle=mean(2 * h * (2 + r + e * (r - 2)) / r**3),
        last=mean(h * (-4 - 3 * r - r**2 + e * (4 - r)) / r**3),
    )


def dealias_mask(shape: Sequence[int], device: torch.device | str = "cpu", cut: int = 3) -> Tensor:
    """The modes below ``n / cut``, ``(*half_grid)``; 3 is the 2/3 rule: a product of two fields
    leaves these unaliased.
    """
    k = wavenumbers(shape, device=device).abs()
    keep = torch.stack([k[axis] < n / cut for axis, n in enumerate(shape)])
    return keep.all(dim=0)


def solve(
    equation: Equation,
    initial: Tensor,
    times: Sequence[float],
    step: float,
    *,
    box: Box | None = None,
) -> Tensor:
    """States at the given increasing times, ``(B, len(times), C, *grid)``, by steps of at most
    ``step``.

    Modes that the equation does not keep (the 2/3 rule) are removed from the initial state. A state
    that stops being one raises :class:`SolverError`. The box has lengths 1 and the unit of time is
    1, or ``box`` says for each sample what they are: times and step are then counted in its step.
    """
    type = equation.field_type()
    check_field(initial, channels=type.size, dim=equation.dim, name=equation.name, finite=False)
    _check_times(times, step)
    shape = tuple(initial.shape[2:])
    kappa = angular_wavenumbers(shape, compute_dtype(initial.dtype), initial.device)
    unit: float | Tensor = 1.0
    if box is not None:
        _check_box(box, len(initial), equation.dim)
        ones = [1] * equation.dim
        kappa = kappa[:, None, None] / box.lengths.T.reshape(equation.dim, -1, 1, *ones).to(kappa)
        unit = box.step.double().reshape(-1, 1, *ones)
    mask = dealias_mask(shape, initial.device, equation.cut)
    symbol = equation.linear(kappa)
    _check_symbol(equation, symbol, mask, type.size)

    nonlinear = equation.nonlinear(kappa, shape)
    u = to_spectrum(initial, equation.dim) * mask
    _check_state(equation, from_spectrum(u, shape), 0.0, step)
    states, now = [], 0.0
    scheme, scheme_step = None, 0.0
    for time in times:
        count = max(1, math.ceil((time - now) / step - 1e-9)) if time > now else 0
        own = (time - now) / count if count else 0.0
        if count and (scheme is None or not math.isclose(own, scheme_step, rel_tol=1e-12)):
            scheme_step = own
            scheme = etdrk4(symbol, scheme_step * unit).dealiased(mask, u.dtype)
        for _ in range(count):
            assert scheme is not None
            u = scheme.step(u, nonlinear)
        now = time
        if u.shape[1:] != (type.size, *mask.shape):
            raise ValueError(
                f"{equation.name}.nonlinear: expected terms of the shape of the spectrum, "
                f"{(type.size, *mask.shape)} for each sample, got {tuple(u.shape[1:])}"
            )
        state = from_spectrum(u, shape)
        _check_state(equation, state, now, scheme_step or step)
        states.append(state)
    return torch.stack(states, dim=1).to(initial.dtype)


def _check_times(times: Sequence[float], step: float) -> None:
    if not 0 < step < math.inf:
        raise ValueError(f"solve: expected a positive step size, got {step}")
    if not all(a <= b for a, b in itertools.pairwise([0.0, *times])) or not times:
        raise ValueError(
            f"solve: expected increasing times from 0 on, got {list(times)}: sort them"
        )


def _check_box(box: Box, samples: int, dim: int) -> None:
    for name, values, shape in (
        ("lengths", box.lengths, (samples, dim)),
        ("step", box.step, (samples,)),
    ):
        good = tuple(values.shape) == shape and bool(((values > 0) & values.isfinite()).all())
        if not good:
            raise ValueError(f"solve: expected positive {name} of shape {shape}, got {values}")


def _check_symbol(equation: Equation, symbol: Tensor, mask: Tensor, channels: int) -> None:
    grid = tuple(mask.shape)
    lead = tuple(symbol.shape[: symbol.ndim - len(grid)])
    if tuple(symbol.shape[len(lead) :]) != grid or (lead and lead[-1] not in (1, channels)):
        raise ValueError(
            f"{equation.name}.linear: expected a symbol of shape {grid} or ({channels}, *{grid}), "
            f"got {tuple(symbol.shape)}"
        )


def _check_state(equation: Equation, state: Tensor, time: float, step: float) -> None:
    bad = equation.invalid(state)
    if bool(bad.any()):
        sample = int(bad.nonzero()[0])
        raise SolverError(
            f"{equation.name}: sample {sample} is not a valid state at time {time:.4g} "
            f"({int(bad.sum())} of {len(bad)} samples; step size {step:.4g}): reduce the step or "
            "check the initial state"
        )
