# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.static.provider`, through the provider's passes (S-16, S-17)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.static.provider import RESYNC_SECONDS, StaticProvider
from nodepool.exceptions import ZKConnectionError
from nodepool.model import states
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.node import Node
from nodepool.plan.static import FLAP_SECONDS, HostFacts, HostSpec, is_parked
from tests.unit.driver.static.conftest import Lab

OFF = {"host-key-checking": False}
HOST = "zuul@127.0.0.1:22"


class Hosts:
    """Whether hosts answer; a check takes no time."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.checks = 0

    def check(self, spec: HostSpec, cancelled: object = None) -> HostFacts:
        self.checks += 1
        if spec.id.name in self.down:
            raise OSError("no answer")
        return HostFacts(("ssh-rsa AAAA",), spec.id.name)

    def is_alive(self, spec: HostSpec) -> bool:
        return spec.id.name not in self.down


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    made = Hosts()
    monkeypatch.setattr("nodepool.driver.static.checks.check_host", made.check)
    monkeypatch.setattr("nodepool.driver.static.provider.is_alive", made.is_alive)
    return made


def quarantine(lab: Lab, name: str = HOST, **fields: Any) -> None:
    """What an operator does."""
    fields = {"reason": "the disk is broken", "by": "alice", **fields}
    lab.zk.maintenance.put(Maintenance("host", name, Mode.QUARANTINE, since=lab.wall.now, **fields))


def record(lab: Lab, name: str = HOST) -> Maintenance | None:
    return lab.zk.maintenance.read_all().get(("host", name))


def released(lab: Lab, node: Node) -> Node:
    """The node as the framework hands it over: released, marked, locked."""
    node.state = states.DELETING
    lab.zk.nodes.lock_and_save(node)
    return node


def passes(lab: Lab, provider: StaticProvider, number: int) -> None:
    """Lets so many checks fall due, one after the other."""
    for _ in range(number):
        lab.pass_seconds(lab.settle(provider))
        lab.settle(provider)


# -- an operator --


@pytest.mark.parametrize("name", [HOST, "127.0.0.1"])
def test_a_ready_host_is_taken_out_of_use(lab: Lab, hosts: Hosts, name: str) -> None:
    """S-17: its nodes go on hold, with who did it and why; released, they come back, after a check."""
    provider = lab.provider({"max-parallel-jobs": 2})
    lab.settle(provider)
    quarantine(lab, name)
    lab.settle(provider)
    nodes = lab.zk.all_nodes()
    assert [(node.state, node.comment) for node in nodes] == [
        (states.HOLD, "quarantine: alice: the disk is broken")
    ] * 2
    assert provider.check_alive(nodes[0]).result(30) is False
    (status,) = provider.hostStatus()
    assert (status.up, status.quarantine, status.next) == (True, "alice: the disk is broken", None)
    assert provider.waitReason("main", ["small"], {}).text.endswith(f"of 2, 2 are quarantined ({HOST})")
    checks = hosts.checks
    lab.zk.maintenance.remove("host", name)
    lab.settle(provider)
    assert hosts.checks == checks + 1
    assert [(node.state, node.slot) for node in lab.zk.all_nodes()] == [(states.READY, 0), (states.READY, 1)]
    assert provider.hostStatus()[0].quarantine is None


@pytest.mark.parametrize("host", [OFF, {}])
def test_a_host_in_use_is_held_after_its_job(lab: Lab, hosts: Hosts, host: dict[str, Any]) -> None:
    """S-17: it keeps its job; in the write that removes the returned node it gets one on hold."""
    provider = lab.provider(host)
    lab.settle(provider)
    (busy,) = lab.zk.all_nodes()
    lab.zk.change(busy.key, state=states.IN_USE)
    quarantine(lab)
    lab.settle(provider)
    assert [node.state for node in lab.zk.all_nodes()] == [states.IN_USE]
    lab.zk.change(busy.key, state=states.USED)
    (busy,) = lab.zk.all_nodes()
    new = provider.replacementFor(busy)
    assert new is not None
    assert is_parked(new)
    checks = hosts.checks
    provider.startNodeCleanup(released(lab, busy)).join(30)
    (held,) = lab.zk.all_nodes()
    assert is_parked(held)
    assert not lab.zk.isNodeLocked(held)
    assert hosts.checks == checks
    lab.settle(provider)
    assert [node.id for node in lab.zk.all_nodes()] == [held.id]


def test_a_host_that_is_not_there_is_not_registered(lab: Lab, hosts: Hosts) -> None:
    """S-17: nor checked, until it is released; a record that ends by itself is no different."""
    quarantine(lab, until=lab.wall.now + 20)
    provider = lab.provider({})
    assert lab.settle(provider) == 20
    assert (lab.zk.all_nodes(), hosts.checks) == ([], 0)
    lab.pass_seconds(20)
    lab.settle(provider)
    assert [node.state for node in lab.zk.all_nodes()] == [states.READY]


def test_nothing_is_done_before_the_records_are_known(lab: Lab, hosts: Hosts) -> None:
    """S-17: after a start a node on hold is not taken for one of a host that was released."""
    first = lab.provider({})
    lab.settle(first)
    quarantine(lab)
    lab.settle(first)
    records = lab.zk.cache.maintenance
    known, records._records = records.snapshot(), {}
    records.ready.clear()
    provider = lab.provider({})
    assert provider.run_once() == 1
    assert [is_parked(node) for node in lab.zk.all_nodes()] == [True]
    records.replace(known)
    records.ready.set()
    lab.settle(provider)
    assert [is_parked(node) for node in lab.zk.all_nodes()] == [True]
    # A connection that is lost changes nothing: the last known records hold.
    records.ready.clear()
    lab.settle(provider)
    assert [is_parked(node) for node in lab.zk.all_nodes()] == [True]


def test_a_cache_that_is_behind_releases_no_host(lab: Lab, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-17, S-10: it knows the node on hold, and not yet the record; nothing is released, and no slot filled twice."""
    provider = lab.provider({"max-parallel-jobs": 2})
    lab.settle(provider)
    quarantine(lab)
    lab.settle(provider)
    late = lab.provider({"max-parallel-jobs": 2})
    with monkeypatch.context() as behind:
        behind.setattr(lab.zk.cache.maintenance, "snapshot", dict)
        lab.settle(late)
        assert [is_parked(node) for node in lab.zk.all_nodes()] == [True] * 2


def test_two_launchers_and_one_host(lab: Lab, hosts: Hosts) -> None:
    """S-17, S-10: both do the same, and nothing is lost or there twice."""
    both = [lab.provider({"max-parallel-jobs": 2}) for _ in range(2)]
    for _ in range(3):
        for provider in both:
            lab.settle(provider)
        assert [node.state for node in lab.zk.all_nodes()] == [states.READY] * 2
        quarantine(lab)
        for provider in both:
            lab.settle(provider)
        assert [is_parked(node) for node in lab.zk.all_nodes()] == [True] * 2
        lab.zk.maintenance.remove("host", HOST)


def test_a_change_of_the_records_brings_a_pass(lab: Lab) -> None:
    """S-17: at once; a stopped provider hears of nothing."""
    provider = lab.provider(OFF)
    provider.start(lab.zk)
    assert provider.wake in lab.zk.cache.maintenance._listeners
    provider.stop()
    provider.join()
    assert provider.wake not in lab.zk.cache.maintenance._listeners


# -- a host that fails --


def test_failures_in_a_row_quarantine_a_host(lab: Lab, hosts: Hosts, caplog: pytest.LogCaptureFixture) -> None:
    """S-16: for a minute, then for as long as it has been down; a check that succeeds brings it back."""
    hosts.down = {"127.0.0.1"}
    provider, begun = lab.provider({}, quarantine_after=3), lab.wall.now
    lab.settle(provider)
    passes(lab, provider, 1)
    assert record(lab) is None
    passes(lab, provider, 1)
    found = record(lab)
    assert found is not None
    assert (found.automatic, found.since, found.until) == (True, lab.wall.now, lab.wall.now + 60)
    assert found.reason == "3 failed checks in a row, the last one: no answer"
    assert "is quarantined, and checked again in 60 s: 3 failed checks" in caplog.text
    lab.settle(provider)
    assert provider.hostStatus()[0].next == found.until
    waits = []
    for _ in range(4):
        waits.append(lab.settle(provider))
        lab.pass_seconds((record(lab) or found).until - lab.wall.now)  # type: ignore[operator]
        lab.settle(provider)
        lab.settle(provider)
    assert waits == [60, 60, 60, 60]
    now = lab.wall.now
    assert (record(lab) or found).since == found.since
    assert (record(lab) or found).until == now + (now - begun)
    hosts.down.clear()
    lab.pass_seconds((record(lab) or found).until - now)  # type: ignore[operator]
    lab.settle(provider)
    assert [node.state for node in lab.zk.all_nodes()] == [states.READY]


def test_without_the_option_nothing_is_quarantined(lab: Lab, hosts: Hosts) -> None:
    """S-16, S-4: a host that fails is tried again every minute."""
    hosts.down = {"127.0.0.1"}
    provider = lab.provider({})
    passes(lab, provider, 20)
    assert record(lab) is None
    assert lab.settle(provider) == RESYNC_SECONDS


def test_the_option_of_a_host(lab: Lab, hosts: Hosts) -> None:
    """S-16: in place of the provider's."""
    hosts.down = {"127.0.0.1", "127.0.0.2"}
    provider = lab.provider({"quarantine-after": 0}, {"name": "127.0.0.2"}, quarantine_after=1)
    lab.settle(provider)
    assert record(lab) is None
    assert record(lab, "zuul@127.0.0.2:22") is not None


def test_a_flapping_host_waits_longer_each_time(lab: Lab, hosts: Hosts) -> None:
    """S-16, S-9: it fails the check before it is handed out, comes back, and fails again."""
    provider = lab.provider({}, quarantine_after=2)
    lab.settle(provider)
    pauses = []
    for number in range(5):
        (node,) = lab.zk.all_nodes()
        hosts.down = {"127.0.0.1"}
        assert provider.check_alive(node).result(30) is False
        lab.settle(provider)
        if number == 0:
            passes(lab, provider, 1)
        found = record(lab)
        assert found is not None
        assert found.until is not None
        pauses.append(round(found.until - found.since))
        hosts.down.clear()
        lab.pass_seconds(found.until - lab.wall.now)
        lab.settle(provider)
        lab.pass_seconds(FLAP_SECONDS / 2)
        lab.zk.maintenance.remove_if_over(found, lab.wall.now)
    assert pauses == [60, 120, 240, 480, 960]


def test_a_host_that_an_operator_releases_starts_anew(lab: Lab, hosts: Hosts) -> None:
    """S-16: it is checked at once, and its failures count from the beginning."""
    hosts.down = {"127.0.0.1"}
    provider = lab.provider({}, quarantine_after=2)
    lab.settle(provider)
    passes(lab, provider, 1)
    lab.settle(provider)
    assert record(lab) is not None
    lab.zk.maintenance.remove("host", HOST)
    checks = hosts.checks
    lab.settle(provider)
    assert hosts.checks == checks + 1
    assert record(lab) is None
    passes(lab, provider, 1)
    assert record(lab) is not None


def test_an_operator_comes_first(lab: Lab, hosts: Hosts) -> None:
    """S-16: a launcher never writes over what an operator wrote, and does not check the host meanwhile."""
    hosts.down = {"127.0.0.1"}
    provider = lab.provider({}, quarantine_after=2)
    lab.settle(provider)
    passes(lab, provider, 1)
    assert record(lab) is not None
    quarantine(lab)
    assert not provider._quarantines.quarantine(next(iter(provider._hosts)), "it fails", 60)
    checks = hosts.checks
    passes(lab, provider, 3)
    found = record(lab)
    assert found is not None
    assert (found.automatic, found.by, hosts.checks) == (False, "alice", checks)


def test_a_launcher_without_network_takes_no_host(lab: Lab, hosts: Hosts) -> None:
    """S-16: when most hosts of the provider are down, it is likely to be the launcher."""
    names = [f"127.0.0.{number}" for number in range(1, 5)]
    hosts.down = set(names)
    provider = lab.provider(*({"name": name} for name in names), quarantine_after=2)
    passes(lab, provider, 5)
    assert lab.zk.maintenance.read_all() == {}
    hosts.down = set(names[:2])
    passes(lab, provider, 3)
    assert sorted(name for _, name in lab.zk.maintenance.read_all()) == [f"zuul@{name}:22" for name in names[:2]]


def test_slots_that_fail_together_are_one_failure(lab: Lab, hosts: Hosts) -> None:
    """S-16: four nodes of a host that went away are no row of four failures."""
    provider = lab.provider({"max-parallel-jobs": 4}, quarantine_after=3)
    lab.settle(provider)
    nodes = lab.zk.all_nodes()
    hosts.down = {"127.0.0.1"}
    for node in nodes:
        assert provider.check_alive(node).result(30) is False
        provider.run_once()
    assert provider._monitor.health(next(iter(provider._hosts))).row == 1
    lab.settle(provider)
    assert lab.zk.all_nodes() == []


def test_zookeeper_away_loses_no_quarantine(lab: Lab, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-16: the next pass writes it."""
    hosts.down = {"127.0.0.1"}
    provider = lab.provider({}, quarantine_after=1)

    def fail(record: Maintenance, now: float) -> bool:
        raise ZKConnectionError("away")

    with monkeypatch.context() as away:
        away.setattr(lab.zk.maintenance, "put_automatic", fail)
        with pytest.raises(ZKConnectionError):
            lab.settle(provider)
    lab.settle(provider)
    assert record(lab) is not None
