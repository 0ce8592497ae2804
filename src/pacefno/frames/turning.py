"""A learned frame for rigid motions that needs no analytic start, equivariant to shifts and quarter turns by construction."""

from __future__ import annotations

import torch
from torch import Tensor

from pacefno.frames.base import Energy, Estimate, Frame, firm_part, wrapped
from pacefno.frames.equivariant import DensityNetwork
from pacefno.frames.readout import standardise
from pacefno.frames.smoothness import Smoothness
from pacefno.grid import check_field, compute_dtype, resample
from pacefno.symmetry import CanonicalSlice, Group, QuarterSlice
from pacefno.symmetry.moments import direction, phase_position, phase_share
from pacefno.symmetry.motion import half_turn, quarter_turn

MAPS = 3  # one density for the position, two whose flux is the direction


class TurningFrame(Frame):
    """The network sees the field in its four quarter turns, and what it makes of them is turned back and averaged.

    The crest of one averaged density is the position; the flux ``mean(d grad e)`` of two others is the direction. Both turn
    with the field, so trained on angles within 45 degrees of one orientation the frame holds on the whole circle, and
    trained near one place it holds on the whole torus. It reads all frames, on a coarse grid.
    """

    def __init__(
        self, group: Group, channels: int, slice: CanonicalSlice, *, width: int = 16, depth: int = 3, points: int = 32
    ) -> None:
        super().__init__()
        self.group = group
        self.channels = channels
        self.slice = slice
        self.points = points
        self.network = DensityNetwork(2, channels, width, depth, maps=MAPS)

    def forward(self, field: Tensor) -> Estimate:
        check_field(field, channels=self.channels, dim=2, finite=False)
        return self.read(self.coarse(field))

    def coarse(self, field: Tensor) -> Tensor:
        return resample(field.to(compute_dtype(field.dtype)), [self.points] * 2)

    def read(self, coarse: Tensor) -> Estimate:
        """The frame of a field on the coarse grid."""
        maps = self._maps(standardise(coarse))
        position = phase_position(maps[:, 0])
        flux = torch.stack([(maps[:, 1] * _slope(maps[:, 2], axis)).mean(dim=(1, 2)) for axis in (0, 1)], dim=1)
        angle = direction(flux[:, 0], flux[:, 1])
        confidence = firm_part(phase_share(maps[:, 0]).amin(dim=1))
        xi = torch.cat([position, angle[:, None]], dim=1)
        return Estimate(torch.where(confidence[:, None] > 0, self.group.wrap(xi), 0.0), confidence)

    def energy(self) -> Energy:
        """Smoothness where a wrong frame shows seams, else the paper's consistency."""
        return Smoothness(self.group) if isinstance(self.slice, QuarterSlice) else CoarseConsistency(self)

    def _maps(self, coarse: Tensor) -> Tensor:
        """``1/4 sum_q Q^q N(Q^-q a)``: maps that turn with the field, ``(B, MAPS, n, n)``."""
        turned = [coarse, quarter_turn(coarse)]
        turned += [half_turn(part) for part in turned]  # by 0, 90, 180 and 270 degrees
        zero, quarter, half, three = self.network(torch.cat(turned)).chunk(4)
        return (zero + quarter_turn(half_turn(quarter)) + half_turn(half) + quarter_turn(three)) / 4


class CoarseConsistency(Energy):
    """The paper's J_TTA on the grid that the frame reads: a sixteenth of the work of pulling the whole field back.

    A rotation and a change of grid commute for fields that keep clear of the seam, which are those that need no other energy.
    """

    spacing = 1e-3

    def __init__(self, frame: TurningFrame) -> None:
        self.frame = frame
        self.group = frame.group

    def residual(self, field: Tensor, xi: Tensor) -> Tensor:
        return wrapped(self.frame.read(self.group.inverse(self.frame.coarse(field), xi)).xi, self.group)


def _slope(density: Tensor, axis: int) -> Tensor:
    """Central difference of ``(B, n, n)`` along an axis."""
    return density.roll(-1, dims=axis + 1) - density.roll(1, dims=axis + 1)
