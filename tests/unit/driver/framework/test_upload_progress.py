# SPDX-License-Identifier: Apache-2.0
"""nodepool.driver.framework.uploads: what a driver says reaches who watches, and nobody else."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from nodepool.driver.framework import uploads
from nodepool.driver.framework.uploads import CountingFile, UploadGivenUp

Reports = list[tuple[int, int]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "image"
    path.write_bytes(b"0123456789")
    return path


def test_nobody_watches() -> None:
    """A driver may be used without a builder."""
    uploads.report(1, 2)
    assert uploads.reporter() is uploads.reporter()


def test_each_thread_has_its_own() -> None:
    """Two uploads at once do not mix; outside of the context nobody watches."""
    seen: Reports = []
    with uploads.watched(lambda done, total: seen.append((done, total))):
        uploads.report(1, 2)
        other = threading.Thread(target=uploads.report, args=(7, 8))
        other.start()
        other.join()
    uploads.report(3, 4)
    assert seen == [(1, 2)]


def test_inner_one_ends() -> None:
    outer: Reports = []
    with uploads.watched(lambda *at: outer.append(at)):
        with uploads.watched(lambda *at: None):
            uploads.report(1, 2)
        uploads.report(2, 2)
    assert outer == [(2, 2)]


def test_is_it_wanted() -> None:
    """Without a builder it is; else the one that watches this thread says so."""
    uploads.check()

    def given_up() -> None:
        raise UploadGivenUp("enough")

    with uploads.watched(lambda *at: None, given_up):
        other = threading.Thread(target=uploads.checker())
        with uploads.watched(lambda *at: None):
            uploads.check()
        with pytest.raises(UploadGivenUp, match="enough"):
            uploads.check()
    uploads.check()
    with pytest.raises(UploadGivenUp, match="enough"):
        other.run()


def test_counting_file(file: Path) -> None:
    """It reports the place after each read; sent again it begins at 0."""
    seen: Reports = []
    with file.open("rb") as opened, uploads.watched(lambda *at: seen.append(at)):
        counting = CountingFile(opened, chunk_bytes=4)
        assert len(counting) == 10
        assert b"".join(counting) == b"0123456789"
        assert seen == [(4, 10), (8, 10), (10, 10), (10, 10)]
        assert list(counting) == [b"0123", b"4567", b"89"]
        seen.clear()
        assert counting.seek(6) == 6
        assert counting.read() == b"6789"
        assert counting.tell() == 10
        assert counting.fileno() == opened.fileno()
    assert seen == [(10, 10)]


def test_counting_file_in_another_thread(file: Path) -> None:
    """It is bound where it is made: a library may read it in a thread of its own."""
    seen: Reports = []
    with file.open("rb") as opened:
        with uploads.watched(lambda *at: seen.append(at)):
            counting = CountingFile(opened)
        reader = threading.Thread(target=counting.read)
        reader.start()
        reader.join()
    assert seen == [(10, 10)]
