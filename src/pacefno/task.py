"""A task: what is predicted from what. Training, evaluation and prediction know tasks, not names.

A task is one small document. It is stored with every run, made by each benchmark, and written by
hand as TOML for data of one's own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from pacefno.errors import UsageError
from pacefno.fields import FieldType, check_next_input, check_one_box
from pacefno.frames import CanonicalSlice, default_slice
from pacefno.groups import Group
from pacefno.registry import build, registered, spec_of, unknown


class TaskError(UsageError):
    """A task that cannot be used; the message names the entry and what was expected."""


class Settings(BaseModel):
    """Base of all documents: frozen, and an unknown entry is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _TypeDocument(Settings):
    """The entries of a field type as they may be written."""

    channels: str
    dim: int
    times: list[float] = Field([0.0], min_length=1)
    lengths: float | list[float] = 1.0
    step: float = Field(1.0, gt=0)


def _to_type(value: Any) -> Any:
    if isinstance(value, FieldType):
        return value
    if not isinstance(value, dict):
        known = ", ".join(_TypeDocument.model_fields)
        raise UsageError(f"expected entries {known}, got {value!r}")
    try:
        checked = _TypeDocument.model_validate(value)
    except ValidationError as error:
        raise UsageError(first_fault(error, _TypeDocument)) from None
    return FieldType.from_document(checked.model_dump())


def _to_group(value: Any) -> Any:
    if isinstance(value, Group):
        return value
    check_named("group", value)
    groups = {k: {"part": "group", **v} for k, v in value.items() if isinstance(v, dict)}
    return build({"part": "group", **value, **groups})


def _to_slice(value: Any, info: ValidationInfo) -> Any:
    group = info.data.get("group")
    if group is None or isinstance(value, CanonicalSlice):
        return value  # without a group: it was refused already, and that message is the one to show
    if value is None:
        return default_slice(group)
    check_named("slice", value)
    return build({"part": "slice", **value}, group=group)


def check_named(part: str, value: Any) -> None:
    """Refuse what is not the specification of a part: entries, of which one is its name."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        known = ", ".join(registered(part))
        raise UsageError(f"expected entries with a name out of {known}, got {value!r}")


def _plain(part: object) -> dict[str, Any]:
    return {key: value for key, value in spec_of(part).items() if key != "part"}


Type = Annotated[
    InstanceOf[FieldType], BeforeValidator(_to_type), PlainSerializer(FieldType.document)
]
GroupPart = Annotated[InstanceOf[Group], BeforeValidator(_to_group), PlainSerializer(_plain)]
SlicePart = Annotated[
    InstanceOf[CanonicalSlice], BeforeValidator(_to_slice), PlainSerializer(_plain)
]


class Rollout(Settings):
    """How trajectories are predicted: all snapshots from number ``first`` on, by repeated steps."""

    first: int = Field(ge=1)


class Task(Settings):
    """Input and output, the symmetry between them, and how the error is measured.

    ``train_range`` is how far samples are moved in training, one magnitude per coordinate of the
    group. Errors are pooled over channels, or averaged over the channels' own relative errors.
    With ``rollout`` the samples are whole trajectories, and the error is that of long predictions.
    """

    name: str = "task"
    input: Type
    output: Type
    group: GroupPart
    slice: SlicePart = Field(default=None, validate_default=True)
    train_range: tuple[Annotated[float, Field(ge=0)], ...] = ()
    error: Literal["pooled", "per-channel"] = "pooled"
    rollout: Rollout | None = None

    @model_validator(mode="after")
    def _fits(self) -> Task:
        for name, type, check in (
            ("input", self.input, self.group.check_type),
            ("output", self.output, self.group.check_action),
        ):
            try:
                check(type)
            except UsageError as error:
                raise UsageError(f"{name}: {error}") from None
        check_one_box(self.input, self.output)
        if self.input.step != self.output.step and self.group.rescales:
            raise UsageError(
                f"the {self.group.name} group rescales steps, so input and output say the same "
                f"one: got step {self.input.step} and {self.output.step}"
            )
        if len(self.train_range) not in (0, self.group.size):
            raise UsageError(
                f"train_range: expected one magnitude for each of {self.group.coordinates}, "
                f"got {self.train_range}"
            )
        if self.rollout is not None:
            if self.spacing != 1:
                raise UsageError(
                    f"rollout: snapshots are predicted one after the other, so times count 0, 1, "
                    f"2, ...: got {self.input.times} to {self.output.times}; longer steps are "
                    "made by time_stride in [data], or by leaving out snapshots"
                )
            if self.rollout.first < self.input.snapshots:
                raise UsageError(
                    f"rollout: first is {self.rollout.first}, but the first "
                    f"{self.input.snapshots} snapshots are given: expected at least that"
                )
        return self

    @property
    def per_channel(self) -> bool:
        return self.error == "per-channel"

    @property
    def dim(self) -> int:
        return self.input.dim

    @property
    def horizon(self) -> float:
        """The time from the last input snapshot to the last output snapshot, in data units."""
        return self.output.times[-1] * self.output.step - self.input.times[-1] * self.input.step

    def document(self) -> dict[str, Any]:
        """Plain data that JSON can hold; :func:`read_task` and ``Task.model_validate`` read it."""
        return self.model_dump(mode="json")

    def over(self, history: int, future: int | None = None) -> Task:
        """The same task from ``history`` snapshots to the ``future`` ones after them."""
        ahead = history if future is None else future
        return self.model_copy(
            update={
                "input": self.input.at(range(history)),
                "output": self.output.at(range(history, history + ahead)),
            }
        )

    @property
    def spacing(self) -> float:
        """Steps from one snapshot to the next; an error where a prediction is no next input."""
        if self.input.quantities != self.output.quantities:
            check_next_input(self.input, self.output)
        times = (*self.input.times, *self.output.times)
        apart = {round(b - a, 9) for a, b in pairwise(times)}
        if len(apart) != 1 or min(apart) <= 0 or self.input.step != self.output.step:
            raise UsageError(
                f"rollout: snapshots {self.input.times} to {self.output.times} are not evenly "
                "spaced, so a prediction is no input: train a task from snapshots 0, 1, ... to the "
                "next ones"
            )
        return apart.pop()

    def later(self, steps: int) -> Task:
        """The task that ``steps`` predictions in a row do: its output is the last of them."""
        if steps == 1:
            return self
        ahead = (steps - 1) * self.output.snapshots * self.spacing
        output = self.output.at([time + ahead for time in self.output.times])
        return self.model_copy(update={"output": output})


def make_task(document: dict[str, Any]) -> Task:
    """The task that a document describes; a fault is one sentence that names the entry.

    What ``output`` does not say is as in ``input``.
    """
    if isinstance(document, dict):
        given, made = document.get("input"), document.get("output", {})
        if isinstance(given, dict) and isinstance(made, dict):
            document = document | {"output": given | made}
    try:
        return Task.model_validate(document)
    except ValidationError as error:
        raise TaskError(first_fault(error, Task)) from None


def first_fault(error: ValidationError, model: type[BaseModel]) -> str:
    """What is wrong with a document, in one sentence that begins with the entry at fault.

    An entry that does not exist comes first: where it is a slip, it explains one that is missing.
    """
    faults = error.errors()
    fault = next((f for f in faults if f["type"] == "extra_forbidden"), faults[0])
    place, text = list(fault["loc"]), fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        name = str(place.pop())
        text = unknown("entry", name, _inside(model, place).model_fields)
    elif fault["type"] != "value_error" and isinstance(fault["input"], str | int | float):
        text += f" (got {fault['input']!r})"
    return f"{'.'.join(map(str, place))}: {text}" if place else text


def _inside(model: type[BaseModel], place: Sequence[int | str]) -> type[BaseModel]:
    """The model of the entries at a place within another."""
    for key in place:
        annotation = model.model_fields[str(key)].annotation
        choices = (annotation, *get_args(annotation))
        model = next(c for c in choices if isinstance(c, type) and issubclass(c, BaseModel))
    return model


def read_toml(path: Path) -> dict[str, Any]:
    """The entries of a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: is not TOML ({error})") from None


def read_task(path: Path) -> Task:
    """The task of a TOML file."""
    document = read_toml(path)
    try:
        return make_task(document)
    except TaskError as error:
        raise TaskError(f"{path}: {error}") from None
