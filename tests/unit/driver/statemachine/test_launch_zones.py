# SPDX-License-Identifier: Apache-2.0
"""Zones of launches (rules N-7, O-2)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.statemachine import StateMachine
from nodepool.exceptions import LaunchNodepoolException, LaunchStatusException
from tests.support.machine_driver import CreateMachine
from tests.support.wait import wait_for
from tests.unit.driver.statemachine.conftest import MakeSite


def test_one_zone_for_all(make_site: MakeSite) -> None:
    """N-7: also with a reused node."""
    site = make_site(None, **{"availability-zones": ["az1", "az2", "az3", "az4"]})
    (first,) = site.serve("small")
    first.allocated_to = None
    site.zk.storeNode(first)
    nodes = site.serve("small", "small", "small")
    assert first.id in {node.id for node in nodes}
    assert {node.az for node in nodes} == {first.az}


@pytest.mark.parametrize("zone", ["removed", "nova", None])
def test_zone_that_the_pool_does_not_list(make_site: MakeSite, zone: str | None) -> None:
    """N-7, M-1: zones are removed, ``nova:host1`` is shown as ``nova``, and some clouds show none."""
    site = make_site(None, **{"availability-zones": ["nova:host1"]})
    (first,) = site.serve("small")
    first.allocated_to, first.az = None, zone
    site.zk.storeNode(first)
    (node,) = site.serve("small")
    assert (node.id, node.az) == (first.id, zone)


@pytest.mark.parametrize("error", [LaunchStatusException("No valid host"), ValueError("of a driver")])
def test_zones_are_asked_for_again_after_a_failure(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """O-2: not all drivers say that it was the zone; the next request must not go there for five minutes."""
    site = make_site({"launch-retries": 1})
    zones = ["az1"]
    monkeypatch.setattr(site.adapter, "getAZs", lambda: list(zones))
    site.serve("small")

    def refuse(machine: StateMachine) -> None:
        if isinstance(machine, CreateMachine) and machine._arguments[3] == "az1":
            zones[:] = ["az2"]
            raise error

    site.adapter.hooks.append(refuse)
    site.fail("small")
    wait_for("the zones are known", lambda: site.provider.zones(site.provider.provider.pools["main"]) == ["az2"])


@pytest.mark.parametrize("configured", [True, False])
def test_zone_that_was_removed(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, configured: bool) -> None:
    """O-2: the cloud refuses it, and says which zones there are now: the next attempt goes to another."""
    site = make_site(None, **({"availability-zones": ["az2", "az3"]} if configured else {}))
    zones = ["az1"]
    monkeypatch.setattr(site.adapter, "getAZs", lambda: list(zones))
    if configured:
        (first,) = site.serve("small")
        # Of a zone that is not in the list any more; the new one goes where it is.
        first.allocated_to, first.az = None, "az1"
        site.zk.storeNode(first)
    refused: list[Any] = []

    def refuse(machine: StateMachine) -> None:
        if isinstance(machine, CreateMachine) and machine.state == machine.START and machine._arguments[3] == "az1":
            zones[:] = ["az2", "az3"]
            refused.append(machine)
            raise LaunchNodepoolException("400 The requested availability zone is not available")

    site.adapter.hooks.append(refuse)
    nodes = site.serve("small", "small")
    assert refused
    new = [node for node in nodes if not configured or node.id != first.id]
    assert len({node.az for node in new}) == 1
    assert new[0].az in zones
    assert {
        instance.az for instance in site.cloud.instances() if instance.metadata["nodepool_node_id"] == new[0].id
    } == {new[0].az}
