# SPDX-License-Identifier: Apache-2.0
"""What the last build tells of the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodepool.builder.build import estimate, lacking_space
from nodepool.builder.image_files import ImageFiles
from nodepool.model import states
from nodepool.model.image import BuildView, ImageBuild, ImageView

GIB = 1 << 30


def view(**extra: Any) -> ImageView:
    """An image whose newest ready build has these keys; there are an older one, and one that failed later."""

    def build(build_id: str, state: str, time: float, **keys: Any) -> BuildView:
        record = ImageBuild.from_dict({"state": state, "state_time": time, **keys}, "debian", build_id)
        return BuildView(build_id, record)

    builds = [
        build("0000000001", states.READY, 1.0, duration=1, size=1),
        build("0000000002", states.READY, 2.0, **extra),
        build("0000000003", states.FAILED, 3.0, duration=3, size=3),
    ]
    return ImageView("debian", builds={build.id: build for build in builds})


@pytest.mark.parametrize(
    ("value", "expected"), [(12.5, 12.5), (0, 0), ("12", None), (True, None), (-1, None), (float("inf"), None)]
)
def test_estimate(value: object, expected: float | None) -> None:
    assert estimate(view(duration=value)) == expected


def test_nothing_is_known() -> None:
    assert estimate(view()) is None
    assert estimate(ImageView("debian")) is None


@pytest.mark.parametrize(("free", "room"), [(6 * GIB, True), (6 * GIB - 1, False), (0, False)])
def test_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, room: bool) -> None:
    """Twice the size of the last build."""
    files = ImageFiles(tmp_path)
    monkeypatch.setattr(files, "free_bytes", lambda: free)
    problem = lacking_space(view(size=3 * GIB), files)
    assert (problem == "") is room
    if not room:
        assert "the last build takes 3.0 GiB" in problem


def test_size_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds of released builders have no size in their records."""
    files = ImageFiles(tmp_path)
    files.path("debian", "0000000002", "raw").write_bytes(b"x" * 100_000)
    monkeypatch.setattr(files, "free_bytes", lambda: 100_000)
    assert lacking_space(view(), files)


def test_first_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows how much it needs."""
    files = ImageFiles(tmp_path)
    monkeypatch.setattr(files, "free_bytes", lambda: 0)
    assert lacking_space(ImageView("debian"), files) == ""
