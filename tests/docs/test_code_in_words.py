"""Code in docstrings and on pages without a test of their own runs as it is printed."""

from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SOURCE = Path(__file__).parents[2] / "src" / "pacefno"
WITH_EXAMPLES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]
SNIPPETS = """
import pacefno, torch
operator = pacefno.FNO(dim=2, in_channels=3, out_channels=3, width=4, modes=4)
"""  # what a reader of docs/symmetries.md has by then


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_of_docstrings_give_what_they_say(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"pacefno.{module}"))
    assert found.attempted > 0 and found.failed == 0


def test_there_are_examples_in_docstrings() -> None:
    assert len(WITH_EXAMPLES) >= 6 and "pace" in WITH_EXAMPLES


def blocks_of(page: str) -> list[str]:
    """The Python in a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks, page
    return blocks


def test_the_blocks_of_pages_run(tmp_path: Path) -> None:
    """In a process of their own, because they register parts and write files."""
    pages = {"method.md": "", "symmetries.md": SNIPPETS, "adding.md": ""}
    blocks = [before + block for page, before in pages.items() for block in blocks_of(page)]
    program = f"for block in {blocks!r}:\n    exec(block, {{'__name__': 'page'}})\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_blocks_on_export_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, because a process of its own would load the whole of torch's compiler again."""
    monkeypatch.chdir(tmp_path)
    for block in blocks_of("export.md"):
        exec(block, {"__name__": "page"})
    assert (tmp_path / "model.pt2").exists()
