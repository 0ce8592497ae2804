"""Checkpoints: what was saved comes back bit for bit, or not at all; whatever happens to the process, disk or files."""

from __future__ import annotations

import errno
import itertools
import json
import os
import pickle
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pacefno import durable
from pacefno.durable import remove_stale_temporaries, sha256_of, temporary_sibling, write_text_atomically
from pacefno.lock import FolderInUseError, FolderLock
from pacefno.training import store
from pacefno.training.manifest import MANIFEST, manifest_of
from pacefno.training.store import (
    Checkpoint,
    CheckpointError,
    Latest,
    flatten_state,
    latest,
    load_checkpoint,
    prune,
    save_checkpoint,
    unflatten_state,
)

FLOATS = [torch.float32, torch.float64]
FILES = ["model.safetensors", "optimizer.safetensors", "state.json", MANIFEST]


def save_number(folder: Path, number: int) -> None:
    """A small checkpoint whose every part says which one it is."""
    tensors = {"model": {"w": torch.full((3, 5), number / 3)}, "optimizer": {"m": torch.full((4,), number)}}
    save_checkpoint(folder, tensors, {"state": {"number": number, "note": "some text"}})


def number_in(folder: Path) -> int:
    checkpoint = load_checkpoint(folder)
    number = int(checkpoint.documents["state"]["number"])
    assert torch.equal(checkpoint.tensors["model"]["w"], torch.full((3, 5), number / 3))
    assert torch.equal(checkpoint.tensors["optimizer"]["m"], torch.full((4,), number))
    return number


def reseal(folder: Path) -> None:
    """Write a manifest that fits whatever the folder holds now, as a forger would."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MANIFEST}
    (folder / MANIFEST).write_bytes(manifest_of(files))


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and raw_bytes(a) == raw_bytes(b)


def raw_bytes(tensor: Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().contiguous()
    return bytes(plain.reshape(-1).view(torch.uint8).tolist())


def forked(action: Callable[[], None], limit: int = 20) -> int:
    """Run something in a child process and return how it ended: 0, or minus the signal that killed it, or 1."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(limit)
            action()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"child: {error!r}\n".encode())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# --- round trip -----------------------------------------------------------------------------------------------------

DTYPES = [*FLOATS, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool]
DTYPES += [torch.complex64, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (8, 9), (2, 3, 5, 7)])
def test_every_tensor_comes_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    size = dtype.itemsize * int(torch.tensor(shape).prod()) if shape else dtype.itemsize
    noise = torch.randint(0, 2 if dtype == torch.bool else 256, (size,), dtype=torch.uint8)  # any bits: NaN, inf, -0
    tensor = noise.view(dtype).reshape(shape)
    save_checkpoint(tmp_path / "c", {"model": {"w": tensor}}, {})
    assert same_bits(load_checkpoint(tmp_path / "c").tensors["model"]["w"], tensor)


@pytest.mark.parametrize("dtype", FLOATS)
def test_views_shared_memory_and_pending_conjugations_are_stored_as_they_look(tmp_path: Path, dtype: torch.dtype) -> None:
    base = torch.randn(6, 6, dtype=dtype)
    conjugate = torch.view_as_complex(base.reshape(-1, 2)).conj()
    group = {"a": base, "b": base, "t": base.T, "s": base[1:, ::2], "e": base[:1].expand(4, 6), "c": conjugate}
    group["p"] = torch.nn.Parameter(base)
    group["n"] = conjugate.imag  # carries a pending sign
    save_checkpoint(tmp_path / "c", {"model": group}, {})
    loaded = load_checkpoint(tmp_path / "c").tensors["model"]
    assert loaded.keys() == group.keys()
    assert all(loaded[name].dtype == group[name].dtype and torch.equal(loaded[name], group[name]) for name in group)


def test_loaded_tensors_can_be_trained_on(tmp_path: Path) -> None:
    save_number(tmp_path / "c", 1)
    load_checkpoint(tmp_path / "c").tensors["model"]["w"].add_(1)
    assert number_in(tmp_path / "c") == 1


def test_documents_come_back_equal(tmp_path: Path) -> None:
    documents = {
        "state": {"epoch": 3, "best": float("inf"), "lr": 0.1 + 0.2, "on": True, "none": None},
        "list": [1, "é"],
    }
    save_checkpoint(tmp_path / "c", {}, documents)
    assert load_checkpoint(tmp_path / "c") == Checkpoint({}, documents)


@pytest.mark.parametrize(
    ("tensors", "documents"),
    [
        ({"../model": {}}, {}),
        ({"": {}}, {}),
        ({}, {"manifest": {}}),
        ({}, {"a/b": 1}),
        ({}, {"state": object()}),
        ({"model": {"__metadata__": torch.ones(1)}}, {}),
        ({"model": {"w|complex128": torch.ones(2)}}, {}),
        ({"model": {"w": torch.ones(2, 2).to_sparse()}}, {}),
        ({"model": {"w": "text"}}, {}),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path, tensors: Any, documents: Any) -> None:
    with pytest.raises(CheckpointError):
        save_checkpoint(tmp_path / "c", tensors, documents)
    assert not list(tmp_path.iterdir())


def test_a_document_above_the_limit_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pacefno.training.manifest.DOCUMENT_LIMIT", 100)
    with pytest.raises(CheckpointError, match=r"state.json: has 1\d\d bytes, more than 100"):
        save_checkpoint(tmp_path / "c", {}, {"state": "x" * 120})


# --- states of optimizers -------------------------------------------------------------------------------------------


def adamw_with_two_groups(parameters: list[Tensor]) -> torch.optim.Optimizer:
    groups: list[dict[str, Any]] = [{"params": parameters[:1], "lr": 0.1}, {"params": parameters[1:]}]
    return torch.optim.AdamW(groups, lr=1e-2)


OPTIMIZERS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw": adamw_with_two_groups,
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=1e-2, max_iter=2),
}


def trained(parameters: list[Tensor], optimizer: torch.optim.Optimizer, steps: int) -> None:
    def loss() -> float:
        optimizer.zero_grad()
        value = sum((p.abs() ** 2).sum() for p in parameters) + (parameters[0] ** 4).sum()
        torch.autograd.backward(value)
        return float(value.detach())

    for _ in range(steps):
        optimizer.step(loss)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_optimizer_continues_bit_for_bit_from_its_stored_state(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    second = torch.randn(3, dtype=dtype) if kind == "lbfgs" else torch.randn(3, dtype=dtype.to_complex())
    parameters = [torch.randn(4, 3, dtype=dtype).requires_grad_(), second.requires_grad_()]
    optimizer = OPTIMIZERS[kind](parameters)
    trained(parameters, optimizer, 3)
    tensors, document = flatten_state(optimizer.state_dict())
    weights = {str(i): p for i, p in enumerate(parameters)}
    save_checkpoint(tmp_path / "c", {"optimizer": tensors, "model": weights}, {"optimizer": document})
    loaded = load_checkpoint(tmp_path / "c")
    again = [loaded.tensors["model"][str(i)].requires_grad_() for i in range(2)]
    resumed = OPTIMIZERS[kind](again)
    resumed.load_state_dict(unflatten_state(loaded.tensors["optimizer"], loaded.documents["optimizer"]))
    trained(parameters, optimizer, 3)
    trained(again, resumed, 3)
    assert all(same_bits(a, b) for a, b in zip(parameters, again, strict=True))


def test_keys_and_kinds_survive_flattening() -> None:
    state = {0: {"a.b": (1, 2.5, None)}, "0": [True, {"a": {"b": -0.0}}], "t": ([], {}, ())}
    assert repr(unflatten_state(*flatten_state(state))) == repr(state)


def test_tensors_under_keys_with_equal_text_stay_apart() -> None:
    state = {0: torch.zeros(1), "0": torch.ones(1), "a.b": torch.ones(2), "a": {"b": torch.ones(3)}}
    back = unflatten_state(*flatten_state(state))
    assert back[0] is state[0]
    assert back["0"] is state["0"]
    assert back["a.b"] is state["a.b"]


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
states = st.recursive(
    leaves,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.integers() | st.text(), inner),
    max_leaves=12,
)


@given(states)
def test_any_nested_state_survives_flattening_and_json(state: Any) -> None:
    tensors, document = flatten_state({"state": state, "tensor": torch.ones(2)})
    back = unflatten_state(tensors, json.loads(json.dumps(document)))
    assert repr(back["state"]) == repr(state)
    assert back["tensor"] is next(iter(tensors.values()))


@pytest.mark.parametrize("state", [{1.5: 0}, {True: 0}, {"a": {1, 2}}, [object()], {"f": print}])
def test_a_state_that_would_come_back_different_is_refused_with_its_place(state: Any) -> None:
    with pytest.raises(TypeError, match=r"^state"):
        flatten_state(state)


@given(states)
def test_a_foreign_document_gives_only_a_checkpoint_error(document: Any) -> None:
    with suppress(CheckpointError):
        assert flatten_state(unflatten_state({}, document))[0] == {}, "tensors out of nothing"


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder = tmp_path / "epoch-1"
    save_number(folder, 1)
    return folder


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_anywhere_is_refused_by_name(whole: Path, name: str) -> None:
    content = (whole / name).read_bytes()
    cuts = {round(i * (len(content) - 1) / 19) for i in range(20)}
    assert len(cuts) == 20
    for cut in cuts:
        (whole / name).write_bytes(content[:cut])
        with pytest.raises(CheckpointError, match=r"truncated|altered") as caught:
            load_checkpoint(whole)
        assert caught.value.path == whole / name
        assert "resume from an older one" in caught.value.reason
    (whole / name).write_bytes(content)
    assert number_in(whole) == 1


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_noticed(whole: Path, name: str) -> None:
    content = (whole / name).read_bytes()
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        (whole / name).write_bytes(flipped)
        with pytest.raises(CheckpointError) as caught:
            load_checkpoint(whole)
        assert name == MANIFEST or caught.value.path == whole / name


def test_without_the_sums_a_flipped_bit_would_load_as_wrong_weights(whole: Path) -> None:
    """Shows that the test above can fail: safetensors alone does not notice."""
    path = whole / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    reseal(whole)
    assert not torch.equal(load_checkpoint(whole).tensors["model"]["w"], torch.full((3, 5), 1 / 3))


def _manifest_with(**changes: Any) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        manifest = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps(manifest | changes, indent=1))

    return spoil


def _link_elsewhere(folder: Path) -> None:
    shutil.copy(folder / "state.json", folder.parent / "secret.json")
    (folder / "state.json").unlink()
    (folder / "state.json").symlink_to(folder.parent / "secret.json")


def _pipe(folder: Path) -> None:
    (folder / "state.json").unlink()
    os.mkfifo(folder / "state.json")


def _entry(size: object = 2) -> dict[str, Any]:
    return {"bytes": size, "sha256": "0" * 64}


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing manifest": (lambda f: (f / MANIFEST).unlink(), "manifest.json: is missing"),
    "missing file": (lambda f: (f / "state.json").unlink(), "state.json: is missing"),
    "extra file": (lambda f: (f / "notes.txt").write_text("x"), "notes.txt: is not listed"),
    "extra folder": (lambda f: (f / "more").mkdir(), "more: is not listed"),
    "extra pickle": (lambda f: (f / "model.pt").write_bytes(b"x"), "model.pt: .*pickled files are never opened"),
    "linked file": (_link_elsewhere, "state.json: is a link"),
    "pipe": (_pipe, "state.json: is a link or no regular file"),
    "grown file": (lambda f: (f / "state.json").write_bytes(b"{}" * 100), "state.json: is too long"),
    "newer format": (_manifest_with(format=2), "format 2, this version reads 1: use the pacefno that wrote it"),
    "true as format": (_manifest_with(format=True), "altered"),
    "no format": (_manifest_with(format=None), "format None"),
    "parent path": (_manifest_with(files={"../secret.json": _entry()}), "lists '../secret.json'"),
    "absolute path": (_manifest_with(files={"/etc/passwd": _entry()}), "lists '/etc/passwd'"),
    "windows path": (_manifest_with(files={"..\\a.json": _entry()}), "lists"),
    "itself": (_manifest_with(files={MANIFEST: _entry()}), "lists 'manifest.json'"),
    "files as a list": (_manifest_with(files=["state.json"]), "no list of files"),
    "entry as text": (_manifest_with(files={"state.json": "x"}), "no size"),
    "size as text": (_manifest_with(files={"state.json": _entry("2")}), "no size"),
    "negative size": (_manifest_with(files={"state.json": _entry(-1)}), "not listed|too long"),
    "huge document": (_manifest_with(files={"state.json": _entry(10**12)}), "more than"),
    "huge manifest": (lambda f: (f / MANIFEST).write_bytes(b" " * 1_000_001), "manifest.json: is too long"),
    "deep manifest": (lambda f: (f / MANIFEST).write_bytes(b"[" * 900_000), "manifest.json: is truncated or altered"),
    "other spelling": (lambda f: (f / MANIFEST).write_text((f / MANIFEST).read_text() + "\n"), "altered"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_spoiled_folder_is_refused_and_the_message_names_the_file(whole: Path, what: str) -> None:
    spoil, message = SPOILED[what]
    spoil(whole)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(whole)
    assert str(caught.value).startswith(str(whole))


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff\xfe", b"{", b"9" * 5000])
def test_a_document_that_is_no_json_is_refused_even_with_a_matching_manifest(whole: Path, content: bytes) -> None:
    (whole / "state.json").write_bytes(content)
    reseal(whole)
    with pytest.raises(CheckpointError, match=r"state\.json: has no valid content"):
        load_checkpoint(whole)


def test_what_is_no_folder_is_refused(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(whole)
    (tmp_path / "file").write_text("x")
    reasons = {
        "link": "symbolic link",
        "file": "pickled files .* are never opened",
        "nothing": "there is no checkpoint",
    }
    for name, reason in reasons.items():
        with pytest.raises(CheckpointError, match=reason):
            load_checkpoint(tmp_path / name)
    with pytest.raises(CheckpointError):
        load_checkpoint(tmp_path / ("long" * 100))


damage = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@damage
@given(name=st.sampled_from(FILES), content=st.binary(max_size=400))
def test_random_bytes_in_any_file_give_only_a_checkpoint_error(whole: Path, name: str, content: bytes) -> None:
    original = (whole / name).read_bytes()
    try:
        (whole / name).write_bytes(content)
        with pytest.raises(CheckpointError):
            load_checkpoint(whole)
    finally:
        (whole / name).write_bytes(original)


@damage
@given(data=st.data(), name=st.sampled_from(FILES[:3]))
def test_a_forged_file_with_a_matching_manifest_gives_a_checkpoint_error_or_plain_data(
    whole: Path, data: st.DataObject, name: str
) -> None:
    original = (whole / name).read_bytes()
    start = data.draw(st.integers(0, len(original)))
    stop = data.draw(st.integers(start, len(original)))
    try:
        (whole / name).write_bytes(original[:start] + data.draw(st.binary(max_size=40)) + original[stop:])
        reseal(whole)
        loaded = load_checkpoint(whole)
        assert all(isinstance(tensor, Tensor) for group in loaded.tensors.values() for tensor in group.values())
    except CheckpointError:
        pass
    finally:
        (whole / name).write_bytes(original)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(FILES),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*FILES, "format", "files", "bytes", "sha256"]), inner),
    max_leaves=8,
)


@damage
@given(files=json_values, format=st.just(1) | json_values)
def test_any_json_as_manifest_gives_only_a_checkpoint_error(whole: Path, files: Any, format: Any) -> None:
    (whole / MANIFEST).write_text(json.dumps({"format": format, "files": files}))
    with pytest.raises(CheckpointError):
        load_checkpoint(whole)


# --- pickles --------------------------------------------------------------------------------------------------------


class Exploit:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def test_a_malicious_pickle_is_refused_wherever_it_is_put_and_never_runs(whole: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    exploit = pickle.dumps(Exploit(marker))
    places = [tmp_path / f"evil{suffix}" for suffix in (".pt", ".PTH", ".pkl", ".ckpt", ".bin", "")]
    for place in places:
        place.write_bytes(exploit)
    shutil.copytree(whole, tmp_path / "folder.ckpt")
    for name in ("model.safetensors", "state.json"):
        shutil.copytree(whole, tmp_path / f"inside-{name}")
        (tmp_path / f"inside-{name}" / name).write_bytes(exploit)
        shutil.copytree(tmp_path / f"inside-{name}", tmp_path / f"sealed-{name}")
        reseal(tmp_path / f"sealed-{name}")
    shutil.copytree(whole, tmp_path / "extra")
    (tmp_path / "extra" / "model.pt").write_bytes(exploit)
    places = [path for path in tmp_path.iterdir() if path != whole]
    assert len(places) == 12
    for place in places:
        with pytest.raises(CheckpointError):
            load_checkpoint(place)
    assert not marker.exists()
    pickle.loads(exploit)  # and it was a real one
    assert marker.exists()


def test_the_refusal_of_a_pickled_file_says_why(tmp_path: Path) -> None:
    for name in ("model.pt", "model.pth", "model.pkl", "model.ckpt"):
        with pytest.raises(CheckpointError, match=r"pickled files .* are never opened"):
            load_checkpoint(tmp_path / name)


# --- kill -9 --------------------------------------------------------------------------------------------------------

EVENTS = {"os.fsync", "open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}


def killed_at(moment: int, action: Callable[[], object]) -> bool:
    """Run an action in a child that kills itself at its n-th touch of the file system; whether it got that far."""

    def child() -> None:
        touches = 0

        def touch(event: str, _: object = None) -> None:
            nonlocal touches
            touches += event in EVENTS
            if event in EVENTS and touches == moment:
                os.kill(os.getpid(), signal.SIGKILL)

        def fsync(descriptor: Any) -> None:
            touch("os.fsync")
            real_fsync(descriptor)

        real_fsync = os.fsync
        vars(os)["fsync"] = fsync  # Python announces everything else in EVENTS by itself
        sys.addaudithook(touch)
        action()

    ended = forked(child)
    assert ended in (0, -signal.SIGKILL)
    return ended != 0


def survivors(root: Path, prepare: Callable[[Path], None], action: Callable[[Path], object]) -> Iterator[Path]:
    """The run folders that a kill at the first, second, ... moment of an action leaves, then an undisturbed one."""
    prepare(root / "template")
    for moment in itertools.count(1):
        run = shutil.copytree(root / "template", root / str(moment))
        killed = killed_at(moment, partial(action, run))
        yield run
        if not killed:
            return


def two_epochs(run: Path) -> None:
    save_number(run / "epoch-1", 1)
    save_number(run / "epoch-2", 2)


def two_epochs_interrupted_early(run: Path) -> None:
    """As a kill between the two renames of a replacement leaves it."""
    two_epochs(run)
    os.rename(run / "epoch-2", run / "epoch-2.previous")


def two_epochs_interrupted_late(run: Path) -> None:
    """As a kill before the deletion of the replaced one leaves it."""
    two_epochs(run)
    shutil.copytree(run / "epoch-1", run / "epoch-2.previous")


def replace_second(run: Path) -> None:
    save_number(run / "epoch-2", 3)


@pytest.mark.parametrize("prepare", [two_epochs, two_epochs_interrupted_early, two_epochs_interrupted_late])
def test_a_kill_at_any_moment_of_a_replacement_leaves_the_old_or_the_new_one(
    tmp_path: Path, prepare: Callable[[Path], None]
) -> None:
    seen = []
    for run in survivors(tmp_path, prepare, replace_second):
        found = latest(run)
        assert found == Latest(run / "epoch-2", ())
        seen.append(number_in(run / "epoch-2"))
        check_that_life_goes_on(run)
    assert len(seen) > 15  # moments, not luck
    assert seen == sorted(seen)
    assert set(seen) == {2, 3}


def test_a_kill_at_any_moment_of_a_new_save_leaves_the_last_or_the_new_one(tmp_path: Path) -> None:
    seen = []
    for run in survivors(tmp_path, two_epochs, lambda run: save_number(run / "epoch-10", 10)):
        found = latest(run)
        assert found.path is not None
        assert not found.rejected
        seen.append(number_in(found.path))
        check_that_life_goes_on(run)
    assert len(seen) > 10
    assert set(seen) == {2, 10}


def test_a_kill_at_any_moment_of_pruning_leaves_the_newest(tmp_path: Path) -> None:
    seen = []
    for run in survivors(tmp_path, two_epochs, lambda run: prune(run, keep=1)):
        assert latest(run) == Latest(run / "epoch-2", ())
        assert not (run / "epoch-1").exists() or number_in(run / "epoch-1") == 1
        seen.append((run / "epoch-1").exists())
        check_that_life_goes_on(run)
    assert set(seen) == {True, False}


def check_that_life_goes_on(run: Path) -> None:
    """The next start cleans up, saves over whatever the kill left, and finds what it saved."""
    remove_stale_temporaries(run)
    assert latest(run).path is not None
    for name in ("epoch-2", "epoch-20"):
        save_number(run / name, 20)
        assert number_in(run / name) == 20
    assert latest(run) == Latest(run / "epoch-20", ())
    assert {path.name for path in run.iterdir()} <= {"epoch-1", "epoch-2", "epoch-10", "epoch-20"}


def replace_in_place(run: Path) -> None:
    """What not to do: the usual way to save, one file after the other over the old ones."""
    for path in sorted((run / "epoch-2").iterdir()):
        content = path.read_bytes().replace(b": 2", b": 3")
        path.unlink()
        path.write_bytes(content)


def replace_by_delete_and_rename(run: Path) -> None:
    """What not to do either: a finished new folder, but the old one is deleted first."""
    shutil.copytree(run / "epoch-2", run / "new")
    shutil.rmtree(run / "epoch-2")
    os.rename(run / "new", run / "epoch-2")


@pytest.mark.parametrize("broken", [replace_in_place, replace_by_delete_and_rename])
def test_the_kill_tests_find_a_saver_that_is_not_safe(tmp_path: Path, broken: Callable[[Path], None]) -> None:
    found = [latest(run) for run in survivors(tmp_path, two_epochs, broken)]
    assert any(one.path is None or one.path.name != "epoch-2" for one in found)


# --- power cut ------------------------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is forced to the disk and what is renamed, in order; ``~`` stands for the temporary ending."""
    lines: list[str] = []
    real_fsync, real_rename, real_replace = os.fsync, os.rename, os.replace

    def short(path: Path) -> str:
        return str(path.relative_to(tmp_path)).replace(f".tmp-{os.getpid()}", "~")

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        (path,) = [path for path in [tmp_path, *tmp_path.rglob("*")] if path.stat().st_ino == status.st_ino]
        lines.append(f"fsync {short(path)}" + (" (empty)" if status.st_size == 0 else ""))
        real_fsync(descriptor)

    def moved(real: Callable[[Path, Path], None], source: Path, target: Path) -> None:
        if source.exists():
            lines.append(f"{short(source)} -> {short(target)}")
        real(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", partial(moved, real_rename))
    monkeypatch.setattr(os, "replace", partial(moved, real_replace))
    return lines


NEW = [f"fsync run/best~/{name}" for name in FILES] + ["fsync run/best~", "run/best~ -> run/best", "fsync run"]
REPLACED = [*NEW[:5], "run/best -> run/best.previous", "fsync run", *NEW[5:]]
REPLACED += ["run/best.previous -> run/best.previous~"]


def test_everything_is_on_the_disk_before_it_gets_its_name_and_the_name_before_the_old_one_goes(
    tmp_path: Path, journal: list[str]
) -> None:
    save_number(tmp_path / "run" / "best", 1)
    assert journal == ["fsync .", *NEW]
    journal.clear()
    save_number(tmp_path / "run" / "best", 2)
    assert journal == REPLACED


def test_a_saver_that_forgets_to_force_a_folder_or_a_file_is_found(
    tmp_path: Path, journal: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    for name, broken in {"fsync_dir": lambda _: None, "write_file": Path.write_bytes}.items():
        with monkeypatch.context() as patch:
            patch.setattr(store, name, broken)
            save_number(tmp_path / "run" / "best", 1)
        assert journal not in (NEW, REPLACED)
        journal.clear()


def test_a_text_is_on_the_disk_before_it_replaces_the_old_one(tmp_path: Path, journal: list[str]) -> None:
    write_text_atomically(tmp_path / "a.toml", "old")
    journal.clear()
    write_text_atomically(tmp_path / "a.toml", "new é")
    assert journal == ["fsync a.toml~", "a.toml~ -> a.toml", "fsync ."]
    assert [path.name for path in tmp_path.iterdir()] == ["a.toml"]
    assert (tmp_path / "a.toml").read_text(encoding="utf-8") == "new é"


# --- full disk ------------------------------------------------------------------------------------------------------


def test_a_full_disk_gives_one_clear_error_and_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    save_number(tmp_path / "epoch-1", 1)
    message = tmp_path / "message"

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            save_checkpoint(tmp_path / "epoch-1", {"model": {"w": torch.ones(5000)}}, {})
        except CheckpointError as error:
            message.write_text(str(error))

    assert forked(child) == 0
    text = message.read_text()
    assert text.startswith(f"{tmp_path / 'epoch-1'}: could not be written (File too large): 200")
    assert re.search(r"200\d\d bytes needed, \d+ bytes free on the disk .* the last good checkpoint is untouched", text)
    assert number_in(tmp_path / "epoch-1") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"epoch-1", "message"}


@pytest.mark.parametrize("call", ["fsync", "rename", "mkdir"])
def test_an_error_at_any_call_leaves_a_checkpoint_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    save_number(tmp_path / "best", 1)
    real = getattr(os, call)
    failures = 0
    for moment in range(20):
        calls = iter(range(100))

        def fail(*args: Any, moment: int = moment, calls: Iterator[int] = calls, **options: Any) -> None:
            if next(calls) == moment:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(*args, **options)

        try:
            with monkeypatch.context() as patch:
                patch.setattr(os, call, fail)
                save_number(tmp_path / "best", 2)
        except CheckpointError as error:
            failures += 1
            assert "No space left" in error.reason
        assert number_in(tmp_path / "best") in (1, 2)
        assert not [path for path in tmp_path.iterdir() if ".tmp-" in path.name]
    assert failures >= {"fsync": 6, "rename": 2, "mkdir": 1}[call]


def test_an_interruption_by_the_keyboard_leaves_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_number(tmp_path / "best", 1)

    def interrupted(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "fsync_dir", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_number(tmp_path / "best", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


# --- a run's checkpoints --------------------------------------------------------------------------------------------


def test_nothing_replaces_what_is_no_checkpoint(tmp_path: Path, whole: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("x")
    (tmp_path / "link").symlink_to(whole)
    (tmp_path / "file").write_text("x")
    for name in ("home", "link", "file", "best.pt", "..", "file/below"):
        with pytest.raises(CheckpointError):
            save_number(tmp_path / name, 2)
    assert (tmp_path / "home" / "thesis.tex").exists()
    assert number_in(whole) == 1


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_checkpoint_can_be_saved_again(whole: Path, name: str) -> None:
    (whole / name).unlink()
    save_number(whole, 2)
    assert number_in(whole) == 2


def test_latest_of_an_empty_or_missing_run_is_none(tmp_path: Path) -> None:
    assert latest(tmp_path) == latest(tmp_path / "none") == Latest(None, ())


def test_latest_counts_by_number_and_ignores_other_names(tmp_path: Path) -> None:
    for name in ("epoch-9", "epoch-10", "epoch-x", "best", "epoch-11.tmp-1", "step-99"):
        save_number(tmp_path / name, 1)
    assert latest(tmp_path) == Latest(tmp_path / "epoch-10", ())
    assert latest(tmp_path, prefix="step-").path == tmp_path / "step-99"


def test_latest_passes_over_broken_ones_and_reports_them(tmp_path: Path) -> None:
    for number in (1, 2, 3, 4):
        save_number(tmp_path / f"epoch-{number}", number)
    (tmp_path / "epoch-4" / "state.json").write_bytes(b"{}")
    (tmp_path / "epoch-3" / MANIFEST).unlink()
    found = latest(tmp_path)
    assert found.path == tmp_path / "epoch-2"
    assert [error.path.parent.name for error in found.rejected] == ["epoch-4", "epoch-3"]
    assert [error.path.name for error in found.rejected] == ["state.json", MANIFEST]


def test_pruning_keeps_the_newest_good_ones_and_whatever_is_newer(tmp_path: Path) -> None:
    for number in range(1, 7):
        save_number(tmp_path / f"epoch-{number}", number)
    save_number(tmp_path / "best", 1)
    (tmp_path / "epoch-6" / "state.json").unlink()
    (tmp_path / "epoch-4" / "state.json").unlink()
    assert prune(tmp_path, keep=2) == [tmp_path / "epoch-2", tmp_path / "epoch-1"]
    assert {path.name for path in tmp_path.iterdir()} == {"best", "epoch-3", "epoch-4", "epoch-5", "epoch-6"}


def test_pruning_never_deletes_the_last_good_one(tmp_path: Path) -> None:
    for number in range(1, 5):
        save_number(tmp_path / f"epoch-{number}", number)
        if number > 1:
            (tmp_path / f"epoch-{number}" / "state.json").unlink()
    assert prune(tmp_path, keep=1) == []
    assert latest(tmp_path).path == tmp_path / "epoch-1"
    with pytest.raises(ValueError, match="at least 1, got 0"):
        prune(tmp_path, keep=0)


def test_only_the_leftovers_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead = os.fork()
    if dead == 0:
        os._exit(0)
    os.waitpid(dead, 0)
    keep = [temporary_sibling(tmp_path / "mine"), tmp_path / "best", tmp_path / ".tmp-", tmp_path / "a.tmp-1"]
    stale = [tmp_path / f"shard.h5.tmp-{dead}", tmp_path / f"epoch-1.tmp-{dead}", tmp_path / f"z.tmp-{10**30}"]
    for path in keep:
        path.write_text("x")
    stale[0].write_text("x")
    save_number(stale[1], 1)
    stale[2].symlink_to(tmp_path / "best")
    assert set(remove_stale_temporaries(tmp_path)) == set(stale)
    assert set(tmp_path.iterdir()) == set(keep)


def test_the_sum_of_a_file_is_the_known_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_of(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_folder_that_cannot_be_forced_to_the_disk_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(code: int) -> Callable[[Path], None]:
        def fsync_file(_: Path) -> None:
            raise OSError(code, "refused")

        return fsync_file

    monkeypatch.setattr(durable, "fsync_file", refuse(errno.EINVAL))
    durable.fsync_dir(tmp_path)
    monkeypatch.setattr(durable, "fsync_file", refuse(errno.EIO))
    with pytest.raises(OSError, match="refused"):
        durable.fsync_dir(tmp_path)


# --- the lock -------------------------------------------------------------------------------------------------------


@contextmanager
def held_by_a_child(folder: Path) -> Iterator[int]:
    """A child process that holds the lock until it is killed."""
    ready, started = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(20)
            with FolderLock(folder):
                os.write(started, b"x")
                signal.pause()
        finally:
            os._exit(1)
    os.close(started)
    assert os.read(ready, 1) == b"x"
    os.close(ready)
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def test_a_second_process_is_refused_and_told_who_holds_the_run(tmp_path: Path) -> None:
    with held_by_a_child(tmp_path / "run") as pid:
        with pytest.raises(FolderInUseError, match=f"in use by process {pid} on this machine: wait for it, stop it"):
            FolderLock(tmp_path / "run").__enter__()
        assert json.loads((tmp_path / "run" / "run.lock").read_text())["pid"] == pid


def test_a_lock_that_does_not_exclude_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "O_EXCL", 0)
    with FolderLock(tmp_path), pytest.raises(pytest.fail.Exception), pytest.raises(FolderInUseError):
        FolderLock(tmp_path).__enter__()


@pytest.mark.parametrize("collected", [True, False])
def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path, collected: bool) -> None:
    with held_by_a_child(tmp_path) as pid:
        os.kill(pid, signal.SIGKILL)
        if collected:
            os.waitpid(pid, 0)
        else:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # dead, but its number is still there
        with FolderLock(tmp_path):
            assert json.loads((tmp_path / "run.lock").read_text())["pid"] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_the_lock_is_released_after_an_exception_and_can_be_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), FolderLock(tmp_path):
            raise ZeroDivisionError
        assert not list(tmp_path.iterdir())


def test_one_process_cannot_lock_twice(tmp_path: Path) -> None:
    with FolderLock(tmp_path) as lock:
        for second in (lock, FolderLock(tmp_path)):
            with pytest.raises(FolderInUseError):
                second.__enter__()
        assert (tmp_path / "run.lock").exists()
    assert not (tmp_path / "run.lock").exists()


def test_a_forked_worker_does_not_release_its_parents_lock(tmp_path: Path) -> None:
    with FolderLock(tmp_path) as lock:
        assert forked(lambda: lock.__exit__(None, None, None)) == 0
        assert (tmp_path / "run.lock").exists()


def test_a_lock_that_somebody_replaced_is_not_deleted(tmp_path: Path) -> None:
    with FolderLock(tmp_path):
        (tmp_path / "run.lock").write_text("somebody else's")
    assert (tmp_path / "run.lock").exists()


def write_lock(folder: Path, **changes: Any) -> None:
    with FolderLock(folder):
        mine = json.loads((folder / "run.lock").read_text())
    (folder / "run.lock").write_text(json.dumps(mine | changes))


def test_a_lock_from_another_machine_is_never_taken_over(tmp_path: Path) -> None:
    write_lock(tmp_path, host="elsewhere", pid=2**22 + 1)
    with pytest.raises(FolderInUseError, match=r"on elsewhere, and nobody can tell .* delete .*run\.lock"):
        FolderLock(tmp_path).__enter__()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells when a process began")
def test_a_lock_whose_process_number_was_given_to_a_new_process_is_taken_over(tmp_path: Path) -> None:
    write_lock(tmp_path, born="another boot/1")
    with FolderLock(tmp_path):
        assert json.loads((tmp_path / "run.lock").read_text())["born"] != "another boot/1"


def test_an_unreadable_lock_blocks_for_a_minute_only(tmp_path: Path) -> None:
    (tmp_path / "run.lock").write_text("")
    with pytest.raises(FolderInUseError, match="try again in a minute"):
        FolderLock(tmp_path).__enter__()
    os.utime(tmp_path / "run.lock", (time.time() - 61,) * 2)
    with FolderLock(tmp_path):
        pass


def start_contender(folder: Path, gate: tuple[int, int], results: int) -> int:
    """A child that waits at the gate, then tries to lock, writes ``g`` (got it) or ``b`` (busy), and stays."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        os.close(gate[1])
        os.read(gate[0], 1)  # returns when the parent closes the other end
        try:
            FolderLock(folder).__enter__()
            os.write(results, b"g")
        except FolderInUseError:
            os.write(results, b"b")
        signal.pause()
        os._exit(1)
    return pid


def test_of_many_that_find_a_stale_lock_exactly_one_gets_it(tmp_path: Path) -> None:
    for attempt in range(10):
        write_lock(tmp_path / str(attempt), pid=2**22 + 1)
        gate, (report, results) = os.pipe(), os.pipe()
        children = [start_contender(tmp_path / str(attempt), gate, results) for _ in range(6)]
        os.close(gate[1])
        answers = b""
        while len(answers) < len(children):
            answers += os.read(report, 1)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for descriptor in (gate[0], report, results):
            os.close(descriptor)
        assert sorted(answers) == sorted(b"gbbbbb")
