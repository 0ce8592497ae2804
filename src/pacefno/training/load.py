"""A trained model, ready to call. Weights come from safetensors; nothing is ever unpickled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError

from pacefno.equations import TRAJECTORY_PROBLEMS, Problem, TrajectoryProblem, problem_named
from pacefno.forecast import Forecaster
from pacefno.pace import PACE
from pacefno.training.config import RunConfig
from pacefno.training.forecasts import build_forecaster, forecast_named
from pacefno.training.models import build_model, model_named
from pacefno.training.state import FINAL, newest
from pacefno.training.store import Checkpoint, CheckpointError, load_checkpoint

PRECISIONS = {"32-true": torch.float32, "64-true": torch.float64, "bf16-mixed": torch.float32}  # of the weights


@dataclass(frozen=True)
class Trained:
    """A run's model with what is known about it."""

    model: PACE
    problem: Problem
    config: RunConfig
    train_seconds: float
    finished: bool


def load(run: str | Path, model: str | None = None) -> PACE:
    """The trained model of a run folder (or of one checkpoint in it), in evaluation mode.

    ``model`` names another row that shares these weights, e.g. ``"pace-analytic"`` around a plain ``"fno"``.
    """
    return load_run(Path(run), model).model


def config_of(run: Path) -> RunConfig:
    """The settings of a run, of whatever kind."""
    return _config(run, _find(run)[0])


def _config(run: Path, checkpoint: Checkpoint) -> RunConfig:
    try:
        return RunConfig.model_validate(checkpoint.documents["config"])
    except (KeyError, TypeError, ValidationError) as error:
        raise CheckpointError(run, f"its configuration does not fit this version of pacefno ({error})") from error


def load_run(run: Path, model: str | None = None) -> Trained:
    """The same with problem, configuration and training time."""
    checkpoint, weights, finished = _find(run)
    config = _config(run, checkpoint)
    try:
        if config.problem in TRAJECTORY_PROBLEMS:
            raise ValueError(f"{run} holds a forecaster of {config.problem}: pacefno.training.load.load_forecaster loads it")
        problem = problem_named(config.problem)
        spec = model_named(_row(config.model, model))
        stored, seconds = checkpoint.tensors[weights], float(checkpoint.documents["timing"]["seconds"])
    except (KeyError, TypeError, ValidationError) as error:
        raise CheckpointError(run, f"its configuration does not fit this version of pacefno ({error})") from error
    built = build_model(problem, spec, config.operator, None, config.seed).to(PRECISIONS[config.precision])
    own = built.state_dict()
    usable = {name: tensor for name, tensor in stored.items() if name in own or not name.startswith("frame.")}
    try:
        built.load_state_dict(usable)
    except RuntimeError as error:
        raise CheckpointError(run, f"its weights do not fit the model {config.model!r}: {error}") from error
    return Trained(built.eval(), problem, config, seconds, finished)


@dataclass(frozen=True)
class TrainedForecaster:
    """The same for trajectories."""

    model: Forecaster
    problem: TrajectoryProblem
    config: RunConfig
    train_seconds: float
    finished: bool


def load_forecaster(run: Path) -> TrainedForecaster:
    """The trained forecaster of a run folder, in evaluation mode."""
    checkpoint, weights, finished = _find(run)
    config = _config(run, checkpoint)
    try:
        problem = TRAJECTORY_PROBLEMS[config.problem]
        model = build_forecaster(problem, forecast_named(config.model), config.operator, config.seed)
        model = model.to(PRECISIONS[config.precision])
        model.load_state_dict(checkpoint.tensors[weights])
        seconds = float(checkpoint.documents["timing"]["seconds"])
    except (KeyError, TypeError, ValidationError, RuntimeError) as error:
        raise CheckpointError(run, f"is no forecaster of this version of pacefno ({error})") from error
    return TrainedForecaster(model.eval(), problem, config, seconds, finished)


def _row(trained: str, wanted: str | None) -> str:
    if wanted is None or wanted == trained:
        return trained
    if model_named(wanted).trained_as != trained:
        raise ValueError(f"{wanted!r} does not use the weights of {trained!r}, which is what this run trained")
    return wanted


def _find(run: Path) -> tuple[Checkpoint, str, bool]:
    """The finished model, or the best weights so far of an unfinished run, or the checkpoint folder itself."""
    if (run / FINAL).is_dir():
        return load_checkpoint(run / FINAL), "model", True
    if (run / "manifest.json").exists():
        checkpoint = load_checkpoint(run)
        return checkpoint, "best" if "best" in checkpoint.tensors else "model", run.name == FINAL
    checkpoint_or_none, rejected = newest(run) if run.is_dir() else (None, [])
    if checkpoint_or_none is not None:
        return checkpoint_or_none, "best", False
    if rejected:
        raise rejected[0]
    load_checkpoint(run)  # explains what is wrong with the path: missing, a pickle, not a checkpoint
    raise CheckpointError(run, "holds no checkpoint")
