# SPDX-License-Identifier: Apache-2.0
"""``nodepool-builder --fake`` as a process, and what it has built."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodepool.driver.registry import PATH_VARIABLE
from simulators.example_cloud import EXAMPLE_DRIVERS
from tests.support.launcher import BuilderProcess
from tests.support.launcher_config import write_config
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

IMAGE = "debian"


class FakeBuilder(BuilderProcess):
    """A builder with fake builds, its directories and its configuration.

    :param images: settings of ``diskimages`` by name.
    :param extra: other top-level keys.
    """

    def __init__(
        self,
        directory: Path,
        zookeeper: ZooKeeperServer,
        chroot: str,
        znodes: PoolZnodes,
        *options: str,
        images: Mapping[str, Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
        session_seconds: float = 10.0,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.images_dir = directory / "images"
        self.temporary = directory / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.config_path = directory / "nodepool.yaml"
        self.znodes = znodes
        self._place = (zookeeper, chroot, session_seconds)
        self.extra = {"images-dir": str(self.images_dir), "build-log-dir": str(directory / "logs"), **(extra or {})}
        self.configure(images or {IMAGE: {"formats": ["raw"]}})
        variables = {"TMPDIR": str(self.temporary), PATH_VARIABLE: str(EXAMPLE_DRIVERS)}
        arguments = ["--fake", *options]
        super().__init__(
            self.config_path, directory / "builder.log", options=arguments, debug=True, environment=variables
        )

    def configure(self, images: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the configuration; a running builder follows it."""
        zookeeper, chroot, session_seconds = self._place
        sections = [{"name": name, **settings} for name, settings in images.items()]
        extra = {**self.extra, "diskimages": sections}
        write_config(self.config_path, zookeeper, chroot, [], session_seconds=session_seconds, extra=extra)

    def end(self) -> None:
        """Stops it. It fails if its log has a traceback, but for those that are told at level DEBUG."""
        self.stop(seconds=60)
        lines = self.log_text().splitlines()
        assert not [line for line in lines if "Traceback" in line and " DEBUG " not in line]

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.running, f"the builder ended:\n{self.log_text()}"
            return "nodepool.cmd.daemon: Ready" in self.log_text()

        wait_for("the builder is ready", ready)

    def builds(self, image: str = IMAGE) -> dict[str, dict[str, Any]]:
        """Id -> record of each build in ZooKeeper."""
        # One that has failed may go between two looks.
        return {one.build_id: one.record for one in self.znodes.image(image).builds if one.record is not None}

    def uploads(self, provider: str, image: str = IMAGE) -> list[dict[str, Any]]:
        """Records of uploads, without those that stay for a minute after their images were deleted."""
        found = self.znodes.image(image).uploads(provider)
        return [one.record for one in found if one.record is not None and one.state != "deleting"]

    def wait_state(self, state: str, count: int = 1, image: str = IMAGE) -> list[str]:
        """Blocks until so many builds have the state; returns their ids."""

        def there() -> list[str]:
            assert self.running, f"the builder ended:\n{self.log_text()}"
            found = [build_id for build_id, build in self.builds(image).items() if build["state"] == state]
            return found if len(found) >= count else []

        return wait_for(f"{count} builds of {image} {state}", there)

    def wait_failed(self, count: int = 1, image: str = IMAGE) -> list[str]:
        """Blocks until so many builds have failed; returns their ids. Their records are removed soon after that."""
        failed = re.compile(rf"Build (\w+) of image {re.escape(image)} failed: ")

        def there() -> list[str]:
            found = failed.findall(self.log_text())
            return found if len(found) >= count else []

        return wait_for(f"{count} builds of {image} failed", there)

    def files(self) -> set[str]:
        """Names below images-dir."""
        return {path.name for path in self.images_dir.iterdir()} if self.images_dir.exists() else set()

    def log_of(self, build_id: str, image: str = IMAGE) -> str:
        return (self.config_path.parent / "logs" / f"{image}-{build_id}.log").read_text(encoding="utf-8")

    def request(self, image: str = IMAGE) -> None:
        """As ``nodepool image-build``."""
        self.znodes.kazoo.ensure_path(f"/nodepool/images/{image}/request-build")

    def requested(self, image: str = IMAGE) -> bool:
        return self.znodes.kazoo.exists(f"/nodepool/images/{image}/request-build") is not None


@contextmanager
def builder_of(
    section: Mapping[str, Any], directory: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes
) -> Iterator[FakeBuilder]:
    """A builder, not started yet, that builds `IMAGE` once for one provider. Its session is over soon after its death.

    :param section: of the provider, without images and pools.
    """
    made = FakeBuilder(
        directory / "builder",
        zookeeper,
        chroot,
        znodes,
        images={IMAGE: {"rebuild-age": 86400}},
        extra={"providers": [{**section, "diskimages": [{"name": IMAGE}], "pools": []}]},
        session_seconds=3,
    )
    try:
        yield made
    finally:
        made.end()
