# SPDX-License-Identifier: Apache-2.0
"""Launches (rules L, N-7, Q-1 to Q-17)."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any
from unittest.mock import Mock

import pytest

from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.driver.statemachine import StateMachine
from nodepool.exceptions import CapacityException, CloudUnavailableException, LaunchStatusException
from nodepool.launcher.pool.desk import LaunchLog
from nodepool.model import states
from nodepool.model.image import ImageUpload, Promotion
from tests.support.machine_driver import CreateMachine
from tests.support.wait import wait_for
from tests.unit.driver.statemachine.conftest import MakeSite, loads

# -- what is stored


def test_record(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """L-13, L-14, Q-17: what the instance says wins over image and label; its attributes are defaults."""
    attributes = {"rack": "0", "cpu": "arm"}
    loads(monkeypatch, username="core", connection_port=2222, host_keys=["k"], node_attributes=attributes)
    site = make_site(None, **{"node-attributes": {"rack": "7"}, "use-internal-ip": True})
    (node,) = site.serve("small")
    assert node.resources == {"instances": 1, "cores": 2, "ram": 2048}
    assert (node.username, node.connection_port, node.host_keys) == ("core", 2222, ["k"])
    assert node.attributes == {"rack": "7", "cpu": "arm"}
    assert node.interface_ip == node.private_ipv4 == "10.0.0.1" != node.public_ipv4


# -- attempts


def test_keys_of_a_launch_that_goes_on(make_site: MakeSite) -> None:
    """L-18: no attempt has the number of one of another launcher, also if none of those has written the node."""
    site = make_site({"launch-retries": 3})
    attempts: list[int] = []

    def refuse(machine: StateMachine) -> None:
        attempts.append(machine.attempt)
        raise CapacityException("full")

    site.adapter.hooks.append(refuse)
    handler = site.accept("small")
    for launches in (1, 2, 3):
        wait_for("the launch ended", handler.launchesComplete)
        (node,) = handler.nodeset
        assert len(attempts) == len(set(attempts)) == 3 * launches
        # As the next launcher does, in one write.
        vars(node)["_state"] = states.BUILDING
        site.zk.storeNode(node)
        handler.resume(node)
    wait_for("the launch ended", handler.launchesComplete)


@pytest.mark.parametrize(
    ("fields", "ends"),
    [
        ({"candidate": Promotion()}, states.READY),
        # It was rolled back meanwhile.
        ({"rolled_back": True, "verdict": "5 of 5 nodes failed"}, states.READY),
        ({}, states.FAILED),
    ],
)
def test_launch_with_a_candidate_that_goes_on(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], ends: str
) -> None:
    """CA-2: also when another launcher goes on with it, no request fails because of a candidate."""
    site = make_site({"launch-retries": 1})
    handler = site.accept("small")
    wait_for("the launch ended", handler.launchesComplete)
    (node,) = handler.nodeset
    upload = ImageUpload("debian", "0000000007", "nowhere", "0000000001")
    vars(upload).update(fields)
    monkeypatch.setattr(site.provider, "upload_of", lambda node: upload)

    def fail(machine: StateMachine, external_id: Any) -> None:
        raise LaunchStatusException("it does not boot")

    monkeypatch.setattr(CreateMachine, "adopt", fail, raising=False)
    # As the next launcher does, in one write.
    vars(node)["_state"] = states.BUILDING
    site.zk.storeNode(node)
    handler.resume(node)
    wait_for("the launch ended", handler.launchesComplete)
    assert node.state == ends


@pytest.mark.parametrize(("searched", "looks"), [(False, 3), (True, 1)])
def test_search_of_the_driver(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, searched: bool, looks: int) -> None:
    """L-4: an attempt without an answer; a driver that has searched for its instance needs only one more look."""
    site = make_site({"launch-retries": 1})

    def fail(machine: StateMachine) -> None:
        error = CloudUnavailableException("no answer")
        error.searched = searched
        raise error

    site.adapter.hooks.append(fail)
    finder = Mock(wraps=site.provider.finder.find)
    monkeypatch.setattr(site.provider.finder, "find", finder)
    handler = site.accept("small")
    wait_for("the launch ended", handler.launchesComplete)
    assert finder.call_count == looks


# -- odd drivers


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("no address", {"interface_ip": None, "public_ipv4": None, "private_ipv4": None}),
        ("no JSON", {"driver_data": object()}),
        ("no instance", {}),
        ("no upload", {}),
    ],
)
def test_launches_that_cannot_end_well(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, what: str, fields: dict[str, Any]
) -> None:
    """L-6, L-10: failed, not stuck."""
    site = make_site({"launch-retries": 1}, label={"diskimage": "debian"} if what == "no upload" else {})
    loads(monkeypatch, **fields)
    if what == "no instance":
        monkeypatch.setattr(CreateMachine, "advance", lambda machine: setattr(machine, "complete", True))
    if what == "no upload":
        found = [ImageUpload("debian", "0000000007", "nowhere", "0000000001")]
        monkeypatch.setattr(site.provider, "newest_upload", lambda image: found.pop() if found else None)
    handler = site.accept("small")
    wait_for("the launch ended", handler.launchesComplete)
    assert [node.state for node in handler.nodeset] == [states.FAILED]
    assert (site.cloud.calls["create"] == 0) == (what in ("no instance", "no upload"))


@pytest.mark.parametrize("console", [b"Kernel panic", ["Kernel panic"], "Kernel panic"])
def test_consoles_that_are_no_text(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, console: Any) -> None:
    """L-16: whatever a driver has for a console, the scan is what failed, and the driver hears of it."""
    site = make_site({"launch-retries": 1}, label={"console-log": True, "host-key-checking": True})
    failed: Future[tuple[str, ...]] = Future()
    failed.set_exception(ScanFailed("no answer"))
    monkeypatch.setattr(site.provider.scans, "scan", lambda *order: failed)
    monkeypatch.setattr(site.adapter, "getConsoleLog", lambda label, external_id: console)
    kept = LaunchLog()
    monkeypatch.setattr(site.worker, "keep_console", lambda node, text: kept.keep_console(node.key, text))
    handler = site.accept("small")
    wait_for("the launch ended", handler.launchesComplete)
    assert "Kernel panic" in kept.consoles()[handler.nodeset[0].key]
    assert site.results == ["error.keyscan"]
    assert len(site.adapter.scan_failures) == 1
