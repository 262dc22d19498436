# SPDX-License-Identifier: Apache-2.0
"""What a pool tells of itself (W-1 to W-6)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.pool.desk import Explanation, Snapshot, WaitingKind
from nodepool.launcher.pool.status import (
    HOST_SECONDS,
    MAX_DECLINED,
    MAX_ENTRIES,
    MAX_HOST_SECONDS,
    MAX_KINDS,
    MAX_REQUESTS,
    PoolStatusMaker,
    StatusSources,
)
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.quota import QuotaInformation
from nodepool.model.reasons import NEXT_PASS, Reason, ReasonCode
from nodepool.model.status import (
    HostStatus,
    LabelStatus,
    LaunchesStatus,
    LaunchStatus,
    LimitStatus,
    PauseStatus,
    RequestStatus,
    WaitingStatus,
)
from nodepool.plan.queue import RequestKind
from nodepool.plan.request_stage import Stage

FULL = Reason(ReasonCode.ROOM_INSTANCES, "20 of 20 instances", {"limit": 20, "used": 20, "needed": 1})
KIND = RequestKind(("small",), None, frozenset(), "tenant", reuse=True, min_ready=False)


def request(number: int, stage: Stage = Stage.LAUNCHING, reason: Reason = NEXT_PASS) -> Explanation:
    return Explanation(f"200-{number:010}", stage, reason, float(number))


class Provider:
    """A provider; the test sets what it tells."""

    LAUNCHES = True
    name = "cloud"

    def __init__(self) -> None:
        self.pause: PauseStatus | None = None
        self.labels: dict[str, LabelStatus] = {}
        self.hosts: list[HostStatus] = []

    def limitStatus(self, pool_name: str) -> list[LimitStatus]:
        return [LimitStatus(pool_name, "instances", 20, 18)]

    def labelErrors(self) -> dict[str, LabelStatus]:
        return self.labels

    def missingInstances(self) -> dict[str, float]:
        return {"0000000002": 3.0, "0000000001": 2.0}

    def otherInstallations(self) -> dict[str, int]:
        return {"fedcba9876543210": 3}

    def hostStatus(self) -> list[HostStatus]:
        return self.hosts

    def pauseStatus(self) -> PauseStatus | None:
        return self.pause


class Site:
    """A pool, what it does, and the maker of its status."""

    def __init__(self) -> None:
        self.provider = Provider()
        self.snapshot = Snapshot({}, [], [], [])
        self.launches = LaunchesStatus(1, 2, 3)
        self.ready = {"small": 2, "none": 0}
        self.tenant_limits: dict[str, dict[str, float]] = {}
        self.context = SimpleNamespace(
            launcher_id="host-1",
            provider_name="cloud",
            pool_name="main",
            has_provider=True,
            hold=None,
            provider=self.provider,
            config=SimpleNamespace(driver=SimpleNamespace(name="openstack")),
            labels=frozenset({"small", "gpu"}),
            max_concurrency=-1,
            launches_running=lambda: 5,
            tenant_limits=lambda: self.tenant_limits,
        )
        self.launching: list[LaunchStatus] = []
        sources = StatusSources(
            cast(Any, SimpleNamespace(snapshot=lambda: self.snapshot)),
            launches=lambda: self.launches,
            launching=lambda: self.launching,
            usual=lambda label: 4.0,
            oldest=lambda kind: 7.0,
            ready=lambda: self.ready,
            tenant_use=lambda tenant: QuotaInformation(cores=3),
        )
        self.maker = PoolStatusMaker(cast(Any, self.context), sources, "l1", "12.0.0", lambda: "0123456789ab")


@pytest.fixture
def site() -> Site:
    return Site()


def test_before_the_first_pass(site: Site) -> None:
    """W-1: it is starting, since it was asked first."""
    site.context.has_provider = False
    made = site.maker.make(5.0)
    assert (made.state, made.since, made.id, made.provider, made.pool) == ("starting", 5.0, "host-1", "cloud", "main")
    assert site.maker.make(9.0) == made
    site.context.has_provider = True
    assert (site.maker.make(11.0).state, site.maker.make(12.0).since) == ("running", 11.0)


def test_launches_in_progress(site: Site) -> None:
    """W-6: those that have been in progress for a while, with what is usual; the record changes with the verdict."""
    launch = LaunchStatus("1", "small", "build", "building", 100.0, 101.0)
    site.launching = [LaunchStatus("2", "small", "call", "", 150.0, 150.0), launch]
    assert site.maker.make(109.0).launching == []
    known = replace(launch, usual=4.0)
    assert site.maker.make(111.0).launching == site.maker.make(129.0).launching == [known]
    assert site.maker.make(131.0).launching == [replace(known, slow=True)]


def test_what_it_is(site: Site) -> None:
    """W-1"""
    made = site.maker.make(5.0)
    assert (made.host, made.version, made.config, made.driver) == ("l1", "12.0.0", "0123456789ab", "openstack")
    assert (made.state, made.code, made.text, made.launches_nodes) == ("running", None, None, True)
    assert (made.ready, made.launches) == ({"small": 2}, LaunchesStatus(1, 2, 3))


def test_time_changes_nothing(site: Site) -> None:
    """W-8: a kind that no pass has looked at yet has a new answer each time, which is not published each time."""
    site.snapshot = Snapshot({}, [(KIND, 3, WaitingKind(NEXT_PASS, 5.0))], [], [])
    made = site.maker.make(5.0)
    site.snapshot = Snapshot({}, [(KIND, 3, WaitingKind(NEXT_PASS, 9.0))], [], [])
    assert site.maker.make(9.0) == made
    site.snapshot = Snapshot({}, [(KIND, 3, WaitingKind(FULL, 9.0))], [], [])
    assert site.maker.make(9.0).waiting[0].since == 9.0


def test_states(site: Site) -> None:
    """W-2: each with its cause, and since when."""
    paused = [request(2, Stage.PAUSED, FULL), request(1, Stage.PAUSED, FULL), request(0)]
    site.snapshot = Snapshot({}, [], paused, [])
    made = site.maker.make(5.0)
    assert (made.state, made.since, made.code, made.text) == ("paused", 5.0, "room.instances", FULL.text)
    assert site.maker.make(7.0) == made
    site.provider.pause = PauseStatus("provider.circuit-open", "HTTP 503", 6.0, 12.0)
    made = site.maker.make(8.0)
    assert (made.state, made.since, made.next) == ("unavailable", 6.0, 12.0)
    assert (made.code, made.text) == ("provider.circuit-open", "HTTP 503")
    site.provider.pause = PauseStatus("provider.circuit-open", "HTTP 503")
    assert site.maker.make(9.0).since == 6.0
    site.provider.pause, site.snapshot = None, Snapshot({}, [], [], [])
    made = site.maker.make(10.0)
    assert (made.state, made.since, made.next, made.code) == ("running", 10.0, None, None)


def test_maintenance(site: Site) -> None:
    """W-2, MT-3: what an operator did comes before what else is wrong."""
    site.provider.pause = PauseStatus("provider.circuit-open", "HTTP 503", 6.0, 12.0)
    site.context.hold = Maintenance("provider", "cloud", Mode.PAUSE, "network", "alice@desk", 7.0, 99.0)
    made = site.maker.make(8.0)
    assert (made.state, made.code, made.since, made.next) == ("maintenance", "provider.paused", 7.0, 99.0)
    assert made.text == "provider cloud is paused by alice@desk: network"


def test_limits(site: Site) -> None:
    """W-3: of the pool, of the provider, and of tenants that wait here."""
    pool = LimitStatus("main", "instances", 20, 18)
    assert site.maker.make(1.0).limits == [pool]
    site.context.max_concurrency = 8
    site.tenant_limits = {"tenant": {"ram": 4096, "cores": 4}, "other": {"cores": 1}}
    site.snapshot = Snapshot({}, [(KIND, 1, WaitingKind(FULL, 1.0))], [], [])
    assert site.maker.make(1.0).limits == [
        pool,
        LimitStatus("provider", "launches", 8, 5),
        LimitStatus("tenant:tenant", "cores", 4, 3),
        LimitStatus("tenant:tenant", "ram", 4096, 0),
    ]


def test_other_installations(site: Site) -> None:
    """D-10"""
    assert site.maker.make(1.0).other_installations == {"fedcba9876543210": 3}


def test_missing_instances(site: Site) -> None:
    """D-9"""
    assert list(site.maker.make(1.0).missing.items()) == [("0000000001", 2.0), ("0000000002", 3.0)]


def test_labels(site: Site) -> None:
    """W-4: of this pool; what a driver does not know the begin of began when it told it first."""
    known, unknown = LabelStatus("label.broken", "no flavor", 3.0), LabelStatus("label.broken", "no")
    site.provider.labels = {"gpu": known, "small": unknown, "of another pool": known}
    expected = {"gpu": known, "small": LabelStatus("label.broken", "no", 5.0)}
    assert site.maker.make(5.0).labels == expected
    assert site.maker.make(9.0).labels == expected
    site.provider.labels = {}
    assert site.maker.make(9.0).labels == {}


def test_requests(site: Site) -> None:
    """W-5: those that wait by kind, those that are served or declined one by one."""
    waiting = [(KIND, 3, WaitingKind(FULL, 4.0))]
    site.snapshot = Snapshot({}, waiting, [request(2), request(1)], [request(3, Stage.DONE, FULL)])
    made = site.maker.make(5.0)
    numbers = {"limit": 20, "used": 20, "needed": 1}
    assert made.waiting == [
        WaitingStatus(("small",), None, "tenant", 3, 7.0, FULL.code.value, FULL.text, numbers, 4.0, KIND.mark)
    ]
    assert [told.id for told in made.requests] == ["200-0000000001", "200-0000000002"]
    assert made.declined == [RequestStatus("200-0000000003", "done", "room.instances", FULL.text, numbers, 3.0)]
    assert made.omitted == 0


def test_many_requests(site: Site) -> None:
    """W-7: the oldest of those that are served, the newest of those that were declined."""
    many = [request(number) for number in range(MAX_REQUESTS + 50)]
    site.snapshot = Snapshot({}, [], many, many)
    made = site.maker.make(5.0)
    assert [told.since for told in made.requests] == list(range(len(made.requests)))
    assert made.declined[-1].id == many[-1].request_id
    assert len(made.declined) <= MAX_DECLINED
    assert made.omitted >= 50
    assert site.maker.make(6.0) == made


def test_hosts(site: Site) -> None:
    """W-9"""
    site.provider.hosts = [HostStatus("zuul@node9:22", False, "no route", 5.0)]
    assert site.maker.make(5.0).hosts == site.provider.hosts


def test_order_of_hosts(site: Site) -> None:
    """W-7: those with trouble come first, as the others may be cut."""
    well, unknown = HostStatus("a", True), HostStatus("b")
    held, down = HostStatus("c", True, quarantine="alice: disk"), HostStatus("d", False)
    site.provider.hosts = [well, unknown, held, down, HostStatus("of another pool", False, pool="other")]
    assert site.maker.make(5.0).hosts == [unknown, held, down, well]


def test_thousands_of_hosts(site: Site) -> None:
    """W-8: they are not asked for each time."""
    many = [HostStatus(str(number), True) for number in range(1000)]
    site.provider.hosts = many
    site.maker.make(5.0)
    site.provider.hosts = []
    assert site.maker.make(4.9 + MAX_HOST_SECONDS).hosts == many[:MAX_ENTRIES]
    assert site.maker.make(5.0 + MAX_HOST_SECONDS).hosts == []


def test_hundred_hosts(site: Site) -> None:
    """W-8"""
    many = site.provider.hosts = [HostStatus(str(number), True) for number in range(100)]
    site.maker.make(5.0)
    site.provider.hosts = []
    assert site.maker.make(5.0 + 99 * HOST_SECONDS).hosts == many
    assert site.maker.make(5.0 + 101 * HOST_SECONDS).hosts == []


def test_many_kinds(site: Site) -> None:
    """W-7"""
    kinds = [(KIND._replace(tenant_name=str(number)), 1, WaitingKind(FULL, 1.0)) for number in range(MAX_KINDS + 5)]
    site.snapshot = Snapshot({}, kinds, [], [])
    made = site.maker.make(5.0)
    assert len(made.waiting) + made.omitted == MAX_KINDS + 5
