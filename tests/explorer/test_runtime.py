"""What runs the models in the page is the pinned version, or a sentence says how to get it."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from pacefno.errors import UsageError
from pacefno.explorer import runtime

FILES = {runtime.SCRIPT: b"export default 1", runtime.WASM: b"\0asm"}


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {name: hashlib.sha512(data).hexdigest() for name, data in FILES.items()}
    monkeypatch.setattr(runtime, "SUMS", found)


def write_package(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    (folder / "dist").mkdir(parents=True)
    for name, data in files.items():
        (folder / "dist" / name).write_bytes(data)
    return folder


def write_archive(path: Path, files: dict[str, bytes] = FILES) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"package/dist/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.usefixtures("sums")
def test_a_folder_and_an_archive_are_read(tmp_path: Path) -> None:
    folder, archive = write_package(tmp_path / "package"), write_archive(tmp_path / "a.tgz")
    for place in (folder, folder / "dist", archive):
        found = runtime.find_runtime(place)
        assert (found.script, found.wasm) == tuple(FILES.values())


@pytest.mark.usefixtures("sums")
def test_a_kept_archive_needs_no_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "cache_folder", lambda: tmp_path)
    monkeypatch.setenv("PATH", "")
    write_archive(tmp_path / runtime.ARCHIVE)
    assert runtime.find_runtime().wasm == FILES[runtime.WASM]


@pytest.mark.usefixtures("sums")
def test_other_files_than_those_of_the_version_are_refused(tmp_path: Path) -> None:
    place = write_package(tmp_path / "package", FILES | {runtime.WASM: b"something else"})
    with pytest.raises(UsageError, match=f"{runtime.WASM} is not that of onnxruntime-web 1"):
        runtime.find_runtime(place)


def test_without_npm_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "cache_folder", lambda: tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="npm is not installed: install Node.js, or .*--runtime"):
        runtime.find_runtime()


def test_a_failing_npm_is_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setattr(runtime, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(runtime.shutil, "which", lambda name: str(npm))
    with pytest.raises(UsageError, match="npm could not fetch onnxruntime-web .*--runtime"):
        runtime.find_runtime()
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("kind", ["missing", "empty folder", "text"])
def test_what_is_no_package_is_refused(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    if kind == "empty folder":
        place.mkdir()
    elif kind == "text":
        place.write_text("not an archive")
    with pytest.raises(UsageError, match="no such folder or archive|expected onnxruntime-web-1"):
        runtime.find_runtime(place)
