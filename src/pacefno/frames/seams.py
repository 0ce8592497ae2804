"""The frame of a rotated periodic field: what a rotation tears, it can be found by (``symmetry/seams.py``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pacefno.frames.base import Energy, Estimate, Frame, firm_part
from pacefno.frames.refine import energy_of, least_squares
from pacefno.frames.smoothness import Smoothness
from pacefno.grid import check_field, compute_dtype
from pacefno.symmetry import Group, QuarterSlice
from pacefno.symmetry.moments import phase_position
from pacefno.symmetry.seams import (
    LINE_MODES,
    STEEPEST,
    STEEPEST_MIDDLE,
    find_seam,
    gap_with_jump,
    line_modes,
    seam_residual,
    undo_last_shear,
)

COARSE = 10.0  # the wavenumber beyond which a first look calls a field rough
MIDDLE = 16.0  # and a second one
FINEST = 24  # of the wavenumbers that these two look at: finer ones make the valley of the energy too narrow to start in
STRAIGHT = 0.02  # radians: a seam that jumps less hardly shows, and the phases are nearly those of the untorn field
FAR = 0.004  # where the first step led further, it was not the last
ANGLES = 33  # of the global start
RESTART_STEPS = 2
TOGETHER = 128  # candidate frames that are tried in one batch
LONGEST_STEP = 0.05
DIFFERENCE = 1e-3


class Fit(NamedTuple):
    """Frames that were fitted, and what each left: the share of the pulled-back field that is fine, and the phases."""

    xi: Tensor
    left: Tensor  # (B,), twice the energy


Restart = Callable[[Tensor, Tensor], Tensor]  # from the fields and where they were started: another start


class SeamFrame(Frame):
    """Find the seams, undo them, and fit by smoothness; the quarter turn is the slice's.

    Everything happens on two of the channels, on the full grid: a seam lies between two grid lines, so it cannot be found
    on another one. The seams tell the position to a few hundredths of a cell and the angle to a few thousandths; a step
    of Gauss-Newton on waves of middle length gains two digits, and refinement, whose energy looks at all waves, the rest.
    A sample that the first step moved far takes a second. Where the fit still leaves more than ``rough`` (the share of
    the energy that is fine, and the phases), it is done again from coarser scales, and at last from every angle.
    """

    def __init__(self, group: Group, slice: QuarterSlice, *, rough: float = 2e-6) -> None:
        super().__init__()
        self.group = group
        self.slice = slice
        self.rough = rough
        self.coarse = Smoothness(group, COARSE, order=1, phase_weight=0.3, finest=FINEST)
        self.middle = Smoothness(group, MIDDLE, finest=FINEST)

    def known(self, field: Tensor, xi: Tensor) -> Estimate:
        """The element itself: the search would find it again, to four digits, at the cost of several training steps."""
        return Estimate(xi, xi.new_ones(len(xi)))

    def energy(self) -> Energy:
        return Smoothness(self.group)

    @torch.no_grad()
    def forward(self, field: Tensor) -> Estimate:
        check_field(field, dim=2, finite=False)
        ends = torch.stack([field[:, 0], field[:, -1]], dim=1).to(compute_dtype(field.dtype))
        start = self._start(ends)
        fit = self._fit(self.middle, ends, start, 1)
        far = (fit.xi - start).abs().amax(dim=1) > FAR
        fit = self._improved(fit, ends, fit.xi, far, lambda _, xi: xi, steps=1)
        for restart in (self._from_coarse_scales, self._from_every_angle):
            fit = self._improved(fit, ends, start, fit.left > self.rough, restart)
        xi = fit.xi
        untorn, quality = self.slice.read(self.group.inverse(ends[:, :1], xi))
        turned = torch.cat([xi[:, :2], (xi[:, 2] + untorn[:, 2])[:, None]], dim=1)
        confidence = firm_part(quality) * self.rough / (self.rough + fit.left)
        return Estimate(self.group.wrap(turned), confidence)

    def _start(self, ends: Tensor) -> Tensor:
        """From the seams, or from the phases where there is no seam to speak of."""
        torn = self._from_seams(ends[:, 1])
        return torch.where(torn[:, 2:].abs() < STRAIGHT, self._from_phases(ends[:, 0]), torn)

    def _from_seams(self, vorticity: Tensor) -> Tensor:
        """Both seams, each fitted on the long waves of its lines: position along y, then along x; both jumps tell the angle."""
        last = _fitted(vorticity, 0, find_seam(vorticity, 0, STEEPEST, COARSE))
        straight = undo_last_shear(vorticity, last[:, 0], last[:, 1])
        angle = -2 * torch.atan(last[:, 1])
        jump = torch.sin(angle).clamp(-STEEPEST_MIDDLE, STEEPEST_MIDDLE)
        middle = _fitted(straight, 1, torch.stack([gap_with_jump(straight, 1, jump), jump], dim=1))
        again = torch.asin(middle[:, 1].clamp(-STEEPEST_MIDDLE, STEEPEST_MIDDLE))
        return torch.stack([middle[:, 0], last[:, 0], (angle + again) / 2], dim=1)

    def _from_phases(self, vorticity: Tensor) -> Tensor:
        """No rotation: then there is no seam, and the phases are the position."""
        position = phase_position(vorticity)
        return torch.cat([position, torch.zeros_like(position[:, :1])], dim=1)

    def _from_coarse_scales(self, ends: Tensor, start: Tensor) -> Tensor:
        return self._fit(self.coarse, ends, start, RESTART_STEPS).xi

    def _from_every_angle(self, ends: Tensor, start: Tensor) -> Tensor:
        """The best of many angles, each with the seam positions that it implies and with the phases' position."""
        first, vorticity = ends[:, 0], ends[:, 1]
        y = find_seam(vorticity, 0, STEEPEST, COARSE)[:, 0]
        place = phase_position(first)
        candidates = [start]
        for angle in torch.linspace(-math.pi / 4, math.pi / 4, ANGLES).tolist():
            theta = torch.full_like(y, angle)
            straight = undo_last_shear(vorticity, y, -torch.tan(theta / 2))
            x = gap_with_jump(straight, 1, torch.sin(theta))
            candidates += [torch.stack([x, y, theta], dim=1), torch.cat([place, theta[:, None]], dim=1)]
        return self._fit(self.coarse, ends, self._best(ends, candidates), RESTART_STEPS).xi

    def _best(self, ends: Tensor, candidates: list[Tensor]) -> Tensor:
        stacked = torch.stack(candidates)  # (candidates, B, 3)
        energies = torch.cat([self._energies(ends, some) for some in torch.split(stacked, max(1, TOGETHER // len(ends)))])
        return stacked[energies.argmin(dim=0), torch.arange(len(ends), device=ends.device)]

    def _energies(self, ends: Tensor, candidates: Tensor) -> Tensor:
        """``(candidates, B)``, all in one batch: the few samples that are left would not fill one."""
        repeated = ends.repeat(len(candidates), 1, 1, 1)
        return energy_of(self.coarse.residual(repeated, candidates.flatten(0, 1))).reshape(len(candidates), len(ends))

    def _fit(self, energy: Smoothness, ends: Tensor, xi: Tensor, steps: int) -> Fit:
        """A few steps of Gauss-Newton."""

        def residual(z: Tensor) -> Tensor:
            return energy.residual(ends, z)

        xi, _, left, _ = least_squares(residual, xi, steps, longest=LONGEST_STEP, spacing=DIFFERENCE)
        return Fit(xi, 2 * left)

    def _improved(
        self, fit: Fit, ends: Tensor, start: Tensor, some: Tensor, restart: Restart, steps: int = RESTART_STEPS
    ) -> Fit:
        """Some samples, a mask, fitted again from another start, and the better of both fits."""
        rows = some.nonzero()[:, 0]
        if len(rows) == 0:
            return fit
        again = self._fit(self.middle, ends[rows], restart(ends[rows], start[rows]), steps)
        better = again.left < fit.left[rows]
        xi = fit.xi.index_copy(0, rows, torch.where(better[:, None], again.xi, fit.xi[rows]))
        return Fit(xi, fit.left.index_copy(0, rows, torch.where(better, again.left, fit.left[rows])))


def _fitted(field: Tensor, axis: int, seam: Tensor) -> Tensor:
    """Position and jump of a seam, ``(B, 2)``, fitted so that the long waves of the lines go smoothly across it.

    Roughness of the first order leads there from afar, that of the second, at finer scales, feels less of the field itself.
    """
    modes = torch.fft.fft(line_modes(field, axis, LINE_MODES), dim=-1)
    for cutoff, order, steps in ((COARSE, 1, 2), (MIDDLE, 2, 2)):

        def residual(z: Tensor, cutoff: float = cutoff, order: int = order) -> Tensor:
            return torch.view_as_real(seam_residual(modes, z[:, 0], z[:, 1:], cutoff, order)).flatten(1)

        seam = least_squares(residual, seam, steps, longest=LONGEST_STEP, spacing=DIFFERENCE)[0]
    return seam
