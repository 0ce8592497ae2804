"""Test-time adaptation: improve a frame by making the pulled-back field look canonical, all weights frozen (paper, Eq. 3).

An energy is a vector of residuals, ``J = |r|^2 / 2``; there are at most three unknowns per sample, so Gauss-Newton with
forward-mode derivatives needs a few steps where Adam needs tens. Every refiner keeps, sample by sample, the best frame it
has seen: it never returns a higher energy than it was given.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pacefno.frames.base import Frame
from pacefno.symmetry import Group


class Refinement(NamedTuple):
    """The best frame of each sample and what it cost to find."""

    xi: Tensor  # (B, size)
    energy_before: Tensor  # (B,)
    energy_after: Tensor  # (B,), never above energy_before
    evaluations: int  # of the energy, derivatives included


class Energy(ABC):
    """Residuals of a candidate frame, ``(B, m)``; zero where the pulled-back field is canonical."""

    group: Group

    @abstractmethod
    def residual(self, field: Tensor, xi: Tensor) -> Tensor: ...


class SelfConsistency(Energy):
    """The paper's J_TTA: what the frame still finds on the field that was pulled back by it, ``P_S E_phi(C_xi^-1 a)``.

    ``r = 2 sin(pi e / period)``, so that ``|r|^2 / 2 = sum of 1 - cos(2 pi e / period)``: the wrapped (cosine) form, which
    is the squared form for small residuals.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.group = frame.group

    def residual(self, field: Tensor, xi: Tensor) -> Tensor:
        left = self.frame(self.group.inverse(field, xi)).xi[:, : self.group.spatial]
        periods = left.new_tensor(self.group.periods[: self.group.spatial])
        return 2 * torch.sin(math.pi * left / periods)


def energy_of(residual: Tensor) -> Tensor:
    """``J = |r|^2 / 2``, ``(B,)``."""
    return residual.square().sum(dim=1) / 2


class Refiner(ABC):
    """How an energy is lowered: ``(energy, field, xi) -> Refinement``, sample by sample."""

    @abstractmethod
    def __call__(self, energy: Energy, field: Tensor, xi: Tensor) -> Refinement: ...


def _nothing_to_do(xi: Tensor) -> Refinement:
    """A group without spatial coordinates leaves nothing to refine."""
    zero = xi.new_zeros(len(xi))
    return Refinement(xi, zero, zero, 0)


@dataclass(frozen=True)
class GaussNewton(Refiner):
    """Damped Gauss-Newton (Levenberg-Marquardt), batched: each sample has its own damping and keeps its best frame.

    Samples whose energy is below ``tolerance`` are done; when all are, nothing more is computed. So a frame that is
    consistent already (any exactly equivariant one) costs one evaluation.
    """

    steps: int = 4
    damping: float = 1e-3
    tolerance: float | None = None  # None: the energy of a residual of a hundred round-offs

    @torch.no_grad()
    def __call__(self, energy: Energy, field: Tensor, xi: Tensor) -> Refinement:
        if energy.group.spatial == 0:
            return _nothing_to_do(xi)
        residual = energy.residual(field, xi)
        best = start = energy_of(residual)
        tolerance = self.tolerance if self.tolerance is not None else (1e2 * torch.finfo(residual.dtype).eps) ** 2
        damping = residual.new_full((len(xi),), self.damping)
        evaluations = 1
        for _ in range(self.steps):
            open_ = best > tolerance  # a finished sample rests: its result must not depend on its batch mates
            if not bool(open_.any()):
                break
            jacobian = _jacobian(energy, field, xi)
            candidate = _step(energy.group, xi, residual, jacobian, damping)
            new_residual = energy.residual(field, candidate)
            evaluations += energy.group.spatial + 1
            better = open_ & (energy_of(new_residual) < best)  # False for NaN
            xi = torch.where(better[:, None], candidate, xi)
            residual = torch.where(better[:, None], new_residual, residual)
            best = energy_of(residual)
            damping = torch.where(better, damping / 10, damping * 10)
        return Refinement(xi, start, best, evaluations)


def _jacobian(energy: Energy, field: Tensor, xi: Tensor) -> Tensor:
    """``dr/dxi`` over the spatial coordinates, ``(B, m, spatial)``: samples do not mix, so one sweep serves the batch."""
    columns = []
    for j in range(energy.group.spatial):
        tangent = torch.zeros_like(xi)
        tangent[:, j] = 1
        column = torch.func.jvp(lambda z: energy.residual(field, z), (xi,), (tangent,))[1]
        columns.append(column)
    return torch.stack(columns, dim=-1)


def _step(group: Group, xi: Tensor, residual: Tensor, jacobian: Tensor, damping: Tensor) -> Tensor:
    """``xi - (J'J + damping diag(J'J))^-1 J'r`` on the spatial coordinates, wrapped."""
    transposed = jacobian.transpose(1, 2)
    normal = transposed @ jacobian
    diagonal = normal.diagonal(dim1=1, dim2=2)
    floor = torch.finfo(normal.dtype).eps * (1 + diagonal.amax(dim=1, keepdim=True))
    normal = normal + torch.diag_embed(damping[:, None] * diagonal + floor)
    delta = torch.linalg.solve_ex(normal, -(transposed @ residual[..., None]))[0][..., 0]  # one bad sample must not raise
    moved = torch.cat([xi[:, : group.spatial] + delta.to(xi.dtype), xi[:, group.spatial :]], dim=1)
    return group.wrap(moved)


@dataclass(frozen=True)
class AdamRefiner(Refiner):
    """The paper's optimiser: Adam on the spatial coordinates (AdamW where ``weight_decay`` is set, as in its shallow water)."""

    steps: int = 20
    rate: float = 0.05
    weight_decay: float = 0.0

    def __call__(self, energy: Energy, field: Tensor, xi: Tensor) -> Refinement:
        if energy.group.spatial == 0:
            return _nothing_to_do(xi)
        # Even a caller in inference mode needs derivatives here, and tensors made in that mode cannot carry any.
        with torch.inference_mode(False), torch.enable_grad():
            return self._descend(energy, field.detach().clone(), xi.detach().clone())

    def _descend(self, energy: Energy, field: Tensor, xi: Tensor) -> Refinement:
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
