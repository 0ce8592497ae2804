"""Numbers in documents come from the result files: the text between two markers is replaced.

``<!-- table:burgers1d -->`` ... ``<!-- /table -->`` holds the table of a benchmark,
``table:ablation-burgers1d`` that of its ablation, ``table:summary`` one line per benchmark of
pairs, ``table:symmetries`` what finite symmetries gain, ``table:budget`` what more updates do
and ``table:budget-rollouts`` what they do to rollouts,
``table:paper-tables`` and its like the claims of the paper with what is there of each, and
``table:paper-gallery`` the figures. Nothing else of a document is touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from pacefno.errors import UsageError
from pacefno.files import write_bytes
from pacefno.paper.benchmarks import BENCHMARKS
from pacefno.paper.report.collect import Tables, collect, results_folder
from pacefno.paper.report.tables import (
    NOT_MEASURED,
    ablation_table,
    markdown_budget,
    markdown_claims,
    markdown_of,
    markdown_rollout_budget,
    markdown_summary,
    markdown_symmetries,
    markdown_table,
)
from pacefno.registry import unknown

REGION = re.compile(r"^<!-- table:([\w-]+) -->\n(.*?)^<!-- /table -->$", re.MULTILINE | re.DOTALL)
OPENING = re.compile(r"^<!-- table:[\w-]+ -->$", re.MULTILINE)
# Tables that are of no single benchmark, by the name in the marker.
OVERALL: dict[str, Callable[[Tables, Sequence[Path]], str]] = {
    "summary": lambda tables, _: markdown_summary(tables),
    "symmetries": lambda tables, _: markdown_symmetries(tables),
    "budget": lambda _, folders: markdown_budget(folders),
    "budget-rollouts": lambda _, folders: markdown_rollout_budget(folders),
}


class DocumentError(UsageError):
    """A document whose markers cannot be filled; the message names it and the marker."""


def stale_documents(
    paths: Sequence[Path],
    results: Sequence[Path],
    preset: str | None = None,
    *,
    write: bool = False,
) -> dict[Path, list[str]]:
    """The documents with regions that do not say what the results say; ``write`` makes them so.

    If a marker of any document cannot be filled, none is written.
    """
    tables = collect(results, preset)
    folders = [results_folder(folder) for folder in results]
    rendered = [(path, *render(path, tables, folders)) for path in paths]
    for path, text, stale in rendered:
        if write and stale:
            write_bytes(path, text.encode())
    return {path: stale for path, _, stale in rendered if stale}


def render(path: Path, tables: Tables, folders: Sequence[Path]) -> tuple[str, list[str]]:
    """The document with its regions filled, and the names of those that are new."""
    text = path.read_bytes().decode()  # line ends outside the markers stay as they are
    regions = REGION.findall(text)
    if not regions:
        raise DocumentError(
            f"{path}: has no `<!-- table:BENCHMARK -->` ... `<!-- /table -->` lines"
        )
    if len(regions) != len(OPENING.findall(text)):
        raise DocumentError(
            f"{path}: a `<!-- table:... -->` line has no `<!-- /table -->` line after it: add it"
        )
    changed: list[str] = []

    def fill(match: re.Match[str]) -> str:
        name, old = match.groups()
        new = f"\n{_content(path, name, tables, folders)}\n"
        if new != old:
            changed.append(name)
        return f"<!-- table:{name} -->\n{new}<!-- /table -->"

    return REGION.sub(fill, text), changed


def _content(path: Path, name: str, tables: Tables, folders: Sequence[Path]) -> str:
    if name in OVERALL:
        return OVERALL[name](tables, folders)
    if name in tables:
        return markdown_table(tables[name])
    kind, _, part = name.partition("-")
    if kind == "paper":
        return markdown_claims(part, folders)
    if kind == "ablation" and part in BENCHMARKS:
        table = ablation_table(folders, BENCHMARKS[part])
        return markdown_of(table) if table else NOT_MEASURED
    if name not in BENCHMARKS:
        raise DocumentError(f"{path}: {unknown('table', name, [*OVERALL, *BENCHMARKS])}")
    raise DocumentError(
        f"{path}: table:{name}: has no results: make them with `pacefno bench {name}`"
    )
