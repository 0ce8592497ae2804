"""Checkpoints: what was saved comes back bit for bit, or not at all; whatever happens to the process, disk or files."""

from __future__ import annotations

import errno
import json
import os
import pickle
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pacefno import durable
from pacefno.durable import remove_stale_temporaries, sha256_of, temporary_sibling, write_text_atomically
from pacefno.training import lock as lock_module
from pacefno.training import store
from pacefno.training.lock import RunInUseError, RunLock
from pacefno.training.manifest import MANIFEST, manifest_of
from pacefno.training.store import (
    Checkpoint,
    CheckpointError,
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
    save_checkpoint(folder, tensors, {"state": {"number": number}})


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
    documents = {"state": {"epoch": 3, "best": float("inf"), "lr": 0.1 + 0.2, "on": True, "none": None}, "list": [1, "é"]}
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

OPTIMIZERS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW([{"params": p[:1], "lr": 0.1}, {"params": p[1:]}], lr=1e-2),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=1e-2, max_iter=2),
}


def trained(parameters: list[Tensor], optimizer: torch.optim.Optimizer, steps: int) -> None:
    def loss() -> float:
        optimizer.zero_grad()
        value = sum((p.abs() ** 2).sum() for p in parameters) + (parameters[0] ** 4).sum()
        value.backward()
        return float(value)

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
    with pytest.raises(TypeError, match="^state"):
        flatten_state(state)


@given(states)
def test_a_foreign_document_gives_only_a_checkpoint_error(document: Any) -> None:
    try:
        unflatten_state({}, document)
    except CheckpointError:
        pass


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
        with pytest.raises(CheckpointError, match="truncated|altered") as caught:
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
        with pytest.raises(CheckpointError):
            load_checkpoint(whole)


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
    reasons = {"link": "symbolic link", "file": "pickled files .* are never opened", "nothing": "there is no checkpoint"}
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
        load_checkpoint(whole)
    except CheckpointError:
        pass
    finally:
        (whole / name).write_bytes(original)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(FILES),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from([*FILES, "format", "files", "bytes", "sha256"]), inner)
    ),
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
        with pytest.raises(CheckpointError, match="pickled files .* are never opened"):
            load_checkpoint(tmp_path / name)


# --- kill -9 --------------------------------------------------------------------------------------------------------

EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}


def killed_at(moment: int, action: Callable[[], None]) -> bool:
    """Run an action in a child that kills itself at its n-th touch of the file system; whether it got that far."""

    def child() -> None:
        touches = 0

        def touch(event: str = "fsync", _: object = None) -> None:
            nonlocal touches
            touches += event == "fsync" or event in EVENTS
            if touches == moment:
                os.kill(os.getpid(), signal.SIGKILL)

        real_fsync = os.fsync
        os.fsync = lambda descriptor: (touch(), real_fsync(descriptor), touch())[1]
        sys.addaudithook(touch)
        action()

    ended = forked(child)
    assert ended in (0, -signal.SIGKILL)
    return ended != 0


def prepared(root: Path) -> Path:
    save_number(root / "epoch-1", 1)
    save_number(root / "epoch-2", 2)
    return root


def interrupted_early(root: Path) -> Path:
    """As a kill between the two renames of a replacement leaves it."""
    os.rename(prepared(root) / "epoch-2", root / "epoch-2.previous")
    return root


def interrupted_late(root: Path) -> Path:
    """As a kill before the deletion of the replaced one leaves it."""
    shutil.copytree(prepared(root) / "epoch-1", root / "epoch-2.previous")
    return root


KILLS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object], set[int]]] = {
    "a new one": (prepared, lambda root: save_number(root / "epoch-3", 3), {2, 3}),
    "a replacement": (prepared, lambda root: save_number(root / "epoch-2", 3), {2, 3}),
    "a replacement after an early kill": (interrupted_early, lambda root: save_number(root / "epoch-2", 3), {2, 3}),
    "a replacement after a late kill": (interrupted_late, lambda root: save_number(root / "epoch-2", 3), {2, 3}),
    "pruning": (prepared, lambda root: prune(root, keep=1), {2}),
}


def survivors(root: Path, prepare: Callable[[Path], Path], action: Callable[[Path], object]) -> Iterator[Path]:
    """The run folders that kills at the first, second, third, ... moment of an action leave."""
    moment = 1
    while killed_at(moment, lambda: action(prepare(root / str(moment))) and None if False else _act(action, root, moment)):
        moment += 1
        yield root
