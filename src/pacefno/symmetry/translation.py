"""Translations of the torus by the Fourier shift theorem (paper, appendix A, "Spectral group action")."""

from __future__ import annotations

from torch import Tensor

from pacefno.grid import from_spectrum, shift_phase, to_spectrum
from pacefno.symmetry.base import Group

AXES = ("x", "y", "z")


def shift(field: Tensor, distance: Tensor) -> Tensor:
    """Move content by ``+distance`` of shape ``(B, dim)``: ``F(T_tau a)(k) = exp(-2 pi i <k, tau>) F(a)(k)``."""
    dim = distance.shape[-1]
    shape = tuple(field.shape[-dim:])
    spectrum = to_spectrum(field, dim)
    for axis, n in enumerate(shape):
        phase = shift_phase(n, distance[:, axis], half=axis == dim - 1)  # (B, modes)
        spectrum = spectrum * phase.reshape(-1, 1, *[phase.shape[-1] if a == axis else 1 for a in range(dim)])
    return from_spectrum(spectrum, shape).to(field.dtype)


class Translation(Group):
    """The torus acting on itself: one shift per axis, in units of the period. Every law holds exactly."""

    name = "translation"

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.coordinates = AXES[:dim]
        self.periods = (1.0,) * dim
        self.spatial = dim

    def act(self, field: Tensor, xi: Tensor) -> Tensor:
        return shift(field, self.check_element(field, xi))

    def inverse(self, field: Tensor, xi: Tensor) -> Tensor:
        return shift(field, -self.check_element(field, xi))

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        return self.wrap(xi + eta)

    def inverse_element(self, xi: Tensor) -> Tensor:
        return self.wrap(-xi)
