"""The error decomposition, term by term and sample by sample (paper, Theorem 3.1 and its proof).

    |C_gT^ G(C_g0^-1 a) - u|  <=  epsilon  +  M_0 epsilon_geo,0  +  epsilon_geo,T,     M_0 = K_C L_theta

The theorem takes suprema over all inputs. Per sample the same proof holds with that sample's own numbers, and the
constant that makes it a theorem is the ratio ``|G(b) - G(a_c)| / |b - a_c|`` for the b that the operator really saw.

The theorem adds up what a wrong frame does on the way in and on the way out. An operator that nearly commutes with the
shift by which a frame is wrong undoes on the way out what was done on the way in; then the bound is far from the error.
The sharper split ``|u_pred - u| <= |u_pred - C_gT G(a_c)| + |C_gT G(a_c) - u|`` sees the two together.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pacefno.equations import Problem
from pacefno.pace import PACE
from pacefno.symmetry import Group

SLACK = 1e-9  # of |u_c|: everything is computed in float64, where the sums round at 1e-14
SMALL_GRID = 5  # points per axis on which the norm of an action is computed


class Terms(NamedTuple):
    """All ``(B,)``, norms in units of the norm of the canonical target ``|u_c|``."""

    actual: Tensor  # |u_pred - u|
    canonical: Tensor  # epsilon = |G(a_c) - u_c|: the operator's own error, in the true frame
    input_alignment: Tensor  # epsilon_geo,0 = |C_g0^-1 a - a_c|
    terminal_alignment: Tensor  # epsilon_geo,T = |C_gT^ u_c - C_gT u_c|
    action: Tensor  # K_C: how much the action that pushes the prediction out can stretch a difference
    sensitivity: Tensor  # L_theta along the actual perturbation, |G(C_g0^-1 a) - G(a_c)| / |C_g0^-1 a - a_c|
    misalignment: Tensor  # |u_pred - C_gT G(a_c)|: all that the wrong frame changes, in and out together
    with_true_frame: Tensor  # |C_gT G(a_c) - u|: the error that a perfect frame would leave

    @property
    def from_input(self) -> Tensor:
        """``M_0 epsilon_geo,0``."""
        return self.action * self.sensitivity * self.input_alignment

    @property
    def from_canonical(self) -> Tensor:
        """``K_C epsilon``: the action stretches the operator's error too (the paper's proof takes an isometry here)."""
        return self.action * self.canonical

    @property
    def bound(self) -> Tensor:
        return self.from_canonical + self.from_input + self.terminal_alignment

    @property
    def bound_as_printed(self) -> Tensor:
        """The paper's formula, without K_C on epsilon: no theorem where the action is no isometry (shallow water)."""
        return self.canonical + self.from_input + self.terminal_alignment

    @property
    def sharper_bound(self) -> Tensor:
        return self.misalignment + self.with_true_frame

    def bound_with(self, sensitivity: Tensor) -> Tensor:
        """The bound with another estimate of L_theta."""
        return self.from_canonical + self.action * sensitivity * self.input_alignment + self.terminal_alignment


def violations(actual: Tensor, bound: Tensor) -> int:
    """On how many samples the bound does not hold, beyond round-off; NaN counts."""
    return int((~(actual <= bound + SLACK)).sum())


def canonical_pair(problem: Problem, field: Tensor, target: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """``a_c`` and ``u_c``: a moved sample in its true canonical frame."""
    terminal = problem.group.transport(true, problem.horizon)
    return problem.group.inverse(field, true), problem.group.inverse(target, terminal)


@torch.no_grad()
def decompose(model: PACE, problem: Problem, field: Tensor, target: Tensor, true: Tensor, estimated: Tensor) -> Terms:
    """The terms of moved samples; ``estimated`` is the frame that the prediction is made with (identity: no frame)."""
    group = problem.group
    a_c, u_c = canonical_pair(problem, field, target, true)
    scale = norm(u_c)
    xi_T = group.transport(true, problem.horizon)
    xi_T_hat = group.transport(estimated, model.horizon)
    pulled_back = group.inverse(field, estimated)
    at_truth, at_estimate = model.operator(a_c), model.operator(pulled_back)
    step, response = norm(pulled_back - a_c), norm(at_estimate - at_truth)
    prediction, with_truth = group.act(at_estimate, xi_T_hat), group.act(at_truth, xi_T)
    return Terms(
        actual=norm(prediction - target) / scale,
        canonical=norm(at_truth - u_c) / scale,
        input_alignment=step / scale,
        terminal_alignment=norm(group.act(u_c, xi_T_hat) - group.act(u_c, xi_T)) / scale,
        action=action_norm(group, xi_T_hat, len(problem.equation.channels)),
        sensitivity=torch.where(step > 0, response / step.clamp_min(torch.finfo(step.dtype).tiny), 0.0),
        misalignment=norm(prediction - with_truth) / scale,
        with_true_frame=norm(with_truth - target) / scale,
    )


def action_norm(group: Group, xi: Tensor, channels: int) -> Tensor:
    """``K_C`` of each element: the largest singular value of ``u -> C_g u - C_g 0``, ``(B,)``.

    Shifts, rotations and boosts by a constant are isometries on every grid, and a momentum boost acts point by point, so a
    tiny grid has the same norm as a fine one and the whole matrix can be written down.
    """
    size = channels * SMALL_GRID**group.dim
    basis = torch.eye(size, dtype=xi.dtype).reshape(size, channels, *[SMALL_GRID] * group.dim)
    zero = torch.zeros_like(basis[:1])
    found = []
    for row in xi:
        columns = group.act(basis, row.expand(size, -1)) - group.act(zero, row[None])
        found.append(torch.linalg.matrix_norm(columns.flatten(1), ord=2))
    return torch.stack(found)


def norm(field: Tensor) -> Tensor:
    """The L2 norm of each sample over channels and grid, ``(B,)``."""
    return field.flatten(1).norm(dim=1)
