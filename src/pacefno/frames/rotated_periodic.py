"""The frame of a periodic field that was rotated although its box cannot be.

Rotating a periodic field by three shears leaves two straight lines (seams) across which it is
discontinuous. This is how the paper's Navier-Stokes data are made; no physical flow looks like
that. The seams tell the rotation, and this file finds it: the position and jump of each seam first,
then a fit that makes the field smooth again.

A shear ``H_x(a)`` about the centre moves the line ``y`` of the torus by ``a (y - 1/2)``, so lines
on the two sides of ``y = 0 = 1`` are then ``a`` apart. A rotation by three shears, moved by ``t``,
shows the seam of its last shear along ``y = t_y`` with the jump ``-tan(theta/2)``; with that shear
undone, the seam of the middle one lies along ``x = t_x`` with the jump ``sin(theta)``. Both are
found by comparing neighbouring lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pacefno.fields import Field
from pacefno.frames._moments import direction, enstrophy_drift, phase_position
from pacefno.frames.analytic import CanonicalSlice, PhaseSlice, vorticity_of
from pacefno.frames.base import Energy, Estimate, Frame, clip_quality
from pacefno.frames.refine import energy_of, least_squares
from pacefno.grid import (
    FieldError,
    compute_dtype,
    frequencies,
    spectral_weights,
    unit_phase,
    wavenumbers,
)
from pacefno.groups import Group
from pacefno.groups._rotation import move_lines, shear
from pacefno.registry import register

STEEPEST = math.tan(math.pi / 8)  # the first and last shear of a rotation by 45 degrees
STEEPEST_MIDDLE = math.sin(math.pi / 4)
LINE_MODES = (
    3  # the long waves along a line: a seam that is not parallel to the lines hardly shows in them
)
NEIGHBOUR_MODES = 8
JUMPS = 41  # how finely jumps are searched before they are fitted
OFFSETS = (-0.75, -0.25, 0.25, 0.75)  # in cells, around the gap between the two lines


def high_pass(k_squared: Tensor, cutoff: float, order: int = 1) -> Tensor:
    """``(k^2 / (k^2 + k0^2))^order``: the weight of roughness at the scale ``1/k0``."""
    return (k_squared / (k_squared + cutoff**2)) ** order


def line_modes(field: Tensor, axis: int, count: int) -> Tensor:
    """Modes 1..count along ``axis`` of every line of ``(B, n, m)``, ``(B, count, lines)``."""
    spectrum = torch.fft.rfft(field, dim=axis - 2, norm="forward")
    if axis == 1:
        spectrum = spectrum.transpose(-1, -2)
    return spectrum[:, 1 : count + 1]


def gap_gain(modes: Tensor, jumps: Tensor) -> Tensor:
    """How much better each line continues the one before if it jumped, ``(B, jumps, lines)``.

    ``|w_{j+1} - w_j|^2 - |w_{j+1} - w_j(. + s)|^2``, up to a factor of two, from the cross spectrum
    of neighbours.
    """
    cross = modes.conj() * modes.roll(-1, dims=-1)  # (B, K, lines)
    k = torch.arange(1, modes.shape[1] + 1, dtype=jumps.dtype, device=jumps.device)
    return torch.einsum("sk,bkm->bsm", unit_phase(-jumps[:, None] * k) - 1, cross).real


def seam_residual(
    modes: Tensor, position: Tensor, jump: Tensor, cutoff: float, order: int = 1
) -> Tensor:
    """What is rough across the lines once the seam at ``position`` ``(B,)`` has been moved to 0 and
    its shear undone.

    ``modes`` are those of :func:`line_modes`, transformed across the lines too; ``jump`` is ``(B,
    S)`` or ``(1, S)``. The result, ``(B, S, K, lines)``, is relative to the norm of the modes: zero
    where the seam has gone.
    """
    lines = modes.shape[-1]
    across = frequencies(lines, dtype=position.dtype, device=position.device)
    k = torch.arange(1, modes.shape[1] + 1, dtype=position.dtype, device=position.device)
    offset = torch.arange(lines, dtype=position.dtype, device=position.device) / lines - 0.5
    shifted = torch.fft.ifft(
        modes * unit_phase(position[:, None] * across)[:, None], dim=-1
    )  # (B, K, lines)
    straight = shifted[:, None] * unit_phase(jump[..., None, None] * k[:, None] * offset)
    norm = (
        torch.view_as_real(modes)
        .square()
        .sum(dim=(1, 2, 3))
        .sqrt()
        .clamp_min(torch.finfo(position.dtype).tiny)
    )
    return (
        torch.fft.fft(straight, dim=-1)
        * high_pass(across.square(), cutoff, order)
        / norm[:, None, None, None]
    )


def find_seam(field: Tensor, axis: int, steepest: float, cutoff: float) -> Tensor:
    """Position and jump of the straight seam between lines along ``axis`` of ``(B, n, m)``, ``(B,
    2)``, to half a cell.
    """
    jumps = torch.linspace(-steepest, steepest, JUMPS, dtype=field.dtype, device=field.device)
    lines = field.shape[1 if axis == 1 else 2]
    gap = gap_gain(line_modes(field, axis, NEIGHBOUR_MODES), jumps).amax(dim=1).argmax(dim=1)
    modes = torch.fft.fft(line_modes(field, axis, LINE_MODES), dim=-1)
    places = [(gap + 0.5 + offset) / lines for offset in OFFSETS]
    residuals = [torch.view_as_real(seam_residual(modes, y, jumps[None], cutoff)) for y in places]
    energy = [residual.square().sum(dim=(2, 3, 4)) for residual in residuals]
    lowest = torch.stack(energy, dim=1).flatten(1).argmin(dim=1)  # over offsets and jumps
    position = torch.stack(places, dim=1).gather(1, lowest[:, None] // JUMPS)
    return torch.cat([position, jumps[lowest % JUMPS][:, None]], dim=1)


def gap_with_jump(field: Tensor, axis: int, jump: Tensor) -> Tensor:
    """Position of the gap between lines along ``axis`` that a known jump, one per sample, explains
    best, ``(B,)``.
    """
    modes = line_modes(field, axis, NEIGHBOUR_MODES)
    cross = modes.conj() * modes.roll(-1, dims=-1)
    k = torch.arange(1, modes.shape[1] + 1, dtype=jump.dtype, device=jump.device)
    gain = (cross * (unit_phase(-jump[:, None] * k) - 1)[..., None]).real.sum(dim=1)  # (B, lines)
    return (gain.argmax(dim=1) + 0.5) / gain.shape[-1]


def undo_last_shear(field: Tensor, y: Tensor, slope: Tensor) -> Tensor:
    """The field ``(B, n, m)`` before the last shear of its rotation, but for a shift along x: its
    seam at ``y`` is gone.
    """
    return shear(move_lines(field[:, None], -y[:, None], 1), -slope, 0)[:, 0]


# --- the slice ------------------------------------------------------------------------------------


@register("slice", "quarter")
class QuarterSlice(CanonicalSlice):
    """A periodic field with the phases of :class:`PhaseSlice`, its enstrophy drifting towards +x.

    It tells shifts and quarter turns apart, the rigid motions that leave a torus whole. Other
    angles leave seams, and finding those is a search (:class:`SeamFrame`); on the slice there are
    none.
    """

    threshold = 0.02

    def __init__(self, group: Group) -> None:
        self.group = group
        self.phases = PhaseSlice(group)

    def read_spatial(self, field: Field) -> tuple[Tensor, Tensor]:
        """The quality is that of the phases, or less where the drift points between two turns."""
        drift, bound = enstrophy_drift(vorticity_of(field))
        angle = direction(drift[:, 0], drift[:, 1])
        position, phases = self.phases.read_spatial(field)
        turns = torch.round(angle / (math.pi / 2)) * (math.pi / 2)
        xi = torch.cat([position[:, :2], turns[:, None].to(position.dtype)], dim=1)
        strength = drift.norm(dim=1) / bound.clamp_min(torch.finfo(bound.dtype).tiny)
        margin = torch.cos(2 * angle).abs()  # 0 halfway between two quarter turns
        scale = self.threshold / self.phases.threshold  # one threshold for both
        worst = torch.minimum(scale * phases[:, :2].amin(dim=1), strength.clamp(max=1) * margin)
        return xi, worst.clamp(max=1)[:, None].expand(-1, 3)

    def frame(self) -> Frame:
        return SeamFrame(self.group, self)

    def energy(self) -> Energy:
        return Smoothness(self.group)


# --- the energy -----------------------------------------------------------------------------------


def low_rows(spectrum: Tensor, finest: int) -> Tensor:
    """The rows of wavenumbers up to ``finest``: in transform order the first and the last ones."""
    if 2 * finest + 1 >= spectrum.shape[-2]:
        return spectrum
    return torch.cat([spectrum[..., : finest + 1, :], spectrum[..., -finest:, :]], dim=-2)


class Smoothness(Energy):
    """High-frequency energy of the un-rotated field, lowest at the true rotation; and its phases.

    ``r = (k^2 / (k^2 + k0^2))^order F(C_xi^-1 a)(k)`` relative to the norm of the field: the share
    of its energy at scales finer than ``1/k0``. The higher the order, the less the field's own
    waves pull the minimum away from the true frame, and the nearer one has to start. Where there is
    no seam a translation leaves all that alone, so the first-mode phases, which are zero on the
    slice, are residuals too. The last snapshot is the smoothest and shows seams best; the first one
    has the phases. Both must be scalars: of a vector one would have to pull back more than these.
    """

    def __init__(
        self,
        group: Group,
        cutoff: float = 24.0,
        *,
        order: int = 2,
        phase_weight: float = 0.02,
        finest: int | None = None,
    ) -> None:
        self.group = group
        self.cutoff = cutoff
        self.order = order
        self.phase_weight = phase_weight
        self.finest = (
            finest  # the largest wavenumber that counts: without the rest, start further off
        )

    def residual(self, field: Field, xi: Tensor) -> Tensor:
        check_scalar(field)
        pulled = self.group.inverse(first_and_last(field), xi).values
        phases = 2 * torch.sin(math.pi * phase_position(pulled[:, 0])).to(pulled.dtype)
        return torch.cat([self.roughness(pulled[:, -1]), self.phase_weight * phases], dim=1)

    def roughness(self, pulled: Tensor) -> Tensor:
        """The residuals of a pulled-back ``(B, n, m)`` alone, ``(B, r)``; the sum of their squares
        is a share of its energy.
        """
        n, m = pulled.shape[1:]
        finest = self.finest or max(n, m)
        lines = torch.fft.rfft(pulled, dim=-1, norm="forward")[..., : finest + 1]
        spectrum = low_rows(torch.fft.fft(lines, dim=-2, norm="forward"), finest)
        weights = low_rows(self._weights(n, m, pulled)[..., : finest + 1], finest)
        norm = pulled.square().mean(dim=(1, 2)).clamp_min(torch.finfo(pulled.dtype).tiny).sqrt()
        return torch.view_as_real(spectrum * (weights / norm[:, None, None])).flatten(1)

    def _weights(self, n: int, m: int, like: Tensor) -> Tensor:
        """``(k^2 / (k^2 + k0^2))^order`` on the half spectrum, and how often each mode counts."""
        k_squared = wavenumbers((n, m), dtype=like.dtype, device=like.device).square().sum(dim=0)
        counts = spectral_weights((n, m), dtype=like.dtype, device=like.device)
        return high_pass(k_squared, self.cutoff, self.order) * counts.sqrt()


# --- the frame ------------------------------------------------------------------------------------

COARSE_CUTOFF = 10.0  # wavenumber beyond which the first stage of the fit counts a field as rough
MIDDLE_CUTOFF = 16.0  # the same for the second stage
FINEST = 24  # largest wavenumber of both stages: finer ones make the valley too narrow to start in
SMALL_ANGLE = 0.02  # radians: a smaller rotation leaves no seam that could be found
SECOND_STEP_THRESHOLD = 0.004  # take another Gauss-Newton step if the first one was longer
START_ANGLES = 33  # of the global search
RESTART_STEPS = 2
CANDIDATES_PER_BATCH = 128
LONGEST_STEP = 0.05  # of a Gauss-Newton step, in any coordinate
DIFFERENCE = 1e-3  # spacing of difference quotients


def check_scalar(field: Field) -> None:
    """Refuse a field with vectors or several quantities: seams are looked for in one scalar."""
    if field.type.vectors or len(field.type.channels) != 1:
        raise FieldError(
            f"seams are looked for in snapshots of one scalar, got {field.type.text!r}: "
            "give the frame a vorticity"
        )


def first_and_last(field: Field) -> Field:
    """The snapshots in which seams are looked for; one that is alone stands for both."""
    return field.at([0, -1]) if field.type.snapshots > 1 else field


class Fit(NamedTuple):
    """Fitted frames, and what each leaves: the rough share of the pulled-back field, and phases."""

    xi: Tensor
    left: Tensor  # (B,), twice the energy


Restart = Callable[[Field, Tensor], Tensor]  # from the fields and the first start to another start


@register("frame", "seam")
class SeamFrame(Frame):
    """Find the seams, undo them, and fit by smoothness; the quarter turn is the slice's.

    Everything happens on two snapshots, on the full grid: a seam lies between two grid lines, so it
    cannot be found on another one. The seams tell the position to a few hundredths of a cell and
    the angle to a few thousandths; a step of Gauss-Newton on waves of middle length gains two
    digits, and refinement, whose energy looks at all waves, the rest. A sample that the first step
    moved far takes a second. Where the fit still leaves more than ``rough`` (the share of the
    energy that is fine, and the phases), it is done again from coarser scales, and at last from
    every angle.
    """

    def __init__(self, group: Group, slice: QuarterSlice, rough: float = 2e-6) -> None:
        super().__init__()
        self.group = group
        self.slice = slice
        self.rough = rough
        self.coarse = Smoothness(group, COARSE_CUTOFF, order=1, phase_weight=0.3, finest=FINEST)
        self.middle = Smoothness(group, MIDDLE_CUTOFF, finest=FINEST)

    def energy(self) -> Energy:
        return Smoothness(self.group)

    @torch.no_grad()
    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        """The frames; a hint is taken as it is, because the search would only find it again."""
        if hint is not None:
            return Estimate(hint, torch.ones_like(hint))
        check_scalar(field)
        ends = first_and_last(field).to(compute_dtype(field.values.dtype))
        start = self._start(ends.values)
        fit = self._fit(self.middle, ends, start, 1)
        far = (fit.xi - start).abs().amax(dim=1) > SECOND_STEP_THRESHOLD
        fit = self._improved(fit, ends, fit.xi, far, lambda _, xi: xi, steps=1)
        for restart in (self._from_coarse_scales, self._from_every_angle):
            fit = self._improved(fit, ends, start, fit.left > self.rough, restart)
        xi = fit.xi
        whole, quality = self.slice.read(self.group.inverse(ends.at([0]), xi))
        turned = torch.cat([xi[:, :2], xi[:, 2:] + whole[:, 2:]], dim=1).double()
        confidence = clip_quality(quality) * (self.rough / (self.rough + fit.left))[:, None]
        return Estimate(self.group.wrap(turned), confidence)

    def _start(self, ends: Tensor) -> Tensor:
        """From the seams, or from the phases where there is no seam to speak of."""
        torn = self._from_seams(ends[:, -1])
        return torch.where(torn[:, 2:].abs() < SMALL_ANGLE, self._from_phases(ends[:, 0]), torn)

    def _from_seams(self, vorticity: Tensor) -> Tensor:
        """Both seams, each fitted on the long waves of its lines: position along y, then along x;
        both jumps tell the angle.
        """
        last = _fitted(vorticity, 0, find_seam(vorticity, 0, STEEPEST, COARSE_CUTOFF))
        straight = undo_last_shear(vorticity, last[:, 0], last[:, 1])
        angle = -2 * torch.atan(last[:, 1])
        jump = torch.sin(angle).clamp(-STEEPEST_MIDDLE, STEEPEST_MIDDLE)
        middle = _fitted(straight, 1, torch.stack([gap_with_jump(straight, 1, jump), jump], dim=1))
        again = torch.asin(middle[:, 1].clamp(-STEEPEST_MIDDLE, STEEPEST_MIDDLE))
        return torch.stack([middle[:, 0], last[:, 0], (angle + again) / 2], dim=1)

    def _from_phases(self, vorticity: Tensor) -> Tensor:
        """No rotation: then there is no seam, and the phases are the position."""
        position = phase_position(vorticity).to(vorticity.dtype)
        return torch.cat([position, torch.zeros_like(position[:, :1])], dim=1)

    def _from_coarse_scales(self, ends: Field, start: Tensor) -> Tensor:
        return self._fit(self.coarse, ends, start, RESTART_STEPS).xi

    def _from_every_angle(self, ends: Field, start: Tensor) -> Tensor:
        """The best of many angles, each with the seams that it implies, or the phases' position."""
        first, vorticity = ends.values[:, 0], ends.values[:, -1]
        y = find_seam(vorticity, 0, STEEPEST, COARSE_CUTOFF)[:, 0]
        place = phase_position(first).to(first.dtype)
        candidates = [start]
        for angle in torch.linspace(-math.pi / 4, math.pi / 4, START_ANGLES).tolist():
            theta = torch.full_like(y, angle)
            straight = undo_last_shear(vorticity, y, -torch.tan(theta / 2))
            x = gap_with_jump(straight, 1, torch.sin(theta))
            candidates += [
                torch.stack([x, y, theta], dim=1),
                torch.cat([place, theta[:, None]], dim=1),
            ]
        return self._fit(self.coarse, ends, self._best(ends, candidates), RESTART_STEPS).xi

    def _best(self, ends: Field, candidates: list[Tensor]) -> Tensor:
        stacked = torch.stack(candidates)  # (candidates, B, 3)
        energies = torch.cat(
            [
                self._energies(ends, some)
                for some in torch.split(stacked, max(1, CANDIDATES_PER_BATCH // len(ends)))
            ]
        )
        return stacked[energies.argmin(dim=0), torch.arange(len(ends), device=stacked.device)]

    def _energies(self, ends: Field, candidates: Tensor) -> Tensor:
        """Energies ``(candidates, B)``, in one batch: few samples alone would not fill one."""
        repeated = ends.with_values(ends.values.repeat(len(candidates), 1, 1, 1))
        energies = energy_of(self.coarse.residual(repeated, candidates.flatten(0, 1)))
        return energies.reshape(len(candidates), len(ends))

    def _fit(self, energy: Smoothness, ends: Field, xi: Tensor, steps: int) -> Fit:
        """A few steps of Gauss-Newton."""

        def residual(z: Tensor) -> Tensor:
            return energy.residual(ends, z)

        xi, _, left, _ = least_squares(
            residual, xi, steps, longest=LONGEST_STEP, spacing=DIFFERENCE
        )
        return Fit(xi, 2 * left)

    def _improved(
        self,
        fit: Fit,
        ends: Field,
        start: Tensor,
        some: Tensor,
        restart: Restart,
        steps: int = RESTART_STEPS,
    ) -> Fit:
        """Some samples, a mask, fitted again from another start, and the better of both fits."""
        rows = some.nonzero()[:, 0]
        if len(rows) == 0:
            return fit
        few = ends.with_values(ends.values[rows])
        again = self._fit(self.middle, few, restart(few, start[rows]), steps)
        better = again.left < fit.left[rows]
        xi = fit.xi.index_copy(0, rows, torch.where(better[:, None], again.xi, fit.xi[rows]))
        left = torch.where(better, again.left, fit.left[rows])
        return Fit(xi, fit.left.index_copy(0, rows, left))


def _fitted(field: Tensor, axis: int, seam: Tensor) -> Tensor:
    """Position and jump of a seam, ``(B, 2)``, fitted so that the long waves of the lines go
    smoothly across it.

    Roughness of the first order leads there from afar, that of the second, at finer scales, feels
    less of the field itself.
    """
    modes = torch.fft.fft(line_modes(field, axis, LINE_MODES), dim=-1)
    for cutoff, order, steps in ((COARSE_CUTOFF, 1, 2), (MIDDLE_CUTOFF, 2, 2)):

        def residual(z: Tensor, cutoff: float = cutoff, order: int = order) -> Tensor:
            return torch.view_as_real(
                seam_residual(modes, z[:, 0], z[:, 1:], cutoff, order)
            ).flatten(1)

        seam = least_squares(residual, seam, steps, longest=LONGEST_STEP, spacing=DIFFERENCE)[0]
    return seam
