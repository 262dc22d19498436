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
    FakeCloud,
    FakeInstance,
    ImageError,
)
from nodepool.exceptions import ConfigError, ImageCreateException
from nodepool.model.image import ImageUpload
from nodepool.testing.memory_zk import MemoryZooKeeper
from nodepool.testing.pool_worker import PoolWorkerStandIn
from tests.support.driver_site import DriverSite
from tests.support.wait import DEADLINE_SECONDS

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
