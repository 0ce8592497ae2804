"""What noise, missing points and a broken symmetry cost, and whether confidences show it.

noise: white, its root mean square relative to that of the field. missing: a share of the points at
random, filled with the band-limited field that fits the rest best. forcing: the samples are solved
again with a weak steady force that depends on position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import torch
from torch import Tensor

from pacefno.data.recipe import PairRecipe
from pacefno.data.samples import Pairs
from pacefno.fields import Field
from pacefno.grid import band_limit, coarsen, points, to_spectrum
from pacefno.inference import predict_batches
from pacefno.metrics import frame_distance
from pacefno.paper import style
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.presets import data_preset
from pacefno.paper.rows import FIELD_ROWS, listed
from pacefno.paper.studies.base import Cell, Outcome, Scope, Table, TrainedRow, choose, grouped
from pacefno.pde import Equation, SolverError
from pacefno.pde.initial import generator_for

# fmt: off
DEFAULT_MODELS = ("fno", "fno-aug", "fno-nogrid-centred", "pace", "pace-tta", "pace-cnn",
                  "pace-oracle", "pace-analytic")
# fmt: on
LEVELS: dict[str, tuple[float, ...]] = {  # the first of each is clean
    "noise": (0.0, 0.01, 0.03, 0.1, 0.3),
    "missing": (0.0, 0.5, 0.9, 0.97, 0.99),
    "forcing": (0.0, 0.01, 0.03, 0.1, 0.3),
}
AXIS_NAMES = {
    "noise": "noise, share of the field's rms",
    "missing": "share of missing points",
    "forcing": "effect of the force, share of the field's rms",
}
SEED = "robustness"
MODES_PER_POINT = 0.5  # unknowns per known point: with more, a fit would follow the noise
ITERATIONS = 60  # of conjugate gradients, at most
SOLVED = 1e-16  # share of the squared residual at which a system counts as solved
HALVINGS = 4  # of the solver's step, at most


# --- noise and missing points ---------------------------------------------------------------------


def add_noise(field: Tensor, level: float) -> Tensor:
    """White noise of ``level`` times the rms of each channel's variation; a sample's is its own."""
    flat = field.flatten(2)
    size = (flat - flat.mean(dim=2, keepdim=True)).square().mean(dim=2).sqrt()
    draws = [generator_for(SEED, "noise", i) for i in range(len(field))]
    shape = field.shape[1:]
    noise = [torch.randn(shape, generator=draw, dtype=torch.float64) for draw in draws]
    scale = level * size.reshape(*size.shape, *[1] * (field.ndim - 2))
    return field + scale * torch.stack(noise).to(field.dtype)


def known_points(field: Tensor, share: float) -> Tensor:
    """Which points remain when a random ``share`` of them is missing, ``(B, 1, *grid)``."""
    draws = [generator_for(SEED, "mask", i) for i in range(len(field))]
    shape = field.shape[2:]
    rows = [torch.rand(shape, generator=draw, dtype=torch.float64) for draw in draws]
    return (torch.stack(rows) >= share)[:, None]


def fill(field: Tensor, known: Tensor, iterations: int = ITERATIONS) -> Tensor:
    """The missing points from the smooth field that fits the known ones best; these stay.

    ``min |M (u - a)|`` over band-limited u, by conjugate gradients on ``P M P u = P M a``, with P
    the projection on modes up to a band that the known points can determine and M the mask.
    """
    dim = field.ndim - 2
    top = band_of(known)
    mask, values = known.double(), field.double()
    mean = (values * mask).flatten(2).sum(dim=2) / mask.flatten(2).sum(dim=2).clamp_min(1)
    centre = mean.reshape(*mean.shape, *[1] * dim)

    def normal(u: Tensor) -> Tensor:
        return band_limit(mask * u, dim, top)

    fitted = conjugate_gradients(normal, normal(values - centre), iterations)
    return torch.where(known, field, (centre + fitted).to(field.dtype))


def band_of(known: Tensor) -> int:
    """The largest wavenumber per axis up to which the known points can determine all modes."""
    count, dim = float(known.flatten(1).sum(dim=1).min()), known.ndim - 2
    most = (min(known.shape[2:]) - 1) // 2
    return max(1, min(most, int(((MODES_PER_POINT * count) ** (1 / dim) - 1) / 2)))


def conjugate_gradients(
    normal: Callable[[Tensor], Tensor], right: Tensor, iterations: int
) -> Tensor:
    """Solve ``A u = b`` for a symmetric ``A >= 0``, each sample and channel on its own."""
    u = torch.zeros_like(right)
    residual = direction = right
    power = first = dot(residual, residual)
    for _ in range(iterations):
        unsolved = power > SOLVED * first  # what is solved rests: round-off would drive it away
        image = normal(direction)
        step = torch.where(unsolved, power / dot(direction, image), 0.0)
        u, residual = u + step * direction, residual - step * image
        new = dot(residual, residual)
        direction = residual + torch.where(unsolved, new / power, 0.0) * direction
        power = new
    return u


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner products of each sample and channel, ``(B, C, 1, ...)``."""
    return (a * b).sum(dim=tuple(range(2, a.ndim)), keepdim=True)


# --- broken symmetry ------------------------------------------------------------------------------


class Forced(Equation):
    """``u_t = L u + N(u) + s sqrt(2) sin(2 pi x)`` in the last channel: no symmetry is left."""

    def __init__(self, inner: Equation, strength: float) -> None:
        self.inner, self.strength = inner, strength
        self.name, self.dim, self.channels = f"{inner.name}, forced", inner.dim, inner.channels
        self.group, self.point_group, self.cut = inner.group, inner.point_group, inner.cut

    @property
    def parameters(self) -> dict[str, float]:
        return {**self.inner.parameters, "forcing": self.strength}

    def linear(self, kappa: Tensor) -> Tensor:
        return self.inner.linear(kappa)

    def nonlinear(self, kappa: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
        inner = self.inner.nonlinear(kappa, shape)
        x = points(shape, dtype=kappa.dtype, device=kappa.device)[0]
        force = x.new_zeros(1, self.field_type().size, *shape)
        force[0, -1] = self.strength * math.sqrt(2) * torch.sin(2 * math.pi * x)
        spectrum_of_force = to_spectrum(force, self.dim)
        return lambda spectrum: inner(spectrum) + spectrum_of_force

    def invalid(self, field: Tensor) -> Tensor:
        return self.inner.invalid(field)


def forced_pairs(scope: Scope, moved: Pairs, level: float) -> Pairs:
    """Moved test samples, solved again with a force that alone would change them by ``level``.

    That is its effect on the last channel, relative to its rms, from the initial state to the last
    target. Inputs of several snapshots feel it too.
    """
    recipe, task = scope.benchmark.recipe, scope.task
    assert isinstance(recipe, PairRecipe)
    drawn = [recipe.initial_state(scope.data_seed, "test", i)[0] for i in range(len(moved))]
    states = torch.stack(drawn)
    last = states[:, -1].flatten(1)
    size = float((last - last.mean(dim=1, keepdim=True)).square().mean().sqrt())
    duration = task.output.times[-1] * task.output.step
    initial = task.group.act(Field(states, recipe.equation.field_type()), moved.elements).values
    forced = replace(recipe, equation=Forced(recipe.equation, level * size / duration))
    inputs, targets = solve_carefully(forced, initial.to(getattr(torch, recipe.precision)))
    stride = recipe.grid[0] // recipe.ood_grid(data_preset(scope.preset))[0]
    return Pairs(coarsen(inputs, stride).float(), coarsen(targets, stride).float(), moved.xi)


def solve_carefully(recipe: PairRecipe, initial: Tensor) -> tuple[Tensor, Tensor]:
    """Solve with the step of the recipe, halved where a boosted state needs it."""
    for _ in range(HALVINGS):
        try:
            return recipe.solve(initial)
        except SolverError:
            recipe = replace(recipe, step=recipe.step / 2)
    return recipe.solve(initial)


# --- the study ------------------------------------------------------------------------------------


def run(
    scope: Scope, models: Sequence[str], seeds: Sequence[int], kinds: Sequence[str], samples: int
) -> Outcome:
    """Errors of finished runs on ``samples`` OOD test samples against each kind of disturbance."""

    @lru_cache(maxsize=1)  # all rows of a level in turn
    def corrupted(kind: str, level: float) -> Pairs:
        return corrupt(scope, scope.pairs("test_ood", samples), kind, level)

    rows = scope.trained_rows(models or DEFAULT_MODELS, seeds, listed(FIELD_ROWS))
    jobs = []
    for kind in choose(kinds, list(LEVELS), "kind of disturbance"):
        for level in LEVELS[kind]:
            pairs, what = partial(corrupted, kind, level), {"kind": kind, "level": level}
            jobs += [(row.identity | what, partial(measure, row, pairs)) for row in rows]
    file = scope.file("robustness", "preset", "model", "seed", "kind", "level")
    cells = scope.measured(file, jobs, samples=samples)
    tables = [errors_table(kind, own) for kind, own in grouped(cells, "kind").items()]
    return Outcome(file.path, tables, draw(scope.benchmark, cells))


def corrupt(scope: Scope, moved: Pairs, kind: str, level: float) -> Pairs:
    """The samples as a model gets them; only a force changes the targets too."""
    if kind == "forcing":
        return forced_pairs(scope, moved, level)
    if kind == "noise":
        return replace(moved, input=add_noise(moved.input, level))
    return replace(moved, input=fill(moved.input, known_points(moved.input, level)))


def measure(row: TrainedRow, corrupted: Callable[[], Pairs]) -> Cell:
    """Errors, frames and confidences sample by sample; errors in the canonical frame."""
    model, pairs = row.trained.model, corrupted()
    made = predict_batches(model, pairs.input, row.inference, true=pairs.xi)
    plain, error = row.scope.errors(pairs, made.values)
    cell: Cell = {
        "error": float(error.mean()),
        "error_std": float(error.std()),
        "errors": error.tolist(),
        "ood_error": float(plain.mean()),
    }
    if model.group.size == 0 or row.inference == "oracle":  # no frame of its own
        return cell | dict.fromkeys(("frame_error", "confidence", "confidences", "rank"))
    confidence = made.frame.confidence.double()
    return cell | {
        "frame_error": float(frame_distance(model.group, made.frame.xi, pairs.elements).mean()),
        "confidence": float(confidence.mean()),
        "confidences": confidence.tolist(),
        "rank": rank_correlation(confidence, error),
    }


def rank_correlation(a: Tensor, b: Tensor) -> float | None:
    """Spearman's rho, from -1 to 1; None where one does not vary. Good confidences have -1."""
    centred = [ranks - ranks.mean() for ranks in (ranks_of(a.double()), ranks_of(b.double()))]
    size = float(centred[0].norm() * centred[1].norm())
    return float((centred[0] * centred[1]).sum()) / size if size > 0 else None


def ranks_of(values: Tensor) -> Tensor:
    """Places in increasing order; equal values share the mean of their places."""
    below = (values[None, :] < values[:, None]).sum(dim=1).double()
    equal = (values[None, :] == values[:, None]).sum(dim=1).double()
    return below + (equal - 1) / 2


def errors_table(kind: str, cells: list[Cell]) -> Table:
    """Errors over levels; last, how well confidence orders the errors of all levels together."""
    levels = sorted({cell["level"] for cell in cells})
    lines = []
    for model, own in grouped(cells, "model").items():
        at = grouped(own, "level")
        errors = [str(style.statistic(at.get(level, []), "error") or "") for level in levels]
        ends = [style.statistic(at.get(levels[i], []), "confidence") for i in (0, -1)]
        sure = " to ".join(map(str, ends)) if all(ends) else ""
        lines.append([style.title_of(model), *errors, sure, pooled_rank(own)])
    columns = [f"{level:g}" for level in levels] + ["confidence, first to last", "rank correlation"]
    return Table(f"OOD error, canonical frame, against {kind}", ["row", *columns], lines)


def pooled_rank(cells: list[Cell]) -> str:
    """The rank correlation of confidence and error over all samples and levels of a row."""
    known = [cell for cell in cells if cell["confidences"] is not None]
    confidences = [value for cell in known for value in cell["confidences"]]
    errors = [value for cell in known for value in cell["errors"]]
    rank = rank_correlation(torch.tensor(confidences), torch.tensor(errors)) if known else None
    return "" if rank is None else f"{rank:+.2f}"


# --- the figure -----------------------------------------------------------------------------------


def draw(benchmark: Benchmark, cells: list[Cell]) -> list[style.Drawing]:
    """One column per kind of disturbance: error above, confidence below."""
    kinds = [kind for kind in AXIS_NAMES if any(cell["kind"] == kind for cell in cells)]
    models = list(dict.fromkeys(cell["model"] for cell in cells))
    shared: style.Look = {"sharex": "col", "sharey": "row", "height_ratios": (3, 2)}
    figure, axes = style.panels(1.0 + 3.6 * len(kinds), 6.0, 2, len(kinds), **shared)
    for kind, (above, below) in zip(kinds, axes.T, strict=True):
        for model in models:
            own = [cell for cell in cells if (cell["kind"], cell["model"]) == (kind, model)]
            look = style.line_look(model, marker=True)
            style.draw_means(above, own, "level", "level", "error", look)
            style.draw_means(below, own, "level", "level", "confidence", look)
        style.finish(above, log="y")
        style.finish(below, AXIS_NAMES[kind])
        below.set_ylim(0, 1.05)
    style.label(axes[0, 0], y="OOD error, canonical frame")
    style.label(axes[1, 0], y="confidence of the frame")
    style.legend_below(figure, [style.line_look(model, marker=True) for model in models])
    caption = (
        f"{benchmark.title}: OOD error against noise on the input, against missing points (filled "
        "with the band-limited field that fits the rest), and against a weak force that breaks the "
        "symmetry; below, how sure the frames are of themselves."
    )
    return [style.Drawing(f"{benchmark.name}-robustness", caption, figure)]
