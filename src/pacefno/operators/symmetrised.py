"""Any operator, made to commute with a finite group by averaging over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from pacefno.errors import UsageError
from pacefno.fields import Box, FieldType
from pacefno.grid import FieldError
from pacefno.groups.point_group import PointGroup, point_group_named, representation
from pacefno.registry import register


@register("operator", "symmetrised")
@final
class Symmetrised(nn.Module):
    """``mean over g of g^-1 F(g a)``: exactly equivariant in evaluation, in one call of ``F``.

    Args:
        operator: any module on ``(B, C, *grid)``, trained or not. It may know positions.
        group: a point group or its name. What stands inside PACE should keep its slice (see
            ``docs/symmetries.md``): the others turn fields into ones that the frame turns back.
        channels: what the channels of a snapshot are, ``"h: scalar, m: momentum of h"``;
            ``"scalar"`` for any number of scalars.
        output: the same of the prediction, where its channels are others.
        samples: over how many random elements a sample is averaged in training: None for all, 1 for
            a single one, which is augmentation, 0 for the operator as it is. The mean over draws
            is the average over the group. Drawn from torch's global generator, so that the same
            seed gives the same draws; over a batch all elements occur equally often.

    >>> operator = nn.Conv1d(1, 1, 5, padding=2)
    >>> model = Symmetrised(operator, "z2", channels="u: scalar").eval()
    >>> field = torch.randn(4, 1, 64)
    >>> mirrored = field.flip(-1).roll(1, dims=-1)  # points lie at i / n: the first one stays
    >>> follows = model(field).flip(-1).roll(1, dims=-1)
    >>> torch.allclose(model(mirrored), follows, atol=1e-5)
    True
    """

    def __init__(
        self,
        operator: nn.Module,
        group: PointGroup | str,
        channels: str,
        output: str | None = None,
        samples: int | None = None,
    ) -> None:
        super().__init__()
        self.group = point_group_named(group) if isinstance(group, str) else group
        if samples is not None and not 0 <= samples <= self.group.order:
            raise UsageError(
                f"samples: expected None or 0 to {self.group.order}, the elements of "
                f"{self.group.which}, got {samples}"
            )
        self.operator = operator
        self.channels, self.output = channels, channels if output is None else output
        self.samples = samples
        self._rho: dict[tuple[str, int], Tensor] = {}
        for text in (self.channels, self.output):  # refuses channels that do not fit the group
            if text != "scalar":
                self._representation(text, FieldType.parse(text, self.group.dim).size)

    def forward(self, field: Tensor, box: Box | None = None) -> Tensor:
        self._check_grid(field)
        order = self.group.order
        count = order if self.samples is None or not self.training else self.samples
        if count == 0 or order == 1:
            return self._operate(field, box)
        if count == order:
            made = self._each(field, box, [slice(None)] * order, list(range(order)))
            return torch.stack(made).mean(dim=0)
        drawn = torch.randperm(order).tolist()
        # Item t is sample t // count under the element drawn[t % order], so no sample gets one
        # twice.
        items = len(field) * count
        rows = [range(r, items, order) for r in range(order) if r < items]
        elements = [drawn[r] for r in range(len(rows))]
        own = [torch.tensor([t // count for t in turn], device=field.device) for turn in rows]
        back = torch.cat(self._each(field, box, own, elements))
        place = torch.tensor([t for turn in rows for t in turn], device=field.device).argsort()
        return back[place].reshape(len(field), count, *back.shape[1:]).mean(dim=1)

    def _check_grid(self, field: Tensor) -> None:
        """A wave that only one of two axes resolves cannot be moved to the other."""
        grid = field.shape[2 : 2 + self.group.dim]
        swaps = (self.group.moves(g)[0] for g in range(self.group.order))
        if any(grid[axis] != n for axes in swaps for axis, n in zip(axes, grid, strict=True)):
            raise FieldError(
                f"Symmetrised: {self.group.which} exchanges axes, so they need the same number of "
                f"points, got {tuple(grid)}: resample the field (pacefno.grid.resample), or "
                "average over a group without exchanges, such as p2m"
            )

    def _each(
        self, field: Tensor, box: Box | None, own: Sequence[slice | Tensor], elements: list[int]
    ) -> list[Tensor]:
        """``g^-1 F(g a)`` of the samples ``own[i]`` under ``elements[i]``, in one call of F."""
        parts = [field[which] for which in own]
        rho = self._representation(self.channels, field.shape[1])
        moved = [self.group.move(part, g, rho) for part, g in zip(parts, elements, strict=True)]
        told = None if box is None else self._moved_box(box, own, elements)
        made = self._operate(torch.cat(moved), told)
        rho = self._representation(self.output, made.shape[1])
        split = torch.split(made, [part.shape[0] for part in parts])
        return [
            self.group.move(part, self.group.inverses[g], rho)
            for part, g in zip(split, elements, strict=True)
        ]

    def _operate(self, field: Tensor, box: Box | None) -> Tensor:
        made: Tensor = self.operator(field) if box is None else self.operator(field, box=box)
        return made

    def _moved_box(self, box: Box, own: Sequence[slice | Tensor], elements: list[int]) -> Box:
        pairs = zip(own, elements, strict=True)
        lengths = [box.lengths[which][:, self.group.moves(g)[0]] for which, g in pairs]
        return Box(torch.cat(lengths), torch.cat([box.step[which] for which in own]))

    def _representation(self, text: str, count: int) -> Tensor:
        if (text, count) not in self._rho:
            with torch.inference_mode(False):  # else it could not be used in training afterwards
                self._rho[text, count] = representation(self.group, text, count)
        return self._rho[text, count]
