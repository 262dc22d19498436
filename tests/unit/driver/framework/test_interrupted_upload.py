# SPDX-License-Identifier: Apache-2.0
"""What the next upload of a build goes on with."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from nodepool.builder.image_files import ImageFiles
from nodepool.driver.framework.images import InterruptedUpload

BUILD = "b" * 32


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / f"fedora-{BUILD}.raw"
    path.write_bytes(b"image")
    return path


def test_it_is_kept_for_a_provider(image: Path) -> None:
    state = InterruptedUpload(image, "north")
    assert state.read() is None
    state.write({"address": "first"})
    state.write({"address": "second"})
    assert InterruptedUpload(image, "north").read() == {"address": "second"}
    assert InterruptedUpload(image, "south").read() is None
    state.remove()
    state.remove()
    assert InterruptedUpload(image, "north").read() is None
    assert os.listdir(image.parent) == [image.name]


def test_nobody_else_may_read_it(image: Path) -> None:
    """Who has the address may write to the upload."""
    state = InterruptedUpload(image, "north")
    state.write({"address": "secret"})
    assert state.path.stat().st_mode & 0o777 == 0o600


def test_it_is_of_one_file(image: Path) -> None:
    """Another file of the name is sent from its beginning."""
    state = InterruptedUpload(image, "north")
    state.write({"address": "first"})
    image.write_bytes(b"other")
    os.utime(image, ns=(1, 1))
    assert state.read() is None


@pytest.mark.parametrize("text", ["", "[]", '"text"', "{", json.dumps({"address": "x"})])
def test_a_file_that_is_none(image: Path, text: str) -> None:
    state = InterruptedUpload(image, "north")
    state.path.write_text(text, encoding="utf-8")
    assert state.read() is None
    state.write({"address": "first"})
    assert state.read() == {"address": "first"}


def test_a_directory_that_cannot_be_written(image: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The upload goes on; only an interruption costs more."""
    state = InterruptedUpload(image.parent / "gone" / image.name, "north")
    with caplog.at_level(logging.WARNING):
        state.write({"address": "first"})
    assert "an upload that is interrupted will begin anew" in caplog.text
    assert state.read() is None
    state.remove()


def test_the_builder_removes_it_with_the_image(image: Path) -> None:
    """R-9: it is a file of the build, of the format of its image, and no image."""
    InterruptedUpload(image, "pro.vider").write({"address": "first"})
    files = ImageFiles(image.parent)
    assert files.formats("fedora", BUILD) == {"raw"}
    files.remove("fedora", BUILD, ["qcow2"])
    assert len(os.listdir(image.parent)) == 2
    files.remove("fedora", BUILD, ["raw"])
    assert os.listdir(image.parent) == []
