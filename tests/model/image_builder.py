# SPDX-License-Identifier: Apache-2.0
"""One builder of the simulated world: the real `ImageBuilder` with its workers, on a disk of its own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nodepool.builder.dib import RunResult
from nodepool.builder.image_files import BuildLog
from nodepool.builder.progress import BuilderOptions
from nodepool.builder.supervisor import ImageBuilder
from nodepool.config.loader import ConfigSource
from nodepool.exceptions import ZKConnectionError
from nodepool.zk import caches
from nodepool.zk.transactions import ensure_path
from tests.model.daemon import Daemon

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.runtime.worker import Worker
    from tests.model.image_layout import ImageLayout
    from tests.model.image_world import ImageWorld

#: How long a build takes.
BUILD_SECONDS: Final = 3.0


class ImageSource(ConfigSource):
    """The configuration file is the world's `ImageLayout`.

    :param directory: of the builder.
    """

    def __init__(self, world: ImageWorld, directory: Path) -> None:
        self._world = world
        self._directory = directory
        self._given: ImageLayout | None = None

    def files(self) -> list[str]:
        return []

    def changed(self) -> bool:
        return self._given is not self._world.images

    def load(self) -> Config:
        self._given = self._world.images
        return self._given.config(self._world.cloud_name, self._directory)


class Builder(Daemon):
    """Real but for its threads, its connection and diskimage-builder."""

    world: ImageWorld
    #: Longer than it is: an hour has to pass in each run.
    main_loop_seconds = 10.0

    def __init__(self, world: ImageWorld, name: str) -> None:
        super().__init__(world, name)
        self.directory = world.disk(name)
        world.starting = self
        options = BuilderOptions(build_workers=1, upload_workers=2)
        self.builder = ImageBuilder(f"/nowhere/{name}.yaml", None, options)
        self.builder.configuration.source = ImageSource(world, self.directory)
        self.builder.configuration.load()
        self.builder.build(self.client)
        world.starting = None
        world.spawn(f"{name}.start", self, self._start)

    def _start(self) -> None:
        """What `ImageBuilder.run` does before its loop."""
        builder = self.builder
        self.client.connect()
        ensure_path(self.client, caches.IMAGES)
        self.world.baton.wait(builder.cache.ready.is_set)
        builder.apply(builder.configuration.current)
        builder.look_again()
        self.serving = True

    @property
    def workers(self) -> list[Worker]:
        builder = self.builder
        builders = [part.current for part in builder.build_workers]
        uploaders = [part.current for part in builder.upload_workers]
        return [*builders, *uploaders, builder.cleanup.current]

    @property
    def complete(self) -> bool:
        return self.builder.cache.ready.is_set()

    @property
    def knows_own_records(self) -> bool:
        """R-15: who sees no record of its own leaves files alone that have none."""
        records = [build.record or {} for image in self.world.stored().values() for build in image.builds]
        return any(record.get("builder_id") == self.builder.builder_id for record in records)

    def turn(self) -> None:
        builder = self.builder
        try:
            builder.configuration.follow()
            builder.providers.retry_failed()
        except ZKConnectionError as error:
            builder.log.warning("Main loop interrupted: %s", error)

    def end(self) -> None:
        """SIGTERM: builds are ended; uploads and deletions are left to whoever comes next (U-11)."""
        builders = [part.current for part in self.builder.build_workers]
        for worker in self.workers:
            worker.stop()
        for build_worker in builders:
            build_worker.end_build("the builder stops")
        self.world.baton.wait(lambda: self._busy.isdisjoint(builders))
        with contextlib.suppress(ZKConnectionError):
            self.builder.cleanup.current.on_stop()


class ModelDib:
    """`nodepool.builder.dib.DibRun`: two small files after a while."""

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        build_log: BuildLog,
        on_line: Callable[[str], None] = lambda line: None,
        on_start: Callable[[int], None] = lambda pid: None,
        *_: Any,
    ) -> None:
        from tests.model.image_world import ImageWorld

        self._world = ImageWorld.here()
        words = list(command)
        self._base = Path(words[words.index("-o") + 1])
        self._formats = words[words.index("-t") + 1].split(",")
        self._log = build_log
        self._reason = ""

    def stop(self, reason: str) -> None:
        self._reason = self._reason or reason

    def run(self, timeout: float | None = None, _spent: float = 0.0) -> RunResult:
        world = self._world
        for image_format in self._formats:
            self._write(image_format, b"not complete")
        self._log.write_line("begins")
        if world.baton.wait(lambda: bool(self._reason), world.now + BUILD_SECONDS):
            return RunResult(None, self._reason)
        if world.failing_builds:
            world.failing_builds -= 1
            return RunResult(1, "exit code 1")
        for image_format in self._formats:
            data = uuid.uuid4().bytes
            md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
            self._write(image_format, data)
            self._write(f"{image_format}.md5", f"{md5}  x\n".encode())
            self._write(f"{image_format}.sha256", f"{hashlib.sha256(data).hexdigest()}  x\n".encode())
            world.built[f"{self._base.name}.{image_format}"] = md5
        return RunResult(0)

    def _write(self, extension: str, data: bytes) -> None:
        path = self._base.with_name(f"{self._base.name}.{extension}")
        path.write_bytes(data)
        # By the clock of the world: files without a record are judged by their age.
        os.utime(path, (self._world.now, self._world.now))


class ModelWorkDir:
    """`nodepool.builder.dib.WorkDir`: there are no processes, and nothing is mounted."""

    def __init__(self, _images_dir: Path, parent: Path, name: str) -> None:
        self.path = parent / name

    def started(self, pid: int) -> None:
        return

    def remove(self) -> list[str]:
        return []
