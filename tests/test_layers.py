"""The rooms of the package import only rooms above them: read from the source, so unused paths count too."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pacefno

SOURCE = Path(pacefno.__file__).parent
ROOMS = (
    "grid", "symmetry", "equations", "data", "operators", "frames", "pace", "forecast", "metrics", "losses", "training",
    "studies", "cli",
)  # fmt: skip
LEAVES = ("durable", "console", "lock", "memory")  # know nothing of fields; all may import them, and a later one an earlier one
LIMITED = {"metrics": {"grid", "symmetry", "pace"}}  # scores what it is given; of models it knows only PACE and its horizon
OUTSIDE = {"__init__", "__main__"}  # the doors: they may open on every room


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
    """Every module or name a file imports, dotted, function bodies and TYPE_CHECKING blocks included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node, path, root)
            found += [f"{module}.{alias.name}" for alias in node.names]
    return found


def imported_rooms(path: Path, root: Path) -> set[str]:
    """The rooms a file reaches into; the package itself counts as ``__init__``, which imports them all."""
    rooms = set()
    for module in imported_modules(path, root):
        parts = module.split(".")
        if parts[0] == "pacefno" and parts[-1] != "__version__":
            known = len(parts) > 1 and parts[1] in {*ROOMS, *LEAVES}
            rooms.add(parts[1] if known else "__init__")
    return rooms


def allowed(room: str) -> set[str]:
    if room in LEAVES:
        return set(LEAVES[: LEAVES.index(room) + 1])
    return LIMITED.get(room, set(ROOMS[: ROOMS.index(room)])) | {*LEAVES, room}


def violations(root: Path) -> list[str]:
    """One line for each import that points the wrong way, and each file that is in no room."""
    lines = []
    for path in sorted(root.rglob("*.py")):
        room, where = room_of(path, root), path.relative_to(root)
        if room in OUTSIDE:
            continue
        if room not in ROOMS and room not in LEAVES:
            lines.append(f"{where}: no room is called {room}: say where it belongs in ROOMS")
            continue
        lines += [
            f"{where} imports {other}, which is not above {room}"
            for other in sorted(imported_rooms(path, root) - allowed(room))
        ]
    return lines


def module_name(path: Path, root: Path) -> str:
    parts = ("pacefno", *path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_graph(root: Path) -> dict[str, set[str]]:
    """Which files import which, names resolved to the file that they live in."""
    files = {module_name(path, root): path for path in root.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        targets = imported_modules(path, root)
        graph[name] = {t if t in files else t.rpartition(".")[0] for t in targets} & set(files) - {name}
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


def test_rooms_import_only_rooms_above_them() -> None:
    assert violations(SOURCE) == []


def test_no_files_import_each_other_in_a_circle() -> None:
    assert cycle(module_graph(SOURCE)) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("grid.py", "from pacefno.symmetry import Group"),
        ("grid.py", "import pacefno.symmetry.base"),
        ("grid.py", "from pacefno import symmetry"),
        ("symmetry/base.py", "from pacefno import FNO"),
        ("symmetry/base.py", "def late() -> None:\n    from pacefno.equations import solve"),
        ("equations/burgers.py", "from ..frames import analytic"),
        ("equations/burgers.py", "from .. import training"),
        ("metrics.py", "from pacefno.operators import FNO"),
        ("metrics.py", "import pacefno.losses"),
        ("losses.py", "from pacefno.training import loop"),
        ("durable.py", "from pacefno.grid import points"),
        ("helpers.py", "import math"),
    ],
)
def test_an_import_of_a_lower_room_is_found(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(line)
    assert len(violations(tmp_path)) == 1


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("__init__.py", "from pacefno.cli import main"),
        ("cli.py", "from pacefno.grid import points\nfrom pacefno import __version__"),
        ("metrics.py", "from pacefno.symmetry import Group\nfrom pacefno.grid import points"),
        ("training/store.py", "from pacefno.durable import write\nfrom .lock import Lock"),
        ("studies/table.py", "from ..metrics import relative_l2"),
    ],
)
def test_an_import_of_a_higher_room_is_allowed(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(line)
    assert violations(tmp_path) == []


def test_a_circle_inside_one_room_is_found(tmp_path: Path) -> None:
    room = tmp_path / "symmetry"
    room.mkdir()
    (room / "a.py").write_text("from pacefno.symmetry.b import x")
    (room / "b.py").write_text("from .c import y")
    (room / "c.py").write_text("def late() -> None:\n    from pacefno.symmetry import a")
    assert cycle(module_graph(tmp_path)) == [
        "pacefno.symmetry.a",
        "pacefno.symmetry.b",
        "pacefno.symmetry.c",
        "pacefno.symmetry.a",
    ]
