# SPDX-License-Identifier: Apache-2.0
"""One builder process in one images-dir (rule B-10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodepool.builder.dib import OwnDirectory
from nodepool.builder.image_files import ImageFiles
from nodepool.exceptions import ConfigError


def test_one_at_a_time(tmp_path: Path) -> None:
    """The directory is made; who has it keeps others out, until it is given back."""
    files = ImageFiles(tmp_path / "images")
    first, second = OwnDirectory(files), OwnDirectory(files)
    first.take()
    assert files.builder_id()
    with pytest.raises(ConfigError, match=f"images-dir {files.directory}: another nodepool-builder"):
        second.take()
    first.give_back()
    first.give_back()
    second.take()
    second.give_back()


@pytest.mark.parametrize(("path", "reason"), [("file", "Not a directory"), ("file/below", "Not a directory")])
def test_what_is_no_directory(tmp_path: Path, path: str, reason: str) -> None:
    """The operator reads which setting is meant, and why."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=f"images-dir {tmp_path / path} cannot be used: {reason}"):
        OwnDirectory(ImageFiles(tmp_path / path)).take()
