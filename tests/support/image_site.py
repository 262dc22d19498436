# SPDX-License-Identifier: Apache-2.0
"""`ImageSite`: uploads and clean-up of a builder with fake clouds, without its daemon and without diskimage-builder."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from nodepool.builder.image_cleanup import ImageCleanupWorker
from nodepool.builder.image_files import ImageFiles
from nodepool.builder.progress import BuilderOptions, Shared
from nodepool.builder.uploads import UploadQueue, UploadWorker
from nodepool.config.objects import Config, DiskImage
from nodepool.driver.fake import FakeDriver, FakeProvider
from nodepool.driver.fake.cloud import FakeCloud, FakeImage
from nodepool.metrics.registry import Registry
from nodepool.model import states
from nodepool.model.image import ImageBuild, ImagesView, ImageUpload, ImageView
from nodepool.runtime.providers import Providers
from nodepool.runtime.worker import Worker
from nodepool.zk.caches import ImageCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.images import ImageStore
from nodepool.zk.zookeeper import ZooKeeper
from simulators.faulty_images import FaultyImages
from tests.support.wait import DEADLINE_SECONDS, wait_for

IMAGE = "debian"
DATA = b"0123456789"
MD5 = hashlib.md5(DATA).hexdigest()


class ImageSite:
    """One builder; several may share a ZooKeeper and its clouds.

    :param clouds: provider -> name of its cloud; None = clouds of its own.
    :param section: further keys of each provider.
    :param image: attributes of the image.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        directory: Path,
        providers: Sequence[str] = ("cloud",),
        *,
        clouds: Mapping[str, str] | None = None,
        section: Mapping[str, Any] | None = None,
        image: Mapping[str, Any] | None = None,
        workers: int = 4,
    ) -> None:
        self.client = client
        self.builder_id = f"id of {directory.name}"
        self.clouds = dict(clouds or {name: f"{name}-{uuid.uuid4().hex[:8]}" for name in providers})
        self.section = dict(section or {})
        self.image = dict(image or {})
        self.store = ImageStore(client)
        self.cache = ImageCache(client)
        assert self.cache.wait_ready(DEADLINE_SECONDS)
        self.files = ImageFiles(directory)
        self.registry = Registry()
        self._markers = itertools.count()
        self.threads: list[Worker] = []
        self.providers: dict[str, FakeProvider] = {}
        self.configure(providers)
        self.shared = Shared(
            client,
            self.store,
            self.known,
            lambda: self.config,
            cast(Providers, self),
            self.files,
            self.builder_id,
            BuilderOptions(upload_workers=workers),
            self.registry,
            host="builder.example.com",
        )
        self.queue = UploadQueue(self.shared)
        self._cleanups: list[ImageCleanupWorker] = []
        self.cleanup = self.make_cleanup()

    def configure(self, providers: Sequence[str], images: Sequence[str] = (IMAGE,)) -> None:
        """Another configuration; each provider lists all images."""
        self.config = Config()
        for name in images:
            self.config.diskimages[name] = DiskImage(name)
            for attribute, value in self.image.items():
                setattr(self.config.diskimages[name], attribute, value)
        for name in providers:
            self.add_provider(name, images)

    def add_provider(self, name: str, images: Sequence[str] = (IMAGE,), **section: Any) -> None:
        """:param section: further keys."""
        data = {
            "name": name,
            "driver": "fake",
            "cloud": self.clouds.setdefault(name, f"{name}-{uuid.uuid4().hex[:8]}"),
            "diskimages": [{"name": image} for image in images],
            **self.section,
            **section,
        }
        config: Any = FakeDriver().getProviderConfig(data)
        config.getSchema()(data)
        config.load(self.config)
        self.config.providers[name] = config
        cloud = FakeCloud.get(data["cloud"])
        if not isinstance(cloud.images, FaultyImages):
            cloud.images = FaultyImages(cloud.name)
        self.providers[name] = cast("FakeProvider", FakeDriver().getProvider(config))
        self.providers[name].start(ZooKeeper(self.client, None))

    def get(self, name: str | None) -> FakeProvider | None:
        """As `Providers`."""
        return self.providers.get(name or "")

    @property
    def running(self) -> dict[str, FakeProvider]:
        """As `Providers`."""
        return self.providers

    def known(self) -> ImagesView | None:
        return self.cache.snapshot() if self.cache.ready.is_set() else None

    def make_cleanup(self, **services: Any) -> ImageCleanupWorker:
        shared = dataclasses.replace(self.shared, **services)
        self._cleanups.append(ImageCleanupWorker(shared, lambda: self.queue.running))
        return self._cleanups[-1]

    # -- what is there --

    def build(
        self, image: str = IMAGE, formats: Sequence[str] = ("qcow2",), state: str = states.READY, data: bytes = DATA
    ) -> ImageBuild:
        """A build with its files, as a BuildWorker leaves it."""
        made = ImageBuild(image)
        made.builder, made.builder_id = "builder.example.com", self.builder_id
        made.username, made.python_path = "fedora", "auto"
        with self.store.build_lock(image) as lock:
            self.store.new_build(made, lock)
            for name in formats:
                path = self.files.path(image, made.key, name)
                path.write_bytes(data)
                path.with_name(f"{path.name}.md5").write_text(hashlib.md5(data).hexdigest())
                path.with_name(f"{path.name}.sha256").write_text(hashlib.sha256(data).hexdigest())
            made.state, made.formats = state, list(formats)
            self.store.store_build(made, lock)
        self.sync()
        return made

    def upload(
        self, build: ImageBuild, provider: str = "cloud", state: str = states.READY, **fields: Any
    ) -> ImageUpload:
        """A record of an upload; ready ones have an image in the cloud."""
        made = ImageUpload(build.image_name, build.key, provider)
        made.state = states.UPLOADING
        with self.store.upload_lock(build.image_name, build.key, provider) as lock:
            self.store.new_upload(made, lock)
            if state == states.READY:
                stored = self.put_image(build, made.key, provider)
                made.external_id, made.external_name, made.format = stored.id, stored.name, "qcow2"
            for name, value in fields.items():
                setattr(made, name, value)
            made.state = state
            self.store.store_upload(made, lock)
        self.sync()
        return made

    def put_image(self, build: ImageBuild, upload_id: str, provider: str = "cloud", name: str = "made") -> FakeImage:
        """An image in the cloud, with the ids of an upload."""
        ids = {
            "nodepool_provider_name": provider,
            "nodepool_build_id": build.key,
            "nodepool_upload_id": upload_id,
        }
        return self.cloud(provider).create(name, "qcow2", ids)

    def cloud(self, provider: str = "cloud") -> FaultyImages:
        return cast("FaultyImages", self.providers[provider].cloud.images)

    def uploads(self, build: ImageBuild, provider: str = "cloud") -> list[ImageUpload]:
        return self.store.uploads(build.image_name, build.key, provider)

    def states(self, build: ImageBuild, provider: str = "cloud") -> list[str]:
        return [upload.state for upload in self.uploads(build, provider)]

    def on_disk(self) -> set[str]:
        """Ids of the builds that have files here."""
        return {build_id for _, build_id in self.files.builds()}

    def view(self, image: str = IMAGE) -> ImageView:
        self.sync()
        return self.cache.snapshot().image(image)

    def sync(self) -> None:
        """Wait until the cache shows all that was written.

        Events come in order. What an event makes the cache read is asked for before the second mark, so it is answered
        first.
        """
        for _ in range(2):
            mark = f"mark-{next(self._markers)}"
            self.store.set_paused(mark, True)
            wait_for("the cache follows", lambda mark=mark: self.cache.snapshot().image(mark).paused)  # type: ignore[misc]

    # -- work --

    def worker(self, number: int = 0) -> UploadWorker:
        return UploadWorker(number, self.shared, self.queue)

    def pass_once(self, number: int = 0) -> float | None:
        """One pass of an upload worker on what is known now."""
        self.sync()
        return self.worker(number).run_once()

    def clean(self, passes: int = 1) -> None:
        """Passes of the clean-up; after each of them nothing is left to do in clouds."""
        for _ in range(passes):
            self.sync()
            self.cleanup.run_once()
            wait_for("deletions have ended", lambda: not self.cleanup.deletions.running)
            self.sync()

    def clean_fully(self) -> None:
        """As many passes as there can be: what is judged in one pass may make more work for the next."""
        self.clean(4)

    def start(self, workers: int = 2) -> None:
        """As the daemon does it: workers that are woken by changes."""
        self.threads = [*(self.worker(number) for number in range(workers)), self.cleanup]
        self.cache.add_listener(self.wake)
        for thread in self.threads:
            thread.start()

    def wake(self, _: str = "") -> None:
        """Something has changed."""
        for thread in self.threads:
            thread.wake()

    def end(self) -> None:
        self.cache.remove_listener(self.wake)
        for thread in self.threads:
            thread.stop()
        for name, provider in self.providers.items():
            self.cloud(name).close()
            provider.stop()
            provider.join()
        for thread in self.threads:
            thread.join(DEADLINE_SECONDS)
        for cleanup in self._cleanups:
            cleanup.on_stop()
        for name in self.clouds.values():
            FakeCloud.forget(name)


MakeSite = Callable[..., ImageSite]
