# SPDX-License-Identifier: Apache-2.0
"""How a provider is, and why."""

from __future__ import annotations

from dataclasses import replace

from nodepool.model import states
from nodepool.model.event import Event
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.status import (
    AbsentProvider,
    HostStatus,
    LabelStatus,
    LauncherStatus,
    LaunchesStatus,
    LaunchStatus,
    LimitStatus,
)
from nodepool.plan.explain import explain_provider, kind_of, similar
from tests.support.observed import NOW, component, known, node, seen, status, waiting

LIMIT = LimitStatus("cloud", "cores", 80, 70, 8, NOW - 60)


def test_works() -> None:
    told = status("cloud-1", limits=[LIMIT], waiting=[waiting("gpu")])
    nodes = known(node(1), node(2, state=states.BUILDING), node(3, provider="cloud-2"))
    found = explain_provider("cloud-1", seen(nodes=nodes, registered=[component("cloud-1", "gpu")], statuses=[told]))
    assert (found.state, found.text) == ("running", "works; 78 of 80 cores are used")
    assert found.nodes == {"building": 1, "ready": 1}
    assert [group.code for group in found.waiting] == ["room.cores"]


def test_unavailable() -> None:
    told = status(
        "cloud-1",
        state="unavailable",
        code="provider.circuit-open",
        text="HTTP 503",
        next=NOW + 12,
        labels={"gpu": LabelStatus("label.broken", "no flavor", NOW)},
    )
    event = Event(NOW - 5, "l1", "provider cloud-1", "unavailable", "provider.circuit-open", "HTTP 503")
    found = explain_provider("cloud-1", seen(statuses=[told], events=[event]))
    assert found.text == "pool main is unavailable: HTTP 503"
    assert found.remedies == ["cloud-1/main is tried again in 12 s", "label gpu of cloud-1/main: no flavor"]
    assert [(moment.what, moment.code) for moment in found.history] == [("unavailable", "provider.circuit-open")]


def test_one_pool() -> None:
    other = status("cloud-1", id="x", pool="second", waiting=[waiting("gpu")])
    found = explain_provider("cloud-1/main", seen(statuses=[status("cloud-1"), other]))
    assert [pool.name for pool in found.pools] == ["cloud-1/main"]
    assert (found.kind, found.id, found.waiting) == ("pool", "cloud-1/main", [])
    assert found.to_dict()["kind"] == "pool"
    told = status("cloud-1", state="unavailable", text="HTTP 503")
    assert explain_provider("cloud-1/main", seen(statuses=[told])).text == "is unavailable: HTTP 503"


def test_maintenance() -> None:
    record = Maintenance("provider", "cloud-1", Mode.PAUSE, "network", "alice", NOW - 3)
    told = status("cloud-1", state="maintenance", code="provider.paused", text=record.text)
    found = explain_provider("cloud-1", seen(statuses=[told], maintenance=[record]))
    assert (found.text, found.maintenance) == ("is paused by alice: network", [record.text])
    assert found.kind == "provider"
    assert found.remedies == ["nodepool resume provider cloud-1"]


def test_maintenance_of_a_pool() -> None:
    """The sentence begins with the pool: a record of its own goes on with it, that of another subject names it."""
    records = [Maintenance("provider", "cloud-1", Mode.PAUSE), Maintenance("pool", "cloud-1/main", Mode.DRAIN)]
    found = explain_provider("cloud-1/main", seen(statuses=[status("cloud-1")], maintenance=records[1:]))
    assert found.text == "is drained"
    found = explain_provider("cloud-1/main", seen(statuses=[status("cloud-1")], maintenance=records))
    assert found.text == "is subject to maintenance: provider cloud-1 is paused; pool cloud-1/main is drained"


def test_released_launcher() -> None:
    found = explain_provider("cloud-1", seen(registered=[component("cloud-1", "gpu")]))
    assert (found.state, found.text) == ("unknown", "tells no status: l1 (11.0.0): cloud-1/main")
    assert explain_provider("cloud-1", seen()).text == "no launcher has it"


def test_hosts_that_are_down() -> None:
    hosts = [HostStatus("zuul@h1:22", False, "no route"), HostStatus("zuul@h2:22", True)]
    found = explain_provider("lab", seen(statuses=[status("lab", hosts=hosts)]))
    assert found.remedies == ["hosts of lab/main are down: zuul@h1:22"]


def test_slash_in_the_name() -> None:
    """Names of providers are free: those with a slash are found as others are."""
    there = seen(
        nodes=known(node(1, provider="eu/cloud-1"), node(2, provider="eu")),
        registered=[component("eu/cloud-1", "gpu")],
        statuses=[status("eu/cloud-1"), status("eu", id="x")],
    )
    assert there.providers == {"eu/cloud-1", "eu"}
    assert [pool.info.name for pool in there.pools.values()] == ["main", "main"]
    for name in ("eu/cloud-1", "eu/cloud-1/main"):
        found = explain_provider(name, there)
        assert ([pool.name for pool in found.pools], found.nodes) == (["eu/cloud-1/main"], {"ready": 1})
    assert explain_provider("eu/cloud-1", there).kind == "provider"
    assert explain_provider("eu", there).nodes == {"ready": 1}
    assert [there.provider_of(name) for name in ("eu/cloud-1/main", "eu/main", "x/y/z")] == ["eu/cloud-1", "eu", "x"]


def test_not_served() -> None:
    """E-3: a configured provider that no launcher could start."""
    away = AbsentProvider("cloud-2", "openstack", "clouds.yaml has no cloud 'x'", NOW - 9, NOW + 5)
    broken = AbsentProvider("cloud-2", "openstack", "label 'y' is not defined", NOW - 9)
    launchers = [LauncherStatus(host="l1", absent=[away]), LauncherStatus(host="l2", absent=[broken])]
    observed = seen(launchers=launchers)
    assert (kind_of("cloud-2", observed), kind_of("cloud-3", observed)) == ("provider", None)
    assert similar("cloud-3", observed) == ", did you mean 'cloud-2'?"
    found = explain_provider("cloud-2", observed)
    assert (found.state, found.text) == (
        "not served",
        "is not served by launcher l1: clouds.yaml has no cloud 'x'; "
        "is not served by launcher l2: label 'y' is not defined",
    )
    assert found.remedies == [
        "launcher l1 does not serve it: clouds.yaml has no cloud 'x'; its start is tried again in 5 s",
        "launcher l2 does not serve it: label 'y' is not defined",
        "nodepool check cloud-2 tries what it needs",
    ]


def test_served_by_one_of_two() -> None:
    """E-3"""
    away = AbsentProvider("cloud-1", "openstack", "no such cloud", NOW - 9)
    found = explain_provider(
        "cloud-1", seen(statuses=[status("cloud-1")], launchers=[LauncherStatus(host="l2", absent=[away])])
    )
    assert (found.state, found.text) == ("running", "works")
    assert found.remedies[0] == "launcher l2 does not serve it: no such cloud"


def test_launches_that_take_long() -> None:
    """E-10: a cloud that is slow or stuck does not simply work."""
    launch = LaunchStatus(
        "0000000001", "gpu", "build", "building", NOW - 75, NOW - 70, NOW + 3525, "launch-timeout", 4.0, slow=True
    )
    slow = status("cloud-1", launches=LaunchesStatus(running=2), launching=[launch])
    found = explain_provider("cloud-1", seen(registered=[component("cloud-1", "gpu")], statuses=[slow]))
    assert found.text.startswith("works slowly; 1 of 2 launches takes long: it waits for the cloud")
    full = explain_provider(
        "cloud-1",
        seen(
            registered=[component("cloud-1", "gpu")], statuses=[replace(slow, state="paused", text="4 of 4 instances")]
        ),
    )
    assert full.text.startswith("pool main is paused: 4 of 4 instances; 1 of 2 launches takes long: it waits")
    assert "nodepool explain 0000000001 shows the launch of cloud-1/main that waits for longest" in found.remedies


def test_slow_calls() -> None:
    """E-10"""
    found = explain_provider(
        "cloud-1",
        seen(
            registered=[component("cloud-1", "gpu")],
            statuses=[status("cloud-1", state="running", slow_calls={"listInstances": 42.0})],
        ),
    )
    assert found.text == "works slowly; a list of instances takes 42 s"


def test_missing_instances() -> None:
    """D-9"""
    missing = {"0000000001": NOW + 60.0}
    (remedy,) = explain_provider("cloud-1", seen(statuses=[status("cloud-1", missing=missing)])).remedies
    assert remedy.startswith("the cloud of provider cloud-1 shows no instance of 1 nodes any more (0000000001): ")
    assert remedy.endswith("; they count as lost in 60 s")


def test_other_installation() -> None:
    """D-10"""
    found = explain_provider("cloud-1", seen(statuses=[status("cloud-1", other_installations={"fedcba9876543210": 2})]))
    (remedy,) = found.remedies
    assert remedy.startswith("another installation, fedcba9876543210, has 2 things in the cloud of provider cloud-1: ")
    assert "nodepool installation adopt fedcba9876543210" in remedy
