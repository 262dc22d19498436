# SPDX-License-Identifier: Apache-2.0
"""Nodes whose instance is gone although nobody deleted it."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.statemachine.lost_instances import LostInstances
from nodepool.metrics import instances as metrics
from nodepool.model.lost_instance import LostInstance
from tests.support.machine_driver import MachineAdapter
from tests.unit.driver.statemachine.conftest import MakeSite, Site

REASON = ("SpotEviction", "the cloud wanted it back")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(metrics, "report_end", lambda provider, reason: found.append((provider, reason)))
    return found


@pytest.fixture
def site(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(MachineAdapter, "whyLost", lambda _self, _external_id: REASON)
    return make_site()


def vanish(site: Site, external_id: Any) -> None:
    (instance,) = [found for found in site.cloud.instances() if found.id == external_id]
    site.cloud.delete(instance.id)


def test_told_once(site: Site, counted: list[tuple[str, str]]) -> None:
    """When two lists lack it, with the reason of the driver, in log, counter, and for the event."""
    (lost,) = site.serve("small")
    site.serve("small")
    vanish(site, lost.external_id)
    site.provider.cleanupLeakedResources()
    assert site.provider.lostInstances() == []
    site.provider.cleanupLeakedResources()
    site.provider.cleanupLeakedResources()
    assert site.provider.lostInstances() == [LostInstance(lost.key, *REASON)]
    assert site.provider.lostInstances() == []
    assert counted == [("nowhere", "SpotEviction")]


def test_deleted_by_us(site: Site, counted: list[tuple[str, str]]) -> None:
    """A node that is being deleted, or gone, is nobody's loss."""
    (node,) = site.serve("small")
    site.delete(node)
    for _ in range(3):
        site.provider.cleanupLeakedResources()
    assert (site.provider.lostInstances(), counted) == ([], [])


def test_seen_again(site: Site, counted: list[tuple[str, str]]) -> None:
    """One list that lacks it says nothing: lists may be late."""
    (node,) = site.serve("small")
    lost, listed = site.provider.lost, site.provider.listNodes()
    for shown in ([], listed, [], listed):
        lost.look(shown)
    assert (lost.take(), counted) == ([], [])
    lost.look([])
    lost.look([])
    assert [found.node_id for found in lost.take()] == [node.key]


def test_lists_that_lag(site: Site) -> None:
    """The two lists must be further apart than the lag."""
    site.serve("small")
    lost = LostInstances(site.provider, site.provider.log, lag_seconds=3600)
    assert lost.look([])
    assert not lost.look([])
    assert lost.take() == []


def test_driver_that_does_not_tell(make_site: MakeSite, counted: list[tuple[str, str]]) -> None:
    site = make_site()
    (node,) = site.serve("small")
    vanish(site, node.external_id)
    for _ in range(3):
        site.provider.cleanupLeakedResources()
    assert (site.provider.lostInstances(), counted) == ([], [])
