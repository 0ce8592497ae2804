"""``pacefno audit`` as somebody with a model and a file meets it; no trained model is needed."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from audited_models import HORIZON, Smoothing, flow_task, samples, smooth, zero_padded
from torch import Tensor, nn
from typer.testing import CliRunner

import pacefno
from pacefno.auditing import foreign
from pacefno.cli import app
from pacefno.errors import UsageError
from pacefno.operators import Residual

RUNNER = CliRunner()
TASK = f"""
name = "flow"
group = {{name = "galilean", dim = 2}}
[input]
channels = "u v: velocity"
dim = 2
lengths = 2.0
[output]
times = [{HORIZON}]
[data]
file = "flow.npz"
inputs = ["before"]
targets = ["after"]
axes = "sample channel x y"
split = [0.4, 0.2, 0.4]
"""
MODULE = """
import sys, torch
sys.path.insert(0, {tests!r})
from audited_models import Smoothing, smooth, zero_padded
net = Smoothing()
class Sized(torch.nn.Module):
    def __init__(self, width, depth=2):
        super().__init__()
    def forward(self, x):
        return x
class Holder:
    inner = net
def made():
    return net
number = 3
"""


def call(*words: object, code: int = 0) -> str:
    """What a command printed, in one line; the exit code is as expected and no traceback shows."""
    result = RUNNER.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of flows, its task, and a module with models."""
    field, target = samples(flow_task(), count=10)
    np.savez(tmp_path / "flow.npz", before=field.numpy(), after=target.numpy())
    (tmp_path / "task.toml").write_text(TASK)
    (tmp_path / "mymodels.py").write_text(MODULE.format(tests=str(Path(__file__).parent)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


# --- models by name -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["net", "Smoothing", "smooth", "made", "Holder.inner"])
def test_a_module_a_class_and_a_function_of_ones_own_are_audited(home: Path, name: str) -> None:
    out = call("audit", f"mymodels:{name}", "task.toml", "--samples", 2)
    assert "It follows shifts by whole cells and shifts by fractions of a cell exactly." in out
    assert "It fails for boosts" in out and "PACE restores" in out


def test_a_page_and_a_file_of_numbers_are_written_and_agree(home: Path) -> None:
    call("audit", "mymodels:zero_padded", "task.toml", "--html", "a.html", "--json", "a.json")
    page, document = (home / "a.html").read_text(), json.loads((home / "a.json").read_text())
    assert document["samples"] == 4 and document["grid"] == [32, 32]
    for finding in document["findings"]:
        assert finding["text"].replace("'", "&#x27;") in page
    for row in document["rows"]:
        assert row["label"] in page
    assert not re.search(r"https?://|<script|src=|url\(", page)  # nothing is fetched
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    parser.handle_endtag = lambda tag: tags.remove(tag)  # type: ignore[method-assign]
    parser.handle_startendtag = lambda tag, attrs: None  # type: ignore[method-assign]
    parser.feed(page)
    assert set(tags) == {"meta"}
    assert "nan" not in page.lower().split("</style>")[1]


@pytest.mark.parametrize("rollout", ["", "rollout = {first = 1}\n"])
def test_a_rollout_is_audited_on_trajectories_and_refused_on_pairs(
    home: Path, rollout: str
) -> None:
    field, _ = samples(flow_task(), count=10)
    flow = [field]
    for _ in range(4):
        flow.append(smooth(flow[-1]))
    np.savez(home / "long.npz", flow=torch.stack(flow, dim=1).numpy())
    text = TASK.replace(f"[{HORIZON}]", "[1]").replace("flow.npz", "long.npz")
    text = text.replace("[input]", "[input]\nstep = 1.0").replace(
        "sample channel", "sample time channel"
    )
    text = text.replace('inputs = ["before"]\ntargets = ["after"]', 'arrays = ["flow"]')
    (home / "long.toml").write_text(rollout + text)
    words = ("--samples", 2, "--steps", 3, "--json", "a.json")
    out = call("audit", "mymodels:smooth", "long.toml", *words)
    found = json.loads((home / "a.json").read_text())
    assert found["steps"] == 3 and found["rest"]["error"] < 1e-5 and "after 3 steps" in out
    worst = {row["label"]: row["wrapped"] for row in found["rows"]}
    assert max(worst.values()) < 1e-4 < found["worst_error"]
    assert "needs trajectories" in call("audit", "mymodels:smooth", "task.toml", *words, code=2)
    assert "a window of the task needs 7" in call(
        "audit", "mymodels:smooth", "long.toml", "--steps", 6, code=2
    )


def test_the_worst_error_decides_the_exit_code(home: Path) -> None:
    words = ("audit", "mymodels:net", "task.toml", "--samples", 3)
    assert "the worst error is" in call(*words, "--max-error", 0.06, code=1)
    call(*words, "--max-error", 5)


def test_a_benchmark_brings_its_samples_and_its_mirrors(smoke_datasets: Path) -> None:
    words = ("--preset", "smoke", "--data", smoke_datasets, "--samples", 2)
    out = call("audit", "torch.nn:Identity", "burgers1d_smooth", *words)
    assert "x -> -x" in out and "It follows shifts by whole cells" in out


def test_a_saved_model_is_audited(home: Path) -> None:
    task = flow_task()
    operator = Residual(pacefno.FNO(2, 2, 2, width=4, modes=3, positions="grid"), channels=2)
    pacefno.save(pacefno.wrap(operator, task), "saved")
    out = call("audit", "saved", "task.toml", "--samples", 2)
    assert "It follows shifts by whole cells, shifts by fractions of a cell, boosts" in out


@pytest.mark.parametrize("fixed", [True, False])
def test_an_exported_program_is_audited_whatever_batch_it_was_made_for(
    home: Path, fixed: bool
) -> None:
    net, example = Smoothing().eval(), torch.randn(3, 2, 32, 32)
    shapes = None if fixed else ({0: torch.export.Dim("batch", min=1, max=64)}, None, None)
    program = torch.export.export(
        net, (example,), dynamic_shapes=None if shapes is None else (shapes[0],)
    )
    torch.export.save(program, "net.pt2")
    assert foreign.open_model("net.pt2").batch == (3 if fixed else None)
    out = call("audit", "net.pt2", "task.toml", "--samples", 4)
    assert "It follows shifts by whole cells" in out


class Trap:
    """Whoever unpickles it leaves a file behind."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path("sprung").touch, ())


def test_nothing_in_a_program_is_ever_unpickled(home: Path) -> None:
    torch.export.save(torch.export.export(Smoothing(), (torch.randn(2, 2, 32, 32),)), "good.pt2")
    with zipfile.ZipFile("good.pt2") as good:
        parts = {name: good.read(name) for name in good.namelist()}
    root = next(iter(parts)).partition("/")[0]
    sample, config = f"{root}/data/sample_inputs/model.pt", "model_weights_config.json"
    pickled = json.loads(parts[f"{root}/data/weights/{config}"])
    for entry in pickled["config"].values():
        entry["use_pickle"] = True
    trap = pickle.dumps(Trap(), protocol=2)
    for change in (
        {sample: trap},
        {f"{root}/data/weights/{config}": json.dumps(pickled).encode()},
        {f"{root}/data/constants/opaque_obj_0": trap},
        {"version": b"5.1", "serialized_state_dict.pt": trap},
    ):
        with zipfile.ZipFile("bad.pt2", "w") as bad:
            for name, content in (parts | change).items():
                bad.writestr(name, content)
        out = call("audit", "bad.pt2", "task.toml", code=2 if sample not in change else 1)
        assert "bad.pt2" in out and "torch.export.save" in out
        assert not (home / "sprung").exists()
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile("bad.pt2", "w") as bad:
        bad.writestr(sample, trap)  # two of one name: which of them would torch read?
        for name, content in parts.items():
            bad.writestr(name, content)
    assert "sample_inputs" in call("audit", "bad.pt2", "task.toml", code=2)
    assert not (home / "sprung").exists()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("nowhere:net", "there is no module 'nowhere'"),
        ("mymodels:nothing", "has no 'nothing'"),
        ("mymodels:number", "expected a module or a function, got int"),
        ("mymodels:Sized", "the class needs width"),
        ("runs/absent", "there is no such model: expected the folder of a run"),
        ("weights.pth", "pickled files are never opened"),
        ("absent.pt2", "there is no such file"),
    ],
)
def test_a_model_that_cannot_be_found_is_one_sentence(home: Path, model: str, says: str) -> None:
    out = call("audit", model, "task.toml", "--html", "a.html", code=2)
    assert says in out and out.startswith("error:")
    assert not (home / "a.html").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("mymodels:net",), "say MODEL and TASK, or TASK alone"),
        (("mymodels:net", "task.toml", "--write-inputs", "d"), "say MODEL and TASK"),
        (("mymodels:net", "absent.toml"), "expected a file task.toml, or a benchmark out of"),
        (("mymodels:net", "kdv"), "audited by pairs of fields: choose one that has them"),
        (("mymodels:net", "burgers1d", "--steps", "2"), "for several steps give the task.toml"),
        (("task.toml", "--write-inputs", "d", "--steps", "2"), "cannot be written beforehand"),
        (("mymodels:net", "task.toml", "--point-group", "p5"), "unknown point group 'p5'"),
        (("task.toml", "--read-predictions", "empty"), "empty holds no manifest of an audit"),
        (("mymodels:net", "task.toml", "--model", "mymodels:net"), "only for the folder of a run"),
        (("task.toml", "--write-inputs", "d", "--model", "mymodels:net"), "no model is loaded"),
        (("task.toml", "--read-predictions", "d", "--point-group", "p4m"), "with --write-inputs"),
        ((".", "task.toml", "--model", "pace"), "--model pace: expected module:attribute"),
    ],
)
def test_other_mistakes_are_one_sentence_too(home: Path, words: tuple[str, ...], says: str) -> None:
    assert says in call("audit", *words, code=2)


def test_a_model_that_knows_another_box_is_refused(home: Path) -> None:
    operator = pacefno.FNO(2, 2, 2, width=4, modes=3, layers=1)
    for lengths in (2.0, 200.0):
        group, what = pacefno.Galilean(2), {"channels": "u v: velocity", "horizon": HORIZON}
        model = pacefno.PACE(operator, group, **what, lengths=lengths).eval()
        pacefno.save(model, home / f"box{lengths:g}")
    call("audit", "box2", "task.toml", "--samples", 2)
    said = call("audit", "box200", "task.toml", code=2)
    assert "the model was trained for input" in said and "this task says" in said


# --- models in any framework ----------------------------------------------------------------------


def predict_in_numpy(folder: Path) -> None:
    """A model that knows nothing of torch: moves everything by one cell along x."""
    for path in sorted((folder / "inputs").glob("*.npy")):
        np.save(folder / "predictions" / path.name, np.roll(np.load(path), 1, axis=2))


def test_predictions_from_elsewhere_give_the_audit_of_the_model_itself(home: Path) -> None:
    words = ("audit", "task.toml", "--samples", 3)
    assert "arrays to predict" in call(*words, "--write-inputs", "asked")
    manifest = json.loads((home / "asked" / "manifest.json").read_text())
    assert manifest["files"][0]["what"] == "at rest"
    assert manifest["files"][1]["what"] == "at rest, as PACE sees it"
    predict_in_numpy(home / "asked")
    call("audit", "task.toml", "--read-predictions", "asked", "--json", "there.json")
    (home / "rolled.py").write_text("def roll(field):\n    return field.roll(1, 2)\n")
    call("audit", "rolled:roll", "task.toml", "--samples", 3, "--json", "here.json")
    there, here = (json.loads((home / n).read_text()) for n in ("there.json", "here.json"))
    assert there["verdict"] == here["verdict"]
    for one, other in zip(there["rows"], here["rows"], strict=True):
        assert one["error"] == pytest.approx(other["error"], rel=1e-5)
        assert one["wrapped"] == pytest.approx(other["wrapped"], rel=1e-5)


def test_what_is_wrong_with_predictions_is_said(home: Path) -> None:
    words = ("audit", "task.toml", "--samples", 3, "--write-inputs", "asked")
    read = ("audit", "task.toml", "--read-predictions", "asked")
    call(*words)
    predict_in_numpy(home / "asked")
    assert "holds predictions already" in call(*words, code=2)
    third = home / "asked" / "predictions" / "002.npy"
    np.save(third, np.zeros((3, 1, 32, 32)))
    assert "002.npy: expected an array (3, 2, 32, 32), got (3, 1, 32, 32)" in call(*read, code=2)
    np.save(third, np.array([Trap()], dtype=object), allow_pickle=True)
    assert "002.npy: is no .npy file of numbers" in call(*read, code=2)
    assert not (home / "sprung").exists()
    third.unlink()
    assert "predictions are missing, the first is predictions/002.npy" in call(*read, code=2)
    np.save(third, np.zeros((3, 2, 32, 32)))
    field, target = samples(flow_task(), count=10)
    np.savez(home / "flow.npz", before=2 * field.numpy(), after=target.numpy())
    assert "inputs/000.npy is not what this task and these samples ask" in call(*read, code=2)


# --- adapters -------------------------------------------------------------------------------------


class ByName(nn.Module):
    """As PhysicsNeMo's modules are: a dict in, a dict out, channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        assert inputs["flow"].shape[-1] == 2 and inputs["height"].shape[-1] == 1
        return {"height": inputs["height"] * self.scale, "flow": inputs["flow"]}


FIELD = torch.randn(2, 3, 8, 10, generator=torch.manual_seed(0))


def test_a_dict_of_channels_goes_in_and_out_by_name() -> None:
    adapted = pacefno.Adapted(
        ByName(), inputs={"flow": 2, "height": 1}, outputs=["flow", "height"], channels_last=True
    )
    expected = FIELD * torch.tensor([1.0, 1.0, 0.5])[:, None, None]
    assert torch.equal(adapted(FIELD), expected)


def test_several_arguments_keywords_and_tuples_are_handed_over() -> None:
    def two(flow: Tensor, height: Tensor) -> tuple[Tensor, Tensor]:
        return height, flow

    swapped = FIELD[:, [2, 0, 1]]
    assert torch.equal(pacefno.Adapted(two, inputs=[2, 1], outputs=[0, 1])(FIELD), swapped)
    named = {"flow": 2, "height": 1}
    adapted = pacefno.Adapted(two, inputs=named, outputs=[1, 0], keywords=True)
    assert torch.equal(adapted(FIELD), FIELD)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"inputs": [2, 2]}, "are 4 channels, the field has 3"),
        ({"inputs": {"flow": 2, "height": 1}}, "returned \\['height', 'flow'\\], not a tensor"),
        ({"inputs": {"flow": 2, "height": 1}, "outputs": ["p"]}, "the module returned \\['height'"),
        ({"keywords": True}, "keywords=True needs names"),
    ],
)
def test_an_adapter_that_does_not_fit_says_how(given: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        pacefno.Adapted(ByName(), channels_last=True, **given)(FIELD)  # type: ignore[arg-type]


def test_a_wrapped_module_of_another_signature_is_saved_and_loaded(tmp_path: Path) -> None:
    how = {"inputs": {"flow": 2, "height": 1}, "outputs": ["flow", "height"], "channels_last": True}
    group, what = pacefno.Galilean(2), "u v: velocity, h: scalar"
    adapted = pacefno.Adapted(ByName(), **how)  # type: ignore[arg-type]
    adapted.module.scale.data.fill_(0.75)  # type: ignore[union-attr]
    model = pacefno.PACE(adapted, group, channels=what, horizon=0.5, lengths=1.0).eval()
    pacefno.testing.assert_equivariant(model, group, FIELD)
    pacefno.save(model, tmp_path)
    with pytest.raises(UsageError, match="its operator is a ByName"):
        pacefno.load(tmp_path)
    again = pacefno.load(tmp_path, operator=pacefno.Adapted(ByName(), **how))  # type: ignore[arg-type]
    assert torch.equal(again(FIELD), model(FIELD))


def test_wrap_is_pace_with_the_slice_of_the_task_around_a_function_too() -> None:
    task = flow_task()
    field, _ = samples(task, count=2)
    model = pacefno.wrap(zero_padded, task)
    assert model.group is task.group and model.input == task.input
    pacefno.testing.assert_equivariant(model, task.group, field, tolerance=1e-4)
    assert torch.allclose(model.operator(field), smooth(field, mode="constant"))


def test_help_is_there_before_torch_is() -> None:
    script = (
        "import sys; from pacefno.cli import app; app(['audit', '--help'], standalone_mode=False)"
    )
    script += "; assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = " ".join(done.stdout.split())
    for word in ("--max-error", "worst relative error", "--write-inputs", "--point-group"):
        assert word in said
