"""The options that all studies share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from pacefno.equations import PROBLEMS
from pacefno.studies.bench import SEEDS
from pacefno.training.presets import PRESETS

ALL_SEEDS = ",".join(map(str, SEEDS))
FIGURES = Path("report") / "figures"

ProblemName: TypeAlias = Annotated[str, typer.Argument(help=f"Which equation: {', '.join(PROBLEMS)}.", show_default=False)]
Preset: TypeAlias = Annotated[str, typer.Option(help=f"Whose trainings: {', '.join(PRESETS)}.")]
Seeds: TypeAlias = Annotated[str, typer.Option(help="Comma-separated seeds; missing trainings are named and left out.")]
Data: TypeAlias = Annotated[Path, typer.Option(help="Folder under which datasets are kept.")]
Runs: TypeAlias = Annotated[Path, typer.Option(help="Folder under which trainings are kept.")]
Results: TypeAlias = Annotated[
    Path | None, typer.Option(help="Folder of the result files.", show_default="results, or runs/results for small presets")
]
Figures: TypeAlias = Annotated[Path, typer.Option(help="Folder of the figure, as PNG and PDF.")]
