# SPDX-License-Identifier: Apache-2.0
"""A builder of one candidate, its configuration, and how its images get on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.support.small_build import SmallBuild
from simulators.openstack import SimulatorClient
from tests.support.image_znodes import ImageZnodes, Upload
from tests.support.launcher import BuilderProcess
from tests.support.launcher_config import write_config
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

#: The released builder looks again after a minute in places.
PATIENCE_SECONDS = 400.0


class CloudProvider:
    """A provider that only takes images."""

    slots = 0
    labels: Sequence[str] = ()

    def __init__(self, cloud: str, images: Sequence[str]) -> None:
        self.name = cloud
        self._images = images

    def as_config(self) -> dict[str, Any]:
        images = [{"name": name} for name in self._images]
        pool = {"name": "main", "networks": ["provider"], "labels": []}
        section = {"driver": "openstack", "cloud": self.name, "rate": 0, "diskimages": images}
        return {"name": self.name, **section, "pools": [pool]}


class ImageSite:
    """What a builder has and does. All methods that wait block, with a bound.

    :param directory: empty; images, logs and configuration are there.
    :param clouds: by name in ``clouds.yaml``.
    """

    def __init__(
        self,
        directory: Path,
        zookeeper: ZooKeeperServer,
        chroot: str,
        command: Sequence[str],
        clouds: Mapping[str, SimulatorClient],
        build: SmallBuild,
    ) -> None:
        self.clouds = clouds
        self.build = build
        self._zookeeper = zookeeper
        self._chroot = chroot
        self._config = directory / "builder.yaml"
        self._files = directory / "images"
        self._files.mkdir()
        self._logs = directory / "build-logs"
        self._logs.mkdir()
        self.records = ImageZnodes(zookeeper.plain_hosts(chroot))
        self._builder = BuilderProcess(self._config, directory / "builder.log", command)

    def __enter__(self) -> ImageSite:
        self.records.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._builder.stop(seconds=60)
        self.records.stop()

    def configure(self, images: Sequence[str]) -> None:
        """Writes the configuration: all clouds get all images."""
        extra = {
            "images-dir": str(self._files),
            "build-log-dir": str(self._logs),
            "diskimages": [
                {"name": name, "dib-cmd": str(self.build.command), "elements": ["element"]} for name in images
            ],
        }
        providers = [CloudProvider(cloud, images) for cloud in self.clouds]
        write_config(self._config, self._zookeeper, self._chroot, providers, extra=extra)

    def start(self) -> float:
        """Starts the builder; returns when that was (monotonic)."""
        moment = time.monotonic()
        self._builder.start()
        return moment

    def cpu_seconds(self) -> float:
        """CPU that the builder used so far, without its builds."""
        return self._builder.cpu_seconds()

    # -- how far it is

    def wait_ready(self, images: Sequence[str], seconds: float = PATIENCE_SECONDS) -> float:
        """Until all clouds have all images; returns when (monotonic)."""

        def ready() -> bool:
            self.check()
            found = [self.records.image(name) for name in images]
            return all(image.current(cloud) for image in found for cloud in self.clouds)

        return self._moment("all images are ready", ready, seconds)

    def wait_begun(self, image: str, known: set[str]) -> float:
        """Until there is a build that is not ``known`` (ids); returns when (monotonic)."""
        path = f"/nodepool/images/{image}/builds"
        return self._moment(f"a build of {image} begins", lambda: set(self.records.children(path)) - known - {"lock"})

    def wait_state(self, image: str, cloud: str, state: str) -> float:
        """Until there is an upload in a state; returns when (monotonic)."""
        look = self.records.image
        return self._moment(f"{image} is {state} in {cloud}", lambda: look(image).uploads(cloud, state))

    def wait_settled(self, image: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Until nothing of an image is on its way: all clouds have its newest build."""

        def settled() -> bool:
            self.check()
            found = self.records.image(image)
            newest = max(found.builds, key=lambda build: float((build.record or {}).get("state_time") or 0))
            states = {build.state for build in found.builds} | {upload.state for upload in found.uploads()}
            return states == {"ready"} and {one.provider for one in newest.uploads} == set(self.clouds)

        self._moment(f"{image} is settled", settled, seconds)

    def upload_starts(self, image: str) -> list[float]:
        """Seconds from when each build was ready until its first upload to a cloud had a record."""
        seconds = []
        for build in self.records.image(image).builds:
            ready = float((build.record or {})["state_time"])
            first = {one.provider: one for one in sorted(build.uploads, key=lambda one: one.upload_id, reverse=True)}
            seconds += [self.records.created(upload.path) - ready for upload in first.values()]
        return seconds

    def wait_upload_gone(self, upload: Upload) -> float:
        """Until the record of an upload is gone, which is after its image; returns when (monotonic)."""
        return self._moment(f"{upload.path} is gone", lambda: self.records.read(upload.path) is None)

    def wait_gone(self, image: str, images_left: int) -> float:
        """Until nothing is left of an image in ZooKeeper, on the disk and in the clouds; returns when (monotonic)."""

        def gone() -> bool:
            self.check()
            if self.records.image(image).builds or any(self._files.glob(f"{image}-*")):
                return False
            return all(cloud.state()["contents"]["images"] == images_left for cloud in self.clouds.values())

        return self._moment(f"{image} is gone", gone)

    def build_ids(self, image: str) -> set[str]:
        return {build.build_id for build in self.records.image(image).builds}

    def _moment(self, what: str, look: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> float:
        wait_for(what, look, seconds)
        return time.monotonic()

    def check(self) -> None:
        """:raises RuntimeError: the builder has ended."""
        if not self._builder.running:
            raise RuntimeError(f"the builder ended: {self._builder.log_text().strip()[-300:]}")
