# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.caches: views follow ZooKeeper, over a lost connection too."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nodepool.model.image import ImageView
from nodepool.zk import caches
from nodepool.zk.caches import ImageCache
from nodepool.zk.client import ZooKeeperClient
from tests.support.pool_znodes import PoolZnodes
from tests.support.tcp_proxy import TcpProxy

SECONDS = 20.0


class Watcher:
    """Waits until the view of an image is as wanted."""

    def __init__(self, cache: ImageCache) -> None:
        self.cache = cache
        self.told: list[str] = []
        self._changed = threading.Condition()
        cache.add_listener(self._on_change)

    def _on_change(self, image: str) -> None:
        with self._changed:
            self.told.append(image)
            self._changed.notify_all()

    def until(self, wanted: Callable[[ImageView], Any], image: str = "debian") -> ImageView:
        with self._changed:
            assert self._changed.wait_for(lambda: wanted(self.cache.snapshot().image(image)), SECONDS)
        return self.cache.snapshot().image(image)


@pytest.fixture
def watcher(client: ZooKeeperClient) -> Watcher:
    cache = ImageCache(client)
    assert cache.wait_ready(SECONDS)
    return Watcher(cache)


def put(znodes: PoolZnodes, path: str, **fields: Any) -> None:
    znodes.kazoo.create(path, json.dumps(fields).encode(), makepath=True)


def test_what_is_there_already(znodes: PoolZnodes, client: ZooKeeperClient) -> None:
    put(znodes, caches.build("debian", "b1"), state="ready", state_time=5.0)
    put(znodes, caches.upload("debian", "b1", "cloud", "0000000001"), state="ready", state_time=6.0)
    znodes.kazoo.ensure_path(caches.build_request("fedora"))
    znodes.kazoo.ensure_path(caches.pause("fedora"))
    znodes.kazoo.ensure_path(f"{caches.upload_lock('debian', 'b1', 'cloud')}/x__lock__0000000000")
    cache = ImageCache(client)
    assert cache.wait_ready(SECONDS)
    view = cache.snapshot()
    assert sorted(view.images) == ["debian", "fedora"]
    build = view.image("debian").builds["b1"]
    assert build.state == "ready"
    assert build.uploading == {"cloud"}
    upload = view.image("debian").current_upload("cloud")
    assert upload is not None
    assert upload.id == "0000000001"
    requested = view.image("fedora").build_requested
    assert requested is not None
    assert requested > 1e9
    assert view.image("fedora").paused
    assert view.image("unknown").builds == {}


def test_a_life_of_a_build(znodes: PoolZnodes, watcher: Watcher) -> None:
    """Each change is in the view by itself."""
    kazoo = znodes.kazoo
    kazoo.ensure_path(caches.build_request("debian"))
    watcher.until(lambda view: view.build_requested)
    lock = kazoo.create(f"{caches.build_lock('debian')}/x__lock__", ephemeral=True, sequence=True, makepath=True)
    watcher.until(lambda view: view.build_locked)
    build = caches.build("debian", "b1")
    put(znodes, build, state="building", state_time=1.0)
    watcher.until(lambda view: view.builds_in("building"))
    kazoo.set(build, json.dumps({"state": "ready", "state_time": 2.0}).encode())
    kazoo.delete(lock)
    view = watcher.until(lambda view: not view.build_locked)
    assert view.builds["b1"].state == "ready", "a free lock beside the record that its holder has overwritten"
    put(znodes, caches.upload("debian", "b1", "cloud", "0000000001"), state="ready", state_time=3.0)
    watcher.until(lambda view: view.current_upload("cloud"))
    kazoo.delete(caches.upload("debian", "b1", "cloud", "0000000001"))
    watcher.until(lambda view: view.current_upload("cloud") is None)
    kazoo.delete(build, recursive=True)
    watcher.until(lambda view: not view.builds)
    kazoo.delete(caches.image("debian"), recursive=True)
    watcher.until(lambda view: "debian" not in watcher.cache.snapshot().images)
    assert set(watcher.told) == {"debian"}


def test_bad_record(znodes: PoolZnodes, watcher: Watcher) -> None:
    """It hides no other, and is there."""
    znodes.kazoo.create(caches.build("debian", "bad"), b"[]", makepath=True)
    put(znodes, caches.build("debian", "good"), state="ready", state_time=2.0)
    view = watcher.until(lambda view: view.ready_builds())
    assert sorted(view.builds) == ["bad", "good"]
    assert view.builds["bad"].record is None


def test_lost_connection(znodes: PoolZnodes, shaky: ZooKeeperClient, proxy: TcpProxy) -> None:
    """What happened meanwhile is read when it is back."""
    put(znodes, caches.build("debian", "b1"), state="ready", state_time=5.0)
    cache = ImageCache(shaky)
    assert cache.wait_ready(SECONDS)
    watcher = Watcher(cache)
    proxy.take_down()
    znodes.kazoo.delete(caches.build("debian", "b1"), recursive=True)
    put(znodes, caches.build("debian", "b2"), state="ready", state_time=6.0)
    proxy.bring_up()
    view = watcher.until(lambda view: list(view.builds) == ["b2"])
    assert view.builds["b2"].state == "ready"
    assert cache.wait_ready(SECONDS)
    assert "" in watcher.told


def test_listener_that_fails_or_goes(znodes: PoolZnodes, watcher: Watcher, caplog: pytest.LogCaptureFixture) -> None:
    def fail(image: str) -> None:
        raise ValueError(image)

    told: list[str] = []
    watcher.cache.add_listener(told.append)
    watcher.cache.remove_listener(told.append)
    watcher.cache.add_listener(fail)
    znodes.kazoo.ensure_path(caches.pause("debian"))
    watcher.until(lambda view: view.paused)
    znodes.kazoo.delete(caches.pause("debian"))
    watcher.until(lambda view: not view.paused)
    assert "Error in a listener of images" in caplog.text
    assert told == []
