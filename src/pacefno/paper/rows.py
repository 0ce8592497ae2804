"""The rows of tables: those that any data can have, and those of LPSDA's trajectories."""

from __future__ import annotations

from pacefno.train.rows import FIELD_ROWS, GROUP_FNOS, Row, listed, row_named

__all__ = ["FIELD_ROWS", "GROUP_FNOS", "TRAJECTORY_ROWS", "Row", "listed", "row_named"]

# No model of trajectories has a channel of coordinates, as in LPSDA.
TRAJECTORY_ROWS: dict[str, Row] = {
    "fno": Row("FNO, 20 snapshots", positions=None, history=20, windows="blocks"),
    "fno-g1": Row("FNO, 20 snapshots + time windows", positions=None, history=20, one_seed=True),
    "fno-aug": Row("FNO, 20 snapshots + augmentation", positions=None, history=20, moved=True),
    "pace-20": Row("PACE, 20 snapshots", positions=None, history=20, frame="analytic"),
    "fno-aug-1": Row(
        "FNO, 1 snapshot + augmentation", positions=None, history=1, moved=True, one_seed=True
    ),
    "pace-1": Row("PACE, 1 snapshot", positions=None, history=1, frame="analytic"),
    "fno-aug-1-split": Row(
        "FNO, 1 snapshot + augmentation, exact linear part",
        positions=None,
        history=1,
        moved=True,
        split=True,
        one_seed=True,
    ),
    "pace-1-split": Row(
        "PACE, 1 snapshot, exact linear part",
        positions=None,
        history=1,
        frame="analytic",
        split=True,
    ),
}
