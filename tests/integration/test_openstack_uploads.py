# SPDX-License-Identifier: Apache-2.0
"""Uploads, deletions and lists of images, through openstacksdk's session, in the simulated cloud (rules U and O)."""

from __future__ import annotations

import gc
import hashlib
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.framework.uploads import UploadGivenUp, watched
from nodepool.driver.openstack import OpenStackAdapter
from nodepool.driver.openstack.clouds import Clouds
from nodepool.exceptions import ImageCreateException, QuotaException
from nodepool.plan.retries import Backoff
from simulators.openstack import OpenStackSimulator
from simulators.openstack.client import SimulatorClient
from simulators.openstack.messages import Json
from tests.unit.driver.openstack.support import load, section

KEYS = {"nodepool_provider_name": "cloud-a", "nodepool_build_id": "b1", "nodepool_upload_id": "1"}
DATA = bytes(range(256)) * 20_000


class Uploads:
    """An adapter, its cloud, and a file to upload."""

    def __init__(self, simulator: OpenStackSimulator, folder: Path) -> None:
        self.simulator = simulator
        self.clouds_file = folder / "clouds.yaml"
        self.file = folder / "image.raw"
        self.file.write_bytes(DATA)
        self.seconds = 60
        self.meta: dict[str, Any] = {}
        self._adapter: OpenStackAdapter | None = None

    @property
    def adapter(self) -> OpenStackAdapter:
        if self._adapter is None:
            images: list[dict[str, Any]] = [{"name": "fedora", "meta": self.meta}]
            more: dict[str, Any] = {
                "cloud": "simulator",
                "rate": 0,
                "diskimages": images,
                "image-upload-timeout": self.seconds,
            }
            self._adapter = OpenStackAdapter(load(section(**more), Clouds())[0])
        return self._adapter

    def clouds_yaml(self, **settings: Any) -> None:
        self.simulator.write_clouds_yaml(self.clouds_file, **settings)

    def upload(self, image_format: str | None = "raw", checksums: bool = True) -> str:
        data = self.file.read_bytes()
        sums = {name: hashlib.new(name, data).hexdigest() if checksums else None for name in ("md5", "sha256")}
        provider_image = self.adapter.config.diskimages["fedora"]
        return self.adapter.uploadImage(provider_image, "built-1", str(self.file), image_format, dict(KEYS), **sums)

    def images(self) -> list[Json]:
        """All but the one that is there at the beginning."""
        with self.simulator.cloud() as cloud:
            return [dict(image) for image in cloud.images.images if image["name"] != "cloud-image"]

    def calls(self, operation: str) -> int:
        return int(self.simulator.state()["calls"].get(f"image.{operation}", 0))

    def close(self) -> None:
        if self._adapter is not None:
            self._adapter.stop()
        assert self.simulator.state()["bugs"] == []


@pytest.fixture
def uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Uploads]:
    monkeypatch.setattr("nodepool.driver.openstack.images.AGAIN", Backoff(0.05, 1.0))
    monkeypatch.setattr("nodepool.driver.framework.uploads.LOOK", Backoff(0.05, 0.2))
    monkeypatch.setattr("nodepool.driver.openstack.images.NOTICE_SECONDS", 1.0)
    with OpenStackSimulator() as simulator:
        made = Uploads(simulator, tmp_path)
        made.clouds_yaml()
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(made.clouds_file))
        yield made
        made.close()


def test_upload(uploads: Uploads) -> None:
    """U-4, U-5, D-1: bytes and properties arrive; what says whose it is wins. How far it is is reported.

    reference/configuration 7: image_format of clouds.yaml.
    """
    uploads.clouds_yaml(image_format="raw")
    forged = {"nodepool_build_id": "forged"}
    uploads.meta = {**forged, "hw_disk_bus": "scsi", "min_disk": 3, "tags": ["ci"], "visibility": "shared"}
    seen: list[tuple[int, int]] = []
    with watched(lambda done, total: seen.append((done, total))):
        found = uploads.upload(None)
    (image,) = uploads.images()
    assert (image["id"], image["name"], image["status"], image["size"]) == (found, "built-1", "active", len(DATA))
    assert (image["disk_format"], image["visibility"]) == ("raw", "shared")
    assert image["checksum"] == hashlib.md5(DATA, usedforsecurity=False).hexdigest()
    assert {key: image[key] for key in (*KEYS, *uploads.meta)} == {**uploads.meta, **KEYS}
    assert image["owner_specified.openstack.sha256"] == hashlib.sha256(DATA).hexdigest()
    assert seen[-1] == (len(DATA), len(DATA))
    assert seen == sorted(seen)
    # One call each, whatever the size: that is what ``rate`` counts.
    assert [uploads.calls(name) for name in ("create_image", "upload_image", "get_image")] == [1, 1, 1]


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"kind": "corrupt"}, "the md5 of the file is"),
        ({"kind": "truncate", "after_bytes": 70_000}, f"70000 of {len(DATA)} bytes are in the cloud"),
    ],
)
def test_not_what_was_sent(uploads: Uploads, rule: dict[str, Any], text: str, checksums: bool) -> None:
    """U-9, U-14: a corrupted or truncated image is an error, and is deleted. The size counts without checksums, too."""
    uploads.simulator.change(
        image_uploads=[{**rule, "count": 1}], image_checksums=checksums or rule["kind"] == "corrupt"
    )
    with pytest.raises(ImageCreateException, match=f"image built-1 did not arrive as it was sent: {text}"):
        uploads.upload()
    assert uploads.images() == []
    uploads.upload()


def test_broken_off(uploads: Uploads) -> None:
    """O-15: the same image gets its data again, from the beginning."""
    uploads.simulator.change(image_uploads=[{"kind": "break", "after_bytes": 3_000_000, "count": 2}])
    found = uploads.upload()
    assert [image["id"] for image in uploads.images()] == [found]
    assert uploads.calls("create_image") == 1
    assert uploads.calls("upload_image") == 3


def test_broken_off_and_left_so(uploads: Uploads) -> None:
    """O-15: an image of which nobody in the cloud takes care any more is deleted, and another one is made."""
    # More than fits into the buffers of a connection: else it seems that all has arrived.
    uploads.file.write_bytes(DATA * 5)
    uploads.simulator.change(image_uploads=[{"kind": "break", "after_bytes": 3_000_000, "count": 1, "stays": True}])
    found = uploads.upload()
    assert [image["id"] for image in uploads.images()] == [found]
    assert (uploads.calls("create_image"), uploads.calls("delete_image")) == (2, 1)


def test_always_broken_off(uploads: Uploads) -> None:
    """U-9: an error, and nothing is left; a hundred in a row do not fill the cloud."""
    uploads.simulator.change(image_uploads=[{"kind": "break", "after_bytes": 1000}])
    for _ in range(3):
        with pytest.raises(CloudAway, match="uploading an image failed"):
            uploads.upload()
    assert uploads.images() == []


def test_server_error(uploads: Uploads) -> None:
    """O-15: also an answer in the middle, with which the cloud reads no more."""
    uploads.simulator.change(image_uploads=[{"kind": "fail", "after_bytes": 100_000, "status": 503, "count": 1}])
    seen: list[int] = []
    with watched(lambda done, total: seen.append(done)):
        uploads.upload()
    assert (uploads.calls("upload_image"), uploads.calls("create_image")) == (2, 1)
    # Between the two the driver looked at the image: libraries have not sent the data again by themselves.
    assert uploads.calls("get_image") == 2
    assert seen.count(len(DATA)) <= 2


@pytest.mark.parametrize("operation", ["create_image", "upload_image", "get_image", "delete_image"])
def test_lost_answers(uploads: Uploads, operation: str) -> None:
    """O-15: what a call without an answer did is not done twice."""
    drop = {"operation": f"image.{operation}", "kind": "drop", "after": True, "count": 1}
    uploads.simulator.change(errors=[drop])
    found = uploads.upload()
    assert [image["id"] for image in uploads.images()] == [found]
    assert uploads.calls("upload_image") == 1


@pytest.mark.parametrize("operation", ["get_image", "delete_image"])
def test_away_meanwhile(uploads: Uploads, operation: str) -> None:
    """O-15: so long as the cloud does not say what became of an image, or does not delete it, it is asked again."""
    uploads.file.write_bytes(DATA * 5)
    broken = {"kind": "break", "after_bytes": 3_000_000, "count": 1, "stays": operation == "delete_image"}
    away = {"operation": f"image.{operation}", "kind": "500", "count": 2}
    uploads.simulator.change(image_uploads=[broken], errors=[away])
    found = uploads.upload()
    assert [image["id"] for image in uploads.images()] == [found]
    assert uploads.calls("create_image") == (2 if operation == "delete_image" else 1)


def test_expired_token(uploads: Uploads) -> None:
    """A new one is fetched, and all data are sent with it."""
    uploads.upload()
    with uploads.simulator.cloud():
        uploads.simulator.application.identity.tokens.clear()
    uploads.upload()
    assert [image["size"] for image in uploads.images()] == [len(DATA)] * 2


@pytest.mark.parametrize(
    ("quota", "calls"), [({"images": 1}, 0), ({"image_bytes": 1_000_000}, 1)], ids=["number", "bytes"]
)
def test_quota(uploads: Uploads, quota: dict[str, int], calls: int) -> None:
    """O-17: the reason is told, also when the cloud ends the connection over it; nothing is left or repeated."""
    uploads.simulator.change(quota=quota)
    text = r"image built-1 \(4.9 MiB\) was refused: 413 .*(over a limit|exceeds the quota).*delete images there"
    with pytest.raises(QuotaException, match=text):
        uploads.upload()
    assert (uploads.images(), uploads.calls("upload_image"), uploads.calls("create_image")) == ([], calls, 1)


def test_too_slow(uploads: Uploads) -> None:
    """image-upload-timeout holds for all of it; what was made is deleted."""
    uploads.seconds = 1
    uploads.simulator.change(image_uploads=[{"kind": "slow", "bytes_per_second": 100_000}])
    # More than fits into the buffers of a connection.
    uploads.file.write_bytes(DATA * 5)
    with pytest.raises((ImageCreateException, CloudAway)):
        uploads.upload()
    assert uploads.images() == []


def test_deletion_of_one_in_use(uploads: Uploads) -> None:
    """O-18: it is an error while servers run from it, and works afterwards."""
    found = uploads.upload()
    uploads.simulator.change(image_deletion_needs_no_servers=True)
    with uploads.simulator.cloud() as cloud:
        server = cloud.add_server()
        server.image_id = found
    with pytest.raises(ImageCreateException, match="cannot be deleted while it is in use: 409"):
        uploads.adapter.deleteImage(found)
    with uploads.simulator.cloud() as cloud:
        cloud.compute.remove(server)
    uploads.adapter.deleteImage(found)
    assert uploads.images() == []


def test_deletion_of_a_protected_one(uploads: Uploads) -> None:
    """O-18."""
    uploads.meta = {"protected": True}
    found = uploads.upload()
    assert uploads.images()[0]["protected"] is True
    uploads.simulator.change(errors=[{"operation": "image.update_image", "kind": "403", "count": 1}])
    with pytest.raises(ImageCreateException, match="is protected, and cannot be unprotected"):
        uploads.adapter.deleteImage(found)
    uploads.adapter.deleteImage(found)
    assert uploads.images() == []


def test_list(uploads: Uploads) -> None:
    """D-1, D-3: what a builder that died has left is found by its ids, and can be deleted. Others are not shown."""
    client = SimulatorClient(uploads.simulator.url)
    uploads.simulator.change(image_page_limit=2)
    left = [
        client.add("image", name=f"left-{status}", status=status, metadata={**KEYS, "nodepool_upload_id": status})
        for status in ("queued", "saving", "uploading", "importing", "active")
    ]
    left.append(client.add("image", name="hidden", hidden=True, metadata=KEYS))
    client.add("image", name="somebody's")
    found = list(uploads.adapter.listImages())
    assert {image.id for image in found} == set(left)
    assert {image.name: image.metadata["nodepool_upload_id"] for image in found}["left-saving"] == "saving"
    assert {image.name for image in found if not image.usable} == {"left-queued", "left-saving"}
    for image in found:
        uploads.adapter.deleteImage(image.id)
    assert [image["name"] for image in client.images()] == ["cloud-image", "somebody's"]


def test_list_where_tasks_make_images(uploads: Uploads) -> None:
    """D-1: an image that a task has made, and of which the builder that died has not said whose it is, is listed."""
    uploads.clouds_yaml(image_api_use_tasks=True)
    client = SimulatorClient(uploads.simulator.url)
    client.add("image", name="built-1")
    assert [(image.name, "nodepool_build_id" in image.metadata) for image in uploads.adapter.listImages()] == [
        ("built-1", False)
    ]


# -- clouds that import images by tasks (clouds.yaml: image_api_use_tasks)


@pytest.fixture
def by_tasks(uploads: Uploads) -> Iterator[Uploads]:
    uploads.simulator.change(image_tasks=True)
    uploads.clouds_yaml(image_api_use_tasks=True)
    with warnings.catch_warnings():
        # openstacksdk leaves the file of a segment open until the garbage collection: that must not be in another test.
        warnings.filterwarnings("ignore", "unclosed file .*image.raw", ResourceWarning)
        yield uploads
        gc.collect()


def objects(uploads: Uploads) -> int:
    with uploads.simulator.cloud() as cloud:
        return sum(len(container) for container in cloud.objects.values())


@pytest.mark.parametrize(("largest", "sent"), [(5 * 2**30, 1), (2_000_000, 4)], ids=["whole", "in segments"])
def test_task(by_tasks: Uploads, largest: int, sent: int) -> None:
    """D-1, U-4: data, and properties by which it is found, also in segments."""
    by_tasks.simulator.change(object_bytes=largest)
    by_tasks.meta = {"team": "ci"}
    found = by_tasks.upload("vhd")
    (image,) = by_tasks.images()
    assert (image["id"], image["name"], image["status"], image["size"]) == (found, "built-1", "active", len(DATA))
    assert {key: image[key] for key in ("team", *KEYS)} == {"team": "ci", **KEYS}
    assert (by_tasks.calls("create_task"), by_tasks.calls("upload_image")) == (1, 0)
    # Segments are deleted by the cloud, a day later.
    assert objects(by_tasks) == 0 or sent > 1
    assert by_tasks.simulator.state()["calls"]["object.create_object"] == sent


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"image_task_failure": "Image is not a VHD"}, "VHD"),
        ({"image_tasks": False}, "object-store"),
        ({"errors": [{"operation": "image.create_task", "kind": "403", "message": "not for you"}]}, "not for you"),
    ],
)
def test_task_fails(by_tasks: Uploads, change: dict[str, Any], text: str) -> None:
    """The error has the cause and the remedy; nothing is left."""
    by_tasks.simulator.change(**change)
    with pytest.raises(ImageCreateException, match="image built-1 was not imported by a task: ") as caught:
        by_tasks.upload("vhd")
    assert "image_api_use_tasks to false in clouds.yaml" in str(caught.value)
    assert text in str(caught.value)
    assert (objects(by_tasks), by_tasks.images()) == (0, [])


@pytest.mark.parametrize(("rule", "text"), [("corrupt", "the md5 of the file is"), ("truncate", "0 of 5120000 bytes")])
def test_task_makes_something_else(by_tasks: Uploads, rule: str, text: str) -> None:
    """U-14: an image that a task makes is checked, too; nothing is left of one that is not what was sent."""
    by_tasks.simulator.change(image_uploads=[{"kind": rule, "count": 1}])
    with pytest.raises(ImageCreateException, match=f"image built-1 did not arrive as it was sent: {text}"):
        by_tasks.upload()
    assert by_tasks.images() == []
    found = by_tasks.upload()
    assert [image["id"] for image in by_tasks.images()] == [found]


def stop(done: int, total: int) -> None:
    if done > 3_000_000:
        raise UploadGivenUp("enough")


def test_given_up(uploads: Uploads) -> None:
    """U-9, U-12: it ends on its way; nothing is left, and it is not sent again."""
    with watched(stop), pytest.raises(UploadGivenUp, match="enough"):
        uploads.upload()
    assert (uploads.images(), uploads.calls("upload_image") <= 1) == ([], True)


def test_memory(uploads: Uploads) -> None:
    """O-15: however large the file is, a few pieces of it are in memory."""
    uploads.simulator.change(image_checksums=False)
    size = 100 * 2**20
    with uploads.file.open("wb") as file:
        file.truncate(size)
    provider_image = uploads.adapter.config.diskimages["fedora"]
    tracemalloc.start()
    try:
        uploads.adapter.uploadImage(provider_image, "built-1", str(uploads.file), "raw", dict(KEYS), "0" * 32, None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert uploads.images()[0]["size"] == size
    assert peak < size / 4
