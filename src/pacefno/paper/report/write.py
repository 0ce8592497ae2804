"""The report in a folder: the page, tables as Markdown and LaTeX, figures as PNG and PDF."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

from pacefno.data import DatasetError, PairDataset, Trajectories, folder_of, open_dataset
from pacefno.data.samples import Source, as_precise
from pacefno.files import make_folder, write_text
from pacefno.paper import DATA_SEED
from pacefno.paper.bench import Say
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.claims.evidence import MANIFEST, PROBLEMS
from pacefno.paper.claims.figures import FIGURES
from pacefno.paper.presets import data_preset
from pacefno.paper.report import fields, figures
from pacefno.paper.report.collect import Table, collect, results_folder
from pacefno.paper.report.page import Picture, Section, render_page
from pacefno.paper.report.runs import (
    FEW_SAMPLES,
    apply_model,
    finished_runs,
    load_models,
    training_logs,
)
from pacefno.paper.report.tables import (
    ablation_table,
    latex_of,
    latex_table,
    markdown_of,
    markdown_table,
)
from pacefno.paper.studies.base import study_drawings
from pacefno.paper.style import Drawing, png_of, save
from pacefno.train.batches import roll_out
from pacefno.train.evaluate import moved_trajectories, ood_elements

PAGE = "report.html"
GALLERY_PIXELS, GALLERY_QUALITY = 1500, 85  # of the longer side; of WebP, out of 100
ROLLED_OUT = ("fno-aug", "pace-20", "pace-1")  # rows of which a rollout is shown


def write_report(
    results: Sequence[Path],
    output: Path,
    *,
    runs: Path = Path("runs"),
    data: Path = Path("datasets"),
    preset: str | None = None,
    say: Say = lambda text: None,
) -> Path:
    """Write everything into the folder ``output`` and return the path of the page.

    Tables need the result files alone. Figures of fields also need the trainings under ``runs`` and
    the datasets under ``data``; where these are missing, a note on the page says how to make them.
    """
    tables, folders = collect(results, preset), [results_folder(folder) for folder in results]
    pairs = any(not table.of_rollouts for table in tables.values())

    def picture(drawing: Drawing) -> Picture:
        return Picture(drawing, save(drawing, output / "figures"))

    overview = picture(figures.draw_overview(tables)) if pairs else None
    sections = []
    for name, table in tables.items():
        write_text(output / "tables" / f"{name}.md", markdown_table(table))
        write_text(output / "tables" / f"{name}.tex", latex_table(table))
        if parts := ablation_table(folders, table.benchmark):
            write_text(output / "tables" / f"{name}-ablation.md", markdown_of(parts))
            write_text(output / "tables" / f"{name}-ablation.tex", latex_of(parts, f"{name}-parts"))
        drawings, notes = draw_table(table, runs, data, say)
        drawings += study_drawings(folders, table.benchmark, table.preset)
        sections.append(Section(table, [picture(drawing) for drawing in drawings], notes))
    write_text(output / PAGE, render_page(sections, overview))
    return output / PAGE


def write_gallery(
    results: Sequence[Path],
    output: Path,
    *,
    runs: Path = Path("runs"),
    data: Path = Path("datasets"),
    preset: str | None = None,
    say: Say = lambda text: None,
) -> list[str]:
    """Draw those of the paper's figures that can be drawn, as small files, and list them in one.

    Figures that are there already stay where they cannot be drawn now, or only with fewer models.
    """
    from PIL import Image

    path, wanted, made = output / MANIFEST, {name for _, name, _ in FIGURES}, list[str]()
    known = json.loads(path.read_text()) if path.exists() else {}
    folders = [results_folder(folder) for folder in results]
    make_folder(output)
    for name, table in collect(results, preset).items():
        if name not in PROBLEMS:
            continue
        drawings = study_drawings(folders, table.benchmark, table.preset)
        of_models, notes = draw_models(table, runs, data, say)
        drawings += of_models
        for note in notes:
            say(f"{table.benchmark.title}: {note}")
        for drawing in (one for one in drawings if one.name in wanted):
            there = known.get(drawing.name, {})
            fewer = set(drawing.models) < set(there.get("models", ()))
            if fewer and there["preset"] == table.preset:
                say(f"{drawing.name} stays: the one that is there has more models")
                continue
            image = Image.open(io.BytesIO(png_of(drawing.figure))).convert("RGB")
            image.thumbnail((GALLERY_PIXELS, GALLERY_PIXELS))
            image.save(output / f"{drawing.name}.webp", quality=GALLERY_QUALITY, method=6)
            known[drawing.name] = {
                "file": f"{drawing.name}.webp",
                "preset": table.preset,
                "caption": drawing.caption,
                **({"models": drawing.models} if drawing.models else {}),
            }
            made.append(drawing.name)
    order = dict.fromkeys(name for _, name, _ in FIGURES)
    write_text(path, json.dumps({n: known[n] for n in order if n in known}, indent=1) + "\n")
    return made


def draw_table(table: Table, runs: Path, data: Path, say: Say) -> tuple[list[Drawing], list[str]]:
    """The figures of a benchmark that can be made, and notes on what is missing for the rest."""
    drawings, notes = draw_models(table, runs, data, say)
    if over_time := figures.draw_over_time(table):
        drawings.append(over_time)
    if not table.of_rollouts and (logs := training_logs(table, runs)):
        drawings.append(figures.draw_training(table.benchmark, logs))
    return drawings, notes


def draw_models(table: Table, runs: Path, data: Path, say: Say) -> tuple[list[Drawing], list[str]]:
    """What is computed from trained models and samples; nothing but a note without them."""
    benchmark, preset = table.benchmark, table.preset
    words, left_out = f"{benchmark.name} --preset {preset}", "Figures of fields are left out"
    found = finished_runs(table, runs)
    if not found:
        why = f"no trained models in {runs}: `pacefno bench {words}` trains them"
        return [], [f"{left_out}: {why}."]
    made = data_preset(preset)
    folder = folder_of(data, benchmark.recipe, made, DATA_SEED)
    try:
        source = open_dataset(benchmark.recipe, folder, preset=made, seed=DATA_SEED, verify=False)
    except DatasetError as error:
        why = f"there is no dataset to use ({error}): `pacefno data generate {words}` makes it"
        return [], [f"{left_out}: {why}."]
    say(f"{benchmark.title}: figures of {len(found)} models")
    drawings, used = (draw_rollouts if table.of_rollouts else draw_pairs)(benchmark, found, source)
    wanted = [e for e in table.lines if not table.of_rollouts or e.model in ROLLED_OUT]
    missing = ", ".join(line.title for line in wanted if line.model not in used)
    why = f"because {runs} has no finished training of them that can be loaded"
    return drawings, [f"Not in the figures, {why}: {missing}."] if missing else []


def draw_pairs(
    benchmark: Benchmark, runs: dict[str, Path], source: Source
) -> tuple[list[Drawing], list[str]]:
    """Predictions, canonicalisation, sweeps and spectra, and the rows that are in them."""
    assert isinstance(source, PairDataset)
    plain, moved = (source.load(split, "ood", FEW_SAMPLES) for split in ("test_id", "test_ood"))
    outcomes = [
        apply_model(benchmark, name, trained.model, plain, moved)
        for name, trained in load_models(benchmark, runs)
    ]
    if not outcomes:
        return [], []
    drawings = fields.draw_predictions(benchmark, moved, outcomes)
    if benchmark.task.output.snapshots > 1:
        drawings.append(fields.draw_in_time(benchmark, moved, outcomes))
    for pace in (one for one in outcomes if one.model == "pace"):
        drawings.append(fields.draw_canonicalisation(benchmark, plain, moved, pace))
        if benchmark.task.dim == 1:
            drawings.append(fields.draw_orbits(benchmark, plain, moved, pace))
    drawings += figures.draw_sweeps(benchmark, outcomes)
    drawings.append(figures.draw_error_spectra(benchmark, moved.target, outcomes))
    return drawings, [one.model for one in outcomes]


def draw_rollouts(
    benchmark: Benchmark, runs: dict[str, Path], source: Source
) -> tuple[list[Drawing], list[str]]:
    """One moved test trajectory and what a few rows predict, and the names of these rows."""
    whole = source.load("test")
    assert isinstance(whole, Trajectories)
    test, task, rollouts = whole.select(slice(1)), benchmark.task, {}
    moved = moved_trajectories(task, test, ood_elements(task, benchmark.ood, 1))
    shown = {name: run for name, run in runs.items() if name in ROLLED_OUT}
    for name, trained in load_models(benchmark, shown):
        single = as_precise(moved, next(trained.model.parameters()).dtype)
        prediction, truth = roll_out(trained.model, trained.config.task, single)
        rollouts[name] = prediction[0]
    if not rollouts:
        return [], []
    assert moved.box is not None
    length, step = float(moved.box.lengths[0, 0]), float(moved.box.step[0])
    span = step * len(truth[0])
    return [fields.draw_rollouts(benchmark, truth[0], rollouts, length, span)], list(rollouts)
