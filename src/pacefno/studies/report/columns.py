"""The columns of every table: one definition for HTML, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

from pacefno.studies.report.collect import Line, Statistic, Table, statistic


@final
@dataclass(frozen=True)
class Cell:
    """What stands in a table: a mean with its spread, or plain text. Every format writes it in its own way."""

    text: str = ""
    value: Statistic | None = None
    bold: bool = False
    paper: bool = False

    @property
    def plain(self) -> str:
        return self.text if self.value is None else str(self.value)


@final
@dataclass(frozen=True)
class Column:
    title: str
    meaning: str
    cell: Callable[[Line], Cell]
    kind: Literal["name", "error", "paper", "cost"] = "error"
    only_with: str = ""  # a key without which the column is left out of a table


def measured(key: str) -> Callable[[Line], Cell]:
    """Mean and spread of a key; a dash where it was not measured: such a number is in no table."""

    def cell(line: Line) -> Cell:
        value = line.of(key)
        return Cell("–") if value is None else Cell(value=value)

    return cell


def reported(index: int) -> Callable[[Line], Cell]:
    """The paper's number."""

    def cell(line: Line) -> Cell:
        return Cell("" if line.paper is None else f"{line.paper[index]:.4f}", paper=True)

    return cell


def _parameters(line: Line) -> Cell:
    counts = sorted({int(row["parameters"]) for row in line.rows if row.get("parameters") is not None})
    return Cell(" / ".join(f"{count:,}" for count in counts) or "–")


def _seconds(key: str) -> Callable[[Line], Cell]:
    def cell(line: Line) -> Cell:
        value = statistic(line.rows, key)
        return Cell("–" if value is None else f"{value.mean:.0f}" if value.mean >= 10 else f"{value.mean:.2f}")

    return cell


COLUMNS = (
    Column("model", "", lambda line: Cell(line.title), "name"),
    Column(
        "OOD",
        "relative L2 error on samples moved beyond the training range, on the finer grid; lowest in bold, the true frame aside",
        measured("ood_error"),
    ),
    Column("paper OOD", "what the paper reports", reported(1), "paper"),
    Column("ID", "the same samples in the canonical frame, on the training grid", measured("id_error")),
    Column("paper ID", "what the paper reports", reported(0), "paper"),
    Column("ID, fine grid", "ID samples on the OOD grid", measured("id_error_fine")),
    Column(
        "OOD, canonical",
        "the OOD error after the true motion is removed from prediction and target: compare it with ID on the fine grid",
        measured("ood_error_canonical"),
    ),
    Column(
        "OOD, re-solved",
        "the OOD error against the moved initial state solved anew: the physics, where the group is only nearly a symmetry",
        measured("ood_error_resolved"),
        only_with="ood_error_resolved",
    ),
    Column(
        "equivariance",
        "how far moving the input is from moving the prediction; 0 for a model that follows its input",
        measured("equivariance_error"),
    ),
    Column("parameters", "trainable numbers", _parameters, "cost"),
    Column("training, s", "seconds of training, mean over seeds", _seconds("train_seconds"), "cost"),
    Column("OOD pass, s", "seconds to predict the OOD test set", _seconds("ood_seconds"), "cost"),
    Column("seeds", "trainings behind the row", lambda line: Cell(str(len(set(line.seeds)))), "cost"),
)


def columns_of(table: Table) -> list[Column]:
    """The columns that this table has something to say in."""
    return [column for column in COLUMNS if not column.only_with or any(row.get(column.only_with) for row in table.rows)]
