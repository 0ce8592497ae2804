"""Files are replaced whole or not at all, and a folder has one writer, whatever dies when."""

from __future__ import annotations

import ast
import contextlib
import errno
import itertools
import os
import pickle
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pacefno import errors, files
from pacefno.files import (
    FolderInUseError,
    PathError,
    lock_folder,
    make_folder,
    remove,
    remove_stale_temporaries,
    replacing,
    sha256_of,
    write_bytes,
    write_text,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills forked processes")


def fork(action: Callable[[], object]) -> int:
    """Start a child that does something and ends, within 20 seconds; return its process number."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(20)
            action()
            status = 0
        except BaseException as error:
            os.write(2, f"child: {error!r}\n".encode())
        finally:
            os._exit(status)
    return pid


def wait_for(pid: int) -> int:
    """Return 0 if a child succeeded, minus the signal that killed it, or 1."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# --- writing ------------------------------------------------------------------------------------


def test_texts_and_bytes_replace_what_was_there_and_make_the_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.txt"
    for text in ("old and long", "new é\n", ""):
        write_text(path, text)
        assert path.read_bytes() == text.encode()
    write_bytes(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert [p.name for p in path.parent.iterdir()] == ["c.txt"]


def test_a_library_writes_to_the_temporary_path_and_readers_see_the_old_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "data.h5"
    path.write_text("old")
    with replacing(path) as temporary:
        assert temporary.parent == path.parent
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_while_writing_leaves_the_old_file_alone(
    tmp_path: Path, kind: type[BaseException]
) -> None:
    path = tmp_path / "data.h5"
    path.write_text("old")
    with pytest.raises(kind), replacing(path) as temporary:
        temporary.write_text("half")
        raise kind
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
def test_an_error_of_the_system_leaves_the_old_or_the_new_file_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "a.txt"
    failures = 0
    for moment in range(4):
        path.write_text("old")
        calls = itertools.count()
        real = getattr(os, call)

        def fail(*args: Any, moment: int = moment, calls: Any = calls, real: Any = real) -> Any:
            if next(calls) == moment:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*args)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            try:
                write_text(path, "new")
            except OSError:
                failures += 1
        assert path.read_text() in ("old", "new")
        assert list(tmp_path.iterdir()) == [path]
    assert failures == {"fsync": 2, "replace": 1, "open": 1}[call]


def killed_at(moment: int, action: Callable[[], object]) -> bool:
    """Run an action in a child that kills itself at its n-th touch of the file system, if any."""
    events = {"os.fsync", "open", "os.rename", "os.mkdir", "os.remove", "os.listdir", "os.scandir"}
    touches = itertools.count(1)

    def touch(event: str, _: object = None) -> None:
        if event in events and next(touches) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def child() -> None:
        real = os.fsync

        def fsync(descriptor: int) -> None:
            touch("os.fsync")
            real(descriptor)

        vars(os)["fsync"] = fsync  # Python announces all other events by itself
        sys.addaudithook(touch)
        action()

    ended = wait_for(fork(child))
    assert ended in (0, -signal.SIGKILL)
    return ended != 0


def overwrite(path: Path, text: str) -> None:
    """What not to do."""
    path.write_text("")
    path.write_text(text)


@pytest.mark.parametrize(("write", "safe"), [(write_text, True), (overwrite, False)])
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_file(
    tmp_path: Path, write: Callable[[Path, str], None], safe: bool
) -> None:
    path = tmp_path / "a.txt"
    seen = []
    for moment in itertools.count(1):
        path.write_text("old")
        killed = killed_at(moment, lambda: write(path, "new"))
        seen.append(path.read_text())
        remove_stale_temporaries(tmp_path)
        assert list(tmp_path.iterdir()) == [path]
        if not killed:
            break
    assert seen[0] == "old"
    assert seen[-1] == "new"
    assert (set(seen) == {"old", "new"}) == safe
    assert not safe or len(seen) > 5  # moments, not luck


def test_a_file_is_on_the_disk_before_it_gets_its_name_and_the_name_before_the_call_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: set[tuple[int, int]] = set()  # inode and size
    real_fsync, real_replace = os.fsync, os.replace
    renamed = []

    def fsync(descriptor: int) -> None:
        real_fsync(descriptor)
        status = os.fstat(descriptor)
        forced.add((status.st_ino, status.st_size))

    def replace(source: Path, target: Path) -> None:
        assert (source.stat().st_ino, 1000) in forced
        real_replace(source, target)
        forced.clear()
        renamed.append(target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_bytes(tmp_path / "a", b"x" * 1000)
    assert renamed == [tmp_path / "a"]
    assert tmp_path.stat().st_ino in {inode for inode, _ in forced}


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EACCES])
def test_a_folder_that_cannot_be_forced_to_the_disk_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(path: Path, flags: int) -> int:
        raise OSError(code, "refused")

    monkeypatch.setattr(os, "open", refuse)  # the builtin open does not pass here
    write_text(tmp_path / "a", "x")
    assert (tmp_path / "a").read_text() == "x"
    code = errno.EIO
    with pytest.raises(OSError, match="refused"):
        write_text(tmp_path / "a", "y")


# --- the rest -----------------------------------------------------------------------------------


def test_the_sum_of_a_file_is_the_known_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_of(tmp_path / "a") == known


def test_remove_deletes_files_folders_and_links_but_not_what_links_point_to(tmp_path: Path) -> None:
    write_text(tmp_path / "folder" / "file", "x")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    remove(tmp_path / "link")
    assert (tmp_path / "folder" / "file").exists()
    for name in ("folder", "nothing"):
        remove(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_only_the_leftovers_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead = fork(lambda: None)
    wait_for(dead)
    keep = {f"mine.tmp-{os.getpid()}", "best", ".tmp-", "a.tmp-1", "a.tmp-", "a.tmp-x1"}
    stale = {f"shard.h5.tmp-{dead}", f"link.tmp-{dead}", f"folder.tmp-{dead}"}
    for name in keep:
        (tmp_path / name).write_text("x")
    (tmp_path / f"shard.h5.tmp-{dead}").write_text("x")
    (tmp_path / f"link.tmp-{dead}").symlink_to(tmp_path / "best")
    make_folder(tmp_path / f"folder.tmp-{dead}" / "below")
    assert {path.name for path in remove_stale_temporaries(tmp_path)} == stale
    assert {path.name for path in tmp_path.iterdir()} == keep


def test_an_error_names_the_path_and_the_reason_also_after_a_worker_sent_it() -> None:
    error = pickle.loads(pickle.dumps(FolderInUseError(Path("a/b"), "is in use")))
    assert isinstance(error, PathError)
    assert (error.path, error.reason, str(error)) == (Path("a/b"), "is in use", "a/b: is in use")


# --- the lock -----------------------------------------------------------------------------------


@contextlib.contextmanager
def held_by_a_child(folder: Path, action: Callable[[], object] = signal.pause) -> Iterator[int]:
    """A child that holds the lock, then does something, and is killed at the end."""
    ready, started = os.pipe()

    def hold() -> None:
        with lock_folder(folder):
            os.write(started, b"x")
            action()

    pid = fork(hold)
    os.close(started)
    assert os.read(ready, 1) == b"x"
    os.close(ready)
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_a_second_process_is_refused_and_told_who_holds_the_folder(tmp_path: Path) -> None:
    with held_by_a_child(tmp_path / "run") as pid:
        for _ in range(2):  # a refused one must not erase who it is
            with pytest.raises(FolderInUseError) as caught, lock_folder(tmp_path / "run"):
                pass
            assert str(caught.value) == (
                f"{tmp_path / 'run'}: is in use by process {pid} on {socket.gethostname()}: "
                "wait for it, stop it, or choose another folder"
            )


@pytest.mark.parametrize("collected", [True, False])
def test_the_lock_of_a_killed_process_is_free(tmp_path: Path, collected: bool) -> None:
    with held_by_a_child(tmp_path) as pid:
        os.kill(pid, signal.SIGKILL)
        if collected:
            os.waitpid(pid, 0)
        else:  # dead, but its number is still in use
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with lock_folder(tmp_path):
            assert f"process {os.getpid()} on" in (tmp_path / "run.lock").read_text()


def test_the_lock_of_a_killed_process_is_free_though_its_workers_live_on(tmp_path: Path) -> None:
    number = tmp_path / "worker"

    def start_worker() -> None:
        write_text(number, str(fork(signal.pause)))
        os.kill(os.getpid(), signal.SIGKILL)

    with held_by_a_child(tmp_path, start_worker) as pid:
        assert wait_for(pid) == -signal.SIGKILL
        try:
            with lock_folder(tmp_path):
                os.kill(int(number.read_text()), 0)  # it lives
        finally:
            os.kill(int(number.read_text()), signal.SIGKILL)


def test_a_forked_worker_does_not_release_its_parents_lock(tmp_path: Path) -> None:
    def refused() -> None:
        with pytest.raises(FolderInUseError), lock_folder(tmp_path):
            pass

    lock = lock_folder(tmp_path)
    with lock:
        assert wait_for(fork(lambda: lock.__exit__(None, None, None))) == 0
        assert wait_for(fork(refused)) == 0


@pytest.mark.parametrize("wait", [False, True])
def test_one_process_cannot_lock_twice_and_never_waits_for_itself(
    tmp_path: Path, wait: bool
) -> None:
    with lock_folder(tmp_path):
        mine = f"process {os.getpid()} on"
        with pytest.raises(FolderInUseError, match=mine), lock_folder(tmp_path, wait=wait):
            pass
        assert wait_for(fork(lambda: None)) == 0
    with lock_folder(tmp_path, wait=wait):
        pass


def test_the_lock_is_released_after_an_exception(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), lock_folder(tmp_path):
            raise ZeroDivisionError


@pytest.mark.parametrize("content", ["", "old text", "\0process 1 on elsewhere\n", "\xff" * 5000])
def test_a_lock_file_that_nobody_holds_blocks_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.lock").write_text(content, encoding="latin-1")
    with lock_folder(tmp_path):
        holder = (tmp_path / "run.lock").read_bytes()[1:].decode()
        assert holder == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_a_holder_without_a_name_is_another_process(tmp_path: Path) -> None:
    with held_by_a_child(tmp_path):
        (tmp_path / "run.lock").write_text("")
        with pytest.raises(FolderInUseError, match="another process"), lock_folder(tmp_path):
            pass


def test_processes_that_wait_add_up_without_losing_anything(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    write_text(counter, "0")

    def count() -> None:
        for _ in range(5):
            with lock_folder(tmp_path, wait=True):
                write_text(counter, str(int(counter.read_text()) + 1))

    children = [fork(count) for _ in range(3)]
    assert [wait_for(pid) for pid in children] == [0, 0, 0]
    assert counter.read_text() == "15"


def test_a_thread_waits_for_another_one(tmp_path: Path) -> None:
    done: list[bool] = []

    def take() -> None:
        with lock_folder(tmp_path, wait=True):
            done.append(True)

    thread = threading.Thread(target=take)
    with lock_folder(tmp_path):
        thread.start()
        thread.join(0.1)
        assert not done
    thread.join(20)
    assert done


def test_of_many_that_find_the_lock_of_a_killed_process_one_gets_it(tmp_path: Path) -> None:
    with held_by_a_child(tmp_path) as pid:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    gate, (report, results) = os.pipe(), os.pipe()

    def contend() -> None:
        os.close(gate[1])
        os.read(gate[0], 1)  # returns when the parent closes the other end
        try:
            with lock_folder(tmp_path):
                os.write(results, b"g")
                signal.pause()
        except FolderInUseError:
            os.write(results, b"b")

    children = [fork(contend) for _ in range(6)]
    os.close(gate[1])
    answers = b"".join(os.read(report, 1) for _ in children)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    for descriptor in (gate[0], report, results):
        os.close(descriptor)
    assert sorted(answers) == sorted(b"gbbbbb")


def test_without_flock_the_lock_still_excludes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some shared folders lack flock; there filelock keeps its own state in the file."""
    import fcntl

    def lacking(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, "not implemented")

    monkeypatch.setattr(fcntl, "flock", lacking)
    refused = pytest.raises(FolderInUseError, match="another process")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with lock_folder(tmp_path), refused, lock_folder(tmp_path):
            pass
        with lock_folder(tmp_path):
            pass


def imported_by(module: ModuleType) -> set[str]:
    """The modules that a module imports when it is imported itself."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    imported = {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
    for node in tree.body:
        imported |= {name.name for name in node.names} if isinstance(node, ast.Import) else set()
    return imported


def test_the_module_needs_the_standard_library_only() -> None:
    """And the base of its errors, which needs nothing else either."""
    imported = imported_by(files) - {"pacefno.errors"} | imported_by(errors)
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
