"""The rooms of the package import only rooms above them: read from the source, so that paths which
no test takes count too."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pacefno

SOURCE = Path(pacefno.__file__).parent
CORE = (
    "errors", "registry", "grid", "fields", "groups", "frames", "operators", "pace", "metrics",
    "losses", "testing",
)  # fmt: skip
ROOMS = (
    *CORE, "files", "memory", "pde", "task", "data", "checkpoint", "inference", "exporting",
    "train", "auditing", "explorer", "paper", "cli",
)  # fmt: skip
OUTSIDE = {"__init__", "__main__"}  # the doors: they may open on every room
MOST_MODULES_OF_A_TRAINING = 45
NEVER = {"fcntl": "Windows has none: use filelock"}


# --- what imports what ----------------------------------------------------------------------------


def room_of(path: Path, root: Path) -> str:
    return path.relative_to(root).parts[0].removesuffix(".py")


def absolute(node: ast.ImportFrom, path: Path, root: Path) -> str:
    """The module of a ``from`` import with its dots resolved."""
    if not node.level:
        return node.module or ""
    package = ("pacefno", *path.relative_to(root).parent.parts)
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def imported_modules(path: Path, root: Path) -> list[str]:
    """Every module or name a file imports, dotted; late imports and those for types included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node, path, root)
            found += [f"{module}.{alias.name}" for alias in node.names]
    return found


def imported_rooms(path: Path, root: Path) -> set[str]:
    """The rooms a file reaches into; the package itself counts as ``__init__``, which has all."""
    rooms = set()
    for module in imported_modules(path, root):
        parts = module.split(".")
        if parts[0] == "pacefno" and parts[-1] != "__version__":
            known = len(parts) > 1 and parts[1] in ROOMS
            rooms.add(parts[1] if known else "__init__")
    return rooms


def third_party(path: Path, root: Path) -> set[str]:
    """The packages of others that a file imports."""
    tops = {module.split(".")[0] for module in imported_modules(path, root)}
    return {top for top in tops if top != "pacefno" and top not in sys.stdlib_module_names}


def violations(root: Path) -> list[str]:
    """One line for each import that points the wrong way, and each file that is in no room."""
    lines = []
    for path in sorted(root.rglob("*.py")):
        room, where = room_of(path, root), path.relative_to(root)
        for module in imported_modules(path, root):
            if why := NEVER.get(module.split(".")[0]):
                lines.append(f"{where} imports {module}: {why}")
        if room in OUTSIDE:
            continue
        if room not in ROOMS:
            lines.append(f"{where}: no room is called {room}: say where it belongs in ROOMS")
            continue
        above = {*ROOMS[: ROOMS.index(room)], room}
        lines += [
            f"{where} imports {other}, which is not above {room}"
            for other in sorted(imported_rooms(path, root) - above)
        ]
        if room in CORE:
            others = sorted(third_party(path, root) - {"torch"})
            lines += [f"{where} imports {other}: the core needs torch alone" for other in others]
    return lines


# --- circles --------------------------------------------------------------------------------------


def module_name(path: Path, root: Path) -> str:
    parts = ("pacefno", *path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_graph(root: Path) -> dict[str, set[str]]:
    """Which files import which, names resolved to the file that they live in."""
    files = {module_name(path, root): path for path in root.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        targets = imported_modules(path, root)
        found = {t if t in files else t.rpartition(".")[0] for t in targets}
        graph[name] = found & set(files) - {name}
    return graph


def folder_graph(root: Path) -> dict[str, set[str]]:
    """Which folders import which. A file beside the folders of the package is one of its own."""
    packages = {module_name(path, root) for path in root.rglob("__init__.py")} - {"pacefno"}
    graph: dict[str, set[str]] = {}

    def folder(module: str) -> str:
        above = module.rpartition(".")[0]
        return module if module in packages or above == "pacefno" else above

    for module, targets in module_graph(root).items():
        own = graph.setdefault(folder(module), set())
        own |= {folder(target) for target in targets} - {folder(module)}
    return graph


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Some closed path of imports, or nothing."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for target in sorted(graph.get(node, ())):
            found = visit(target, [*path, node])
            if found:
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := visit(node, []))), [])


# --- the package ----------------------------------------------------------------------------------


def test_rooms_import_only_rooms_above_them() -> None:
    assert violations(SOURCE) == []


def test_every_room_exists() -> None:
    there = {room_of(path, SOURCE) for path in SOURCE.rglob("*.py")} - OUTSIDE
    assert set(ROOMS) - there == set()


def test_no_files_import_each_other_in_a_circle() -> None:
    assert cycle(module_graph(SOURCE)) == []


def test_no_folders_import_each_other_in_a_circle() -> None:
    assert cycle(folder_graph(SOURCE)) == []


def test_only_the_command_line_imports_the_command_line() -> None:
    users = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if "cli" in imported_rooms(path, SOURCE) and room_of(path, SOURCE) != "cli"
    ]
    assert users == []


TRAIN = """
import inspect, sys
import h5py, lightning_fabric, pydantic, rich.progress, torch, typer  # not ours: not profiled
ran = set()

def note(frame, event, argument):
    # A function that runs. The body of a class or a module, which runs on import, is not one, nor
    # is what dataclasses make of a text.
    code = frame.f_code
    written = code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.endswith(".py")
    if event == "call" and written:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] == "pacefno":
            ran.add(name)

sys.setprofile(note)
from pacefno.cli import app
app(sys.argv[1:], standalone_mode=False)
sys.setprofile(None)
print("\\n".join(sorted(ran)))
"""


def test_a_training_runs_functions_of_few_modules(smoke_datasets: Path, tmp_path: Path) -> None:
    """Importing counts for nothing here: all parts register themselves, and most never run."""
    command = [sys.executable, "-c", TRAIN, "train", "burgers1d_smooth", "--preset", "smoke"]
    command += [
        "--set",
        "schedule.epochs=2",
        "--data",
        str(smoke_datasets),
        "--out",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    modules = [line for line in done.stdout.splitlines() if line.startswith("pacefno")]
    assert "pacefno.train.loop" in modules
    assert len(modules) <= MOST_MODULES_OF_A_TRAINING, "\n".join([str(len(modules)), *modules])


# --- the checks themselves ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("grid.py", "from pacefno.groups import Group"),
        ("grid.py", "import pacefno.groups.base"),
        ("grid.py", "from pacefno import groups"),
        ("groups/base.py", "from pacefno import FNO"),
        ("groups/base.py", "def late() -> None:\n    from pacefno.frames import Frame"),
        ("frames/base.py", "from ..operators import FNO"),
        ("frames/base.py", "from .. import train"),
        ("metrics.py", "import pacefno.losses"),
        ("losses.py", "from pacefno.train import loop"),
        ("pace.py", "from pacefno.files import write_text"),
        ("pde/burgers.py", "from pacefno.task import Task"),
        ("inference.py", "from pacefno.paper.benchmarks import BENCHMARKS"),
        ("train/loop.py", "from pacefno.cli._console import say"),
        ("fields.py", "import numpy as np"),
        ("pace.py", "def late() -> None:\n    import safetensors.torch"),
        ("files.py", "import fcntl"),
        ("helpers.py", "import math"),
    ],
)
def test_an_import_that_is_not_allowed_is_found(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(line)
    assert len(violations(tmp_path)) == 1


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("__init__.py", "from pacefno.cli import main"),
        ("cli/library.py", "from pacefno.grid import points\nfrom pacefno import __version__"),
        ("metrics.py", "from pacefno.groups import Group\nimport torch, math"),
        ("train/loop.py", "from pacefno.files import write_text\nfrom .config import RunConfig"),
        ("paper/bench.py", "from ..metrics import relative_l2\nimport h5py"),
    ],
)
def test_an_import_that_is_allowed_is_left_alone(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(line)
    assert violations(tmp_path) == []


def test_a_circle_inside_one_room_is_found(tmp_path: Path) -> None:
    room = tmp_path / "groups"
    room.mkdir()
    (room / "a.py").write_text("from pacefno.groups.b import x")
    (room / "b.py").write_text("from .c import y")
    (room / "c.py").write_text("def late() -> None:\n    from pacefno.groups import a")
    names = ["pacefno.groups.a", "pacefno.groups.b", "pacefno.groups.c", "pacefno.groups.a"]
    assert cycle(module_graph(tmp_path)) == names


def test_a_circle_between_folders_is_found_though_no_files_form_one(tmp_path: Path) -> None:
    for name in ("", "paper", "paper/report", "paper/studies"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "paper" / "report" / "page.py").write_text("from pacefno.paper.studies import tta")
    (tmp_path / "paper" / "report" / "style.py").write_text("import math")
    use = "from pacefno.paper.report.style import x"
    (tmp_path / "paper" / "studies" / "tta.py").write_text(use)
    assert cycle(module_graph(tmp_path)) == []
    names = ["pacefno.paper.report", "pacefno.paper.studies", "pacefno.paper.report"]
    assert cycle(folder_graph(tmp_path)) == names
