"""The page on one's own data runs as it is printed, in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pacefno.cli import app
from pacefno.data import open_task

PAGE = Path(__file__).parents[2] / "docs" / "own-data.md"


def test_a_file_is_made_inspected_and_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    solver, use = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:2]
    command = re.findall(r"```bash\npacefno (inspect turbulence.*?)\n```", text, re.DOTALL)[0]
    exec(compile(solver, str(PAGE), "exec"), {})
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output
    head = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0]
    assert Path("task.toml").read_text().startswith(head)
    printed: list[object] = []
    exec(compile(use, str(PAGE), "exec"), {"print": lambda *words: printed.extend(words)})
    assert printed == [70, (32, 32), (4, 2, 32, 32)]
    task, source = open_task(Path("task.toml"))
    assert task.group.name == "galilean" and task.input.step == 0.1 and source.notes == []
