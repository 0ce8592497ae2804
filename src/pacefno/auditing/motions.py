"""What a model is put through: each coordinate of a group alone, from small to large, and all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import torch
from torch import Tensor

from pacefno.errors import UsageError
from pacefno.fields import AXES, Field
from pacefno.groups import Group
from pacefno.metrics import typical_speed
from pacefno.registry import unknown

WHOLE_CELLS = (1, 2, 3, 4, 8)  # and a quarter and half of the box
FRACTIONS = (0.25, 0.5, 1.5, 4.5)  # of a cell, and half a cell more than a quarter of the box
SPEEDS = (0.03, 0.1, 0.3, 1.0, 2.0)  # in typical speeds of the data
TURNS = (15.0, 30.0, 45.0, 90.0, 180.0)  # in degrees
LEVELS = (0.1, 0.3, 1.0)  # of the largest motion along every coordinate, all at once
TORN = 0.01  # by which two half motions may differ from the whole before a motion is refused
WHOLE, FRACTION, BOOST, TURN, TOGETHER, POINT, EVERYTHING = FAMILIES = (
    "shift by whole cells",
    "shift by fractions of a cell",
    "boost",
    "turn",
    "all together",
    "mirror or turn",
    "all together, mirrored or turned",
)
FINITE = "element"  # the coordinate of a finite group, whose elements have no size

Move = Callable[[Field], Field]


@final
@dataclass(frozen=True)
class Motion:
    """One motion of all samples, each by the same size in a direction of its own."""

    family: str  # what is judged together
    factor: str  # the coordinate that is moved
    size: float  # in cells, degrees or the units of the data
    label: str
    act: Move
    undo: Move
    cells: Tensor | None = None  # of a shift by whole cells: how many, (B,)
    torn: float = 0.0  # by how much two halves of it differ from the whole


def plan_motions(
    group: Group,
    input: Field,
    target: Field,
    *,
    sizes: Mapping[str, Sequence[float]] | None = None,
    inexact: bool = False,
    seed: int = 0,
) -> tuple[list[Motion], list[str]]:
    """The motions of a group that can be measured, and in words those that cannot.

    ``sizes`` says how far, by coordinate: shifts in cells, angles in degrees, velocities in the
    units of the data. A motion that is no symmetry of these very fields (a turn tears a field that
    fills a periodic box) is left out unless ``inexact``, and an error if it was asked for.
    """
    _check_sizes(group, sizes or {})
    signs = _signs(len(input), group.size, seed).to(input.values.device)
    motions: list[Motion] = []
    left_out: dict[str, str] = {}
    reach, all_exact = [0.0] * group.size, True
    for column, name in enumerate(group.coordinates):
        if name == FINITE:
            continue
        for size in (sizes or {}).get(name) or _usual_sizes(group, input, column):
            distance = _distance(group, input, column, size)
            xi = group.identity(len(input), device=input.values.device)
            xi[:, column] = signs[:, column] * distance
            motion = _along(group, column, size, xi)
            if motion.act(input).box is not None:
                left_out[name] = (
                    f"{name}: it changes the box of each sample, of which a model that is given "
                    "the field alone is not told"
                )
                break
            torn = max(_torn(group, field, xi) for field in (input, target))
            if torn <= TORN or inexact:
                motions.append(replace(motion, torn=torn))
                reach[column] = max(reach[column], distance)
            else:
                all_exact = False
                left_out[name] = (
                    f"{motion.label} and the like: no symmetry of these fields, two halves of it "
                    f"and the whole differ by {torn:.0%} (a turn tears a field that fills its box)"
                )
                if name in (sizes or {}):
                    raise UsageError(
                        f"{left_out[name]}: leave it out, or say inexact=True (--inexact)"
                    )
    if sum(far > 0 for far in reach) > 1:
        motions += [_together(group, input, reach, level, all_exact, seed) for level in LEVELS]
    motions.sort(key=lambda motion: FAMILIES.index(motion.family))
    return motions, list(left_out.values())


def largest(motions: Sequence[Motion]) -> list[Motion]:
    """The farthest motion along each coordinate, every element of a point group, and all at once.

    These show what a remedy does; at smaller ones it only does better.
    """
    far: dict[tuple[str, str], Motion] = {}
    for motion in motions:
        key = motion.family, motion.label if motion.family == POINT else motion.factor
        if key not in far or motion.size >= far[key].size:
            far[key] = motion
    return list(far.values())


def _check_sizes(group: Group, sizes: Mapping[str, Sequence[float]]) -> None:
    for name, values in sizes.items():
        if name not in group.coordinates:
            raise UsageError(f"sizes: {unknown('coordinate', name, group.coordinates)}")
        if not values or not all(0 < value < math.inf for value in values):
            raise UsageError(f"sizes: {name}: expected positive numbers, got {list(values)}")


def _signs(batch: int, size: int, seed: int) -> Tensor:
    """Fair signs ``(batch, size)``; the first two samples go opposite ways."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(batch, size, dtype=torch.float64, generator=generator)
    signs = torch.where(draws < 0.5, -1.0, 1.0)
    signs[0] = 1.0
    signs[1:2] = -1.0
    return signs


def _usual_sizes(group: Group, input: Field, column: int) -> list[float]:
    name, period = group.coordinates[column], group.periods[column]
    if name in AXES:
        n = input.grid[AXES.index(name)]
        return sorted(
            c for c in {*WHOLE_CELLS, n // 4, n // 2, *FRACTIONS, n // 4 + 0.5} if c <= n / 2
        )
    if math.isinf(period):
        speed = typical_speed(input)
        return [float(f"{speed * share:.1g}") for share in SPEEDS]
    return list(TURNS)


def _distance(group: Group, input: Field, column: int, size: float) -> float:
    """A size as a coordinate of the group."""
    name = group.coordinates[column]
    if name in AXES:
        return size / input.grid[AXES.index(name)]
    return size if math.isinf(group.periods[column]) else math.radians(size)


def _along(group: Group, column: int, size: float, xi: Tensor) -> Motion:
    name = group.coordinates[column]
    act: Move = partial(group.act, xi=xi)
    undo: Move = partial(group.inverse, xi=xi)
    if name in AXES:
        label = f"{name} by {size:g} cell{'s' * (size != 1)}"
        if not float(size).is_integer():
            return Motion(FRACTION, name, size, label, act, undo)
        cells, axis = (xi[:, column].sign() * size).long(), AXES.index(name)
        act, undo = partial(roll, axis=axis, cells=cells), partial(roll, axis=axis, cells=-cells)
        return Motion(WHOLE, name, size, label, act, undo, cells)
    if math.isinf(group.periods[column]):
        return Motion(BOOST, name, size, f"{name} {size:g}", act, undo)
    return Motion(TURN, name, size, f"{name} {size:.3g} degrees", act, undo)


def roll(field: Field, axis: int, cells: Tensor) -> Field:
    """Each sample moved by whole cells along an axis, ``(B,)``, its highest wave included.

    A group leaves the wave alone that changes sign from point to point, because no shift by part of
    a cell can move it. Nonlinear models make such waves, and whole cells do move them.
    """
    n = field.grid[axis]
    place = (torch.arange(n, device=cells.device) - cells[:, None]) % n  # (B, n)
    ones = [n if a == axis else 1 for a in range(len(field.grid))]
    return field.with_values(field.values.take_along_dim(place.reshape(-1, 1, *ones), 2 + axis))


def _together(
    group: Group, input: Field, reach: Sequence[float], level: float, all_exact: bool, seed: int
) -> Motion:
    """Every coordinate at once, each by chance up to a share of the farthest that it went alone.

    Where some motion was left out, of the others too only those that every field allows.
    """
    generator = torch.Generator().manual_seed(seed)
    xi = group.sample([0.0] * group.size, [level * far for far in reach], len(input), generator)
    xi = (xi if all_exact else group.composable(xi)).to(input.values.device)
    label = f"up to {level:.0%} of each"
    act, undo = partial(group.act, xi=xi), partial(group.inverse, xi=xi)
    return Motion(TOGETHER, TOGETHER, level, label, act, undo)


def _torn(group: Group, field: Field, xi: Tensor) -> float:
    """By how much two half motions differ from the whole, relative; 0 where a group promises it."""
    if torch.allclose(group.composable(xi), xi):
        return 0.0
    half = xi / 2
    twice, once = group.act(group.act(field, half), half).values, group.act(field, xi).values
    return float((twice - once).norm() / once.norm().clamp_min(torch.finfo(once.dtype).tiny))
