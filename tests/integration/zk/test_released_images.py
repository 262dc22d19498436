# SPDX-License-Identifier: Apache-2.0
"""The images of the facade for extra drivers, as 11.0.0 has them."""

from __future__ import annotations

import json
import threading

import pytest

from nodepool.compat.released_zookeeper import KnownImage, ReleasedZooKeeper, facade_for_extra_driver
from nodepool.exceptions import ZKException, ZKLockException
from nodepool.model.image import ImageBuild, ImageUpload
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import PoolZnodes
from tests.support.released_facade import released_facade
from tests.support.wait import wait_for


@pytest.fixture
def zk(client: ZooKeeperClient) -> ReleasedZooKeeper:
    return released_facade(client)


def test_builds_and_uploads(zk: ReleasedZooKeeper) -> None:
    """Written as 11.0.0 does (reference/zookeeper 6)."""
    build = ImageBuild("debian")
    build.state, build.formats = "ready", ["raw"]
    build_id = zk.storeBuild("debian", build)
    assert (zk.getImageNames(), zk.getBuildIds("debian")) == (["debian"], [build_id])
    found = zk.getBuild("debian", build_id)
    assert found is not None
    assert found.formats == ["raw"]
    assert [one.id for one in zk.getBuilds("debian", ["ready"])] == [build_id]
    assert zk.getBuilds("debian", ["failed"]) == []
    assert [one.id for one in zk.getMostRecentBuilds(1, "debian", "ready")] == [build_id]

    upload = ImageUpload("debian", build_id, "cloud")
    upload.state = "uploading"
    number = zk.storeImageUpload("debian", build_id, "cloud", upload)
    assert len(number) == 10
    upload.state, upload.external_id = "ready", "image-1"
    assert zk.storeImageUpload("debian", build_id, "cloud", upload, number) == number
    stored = zk.getImageUpload("debian", build_id, "cloud", number)
    assert stored is not None
    assert (stored.state, stored.external_id) == ("ready", "image-1")
    assert zk.getBuildProviders("debian", build_id) == ["cloud"]
    assert zk.getImageUploadNumbers("debian", build_id, "cloud") == [number]
    assert [one.id for one in zk.getUploads("debian", build_id, "cloud", ["ready"])] == [number]
    assert [one.id for one in zk.getMostRecentBuildImageUploads(2, "debian", build_id, "cloud")] == [number]
    for state, wanted in (("ready", number), ("failed", None)):
        newest = zk.getMostRecentImageUpload("debian", "cloud", state)
        assert (newest and newest.id) == wanted
    assert [one.id for one in zk.getProviderUploads("cloud")["debian"][build_id]] == [number]
    assert zk.getProviderBuilds("cloud") == {"debian": [build_id]}
    assert not zk.deleteBuild("debian", build_id), "it has an upload"
    zk.deleteUpload("debian", build_id, "cloud", number)
    zk.deleteUpload("debian", build_id, "cloud", number)
    zk.removeProviderBuilds("cloud", {"debian": [build_id]})
    assert zk.getBuildProviders("debian", build_id) == []
    assert zk.deleteBuild("debian", build_id)
    assert zk.getBuild("debian", build_id) is None
    with pytest.raises(ZKException, match="is gone"):
        zk.storeImageUpload("debian", build_id, "cloud", upload)


def test_cached_images(zk: ReleasedZooKeeper, client: ZooKeeperClient) -> None:
    """From the cache, or read without one; what they return is the caller's own."""
    plain = ZooKeeper(client, enable_cache=False)  # type: ignore[call-arg]
    assert isinstance(plain, ReleasedZooKeeper)
    build = ImageBuild("debian")
    build.state = "ready"
    build_id = zk.storeBuild("debian", build)
    upload = ImageUpload("debian", build_id, "cloud")
    upload.state = "ready"
    told = threading.Event()
    assert zk.cache is not None
    zk.cache.images.add_listener(lambda _: told.set() if zk.getCachedImageUploads() else None)
    number = zk.storeImageUpload("debian", build_id, "cloud", upload)
    assert told.wait(20)
    for facade in (zk, plain):
        assert [(one.image_name, one.paused) for one in facade.getCachedImages()] == [("debian", False)]
        assert [one.id for one in facade.getCachedBuilds()] == [build_id]
        (found,) = facade.getCachedImageUploads()
        newest = facade.getMostRecentImageUpload("debian", "cloud", cached=True)
        assert newest is not None
        assert found.id == newest.id == number
        found.state = newest.state = "failed"
        assert [one.state for one in facade.getCachedImageUploads()] == ["ready"]


def test_requests_for_builds_and_pauses(zk: ReleasedZooKeeper) -> None:
    assert not zk.hasBuildRequest("debian")
    assert zk.getBuildRequest("debian") is None
    zk.submitBuildRequest("debian")
    assert zk.hasBuildRequest("debian")
    request = zk.getBuildRequest("debian")
    assert request is not None
    assert (request.image_name, request.pending) == ("debian", True)
    build = ImageBuild("debian")
    zk.storeBuild("debian", build)
    with zk.imageBuildLock("debian"):
        served = zk.getBuildRequest("debian")
        assert served is not None
        assert not served.pending, "somebody builds"
    zk.removeBuildRequest("debian")
    zk.removeBuildRequest("debian")
    assert not zk.hasBuildRequest("debian")
    zk.setImagePaused("debian", True)
    assert zk.getImagePaused("debian")
    zk.setImagePaused("debian", False)
    assert not zk.getImagePaused("debian")


def test_locks_of_images(zk: ReleasedZooKeeper, other: ZooKeeperClient) -> None:
    """Each holds others off."""
    others = facade_for_extra_driver(ZooKeeper(other, None))
    assert isinstance(others, ReleasedZooKeeper)
    build_id = zk.storeBuild("debian", ImageBuild("debian"))
    upload = ImageUpload("debian", build_id, "cloud")
    zk.storeImageUpload("debian", build_id, "cloud", upload)
    for name, arguments in (
        ("imageBuildLock", ("debian",)),
        ("imageBuildIdLock", ("debian", build_id)),
        ("imageUploadLock", ("debian", build_id, "cloud")),
        ("imageUploadNumberLock", (upload,)),
    ):
        with (
            getattr(zk, name)(*arguments),
            pytest.raises(ZKLockException),
            getattr(others, name)(*arguments, blocking=False),
        ):
            pass
        with getattr(others, name)(*arguments, blocking=False):
            pass


def test_backup_of_images(zk: ReleasedZooKeeper, znodes: PoolZnodes) -> None:
    """reference/zookeeper 6.4: all comes back, and later uploads get other numbers."""
    for number in range(3):
        zk.storeImageUpload("debian", first_build(zk), "cloud", ImageUpload("debian", first_build(zk), "cloud"))
        assert len(zk.getUploads("debian", first_build(zk), "cloud")) == number + 1
    build_id = first_build(zk)
    zk.setImagePaused("debian", True)
    zk.submitBuildRequest("fedora")
    known = [KnownImage("debian", True), KnownImage("fedora", False)]
    wait_for("cached", lambda: sorted(zk.getCachedImages(), key=lambda image: image.image_name) == known)
    exported = zk.exportImageData()
    uploads = sorted(upload.key for upload in zk.getUploads("debian", build_id, "cloud"))
    root = f"/nodepool/images/debian/builds/{build_id}"
    assert sorted(exported) == sorted(
        ["/nodepool/images/debian/pause", root, *(f"{root}/providers/cloud/images/{number}" for number in uploads)]
    )
    assert exported["/nodepool/images/debian/pause"] == ""
    assert json.loads(exported[root])["state"] == "ready"

    zk.kazoo_client.delete("/nodepool/images", recursive=True)
    with pytest.raises(ZKException, match="/nodepool/nodes/1"):
        zk.importImageData({**exported, "/nodepool/nodes/1": "{}"})
    assert zk.getImageNames() == []
    for _ in range(2):
        zk.importImageData(json.loads(json.dumps(exported)))
        assert zk.exportImageData() == exported
    later = zk.storeImageUpload("debian", build_id, "cloud", ImageUpload("debian", build_id, "cloud"))
    assert later > max(uploads)
    assert zk.exportImageData().items() > exported.items()


def first_build(zk: ReleasedZooKeeper) -> str:
    builds = zk.getBuildIds("debian")
    if builds:
        return builds[0]
    build = ImageBuild("debian")
    build.state = "ready"
    return zk.storeBuild("debian", build)
