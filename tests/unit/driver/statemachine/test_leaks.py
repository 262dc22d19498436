# SPDX-License-Identifier: Apache-2.0
"""Leaked resources (rules D, AW-20)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from nodepool.driver.fake.cloud import CloudError
from nodepool.driver.framework.cloud_errors import CloudAway, CloudSetup
from nodepool.driver.statemachine import Resource, ResourceKind, ResourceKinds
from nodepool.driver.statemachine.launch import Done
from nodepool.exceptions import CloudUnavailableException, LaunchError, NotFound, RuntimeConfigurationException
from nodepool.metrics.catalog import LEAKED
from nodepool.model.image import ImageUpload
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.counted import Counted
from tests.support.manual_clock import ManualClock
from tests.unit.driver.statemachine.conftest import MakeSite, Site

OURS, OTHER = "0123456789abcdef", "fedcba9876543210"


def marks(**marks: str) -> dict[str, str]:
    return {f"nodepool_{name}": value for name, value in {"provider_name": "nowhere", **marks}.items()}


class Store:
    """Resources other than instances; ``lasts``: deletions are accepted, and all stays for a while."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch, *marks: Any, kind: str = "port") -> None:
        self.site, self.items = site, [Resource(each, kind) for each in marks]
        self.error: Exception | None = None
        self.lasts = False
        self.deleted: list[Resource] = []
        self.counted = Counted(LEAKED)
        monkeypatch.setattr(site.adapter, "listResources", lambda: iter(list(self.items)))
        monkeypatch.setattr(site.adapter, "deleteResource", self.delete)

    def delete(self, resource: Resource) -> None:
        if self.error is not None:
            raise self.error
        self.deleted.append(resource)
        if not self.lasts:
            self.items.remove(resource)


def test_interrupted_series(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-2: the sweeps must be consecutive; instances are listed right before the resources."""
    site = make_site()
    store = Store(site, monkeypatch, marks(node_id="77"))
    (resource,) = store.items
    calls: list[str] = []

    def note(name: str, found: list[Any]) -> list[Any]:
        calls.append(name)
        return list(found)

    monkeypatch.setattr(site.adapter, "listInstances", lambda: note("instances", []))
    monkeypatch.setattr(site.adapter, "listResources", lambda: note("resources", store.items))
    for items, left in (([resource], 1), ([], 0), ([resource], 1), ([resource], 0)):
        store.items = list(items)
        site.sweep()
        assert len(store.items) == left
        assert calls[calls.index("resources") - 1] == "instances", calls
        calls.clear()


@pytest.mark.parametrize(("settings", "usable"), [({"clean-leaked-images": True}, True), ({}, False), ({}, True)])
def test_images(
    make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], usable: bool
) -> None:
    """D-3: by build id and upload id; only if the provider says so, or the upload never ended."""
    site = make_site(settings)
    uploads = [marks(build_id="0000000001", upload_id=upload) for upload in ("0000000001", "0000000002")]
    store = Store(site, monkeypatch, *uploads, kind="image")
    zk.uploads["debian", "nowhere"] = ImageUpload("debian", "0000000001", "nowhere", "0000000001")
    known, unknown = store.items
    unknown.usable = usable
    site.sweep()
    assert store.items == [known, unknown]
    site.sweep()
    stays = usable and not settings
    assert store.items == ([known, unknown] if stays else [known])
    assert store.counted.new() == ({} if stays else {("nowhere", "images"): 1})


@pytest.mark.parametrize(
    ("error", "traceback"),
    [(CloudUnavailableException("503"), False), (LaunchError("409"), False), (ValueError("odd"), True)],
)
def test_failed_deletion(
    make_site: MakeSite,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    traceback: bool,
) -> None:
    """D-5: logged, with a traceback only what is not expected; the sweep goes on, and it is tried again at the next.

    What is not there any more is not counted, what is deleted is counted by its kind.
    """
    site = make_site()
    store = Store(site, monkeypatch, marks(node_id="7"), marks(node_id="8"))
    site.sweep()
    store.error = error
    site.sweep()
    lines = [record for record in caplog.records if "could not be deleted" in record.message]
    assert [record.exc_info is not None for record in lines] == [traceback] * 2
    assert str(error) in caplog.text
    for store.error in (CloudError("no"), NotFound("not there")):
        site.sweep()
    assert store.counted.new() == {}
    store.error = None
    site.sweep()
    assert store.counted.new() == {("nowhere", "ports"): 2}


def test_leak_that_stays_for_a_while(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-5: clouds list what they still delete. It is deleted again, but counted once; two things count as two."""
    site = make_site()
    store = Store(site, monkeypatch, marks(node_id="0000000007"), marks(node_id="0000000007"), kind="volume")
    for number, resource in enumerate(store.items):
        resource.id = f"v{number}"  # type: ignore[attr-defined]
    store.lasts = True
    site.sweep(4)
    assert len(store.deleted) == 6
    assert store.counted.new() == {("nowhere", "volumes"): 2}
    del store.items[0]
    site.sweep()
    assert store.counted.new() == {("nowhere", "volumes"): 2}


# -- second instances of a node


def test_second_instance_that_stays_for_a_while(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-5: counted once, not in each sweep until then; deleted again only when the deletion has ended."""
    site, counted = make_site(), Counted(LEAKED)
    site.serve("small")
    (used,) = site.cloud.instances()
    site.cloud.create(used.name, metadata=used.metadata, resources={})
    removals: list[Done] = []

    def delete(external_id: Any, log: Any) -> Done:
        removals.append(Done())
        return removals[-1]

    monkeypatch.setattr(site.provider, "delete_orphan", delete)
    site.sweep(4)
    assert len(removals) == 1
    removals[0].set()
    site.sweep(4)
    assert len(removals) == 2
    assert counted.new() == {("nowhere", "instances"): 1}


# -- other installations


def test_node_of_the_same_number(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """D-10: of another installation: no second instance of ours, nor what a lost creation of ours made."""
    zk.installation = (OURS,)
    site = make_site()
    (node,) = site.serve("small")
    (listed,) = site.provider.listNodes()
    assert listed.metadata["nodepool_installation_id"] == OURS
    site.cloud.create("theirs", metadata={**listed.metadata, "nodepool_installation_id": OTHER}, resources={"cores": 2})
    site.sweep(3)
    assert len(site.ids()) == 2
    assert site.provider.finder.find(node.key).result(10) == [node.external_id]


# -- kinds of resources


@pytest.mark.parametrize(
    "error", [CloudSetup("it says"), CloudAway("it says"), RuntimeConfigurationException("it says")]
)
def test_trouble_with_one_kind(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    """AW-20: it does not hide the others, and has one line. Without the instances there is no sweep."""

    def fails() -> list[Resource]:
        raise error

    ours = Resource(marks(), "image")
    resources = ResourceKinds("north", [ResourceKind("object", fails), ResourceKind("image", lambda: [ours])])
    with caplog.at_level(logging.WARNING):
        assert list(resources.all()) == list(resources.all()) == [ours]
    assert caplog.messages == ["Provider north: resources of kind object cannot be listed: it says"]
    with pytest.raises(type(error)):
        list(ResourceKinds("north", [ResourceKind("instance", fails, vital=True)]).all())


def test_what_the_configuration_has_no_use_for() -> None:
    """AW-20: it is looked for seldom; when something of ours is there, in each sweep until it is deleted."""
    clock = ManualClock()
    foreign, ours = Resource({}, "image"), Resource({"nodepool_provider_name": "north"}, "image")
    lists: list[list[Resource]] = [[foreign], [ours], [ours], [], []]
    resources = ResourceKinds("north", [ResourceKind("image", lambda: lists.pop(0), idle_seconds=600)], clock)
    for seconds, found, left in (
        (0, [foreign], 4),
        (599, [], 4),
        (1, [ours], 3),
        (0, [ours], 2),
        (0, [], 1),
        (0, [], 1),
    ):
        clock.pass_seconds(seconds)
        assert (list(resources.all()), len(lists)) == (found, left)
