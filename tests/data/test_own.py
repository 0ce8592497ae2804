"""Somebody's own file as a source of samples: what is read, how it is split, how it is moved."""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from file_examples import (
    GRID,
    LAYOUTS,
    SAMPLES,
    SNAPSHOTS,
    STEP,
    VALUES,
    XARRAY,
    document,
    smooth,
    the_well,
)

from own_examples import write_own
from pacefno.data import Contents, DatasetError, FileFormat, FileSource, StoredArray, open_task
from pacefno.data.inspect import _toml
from pacefno.data.own import open_document
from pacefno.data.samples import in_batches
from pacefno.errors import UsageError
from pacefno.fields import Field
from pacefno.grid import FieldError
from pacefno.registry import _CLASSES, register
from pacefno.task import TaskError


def opened(folder: Path, name: str = "npz", **changes: Any) -> FileSource:
    """The source of a layout, written here."""
    write, file, data = LAYOUTS[name]
    if not (folder / file).exists():
        write(folder / file, VALUES)
    return open_document(document({"file": file, **data}, **changes), folder)[1]


def needs_xarray(name: str) -> None:
    if name in XARRAY:
        pytest.importorskip("xarray")
        pytest.importorskip("zarr" if "Zarr" in name else "netCDF4")


# --- what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_every_format_gives_the_same_samples(name: str, tmp_path: Path, dtype: torch.dtype) -> None:
    needs_xarray(name)
    precision = str(dtype).removeprefix("torch.")
    source = opened(tmp_path, name, data={"precision": precision})
    pairs = source.load("train")
    rows = torch.tensor([7, 0, 3])
    found = pairs.select(rows)
    assert found.input.dtype == dtype and pairs.grid == GRID
    rounding = 1e-6 if name == "The Well" or dtype == torch.float32 else 0.0
    for row, (first, second) in zip(rows, zip(found.input, found.target, strict=True), strict=True):
        trajectory, start = pairs.origin(int(row))
        for values, time in ((first, start), (second, start + 1)):
            expected = torch.from_numpy(VALUES[trajectory, time]).to(dtype)
            assert float((values - expected).abs().max()) <= rounding


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".h5"])
def test_pairs_come_from_arrays_of_inputs_and_targets(tmp_path: Path, suffix: str) -> None:
    first, second = VALUES[:, 0], VALUES[:, 3, :1]
    if suffix == ".npz":
        np.savez(tmp_path / "a.npz", x=first, y=second)
    elif suffix == ".pt":
        torch.save({"x": torch.tensor(first), "y": torch.tensor(second)}, tmp_path / "a.pt")
    else:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["x"], file["y"] = first, second
    data = {"file": f"a{suffix}", "inputs": ["x"], "targets": ["y"], "axes": "sample channel x y"}
    _, source = open_document(document(data, output={"channels": "p: scalar"}), tmp_path)
    pairs = source.load("test_id")
    trajectory, start = pairs.origin(0)
    found = pairs.select(slice(0, 1))
    assert start == 0 and len(pairs) == 1
    assert np.array_equal(found.input[0], first[trajectory])
    assert np.array_equal(found.target[0], second[trajectory])


def test_several_snapshots_go_in_and_come_out_in_order(tmp_path: Path) -> None:
    source = opened(tmp_path, input={"times": [0, 1]}, output={"times": [2, 3]})
    pairs = source.load("train")
    assert len(pairs) == 8 * (SNAPSHOTS - 3)
    trajectory, start = pairs.origin(3)
    found = pairs.select(slice(3, 4))
    for values, first in ((found.input, start), (found.target, start + 2)):
        assert np.array_equal(values[0], VALUES[trajectory, first : first + 2].reshape(4, *GRID))


def test_the_output_may_have_fewer_channels_and_snapshots_further_apart(tmp_path: Path) -> None:
    data, step = {"time_stride": 2}, {"step": 2 * STEP}
    output = {"channels": "v: scalar", "times": [2]}
    pairs = opened(tmp_path, data=data, input=step, output=output).load("train")
    trajectory, start = pairs.origin(1)
    found = pairs.select(slice(1, 2))
    assert (len(pairs), start) == (8, 0)
    trajectory, _ = pairs.origin(1)
    assert np.array_equal(found.input[0], VALUES[trajectory, 0])
    assert np.array_equal(found.target[0], VALUES[trajectory, 4, 1:])


def test_windows_are_spread_over_the_trajectory(tmp_path: Path) -> None:
    for windows, starts in ((2, (0, SNAPSHOTS - 2)), (1, (0,)), (99, tuple(range(SNAPSHOTS - 1)))):
        pairs = opened(tmp_path, data={"windows": windows}).load("train")
        assert tuple(pairs.origin(row)[1] for row in range(len(starts))) == starts
        assert len(pairs) == 8 * len(starts)


def test_trajectories_come_whole_or_cut_in_the_box_of_the_task(tmp_path: Path) -> None:
    source = opened(tmp_path, rollout={"first": 2})
    assert source.splits == ("train", "validation", "test")
    found = source.load("test")
    whole = found.select(slice(None))
    assert (found.snapshots, found.channels, len(found)) == (SNAPSHOTS, 2, 1)
    number = source.rows[2][0]
    assert np.array_equal(whole.values[0], VALUES[number].reshape(-1, *GRID))
    assert whole.box is None, "all have the box of the task"
    few = found.cut(slice(None), torch.tensor([1]), 2)
    assert torch.equal(few.values, whole.window(1, 2).values) and few.channels == 2
    with pytest.raises(FieldError, match="do not lie within"):
        found.cut(slice(None), SNAPSHOTS - 1, 2)


def test_the_training_grid_may_be_coarser_than_the_file(tmp_path: Path) -> None:
    source = opened(tmp_path, data={"coarsening": 2})
    coarse, fine = (source.load("test_ood", grid) for grid in ("id", "ood"))
    assert coarse.grid == (8, 6) and fine.grid == GRID
    some = slice(0, 2)
    assert torch.equal(coarse.select(some).input, fine.select(some).input[..., ::2, ::2])


def test_batches_run_through_all_samples(tmp_path: Path) -> None:
    pairs = opened(tmp_path).load("train")
    batches = [pairs.select(rows) for rows in in_batches(pairs, 5)]
    assert [len(batch) for batch in batches] == [5] * 6 + [2]
    whole = pairs.select(slice(None))
    assert torch.equal(torch.cat([batch.input for batch in batches]), whole.input)
    with pytest.raises(UsageError, match="no rows were selected"):
        pairs.select(slice(0, 0))


def test_no_snapshot_is_read_twice_and_none_without_need(tmp_path: Path) -> None:
    source = opened(tmp_path, "npy", input={"step": 1.0})
    stack = source.load("train").parts[0]
    asked: list[Any] = []
    real = stack.arrays[0].fetch
    spy = dataclasses.replace(stack.arrays[0], fetch=lambda i: (asked.append(i), real(i))[1])
    stack.arrays[0] = spy
    pairs = source.load("train")
    per = SNAPSHOTS - 1
    whole = pairs.select(slice(0, per))  # all windows of one trajectory
    assert len(asked) == 1 and asked[0][:2] == (pairs.origin(0)[0], slice(0, SNAPSHOTS, 1))
    far = stack.windows([(0, [0, 4])])
    assert [index[1] for index in asked[1:]] == [slice(0, 5, 4)]
    assert np.array_equal(far[0], VALUES[0, [0, 4]])
    mixed = pairs.select(torch.tensor([per - 1, 2 * per, 0]))
    assert torch.equal(mixed.input[[0, 2]], whole.input[[per - 1, 0]])
    assert torch.equal(mixed.target[[0, 2]], whole.target[[per - 1, 0]])


def test_snapshots_far_apart_are_read_one_by_one(tmp_path: Path) -> None:
    long = np.random.default_rng(0).normal(size=(3, 60, 1, 8))
    np.save(tmp_path / "a.npy", long)
    data = {"file": "a.npy", "arrays": ["values"], "axes": "sample time channel x"}
    input = {"channels": "u: scalar", "dim": 1, "lengths": 1.0, "times": [0, 1]}
    group = {"name": "translation", "dim": 1}
    ood = {"low": [0.0], "high": [0.5]}
    entries = document(data, input=input, output={"times": [40]}, group=group, ood=ood)
    pairs = open_document(entries, tmp_path)[1].load("train")
    trajectory, start = pairs.origin(7)
    found = pairs.select(slice(7, 8))
    assert np.array_equal(found.input[0], long[trajectory, start : start + 2, 0])
    assert np.array_equal(found.target[0], long[trajectory, start + 40])


# --- splits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("split", [(0.8, 0.1, 0.1), (0.4, 0.3, 0.3), (0.9, 0.1, 0.0)])
def test_no_trajectory_is_in_two_splits(
    tmp_path: Path, seed: int, split: tuple[float, float, float]
) -> None:
    source = opened(tmp_path, data={"seed": seed, "split": split})
    used = {}
    for name in ("train", "validation", "test_id"):
        pairs = source.load(name)
        used[name] = {pairs.origin(row)[0] for row in range(len(pairs))}
    for one, other in itertools.combinations(used, 2):
        assert not used[one] & used[other]
    assert set.union(*used.values()) == set(range(SAMPLES)) and all(used.values())
    moved = source.load("test_ood")
    assert {moved.origin(row)[0] for row in range(len(moved))} == used["test_id"]


def test_no_value_of_one_split_is_in_another(tmp_path: Path) -> None:
    """The same by the values themselves: no snapshot of a test sample is ever trained on."""
    source = opened(tmp_path)
    seen = [
        {snapshot.numpy().tobytes() for part in (p.input, p.target) for snapshot in part}
        for p in (source.load(s).select(slice(None)) for s in ("train", "validation", "test_id"))
    ]
    for one, other in itertools.combinations(seen, 2):
        assert not one & other


def test_a_split_depends_on_its_seed_alone(tmp_path: Path) -> None:
    assert (
        opened(tmp_path).rows
        == opened(tmp_path, input={"times": [0, 1]}, output={"times": [2]}).rows
    )
    assert opened(tmp_path).rows != opened(tmp_path, data={"seed": 1}).rows
    assert {n for part in opened(tmp_path, data={"samples": 4}).rows for n in part} == set(range(4))


def test_splits_may_have_files_of_their_own(tmp_path: Path) -> None:
    """As neuraloperator and The Well keep them; the test samples may be finer."""
    np.savez(tmp_path / "train.npz", u=VALUES[:6, :, :, ::2, ::2])
    np.savez(tmp_path / "test.npz", u=VALUES[6:9])
    data = {"file": "train.npz", "test_file": "test.npz", "arrays": ["u"]}
    data |= {"axes": "sample time channel x y"}
    source = open_document(document(data), tmp_path)[1]
    assert [len(rows) for rows in source.rows] == [5, 1, 3]
    assert source.load("train").grid == (8, 6) and source.load("test_id").grid == GRID
    pairs = source.load("test_id")
    trajectory, start = pairs.origin(5)
    assert np.array_equal(pairs.select(slice(5, 6)).input[0], VALUES[6 + trajectory, start])
    assert source.load("test_ood").select(slice(0, 2)).input.shape == (2, 2, *GRID)
    np.savez(tmp_path / "validation.npz", u=VALUES[9:])
    source = open_document(document({**data, "validation_file": "validation.npz"}), tmp_path)[1]
    assert [len(rows) for rows in source.rows] == [6, 1, 3]
    for change in ({"test_file": "./train.npz"}, {"validation_file": "test.npz"}):
        with pytest.raises(UsageError, match="name one file twice"):
            open_document(document({**data, **change}), tmp_path)
    np.savez(tmp_path / "test.npz", u=VALUES[6:9, :1])
    with pytest.raises(DatasetError, match=r"test\.npz: has 1 snapshots"):
        open_document(document(data), tmp_path)


# --- several files, and one long trajectory -------------------------------------------------------


@pytest.mark.parametrize("name", ["npz", "npy", "pt", "PDEBench groups", "The Well", "NetCDF 4"])
@pytest.mark.parametrize("place", ["runs", "runs/*"])
def test_files_of_one_layout_are_one(name: str, place: str, tmp_path: Path) -> None:
    needs_xarray(name)
    write, file, data = LAYOUTS[name]
    (tmp_path / "runs").mkdir()
    for number, part in enumerate((slice(0, 2), slice(2, 7), slice(7, 8), slice(8, 10))):
        write(tmp_path / "runs" / f"{number}{Path(file).suffix}", VALUES[part])
    source = open_document(document({"file": place, **data}), tmp_path)[1]
    assert sum(map(len, source.rows)) == SAMPLES and "4 files, with 10 samples" in source.notes[-1]
    whole = source.trajectories(None).select(slice(None)).values
    expected = torch.from_numpy(VALUES).flatten(1, 2)
    torch.testing.assert_close(whole, expected, rtol=1e-6, atol=1e-6)
    pairs = source.load("train")
    rows = torch.tensor([5, 30, 0, 17])
    for row, found in zip(rows.tolist(), pairs.select(rows).input, strict=True):
        trajectory, start = pairs.origin(row)
        wanted = torch.from_numpy(VALUES[trajectory, start])
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)
    used = [set(rows) for rows in source.rows]
    assert not used[0] & used[1] and not used[1] & used[2] and not used[0] & used[2]


def test_each_file_may_be_one_trajectory_and_few_are_open_at_once(tmp_path: Path) -> None:
    for number, values in enumerate(VALUES):
        with h5py.File(tmp_path / f"run{number:02d}.h5", "w") as file:
            file["u"], file["v"] = values[:, 0], values[:, 1]
    data = {"file": "run*.h5", "arrays": ["u", "v"], "axes": "time x y"}
    source = open_document(document(data), tmp_path)[1]
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    whole = source.trajectories(None).select(slice(None)).values
    assert np.array_equal(whole.reshape(VALUES.shape), VALUES)
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) - before <= 4


FOLDERS: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "other arrays": ({"b": {"w": VALUES}}, r"b\.npz: holds .*'w'.*expected one layout"),
    "another grid": (
        {"b": {"u": VALUES[..., ::2]}}, r"b\.npz: 'u' is .*samples alone; cut or resample"
    ),
    "other times": ({"b": {"u": VALUES[:, :4]}}, r"b\.npz: 'u' is .*samples alone; cut"),
    "another box": (
        {"a": {"u": VALUES, "x": np.arange(16.0)}, "b": {"u": VALUES, "x": 2 * np.arange(16.0)}},
        r"b\.npz: its coordinates x are not spaced as in a\.npz",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", list(FOLDERS))
def test_a_folder_of_files_that_differ_is_one_sentence(tmp_path: Path, fault: str) -> None:
    files, message = FOLDERS[fault]
    for name, arrays in ({"a": {"u": VALUES}} | files).items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
    data = {"file": ".", "arrays": ["u"], "axes": "sample time channel x y"}
    with pytest.raises(DatasetError, match=message):
        open_document(document(data), tmp_path)


def test_a_folder_that_names_no_files_or_a_test_file_of_its_own_is_refused(tmp_path: Path) -> None:
    data = {"file": "*.npz", "arrays": ["u"], "axes": "sample time channel x y"}
    with pytest.raises(DatasetError, match="no file fits this pattern"):
        open_document(document(data), tmp_path)
    with pytest.raises(DatasetError, match="is a folder without data"):
        open_document(document({**data, "file": "."}), tmp_path)
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", u=VALUES)
    with pytest.raises(UsageError, match="splits never share samples"):
        open_document(document({**data, "test_file": "b.npz"}), tmp_path)
    np.save(tmp_path / "c.npy", VALUES)
    with pytest.raises(DatasetError, match=r"folder with files \.npy, \.npz: name those"):
        open_document(document({**data, "file": "."}), tmp_path)


@pytest.mark.parametrize("future", [1, 3])
@pytest.mark.parametrize("split", [(0.8, 0.1, 0.1), (0.5, 0.25, 0.25)])
def test_one_long_trajectory_is_split_in_time_with_a_gap(
    tmp_path: Path, future: int, split: tuple[float, float, float]
) -> None:
    values = smooth(shape=(1, 60, 2))[0]
    np.save(tmp_path / "a.npy", values)
    data = {"file": "a.npy", "arrays": ["values"], "axes": "time channel x y"}
    data |= {"split_by": "time", "split": split}
    output = {"times": list(range(1, 1 + future))}
    source = open_document(document(data, output=output), tmp_path)[1]
    used = []
    for name in ("train", "validation", "test_id"):
        pairs = source.load(name)
        assert len(pairs) >= 1
        starts = [pairs.origin(row)[1] for row in range(len(pairs))]
        used.append({start + i for start in starts for i in range(1 + future)})
        last = pairs.select(slice(len(pairs) - 1, None))
        assert np.array_equal(last.input[0], values[starts[-1]])
        whole = source.trajectories(name.removesuffix("_id"))
        assert set(whole.numbers) == used[-1]
    for earlier, later in itertools.pairwise(used):
        assert min(later) - max(earlier) > 1 + future  # a whole window lies between
    assert max(used[2]) == 59 and min(used[0]) == 0
    assert source.load("test_ood").select(slice(0, 1)).xi is not None
    assert source.trajectories(None).snapshots == 60


def test_a_trajectory_too_short_to_be_split_in_time_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES[0])
    data = {"file": "a.npy", "arrays": ["values"], "axes": "time channel x y"}
    with pytest.raises(DatasetError, match=r"5 snapshots, and in time each .* a window of 2"):
        open_document(document({**data, "split_by": "time"}), tmp_path)
    with pytest.raises(UsageError, match="cuts trajectories of one file"):
        open_document(document({**data, "split_by": "time", "test_file": "b.npy"}), tmp_path)


# --- moved samples --------------------------------------------------------------------------------


def test_moved_samples_are_the_held_out_ones_moved_by_one_element(
    tmp_path: Path, tolerance: float, dtype: torch.dtype
) -> None:
    precision = str(dtype).removeprefix("torch.")
    source = opened(tmp_path, data={"precision": precision}, output={"times": [3]})
    plain, moved = (source.load(s).select(slice(None)) for s in ("test_id", "test_ood"))
    xi = moved.elements
    low, high = (torch.tensor(b) for b in (source.ood.low, source.ood.high))  # type: ignore[union-attr]
    assert bool(((xi.abs() >= low) & (xi.abs() <= high)).all())
    assert len(torch.unique(xi, dim=0)) == len(xi)
    group, task = source.task.group, source.task
    for before, after, type in (
        (plain.input, moved.input, task.input),
        (plain.target, moved.target, task.output),
    ):
        back = group.inverse(Field(after, type), xi).values
        assert float((back - before).abs().max()) < 20 * tolerance * float(before.abs().max())
    some = source.load("test_ood").select(torch.tensor([1]))
    assert torch.equal(some.elements[0], xi[1]) and torch.equal(some.input[0], moved.input[1])


def test_a_rotation_is_refused_unless_it_is_meant(tmp_path: Path) -> None:
    np.savez(tmp_path / "square.npz", u=VALUES[..., :12, :12])
    data = {"file": "square.npz", "arrays": ["u"], "axes": "sample time channel x y"}
    box = {"channels": "u: vector", "lengths": [1.0, 1.0]}
    ood: dict[str, Any] = {"low": [0.0] * 3, "high": [0.5, 0.5, 1.0]}
    entries = document(
        {**data, "allow": ["non-periodic"]}, input=box, group={"name": "euclidean"}, ood=ood
    )
    del entries["group"]["dim"]
    with pytest.raises(UsageError, match="not exact on a periodic grid.*inexact = true"):
        open_document(entries, tmp_path)
    for change in ({"inexact": True}, {"high": [0.5, 0.5, 0.0]}):
        _, source = open_document({**entries, "ood": {**ood, **change}}, tmp_path)
        assert torch.isfinite(source.load("test_ood").select(slice(0, 2)).input).all()


def test_without_a_range_nothing_is_moved(tmp_path: Path) -> None:
    write, file, data = LAYOUTS["npz"]
    write(tmp_path / file, VALUES)
    entries = document({"file": file, **data})
    del entries["ood"]
    _, source = open_document(entries, tmp_path)
    assert source.splits == ("train", "validation", "test_id")
    with pytest.raises(UsageError, match=r"no table \[ood\]"):
        source.load("test_ood")
    with pytest.raises(UsageError, match="unknown split 'tset'"):
        source.load("tset")
    short = {**entries, "ood": {"low": [0.1], "high": [0.2]}}
    with pytest.raises(UsageError, match="for each of"):
        open_document(short, tmp_path)


# --- files larger than memory ---------------------------------------------------------------------

LARGE = 20_000_000_000
READ_LARGE = """
import sys
from pathlib import Path
from pacefno.data import open_task

def peak():  # of this program: what getrusage says includes the process that started it
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

before = peak()
_, source = open_task(Path(sys.argv[1]))
for split in ("train", "validation", "test_id", "test_ood"):
    pairs = source.load(split)
    batch = pairs.select(slice(len(pairs) - 4, None))
    assert batch.input.shape == (4, 2, 256, 256), batch.input.shape
print(peak() - before, len(pairs) * (batch.input.nbytes + batch.target.nbytes) // len(batch))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
@pytest.mark.parametrize("suffix", [".npy", ".h5"])
def test_a_file_of_20_gigabytes_needs_little_memory(tmp_path: Path, suffix: str) -> None:
    snapshot = 2 * 256 * 256 * 4
    samples = LARGE // (20 * snapshot) + 1
    shape = (samples, 20, 2, 256, 256)
    path = tmp_path / f"large{suffix}"
    if suffix == ".npy":
        with path.open("wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(file.tell() + samples * 20 * snapshot)  # a hole: it takes no room
    else:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        with h5py.File(path, "w") as file:
            space, kind = h5py.h5s.create_simple(shape), h5py.h5t.IEEE_F32LE
            h5py.h5d.create(file.id, b"values", kind, space, plist)
    assert path.stat().st_size > LARGE
    if os.stat(path).st_blocks * 512 > LARGE / 2:
        pytest.skip("this file system has no holes in files")
    text = [
        f"[{table}]\n" + "\n".join(f"{key} = {_toml(v)}" for key, v in entries.items())
        for table, entries in document(
            {
                "file": path.name,
                "arrays": ["values"],
                "axes": "sample time channel x y",
                "precision": "float32",
                "allow": ["constant"],
            }
        ).items()
    ]
    (tmp_path / "task.toml").write_text("\n".join(text))
    command = [sys.executable, "-c", READ_LARGE, str(tmp_path / "task.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    kilobytes = int(done.stdout.split()[0])
    unit = 1 if sys.platform == "darwin" else 1024
    assert kilobytes * unit < 600_000_000


# --- a format of one's own ------------------------------------------------------------------------


def test_a_format_from_outside_is_one_class(tmp_path: Path) -> None:
    @register("format", "text")
    class Text(FileFormat):
        suffixes = (".txt",)

        def recognises(self, path: Path, head: bytes) -> bool:
            return head.startswith(b"#waves")

        def open(self, path: Path) -> Contents:
            def fetch(index: Any) -> Any:
                return np.loadtxt(path).reshape(VALUES.shape)[index]

            array = StoredArray(path, "u", VALUES.shape, np.dtype("f8"), fetch)
            return Contents(path, "text", {"u": array})

    try:
        np.savetxt(tmp_path / "a.txt", VALUES.reshape(-1, GRID[1]), header="waves", comments="#")
        data = {"file": "a.txt", "arrays": ["u"], "axes": "sample time channel x y"}
        _, source = open_document(document(data), tmp_path)
        trajectory, start = source.load("train").origin(0)
        found = source.load("train").select(slice(0, 1)).input[0]
        assert np.allclose(found, VALUES[trajectory, start])
    finally:
        del _CLASSES["format"]["text"]


# --- the document ---------------------------------------------------------------------------------

FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown entry": ({"data": {"axis": "x"}}, "data: unknown entry 'axis'. Did you mean 'axes'"),
    "unknown axis": ({"data": {"axes": "sample tme channel x y"}}, "unknown axis 'tme'"),
    "axis twice": ({"data": {"axes": "sample x x x y"}}, "expected each axis once"),
    "no such array": ({"data": {"arrays": ["w"]}}, r"no 'w': name one of these"),
    "both": ({"data": {"inputs": ["velocity"]}}, "name either arrays"),
    "shares": ({"data": {"split": [0.5, 0.1, 0.1]}}, "with sum 1"),
    "stride": ({"data": {"time_stride": 2}}, "0.5 apart in time.*correct input.step"),
    "step": ({"input": {"step": 1.0}}, "0.25 apart in time.*says step = 1"),
    "window": ({"output": {"times": [9]}}, "has 5 snapshots, a window of the task needs 10"),
    "part of a step": ({"output": {"times": [1.5]}}, "whole numbers"),
    "channels": ({"input": {"channels": "u v: velocity, p: scalar"}}, "2 channels.*names 3"),
    "strange output": ({"output": {"channels": "q: scalar"}}, r"\['q'\] are not in the input"),
    "dim": ({"input": {"dim": 1, "channels": "u: scalar", "lengths": 1.0},
             "group": {"name": "translation", "dim": 1}}, "the task 1 dimensions"),
    "coarsening": ({"data": {"coarsening": 5}}, "5 does not divide"),
    "format": ({"data": {"format": "npx"}}, "unknown format 'npx'. Did you mean"),
    "length": ({"input": {"lengths": [1.0, 3.0]}}, "cover a period of 6.283.*the task says 1"),
}  # fmt: skip


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_document_that_does_not_fit_is_one_sentence(tmp_path: Path, fault: str) -> None:
    changes, message = FAULTS[fault]
    with pytest.raises((UsageError, DatasetError), match=message):
        opened(tmp_path, **changes)


def test_what_was_left_to_fill_in_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    for text, name in (
        ('[input]\nstep = "?"', "input.step"),
        ('[input]\nlengths = ["?", 1.0]', "input.lengths"),
        ('name = "?"', "name"),
    ):
        path.write_text(text)
        with pytest.raises(TaskError, match=rf'{name} is still "\?"'):
            open_task(path)
    for text, message in (("a = ", "is not TOML"), ("", r"no table \[data\]")):
        path.write_text(text)
        with pytest.raises(TaskError, match=message):
            open_task(path)
    with pytest.raises(TaskError, match="cannot be read"):
        open_task(tmp_path / "none.toml")


@pytest.mark.parametrize("allowed", [False, True])
def test_walls_of_the_well_are_refused_unless_they_are_meant(tmp_path: Path, allowed: bool) -> None:
    the_well(tmp_path / "a.hdf5", VALUES, "WALL")
    change = {"data": {"allow": ["non-periodic"] if allowed else []}}
    action: Callable[[], FileSource] = lambda: opened(tmp_path, "The Well", **change)  # noqa: E731
    if allowed:
        assert len(action().load("train")) > 0
    else:
        with pytest.raises(DatasetError, match="boundary conditions say.*not periodic along x"):
            action()


@pytest.mark.parametrize("name", ["lengths", "step"])
def test_no_unit_is_assumed_where_a_boost_moves_samples(name: str, tmp_path: Path) -> None:
    path = write_own(tmp_path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith(name)))
    with pytest.raises(UsageError, match=f"input.{name} is missing: the galilean group has boosts"):
        open_task(path)
    text = path.read_text().replace('"galilean"', '"translation"')
    text = text.replace("train_range = [0.1, 0.1, 0.1, 0.1]", "")
    path.write_text(text[: text.index("[ood]")])
    open_task(path)
