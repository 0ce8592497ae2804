"""One and the same trajectories as other people's tools write them, and documents to read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]
SAMPLES, SNAPSHOTS, GRID, LENGTHS, STEP = 10, 5, (16, 12), (2 * np.pi, 3.0), 0.25


def smooth(seed: int = 0, shape: tuple[int, ...] = (SAMPLES, SNAPSHOTS, 2)) -> Array:
    """Random trajectories ``(*shape, *GRID)`` of few waves that run: smooth, periodic, anywhere."""
    rng = np.random.default_rng(seed)
    x, y = (2 * np.pi * np.arange(n) / n for n in GRID)
    values = np.zeros((*shape, *GRID))
    time = np.arange(shape[1])[:, None, None, None]
    for k, m in ((1, 0), (0, 1), (1, 1), (2, -1)):
        a, phase = rng.normal(size=(2, shape[0], 1, shape[2], 1, 1))
        values += a * np.sin(k * x[:, None] + m * y + phase + 0.2 * time)
    return values


VALUES = smooth()  # (sample, time, channel, x, y)
X, Y = (length * np.arange(n) / n for n, length in zip(GRID, LENGTHS, strict=True))
TIMES = STEP * np.arange(SNAPSHOTS)


def npy(path: Path, values: Array) -> None:
    np.save(path, values)


def npz(path: Path, values: Array) -> None:
    np.savez(path, velocity=values, x=X, y=Y, t=TIMES)


def npz_compressed(path: Path, values: Array) -> None:
    np.savez_compressed(path, velocity=values, x=X, y=Y, t=TIMES)


def pdebench_variables(path: Path, values: Array) -> None:
    """Its compressible sets: one array per variable, one time more than snapshots."""
    with h5py.File(path, "w") as file:
        file["Vx"], file["Vy"] = values[:, :, 0], values[:, :, 1]
        file["x-coordinate"], file["y-coordinate"] = X, Y
        file["t-coordinate"] = STEP * np.arange(SNAPSHOTS + 1)
        file.attrs["eta"] = 0.01


def pdebench_tensor(path: Path, values: Array) -> None:
    """Its scalar sets, in one dimension; here with two channels behind."""
    with h5py.File(path, "w") as file:
        file["tensor"] = np.moveaxis(values, 2, -1)
        file["x-coordinate"], file["y-coordinate"] = X, Y
        file["t-coordinate"] = STEP * np.arange(SNAPSHOTS + 1)


def pdebench_incompressible(path: Path, values: Array) -> None:
    """Its incompressible set: times once per sample."""
    with h5py.File(path, "w") as file:
        file["velocity"] = np.moveaxis(values, 2, -1)
        file["force"] = np.moveaxis(values[:, 0], 1, -1)
        file["t"] = np.broadcast_to(TIMES, (len(values), SNAPSHOTS))
        file["x"], file["y"] = X, Y


def pdebench_groups(path: Path, values: Array) -> None:
    """Its reaction and shallow-water sets: one group per sample."""
    with h5py.File(path, "w") as file:
        for number in np.random.default_rng(0).permutation(len(values)):  # in any order
            group = file.create_group(f"{number:04d}")
            group["data"] = np.moveaxis(values[number], 1, -1)
            group["grid/x"], group["grid/y"], group["grid/t"] = X, Y, TIMES
            group.attrs["config"] = "sim: {}"


def the_well(path: Path, values: Array, boundary: str = "PERIODIC") -> None:
    """As the format is published: attributes, dimensions, boundary conditions, fields by order."""
    with h5py.File(path, "w") as file:
        file.attrs["dataset_name"], file.attrs["grid_type"] = "waves", "cartesian"
        file.attrs["n_spatial_dims"], file.attrs["n_trajectories"] = 2, len(values)
        file.attrs["simulation_parameters"] = ["nu"]
        file.attrs["nu"] = 0.01
        dimensions = file.create_group("dimensions")
        dimensions.attrs["spatial_dims"] = ["x", "y"]
        for name, points in (("time", TIMES), ("x", X), ("y", Y)):
            dimensions[name] = points.astype(np.float32)
            dimensions[name].attrs["sample_varying"] = False
            if name != "time":
                dimensions[name].attrs["time_varying"] = False
        conditions = file.create_group("boundary_conditions")
        for name, n in zip("xy", GRID, strict=True):
            condition = conditions.create_group(f"{name}_{boundary.lower()}")
            condition.attrs["associated_dims"] = [name]
            condition.attrs["associated_fields"] = []
            condition.attrs["bc_type"] = boundary
            condition.attrs["sample_varying"] = condition.attrs["time_varying"] = False
            mask = np.zeros(n, dtype=bool)
            mask[[0, -1]] = True
            condition["mask"] = mask
        scalars = file.create_group("scalars")
        scalars.attrs["field_names"] = ["nu"]
        scalars["nu"] = np.float32(0.01)
        scalars["nu"].attrs["sample_varying"] = scalars["nu"].attrs["time_varying"] = False
        fields = {"t0_fields": {}, "t1_fields": {"velocity": np.moveaxis(values, 2, -1)}}
        for name, arrays in (fields | {"t2_fields": {}}).items():
            group = file.create_group(name)
            group.attrs["field_names"] = list(arrays)
            for key, array in arrays.items():
                group[key] = array.astype(np.float32)
                group[key].attrs["dim_varying"] = [True, True]
                group[key].attrs["sample_varying"] = group[key].attrs["time_varying"] = True


def tensors(path: Path, values: Array) -> None:
    torch.save({"velocity": torch.from_numpy(values)}, path)


def dataset(values: Array) -> Any:
    import xarray

    dims = ("sample", "time", "y", "x")  # as climate people have it
    return xarray.Dataset(
        {name: (dims, values[:, :, c].swapaxes(-1, -2)) for c, name in enumerate("uv")},
        coords={"x": X, "y": Y, "time": TIMES},
    )


def netcdf(path: Path, values: Array) -> None:
    dataset(values).to_netcdf(path)


def netcdf3(path: Path, values: Array) -> None:
    dataset(values).to_netcdf(path, format="NETCDF3_64BIT", engine="netcdf4")


def zarr(path: Path, values: Array) -> None:
    dataset(values).to_zarr(path, zarr_format=2)


def zarr3(path: Path, values: Array) -> None:
    dataset(values).to_zarr(path, zarr_format=3, consolidated=False)


# How each is written, what its file is called, and what [data] says of it.
LAYOUTS: dict[str, tuple[Callable[..., None], str, dict[str, Any]]] = {
    "npy": (npy, "a.npy", {"arrays": ["values"], "axes": "sample time channel x y"}),
    "npz": (npz, "a.npz", {"arrays": ["velocity"], "axes": "sample time channel x y"}),
    "npz compressed": (
        npz_compressed,
        "a.npz",
        {"arrays": ["velocity"], "axes": "sample time channel x y"},
    ),
    "PDEBench variables": (
        pdebench_variables,
        "a.hdf5",
        {"arrays": ["Vx", "Vy"], "axes": "sample time x y"},
    ),
    "PDEBench tensor": (
        pdebench_tensor,
        "a.hdf5",
        {"arrays": ["tensor"], "axes": "sample time x y channel"},
    ),
    "PDEBench incompressible": (
        pdebench_incompressible,
        "a.h5",
        {"arrays": ["velocity"], "axes": "sample time x y channel"},
    ),
    "PDEBench groups": (
        pdebench_groups,
        "a.h5",
        {"arrays": ["data"], "axes": "sample time x y channel"},
    ),
    "The Well": (
        the_well,
        "a.hdf5",
        {"arrays": ["t1_fields/velocity"], "axes": "sample time x y channel"},
    ),
    "pt": (tensors, "a.pt", {"arrays": ["velocity"], "axes": "sample time channel x y"}),
    "NetCDF 4": (netcdf, "a.nc", {"arrays": ["u", "v"], "axes": "sample time y x"}),
    "NetCDF 3": (netcdf3, "a.nc", {"arrays": ["u", "v"], "axes": "sample time y x"}),
    "Zarr 2": (zarr, "a.zarr", {"arrays": ["u", "v"], "axes": "sample time y x"}),
    "Zarr 3": (zarr3, "a.zarr", {"arrays": ["u", "v"], "axes": "sample time y x"}),
}
XARRAY = ("NetCDF 4", "NetCDF 3", "Zarr 2", "Zarr 3")


def document(of: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A document on velocities ``u, v`` from one snapshot to the next; changes by table."""
    base: dict[str, dict[str, Any]] = {
        "input": {
            "channels": "u v: velocity",
            "dim": 2,
            "times": [0],
            "lengths": list(LENGTHS),
            "step": STEP,
        },
        "output": {"times": [1]},
        "group": {"name": "galilean", "dim": 2},
        "data": {"precision": "float64", **of},
        "ood": {"low": [0.1, 0.1, 0.2, 0.2], "high": [0.5, 0.5, 1.0, 1.0]},
    }
    for table, entries in changes.items():
        old = base.get(table, {})
        base[table] = {**old, **entries} if isinstance(entries, dict) else entries
    return base
