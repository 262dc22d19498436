# SPDX-License-Identifier: Apache-2.0
"""Which requests wait too long, and for what: the first line of ``nodepool status``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nodepool.model import states
from nodepool.model.reasons import ReasonCode
from nodepool.plan.explain import explain_request
from nodepool.quick_dataclass import dataclass

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest
    from nodepool.plan.observed import Observed

#: A request that waits so long needs an explanation.
LONG_SECONDS: Final = 300.0
#: Resources that a code is about.
_RESOURCES: Final = {"room.instances": "instances", "room.cores": "cores", "room.ram": "ram"}
#: So many requests are explained with one view of what there is: each of them is compared with all others in it.
_TOGETHER: Final = 64
#: What is the same for requests that wait for the same: labels, provider, tenant, state, pools that declined them; of
#: one that is being served also its id.
_Kind = tuple[tuple[str, ...], str | None, str | None, str | None, tuple[str, ...], str]


@dataclass(frozen=True)
class WaitCause:
    """Why requests wait.

    :param pool: ``<provider>/<pool>`` that is nearest to serving them; empty = there is none.
    """

    pool: str = ""
    code: str = ""
    text: str = ""


@dataclass(frozen=True)
class LongWait:
    """Requests that have waited long, for the same labels and the same cause.

    :param oldest: when the first of them was submitted, in seconds since the epoch.
    :param ids: of the requests, the oldest first.
    """

    labels: Sequence[str]
    cause: WaitCause
    count: int
    oldest: float
    ids: Sequence[str]


def long_waits(seen: Observed, seconds: float = LONG_SECONDS) -> list[LongWait]:
    """Requests without an answer for long, the largest group first."""
    old = [
        request
        for request in seen.waiting
        if request.created_time is not None and seen.now - request.created_time > seconds
    ]
    why = causes(old, seen)
    groups: dict[tuple[tuple[str, ...], WaitCause], list[NodeRequest]] = {}
    for request in old:
        groups.setdefault((tuple(sorted(request.node_types)), why[request.key]), []).append(request)
    found = []
    for (labels, cause), members in groups.items():
        members.sort(key=lambda request: request.created_time or 0.0)
        oldest = members[0].created_time or 0.0
        found.append(LongWait(labels, cause, len(members), oldest, [request.key for request in members]))
    return sorted(found, key=lambda wait: (-wait.count, wait.oldest))


def _only(seen: Observed, requests: Mapping[str, NodeRequest]) -> Observed:
    """What has to do with some requests: whoever explains one of them looks through all requests and nodes."""
    return replace(seen, requests=requests, nodes=seen.node_index.allocated_to(requests))


def causes(requests: Iterable[NodeRequest], seen: Observed) -> dict[str, WaitCause]:
    """Id of each request that waits or failed -> why.

    Of the requests of one kind the first one is explained: what it waits for, the others wait for.
    """
    kinds = _by_kind(request for request in requests if request.state != states.FULFILLED)
    firsts = {kind: min(members, key=lambda request: request.order_key) for kind, members in kinds.items()}
    found: dict[str, WaitCause] = {}
    order = list(kinds)
    for start in range(0, len(order), _TOGETHER):
        some = order[start : start + _TOGETHER]
        of_firsts = _only(seen, {firsts[kind].key: firsts[kind] for kind in some})
        for kind in some:
            cause = _cause(firsts[kind], of_firsts)
            found.update((request.key, cause) for request in kinds[kind])
    return found


def _by_kind(requests: Iterable[NodeRequest]) -> dict[_Kind, list[NodeRequest]]:
    kinds: dict[_Kind, list[NodeRequest]] = {}
    for request in requests:
        kind = (
            *(tuple(sorted(request.node_types)), request.provider, request.tenant_name, request.state),
            *(tuple(sorted(request.declined_by)), request.key if request.state == states.PENDING else ""),
        )
        kinds.setdefault(kind, []).append(request)
    return kinds


def _cause(request: NodeRequest, seen: Observed) -> WaitCause:
    told = explain_request(request, seen)
    if not told.pools:
        return WaitCause("", told.code, told.text)
    nearest = told.pools[0]
    code, text = nearest.code, nearest.text
    if code == ReasonCode.WAIT_POOL_PAUSED.value:
        # What the request in front of it waits for, so that both are told together.
        paused = (pool.status for pool in seen.pools.values() if pool.name == nearest.pool)
        front = next((status for status in paused if status is not None and status.state == "paused"), None)
        if front is not None and front.code and front.text:
            code, text = front.code, front.text
    return WaitCause(nearest.pool, code, _brief(code, nearest.numbers, text))


def _brief(code: str, numbers: Mapping[str, float], text: str) -> str:
    """The cause in a few words."""
    resource = _RESOURCES.get(code)
    if resource and "limit" in numbers and "used" in numbers:
        more = numbers.get("needed", 1)
        needed = f", {more:g} needed" if more != 1 else ""
        return f"{resource} {numbers['used']:g} of {numbers['limit']:g}{needed}"
    return text
