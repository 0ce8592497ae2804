"""The frame of a window of a trajectory under the Lie point symmetries of KdV and Kuramoto-Sivashinsky: all of it analytic."""

from __future__ import annotations

import torch
from torch import Tensor

from pacefno.symmetry import LiePoint, Trajectories
from pacefno.symmetry.moments import phase_position


class WindowFrame:
    """``(x, velocity, scale)`` of a window, read off without training, and equivariant to round-off.

    - scale (g4): ``s = log(spacing / nominal) / 3``. A rescaling multiplies the time between frames by ``e^3s``, so pulled back
      every window has the nominal one; the length of its domain is then the only parameter that an operator must be told.
      (The length would serve as well, but with it the spacing would vary by its cube.)
    - velocity (g3): the mean of the window before the rescaling, ``v = e^2s mean(u)``; both equations conserve it.
    - x (g2): the crest of the first Fourier mode of the first frame. A state without that mode (one in 1024 initial states
      has waves of the second kind only) has no position; an operator without coordinates does not mind.
    """

    def __init__(self, symmetry: LiePoint, spacing: float) -> None:
        self.symmetry = symmetry
        self.spacing = spacing  # the nominal one

    def __call__(self, window: Trajectories) -> Tensor:
        """One element per window, ``(B, size)``, in the precision of the values."""
        dtype = window.u.dtype
        scale = torch.log(window.spacing / self.spacing) / 3 if self.symmetry.scaling else torch.zeros_like(window.spacing)
        velocity = torch.exp(2 * scale).to(dtype) * window.u.mean(dim=(1, 2))
        position = phase_position(window.u[:, 0])[:, 0]
        return torch.stack([position, velocity, scale.to(dtype)][: self.symmetry.size], dim=1)
