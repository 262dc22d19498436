# SPDX-License-Identifier: Apache-2.0
"""Logs of builds."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from nodepool.builder import image_files
from nodepool.builder.image_files import BuildLog, all_logs, log_path, logs_of, open_log, prune


def write_logs(directory: Path, image: str, count: int) -> list[str]:
    """Logs from the oldest to the newest."""
    names = []
    for number in range(count):
        path = log_path(directory, image, uuid.UUID(int=number).hex)
        path.write_text("x")
        os.utime(path, (number, number))
        names.append(path.name)
    return names


@pytest.mark.parametrize(
    ("retention", "left"),
    [(7, 5), (5, 5), (3, 3), (1, 1), (0, 1), (-1, 5)],
)
def test_old_logs_go(tmp_path: Path, retention: int, left: int) -> None:
    """B-7: so many are left beside the log of the build that begins, as in 11.0.0; the newest ones."""
    names = write_logs(tmp_path, "debian", 5)
    prune(tmp_path, "debian", retention)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[5 - left :])


def test_logs_of_other_images_stay(tmp_path: Path) -> None:
    """B-7: the name is compared as a whole."""
    kept = write_logs(tmp_path, "debian", 3)[-1]
    others = write_logs(tmp_path, "debian-12", 3)
    (tmp_path / "debian-notes.log").write_text("x")
    assert [path.name for path in logs_of(tmp_path, "debian-12")] == others[::-1]
    prune(tmp_path, "debian", 1)
    assert {path.name for path in tmp_path.iterdir()} == {*others, kept, "debian-notes.log"}


def test_no_directory_yet(tmp_path: Path) -> None:
    prune(tmp_path / "builds", "debian", 1)
    assert logs_of(tmp_path / "builds", "debian") == []


def test_log_that_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_logs(tmp_path, "debian", 2)

    def unlink(path: Path, missing_ok: bool) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(Path, "unlink", unlink)
    prune(tmp_path, "debian", 1)
    assert "read-only" in caplog.text


def test_directory_is_made(tmp_path: Path) -> None:
    """B-15: the log directory is made; what was written is there at once."""
    log = BuildLog(log_path(tmp_path / "a" / "b", "debian", "0123"))
    log.write(b"\xff\n")
    log.write_line("done")
    assert log.path.read_bytes() == b"\xff\ndone\n"
    log.close()


def test_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, and the build goes on."""
    log = BuildLog(Path("/dev/full"))
    log.write_line("a")
    log.write_line("b")
    log.close()
    assert [record.name for record in caplog.records] == [image_files.log.name]
    assert "No space left" in caplog.text


def test_all_logs_are_found_the_newest_first(tmp_path: Path) -> None:
    first, second = write_logs(tmp_path, "debian", 2)
    (tmp_path / "notes.log").write_text("x")
    (tmp_path / f"link-{'0' * 32}.log").symlink_to("/etc/passwd")
    (tmp_path / f"directory-{'0' * 32}.log").mkdir()
    assert [f"{found.name}.log" for found in all_logs(tmp_path)] == [second, first]
    assert [(found.modified, found.size) for found in all_logs(tmp_path)] == [(1.0, 1), (0.0, 1)]
    assert all_logs(tmp_path / "nothing") == []


def test_log_is_opened(tmp_path: Path) -> None:
    (name,) = write_logs(tmp_path, "debian", 1)
    with open_log(tmp_path, name.removesuffix(".log")) as file:
        assert file.read() == b"x"


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "notes", "/etc/passwd", f"../logs/debian-{'0' * 32}", f"a/b-{'0' * 32}"),
        *(f"debian-{'0' * 32}\0", f"link-{'0' * 32}", f"directory-{'0' * 32}", f"pipe-{'0' * 32}", f"gone-{'0' * 32}"),
    ],
)
def test_nothing_else_is_opened(tmp_path: Path, name: str) -> None:
    """WP-49"""
    logs = tmp_path / "logs"
    logs.mkdir()
    write_logs(logs, "debian", 1)
    (logs / "notes.log").write_text("x")
    (logs / f"link-{'0' * 32}.log").symlink_to(logs / "notes.log")
    (logs / f"directory-{'0' * 32}.log").mkdir()
    os.mkfifo(logs / f"pipe-{'0' * 32}.log")
    with pytest.raises(OSError):
        open_log(logs, name)


def test_directory_with_the_name_of_a_log(tmp_path: Path) -> None:
    """Who asks for it again and again uses up nothing."""
    path = log_path(tmp_path, "debian", uuid.UUID(int=1).hex)
    path.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            open_log(tmp_path, path.name.removesuffix(".log"))
    assert len(os.listdir("/proc/self/fd")) == before
