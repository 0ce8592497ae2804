"""Studies of why the method works: each is one file with its measurement and its figure.

What is here can be read without torch and matplotlib; the module of a study is imported when it
runs. It has ``run``, which takes a scope and the settings below, and ``draw`` for its figure.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, NamedTuple

from pacefno.paper import BENCHMARK_NAMES, PRESETS, SEEDS


class Option(NamedTuple):
    """A setting of a study, and its option on the command line.

    The default tells the type; a tuple stands for comma-separated values.
    """

    help: str
    default: Any
    shown: str | bool = True  # in the help, instead of the default
    least: float | None = None
    positional: type | None = None  # the type of an argument that is not an option


class Study(NamedTuple):
    """A study: the question that it answers, an example of its use, and its settings.

    Its name is that of its module and of its files, results/studies/NAME-BENCHMARK*.json.
    """

    question: str
    example: str
    settings: dict[str, Option]
    figure: bool = True  # False for one that joins the tables


BENCHMARK = Option(f"Which benchmark: {', '.join(BENCHMARK_NAMES)}.", ..., False, None, str)
PRESET = Option(f"How long and how large: {', '.join(PRESETS)}.", "standard")
MANY_SEEDS = Option("Comma-separated seeds; missing runs are named.", SEEDS)
ONE_SEED = Option("Seed of the weights.", SEEDS[0])
ROWS = Option("Comma-separated rows.", (), "all")
MODELS = ROWS._replace(shown="those of the study")
ALWAYS = {"benchmark": BENCHMARK, "preset": PRESET}
OF_MODELS = ALWAYS | {"models": MODELS, "seeds": MANY_SEEDS}
OF_ROWS = ALWAYS | {"rows": ROWS, "seeds": MANY_SEEDS}

STUDIES: dict[str, Study] = {
    "ablation": Study(
        "What does each part of the method contribute? Trains and scores a model without it.",
        "burgers2d --preset quick --seeds 42",
        OF_ROWS | {"define": Option("Only say what the rows are.", False)},
    ),
    "tta": Study(
        "What does test-time adaptation gain, and at what cost? Adam's rates and steps, "
        "Gauss-Newton.",
        "shallow_water --models pace-cnn",
        OF_MODELS | {"samples": Option("Test samples to refine.", 40, least=2)},
    ),
    "robustness": Study(
        "What do noise, missing points and a broken symmetry cost?",
        "burgers2d --kinds noise,missing",
        OF_MODELS
        | {
            "kinds": Option("Any of noise, missing, forcing.", (), "all that apply"),
            "samples": Option("Test samples.", 20, least=2),
        },
    ),
    "frames": Study(
        "How well are frames found over the whole group, and how often is one far off?",
        "navier_stokes_literal --models pace --seeds 42",
        OF_MODELS | {"elements": Option("Random elements of the group.", 1000, least=20)},
    ),
    "landscape": Study(
        "What does the energy of test-time adaptation look like, and where do descents end?",
        "navier_stokes --coordinates x,angle",
        ALWAYS
        | {
            "models": MODELS,
            "seed": ONE_SEED,
            "sample": Option("Number of the test sample.", 0, least=0),
            "coordinates": Option("Two coordinates of the group, e.g. x,angle.", (), "the first"),
            "points": Option("Energies along each axis.", 48, least=8),
            "starts": Option("Descents along each axis.", 12, least=3),
        },
    ),
    "theory": Study(
        "What limits the error of a run, and so what to improve? The terms of the paper's bound.",
        "runs/burgers1d/pace-quick-seed42",
        {
            "run": Option("The folder of a run.", ..., False, None, Path),
            "model": Option("Another row with the same weights, e.g. pace-tta.", ""),
            "samples": Option("Test samples to analyse.", 200, least=2),
            "derivatives": Option(
                "Samples on which derivatives of the operator are measured.", 12, least=1
            ),
            "growth": Option("Samples on which the energy is probed.", 12, least=1),
            "elements": Option("Elements over which the operator is averaged.", 16, least=1),
            "data_seed": Option("Seed of the dataset.", 42),
        },
    ),
    "capacity": Study(
        "How rich is a class of operators? Errors against width, covering numbers, the lemma on "
        "generalisation.",
        "burgers1d --preset quick",
        ALWAYS
        | {
            "widths": Option("Widths of the FNOs, which are trained.", (4, 8, 16, 32, 64)),
            "seeds": Option("Comma-separated seeds of their weights.", SEEDS),
            "samples": Option("Samples of each split.", 200, least=2),
            "elements": Option("Elements over which operators are averaged.", 16, least=1),
        },
    ),
    "lielac": Study(
        "Does a frame of least energy (LieLAC) do as well? Its rows join the benchmark's table.",
        "burgers1d --seeds 42",
        OF_ROWS,
        figure=False,
    ),
    "snapshots": Study(
        "Which operator predicts several snapshots from several best, in the same time?",
        "navier_stokes --minutes 2",
        ALWAYS
        | {
            "benchmark": BENCHMARK._replace(default="navier_stokes"),
            "operators": Option("Of channels, recurrent, space-time.", (), "all"),
            "minutes": Option("Minutes of training for each operator.", 2.0),
            "seed": ONE_SEED,
        },
    ),
}


def study_module(name: str) -> Any:
    """The module of a study."""
    return importlib.import_module(f"{__name__}.{name}")
