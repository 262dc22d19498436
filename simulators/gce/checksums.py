# SPDX-License-Identifier: Apache-2.0
"""CRC32C (Castagnoli), which Cloud Storage has for each object. RFC 3720, B.4. Pure."""

from __future__ import annotations

import base64
import hashlib
from functools import cache

_POLYNOMIAL = 0x82F63B78


@cache
def _table() -> tuple[int, ...]:
    entries = []
    for number in range(256):
        value = number
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        entries.append(value)
    return tuple(entries)


def crc32c(data: bytes) -> str:
    """As Cloud Storage writes it: base64 of four bytes, the highest first."""
    table, value = _table(), 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ table[(value ^ byte) & 0xFF]
    return base64.b64encode((value ^ 0xFFFFFFFF).to_bytes(4, "big")).decode()


def md5(data: bytes) -> str:
    """The same of the MD5."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
