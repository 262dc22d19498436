# SPDX-License-Identifier: Apache-2.0
"""Why is a request, a node, a label or a provider as it is? One answer for the command, the API and the page.

Everything is worked out from what ZooKeeper says (`Observed`): records, registry, and the status that pools report.
First requests, then labels, nodes and providers, then what was removed, hosts, launchers and tenants. Last which
requests wait too long.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nodepool.model import states
from nodepool.model.config_keys import did_you_mean
from nodepool.model.event import What, amount, counted, grouped, named, short
from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode
from nodepool.model.request import REQUEST_COMMAND, NodeRequest, origin_of
from nodepool.model.status import AbsentProvider, LauncherStatus, Maintenance, PoolStatus, WaitingStatus
from nodepool.plan import attention, explained
from nodepool.plan.attention import described
from nodepool.plan.explained import ExplainedThing, LabelInPool, Moment, PoolVerdict, WaitingGroup, explain_image
from nodepool.plan.observed import Observed, PoolFacts, host_name, of_node, of_provider, of_uploads
from nodepool.plan.pool_summary import STATES, PoolSummary, limiting, newest_limits, summarize
from nodepool.plan.static import is_parked, slot_of

#: Nodes of a request whose launches are described.
MAX_LAUNCHES: Final = 3
#: First parts of codes that mean that room is missing, beside ``room``.
_NO_ROOM: Final = frozenset({"wait.pool-paused", "quota.unknown", "launch.aborted", "wait.tenant-order"})


def explain(name: str, kind: str, seen: Observed) -> explained.Explained:
    """Explain a subject. A request or a node that is not there was removed.

    :param name: and ``kind``: what `nodepool.plan.observed.meant` has found.
    """
    if kind == "request":
        return explain_request(seen.requests[name], seen) if name in seen.requests else _removed_request(name, seen)
    if kind == "node":
        return explain_node(seen.nodes[name], seen) if name in seen.nodes else _deleted_node(name, seen)
    found: dict[str, Callable[[str, Observed], explained.Explained]] = dict.fromkeys(["image", "build"], explain_image)
    found |= {"label": explain_label, "host": explain_host, "launcher": explain_launcher, "tenant": explain_tenant}
    return found.get(kind, explain_provider)(name, seen)


def explain_request(request: NodeRequest, seen: Observed) -> explained.ExplainedRequest:
    """Why a request waits or failed, or what is done for it."""
    pools = explained.verdicts(request, seen)
    first = pools[0] if pools else None
    code, text = _answer(request, first, seen)
    origin = origin_of(request)
    return explained.ExplainedRequest(
        id=request.key,
        state=request.state,
        text=text + explained.share_text(request, first, seen),
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
        history=_request_history(request, pools, seen),
        remedies=explained.remedies_of_request(request, pools, seen),
    )


def _answer(request: NodeRequest, first: PoolVerdict | None, seen: Observed) -> tuple[str, str]:
    """Code and text of a request as a whole."""
    if request.state == states.FULFILLED:
        fetched = "" if request not in seen.unfetched else "; they are ready, and it has not fetched them"
        return ReasonCode.SERVED_OVER.value, f"is fulfilled with {_named('node', request.nodes)}{fetched}"
    if first is None or (request.state == states.PENDING and first.verdict == explained.DECLINED):
        code, text = _of_nobody(request, seen)
        return code.value, f"failed; {text}" if request.state == states.FAILED else text
    if request.state == states.FAILED and first.code == ReasonCode.LABEL_UNKNOWN.value:
        return first.code, f"failed; {_of_nobody(request, seen)[1]}"
    if request.state == states.FAILED:
        return first.code, f"failed, because every pool declined it. {first.pool}: {first.text}"
    if first.verdict == explained.SERVES:
        return first.code, f"{_sentence(first)}{_being_made(request, first, seen)}"
    return first.code, _sentence(first)


def _sentence(first: PoolVerdict) -> str:
    """What becomes of an open request, from the pool that is nearest to serving it."""
    behind = f"; {first.ahead} {'request comes' if first.ahead == 1 else 'requests come'} first" if first.ahead else ""
    if first.verdict == explained.SERVES:
        return f"is served by {first.pool}: {first.text}"
    if first.verdict == explained.WAITS:
        room = "for room " if first.code.startswith("room.") or first.code in _NO_ROOM else ""
        return f"waits {room}in {first.pool}: {first.text}{behind}"
    if first.verdict == explained.ABSENT:
        return f"waits for {first.pool}: {first.text}"
    if first.verdict == explained.LEAVES:
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


def _of_nobody(request: NodeRequest, seen: Observed) -> tuple[ReasonCode, str]:
    """No pool has anything to do with it."""
    if request.state == states.PENDING:
        return explained.served_out_of_sight(request, seen)
    missing = sorted(set(request.node_types) - seen.labels)
    if not any(pool.component is not None for pool in seen.pools.values()):
        text = f"{'' if request.state == states.FAILED else 'waits: '}no launcher is registered"
    elif missing:
        text = f"no registered pool has the label {', '.join(missing)}{did_you_mean(missing[0], seen.labels)}"
    else:
        text = f"no registered pool has all of its labels ({', '.join(sorted(set(request.node_types)))}) together"
    return ReasonCode.POOL_MISSING, text


def _request_history(request: NodeRequest, pools: Iterable[PoolVerdict], seen: Observed) -> list[Moment]:
    """What is known of it, the oldest first."""
    events = [event for event in seen.events if event.subject == f"request {request.key}"]
    # An event names the host of the pool, too.
    reported = {(event.what, f"{event.actor.partition(' ')[2]}: {event.text}") for event in events}
    of_pools = [
        (pool.since, pool.verdict, pool.code, text)
        for pool in pools
        if (pool.verdict, text := f"{pool.pool}: {pool.text}") not in reported
    ]
    nodes = [
        (
            explained.in_its_life(request, node.created_time),
            "node",
            None,
            f"{key} in {node.provider}/{node.pool} is {node.state}",
        )
        for key, node in seen.allocated_to(request).items()
    ]
    answered_at = None if request.state in {states.REQUESTED, *(event.what for event in events)} else request.state_time
    found = [(request.created_time, "submitted", None, ""), *of_pools, *nodes]
    found += [(event.at, event.what, event.code or None, f"{event.actor}: {event.text}") for event in events]
    return _in_order([*found, (answered_at, request.state, None, "")])


def _in_order(found: Iterable[tuple[float | None, str, str | None, str]]) -> list[Moment]:
    """What happened and is known when, the oldest first."""
    moments = [Moment(at, what, code, text) for at, what, code, text in found if at is not None]
    return sorted(moments, key=lambda moment: moment.at)


def _named(what: str, names: Iterable[str]) -> str:
    listed = list(names)
    return f"{what}{'' if len(listed) == 1 else 's'} {', '.join(listed)}" if listed else f"no {what}s"


# Which pools serve a label, and what do its requests wait for?

#: A request for a ready node that failed this long ago says nothing any more. While they fail there is one every few
#: seconds.
RECENT_SECONDS: Final = 120.0


def explain_label(label: str, seen: Observed) -> explained.ExplainedLabel:
    """Which pools serve a label, which do not now and why, and what its requests wait for."""
    wanted = [request for request in seen.waiting if label in request.node_types]
    pools = _pools(label, seen)
    waiting = waiting_groups(seen, lambda _, one: label in one.labels and not one.min_ready)
    working = [pool for pool in pools if pool.code is None]
    return explained.ExplainedLabel(
        id=label,
        state="served" if working else "not served",
        text=_label_text(label, pools, len(wanted), waiting, seen),
        requests=len(wanted),
        oldest=min((request.created_time for request in wanted if request.created_time is not None), default=None),
        pools=pools,
        waiting=waiting,
        remedies=[] if working else [one.text for one in pools if one.text],
    )


def _pools(label: str, seen: Observed) -> list[LabelInPool]:
    pools = [p for p in seen.pools.values() if label in p.labels or (p.status is not None and label in p.status.labels)]
    with_label = (node for node in seen.nodes.values() if label in node.type)
    nodes = grouped(with_label, lambda node: f"{node.provider}/{node.pool}")
    found = []
    for name, same in sorted(grouped(pools, lambda pool: pool.name).items()):
        trouble = next((told for pool in same if (told := _trouble(label, pool, seen))[0]), (None, None, None))
        mine = nodes.get(name, ())
        free = sum(node.state == states.READY and node.allocated_to is None for node in mine)
        found.append(LabelInPool(name, sorted({pool.host for pool in same}), *trouble, _by_state(mine), free))
    return found


def _by_state(nodes: Iterable[Node]) -> dict[str, int]:
    return dict(sorted(Counter(node.state for node in nodes).items()))


def _trouble(label: str, pool: PoolFacts, seen: Observed) -> tuple[str | None, str | None, float | None]:
    """Code, text and time of what keeps a pool from serving a label."""
    for record in seen.maintenance_of([("label", label)]):
        return ReasonCode.LABEL_PAUSED.value, record.text, record.since
    status = pool.status
    if status is None:
        return None, None, None
    broken = status.labels.get(label)
    if broken is not None:
        return broken.code, broken.text, broken.since
    if status.state in ("unavailable", "maintenance"):
        return status.code or ReasonCode.PROVIDER_STARTING.value, status.text, status.since
    # Only requests that wait for it tell of it.
    for told in status.waiting:
        if told.code == ReasonCode.BACKING_HELD.value and set(told.labels) == {label}:
            return told.code, told.text, told.since
    return None, None, None


def _label_text(
    label: str, pools: Sequence[LabelInPool], wanted: int, waiting: Sequence[WaitingGroup], seen: Observed
) -> str:
    if not pools:
        hint = did_you_mean(label, seen.labels)
        return f"no registered pool has it{hint}"
    serving = [pool.pool for pool in pools if pool.code is None]
    free = sum(pool.free for pool in pools)
    head = f"is served by {named(serving)}" if serving else f"is not served now by {named([one.pool for one in pools])}"
    count = "1 request wants it" if wanted == 1 else f"{wanted} requests want it"
    why = f"; most wait in {waiting[0].pool}: {waiting[0].text}" if waiting else ""
    return f"{head}; {counted(free, 'free node')}; {count}{why}{_min_ready(label, seen)}"


def _min_ready(label: str, seen: Observed) -> str:
    """What ready nodes of the label that are missing wait for, or why the last request for one failed.

    That one counts if it was not long ago: they are tried again.
    """
    waiting = waiting_groups(seen, lambda _, one: label in one.labels and one.min_ready)
    if waiting:
        first = waiting[0]
        missing = "1 more ready node waits" if first.count == 1 else f"{first.count} more ready nodes wait"
        return f"; min-ready: {missing} in {first.pool}: {first.text}"
    about = [event for event in seen.events if (event.subject, event.what) == (f"label {label}", What.FAILED.value)]
    recent = [event for event in about if event.at > seen.now - RECENT_SECONDS]
    return f"; min-ready: {max(recent, key=lambda event: event.at).text}" if recent else ""


def waiting_groups(seen: Observed, wanted: Callable[[PoolStatus, WaitingStatus], bool]) -> list[WaitingGroup]:
    """What requests wait for, as pools tell it; most requests first.

    All launchers of a pool have the same queue: the one with the longest is taken.
    """
    found: dict[str, list[WaitingGroup]] = {}
    for status in seen.statuses:
        name = f"{status.provider}/{status.pool}"
        groups = [
            WaitingGroup(
                name, one.count, one.code, one.text, list(one.labels), one.tenant, dict(one.numbers), one.oldest
            )
            for one in status.waiting
            # Not those that the pool leaves to others.
            if wanted(status, one) and not one.code.startswith(("turn.", "declined."))
        ]
        if sum(group.count for group in groups) > sum(group.count for group in found.get(name, ())):
            found[name] = groups
    flat = (group for same in found.values() for group in same)
    return sorted(flat, key=lambda group: (-group.count, group.pool, group.code))


# Why is a node in its state, and for whom?

#: States of nodes that are being launched.
_LAUNCHED: Final = (states.INIT, states.BUILDING)
#: Seconds in a state after which something may be wrong with it.
_LONG: Final = {states.DELETING: 600.0, states.USED: 600.0, states.INIT: 600.0, states.BUILDING: 3600.0}


def explain_node(node: Node, seen: Observed) -> explained.ExplainedNode:
    """For whom a node is, what is done with it, and since when."""
    request = seen.requests.get(node.allocated_to or "")
    origin = {} if request is None else origin_of(request)
    moments = [(node.created_time, "created", None, ""), (node.state_time, node.state, None, "")]
    return explained.ExplainedNode(
        id=node.key,
        state=node.state,
        text=_node_text(node, request, seen),
        labels=list(node.type),
        provider=node.provider,
        pool=node.pool,
        launcher=node.launcher,
        external_id=node.external_id,
        age_seconds=_since(node.created_time, seen),
        state_seconds=_since(node.state_time, seen),
        request=node.allocated_to,
        tenant=node.tenant_name or origin.get("tenant"),
        job=origin.get("job") or (str(node.hold_job) if node.hold_job else None),
        event_id=None if request is None else request.event_id,
        locked=node.key in seen.locked,
        held_by=node.hold_by if node.state == states.HOLD else None,
        held_until=node.hold_until,
        hold_reason=str(node.comment) if node.comment and node.state == states.HOLD else None,
        console=seen.consoles.get(node.key),
        history=_in_order([*moments, *_history(seen, lambda subject: subject == f"node {node.key}")]),
        remedies=_node_remedies(node, request, seen),
    )


def _since(when: float | None, seen: Observed) -> float | None:
    return None if when is None else max(0.0, seen.now - when)


def _node_text(node: Node, request: NodeRequest | None, seen: Observed) -> str:
    """The answer in a sentence."""
    for_whom = _for_whom(node, request)
    match node.state:
        case states.INIT | states.BUILDING:
            launch = seen.launches.get(node.key)
            step = "" if launch is None else f"; it {described(launch, seen.now)}"
            return f"is being launched in {node.provider}/{node.pool}{for_whom}{step}"
        case states.READY if node.allocated_to:
            return f"is ready{for_whom}; no other request gets it"
        case states.READY if node.key in seen.locked:
            return "is ready and locked: a launcher checks or takes it"
        case states.READY:
            left = of_node(node, seen)
            nobody = "" if left is None else f"; no launcher serves {left.kind} {left.name}"
            if node.key in seen.missing:
                return "is ready, but the cloud does not show its instance any more: it is not used"
            return f"is ready and free; {_who_wants(node, seen)}{nobody}"
        case states.IN_USE:
            return f"is in use{for_whom}"
        case states.USED:
            return f"was used{for_whom}; a launcher deletes it when its lock is free"
        case states.HOLD:
            by = f" by {node.hold_by}" if node.hold_by else ""
            why = f" ({node.comment})" if node.comment else ""
            if node.hold_until is None:
                return f"is kept on hold{by}{why}, without end"
            minutes = math.ceil((node.hold_until - seen.now) / 60)
            return f"is kept on hold{by}{why}; launchers delete it in {short(60 * minutes)}"
        case states.DELETING:
            return f"is being deleted by a launcher with provider {node.provider}{_last_trouble(node.key, seen)}"
        case states.FAILED | states.ABORTED:
            return f"could not be launched{for_whom}{_last_trouble(node.key, seen)}; it is deleted"
    return f"is {node.state}{for_whom}"


def _for_whom(node: Node, request: NodeRequest | None) -> str:
    """`` for request ..., job ..., tenant ...``; empty when it is for no one."""
    if not node.allocated_to:
        return ""
    origin = {} if request is None else origin_of(request)
    if "tenant" not in origin and node.tenant_name:
        origin["tenant"] = node.tenant_name
    is_over = request is None and node.state not in (states.IN_USE, states.USED)
    gone = " (the request does not exist any more)" if is_over else ""
    who = "".join(f", {name} {value}" for name, value in origin.items())
    if node.requestor and node.requestor.startswith(REQUEST_COMMAND):
        who += f", requested by {node.requestor[len(REQUEST_COMMAND) + 1 :]}"
    return f" for request {node.allocated_to}{gone}{who}"


def _who_wants(node: Node, seen: Observed) -> str:
    """Why no one takes a free node."""
    waiting = [
        request
        for request in seen.waiting
        if request.state == states.REQUESTED and set(request.node_types) & set(node.type)
    ]
    labels = ", ".join(node.type)
    if not waiting:
        return f"no request wants {labels}"
    first = min(waiting, key=lambda request: request.order_key)
    count = "1 request wants" if len(waiting) == 1 else f"{len(waiting)} requests want"
    return f"{count} {labels}; nodepool explain {first.key} shows why the first one does not take it"


def _last_trouble(node_id: str, seen: Observed) -> str:
    """What went wrong last, as far as launchers tell."""
    for event in sorted(seen.events, key=lambda event: -event.at):
        if event.subject == f"node {node_id}" and event.text:
            # The text of a deletion is how often it failed, and why.
            what = f"{event.what} " if event.what == What.DELETION_FAILED.value else ""
            return f": {what}{event.text}"
    for status in seen.statuses:
        error = status.launches.last_error
        if error is not None and error.node == node_id:
            return f": {error.text}"
    return ""


def _history(seen: Observed, about: Callable[[str], bool]) -> list[tuple[float | None, str, str | None, str]]:
    """The events of some subjects."""
    return [(event.at, event.what, event.code or None, event.text) for event in seen.events if about(event.subject)]


def _node_remedies(node: Node, request: NodeRequest | None, seen: Observed) -> list[str]:
    found = []
    if is_parked(node):
        found.append(f"nodepool release {slot_of(node).host} ends the quarantine of its host")
    elif node.state == states.HOLD:
        found.append(f"nodepool delete {node.key} ends the hold")
    serving = sorted({pool.host for pool in seen.pools.values() if pool.provider == node.provider})
    age = _since(node.state_time, seen) or 0.0
    left = of_node(node, seen)
    if left is not None:
        found.append(f"{left.text}: {left.remedy}")
    elif not serving and node.state != states.HOLD:
        found.append(f"no launcher serves provider {node.provider}")
    elif age > _LONG.get(node.state, float("inf")):
        found.append(f"it is {node.state} for long; search the log of {named(serving)} for {node.key}")
    if node.key in seen.missing:
        found.append(f"nodepool explain {node.provider} shows why, and what ends it")
    if request is not None and node.state == states.READY and request in seen.unfetched:
        found.append(explained.fetch_or_delete(request, seen))
    launch = seen.launches.get(node.key)
    if launch is not None and launch.slow:
        what = f"instance {node.external_id}" if node.external_id else "its service"
        ends = "" if launch.ends is None else f"; {launch.option} ends the attempt"
        found.append(f"look at {what} in the cloud of provider {node.provider}{ends}")
    # Of a node that is being launched its request has no more to say.
    if request is not None and request.state in (states.REQUESTED, states.PENDING) and node.state not in _LAUNCHED:
        found.append(f"nodepool explain {request.key} shows what its request waits for")
    return found


# Does a provider work, how full is it, and what do its requests wait for?


def explain_provider(name: str, seen: Observed) -> explained.ExplainedProvider:
    """The state of a provider, since when, and why.

    :param name: of the provider, or ``<provider>/<pool>`` for one pool of it.
    """
    provider = seen.provider_of(name)
    pool_name = name[len(provider) + 1 :]
    facts = [pool for pool in seen.pools.values() if pool.provider == provider and name in (provider, pool.name)]
    pools = summarize(pool.status for pool in facts if pool.status is not None)
    silent = [f"{pool.host} ({pool.version}): {pool.name}" for pool in facts if pool.status is None]
    subjects = [("provider", provider), *(("pool", pool.name) for pool in facts)]
    records = seen.maintenance_of([*subjects, *(("launcher", pool.host) for pool in facts)])
    worst = min(pools, key=lambda one: STATES.index(one.state) if one.state in STATES else 0, default=None)
    nodes = [
        node for node in seen.nodes.values() if node.provider == provider and (not pool_name or node.pool == pool_name)
    ]
    lost = attention.missing_of(provider, pools)
    about = {f"provider {name}", f"pool {name}", f"provider {name.partition('/')[0]}"}
    left, uploads = of_provider(name, seen), of_uploads(provider, seen)
    answer = explained.ExplainedPool if pool_name else explained.ExplainedProvider
    absent = [] if pool_name else seen.absent_providers.get(provider, ())
    state = worst.state if worst is not None else "not served" if absent and not silent else "unknown"
    return answer(
        id=name,
        state=state,
        text=_provider_text(name, worst, pools, silent, records, absent, seen.now) if left is None else left.text,
        nodes=_by_state(nodes),
        pools=pools,
        silent=silent,
        waiting=waiting_groups(
            seen, lambda pool, one: not one.min_ready and name in (pool.provider, f"{pool.provider}/{pool.pool}")
        ),
        maintenance=[record.text for record in records],
        history=_in_order(_history(seen, lambda one: one in about or one.startswith(f"pool {name}/"))),
        remedies=[
            *([] if left is None else [left.remedy]),
            *([] if uploads is None else [f"{uploads.text}: {uploads.remedy}"]),
            *_provider_remedies(pools, records, seen),
            *(f"{text}; they count as lost in {max(0.0, when - seen.now):.0f} s" for text, when in lost),
            *attention.of_others(provider, pools),
            *_remedies_of_absent(absent, seen),
        ],
    )


def _provider_text(
    name: str,
    worst: PoolSummary | None,
    pools: Sequence[PoolSummary],
    silent: Sequence[str],
    records: Sequence[Maintenance],
    absent: Sequence[tuple[str, AbsentProvider]],
    now: float,
) -> str:
    if records:
        text, own = "; ".join(record.text for record in records), f"{records[0].kind} {name} "
        return text.removeprefix(own) if text.startswith(own) else f"is subject to maintenance: {text}"
    if worst is None and absent and not silent:
        return "; ".join(f"is not served by launcher {host}: {one.text}" for host, one in absent)
    if worst is None:
        return f"tells no status: {named(silent)}" if silent else "no launcher has it"
    slow = attention.slow(launch for pool in pools for launch in pool.launching)
    running = sum(pool.launches.running for pool in pools)
    calls, failing = attention.slow_calls(pools), attention.failing_calls(pools)
    launches = attention.summary(slow, running, now) if slow else ""
    long = "".join(f"; {text}" for text in (launches, calls, failing) if text)
    if worst.state == "running":
        full = limiting(limit for pool in pools for limit in pool.limits)
        of = "" if full is None else f"{amount(full.used + full.others, full.resource)} of"
        most = "" if full is None else f"; {of} {amount(full.limit or 0, full.resource)} {full.resource} are used"
        broken = sorted({label for pool in pools for label in pool.labels})
        but = f", but not for {_named('label', broken)}" if broken else ""
        return f"works{' badly' if failing else ' slowly' if slow or calls else ''}{but}{long}{most}"
    cause = f": {worst.text}" if worst.text else ""
    which = "" if "/" in name or len(pools) == 1 else f" in pool {worst.pool}"
    return f"is {worst.state}{which}{cause}{long}"


def _provider_remedies(pools: Sequence[PoolSummary], records: Sequence[Maintenance], seen: Observed) -> list[str]:
    found = [f"nodepool resume {record.kind} {record.name}" for record in records]
    for pool in pools:
        if pool.next is not None and pool.state == "unavailable":
            found.append(f"{pool.name} is tried again in {max(0.0, pool.next - seen.now):.0f} s")
        found += [f"label {label} of {pool.name}: {error.text}" for label, error in sorted(pool.labels.items())]
        slow = attention.slow(pool.launching)
        if slow:
            found.append(f"nodepool explain {slow[0].node} shows the launch of {pool.name} that waits for longest")
        down = [host.name for host in pool.hosts if host.up is False]
        if down:
            found.append(f"hosts of {pool.name} are down: {named(down)}")
    return found


def _remedies_of_absent(absent: Sequence[tuple[str, AbsentProvider]], seen: Observed) -> list[str]:
    found = []
    for host, one in absent:
        again = "" if one.next is None else f"; its start is tried again in {max(0.0, one.next - seen.now):.0f} s"
        found.append(f"launcher {host} does not serve it: {one.text}{again}")
    return found + [f"nodepool check {name} tries what it needs" for name in sorted({one.name for _, one in absent})]


# Requests and nodes that do not exist any more: what events and nodes still know.


def _removed_request(request_id: str, seen: Observed) -> explained.ExplainedRequest:
    nodes = seen.node_index.allocated.get(request_id, {})
    history = _in_order(_history(seen, lambda subject: subject == f"request {request_id}"))
    has = f", and has {_named('node', nodes)}" if nodes else ""
    last = f"; the last that is known: {history[-1].text}" if history and history[-1].text else ""
    requestors = (node.requestor or "" for node in nodes.values())
    who = next((one for one in requestors if one.startswith((REQUEST_COMMAND, "NodePool:"))), "Zuul")
    removed = f"{who} has removed it" if nodes else "it was removed"  # Nothing else of it says whose it was.
    text = f"does not exist any more: {removed}{has}{last}"
    remedies = [f"nodepool explain {key} shows what its node is used for" for key in nodes]
    done: dict[str, Any] = {"nodes": list(nodes), "history": history, "remedies": remedies}
    return explained.ExplainedRequest(request_id, "removed", text, **done)


def _deleted_node(node_id: str, seen: Observed) -> explained.ExplainedNode:
    history = _in_order(_history(seen, lambda subject: subject == f"node {node_id}"))
    trouble = _last_trouble(node_id, seen)
    if history and history[-1].what == What.DELETION_FAILED.value:
        trouble = f"; before that, deletion failed {history[-1].text}"  # Not why: at last, it succeeded.
    text = f"does not exist any more: it was deleted{trouble}"
    return explained.ExplainedNode(node_id, "deleted", text, console=seen.consoles.get(node_id), history=history)


# Hosts, images, launchers and tenants: what they are, and what is done with them.

#: Nodes of one subject that are listed, those that a job or a person has first.
MAX_NODES: Final = 20
_FIRST_STATES: Final = (states.IN_USE, states.HOLD, states.READY)


def _uses(nodes: Iterable[Node], seen: Observed) -> dict[str, Any]:
    """``nodes`` and ``remedies`` of an answer."""
    found, remedies = [], dict[str, None]()
    for one in sorted(nodes, key=lambda node: (node.state not in _FIRST_STATES, node.state, node.key))[:MAX_NODES]:
        request = seen.requests.get(one.allocated_to or "")
        text = _node_text(one, request, seen)
        found.append({"id": one.key, "state": one.state, "since": one.state_time, "text": text})
        remedies |= dict.fromkeys(_node_remedies(one, request, seen))
    return {"nodes": found, "remedies": list(remedies)}


def explain_host(name: str, seen: Observed) -> ExplainedThing:
    """Is a static host up, and whose nodes are on it?

    :param name: with user and port or without.
    """
    pairs = [(status, host) for status in seen.statuses for host in status.hosts]
    found = [one for one in pairs if name in (one[1].name, host_name(one[1].name))]
    known = {name, *(host.name for _, host in found)}
    _, worst = min(found, key=lambda one: (one[1].quarantine is None, one[1].up is not False, one[1].name))
    uses = _uses((node for node in seen.nodes.values() if str(slot_of(node).host) in known), seen)
    state, why = {True: "up", False: "down", None: "not checked"}[worst.up], worst.text
    if worst.quarantine is not None:
        state, why = "quarantined", worst.quarantine
        uses["remedies"].insert(0, f"nodepool release {name} ends the quarantine")
    if worst.next is not None:
        uses["remedies"].insert(0, f"it is tried again in {short(worst.next - seen.now)}")
    whose = "".join(f"; node {use['id']} {use['text']}" for use in uses["nodes"][:1])
    return ExplainedThing(
        *(name, state, f"is {state}{f': {why}' if why else ''}{whose}", "host"),
        since=worst.since or None,
        facts={
            "pools": sorted({f"{status.provider}/{status.pool}" for status, _ in found}),
            "labels": sorted({label for _, host in found for label in host.labels}),
            "slots": max(host.slots for _, host in found),
        },
        history=_in_order(_history(seen, lambda subject: subject.removeprefix("host ") in known)),
        **uses,
    )


def explain_launcher(name: str, seen: Observed) -> ExplainedThing:
    """Does a launcher work, and what does it serve?"""
    pools = {pool.name: pool for pool in seen.pools.values() if pool.host == name}
    one = next((one for one in seen.launchers if one.host == name), LauncherStatus(host=name, state="unknown"))
    held = seen.maintenance_of([("launcher", name)])
    text = f"is {one.state}, and serves {counted(len(pools), 'pool')}" if one.version else "tells no status"
    remedies = [f"it does not serve provider {absent.name}: {absent.text}" for absent in one.absent]
    if one.reload is not None and not one.reload.ok:
        remedies.append(f"the changed configuration is not in effect: {one.reload.text}")
    return ExplainedThing(
        *(name, one.state, "; ".join([text, *(record.text for record in held)]), "launcher"),
        since=one.since or None,
        facts={
            "version": one.version or named(sorted({pool.version for pool in pools.values()})),
            "configuration": one.config_file,
            "pools": [f"{key} ({'unknown' if one.status is None else one.status.state})" for key, one in pools.items()],
        },
        history=_in_order(_history(seen, lambda subject: subject == f"launcher {name}")),
        remedies=[*remedies, *(f"nodepool resume launcher {record.name}" for record in held)],
    )


def explain_tenant(name: str, seen: Observed) -> ExplainedThing:
    """What does a tenant use of its limits, and what do its requests wait for?"""
    uses = _uses((node for node in seen.nodes.values() if node.tenant_name == name), seen)
    waiting = waiting_groups(seen, lambda _, one: one.tenant == name)
    scoped = (limit for status in seen.statuses for limit in status.limits if limit.scope == f"tenant:{name}")
    limits = [limit for limit in newest_limits(scoped) if limit.limit is not None]
    wanted = sum(request.tenant_name == name for request in seen.waiting)
    why = f"; most wait in {waiting[0].pool}: {waiting[0].text}" if waiting else ""
    full = any(limit.used >= (limit.limit or 0) for limit in limits)
    counts = Counter(node.state for node in seen.nodes.values() if node.tenant_name == name)
    return ExplainedThing(
        *(name, "limited" if full else "served"),
        f"has {counted(sum(counts.values()), 'node')}, and {counted(wanted, 'open request')}{why}",
        "tenant",
        facts={
            "share": [] if seen.order is None else [seen.order.standing(name).text],
            "limits": [f"{limit.resource} {limit.used:g} of {limit.limit:g}" for limit in limits],
            "nodes": [f"{count} {state}" for state, count in sorted(counts.items())],
        },
        waiting=waiting,
        **{**uses, "remedies": [*(explained.remedies_of_tenant(name, seen) if full else ()), *uses["remedies"]]},
    )


# Which requests wait too long, and for what: the first line of ``nodepool status``.

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


def long_waits(seen: Observed) -> list[LongWait]:
    """Requests without an answer for long, the largest group first."""
    old = [
        request
        for request in seen.waiting
        if request.created_time is not None and seen.now - request.created_time > LONG_SECONDS
    ]
    why = causes(old, seen)
    groups = grouped(old, lambda request: (tuple(sorted(request.node_types)), why[request.key]))
    found = []
    for (labels, cause), members in groups.items():
        members.sort(key=lambda request: request.created_time or 0.0)
        oldest = members[0].created_time or 0.0
        found.append(LongWait(labels, cause, len(members), oldest, [request.key for request in members]))
    return sorted(found, key=lambda wait: (-wait.count, wait.oldest))


def causes(requests: Iterable[NodeRequest], seen: Observed) -> dict[str, WaitCause]:
    """Id of each request that waits or failed -> why.

    Of the requests of one kind the first one is explained: what it waits for, the others wait for.
    """
    kinds = grouped((request for request in requests if request.state != states.FULFILLED), _kind)
    firsts = {kind: min(members, key=lambda request: request.order_key) for kind, members in kinds.items()}
    found: dict[str, WaitCause] = {}
    order = list(kinds)
    for start in range(0, len(order), _TOGETHER):
        some = order[start : start + _TOGETHER]
        # Who explains one of them looks through all requests and nodes.
        mine = {firsts[kind].key: firsts[kind] for kind in some}
        of_firsts = replace(seen, requests=mine, nodes=seen.node_index.allocated_to(mine), launchers=())
        for kind in some:
            cause = _cause(firsts[kind], of_firsts)
            found.update((request.key, cause) for request in kinds[kind])
    return found


# What a request waits for, in a word: for pictures, where the codes are too many.

#: What requests wait for -> begins of the codes of `ReasonCode`; what is in none of them waits for its turn.
WAIT_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "launch": ("served.",),
    "room": ("room.", "quota.", "wait.pool-paused", "wait.max-concurrency", "launch.aborted"),
    "slot": ("wait.ready-node", "room.static"),
    "tenant": ("room.tenant", "wait.tenant-"),
    "away": ("provider.circuit-open", "provider.starting", "pool.missing", "status.missing", "turn.of-absent-pool"),
    "maintenance": ("provider.", "pool.", "label.paused", "launcher.", "backing.held"),
    "declined": ("label.", "image.missing", "launch.failed", "driver.", "request.too-large", "declined.before"),
    "turn": (),
}
#: Begin of a code -> kind; the longest begin that fits counts.
_BEGINS: Final = {begin: kind for kind, begins in WAIT_KINDS.items() for begin in begins}


def wait_kind(code: str) -> str:
    """What a request waits for, a key of `WAIT_KINDS`, of a `ReasonCode` value."""
    begin = max((one for one in _BEGINS if code.startswith(one)), key=len, default="")
    return _BEGINS.get(begin, "turn")


def _kind(request: NodeRequest) -> _Kind:
    return (
        *(tuple(sorted(request.node_types)), request.provider, request.tenant_name, request.state),
        *(tuple(sorted(request.declined_by)), request.key if request.state == states.PENDING else ""),
    )


def _cause(request: NodeRequest, seen: Observed) -> WaitCause:
    told = explain_request(request, seen)
    if not told.pools:
        return WaitCause("", told.code, told.text)
    nearest = told.pools[0]
    code, text = nearest.code, nearest.text
    if code == ReasonCode.WAIT_POOL_PAUSED.value:
        # What the request in front of it waits for, so that both are reported together.
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
        needed = f", {amount(more, resource)} needed" if more != 1 else ""
        return f"{resource} {amount(numbers['used'], resource)} of {amount(numbers['limit'], resource)}{needed}"
    return text
