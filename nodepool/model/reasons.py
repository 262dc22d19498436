# SPDX-License-Identifier: Apache-2.0
"""Why a request waits in a pool, or was declined by it: a closed list of codes, each with numbers and a text."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final


class ReasonCode(enum.Enum):
    """Programs compare these; the texts of `Reason` may change."""

    # The request can never be served here.
    LABEL_UNKNOWN = "label.unknown"
    LABEL_BROKEN = "label.broken"
    IMAGE_MISSING = "image.missing"
    POOL_DISABLED = "pool.disabled"
    POOL_WITHOUT_LAUNCHES = "pool.without-launches"
    QUOTA_TOO_SMALL = "quota.too-small"
    ROOM_STATIC = "room.static"
    LAUNCH_FAILED = "launch.failed"
    DRIVER_DECLINED = "driver.declined"
    DRIVER_ERROR = "driver.error"
    REQUEST_TOO_LARGE = "request.too-large"

    # There is no room now.
    ROOM_INSTANCES = "room.instances"
    ROOM_CORES = "room.cores"
    ROOM_RAM = "room.ram"
    ROOM_RESOURCE = "room.resource"
    ROOM_TENANT = "room.tenant"
    ROOM_HIDDEN = "room.hidden"
    QUOTA_UNKNOWN = "quota.unknown"

    # It waits for something else in this pool.
    WAIT_ORDER = "wait.order"
    WAIT_POOL_PAUSED = "wait.pool-paused"
    WAIT_MAX_CONCURRENCY = "wait.max-concurrency"
    WAIT_READY_NODE = "wait.ready-node"
    WAIT_TENANT_ORDER = "wait.tenant-order"
    WAIT_TENANT_UNKNOWN = "wait.tenant-unknown"
    WAIT_OTHER_LAUNCHERS = "wait.other-launchers"
    WAIT_DEADLOCK = "wait.deadlock-avoidance"
    LAUNCH_ABORTED = "launch.aborted"
    PROVIDER_CIRCUIT_OPEN = "provider.circuit-open"
    PROVIDER_PAUSED = "provider.paused"
    PROVIDER_DRAINING = "provider.draining"
    POOL_PAUSED = "pool.paused"
    POOL_DRAINING = "pool.draining"
    LABEL_PAUSED = "label.paused"
    LAUNCHER_PAUSED = "launcher.paused"
    LAUNCHER_DRAINING = "launcher.draining"
    BACKING_HELD = "backing.held"
    PROVIDER_STARTING = "provider.starting"
    REQUEST_LOCKED = "request.locked"
    REQUEST_CHANGED = "request.changed"

    # It is for another pool.
    TURN_OF_ANOTHER_POOL = "turn.of-another-pool"
    TURN_OF_WANTED_PROVIDER = "turn.of-wanted-provider"
    TURN_OF_PRIORITY = "turn.of-priority"
    TURN_OF_LABEL = "turn.of-label"
    TURN_OF_ABSENT_POOL = "turn.of-absent-pool"
    DECLINED_BEFORE = "declined.before"

    # It is being served.
    SERVED_CHECKING = "served.checking"
    SERVED_FULFILLING = "served.fulfilling"
    SERVED_LOCKING = "served.locking"
    SERVED_GATHERING = "served.gathering"
    SERVED_LAUNCHING = "served.launching"
    SERVED_ENDING = "served.ending"
    SERVED_OVER = "served.over"

    # Nobody tells more; only `nodepool explain` says these.
    POOL_MISSING = "pool.missing"
    STATUS_MISSING = "status.missing"


@dataclass(frozen=True)
class Reason:
    """One reason.

    :param text: a person understands it without this code.
    :param numbers: what the text counts, by name; JSON can hold all of it.
    """

    code: ReasonCode
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)


class ReasonText(str):
    """The text of a reason that is passed through an interface of texts, `getDeclinedReasons`."""

    reason: Reason

    def __new__(cls, reason: Reason) -> ReasonText:
        made = super().__new__(cls, reason.text)
        made.reason = reason
        return made


def reason_of(text: str) -> Reason:
    """The reason behind a text that a driver gives."""
    return text.reason if isinstance(text, ReasonText) else Reason(ReasonCode.DRIVER_DECLINED, text)


def joined(found: list[Reason]) -> Reason:
    """Several reasons to decline as one, with the code of the first."""
    if not found:
        return Reason(ReasonCode.DRIVER_DECLINED, "the driver declined it without a reason")
    if len(found) == 1:
        return found[0]
    return Reason(found[0].code, "; ".join(reason.text for reason in found), found[0].numbers)


#: Names of resources that have a code of their own.
_ROOM_CODES: Final = {
    "instances": ReasonCode.ROOM_INSTANCES,
    "cores": ReasonCode.ROOM_CORES,
    "ram": ReasonCode.ROOM_RAM,
}

_ORDINAL_ENDS: Final = {1: "st", 2: "nd", 3: "rd"}


def quota_used_up(where: str, resource: str, *, limit: float, used: float, needed: float) -> Reason:
    """No room in a limit.

    :param where: whose limit it is, e.g. ``provider lab``.
    :param resource: its name in a `QuotaInformation`. RAM is counted in MiB.
    :param used: now. ``needed``: by one more node, or by all nodes of the request.
    """
    unit = " MiB of" if resource == "ram" else ""
    more = f", {_number(needed)} more needed" if needed != 1 else ""
    return Reason(
        _ROOM_CODES.get(resource, ReasonCode.ROOM_RESOURCE),
        f"quota: {_number(used)} of {_number(limit)}{unit} {resource} of {where} in use{more}",
        {"limit": limit, "used": used, "needed": needed},
    )


def too_small(where: str, resource: str, *, limit: float, needed: float) -> Reason:
    """All nodes of a request together are more than a limit. Parameters as for `quota_used_up`."""
    unit = " MiB of" if resource == "ram" else ""
    text = f"{EXCEEDS_QUOTA.text}: {_number(needed)}{unit} {resource} needed, the limit of {where} is {_number(limit)}"
    return Reason(ReasonCode.QUOTA_TOO_SMALL, text, {"limit": limit, "needed": needed})


def pool_paused(request_id: str, cause: Reason) -> Reason:
    """Nothing new is accepted, because another request of the pool waits for room.

    :param cause: what that one waits for.
    """
    text = f"the pool is paused: another request waits for room ({request_id}: {cause.text})"
    return Reason(ReasonCode.WAIT_POOL_PAUSED, text, cause.numbers)


def hidden_limit(label: str, nodes: int, used: int, words: str) -> Reason:
    """The cloud refused a node, although the limits that it tells left room.

    :param nodes: of the provider, with which the cloud was full. ``used``: that there are now.
    :param words: what the cloud said.
    """
    text = f"{NO_ROOM.text}: the cloud refused label {label} with {nodes} nodes of the provider, {used} are there now"
    text = f"{text}: {words}" if words else text
    return Reason(ReasonCode.ROOM_HIDDEN, text, {"limit": nodes, "used": used, "needed": 1})


def launch_failed(causes: Mapping[str, str]) -> Reason:
    """Nodes of a request could not be launched in all their attempts.

    :param causes: node -> why its last attempt failed; empty = not known.
    """
    known = list(dict.fromkeys(cause for cause in causes.values() if cause))
    why = f": {'; '.join(known)}" if known else ""
    text = f"node {', '.join(causes)} failed to launch{why}"
    return Reason(ReasonCode.LAUNCH_FAILED, text, {"nodes": len(causes)})


def images_missing(labels: Sequence[str], causes: Mapping[str, str]) -> Reason:
    """The images of labels are not there.

    :param labels: all of them. ``causes``: label -> why, and what corrects it, as far as it is known.
    """
    text = f"{IMAGE_MISSING.text}: label(s) {', '.join(labels)}"
    known = [f"{label}: {causes[label]}" for label in labels if label in causes]
    return Reason(ReasonCode.IMAGE_MISSING, "; ".join([text, *known]))


def tenant_order(tenant: str, cause: Reason) -> Reason:
    """Another request of the tenant comes first. :param cause: what that one waits for."""
    text = f"another request of tenant {tenant} comes first, and waits for room in its limits: {cause.text}"
    return Reason(ReasonCode.WAIT_TENANT_ORDER, text, cause.numbers)


def tenant_limit(tenant: str, resource: str, *, limit: float, used: float, needed: float) -> Reason:
    """A tenant has as much as it may have. Parameters as for `quota_used_up`."""
    if used + 1 > limit:
        text = f"tenant {tenant} is at its limit of {_number(limit)} {resource}"
    else:
        text = f"tenant {tenant} uses {_number(used)} of {_number(limit)} {resource}, {_number(needed)} more needed"
    return Reason(ReasonCode.ROOM_TENANT, text, {"limit": limit, "used": used, "needed": needed})


def in_order(place: int, total: int, what_for: Reason | None) -> Reason:
    """A request that is not the first of those that wait for the same.

    :param place: from 1. ``total``: how many wait.
    :param what_for: why the first one waits; None = nothing is known to be in its way.
    """
    after = "that wait for their turn" if what_for is None else f"in front of the limit: {what_for.text}"
    text = f"{_ordinal(place)} of {total} requests {after}"
    return Reason(ReasonCode.WAIT_ORDER, text, {"place": place, "total": total})


def _number(amount: float) -> str:
    return f"{amount:g}" if not math.isfinite(amount) or amount != int(amount) else str(int(amount))


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{_ORDINAL_ENDS.get(number % 10, 'th')}"


#: Reasons without numbers.
NEXT_PASS: Final = Reason(ReasonCode.WAIT_ORDER, "the next pass of the pool looks at it")
NO_READY_NODE: Final = Reason(ReasonCode.WAIT_READY_NODE, "no ready node and the pool launches none")
POOL_PAUSED: Final = Reason(ReasonCode.WAIT_POOL_PAUSED, "the pool is paused: another request waits for room")
NO_ROOM: Final = Reason(ReasonCode.ROOM_HIDDEN, "the provider has no room for another node now")
REQUEST_LOCKED: Final = Reason(ReasonCode.REQUEST_LOCKED, "somebody else holds the lock of the request")
REQUEST_CHANGED: Final = Reason(ReasonCode.REQUEST_CHANGED, "somebody else changed the request or one of its nodes")
FIRST_CHOICE: Final = Reason(ReasonCode.TURN_OF_ANOTHER_POOL, "another pool is the first choice for this request")
SIBLING_SERVES: Final = Reason(ReasonCode.TURN_OF_ANOTHER_POOL, "another pool of this launcher is serving the request")
OTHER_LAUNCHERS: Final = Reason(
    ReasonCode.WAIT_OTHER_LAUNCHERS, "this launcher has just started; pools that can serve the request may come back"
)
NO_LAUNCHES: Final = Reason(
    ReasonCode.POOL_WITHOUT_LAUNCHES, "max-concurrency is 0, nothing is ever launched here", {"limit": 0}
)
POOL_DISABLED: Final = Reason(ReasonCode.POOL_DISABLED, "the pool is disabled: max-servers is 0 or less", {"limit": 0})
IMAGE_MISSING: Final = Reason(ReasonCode.IMAGE_MISSING, "images are not available")
EXCEEDS_QUOTA: Final = Reason(ReasonCode.QUOTA_TOO_SMALL, "it would exceed quota")
ERROR_JUDGING: Final = Reason(ReasonCode.DRIVER_ERROR, "an error while judging it")
REQUEST_TOO_LARGE: Final = Reason(
    ReasonCode.REQUEST_TOO_LARGE, "its record is too large: ZooKeeper could not take what is written when it is served"
)
ERROR_SERVING: Final = Reason(ReasonCode.DRIVER_ERROR, "an error while serving it")
