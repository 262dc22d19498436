# SPDX-License-Identifier: Apache-2.0
"""Why a request waits in a pool, or was declined by it: a closed list of codes, each with numbers and a text."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final


class ReasonCode(enum.Enum):
    """Programs compare these; the texts of `Reason` may change.

    The comments are the page reference/reasons: groups, and of each code what it means, the numbers of its text, and
    what to do. Where `nodepool.plan.explained` has a sentence for a code, the page shows that.
    """

    # The request can never be served here. When every registered pool has declined it, it fails, and Zuul reports
    # NODE_FAILURE.
    #: This pool does not have a label of the request, and no registered pool could serve all of it.
    #: Do: Correct the label in the job, or add it to ``labels`` and to the pool. ``nodepool label-list`` shows the
    #: labels that are served.
    LABEL_UNKNOWN = "label.unknown"
    #: The label can never work here, because of the configuration or the cloud, for example a flavor that does not
    #: exist. The text has the cause.
    #: Do: What the text says. The label is tried again after 5 minutes, or at once after a change of the
    #: configuration.
    LABEL_BROKEN = "label.broken"
    #: The image of a label does not exist: it is not built, not uploaded to this provider, or not in the cloud. The
    #: text names the labels, and the cause of each.
    #: Do: Look at ``nodepool dib-image-list`` and ``nodepool image-list``, or at the images of the cloud.
    IMAGE_MISSING = "image.missing"
    #: The tenant of the request is not in ``allowed-tenants`` of a label of the request, of the pool, or of so many of
    #: its static hosts that the others are too few. No registered pool could serve it.
    #: Do: Add the tenant to the list that the text names, or use another label in the job.
    ACCESS_TENANT = "access.tenant"
    #: ``max-servers`` of the pool is 0.
    #: Numbers: ``limit``.
    #: Do: To stop a pool for a while without declined requests, pause it instead.
    POOL_DISABLED = "pool.disabled"
    #: The provider launches nothing: ``max-concurrency`` is 0, or its hosts are always registered and need no
    #: ``min-ready``.
    #: Numbers: ``limit``.
    #: Do: Raise ``max-concurrency``, or remove ``min-ready`` of the label.
    POOL_WITHOUT_LAUNCHES = "pool.without-launches"
    #: All nodes of the request together are more than a limit of the pool or the provider allows, even if nothing else
    #: ran.
    #: Numbers: ``limit``, ``needed``.
    QUOTA_TOO_SMALL = "quota.too-small"
    #: The request asks for more static hosts at once than the pool has slots with its labels. Waiting does not help.
    #: Numbers: ``needed``, ``slots``.
    ROOM_STATIC = "room.static"
    #: A node of the request could not be launched in all its attempts. The text names the nodes, and why their last
    #: attempts failed.
    #: Numbers: ``nodes`` that failed.
    #: Do: ``nodepool explain NODE`` or the log of the launcher, searched for the id of the node, has the cause of each
    #: attempt.
    LAUNCH_FAILED = "launch.failed"
    #: The driver declined the request in its own words. Drivers that were written for the released Nodepool give no
    #: codes.
    #: Do: What the text says.
    DRIVER_DECLINED = "driver.declined"
    #: The driver raised an error while the request was judged or served. The log of the launcher has the traceback,
    #: for the author of the driver.
    DRIVER_ERROR = "driver.error"
    #: The record of the request is so large that ZooKeeper could not take what is written when it is served. The
    #: request fails.
    #: Do: Look for what the requestor has put into it, such as ``requestor_data``.
    REQUEST_TOO_LARGE = "request.too-large"

    # There is no room now. The pool can serve the request later.
    #: The limit of instances of the pool or the provider is used up. The text says whose limit it is.
    #: Numbers: ``limit``, ``used``, ``needed``.
    #: Do: Wait for nodes to be returned, delete nodes on hold, or raise ``max-servers`` or the quota of the cloud.
    ROOM_INSTANCES = "room.instances"
    #: The limit of cores is used up.
    #: Numbers: ``limit``, ``used``, ``needed``.
    #: Do: As ``room.instances``, with ``max-cores``.
    ROOM_CORES = "room.cores"
    #: The limit of RAM is used up.
    #: Numbers: ``limit``, ``used``, ``needed`` in MiB.
    #: Do: As ``room.instances``, with ``max-ram``.
    ROOM_RAM = "room.ram"
    #: The limit of another resource, which the text names, is used up: volumes, their size, or a resource of
    #: ``max-resources``.
    #: Numbers: ``limit``, ``used``, ``needed``.
    #: Do: As ``room.instances``, with the limit that the text names.
    ROOM_RESOURCE = "room.resource"
    #: The tenant of the request uses what it may use, over all providers.
    #: Numbers: ``limit``, ``used``, ``needed``; none where other launchers took the room at the same moment.
    #: Do: Wait for other jobs of the tenant, or raise its entry in ``tenant-resource-limits``.
    ROOM_TENANT = "room.tenant"
    #: The provider rejected a node although the limits that it reports leave room, for example because of a quota of
    #: ports. The text has the words of the cloud, for example ``VcpuLimitExceeded`` of AWS.
    #: Numbers: ``limit`` (nodes with which it was full), ``used``, ``needed``; none when it is not known.
    #: Do: Look at the quota that the text names, and at the quotas that the cloud does not report. The launcher tries
    #: one more node from time to time.
    ROOM_HIDDEN = "room.hidden"
    #: The limits of the provider, or what a label needs, are not known, because the cloud has not answered yet. The
    #: text has its last error.
    #: Do: Look at the cloud. It is asked again within seconds.
    QUOTA_UNKNOWN = "quota.unknown"

    # It waits for something else in this pool.
    #: Other requests come first, or the next pass of the pool looks at it. The text says how many and what the first
    #: one waits for.
    #: Numbers: ``place``, ``total``.
    #: Do: Nothing; look at what the first one waits for.
    WAIT_ORDER = "wait.order"
    #: Another request of the pool waits for room, and nothing new is accepted meanwhile. The text names that request
    #: and what it waits for.
    #: Numbers: those of what that request waits for.
    #: Do: As for the reason of that request.
    WAIT_POOL_PAUSED = "wait.pool-paused"
    #: As many launches run in the provider as ``max-concurrency`` allows.
    #: Numbers: ``limit``, ``used``.
    WAIT_MAX_CONCURRENCY = "wait.max-concurrency"
    #: Only a ready node can serve it: the provider launches none. The text counts the slots of static hosts, and names
    #: hosts that are down or quarantined.
    #: Numbers: ``needed``, ``slots``, ``free``, ``in_use``, ``down``, ``quarantined``; none for other drivers.
    #: Do: Wait for a node to be returned, or look at the hosts that are down.
    WAIT_READY_NODE = "wait.ready-node"
    #: Another request of the tenant comes first, and waits for room in the limits of the tenant.
    #: Numbers: ``limit``, ``used``, ``needed`` of that request.
    #: Do: As ``room.tenant``.
    WAIT_TENANT_ORDER = "wait.tenant-order"
    #: The limits of the tenant could not be checked.
    #: Do: The log of the launcher says why.
    WAIT_TENANT_UNKNOWN = "wait.tenant-unknown"
    #: The launcher has just started. Pools that can serve the request may come back.
    #: Do: Nothing; it is judged again within 30 seconds.
    WAIT_OTHER_LAUNCHERS = "wait.other-launchers"
    #: Each of two requests waited for what the other one held; this one gave its nodes back.
    #: Do: Nothing; it is served after the other one.
    WAIT_DEADLOCK = "wait.deadlock-avoidance"
    #: A launch was aborted, for example because the cloud was full; another one follows.
    #: Numbers: ``delay_seconds``.
    #: Do: Nothing, unless it goes on. The log has the answer of the cloud.
    LAUNCH_ABORTED = "launch.aborted"
    #: The provider launches nothing now, because the cloud does not answer or refuses the login: its circuit breaker is
    #: open. The text has the last error.
    #: Do: Look at the cloud and its credentials. A probe is sent every few seconds, and launches go on with its first
    #: answer.
    PROVIDER_CIRCUIT_OPEN = "provider.circuit-open"
    #: An operator paused the provider. The text says who and why. Requests wait or go to other pools. No request fails
    #: because of it.
    #: Numbers: the times of the record in seconds since the epoch: ``since``, and ``until`` where it ends by itself.
    #: Do: ``nodepool resume provider NAME`` ends it.
    PROVIDER_PAUSED = "provider.paused"
    #: An operator drains the provider. What runs goes on, and nothing new is taken.
    #: Numbers: as ``provider.paused``.
    #: Do: As ``provider.paused``.
    PROVIDER_DRAINING = "provider.draining"
    #: An operator paused the pool.
    #: Numbers: as ``provider.paused``.
    #: Do: As ``provider.paused``.
    POOL_PAUSED = "pool.paused"
    #: An operator drains the pool.
    #: Numbers: as ``provider.paused``.
    #: Do: As ``provider.paused``.
    POOL_DRAINING = "pool.draining"
    #: An operator paused a label of the request. No pool of any provider serves it meanwhile.
    #: Numbers: as ``provider.paused``.
    #: Do: As ``provider.paused``.
    LABEL_PAUSED = "label.paused"
    #: An operator paused the launcher that serves the pool.
    #: Numbers: as ``provider.paused``.
    #: Do: As ``provider.paused``.
    LAUNCHER_PAUSED = "launcher.paused"
    #: The launcher that serves the pool finishes what it does, and ends: an operator drains it, or it got SIGTERM with
    #: ``--drain``.
    #: Numbers: as ``provider.paused``.
    #: Do: Start the launcher again, or leave its requests to the others.
    LAUNCHER_DRAINING = "launcher.draining"
    #: A label of the request is one of a metastatic provider. There is no free slot, and every pool that could launch a
    #: backing node is paused or drained. The text names what is out of service, by whom and why. Requests wait or go to
    #: other pools. No request fails because of it.
    #: Numbers: ``since``: when all of them were out of service; ``until``: when the first of them is in service again,
    #: if that is known; in seconds since the epoch.
    #: Do: ``nodepool resume`` what the text names.
    BACKING_HELD = "backing.held"
    #: The provider of the pool is not started yet.
    #: Do: Nothing, unless it lasts; the log of the launcher says why a provider does not start.
    PROVIDER_STARTING = "provider.starting"
    #: Another client has the lock of the request: another launcher serves it, or Zuul changes it.
    #: Do: Nothing; it is judged again within a second.
    REQUEST_LOCKED = "request.locked"
    #: Another client changed the request or one of its nodes while it was served.
    #: Do: Nothing; it is tried again.
    REQUEST_CHANGED = "request.changed"

    # It is for another pool. This pool leaves the request to that one.
    #: Another pool is the first choice for the request, or serves it already.
    #: Do: Nothing. If the other pool does not take it within a second, this one does.
    TURN_OF_ANOTHER_POOL = "turn.of-another-pool"
    #: The request names another provider, which can serve it: a later attempt of a job, or a job that needs its nodes
    #: in one place.
    #: Do: Look at that provider.
    TURN_OF_WANTED_PROVIDER = "turn.of-wanted-provider"
    #: A pool with a better priority can serve it.
    #: Do: Look at that pool, which the text names.
    TURN_OF_PRIORITY = "turn.of-priority"
    #: This pool does not have the label, or its tenant may not have it here. Another pool can serve the request.
    #: Do: Look at that pool, which the text names.
    TURN_OF_LABEL = "turn.of-label"
    #: This pool does not have the label. A pool that left the registry a short time ago had it, and may come back.
    #: Do: Nothing. If that pool does not come back within some minutes, the request is declined.
    TURN_OF_ABSENT_POOL = "turn.of-absent-pool"
    #: No pool has all labels of the request. A launcher takes its nodes from several pools, which ``mixed-nodesets`` of
    #: its labels allows.
    #: Do: Nothing; a launcher begins with it within some seconds.
    TURN_OF_SEVERAL_POOLS = "turn.of-several-pools"
    #: This pool declined the request before.
    DECLINED_BEFORE = "declined.before"

    # It is being served. The pool works on the request.
    #: The driver checks the ready nodes that it will get.
    SERVED_CHECKING = "served.checking"
    #: The transaction that fulfils it is under way.
    SERVED_FULFILLING = "served.fulfilling"
    #: The request is being locked.
    SERVED_LOCKING = "served.locking"
    #: Its nodes are taken or created.
    SERVED_GATHERING = "served.gathering"
    #: Its nodes are being launched.
    #: Do: If it lasts, look at its nodes with ``nodepool explain NODE``.
    SERVED_LAUNCHING = "served.launching"
    #: It ends as soon as its launches have ended.
    SERVED_ENDING = "served.ending"
    #: The pool has nothing to do with it any more.
    SERVED_OVER = "served.over"

    # No pool reports anything about it. Only ``nodepool explain`` gives these reasons.
    #: No registered pool has all labels of the request, or no pool is registered at all.
    #: Do: Start a launcher, or look at its log if it runs. For a label that no pool has, see ``label.unknown``.
    POOL_MISSING = "pool.missing"
    #: The launcher of the pool does not report about the request. It is an older release, or its status record has no
    #: room for all of its requests.
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
    text = f"the pool is full: another request waits for room ({request_id}: {cause.text})"
    return Reason(ReasonCode.WAIT_POOL_PAUSED, text, cause.numbers)


def hidden_limit(label: str, nodes: int, used: int, words: str) -> Reason:
    """The cloud refused a node, although the limits that it tells left room.

    :param nodes: of the provider, with which the cloud was full. ``used``: that there are now.
    :param words: what the cloud stated.
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


def no_access(tenant: str | None, what: str) -> Reason:
    """A request may not have something because of its tenant. :param what: whose ``allowed-tenants`` it is."""
    who = "a request without a tenant" if tenant is None else f"tenant {tenant}"
    return Reason(ReasonCode.ACCESS_TENANT, f"{who} has no access: allowed-tenants of {what}")


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
NODES_OF_OTHERS: Final = Reason(
    ReasonCode.WAIT_READY_NODE, "the nodes that are free have allowed-tenants without the tenant of the request"
)
POOL_PAUSED: Final = Reason(ReasonCode.WAIT_POOL_PAUSED, "the pool is full: another request waits for room")
NO_ROOM: Final = Reason(ReasonCode.ROOM_HIDDEN, "the provider has no room for another node now")
REQUEST_LOCKED: Final = Reason(ReasonCode.REQUEST_LOCKED, "another process holds the lock of the request")
REQUEST_CHANGED: Final = Reason(ReasonCode.REQUEST_CHANGED, "another process changed the request or one of its nodes")
FIRST_CHOICE: Final = Reason(ReasonCode.TURN_OF_ANOTHER_POOL, "another pool is the first choice for this request")
SIBLING_SERVES: Final = Reason(ReasonCode.TURN_OF_ANOTHER_POOL, "another pool of this launcher is serving the request")
SEVERAL_POOLS: Final = Reason(
    ReasonCode.TURN_OF_SEVERAL_POOLS, "no pool has all labels of it, and a launcher takes its nodes from several pools"
)
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
