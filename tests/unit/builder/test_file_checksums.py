# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.image_files: told by files beside the image, else computed once."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from nodepool.builder import image_files
from nodepool.builder.image_files import Checksums, FileChecksums, ImageFiles
from tests.support.wait import DEADLINE_SECONDS, wait_for

BUILD = "0" * 32
DATA = b"0123456789"
COMPUTED = Checksums(hashlib.md5(DATA).hexdigest(), hashlib.sha256(DATA).hexdigest())


@pytest.fixture
def files(tmp_path: Path) -> ImageFiles:
    files = ImageFiles(tmp_path)
    files.path("fedora", BUILD, "raw").write_bytes(DATA)
    return files


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that were read as a whole."""
    seen: list[Path] = []
    compute = image_files._compute

    def counted(path: Path) -> Checksums:
        seen.append(path)
        return compute(path)

    monkeypatch.setattr(image_files, "_compute", counted)
    return seen


def test_told(files: ImageFiles, reads: list[Path]) -> None:
    """U-5: those of diskimage-builder are taken; the image is not read."""
    path = files.path("fedora", BUILD, "raw")
    path.with_name(f"{path.name}.md5").write_text(f"{'a' * 32}  image\n")
    path.with_name(f"{path.name}.sha256").write_text("b" * 64)
    assert FileChecksums(files).of("fedora", BUILD, "raw") == Checksums("a" * 32, "b" * 64)
    assert reads == []


def test_computed_once(files: ImageFiles, reads: list[Path]) -> None:
    """U-5: another file is another one, also under the same name."""
    checksums = FileChecksums(files)
    assert [checksums.of("fedora", BUILD, "raw") for _ in range(3)] == [COMPUTED] * 3
    path = files.path("fedora", BUILD, "raw")
    assert reads == [path]
    path.write_bytes(DATA + b"x")
    assert checksums.of("fedora", BUILD, "raw") != COMPUTED
    assert reads == [path, path]


def test_one_is_missing(files: ImageFiles) -> None:
    path = files.path("fedora", BUILD, "raw")
    path.with_name(f"{path.name}.md5").write_text("a" * 32)
    assert FileChecksums(files).of("fedora", BUILD, "raw") == Checksums("a" * 32, COMPUTED.sha256)


def test_read_once_for_all_who_wait(files: ImageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads to several clouds begin at once: one reads, the others wait for it."""
    begun, go_on = threading.Event(), threading.Event()
    reads: list[Path] = []

    def slow(path: Path) -> Checksums:
        reads.append(path)
        begun.set()
        assert go_on.wait(DEADLINE_SECONDS)
        return COMPUTED

    monkeypatch.setattr(image_files, "_compute", slow)
    checksums = FileChecksums(files)
    found: list[Checksums] = []
    threads = [
        threading.Thread(target=lambda: found.append(checksums.of("fedora", BUILD, "raw")), name=f"upload-{n}")
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    assert begun.wait(DEADLINE_SECONDS)
    wait_for("all have asked", lambda: all(thread.is_alive() for thread in threads))
    go_on.set()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert found == [COMPUTED] * 3
    assert len(reads) == 1


def test_error_is_not_kept(files: ImageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    checksums = FileChecksums(files)

    def broken(path: Path) -> Checksums:
        raise OSError("disk")

    with monkeypatch.context() as patch:
        patch.setattr(image_files, "_compute", broken)
        with pytest.raises(OSError, match="disk"):
            checksums.of("fedora", BUILD, "raw")
    assert checksums.of("fedora", BUILD, "raw") == COMPUTED
    with pytest.raises(FileNotFoundError):
        checksums.of("fedora", "1" * 32, "raw")


def test_memory_has_a_bound(files: ImageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "_MAX_KNOWN", 2)
    checksums = FileChecksums(files)
    for number in range(5):
        files.path("fedora", BUILD, f"raw{number}").write_bytes(DATA)
        checksums.of("fedora", BUILD, f"raw{number}")
    assert len(checksums._computed) == 2
