"""Making datasets: equal settings give equal bytes, and nothing that interrupts a run spoils it."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from small_recipes import (
    BURGERS,
    EXPLOSIVE,
    KDV,
    SIGNING,
    SUICIDAL,
    die,
    draw_wave,
    folder,
    opened_tiny,
    sums,
    times,
)
from torch import Tensor

from pacefno.data import (
    DatasetError,
    PairDataset,
    PairRecipe,
    Recipe,
    Sizes,
    folder_of,
    generate,
    is_generated,
    open_dataset,
    prepare,
)
from pacefno.data.store import read_arrays
from pacefno.errors import UsageError
from pacefno.files import FolderInUseError, lock_folder
from pacefno.pde import Law, SolverError

NAMES = ["test_id.h5", "test_ood.h5", "train.h5", "validation.h5"]


def make(recipe: Recipe, root: Path, **options: Any) -> Path:
    return generate(recipe, "tiny", root=root, workers=1, **options)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished dataset for all tests that only read."""
    return make(BURGERS, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def copy(kept: Path, tmp_path: Path) -> Path:
    """The same dataset where a test may damage it, under ``tmp_path``."""
    return Path(shutil.copytree(kept, folder(BURGERS, tmp_path)))


# --- what is made ---------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(
    kept: Path, tmp_path: Path
) -> None:
    assert sums(make(BURGERS, tmp_path)) == sums(kept)
    other = sums(make(BURGERS, tmp_path, seed=43))
    assert all(other[name] != value for name, value in sums(kept).items())


def test_the_folder_is_named_by_its_settings_and_holds_one_file_per_split(kept: Path) -> None:
    assert kept.parts[-2:] == (BURGERS.name, "tiny-seed42")
    assert sorted(path.name for path in kept.iterdir()) == ["run.lock", *NAMES]
    assert folder_of(Path("a"), KDV, "quick", 7) == Path("a/tiny_kdv/quick-seed7")
    assert folder_of(Path("a"), BURGERS, "b", 1, True) == Path("a/tiny_burgers/b-seed1-stationary")


def test_progress_is_told_in_samples(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    make(BURGERS, tmp_path, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 40) for done in (0, 8, 16, 20, 28, 36, 40)]
    told.clear()
    make(BURGERS, tmp_path, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(40, 40)]


def test_jobs_are_no_larger_than_memory_allows_and_end_with_whole_batches(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["pacefno.data.generate"], "PART_BYTES", 10_000)
    told: list[int] = []
    large = replace(BURGERS, part_samples=48)
    place = make(large, tmp_path, on_progress=lambda done, total: told.append(done))
    assert told == [0, 16, 20, 28, 36, 40]  # 512 bytes per training sample, 2064 per test sample
    for name in NAMES:
        ours, theirs = read_arrays(place / name), read_arrays(kept / name)
        assert all(np.array_equal(ours[key], theirs[key]) for key in theirs)


def test_the_number_of_threads_is_as_it_was_afterwards(tmp_path: Path) -> None:
    used: list[int] = []

    def draw(generator: torch.Generator, grid: tuple[int, ...]) -> Tensor:
        used.append(torch.get_num_threads())
        return draw_wave(generator, grid)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        make(replace(BURGERS, law=Law("waves", draw)), tmp_path)
        assert torch.get_num_threads() == 2 and set(used) == {1}
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [BURGERS, KDV], ids=lambda recipe: recipe.name)
def test_two_processes_write_the_same_bytes_as_one(recipe: Recipe, tmp_path: Path) -> None:
    one = make(recipe, tmp_path / "one")
    two = generate(recipe, "tiny", root=tmp_path / "two", workers=2)
    assert sums(two) == sums(one) and not (two / "parts").exists()


def test_rejected_draws_are_counted(tmp_path: Path) -> None:
    strict = type(BURGERS.task.slice)(BURGERS.task.group)
    strict.threshold = 0.5
    recipe = replace(BURGERS, task=BURGERS.task.model_copy(update={"slice": strict}))
    redraws = read_arrays(make(recipe, tmp_path) / "train.h5", ["redraws"])["redraws"]
    assert redraws.tolist() == [recipe.initial_state(42, "train", i)[1] for i in range(20)]
    assert redraws.sum() > 0


# --- what interrupts it ---------------------------------------------------------------------------


def in_a_fork(work: Callable[[], object]) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(60)
    return process.exitcode


def killing(count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which at the n-th call kills its process as the system would."""
    calls = 0

    def wrapped(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)

    return wrapped


# Eight files of parts are written, then four splits; a rename gives each file its name.
@pytest.mark.parametrize("renamed", [1, 3, 6, 9, 10, 12])
def test_a_killed_run_continues_and_ends_with_the_same_bytes(
    kept: Path, tmp_path: Path, renamed: int
) -> None:
    def work() -> None:
        os.replace = killing(renamed, os.replace)  # the file is complete, but has no real name yet
        make(BURGERS, tmp_path)

    assert in_a_fork(work) == -signal.SIGKILL
    place = folder(BURGERS, tmp_path)
    assert not is_generated(place, BURGERS)
    with pytest.raises(DatasetError, match=r"is not finished|holds no dataset") as error:
        opened_tiny(BURGERS, place)
    assert error.value.path == place
    finished, parts = times(place), times(place / "parts") if renamed > 1 else {}
    # Of a job whose second file was lost, the first is made again: both come from one solution.
    lost = {"test_id-000000.h5"} if renamed == 6 else set()
    assert len(finished) == max(0, renamed - 9) and (len(parts) > 0) == (renamed > 1)

    written: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        honest = os.replace
        patch.setattr(os, "replace", lambda a, b: (written.append(Path(b).name), honest(a, b)))
        make(BURGERS, tmp_path)
    assert not set(written) & ((parts.keys() - lost) | finished.keys())  # these were kept
    assert sums(place) == sums(kept) and not (place / "parts").exists()
    assert not list(place.glob("*.tmp-*"))


def test_parts_of_an_interrupted_run_with_other_settings_are_not_used(
    kept: Path, tmp_path: Path
) -> None:
    def stop_late(done: int, total: int) -> None:
        if done == 28:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(replace(BURGERS, step=0.02), tmp_path, on_progress=stop_late)
    assert len(times(folder(BURGERS, tmp_path) / "parts")) == 4
    assert sums(make(BURGERS, tmp_path)) == sums(kept)


def test_a_damaged_part_is_made_again(kept: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(BURGERS, tmp_path, on_progress=stop)
    parts = folder(BURGERS, tmp_path) / "parts"
    with h5py.File(parts / "train-000008.h5", "r+") as file:
        file["input"][0, 0, 0] += 1
    (parts / "train-000000.h5").write_text("damaged")
    told: list[int] = []
    make(BURGERS, tmp_path, on_progress=lambda done, total: told.append(done))
    assert told[0] == 4 and sums(parts.parent) == sums(kept)


@pytest.mark.slow
def test_workers_die_with_their_parent_and_the_next_run_continues(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = tmp_path / "workers"
    workers.mkdir()
    monkeypatch.setenv("PACEFNO_TEST_SIGN_IN", str(workers))
    parent = multiprocessing.get_context("spawn").Process(
        target=generate,
        args=(SIGNING, "tiny"),
        kwargs={"root": tmp_path, "workers": 2, "on_progress": die},
    )
    parent.start()
    parent.join(60)
    assert parent.exitcode == -signal.SIGKILL
    pids = [int(path.name) for path in workers.iterdir()]
    assert pids and parent.pid not in pids
    deadline = time.monotonic() + 20
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, pids))
    told: list[int] = []
    make(BURGERS, tmp_path, on_progress=lambda done, total: told.append(done))
    assert told[0] > 0 and sums(folder(BURGERS, tmp_path)) == sums(kept)


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie, which nobody may collect in a container."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_an_interrupted_pool_leaves_no_process_behind(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(BURGERS, "tiny", root=tmp_path, workers=2, on_progress=interrupt)
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_worker_that_is_killed_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"worker process ended early .*: run the same command"):
        generate(SUICIDAL, "tiny", root=tmp_path, workers=2)
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_failure_in_a_worker_arrives_as_it_is(tmp_path: Path) -> None:
    first, second = "0, 1, 2, 3, 4, 5, 6, 7", "8, 9, 10, 11, 12, 13, 14, 15"  # whichever is first
    with pytest.raises(
        SolverError, match=rf"train sample ({first}|{second}) has no valid solution"
    ):
        generate(EXPLOSIVE, "tiny", root=tmp_path, workers=2)
    assert not list(tmp_path.rglob("*.h5*"))


def test_a_failed_solution_names_itself_and_nothing_of_its_part_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = PairRecipe.initial_state

    def explosive(
        self: PairRecipe, seed: int, part: str, index: int, *, stationary: bool = False
    ) -> tuple[Tensor, int]:
        state, redraws = honest(self, seed, part, index, stationary=stationary)
        return (state * 1e9 if (part, index) == ("train", 11) else state), redraws

    monkeypatch.setattr(PairRecipe, "initial_state", explosive)
    expected = r"train sample 11 has no valid solution with step size 0\.01"
    with pytest.raises(SolverError, match=expected):
        make(BURGERS, tmp_path)
    place = folder(BURGERS, tmp_path)
    assert list(times(place / "parts")) == ["train-000000.h5"] and not times(place)


# --- what is there already ------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "flip", "delete", "foreign"])
def test_generating_again_replaces_bad_files_and_only_those(
    kept: Path, copy: Path, tmp_path: Path, damage: str
) -> None:
    path, before = copy / "train.h5", times(copy)
    content = bytearray(path.read_bytes())
    if damage == "flip":
        with h5py.File(path) as file:
            content[file["input"].id.get_offset() + 100] ^= 1
    path.write_bytes({"cut": content[:-7], "foreign": b"not HDF5"}.get(damage, content))
    if damage == "delete":
        path.unlink()
    make(BURGERS, tmp_path)
    assert sums(copy) == sums(kept)
    after = times(copy)
    assert {name for name in before if before[name] != after[name]} == {"train.h5"}


def test_a_finished_dataset_is_left_alone(copy: Path, tmp_path: Path) -> None:
    before = times(copy)
    make(BURGERS, tmp_path)
    assert times(copy) == before


def test_a_finished_dataset_with_other_settings_is_neither_replaced_nor_opened(
    copy: Path, tmp_path: Path
) -> None:
    before = sums(copy)
    changes: list[tuple[PairRecipe, str]] = [
        (replace(BURGERS, step=0.005), r"solver_step was 0\.01, now 0\.005"),
        (replace(BURGERS, law=Law("others", draw_wave)), "law was waves, now others"),
        (replace(BURGERS, sizes={"tiny": Sizes(21, 8, 12)}), r"samples\.train was 20, now 21"),
    ]
    for other, difference in changes:
        expected = rf"other settings \({difference}\).*delete the folder.*choose another --root"
        with pytest.raises(DatasetError, match=expected):
            make(other, tmp_path)
        with pytest.raises(DatasetError, match=rf"other settings \({difference}\).*made anew"):
            opened_tiny(other, copy, verify=False)
    with pytest.raises(DatasetError, match="seed was 42, now 43"):
        open_dataset(BURGERS, copy, preset="tiny", seed=43)
    assert sums(copy) == before


def test_a_dataset_is_prepared_once_and_then_only_opened(tmp_path: Path) -> None:
    first = prepare(BURGERS, "tiny", root=tmp_path, workers=1)
    before = times(folder(BURGERS, tmp_path))
    second = prepare(BURGERS, "tiny", 42, tmp_path)
    assert isinstance(first, PairDataset) and first == second
    assert times(folder(BURGERS, tmp_path)) == before
    with pytest.raises(DatasetError, match="other settings"):
        prepare(replace(BURGERS, step=0.005), "tiny", root=tmp_path)


def test_an_unfinished_dataset_says_how_to_finish_it(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy / "train.h5").unlink()
    command = f"pacefno data generate {BURGERS.name} --preset tiny --seed 42 --root {tmp_path}"
    expected = re.escape(f"is not finished: run '{command}', what is there is kept")
    with pytest.raises(DatasetError, match=expected):
        opened_tiny(BURGERS, copy)
    monkeypatch.chdir(copy)
    with pytest.raises(DatasetError, match=expected):  # a relative path has names, too
        opened_tiny(BURGERS, Path())
    with pytest.raises(DatasetError, match="there is no such folder"):
        opened_tiny(BURGERS, tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="holds no dataset: give a folder"):
        opened_tiny(BURGERS, tmp_path)


# --- what stands in the way -----------------------------------------------------------------------


def test_two_generators_do_not_share_a_folder(tmp_path: Path) -> None:
    with lock_folder(folder(BURGERS, tmp_path)), pytest.raises(FolderInUseError, match="in use"):
        make(BURGERS, tmp_path)


def test_preparing_waits_for_the_one_that_makes_the_dataset(kept: Path, tmp_path: Path) -> None:
    place = folder(BURGERS, tmp_path)

    def hold() -> None:
        with lock_folder(place):
            (tmp_path / "held").touch()
            time.sleep(0.5)
            shutil.copytree(kept, place, dirs_exist_ok=True)

    holder = multiprocessing.get_context("fork").Process(target=hold)
    holder.start()
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    told: list[int] = []
    prepare(BURGERS, "tiny", root=tmp_path, on_progress=lambda done, total: told.append(done))
    holder.join()
    assert told == [40] and sums(place) == sums(kept)


def test_a_disk_without_room_is_refused_before_work_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1_000_000))
    with pytest.raises(DatasetError, match=r"needs 0 MB and 1 MB are free: make room"):
        make(BURGERS, tmp_path)
    assert not list(tmp_path.rglob("*.h5"))


def test_a_finished_dataset_needs_no_room(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0))
    assert make(BURGERS, tmp_path) == copy


def test_a_root_that_is_no_folder_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match=r"cannot be written there .*: choose another --root"):
        make(BURGERS, tmp_path / "file")


def test_an_unknown_preset_and_no_worker_are_answered_before_anything_is_made(
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match=r"unknown preset 'tny'. Did you mean 'tiny'"):
        generate(BURGERS, "tny", root=tmp_path)
    with pytest.raises(UsageError, match="expected at least one process, got 0"):
        generate(BURGERS, "tiny", root=tmp_path, workers=0)
    assert list(tmp_path.iterdir()) == []
