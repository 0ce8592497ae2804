"""The command line: ``pacefno data | train | evaluate | predict | bench | study | report``."""

from __future__ import annotations

import typer

from pacefno.data.commands import data_app
from pacefno.memory import keep_freed_memory
from pacefno.studies.commands import bench_command
from pacefno.studies.report.commands import report_command
from pacefno.studies.study.commands import study_app
from pacefno.training.commands import evaluate_command, predict_command, train_command

app = typer.Typer(
    name="pacefno",
    help="Neural operators that keep their accuracy when the input is translated, boosted or rotated.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.add_typer(data_app)
app.command("train")(train_command)
app.command("evaluate")(evaluate_command)
app.command("predict")(predict_command)
app.command("bench")(bench_command)
app.command("report")(report_command)
app.add_typer(study_app)


def main() -> None:
    keep_freed_memory()
    app()


if __name__ == "__main__":
    main()
