# SPDX-License-Identifier: Apache-2.0
"""`nodepool status`: pools of several launchers as one, what waits for long, what needs attention, and events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from nodepool.model.component import PoolComponent
from nodepool.model.event import Event
from nodepool.model.image import BuildView, ImageBuild, ImagesView, ImageView, UploadView
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
    ReloadStatus,
    RequestStatus,
    WaitingStatus,
)
from nodepool.plan.attention import Registered, StatusProblem, merged, named, pool_events, problems
from nodepool.plan.config_diff import ServedConfig, served_configs
from nodepool.plan.explain import LONG_SECONDS, LongWait, WaitCause, causes, explain, kind_of, long_waits
from nodepool.plan.observed import Observed
from nodepool.plan.ownerless import end_of, ownerless, subject_is_served
from nodepool.plan.pool_summary import by_provider, free, fullness, limit_owner, limiting, newest_limits, summarize
from tests.support.observed import NOW, component, known, node, request, seen, status

L1 = LauncherStatus(host="l1", version="12.0.0", config="9f3c")
POOL = PoolStatus(id="l1-main", host="l1", provider="cloud", pool="main", state="running", since=10.0)
AWAY = replace(POOL, state="unavailable", code="provider.circuit-open", text="HTTP 503", since=50.0, next=60.0)
SLOW = LaunchStatus(
    "0000000001", "gpu", "build", "building", NOW - 75, NOW - 70, NOW + 3525, "launch-timeout", 4.0, slow=True
)
SLOW_POOL = replace(POOL, launches=LaunchesStatus(running=3), launching=[SLOW, replace(SLOW, slow=False)])
BROKEN = LabelStatus("label.broken", "no flavor", 20.0)
DOWN = HostStatus("h", False, "refused", 100.0)


def of(state: str, age: float, number: int = 1, provider: str = "cloud", **fields: Any) -> Node:
    made = node(number, "small", state=state, provider=provider)
    made.state_time = NOW - age
    for name, value in fields.items():
        setattr(made, name, value)
    return made


# -- several launchers (OV-3)


def test_summary() -> None:
    """OV-3: the worst state; what adds up, what each has of its own, and what is the same for all."""
    waiting = (WaitingStatus(("a",), count=2), WaitingStatus(("b",), count=3, code="turn.of-label"))
    begun = (RequestStatus("200-1", "paused", "room.cores"), RequestStatus("200-2", "launching"))
    error = FailedLaunch("error.quota", "no room", 60.0)
    one = replace(POOL, waiting=waiting, requests=begun, launches=LaunchesStatus(1, 2, 3, error))
    two = replace(AWAY, host="l2", waiting=waiting, launches=LaunchesStatus(10, 20, 30, replace(error, at=61.0)))
    (found,) = summarize([one, two, replace(AWAY, host="l3", since=40.0, labels={"gpu": BROKEN})])
    assert (found.state, found.since, found.text, found.next) == ("unavailable", 40.0, "HTTP 503", 60.0)
    assert (found.name, found.launchers, found.affected) == ("cloud/main", ["l1", "l2", "l3"], 2)
    assert (found.waiting, found.labels) == (3, {"gpu": BROKEN})
    assert found.launches == LaunchesStatus(11, 22, 33, replace(error, at=61.0))
    pools = summarize([replace(POOL, pool="b"), replace(POOL, provider="a"), POOL])
    assert [pool.name for pool in pools] == ["a/main", "cloud/b", "cloud/main"]
    assert {name: len(of) for name, of in by_provider(pools).items()} == {"a": 1, "cloud": 2}


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (
            [HostStatus("h", True, "", 5.0, nodes=("1",)), DOWN],
            HostStatus("h", False, "for launcher 1: refused", 100.0, nodes=["1"]),
        ),
        ([DOWN, DOWN], replace(DOWN, nodes=[])),
        ([DOWN, HostStatus("h", True, "", 2.0, quarantine="flaps")], None),
    ],
)
def test_hosts_of_several_launchers(hosts: list[HostStatus], expected: HostStatus | None) -> None:
    """OV-3: down for one is down, quarantined is worse."""
    (found,) = summarize([replace(POOL, host=str(number), hosts=(host,)) for number, host in enumerate(hosts)])
    assert found.hosts == [expected] if expected else found.hosts[0].quarantine == "flaps"


@pytest.mark.parametrize(
    ("limit", "left", "part"),
    [
        (LimitStatus("pool", "cores", 80, 72, 4), 4, 0.95),
        (LimitStatus("pool", "cores", 80, 90), 0, 1.0),
        (LimitStatus("pool", "cores", 0, 0), 0, 1.0),
        (LimitStatus("pool", "cores", None, 5), None, 0.0),
        (LimitStatus("pool", "cores", math.inf, 5), None, 0.0),
    ],
)
def test_what_is_free(limit: LimitStatus, left: float | None, part: float) -> None:
    """OV-3"""
    assert (free(limit), round(fullness(limit), 9)) == (left, part)


def test_limits() -> None:
    """OV-3: the newest answer of a cloud counts; the fullest limit is named, but not those of launches and tenants."""
    old, new = LimitStatus("cloud", "cores", 80, 1, 0, 100.0), LimitStatus("cloud", "cores", 90, 1, 0, 200.0)
    pool = LimitStatus("pool", "instances", 20, 3)
    assert (newest_limits([old, pool, new]), newest_limits([new, old])) == ([new, pool], [new])
    cores, ram = LimitStatus("cloud", "cores", 80, 40), LimitStatus("cloud", "ram", 100, 51)
    others = [LimitStatus("provider", "launches", 1, 1), LimitStatus("tenant:t1", "cores", 1, 1)]
    assert limiting([cores, ram, LimitStatus("pool", "instances", None, 99), *others]) == ram
    assert (limiting([LimitStatus("pool", "instances")]), limiting([cores, *others])) == (None, cores)
    (summary,) = summarize([POOL])
    owners = [limit_owner(summary, LimitStatus(scope)) for scope in ("pool", "provider", "cloud", "tenant:t1")]
    assert owners == ["cloud/main", "cloud", "cloud", "t1"]


# -- what waits for long (OV-1)

CORES = {"limit": 80.0, "used": 80.0, "needed": 8.0}
FULL = WaitingStatus(("gpu",), count=2, code="room.cores", text="quota", numbers=CORES)
ROOM = WaitCause("cloud/main", "room.cores", "cores 80 of 80, 8 needed")
LAUNCHING = RequestStatus("200-0000000001", "launching", "served.launching", "its nodes are being launched")
LOCKED = RequestStatus("200-0000000001", "paused", "room.cores", "quota: 80 of 80 cores", CORES)
PAUSED = WaitingStatus(("gpu",), count=1, code="wait.pool-paused", text="another one waits for room", numbers=CORES)
LAST = WaitingStatus(
    ("gpu",), count=1, code="room.instances", text="quota", numbers={"limit": 20.0, "used": 20.0, "needed": 1.0}
)


def waits(number: int, age: float = LONG_SECONDS + 1, **fields: Any) -> Any:
    made = request(number)
    for name, value in {"created_time": NOW - age, "tenant_name": None, **fields}.items():
        setattr(made, name, value)
    return made


def observed(requests: Sequence[Any], *pools: PoolStatus) -> Observed:
    registered = []
    for pool in pools:
        entry = PoolComponent("l1", "12")
        entry.id, entry.provider_name, entry.name, entry.supported_labels = pool.id, "cloud", "main", ["gpu", "a", "b"]
        registered.append(entry)
    return seen(*requests, registered=registered, statuses=list(pools))


YOUNG = [waits(7, LONG_SECONDS - 1), waits(8, created_time=None), waits(1, state="fulfilled"), waits(2, state="failed")]
TENANTS = [waits(1, tenant_name="t1"), waits(2, tenant_name="t2")]
OF_TENANTS = replace(POOL, waiting=[replace(FULL, tenant=tenant) for tenant in ("t1", "t2")])
BEHIND = replace(POOL, waiting=[PAUSED], requests=[LOCKED], state="paused", code="room.cores", text=LOCKED.text)
IN_LAUNCH = WaitCause("cloud/main", LAUNCHING.code, LAUNCHING.text)
NO_NUMBER = WaitCause("cloud/main", "room.instances", "instances 20 of 20")


@pytest.mark.parametrize(
    ("requests", "pool", "expected"),
    [
        # Young and answered ones do not count.
        (YOUNG, POOL, []),
        ([waits(1), waits(2, 900)], replace(POOL, waiting=(FULL,)), [(ROOM, 2)]),
        ([waits(1)], replace(POOL, waiting=(LAST,)), [(NO_NUMBER, 1)]),
        # Tenants whose requests wait for the same are one group.
        (TENANTS, OF_TENANTS, [(ROOM, 2)]),
        # The pool that serves a request. Those behind one that waits for room are of its group.
        ([waits(1, state="pending")], replace(POOL, requests=[LAUNCHING]), [(IN_LAUNCH, 1)]),
        ([waits(1, state="pending"), waits(2)], BEHIND, [(ROOM, 2)]),
    ],
)
def test_long_waits(requests: list[Any], pool: PoolStatus, expected: list[tuple[WaitCause, int]]) -> None:
    """OV-1: groups by labels and cause."""
    assert [(wait.cause, wait.count) for wait in long_waits(observed(requests, pool))] == expected


def test_groups_of_long_waits() -> None:
    """OV-1: the largest first, its oldest request first; without launchers there is one cause."""
    pool = replace(POOL, waiting=(FULL, WaitingStatus(("a", "b"), count=1, code="room.ram", text="5 of 5 MiB")))
    requests = [waits(1), waits(2, 900), waits(3, node_types=["b", "a"])]
    keys = [one.key for one in requests]
    assert long_waits(observed(requests, pool)) == [
        LongWait(("gpu",), ROOM, 2, NOW - 900, [keys[1], keys[0]]),
        LongWait(("a", "b"), WaitCause("cloud/main", "room.ram", "5 of 5 MiB"), 1, NOW - 301, [keys[2]]),
    ]
    (alone,) = long_waits(observed(requests[:1]))
    assert alone.cause == WaitCause("", "pool.missing", "waits: no launcher is registered")


def test_cause_of_each_request() -> None:
    """What is served has a cause of its own; of those that wait for the same, one is explained. Fulfilled: none."""
    pool = replace(POOL, waiting=(FULL,), requests=[replace(LAUNCHING, id="200-0000000003")])
    requests = [waits(1, 0.0), waits(2), waits(3, state="pending"), waits(4, state="fulfilled")]
    found = causes(requests, observed(requests, pool))
    assert list(found) == [one.key for one in requests[:3]]
    assert [cause.text for cause in found.values()] == [ROOM.text, ROOM.text, LAUNCHING.text]


# -- what needs attention (OV-2)

QUICK = [of("deleting", 599), of("hold", 9999, 2, hold_expiration=60), of("ready", 9999, 3)]
STUCK = [of("deleting", 700), of("deleting", 900, 2)]
PAUSE = Maintenance("provider", "cloud", Mode.PAUSE, "new switch", "alice", 30.0, NOW + 60)
REFUSED = replace(L1, reload=ReloadStatus(70.0, False, "np.yaml:3: labels: unknown key"))
DIFFERENT = [replace(L1, host=f"l{number}", version="12.1.0", config="aaaa") for number in (2, 3)]
MISSING = replace(POOL, missing={"0000000001": 200.0, "0000000002": 100.0})
FOREIGN = replace(POOL, other_installations={"fedcba9876543210": 1})
HOSTS = [replace(DOWN, name=f"h{number}", since=300.0 - number) for number in range(8)]
QUARANTINED = replace(POOL, hosts=[HostStatus("zuul@h:22", True, quarantine="alice: fan")])
FAILED = LaunchesStatus(0, 2, 5, FailedLaunch("error.status", "no valid host", 1.0))
OLD = Registered("old", "11.0.0")


UP_HOST = replace(POOL, hosts=(HostStatus("h", True),))
MANY_DOWN = replace(POOL, hosts=[*HOSTS, HostStatus("up", True)])
ABSENT = replace(L1, absent=(AbsentProvider("cloud-2", "openstack", "no clouds.yaml", 40.0, 45.0),))
LABELS = replace(POOL, labels={"a": BROKEN, "b": BROKEN, "c": LabelStatus("image.missing", "no image")})
CALLS = replace(POOL, slow_calls={"getQuotaLimits": 36.0, "other": 30.0})
MORE_CALLS = replace(POOL, pool="gpu", slow_calls={"listInstances": 120.0, "getQuotaLimits": 48.0})
FORGOTTEN = of("hold", 9999, comment="quarantine: alice: fan")
BY_RECORD = [Maintenance("host", name, Mode.QUARANTINE, "fan", "alice", 50.0) for name in ("zuul@h:22", "h")]
MORE_FOREIGN = replace(FOREIGN, host="l2", other_installations={"fedcba9876543210": 3})
DIFFER = "launchers run with different"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"pools": [UP_HOST], "nodes": QUICK}, ""),
        ({"launchers": [], "registered": [OLD]}, ""),
        ({"launchers": []}, "launcher: "),
        ({"pools": [AWAY]}, "provider: provider cloud is unavailable: HTTP 503"),
        (
            {"pools": [AWAY, replace(POOL, host="l2")]},
            "provider: provider cloud is unavailable for 1 of 2 launchers: HTTP",
        ),
        ({"pools": [AWAY, replace(POOL, pool="x")]}, "provider: provider cloud/main is unavailable"),
        ({"launchers": [ABSENT]}, "provider: provider cloud-2 is not served by launcher l1: no clouds.yaml"),
        ({"maintenance": [PAUSE]}, "maintenance: provider cloud is paused by alice: new switch"),
        ({"maintenance": [replace(PAUSE, until=NOW - 1)]}, ""),
        ({"pools": [LABELS]}, "label: labels a, b of cloud/main: no flavor|label: label c of cloud/main: no image"),
        (
            {"pools": [replace(POOL, launches=FAILED)]},
            "launch: 5 of 7 launches in cloud/main failed in the last 15 minutes;",
        ),
        *(({"pools": [replace(POOL, launches=LaunchesStatus(0, *few))]}, "") for few in ((6, 5), (0, 2))),
        ({"pools": [replace(POOL, hosts=[DOWN])]}, "host: host h of cloud/main is down: refused"),
        ({"pools": [MANY_DOWN]}, "host: 8 of 9 hosts of cloud/main are down: h0, h1, h2, h3, h4 and 3 more"),
        # S-17: a quarantine is mentioned once, by its record; its nodes on hold are no forgotten holds.
        ({"pools": [QUARANTINED]}, "host: host zuul@h:22 of cloud/main is quarantined: alice: fan"),
        *(
            (
                {"pools": [QUARANTINED], "nodes": [FORGOTTEN], "maintenance": [one]},
                f"maintenance: host {one.name} is quarant",
            )
            for one in BY_RECORD
        ),
        ({"nodes": STUCK}, "node: 2 nodes of cloud in state deleting for more than 10 minutes: 0000000002, 0000000001"),
        ({"nodes": STUCK[:1]}, "node: 1 node of cloud"),
        ({"nodes": [of("hold", 700)]}, "node: 1 node is on hold without an end: 0000000001"),
        (
            {"launchers": [REFUSED, replace(REFUSED, host="l2")]},
            "reload: the changed configuration is not in effect on l1, l2: ",
        ),
        ({"launchers": [replace(L1, reload=ReloadStatus(70.0, True, "x"))]}, ""),
        (
            {"launchers": [L1, *DIFFERENT]},
            f"version: {DIFFER} versions: 12.1.0 on l2, l3; 12.0.0 on l1|"
            f"configuration: {DIFFER} configurations: aaaa on l2, l3; 9f3c on l1",
        ),
        ({"registered": [Registered("l1", "12.0.0"), OLD]}, f"version: {DIFFER} versions: 12.0.0 on l1; 11.0.0 on old"),
        # E-10
        ({"pools": [SLOW_POOL]}, "launch: cloud/main: 1 of 3 launches takes long: it waits for the cloud"),
        (
            {"pools": [CALLS, MORE_CALLS]},
            "provider: the cloud of provider cloud answers slowly: "
            "a list of instances takes 2 min, the look-up of limits takes 48 s, other takes 30 s",
        ),
        # D-9, D-10: once for a provider, whatever number of its pools and launchers see the same.
        (
            {"pools": [MISSING, replace(MISSING, host="l2"), replace(MISSING, pool="gpu")]},
            "provider: the cloud of provider cloud shows no instance of 2 nodes any more (0000000001, 0000000002): ",
        ),
        (
            {"pools": [FOREIGN, MORE_FOREIGN]},
            "provider: another installation, fedcba9876543210, has 3 things in the cloud of",
        ),
    ],
)
def test_attention(fields: dict[str, Any], expected: str) -> None:
    """D-9, D-10, E-10, OV-2, S-17"""
    given = {"pools": (), "launchers": (L1,), "registered": (), "nodes": (), "maintenance": (), **fields}
    there = seen(nodes=known(*given["nodes"]), maintenance=given["maintenance"])
    found = problems(summarize(given["pools"]), given["launchers"], given["registered"], there)
    texts = [f"{problem.kind}: {problem.text}" for problem in found]
    begins = expected.split("|") if expected else []
    assert len(texts) == len(begins)
    assert all(text.startswith(begin) for text, begin in zip(texts, begins, strict=True))


@pytest.mark.parametrize(
    ("pools", "nodes", "maintenance", "expected"),
    [
        ([AWAY], [], [], ("provider", 50.0, 60.0, "explain cloud")),
        ([], STUCK, [], ("node", NOW - 900, None, "explain 0000000002")),
        ([], [], [PAUSE], ("maintenance", 30.0, NOW + 60, "maintenance")),
        ([SLOW_POOL], [], [], ("launch", NOW - 75, None, "explain cloud/main")),
        ([MISSING], [], [], ("provider", None, 100.0, "explain cloud")),
        ([replace(POOL, hosts=HOSTS)], [], [], ("host", 293.0, None, "hosts")),
    ],
)
def test_times_and_command_of_a_problem(
    pools: list[PoolStatus], nodes: list[Node], maintenance: list[Maintenance], expected: tuple[Any, ...]
) -> None:
    """OV-2: since when, until when, and what says more."""
    (found,) = problems(summarize(pools), [L1], [], seen(nodes=known(*nodes), maintenance=maintenance))
    kind, since, until, command = expected
    assert (found.kind, since in (None, found.since), found.command) == (kind, True, command)
    assert until in (None, found.next)


def test_nodes_that_are_not_fetched() -> None:
    """OV-2"""
    requests, nodes = [], {}
    for number in (1, 2):
        ready = of("ready", 9999, number)
        fields: dict[str, Any] = {
            "state": "fulfilled",
            "requestor": "zuul-1",
            "nodes": [ready.key],
            "state_time": 100.0,
        }
        requests.append(waits(number, **fields))
        ready.allocated_to = requests[-1].key
        nodes[ready.key] = ready
    text = "zuul-1 has not fetched 2 ready nodes of 2 requests, which others cannot have"
    expected = StatusProblem("node", text, 100.0, command=f"explain {requests[0].key}")
    assert problems([], [L1], [], seen(*requests, nodes=nodes)) == [expected]
    assert [named(names) for names in ("ab", "012345")] == ["a, b", "0, 1, 2, 3, 4 and 1 more"]


# -- what no running daemon looks after (OV-8)

REGISTERED = [component("lab", "arm")]


def images(*providers: Sequence[str], builder: str = "b1.example.com") -> ImagesView:
    builds = {}
    for number, uploaded in enumerate(providers):
        record = ImageBuild("debian", f"b{number}")
        record.builder, record.state_time = builder, NOW + number
        uploads = {provider: (UploadView("1", None),) for provider in uploaded}
        builds[f"b{number}"] = BuildView(f"b{number}", record, uploads=uploads)
    return ImagesView({"debian": ImageView("debian", builds=builds)})


OURS = frozenset({"b1", "b2"})
REPORTED = {"b1": frozenset({"store"}), "b2": frozenset({"store", "other"})}
POOLS = [of("ready", 1, type=["arm"], pool="old"), of("ready", 1, 2, type=["old"]), of("used", 1, 3, pool="old")]


for one in POOLS:
    one.provider = "lab"
#: Who is missing, and what ends it.
TEXTS = {
    **{kind: (f"no launcher serves {kind} ", "nodepool delete 000000000") for kind in ("pool", "label")},
    "provider": ("no launcher serves provider c, of which there", "put it back with max-servers: 0"),
    "uploads": ("no builder has provider lab, to which there is 1 upload", "to the configuration of a builder"),
    "builder": ("builder b1 is not registered, and has the files of 1 build", "start builder b1 again, or"),
}
LAUNCHERS = [LauncherStatus(host="l1", absent=[AbsentProvider("c", "openstack", "x", NOW)])]
OF_C = known(node(1, provider="c"))
TWO_OF_C = known(node(1, provider="c"), of("in-use", 1, 2, "c"))
SOME = {"builders": OURS, "builder_providers": {"b1": frozenset({"x"})}}
ALL = {"builders": OURS, "builder_providers": REPORTED}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"nodes": TWO_OF_C, "images": images(["c", "lab"])}, ["provider c: 2 nodes (1 in-use, 1 ready) and 1 upload"]),
        # A provider without pools has a new build, because a builder serves it; another one was removed.
        ({"images": images(["c", "store"], ["store", "lab"], ["lab"])}, ["provider c: 1 upload"]),
        # All builders report theirs, so the uploads to another provider are named, be they of the newest builds.
        ({"images": images(["c", "lab", "store"]), **ALL}, ["provider c: 1 upload", "uploads lab: 1 upload"]),
        ({"images": images(["lab", "store"]), **SOME}, []),
        # Of a provider that is served: ready nodes that no request can get.
        ({"nodes": known(*POOLS)}, ["pool lab/old: 1 node (1 ready)", "label old: 1 node (1 ready)"]),
        # A provider that could not be started is configured; without any launcher there is another problem.
        ({"nodes": OF_C, "launchers": LAUNCHERS}, []),
        ({"nodes": OF_C, "registered": []}, []),
        ({"images": images(["lab"], builder="b1"), "builders": frozenset({"b2"})}, ["builder b1: 1 build"]),
        ({"images": images(["lab"]), "builders": frozenset({"b1"})}, []),
    ],
)
def test_ownerless(fields: dict[str, Any], expected: list[str]) -> None:
    """OV-8"""
    found = ownerless(seen(**{"registered": REGISTERED, **fields}))
    assert [f"{one.kind} {one.name}: {one.left}" for one in found] == expected
    assert all(one.text.startswith(TEXTS[one.kind][0]) and TEXTS[one.kind][1] in one.remedy for one in found)


def test_what_is_said_of_it() -> None:
    """OV-8: `status` and `explain` name it, and what ends it."""
    nodes = known(node(1, "vm", provider="cloud"))
    there = seen(request(), registered=REGISTERED, nodes=nodes, images=images(["cloud"]))
    (found,) = ownerless(there)
    assert found.remedy.startswith("start the launcher that has provider cloud; if it was removed from the")
    (problem,) = problems([], [L1], [], there)
    assert (problem.text, problem.command) == (f"{found.text}: {found.remedy}", "explain cloud")
    assert kind_of("cloud", there) == "provider"
    answer = explain("cloud", "provider", there).to_dict()
    assert (answer["text"], answer["remedies"]) == (found.text, [found.remedy])
    answer = explain("0000000001", "node", there).to_dict()
    assert answer["text"].endswith("; no launcher serves provider cloud")
    assert problem.text in answer["remedies"]


@pytest.mark.parametrize(
    ("kind", "names", "served"),
    [
        *(("provider", ["lab"], True), ("pool", ["lab/main"], True), ("label", ["arm"], True)),
        *(("launcher", ["l1"], True), ("host", ["h1", "u@h1:22"], True), ("provider", ["cloud"], False)),
        *(("pool", ["lab/x"], False), ("label", ["vm"], False), ("launcher", ["l9"], False), ("host", ["h9"], False)),
    ],
)
def test_maintenance_of_what_is_not_there(kind: str, names: list[str], served: bool) -> None:
    """OV-8"""
    for name in names:
        record = Maintenance(kind, name, Mode.QUARANTINE if kind == "host" else Mode.PAUSE)
        statuses = [status("lab", hosts=[HostStatus("u@h1:22", True)])]
        there = seen(registered=REGISTERED, maintenance=[record], statuses=statuses)
        assert subject_is_served(record, there) is served
        (problem,) = problems([], [L1], [], there)
        assert problem.text.endswith(f"; no launcher has this {kind}, {end_of(record)} ends it") is not served


# -- events (OV-4, OV-5)

WAS_BROKEN, MISSES = (replace(POOL, labels={"gpu": replace(BROKEN, text=text, since=40.0)}) for text in "ab")
FAILURE = FailedLaunch("error.quota", "no room", 60.0, "7", "gpu")
ONE_FAILED = replace(POOL, launches=LaunchesStatus(last_error=FAILURE))
NAMELESS = replace(POOL, launches=LaunchesStatus(last_error=FailedLaunch("error.quota", "no room", 60.0)))
UP, IS_DOWN = (replace(POOL, hosts=[HostStatus("h", up, "refused" if not up else "", 30.0)]) for up in (True, False))
ASIDE = replace(POOL, hosts=[HostStatus("h", True, "", 30.0, quarantine="flaps")])
UNKNOWN = replace(POOL, hosts=[HostStatus("h", None)])


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # A launcher with hundreds of hosts has no events of them when it starts.
        (None, replace(POOL, hosts=(HostStatus("a", True, "", 5.0), HostStatus("b", None))), []),
        *((before, AWAY, [(50.0, "provider cloud", "unavailable", "HTTP 503")]) for before in (None, POOL)),
        *((AWAY, same, []) for same in (AWAY, replace(AWAY, text="HTTP 504"))),
        (AWAY, replace(POOL, since=70.0), [(70.0, "provider cloud", "available", "")]),
        (POOL, replace(POOL, state="paused"), []),
        (POOL, WAS_BROKEN, [(40.0, "label gpu of cloud/main", "unavailable", "a")]),
        (WAS_BROKEN, WAS_BROKEN, []),
        (WAS_BROKEN, POOL, [(NOW, "label gpu of cloud/main", "available", "")]),
        (POOL, ONE_FAILED, [(60.0, "node 7", "launch failed", "gpu: no room")]),
        (ONE_FAILED, ONE_FAILED, []),
        (POOL, NAMELESS, [(60.0, "pool cloud/main", "launch failed", "no room")]),
        *((before, IS_DOWN, [(30.0, "host h", "down", "refused")]) for before in (UP, None)),
        (IS_DOWN, IS_DOWN, []),
        (IS_DOWN, UP, [(30.0, "host h", "up", "")]),
        (UNKNOWN, UP, []),
        (UP, ASIDE, [(NOW, "host h", "quarantined", "flaps")]),
        (ASIDE, UP, [(NOW, "host h", "released", "")]),
        # When the first launch takes long, and when none does any more.
        (POOL, SLOW_POOL, [(NOW, "pool cloud/main", "launches slow", "1 of 3 launches takes long")]),
        (SLOW_POOL, replace(SLOW_POOL, launching=[SLOW, replace(SLOW, node="2")]), []),
        (SLOW_POOL, replace(SLOW_POOL, launching=[]), [(NOW, "pool cloud/main", "launches as usual", "")]),
    ],
)
def test_events(before: PoolStatus | None, after: PoolStatus, expected: list[tuple[float, str, str, str]]) -> None:
    """OV-4"""
    found = pool_events(before, after, NOW)
    assert [(event.at, event.subject, event.what, event.text.partition(":")[0]) for event in found] == [
        (*one[:3], one[3].partition(":")[0]) for one in expected
    ]


def test_codes_of_events() -> None:
    """OV-4: also when the cause of a label is another one."""
    (failed,) = pool_events(POOL, ONE_FAILED, NOW)
    assert failed == Event(60.0, "l1 cloud/main", "node 7", "launch failed", "error.quota", "gpu: no room")
    no_image = replace(POOL, labels={"gpu": LabelStatus("image.missing", "no image", 40.0)})
    (changed,) = pool_events(WAS_BROKEN, no_image, NOW)
    assert (changed.at, changed.what, changed.code, changed.text) == (NOW, "unavailable", "image.missing", "no image")
    assert [event.code for event in pool_events(POOL, AWAY, NOW)] == ["provider.circuit-open"]


def test_merged_events() -> None:
    """OV-5: what all launchers see is one event; one that comes back is not; older ones are left out."""
    events = [Event(at, actor, "provider a", "unavailable") for at, actor in [(2, "l2"), (1, "l1"), (3, "l2")]]
    assert merged(events) == [Event(1, "l1, l2", "provider a", "unavailable")]
    many = [Event(1, f"l{number}", "provider a", "unavailable") for number in range(5)]
    assert merged(many)[0].actor == "l0, l1, l2 and 2 more"
    turns = [(1, "unavailable"), (2, "available"), (3, "unavailable"), (90, "unavailable")]
    flapping = [Event(at, "l1", "provider a", what) for at, what in turns]
    assert merged(flapping[::-1]) == flapping
    assert merged([Event(1, "l1", "x 1"), Event(2, "l1", "x 2")], since=2) == [Event(2, "l1", "x 2")]


# -- which launchers serve a file (OV-7)


@pytest.mark.parametrize(
    ("reload", "loaded", "refused", "refused_at"),
    [
        (None, 100.0, "", None),
        (ReloadStatus(200.0, True, "label x added"), 200.0, "", None),
        (ReloadStatus(200.0, False, "nodepool.yaml:5: not YAML"), None, "nodepool.yaml:5: not YAML", 200.0),
    ],
)
def test_served_configuration(
    reload: ReloadStatus | None, loaded: float | None, refused: str, refused_at: float | None
) -> None:
    """OV-7: by the checksum of what was loaded."""
    launcher = LauncherStatus(host="l1", pid=42, config="9f3c", config_file="/np.yaml", since=100.0, reload=reload)
    for digest, serves in (("9f3c", True), ("1a2b", False)):
        (found,) = served_configs(digest, [launcher], [])
        assert found == ServedConfig("l1", 42, serves, "9f3c", "/np.yaml", loaded, refused, refused_at)
        assert found.to_dict()["serves"] is serves


def test_launchers_without_a_checksum() -> None:
    """OV-7: launchers of Nodepool 11 have no status record."""
    launchers = [LauncherStatus(host="l2", pid=2, config="9f3c"), LauncherStatus(host="l2", pid=1)]
    registered = [Registered("l2", "12.0.0"), Registered("l1", "11.0.0"), Registered("l1", "11.0.0")]
    found = [(served.launcher, served.pid, served.serves) for served in served_configs("9f3c", launchers, registered)]
    assert found == [("l1", None, None), ("l2", 1, None), ("l2", 2, True)]
