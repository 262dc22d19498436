# SPDX-License-Identifier: Apache-2.0
"""Many reads in one packet: ZooKeeper's multiRead (opcode 22, ZooKeeper 3.6), which Kazoo 2.11 does not know.

A single read costs the client more in its connection loop than in transit; in a packet with hundreds of others it
costs next to nothing. Other than the operations of a transaction, each read succeeds or fails for itself.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from kazoo.exceptions import KazooException, NoNodeError

from nodepool import log_names
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.reply import Reply
from nodepool.zk.transactions import UNKNOWN_OUTCOME, result, translate

log = logging.getLogger(log_names.ZOOKEEPER)

_Key = TypeVar("_Key")

#: Reads in a packet, and packets under way at once. The largest record allowed (1 MiB) in each would be too much
#: for memory, but records are 1-2 KiB.
BATCH: Final = 250
_WINDOW: Final = 4


def read_data(client: ZooKeeperClient, paths: Iterable[str]) -> Iterator[tuple[bytes, Any] | None]:
    """(data, stat) of each znode, in order; None for one that does not exist. Blocks for some round trips.

    :raises ZKException: another error, e.g. the connection was lost.
    """
    return _read(client, paths, lambda operations, path: operations.get(path))


def read_for_callback(
    client: ZooKeeperClient,
    operations: Iterable[tuple[_Key, Any]],
    on_batch: Callable[[list[tuple[_Key, Any]]], None],
) -> None:
    """The same for the connection thread: does not block, keeps some packets under way until all is read.

    :param operations: a key and what to read: ``client.kazoo.operations.get`` or ``children`` of a path.
    :param on_batch: called in the connection thread with each key and its result: (data, stat), a list of names, or a
        `KazooException`. Not called any more after the connection was lost.
    """
    left = iter(operations)

    def send() -> None:
        batch = list(islice(left, BATCH))
        if batch:
            kazoo = client.kazoo
            kazoo.call(kazoo.operations.reads([operation for _, operation in batch]), Reply(partial(take, batch)))

    def take(batch: list[tuple[_Key, Any]], found: list[Any] | None, error: BaseException | None) -> None:
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
    return _read(client, paths, lambda operations, path: operations.children(path))


def _read(client: ZooKeeperClient, paths: Iterable[str], operation: Callable[[Any, str], Any]) -> Iterator[Any]:
    kazoo = client.kazoo
    left = iter(paths)
    under_way: deque[Reply] = deque()
    while True:
        while len(under_way) < _WINDOW:
            operations = [operation(kazoo.operations, path) for path in islice(left, BATCH)]
            if not operations:
                break
            under_way.append(kazoo.call(kazoo.operations.reads(operations), Reply()))
        if not under_way:
            return
        for found in result(under_way.popleft()):
            if not isinstance(found, KazooException):
                yield found
            elif isinstance(found, NoNodeError):
                yield None
            else:
                raise translate(found)
