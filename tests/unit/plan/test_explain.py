# SPDX-License-Identifier: Apache-2.0
"""`nodepool explain`: which subject a name stands for, why it is as it is, and what an operator can do about it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nodepool.model.event import Event
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.node import Node
from nodepool.model.status import (
    AbsentProvider,
    FailedLaunch,
    HostStatus,
    LabelStatus,
    LauncherStatus,
    LaunchesStatus,
    LaunchStatus,
    LimitStatus,
    PoolStatus,
    RequestStatus,
)
from nodepool.plan.explain import (
    RECENT_SECONDS,
    explain,
    explain_label,
    explain_node,
    explain_provider,
    explain_request,
    kind_of,
    similar,
)
from nodepool.plan.explained import ExplainedNode, ExplainedRequest
from nodepool.plan.observed import UNFETCHED_SECONDS, Observed
from nodepool.plan.queue import RequestKind
from nodepool.plan.static import QUARANTINED
from tests.support.observed import FULL, NOW, component, known, node, pool_id, request, seen, status, waiting

ID = "200-0000000007"
GPU, GPU2, LAB = component("cloud-1", "gpu"), component("cloud-2", "gpu"), component("lab", "arm")
FULL1 = status("cloud-1", waiting=[waiting("gpu")])
AWAY = status("cloud-1", state="unavailable", code="provider.circuit-open", text="HTTP 503", since=NOW - 940)
BROKEN = {"gpu": LabelStatus("label.broken", "no flavor", NOW - 9)}
SLOW = LaunchStatus(
    "0000000001", "gpu", "build", "building", NOW - 75, NOW - 70, NOW + 3525, "launch-timeout", 4.0, slow=True
)
SERVED = RequestStatus(ID, "launching", "served.launching", "its nodes are being launched", {}, NOW - 75)


def made(number: int = 7, *labels: str, **fields: Any) -> Any:
    found = request(number, *labels)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def explained(observed: Observed, number: int = 0) -> ExplainedRequest:
    return explain_request(list(observed.requests.values())[number], observed)


def of_node(state: str, allocated_to: str | None = None, **fields: Any) -> Node:
    found = node(1, state=state)
    found.allocated_to = allocated_to
    for name, value in fields.items():
        setattr(found, name, value)
    return found


# -- requests

LEAVES = waiting("gpu", code="turn.of-another-pool", text="another pool is the first choice")
FAILED = made(state="failed", declined_by=[pool_id("lab"), pool_id("cloud-1"), "l9-PoolWorker.old-main-abc"])
DECLINED = RequestStatus(ID, "done", "label.broken", "no flavor 'm1'", {}, NOW - 3)
WHY = Event(NOW - 3, "l1", f"request {ID}", "failed", "label.broken", "every pool declined it")
DONE = {"registered": [LAB, GPU], "statuses": [status("lab"), status("cloud-1", declined=[DECLINED])], "events": [WHY]}
BUILDING = {"registered": [GPU], "nodes": known(of_node("building", ID))}
STUCK = {**BUILDING, "statuses": [replace(AWAY, requests=[SERVED], launching=[SLOW])]}
PAUSED_POOL = {"registered": [component("cloud-1", "gpu", paused=True)]}
NODES = ["0000000001", "0000000002"]


def here(*statuses: PoolStatus) -> dict[str, Any]:
    return {"registered": [GPU], "statuses": list(statuses)}


@pytest.mark.parametrize(
    ("one", "fields", "code", "text"),
    [
        # E-4: the nearest pool gives the answer.
        (made(), here(FULL1), "room.cores", f"waits for room in cloud-1/main: {FULL[1]}"),
        # A status is up to two seconds old: a new request is in none. A kind may be left out of a full record.
        (made(), here(status("cloud-1")), "wait.order", ""),
        (made(), here(status("cloud-1", omitted=9)), "status.missing", ""),
        (made(), here(status("cloud-1", labels=BROKEN)), "label.broken", ""),
        (made(), {}, "pool.missing", "waits: no launcher is registered"),
        (made(7, "gpus"), here(), "pool.missing", "no registered pool has the label gpus, did you mean 'gpu'?"),
        (made(7, "gpu", "x"), {"registered": [GPU, component("a", "x")]}, "pool.missing", "no registered pool has"),
        (made(state="fulfilled", nodes=NODES), {}, None, "is fulfilled with nodes 0000000001, 0000000002"),
        # E-6: the cause is the answer. One that failed does not wait.
        (FAILED, DONE, "label.broken", "failed, because every pool declined it. cloud-1/main: no flavor 'm1'"),
        (made(state="failed"), {}, None, "failed; no launcher is registered"),
        # E-5: released launchers report nothing but what the registry has.
        (made(), PAUSED_POOL, "status.missing", "waits in cloud-1/main: another request waits for room"),
        (made(state="pending"), BUILDING, "served.launching", "is served by cloud-1/main: 1 of 1 nodes are"),
        (made(state="pending"), {}, "status.missing", ""),
        # E-10: launches that take long in a cloud that is away.
        (made(state="pending"), STUCK, "served.launching", "is served by cloud-1/main: its nodes are being launched; "),
    ],
)
def test_requests(one: Any, fields: dict[str, Any], code: str | None, text: str) -> None:
    """E-4, E-5, E-6, E-10: one cause, and one sentence."""
    found = explained(seen(one, **fields))
    assert code is None or found.code == code
    assert found.text.startswith(text)
    if fields is STUCK:
        assert "; cloud-1/main launches nothing new: HTTP 503; node 0000000001 waits for the cloud, which" in found.text


def test_all_that_is_known_of_a_request() -> None:
    """E-4: each pool has its verdict; what is ahead is what the pool could serve, and what it has locked."""
    others = [
        made(5),
        made(6, "arm"),
        made(8),
        made(4, declined_by=[pool_id("cloud-1")]),
        made(9, state="pending", id="100-0000000009"),
    ]
    paused = RequestStatus("100-0000000009", "paused", "room.cores", "full", {}, NOW)
    statuses = [replace(FULL1, requests=[paused]), replace(AWAY, id=pool_id("cloud-2"), provider="cloud-2")]
    observed = seen(made(), *others, registered=[GPU, GPU2, LAB], statuses=[*statuses, status("lab")])
    found = explained(observed)
    assert found.text == f"waits for room in cloud-1/main: {FULL[1]}; 2 requests come first"
    assert (found.ahead, found.numbers, found.age_seconds) == (2, FULL[2], 412)
    assert (found.job, found.pipeline, found.tenant, found.event_id) == ("unit", "check", "t1", "6c1e")
    assert [(one.pool, one.verdict, one.code, one.since) for one in found.pools] == [
        ("cloud-1/main", "waits", "room.cores", NOW - 60),
        ("cloud-2/main", "absent", "provider.circuit-open", NOW - 412),
    ]
    assert "cloud-2/main would serve it, but: HTTP 503" in found.remedies
    assert [moment.what for moment in found.history] == ["submitted", "absent", "waits"]
    data = json.loads(json.dumps(found.to_dict()))
    assert (data["kind"], data["pools"][0]["launchers"]) == ("request", ["l1"])


def test_nothing_before_its_submission() -> None:
    """E-9: its kind, its provider, its label and its node may be older than a request; its history is not."""
    new = made(created_time=NOW - 2)
    older = {
        "a": status("a", waiting=[waiting("gpu", since=NOW - 60)]),
        "b": status("b", state="unavailable", code="provider.circuit-open", text="HTTP 503", since=NOW - 353),
        "c": status("c", labels=BROKEN),
        "d": status("d", waiting=[waiting("gpu", code="turn.of-label", since=NOW - 30)]),
    }
    pools = [component(name, "gpu") for name in older]
    found = explained(seen(new, registered=pools, statuses=[*older.values()], nodes=known(of_node("ready", ID))))
    assert sorted(one.verdict for one in found.pools) == ["absent", "declined", "leaves", "waits"]
    assert {*(one.since for one in found.pools), *(moment.at for moment in found.history)} == {NOW - 2}
    assert (found.history[0].what, len(found.history)) == ("submitted", 6)


@pytest.mark.parametrize(("stage", "verdict"), [("paused", "waits"), ("launching", "serves"), ("deferred", "waits")])
def test_request_that_a_pool_works_on(stage: str, verdict: str) -> None:
    """E-4"""
    one = made(state="requested" if stage == "deferred" else "pending")
    statuses = [status("cloud-1", requests=[replace(SERVED, stage=stage)]), status("cloud-2")]
    found = explained(seen(one, registered=[GPU, GPU2], statuses=statuses))
    assert (found.pools[0].pool, found.pools[0].verdict) == ("cloud-1/main", verdict)


def test_who_declined() -> None:
    """E-6: also pools of launchers that are no longer there."""
    statuses = [status("lab"), status("cloud-1", declined=[DECLINED])]
    found = explained(seen(FAILED, registered=[LAB, GPU], statuses=statuses))
    expected = {"cloud-1/main": "label.broken", "lab/main": "label.unknown", "old-main": "declined.before"}
    assert {one.pool: one.code for one in found.pools} == expected


def test_pools_of_several_launchers_are_one() -> None:
    """E-4: the one that does most has the word."""
    pools = [GPU, component("cloud-1", "gpu", host="l2")]
    for second, launchers in ((LEAVES, ["l1"]), (waiting("gpu"), ["l1", "l2"])):
        statuses = [FULL1, status("cloud-1", "l2", waiting=[second])]
        (one,) = explained(seen(made(), registered=pools, statuses=statuses)).pools
        assert (one.launchers, one.verdict) == (launchers, "waits")


def test_kinds_with_the_same_labels() -> None:
    """E-1: a request that another pool declined waits for something else than one that none has declined."""
    requests = [made(7), made(8, declined_by=["another"])]
    marks = [RequestKind.of(one).mark for one in requests]
    queues = [replace(waiting("gpu", code=c), mark=m) for c, m in zip(("room.cores", "wait.order"), marks, strict=True)]
    observed = seen(*requests, registered=[GPU], statuses=[status("cloud-1", waiting=queues)])
    assert [explained(observed, number).code for number in (0, 1)] == ["room.cores", "wait.order"]
    requests[1].declined_by.append("and another")
    assert explained(observed, 1).code in ("room.cores", "wait.order"), "what is known of its like"


def test_nodes_that_are_not_fetched() -> None:
    """E-11: their requestor may be away; others wait for their room meanwhile."""
    ready = of_node("ready", ID)
    one = made(state="fulfilled", nodes=[ready.key], requestor="zuul-1", state_time=NOW - UNFETCHED_SECONDS - 1)
    observed = seen(one, made(8), registered=[GPU], statuses=[FULL1], nodes=known(ready))
    found = explained(observed)
    assert found.text == "is fulfilled with node 0000000001; they are ready, and it has not fetched them"
    (remedy,) = found.remedies
    assert remedy.startswith("zuul-1 has not fetched the nodes for 5 min: look whether it works")
    assert remedy in explain("0000000001", "node", observed).to_dict()["remedies"]
    others = [text for text in explained(observed, 1).remedies if text.startswith(f"nodes of request {ID} are ready")]
    assert len(others) == 1
    one.state_time = NOW - UNFETCHED_SECONDS + 1
    assert explained(replace(observed)).remedies == []


# -- what an operator can do (E-8)


def remedies(code: str, nodes: tuple[Node, ...] = (), text: str = "text", **fields: Any) -> list[str]:
    maintenance = fields.pop("maintenance", ())
    pool = status("cloud-1", waiting=[waiting("gpu", code=code, text=text)], **fields)
    observed = seen(made(), nodes=known(*nodes), registered=[GPU], statuses=[pool], maintenance=maintenance)
    return list(explained(observed).remedies)


def old(number: int, state: str, seconds: float = 50) -> Node:
    found = node(number, state=state)
    found.state_time, found.tenant_name = NOW - seconds, "t1"
    return found


HOLDERS = (old(1, "hold"), old(2, "in-use", 99), old(3, "in-use", 9000), old(4, "deleting", 601))
LIMITS = [LimitStatus("cloud", "cores", 80, 72, 8, NOW), LimitStatus("cloud", "ram", 800, 72, 8, NOW)]
HOSTS = [
    HostStatus("zuul@h1:22", False, "no route"),
    HostStatus("zuul@h2:22", True),
    HostStatus("zuul@h3:22", True, quarantine="disk"),
]
RECORDS = [
    Maintenance("provider", "cloud-2", Mode.PAUSE, "network", "alice@desk"),
    Maintenance("pool", "cloud-3/main", Mode.DRAIN),
    Maintenance("provider", "cloud-4", Mode.PAUSE, "other", "bob@desk"),
]


IN_ROOM = [
    "others use 8 of 80 cores of the same cloud quota",
    "nodes on hold take room: 0000000001; nodepool delete 0000000001 frees it",
    "node 0000000003 is in use for the longest time",
    "nodes are being deleted for more than 10 minutes: 0000000004",
]
OF_HOSTS = [
    "host zuul@h1:22 is down: no route",
    "host zuul@h3:22 is quarantined: disk; nodepool release zuul@h3:22 ends",
]
OF_TENANT = ["nodes on hold count for tenant t1: 0000000001", "the limits of tenant t1 are"]
LAST = {"launches": LaunchesStatus(last_error=FailedLaunch("error.status", "no flavor", NOW - 5, "0000000009"))}
TEXT = f"no pool makes it: {RECORDS[0].text}; {RECORDS[1].text}"
ROOM = "room.instances room.cores room.ram room.resource wait.pool-paused"
RESUME = ["nodepool resume provider cloud-2", "nodepool resume pool cloud-3/main"]
FEWER = "ask for fewer nodes in the nodeset, or"


@pytest.mark.parametrize(
    ("codes", "fields", "expected"),
    [
        (ROOM, {"nodes": HOLDERS, "limits": LIMITS}, IN_ROOM),
        ("room.tenant wait.tenant-order", {"nodes": HOLDERS[:1]}, OF_TENANT),
        ("wait.ready-node", {"nodes": HOLDERS[1:2], "hosts": HOSTS}, [*OF_HOSTS, "node 0000000002 has its host for"]),
        ("provider.circuit-open", {"next": NOW + 9}, ["cloud-1/main is tried again in 9 s"]),
        ("room.cores provider.circuit-open wait.order", {}, []),
        ("provider.paused", {}, ["nodepool resume provider cloud-1"]),
        ("pool.draining", {}, ["nodepool resume pool cloud-1/main"]),
        # T-13: the records that the text names, of whatever kind; not those of others.
        ("backing.held", {"text": TEXT, "maintenance": RECORDS}, RESUME),
        ("launch.failed", LAST, ["the last launch that failed there, of node 0000000009: no flavor"]),
        ("wait.max-concurrency", {}, ["max-concurrency of provider cloud-1"]),
        ("driver.error", {}, [f"search the log of l1 for {ID}"]),
        ("room.static", {}, [f"{FEWER} add hosts or raise max-parallel-jobs"]),
        ("quota.too-small", {}, [f"{FEWER} raise the limit"]),
    ],
)
def test_remedies(codes: str, fields: dict[str, Any], expected: list[str]) -> None:
    """E-8, T-13: who has the room, and what ends the trouble."""
    for found in (remedies(code, **fields) for code in codes.split()):
        assert len(found) == len(expected)
        assert all(begin in text for text, begin in zip(found, expected, strict=True))


# -- nodes

WITH_JOB = f"{ID}, job unit, pipeline check"
FAILURE = FailedLaunch("error.status", "the cloud refuses the server", NOW - 5, "0000000001")
DELETION = Event(NOW - 5, "l1", "node 0000000001", "deletion failed", "", "attempt 7: HTTP 500")
STATES = {
    "building": "is being launched in cloud-1/main",
    "ready": "is ready",
    "in-use": "is in use",
    "used": "was used",
    "failed": "could not be launched",
}
OF_HOST = of_node("hold", comment=f"{QUARANTINED}disk", username="zuul", connection_port=22, hostname="h1")
OF_HOST.external_id, OF_HOST.slot = "h1", 0
LAUNCHED = of_node("building", ID, external_id="server-1")


def node_text(one: Node, *requests: Any, **fields: Any) -> ExplainedNode:
    return explain_node(one, seen(*requests, nodes=known(one), **{"registered": [GPU], **fields}))


@pytest.mark.parametrize(
    ("one", "requests", "fields", "text", "remedy"),
    [
        *(
            (of_node(s, ID), [made(state="fulfilled")], {}, f"{w} for request {WITH_JOB}", "")
            for s, w in STATES.items()
        ),
        # Zuul removes a request when it has the nodes: then the tenant is all that is known.
        (of_node("in-use", ID, tenant_name="t1"), [], {}, f"is in use for request {ID}, tenant t1", ""),
        (of_node("ready", ID), [], {}, "(the request is gone)", ""),
        # E-7: free, and not taken.
        (node(1), [], {}, "is ready and free; no request wants gpu", ""),
        (node(1), [made(), made(5), made(6, "arm")], {}, "is ready and free; 2 requests want gpu", ""),
        (node(1), [], {"locked": frozenset({"0000000001"})}, "is ready and locked", ""),
        # D-9: its instance may be in another place.
        (node(1), [], here(status("cloud-1", missing={"0000000001": 1.0})), "is ready, but the", "cloud-1 shows"),
        (of_node("deleting", state_time=NOW - 700), [], {"events": [DELETION]}, DELETION.text, "search the log of l1"),
        (of_node("failed"), [], here(status("cloud-1", launches=LaunchesStatus(last_error=FAILURE))), FAILURE.text, ""),
        (of_node("used"), [], {"registered": []}, "", "no launcher serves provider cloud-1"),
        (of_node("ready", ID), [made(state="pending")], {}, "", f"explain {ID} tells what its request waits for"),
        (of_node("testing"), [], {}, "is testing", ""),
        # E-10: the step of a launch, and where to look. S-17: how a quarantine ends.
        (
            LAUNCHED,
            [made(state="pending")],
            here(status("cloud-1", launching=[SLOW])),
            "; it waits for the cloud",
            "server-1",
        ),
        (OF_HOST, [], {}, "is kept on hold", "nodepool release zuul@h1:22 ends the quarantine of its host"),
    ],
)
def test_nodes(one: Node, requests: list[Any], fields: dict[str, Any], text: str, remedy: str) -> None:
    """D-9, E-7, E-10, S-17: for whom it is, and what is done with it."""
    found = node_text(one, *requests, **fields)
    assert text in found.text
    assert not remedy or any(remedy in one for one in found.remedies)
    if requests and one.allocated_to:
        assert (found.request, found.job, found.tenant, found.event_id) == (ID, "unit", "t1", "6c1e")
        assert [moment.what for moment in found.history] == ["created", one.state]
        assert (found.age_seconds, found.state_seconds) == (100, 50)


def test_hold() -> None:
    """E-7: by whom, until when, and what ends it."""
    one = of_node("hold")
    one.hold(by="alice@desk", reason="debug the network", seconds=3600)
    found = node_text(one)
    assert found.text == "is kept on hold by alice@desk because of debug the network; launchers delete it in 1 h"
    assert (found.held_by, found.held_until) == ("alice@desk", NOW - 50 + 3600)
    assert (found.hold_reason, found.remedies) == ("debug the network", ["nodepool delete 0000000001 ends the hold"])


# -- labels


def failure(ago: float, label: str = "gpu") -> Event:
    text = f"no more ready node of {label}: why"
    return Event(NOW - ago, "l1 lab/main", f"label {label}", "failed", "launch.failed", text)


HELD, HELD2 = (waiting(*labels, code="backing.held", text="cloud-2 is paused") for labels in (["gpu"], ["arm", "gpu"]))
PAUSE = Maintenance("label", "gpu", Mode.PAUSE, "bad image", "alice", NOW - 3)
NODES_OF = known(node(1), of_node("ready", ID, id="0000000002"), node(3, state="building"), node(4, "arm"))
LEFT = status("cloud-2", waiting=[waiting("gpu", code="turn.of-priority", text="another pool")])


WANTED = [made(), made(8, state="pending"), made(9, "arm"), made(6, state="fulfilled")]
SERVED_BY = "is served by cloud-1/main; 0 free nodes; 0 requests want it"
FILLER = status("cloud-1", waiting=[replace(waiting("gpu"), min_ready=True)])
NOT_NOW = "is not served now by cloud-1/main; 0 free nodes; 0 requests want it"


@pytest.mark.parametrize(
    ("requests", "fields", "text"),
    [
        (WANTED, {**here(FULL1), "nodes": NODES_OF}, "is served by cloud-1/main; 1 free node; 2 requests want"),
        ([], here(status("cloud-1", labels=BROKEN)), NOT_NOW),
        ([], {"registered": [GPU, GPU2], "statuses": [AWAY]}, "is served by cloud-2/main;"),
        ([], {"registered": [GPU], "maintenance": [PAUSE]}, NOT_NOW),
        ([], {"registered": [GPU], "maintenance": [replace(PAUSE, until=NOW)]}, SERVED_BY),
        ([made()], {"registered": [component("a", "gpus")]}, "no registered pool has it, did you mean 'gpus'?"),
        # M-7: min-ready that waits for room. M-4: its failures are mentioned as long as they are recent.
        ([], here(FILLER), f"{SERVED_BY}; min-ready: 3 more ready nodes wait in cloud-1/main: {FULL[1]}"),
        ([], {**here(), "events": [failure(6), failure(5), failure(1, "arm")]}, f"{SERVED_BY}; min-ready: no more"),
        ([], {**here(), "events": [failure(RECENT_SECONDS + 1)]}, SERVED_BY),
    ],
)
def test_labels(requests: list[Any], fields: dict[str, Any], text: str) -> None:
    """M-4, M-7"""
    found = explain_label("gpu", seen(*requests, **fields))
    assert found.text.startswith(text)
    assert "min-ready" in text or "min-ready" not in found.text
    assert (found.state == "served") is found.text.startswith("is served by")


def test_pools_of_a_label() -> None:
    """T-13: requests for this label and no other say that its backing label is out of service."""
    pools = [component("shared", "gpu"), component("more", "gpu"), GPU2, GPU]
    statuses = [status("shared", waiting=[HELD2, HELD]), status("more", waiting=[HELD2]), LEFT]
    many = [FULL1, status("cloud-1", "l2", waiting=[waiting("gpu")])]
    found = explain_label("gpu", seen(registered=pools, statuses=[*statuses, *many], nodes=NODES_OF))
    assert {pool.pool: pool.code for pool in found.pools if pool.code} == {"shared/main": "backing.held"}
    groups = {group.pool: group.count for group in found.waiting}
    assert (groups["cloud-1/main"], "cloud-2/main" in groups) == (3, False), "launchers are not added up"
    (served,) = [pool for pool in found.pools if pool.pool == "cloud-1/main"]
    assert (served.nodes, served.free) == ({"building": 1, "ready": 2}, 1)
    broken = explain_label("gpu", seen(registered=[GPU], statuses=[status("cloud-1", labels=BROKEN)]))
    assert (broken.remedies, broken.pools[0].since) == (["no flavor"], NOW - 9)


# -- providers

LIMIT = LimitStatus("cloud", "cores", 80, 70, 8, NOW - 60)
RECORD = Maintenance("provider", "cloud-1", Mode.PAUSE, "network", "alice", NOW - 3)
DRAIN = Maintenance("pool", "cloud-1/main", Mode.DRAIN)
ABSENT = AbsentProvider("cloud-1", "openstack", "no such cloud", NOW - 9, NOW + 5)
SLOW_POOL = status("cloud-1", launches=LaunchesStatus(running=2), launching=[SLOW])
ONE_SLOW = "1 of 2 launches takes long: it waits for the cloud"


def absent(*hosts: str) -> list[LauncherStatus]:
    return [LauncherStatus(host=host, absent=[ABSENT]) for host in hosts]


def of(name: str = "cloud-1", **fields: Any) -> tuple[str, dict[str, Any]]:
    """A name, and a pool that serves it."""
    return name, {"statuses": [status("cloud-1", **fields)]}


MANY = "is subject to maintenance: provider cloud-1 is paused by alice: network; pool cloud-1/main is drained"
TWO_AWAY = "is not served by launcher l1: no such cloud; is not served by launcher l2: no such cloud"
FOREIGN = "another installation, fedcba9876543210, has 2 things in the cloud of provider cloud-1: "


@pytest.mark.parametrize(
    ("subject", "more", "text", "remedy"),
    [
        (of(limits=[LIMIT]), {}, "works; 78 of 80 cores are used", ""),
        (
            of(state="unavailable", text="HTTP 503", next=NOW + 12),
            {},
            "pool main is unavailable: HTTP 503",
            "again in 12 s",
        ),
        (of("cloud-1/main", state="unavailable", text="HTTP 503"), {}, "is unavailable: HTTP 503", ""),
        (of(labels=BROKEN), {}, "works", "label gpu of cloud-1/main: no flavor"),
        (of(state="maintenance"), {"maintenance": [RECORD]}, "is paused by alice: network", "resume provider cloud-1"),
        (of("cloud-1/main"), {"maintenance": [DRAIN]}, "is drained", ""),
        (of("cloud-1/main"), {"maintenance": [RECORD, DRAIN]}, MANY, ""),
        (("cloud-1", {}), {"registered": [GPU]}, "tells no status: l1 (11.0.0): cloud-1/main", ""),
        (("cloud-1", {}), {}, "no launcher has it", ""),
        (of(hosts=HOSTS), {}, "works", "hosts of cloud-1/main are down: zuul@h1:22"),
        # E-3: a configured provider that no launcher could start, or only some.
        (("cloud-1", {}), {"launchers": absent("l1", "l2")}, TWO_AWAY, "its start is tried again in 5 s"),
        (of(), {"launchers": absent("l2")}, "works", "launcher l2 does not serve it: no such cloud"),
        # E-10: a cloud that is slow or stuck does not simply work.
        (("cloud-1", here(SLOW_POOL)), {}, f"works slowly; {ONE_SLOW}", "explain 0000000001"),
        (
            ("cloud-1", here(replace(SLOW_POOL, state="paused", text="4 of 4"))),
            {},
            f"pool main is paused: 4 of 4; {ONE_SLOW}",
            "",
        ),
        (of(slow_calls={"listInstances": 42.0}), {}, "works slowly; a list of instances takes 42 s", ""),
        # D-9, D-10
        (of(missing={"0000000001": NOW + 60.0}), {}, "works", "shows no instance of 1 nodes any more (0000000001): "),
        (of(other_installations={"fedcba9876543210": 2}), {}, "works", FOREIGN),
    ],
)
def test_providers(subject: tuple[str, dict[str, Any]], more: dict[str, Any], text: str, remedy: str) -> None:
    """D-9, D-10, E-3, E-10"""
    name, fields = subject
    found = explain_provider(name, seen(**fields, **more))
    assert found.text.startswith(text)
    assert not remedy or any(remedy in one for one in found.remedies)
    assert (found.id, found.kind) == (name, "pool" if "/" in name else "provider")


def test_history_of_a_provider() -> None:
    """Its events, the oldest first."""
    events = [
        Event(NOW - at, "l1", f"provider {name}", "unavailable", "x") for at, name in ((5, "cloud-1"), (3, "lab"))
    ]
    found = explain_provider("cloud-1", seen(statuses=[AWAY], events=events))
    assert [(moment.at, moment.what, moment.code) for moment in found.history] == [(NOW - 5, "unavailable", "x")]


def test_names_with_a_slash() -> None:
    """Names of providers are free: those with a slash are found as others are; a pool is only itself."""
    nodes = known(node(1, provider="eu/cloud-1"), node(2, provider="eu"))
    statuses: list[PoolStatus] = [status("eu/cloud-1"), status("eu", id="x"), status("eu", id="y", pool="second")]
    there = seen(nodes=nodes, registered=[component("eu/cloud-1", "gpu")], statuses=statuses)
    assert there.providers == {"eu/cloud-1", "eu"}
    for name in ("eu/cloud-1", "eu/cloud-1/main"):
        found = explain_provider(name, there)
        assert ([pool.name for pool in found.pools], found.nodes) == (["eu/cloud-1/main"], {"ready": 1})
    assert explain_provider("eu/cloud-1", there).kind == "provider"
    assert (explain_provider("eu", there).nodes, len(explain_provider("eu", there).pools)) == ({"ready": 1}, 2)
    assert [there.provider_of(name) for name in ("eu/cloud-1/main", "eu/main", "x/y/z")] == ["eu/cloud-1", "eu", "x"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((ID, "request"), ("0000000001", "node"), ("cloud-1", "provider"), ("cloud-1/main", "provider")),
        *(("gpu", "label"), ("wanted", "label"), ("cloud-2", "provider"), ("nothing", None)),
    ],
)
def test_what_a_name_stands_for(name: str, kind: str | None) -> None:
    """E-3"""
    launcher = LauncherStatus(host="l1", absent=[replace(ABSENT, name="cloud-2")])
    observed = seen(made(7, "wanted"), nodes=known(node(1)), registered=[GPU], launchers=[launcher])
    assert kind_of(name, observed) == kind
    if kind is not None:
        answer = explain(name, kind, observed)
        assert (answer.id, answer.kind) == (name, "pool" if "/" in name else kind)
    assert [similar(text, observed) for text in ("cloud1", "zzz")] == [", did you mean 'cloud-1'?", ""]
