# SPDX-License-Identifier: Apache-2.0
"""The two operations that Kazoo does not know, byte for byte, and the chroot in front of each path."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import Transaction

from nodepool.zk.wire.watched_client import PASSED_ON, AddWatch, MultiRead, Operations

STAT = struct.pack("!qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
OPERATIONS = Operations("/root")


def text(value: str) -> bytes:
    return struct.pack("!i", len(value)) + value.encode()


def head(kind: int, done: bool = False, error: int = -1) -> bytes:
    return struct.pack("!i?i", kind, done, error)


END = head(-1, True)


def test_watch() -> None:
    watch = OPERATIONS.watch("/a")
    assert isinstance(watch, AddWatch)
    assert (watch.type, watch.serialize()) == (106, text("/root/a") + struct.pack("!i", 1))
    assert watch.deserialize(b"", 0) is True


def test_reads() -> None:
    reads = OPERATIONS.reads([OPERATIONS.get("/a"), OPERATIONS.children("/b")])
    assert isinstance(reads, MultiRead)
    assert reads.type == 22
    assert reads.serialize() == head(4) + text("/root/a") + b"\0" + head(8) + text("/root/b") + b"\0" + END


def test_transaction() -> None:
    """Byte for byte what Kazoo makes of it."""
    writes = [
        *(OPERATIONS.create("/a", b"data", 3), OPERATIONS.delete("/b", 4)),
        *(OPERATIONS.check("/c", 5), OPERATIONS.set("/d", b"other", 6)),
    ]
    assert OPERATIONS.transaction(writes).serialize() == Transaction(writes).serialize()
    assert OPERATIONS.transaction([]).serialize() == END


def test_answer_to_reads() -> None:
    """Each for itself: data with its stat, names, or an error."""
    found = head(4, error=0) + text("data") + STAT
    names = head(8, error=0) + struct.pack("!i", 2) + text("x") + text("y")
    missing = head(-1, error=-101) + struct.pack("!i", -101)
    data, children, error = MultiRead.deserialize(b"head" + found + names + missing + END, 4)
    assert (data[0], data[1].mzxid, data[1].version, data[1].numChildren) == (b"data", 2, 5, 10)
    assert children == ["x", "y"]
    assert isinstance(error, NoNodeError)


def test_answer_that_nobody_asked_for() -> None:
    with pytest.raises(ValueError, match="type 7"):
        MultiRead.deserialize(head(7) + END, 0)


def test_answer_without_data_or_without_an_end() -> None:
    nothing = head(4, error=0) + struct.pack("!i", -1) + STAT
    assert MultiRead.deserialize(nothing + END, 0)[0][0] is None
    with pytest.raises(ValueError, match="no end"):
        MultiRead.deserialize(nothing, 0)


@pytest.mark.parametrize(
    "operation",
    [
        OPERATIONS.create("/a", b"data", 3),
        OPERATIONS.delete("/a"),
        OPERATIONS.check("/a", 7),
        OPERATIONS.set("/a", b"data", 7),
        OPERATIONS.get("/a"),
        OPERATIONS.children("/a"),
        OPERATIONS.sync("/a"),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_chroot(operation: Any) -> None:
    assert operation.path == "/root/a"
    assert operation.serialize().startswith(text("/root/a"))


def test_what_the_leader_has_to_see() -> None:
    writes = [OPERATIONS.create("/a"), OPERATIONS.delete("/a"), OPERATIONS.set("/a", b"", -1), OPERATIONS.sync("/a")]
    assert {operation.type for operation in [*writes, OPERATIONS.transaction(writes)]} == PASSED_ON
    assert {OPERATIONS.get("/a").type, OPERATIONS.reads([]).type, AddWatch("/a").type}.isdisjoint(PASSED_ON)
