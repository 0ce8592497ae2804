"""PACE: any operator on a periodic grid, made equivariant by canonicalisation (paper, Eq. 1 and Algorithm 1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pacefno.frames import AnalyticFrame, Estimate, Frame, GaussNewton, Refinement, Refiner
from pacefno.grid import check_field, compute_dtype
from pacefno.symmetry import Group


class PACE(nn.Module):
    """Estimate the frame, pull the field back, operate, carry the frame to the final time, push the prediction out.

    ``u_pred = C_exp(xi_T) G_theta C_exp(xi_0)^-1 (a)`` with ``xi_0 = E_phi(a)`` and ``xi_T = Gamma_B(xi_0; T)``.

    ``operator`` is any module on ``(B, C, *grid)``, trained or not; ``horizon`` is the time T between its input and its
    output, in units in which the domain has length 1. ``frame`` defaults to the analytic one, which needs no training.
    """

    def __init__(self, operator: nn.Module, group: Group, frame: Frame | None = None, horizon: float = 0.0) -> None:
        super().__init__()
        self.operator = operator
        self.group = group
        self.frame = AnalyticFrame(group) if frame is None else frame
        self.horizon = horizon

    def forward(self, field: Tensor) -> Tensor:
        self._check(field)
        return self.at(field, self.frame(field).xi)

    def at(self, field: Tensor, xi_0: Tensor) -> Tensor:
        """The prediction with a given input frame: the true one (oracle), a refined one, or the estimate."""
        work = field.to(compute_dtype(field.dtype))
        canonical = self.group.inverse(work, xi_0)
        u_c = self.operator(canonical.to(self._operator_dtype(field.dtype))).to(work.dtype)
        xi_T = self.group.transport(xi_0, self.horizon)
        return self.group.act(u_c, xi_T).to(field.dtype)

    def frame_of(self, field: Tensor) -> Estimate:
        """The estimated coordinates of each sample, with a confidence."""
        self._check(field)
        return self.frame(field)

    def canonicalize(self, field: Tensor) -> Tensor:
        """The field pulled back to the canonical frame: what the operator sees."""
        return self.group.inverse(field, self.frame_of(field).xi)

    def refine(self, field: Tensor, refiner: Refiner | None = None) -> Refinement:
        """A frame with lower energy than the estimate's (test-time adaptation, by the frame's own energy); weights stay frozen.

        Predict with it by ``model.at(field, model.refine(field).xi)``.
        """
        refiner = GaussNewton() if refiner is None else refiner
        with torch.no_grad():
            xi_0 = self.frame_of(field).xi
        return refiner(self.frame.energy(), field.to(compute_dtype(field.dtype)), xi_0)

    def _operator_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Half precision for an operator with such weights; else the dtype in which everything around it is computed."""
        weight = next(self.operator.parameters(), None)
        return dtype if weight is not None and weight.dtype == dtype else compute_dtype(dtype)

    def _check(self, field: Tensor) -> None:
        # Finding a NaN costs a pass over the field; in training the loss watches for it.
        check_field(field, dim=self.group.dim, finite=not self.training)
