"""Saved models come back as they were, whatever they are made of, and nothing is ever unpickled."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pacefno
from group_examples import EXAMPLES
from pacefno import registry
from pacefno.checkpoint import FINAL, CheckpointError, load_checkpoint, save_checkpoint
from pacefno.data.samples import Source
from pacefno.errors import UsageError
from pacefno.fields import Field, FieldType
from pacefno.frames import (
    AnalyticFrame,
    CNNFrame,
    EquivariantFrame,
    Estimate,
    Frame,
    IdentityFrame,
    KinematicFrame,
    MomentSlice,
    PartialFrame,
    PhaseSlice,
    QuarterSlice,
    SeamFrame,
    StrongestWaveSlice,
    TurningFrame,
)
from pacefno.grid import FieldError
from pacefno.groups import (
    POINT_GROUPS,
    Euclidean,
    Galilean,
    Group,
    Translation,
    Trivial,
)
from pacefno.inference import check_matches, describe_model, predict, predict_batches
from pacefno.operators import (
    FNO,
    Adapted,
    Conditioned,
    GroupFNO,
    Recurrent,
    Residual,
    SpaceTimeFNO,
    SplitStep,
    Standardised,
    Symmetrised,
)
from pacefno.pace import PACE
from pacefno.testing import random_field
from pacefno.train.batches import roll_out
from pacefno.train.evaluate import load_run
from pacefno.train.loop import Callbacks, StopRequest, train
from training_examples import InMemory, settings, wave_source, waves

SOURCE = Path(pacefno.__file__).parent


def operator_for(type: FieldType) -> FNO:
    channels = sample(type).shape[1]
    return FNO(type.dim, channels, channels, 4, 2, layers=1, head=8)


def later(type: FieldType) -> FieldType:
    return type.at([time + 1 for time in type.times])


def sample(type: FieldType, dtype: torch.dtype = torch.float32, batch: int = 2) -> Tensor:
    grid = {1: (32,), 2: (24, 24), 3: (8, 9, 10)}[type.dim]
    return random_field(type, grid, batch=batch, top=3, dtype=dtype, seed=0).values


def wrapped(operator: nn.Module, group: Group, type: FieldType, frame: Frame | None = None) -> PACE:
    return PACE(
        operator, group, input=type, output=later(type), frame=frame, on_undetermined="ignore"
    ).eval()


def assert_saved(model: PACE, field: Tensor, folder: Path, **options: Any) -> PACE:
    """The model comes back: the same description, and the same bits from the same batch."""
    pacefno.save(model, folder)
    again = pacefno.load(folder, **options)
    assert not again.training
    if "operator" not in options:
        assert describe_model(again) == describe_model(model)
    for name, tensor in model.state_dict().items():
        found = again.state_dict()[name]
        assert found.dtype == tensor.dtype and torch.equal(found, tensor), name
    with torch.no_grad():
        assert torch.equal(again(field), model(field))
    return again


# --- every part -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_a_model_of_every_group_comes_back(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    group, type = EXAMPLES[name].group, EXAMPLES[name].type
    frame = IdentityFrame(group) if isinstance(group, Trivial) else None
    model = wrapped(operator_for(type).to(dtype), group, type, frame)
    assert_saved(model, sample(type, dtype), tmp_path)


SPEED = FieldType.parse("u: speed", 1)
FLOW = FieldType.parse("w: pseudoscalar", 2)
GALILEAN, PLANE = Galilean(1), Euclidean()
FRAMES: dict[str, tuple[Group, FieldType, Callable[[], Frame]]] = {
    "analytic": (GALILEAN, SPEED, lambda: AnalyticFrame(GALILEAN)),
    "analytic-phase": (GALILEAN, SPEED, lambda: AnalyticFrame(GALILEAN, PhaseSlice(GALILEAN, 0))),
    "analytic-waves": (
        GALILEAN,
        SPEED,
        lambda: AnalyticFrame(GALILEAN, StrongestWaveSlice(GALILEAN, waves=3)),
    ),
    "kinematic": (GALILEAN, SPEED, lambda: KinematicFrame(GALILEAN)),
    "identity": (GALILEAN, SPEED, lambda: IdentityFrame(GALILEAN)),
    "cnn": (GALILEAN, SPEED, lambda: CNNFrame(GALILEAN, SPEED, width=4, points=16)),
    "cnn-regression": (
        GALILEAN,
        SPEED,
        lambda: CNNFrame(GALILEAN, SPEED, retracted=False, width=4, points=16),
    ),
    "equivariant": (GALILEAN, SPEED, lambda: EquivariantFrame(GALILEAN, SPEED, width=4)),
    "partial": (
        GALILEAN,
        SPEED,
        lambda: PartialFrame(GALILEAN, EquivariantFrame(GALILEAN, SPEED, width=4), keep=1),
    ),
    "moment": (PLANE, FLOW, lambda: AnalyticFrame(PLANE, MomentSlice(PLANE))),
    "turning": (PLANE, FLOW, lambda: TurningFrame(PLANE, FLOW)),
    "seam": (PLANE, FLOW, lambda: SeamFrame(PLANE, QuarterSlice(PLANE))),
}


def test_every_registered_frame_and_slice_has_an_example() -> None:
    made = [make() for _, _, make in FRAMES.values()]
    specs = [registry.spec_of(frame) for frame in made]
    assert {spec["name"] for spec in specs} == set(registry.registered("frame"))
    slices = {spec["slice"]["name"] for spec in specs if spec.get("slice")}
    assert slices == set(registry.registered("slice"))


@pytest.mark.parametrize("name", list(FRAMES))
def test_a_model_with_every_frame_comes_back(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    group, type, make = FRAMES[name]
    assert_saved(
        wrapped(operator_for(type).to(dtype), group, type, make().to(dtype)),
        sample(type, dtype),
        tmp_path,
    )


SCALES = ((torch.tensor([0.5]), torch.tensor([2.0])), (torch.tensor([0.1]), torch.tensor([3.0])))
OPERATORS: dict[str, Callable[[], nn.Module]] = {
    "fno": lambda: FNO(1, 1, 1, 4, [3], layers=2, positions="grid", head=8),
    "group-fno": lambda: GroupFNO(1, 1, 1, 3, 3, "z2", channels="u: speed", layers=1, norm=False),
    "group-fno-object": lambda: GroupFNO(1, 1, 1, 3, 3, POINT_GROUPS["z2"], layers=1),
    "residual": lambda: Residual(FNO(1, 1, 1, 4, 3, layers=1), 1),
    "recurrent": lambda: Recurrent(FNO(1, 1, 1, 4, 3, layers=1), 1),
    "split-step": lambda: SplitStep(FNO(1, 2, 1, 4, 3, layers=1), [(3, -1e-4)], [1.0], 0.1),
    "standardised": lambda: Standardised(FNO(1, 1, 1, 4, 3, layers=1), *SCALES),
    "nested": lambda: Residual(Standardised(Residual(FNO(1, 1, 1, 4, 3, layers=1), 1), *SCALES), 1),
}


@pytest.mark.parametrize("name", list(OPERATORS))
def test_a_model_with_every_operator_comes_back(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = wrapped(OPERATORS[name]().to(dtype), GALILEAN, SPEED)
    assert_saved(model, sample(SPEED, dtype), tmp_path)


def test_a_model_over_space_and_time_comes_back(tmp_path: Path) -> None:
    type = FieldType.parse("w: scalar", 2, times=(0.0, 1.0))
    operator = SpaceTimeFNO(2, 2, width=3, modes=2, time_modes=2, layers=1)
    assert_saved(wrapped(operator, Translation(2), type), sample(type), tmp_path)


def test_a_model_with_a_box_per_sample_comes_back(tmp_path: Path) -> None:
    """The paper's forecaster on trajectories: it also rolls out as before."""
    task = settings("pace-20", benchmark="kdv").task
    inner = FNO(1, 22, 20, 4, 3, layers=1)
    told = Conditioned(inner, list(task.input.lengths), task.input.step, 0.1)
    frame = task.slice.frame()
    model = PACE(Residual(told, 1), task.group, input=task.input, output=task.output, frame=frame)
    pacefno.save(model.eval(), tmp_path)
    test = waves("kdv", 2, 60, points=32)
    both = [roll_out(m, task, test)[0] for m in (model, pacefno.load(tmp_path))]
    assert torch.equal(*both)


def test_a_model_keeps_what_it_does_about_undetermined_frames(tmp_path: Path) -> None:
    model = PACE(FNO(1, 1, 1, 4, 3), Translation(1), on_undetermined="raise").eval()
    pacefno.save(model, tmp_path)
    with pytest.raises(FieldError, match="not determined"):
        pacefno.load(tmp_path)(torch.zeros(1, 1, 16))


def test_a_folder_may_have_a_dot_in_its_name(tmp_path: Path) -> None:
    assert_saved(wrapped(operator_for(SPEED), GALILEAN, SPEED), sample(SPEED), tmp_path / "v1.2")


def test_channels_without_a_name_come_back(tmp_path: Path) -> None:
    """Translations need no kinds of channels, so a model may not know any."""
    model = PACE(FNO(2, 3, 3, 4, 2, layers=1), Translation(2), lengths=(2.0, 3.0)).eval()
    field = torch.randn(2, 3, 12, 10, generator=torch.Generator().manual_seed(0))
    again = assert_saved(model, field, tmp_path)
    assert again.input.lengths == (2.0, 3.0)


def test_tensors_of_any_type_keep_it(tmp_path: Path) -> None:
    """Complex weights keep their imaginary part, counters stay whole numbers."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.tensor([3, 4]))
            self.complex = nn.Parameter(torch.randn(5, dtype=torch.complex64))
            self.real = nn.Parameter(torch.randn(5))
            self.precise = nn.Parameter(torch.randn(5).double())

        def forward(self, field: Tensor) -> Tensor:
            return field * self.real.sum() + self.complex.imag.sum()

    model = PACE(Mixed(), Translation(1)).eval()
    field = sample(SPEED)
    again = assert_saved(model, field, tmp_path, operator=Mixed())
    made = predict_batches(again, field)
    with torch.no_grad():
        assert torch.equal(made.values, model(field))


# --- modules of somebody else ---------------------------------------------------------------------


class Foreign(nn.Module):
    """A module that is not registered."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layer = nn.Conv1d(1, width, 3, padding=1, padding_mode="circular")
        self.out = nn.Conv1d(width, 1, 1)

    def forward(self, field: Tensor) -> Tensor:
        out: Tensor = self.out(torch.tanh(self.layer(field)))
        return out


@pytest.mark.parametrize("around", [False, True])
def test_a_foreign_module_is_handed_over_when_loading(
    around: bool, dtype: torch.dtype, tmp_path: Path
) -> None:
    def make() -> nn.Module:
        return Residual(Foreign(), channels=1) if around else Foreign()

    model = wrapped(make().to(dtype), GALILEAN, SPEED)
    assert_saved(model, sample(SPEED, dtype), tmp_path, operator=make())
    with pytest.raises(UsageError, match=r"is a Foreign, .* pass it as load\(folder, operator=mod"):
        pacefno.load(tmp_path)
    with pytest.raises(CheckpointError, match="weights do not fit"):
        pacefno.load(tmp_path, operator=Foreign(width=7))


class Halving(nn.Module):
    """A module without weights."""

    def forward(self, field: Tensor) -> Tensor:
        return -0.5 * field


@pytest.mark.parametrize(
    "around",
    [
        lambda inner: Residual(inner, channels=1),
        lambda inner: Symmetrised(inner, "z2", channels="u: speed"),
        lambda inner: Adapted(inner),
    ],
)
@pytest.mark.parametrize("own", [Halving, Foreign])
def test_a_wrapper_of_ours_around_a_foreign_module_is_not_lost_when_loading(
    around: Callable[[nn.Module], nn.Module], own: Callable[[], nn.Module], tmp_path: Path
) -> None:
    """Either the module inside is handed over, or all of the operator."""
    model = wrapped(around(own()), GALILEAN, SPEED)
    assert_saved(model, sample(SPEED, torch.float32), tmp_path / "inner", operator=own())
    assert_saved(model, sample(SPEED, torch.float32), tmp_path / "whole", operator=around(own()))


def test_what_is_no_model_of_ours_cannot_be_saved_and_an_unknown_inference_is_named(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match=r"expected a PACE model, got FNO: wrap a plain operator"):
        pacefno.save(FNO(1, 1, 1, 4, 3, layers=1), tmp_path)  # type: ignore[arg-type]
    model = wrapped(operator_for(SPEED), GALILEAN, SPEED)
    with pytest.raises(UsageError, match="unknown inference 'refine'. Did you mean 'refined'"):
        predict(model, sample(SPEED, torch.float32), "refine")  # type: ignore[arg-type]


class Unregistered(Translation):
    """A group that was never registered."""


class Pinned(Frame):
    """A frame that was never registered."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group

    def forward(self, field: Field, hint: Tensor | None = None) -> Estimate:
        xi = self.group.identity(len(field))
        return Estimate(xi, torch.ones_like(xi))


def test_an_unregistered_group_or_frame_is_refused_when_saving(tmp_path: Path) -> None:
    own_group = PACE(operator_for(SPEED), Unregistered(1))
    own_frame = wrapped(operator_for(SPEED), GALILEAN, SPEED, Pinned(GALILEAN))
    inner = PartialFrame(GALILEAN, Pinned(GALILEAN), keep=1)
    for model in (own_group, own_frame, wrapped(operator_for(SPEED), GALILEAN, SPEED, inner)):
        with pytest.raises(UsageError, match=r"(Unregistered|Pinned) is not registered.*@pacefno"):
            pacefno.save(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


# --- runs -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(smoke_source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for model in ("pace", "fno"):
        train(settings(model, "schedule.epochs=2"), smoke_source, root / model)
    trajectories = settings("pace-1", "schedule.epochs=1", benchmark="kdv")
    train(trajectories, wave_source("kdv", points=64), root / "kdv")
    return root


@pytest.fixture
def no_benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from pacefno.paper import benchmarks

    monkeypatch.setattr(benchmarks, "BENCHMARKS", {})
    yield


@pytest.mark.usefixtures("no_benchmarks")
@pytest.mark.parametrize("name", ["pace", "fno", "kdv"])
def test_a_run_is_loaded_after_every_benchmark_was_removed(name: str, runs: Path) -> None:
    model = pacefno.load(runs / name)
    assert load_run(runs / name).config.task.name.startswith(("burgers", "kdv"))
    if name == "kdv":
        test = waves_without_registry()
        made = model.rollout(test.values.float(), 3, box=test.box)
    else:
        made = model(sample(SPEED))
    assert bool(made.isfinite().all())


def waves_without_registry() -> Any:
    from pacefno.data.samples import Trajectories
    from pacefno.fields import Box

    box = Box(torch.full((2, 1), 128.0).double(), torch.full((2,), 0.4).double())
    return Trajectories(sample(SPEED, torch.float64), box)


USE_A_RUN = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "pacefno.paper" or name.startswith("pacefno.paper."):
            raise ImportError("the paper's room is locked")

sys.meta_path.insert(0, Refuse())
import torch, pacefno
model = pacefno.load(sys.argv[1])
field = torch.sin(2 * torch.pi * torch.arange(64) / 64).reshape(1, 1, 64)
print(float(model(field).abs().max()))
again = pacefno.load(sys.argv[1], frame={"name": "analytic"})
pacefno.save(again, sys.argv[2])
from pacefno.train.evaluate import load_run
print(load_run(__import__("pathlib").Path(sys.argv[1])).config.task.name)
assert "pacefno.paper" not in sys.modules
"""


def test_a_run_is_loaded_where_the_paper_cannot_be_imported(runs: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", USE_A_RUN, str(runs / "pace"), str(tmp_path / "again")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    value, name = found.stdout.split()
    field = torch.sin(2 * torch.pi * torch.arange(64) / 64).reshape(1, 1, 64)
    with torch.no_grad():
        here = float(pacefno.load(runs / "pace")(field).abs().max())
    assert float(value) == pytest.approx(here, rel=1e-5) and name == "burgers1d_smooth"
    assert (tmp_path / "again" / FINAL).exists()


def test_another_frame_stands_on_the_slice_of_the_task(runs: Path, smoke_source: Source) -> None:
    """A plain operator is wrapped by it; a run with a frame keeps the slice it was trained on."""
    field = smoke_source.load("test_ood").input  # type: ignore[union-attr]
    task = settings().task
    for name in ("fno", "pace"):
        model = pacefno.load(runs / name, frame={"name": "analytic"})
        assert registry.spec_of(model.group) == registry.spec_of(task.group)
        assert registry.spec_of(model.frame) == registry.spec_of(task.slice.frame())
        found = model.frame_of(field).xi
        torch.testing.assert_close(found, task.slice.coordinates(Field(field, task.input)))
        as_row = load_run(runs / name, {"name": "analytic"}).model
        with torch.no_grad():
            assert torch.equal(as_row(field), model(field))
    plain = pacefno.load(runs / "fno")
    assert isinstance(plain.group, Trivial)
    with torch.no_grad():
        assert not torch.equal(
            plain(field), pacefno.load(runs / "fno", frame={"name": "analytic"})(field)
        )


def test_another_frame_of_a_saved_model_stands_on_its_slice(tmp_path: Path) -> None:
    slice = PhaseSlice(GALILEAN)
    frame = CNNFrame(GALILEAN, SPEED, slice=slice, width=4, points=16)
    pacefno.save(wrapped(operator_for(SPEED), GALILEAN, SPEED, frame), tmp_path)
    again = pacefno.load(tmp_path, frame={"name": "analytic"})
    assert registry.spec_of(again.frame)["slice"] == registry.spec_of(slice)
    given = {"name": "analytic", "slice": {"part": "slice", "name": "strongest-wave", "waves": 2}}
    assert pacefno.load(tmp_path, frame=given).frame.slice.waves == 2  # type: ignore[union-attr]


def test_a_frame_whose_weights_were_never_trained_is_refused(runs: Path) -> None:
    with pytest.raises(UsageError, match="'cnn' has weights that were not trained"):
        pacefno.load(runs / "fno", frame={"name": "cnn"})
    with pytest.raises(UsageError, match="Did you mean 'analytic'"):
        pacefno.load(runs / "fno", frame={"name": "analytical"})


def test_a_run_and_its_file_are_the_same_model(runs: Path, smoke_source: Source) -> None:
    field = smoke_source.load("test_id").input  # type: ignore[union-attr]
    first, second = pacefno.load(str(runs / "pace")), pacefno.load(runs / "pace" / FINAL)
    with torch.no_grad():
        assert torch.equal(first(field), second(field))


def test_an_unfinished_run_loads_its_best_weights_so_far(
    smoke_source: Source, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with pytest.raises(StopRequest):
        train(settings("fno"), smoke_source, run, callbacks=Callbacks(stop=lambda: True))
    assert not load_run(run).finished
    best = load_checkpoint(run / "epoch-000001.safetensors").tensors["best"]
    found = pacefno.load(run).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in best.items())


# --- what cannot be loaded ------------------------------------------------------------------------


def test_a_run_of_the_old_layout_gives_one_clear_error(tmp_path: Path) -> None:
    old = tmp_path / "run" / "final"
    old.mkdir(parents=True)
    (old / "manifest.json").write_text("{}")
    (old / "model.safetensors").write_bytes(b"")
    for name in ("run", "run/final", "run/final/model.safetensors"):
        with pytest.raises(CheckpointError, match="written by an older pacefno") as caught:
            pacefno.load(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_loading_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no such folder"):
        pacefno.load(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="holds no model"):
        pacefno.load(tmp_path)
    save_checkpoint(tmp_path / "other" / FINAL, {"x": {"a": torch.zeros(1)}}, {})
    with pytest.raises(CheckpointError, match="holds no model"):
        pacefno.load(tmp_path / "other")
    pacefno.save(wrapped(operator_for(SPEED), GALILEAN, SPEED), tmp_path / "saved")
    with pytest.raises(CheckpointError, match="not a run"):
        load_run(tmp_path / "saved")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"operator": {"part": "operator", "name": "gone", "width": 3}}, "unknown operator 'gone'"),
        ({"group": {"part": "group", "name": "gone"}}, "unknown group 'gone'"),
        ({"frame": {"part": "frame", "name": "gone"}}, "unknown frame 'gone'"),
    ],
)
def test_a_part_that_is_not_registered_here_is_named(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Parts of a user's own are registered by their module, which has to be imported first."""
    pacefno.save(wrapped(operator_for(SPEED), GALILEAN, SPEED), tmp_path)
    stored = load_checkpoint(tmp_path / FINAL)
    document = stored.documents["model"] | change
    save_checkpoint(tmp_path / FINAL, stored.tensors, {"model": document})
    with pytest.raises(UsageError, match=f"{message}.*import the module that registers it"):
        pacefno.load(tmp_path)


# --- predictions ----------------------------------------------------------------------------------


def test_predictions_of_many_samples_are_those_of_few(dtype: torch.dtype, tolerance: float) -> None:
    """To rounding: another number of samples at once may add up in another order."""
    model = wrapped(operator_for(SPEED).to(dtype), GALILEAN, SPEED)
    field = sample(SPEED, dtype, batch=45)
    made = predict_batches(model, field)
    for i in (0, 19, 20, 44):
        alone = predict(model, field[i : i + 1])
        torch.testing.assert_close(made.values[i : i + 1], alone.values, rtol=0, atol=tolerance)
        torch.testing.assert_close(made.frame.xi[i : i + 1], alone.frame.xi, rtol=0, atol=tolerance)
    assert made.frame.quality.shape == (45, 2)


def test_fields_are_predicted_in_the_precision_of_the_weights() -> None:
    model = wrapped(operator_for(SPEED).double(), GALILEAN, SPEED)
    made = predict_batches(model, sample(SPEED, torch.float32))
    assert made.values.dtype == torch.float64


def test_the_oracle_uses_the_true_frame_and_the_identity_where_nothing_is_known() -> None:
    model = wrapped(operator_for(SPEED), GALILEAN, SPEED)
    field, true = sample(SPEED), torch.tensor([[0.1, 0.2], [0.3, -0.1]])
    made = predict(model, field, "oracle", true=true)
    assert torch.equal(made.frame.xi, true.double())
    with torch.no_grad():
        assert torch.equal(made.values, model.at(field, true.double()))
        assert torch.equal(predict(model, field, "oracle").values, model.at(field, 0 * true))


def test_fields_of_another_kind_are_refused_before_they_are_predicted() -> None:
    model = wrapped(operator_for(SPEED), GALILEAN, SPEED)
    field = sample(SPEED)
    x = torch.arange(32) / 32
    check_matches(model, field, {"x": x.double()}, 1.0, "file")
    bad: list[tuple[Tensor, dict[str, Tensor], float | None, str]] = [
        (field[0], {}, None, "add a batch axis"),
        (field.repeat(1, 2, 1), {}, None, "channel"),
        (field * torch.nan, {}, None, "values are NaN or infinite"),
        (field, {"x": x[:16].double()}, None, "expected 32 points"),
        (field, {"x": 2 * x.double()}, None, "another length"),
        (field, {}, 2.0, "made for a horizon of 2, the model predicts 1 ahead"),
    ]
    for values, axes, horizon, message in bad:
        with pytest.raises(FieldError, match=message):
            check_matches(model, values, axes, horizon, "file")


# --- no pickles -----------------------------------------------------------------------------------


class Hostile:
    """Unpickling it would run a command."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.proof),)


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "model.pkl", "model.ckpt", FINAL])
def test_a_hostile_pickle_is_never_opened(name: str, tmp_path: Path) -> None:
    """Not by its name, and not under the name of a checkpoint either."""
    path, proof = tmp_path / name, tmp_path / "proof"
    torch.save({"a": Hostile(proof)}, path)
    with pytest.raises(CheckpointError, match="pickle|no checkpoint"):
        pacefno.load(path)
    if name == FINAL:
        with pytest.raises(CheckpointError, match="no checkpoint"):
            pacefno.load(tmp_path)
    assert not proof.exists()
    with pytest.raises(FileExistsError):  # the trap does work
        proof.mkdir()
        torch.load(io.BytesIO(path.read_bytes()), weights_only=False)


def test_a_hostile_array_is_never_opened(tmp_path: Path) -> None:
    from pacefno.data.arrays_file import read_fields
    from pacefno.files import PathError

    proof = tmp_path / "proof"
    trap = np.array([Hostile(proof)], dtype=object)
    np.save(tmp_path / "input.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "input.npz", input=trap)
    for name in ("input.npy", "input.npz"):
        with pytest.raises(PathError):
            read_fields(tmp_path / name)
    assert not proof.exists()


MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal"}
MODULES |= {"shelve"}
CALLS = {"eval", "exec", "compile", "__import__"}
CALLS |= {f"builtins.{name}" for name in ("eval", "exec", "compile")}
CALLS |= {"torch.load", "torch.save", "torch.jit.load", "torch.hub.load"}
CALLS |= {"torch.package.PackageImporter", "torch.distributed.checkpoint.load"}
CALLS |= {"pandas.read_pickle", "yaml.load", "yaml.unsafe_load"}
FABRIC = {"load", "load_raw", "save"}  # Fabric's checkpoints are torch.load and torch.save
# The exceptions: neuraloperator's pairs, of which torch builds plain tensors and nothing else, and
# the example inputs of an exported program, read so to see that there is nothing else in them.
LOADS = ["calls torch.load with weights_only", "uses torch.load"]
KNOWN = {"exporting.py": LOADS, "formats.py": LOADS}


def names_of(tree: ast.AST) -> dict[str, str]:
    """What each imported name stands for: ``np`` is ``numpy``, ``read`` may be ``torch.load``."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, names)}.{node.attr}"
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and dotted(node.func, {}).rpartition(".")[2] == "import_module":
        return [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
    return []


def dangers(source: str) -> list[str]:
    """Every import and call in a source text that can run code from a file."""
    tree = ast.parse(source)
    names = names_of(tree)
    found = []
    for node in ast.walk(tree):
        for module in imported(node):
            if MODULES & set(module.split(".")) or module in CALLS:
                found.append(f"imports {module}")
        if isinstance(node, ast.Attribute | ast.Name) and dotted(node, names) in CALLS:
            found.append(f"uses {dotted(node, names)}")
        if isinstance(node, ast.Call):
            found += dangerous_call(node, dotted(node.func, names))
    return found


def dangerous_call(call: ast.Call, name: str) -> list[str]:
    *owner, method = name.split(".")
    if method in FABRIC and owner and owner[-1].lower().strip("_") == "fabric":
        return [f"calls {name}"]
    options = [(k.arg, ast.unparse(k.value)) for k in call.keywords]
    if name == "numpy.load":
        safe = ("allow_pickle", "False") in options
        return [] if safe else ["calls numpy.load without allow_pickle=False"]
    asks = [
        a for a, value in options if a == "weights_only" or (a, value) == ("allow_pickle", "True")
    ]
    return [f"calls {name} with {option}" for option in asks]


def test_the_package_has_no_way_to_run_code_from_a_file() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert SOURCE / "checkpoint.py" in files
    found = {path.name: sorted(dangers(path.read_text())) for path in files}
    assert {name: what for name, what in found.items() if what} == KNOWN
    tensors_only = 'torch.load(path, map_location="cpu", mmap=True, weights_only=True)'
    assert tensors_only in (SOURCE / "data" / "formats.py").read_text()
    tensors_only = "torch.load(io.BytesIO(part), weights_only=True)"
    assert tensors_only in (SOURCE / "exporting.py").read_text()


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import dill, json",
        "def f():\n    import joblib",
        "from os import path\nimport shelve",
        "import marshal",
        "from torch.utils import dill",
        "import importlib\nimportlib.import_module('pickle')",
        "import torch\ntorch.load('x', weights_only=True)",
        "import torch as t\nt.save({}, 'x')",
        "from torch import load",
        "from torch import load as read\nread('x')",
        "import torch\nreader = torch.load",
        "import torch.jit\ntorch.jit.load('x')",
        "import numpy as np\nnp.load('x')",
        "import numpy\nnumpy.load('x', allow_pickle=True)",
        "from numpy import load\nload('x')",
        "eval('1')",
        "exec('1')",
        "run = eval",
        "import builtins\nbuiltins.exec('1')",
        "__import__('os')",
        "def f(fabric):\n    fabric.load('x')",
        "class A:\n    def f(self):\n        self._fabric.save('x', {})",
    ],
)
def test_a_dangerous_line_is_found(source: str) -> None:
    assert dangers(source)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nmodel = torch.nn.Linear(1, 1)\nmodel.eval()",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "from safetensors.torch import load, save\nload(b'')",
        "import json\njson.load(open('x'))",
        "import re\nre.compile('x')",
        "model.load_state_dict({})",
    ],
)
def test_a_harmless_line_is_left_alone(source: str) -> None:
    assert not dangers(source)


def test_the_description_of_a_model_is_plain_json(tmp_path: Path) -> None:
    pacefno.save(wrapped(OPERATORS["nested"](), GALILEAN, SPEED), tmp_path)
    document = load_checkpoint(tmp_path / FINAL).documents["model"]
    assert json.loads(json.dumps(document)) == document
    assert set(document) == {"operator", "group", "frame", "input", "output", "on_undetermined"}


def test_a_source_need_not_be_a_dataset(tmp_path: Path) -> None:
    """What trains a model is anything with a method ``load``."""
    pairs = {s: random_pairs(seed) for seed, s in enumerate(("train", "validation"))}
    train(settings("fno", "schedule.epochs=1"), InMemory(pairs), tmp_path / "run")
    assert pacefno.load(tmp_path / "run").input == settings().task.input


def random_pairs(seed: int) -> Any:
    from pacefno.data.samples import Pairs

    generator = torch.Generator().manual_seed(seed)
    return Pairs(*torch.randn(2, 8, 1, 32, generator=generator))
