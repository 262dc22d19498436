# SPDX-License-Identifier: Apache-2.0
"""Launches (rules L, N-7, Q-1 to Q-17)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.statemachine.calls import Removal
from nodepool.exceptions import CapacityException, LaunchStatusException
from nodepool.model import states
from nodepool.model.image import ImageUpload
from nodepool.plan.retries import Backoff
from tests.support.machine_driver import CreateMachine, DeleteMachine
from tests.support.wait import wait_for
from tests.unit.driver.statemachine.conftest import MakeSite, home, loads

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


@pytest.mark.parametrize(
    ("settings", "results", "creations"),
    [
        ({"fail-launches": 2, "launch-retries": 3, "delete-seconds": 0.05}, ["error.status"] * 2 + ["ready"], 3),
        ({"fail-launches": 9, "launch-retries": 2}, ["error.status"] * 2, 2),
        ({"hang": True, "launch-timeout": 0.3, "launch-retries": 2}, ["error.servercreatetimeout"] * 2, 2),
        ({"lost-answers": 1}, ["error.unknown", "ready"], 2),
        ({"lost-answers": 1, "launch-retries": 1}, ["error.unknown"], 1),
    ],
)
def test_attempts(make_site: MakeSite, settings: dict[str, Any], results: list[str], creations: int) -> None:
    """L-4, L-5, L-6: never are there two instances of a node, also when an answer is lost; the last one goes with it.

    Each attempt has its number, of which the key of its creation is made.
    """
    site = make_site(settings)
    attempts: list[int] = []
    site.before_creation(lambda machine: attempts.append(machine.attempt))
    site.serve("small") if results[-1] == "ready" else site.fail("small")
    (node,) = site.zk.nodeIterator()
    assert (node.state, node.allocated_to is None) == (
        (states.READY, False) if results[-1] == "ready" else (states.FAILED, True)
    )
    assert site.results == results
    assert site.ids() == [node.external_id]
    assert (site.cloud.calls["create"], site.cloud.peak, sorted(set(attempts))) == (
        creations,
        1,
        list(range(1, creations + 1)),
    )


def test_keys_of_a_launch_that_goes_on(make_site: MakeSite) -> None:
    """L-18: no attempt has the number of one of another launcher, also if none of those has written the node."""
    site = make_site({"launch-retries": 3})
    attempts: list[int] = []

    def refuse(machine: Any) -> None:
        attempts.append(machine.attempt)
        raise CapacityException("full")

    site.before_creation(refuse)
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


@pytest.mark.parametrize("error", [LaunchStatusException("409"), ValueError("of a driver")])
def test_deletion_that_fails_before_the_next_attempt(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """L-5: it is begun again, and uses up no attempt."""
    monkeypatch.setattr(home(Removal), "RETRY", Backoff(0.01, 60.0))
    site = make_site({"fail-launches": 1, "launch-retries": 2})
    failures = [error] * 3

    def refuse(machine: Any) -> None:
        if isinstance(machine, DeleteMachine) and failures:
            raise failures.pop()

    site.adapter.hooks.append(refuse)
    site.serve("small")
    assert (site.results, site.cloud.calls["create"], len(site.ids())) == (["error.status", "ready"], 2, 1)


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


# -- limits


# -- zones
