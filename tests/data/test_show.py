"""What ``pacefno data show`` prints of a folder."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from small_recipes import BURGERS, KDV, VORTICES, WATER, as_lpsda_writes

from pacefno.data import DatasetError, Recipe, generate
from pacefno.data.show import last_snapshot_distance, open_folder, show

RECIPES: dict[str, Recipe] = {r.name: r for r in (KDV, BURGERS, WATER, VORTICES)}


def shown(folder: Path, recipes: dict[str, Recipe] = RECIPES) -> str:
    """The printed text, with all white space as single blanks."""
    recipe, dataset = open_folder(folder, recipes)
    console = Console(file=io.StringIO(), width=160)
    show(dataset, recipe, console)
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (BURGERS, ["nu = 0.01", "1 x 128", "input u", "velocity", "1 in, 1 out, 0.5 apart"]),
        (WATER, ["gravity = 1", "3 x 16 x 24", "target mx", "velocity_y", "32 x 48 points"]),
        (VORTICES, ["2 in, 2 out", "only nearly a symmetry", "solved from the moved input"]),
    ],
    ids=lambda value: value.name if isinstance(value, Recipe) else "",
)
def test_a_dataset_of_pairs_is_described(recipe: Recipe, words: list[str], tmp_path: Path) -> None:
    text = shown(generate(recipe, "tiny", root=tmp_path, workers=1))
    common = [f"{recipe.name}, preset tiny, seed 42", "test_ood", "redrawn", "torch", "Dynamics"]
    assert [word for word in common + words if word not in text] == []


def test_a_stationary_dataset_has_no_frame_to_compare(tmp_path: Path) -> None:
    text = shown(generate(BURGERS, "tiny", root=tmp_path, workers=1, stationary=True))
    assert "stationary: the samples are not centred" in text and "off the slice" not in text


def test_trajectories_are_described_by_file(tmp_path: Path) -> None:
    folder = generate(KDV, "tiny", root=tmp_path, workers=1)
    text = shown(folder)
    _, dataset = open_folder(folder, RECIPES)
    lengths = dataset.load("train").box.lengths  # type: ignore[union-attr]
    assert all(path.name in text for path in folder.glob("*.h5"))
    assert f"{lengths.min():.4g} to {lengths.max():.4g}" in text


def test_a_folder_of_lpsda_is_told_by_its_names(tmp_path: Path) -> None:
    for mode in ("train_3", "valid", "test"):
        as_lpsda_writes(tmp_path / f"KdV_{mode}_easy.h5", mode.split("_")[0])
    recipe = replace(KDV, points=8)
    assert "KdV_train_3_easy.h5" in shown(tmp_path, {"other": BURGERS, "kdv": recipe})


def test_a_folder_that_cannot_be_shown_says_why(tmp_path: Path) -> None:
    folder = generate(BURGERS, "tiny", root=tmp_path, workers=1)
    with pytest.raises(DatasetError, match=r"made by 'tiny_burgers', expected one of tiny_kdv: im"):
        open_folder(folder, {"tiny_kdv": KDV})
    with pytest.raises(DatasetError, match="holds no dataset"):
        open_folder(tmp_path, RECIPES)
    with pytest.raises(DatasetError, match="no such folder"):
        open_folder(tmp_path / "nowhere", RECIPES)
    (folder / "train.h5").unlink()
    with pytest.raises(DatasetError, match="--preset tiny --seed 42 --root"):
        open_folder(folder, RECIPES)
    (folder / "test_id.h5").write_text("damaged")
    with pytest.raises(DatasetError, match=r"test_id\.h5: is truncated, altered or no HDF5"):
        open_folder(folder, RECIPES)


def test_a_dataset_of_other_settings_is_not_shown_as_this_one(tmp_path: Path) -> None:
    folder = generate(BURGERS, "tiny", root=tmp_path, workers=1)
    with pytest.raises(DatasetError, match=r"solver_step was 0\.01, now 0\.02"):
        open_folder(folder, {"tiny_burgers": replace(BURGERS, step=0.02)})


def test_the_distance_of_snapshots_looks_at_the_last_one_only() -> None:
    first, second = torch.zeros(2, 2, 8, 8), torch.ones(2, 2, 8, 8)
    first[:, 1] = 1.5
    assert last_snapshot_distance(VORTICES, first, second).tolist() == [0.5, 0.5]
