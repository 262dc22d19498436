# SPDX-License-Identifier: Apache-2.0
"""The fake driver and its cloud in memory, which behaves like one: what the contract suite does not reach."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver.fake import FakeDriver
from nodepool.driver.fake.cloud import (
    ACTIVE,
    BUILDING,
    DELETING,
    ERROR,
    CloudError,
    FakeCloud,
    FakeImages,
    FakeInstance,
    ImageError,
    NoSuchImage,
    NoSuchInstance,
    OverQuota,
)
from nodepool.exceptions import ConfigError, ImageCreateException
from nodepool.model import states
from nodepool.model.image import ImageUpload
from nodepool.testing.memory_zk import MemoryZooKeeper
from nodepool.testing.pool_worker import PoolWorkerStandIn
from tests.support.driver_site import DriverSite
from tests.support.wait import DEADLINE_SECONDS, wait_for

CLOUD = "test-fake"
DATA = b"0123456789"
MD5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
KEYS = {"nodepool_build_id": "b1", "nodepool_upload_id": "0000000001"}


# -- the cloud --


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    FakeCloud.forget(CLOUD)
    yield FakeCloud.get(CLOUD)
    FakeCloud.forget(CLOUD)


def create(cloud: FakeCloud, key: str | None = None, **resources: float) -> FakeInstance:
    return cloud.create("np1", metadata={"nodepool_node_id": "1"}, resources=resources, key=key)


def test_life_of_an_instance(cloud: FakeCloud) -> None:
    """Made once for a key, listed, active, deleted; no two share an address. Down: nothing is forgotten."""
    made, again, other = (create(cloud, key) for key in ("a", "a", "b"))
    assert made.id == again.id != other.id
    assert made.address != other.address
    assert cloud.wait_booted(made.id, 10).status == ACTIVE
    cloud.set(down=True)
    calls: list[Callable[[], object]] = [cloud.instances, lambda: create(cloud), lambda: cloud.delete(made.id)]
    for call in calls:
        with pytest.raises(CloudError):
            call()
    cloud.set(down=False, swallowed_deletes=1)
    cloud.delete(made.id)
    assert [instance.id for instance in cloud.instances()] == [made.id, other.id]
    cloud.set(delete_seconds=3600)
    cloud.delete(other.id)
    assert cloud.instances()[1].status == DELETING
    with pytest.raises(TimeoutError):
        cloud.wait_gone(other.id, 0)
    cloud.set(delete_seconds=0)
    cloud.delete(made.id)
    cloud.wait_gone(made.id, 10)
    assert cloud.instances()[0].metadata == {"nodepool_node_id": "1"}
    for call in (lambda: cloud.delete(made.id), lambda: cloud.wait_booted(made.id, 10), lambda: create(cloud, "a")):
        with pytest.raises(NoSuchInstance):
            call()


def test_knobs(cloud: FakeCloud) -> None:
    """Each is used up by one call; a refusal makes nothing, a lost answer does."""
    cloud.set(fail_launches=1, quota_errors=1, lost_answers=1)
    with pytest.raises(OverQuota):
        create(cloud)
    with pytest.raises(CloudError):
        create(cloud)
    create(cloud)
    assert [cloud.wait_booted(instance.id, 10).status for instance in cloud.instances()] == [ERROR, ACTIVE]
    with pytest.raises(TypeError):
        cloud.set(nonsense=1)
    cloud.knobs.limits["instances"] = 0
    create(cloud)
    cloud.set(limits={"cores": 2})
    filling = create(cloud, cores=2)
    with pytest.raises(OverQuota):
        create(cloud, cores=1)
    cloud.delete(filling.id)
    create(cloud, cores=2)
    cloud.set(list_lag_seconds=3600.0)
    assert cloud.instances() == []


# -- the driver --


@pytest.fixture
def make_site(cloud: FakeCloud) -> Iterator[Callable[..., DriverSite]]:
    """Makes started providers on one ZooKeeper: ``make_site({"launch-retries": 1}, **{"max-servers": 2})``."""
    sites: list[DriverSite] = []
    zk = MemoryZooKeeper()

    def make(settings: dict[str, Any] | None = None, **pool: Any) -> DriverSite:
        pools = [{"name": "main", "labels": [{"name": "small", "cores": 2}, {"name": "large", "cores": 8}], **pool}]
        section = {"name": "nowhere", "driver": "fake", "cloud": CLOUD, "pools": pools, **(settings or {})}
        sites.append(DriverSite(FakeDriver(), section, zk))
        return sites[-1]

    yield make
    for site in sites:
        site.end()


MakeSite = Callable[..., DriverSite]


@pytest.mark.parametrize(
    ("settings", "state", "created", "node_states"),
    [
        # L-4: the third attempt succeeds, and never are there two instances of the node.
        ({"fail-launches": 2, "launch-retries": 3}, states.FULFILLED, 3, [states.READY]),
        # L-6: the node is `failed` and the request declined; its instance waits for the node's deletion.
        ({"fail-launches": 9, "launch-retries": 2}, states.FAILED, 2, [states.FAILED]),
        # L-5: an instance that hangs is given up, and deleted before the next attempt.
        ({"hang": True, "launch-timeout": 0.01, "launch-retries": 2}, states.FAILED, 2, [states.FAILED]),
        # A creation whose answer was lost is not repeated: the instance is found and taken.
        ({"lost-answers": 1}, states.FULFILLED, 1, [states.READY]),
        # L-7: a quota error pauses the request and costs no attempt; the limits are asked for again.
        ({"quota-errors": 1, "launch-retries": 1}, states.FULFILLED, 2, [states.ABORTED, states.READY]),
    ],
)
def test_launches(
    make_site: MakeSite, cloud: FakeCloud, settings: dict[str, Any], state: str, created: int, node_states: list[str]
) -> None:
    """L-4 to L-7"""
    site = make_site(settings)
    request, _ = site.worker.serve("small", timeout=DEADLINE_SECONDS)
    assert (request.state, cloud.calls["create"], cloud.peak) == (state, created, 1)
    nodes = sorted(site.zk.nodeIterator(), key=lambda node: node.state)
    assert [node.state for node in nodes] == node_states
    (instance,) = cloud.instances()
    assert (instance.id, instance.name) == (nodes[-1].external_id, f"np{nodes[-1].id}")
    assert state == states.FAILED or (nodes[-1].hostname, nodes[-1].interface_ip) == (instance.name, instance.address)


def test_end_of_a_provider(make_site: MakeSite, cloud: FakeCloud) -> None:
    """A-10, L-17: a launch ends well when its provider is replaced. G-14: none is waited for when it is stopped."""
    old = make_site({"hang": True})
    handler = old.worker.accept(old.worker.submit("small"))
    assert handler.alive_thread_count == 1
    wait_for("the instance is there", cloud.instances)
    old.provider.idle()
    new = make_site({"hang": False})
    old.provider.stop()
    assert old.worker.finish(handler, DEADLINE_SECONDS).state == states.FULFILLED
    old.fail("small")
    cloud.set(hang=True)
    handler = new.worker.accept(new.worker.submit("small"))
    wait_for("another is there", lambda: [i.status for i in cloud.instances()].count(BUILDING) > 0)
    new.provider.stop()
    new.provider.join()
    assert [node.state for node in handler.nodeset] == [states.FAILED]


def test_images() -> None:
    """Each knob is used up by one call, and the next one works."""
    images = FakeImages("c")
    images.set(refused_images=1, lost_images=1, refused_deletions=1)
    for text, left in (("refused", 0), ("closed", 1)):
        with pytest.raises(ImageError, match=text):
            images.create("n", "qcow2", KEYS)
        assert [image.metadata for image in images.images()] == [KEYS] * left
    (image,) = images.images()
    with pytest.raises(ImageError, match="in use"):
        images.delete(image.id)
    images.delete(image.id)
    with pytest.raises(NoSuchImage):
        images.image(image.id)
    images.set(images_down=True)
    with pytest.raises(ImageError, match="unavailable"):
        images.images()


def test_label_waits_for_its_image(cloud: FakeCloud) -> None:
    """L-10: a label with a diskimage can be used once the image was uploaded; a node says of which upload it is."""
    labels = [{"name": "built", "diskimage": "fedora"}, {"name": "small"}]
    section = {"name": "nowhere", "driver": "fake", "cloud": CLOUD, "diskimages": [{"name": "fedora"}]}
    section["pools"] = [{"name": "main", "labels": labels}]
    zk, config, top = MemoryZooKeeper(), FakeDriver().getProviderConfig(section), Config()
    top.labels = {name: Label(name) for name in ("built", "small")}
    top.diskimages = {"fedora": DiskImage("fedora")}
    config.load(top)
    provider = FakeDriver().getProvider(config)
    provider.start(zk)
    worker = PoolWorkerStandIn(zk, provider, "main")
    assert [provider.labelReady(name) for name in ("small", "built")] == [True, False]
    upload = ImageUpload("fedora", "b1", "nowhere", "0000000001")
    upload.state, upload.external_id = "ready", "i-1"
    zk.uploads["fedora", "nowhere"] = upload
    _, (node,) = worker.serve("built", timeout=DEADLINE_SECONDS)
    assert node.image_id == "/nodepool/images/fedora/builds/b1/providers/nowhere/images/0000000001"
    section["diskimages"] = []
    with pytest.raises(ConfigError, match="no diskimage 'fedora'; add it"):
        FakeDriver().getProviderConfig(section).load(top)
    provider.stop()
    provider.join()


@pytest.mark.parametrize("knob", ["corrupted_uploads", "truncated_uploads", "broken_uploads"])
def test_uploads(make_site: MakeSite, cloud: FakeCloud, tmp_path: Path, knob: str) -> None:
    """D-1, U-5, U-9, U-14: what is not what was sent is deleted; `stop` ends uploads."""
    provider: Any = make_site().provider
    (tmp_path / "image").write_bytes(DATA)
    given = (None, "fedora-1", str(tmp_path / "image"), "qcow2", KEYS, MD5, None)
    cloud.images.set(**{knob: 1})
    with pytest.raises((ImageCreateException, ImageError), match=r"did not arrive as it was sent|reset"):
        provider.uploadImage(*given)
    assert cloud.images.images() == []
    image = cloud.images.image(provider.uploadImage(*given))
    assert (image.md5, image.metadata) == (MD5, {**KEYS, "nodepool_provider_name": "nowhere"})
    provider.stop()
    with pytest.raises(ImageError, match="given up"):
        provider.uploadImage(*given)
    assert provider.cloud.images.images() == [image]
