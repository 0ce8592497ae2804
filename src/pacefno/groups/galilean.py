"""Translations and boosts, ``T^d x Gal``, and KdV's change of scale beside them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacefno.fields import AXES, Box, Field, FieldType
from pacefno.grid import FieldError
from pacefno.groups.base import Group
from pacefno.groups.translation import shift
from pacefno.registry import register


@register("group", "galilean")
class Galilean(Group):
    """Shift by ``delta``, then boost by ``v``: ``[C_g a](x, t) = v + a(x - delta - v t, t)``.

    What ``v +`` means is said by the kind of each channel: a velocity changes by v, a momentum by
    density times v, a scalar not at all. The two factors commute at one time; over time a boost
    becomes a shift. Composition and inverse are exact. Boosts are not isometries of L2: they add
    energy.

    With ``diagonal`` there is one velocity c, along ``(1, ..., 1)``: the boosts of a ``speed``, as
    in Burgers' equation, ``u -> u + c``.
    """

    name = "galilean"

    def __init__(self, dim: int, diagonal: bool = False) -> None:
        self.dim = dim
        self.diagonal = diagonal
        several = dim > 1 and not diagonal
        names = tuple(f"velocity_{axis}" for axis in AXES[:dim]) if several else ("velocity",)
        self.coordinates = AXES[:dim] + names
        self.periods = (1.0,) * dim + (math.inf,) * len(names)
        self.spatial = dim

    def split(self, xi: Tensor) -> tuple[Tensor, Tensor]:
        """``xi`` as translation and velocity, each ``(B, dim)``."""
        velocity = xi[:, self.dim :]
        return xi[:, : self.dim], velocity.expand(-1, self.dim)

    def act(self, field: Field, xi: Tensor) -> Field:
        delta, velocity = self.split(self.check_element(field, xi))
        return boosted(shifted(field, delta, velocity), velocity)

    def inverse(self, field: Field, xi: Tensor) -> Field:
        delta, velocity = self.split(self.check_element(field, xi))
        return shifted(boosted(field, -velocity), -delta, -velocity)

    def in_place(self, field: Field, xi: Tensor, *, pooled: bool = False) -> Field:
        """The boost alone: a momentum changes by more than a constant."""
        return boosted(field, self.split(self.check_element(field, xi))[1])

    def kinematic(self, field: Field) -> Tensor:
        """The background velocity, measured on the first quantity that carries one."""
        velocity = background_velocity(field)
        return velocity.mean(dim=1, keepdim=True) if self.diagonal else velocity

    def at_rest(self, field: Field) -> Field:
        """A momentum without density times background velocity; all else changes by a constant."""
        if not any(quantity.how.needs_density for quantity in field.type.quantities):
            return field
        return boosted(field, -self.kinematic(field).expand(-1, self.dim))

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        return self.wrap(xi + eta)

    def inverse_element(self, xi: Tensor) -> Tensor:
        return self.wrap(-xi)

    def transport(self, xi: Tensor, time: float | Tensor, lengths: float | Tensor = 1.0) -> Tensor:
        """``delta_T = delta_0 + v T / L``, ``v_T = v_0``: the paper's table of generators.

        (The sign in the text of its appendix is wrong: solving a boosted state shows this one.)
        """
        delta, velocity = self.split(xi)
        duration = torch.as_tensor(time, dtype=xi.dtype, device=xi.device).reshape(-1, 1)
        box = torch.as_tensor(lengths, dtype=xi.dtype, device=xi.device)
        return self.wrap(torch.cat([delta + velocity * duration / box, xi[:, self.dim :]], dim=1))

    def check_type(self, type: FieldType) -> None:
        super().check_type(type)
        check_carrier(self, type, "a velocity, a momentum or a speed", "Translation")

    def check_action(self, type: FieldType) -> None:
        super().check_action(type)
        bound = [q.name for q in type.quantities if q.how.carries == "the diagonal"]
        if bound and self.dim > 1 and not self.diagonal:
            raise FieldError(
                f"{self.name}: {bound[0]!r} is a speed along (1, ..., 1), which a boost in another "
                f"direction cannot change: use Galilean({self.dim}, diagonal=True), or call the "
                "channel a velocity if it has one component per axis"
            )


def shifted(field: Field, delta: Tensor, velocity: Tensor) -> Field:
    """Each snapshot at time t moved by ``delta + v t / L``; both are ``(B, dim)``."""
    if len(set(field.type.times)) == 1:  # all snapshots move alike, in one piece
        drift = velocity * field.times[:, :1] / field.lengths
        return field.with_values(shift(field.values, delta + drift))
    drift = velocity[:, None] * field.times[..., None] / field.lengths[:, None]  # (B, S, dim)
    moved = shift(field.by_snapshot, delta[:, None] + drift)
    return field.with_values(moved.flatten(1, 2))


def boosted(field: Field, velocity: Tensor) -> Field:
    """Every quantity changed as its kind says; ``velocity`` is ``(B, dim)``."""
    each = velocity.reshape(field.batch, 1, -1, *[1] * field.type.dim)
    parts = [q.how.boost(field.of(q), each, field.density_of(q)) for q in field.type.quantities]
    joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
    return field.with_values(joined.flatten(1, 2))


def check_carrier(group: Group, type: FieldType, kinds: str, other: str) -> None:
    """Refuse a type that tells no velocity; ``other`` is the group without boosts."""
    if type.carrier is None:
        raise FieldError(
            f"{group.name}: a boost needs a channel that tells velocities, got {type.text!r}: "
            f"name {kinds} in channels=, or use {other}"
        )


def background_velocity(field: Field) -> Tensor:
    """The velocity of the frame of a field, ``(B, dim)`` in float64."""
    carrier = field.type.carrier
    if carrier is None:
        raise FieldError(f"no channel of {field.type.text!r} tells a velocity")
    found = carrier.how.background(field.of(carrier), field.density_of(carrier))
    return found.double().expand(-1, field.type.dim)


def tells_velocity(field: Field) -> Tensor:
    """Whether each sample tells the velocity of its frame, ``(B,)``, or has none to tell."""
    carrier = field.type.carrier
    if carrier is None:
        return torch.ones(field.batch, dtype=torch.bool, device=field.values.device)
    return carrier.how.tells(field.of(carrier), field.density_of(carrier))


@register("group", "galilean-scaling")
class GalileanScaling(Group):
    """Shift, boost, then rescale: the Lie point symmetries g2, g3 and g4 of KdV.

    With ``xi = (delta, v, s)`` and ``u`` on a box of length L::

        g2, g3:  as :class:`Galilean`
        g4:      e^(-2s) u on the same points, which now lie on a box of length e^s L,
                 with a time step that is e^(3s) times as long

    So a rescaling changes the box of a sample and moves none of its points; every law holds to
    round-off. A speed scales as length over time. (Time translation, g1, is the choice of a window.
    LPSDA writes g3 and g4 with the opposite sign of epsilon.)
    """

    name = "galilean-scaling"
    rescales = True
    dim = 1
    coordinates = ("x", "velocity", "scale")
    periods = (1.0, math.inf, math.inf)
    spatial = 1

    def __init__(self) -> None:
        self.unscaled = Galilean(1)

    def act(self, field: Field, xi: Tensor) -> Field:
        xi = self.check_element(field, xi)
        return rescaled(self.unscaled.act(field, xi[:, :2]), xi[:, 2])

    def inverse(self, field: Field, xi: Tensor) -> Field:
        xi = self.check_element(field, xi)
        return self.unscaled.inverse(rescaled(field, -xi[:, 2]), xi[:, :2])

    def in_place(self, field: Field, xi: Tensor, *, pooled: bool = False) -> Field:
        """Boost and change of scale without the shift, which keeps all norms."""
        xi = self.check_element(field, xi)
        return rescaled(self.unscaled.in_place(field, xi[:, :2]), xi[:, 2])

    def kinematic(self, field: Field) -> Tensor:
        """Velocity and scale: ``s = log(step / nominal) / 3``, ``v = e^(2s) mean(u)``.

        A rescaling multiplies the time step by ``e^(3s)``, so pulled back every sample has the
        nominal one, and the length of its box is the only parameter left. (The length would serve
        as well, but with it the step would vary by its cube.)
        """
        velocity = self.unscaled.kinematic(field)
        if field.box is None:
            return torch.cat([velocity, torch.zeros_like(velocity)], dim=1)
        scale = torch.log(field.box.step.double()[:, None] / field.type.step) / 3
        return torch.cat([torch.exp(2 * scale) * velocity, scale], dim=1)

    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        """A velocity added after a rescaling by s was ``e^(2s)`` times as large before it."""
        velocity = eta[:, 1] + torch.exp(2 * eta[:, 2]) * xi[:, 1]
        columns = [xi[:, 0] + eta[:, 0], velocity, xi[:, 2] + eta[:, 2]]
        return self.wrap(torch.stack(columns, dim=1))

    def inverse_element(self, xi: Tensor) -> Tensor:
        velocity = -torch.exp(-2 * xi[:, 2]) * xi[:, 1]
        return self.wrap(torch.stack([-xi[:, 0], velocity, -xi[:, 2]], dim=1))

    def transport(self, xi: Tensor, time: float | Tensor, lengths: float | Tensor = 1.0) -> Tensor:
        """``delta_T = delta_0 + v T / L`` with time and length before the rescaling."""
        moved = self.unscaled.transport(xi[:, :2], time, lengths)
        return torch.cat([moved, xi[:, 2:]], dim=1)

    def from_first_snapshot(self, field: Field, xi: Tensor) -> Tensor:
        """The frame carried to time 0, by the time and the length before the rescaling."""
        scale = xi[:, 2]
        time = field.times[:, 0] * torch.exp(-3 * scale)
        return self.transport(xi, -time, field.lengths * torch.exp(-scale)[:, None])

    def check_type(self, type: FieldType) -> None:
        super().check_type(type)
        self.unscaled.check_type(type)

    def check_action(self, type: FieldType) -> None:
        self.unscaled.check_action(type)
        if any(q.how.carries == "no" or q.how.needs_density for q in type.quantities):
            raise FieldError(
                f"{self.name}: only velocities and speeds are known to scale as length over time, "
                f"got {type.text!r}"
            )


def rescaled(field: Field, scale: Tensor) -> Field:
    """``e^(-2s) u`` in a box of length ``e^s L`` with a step of ``e^(3s) dt``; s is ``(B,)``."""
    factor = torch.exp(-2 * scale).to(field.values.dtype)
    lengths = field.lengths.expand(field.batch, -1)
    step = field.type.step if field.box is None else field.box.step.double()
    box = Box(lengths * torch.exp(scale)[:, None], step * torch.exp(3 * scale))
    return Field(field.values * factor.reshape(-1, 1, 1), field.type, box)
