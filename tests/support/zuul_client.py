# SPDX-License-Identifier: Apache-2.0
"""The client side as Zuul really runs it: the classes of the ``zuul`` package, with its caches on."""

from __future__ import annotations

import functools
import logging
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from configparser import ConfigParser
from types import SimpleNamespace
from typing import Any

from tests.support.certificates import Certificates

with warnings.catch_warnings():
    # Modules that zuul imports use names that PyYAML and others have deprecated.
    warnings.simplefilter("ignore")
    from zuul import model
    from zuul.lib.tracing import Tracing
    from zuul.nodepool import Nodepool
    from zuul.zk import ZooKeeperClient
    from zuul.zk.nodepool import NodeRequestEvent, ZooKeeperNodepool

#: How long a launcher may take. Only waited for when something is broken.
DEADLINE_SECONDS = 45.0


@functools.cache
def _tracing() -> Any:
    """Every Zuul daemon makes one, also without a tracing server; submitting a request needs it."""
    return Tracing(ConfigParser())


def nodeset_of(labels: Sequence[str]) -> Any:
    """As a job has it, before it has nodes."""
    nodeset = model.NodeSet()
    for number, label in enumerate(labels):
        nodeset.addNode(model.Node([f"node{number}"], label))
    return nodeset


class ZuulClient:
    """One Zuul: a scheduler (request and node caches, completion events) and an executor (locks, node states).

    :param hosts: connection string of the TLS port, with the chroot.
    :param session_seconds: session timeout.
    :param node_cache: Zuul schedulers have it on; it only costs packets when nobody looks at it.
    """

    def __init__(
        self, hosts: str, certificates: Certificates, *, session_seconds: float = 20.0, node_cache: bool = True
    ) -> None:
        _tracing()
        self.system_id = uuid.uuid4().hex
        self.connection = ZooKeeperClient(hosts, timeout=session_seconds, **certificates.options())
        self.nodepool = Nodepool(self.connection, self.system_id, None)
        self._changed = threading.Condition()
        self._refused: list[Any] = []
        #: Request id -> (request, time.monotonic() of the event). Requests as Zuul's own cache holds them.
        self.completed: dict[str, tuple[Any, float]] = {}
        #: Called with each completed request, in Zuul's cache thread; must not block.
        self.on_completed: Callable[[Any], None] | None = None
        self.cache = ZooKeeperNodepool(
            self.connection,
            enable_node_request_cache=True,
            node_request_event_callback=self._request_event,
            enable_node_cache=node_cache,
        )

    def start(self) -> None:
        """Connects; blocks until the session is there."""
        self.connection.connect()

    def stop(self) -> None:
        """Ends the session; ZooKeeper drops its locks at once."""
        self.connection.disconnect()

    # -- a request

    def submit(
        self,
        labels: Sequence[str],
        *,
        priority: int = 200,
        relative_priority: int = 0,
        provider: str | None = None,
        tenant: str = "tenant",
    ) -> Any:
        """Submits a request through Zuul's `requestNodes`. Returns the NodeRequest, with its ``nodeset`` attached."""
        nodeset = nodeset_of(labels)
        job = SimpleNamespace(nodeset=nodeset, uuid=uuid.uuid4().hex, name="job")
        event = SimpleNamespace(zuul_event_id=uuid.uuid4().hex)
        request = self.nodepool.requestNodes(
            uuid.uuid4().hex, job, tenant, "pipeline", provider, priority, relative_priority, event
        )
        request.nodeset = nodeset
        return request

    def wait(self, request: Any, seconds: float = DEADLINE_SECONDS) -> Any:
        """Blocks until the completion event came. Returns the request as Zuul's cache has it, with its ``nodeset``.

        :raises AssertionError: no event within ``seconds``.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: request.id in self.completed, seconds):
                state = self.cached_state(request)
                raise AssertionError(f"no event for request {request.id} within {seconds:g} s, state {state}")
            completed = self.completed[request.id][0]
        completed.nodeset = request.nodeset
        return completed

    def cached_state(self, request: Any) -> str | None:
        """State of a request in Zuul's cache; None when it is not there."""
        # Zuul's cache has no public look at one request.
        cached = self.cache._node_request_cache.get(request.id)  # noqa: SLF001
        return None if cached is None else cached.state

    def submit_and_wait(self, labels: Sequence[str], **options: Any) -> Any:
        """Submits and waits; returns the completed request, with its ``nodeset`` attached."""
        return self.wait(self.submit(labels, **options))

    def accept(self, request: Any) -> Any:
        """Locks the nodes and deletes the request, as an executor does. Returns the NodeSet with the real nodes.

        :raises Exception: Zuul could not lock the nodes, they are not allocated to the request, or the request could
            not be deleted. Some nodes may be locked then; see `unlock_refused`.
        """
        nodeset = request.nodeset.copy()
        try:
            self.nodepool.acceptNodes(request, nodeset)
        except Exception:
            with self._changed:
                self._refused += [node.lock for node in nodeset.getNodes() if node.lock is not None]
            raise
        with self._changed:
            self.completed.pop(request.id, None)
        return nodeset

    def unlock_refused(self) -> None:
        """Gives back the locks of nodes that could not be accepted. May be called again after an error.

        Zuul 14.3 forgets them when the connection is lost while it deletes the request: they stay until it ends.
        """
        while True:
            with self._changed:
                if not self._refused:
                    return
                lock = self._refused[-1]
            lock.release()
            with self._changed:
                if lock in self._refused:
                    self._refused.remove(lock)

    def use(self, nodeset: Any) -> None:
        """Marks the nodes in use, right before the job's first task."""
        self.nodepool.useNodeSet(nodeset, "tenant", "project")

    def give_back(self, nodeset: Any) -> None:
        """Marks the nodes used, if they were in use, and unlocks them."""
        self.nodepool.returnNodeSet(nodeset, None, "tenant", "project", 1)

    def cancel(self, request: Any) -> None:
        """Deletes a request, in whatever state."""
        self.nodepool.cancelRequest(request)

    def revise(self, request: Any, relative_priority: int) -> bool:
        """Changes the relative priority. False when the request is locked: the launcher works on it."""
        current = self.cache.getNodeRequest(request.id, cached=True)
        return self.nodepool.reviseRequest(current, relative_priority) is not False

    # -- holds

    def hold(self, nodeset: Any, *, seconds: int | None = None) -> Any:
        """Autohold: puts the nodes on hold for a hold request and unlocks them. Returns the hold request."""
        hold = model.HoldRequest()
        hold.tenant, hold.project, hold.job, hold.ref_filter = "tenant", "project", "job", ".*"
        hold.reason, hold.max_count, hold.node_expiration = "a test", 1, seconds
        self.nodepool.zk_nodepool.storeHoldRequest(hold)
        self.nodepool.holdNodeSet(nodeset, hold, SimpleNamespace(uuid=uuid.uuid4().hex), 1)
        self.give_back(nodeset)
        return hold

    def delete_hold(self, hold: Any) -> None:
        """Deletes a hold request; Zuul marks its nodes used."""
        self.nodepool.zk_nodepool.deleteHoldRequest(hold, None)

    # -- the connection

    @property
    def session(self) -> tuple[int, bytes]:
        """Id and password of the session."""
        client_id: tuple[int, bytes] = self.connection.client.client_id
        return client_id

    def _request_event(self, request: Any, event: Any) -> None:
        if event == NodeRequestEvent.COMPLETED and request.requestor == self.system_id:
            with self._changed:
                self.completed[request.id] = (request, time.monotonic())
                self._changed.notify_all()
            if self.on_completed is not None:
                self.on_completed(request)


class ZuulLog(logging.Handler):
    """Collects what Zuul logs at WARNING and above, e.g. exceptions of its caches."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        # On a busy machine the first attempt to connect may take too long. A connection that is lost says more.
        if record.getMessage() != "Retrying zookeeper connection":
            self.records.append(record)

    def text(self) -> str:
        """The records, one message per line, with tracebacks."""
        formatter = logging.Formatter("%(levelname)s %(name)s: %(message)s")
        return "\n".join(formatter.format(record) for record in self.records)

    def __enter__(self) -> ZuulLog:
        logging.getLogger("zuul").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("zuul").removeHandler(self)
