"""Files in LPSDA's layout: theirs can be read, ours are like theirs, and what is wrong is said."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from small_recipes import KDV, as_lpsda_writes, folder, opened_tiny, some, sums, times

from pacefno.data import DatasetError, Sizes, Trajectories, TrajectoryDataset, generate, prepare
from pacefno.data.lpsda import file_name, read_lpsda, write_lpsda
from pacefno.data.store import DamagedError, read_document
from pacefno.errors import UsageError
from pacefno.pde import KdV, SolverError

FILES = ["KdV_test_easy.h5", "KdV_train_16_easy.h5", "KdV_valid_easy.h5"]


def alike(a: Trajectories, b: Trajectories, tolerance: float = 1e-12) -> bool:
    sides = ((a.values, b.values), (a.box.lengths, b.box.lengths), (a.box.step, b.box.step))
    return all(
        torch.allclose(x.double(), y.double(), rtol=tolerance, atol=tolerance) for x, y in sides
    )


def make(root: Path, recipe: Any = KDV, **options: Any) -> Path:
    return generate(recipe, "tiny", root=root, workers=1, **options)


# --- one file -------------------------------------------------------------------------------------


def test_a_file_gives_back_what_was_written(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "new" / "KdV_valid.h5"
    write_lpsda(path, "valid", some(dtype=dtype), first=4, document={"name": "mine"})
    found = read_lpsda(path, "valid")
    assert alike(found, some(dtype=dtype)) and found.values.dtype == torch.float64
    assert not alike(found, some().select(torch.tensor([1, 0, 2])))
    assert read_document(path) == {"name": "mine"}
    assert [p.name for p in path.parent.iterdir()] == ["KdV_valid.h5"]


def test_the_same_trajectories_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.h5", "b.h5"):
        write_lpsda(tmp_path / name, "test", some(), first=0)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_files_of_lpsda_can_be_read(tmp_path: Path) -> None:
    as_lpsda_writes(tmp_path / "KdV_train_3.h5")
    assert alike(read_lpsda(tmp_path / "KdV_train_3.h5", "train"), some())
    assert read_document(tmp_path / "KdV_train_3.h5") is None


def test_our_files_hold_what_lpsda_reads_from_its_own(tmp_path: Path) -> None:
    as_lpsda_writes(tmp_path / "theirs.h5")
    write_lpsda(tmp_path / "ours.h5", "train", some(), first=4)
    with h5py.File(tmp_path / "theirs.h5") as theirs, h5py.File(tmp_path / "ours.h5") as ours:
        assert list(theirs) == list(ours) == ["train"]
        assert set(theirs["train"]) == set(ours["train"])
        for name, dataset in theirs["train"].items():
            other = ours["train"][name]
            assert other.dtype == dataset.dtype == np.float64 and other.shape == dataset.shape
            assert np.allclose(other[1], dataset[1], rtol=1e-12, atol=1e-12)


def test_names_are_those_of_lpsda() -> None:
    assert file_name("KdV", "train", 512) == "KdV_train_512.h5"
    assert file_name("KS", "valid", 512) == "KS_valid.h5"
    assert file_name("KdV", "train", 512, "easy") == "KdV_train_512_easy.h5"
    assert file_name("KdV", "test", 512, "easy") == "KdV_test_easy.h5"


def remove_array(name: str) -> Callable[[h5py.File], None]:
    return lambda file: file["train"].__delitem__(name)


def replace_array(name: str, values: Any) -> Callable[[h5py.File], None]:
    def spoil(file: h5py.File) -> None:
        del file["train"][name]
        file["train"][name] = values

    return spoil


def set_value(name: str, index: tuple[int, ...], value: float) -> Callable[[h5py.File], None]:
    return lambda file: file["train"][name].__setitem__(index, value)


def link_away(file: h5py.File) -> None:
    del file["train"]["dx"]
    file["train"]["dx"] = h5py.ExternalLink("elsewhere.h5", "/dx")


def link_group_away(file: h5py.File) -> None:
    del file["train"]
    file["train"] = h5py.ExternalLink("elsewhere.h5", "/train")


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((3,), float)
    layout[:] = h5py.VirtualSource("elsewhere.h5", "dx", (3,))
    del file["train"]["dx"]
    file["train"].create_virtual_dataset("dx", layout)


FAULTS: dict[str, tuple[Callable[[h5py.File], Any], str]] = {
    "no group": (
        lambda file: file.move("train", "test"),
        r"expected a group 'train', got \['test'\]: is it the file of another split",
    ),
    "no solutions": (remove_array("pde_5-8"), "expected one array pde_<snapshots>-<points>"),
    "two resolutions": (lambda f: f["train"].copy("pde_5-8", "pde_5-9"), "expected one array"),
    "no times": (remove_array("t"), "has no t: expected"),
    "other times": (replace_array("t", np.ones((3, 4))), r"'t': expected \(N, 5\) of floats"),
    "fewer steps": (replace_array("dt", np.ones(2)), r"'dt': expected \(N,\) of floats"),
    "a name that lies": (
        lambda file: file["train"].move("pde_5-8", "pde_8-5"),
        r"'pde_8-5': expected \(N, 8, 5\)",
    ),
    "whole numbers": (replace_array("pde_5-8", np.ones((3, 5, 8), int)), "of floats"),
    "a number alone": (replace_array("pde_5-8", np.float64(1.0)), "of floats"),
    "not a number": (
        set_value("pde_5-8", (1, 2, 3), math.nan),
        r"trajectory 1 \(of 1\) holds NaN or infinity in 'pde_5-8'",
    ),
    "infinite": (set_value("x", (2, 7), math.inf), "holds NaN or infinity in 'x'"),
    "never solved": (set_value("dx", (2,), 0.0), "trajectory 2 was never solved, its 'dx'"),
    "uneven times": (set_value("t", (1, 4), 9.0), "trajectory 1 has steps of 't' that are not"),
    "another grid": (set_value("dx", (0,), 9.0), "trajectory 0 has steps of 'x' that are not"),
    "a link": (link_away, "'dx' is a link"),
    "a linked group": (link_group_away, "'train' is a link"),
    "a virtual array": (virtual, "'dx' keeps its values in other files"),
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
    with pytest.raises(DatasetError, match="is missing"):
        read_lpsda(path, "train")
    path.write_text("hello")
    with pytest.raises(DamagedError, match="truncated, altered or no HDF5"):
        read_lpsda(path, "train")
    write_lpsda(path, "train", some(), first=0)
    with h5py.File(path, "r+") as file:
        file["train/pde_5-8"][0, 0, 0] += 1e-9
    with pytest.raises(DamagedError, match="checksum"):
        read_lpsda(path, "train")


def test_trajectories_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    bad = replace(some(), values=torch.full((3, 5, 8), math.nan))
    with pytest.raises(DatasetError, match="NaN"):
        write_lpsda(tmp_path / "KdV_test.h5", "test", bad, first=0)
    assert list(tmp_path.iterdir()) == []


# --- a dataset ------------------------------------------------------------------------------------


def test_a_dataset_has_the_samples_of_the_recipe_in_the_files_of_lpsda(tmp_path: Path) -> None:
    place = make(tmp_path)
    assert place == tmp_path / "tiny_kdv" / "tiny-seed42" and list(times(place)) == FILES
    dataset = opened_tiny(KDV, place)
    assert isinstance(dataset, TrajectoryDataset) and dataset.recipe_name == "tiny_kdv"
    train, validation = dataset.load("train"), dataset.load("validation")
    assert tuple(train.values.shape) == (16, 5, 24) and train.values.dtype == torch.float64
    states, box = KDV.initial(42, "train", [3])
    assert alike(train.select(slice(3, 4)), Trajectories(KDV.solve(states, box), box))
    assert len(validation) == 8 and not alike(train.select(slice(0, 8)), validation)
    assert alike(dataset.load("train", count=2), train.select(slice(2)))
    with h5py.File(place / FILES[1]) as file:  # the first three snapshots are not kept
        assert np.allclose(file["train/t"][:, 0], 3 * file["train/dt"][:])


@pytest.mark.parametrize(
    ("split", "grid", "message"), [("valid", "id", "unknown split"), ("test", "ood", "one grid")]
)
def test_a_request_that_cannot_be_met_is_explained(
    tmp_path: Path, split: str, grid: Any, message: str
) -> None:
    dataset = opened_tiny(KDV, make(tmp_path))
    with pytest.raises(UsageError, match=message):
        dataset.load(split, grid)


def test_an_interrupted_dataset_is_finished_without_solving_anything_twice(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 12:
            raise KeyboardInterrupt

    whole = sums(make(tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, on_progress=stop)
    parts = folder(KDV, tmp_path) / "parts"
    assert list(times(parts)) == [f"train-{start:06d}.h5" for start in (0, 4, 8)]
    (parts / "train-000004.h5").write_text("damaged")
    told: list[tuple[int, int]] = []
    make(tmp_path, on_progress=lambda done, total: told.append((done, total)))
    assert told[0] == (8, 32) and told[-1] == (32, 32)
    assert sums(parts.parent) == whole and not parts.exists()


def test_a_dataset_with_other_settings_is_neither_replaced_nor_opened(tmp_path: Path) -> None:
    place = make(tmp_path)
    before = sums(place)
    for other, difference in (
        (replace(KDV, substeps=3), "substeps was 2, now 3"),
        (replace(KDV, sizes={"tiny": Sizes(16, 8, 9)}), r"samples\.test was 8, now 9"),
        (replace(KDV, sizes={"tiny": Sizes(17, 8, 8)}), r"samples\.train was 16, now 17"),
    ):
        with pytest.raises(DatasetError, match=difference):
            make(tmp_path, other)
        with pytest.raises(DatasetError, match=difference):
            opened_tiny(other, place, verify=False)
    assert sums(place) == before


@pytest.mark.parametrize("damage", ["value", "array", "cut"])
def test_a_damaged_file_is_made_again(tmp_path: Path, damage: str) -> None:
    place = make(tmp_path)
    before, path = sums(place), place / FILES[0]
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        with h5py.File(path, "r+") as file:
            if damage == "value":
                file["test/pde_5-24"][0, 0, 0] += 1
            else:
                del file["test/dx"]
    with pytest.raises(DamagedError):
        opened_tiny(KDV, place)
    make(tmp_path)
    assert sums(place) == before


def test_a_file_of_lpsda_in_our_folder_is_used_and_never_replaced(tmp_path: Path) -> None:
    recipe = replace(KDV, kept=5, points=8, solver_points=12)
    place = folder(recipe, tmp_path)
    place.mkdir(parents=True)
    as_lpsda_writes(place / "KdV_train_3_easy.h5")
    dataset = prepare(recipe, "tiny", root=tmp_path, workers=1)
    assert alike(dataset.load("train"), some()) and len(dataset.load("test")) == 8
    assert list(times(place)) == ["KdV_test_easy.h5", "KdV_train_3_easy.h5", "KdV_valid_easy.h5"]
    with pytest.raises(
        DatasetError, match=r"expected \(5, 24\) snapshots and points, got \(5, 8\)"
    ):
        make(tmp_path)
    as_lpsda_writes(place / "KdV_train_4_easy.h5", count=4)
    with pytest.raises(DatasetError, match=r"KdV_train_3_easy.*KdV_train_4_easy.*keep one"):
        dataset.load("train")


def test_a_folder_of_lpsda_is_read_by_its_names(tmp_path: Path) -> None:
    for mode in ("train_3", "valid", "test"):
        as_lpsda_writes(tmp_path / f"KdV_{mode}_easy.h5", mode.split("_")[0])
    shutil.copy(tmp_path / "KdV_train_3_easy.h5", tmp_path / "KdV_train_3.h5")  # of another set
    dataset = opened_tiny(replace(KDV, points=8), tmp_path)
    assert all(alike(dataset.load(split), some()) for split in ("train", "validation", "test"))


class Explosive(KdV):
    """No field is a state of this one."""

    def invalid(self, field: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(field), dtype=torch.bool)


def test_an_explosion_names_its_samples(tmp_path: Path) -> None:
    with pytest.raises(SolverError, match="tiny_kdv: train samples 0 to 3: kdv: sample"):
        make(tmp_path, replace(KDV, equation=Explosive()))


def test_trajectories_cannot_be_stationary(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stationary: the trajectories of tiny_kdv are never"):
        make(tmp_path, stationary=True)
