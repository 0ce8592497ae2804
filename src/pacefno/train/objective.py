"""The loss of a batch: prediction and frame in one pass, and the weights of the loss's terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pacefno.errors import UsageError
from pacefno.fields import Box, Field
from pacefno.grid import from_spectrum, to_spectrum, wavenumbers
from pacefno.losses import Weights, objective
from pacefno.metrics import relative_l2
from pacefno.pace import PACE
from pacefno.train.batches import Batch, is_pooled
from pacefno.train.config import RunConfig
from pacefno.train.schedule import anchor_weight, h1_weight


class PredictionAndFrame(nn.Module):
    """A model whose forward also returns the frame it used: all that a loss needs, in one pass."""

    def __init__(self, model: PACE) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        field: Tensor,
        hint: Tensor | None = None,
        box: Box | None = None,
        jitter: Tensor | None = None,
        target: Tensor | None = None,
        frame: Tensor | None = None,
        pooled: bool = False,
    ) -> Any:
        """Prediction and frame; in evaluation mode the prediction alone.

        With a ``target`` they are prediction, target and frame, the first two moved alike to where
        the loss costs least (:meth:`PACE.beside`). With a ``frame`` field and target are pulled
        back by it already.
        """
        model, group = self.model, self.model.group
        if not self.training:
            return model(field, box=box)
        if frame is not None:
            assert target is not None
            made = model.operator(field) if box is None else model.operator(field, box=box)
            predicted = Field(made.to(target.dtype), model.output, box)
            moved = group.in_place(predicted, frame, pooled=pooled)
            assert moved is not None
            return moved.values, target, frame
        xi = model.frame(Field(field, model.input, box), hint).xi
        # With ``jitter`` the operator sees the canonical field moved by it, and what it predicts is
        # pushed out all the same: it learns a neighbourhood of the slice, not the slice alone.
        at = xi if jitter is None else group.compose(xi, group.inverse_element(jitter.to(xi)))
        if target is None:
            return model.at(field, at, box=box), xi
        return *model.beside(field, target, at, box=box, pooled=pooled), xi


def long_waves(values: Tensor, dim: int, top: float) -> Tensor:
    """A field whose waves of n periods in the box are smaller by ``1 / (1 + (n / top)^2)``."""
    grid = tuple(values.shape[2:])
    periods = wavenumbers(grid, device=values.device).square().sum(dim=0)
    factor = (1 / (1 + periods / top**2)).to(values.dtype)
    return from_spectrum(to_spectrum(values, dim) * factor, grid)


BALANCED = ("equivariance", "anchor")  # the terms that know the frame alone
BALANCE_EVERY = 10  # steps: measuring costs another pass back through the operator
MOST_BALANCE = 100.0  # the gradient of a term that is learned vanishes, its weight must not explode


class Loss:
    """The loss of a batch; it owns the moving averages that set weights: of the "ema" schedule of
    the H1 term, and of gradient balancing.
    """

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.h1_balance = 1.0
        self.balances = dict.fromkeys(BALANCED, 1.0)

    def __call__(
        self, module: nn.Module, batch: Batch, epoch: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The total and its parts, means over the batch."""
        if self.config.schedule.unroll > 1:
            return self._in_a_row(module, batch, epoch)
        given, target = (batch.input, batch.xi, batch.box, batch.jitter), batch.target
        if self.config.frame is None or self.config.loss.invariant:
            prediction, xi = module(*given)
        else:
            pooled = is_pooled(self.config)
            prediction, target, xi = module(*given, target, batch.frame, pooled)
        return self._of(prediction, target, xi, batch, epoch)

    def _in_a_row(
        self, module: nn.Module, batch: Batch, epoch: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean over predictions of which each is the input of the next.

        Gradients go back through all of them, so an error that the next step would amplify costs
        more than one that it damps.
        """
        size, window, found = self.config.task.output.size, batch.input, []
        hint: Tensor | None = batch.xi  # what moved the sample; of a prediction it is not known
        for start in range(0, batch.target.shape[1], size):
            block = slice(start, start + size)
            target = batch.target[:, block]
            unmoved = None if batch.unmoved is None else batch.unmoved[:, block]
            prediction, xi = module(window, hint, batch.box, batch.jitter)
            now = replace(batch, input=window, target=target, unmoved=unmoved)
            found.append(self._of(prediction, target, xi, now, epoch))
            hint, window = None, torch.cat([window, prediction], dim=1)[:, -window.shape[1] :]
        totals, parts = zip(*found, strict=True)
        means = {name: torch.stack([part[name] for part in parts]).mean() for name in parts[0]}
        return torch.stack(totals).mean(), means

    def _of(
        self, prediction: Tensor, target: Tensor, xi: Tensor, batch: Batch, epoch: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The total and its parts of one prediction, made with the frame ``xi``."""
        if self.config.loss.error == "squared":
            squares = (prediction - target).square().flatten(1).sum(dim=1).mean()
            return squares, {"l2": squares}
        task = self.config.task
        reference = self._reference(batch)
        if top := self.config.loss.long_waves:
            reference = target if reference is None else reference
            prediction, target, reference = (
                long_waves(part, task.dim, top) for part in (prediction, target, reference)
            )
        if self.config.loss.error == "root-mean-square":
            each = relative_l2(
                prediction, target, per_channel=task.per_channel, reference=reference
            )
            root = each.square().mean().sqrt()
            return root, {"l2": root}
        return objective(
            task.group,
            task.output,
            prediction,
            target,
            None if self.config.frame is None else xi,
            batch.xi,
            self._weights(epoch),
            reference,
            batch.box,
        )

    def ratios(self, parts: dict[str, Tensor], frame: nn.Module, epoch: int) -> dict[str, Tensor]:
        """The factor by which each frame term would have the wished share of the gradient.

        Gradients are those on the weights of the frame, on which both the error and the frame terms
        depend.
        """
        own, weights = [p for p in frame.parameters() if p.requires_grad], self._weights(epoch)
        if not own:
            raise UsageError("loss.balance needs a frame with weights, and this one has none")

        def steepness(part: Tensor) -> Tensor:
            slopes = torch.autograd.grad(part, own, retain_graph=True, allow_unused=True)
            return torch.stack([s.norm() for s in slopes if s is not None]).norm()

        error = parts["l2"] + sum(
            getattr(weights, name) * parts[name] for name in ("h1", "invariant") if name in parts
        )
        wished = self.config.loss.balance * steepness(error)
        plain = {"equivariance": self.config.loss.equivariance}
        plain["anchor"] = anchor_weight(self.config.loss, epoch)
        tiny = torch.finfo(wished.dtype).tiny
        return {
            f"ratio_{name}": (
                wished / (plain[name] * steepness(parts[name])).clamp_min(tiny)
            ).clamp(1 / MOST_BALANCE, MOST_BALANCE)
            for name in BALANCED
            if name in parts
        }

    def update(self, values: dict[str, float]) -> None:
        """Note the parts of a step that was taken, and the ratios if they were measured."""
        loss = self.config.loss
        for name in BALANCED:
            if f"ratio_{name}" in values:
                kept, new = loss.balance_memory * self.balances[name], values[f"ratio_{name}"]
                self.balances[name] = kept + (1 - loss.balance_memory) * new
        if loss.h1_schedule == "ema" and values.get("h1", 0.0) > 0:
            ratio = values["l2"] / values["h1"]
            self.h1_balance = loss.h1_memory * self.h1_balance + (1 - loss.h1_memory) * ratio

    def _reference(self, batch: Batch) -> Tensor | None:
        """The field whose norm the error is divided by; None for the target itself."""
        if self.config.loss.relative_to == "moved":
            return None
        if self.config.loss.relative_to == "unmoved":
            return batch.unmoved
        axes = tuple(range(2, batch.target.ndim))
        return batch.target - batch.target.mean(dim=axes, keepdim=True)

    def _weights(self, epoch: int) -> Weights:
        loss = self.config.loss
        return Weights(
            h1=h1_weight(loss, epoch, self.config.schedule.epochs, self.h1_balance),
            equivariance=loss.equivariance * self.balances["equivariance"],
            anchor=anchor_weight(loss, epoch) * self.balances["anchor"],
            invariant=loss.invariant,
            per_channel=self.config.task.per_channel,
        )
