"""The trivial group: a baseline without symmetry is the same code path with nothing to align."""

from __future__ import annotations

from torch import Tensor

from pacefno.symmetry.base import Group


class Trivial(Group):
    """One element, which does nothing."""

    name = "trivial"
    coordinates = ()
    periods = ()
    spatial = 0

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def act(self, field: Tensor, xi: Tensor) -> Tensor:
        self.check_element(field, xi)
        return field

    def inverse(self, field: Tensor, xi: Tensor) -> Tensor:
        return self.act(field, xi)

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        return xi

    def inverse_element(self, xi: Tensor) -> Tensor:
        return xi
