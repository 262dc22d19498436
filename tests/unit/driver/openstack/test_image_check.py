# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.images` (rules U-14, O-16)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.openstack.images import Content, wrong
from nodepool.driver.openstack.views import Image

DATA = b"x" * 1000
QCOW2 = b"QFI\xfb" + bytes(20) + (5_000_000).to_bytes(8) + bytes(968)
MD5, SHA256, SHA512 = (hashlib.new(name, DATA).hexdigest() for name in ("md5", "sha256", "sha512"))
GIVEN: dict[str, str | None] = {"md5": MD5, "sha256": SHA256}


def judge(tmp_path: Path, told: dict[str, Any], given: dict[str, str | None], data: bytes, image_format: str) -> Any:
    file = tmp_path / "file"
    file.write_bytes(data)
    with file.open("rb") as open_file:
        return wrong(Image.of({"id": "i1", **told}), image_format, Content(open_file), given)


@pytest.mark.parametrize(
    ("told", "given", "text"),
    [
        # As it was sent.
        ({"size": 1000, "checksum": MD5}, GIVEN, None),
        ({"size": 1000, "checksum": MD5.upper()}, GIVEN, None),
        ({"size": 1000, "os_hash_algo": "sha256", "os_hash_value": SHA256}, GIVEN, None),
        ({"size": 1000, "os_hash_algo": "SHA-512", "os_hash_value": SHA512}, GIVEN, None),
        ({"size": 1000, "checksum": MD5}, {"md5": None, "sha256": None}, None),
        # The cloud tells nothing, or nothing that makes sense.
        ({}, GIVEN, None),
        ({"size": True, "checksum": 7, "os_hash_algo": None}, GIVEN, None),
        ({"size": 1000, "os_hash_algo": "rot13", "os_hash_value": "qrs"}, GIVEN, None),
        # Another one.
        ({"size": 999, "checksum": MD5}, GIVEN, "999 of 1000 bytes are in the cloud"),
        ({"size": 0}, GIVEN, "0 of 1000 bytes are in the cloud"),
        ({"size": 1000, "checksum": "0" * 32}, GIVEN, f"the md5 of the file is {MD5}"),
        ({"size": 1000, "os_hash_algo": "sha256", "os_hash_value": "0"}, GIVEN, f"the sha256 of the file is {SHA256}"),
        # Nothing is known of the file but what is in it.
        ({"size": 1000, "checksum": "0" * 32}, {}, f"the md5 of the file is {MD5}"),
        ({"size": 1000, "os_hash_algo": "sha512", "os_hash_value": "0"}, GIVEN, f"the sha512 of the file is {SHA512}"),
    ],
)
def test_our_bytes(tmp_path: Path, told: dict[str, Any], given: dict[str, str | None], text: str | None) -> None:
    """U-14: size and checksum are compared with what the cloud says it has."""
    found = judge(tmp_path, {"disk_format": "raw", **told}, given, DATA, "raw")
    assert found is None if text is None else str(found).startswith(text), found


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"disk_format": "raw", "size": 5_000_000, "checksum": "0"}, None),
        ({"disk_format": "raw", "size": 5_000_192}, None),
        ({"disk_format": "vmdk", "size": 7}, None),
        ({"disk_format": "raw", "size": 4_000_000}, "the disk in it has 5000000 bytes, but the raw image"),
        ({"disk_format": "raw", "size": 0}, "format raw of it, but one without content"),
        ({"disk_format": "raw"}, "format raw of it, but one without content"),
        ({"disk_format": "qcow2", "size": 7}, "7 of 1000 bytes are in the cloud"),
    ],
)
def test_converted(tmp_path: Path, told: dict[str, Any], text: str | None) -> None:
    """O-16: of an image of another format the cloud promises a content, and of a raw one the size of the disk."""
    found = judge(tmp_path, told, GIVEN, QCOW2, "qcow2")
    assert found is None if text is None else text in str(found), found


def test_no_qcow2(tmp_path: Path) -> None:
    """Whatever is in the file, nobody fails over it."""
    assert judge(tmp_path, {"disk_format": "raw", "size": 3}, {}, b"short", "qcow2") is None
