"""The page on one's own data runs as it is printed, in an empty folder."""

from __future__ import annotations

import json
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


@pytest.mark.slow
def test_the_commands_of_the_page_lead_from_the_file_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As printed, but at the smallest preset; each command must find what the one before left."""
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    python = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(python[0], str(PAGE), "exec"), {})
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").replace("quick", "smoke").splitlines()
    commands = [line.split() for line in lines if line and "fields.npy" not in line]
    seen = [words[1] for words in commands]
    steps = ["inspect", "train", "train", "evaluate", "report", "audit", "rollout", "predict"]
    assert seen == steps
    for words in commands:
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, done.output
    for name in ("rollout.h5", "rollout.png", "rollout.gif", "predictions.npz", "audit.html"):
        assert Path(name).stat().st_size > 1000
    assert "PACE, one-shot" in Path("report/index.html").read_text()
    names: dict[str, object] = {}
    exec(compile(python[2], str(PAGE), "exec"), names)
    assert tuple(names["future"].shape) == (2, 5, 2, 32, 32)  # type: ignore[attr-defined]


def test_the_memory_of_a_large_file_is_that_of_the_result_file() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    found = json.loads((PAGE.parents[1] / "results" / "large_file.json").read_text())
    assert found["file_gigabytes"] > 20
    inspect, train, rollout = (f"{r['peak_gigabytes']:.2f} GB" for r in found["rows"].values())
    said = f"`inspect` needed {inspect} of memory at most, `train` {train} and `rollout` {rollout}"
    assert said in text and all(r["peak_gigabytes"] < 2 for r in found["rows"].values())
