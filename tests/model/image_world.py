# SPDX-License-Identifier: Apache-2.0
"""The simulated world with builders in the place of launchers."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from kazoo.exceptions import KazooException
from kazoo.protocol.serialization import Create, SetData
from kazoo.security import OPEN_ACL_UNSAFE

from nodepool.builder import build as builder_build
from nodepool.builder import image_cleanup, uploads
from nodepool.driver.fake.cloud import FakeCloud, ImageError
from nodepool.driver.statemachine import cloud as statemachine
from nodepool.runtime import providers
from nodepool.zk import caches
from nodepool.zk.client import ZooKeeperClient
from tests.model.daemon import Daemon
from tests.model.image_builder import Builder, ModelDib, ModelWorkDir
from tests.model.image_cloud import NoScheduler, SteppedImageDriver, SteppedImages, images_of
from tests.model.image_invariants import ImageInvariants
from tests.model.image_layout import FORMATS, ImageLayout
from tests.model.image_moves import ImageMoves
from tests.model.setup import Setup, Violated
from tests.model.threads import ModelSharedThreads
from tests.model.world import World
from tests.support.image_znodes import Build, Image, Upload

#: Longest pauses of builders: an hour for files without a record, and what comes after it.
SETTLE_SECONDS: Final = (300.0, 3700.0, 300.0)


class Hand:
    """Somebody who writes into ZooKeeper: each write happens at once."""

    def __init__(self, world: World) -> None:
        self._server = world.server
        self.session = world.server.open("hand")

    def create(self, path: str) -> None:
        self._do(Create(path, b"", OPEN_ACL_UNSAFE, 0))

    def set(self, path: str, data: bytes) -> None:
        self._do(SetData(path, data, -1))

    def _do(self, request: Any) -> None:
        try:
            self._server.handle(self.session, request)
        except KazooException:
            # It is there already, or gone: somebody was quicker.
            return


class ImageWorld(World):
    """``launchers`` are builders."""

    #: A driver that says what a cloud says, as many do.
    expected_errors = (ImageError,)
    moves_class = ImageMoves
    invariants_class = ImageInvariants

    def __init__(self, setup: Setup, *, trace: bool = False) -> None:
        self.images = ImageLayout()
        #: Images that were not wanted by somebody once.
        self.removed: set[str] = set()
        self.failing_builds = 0
        #: Name of a complete file -> its MD5.
        self.built: dict[str, str] = {}
        self._parent = Path(tempfile.mkdtemp(prefix="model-images-"))
        self.disks: list[Path] = []
        super().__init__(setup, trace=trace)
        self.hand = Hand(self)

    @classmethod
    def here(cls) -> ImageWorld:
        found = cls.current()
        assert isinstance(found, ImageWorld)
        return found

    def __exit__(self, *_: object) -> None:
        try:
            super().__exit__()
        finally:
            shutil.rmtree(self._parent)
            for provider in FORMATS:
                FakeCloud.forget(f"{self.cloud_name}-{provider}")

    @property
    def builders(self) -> list[Builder]:
        return [daemon for daemon in self.launchers if isinstance(daemon, Builder)]

    def make_daemon(self, name: str) -> Daemon:
        return Builder(self, name)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        def wait_connected(client: ZooKeeperClient, timeout: float) -> bool:
            return self.baton.wait(lambda: client.connected, self.now + timeout)

        drivers = {"fake": SteppedImageDriver(self)}
        patch.setattr(providers, "Drivers", SimpleNamespace(get=drivers.__getitem__, is_extra=lambda name: False))
        patch.setattr(ZooKeeperClient, "wait_connected", wait_connected)
        patch.setattr(builder_build, "DibRun", ModelDib)
        patch.setattr(builder_build, "WorkDir", ModelWorkDir)
        patch.setattr(image_cleanup, "SharedThreads", ModelSharedThreads)
        patch.setattr(statemachine, "Scheduler", NoScheduler)
        patch.setattr(uploads, "sleep", lambda seconds: self.baton.wait(lambda: False, self.now + seconds))

    def disk(self, name: str) -> Path:
        """The directory of a builder; its successor has the same."""
        found = self._parent / name
        if found not in self.disks:
            (found / "images").mkdir(parents=True)
            self.disks.append(found)
        return found

    def cloud_of(self, provider: str) -> SteppedImages:
        return images_of(self, f"{self.cloud_name}-{provider}")

    def stored(self) -> dict[str, Image]:
        """What is in ZooKeeper, at this moment."""
        server = self.server
        found = {}
        for name in server.children(caches.IMAGES):
            requested = caches.build_request(name) in server.znodes
            image = found[name] = Image(name, server.children(caches.build_lock(name)), requested)
            for build_id in server.children(caches.builds(name)):
                if build_id != "lock":
                    image.builds.append(self._build(name, build_id))
        return found

    def _build(self, image: str, build_id: str) -> Build:
        server = self.server
        lockers = server.children(caches.build_id_lock(image, build_id))
        build = Build(image, build_id, self._record(caches.build(image, build_id)), lockers)
        for provider in server.children(caches.providers(image, build_id)):
            build.lockers += server.children(caches.upload_lock(image, build_id, provider))
            for upload_id in server.children(caches.uploads(image, build_id, provider)):
                if upload_id != "lock":
                    record = self._record(caches.upload(image, build_id, provider, upload_id))
                    held = server.children(caches.upload_id_lock(image, build_id, provider, upload_id))
                    build.uploads.append(Upload(image, build_id, provider, upload_id, record, held))
        return build

    def _record(self, path: str) -> dict[str, Any] | None:
        try:
            found = json.loads(self.server.znodes[path].data)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def settle(self) -> None:
        """The end of all faults: all images become ready everywhere, and nothing else stays."""
        self.put_right()
        self.failing_builds = 0
        for provider in FORMATS:
            self.cloud_of(provider).set(
                refused_images=0,
                lost_images=0,
                broken_uploads=0,
                corrupted_uploads=0,
                truncated_uploads=0,
                refused_deletions=0,
                images_down=False,
            )
        self.images = ImageLayout()
        for seconds in SETTLE_SECONDS:
            self.run_seconds(seconds)
        self.invariants.at_the_end()
        if self.violations:
            raise Violated(self.violations)


def image_setup(builders: int = 2, order: int = 0, sends_after_death: bool = True) -> Setup:
    """A world of builders."""
    return Setup(launchers=builders, order=order, sends_after_death=sends_after_death)
