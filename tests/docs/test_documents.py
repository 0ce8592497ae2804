"""The documents say what is true: their code runs, their links and pictures lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_and_picture_of_a_document_exists(document: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", document.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", prose)
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert missing == []


def test_the_example_of_the_readme_does_what_its_comments_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # it saves a model
    text = (ROOT / "README.md").read_text()
    block = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    torch.manual_seed(0)
    printed: list[float] = []
    exec(block, {"print": lambda value: printed.append(float(value))})
    before, after = printed
    assert before > 0.5
    assert after < 1e-6
