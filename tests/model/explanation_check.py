# SPDX-License-Identifier: Apache-2.0
"""Every request that waits has an explanation, and its numbers are those that the plan decided with."""

# The explanations are compared with what a pass has judged.
# ruff: noqa: SLF001
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.launcher.status import PoolStatusMaker
from nodepool.model import states
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.plan.explain import explain_request
from nodepool.plan.observed import Observed
from nodepool.plan.triage import RequestKind, Stage

if TYPE_CHECKING:
    from nodepool.launcher.pool.worker import PoolWorker
    from nodepool.model.request import NodeRequest
    from tests.model.world import World

#: Only said of a pool that tells nothing.
SILENT = {ReasonCode.STATUS_MISSING.value, ReasonCode.POOL_MISSING.value}
KNOWN = {code.value for code in ReasonCode}


class ExplanationCheck:
    """Looks at a pool after each of its passes, as ``nodepool explain`` does, and at its plan."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: Pool -> nodes as its launcher knew them after the pass before.
        self._nodes: dict[str, dict[str, int]] = {}
        #: Pool -> what its paused requests waited for then.
        self._reasons: dict[str, dict[str, Reason]] = {}
        #: Pool -> why kinds of requests waited then.
        self._kinds: dict[str, object] = {}

    def look(self, pool: PoolWorker) -> None:
        """A pass of a pool is over."""
        for problem in (*self._unexplained(pool), *self._wrong_numbers(pool)):
            self._world.violation(f"{pool.name}: {problem}")

    def _unexplained(self, pool: PoolWorker) -> Iterator[str]:
        """Requests that the pool knows to wait, and for which the command has no answer."""
        cache = pool.context.cache
        requests = {request.key: request for request in cache.requests.values()}
        told = PoolStatusMaker(pool.context).make(self._world.now)
        seen = Observed(
            now=self._world.now,
            requests=requests,
            nodes={node.key: node for node in cache.nodes.values()},
            registered=[pool.entry._pool],
            statuses=[told],
        )
        for request_id in pool.queue.ids():
            request = requests.get(request_id)
            if request is None or request.state != states.REQUESTED or pool.launcher_id in request.declined_by:
                # The pool hears of that in its next pass.
                continue
            found = explain_request(request, seen)
            mine = [one for one in found.pools if one.pool == f"{told.provider}/{told.pool}"]
            if len(mine) != 1 or mine[0].code not in KNOWN - SILENT or not mine[0].text or not found.text:
                yield f"request {request_id} is explained by {found}"
                continue
            explanation = pool.desk.explain(request_id)
            if explanation is None:
                yield f"request {request_id} is not on the desk"
            elif self._is_judged(pool, request) and mine[0].code != explanation.reason.code.value:
                yield f"request {request_id} is explained by {mine[0]}, the desk says {explanation}"

    @staticmethod
    def _is_judged(pool: PoolWorker, request: NodeRequest) -> bool:
        """Is it the first of its kind, as the pool knows it?"""
        bucket = pool.queue.bucket_of(request.key)
        return bucket is not None and bucket.kind == RequestKind.of(request) and bucket.head == request.key

    def _wrong_numbers(self, pool: PoolWorker) -> Iterator[str]:
        nodes = {node.key: node.mzxid for node in pool.context.cache.nodes.values()}
        before, self._nodes[pool.launcher_id] = self._nodes.get(pool.launcher_id), nodes
        paused = {case.request_id: case.reason for case in pool.desk.snapshot().requests if case.stage is Stage.PAUSED}
        old, self._reasons[pool.launcher_id] = self._reasons.get(pool.launcher_id, {}), paused
        for request_id, reason in paused.items():
            # Worked out in this pass, during which its launcher has heard of no change.
            fresh = nodes == before and old.get(request_id) is not reason
            yield from self._wrong_room(pool, reason, fresh=fresh)
        kinds = pool.desk.explanations._kinds
        if self._kinds.get(pool.launcher_id) is kinds:
            # The session was lost, and with it what was paused, before this pass had judged any.
            return
        self._kinds[pool.launcher_id] = kinds
        for kind, waiting in list(kinds.items()):
            reason = waiting.reason
            if reason.code is ReasonCode.WAIT_POOL_PAUSED:
                if not any(reason.numbers == cause.numbers and cause.text in reason.text for cause in paused.values()):
                    yield f"requests for {kind.labels} wait for {reason}, the pool for {paused}"
            elif reason.code in (ReasonCode.ROOM_TENANT, ReasonCode.WAIT_TENANT_ORDER):
                yield from self._wrong_tenant(reason)
            elif reason.numbers.get("free", 0) >= reason.numbers.get("needed", 1):
                yield f"requests for {kind.labels} wait for {reason}"

    def _wrong_room(self, pool: PoolWorker, reason: Reason, *, fresh: bool) -> Iterator[str]:
        if reason.code not in (ReasonCode.ROOM_INSTANCES, ReasonCode.ROOM_HIDDEN) or not reason.numbers:
            return
        limit, used, needed = (reason.numbers[name] for name in ("limit", "used", "needed"))
        if needed != 1:
            yield f"more is needed than a node: {reason}"
        if reason.code is ReasonCode.ROOM_HIDDEN:
            return
        if used + needed <= limit:
            yield f"there is room: {reason}"
        layouts = self._world.layouts
        if limit not in {known.max_servers for layout in layouts for known in layout.pools} | {
            layout.limit for layout in layouts
        }:
            yield f"no such limit: {reason}"
        if fresh and not self._world.create_faults:
            of_pool = f"pool {pool.pool_name}" in reason.text
            found = [node for node in pool.context.cache.nodes.values() if node.provider == pool.provider_name]
            count = sum(node.pool == pool.pool_name or not of_pool for node in found)
            if used != count:
                yield f"{count} nodes use the limit, {reason}"

    def _wrong_tenant(self, reason: Reason) -> Iterator[str]:
        numbers = reason.numbers
        missing = numbers["used"] + numbers["needed"] - numbers["limit"]
        if numbers["limit"] != self._world.setup.tenant_limit or missing <= 0:
            yield f"the tenant has room: {reason}"
