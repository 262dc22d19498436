# SPDX-License-Identifier: Apache-2.0
"""The fake driver: what the contract suite does not reach."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver.fake import FakeDriver
from nodepool.driver.fake.cloud import FakeCloud
from nodepool.exceptions import ConfigError
from nodepool.model.image import ImageUpload
from nodepool.testing.memory_zk import MemoryZooKeeper
from nodepool.testing.pool_worker import PoolWorkerStandIn
from tests.support.wait import DEADLINE_SECONDS

CLOUD = "test-fake"


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    FakeCloud.forget(CLOUD)
    yield FakeCloud.get(CLOUD)
    FakeCloud.forget(CLOUD)


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
