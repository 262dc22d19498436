# SPDX-License-Identifier: Apache-2.0
"""Why is a request, a node, a label or a provider as it is? One answer for the command, the API and the page.

Everything is worked out from what ZooKeeper says (`Observed`): records, registry, and the status that pools report.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from nodepool.model import states
from nodepool.model.near_words import did_you_mean
from nodepool.model.reasons import ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.model.request_origin import origin_of
from nodepool.plan.explain_label import explain_label
from nodepool.plan.explain_node import explain_node
from nodepool.plan.explain_provider import explain_provider
from nodepool.plan.explained import ABSENT, LEAVES, SERVES, WAITS, Explained, ExplainedRequest, Moment, PoolVerdict
from nodepool.plan.launch_steps import described
from nodepool.plan.observed import Observed
from nodepool.plan.ownerless import of_provider
from nodepool.plan.remedies import remedies_of_request
from nodepool.plan.request_verdicts import in_its_life, verdicts

#: Kinds of subjects, in the order in which a name is looked for.
KINDS: Final = ("request", "node", "provider", "label")
#: Nodes of a request whose launches are described.
MAX_LAUNCHES: Final = 3
#: First parts of codes that mean that room is missing, beside ``room``.
_NO_ROOM: Final = frozenset({"wait.pool-paused", "quota.unknown", "launch.aborted", "wait.tenant-order"})


def kind_of(name: str, seen: Observed) -> str | None:
    """What a name stands for: one of `KINDS`; None = nothing. A pool is ``<provider>/<pool>``."""
    if name in seen.requests:
        return "request"
    if name in seen.nodes:
        return "node"
    if (
        name in seen.providers
        or name in seen.absent_providers
        or any(pool.name == name for pool in seen.pools.values())
        or of_provider(name, seen) is not None
    ):
        return "provider"
    if name in seen.labels or any(name in request.node_types for request in seen.requests.values()):
        return "label"
    return None


def explain(name: str, kind: str, seen: Observed) -> Explained:
    """Explain a subject.

    :param kind: one of `KINDS`.
    :raises KeyError: there is no such request or node.
    """
    if kind == "request":
        return explain_request(seen.requests[name], seen)
    if kind == "node":
        return explain_node(seen.nodes[name], seen)
    return explain_label(name, seen) if kind == "label" else explain_provider(name, seen)


def similar(name: str, seen: Observed) -> str:
    """What may be meant by a name that stands for nothing; empty = nothing is near."""
    pools = {pool.name for pool in seen.pools.values()}
    return did_you_mean(
        name, {*seen.labels, *seen.providers, *seen.absent_providers, *pools, *seen.requests, *seen.nodes}
    )


def explain_request(request: NodeRequest, seen: Observed) -> ExplainedRequest:
    """Why a request waits or failed, or what is done for it."""
    pools = verdicts(request, seen)
    first = pools[0] if pools else None
    code, text = _answer(request, first, seen)
    origin = origin_of(request)
    return ExplainedRequest(
        id=request.key,
        state=request.state,
        text=text,
        labels=list(request.node_types),
        provider=request.provider,
        tenant=origin.get("tenant"),
        job=origin.get("job"),
        pipeline=origin.get("pipeline"),
        requestor=request.requestor,
        event_id=request.event_id,
        age_seconds=None if request.created_time is None else max(0.0, seen.now - request.created_time),
        code=code,
        numbers={} if first is None else first.numbers,
        ahead=0 if first is None else first.ahead,
        nodes=request.nodes or sorted(seen.allocated_to(request)),
        pools=pools,
        history=_history(request, pools, seen),
        remedies=remedies_of_request(request, pools, seen),
    )


def _answer(request: NodeRequest, first: PoolVerdict | None, seen: Observed) -> tuple[str, str]:
    """Code and text of a request as a whole."""
    if request.state == states.FULFILLED:
        fetched = "" if request not in seen.unfetched else "; they are ready, and it has not fetched them"
        return ReasonCode.SERVED_OVER.value, f"is fulfilled with {_named('node', request.nodes)}{fetched}"
    if first is None:
        code, text = _of_nobody(request, seen)
        return code, f"failed; {text}" if request.state == states.FAILED else text
    if request.state == states.FAILED:
        return first.code, f"failed, because every pool declined it. {first.pool}: {first.text}"
    if first.verdict == SERVES:
        return first.code, f"{_sentence(first)}{_being_made(request, first, seen)}"
    return first.code, _sentence(first)


def _sentence(first: PoolVerdict) -> str:
    """What becomes of an open request, from the pool that is nearest to serving it."""
    behind = f"; {first.ahead} {'request comes' if first.ahead == 1 else 'requests come'} first" if first.ahead else ""
    if first.verdict == SERVES:
        return f"is served by {first.pool}: {first.text}"
    if first.verdict == WAITS:
        room = "for room " if first.code.startswith("room.") or first.code in _NO_ROOM else ""
        return f"waits {room}in {first.pool}: {first.text}{behind}"
    if first.verdict == ABSENT:
        return f"waits for {first.pool}: {first.text}"
    if first.verdict == LEAVES:
        return f"waits for another pool than {first.pool}: {first.text}"
    return f"is declined by {first.pool}: {first.text}. It fails when every pool has declined it"


def _being_made(request: NodeRequest, first: PoolVerdict, seen: Observed) -> str:
    """What is known of the launches of a request that is served, and what keeps its pool from launching more."""
    found = ""
    for status in seen.statuses:
        if status.state == "unavailable" and f"{status.provider}/{status.pool}" == first.pool:
            found = f"; {first.pool} launches nothing new: {status.text}"
    steps = [
        f"; node {key} {described(seen.launches[key], seen.now)}"
        for key in sorted(seen.allocated_to(request))
        if key in seen.launches
    ]
    more = f"; {len(steps) - MAX_LAUNCHES} more nodes are launched" if len(steps) > MAX_LAUNCHES else ""
    return "".join([found, *steps[:MAX_LAUNCHES], more])


def _of_nobody(request: NodeRequest, seen: Observed) -> tuple[str, str]:
    """No pool has anything to do with it."""
    code = ReasonCode.POOL_MISSING.value
    if request.state == states.PENDING:
        return ReasonCode.STATUS_MISSING.value, "is served by a launcher that tells no status, and has no node yet"
    if not any(pool.component is not None for pool in seen.pools.values()):
        waits = "" if request.state == states.FAILED else "waits: "
        return code, f"{waits}no launcher is registered"
    missing = sorted(set(request.node_types) - seen.labels)
    if missing:
        return code, f"no registered pool has the label {', '.join(missing)}{did_you_mean(missing[0], seen.labels)}"
    return code, f"no registered pool has all of its labels ({', '.join(sorted(set(request.node_types)))}) together"


def _history(request: NodeRequest, pools: Iterable[PoolVerdict], seen: Observed) -> list[Moment]:
    """What is known of it, the oldest first."""
    found: list[Moment] = []
    if request.created_time is not None:
        found.append(Moment(request.created_time, "submitted"))
    for pool in pools:
        if pool.since is not None:
            found.append(Moment(pool.since, pool.verdict, pool.code, f"{pool.pool}: {pool.text}"))
    for node in seen.allocated_to(request).values():
        made = in_its_life(request, node.created_time)
        if made is not None:
            found.append(Moment(made, "node", None, f"{node.key} in {node.provider}/{node.pool} is {node.state}"))
    for event in seen.events:
        if event.subject == f"request {request.key}":
            found.append(Moment(event.at, event.what, event.code or None, f"{event.actor}: {event.text}"))
    if request.state != states.REQUESTED and request.state_time is not None:
        found.append(Moment(request.state_time, request.state))
    return sorted(found, key=lambda moment: moment.at)


def _named(what: str, names: Iterable[str]) -> str:
    listed = list(names)
    return f"{what}{'' if len(listed) == 1 else 's'} {', '.join(listed)}" if listed else f"no {what}s"
