"""What a symmetry group is to the rest of the package: named coordinates that act on fields."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from pacefno.fields import Field, FieldType
from pacefno.grid import FieldError


class Group(ABC):
    """A group acting on periodic fields, one element per sample.

    Elements are rows of coordinates ``xi`` of shape ``(B, size)``, in float64: the paper's
    Lie-algebra coordinates, with ``exp`` included. Spatial coordinates come first (translations in
    periods of the box, angles in radians); they have to be found. Kinematic ones (velocities in the
    units of the field, changes of scale) come last; they are measured (:meth:`kinematic`).

    An element acts on space-time. A boost by v moves the snapshot at time t by ``v t / L``, so one
    and the same ``xi`` moves an input at time 0 and its target at time T, and the paper's terminal
    frame ``Gamma_B(xi; T)`` is what it does to the second (:meth:`transport`).
    """

    name: str
    dim: int
    coordinates: tuple[str, ...]
    periods: tuple[float, ...]  # math.inf for a coordinate that does not wrap
    spatial: int  # how many leading coordinates are spatial
    needs_kinds: bool = True  # whether the action depends on what the channels are
    rescales: bool = False  # whether elements change the lengths and the time step of a box

    @property
    def size(self) -> int:
        """How many coordinates an element has."""
        return len(self.coordinates)

    @property
    def moves_in_time(self) -> bool:
        """Whether an element does something else to a later snapshot, as a boost does."""
        return self.size > self.spatial

    @abstractmethod
    def act(self, field: Field, xi: Tensor) -> Field:
        """Push out: ``[C_g a](x) = a(g^-1 x)``."""

    @abstractmethod
    def inverse(self, field: Field, xi: Tensor) -> Field:
        """Pull back: undo :meth:`act` of the same ``xi``, exactly without a Nyquist mode."""

    def in_place(self, field: Field, xi: Tensor, *, pooled: bool = False) -> Field | None:
        """The field with its values changed as by :meth:`act` (a boost adds its velocity), but
        neither shifted nor turned.

        Shifts and turns keep norms, so ``|act(a, xi) - act(b, xi)|`` is ``|in_place(a, xi) -
        in_place(b, xi)|``: a loss can be taken here, where nothing has to be moved. The same holds
        for the norms of each channel and of gradients; with ``pooled`` for the L2 norm over all
        channels alone. None where a group cannot promise that: use :meth:`act`.
        """
        return None

    @abstractmethod
    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        """The element that acts as ``eta`` first, then ``xi``."""

    @abstractmethod
    def inverse_element(self, xi: Tensor) -> Tensor:
        """The element with ``compose(xi, inverse_element(xi)) = identity``."""

    def composable(self, xi: Tensor) -> Tensor:
        """Elements near ``xi`` for which composition is exact on any resolved field: by default xi.

        For two of them ``act(act(a, eta), xi)`` is ``act(a, compose(xi, eta))`` to round-off.
        """
        return xi

    def is_unitary(self, type: FieldType) -> bool:
        """Whether all spatial coordinates keep inner products, or only :meth:`composable` ones."""
        return True

    def transport(self, xi: Tensor, time: float | Tensor, lengths: float | Tensor = 1.0) -> Tensor:
        """The terminal frame ``Gamma_B(xi; T)``: the element that does at time 0 what xi does at T.

        ``time`` is a number or ``(B,)``, ``lengths`` the box, a number or ``(B or 1, dim)``. Rigid
        motions do not change with time.
        """
        return xi

    def from_first_snapshot(self, field: Field, xi: Tensor) -> Tensor:
        """The element of a field whose first snapshot shows ``xi``: the frame carried to time 0."""
        return self.transport(xi, -field.times[:, 0], field.lengths)

    def kinematic(self, field: Field) -> Tensor:
        """The kinematic coordinates ``(B, size - spatial)``, measured (the paper's P_phys)."""
        return field.values.new_zeros(field.batch, self.size - self.spatial, dtype=torch.float64)

    def at_rest(self, field: Field) -> Field:
        """The field as its own frame sees it, where it is, up to a constant per channel.

        What is read off it, a position or an angle, must not depend on a boost.
        """
        return field

    def check_type(self, type: FieldType) -> None:
        """Refuse a type of field whose frame this group cannot find; the message says why."""
        self.check_action(type)

    def check_action(self, type: FieldType) -> None:
        """Refuse a type of field on which this group cannot act.

        Weaker than :meth:`check_type`, which is for inputs. An output may lack what the frame is
        found by: a boost carries a vorticity along, though only a velocity tells by how much.
        """
        if type.dim != self.dim:
            raise FieldError(
                f"{self.name}: acts in {self.dim} dimensions, the field has {type.dim}: "
                f"build the group with dim={type.dim}"
            )
        if self.needs_kinds and not type.quantities:
            raise FieldError(
                f"{self.name}: acts on channels by their kind, and these are not named: "
                "say channels=..."
            )

    def identity(self, batch: int, *, device: torch.device | str = "cpu") -> Tensor:
        """The element that does nothing, ``(batch, size)``."""
        return torch.zeros(batch, self.size, dtype=torch.float64, device=device)

    def wrap(self, xi: Tensor) -> Tensor:
        """The representative of each periodic coordinate in ``[-period/2, period/2)``."""
        columns = [
            column
            if math.isinf(period)
            else torch.remainder(column + period / 2, period) - period / 2
            for column, period in zip(xi.unbind(dim=1), self.periods, strict=True)
        ]
        return torch.stack(columns, dim=1) if columns else xi

    def difference(self, xi: Tensor, eta: Tensor) -> Tensor:
        """``xi - eta`` to the nearest image of each periodic coordinate."""
        return self.wrap(xi - eta)

    def sample(
        self, low: Sequence[float], high: Sequence[float], batch: int, generator: torch.Generator
    ) -> Tensor:
        """Random elements: magnitudes uniform in ``[low, high]`` per coordinate, signs fair."""
        if not len(low) == len(high) == self.size:
            raise ValueError(
                f"{self.name}: expected {self.size} bounds {self.coordinates}, "
                f"got {len(low)} and {len(high)}"
            )
        lower = torch.tensor(low, dtype=torch.float64)
        upper = torch.tensor(high, dtype=torch.float64)
        if not bool(((lower >= 0) & (lower <= upper) & (upper < math.inf)).all()):
            raise ValueError(
                f"{self.name}: bounds must be finite with 0 <= low <= high, "
                f"got {list(low)} and {list(high)}"
            )
        uniform = torch.rand(2, batch, self.size, dtype=torch.float64, generator=generator)
        sign = torch.where(uniform[1] < 0.5, -1.0, 1.0)
        return sign * (lower + (upper - lower) * uniform[0])

    def check_element(self, field: Field, xi: Tensor) -> Tensor:
        """Refuse a field of another dimension or coordinates of another shape; xi in float64."""
        self.check_action(field.type)
        if tuple(xi.shape) != (field.batch, self.size):
            raise FieldError(
                f"{self.name}: expected coordinates {self.coordinates} of shape "
                f"{(field.batch, self.size)}, got {tuple(xi.shape)}: one row per sample"
            )
        return xi.double()
