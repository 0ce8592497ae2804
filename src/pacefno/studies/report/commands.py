"""``pacefno report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pacefno.console import FAILED, plain_errors, say
from pacefno.studies.report.collect import Tables, collect
from pacefno.studies.report.documents import stale_tables, update_tables
from pacefno.studies.report.forecasts import ForecastTables, collect_forecasts
from pacefno.studies.report.write import write_report
from pacefno.training.commands import DEFAULT_DATA, FAILURES
from pacefno.training.presets import PRESETS
from pacefno.training.run import DEFAULT_RUNS

DEFAULT_RESULTS = Path("results")
DOCUMENT = ".md"


def report_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders with PROBLEM.json files, as 'bench' makes them; with --update or --check also Markdown documents.",
            metavar="FOLDER",
            show_default="results",
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("report"),
    preset: Annotated[
        str | None, typer.Option(help=f"Which rows: {', '.join(PRESETS)}.", show_default="the largest that a problem has")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder of the trainings, for figures of fields.")] = DEFAULT_RUNS,
    data: Annotated[Path, typer.Option(help="Folder of the datasets, for figures of fields.")] = DEFAULT_DATA,
    update: Annotated[bool, typer.Option("--update", help="Only rewrite the tables in the named Markdown documents.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether the named documents are up to date; exit code 1 if not.")
    ] = False,
) -> None:
    """Make the report: one HTML page that works offline, tables as Markdown and LaTeX, figures as PNG and PDF.

    The tables need the result files alone; figures of fields also need the trainings (RUNS) and datasets (DATA) that
    'bench' left, and are left out with a note where these are missing. Figures of studies come from FOLDER/studies.

    In a Markdown document the lines between <!-- table:PROBLEM --> and <!-- /table --> are rendered from the results, so
    that no number is typed by hand; table:summary is one line per problem, findings:PROBLEM ... /findings the sentences.

    Example: pacefno report results --output report

    Example: pacefno report --update README.md docs/results.md
    """
    with plain_errors(*FAILURES):
        folders = [path for path in paths or [] if path.suffix != DOCUMENT]
        documents = [path for path in paths or [] if path.suffix == DOCUMENT]
        if bool(documents) != (update or check):
            raise ValueError(
                "--update and --check need Markdown documents (.md), and only they: pacefno report --update README.md"
            )
        sources = folders or [DEFAULT_RESULTS]
        forecasts = collect_forecasts(sources, preset)
        tables = collect(sources, preset, required=not forecasts)
        if documents:
            stale = [text for path in documents for text in _document(path, tables, forecasts, write=update)]
            if check and not update and stale:
                typer.echo(
                    f"stale: {'; '.join(stale)}. Run: pacefno report --update {' '.join(map(str, paths or []))}", err=True
                )
                raise typer.Exit(FAILED)
            return
        console = Console(stderr=True)
        with console.status("making the report") as status:
            speak = status.update if console.is_terminal else say
            page = write_report(tables, output, runs, data, speak, sources, forecasts)
        typer.echo(f"{page} is complete: open it in a browser. Tables and figures are beside it in {output}.")


def _document(path: Path, tables: Tables, forecasts: ForecastTables, *, write: bool) -> list[str]:
    """Bring one document up to date, or only look; what was out of date comes back."""
    changed = update_tables(path, tables, forecasts) if write else stale_tables(path, tables, forecasts)
    if write:
        typer.echo(f"{path}: {', '.join(changed) + ' rewritten' if changed else 'up to date'}")
    return [f"{name} in {path}" for name in changed]
