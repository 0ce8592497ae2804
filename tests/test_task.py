"""A task is data: its document says all of it, in JSON and in TOML, and a bad one says what is."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from pacefno.errors import UsageError
from pacefno.fields import FieldType
from pacefno.frames import MomentSlice, PhaseSlice, StrongestWaveSlice
from pacefno.groups import Euclidean, Galilean, GalileanScaling, Group, Translation, Trivial
from pacefno.paper.benchmarks import BENCHMARKS
from pacefno.paper.presets import config_for
from pacefno.registry import spec_of
from pacefno.task import Task, TaskError, make_task, read_task

FLOW = """
name = "decaying turbulence"
train_range = [0.5, 0.5, 1.0, 1.0]
error = "per-channel"

[input]
channels = "u: velocity, p: scalar"
dim = 2
lengths = 6.283185307179586

[output]
channels = "u: velocity, p: scalar"
dim = 2
lengths = 6.283185307179586
times = [1]
step = 0.5

[group]
name = "galilean"
dim = 2
"""


def as_toml(document: dict[str, Any]) -> str:
    """Entries first, then tables; JSON's numbers, texts and lists are TOML's too."""
    plain = {k: v for k, v in document.items() if not isinstance(v, dict) and v is not None}
    lines = [f"{key} = {json.dumps(value)}" for key, value in plain.items()]
    for key, table in document.items():
        if isinstance(table, dict):
            lines += [f"\n[{key}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def pair(group: Group, channels: str, dim: int, **entries: Any) -> Task:
    type = FieldType.parse(channels, dim, times=(0.0, 0.5), lengths=2.5, step=0.1)
    return Task(input=type, output=type.at([1.0]), group=group, **entries)


TASKS: dict[str, Task] = {
    "translation": pair(Translation(1), "a: scalar", 1),
    "boosts": pair(Galilean(2), "h: scalar, m: momentum of h", 2, train_range=(0.1, 0.2, 0.3, 1)),
    "diagonal": pair(
        Galilean(2, diagonal=True), "u: speed", 2, slice=PhaseSlice(Galilean(2, diagonal=True))
    ),
    "rotation": pair(Euclidean(), "u v: velocity, w: pseudoscalar", 2, error="per-channel"),
    "scaling": pair(GalileanScaling(), "u: speed", 1),
    "three dimensions": pair(Translation(3), "e: vector, q: scalar", 3, name="3-D"),
    "nothing": pair(Trivial(2), "a: scalar, b: scalar", 2),
} | {benchmark.name: benchmark.task for benchmark in BENCHMARKS.values()}
over_tasks = pytest.mark.parametrize("name", list(TASKS))


def same(one: Task, two: Task) -> bool:
    parts = all(
        spec_of(a) == spec_of(b) for a, b in ((one.group, two.group), (one.slice, two.slice))
    )
    types = (one.input, one.output) == (two.input, two.output)
    rest = ("name", "train_range", "error", "rollout")
    return parts and types and all(getattr(one, key) == getattr(two, key) for key in rest)


@over_tasks
def test_a_task_is_rebuilt_from_its_document_in_json(name: str) -> None:
    task = TASKS[name]
    again = make_task(json.loads(json.dumps(task.document())))
    assert same(again, task) and again.document() == task.document()
    assert again.slice.group is again.group


@over_tasks
def test_a_task_is_rebuilt_from_its_document_in_toml(name: str, tmp_path: Path) -> None:
    task = TASKS[name]
    (tmp_path / "task.toml").write_text(as_toml(task.document()))
    assert same(read_task(tmp_path / "task.toml"), task)


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_the_task_of_every_row_of_every_benchmark_is_rebuilt(name: str) -> None:
    """Rows of trajectories see another number of snapshots: their task is their own."""
    benchmark = BENCHMARKS[name]
    for model in benchmark.rows:
        task = config_for(benchmark, model, "smoke", 1).task
        assert same(make_task(task.document()), task)


def test_a_task_written_by_hand(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(FLOW)
    task = read_task(tmp_path / "task.toml")
    assert task.dim == 2 and task.per_channel and task.horizon == 0.5
    assert (
        task.input.channels == ("u_x", "u_y", "p")
        and task.input.lengths == (6.283185307179586,) * 2
    )
    assert spec_of(task.group) == spec_of(Galilean(2))
    assert isinstance(task.slice, StrongestWaveSlice)  # the default of the group
    assert task.rollout is None


def test_the_slice_of_a_group_with_rotations_is_its_own() -> None:
    assert isinstance(TASKS["rotation"].slice, MomentSlice)


def test_a_task_over_other_snapshots() -> None:
    task = BENCHMARKS["kdv"].task
    one = task.over(1)
    assert (one.input.times, one.output.times) == ((0.0,), (1.0,))
    few = task.over(3, 2)
    assert (few.input.times, few.output.times) == ((0.0, 1.0, 2.0), (3.0, 4.0))
    assert few.horizon == pytest.approx(2 * task.input.step)
    assert same(make_task(few.document()), few)


# --- bad documents --------------------------------------------------------------------------------

GOOD: dict[str, Any] = TASKS["shallow_water"].document()
SCALAR = {"channels": "h: scalar", "dim": 2}


def with_input(**entries: Any) -> dict[str, Any]:
    return {"input": GOOD["input"] | entries}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nme": "x"}, "unknown entry 'nme'. Did you mean 'name'?"),
        ({"name": 3}, "name: Input should be a valid string (got 3)"),
        ({"input": None}, "input: expected entries channels, dim, times, lengths, step, got None"),
        ({"input": "u: velocity"}, "input: expected entries"),
        ({"input": {"channels": "u: velocity"}}, "input: dim: Field required"),
        (with_input(tims=[0]), "input: unknown entry 'tims'. Did you mean 'times'?"),
        (with_input(channels="u: velocty"), "unknown kind 'velocty'. Did you mean 'velocity'?"),
        (with_input(channels="u velocity"), "cannot read 'u velocity'"),
        (with_input(channels=3), "input: channels: Input should be a valid string"),
        ({"input": {"channels": "h: scalar", "dim": 4}}, "expected 1, 2 or 3 dimensions, got 4"),
        (with_input(dim="two"), "input: dim: Input should be a valid integer"),
        (with_input(lengths=[1]), "lengths: expected 2 positive numbers, one per axis"),
        (with_input(lengths=-1), "lengths: expected 2 positive numbers"),
        (with_input(times=3), "input: times: Input should be a valid list (got 3)"),
        (with_input(times=[]), "input: times: List should have at least 1 item"),
        (with_input(step=0), "input: step: Input should be greater than 0 (got 0)"),
        (with_input(step="a"), "input: step: Input should be a valid number"),
        ({"group": "galilean"}, "group: expected entries with a name out of"),
        ({"group": {"dim": 2}}, "group: expected entries with a name out of"),
        ({"group": {"name": 3}}, "group: expected entries with a name out of"),
        ({"group": {"name": "galilan", "dim": 2}}, "Did you mean 'galilean'?"),
        ({"group": {"name": "galilean"}}, "missing a required argument: 'dim'"),
        ({"group": {"name": "galilean", "dim": 1}}, "input: galilean: acts in 1 dimensions"),
        (
            {"group": {"name": "galilean", "dim": 2, "sped": 1}},
            "unexpected keyword argument 'sped'",
        ),
        ({"group": {"name": "galilean", "dim": 2}, "input": SCALAR}, "a boost needs a channel"),
        ({"slice": {"name": "phas"}}, "unknown slice 'phas'. Did you mean 'phase'?"),
        ({"slice": {}}, "slice: expected entries with a name out of"),
        ({"slice": {"name": "phase", "chanel": 1}}, "unexpected keyword argument 'chanel'"),
        ({"train_range": [0.1]}, "train_range: expected one magnitude for each of"),
        (
            {"train_range": [-1, 0, 0, 0]},
            "train_range.0: Input should be greater than or equal to 0",
        ),
        ({"train_range": [float("inf")] * 4}, "train_range.0: Input should be a finite number"),
        ({"error": "both"}, "error: Input should be 'pooled' or 'per-channel' (got 'both')"),
        ({"rollout": {"first": 0}}, "rollout.first: Input should be greater than or equal to 1"),
        ({"rollout": {"frist": 3}}, "rollout: unknown entry 'frist'. Did you mean 'first'?"),
        ({"rollout": {"first": 1}, "output": SCALAR}, "both need the same channels"),
        ({"output": SCALAR | {"channels": "c: speed"}}, "output: galilean: 'c' is a speed"),
    ],
)
def test_a_bad_document_is_answered_in_one_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError) as caught:
        make_task(copy.deepcopy(GOOD) | change)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("document", [{}, [], None, "task"])
def test_what_is_no_task_at_all_is_refused(document: Any) -> None:
    with pytest.raises(TaskError):
        make_task(document)


def test_a_rollout_needs_outputs_that_can_be_inputs() -> None:
    given = FieldType.parse("a: scalar", 1)
    other = FieldType.parse("b: scalar", 1, times=[1])
    for output, first, sentence in (
        (other, 1, "same channels"),
        (given.at([5]), 1, "times count 0, 1, 2"),
        (given.at([1]), 0, "rollout.first"),
    ):
        document = {"input": given.document(), "output": output.document()}
        document |= {"group": {"name": "translation", "dim": 1}, "rollout": {"first": first}}
        with pytest.raises(UsageError, match=sentence):
            make_task(document)
    with pytest.raises(ValueError, match="the first 2 snapshots are given"):
        Task(
            input=given.at([0, 1]), output=given.at([2]), group=Translation(1), rollout={"first": 1}
        )


def test_a_file_that_is_no_task_is_named(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    with pytest.raises(TaskError, match=r"task\.toml: cannot be read \(No such file"):
        read_task(path)
    path.write_text("[input")
    with pytest.raises(TaskError, match=r"task\.toml: is not TOML"):
        read_task(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(TaskError, match=r"task\.toml: is not TOML"):
        read_task(path)
    path.write_text(FLOW.replace("galilean", "gallilean"))
    with pytest.raises(TaskError, match=r"task\.toml: group: .*Did you mean 'galilean'"):
        read_task(path)


def test_a_task_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="frozen"):
        TASKS["kdv"].name = "other"  # type: ignore[misc]


def test_an_output_may_lack_the_velocity_that_the_input_has() -> None:
    vorticity = {"channels": "w: pseudoscalar", "dim": 2, "times": [1.0]}
    velocity = {"channels": "u: velocity", "dim": 2}
    group = {"name": "galilean", "dim": 2}
    task = make_task({"input": velocity, "output": vorticity, "group": group})
    assert task.output.channels == ("w",)


def test_a_product_of_groups_is_written_as_tables() -> None:
    document = {
        "name": "water",
        "input": {"channels": "h: scalar, m: momentum of h", "dim": 2},
        "output": {"channels": "h: scalar, m: momentum of h", "dim": 2, "times": [0.5]},
        "group": {
            "name": "product",
            "motion": {"name": "galilean", "dim": 2},
            "point": {"name": "point", "which": "p4m"},
        },
    }
    task = Task.model_validate(document)
    assert task.group.coordinates == ("x", "y", "element", "velocity_x", "velocity_y")
    stored = task.model_dump(mode="json")
    assert Task.model_validate(stored).model_dump(mode="json") == stored
    document["group"] = {"name": "product", "motion": "galilean", "point": "p4m"}
    with pytest.raises(ValueError, match="expected a group as motion and a PointGroup as point"):
        Task.model_validate(document)
