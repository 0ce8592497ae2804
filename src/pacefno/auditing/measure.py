"""Any model on samples moved by every symmetry of a task, beside what would be possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

from pacefno.auditing.motions import EVERYTHING, FINITE, POINT, Motion, largest, plan_motions
from pacefno.auditing.result import Audit, Row
from pacefno.errors import UsageError
from pacefno.fields import AXES, Field
from pacefno.grid import FieldError, check_field
from pacefno.groups import Group, PointGroup, Product
from pacefno.metrics import relative_l2
from pacefno.operators import Adapted, Symmetrised
from pacefno.pace import PACE

if TYPE_CHECKING:
    from pacefno.task import Task

Model = Callable[[Tensor], Tensor]
Progress = Callable[[int, int, str], None]  # motions measured, how many there are, which is next
BATCH = 20
REST = "at rest"
SAME = 1e-3  # of the spread of the targets: predictions that differ by less are all the same
EDGE = 8  # a strip of an eighth of the box on either side of an edge
TINY = 1e-12  # of the energy of the prediction, so that odds stay finite


def wrap(model: Model, task: Task) -> PACE:
    """A model, made to follow the group of a task by PACE with the task's slice.

    ``model`` is a function, or a module, which is put into evaluation mode; nothing is trained.
    Within PACE it is averaged over the finite part of the group, if it has one.
    """
    operator = model if isinstance(model, nn.Module) else Adapted(model)
    with suppress(NotImplementedError):  # an exported program has no modes
        operator.eval()
    if (points := finite_part(task.group)) is not None:  # which no frame can find
        operator = Symmetrised(operator, points, task.input.text, task.output.text)
        operator.training = False
    frame = task.slice.frame()
    found = PACE(operator, task.group, input=task.input, output=task.output, frame=frame)
    found.frame.eval()
    found.training = False
    return found


def finite_part(group: Group) -> PointGroup | None:
    """The mirrors and turns of a group: all of a point group, one factor of a product."""
    if isinstance(group, Product):
        return group.point
    return group if isinstance(group, PointGroup) else None


@torch.no_grad()
def audit(
    model: Model,
    task: Task,
    input: Tensor,
    target: Tensor,
    *,
    point_group: str | PointGroup | None = None,
    sizes: Mapping[str, Sequence[float]] | None = None,
    inexact: bool = False,
    steps: int = 1,
    batch: int | None = None,
    seed: int = 0,
    name: str | None = None,
    on_progress: Progress | None = None,
) -> Audit:
    """Measure a model on samples moved by every symmetry of a task, alone and together.

    Args:
        model: any callable on ``(B, C, *grid)``; a module is put into evaluation mode.
        task: what the fields are and which group they have; see :class:`~pacefno.task.Task`.
        input, target: samples ``(N, C, *grid)`` that the model was not trained on.
        point_group: mirrors and quarter turns that the equation has, where the task does not say:
            ``"z2"`` in one dimension, ``"p4"`` or ``"p4m"`` on a square grid, ``"diagonal"``.
        sizes: how far to move, by coordinate: shifts in cells, angles in degrees, velocities in the
            units of the data. By default from a quarter of a cell to half the box, and up to twice
            the typical speed of the samples.
        inexact: also measure motions that are no symmetry of these fields, such as turning a field
            that fills its periodic box.
        steps: audit so many predictions in a row, each the input of the next; ``target`` is then
            the output of ``task.later(steps)``. Remedies are applied in every step.
        batch: how many samples the model is given at once, always as many (up to 20).
        name: what to call the model.
        on_progress: called before every motion, and at the end.
    """
    given, wanted = _checked(task, task if steps == 1 else task.later(steps), input, target)
    motions, left_out = plan_motions(
        task.group, given, wanted, sizes=sizes, inexact=inexact, seed=seed
    )
    points = PointGroup(point_group) if isinstance(point_group, str) else point_group
    points = finite_part(task.group) if points is None else points
    if points is None:
        left_out.append(
            "mirrors and turns: a task does not tell which the equation has; say them, "
            "point_group='p4m' (--point-group p4m)"
        )
    else:
        for type in (task.input, task.output):
            points.check_action(type)
        alone = [_point_motion(points, element, given) for element in range(1, points.order)]
        motions += alone + [_mirrored(far, points, given, seed) for far in motions[-1:]]
    if not motions:
        raise UsageError(f"nothing to audit: {'; '.join(left_out)}")
    bench = _Bench(model, task, given, wanted, points, steps, batch)
    rows, predictions, far = [bench.rest], [bench.at_rest], largest(motions)
    for done, motion in enumerate(motions):
        if on_progress:
            on_progress(done, len(motions), f"{motion.family}: {motion.label}")
        row, prediction = bench.measure(motion, remedies=motion in far)
        rows.append(row)
        if motion.family == POINT:
            predictions.append(prediction)
    if on_progress:
        on_progress(len(motions), len(motions), "")
    if points is not None and steps == 1:
        at = [0, *(i for i, row in enumerate(rows) if row.family == POINT)]  # of its elements
        for place, error in zip(at, bench.averaged(points, predictions), strict=True):
            rows[place] = replace(rows[place], averaged=error)
    return Audit(
        model=name or _name_of(model),
        task=task.name,
        samples=len(input),
        steps=steps,
        grid=given.grid,
        precision=str(bench.like.dtype).removeprefix("torch."),
        rest=rows[0],
        rows=tuple(rows[1:]),
        left_out=tuple(left_out),
        undetermined=tuple(name for name in task.group.coordinates if name in bench.lost),
        ignores_input=bench.ignores_input(),
        point_group=None if points is None else points.which,
    )


def _checked(task: Task, last: Task, input: Tensor, target: Tensor) -> tuple[Field, Field]:
    if task.rollout is not None:
        raise UsageError(
            "audit: expected a task from snapshots to snapshots, got one of trajectories: say how "
            "many with task.over(history, future) and leave out rollout"
        )
    for name, values, type in (("input", input, task.input), ("target", target, task.output)):
        channels = type.size if type.quantities else None
        check_field(values, channels=channels, dim=type.dim, name=name)
    if len(input) != len(target) or input.shape[2:] != target.shape[2:] or not len(input):
        raise FieldError(
            f"expected inputs and targets of as many samples on one grid, got {tuple(input.shape)} "
            f"and {tuple(target.shape)}"
        )
    return Field(input, task.input), Field(target, last.output)


def _point_motion(points: PointGroup, element: int, given: Field) -> Motion:
    xi = torch.full((len(given), 1), float(element), dtype=torch.float64)
    act, undo = partial(points.act, xi=xi), partial(points.inverse, xi=xi)
    label = describe_element(points, element)
    return Motion(POINT, points.which, float(element), label, act, undo)


def _mirrored(motion: Motion, points: PointGroup, given: Field, seed: int) -> Motion:
    """A motion after a mirror or turn, each sample by an element of its own that moves it."""
    generator = torch.Generator().manual_seed(seed)
    xi = torch.randint(1, max(2, points.order), (len(given), 1), generator=generator).double()

    def act(field: Field) -> Field:
        return motion.act(points.act(field, xi))

    def undo(field: Field) -> Field:
        return points.inverse(motion.undo(field), xi)

    return Motion(EVERYTHING, EVERYTHING, 1.0, f"{motion.label}, {points.which}", act, undo)


def describe_element(points: PointGroup, element: int) -> str:
    """Where an element carries a point: ``(x, y) -> (-y, x)``."""
    one = points.elements[element]
    places = []
    for row, by in zip(one.matrix, one.shift, strict=True):
        axis = [abs(entry) for entry in row].index(1)
        places.append(f"{'-' if sum(row) < 0 else ''}{AXES[axis]}{f' + {by}' if by else ''}")
    sign = ", times -1" if one.sign < 0 else ""
    before, after = ", ".join(AXES[: points.dim]), ", ".join(places)
    return f"{before} -> {after}{sign}" if points.dim == 1 else f"({before}) -> ({after}){sign}"


def _name_of(model: Model) -> str:
    return getattr(model, "__name__", type(model).__name__)


@final
class _InBatches(nn.Module):
    """A model that is never given more than a batch at once; an average asks for several."""

    def __init__(self, model: Model, batch: int) -> None:
        super().__init__()
        self.model = model if isinstance(model, nn.Module) else Adapted(model)
        self.batch = batch

    def forward(self, values: Tensor) -> Tensor:
        return torch.cat([self.model(part) for part in torch.split(values, self.batch)])


class _Bench:
    """A model, the same within PACE, averaged, and both, on one set of samples."""

    def __init__(
        self,
        model: Model,
        task: Task,
        given: Field,
        wanted: Field,
        points: PointGroup | None,
        steps: int,
        batch: int | None,
    ) -> None:
        self.model, self.task, self.steps = model, task, steps
        self.given, self.wanted = given, wanted
        self.batch = batch or min(BATCH, len(given))
        operator = _InBatches(model, self.batch)
        self.pace = wrap(operator, task)
        self.remedies: dict[str, nn.Module] = {}
        if points is not None:
            average = Symmetrised(operator, points, task.input.text, task.output.text)
            average.training = False
            self.remedies["averaged"] = average
            if finite_part(task.group) is None:  # or PACE has averaged already
                self.remedies["both"] = wrap(average, task)
        for one in (self.pace, *self.remedies.values()):
            if isinstance(one, PACE):
                one.on_undetermined = "ignore"  # they are counted
        self.lost: set[str] = set()  # coordinates that some field does not determine
        weights = model.parameters() if isinstance(model, nn.Module) else ()
        self.like = next((w for w in weights if w.is_floating_point()), given.values)
        self.at_rest = self._predict(given.values)
        self.wrapped_at_rest, lost = self._predict_wrapped(given.values)
        still = Motion(REST, "", 0.0, REST, _nothing, _nothing)
        self.rest = self._row(still, self.at_rest, self.wrapped_at_rest, lost)
        self.rest = self._mended(still, self.rest)

    def measure(self, motion: Motion, *, remedies: bool) -> tuple[Row, Tensor]:
        """The row of a motion, and the predictions of the model as it is."""
        moved = motion.act(self.given).values
        prediction = self._predict(moved)
        row = self._row(motion, prediction, *self._predict_wrapped(moved))
        return self._mended(motion, row) if remedies else row, prediction

    def _mended(self, motion: Motion, row: Row) -> Row:
        """The row with the errors of the averaged model and of PACE around it.

        At rest and mirrored, the average of one step is made of predictions that are there.
        """
        known = self.steps == 1 and motion.family in (REST, POINT)
        moved = motion.act(self.given).values
        for name, model in self.remedies.items():
            if name == "both" or not known:
                error = self._error_of(motion, self._predict(moved, model))
                row = replace(row, both=error) if name == "both" else replace(row, averaged=error)
        return row

    def averaged(self, points: PointGroup, predictions: Sequence[Tensor]) -> list[float]:
        """The error of ``mean_g g^-1 f(g a)`` for the fields moved by each element.

        At ``a = h b`` the model is needed at ``g h b``, and that is a prediction that was made.
        """
        errors = []
        for h in range(points.order):
            found = [
                self._acted(points, points.inverses[g], predictions[points.products[g][h]])
                for g in range(points.order)
            ]
            mean = torch.stack(found).mean(dim=0)
            errors.append(self._error(mean, self._acted(points, h, self.wanted.values)))
        return errors

    def ignores_input(self) -> bool:
        """Whether all samples get the same prediction."""
        if len(self.given) < 2:
            return False
        found, wanted = (v.double().std(dim=0).norm() for v in (self.at_rest, self.wanted.values))
        return bool(found <= SAME * wanted)

    # --- predictions

    def _predict(self, values: Tensor, model: Model | None = None) -> Tensor:
        ask = self.model if model is None else model
        made = [self._rolled(ask, part) for part in self._parts(values)]
        return torch.cat(made)[: len(values)].to(values)

    def _predict_wrapped(self, values: Tensor) -> tuple[Tensor, int]:
        """Predictions within PACE, and how many samples do not determine their frame."""
        quality = [self.pace.frame_of(part).quality for part in self._parts(values)]
        lost = torch.cat(quality)[: len(values)] <= 0
        names = self.task.group.coordinates
        lost = lost & torch.tensor([name != FINITE for name in names], device=lost.device)
        missing = zip(names, lost.any(dim=0).tolist(), strict=True)
        self.lost |= {name for name, no in missing if no}
        return self._predict(values, self.pace), int(lost.any(dim=1).sum())

    def _rolled(self, model: Model, window: Tensor) -> Tensor:
        """The last of some predictions in a row; a sample that stops being finite stays lost."""
        block, size = self._checked(model(window)), window.shape[1]
        lost = torch.zeros(len(window), *[1] * (window.ndim - 1), dtype=torch.bool)
        lost = lost.to(window.device)
        for _ in range(self.steps - 1):
            lost = lost | ~torch.isfinite(block).flatten(1).all(dim=1).reshape(lost.shape)
            window = torch.cat([window, block.to(window)], dim=1)[:, -size:].masked_fill(lost, 0.0)
            block = self._checked(model(window))
        return block.masked_fill(lost, math.inf)

    def _parts(self, values: Tensor) -> Sequence[Tensor]:
        """Batches of one size, which an exported program may need: the last is filled up."""
        missing = -len(values) % self.batch
        rows = torch.arange(len(values) + missing, device=values.device) % len(values)
        return torch.split(values[rows].to(self.like), self.batch)

    def _checked(self, prediction: Any) -> Tensor:
        wanted = (self.batch, *self.wanted.values.shape[1:])
        if not isinstance(prediction, Tensor) or tuple(prediction.shape) != wanted:
            got = (
                tuple(prediction.shape)
                if isinstance(prediction, Tensor)
                else type(prediction).__name__
            )
            raise FieldError(
                f"the model returned {got}, expected a tensor {wanted} like the targets: a module "
                "of another signature is made to fit by pacefno.Adapted"
            )
        return prediction

    # --- numbers

    def _row(self, motion: Motion, prediction: Tensor, wrapped: Tensor, lost: int) -> Row:
        there_and_back = [
            _mean(relative_l2(motion.undo(motion.act(field)).values, field.values))
            for field in (self.given, self.wanted)
        ]
        expected = self._moved(motion, self.at_rest)
        return Row(
            motion.family,
            motion.factor,
            motion.size,
            motion.label,
            error=self._error_of(motion, prediction),
            equivariance=_difference(prediction, expected, self.at_rest),
            floor=max(motion.torn, *there_and_back),
            wrapped=self._error_of(motion, wrapped),
            wrapped_equivariance=_difference(
                wrapped, self._moved(motion, self.wrapped_at_rest), self.wrapped_at_rest
            ),
            undetermined=lost,
            at_edges=_at_edges(motion, prediction - expected, expected),
            shortest=_shortest(motion, prediction - expected),
        )

    def _error_of(self, motion: Motion, found: Tensor) -> float:
        """The error of predictions for moved fields, after the motion was taken off again."""
        both = self._typed(found), motion.act(self.wanted)
        return self._error(*(motion.undo(one).values for one in both))

    def _error(self, prediction: Tensor, target: Tensor) -> float:
        return _mean(relative_l2(prediction, target, per_channel=self.task.per_channel))

    def _typed(self, values: Tensor) -> Field:
        return self.wanted.with_values(values)

    def _moved(self, motion: Motion, values: Tensor) -> Tensor:
        return motion.act(self._typed(values)).values

    def _acted(self, points: PointGroup, element: int, values: Tensor) -> Tensor:
        xi = torch.full((len(values), 1), float(element), dtype=torch.float64)
        return points.act(self._typed(values), xi).values


def _nothing(field: Field) -> Field:
    return field


def _mean(values: Tensor) -> float:
    """The mean over samples; infinite where one is not a number."""
    return float(values.double().nan_to_num(nan=math.inf).mean())


def _difference(found: Tensor, expected: Tensor, unmoved: Tensor) -> float:
    """The mean relative equivariance error, see :func:`~pacefno.metrics.equivariance_error`."""
    scale = torch.maximum(_norm(unmoved), _norm(expected))
    return _mean(_norm(found - expected) / scale.clamp_min(torch.finfo(scale.dtype).tiny))


def _norm(values: Tensor) -> Tensor:
    return values.double().flatten(1).norm(dim=1)


def _shortest(motion: Motion, difference: Tensor) -> float | None:
    """The share of a difference in waves of two points, after a shift by whole cells."""
    if motion.cells is None or not bool(torch.isfinite(difference).all()):
        return None
    rest = difference.double()
    whole = float(rest.square().sum())
    for axis in (a for a in range(2, rest.ndim) if rest.shape[a] % 2 == 0):
        sign = rest.new_tensor([1.0, -1.0]).repeat(rest.shape[axis] // 2)
        sign = sign.reshape(-1, *[1] * (rest.ndim - 1 - axis))
        rest = rest - sign * (rest * sign).mean(dim=axis, keepdim=True)
    return 1 - float(rest.square().sum()) / whole if whole > 0 else None


def _at_edges(motion: Motion, difference: Tensor, expected: Tensor) -> float | None:
    """The odds that a difference lies at the edge of the box or where that was moved to, over those
    of the field itself: far more than 1 for a model that pads, about 1 for one that knows places.
    """
    if motion.cells is None or not bool(torch.isfinite(difference).all()):
        return None
    axis, n = 2 + AXES.index(motion.factor), difference.shape[2 + AXES.index(motion.factor)]
    edges = torch.stack([torch.zeros_like(motion.cells), motion.cells])  # (2, B)
    apart = (torch.arange(n, device=edges.device) + 0.5 - edges[..., None]) % n
    near = (torch.minimum(apart, n - apart) <= max(1, n / EDGE)).any(dim=0)  # (B, n)
    least = TINY * expected.double().square().sum() + torch.finfo(torch.float64).tiny
    odds = []
    for values in (difference, expected):
        energy = values.double().square().movedim(axis, 1).flatten(2).sum(dim=2)  # (B, n)
        odds.append(((energy * near).sum() + least) / ((energy * ~near).sum() + least))
    return float(odds[0] / odds[1])
