# SPDX-License-Identifier: Apache-2.0
"""Adapters of drivers of today and of 11.0.0: how machines are made, images of labels, transfers of images, checks."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.driver import gateway
from nodepool.driver.framework.cloud_errors import CheckResult
from nodepool.driver.statemachine import Adapter, ListedImage, Resource
from nodepool.driver.statemachine.cloud import create_machine_of, wants_request
from nodepool.driver.statemachine.provider import RunningTransfers, StateMachineProvider

# -- both published signatures of getCreateStateMachine work (reference/driver 14)

SEVEN = ("np1", "label", "image", {"a": "b"}, "request", "az", "log")
FIVE = ("np1", "label", "image", {"a": "b"}, "log")


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (lambda self, hostname, label, image_external_id, metadata, log: FIVE, FIVE),
        (lambda self, hostname, label, image_external_id, metadata, log, extra=None: extra, None),
        (lambda self, hostname, label, image_external_id, metadata, request, az, log: (request, az), ("request", "az")),
        (lambda self, name, label, image, tags, req, zone, logger: (req, zone, logger), ("request", "az", "log")),
        (lambda self, *arguments: arguments, SEVEN),
        (lambda self, hostname, label, metadata, log: (label, metadata, log), ("label", {"a": "b"}, "log")),
    ],
)
def test_arguments(method: Any, expected: Any) -> None:
    """The names decide, wherever the parameters stand; the last one is that of the example of 11.0.0."""
    adapter: Any = type("Theirs", (Adapter,), {"getCreateStateMachine": method})(None)
    make: Any = create_machine_of("cloud", adapter)
    assert make(*SEVEN) == expected
    assert wants_request(lambda hostname, label, image_external_id, metadata, request, log: None)


# -- transfers of images

KEYS = {"nodepool_build_id": "b1", "nodepool_upload_id": "0000000001"}
OURS = {**KEYS, "nodepool_provider_name": "cloud"}


class ReleasedAdapter(Adapter):
    """As drivers written for 11.0.0 have it: images are among the resources."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.error: Exception | None = None
        self.resources: list[Resource] = []

    def uploadImage(self, *arguments: Any, **options: Any) -> str:
        self._note("upload", *arguments, options)
        return "i-1"

    def deleteImage(self, external_id: str) -> None:
        self._note("delete", external_id)

    def listResources(self) -> Iterator[Resource]:
        yield from self.resources

    def deleteResource(self, resource: Resource) -> None:
        self._note("delete resource", resource)

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error


class Transfers(StateMachineProvider):
    def __init__(self, adapter: Adapter) -> None:
        self.name, self.adapter, self.transfers = "cloud", adapter, RunningTransfers()


def test_list() -> None:
    """D-3: of drivers written for 11.0.0 the images are found, and deleted, as the resources that they are."""
    listed = ListedImage("i-1", "fedora-1", OURS)
    listing: Any = type("Listing", (ReleasedAdapter,), {"listImages": lambda self: iter([listed])})()
    assert gateway.list_images(Transfers(listing)) == [listed]
    adapter = ReleasedAdapter()
    image = Resource(OURS, "image")
    image.id = "ami-1"  # type: ignore[attr-defined]
    others = [Resource({"nodepool_provider_name": "other", **KEYS}, "image"), Resource({}, "image")]
    adapter.resources = [*others, image, Resource({"nodepool_provider_name": "cloud", "nodepool_node_id": "1"}, "vm")]
    transfers = Transfers(adapter)
    (found,) = gateway.list_images(transfers)
    assert (found.id, found.shown_id, dict(found.metadata)) == (image, "ami-1", OURS)
    gateway.delete_image(transfers, found.name, found.id)
    assert adapter.calls == [("delete resource", image)]
    with pytest.raises(NotImplementedError):
        gateway.list_images(Transfers(Adapter(cast(Any, None))))


def test_stop_after_transfers() -> None:
    """L-17: a provider that was replaced is stopped once, when its last transfer has ended."""
    stops: list[str] = []
    transfers = RunningTransfers()
    with transfers:
        with transfers:
            transfers.stop_after(lambda: stops.append("stop"))
        assert stops == []
    assert stops == ["stop"]


# -- images of labels, and what ``nodepool check`` says


def label(name: str, diskimage: str | None, cloud_image: str | None = None) -> Any:
    images = [None if image is None else SimpleNamespace(name=image) for image in (diskimage, cloud_image)]
    return SimpleNamespace(name=name, diskimage=images[0], cloud_image=images[1])


class Checked(Adapter):
    """Says ``found`` of itself."""

    def __init__(self, *found: CheckResult) -> None:
        self.found = found

    def preflight(self) -> Iterator[CheckResult]:
        yield from self.found


LOGIN = CheckResult("cloud", True, "login works")
REFUSED = CheckResult("cloud", False, "login refused", "correct the key")


@pytest.mark.parametrize(
    ("adapter", "asked", "subjects"),
    [
        (Checked(LOGIN), True, ["cloud", "diskimage debian", "diskimage fedora", "instances of nodes"]),
        # Of a cloud in trouble the first errors say it all: its instances are not listed.
        (Checked(REFUSED), True, ["cloud", "diskimage debian", "diskimage fedora"]),
        # Without ZooKeeper nothing is known of uploads and nodes.
        (Checked(LOGIN), False, ["cloud"]),
        # An adapter without checks of its own.
        (Checked(), True, ["diskimage debian", "diskimage fedora", "instances of nodes"]),
    ],
)
def test_checks(adapter: Adapter, asked: bool, subjects: list[str]) -> None:
    """reference/commands: what the adapter says, an upload for each image of labels, instances of nodes (D-9)."""
    labels = [label("small", "debian"), label("big", "debian"), label("old", "fedora"), label("other", None, "x")]
    pools = {
        "main": SimpleNamespace(labels={one.name: one for one in labels}),
        "more": SimpleNamespace(labels=["only", "names"]),
    }
    uploads: Any = {"debian": SimpleNamespace(build_id="0000000007")}
    lost: Any = SimpleNamespace(alive=dict, missing=lambda alive, listed: {"0000000001"})
    provider: Any = Transfers(adapter)
    provider.provider, provider.zk = SimpleNamespace(pools=pools), SimpleNamespace() if asked else None
    provider.lost, provider.calls, provider.newest_upload = lost, SimpleNamespace(list_instances=list), uploads.get
    found = gateway.preflight("cloud", provider)
    assert [one.subject for one in found] == subjects
    by_subject = {one.subject: one for one in found}
    if asked:
        assert by_subject["diskimage debian"] == CheckResult("diskimage debian", True, "build 0000000007 is uploaded")
        assert by_subject["diskimage fedora"].status == "failed"
        assert "for the label(s) old" in by_subject["diskimage fedora"].text
    if "instances of nodes" in by_subject:
        assert "0000000001" in by_subject["instances of nodes"].text
