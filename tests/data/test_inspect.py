"""What ``pacefno inspect`` finds in files, what it guesses and marks, and what it refuses."""

from __future__ import annotations

import json
import pickle
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from file_examples import GRID, LAYOUTS, LENGTHS, STEP, TIMES, VALUES, XARRAY, X, Y, smooth
from typer.testing import CliRunner

from pacefno.cli import app
from pacefno.data import DatasetError, open_task
from pacefno.data.inspect import Answers, inspect_file, write_task
from pacefno.errors import UsageError
from pacefno.fields import Field, FieldType
from pacefno.groups import Galilean
from pacefno.task import TaskError

# What has to be said of each layout: npy and the tensor do not name their channels.
SAID = {
    "npy": Answers(channels="u v: velocity", lengths=LENGTHS, step=STEP),
    "PDEBench tensor": Answers(channels="u v: velocity"),
    "PDEBench groups": Answers(channels="u v: velocity"),
    "pt": Answers(lengths=LENGTHS, step=STEP),
}


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_the_document_of_every_layout_opens(name: str, tmp_path: Path) -> None:
    if name in XARRAY:
        pytest.importorskip("xarray")
        pytest.importorskip("zarr" if "Zarr" in name else "netCDF4")
    write, file, data = LAYOUTS[name]
    write(tmp_path / file, VALUES)
    findings = inspect_file(tmp_path / file, SAID.get(name))
    (tmp_path / "deep").mkdir()
    write_task(findings, tmp_path / "deep" / "task.toml")
    task, source = open_task(tmp_path / "deep" / "task.toml")
    assert task.input.snapshots == 1 and task.group.name == "galilean"
    assert task.input.lengths == pytest.approx(LENGTHS, rel=1e-5)
    assert task.input.step == pytest.approx(STEP, rel=1e-5)
    assert list(source.settings.arrays) == data["arrays"]
    assert source.settings.axes == data["axes"]
    pairs = source.load("train")
    trajectory, start = pairs.origin(0)
    found = pairs.select(slice(0, 1))
    assert np.allclose(found.input[0], VALUES[trajectory, start], atol=1e-5)
    assert np.allclose(found.target[0], VALUES[trajectory, start + 1], atol=1e-5)
    assert source.load("test_ood").select(slice(0, 1)).xi is not None


def test_everything_that_was_guessed_is_marked(tmp_path: Path) -> None:
    np.savez(tmp_path / "flow.npz", u=VALUES[:, :, 0], v=VALUES[:, :, 1], p=VALUES[:, :, 0])
    write_task(inspect_file(tmp_path / "flow.npz"), tmp_path / "task.toml")
    lines = (tmp_path / "task.toml").read_text().splitlines()
    said = {line.partition(" =")[0]: line for line in lines if " = " in line}
    assert said["channels"].startswith('channels = "u v: velocity, p: scalar"  # guessed: ')
    for entry in ("lengths", "step"):
        assert said[entry].startswith(f'{entry} = "?"  # asked: ')
    unmarked = {k for k, v in said.items() if "guessed" not in v and "asked" not in v}
    assert unmarked == {"file", "arrays", "dim"}  # and the name, which is also that of the group
    with pytest.raises(TaskError, match=r'input.lengths is still "\?"'):
        open_task(tmp_path / "task.toml")
    document = tomllib.loads((tmp_path / "task.toml").read_text())
    assert document["data"]["file"] == "flow.npz" and document["group"]["name"] == "galilean"


def test_answers_are_taken_and_said_to_be_the_users(tmp_path: Path) -> None:
    write, file, _ = LAYOUTS["npy"]
    write(tmp_path / file, VALUES)
    arguments = [
        "inspect", str(tmp_path / file), "--channels", "u v: vector", "--lengths", "6.5,3",
        "--step", "0.25", "--group", "translation", "--axes", "sample time channel x y",
        "--history", "2", "--future", "2", "--write", str(tmp_path / "task.toml"),
    ]  # fmt: skip
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "task.toml").read_text()
    assert 'channels = "u v: vector"  # as you said' in text
    assert "lengths = [6.5, 3.0]  # as you said" in text
    task, _ = open_task(tmp_path / "task.toml")
    assert (task.input.times, task.output.times) == ((0, 1), (2, 3))
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 2 and "is there already" in again.output
    assert (tmp_path / "task.toml").read_text() == text


@pytest.mark.parametrize("suffix", [".npz", ".nc", ".zarr"])
def test_arrays_follow_the_channels_that_have_their_names(suffix: str, tmp_path: Path) -> None:
    """Files list their arrays in some order: a velocity must not have its components exchanged."""
    path = tmp_path / f"flow{suffix}"
    arrays = {"v": VALUES[:, :, 1], "p": VALUES[:, :, 1], "u": VALUES[:, :, 0]}
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        xarray = pytest.importorskip("xarray")
        pytest.importorskip("zarr" if suffix == ".zarr" else "netCDF4")
        dims = ("sample", "time", "x", "y")
        made = xarray.Dataset({name: (dims, array) for name, array in arrays.items()})
        made.to_zarr(path, zarr_format=2) if suffix == ".zarr" else made.to_netcdf(path)
    said = Answers(channels="U V: velocity, p: scalar", lengths=LENGTHS, step=STEP)
    write_task(inspect_file(path, said), tmp_path / "task.toml")
    _, source = open_task(tmp_path / "task.toml")
    assert source.settings.arrays == ("u", "v", "p")
    pairs = source.load("train")
    trajectory, start = pairs.origin(0)
    found = pairs.select(slice(0, 1)).input[0, :2]
    assert np.allclose(found, VALUES[trajectory, start], atol=1e-5)
    with pytest.raises(UsageError, match="stand in another order than the channels u, v, T"):
        inspect_file(path, Answers(channels="u v: velocity, T: scalar", arrays=("v", "u", "p")))
    text = (tmp_path / "task.toml").read_text()
    exchanged = text.replace('["u", "v", "p"]', '["v", "u", "p"]')
    assert exchanged != text
    (tmp_path / "task.toml").write_text(exchanged)
    with pytest.raises(TaskError, match="name the arrays in the order of the channels"):
        open_task(tmp_path / "task.toml")


def test_arrays_of_pairs_follow_the_channels_too(tmp_path: Path) -> None:
    first, then = VALUES[:, 0], VALUES[:, 1]
    arrays = {"a/v": first[:, 1], "a/u": first[:, 0], "b/v": then[:, 1], "b/u": then[:, 0]}
    with h5py.File(tmp_path / "pairs.h5", "w") as file:
        for name, values in arrays.items():
            file[name] = values
    said = Answers(channels="u v: velocity", lengths=LENGTHS, step=STEP)
    said = replace(said, arrays=("a/v", "a/u"), targets=("b/v", "b/u"), axes="sample x y")
    write_task(inspect_file(tmp_path / "pairs.h5", said), tmp_path / "task.toml")
    _, source = open_task(tmp_path / "task.toml")
    assert source.settings.inputs == ("a/u", "a/v") and source.settings.targets == ("b/u", "b/v")
    text = (tmp_path / "task.toml").read_text().replace('["b/u", "b/v"]', '["b/v", "b/u"]')
    (tmp_path / "task.toml").write_text(text)
    with pytest.raises(TaskError, match="arrays b/v, b/u stand in another order"):
        open_task(tmp_path / "task.toml")


def test_channels_without_names_are_asked_for(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    findings = inspect_file(tmp_path / "a.npy")
    asked = [question.partition(":")[0] for question in findings.questions]
    assert asked == ["input.channels", "input.lengths", "input.step"]


def test_pairs_are_recognised_and_their_horizon_is_asked_for(tmp_path: Path) -> None:
    first, second = (torch.from_numpy(VALUES[:, n]).float() for n in (0, 2))
    torch.save({"x": first, "y": second}, tmp_path / "a.pt")
    findings = inspect_file(tmp_path / "a.pt", Answers(channels="u v: velocity", lengths=(2.0,)))
    assert findings.document["data"]["inputs"].value == ["x"]
    assert [q.partition(":")[0] for q in findings.questions] == ["input.step"]
    torch.save({"x": first[:, 0], "y": second[:, 0]}, tmp_path / "b.pt")  # squeezed, as of Darcy
    write_task(inspect_file(tmp_path / "b.pt"), tmp_path / "task.toml")
    task, source = open_task(tmp_path / "task.toml")
    assert task.group.name == "translation" and source.load("train").grid == GRID


def test_what_the_tables_say(tmp_path: Path) -> None:
    write, file, _ = LAYOUTS["The Well"]
    write(tmp_path / file, VALUES)
    done = CliRunner().invoke(app, ["inspect", str(tmp_path / file)])
    assert done.exit_code == 0, done.output
    for words in (
        "The Well", "t1_fields/velocity", "sample time x y channel", "10 x 5 x 16 x 12 x 2",
        "velocity_x", "samples lie everywhere", "lengths = [6.283185, 3.0] (from the file",
        "step = 0.25", "channels last", "jump across the boundary",
    ):  # fmt: skip
        assert words in done.output, words
    assert [path.name for path in tmp_path.iterdir()] == [file]


def test_samples_on_the_slice_are_told_from_those_anywhere(tmp_path: Path) -> None:
    group, type = Galilean(2), FieldType.parse("u v: velocity", 2, lengths=LENGTHS)
    from pacefno.frames import default_slice

    fields = Field(torch.from_numpy(VALUES[:, 0]), type)
    for _ in range(2):
        fields = group.inverse(fields, default_slice(group).coordinates(fields))
    centred = np.stack([fields.values.numpy()] * 2, axis=1)
    for values, word in ((VALUES, "everywhere"), (centred, "centred on the slice")):
        np.savez(tmp_path / "a.npz", velocity=values, x=X, y=Y, t=TIMES[: values.shape[1]])
        done = CliRunner().invoke(app, ["inspect", str(tmp_path / "a.npz")])
        assert done.output.count(f"samples lie {word}") == 2, done.output


# --- wrong files ----------------------------------------------------------------------------------


def npz(folder: Path, **arrays: Any) -> Path:
    """The velocities with their axes, but for what is changed; None leaves an array out."""
    whole = {"velocity": VALUES, "x": X, "y": Y, "t": TIMES} | arrays
    np.savez(folder / "a.npz", **{k: v for k, v in whole.items() if v is not None})
    return folder / "a.npz"


def end_point(folder: Path) -> Path:
    values = np.concatenate([VALUES, VALUES[:, :, :, :1]], axis=3)
    values = np.concatenate([values, values[..., :1]], axis=4)
    ends = {axis: np.linspace(0, b, n + 1) for axis, b, n in zip("xy", LENGTHS, GRID, strict=True)}
    return npz(folder, velocity=values, **ends)


def not_a_number(folder: Path) -> Path:
    values = VALUES.copy()
    values[0, 0, 1, 3, 4] = np.nan
    return npz(folder, velocity=values)


def two_resolutions(folder: Path) -> Path:
    return npz(folder, velocity=None, u=VALUES[:, :, 0], v=VALUES[:, :, 1, ::2, ::2])


def two_resolutions_in_groups(folder: Path) -> Path:
    with h5py.File(folder / "a.h5", "w") as file:
        for number, stride in enumerate((1, 1, 2)):
            file[f"{number:04d}/data"] = np.moveaxis(VALUES[number, :, :, ::stride], 1, -1)
            file[f"{number:04d}/grid/x"], file[f"{number:04d}/grid/y"] = X[::stride], Y
    return folder / "a.h5"


def not_periodic(folder: Path) -> Path:
    return npz(folder, velocity=VALUES + 40 * np.arange(GRID[1]) / GRID[1])


def time_forgotten(folder: Path) -> Path:
    return npz(folder, velocity=VALUES[:, 0], t=None)


def wrong_ending(folder: Path) -> Path:
    with h5py.File(folder / "a.npy", "w") as file:
        file["u"] = VALUES
    return folder / "a.npy"


def truncated(folder: Path) -> Path:
    path = npz(folder)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def external_link(folder: Path) -> Path:
    with h5py.File(folder / "secret.h5", "w") as file:
        file["u"] = VALUES
    with h5py.File(folder / "a.h5", "w") as file:
        file["u"] = h5py.ExternalLink("secret.h5", "/u")
    return folder / "a.h5"


def link_in_netcdf(folder: Path) -> Path:
    external_link(folder).rename(folder / "a.nc")
    return folder / "a.nc"


class Exploit:
    """Unpickled, it would make a folder."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.mkdir, (self.marker,)


def pickled(folder: Path) -> Path:
    torch.save({"x": Exploit(folder / "marker")}, folder / "a.pt")
    return folder / "a.pt"


def pickled_numbers(folder: Path) -> Path:
    torch.save({"x": [1.0, 2.0]}, folder / "a.pt")
    return folder / "a.pt"


def plain_pickle(folder: Path) -> Path:
    (folder / "a.pt").write_bytes(pickle.dumps(Exploit(folder / "marker")))
    return folder / "a.pt"


def objects(folder: Path) -> Path:
    values = np.empty((10, 5, 16), dtype=object)
    values[:] = 1
    values[0, 0, 0] = Exploit(folder / "marker")
    np.save(folder / "a.npy", values, allow_pickle=True)
    return folder / "a.npy"


def huge_npy(folder: Path) -> Path:
    with (folder / "a.npy").open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 100, 1000, 1000)}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(b"\0" * 4096)
    return folder / "a.npy"


def huge_npz(folder: Path) -> Path:
    huge_npy(folder)
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.write(folder / "a.npy", "u.npy")
    (folder / "a.npy").unlink()
    return folder / "a.npz"


def huge_hdf5(folder: Path) -> Path:
    with h5py.File(folder / "a.h5", "w") as file:
        shape = (10**6, 100, 1000, 1000)
        file.create_dataset("u", shape, "<f8", chunks=(1, 1, 1000, 1000))
    return folder / "a.h5"


def huge_pt(folder: Path) -> Path:
    torch.save({"x": torch.zeros(1).expand(10**6, 100, 1000, 1000)}, folder / "a.pt")
    return folder / "a.pt"


def huge_zarr(folder: Path) -> Path:
    path = folder / "a.zarr" / "u"
    path.mkdir(parents=True)
    (folder / "a.zarr" / ".zgroup").write_text('{"zarr_format": 2}')
    array = {
        "zarr_format": 2, "shape": [10**6, 100, 1000, 1000], "chunks": [1, 1, 1000, 1000],
        "dtype": "<f8", "compressor": None, "fill_value": 0, "order": "C", "filters": None,
    }  # fmt: skip
    (path / ".zarray").write_text(json.dumps(array))
    (path / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["sample", "time", "y", "x"]}')
    return folder / "a.zarr"


def pickle_in_zarr(folder: Path) -> Path:
    path = huge_zarr(folder)
    array = json.loads((path / "u" / ".zarray").read_text())
    array |= {"dtype": "|O", "filters": [{"id": "pickle", "protocol": 5}]}
    (path / "u" / ".zarray").write_text(json.dumps(array))
    return path


def link_in_zarr(folder: Path) -> Path:
    path = huge_zarr(folder)
    (folder / "secret").write_text("secret")
    (path / "u" / "0.0.0.0").symlink_to(folder / "secret")
    return path


def complex_hdf5(folder: Path) -> Path:
    with h5py.File(folder / "a.h5", "w") as file:
        file["u"] = VALUES + 1j
    return folder / "a.h5"


def complex_pt(folder: Path) -> Path:
    torch.save({"u": torch.from_numpy(VALUES + 1j)}, folder / "a.pt")
    return folder / "a.pt"


def virtual(folder: Path) -> Path:
    external_link(folder)
    layout = h5py.VirtualLayout(VALUES.shape, "f8")
    layout[...] = h5py.VirtualSource(folder / "secret.h5", "u", VALUES.shape)
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_virtual_dataset("u", layout)
    return folder / "a.h5"


def cut_short(name: str) -> Callable[[Path], Path]:
    """A file of a layout without its last third, as a copy that was interrupted."""

    def make(folder: Path) -> Path:
        write, file, _ = LAYOUTS[name]
        write(folder / file, VALUES)
        whole = (folder / file).read_bytes()
        (folder / file).write_bytes(whole[: 2 * len(whole) // 3])
        return folder / file

    return make


WRONG: dict[str, tuple[Callable[[Path], Path], list[str], str]] = {
    "end point duplicated": (end_point, [], "listed twice; say endpoint = true"),
    "NaN": (not_a_number, [], r"NaN or infinity, 1 in channel 1 .*repair"),
    "two resolutions": (two_resolutions, [], "expected one resolution.*--array"),
    "two resolutions in groups": (two_resolutions_in_groups, [], "keep one resolution"),
    "unequal spacing": (lambda f: npz(f, x=X**2), [], "x: the spacing varies.*resample evenly"),
    "axis backwards": (lambda f: npz(f, x=X[::-1]), [], "axis x runs backwards: flip it"),
    "uneven times": (lambda f: npz(f, t=TIMES**2), [], "times are not evenly spaced.*interpolate"),
    "non-periodic": (not_periodic, [], "does not look periodic along y.*non-periodic"),
    "one sample": (lambda f: npz(f, velocity=VALUES[:1]), [], "holds 1 sample.*give more"),
    "zero variance": (
        lambda f: npz(f, velocity=VALUES * [[[1.0]], [[0.0]]]),
        [],
        "channel 1 is 0 everywhere.*Leave the channel out",
    ),
    "time axis forgotten": (time_forgotten, [], "has no time axis and no pairs: say --axes"),
    "an axis not named": (npz, ["--axes", "sample channel x y"], "time axis forgotten"),
    "no axes at all": (
        lambda f: npz(f, velocity=VALUES[:, :, 0, 0, :7]),
        [],
        "the axes of .* cannot be told.*say which is which",
    ),
    "wrong ending": (wrong_ending, [], "looks like hdf5 inside, not npy: name it a.h5"),
    "truncated": (truncated, [], "truncated or no .npz file.*copy it again"),
    **{
        f"truncated {name}": (cut_short(name), [], r"truncated or no \.\w+ file.*copy it again")
        for name in ("npy", "PDEBench variables", "The Well", "pt", "NetCDF 4", "NetCDF 3")
    },
    "virtual HDF5": (virtual, [], "keeps its values in other files, which are never opened: store"),
    "complex HDF5": (complex_hdf5, [], "got complex128: store real and imaginary part as two"),
    "complex pt": (complex_pt, [], "got complex128: store real and imaginary part as two"),
    "external link": (external_link, [], "'u' is a link: expected an array, stored in this"),
    "link in NetCDF": (link_in_netcdf, [], "'u' is a link"),
    "pickle": (pickled, [], "objects other than tensors.*save a dict of tensors"),
    "pickled numbers": (pickled_numbers, [], "expected a dense tensor, got list: save a dict"),
    "plain pickle": (plain_pickle, [], "truncated or no .pt file"),
    "object array": (objects, [], "Python objects are never opened; store plain numbers"),
    "huge header of npy": (huge_npy, [], "declares 800000000000000 bytes and the file holds 4096"),
    "huge header of npz": (huge_npz, [], "declares 800000000000000 bytes"),
    "huge header of HDF5": (huge_hdf5, [], "declares 800000000000000 bytes and stores 0"),
    "huge header of pt": (huge_pt, [], "declares 400000000000000 bytes and stores 4"),
    "huge header of Zarr": (huge_zarr, [], "declares 800000000000000 bytes"),
    "pickle in Zarr": (pickle_in_zarr, [], "pickled objects, which are never opened"),
    "link in Zarr": (link_in_zarr, [], "is a link, which is never followed"),
    "complex numbers": (
        lambda f: npz(f, velocity=VALUES + 1j),
        [],
        "got complex128: store real and imaginary part as two channels",
    ),
    "texts": (
        lambda f: npz(f, velocity=VALUES.astype(str)),
        [],
        "expected real numbers, got <U32: convert it",
    ),
    "wrong units of length": (npz, ["--lengths", "1,3"], "cover a period of 6.28.*says 1: correct"),
    "no such file": (lambda f: f / "none.npz", [], "there is no such file"),
    "unknown ending": (lambda f: npz(f).rename(f / "a.dat"), [], "name it a.npz, or say format"),
    "nothing inside": (
        lambda f: npz(f, velocity=None, t=None),
        [],
        "expected an array of at least 2 axes",
    ),
}


@pytest.mark.parametrize("kind", list(WRONG))
def test_a_wrong_file_is_one_sentence_and_nothing_is_written(kind: str, tmp_path: Path) -> None:
    if "NetCDF" in kind or "Zarr" in kind:
        pytest.importorskip("xarray")
        pytest.importorskip("zarr" if "Zarr" in kind else "netCDF4")
    make, options, message = WRONG[kind]
    path = make(tmp_path)
    before = sorted(p.name for p in tmp_path.iterdir())
    task = tmp_path / "task.toml"
    done = CliRunner().invoke(app, ["inspect", str(path), "--write", str(task), *options])
    assert done.exit_code in (1, 2) and isinstance(done.exception, SystemExit), done.output
    with pytest.raises((DatasetError, ValueError), match=message):
        numbers = tuple(map(float, options[1].split(","))) if "--lengths" in options else ()
        axes = options[1] if "--axes" in options else ""
        found = inspect_file(path, Answers(lengths=numbers, axes=axes))
        write_task(found, task)
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == before


HANDLED: dict[str, tuple[Callable[[Path], Path], list[str], str]] = {
    "end point duplicated": (end_point, ["--endpoint"], "the last points are dropped"),
    "channels last": (
        lambda f: npz(f, velocity=np.moveaxis(VALUES, 2, -1)),
        [],
        "channels last, moved to the front",
    ),
    "integers": (
        lambda f: npz(f, velocity=np.round(1000 * VALUES).astype(np.int16)),
        [],
        "int16 numbers, read as float32",
    ),
    "big-endian": (lambda f: npz(f, velocity=VALUES.astype(">f4")), [], "in the other byte order"),
    "missing coordinates": (
        lambda f: npz(f, x=None, y=None),
        [],
        "the file does not say input.lengths",
    ),
    "missing times": (lambda f: npz(f, t=None), [], "the file does not say input.step"),
    "non-periodic, meant": (not_periodic, ["--allow", "non-periodic"], "10 samples"),
    "wrong ending, said": (wrong_ending, ["--format", "hdf5"], "10 samples"),
    "Fortran's order": (
        lambda f: npz(f, velocity=np.asfortranarray(VALUES)),
        [],
        "samples lie everywhere",
    ),
}


@pytest.mark.parametrize("kind", list(HANDLED))
def test_what_can_be_mended_is_mended_and_said(kind: str, tmp_path: Path) -> None:
    make, options, words = HANDLED[kind]
    path = make(tmp_path)
    task = tmp_path / "task.toml"
    done = CliRunner().invoke(app, ["inspect", str(path), "--write", str(task), *options])
    assert done.exit_code == 0, done.output
    assert words in done.output
    if '= "?"' in task.read_text():
        with pytest.raises(TaskError, match="is still"):
            open_task(task)
        return
    _, source = open_task(task)
    assert source.load("train").grid == GRID
    scale = 1000 if kind == "integers" else 1
    trajectory, start = source.load("train").origin(0)
    found = source.load("train").select(slice(0, 1)).input[0].double().numpy() / scale
    if kind != "non-periodic, meant":
        assert np.abs(found - VALUES[trajectory, start]).max() < (1e-3 if scale > 1 else 1e-6)


def test_a_fault_is_also_found_without_inspecting(tmp_path: Path) -> None:
    """A document written for a good file meets a bad one."""
    write_task(inspect_file(npz(tmp_path)), tmp_path / "task.toml")
    open_task(tmp_path / "task.toml")
    for make, message in (
        (end_point, "listed twice"),
        (not_a_number, "NaN"),
        (not_periodic, "does not look periodic"),
        (lambda f: npz(f, x=2 * X), "cover a period of 12.5664"),
        (lambda f: npz(f, velocity=VALUES[:2]), "holds 2 samples"),
    ):
        make(tmp_path)
        with pytest.raises(DatasetError, match=message):
            open_task(tmp_path / "task.toml")


@pytest.mark.parametrize("coordinates", [True, False])
def test_one_long_trajectory_is_noticed_and_split_in_time(
    tmp_path: Path, coordinates: bool
) -> None:
    values = smooth(shape=(1, 40, 2))
    if coordinates:  # which tell that there is no sample axis
        npz(tmp_path, velocity=values[0], t=0.25 * np.arange(40))
    else:
        npz(tmp_path, velocity=values, t=None, x=None, y=None)
    words = [] if coordinates else ["--lengths", "6.2832,3", "--step", "0.25"]
    task = tmp_path / "task.toml"
    done = CliRunner().invoke(
        app, ["inspect", str(tmp_path / "a.npz"), "--write", str(task), *words]
    )
    assert done.exit_code == 0, done.output
    assert (
        "1 sample, 40 snapshots" in done.stdout and "- split by time (guessed: too" in done.stdout
    )
    assert 'split_by = "time"  # guessed' in task.read_text()
    _, source = open_task(task)
    assert [len(block) for block in source.blocks] == [28, 4, 4]


def test_a_folder_is_inspected_as_one_file(tmp_path: Path) -> None:
    (tmp_path / "my runs").mkdir()
    for number in range(5):
        np.savez(tmp_path / "my runs" / f"{number}.npz", velocity=VALUES[2 * number :][:2], t=TIMES)
    task = tmp_path / "task.toml"
    words = ["--lengths", "6.2832,3", "--write", str(task)]
    for place in ("my runs", "my runs/*.npz"):
        task.unlink(missing_ok=True)
        done = CliRunner().invoke(app, ["inspect", str(tmp_path / place), *words])
        assert done.exit_code == 0, done.output
        assert "5 files, with 10 samples in all" in done.stdout
        assert f'file = "{place}"' in task.read_text()
        assert len(open_task(task)[1].rows[0]) == 8
    several = [str(path) for path in (tmp_path / "my runs").iterdir()]  # as a shell hands them over
    done = CliRunner().invoke(app, ["inspect", *several])
    assert done.exit_code == 2 and "the pattern in quotes" in " ".join(done.stderr.split())


def test_nan_in_a_sample_that_was_not_looked_at_is_met_when_it_is_read(tmp_path: Path) -> None:
    values = np.concatenate([VALUES, VALUES])
    path = npz(tmp_path, velocity=values)
    findings = inspect_file(path)
    hidden = next(n for n in range(20) if n not in findings.seen[0].samples)
    write_task(findings, tmp_path / "task.toml")
    values[hidden, 2, 0, 1, 1] = np.inf
    npz(tmp_path, velocity=values)
    _, source = open_task(tmp_path / "task.toml")
    with pytest.raises(DatasetError, match=rf"sample {hidden} holds 1 values .* point \(1, 1\)"):
        for split in ("train", "validation", "test_id"):
            source.load(split).select(slice(None))


def test_a_missing_package_says_which_command_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> Any:
        if name in ("xarray", "netCDF4"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, package)

    (tmp_path / "a.nc").write_bytes(b"CDF\x01" + b"\0" * 100)
    monkeypatch.setattr(importlib, "import_module", missing)
    done = CliRunner().invoke(app, ["inspect", str(tmp_path / "a.nc")])
    assert done.exit_code == 2 and "pip install 'pacefno[io]'" in done.stderr


# --- what the fields themselves tell --------------------------------------------------------------


def test_rows_along_y_are_noticed_by_the_divergence_of_a_velocity(tmp_path: Path) -> None:
    stream = VALUES[:, :, 0]
    k, m = (np.fft.fftfreq(n, 1 / n) * 2 * np.pi / b for n, b in zip(GRID, LENGTHS, strict=True))
    derivative = lambda wave: np.fft.ifft2(1j * wave * np.fft.fft2(stream)).real  # noqa: E731
    u, v = derivative(m[None, :]), -derivative(k[:, None])
    for name, arrays in {"straight": (u, v), "swapped": (u, v)}.items():
        first, second = (a.swapaxes(-1, -2) if name == "swapped" else a for a in arrays)
        np.savez(tmp_path / f"{name}.npz", u=first, v=second, t=TIMES)
    lengths = Answers(lengths=LENGTHS)
    assert not inspect_file(tmp_path / "straight.npz", lengths).fault
    swapped = inspect_file(tmp_path / "swapped.npz", Answers(lengths=LENGTHS[::-1]))
    assert 'say --axes "sample time y x"' in swapped.fault
    said = inspect_file(tmp_path / "swapped.npz", Answers(lengths=LENGTHS, axes="sample time y x"))
    assert not said.fault and said.parts[0].grid == GRID


def test_a_dataset_of_ours_says_everything_itself(smoke_datasets: Path, tmp_path: Path) -> None:
    path = next(smoke_datasets.rglob("train.h5"))
    findings = inspect_file(path)
    assert findings.questions == []
    write_task(findings, tmp_path / "task.toml")
    task, source = open_task(tmp_path / "task.toml")
    assert task.input.text == "u: speed" and task.group.diagonal  # type: ignore[attr-defined]
    with h5py.File(path, "r", locking=False) as file:
        pairs = source.load("train")
        expected = file["target"][pairs.origin(0)[0]]
    assert np.array_equal(pairs.select(slice(0, 1)).target[0], expected)


@pytest.mark.parametrize("alike", [True, False])
def test_coordinates_once_per_sample(tmp_path: Path, alike: bool) -> None:
    """Two more layouts of the field: PDEArena's, and LPSDA's with boxes of their own."""
    scale = np.ones(10) if alike else np.linspace(1, 2, 10)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["train/vx"], file["train/vy"] = VALUES[:, :, 0], VALUES[:, :, 1]
        for name, points in (("x", X), ("y", Y), ("t", TIMES)):
            file[f"train/{name}"] = scale[:, None] * points
    if not alike:
        with pytest.raises(DatasetError, match="differs from sample to sample, and a task"):
            inspect_file(tmp_path / "a.h5")
        return
    findings = inspect_file(tmp_path / "a.h5")
    assert findings.document["input"]["lengths"].value == pytest.approx(LENGTHS)
    assert findings.document["input"]["channels"].value == "vx vy: velocity"
    assert not findings.fault and not findings.questions


def test_arrays_with_and_without_a_channel_axis_go_together(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["velocity"] = np.moveaxis(VALUES, 2, -1)
        file["density"] = 2 + 0.1 * VALUES[:, :, 0]
        file["x"], file["y"], file["t"] = X, Y, TIMES
    write_task(inspect_file(tmp_path / "a.h5"), tmp_path / "task.toml")
    task, source = open_task(tmp_path / "task.toml")
    assert task.input.text == "density: scalar, velocity: velocity"
    axes = {"density": "sample time x y", "velocity": "sample time x y channel"}
    assert source.settings.axes == axes
    trajectory, start = source.load("train").origin(0)
    found = source.load("train").select(slice(0, 1)).input[0]
    expected = VALUES[trajectory, start]
    assert np.allclose(found[0], 2 + 0.1 * expected[0]) and np.allclose(found[1:], expected)


@pytest.mark.parametrize("dim", [1, 3])
def test_one_and_three_dimensions(tmp_path: Path, dim: int) -> None:
    grid = (20, 12, 10)[:dim]
    phases = np.random.default_rng(0).uniform(0, 6, size=(4, 5))
    points = [np.arange(n) / n for n in grid]
    waves = sum(
        np.sin(2 * np.pi * x.reshape([-1 if i == axis else 1 for i in range(dim)]))
        for axis, x in enumerate(points)
    )
    values = waves * np.cos(phases.reshape(4, 5, *[1] * dim))
    names = dict(zip("xyz", points, strict=False))
    np.savez(tmp_path / "a.npz", theta=values, t=np.arange(5.0), **names)
    write_task(inspect_file(tmp_path / "a.npz"), tmp_path / "task.toml")
    task, source = open_task(tmp_path / "task.toml")
    assert task.dim == dim and task.input.text == "theta: scalar"
    assert source.load("train").grid == grid and task.input.lengths == pytest.approx([1.0] * dim)
    assert source.load("test_ood").select(slice(0, 2)).input.shape == (2, 1, *grid)


def test_darcys_pairs_are_named_by_hand(tmp_path: Path) -> None:
    """PDEBench's Darcy set: a field of one shape to one of another, no time."""
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["nu"], file["tensor"] = VALUES[:, 0, 0], VALUES[:, :1, 1]
        file["x-coordinate"], file["y-coordinate"] = X, Y
    with pytest.raises(DatasetError, match="--array A --target B"):
        write_task(inspect_file(tmp_path / "a.hdf5"), tmp_path / "task.toml")
    named = Answers(arrays=("nu",), targets=("tensor",))
    write_task(inspect_file(tmp_path / "a.hdf5", named), tmp_path / "task.toml")
    _, source = open_task(tmp_path / "task.toml")
    found, number = source.load("train").select(slice(0, 1)), source.load("train").origin(0)[0]
    assert np.allclose(found.input[0], VALUES[number, 0, :1])
    assert np.allclose(found.target[0], VALUES[number, 0, 1:])


@pytest.mark.parametrize("name", ["npy", "npz", "npz compressed", "pt", "The Well"])
def test_damaged_bytes_are_never_a_traceback(name: str, tmp_path: Path) -> None:
    """Headers and directories stand at the beginning and at the end of a file."""
    write, file, _ = LAYOUTS[name]
    write(tmp_path / file, VALUES[:3])
    content = (tmp_path / file).read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for number in range(25):
        damaged = bytearray(content)
        for place in rng.integers(0, 400, size=6):
            damaged[place if rng.random() < 0.5 else -1 - place] = rng.integers(256)
        path = tmp_path / f"{number}{Path(file).suffix}"  # HDF5 remembers a file that it has open
        path.write_bytes(damaged)
        try:
            inspect_file(path, SAID.get(name))
        except (DatasetError, UsageError):
            refused += 1
    assert refused > 0


# --- answers and files that contradict each other -------------------------------------------------


def inspected(path: Path, document: Path, **said: Any) -> str:
    """The text of the document that is written for a file."""
    document.unlink(missing_ok=True)
    write_task(inspect_file(path, Answers(**said)), document)
    return document.read_text()


def test_axes_that_contradict_those_of_the_file_are_refused(tmp_path: Path) -> None:
    """Exchanged axes would train without a word, on fields that are torn."""
    x, y = np.arange(32) / 8, np.arange(16) / 16
    values = np.random.default_rng(0).normal(size=(6, 4, 32, 16))
    np.savez(tmp_path / "flow.npz", p=values, x=x, y=y)
    text = inspected(tmp_path / "flow.npz", tmp_path / "right.toml", channels="p: scalar")
    assert 'axes = "sample time x y"' in text
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(text.replace("sample time x y", "sample time y x"))
    with pytest.raises(DatasetError, match="its coordinates x are 32 points, .* has 16: are the"):
        open_task(wrong)
    xarray = pytest.importorskip("xarray")
    named = xarray.Dataset({"p": (("sample", "time", "x", "y"), values)})
    named.to_netcdf(tmp_path / "flow.nc")
    text = inspected(tmp_path / "flow.nc", tmp_path / "right.toml", channels="p: scalar")
    wrong.write_text(text.replace("sample time x y", "sample time y x"))
    with pytest.raises(
        DatasetError, match="has the axes sample time x y in the file, and data.axes"
    ):
        open_task(wrong)
    meant = wrong.read_text().replace("[data]", '[data]\nallow = ["axes"]')
    wrong.write_text(meant)
    assert open_task(wrong)[1].load("train").grid == (16, 32)


def test_one_array_has_as_many_channels_as_are_named(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(8, 6, 32, 16))
    np.savez(tmp_path / "u.npz", u=values)
    for said in ({"channels": "u: scalar"}, {}):  # six components are no velocity of the plane
        text = inspected(tmp_path / "u.npz", tmp_path / "task.toml", **said)
        assert 'axes = "sample time x y"' in text


def test_a_step_that_contradicts_the_times_of_the_file_is_refused(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(8, 6, 32, 32))
    np.savez(tmp_path / "p.npz", p=values, t=np.arange(6) * 0.1)
    with pytest.raises(UsageError, match="--step 0.3: the times in the file are 0.1 apart"):
        inspected(tmp_path / "p.npz", tmp_path / "task.toml", channels="p: scalar", step=0.3)


def test_lengths_are_asked_for_where_fields_are_turned(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(8, 6, 32, 32))
    np.savez(tmp_path / "p.npz", p=values)
    for group, blank in (("euclidean", True), ("translation", False)):
        said = {"channels": "p: scalar", "group": group, "step": 1.0}
        text = inspected(tmp_path / "p.npz", tmp_path / "task.toml", **said)
        assert ('lengths = "?"' in text) == blank


# --- coordinates that are others than they seem


def stored(path: Path, **more: Any) -> Path:
    """Velocities with the coordinates of the examples, or with others instead."""
    with h5py.File(path, "w") as file:
        file["u"], file["v"] = VALUES[:, :, 0], VALUES[:, :, 1]
        for name, array in ({"x": X, "y": Y, "time": TIMES} | more).items():
            if array is not None:
                file[name] = array
    return path


def step_of(path: Path, said: Answers | None = None) -> float:
    """The time between snapshots in the document that is written of a file."""
    found = inspect_file(path, said)
    return float(found.document["input"]["step"].value)


def test_a_counter_of_steps_is_no_time(tmp_path: Path) -> None:
    path = stored(tmp_path / "flow.h5", step=100 * np.arange(len(TIMES)))
    assert step_of(path) == pytest.approx(STEP)
    path = stored(tmp_path / "counted.h5", time=None, step=100 * np.arange(len(TIMES)))
    assert step_of(path, Answers(step=0.1)) == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["Time", "TIME", "times"])
def test_a_coordinate_may_be_written_in_capitals(name: str, tmp_path: Path) -> None:
    path = stored(tmp_path / "flow.h5", time=None, x=None, X=X, **{name: TIMES})
    assert step_of(path) == pytest.approx(STEP)
    assert inspect_file(path).type.lengths == pytest.approx(LENGTHS)
    uneven = stored(tmp_path / "uneven.h5", time=None, **{name: TIMES**2})
    with pytest.raises(DatasetError, match="not evenly spaced"):
        inspect_file(uneven, Answers(step=STEP))


def test_of_several_groups_the_coordinates_beside_the_arrays_count(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "runs.h5", "w") as file:
        for name, factor in (("a", 1.0), ("b", 3.0)):
            file[f"{name}/u"] = VALUES[:, :, 0]
            file[f"{name}/x"], file[f"{name}/y"] = factor * X, factor * Y
            file[f"{name}/time"] = factor * TIMES
    for name, factor in (("a", 1.0), ("b", 3.0)):
        said = Answers(arrays=(f"{name}/u",))
        lengths = inspect_file(tmp_path / "runs.h5", said).type.lengths
        assert lengths == pytest.approx([factor * length for length in LENGTHS])
        assert step_of(tmp_path / "runs.h5", said) == pytest.approx(factor * STEP)
    with h5py.File(tmp_path / "runs.h5", "r+") as file:
        file["c"] = VALUES[:, :, 0]
    with pytest.raises(DatasetError, match="has several coordinates x, 'a/x' and 'b/x'"):
        inspect_file(tmp_path / "runs.h5", Answers(arrays=("c",), axes="sample time x y"))


@pytest.mark.parametrize("what", ["grid/x", "grid/t"])
def test_one_group_per_sample_has_one_box_and_one_step(what: str, tmp_path: Path) -> None:
    write, file, _ = LAYOUTS["PDEBench groups"]
    path = tmp_path / file
    write(path, VALUES)
    with h5py.File(path, "r+") as opened:
        group = opened[sorted(opened)[-1]]
        points = group[what][()]
        del group[what]
        group[what] = 3 * points
    with pytest.raises(DatasetError, match=f"{what} is not spaced as 0000/{what}"):
        inspect_file(path, SAID["PDEBench groups"])


def test_files_of_a_folder_name_their_axes_alike(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    square = VALUES[..., :12, :]
    for number, dims in ((1, "sample time x y"), (2, "sample time y x")):
        flow = {name: (dims.split(), square[:, :, i]) for i, name in enumerate("uv")}
        xarray.Dataset(flow).to_netcdf(tmp_path / f"{number}.nc")
    with pytest.raises(DatasetError, match="'u' has the axes sample time y x, in 1.nc sample time"):
        inspect_file(tmp_path, Answers(lengths=(1.0, 1.0), step=STEP))


def test_an_end_point_is_dropped_only_where_it_is_one(tmp_path: Path) -> None:
    """Listed twice along x alone: dropping the last point along y too would tear the field."""
    values = np.concatenate([VALUES, VALUES[..., :1, :]], axis=-2)
    path = tmp_path / "flow.h5"
    with h5py.File(path, "w") as file:
        file["u"], file["v"] = values[:, :, 0], values[:, :, 1]
    said = Answers(lengths=LENGTHS, step=STEP, endpoint=True)
    with pytest.raises(DatasetError, match="along y the last point does not repeat the first"):
        write_task(inspect_file(path, said), tmp_path / "task.toml")


def test_no_group_of_a_file_may_lead_out_of_it(tmp_path: Path) -> None:
    """Each is looked into, not only the first."""
    write, *_ = LAYOUTS["PDEBench groups"]
    for name in ("here.h5", "elsewhere.h5"):
        write(tmp_path / name, VALUES)
    with h5py.File(tmp_path / "here.h5", "r+") as opened:
        last = sorted(opened)[-1]
        del opened[last]["grid"]
        opened[last]["grid"] = h5py.ExternalLink("elsewhere.h5", f"{last}/grid")
    with pytest.raises(DatasetError, match=f"'{last}/grid' is a link"):
        inspect_file(tmp_path / "here.h5", SAID["PDEBench groups"])


@pytest.mark.parametrize("labelled", [False, True])
def test_dimension_scales_and_labels_tell_the_axes(labelled: bool, tmp_path: Path) -> None:
    path, names = tmp_path / "flow.h5", ("sample", "time", "y", "x")
    with h5py.File(path, "w") as file:
        for name, points in (("time", TIMES), ("x", X), ("y", Y), ("sample", np.arange(10))):
            file[name] = points
            file[name].make_scale(name)
        for number, name in enumerate("uv"):
            array = file.create_dataset(name, data=VALUES[:, :, number].transpose(0, 1, 3, 2))
            for dim, axis in zip(array.dims, names, strict=True):
                if labelled:
                    dim.label = axis
                else:
                    dim.attach_scale(file[axis])
    found = inspect_file(path)
    assert found.document["data"]["axes"].value == "sample time y x"
    assert found.axes["u"].source == "file"
    assert found.type.lengths == pytest.approx(LENGTHS)
