# SPDX-License-Identifier: Apache-2.0
"""Locks on the wire of Kazoo's Lock recipe (reference/zookeeper 3): Zuul and older launchers take the same ones.

First the lock, then who holds one, then elections.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kazoo.exceptions import KazooException, LockTimeout

from nodepool import log_names
from nodepool.exceptions import ZKException, ZKLockException, ZKLockTimeout
from nodepool.model.record import InvalidRecord
from nodepool.model.record import ZkLock as ZkLock
from nodepool.zk import paths, transactions
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.transactions import SessionLost, Transaction, translate


def contender_prefix(lock_dir: str) -> str:
    """Path of a new contender, without its sequence number."""
    return f"{lock_dir}/{uuid.uuid4().hex}{paths.CONTENDER_MARK}"


def add_contender(tx: Transaction, lock_dir: str, identifier: str = "") -> int:
    """Take a lock in a transaction that made sure that nobody else is there; returns the operation's index."""
    return tx.create_contender(contender_prefix(lock_dir), identifier.encode())


def acquire(
    client: ZooKeeperClient,
    lock_dir: str,
    *,
    blocking: bool = True,
    timeout: float | None = None,
    ephemeral: bool = True,
    identifier: str | None = None,
) -> ZkLock:
    """Take a lock with Kazoo's recipe; makes missing parents. If it is not taken, nothing of ours stays in its queue.

    :param blocking: wait for the lock, at most ``timeout`` seconds (None = for ever).
    :param ephemeral: False: the lock outlives the session (metastatic backing nodes).
    :raises ZKLockException: another contender has it. ZKLockTimeout: it was not free within ``timeout``.
    :raises ZKConnectionError: no connection.
    """
    epoch = client.session_epoch
    lock = client.kazoo.Lock(lock_dir, identifier)
    taken = False
    try:
        # Kazoo waits without end when a deadline meets a lost connection, so non-blocking gets none.
        taken = lock.acquire(blocking=blocking, timeout=timeout if blocking else None, ephemeral=ephemeral)
    except LockTimeout:
        raise ZKLockTimeout(f"{lock_dir} is locked by another process (waited {timeout:g} s)") from None
    except KazooException as error:
        raise translate(error) from None
    finally:
        if not taken:
            # Kazoo takes its contender back, and does not say whether that worked.
            client.orphans.add(lock.create_path)
    if not taken:
        raise ZKLockException(f"{lock_dir} is locked by another process")
    taken_lock = ZkLock(lock_dir, f"{lock_dir}/{lock.node}", epoch, ephemeral)
    if ephemeral and client.session_epoch != epoch:
        # Lost while we waited: it may be ours in the new session, but everybody would take it for lost. An election
        # would wait for ever, for us.
        release(client, taken_lock)
        raise SessionLost(f"the session was lost while {lock_dir} was being locked")
    return taken_lock


def contenders(client: ZooKeeperClient, lock_dir: str) -> list[tuple[str, str]]:
    """Path and identifier of who holds and waits for a lock, the holder first. Blocks.

    :raises ZKException: ZooKeeper could not be asked.
    """
    paths_in_order = [f"{lock_dir}/{name}" for name in in_order(transactions.children(client, lock_dir))]
    answers = [(path, transactions.read_one(client, path)) for path in paths_in_order]
    return [(path, answer[0].decode("utf-8", "replace")) for path, answer in answers if answer is not None]


def held_since(client: ZooKeeperClient, lock_dir: str) -> int | None:
    """ZooKeeper's number of the change that made the contender which holds a lock; None = nobody holds it. Blocks.

    Whatever the holder wrote under its lock has a higher one, or the same if it took the lock in the same write.

    :raises ZKException: ZooKeeper could not be asked.
    """
    for name in in_order(transactions.children(client, lock_dir)):
        stat = transactions.stat_of(client, f"{lock_dir}/{name}")
        if stat is not None:
            return int(stat.czxid)
    return None


def in_order(names: Iterable[str]) -> list[str]:
    """Contenders among the names of a lock directory, the holder first."""
    sequences = {name: sequence for name in names if (sequence := paths.contender_sequence(name)) is not None}
    return sorted(sequences, key=sequences.__getitem__)


def release(client: ZooKeeperClient, lock: ZkLock) -> None:
    """Give a lock back; one that is gone already is fine. Raises ZKConnectionError."""
    transactions.remove(client, lock.contender)


# Who holds a lock: which launcher, executor of Zuul or person.
#
# A contender for a lock seldom has an identifier, but it belongs to the session of its process, and so do the
# components that this process registered.

#: Where processes register -> what they are called.
_ROOTS: Final = {paths.COMPONENTS: "", "/zuul/components": "Zuul "}
#: What begins the identifier of somebody at the command line.
COMMAND: Final = "nodepool command of "


class LockOwners:
    """The processes that are registered now.

    Blocks for some round trips when it is made. Raises ZKException.
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._by_session: dict[int, str] = {}
        for root, owner in _ROOTS.items():
            for kind in sorted(transactions.children(client, root)):
                # A launcher registers itself and each of its pools.
                what = "launcher" if kind == "pool" else kind
                for entry, data, stat in transactions.read_below(client, f"{root}/{kind}"):
                    self._by_session.setdefault(stat.ephemeralOwner, f"{owner}{what} {_hostname(data) or entry}")

    def of_nodes(self, node_ids: Sequence[str]) -> dict[str, str]:
        """Node id -> who holds its lock; free ones are left out. Many are read in a packet. Raises ZKException."""
        directories = [paths.node_lock(node_id) for node_id in node_ids]
        holders: dict[str, str] = {}
        for node_id, directory, names in zip(
            node_ids, directories, transactions.read_children(self._client, directories), strict=True
        ):
            first = next(iter(in_order(names or ())), None)
            if first is not None:
                holders[node_id] = f"{directory}/{first}"
        answers = transactions.read_data(self._client, holders.values())
        return {
            node_id: self._name(*answer) for node_id, answer in zip(holders, answers, strict=True) if answer is not None
        }

    def of_node(self, node_id: str) -> str | None:
        """Who holds the lock of a node; None = nobody. Raises ZKException."""
        return self.of_nodes([node_id]).get(node_id)

    def _name(self, identifier: bytes, stat: Any) -> str:
        text = identifier.decode("utf-8", "replace")
        known = self._by_session.get(stat.ephemeralOwner)
        if known is not None:
            return known
        return text or f"session {stat.ephemeralOwner:#x}"


def _hostname(data: bytes) -> str | None:
    try:
        name = paths.decode(data).get("hostname")
    except InvalidRecord:
        return None
    return name if isinstance(name, str) and name else None


# Elects one launcher for work that only one launcher may do (reference/zookeeper 2, ``elections``).


class Election:
    """Callers ask from time to time whether this launcher leads. No thread waits in between.

    :param name: of the election, e.g. ``stats``.
    :param identifier: who we are, for people who look.
    """

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self, client: ZooKeeperClient, name: str, identifier: str) -> None:
        self._client = client
        self._path = paths.election(name)
        self._identifier = identifier
        self._lock: ZkLock | None = None

    def is_leader(self) -> bool:
        """Do we lead? Tries to win if nobody does. Blocks for a few round trips, without an answer: False."""
        if not self._client.connected:
            return False
        if self._lock is not None and self._lock.epoch == self._client.session_epoch:
            return True
        self._lock = None
        try:
            self._lock = acquire(self._client, self._path, blocking=False, identifier=self._identifier)
        except ZKLockException:
            return False
        except ZKException as error:
            self.log.warning("Election %s: %s", self._path, error)
            return False
        self.log.info("Leading in %s", self._path)
        return True
