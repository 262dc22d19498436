# SPDX-License-Identifier: Apache-2.0
"""Leaked resources (rules D, AW-20)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.fake.cloud import CloudError
from nodepool.driver.statemachine import Resource
from nodepool.driver.statemachine.scheduler import Done
from nodepool.exceptions import CloudUnavailableException, LaunchError, NotFound
from nodepool.metrics.catalog import LEAKED
from nodepool.model.image import ImageUpload
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.counted import Counted
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


# -- kinds of resources
