"""Numbers in documents are rendered from the result files: the text between two markers is replaced, nothing else.

``<!-- table:burgers1d -->`` ... ``<!-- /table -->`` holds a problem's table, ``table:summary`` one line per problem, and
``<!-- findings:burgers1d -->`` ... ``<!-- /findings -->`` what the numbers say.
"""

from __future__ import annotations

import re
from pathlib import Path

from pacefno.durable import write_text_atomically
from pacefno.equations import BENCHMARKS
from pacefno.studies.report.collect import Tables
from pacefno.studies.report.findings import findings
from pacefno.studies.report.forecasts import ForecastTables, forecast_findings, forecast_markdown
from pacefno.studies.report.tables import markdown_summary, markdown_table

REGION = re.compile(r"^<!-- (table|findings):([\w-]+) -->\n(.*?)^<!-- /\1 -->$", re.MULTILINE | re.DOTALL)
OPENING = re.compile(r"^<!-- (?:table|findings):[\w-]+ -->$", re.MULTILINE)
SUMMARY = "summary"


class DocumentError(ValueError):
    """A document whose markers cannot be understood; the message names it and the marker."""


def update_tables(markdown_path: Path, results: Tables, forecasts: ForecastTables | None = None) -> list[str]:
    """Rewrite every marked region of a document; the names of those that changed come back."""
    old = _read(markdown_path)
    new, changed = _rendered(markdown_path, old, results, forecasts or {})
    if new != old:
        write_text_atomically(markdown_path, new)
    return changed


def stale_tables(markdown_path: Path, results: Tables, forecasts: ForecastTables | None = None) -> list[str]:
    """The names of the regions that no longer say what the result files say; nothing is written."""
    return _rendered(markdown_path, _read(markdown_path), results, forecasts or {})[1]


def _read(path: Path) -> str:
    return path.read_bytes().decode()  # no translation of line ends: what is outside the markers keeps its bytes


def _rendered(path: Path, text: str, results: Tables, forecasts: ForecastTables) -> tuple[str, list[str]]:
    regions = REGION.findall(text)
    if not regions:
        raise DocumentError(f"{path}: has no `<!-- table:PROBLEM -->` ... `<!-- /table -->` lines to write between")
    if len(regions) != len(OPENING.findall(text)):
        raise DocumentError(f"{path}: a `<!-- table:... -->` line has no `<!-- /table -->` line after it: add it")
    changed: list[str] = []

    def replace(match: re.Match[str]) -> str:
        kind, name, old = match.groups()
        new = f"\n{_content(path, kind, name, results, forecasts)}\n"
        if new != old:
            changed.append(f"{kind}:{name}")
        return f"<!-- {kind}:{name} -->\n{new}<!-- /{kind} -->"

    return REGION.sub(replace, text), changed


def _content(path: Path, kind: str, name: str, results: Tables, forecasts: ForecastTables) -> str:
    if name == SUMMARY and kind == "table":
        return markdown_summary(results)
    if name in forecasts:
        rows = [f"- {sentence}\n" for sentence in forecast_findings(forecasts[name])]
        return forecast_markdown(forecasts[name]) if kind == "table" else "".join(rows)
    if name not in BENCHMARKS:
        raise DocumentError(f"{path}: {kind}:{name}: expected {SUMMARY} or one of {', '.join(BENCHMARKS)}")
    if name not in results:
        raise DocumentError(f"{path}: {kind}:{name}: there are no results for it; make them with `pacefno bench {name}`")
    if kind == "table":
        return markdown_table(results[name])
    return "".join(f"- {sentence}\n" for sentence in findings(results[name]))
