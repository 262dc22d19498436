# SPDX-License-Identifier: Apache-2.0
"""Is a file a disk that Azure takes? A fixed VHD of whole MiB: the disk, and a footer of 512 bytes.

The format is that of the Virtual Hard Disk Image Format Specification; numbers are big-endian.
"""

from __future__ import annotations

import os
import struct
from typing import Final

FOOTER_BYTES: Final = 512
MIB: Final = 1024 * 1024
_COOKIE: Final = b"conectix"
_FIXED: Final = 2
#: Original and current size, geometry, type, checksum: from byte 40 on.
_FIELDS: Final = struct.Struct(">QQIII")
_FIELDS_AT: Final = 40
_CHECKSUM_AT: Final = 64
#: The builder makes a disk that Azure takes.
REMEDY: Final = "build the image again"


def problem_of(path: str) -> str | None:
    """What is wrong with a file; None = Azure takes it. Blocks. Raises OSError."""
    size = os.stat(path).st_size
    with open(path, "rb") as file:
        file.seek(max(0, size - FOOTER_BYTES))
        footer = file.read(FOOTER_BYTES)
    return footer_problem(footer, size)


def footer_problem(footer: bytes, size: int) -> str | None:
    """The same of a footer. Pure.

    :param size: of the file, in bytes.
    """
    if len(footer) < FOOTER_BYTES or not footer.startswith(_COOKIE):
        return f"it is no VHD: it has no footer at its end; {REMEDY}"
    _, current, _, kind, checksum = _FIELDS.unpack_from(footer, _FIELDS_AT)
    if kind != _FIXED:
        return f"it is a VHD that grows, not a fixed one; {REMEDY}"
    if checksum != checksum_of(footer):
        return f"the footer of the VHD is damaged: its checksum is another one; {REMEDY}"
    if current != size - FOOTER_BYTES:
        return f"the VHD is cut off: its footer says {current} bytes, the file has {size - FOOTER_BYTES}; {REMEDY}"
    if current % MIB:
        return f"the size of the disk, {current} bytes, is no number of whole MiB; {REMEDY}"
    return None


def checksum_of(footer: bytes) -> int:
    """The sum of all bytes but the checksum itself, inverted."""
    rest = footer[:_CHECKSUM_AT] + footer[_CHECKSUM_AT + 4 : FOOTER_BYTES]
    return ~sum(rest) & 0xFFFFFFFF


def fixed_footer(size: int) -> bytes:
    """The footer of a fixed VHD, for tests and tools.

    :param size: of the disk, in bytes.
    """
    head = struct.pack(">8sIIQI4sI4s", _COOKIE, 2, 0x10000, 0xFFFFFFFFFFFFFFFF, 0, b"np  ", 0x10000, b"Wi2k")
    footer = head + _FIELDS.pack(size, size, 0, _FIXED, 0)
    footer += bytes(FOOTER_BYTES - len(footer))
    return footer[:_CHECKSUM_AT] + struct.pack(">I", checksum_of(footer)) + footer[_CHECKSUM_AT + 4 :]
