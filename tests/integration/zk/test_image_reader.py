# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.images: builds and uploads, as launcher and command line see them (reference/zookeeper 6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from nodepool.exceptions import ZKConnectionError
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.images import ImageStore
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import PoolZnodes

IMAGES = "/nodepool/images"


@pytest.fixture
def store(client: ZooKeeperClient) -> ImageStore:
    return ImageStore(client)


def put(znodes: PoolZnodes, path: str, **fields: Any) -> None:
    znodes.kazoo.create(f"{IMAGES}/{path}", json.dumps(fields).encode(), makepath=True)


def upload(znodes: PoolZnodes, build: str, number: int, *, provider: str = "cloud", **fields: Any) -> None:
    root = f"debian/builds/{build}/providers/{provider}/images"
    znodes.kazoo.ensure_path(f"{IMAGES}/{root}/lock")
    put(znodes, f"{root}/{number:010}", **{"state": "ready", "state_time": float(number), **fields})


def test_nothing_there(store: ImageStore) -> None:
    assert store.image_names() == []
    assert store.builds("debian") == []
    assert store.upload_providers("debian", "1") == []
    assert store.uploads("debian", "1", "cloud") == []
    assert store.most_recent_upload("debian", "cloud") is None
    store.erase_provider("debian", "1", "cloud")


def test_builds(store: ImageStore, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture) -> None:
    """Ids are 32 hex digits or, from old releases, a sequence; `lock` is none."""
    znodes.kazoo.ensure_path(f"{IMAGES}/debian/builds/lock")
    put(znodes, "debian/builds/0000000001", state="ready")
    put(znodes, f"debian/builds/{'a' * 32}", state="building", formats="raw,qcow2")
    put(znodes, "debian/builds/bad", state="odd")
    znodes.kazoo.create(f"{IMAGES}/fedora")
    assert sorted(store.image_names()) == ["debian", "fedora"]
    found = {build.id: build for build in store.builds("debian")}
    assert sorted(str(i) for i in found) == ["0000000001", "a" * 32]
    assert found["a" * 32].formats == ["raw", "qcow2"]
    assert "Ignoring /nodepool/images/debian/builds/bad" in caplog.text


def test_current_image(store: ImageStore, znodes: PoolZnodes, client: ZooKeeperClient) -> None:
    """6.2: the ready upload with the greatest state time, over all builds of this provider."""
    upload(znodes, "old", 1, state_time=50.0, external_id="new upload of an old build")
    upload(znodes, "new", 2, state_time=40.0)
    upload(znodes, "new", 3, state_time=90.0, state="failed")
    upload(znodes, "new", 4, state_time=91.0, state="uploading")
    upload(znodes, "new", 5, state_time=99.0, provider="other")
    found = ZooKeeper(client, None).getMostRecentImageUpload("debian", "cloud")
    assert found is not None
    assert (found.build_id, found.id, found.external_id) == ("old", "0000000001", "new upload of an old build")
    assert sorted(store.upload_providers("debian", "new")) == ["cloud", "other"]
    assert len(store.uploads("debian", "new", "cloud")) == 3


def test_bad_uploads_are_skipped(store: ImageStore, znodes: PoolZnodes) -> None:
    upload(znodes, "1", 1, state="in-use")
    upload(znodes, "1", 2)
    assert [found.id for found in store.uploads("debian", "1", "cloud")] == ["0000000002"]


def test_bad_record_is_logged_once(store: ImageStore, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture) -> None:
    """It may stay for long; what becomes bad again is told again."""
    put(znodes, "debian/builds/bad", state="odd")
    path = f"{IMAGES}/debian/builds/bad"
    for count, data in ((1, b'{"state": "odd"}'), (1, b'{"state": "ready"}'), (2, b'{"state": "odd"}')):
        znodes.kazoo.set(path, data)
        for _ in range(3):
            store.builds("debian")
        assert caplog.text.count(path) == count


def test_erase(store: ImageStore, znodes: PoolZnodes) -> None:
    """CLI erase: records of one provider only."""
    upload(znodes, "1", 1)
    upload(znodes, "1", 2, provider="other")
    store.erase_provider("debian", "1", "cloud")
    assert store.upload_providers("debian", "1") == ["other"]


def test_closed_connection(store: ImageStore, client: ZooKeeperClient) -> None:
    client.kazoo.stop()
    calls: list[Callable[[], object]] = [
        *(store.image_names, lambda: store.builds("debian"), lambda: store.most_recent_upload("debian", "cloud")),
        lambda: store.erase_provider("debian", "1", "cloud"),
    ]
    for call in calls:
        with pytest.raises(ZKConnectionError):
            call()


def test_upload_has_data(store: ImageStore, znodes: PoolZnodes) -> None:
    """A record that cannot be read is there; one that a lock has made again has no data."""
    upload(znodes, "1", 1, state="nonsense")
    znodes.kazoo.ensure_path(f"{IMAGES}/debian/builds/1/providers/cloud/images/0000000002/lock")
    found = [store.upload_has_data("debian", "1", "cloud", f"{number:010}") for number in (1, 2, 3)]
    assert found == [True, False, False]
