# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.keyscan`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.driver.framework.keyscan import KexInitReader


def name_list(*names: str) -> bytes:
    text = ",".join(names).encode()
    return len(text).to_bytes(4) + text


def kexinit(*algorithms: str) -> bytes:
    """RFC 4253 7.1, with a packet around it."""
    payload = b"\x14" + bytes(16) + name_list("curve25519-sha256") + name_list(*algorithms) + name_list("aes128-ctr")
    padding = 4
    return (len(payload) + padding + 1).to_bytes(4) + bytes([padding]) + payload + bytes(padding)


STREAM = b"SSH-2.0-test\r\n" + kexinit("ssh-ed25519", "rsa-sha2-512")


def read(*chunks: bytes) -> tuple[str, ...]:
    reader = KexInitReader()
    for chunk in chunks:
        reader.feed(chunk)
    return reader.key_algorithms


@pytest.mark.parametrize("size", [1, 2, 7, 100, len(STREAM)])
def test_reads_the_offer_in_any_pieces(size: int) -> None:
    """K-2: the key types that the host knows."""
    chunks = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert read(*chunks) == ("ssh-ed25519", "rsa-sha2-512")


def test_text_before_the_identification_is_skipped() -> None:
    """K-2: RFC 4253 4.2 allows lines before the identification."""
    assert read(b"welcome\r\nno SSH- here\r\n" + STREAM) == ("ssh-ed25519", "rsa-sha2-512")


def test_what_follows_does_not_change_the_offer() -> None:
    """K-2: only the first packet counts."""
    assert read(STREAM, kexinit("ssh-rsa"), b"\x00" * 1000) == ("ssh-ed25519", "rsa-sha2-512")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SSH-2.0-x\r\n",
        b"SSH-2.0-x\r\n\x00\x00\x00\x0c\x04\x01bye",
        b"SSH-2.0-x\r\n\xff\xff\xff\xff\x04\x14",
        b"SSH-2.0-x\r\n\x00\x00\x00\x02\xff\x14\x00",
        b"no newline " * 20000,
    ],
)
def test_streams_that_make_no_sense_give_nothing(data: bytes) -> None:
    """K-2: a host may send anything."""
    assert read(data) == ()


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_never_raises(chunks: list[bytes]) -> None:
    """K-2: a host may send anything, in any pieces."""
    read(b"SSH-2.0-x\n", *chunks)
    read(*chunks)
