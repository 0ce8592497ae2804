"""The documents say what is true: their tables match the results, their code runs, their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from pacefno.studies.report import collect, stale_tables
from pacefno.studies.report.forecasts import collect_forecasts

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("name", ["README.md", "docs/results.md", "docs/lpsda.md"])
def test_no_table_in_a_document_is_older_than_the_results(name: str) -> None:
    results = [ROOT / "results"]
    assert stale_tables(ROOT / name, collect(results), collect_forecasts(results)) == [], "run: make tables"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_and_picture_of_a_document_exists(document: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", document.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", prose)
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert missing == []


def test_the_ten_lines_of_the_readme_do_what_their_comments_say() -> None:
    block = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)[0]
    torch.manual_seed(0)
    names: dict[str, object] = {}
    printed: list[float] = []
    names["print"] = lambda value: printed.append(float(value))
    exec(block, names)
    before, after = printed
    assert before > 0.5
    assert after < 1e-6
