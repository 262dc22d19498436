# SPDX-License-Identifier: Apache-2.0
"""Fixed VHDs, as Azure takes them."""

from __future__ import annotations

import struct

from nodepool.driver.azure.config import FOOTER_BYTES, checksum_of


def fixed_footer(size: int) -> bytes:
    """The footer of a fixed VHD.

    :param size: of the disk, in bytes.
    """
    head = struct.pack(">8sIIQI4sI4s", b"conectix", 2, 0x10000, 0xFFFFFFFFFFFFFFFF, 0, b"np  ", 0x10000, b"Wi2k")
    footer = head + struct.pack(">QQIII", size, size, 0, 2, 0)
    footer += bytes(FOOTER_BYTES - len(footer))
    return footer[:64] + struct.pack(">I", checksum_of(footer)) + footer[68:]
