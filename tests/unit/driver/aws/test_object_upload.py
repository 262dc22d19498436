# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.image_store` (AW-17); uploads to a region are in ``test_aws_uploads``."""

from __future__ import annotations

import hashlib
from pathlib import Path

from nodepool.driver.aws.image_store import PART_BYTES, S3Object, part_bytes, read_file
from tests.unit.driver.aws.image_support import ImageRig

DATA = b"aaaabbbbcc"


def test_checksums_of_a_file(tmp_path: Path) -> None:
    """As S3 makes them of an object in parts: over those of the parts, with their number after it."""
    rig = ImageRig(tmp_path)
    job = rig.job(DATA)
    content = read_file(job, 4, rig.wait(job))
    assert (content.size, content.sha256) == (len(DATA), hashlib.sha256(DATA).hexdigest())
    # zlib.crc32(b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts)), as Base64.
    assert content.is_in(S3Object("key", len(DATA), "encrypted", "e3Oo6w==-3"))
    assert not content.is_in(S3Object("key", len(DATA), "encrypted", "e3Oo6Q==-3"))
    tags = b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in (b"aaaa", b"bbbb", b"cc"))
    tag = f"{hashlib.md5(tags, usedforsecurity=False).hexdigest()}-3"
    assert content.is_in(S3Object("key", len(DATA), tag, ""))
    assert not content.is_in(S3Object("key", len(DATA) + 1, tag, ""))
    assert not content.is_in(S3Object("key", len(DATA), "encrypted", ""))


def test_size_of_parts() -> None:
    """S3 takes 10,000 parts at most."""
    assert part_bytes(1) == PART_BYTES
    size = 5 * 2**40
    assert -(-size // part_bytes(size)) <= 10_000
