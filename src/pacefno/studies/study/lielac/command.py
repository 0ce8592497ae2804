"""``pacefno study lielac``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pacefno.console import numbers, say
from pacefno.data import Dataset
from pacefno.studies.commands import default_results, wide_console
from pacefno.studies.report.collect import statistic
from pacefno.studies.results import Row, merge_results, read_results, results_path
from pacefno.studies.study.lielac.finetune import finetune, finetune_config
from pacefno.studies.study.lielac.frame import EnergyFrame
from pacefno.studies.study.lielac.rows import ROWS, LieLACRow, energy_for, lielac_model, measure
from pacefno.studies.study.options import ALL_SEEDS, Data, Preset, ProblemName, Results, Runs, Seeds
from pacefno.studies.study.session import study_session
from pacefno.studies.study.sources import Scope, Source, find_sources, names, scope_of
from pacefno.training.commands import DEFAULT_DATA
from pacefno.training.evaluate import machine
from pacefno.training.load import load_run
from pacefno.training.progress import training_progress
from pacefno.training.run import DEFAULT_RUNS, check_settings, is_finished

NAMES = [row.name for row in ROWS]
COMPARED = ("fno", "pace-analytic", "pace", "pace-tta")  # rows of the table to print beside, where they are there


def lielac_command(
    problem: ProblemName,
    preset: Preset = "standard",
    rows: Annotated[
        str, typer.Option(help=f"Comma-separated: {', '.join(row.name for row in ROWS)}.", show_default="all")
    ] = "",
    seeds: Seeds = ALL_SEEDS,
    data: Data = DEFAULT_DATA,
    runs: Runs = DEFAULT_RUNS,
    results: Results = None,
) -> None:
    """LieLAC around the frozen plain FNO: the frame of least energy, found by search at inference; and fine-tuned.

    The energy is fitted on training inputs alone, the group action and the terminal frame are PACE's, and no test set is
    tuned on. The rows join the problem's table in RESULTS/PROBLEM.json. What is done is skipped.

    Example: pacefno study lielac burgers1d --preset quick --seeds 42
    """
    with study_session():
        scope = scope_of(problem, preset, data, runs, results or default_results(preset))
        known = {row.name: row for row in ROWS}
        chosen = [known[name] for name in names(rows, list(known), "--rows")]
        sources = find_sources(scope, ["fno"], numbers(seeds, "--seeds"))
        study_lielac(scope, sources, chosen)
        wide_console().print(lielac_table(scope, list(known)))
        typer.echo(f"{results_path(scope.results, scope.problem.name)} holds every row.", err=True)


def study_lielac(scope: Scope, sources: list[Source], rows: list[LieLACRow]) -> None:
    """Score every row that is missing, seed by seed; each is stored before the next begins."""
    dataset: Dataset | None = None
    for source in sources:
        for row in rows:
            if _is_done(scope, source, row):
                continue
            dataset = dataset or scope.dataset()
            found = _score(scope, source, row, dataset)
            merge_results(scope.results, scope.problem.name, [found])
            say(f"{row.name} seed {source.seed}: ID {found['id_error']:.4f}, OOD {found['ood_error']:.4f}")


def _score(scope: Scope, source: Source, row: LieLACRow, dataset: Dataset) -> Row:
    energy = energy_for(row, scope.problem, dataset)
    run = _finetuned(scope, source, EnergyFrame(scope.problem.group, energy), dataset) if row.finetuned else source.run
    loaded = load_run(run)
    operator = loaded.model.operator
    seconds = loaded.train_seconds + (source.load().train_seconds if row.finetuned else 0.0)
    found: Row = {"problem": scope.problem.name, "model": row.name, "seed": source.seed, "preset": scope.preset}
    found |= {"title": row.title, "weights": source.weights}
    found |= measure(row, scope.problem, operator, energy, dataset)
    found |= {"train_seconds": round(seconds, 1), "finished": loaded.finished}
    found |= machine(lielac_model(row, scope.problem, operator, energy))
    words = f"--preset {scope.preset} --rows {row.name} --seeds {source.seed}"
    return found | {"command": f"pacefno study lielac {scope.problem.name} {words}"}


def _finetuned(scope: Scope, source: Source, frame: EnergyFrame, dataset: Dataset) -> Path:
    """The run that goes on from the plain FNO's weights; made first where it is missing."""
    run = source.run.with_name(source.run.name.replace("fno-", "lielac-ft-", 1))
    config = finetune_config(source.load().config)
    if not is_finished(run):
        with training_progress(config) as hooks:
            finetune(source.run, run, frame, scope.problem, dataset, hooks)
    check_settings(run, config)
    return run


def _is_done(scope: Scope, source: Source, row: LieLACRow) -> bool:
    wanted = {"preset": scope.preset, "model": row.name, "seed": source.seed, "weights": source.weights}
    rows = read_results(scope.results, scope.problem.name)
    return any(all(one.get(name) == value for name, value in wanted.items()) for one in rows)


def lielac_table(scope: Scope, family: list[str]) -> Table:
    """The family beside the rows that it should be compared with: accuracy, evaluations, seconds, misses."""
    table = Table(title=f"{scope.problem.title}, preset {scope.preset}: LieLAC", title_justify="left")
    keys = ("ood_error", "ood_error_canonical", "id_error", "equivariance_error")
    costs = ("energy_evaluations", "ood_seconds", "train_seconds", "search_missed")
    titles = ("OOD", "canonical", "ID", "equivariance", "evaluations", "pass, s", "training, s", "missed")
    for title in ("model", *titles, "seeds"):
        table.add_column(title, justify="left" if title == "model" else "right", no_wrap=True)
    rows = [row for row in read_results(scope.results, scope.problem.name) if row["preset"] == scope.preset]
    for name in (*COMPARED, *family):
        group = [row for row in rows if row["model"] == name]
        if group:
            errors = [statistic(group, key) for key in keys]
            numbers_ = ["–" if one is None else str(one) for one in errors]
            numbers_ += [_plain(group, key) for key in costs]
            table.add_row(group[0].get("title", name), *numbers_, str(len(group)))
    return table


def _plain(rows: list[Row], key: str) -> str:
    found = statistic(rows, key)
    return "" if found is None else f"{found.mean:.3g}"
