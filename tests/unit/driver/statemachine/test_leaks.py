# SPDX-License-Identifier: Apache-2.0
"""Leaked resources (rules D)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.fake.cloud import CloudError
from nodepool.driver.statemachine import Resource
from nodepool.driver.statemachine.launch import Done
from nodepool.exceptions import CloudUnavailableException, LaunchError, NotFound
from nodepool.metrics import reports
from nodepool.model.image import ImageUpload
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.wait import wait_for
from tests.unit.driver.statemachine.conftest import MakeSite, Site


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Leaks as they are counted."""
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(reports, "report", lambda provider, resource, count=1: found.append((provider, resource)))
    return found


class Store:
    """Resources other than instances."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.items: list[Resource] = []
        self.error: Exception | None = None
        monkeypatch.setattr(site.adapter, "listResources", lambda: iter(self.items))
        monkeypatch.setattr(site.adapter, "deleteResource", self.delete)

    def delete(self, resource: Resource) -> None:
        if self.error is not None:
            raise self.error
        self.items.remove(resource)


def test_two_sweeps(make_site: MakeSite, zk: MemoryZooKeeper, counted: list[tuple[str, str]]) -> None:
    """D-2, D-5, D-8: an instance without a node goes at the second sweep in a row that finds it so."""
    site = make_site()
    (node,) = site.serve("small")
    (kept,) = site.serve("small")
    zk.deleteRawNode(node.key)
    site.provider.cleanupLeakedResources()
    assert len(site.cloud.instances()) == 2
    site.provider.cleanupLeakedResources()
    assert [instance.id for instance in site.cloud.instances()] == [kept.external_id]
    assert counted == [("nowhere", "instances")]


def test_unreadable_nodes_are_known(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-2: a node whose data nobody can read is still a node."""
    site = make_site()
    site.serve("small")
    monkeypatch.setattr(zk, "nodeIterator", lambda cached=True: iter(()))
    for _ in range(3):
        site.provider.cleanupLeakedResources()
    assert len(site.cloud.instances()) == 1


def test_interrupted_series(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-2: the sweeps must be consecutive."""
    site = make_site()
    store = Store(site, monkeypatch)
    resource = Resource({"nodepool_provider_name": "nowhere", "nodepool_node_id": "77"}, "port")
    for items in ([resource], [], [resource]):
        store.items = list(items)
        site.provider.cleanupLeakedResources()
        assert store.items == items
    site.provider.cleanupLeakedResources()
    assert store.items == []


def test_others(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-4: resources without our keys, or of another provider, are not ours."""
    site = make_site()
    store = Store(site, monkeypatch)
    metadata: list[Any] = [
        {},
        None,
        {"nodepool_provider_name": "nowhere"},
        {"nodepool_node_id": "1"},
        {"nodepool_provider_name": "elsewhere", "nodepool_node_id": "1"},
        {"nodepool_provider_name": "nowhere", "nodepool_build_id": "1"},
    ]
    store.items = [Resource(one, "port") for one in metadata]
    for _ in range(3):
        site.provider.cleanupLeakedResources()
    assert len(store.items) == len(metadata)


@pytest.mark.parametrize(("settings", "usable"), [({"clean-leaked-images": True}, True), ({}, False), ({}, True)])
def test_uploads(
    make_site: MakeSite,
    zk: MemoryZooKeeper,
    monkeypatch: pytest.MonkeyPatch,
    counted: list[tuple[str, str]],
    settings: dict[str, Any],
    usable: bool,
) -> None:
    """D-3: by build id and upload id; only if the provider says so, or the upload never ended."""
    site = make_site(settings)
    store = Store(site, monkeypatch)
    zk.uploads["debian", "nowhere"] = ImageUpload("debian", "0000000001", "nowhere", "0000000001")
    both = [("0000000001", "0000000001"), ("0000000001", "0000000002")]
    store.items = [
        Resource(
            {"nodepool_provider_name": "nowhere", "nodepool_build_id": build, "nodepool_upload_id": upload}, "image"
        )
        for build, upload in both
    ]
    known, unknown = store.items
    unknown.usable = usable
    for _ in range(2):
        site.provider.cleanupLeakedResources()
    stays = usable and not settings
    assert store.items == ([known, unknown] if stays else [known])
    assert counted == ([] if stays else [("nowhere", "images")])


def test_failure_is_repeated(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, counted: list[tuple[str, str]]
) -> None:
    """D-5: logged, and tried again at the next sweep; something that went by itself is not counted."""
    site = make_site()
    store = Store(site, monkeypatch)
    store.items = [Resource({"nodepool_provider_name": "nowhere", "nodepool_node_id": "77"}, "port", "ports_down")]
    for error in (CloudError("no"), CloudError("no"), NotFound("gone")):
        store.error = error
        site.provider.cleanupLeakedResources()
    assert counted == []
    store.error = None
    site.provider.cleanupLeakedResources()
    assert counted == [("nowhere", "ports_down")]


@pytest.mark.parametrize(
    ("error", "traceback"),
    [(CloudUnavailableException("503"), False), (LaunchError("409"), False), (ValueError("odd"), True)],
)
def test_failure_is_told(
    make_site: MakeSite,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    traceback: bool,
) -> None:
    """D-5: in a line what the cloud said, with a traceback what nobody expected; the sweep goes on either way."""
    site = make_site()
    store = Store(site, monkeypatch)
    store.items = [Resource({"nodepool_provider_name": "nowhere", "nodepool_node_id": str(n)}, "port") for n in (7, 8)]
    store.error = error
    for _ in range(2):
        site.provider.cleanupLeakedResources()
    told = [record for record in caplog.records if "could not be deleted" in record.message]
    assert [record.exc_info is not None for record in told] == [traceback] * 2
    assert str(error) in caplog.text


def test_cloud_is_down(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """D-5: a cloud that does not answer costs a sweep, not the leak's record."""
    site = make_site()
    (node,) = site.serve("small")
    zk.deleteRawNode(node.key)
    site.provider.cleanupLeakedResources()
    site.cloud.set(down=True)
    with pytest.raises(CloudUnavailableException):
        site.provider.cleanupLeakedResources()
    site.cloud.set(down=False)
    site.provider.cleanupLeakedResources()
    assert site.cloud.instances() == []


def test_second_instance_of_a_node(make_site: MakeSite) -> None:
    """Two creations worked and one answer was lost for good: the instance that the node does not name goes."""
    site = make_site()
    (node,) = site.serve("small")
    (used,) = site.cloud.instances()
    site.cloud.create(used.name, metadata=used.metadata, resources={})
    site.provider.cleanupLeakedResources()
    assert len(site.cloud.instances()) == 2
    site.provider.cleanupLeakedResources()
    wait_for("it is gone", lambda: [instance.id for instance in site.cloud.instances()] == [node.external_id])


def test_second_instance_that_stays_for_a_while(
    make_site: MakeSite, counted: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-5: counted once, not in each sweep until it is gone; deleted again only when the deletion has ended."""
    site = make_site()
    site.serve("small")
    (used,) = site.cloud.instances()
    site.cloud.create(used.name, metadata=used.metadata, resources={})
    removals: list[Done] = []

    def delete(external_id: Any, log: Any) -> Done:
        removals.append(Done())
        return removals[-1]

    monkeypatch.setattr(site.provider, "delete_orphan", delete)
    for _ in range(4):
        site.provider.cleanupLeakedResources()
    assert len(removals) == 1
    removals[0].set()
    for _ in range(4):
        site.provider.cleanupLeakedResources()
    assert len(removals) == 2
    assert counted == [("nowhere", "instances")]


def test_leak_that_stays_for_a_while(
    make_site: MakeSite, counted: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-5: clouds list what they still delete. It is deleted again, but counted once; two things count as two."""
    site = make_site()
    resources = [
        Resource({"nodepool_provider_name": "nowhere", "nodepool_node_id": "0000000007"}, "volume") for _ in range(2)
    ]
    for number, resource in enumerate(resources):
        resource.id = f"v{number}"  # type: ignore[attr-defined]
    deleted: list[Any] = []
    monkeypatch.setattr(site.adapter, "listResources", lambda: list(resources))
    monkeypatch.setattr(site.adapter, "deleteResource", lambda resource: deleted.append(resource))
    for _ in range(4):
        site.provider.cleanupLeakedResources()
    assert len(deleted) == 6
    assert counted == [("nowhere", "volumes")] * 2
    del resources[0]
    site.provider.cleanupLeakedResources()
    assert len(counted) == 2


def test_replaced_provider_leaves_leaks_alone(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """G-5: after idle() the successor does it."""
    site = make_site()
    (node,) = site.serve("small")
    zk.deleteRawNode(node.key)
    site.provider.cleanupLeakedResources()
    site.provider.idle()
    site.provider.cleanupLeakedResources()
    assert len(site.cloud.instances()) == 1


def test_unmanaged_use(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """Q-4: instances of others, and ours without a node."""
    site = make_site()
    site.cloud.create("stranger", metadata={}, resources={"cores": 16})
    (node,) = site.serve("small")
    assert site.provider.unmanagedQuotaUsed().get_resources() == {"cores": 16, "instances": 1, "ram": 0}
    zk.deleteRawNode(node.key)
    assert site.provider.unmanagedQuotaUsed().get_resources() == {"cores": 18, "instances": 2, "ram": 2048}


def test_instances_are_listed_once_a_sweep(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right before the resources: a driver takes them from the same list."""
    site = make_site()
    calls: list[str] = []

    def note(name: str) -> list[Any]:
        calls.append(name)
        return []

    monkeypatch.setattr(site.adapter, "listInstances", lambda: note("instances"))
    monkeypatch.setattr(site.adapter, "listResources", lambda: note("resources"))
    site.provider.sweep_leaks()
    assert calls == ["instances", "resources"]


class TestOtherInstallation:
    """D-10"""

    OURS, OTHER = "0123456789abcdef", "fedcba9876543210"

    @pytest.fixture
    def site(self, make_site: MakeSite, zk: MemoryZooKeeper) -> Site:
        zk.installation = (self.OURS,)
        return make_site()

    def test_left_and_told_once(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = Store(site, monkeypatch)
        given = {"nodepool_provider_name": "nowhere", "nodepool_node_id": "77"}
        others = Resource({**given, "nodepool_installation_id": self.OTHER}, "port")
        ours = Resource({**given, "nodepool_installation_id": self.OURS}, "port")
        before = Resource(given, "disk")
        store.items = [others, ours, before]
        for _ in range(3):
            site.provider.cleanupLeakedResources()
        assert store.items == [others]
        (told,) = [text for text in caplog.messages if self.OTHER in text and "belong to installation" in text]
        assert self.OURS in told
        assert site.provider.otherInstallations() == {self.OTHER: 1}
        store.items = []
        site.provider.cleanupLeakedResources()
        assert site.provider.otherInstallations() == {}

    def test_node_of_the_same_number(self, site: Site, zk: MemoryZooKeeper) -> None:
        """It is no second instance of ours, nor what a lost creation of ours made; and it counts as used by others."""
        (node,) = site.serve("small")
        listed = [found for found in site.provider.listNodes() if found.metadata["nodepool_node_id"] == node.id]
        assert [found.metadata["nodepool_installation_id"] for found in listed] == [self.OURS]
        metadata = {**listed[0].metadata, "nodepool_installation_id": self.OTHER}
        site.cloud.create("theirs", metadata=metadata, resources={"cores": 2, "ram": 2048})
        for _ in range(3):
            site.provider.cleanupLeakedResources()
        assert len(site.cloud.instances()) == 2
        assert site.provider.finder.find(node.key).result(10) == [node.external_id]

    def test_earlier_release(self, site: Site, zk: MemoryZooKeeper) -> None:
        """What has no id is cleaned as before."""
        site.cloud.create(
            "old", metadata={"nodepool_provider_name": "nowhere", "nodepool_node_id": "77"}, resources={"cores": 1}
        )
        for _ in range(2):
            site.provider.cleanupLeakedResources()
        assert site.cloud.instances() == []
