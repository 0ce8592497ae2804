"""Tables in documents, rendered from the result files of the scripts that measured them.

    python benchmarks/documents.py [--check]

Between ``<!-- measured:NAME -->`` and ``<!-- /measured -->`` of a page in docs/ stands what
``content`` of the script ``NAME.py`` beside this one makes of ``results/NAME.json``, or of the file
that the script calls ``MEASURED``, so that no number on a page is typed. ``--check`` writes nothing
and exits with 1 where a page is out of date.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS, PAGES = HERE.parent / "results", HERE.parent / "docs"
REGION = re.compile(r"(<!-- measured:(\w+) -->\n)(.*?)(<!-- /measured -->)", re.DOTALL)


def render(text: str, results: Path = RESULTS) -> str:
    """A page with its regions filled; one whose results are missing stays as it is."""

    def fill(match: re.Match[str]) -> str:
        opening, name, old, closing = match.groups()
        script = importlib.import_module(name)
        file = getattr(script, "MEASURED", results / f"{name}.json")
        if not file.exists():
            return opening + old + closing
        made = script.content(json.loads(file.read_text(encoding="utf-8")))
        return f"{opening}\n{made}\n{closing}"

    return REGION.sub(fill, text)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table whose first ``left`` columns are words and the others numbers."""
    ruler = ["---"] * left + ["--:"] * (len(head) - left)
    lines = [head, ruler, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only say what is out of date")
    options = parser.parse_args()
    stale = 0
    for path in sorted(PAGES.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (made := render(text)) != text:
            stale += 1
            print(f"{path.name}{' out of date' if options.check else ''}")
            if not options.check:
                path.write_text(made, encoding="utf-8")
    return int(options.check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
