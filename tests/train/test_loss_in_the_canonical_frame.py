"""Losses are measured where it costs least: they and their derivatives are what they were."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from group_examples import EXAMPLES
from pacefno.data.recipe import PairRecipe
from pacefno.data.samples import Pairs
from pacefno.fields import Field
from pacefno.grid import band_limit, resample
from pacefno.groups import Euclidean, Galilean, Group
from pacefno.losses import objective
from pacefno.metrics import random_elements, relative_h1, relative_l2
from pacefno.pace import PACE
from pacefno.paper.benchmarks import benchmark_named, field_benchmarks
from pacefno.train.batches import Batch, PairData, Place, canonicalise_once
from pacefno.train.config import RunConfig
from pacefno.train.model import build_model
from pacefno.train.objective import Loss, PredictionAndFrame
from training_examples import settings

# Groups that say what they leave out; for the others "not known" is always right.
MOVABLE = [
    name
    for name, chosen in EXAMPLES.items()
    if chosen.group.size and type(chosen.group).in_place is not Group.in_place
]
ROUNDING = {torch.float32: 1e-6, torch.float64: 1e-12}
HERE = Place(0, 1, torch.device("cpu"))


def far(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().norm() / b.detach().norm())


def norms(a: Tensor, b: Tensor, *, pooled: bool) -> list[Tensor]:
    """All that a loss may ask for, or the L2 norm over all channels alone."""
    found = [relative_l2(a, b)]
    if not pooled:
        found += [relative_l2(a, b, per_channel=True), relative_h1(a, b)]
    return found


# --- groups ---------------------------------------------------------------------------------------


def both_ways(name: str, dtype: torch.dtype, *, pooled: bool) -> tuple[list[Tensor], ...] | None:
    """Norms and derivatives of ``act(p, xi) - y`` and of what stands for it; None if nothing."""
    example = EXAMPLES[name]
    group, grid = example.group, example.grids[0]
    target = example.field(grid, dtype)
    xi = 0.3 * random_elements(group, len(target), 4)
    ways = []
    for in_place in (False, True):
        values = target.values.roll(3, -1).clone().requires_grad_()
        at = xi.clone().requires_grad_()
        # A prediction is made in the canonical box, which a change of scale makes another one.
        predicted = Field(values, target.type, group.inverse(target, at).box)
        mine: Field | None = group.act(predicted, at)
        theirs: Field | None = target
        if in_place:
            mine = group.in_place(predicted, at, pooled=pooled)
            theirs = group.in_place(group.inverse(target, at), at, pooled=pooled)
        if mine is None or theirs is None:
            return None
        found = norms(mine.values, theirs.values, pooled=pooled)
        slopes = torch.autograd.grad(sum(part.sum() for part in found), (values, at))
        ways.append([*found, *slopes])
    return ways[0], ways[1]


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("name", MOVABLE)
def test_a_group_says_truly_what_it_leaves_out(name: str, dtype: torch.dtype, pooled: bool) -> None:
    ways = both_ways(name, dtype, pooled=pooled)
    if ways is None:
        turned = isinstance(EXAMPLES[name].group, Euclidean)  # vectors or gradients: only nearly
        assert turned and (not pooled or EXAMPLES[name].type.vectors)
        return
    # The derivative by an element sums over all points of a field, which rounds a little more.
    for way, other in zip(*ways, strict=True):
        assert far(other, way) < 10 * ROUNDING[dtype]


def test_a_boost_that_is_left_out_of_a_momentum_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Galilean, "in_place", lambda self, field, xi, pooled=False: field)
    ways = both_ways("galilean-2d-momentum", torch.float64, pooled=True)
    assert ways is not None and far(ways[1][0], ways[0][0]) > 1e-3


# --- the loss of a batch --------------------------------------------------------------------------

CHANGES = {
    "plain": (),
    "all but one": ("loss.h1=0.3", "loss.anchor=0.2"),
    "all": ("loss.h1=0.3", "loss.anchor=0.2", "loss.invariant=0.4"),
    "squared": ("loss.error=squared", "loss.equivariance=0"),
    "moved": ("loss.relative_to=moved",),
    "centred": ("loss.relative_to=centred",),
}


@cache
def smooth_states(benchmark: str, count: int) -> Tensor:
    """Fields with a place and a direction, without their short waves, on a small grid."""
    chosen = benchmark_named(benchmark)
    assert isinstance(chosen.recipe, PairRecipe)
    dim, law, grid = chosen.task.dim, chosen.recipe.law, chosen.recipe.grid
    draws = [law.draw(torch.Generator().manual_seed(i), grid) for i in range(count)]
    return resample(band_limit(torch.stack(draws), dim, 7), (32 if dim < 3 else 16,) * dim)


def some_pairs(benchmark: str, dtype: torch.dtype, count: int = 6) -> Pairs:
    """Such fields, and targets that are moved and smaller."""
    task, states = benchmark_named(benchmark).task, smooth_states(benchmark, count).to(dtype)
    ones = [1] * task.dim
    later = 0.8 * states.roll(2, -1).repeat(1, task.output.snapshots, *ones)
    return Pairs(states.repeat(1, task.input.snapshots, *ones), later)


def perturbed(config: RunConfig, dtype: torch.dtype) -> PACE:
    """A model whose frame is not the identity on the slice."""
    model = build_model(config).to(dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.frame.parameters():
            change = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight += 0.05 * change.to(weight)
    return model.train()


def slopes(total: Tensor, model: nn.Module) -> Tensor:
    weights = list(model.parameters())
    found = torch.autograd.grad(total, weights, allow_unused=True, retain_graph=True)
    return torch.cat([part.double().flatten() for part in found if part is not None])


@pytest.mark.parametrize("changes", list(CHANGES))
@pytest.mark.parametrize("benchmark", [b.name for b in field_benchmarks()])
def test_the_loss_of_a_batch_is_that_of_predictions_pushed_out(
    benchmark: str, changes: str, dtype: torch.dtype
) -> None:
    config = settings("pace", *CHANGES[changes], "schedule.batch=4", benchmark=benchmark)
    data = PairData(config, some_pairs(benchmark, dtype), some_pairs(benchmark, dtype))
    batch, model = next(data.batches(0, HERE)), perturbed(config, dtype)
    loss = Loss(config)
    total, parts = loss(PredictionAndFrame(model).train(), batch, 0)
    made = model.predict(batch.input, hint=batch.xi)
    if config.loss.error == "squared":
        expected = (made.values - batch.target).square().flatten(1).sum(dim=1).mean()
    else:
        expected, each = objective(
            config.task.group, config.task.output, made.values, batch.target, made.frame.xi,
            batch.xi, loss._weights(0), loss._reference(batch),
        )  # fmt: skip
        assert set(each) == set(parts)
        assert all(far(parts[key], each[key]) < ROUNDING[dtype] for key in each)
    assert far(total, expected) < ROUNDING[dtype]
    assert far(slopes(total, model), slopes(expected, model)) < ROUNDING[dtype]
    # The error alone says little of a frame: over the points of a field its slopes nearly cancel.
    cancelled = 100 if changes == "squared" and dtype == torch.float32 else 1
    own = slopes(total, model.frame), slopes(expected, model.frame)
    assert far(*own) < cancelled * ROUNDING[dtype]


# --- pulled back once -----------------------------------------------------------------------------


def analytic(benchmark: str, *changes: str) -> RunConfig:
    config = settings("pace", "schedule.batch=4", *changes, benchmark=benchmark)
    return config.model_copy(update={"frame": {"name": "analytic"}})


@pytest.mark.parametrize("moved", ["true", "false"])
@pytest.mark.parametrize("benchmark", [b.name for b in field_benchmarks()])
def test_pairs_pulled_back_once_give_the_same_losses_and_derivatives(
    benchmark: str, moved: str, dtype: torch.dtype
) -> None:
    config = analytic(benchmark, f"schedule.moved={moved}")
    turns = benchmark.startswith("navier")
    losses = []
    for once in (False, True):
        data = PairData(config, some_pairs(benchmark, dtype), some_pairs(benchmark, dtype))
        model = build_model(config).to(dtype).train()
        if once:
            canonicalise_once(data, model)
            nearly = "velocity" in benchmark  # turned through its curl, which is no isometry
            assert (data.canonical is None) == (nearly or (turns and moved == "true"))
        loss = Loss(config)
        for batch in data.batches(0, HERE):
            assert (batch.frame is not None) == (data.canonical is not None)
            total, parts = loss(PredictionAndFrame(model).train(), batch, 0)
            losses.append([torch.stack([total, *parts.values()]), slopes(total, model)])
    half = len(losses) // 2
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-10}[dtype]
    if benchmark == "shallow_water" and moved == "true":
        # The mean of m / h follows a shift by part of a cell as well as 16 points resolve 1 / h.
        tolerance = max(tolerance, 1e-6)
    for plain, once_each in zip(losses[:half], losses[half:], strict=True):
        apart = [far(b, a) for a, b in zip(plain, once_each, strict=True)]
        assert max(apart) < tolerance


@pytest.mark.parametrize("why", ["learned", "jitter", "invariant", "no frame", "undetermined"])
def test_pairs_are_not_pulled_back_once_where_it_would_not_be_the_same(why: str) -> None:
    changes = {"jitter": ("schedule.jitter=0.1",), "invariant": ("loss.invariant=0.1",)}
    config = analytic("burgers2d", *changes.get(why, ()))
    if why in ("learned", "no frame"):
        row = "pace" if why == "learned" else "fno"
        config = settings(row, "schedule.batch=4", benchmark="burgers2d")
    pairs = some_pairs("burgers2d", torch.float32)
    if why == "undetermined":
        pairs.input[2] = 1.0
    data = PairData(config, pairs, pairs)
    canonicalise_once(data, build_model(config))
    assert data.canonical is None
    batch = next(data.batches(0, HERE))
    assert isinstance(batch, Batch) and batch.frame is None
