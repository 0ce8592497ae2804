"""onnxruntime-web, which runs ONNX programs in a browser: fetched with npm once, and checked."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import final

from pacefno.errors import UsageError
from pacefno.files import make_folder

PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
ARCHIVE = f"{PACKAGE}-{VERSION}.tgz"
SCRIPT, WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
SUMS = {  # sha512 of the files of this version: what runs in a page is what was tested
    SCRIPT: "d4a705f0258065eaad4dcbcb80a3ed38c5c86e459e87ef8b0c24290e14390115"
    "711c02f554d2f9aebd0e23e3314db98d200365744fc0feaf8ee2048a81232359",
    WASM: "1adeded62203219fcf5c484cfce5657aa5875689b490423f86cf1ca1dd1cad77"
    "15f630c6337f41db71ee42794e3a00ce0b7c78939a71220b5d83368bf6ea7730",
}
FETCH = f"npm pack {PACKAGE}@{VERSION}"
SECONDS_TO_FETCH = 600


@final
@dataclass(frozen=True)
class Runtime:
    """The two files that a page needs."""

    script: bytes
    wasm: bytes


def cache_folder() -> Path:
    """Where the package is kept between two calls."""
    windows = os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else None
    root = windows or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "pacefno"


def find_runtime(place: Path | None = None) -> Runtime:
    """The runtime in a folder or an archive of npm's, or else from the cache; fetched if missing.

    A file that is not the one of the pinned version is refused.
    """
    if place is not None:
        if not place.exists():
            raise UsageError(f"--runtime {place}: there is no such folder or archive")
        return _checked(_read(place), place)
    kept = cache_folder() / ARCHIVE
    if not kept.exists():
        _fetch(kept)
    return _checked(_read(kept), kept)


def _fetch(target: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise UsageError(
            f"{PACKAGE} {VERSION}, which runs the models in the page, is fetched with npm, and npm "
            f"is not installed: install Node.js, or fetch it elsewhere ({FETCH}) and say "
            f"--runtime {ARCHIVE}"
        )
    make_folder(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        try:
            subprocess.run(
                [npm, "pack", f"{PACKAGE}@{VERSION}", "--silent"],
                cwd=folder,
                check=True,
                capture_output=True,
                timeout=SECONDS_TO_FETCH,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UsageError(
                f"npm could not fetch {PACKAGE} {VERSION} ({error}): fetch it elsewhere ({FETCH}) "
                f"and say --runtime {ARCHIVE}"
            ) from None
        os.replace(Path(folder) / ARCHIVE, target)


def _read(place: Path) -> dict[str, bytes]:
    """The two files out of an archive, of an unpacked package, or of its folder ``dist``."""
    try:
        if place.is_file():
            with tarfile.open(place) as archive:
                members = {name: archive.extractfile(f"package/dist/{name}") for name in SUMS}
                return {name: file.read() for name, file in members.items() if file is not None}
        folder = place / "dist" if (place / "dist").is_dir() else place
        return {name: (folder / name).read_bytes() for name in SUMS}
    except (OSError, KeyError, tarfile.TarError) as error:
        raise UsageError(
            f"{place}: expected {ARCHIVE} or the folder of that package, with dist/{SCRIPT} and "
            f"dist/{WASM} ({error}): fetch it with {FETCH}"
        ) from None


def _checked(files: dict[str, bytes], place: Path) -> Runtime:
    for name, expected in SUMS.items():
        if hashlib.sha512(files.get(name, b"")).hexdigest() != expected:
            raise UsageError(
                f"{place}: {name} is not that of {PACKAGE} {VERSION}: delete it and give the "
                f"command again, or fetch it with {FETCH} and say --runtime {ARCHIVE}"
            )
    return Runtime(files[SCRIPT], files[WASM])
