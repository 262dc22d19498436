# SPDX-License-Identifier: Apache-2.0
"""Labels whose image is uploaded by a builder: the launcher follows what builders store."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.registry import Drivers
from nodepool.zk import caches
from tests.scenario.conftest import Launch
from tests.scenario.test_requests import fulfilled
from tests.scenario.test_statemachine import machines
from tests.support.machine_driver import DIRECTORY
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for

UPLOAD = caches.upload("debian", "b1", "one", "0000000001")


@pytest.fixture(autouse=True)
def _driver() -> Iterator[None]:
    """Launchers find ``driver: machines``."""
    Drivers.load([str(DIRECTORY)])
    yield
    Drivers.load([])


def test_label_follows_uploads(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """A-13, M-3: min-ready nodes come with the upload; without it requests fail; with another one they do not."""
    label = {"name": "small", "diskimage": "debian"}
    launcher = launch([machines(cloud_name, label)], {"small": {"min-ready": 1}}, diskimages=[{"name": "debian"}])
    request_id = znodes.submit(["small"])
    wait_for("it is declined", lambda: (znodes.request(request_id) or {}).get("state") == "failed")
    assert znodes.nodes() == {}
    ready = {"state": "ready", "state_time": 5.0, "external_id": "image-1"}
    znodes.kazoo.create(caches.build("debian", "b1"), json.dumps(ready).encode(), makepath=True)
    znodes.kazoo.create(UPLOAD, json.dumps(ready).encode(), makepath=True)
    wait_for("a node is kept ready", lambda: znodes.free_nodes())
    (node,) = fulfilled(znodes, znodes.submit(["small"]))["nodes"]
    stored = znodes.node(node)
    assert stored is not None
    assert stored["image_id"] == UPLOAD
    znodes.kazoo.set(UPLOAD, json.dumps({**ready, "state": "deleting"}).encode())
    images = launcher.nodepool.cache.images
    wait_for("the launcher knows", lambda: images.snapshot().image("debian").current_upload("one") is None)
    after = znodes.submit(["small", "small", "small"])
    wait_for("it is declined", lambda: (znodes.request(after) or {}).get("state") == "failed")
