# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.images: all images at once, and what builders tell."""

from __future__ import annotations

import pytest

from nodepool.model.image import NO_IMAGES
from nodepool.model.status import BuildStatus
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.images import builder_status, read_images
from tests.support.image_znodes import IMAGES, ImageZnodes
from tests.support.pool_znodes import PoolZnodes


@pytest.fixture
def images(znodes: PoolZnodes) -> ImageZnodes:
    return ImageZnodes(znodes)


def test_nothing(client: ZooKeeperClient) -> None:
    assert read_images(client) == NO_IMAGES
    assert builder_status(client).builds == {}


def test_order(client: ZooKeeperClient, images: ImageZnodes) -> None:
    """reference/commands 2: images and providers by name, builds and uploads as ZooKeeper lists them."""
    for image in ("gentoo", "debian"):
        for build in ("zz", "b", "a" * 32, "0000000001"):
            images.add_build(image, build)
            for provider in ("other", "lab"):
                for number in (3, 1, 7, 2):
                    images.add_upload(image, build, provider, number)
    view = read_images(client)
    assert list(view.images) == ["debian", "gentoo"]
    for found in view.images.values():
        assert list(found.builds) == images.kazoo.get_children(f"{IMAGES}/{found.name}/builds")
        for known in found.builds.values():
            assert list(known.uploads) == ["lab", "other"]
            for provider, uploads in known.uploads.items():
                path = f"{IMAGES}/{found.name}/builds/{known.id}/providers/{provider}/images"
                assert [upload.id for upload in uploads] == images.kazoo.get_children(path)


def test_what_is_known_of_an_image(
    client: ZooKeeperClient, images: ImageZnodes, caplog: pytest.LogCaptureFixture
) -> None:
    """Pauses, requests, locks, and records with their version; bad ones are logged."""
    images.add_build("debian", "a", state="building")
    images.add_build("debian", "a", state="building")
    images.put("debian/builds/bad", b"\xff")
    images.put("debian/pause")
    images.put("debian/request-build")
    with images.locked("debian/builds"):
        image = read_images(client).images["debian"]
    assert (image.paused, image.build_locked) == (True, True)
    requested = images.kazoo.get(f"{IMAGES}/debian/request-build")[1].ctime / 1000
    assert image.build_requested == requested
    record = image.builds["a"].record
    assert record is not None
    assert (record.state, record.version) == ("building", 1)
    assert image.builds["bad"].record is None
    assert "builds/bad" in caplog.text
    assert not read_images(client).images["debian"].build_locked


def test_status_of_builders(client: ZooKeeperClient, images: ImageZnodes) -> None:
    images.tell(builds={"debian/a": {"step": "install"}})
    assert builder_status(client).build("debian", "a") == BuildStatus("install")
