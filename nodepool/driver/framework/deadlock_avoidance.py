# SPDX-License-Identifier: Apache-2.0
"""`DeadlockAvoidance`: a request that waits for room while it holds nodes yields to an earlier one (Q-10, Q-12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.driver.framework.quota_support import QuotaSupport, QuotaUnknown
from nodepool.model import states
from nodepool.plan import deadlock

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.driver.framework.handler_hooks import HandlerHooks
    from nodepool.driver.framework.nodeset import NodeSet
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest


class DeadlockAvoidance:
    """Of one request. What is decided here: `plan.deadlock`.

    :param hooks: what the driver says of the request.
    :param node_set: what the request has.
    """

    def __init__(self, hooks: HandlerHooks, node_set: NodeSet) -> None:
        self._hooks = hooks
        self._node_set = node_set
        #: Until when it waits for room without a look whether it is in somebody's way (monotonic seconds).
        self._patient_until = 0.0
        #: After it yielded: the request that comes first, the label that there was no room for, and the configuration.
        self._yielded_to: tuple[str, str, ProviderConfig] | None = None

    def begin(self) -> None:
        """The request begins to wait for room."""
        self._patient_until = monotonic() + deadlock.PATIENCE_SECONDS

    def look(self, *, at_once: bool) -> NodeRequest | None:
        """A request that comes first and waits, too, for what this one holds; None = there is none, or not looked yet.

        :param at_once: do not wait until patience is at an end.
        """
        # All nodes are looked at, and passes are many: not in each.
        if not at_once and monotonic() < self._patient_until:
            return None
        self.begin()
        hooks = self._hooks
        cache, label = hooks.zk.cache, self._node_set.next_label()
        if cache is None or label is None or not self._node_set.nodes:
            return None
        place = (hooks.provider.name, self._node_set.full_pool())
        first = deadlock.stands_before(hooks.request, *place, cache.nodes.values(), cache.requests.get)
        self._yielded_to = None if first is None else (first.key, label, hooks.provider)
        return first

    def in_the_way(self) -> list[Node]:
        """Nodes of this request that must go, which has yielded: the one that comes first needs their room."""
        cache = self._hooks.zk.cache
        first = None if self._yielded_to is None or cache is None else cache.requests.get(self._yielded_to[0])
        if first is None or cache is None or first.state != states.PENDING:
            return []
        its_nodes = [node for node in cache.nodes.values() if node.allocated_to == first.id]
        if not its_nodes or not self._lacks_shared_room(first, its_nodes):
            return []
        return deadlock.in_the_way(first, its_nodes, self._node_set.nodes)

    def _lacks_shared_room(self, first: NodeRequest, its_nodes: list[Node]) -> bool:
        """Is it not for the limits of another pool that it waits?"""
        hooks, pool = self._hooks, its_nodes[0].pool or ""
        if pool == hooks.pool.name or not isinstance(hooks.manager, QuotaSupport):
            return True
        settings = hooks.provider.pools.get(pool)
        label = next(iter(deadlock.missing_labels(first, its_nodes)), None)
        try:
            return settings is not None and label is not None and hooks.manager.poolHasRoom(settings, label)
        except (LookupError, QuotaUnknown):
            # Another launcher knows the pool otherwise.
            return False

    def is_pointless(self) -> bool:
        """After it yielded, would the request only take the same nodes to give them back once more?

        It would until the one that comes first is served or given back, there is room, or free nodes are enough.
        Reads the cache only.
        """
        if self._yielded_to is None:
            return False
        hooks = self._hooks
        first_id, label, provider = self._yielded_to
        first = None if hooks.zk.cache is None else hooks.zk.cache.requests.get(first_id)
        if first is None or first.state != states.PENDING or hooks.provider is not provider:
            return False
        wanted = hooks.request.node_types
        if hooks.request.reuse and len(hooks.pw.ready_nodes.choose(wanted)) == len(wanted):
            return False
        return not gateway.has_room_now(hooks, label)
