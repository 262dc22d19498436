# SPDX-License-Identifier: Apache-2.0
"""Why is a node in its state, and for whom? See `nodepool.plan.explain`."""

from __future__ import annotations

import math
from typing import Any, Final

from nodepool.model import states
from nodepool.model.elapsed import short
from nodepool.model.node import Node
from nodepool.model.pool_status import LaunchStatus
from nodepool.model.request import NodeRequest
from nodepool.model.request_origin import origin_of
from nodepool.plan.attention import named
from nodepool.plan.explained import ExplainedNode, Moment
from nodepool.plan.launch_steps import described
from nodepool.plan.observed import Observed
from nodepool.plan.ownerless import of_node
from nodepool.plan.remedies import fetch_or_delete
from nodepool.plan.static_hosts import is_parked, slot_of

#: States of nodes that are being launched.
_LAUNCHED: Final = (states.INIT, states.BUILDING)
#: Seconds in a state after which something may be wrong with it.
_LONG: Final = {states.DELETING: 600.0, states.USED: 600.0, states.INIT: 600.0, states.BUILDING: 3600.0}


def explain_node(node: Node, seen: Observed) -> ExplainedNode:
    """For whom a node is, what is done with it, and since when."""
    request = seen.requests.get(node.allocated_to or "")
    origin = {} if request is None else origin_of(request)
    return ExplainedNode(
        id=node.key,
        state=node.state,
        text=_text(node, request, seen),
        labels=list(node.type),
        provider=node.provider,
        pool=node.pool,
        launcher=node.launcher,
        external_id=node.external_id,
        age_seconds=_since(node.created_time, seen),
        state_seconds=_since(node.state_time, seen),
        request=node.allocated_to,
        tenant=node.tenant_name or origin.get("tenant"),
        job=origin.get("job") or _text_or_none(node.hold_job),
        event_id=None if request is None else request.event_id,
        locked=node.key in seen.locked,
        held_by=node.hold_by if node.state == states.HOLD else None,
        held_until=node.hold_until,
        hold_reason=_text_or_none(node.comment) if node.state == states.HOLD else None,
        history=_history(node, seen),
        remedies=_remedies(node, request, seen),
    )


def _since(when: float | None, seen: Observed) -> float | None:
    return None if when is None else max(0.0, seen.now - when)


def _text_or_none(value: Any) -> str | None:
    return str(value) if value else None


def _text(node: Node, request: NodeRequest | None, seen: Observed) -> str:
    """The answer in a sentence."""
    for_whom = _for_whom(node, request)
    match node.state:
        case states.INIT | states.BUILDING:
            launch = seen.launches.get(node.key)
            step = "" if launch is None else f"; it {described(launch, seen.now)}"
            return f"is being launched in {node.provider}/{node.pool}{for_whom}{step}"
        case states.READY if node.allocated_to:
            return f"is ready{for_whom}; nobody else can have it"
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
            why = f" because of {node.comment}" if node.comment else ""
            return f"is kept on hold{f' by {node.hold_by}' if node.hold_by else ''}{why}{_end_of_hold(node, seen)}"
        case states.DELETING:
            return f"is being deleted by a launcher with provider {node.provider}{_last_trouble(node, seen)}"
        case states.FAILED | states.ABORTED:
            return f"could not be launched{for_whom}{_last_trouble(node, seen)}; it is deleted"
    return f"is {node.state}{for_whom}"


def _for_whom(node: Node, request: NodeRequest | None) -> str:
    """`` for request ..., job ..., tenant ...``; empty when it is for nobody."""
    if not node.allocated_to:
        return ""
    origin = {} if request is None else origin_of(request)
    if "tenant" not in origin and node.tenant_name:
        origin["tenant"] = node.tenant_name
    gone = " (the request is gone)" if request is None and node.state not in (states.IN_USE, states.USED) else ""
    who = "".join(f", {name} {value}" for name, value in origin.items())
    return f" for request {node.allocated_to}{gone}{who}"


def _who_wants(node: Node, seen: Observed) -> str:
    """Why nobody takes a free node."""
    waiting = [
        request
        for request in seen.requests.values()
        if request.state == states.REQUESTED and set(request.node_types) & set(node.type)
    ]
    labels = ", ".join(node.type)
    if not waiting:
        return f"no request wants {labels}"
    first = min(waiting, key=lambda request: request.order_key)
    count = "1 request wants" if len(waiting) == 1 else f"{len(waiting)} requests want"
    return f"{count} {labels}; nodepool explain {first.key} tells why the first one does not take it"


def _end_of_hold(node: Node, seen: Observed) -> str:
    if node.hold_until is None:
        return ", without end"
    minutes = math.ceil((node.hold_until - seen.now) / 60)
    return f"; launchers delete it in {short(60 * minutes)}"


def _last_trouble(node: Node, seen: Observed) -> str:
    """What went wrong last, as far as launchers tell."""
    for event in sorted(seen.events, key=lambda event: -event.at):
        if event.subject == f"node {node.key}" and event.text:
            return f": {event.text}"
    for status in seen.statuses:
        error = status.launches.last_error
        if error is not None and error.node == node.key:
            return f": {error.text}"
    return ""


def _history(node: Node, seen: Observed) -> list[Moment]:
    found: list[Moment] = []
    if node.created_time is not None:
        found.append(Moment(node.created_time, "created"))
    if node.state_time is not None:
        found.append(Moment(node.state_time, node.state))
    for event in seen.events:
        if event.subject == f"node {node.key}":
            found.append(Moment(event.at, event.what, event.code or None, event.text))
    return sorted(found, key=lambda moment: moment.at)


def _remedies(node: Node, request: NodeRequest | None, seen: Observed) -> list[str]:
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
        found.append(fetch_or_delete(request, seen))
    launch = seen.launches.get(node.key)
    if launch is not None and launch.slow:
        found.append(_look_at(node, launch))
    # Of a node that is being launched its request has no more to say.
    if request is not None and request.state in (states.REQUESTED, states.PENDING) and node.state not in _LAUNCHED:
        found.append(f"nodepool explain {request.key} tells what its request waits for")
    return found


def _look_at(node: Node, launch: LaunchStatus) -> str:
    """Where to look for a launch that takes long."""
    what = f"instance {node.external_id}" if node.external_id else "its service"
    ends = "" if launch.ends is None else f"; {launch.option} ends the attempt"
    return f"look at {what} in the cloud of provider {node.provider}{ends}"
