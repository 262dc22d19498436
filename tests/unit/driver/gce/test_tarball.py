# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.images`: what Python's own modules make of the archive."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from nodepool.driver.gce.images import BLOCK_BYTES, disk_size, tar_gz

UNIT = 4 * BLOCK_BYTES
ZEROS = bytes(BLOCK_BYTES)
NOISE = bytes(range(256)) * (BLOCK_BYTES // 256)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        NOISE,
        ZEROS,
        NOISE + ZEROS + ZEROS + NOISE,
        ZEROS + NOISE + ZEROS,
        NOISE * 4,
        NOISE + b"\0" * 1000 + b"end",
    ],
    ids=["empty", "short", "noise", "zeros", "holes", "zeros first", "whole", "odd"],
)
def test_archive(tmp_path: Path, content: bytes) -> None:
    """One file, ``disk.raw``, filled up with zeros; the checksum of gzip is right."""
    path = tmp_path / "image.raw"
    path.write_bytes(content)
    told: list[int] = []
    with path.open("rb") as file:
        packed = b"".join(tar_gz(file, UNIT, told.append))
    unpacked = gzip.decompress(packed)
    assert len(unpacked) % tarfile.RECORDSIZE == 0
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
        (member,) = archive.getmembers()
        taken = archive.extractfile(member)
        assert taken is not None
        assert member.name == "disk.raw"
        assert member.size == disk_size(len(content), UNIT)
        assert taken.read() == content + bytes(member.size - len(content))
    assert told[-1:] == ([len(content)] if content else [])


def test_zeros_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "image.raw"
    path.write_bytes(ZEROS * 16)
    with path.open("rb") as file:
        assert sum(map(len, tar_gz(file, UNIT))) < BLOCK_BYTES / 10


def test_size() -> None:
    gib = 1024**3
    assert [disk_size(size) for size in (0, 1, gib, gib + 1)] == [gib, gib, gib, 2 * gib]


def test_file_that_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "image.raw"
    path.write_bytes(NOISE * 3)
    with path.open("rb") as file:
        pieces = tar_gz(file, UNIT)
        next(pieces)
        path.write_bytes(b"")
        with pytest.raises(OSError, match="changed its size"):
            list(pieces)
