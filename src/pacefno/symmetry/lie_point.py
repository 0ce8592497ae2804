"""The Lie point symmetries of KdV and Kuramoto-Sivashinsky, as LPSDA uses them, acting on whole trajectories.

g1, time translation, is :meth:`Trajectories.window`. The others are the coordinates of one group. LPSDA writes g3 and g4
with the opposite sign of epsilon; its draws are symmetric, so the augmented data have the same law.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacefno.symmetry.base import Coordinates
from pacefno.symmetry.trajectories import Trajectories
from pacefno.symmetry.translation import shift


class LiePoint(Coordinates):
    """Shift by ``x`` periods (g2), then boost by ``velocity`` (g3), then rescale by ``scale`` (g4, for KdV only).

    With ``xi = (delta, v, s)``, frame ``j`` at ``t_j = j spacing`` and ``u`` on a domain of length L::

        g2: u_j(x - delta L)        g3: u_j(x - v t_j) + v
        g4: e^(-2s) u_j on the same points, which now lie on a domain of length e^s L, frames e^(3s) spacing apart

    A boost starts at the first frame and a rescaling moves no sample, so every law holds to round-off.
    """

    name = "lie-point"

    def __init__(self, *, scaling: bool) -> None:
        self.scaling = scaling
        self.coordinates = ("x", "velocity", "scale") if scaling else ("x", "velocity")
        self.periods = (1.0, math.inf, math.inf)[: self.size]

    def act(self, trajectories: Trajectories, xi: Tensor) -> Trajectories:
        """The solution that starts from the moved first frame; one element per trajectory."""
        u = trajectories.u
        delta, velocity, scale = self._split(self.check_rows(xi, len(u), u.dtype))
        drift = velocity * trajectories.horizon(1).to(velocity)  # periods per frame
        distance = delta[:, None] + drift[:, None] * torch.arange(u.shape[1], dtype=drift.dtype, device=drift.device)
        moved = shift(u.flatten(0, 1)[:, None], distance.flatten()[:, None]).reshape(u.shape)
        moved = (moved + velocity[:, None, None].to(u.dtype)) * torch.exp(-2 * scale)[:, None, None].to(u.dtype)
        stretch = scale.to(trajectories.length)
        return Trajectories(moved, trajectories.length * torch.exp(stretch), trajectories.spacing * torch.exp(3 * stretch))

    def inverse(self, trajectories: Trajectories, xi: Tensor) -> Trajectories:
        """Undo :meth:`act` of the same coordinates."""
        return self.act(trajectories, self.inverse_element(xi))

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        """A velocity that is added after a rescaling by s was ``e^(2s)`` times as large before it."""
        delta, velocity, scale = self._split(xi)
        first_delta, first_velocity, first_scale = self._split(eta)
        return self._join(delta + first_delta, first_velocity + torch.exp(2 * first_scale) * velocity, scale + first_scale)

    def inverse_element(self, xi: Tensor) -> Tensor:
        delta, velocity, scale = self._split(xi)
        return self._join(-delta, -torch.exp(-2 * scale) * velocity, -scale)

    def transport(self, xi: Tensor, horizon: float | Tensor) -> Tensor:
        """The element as a later frame sees it, ``delta_T = delta_0 + v T``.

        ``act(u, xi).window(j, m) = act(u.window(j, m), transport(xi, u.horizon(j)))``.
        """
        delta, velocity, scale = self._split(xi)
        return self._join(delta + velocity * torch.as_tensor(horizon).to(xi), velocity, scale)

    def _split(self, xi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return xi[:, 0], xi[:, 1], xi[:, 2] if self.scaling else torch.zeros_like(xi[:, 0])

    def _join(self, delta: Tensor, velocity: Tensor, scale: Tensor) -> Tensor:
        return self.wrap(torch.stack([delta, velocity, scale][: self.size], dim=1))
