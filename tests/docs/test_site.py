"""What is cheap to know about the site; `make docs` builds it and runs its examples."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import pacefno

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def script(name: str) -> ModuleType:
    """A script of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listed() -> set[str]:
    """The pages that the contents of the site name."""
    lines = (DOCS / "index.rst").read_text(encoding="utf-8").split(".. toctree::")[1:]
    entry = re.compile(r"^   (?:[^:\n]*<)?([\w/-]+)>?$", re.MULTILINE)
    return {word for part in lines for word in entry.findall(part)}


def test_every_page_is_in_the_contents_and_every_entry_is_a_page() -> None:
    pages = {path.stem for path in DOCS.glob("*.md")}
    assert pages - listed() == set(), "add these pages to docs/index.rst"
    made = {"gallery/index", "api/index"}  # when the site is built
    assert listed() - pages == made


def test_every_public_name_is_in_the_reference_with_a_docstring() -> None:
    pytest.importorskip("h5py", reason="the rooms of data need the extra train")
    reference = script("reference")
    assert reference.undocumented() == []
    shown = [name for names in reference.pages().values() for name in names]
    assert len(shown) == len(set(shown))
    assert len(shown) > 100
    for room, names in reference.pages().items():
        module = importlib.import_module(f"pacefno.{room}")
        assert module.__doc__, room
        for name in names:
            value = getattr(module, name.rpartition(".")[2])
            assert not callable(value) or value.__doc__, f"{name} has no docstring"


def test_the_reference_has_a_page_of_commands(tmp_path: Path) -> None:
    pytest.importorskip("typer", reason="the command line needs the extra train")
    script("reference").write_pages(tmp_path)
    text = (tmp_path / "commands.rst").read_text(encoding="utf-8")
    for command in ("train", "audit", "data generate", "study theory"):
        assert f"\npacefno {command}\n---" in text
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    script("reference").write_pages(tmp_path)  # nothing has changed: nothing is written
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}


def test_the_ten_lines_are_those_of_the_readme() -> None:
    """So they run where those of the README do."""
    blocks = [
        re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)[0]
        for path in (ROOT / "README.md", DOCS / "start.md")
    ]
    assert blocks[0] == blocks[1]
    assert len([line for line in blocks[0].splitlines() if line and line[0] != "#"]) <= 10


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_begins_with_its_title_and_uses_public_names(example: Path) -> None:
    tree = ast.parse(example.read_text(encoding="utf-8"))
    title, line, *_ = (ast.get_docstring(tree) or "").splitlines()
    assert line == "=" * len(title)
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "pacefno"
    }
    assert used and used <= set(pacefno.__all__)


def test_broken_links_of_a_built_site_are_found(tmp_path: Path) -> None:
    pages = {
        "index.html": '<h1 id="top"></h1><a href="b.html#here">b</a><a href="#top">up</a>'
        '<a href="https://example.org/x">far</a><img src="data:image/png;base64,aa">',
        "b.html": '<p id="here"></p><a href="index.html">a</a>',
    }
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    check = script("check_site")
    assert check.faults(tmp_path) == ([], 5)
    bad = ("c.html", "b.html#there", "http://example.org", "https://nowhere", "pictures/a.png")
    (tmp_path / "b.html").write_text("".join(f'<a href="{target}">x</a>' for target in bad))
    found, _ = check.faults(tmp_path)
    # and the link of the other page to a place that is gone
    assert sorted(line.split(": ")[1] for line in found) == sorted([*bad, "b.html#here"])


def test_the_moving_picture_is_small_and_moves_and_is_of_the_committed_models() -> None:
    image = pytest.importorskip("PIL.Image", reason="pictures need the extra paper")
    path = DOCS / "figures" / "drag.gif"
    assert path.stat().st_size < 2_000_000
    with image.open(path) as film:
        assert film.n_frames > 20 and film.width <= 900
        made_of = film.info["comment"].decode()
    assert made_of.endswith(script("pictures").fingerprint(DOCS / "models")), "say: make gif"
