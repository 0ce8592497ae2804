"""What is in a folder of LPSDA's files, ours or theirs, as a table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from pacefno.data.lpsda import MODES, read_lpsda
from pacefno.data.manifest import MANIFEST

FILE: Final = re.compile(rf"[A-Za-z]+_({'|'.join(MODES)})(_\d+)?(_\w+)?\.h5")


def holds_trajectories(folder: Path) -> bool:
    """Whether a folder holds such files and no dataset of fields."""
    return bool(_files(folder)) and not (folder / MANIFEST).exists()


def show_trajectories(folder: Path, console: Console) -> None:
    """Check every file and print how many trajectories it has, on which domains, how far apart and how large."""
    table = Table("file", "trajectories", "frames", "points", "length", "spacing", "rms", "greatest", title=str(folder))
    for path, mode in _files(folder):
        u = read_lpsda(path, mode)
        table.add_row(
            path.name,
            *map(str, u.u.shape),
            f"{u.length.min():.4g} to {u.length.max():.4g}",
            f"{u.spacing.min():.4g} to {u.spacing.max():.4g}",
            f"{u.u.square().mean().sqrt():.4g}",
            f"{u.u.abs().max():.4g}",
        )
    console.print(table)


def _files(folder: Path) -> list[tuple[Path, str]]:
    """Each file with the mode that its name states."""
    names = [(path, FILE.fullmatch(path.name)) for path in sorted(folder.glob("*.h5"))]
    return [(path, match[1]) for path, match in names if match]
