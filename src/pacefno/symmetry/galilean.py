"""Translations and boosts: ``T^d x Gal``, with the terminal frame of the paper's table of generators.

How a boost changes the channels depends on what they are, so it is a small object of its own: a scalar that is its own
velocity (Burgers), or a height with momenta (shallow water).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from pacefno.grid import FieldError
from pacefno.symmetry.base import Group
from pacefno.symmetry.translation import AXES, shift


class Boost(ABC):
    """What a change of velocity does to the channels of a field."""

    coordinates: tuple[str, ...]

    @abstractmethod
    def add(self, field: Tensor, velocity: Tensor) -> Tensor:
        """The field seen from a frame that moves with ``-velocity``; velocity is ``(B, len(coordinates))``."""

    @abstractmethod
    def measure(self, field: Tensor) -> Tensor:
        """The background velocity of a field, ``(B, len(coordinates))``: it changes by v under ``add(., v)``."""

    @abstractmethod
    def drift(self, velocity: Tensor) -> Tensor:
        """How fast the boost carries content along each axis, ``(B, dim)``."""


class ScalarBoost(Boost):
    """``u -> u + c``: the field is its own transport velocity along every axis (scalar Burgers)."""

    coordinates = ("velocity",)

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def add(self, field: Tensor, velocity: Tensor) -> Tensor:
        return field + velocity.to(field.dtype).reshape(-1, 1, *[1] * self.dim)

    def measure(self, field: Tensor) -> Tensor:
        return field.flatten(1).mean(dim=1, keepdim=True)

    def drift(self, velocity: Tensor) -> Tensor:
        return velocity.expand(-1, self.dim)


class MomentumBoost(Boost):
    """``(h, m) -> (h, m + h V)``: conservative height and momentum (shallow water).

    The background velocity is the paper's mean of ``m / h``. That quotient is not band-limited, so its mean over the
    points follows a sub-cell shift only as well as the grid resolves ``1 / h``.
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.coordinates = tuple(f"velocity_{axis}" for axis in AXES[:dim])

    def add(self, field: Tensor, velocity: Tensor) -> Tensor:
        self._check(field)
        height, momentum = field[:, :1], field[:, 1:]
        boost = velocity.to(field.dtype).reshape(-1, self.dim, *[1] * self.dim)
        return torch.cat([height, momentum + height * boost], dim=1)

    def measure(self, field: Tensor) -> Tensor:
        self._check(field)
        return (field[:, 1:] / field[:, :1]).flatten(2).mean(dim=2)

    def drift(self, velocity: Tensor) -> Tensor:
        return velocity

    def _check(self, field: Tensor) -> None:
        if field.shape[1] != 1 + self.dim:
            raise FieldError(
                f"momentum boost: expected channels (h, {', '.join('m' + a for a in AXES[: self.dim])}), "
                f"got {field.shape[1]} channels: use the conservative variables"
            )


BOOSTS: dict[str, type[ScalarBoost] | type[MomentumBoost]] = {"scalar": ScalarBoost, "momentum": MomentumBoost}


class Galilean(Group):
    """Shift by ``delta``, then boost by ``v``. The two commute at one time; over time a boost becomes a shift.

    Composition and inverse are exact. Boosts are no isometries of L2: they add energy.
    """

    name = "galilean"

    def __init__(self, dim: int, boost: str = "scalar") -> None:
        if boost not in BOOSTS:
            raise ValueError(f"Galilean: expected boost in {sorted(BOOSTS)}, got {boost!r}")
        self.dim = dim
        self.boost = BOOSTS[boost](dim)
        self.coordinates = AXES[:dim] + self.boost.coordinates
        self.periods = (1.0,) * dim + (math.inf,) * len(self.boost.coordinates)
        self.spatial = dim

    def split(self, xi: Tensor) -> tuple[Tensor, Tensor]:
        """``xi`` as ``(translation, velocity)``."""
        return xi[:, : self.dim], xi[:, self.dim :]

    def act(self, field: Tensor, xi: Tensor) -> Tensor:
        delta, velocity = self.split(self.check_element(field, xi))
        return self.boost.add(shift(field, delta), velocity)

    def inverse(self, field: Tensor, xi: Tensor) -> Tensor:
        delta, velocity = self.split(self.check_element(field, xi))
        return shift(self.boost.add(field, -velocity), -delta)

    def kinematic(self, field: Tensor) -> Tensor:
        return self.boost.measure(field)

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        return self.wrap(xi + eta)

    def inverse_element(self, xi: Tensor) -> Tensor:
        return self.wrap(-xi)

    def transport(self, xi: Tensor, horizon: float | Tensor) -> Tensor:
        """``delta_T = delta_0 + v T``, ``v_T = v_0``: the paper's table (the sign in its appendix text is wrong)."""
        delta, velocity = self.split(xi)
        duration = torch.as_tensor(horizon, dtype=xi.dtype, device=xi.device).reshape(-1, 1)  # one for all, or (B,)
        return self.wrap(torch.cat([delta + self.boost.drift(velocity) * duration, velocity], dim=1))
