# SPDX-License-Identifier: Apache-2.0
"""`PoolView` and `RequestView`: what `plan.triage` sees of a pool, and of one request in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.logconfig import OnBehalfOf
from nodepool.model.reasons import NO_READY_NODE, Reason, ReasonCode, joined, reason_of
from nodepool.plan.assignment import PoolInfo, screen

if TYPE_CHECKING:
    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.launcher.pool.pass_context import PassContext
    from nodepool.launcher.pool.room import Room
    from nodepool.launcher.pool.turns import Turns
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.plan.assignment import Verdict
    from nodepool.plan.node_choice import ReadyNodes
    from nodepool.plan.queue import RequestKind

#: Seconds for which a driver is not asked again whether it could serve a kind of request.
OBJECTION_SECONDS: Final = 5.0
#: Seconds between two attempts to keep a node ready where only the refusals of the cloud tell that it is full.
PROBE_SECONDS: Final = 60.0
#: Kinds of which answers are remembered at most.
MAX_KINDS: Final = 10_000

MakeHandler = Callable[["NodeRequest"], "NodeRequestHandler"]


class PoolView:
    """`plan.triage.KindView` of a pool. Owned by the pool worker's thread.

    A kind is judged against every registered pool. With hundreds of kinds waiting (requests that combine labels) that
    would be most of a pass, although the registry changes seldom: verdicts are kept until it does.

    :param make_handler: asks the driver for the handler of a request; may raise anything.
    """

    def __init__(
        self, pool: PassContext, ready: ReadyNodes, room: Room, turns: Turns, make_handler: MakeHandler
    ) -> None:
        self.pool = pool
        self.ready = ready
        self.room = room
        self.turns = turns
        self.make_handler = make_handler
        self.launches = True
        self._me: PoolInfo | None = None
        self._registered: Sequence[PoolInfo] = ()
        self._absent: Sequence[PoolInfo] = ()
        self._verdicts: dict[RequestKind, Verdict] = {}
        #: What the driver said of a kind: until when that holds, for which configuration, and what.
        self._objections: dict[RequestKind, tuple[float, object, Reason | None]] = {}
        #: Label -> when the next attempt may be made, see `may_probe` (monotonic seconds).
        self._probe_at: dict[str, float] = {}

    def begin_pass(self, labels: frozenset[str], priority: int) -> None:
        """Look at the registered pools and the provider of this pass.

        :param labels: that this pool says it has. ``priority``: that it says it has.
        """
        pool = self.pool
        # The registry gives the same object as long as it does not change.
        registered, absent = pool.registered_pools(), pool.absent_pools()
        me = PoolInfo(pool.launcher_id, pool.provider_name, labels, priority, self.room.paused)
        same = self._registered is registered and self._me == me and list(self._absent) == list(absent)
        if not same or len(self._verdicts) > MAX_KINDS:
            self._verdicts.clear()
        self._me, self._registered, self._absent = me, registered, absent
        self.launches = pool.provider.LAUNCHES
        self.room.begin_pass()
        self.turns.begin_pass(pool.launcher_id, registered)

    def screened(self, kind: RequestKind) -> Verdict:
        found = self._verdicts.get(kind)
        if found is None:
            if self._me is None:
                raise RuntimeError("no pass has begun")
            found = self._verdicts[kind] = screen(kind, self._me, self._registered, self._absent)
        return found

    def held(self, kind: RequestKind) -> Reason | None:
        return self.pool.held(kind.labels)

    def driver_agreed(self, kind: RequestKind) -> bool:
        known = self._objections.get(kind)
        return known is not None and self._holds(known) and known[2] is None

    def objection(self, kind: RequestKind, handler: NodeRequestHandler) -> Reason | None:
        """Why the driver can never serve such requests; asked once in a while. May raise anything."""
        known = self._objections.get(kind)
        if known is not None and self._holds(known):
            return known[2]
        if len(self._objections) > MAX_KINDS:
            self._objections.clear()
        with OnBehalfOf(handler.log):
            found = _reason(gateway.get_declined_reasons(handler))
        self._objections[kind] = (monotonic() + OBJECTION_SECONDS, handler.provider, found)
        return found

    def may_probe(self, label: str) -> bool:
        """May a ready node of a label be tried for now, although the cloud refused one? True = it is tried."""
        now = monotonic()
        due = now >= self._probe_at.get(label, now)
        if due:
            self._probe_at[label] = now + PROBE_SECONDS
        return due

    def no_ready_node(self, labels: Sequence[str]) -> Reason:
        free = {label: self.ready.count(label) for label in labels}
        return gateway.wait_reason(self.pool.provider, self.pool.pool_name, labels, free) or NO_READY_NODE

    def _holds(self, known: tuple[float, object, Reason | None]) -> bool:
        return known[1] is self.pool.config and monotonic() < known[0]


class RequestView:
    """`plan.triage.HeadView` of one request."""

    # Not `cached_property`: in Python 3.11 each of them takes a lock, and there is a view for each request.
    __slots__ = (
        *("_handler", "_kind", "_launches_running", "_provider_paused", "_request", "_room", "_turns", "_view"),
        *("launches", "ready"),
    )

    def __init__(self, view: PoolView, kind: RequestKind, request: NodeRequest) -> None:
        self._view = view
        self._room = view.room
        self._kind = kind
        self._request = request
        self._handler: NodeRequestHandler | None = None
        self._turns: Sequence[PoolInfo] | None = None
        self._launches_running: int | None = None
        self._provider_paused: tuple[str | None] | None = None
        self.launches = view.launches
        self.ready = view.ready

    @property
    def handler(self) -> NodeRequestHandler:
        """Of a copy of the request, which it may change. The driver may raise anything."""
        if self._handler is None:
            self._handler = self._view.make_handler(self._request.copy())
        return self._handler

    @property
    def turns(self) -> Sequence[PoolInfo]:
        """Pools whose turn it is before this one."""
        if self._turns is None:
            self._turns = self._view.turns.of_others(self._kind, self._request)
        return self._turns

    @property
    def turn_of_another(self) -> bool:
        return bool(self.turns)

    @property
    def sibling_serves(self) -> bool:
        return self._view.pool.sibling_serves(self._request.key)

    @property
    def max_concurrency(self) -> float:
        return self._room.max_concurrency

    @property
    def paused(self) -> bool:
        return self._room.paused

    @property
    def why_paused(self) -> Reason:
        return self._room.why_paused

    @property
    def launches_running(self) -> int:
        if self._launches_running is None:
            self._launches_running = self._room.launches_running
        return self._launches_running

    @property
    def provider_paused(self) -> str | None:
        if self._provider_paused is None:
            self._provider_paused = (self._room.provider_paused,)
        return self._provider_paused[0]

    @property
    def basic_objection(self) -> Reason | None:
        return _reason(gateway.basic_decline_reasons(self.handler))

    @property
    def objection(self) -> Reason | None:
        return self._view.objection(self._kind, self.handler)

    @property
    def tenant_limited(self) -> bool:
        return self._room.tenant_limited(self._kind)

    @property
    def tenant_order(self) -> Reason | None:
        return self._room.tenant_order(self._kind)

    def tenant_shortage(self, nodes: Sequence[Node] | None = None) -> Reason | None:
        return self._room.tenant_shortage(self._kind, nodes)

    def no_ready_node(self, labels: Sequence[str]) -> Reason:
        return self._view.no_ready_node(labels)

    @property
    def shortage(self) -> Reason | None:
        handler, label = self.handler, self._request.node_types[0]
        with OnBehalfOf(handler.log):
            if gateway.has_room_now(handler, label):
                return None
            found = handler.node_set.why_no_room()
        return None if found.code is ReasonCode.ROOM_HIDDEN and self._view.may_probe(label) else found


def _reason(texts: Sequence[str]) -> Reason | None:
    return joined([reason_of(text) for text in texts]) if texts else None
