"""Translations of the torus by the Fourier shift theorem, and the group that does nothing."""

from __future__ import annotations

from torch import Tensor

from pacefno.fields import AXES, Field
from pacefno.grid import as_products, from_spectrum, move_axis, shift_phase, to_spectrum
from pacefno.groups.base import Group
from pacefno.registry import register


def shift(values: Tensor, distance: Tensor) -> Tensor:
    """Move content by ``+distance`` periods (paper, appendix A, "Spectral group action").

    ``F(T_tau a)(k) = exp(-2 pi i <k, tau>) F(a)(k)``. ``values`` is ``(B, ..., *grid)`` and
    ``distance`` is ``(B, dim)``, or ``(B, S, dim)`` for values ``(B, S, ..., *grid)``.
    """
    dim = distance.shape[-1]
    if as_products():
        ones = [1] * (values.ndim - distance.ndim)
        for axis in range(dim):
            each = distance[..., axis]
            values = move_axis(values, each.reshape(*each.shape, *ones), axis - dim)
        return values
    shape = tuple(values.shape[-dim:])
    spectrum = to_spectrum(values, dim)
    lead = spectrum.ndim - dim
    for axis, n in enumerate(shape):
        half = axis == dim - 1
        phase = shift_phase(n, distance[..., axis], half=half, dtype=spectrum.real.dtype)
        ones = [1] * (lead - (phase.ndim - 1))
        line = [phase.shape[-1] if a == axis else 1 for a in range(dim)]
        spectrum = spectrum * phase.reshape(*phase.shape[:-1], *ones, *line)
    return from_spectrum(spectrum, shape).to(values.dtype)


@register("group", "translation")
class Translation(Group):
    """The torus acting on itself: one shift per axis, in periods of the box. Every law is exact."""

    name = "translation"
    needs_kinds = False

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.coordinates = AXES[:dim]
        self.periods = (1.0,) * dim
        self.spatial = dim

    def act(self, field: Field, xi: Tensor) -> Field:
        return field.with_values(shift(field.values, self.check_element(field, xi)))

    def inverse(self, field: Field, xi: Tensor) -> Field:
        return self.act(field, -xi)

    def in_place(self, field: Field, xi: Tensor, *, pooled: bool = False) -> Field:
        return field

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        return self.wrap(xi + eta)

    def inverse_element(self, xi: Tensor) -> Tensor:
        return self.wrap(-xi)


@register("group", "trivial")
class Trivial(Group):
    """One element, which does nothing: a plain operator is PACE with this group."""

    name = "trivial"
    coordinates = ()
    periods = ()
    spatial = 0
    needs_kinds = False

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def act(self, field: Field, xi: Tensor) -> Field:
        self.check_element(field, xi)
        return field

    def inverse(self, field: Field, xi: Tensor) -> Field:
        return self.act(field, xi)

    def in_place(self, field: Field, xi: Tensor, *, pooled: bool = False) -> Field:
        return field

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        return xi

    def inverse_element(self, xi: Tensor) -> Tensor:
        return xi
