# SPDX-License-Identifier: Apache-2.0
"""Mounts and loop devices of a build. Those that need root are real; without root they are skipped."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.builder import dib


def may_mount(directory: Path) -> bool:
    """Root may not mount in every container."""
    if os.geteuid() != 0:
        return False
    done = subprocess.run(["mount", "-t", "tmpfs", "none", str(directory)], capture_output=True, check=False)
    if done.returncode == 0:
        subprocess.run(["umount", str(directory)], check=True)
    return done.returncode == 0


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A directory in which the test may mount; nothing stays mounted."""
    directory = tmp_path / "work"
    directory.mkdir()
    if not may_mount(directory):
        pytest.skip("only root may mount")
    yield directory
    for point in dib.mount_points(directory):
        subprocess.run(["umount", "--lazy", point], check=True)


def mount(target: Path, *options: str) -> None:
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", *options, str(target)], check=True)


TABLE = rb"""22 1 0:21 / /proc rw - proc proc rw
30 1 8:1 / /tmp/work/build rw - ext4 /dev/sda1 rw
31 30 0:5 / /tmp/work/build/dev\040and\134more rw - devtmpfs udev rw
32 1 8:1 / /tmp/workshop rw - ext4 /dev/sda1 rw
33 1 8:1 / /tmp/work rw - ext4 /dev/sda1 rw
"""


def test_mount_points() -> None:
    """The last one first, because it may stand on another; names that only begin alike are others."""
    found = dib.mount_points(Path("/tmp/work"), TABLE)
    assert found == ["/tmp/work", "/tmp/work/build/dev and\\more", "/tmp/work/build"]


def test_loop_devices(tmp_path: Path) -> None:
    """By their files, also those that were removed while the device was in use, or whose mount namespace is gone."""
    files = (
        "/tmp/work/image.raw",
        "/tmp/work/a (deleted)",
        "/tmp/other",
        "/work/image0.raw",
        "/workshop/x",
    )
    for number, file in enumerate(files):
        name = f"loop{number}"
        (tmp_path / name / "loop").mkdir(parents=True)
        (tmp_path / name / "loop" / "backing_file").write_text(f"{file}\n")
    (tmp_path / "loop8").mkdir()
    assert dib.loop_devices(Path("/tmp/work"), tmp_path) == ["loop0", "loop1", "loop3"]


def test_all_is_unmounted_and_removed(work: Path, tmp_path: Path) -> None:
    """Mounts on mounts; what was bound into the work directory is not touched."""
    host = tmp_path / "host"
    host.mkdir()
    (host / "kept").write_text("x")
    mount(work / "build", "-t", "tmpfs", "none")
    mount(work / "build" / "dev pts", "--bind", str(host))
    assert dib.remove(work) == []
    assert not work.exists()
    assert (host / "kept").exists()


def test_mount_in_use(work: Path) -> None:
    """It is taken out of the tree all the same."""
    mount(work / "build", "-t", "tmpfs", "none")
    with (work / "build" / "open").open("w"):
        assert dib.remove(work) == []
    assert not work.exists()


def test_nothing_is_removed_below_a_mount_that_stays(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is mounted there may be the host's."""
    host = tmp_path / "host"
    host.mkdir()
    (host / "kept").write_text("x")
    mount(work / "bound", "--bind", str(host))
    monkeypatch.setattr(dib, "run_as_root", lambda *command, **options: "not allowed")
    (problem,) = dib.remove(work)
    assert problem == f"{work}/bound is still mounted: not allowed"
    assert (host / "kept").exists()


def test_directory_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without files of root no sudo is needed."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(dib, "run_as_root", lambda *command, **options: "no sudo here")
    (tmp_path / "work" / "inner").mkdir(parents=True)
    assert dib.remove(tmp_path / "work") == []
    assert not (tmp_path / "work").exists()


def test_nothing_to_remove(tmp_path: Path) -> None:
    """Gone already, or a link to somewhere else, which stays as it is."""
    assert dib.remove(tmp_path / "gone") == []
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    assert dib.remove(tmp_path / "link") == []
    assert (tmp_path / "kept").exists()


def test_what_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(dib, "run_as_root", lambda *command, **options: "read-only")
    assert dib.remove(tmp_path / "work") == [f"{tmp_path}/work: read-only"]
