"""Models by name, as data: the rows of every table. Each is PACE with some operator and frame.

A row says how a model is trained and how its prediction is made, on a benchmark as on files of
one's own. A new one is one entry; its operator and frame are names of registered parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, final

from pacefno.errors import UsageError
from pacefno.registry import unknown


@final
@dataclass(frozen=True)
class Row:
    """One row of a table.

    ``operator`` is "fno", one of the group FNOs below, or any registered operator by its name.
    ``frame`` is None for a plain operator, else the name of a frame: "free" is the learned frame
    without an analytic start. Rows with ``trained_as`` share the weights of that row's training.
    """

    title: str
    operator: str = "fno"
    positions: Literal["grid"] | None = "grid"
    frame: str | None = None
    moved: bool = False  # trained on moved samples (Algorithm 1, lines 2-3)
    inference: Literal["one-shot", "refined", "adam", "oracle"] = "one-shot"
    trained_as: str | None = None
    one_seed: bool = False  # a row whose spread over seeds is of no interest
    history: int | None = None  # snapshots that it sees, and predicts at once (trajectories)
    windows: Literal["anywhere", "blocks"] = "anywhere"  # where its training windows begin
    split: bool = False  # carries the exact linear part of the equation (operator "split-step")
    epochs: float = 1.0  # times those of the others
    batch: float = 1.0  # times that of the others
    coarse: float = 0.0  # share of the epochs on a coarse grid; 0: that of the others
    settings: tuple[str, ...] = ()  # what else differs from the preset, as `--set` says it
    listed: bool = True  # False for rows that are trained for ablations only

    def share_of(self, epochs: int, batch: int) -> dict[str, int]:
        """Epochs and batch of this row, from those of the others."""
        return {
            "epochs": max(1, round(self.epochs * epochs)),
            "batch": max(1, round(self.batch * batch)),
        }


GROUP_FNOS: dict[str, dict[str, Any]] = {
    # The right group and kinds of channels, and as many parameters as an FNO.
    "gfno": {},
    # What the paper seems to have run: scalar channels, the width of the FNO, normalised features.
    "gfno-literal": {"groups": {1: "z2", 2: "p4"}, "norm": True},
    # The same layers without a group, as a control.
    "gfno-plain": {"groups": {1: "z1", 2: "p1"}, "norm": False},
}


def wrapped(name: str, row: Row, title: str = "") -> Row:
    """A row with the weights that the training of another one gave, in the analytic frame."""
    title = title or f"{row.title}, wrapped after training"
    return replace(row, title=title, frame="analytic", trained_as=name)


FNO = Row("FNO")
GFNO = Row("GFNO, right representation", operator="gfno", positions=None)
GFNO_SHORT = replace(GFNO, title="GFNO, half the epochs", epochs=0.5)
AVERAGED = Row("FNO averaged over finite symmetries", operator="symmetrised", positions=None)
AVERAGED_LONG = replace(
    AVERAGED, title="FNO averaged over finite symmetries, three times the epochs", epochs=3.0
)
# What more updates gain: on Navier-Stokes about as many as the paper makes.
PRODUCTS_LONG = Row(
    "FNO with products, six times the epochs",
    positions=None,
    epochs=6.0,
    batch=0.5,
    coarse=0.8,
    settings=("operator.activation=products",),
    one_seed=True,
)
FIELD_ROWS: dict[str, Row] = {
    "fno": FNO,
    "fno-aug": Row("FNO + augmentation", moved=True),
    "fno-nogrid": Row("FNO without position channels", positions=None),
    "fno-nogrid-centred": Row(
        "FNO without position channels, mean removed",
        positions=None,
        frame="kinematic",
        trained_as="fno-nogrid",
    ),
    "gfno": GFNO,
    "gfno-literal": Row(
        "GFNO, scalar channels, same width", operator="gfno-literal", positions=None, one_seed=True
    ),
    "gfno-plain": Row(
        "GFNO's layers without a group", operator="gfno-plain", positions=None, one_seed=True
    ),
    "pace": Row("PACE, one-shot", frame="equivariant", moved=True),
    "pace-tta": Row(
        "PACE, refined", frame="equivariant", moved=True, inference="refined", trained_as="pace"
    ),
    "pace-oracle": Row(
        "PACE, true frame", frame="equivariant", moved=True, inference="oracle", trained_as="pace"
    ),
    "pace-products": Row(
        "PACE, half the batch and products of channels",
        frame="equivariant",
        moved=True,
        batch=0.5,
        settings=("operator.activation=products",),
        one_seed=True,
    ),
    "fno-products-long": PRODUCTS_LONG,
    "pace-products-long": wrapped("fno-products-long", PRODUCTS_LONG),
    "pace-free": Row(
        "PACE, learned frame without alignment", frame="free", moved=True, one_seed=True
    ),
    "pace-cnn": Row("PACE, the paper's estimator", frame="cnn", moved=True),
    "pace-cnn-tta": Row(
        "PACE, the paper's estimator and refinement",
        frame="cnn",
        moved=True,
        inference="adam",
        trained_as="pace-cnn",
    ),
    "pace-analytic": wrapped("fno", FNO, "FNO wrapped after training"),
    "pace-gfno": wrapped("gfno", GFNO, "GFNO wrapped after training"),
    "gfno-short": GFNO_SHORT,
    "pace-gfno-short": wrapped("gfno-short", GFNO_SHORT),
    "fno-symmetrised": AVERAGED,
    "pace-symmetrised": wrapped(
        "fno-symmetrised", AVERAGED, "FNO averaged, wrapped after training"
    ),
    "fno-symmetrised-long": AVERAGED_LONG,
    "pace-symmetrised-long": wrapped(
        "fno-symmetrised-long",
        AVERAGED_LONG,
        "FNO averaged, three times the epochs, wrapped after training",
    ),
    "pace-regression": Row(
        "PACE, shifts as plain numbers", frame="regression", moved=True, listed=False
    ),
    "pace-translations": Row(
        "PACE, translations only", frame="translations", moved=True, listed=False
    ),
    "pace-cnn-translations": Row(
        "PACE, the paper's estimator, translations only",
        frame="cnn-translations",
        moved=True,
        listed=False,
    ),
}


def listed(rows: Mapping[str, Row]) -> list[str]:
    """The names of the rows that belong into a table."""
    return [name for name, row in rows.items() if row.listed]


def trainable(rows: Mapping[str, Row] = FIELD_ROWS) -> list[str]:
    """The names of the rows in tables that have a training of their own."""
    return [name for name in listed(rows) if not rows[name].trained_as]


def row_named(rows: Mapping[str, Row], name: str) -> Row:
    """A row by its name, or an error that lists what there is."""
    if name not in rows:
        raise UsageError(unknown("model", name, listed(rows)))
    return rows[name]
