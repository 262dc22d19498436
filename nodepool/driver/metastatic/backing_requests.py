# SPDX-License-Identifier: Apache-2.0
"""`BackingRequests`: the node requests by which a provider gets backing nodes (rules T-1 to T-4)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.exceptions import ZKConnectionError, ZKException
from nodepool.model import states
from nodepool.model.request import NodeRequest

if TYPE_CHECKING:
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.plan.backing import BackingKind
    from nodepool.zk.zookeeper import ZooKeeper

PRIORITY: Final = "100"
#: Seconds from the end of a request until it is deleted. Kazoo's TreeCache, which Zuul uses, may keep a znode for ever
#: that is deleted while the cache still reads its last change.
LINGER_SECONDS: Final = 1.0


@dataclass
class OpenRequest:
    """A request of ours that has not ended.

    :param claim_until: its node could not be had at once; until then it is tried again (monotonic seconds).
    """

    id: str
    kind: BackingKind
    claim_until: float | None = None


class BackingRequests:
    """Requests are ephemeral: they go with our session. Used by one thread, except for the cache's listener.

    :param owner: goes into the requests as their requestor.
    :param on_change: called in the cache thread when one of ours changed; must not block.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        owner: str,
        log: Log,
        on_change: Callable[[], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._zk = zk
        self._owner = owner
        self.log = log
        self._on_change = on_change
        self._clock = clock
        #: Oldest first.
        self.open: dict[str, OpenRequest] = {}
        #: Requests that have ended, and when they are to be deleted.
        self._ended: dict[str, float] = {}
        #: event id -> kind, of requests whose creation gave no answer.
        self._unanswered: dict[str, BackingKind] = {}
        if zk.cache is not None:
            zk.cache.requests.add_listener(self._note)

    def _note(self, request_id: str) -> None:
        if not request_id or request_id in self.open:
            self._on_change()

    @property
    def busy(self) -> bool:
        """Is there anything left to do?"""
        return bool(self.open or self._ended or self._unanswered)

    def of(self, kind: BackingKind) -> list[str]:
        """Ids of open requests for one kind of backing node, oldest first."""
        return [request.id for request in self.open.values() if request.kind == kind]

    def submit(self, kind: BackingKind, waiting: int) -> str:
        """Ask for one more backing node; blocks for a round trip.

        :param waiting: how many nodes it is for.
        """
        request = NodeRequest()
        request.state = states.REQUESTED
        request.node_types = [kind.backing_label]
        request.requestor = self._owner
        request.event_id = uuid.uuid4().hex
        try:
            self._zk.storeNodeRequest(request, PRIORITY)
        except ZKConnectionError:
            self._unanswered[request.event_id] = kind
            raise
        request_id = request.key
        self.open[request_id] = OpenRequest(request_id, kind)
        self.log.info(
            "Request %s for a backing node of label %s: %d node(s) of label %s wait",
            request_id,
            kind.backing_label,
            waiting,
            kind.label,
        )
        return request_id

    def find_unanswered(self) -> None:
        """After a lost connection: is there a request of whose creation we have not heard? Needs a complete cache."""
        if not self._unanswered:
            return
        for request in self._zk.nodeRequestIterator():
            kind = self._unanswered.get(request.event_id or "")
            if kind is not None and request.requestor == self._owner and request.id is not None:
                self.open[request.id] = OpenRequest(request.id, kind)
        self._unanswered.clear()

    def look(self, request_id: str) -> NodeRequest | None:
        """The request as it is now; None = it is gone. Blocks only if the cache does not have it."""
        cached = None if self._zk.cache is None else self._zk.cache.requests.get(request_id)
        return cached or self._zk.getNodeRequest(request_id)

    def end(self, request_id: str) -> None:
        """Nothing more is wanted of a request that has ended: it will be deleted."""
        self.open.pop(request_id, None)
        self._ended[request_id] = self._clock() + LINGER_SECONDS

    def cancel(self, request_id: str) -> None:
        """Take back a request that nobody waits for; blocks for a round trip."""
        self.log.info("Withdrawing request %s: no node waits for it any more", request_id)
        self._delete(request_id)
        self.open.pop(request_id, None)

    def forget(self, request_id: str) -> None:
        """It is gone."""
        self.open.pop(request_id, None)

    def delete_ended(self) -> float:
        """Delete what is due; seconds until the next is."""
        now = self._clock()
        for request_id in [request_id for request_id, when in self._ended.items() if when <= now]:
            self._delete(request_id)
            del self._ended[request_id]
        return min((when - now for when in self._ended.values()), default=float("inf"))

    def _delete(self, request_id: str) -> None:
        self._zk.deleteNodeRequest(NodeRequest(id=request_id))

    def close(self) -> None:
        """Take everything back. What cannot be deleted goes with the session."""
        if self._zk.cache is not None:
            self._zk.cache.requests.remove_listener(self._note)
        self.find_unanswered()
        for request_id in [*self.open, *self._ended]:
            try:
                self._delete(request_id)
            except ZKException as error:
                self.log.debug("Request %s: %s", request_id, error)
        self.open.clear()
        self._ended.clear()
