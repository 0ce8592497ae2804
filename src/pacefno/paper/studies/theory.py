"""The paper's error bound, term by term and sample by sample, on a trained run; all in float64.

    |C_gT^ G(C_g0^-1 a) - u|  <=  epsilon + M_0 epsilon_geo,0 + epsilon_geo,T      M_0 = K_C L_theta

(Theorem 3.1.) The theorem takes suprema over all inputs. Per sample the same proof holds with that
sample's own numbers, and the constant that makes it a theorem is ``|G(b) - G(a_c)| / |b - a_c|``
for the b that the operator really saw.

The theorem adds what a wrong frame does on the way in to what it does on the way out. An operator
that nearly commutes with the shift by which a frame is wrong undoes the one by the other, and the
bound is then far from the error. The sharper split
``|u_pred - u| <= |u_pred - C_gT G(a_c)| + |C_gT G(a_c) - u|`` sees the two together.

The corollary about refinement: if ``J(xi) >= alpha dist(xi, Xi*)^2``, then
``|u(xi) - u| <= epsilon + K (J(xi) / alpha)^1/2``. The paper takes epsilon at the true frame and so
assumes that a self-consistent frame is the true one; here it is the error at the minimum found.

The theorem behind it is about the gradient flow ``dxi/dt = -grad J``: along it the energy falls by
what it dissipates, ``J(t) + int_0^t |grad J|^2 = J(0)``. Refiners keep the best frame on their way,
so their energy cannot rise; the flow is integrated by itself, and keeps nothing.

Theorem 3.2: with ``Pi F = mean over g of C_g^-1 F C_g`` and ``eta = sup |F C_g a - C_g F a|``, the
generalisation gap of F exceeds that of Pi F by at most ``2 L eta``. Both are measured for elements
drawn from the whole group, and the loss ``|F(a) - u| / U`` with one scale U, for which ``L = 1/U``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from torch import Tensor

from pacefno.data.samples import Pairs
from pacefno.fields import Field, FieldType
from pacefno.frames import AdamRefiner, GaussNewton, IdentityFrame, KinematicFrame
from pacefno.frames.base import Energy
from pacefno.frames.refine import energy_of
from pacefno.groups import Group
from pacefno.inference import BATCH, Inference, predict, predict_batches
from pacefno.metrics import equivariance_error, frame_distance, relative_l2
from pacefno.pace import PACE
from pacefno.paper import style
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.studies.base import (
    Cell,
    Outcome,
    RefinementPath,
    Refiner,
    Scope,
    Table,
    TrainedRow,
    batches,
    refinement_path,
)
from pacefno.task import Task
from pacefno.train.evaluate import load_run

Operator = Callable[[Tensor], Tensor]

ROUND_OFF = 1e-9  # of |u_c|, by which a bound may fail: float64 sums round at 1e-14
SMALL_GRID = 5  # points per axis on which the norm of an action is computed
DIRECTIONS = 8  # random ones, beside the steepest
ZERO_ENERGY = 1e-8  # counts as zero: residuals of 1e-4 of a radian
FLOW_STEPS = 80
MOST_PARTS = 8  # into which a step may be divided
BALANCED = 1e-3  # of the energy at the start, by which the balance of a flow may be off


@final
@dataclass(frozen=True)
class GradientFlow:
    """``dxi/dt = -grad J`` in units of the periods, by the classical Runge-Kutta method.

    The energy of a frame that is off by d periods is ``2 pi^2 d^2`` for small d, so a step is a
    quarter of the time in which the flow forgets its start. Where an energy is steeper, steps are
    divided until the balance holds, but not for ever: one that is violated stays so.
    """

    time_step: float = 0.25 / (4 * math.pi**2)


REFINERS: dict[str, tuple[Refiner | GradientFlow, tuple[int, ...]]] = {  # and steps to look at
    "gauss-newton": (GaussNewton(), tuple(range(9))),
    "adam": (AdamRefiner(), (0, 1, 2, 5, 10, 20, 50)),
    "flow": (GradientFlow(), tuple(range(0, FLOW_STEPS + 1, 4))),
}


@final
@dataclass(frozen=True)
class Effort:
    """On how many samples each part is measured: derivatives and probes of the energy cost most."""

    samples: int = 200
    derivatives: int = 12
    growth: int = 12
    elements: int = 16  # of the group, over which the operator is averaged
    iterations: int = 20  # of the power iteration
    probes: int = 32  # of the energy around its minimum
    radius: float = 0.05  # periods from the minimum within which they lie


# --- the terms ------------------------------------------------------------------------------------


class Terms(NamedTuple):
    """All ``(B,)``, norms in units of the norm of the canonical target ``|u_c|``."""

    actual: Tensor  # |u_pred - u|
    canonical: Tensor  # epsilon = |G(a_c) - u_c|: the operator's own error, in the true frame
    input_alignment: Tensor  # epsilon_geo,0 = |C_g0^-1 a - a_c|
    terminal_alignment: Tensor  # epsilon_geo,T = |C_gT^ u_c - C_gT u_c|
    action: Tensor  # K_C: how much the action that pushes the prediction out can stretch
    sensitivity: Tensor  # L_theta along b = C_g0^-1 a: |G(b) - G(a_c)| / |b - a_c|
    misalignment: Tensor  # |u_pred - C_gT G(a_c)|: all that the wrong frame changes, in and out
    with_true_frame: Tensor  # |C_gT G(a_c) - u|: the error that a perfect frame would leave

    @property
    def from_canonical(self) -> Tensor:  # K_C epsilon: an action may stretch the operator's error
        return self.action * self.canonical

    @property
    def from_input(self) -> Tensor:  # M_0 epsilon_geo,0
        return self.action * self.sensitivity * self.input_alignment

    @property
    def bound(self) -> Tensor:
        return self.from_canonical + self.from_input + self.terminal_alignment

    @property
    def bound_as_printed(self) -> Tensor:  # a theorem only where the action is an isometry
        return self.canonical + self.from_input + self.terminal_alignment

    @property
    def sharper_bound(self) -> Tensor:
        return self.misalignment + self.with_true_frame


@torch.no_grad()
def decompose(model: PACE, task: Task, pairs: Pairs, estimated: Tensor) -> Terms:
    """The terms of moved samples; ``estimated`` is the frame that the prediction is made with."""
    group, true = task.group, pairs.elements
    a_c, u_c = canonical_samples(task, pairs)
    scale = norm(u_c)
    pulled_back = group.inverse(Field(pairs.input, model.input), estimated).values
    at_truth, at_estimate = model.operator(a_c), model.operator(pulled_back)

    def push_out(values: Tensor, type: FieldType, xi: Tensor) -> Tensor:
        return group.act(Field(values, type), xi).values

    prediction = push_out(at_estimate, model.output, estimated)
    with_truth = push_out(at_truth, task.output, true)
    moved_apart = push_out(u_c, model.output, estimated) - push_out(u_c, task.output, true)
    step, response = norm(pulled_back - a_c), norm(at_estimate - at_truth)
    return Terms(
        actual=norm(prediction - pairs.target) / scale,
        canonical=norm(at_truth - u_c) / scale,
        input_alignment=step / scale,
        terminal_alignment=norm(moved_apart) / scale,
        action=action_norm(group, model.output.at(model.output.times[-1:]), estimated).to(scale),
        sensitivity=torch.where(step > 0, response / torch.where(step > 0, step, 1.0), 0.0),
        misalignment=norm(prediction - with_truth) / scale,
        with_true_frame=norm(with_truth - pairs.target) / scale,
    )


def canonical_samples(task: Task, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """``a_c`` and ``u_c``: moved samples in their true canonical frame."""
    group, true = task.group, pairs.elements
    a_c = group.inverse(Field(pairs.input, task.input), true).values
    return a_c, group.inverse(Field(pairs.target, task.output), true).values


def action_norm(group: Group, type: FieldType, xi: Tensor) -> Tensor:
    """``K_C`` of each element: the largest singular value of ``u -> C_g u - C_g 0``, ``(B,)``.

    Shifts, rotations and boosts by a constant are isometries on every grid, and a momentum boost
    acts point by point: on a tiny grid, where the matrix can be written down, the norm is the same.
    """
    size = type.size * SMALL_GRID**group.dim
    basis = torch.eye(size, dtype=torch.float64)
    basis = basis.reshape(size, type.size, *[SMALL_GRID] * group.dim)
    found = []
    for row in xi:
        moved, zero = (
            group.act(Field(values, type), row.expand(len(values), -1)).values
            for values in (basis, torch.zeros_like(basis[:1]))
        )
        found.append(torch.linalg.matrix_norm((moved - zero).flatten(1), ord=2))
    return torch.stack(found)


def count_violations(actual: Tensor, bound: Tensor) -> int:
    """On how many samples a bound does not hold, beyond round-off; NaN counts."""
    return int((~(actual <= bound + ROUND_OFF)).sum())


def norm(field: Tensor) -> Tensor:
    """The L2 norm of each sample over channels and grid, ``(B,)``."""
    return field.flatten(1).norm(dim=1)


# --- how strongly the operator answers: estimates of L_theta --------------------------------------


@torch.no_grad()
def spectral_norm(operator: Operator, field: Tensor, iterations: int = 20) -> Tensor:
    """``|DG(a)|_2`` of each sample by power iteration on ``DG' DG``, ``(B,)``: from below.

    The largest answer to an infinitesimal change. It does not bound a neighbourhood: the operator
    may be steeper a little further on.
    """
    direction = random_unit(field, seed=0)
    gain = torch.zeros(len(field), dtype=field.dtype)
    for _ in range(iterations):
        answer = torch.func.jvp(operator, (field,), (direction,))[1]  # DG(a) v, forward mode
        gain = torch.maximum(gain, norm(answer))  # every iterate is a lower bound
        with torch.enable_grad():  # DG(a)' w, reverse mode
            leaf = field.detach().clone().requires_grad_()
            direction = unit(torch.autograd.grad(operator(leaf), leaf, answer)[0])
    return gain


@torch.no_grad()
def random_gain(operator: Operator, field: Tensor) -> Tensor:
    """The largest ``|DG(a) v|`` over a few random unit directions, ``(B,)``."""
    units = [random_unit(field, seed) for seed in range(DIRECTIONS)]
    gains = [norm(torch.func.jvp(operator, (field,), (v,))[1]) for v in units]
    return torch.stack(gains).amax(dim=0)


def unit(field: Tensor) -> Tensor:
    """Each sample divided by its norm."""
    size = norm(field).clamp_min(torch.finfo(field.dtype).tiny)
    return field / size.reshape(-1, *[1] * (field.ndim - 1))


def random_unit(field: Tensor, seed: int) -> Tensor:
    """Random directions of unit norm, one per sample."""
    generator = torch.Generator().manual_seed(seed)
    return unit(torch.randn(field.shape, dtype=field.dtype, generator=generator))


# --- refinement: quadratic growth of the energy, its gradient flow, and the corollary -------------


class Flow(NamedTuple):
    """A gradient flow after some steps: frames ``(S, B, size)``, all else ``(S, B)``."""

    xi: Tensor
    energy: Tensor
    gradient: Tensor  # |grad J|, in units of the periods
    dissipated: Tensor  # the integral of its square so far

    @property
    def imbalance(self) -> Tensor:
        """``J(t) + int_0^t |grad J|^2 - J(0)`` over ``J(0)``: zero, says the theorem."""
        return (self.energy + self.dissipated) / self.energy[0] - 1


def gradient_flow(
    energy: Energy, field: Field, xi: Tensor, steps: Sequence[int], time_step: float
) -> Flow:
    """Follow the flow of the spatial coordinates from ``xi``; the measured ones stay."""
    parts = 1
    while True:
        finer = [parts * step for step in steps]
        flow = _integrate(energy, field, xi, finer, time_step / parts)
        if parts >= MOST_PARTS or float(flow.imbalance.abs().max()) <= BALANCED:
            return flow
        parts *= 2


def _integrate(
    energy: Energy, field: Field, xi: Tensor, steps: Sequence[int], time_step: float
) -> Flow:
    """The flow with steps of one length, after some of them."""
    group, found = energy.group, list[tuple[Tensor, ...]]()
    periods, kinematic = xi.new_tensor(group.periods[: group.spatial]), xi[:, group.spatial :]

    def frame(place: Tensor) -> Tensor:
        return torch.cat([place * periods, kinematic], dim=1)

    def descend(place: Tensor) -> tuple[Tensor, Tensor]:
        """The energy and its gradient."""
        with torch.enable_grad():
            leaf = place.detach().clone().requires_grad_()
            value = energy_of(energy.residual(field, frame(leaf)))
            return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]

    place, dissipated = xi[:, : group.spatial] / periods, xi.new_zeros(len(xi))
    for step in range(max(steps) + 1):
        value, first = descend(place)
        if step in steps:
            found.append((group.wrap(frame(place)), value, first.norm(dim=1), dissipated))
        slopes = [first]
        for share in (0.5, 0.5, 1.0):
            slopes.append(descend(place - share * time_step * slopes[-1])[1])
        weights = time_step / 6, time_step / 3, time_step / 3, time_step / 6
        for weight, slope in zip(weights, slopes, strict=True):
            place = place - weight * slope
            dissipated = dissipated + weight * slope.square().sum(dim=1)
    return Flow(*(torch.stack(column) for column in zip(*found, strict=True)))


class Growth(NamedTuple):
    """What was measured about each sample, ``(B,)``, and along its path, ``(S, B)``."""

    alpha: Tensor  # the largest alpha that quadratic growth allows on the probes
    slope: Tensor  # K: change of the prediction over distance of the frame, the largest
    pull: Tensor  # L_a: change of the pulled-back field over distance of the frame, the largest
    at_minimum: Tensor  # the error with the frame of least energy
    settled: Tensor  # whether that energy is zero: the corollary assumes it
    energy: Tensor  # along the path
    distance: Tensor  # of the path from the minimum
    error: Tensor  # of the prediction along the path
    flow: Flow | None = None  # where the path is one

    @property
    def bound(self) -> Tensor:
        """The corollary's right side along the path."""
        return self.at_minimum + self.slope * (self.energy / self.alpha).sqrt()

    def cell(self) -> Cell:
        """As plain data; the corollary is checked on samples whose least energy is zero."""
        error, bound = self.error[:, self.settled], self.bound[:, self.settled]
        along = {key: getattr(self, key).mean(dim=1) for key in ("energy", "distance", "error")}
        each = {key: getattr(self, key) for key in ("alpha", "slope", "pull", "at_minimum")}
        flow: Cell = {}
        if self.flow is not None:
            flow = {
                "gradient": self.flow.gradient.mean(dim=1).tolist(),
                "imbalance": float(self.flow.imbalance.abs().max()),
            }
        return (
            {key: values.tolist() for key, values in (along | each).items()}
            | flow
            | {
                "bound": bound.mean(dim=1).tolist() if bound.numel() else None,
                "settled": int(self.settled.sum()),
                "rises": int((self.energy.diff(dim=0) > ROUND_OFF * self.energy[0]).sum()),
                "violations": count_violations(error, bound),
                "checked": error.numel(),
            }
        )


@torch.no_grad()
def measure_growth(
    model: PACE,
    task: Task,
    pairs: Pairs,
    refiner: Refiner | GradientFlow,
    steps: tuple[int, ...],
    radius: float = Effort.radius,
    probes: int = Effort.probes,
) -> Growth:
    """Probe the energy within ``radius`` periods of its minimum, and refine from a displaced frame.

    Displaced, because a frame that is consistent with itself has no path at all.
    """
    energy, field = model.frame.energy(), Field(pairs.input, model.input)
    estimate = model.frame_of(pairs.input).xi
    best = GaussNewton(steps=30)(energy, field, estimate)
    scale = norm(canonical_samples(task, pairs)[1])
    generator = torch.Generator().manual_seed(0)
    at_best = model.at(pairs.input, best.xi)
    pulled = model.group.inverse(field, best.xi).values
    ratios, slopes, pulls = [], [], []
    for _ in range(probes):
        probe = displace(model.group, best.xi, radius, generator)
        distance = frame_distance(model.group, probe, best.xi)
        ratios.append(energy_of(energy.residual(field, probe)) / distance.square())
        slopes.append(norm(model.at(pairs.input, probe) - at_best) / scale / distance)
        change = model.group.inverse(field, probe).values - pulled
        pulls.append(norm(change) / norm(pulled) / distance)
    start = displace(model.group, estimate, radius, generator, at_least=0.5)
    path: Flow | RefinementPath
    if isinstance(refiner, GradientFlow):
        path = gradient_flow(energy, field, start, steps, refiner.time_step)
    else:
        path = refinement_path(refiner, energy, field, start, *steps)
    errors = [norm(model.at(pairs.input, xi) - pairs.target) / scale for xi in path.xi]
    return Growth(
        alpha=torch.stack(ratios).amin(dim=0),
        slope=torch.stack(slopes).amax(dim=0),
        pull=torch.stack(pulls).amax(dim=0),
        at_minimum=norm(at_best - pairs.target) / scale,
        settled=best.energy_after < ZERO_ENERGY,
        energy=path.energy,
        distance=torch.stack([frame_distance(model.group, xi, best.xi) for xi in path.xi]),
        error=torch.stack(errors),
        flow=path if isinstance(path, Flow) else None,
    )


def displace(
    group: Group, xi: Tensor, radius: float, generator: torch.Generator, *, at_least: float = 0.0
) -> Tensor:
    """Frames in random directions, ``at_least * radius`` to ``radius`` periods away."""
    direction = torch.randn(len(xi), group.spatial, dtype=torch.float64, generator=generator)
    share = torch.rand(len(xi), 1, dtype=torch.float64, generator=generator)
    length = radius * (at_least + (1 - at_least) * share)
    step = length * direction / direction.norm(dim=1, keepdim=True)
    moved = xi.clone()
    moved[:, : group.spatial] += step * step.new_tensor(group.periods[: group.spatial])
    return group.wrap(moved)


# --- the projection onto equivariant operators ----------------------------------------------------


class Projected(NamedTuple):
    """Of samples ``(B,)`` in units of the root mean square norm of all targets."""

    error: Tensor  # |F(a) - u|
    projected: Tensor  # |Pi F(a) - u|
    apart: Tensor  # |F(a) - Pi F(a)|
    eta: Tensor  # the largest |F(C_g a) - C_g F(a)| over the elements


def moved_answers(
    operate: Operator, task: Task, field: Tensor, elements: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """``F(C_g a)`` for each element of ``(K, size)``, with the element once for every sample."""
    for element in elements:
        xi = element.expand(len(field), -1)
        yield xi, operate(task.group.act(Field(field, task.input), xi).values)


@torch.no_grad()
def project(
    operate: Operator, task: Task, pairs: Pairs, elements: Tensor, unit: float
) -> Projected:
    """The average ``Pi F`` of an operator over elements ``(K, size)``, beside the operator."""
    group, parts = task.group, []
    for rows in batches(len(pairs)):
        a, u = pairs.input[rows], pairs.target[rows]
        plain, total, residuals = operate(a), torch.zeros_like(u), []
        for xi, there in moved_answers(operate, task, a, elements):
            wanted = group.act(Field(plain, task.output), xi).values
            residuals.append(norm(there - wanted))
            total += group.inverse(Field(there, task.output), xi).values
        mean = total / len(elements)
        eta = torch.stack(residuals).amax(dim=0)
        parts.append(torch.stack([norm(plain - u), norm(mean - u), norm(plain - mean), eta]))
    return Projected(*(torch.cat(parts, dim=1) / unit))


def measure_projection(operate: Operator, scope: Scope, effort: Effort) -> Cell:
    """Theorem 3.2 on training and held-out samples as they are, on the training grid."""
    task, (_, high) = scope.task, scope.benchmark.ood
    splits = [scope.pairs(s, effort.samples, "id").to(torch.double) for s in ("train", "test_id")]
    unit = float(torch.cat([norm(pairs.target) for pairs in splits]).square().mean().sqrt())
    generator = torch.Generator().manual_seed(0)
    elements = task.group.sample([0.0] * task.group.size, high, effort.elements, generator)
    seen, held_out = (project(operate, task, pairs, elements, unit) for pairs in splits)
    # Where an action is no isometry (a momentum boost) its inverse may stretch the residual.
    last = task.output.at(task.output.times[-1:])
    stretch = float(action_norm(task.group, last, task.group.inverse_element(elements)).max())
    eta = stretch * float(torch.cat([seen.eta, held_out.eta]).max())
    gap, gap_projected = (
        float(after.mean() - before.mean())
        for after, before in ((held_out.error, seen.error), (held_out.projected, seen.projected))
    )
    apart = torch.cat([seen.apart, held_out.apart])
    return {
        "elements": len(elements),
        "samples": len(apart),
        "eta": eta,
        "eta_mean": float(torch.cat([seen.eta, held_out.eta]).mean()),
        "stretch": stretch,
        "error": float(held_out.error.mean()),
        "error_projected": float(held_out.projected.mean()),
        "gap": gap,
        "gap_projected": gap_projected,
        "bound": gap_projected + 2 * eta,
        "holds": gap <= gap_projected + 2 * eta + ROUND_OFF,
        "violations": count_violations(apart, stretch * torch.cat([seen.eta, held_out.eta])),
    }


# --- the study ------------------------------------------------------------------------------------


def run(
    scope: Scope,
    run: Path,
    model: str,
    samples: int,
    derivatives: int,
    growth: int,
    elements: int,
    data_seed: int,
) -> Outcome:
    """Take the error of a finished run apart: which term limits it, and so what to improve.

    ``model`` is another row with the same weights, such as ``pace-tta``. The first ``samples`` OOD
    samples are measured, some also with derivatives of the operator and probes of the energy.
    """
    config, scope = load_run(run).config, replace(scope, data_seed=data_seed)
    row = TrainedRow(scope, model or config.labels["model"], config.seed, run)
    effort = Effort(samples, derivatives, growth, elements)
    asked: Cell = {"samples": samples, "derivatives": derivatives, "growth": growth}
    asked |= {"elements": elements, "flow_steps": FLOW_STEPS}

    def take_apart() -> Cell:
        scope.say(f"taking {run} apart")
        return measure(row.trained.model, row.inference, scope, effort)

    file = scope.file("theory", "preset", "seed", detail=row.name)
    jobs = [(row.identity, take_apart)]
    [cell] = scope.measured(file, jobs, seed=row.seed, asked=asked, data_seed=data_seed)
    title = f"{scope.benchmark.title}, {style.title_of(row.name)}, preset {scope.preset}"
    tables = [terms_table(cell, f"{title}, seed {row.seed}")]
    sentences = [*notes(cell), verdict(cell)]
    return Outcome(file.path, tables, [draw_run(scope.benchmark, cell)], sentences)


def measure(model: PACE, inference: Inference, scope: Scope, effort: Effort) -> Cell:
    """All terms of one model, computed in float64."""
    model, task = model.double(), scope.task
    moved = scope.pairs("test_ood", effort.samples).to(torch.double)
    made = predict_batches(model, moved.input, inference, true=moved.elements)
    xi = made.frame.xi if model.group.size else task.group.identity(len(moved))
    parts = [decompose(model, task, moved.select(r), xi[r]) for r in batches(len(moved))]
    terms = Terms(*(torch.cat(columns) for columns in zip(*parts, strict=True)))
    cell = {"samples": len(moved), "terms": {k: v.tolist() for k, v in terms._asdict().items()}}
    cell |= bounds_of(terms)

    # Local estimates of L at the canonical inputs, and the bound with the steepest one.
    a_c = canonical_samples(task, moved.select(slice(effort.derivatives)))[0]
    steepest = spectral_norm(model.operator, a_c, effort.iterations)
    own = Terms(*(values[: len(a_c)] for values in terms))
    bound = own._replace(sensitivity=steepest).bound
    cell["operator"] = {
        "steepest": steepest.tolist(),
        "random": random_gain(model.operator, a_c).tolist(),
        "bound_with_steepest": bound.tolist(),
        "violations_with_steepest": count_violations(own.actual, bound),
    }
    # The commutation residual eta_G over the whole group; the true frame is no function of a field.
    cell["commutation"] = cell["projection"] = None
    if inference != "oracle":

        def operate(x: Tensor) -> Tensor:
            return predict(model, x, inference).values

        cell["projection"] = measure_projection(operate, scope, effort)
        eta = equivariance_error(
            operate,
            task.group,
            scope.pairs("test_id", BATCH).input.double(),
            input=task.input,
            output=task.output,
        )
        cell["commutation"] = {"mean": float(eta.mean()), "max": float(eta.max())}
    # Gen_N = R - R_N: held-out less training error, both canonical and on the ID grid.
    risks = {}
    for name, split in (("train", "train"), ("test", "test_id")):
        pairs = scope.pairs(split, effort.samples, "id").to(torch.double)
        values = predict_batches(model, pairs.input, inference).values
        error = relative_l2(values, pairs.target, per_channel=task.per_channel)
        risks[name] = float(error.mean())
    cell["generalisation"] = risks | {"gap": risks["test"] - risks["train"]}
    if moved.resolved is not None:
        defect = norm(moved.target - moved.resolved) / norm(moved.resolved)
        cell["symmetry_defect"] = float(defect.mean())
    cell["refinement"] = None
    if model.group.spatial and not isinstance(model.frame, IdentityFrame | KinematicFrame):
        few, how = moved.select(slice(effort.growth)), (effort.radius, effort.probes)
        cell["refinement"] = {
            name: {"steps": list(steps)}
            | measure_growth(model, task, few, refiner, steps, *how).cell()
            for name, (refiner, steps) in REFINERS.items()
        }
    return cell


def bounds_of(terms: Terms) -> Cell:
    """The bounds beside the error, per sample and in the paper's form with suprema."""
    top, total = Terms(*(values.max() for values in terms)), terms.bound.sum()
    return {
        "bound": terms.bound.tolist(),
        "violations": count_violations(terms.actual, terms.bound),
        "sharper_bound": terms.sharper_bound.tolist(),
        "violations_sharper": count_violations(terms.actual, terms.sharper_bound),
        "violations_as_printed": count_violations(terms.actual, terms.bound_as_printed),
        "supremum": {"error": float(top.actual), "bound": float(top.bound)},
        "shares": {
            "canonical": float(terms.from_canonical.sum() / total),
            "input": float(terms.from_input.sum() / total),
            "terminal": float(terms.terminal_alignment.sum() / total),
        },
    }


# --- in words -------------------------------------------------------------------------------------


def verdict(cell: Cell) -> str:
    """What limits the error and so what to improve, and what a perfect frame would gain."""
    terms, risk = cell["terms"], cell["generalisation"]
    keys = ("actual", "with_true_frame", "misalignment")
    error, floor, wrong = (statistics.fmean(terms[key]) for key in keys)
    share, seen = wrong / (wrong + floor), risk["train"] / risk["test"]
    if share > 0.5:
        worst = max(("input", "terminal"), key=lambda name: cell["shares"][name])
        text = f"Misalignment makes up {share:.0%}, most by the {worst} frame: improve the frame"
    else:
        what = "train it on more samples" if seen < 0.5 else "improve the operator"
        text = f"The operator's own error makes up {1 - share:.0%}: {what}"
    text += (
        f" (on known samples the error is {seen:.0%} as large). A perfect frame would lower the "
    )
    text += f"error by {max(0.0, 1 - floor / error):.1%}."
    ratio = statistics.fmean(cell["bound"]) / error
    if ratio >= 2:
        text += f" The theorem's bound is {ratio:.1f} times the error: it does not see that the "
        text += "operator nearly commutes with what the frame is wrong by."
    return text


def notes(cell: Cell) -> list[str]:
    """Where the bounds hold, violations first: a bound that fails must not be overlooked."""
    count, operator, top = cell["samples"], cell["operator"], cell["supremum"]
    tried = len(operator["steepest"])
    lines = [
        f"The bound holds on {count - cell['violations']} of {count} samples, the sharper one on "
        f"{count - cell['violations_sharper']}, the one printed in the paper on "
        f"{count - cell['violations_as_printed']}; with the steepest direction at a_c for L on "
        f"{tried - operator['violations_with_steepest']} of {tried}. With suprema: largest error "
        f"{top['error']:.3g}, bound {top['bound']:.3g}."
    ]
    if "symmetry_defect" in cell:
        defect = f"{cell['symmetry_defect']:.2%}"
        lines.append(f"The group is a symmetry of the solver only up to {defect}.")
    if mean := cell.get("projection"):
        lines.append(
            f"Averaged over {mean['elements']} elements, the operator's error goes from "
            f"{mean['error']:.4g} to {mean['error_projected']:.4g} and its generalisation gap from "
            f"{mean['gap']:.4g} to {mean['gap_projected']:.4g}; eta is {mean['eta']:.3g}, so the "
            f"gap may be up to {mean['bound']:.4g}: Theorem 3.2 "
            f"{'holds' if mean['holds'] else 'FAILS'}. The operator is further than its own "
            f"residual from its average on {mean['violations']} of {mean['samples']} samples."
        )
    for name, path in (cell.get("refinement") or {}).items():
        alpha, energy, steps = path["alpha"], path["energy"], path["steps"][-1]
        lines.append(
            f"Refinement ({name}) from displaced frames: energy {energy[0]:.2g} -> "
            f"{energy[-1]:.2g} in {steps} steps, rises {path['rises']}"
            + (f", {balance(path)}" if "imbalance" in path else "")
            + "; quadratic growth alpha "
            f"{min(alpha):.3g} (least) {statistics.median(alpha):.3g} (median); the corollary "
            f"holds at {path['checked'] - path['violations']} of {path['checked']} points."
        )
    return lines


def balance(path: Cell) -> str:
    """What is known of a gradient flow beside its energy."""
    less = path["gradient"][-1] / path["gradient"][0]
    return (
        f"J + ∫|∇J|² = J(0) within {path['imbalance']:.1g} of it, |∇J| falls to {less:.1g} of its "
        "start"
    )


def terms_table(cell: Cell, title: str) -> Table:
    """The terms over the samples in units of ``|u_c|``, and errors relative to the field itself."""
    terms, eta, risk = cell["terms"], cell["commutation"], cell["generalisation"]
    rows = {
        "actual error": terms["actual"],
        "sharper bound": cell["sharper_bound"],
        "  error with the true frame": terms["with_true_frame"],
        "  misalignment, in and out": terms["misalignment"],
        "the theorem's bound": cell["bound"],
        "  canonical error ε": terms["canonical"],
        "  input alignment ε_geo,0": terms["input_alignment"],
        "  terminal alignment ε_geo,T": terms["terminal_alignment"],
        "  K_C of the action": terms["action"],
        "  L along the perturbation": terms["sensitivity"],
        "  L, steepest direction": cell["operator"]["steepest"],
        "  L, random directions": cell["operator"]["random"],
    }
    lines = [
        [name, *(f"{of(values):.3g}" for of in (statistics.fmean, statistics.median, max))]
        for name, values in rows.items()
    ]
    if eta:
        lines.append(["commutation residual", f"{eta['mean']:.2g}", "", f"{eta['max']:.2g}"])
    for key, name in (("test", "held out"), ("train", "training"), ("gap", "gap")):
        lines.append([f"canonical error, {name}", f"{risk[key]:.4f}", "", ""])
    return Table(title, ["in units of |u_c|", "mean", "median", "largest"], lines)


# --- the figure -----------------------------------------------------------------------------------

LEAST_ENERGY = 1e-16  # energies below are drawn there: a logarithm has no zero


def draw(benchmark: Benchmark, cells: list[Cell]) -> list[style.Drawing]:
    """One figure per row, of its first seed; all but that of ``pace`` are folded on the page."""
    first: dict[str, Cell] = {}
    for cell in sorted(cells, key=lambda cell: (cell["model"], cell["seed"])):
        first.setdefault(cell["model"], cell)
    drawings = [(name, draw_run(benchmark, cell)) for name, cell in first.items()]
    return [replace(drawing, folded=name != "pace") for name, drawing in drawings]


def draw_run(benchmark: Benchmark, cell: Cell) -> style.Drawing:
    """The bound of every sample as a stack of its terms; energy and error along refinement."""
    refinement = cell.get("refinement")
    figure, (axes,) = style.panels(*((11.0, 4.2, 1, 3) if refinement else (6.0, 4.2)))
    draw_stack(axes[0], cell)
    text = ""
    if refinement:
        draw_paths(axes[1], axes[2], refinement)
        text = (
            " Middle and right: refinement from displaced frames, its energy, and the error below "
            "the bound that it gives."
        )
    handles = [handle for axis in axes for handle in axis.get_legend_handles_labels()[0]]
    style.legend_below(figure, handles, columns=4)
    caption = (
        f"{benchmark.title}, {style.title_of(cell['model'])}. The error of each OOD sample below "
        "its bound, which is the sum of the operator's canonical error and of what misalignment of "
        "input and output adds, in units of the canonical target; the line is the sharper bound, "
        f"which sees both misalignments together.{text}"
    )
    return style.Drawing(f"{benchmark.name}-theory-{cell['model']}", caption, figure)


def draw_stack(axis: Axes, cell: Cell) -> None:
    """Samples by their bound: its terms on each other, the sharper bound and the actual error."""
    order = sorted(range(cell["samples"]), key=lambda i: cell["bound"][i])
    terms = Terms(**{key: torch.tensor(cell["terms"][key])[order] for key in Terms._fields})
    stack = {
        "canonical error": (terms.from_canonical, style.SKY),
        "from input alignment": (terms.from_input, style.ORANGE),
        "terminal alignment": (terms.terminal_alignment, style.GREEN),
    }
    heights, colours = [h.tolist() for h, _ in stack.values()], [c for _, c in stack.values()]
    axis.stackplot(range(len(order)), *heights, labels=list(stack), colors=colours, alpha=0.85)
    black: style.Look = {"color": style.BLACK}
    sharper = [cell["sharper_bound"][i] for i in order]
    axis.plot(sharper, "-", linewidth=0.9, label="sharper bound", **black)
    axis.plot(terms.actual.tolist(), ".", markersize=3.5, label="actual error", **black)
    axis.set_xlim(0, max(1, len(order) - 1))
    axis.set_ylim(bottom=0)
    style.finish(axis, "OOD samples, by their bound", "error / norm of the canonical target")


def draw_paths(energies: Axes, errors: Axes, refinement: Cell) -> None:
    """Energy and error along refinement, with the corollary's bound."""
    looks = {
        "gauss-newton": ("Gauss-Newton", style.BLUE, "o"),
        "adam": ("Adam", style.VERMILION, "s"),
    }
    for name, (title, colour, marker) in looks.items():
        path = refinement[name]
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4}
        energy = [max(value, LEAST_ENERGY) for value in path["energy"]]
        energies.plot(path["steps"], energy, label=title, **look)
        errors.plot(path["steps"], path["error"], **look)
        if path["bound"]:
            broken: style.Look = {"linestyle": "--", "color": colour, "label": f"bound, {title}"}
            errors.plot(path["steps"], path["bound"], **broken)
    energies.set_yscale("log")
    for axis, y in ((energies, "energy, mean over samples"), (errors, "error, mean over samples")):
        axis.set_xscale("symlog", linthresh=1)
        axis.set_xlim(left=0)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        style.finish(axis, "steps of refinement", y)
    errors.set_ylim(bottom=0)
