# SPDX-License-Identifier: Apache-2.0
"""The program in the place of diskimage-builder."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from nodepool.builder import fake_build
from nodepool.builder.build_command import BuildJob, command_line
from nodepool.builder.build_progress import step_of
from nodepool.builder.image_files import ImageFiles

BUILD = "0123456789abcdef0123456789abcdef"


def arguments(directory: Path) -> list[str]:
    """Those that a builder passes to diskimage-builder."""
    files = ImageFiles(directory)
    job = BuildJob("debian", BUILD, ["qcow2", "raw"], files.base("debian", BUILD), elements=["vm", "debian-minimal"])
    return command_line(job, prefix=[])


def test_it_takes_the_same_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B-5: it makes all formats with their checksums, and says what it does in the same words."""
    assert fake_build.main(arguments(tmp_path)) == 0
    files = ImageFiles(tmp_path)
    assert files.formats("debian", BUILD) == {"qcow2", "raw"}
    for name in ("qcow2", "raw"):
        data = files.path("debian", BUILD, name).read_bytes()
        assert len(data) == fake_build.DEFAULT_BYTES
        told = files.checksums("debian", BUILD, name)
        assert told.sha256 == hashlib.sha256(data).hexdigest()
        assert told.md5 == hashlib.md5(data).hexdigest()
    steps = [step for line in capsys.readouterr().out.splitlines() if (step := step_of(line))]
    assert steps[:6] == list(fake_build.STEPS)
    assert steps[-1] == "completed"
    assert (tmp_path / f"debian-{BUILD}.d" / "dib-manifest").exists()


def test_knobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAKE_BUILD_BYTES, and another content each time."""
    monkeypatch.setenv("FAKE_BUILD_BYTES", "1048577")
    path = ImageFiles(tmp_path).path("debian", BUILD, "raw")
    fake_build.main(arguments(tmp_path))
    first = path.read_bytes()
    fake_build.main(arguments(tmp_path))
    assert len(first) == 1048577
    assert path.read_bytes() != first


def test_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_BUILD_STATUS", "5")
    assert fake_build.main(arguments(tmp_path)) == 5
    assert list(tmp_path.iterdir()) == []
