"""Numbers on pages that scripts of benchmarks/ measured are those of the result files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
        "[print(render(sys.argv[1], Path(folder)) + '----') for folder in sys.argv[2:]]"
    )
    done = run("-c", script, text, str(tmp_path), str(tmp_path / "nowhere"))
    assert done.returncode == 0, done.stderr[-2000:]
    made, kept = done.stdout.split("----\n")[:2]
    assert "| 1-D Burgers | gfno | 60 | 10 | 0.0500 | 1.0, 0.50 |" in made
    assert "0.06\n" not in made
    assert made.startswith("before") and made.rstrip().endswith("after")
    assert kept.rstrip() == text.rstrip(), "without results a page stays as it is"


def test_every_measured_region_has_a_script_that_fills_it() -> None:
    names = "audit, export, finite_symmetry, growth, run, time_to_error"
    done = run("-c", f"import {names}; print(all(callable(m.content) for m in ({names})))")
    assert done.returncode == 0 and done.stdout.strip() == "True", done.stderr[-2000:]


def test_the_example_of_ones_own_data_says_what_was_measured() -> None:
    found = json.loads((ROOT / "results" / "own_data.json").read_text())
    page = (ROOT / "docs" / "own-data.md").read_text()
    assert f"took {found['total_seconds']:.0f} s" in page
    titles = {"pace": "PACE", "fno": "FNO", "fno-aug": "FNO with augmentation"}
    for row in found["rows"]:
        errors = f"{row['id_error']:.4f} and {row['ood_error_canonical']:.4f}"
        assert f"{titles[row['model']]} {errors}" in page
        # The pairs are other samples; all other formats hold the same trajectories.
        same = [error for name, error in row["predicted"].items() if name != "neuraloperator"]
        assert len(same) == 5 and max(same) < 1.001 * min(same), row["predicted"]
