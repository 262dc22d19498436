# SPDX-License-Identifier: Apache-2.0
"""Waits for changed files, with the kernel's own inotify (rule G-1)."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodepool.clock import monotonic
from nodepool.runtime import daemon
from nodepool.runtime.daemon import LOOK_SECONDS, FileWatch

#: A wait that nothing ended.
FOREVER = 120.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "etc" / "nodepool.yaml"
    path.parent.mkdir()
    path.write_text("labels: []")
    return path


@pytest.fixture
def watch(file: Path) -> Iterator[FileWatch]:
    watch = FileWatch(
        lambda: [str(file), str(file.parent / "missing.yaml"), "bad\0name"], logging.getLogger("test.watch")
    )
    watch.open()
    watch.wait(0.0)
    yield watch
    watch.close()


def written(file: Path) -> None:
    file.write_text("labels: [{name: a}]")


def replaced(file: Path) -> None:
    other = file.with_suffix(".new")
    other.write_text("labels: [{name: a}]")
    other.rename(file)


def touched(file: Path) -> None:
    os.utime(file, (1, 1))


def readable(file: Path) -> None:
    file.chmod(0o600)


def missing_one_made(file: Path) -> None:
    (file.parent / "missing.yaml").write_text("x")


def ended(watch: FileWatch) -> bool:
    before = monotonic()
    watch.wait(FOREVER)
    return monotonic() - before < FOREVER


@pytest.mark.parametrize("change", [written, replaced, touched, readable, missing_one_made])
def test_change_ends_the_wait(watch: FileWatch, file: Path, change: Callable[[Path], None]) -> None:
    """G-1: whoever changes the file in whatever way, also once more after it was replaced."""
    for _ in range(2):
        change(file)
        assert ended(watch)
    # Nothing is left over: the next wait lasts.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(daemon, "sleep", lambda seconds: pytest.fail("told of a change that was told of before"))
        watch.wait(0.0)


def test_link_of_a_config_map(tmp_path: Path) -> None:
    """G-1: Kubernetes replaces the link of a directory, not the file."""
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "nodepool.yaml").write_text(version)
    (tmp_path / "..data").symlink_to("1")
    (tmp_path / "nodepool.yaml").symlink_to("..data/nodepool.yaml")
    watch = FileWatch(lambda: [str(tmp_path / "nodepool.yaml")], logging.getLogger("test.watch"))
    watch.open()
    try:
        watch.wait(0.0)
        (tmp_path / "..tmp").symlink_to("2")
        (tmp_path / "..tmp").rename(tmp_path / "..data")
        assert ended(watch)
    finally:
        watch.close()


def test_directory_that_is_another_one(watch: FileWatch, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-1: what is watched is renewed every 10 s, and not with each wait."""
    file.parent.rename(file.parent.with_name("old"))
    file.parent.mkdir()
    file.write_text("labels: []")
    # Of the move the watch of the file that was moved says nothing.
    watch.wait(0.0)
    later = monotonic() + daemon.RENEW_SECONDS
    monkeypatch.setattr(daemon, "monotonic", lambda: later)
    watch.wait(0.0)
    written(file)
    assert ended(watch)
    added: list[object] = []
    assert watch._inotify is not None
    monkeypatch.setattr(watch._inotify, "add_watch", lambda *arguments: added.append(arguments))
    for _ in range(3):
        watch.wait(0.0)
    assert len(set(added)) == len(added) > 0, "once, after the change"


def test_file_that_is_mounted_alone(tmp_path: Path, file: Path) -> None:
    """G-1: the directory hears nothing of a change by another path, as with a bind mount in a container."""
    alone = tmp_path / "alone.yaml"
    alone.hardlink_to(file)
    watch = FileWatch(lambda: [str(alone)], logging.getLogger("test.watch"))
    watch.open()
    try:
        watch.wait(0.0)
        written(file)
        assert ended(watch)
    finally:
        watch.close()


def test_wake(watch: FileWatch) -> None:
    waker = threading.Thread(target=watch.wake)
    waker.start()
    assert ended(watch)
    waker.join()
    watch.wake()
    assert ended(watch)
    watch.close()
    watch.wake()


def test_kernel_that_does_not_tell(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G-1: who waits looks by itself then."""

    def refuse() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(daemon, "INotify", refuse)
    caplog.set_level("INFO")
    watch = FileWatch(lambda: [str(file)], logging.getLogger("test.watch"))
    watch.open()
    try:
        assert "does not report changed files ([Errno 24] Too many open files)" in caplog.text
        waits: list[float] = []

        class Poll:
            def poll(self, milliseconds: float) -> list[tuple[int, int]]:
                waits.append(milliseconds)
                return []

        monkeypatch.setattr(watch, "_poll", Poll())
        watch.wait(FOREVER)
        watch.wait(0.1)
        assert waits == [LOOK_SECONDS * 1000, 0.1 * 1000]
    finally:
        watch.close()
