# SPDX-License-Identifier: Apache-2.0
"""Many reads in one packet: ZooKeeper's multiRead (opcode 22, ZooKeeper 3.6), which Kazoo 2.11 does not know.

A single read costs the client more in its connection loop than in transit; in a packet with hundreds of others it
costs next to nothing. Other than the operations of a transaction, each read succeeds or fails for itself.
Format: org.apache.zookeeper.MultiOperationRecord and MultiResponse.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from kazoo.exceptions import EXCEPTIONS, KazooException, NoNodeError
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    MultiHeader,
    int_struct,
    multiheader_struct,
    read_buffer,
    read_string,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.protocol import Reply
from nodepool.zk.transactions import UNKNOWN_OUTCOME, result, translate

log = logging.getLogger("nodepool.zk.ZooKeeper")

#: Reads in a packet, and packets under way at once. The largest record allowed (1 MiB) in each would be too much
#: for memory, but records are 1-2 KiB.
BATCH: Final = 250
_WINDOW: Final = 4

_ERROR: Final = -1
_END: Final = multiheader_struct.pack(-1, True, -1)


class MultiRead(NamedTuple):
    """MultiRequest of `GetData` and `GetChildren` without watches; answered by a list.

    An element is (data, stat), a list of names, or the `KazooException` of that read.
    """

    operations: list[Any]

    @property
    def type(self) -> int:
        return 22

    def serialize(self) -> bytes:
        parts = [MultiHeader(op.type, False, -1).serialize() + op.serialize() for op in self.operations]
        return b"".join([*parts, _END])

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        while True:
            kind, done, _ = multiheader_struct.unpack_from(buffer, offset)
            offset += multiheader_struct.size
            if done:
                return results
            if kind == GetData.type:
                data, offset = read_buffer(buffer, offset)
                results.append((data, ZnodeStat._make(stat_struct.unpack_from(buffer, offset))))
                offset += stat_struct.size
            elif kind == GetChildren.type:
                (count,) = int_struct.unpack_from(buffer, offset)
                offset += int_struct.size
                names = []
                for _ in range(count):
                    name, offset = read_string(buffer, offset)
                    names.append(name)
                results.append(names)
            elif kind == _ERROR:
                (code,) = int_struct.unpack_from(buffer, offset)
                offset += int_struct.size
                results.append(EXCEPTIONS[code]())
            else:
                raise ValueError(f"unexpected result of type {kind} in the answer to multiRead")


def read_data(client: ZooKeeperClient, paths: Iterable[str]) -> Iterator[tuple[bytes, Any] | None]:
    """(data, stat) of each znode, in order; None for one that does not exist. Blocks for some round trips.

    :raises ZKException: another error, e.g. the connection was lost.
    """
    return _read(client, paths, GetData)


def read_for_callback(
    client: ZooKeeperClient,
    operations: Iterable[tuple[str, Any]],
    on_batch: Callable[[list[tuple[str, Any]]], None],
) -> None:
    """The same for the connection thread: does not block, keeps some packets under way until all is read.

    :param operations: a key and a `GetData` or `GetChildren`, with the chroot in its path.
    :param on_batch: called in the connection thread with each key and its result as `MultiRead` has it. Not called any
        more after the connection was lost.
    """
    left = iter(operations)

    def send() -> None:
        batch = list(islice(left, BATCH))
        if batch:
            client.kazoo.call(MultiRead([operation for _, operation in batch]), Reply(partial(take, batch)))

    def take(batch: list[tuple[str, Any]], found: list[Any] | None, error: BaseException | None) -> None:
        if found is None:
            if not isinstance(error, UNKNOWN_OUTCOME):
                log.error("ZooKeeper refuses to read many znodes at once, is it 3.6 or newer? %r", error)
            return
        send()
        on_batch([(key, result) for (key, _), result in zip(batch, found, strict=True)])

    for _ in range(_WINDOW):
        send()


def children(client: ZooKeeperClient, path: str) -> list[str]:
    """Names below one path; empty when it is not there. Blocks for a round trip, or until there is a connection."""
    try:
        names: list[str] = client.kazoo.retry(client.kazoo.get_children, path)
    except NoNodeError:
        return []
    except KazooException as error:
        raise translate(error) from None
    return names


def read_children(client: ZooKeeperClient, paths: Iterable[str]) -> Iterator[list[str] | None]:
    """Names of the children of each znode, in order; None for one that does not exist. Blocks for some round trips.

    :raises ZKException: another error, e.g. the connection was lost.
    """
    return _read(client, paths, GetChildren)


def _read(client: ZooKeeperClient, paths: Iterable[str], operation: Callable[[str, None], Any]) -> Iterator[Any]:
    kazoo = client.kazoo
    left = iter(paths)
    under_way: deque[Reply] = deque()
    while True:
        while len(under_way) < _WINDOW:
            operations = [operation(kazoo.chrooted(path), None) for path in islice(left, BATCH)]
            if not operations:
                break
            under_way.append(kazoo.call(MultiRead(operations), Reply()))
        if not under_way:
            return
        for found in result(under_way.popleft()):
            if isinstance(found, NoNodeError):
                yield None
            elif isinstance(found, KazooException):
                raise translate(found)
            else:
                yield found
