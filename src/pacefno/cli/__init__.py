"""The command line: parse, call, print. A command imports what it needs when it runs."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

try:
    import typer
except ModuleNotFoundError:  # the core alone is installed
    raise SystemExit("the command line needs more packages: pip install 'pacefno[train]'") from None

from pacefno.cli import _console, audit, explore, export, library, own, paper, rollout
from pacefno.memory import keep_freed_memory


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pacefno {version('pacefno')}")
        raise typer.Exit


app = _console.App(
    name="pacefno",
    help="Neural operators that keep their accuracy when the input is shifted, boosted or turned.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and stop.", callback=_show_version, is_eager=True
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of all errors.")] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            help="A Python module that registers parts or benchmarks of your own. May be repeated.",
            metavar="MODULE",
        ),
    ] = None,
) -> None:
    _console.debug = debug
    library.import_modules(modules or [])


app.add_typer(library.data_app)
app.command("inspect")(own.inspect_command)
app.command("train")(library.train_command)
app.command("evaluate")(library.evaluate_command)
app.command("predict")(library.predict_command)
app.command("rollout")(rollout.rollout_command)
app.command("audit")(audit.audit_command)
app.command("explore")(explore.explore_command)
app.command("export")(export.export_command)
app.command("bench")(paper.bench_command)
app.command("report")(paper.report_command)
app.add_typer(paper.study_app)


def main() -> None:
    """The program ``pacefno``."""
    keep_freed_memory()
    app()
