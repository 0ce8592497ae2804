"""What a symmetry group is to the rest of the package: named coordinates and how they act on fields."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from pacefno.grid import FieldError, check_field


class Coordinates(ABC):
    """Elements of a group as rows of coordinates ``xi`` of shape ``(B, size)``, whatever they act on.

    Spatial coordinates come first (translations in periods, angles in radians), kinematic ones (velocities) last. The
    paper's Lie-algebra coordinates, with ``exp`` included.
    """

    name: str
    coordinates: tuple[str, ...]
    periods: tuple[float, ...]  # math.inf for a coordinate that does not wrap

    @property
    def size(self) -> int:
        return len(self.coordinates)

    @abstractmethod
    def compose(self, xi: Tensor, eta: Tensor) -> Tensor:
        """The element that acts as ``eta`` first, then ``xi``."""

    @abstractmethod
    def inverse_element(self, xi: Tensor) -> Tensor:
        """The element with ``compose(xi, inverse_element(xi)) = identity``."""

    def transport(self, xi: Tensor, horizon: float | Tensor) -> Tensor:
        """The terminal frame ``xi_T = Gamma_B(xi_0; T)``; rigid motions are conserved."""
        return xi

    def identity(self, batch: int, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Tensor:
        return torch.zeros(batch, self.size, dtype=dtype, device=device)

    def wrap(self, xi: Tensor) -> Tensor:
        """The representative of each periodic coordinate in ``[-period/2, period/2)``."""
        columns = [
            column if math.isinf(period) else torch.remainder(column + period / 2, period) - period / 2
            for column, period in zip(xi.unbind(-1), self.periods, strict=True)
        ]
        return torch.stack(columns, dim=-1) if columns else xi

    def difference(self, xi: Tensor, eta: Tensor) -> Tensor:
        """Coordinate-wise ``xi - eta`` to the nearest image: how frame errors are measured."""
        return self.wrap(xi - eta)

    def sample(self, low: Sequence[float], high: Sequence[float], batch: int, generator: torch.Generator) -> Tensor:
        """Random elements whose coordinate magnitudes are uniform in ``[low, high]``, signs fair; float64 on the CPU."""
        if not len(low) == len(high) == self.size:
            raise ValueError(f"{self.name}: expected {self.size} bounds {self.coordinates}, got {len(low)} and {len(high)}")
        lower = torch.tensor(low, dtype=torch.float64)
        upper = torch.tensor(high, dtype=torch.float64)
        if not bool(((lower >= 0) & (lower <= upper) & (upper < math.inf)).all()):
            raise ValueError(f"{self.name}: bounds must be finite with 0 <= low <= high, got {list(low)} and {list(high)}")
        uniform = torch.rand(2, batch, self.size, dtype=torch.float64, generator=generator)
        sign = torch.where(uniform[1] < 0.5, -1.0, 1.0)
        return sign * (lower + (upper - lower) * uniform[0])

    def check_rows(self, xi: Tensor, batch: int, dtype: torch.dtype) -> Tensor:
        """Refuse coordinates of another shape; the others in the precision in which spectra of ``dtype`` are computed."""
        expected = (batch, self.size)
        if tuple(xi.shape) != expected:
            raise FieldError(
                f"{self.name}: expected coordinates {self.coordinates} of shape {expected}, got {tuple(xi.shape)}: "
                "one row per sample"
            )
        return xi.to(torch.promote_types(dtype, torch.float32))


class Group(Coordinates):
    """A group acting on periodic fields ``(B, C, *grid)``, one element per sample."""

    dim: int
    spatial: int  # how many leading coordinates a frame must find; the rest is measured from the field
    vectors: tuple[tuple[int, int], ...] = ()  # pairs of channels that turn with the frame and cannot be moved apart

    @abstractmethod
    def act(self, field: Tensor, xi: Tensor) -> Tensor:
        """Push out: ``[C_g a](x) = a(g^-1 x)``."""

    @abstractmethod
    def inverse(self, field: Tensor, xi: Tensor) -> Tensor:
        """Pull back: undo :meth:`act` of the same coordinates, exactly for fields without a Nyquist mode."""

    def kinematic(self, field: Tensor) -> Tensor:
        """The kinematic coordinates ``(B, size - spatial)``, read off the field (the paper's P_phys)."""
        return field.new_zeros(field.shape[0], self.size - self.spatial)

    def check_element(self, field: Tensor, xi: Tensor) -> Tensor:
        """Refuse a field or coordinates of another shape; the coordinates in the precision that spectra are computed in."""
        check_field(field, dim=self.dim, name=self.name, finite=False)  # an extra or missing axis would broadcast
        return self.check_rows(xi, field.shape[0], field.dtype)
