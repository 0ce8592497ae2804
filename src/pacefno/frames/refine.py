"""Test-time adaptation: improve a frame by making the pulled-back field look canonical, all weights
frozen (paper, Eq. 2).

An energy is a vector of residuals, ``J = |r|^2 / 2``. There are at most three unknowns per sample,
so Gauss-Newton with forward-mode derivatives needs a few steps where Adam needs tens. Every refiner
keeps, sample by sample, the best frame it has seen: it never returns a higher energy than it was
given.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pacefno.fields import Field
from pacefno.frames.base import Energy
from pacefno.grid import compute_dtype

ROUND_OFFS = 8  # of a coordinate of order one: a smaller step changes nothing that can be seen


class Refinement(NamedTuple):
    """The best frame of each sample and what it cost to find."""

    xi: Tensor  # (B, size)
    energy_before: Tensor  # (B,)
    energy_after: Tensor  # (B,), never above energy_before
    evaluations: int  # of the energy, derivatives included


def energy_of(residual: Tensor) -> Tensor:
    """``J = |r|^2 / 2``, ``(B,)``."""
    return residual.square().sum(dim=1) / 2


class Refiner(ABC):
    """How an energy is lowered: ``(energy, field, xi) -> Refinement``, sample by sample."""

    @abstractmethod
    def __call__(self, energy: Energy, field: Field, xi: Tensor) -> Refinement: ...


def _nothing_to_do(xi: Tensor) -> Refinement:
    """A group without spatial coordinates leaves nothing to refine."""
    zero = xi.new_zeros(len(xi))
    return Refinement(xi, zero, zero, 0)


@dataclass(frozen=True)
class GaussNewton(Refiner):
    """Damped Gauss-Newton (Levenberg-Marquardt), batched: each sample has its own damping and keeps
    its best frame.

    Samples whose energy is below ``tolerance`` are done, and those whose last step was round-off;
    when all are, nothing more is computed. So a frame that is consistent already (any exactly
    equivariant one) costs one evaluation.
    """

    steps: int = 4
    damping: float = 1e-3
    tolerance: float | None = None  # None: the energy of a residual of a hundred round-offs

    @torch.no_grad()
    def __call__(self, energy: Energy, field: Field, xi: Tensor) -> Refinement:
        group = energy.group
        if group.spatial == 0:
            return _nothing_to_do(xi)
        kinematic = xi[:, group.spatial :]

        def residual(spatial: Tensor) -> Tensor:
            return energy.residual(field, torch.cat([spatial, kinematic], dim=1))

        def wrap(spatial: Tensor) -> Tensor:
            return group.wrap(torch.cat([spatial, kinematic], dim=1))[:, : group.spatial]

        found, before, after, evaluations = least_squares(
            residual,
            xi[:, : group.spatial],
            self.steps,
            damping=self.damping,
            tolerance=self.tolerance,
            spacing=energy.spacing,
            wrap=wrap,
            round_off=torch.finfo(compute_dtype(field.values.dtype)).eps,
        )
        return Refinement(torch.cat([found, kinematic], dim=1), before, after, evaluations)


def least_squares(
    residual: Callable[[Tensor], Tensor],
    x: Tensor,
    steps: int,
    *,
    damping: float = 1e-3,
    tolerance: float | None = None,
    longest: float = math.inf,
    spacing: float | None = None,
    wrap: Callable[[Tensor], Tensor] = lambda x: x,
    round_off: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Minimise ``|r(x)|^2 / 2`` sample by sample, ``x`` ``(B, d)``: the best x, energies before and
    after, evaluations.

    No coordinate moves by more than ``longest`` in one step. Derivatives are exact, or differences
    over ``spacing``, which take half the time and are good enough for a fit. ``round_off`` is that
    of the fields behind the residuals, which may be coarser than that of the residuals themselves.
    """
    now = residual(x)
    best = start = energy_of(now)
    eps = torch.finfo(now.dtype).eps if round_off is None else round_off
    tolerance = tolerance if tolerance is not None else (1e2 * eps) ** 2
    weight = now.new_full((len(x),), damping)
    moving = torch.ones(len(x), dtype=torch.bool, device=x.device)
    evaluations = 1
    for _ in range(steps):
        open_ = moving & (
            best > tolerance
        )  # a finished sample rests: its result must not depend on its batch mates
        if not bool(open_.any()):
            break
        step = _step(now, _jacobian(residual, x, now, spacing), weight).to(x.dtype)
        candidate = wrap(x + step.clamp(-longest, longest))
        then = residual(candidate)
        evaluations += x.shape[1] + 1
        better = open_ & (energy_of(then) < best)  # False for NaN
        x = torch.where(better[:, None], candidate, x)
        now = torch.where(better[:, None], then, now)
        best = energy_of(now)
        weight = torch.where(better, weight / 10, weight * 10)
        moving = moving & (step.abs().amax(dim=1) > ROUND_OFFS * eps)
    return x, start, best, evaluations


def _jacobian(
    residual: Callable[[Tensor], Tensor], x: Tensor, now: Tensor, spacing: float | None
) -> Tensor:
    """``dr/dx``, ``(B, m, d)``: samples do not mix, so one sweep per coordinate is enough."""
    columns = []
    for j in range(x.shape[1]):
        tangent = torch.zeros_like(x)
        tangent[:, j] = 1
        if spacing is None:
            columns.append(torch.func.jvp(residual, (x,), (tangent,))[1])
        else:
            columns.append((residual(x + spacing * tangent) - now) / spacing)
    return torch.stack(columns, dim=-1)


def _step(residual: Tensor, jacobian: Tensor, damping: Tensor) -> Tensor:
    """``-(J'J + damping diag(J'J))^-1 J'r``, ``(B, d)``."""
    transposed = jacobian.transpose(1, 2)
    normal = transposed @ jacobian
    diagonal = normal.diagonal(dim1=1, dim2=2)
    floor = torch.finfo(normal.dtype).eps * (1 + diagonal.amax(dim=1, keepdim=True))
    normal = normal + torch.diag_embed(damping[:, None] * diagonal + floor)
    return torch.linalg.solve_ex(normal, -(transposed @ residual[..., None]))[0][
        ..., 0
    ]  # one bad sample must not raise


@dataclass(frozen=True)
class AdamRefiner(Refiner):
    """The paper's optimiser: Adam on the spatial coordinates (AdamW where ``weight_decay`` is set,
    as in its shallow water).
    """

    steps: int = 20
    rate: float = 0.05
    weight_decay: float = 0.0

    def __call__(self, energy: Energy, field: Field, xi: Tensor) -> Refinement:
        if energy.group.spatial == 0:
            return _nothing_to_do(xi)
        # Even a caller in inference mode needs derivatives here, and tensors made in that mode
        # cannot carry any.
        with torch.inference_mode(False), torch.enable_grad():
            copy = field.with_values(field.values.detach().clone())
            return self._descend(energy, copy, xi.detach().clone())

    def _descend(self, energy: Energy, field: Field, xi: Tensor) -> Refinement:
        spatial = energy.group.spatial
        moving, kinematic = xi[:, :spatial].clone().requires_grad_(), xi[:, spatial:]
        optimizer = torch.optim.AdamW([moving], lr=self.rate, weight_decay=self.weight_decay)
        value = energy_of(energy.residual(field, torch.cat([moving, kinematic], dim=1)))
        best = start = value.detach()
        best_xi = xi
        for _ in range(self.steps):
            moving.grad = torch.autograd.grad(value.sum(), moving)[0]
            optimizer.step()
            now = energy.group.wrap(torch.cat([moving, kinematic], dim=1))
            value = energy_of(energy.residual(field, now))
            better = value.detach() < best  # False for NaN
            best = torch.where(better, value.detach(), best)
            best_xi = torch.where(better[:, None], now.detach(), best_xi)
        return Refinement(best_xi, start, best, self.steps + 1)
