# SPDX-License-Identifier: Apache-2.0
"""Launches (rules L, Q-7 to Q-17)."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.config import ImageSettings
from nodepool.driver.fake.cloud import BUILDING
from nodepool.driver.framework.rate import RateLimiter
from nodepool.driver.statemachine import Adapter, Instance, StateMachine, deletion, launch
from nodepool.exceptions import CapacityException, LaunchStatusException
from nodepool.metrics import reports
from nodepool.model import states
from nodepool.model.image import ImageUpload
from nodepool.plan.retries import Backoff
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.machine_driver import CreateMachine, MachineAdapter, MachineInstance
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.unit.driver.statemachine.conftest import MakeSite


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Results of launches as they are reported."""
    found: list[str] = []
    monkeypatch.setattr(reports, "report", lambda result, *_, **__: found.append(result))
    return found


def test_record(make_site: MakeSite) -> None:
    """L-1, L-2, L-3, D-1, Q-17: the node and its instance know of each other."""
    site = make_site(None, **{"availability-zones": ["az1"], "node-attributes": {"rack": "7"}})
    (node,) = site.serve("small")
    (instance,) = site.cloud.instances()
    assert instance.name == f"np{node.id}"
    assert node.hostname is None
    assert len(instance.name) <= 15
    assert instance.metadata == {
        "nodepool_node_id": node.id,
        "nodepool_provider_name": "nowhere",
        "nodepool_pool_name": "main",
    }
    assert (node.external_id, node.interface_ip, node.az) == (instance.id, instance.address, "az1")
    assert node.resources == {"instances": 1, "cores": 2, "ram": 2048}
    assert (node.username, node.connection_type, node.connection_port, node.python_path) == ("zuul", "ssh", 22, "auto")
    assert (node.host_keys, node.attributes, node.image_id) == ([], {"rack": "7"}, "small")


def test_order_of_writes(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """L-1, L-3: login fields and resources are stored before the creation, external_id before the end."""
    site = make_site({"hang": True})
    seen: list[Any] = []

    def look(machine: StateMachine) -> None:
        if machine.state == machine.START:
            (node,) = zk.nodeIterator()
            seen.append((node.external_id, node.username, node.resources, node.state))

    site.adapter.hooks.append(look)
    handler = site.worker.accept(site.worker.submit("small"))
    wait_for("external_id is stored", lambda: [node.external_id for node in zk.nodeIterator() if node.external_id])
    assert seen == [(None, "zuul", {"instances": 1, "cores": 2, "ram": 2048}, states.BUILDING)]
    assert [instance.status for instance in site.cloud.instances()] == [BUILDING]
    (step,) = handler.launch_steps()
    assert (step.step, step.option, step.label) == ("build", "launch-timeout", "small")
    assert 0 < (step.ends or 0) - step.begun <= 3600
    site.cloud.set(hang=False)
    site.worker.finish(handler, 30)
    assert handler.launch_steps() == []


def test_internal_address(make_site: MakeSite) -> None:
    """L-13."""
    (node,) = make_site(None, **{"use-internal-ip": True}).serve("small")
    assert node.interface_ip == "10.0.0.1" == node.private_ipv4
    assert node.public_ipv4 is not None


def test_instance_wins_over_image(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """L-14, and attributes of the instance are defaults."""
    site = make_site(None, **{"node-attributes": {"rack": "7"}})
    plain = MachineInstance.load

    def load(self: Any, found: Any) -> None:
        plain(self, found)
        self.username = "core"
        self.connection_port = 2222
        self.host_keys = ["ssh-ed25519 AAAA"]
        self.node_attributes = {"rack": "0", "cpu": "arm"}

    monkeypatch.setattr(MachineInstance, "load", load)
    (node,) = site.serve("small")
    assert (node.username, node.connection_port, node.host_keys) == ("core", 2222, ["ssh-ed25519 AAAA"])
    assert node.attributes == {"rack": "7", "cpu": "arm"}


def test_uploaded_image(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """L-1: the newest ready upload is used; login data come from the configuration."""
    upload = ImageUpload("debian", "0000000007", "nowhere", "0000000001")
    upload.external_id, upload.state, upload.username = "image-1", states.READY, "somebody"
    zk.uploads["debian", "nowhere"] = upload
    site = make_site(None, label={"diskimage": "debian"})
    (node,) = site.serve("small")
    assert site.adapter.last_image == "image-1"
    assert node.username == "image-user"
    assert node.image_id == "/nodepool/images/debian/builds/0000000007/providers/nowhere/images/0000000001"


def test_driver_of_11(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """L-1: its label has the diskimage of the top level, and the provider's says how to connect.

    Such a driver is not asked whether an image is there that was uploaded.
    """
    upload = ImageUpload("debian", "0000000007", "nowhere", "0000000001")
    upload.external_id, upload.state = "image-1", states.READY
    zk.uploads["debian", "nowhere"] = upload
    site = make_site(None, label={"diskimage": "debian"})
    monkeypatch.setattr(site.adapter, "labelReady", lambda label: label.cloud_image is not None)
    section: Any = site.provider.provider
    for pool in section.pools.values():
        pool.labels["small"].diskimage = SimpleNamespace(name="debian", username="top", python_path="auto")
    found = ImageSettings({"name": "debian", "connection-type": "winrm", "username": "admin"})
    monkeypatch.setattr(section, "diskimages", {"debian": found}, raising=False)
    (node,) = site.serve("small")
    assert (node.username, node.connection_type, node.connection_port) == ("admin", "winrm", 5986)


def test_facade_under_its_old_name(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """Drivers written for 11.0.0 ask ``provider._zk`` and ``handler.pw.nodepool``."""
    site = make_site()
    assert site.provider._zk is zk
    launcher = site.worker.nodepool
    assert launcher.getZK() is zk
    assert launcher.getProviderManager("nowhere") is site.provider


def test_one_thread(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """reference/driver 8: machines of an adapter that does not say otherwise are advanced in one thread.

    Also when the provider's other threads have something else to do.
    """
    monkeypatch.setattr(MachineAdapter, "advance_threads", Adapter.advance_threads)
    site = make_site()
    threads: set[threading.Thread] = set()
    site.adapter.hooks.append(lambda _: threads.add(threading.current_thread()))
    go_on = threading.Event()
    try:
        for node in site.serve("small", "small", "small"):
            site.provider._threads.asks.submit(go_on.wait, DEADLINE_SECONDS)
            site.delete(node)
    finally:
        go_on.set()
    assert len(threads) == 1


def test_missing_upload_declines(make_site: MakeSite) -> None:
    """A-13: no ready upload."""
    site = make_site(None, label={"diskimage": "debian"})
    site.fail("small")
    assert not site.provider.labelReady("small")
    assert site.provider.labelReady("large")


def test_upload_vanishes(make_site: MakeSite, results: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """L-10: between acceptance and launch; each attempt fails."""
    upload = ImageUpload("debian", "0000000007", "nowhere", "0000000001")
    site = make_site({"launch-retries": 2}, label={"diskimage": "debian"})
    found = [upload]
    monkeypatch.setattr(site.provider, "newest_upload", lambda image: found.pop() if found else None)
    site.fail("small")
    assert results == ["error.nodepool"] * 2
    assert site.cloud.calls["create"] == 0


def test_attempts(make_site: MakeSite, results: list[str]) -> None:
    """L-4: the third attempt succeeds, and never are there two instances of the node."""
    site = make_site({"fail-launches": 2, "launch-retries": 3, "delete-seconds": 0.05})
    (node,) = site.serve("small")
    assert node.external_id == site.cloud.instances()[0].id
    assert (site.cloud.calls["create"], site.cloud.peak) == (3, 1)
    assert results == ["error.status", "error.status", "ready"]


def test_all_attempts_fail(make_site: MakeSite) -> None:
    """L-6: the node is `failed` and the request declined; its instance waits for the node's deletion."""
    site = make_site({"fail-launches": 9, "launch-retries": 2})
    site.fail("small")
    (node,) = site.zk.nodeIterator()
    assert (node.state, node.allocated_to) == (states.FAILED, None)
    assert [instance.id for instance in site.cloud.instances()] == [node.external_id]


def test_launch_timeout(make_site: MakeSite, results: list[str]) -> None:
    """L-5: an instance that hangs is given up, and deleted before the next attempt."""
    site = make_site({"hang": True, "launch-timeout": 0.3, "launch-retries": 2})
    site.fail("small")
    assert site.cloud.calls["create"] == 2
    assert site.cloud.peak == 1
    assert results == ["error.servercreatetimeout"] * 2


def test_time_in_a_limit_of_our_own(make_site: MakeSite, results: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """L-5, X-5: it does not count. As in a driver written for 11.0.0, which waits in its steps, one after the other."""
    monkeypatch.setattr(deletion, "DELETE_SECONDS", 2.0)
    monkeypatch.setattr(MachineAdapter, "advance_threads", 1)
    site = make_site({"launch-timeout": 2, "launch-retries": 1})
    limiter = RateLimiter("cloud", 4)

    def wait(machine: StateMachine) -> None:
        if machine.state == machine.START:
            limiter.wait()

    site.adapter.hooks.append(wait)
    handlers = [site.worker.accept(site.worker.submit("small")) for _ in range(12)]
    wait_for("all launches have ended", lambda: len(results) == len(handlers))
    assert results == ["ready"] * 12
    for handler in handlers:
        site.worker.finish(handler, DEADLINE_SECONDS)
    tasks = []
    for node in site.zk.nodeIterator():
        node.state = states.DELETING
        site.zk.nodes.lock_and_save(node)
        tasks.append(site.provider.startNodeCleanup(node))
    for task in tasks:
        task.join(DEADLINE_SECONDS)
    assert [task.error for task in tasks] == [None] * 12


@pytest.mark.parametrize("error", [LaunchStatusException("409"), ValueError("of a driver")])
def test_deletion_that_fails_before_the_next_attempt(
    make_site: MakeSite, results: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """L-5: it is begun again, and uses up no attempt."""
    monkeypatch.setattr(launch, "RETRY", Backoff(0.01, 60.0))
    site = make_site({"fail-launches": 1, "launch-retries": 2})
    failures = iter([error] * 3)

    def refuse(machine: StateMachine) -> None:
        if not isinstance(machine, CreateMachine):
            for failure in failures:
                raise failure

    site.adapter.hooks.append(refuse)
    site.serve("small")
    assert results == ["error.status", "ready"]
    assert site.cloud.calls["create"] == 2
    assert len(site.cloud.instances()) == 1


def test_quota_error(make_site: MakeSite, results: list[str]) -> None:
    """L-7, Q-5: a quota error pauses the request and costs no attempt; the limits are asked for again."""
    site = make_site({"quota-errors": 1, "launch-retries": 1})
    request = site.worker.submit("small")
    handler = site.worker.accept(request)
    wait_for("the launch ended", handler.launchesComplete)
    assert handler.poll() is False
    assert handler.paused
    request = site.worker.finish(handler, 60)
    assert (request.state, request.declined_by) == (states.FULFILLED, [])
    assert results == ["error.quota", "ready"]
    assert [node.state for node in site.zk.nodeIterator()] == [states.READY], "the refused node is gone at once"
    wait_for("limits were asked for again", lambda: site.adapter.calls["limits"] >= 2)


class NoSubnetError(Exception):
    """An exception of a driver of somebody else."""

    statsd_key = "error.subnet"


@pytest.mark.parametrize(
    ("error", "key"),
    [
        (CapacityException("no host"), "error.capacity"),
        (NoSubnetError("a key of its own"), "error.subnet"),
        (ZeroDivisionError("a mistake in the driver"), "error.unknown"),
        (ConnectionResetError("reset"), "error.unknown"),
        (SystemExit(2), "error.unknown"),
    ],
)
def test_kinds_of_errors(make_site: MakeSite, results: list[str], error: BaseException, key: str) -> None:
    """L-6, metrics 3: the class decides the statistics key; one attempt that fails does not fail the launch."""
    site = make_site()
    errors = [error]

    def fail_once(machine: StateMachine) -> None:
        if isinstance(machine, CreateMachine) and errors:
            raise errors.pop()

    site.adapter.hooks.append(fail_once)
    site.serve("small")
    assert results == [key, "ready"]


def test_no_address(make_site: MakeSite, results: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance without addresses is a failed attempt, not a node."""
    site = make_site({"launch-retries": 1})

    def load(self: Any, found: Any) -> None:
        self.external_id = found.id
        self._resources = {}

    monkeypatch.setattr(MachineInstance, "load", load)
    site.fail("small")
    assert results == ["error.network"]


def test_machine_without_instance(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that forgets to return the instance: failed, not stuck."""
    site = make_site({"launch-retries": 1})

    def advance(self: Any) -> Instance | None:
        self.complete = True
        return None

    monkeypatch.setattr(CreateMachine, "advance", advance)
    site.fail("small")


def test_driver_without_quota(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-2: an adapter that raises NotImplementedError for quota has none, and is used all the same."""

    def missing(*_: Any) -> Any:
        raise NotImplementedError

    site = make_site()
    for name in ("getQuotaLimits", "getQuotaForLabel", "getAZs", "labelReady"):
        monkeypatch.setattr(site.adapter, name, missing)
    assert site.provider.getLabelQuota()["small"] > 10**6
    (node,) = site.serve("small")
    assert node.az is None


def test_node_that_cannot_be_stored(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that puts something into the node that is no JSON: failed, not stuck."""
    site = make_site({"launch-retries": 1})
    plain = MachineInstance.load

    def load(self: Any, found: Any) -> None:
        plain(self, found)
        self.driver_data = object()

    monkeypatch.setattr(MachineInstance, "load", load)
    handler = site.worker.accept(site.worker.submit("small"))
    wait_for("the launch ended", handler.launchesComplete)
    assert [node.state for node in handler.nodeset] == [states.FAILED]


def test_wake(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is woken does not wait for its pace; one that says when to come again is not asked before."""
    site = make_site()
    first = threading.Event()
    machines: list[Any] = []
    plain = CreateMachine.advance

    def advance(self: Any) -> Instance | None:
        self.next_advance_seconds = 3600.0
        if not machines:
            machines.append(self)
            first.set()
            return None
        return plain(self)

    monkeypatch.setattr(CreateMachine, "advance", advance)
    handler = site.worker.accept(site.worker.submit("small"))
    assert first.wait(30)
    wait_for("it goes on", lambda: (machines[0].wake(), handler.launchesComplete())[1])
    assert site.worker.finish(handler, 30).state == states.FULFILLED


def test_slow_cloud_holds_up_nobody(make_site: MakeSite) -> None:
    """A call that blocks holds up its own node only."""
    site = make_site()
    release = threading.Event()

    def block(machine: StateMachine) -> None:
        if isinstance(machine, CreateMachine) and machine._arguments[1].name == "large":
            release.wait(60)

    site.adapter.hooks.append(block)
    slow = site.worker.accept(site.worker.submit("large"))
    site.serve("small", "small")
    assert not slow.launchesComplete()
    release.set()
    assert site.worker.finish(slow, 30).state == states.FULFILLED
