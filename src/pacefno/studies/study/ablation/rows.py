"""The rows of the ablation table, each defined exactly (the paper names its rows and does not define them).

A row is a training (whose weights, with which loss) and a change at inference. Rows that only change inference share a
training. Nothing is clipped anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, final

from pacefno.equations import Problem
from pacefno.frames import AnalyticFrame, IdentityFrame, KinematicFrame
from pacefno.pace import PACE
from pacefno.training.ablated import PartialFrame
from pacefno.training.config import RunConfig
from pacefno.training.models import ModelSpec
from pacefno.training.presets import PRESETS, config_for

Change = Callable[[PACE, Problem], PACE]
LOSS_TERMS = ("h1", "equivariance", "anchor", "invariant")


@final
@dataclass(frozen=True)
class AblationRow:
    """One row: whose training, which loss terms instead of the preset's, what is changed at inference."""

    name: str
    title: str
    meaning: str
    model: str = "pace"
    loss: dict[str, Any] = field(default_factory=dict)
    change: Change = lambda model, problem: model
    inference: Literal["one-shot", "refined", "oracle"] = "one-shot"

    @property
    def spec(self) -> ModelSpec:
        return ModelSpec(self.title, inference=self.inference)

    @property
    def training(self) -> str:
        """The name of the training: that of the tables, or its own where the loss differs."""
        return f"{self.model}-{self.name.removeprefix('cnn-')}" if self.loss else self.model

    def config(self, problem: str, preset: str, seed: int) -> RunConfig:
        config = config_for(problem, self.model, preset, seed)
        return config.model_copy(update={"loss": config.loss.model_copy(update=self.loss)}) if self.loss else config


def without_frame(model: PACE, problem: Problem) -> PACE:
    return PACE(model.operator, model.group, IdentityFrame(model.group), model.horizon)


def spatial_only(model: PACE, problem: Problem) -> PACE:
    return PACE(model.operator, model.group, PartialFrame(model.frame, model.group.spatial), model.horizon)


def kinematic_only(model: PACE, problem: Problem) -> PACE:
    return PACE(model.operator, model.group, KinematicFrame(model.group), model.horizon)


def without_terminal(model: PACE, problem: Problem) -> PACE:
    """No time passes for the frame, so ``Gamma_B(xi; 0) = xi``."""
    return PACE(model.operator, model.group, model.frame, 0.0)


def with_analytic_frame(model: PACE, problem: Problem) -> PACE:
    return PACE(model.operator, model.group, AnalyticFrame(model.group, problem.slice), model.horizon)


COMMON = (
    AblationRow("full", "PACE + TTA", "The whole method: learned frame, refined by Gauss-Newton.", inference="refined"),
    AblationRow("one-shot", "PACE, one-shot", "The same weights without refinement."),
    AblationRow(
        "no-structure",
        "without structured spatial generator",
        "The paper's encoder gives k plain numbers instead of k points on circles: no R^2k, no retraction. Trained so.",
        model="pace-regression",
    ),
    AblationRow(
        "no-full-lie",
        "without full Lie generator",
        "The frame holds translations alone: no boost and no rotation is removed or restored. Trained so.",
        model="pace-translations",
    ),
    AblationRow(
        "no-canonicalisation",
        "without canonicalisation",
        "PACE's operator without pull-back and push-forward at inference (as the paper's caption says).",
        change=without_frame,
    ),
    AblationRow(
        "frame-analytic", "frame: analytic", "PACE's operator in the frame read off the field.", change=with_analytic_frame
    ),
    AblationRow("frame-cnn", "frame: the paper's encoder", "Trained with the ordinary encoder.", model="pace-cnn"),
    AblationRow(
        "frame-cnn-tta", "frame: the paper's encoder, refined", "The same weights, refined.", "pace-cnn", inference="refined"
    ),
    AblationRow("frame-oracle", "frame: true", "PACE's operator in the true frame.", inference="oracle"),
)

# Where the group has a kinematic part; elsewhere these are the whole method or none of it.
KINEMATIC = (
    AblationRow(
        "spatial-only",
        "spatial part only",
        "Shifts are removed and restored, the background velocity is not. PACE's weights, which never saw a boost.",
        change=spatial_only,
    ),
    AblationRow(
        "kinematic-only",
        "kinematic part only",
        "The background velocity is removed and restored with its drift, shifts are not. PACE's weights.",
        change=kinematic_only,
    ),
    AblationRow(
        "no-terminal",
        "without terminal frame",
        "Gamma_B = identity: the prediction is pushed out by the frame of the input. PACE's weights.",
        change=without_terminal,
    ),
)


def loss_rows(problem: str, model: str = "pace") -> tuple[AblationRow, ...]:
    """The paper's loss for a problem, without each of its terms in turn, and the relative L2 error alone."""
    paper = PRESETS["paper"].get(problem, {}).get("loss", {})
    whole = {name: value for name, value in paper.items() if name != "relative_to"}  # the scale of errors is no term
    terms = [term for term in LOSS_TERMS if whole.get(term)]
    none = {term: 0.0 for term in LOSS_TERMS}
    kind = "" if model == "pace" else f", {model}"
    rows = [AblationRow("loss-paper", f"loss: the paper's{kind}", "All loss terms with the paper's weights.", model, whole)]
    for term in terms:
        text = f"The paper's loss without its {term} term."
        dropped = whole | {term: 0.0} | ({"anchor_floor": 0.0} if term == "anchor" else {})
        rows.append(AblationRow(f"loss-no-{term}", f"loss: without {term}{kind}", text, model, dropped))
    rows.append(AblationRow("loss-l2", f"loss: L2 alone{kind}", "The relative L2 error alone.", model, whole | none))
    return tuple(rows) if terms else ()


def rows_for(problem: Problem) -> list[AblationRow]:
    """Every row that means something for a problem."""
    kinematic = KINEMATIC if problem.group.size > problem.group.spatial else ()
    return [*COMMON[:5], *kinematic, *COMMON[5:], *loss_rows(problem.name), *_encoder_losses(problem.name)]


def _encoder_losses(problem: str) -> list[AblationRow]:
    """For the paper's encoder, which has everything to learn from the frame terms: with all terms, and with none."""
    chosen = {"loss-paper": "cnn-loss-paper", "loss-l2": "cnn-loss-l2"}
    return [
        AblationRow(chosen[row.name], row.title, row.meaning, row.model, row.loss)
        for row in loss_rows(problem, "pace-cnn")
        if row.name in chosen
    ]


# (ID, OOD) errors of the paper's table "Unified ablation study".
PAPER: dict[str, dict[str, tuple[float | None, float]]] = {
    "burgers1d": {
        "full": (0.0621, 0.0260),
        "no-full-lie": (0.0471, 0.0193),
        "one-shot": (None, 0.0267),
        "no-canonicalisation": (None, 1.0384),
    },
    "burgers2d": {
        "full": (0.0393, 0.0640),
        "no-structure": (0.0392, 0.0666),
        "no-full-lie": (0.0303, 0.5478),
        "one-shot": (None, 0.0755),
        "no-canonicalisation": (None, 1.0085),
    },
    "shallow_water": {
        "full": (0.0491, 0.1071),
        "no-structure": (0.0501, 0.1008),
        "no-full-lie": (0.0586, 2.11e4),
        "one-shot": (None, 0.1069),
        "no-canonicalisation": (None, 0.7232),
    },
    "navier_stokes": {"full": (0.0129, 0.2593), "no-full-lie": (0.0133, 0.6280), "one-shot": (None, 0.2766)},
}
