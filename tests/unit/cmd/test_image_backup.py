# SPDX-License-Identifier: Apache-2.0
"""The file of ``nodepool export-image-data``."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from nodepool.cmd.app import CommandError
from nodepool.cmd.image_backup import read_file, write_file


def test_only_the_owner_reads_it(tmp_path: Path) -> None:
    """reference/commands 2: mode 0600; also of a file that was there."""
    path = tmp_path / "export"
    for before in (None, 0o644):
        if before is not None:
            path.chmod(before)
        write_file(str(path), "text")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_of_a_longer_file_is_left(tmp_path: Path) -> None:
    path = tmp_path / "export"
    path.write_text("x" * 100, encoding="utf-8")
    write_file(str(path), "{}")
    assert path.read_text(encoding="utf-8") == "{}"
    assert [file.name for file in tmp_path.iterdir()] == ["export"]


def test_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "export")
    write_file(str(tmp_path / "link"), "{}")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "export").read_text(encoding="utf-8") == "{}"


def test_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=write_file, args=(str(path), "{}"))
    writer.start()
    assert path.read_text(encoding="utf-8") == "{}"
    writer.join()


def test_old_file_stays_when_the_new_one_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "export"
    path.write_text("old", encoding="utf-8")

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_file(str(path), "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["export"]


@pytest.mark.parametrize("text", [b"", b"root:x:0", b"[]", b"\xff", b"[" * 100000])
def test_file_that_is_no_export(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "export"
    path.write_bytes(text)
    with pytest.raises(CommandError, match=str(path)):
        read_file(str(path))
