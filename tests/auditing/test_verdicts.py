"""An audit finds the fault that a model was built with, says so, and its numbers are true."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from audited_models import (
    HORIZON,
    KERNEL,
    constant,
    equivariant,
    flow_task,
    make_task,
    one_sided,
    samples,
    scalar_task,
    smooth,
    solve_flow,
    strided,
    with_positions,
    zero_padded,
)
from torch import Tensor, nn

import pacefno
from pacefno.auditing.motions import (
    BOOST,
    EVERYTHING,
    FRACTION,
    POINT,
    TOGETHER,
    TURN,
    WHOLE,
    roll,
)
from pacefno.errors import UsageError
from pacefno.fields import Field, FieldType
from pacefno.groups import Euclidean, Galilean, PointGroup, Product
from pacefno.metrics import canonical_error, equivariance_error, relative_l2
from pacefno.operators import Adapted, Symmetrised
from pacefno.task import Task
from pacefno.testing import random_field


def levels(found: pacefno.Audit) -> dict[str, str]:
    """The worst level of each family."""
    order = ("exact", "keeps", "loses", "fails")
    worst: dict[str, str] = {}
    for row in found.document()["rows"]:
        now = worst.setdefault(row["family"], "exact")
        worst[row["family"]] = max(now, row["level"], key=order.index)
    return worst


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_equivariant_model_is_said_to_follow_exactly(dtype: torch.dtype) -> None:
    task = scalar_task()
    found = pacefno.audit(equivariant, task, *samples(task, dtype=dtype))
    assert levels(found) == {WHOLE: "exact", FRACTION: "exact", TOGETHER: "exact"}
    assert found.worst_error == pytest.approx(found.rest.error, rel=1e-3)
    assert "exactly" in found.verdict and "nothing for PACE to mend" in found.verdict
    assert "fails" not in found.verdict and "edges" not in found.verdict


def test_a_zero_padded_model_is_found_by_its_edges() -> None:
    task = scalar_task()
    found = pacefno.audit(zero_padded, task, *samples(task))
    assert levels(found)[WHOLE] == "fails"
    assert "lies at the edges of the box: it pads" in found.verdict


def test_a_model_that_knows_positions_fails_the_farther_the_worse_and_everywhere() -> None:
    task = scalar_task()
    found = pacefno.audit(with_positions, task, *samples(task))
    assert levels(found) == {WHOLE: "fails", FRACTION: "fails", TOGETHER: "fails"}
    along_x = [row.error for row in found.rows if row.family == WHOLE and row.factor == "x"]
    assert along_x == sorted(along_x)
    assert "everywhere in the box: it knows where it is" in found.verdict
    assert "fails for shifts by whole cells above 4" in found.verdict


@pytest.mark.parametrize("stride", [2, 4])
def test_a_model_that_strides_is_found_by_the_shifts_that_it_follows(stride: int) -> None:
    def pooled(field: Tensor) -> Tensor:
        small = torch.nn.functional.avg_pool2d(field, stride)
        return torch.nn.functional.interpolate(small, scale_factor=stride)

    task = scalar_task()
    found = pacefno.audit(pooled, task, *samples(task))
    assert f"multiples of {stride} cells are exact: it strides or pools" in found.verdict
    assert stride != 2 or found.rows == pacefno.audit(strided, task, *samples(task)).rows


def test_a_model_that_follows_shifts_but_no_boosts_is_told_apart_and_mended() -> None:
    task = flow_task()
    found = pacefno.audit(equivariant, task, *samples(task))
    assert levels(found) == {WHOLE: "exact", FRACTION: "exact", BOOST: "fails", TOGETHER: "fails"}
    assert "fails for boosts above 0.00" in found.verdict
    assert f"PACE restores {found.rest.error:.3g} everywhere" in found.verdict
    assert all(row.wrapped == pytest.approx(found.rest.wrapped, rel=1e-3) for row in found.rows)
    assert max(row.wrapped_equivariance for row in found.rows) < 1e-5


def test_the_true_solution_follows_everything_whatever_frame_it_is_seen_in() -> None:
    task = flow_task()
    found = pacefno.audit(solve_flow, task, *samples(task, dtype=torch.float64))
    assert set(levels(found).values()) == {"exact"}
    assert found.worst_equivariance < 1e-12


def test_a_model_that_mirrors_do_not_keep_is_told_apart_and_averaging_mends_it() -> None:
    task = scalar_task()
    field, target = samples(task)
    target = target - smooth(field) + one_sided(field)  # learned where everything pulls one way
    found = pacefno.audit(one_sided, task, field, target, point_group="p4m")
    assert levels(found) == {
        WHOLE: "exact", FRACTION: "exact", TOGETHER: "exact", POINT: "fails", EVERYTHING: "fails"
    }  # fmt: skip
    mirrored = {row.label: row for row in found.rows if row.family == POINT}
    assert len(mirrored) == 7
    assert mirrored["(x, y) -> (x, -y)"].equivariance < 1e-5  # it pulls along x alone
    assert mirrored["(x, y) -> (-x, y)"].equivariance > 0.1
    assert "It fails for mirrors and turns, 6 of 7 of them" in found.verdict
    averages = [row.averaged for row in (found.rest, *mirrored.values())]
    assert averages == pytest.approx([averages[0]] * 8, rel=1e-3)
    one = Symmetrised(Adapted(one_sided), "p4m", "p: scalar").eval()(field)
    assert averages[0] == pytest.approx(float(relative_l2(one, target).mean()), rel=1e-5)
    assert "Averaging over p4m gives" in found.verdict


def test_pace_around_an_average_mends_what_neither_of_them_mends_alone() -> None:
    task = flow_task()
    field, target = samples(task)
    target = target - smooth(field) + one_sided(field)
    found = pacefno.audit(one_sided, task, field, target, point_group="p4m")
    last, rest = next(row for row in found.rows if row.family == EVERYTHING), found.rest
    assert rest.both is not None and last.both == pytest.approx(rest.both, rel=1e-3)
    assert last.wrapped > 2 * rest.wrapped  # mirrors
    assert last.averaged is not None and last.averaged > 1.1 * last.both  # boosts
    inside = pacefno.wrap(Symmetrised(Adapted(one_sided), "p4m", "u v: velocity"), task)
    error = float(relative_l2(inside(field), target).mean())
    assert rest.both == pytest.approx(error, rel=1e-5)
    for family in (WHOLE, FRACTION, BOOST, TOGETHER):  # at the largest along each axis
        rows = [row for row in found.rows if row.family == family]
        far = {f: max(r.size for r in rows if r.factor == f) for f in {r.factor for r in rows}}
        for row in rows:
            measured = row.size == far[row.factor]
            assert (row.averaged is not None) == (row.both is not None) == measured
            assert not measured or row.both == pytest.approx(rest.both, rel=1e-3)
    assert "It fails for all motions, mirrored or turned as well" in found.verdict
    assert f"PACE around the average over p4m gives {last.both:.3g} at worst" in found.verdict


def test_a_task_that_names_a_finite_group_is_audited_and_wrapped_with_it() -> None:
    field, target = samples(flow_task(), count=2)
    both = Product(Galilean(2), PointGroup("p4m"))
    type = flow_task().input
    task = Task(input=type, output=type.at([HORIZON]), group=both)
    found = pacefno.audit(one_sided, task, field, target)
    assert found.point_group == "p4m" and "element" not in found.undetermined
    assert levels(found)[POINT] == "keeps"
    assert max(row.wrapped_equivariance for row in found.rows if row.family != POINT) < 1e-4
    assert isinstance(pacefno.wrap(one_sided, task).operator, Symmetrised)
    alone = make_task(PointGroup("p4m"), "p: scalar")
    found = pacefno.audit(one_sided, alone, *samples(scalar_task()))
    assert set(levels(found)) == {POINT}


def test_a_model_that_mirrors_keep_is_said_to_follow_them() -> None:
    task = flow_task()
    found = pacefno.audit(equivariant, task, *samples(task), point_group="p4m")
    assert levels(found)[POINT] == "exact"
    assert "mirrors and turns exactly" in found.verdict
    assert "Averaging" not in found.verdict


def test_a_model_that_ignores_its_input_is_not_praised_for_following() -> None:
    task = scalar_task()
    found = pacefno.audit(constant, task, *samples(task))
    assert found.ignores_input
    assert found.verdict == "It predicts the same whatever the input (error 1): mend that first."


def test_a_model_that_is_never_right_is_not_said_to_be_useful() -> None:
    task = scalar_task()
    found = pacefno.audit(lambda field: -smooth(field), task, *samples(task))
    assert "no better than predicting nothing" in found.verdict


def test_a_model_that_returns_no_numbers_fails_everywhere_and_its_report_is_still_json() -> None:
    task = scalar_task()

    def broken(field: Tensor) -> Tensor:
        return smooth(field) / (field.amax(dim=(1, 2, 3), keepdim=True) * 0)

    found = pacefno.audit(broken, task, *samples(task))
    assert found.worst_error == float("inf")
    document = json.loads(json.dumps(found.document(), allow_nan=False))
    assert document["worst_error"] is None
    assert "not finite" in str(found) and "not finite" in found.html()
    assert found.verdict == "Its predictions at rest are NaN or infinite: mend that first."
    assert set(levels(found).values()) == {"fails"}


def test_the_shortest_wave_alone_is_not_taken_for_strides() -> None:
    """PACE cannot move it by part of a cell, and a network that makes it is not followed there."""
    task = scalar_task()
    stripes = torch.tensor([1.0, -1.0]).repeat(16)

    class Striped(nn.Module):
        def forward(self, field: Tensor) -> Tensor:
            return smooth(field) + 0.01 * stripes * field.amax(dim=(2, 3), keepdim=True)

    found = pacefno.audit(pacefno.wrap(Striped(), task), task, *samples(task))
    assert "shortest wave that an even grid holds, and that alone" in found.verdict
    assert "strides" not in found.verdict


def test_every_fault_gets_another_verdict() -> None:
    task = scalar_task()
    models = (equivariant, zero_padded, strided, with_positions, one_sided, constant)
    data = samples(task)
    verdicts = {pacefno.audit(model, task, *data, point_group="p4m").verdict for model in models}
    assert len(verdicts) == len(models)


# --- the numbers ----------------------------------------------------------------------------------


def test_error_and_equivariance_error_are_those_of_the_metrics() -> None:
    task = flow_task()
    field, target = samples(task, dtype=torch.float64)
    sizes = {"velocity_x": [0.7]}
    found = pacefno.audit(zero_padded, task, field, target, sizes=sizes)
    row = next(row for row in found.rows if row.label == "velocity_x 0.7")
    # Which way a sample goes is chance; the errors of both ways bound what was measured.
    for sign in (1.0, -1.0):
        xi = task.group.identity(len(field))
        xi[:, 2] = 0.7 * sign
        given = task.group.act(Field(field, task.input), xi).values
        moved = task.group.act(Field(target, task.output), xi).values
        each = canonical_error(task.group, task.output, xi, zero_padded(given), moved)
        assert row.error == pytest.approx(float(each.mean()), rel=0.3)
        off = equivariance_error(
            zero_padded, task.group, field, input=task.input, output=task.output, xi=xi
        )
        assert row.equivariance == pytest.approx(float(off.mean()), rel=0.3)


def test_the_floor_is_rounding_for_shifts_and_what_is_torn_for_turns() -> None:
    task = turning_task()
    wide = torch.randn(3, 1, 16, 16, generator=torch.manual_seed(0)).double()
    found = pacefno.audit(equivariant, task, wide, smooth(wide), inexact=True)
    for row in found.rows:
        turned = (row.family == TURN and row.size % 90) or row.family == TOGETHER
        assert row.floor > 0.1 if row.size in (15, 30, 45) else turned or row.floor < 1e-12


def test_whole_cells_move_the_highest_wave_too() -> None:
    """Nonlinear models make it, and a group leaves it alone: it must not look like a stride."""
    task = scalar_task()

    def nonlinear(field: Tensor) -> Tensor:
        return smooth(field) + 0.2 * smooth(field).relu() * field.relu()

    field, target = samples(task)
    field = field + 0.1 * torch.randn(field.shape, generator=torch.manual_seed(0))  # every wave
    found = pacefno.audit(nonlinear, task, field, target)
    assert levels(found)[WHOLE] == "exact"
    assert "strides" not in found.verdict


def test_a_roll_is_the_shift_of_the_group_by_whole_cells() -> None:
    task = scalar_task()
    field = random_field(task.input, (8, 9), batch=3, top=3)
    cells = torch.tensor([2, -3, 5])
    for axis in (0, 1):
        xi = torch.zeros(3, 2).double()
        xi[:, axis] = cells.double() / field.grid[axis]
        expected = task.group.act(field, xi).values
        assert torch.allclose(roll(field, axis, cells).values, expected, atol=1e-12)


def test_batches_are_filled_up_and_change_nothing() -> None:
    task = scalar_task()
    field, target = samples(task, count=5)
    seen: list[int] = []

    def watched(part: Tensor) -> Tensor:
        seen.append(len(part))
        return zero_padded(part)

    some = pacefno.audit(watched, task, field, target, batch=2, name="a")
    assert set(seen) == {2}
    whole = pacefno.audit(zero_padded, task, field, target, batch=20, name="a")
    for one, other in zip(some.rows, whole.rows, strict=True):
        assert one.error == pytest.approx(other.error, rel=1e-5)
        assert one.wrapped == pytest.approx(other.wrapped, rel=1e-4)


def test_a_module_gets_its_own_precision() -> None:
    task = scalar_task()
    net = torch.nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")  # float32
    found = pacefno.audit(net, task, *samples(task, dtype=torch.float64))
    assert found.precision == "float32" and levels(found)[WHOLE] == "exact"


def test_fields_that_do_not_determine_a_frame_are_counted() -> None:
    task = scalar_task()
    field, target = samples(task, count=4)
    field[1] = field[1].mean(dim=1, keepdim=True)  # a shear flow has no place along x
    found = pacefno.audit(equivariant, task, field, target)
    assert found.undetermined == ("x",)
    assert "The frame of up to 1 of 4 samples is not determined (x)" in found.verdict


def test_snapshots_and_a_time_step_move_as_the_group_says() -> None:
    type = FieldType.parse("u: velocity", 1, times=(0, 1), lengths=4.0, step=0.25)
    group = Galilean(1)
    task = Task(input=type, output=type.at([2]), group=group)
    x = torch.arange(24).double() / 24
    waves = torch.sin(2 * torch.pi * (x - torch.tensor([0.1, 0.3, 0.35])[:, None]))
    field = torch.stack([waves, waves], dim=1)
    found = pacefno.audit(lambda a: a[:, 1:], task, field, waves[:, None])
    # The last snapshot as the next: right at rest, and late by v dt / L when boosted.
    boosted = {row.size: row.error for row in found.rows if row.family == BOOST}
    size = max(boosted)
    late = 2 * abs(torch.sin(torch.tensor(torch.pi * size * 0.25 / 4.0)).item())
    assert found.rest.error < 1e-12
    assert boosted[size] == pytest.approx(late, rel=1e-6)


def test_predictions_in_a_row_are_audited_at_their_end() -> None:
    type, steps = FieldType.parse("u: velocity", 1, lengths=4.0, step=0.25), 5
    task = Task(input=type, output=type.at([1]), group=Galilean(1))
    x = torch.arange(24).double() / 24
    waves = torch.sin(2 * torch.pi * (x - torch.tensor([0.1, 0.3, 0.35])[:, None]))[:, None]
    found = pacefno.audit(lambda a: a, task, waves, waves, steps=steps, point_group="z2")
    boosted = {row.size: row.error for row in found.rows if row.family == BOOST}
    size = max(boosted)
    late = 2 * abs(torch.sin(torch.tensor(torch.pi * size * steps * 0.25 / 4.0)).item())
    assert boosted[size] == pytest.approx(late, rel=1e-6)
    assert max(row.wrapped for row in found.rows) < 1e-9  # PACE carries the frame in every step
    assert "At rest the error is 0 after 5 steps" in found.verdict
    assert "after 5 steps in a row" in found.html()
    # With a window of two snapshots, each prediction joins it.
    pair = torch.cat([waves, 2 * waves], dim=1)
    line = Task(input=type.at([0, 1]), output=type.at([2]), group=Galilean(1))
    found = pacefno.audit(lambda a: 2 * a[:, 1:] - a[:, :1], line, pair, 6 * waves, steps=4)
    assert found.rest.error < 1e-12
    found = pacefno.audit(lambda a: a * 1e200, task, waves, waves, steps=3)
    assert found.rest.error == float("inf") and json.dumps(found.document())
    uneven = Task(input=type, output=type.at([1, 3]), group=Galilean(1))
    with pytest.raises(UsageError, match="not evenly spaced"):
        pacefno.audit(lambda a: a, uneven, waves, torch.cat([waves] * 2, dim=1), steps=2)


# --- what is no symmetry, and other mistakes ------------------------------------------------------


def turning_task() -> Task:
    return make_task(Euclidean(), "w: pseudoscalar")


def test_turning_a_field_that_fills_its_box_is_left_out_with_a_reason() -> None:
    task = turning_task()
    wide = torch.randn(3, 1, 16, 16, generator=torch.manual_seed(0)).double()
    found = pacefno.audit(equivariant, task, wide, smooth(wide))
    turns = [row.size for row in found.rows if row.family == TURN]
    assert turns == [90.0, 180.0]
    assert any("tears a field that fills its box" in text for text in found.left_out)
    both = pacefno.audit(equivariant, task, wide, smooth(wide), inexact=True)
    assert len([row for row in both.rows if row.family == TURN]) == 5
    with pytest.raises(UsageError, match="no symmetry of these fields.*inexact=True"):
        pacefno.audit(equivariant, task, wide, smooth(wide), sizes={"angle": [30.0]})


def test_a_field_that_keeps_clear_of_the_edges_may_be_turned() -> None:
    task = turning_task()
    x = (torch.arange(48).double() / 48 - 0.5)[:, None]
    y = x.T
    shapes = [torch.exp(-((x / a) ** 2 + (y / 0.06) ** 2)) for a in (0.08, 0.1)]
    field = torch.stack(shapes)[:, None]
    found = pacefno.audit(lambda a: a, task, field, field)
    assert [row.size for row in found.rows if row.family == TURN] == [15, 30, 45, 90, 180]
    assert levels(found)[TURN] == "exact"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sizes": {"z": [1.0]}}, "unknown coordinate 'z'"),
        ({"sizes": {"x": [-1.0]}}, "x: expected positive numbers"),
        ({"sizes": {"x": []}}, "x: expected positive numbers"),
        ({"target": torch.zeros(2, 1, 32, 32)}, "as many samples on one grid"),
        ({"input": torch.zeros(6, 2, 32, 32)}, "channel"),
        ({"input": torch.full((6, 1, 32, 32), torch.nan)}, "finite|NaN"),
        ({"model": lambda field: field[:, :, ::2]}, "the model returned .*expected a tensor"),
        ({"model": lambda field: {"u": field}}, "the model returned dict"),
    ],
)
def test_a_mistake_is_one_sentence(change: dict[str, object], says: str) -> None:
    task = scalar_task()
    field, target = samples(task)
    given = {"model": equivariant, "task": task, "input": field, "target": target} | change
    with pytest.raises(UsageError, match=says):
        pacefno.audit(**given)  # type: ignore[arg-type]


def test_the_kernel_of_these_tests_is_symmetric() -> None:
    assert torch.equal(KERNEL, KERNEL.T) and torch.equal(KERNEL, KERNEL.flip(0))
    assert HORIZON > 0


def test_measuring_needs_torch_alone() -> None:
    """A task needs pydantic; whatever looks like one will do."""
    script = """
import importlib.metadata, sys, types, torch, pacefno
from pacefno.frames import default_slice
known = set(importlib.metadata.packages_distributions()) - {"pacefno"}
before = {name.partition(".")[0] for name in sys.modules}
type, group = pacefno.FieldType.parse("p: scalar", 1), pacefno.Translation(1)
task = types.SimpleNamespace(
    name="a", input=type, output=type, group=group, slice=default_slice(group),
    per_channel=False, rollout=None,
)
field = torch.randn(2, 1, 16)
found = pacefno.audit(torch.nn.Identity(), task, field, field)
assert found.worst_error < 1e-5 and "exactly" in found.verdict and "<svg" in found.html()
print(sorted(({name.partition(".")[0] for name in sys.modules} - before) & known))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "[]"
