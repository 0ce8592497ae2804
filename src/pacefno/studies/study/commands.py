"""The command group ``pacefno study``."""

from __future__ import annotations

import typer

from pacefno.studies.study.ablation.command import ablation_command
from pacefno.studies.study.frames.command import frames_command
from pacefno.studies.study.landscape.command import landscape_command
from pacefno.studies.study.lielac.command import lielac_command
from pacefno.studies.study.robustness.command import robustness_command
from pacefno.studies.study.theory.command import theory_command
from pacefno.studies.study.tta.command import tta_command

study_app = typer.Typer(
    name="study",
    help="Why it works: ablations, test-time adaptation, theory, robustness.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
study_app.command("theory")(theory_command)
study_app.command("tta")(tta_command)
study_app.command("landscape")(landscape_command)
study_app.command("ablation")(ablation_command)
study_app.command("frames")(frames_command)
study_app.command("robustness")(robustness_command)
study_app.command("lielac")(lielac_command)
