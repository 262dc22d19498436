# SPDX-License-Identifier: Apache-2.0
"""Leaked resources (rules D, AW-20)."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from typing import Any

import pytest

from nodepool.clock import monotonic
from nodepool.driver.framework.rate import ThreadShare
from nodepool.driver.statemachine import Resource
from nodepool.driver.statemachine.leaks import LeakSweep
from nodepool.guard import settle
from nodepool.metrics.catalog import LEAKED
from nodepool.model.image import ImageUpload
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.counted import Counted
from tests.support.wait import wait_for
from tests.unit.driver.statemachine.conftest import MakeSite, Site, home

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


def test_pause_between_looks(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-2: what two looks show is in two lists, also if a look ends before anybody waits for it."""
    monkeypatch.setattr(home(LeakSweep), "LOOK_AGAIN_SECONDS", 0.3)
    submit = ThreadShare.submit

    def at_once(share: ThreadShare, call: Any, *arguments: Any, **named: Any) -> Future[Any]:
        if share.kind != "ask":
            return submit(share, call, *arguments, **named)
        future: Future[Any] = Future()
        settle((future,), lambda: call(*arguments, **named))
        return future

    monkeypatch.setattr(ThreadShare, "submit", at_once)
    provider = make_site().provider
    looks = [monotonic()]

    def look() -> bool:
        looks.append(monotonic())
        return len(looks) < 4

    monkeypatch.setattr(provider, "sweep_leaks", look)
    provider.look_for_leaks_soon()
    wait_for("three looks", lambda: len(looks) == 4)
    assert all(later - before >= 0.3 for before, later in itertools.pairwise(looks))
