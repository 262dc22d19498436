# SPDX-License-Identifier: Apache-2.0
"""ZooKeeper's own transaction log: what was written, by which session, and which writes failed.

The same measure for every candidate, from outside: a failed transaction is logged like any other. Format:
org.apache.zookeeper.server.persistence.FileTxnLog, and zookeeper.jute for the bodies; numbers are big endian.
"""

from __future__ import annotations

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_FILE_HEADER = struct.Struct(">4siq")
#: Checksum, length of the entry.
_ENTRY = struct.Struct(">qi")
#: Session, xid of the client, zxid, time, type.
_HEADER = struct.Struct(">qiqqi")
_INT = struct.Struct(">i")
_CREATES = {1, 15, 19, 21}
_SET_DATA, _MULTI, _ERROR = 5, 14, -1
#: Makes and ends sessions: nobody's work.
_SESSIONS = {-10, -11}

LOCKS = "/nodepool/requests-lock/"
REQUESTS = "/nodepool/requests/"


@dataclass(frozen=True)
class Write:
    """One transaction.

    :param created: paths that it made, ``changed``: path and data of those that it changed.
    """

    session: int
    zxid: int
    failed: bool
    created: tuple[str, ...] = ()
    changed: tuple[tuple[str, bytes], ...] = ()


def read(directory: Path, after_zxid: int) -> Iterator[Write]:
    """All writes after a zxid, in order.

    :param directory: ``dataDir`` of the server.
    """
    for path in sorted((directory / "version-2").glob("log.*"), key=lambda path: int(path.suffix[1:], 16)):
        for entry in _entries(path.read_bytes()):
            session, _, zxid, _, kind = _HEADER.unpack_from(entry)
            if zxid > after_zxid and kind not in _SESSIONS:
                yield _write(session, zxid, kind, entry[_HEADER.size :])


def _entries(data: bytes) -> Iterator[bytes]:
    offset = _FILE_HEADER.size
    while offset + _ENTRY.size <= len(data):
        _, length = _ENTRY.unpack_from(data, offset)
        if length <= 0:
            return  # the rest of the file is allocated, but empty
        offset += _ENTRY.size
        yield data[offset : offset + length]
        offset += length + 1


def _write(session: int, zxid: int, kind: int, body: bytes) -> Write:
    parts = list(_parts(body)) if kind == _MULTI else [(kind, body)]
    created = tuple(_text(part)[0] for kind, part in parts if kind in _CREATES)
    changed = tuple(_path_and_data(part) for kind, part in parts if kind == _SET_DATA)
    return Write(session, zxid, any(kind == _ERROR for kind, _ in parts), created, changed)


def _parts(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and body of each operation of a transaction."""
    (count,) = _INT.unpack_from(body)
    offset = _INT.size
    for _ in range(count):
        (kind,) = _INT.unpack_from(body, offset)
        part, offset = _buffer(body, offset + _INT.size)
        yield kind, part


def _path_and_data(body: bytes) -> tuple[str, bytes]:
    path, offset = _text(body)
    return path, _buffer(body, offset)[0]


def _text(body: bytes) -> tuple[str, int]:
    value, offset = _buffer(body, 0)
    return value.decode(), offset


def _buffer(body: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = _INT.unpack_from(body, offset)
    start = offset + _INT.size
    return body[start : start + max(0, length)], start + max(0, length)


@dataclass(frozen=True)
class Work:
    """What launchers wrote.

    :param writes: transactions, the failed ones included.
    :param failed: somebody else was faster, or knew better.
    :param extra_lockers: takers of a request's lock beyond the first.
    :param declines: refusals, each of one pool.
    """

    writes: int
    failed: int
    extra_lockers: int
    declines: int

    @property
    def double(self) -> int:
        """Work that was for nothing, or that two did."""
        return self.failed + self.extra_lockers + self.declines


def count_work(writes: Iterable[Write], others: Iterable[int]) -> Work:
    """Counts what launchers wrote.

    :param others: sessions that are no launchers'.
    """
    skip = {session % 2**64 for session in others}
    total = failed = 0
    lockers: Counter[str] = Counter()
    declined: dict[str, int] = defaultdict(int)
    for write in writes:
        if write.session % 2**64 in skip:
            continue
        total += 1
        failed += write.failed
        for path in write.created:
            request_id, _, contender = path.partition(LOCKS)[2].partition("/")
            if contender:
                lockers[request_id] += 1
        for path, data in write.changed:
            if REQUESTS in path:
                declined[path] = max(declined[path], len(json.loads(data).get("declined_by") or ()))
    return Work(total, failed, sum(lockers.values()) - len(lockers), sum(declined.values()))
