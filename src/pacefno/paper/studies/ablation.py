"""What each part of the method contributes: a row per part left out, frame used, and loss term.

The paper names the rows of its ablation and does not define them; here each is defined exactly. A
row is a training (whose weights, with which loss) and a change at inference. Rows that only change
inference share a training. Nothing is clipped anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, final

from pacefno.frames import IdentityFrame, KinematicFrame, PartialFrame
from pacefno.pace import PACE
from pacefno.paper import style
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.presets import config_for
from pacefno.paper.studies.base import Cell, Outcome, Scope, Table, choose, grouped, with_frame
from pacefno.task import Task
from pacefno.train.config import RunConfig
from pacefno.train.evaluate import load_run, score

LOSS_TERMS = ("h1", "equivariance", "anchor", "invariant")

# The paper's table "Unified ablation study": errors ID and OOD, seconds of an epoch and of one pass
# over the OOD test set on its GPU.
PAPER_COLUMNS = ("paper_id", "paper_ood", "paper_epoch_seconds", "paper_ood_seconds")
# fmt: off
PAPER: dict[str, dict[str, tuple[float | None, float, float | None, float]]] = {
    "burgers1d": {
        "paper-full": (0.0621, 0.0260, 0.4864, 5.9590),
        "paper-no-full-lie": (0.0471, 0.0193, 0.4902, 6.0546),
        "paper-one-shot": (None, 0.0267, None, 0.5287),
        "paper-no-canonicalisation": (None, 1.0384, None, 0.4016),
    },
    "burgers2d": {
        "paper-full": (0.0393, 0.0640, 1.5770, 4.4345),
        "paper-no-structure": (0.0392, 0.0666, 1.0761, 4.3969),
        "paper-no-full-lie": (0.0303, 0.5478, 1.1030, 4.3551),
        "paper-one-shot": (None, 0.0755, None, 0.1399),
        "paper-no-canonicalisation": (None, 1.0085, None, 0.1417),
    },
    "shallow_water": {
        "paper-full": (0.0491, 0.1071, 2.6139, 8.1388),
        "paper-no-structure": (0.0501, 0.1008, 2.5280, 7.8222),
        "paper-no-full-lie": (0.0586, 2.11e4, 2.0817, 7.5391),
        "paper-one-shot": (None, 0.1069, None, 0.2952),
        "paper-no-canonicalisation": (None, 0.7232, None, 0.1426),
    },
    "navier_stokes": {
        "paper-full": (0.0129, 0.2593, 16.5571, 10.0376),
        "paper-no-full-lie": (0.0133, 0.6280, 11.0809, 2.7494),
        "paper-one-shot": (None, 0.2766, None, 3.3728),
    },
}
# The paper's standard deviations of these OOD errors over its seeds.
PAPER_SPREAD = {
    "burgers1d": {
        "paper-full": 0.0012, "paper-no-full-lie": 0.0007, "paper-one-shot": 0.0014,
        "paper-no-canonicalisation": 0.0003,
    },
    "burgers2d": {
        "paper-full": 0.0012, "paper-no-structure": 0.0076, "paper-no-full-lie": 0.0303,
        "paper-one-shot": 0.0139, "paper-no-canonicalisation": 0.0035,
    },
    "shallow_water": {
        "paper-full": 0.0168, "paper-no-structure": 0.0142, "paper-no-full-lie": 2.28e4,
        "paper-one-shot": 0.0168, "paper-no-canonicalisation": 0.0008,
    },
    "navier_stokes": {
        "paper-full": 0.0522, "paper-no-full-lie": 0.0076, "paper-one-shot": 0.0353,
    },
}
# fmt: on


# --- changes at inference -------------------------------------------------------------------------


def without_frame(model: PACE, task: Task) -> PACE:
    return with_frame(model, task, IdentityFrame(task.group))


def spatial_only(model: PACE, task: Task) -> PACE:
    return with_frame(model, task, PartialFrame(task.group, model.frame, task.group.spatial))


def kinematic_only(model: PACE, task: Task) -> PACE:
    return with_frame(model, task, KinematicFrame(task.group))


def without_terminal(model: PACE, task: Task) -> PACE:
    """No time passes for the frame, so ``Gamma_B(xi; 0) = xi``."""
    now = task.output.at([task.input.times[-1]] * task.output.snapshots)
    return with_frame(model, task, model.frame, now)


def with_analytic_frame(model: PACE, task: Task) -> PACE:
    return with_frame(model, task, task.slice.frame())


# --- the rows -------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class AblationRow:
    """One row: whose training, which loss terms, and what changes at inference."""

    name: str
    title: str
    meaning: str
    model: str = "pace"
    loss: dict[str, Any] = field(default_factory=dict)
    change: Callable[[PACE, Task], PACE] = lambda model, task: model
    inference: Literal["one-shot", "refined", "adam", "oracle"] = "one-shot"

    @property
    def training(self) -> str:
        """The name of the training: that of the tables, or its own where the loss differs."""
        return f"{self.model}-{self.name.removeprefix('cnn-')}" if self.loss else self.model

    def config(self, benchmark: Benchmark, preset: str, seed: int) -> RunConfig:
        """The settings of the training."""
        config = config_for(benchmark, self.model, preset, seed)
        return config.model_copy(update={"loss": config.loss.model_copy(update=self.loss)})


# fmt: off
# The paper's table: its estimator, refined by its Adam. Its rows first, then the same with ours.
PAPERS = (
    AblationRow("paper-full", "the paper's: PACE + TTA",
                "The paper's encoder, refined by Adam with the paper's steps and rate.",
                model="pace-cnn", inference="adam"),
    AblationRow("paper-no-structure", "the paper's: without structured spatial generator",
                "The encoder gives k plain numbers instead of k points on circles: no R^2k, no "
                "retraction. Trained so; refined by Adam.", model="pace-regression",
                inference="adam"),
    AblationRow("paper-no-full-lie", "the paper's: without full Lie generator",
                "The encoder's translations alone: no boost and no rotation is removed or "
                "restored. Trained so; refined by Adam.", model="pace-cnn-translations",
                inference="adam"),
    AblationRow("paper-one-shot", "the paper's: PACE, one-shot",
                "The weights of `paper-full` without refinement.", model="pace-cnn"),
    AblationRow("paper-no-canonicalisation", "the paper's: without canonicalisation",
                "The operator of `paper-full` without pull-back and push-forward at inference (as "
                "the paper's caption says).", model="pace-cnn", change=without_frame),
)
METHOD = (
    AblationRow("full", "PACE + TTA", "The whole method: learned frame, refined by Gauss-Newton.",
                inference="refined"),
    AblationRow("one-shot", "PACE, one-shot", "The weights of `full` without refinement."),
    AblationRow("no-full-lie", "without full Lie generator",
                "The learned frame holds translations alone: no boost and no rotation is removed "
                "or restored. Trained so.", model="pace-translations"),
    AblationRow("no-canonicalisation", "without canonicalisation",
                "PACE's operator without pull-back and push-forward at inference.",
                change=without_frame),
)
# Where the group has a kinematic part; elsewhere these are the whole method or none of it.
KINEMATIC = (
    AblationRow("spatial-only", "spatial part only",
                "Shifts are removed and restored, the background velocity is not. PACE's weights, "
                "which never saw a boost.", change=spatial_only),
    AblationRow("kinematic-only", "kinematic part only",
                "The background velocity is removed and restored with its drift, shifts are not. "
                "PACE's weights.", change=kinematic_only),
    AblationRow("no-terminal", "without terminal frame",
                "Gamma_B = identity: the prediction is pushed out by the frame of the input. "
                "PACE's weights.", change=without_terminal),
)
FRAMES = (
    AblationRow("frame-analytic", "frame: analytic",
                "PACE's operator in the frame read off the field.", change=with_analytic_frame),
    AblationRow("frame-oracle", "frame: true", "PACE's operator in the true frame.",
                inference="oracle"),
)
# fmt: on


def loss_rows(benchmark: Benchmark, model: str, prefix: str = "") -> list[AblationRow]:
    """The paper's loss, without each of its terms in turn, and the relative L2 error alone."""
    whole = dict(benchmark.paper_preset.get("loss", {}))
    terms = [term for term in LOSS_TERMS if whole.get(term)]
    suffix = f", {model}" if prefix else ""
    changes: dict[str, tuple[str, str, Cell]] = {}
    changes["paper"] = ("the paper's", "All loss terms with the paper's weights.", {})
    for term in terms:
        none = {term: 0.0} | ({"anchor_floor": 0.0} if term == "anchor" else {})
        text = f"The paper's loss without its {term} term."
        changes[f"no-{term}"] = (f"without {term}", text, none)
    alone = dict.fromkeys(LOSS_TERMS, 0.0)
    if prefix:  # an encoder, whose frame terms have gradients of another size than the error's
        text = "The paper's loss, gradients of its frame terms kept as large as that of the error."
        changes["balanced"] = ("the paper's, gradients balanced", text, {"balance": 1.0})
    changes["l2"] = ("L2 alone", "The relative L2 error alone.", alone)
    return [
        AblationRow(f"{prefix}loss-{name}", f"loss: {what}{suffix}", text, model, whole | change)
        for name, (what, text, change) in changes.items()
        if terms
    ]


def rows_for(benchmark: Benchmark) -> list[AblationRow]:
    """Every row that means something for a benchmark."""
    kinematic = KINEMATIC if benchmark.task.group.moves_in_time else ()
    # The paper's encoder has everything to learn from the frame terms: with all, balanced, none.
    encoder = loss_rows(benchmark, "pace-cnn", "cnn-")
    ends = [row for row in encoder if not row.name.startswith("cnn-loss-no-")]
    return [*PAPERS, *METHOD, *kinematic, *FRAMES, *loss_rows(benchmark, "pace"), *ends]


# --- the study ------------------------------------------------------------------------------------


def run(scope: Scope, rows: Sequence[str], seeds: Sequence[int], define: bool) -> Outcome:
    """Train and score what is missing, seed by seed.

    Rows that only change inference share the trainings of the tables; the others are trained here.
    """
    chosen = chosen_rows(scope.benchmark, rows)
    if define:
        return Outcome(None, [definitions(chosen)], [])
    file, cells = scope.file("ablation", "preset", "row", "seed"), list[Cell]()
    for seed in seeds:
        for row in chosen:
            run = scope.run_folder(row.training, seed)
            scope.train(row.config(scope.benchmark, scope.preset, seed), run)
            identity = scope.identity(run, seed, row=row.name)
            cells = scope.measured(file, [(identity, partial(measure, scope, row, run))])
    return Outcome(file.path, [errors_table(scope.benchmark, cells)], draw(scope.benchmark, cells))


def chosen_rows(benchmark: Benchmark, names: Sequence[str]) -> list[AblationRow]:
    """Rows by their names, or all of them."""
    known = {row.name: row for row in rows_for(benchmark)}
    return [known[name] for name in choose(names, list(known), "row")]


def definitions(rows: Sequence[AblationRow]) -> Table:
    """What each row is."""
    lines = []
    for row in rows:
        weights = [f"{term} {row.loss[term]:g}" for term in LOSS_TERMS if row.loss.get(term)]
        terms = f" Terms: L2, {', '.join(weights)}." if weights else ""
        lines.append([row.name, row.training, row.inference, row.meaning + terms])
    return Table("Rows of the ablation", ["name", "training", "inference", "what it is"], lines)


def measure(scope: Scope, row: AblationRow, run: Path) -> Cell:
    """A row scored by the code path of the tables; the seconds of an epoch are a mean."""
    loaded = load_run(run)
    model = row.change(loaded.model, scope.task).eval()
    scored = score(model, scope.task, scope.dataset, scope.benchmark.way(row.inference))
    errors = [scored[key] for key in ("id_error", "ood_error", "ood_error_canonical")]
    scope.say("{}, {}: ID {:.4f}, OOD {:.4f}, canonical {:.4f}".format(run.name, row.name, *errors))
    seconds = loaded.train_seconds
    times = {"train_seconds": round(seconds, 1)}
    times["epoch_seconds"] = seconds / loaded.config.schedule.epochs
    return {"model": row.model, "inference": row.inference} | scored | times


def known_cells(benchmark: Benchmark, cells: list[Cell]) -> list[Cell]:
    """The cells of rows that there are, in their order, with titles and the paper's numbers."""
    paper, found = PAPER.get(benchmark.name, {}), []
    for row in rows_for(benchmark):
        beside = dict(zip(PAPER_COLUMNS, paper.get(row.name, (None,) * 4), strict=True))
        own = (cell for cell in cells if cell["row"] == row.name)
        found += [cell | beside | {"title": row.title} for cell in own]
    return found


def errors_table(benchmark: Benchmark, cells: list[Cell]) -> Table:
    """The paper's table with more rows, its numbers and times beside ours."""
    errors = {"OOD": "ood_error", "ID": "id_error", "OOD, canonical": "ood_error_canonical"}
    means = {
        "paper OOD": "paper_ood",
        "paper ID": "paper_id",
        "s/epoch": "epoch_seconds",
        "paper s/epoch": "paper_epoch_seconds",
        "OOD pass, s": "ood_seconds",
        "paper OOD pass, s": "paper_ood_seconds",
    }
    rows = grouped(known_cells(benchmark, cells), "title")
    return Table.over_seeds(f"{benchmark.title}: ablation", rows, means, errors)


# --- the figure -----------------------------------------------------------------------------------

KINDS = {  # of rows: how their names begin, and the colour
    "the paper's rows": (("paper",), style.BLACK),
    "the method": (("full", "one-shot"), style.BLUE),
    "a part left out": (("no-",), style.VERMILION),
    "one part only": (("spatial", "kinematic"), style.ORANGE),
    "frames": (("frame",), style.GREEN),
    "loss terms": (("loss", "cnn-loss"), style.PURPLE),
}


def draw(benchmark: Benchmark, cells: list[Cell]) -> list[style.Drawing]:
    """OOD errors: large dots are means over seeds, small ones single seeds, diamonds the paper."""
    groups = list(grouped(reversed(known_cells(benchmark, cells)), "row").items())
    figure, ((axis,),) = style.panels(8.5, 0.3 * len(groups) + 1.4)
    for height, (name, own) in enumerate(groups):
        colour = next(colour for starts, colour in KINDS.values() if name.startswith(starts))
        errors = [cell["ood_error"] for cell in own]
        style.draw_dots(axis, height, errors, colour, own[0]["paper_ood"])
    axis.set_yticks(range(len(groups)), [own[0]["title"] for _, own in groups])
    axis.set_ylim(-0.6, len(groups) - 0.4)
    style.finish(axis, "OOD error (relative L2)", log="x")
    kinds = [style.DOT | {"color": colour, "label": kind} for kind, (_, colour) in KINDS.items()]
    style.legend_below(figure, [*kinds, style.DOT_LEGEND[-1]])
    caption = (
        f"{benchmark.title}: OOD error with a part left out, another frame, or other loss terms. "
        "Further left is better."
    )
    return [style.Drawing(f"{benchmark.name}-ablation", caption, figure)]
