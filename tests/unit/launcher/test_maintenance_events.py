# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nodepool.launcher.events import EventRing
from nodepool.launcher.maintenance import ImageEvents, MaintenanceEvents
from nodepool.model.image import BuildView, ImageBuild, ImagesView, ImageUpload, ImageView, UploadView
from nodepool.model.maintenance import Maintenance, MaintenanceRecords, Mode

PAUSE = Maintenance("provider", "cloud", Mode.PAUSE, "new switch", "alice", 5.0)


class Records:
    """A cache that the test fills."""

    def __init__(self) -> None:
        self.records: MaintenanceRecords = {}

    def add_listener(self, listener: Callable[[], None]) -> None:
        self.tell = listener

    def snapshot(self) -> MaintenanceRecords:
        return self.records

    def put(self, *records: Maintenance) -> None:
        self.records = {(record.kind, record.name): record for record in records}
        self.tell()


def test_begin_and_end() -> None:
    """OV-4"""
    records: Any = Records()
    ring = EventRing()
    MaintenanceEvents(records, ring, "l1")
    for _ in range(2):
        records.put(PAUSE)
    (event,) = ring.last(10)
    assert (event.at, event.subject, event.what) == (5.0, "provider cloud", "maintenance began")
    assert event.text == "provider cloud is paused by alice: new switch"
    records.put(replace(PAUSE, until=500.0))
    assert len(ring.last(10)) == 1
    records.put(replace(PAUSE, mode=Mode.DRAIN))
    assert ring.last(1)[0].text == "provider cloud is drained by alice: new switch"
    records.put()
    assert [event.what for event in ring.last(10)] == ["maintenance began", "maintenance began", "maintenance ended"]


class Images:
    """A cache of images that the test fills."""

    def __init__(self) -> None:
        self.view = ImagesView()
        self.complete = False

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.tell = listener

    def snapshot(self) -> ImagesView:
        return self.view

    def put(self, changed: str, **fields: Any) -> None:
        self.view = ImagesView({"debian": ImageView("debian", **fields)})
        self.tell(changed)


def build(state: str, *uploads: str) -> dict[str, BuildView]:
    record = ImageBuild("debian", "b1")
    record.state, record.state_time, record.builder = state, 5.0, "nb1"
    views = []
    for number, upload_state in enumerate(uploads, 1):
        upload = ImageUpload("debian", "b1", "cloud", str(number))
        upload.state, upload.state_time = upload_state, 7.0
        views.append(UploadView(str(number), upload))
    return {"b1": BuildView("b1", record, uploads={"cloud": tuple(views)})}


def test_images() -> None:
    """OV-4: a pause and its end, a build that is asked for, and ends of builds and uploads, and what operators
    delete; the start brings none."""
    images: Any = Images()
    ring = EventRing()
    ImageEvents(images, ring, "l1")
    images.complete = True
    images.put("", paused=True, builds=build("ready", "failed"))
    assert ring.last(10) == []
    images.put("debian", builds=build("ready", "failed"))
    images.put("debian", builds=build("ready", "failed", "uploading"))
    for _ in range(2):
        images.put("debian", paused=True, builds=build("ready", "failed", "ready"))
    for asked in (3.0, 3.0, None):
        images.put("debian", paused=True, build_requested=asked, builds=build("ready", "failed", "ready"))
    images.put("debian", paused=True, builds=build("failed"))
    for _ in range(2):
        deleted = build("deleting", "deleting", "deleting")
        record, upload = deleted["b1"].record, deleted["b1"].uploads["cloud"][0].record
        assert record is not None
        assert upload is not None
        record.delete("alice@l1")
        upload.delete("bob@l1")
        images.put("debian", paused=True, builds=deleted)
    assert [event.actor for event in ring.last(10)][-2:] == ["alice@l1", "bob@l1"]
    assert [(event.subject, event.what, event.text) for event in ring.last(10)] == [
        ("image debian", "maintenance ended", "it is built again"),
        ("image debian", "maintenance began", "it is not built"),
        ("image debian", "available", "upload 2 of build b1 to cloud is ready"),
        ("image debian", "changed", "a build is asked for"),
        ("image debian", "failed", "build b1 of nb1 is failed"),
        ("image debian", "changed", "build b1 of nb1: delete by alice@l1"),
        ("image debian", "changed", "upload 1 of build b1 to cloud: delete by bob@l1"),
    ]
