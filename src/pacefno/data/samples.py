"""What training and evaluation are given: pairs of fields, or whole trajectories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, final

import torch
from torch import Tensor

from pacefno.errors import UsageError
from pacefno.fields import Box
from pacefno.grid import FieldError, check_field

Grid = Literal[
    "id", "ood"
]  # the grid of the training samples, or the finer one of the test samples


@final
@dataclass(frozen=True)
class Pairs:
    """Inputs and targets ``(N, S * C, *grid)``; samples that were moved also say how."""

    input: Tensor
    target: Tensor
    xi: Tensor | None = None  # (N, size): the elements that moved them; for scores, not for models
    resolved: Tensor | None = None  # the target solved from the moved input

    def __post_init__(self) -> None:
        for name in ("input", "target", "xi", "resolved"):
            part = getattr(self, name)
            if part is None and name in ("xi", "resolved"):
                continue
            if not isinstance(part, Tensor):
                got = type(part).__name__
                raise FieldError(f"pairs: {name}: expected a torch.Tensor, got {got}: convert it")
            if len(part) != len(self.input) or len(part) == 0:
                raise FieldError(
                    f"pairs: {name}: expected as many samples as inputs ({len(self.input)}, at "
                    f"least 1), got {len(part)}"
                )

    def __len__(self) -> int:
        return len(self.input)

    def select(self, rows: slice | Tensor) -> Pairs:
        """Some of the samples."""
        parts = (self.input, self.target, self.xi, self.resolved)
        return Pairs(*(None if part is None else part[rows] for part in parts))  # type: ignore[arg-type]

    @property
    def elements(self) -> Tensor:
        """The elements that moved these samples; an error for samples as they were solved."""
        if self.xi is None:
            raise UsageError("these samples were not moved: expected those of test_ood")
        return self.xi


@final
@dataclass(frozen=True)
class Trajectories:
    """Solutions in time: values ``(N, S * C, *grid)``, snapshot by snapshot, in their own boxes."""

    values: Tensor
    box: Box
    channels: int = 1  # of one snapshot

    def __post_init__(self) -> None:
        check_field(self.values, name="trajectories", finite=False)
        dim = self.values.ndim - 2
        shapes = tuple(self.box.lengths.shape), tuple(self.box.step.shape)
        if shapes != ((len(self.values), dim), (len(self.values),)):
            raise FieldError(
                f"trajectories: expected lengths and steps of {len(self.values)} samples in {dim} "
                f"dimensions, got {shapes}"
            )
        if self.values.shape[1] % self.channels:
            raise FieldError(
                f"trajectories: {self.values.shape[1]} channels are not whole snapshots of "
                f"{self.channels}"
            )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def snapshots(self) -> int:
        """How many snapshots each trajectory has."""
        return self.values.shape[1] // self.channels

    def select(self, rows: slice | Tensor) -> Trajectories:
        """Some of the trajectories."""
        return Trajectories(self.values[rows], self.box.select(rows), self.channels)

    def window(self, start: int | Tensor, count: int) -> Trajectories:
        """``count`` snapshots from number ``start`` on: one number, or one per trajectory."""
        first = torch.as_tensor(start, device=self.values.device).expand(len(self))
        if int(first.min()) < 0 or int(first.max()) + count > self.snapshots or count < 1:
            raise FieldError(
                f"trajectories: {count} snapshots from {start} on do not lie within the "
                f"{self.snapshots} there are"
            )
        rows = torch.arange(len(self), device=self.values.device)[:, None]
        numbers = first[:, None] + torch.arange(count, device=self.values.device)
        by_snapshot = self.values.reshape(
            len(self), self.snapshots, self.channels, *self.values.shape[2:]
        )
        return Trajectories(by_snapshot[rows, numbers].flatten(1, 2), self.box, self.channels)

    def to(self, target: torch.dtype | torch.device) -> Trajectories:
        """The same in another precision or on another device."""
        return Trajectories(self.values.to(target), self.box.to(target), self.channels)


class Source(Protocol):
    """Where samples come from: a dataset that was generated, or a file of somebody else's."""

    def load(self, split: str, grid: Grid = "id") -> Pairs | Trajectories:
        """A split: ``train``, ``validation``, ``test`` (of pairs ``test_id`` and ``test_ood``)."""
        ...


def channel_statistics(fields: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of ``(N, C, *grid)`` over samples and grid, each ``(C,)``.

    Sums run in float64, sample by sample. A channel that does not vary gets 1, so that dividing by
    it is harmless.
    """
    check_field(fields, name="fields to standardise")
    count = fields.shape[0] * fields[0, 0].numel()
    total = torch.zeros(fields.shape[1], dtype=torch.float64, device=fields.device)
    for sample in fields:
        total += sample.double().flatten(1).sum(dim=1)
    mean = total / count
    squares = torch.zeros_like(mean)
    for sample in fields:
        squares += (sample.double().flatten(1) - mean[:, None]).square().sum(dim=1)
    std = (squares / count).sqrt()
    noise = torch.finfo(fields.dtype).eps * (mean.abs() + torch.finfo(torch.float32).tiny)
    std = torch.where(std > noise, std, torch.ones_like(std))
    return mean.to(fields.dtype), std.to(fields.dtype)
