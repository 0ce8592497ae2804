"""``pacefno study landscape``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from pacefno.frames import AdamRefiner
from pacefno.studies.cells import Cell, StudyFile
from pacefno.studies.commands import default_results, wide_console
from pacefno.studies.report.figures import save
from pacefno.studies.report.figures.landscape import draw_landscape
from pacefno.studies.report.figures.style import title_of
from pacefno.studies.report.trained import few_samples
from pacefno.studies.study.landscape.measure import Cut, cut_through, measure
from pacefno.studies.study.options import FIGURES, Data, Figures, Preset, ProblemName, Results, Runs
from pacefno.studies.study.samples import rows_of
from pacefno.studies.study.session import study_session, tracked
from pacefno.studies.study.sources import Scope, Source, find_sources, names, scope_of
from pacefno.studies.study.tta.settings import PAPER
from pacefno.training.commands import DEFAULT_DATA
from pacefno.training.run import DEFAULT_RUNS

MODELS = ("pace", "pace-free", "pace-cnn", "pace-analytic")
KEY = ("preset", "model", "seed", "sample", "cut")


def landscape_command(
    problem: ProblemName,
    preset: Preset = "standard",
    models: Annotated[str, typer.Option(help=f"Comma-separated rows: {', '.join(MODELS)}.")] = "pace,pace-cnn",
    seed: Annotated[int, typer.Option(help="Seed of the trainings.")] = 42,
    sample: Annotated[int, typer.Option(help="Which OOD test sample.", min=0)] = 0,
    coordinates: Annotated[str, typer.Option(help="Two frame coordinates, e.g. x,angle.", show_default="the first two")] = "",
    points: Annotated[int, typer.Option(help="Energies along each coordinate.", min=8, max=400)] = 48,
    starts: Annotated[int, typer.Option(help="Starts of descents along each coordinate.", min=3, max=50)] = 12,
    data: Data = DEFAULT_DATA,
    runs: Runs = DEFAULT_RUNS,
    results: Results = None,
    figures: Figures = FIGURES,
) -> None:
    """The energy of test-time adaptation over two frame coordinates of one sample, with its basins and descent paths.

    Shows where the true frame lies, which minima there are, from how many starts on a grid Gauss-Newton reaches each,
    and the paths of Gauss-Newton and of Adam with the paper's rate.

    Example: pacefno study landscape burgers2d --preset quick --models pace-cnn

    Example: pacefno study landscape navier_stokes --coordinates x,angle
    """
    with study_session():
        scope = scope_of(problem, preset, data, runs, results or default_results(preset))
        cut = cut_through(scope.problem, _pair(coordinates))
        sources = find_sources(scope, names(models, MODELS, "--models"), [seed])
        cells = study_landscape(scope, sources, cut, sample, points, starts)
        save(draw_landscape(scope.problem, cells), figures)
        wide_console().print(minima_table(cells))
        typer.echo(f"{_file(scope).path} holds every number.", err=True)


def study_landscape(scope: Scope, sources: list[Source], cut: Cut, sample: int, points: int, starts: int) -> list[Cell]:
    """The landscapes of some models; those that are there already are not computed again."""
    file = _file(scope)
    name = f"{cut.group.coordinates[cut.first]},{cut.group.coordinates[cut.second]}"
    wanted = {
        source: {
            "preset": scope.preset, "model": source.row, "seed": source.seed, "sample": sample, "cut": name,
            "weights": source.weights, "points": points, "grid_of_starts": starts,
        }
        for source in sources
    }  # fmt: skip
    missing = [source for source in sources if not file.has(wanted[source])]
    if missing:
        found = few_samples(scope.dataset(), "test_ood", sample + 1)
        if len(found) <= sample:
            raise ValueError(f"--sample: the test split has {len(found)} samples, got {sample}: choose a smaller one")
        one = rows_of(found, slice(sample, sample + 1))
        paper = PAPER.get(scope.problem.name)
        adam = AdamRefiner(rate=paper.rate if paper else 0.05)
        for source in tracked("landscape", missing, len(missing)):
            measured = measure(source.load().model, scope.problem, cut, one, adam, points=points, starts=starts)
            file.add(wanted[source] | {"adam_rate": adam.rate} | measured)
    keys = [tuple(wanted[source][name] for name in KEY) for source in sources]
    return [cell for cell in file.read() if tuple(cell[name] for name in KEY) in keys]


def minima_table(cells: list[Cell]) -> Table:
    """The minima of each model: the share of starts that reach it, how far it is from the truth, the error it gives."""
    table = Table(title=f"Minima of J_TTA, sample {cells[0]['sample']}", title_justify="left")
    first, second = cells[0]["coordinates"]
    for title in ("model", first, second, "energy", "share of starts", "from the true frame", "error"):
        table.add_column(title, justify="left" if title == "model" else "right", no_wrap=True)
    for cell in cells:
        for one in cell["minima"]:
            a, b = one["place"]
            numbers = (f"{a:+.4f}", f"{b:+.4f}", f"{one['energy']:.1e}", f"{one['share']:.1%}")
            table.add_row(title_of(cell["model"]), *numbers, f"{one['from_true']:.4f}", f"{one['error']:.4f}")
        stuck = sum(label < 0 for label in cell["labels"]) / len(cell["labels"])
        table.add_row(title_of(cell["model"]), "", "", "elsewhere", f"{stuck:.1%}", "", "", end_section=True)
    return table


def _file(scope: Scope) -> StudyFile:
    return StudyFile(scope.folder, "landscape", scope.problem.name, KEY)


def _pair(text: str) -> tuple[str, str] | None:
    if not text:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2:
        raise ValueError(f"--coordinates: expected two names separated by a comma, got {text!r}")
    return parts[0], parts[1]
