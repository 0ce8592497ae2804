"""Studies of why the method works: each is one file with its measurement and its figure.

What is here can be read without torch and matplotlib; the module of a study is imported when it
runs. It has ``run``, which takes a scope and the settings below, and ``draw`` for its figure.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pacefno.paper import BENCHMARK_NAMES, PRESETS, SEEDS

if TYPE_CHECKING:
    from pacefno.paper.benchmarks import Benchmark
    from pacefno.paper.style import Drawing

FOLDER = "studies"  # below a folder of results


class Setting(NamedTuple):
    """A setting of a study, which is also its option on the command line.

    The default tells the type; a tuple stands for comma-separated values.
    """

    help: str
    default: Any
    shown: str | bool = True  # in the help, instead of the default
    least: float | None = None
    positional: type | None = None  # the type of an argument that is not an option


class Study(NamedTuple):
    """A study: the question that it answers, its module, its settings, and an example of them."""

    question: str
    module: str
    example: str
    settings: dict[str, Setting]
    files: str = ""  # results/studies/FILES-BENCHMARK*.json, which the report draws
    figure: bool = True


BENCHMARK = Setting(f"Which benchmark: {', '.join(BENCHMARK_NAMES)}.", ..., False, None, str)
PRESET = Setting(f"How long and how large: {', '.join(PRESETS)}.", "standard")
MANY_SEEDS = Setting("Comma-separated seeds; missing runs are named.", SEEDS)
ONE_SEED = Setting("Seed of the weights.", SEEDS[0])
ROWS = Setting("Comma-separated rows.", (), "all")
MODELS = ROWS._replace(shown="those of the study")
ALWAYS = {"benchmark": BENCHMARK, "preset": PRESET}
OF_MODELS = ALWAYS | {"models": MODELS, "seeds": MANY_SEEDS}
OF_ROWS = ALWAYS | {"rows": ROWS, "seeds": MANY_SEEDS}

STUDIES: dict[str, Study] = {
    "ablation": Study(
        "What does each part of the method earn? Trains and scores a model without it.",
        "ablation",
        "burgers2d --preset quick --seeds 42",
        OF_ROWS | {"define": Setting("Only say what the rows are.", False)},
        files="ablation",
    ),
    "tta": Study(
        "What does test-time adaptation gain, and at what cost? Adam's rates and steps, "
        "Gauss-Newton.",
        "tta",
        "shallow_water --models pace-cnn",
        OF_MODELS | {"samples": Setting("Test samples to refine.", 40, least=2)},
        files="tta",
    ),
    "robustness": Study(
        "What do noise, missing points and a broken symmetry cost?",
        "robustness",
        "burgers2d --kinds noise,missing",
        OF_MODELS
        | {
            "kinds": Setting("Of noise, missing, forcing.", (), "all that apply"),
            "samples": Setting("Test samples.", 20, least=2),
        },
        files="robustness",
    ),
    "frames": Study(
        "How well are frames found over the whole group, and how often is one far off?",
        "frame_accuracy",
        "navier_stokes_literal --models pace --seeds 42",
        OF_MODELS | {"elements": Setting("Random elements of the group.", 1000, least=20)},
        files="frames",
    ),
    "landscape": Study(
        "What does the energy of test-time adaptation look like, and where do descents end?",
        "landscape",
        "navier_stokes --coordinates x,angle",
        ALWAYS
        | {
            "models": MODELS,
            "seed": ONE_SEED,
            "sample": Setting("Number of the test sample.", 0, least=0),
            "coordinates": Setting("Two coordinates of the group, e.g. x,angle.", (), "the first"),
            "points": Setting("Energies along each axis.", 48, least=8),
            "starts": Setting("Descents along each axis.", 12, least=3),
        },
        files="landscape",
    ),
    "theory": Study(
        "What limits the error of a run, and so what to improve? The terms of the paper's bound.",
        "theory",
        "runs/burgers1d/pace-quick-seed42",
        {
            "run": Setting("The folder of a run.", ..., False, None, Path),
            "model": Setting("Another row with the same weights, e.g. pace-tta.", ""),
            "samples": Setting("Test samples to take apart.", 200, least=2),
            "derivatives": Setting(
                "Samples on which derivatives of the operator are measured.", 12, least=1
            ),
            "growth": Setting("Samples on which the energy is probed.", 12, least=1),
            "data_seed": Setting("Seed of the dataset.", 42),
        },
        files="theory",
    ),
    "lielac": Study(
        "Does a frame of least energy (LieLAC) do as well? Its rows join the benchmark's table.",
        "lielac",
        "burgers1d --seeds 42",
        OF_ROWS,
        figure=False,
    ),
    "snapshots": Study(
        "Which operator predicts several snapshots from several best, in the same time?",
        "snapshots",
        "navier_stokes --minutes 2",
        ALWAYS
        | {
            "benchmark": BENCHMARK._replace(default="navier_stokes"),
            "operators": Setting("Of channels, recurrent, space-time.", (), "all"),
            "minutes": Setting("Of training, each operator.", 2.0),
            "seed": ONE_SEED,
        },
        files="snapshots",
    ),
}


def study_module(name: str) -> Any:
    """The module of a study."""
    return importlib.import_module(f"{__name__}.{STUDIES[name].module}")


def study_drawings(folders: Sequence[Path], benchmark: Benchmark, preset: str) -> list[Drawing]:
    """The figures of every study of a benchmark, from its files in folders of results.

    Of the same study in two folders the last is taken.
    """
    from pacefno.paper.studies._study import read_cells

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
