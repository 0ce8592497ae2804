"""Operators between several snapshots, and what the operators of trajectories need to know.

The simplest way from several snapshots to several needs no class: they are the channels of an FNO.
Which way is worth its time is measured by ``pacefno study snapshots``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pacefno.fields import Box
from pacefno.grid import (
    check_field,
    from_spectrum,
    grid_axes,
    resize_spectrum,
    to_spectrum,
    wavenumbers,
)
from pacefno.operators.fno import FNO
from pacefno.operators.group_fno import GroupFNO
from pacefno.registry import register

TIME_PADDING = 6  # zeros after the last time: time is not periodic
TURNS = ("p1", "p4")  # point groups of the plane without mirrors


@register("operator", "space-time-fno")
@final
class SpaceTimeFNO(nn.Module):
    """A three-dimensional FNO over (x, y, t), the paper's choice for Navier-Stokes.

    Every output time sees all input snapshots and its own time. With a ``group`` of turns of the
    plane it is a group FNO that leaves time alone (G-FNO's space-time form). Turns leave the
    values of scalars and of vorticity as they are, so these are the channels that it is for.
    """

    def __init__(
        self,
        snapshots_in: int,
        snapshots_out: int,
        width: int,
        modes: int,
        time_modes: int,
        layers: int = 4,
        positions: Literal["grid"] | None = None,
        head: int = 128,
        group: str | None = None,
    ) -> None:
        super().__init__()
        self.snapshots_out = snapshots_out
        sizes = (modes, modes, time_modes)
        inputs = snapshots_in + 1
        if group is None:
            self.network: nn.Module = FNO(
                3, inputs, 1, width, sizes, layers, positions=positions, head=head
            )
            return
        if group not in TURNS or positions is not None:
            raise ValueError(
                f"group: expected one of {', '.join(TURNS)} and no positions, got {group!r} and "
                f"positions={positions!r}"
            )
        self.network = GroupFNO(3, inputs, 1, width, sizes, group, layers=layers, norm=False)

    def forward(self, field: Tensor) -> Tensor:
        count = self.snapshots_out
        times = torch.arange(count, dtype=field.dtype, device=field.device) / count
        repeated = field[..., None].expand(*field.shape, count)  # (B, in, n, m, out)
        clock = times.expand(field.shape[0], 1, *field.shape[2:], -1)
        padded = F.pad(torch.cat([repeated, clock], dim=1), (0, TIME_PADDING))
        snapshots: Tensor = self.network(padded)[:, 0, ..., :count]
        return snapshots.movedim(-1, 1).contiguous()


@register("operator", "recurrent")
@final
class Recurrent(nn.Module):
    """A network that predicts the next few snapshots, fed its own output until all are there.

    It sees the last ``snapshots_in`` snapshots, or as many as the input has. It is told the box of
    each sample where there is one.
    """

    def __init__(
        self, operator: nn.Module, snapshots_out: int, snapshots_in: int | None = None
    ) -> None:
        super().__init__()
        self.operator = operator
        self.snapshots_out = snapshots_out
        self.snapshots_in = snapshots_in

    def forward(self, field: Tensor, box: Box | None = None) -> Tensor:
        seen = field.shape[1] if self.snapshots_in is None else self.snapshots_in
        if seen > field.shape[1]:
            raise ValueError(f"expected at least {seen} snapshots, got {field.shape[1]}")
        window, found = field[:, -seen:], list[Tensor]()
        while sum(part.shape[1] for part in found) < self.snapshots_out:
            following = self.operator(window) if box is None else self.operator(window, box=box)
            found.append(following)
            window = torch.cat([window, following], dim=1)[:, -seen:]
        return torch.cat(found, dim=1)[:, : self.snapshots_out]


@register("operator", "residual")
@final
class Residual(nn.Module):
    """The change since the last input snapshot: ``u_last + G(a)`` for every output snapshot.

    ``channels`` is how many a snapshot has.
    """

    def __init__(self, operator: nn.Module, channels: int) -> None:
        super().__init__()
        self.operator = operator
        self.channels = channels

    def forward(self, field: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        change = self.operator(field, *args, **kwargs)
        last = field[:, -self.channels :]
        return change + last.repeat(1, change.shape[1] // self.channels, *[1] * (field.ndim - 2))


@register("operator", "conditioned")
@final
class Conditioned(nn.Module):
    """An operator that is told the box of each sample, as constant channels after the field's.

    They are logarithms of lengths and time step over their nominal values, divided by
    ``variation``: 0 where nominal and +-1 at the usual extremes. (LPSDA appends the numbers
    themselves.) Without a box all samples have the nominal one.
    """

    def __init__(
        self, operator: nn.Module, lengths: list[float], step: float, variation: float
    ) -> None:
        super().__init__()
        self.operator = operator
        self.nominal = [*lengths, step]
        self.variation = variation

    def forward(self, field: Tensor, box: Box | None = None) -> Tensor:
        if box is None:
            ratios = field.new_zeros(field.shape[0], len(self.nominal))
        else:
            own = torch.cat([box.lengths, box.step[:, None]], dim=1).double()
            ratios = torch.log(own / own.new_tensor(self.nominal)) / self.variation
        channels = ratios.to(field.dtype).reshape(*ratios.shape, *[1] * (field.ndim - 2))
        told = channels.expand(-1, -1, *field.shape[2:])
        predicted: Tensor = self.operator(torch.cat([field, told], dim=1))
        return predicted


@register("operator", "split-step")
@final
class SplitStep(nn.Module):
    """One step of ``u_t = L u + N(u)`` whose linear part is exact: a network learns the rest.

    In Duhamel's formula ``u(h) = e^hL u(0) + int_0^h e^(h-s)L N(u(s)) ds`` the network stands for
    the values of N at a few ``nodes`` ``s_i`` of the step::

        u(h) = e^hL u(0) + h/q sum_i e^(h-s_i)L N_i,   (N_1, ..., N_q) = operator(v_1, ..., v_q)

    with ``v_i = e^(s_i L) u(0)``. A single node lies in the middle (Strang splitting), several
    spread from the beginning of the step to its end. ``L = sum_p c_p sum_axes d^p/dx^p`` acts with
    the box and the time step of each sample, and waves that it damps are never amplified. The mean
    of N is taken out: equations whose nonlinear part is a divergence conserve it.

    Args:
        operator: from ``q * C * (1 + dim)`` channels, first the fields ``v_i`` and then the slope
            of each along each axis, to ``q * C``; to ``q * C * dim`` with ``flux``.
        linear: pairs ``(p, c_p)``: ``[(3, -1.0)]`` for ``u_t = -u_xxx``.
        lengths, step: box and time step of samples that do not bring their own.
        points: the operator works on at most so many points along each axis; modes that these do
            not resolve follow the linear part alone. None for the grid of the field.
        flux: the operator predicts fluxes along each axis, and the N_i are their divergences.
        nodes: how many there are, q.
        keeps_norm: the equation conserves the mean of ``u^2``, as KdV does: each channel is scaled
            about its mean to the norm that it had, so that a rollout cannot gain or lose amplitude.
    """

    def __init__(
        self,
        operator: nn.Module,
        linear: Sequence[Sequence[float]],
        lengths: Sequence[float],
        step: float,
        points: int | None = None,
        flux: bool = False,
        nodes: int = 1,
        keeps_norm: bool = False,
    ) -> None:
        super().__init__()
        self.operator = operator
        self.linear = [(int(power), float(factor)) for power, factor in linear]
        self.lengths = list(lengths)
        self.step = step
        if points is not None and points < 3:
            raise ValueError(f"points: expected at least 3 along each axis, got {points}")
        if nodes < 1:
            raise ValueError(f"nodes: expected a positive number, got {nodes}")
        self.points = points
        self.flux = flux
        self.nodes = nodes
        self.keeps_norm = keeps_norm

    def forward(self, field: Tensor, box: Box | None = None) -> Tensor:
        made = self._step(field, box)
        return with_norm_of(field, made) if self.keeps_norm else made

    def _step(self, field: Tensor, box: Box | None) -> Tensor:
        grid, dim = tuple(field.shape[2:]), len(self.lengths)
        check_field(field, dim=dim, finite=False)
        coarse = grid if self.points is None else tuple(min(n, self.points) for n in grid)
        dtype = torch.complex64 if field.dtype == torch.float32 else torch.complex128
        ik = 1j * self._wavenumbers(grid, field, box)  # (B or 1, dim, *half_grid)
        powers = ((factor * ik**power).sum(dim=1) for power, factor in self.linear)
        rate = sum(powers, torch.zeros_like(ik[:, 0]))[:, None]
        step = _in_float64([self.step], field) if box is None else box.step.double()
        step = step.reshape(-1, 1, *[1] * dim)
        # Nodes are equally spaced, so that one exponential and its powers serve all of them.
        pieces, ticks = (self.nodes - 1, range(self.nodes)) if self.nodes > 1 else (2, [1])
        flows = [torch.ones_like(rate), torch.exp(rate * (step / pieces))]  # e^(s L), (B, 1, ...)
        while len(flows) <= pieces:
            flows.append(flows[-1] * flows[1])
        u_hat = to_spectrum(field, dim)  # (B, C, *half_grid)
        low, ik, until, after = (
            resize_spectrum(part.to(dtype), grid, coarse)
            for part in (
                u_hat,
                ik,
                torch.cat([flows[tick] for tick in ticks], dim=1),  # (B, q, *half_grid)
                torch.cat([flows[pieces - tick] for tick in ticks], dim=1),
            )
        )
        v_hat = low[:, None] * until[:, :, None]  # (B, q, C, *half_grid)
        learnt = self._learnt(v_hat, ik, coarse, box)
        change = (learnt * after[:, :, None]).sum(dim=1) * (step.to(field) / self.nodes)
        whole = flows[pieces].to(dtype)
        return from_spectrum(u_hat * whole + resize_spectrum(change, coarse, grid), grid)

    def _learnt(self, v_hat: Tensor, ik: Tensor, grid: tuple[int, ...], box: Box | None) -> Tensor:
        """The spectra of the ``N_i``, without their means, from those of the ``v_i``."""
        dim, nodes = len(grid), self.nodes
        fields = v_hat.flatten(1, 2)  # (B, q * C, *half_grid)
        slopes = (fields[:, :, None] * ik[:, None]).flatten(1, 2)
        seen = from_spectrum(torch.cat([fields, slopes], dim=1), grid)
        made = self.operator(seen) if box is None else self.operator(seen, box=box)
        if self.flux:
            spectra = to_spectrum(made, dim)
            fluxes = spectra.reshape(spectra.shape[0], nodes, -1, dim, *spectra.shape[2:])
            return (fluxes * ik[:, None, None]).sum(dim=3)
        spectra = to_spectrum(made - made.mean(dim=grid_axes(dim), keepdim=True), dim)
        return spectra.reshape(spectra.shape[0], nodes, -1, *spectra.shape[2:])

    def _wavenumbers(self, grid: tuple[int, ...], field: Tensor, box: Box | None) -> Tensor:
        """``2 pi k / L`` of each sample in float64, ``(B or 1, dim, *half_grid)``."""
        numbers = wavenumbers(grid, device=field.device)
        lengths = _in_float64([self.lengths], field) if box is None else box.lengths.double()
        return 2 * math.pi * numbers / lengths.reshape(*lengths.shape, *[1] * len(self.lengths))


def _in_float64(values: Sequence[Any], field: Tensor) -> Tensor:
    """Numbers where the field is, whatever its precision."""
    return torch.tensor(values, dtype=torch.float64, device=field.device)


def with_norm_of(field: Tensor, made: Tensor) -> Tensor:
    """``made``, each channel scaled about its mean to the norm that ``field`` has about its own."""
    axes = grid_axes(field.ndim - 2)
    mean = made.mean(dim=axes, keepdim=True)
    before, after = (
        torch.linalg.vector_norm(apart, dim=axes, keepdim=True)
        for apart in (field - field.mean(dim=axes, keepdim=True), made - mean)
    )
    return mean + (made - mean) * (before / after.clamp_min(torch.finfo(made.dtype).tiny))
