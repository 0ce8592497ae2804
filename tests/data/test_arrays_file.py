"""Fields from strangers' files: they come back as they are, and nothing in them does harm."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from small_recipes import BURGERS

from pacefno.data import DatasetError, generate, read_fields, write_fields
from pacefno.data.arrays_file import WRITTEN, check_suffix

VALUES = np.random.default_rng(0).normal(size=(3, 2, 8))


def write(path: Path, **arrays: Any) -> Path:
    """A file of the kind that its ending says, as other programs write it."""
    if path.suffix == ".npy":
        np.save(path, arrays["input"])
    elif path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    return path


# --- what is good ---------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", WRITTEN)
@pytest.mark.parametrize("type", ["float16", "float32", "float64", ">f8"])
def test_values_come_back_in_their_precision(tmp_path: Path, suffix: str, type: str) -> None:
    values = VALUES.astype(type)
    found = read_fields(write(tmp_path / f"fields{suffix}", input=values))
    assert found.coordinates == {} and found.horizon is None
    assert torch.equal(
        found.values, torch.from_numpy(values.astype(values.dtype.newbyteorder("=")))
    )


@pytest.mark.parametrize("suffix", [".h5", ".npz"])
def test_axes_and_a_horizon_come_along(tmp_path: Path, suffix: str) -> None:
    x = np.arange(8, dtype=np.float32) / 8
    path = write(tmp_path / f"a{suffix}", omega=VALUES, x=x, y=np.arange(4), horizon=0.5, other=1)
    found = read_fields(path, "omega")
    assert torch.equal(found.coordinates["x"], torch.from_numpy(x).double())
    assert set(found.coordinates) == {"x", "y"} and found.coordinates["y"].dtype == torch.float64
    assert found.horizon == 0.5


def test_an_array_called_like_an_axis_may_hold_the_fields(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.npz", x=VALUES, y=2 * VALUES)
    found = read_fields(path, "x")
    assert torch.equal(found.values, torch.from_numpy(VALUES)) and found.coordinates == {}


def test_a_horizon_may_be_an_attribute(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", input=VALUES)
    with h5py.File(path, "r+") as file:
        file.attrs["horizon"] = 2
    assert read_fields(path).horizon == 2.0


def test_compressed_files_are_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", input=VALUES)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("input", data=VALUES, compression="gzip")
    for name in ("a.npz", "a.h5"):
        assert torch.equal(read_fields(tmp_path / name).values, torch.from_numpy(VALUES))


@pytest.mark.parametrize("suffix", WRITTEN)
def test_what_is_written_can_be_read(tmp_path: Path, suffix: str, dtype: torch.dtype) -> None:
    path = tmp_path / "new" / f"out{suffix}"
    values = torch.from_numpy(VALUES).to(dtype)
    write_fields(path, {"prediction": values, "frame": torch.zeros(3, 2)})
    assert torch.equal(read_fields(path, "prediction").values, values)
    if suffix != ".npy":  # which has room for the first array only
        assert read_fields(path, "frame").values.shape == (3, 2)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_file_of_a_dataset_serves_as_input(tmp_path: Path) -> None:
    folder = generate(BURGERS, "tiny", root=tmp_path, workers=1)
    assert read_fields(folder / "test_ood.h5").values.shape == (12, 1, 128)


# --- what is not ----------------------------------------------------------------------------------


def test_an_ending_that_is_not_known_is_refused_before_any_work(tmp_path: Path) -> None:
    for name, got in (("a.txt", "'.txt'"), ("a", "'none'")):
        with pytest.raises(DatasetError, match=rf"ending out of \.h5, .*\.npz, got {got}"):
            check_suffix(tmp_path / name)
        with pytest.raises(DatasetError, match="ending"):
            write_fields(tmp_path / name, {"a": torch.zeros(1)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", WRITTEN)
def test_a_missing_or_truncated_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    with pytest.raises(DatasetError, match="there is no such file"):
        read_fields(path)
    write(path, input=np.random.default_rng(0).normal(size=(50, 2, 64)))
    content = path.read_bytes()
    for share in (0.0, 0.3, 0.99):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(DatasetError, match=rf"truncated or no \{suffix} file") as error:
            read_fields(path)
        assert error.value.path == path


@pytest.mark.parametrize("suffix", [".h5", ".npz"])
def test_an_array_that_is_not_there_is_answered_with_those_that_are(
    tmp_path: Path, suffix: str
) -> None:
    path = write(tmp_path / f"a{suffix}", omega=VALUES)
    with pytest.raises(DatasetError, match=r"holds \['omega'\], no 'input': name the array"):
        read_fields(path)


LONG = VALUES.astype(np.longdouble)
no_long_doubles = pytest.mark.skipif(LONG.dtype.itemsize == 8, reason="no long doubles here")


@pytest.mark.parametrize(
    "bad", [VALUES.astype(int), VALUES + 1j, pytest.param(LONG, marks=no_long_doubles)]
)
def test_other_numbers_are_refused(tmp_path: Path, bad: Any) -> None:
    np.save(tmp_path / "a.npy", bad)
    with pytest.raises(DatasetError, match=rf"float64, got {bad.dtype}: (convert it|store real)"):
        read_fields(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"horizon": np.ones(2)}, r"'horizon': expected one number, got shape \(2,\)"),
        ({"horizon": np.array("long")}, "'horizon': expected real numbers"),
        ({"x": np.array(["a", "b"])}, "'x': expected real numbers"),
    ],
)
def test_axes_and_horizons_that_are_none_are_refused(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        read_fields(write(tmp_path / "a.npz", input=VALUES, **arrays))


class Exploit:
    """Unpickled, it would make a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.marker,)


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    bad = np.array([Exploit(marker)], dtype=object)
    np.save(tmp_path / "a.npy", bad, allow_pickle=True)
    np.savez(tmp_path / "a.npz", input=bad)
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Exploit(marker)))
    for name in ("a.npy", "a.npz", "b.npy"):
        with pytest.raises(DatasetError, match="truncated or no|Python objects are never opened"):
            read_fields(tmp_path / name)
    assert not marker.exists()
    pickle.loads((tmp_path / "b.npy").read_bytes())
    assert marker.exists()  # it was a real one


def external_link(file: h5py.File) -> None:
    file["input"] = h5py.ExternalLink("secret.h5", "/input")


def soft_link(file: h5py.File) -> None:
    file["real"] = VALUES
    file["input"] = h5py.SoftLink("/real")


def virtual_dataset(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(VALUES.shape, float)
    layout[:] = h5py.VirtualSource("secret.h5", "input", VALUES.shape)
    file.create_virtual_dataset("input", layout)


def external_storage(file: h5py.File) -> None:
    file.create_dataset("input", (2, 1, 8), "<f8", external=[("secret.bin", 0, 128)])


def bomb(file: h5py.File) -> None:
    file.create_dataset("input", (20_000, 20_000), "<f8", chunks=(1000, 1000), compression="gzip")


HOSTILE: dict[str, tuple[Callable[[h5py.File], Any], str]] = {
    "external link": (external_link, "'input' is a link"),
    "soft link": (soft_link, "'input' is a link"),
    "group": (lambda file: file.create_group("input"), "no 'input': name the array"),
    "virtual": (virtual_dataset, "keeps its values in other files"),
    "external storage": (external_storage, "keeps its values in other files"),
    "bomb": (bomb, "refused as a decompression bomb"),
}


@pytest.mark.parametrize("kind", list(HOSTILE))
def test_hostile_hdf5_is_refused_before_a_value_is_read(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit, message = HOSTILE[kind]
    write(tmp_path / "secret.h5", input=VALUES)
    (tmp_path / "secret.bin").write_bytes(b"s" * 1000)
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        edit(file)
    (tmp_path / "secret.h5").chmod(0)
    monkeypatch.setattr(h5py.Dataset, "__getitem__", lambda *_: pytest.fail("values were read"))
    with pytest.raises(DatasetError, match=message):
        read_fields(path)


def test_a_link_in_place_of_an_axis_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", input=VALUES)
    with h5py.File(path, "r+") as file:
        file["x"] = h5py.ExternalLink("nowhere.h5", "/x")
    with pytest.raises(DatasetError, match="'x' is a link"):
        read_fields(path)


def test_a_bomb_in_an_npz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("input.npy", b"\0" * 50_000_000)
    with pytest.raises(DatasetError, match=r"'input\.npy' declares 50000000 bytes .* bomb"):
        read_fields(path)


def test_axes_that_a_file_names_are_put_in_order(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    values = np.random.default_rng(0).normal(size=(3, 2, 4, 8, 6))  # sample time channel x y
    stored = values.transpose(0, 1, 4, 3, 2)
    names = ["sample", "time", "y", "x", "channel"]
    xarray.Dataset({"input": (names, stored)}).to_netcdf(tmp_path / "all.nc")
    found = read_fields(tmp_path / "all.nc").values
    assert np.array_equal(found, values.reshape(3, 8, 8, 6))
    one = {"input": (["sample", "channel", "y", "x"], values[:, 0].transpose(0, 1, 3, 2))}
    xarray.Dataset(one, coords={"X": np.arange(8) / 8}).to_netcdf(tmp_path / "one.nc")
    found_one = read_fields(tmp_path / "one.nc")
    assert np.array_equal(found_one.values, values[:, 0]) and len(found_one.coordinates["x"]) == 8
