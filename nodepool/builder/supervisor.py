# SPDX-License-Identifier: Apache-2.0
"""`ImageBuilder`: a builder. All parts of a builder are made here and are given what they use."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from nodepool import log_names
from nodepool.builder import dib
from nodepool.builder.build import BuildQueue, BuildWorker, publish_builds
from nodepool.builder.dib import TRAP_SECONDS, take_directory
from nodepool.builder.image_cleanup import ImageCleanupWorker
from nodepool.builder.image_files import ImageFiles
from nodepool.builder.progress import BuilderOptions, Shared
from nodepool.builder.uploads import UploadQueue, UploadWorker, publish_uploads
from nodepool.clock import monotonic
from nodepool.config.objects import Config
from nodepool.exceptions import ConfigError
from nodepool.model.status import RUNNING, BuilderComponent
from nodepool.runtime import daemon
from nodepool.runtime.daemon import ConnectedDaemon
from nodepool.runtime.providers import Providers
from nodepool.runtime.worker import CallWatch, Part, Parts, StatusThread, stop_all
from nodepool.version import release_string
from nodepool.zk import paths
from nodepool.zk.caches import ImageCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import Registration
from nodepool.zk.images import ImageStore
from nodepool.zk.status import BUILDER
from nodepool.zk.zookeeper import ZooKeeper

#: Longest time that builds which are being ended may take: their traps, SIGKILL, what they mounted, their records.
END_BUILDS_SECONDS: Final = TRAP_SECONDS + 30.0
#: Threads and providers get so long each.
THREADS_STOP_SECONDS: Final = 10.0
#: So often it looks whether the builds have ended, while it stops.
_LOOK_SECONDS: Final = 0.1


class ImageBuilder(ConnectedDaemon):
    """One builder. See the base class for who owns what.

    :param config_path: configuration file.
    :param secure_path: secure file, or None.
    :param more_parts: make further threads, from the builder that is being built and its configuration; None = none.
    """

    log = logging.getLogger(log_names.BUILDER)
    kind = "builder"

    def __init__(
        self,
        config_path: str,
        secure_path: str | None = None,
        options: BuilderOptions | None = None,
        more_parts: Sequence[Callable[[ImageBuilder, Config], Part[Any] | None]] = (),
    ) -> None:
        super().__init__(config_path, secure_path)
        self._more_parts = more_parts
        self.options = options or BuilderOptions()
        self.stop_seconds = self.options.stop_timeout + END_BUILDS_SECONDS + 2 * THREADS_STOP_SECONDS
        self._stop_signals = 0
        #: Set: builds are not waited for.
        self._end_builds = threading.Event()

    def on_stop_signal(self, number: int) -> bool:
        """SIGINT waits for builds, at most ``stop_timeout``; SIGTERM, or any second signal, ends them in order.

        :return: is the end still in order? Not after a third signal.
        """
        self._stop_signals += 1
        if number == signal.SIGTERM or self._stop_signals > 1:
            self._end_builds.set()
        return self._stop_signals <= 2

    # -- life --

    def check(self, config: Config) -> None:
        """B-10, B-12. Raises ConfigError."""
        check_config(config)
        self._directory = take_directory(ImageFiles(str(config.images_dir)))

    def describe(self, config: Config) -> str:
        return daemon.built(config)

    def build(self, client: ZooKeeperClient) -> None:
        """Make the parts that live as long as the builder. Nothing of it runs yet."""
        config = self.config()
        self.client = client
        self.files = ImageFiles(str(config.images_dir))
        self.builder_id = self.files.builder_id()
        self.cache = ImageCache(client)
        self.providers = Providers(ZooKeeper(client, None))
        self._registration = Registration(client, BuilderComponent(socket.gethostname(), release_string()))
        self.shared = Shared(
            client,
            ImageStore(client),
            lambda: self.cache.snapshot() if self.cache.ready.is_set() else None,
            self.config,
            self.providers,
            self.files,
            self.builder_id,
            self.options,
        )
        self._make_parts()
        self.cache.add_listener(self._image_changed)
        self.shared.builds.on_change = self.shared.uploads.on_change = lambda: self.status.current.wake()

    def _make_parts(self) -> None:
        """The table of threads."""
        shared, options = self.shared, self.options
        builds, self.upload_queue = BuildQueue(), UploadQueue(shared)

        def build_worker(number: int) -> Part[BuildWorker]:
            return Part(f"BuildWorker-{number}", lambda: BuildWorker(number, shared, builds))

        def upload_worker(number: int) -> Part[UploadWorker]:
            return Part(f"UploadWorker-{number}", lambda: UploadWorker(number, shared, self.upload_queue))

        def publish() -> None:
            publish_builds(shared)
            publish_uploads(shared)

        def cleanup() -> ImageCleanupWorker:
            return ImageCleanupWorker(shared, lambda: self.upload_queue.running, publish)

        self.build_workers = [build_worker(number) for number in range(options.build_workers)]
        self.upload_workers = [upload_worker(number) for number in range(options.upload_workers)]
        self.cleanup = Part("CleanupWorker-0", cleanup)
        self.status = Part("StatusWorker", lambda: StatusWorker(shared, self.log))
        watch = Part("CallWatch", CallWatch)
        table: list[Part[Any]] = [watch, self.status, self.cleanup, *self.upload_workers, *self.build_workers]
        more = (make(self, self.config()) for make in self._more_parts)
        self.parts = Parts([*table, *(part for part in more if part is not None)], self.log)

    def begin(self) -> None:
        """Start everything. The connection is there; blocks for what interrupted builds left, and for ZooKeeper."""
        for problem in dib.clean_interrupted(self.files.directory.absolute()):
            self.log.error("An interrupted build left files or mounts behind: %s", problem)
        self._prepare_zookeeper(paths.IMAGES)
        self.cache.wait_ready(30)
        self.apply(self.config())
        self.look_again()
        self.parts.start()

    def run_once(self) -> None:
        """One turn of the main loop: follow the configuration, keep every thread alive."""
        self.configuration.follow()
        if not self.client.connected:
            return
        self._registration.update(state=RUNNING)
        before = self.providers.running
        self.providers.retry_failed()
        if self.providers.running is not before:
            self._image_changed("")
        self.parts.revive()

    def apply(self, config: Config) -> None:
        """Make the providers those of a configuration."""
        if ImageFiles(str(config.images_dir)).directory != self.files.directory:
            self.log.warning("images-dir changed: this takes effect after a restart")
        self.providers.apply({name: made for name, made in config.providers.items() if made.manage_images})

    def look_again(self) -> None:
        """Images, uploads and files are judged by the configuration of now. Does not block."""
        self.status.current.wake()
        self.upload_queue.configuration_changed()
        self._image_changed("")

    def end(self) -> None:
        """Stop everything; blocks at most `stop_seconds`. Uploads are not waited for (U-11)."""
        self.stopping.set()
        for thread in self.parts.threads():
            # How far builds are is reported to their end.
            if thread is not self.status.current:
                thread.stop()
        builders = [part.current for part in self.build_workers if part.current.is_alive()]
        self._wait_for_builds(builders)
        stop_all(self.parts.threads(), THREADS_STOP_SECONDS, self.log)
        self.providers.stop(THREADS_STOP_SECONDS)
        self._unregister(self._registration)
        self.client.disconnect()
        os.close(self._directory)
        self.log.info("Stopped")

    def _wait_for_builds(self, builders: list[BuildWorker]) -> None:
        deadline = monotonic() + self.options.stop_timeout
        while any(builder.is_alive() for builder in builders) and monotonic() < deadline:
            if self._end_builds.wait(_LOOK_SECONDS):
                break
        for builder in builders:
            builder.end_build("the builder stops")
        stop_all(builders, END_BUILDS_SECONDS, self.log)

    # -- what parts are told --

    def _image_changed(self, image: str) -> None:
        """An image, the configuration or the providers have changed. Any thread; does not block."""
        workers: list[Part[Any]] = [*self.build_workers, *self.upload_workers, self.cleanup]
        for part in workers:
            part.current.wake()


class StatusWorker(StatusThread):
    """Woken when a build or an upload has begun, ended, or got on."""

    def __init__(self, shared: Shared, log: logging.Logger) -> None:
        super().__init__(shared.client, log)
        self._shared = shared

    def run_once(self) -> float | None:
        """Publish what is done now. Blocks for ZooKeeper."""
        shared, host = self._shared, socket.gethostname()
        status = {
            "builder": shared.host,
            "host": host,
            "providers": sorted(name for name, made in shared.config().providers.items() if made.manage_images),
            "builds": shared.builds.as_status(),
            "uploads": shared.uploads.as_status(),
            "lacking_files": dict(shared.lacking_files),
        }
        self.writer.set(BUILDER, f"{host}-{os.getpid()}", status)
        return None


def check_config(config: Config) -> None:
    """Can a builder start with this configuration (B-12)? Raises ConfigError."""
    lacking = []
    if not config.images_dir:
        lacking.append("images-dir (a directory for image files, such as /var/lib/nodepool/images)")
    if not config.zookeeper_servers:
        lacking.append("zookeeper-servers")
    if lacking:
        raise ConfigError(f"{config.path}: a builder needs {' and '.join(lacking)}")
