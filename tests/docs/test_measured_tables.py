"""Numbers on pages that scripts of benchmarks/ measured are those of the result files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pacefno

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """A command that finds the scripts and this version of the package."""
    paths = (ROOT / "benchmarks", Path(pacefno.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    return subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
    )


def test_the_pages_say_what_the_result_files_say() -> None:
    """Where this fails: ``python benchmarks/documents.py`` writes them anew."""
    done = run(str(ROOT / "benchmarks" / "documents.py"), "--check")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


def test_a_number_that_was_typed_is_noticed(tmp_path: Path) -> None:
    row = {"problem": "burgers1d", "way": "plain", "budget": 1.0, "epochs": 60, "seconds": 10.0}
    rows = [row | {"validation_error": 0.1}, row | {"way": "gfno", "validation_error": 0.05}]
    (tmp_path / "finite_symmetry.json").write_text(json.dumps({"rows": rows}))
    text = "before\n<!-- measured:finite_symmetry -->\n0.06\n<!-- /measured -->\nafter\n"
    script = (
        "import sys; from pathlib import Path; from documents import render; "
        "print(render(sys.argv[1], Path(sys.argv[2])))"
    )
    made = run("-c", script, text, str(tmp_path))
    assert made.returncode == 0, made.stderr[-2000:]
    assert "| 1-D Burgers | gfno | 60 | 10 | 0.0500 | 1.0, 0.50 |" in made.stdout
    assert "0.06\n" not in made.stdout
    assert made.stdout.startswith("before") and made.stdout.rstrip().endswith("after")
    kept = run("-c", script, text, str(tmp_path / "nowhere"))
    assert kept.stdout.rstrip() == text.rstrip(), "without results a page stays as it is"


@pytest.mark.parametrize("name", ["audit", "export", "finite_symmetry", "growth", "time_to_error"])
def test_every_measured_region_has_a_script_that_fills_it(name: str) -> None:
    done = run("-c", f"import {name}; assert callable({name}.content)")
    assert done.returncode == 0, done.stderr[-2000:]
