"""Files in LPSDA's layout: theirs can be read, ours are like theirs, and what is wrong with a file is said."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from pacefno.cli import app
from pacefno.data import trajectories as module
from pacefno.data.errors import DatasetError
from pacefno.data.lpsda import file_name, read_lpsda, read_recipe, write_lpsda
from pacefno.data.progress import Silent
from pacefno.data.trajectories import PARTS, generate_trajectories, make_part, read_split
from pacefno.equations import TRAJECTORY_PROBLEMS, SolverError
from pacefno.equations.kdv import KdV
from pacefno.lock import FolderInUseError, FolderLock
from pacefno.symmetry import Trajectories

EASY = TRAJECTORY_PROBLEMS["kdv_easy"]
TINY = dataclasses.replace(EASY, points=24, solver_points=36, solved=8, frames=5, substeps=2, end_time=EASY.spacing * 7)
FILES = ["KdV_test_easy.h5", "KdV_train_16_easy.h5", "KdV_valid_easy.h5"]


def some(count: int = 3, dtype: torch.dtype = torch.float64) -> Trajectories:
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(count, 5, 8, dtype=torch.float64, generator=generator)
    rows = torch.linspace(0.9, 1.1, count, dtype=torch.float64)
    return Trajectories(u.to(dtype), (128 * rows).to(dtype), (0.4 * rows).to(dtype))


def as_lpsda_writes(path: Path, mode: str = "train", count: int = 3) -> None:
    """Empty arrays first, then one trajectory after the other, everything in the library's defaults."""
    source, nt = some(count), 9
    with h5py.File(path, "a") as file:
        group = file.create_group(mode)
        u = group.create_dataset("pde_5-8", (count, 5, 8), dtype=float)
        x, dx = group.create_dataset("x", (count, 8), dtype=float), group.create_dataset("dx", (count,), dtype=float)
        t, dt = group.create_dataset("t", (count, 5), dtype=float), group.create_dataset("dt", (count,), dtype=float)
        for i in range(count):
            length, end = float(source.length[i]), float(source.spacing[i]) * (nt - 1)
            u[i : i + 1] = source.u[i].numpy()
            x[i : i + 1], dx[i : i + 1] = np.linspace(0, (1 - 1 / 8) * length, 8), length / 8
            t[i : i + 1], dt[i : i + 1] = np.linspace(0, end, nt)[-5:], end / (nt - 1)


def alike(a: Trajectories, b: Trajectories, tolerance: float = 1e-12) -> bool:
    pairs = ((a.u, b.u), (a.length, b.length), (a.spacing, b.spacing))
    return all(torch.allclose(x.double(), y.double(), rtol=tolerance, atol=tolerance) for x, y in pairs)


# --- one file


def test_a_file_gives_back_what_was_written(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "new" / "KdV_valid.h5"
    write_lpsda(path, "valid", some(dtype=dtype), first_frame=4, recipe="mine")
    got = read_lpsda(path, "valid")
    assert alike(got, some(dtype=dtype)) and got.u.dtype == torch.float64
    assert not alike(got, some().select(torch.tensor([1, 0, 2])))
    assert read_recipe(path) == "mine" and [p.name for p in path.parent.iterdir()] == ["KdV_valid.h5"]


def test_the_same_trajectories_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.h5", "b.h5"):
        write_lpsda(tmp_path / name, "test", some())
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_files_of_lpsda_can_be_read(tmp_path: Path) -> None:
    as_lpsda_writes(tmp_path / "KdV_train_3.h5")
    assert alike(read_lpsda(tmp_path / "KdV_train_3.h5", "train"), some())
    assert read_recipe(tmp_path / "KdV_train_3.h5") is None


def test_our_files_hold_what_lpsda_reads_from_its_own(tmp_path: Path) -> None:
    as_lpsda_writes(tmp_path / "theirs.h5")
    write_lpsda(tmp_path / "ours.h5", "train", some(), first_frame=4)
    with h5py.File(tmp_path / "theirs.h5") as theirs, h5py.File(tmp_path / "ours.h5") as ours:
        assert list(theirs) == list(ours) == ["train"] and set(theirs["train"]) == set(ours["train"])
        for name, dataset in theirs["train"].items():
            other = ours["train"][name]
            assert other.dtype == dataset.dtype == np.float64 and other.shape == dataset.shape
            assert np.allclose(other[1], dataset[1], rtol=1e-12, atol=1e-12)


def test_names_are_those_of_lpsda() -> None:
    assert file_name("KdV", "train", 512) == "KdV_train_512.h5" and file_name("KS", "valid", 512) == "KS_valid.h5"
    assert file_name("KdV", "train", 512, "easy") == "KdV_train_512_easy.h5"
    assert file_name("KdV", "test", 512, "easy") == "KdV_test_easy.h5"


def remove_array(name: str) -> Callable[[h5py.File], None]:
    return lambda file: file["train"].__delitem__(name)


def replace_array(name: str, values: np.ndarray) -> Callable[[h5py.File], None]:
    def spoil(file: h5py.File) -> None:
        del file["train"][name]
        file["train"][name] = values

    return spoil


def set_value(name: str, index: tuple[int, ...], value: float) -> Callable[[h5py.File], None]:
    return lambda file: file["train"][name].__setitem__(index, value)


def link_away(file: h5py.File) -> None:
    del file["train"]["dx"]
    file["train"]["dx"] = h5py.ExternalLink("elsewhere.h5", "/dx")


FAULTS = {
    "no group": (lambda file: file.move("train", "test"), r"expected a group 'train', got \['test'\]"),
    "no solutions": (remove_array("pde_5-8"), "expected one array pde_<frames>-<points>"),
    "two resolutions": (lambda file: file["train"].copy("pde_5-8", "pde_5-9"), "expected one array"),
    "no times": (remove_array("t"), "has no t: expected"),
    "other frames": (replace_array("t", np.ones((3, 4))), r"'t': expected \(N, 5\) of floats"),
    "fewer steps": (replace_array("dt", np.ones(2)), r"'dt': expected \(N,\) of floats"),
    "a name that lies": (lambda file: file["train"].move("pde_5-8", "pde_8-5"), r"'pde_8-5': expected \(N, 8, 5\)"),
    "whole numbers": (replace_array("pde_5-8", np.ones((3, 5, 8), int)), "of floats"),
    "a number alone": (replace_array("pde_5-8", np.float64(1.0)), "of floats"),
    "not a number": (
        set_value("pde_5-8", (1, 2, 3), math.nan),
        "'pde_5-8' holds NaN or infinity in 1 trajectories, the first is 1",
    ),
    "infinite": (set_value("x", (2, 7), math.inf), "'x' holds NaN"),
    "never solved": (set_value("dx", (2,), 0.0), "trajectory 2 has dx 0.0: was it never solved"),
    "uneven times": (set_value("t", (1, 4), 9.0), "trajectory 1: the steps of 't' are not its 'dt'"),
    "another grid": (set_value("dx", (0,), 9.0), "trajectory 0: the steps of 'x' are not its 'dx'"),
    "a link": (link_away, "'dx' is a link"),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, fault: str) -> None:
    spoil, message = FAULTS[fault]
    path = tmp_path / "KdV_train_3.h5"
    as_lpsda_writes(path)
    with h5py.File(path, "r+") as file:
        spoil(file)
    with pytest.raises(DatasetError, match=message) as raised:
        read_lpsda(path, "train")
    assert raised.value.path == path


def test_a_file_that_is_none_or_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "KdV_train_3.h5"
    with pytest.raises(DatasetError, match="no such file"):
        read_lpsda(path, "train")
    path.write_text("hello")
    with pytest.raises(DatasetError, match="truncated or no HDF5 file"):
        read_lpsda(path, "train")
    write_lpsda(path, "train", some())
    with h5py.File(path, "r+") as file:
        file["train/pde_5-8"][0, 0, 0] += 1e-9
    with pytest.raises(DatasetError, match="checksum"):
        read_lpsda(path, "train")


def test_trajectories_that_cannot_be_read_are_not_written(tmp_path: Path) -> None:
    bad = dataclasses.replace(some(), u=torch.full((3, 5, 8), math.nan))
    with pytest.raises(DatasetError, match="NaN"):
        write_lpsda(tmp_path / "KdV_test.h5", "test", bad)
    assert list(tmp_path.iterdir()) == []


# --- a whole dataset


class Counting(Silent):
    def __init__(self) -> None:
        self.began: tuple[int, int] = (0, 0)
        self.solved = 0

    def start(self, title: str, total: int, done: int) -> None:
        self.began = (total, done)

    def advance(self, samples: int) -> None:
        self.solved += samples


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_dataset_has_the_samples_of_the_problem_in_the_files_of_lpsda(tmp_path: Path) -> None:
    progress = Counting()
    folder = generate_trajectories(TINY, "smoke", 7, tmp_path, workers=1, progress=progress)
    assert folder == tmp_path / "kdv_easy" / "smoke-seed7" and list(content(folder)) == FILES
    assert progress.began == (32, 0) and progress.solved == 32
    train = read_split(TINY, folder, "train")
    assert tuple(train.u.shape) == (16, 5, 24)
    assert alike(train.select(slice(3, 4)), TINY.solve(*TINY.initial(7, "train", [3])))
    assert not alike(train.select(slice(0, 8)), read_split(TINY, folder, "test"))
    with h5py.File(folder / "KdV_train_16_easy.h5") as file:
        assert np.allclose(file["train/t"][:, 0], 3 * file["train/dt"][:])  # the first three frames are not kept


def test_an_interrupted_dataset_is_finished_without_solving_anything_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = content(generate_trajectories(TINY, "smoke", 7, tmp_path / "whole", workers=1))
    monkeypatch.setattr(module, "PART_SAMPLES", 4)

    def fails_in_the_middle(*arguments: object) -> list[str]:
        if arguments[3][0].start == 8:
            raise SolverError("power cut")
        return make_part(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, "make_part", fails_in_the_middle)
        with pytest.raises(SolverError, match="power cut"):
            generate_trajectories(TINY, "smoke", 7, tmp_path / "cut", workers=1)
    folder = tmp_path / "cut" / "kdv_easy" / "smoke-seed7"
    assert sorted(p.name for p in (folder / PARTS).iterdir()) == ["train-000.h5", "train-001.h5"]
    with pytest.raises(DatasetError, match=r"expected one file like .*, got none"):
        read_split(TINY, folder, "train")
    (folder / PARTS / "train-001.h5").write_text("damaged")
    progress = Counting()
    generate_trajectories(TINY, "smoke", 7, tmp_path / "cut", workers=1, progress=progress)
    assert progress.began == (32, 4) and progress.solved == 28
    assert content(folder) == whole
    again = Counting()
    generate_trajectories(TINY, "smoke", 7, tmp_path / "cut", workers=1, progress=again)
    assert again.began == (32, 32) and content(folder) == whole


@pytest.mark.slow
def test_two_processes_make_the_same_bytes_as_one(tmp_path: Path) -> None:
    one = generate_trajectories(TINY, "smoke", 7, tmp_path / "one", workers=1)
    assert content(generate_trajectories(TINY, "smoke", 7, tmp_path / "two", workers=2)) == content(one)


def test_a_file_with_other_settings_or_of_others_is_never_replaced(tmp_path: Path) -> None:
    folder = generate_trajectories(TINY, "smoke", 7, tmp_path, workers=1)
    with pytest.raises(DatasetError, match="made with other settings"):
        generate_trajectories(dataclasses.replace(TINY, substeps=3), "smoke", 7, tmp_path, workers=1)
    (folder / FILES[0]).unlink()
    as_lpsda_writes(folder / FILES[0], "test")
    before = content(folder)
    with pytest.raises(DatasetError, match="made with other settings"):
        generate_trajectories(TINY, "smoke", 7, tmp_path, workers=1)
    assert content(folder).items() >= before.items()


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    folder = generate_trajectories(TINY, "smoke", 7, tmp_path, workers=1)
    before = content(folder)
    with h5py.File(folder / FILES[0], "r+") as file:
        file["test/pde_5-24"][0, 0, 0] += 1
    generate_trajectories(TINY, "smoke", 7, tmp_path, workers=1)
    assert content(folder) == before


def test_two_generators_do_not_share_a_folder(tmp_path: Path) -> None:
    with FolderLock(tmp_path / "kdv_easy" / "smoke-seed7"), pytest.raises(FolderInUseError):
        generate_trajectories(TINY, "smoke", 7, tmp_path, workers=1)


def test_an_explosion_names_its_samples(tmp_path: Path) -> None:
    wild = dataclasses.replace(TINY, equation=Explosive())
    with pytest.raises(SolverError, match="train samples 0 to 15: kdv: sample"):
        generate_trajectories(wild, "smoke", 7, tmp_path, workers=1)


def test_a_folder_of_lpsda_is_read_by_its_names(tmp_path: Path) -> None:
    as_lpsda_writes(tmp_path / "KdV_train_3.h5")
    as_lpsda_writes(tmp_path / "KdV_train_3_easy.h5")
    small = dataclasses.replace(EASY, frames=5, points=8)
    assert alike(read_split(small, tmp_path, "train"), some())
    with pytest.raises(DatasetError, match=r"expected 140 frames of 256 points, got \(5, 8\)"):
        read_split(EASY, tmp_path, "train")
    as_lpsda_writes(tmp_path / "KdV_train_4_easy.h5", count=4)
    with pytest.raises(DatasetError, match=r"KdV_train_3_easy.*KdV_train_4_easy"):
        read_split(small, tmp_path, "train")
    with pytest.raises(ValueError, match="unknown split 'validation'"):
        read_split(small, tmp_path, "validation")


class Explosive(KdV):
    """No field is a state of this one."""

    def invalid(self, field: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(field), dtype=torch.bool)


# --- the command


def call(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def test_the_command_makes_and_shows_trajectories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRAJECTORY_PROBLEMS, "kdv_easy", TINY)
    monkeypatch.setenv("COLUMNS", "160")
    words = ("data", "generate", "kdv_easy", "--preset", "smoke", "--root", tmp_path, "--workers", 1)
    folder = tmp_path / "kdv_easy" / "smoke-seed42"
    assert f"pacefno data show {folder}" in call(*words)
    table = call("data", "show", folder)
    lengths = read_split(TINY, folder, "train").length
    assert all(name in table for name in FILES) and f"{lengths.min():.4g} to {lengths.max():.4g}" in table
    assert "never centred" in call(*words, "--stationary", code=2)
    assert "leave out --output" in call("data", "show", folder, "--output", tmp_path / "a.png", code=2)
    assert "unknown problem" in call("data", "generate", "kdw", code=2)
