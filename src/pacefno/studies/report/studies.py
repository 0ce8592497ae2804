"""The figures of ``pacefno study``, drawn again from its files for the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pacefno.equations import Problem
from pacefno.studies.cells import FOLDER, Cell, read_cells
from pacefno.studies.report.collect import results_folder
from pacefno.studies.report.figures.ablation import draw_ablation
from pacefno.studies.report.figures.frames import draw_frames
from pacefno.studies.report.figures.landscape import draw_landscape
from pacefno.studies.report.figures.robustness import draw_robustness
from pacefno.studies.report.figures.style import Drawing
from pacefno.studies.report.figures.theory import draw_theory
from pacefno.studies.report.figures.tta import draw_tta

TABLES: dict[str, Callable[[Problem, list[Cell]], Drawing]] = {
    "ablation": draw_ablation,
    "tta": draw_tta,
    "robustness": draw_robustness,
    "frames": draw_frames,
}


def study_drawings(folders: Sequence[Path], problem: Problem, preset: str) -> list[Drawing]:
    """Every study of a problem that the results folders hold; of the same study in two folders the last is taken."""
    places = [results_folder(folder) / FOLDER for folder in folders]
    drawings = []
    for study, draw in TABLES.items():
        cells = _cells(places, f"{study}-{problem.name}.json", preset)
        drawings += [draw(problem, cells)] if cells else []
    drawings += _landscapes(problem, _cells(places, f"landscape-{problem.name}.json", preset))
    return drawings + _theories(problem, places, preset)


def _cells(places: Sequence[Path], name: str, preset: str) -> list[Cell]:
    found: list[Cell] = []
    for place in places:
        own = [cell for cell in read_cells(place / name) if cell.get("preset") == preset]
        found = own or found
    return found


def _landscapes(problem: Problem, cells: list[Cell]) -> list[Drawing]:
    """One figure for each cut, sample and seed, all models in it."""
    groups: dict[tuple[str, int, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell["cut"], cell["sample"], cell["seed"]), []).append(cell)
    drawings = [draw_landscape(problem, group) for group in groups.values()]
    numbered = {drawing.name: drawing for drawing in drawings}  # several samples of one cut: the last one has the name
    return list(numbered.values())


def _theories(problem: Problem, places: Sequence[Path], preset: str) -> list[Drawing]:
    """One figure per model, of its first seed; all but PACE's folded."""
    names = sorted({path.name for place in places for path in place.glob(f"theory-{problem.name}-*.json")})
    drawings = []
    for name in names:
        cells = sorted(_cells(places, name, preset), key=lambda cell: cell["seed"])
        if cells:
            drawings.append(replace(draw_theory(problem, cells[0]), folded=cells[0]["model"] != "pace"))
    return drawings
