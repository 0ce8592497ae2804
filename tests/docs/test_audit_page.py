"""The page on audits runs as it is printed, in one folder, from the first command to the last."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pacefno

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"


@pytest.mark.exhaustive
def test_the_files_and_commands_of_the_page_work(tmp_path: Path) -> None:
    pytest.importorskip("xarray", reason="the page's file is written by xarray")
    pytest.importorskip("netCDF4", reason="the page's file is a NetCDF file")
    blocks = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    commands: list[str] = []
    for kind, text in blocks:
        if kind == "bash":
            commands += text.splitlines()
        else:
            (tmp_path / text.split()[1]).write_text(text)  # each names itself: "# net.py"
    assert len(commands) == 11
    paths = (str(Path(pacefno.__file__).parents[1]), os.environ.get("PYTHONPATH", ""))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    for command in commands:
        words = [sys.executable, *command.split()[1:]]
        if command.startswith("pacefno"):
            words[1:1] = ["-m", "pacefno.cli"]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    found = json.loads((tmp_path / "audit.json").read_text())
    # What the page says of the network; the numbers differ from machine to machine.
    assert found["rest"]["error"] < 0.3
    assert "fails for boosts" in found["verdict"]
    assert "at the edges of the box: it pads" in found["verdict"]
    assert max(r["wrapped"] for r in found["rows"]) < 1.15 * found["rest"]["error"]
    assert "<svg" in (tmp_path / "audit.html").read_text(encoding="utf-8")
