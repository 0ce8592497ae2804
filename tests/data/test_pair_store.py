"""Files of pairs: what was written comes back, and a file that is not as written is refused."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from small_recipes import BURGERS, folder, opened_tiny

from pacefno.data import DatasetError, PairDataset, generate, store
from pacefno.data.recipe import Arrays
from pacefno.data.store import DamagedError, read_arrays, read_document, verify, write_split
from pacefno.errors import UsageError

DOCUMENT = {"name": "made up", "seed": 3, "samples": {"train": 6}, "step": 0.1}


def some_arrays(rows: int = 6) -> Arrays:
    random = np.random.default_rng(0)
    return {
        "input": random.normal(size=(rows, 2, 8)).astype(np.float32),
        "target": random.normal(size=(rows, 2, 8)).astype(np.float32),
        "xi": random.normal(size=(rows, 3)),
        "redraws": np.arange(rows),
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A good file."""
    place = tmp_path / "train.h5"
    write_split(place, [some_arrays()], 6, DOCUMENT)
    return place


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished dataset for all tests that only read."""
    return generate(BURGERS, "tiny", root=tmp_path_factory.mktemp("kept"), workers=1)


@pytest.fixture
def pairs(kept: Path) -> PairDataset:
    dataset = opened_tiny(BURGERS, kept, verify=False)
    assert isinstance(dataset, PairDataset)
    return dataset


@pytest.fixture
def copy(kept: Path, tmp_path: Path) -> Path:
    """The same dataset where a test may damage it."""
    return Path(shutil.copytree(kept, folder(BURGERS, tmp_path)))


# --- writing and reading --------------------------------------------------------------------------


def test_a_file_gives_back_what_was_written(path: Path) -> None:
    found = read_arrays(path)
    for name, array in some_arrays().items():
        assert np.array_equal(found[name], array) and found[name].dtype == array.dtype
    assert read_document(path) == DOCUMENT
    verify(path, DOCUMENT)


def test_some_arrays_and_some_rows_can_be_read_alone(path: Path) -> None:
    found = read_arrays(path, ["xi"], slice(1, 3))
    assert list(found) == ["xi"] and np.array_equal(found["xi"], some_arrays()["xi"][1:3])


def test_the_same_arrays_give_the_same_bytes_and_others_another_sum(path: Path) -> None:
    again = path.with_name("again.h5")
    write_split(again, [some_arrays()], 6, DOCUMENT)
    assert again.read_bytes() == path.read_bytes()
    changed = some_arrays()
    changed["input"][0, 0, 0] += 1
    assert store.checksum(changed) != store.checksum(some_arrays())
    with h5py.File(path) as file:
        assert file.attrs["checksum"] == store.checksum(some_arrays())


def test_the_sum_depends_on_names_shapes_and_types() -> None:
    plain = store.checksum({"a": np.zeros((2, 3), np.float32)})
    others = [
        {"b": np.zeros((2, 3), np.float32)},
        {"a": np.zeros((3, 2), np.float32)},
        {"a": np.zeros((2, 3), np.int32)},
    ]
    assert plain not in [store.checksum(other) for other in others]


def test_pieces_are_joined_into_the_arrays_that_they_are_of(path: Path, tmp_path: Path) -> None:
    whole = some_arrays()
    pieces = [
        {name: array[rows] for name, array in whole.items()}
        for rows in (slice(0, 1), slice(1, 4), slice(4, 6))
    ]
    joined = tmp_path / "joined.h5"
    write_split(joined, pieces, 6, DOCUMENT)
    verify(joined, DOCUMENT)
    assert all(np.array_equal(array, whole[name]) for name, array in read_arrays(joined).items())
    with h5py.File(path) as one, h5py.File(joined) as other:
        assert one.attrs["checksum"] == other.attrs["checksum"]


def test_joining_and_verifying_never_hold_a_whole_split(tmp_path: Path) -> None:
    rows, size = 4, 2**18  # 4 MB each

    def pieces() -> Iterator[Arrays]:
        for number in range(10):
            yield {"input": np.full((rows, 1, size), number, np.float32)}

    tracemalloc.start()
    try:
        write_split(tmp_path / "large.h5", pieces(), 10 * rows, DOCUMENT)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "BLOCK_BYTES", 2**22)
            verify(tmp_path / "large.h5", DOCUMENT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * rows * size * 4  # two pieces and their masks, of ten


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_never_written(tmp_path: Path, bad: float) -> None:
    arrays = some_arrays()
    arrays["target"][3, 1, 5] = bad
    with pytest.raises(DatasetError, match="'target' holds NaN or infinity"):
        write_split(tmp_path / "train.h5", [arrays], 6, DOCUMENT)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_leaves_no_partial_file(tmp_path: Path) -> None:
    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            write_split(tmp_path / "train.h5", [some_arrays(500)], 500, DOCUMENT)
        except DatasetError as error:
            os._exit(7 if "could not be written" in str(error) else 8)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(60)
    assert process.exitcode == 7 and list(tmp_path.iterdir()) == []


# --- files that are not believed ------------------------------------------------------------------


def set_value(name: str, value: float) -> Callable[[h5py.File], None]:
    return lambda file: file[name].__setitem__((0, 0, 0), value)


def replaced(name: str, **options: Any) -> Callable[[h5py.File], None]:
    def edit(file: h5py.File) -> None:
        options.setdefault("data", file[name][()])
        del file[name]
        file.create_dataset(name, **options)

    return edit


def group_in_place(file: h5py.File) -> None:
    del file["input"]
    file.create_group("input")


def unwritten(file: h5py.File) -> None:
    shape, dtype = file["input"].shape, file["input"].dtype
    del file["input"]
    file.create_dataset("input", shape, dtype)  # never allocated: reads as zeros


def swapped(file: h5py.File) -> None:
    file.move("input", "other")
    file.move("target", "input")
    file.move("other", "target")


FAULTS: dict[str, tuple[Callable[[h5py.File], Any], str]] = {
    "another value": (set_value("input", 0.5), "do not match its own checksum"),
    "not a number": (set_value("target", np.nan), "do not match its own checksum"),
    "arrays swapped": (swapped, "do not match its own checksum"),
    "another type": (replaced("input", dtype="<f8"), "do not match its own checksum"),
    "another shape": (replaced("input", shape=(6, 16)), "do not match its own checksum"),
    "an array more": (lambda file: file.create_dataset("extra", data=[1.0]), "checksum"),
    "an array less": (lambda file: file.__delitem__("target"), "checksum"),
    "a group": (group_in_place, "'input' is missing or not stored in full"),
    "never written": (unwritten, "'input' is missing or not stored in full"),
    "no sum": (lambda file: file.attrs.__delitem__("checksum"), "checksum"),
    "no recipe": (lambda file: file.attrs.__delitem__("recipe"), "made with other settings"),
    "no JSON": (lambda file: file.attrs.__setitem__("recipe", "{"), "truncated, altered"),
    "newer": (
        lambda file: file.attrs.__setitem__("format", 9),
        "has format 9, this version reads 1",
    ),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_file_that_is_not_as_written_is_refused(path: Path, fault: str) -> None:
    edit, message = FAULTS[fault]
    with h5py.File(path, "r+") as file:
        edit(file)
    with pytest.raises(DatasetError, match=message) as error:
        verify(path, DOCUMENT)
    assert error.value.path == path


def test_other_settings_are_named_with_their_old_and_new_values(path: Path) -> None:
    now = {**DOCUMENT, "seed": 4, "samples": {"train": 7}}
    expected = (
        r"other settings \(seed was 3, now 4; samples.train was 6, now 7\): delete the folder"
    )
    with pytest.raises(DatasetError, match=expected):
        verify(path, now)
    many = {name: 1 for name in "abcde"}
    with pytest.raises(DatasetError, match=r"a was None, now 1; .*; .*; 6 more\)"):
        verify(path, many)


def test_versions_of_libraries_are_stored_and_never_compared(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        assert "torch" in json.loads(file.attrs["versions"])
        file.attrs["versions"] = json.dumps({"torch": "0.1"})
    verify(path, DOCUMENT)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DamagedError, match="truncated, altered or no HDF5"):
        verify(path, DOCUMENT)


def test_a_file_of_another_kind_and_a_missing_one_are_refused(path: Path) -> None:
    path.write_text("hello")
    with pytest.raises(DamagedError, match="no HDF5"):
        read_document(path)
    path.unlink()
    with pytest.raises(DatasetError, match="is missing: run 'pacefno data generate'"):
        read_document(path)


def test_random_damage_is_refused_or_harmless_and_nothing_else(path: Path) -> None:
    content, random = path.read_bytes(), np.random.default_rng(0)
    for _ in range(150):
        damaged = bytearray(content)
        for place in random.integers(0, len(content), 3):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            verify(path, DOCUMENT)
            found = read_arrays(path)
        except DatasetError as error:
            assert error.path == path
        else:  # a byte that nobody reads
            assert all(np.array_equal(found[k], array) for k, array in some_arrays().items())


# --- datasets -------------------------------------------------------------------------------------


def test_shapes_types_and_grids_are_the_declared_ones(pairs: PairDataset) -> None:
    train, moved = pairs.load("train"), pairs.load("test_ood", "ood")
    assert train.input.shape == train.target.shape == (20, 1, 64) and train.xi is None
    assert moved.input.shape == (12, 1, 128) and moved.input.dtype == torch.float32
    assert moved.elements.shape == (12, 2) and moved.elements.dtype == torch.float64
    assert moved.resolved is None and pairs.recipe_name == "tiny_burgers"
    with pytest.raises(ValueError, match="were not moved"):
        _ = train.elements


def test_the_id_grid_is_every_second_point_of_the_ood_grid(pairs: PairDataset) -> None:
    for split in ("test_id", "test_ood"):
        fine, coarse = pairs.load(split, "ood"), pairs.load(split, "id")
        assert torch.equal(coarse.input, fine.input[..., ::2])
        assert torch.equal(coarse.target, fine.target[..., ::2])


@pytest.mark.parametrize("block_bytes", [1, 3000])
def test_neither_blocks_nor_a_count_change_what_is_loaded(
    pairs: PairDataset, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pairs.load("test_ood", "id")
    monkeypatch.setattr(store, "BLOCK_BYTES", block_bytes)
    again, few = pairs.load("test_ood", "id"), pairs.load("test_ood", "id", count=5)
    assert torch.equal(again.input, whole.input) and torch.equal(again.elements, whole.elements)
    assert torch.equal(few.target, whole.target[:5]) and len(few.elements) == 5
    assert len(pairs.load("train", count=100)) == 20


@pytest.mark.parametrize(
    ("split", "grid", "message"),
    [
        ("train", "ood", "train is stored on the ID grid only: ask for grid='id'"),
        ("tset_id", "id", "unknown split 'tset_id'. Did you mean 'test_id'"),
        ("test_id", "fine", "unknown grid 'fine'. Expected one of id, ood"),
    ],
)
def test_a_request_that_cannot_be_met_is_explained(
    pairs: PairDataset, split: str, grid: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        pairs.load(split, grid)


def test_one_flipped_bit_is_noticed_with_and_without_verifying(copy: Path) -> None:
    path = copy / "test_id.h5"
    content = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        content[file["target"].id.get_offset() + 50] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedError, match="checksum"):
        opened_tiny(BURGERS, copy)
    with pytest.raises(DamagedError, match="checksum"):
        opened_tiny(BURGERS, copy, verify=False).load("test_id")


def test_a_dataset_of_another_machine_with_other_bits_is_accepted(copy: Path) -> None:
    """Its samples may differ by round-off; the settings alone say what they are."""
    path = copy / "train.h5"
    arrays, document = read_arrays(path), read_document(path)
    arrays["input"] *= np.float32(1 + 1e-6)
    write_split(path, [arrays], 20, document)
    assert len(opened_tiny(BURGERS, copy).load("train")) == 20
