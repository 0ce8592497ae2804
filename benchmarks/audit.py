"""Audit two operators that are not ours, trained on a flow that is not ours.

A neuraloperator FNO and a zero-padded U-Net learn decaying two-dimensional turbulence as it is (see
foreign_operators.py). Then each is audited on flows that it has not seen, by every symmetry that
the equation has: shifts, boosts, mirrors and quarter turns.

    pip install 'pacefno[train]' neuraloperator==2.0.0
    python benchmarks/audit.py --minutes 4 --output results/audit.json --pages audits
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import pacefno
from foreign_operators import CHANNELS, HORIZON, LENGTH, fit, make_operators, pairs
from pacefno.task import Task


def make_task() -> Task:
    """Velocities now to velocities one horizon later, with shifts and boosts."""
    type = pacefno.FieldType.parse(CHANNELS, 2, lengths=LENGTH)
    return Task(
        name="decaying turbulence",
        input=type,
        output=type.at([HORIZON]),
        group=pacefno.Galilean(2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=4.0, help="of training, each operator")
    parser.add_argument("--samples", type=int, default=400, help="for training")
    parser.add_argument("--audited", type=int, default=20, help="samples of the audit")
    parser.add_argument("--output", type=Path, help="write the numbers here as JSON")
    parser.add_argument("--pages", type=Path, help="write one HTML page each into this folder")
    options = parser.parse_args()
    torch.manual_seed(0)
    _, x, y = pairs(options.samples, seed=1)
    _, x_test, y_test = pairs(options.audited, seed=2)
    found = {}
    for name, operator in make_operators().items():
        steps = fit(operator, x, y, 60 * options.minutes)
        audit = pacefno.audit(
            operator.eval(), make_task(), x_test, y_test, point_group="p4m", name=name
        )
        print(f"{name}, {steps} steps\n{audit}\n", flush=True)
        found[name] = {"training steps": steps} | audit.document()
        if options.pages:
            options.pages.mkdir(parents=True, exist_ok=True)
            page = options.pages / f"{name.replace(' ', '-')}.html"
            page.write_text(audit.html(), encoding="utf-8")
    if options.output:
        settings = {"minutes": options.minutes, "samples": options.samples}
        document = {"study": "audit", "settings": settings, "models": found}
        options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
