# SPDX-License-Identifier: Apache-2.0
"""What an operator can do about a request that waits or failed, or has to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from nodepool.model import states
from nodepool.model.elapsed import short
from nodepool.model.node import Node
from nodepool.model.pool_status import HostStatus, LimitStatus
from nodepool.model.reasons import ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.plan.attention import named
from nodepool.plan.explained import ABSENT, DECLINED, WAITS, PoolVerdict
from nodepool.plan.observed import Observed
from nodepool.plan.pool_summary import newest_limits

#: Hosts that are named.
MAX_HOSTS: Final = 5

#: Codes of what is missing in a limit of resources, and of requests behind such a one.
_ROOM: Final = (
    *(ReasonCode.ROOM_INSTANCES, ReasonCode.ROOM_CORES, ReasonCode.ROOM_RAM, ReasonCode.ROOM_RESOURCE),
    *(ReasonCode.WAIT_POOL_PAUSED, ReasonCode.ROOM_HIDDEN),
)
#: Codes that an operator ends with a command, and the kind of the subject.
_RESUMED: Final = {
    ReasonCode.PROVIDER_PAUSED.value: "provider",
    ReasonCode.PROVIDER_DRAINING.value: "provider",
    ReasonCode.POOL_PAUSED.value: "pool",
    ReasonCode.POOL_DRAINING.value: "pool",
}


def remedies_of_request(request: NodeRequest, pools: Sequence[PoolVerdict], seen: Observed) -> list[str]:
    """What would help a request.

    :param pools: what each pool does about it, the nearest first.
    """
    if request in seen.unfetched:
        return [fetch_or_delete(request, seen)]
    if not pools or request.state == states.FULFILLED:
        return []
    first = pools[0]
    found = list(_about(request, first, seen))
    for other in pools[1:]:
        if other.verdict == ABSENT and first.verdict in (WAITS, DECLINED):
            found.append(f"{other.pool} would serve it, but: {other.text}")
    for verdict in [one for one in pools if one.verdict == ABSENT]:
        found += _resume(verdict, seen)
    return list(dict.fromkeys(found))


def fetch_or_delete(request: NodeRequest, seen: Observed) -> str:
    """What ends it that the nodes of a request are ready, and are not fetched."""
    who = request.requestor or "the requestor"
    age = short(seen.now - (request.state_time or seen.now))
    return (
        f"{who} has not fetched the nodes for {age}: look whether it works, and whether its executors take jobs; "
        f"nodepool delete {' '.join(request.nodes)} takes the nodes away from the job; "
        "they are free by themselves when its session with ZooKeeper ends"
    )


def _resume(verdict: PoolVerdict, seen: Observed) -> Iterator[str]:
    """Commands that end what keeps a pool from serving."""
    kind = _RESUMED.get(verdict.code)
    if kind is not None:
        name = verdict.pool if kind == "pool" else seen.provider_of(verdict.pool)
        yield f"nodepool resume {kind} {name}"
    elif verdict.code == ReasonCode.BACKING_HELD.value:
        # The text names the records of other providers.
        for record in seen.maintenance:
            if record.text in verdict.text and not record.is_over(seen.now):
                yield f"nodepool resume {record.kind} {record.name}"


def _about(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    """What helps in one pool."""
    remedy = _REMEDIES.get(first.code)
    if remedy is not None:
        yield from remedy(request, first, seen)


def _room(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    """Who has the room of a pool, or of its provider."""
    yield from _others(first, seen)
    provider = seen.provider_of(first.pool)
    nodes = [node for node in seen.nodes.values() if node.provider == provider]
    held = sorted(node.key for node in nodes if node.state == states.HOLD)
    if held:
        yield f"nodes on hold take room: {named(held)}; nodepool delete {held[0]} frees it"
    allocated = {node.allocated_to for node in nodes}
    other = next((other.key for other in seen.unfetched if other.key in allocated), None)
    if other is not None:
        yield f"nodes of request {other} are ready and not fetched; nodepool explain {other} tells more"
    old = _oldest(node for node in nodes if node.state == states.IN_USE)
    if old is not None:
        yield f"node {old.key} is in use for the longest time; nodepool explain {old.key} tells by whom"
    stuck = sorted(node.key for node in nodes if node.state == states.DELETING and _age(node, seen) > 600)
    if stuck:
        yield f"nodes are being deleted for more than 10 minutes: {named(stuck)}; nodepool explain {stuck[0]} tells why"


def _others(first: PoolVerdict, seen: Observed) -> Iterator[str]:
    """Limits that somebody else uses, too."""
    for limit in limits_of_pool(first.pool, seen):
        if limit.others > 0 and limit.limit is not None and limit.used + limit.others >= 0.9 * limit.limit:
            yield f"others use {limit.others:g} of {limit.limit:g} {limit.resource} of the same {limit.scope} quota"


def _tenant(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    tenant = request.tenant_name
    held = sorted(n.key for n in seen.nodes.values() if n.tenant_name == tenant and n.state == states.HOLD)
    if held:
        yield f"nodes on hold count for tenant {tenant}: {named(held)}; nodepool delete {held[0]} ends that"
    yield f"the limits of tenant {tenant} are in tenant-resource-limits of the configuration"


def _static(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    """Hosts of a static pool that could serve a request, and do not."""
    down = [host for host in hosts_of_pool(first.pool, seen) if host.up is False or host.quarantine is not None]
    for host in down[:MAX_HOSTS]:
        if host.quarantine is not None:
            yield f"host {host.name} is quarantined: {host.quarantine}; nodepool release {host.name} ends that"
        else:
            yield f"host {host.name} is down: {host.text}"
    provider = seen.provider_of(first.pool)
    in_use = [n for n in seen.nodes.values() if n.provider == provider and n.state in (states.IN_USE, states.HOLD)]
    old = _oldest(node for node in in_use if set(node.type) & set(request.node_types))
    if old is not None:
        yield f"node {old.key} has its host for the longest time; nodepool explain {old.key} tells for whom"


def _circuit(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    for pool in seen.pools.values():
        if pool.name == first.pool and pool.status is not None and pool.status.next is not None:
            yield f"{first.pool} is tried again in {max(0.0, pool.status.next - seen.now):.0f} s"
            return


def _too_large(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    """For a request that needs more than the pool can ever have."""
    more = "add hosts or raise max-parallel-jobs" if first.code == ReasonCode.ROOM_STATIC.value else "raise the limit"
    yield f"ask for fewer nodes in the nodeset, or {more}; all nodes of a request come from one pool"


def _concurrency(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    yield f"max-concurrency of provider {first.pool.partition('/')[0]} says how many launches may run"


def _failed_launch(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    for pool in seen.pools.values():
        error = None if pool.status is None else pool.status.launches.last_error
        if pool.name == first.pool and error is not None:
            yield f"the last launch that failed there, of node {error.node}: {error.text}"
            return


def _silent(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    yield f"search the log of {' or '.join(first.launchers)} for {request.key}"


_Remedy = Callable[[NodeRequest, PoolVerdict, Observed], Iterator[str]]
_REMEDIES: Final[Mapping[str, _Remedy]] = {
    **{code.value: _room for code in _ROOM},
    ReasonCode.ROOM_TENANT.value: _tenant,
    ReasonCode.WAIT_TENANT_ORDER.value: _tenant,
    ReasonCode.WAIT_READY_NODE.value: _static,
    ReasonCode.ROOM_STATIC.value: _too_large,
    ReasonCode.QUOTA_TOO_SMALL.value: _too_large,
    ReasonCode.PROVIDER_CIRCUIT_OPEN.value: _circuit,
    ReasonCode.WAIT_MAX_CONCURRENCY.value: _concurrency,
    ReasonCode.LAUNCH_FAILED.value: _failed_launch,
    ReasonCode.STATUS_MISSING.value: _silent,
    ReasonCode.DECLINED_BEFORE.value: _silent,
    ReasonCode.DRIVER_ERROR.value: _silent,
}


def limits_of_pool(name: str, seen: Observed) -> list[LimitStatus]:
    """Limits of a pool ``<provider>/<pool>``, as they were told last."""
    statuses = [pool.status for pool in seen.pools.values() if pool.name == name and pool.status is not None]
    return newest_limits(limit for status in statuses for limit in status.limits)


def hosts_of_pool(name: str, seen: Observed) -> list[HostStatus]:
    """Hosts of a static pool, each once."""
    found = {
        host.name: host
        for pool in seen.pools.values()
        if pool.name == name and pool.status is not None
        for host in pool.status.hosts
    }
    return list(found.values())


def _oldest(nodes: Iterable[Node]) -> Node | None:
    return min(nodes, key=lambda node: (node.state_time or 0.0, node.key), default=None)


def _age(node: Node, seen: Observed) -> float:
    return 0.0 if node.state_time is None else seen.now - node.state_time
