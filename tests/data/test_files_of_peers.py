"""Files that other projects' own readers open, and ours: both find the same values in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from file_examples import GRID, LENGTHS, SNAPSHOTS, VALUES, X, the_well

from pacefno.data import open_task
from pacefno.data.inspect import Answers, inspect_file, write_task


def source_of(path: Path, answers: Answers | None = None) -> Any:
    task = path.parent / "task.toml"
    write_task(inspect_file(path, answers), task)
    return open_task(task)[1]


def test_a_file_for_the_well_opens_in_its_reader_and_in_ours(tmp_path: Path) -> None:
    well = pytest.importorskip("the_well.data", reason="the_well is not installed (extra peers)")
    folder = tmp_path / "data"
    folder.mkdir()
    the_well(folder / "waves.hdf5", VALUES)
    theirs = well.WellDataset(path=str(folder), n_steps_input=1, n_steps_output=1)
    ours = source_of(folder / "waves.hdf5")
    assert len(theirs) == len(VALUES) * (SNAPSHOTS - 1)
    for split in ("train", "validation", "test_id"):
        pairs = ours.load(split)
        for row in range(0, len(pairs), 3):
            trajectory, start = pairs.origin(row)
            item = theirs[trajectory * (SNAPSHOTS - 1) + start]  # (T, x, y, C)
            found = pairs.select(slice(row, row + 1))
            for name, values in (("input_fields", found.input), ("output_fields", found.target)):
                assert torch.equal(item[name][0].movedim(-1, 0), values[0])
    grid = theirs[0]["space_grid"]  # (x, y, 2)
    assert torch.allclose(grid[:, 0, 0].double(), torch.from_numpy(X), atol=1e-6)
    assert theirs[0]["boundary_conditions"].tolist() == [[2, 2], [2, 2]]  # periodic, both ends
    assert ours.task.input.lengths == pytest.approx(LENGTHS, rel=1e-6)


@pytest.mark.parametrize("squeezed", [True, False])
def test_neuraloperators_own_class_reads_the_pairs_that_we_read(
    tmp_path: Path, squeezed: bool
) -> None:
    datasets = pytest.importorskip(
        "neuralop.data.datasets.pt_dataset", reason="neuraloperator is not installed (extra peers)"
    )
    pair = {
        "x": torch.from_numpy(VALUES[:, 0]).float(),
        "y": torch.from_numpy(VALUES[:, 1]).float(),
    }
    if squeezed:
        pair = {name: values[:, 0] for name, values in pair.items()}
    for part in ("train", "test"):
        torch.save(pair, tmp_path / f"waves_{part}_16.pt")
    theirs = datasets.PTDataset(
        tmp_path, "waves", n_train=10, n_tests=[10], batch_size=2, test_batch_sizes=[2],
        train_resolution=16, test_resolutions=[16], encode_output=False, channels_squeezed=squeezed,
    )  # fmt: skip
    channels = "u: scalar" if squeezed else "u v: vector"
    ours = source_of(tmp_path / "waves_train_16.pt", Answers(channels=channels))
    for split in ("train", "validation", "test_id"):
        pairs = ours.load(split)
        assert pairs.grid == GRID
        for row in range(len(pairs)):
            item = theirs.train_db[pairs.origin(row)[0]]
            found = pairs.select(slice(row, row + 1))
            assert torch.equal(item["x"], found.input[0]) and torch.equal(
                item["y"], found.target[0]
            )


@pytest.mark.parametrize("ending", [".nc", ".zarr"])
def test_what_xarray_wrote_xarray_and_we_read_alike(tmp_path: Path, ending: str) -> None:
    xarray = pytest.importorskip("xarray", reason="xarray is not installed (extra io)")
    pytest.importorskip("netCDF4" if ending == ".nc" else "zarr")
    dims = ("trajectory", "time", "component", "x", "y")
    wave = xarray.DataArray(VALUES, dims=dims, coords={"x": X}).astype("float32")
    data = xarray.Dataset({"velocity": wave}, attrs={"title": "waves"})
    path = tmp_path / f"waves{ending}"
    if ending == ".nc":  # packed in 16 bits, as weather services do
        packing = {"dtype": "int16", "scale_factor": 1e-3, "_FillValue": -32768, "zlib": True}
        data.to_netcdf(path, encoding={"velocity": packing})
    else:
        data.to_zarr(path, zarr_format=2)
    read: Any = xarray.open_dataset if ending == ".nc" else xarray.open_zarr
    with read(path) as opened:
        expected = opened["velocity"].values
    ours = source_of(path, Answers(lengths=LENGTHS, step=0.25))
    assert ours.settings.axes == "sample time channel x y"
    pairs = ours.load("train")
    for row in (0, 5):
        trajectory, start = pairs.origin(row)
        found = pairs.select(slice(row, row + 1))
        assert np.array_equal(found.input[0], expected[trajectory, start].astype(np.float32))
    assert np.abs(expected - VALUES).max() < 1e-3
