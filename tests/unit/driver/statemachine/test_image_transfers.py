# SPDX-License-Identifier: Apache-2.0
"""Images of a provider on the framework, with adapters as drivers of today and of 11.0.0 have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver import gateway
from nodepool.driver.statemachine import Adapter, ListedImage, Resource
from nodepool.driver.statemachine.provider import ImageTransfers, RunningTransfers
from nodepool.exceptions import ImageCreateException, NotFound

KEYS = {"nodepool_build_id": "b1", "nodepool_upload_id": "0000000001"}
OURS = {**KEYS, "nodepool_provider_name": "cloud"}


class ReleasedAdapter(Adapter):
    """As drivers written for 11.0.0 have it: images are among the resources."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.error: Exception | None = None
        self.resources: list[Resource] = []

    def uploadImage(self, provider_image: Any, image_name: str, filename: str, **options: Any) -> str:  # type: ignore[override]
        self._note("upload", provider_image, image_name, filename, options)
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


class ListingAdapter(ReleasedAdapter):
    def listImages(self) -> Iterator[ListedImage]:
        yield ListedImage("i-1", "fedora-1", OURS)


class Transfers(ImageTransfers):
    def __init__(self, adapter: Adapter) -> None:
        self.name = "cloud"
        self.adapter = adapter
        self.transfers = RunningTransfers()


def test_upload() -> None:
    """D-1, U-5: the adapter gets what an adapter of 11.0.0 expects, with the name of the provider."""
    adapter = ReleasedAdapter()
    transfers = Transfers(adapter)
    assert (
        gateway.upload_image(transfers, "image", "n", "/f", image_type="raw", meta=KEYS, md5="m", sha256="s") == "i-1"
    )
    expected = {"image_format": "raw", "metadata": OURS, "md5": "m", "sha256": "s"}
    assert adapter.calls == [("upload", "image", "n", "/f", expected)]


def test_failed_upload() -> None:
    """U-9: the error reaches who called."""
    adapter = ReleasedAdapter()
    adapter.error = ImageCreateException("too slow")
    with pytest.raises(ImageCreateException, match="too slow"):
        gateway.upload_image(Transfers(adapter), "image", "n", "/f")


def test_delete() -> None:
    """Also one that is gone."""
    adapter = ReleasedAdapter()
    for error in (None, NotFound("i-1")):
        adapter.error = error
        gateway.delete_image(Transfers(adapter), "n", "i-1")
    assert adapter.calls == [("delete", "i-1")] * 2
    adapter.error = RuntimeError("in use")
    with pytest.raises(RuntimeError, match="in use"):
        gateway.delete_image(Transfers(adapter), "n", "i-1")


def test_list() -> None:
    assert gateway.list_images(Transfers(ListingAdapter())) == [ListedImage("i-1", "fedora-1", OURS)]


def test_images_among_resources() -> None:
    """D-3: of drivers written for 11.0.0 the images are found, and deleted, as the resources that they are."""
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


def test_neither_is_listed() -> None:
    with pytest.raises(NotImplementedError):
        gateway.list_images(Transfers(Adapter(None)))  # type: ignore[arg-type]


def test_stop_after_transfers() -> None:
    """L-17: an upload of a provider that was replaced is finished first; the adapter is stopped once."""
    stops: list[str] = []
    transfers = RunningTransfers()
    with transfers:
        with transfers:
            transfers.stop_after(lambda: stops.append("stop"))
        assert stops == []
    assert stops == ["stop"]
    with transfers:
        transfers.stop_now()
    assert stops == ["stop"]


def test_stop_now() -> None:
    """A daemon that ends does not wait for uploads."""
    stops: list[str] = []
    transfers = RunningTransfers()
    with transfers:
        transfers.stop_after(lambda: stops.append("stop"))
        transfers.stop_now()
        assert stops == ["stop"]
    transfers.stop_after(lambda: stops.append("again"))
    assert stops == ["stop", "again"]


def test_failed_transfer_is_over() -> None:
    adapter = ReleasedAdapter()
    adapter.error = ImageCreateException("no room")
    transfers = Transfers(adapter)
    with pytest.raises(ImageCreateException):
        gateway.upload_image(transfers, "image", "n", "/f")
    stops: list[str] = []
    transfers.transfers.stop_after(lambda: stops.append("stop"))
    assert stops == ["stop"]
