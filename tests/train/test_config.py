"""The settings of a run: what does not exist or would be ignored is refused, in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pacefno.checkpoint import CheckpointError
from pacefno.data.samples import Pairs, Source
from pacefno.errors import UsageError
from pacefno.paper.benchmarks import BENCHMARKS, benchmark_named
from pacefno.paper.presets import config_for
from pacefno.train.batches import make_data
from pacefno.train.config import ConfigError, RunConfig, make_config, settable, stored_config
from pacefno.train.loop import settings_since, train
from pacefno.train.model import build_model
from training_examples import SMOOTH, InMemory, settings, waves


def documented(model: str = "pace", benchmark: str = SMOOTH, **changes: Any) -> dict[str, Any]:
    """The document of a run, with some entries changed: ``schedule={"epochs": 3}``."""
    document = settings(model, benchmark=benchmark).model_dump(mode="json")
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(document[key], dict)
        document[key] = document[key] | value if both else value
    return document


# --- documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_the_settings_of_every_row_are_rebuilt_from_their_document(name: str) -> None:
    benchmark = BENCHMARKS[name]
    for model in benchmark.rows:
        config = config_for(benchmark, model, "smoke", 3)
        again = make_config(json.loads(json.dumps(config.model_dump(mode="json"))))
        assert again.model_dump(mode="json") == config.model_dump(mode="json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shedule": {}}, "unknown entry 'shedule'. Did you mean 'schedule'?"),
        ({"schedule": {"epoch": 3}}, "schedule: unknown entry 'epoch'. Did you mean 'epochs'?"),
        ({"loss": {"H1": 3}}, "loss: unknown entry 'H1'. Did you mean 'h1'?"),
        ({"task": {"gruop": 1}}, "task: unknown entry 'gruop'. Did you mean 'group'?"),
        ({"operator": {"name": "fmo"}}, "unknown operator 'fmo'. Did you mean 'fno'?"),
        (
            {"operator": {"widht": 3}},
            "unknown setting of operator 'fno' 'widht'. Did you mean 'width'?",
        ),
        ({"operator": {"name": 3}}, "operator: expected entries with a name out of adapted, fno"),
        ({"frame": {"name": "equivarant"}}, "Did you mean 'equivariant'?"),
        ({"frame": {"aligne": False}}, "unknown setting of frame 'equivariant' 'aligne'"),
        ({"frame": {}, "schedule": {"batch": 0}}, "schedule.batch: Input should be greater"),
        ({"scaling": "chanels"}, "unknown scaling 'chanels'. Did you mean 'channels'?"),
        ({"precision": "16"}, "precision: Input should be '32-true', '64-true' or 'bf16-mixed'"),
        ({"seed": "x"}, "seed: Input should be a valid integer"),
    ],
)
def test_a_bad_entry_is_named_in_one_sentence(changes: dict[str, Any], message: str) -> None:
    document = settings("pace").model_dump(mode="json")
    for key, value in changes.items():
        old = document.get(key)
        document[key] = old | value if isinstance(old, dict) else value
    with pytest.raises(ConfigError) as caught:
        make_config(document)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_setting_inside_a_nested_part_is_checked_too() -> None:
    document = documented("pace-20", "kdv")
    document["operator"]["operator"]["operator"]["wdth"] = 3
    with pytest.raises(ConfigError, match="'wdth'. Did you mean 'width'"):
        make_config(document)


# --- what would be ignored ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "benchmark", "changes", "message"),
    [
        ("fno", SMOOTH, {"schedule": {"jitter": 0.5}}, "displaces frames, and this model has none"),
        ("fno", SMOOTH, {"schedule": {"windows": "blocks"}}, "this task has pairs"),
        ("fno", SMOOTH, {"schedule": {"unroll": 2}}, "unroll is for trajectories"),
        (
            "pace-20",
            "kdv",
            {"schedule": {"unroll": 2}, "loss": {"anchor": 1.0}},
            "whose true frame is not known",
        ),
        ("fno", SMOOTH, {"task": {"train_range": []}, "schedule": {"moved": True}}, "train_range"),
        ("pace-20", "kdv", {"task": {"train_range": []}}, "jitter is a share of .* train_range"),
        ("fno", SMOOTH, {"operator": {"time_modes": 3}}, "unknown setting of operator 'fno'"),
        ("fno", SMOOTH, {"loss": {"error": "squared", "h1": 1.0}}, "loss.error = squared"),
        ("pace", SMOOTH, {"loss": {"error": "squared", "equivariance": 1.0}}, "loss.equivariance:"),
        ("fno", SMOOTH, {"loss": {"balance": 1.0}}, "loss.balance weighs loss.equivariance"),
        ("pace", SMOOTH, {"loss": {"balance": 1.0, "equivariance": 0.0}}, "has none of them"),
        ("pace-20", "kdv", {"precision": "bf16-mixed"}, "would round the lengths of boxes"),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(
    model: str, benchmark: str, changes: dict[str, Any], message: str
) -> None:
    make_config(documented(model, benchmark))
    with pytest.raises(ConfigError, match=message):
        make_config(documented(model, benchmark, **changes))


# --- changes from the command line ----------------------------------------------------------------


def test_settings_are_changed_by_name() -> None:
    changes = ("schedule.epochs=7", "loss.error=squared", "operator.width=6", "seed=3")
    changed = settings("fno", *changes, "precision=64-true", "operator.positions=null")
    assert (changed.schedule.epochs, changed.loss.error, changed.seed) == (7, "squared", 3)
    assert changed.operator["width"] == 6 and changed.operator["positions"] is None
    assert changed.precision == "64-true"
    assert settings("fno", " schedule.rate = 1e-3 ").schedule.rate == 1e-3
    assert settings("pace", "frame.width=5").frame == {"name": "equivariant", "width": 5}


def test_the_sizes_are_those_of_the_innermost_operator() -> None:
    """A forecaster is an FNO inside two operators that tell it what it needs."""
    changed = settings("pace-20", "operator.width=6", benchmark="kdv").operator
    assert changed["name"] == "residual"
    assert changed["operator"]["operator"]["width"] == 6


def test_every_setting_that_is_listed_can_be_set() -> None:
    for model, benchmark in (("pace", SMOOTH), ("gfno", SMOOTH), ("pace-1", "kdv")):
        document = settings(model, benchmark=benchmark).model_dump(mode="json")
        for key in settable(document):
            section, _, name = key.rpartition(".")
            place = document[section] if section else document
            if name in place:
                assignment = f"{key}={json.dumps(place[name])}"
                again = settings(model, assignment, benchmark=benchmark)
                assert again.model_dump(mode="json") == document


USELESS = {
    "loss.equivariance=5": "a model with a frame",
    "loss.anchor=5": "a model with a frame",
    "loss.anchor_floor=3": "loss.anchor",
    "loss.h1_schedule=ema": "loss.h1",
    "loss.h1_memory=0.5": "loss.h1_schedule=ema",
    "loss.balance_memory=0.5": "loss.balance",
    "schedule.validation=windows": r"a task with \[rollout\]",
    "schedule.step_every=3": "schedule.shape=step",
}


@pytest.mark.parametrize("assignment", list(USELESS))
def test_a_change_that_changes_nothing_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigError, match=f"does nothing here: it needs {USELESS[assignment]}"):
        settings("fno", assignment)


def test_settings_are_of_use_together() -> None:
    settings("fno", "loss.h1=1", "loss.h1_schedule=ema", "loss.h1_memory=0.5")
    settings("fno", "loss.equivariance=0")
    settings("fno", "schedule.step_every=3", "schedule.shape=step")
    with pytest.raises(ConfigError, match="another loss.error than squared"):
        settings("fno", "loss.error=squared", "loss.relative_to=moved")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("schedule.epoch=3", "unknown setting 'schedule.epoch'. Did you mean 'schedule.epochs'?"),
        ("epochs=3", "--set epochs: say schedule.epochs"),
        ("nothing.epochs=3", "unknown setting 'nothing.epochs'"),
        ("model=pace", "unknown setting 'model'"),
        ("operator.name=fno", "unknown setting 'operator.name'"),
        ("operator.in_channels=2", "unknown setting 'operator.in_channels'"),
        ("schedule.epochs", "expected key=value, for example schedule.epochs=50"),
        ("schedule.epochs=many", "schedule.epochs: Input should be a valid integer"),
        (
            "schedule.epochs=0",
            "schedule.epochs: Input should be greater than or equal to 1 (got 0)",
        ),
        ("schedule.rate=-1", "schedule.rate: Input should be greater than 0 (got -1)"),
        ("schedule.rate=inf", "schedule.rate: Input should be a finite number"),
        ("schedule.moved=maybe", "schedule.moved: Input should be a valid boolean"),
        ("operator.width=2.5", "operator.width: expected a whole number, got 2.5"),
        ("operator.width=wide", "operator.width: expected a whole number, got 'wide'"),
        ("operator.width=true", "operator.width: expected a whole number, got True"),
        ("operator.positions=3", "operator.positions: expected a word, got 3"),
        ("frame.aligned=3", "frame.aligned: expected true or false, got 3"),
        ("precision=8", "precision: Input should be '32-true'"),
        ("=3", "unknown setting ''"),
    ],
)
def test_a_wrong_change_is_named(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings("pace", assignment)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("operator.width=-1", "operator 'fno': width: expected a positive integer, got -1"),
        ("operator.modes=[4, 4]", r"operator 'fno': modes: expected a positive integer or 1"),
        ("operator.positions=nowhere", "operator 'fno': positions: expected None or 'grid'"),
    ],
)
def test_a_size_that_the_operator_refuses_is_an_error_of_the_user(
    assignment: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        build_model(settings("fno", assignment))


def test_more_modes_than_the_grid_holds_are_refused(smoke_source: Source, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="need at least"):
        train(settings("fno", "operator.modes=100"), smoke_source, tmp_path / "run")


# --- comparisons ----------------------------------------------------------------------------------


def test_changes_between_two_runs_are_listed_by_their_path() -> None:
    one = settings("pace")
    two = settings("pace", "schedule.rate=1", "operator.width=6", "seed=1")
    assert settings_since(one, one) == ""
    text = "seed was 42, now 1; operator.width was 8, now 6; schedule.rate was 0.002, now 1.0"
    assert settings_since(one, two) == text
    assert settings_since(one.model_copy(update={"labels": {}}), one) == ""


def test_a_stored_configuration_is_read_back_and_one_of_another_version_is_refused() -> None:
    config, run = settings("pace"), Path("run")
    stored = config.model_dump(mode="json")
    later = {key: value for key, value in stored.items() if key != "on_undetermined"}
    for document in (stored, later):
        assert settings_since(stored_config(run, {"config": document}), config) == ""
    with pytest.raises(CheckpointError, match=r"not a run .*\(its settings: data: .*'f4'\)\)"):
        stored_config(run, {"config": stored | {"data": "f4"}})
    with pytest.raises(CheckpointError, match="unknown entry 'noise'"):
        stored_config(run, {"config": stored | {"noise": 1}})
    with pytest.raises(CheckpointError, match="has no 'config'"):
        stored_config(run, {})


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="frozen"):
        settings("fno").seed = 3  # type: ignore[misc]


# --- samples that do not fit ----------------------------------------------------------------------


def test_samples_of_another_kind_than_the_task_wants_are_refused(smoke_source: Source) -> None:
    pairs = smoke_source.load("train")
    assert isinstance(pairs, Pairs)
    kdv = settings("fno", benchmark="kdv")
    with pytest.raises(UsageError, match="trajectories"):
        make_data(kdv, InMemory({"train": pairs, "validation": pairs}))
    trajectories = waves("kdv", 4, 45)
    with pytest.raises(UsageError, match="pairs"):
        make_data(settings("fno"), InMemory({"train": trajectories, "validation": trajectories}))


def test_every_benchmark_has_a_default_row_that_is_trained() -> None:
    for benchmark in BENCHMARKS.values():
        assert benchmark.rows[benchmark.default_row].trained_as is None
        assert isinstance(config_for(benchmark, benchmark.default_row, "quick", 1), RunConfig)
    assert benchmark_named(SMOOTH).default_row == "pace"
