# SPDX-License-Identifier: Apache-2.0
"""One connection to ZooKeeper: TLS, several servers, chroot, session state.

Then what is logged while there is none, and the search for contenders of locks that may be left.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kazoo.client import KazooState
from kazoo.exceptions import ConfigurationError, KazooException, NoNodeError

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.exceptions import ZKConnectionError, ZKException
from nodepool.guard import Guard
from nodepool.zk.connection import Latency, Reply, TlsFiles, WatchFunction, is_hopeless, sentences

if TYPE_CHECKING:
    from nodepool.zk.wire import WatchedClient

RETRY_LOG_SECONDS: Final = 10.0
#: `ZooKeeperClient.connect` looks so often whether there is anything to tell while it waits without an end, in seconds,
TELL_SECONDS: Final = 1.0
#: and with an end whether there is any hope.
LOOK_SECONDS: Final = 0.2

#: Called with 'connected', 'suspended' or 'lost', in the connection thread; must not block.
SessionListener = Callable[[str], None]


class ZooKeeperClient:
    """Connects, stays connected, and notifies listeners of the session.

    :param hosts: Kazoo's host list, ``nodepool.config.zookeeper.connection_string``.
    :param read_only: be content with a server that has lost the others. The order is that of 11.0.0, for drivers.
    :param timeout: session timeout in seconds.
    :param tls_cert: PEM file of the client certificate, ``tls_key`` its key, ``tls_ca`` the CA. All or none.
    """

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(
        self,
        hosts: str,
        read_only: bool = False,
        timeout: float = 10.0,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        tls_ca: str | None = None,
    ) -> None:
        self.hosts = hosts
        self.read_only = read_only
        self.timeout = timeout
        self.tls_files = (tls_cert, tls_key, tls_ca)
        self._files = TlsFiles(tls_cert, tls_key, tls_ca) if tls_cert and tls_key and tls_ca else None
        self._client: WatchedClient | None = None
        self._listeners: list[SessionListener] = []
        self._changed = threading.Condition()
        self._closing = threading.Event()
        #: Monotonic seconds.
        self._retry_logged = -math.inf
        #: Held while Kazoo is started, so that it is stopped either before or after that, not in between.
        self._starting = threading.Lock()
        self._outage = Outage()
        #: Grows with each lost session, so that an owner of locks can tell that they are lost.
        self.session_epoch = 0
        #: Locks that a transaction may have taken without our knowledge; given back when that is known.
        self.orphans = OrphanedContenders(self)

    @property
    def kazoo(self) -> WatchedClient:
        if self._client is None:
            raise ZKConnectionError("not connected to ZooKeeper")
        return self._client

    @property
    def connected(self) -> bool:
        client = self._client
        return client is not None and client.state == KazooState.CONNECTED

    @property
    def suspended(self) -> bool:
        client = self._client
        return client is not None and client.state == KazooState.SUSPENDED

    @property
    def lost(self) -> bool:
        client = self._client
        return client is None or client.state == KazooState.LOST

    def session_is_certain(self, epoch: int) -> bool:
        """Does the session of this `session_epoch` live beyond doubt, so that no one else can have its locks?

        Does not block. With a connection in order the answer is yes nearly always.
        """
        client = self._client
        return client is not None and epoch == self.session_epoch and client.is_leased()

    def trouble(self) -> list[str]:
        """Why there is no connection: a sentence for each server that was tried and failed. Does not block.

        It names the server, its place in ``zookeeper-servers``, and the remedy. Empty with a connection.
        """
        client = self._client
        if client is None or self.connected:
            return []
        return sentences(client.servers, client.failures, self._files)

    def look_after(self) -> None:
        """See to the connection: log why there is none, unless that was logged in the last minute.

        If its thread has ended, another one connects anew, with a new session. Does not block for long. For the main
        thread of a daemon, which calls it once a second.
        """
        if not self.connected:
            self._revive()
            line = self._outage.line(monotonic(), self.trouble(), self.hosts)
            if line is not None:
                self.log.warning("%s", line)

    def _revive(self) -> None:
        with self._starting:
            client = self._client
            if client is not None and client.has_died:
                self.log.error("The thread of the ZooKeeper connection has ended, connecting anew")
                client.start_async()

    @property
    def hopeless(self) -> bool:
        """Does each server refuse us for a reason that lasts until a configuration is changed? Does not block."""
        client = self._client
        if client is None or self.connected:
            return False
        return is_hopeless(client.servers, client.failures, self._files)

    @property
    def latency(self) -> Latency | None:
        """How long writes and pings took; None = there is no connection yet, or not any more. Any thread."""
        client = self._client
        return None if client is None else client.latency

    @property
    def queued_calls(self) -> int:
        """Calls that wait to be sent."""
        return self.kazoo.queued_calls

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def remove_session_listener(self, listener: SessionListener) -> None:
        """Tell a listener nothing more; one that is not there is fine. Any thread."""
        self._listeners = [other for other in self._listeners if other != listener]

    def unwatch(self, path: str, function: WatchFunction) -> None:
        """Call this function no more for what is at or below the path. Does not block, nor tell the server.

        Fine without a connection, or when another function has taken its place.
        """
        if self._client is not None:
            self._client.unwatch(path, function)

    def connect(self, timeout: float | None = None) -> None:
        """Connect; blocks until it works.

        :param timeout: give up after this many seconds; None = `disconnect` from another thread ends the wait.
        :raises ZKConnectionError: not connected in time, or each server refuses us for a reason that lasts. The
            text has a sentence for each server, see `trouble`.
        """
        if self._client is not None:
            return
        client = self._make_client()
        client.add_listener(self._on_state)
        with self._starting:
            if self._closing.is_set():
                raise ZKConnectionError("stopped before connecting to ZooKeeper")
            self._client = client
            # Kazoo tries on in its own thread; start() would give up and begin anew.
            client.start_async()
        self._wait_for_session(timeout)
        if client.chroot:
            try:
                client.make_chroot()
            except KazooException as error:
                reason = type(error).__name__
                raise ZKConnectionError(f"chroot {client.chroot} cannot be created: {reason}") from None

    def _wait_for_session(self, timeout: float | None) -> None:
        """Raises ZKConnectionError: not in time, not ever, or someone ends the connection."""
        deadline = math.inf if timeout is None else monotonic() + timeout
        self._outage.begin(monotonic())
        pause = TELL_SECONDS if timeout is None else LOOK_SECONDS
        while not self.wait_connected(max(0.0, min(pause, deadline - monotonic()))):
            if self._closing.is_set():
                raise ZKConnectionError("stopped while connecting to ZooKeeper")
            if timeout is None:
                self.look_after()
            elif monotonic() >= deadline or self.hopeless:
                reasons = self.trouble()
                self._close()
                raise ZKConnectionError(self._no_answer(reasons, timeout))

    def _no_answer(self, reasons: list[str], timeout: float) -> str:
        if len(reasons) == 1:
            return f"no connection to {reasons[0]}"
        head = f"no answer from ZooKeeper at {self.hosts} within {timeout:g} s"
        if reasons:
            return "\n".join([f"{head}:", *reasons])
        return f"{head}; check zookeeper-servers (is it the TLS port?) and zookeeper-tls"

    def _make_client(self) -> WatchedClient:
        if any(self.tls_files) and self._files is None:
            raise ZKConnectionError("zookeeper-tls needs cert, key and ca")
        # Not before it is needed: with another Kazoo the import is what fails.
        from nodepool.zk import wire

        return wire.WatchedClient(
            self.hosts,
            timeout=self.timeout,
            # A session lives on with a quorum that is back, but only for its timeout. Kazoo makes this up to 1.4 times
            # as long.
            longest_pause=min(3.0, self.timeout / 8),
            tls=self._files,
            read_only=self.read_only,
        )

    def disconnect(self) -> None:
        """Close the session; its ephemeral znodes vanish. Bounded by the session timeout."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._close()

    def _close(self) -> None:
        # Two threads may come here, when one stops what the other waits for.
        with self._starting:
            client, self._client = self._client, None
        if client is None:
            return
        client.remove_listener(self._on_state)
        client.stop()
        client.close()

    def reset_hosts(self, hosts: str) -> None:
        """Use another server list from the next connection attempt on (rule G-13).

        :raises ZKException: another chroot, which a running client cannot change to.
        """
        if self._client is not None:
            try:
                self._client.set_hosts(hosts)
            except ConfigurationError as error:
                raise ZKException(str(error)) from None
        self.hosts = hosts

    # -- names of drivers written for 11.0.0 --

    resetHosts = reset_hosts

    @property
    def client(self) -> Any:
        """Kazoo's client. Raises ZKConnectionError: there is none yet."""
        return self.kazoo

    def commitTransaction(self, tr: Any) -> list[Any]:
        """Commit a transaction of Kazoo; blocks. Returns the results, or raises the first error among them."""
        results: list[Any] = tr.commit()
        for outcome in results:
            self.log.debug("Transaction response %r", outcome)
        for outcome in results:
            if isinstance(outcome, Exception):
                raise outcome
        return results

    def logConnectionRetryEvent(self) -> None:
        """Log that a connection is tried again, unless that was logged in the last ten seconds."""
        now = monotonic()
        if now >= self._retry_logged + RETRY_LOG_SECONDS:
            self._retry_logged = now
            self.log.warning("Retrying zookeeper connection")

    def wait_connected(self, timeout: float) -> bool:
        """Wait until there is a live session, at most ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self.connected or self._closing.is_set(), timeout) and self.connected

    def _on_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self.session_epoch += 1
            self.log.warning("ZooKeeper session lost")
            self._outage.begin(monotonic())
        elif state == KazooState.SUSPENDED:
            self.log.warning("ZooKeeper connection suspended")
            self._outage.begin(monotonic())
        else:
            seconds = self._outage.end(monotonic())
            self.log.info("ZooKeeper connected%s", "" if seconds is None else f", after {seconds:.0f} s without")
        name = {KazooState.LOST: "lost", KazooState.SUSPENDED: "suspended"}.get(state, "connected")
        for listener in list(self._listeners):
            with Guard(self.log, "Error in a session listener"):
                try:
                    listener(name)
                except ZKConnectionError as closing:
                    # Someone ends the connection at this moment.
                    self.log.debug("Nothing more is made of a connection that is %s: %s", name, closing)
        # Kazoo sets its own state before it calls listeners, so a waiter sees the new one.
        with self._changed:
            self._changed.notify_all()


# `Outage`: what is logged, and when, while there is no connection to ZooKeeper (rule J-4).

#: A cause that is not known is waited for so long, in seconds.
CAUSE_SECONDS: Final = 5.0
#: So often the log is reminded, in seconds.
REMIND_SECONDS: Final = 60.0


class Outage:
    """Thread-safe; ``_lock`` guards the times, all in monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self._told: float | None = None

    def begin(self, now: float) -> None:
        """There is no connection, or none yet."""
        with self._lock:
            if self._since is None:
                self._since, self._told = now, None

    def end(self, now: float) -> float | None:
        """There is a connection. Returns how long there was none, in seconds; None = nothing was logged of that."""
        with self._lock:
            since, told, self._since = self._since, self._told, None
        return None if since is None or told is None else now - since

    def line(self, now: float, reasons: Sequence[str], hosts: str) -> str | None:
        """What is to be logged now; None = nothing.

        :param reasons: a sentence for each server that failed, each with the server.
        :param hosts: all servers.
        """
        with self._lock:
            if self._since is None:
                return None
            seconds = now - self._since
            if self._told is None:
                if not reasons and seconds < CAUSE_SECONDS:
                    return None
            elif now - self._told < REMIND_SECONDS:
                return None
            again = self._told is not None
            self._told = now
        head = f"No connection to ZooKeeper for {seconds:.0f} s" if again else "No connection to ZooKeeper"
        if not reasons:
            return f"{head}: no answer from {hosts} yet"
        return f"{head}: {reasons[0]}" if len(reasons) == 1 else "\n".join([f"{head}:", *reasons])


# Contenders of locks that may be there although this process does not want them any more.
#
# The answer to the write that makes a contender may be lost, and so may the deletion of a contender. It would stay as
# long as the session, and no other process could get the lock. So it is searched for and deleted, however long that is.


class OrphanedContenders:
    """Contenders that are to go, and may be there. Any thread. ``_lock`` guards their set."""

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._prefixes: set[str] = set()
        client.add_session_listener(self._on_session)

    def __len__(self) -> int:
        return len(self._prefixes)

    def add(self, prefix: str) -> None:
        """Look for a contender, with this connection and each later one, until it is surely not there. Does not block.

        :param prefix: its path, with or without the sequence number; no other process uses it.
        """
        with self._lock:
            self._prefixes.add(prefix)
        if self._client.connected:
            # Without a connection it is looked for with the next one.
            with contextlib.suppress(ZKConnectionError):
                self._look_for(prefix)

    def _on_session(self, state: str) -> None:
        if state == "connected":
            with self._lock:
                prefixes = list(self._prefixes)
            for prefix in prefixes:
                self._look_for(prefix)

    def _look_for(self, prefix: str) -> None:
        kazoo = self._client.kazoo
        lock_dir = prefix.rpartition("/")[0]
        # Another server of the ensemble may not know yet what the one that we lost has passed on.
        kazoo.call(kazoo.operations.sync(lock_dir), Reply())
        kazoo.call(kazoo.operations.children(lock_dir), Reply(partial(self._on_listing, prefix)))

    def _on_listing(self, prefix: str, names: list[str] | None, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, NoNodeError):
            return  # with the next connection
        lock_dir, _, start = prefix.rpartition("/")
        found = [name for name in names or () if name.startswith(start)]
        if not found:
            self._forget(prefix, None, None)
        kazoo = self._client.kazoo
        for name in found:
            self.log.warning("Releasing %s: a contender of this process was left there without an answer", lock_dir)
            kazoo.call(kazoo.operations.delete(f"{lock_dir}/{name}"), Reply(partial(self._forget, prefix)))

    def _forget(self, prefix: str, _: Any, error: BaseException | None) -> None:
        if error is None or isinstance(error, NoNodeError):
            with self._lock:
                self._prefixes.discard(prefix)
