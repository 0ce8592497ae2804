"""Datasets: the same seed gives the same bytes, a kill loses nothing, and a file that is not ours is never believed."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from pacefno.data import (
    SIZES,
    DatasetError,
    Samples,
    Sizes,
    channel_statistics,
    generate,
    open_dataset,
    schema,
    shards,
    sizes_named,
)
from pacefno.data.commands import data_app
from pacefno.data.manifest import MANIFEST, read_manifest
from pacefno.data.progress import Silent
from pacefno.data.recipe import recipe_of
from pacefno.data.show import draw_samples, draw_spectra, generator_errors, slice_residuals
from pacefno.durable import sha256_of
from pacefno.equations import PROBLEMS, TRAJECTORY_PROBLEMS, Problem, SolverError
from pacefno.grid import coarsen
from pacefno.lock import FolderInUseError, FolderLock

TINY = replace(PROBLEMS["burgers1d_smooth"], grid=(64,), step=0.01, spacing=0.5)
FLAT = replace(PROBLEMS["shallow_water"], grid=(32, 48), step=0.02, spacing=0.1)
# The full grid: on a coarser one the solver's cut removes part of the compact vorticity and moves it off its slice.
TURNING = replace(PROBLEMS["navier_stokes"], frames_in=2, frames_out=2)
FLOATS = [torch.float32, torch.float64]


@pytest.fixture(autouse=True)
def tiny_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "tiny", Sizes(train=20, validation=8, test=12))
    monkeypatch.setattr(schema, "SHARD_SAMPLES", 8)


def make(problem: Problem, root: Path, **options: Any) -> Path:
    return generate(problem, "tiny", root=root, workers=1, **options)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished dataset for all tests that only read."""
    root = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "tiny", Sizes(train=20, validation=8, test=12))
        patch.setattr(schema, "SHARD_SAMPLES", 8)
        return make(TINY, root)


@pytest.fixture(scope="module")
def all_kept(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One finished dataset per kind of group; few samples in two dimensions."""
    root = tmp_path_factory.mktemp("all_kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "tiny", Sizes(train=4, validation=4, test=8))
        return {TINY.name: kept, FLAT.name: make(FLAT, root), TURNING.name: make(TURNING, root)}


EACH = pytest.mark.parametrize("problem", [TINY, FLAT, TURNING], ids=lambda problem: str(problem.name))


@pytest.fixture
def copy(kept: Path, tmp_path: Path) -> Path:
    """The same dataset where a test may damage it."""
    return Path(shutil.copytree(kept, tmp_path / TINY.name / kept.name))


def sums(folder: Path) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in sorted(folder.iterdir())}


# --- making ---------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(kept: Path, tmp_path: Path) -> None:
    assert sums(make(TINY, tmp_path)) == sums(kept)
    other = sums(make(TINY, tmp_path, seed=43))
    assert all(other[name] != value for name, value in sums(kept).items())


def test_the_folder_holds_the_listed_files_and_nothing_else(kept: Path) -> None:
    assert kept.parts[-2:] == (TINY.name, "tiny-seed42")
    counts = {"train": 3, "validation": 1, "test_id": 2, "test_ood": 2}
    names = {f"{split}-{i:03d}.h5" for split, count in counts.items() for i in range(count)}
    assert {path.name for path in kept.iterdir()} == names | {MANIFEST}


def test_neither_the_size_of_shards_nor_the_preset_changes_a_sample(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "SHARD_SAMPLES", 48)
    monkeypatch.setitem(SIZES, "tiny", Sizes(train=13, validation=3, test=12))
    other = make(TINY, tmp_path)
    for split in ("train", "validation", "test_ood"):
        ours, theirs = open_dataset(kept).load(split), open_dataset(other).load(split)
        assert torch.equal(ours.input[: len(theirs)], theirs.input)
        assert torch.equal(ours.target[: len(theirs)], theirs.target)


@pytest.mark.slow
def test_two_workers_write_the_same_bytes_as_one(kept: Path, tmp_path: Path) -> None:
    assert sums(generate(TINY, "tiny", root=tmp_path, workers=2)) == sums(kept)


class Killer(Silent):
    """Kills its own process, as the system would, at the n-th event of a kind."""

    def __init__(self, event: str, count: int) -> None:
        self.event, self.left = event, count

    def _count(self, event: str) -> None:
        self.left -= event == self.event
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def advance(self, samples: int) -> None:
        self._count("solved")

    def stored(self, name: str) -> None:
        self._count("stored")

    def fsync(self, path: Path) -> None:
        self._count("written")


def in_a_fork(work: Callable[[], object]) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(60)
    return process.exitcode


@pytest.mark.parametrize(("event", "count"), [("solved", 2), ("stored", 1), ("stored", 4), ("written", 3), ("written", 6)])
def test_a_killed_run_continues_and_ends_with_the_same_bytes(kept: Path, tmp_path: Path, event: str, count: int) -> None:
    killer = Killer(event, count)

    def work() -> None:
        shards.fsync_file = killer.fsync  # the temporary file is complete here, but has no real name yet
        make(TINY, tmp_path, progress=killer)

    assert in_a_fork(work) == -signal.SIGKILL
    folder = tmp_path / TINY.name / "tiny-seed42"
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.h5")}
    with pytest.raises(DatasetError, match=r"is not finished|holds no dataset") as error:
        open_dataset(folder)
    assert error.value.path == folder
    assert make(TINY, tmp_path) == folder
    assert sums(folder) == sums(kept)
    pairs = {"test_id-000.h5"} if event == "written" else set()  # its OOD twin was lost, both are made together
    assert all((folder / name).stat().st_mtime_ns == time for name, time in before.items() if name not in pairs)


@pytest.mark.parametrize("damage", ["cut", "flip", "delete", "foreign"])
def test_generating_again_replaces_bad_files_and_only_those(kept: Path, copy: Path, damage: str) -> None:
    path = copy / "train-001.h5"
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-100] ^= 1
    path.write_bytes({"cut": content[:-7], "foreign": b"not HDF5"}.get(damage, content))
    if damage == "delete":
        path.unlink()
    good = (copy / "train-000.h5").stat().st_mtime_ns
    make(TINY, copy.parent.parent)
    assert sums(copy) == sums(kept)
    assert (copy / "train-000.h5").stat().st_mtime_ns == good


def test_a_finished_dataset_is_left_alone(copy: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in copy.iterdir()}
    make(TINY, copy.parent.parent)
    assert {path.name: path.stat().st_mtime_ns for path in copy.iterdir()} == before


def test_a_finished_dataset_with_other_settings_is_not_replaced(copy: Path) -> None:
    with pytest.raises(DatasetError, match=r"other settings \(solver_step is 0\.01, now 0\.005\)"):
        make(replace(TINY, step=0.005), copy.parent.parent)
    with pytest.raises(DatasetError, match="first_sample"):
        make(replace(TINY, draw=lambda generator, grid: 2 * TINY.draw(generator, grid)), copy.parent.parent)
    open_dataset(copy)


def test_a_zero_that_round_off_gave_a_sign_is_the_same_initial_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def fingerprint(value: float) -> str:
        state = torch.full((1, *TINY.grid), value, dtype=torch.float64)
        monkeypatch.setattr(Problem, "initial_state", lambda *_, **__: (state, 0))
        return recipe_of(TINY, "tiny", 42, stationary=False).first_sample

    assert fingerprint(-1e-15) == fingerprint(1e-15) != fingerprint(-1e-3)


def test_a_failed_solution_stops_with_its_index_and_step_and_stores_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Problem.initial_state

    def explosive(self: Problem, seed: int, split: str, index: int, *, stationary: bool = False) -> tuple[Tensor, int]:
        state, redraws = honest(self, seed, split, index, stationary=stationary)
        return (state * 1e9 if (split, index) == ("train", 11) else state), redraws

    monkeypatch.setattr(Problem, "initial_state", explosive)
    with pytest.raises(SolverError, match=r"train sample 11 has no valid solution with step size 0\.01"):
        make(TINY, tmp_path)
    folder = tmp_path / TINY.name / "tiny-seed42"
    assert [path.name for path in folder.iterdir()] == ["train-000.h5"]


@pytest.mark.slow
def test_a_failure_in_a_worker_process_arrives_as_it_is(tmp_path: Path) -> None:
    shards_of_both = r"train sample (0, 1, 2, 3, 4, 5, 6, 7|8, 9, 10, 11, 12, 13, 14, 15) has no valid solution"  # a race
    with pytest.raises(SolverError, match=shards_of_both):
        generate(replace(TINY, draw=_explosive_draw), "tiny", root=tmp_path, workers=2)
    assert not list(tmp_path.rglob("*.h5*"))


def _explosive_draw(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    return 1e9 * TINY.draw(generator, grid)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="ended with signal 9"):
        generate(replace(TINY, draw=_suicidal_draw), "tiny", root=tmp_path, workers=2)


def _suicidal_draw(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return TINY.draw(generator, grid)


def test_states_without_a_frame_are_redrawn_and_counted(tmp_path: Path) -> None:
    strict = type(TINY.slice)(TINY.group)
    strict.threshold = 0.5
    folder = make(replace(TINY, slice=strict), tmp_path)
    manifest = read_manifest(folder)
    expected = sum(replace(TINY, slice=strict).initial_state(42, "train", i)[1] for i in range(20))
    assert manifest.redraws("train") == expected > 0


def test_two_generators_do_not_share_a_folder(tmp_path: Path) -> None:
    with FolderLock(tmp_path / TINY.name / "tiny-seed42"), pytest.raises(FolderInUseError, match=r"in use|already held"):
        make(TINY, tmp_path)


def test_a_disk_without_room_is_refused_before_work_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1_000_000))
    with pytest.raises(DatasetError, match=r"needs 0 MB and 1 MB are free"):
        make(TINY, tmp_path)


def test_a_disk_that_fills_up_leaves_no_partial_file(tmp_path: Path) -> None:
    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            make(TINY, tmp_path)
        except DatasetError as error:
            os._exit(7 if "could not be written" in str(error) else 8)

    assert in_a_fork(work) == 7
    assert not list(tmp_path.rglob("*.h5*"))


def test_an_unknown_preset_is_answered_with_the_list(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown preset 'huge': expected one of smoke, quick, standard, paper"):
        generate(TINY, "huge", root=tmp_path)


def test_presets_have_the_sizes_and_grids_of_the_protocol() -> None:
    one, two = PROBLEMS["burgers1d"], PROBLEMS["shallow_water"]
    for preset, counts in {"smoke": (24, 8, 8), "quick": (500, 50, 100), "standard": (1000, 100, 200)}.items():
        sizes = sizes_named(preset)
        assert (sizes.train, sizes.validation, sizes.test) == counts
    assert sizes_named("paper") == sizes_named("standard")
    smoke, full = ([recipe_of(p, preset, 1, stationary=False) for p in (one, two)] for preset in ("smoke", "paper"))
    assert [r.id_grid for r in smoke] == [(128,), (32, 32)] and [r.ood_grid for r in smoke] == [(256,), (64, 64)]
    assert [r.id_grid for r in full] == [(1024,), (64, 64)] and [r.ood_grid for r in full] == [(2048,), (128, 128)]


# --- what is in it --------------------------------------------------------------------------------------------------


def test_shapes_dtypes_and_grids_are_the_declared_ones(kept: Path) -> None:
    dataset = open_dataset(kept)
    train, moved = dataset.load("train"), dataset.load("test_ood", "ood")
    assert train.input.shape == train.target.shape == (20, 1, 32) and train.generators is None
    assert moved.input.shape == (12, 1, 64) and moved.input.dtype == torch.float32
    assert moved.generators is not None and moved.generators.shape == (12, 2)
    assert moved.generators.dtype == torch.float64 and moved.resolved is None


def test_the_id_grid_is_every_second_point_of_the_ood_grid(kept: Path) -> None:
    dataset = open_dataset(kept)
    for split in ("test_id", "test_ood"):
        fine, coarse = dataset.load(split, "ood"), dataset.load(split, "id")
        assert torch.equal(coarse.input, fine.input[..., ::2]) and torch.equal(coarse.target, fine.target[..., ::2])


def test_thinned_presets_take_every_kth_point_of_the_same_solutions(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SIZES, "tiny", Sizes(train=20, validation=8, test=12, thin=(8,)))
    thin, full = open_dataset(make(TINY, tmp_path)), open_dataset(kept)
    assert thin.recipe.ood_grid == (16,)
    for split in ("train", "test_id"):
        assert torch.equal(thin.load(split).input, coarsen(full.load(split).input, 4))
    assert torch.equal(thin.load("test_ood", "ood").target, coarsen(full.load("test_ood", "ood").target, 4))


@pytest.mark.parametrize(("split", "grid"), [("train", "ood"), ("test", "id"), ("test_id", "fine")])
def test_a_request_that_cannot_be_met_is_explained(kept: Path, split: str, grid: Any) -> None:
    with pytest.raises(ValueError, match=r"stored on the ID grid|unknown split|unknown grid"):
        open_dataset(kept).load(split, grid)


def twin_error(problem: Problem, plain: Samples, moved: Samples, horizon: float) -> float:
    """How far the moved samples are from acting on the plain ones, relative."""
    assert moved.generators is not None
    group = problem.group
    inputs = group.act(plain.input.double(), moved.generators)
    targets = group.act(plain.target.double(), group.transport(moved.generators, horizon))
    return max(float((ours - theirs).norm() / ours.norm()) for ours, theirs in ((inputs, moved.input), (targets, moved.target)))


@EACH
def test_ood_samples_are_the_moved_test_samples_and_lie_in_the_shell(problem: Problem, all_kept: dict[str, Path]) -> None:
    dataset = open_dataset(all_kept[problem.name])
    plain, moved = dataset.load("test_id", "ood"), dataset.load("test_ood", "ood")
    assert twin_error(problem, plain, moved, problem.horizon) < 1e-6
    if problem.horizon:
        assert twin_error(problem, plain, moved, 0.0) > 0.02  # forgetting Gamma_B would be noticed
    assert moved.generators is not None
    size = moved.generators.abs()
    assert bool((size >= torch.tensor(problem.ood_low)).all()) and bool((size <= torch.tensor(problem.ood_high)).all())
    assert len(size.unique(dim=0)) == len(size)


def test_where_the_group_is_not_exact_the_moved_state_is_solved_too(all_kept: dict[str, Path]) -> None:
    moved = open_dataset(all_kept[TURNING.name]).load("test_ood", "ood")
    assert moved.resolved is not None and moved.generators is not None
    _, solved = TURNING.solve(moved.input[:, :1].double())
    assert float((solved - moved.resolved).norm() / solved.norm()) < 1e-4
    assert 1e-6 < float((moved.target - moved.resolved).norm() / solved.norm()) < 0.2


@EACH
def test_test_samples_lie_on_the_slice_and_moved_ones_where_they_were_moved(
    problem: Problem, all_kept: dict[str, Path]
) -> None:
    dataset = open_dataset(all_kept[problem.name])
    assert float(slice_residuals(problem, dataset.load("test_id", "ood")).max()) < 1e-6
    assert float(generator_errors(problem, dataset.load("test_ood", "ood")).max()) < 1e-6


def test_the_stationary_switch_leaves_phases_where_they_fall(kept: Path, tmp_path: Path) -> None:
    folder = make(TINY, tmp_path, stationary=True)
    assert folder.name == "tiny-seed42-stationary"
    residual = slice_residuals(TINY, open_dataset(folder).load("test_id", "ood"))
    assert float(residual[0]) > 0.2
    assert open_dataset(folder).recipe.stationary and not open_dataset(kept).recipe.stationary


# --- files that are not believed ------------------------------------------------------------------------------------


def resign(folder: Path) -> None:
    """Make the manifest vouch for whatever is there now: what a hostile author would do."""
    manifest = json.loads((folder / MANIFEST).read_text())
    for entry in manifest["shards"]:
        path = folder / f"{entry['split']}-{entry['number']:03d}.h5"
        entry["bytes"], entry["sha256"] = path.stat().st_size, sha256_of(path)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def replaced(file: h5py.File, name: str, **options: Any) -> None:
    """The same dataset, stored in another way."""
    values = file[name][()]
    del file[name]
    file.create_dataset(name, data=values, **options)


def external_link(file: h5py.File) -> None:
    del file["input"]
    file["input"] = h5py.ExternalLink("train-000.h5", "/input")


def soft_link(file: h5py.File) -> None:
    del file["input"]
    file["input"] = h5py.SoftLink("/target")


def virtual_dataset(file: h5py.File) -> None:
    values = file["input"]
    table = h5py.VirtualLayout(values.shape, values.dtype)
    table[:] = h5py.VirtualSource("train-000.h5", "input", values.shape)
    del file["input"]
    file.create_virtual_dataset("input", table)


def external_storage(file: h5py.File) -> None:
    shape, dtype = file["input"].shape, file["input"].dtype
    (Path(file.filename).parent / "secret.bin").write_bytes(b"s" * 10_000)
    del file["input"]
    file.create_dataset("input", shape, dtype, external=[("secret.bin", 0, 10_000)])


def bomb(file: h5py.File) -> None:
    del file["input"]
    file.create_dataset("input", (20_000, 20_000), "<f8", chunks=(1000, 1000), compression="gzip")


def unwritten(file: h5py.File) -> None:
    shape, dtype = file["input"].shape, file["input"].dtype
    del file["input"]
    file.create_dataset("input", shape, dtype)  # never allocated: reads as zeros


def wrong_shape(file: h5py.File) -> None:
    values = file["input"][()]
    del file["input"]
    file.create_dataset("input", data=values[:, :, ::2])


def wrong_dtype(file: h5py.File) -> None:
    values = file["input"][()].astype("<f8")
    del file["input"]
    file.create_dataset("input", data=values)


def group_in_place(file: h5py.File) -> None:
    del file["input"]
    file.create_group("input")


def rewritten(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[h5py.File], None]:
    """Other values with a matching checksum."""

    def edit(file: h5py.File) -> None:
        file[name][...] = change(file[name][()])
        arrays = {key: file[key][()] for key in file}
        file.attrs["checksum"] = np.bytes_(shards.checksum(arrays))

    edit.__name__ = f"{name}_rewritten"
    return edit


def with_nan(values: np.ndarray) -> np.ndarray:
    values[3, 0, 5] = np.nan
    return values


HOSTILE: list[tuple[Callable[[h5py.File], None], str]] = [
    (external_link, "link to elsewhere"),
    (soft_link, "link to elsewhere"),
    (virtual_dataset, "virtual dataset"),
    (external_storage, "keeps its values in another file"),
    (bomb, "compressed or chunked"),
    (unwritten, "declares 1024 bytes and stores 0"),
    (wrong_shape, r"expected \(8, 1, 32\) <f4, got \(8, 1, 16\)"),
    (wrong_dtype, "expected .* <f4, got .* <f8"),
    (group_in_place, "is no dataset"),
    (lambda file: replaced(file, "input", compression="gzip"), "compressed or chunked"),
    (lambda file: replaced(file, "input", shuffle=True, chunks=(8, 1, 32)), "compressed or chunked"),
    (lambda file: file.create_dataset("extra", data=[1.0]), "expected the objects"),
    (lambda file: file.create_group("extra"), "expected the objects"),
    (lambda file: file.__delitem__("target"), "expected the objects"),
    (lambda file: file.attrs.create("extra", 1), "expected the attributes"),
    (lambda file: file["input"].attrs.create("extra", 1), "carries attributes"),
    (lambda file: file.attrs.__delitem__("complete"), "was never finished"),
    (lambda file: file.attrs.create("complete", False), "was never finished"),
    (lambda file: file.attrs.create("start", np.zeros(3, "<i8")), "attribute 'start'"),
    (lambda file: file.attrs.create("start", 5, dtype="<i8"), "other samples than its name says"),
    (lambda file: file.attrs.create("format", 9, dtype="<i8"), "has format 9"),
    (lambda file: file.attrs.create("recipe", np.bytes_(b"0" * 64)), "other settings"),
]
POISONED: list[tuple[Callable[[h5py.File], None], str]] = [
    (rewritten("input", with_nan), "input: 1 of 256 values are NaN"),
    (rewritten("x", lambda x: np.linspace(0, 1, len(x))), "the end point of the period is listed twice"),
    (rewritten("x", lambda x: x**2), "spacing varies"),
    (lambda file: file["input"].write_direct(np.zeros((8, 1, 32), "<f4")), "do not match its own checksum"),
]


@pytest.mark.parametrize(("edit", "message"), HOSTILE + POISONED)
def test_a_shard_that_is_not_exactly_as_written_is_refused(
    copy: Path, edit: Callable[[h5py.File], object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy / "train-001.h5"
    with h5py.File(path, "r+") as file:
        edit(file)
    with pytest.raises(DatasetError, match=r"bytes, expected|is altered") as error:
        open_dataset(copy)  # the sum alone gives it away
    assert error.value.path == path
    resign(copy)
    if edit in [one for one, _ in HOSTILE]:  # then the structure must, before a value is read
        with monkeypatch.context() as patch, pytest.raises(DatasetError, match=message):
            patch.setattr(h5py.Dataset, "__getitem__", lambda self, key: pytest.fail("values were read"))
            open_dataset(copy)
    with pytest.raises(DatasetError, match=message) as error:
        open_dataset(copy, verify=False).load("train")
    assert error.value.path == path


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_shard_is_refused_by_size_and_by_content(copy: Path, share: float) -> None:
    path = copy / "test_ood-001.h5"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DatasetError, match="truncated or altered"):
        open_dataset(copy)
    with pytest.raises(DatasetError) as error:
        open_dataset(copy, verify=False).load("test_ood")
    assert error.value.path == path


def test_one_flipped_bit_is_noticed_with_and_without_sums(copy: Path) -> None:
    path = copy / "test_id-000.h5"
    content = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        content[file["target"].id.get_offset() + 50] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="is altered"):
        open_dataset(copy)
    with pytest.raises(DatasetError, match="checksum"):
        open_dataset(copy, verify=False).load("test_id")


def test_random_damage_is_refused_or_harmless_and_nothing_else(copy: Path) -> None:
    path = copy / "test_ood-000.h5"
    content, dataset = path.read_bytes(), open_dataset(copy)
    good = dataset.load("test_ood", "ood")
    random = np.random.default_rng(0)
    for _ in range(150):
        damaged = bytearray(content)
        for place in random.integers(0, len(content), 3):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            loaded = dataset.load("test_ood", "ood")
        except DatasetError as error:
            assert error.path == path
        else:
            assert torch.equal(loaded.target, good.target)  # a byte that nobody reads


def test_links_and_missing_files_are_refused(copy: Path) -> None:
    path, elsewhere = copy / "train-000.h5", copy.parent / "elsewhere.h5"
    path.rename(elsewhere)
    with pytest.raises(DatasetError, match=r"train-000\.h5: is missing"):
        open_dataset(copy)
    path.symlink_to(elsewhere)
    with pytest.raises(DatasetError, match="is a link or no regular file"):
        open_dataset(copy)


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        content = json.loads(text)
        change(content)
        return json.dumps(content)

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: text[:200], "is no JSON"),
        (lambda text: "[" * 100_000, "is no JSON"),
        (lambda text: "[]", "has format None"),
        (lambda text: text + " " * 5_000_000, "bytes, expected at most"),
        (edited(lambda c: c.update(format=2)), "has format 2, this version reads 1"),
        (edited(lambda c: c.update(extra=1)), "extra"),
        (edited(lambda c: c["recipe"].update(train=10**12)), "recipe.train"),
        (edited(lambda c: c["recipe"].update(ood_grid=[10**6])), "recipe.ood_grid"),
        (edited(lambda c: c["recipe"].update(seed="42")), "recipe.seed"),
        (edited(lambda c: c["recipe"].update(coarsening=4)), "is no part of the OOD grid"),
        (edited(lambda c: c["recipe"].update(train=21)), "lists 20 samples of train, expected 21"),
        (edited(lambda c: c["shards"][0].update(split="../../etc")), "shards.0.split"),
        (edited(lambda c: c["shards"][0].update(bytes=10**9)), "larger than its samples need"),
        (edited(lambda c: c["shards"].reverse()), "not in order"),
    ],
)
def test_a_manifest_that_is_not_ours_is_refused(copy: Path, edit: Callable[[str], str], message: str) -> None:
    path = copy / MANIFEST
    path.write_text(edit(path.read_text()))
    with pytest.raises(DatasetError, match=message) as error:
        open_dataset(copy)
    assert error.value.path == path


def test_an_unfinished_dataset_says_how_to_finish_it(copy: Path, tmp_path: Path) -> None:
    (copy / MANIFEST).unlink()
    command = f"pacefno data generate {TINY.name} --preset tiny --seed 42 --root {copy.parent.parent}"
    with pytest.raises(DatasetError, match=re.escape(f"run '{command}' to finish it")):
        open_dataset(copy)
    with pytest.raises(DatasetError, match="there is no such folder"):
        open_dataset(tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="holds no dataset"):
        open_dataset(tmp_path)


def test_half_a_shard_that_was_only_flushed_is_remade(kept: Path, copy: Path) -> None:
    """HDF5 opens such a file without complaint and reads the rest as zeros."""
    path = copy / "train-002.h5"
    with h5py.File(path, "r+") as file:
        del file.attrs["complete"]
        file["target"][2:] = 0
    (copy / MANIFEST).unlink()
    make(TINY, copy.parent.parent)
    assert sums(copy) == sums(kept)


# --- statistics, spectra, pictures, commands ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("grid", [(16,), (9, 7)])
def test_channel_statistics_are_those_of_each_channel(dtype: torch.dtype, grid: tuple[int, ...]) -> None:
    fields = torch.randn(5, 3, *grid, dtype=dtype, generator=torch.Generator().manual_seed(1))
    fields[:, 1] = fields[:, 1] * 0.01 + 100
    fields[:, 2] = 1 / 3
    mean, std = channel_statistics(fields)
    assert mean.dtype == std.dtype == dtype and mean.shape == std.shape == (3,)
    moved = fields.double().transpose(0, 1).flatten(1)
    assert torch.allclose(mean.double(), moved.mean(1), rtol=1e-6, atol=1e-7)
    assert torch.allclose(std.double()[:2], moved.std(1, unbiased=False)[:2], rtol=1e-4)
    assert std[2] == 1  # a constant channel is not divided by its round-off


@EACH
def test_pictures_are_drawn_for_lines_and_images(problem: Problem, all_kept: dict[str, Path], tmp_path: Path) -> None:
    dataset = open_dataset(all_kept[problem.name])
    for draw in (draw_samples, draw_spectra):
        path = tmp_path / "pictures" / f"{draw.__name__}.png"
        draw(dataset, path)
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000


def command(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(data_app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


def test_the_commands_make_and_show_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROBLEMS, TINY.name, TINY)
    code, text = command("generate", TINY.name, "--preset", "tiny", "--root", tmp_path, "--workers", 1)
    folder = tmp_path / TINY.name / "tiny-seed42"
    assert code == 0 and f"{folder} is complete" in text and "20 of 40 samples" in text
    picture = tmp_path / "samples.png"
    code, text = command("show", folder, "--output", picture)
    assert code == 0 and picture.exists()
    for part in ("test_ood", "1 x 64", "input u", "velocity", "redrawn", "nu = 0.01"):
        assert part in text


def test_the_commands_answer_mistakes_with_one_line(copy: Path, tmp_path: Path) -> None:
    known = ", ".join([*PROBLEMS, *TRAJECTORY_PROBLEMS])
    assert command("generate", "burgers4d") == (2, f"error: unknown problem 'burgers4d': expected one of {known}")
    code, text = command("generate", "burgers1d", "--preset", "giant", "--root", tmp_path)
    assert code == 2 and text.startswith("error: unknown preset 'giant'")
    assert command("generate", "burgers1d", "--workers", 0)[0] == 2
    (copy / "train-000.h5").unlink()
    code, text = command("show", copy)
    assert code == 1 and text.startswith(f"error: {copy}/train-000.h5: is missing")
    file = tmp_path / "file"
    file.write_text("")
    code, text = command("generate", "burgers1d", "--preset", "smoke", "--root", file)
    assert code == 1 and "choose another --root" in text


@pytest.mark.parametrize("name", ["generate", "show"])
def test_the_help_explains_itself(name: str) -> None:
    code, text = command(name, "--help")
    assert code == 0 and "Example: pacefno data" in text


@pytest.mark.slow
def test_an_interrupted_pool_leaves_no_process_behind(tmp_path: Path) -> None:
    class Interrupting(Silent):
        def stored(self, name: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(TINY, "tiny", root=tmp_path, workers=2, progress=Interrupting())
    assert not multiprocessing.active_children()
