"""Unit scales around an operator: inputs and outputs standardised channel by channel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pacefno.registry import register


@register("operator", "standardised")
class Standardised(nn.Module):
    """``S_out^-1 G S_in``: constants per channel, so it commutes with shifts and rotations and sits
    inside the frame.
    """

    def __init__(
        self,
        operator: nn.Module,
        input_scale: tuple[Tensor, Tensor],
        output_scale: tuple[Tensor, Tensor],
    ) -> None:
        super().__init__()
        self.operator = operator
        for name, value in zip(
            ("in_mean", "in_std", "out_mean", "out_std"), (*input_scale, *output_scale), strict=True
        ):
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float32))

    def forward(self, field: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The prediction ``(B, C', *grid)``; further arguments are handed to the operator."""
        scaled = (field - self._constant("in_mean", field)) / self._constant("in_std", field)
        result = self.operator(scaled, *args, **kwargs)
        return result * self._constant("out_std", result) + self._constant("out_mean", result)

    def _constant(self, name: str, field: Tensor) -> Tensor:
        return self.get_buffer(name).to(field.dtype).reshape(1, -1, *[1] * (field.ndim - 2))
