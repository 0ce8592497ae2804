"""Modules that do not take and return one tensor ``(B, C, *grid)``, made to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from pacefno.errors import UsageError
from pacefno.grid import FieldError
from pacefno.registry import register


@register("operator", "adapted")
@final
class Adapted(nn.Module):
    """A module of any signature, or a plain function, as an operator on ``(B, C, *grid)``.

    Args:
        module: what is called; a module keeps its weights, a function has none.
        inputs: how the channels are handed over. ``None``: as one tensor. ``[2, 1]``: as several
            arguments, of 2 and 1 channels. ``{"flow": 2, "height": 1}``: as one dict of tensors.
        keywords: hand the entries of ``inputs`` over as keyword arguments and not as a dict.
        outputs: what to take of the result, joined along the channels in this order: keys of a
            dict, numbers of a tuple. ``None``: the result is one tensor.
        channels_last: the module works on ``(B, *grid, C)``.
    """

    def __init__(
        self,
        module: Callable[..., Any],
        inputs: Sequence[int] | Mapping[str, int] | None = None,
        outputs: Sequence[str | int] | None = None,
        channels_last: bool = False,
        keywords: bool = False,
    ) -> None:
        super().__init__()
        if not callable(module):
            raise UsageError(
                f"Adapted: expected a module or a function, got {type(module).__name__}"
            )
        if keywords and not isinstance(inputs, Mapping):
            raise UsageError('Adapted: keywords=True needs names: inputs={"name": channels, ...}')
        self.module = module
        self.inputs = inputs
        self.outputs = outputs
        self.channels_last = channels_last
        self.keywords = keywords

    def forward(self, field: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The prediction ``(B, C', *grid)``; further arguments are handed on."""
        return self._joined(self._called(field, args, kwargs))

    def _called(self, field: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.inputs is None:
            return self.module(self._outwards(field), *args, **kwargs)
        names = list(self.inputs) if isinstance(self.inputs, Mapping) else []
        counts = list(self.inputs.values() if isinstance(self.inputs, Mapping) else self.inputs)
        if sum(counts) != field.shape[1]:
            raise FieldError(
                f"Adapted: inputs={self.inputs} are {sum(counts)} channels, the field has "
                f"{field.shape[1]}: say how many channels each argument takes"
            )
        parts = [self._outwards(part) for part in torch.split(field, counts, dim=1)]
        if not names:
            return self.module(*parts, *args, **kwargs)
        entries = dict(zip(names, parts, strict=True))
        if self.keywords:
            return self.module(*args, **entries, **kwargs)
        return self.module(entries, *args, **kwargs)

    def _joined(self, result: Any) -> Tensor:
        if self.outputs is None:
            if not isinstance(result, Tensor):
                names = list(result) if isinstance(result, Mapping) else type(result).__name__
                raise FieldError(
                    f"Adapted: the module returned {names}, not a tensor: say which of it in "
                    "outputs=[...], keys of a dict or numbers of a tuple"
                )
            return self._inwards(result)
        try:
            chosen = [self._inwards(result[key]) for key in self.outputs]
        except (KeyError, IndexError, TypeError):
            there = list(result) if isinstance(result, Mapping) else type(result).__name__
            raise FieldError(
                f"Adapted: outputs={list(self.outputs)}: the module returned {there}"
            ) from None
        return torch.cat(chosen, dim=1)

    def _outwards(self, part: Tensor) -> Tensor:
        return part.movedim(1, -1) if self.channels_last else part

    def _inwards(self, part: Tensor) -> Tensor:
        return part.movedim(-1, 1) if self.channels_last else part
