"""Programs say what their models say, in a runtime of their own, and refuse what they cannot do."""

from __future__ import annotations

import copy
import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import pacefno
from pacefno import Euclidean, FieldType, Galilean, Mover, SpecialGalilean, Translation
from pacefno.errors import UsageError
from pacefno.exporting import DOCUMENT, export, load_pt2, open_exported
from pacefno.files import PathError
from pacefno.frames import (
    CNNFrame,
    EquivariantFrame,
    PhaseSlice,
    QuarterSlice,
    SeamFrame,
    TurningFrame,
)
from pacefno.grid import (
    FieldError,
    band_limit,
    curl_and_divergence,
    from_curl_and_divergence,
    points,
    resample,
    transforms_as_products,
)
from pacefno.groups import Group, shift
from pacefno.pace import PACE, UndeterminedFrameWarning

FLOW = FieldType.parse("u v: velocity, p: scalar", 2, lengths=2.0)
VORTICITY = FieldType.parse("w: pseudoscalar", 2)
NS = {"channels": "u v: velocity, p: scalar", "horizon": 0.5, "lengths": 2.0}
GRIDS = [(16, 16), (15, 15), (12, 16), (17, 14)]


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def vortices(n: int = 24) -> Tensor:
    """Two compact pairs of vortices, (2, 1, n, n)."""
    x, y = points((n, n)).float() - 0.5

    def blob(a: float, b: float, size: float) -> Tensor:
        return torch.exp(-((x - a).square() + (y - b).square()) / size**2)

    first = blob(0.05, 0.02, 0.08) - 0.6 * blob(-0.1, 0.05, 0.07)
    return torch.stack([first, blob(0.1, -0.02, 0.08) + 0.6 * blob(-0.1, -0.09, 0.07)])[:, None]


def fno(dim: int, channels: int) -> nn.Module:
    torch.manual_seed(0)
    return pacefno.FNO(dim, channels, channels, 4, 4, layers=2, positions="grid", head=8)


def waves1d(**options: object) -> PACE:
    """A small PACE on one dimension."""
    group = Galilean(1)
    what = {"channels": "u: velocity", "horizon": 0.5, "lengths": 1.0}
    what |= {"frame": PhaseSlice(group).frame()}
    return PACE(fno(1, 1), group, **(what | options)).eval()  # type: ignore[arg-type]


# --- transforms as matrix products ----------------------------------------------------------------


@pytest.mark.parametrize("grid", GRIDS)
def test_products_give_what_fast_transforms_give(
    grid: tuple[int, int], dtype: torch.dtype, tolerance: float
) -> None:
    field = random(2, 2, *grid, dtype=dtype)
    distance = random(2, 2, seed=1, dtype=torch.float64)
    cases: list[Callable[[], Tensor]] = [
        lambda: shift(field, distance),
        lambda: shift(field, distance[:, None].expand(2, 2, 2)),
        lambda: resample(field, (10, 13)),
        lambda: resample(field, (20, 21)),
        lambda: resample(field, grid),
        lambda: band_limit(field, 2, 4),
        lambda: band_limit(field, 2),
        lambda: curl_and_divergence(field),
        lambda: from_curl_and_divergence(field),
    ]
    for case in cases:
        expected = case()
        with transforms_as_products():
            found = case()
        assert float((found - expected).abs().max() / expected.abs().max()) < tolerance


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(
    "group", [Euclidean(), SpecialGalilean(), Galilean(2)], ids=lambda group: group.name
)
def test_groups_act_alike_by_products(
    group: Group, grid: tuple[int, int], dtype: torch.dtype, tolerance: float
) -> None:
    field = pacefno.Field(random(6, 3, *grid, dtype=dtype), FLOW.at([0.7]))
    most = [math.pi if name == "angle" else 0.8 for name in group.coordinates]
    draw = torch.Generator().manual_seed(3)
    xi = group.sample([0.0] * group.size, most, 6, draw)
    for move in (group.act, group.inverse):
        expected = move(field, xi).values
        with transforms_as_products():
            found = move(field, xi).values
        assert float((found - expected).abs().max() / expected.abs().max()) < tolerance


@pytest.mark.parametrize("products", [False, True])
def test_derivatives_and_vmap_pass_through_shifts(products: bool) -> None:
    field, by = random(3, 2, 12, 15, dtype=torch.float64), random(3, 2, dtype=torch.float64)
    tangent = random(3, 2, seed=4, dtype=torch.float64)

    def check() -> None:
        value, slope = torch.func.jvp(lambda d: shift(field, d), (by,), (tangent,))
        step = 1e-6
        difference = shift(field, by + step * tangent) - shift(field, by - step * tangent)
        assert float((slope - difference / (2 * step)).abs().max()) < 1e-6 * float(
            slope.abs().max()
        )
        one = torch.func.vmap(lambda a, d: shift(a[None], d[None])[0])(field, by)
        torch.testing.assert_close(one, value, atol=1e-12, rtol=0)

    if products:
        with transforms_as_products():
            check()
    else:
        check()


# --- agreement ------------------------------------------------------------------------------------


def operators_on(type: FieldType) -> dict[str, nn.Module]:
    text = type.text
    torch.manual_seed(0)
    return {
        "fno": fno(2, type.size),
        "group-fno": pacefno.GroupFNO(
            2, type.size, type.size, 2, 4, "p4m", channels=text, layers=2
        ),
        "symmetrised": pacefno.Symmetrised(fno(2, type.size), "p4", channels=text),
    }


def framed(name: str) -> tuple[nn.Module, Tensor]:
    """A PACE and fields for it."""
    flow, spin = random(2, 3, 24, 20), vortices()
    euclidean, galilean = Euclidean(), Galilean(2)
    made = {
        "translation": lambda: (PACE(fno(2, 3), Translation(2)), flow),
        "galilean": lambda: (PACE(fno(2, 3), galilean, **NS), flow),
        "euclidean": lambda: (PACE(fno(2, 1), euclidean, channels="w: pseudoscalar"), spin),
        "euclidean vectors": lambda: (
            PACE(fno(2, 3), euclidean, channels=FLOW.text, on_undetermined="ignore"),
            random(2, 3, 24, 24),
        ),
        "special galilean": lambda: (
            PACE(fno(2, 3), SpecialGalilean(), **NS, on_undetermined="ignore"),
            random(2, 3, 24, 24),
        ),
        "learned": lambda: (
            PACE(fno(2, 3), galilean, **NS, frame=EquivariantFrame(galilean, FLOW, points=12)),
            flow,
        ),
        "cnn": lambda: (
            PACE(fno(2, 3), galilean, **NS, frame=CNNFrame(galilean, FLOW, points=16)),
            flow,
        ),
        "turning": lambda: (
            PACE(
                fno(2, 1),
                euclidean,
                channels="w: pseudoscalar",
                frame=TurningFrame(euclidean, VORTICITY, points=16),
            ),
            spin,
        ),
        "snapshots": lambda: (
            PACE(
                fno(2, 6),
                galilean,
                input=FLOW.at([0.0, 1.0]),
                output=FLOW.at([2.0, 3.0]),
            ),
            random(2, 6, 20, 24),
        ),
    }[name]()
    return made[0].eval(), made[1]


FRAMED = [
    "translation", "galilean", "euclidean", "euclidean vectors", "special galilean", "learned",
    "cnn", "turning", "snapshots",
]  # fmt: skip


def check_program(model: nn.Module, example: Tensor, path: Path, details: bool = True) -> None:
    made = export(model, path, example, details=details)
    assert made.error <= 1e-4
    program = open_exported(path)
    assert program.document == made.document
    for batch in (1, 3):
        field = example[torch.arange(batch) % 2] + 0.1 * random(batch, *example.shape[1:], seed=7)
        with torch.no_grad():
            expected = model(field)
        assert float((program(field) - expected).norm() / expected.norm()) < 1e-4


# One export takes from seconds to minutes: `make test` has those of one dimension below, and
# `make exhaustive` all of these.


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("format", ["pt2", "onnx"])
@pytest.mark.parametrize("name", ["fno", "group-fno", "symmetrised"])
def test_operators_leave_as_programs(name: str, format: str, tmp_path: Path) -> None:
    model = operators_on(FLOW)[name].eval()
    check_program(model, random(2, 3, 16, 16), tmp_path / f"model.{format}")


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("format", ["pt2", "onnx"])
@pytest.mark.parametrize("name", FRAMED)
def test_models_leave_as_programs(name: str, format: str, tmp_path: Path) -> None:
    model, example = framed(name)
    with torch.no_grad():
        check_program(model, example, tmp_path / f"model.{format}")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of `waves1d`, for any grid."""
    path = tmp_path_factory.mktemp("exported") / "model.pt2"
    check_program(waves1d(), random(2, 1, 32), path)
    return path


@pytest.mark.parametrize("format", ["pt2", "onnx"])
def test_a_program_says_what_it_expects_and_refuses_the_rest(
    format: str, exported: Path, tmp_path: Path
) -> None:
    path = exported if format == "pt2" else tmp_path / "model.onnx"
    if format == "onnx":
        check_program(waves1d(), random(2, 1, 32), path)
    content, program = path.read_bytes(), open_exported(path)
    assert str(Path(pacefno.__file__).parent).encode() not in content
    document = program.document
    assert list(document["outputs"]) == ["prediction", "confidence", "canonical", "coordinates"]
    assert document["input"]["channels"] == "u: velocity"
    assert document["coordinates"] == ["x", "velocity"]
    assert document["output"]["times"] == [0.5]
    field = random(2, 1, 32)
    broken = field.clone()
    broken[1, 0, 5] = math.nan
    grid = random(2, 1, 3 if format == "pt2" else 33)
    for bad in (broken, grid, random(2, 2, 32), field.double(), field[0]):
        with pytest.raises(FieldError, match="expected|NaN"):
            program(bad)
    with pytest.raises(UsageError, match="inputs"):
        program(field, coordinates=field)
    with pytest.warns(UndeterminedFrameWarning, match="1 of 2"):
        program(torch.cat([field[:1], torch.ones(1, 1, 32)]))
    # The graph itself holds no check: what is not finite comes out so, in its sample alone.
    found = program._run({"field": broken})
    assert bool(found[0][1].isnan().all()) and bool(found[0][0].isfinite().all())
    if format == "onnx":
        import onnx

        assert not {"DFT", "STFT"} & {n.op_type for n in onnx.load(path).graph.node}
    else:
        assert json.loads(load_pt2(path, content)[1] or "") == document


@pytest.mark.parametrize("format", ["pt2", pytest.param("onnx", marks=pytest.mark.slow)])
def test_movers_act_at_the_time_of_their_type(format: str, tmp_path: Path) -> None:
    group, path = Galilean(1), tmp_path / f"mover.{format}"
    type = FieldType.parse("u: velocity", 1, times=[0.5], lengths=2.0)
    export(Mover(group, type).eval(), path, random(2, 1, 32))
    field, xi = random(3, 1, 32, seed=1), random(3, 2, dtype=torch.float64)
    found = open_exported(path)(field, coordinates=xi)
    terminal = group.transport(xi, 0.5, 2.0)
    still = FieldType.parse("u: velocity", 1, lengths=2.0)
    expected = group.act(pacefno.Field(field, still), terminal).values
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_a_program_of_any_grid_runs_on_odd_small_and_other_ones(exported: Path) -> None:
    model, program = waves1d(), open_exported(exported)
    for n in (7, 8, 15, 16, 33, 64):
        field = random(2, 1, n, seed=n)
        with torch.no_grad():
            torch.testing.assert_close(program(field), model(field), atol=1e-5, rtol=0)


@pytest.mark.exhaustive
def test_a_box_per_sample_is_an_input(tmp_path: Path) -> None:
    type = FieldType.parse("u: speed", 1, lengths=8.0)
    model = PACE(fno(1, 1), pacefno.GalileanScaling(), input=type, output=type.at([0.5]))
    model.operator = pacefno.Adapted(lambda field, box: 0.5 * field)
    box = pacefno.Box(torch.tensor([[8.0], [9.0]]), torch.tensor([1.0, 1.1]))
    field = random(2, 1, 32)
    export(model.eval(), tmp_path / "model.pt2", field, box=box)
    found = open_exported(tmp_path / "model.pt2")(field, lengths=box.lengths, step=box.step)
    torch.testing.assert_close(found, model(field, box=box), atol=1e-5, rtol=0)


def test_programs_can_be_audited(exported: Path) -> None:
    from pacefno.auditing.foreign import open_model

    model, field = waves1d(), random(3, 1, 32)
    opened = open_model(str(exported))
    torch.testing.assert_close(opened.model(field), model(field), atol=1e-5, rtol=0)
    assert opened.batch is None


# --- refusals -------------------------------------------------------------------------------------


class Spectral(nn.Module):
    """An operator that needs a fast transform."""

    def forward(self, field: Tensor) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(field) * 0.5, n=32)


class Deciding(nn.Module):
    """An operator that looks at values."""

    def forward(self, field: Tensor) -> Tensor:
        return field if float(field.sum()) > 0 else -field


def test_what_cannot_be_exported_is_refused_in_a_sentence(tmp_path: Path) -> None:
    model, field = waves1d(), random(2, 1, 32)
    broken = field.clone()
    broken[0, 0, 0] = math.inf
    cases: list[tuple[nn.Module, str, Tensor, str]] = [
        (model, "model.txt", field, "ends in .pt2 or .onnx"),
        (waves1d().train(), "model.pt2", field, "model.eval"),
        (model.double(), "model.onnx", field.double(), "model.float"),
        (waves1d(), "model.pt2", field.half(), "model.float"),
        (waves1d(), "model.pt2", broken, "infinite"),
        (waves1d(), "model.pt2", field.double(), "float32"),
        (waves1d(), "model.pt2", random(2, 1, 4), r"need at least \(7,\) points, got \(4,\)"),
        (Deciding().eval(), "model.pt2", field, "cannot be exported"),
    ]
    for bad, name, example, message in cases:
        with pytest.raises(UsageError, match=message):
            export(bad, tmp_path / name, example)
        assert not (tmp_path / name).exists()


@pytest.mark.slow
def test_parts_that_onnx_does_not_know_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be exported"):
        export(Spectral().eval(), tmp_path / "model.onnx", random(2, 1, 32))
    group = Euclidean()
    searching = PACE(
        fno(2, 1), group, channels="w: pseudoscalar", frame=SeamFrame(group, QuarterSlice(group))
    )
    with pytest.raises(UsageError, match="cannot be exported"):
        export(searching.eval(), tmp_path / "model.pt2", vortices(16))


def test_a_missing_package_and_a_place_to_write_are_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacefno.exporting, "_trace", None)
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "model.pt2", tmp_path / "model.pt2"):
        (tmp_path / "model.pt2").mkdir(exist_ok=True)
        with pytest.raises(PathError, match="cannot be written"):
            export(waves1d(), place, random(2, 1, 32))
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UsageError, match=r"onnxscript: pip install 'pacefno\[export\]'"):
        export(waves1d(), tmp_path / "model.onnx", random(2, 1, 32))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "model.pt2"]


def test_a_program_that_differs_from_its_model_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacefno.exporting, "AGREEMENT", {"float32": -1.0})
    with pytest.raises(UsageError, match="not written"):
        export(fno(1, 1).eval(), tmp_path / "model.pt2", random(2, 1, 32))
    assert not list(tmp_path.iterdir())


def test_files_that_are_no_programs_of_ours_are_refused(tmp_path: Path) -> None:
    for name in ("model.pt2", "model.onnx"):
        with pytest.raises(UsageError, match="no such file"):
            open_exported(tmp_path / name)
        (tmp_path / name).write_bytes(b"something else")
        with pytest.raises(PathError, match="is no"):
            open_exported(tmp_path / name)
    path = tmp_path / "foreign.pt2"
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)), path)
    with pytest.raises(PathError, match="not written by pacefno.export"):
        open_exported(path)
    assert DOCUMENT not in path.read_bytes().decode(errors="ignore")


# --- what else models pass through ----------------------------------------------------------------


ALONE = [  # what the whole group does at once, one part at a time
    pytest.param(name, marks=pytest.mark.exhaustive)
    for name in ("translation", "galilean", "euclidean")
]


@pytest.mark.parametrize("name", ["special galilean", *ALONE])
def test_a_compiled_model_is_one_graph(name: str) -> None:
    model, field = framed(name)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        expected, found = model(field), compiled(field)
    assert float((found - expected).norm() / expected.norm()) < 1e-5


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
@pytest.mark.parametrize("name", ["galilean", "euclidean"])
def test_inductor_compiles_a_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To machine code, by the default backend of torch.compile; minutes each."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model, field = framed(name)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        expected, found = model(field), compiled(field)
    assert float((found - expected).norm() / expected.norm()) < 1e-5


def test_copies_predict_alike() -> None:
    model, field = framed("learned")
    twin = copy.deepcopy(model)
    with torch.no_grad():
        torch.testing.assert_close(twin(field), model(field), atol=0, rtol=0)
        next(twin.parameters()).add_(1.0)
        assert not torch.equal(twin(field), model(field))


def test_autocast_rounds_the_operator_and_not_the_frame() -> None:
    model, field = framed("galilean")
    assert isinstance(model, PACE)
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
        exact = model.predict(field)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = model.predict(field)
    torch.testing.assert_close(rounded.frame.xi, exact.frame.xi, atol=1e-12, rtol=0)
    assert rounded.values.dtype == torch.float32
    assert float((rounded.values - exact.values).norm() / exact.values.norm()) < 5e-2


def test_parallel_wrappers_train_the_same_model(tmp_path: Path) -> None:
    model, field = waves1d().train(), random(4, 1, 32)
    model(field).square().mean().backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        for wrap in (nn.DataParallel, nn.parallel.DistributedDataParallel):
            model.zero_grad()
            wrap(model)(field).square().mean().backward()
            found = [p.grad for p in model.parameters() if p.grad is not None]
            torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-5)
    finally:
        torch.distributed.destroy_process_group()


def train_a_share(rank: int, folder: Path) -> None:
    """One of two processes: its half of the batch; the first keeps the gradients."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    try:
        model = nn.parallel.DistributedDataParallel(waves1d().train())
        field = random(4, 1, 32)[2 * rank : 2 * rank + 2]
        model(field).square().mean().backward()
        if rank == 0:
            found = [p.grad for p in model.parameters() if p.grad is not None]
            torch.save(found, folder / "gradients.pt")
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.exhaustive  # a training in two processes is among the others
def test_two_processes_have_the_gradients_of_one(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(train_a_share, (tmp_path,), nprocs=2)
    found = torch.load(tmp_path / "gradients.pt", weights_only=True)
    model = waves1d().train()
    model(random(4, 1, 32)).square().mean().backward()
    expected = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(found) == len(expected) > 4
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-5)


# --- the command ----------------------------------------------------------------------------------


def test_the_command_writes_programs_and_says_how_close_they_are(tmp_path: Path) -> None:
    import numpy as np
    from typer.testing import CliRunner

    from pacefno.cli import app

    def call(*words: object, code: int = 0) -> str:
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    torch.manual_seed(0)
    model, run, field = waves1d(), tmp_path / "run", random(2, 1, 32)
    pacefno.save(model, run)
    np.savez(tmp_path / "fields.npz", input=field.numpy())
    assert "written" in call("export", run, "--data", tmp_path / "fields.npz")
    with torch.no_grad():
        found = open_exported(run / "model.pt2")(field)
        torch.testing.assert_close(found, model(field), atol=1e-5, rtol=0)
    call("export", run, "--mover", "--data", tmp_path / "fields.npz")
    assert {p.name for p in run.glob("mover*")} == {"mover-input.pt2", "mover-output.pt2"}
    assert "--data FILE" in call("export", run, code=2)
    assert "no such folder" in (said := call("export", tmp_path / "gone", code=1))
    assert "--data" not in said
    words = ("export", run, "--data", tmp_path / "fields.npz", "--output")
    assert "cannot be written" in call(*words, tmp_path / "fields.npz" / "model.pt2", code=1)
    assert "pt2 or onnx" in call("export", run, "--format", "tflite", code=2)
