"""Audit two operators that are not ours, trained on a flow that is not ours.

A neuraloperator FNO and a zero-padded U-Net learn decaying two-dimensional turbulence as it is (see
foreign_operators.py). Then each is audited on flows that it has not seen, by every symmetry that
the equation has: shifts, boosts, mirrors and quarter turns.

    pip install 'pacefno[train]' neuraloperator==2.0.0
    python benchmarks/audit.py --minutes 4 --output results/audit.json

The learning rate follows the clock and ends at 0 with the minutes. An operator that the output has
already, trained with the same settings, is not trained again. ``python benchmarks/documents.py``
writes the table of docs/audit.md from it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import pacefno
from foreign_operators import CHANNELS, HORIZON, LENGTH, fit, make_operators, pairs
from pacefno.task import Task

WHOLE, FRACTION, BOOST, TOGETHER, POINT, EVERYTHING = (
    "shift by whole cells", "shift by fractions of a cell", "boost", "all together",
    "mirror or turn", "all together, mirrored or turned",
)  # fmt: skip
MOTIONS = (WHOLE, FRACTION, BOOST, TOGETHER)
# Title, families, entry: the worst of each in the table.
COLUMNS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("shifted by whole cells", (WHOLE,), "error"),
    ("by fractions", (FRACTION,), "error"),
    ("boosted", (BOOST,), "error"),
    ("all together", (TOGETHER,), "error"),
    ("mirrored", (POINT,), "error"),
    ("any motion, with PACE", MOTIONS, "wrapped"),
    ("mirrored, averaged over p4m", (POINT,), "averaged"),
    ("all and mirrored, PACE + averaged", (*MOTIONS, POINT, EVERYTHING), "both"),
)


def make_task() -> Task:
    """Velocities now to velocities one horizon later, with shifts and boosts."""
    type = pacefno.FieldType.parse(CHANNELS, 2, lengths=LENGTH)
    return Task(
        name="decaying turbulence",
        input=type,
        output=type.at([HORIZON]),
        group=pacefno.Galilean(2),
    )


def content(document: dict[str, Any]) -> str:
    """What the page says of a result file: how they were trained, the table, and the causes."""
    settings, models = document["settings"], document["models"]
    steps = " and ".join(str(found["training steps"]) for found in models.values())
    lines = [
        f"Trained for {settings['minutes']:g} minutes each on {settings['samples']} samples, that "
        f"is {steps} steps of 16.\n",
        f"| worst error | at rest | {' | '.join(title for title, _, _ in COLUMNS)} |",
        f"|---|{'--:|' * (len(COLUMNS) + 1)}",
    ]
    for name, found in models.items():
        cells = [f"{found['rest']['error']:.3g}"]
        for _, families, entry in COLUMNS:
            rows = [row for row in found["rows"] if row["family"] in families]
            known = [row[entry] for row in rows if row.get(entry) is not None]
            cells.append(f"{max(known):.3g}" if known else "-")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines.append("")
    for name, found in models.items():
        cause = next((f["text"] for f in found["findings"] if f["level"] == "cause"), "nothing")
        lines.append(f'Of the {name} the audit says: "{cause}"')
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=4.0, help="of training, each operator")
    parser.add_argument("--samples", type=int, default=400, help="for training")
    parser.add_argument("--audited", type=int, default=20, help="samples of the audit")
    parser.add_argument("--output", type=Path, help="write the numbers here as JSON")
    parser.add_argument("--pages", type=Path, help="write one HTML page each into this folder")
    options = parser.parse_args()
    began = time.monotonic()
    settings = {key: getattr(options, key) for key in ("minutes", "samples", "audited")}
    document: dict[str, Any] = {"study": "audit", "settings": settings, "models": {}}
    if options.output and options.output.exists():
        before = json.loads(options.output.read_text())
        if before["settings"] == settings:
            document = before
    train(document, options)
    print(f"{time.monotonic() - began:.0f} s in all")


def train(document: dict[str, Any], options: argparse.Namespace) -> None:
    """Train and audit what the document has not yet."""
    torch.manual_seed(0)
    operators = make_operators()
    missing = {name: one for name, one in operators.items() if name not in document["models"]}
    if not missing:
        return
    _, x, y = pairs(options.samples, seed=1)
    _, x_test, y_test = pairs(options.audited, seed=2)
    for name, operator in missing.items():
        steps = fit(operator, x, y, 60 * options.minutes)
        audit = pacefno.audit(
            operator.eval(), make_task(), x_test, y_test, point_group="p4m", name=name
        )
        print(f"{name}, {steps} steps\n{audit}\n", flush=True)
        document["models"][name] = {"training steps": steps} | audit.document()
        if options.pages:
            options.pages.mkdir(parents=True, exist_ok=True)
            page = options.pages / f"{name.replace(' ', '-')}.html"
            page.write_text(audit.html(), encoding="utf-8")
        if options.output:
            options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
