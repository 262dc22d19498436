# SPDX-License-Identifier: Apache-2.0
"""Several writes as one: all happen, or none (ZooKeeper multi).

A transaction costs one round trip, whatever it holds. Ours carry fences, so that a writer whose view is old fails as a
whole:

* the data version of each record that is written;
* `Transaction.fence_lock`: a lock directory can only be deleted while it holds no contender.

After the transactions come reads, many of them in one packet. Then locks, who holds one, and elections.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    LockTimeout,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.retry import RetryFailedError

from nodepool import log_names
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException, ZKLockException, ZKLockTimeout
from nodepool.guard import OnError
from nodepool.model.record import InvalidRecord, Record
from nodepool.model.record import ZkLock as ZkLock
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.connection import Reply

if TYPE_CHECKING:
    from nodepool.zk.nodes import NodepoolCache

#: Attempts to write what others write at the same time.
ATTEMPTS: Final = 5
EPHEMERAL = 1
SEQUENCE = 2
#: Fields of nodes and requests that are never changed; together they tell one from all others.
LASTING = ("created_time", "provider", "pool", "event_id")

#: Errors that say nothing about whether something was written. `RetryFailedError`: the client was stopped.
UNKNOWN_OUTCOME = (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    RetryFailedError,
    SessionExpiredError,
    TimeoutError,
)


class SessionLost(ZKConnectionError, SessionExpiredError):  # type: ignore[misc]
    """The session is over. Also Kazoo's error: drivers written for 11.0.0 catch that one."""


class TransactionFailed(ZKConflict):
    """Nothing was written.

    :param path: of the operation that failed.
    :param error: what ZooKeeper stated about it.
    """

    def __init__(self, path: str, error: BaseException) -> None:
        super().__init__(f"{path}: {type(error).__name__}")
        self.path = path
        self.error = error

    @property
    def lock_dir_mismatch(self) -> bool:
        """A lock directory is there, or is not there, other than the caller assumed; no one need hold it."""
        return isinstance(self.error, (NodeExistsError, NoNodeError))


def translate(error: BaseException) -> ZKException:
    """Kazoo's error as one of ours."""
    if isinstance(error, ZKException):
        return error
    if isinstance(error, SessionExpiredError):
        return SessionLost("ZooKeeper: the session was lost")
    if isinstance(error, UNKNOWN_OUTCOME):
        return ZKConnectionError(f"ZooKeeper: {type(error).__name__}")
    if isinstance(error, KazooException):
        return ZKConflict(f"ZooKeeper: {type(error).__name__} {error}".rstrip())
    return ZKException(repr(error))


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """What Kazoo's own methods raise inside is raised as ZKException."""
    try:
        yield
    except KazooException as error:
        raise translate(error) from None


def result(reply: Reply) -> Any:
    """Wait for a reply; errors come as `ZKConflict` (nothing written) or `ZKConnectionError` (unknown)."""
    try:
        return reply.get()
    except (ZKException, KazooException, TimeoutError) as error:
        raise translate(error) from None


class _TransactionReply(Reply):
    __slots__ = ("_paths",)

    def __init__(self, paths: list[str], on_done: Callable[[Any, BaseException | None], None]) -> None:
        super().__init__(on_done)
        self._paths = paths

    def set(self, value: Any = None) -> None:
        for path, outcome in zip(self._paths, value, strict=False):
            if isinstance(outcome, Exception) and not isinstance(outcome, (RolledBackError, RuntimeInconsistency)):
                self.set_exception(TransactionFailed(path, outcome))
                return
        super().set(value)


class Transaction:
    """Collects operations; `send` commits them.

    :param cache: hears of record writes, so that it need not read them back; None = there is none.
    """

    def __init__(self, client: ZooKeeperClient, cache: NodepoolCache | None = None) -> None:
        self._client = client
        self._kazoo = client.kazoo
        self._make = self._kazoo.operations
        self._cache = cache
        self._operations: list[Any] = []
        self._paths: list[str] = []
        self._data: dict[int, bytes] = {}
        self._written: dict[int, Record] = {}
        self._created: dict[int, Record] = {}
        self._contenders: list[str] = []
        #: ZooKeeper's number of a change before it is sent.
        self._since: int = self._kazoo.last_zxid
        #: `ZooKeeperClient.session_epoch` of the session that it is sent in.
        self.epoch = client.session_epoch

    def _add(self, path: str, operation: Any) -> None:
        self._paths.append(path)
        self._operations.append(operation)

    def create(self, path: str, data: bytes = b"", *, flags: int = 0) -> int:
        """Create a znode; returns the operation's index, under which `send` answers with the real path."""
        self._add(path, self._make.create(path, data, flags))
        return len(self._operations) - 1

    def create_contender(self, lock_dir: str, identifier: str = "") -> int:
        """Take a lock that, as the transaction makes sure, no one has: an ephemeral znode with a sequence number.

        By its unique path the contender is found if the answer is lost, see `taken`. Who does not look for it leaves it
        to `send` to remove it.

        :return: the operation's index.
        """
        self._contenders.append(contender_prefix(lock_dir))
        return self.create(self._contenders[-1], identifier.encode(), flags=EPHEMERAL | SEQUENCE)

    def delete(self, path: str, version: int = -1) -> None:
        self._add(path, self._make.delete(path, version))

    def check(self, path: str, version: int = -1) -> None:
        """Fail unless the znode exists, with this data version (-1 = any)."""
        self._add(path, self._make.check(path, version))

    def set_record(self, path: str, record: Record, data: bytes) -> None:
        """Overwrite a record, fenced by the version that it was read with."""
        if record.version is None:
            raise ZKException(f"{path} was never read: it cannot be written safely")
        self._written[len(self._operations)] = record
        self._data[len(self._operations)] = data
        self._add(path, self._make.set(path, data, record.version))

    def create_record(self, prefix: str, record: Record, data: bytes, *, ephemeral: bool = False) -> None:
        """Create a record with a sequence number; sets its id and version."""
        self._created[len(self._operations)] = record
        self._data[len(self._operations)] = data
        self.create(prefix, data, flags=SEQUENCE | (EPHEMERAL if ephemeral else 0))

    def fence_lock(self, lock_dir: str, *, exists: bool, keep: bool) -> None:
        """Fail if anybody holds or waits for a lock.

        :param exists: is the lock directory there? If this is wrong the transaction fails with
            `TransactionFailed.lock_dir_mismatch`.
        :param keep: leave the directory there.
        """
        if exists:
            self.delete(lock_dir)
        if keep or not exists:
            self.create(lock_dir)
        if not keep and not exists:
            self.delete(lock_dir)

    def send(
        self, on_done: Callable[[Any, BaseException | None], None] | None = None, *, resolved: bool = False
    ) -> Reply:
        """Commit; does not block. The reply has a list with one result an operation.

        :param on_done: called in the connection thread with (results, error).
        :param resolved: after a lost answer the caller asks `taken`. Else contenders are removed then.
        """
        if self._cache is not None:
            for record in self._written.values():
                self._cache.of(record).expect(record.key)
            for record in self._created.values():
                self._cache.of(record).expect_create()

        def settle(results: Any, error: BaseException | None) -> None:
            self._settle(results, error)
            lost = None if error is None else translate(error)
            # Also after an answer that could not be read: then the caller asks nothing.
            asks = resolved and isinstance(lost, ZKConnectionError)
            if lost is not None and not isinstance(lost, ZKConflict) and not asks:
                for prefix in self._contenders:
                    self._client.orphans.add(prefix)
            if on_done is not None:
                on_done(results, error)

        return self._kazoo.call(self._make.transaction(self._operations), _TransactionReply(self._paths, settle))

    def _settle(self, results: Any, error: BaseException | None) -> None:
        """Give written records their new versions, then tell the cache."""
        done = error is None
        for index, record in self._written.items():
            if done:
                record.version = results[index].version
                record.mzxid = results[index].mzxid
            if self._cache is not None:
                self._cache.of(record).settle(record.key, record.copy() if done else None)
        for index, record in self._created.items():
            if done:
                record.id = results[index].rpartition("/")[2]
                record.version = 0
            if self._cache is not None:
                self._cache.of(record).settle_create(record.id, record.copy() if done else None)

    def commit(self) -> Any:
        """Commit and wait. Raises `TransactionFailed` or `ZKConnectionError`."""
        return result(self.send())

    def taken(self) -> str | None:
        """After a lost answer to a transaction that takes one lock: path of its contender. None = it was not made.

        Records get their versions and ids. Blocks until there is a connection.

        :raises SessionLost: whatever was written, the lock went with the session.
        :raises ZKConflict: it was made, but a record was changed since. The lock is given back.
        """
        (prefix,) = self._contenders
        client = self._client
        lock_dir, _, beginning = prefix.rpartition("/")
        with OnError(lambda _: client.orphans.add(prefix)):
            sync(client, lock_dir)
            names = children(client, lock_dir)
            if client.session_epoch != self.epoch:
                raise SessionLost(f"the session was lost while {lock_dir} was being locked")
            name = next((name for name in names if name.startswith(beginning)), None)
            if name is None:
                return None
            for index, record in self._written.items():
                was_written(client, self._paths[index], record, self._data[index])
            if not self.was_created():
                raise ZKConflict(f"what was made together with {lock_dir} was deleted")
        return f"{lock_dir}/{name}"

    def was_created(self) -> bool:
        """After a lost answer: were the records made that get a sequence number? They get their ids then.

        Blocks until there is a connection.
        """
        return all(
            was_created(self._client, self._paths[index].rpartition("/")[0], record, self._data[index], self._since)
            for index, record in self._created.items()
        )

    def commit_unless(self, done: Callable[[], bool]) -> None:
        """`commit`, and again after a lost answer, unless ``done`` says that everything was written."""
        while True:
            try:
                self.commit()
                return
            except ZKConnectionError:
                if done():
                    return


def was_written(client: ZooKeeperClient, path: str, record: Record, data: bytes) -> bool:
    """After a lost answer to a write: True = it was written, False = it was not, try again.

    Blocks until there is a connection.

    :param data: what was to be written; ``record`` gets the new version.
    :raises ZKConflict: the znode is deleted, or another wrote it.
    """
    sync(client, path)
    answer = read_one(client, path)
    if answer is None:
        raise ZKConflict(f"{path} does not exist any more")
    found, stat = answer
    if stat.version == record.version:
        return False
    if found != data:
        raise ZKConflict(f"{path} was changed by another process")
    record.version, record.mzxid = stat.version, stat.mzxid
    return True


def was_created(client: ZooKeeperClient, parent: str, record: Record, data: bytes, since: int) -> bool:
    """After a lost answer to a creation with a sequence number: True = it was made, False = it was not, or was deleted.

    It is known by its data, among what is younger than the question, also when others have changed it since. Blocks
    until there is a connection.

    :param record: gets the id, and the version that was made: a write over a later change is refused.
    :param since: ZooKeeper's number of a change before that.
    """
    sync(client, parent)
    names = [name for name in children(client, parent) if name[-10:].isdecimal()]
    for name in sorted(names, key=lambda name: name[-10:], reverse=True):
        answer = read_one(client, f"{parent}/{name}")
        if answer is None:
            continue
        found, stat = answer
        if stat.czxid <= since:
            break
        if found == data or (stat.version and _lasting(found) == _lasting(data)):
            record.id, record.version, record.mzxid = name, 0, stat.czxid
            return True
    return False


def _lasting(data: bytes) -> list[Any]:
    """What is never changed in a record."""
    try:
        record = paths.decode(data)
    except InvalidRecord:
        return []
    return [record.get(field) for field in LASTING]


def was_removed(client: ZooKeeperClient, path: str, contender: str) -> bool:
    """After a lost answer to the removal of a record that we hold locked: True = it is deleted, False = try again.

    Blocks until there is a connection.

    :param contender: path of the contender that holds the lock.
    :raises ZKConflict: the lock is lost, but the record is not.
    """
    sync(client, path)
    if stat_of(client, path) is None:
        return True
    if stat_of(client, contender) is None:
        raise ZKConflict(f"the lock of {path} is lost")
    return False


def replace(client: ZooKeeperClient, path: str, make: Callable[[bytes | None], bytes]) -> bytes:
    """Write a znode by what is in it, again if others write or remove it at the same time. Blocks.

    :param make: gets the data, None = it is not there, and returns other data. For the same object nothing is written.
    :return: what is stored then.
    :raises ZKConflict: others write it in each of `ATTEMPTS`.
    """
    for _ in range(ATTEMPTS):
        with translated(), contextlib.suppress(BadVersionError, NodeExistsError, NoNodeError):
            found = read_one(client, path)
            data = make(None if found is None else found[0])
            if found is None:
                ensure_path(client, path.rpartition("/")[0])
                client.kazoo.create(path, data)
            elif data is not found[0]:
                client.kazoo.set(path, data, version=found[1].version)
            return data
    raise ZKConflict(f"{path}: others write it, too")


def ensure_path(client: ZooKeeperClient, path: str) -> None:
    """Create a persistent znode with its parents unless it is there. Raises ZKConnectionError."""
    with translated():
        client.kazoo.ensure_path(path)


def sync(client: ZooKeeperClient, path: str) -> None:
    """Let our server catch up with the leader: it may not know yet what the one that we lost has passed on.

    Blocks until there is a connection. Raises ZKException.
    """
    with translated():
        client.kazoo.retry(client.kazoo.sync, path)


def read_one(client: ZooKeeperClient, path: str) -> tuple[bytes, Any] | None:
    """Data and stat of a znode; None = it is not there. Blocks until there is a connection. Raises ZKException."""
    with translated(), contextlib.suppress(NoNodeError):
        found: tuple[bytes, Any] = client.kazoo.retry(client.kazoo.get, path)
        return found
    return None


def stat_of(client: ZooKeeperClient, path: str) -> Any:
    """Kazoo's stat of a znode; None = it is not there. Blocks until there is a connection. Raises ZKException."""
    with translated():
        return client.kazoo.retry(client.kazoo.exists, path)


def remove(client: ZooKeeperClient, path: str, *, recursive: bool = False) -> None:
    """Delete a znode; one that is not there is fine. Blocks until there is a connection. Raises ZKException."""
    with translated(), contextlib.suppress(NoNodeError):
        client.kazoo.retry(client.kazoo.delete, path, recursive=recursive)


# Many reads in one packet: ZooKeeper's multiRead (opcode 22, ZooKeeper 3.6), which Kazoo 2.11 does not know.
#
# A single read costs the client more in its connection loop than in transit; in a packet with hundreds of others it
# costs next to nothing. Other than the operations of a transaction, each read succeeds or fails for itself.

log = logging.getLogger(log_names.ZOOKEEPER)

_Key = TypeVar("_Key")
_Record = TypeVar("_Record")

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
    client: ZooKeeperClient, operations: Iterable[tuple[_Key, Any]], on_batch: Callable[[list[tuple[_Key, Any]]], None]
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
    with translated(), contextlib.suppress(NoNodeError):
        names: list[str] = client.kazoo.retry(client.kazoo.get_children, path)
        return names
    return []


def read_below(client: ZooKeeperClient, root: str) -> list[tuple[str, bytes, Any]]:
    """Name, data and stat of the znodes directly below one, by name. Blocks for two round trips, or until there is a
    connection. Raises ZKException.
    """
    while True:
        # It waits for a connection, and raises when the client was closed.
        names = sorted(children(client, root))
        with contextlib.suppress(ZKConnectionError):
            answers = list(read_data(client, [f"{root}/{name}" for name in names]))
            return [(name, *found) for name, found in zip(names, answers, strict=True) if found is not None]


def records_below(
    client: ZooKeeperClient, root: str, decode: Callable[[str, bytes], _Record], log: logging.Logger = log
) -> list[_Record]:
    """The same as records; bad ones are logged and skipped.

    :param decode: makes a record of name and data; raises InvalidRecord.
    """
    records = []
    for name, data, _ in read_below(client, root):
        try:
            records.append(decode(name, data))
        except InvalidRecord as problem:
            log.error("Ignoring %s/%s: %s", root, name, problem)
    return records


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


# Locks on the wire of Kazoo's Lock recipe (reference/zookeeper 3): Zuul and older launchers take the same ones.
#
# First the lock, then who holds one, then elections.


def contender_prefix(lock_dir: str) -> str:
    """Path of a new contender, without its sequence number."""
    return f"{lock_dir}/{uuid.uuid4().hex}{paths.CONTENDER_MARK}"


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
    paths_in_order = [f"{lock_dir}/{name}" for name in in_order(children(client, lock_dir))]
    answers = [(path, read_one(client, path)) for path in paths_in_order]
    return [(path, answer[0].decode("utf-8", "replace")) for path, answer in answers if answer is not None]


def held_since(client: ZooKeeperClient, lock_dir: str) -> int | None:
    """ZooKeeper's number of the change that made the contender which holds a lock; None = no one holds it. Blocks.

    Whatever the holder wrote under its lock has a higher one, or the same if it took the lock in the same write.

    :raises ZKException: ZooKeeper could not be asked.
    """
    for name in in_order(children(client, lock_dir)):
        stat = stat_of(client, f"{lock_dir}/{name}")
        if stat is not None:
            return int(stat.czxid)
    return None


def in_order(names: Iterable[str]) -> list[str]:
    """Contenders among the names of a lock directory, the holder first."""
    sequences = {name: sequence for name in names if (sequence := paths.contender_sequence(name)) is not None}
    return sorted(sequences, key=sequences.__getitem__)


def release(client: ZooKeeperClient, lock: ZkLock) -> None:
    """Give a lock back; one that is not there is fine. Raises ZKConnectionError."""
    remove(client, lock.contender)


# Who holds a lock: which launcher, executor of Zuul or person.
#
# A contender for a lock seldom has an identifier, but it belongs to the session of its process, and so do the
# components that this process registered.

#: Where processes register -> what they are called.
_ROOTS: Final = {paths.COMPONENTS: "", "/zuul/components": "Zuul "}
#: What begins the identifier of someone at the command line.
COMMAND: Final = "nodepool command of "


class LockOwners:
    """The processes that are registered now.

    Blocks for some round trips when it is made. Raises ZKException.
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._by_session: dict[int, str] = {}
        for root, owner in _ROOTS.items():
            for kind in sorted(children(client, root)):
                # A launcher registers itself and each of its pools.
                what = "launcher" if kind == "pool" else kind
                for entry, data, stat in read_below(client, f"{root}/{kind}"):
                    self._by_session.setdefault(stat.ephemeralOwner, f"{owner}{what} {_hostname(data) or entry}")

    def of_nodes(self, node_ids: Sequence[str]) -> dict[str, str]:
        """Node id -> who holds its lock; free ones are left out. Many are read in a packet. Raises ZKException."""
        directories = [paths.node_lock(node_id) for node_id in node_ids]
        holders: dict[str, str] = {}
        for node_id, directory, names in zip(
            node_ids, directories, read_children(self._client, directories), strict=True
        ):
            first = next(iter(in_order(names or ())), None)
            if first is not None:
                holders[node_id] = f"{directory}/{first}"
        answers = read_data(self._client, holders.values())
        return {
            node_id: self._name(*answer) for node_id, answer in zip(holders, answers, strict=True) if answer is not None
        }

    def of_node(self, node_id: str) -> str | None:
        """Who holds the lock of a node; None = no one. Raises ZKException."""
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

    def __init__(self, client: ZooKeeperClient, name: str, identifier: str) -> None:
        self._client = client
        self._path = paths.election(name)
        self._identifier = identifier
        self._lock: ZkLock | None = None

    def is_leader(self) -> bool:
        """Do we lead? Tries to win if no one does. Blocks for a few round trips, without an answer: False."""
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
            log.warning("Election %s: %s", self._path, error)
            return False
        log.info("Leading in %s", self._path)
        return True
