"""Studies of why the method works: each is one file with its measurement and its figure.

This list can be read without torch and matplotlib; :func:`study_module` imports a study on use.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pacefno.paper.benchmarks import Benchmark
    from pacefno.paper.style import Drawing


class Study(NamedTuple):
    """A study: the question that it answers, the module that does, and the name of its files."""

    question: str
    module: str
    files: str = ""  # results/studies/FILES-BENCHMARK*.json; empty for one without cells


# fmt: off
STUDIES: dict[str, Study] = {
    "ablation": Study("What does each part of the method earn?", "ablation", "ablation"),
    "tta": Study("What does test-time adaptation gain, and at what cost?", "tta", "tta"),
    "robustness": Study("What do noise, missing points and a broken symmetry cost?",
                        "robustness", "robustness"),
    "frames": Study("How well are frames found over the whole group?", "frame_accuracy", "frames"),
    "landscape": Study("What does the energy of test-time adaptation look like?",
                       "landscape", "landscape"),
    "theory": Study("What limits the error of a run, and so what to improve?", "theory", "theory"),
    "lielac": Study("Does a frame of least energy around a frozen operator do as well?", "lielac"),
    "snapshots": Study("Which operator predicts several snapshots from several best?", "snapshots"),
}
# fmt: on


def study_module(name: str) -> Any:
    """The module of a study: its ``run``, and its ``draw`` if it has a figure."""
    return importlib.import_module(f"{__name__}.{STUDIES[name].module}")


def study_drawings(folders: Sequence[Path], benchmark: Benchmark, preset: str) -> list[Drawing]:
    """The figures of every study of a benchmark, from its files in folders of results.

    Of the same study in two folders the last is taken.
    """
    from pacefno.paper.studies._cells import FOLDER, read_cells

    drawings: list[Drawing] = []
    for name, study in STUDIES.items():
        stem = f"{study.files}-{benchmark.name}"  # or one file for each row, STEM-ROW.json
        cells: list[dict[str, Any]] = []
        for folder in folders if study.files else ():
            paths = [folder / FOLDER / f"{stem}.json"]
            paths += sorted((folder / FOLDER).glob(f"{stem}-*.json"))
            found = [cell for path in paths for cell in read_cells(path)]
            cells = [cell for cell in found if cell.get("preset") == preset] or cells
        drawings += study_module(name).draw(benchmark, cells) if cells else []
    return drawings
