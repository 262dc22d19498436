# SPDX-License-Identifier: Apache-2.0
"""Fixed VHDs, as Azure takes them: a disk of whole MiB, and a footer of 512 bytes.

The format is that of the Virtual Hard Disk Image Format Specification; numbers are big-endian. From byte 40 on stand
original and current size, geometry, type and checksum.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

FOOTER_BYTES: Final = 512


def fixed_footer(size: int) -> bytes:
    """The footer of a fixed VHD.

    :param size: of the disk, in bytes.
    """
    head = struct.pack(">8sIIQI4sI4s", b"conectix", 2, 0x10000, 0xFFFFFFFFFFFFFFFF, 0, b"np  ", 0x10000, b"Wi2k")
    footer = head + struct.pack(">QQIII", size, size, 0, 2, 0)
    footer += bytes(FOOTER_BYTES - len(footer))
    return footer[:64] + struct.pack(">I", _checksum(footer)) + footer[68:]


def is_fixed(path: Path) -> bool:
    """Is a file a VHD that Azure takes?"""
    footer, size = path.read_bytes()[-FOOTER_BYTES:], path.stat().st_size - FOOTER_BYTES
    _, current, _, kind, checksum = struct.unpack_from(">QQIII", footer, 40)
    form = footer[:8], current, kind, checksum
    return form == (b"conectix", size, 2, _checksum(footer)) and not size % 1024**2


def _checksum(footer: bytes) -> int:
    """The sum of all bytes but the checksum itself, inverted."""
    return ~sum(footer[:64] + footer[68:]) & 0xFFFFFFFF
