# SPDX-License-Identifier: Apache-2.0
"""`Room`: is there room for another request?

It has every limit that a pool checks before it takes a request. The handler checks the limits of pool and provider for
each node (`HandlerHooks.hasRemainingQuota`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodepool.driver import gateway
from nodepool.launcher.pool import tenants
from nodepool.logconfig import OnBehalfOf
from nodepool.model.reasons import Reason, tenant_order

if TYPE_CHECKING:
    import logging

    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.launcher.pool.desk import Desk
    from nodepool.launcher.pool.pass_context import PassContext
    from nodepool.model.node import Node
    from nodepool.plan.queue import RequestKind


class Room:
    """Owned by the pool worker's thread. Nothing blocks, but for `has_place`."""

    def __init__(self, pool: PassContext, desk: Desk, log: logging.Logger) -> None:
        self._pool = pool
        self._desk = desk
        self._tenants = tenants.TenantCheck(pool, log)

    def begin_pass(self) -> None:
        """Forget what tenants used in the pass before."""
        self._tenants.begin_pass()

    # -- the pool and its provider --

    @property
    def paused(self) -> bool:
        """Does a request of this pool wait for room? Then no new one is accepted (A-9)."""
        return self._desk.paused

    @property
    def why_paused(self) -> Reason:
        """What the request waits for that pauses the pool."""
        return self._desk.why_paused

    @property
    def provider_paused(self) -> str | None:
        """Why the provider launches nothing now; None = it does."""
        return gateway.paused_reason(self._pool.provider)

    @property
    def max_concurrency(self) -> float:
        """Launches that may run in the provider (A-10); 0 = none ever, below 0 = no limit."""
        return self._pool.max_concurrency

    @property
    def launches_running(self) -> int:
        """In the provider, over all of its pools."""
        return self._pool.launches_running()

    def ahead(self, kind: RequestKind, handler: NodeRequestHandler) -> float:
        """How many requests of a kind, the handler's included, have room for sure; 1 = nobody knows."""
        if self.tenant_limited(kind):
            return 1
        with OnBehalfOf(handler.log):
            room = gateway.room_ahead(handler)
        limit = self.max_concurrency
        return min(room, limit - self.launches_running if limit > 0 else math.inf)

    # -- the tenant --

    def tenant_limited(self, kind: RequestKind) -> bool:
        """Has the tenant of such requests any limits?"""
        return self._tenants.limits(kind)

    def tenant_order(self, kind: RequestKind) -> Reason | None:
        """Why a request waits until another one of its tenant has room."""
        cause = self._tenants.reserved_for(kind)
        return None if cause is None else tenant_order(kind.tenant_name or "", cause)

    def tenant_shortage(self, kind: RequestKind, nodes: Sequence[Node] | None = None) -> Reason | None:
        """Why one more request of a kind would not stay within its tenant's limits; None = it would.

        :param nodes: that it gets; None = new ones.
        """
        return self._tenants.exceeded(kind, nodes)

    def keep_for_tenant(self, kind: RequestKind, cause: Reason) -> None:
        """A request waits for room in its tenant's limits: in this pass later ones of the tenant wait, too.

        :param cause: what it waits for.
        """
        self._tenants.reserve(kind, cause)

    def taken(self, kind: RequestKind) -> None:
        """A request of a kind was taken in this pass."""
        self._tenants.add(kind)

    def has_place(self, node: Node, *, reused: bool = False) -> bool:
        """Is there room in its tenant's limits for a node that is stored? See `tenants.has_place`. Blocks."""
        return tenants.has_place(node, self._pool.tenant_limits(), self._pool.cache, reused=reused)
