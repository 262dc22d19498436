# SPDX-License-Identifier: Apache-2.0
"""nodepool.cmd.daemon: directories of log and pid file (reference/commands 3)."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from nodepool.cmd.daemon import make_directory_of, remedy


def test_the_last_directory_is_made(tmp_path: Path) -> None:
    file = tmp_path / "log" / "nodepool.log"
    make_directory_of(file, 0o750)
    assert file.parent.stat().st_mode & 0o777 == 0o750


def test_a_directory_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    before = tmp_path.stat().st_mode
    make_directory_of(tmp_path / "nodepool.log", 0o777)
    assert tmp_path.stat().st_mode == before


def test_nothing_above_it_is_made(tmp_path: Path) -> None:
    """A wrong path must not become a tree of directories."""
    make_directory_of(tmp_path / "a" / "b" / "nodepool.log", 0o750)
    assert list(tmp_path.iterdir()) == []


def test_remedy_is_a_command_or_names_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_number: int) -> None:
        raise KeyError

    monkeypatch.setattr("os.geteuid", lambda: 10001)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert remedy(tmp_path / "a" / "f") == f"make the directory: install -d -o 10001 {tmp_path}/a"
    assert remedy(tmp_path / "f") == f"let the user 10001 write to {tmp_path}"
