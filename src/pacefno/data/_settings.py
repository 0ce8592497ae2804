"""What a document says of the file that holds its samples: the tables ``[data]`` and ``[ood]``."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field as Entry
from pydantic import ValidationError, model_validator

from pacefno.data.formats import ROLES
from pacefno.errors import UsageError
from pacefno.registry import unknown
from pacefno.task import Settings, first_fault

BLANK = "?"  # stands in a document for what only its owner knows
Magnitudes = tuple[Annotated[float, Entry(ge=0)], ...]


class DataSettings(Settings):
    """Which arrays of a file are the channels, what their axes are, and how samples are cut.

    ``arrays`` hold trajectories: the channels of the input type in their order, from one array
    with a channel axis or from several. Windows of snapshots are cut from them, as the times of the
    task's input and output say. ``inputs`` and ``targets`` hold pairs instead.
    """

    file: str  # as seen from the document; a folder or a pattern of files with one layout
    validation_file: str = ""  # where the samples of validation and test lie in files of their own
    test_file: str = ""
    format: str = ""  # by the ending of the file, if not said
    arrays: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    axes: str | dict[str, str]  # "sample time x y channel", or by the name of the array
    endpoint: bool = False  # the file lists the end point of the period as well: it is dropped
    time_stride: int = Entry(1, ge=1)  # stored snapshots from one snapshot of the task to the next
    samples: int | None = Entry(None, ge=3)  # use the first so many only
    windows: int | None = Entry(None, ge=1)  # from each trajectory; all that fit, if not said
    coarsening: int = Entry(1, ge=1)  # the training grid takes every such point
    split: tuple[float, float, float] = (0.8, 0.1, 0.1)  # train, validation, test
    split_by: Literal["trajectory", "time"] = "trajectory"  # time: of one or two long ones
    seed: int = 0  # of the split
    precision: Literal["float32", "float64"] = "float32"
    allow: tuple[Literal["non-periodic", "constant", "axes"], ...] = ()  # faults that are meant

    @model_validator(mode="after")
    def _fits(self) -> DataSettings:
        if bool(self.arrays) == bool(self.inputs) or bool(self.inputs) != bool(self.targets):
            raise UsageError("name either arrays (trajectories), or inputs and targets (pairs)")
        if self.file in (self.validation_file, self.test_file):
            raise UsageError(
                "name another file than data.file, or none: splits never share samples"
            )
        if self.split_by == "time" and (self.inputs or self.validation_file or self.test_file):
            raise UsageError(
                'split_by: "time" cuts trajectories of one file: name arrays, and no other files'
            )
        if self.inputs and (self.time_stride != 1 or self.windows is not None):
            raise UsageError(
                "time_stride and windows are about trajectories (arrays), and inputs and targets "
                "are pairs: leave them out"
            )
        if min(self.split) < 0 or not math.isclose(sum(self.split), 1, abs_tol=1e-6):
            raise UsageError(
                f"split: expected shares of train, validation and test with sum 1, got {self.split}"
            )
        return self

    def document(self) -> dict[str, Any]:
        """What determines the samples, as plain data."""
        return self.model_dump(mode="json", exclude={"allow"})

    def axes_of(self, array: str) -> tuple[str, ...]:
        """The roles of an array's axes."""
        text = self.axes if isinstance(self.axes, str) else self.axes.get(array)
        if text is None:
            raise UsageError(f"data.axes: nothing is said of {array!r}: add an entry for it")
        return parse_axes(text)


def parse_axes(text: str) -> tuple[str, ...]:
    """The roles of a text such as ``"sample time x y channel"``."""
    roles = tuple(text.replace(",", " ").split())
    for role in roles:
        if role not in ROLES:
            raise UsageError(f"data.axes: {unknown('axis', role, ROLES)}")
    if len(set(roles)) != len(roles) or "x" not in roles:
        raise UsageError(f"data.axes: expected each axis once and at least x, got {text!r}")
    return roles


class OodSettings(Settings):
    """How far test samples are moved: the magnitude of each coordinate lies from low to high."""

    low: Magnitudes
    high: Magnitudes
    seed: int = 0
    inexact: bool = False  # accept what is not exact on a periodic grid, as a rotation


S = TypeVar("S", bound=Settings)


def read_table(model: type[S], name: str, entries: Any) -> S:
    """A table of the document; a fault is one sentence that names the entry."""
    try:
        return model.model_validate(entries)
    except ValidationError as error:
        raise UsageError(f"{name}: {first_fault(error, model)}") from None
