"""The rows of tables: those that any data can have, and those of LPSDA's trajectories."""

from __future__ import annotations

from pacefno.train.rows import FIELD_ROWS, GROUP_FNOS, Row, listed, row_named

__all__ = [
    "FIELD_ROWS",
    "GROUP_FNOS",
    "TRAJECTORY_ROWS",
    "Row",
    "listed",
    "row_named",
    "trajectory_rows",
]

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
    "fno-1-split": Row(
        "FNO, 1 snapshot, exact linear part",
        positions=None,
        history=1,
        split=True,
        one_seed=True,
    ),
    # One frame for 20 snapshots, and within it 20 steps of the operator that "fno-1-split" trains.
    "pace-20-split": Row(
        "PACE, 20 snapshots, exact linear part, wrapped after training",
        positions=None,
        history=20,
        frame="analytic",
        split=True,
        trained_as="fno-1-split",
    ),
    # The same steps with an operator that was trained within frames, each of one snapshot.
    "pace-20-1-split": Row(
        "PACE, 20 snapshots, exact linear part, weights of PACE on 1",
        positions=None,
        history=20,
        frame="analytic",
        split=True,
        trained_as="pace-1-split",
    ),
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
    # Where the equation has a reflection, which takes u(x) to -u(-x): see `trajectory_rows`.
    "pace-1-split-mirror": Row(
        "PACE, 1 snapshot, exact linear part, averaged over the reflection",
        operator="symmetrised",
        positions=None,
        history=1,
        frame="analytic",
        split=True,
        one_seed=True,
    ),
}


def trajectory_rows(point_group: str) -> dict[str, Row]:
    """The rows of trajectories of an equation with these finite symmetries; "z1" are none."""
    averaged = point_group != "z1"
    return {n: r for n, r in TRAJECTORY_ROWS.items() if averaged or r.operator != "symmetrised"}
