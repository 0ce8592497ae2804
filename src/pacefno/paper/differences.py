"""Where our settings differ from the paper's, read from the code that sets them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pacefno.data.recipe import PairRecipe
from pacefno.paper import PRESETS
from pacefno.paper.bench import Result
from pacefno.paper.benchmarks import Benchmark
from pacefno.paper.presets import config_for, data_preset
from pacefno.train.config import LossSettings, ScheduleSettings

PAPER_DEVICE = "one GPU (RTX 4080)"


class Setting(NamedTuple):
    """One setting in words: the paper's and ours."""

    name: str
    paper: str
    ours: str


def differences(benchmark: Benchmark, preset: str, results: Sequence[Result]) -> list[Setting]:
    """Every setting that is not the paper's; what the paper does not state is listed as such.

    None for a benchmark that is not in the paper.
    """
    found: list[Setting] = []
    if not benchmark.paper:
        return found
    if benchmark.task.rollout is None:  # LPSDA states its own
        found.append(Setting("equation and horizon", "values not stated", physics(benchmark)))
    if preset in PRESETS and benchmark.paper_preset:
        found += changed(benchmark, preset)
    if (ours := devices(results)) != PAPER_DEVICE:
        found.append(Setting("device", PAPER_DEVICE, ours))
    return found


def changed(benchmark: Benchmark, preset: str) -> list[Setting]:
    """The settings of a preset that are not those of the preset ``paper``."""
    theirs, ours = (_describe(benchmark, name) for name in ("paper", preset))
    both = (Setting(name, theirs[name], ours[name]) for name in ours)
    return [setting for setting in both if setting.paper != setting.ours]


def physics(benchmark: Benchmark) -> str:
    """The parameters of the equation and the time that is predicted."""
    values = [f"{name} = {value:g}" for name, value in benchmark.equation.parameters.items()]
    return ", ".join([*values, f"T = {benchmark.task.horizon:g}"])


def grids(benchmark: Benchmark, preset: str) -> str:
    """``training grid → test grid``; of trajectories the one that there is."""
    recipe = benchmark.recipe
    if not isinstance(recipe, PairRecipe):
        return str(recipe.points)
    known = data_preset(preset) if preset in PRESETS else "paper"
    both = recipe.id_grid(known), recipe.ood_grid(known)
    return " → ".join(" × ".join(map(str, grid)) for grid in both)


def devices(results: Sequence[Result]) -> str:
    """Where results were made."""
    found = {(str(r.get("device", "?")), int(r.get("threads", 0))) for r in results}
    return " and ".join(f"{name}, {n} thread{'s' * (n != 1)}" for name, n in sorted(found))


def _describe(benchmark: Benchmark, preset: str) -> dict[str, str]:
    """The settings of a preset in words, for the row that has the most of them."""
    model = "pace" if "pace" in benchmark.rows else "fno-aug"
    config = config_for(benchmark, model, preset, seed=42)
    sizes, schedule = benchmark.recipe.sizes_of(data_preset(preset)), config.schedule
    change = config.operator["name"] == "residual"
    return {
        "samples, training / test": f"{sizes.train} / {sizes.test}",
        "grid, ID → OOD": grids(benchmark, preset),
        "operator": _operator(config.operator),
        "predicts": "the change since the last snapshot" if change else "the snapshots",
        "epochs": _epochs(schedule),
        "batch": str(schedule.batch),
        "learning rate": _rate(schedule),
        "optimiser": f"{schedule.optimizer}, weight decay {schedule.weight_decay:g}",
        "error in the loss": config.loss.error,
        "PACE losses beside L2": _losses(config.loss),
    }


def _operator(spec: dict[str, Any]) -> str:
    """The sizes of an operator, inside those that only wrap it."""
    if isinstance(inner := spec.get("operator"), dict):
        return _operator(inner)
    return f"{spec['modes']} modes, width {spec['width']}, {spec['layers']} layers"


def _epochs(schedule: ScheduleSettings) -> str:
    coarse, stride = round(schedule.coarse * schedule.epochs), schedule.coarse_stride
    ordinal = {2: "2nd", 3: "3rd"}.get(stride, f"{stride}th")
    passes = f" of {schedule.passes} passes over the samples" if schedule.passes > 1 else ""
    part = f", of which {coarse} on every {ordinal} point" if coarse else ""
    return f"{schedule.epochs}{passes}{part}"


def _rate(schedule: ScheduleSettings) -> str:
    steps = f"times {schedule.step_factor:g} every {schedule.step_every} epochs"
    shapes = {"step": steps, "onecycle": "one cycle", "constant": "constant"}
    return f"{schedule.rate:g}, {shapes[schedule.shape]}"


def _losses(loss: LossSettings) -> str:
    keys = {"H1": "h1"} | {name: name for name in ("equivariance", "anchor", "invariant")}
    weights = {name: getattr(loss, key) for name, key in keys.items()}
    return ", ".join(f"{weight:g} {name}" for name, weight in weights.items() if weight) or "none"
