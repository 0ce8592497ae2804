"""Checkpoints: what was saved comes back bit for bit or not at all, whatever happens to it."""

from __future__ import annotations

import ast
import errno
import itertools
import json
import os
import pickle
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor

from pacefno import checkpoint as module
from pacefno import files
from pacefno.checkpoint import (
    EPOCH,
    FINAL,
    Checkpoint,
    CheckpointError,
    check_layout,
    load_checkpoint,
    newest,
    pack_optimizer,
    prune,
    save_checkpoint,
    unpack_optimizer,
)
from pacefno.files import remove_stale_temporaries

POSIX = pytest.mark.skipif(os.name != "posix", reason="kills forked processes")


def save_number(path: Path, number: int) -> None:
    """A small checkpoint whose every part says which one it is."""
    tensors = {
        "model": {"w": torch.full((3, 5), number / 3)},
        "best": {"w": torch.full((4,), number)},
    }
    save_checkpoint(path, tensors, {"state": {"number": number, "note": "some text"}})


def number_in(checkpoint: Checkpoint | None) -> int:
    assert checkpoint is not None
    number = int(checkpoint.documents["state"]["number"])
    assert torch.equal(checkpoint.tensors["model"]["w"], torch.full((3, 5), number / 3))
    assert torch.equal(checkpoint.tensors["best"]["w"], torch.full((4,), number))
    return number


def save_epochs(run: Path, *numbers: int) -> None:
    for number in numbers:
        save_number(run / EPOCH.format(number), number)


def epochs_in(run: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix("epoch-")) for path in run.glob("epoch-*.safetensors"))


def reseal(path: Path, content: bytes) -> None:
    """Write content with the sum that fits it, as a forger would."""
    place = module._SUM
    path.write_bytes(content[: place.start] + module._sum_of(content) + content[place.stop :])


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and raw_bytes(a) == raw_bytes(b)


def raw_bytes(tensor: Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().contiguous()
    return bytes(plain.reshape(-1).view(torch.uint8).tolist())


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / EPOCH.format(1)
    save_number(path, 1)
    return path


# --- round trip ---------------------------------------------------------------------------------

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn]
DTYPES += [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.bool]
DTYPES += [torch.complex64, torch.complex128]


@pytest.mark.parametrize("kind", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (8, 9), (2, 3, 5, 7)], ids=str)
def test_every_tensor_comes_back_bit_for_bit(
    tmp_path: Path, kind: torch.dtype, shape: tuple[int, ...]
) -> None:
    size = kind.itemsize * torch.Size(shape).numel()
    highest = 2 if kind == torch.bool else 256  # any bits: NaN, inf, -0
    tensor = torch.randint(0, highest, (size,), dtype=torch.uint8).view(kind).reshape(shape)
    save_checkpoint(tmp_path / FINAL, {"model": {"w": tensor}}, {})
    assert same_bits(load_checkpoint(tmp_path / FINAL).tensors["model"]["w"], tensor)


def test_views_shared_memory_and_pending_conjugations_are_stored_as_they_look(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    base = torch.randn(6, 6, dtype=dtype)
    conjugate = torch.view_as_complex(base.reshape(-1, 2)).conj()
    group = {"a": base, "b": base, "t": base.T, "s": base[1:, ::2], "e": base[:1].expand(4, 6)}
    group |= {"p": torch.nn.Parameter(base), "c": conjugate, "c2": conjugate[::3]}
    group["n"] = conjugate.imag  # carries a pending sign
    save_checkpoint(tmp_path / FINAL, {"model": group, "best": group}, {})
    loaded = load_checkpoint(tmp_path / FINAL).tensors
    for part in ("model", "best"):
        assert loaded[part].keys() == group.keys()
        assert all(loaded[part][name].dtype == group[name].dtype for name in group)
        assert all(torch.equal(loaded[part][name], group[name]) for name in group)


def test_any_name_of_a_tensor_and_empty_groups_come_back(tmp_path: Path) -> None:
    names = ["__metadata__", "a/b", "", "é", 'sha256":"', "0:state.0.exp_avg", "w|complex128"]
    group = {name: torch.tensor(i) for i, name in enumerate(names)}
    save_checkpoint(tmp_path / FINAL, {"model": group, "optimizer": {}, "": group}, {})
    loaded = load_checkpoint(tmp_path / FINAL).tensors
    assert loaded == {"model": group, "optimizer": {}, "": group}
    assert list(loaded) == ["model", "optimizer", ""]


def test_loaded_tensors_can_be_trained_on(whole: Path) -> None:
    load_checkpoint(whole).tensors["model"]["w"].add_(1)
    assert number_in(load_checkpoint(whole)) == 1


def test_documents_come_back_equal(tmp_path: Path) -> None:
    state = {"epoch": 3, "best": float("inf"), "lr": 0.1 + 0.2, "on": True, "none": None}
    documents = {"state": state, "list": [1, "é"], "format": "x", "sha256": "0" * 64, "a/b": {}}
    save_checkpoint(tmp_path / FINAL, {}, documents)
    assert load_checkpoint(tmp_path / FINAL) == Checkpoint({}, documents)


def test_equal_content_gives_equal_bytes(whole: Path, tmp_path: Path) -> None:
    save_number(tmp_path / FINAL, 1)
    assert (tmp_path / FINAL).read_bytes() == whole.read_bytes()


def test_other_programs_read_it_as_any_safetensors_file(whole: Path) -> None:
    with safe_open(whole, framework="pt") as opened:
        assert set(opened.keys()) == {"model/w", "best/w"}
        assert torch.equal(opened.get_tensor("model/w"), torch.full((3, 5), 1 / 3))
        assert opened.metadata()["format"] == "2"
        assert json.loads(opened.metadata()["document/state"])["number"] == 1


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
NOT_STORABLE: dict[str, tuple[Any, Any]] = {
    "group with a slash": ({"a/b": {}}, {}),
    "no JSON": ({}, {"state": object()}),
    "endless": ({}, {"state": ENDLESS}),
    "sparse": ({"model": {"w": torch.ones(2, 2).to_sparse()}}, {}),
    "text": ({"model": {"w": "text"}}, {}),
    "lone surrogate": ({"model": {"\ud800": torch.ones(2)}}, {}),
    "meta tensor": ({"model": {"w": torch.ones(2, device="meta")}}, {}),
}


@pytest.mark.parametrize("what", NOT_STORABLE)
def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path, what: str) -> None:
    with pytest.raises(CheckpointError, match="cannot be stored"):
        save_checkpoint(tmp_path / FINAL, *NOT_STORABLE[what])
    assert not list(tmp_path.iterdir())


def test_documents_above_the_limit_are_neither_saved_nor_loaded(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEADER_LIMIT", 300)
    with pytest.raises(CheckpointError, match=r"need \d+ bytes, more than 300: store large data"):
        save_checkpoint(whole.with_name(FINAL), {}, {"state": "x" * 300})
    with pytest.raises(CheckpointError, match=r"a header of \d+ bytes, more than 300"):
        load_checkpoint(whole)


# --- states of optimizers -----------------------------------------------------------------------


def make_adamw(parameters: list[Tensor]) -> torch.optim.Optimizer:
    groups: list[dict[str, Any]] = [
        {"params": parameters[:1], "lr": 0.1},
        {"params": parameters[1:]},
    ]
    return torch.optim.AdamW(groups, lr=1e-2)


OPTIMIZERS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw": make_adamw,
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=1e-2, max_iter=2),
}


def train(parameters: list[Tensor], optimizer: torch.optim.Optimizer, steps: int) -> None:
    def loss() -> float:
        optimizer.zero_grad()
        value = sum((p.abs() ** 2).sum() for p in parameters) + (parameters[0] ** 4).sum()
        torch.autograd.backward(value)
        return float(value.detach())

    for _ in range(steps):
        optimizer.step(loss)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_optimizer_continues_bit_for_bit_from_its_stored_state(
    tmp_path: Path, kind: str, dtype: torch.dtype
) -> None:
    second = torch.randn(3, dtype=dtype if kind == "lbfgs" else dtype.to_complex())
    parameters = [torch.randn(4, 3, dtype=dtype).requires_grad_(), second.requires_grad_()]
    optimizer = OPTIMIZERS[kind](parameters)
    train(parameters, optimizer, 3)
    tensors, document = pack_optimizer(optimizer.state_dict())
    weights = {str(i): p for i, p in enumerate(parameters)}
    groups = {"optimizer": tensors, "model": weights}
    save_checkpoint(tmp_path / FINAL, groups, {"optimizer": document})
    loaded = load_checkpoint(tmp_path / FINAL)
    again = [loaded.tensors["model"][str(i)].requires_grad_() for i in range(2)]
    resumed = OPTIMIZERS[kind](again)
    state = unpack_optimizer(loaded.tensors["optimizer"], loaded.documents["optimizer"])
    assert repr(state) == repr(optimizer.state_dict())
    resumed.load_state_dict(state)
    train(parameters, optimizer, 3)
    train(again, resumed, 3)
    assert all(same_bits(a, b) for a, b in zip(parameters, again, strict=True))


def test_tensors_under_keys_with_equal_text_stay_apart() -> None:
    state = {0: torch.zeros(1), "0": torch.ones(1), "a.b": torch.ones(2), "a": {"b": torch.ones(3)}}
    back = unpack_optimizer(*pack_optimizer(state))
    assert back[0] is state[0]
    assert back["0"] is state["0"]
    assert back["a.b"] is state["a.b"]


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
keys = st.integers() | st.text()
states = st.recursive(
    leaves,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(keys, inner),
    max_leaves=12,
)


@given(states)
def test_any_nested_state_survives_packing_and_json(state: Any) -> None:
    tensors, document = pack_optimizer({"state": state, "tensor": torch.ones(2)})
    back = unpack_optimizer(tensors, json.loads(json.dumps(document)))
    assert repr(back["state"]) == repr(state)
    assert back["tensor"] is next(iter(tensors.values()))


@pytest.mark.parametrize("state", [{1.5: 0}, {True: 0}, {"a": {1, 2}}, [object()], {"f": print}])
def test_a_state_that_would_come_back_different_is_refused_with_its_place(state: Any) -> None:
    with pytest.raises(TypeError, match=r"^state.*convert it"):
        pack_optimizer(state)


def contains_tensor(node: Any) -> bool:
    if isinstance(node, dict):
        return any(map(contains_tensor, node.values()))
    return (
        any(map(contains_tensor, node))
        if isinstance(node, list | tuple)
        else isinstance(node, Tensor)
    )


@given(states | st.dictionaries(st.sampled_from(["dict", "list", "tuple", "tensor"]), states))
def test_a_foreign_document_gives_only_a_checkpoint_error(document: Any) -> None:
    with suppress(CheckpointError):
        assert not contains_tensor(unpack_optimizer({}, document)), "tensors out of nothing"


# --- damage -------------------------------------------------------------------------------------


def test_a_file_cut_anywhere_is_refused(whole: Path) -> None:
    content = whole.read_bytes()
    for cut in range(0, len(content), 7):
        whole.write_bytes(content[:cut])
        message = r"is truncated.* resume from an older one"
        with pytest.raises(CheckpointError, match=message) as caught:
            load_checkpoint(whole)
        assert caught.value.path == whole
    whole.write_bytes(content)
    assert number_in(load_checkpoint(whole)) == 1


def test_every_flipped_bit_is_noticed(whole: Path) -> None:
    content = whole.read_bytes()
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        whole.write_bytes(flipped)
        with pytest.raises(CheckpointError):
            load_checkpoint(whole)


@pytest.mark.parametrize("place", ["start", "header", "data", "end"])
def test_inserted_bytes_are_noticed(whole: Path, place: str) -> None:
    content = whole.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    i = {"start": 0, "header": start - 1, "data": start + 4, "end": len(content)}[place]
    for extra in (b"\0", b" ", b"\0" * 8):
        whole.write_bytes(content[:i] + extra + content[i:])
        with pytest.raises(CheckpointError):
            load_checkpoint(whole)


def test_the_sum_in_upper_case_is_not_the_sum(whole: Path) -> None:
    content = whole.read_bytes()
    place = module._SUM
    upper = content[place].upper()
    assert upper != content[place]
    whole.write_bytes(content[: place.start] + upper + content[place.stop :])
    with pytest.raises(CheckpointError, match="the sha256 in it is not that of its content"):
        load_checkpoint(whole)


def test_without_the_sum_a_flipped_bit_would_load_as_wrong_weights(whole: Path) -> None:
    """Shows that the tests above can fail: safetensors alone does not notice."""
    content = bytearray(whole.read_bytes())
    content[-1] ^= 1
    reseal(whole, bytes(content))
    loaded = load_checkpoint(whole).tensors
    expected = {"model": torch.full((3, 5), 1 / 3), "best": torch.full((4,), 1)}
    assert not all(torch.equal(loaded[name]["w"], expected[name]) for name in expected)


def with_header(content: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The content of a checkpoint with another header, sealed again by `reseal`."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + content[start:]


def in_metadata(name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda header: header["__metadata__"].update({name: value})


FORGED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "newer format": (
        in_metadata("format", "3"),
        "has format 3, this version reads 2: use the pacefno",
    ),
    "older format": (in_metadata("format", "1"), "has format 1, this version reads 2"),
    "foreign format": (in_metadata("format", "pt"), "has format pt"),
    "format as a number": (in_metadata("format", 2), "no checkpoint"),
    "no format": (lambda h: h["__metadata__"].pop("format"), "no checkpoint"),
    "no metadata": (lambda h: h.pop("__metadata__"), "no checkpoint"),
    "metadata as text": (lambda h: h.update(__metadata__="x"), "no checkpoint"),
    "unknown group": (in_metadata("groups", '["model"]'), "KeyError: 'best'"),
    "groups as a number": (in_metadata("groups", "1"), "altered"),
    "reals as complex": (in_metadata("complex", '["model/w"]'), "altered"),
    "document cut": (in_metadata("document/state", "{"), "altered"),
    "document deep": (in_metadata("document/state", "[" * 100_000), "RecursionError"),
    "document of one long number": (in_metadata("document/state", "9" * 5000), "altered"),
    "document no text": (in_metadata("document/state", 1), "altered"),
    "offset beyond": (lambda h: h["model/w"].update(data_offsets=[0, 10**15]), "expected 1000"),
    "offset below": (lambda h: h["model/w"].update(data_offsets=[-4, 60]), "altered"),
    "huge shape": (lambda h: h["model/w"].update(shape=[2**62, 2**62]), "altered"),
    "unknown type": (lambda h: h["model/w"].update(dtype="PICKLE"), "altered"),
    "entry as text": (lambda h: h.update({"model/w": "x"}), "altered"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_header_with_a_fitting_sum_is_refused(whole: Path, what: str) -> None:
    change, message = FORGED[what]
    reseal(whole, with_header(whole.read_bytes(), change))
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(whole)
    assert caught.value.path == whole


def test_the_forger_of_these_tests_can_write_a_good_one(whole: Path) -> None:
    reseal(whole, with_header(whole.read_bytes(), lambda header: None))
    assert number_in(load_checkpoint(whole)) == 1


def test_a_tampered_document_is_refused(whole: Path) -> None:
    content = whole.read_bytes()
    assert b"some text" in content
    whole.write_bytes(content.replace(b"some text", b"evil text"))
    with pytest.raises(CheckpointError, match="sha256"):
        load_checkpoint(whole)


@POSIX
def test_what_is_no_regular_file_is_refused(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "link.safetensors").symlink_to(whole)
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    for name in ("link", "pipe", "folder"):
        with pytest.raises(CheckpointError, match="is a link or no regular file: name the real"):
            load_checkpoint(tmp_path / f"{name}.safetensors")
    for name in ("nothing", "long" * 100, "null\0"):
        with pytest.raises(CheckpointError, match="no such checkpoint: check the path"):
            load_checkpoint(tmp_path / f"{name}.safetensors")


def test_a_disk_that_cannot_be_read_gives_a_checkpoint_error(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fail)
        with pytest.raises(
            CheckpointError, match=r"cannot be read .*output error.*: check the disk"
        ):
            load_checkpoint(whole)
    assert number_in(load_checkpoint(whole)) == 1


def test_a_huge_file_is_refused_before_it_is_read(whole: Path) -> None:
    os.truncate(whole, 10**13)  # takes no room on the disk
    with pytest.raises(CheckpointError, match=r"expected \d+ bytes, got 10000000000000"):
        load_checkpoint(whole)


damage = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@damage
@given(content=st.binary(max_size=400))
def test_random_bytes_give_only_a_checkpoint_error(whole: Path, content: bytes) -> None:
    whole.write_bytes(content)
    with pytest.raises(CheckpointError):
        load_checkpoint(whole)


@damage
@given(data=st.data())
def test_a_forged_file_gives_a_checkpoint_error_or_plain_data(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / FINAL
    save_number(path, 1)
    original = path.read_bytes()
    start = data.draw(st.integers(0, len(original)))
    stop = data.draw(st.integers(start, len(original)))
    reseal(path, original[:start] + data.draw(st.binary(max_size=40)) + original[stop:])
    with suppress(CheckpointError):
        groups = load_checkpoint(path).tensors.values()
        assert all(isinstance(tensor, Tensor) for group in groups for tensor in group.values())


# --- pickles ------------------------------------------------------------------------------------


class Exploit:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def test_a_malicious_pickle_is_refused_wherever_it_is_put_and_never_runs(
    whole: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    exploit = pickle.dumps(Exploit(marker))
    places = [tmp_path / f"evil{end}" for end in (".pt", ".PTH", ".pkl", ".ckpt", ".bin", "")]
    places += [tmp_path / "plain.safetensors", tmp_path / "sealed.safetensors"]
    for place in places:
        place.write_bytes(exploit)
    reseal(places[-1], with_header(whole.read_bytes(), lambda header: None) + exploit)
    torch.save(Exploit(marker), tmp_path / "zip.safetensors")
    for place in [*places, tmp_path / "zip.safetensors"]:
        with pytest.raises(CheckpointError):
            load_checkpoint(place)
    assert not marker.exists()
    pickle.loads(exploit)  # and it was a real one
    assert marker.exists()


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "model.pkl", "model.ckpt", "model"])
def test_other_names_are_neither_read_nor_written(tmp_path: Path, name: str) -> None:
    message = r"ends in \.safetensors: pickled files .* are never opened"
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path / name)
    with pytest.raises(CheckpointError, match=message):
        save_number(tmp_path / name, 1)
    assert not list(tmp_path.iterdir())


UNSAFE = {"pickle", "_pickle", "dill", "joblib", "marshal", "shelve", "eval", "exec", "__import__"}
UNSAFE |= {
    "torch.load",
    "torch.save",
    "torch.jit",
    "torch.hub",
    "numpy",
    "importlib",
    "weights_only",
}


def names_used(source: str) -> set[str]:
    """Every name, dotted name, keyword and import in a source text."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute | ast.Name):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            owner = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                found |= {(owner + alias.name).partition(".")[0], owner + alias.name}
        elif isinstance(node, ast.keyword):
            found.add(str(node.arg))
    return found


@pytest.mark.parametrize("source", [Path(str(module.__file__)), Path(str(files.__file__))], ids=str)
def test_no_function_can_run_code_from_a_file(source: Path) -> None:
    assert not names_used(source.read_text()) & UNSAFE


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from pickle import loads",
        "from torch import load",
        "import torch\nf = torch.load",
        "read('x', weights_only=True)",
        "eval('1')",
    ],
)
def test_an_unsafe_line_is_found(source: str) -> None:
    assert names_used(source) & UNSAFE


# --- kill -9 ------------------------------------------------------------------------------------

EVENTS = {"os.fsync", "open", "os.rename", "os.mkdir", "os.remove", "os.listdir", "os.scandir"}


def run_in_child(action: Callable[[], object]) -> int:
    """Return 0 if an action succeeded in a child process, minus the signal that killed it, or 1."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(20)
            action()
            status = 0
        except BaseException as error:
            os.write(2, f"child: {error!r}\n".encode())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(moment: int, action: Callable[[], object]) -> bool:
    """Run an action in a child that kills itself at its n-th touch of the file system, if any."""
    touches = itertools.count(1)

    def touch(event: str, _: object = None) -> None:
        if event in EVENTS and next(touches) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def child() -> None:
        real = os.fsync

        def fsync(descriptor: int) -> None:
            touch("os.fsync")
            real(descriptor)

        vars(os)["fsync"] = fsync  # Python announces all other events by itself
        sys.addaudithook(touch)
        action()

    ended = run_in_child(child)
    assert ended in (0, -signal.SIGKILL)
    return ended != 0


def survivors(root: Path, action: Callable[[Path], object]) -> Iterator[Path]:
    """Yield what a kill at the first, second, ... moment of an action leaves of two epochs."""
    save_epochs(root / "template", 1, 2)
    for moment in itertools.count(1):
        run = shutil.copytree(root / "template", root / str(moment))
        killed = killed_at(moment, partial(action, run))
        yield run
        if not killed:
            return


def check_that_the_run_goes_on(run: Path) -> None:
    """The next start cleans up, saves over whatever the kill left, and finds what it saved."""
    remove_stale_temporaries(run)
    assert not [path for path in run.iterdir() if ".tmp-" in path.name]
    save_number(run / EPOCH.format(2), 20)
    assert number_in(load_checkpoint(run / EPOCH.format(2))) == 20
    save_epochs(run, 21)
    assert number_in(newest(run)[0]) == 21


@POSIX
@pytest.mark.parametrize("epoch", [2, 10], ids=["replaced", "new"])
def test_a_kill_at_any_moment_of_saving_leaves_the_last_or_the_new_one(
    tmp_path: Path, epoch: int
) -> None:
    seen = []
    for run in survivors(tmp_path, lambda run: save_number(run / EPOCH.format(epoch), 10)):
        checkpoint, rejected = newest(run)
        assert not rejected
        seen.append(number_in(checkpoint))
        check_that_the_run_goes_on(run)
    assert len(seen) > 5  # moments, not luck
    assert seen == sorted(seen)
    assert set(seen) == {2, 10}


@POSIX
def test_a_kill_at_any_byte_of_saving_leaves_the_last_one(tmp_path: Path) -> None:
    import resource

    tensors = {"model": {"w": torch.ones(5000)}}

    def save_until(limit: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the system kills at that byte
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        save_checkpoint(tmp_path / EPOCH.format(2), tensors, {})

    save_epochs(tmp_path, 1, 2)
    for limit in (0, 1, 8, 100, 5000, 20000):
        assert run_in_child(partial(save_until, limit)) == -signal.SIGXFSZ
        assert number_in(newest(tmp_path)[0]) == 2
    check_that_the_run_goes_on(tmp_path)


@POSIX
@pytest.mark.parametrize("keep", [1, 2])
def test_a_kill_at_any_moment_of_pruning_leaves_the_newest_ones(tmp_path: Path, keep: int) -> None:
    def save_and_prune(run: Path) -> None:
        save_epochs(run, 3)
        prune(run, keep)

    seen = []
    for run in survivors(tmp_path, save_and_prune):
        checkpoint, rejected = newest(run)
        assert not rejected
        assert number_in(checkpoint) == max(epochs_in(run))
        remove_stale_temporaries(run)
        seen.append(epochs_in(run))
        assert all(number_in(load_checkpoint(run / EPOCH.format(n))) == n for n in seen[-1])
    assert seen[0] == [1, 2]
    assert seen[-1] == [2, 3][-keep:]


def save_in_place(run: Path) -> None:
    """What not to do: over the old file."""
    path = run / EPOCH.format(2)
    content = path.read_bytes()
    path.write_bytes(b"")
    path.write_bytes(content)


def save_by_delete_and_rename(run: Path) -> None:
    """What not to do either: delete the old file before the new one has its name."""
    shutil.copy(run / EPOCH.format(2), run / "new")
    (run / EPOCH.format(2)).unlink()
    os.rename(run / "new", run / EPOCH.format(2))


@POSIX
@pytest.mark.parametrize("broken", [save_in_place, save_by_delete_and_rename])
def test_the_kill_tests_find_a_saver_that_is_not_safe(
    tmp_path: Path, broken: Callable[[Path], None]
) -> None:
    found = [number_in(newest(run)[0]) for run in survivors(tmp_path, broken)]
    assert set(found) == {1, 2}


# --- full disk ----------------------------------------------------------------------------------


@POSIX
def test_a_full_disk_gives_one_clear_error_and_leaves_the_last_checkpoint(whole: Path) -> None:
    import resource

    message = whole.with_name("message")

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            save_checkpoint(whole, {"model": {"w": torch.ones(5000)}}, {})
        except CheckpointError as error:
            message.write_text(str(error))

    assert run_in_child(child) == 0
    text = message.read_text()
    assert text.startswith(f"{whole}: could not be written (File too large): 20")
    wanted = (
        r"20\d\d\d bytes needed, \d+ bytes free on the disk .*last good checkpoint is untouched"
    )
    assert re.search(wanted, text)
    assert number_in(load_checkpoint(whole)) == 1
    assert {path.name for path in whole.parent.iterdir()} == {whole.name, "message"}


@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir"])
def test_an_error_at_any_call_leaves_a_checkpoint_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    run = tmp_path / "run"
    real = getattr(os, call)
    failures = 0
    for moment in range(4):
        shutil.rmtree(run, ignore_errors=True)
        if call != "mkdir":
            save_epochs(run, 2)
        calls = itertools.count()

        def fail(*args: Any, moment: int = moment, calls: Any = calls, **options: Any) -> None:
            if next(calls) == moment:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(*args, **options)

        try:
            with monkeypatch.context() as patch:
                patch.setattr(os, call, fail)
                save_number(run / EPOCH.format(2), 20)
        except CheckpointError as error:
            failures += 1
            assert "No space left" in error.reason
        if call != "mkdir":
            assert number_in(newest(run)[0]) in (2, 20)
            assert [path.name for path in run.iterdir()] == [EPOCH.format(2)]
    assert failures == {"fsync": 2, "replace": 1, "mkdir": 1}[call]


def test_an_interruption_by_the_keyboard_leaves_no_rubbish(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            save_number(whole, 2)
    assert number_in(load_checkpoint(whole)) == 1
    assert list(whole.parent.iterdir()) == [whole]


# --- a run's checkpoints ------------------------------------------------------------------------


def break_epoch(run: Path, *numbers: int) -> None:
    for number in numbers:
        path = run / EPOCH.format(number)
        path.write_bytes(path.read_bytes()[:-1])


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are loaded, in order."""
    names: list[str] = []
    real = load_checkpoint

    def load(path: Path) -> Checkpoint:
        names.append(path.stem)
        return real(path)

    monkeypatch.setattr(module, "load_checkpoint", load)
    return names


def test_an_empty_or_missing_run_has_no_newest(tmp_path: Path) -> None:
    assert newest(tmp_path) == newest(tmp_path / "none") == (None, [])
    prune(tmp_path / "none")


def test_the_newest_counts_by_number_and_other_names_are_ignored(tmp_path: Path) -> None:
    save_epochs(tmp_path, 9, 999_999, 1_000_001)
    for name in ("epoch-11", "epoch-x.safetensors", "epoch-1000002.safetensors.tmp-1", FINAL):
        shutil.copy(tmp_path / EPOCH.format(9), tmp_path / name)
    checkpoint, rejected = newest(tmp_path)
    assert number_in(checkpoint) == 1_000_001
    assert not rejected


def test_broken_ones_are_passed_over_and_reported_and_each_is_read_once(
    tmp_path: Path, loads: list[str]
) -> None:
    save_epochs(tmp_path, 1, 2, 3, 4)
    break_epoch(tmp_path, 3, 4)
    checkpoint, rejected = newest(tmp_path)
    assert number_in(checkpoint) == 2
    assert [error.path.stem for error in rejected] == ["epoch-000004", "epoch-000003"]
    assert loads == ["epoch-000004", "epoch-000003", "epoch-000002"]
    break_epoch(tmp_path, 1, 2)
    checkpoint, rejected = newest(tmp_path)
    assert checkpoint is None
    assert len(rejected) == 4


def test_pruning_keeps_the_newest_good_ones_and_whatever_is_newer(tmp_path: Path) -> None:
    save_epochs(tmp_path, *range(1, 8))
    save_number(tmp_path / FINAL, 1)
    break_epoch(tmp_path, 3, 6)
    prune(tmp_path)
    assert epochs_in(tmp_path) == [5, 6, 7]
    prune(tmp_path, keep=9)
    assert epochs_in(tmp_path) == [5, 6, 7]
    prune(tmp_path, keep=1)
    assert epochs_in(tmp_path) == [7]
    assert (tmp_path / FINAL).exists()


def test_pruning_reads_no_more_than_it_needs(tmp_path: Path, loads: list[str]) -> None:
    save_epochs(tmp_path, 1, 2)
    prune(tmp_path)
    assert loads == []  # nothing is too much
    save_epochs(tmp_path, 3)
    prune(tmp_path)
    assert loads == ["epoch-000002"]  # the newest was just written, the oldest goes
    assert epochs_in(tmp_path) == [2, 3]


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_pruning_never_deletes_the_last_good_one(tmp_path: Path, keep: int) -> None:
    save_epochs(tmp_path, 1, 2, 3, 4, 5)
    break_epoch(tmp_path, 3, 4, 5)  # the newest too, though prune may count on it
    prune(tmp_path, keep)
    assert number_in(newest(tmp_path)[0]) == 2
    with pytest.raises(ValueError, match="at least 1, got 0"):
        prune(tmp_path, keep=0)


def test_a_damaged_checkpoint_can_be_saved_again(whole: Path) -> None:
    whole.write_bytes(b"x")
    save_number(whole, 2)
    assert number_in(load_checkpoint(whole)) == 2


@POSIX
def test_saving_over_a_link_leaves_what_it_points_to(whole: Path, tmp_path: Path) -> None:
    (tmp_path / FINAL).symlink_to(whole)
    save_number(tmp_path / FINAL, 2)
    assert number_in(load_checkpoint(whole)) == 1
    assert number_in(load_checkpoint(tmp_path / FINAL)) == 2
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(CheckpointError, match="could not be written"):
        save_number(tmp_path / "folder.safetensors", 3)


@pytest.mark.parametrize("name", ["final", "epoch-000004"])
def test_a_run_of_an_older_version_gives_one_clear_error(tmp_path: Path, name: str) -> None:
    check_layout(tmp_path)
    check_layout(tmp_path / "none")
    (tmp_path / name).mkdir()
    (tmp_path / name / "manifest.json").write_text('{"format": 1}')
    actions: list[Callable[[], object]] = [lambda: check_layout(tmp_path), lambda: newest(tmp_path)]
    actions.append(lambda: load_checkpoint(tmp_path / FINAL))
    for action in actions:
        with pytest.raises(CheckpointError) as caught:
            action()
        assert str(caught.value) == (
            f"{tmp_path}: was written by an older pacefno in another layout (the folder {name}): "
            "train it again, or read it with that version"
        )
