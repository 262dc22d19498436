# SPDX-License-Identifier: Apache-2.0
"""The transaction log of ZooKeeper: all writes, with who wrote them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from tests.chaos.transaction_log import MAGIC, Write, read_writes


def text(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def record(number: int, session: int, kind: int, body: bytes) -> bytes:
    """As ZooKeeper writes it: checksum, length, header and body, a mark."""
    content = struct.pack(">qiqqi", session, 7, number, 1_700_000_000_000, kind) + body
    return struct.pack(">qi", zlib.adler32(content), len(content)) + content + b"B"


ACL = struct.pack(">ii", 1, 31) + text(b"world") + text(b"anyone")
CREATE = text(b"/a") + text(b"data") + ACL + struct.pack(">?i", True, 1)
SET = text(b"/a") + text(b"new") + struct.pack(">i", 4)
DELETE = text(b"/b")
PARTS = struct.pack(">i", 2) + struct.pack(">i", 5) + text(SET) + struct.pack(">i", 2) + text(DELETE)
HEADER = MAGIC + struct.pack(">iq", 2, 0)


def write_log(directory: Path, name: str, *records: bytes) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(HEADER + b"".join(records) + bytes(100))


def test_all_kinds(tmp_path: Path) -> None:
    error = struct.pack(">i", -1) + text(struct.pack(">i", -101))
    failed = struct.pack(">ii", 2, 2) + text(DELETE) + error
    records = [record(1, 5, -10, struct.pack(">i", 4000)), record(2, 5, 15, CREATE), record(3, 6, 14, PARTS)]
    records += [record(4, 6, 14, failed), record(5, 5, -11, struct.pack(">i", 0))]
    write_log(tmp_path, "log.1", *records)
    assert read_writes([tmp_path]) == [
        Write(2, 5, "create", "/a", b"data", ephemeral=True),
        Write(3, 6, "set", "/a", b"new"),
        Write(3, 6, "delete", "/b"),
        Write(5, 5, "end of session"),
    ]


def test_several_files_and_servers(tmp_path: Path) -> None:
    """In the order of the transactions, each once; what a crash cut off is not there."""
    one, two, three = (record(number, 5, 2, DELETE) for number in (1, 2, 3))
    write_log(tmp_path / "a", "log.2", two, three[:-10])
    write_log(tmp_path / "a", "log.1", one)
    write_log(tmp_path / "b", "log.2", two, three)
    (tmp_path / "b" / "snapshot.0").write_bytes(b"something else")
    (tmp_path / "b" / "log.9").write_bytes(b"")
    assert [write.number for write in read_writes([tmp_path / "a", tmp_path / "b"])] == [1, 2, 3]
