"""The pages of the reference, one a room, written from the public names when the site is built.

Nothing lists a name twice: a room's ``__all__`` (or, of a module without one, what it defines
without an underscore) is what its page shows, so a new name is on the site as soon as it exists.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pacefno

# In the order in which a field passes. Names of `pacefno` itself are on the page of their room.
ROOMS = {
    "pace": "PACE",
    "groups": "Groups",
    "fields": "Fields and their types",
    "grid": "Grids",
    "frames": "Frames",
    "operators": "Operators",
    "metrics": "Metrics",
    "losses": "Losses",
    "testing": "Testing",
    "pde": "Equations and solvers",
    "task": "Tasks",
    "data": "Data",
    "data.samples": "Arrays as data",
    "inference": "Save, load, predict",
    "exporting": "Export",
    "train.defaults": "Training",
    "auditing": "Audits",
    "explorer": "Explorer",
    "registry": "Registries",
    "errors": "Errors",
}


def public_names(room: str) -> list[str]:
    """The public names of a room: its ``__all__``, or what it defines without an underscore."""
    module = importlib.import_module(f"pacefno.{room}")
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [n for n, value in vars(module).items() if n[0] != "_" and _is_defined(value, module)]


def _is_defined(value: object, module: ModuleType) -> bool:
    is_code = inspect.isclass(value) or inspect.isfunction(value)
    return is_code and getattr(value, "__module__", "") == module.__name__


def pages() -> dict[str, list[str]]:
    """The full names that each page documents; the shortest one a user can write, once."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    rooms = sorted(ROOMS, key=lambda room: room.count("."), reverse=True)  # inner rooms first
    for room in rooms:
        names = []
        for name in public_names(room):
            full = f"pacefno.{name}" if name in pacefno.__all__ else f"pacefno.{room}.{name}"
            defined = getattr(importlib.import_module(f"pacefno.{room}"), name)
            key = f"{getattr(defined, '__module__', room)}.{name}"
            if key not in seen:
                seen.add(key)
                names.append(full)
        found[room] = names
    return {room: found[room] for room in ROOMS}


def undocumented() -> list[str]:
    """Names of ``pacefno.__all__`` that no page has; modules count as documented by their page."""
    shown = {name for names in pages().values() for name in names}
    shown |= {f"pacefno.{room}" for room in ROOMS} | {"pacefno.__version__"}
    return [name for name in pacefno.__all__ if f"pacefno.{name}" not in shown]


def write_pages(folder: Path) -> None:
    """Write the pages; one that has not changed is left alone, and one without a room removed."""
    folder.mkdir(exist_ok=True)
    texts = {"index.rst": _index(), "commands.rst": _commands()}
    texts |= {f"{room}.rst": _page(room, names) for room, names in pages().items()}
    for path in folder.glob("*.rst"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _title(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n\n"


def _summary(names: list[str]) -> str:
    return ".. autosummary::\n\n" + "".join(f"   ~{name}\n" for name in names) + "\n"


def _index() -> str:
    names = [f"pacefno.{name}" for name in pacefno.__all__ if name != "__version__"]
    modules = [name for name in names if inspect.ismodule(getattr(pacefno, name[8:]))]
    text = _title("Reference")
    text += "What ``import pacefno`` offers; everything else is on the page of its room, below.\n\n"
    text += _summary([name for name in names if name not in modules])
    text += "Rooms, in the order in which a field passes them:\n\n"
    listed = ["commands", *ROOMS]
    return text + ".. toctree::\n   :maxdepth: 1\n\n" + "".join(f"   {room}\n" for room in listed)


def _page(room: str, names: list[str]) -> str:
    module = importlib.import_module(f"pacefno.{room}")
    values = {name: getattr(module, name.rpartition(".")[2]) for name in names}
    code = [name for name, value in values.items() if callable(value)]
    text = _title(ROOMS[room])
    text += f".. automodule:: pacefno.{room}\n\n.. currentmodule:: None\n\n{_summary(code)}"
    for name, value in values.items():
        if inspect.isclass(value):
            text += f".. autoclass:: {name}\n   :members:\n\n"
        elif name in code:
            text += f".. autofunction:: {name}\n\n"
        else:  # a table of parts by name
            text += (
                f".. py:data:: {name}\n\n   By name: {', '.join(f'``{k}``' for k in value)}.\n\n"
            )
    return text


def _commands() -> str:
    """What each command says when asked for ``--help``, at eighty columns and without colour."""
    import typer
    from typer.testing import CliRunner

    from pacefno.cli import app

    text = _title("Command line")
    text += "What each command says when it is asked for ``--help``.\n\n"
    runner = CliRunner(env={"COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb"})
    for words in _words(typer.main.get_command(app), ()):
        said = runner.invoke(app, [*words, "--help"])
        assert said.exit_code == 0, said.output
        text += _title(" ".join(["pacefno", *words]), "-")
        lines = "".join(f"   {line.rstrip()}\n" for line in said.output.strip("\n").splitlines())
        text += f".. code-block:: text\n\n{lines}\n"
    return text


def _words(command: object, words: tuple[str, ...]) -> list[tuple[str, ...]]:
    inner = getattr(command, "commands", {})
    found = [] if inner and words else [words]
    for name, one in inner.items():
        if not one.hidden:
            found += _words(one, (*words, name))
    return found
