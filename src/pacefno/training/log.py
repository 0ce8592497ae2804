"""The metric log: one JSON object a line, one line an epoch; the same bytes whether or not a run was interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pacefno.durable import write_text_atomically

NAME = "metrics.jsonl"


def write_metric_log(run: Path, records: list[dict[str, Any]]) -> None:
    """Rewrite the log to hold exactly these epochs: lines of epochs that a kill undid disappear."""
    write_text_atomically(run / NAME, "".join(json.dumps(record) + "\n" for record in records))


def read_metric_log(run: Path) -> list[dict[str, Any]]:
    path = run / NAME
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]
